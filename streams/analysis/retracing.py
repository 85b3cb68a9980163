"""The syncs of a cluster's own controller, re-derived: what fleethpa gives for each with what that controller had.

The log shows a sync by the status that it wrote. fleethpa is evaluated with the state right before the sync's first
trace, with the sample whose values the status shows, and with the memory that the controller's syncs before it left.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

from msgspec import Struct, structs

from schemas.decisions import uid_of
from schemas.kubernetes.quantity import QuantityError, parse_milli
from streams.analysis.answer import Answer, answer, without
from streams.analysis.counterfactual import total_of, varied
from streams.history.evaluations import Evaluated, HpaEvent, NativeSync
from streams.hpa.evaluation import EMPTY_HISTORY, History
from streams.hpa.normalize import with_rescale
from streams.hpa.observation import Scale
from streams.state.inputs import EvaluationInputs

Class = Literal["timing", "metric", "limit", "settings", "semantics"]
LOST_MEMORY = "the native controller has lost its memory, as it does at a restart"
SLACK_PERIODS = 3
"""Sync periods before and after a sync in which the sample that it used is looked for."""
LONGER_THAN_A_PERIOD_MS = 20
"""A controller begins its next sync a little more than a period after the last; a status that stays is not written."""
_MOST_UNSEEN = 1_000
"""Syncs without a trace that are evaluated again in a row; windows hold no more than the newest of them."""


class Retraced(Struct, frozen=True, kw_only=True):
    """One sync. `native`: what the controller made of `current`. `fleethpa`: what fleethpa gives right before it.

    `inputs`: right before it. `used`: with the sample that explains it and the controller's memory. `kind`: None where
    the results are equal, else the class of what sets them apart, and `why`. `shown`: the log holds the sample whose
    values its status shows, which `values` names. `status`: what it wrote. `shifted`: only windows as of other moments
    of a sync period give what the controller made. `after`: the controller's memory after it.
    """

    inputs: EvaluationInputs
    used: EvaluationInputs
    uid: str
    current: int
    native: int
    fleethpa: int
    rescaled: bool
    kind: Class | None
    why: str
    shown: bool
    values: str
    status: dict[str, Any]
    after: History
    shifted: bool = False

    @property
    def time_ms(self) -> int:
        """When its first trace came into the log."""
        return self.inputs.now_ms

    @property
    def agrees(self) -> bool:
        """Whether the results are equal, or only the moments set them apart."""
        return self.kind in (None, "timing")

    @property
    def proven(self) -> bool:
        """Whether fleethpa gives what the controller made, with the sample that the controller had. Windows that were
        moved for it prove nothing: they may hide another algorithm.
        """
        return self.agrees and not self.shifted


def retrace(events: Sequence[HpaEvent]) -> list[Retraced | None]:
    """Re-derive every sync of the native controller among the events of one HPA; None: its scale was not known."""
    memory = _NativeMemory()
    traces = []
    for index, event in enumerate(events):
        if isinstance(event, NativeSync):
            traces.append(memory.retrace(event, events, index))
    return traces


def _around(events: Sequence[HpaEvent], index: int) -> Iterator[EvaluationInputs]:
    """Yield the inputs of what happened within the slack before and after, the nearest first."""
    here = events[index]
    assert isinstance(here, NativeSync)
    slack_ms = SLACK_PERIODS * here.inputs.period_ms
    for places in (range(index + 1, len(events)), range(index - 1, -1, -1)):
        for place in places:
            each = events[place]
            if not isinstance(each, Evaluated | NativeSync):
                continue
            if abs(each.inputs.now_ms - here.inputs.now_ms) > slack_ms:
                break
            yield each.inputs


class _Explained(NamedTuple):
    """What a sync had, the class and reason of a difference, and whether the log holds its sample."""

    used: EvaluationInputs
    kind: Class | None
    why: str
    shown: bool
    shifted: bool = False


class _NativeMemory:
    """What the controller remembers of its own syncs: it evaluates at other moments than fleethpa."""

    def __init__(self) -> None:
        self.of: tuple[str, int] | None = None
        self.history: History = EMPTY_HISTORY
        self.newest: EvaluationInputs | None = None
        self.elsewhen: History = EMPTY_HISTORY
        """`history`, had the syncs without a trace been evenly between the two that left one."""

    def retrace(self, sync: NativeSync, events: Sequence[HpaEvent], index: int) -> Retraced | None:
        """Re-derive the sync at `index` of the events and remember it."""
        scale = sync.inputs.observation.scale
        if not isinstance(scale, Scale):
            return None
        current = int(sync.status.get("currentReplicas", 0))
        native = int(sync.status.get("desiredReplicas", 0)) if sync.rescaled else current
        seen = structs.replace(sync.inputs.observation, scale=structs.replace(scale, spec_replicas=current))
        inputs = structs.replace(sync.inputs, observation=seen)
        self._begin(inputs)
        here = answer(inputs)
        if here.final == native and shows(here, sync.status):
            explained = _Explained(self._with_memory(inputs), None, "", shown=True)
        else:
            candidates = [inputs, *_with_other_samples(inputs, _around(events, index))]
            explained = self._explain(candidates, sync.status, native)
        self._remember(explained.used, native if sync.rescaled else None)
        return Retraced(
            inputs=inputs,
            used=explained.used,
            uid=uid_of(inputs.decision),
            current=current,
            native=native,
            fleethpa=here.final,
            rescaled=sync.rescaled,
            kind=explained.kind,
            why=explained.why,
            shown=explained.shown,
            values=_values_text(inputs, sync.status),
            status=sync.status,
            after=self.history,
            shifted=explained.shifted,
        )

    def _begin(self, inputs: EvaluationInputs) -> None:
        """Begin anew with another object or spec; else let the syncs pass that wrote nothing, as nothing changed."""
        identity = uid_of(inputs.decision), inputs.generation
        if identity != self.of:
            self.of, self.history, self.newest = identity, inputs.history, None
        self.elsewhen = self.history
        passed_ms = 0 if self.newest is None else inputs.now_ms - self.newest.now_ms
        if self.newest is None or passed_ms <= 0:  # the log has one time for both: no sync was between them
            return
        evenly_ms = passed_ms / max(1, round(passed_ms / inputs.period_ms))
        until_ms = inputs.now_ms - inputs.period_ms // 2
        self.elsewhen = after_unseen(self.newest, self.history, evenly_ms, until_ms)
        self.history = after_unseen(self.newest, self.history, inputs.period_ms + LONGER_THAN_A_PERIOD_MS, until_ms)

    def _explain(self, candidates: list[EvaluationInputs], status: dict[str, Any], native: int) -> _Explained:
        same = list[EvaluationInputs]()
        for each in candidates:
            if shows(answered := answer(each), status):
                if answered.final == native:
                    return _Explained(self._with_memory(each), None, "", shown=True)
                same.append(each)
        remembering = [self._with_memory(each) for each in same]
        if not same and answer(candidates[0]).final == native:
            return _Explained(self._with_memory(candidates[0]), None, "", shown=False)
        explained = (
            _by_memory(same, remembering, native)
            or self._by_values(candidates, status, native)
            or _by_limit(remembering, status, native)
        )
        if explained is not None:
            return explained
        for each in (*remembering, *same):
            if why := by_moved_windows(each, native):
                return _Explained(each, "timing", why, shown=True, shifted=True)
        for each in same:
            elsewhen = structs.replace(each, history=self.elsewhen)
            if answer(elsewhen).final == native:
                return _Explained(elsewhen, "timing", _AT_ITS_OWN_TIMES, shown=True, shifted=True)
        own = self._with_memory((same or candidates)[0])
        why = (
            "neither its sample, nor its memory, nor the values of its status give what the native controller made; "
            f"{windows_text(candidates[0].history, own.history)}"
        )
        return _Explained(own, "semantics", why, shown=bool(same))

    def _by_values(self, candidates: list[EvaluationInputs], status: dict[str, Any], native: int) -> _Explained | None:
        for each in candidates:
            valued, stated = with_status(each, status.get("currentMetrics") or [])
            own = self._with_memory(valued)
            if stated and native in (answer(valued).final, answer(own).final):
                why = f"with the native status' values ({', '.join(stated)}) fleethpa gives the same"
                return _Explained(own, "metric", why, shown=False)
        return None

    def _with_memory(self, inputs: EvaluationInputs) -> EvaluationInputs:
        return structs.replace(inputs, history=self.history)

    def _remember(self, used: EvaluationInputs, rescaled_to: int | None) -> None:
        answered = answer(used)
        self.history, self.newest = answered.evaluation.history, used
        change = 0 if rescaled_to is None else rescaled_to - answered.current
        self.history = with_rescale(self.history, used.autoscaler, change, used.now_ms)


_AT_ITS_OWN_TIMES = "with windows as of the native controller's own sync times fleethpa gives the same"


def after_unseen(newest: EvaluationInputs, history: History, step_ms: float, until_ms: int) -> History:
    """Return the memory after the syncs that follow `newest` every `step_ms` before a moment, and wrote no status."""
    unseen = max(0, math.ceil((until_ms - newest.now_ms) / step_ms) - 1)
    for number in range(max(1, unseen - _MOST_UNSEEN), unseen + 1):
        at_ms = newest.now_ms + round(number * step_ms)
        history = answer(structs.replace(newest, now_ms=at_ms, history=history)).evaluation.history
    return history


def by_own_times(inputs: EvaluationInputs, last: Retraced, wanted: int) -> str:
    """How the native controller, at the syncs before and after an evaluation of fleethpa, comes to `wanted` with its
    own memory; empty: it does not.

    Args:
        last: its newest sync before the evaluation. Those after it left no status behind.
    """
    step_ms = inputs.period_ms + LONGER_THAN_A_PERIOD_MS
    passed = max(0, inputs.now_ms - last.time_ms) // step_ms
    for number in (passed, passed + 1):
        at_ms = last.time_ms + number * step_ms
        memory = after_unseen(last.used, last.after, step_ms, at_ms)
        if answer(structs.replace(inputs, now_ms=at_ms, history=memory)).final == wanted:
            return _AT_ITS_OWN_TIMES
    return ""


def _by_memory(same: list[EvaluationInputs], remembering: list[EvaluationInputs], native: int) -> _Explained | None:
    for own in remembering:
        if answer(own).final == native:
            why = "with the memory of the native controller's own syncs fleethpa gives the same"
            return _Explained(own, "timing", why, shown=True)
    if any(by_moved_windows(own, native) for own in (*remembering, *same)):
        return None  # what one sync period explains shows no restart
    for own in (*remembering, *same):
        for forgetful in _with_less_memory(own):
            if answer(forgetful).final == native:
                why = LOST_MEMORY
                return _Explained(forgetful, "limit", why, shown=True)
    return None


def _by_limit(remembering: list[EvaluationInputs], status: dict[str, Any], native: int) -> _Explained | None:
    for own in remembering:
        answered = answer(own)
        for limit, freed, _ in without(own, answered):
            if freed.final == native:
                why = f"fleethpa is held by {limit}, the native controller was not"
                return _Explained(own, "limit", why, shown=True)
        if why := _held_natively(status, answered.final - native):
            return _Explained(own, "limit", why, shown=True)
    return None


def shows(made: Answer, status: dict[str, Any]) -> bool:
    """Return whether the evaluation's status shows the metric values of a status."""
    pending, result = made.evaluation.pending, made.evaluation.result
    shown = pending.current_metrics if pending is not None else result and result.status.get("currentMetrics")
    return (shown or None) == (status.get("currentMetrics") or None)


