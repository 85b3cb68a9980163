"""What `fleethpa tune` proposes, lived in the simulator: `python -m tests.experiments.tuned [generated workloads]`.

Every workload is recorded under a deployed spec. The tuner sees the first two thirds of the recording. Then the
workload is lived once more under the proposal and under each default target, and scored on the last third, which no
choice has seen, against the simulator's truth.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any

import msgspec
from msgspec import Struct

from fleethpa.lab.simulator.model import LoadCurve, PodProfile, SimulatedWorkload
from fleethpa.tuning.specsearch import Objective, RefusedError, Tuning, tune
from streams.analysis.candidate import candidate
from streams.state.inputs import EvaluationInputs
from tests.experiments.policies import TRACES, played_load, trace_files
from tests.kit.simulated_hpa import HPA, PROFILE, REQUEST_MILLI, START_MS, live, spec

DEFAULTS = (50, 60, 70, 80)
DEPLOYED = 50
_WARM_UP_S = 1_800
SEEN = 2 / 3
"""Share of a recording that the tuner sees."""
EVEN_SHARE = 0.001
"""Differences in overload up to this share of the time are none: three evaluations in half a day."""


class Workload(Struct, frozen=True):
    """A load, its pods and what it is called. `step_s`: how often the truth is looked at."""

    name: str
    group: str
    load: LoadCurve
    seconds: int
    profile: PodProfile
    step_s: int


class Lived(Struct, frozen=True):
    """What really was. `overload`: mean of what was missing beyond 100% of the request."""

    replica_hours: float
    overload: float
    overload_share: float


class Trial(Struct, frozen=True):
    """One workload on the part that nobody saw: the deployed spec, the proposal and the default targets.

    `change`: the proposal, or why there is none. `predicted`, `real`: the proposal in the second half of what tune saw;
    None without one.
    """

    workload: str
    group: str
    change: str
    changed: bool
    deployed: Lived
    proposed: Lived
    defaults: dict[int, Lived]
    predicted: Lived | None = None
    real: Lived | None = None

    @property
    def saved(self) -> float:
        """Share of the deployed spec's replica-hours."""
        return 1 - self.proposed.replica_hours / self.deployed.replica_hours


def workloads(generated: int, traces: Sequence[Path], first: int = 0) -> Iterator[Workload]:
    """Traces, then generated loads from a number on: the same numbers give the same workloads."""
    for path in traces:
        load = played_load(path)
        yield Workload(path.stem, "traces", load, int(load.length_s), PROFILE, 5)
    for number in range(first, first + generated):
        yield generate(number)


def generate(number: int) -> Workload:
    """A week in a day: seven days of 206 minutes, the last two quieter, with noise; every second one with spikes.

    Spikes come at once, at any time, and raise the load by a fifth to twice: no autoscaler sees them coming.
    """
    dice = random.Random(number)
    start_up_s = round(5 * 60 ** dice.random())
    peak_pods = 2 * 50 ** dice.random()
    noise, depth = dice.uniform(0.0, 0.15), dice.uniform(0.2, 0.95)
    weekend = dice.uniform(0.4, 1.0)
    spikes = dice.randrange(1, 12) if number % 2 else 0
    hits = [(dice.uniform(0, 86_400), dice.uniform(60, 900), dice.uniform(1.2, 2.0)) for _ in range(spikes)]
    unit = REQUEST_MILLI / PROFILE.cpu_milli_per_unit
    day_s = 86_400 / 7
    points = []
    for second in range(0, 86_400, 30):
        shape = 1 - depth * (0.5 + 0.5 * math.cos(2 * math.pi * second / day_s))
        quiet = weekend if second // day_s >= 5 else 1.0
        spike = max([1.0, *(height for at, length, height in hits if at <= second < at + length)])
        points.append((float(second), peak_pods * unit * shape * quiet * spike * (1 + noise * dice.uniform(-1, 1))))
    profile = PodProfile(schedule_ms=1_000, ready_ms=start_up_s * 1_000, stop_ms=5_000, noise=dice.uniform(0, 0.05))
    name = f"generated {number}: {peak_pods:.0f} pods, {start_up_s} s, noise {noise:.0%}, {spikes} spikes"
    group = "generated, with spikes" if spikes else "generated, no spikes"
    return Workload(name, group, Steps(tuple(points)), 86_400, profile, 15)


