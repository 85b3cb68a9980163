"""Replay of one partition, or of one decision: fold the log again and compare each decision with the recorded one.

It continues after a difference. Number and hash of the record before are not compared: once a decision differs, those
of all later ones do.
"""

import asyncio
import re
from collections.abc import Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import Struct

from schemas.decisions import Decision, ShortDecision, expand, links_of, uid_of
from schemas.keys import HpaId
from streams.archive.layout import DECISIONS
from streams.archive.segments import BAD_JSON, ArchivedRecord, ArchiveError
from streams.history.differences import Difference, Lookahead, differences
from streams.history.parallel import reported
from streams.history.past import Past
from streams.history.verify import FaultError, ReportProgress, log_offset_of
from streams.state.ledger import CoreError, DecisionRecord
from streams.state.partition import Partition


@dataclass(frozen=True)
class Derived:
    """A decision as recorded and as re-derived. `start`: log offset of the snapshot used for it (-1: none).

    `standing`: None where the decisions do not hold it; `made`: None where the log gives no such decision.
    """

    id: str
    start: int
    folded: int
    standing: ArchivedRecord | None
    made: DecisionRecord | None


async def derive(
    past: Past, partition: int, decision_id: str, named: Callable[[Iterable[str]], str | None] = lambda _: None
) -> Derived:
    """Re-derive one decision.

    `named`: picks the ID that a short form means from those of its log record; None: `decision_id` is whole.

    Raises ArchiveError: the source is damaged, or no longer reaches back far enough.
    """
    offset = log_offset_of(decision_id)
    state = await past.restored(partition, below=offset)
    began, folded, made = state.applied_offset, 0, None
    seq = state.seq
    async with aclosing(past.following(state, upto=offset)) as records:
        async for record in records:
            decisions = state.apply(record.offset, record.timestamp_ms, record.value)
            folded += 1
            if record.offset == offset:
                decision_id = named(decision.id for decision in decisions) or decision_id
            made = next((decision for decision in decisions if decision.id == decision_id), None)
            if made is not None:
                break
    return Derived(decision_id, began, folded, await _standing(past, partition, decision_id, seq), made)


async def _standing(past: Past, partition: int, decision_id: str, seq: int) -> ArchivedRecord | None:
    wanted = log_offset_of(decision_id)
    async with aclosing(past.records(DECISIONS, partition, await past.first_decision(partition, seq))) as records:
        async for record in records:
            links = links_of(record.value)
            if links.id == decision_id:
                return record
            if log_offset_of(links.id) > wanted:
                return None
    return None


KEPT = 20
"""How many divergences of a partition are reported in full."""


class Divergence(Struct, kw_only=True, rename="camel"):
    """A decision that comes out different: where first, and what is recorded and recomputed there.

    `recordedReplicas`, `recomputedReplicas`: the final count on both sides, None where there is no decision.
    """

    id: str
    hpa: str
    time_ms: int
    engine: int
    path: str
    recorded: Any = None
    recomputed: Any = None
    fields: int = 1
    recorded_replicas: int | None = None
    recomputed_replicas: int | None = None


class ReplayReport(Struct, kw_only=True, rename="camel"):
    """What came out of one partition. `unrecorded`: decisions beyond the newest recorded one."""

    partition: int
    start: int = -1
    log_records: int = 0
    evaluations: int = 0
    identical: int = 0
    diverged: int = 0
    unrecorded: int = 0
    engines: dict[str, int] = {}
    paths: dict[str, int] = {}
    divergences: list[Divergence] = []
    fault: str = ""


@dataclass(frozen=True)
class ReplayTask:
    """One partition to replay; only decisions of `hpa` (None: all) whose log time is in the window are compared."""

    past: Past
    partition: int
    since_ms: int | None = None
    until_ms: int | None = None
    hpa: HpaId | None = None


class _Body(Struct):
    id: str
    seq: int
    engine: int = 1


