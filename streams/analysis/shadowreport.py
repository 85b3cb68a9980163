"""Shadow against native: what fleethpa would have done beside what the cluster's own controller did.

A sync of the native controller is compared at its own place in the log, with the sample that its status shows
(`streams.analysis.retracing`). An evaluation of fleethpa during which the native controller wrote nothing is compared
with its doing nothing. A difference is explained by evaluating again: with the native controller's memory or at its
next sync (timing), with the values of its status (metric), without what held one of the two (limit). What none of these
explains, but windows as of one sync period apart, is timing too, and proves nothing; the rest is counted as semantics.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from msgspec import Struct, structs

from schemas.decisions import uid_of
from schemas.keys import HpaId
from streams.analysis.answer import Answer, answer, without
from streams.analysis.retracing import SLACK_PERIODS, Class, Retraced, by_moved_windows, retrace, shows, windows_text
from streams.history.evaluations import Evaluated, HpaEvent, NativeSync
from streams.hpa.evaluation import EMPTY_HISTORY
from streams.hpa.observation import Scale
from streams.state.inputs import EvaluationInputs

CLASSES: tuple[Class, ...] = ("timing", "metric", "limit", "semantics")
MIN_DECISIONS = 40
"""Ten minutes at the default sync period."""
MIN_REPRODUCED = 10
"""Native statuses with the metric values of a sample in the log that are needed where there is no native rescale."""
MIN_AGREEMENT = 0.99
DAY_MS = 24 * 3_600_000
ALLOWED_DIFFERENCES = 1
"""Explained differences of other classes than timing that are allowed however short the comparison is."""


class NativeDifference(Struct, frozen=True, kw_only=True, rename="camel"):
    """One difference. `native`: what the cluster's controller made of `current`; `fleethpa`: what fleethpa wanted.

    `decision`: id of the evaluation, or of the last one before the native sync. `why`: what explains it.
    """

    time: int
    decision: str
    current: int
    native: int
    fleethpa: int
    kind: Class
    why: str


class ShadowReport(Struct, frozen=True, kw_only=True, rename="camel"):
    """The comparison of one HPA. `agreed`: native syncs and quiet evaluations with equal results."""

    hpa: HpaId
    since: int
    until: int
    decisions: int
    agreed: int
    rescales: int
    """Native rescales that were seen."""
    rescales_agreed: int
    """Given the same sample and memory."""
    skipped: int
    """What cannot be compared: the scale was unknown, or another hand moved it."""
    counts: dict[str, int]
    differences: list[NativeDifference]
    ready: bool
    reasons: list[str]
    reproduced: int = 0
    """Native statuses whose metric values fleethpa computes from a sample in the log."""
    not_seen: list[str] = []
    """What the window did not show, so that nothing here proves it, however many decisions agree."""

    @property
    def agreement(self) -> float:
        """Share of decisions that agreed; 1 without any decision."""
        return self.agreed / self.decisions if self.decisions else 1.0


class _Evidence(NamedTuple):
    """What was compared under the spec that is in force at the end. `ups`, `downs`: native rescales that are proven."""

    decisions: int
    ups: int
    downs: int
    since_ms: int


class _Step(NamedTuple):
    """An evaluation, and the native syncs that the log shows between it and the next one; None: not comparable."""

    inputs: EvaluationInputs
    syncs: list[Retraced | None]


def shadow_report(hpa: HpaId, events: Sequence[HpaEvent]) -> ShadowReport | None:
    """Compare; None where this HPA was never in shadow beside a native controller in these events."""
    steps = list(_steps(events))
    return _Comparison(hpa, steps).report() if steps else None


def _steps(events: Sequence[HpaEvent]) -> Iterator[_Step]:
    retraced = iter(retrace(events))
    step: _Step | None = None
    for event in events:
        if isinstance(event, NativeSync):
            sync = next(retraced)
            if step is not None:
                step.syncs.append(sync)
        elif isinstance(event, Evaluated) and event.inputs.follows_native:
            if step is not None:
                yield step
            step = _Step(event.inputs, [])
    if step is not None:
        yield step


class _Comparison:
    def __init__(self, hpa: HpaId, steps: list[_Step]) -> None:
        self.hpa = hpa
        self.steps = steps
        self.syncs = [sync for step in steps for sync in step.syncs if sync is not None]
        self.times_ms = [sync.time_ms for sync in self.syncs]
        self.slack_ms = SLACK_PERIODS * steps[-1].inputs.period_ms
        self.differences: list[NativeDifference] = []
        self.agreed = self.skipped = self.moved = self.under_present_spec = 0
        """`moved`: of those skipped, evaluations between which something else wrote the replicas."""
        self.until_ms = steps[-1].inputs.now_ms

    def report(self) -> ShadowReport:
        """Go through all steps but the last, whose end is not known yet."""
        for step, following in pairwise(self.steps):
            self._compare(step, following)
        counts: dict[str, int] = {kind: sum(d.kind == kind for d in self.differences) for kind in CLASSES}
        rescales = [sync for sync in self.syncs if sync.rescaled]
        reproduced = sum(sync.shown for sync in self.syncs)
        evidence = self._evidence()
        rescales_agreed = sum(sync.proven for sync in rescales)
        reasons = self._against(counts, evidence, len(rescales), rescales_agreed, reproduced)
        return ShadowReport(
            hpa=self.hpa,
            since=self.steps[0].inputs.now_ms,
            until=self.steps[-1].inputs.now_ms,
            decisions=self._decisions,
            agreed=self.agreed,
            rescales=len(rescales),
            rescales_agreed=rescales_agreed,
            skipped=self.skipped,
            counts=counts,
            differences=self.differences,
            ready=not reasons,
            reasons=reasons or self._in_favour(counts, rescales_agreed, len(rescales), reproduced),
            reproduced=reproduced,
            not_seen=self._not_seen(evidence),
        )

    def _evidence(self) -> _Evidence:
        steps = [step for step in self.steps if _object(step.inputs) == _object(self.steps[-1].inputs)]
        syncs = [sync for step in steps for sync in step.syncs if sync is not None]
        proven = [sync for sync in syncs if sync.rescaled and sync.proven]
        ups = sum(sync.native > sync.current for sync in proven)
        return _Evidence(self.under_present_spec, ups, len(proven) - ups, steps[0].inputs.now_ms)

    # comparing

    @property
    def _decisions(self) -> int:
        return self.agreed + len(self.differences)

    def _compare(self, step: _Step, following: _Step) -> None:
        before = self._decisions
        for sync in step.syncs:
            self._compare_sync(step, sync)
        if not step.syncs and _object(step.inputs) == _object(following.inputs):
            self._compare_quiet(step.inputs, following.inputs)
        if _object(step.inputs) == _object(self.steps[-1].inputs):
            self.under_present_spec += self._decisions - before

    def _compare_sync(self, step: _Step, sync: Retraced | None) -> None:
        if sync is None:
            self.skipped += 1
        elif sync.kind is None:
            self.agreed += 1
        else:
            self._differ(step.inputs, sync.time_ms, (sync.current, sync.native, sync.fleethpa), sync.kind, sync.why)

    def _compare_quiet(self, inputs: EvaluationInputs, following: EvaluationInputs) -> None:
        """Compare an evaluation with a native controller that wrote nothing until the next one."""
        scale, next_scale = inputs.observation.scale, following.observation.scale
        if not isinstance(scale, Scale) or not isinstance(next_scale, Scale):
            self.skipped += 1
            return
        current, made = scale.spec_replicas, answer(inputs)
        if next_scale.spec_replicas != current:
            self.skipped, self.moved = self.skipped + 1, self.moved + 1
        elif made.final == current:
            self.agreed += 1
        else:
            kind, why = self._explain(inputs, made, current)
            self._differ(inputs, inputs.now_ms, (current, current, made.final), kind, why)

    def _differ(
        self, inputs: EvaluationInputs, time_ms: int, counts: tuple[int, int, int], kind: Class, why: str
    ) -> None:
        current, native, fleethpa = counts
        self.differences.append(
            NativeDifference(
                time=time_ms,
                decision=inputs.decision,
                current=current,
                native=native,
                fleethpa=fleethpa,
                kind=kind,
                why=why,
            )
        )

    # explaining why the native controller did nothing

    def _explain(self, inputs: EvaluationInputs, made: Answer, current: int) -> tuple[Class, str]:
        for found in (
            self._by_sync(inputs),
            self._by_late_sync(inputs, made),
            self._by_last_status(inputs, current),
            _by_limit(inputs, made, current),
            _by_condition(inputs),
        ):
            if found:
                return found
        if why := by_moved_windows(inputs, current):
            return "timing", why
        before = bisect_right(self.times_ms, inputs.now_ms)
        native = self.syncs[before - 1].used.history if before else EMPTY_HISTORY
        why = "neither a native sync, nor its sample, nor a limit explains that nothing was done"
        return "semantics", f"{why}; {windows_text(inputs.history, native)}"

    def _by_sync(self, inputs: EvaluationInputs) -> tuple[Class, str] | None:
        """The native controller synced at another moment, and there fleethpa gives the same."""
        first, last = (bisect_left(self.times_ms, inputs.now_ms + way * self.slack_ms) for way in (-1, 1))
        near = [sync for sync in self.syncs[first:last] if sync.uid == uid_of(inputs.decision)]
        if not near:
            return None
        nearest = min(near, key=lambda sync: (sync.time_ms < inputs.now_ms, abs(sync.time_ms - inputs.now_ms)))
        apart_ms = nearest.time_ms - inputs.now_ms
        when = f"{abs(apart_ms) / 1000:.1f}s {'later' if apart_ms >= 0 else 'before'}"
        did = f"{nearest.current} → {nearest.native}" if nearest.rescaled else f"stays at {nearest.native}"
        sync = f"the native controller's sync of {when} ({nearest.values}: {did})"
        if nearest.kind == "semantics":
            return None
        if nearest.kind in (None, "timing"):
            return "timing", f"{sync} is fleethpa's answer there too"
        return nearest.kind, f"{sync}: {nearest.why}"

    def _by_late_sync(self, inputs: EvaluationInputs, made: Answer) -> tuple[Class, str] | None:
        """The native controller was late: its next status, and not the one before, shows the values of this evaluation.

        Had it synced with them in between, it would have written them.
        """
        after = bisect_right(self.times_ms, inputs.now_ms)
        late = self.syncs[after] if after < len(self.syncs) else None
        if late is None or late.uid != uid_of(inputs.decision) or not late.proven:
            return None
        if shows(made, inputs.status) or not shows(made, late.status):
            return None
        when = f"{(late.time_ms - inputs.now_ms) / 1000:.1f}s later"
        did = f"{late.current} → {late.native}" if late.rescaled else f"stays at {late.native}"
        return (
            "timing",
            f"the native controller had not synced since: its next status, {when}, shows the same values "
            f"({late.values}: {did}), and is fleethpa's answer there",
        )

    def _by_last_status(self, inputs: EvaluationInputs, current: int) -> tuple[Class, str] | None:
        """A status that does not change is not written: the native controller still has the values of its last one."""
        before = bisect_right(self.times_ms, inputs.now_ms)
        last = self.syncs[before - 1] if before else None
        if last is None or last.uid != uid_of(inputs.decision):
            return None
        seen = structs.replace(last.used.observation, scale=inputs.observation.scale)
        if answer(structs.replace(inputs, observation=seen)).final != current:
            return None
        return (
            "timing",
            f"with the values of the native status ({last.values}), which did not change, fleethpa waits too",
        )

    # the verdict

    def _against(
        self, counts: dict[str, int], evidence: _Evidence, rescales: int, rescales_agreed: int, reproduced: int
    ) -> list[str]:
        found, decisions = [], self.agreed + len(self.differences)
        of = "" if evidence.decisions == decisions else f" under the present spec ({decisions:,} in all)"
        if (lacking := MIN_DECISIONS - evidence.decisions) > 0:
            found.append(
                f"only {evidence.decisions} decisions were compared{of}, {MIN_DECISIONS} are needed: about "
                f"{_minutes(lacking * self.steps[-1].inputs.period_ms)} more"
            )
        if not rescales_agreed and reproduced < MIN_REPRODUCED:
            none = f"none of {rescales} native rescales is fleethpa's answer too"
            found.append(
                f"{none if rescales else 'no native rescale was seen'}, and {reproduced} native statuses with metric "
                f"values that fleethpa computes too ({MIN_REPRODUCED} are needed{self._until_reproduced(reproduced)}): "
                "nothing shows how fleethpa would scale"
            )
        if self.moved > decisions:
            found.append(
                f"something else wrote the replicas between {self.moved:,} evaluations, more than the {decisions:,} "
                "that can be compared: it would fight with fleethpa"
            )
        if counts["semantics"]:
            found.append(f"{counts['semantics']} differences are not explained; the first: {self._first('semantics')}")
        others = self._episodes()
        if others > max(ALLOWED_DIFFERENCES, (1 - MIN_AGREEMENT) * decisions):
            share = 1 - others / decisions
            found.append(f"agreement (differences in time only set aside) is {share:.1%}, below {MIN_AGREEMENT:.0%}")
        if self._fails_alone():
            found.append("its newest evaluations had no metrics or no scale, the native controller's had")
        return found

    def _until_reproduced(self, reproduced: int) -> str:
        """How long the missing statuses will take at the rate so far; the controller writes one when values change."""
        passed_ms = self.until_ms - self.steps[0].inputs.now_ms
        if not reproduced or not passed_ms:
            return ""
        return f": about {_minutes((MIN_REPRODUCED - reproduced) * passed_ms // reproduced)} more at this rate"

    def _not_seen(self, evidence: _Evidence) -> list[str]:
        found = []
        under = "under the present spec that fleethpa gives too"
        if not evidence.ups + evidence.downs:
            found.append(f"a rescale {under}: how it would scale is not proven")
        elif not evidence.ups or not evidence.downs:
            found.append(f"a scale-{'up' if evidence.downs else 'down'} {under}")
        passed_ms = self.until_ms - evidence.since_ms
        if passed_ms < DAY_MS - self.steps[-1].inputs.period_ms:
            found.append(f"a whole day: the comparison covers {_minutes(passed_ms)} of the present spec")
        return found

    def _fails_alone(self) -> bool:
        """Tell whether the newest evaluations failed and the native controller's syncs meanwhile did not."""
        newest = [step.inputs for step in self.steps[-1 - SLACK_PERIODS :]]
        if any(answer(each).evaluation.path not in ("metricsFailed", "scaleUnavailable") for each in newest):
            return False
        conditions = newest[-1].status.get("conditions") or []
        return not any(each.get("status") == "False" and each.get("type") in _FAILURES for each in conditions)

    def _episodes(self) -> int:
        """Count differences of other classes than timing; those within a stabilization window of the first are one.

        A controller that has lost its memory, or a sample that one of the two has missed, is seen until it has left
        the window.
        """
        inputs = self.steps[-1].inputs
        down = inputs.autoscaler.scale_down
        own_ms = down.window_ms if down is not None else None
        window_ms = inputs.settings.downscale_stabilization_ms if own_ms is None else own_ms
        found, since_ms = 0, -window_ms - 1
        for each in self.differences:
            if each.kind != "timing" and each.time - since_ms > window_ms:
                found, since_ms = found + 1, each.time
        return found

    def _first(self, kind: Class) -> str:
        return next(each.decision for each in self.differences if each.kind == kind)

    def _in_favour(self, counts: dict[str, int], agreed: int, rescales: int, reproduced: int) -> list[str]:
        explained = sum(counts.values())
        found = [f"{self.agreed} decisions agree, {agreed} of {rescales} native rescales"]
        if not rescales:
            found.append(
                f"no rescale was seen; {reproduced} native statuses show the metric values of fleethpa's samples"
            )
        return [*found, _explained(explained)] if explained else found


