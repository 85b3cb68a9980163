"""Backtest of one autoscaler over several clusters: the separate HPAs of the recorded past against their whole.

Open loop: at each sync period the recorded samples, pods and scales of all clusters are summed, joined and decided, and
the total is divided by the shares before; nothing that is wanted has an effect on what was recorded. Shares reach the
clusters as they would: reports and allotments, one period apart.
"""

from collections.abc import Container, Mapping, Sequence
from math import isfinite

from msgspec import Struct, structs

from schemas.keys import FLEET, HpaId
from schemas.observed import FleetCluster, FleetSpec
from streams.across.allotments import allot, booked
from streams.across.division import ROOM, Divided, capped, caps_of, next_division, next_room
from streams.across.fleet import AWAY_PERIODS
from streams.analysis.answer import DecisionBounds
from streams.analysis.candidate import Candidate, CandidateError, check_metrics
from streams.analysis.measures import Measures, Moment, measure
from streams.hpa import autoscaler as kinds
from streams.hpa.autoscaler import Autoscaler, ControllerSettings
from streams.hpa.evaluation import EMPTY_HISTORY, Evaluation, History
from streams.hpa.metrics import tolerance_band
from streams.hpa.normalize import with_rescale
from streams.hpa.observation import Scale
from streams.hpa.parts import PartObservation, joined, summed, within
from streams.hpa.reconcile import decide
from streams.state.acrossrows import Account, Allotment, MemberReport, MemberRoom
from streams.state.inputs import EvaluationInputs


class FleetTried(Struct, frozen=True):
    """What is tried.

    `name`: `namespace/name`. `candidates`: the spec of the FleetHPA for the recorded HPA of each member.
    """

    name: str
    fleet: FleetSpec
    candidates: dict[str, Candidate]

    @property
    def hpa(self) -> HpaId:
        """The identity of the FleetHPA."""
        namespace, _, name = self.name.partition("/")
        return HpaId(FLEET, namespace, name)

    @property
    def autoscaler(self) -> Autoscaler:
        """The compiled spec of the FleetHPA."""
        return self.candidates[self.fleet.clusters[0].name].autoscaler


class _Seen(Struct, frozen=True, gc=False):
    """What a member reports at one evaluation. `replicas`: what its scale asked for."""

    time_ms: int
    part: PartObservation
    replicas: int
    at_max: bool


class MemberRecording:
    """The evaluations of one member's HPA, oldest first, reduced to what it would report."""

    def __init__(self, candidate: Candidate) -> None:
        self.seen: list[_Seen] = []
        self.settings: ControllerSettings | None = None
        self.period_ms = 0
        self.decisions = DecisionBounds()
        self._candidate = candidate
        self._generations: dict[int, EvaluationInputs] = {}

    def add(self, inputs: EvaluationInputs) -> None:
        """Add an evaluation; one with an unknown scale is as if the cluster had been silent."""
        scale = inputs.observation.scale
        if not isinstance(scale, Scale):
            return
        self.settings, self.period_ms = inputs.settings, inputs.period_ms
        self._generations.setdefault(inputs.generation, inputs)
        self.decisions = DecisionBounds(self.decisions.first or inputs.decision, inputs.decision)
        tried = self._candidate.on(inputs)
        part = summed(tried.autoscaler, tried.observation, inputs.settings, inputs.now_ms)
        at_max = scale.spec_replicas >= inputs.autoscaler.max_replicas
        self.seen.append(_Seen(inputs.now_ms, part, scale.spec_replicas, at_max))

    def check(self) -> None:
        """See that there is a recording, and that it holds what the spec of the FleetHPA asks for.

        Raises CandidateError: there is none, or it does not.
        """
        if not self.seen:
            raise CandidateError(f"{self._candidate.hpa}: no evaluation with a known scale in this period")
        check_metrics(self._candidate, self._generations.values())


class MemberResult(Struct, frozen=True, kw_only=True, rename="camel"):
    """One cluster. `recorded…`: its own HPA; `share…`: as a member; means over time. `moves`: changes of the share.
    `decisions`: of its own HPA, as the log gives them.
    """

    hpa: HpaId
    recorded_mean: float
    recorded_max: int
    recorded_at_max_minutes: float
    share_mean: float
    share_max: int
    moves: int
    away_minutes: float
    decisions: DecisionBounds

    def among(self, recorded: Container[str]) -> "MemberResult":
        """Return the same without IDs that are not among those of recorded decisions."""
        return structs.replace(self, decisions=self.decisions.among(recorded))


