"""The inputs that a probe is told give the decisions that the log gives, whatever happens in it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from streams.analysis.answer import answer
from streams.history.evaluationinputs import Evaluated, evaluation_of, events
from streams.state.partition import Partition
from streams.state.probe import EvaluationInputs, WriteEnded
from tests.generated_log import Fleet, partition_log
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
    told: list[EvaluationInputs | WriteEnded] = []
    for record in records:
        assert plain.apply(*record) == probed.apply(*record, probe=told.append)
    assert plain.checkpoint() == probed.checkpoint()
    assert any(isinstance(each, WriteEnded) and each.applied for each in told)


def test_an_evaluation_is_found_by_id() -> None:
    records = partition_log(Fleet(hpas=3, namespaces=1, minutes=3))
    all_ = [e for e in events(Partition.empty(0), records, lambda _: True) if isinstance(e, Evaluated)]
    wanted = all_[len(all_) // 2]
    by_id = evaluation_of(Partition.empty(0), records, wanted.inputs.decision)
    assert by_id is not None
    assert by_id.value == wanted.value
    assert evaluation_of(Partition.empty(0), records, "0-999999-x") is None
