"""The state is folded from the log, so a reader can be ahead of the decider: what is not recorded yet is marked."""

from __future__ import annotations

import asyncio

import pytest

from fleethpa.fleet.decisionfinding import find_decision
from fleethpa.fleet.state import read_state
from fleethpa.frame.errors import CommandError
from fleethpa.lab.demo.stack import are_recorded
from schemas.keys import HpaId
from streams.archive.layout import DECISIONS, LOG, archived_record
from streams.partition import Partition
from tests.kit.generated_log import Fleet, partition_log
from tests.kit.memorypast import MemoryPast


def _past(decided_upto: int | None = None) -> MemoryPast:
    """A log, and the decisions of its records up to an offset (None: of all)."""
    records = partition_log(Fleet(hpas=3, namespaces=1, minutes=3))
    partition = Partition.empty(0)
    values = [
        decision.value
        for record in records
        if decided_upto is None or record[0] <= decided_upto
        for decision in partition.apply(*record)
    ]
    return MemoryPast(
        {
            (LOG, 0): [archived_record(at, time_ms, b"", (), value) for at, time_ms, value in records],
            (DECISIONS, 0): [archived_record(at, 0, b"", (), value) for at, value in enumerate(values)],
        }
    )


async def _evaluated(past: MemoryPast) -> set[HpaId]:
    return {view.id for view in (await read_state(past)).hpas.values() if view.last_decision}


def test_a_stack_is_ready_when_its_decisions_are_recorded() -> None:
    async def recorded(past: MemoryPast) -> bool:
        hpas = await _evaluated(past)
        assert hpas
        return await are_recorded(past, hpas)

    assert asyncio.run(recorded(_past()))
    assert not asyncio.run(recorded(_past(decided_upto=-1)))


def test_a_decision_that_is_not_recorded_yet_is_distinguished_from_one_that_does_not_exist() -> None:
    past = _past(decided_upto=-1)
    hpa = min(asyncio.run(_evaluated(past)))
    with pytest.raises(CommandError) as refused:
        asyncio.run(find_decision(past, str(hpa), None))
    assert str(refused.value) == f"{hpa} has no recorded decision"
    assert "the decider has not recorded a decision yet" in refused.value.cause
    assert refused.value.next_step == "fleethpa doctor"
