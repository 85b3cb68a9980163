"""Shadow against native: what fleethpa would have done beside what the cluster's own controller did.

Every evaluation is one decision; a native rescale belongs to the evaluation before it. A difference is explained by
evaluating again with what the native controller had: later samples (timing), the metric values that its status shows
(metric), or without the limit that held one of the two (limit). What nothing explains is counted as semantics.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

from msgspec import Struct, structs

from schemas.keys import HpaId
from schemas.kubernetes.quantity import QuantityError, parse_milli
from streams.analysis.answer import Answer, answer
from streams.analysis.openloop import Memory
from streams.analysis.unlimited import without
from streams.analysis.varied import total_of, varied
from streams.history.evaluationinputs import Evaluated, Event
from streams.hpa.observation import Scale
from streams.state.probe import EvaluationInputs

Class = Literal["timing", "metric", "limit", "semantics"]
CLASSES: tuple[Class, ...] = ("timing", "metric", "limit", "semantics")
SLACK_PERIODS = 2
"""The two controllers may be so many periods apart and still mean the same."""
MIN_DECISIONS = 200
MIN_AGREEMENT = 0.99


class Difference(Struct, frozen=True, kw_only=True, rename="camel"):
    """One difference. `native`: what the cluster's controller made of `current`; `fleethpa`: what fleethpa wanted.

    `decision`: id of the evaluation. `why`: what explains it.
    """

    time: int
    decision: str
    current: int
    native: int
    fleethpa: int
    kind: Class
    why: str


class ShadowReport(Struct, frozen=True, kw_only=True, rename="camel"):
    """The comparison of one HPA. `agreed`: evaluations with the native result; `rescales`: native ones seen."""

    hpa: HpaId
    since: int
    until: int
    decisions: int
    agreed: int
    rescales: int
    rescales_agreed: int
    """At once, or with the samples that the native controller had."""
    skipped: int
    """Evaluations that cannot be compared: the scale was unknown, or another hand moved it."""
    counts: dict[str, int]
    differences: list[Difference]
    ready: bool
    reasons: list[str]

    @property
    def agreement(self) -> float:
        """Share of evaluations that agreed; 1 where there is none."""
        return self.agreed / self.decisions if self.decisions else 1.0


def shadow_report(hpa: HpaId, events: Sequence[Event]) -> ShadowReport | None:
    """Compare; None where this HPA was never in shadow beside a native controller in these events."""
    evaluations = [each.inputs for each in events if isinstance(each, Evaluated) and each.inputs.follows_native]
    if not evaluations:
        return None
    return _Comparison(hpa, evaluations).report()


class _Comparison:
    def __init__(self, hpa: HpaId, evaluations: list[EvaluationInputs]) -> None:
        self.hpa = hpa
        self.all = evaluations
        self.answers = [answer(inputs) for inputs in evaluations]
        self.valued = list(_with_native_values(evaluations))
        self.slack_ms = SLACK_PERIODS * evaluations[-1].period_ms
        self.differences: list[Difference] = []
        self.agreed = self.skipped = self.rescales = self.rescales_agreed = 0

    def report(self) -> ShadowReport:
        """Go through all evaluations but the last, whose end is not known yet."""
        for index in range(len(self.all) - 1):
            self._compare(index)
        counts: dict[str, int] = {kind: sum(d.kind == kind for d in self.differences) for kind in CLASSES}
        decisions = self.agreed + len(self.differences)
        reasons = self._against(decisions, counts)
        return ShadowReport(
            hpa=self.hpa,
            since=self.all[0].now_ms,
            until=self.all[-1].now_ms,
            decisions=decisions,
            agreed=self.agreed,
            rescales=self.rescales,
            rescales_agreed=self.rescales_agreed,
            skipped=self.skipped,
            counts=counts,
            differences=self.differences,
            ready=not reasons,
            reasons=reasons or self._in_favour(counts),
        )

    def _compare(self, index: int) -> None:
        inputs, following, made = self.all[index], self.all[index + 1], self.answers[index]
        scale, next_scale = inputs.observation.scale, following.observation.scale
        if not isinstance(scale, Scale) or not isinstance(next_scale, Scale):
            self.skipped += 1
            return
        current, moves = scale.spec_replicas, following.native_moves
        self.rescales += len(moves)
        native = moves[-1][1] if moves else current
        if next_scale.spec_replicas not in (current, native) or (moves and moves[0][0] != current):
            self.skipped += 1
            return
        if made.final == native:
            self.agreed += 1
            self.rescales_agreed += len(moves)
            return
        kind, why = self._explain(index, current, native)
        self.rescales_agreed += len(moves) if kind == "timing" else 0
        self.differences.append(
            Difference(
                time=inputs.now_ms,
                decision=inputs.decision,
                current=current,
                native=native,
                fleethpa=made.final,
                kind=kind,
                why=why,
            )
        )

    # explaining

    def _explain(self, index: int, current: int, native: int) -> tuple[Class, str]:
        for found in (
            self._by_timing(index, current, native),
            self._by_values(index, native),
            self._by_limit(index, native),
            self._by_condition(index),
        ):
            if found:
                return found
        return "semantics", "neither time, nor the values of the native status, nor a limit explains it"

    def _by_timing(self, index: int, current: int, native: int) -> tuple[Class, str] | None:
        inputs, made = self.all[index], self.answers[index]
        for later in self._near(index, 1):
            # The native controller does within the slack what fleethpa wanted now.
            if any(move[1] == made.final for move in later.native_moves):
                return "timing", f"the native controller made it {made.final} {_apart(inputs, later)} later"
        for earlier, was in zip(self._near(index, -1), self._near_answers(index, -1), strict=True):
            if was.final == native and was.current == current:
                return "timing", f"fleethpa wanted {native} {_apart(earlier, inputs)} before"
        for later in self._near(index, 1):
            if any(answer(each).final == native for each in _with_samples_of(later, inputs)):
                return "timing", f"with the samples of {_apart(inputs, later)} later fleethpa wants {native} too"
        return None

    def _near(self, index: int, direction: int) -> list[EvaluationInputs]:
        here = self.all[index].now_ms
        around = self.all[index + 1 :] if direction > 0 else self.all[:index][::-1]
        found = []
        for each in around:
            if abs(each.now_ms - here) > self.slack_ms:
                break
            found.append(each)
        return found

    def _near_answers(self, index: int, direction: int) -> list[Answer]:
        count = len(self._near(index, direction))
        return self.answers[index - count : index][::-1]

    def _by_values(self, index: int, native: int) -> tuple[Class, str] | None:
        """Evaluate with the values that the native status showed, now and in all evaluations before."""
        made, said = self.valued[index]
        if not said or native not in made:
            return None
        return "metric", f"with the native status' values ({', '.join(said)}) fleethpa gives {native} too"

    def _by_limit(self, index: int, native: int) -> tuple[Class, str] | None:
        inputs, made = self.all[index], self.answers[index]
        for limit, freed, _ in without(inputs, made):
            if freed.final == native:
                return "limit", f"fleethpa was held by {limit}, the native controller was not"
        return None

    def _by_condition(self, index: int) -> tuple[Class, str] | None:
        """What the native controller says of itself; what its memory holds may follow from an earlier difference."""
        for condition in self.all[index + 1].status.get("conditions") or []:
            reason, kind, status = (condition.get(name, "") for name in ("reason", "type", "status"))
            said = f"the native controller says {reason}: {condition.get('message', '')}"
            if reason in ("ScaleDownStabilized", "ScaleUpStabilized"):
                before = self._inherited(index)
                return (
                    (before.kind, f"follows from the difference of {before.decision}; {said}")
                    if before
                    else ("limit", said)
                )
            if kind == "ScalingLimited" and status == "True":
                return "limit", said
            if kind in ("ScalingActive", "AbleToScale") and status == "False":
                return "metric", said
        return None

    def _inherited(self, index: int) -> Difference | None:
        """The last difference whose recommendation the native controller may still remember."""
        inputs = self.all[index]
        down = inputs.autoscaler.scale_down
        window_ms = down.window_ms if down is not None else None
        if window_ms is None:
            window_ms = inputs.settings.downscale_stabilization_ms
        last = self.differences[-1] if self.differences else None
        return last if last is not None and inputs.now_ms - last.time <= window_ms else None

    # the verdict

    def _against(self, decisions: int, counts: dict[str, int]) -> list[str]:
        found = []
        if decisions < MIN_DECISIONS:
            found.append(f"only {decisions} decisions were compared, {MIN_DECISIONS} are needed")
        if not self.rescales:
            found.append("no native rescale was seen: nothing shows how fleethpa would scale")
        if counts["semantics"]:
            found.append(f"{counts['semantics']} differences are not explained; the first: {self._first('semantics')}")
        share = (self.agreed + counts["timing"]) / decisions if decisions else 1.0
        if share < MIN_AGREEMENT:
            found.append(f"agreement (differences in time only set aside) is {share:.1%}, below {MIN_AGREEMENT:.0%}")
        last = self.answers[-1].evaluation
        if last.path in ("metricsFailed", "scaleUnavailable"):
            found.append("its newest evaluation had no metrics or no scale")
        return found

    def _first(self, kind: Class) -> str:
        return next(each.decision for each in self.differences if each.kind == kind)

    def _in_favour(self, counts: dict[str, int]) -> list[str]:
        explained = sum(counts.values())
        text = f"{self.agreed} decisions agree, {self.rescales_agreed} of {self.rescales} native rescales"
        return [text, f"all {explained} differences are explained"] if explained else [text]


def _apart(earlier: EvaluationInputs, later: EvaluationInputs) -> str:
    return f"{(later.now_ms - earlier.now_ms) / 1000:.0f}s"


def _with_samples_of(later: EvaluationInputs, inputs: EvaluationInputs) -> Iterator[EvaluationInputs]:
    """An evaluation with a later one's samples: at its own pods (a rescale has added none yet), and at the later's."""
    if len(later.observation.answers) != len(inputs.observation.answers):
        return
    for pods in (inputs.observation.pods, later.observation.pods):
        seen = structs.replace(later.observation, scale=inputs.observation.scale, pods=pods)
        yield structs.replace(later, observation=seen, history=inputs.history, status=inputs.status)


def _with_native_values(evaluations: Sequence[EvaluationInputs]) -> Iterator[tuple[set[int], list[str]]]:
    """Per evaluation: what fleethpa would give with the values that the native status showed next, at this one alone
    and at all before it; and the values, where they differ.
    """
    said: list[str] = []

    def valued(inputs: EvaluationInputs) -> EvaluationInputs:
        changed, values = _with_status(inputs, shown)
        said[:] = values
        return changed

    memory, seen = Memory(valued), False
    for inputs, following in zip(evaluations, [*evaluations[1:], None], strict=True):
        shown = (following.status.get("currentMetrics") if following is not None else None) or []
        kept = memory.evaluate(inputs).candidate.final
        alone = answer(valued(inputs)).final
        seen = seen or bool(said)
        yield {kept, alone}, list(said) or (["those before it"] if seen else [])


def _with_status(inputs: EvaluationInputs, shown: list[dict[str, Any]]) -> tuple[EvaluationInputs, list[str]]:
    """The inputs with the metric values of a status in place of the samples, and what was put in."""
    said: list[str] = []
    for index, spec in enumerate(inputs.autoscaler.metrics[: len(shown)]):
        current = (shown[index].get(spec.status_key) or {}).get("current") or {}
        number = varied(inputs, index)
        text = str(current.get("averageUtilization", current.get("averageValue", current.get("value", ""))))
        if number is None or not text:
            continue
        value = _value(inputs, index, current)
        if value is not None and value != number.now:
            inputs = number.at(inputs, value)
            said.append(f"{spec.name.split(' ')[0]} {text}{'%' if 'averageUtilization' in current else ''}")
    return inputs, said


def _value(inputs: EvaluationInputs, index: int, current: dict[str, Any]) -> int | None:
    if "averageUtilization" in current and inputs.autoscaler.metrics[index].calculation == "utilization":
        return total_of(inputs, index, percent=int(current["averageUtilization"]))
    try:
        milli = int(parse_milli(str(current.get("averageValue", current.get("value")))))
    except QuantityError:
        return None
    return total_of(inputs, index, milli=milli)