class FleetBacktest(Struct, frozen=True, kw_only=True):
    """What one autoscaler over all clusters would have done beside what the separate ones did."""

    name: str
    since_ms: int
    until_ms: int
    periods: int
    recorded: Measures
    candidate: Measures
    recorded_moments: list[Moment]
    candidate_moments: list[Moment]
    members: list[MemberResult]
    undecided: int
    """Periods without a total: no metric could be read in any cluster."""


class _Series(Struct):
    """What became of one member, period by period."""

    recorded: list[int]
    shares: list[int]
    at_max: int = 0
    away: int = 0


def fleet_backtest(tried: FleetTried, recordings: Mapping[str, MemberRecording]) -> FleetBacktest:
    """Try one autoscaler on the recordings of its members, each of which was checked."""
    period_ms = max(each.period_ms for each in recordings.values())
    settings = next(each.settings for each in recordings.values() if each.settings is not None)
    run = _Run(tried, recordings, period_ms, settings)
    begin = max(each.seen[0].time_ms for each in recordings.values())
    end = max(each.seen[-1].time_ms for each in recordings.values())
    for now_ms in range(begin, end + 1, period_ms):
        run.step(now_ms)
    tolerance = tolerance_band(tried.autoscaler, settings)[1] - 1.0
    minutes = period_ms / 60_000
    return FleetBacktest(
        name=tried.name,
        since_ms=begin,
        until_ms=end,
        periods=len(run.recorded),
        recorded=measure(run.recorded, tolerance, period_ms),
        candidate=measure(run.moments, tolerance, period_ms),
        recorded_moments=run.recorded,
        candidate_moments=run.moments,
        members=[
            _result(tried.candidates[name].hpa, series, recordings[name].decisions, minutes)
            for name, series in run.series.items()
        ],
        undecided=run.undecided,
    )


def _result(hpa: HpaId, series: _Series, decisions: DecisionBounds, minutes: float) -> MemberResult:
    return MemberResult(
        hpa=hpa,
        recorded_mean=sum(series.recorded) / len(series.recorded),
        recorded_max=max(series.recorded),
        recorded_at_max_minutes=series.at_max * minutes,
        share_mean=sum(series.shares) / len(series.shares),
        share_max=max(series.shares),
        moves=sum(one != other for one, other in zip(series.shares, series.shares[1:], strict=False)),
        away_minutes=series.away * minutes,
        decisions=decisions,
    )