class Steps(Struct, frozen=True):
    """Evenly spaced values, each holding until the next: `PointsLoad` looks for its place from the begin."""

    points: tuple[tuple[float, float], ...]

    def at(self, elapsed_s: float) -> float:
        """Units per second."""
        step_s = self.points[1][0]
        return self.points[min(len(self.points) - 1, int(elapsed_s // step_s))][1]


class _Sums:
    """Sums over the looks of one part."""

    def __init__(self) -> None:
        self.looks = self.ran = self.over = 0
        self.missing = 0.0

    def add(self, seen: SimulatedWorkload) -> None:
        asked = seen.total_load() * seen.profile.cpu_milli_per_unit / REQUEST_MILLI
        ready = len(seen.ready_pods())
        self.looks += 1
        self.ran += len(seen.alive())
        self.over += asked > ready
        self.missing += max(0.0, asked - ready) / asked if asked else 0.0

    def lived(self, step_s: int) -> Lived:
        looks = self.looks or 1
        return Lived(self.ran * step_s / 3_600, self.missing / looks, self.over / looks)


class Later(Struct, frozen=True):
    """A load from some seconds on."""

    load: LoadCurve
    from_s: int

    def at(self, elapsed_s: float) -> float:
        """Units per second."""
        return self.load.at(elapsed_s + self.from_s)


def lived(
    workload: Workload, tried: dict[str, Any], from_s: float = 0, *, whole: bool = False
) -> tuple[list[EvaluationInputs], Lived, Lived]:
    """Let a spec live through the load, from some second on; give what its evaluations saw before the part that nobody
    saw, what was in the second half of what tune sees, and what was on the part that nobody saw.

    It begins with the replicas that the target asks for, half an hour before `from_s`. `whole`: with what evaluations
    saw on that part, too.
    """
    checked, unseen = _Sums(), _Sums()
    seen_s = workload.seconds * SEEN
    begin_s = max(0, int(from_s) // 60 * 60 - _WARM_UP_S)
    checked_ms, unseen_ms = START_MS + (seen_s / 2 - begin_s) * 1_000, START_MS + (seen_s - begin_s) * 1_000

    def look(seen: SimulatedWorkload) -> None:
        if seen.now_ms >= unseen_ms:
            unseen.add(seen)
        elif seen.now_ms >= checked_ms:
            checked.add(seen)

    load, step_s = Later(workload.load, begin_s), workload.step_s
    target = tried["metrics"][0]["resource"]["target"]["averageUtilization"] / 100
    asked = load.at(0) * workload.profile.cpu_milli_per_unit / REQUEST_MILLI / target
    replicas = max(tried["minReplicas"], math.ceil(asked))
    inputs = live(
        load,
        candidate(HPA, tried),
        workload.seconds - begin_s,
        look,
        workload.profile,
        replicas=replicas,
        step_s=step_s,
    )
    return [each for each in inputs if whole or each.now_ms < unseen_ms], checked.lived(step_s), unseen.lived(step_s)


def trial(workload: Workload, objective: Objective = "balanced") -> Trial:
    """Record, tune, live again."""
    seen_s = workload.seconds * SEEN
    inputs, _, was = lived(workload, spec(DEPLOYED, 2, 400))
    others = {each: lived(workload, spec(each, 2, 400), seen_s)[2] for each in DEFAULTS if each != DEPLOYED}
    made = Trial(workload.name, workload.group, "", False, was, was, {DEPLOYED: was} | others)
    try:
        found = tune(HPA, inputs, objective)
    except RefusedError as error:
        return msgspec.structs.replace(made, change=f"refused: {error}")
    if found.proposed is None:
        return msgspec.structs.replace(made, change=f"no change: {found.why}")
    _, real, proposed = lived(workload, found.proposed.spec, seen_s / 2)
    expected = found.proposed.halves[1]
    return msgspec.structs.replace(
        made,
        change=_change(found),
        changed=True,
        proposed=proposed,
        predicted=Lived(
            expected.replica_hours,
            expected.too_few_replica_hours / expected.ideal_replica_hours,
            expected.too_few_share,
        ),
        real=real,
    )


def _change(found: Tuning) -> str:
    assert found.proposed is not None
    values = found.proposed.values
    return f"target {values.target:.0f}, min {values.min_replicas}, window {values.window_s} s"


def is_worse(own: Lived, was: Lived) -> bool:
    """More overload, or more cost."""
    return own.overload_share > was.overload_share + EVEN_SHARE or own.replica_hours > was.replica_hours * 1.001


# --- the tables -------------------------------------------------------------------------------------------------------


def row(made: Trial) -> str:
    """One line of the table."""
    sides = " | ".join(
        f"{each.replica_hours:.1f} / {each.overload_share:.2%}"
        for each in (
            made.deployed,
            made.proposed,
            *(made.defaults[target] for target in DEFAULTS if target != DEPLOYED),
        )
    )
    return f"| {made.workload} | {made.change} | {made.saved:+.1%} | {sides} |"


def best_default(made: Sequence[Trial]) -> int:
    """The single target that costs the least of those with no more overload, over all workloads, than the proposals."""
    own = mean(each.proposed.overload_share for each in made)
    fair = [target for target in DEFAULTS if mean(each.defaults[target].overload_share for each in made) <= own]
    return max(fair, default=DEPLOYED)


def summary(title: str, made: Sequence[Trial]) -> list[str]:
    """Wins, losses, and the comparison with single default targets."""
    worse = [each for each in made if is_worse(each.proposed, each.deployed)]
    saved = [each.saved for each in made]
    wins = sum(each.saved > EVEN_SHARE and each not in worse for each in made)
    lines = [
        f"{title}: {len(made)} workloads, {sum(each.changed for each in made)} proposals, {wins} wins, "
        f"{len(worse)} losses. Replica-hours saved: median {median(saved):.1%}, least {min(saved):.1%}, "
        f"most {max(saved):.1%}. Time in overload, mean: {mean(each.proposed.overload_share for each in made):.3%}, "
        f"deployed {mean(each.deployed.overload_share for each in made):.3%}."
    ]
    for each in sorted(worse, key=lambda each: each.deployed.overload_share - each.proposed.overload_share):
        more = each.proposed.overload_share - each.deployed.overload_share
        lines.append(f"- worse: {each.workload}: {more:+.2%} of the time in overload, {-each.saved:+.1%} replica-hours")
    best = best_default(made)
    for target in DEFAULTS:
        fewer = [1 - each.proposed.replica_hours / each.defaults[target].replica_hours for each in made]
        overload = mean(each.defaults[target].overload_share for each in made)
        no_more = sum(
            each.proposed.overload_share <= each.defaults[target].overload_share + EVEN_SHARE for each in made
        )
        mark = ", the best single target with no more overload than the proposals" if target == best else ""
        lines.append(
            f"- against cpu {target}% ({overload:.3%} of the time in overload{mark}): {median(fewer):+.1%} fewer "
            f"replica-hours in the median; no more overload in {no_more} of {len(made)}"
        )
    return lines


def dominated(made: Sequence[Trial]) -> list[str]:
    """Workloads for which a default target was cheaper than the proposal with no more overload, on the unseen part."""
    lines = []
    for each in made:
        better = [
            target
            for target, own in each.defaults.items()
            if own.replica_hours < each.proposed.replica_hours * 0.98
            and own.overload_share <= each.proposed.overload_share
        ]
        if better:
            fewer = 1 - min(each.defaults[target].replica_hours for target in better) / each.proposed.replica_hours
            what = "proposal" if each.changed else "no proposal"
            lines.append(f"- {each.workload} ({what}): cpu {', '.join(map(str, better))}%, up to {fewer:.0%} cheaper")
    head = f"A default target was cheaper with no more overload on the unseen part for {len(lines)} of {len(made)}"
    return [head + (":" if lines else "."), *lines]


def errors(made: Sequence[Trial]) -> list[str]:
    """What tune predicted for its proposals in the second half of what it saw, against what the simulator did."""
    found = [(each.workload, each.predicted, each.real) for each in made]
    rows = [(name, own, real) for name, own, real in found if own is not None and real is not None]
    if not rows:
        return []
    hours = [(own.replica_hours / real.replica_hours - 1, name) for name, own, real in rows]
    share = [(own.overload_share - real.overload_share, name) for name, own, real in rows]
    size: Callable[[tuple[float, str]], float] = lambda each: abs(each[0])  # noqa: E731
    hours_worst, share_worst = max(hours, key=size), max(share, key=size)
    return [
        f"{len(rows)} proposals, predicted against real, in the second half of what tune saw. Replica-hours: mean "
        f"error {mean(map(size, hours)):.1%}, worst {hours_worst[0]:+.1%} ({hours_worst[1]}). Time in "
        f"overload: mean error {mean(map(size, share)):.2%} of the time, worst {share_worst[0]:+.2%} "
        f"({share_worst[1]})."
    ]


def main(arguments: list[str]) -> None:
    """Print a line per workload, then wins, losses, the worst loss, and the prediction error."""
    parser = argparse.ArgumentParser(prog="python -m tests.experiments.tuned")
    parser.add_argument("generated", nargs="?", type=int, default=40, help="how many generated workloads")
    parser.add_argument("--first", type=int, default=0, help="the number of the first generated workload")
    parser.add_argument("--traces", type=Path, default=TRACES, help="a folder of other traces")
    parser.add_argument("--results", type=Path, help="keep results here, one a line, and continue from what is there")
    parser.add_argument("--objective", choices=["balanced", "cost", "safety"], default="balanced")
    parser.add_argument("--part", default="0/1", metavar="K/N", help="only every N-th workload, from K on")
    given = parser.parse_args(arguments)
    begin, every = map(int, given.part.split("/"))
    known: dict[str, Trial] = {}
    if given.results and given.results.exists():
        lines = given.results.read_bytes().splitlines()
        known = {each.workload: each for each in (msgspec.json.decode(line, type=Trial) for line in lines)}
    files = trace_files(given.traces)
    heads = " | ".join(f"cpu {target}%" for target in DEFAULTS if target != DEPLOYED)
    sys.stdout.write(
        f"| workload | proposal | saved | deployed: replica-hours / time in overload | proposed | {heads} |\n"
    )
    sys.stdout.write(f"|---|---|{'--:|' * (len(DEFAULTS) + 2)}\n")
    made: list[Trial] = []
    for number, workload in enumerate(workloads(given.generated, files, given.first)):
        if workload.name not in known and number % every != begin:
            continue
        if workload.name not in known:
            known[workload.name] = trial(workload, given.objective)
            if given.results:
                with given.results.open("ab") as file:
                    file.write(msgspec.json.encode(known[workload.name]) + b"\n")
        made.append(known[workload.name])
        sys.stdout.write(row(made[-1]) + "\n")
        sys.stdout.flush()
    groups = list(dict.fromkeys(each.group for each in made))
    for title, part in (("all", made), *((group, [each for each in made if each.group == group]) for group in groups)):
        sys.stdout.write("\n" + "\n".join(summary(title, part)) + "\n")
    sys.stdout.write("\n" + "\n".join(dominated(made)) + "\n")
    sys.stdout.write("\n" + "\n".join(errors(made)) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
