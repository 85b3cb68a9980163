"""Our decisions beside those of the native controller: where the counts agree, and why they do not elsewhere.

Either side is looked at: each native sync against our decisions, and each decision made when there was no native sync
against the syncs around it. A class is given by a rule over what both sides show; nothing is assumed.
"""

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import orjson

from streams.state.timing import as_of
from tests.pipeline.tape import SETTINGS, Observed, Tape, moment_ms

Json = dict[str, Any]

EQUAL = "same moment, same count"
EQUAL_ELSEWHEN = "another moment, same count"
NATIVE_FIRST = "another moment, the native write was there first"
OTHER_ANSWERS = "another moment, other answers"
RESTARTED = "the native controller had lost its memory"
REMEMBERED = "a recommendation of another moment is remembered"
EXPIRED = "decided as of another moment, a scale event no longer counted"
CUT_OFF = "nothing on the other side any more"
UNEXPLAINED = "unexplained"
CLASSES = (EQUAL, EQUAL_ELSEWHEN, NATIVE_FIRST, OTHER_ANSWERS, RESTARTED, REMEMBERED, EXPIRED, CUT_OFF, UNEXPLAINED)

NEAR_MS = 5_000 + 3_000
"""An HPA that is due after a period waits at most 3 s for an answer."""
WINDOW_MS = 60_000
"""The longest window of the recording: the controller's stabilization of scaling down."""
PERIOD_MS = SETTINGS.sync_period_ms or 15_000
WRITE_MS = 50
"""From the native controller's answers to its write."""
_STABILIZED = ("ScaleDownStabilized", "ScaleUpStabilized")
_REMEMBERING = {"StabilizationWindow", "ScaleUpPolicy", "ScaleDownPolicy"}


class Point(NamedTuple):
    """One evaluation: the moment of its answers, the count that it saw (None: it saw none) and the one it wanted."""

    time_ms: int
    current: int | None
    wanted: int | None
    bound: bool
    """Whether a remembered recommendation or scale event had a say."""
    remembered_ms: int | None = None
    """When the recommendation that counted was made, where that is known."""
    conditions: tuple[tuple[str, ...], ...] = ()
    """Type, status and reason of each condition then shown."""

    @property
    def counts(self) -> tuple[int | None, int | None]:
        """What has to agree."""
        return self.current, self.wanted


Points = Mapping[str, Sequence[Point]]
"""Evaluations by HPA, in order of time."""


class Finding(NamedTuple):
    """An evaluation of one side, the other side's evaluations that it was compared with, and the class."""

    hpa: str
    side: str
    point: Point
    others: tuple[Point, ...]
    why: str


# --- the two sides ----------------------------------------------------------------------------------------------------


def our_points(decisions: Iterable[bytes]) -> Points:
    """Our evaluations."""
    points: dict[str, list[Point]] = defaultdict(list)
    for value in decisions:
        stated = orjson.loads(value)
        time_ms = round(datetime.fromisoformat(stated["time"]).timestamp() * 1000)
        points[stated["name"]].append(_our_point(time_ms, stated))
    return points


def _our_point(time_ms: int, stated: Json) -> Point:
    counts: tuple[int | None, int | None] = (None, None)
    if "specReplicas" in stated.get("observed", {}):
        counts = stated.get("currentReplicas", 0), stated.get("finalDesiredReplicas", 0)
    bound = not _REMEMBERING.isdisjoint(stated.get("constraintsApplied", ()))
    details = [step["detail"] for step in stated.get("steps", ()) if step["step"] == "stabilization"]
    remembered_ms = details[0].get("at") if details and bound else None
    conditions = tuple((each["type"], each["status"], each["reason"]) for each in stated["status"]["conditions"])
    return Point(time_ms, *counts, bound, remembered_ms, conditions)


