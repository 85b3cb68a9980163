"""Specs that people deploy by habit over recorded loads, lived in the simulator.

Run: python -m tests.experiments.policies [--traces DIR]

The table of docs/backtest.md. Every trace is scaled so that its peak needs 8 pods that use all that they request, and
those that last for weeks are played so fast that they last a day. Demand is counted at 100% of the request for every
spec, so that specs with different targets are measured against the same load.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct

from fleethpa.lab.simulator.model import SimulatedWorkload
from streams.analysis.candidate import candidate
from streams.analysis.ideal import ideal
from streams.analysis.measures import Moment, Scores, scores
from tests.kit.loads import TraceLoad, read_trace
from tests.kit.simulated_hpa import HPA, PROFILE, REQUEST_MILLI, START_MS, live, spec

TRACES = Path(__file__).parents[1] / "data" / "traces"
PEAK_PODS = 8
DAY_S = 86_400
STEP_S = 5
START_UP_MS = PROFILE.schedule_ms + PROFILE.ready_ms

POLICIES: dict[str, dict[str, Any]] = {
    **{f"cpu {target}%": spec(target, 1, 100) for target in (20, 50, 70, 80)},
    "cpu 50%, maxReplicas 10": spec(50, 1, 10),
}
"""Upstream's default behavior everywhere. KEDA's defaults for an HPA (1 to 100 replicas, behavior left to upstream)
name no target: with a target they are the rows with these bounds.
"""


class Played(Struct, frozen=True):
    """One spec on one trace."""

    trace: str
    policy: str
    scores: Scores


def trace_files(folder: Path = TRACES) -> list[Path]:
    """The traces of a folder, in the order of their names."""
    return sorted(path for path in folder.iterdir() if path.suffix in (".txt", ".csv"))


def played_load(path: Path, peak_pods: float = PEAK_PODS) -> TraceLoad:
    """A trace's load, its peak worth so many pods at their request, at most a day long."""
    trace = read_trace(path)
    scale = peak_pods * REQUEST_MILLI / PROFILE.cpu_milli_per_unit / max(trace.values)
    return TraceLoad(trace, scale, max(1.0, trace.length_s / DAY_S))


def play(load: TraceLoad, tried: dict[str, Any], seconds: int) -> Scores:
    """Let a spec live through a load and score it against what really was."""
    moments: list[Moment] = []
    most = tried["maxReplicas"]

    def look(workload: SimulatedWorkload) -> None:
        if workload.now_ms < START_MS + START_UP_MS:
            return  # the first pods, which the load finds starting, are no spec's fault
        need = workload.total_load() * PROFILE.cpu_milli_per_unit / REQUEST_MILLI
        moments.append(
            Moment(workload.now_ms, len(workload.alive()), len(workload.ready_pods()), need, workload.replicas >= most)
        )

    live(load, candidate(HPA, tried), seconds, look, step_s=STEP_S)
    return scores(moments, STEP_S * 1_000, ideal(each.need for each in moments))


def all_played(files: list[Path]) -> Iterator[Played]:
    """Every spec on every trace."""
    for path in files:
        load = played_load(path)
        for name, tried in POLICIES.items():
            yield Played(path.stem, name, play(load, tried, int(load.length_s)))


def row(found: Played) -> str:
    """One line of the table."""
    s = found.scores
    ratio = f"{s.ideal_ratio:.2f}" if s.ideal_ratio is not None else "-"
    return (
        f"| {found.trace} | {found.policy} | {s.replica_hours:.1f} | {ratio} | {s.under_accuracy:.2%} | "
        f"{s.over_accuracy:.0%} | {s.under_share:.2%} | {s.over_share:.1%} | {s.instability:.2%} | "
        f"{s.adaptations_per_hour:.1f} | {s.slack:.0%} |"
    )


def main() -> None:
    """Print the table, a line as soon as it is known."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.experiments.policies", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--traces", type=Path, default=TRACES, help="a folder of traces (default: the project's)")
    asked = parser.parse_args()
    head = "trace | spec | replica-hours | / ideal | θU | θO | τU | τO | instability | adaptations/h | slack"
    sys.stdout.write(f"| {head} |\n|---|---|{'--:|' * 9}\n")
    for found in all_played(trace_files(asked.traces)):
        sys.stdout.write(row(found) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
