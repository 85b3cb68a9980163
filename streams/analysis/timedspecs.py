"""Candidates that upstream does not have: a spec that changes with the time of the week, or with a seasonal forecast.

They are tried in the closed loop like any other. What wins can be put to work as a schedule of plain HPA settings
(`fleethpa schedule`): decisions stay upstream's.
"""

from bisect import bisect_left
from collections.abc import Sequence
from datetime import UTC, datetime
from math import ceil
from zoneinfo import ZoneInfo

from msgspec import Struct

from schemas.keys import HpaId
from schemas.weekly import Weekly
from streams.analysis.candidate import Candidate, candidate
from streams.analysis.recordedload import need
from streams.hpa.autoscaler import Autoscaler
from streams.state.probe import EvaluationInputs


class _Timed:
    """A spec that changes with the time: what no rule changes is the base's."""

    base: Candidate

    @property
    def hpa(self) -> HpaId:
        """Whose candidate it is."""
        return self.base.hpa

    @property
    def autoscaler(self) -> Autoscaler:
        """The base's."""
        return self.base.autoscaler

    @property
    def asked(self) -> tuple[bytes, ...]:
        """What its metrics ask for; that does not change."""
        return self.base.asked

    @property
    def targets(self) -> frozenset[tuple[str, int]]:
        """Names and targets of metrics, at any time."""
        return self.base.targets


class TimedRule(Struct, frozen=True):
    """A spec for some times of the week."""

    times: Weekly
    tried: Candidate


class Scheduled(_Timed):
    """A spec with rules: at each moment the last rule that holds, else the base."""

    def __init__(self, base: Candidate, rules: Sequence[TimedRule], zone: ZoneInfo) -> None:
        self.base, self.rules, self.zone = base, tuple(rules), zone
        self._known: tuple[int, Candidate] | None = None

    @property
    def targets(self) -> frozenset[tuple[str, int]]:
        """Names and targets of metrics, of all rules."""
        return self.base.targets.union(*(rule.tried.targets for rule in self.rules))

    def at(self, now_ms: int) -> Candidate:
        """The spec of a moment."""
        minute = now_ms // 60_000
        if self._known is None or self._known[0] != minute:
            local = datetime.fromtimestamp(minute * 60, UTC).astimezone(self.zone)
            found = self.base
            for rule in self.rules:
                if rule.times.holds(local.weekday(), local.hour * 60 + local.minute):
                    found = rule.tried
            self._known = minute, found
        return self._known[1]

    def on(self, inputs: EvaluationInputs) -> EvaluationInputs:
        """The recorded inputs of an evaluation with the spec of its moment."""
        return self.at(inputs.now_ms).on(inputs)


class Forecast(_Timed):
    """A spec whose minReplicas is what the load of one season ago needed from now until a new pod is ready.

    The seasonal-naive forecast: the load repeats itself. It reads only what was recorded before each moment; where
    nothing was, the spec's own minReplicas holds.
    """

    def __init__(self, base: Candidate, recorded: Sequence[EvaluationInputs], season_ms: int, lead_ms: int) -> None:
        self.base, self.season_ms, self.lead_ms = base, season_ms, min(lead_ms, season_ms)
        self._times: list[int] = []
        self._needs: list[float] = []
        for each in recorded:
            known = need(base.autoscaler, base.answers(each), each.observation.pods)
            if known is not None:
                self._times.append(each.now_ms)
                self._needs.append(known)
        self._specs: dict[int, Candidate] = {base.autoscaler.min_replicas: base}

    def floor(self, now_ms: int) -> int:
        """minReplicas of a moment."""
        least, most = self.base.autoscaler.min_replicas, self.base.autoscaler.max_replicas
        begin = bisect_left(self._times, now_ms - self.season_ms)
        end = bisect_left(self._times, min(now_ms, now_ms - self.season_ms + self.lead_ms + 1))
        return min(max([least, *map(ceil, self._needs[begin:end])]), most)

    def on(self, inputs: EvaluationInputs) -> EvaluationInputs:
        """The recorded inputs of an evaluation with the floor of its moment."""
        floor = self.floor(inputs.now_ms)
        if floor not in self._specs:
            self._specs[floor] = candidate(self.hpa, self.base.spec | {"minReplicas": floor})
        return self._specs[floor].on(inputs)