def native_points(tape: Tape, records: Sequence[Observed]) -> Points:
    """The native controller's syncs, each at the moment of the record that holds its answers.

    One that wrote no status leaves the one before in force.
    """
    moments = {record.sync: record.time_ms for record in records if record.sync is not None}
    points: dict[str, list[Point]] = defaultdict(list)
    shown: dict[str, tuple[tuple[str, ...], ...]] = {}
    for number, sync in enumerate(tape.syncs):
        name, current = sync["hpa"], sync["scale"].get("spec")
        if sync.get("status") is not None:
            shown[name] = tuple(tuple(each[:3]) for each in sync["status"]["conditions"] or ())
        conditions = shown.get(name, ())
        bound = any(reason in _STABILIZED for _, _, reason in conditions)
        wanted = (sync.get("write") or {}).get("asked", current)
        time_ms = moments.get(number, moment_ms(sync["t"]))
        points[name].append(Point(time_ms, current, wanted, bound, None, conditions))
    return {name: sorted(some, key=lambda point: point.time_ms) for name, some in points.items()}


def answered(tape: Tape, records: Sequence[Observed]) -> Mapping[str, Sequence[int]]:
    """Per HPA the moments (ms) at which answers of its metrics were recorded."""
    moments: dict[str, list[int]] = defaultdict(list)
    for record in records:
        if record.sync is not None:
            moments[tape.syncs[record.sync]["hpa"]].append(record.time_ms)
    return moments


def periods_ms(tape: Tape) -> set[int]:
    """Periods of all scaling policies, those by default among them."""
    specs = [line["object"]["spec"] for line in tape.watch if line.get("resource") == "horizontalpodautoscalers"]
    rules = [rule for spec in specs for rule in spec.get("behavior", {}).values()]
    policies = [policy for rule in rules for policy in rule.get("policies") or ()]
    return {15_000, 60_000, *(policy["periodSeconds"] * 1000 for policy in policies)}


def table(findings: Sequence[Finding]) -> str:
    """Counts of each class: native syncs, and those of our decisions that no sync shares its moment with."""
    counts = Counter((finding.why, finding.side) for finding in findings)
    rows = [f"{why:<55}{counts[why, 'native']:>8}{counts[why, 'ours']:>8}" for why in CLASSES]
    alike = f"same conditions, where moment and count are the same: {same_conditions(findings):.4f}"
    return "\n".join([f"{'':<55}{'native':>8}{'ours':>8}", *rows, alike])


def same_conditions(findings: Sequence[Finding]) -> float:
    """Share of the evaluations of the same moment and count that also show the same conditions."""
    alike = [finding.others[0].conditions == finding.point.conditions for finding in findings if finding.why == EQUAL]
    return sum(alike) / max(len(alike), 1)


def compare(tape: Tape, records: Sequence[Observed], decisions: Iterable[bytes]) -> list[Finding]:
    """Compare every native sync, and every decision of ours that no sync shares its moment with."""
    restarts = tape.actions("kube-controller-manager started")
    native, ours = native_points(tape, records), our_points(decisions)
    return list(Comparison(native, ours, restarts, answered(tape, records), periods_ms(tape)).findings())


# --- the comparison ---------------------------------------------------------------------------------------------------


