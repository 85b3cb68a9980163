"""Scales: `/scale` cannot be watched, so the parent objects are, and `/scale` is read if these lack information."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from reconciler.clusters.answers import ApiError, ClusterError, reading
from reconciler.clusters.manifests import rule_lines
from reconciler.clusters.nativehpas import UNKNOWN_FOR_S, Discovery
from reconciler.core.objects import DERIVED_KINDS, scale_failure, scale_of_answer, scale_of_parent
from reconciler.observer.clusterview import ClusterState, scales_watch
from reconciler.observer.reflector import Listener, Watching
from reconciler.observer.troubles import ReadProblem, problem_of
from runtime.process import WorkerPool
from schemas.kubernetes.selectors import SelectorError
from schemas.kubernetes.shape import Json
from schemas.observed import ScaleSet, Target

log = logging.getLogger(__name__)

ReportScale = Callable[[str, ScaleSet], Awaitable[None]]
Mirrored = Callable[[Callable[[str], str], Listener, Callable[[], set[str]]], Awaitable[None]]
"""Mirror a collection into a listener; where the whole cluster is forbidden, in the namespaces that are wanted."""

READERS = 8
LISTED_WITHIN_S = 10.0
"""For this long no scale is read by itself that the first list of its parents will show: a cluster has thousands when
an observer starts.
"""
BURST_S = 0.25
"""Changes of a custom resource that follow each other this closely are one read of its scale."""
READS_WAITING = 50_000


class ScaleWatcher:
    """Keeps the scales of all targets that an HPA references, and reports changes."""

    def __init__(
        self,
        watching: Watching,
        discovery: Discovery,
        state: ClusterState,
        report: ReportScale,
        *,
        session: str,
        mirror: Mirrored,
    ) -> None:
        self._client, self._limits, self._held = watching.client, watching.limits, watching.held
        self._discovery, self._state, self._report = discovery, state, report
        self._session, self._mirror = session, mirror
        self._refused: dict[tuple[str, Target], tuple[int, float]] = {}
        """Reads that were forbidden: how often in a row, and the moment before which they are not tried again."""
        self._unread: dict[tuple[str, Target], ReadProblem] = {}
        self._parents: dict[tuple[str, str], _Parents] = {}
        self._reads: WorkerPool[tuple[str, Target], tuple[str, Target]] = WorkerPool(
            self._read, workers=READERS, limit=READS_WAITING
        )
        self._group: asyncio.TaskGroup | None = None
        self._referenced: dict[str, set[Target]] = {}
        self._soon: set[tuple[str, Target]] = set()

    async def run(self, group: asyncio.TaskGroup) -> None:
        """Read the requested scales, until cancelled; watches of new kinds run in `group`."""
        self._group = group
        for parents in self._parents.values():
            group.create_task(self._watch(parents))
        await self._reads.run()

    async def follow(self, namespace: str, targets: set[Target]) -> None:
        """These are the targets of the namespace's HPAs now."""
        before = self._referenced.get(namespace, set())
        self._referenced[namespace] = targets
        for target in before - targets:
            self._state.namespace(namespace).forget(target)
            self._refused.pop((namespace, target), None)
            self._record_unread(namespace, target, None)
        for target in sorted(targets - before, key=repr):
            if not self._watched(target).is_coming:
                self.read(namespace, target)

    def references(self, namespace: str, target: Target) -> bool:
        """Whether some HPA scales it."""
        return target in self._referenced.get(namespace, ())

    def referenced(self, kind: str, group: str) -> list[tuple[str, Target]]:
        """All targets of a kind with their namespaces."""
        return [
            (namespace, target)
            for namespace, targets in self._referenced.items()
            for target in targets
            if (target.kind, target.group) == (kind, group)
        ]

    def read(self, namespace: str, target: Target) -> None:
        """Read `/scale` soon; several requests become one read."""
        self._reads.put((namespace, target), (namespace, target))

    def read_after_burst(self, namespace: str, target: Target) -> None:
        """Read `/scale` after a delay, since operators write several changes in quick succession."""
        wanted = namespace, target
        if wanted not in self._soon:
            self._soon.add(wanted)
            asyncio.get_running_loop().call_later(BURST_S, self._burst_over, wanted)

    def _burst_over(self, wanted: tuple[str, Target]) -> None:
        self._soon.discard(wanted)
        self.read(*wanted)

    async def observed(self, namespace: str, scale: ScaleSet) -> None:
        """Report a scale, unless nothing changed."""
        if self.references(namespace, scale.target) and self._state.set_scale(namespace, scale):
            await self._report(namespace, scale)

    async def check(self, namespace: str) -> None:
        """Read the scales that no watch keeps fresh: unknown, failed, or of parents that cannot be watched here; and
        those that could not be read, although their parents show them: the trouble ends with the next read that can.
        """
        scales = self._state.namespace(namespace).scales
        for target in self._referenced.get(namespace, ()):
            known, wanted = scales.get(target), (namespace, target)
            if known is None and self._watched(target).is_coming:
                continue
            is_troubled = wanted in self._unread or wanted in self._refused
            if known is None or known.error is not None or is_troubled or not self._state.is_watched(target, namespace):
                _, not_before = self._refused.get((namespace, target), (0, 0.0))
                if not self._held or time.monotonic() >= not_before:
                    self.read(namespace, target)

    async def resend(self, namespace: str) -> None:
        """Report all scales again; those that do not follow from their parent are read for it."""
        for target, scale in list(self._state.namespace(namespace).scales.items()):
            if (target.group, target.kind) not in DERIVED_KINDS or scale.error is not None:
                self.read(namespace, target)
            await self._report(namespace, scale)

    def _watched(self, target: Target) -> "_Parents":
        """The parents of a target's kind, watched from now on."""
        key = (target.group, target.kind)
        if key not in self._parents:
            self._parents[key] = _Parents(self, self._state, target.kind, target.group, self._session)
            if self._group is not None:
                self._group.create_task(self._watch(self._parents[key]))
        return self._parents[key]

    async def _watch(self, parents: "_Parents") -> None:
        resource = await self._discovery.served(
            parents.kind,
            parents.group,
            look_every_s=UNKNOWN_FOR_S,
            failed=lambda error: parents.problem("", problem_of(error)),
        )
        listener = Listener(parents.listed, parents.changed, parents.problem, parents.kept)
        await self._mirror(
            resource.path, listener, lambda: {where for where, _ in self.referenced(parents.kind, parents.group)}
        )

    async def _read(self, wanted: tuple[str, Target]) -> None:
        namespace, target = wanted
        if not self.references(namespace, target):
            return
        part = f"scaleReads/{target.kind}.{target.group}"
        try:
            resource = await self._discovery.resource(target.kind, target.group)
            right = f"get {resource.qualified}/scale"
            path = resource.path(namespace, target.name, "scale")
            raw = await self._client.get_object(path, patiently=True)
            with reading(f"the answer to {path} cannot be read"):
                scale = scale_of_answer(target, raw, self._parent(namespace, target), self._session)
        except ApiError as error:
            self._record_unread(namespace, target, None)
            if error.status == 403:
                self._record_refusal(namespace, target, part, problem_of(error, right))
            await self.observed(namespace, scale_failure(target, str(error), self._session))
        except ClusterError as error:
            # Without an answer the reported scale ages, and the heartbeat names the problem.
            self._record_unread(namespace, target, problem_of(error))
            about = {"cluster": self._client.name, "target": repr(target), "error": str(error)}
            log.info("scale not read", extra=about)
        else:
            self._record_unread(namespace, target, None)
            self._state.troubles.record(part, namespace, None)
            self._refused.pop((namespace, target), None)
            await self.observed(namespace, scale)

    def parent_seen(self, namespace: str, target: Target) -> None:
        """The parent itself shows the scale: that a read of `/scale` failed before no longer matters."""
        self._record_unread(namespace, target, None)

    def _record_unread(self, namespace: str, target: Target, problem: ReadProblem | None) -> None:
        """Remember whether the last read of a scale got an answer; the namespace is in trouble while one did not."""
        if problem is None:
            self._unread.pop((namespace, target), None)
        else:
            self._unread[namespace, target] = problem
        left = (each for (where, _), each in self._unread.items() if where == namespace)
        self._state.troubles.record("scales", namespace, next(left, None))

    def _record_refusal(self, namespace: str, target: Target, part: str, problem: ReadProblem) -> None:
        times, _ = self._refused.get((namespace, target), (0, 0.0))
        if not times:
            about = {"cluster": self._client.name, "target": repr(target), "error": problem.text}
            log.warning("scale may not be read", extra=about | {"missing_rules": "\n".join(rule_lines(problem.rights))})
        pause_s = self._limits.looks_s[min(times, len(self._limits.looks_s) - 1)]
        self._refused[namespace, target] = times + 1, time.monotonic() + pause_s
        self._state.troubles.record(part, namespace, problem)

    def _parent(self, namespace: str, target: Target) -> Json | None:
        parents = self._parents.get((target.group, target.kind))
        return None if parents is None else parents.seen.get((namespace, target.name))


