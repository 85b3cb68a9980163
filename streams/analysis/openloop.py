"""Open loop: the candidate is asked at every recorded evaluation, and the world goes on as it was recorded.

Samples, pods and scale are the recorded ones; only the candidate's memory (recommendations and scale events) is its
own. The recorded rescales are its scale events, as the native controller's are a shadow HPA's. Nothing that the
candidate wants has an effect, so nothing is assumed.
"""

from collections.abc import Callable, Iterable

from msgspec import Struct, structs

from streams.analysis.answer import Answer, answer
from streams.analysis.candidate import Tried
from streams.history.evaluationinputs import Evaluated, HpaEvent
from streams.hpa.evaluation import EMPTY_HISTORY, History
from streams.hpa.scaleevents import store_scale_event
from streams.state.probe import EvaluationInputs, WriteEnded


class Compared(Struct, frozen=True):
    """One recorded evaluation and what the candidate said to it."""

    inputs: EvaluationInputs
    recorded: Answer
    candidate: Answer

    @property
    def agrees(self) -> bool:
        """Same number from the metrics, same result, held by the same limits."""
        one, other = self.recorded, self.candidate
        same = (one.final, one.evaluation.proposal, one.constraints) == (
            other.final,
            other.evaluation.proposal,
            other.constraints,
        )
        return same and _proposals(one) == _proposals(other)


def _proposals(made: Answer) -> list[int | None]:
    metrics = made.evaluation.metrics
    return sorted(
        [metric.calculation.proposal if metric.calculation else None for metric in metrics],
        key=lambda p: (p is None, p),
    )


def open_loop(events: Iterable[HpaEvent], tried: Tried | None) -> list[Compared]:
    """Ask a candidate (None: whatever spec was deployed) at each evaluation of one HPA.

    The first evaluation hands its memory to the candidate, as an edit of the spec would.
    """
    memory = Memory(tried.on if tried is not None else _as_it_was)
    return [memory.evaluate(event.inputs) for event in events if memory.takes(event) and isinstance(event, Evaluated)]


def _as_it_was(inputs: EvaluationInputs) -> EvaluationInputs:
    return inputs


class Memory:
    """The recommendations and scale events of whoever sees the recording through `change`."""

    def __init__(self, change: Callable[[EvaluationInputs], EvaluationInputs]) -> None:
        self.change = change
        self.history: History | None = None
        self.newest: EvaluationInputs | None = None

    def takes(self, event: HpaEvent) -> bool:
        """Note the end of a write; tell whether the event is an evaluation."""
        if isinstance(event, WriteEnded):
            if self.history is not None:
                self.history = EMPTY_HISTORY if event.restart else self.history
                if event.applied:
                    self._moved(event.desired_replicas - event.current_replicas, event.evaluated_ms)
            return False
        return True

    def evaluate(self, inputs: EvaluationInputs) -> Compared:
        """Ask the candidate what it would do."""
        recorded = answer(inputs)
        changed = self.change(inputs)
        self.newest = changed
        if self.history is None:
            self.history = inputs.history
        elif inputs.history.recommendations is None:
            # A restart or a new beginning: what was remembered is gone for both.
            self.history = inputs.history
        else:
            for before, after, at_ms in inputs.native_moves:
                self._moved(after - before, at_ms)
        made = answer(_with_history(changed, self.history))
        self.history = made.evaluation.history
        return Compared(inputs, recorded, made)

    def _moved(self, change: int, at_ms: int) -> None:
        if self.newest is None or self.history is None or not change:
            return
        autoscaler = self.newest.autoscaler
        rules = autoscaler.scale_up if change > 0 else autoscaler.scale_down
        if rules is not None:
            self.history = store_scale_event(self.history, change, rules.longest_ms, at_ms)


def _with_history(inputs: EvaluationInputs, history: History) -> EvaluationInputs:
    return structs.replace(inputs, history=history)