_BODY = msgspec.json.Decoder(_Body)
_PLACE = re.compile(rb'\{"id":"([^"\\]+)","seq":(\d+),')


def _place(value: bytes) -> _Body:
    """Id and number of a decision, without decoding all of one that our encoder wrote."""
    found = _PLACE.match(value)
    return _Body(id=found[1].decode(), seq=int(found[2])) if found else _BODY.decode(value)


def replay_partition(task: ReplayTask) -> ReplayReport:
    """Replay one partition."""
    return asyncio.run(_guarded(task))


async def _guarded(task: ReplayTask) -> ReplayReport:
    report = ReplayReport(partition=task.partition, engines={}, paths={}, divergences=[])
    try:
        replay = _Replay(task, report, reported)
        try:
            await replay.run()
        finally:
            await replay.close()
    except (ArchiveError, CoreError, FaultError, *BAD_JSON) as error:
        report.fault = str(error)
    return report


class _Side:
    """The newest full record of each HPA on one side, to expand short ones with."""

    def __init__(self) -> None:
        self._fulls: dict[str, bytes] = {}

    def take(self, id_: str, value: bytes) -> None:
        """Remember a full record; a short one says nothing new."""
        if not _is_short(value):
            self._fulls[uid_of(id_)] = value

    def engine(self, id_: str) -> str:
        """The engine that made a record, or the full one it repeats."""
        full = self._fulls.get(uid_of(id_))
        return "1" if full is None else str(_BODY.decode(full).engine)

    def whole(self, id_: str, value: bytes) -> bytes:
        """The decision as a full record, where the full one it repeats is known."""
        if not _is_short(value):
            return value
        full = self._fulls.get(uid_of(id_))
        if full is None:
            return value
        short = msgspec.json.decode(value, type=ShortDecision)
        whole = msgspec.json.decode(full, type=Decision)
        return msgspec.json.encode(expand(short, whole)) if whole.id == short.same_as else value


def _is_short(value: bytes) -> bool:
    return b'"sameAs":' in value[:512]


