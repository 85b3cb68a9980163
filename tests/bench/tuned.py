"""What `fleethpa tune` proposes, lived in the simulator: `python -m tests.bench.tuned [generated workloads]`.

Every workload is recorded under a deployed spec, tuned on that recording, and then lived once more under the proposal
and under each default target. Scored on the last third, which the choice did not see, against the simulator's truth.
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Iterator
from statistics import median
from typing import Any

from msgspec import Struct

from fleethpa.simulator.loadcurve import LoadCurve
from fleethpa.simulator.model import PodProfile, SimulatedWorkload
from streams.analysis.candidate import candidate
from streams.analysis.tuning import FIRST_PART, Objective, RefusedError, Tuning, tune
from streams.state.probe import EvaluationInputs
from tests.bench.policies import played_load, trace_files
from tests.bench.simulated_hpa import HPA, PROFILE, REQUEST_MILLI, START_MS, live, spec

DEFAULTS = (20, 50, 70, 80)
DEPLOYED = 50
STEP_S = 5


class Workload(Struct, frozen=True):
    """A load, its pods and what it is called."""

    name: str
    load: LoadCurve
    seconds: int
    profile: PodProfile


class Lived(Struct, frozen=True):
    """What really was on the unseen part. `overload`: mean of what was missing beyond 100 % of the request."""

    replica_hours: float
    overload: float
    overload_share: float


class Trial(Struct, frozen=True):
    """One workload: the deployed spec, the proposal and the default targets. `refused`: why there is no proposal."""

    workload: str
    deployed: Lived
    proposed: Lived
    defaults: dict[int, Lived]
    found: Tuning | None
    refused: str = ""


def workloads(generated: int) -> Iterator[Workload]:
    """The traces of the repository, then generated ones: the same numbers give the same workloads."""
    for path in trace_files():
        load = played_load(path)
        yield Workload(path.stem, load, int(load.length_s), PROFILE)
    for number in range(generated):
        yield generate(number)


def generate(number: int) -> Workload:
    """A week in a day: seven days of 206 minutes, the last two quieter, with noise and spikes."""
    dice = random.Random(number)
    start_up_s = round(5 * 60 ** dice.random())
    peak_pods = 2 * 50 ** dice.random()
    noise, depth = dice.uniform(0.0, 0.15), dice.uniform(0.2, 0.95)
    weekend, spikes = dice.uniform(0.4, 1.0), dice.randrange(0, 12)
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
    return Workload(name, Steps(tuple(points)), 86_400, profile)


class Steps(Struct, frozen=True):
    """Evenly spaced values, each holding until the next: `PointsLoad` looks for its place from the begin."""

    points: tuple[tuple[float, float], ...]

    def at(self, elapsed_s: float) -> float:
        """Units per second."""
        step_s = self.points[1][0]
        return self.points[min(len(self.points) - 1, int(elapsed_s // step_s))][1]


def lived(workload: Workload, tried: dict[str, Any]) -> tuple[list[EvaluationInputs], Lived]:
    """Let a spec live through the whole load; score the unseen part."""
    begin_ms = START_MS + workload.seconds * FIRST_PART * 1_000
    looks, ran, over, missing = 0, 0, 0, 0.0

    def look(seen: SimulatedWorkload) -> None:
        nonlocal looks, ran, over, missing
        if seen.now_ms < begin_ms:
            return
        asked = seen.total_load() * workload.profile.cpu_milli_per_unit / REQUEST_MILLI
        ready = len(seen.ready_pods())
        looks += 1
        ran += len(seen.alive())
        over += asked > ready
        missing += max(0.0, asked - ready) / asked if asked else 0.0

    inputs = live(workload.load, candidate(HPA, tried), workload.seconds, look, workload.profile, step_s=STEP_S)
    return inputs, Lived(ran * STEP_S / 3_600, missing / looks, over / looks)


def trial(workload: Workload, deployed: dict[str, Any], objective: Objective = "balanced") -> Trial:
    """Record, tune, live again."""
    inputs, was = lived(workload, deployed)
    defaults = {target: lived(workload, spec(target, 2, 400))[1] for target in DEFAULTS}
    try:
        found = tune(HPA, inputs, objective)
    except RefusedError as error:
        return Trial(workload.name, was, was, defaults, None, str(error))
    return Trial(workload.name, was, lived(workload, found.spec)[1] if found.changed else was, defaults, found)


def is_worse(own: Lived, was: Lived) -> bool:
    """More overload, beyond one look in a thousand, or more cost."""
    return own.overload_share > was.overload_share + 0.001 or own.replica_hours > was.replica_hours * 1.001


def row(made: Trial) -> str:
    """One line of the table."""
    own, was = made.proposed, made.deployed
    saved = 1 - own.replica_hours / was.replica_hours
    change = made.refused or (_change(made.found) if made.found is not None else "")
    defaults = " | ".join(
        f"{each.replica_hours:.0f} / {each.overload_share:.2%}" for _, each in sorted(made.defaults.items())
    )
    return (
        f"| {made.workload} | {change} | {was.replica_hours:.1f} / {was.overload_share:.2%} | "
        f"{own.replica_hours:.1f} / {own.overload_share:.2%} | {saved:+.1%} | {defaults} |"
    )


def _change(found: Tuning) -> str:
    if not found.changed:
        return f"no change: {found.why}"
    point = found.proposed_point
    policies = found.spec["behavior"]["scaleDown"]["policies"][0]
    return (
        f"target {point.target:.0f}, min {point.min_replicas}, window {point.window_seconds} s, "
        f"down {policies['value']} % per {policies['periodSeconds']} s"
    )


def main(arguments: list[str]) -> None:
    """Print a line per workload, then wins, losses and the worst loss."""
    made: list[Trial] = []
    heads = " | ".join(f"cpu {target} %" for target in DEFAULTS)
    sys.stdout.write(
        f"| workload | proposal | deployed h / overload | proposed | saved | {heads} |\n|---|---|{'--:|' * 7}\n"
    )
    for workload in workloads(int(arguments[0]) if arguments else 40):
        made.append(trial(workload, spec(DEPLOYED, 2, 400)))
        sys.stdout.write(row(made[-1]) + "\n")
        sys.stdout.flush()
    worse = [each for each in made if is_worse(each.proposed, each.deployed)]
    saved = [1 - each.proposed.replica_hours / each.deployed.replica_hours for each in made]
    changed = sum(each.found is not None and each.found.changed for each in made)
    sys.stdout.write(
        f"\n{len(made)} workloads: {changed} proposals, {len(worse)} worse than the deployed spec. "
        f"Replica-hours saved: median {median(saved):.1%}, least {min(saved):.1%}.\n"
    )
    for each in worse:
        sys.stdout.write(f"worse: {each.workload}\n")
    for target in DEFAULTS:
        fair = [
            1 - each.proposed.replica_hours / each.defaults[target].replica_hours
            for each in made
            if each.proposed.overload_share <= each.defaults[target].overload_share + 0.001
        ]
        middle = f"median {median(fair):.1%} fewer replica-hours" if fair else "-"
        sys.stdout.write(f"against cpu {target} %: not more overload in {len(fair)} of {len(made)}; there {middle}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
