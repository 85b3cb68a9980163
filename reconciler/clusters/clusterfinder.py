"""Which clusters there are, while they come and go: fixed ones, a folder of kubeconfigs, Secrets and ClusterProfiles.

Files and objects are read by `reconciler.core.foundclusters`. What cannot be read changes nothing: a file
that is just being written, an object with a mistake or an API server that is away leaves what was known before.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

from reconciler.clusters.answers import ClusterError, reading
from reconciler.clusters.client import IN_CLUSTER, ClusterClient, ClusterConfig
from reconciler.core import foundclusters
from reconciler.core.foundclusters import NOTHING_ALLOWED, AccessProvider, Allowed, FindingError, Member, vetted
from runtime.log import Clock, wall_clock_ms
from runtime.process import PartConfig
from schemas.connection import KafkaSettings
from schemas.jsontext import check_depth
from schemas.kubernetes.shape import Json
from schemas.textfiles import decode_text

log = logging.getLogger(__name__)

LOOK_S: Final = 2.0
"""How often a folder is looked at. Mounted Secrets change by links, which not every system reports."""
AGAIN_S: Final = 2.0
LONGEST_AGAIN_S: Final = 30.0
WATCH_S: Final = 300
_SILENCE_MARGIN_S: Final = 30.0
OWN_CLUSTER: Final = ClusterConfig("the cluster with the inventory", context=IN_CLUSTER)
_PROFILES: Final = "/apis/multicluster.x-k8s.io/v1alpha1/namespaces/{}/clusterprofiles"
_SECRETS: Final = "/api/v1/namespaces/{}/secrets"


@dataclass(frozen=True, kw_only=True)
class ClusterSources:
    """Where the clusters of a process are named.

    `fixed`: always there. `folder`: one kubeconfig per file. `secrets`, `argocd`, `profiles`: namespaces with Secrets
    of kubeconfigs, Argo CD's cluster Secrets, ClusterProfiles; `provider_file` belongs to the last. `inventory`: the
    cluster in which these namespaces are. `allowed`: what kubeconfigs of the folder, of Secrets and of Argo CD may do;
    the plugins of ClusterProfiles are the operator's own, from the provider file.
    """

    fixed: tuple[ClusterConfig, ...] = ()
    folder: str = ""
    secrets: str = ""
    argocd: str = ""
    profiles: str = ""
    provider_file: str = ""
    inventory: ClusterConfig = OWN_CLUSTER
    allowed: Allowed = NOTHING_ALLOWED

    @property
    def are_fixed(self) -> bool:
        """Whether no cluster can come or go."""
        return not (self.folder or self.secrets or self.argocd or self.profiles)

    @property
    def label(self) -> str:
        """A name that processes with the same sources share."""
        named = (("dir", self.folder), ("secrets", self.secrets), ("argocd", self.argocd), ("profiles", self.profiles))
        return "+".join(f"{kind}:{where}" for kind, where in named if where)


FIXED: Final = ClusterSources()
"""Nothing that comes or goes."""


@dataclass(frozen=True, kw_only=True)
class FleetConfig(PartConfig):
    """Settings of a part that works on several clusters: `clusters`, and where further ones are `found`, which come and
    go.
    """

    kafka: KafkaSettings
    clusters: tuple[ClusterConfig, ...]
    found: ClusterSources = FIXED
    clock: Clock = wall_clock_ms

    @property
    def sources(self) -> ClusterSources:
        """Where all clusters are named."""
        return replace(self.found, fixed=self.clusters)


@dataclass
class JoinedCluster:
    """A cluster that a part works on: as it is named now, its client, and what runs for it."""

    member: Member
    client: ClusterClient
    tasks: list[asyncio.Task[None]]

    def follow(self, member: Member) -> None:
        """Record how the cluster is named now, and reach it in that way from now on."""
        if member.config != self.member.config:
            about = {"cluster": self.client.name, "origin": member.origin}
            log.info("a cluster is reached in another way", extra=about)
            self.client.reconfigure(member.config)
        self.member = member

    async def end(self) -> None:
        """End what runs for the cluster."""
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


Members = Mapping[str, Member]
OnMembers = Callable[[Members], Awaitable[None]]
NoteFinding = Callable[[str, str | None], None]
"""A source or object, and why it cannot be read; None: it can (again)."""
_Read = Callable[[Json], Iterable[Member]]
_ODD_OBJECT = (ValueError, LookupError, TypeError, AttributeError, RecursionError, ArithmeticError)
"""What a single object can raise, whatever is written in it: it concerns no other."""
_Stamps = dict[str, tuple[int, int, int]]
"""File → what changes when it changes."""


class ClusterFinder:
    """Follows the sources. `note` is called with what cannot be read, which is logged, too.

    `is_logging`: False for who shows all that was noted.
    """

    def __init__(self, sources: ClusterSources, note: NoteFinding, *, is_logging: bool = True) -> None:
        self._sources, self._note, self._is_logging = sources, note, is_logging
        self._known: dict[tuple[str, str], list[Member]] = {}
        """(source, file or object) → the clusters that it named when it could last be read."""
        self._holders: dict[str, str] = {}
        """Cluster → the object or file that named it last: another one does not take it over."""
        self._noted: set[str] = set()
        self._news = asyncio.Event()

    async def read_sources(self) -> None:
        """Read all sources once; what cannot be read is noted.

        Raises FindingError: the provider file cannot be used.
        """
        if self._sources.folder:
            await self._read_folder(Path(self._sources.folder), {})
        watches = list(self._watches(self._providers()))
        if not watches:
            return
        client = ClusterClient(self._sources.inventory)
        try:
            for path, selector, read in watches:
                try:
                    await self._list(client, path, selector, read)
                except ClusterError as error:
                    self._note(_source(path, selector), str(error))
        finally:
            await client.close()

    async def run(self, changed: OnMembers) -> None:
        """Call `changed` with all clusters whenever they change, for ever; at once with those that are fixed.

        Raises FindingError: the provider file cannot be used.
        """
        providers = self._providers()
        reported: Members | None = None
        async with asyncio.TaskGroup() as group:
            if self._sources.folder:
                group.create_task(self._follow_folder(Path(self._sources.folder)))
            watches = list(self._watches(providers))
            client = ClusterClient(self._sources.inventory) if watches else None
            for path, selector, read in watches:
                assert client is not None
                group.create_task(self._follow(client, path, selector, read))
            try:
                while True:
                    members = self.members()
                    if members != reported:
                        reported = members
                        await changed(members)
                    await self._news.wait()
                    self._news.clear()
            finally:
                if client is not None:
                    await client.close()

    def _providers(self) -> list[AccessProvider]:
        if not self._sources.profiles:
            return []
        path = self._sources.provider_file
        try:
            text = decode_text(Path(path).expanduser().read_bytes())
        except (OSError, UnicodeDecodeError) as error:
            raise FindingError(f"--clusterprofile-provider-file {path} cannot be read: {error}") from error
        return foundclusters.providers_of(text, f"--clusterprofile-provider-file {path}")

    def _watches(self, providers: list[AccessProvider]) -> Iterable[tuple[str, str, _Read]]:
        """Path, label selector and reader of each collection."""
        sources = self._sources
        if sources.secrets:
            for label in (foundclusters.CLUSTER_LABEL, foundclusters.CLUSTER_API_LABEL):
                yield _SECRETS.format(sources.secrets), label, self._vetting(foundclusters.from_kubeconfig_secret)
        if sources.argocd:
            read_argocd = self._vetting(foundclusters.from_argocd_secret)
            yield _SECRETS.format(sources.argocd), foundclusters.ARGOCD_SELECTOR, read_argocd
        if sources.profiles:

            def read(profile: Json) -> Iterable[Member]:
                return foundclusters.from_cluster_profile(profile, providers)

            yield _PROFILES.format(sources.profiles), "", read

    def _vetting(self, read: Callable[[Json], Iterable[Member]]) -> _Read:
        """A reader of objects whose kubeconfigs do no more than the operator allows."""
        return lambda item: [vetted(each, self._sources.allowed) for each in read(item)]

    def members(self) -> Members:
        """All clusters by name, as they could last be read; of two with one name, the fixed one counts, or the one that
        was there.
        """
        fixed = {each.name: Member(each) for each in self._sources.fixed}
        clusters, problems = foundclusters.checked(
            (each for listed in self._known.values() for each in listed), self._holders
        )
        self._holders = {name: each.origin for name, each in clusters.items()}
        for name in [name for name in clusters if name in fixed]:
            problems.append(f"{clusters.pop(name).origin}: cluster {name} is one of the options already: rename one")
        self._record_problems(problems)
        return fixed | dict(sorted(clusters.items()))

    def _record_problems(self, problems: Iterable[str]) -> None:
        now = {f"clusters: {text.partition(': ')[0]}": text for text in problems}
        for gone in self._noted - now.keys():
            self._note(gone, None)
        for key, text in now.items():
            if key not in self._noted:
                self._log("a cluster is left out", text)
            self._note(key, text)
        self._noted = set(now)

    # --- a folder -----------------------------------------------------------------------------------------------------

    async def _follow_folder(self, folder: Path) -> None:
        seen: _Stamps = {}
        while True:
            seen = await self._read_folder(folder, seen)
            await asyncio.sleep(LOOK_S)

    async def _read_folder(self, folder: Path, seen: _Stamps) -> _Stamps:
        """Read the files that are not as they were seen; return how they are now."""
        try:
            stamps = await asyncio.to_thread(_stamps, folder)
            self._note(f"folder {folder}", None)
        except OSError as error:
            self._note(f"folder {folder}", f"cannot be read: {error.strerror or error}")
            return seen
        for name in stamps.keys() | seen.keys():
            if stamps.get(name) != seen.get(name):
                self._update_file(folder / name, is_there=name in stamps)
        return stamps

    def _update_file(self, path: Path, *, is_there: bool) -> None:
        def read() -> Iterable[Member]:
            try:
                cluster = foundclusters.from_kubeconfig_file(decode_text(path.read_bytes()), path.name)
                return [vetted(each, self._sources.allowed) for each in cluster]
            except (OSError, UnicodeDecodeError) as error:
                raise FindingError(f"file {path.name}: {error}") from error

        self._update("folder", path.name, read if is_there else None)

    # --- objects of an API server -------------------------------------------------------------------------------------

    async def _follow(self, client: ClusterClient, path: str, selector: str, read: _Read) -> None:
        """List and watch a collection. A watch that ends is begun again with a list."""
        source, pause_s = _source(path, selector), AGAIN_S
        while True:
            try:
                version = await self._list(client, path, selector, read)
                pause_s = AGAIN_S
                begin = {"watch": "true", "resourceVersion": version, "timeoutSeconds": WATCH_S}
                request = f"{path}?{urlencode(_selecting(selector) | begin)}"
                async for event in client.watch(request, silence_s=WATCH_S + _SILENCE_MARGIN_S):
                    with reading(f"an event of {path} cannot be read"):
                        self._update_object(source, event["object"], read, is_there=event["type"] != "DELETED")
            except ClusterError as error:
                self._note(source, str(error))
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, LONGEST_AGAIN_S)

    async def _list(self, client: ClusterClient, path: str, selector: str, read: _Read) -> str:
        """Apply a collection as it is now; return its version."""
        listed = await client.get_object(f"{path}?{urlencode(_selecting(selector))}")
        source = _source(path, selector)
        with reading(f"the list of {path} cannot be read"):
            self._replace(source, listed.get("items") or [], read)
        self._note(source, None)
        return str(listed["metadata"]["resourceVersion"])

    def _replace(self, source: str, items: list[Json], read: _Read) -> None:
        there = {item["metadata"]["name"] for item in items}
        for known_source, name in list(self._known):
            if known_source == source and name not in there:
                self._update(source, name, None)
        for item in items:
            self._update_object(source, item, read, is_there=True)

    def _update_object(self, source: str, item: Json, read: _Read, *, is_there: bool) -> None:
        self._update(source, item["metadata"]["name"], (lambda: read(item)) if is_there else None)

    def _update(self, source: str, name: str, read: Callable[[], Iterable[Member]] | None) -> None:
        """A file or object is new or changed; `read` None: it has gone. One that cannot be read stays as it was."""
        key, where = (source, name), f"{name} in {source}"
        if read is None:
            self._known.pop(key, None)
            self._note(where, None)
        else:
            try:
                members = list(read())
                for each in members:
                    check_depth(each.config.document)
                self._known[key] = members
                self._note(where, None)
            except _ODD_OBJECT as error:
                text = str(error) if isinstance(error, FindingError) else f"{where}: {type(error).__name__}: {error}"
                self._log("a cluster cannot be read from its object", text)
                self._note(where, text)
        self._news.set()

    def _log(self, message: str, error: str) -> None:
        if self._is_logging:
            log.error(message, extra={"error": error})


async def find_once(sources: ClusterSources) -> tuple[Members, dict[str, str]]:
    """The clusters that there are at this moment, and what cannot be read: source or object → why.

    Raises FindingError: the provider file cannot be used.
    """
    unreadable: dict[str, str] = {}

    def note(what: str, why: str | None) -> None:
        unreadable.pop(what, None)
        if why is not None:
            unreadable[what] = why

    finder = ClusterFinder(sources, note, is_logging=False)
    await finder.read_sources()
    return finder.members(), unreadable


def _source(path: str, selector: str) -> str:
    return f"{path}?{selector}"


def _selecting(selector: str) -> dict[str, str]:
    return {"labelSelector": selector} if selector else {}


def _stamps(folder: Path) -> _Stamps:
    """Return what shows that a file changed: name → time of change, size, number; hidden files and folders are left
    out.
    """
    stamps = {}
    for path in folder.iterdir():
        if not path.name.startswith(".") and path.is_file():
            stat = path.stat()
            stamps[path.name] = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
    return stamps