class _Parent(NamedTuple):
    """What is needed of a parent, a tenth of the object: its scale where that follows from it, else its metadata."""

    namespace: str
    target: Target
    scale: ScaleSet | None
    metadata: Json | None


class _Parents:
    """Listens to the watch of one kind of scale parents. `seen`: metadata of custom parents, for the field manager."""

    def __init__(self, watcher: ScaleWatcher, state: ClusterState, kind: str, group: str, session: str) -> None:
        self.kind, self.group = kind, group
        self.seen: dict[tuple[str, str], Json] = {}
        self._watcher, self._state, self._session = watcher, state, session
        self._derived = (group, kind) in DERIVED_KINDS
        self._listed_by_s = time.monotonic() + LISTED_WITHIN_S if self._derived else 0.0

    @property
    def is_coming(self) -> bool:
        """Whether the first list, which shows all scales of the kind, is still to come soon."""
        return time.monotonic() < self._listed_by_s

    def kept(self, item: Json) -> _Parent:
        metadata = item["metadata"]
        target = Target(kind=self.kind, name=metadata["name"], group=self.group)
        scale = self._derived_scale(target, item)
        return _Parent(metadata["namespace"], target, scale, metadata if scale is None else None)

    def _derived_scale(self, target: Target, item: Json) -> ScaleSet | None:
        if not self._derived:
            return None
        try:
            return scale_of_parent(target, item, self._session)
        except SelectorError:  # an older API server accepted it; the answer to a read names the mistake
            return None

    async def listed(self, namespace: str, items: list[_Parent]) -> None:
        self._listed_by_s = 0.0
        listed = {(item.namespace, item.target.name) for item in items}
        for item in items:
            if self._watcher.references(item.namespace, item.target):
                await self._add(item)
        for where, target in self._watcher.referenced(self.kind, self.group):
            if namespace in ("", where) and (where, target.name) not in listed:
                self._watcher.read(where, target)

    async def changed(self, kind: str, item: Json) -> None:
        namespace, name = item["metadata"]["namespace"], item["metadata"]["name"]
        target = Target(kind=self.kind, name=name, group=self.group)
        if kind == "DELETED":
            self.seen.pop((namespace, name), None)
        if not self._watcher.references(namespace, target):
            return
        if kind == "DELETED":
            self._watcher.read(namespace, target)  # for the API server's own words
        else:
            await self._add(self.kept(item))

    async def _add(self, parent: _Parent) -> None:
        namespace, target = parent.namespace, parent.target
        if parent.scale is not None:
            self._watcher.parent_seen(namespace, target)
            await self._watcher.observed(namespace, parent.scale)
        else:
            self.seen[namespace, target.name] = {"metadata": parent.metadata}
            self._watcher.read_after_burst(namespace, target)

    def problem(self, namespace: str, problem: ReadProblem | None) -> None:
        if problem is not None and self.is_coming:
            self._listed_by_s = 0.0
            for where, target in self._watcher.referenced(self.kind, self.group):
                self._watcher.read(where, target)
        self._state.troubles.record(scales_watch(self.kind, self.group), namespace, problem)
