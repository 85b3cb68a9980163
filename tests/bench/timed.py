"""What a seasonal forecast adds to a target, where pods start slowly: `python -m tests.bench.timed`.

Generated workloads of `tests.bench.tuned` without spikes and with a start-up of over 90 s, recorded under cpu 50 % and
tried in the closed loop; scored on the last third, with demand counted at 100 % of the request.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from streams.analysis.candidate import Forecast, Tried, candidate
from streams.analysis.closedloop import ClosedLoop, start_up
from streams.state.inputs import EvaluationInputs
from tests.bench.simulated_hpa import HPA, PERIOD_MS, spec
from tests.bench.tuned import generate, lived

WORKLOADS = (0, 2, 6, 20, 22, 24)
TARGETS = (70, 80, 90)
SEASON_MS = 86_400_000 // 7 // 60_000 * 60_000
"""A day of the generated week, in whole minutes."""


def scored(tried: Tried, inputs: Sequence[EvaluationInputs], start_up_ms: int, target: int) -> tuple[float, float]:
    """(replica-hours, share of the time in overload) of the last third."""
    moments = ClosedLoop(tried, start_up_ms).run(inputs)
    part = moments[len(moments) * 2 // 3 :]
    over = sum(each.need is not None and each.need * target / 100 > each.ready for each in part)
    return sum(each.replicas for each in part) * PERIOD_MS / 3_600_000, over / len(part)


def main(arguments: Sequence[str]) -> None:
    """Print a line per workload and target."""
    sys.stdout.write("| workload | target | replica-hours / time in overload | with a forecast |\n|---|--:|--:|--:|\n")
    for number in [int(each) for each in arguments] or WORKLOADS:
        workload = generate(number)
        inputs = lived(workload, spec(50, 2, 400), whole=True)[0]
        delay_ms = start_up(inputs).ms
        for target in TARGETS:
            base = candidate(HPA, spec(target, 2, 400))
            ahead = Forecast(base, inputs, SEASON_MS, delay_ms + 2 * PERIOD_MS)
            sides = [scored(tried, inputs, delay_ms, target) for tried in (base, ahead)]
            texts = " | ".join(f"{hours:.1f} / {share:.2%}" for hours, share in sides)
            sys.stdout.write(f"| {workload.name} | {target} % | {texts} |\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
