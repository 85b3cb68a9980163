"""What `adopt` and `release` share: which HPAs they mean, the native HPAs of a cluster, and an operator's proof that no
native controller runs (an agent cannot record it, as it may write no settings).

Requests use the user's own credentials (`--kubeconfig`), and texts about native objects repeat what the API server
answered, not what an observer has seen.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import quote

import click

from fleethpa.changes.foresight import Present, concerns
from fleethpa.changes.writing import PlannedRecord, confirm, show, write_all
from fleethpa.fleet.finding import no_such_cluster
from fleethpa.fleet.members import member_clusters
from fleethpa.fleet.selection import DEFAULT_NAMESPACE, named_namespace, parse_ref
from fleethpa.fleet.state import hpa_names, read_state
from fleethpa.frame.errors import ANSWER_IS_NO, OK, CommandError, unreachable, usage
from fleethpa.frame.options import parse_duration_ms
from fleethpa.frame.session import Session
from reconciler.clusters.answers import ApiError, ClusterError
from reconciler.core.objectbodies import hpa_path
from schemas.keys import HpaId, partition_for
from schemas.kubernetes.shape import Json
from schemas.observed import AutoscalerDeleted
from schemas.settings import ClusterSettings, SettingsSet
from streams.state.rows import DirectoryKey

if TYPE_CHECKING:
    from fleethpa.fleet.views import FleetState
    from reconciler.clusters.client import ClusterClient
    from reconciler.observer.native import Verdict


R = TypeVar("R")
T = TypeVar("T")

BATCH: Final = 20
"""So many HPAs change hands at once: few enough that a command which is killed leaves little half done."""
LOOK_EVERY_S: Final = 0.5
REPORTED_S: Final = 30.0
"""How long an agent may take to report what was done in its cluster."""
_PAGE: Final = 500
_CONFLICTS: Final = 3


@dataclass(frozen=True)
class Place:
    """Which HPAs change hands: one HPA, those of a namespace (`name` empty), or those of a cluster (both empty)."""

    cluster: str
    namespace: str = ""
    name: str = ""

    def holds(self, hpa: HpaId) -> bool:
        """Whether an HPA is meant."""
        return hpa.cluster == self.cluster and self.namespace in ("", hpa.namespace) and self.name in ("", hpa.name)

    def __str__(self) -> str:
        return "/".join(part for part in (self.cluster, self.namespace, self.name) if part)

    @property
    def arguments(self) -> str:
        """The arguments of a command that name the same HPAs."""
        if self.name:
            return str(self)
        return f"-C {self.cluster} -n {self.namespace}" if self.namespace else f"-C {self.cluster} -A"


def place_options(verb: str) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """`[CLUSTER/][NAMESPACE/]NAME` as in `get`, or `-C` with `-n` or `-A`; the function gets one argument `place`."""

    def decorate(function: Callable[..., R]) -> Callable[..., R]:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> R:
            named = [kwargs.pop(each) for each in ("name", "cluster", "namespace", "all_namespaces")]
            return function(*args, place=place_of(verb, *named), **kwargs)

        decorated: Callable[..., R] = wrapper
        decorated = click.option("-C", "--cluster", help="The cluster, where NAME does not name it.")(decorated)
        decorated = click.option("-A", "--all-namespaces", is_flag=True, help="Every HPA of the cluster.")(decorated)
        decorated = click.option("-n", "--namespace", help="Namespace of NAME; without NAME all of it.")(decorated)
        what = "[[CLUSTER/][NAMESPACE/]NAME]"
        return click.argument("name", required=False, shell_complete=hpa_names, metavar=what)(decorated)

    return decorate


def place_of(verb: str, name: str | None, cluster: str | None, namespace: str | None, all_namespaces: bool) -> Place:
    """Read which HPAs a hand-over means. Raises CommandError: none is named, or two contradict (exit 2)."""
    namespace = named_namespace(namespace)
    if namespace and all_namespaces:
        raise usage("-n and -A exclude each other")
    if cluster is not None and not cluster.strip():
        raise usage("-C is empty", cause="Name a cluster.")
    if name is None:
        if cluster and (namespace or all_namespaces):
            return Place(cluster, namespace or "")
        raise usage(
            f"{verb} what?",
            cause="Name an HPA, CLUSTER/NAMESPACE/NAME, or a cluster with -C and a namespace with -n or all with -A.",
            next_step=f"fleethpa {verb} -C {cluster or 'CLUSTER'} -n NAMESPACE --dry-run",
        )
    ref = parse_ref(name)
    if all_namespaces:
        raise usage(f"-A means every HPA of a cluster, and {ref} names one", next_step="leave out one of them")
    for given, option, named in ((cluster, "-C", ref.cluster), (namespace, "-n", ref.namespace)):
        if given and named and given != named:
            raise usage(f"{option} {given} and {ref} contradict each other", next_step="leave out one of them")
    found = Place(ref.cluster or cluster or "", ref.namespace or namespace or DEFAULT_NAMESPACE, ref.name)
    if not found.cluster:
        raise usage(
            f"{ref} does not say in which cluster",
            cause=f"As in `fleethpa get hpa`, it is the HPA {found.name} of namespace {found.namespace}.",
            next_step=f"fleethpa {verb} {ref} -C CLUSTER --dry-run",
        )
    return found


def batches(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """Give the items in groups of at most `BATCH`, in their order."""
    for first in range(0, len(items), BATCH):
        yield items[first : first + BATCH]


class NativeHpas:
    """The HPA objects of one cluster, read and changed through its API server."""

    def __init__(self, client: ClusterClient, cluster: str) -> None:
        self._client, self.cluster = client, cluster

    async def listed(self, place: Place) -> dict[HpaId, Json]:
        """Give the objects that a place means, as autoscaling/v2; none where nothing is there.

        Raises CommandError: the API server refuses (exit 1), or does not answer (exit 3).
        """
        if place.name:
            found = await self.get(HpaId(place.cluster, place.namespace, place.name))
            return {} if found is None else {_id(self.cluster, found): found}
        path = f"{hpa_path(place.namespace)}?limit={_PAGE}"
        items: list[Json] = []
        token = ""
        while True:
            page = await self._ask("GET", path + (f"&continue={quote(token)}" if token else ""), "list the native HPAs")
            items += page.get("items") or ()
            token = (page.get("metadata") or {}).get("continue") or ""
            if not token:
                # A list's items do not repeat what they are.
                kind = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler"}
                return {_id(self.cluster, each): kind | each for each in sorted(items, key=_name)}

    async def get(self, hpa: HpaId) -> Json | None:
        """Return one object, None if it does not exist. Raises as `listed`."""
        try:
            return await self._ask("GET", _path(hpa), f"read the native HPA {hpa}")
        except CommandError as error:
            if isinstance(error.__cause__, ApiError) and error.__cause__.status == 404:
                return None
            raise

    async def try_to_create(self, hpa: HpaId, manifest: Json) -> str:
        """Say why the API server would refuse an object, webhooks and quotas included; empty: it would take it."""
        try:
            await self._client.request("POST", f"{hpa_path(hpa.namespace)}?dryRun=All", body=manifest)
        except ApiError as error:
            return str(error)
        except Exception as error:
            raise self._no_answer(error) from error
        return ""

    async def create(self, hpa: HpaId, manifest: Json) -> Json:
        """Create an object; one of this name that is there already is returned as it is. Raises as `listed`."""
        try:
            return await self._ask("POST", hpa_path(hpa.namespace), f"create the native HPA {hpa}", manifest)
        except CommandError as error:
            is_there = isinstance(error.__cause__, ApiError) and error.__cause__.status == 409
            found = await self.get(hpa) if is_there else None
            if found is None:
                raise
            return found

    async def carry_status(self, hpa: HpaId, native: Json, carried: Json) -> None:
        """Give a native HPA what its controller must know of the past; what it has written itself stays.

        `carried`: `lastScaleTime`, the condition ScaledToZero, and the counts that a status must have.

        Raises CommandError: it could not be written (exit 1 or 3).
        """
        for attempt in range(_CONFLICTS):
            own = native.get("status") or {}
            conditions = {each["type"]: each for each in (*carried["conditions"], *(own.get("conditions") or ()))}
            body = native | {"status": carried | own | {"conditions": list(conditions.values())}}
            try:
                await self._ask("PUT", f"{_path(hpa)}/status", f"write the status of the native HPA {hpa}", body)
            except CommandError as error:
                is_stale = isinstance(error.__cause__, ApiError) and error.__cause__.status == 409
                found = await self.get(hpa) if is_stale else None
                if found is None or attempt == _CONFLICTS - 1:
                    raise
                native = found
            else:
                return

    async def delete(self, hpa: HpaId, native: Json) -> None:
        """Delete this very object: one of its name that was made anew stays. Gone already is as good.

        Raises CommandError: it could not be deleted (exit 3).
        """
        body = {"preconditions": {"uid": native["metadata"]["uid"]}}
        try:
            await self._client.request("DELETE", _path(hpa), body=body)
        except ApiError as error:
            if error.status != 404:
                raise _not_deleted(hpa, error) from error
        except ClusterError as error:
            raise _not_deleted(hpa, error) from error

    async def _ask(self, method: str, path: str, what: str, body: Json | None = None) -> Json:
        try:
            if body is None:
                return await self._client.get(path)
            return await self._client.request(method, path, body=body)
        except ApiError as error:
            step = f"fleethpa clusters check {self.cluster} --enforce" if error.status == 403 else "fleethpa get hpa -A"
            raise CommandError(f"cannot {what}: {error}", next_step=step) from error
        except Exception as error:
            raise self._no_answer(error) from error

    def _no_answer(self, error: Exception) -> Exception:
        if not isinstance(error, ClusterError):
            return error
        return unreachable(f"cluster {self.cluster} does not answer: {error}", next_step="check --kubeconfig")


def _not_deleted(hpa: HpaId, error: Exception) -> CommandError:
    return unreachable(
        f"the native HPA {hpa} was not deleted: {error}",
        cause="The central HPA exists, but writes nothing while the native one exists.",
        next_step=f"kubectl --context {hpa.cluster} delete hpa {hpa.name} -n {hpa.namespace}",
    )


@asynccontextmanager
async def native_hpas(session: Session, cluster: str) -> AsyncIterator[NativeHpas]:
    """Open the API server of a cluster. Raises CommandError: the kubeconfig has no context of this name (exit 2)."""
    client = open_client(session, cluster)
    try:
        yield NativeHpas(client, cluster)
    finally:
        await client.close()


def open_client(session: Session, cluster: str) -> ClusterClient:
    """Make the client of a cluster; raises as `native_hpas`."""
    from reconciler.clusters.client import ClusterClient

    clusters = {each.name: each for each in member_clusters(session.config)}
    if cluster not in clusters:
        known = ", ".join(clusters) or "none"
        cause = f"{session.config.kubeconfig} has {known}."
        raise usage(f"no context for cluster {cluster}", cause=cause, next_step="add --kubeconfig FILE")
    return ClusterClient(clusters[cluster])


def has_agent(state: FleetState, cluster: str) -> bool:
    """Whether a cluster has an agent: then only that may say what is observed there, and commands wait for it."""
    view = state.clusters.get(cluster)
    return view is not None and view.agent is not None and not view.agent.left


async def until_reported(session: Session, wanted: Mapping[HpaId, str]) -> list[HpaId]:
    """Wait until the log has these native objects (by uid; empty: none of this name); give those that it has not."""
    ends = time.monotonic() + REPORTED_S
    while True:
        async with session.past() as past:
            count = await past.partitions()
            state = await read_state(past, sorted({partition_for(hpa.namespace_key, count) for hpa in wanted}))
        open_ = [hpa for hpa, uid in wanted.items() if _known_uid(state, hpa) != uid]
        if not open_ or time.monotonic() >= ends:
            return open_
        await rest(LOOK_EVERY_S)


async def rest(seconds: float) -> None:
    """Wait until the next look."""
    await asyncio.sleep(seconds)


def _known_uid(state: FleetState, hpa: HpaId) -> str:
    namespace = state.namespaces.get((hpa.cluster, hpa.namespace))
    entry = namespace.directory.get(DirectoryKey(hpa.name, "cluster")) if namespace is not None else None
    return entry.uid if entry is not None else ""


def deletion_of(native: Mapping[str, Any], author: str, reason: str) -> AutoscalerDeleted:
    """Say in the log that a native object was deleted, so that nothing depends on how soon an observer sees it."""
    metadata = native["metadata"]
    return AutoscalerDeleted(name=metadata["name"], uid=metadata["uid"], author=author, reason=reason)


def owner_of(native: Mapping[str, Any]) -> str:
    """Name the controller that would create an object again (`ScaledObject/web`); empty: no controller would."""
    owners: Iterable[Mapping[str, Any]] = native["metadata"].get("ownerReferences") or ()
    return next((f"{each['kind']}/{each['name']}" for each in owners if each.get("controller")), "")


def _path(hpa: HpaId) -> str:
    return hpa_path(hpa.namespace, hpa.name)


def _id(cluster: str, native: Mapping[str, Any]) -> HpaId:
    return HpaId(cluster, native["metadata"]["namespace"], native["metadata"]["name"])


def _name(native: Mapping[str, Any]) -> tuple[str, str]:
    return native["metadata"]["namespace"], native["metadata"]["name"]


WITNESSED: Final = "it wrote the status of the canary HPA"


async def prove_native_absent(
    session: Session, cluster: str, namespace: str, lasting: str, written: dict[str, Any]
) -> int:
    """Create a canary HPA, look whether anybody writes its status, and record the verdict; returns the exit code.

    Args:
        namespace: where the canary is created.
        lasting: how long its status must stay empty, as `45s`.
        written: the options of a command that writes.

    Raises:
        CommandError: the cluster is not known (exit 4) or has no context (2), refuses (1) or does not answer (3).
    """
    lasts_s = parse_duration_ms(lasting, "--canary-wait") / 1000
    client = open_client(session, cluster)
    try:
        async with session.past() as past:
            state, present = await read_state(past), await Present.read(past)
        if cluster not in state.clusters:
            raise no_such_cluster(cluster, state)
        what = f"canary HPA in {namespace} for {lasting}"
        if written["dry_run"]:
            session.out(f"{cluster}: {what} (dry run)")
            return OK
        session.note(f"{cluster}: {what}, whose target does not exist …")
        verdict = await _verdict(client, cluster, namespace, lasts_s)
    finally:
        await client.close()
    settings = ClusterSettings(native_controller=verdict, native_evidence=WITNESSED if verdict == "present" else None)
    body = SettingsSet(
        cluster=cluster, settings=settings, author=session.config.author, reason=written["reason"] or what
    )
    writes = [PlannedRecord(f"settings of {cluster} changed: native-controller={verdict}", body, cluster)]
    foresight = present.foresee(writes)
    found = concerns("clusters prove-native-absent", foresight, writes)
    if foresight.changed_modes() or any(concern.harmful for concern in found):
        confirm(session, found, written["yes"], "clusters prove-native-absent")
    else:
        show(session, found)
    async with session.writer() as writer:
        code = await write_all(session, writer, writes, written["wait"])
    if verdict == "absent":
        return code
    session.report(
        CommandError(
            f"a native HPA controller runs in {cluster}",
            cause=f"{WITNESSED[0].upper()}{WITNESSED[1:]}.",
            next_step=f"fleethpa adopt -C {cluster} -A --dry-run, or switch it off",
        )
    )
    return max(code, ANSWER_IS_NO)


async def _verdict(client: Any, cluster: str, namespace: str, lasts_s: float) -> Verdict:
    from reconciler.observer.native import Canary

    try:
        return await Canary(client, namespace, lasts_s, lambda _: None).prove()
    except ApiError as error:
        raise CommandError(
            f"the canary HPA in {cluster} proved nothing: {error}",
            next_step=f"fleethpa clusters check {cluster} --enforce",
        ) from error
    except ClusterError as error:
        raise unreachable(f"cluster {cluster} does not answer: {error}", next_step="check --kubeconfig") from error
