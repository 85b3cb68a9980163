"""`fleethpa tune` on loads that its rules were not made on: `python -m tests.bench.unseen [--first N] [--count N]`.

Five families of loads with deployed targets of 50 to 80 %: the one of `tests.bench.tuned` with other seeds, spikes with
a heavy tail, noise that drifts with steps and a trend, spikes by the clock, and pieces of the traces, scaled in size
and time. From number 224 on, seeds are others again, and there are two more families: spikes whose height is bounded,
and jobs that begin and end at once. Recording and truth come from the compact loop
(`streams/analysis/tuning/surrogate.py`), which takes a second where the simulator takes ten. The tuner sees the
first two thirds; deployed spec and proposal are compared on the rest. The numbers below 140 are those on which the
rules were developed; those from 140 to 223 were looked at before.
"""

from __future__ import annotations

import argparse
import math
import random
import resource
import sys
import time
from collections.abc import Sequence
from functools import partial
from multiprocessing import Pool
from pathlib import Path
from statistics import mean, median

from msgspec import Struct

from streams.analysis.backtest import Condensed
from streams.analysis.candidate import candidate
from streams.analysis.load import LoadSamples, MetricLoad
from streams.analysis.measures import Moment
from streams.analysis.tuning.recording import FIRST_PART, Objective, RefusedError
from streams.analysis.tuning.search import tune
from streams.analysis.tuning.surrogate import Knobs, LoadSeries, SpecOutcome, lived, outcome_of
from streams.hpa.autoscaler import ControllerSettings
from streams.hpa.evaluation import EMPTY_HISTORY
from streams.hpa.observation import Observation, PodRow, Scale, TargetPods
from streams.state.inputs import EvaluationInputs
from tests.bench.policies import trace_files
from tests.bench.simulated_hpa import HPA, PERIOD_MS, REQUEST_MILLI, START_MS, TEMPLATE, spec
from tests.bench.tuned import EVEN_SHARE
from tests.kit.loads import Trace, read_trace

FAMILIES = ("bench", "bench", "heavy tail", "drift", "clock", "trace", "trace")
FRESH_FAMILIES = ("bench", "heavy tail", "drift", "clock", "trace", "bounded spikes", "jobs")
FIRST_UNSEEN = 140
FIRST_FRESH = 224
_DAY = 5_760
"""Evaluations in a day."""


class Load(Struct, frozen=True):
    """What a workload has to carry, in pods at their request, one number per evaluation."""

    number: int
    family: str
    pods: list[float]
    start_up_s: int
    deployed: int
    least: int


class Compared(Struct, frozen=True):
    """Deployed and proposed on the part that tune did not see; the same where nothing is proposed (`change` empty)."""

    load: str
    family: str
    change: str
    was: SpecOutcome
    own: SpecOutcome

    @property
    def saved(self) -> float:
        """Share of the deployed spec's replica-hours."""
        return 1 - self.own.replica_hours / self.was.replica_hours

    @property
    def better(self) -> bool:
        """Less cost or less overload, and not worse."""
        less = self.was.overload_share - self.own.overload_share
        return not self.worse and (self.saved > EVEN_SHARE or less > 0)

    @property
    def worse(self) -> bool:
        """More overload, or more cost without less overload."""
        more = self.own.overload_share - self.was.overload_share
        return more > EVEN_SHARE or (self.saved < -0.001 and more >= 0)


