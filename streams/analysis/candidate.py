"""Another spec on the recorded world: a fixed one, or one that changes with the time of day.

Its metrics are matched with the recorded answers by what they ask. What wins can be put to work as a schedule of plain
HPA settings (`fleethpa schedule`): decisions stay upstream's.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, TypeAlias
from zoneinfo import ZoneInfo

import orjson
from msgspec import Struct, structs

from schemas.keys import HpaId
from schemas.kubernetes.metricspecs import metric_source
from schemas.windows import Window
from streams.hpa.autoscaler import Autoscaler, compile_autoscaler
from streams.hpa.observation import MetricFailure, MetricReading
from streams.state.inputs import EvaluationInputs

_NOT_ASKED = MetricFailure("the recording holds no answer for this metric at that time")


class CandidateError(Exception):
    """The candidate cannot be tried on the recording; says why."""


class Candidate(Struct, frozen=True):
    """A spec to try for one HPA."""

    hpa: HpaId
    spec: dict[str, Any]
    autoscaler: Autoscaler
    asked: tuple[bytes, ...]
    """What each of its metrics asks for (`metric_key`)."""

    @property
    def targets(self) -> frozenset[tuple[str, int]]:
        return frozenset((metric.name, metric.target) for metric in self.autoscaler.metrics)

    def on(self, inputs: EvaluationInputs) -> EvaluationInputs:
        """The recorded inputs of an evaluation with this spec in place of the recorded one."""
        return structs.replace(
            inputs,
            spec=self.spec,
            autoscaler=structs.replace(self.autoscaler, generation=inputs.generation),
            observation=structs.replace(inputs.observation, answers=self.answers(inputs)),
        )

    def answers(self, inputs: EvaluationInputs) -> tuple[MetricReading | None, ...]:
        """The recorded answers in the order of this spec's metrics."""
        observed = inputs.observation.answers
        if not observed:
            return ()
        known = {metric_key(m): a for m, a in zip(inputs.spec.get("metrics") or (), observed, strict=True)}
        return tuple(known.get(key, _NOT_ASKED) for key in self.asked)


def candidate(hpa: HpaId, spec: dict[str, Any]) -> Candidate:
    """Compile a defaulted spec. Raises CandidateError: a quantity in it cannot be read."""
    body = {"metadata": {"name": hpa.name, "namespace": hpa.namespace}, "spec": spec}
    try:
        autoscaler = compile_autoscaler(body)
    except ValueError as error:
        raise CandidateError(f"{hpa}: {error}") from error
    return Candidate(hpa, spec, autoscaler, tuple(metric_key(metric) for metric in spec.get("metrics") or ()))


def metric_key(metric: dict[str, Any]) -> bytes:
    """Return what a metric of a spec asks for, without its target."""
    source = {name: value for name, value in metric_source(metric).items() if name != "target"}
    return orjson.dumps([metric["type"], source], option=orjson.OPT_SORT_KEYS)


def check_metrics(tried: "Tried", recorded: Iterable[EvaluationInputs]) -> None:
    """See that the recording holds what the candidate asks for.

    Raises CandidateError: a metric was never asked for, or the target is another.
    """
    known: set[bytes] = set()
    targets = set()
    for inputs in recorded:
        known.update(metric_key(metric) for metric in inputs.spec.get("metrics") or ())
        targets.add((inputs.autoscaler.target_kind, inputs.autoscaler.target_name))
    own = (tried.autoscaler.target_kind, tried.autoscaler.target_name)
    if targets and own not in targets:
        was = "/".join(sorted(targets)[0])
        raise CandidateError(f"{tried.hpa} drives {was} in the recording; the candidate names {'/'.join(own)}")
    for key, metric in zip(tried.asked, tried.autoscaler.metrics, strict=True):
        if key not in known:
            raise CandidateError(
                f"{tried.hpa}: the recording holds no answers for {metric.name or metric.type}; "
                "only metrics that were recorded can be tried"
            )


class TimedRule(Struct, frozen=True):
    """A spec for some times."""

    times: Window
    tried: Candidate


class Scheduled:
    """A spec with rules: at each moment the last rule that holds, else the base. `targets`: at any time."""

    def __init__(self, base: Candidate, rules: Sequence[TimedRule], zone: ZoneInfo) -> None:
        self.base, self.hpa, self.autoscaler, self.asked = base, base.hpa, base.autoscaler, base.asked
        self.rules, self.zone = tuple(rules), zone
        self.targets = base.targets.union(*(rule.tried.targets for rule in self.rules))
        self._known: tuple[int, Candidate] | None = None

    def at(self, now_ms: int) -> Candidate:
        minute = now_ms // 60_000
        if self._known is None or self._known[0] != minute:
            local = datetime.fromtimestamp(minute * 60, UTC).astimezone(self.zone)
            tried = self.base
            for rule in self.rules:
                if rule.times.holds(local):
                    tried = rule.tried
            self._known = minute, tried
        return self._known[1]

    def on(self, inputs: EvaluationInputs) -> EvaluationInputs:
        """The recorded inputs of an evaluation with the spec of its moment."""
        return self.at(inputs.now_ms).on(inputs)


Tried: TypeAlias = Candidate | Scheduled
"""The specs that a backtest can try: a fixed one, or one that changes with the time of day."""
