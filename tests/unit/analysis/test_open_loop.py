"""The deployed spec, asked in the open loop, gives the recorded decisions: all of them."""

from __future__ import annotations

import pytest

from schemas.keys import HpaId
from streams.analysis.backtest import open_loop
from streams.analysis.candidate import candidate
from streams.history.evaluations import Evaluated, HpaEvent, events, hpa_of
from streams.partition import Partition
from tests.kit.generated_log import Fleet, partition_log
from tests.kit.partition import disturbed_log
from tests.laws import one_of


def by_hpa(records: list[tuple[int, int, bytes]]) -> dict[HpaId, list[HpaEvent]]:
    found: dict[HpaId, list[HpaEvent]] = {}
    for event in events(Partition.empty(0), records, lambda _: True):
        found.setdefault(hpa_of(event), []).append(event)
    return found


@pytest.mark.parametrize("seed", one_of(4, range(40, 52)))
def test_the_deployed_spec_gives_the_recorded_decisions_where_everything_happens(seed: int) -> None:
    compared = 0
    for known in by_hpa(list(disturbed_log(seed, 250).records)).values():
        for each in open_loop(known, None):
            assert each.agrees, each.inputs.decision
            assert each.candidate.evaluation == each.recorded.evaluation
            compared += 1
    assert compared > 20


@pytest.mark.parametrize("behavior", [True, False])
def test_the_deployed_spec_as_a_candidate_gives_the_recorded_decisions(behavior: bool) -> None:
    log = partition_log(Fleet(hpas=6, namespaces=2, minutes=10, metrics=3, behavior=behavior, churn=0.1))
    compared = 0
    for hpa, known in by_hpa(log).items():
        spec = next(event.inputs.spec for event in known if isinstance(event, Evaluated))
        made = open_loop(known, candidate(hpa, spec))
        assert all(each.agrees for each in made)
        compared += len(made)
    assert compared > 200


def test_another_spec_gives_other_decisions() -> None:
    log = partition_log(Fleet(hpas=2, namespaces=1, minutes=10))
    for hpa, known in by_hpa(log).items():
        spec = next(event.inputs.spec for event in known if isinstance(event, Evaluated))
        capped = candidate(hpa, {**spec, "maxReplicas": 3})
        made = open_loop(known, capped)
        assert not all(each.agrees for each in made)
        assert max(each.candidate.final for each in made) == 3