def load(number: int) -> Load:
    """The load of a number, always the same."""
    fresh = number >= FIRST_FRESH
    dice = random.Random(f"tune3-{number}" if fresh else f"tune2-{number}")
    families = FRESH_FAMILIES if fresh else FAMILIES
    family = families[number % len(families)]
    peak, start_up_s = 2 * 50 ** dice.random(), round(5 * 60 ** dice.random())
    noise, depth, weekend = dice.uniform(0.0, 0.15), dice.uniform(0.2, 0.95), dice.uniform(0.4, 1.0)
    shape = [
        (1 - depth * (0.5 + 0.5 * math.cos(2 * math.pi * at / (_DAY / 7)))) * (weekend if at * 7 // _DAY >= 5 else 1.0)
        for at in range(_DAY)
    ]
    rough = [1 + noise * dice.uniform(-1, 1) for _ in range(_DAY // 2 + 1)]
    if family == "trace":
        pods = _piece(dice, dice.choice(_traces()), peak, noise / 3)
    elif family == "jobs":
        pods = [peak / 2 * a * (1 + b / 2) for a, b in zip(shape, _jobs(dice), strict=True)]
    elif family == "drift":
        pods = [peak / 1.5 * a * b for a, b in zip(shape, _drift(dice), strict=True)]
    else:
        size, spikes = _spikes(dice, family, number)
        lifted = _lifted(spikes)
        pods = [peak * size * shape[at] * lifted[at] * rough[at // 2] for at in range(_DAY)]
    return Load(number, family, pods, start_up_s, dice.choice([50, 50, 60, 70, 80]), dice.choice([1, 2, 2, 3]))


def _spikes(dice: random.Random, family: str, number: int) -> tuple[float, list[tuple[float, float, float]]]:
    """(size of the load, begin, length and height of each spike)."""
    if family == "bench":
        count = dice.randrange(1, 12) if number % 2 else 0
        return 1.0, [(dice.uniform(0, _DAY), dice.uniform(4, 60), dice.uniform(1.2, 2)) for _ in range(count)]
    if family == "heavy tail":
        count, tail = dice.randrange(3, 40), dice.uniform(2, 5)
        return 0.5, [
            (dice.uniform(0, _DAY), dice.expovariate(1 / 20) + 2, min(6, 1.15 * dice.paretovariate(tail)))
            for _ in range(count)
        ]
    if family == "bounded spikes":
        count, height, apart = dice.randrange(3, 60), dice.uniform(1.2, 2.5), dice.uniform(0.02, 0.3)
        return 0.6, [
            (dice.uniform(0, _DAY), dice.uniform(2, 40), 1 + (height - 1) * dice.uniform(1 - apart, 1))
            for _ in range(count)
        ]
    every, height, length, scatter = (
        dice.choice([60, 120, 240, 480]),
        dice.uniform(1.2, 3),
        dice.uniform(2, 20),
        dice.uniform(0, 0.4),
    )
    return 0.5, [
        (turn * every + dice.uniform(0, 3), length, 1 + (height - 1) * dice.uniform(1 - scatter, 1 + scatter))
        for turn in range(_DAY // every)
    ]


def _jobs(dice: random.Random) -> list[float]:
    """How many of a few jobs run at each evaluation: each begins and ends at once, at random."""
    jobs, runs, rests = dice.randrange(1, 6), dice.uniform(10, 240), dice.uniform(40, 600)
    found = [0.0] * _DAY
    for _ in range(jobs):
        at = dice.expovariate(1 / rests)
        while at < _DAY:
            end = at + dice.expovariate(1 / runs) + 1
            for each in range(int(at), min(_DAY, int(end))):
                found[each] += 1
            at = end + dice.expovariate(1 / rests)
    return found


def _lifted(spikes: Sequence[tuple[float, float, float]]) -> list[float]:
    found = [1.0] * _DAY
    for begin, length, height in spikes:
        for at in range(int(begin), min(_DAY, int(begin + length) + 1)):
            found[at] = max(found[at], height)
    return found


def _drift(dice: random.Random) -> list[float]:
    memory = dice.uniform(0.9, 0.999)
    step = dice.uniform(0.05, 0.3) * math.sqrt(1 - memory * memory)
    trend, level, value = dice.uniform(-0.3, 0.6), 1.0, 0.0
    found = []
    for at in range(_DAY):
        value = memory * value + dice.gauss(0, step)
        if dice.random() < 2 / _DAY:
            level *= dice.uniform(0.7, 1.4)
        found.append(math.exp(value) * (1 + trend * at / _DAY) * level)
    return found


def _piece(dice: random.Random, trace: Trace, peak: float, noise: float) -> list[float]:
    """A piece of a trace, forwards or backwards."""
    values, highest = trace.values, max(trace.values)
    begin, share = dice.uniform(0, 0.3), dice.uniform(0.6, 0.7)
    hours = dice.choice([1, 4, 12, 24]) if len(values) < _DAY else 24
    count, backwards = hours * 240, dice.random() < 0.3
    found = []
    for at in range(count):
        place = begin + share * (1 - at / count if backwards else at / count)
        value = values[min(len(values) - 1, int(place * len(values)))]
        found.append(peak * value / highest * (1 + noise * dice.uniform(-1, 1)))
    return found


def _traces() -> list[Trace]:
    return [read_trace(path) for path in trace_files()]


def compared(number: int, objective: Objective = "balanced") -> Compared:
    """Record, tune, and compare on what tune did not see."""
    made = load(number)
    series = _series(made)
    seen = round(len(series) * FIRST_PART)
    deployed = spec(made.deployed, made.least, 400)
    moments = _lived(made, series, deployed, 1.0)
    was = _unseen(made, series, moments, seen)
    name = f"{made.family} {number}: {max(made.pods):.0f} pods, {made.start_up_s} s, deployed {made.deployed} %"
    try:
        found = tune(HPA, _recorded(made, series, moments[:seen], deployed), objective)
    except RefusedError:
        return Compared(name, made.family, "", was, was)
    if not found.changed:
        return Compared(name, made.family, "", was, was)
    own = _lived(made, series, found.spec, found.proposed_point.target / made.deployed)
    change = f"target {found.proposed_point.target:.0f}, window {found.proposed_point.window_seconds} s"
    return Compared(name, made.family, change, was, _unseen(made, series, own, seen))


def _series(made: Load) -> LoadSeries:
    times = [START_MS + at * PERIOD_MS for at in range(len(made.pods))]
    tuned: list[float | None] = [max(1e-6, each * 100 / made.deployed) for each in made.pods]
    replicas = max(made.least, math.ceil(tuned[0] or 0))
    spans = [PERIOD_MS] * len(times)
    settled_ms = times[0] + min(3 * made.start_up_s * 1_000 + 120_000, (times[-1] - times[0]) // 20)
    return LoadSeries(times, spans, tuned, [0.0] * len(times), replicas, 1_000, settled_ms)


def _lived(made: Load, series: LoadSeries, tried: dict[str, object], factor: float) -> list[Moment]:
    knobs = Knobs(candidate(HPA, tried).autoscaler, ControllerSettings(), factor)
    return lived(series, knobs, made.start_up_s * 1_000)


def _unseen(made: Load, series: LoadSeries, moments: list[Moment], seen: int) -> SpecOutcome:
    return outcome_of(series.part(seen, len(series)), moments[seen:], 100 / made.deployed)


def _recorded(made: Load, series: LoadSeries, moments: Sequence[Moment], deployed: dict[str, object]) -> Condensed:
    """The evaluations as a recording has them. The pods of the begin tell how long one starts."""
    tried = candidate(HPA, deployed)
    ready_ms = START_MS - 3_600_000
    start_ms = ready_ms - made.start_up_s * 1_000
    pods = TargetPods(
        tuple(
            PodRow(f"web-{at}", TEMPLATE, "Running", start_ms, "True", ready_ms, False) for at in range(series.replicas)
        )
    )
    found = Condensed(HPA)
    for moment, asked in zip(moments, made.pods, strict=False):
        at_ms = moment.time_ms - series.lag_ms
        used = MetricLoad(asked * REQUEST_MILLI, moment.ready, at_ms, REQUEST_MILLI, PERIOD_MS)
        answer = LoadSamples({}, round(used.total_milli), at_ms, at_ms, used)
        found.add(
            EvaluationInputs(
                decision="",
                hpa=HPA,
                partition=0,
                offset=0,
                now_ms=moment.time_ms,
                mode="enforce",
                origin="central",
                generation=1,
                spec=tried.spec,
                autoscaler=tried.autoscaler,
                status={},
                observation=Observation(Scale(moment.replicas, moment.replicas, "app=web"), pods, (answer,)),
                history=EMPTY_HISTORY,
                settings=ControllerSettings(),
                period_ms=PERIOD_MS,
            )
        )
    return found


def long(days: int, objective: Objective) -> str:
    """What tune takes for one HPA over so many days of evaluations every 15 s: processor time and memory."""
    count = days * _DAY
    dice = random.Random(days)
    pods = [(3 - 2 * math.cos(2 * math.pi * at / _DAY)) * (1 + 0.05 * dice.uniform(-1, 1)) for at in range(count)]
    made = Load(0, "long", pods, 30, 50, 2)
    series, deployed = _series(made), spec(50, 2, 400)
    recorded = _recorded(made, series, _lived(made, series, deployed, 1.0), deployed)
    begin_s = time.process_time()
    found = tune(HPA, recorded, objective)
    took_s = time.process_time() - begin_s
    most_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return (
        f"{days} days, {count:,} evaluations of {min(pods) * 2:.0f} to {max(pods) * 2:.0f} pods: {took_s:.1f} s of "
        f"processor time, {most_mb:.0f} MB, {found.tried} specs tried, proposal: {found.changed}"
    )


def table(found: Sequence[Compared]) -> list[str]:
    """A row per family, then every loss."""
    lines = [
        "| | loads | proposals | wins | losses | replica-hours saved (mean) | time in overload, mean |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for family in ("all", *dict.fromkeys((*FAMILIES, *FRESH_FAMILIES))):
        part = [each for each in found if family in ("all", each.family)]
        if not part:
            continue
        lines.append(
            f"| {family} | {len(part)} | {sum(bool(each.change) for each in part)} | "
            f"{sum(bool(each.change) and each.better for each in part)} | "
            f"{sum(each.worse for each in part)} | {mean(each.saved for each in part):.1%} | "
            f"{mean(each.was.overload_share for each in part):.3%} → "
            f"{mean(each.own.overload_share for each in part):.3%} |"
        )
    proposed = [each.saved for each in found if each.change]
    lines += ["", f"A proposal saves {median(proposed) if proposed else 0:.1%} in the median."]
    lines += [
        f"- worse: {each.load}: {each.change}: {each.own.overload_share - each.was.overload_share:+.2%} of the time in "
        f"overload, {-each.saved:+.1%} replica-hours"
        for each in found
        if each.worse
    ]
    return lines


def main(arguments: list[str]) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.unseen")
    parser.add_argument("--first", type=int, default=FIRST_UNSEEN, help="the first load")
    parser.add_argument("--count", type=int, default=84, help="how many loads")
    parser.add_argument("--results", type=Path, help="append each result here, as soon as it is known")
    parser.add_argument("--long", type=int, metavar="DAYS", help="only what tune takes for one HPA over so many days")
    parser.add_argument("--objective", choices=["balanced", "cost", "safety"], default="balanced")
    parser.add_argument("--jobs", type=int, default=2, help="how many processes")
    given = parser.parse_args(arguments)
    if given.long:
        sys.stdout.write(long(given.long, given.objective) + "\n")
        return
    with Pool(given.jobs) as pool:
        found = []
        numbers = range(given.first, given.first + given.count)
        for each in pool.imap(partial(compared, objective=given.objective), numbers):
            found.append(each)
            if given.results:
                with given.results.open("a") as file:
                    file.write(f"{each.load}: {each.change} {each.saved:+.3%} {each.worse}\n")
    sys.stdout.write("\n".join(table(found)) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