def _explained(count: int) -> str:
    return "the one difference is explained" if count == 1 else f"all {count} differences are explained"


_FAILURES = ("ScalingActive", "AbleToScale")


def _minutes(time_ms: int) -> str:
    """A time in begun minutes, or from two hours on in whole hours."""
    minutes = -(-time_ms // 60_000)
    count, unit = (minutes, "minute") if minutes < 120 else (time_ms // 3_600_000, "hour")
    return f"{count} {unit}{'' if count == 1 else 's'}"


def _object(inputs: EvaluationInputs) -> tuple[str, int]:
    return uid_of(inputs.decision), inputs.generation


def _by_limit(inputs: EvaluationInputs, made: Answer, current: int) -> tuple[Class, str] | None:
    for limit, freed, _ in without(inputs, made):
        if freed.final == current:
            return "limit", f"fleethpa was held by {limit}, the native controller was not"
    return None


def _by_condition(inputs: EvaluationInputs) -> tuple[Class, str] | None:
    """The native controller says of itself that it cannot scale."""
    for condition in inputs.status.get("conditions") or []:
        if condition.get("type") in _FAILURES and condition.get("status") == "False":
            reason, message = condition.get("reason", ""), condition.get("message", "")
            return "metric", f"the native controller says {reason}: {message}"
    return None
