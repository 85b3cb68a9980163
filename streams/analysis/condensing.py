"""A long recording in little memory: evaluations reduced to what the closed loop and the search read of them.

Kept: time, scale, pods, settings, guards, the load of each metric. Not kept: samples of single pods, status and memory,
which the models have of their own but for the first evaluation. `metric_load`, and so everything built on it, gives the
same for a reduced evaluation as for the whole one.
"""

from collections.abc import Iterable
from typing import Any

from msgspec import structs

from schemas.keys import HpaId
from streams.analysis.podstartup import StartUp, StartUpClock
from streams.analysis.recordedload import load_samples
from streams.hpa.evaluation import EMPTY_HISTORY
from streams.hpa.observation import NO_PODS, MetricReading, Observation, PodSamples, Scale, TargetPods
from streams.state.probe import EvaluationInputs


class Condensed:
    """The evaluations of one HPA, oldest first, those with an unknown scale left out."""

    def __init__(self, hpa: HpaId) -> None:
        self.hpa = hpa
        self.inputs: list[EvaluationInputs] = []
        self._clock = StartUpClock()
        self._pods: TargetPods = NO_PODS
        self._known: dict[Any, Any] = {}

    def __len__(self) -> int:
        return len(self.inputs)

    def add(self, inputs: EvaluationInputs) -> None:
        """Take in an evaluation."""
        seen = inputs.observation
        if not isinstance(seen.scale, Scale):
            return
        if seen.pods is not self._pods:
            if seen.pods.rows != self._pods.rows:
                self._clock.see(inputs)
                self._pods = seen.pods
            seen = structs.replace(seen, pods=self._pods)
        if not self.inputs:
            self._clock.see(inputs)
            self.inputs.append(structs.replace(inputs, observation=self._reduced(inputs, seen), moves=()))
            return
        self.inputs.append(
            structs.replace(
                inputs,
                decision="",
                observation=self._reduced(inputs, seen),
                status={},
                history=EMPTY_HISTORY,
                guards=self._same(inputs.guards),
                settings=self._same(inputs.settings),
                moves=(),
                native_moves=(),
            )
        )

    def start_up(self) -> StartUp:
        """How long new pods took until they took load."""
        return self._clock.start_up()

    def _same(self, value: Any) -> Any:
        """The first object that equals this one: equal settings and guards are kept once."""
        return self._known.setdefault(value, value)

    def _reduced(self, inputs: EvaluationInputs, seen: Observation) -> Observation:
        answers: list[MetricReading | None] = []
        for spec, given in zip(inputs.autoscaler.metrics, seen.answers, strict=False):
            answers.append(load_samples(spec, given, seen.pods) if isinstance(given, PodSamples) else given)
        return structs.replace(seen, scale=self._same(seen.scale), answers=tuple(answers))


def condensed(hpa: HpaId, recorded: Iterable[EvaluationInputs]) -> Condensed:
    """A recording that is in memory already."""
    made = Condensed(hpa)
    for each in recorded:
        made.add(each)
    return made
