"""Shadow against native: what fleethpa would have done beside what the cluster's own controller did.

A sync of the native controller is compared at its own place in the log, with the sample that its status shows
(`streams.analysis.retracing`). An evaluation of fleethpa during which the native controller wrote nothing is compared
with its doing nothing. A difference is explained by evaluating again: with the native controller's memory or at its
next sync (timing), with the values of its status (metric), without what held one of the two (limit). What none of these
explains, but windows as of other moments of a sync period, is timing too, and proves nothing. Where many are left,
another setting of the native controller may explain them (settings, `streams.analysis.othersettings`). While fleethpa's
own window is younger than it is long, what a recommendation before its first one may have held is left out. The rest is
counted as semantics.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from msgspec import Struct, structs

from schemas.decisions import uid_of
from schemas.keys import HpaId
from streams.analysis.answer import Answer, answer, without
from streams.analysis.othersettings import (
    ControllerSetting,
    DifferenceRow,
    NativeMoment,
    explaining_setting,
    with_setting,
)
from streams.analysis.retracing import (
    SLACK_PERIODS,
    Class,
    Retraced,
    by_moved_windows,
    by_own_times,
    retrace,
    shows,
    windows_text,
)
from streams.analysis.windowage import WindowAge, down_window_ms, was_remembered
from streams.history.evaluations import Evaluated, HpaEvent, NativeSync
from streams.hpa.evaluation import EMPTY_HISTORY
from streams.hpa.observation import Scale
from streams.state.inputs import EvaluationInputs

CLASSES: tuple[Class, ...] = ("timing", "metric", "limit", "settings", "semantics")
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
    left_out: int = 0
    """Of those skipped, what a recommendation from before fleethpa's first one may have held."""
    setting: str = ""
    """The controller setting that explains the differences of the class settings, as `fleethpa settings` takes it."""

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
    """An evaluation, and the native syncs that the log shows between it and the next one; None: not comparable.

    `is_young`: fleethpa's window has not been full yet.
    """

    inputs: EvaluationInputs
    syncs: list[Retraced | None]
    is_young: bool


def shadow_report(hpa: HpaId, events: Sequence[HpaEvent]) -> ShadowReport | None:
    """Compare; None where this HPA was never in shadow beside a native controller in these events."""
    steps = list(_steps(events))
    if not steps:
        return None
    comparison = _compared(hpa, steps)
    setting = explaining_setting(comparison.seen())
    if setting is not None:
        comparison.explain_by(setting, _compared(hpa, list(_steps(list(with_setting(events, setting))))))
    return comparison.report()


def _compared(hpa: HpaId, steps: list[_Step]) -> "_Comparison":
    comparison = _Comparison(hpa, steps)
    comparison.compare()
    return comparison