class _Run:
    """The whole, from period to period."""

    def __init__(
        self, tried: FleetTried, recordings: Mapping[str, MemberRecording], period_ms: int, settings: ControllerSettings
    ) -> None:
        self.tried, self.settings, self.period_ms = tried, settings, period_ms
        self.recorded: list[Moment] = []
        self.moments: list[Moment] = []
        self.series = {each.name: _Series([], []) for each in tried.fleet.clusters}
        self.undecided = 0
        self._recordings = recordings
        self._at = dict.fromkeys(recordings, 0)
        self._history: History = EMPTY_HISTORY
        self._replicas: dict[str, int] = {}
        self._divided = Divided({})
        self._accounts: dict[str, Account] = {}
        self._rooms: dict[str, MemberRoom] = {}
        self._total = 0

    def step(self, now_ms: int) -> None:
        """One sync period: reports, a decision, a division, allotments."""
        newest = {name: self._newest(name, now_ms) for name in self._recordings}
        present = [
            each
            for each in self.tried.fleet.clusters
            if now_ms - newest[each.name].time_ms <= AWAY_PERIODS * self.period_ms
        ]
        if not self._accounts:
            self._begin({name: each.replicas for name, each in newest.items()})
        shares = {name: account.newest.replicas for name, account in self._accounts.items()}
        after_ms = self.tried.fleet.away_spill_after_ms
        here = {each.name for each in present}
        counted = {
            name: share
            for name, share in shares.items()
            if name in here or not 0 < after_ms <= now_ms - newest[name].time_ms
        }
        evaluation = self._decide(now_ms, present, newest, counted) if present else None
        self._record_room(now_ms, {each.name: newest[each.name] for each in present})
        if evaluation is not None:
            self._allot(now_ms, present, shares, counted)
        self._record(now_ms, newest, here, shares, evaluation)

    def _newest(self, name: str, now_ms: int) -> _Seen:
        seen, at = self._recordings[name].seen, self._at[name]
        while at + 1 < len(seen) and seen[at + 1].time_ms <= now_ms:
            at += 1
        self._at[name] = at
        return seen[at]

    def _begin(self, replicas: dict[str, int]) -> None:
        """Begin with what there is, as `adopt` would: nothing jumps."""
        self._divided, self._total = Divided(dict(replicas)), sum(replicas.values())
        self._accounts = {
            name: Account(MemberReport(0, had, had), (Allotment(0, had),)) for name, had in replicas.items()
        }

    def _decide(
        self, now_ms: int, present: Sequence[FleetCluster], newest: Mapping[str, _Seen], counted: Mapping[str, int]
    ) -> Evaluation | None:
        """Decide the total of the clusters that are present; None: there is nothing to act on. `counted`: the shares
        that count towards the bounds of the FleetHPA.
        """
        names = [each.name for each in present]
        whole = joined([newest[name].part for name in names])
        held = sum([share for name, share in counted.items() if name not in names])
        autoscaler = within(self.tried.autoscaler, held, sum([each.min_replicas for each in present]))
        self._remember_moves(autoscaler, {name: newest[name].replicas for name in names}, now_ms)
        evaluation = decide(autoscaler, {}, whole, self._history, self.settings, now_ms)
        self._history = evaluation.history
        if evaluation.desired_replicas is None:
            self.undecided += 1
            return None
        self._total = evaluation.desired_replicas
        return evaluation

    def _remember_moves(self, autoscaler: Autoscaler, replicas: dict[str, int], now_ms: int) -> None:
        """Store what the recorded replicas changed by as a scale event, which policies count."""
        change = sum([had - self._replicas.get(name, had) for name, had in replicas.items()])
        self._replicas |= replicas
        self._history = with_rescale(self._history, autoscaler, change, now_ms)

    def _record_room(self, now_ms: int, newest: Mapping[str, _Seen]) -> None:
        """Record where pods waited for a node, as they were recorded, since the last period."""
        after_ms = self.tried.fleet.spill_after_ms
        for name, each in newest.items() if after_ms else ():
            if each.time_ms > now_ms - self.period_ms:
                room, waiting = self._rooms.get(name, ROOM), each.part.pods.waiting
                self._rooms[name] = next_room(room, each.replicas, waiting, after_ms, now_ms)

    def _allot(
        self, now_ms: int, present: Sequence[FleetCluster], shares: Mapping[str, int], counted: Mapping[str, int]
    ) -> None:
        # A cluster that is back begins with what it has.
        before = {each.name: self._divided.shares.get(each.name, shares[each.name]) for each in present}
        divided = Divided(before, self._divided.differs_since_ms)
        roomy = capped(self._total, present, caps_of(self._rooms))
        self._divided = next_division(self._total, roomy, self.tried.fleet, divided, now_ms)
        accounts = {name: self._accounts[name] for name in counted}
        for each in present:
            had = shares[each.name]
            accounts[each.name] = booked(accounts[each.name], MemberReport(accounts[each.name].newest.number, had, had))
        self._accounts |= allot(self._divided.shares, accounts, self.tried.autoscaler.max_replicas)

    def _record(
        self,
        now_ms: int,
        newest: Mapping[str, _Seen],
        present: set[str],
        shares: Mapping[str, int],
        evaluation: Evaluation | None,
    ) -> None:
        for name, series in self.series.items():
            series.recorded.append(newest[name].replicas)
            series.shares.append(shares[name])
            series.at_max += newest[name].at_max
            series.away += name not in present
        had, total = sum([each.replicas for each in newest.values()]), sum(shares.values())
        need = None if evaluation is None or len(present) < len(newest) else needed(evaluation, newest, present)
        at_max = any(each.at_max for each in newest.values())
        self.recorded.append(Moment(now_ms, had, had, need, at_max))
        self.moments.append(Moment(now_ms, total, total, need, total >= self.tried.autoscaler.max_replicas))


def needed(evaluation: Evaluation, newest: Mapping[str, _Seen], present: set[str]) -> float | None:
    """How many pods the load of the FleetHPA takes at target, by the metric that needs most; None: none is known."""
    status = sum([scale.status_replicas for name in present if isinstance(scale := newest[name].part.scale, Scale)])
    needs = []
    for metric in evaluation.metrics:
        calculation = metric.calculation
        if calculation is not None and isfinite(calculation.ratio):
            per_pod = metric.spec.calculation in (kinds.OBJECT_PER_POD, kinds.EXTERNAL_PER_POD)
            needs.append(calculation.ratio * (status if per_pod else calculation.used))
    return max(needs, default=None)
