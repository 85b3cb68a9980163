"""Counterfactuals flip exactly where they say, and nowhere nearer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec import structs

from streams.analysis.answer import answer
from streams.analysis.counterfactual import Counterfactuals, Flip, counterfactuals, spread, varied
from streams.history.evaluations import Evaluated, events
from streams.hpa.observation import ExternalSamples, ObjectSample, PodSamples
from streams.partition import Partition
from streams.state.inputs import EvaluationInputs
from tests.kit.generated_log import Fleet, partition_log
from tests.kit.partition import LogBuilder, disturbed_log, make_hpa


def evaluations(records: list[tuple[int, int, bytes]], every: int = 1) -> Iterator[EvaluationInputs]:
    found = (e.inputs for e in events(Partition.empty(0), records, lambda _: True) if isinstance(e, Evaluated))
    return (inputs for number, inputs in enumerate(found) if number % every == 0)


def check(inputs: EvaluationInputs, made: Counterfactuals) -> int:
    """Every flip holds, by values put in here and evaluated by the core; returns how many were printed."""
    if made.apart_from:
        inputs = structs.replace(inputs, limits=inputs.limits.without("Paused"))
    final = answer(inputs).final
    assert made.final == final
    for flip in made.flips:
        nearer = flip.value + (1 if flip.direction == "lower" else -1)
        assert _answer(inputs, flip, flip.value) == flip.answer != final
        assert _answer(inputs, flip, nearer) == final
    for each in made.unmoved:
        number = varied(inputs, each.metric)
        assert number is not None
        assert answer(number.at(inputs, each.searched)).final == final
    return len(made.flips) + len(made.without)


def _answer(inputs: EvaluationInputs, flip: Flip, value: int) -> int:
    number = varied(inputs, flip.metric)
    assert number is not None
    changed = number.at(inputs, value)
    _is_at(changed, flip, value)
    return answer(changed).final


def _is_at(changed: EvaluationInputs, flip: Flip, value: int) -> None:
    """What is varied is at the value: the number itself, or the sum over the counted pods."""
    made = changed.observation.answers[flip.metric]
    if isinstance(made, ObjectSample):
        assert made.value_milli == value
    elif isinstance(made, ExternalSamples):
        assert sum(made.values_milli) == value
    else:
        assert isinstance(made, PodSamples)
        number = varied(changed, flip.metric)
        assert number is not None
        assert number.now == value


def _sources(seeds: range) -> Iterator[list[tuple[int, int, bytes]]]:
    for seed in seeds:
        yield list(disturbed_log(seed, 200).records)
        fleet = Fleet(
            hpas=6, namespaces=2, minutes=6, seed=seed, metrics=1 + seed % 3, behavior=bool(seed % 2), churn=0.2
        )
        yield partition_log(fleet)


def test_many_counterfactuals_flip_exactly_where_they_say() -> None:
    printed = 0
    for records in _sources(range(1)):
        for inputs in evaluations(records, every=3):
            printed += check(inputs, counterfactuals(inputs))
    assert printed >= 80


@pytest.mark.slow
def test_three_thousand_counterfactuals_flip_exactly_where_they_say() -> None:
    printed = 0
    for records in _sources(range(100, 200)):
        for inputs in evaluations(records):
            printed += check(inputs, counterfactuals(inputs))
        if printed >= 3_000:
            break
    assert printed >= 3_000
    print(f"{printed} counterfactuals checked")


def test_no_nearer_value_changes_the_answer() -> None:
    compared = 0
    worlds = [disturbed_log(seed, 200).records for seed in range(20, 26)]
    for inputs in (inputs for records in worlds for inputs in evaluations(list(records), every=2)):
        final = answer(inputs).final
        for flip in counterfactuals(inputs).flips:
            number = varied(inputs, flip.metric)
            assert number is not None
            if abs(flip.value - flip.now) > 3_000:
                continue
            step = 1 if flip.value > flip.now else -1
            nearer = range(flip.now, flip.value, step)
            assert all(answer(number.at(inputs, value)).final == final for value in nearer)
            compared += 1
    assert compared > 20


@pytest.mark.parametrize(
    ("shares", "total"),
    [
        pytest.param([1, 2, 3], 7, id="a remainder goes to the first"),
        pytest.param([0, 0], 5, id="nothing is spread evenly"),
        pytest.param([5], 0, id="down to nothing"),
        pytest.param([10**15, 1], 10**15, id="large numbers stay exact"),
    ],
)
def test_a_total_is_spread_without_loss(shares: list[int], total: int) -> None:
    made = spread(shares, total)
    assert sum(made) == total
    assert len(made) == len(shares)
    assert min(made) >= 0


def _held() -> EvaluationInputs:
    """Held by the legacy window: 4 pods used fully, then idle."""
    from schemas.answers import Answers
    from schemas.observed import AutoscalerSet, PodSet
    from schemas.settings import SettingsSet
    from tests.kit.partition import ENFORCING, cpu_answer, make_pod, scale

    log = LogBuilder()
    log.add(SettingsSet(cluster="*", settings=ENFORCING), AutoscalerSet(hpa=make_hpa(minReplicas=2)))
    log.add(*[PodSet(pod=make_pod(f"web-{n}")) for n in range(4)], scale("web", 4))
    log.add(Answers(items=[cpu_answer("web", {f"web-{n}": 50 for n in range(4)}, log.now_ms)]), after_ms=1_000)
    log.add(Answers(items=[cpu_answer("web", {f"web-{n}": 20 for n in range(4)}, log.now_ms)]), after_ms=15_000)
    return list(evaluations(list(log.records)))[-1]


def test_a_held_count_says_what_it_would_be_and_until_when() -> None:
    inputs = _held()
    made = counterfactuals(inputs)
    assert (made.current, made.final) == (4, 4)
    assert [(each.limit, each.answer) for each in made.without] == [("StabilizationWindow", 2)]
    assert made.release is not None
    later = structs.replace(inputs, now_ms=made.release.at)
    assert answer(later).final == made.release.answer == 2
    assert answer(structs.replace(inputs, now_ms=made.release.at - 1)).final == 4