def _held_natively(status: dict[str, Any], beyond: int) -> str:
    """Return what the native controller says of its own limits where fleethpa goes beyond them; empty: nothing."""
    for condition in status.get("conditions") or []:
        if condition.get("type") == "ScalingLimited" and condition.get("status") == "True":
            reason = condition.get("reason", "")
            if (reason in _UPPER_LIMITS and beyond > 0) or (reason in _LOWER_LIMITS and beyond < 0):
                return f"the native controller says {reason}: {condition.get('message', '')}"
    return ""


_UPPER_LIMITS = ("TooManyReplicas", "ScaleUpLimit")
_LOWER_LIMITS = ("TooFewReplicas", "ScaleDownLimit")


def _with_other_samples(inputs: EvaluationInputs, around: Iterable[EvaluationInputs]) -> Iterator[EvaluationInputs]:
    """Yield the inputs with the samples of other moments, each at its own pods and count, too."""
    scale = inputs.observation.scale
    for other in around:
        seen = other.observation
        if len(seen.answers) != len(inputs.autoscaler.metrics) or not isinstance(scale, Scale):
            continue
        counts = [scale]
        if isinstance(seen.scale, Scale) and seen.scale.status_replicas != scale.status_replicas:
            counts.append(structs.replace(scale, status_replicas=seen.scale.status_replicas))
        for pods in (inputs.observation.pods, seen.pods):
            for count in counts:
                mixed = structs.replace(seen, scale=count, pods=pods)
                yield structs.replace(inputs, observation=mixed)