class _Replay:
    def __init__(self, task: ReplayTask, report: ReplayReport, progress: ReportProgress) -> None:
        self.task, self.report, self.progress = task, report, progress
        self.recorded, self.made = _Side(), _Side()
        self._partition = Partition.empty(task.partition)
        self._ahead: tuple[_Body, ArchivedRecord] | None = None
        self._at_end = False
        self._seq = 0
        self.decisions: Lookahead | None = None
        self._subject = b""
        if task.hpa is not None:
            cluster, namespace, name = task.hpa
            self._subject = f"/{cluster}/{namespace}/horizontalpodautoscaler/{name}".encode()

    async def close(self) -> None:
        """Let go of the source."""
        if self.decisions is not None:
            await self.decisions.close()

    async def run(self) -> None:
        task, report = self.task, self.report
        partition = self._partition = await task.past.restored(task.partition, before_ms=task.since_ms)
        report.start, self._seq = partition.applied_offset, partition.seq
        self.decisions = Lookahead(
            task.past, task.partition, await task.past.first_decision(task.partition, partition.seq)
        )
        done = (0, 0)
        async with aclosing(task.past.following(partition, until_ms=task.until_ms)) as records:
            async for record in records:
                made = partition.apply(record.offset, record.timestamp_ms, record.value)
                report.log_records += 1
                await self._compare(record, made)
                if report.log_records - done[0] >= 500:
                    self.progress(report.log_records - done[0], report.evaluations - done[1])
                    done = (report.log_records, report.evaluations)
        self.progress(report.log_records - done[0], report.evaluations - done[1])

    async def _standing(self, log_offset: int) -> dict[str, bytes]:
        """The recorded decisions of log records up to this one."""
        found: dict[str, bytes] = {}
        while True:
            if self._ahead is None:
                record = await self.decisions.next() if self.decisions else None
                self._at_end = record is None
                if record is None:
                    return found
                self._ahead = (_place(record.value), record)
            body, record = self._ahead
            if body.seq <= self._seq:
                self.recorded.take(body.id, record.value)
            elif log_offset_of(body.id) > log_offset:
                return found
            else:
                self._seq = body.seq
                found[body.id] = record.value
            self._ahead = None

    async def _compare(self, record: ArchivedRecord, made: list[DecisionRecord]) -> None:
        # At the end of the decisions only a new one is a reason to look again: looking opens a consumer on Kafka.
        ask = bool(made) or (self._ahead is None and not self._at_end) or self._reaches(record)
        standing = await self._standing(record.offset) if ask else {}
        in_window = self.task.since_ms is None or self._partition.clock_ms >= self.task.since_ms
        ended, engine = self._ahead is None, str(self._partition.engine)
        for decision in made:
            value = standing.pop(decision.id, None)
            if value is not None:
                self.recorded.take(decision.id, value)
            self.made.take(decision.id, decision.value)
            if in_window and self._is_wanted(decision.headers):
                if value == decision.value:
                    self._identical(engine)
                else:
                    self._judge(decision, value, ended)
        for id_, value in standing.items():
            if in_window and self._is_wanted_value(id_, value):
                self._diverged(id_, value, None, [Difference("decision", "a decision", None)])
            self.recorded.take(id_, value)

    def _reaches(self, record: ArchivedRecord) -> bool:
        return self._ahead is not None and log_offset_of(self._ahead[0].id) <= record.offset

    def _is_wanted(self, headers: Iterable[tuple[str, bytes]]) -> bool:
        return not self._subject or ("ce_subject", self._subject) in headers

    def _is_wanted_value(self, id_: str, value: bytes) -> bool:
        if not self._subject:
            return True
        assert self.task.hpa is not None
        body = msgspec.json.decode(self.recorded.whole(id_, value))
        return (body.get("cluster"), body.get("namespace"), body.get("name")) == tuple(self.task.hpa)

    def _identical(self, engine: str) -> None:
        """Count a decision that came out byte for byte; the engine that made it is then the one now in force."""
        report = self.report
        report.evaluations += 1
        report.identical += 1
        report.engines[engine] = report.engines.get(engine, 0) + 1

    def _judge(self, made: DecisionRecord, value: bytes | None, ended: bool) -> None:
        report = self.report
        if value is None and ended:
            report.unrecorded += 1
            return
        report.evaluations += 1
        if value is None:
            self._diverged(made.id, None, made.value, [Difference("decision", None, "a decision")])
            return
        engine = self.recorded.engine(made.id)
        report.engines[engine] = report.engines.get(engine, 0) + 1
        recorded, again = self.recorded.whole(made.id, value), self.made.whole(made.id, made.value)
        found = differences(value, made.value, chain=False) and differences(recorded, again, chain=False)
        if found:
            self._diverged(made.id, recorded, again, found)
        else:
            report.identical += 1

    def _diverged(self, id_: str, recorded: bytes | None, made: bytes | None, found: list[Difference]) -> None:
        report, first = self.report, found[0]
        report.diverged += 1
        report.paths[first.path] = report.paths.get(first.path, 0) + 1
        if len(report.divergences) >= KEPT:
            return
        bodies = [msgspec.json.decode(value) if value else {} for value in (recorded, made)]
        about = bodies[1] or bodies[0]
        report.divergences.append(
            Divergence(
                id=id_,
                hpa="/".join(str(about.get(name, "?")) for name in ("cluster", "namespace", "name")),
                time_ms=self._partition.clock_ms,
                engine=int((bodies[0] or about).get("engine", 1)),
                path=first.path,
                recorded=_plain(first.recorded),
                recomputed=_plain(first.recomputed),
                fields=len(found),
                recorded_replicas=bodies[0].get("finalDesiredReplicas", 0) if bodies[0] else None,
                recomputed_replicas=bodies[1].get("finalDesiredReplicas", 0) if bodies[1] else None,
            )
        )


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, str | int | float | bool | list | dict) else None
