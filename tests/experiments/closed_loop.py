"""How near the closed loop comes: what it predicts for a change of spec against what the simulator then really does.

`python -m tests.experiments.closed_loop` prints the table of docs/backtest.md. The recording is the simulator's under
the deployed spec; the truth is a second run of the same load under the changed spec, looked at every second.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fleethpa.lab.simulator.model import (
    LoadCurve,
    PodProfile,
    RampLoad,
    SimulatedWorkload,
    SineLoad,
    SpikeLoad,
    StepLoad,
)
from streams.analysis.backtest import backtest
from streams.analysis.candidate import Candidate, candidate
from streams.history.evaluations import Evaluated
from streams.state.inputs import EvaluationInputs
from tests.kit.loads import PointsLoad
from tests.kit.simulated_hpa import HPA, PROFILE, REQUEST_MILLI, live, spec

MINUTES = 90
TOLERANCE = 0.1

DAY = PointsLoad(
    tuple(
        (minute * 60.0, value)
        for minute, value in (
            (0, 150),
            (10, 180),
            (20, 420),
            (28, 380),
            (35, 640),
            (45, 600),
            (60, 250),
            (75, 310),
            (90, 140),
        )
    )
)
SHAPES: dict[str, LoadCurve] = {
    "step": StepLoad(150, 520, 900),
    "ramp": RampLoad(100, 800, 2_700, 600),
    "sine": SineLoad(400, 250, 1_800),
    "spike": SpikeLoad(150, 600, 600, 240, 1_200),
    "day": DAY,
}


DEPLOYED = spec()
CHANGES: dict[str, dict[str, Any]] = {
    "target 60% -> 80%": spec(target=80),
    "target 60% -> 45%": spec(target=45),
    "maxReplicas 20 -> 8": spec(most=8),
    "minReplicas 2 -> 8": spec(least=8),
    "down window 300s -> 60s": spec(down={"stabilizationWindowSeconds": 60}),
    "scale-up 1 pod per 60s": spec(up={"policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}]}),
}


HARD: tuple[tuple[str, PodProfile, dict[str, Any], dict[str, dict[str, Any]]], ...] = (
    (
        "idle 100m of 300m",
        PodProfile(schedule_ms=2_000, ready_ms=28_000, noise=0.03, idle_cpu_milli=100),
        DEPLOYED,
        {"target 60% -> 80%": spec(target=80), "minReplicas 2 -> 8": spec(least=8)},
    ),
    (
        "saturated at 400m",
        PodProfile(schedule_ms=2_000, ready_ms=28_000, noise=0.03, cpu_limit_milli=400),
        spec(most=5),
        {"maxReplicas 5 -> 20": DEPLOYED, "maxReplicas 5 -> 8": spec(most=8)},
    ),
)
"""Pods, deployed spec and changes under which the model is known to err."""


@dataclass
class Truth:
    """What the simulator did, looked at every second."""

    replica_hours: float = 0.0
    above_minutes: float = 0.0


@dataclass
class Score:
    """One change on one load."""

    shape: str
    change: str
    recorded: Truth
    real: Truth
    predicted_hours: float
    predicted_minutes: float

    @property
    def hours_error(self) -> float:
        """Share of the real replica-hours."""
        return self.predicted_hours / self.real.replica_hours - 1

    @property
    def minutes_error(self) -> float:
        return self.predicted_minutes - self.real.above_minutes


def run(load: LoadCurve, tried: Candidate, profile: PodProfile = PROFILE) -> tuple[list[EvaluationInputs], Truth]:
    """Let the simulator live under a spec; give what its evaluations saw and what really was."""
    target_milli = REQUEST_MILLI * tried.spec["metrics"][0]["resource"]["target"]["averageUtilization"] / 100
    truth = Truth()
    recorded = live(load, tried, MINUTES * 60, lambda workload: _look(workload, target_milli, truth), profile)
    return recorded, truth


def _look(workload: SimulatedWorkload, target_milli: float, truth: Truth) -> None:
    truth.replica_hours += len(workload.alive()) / 3_600
    ready = len(workload.ready_pods())
    profile = workload.profile
    usage = profile.idle_cpu_milli + profile.cpu_milli_per_unit * workload.total_load() / max(1, ready)
    truth.above_minutes += (min(usage, profile.cpu_limit_milli) > target_milli * (1 + TOLERANCE)) / 60


def scores() -> Iterator[Score]:
    """Every change on every load shape."""
    for shape, load in SHAPES.items():
        recorded, was = run(load, candidate(HPA, DEPLOYED))
        events = [Evaluated(inputs, b"") for inputs in recorded]
        for name, changed in CHANGES.items():
            tried = candidate(HPA, changed)
            made = backtest(events, tried, "closed").candidate
            yield Score(shape, name, was, run(load, tried)[1], made.replica_hours, made.above_target_minutes)


def hard_scores() -> Iterator[Score]:
    """What the model says it cannot know: work without load, and load that saturated pods did not show."""
    for title, profile, deployed, changes in HARD:
        for shape in ("step", "day"):
            recorded, was = run(SHAPES[shape], candidate(HPA, deployed), profile)
            events = [Evaluated(inputs, b"") for inputs in recorded]
            for name, changed in changes.items():
                tried = candidate(HPA, changed)
                made = backtest(events, tried, "closed").candidate
                real = run(SHAPES[shape], tried, profile)[1]
                yield Score(f"{shape}, {title}", name, was, real, made.replica_hours, made.above_target_minutes)


def table(found: list[Score]) -> list[str]:
    """The table of the documentation: recorded, predicted and real, the worst cases last."""
    lines = [
        "| load | change | replica-hours recorded | predicted | real | error "
        "| minutes above target recorded | predicted | real | error |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for s in found:
        lines.append(
            f"| {s.shape} | {s.change} | {s.recorded.replica_hours:.2f} | {s.predicted_hours:.2f} | "
            f"{s.real.replica_hours:.2f} | {s.hours_error:+.1%} | {s.recorded.above_minutes:.1f} | "
            f"{s.predicted_minutes:.1f} | {s.real.above_minutes:.1f} | {s.minutes_error:+.1f} |"
        )
    hours = max(found, key=lambda s: abs(s.hours_error))
    minutes = max(found, key=lambda s: abs(s.minutes_error))
    mean_hours = sum(abs(s.hours_error) for s in found) / len(found)
    mean_minutes = sum(abs(s.minutes_error) for s in found) / len(found)
    lines += [
        "",
        f"{len(found)} changes on {len({s.shape for s in found})} load shapes of {MINUTES} minutes. "
        f"Replica-hours: mean error {mean_hours:.1%}, worst {hours.hours_error:+.1%} ({hours.shape}, {hours.change}). "
        f"Minutes above target: mean error {mean_minutes:.1f}, worst {minutes.minutes_error:+.1f} "
        f"({minutes.shape}, {minutes.change}).",
    ]
    return lines


if __name__ == "__main__":
    sys.stdout.write("\n".join([*table(list(scores())), "", *table(list(hard_scores()))]) + "\n")