def by_moved_windows(inputs: EvaluationInputs, native: int) -> str:
    """How windows as of one sync period later, or earlier, give what the native controller made; empty: they do not.

    The two controllers evaluate at other moments of a sync period, so that a recommendation or a scale event may have
    left the window of one and not yet that of the other. To be tried where nothing else explains a difference.
    """
    for moved, when in _with_moved_windows(inputs):
        if answer(moved).final == native:
            return f"with windows as of one sync period {when} fleethpa gives the same"
    return ""


def _with_moved_windows(inputs: EvaluationInputs) -> Iterator[tuple[EvaluationInputs, str]]:
    old = inputs.history
    for by_ms, when in ((-inputs.period_ms, "later"), (inputs.period_ms, "earlier")):
        times_ms = tuple(time_ms + by_ms for time_ms in old.recommended_ms)
        ups, downs = (
            tuple((change, time_ms + by_ms, is_outdated) for change, time_ms, is_outdated in events)
            for events in (old.scale_up_events, old.scale_down_events)
        )
        yield structs.replace(inputs, history=History(old.recommended, times_ms, ups, downs)), when


def windows_text(own: History, native: History) -> str:
    """Both windows of recommendations, where nothing explains a difference."""
    return f"fleethpa's window holds {_window_text(own)}, the native controller's {_window_text(native)}"


