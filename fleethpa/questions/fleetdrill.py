"""The fleet drill, `what-if --cluster-away CLUSTER`: who has no room when a cluster is away, at the load of a recorded
time, times a factor.
"""

from decimal import Decimal, InvalidOperation
from typing import Final, NamedTuple

import click

from fleethpa.fleet.decisions import AskedPeriod
from fleethpa.fleet.finding import no_such_cluster, not_evaluated
from fleethpa.fleet.shards import by_partitions
from fleethpa.fleet.state import read_state
from fleethpa.frame.errors import usage
from fleethpa.frame.options import gathered, together
from fleethpa.frame.session import TRAVEL, Session
from fleethpa.frame.sources import by_partition
from fleethpa.questions.drillloads import DrillTask, read_loads
from fleethpa.questions.drillreport import report
from fleethpa.questions.drillresults import Drill, Drilled
from fleethpa.show.text import rfc3339
from schemas.partitioning import partition_for
from streams.archive.layout import DECISIONS
from streams.history.parallel import DecisionsTask, Faults

_MOST_FACTOR: Final = 100


def parse_factor(text: str) -> float:
    """Read `--factor`. Raises CommandError: it is no number above 0 and up to 100 (exit 2)."""
    try:
        factor = Decimal(text)
    except InvalidOperation:
        factor = Decimal("NaN")
    if not factor.is_finite() or not 0 < factor <= _MOST_FACTOR:
        cause_ = f"It is a number above 0 and up to {_MOST_FACTOR}; 1.3 is a load that is 30% higher than recorded."
        raise usage(f"--factor {text} is not a factor", cause=cause_)
    return float(factor)


class AskedDrill(NamedTuple):
    """`--since` and `--factor` as they are typed; None where one is not."""

    since: str | None
    factor: str | None

    def refuse(self, session: Session) -> None:
        """See that none of them is given. Raises CommandError: one is (exit 2)."""
        given = {"--since": self.since, "--factor": self.factor, "--at": session.at_ms}
        for option, value in given.items():
            if value is not None:
                raise usage(
                    f"{option} is for the drill of the whole fleet",
                    cause="What is named is evaluated as it was decided; NAME@TIME takes an older decision.",
                    next_step="fleethpa what-if --cluster-away CLUSTER, without a name",
                )


drill_options: Final = together(
    gathered(
        "drill",
        AskedDrill,
        click.option(
            "--factor", metavar="NUMBER", help="Of a drill: times the recorded load, such as 1.3 [default: 1]."
        ),
        click.option(
            "--since", metavar="1h|TIME", help="Of a drill: the load from this time on [default: an hour before --at]."
        ),
    ),
    click.option("--at", TRAVEL, metavar="TIME|2h", help="Of a drill: the load until this time [default: now]."),
)
"""`--factor` and `--since`, of which the function gets one argument `drill`, and `--at`, which its session takes."""


def fleet_drill(session: Session, away: str, asked: AskedDrill, output: str) -> int:
    """Print who has no room without a cluster; return the exit code: 0: all have, 1: somebody has not, 5: nobody is
    known to lack it, but the demand of some is not known.

    Raises CommandError: no such cluster, or nothing was evaluated in the time (exit 4); a value is wrong (exit 2).
    """
    factor = 1.0 if asked.factor is None else parse_factor(asked.factor)
    window = AskedPeriod(asked.since or "1h", None).window(session.now_ms())
    drilled, faults = session.run(_drilled(session, away, factor, window))
    session.publish(report(drilled, away, factor, window), output)
    return session.failed(faults) or drilled.code


async def _drilled(session: Session, away: str, factor: float, window: tuple[int, int]) -> tuple[Drilled, Faults]:
    async with session.past() as past:
        state = await read_state(past)
        if away not in state.clusters:
            raise no_such_cluster(away, state)
        count, hpas = await past.partitions(), by_partitions(list(state.hpas.values()))
        numbers = [partition_for(min(each).namespace_key, count) for each in hpas]
        tasks = [DrillTask(DecisionsTask(past, at, *window), each) for at, each in zip(numbers, hpas, strict=True)]
        parts = await by_partition(session, past, read_loads, tasks, DECISIONS)
    loads = {hpa: series for part, _ in parts for hpa, series in part.items()}
    if not loads:
        raise not_evaluated(f"no HPA was evaluated from {rfc3339(window[0])} to {rfc3339(window[1] - 1)}")
    faults = Faults.of_parts(parts)
    return Drill(state, away, factor, loads, faults).run(window), faults
