"""Backtests of any number of HPAs: which, with which candidate, over which part of the log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from fleethpa.changes.manifests import Input, valid_hpa
from fleethpa.changes.schedules import TimedPolicy, spec_under
from fleethpa.changes.specs import changed_spec, checked
from fleethpa.fleet.decisionfinding import recorded_among
from fleethpa.fleet.finding import Selection, alone, chosen_some, not_evaluated
from fleethpa.fleet.views import FleetState, HpaView
from fleethpa.frame.errors import CommandError, not_found, usage
from fleethpa.frame.session import MOST_NAMED
from fleethpa.show.words import counted, listed
from schemas.keys import HpaId
from schemas.kubernetes.hpa import manifest_of
from schemas.partitioning import partition_for
from streams.analysis.backtest import Backtest, Model, backtest
from streams.analysis.candidate import CandidateError, Scheduled, TimedRule, Tried, candidate
from streams.analysis.revisions import differences
from streams.history.evaluations import HpaEvent, events_by_hpa
from streams.history.parallel import Faults
from streams.history.past import Past

NO_POLICY: Final = TimedPolicy()


@dataclass(frozen=True)
class BacktestRequest:
    """A candidate: the object (defaulted, checked) for one HPA of the log, beside the spec that is deployed."""

    hpa: HpaId
    body: dict[str, Any]
    deployed: dict[str, Any]
    policy: TimedPolicy = NO_POLICY

    @property
    def changes(self) -> list[str]:
        """Return what the candidate changes in the deployed spec."""
        return [*differences(self.deployed, self.body["spec"]), *self.policy.changes]

    @property
    def manifest(self) -> dict[str, Any]:
        """A manifest that `apply` takes."""
        return manifest_of(self.body["metadata"] | self.hpa._asdict(), self.body["spec"])

    def tried(self) -> Tried:
        """Return the compiled candidate.

        Raises CandidateError: a quantity in it cannot be read. Raises CommandError: a rule gives no valid spec (exit
        2).
        """
        base = candidate(self.hpa, self.body["spec"])
        if self.policy.zone is None:
            return base
        rules = [
            TimedRule(rule.times, candidate(self.hpa, spec_under(self.body, rule, "--schedule")))
            for rule in self.policy.rules
        ]
        return Scheduled(base, rules, self.policy.zone)


def requests(
    read: Input | None,
    settings: tuple[str, ...],
    selection: Selection,
    state: FleetState,
    policy: TimedPolicy,
    note: Callable[[str], None],
) -> list[BacktestRequest]:
    """Pair manifests (`-f`; None: none), or the specs of selected HPAs, changed by `--set`, with the HPAs of the log.

    `note`: is called with what was left out.

    Where none is named, those that `--set` makes invalid, or that lack a metric that it names, are left out.

    Raises CommandError: a manifest is invalid, or an HPA is with `--set` (exit 2); nothing of that name is known
    (exit 4).
    """
    if read:
        pairs = [(body, view, "--set") for body, view in _of_files(read, selection, state, note)]
    else:
        views = alone(chosen_some(state, selection), "backtest", note)
        pairs = [(view.hpa, view, f"--set on {view.id}") for view in views]
    backtest_requests, left_out = list[BacktestRequest](), LeftOut()
    for body, view, option in pairs:
        with left_out.noting(view.id):
            spec = checked(body, changed_spec(body["spec"], settings), option) if settings else body["spec"]
            backtest_requests.append(BacktestRequest(view.id, body | {"spec": spec}, view.spec, policy))
    left_out.end(note if read is None and not selection.refs else None, is_any_left=bool(backtest_requests))
    return backtest_requests


@dataclass
class LeftOut:
    """HPAs that cannot be tried, which do not end the run over the others where nobody has named them."""

    problems: dict[HpaId, CommandError] = field(default_factory=dict)

    @contextmanager
    def noting(self, hpa: HpaId) -> Iterator[None]:
        """Record that an HPA cannot be tried, if so."""
        try:
            yield
        except CommandError as problem:
            self.problems[hpa] = problem

    def end(self, note: Callable[[str], None] | None, *, is_any_left: bool) -> None:
        """Name those that are left out. `is_any_left`: whether there are others.

        Raises CommandError: no HPA is left, or there is no `note`, so that none may be left out. It has all problems.
        """
        if not self.problems:
            return
        first, *others = self.problems.values()
        if note is None:
            first.others = others
        if note is None or not is_any_left:
            raise first
        named = listed(map(str, self.problems), MOST_NAMED)
        note(f"{counted(len(self.problems), 'HPA')} left out: {named}. {first.sentence()}")


def _of_files(
    read: Input, selection: Selection, state: FleetState, note: Callable[[str], None]
) -> list[tuple[dict[str, Any], HpaView]]:
    pairs: list[tuple[dict[str, Any], HpaView]] = []
    for manifest in read.hpas:
        body = valid_hpa(manifest, selection.namespace or "default")
        place = (body["metadata"]["namespace"], body["metadata"]["name"])
        same = [view for id_, view in state.hpas.items() if id_[1:] == place and selection.cluster_matches(id_.cluster)]
        if not same:
            raise not_found(
                f"no HPA {'/'.join(place)} in the log",
                cause="A candidate is tried on the recording of the HPA with its namespace and name.",
                next_step="fleethpa get hpa -A",
            )
        same = alone(same, "backtest -f of an HPA", note)
        if twice := [view.id for view in same if any(view is other for _, other in pairs)]:
            raise usage(
                f"{manifest.source}: a second candidate for {twice[0]}",
                cause="A backtest tries one candidate for each HPA.",
            )
        pairs += [(body, view) for view in same]
    return pairs


async def run_all(
    past: Past,
    wanted: list[BacktestRequest],
    window: tuple[int, int],
    model: Model,
    faults: Faults,
    note: Callable[[str], None] | None = None,
) -> list[tuple[BacktestRequest, Backtest]]:
    """Try every candidate, some HPAs at a time.

    With `note` those that cannot be tried are left out, which it is called with. `faults`: takes those of fleethpa.
    Decisions that are not recorded yet are not named.

    Raises CommandError: as `events_by_hpa` and `run`.
    """
    by_hpa = {request.hpa: request for request in wanted}
    count = await past.partitions()
    await past.expect({partition_for(hpa.namespace_key, count) for hpa in by_hpa}, window[0])
    backtests, left_out = dict[HpaId, Backtest](), LeftOut()
    async with aclosing(events_by_hpa(past, set(by_hpa), window)) as parts:
        async for events in parts:
            for hpa in events:
                with faults.of(hpa), left_out.noting(hpa):
                    [result] = run([by_hpa[hpa]], events, model)
                    backtests[hpa] = result
    left_out.end(note, is_any_left=bool(backtests or faults))
    recorded = await recorded_among(past, (id_ for each in backtests.values() for id_ in each.named_decisions))
    return [(request, backtests[request.hpa].among(recorded)) for request in wanted if request.hpa in backtests]


def run(wanted: list[BacktestRequest], events: dict[HpaId, list[HpaEvent]], model: Model) -> list[Backtest]:
    """Try every candidate.

    Raises CommandError: one cannot be tried on the recording (exit 2), or nothing was recorded (exit 4).
    """
    results = []
    for request in wanted:
        if not events[request.hpa]:
            raise not_evaluated(f"{request.hpa} has no evaluation in this window", request.hpa)
        try:
            results.append(backtest(events[request.hpa], request.tried(), model))
        except CandidateError as error:
            raise usage(str(error)) from error
    return results
