"""The inputs that a probe receives give the decisions that the log gives, whatever happens in it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from typing import Any

import msgspec
import pytest
from msgspec import structs

from schemas.answers import Answers
from schemas.keys import HpaId
from schemas.observed import AutoscalerSet, PodSet
from schemas.settings import ClusterSettings
from streams.analysis.answer import answer
from streams.analysis.counterfactual import counterfactuals
from streams.archive.layout import LOG, PlainRecord, archived_record
from streams.history import evaluations
from streams.history.evaluations import (
    Evaluated,
    FarStateError,
    HpaEvent,
    NativeTraces,
    evaluation_of,
    events,
    events_by_hpa,
    hpa_of,
)
from streams.history.past import LogGoneError
from streams.history.recorded import Recorded, in_sequence
from streams.hpa.observation import NO_PODS
from streams.partition import Partition
from streams.state.evaluate import evaluate
from streams.state.hpastate import Hpa
from streams.state.inputs import EvaluationInputs, WriteEnded
from tests.kit.generated_log import Fleet, partition_log
from tests.kit.memorypast import MemoryPast
from tests.kit.partition import LogBuilder, cpu_answer, disturbed_log, make_hpa, make_pod, scale
from tests.laws import one_of


def _facts(value: bytes) -> dict[str, Any]:
    return msgspec.json.decode(value, type=dict[str, Any])


@pytest.mark.parametrize("seed", one_of(2, range(6)))
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
    recorded = in_sequence(0, enumerate(values))[len(values) // 2]
    found = await evaluation_of(past, recorded)
    assert (found.inputs.decision, found.value) == (recorded.decision.id, recorded.value)
    value = recorded.value.replace(b'"currentReplicas":', b'"current":')
    altered = structs.replace(recorded, value=value)
    with pytest.raises(LogGoneError, match="another decision"):
        await evaluation_of(past, altered)
    unknown = structs.replace(recorded.decision, id="0-999999-x")
    with pytest.raises(LogGoneError, match="no evaluation"):
        await evaluation_of(past, structs.replace(recorded, decision=unknown))


def _evaluated(records: Sequence[PlainRecord]) -> tuple[MemoryPast, list[Recorded]]:
    past = MemoryPast({(LOG, 0): [archived_record(at, time_ms, b"", (), value) for at, time_ms, value in records]})
    partition = Partition.empty(0)
    values = [each.value for record in records for each in partition.apply(*record)]
    return past, [each for each in in_sequence(0, enumerate(values)) if each.decision.kind == "evaluation"]


@pytest.mark.parametrize("seed", one_of(3, range(3)))
async def test_where_the_stored_state_is_far_away_an_evaluation_is_the_same(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    past, recorded = _evaluated(disturbed_log(seed, 250).records)
    assert len(recorded) > 20
    for each in recorded[::5]:
        near = await evaluation_of(past, each)
        with monkeypatch.context() as changed:
            changed.setattr(evaluations, "FEW", 0)
            far = await evaluation_of(past, each)
        assert far.value == near.value == each.value
        assert answer(far.inputs) == answer(near.inputs)
        assert counterfactuals(far.inputs) == counterfactuals(near.inputs)


def _forty(**settings: Any) -> tuple[MemoryPast, list[Recorded]]:
    enforced = ClusterSettings(default_mode="enforce", native_controller="absent", **settings)
    return _evaluated(partition_log(Fleet(hpas=40, namespaces=4, minutes=3, settings=enforced)))


async def test_only_its_own_hpa_is_evaluated_where_the_stored_state_is_far_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    past, recorded = _forty()
    monkeypatch.setattr(evaluations, "FEW", 100)
    most = recorded[-1].decision.seq - 1  # of all HPAs, the decisions would be too many
    assert (await evaluation_of(past, recorded[-1], most)).value == recorded[-1].value
    with pytest.raises(FarStateError, match="log records would have to be folded"):
        await evaluation_of(past, recorded[-1], 100)


async def test_where_hpas_share_a_budget_all_of_them_are_evaluated(monkeypatch: pytest.MonkeyPatch) -> None:
    past, recorded = _forty(removal_budget="30%/10m")
    monkeypatch.setattr(evaluations, "FEW", 100)
    seq = recorded[-1].decision.seq
    with pytest.raises(FarStateError, match=f"{seq} decisions would have to be repeated"):
        await evaluation_of(past, recorded[-1], seq - 1)
    assert (await evaluation_of(past, recorded[-1], seq)).value == recorded[-1].value


def _comparable(event: HpaEvent) -> tuple[Any, ...]:
    """Return what has happened; the pods of an observation are compared as their rows."""
    if isinstance(event, WriteEnded):
        return (event,)
    seen = event.inputs.observation
    return type(event), structs.replace(event.inputs, observation=structs.replace(seen, pods=NO_PODS)), seen.pods.rows


async def _read(past: MemoryPast, wanted: set[HpaId]) -> dict[HpaId, list[tuple[Any, ...]]]:
    found: dict[HpaId, list[tuple[Any, ...]]] = {}
    async with aclosing(events_by_hpa(past, wanted, (0, 1 << 60), native=True)) as parts:
        async for part in parts:
            found |= {hpa: [_comparable(each) for each in happened] for hpa, happened in part.items()}
    return found


@pytest.mark.parametrize("seed", one_of(2, range(6)))
async def test_a_reading_of_some_hpas_evaluates_no_others_and_gives_the_same(seed: int) -> None:
    records = disturbed_log(seed, 250).records
    past, recorded = _evaluated(records)
    hpas = sorted({each.hpa for each in recorded})
    expected: dict[HpaId, list[tuple[Any, ...]]] = {hpa: [] for hpa in hpas}
    for event in events(Partition.empty(0), records, expected.__contains__, NativeTraces(expected.__contains__)):
        expected[hpa_of(event)].append(_comparable(event))
    for hpa in hpas:
        assert await _read(past, {hpa}) == {hpa: expected[hpa]}


async def test_others_of_its_namespace_are_evaluated_since_they_may_select_the_same_pods() -> None:
    log = LogBuilder()
    twin = structs.replace(scale("twin"), selector="app=web,app!=other")
    pods = [PodSet(pod=make_pod(f"web-{index}")) for index in range(2)]
    log.add(*[AutoscalerSet(hpa=make_hpa(name, f"uid-{name}")) for name in ("twin", "web")], twin, scale(), *pods)
    for _ in range(3):
        answer = cpu_answer("web", {f"web-{index}": 50 for index in range(2)}, log.now_ms)
        log.add(Answers(items=[answer]), after_ms=30_000)
    past, recorded = _evaluated(log.records)
    web = recorded[-1].hpa._replace(name="web")
    read = [each[1].observation.ambiguous for each in (await _read(past, {web}))[web] if each[0] is Evaluated]
    shown = ["AmbiguousSelector" in str(each.value) for each in recorded if each.hpa == web]
    assert [bool(each) for each in read] == shown
    assert any(shown)


@pytest.mark.parametrize(
    ("settings", "evaluated"),
    [
        pytest.param({}, 10, id="those of its namespace"),
        pytest.param({"removal_budget": "30%/10m"}, 40, id="bound by a budget of all"),
    ],
)
async def test_others_are_evaluated_where_they_bound_what_is_read(
    settings: dict[str, Any], evaluated: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    past, recorded = _forty(**settings)
    wanted = recorded[0].hpa
    of_all: set[HpaId] = set()

    def noting(state: Any, namespace: Any, hpa: Hpa, settings: Any) -> Any:
        of_all.add(hpa.id)
        return evaluate(state, namespace, hpa, settings)

    monkeypatch.setattr("streams.state.processing.evaluate", noting)
    read = await _read(past, {wanted})
    assert len(of_all) == evaluated
    own = [each.decision.id for each in recorded if each.hpa == wanted]
    assert [each[1].decision for each in read[wanted] if each[0] is Evaluated] == own
