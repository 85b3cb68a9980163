"""Specs of central HPAs have a topic of their own that keeps the newest record of each, so a record is of one HPA."""

import pytest

from schemas import topics
from schemas.codec import encode
from schemas.entries import Body, PublicRecord, central_name
from schemas.observed import AutoscalerDeleted, AutoscalerSet, Command
from streams.ingest.convert import convert
from streams.ingest.mapping import Mapping, Resolver
from streams.ingest.own import topic_of
from streams.ingest.pieces import Conversion, RawRecord
from tests.kit.partition import START_MS, make_hpa

SPEC = AutoscalerSet(hpa=make_hpa(), origin="central")
END = AutoscalerDeleted(name="web", origin="central")
SHADOW = Command(command="mode", name="web", mode="shadow")


def _converted(*bodies: Body, topic: str = topics.SPECS) -> Conversion:
    record = PublicRecord(v=1, entries=list(bodies), time=START_MS, cluster="east", namespace="shop")
    return convert(RawRecord(topic, 0, 0, START_MS, encode(record)), Resolver(Mapping()))


@pytest.mark.parametrize("bodies", [[SPEC], [END], [SPEC, SHADOW], [END, SHADOW]])
def test_a_record_of_one_central_hpa_is_taken_with_its_commands(bodies: list[Body]) -> None:
    assert central_name(bodies[0]) == "web"
    assert topic_of("shop", bodies) == topics.SPECS
    found = _converted(*bodies)
    assert [type(piece.body) for piece in found.pieces] == [type(body) for body in bodies]
    assert found.refusals == []


@pytest.mark.parametrize(
    "bodies",
    [
        pytest.param([], id="nothing"),
        pytest.param([SHADOW], id="a command alone, which would take the place of the spec"),
        pytest.param([SHADOW, SPEC], id="a command before the spec"),
        pytest.param([AutoscalerSet(hpa=make_hpa())], id="an HPA of a cluster"),
        pytest.param([SPEC, AutoscalerSet(hpa=make_hpa("api"), origin="central")], id="two HPAs"),
        pytest.param([SPEC, Command(command="mode", name="api", mode="off")], id="a command for another"),
        pytest.param([SPEC, Command(command="mode", mode="off")], id="a command for the namespace"),
    ],
)
def test_a_record_that_is_not_of_one_central_hpa_is_refused_whole(bodies: list[Body]) -> None:
    found = _converted(*bodies)
    assert (found.pieces, found.code) == ([], "invalid")
    assert "a record of fleethpa.specs has a central HPA as its first entry" in found.reason()


@pytest.mark.parametrize("body", [SPEC, END])
def test_a_central_hpa_among_the_reports_of_observers_is_refused(body: Body) -> None:
    found = _converted(body, topic=topics.AUTOSCALERS)
    assert (found.pieces, found.code) == ([], "wrongTopic")
    assert found.reason().endswith("send it to fleethpa.specs")


def test_a_pause_beside_a_spec_is_refused_as_it_would_be_compacted_away() -> None:
    found = _converted(SPEC, Command(command="pause", name="web"))
    assert [type(piece.body) for piece in found.pieces] == [AutoscalerSet]
    assert found.reason().endswith("send it to fleethpa.settings")