def _window_text(history: History) -> str:
    recommended = history.recommended
    return (
        f"{min(recommended)} to {max(recommended)} of {len(recommended)} recommendations"
        if recommended
        else "no recommendation"
    )


def _with_less_memory(inputs: EvaluationInputs) -> Iterator[EvaluationInputs]:
    """Yield the inputs without any memory, then without the oldest recommendations and scale events, more and more."""
    yield structs.replace(inputs, history=EMPTY_HISTORY)
    old = inputs.history
    ups, downs = old.scale_up_events, old.scale_down_events
    moments = {*old.recommended_ms, *[time_ms for _, time_ms, _ in (*ups, *downs)]}
    for moment in sorted(moments):
        kept = History(
            scale_up_events=tuple(each for each in ups if each[1] > moment),
            scale_down_events=tuple(each for each in downs if each[1] > moment),
        )
        newer = [each for each in old.recommendations if each[1] > moment]
        yield structs.replace(inputs, history=kept.with_recommendations(newer))


# --- values of a status -----------------------------------------------------------------------------------------------


def with_status(inputs: EvaluationInputs, shown: list[dict[str, Any]]) -> tuple[EvaluationInputs, list[str]]:
    """Return the inputs with the metric values of a status in place of the samples, and what was put in."""
    stated: list[str] = []
    for index, spec in enumerate(inputs.autoscaler.metrics[: len(shown)]):
        current = (shown[index].get(spec.status_key) or {}).get("current") or {}
        number = varied(inputs, index)
        if number is None or not _text(current):
            continue
        value = _value(inputs, index, current)
        if value is not None and value != number.now:
            inputs = number.at(inputs, value)
            stated.append(f"{spec.name.split(' ')[0]} {_text(current)}")
    return inputs, stated


def _values_text(inputs: EvaluationInputs, status: dict[str, Any]) -> str:
    shown = status.get("currentMetrics") or []
    texts = []
    for spec, item in zip(inputs.autoscaler.metrics, shown, strict=False):
        text = _text((item.get(spec.status_key) or {}).get("current") or {})
        texts.append(f"{spec.name.split(' ')[0]} {text or '<unknown>'}")
    return ", ".join(texts) or "no metrics"


def _text(current: dict[str, Any]) -> str:
    if "averageUtilization" in current:
        return f"{current['averageUtilization']}%"
    return str(current.get("averageValue", current.get("value", "")))


def _value(inputs: EvaluationInputs, index: int, current: dict[str, Any]) -> int | None:
    if "averageUtilization" in current and inputs.autoscaler.metrics[index].calculation == "utilization":
        return total_of(inputs, index, percent=int(current["averageUtilization"]))
    try:
        milli = int(parse_milli(str(current.get("averageValue", current.get("value")))))
    except QuantityError:
        return None
    return total_of(inputs, index, milli=milli)
