"""The inputs that a probe receives give the decisions that the log gives, whatever happens in it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import structs

from streams.analysis.answer import answer
from streams.archive.layout import LOG
from streams.archive.segments import archived_record
from streams.history.evaluations import Evaluated, evaluation_of, events
from streams.history.past import LogGoneError
from streams.history.recorded import Recorded, expanded
from streams.state.inputs import EvaluationInputs, WriteEnded
from streams.state.partition import Partition
from tests.generated_log import Fleet, partition_log
from tests.memorypast import MemoryPast
from tests.partition_kit import disturbed_log


def _facts(value: bytes) -> dict[str, Any]:
    return msgspec.json.decode(value, type=dict[str, Any])


@pytest.mark.parametrize("seed", range(6))
def test_the_inputs_give_the_recorded_numbers_in_a_log_where_everything_happens(seed: int) -> None:
    records = disturbed_log(seed, 250).records
    seen = 0
    for each in events(Partition.empty(0), records, lambda _: True):
        if isinstance(each, Evaluated):
            seen += 1
            _same(each)
    assert seen > 20


def _same(each: Evaluated) -> None:
    recorded, made = _facts(each.value), answer(each.inputs)
    if "sameAs" in recorded:
        assert recorded.get("rawDesiredReplicas") == made.evaluation.proposal
        return
    assert recorded.get("finalDesiredReplicas", 0) == made.final
    assert recorded.get("rawDesiredReplicas") == made.evaluation.proposal
    assert recorded.get("constraintsApplied", []) == made.constraints


def test_a_probe_changes_no_byte() -> None:
    records = disturbed_log(3, 200).records
    plain, probed = Partition.empty(0), Partition.empty(0)
    reported: list[EvaluationInputs | WriteEnded] = []
    for record in records:
        assert plain.apply(*record) == probed.apply(*record, probe=reported.append)
    assert plain.checkpoint() == probed.checkpoint()
    assert any(isinstance(each, WriteEnded) and each.applied for each in reported)


async def test_an_evaluation_is_found_by_its_decision() -> None:
    records = partition_log(Fleet(hpas=3, namespaces=1, minutes=3))
    past = MemoryPast({(LOG, 0): [archived_record(at, time_ms, b"", (), value) for at, time_ms, value in records]})
    all_ = [e for e in events(Partition.empty(0), records, lambda _: True) if isinstance(e, Evaluated)]
    values = [e.value for e in all_]
    recorded = next(each for each in expanded(0, enumerate(values))[1][len(values) // 2 :] if not each.short)
    found = await evaluation_of(past, recorded)
    assert (found.inputs.decision, found.value) == (recorded.decision.id, recorded.value)
    value = recorded.value.replace(b'"currentReplicas":', b'"current":')
    altered = Recorded(recorded.head, 0, recorded.offset, value, recorded.full)
    with pytest.raises(LogGoneError, match="another decision"):
        await evaluation_of(past, altered)
    unknown = structs.replace(recorded.decision, id="0-999999-x")
    with pytest.raises(LogGoneError, match="no evaluation"):
        await evaluation_of(past, recorded.explained_by(unknown))
