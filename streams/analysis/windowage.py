"""How old fleethpa's window of recommendations is, beside that of a native controller which was there before it."""

from msgspec import structs

from schemas.decisions import uid_of
from streams.analysis.answer import answer
from streams.state.inputs import EvaluationInputs


class WindowAge:
    """Whether fleethpa's window of recommendations has been full since its memory began."""

    def __init__(self) -> None:
        self.uid, self.was_full = "", False

    def is_young(self, inputs: EvaluationInputs) -> bool:
        """Add an evaluation, in order."""
        uid, remembered_ms = uid_of(inputs.decision), inputs.history.recommended_ms
        if uid != self.uid or not remembered_ms:
            self.uid, self.was_full = uid, False
        oldest_ms = min(remembered_ms, default=inputs.now_ms)
        up = inputs.autoscaler.scale_up
        longest_ms = max(down_window_ms(inputs), (up.window_ms or 0) if up is not None else 0)
        self.was_full = self.was_full or oldest_ms <= inputs.now_ms - longest_ms + inputs.period_ms
        return not self.was_full


def down_window_ms(inputs: EvaluationInputs) -> int:
    """Return for how long a recommendation holds replicas: of the spec, else of the controller."""
    down = inputs.autoscaler.scale_down
    own_ms = down.window_ms if down is not None else None
    return inputs.settings.downscale_stabilization_ms if own_ms is None else own_ms


def was_remembered(inputs: EvaluationInputs, native: int) -> bool:
    """Whether the native controller did less than fleethpa would have, as it does if it had recommended that before."""
    answered, old = answer(inputs), inputs.history
    if not min(answered.current, answered.final) <= native <= max(answered.current, answered.final):
        return False
    older = old.with_recommendations([*old.recommendations, (native, inputs.now_ms - 1)])
    return answer(structs.replace(inputs, history=older)).final == native
