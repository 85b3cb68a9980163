"""The present of a running fleet is folded as far as a decider has come, by what it has recorded, and no further."""

from __future__ import annotations

from fleethpa.fleet.state import read_state
from streams.archive.layout import DECISIONS
from streams.history.past import AHEAD_MS
from tests.kit.cli import Fleet, FleetPast
from tests.kit.memorypast import MemoryPast

PERIOD_MS, AWAY_PERIODS, TICKS = 15_000, 8, 3


class Running(FleetPast):
    """A past to which processes write now."""

    def __init__(self, fleet: Fleet) -> None:
        super().__init__(fleet, live=True)
        self.present_ms = fleet.now_ms

    def now_ms(self) -> int:
        return self.present_ms


def _away(fleet: Fleet, *, ticks: int, recorded: bool) -> Running:
    """A decider ticks, stores its state and is away for two minutes, in which only ingest writes to the log.

    `ticks`: how often it has ticked since it came back. `recorded`: whether it has recorded what it then decided.
    """
    fleet.append()
    fleet.checkpoint()
    before = len(fleet.values)
    for _ in range(AWAY_PERIODS):
        fleet.now_ms += PERIOD_MS
        if fleet.values:
            fleet.observe(3, 300)
        fleet.append(by="ingest")
    for _ in range(ticks):
        fleet.append(after_ms=1_000)
    past = Running(fleet)
    if not recorded:
        past.made = {**past.made, (DECISIONS, 0): past.made[DECISIONS, 0][:before]}
    return past


def _with_hpa() -> Fleet:
    fleet = Fleet()
    fleet.settle()
    return fleet


async def test_what_a_decider_recorded_since_it_came_back_is_folded_before_its_next_checkpoint() -> None:
    fleet = _with_hpa()
    past = _away(fleet, ticks=TICKS, recorded=True)
    folded = await past.fold_to(0)
    assert (folded.behind, folded.partition.clock_ms) == (False, fleet.now_ms)
    state = await read_state(past)
    assert (state.hung, state.remarks) == ((), ())


async def test_what_it_has_not_decided_yet_is_not_shown_and_it_catches_up_and_does_not_hang() -> None:
    fleet = _with_hpa()
    past = _away(fleet, ticks=TICKS, recorded=False)
    folded = await past.fold_to(0)
    assert folded.behind
    assert folded.partition.clock_ms < fleet.now_ms - AHEAD_MS
    state = await read_state(past)
    assert state.hung == ()
    (remark,) = state.remarks
    assert remark.startswith("the decider is "), remark
    assert "behind the log: shown as of" in remark


async def test_one_that_does_not_tick_hangs() -> None:
    past = _away(_with_hpa(), ticks=0, recorded=False)
    assert [each.process for each in (await read_state(past)).hung] == ["decider"]


async def test_where_there_is_nothing_to_decide_its_ticks_show_how_far_it_has_come() -> None:
    fleet = Fleet()
    past: MemoryPast = _away(fleet, ticks=TICKS, recorded=True)
    folded = await past.fold_to(0)
    assert (folded.behind, folded.partition.clock_ms) == (False, fleet.now_ms)