class Comparison:
    """Both sides of a recording.

    Args:
        native: syncs of the controller.
        ours: our evaluations.
        restarts: moments (ms) at which the native controller was started again.
        answered: per HPA the moments (ms) at which answers of its metrics were recorded.
        periods_ms: of the scaling policies.
    """

    def __init__(
        self,
        native: Points,
        ours: Points,
        restarts: Sequence[int],
        answered: Mapping[str, Sequence[int]],
        periods_ms: Collection[int],
    ) -> None:
        self._native, self._ours = native, ours
        self._restarts, self._answered, self._periods_ms = restarts, answered, periods_ms
        self._elsewhen = {name: _elsewhen(native.get(name, ()), some) for name, some in ours.items()}

    def findings(self) -> Iterator[Finding]:
        """Compare every native sync, and every decision of ours that no sync shares its moment with."""
        for name, syncs in sorted(self._native.items()):
            for sync in syncs:
                yield self._finding(name, "native", sync, self._ours.get(name, ()))
        for name, points in sorted(self._ours.items()):
            moments = {sync.time_ms for sync in self._native.get(name, ())}
            for point in points:
                if point.time_ms not in moments:
                    yield self._finding(name, "ours", point, self._native.get(name, ()))

    def _finding(self, name: str, side: str, point: Point, others: Sequence[Point]) -> Finding:
        near = _near(point, others)
        return Finding(name, side, point, near, self._why(name, side, point, near))

    def _why(self, name: str, side: str, point: Point, near: tuple[Point, ...]) -> str:
        if not near:
            return CUT_OFF
        together = near[0].time_ms == point.time_ms
        if any(other.counts == point.counts for other in near):
            return EQUAL if together else EQUAL_ELSEWHEN
        pairs = [(point, other) if side == "native" else (other, point) for other in near]
        if not together and any(_wrote_first(native, ours) for native, ours in pairs):
            return NATIVE_FIRST
        if why := self._memory(name, pairs):
            return why
        if not together and all(self._answered_between(name, point, other) for other in near):
            return OTHER_ANSWERS
        return UNEXPLAINED

    def _memory(self, name: str, pairs: Iterable[tuple[Point, Point]]) -> str:
        """Why the two sides remember different things; empty where nothing remembered had a say, or the same did."""
        for native, ours in pairs:
            if native.current == ours.current and (why := self._other_memory(name, native, ours)):
                return why
        return ""

    def _other_memory(self, name: str, native: Point, ours: Point) -> str:
        if self._is_new(name, native, ours):
            return RESTARTED
        if self._event_expired(name, native, ours):
            return EXPIRED
        elsewhen = self._elsewhen.get(name, [])
        if ours.bound and ours.remembered_ms is not None:
            return REMEMBERED if ours.remembered_ms in elsewhen else ""
        since_ms = native.time_ms - WINDOW_MS
        return REMEMBERED if native.bound and _any_between(elsewhen, since_ms, native.time_ms - 1) else ""

    def _is_new(self, name: str, native: Point, ours: Point) -> bool:
        """The native controller cannot remember what we do, or its own beginning still has a say."""
        for restart_ms in self._restarts:
            syncs = self._native.get(name, ())
            first = bisect_right(syncs, restart_ms, key=lambda sync: sync.time_ms)
            if first == len(syncs) or native.time_ms < (begun_ms := syncs[first].time_ms):
                continue
            if native.bound and native.time_ms <= begun_ms + WINDOW_MS:
                return True
            if ours.remembered_ms is not None and ours.remembered_ms < begun_ms:
                return True
        return False

    def _event_expired(self, name: str, native: Point, ours: Point) -> bool:
        """A policy's period after a native write ended between the moments as of which the two were decided."""
        low, high = sorted((native.time_ms, self._decided_as_of(name, ours)))
        writes = [sync.time_ms for sync in self._native[name] if sync.wanted != sync.current]
        ends = (write_ms + period_ms for write_ms in writes for period_ms in self._periods_ms)
        return low < high and any(low - WRITE_MS <= end_ms <= high for end_ms in ends)

    def _decided_as_of(self, name: str, ours: Point) -> int:
        """The time as of which ours was decided: up to a slack later, where the answer came a little early."""
        points = self._ours.get(name, ())
        before = bisect_left(points, ours.time_ms, key=lambda point: point.time_ms) - 1
        return as_of(ours.time_ms, points[before].time_ms if before >= 0 else 0, PERIOD_MS)

    def _answered_between(self, name: str, one: Point, other: Point) -> bool:
        return _any_between(self._answered.get(name, ()), one.time_ms, other.time_ms)


def _wrote_first(native: Point, ours: Point) -> bool:
    """The native controller wrote a count, and ours, later, saw that one."""
    return native.time_ms < ours.time_ms and native.current != native.wanted == ours.current


def _elsewhen(native: Sequence[Point], ours: Sequence[Point]) -> list[int]:
    """Moments of evaluations that one side has and the other has not."""
    return sorted({point.time_ms for point in native} ^ {point.time_ms for point in ours})


def _near(point: Point, others: Sequence[Point]) -> tuple[Point, ...]:
    """The other side's evaluation of the same moment, or else the last one before and the first one after."""
    index = bisect_left(others, point.time_ms, key=lambda other: other.time_ms)
    if index < len(others) and others[index].time_ms == point.time_ms:
        return (others[index],)
    around = others[max(index - 1, 0) : index + 1]
    return tuple(other for other in around if abs(other.time_ms - point.time_ms) <= NEAR_MS)


def _any_between(moments: Sequence[int], one_ms: int, other_ms: int) -> bool:
    low, high = sorted((one_ms, other_ms))
    return bisect_right(moments, high) > bisect_right(moments, low)
