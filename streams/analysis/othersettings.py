"""Another setting of the native controller: which one explains what its memory and its samples do not.

The flags of a cluster's controller manager cannot be read. Where fleethpa's setting is another one, both see the same
and decide otherwise, again and again. Each plausible value of each setting is put in place of the present one, for
fleethpa's evaluations and the controller's syncs alike, and everything is compared anew.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from msgspec import structs

from schemas.decisions import uid_of
from streams.analysis.answer import answer
from streams.analysis.retracing import LONGER_THAN_A_PERIOD_MS, after_unseen
from streams.history.evaluations import Evaluated, HpaEvent
from streams.hpa.evaluation import EMPTY_HISTORY, History
from streams.hpa.normalize import with_rescale
from streams.state.inputs import EvaluationInputs, WriteEnded

MIN_ROWS: Final = 3
"""Differences from which on another setting is looked for: a restart of the controller leaves one or two."""
_MOST_TRIED: Final = 1_000
"""Moments on which all values are tried."""
_LEAD: Final = 100
"""Moments before the first of these differences: what windows hold there."""
_MIN_SHARE: Final = 2 / 3
"""Of the differences, what a setting has to explain to be named."""

DifferenceRow = tuple[int, str]
"""A difference: its time and the decision before it."""


class NativeMoment(NamedTuple):
    """What the native controller made at a moment: with `inputs` it came to `native`.

    `raw`: as the log has them, where `inputs` have another sample. `is_sync`: the log shows it; else it wrote nothing
    while fleethpa would have. `is_open`: the settings in force, its memory and its samples do not explain it.
    """

    raw: EvaluationInputs
    inputs: EvaluationInputs
    native: int
    is_sync: bool
    rescaled: bool
    is_open: bool


class ControllerSetting(NamedTuple):
    """A setting with a value: milliseconds, or the tolerance. `field`: its name in the inputs of an evaluation."""

    name: str
    field: str
    value: float

    @property
    def text(self) -> str:
        """It as `fleethpa settings` takes it."""
        return f"{self.name}={_shown(self.name, self.value)}"

    def now(self, inputs: EvaluationInputs) -> float:
        """The value in force at an evaluation."""
        holder = inputs if self.field == "period_ms" else inputs.settings
        value: float = getattr(holder, self.field)
        return value

    def instead_of(self, inputs: EvaluationInputs) -> str:
        """It in words, beside what is in force."""
        return f"{self.text} in place of {_shown(self.name, self.now(inputs))}"

    def put_in(self, inputs: EvaluationInputs) -> EvaluationInputs:
        if self.field == "period_ms":
            return structs.replace(inputs, period_ms=int(self.value))
        return structs.replace(inputs, settings=structs.replace(inputs.settings, **{self.field: self.value}))


def _shown(name: str, value: float) -> str:
    return f"{value:g}" if name == "tolerance" else f"{value / 1_000:g}s"


def _seconds(*values: int) -> tuple[float, ...]:
    return tuple(value * 1_000 for value in values)


_PLAUSIBLE: Final = {
    ("downscale-stabilization", "downscale_stabilization_ms"): _seconds(
        0, 15, 30, 60, 90, 120, 180, 240, 300, 420, 600, 900, 1_200, 1_800, 3_600
    ),
    ("tolerance", "tolerance"): (0.0, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.5),
    ("cpu-initialization-period", "cpu_initialization_period_ms"): _seconds(0, 15, 30, 60, 120, 180, 300, 600, 900),
    ("initial-readiness-delay", "initial_readiness_delay_ms"): _seconds(0, 5, 10, 15, 30, 60, 90, 120, 300),
    ("sync-period", "period_ms"): _seconds(5, 10, 15, 20, 30, 60),
}


def with_setting(events: Sequence[HpaEvent], setting: ControllerSetting) -> Iterator[HpaEvent]:
    """Yield the events as if the setting had been in force: with it, and with what windows would have held by it."""
    memory, uid = EMPTY_HISTORY, ""
    for event in events:
        if isinstance(event, WriteEnded):
            yield event
            continue
        old, now_uid = event.inputs.history, uid_of(event.inputs.decision)
        if now_uid != uid or old.recommended is None:
            memory, uid = old, now_uid
        own = History(memory.recommended, memory.recommended_ms, old.scale_up_events, old.scale_down_events)
        inputs = structs.replace(setting.put_in(event.inputs), history=own)
        if isinstance(event, Evaluated):
            memory = answer(inputs).evaluation.history
        yield event._replace(inputs=inputs)


def explaining_setting(moments: Sequence[NativeMoment]) -> ControllerSetting | None:
    """Return the setting that explains most; None: no setting explains `MIN_ROWS` differences and most of them.

    What agreed, and no longer does with a setting, counts against it; of equal ones the nearest to what is in force is
    named. `moments`: in the order of time.
    """
    part = _densest(moments)
    count = sum(each.is_open for each in part)
    if count < MIN_ROWS:
        return None
    base, inputs = _agreeing(part, None), part[0].inputs
    gains: dict[ControllerSetting, int] = {}

    def best_with(settings: Iterable[ControllerSetting]) -> ControllerSetting:
        for setting in settings:
            gains[setting] = _agreeing(part, setting) - base
        return max(gains, key=lambda each: (gains[each], -abs(each.value - each.now(inputs))))

    best = best_with(_others(inputs))
    if gains[best] < len(part) - base:
        best = best_with(_between(best))
    return best if gains[best] >= max(MIN_ROWS, _MIN_SHARE * (len(part) - base)) else None


def _agreeing(moments: Sequence[NativeMoment], setting: ControllerSetting | None) -> int:
    """Count the moments at which fleethpa, with a memory of the syncs alone, gives what the native controller made."""
    memory, newest, uid, agreeing = EMPTY_HISTORY, None, "", 0
    for seen in moments:
        raw, inputs = [each if setting is None else setting.put_in(each) for each in (seen.raw, seen.inputs)]
        if uid != uid_of(inputs.decision):
            memory, newest, uid = inputs.history, None, uid_of(inputs.decision)
        if newest is not None:
            step_ms = inputs.period_ms + LONGER_THAN_A_PERIOD_MS
            memory = after_unseen(newest, memory, step_ms, inputs.now_ms - inputs.period_ms // 2)
        used = structs.replace(inputs, history=memory)
        answered = answer(used)
        if answered.final != seen.native and raw is not inputs:
            other = structs.replace(raw, history=memory)
            if (again := answer(other)).final == seen.native:
                used, answered = other, again
        agreeing += answered.final == seen.native
        if seen.is_sync:
            change = seen.native - answered.current if seen.rescaled else 0
            memory = with_rescale(answered.evaluation.history, used.autoscaler, change, used.now_ms)
            newest = used
    return agreeing


def _others(inputs: EvaluationInputs) -> Iterator[ControllerSetting]:
    for (name, field), values in _PLAUSIBLE.items():
        for value in values:
            setting = ControllerSetting(name, field, value)
            if setting.now(inputs) != value:
                yield setting


def _between(setting: ControllerSetting) -> Iterator[ControllerSetting]:
    """Yield values between this one and its plausible neighbours, in steps of 5 s or of a hundredth."""
    values, step = _PLAUSIBLE[setting.name, setting.field], 0.01 if setting.name == "tolerance" else 5_000
    place = values.index(setting.value)
    for low, high in (
        (values[max(0, place - 1)], setting.value),
        (setting.value, values[min(len(values) - 1, place + 1)]),
    ):
        for part in (1, 2, 3):
            value = round((low + (high - low) * part / 4) / step) * step
            if low < value < high:
                yield setting._replace(value=round(value, 2))


def _densest(moments: Sequence[NativeMoment]) -> Sequence[NativeMoment]:
    """Return the part with the most differences, after a lead."""
    if len(moments) <= _MOST_TRIED + _LEAD:
        return moments
    places = [place for place, each in enumerate(moments) if each.is_open]
    inside = [bisect_left(places, place + _MOST_TRIED) - index for index, place in enumerate(places)]
    if not inside:
        return ()
    first = places[inside.index(max(inside))]
    return moments[max(0, first - _LEAD) : first + _MOST_TRIED]
