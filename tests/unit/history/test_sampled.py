"""Samples of one HPA's decisions among those of many."""

from __future__ import annotations

from itertools import pairwise

import pytest

from schemas.keys import HpaId
from streams.archive.layout import DECISIONS, ArchivedRecord
from streams.history.archivepast import ArchivePast
from streams.history.past import Past
from streams.history.recorded import Recorded
from streams.history.sampled import Sampler, bounds_of
from tests.bench.steady import ENFORCED
from tests.kit.archive import Topics, topics_in_closed_loop, write_archive
from tests.kit.generated_log import Fleet
from tests.kit.memorypast import MemoryPast

FLEET = Fleet(hpas=20, namespaces=4, minutes=25, settings=ENFORCED, noise=0.05)
HPA = HpaId("c0", "ns3", "app7")


@pytest.fixture(scope="module")
def topics() -> Topics:
    return topics_in_closed_loop(FLEET)


@pytest.fixture(scope="module", params=["memory", pytest.param("archive", marks=pytest.mark.slow)])
def past(request: pytest.FixtureRequest, topics: Topics, tmp_path_factory: pytest.TempPathFactory) -> Past:
    if request.param == "memory":
        return MemoryPast(topics)
    return ArchivePast(
        write_archive(
            tmp_path_factory.mktemp("past") / "archive", Fleet(partitions=1), topics=topics, segment_ms=300_000
        )
    )


async def own(past: Past) -> list[Recorded]:
    return [each async for each in past.decisions(0, wanted=HPA.__eq__)]


async def test_samples_are_evaluations_of_the_hpa_and_show_its_changes(past: Past) -> None:
    everything = await own(past)
    known, before = everything[-20:], everything[:-20]
    found = await Sampler(past, 0, HPA, known, range(known[0].offset)).samples(12, 100)
    assert all(each in everything for each in found)
    assert [each.offset for each in found] == sorted({each.offset for each in found})
    evaluations = [each for each in before if each.decision.kind == "evaluation"]
    changes = [after for one, after in pairwise(evaluations) if bounds_of(one) != bounds_of(after)]
    assert changes
    for one, after in pairwise(found):  # nothing changed that is not known to within a few evaluations
        if bounds_of(one) != bounds_of(after):
            assert after.offset - one.offset <= 8 * FLEET.hpas
    seen = {bounds_of(each) for each in found}
    assert len({bounds_of(each) for each in changes} & seen) >= len({bounds_of(each) for each in changes}) // 2


async def test_no_further_samples_than_asked_for_are_taken(past: Past) -> None:
    known = (await own(past))[-20:]
    assert len(await Sampler(past, 0, HPA, known, range(known[0].offset)).samples(5, 0)) <= 5
    assert len(await Sampler(past, 0, HPA, known, range(known[0].offset)).samples(5, 3)) <= 8


async def test_an_hpa_without_decisions_in_the_range_has_no_samples(past: Past) -> None:
    found = await Sampler(past, 0, HpaId("c0", "ns3", "nobody"), [], range(2_000)).samples(4, 4)
    assert found == []


@pytest.mark.parametrize("first", [0, 1, 17, 500, -1])
async def test_records_near_an_offset_are_those_from_there_on(past: Past, topics: Topics, first: int) -> None:
    records: list[ArchivedRecord] = topics[DECISIONS, 0]
    begin = first % len(records)
    near = [each async for part in past.nearby(DECISIONS, 0, range(begin, len(records))) for each in part]
    assert [(each.offset, each.value) for each in near] == [(each.offset, each.value) for each in records[begin:]]
    few = [each.offset async for part in past.nearby(DECISIONS, 0, range(begin, begin + 1)) for each in part]
    assert few[0] == begin
    assert len(few) < len(records) or not begin
