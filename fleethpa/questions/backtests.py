"""Backtests of any number of HPAs: which, with which candidate, over which part of the log; where reports go."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from fleethpa.changes.manifests import Input, check_hpa
from fleethpa.changes.schedules import TimedPolicy, forecast_rules, spec_under
from fleethpa.changes.specs import changed_spec, checked
from fleethpa.fleet.finding import no_such_hpa
from fleethpa.frame.errors import CommandError, not_found, usage
from fleethpa.questions.backtestpage import minutes
from schemas.keys import HpaId, partition_for
from streams.analysis.backtest import backtest
from streams.analysis.candidate import CandidateError, Forecast, Scheduled, TimedRule, candidate
from streams.analysis.closedloop import start_up
from streams.analysis.revisions import differences
from streams.archive.layout import LOG
from streams.history.evaluations import Evaluated, events_between, hpa_of

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

    from fleethpa.fleet.selection import Selection
    from fleethpa.fleet.views import HpaView
    from streams.analysis.backtest import Backtest, Model
    from streams.analysis.candidate import Candidate, Tried
    from streams.history.evaluations import HpaEvent
    from streams.history.past import Past
    from streams.state.lostmetrics import EvaluationInputs


def check_folder(path: str) -> None:
    """Check, before anything is read, that a report can be written.

    Raises CommandError: its folder does not exist (exit 2).
    """
    if not Path(path).absolute().parent.is_dir():
        raise usage(f"--html {path} cannot be written", cause="Its folder does not exist.")


def write(path: str, text: str) -> None:
    """Write a report. Raises CommandError: that is not possible (exit 2)."""
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandError(f"--html {path} cannot be written", cause=str(error), code=2) from error


MOST_HELD: Final = 300_000
"""Evaluations that are held at a time, some 4 KB each: a week of seven HPAs at 15 s."""
MOST_REDUCED: Final = 1_000_000
"""The same where a reader keeps some 500 bytes of each."""


NO_POLICY: Final = TimedPolicy()
_MINUTE_MS: Final = 60_000
_WHOLE: Final = 0.99
"""Share of a season from which it counts as recorded: a window of 7d ends where its last evaluation was."""


@dataclass(frozen=True)
class BacktestRequest:
    """A candidate: the object (defaulted, checked) for one HPA of the log, beside the spec that is deployed."""

    hpa: HpaId
    body: dict[str, Any]
    deployed: dict[str, Any]
    policy: TimedPolicy = NO_POLICY

    @property
    def changes(self) -> list[str]:
        """What the candidate changes in the deployed spec."""
        return [*differences(self.deployed, self.body["spec"]), *self.policy.changes]

    def tried(self, events: Sequence[HpaEvent]) -> Tried:
        """The compiled candidate, for a recording.

        Raises CandidateError: a quantity in it cannot be read. Raises CommandError: a rule gives no valid spec (exit
        2).
        """
        base = candidate(self.hpa, self.body["spec"])
        if self.policy.season_ms is not None:
            return self._forecast(base, events, self.policy.season_ms)
        if self.policy.zone is None:
            return base
        rules = [
            TimedRule(rule.times, candidate(self.hpa, spec_under(self.body, rule, "--schedule")))
            for rule in self.policy.rules
        ]
        return Scheduled(base, rules, self.policy.zone)

    def _forecast(
        self, base: Candidate, events: Sequence[HpaEvent], season_ms: int, least_lead_ms: int = 0
    ) -> Forecast:
        inputs = [event.inputs for event in events if isinstance(event, Evaluated)]
        lead_ms = start_up(inputs).ms + (inputs[-1].period_ms if inputs else 0)
        return Forecast(base, inputs, season_ms, max(lead_ms, least_lead_ms))

    def coming_rules(self, events: Sequence[HpaEvent], zone: ZoneInfo) -> list[str]:
        """What the forecast says for the season after the recording, as rules of a schedule.

        Raises CandidateError: a quantity in the candidate cannot be read. Raises CommandError: less than a season was
        recorded (exit 2).
        """
        season_ms = self.policy.season_ms
        assert season_ms is not None
        times = [event.inputs.now_ms for event in events if isinstance(event, Evaluated)]
        if times[-1] - times[0] < season_ms * _WHOLE:
            raise usage(
                f"{self.hpa}: less than one season was recorded",
                cause=f"It has {(times[-1] - times[0]) / 3_600_000:.1f} h, the season {season_ms / 3_600_000:g} h.",
                next_step="a longer --since, or --forecast 1d",
            )
        # Rules are made from one moment a minute: each has to see all that comes until the next.
        forecast = self._forecast(candidate(self.hpa, self.body["spec"]), events, season_ms, _MINUTE_MS)
        return forecast_rules(forecast, times[-1], season_ms, zone)


@dataclass(frozen=True)
class Window:
    """From `since_ms` to before `until_ms` (log time)."""

    since_ms: int
    until_ms: int


def requests(
    read: Input | None, settings: tuple[str, ...], selection: Selection, known: Iterable[HpaView]
) -> list[BacktestRequest]:
    """Pair manifests (`-f`; None: none), or changes (`--set`) of selected HPAs, with the HPAs that the log knows.

    Raises CommandError: a manifest is invalid (exit 2), or nothing of that name is known (exit 4).
    """
    views = list(known)
    made = _of_files(read, selection, views) if read else _of_settings(settings, selection, views)
    if read and settings:
        return [
            replace(w, body=w.body | {"spec": checked(w.body, changed_spec(w.body["spec"], settings), "--set")})
            for w in made
        ]
    return made


def _of_files(read: Input, selection: Selection, views: list[HpaView]) -> list[BacktestRequest]:
    found: list[BacktestRequest] = []
    for manifest in read.hpas:
        body, errors = check_hpa(manifest, selection.namespace or "default")
        if errors:
            raise usage(f"{manifest.source}: HPA {manifest.name} is invalid", cause="\n".join(errors))
        place = (body["metadata"]["namespace"], body["metadata"]["name"])
        same = [v for v in views if (v.id.namespace, v.id.name) == place and selection.cluster_matches(v.id.cluster)]
        if not same:
            raise not_found(
                f"no HPA {'/'.join(place)} in the log",
                cause="A candidate is tried on the recording of the HPA with its namespace and name.",
                next_step="fleethpa get hpa -A",
            )
        if twice := [view.id for view in same if any(request.hpa == view.id for request in found)]:
            raise usage(
                f"{manifest.source}: a second candidate for {twice[0]}",
                cause="A backtest tries one candidate for each HPA.",
            )
        found += [BacktestRequest(view.id, body, view.spec) for view in same]
    return found


def _of_settings(settings: tuple[str, ...], selection: Selection, views: list[HpaView]) -> list[BacktestRequest]:
    chosen = [view for view in views if selection.matches(view.id, view.labels)]
    if missing := selection.missing(view.id for view in views):
        raise no_such_hpa(missing[0], [view.id for view in views], selection.namespace)
    if not chosen:
        raise not_found(f"no HPA matches {selection}", next_step="fleethpa get hpa -A")
    return [
        BacktestRequest(
            view.id, view.hpa | {"spec": checked(view.hpa, changed_spec(view.spec, settings), option)}, view.spec
        )
        for view in chosen
        for option in (f"--set on {view.id}",)
    ]


async def events_by_hpa(
    past: Past, wanted: set[HpaId], count: int, window: Window, *, native: bool = False
) -> AsyncGenerator[dict[HpaId, list[HpaEvent]], None]:
    """What became of HPAs, some at a time, in the order of log partitions and names.

    `native`: with the syncs of the clusters' own controllers.

    The log is read from the nearest snapshot on. Where a partition's HPAs are more than can be held, half of them are
    left for another reading of it.

    Raises CommandError: the log does not reach back (exit 2).
    """
    for number, left in sorted(_by_partition(wanted, count).items()):
        while left:
            found = await _held(past, left, number, window, native)
            yield found
            left = left[len(found) :]


async def _held(
    past: Past, hpas: list[HpaId], number: int, window: Window, native: bool
) -> dict[HpaId, list[HpaEvent]]:
    """The events of the first of some HPAs: of as many as can be held."""
    found: dict[HpaId, list[HpaEvent]] = {hpa: [] for hpa in hpas}
    held = 0
    between = events_between(past, number, window.since_ms, window.until_ms, found.__contains__, native=native)
    async with aclosing(between) as events:
        async for event in events:
            hpa = hpa_of(event)
            if hpa not in found:  # left for later within its record
                continue
            found[hpa].append(event)
            held += 1
            while held > MOST_HELD and len(found) > 1:
                for _ in range(len(found) // 2):
                    held -= len(found.popitem()[1])
    return found


class Reader(Protocol):
    """Takes in the evaluations of one HPA, in the order of the log, and keeps what its question needs of them."""

    def add(self, inputs: EvaluationInputs) -> None:
        """Take in an evaluation."""
        ...


R = TypeVar("R", bound=Reader)


async def readers_by_hpa(
    past: Past, wanted: set[HpaId], count: int, window: Window, reader: Callable[[HpaId], R], most: int
) -> AsyncGenerator[dict[HpaId, R], None]:
    """Readers that have taken in what became of HPAs: at most those of one log partition at a time.

    `most`: evaluations that readers may hold together. Where a partition's HPAs have more, half of them are left for
    another reading of it.

    Raises CommandError: the log does not reach back (exit 2).
    """
    for number, left in sorted(_by_partition(wanted, count).items()):
        while left:
            found = await _read(past, left, number, window, reader, most)
            yield found
            left = [hpa for hpa in left if hpa not in found]


async def _read(
    past: Past, hpas: list[HpaId], number: int, window: Window, reader: Callable[[HpaId], R], most: int
) -> dict[HpaId, R]:
    """Readers of the first of some HPAs: of as many as can be held."""
    found = {hpa: reader(hpa) for hpa in hpas}
    counts = dict.fromkeys(hpas, 0)
    held = 0
    between = events_between(past, number, window.since_ms, window.until_ms, found.__contains__)
    async with aclosing(between) as events:
        async for event in events:
            if not isinstance(event, Evaluated) or event.inputs.hpa not in found:
                continue
            found[event.inputs.hpa].add(event.inputs)
            counts[event.inputs.hpa] += 1
            held += 1
            while held > most and len(found) > 1:
                for _ in range(len(found) // 2):
                    held -= counts.pop(found.popitem()[0])
    return found


def _by_partition(wanted: set[HpaId], count: int) -> dict[int, list[HpaId]]:
    found: dict[int, list[HpaId]] = {}
    for hpa in sorted(wanted):
        found.setdefault(partition_for(hpa.namespace_key, count), []).append(hpa)
    return found


async def run_all(
    past: Past,
    found: list[BacktestRequest],
    count: int,
    window: Window,
    model: Model,
    also: Callable[[BacktestRequest, Sequence[HpaEvent]], None] = lambda request, events: None,
) -> list[Backtest]:
    """Try every candidate, some HPAs at a time. `also`: is called with the events of each, while they are held.

    Raises CommandError: as `events_by_hpa` and `run`.
    """
    by_hpa = {request.hpa: request for request in found}
    past.log_records_due = await _log_records_due(past, set(by_hpa), count, window)
    made: dict[HpaId, Backtest] = {}
    async with aclosing(events_by_hpa(past, set(by_hpa), count, window)) as parts:
        async for events in parts:
            made |= {result.hpa: result for result in run([by_hpa[hpa] for hpa in events], events, model)}
            for hpa in events:
                also(by_hpa[hpa], events[hpa])
    return [made[request.hpa] for request in found]


async def _log_records_due(past: Past, hpas: set[HpaId], count: int, window: Window) -> int:
    """About how many log records a backtest reads: those of the window, in the partitions of the HPAs."""
    due = 0
    for number in sorted({partition_for(hpa.namespace_key, count) for hpa in hpas}):
        first = await past.offset_at(LOG, number, window.since_ms)
        due += len(range(first, (await past.log_offsets(number)).stop))
    return past.log_records_read + due


def run(found: list[BacktestRequest], events: dict[HpaId, list[HpaEvent]], model: Model) -> list[Backtest]:
    """Try every candidate.

    Raises CommandError: one cannot be tried on the recording (exit 2), or nothing was recorded (exit 4).
    """
    results = []
    for request in found:
        if not events[request.hpa]:
            raise not_found(
                f"{request.hpa} has no evaluation in this window",
                next_step=f"fleethpa decisions {request.hpa} --since 30d, to see when it has",
            )
        try:
            results.append(backtest(events[request.hpa], request.tried(events[request.hpa]), model))
        except CandidateError as error:
            raise CommandError(str(error), code=2) from error
    return results


def notes(result: Backtest) -> list[str]:
    """What to keep in mind about this result, beside what the model can never know."""
    stated = []
    recorded = result.recorded
    if recorded.at_max_minutes and recorded.worst_overload > 1:
        stated.append(
            f"the recording was at maxReplicas for {minutes(recorded.at_max_minutes)}, overloaded at times: pods at "
            "their limit take less load than there was, so what a higher maximum would need is underestimated"
        )
    if recorded.unknown_minutes:
        stated.append(f"the load is not known for {minutes(recorded.unknown_minutes)}: metrics were missing")
    if result.edits:
        stated.append(f"the deployed spec was edited {result.edits} times in this window")
    if result.start_up is not None and not result.start_up.measured:
        stated.append(
            f"no pod started in this window: its start-up of {result.start_up.ms / 1000:.0f}s is {result.start_up.how}"
        )
    return stated
