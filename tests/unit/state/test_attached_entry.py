"""A kind of entry is declared once; the fold has a handler of its name: here one from outside of the package."""

from typing import Any, get_args

import pytest

from schemas import topics
from schemas.entries import KINDS, NOTHING, Body, EntryKind
from schemas.observed import AutoscalerSet, EntryBody
from streams.attachments import HANDLERS
from streams.ingest import own
from streams.state.answers import FoldedEntry
from streams.state.fold import EntryFold, handlers
from tests.kit.partition import LogBuilder, make_hpa


class Weather(EntryBody, frozen=True, kw_only=True, tag="weather"):
    """A toy."""

    says: str


WEATHER = EntryKind(Weather, (topics.SAMPLES,), "weather")


def test_the_table_has_every_body_once() -> None:
    assert sorted(each.tag for each in KINDS) == sorted({body.__struct_config__.tag for body in get_args(Body)})
    assert {each.body for each in KINDS} == set(get_args(Body))


def test_every_topic_that_ingest_reads_carries_some_kind_and_no_kind_is_of_another_topic() -> None:
    assert all(own.OF_TOPIC[topic] for topic in topics.PUBLIC_TOPICS)
    assert {topic for each in KINDS for topic in each.topics} == set(topics.PUBLIC_TOPICS)


@pytest.mark.parametrize("scope", ["namespace", "partition"])
def test_a_kind_without_a_handler_fails_when_the_fold_is_imported(scope: Any) -> None:
    with pytest.raises(AttributeError, match="weather"):
        handlers([*KINDS, WEATHER._replace(scope=scope)], HANDLERS, in_namespace=scope == "namespace")


def test_a_kind_from_which_nothing_follows_needs_no_handler_and_changes_no_row() -> None:
    log = LogBuilder()
    log.add(AutoscalerSet(hpa=make_hpa("web")))
    log.partition.checkpoint()
    state = log.partition.state
    folded = handlers([*KINDS, WEATHER._replace(handler=NOTHING)], HANDLERS, in_namespace=True)
    state.attached = state.attached._replace(in_namespace=folded)
    EntryFold(state).apply(0, FoldedEntry(key="eu/shop", body=Weather(says="rain")))  # type: ignore[arg-type]
    assert [key for key, _ in log.partition.checkpoint()] == [b"0|p"], "the row of the partition has the log's place"
    assert Weather in handlers([WEATHER._replace(handler=NOTHING, scope="partition")], HANDLERS, in_namespace=False)


def test_a_kind_that_is_attached_is_folded_by_its_handler() -> None:
    told = []

    def weather(fold: EntryFold, body: Weather) -> None:
        told.append((fold.namespace.key, body.says))

    state = LogBuilder().partition.state
    folded = handlers([*KINDS, WEATHER], {**HANDLERS, "weather": weather}, in_namespace=True)
    state.attached = state.attached._replace(in_namespace=folded)
    EntryFold(state).apply(0, FoldedEntry(key="eu/shop", body=Weather(says="rain")))  # type: ignore[arg-type]
    assert told == [("eu/shop", "rain")]
