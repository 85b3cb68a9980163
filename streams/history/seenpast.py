"""The past of a fleet as somebody sees it who may see some clusters and namespaces only."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping
from contextlib import aclosing
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any, Final

from msgspec import Struct

from schemas.keys import EVERY_CLUSTER, FLEET, HpaId
from streams.history.past import Enough, Folded, Past
from streams.history.recorded import DecisionWindow, Recorded
from streams.partition import Partition
from streams.state.rowcodec import row_kind


class SeenScope(Struct, frozen=True):
    """Namespaces of clusters, both as names or globs."""

    clusters: list[str]
    namespaces: list[str]


class SeenParts(Struct, frozen=True):
    """The parts of a fleet that somebody may see; without a scope none."""

    scopes: list[SeenScope] = []

    def cluster(self, name: str) -> bool:
        """Whether anything of a cluster may be seen."""
        return any(_fits(name, each.clusters) for each in self.scopes)

    def namespace(self, cluster: str, namespace: str) -> bool:
        """Whether a namespace of a cluster may be seen."""
        return any(_fits(cluster, each.clusters) and _fits(namespace, each.namespaces) for each in self.scopes)


def _fits(name: str, globs: Iterable[str]) -> bool:
    return any(fnmatchcase(name, glob) for glob in globs)


_OF_THE_SOURCE: Final = frozenset(
    {
        "at_ms",
        "decided_from_ms",
        "expect",
        "first_ms",
        "is_live",
        "last_ms",
        "log_length",
        "log_records_due",
        "log_records_read",
        "name",
    }
    | {"now_ms", "partitions", "remark", "signs_of_life", "ticked_ms"}
)
_OF_WHAT_WAS_FOUND: Final = frozenset({"checkpoint", "following", "newer", "restored"})
"""Asked for one HPA or one decision that was found here, or for a window from here. An evaluation is repeated on the
whole state, as it was made.
"""


_OF_ONE_HPA: Final = frozenset({"check", "finds_hpas", "fold_to", "is_checked", "offset_at", "offsets"})
"""Beside these, by who asks about one HPA that may be seen, and shows nothing else of what is read."""


class NotSeenError(AttributeError):
    """Something of a past that may show what somebody may not see."""


class SeenPast:
    """A past without what may not be seen: no state, no decision and no count of it. It stands in for `Past` where read
    verbs read one. What is neither here nor known to be harmless is refused: a method that `Past` gets later shows
    nothing before somebody has thought about it.
    """

    def __init__(self, past: Past, seen: SeenParts, fleet_hpas: Iterable[HpaId] | None = None) -> None:
        """`fleet_hpas`: those of whose clusters all may be seen; None: they are read when they are needed."""
        self._past, self._seen = past, seen
        self._fleet_hpas, self._knows_fleet_hpas = set(fleet_hpas or ()), fleet_hpas is not None
        self._shown = _OF_THE_SOURCE | _OF_WHAT_WAS_FOUND

    def __getattr__(self, name: str) -> Any:
        if name not in self._shown:
            raise NotSeenError(f"Past.{name} may show what somebody may not see", name=name, obj=self)
        return getattr(self._past, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("_past", "_seen", "_fleet_hpas", "_knows_fleet_hpas", "_shown"):
            object.__setattr__(self, name, value)
        elif name == "remark":
            self._past.remark = value
        else:
            raise AttributeError(f"{name} of a past is set where it is opened", name=name, obj=self)

    def about(self, hpa: HpaId) -> SeenPast:
        """The same for a question about one HPA. Raises NotSeenError: it may not be seen."""
        if not self._sees(hpa):
            raise NotSeenError(f"{hpa} may not be seen", name="about", obj=self)
        about = SeenPast(self._past, self._seen, self._fleet_hpas)
        about._shown |= _OF_ONE_HPA
        return about

    @property
    def rows_gone(self) -> set[str]:
        """As of `Past`, of namespaces that may be seen, and of none."""
        return {key for key in self._past.rows_gone if self._sees_row(key)}

    def _sees_row(self, key: str) -> bool:
        kind, rest = row_kind(key.encode())
        if kind not in ("h", "n"):
            return True
        cluster, namespace = rest.partition("#")[0].split("/")[:2]
        return self._seen.namespace(cluster, namespace)

    async def fleet(self, partitions: Iterable[int] | None = None) -> list[Folded]:
        """As of `Past`, without what may not be seen."""
        fleet = await self._past.fleet(partitions)
        for each in fleet:
            self._fleet_hpas |= {hpa for hpa in each.partition.state.hpas if self._is_whole_seen(each.partition, hpa)}
        for each in fleet:
            self._prune(each.partition)
        self._knows_fleet_hpas = True
        return [replace(each, stored={}) for each in fleet]

    async def newest_rows(self, partition: int) -> Mapping[bytes, bytes]:
        """None: who reads them would have to leave out what may not be seen, and folds the log instead."""
        return {}

    def _is_whole_seen(self, partition: Partition, hpa: HpaId) -> bool:
        row = partition.state.hpas[hpa].row
        if hpa.cluster != FLEET or row.fleet is None:
            return False
        return all(self._seen.namespace(each.name, hpa.namespace) for each in row.fleet.spec.clusters)

    def _sees(self, hpa: HpaId) -> bool:
        return hpa in self._fleet_hpas if hpa.cluster == FLEET else self._seen.namespace(hpa.cluster, hpa.namespace)

    def _prune(self, partition: Partition) -> None:
        state, row = partition.state, partition.state.row
        for hpa in [each for each in state.hpas if not self._sees(each)]:
            del state.hpas[hpa]
        whole = {hpa.namespace_key for hpa in self._fleet_hpas}
        for key, held in list(state.namespaces.items()):
            if key not in whole and not self._seen.namespace(held.cluster, held.name):
                del state.namespaces[key]
        for known in (row.settings, row.pauses, row.served, row.agents, row.transfers, row.refused, row.kubernetes):
            for name in [each for each in known if each != EVERY_CLUSTER and not self._seen.cluster(each)]:
                del known[name]
        by_observer: tuple[dict[str, Any], ...] = (row.reports, row.sessions)
        for reports in by_observer:
            for key in [each for each in reports if not self._seen.cluster(each.partition("/")[0])]:
                del reports[key]
        # A group and its sums are of HPAs that may not be seen, too.
        row.groups, row.ceilings = {}, {}

    # --- decisions ----------------------------------------------------------------------------------------------------

    async def tail(
        self, enough: Enough, partitions: Iterable[int] | None = None, upto_ms: int | None = None
    ) -> dict[int, list[Recorded]]:
        """As of `Past`, of what may be seen."""
        await self._read_fleet_hpas()
        tail = await self._past.tail(lambda number, all_: enough(number, self._of(all_)), partitions, upto_ms)
        return {number: self._of(decisions) for number, decisions in tail.items()}

    def _of(self, decisions: Iterable[Recorded]) -> list[Recorded]:
        return [each for each in decisions if self._sees(each.hpa)]

    async def _read_fleet_hpas(self) -> None:
        """Read a state, if none was read: an HPA over several clusters is seen by who sees all of these."""
        if not self._knows_fleet_hpas:
            await self.fleet()

    def _both(self, wanted: Callable[[HpaId], bool] | None) -> Callable[[HpaId], bool]:
        """Of which HPAs decisions are read: those that may be seen, of those that are wanted (None: all)."""
        return lambda hpa: self._sees(hpa) and (wanted is None or wanted(hpa))

    async def newest_evaluations(self, uids: Mapping[int, Collection[str]], since_ms: int) -> dict[str, Recorded]:
        """As of `Past`, of what may be seen."""
        newest = await self._past.newest_evaluations(uids, since_ms)
        return {uid: each for uid, each in newest.items() if self._sees(each.hpa)}

    async def windows(
        self,
        number: int,
        since_ms: int | None = None,
        until_ms: int | None = None,
        wanted: Callable[[HpaId], bool] | None = None,
    ) -> list[DecisionWindow]:
        """As of `Past`, of what may be seen."""
        await self._read_fleet_hpas()
        return await self._past.windows(number, since_ms, until_ms, self._both(wanted))

    async def decisions(
        self,
        number: int,
        since_ms: int | None = None,
        until_ms: int | None = None,
        wanted: Callable[[HpaId], bool] | None = None,
    ) -> AsyncGenerator[Recorded, None]:
        """As of `Past`, of what may be seen."""
        await self._read_fleet_hpas()
        async with aclosing(self._past.decisions(number, since_ms, until_ms, self._both(wanted))) as decisions:
            async for recorded in decisions:
                yield recorded

    async def follow(self) -> AsyncGenerator[Recorded, None]:
        """As of `Past`, of what may be seen."""
        await self._read_fleet_hpas()
        async with aclosing(self._past.follow()) as decisions:
            async for recorded in decisions:
                if self._sees(recorded.hpa):
                    yield recorded
                await asyncio.sleep(0)