def _steps(events: Sequence[HpaEvent]) -> Iterator[_Step]:
    retraced = iter(retrace(events))
    step: _Step | None = None
    age = WindowAge()
    for event in events:
        if isinstance(event, NativeSync):
            sync = next(retraced)
            if step is not None:
                step.syncs.append(sync)
        elif isinstance(event, Evaluated) and event.inputs.follows_native:
            if step is not None:
                yield step
            step = _Step(event.inputs, [], age.is_young(event.inputs))
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
        self.left_out: list[DifferenceRow] = []
        self.open_quiet: list[EvaluationInputs] = []
        """Evaluations that differ from a native controller that wrote nothing, in more than time."""
        self.setting: ControllerSetting | None = None
        self.until_ms = steps[-1].inputs.now_ms

    def compare(self) -> None:
        """Go through all steps but the last, whose end is not known yet."""
        for step, following in pairwise(self.steps):
            self._compare(step, following)

    def seen(self) -> list[NativeMoment]:
        """Return what the native controller made, sync by sync, and where it did nothing while fleethpa would have."""
        quiet = [
            NativeMoment(each, each, each.observation.scale.spec_replicas, is_sync=False, rescaled=False, is_open=True)
            for each in self.open_quiet
            if isinstance(each.observation.scale, Scale)
        ]
        syncs = [
            NativeMoment(
                each.inputs, each.used, each.native, is_sync=True, rescaled=each.rescaled, is_open=not each.agrees
            )
            for each in self.syncs
        ]
        return sorted([*quiet, *syncs], key=lambda each: each.inputs.now_ms)

    def explain_by(self, setting: ControllerSetting, other: "_Comparison") -> None:
        """Name the setting for the differences that are none, or of time only, in the comparison with it."""
        still = {*other.left_out, *((each.time, each.decision) for each in other.differences if each.kind != "timing")}
        why = f"with {setting.instead_of(self.steps[-1].inputs)} fleethpa gives the same"
        self.setting = setting
        self.differences = [
            each
            if each.kind == "timing" or (each.time, each.decision) in still
            else structs.replace(each, kind="settings", why=why)
            for each in self.differences
        ]

    def report(self) -> ShadowReport:
        """Count, and give the verdict."""
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
            left_out=len(self.left_out),
            setting="" if self.setting is None else self.setting.text,
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
            self._compare_quiet(step, following.inputs)
        if _object(step.inputs) == _object(self.steps[-1].inputs):
            self.under_present_spec += self._decisions - before

    def _compare_sync(self, step: _Step, sync: Retraced | None) -> None:
        if sync is None:
            self.skipped += 1
        elif sync.kind is None:
            self.agreed += 1
        else:
            counts = sync.current, sync.native, sync.fleethpa
            self._differ(step, sync.used, sync.time_ms, counts, sync.kind, sync.why)

    def _compare_quiet(self, step: _Step, following: EvaluationInputs) -> None:
        """Compare an evaluation with a native controller that wrote nothing until the next one."""
        inputs = step.inputs
        scale, next_scale = inputs.observation.scale, following.observation.scale
        if not isinstance(scale, Scale) or not isinstance(next_scale, Scale):
            self.skipped += 1
            return
        current, answered = scale.spec_replicas, answer(inputs)
        if next_scale.spec_replicas != current:
            self.skipped, self.moved = self.skipped + 1, self.moved + 1
        elif answered.final == current:
            self.agreed += 1
        else:
            kind, why = self._explain(inputs, answered, current)
            if kind != "timing":
                self.open_quiet.append(inputs)
            self._differ(step, inputs, inputs.now_ms, (current, current, answered.final), kind, why)

    def _differ(
        self, step: _Step, used: EvaluationInputs, time_ms: int, counts: tuple[int, int, int], kind: Class, why: str
    ) -> None:
        current, native, fleethpa = counts
        if step.is_young and kind in ("limit", "semantics") and was_remembered(used, native):
            self.skipped += 1
            self.left_out.append((time_ms, step.inputs.decision))
            return
        self.differences.append(
            NativeDifference(
                time=time_ms,
                decision=step.inputs.decision,
                current=current,
                native=native,
                fleethpa=fleethpa,
                kind=kind,
                why=why,
            )
        )

    # explaining why the native controller did nothing

    def _explain(self, inputs: EvaluationInputs, made: Answer, current: int) -> tuple[Class, str]:
        for cause in (
            self._by_sync(inputs),
            self._by_late_sync(inputs, made),
            self._by_last_status(inputs, current),
            _by_limit(inputs, made, current),
            _by_condition(inputs),
        ):
            if cause:
                return cause
        if why := by_moved_windows(inputs, current):
            return "timing", why
        before = bisect_right(self.times_ms, inputs.now_ms)
        last = self.syncs[before - 1] if before else None
        if last is not None and last.uid == uid_of(inputs.decision) and (why := by_own_times(inputs, last, current)):
            return "timing", why
        native = EMPTY_HISTORY if last is None else last.used.history
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
        objections, decisions = [], self.agreed + len(self.differences)
        of = "" if evidence.decisions == decisions else f" under the present spec ({decisions:,} in all)"
        if (missing := MIN_DECISIONS - evidence.decisions) > 0:
            objections.append(
                f"only {evidence.decisions} decisions were compared{of}, {MIN_DECISIONS} are needed: about "
                f"{_minutes(missing * self.steps[-1].inputs.period_ms)} more"
            )
        if not rescales_agreed and reproduced < MIN_REPRODUCED:
            none = f"none of {rescales} native rescales is fleethpa's answer too"
            objections.append(
                f"{none if rescales else 'no native rescale was seen'}, and {reproduced} native statuses with metric "
                f"values that fleethpa computes too ({MIN_REPRODUCED} are needed{self._until_reproduced(reproduced)}): "
                "nothing shows how fleethpa would scale"
            )
        if self.moved > decisions:
            objections.append(
                f"something else wrote the replicas between {self.moved:,} evaluations, more than the {decisions:,} "
                "that can be compared: it would fight with fleethpa"
            )
        if self.setting is not None:
            objections.append(
                f"{counts['settings']} differences are those of another setting of the native controller: fleethpa "
                f"settings {self.hpa.cluster} {self.setting.text}, then compare what follows"
            )
        if counts["semantics"]:
            objections.append(
                f"{counts['semantics']} differences are not explained; the first: {self._first('semantics')}"
            )
        others = self._episodes()
        if others > max(ALLOWED_DIFFERENCES, (1 - MIN_AGREEMENT) * decisions):
            objections.append(
                f"agreement is {_rounded_down(decisions - others, decisions)}, below {MIN_AGREEMENT:.0%}: {others:,} "
                f"of {decisions:,} decisions differ in more than time (the "
                f"{len(self.differences) - counts['timing']:,} such differences, those within a stabilization window "
                "of the first counted once)"
            )
        if self._fails_alone():
            objections.append("its newest evaluations had no metrics or no scale, the native controller's had")
        return objections

    def _until_reproduced(self, reproduced: int) -> str:
        """How long the missing statuses will take at the rate so far; the controller writes one when values change."""
        passed_ms = self.until_ms - self.steps[0].inputs.now_ms
        if not reproduced or not passed_ms:
            return ""
        return f": about {_minutes((MIN_REPRODUCED - reproduced) * passed_ms // reproduced)} more at this rate"

    def _not_seen(self, evidence: _Evidence) -> list[str]:
        causes = []
        under = "under the present spec that fleethpa gives too"
        if not evidence.ups + evidence.downs:
            causes.append(f"a rescale {under}: how it would scale is not proven")
        elif not evidence.ups or not evidence.downs:
            causes.append(f"a scale-{'up' if evidence.downs else 'down'} {under}")
        passed_ms = self.until_ms - evidence.since_ms
        if passed_ms < DAY_MS - self.steps[-1].inputs.period_ms:
            causes.append(f"a whole day: the comparison covers {_minutes(passed_ms)} of the present spec")
        return causes

    def _fails_alone(self) -> bool:
        """Return whether the newest evaluations failed and the native controller's syncs meanwhile did not."""
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
        window_ms = down_window_ms(self.steps[-1].inputs)
        episodes, since_ms = 0, -window_ms - 1
        for each in self.differences:
            if each.kind != "timing" and each.time - since_ms > window_ms:
                episodes, since_ms = episodes + 1, each.time
        return episodes

    def _first(self, kind: Class) -> str:
        return next(each.decision for each in self.differences if each.kind == kind)

    def _in_favour(self, counts: dict[str, int], agreed: int, rescales: int, reproduced: int) -> list[str]:
        explained = sum(counts.values())
        reasons = [f"{self.agreed} decisions agree, {agreed} of {rescales} native rescales"]
        if not rescales:
            reasons.append(
                f"no rescale was seen; {reproduced} native statuses show the metric values of fleethpa's samples"
            )
        return [*reasons, _explained(explained)] if explained else reasons


def _explained(count: int) -> str:
    return "the one difference is explained" if count == 1 else f"all {count} differences are explained"


def _rounded_down(part: int, of: int) -> str:
    """A share, rounded down: what is below a bound never reads as the bound."""
    return f"{part * 1_000 // of / 10:.1f}%"


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
