"""A rebuild from a log that has lost its beginning: what it takes over and what it lets go."""

import pytest
from aiokafka import TopicPartition

from runtime.kafkaclients import OffsetBounds
from schemas import topics
from streams.decider.rebuild import Tail, check_empty, continue_chain, head_after
from streams.decider.strict import StartError
from streams.decider.tail import TailHead
from streams.partition import Partition
from tests.kit.playback import make_log

NEWEST = TailHead(7, "digest")


def pending_partition() -> tuple[Partition, list[str]]:
    """An enforcing partition in which writes are pending, and the decisions that want them."""
    log = make_log(partitions=1, minutes=3, hpas=8, seed=1)[0]
    partition = Partition.empty(0)
    for offset, record in enumerate(log):
        partition.apply(offset, record.timestamp_ms, record.value)
        writes = [hpa.row.pending.decision for hpa in partition.state.hpas.values() if hpa.row.pending]
        if len(writes) > 1:
            return partition, writes
    raise AssertionError("the log wants no writes")


def test_a_write_is_waited_for_only_where_the_decision_that_wants_it_stands() -> None:
    partition, (standing, *lost) = pending_partition()
    continue_chain(partition, Tail(NEWEST, frozenset({standing})))
    restored = Partition.restore(0, dict(partition.checkpoint()))
    left = [hpa.row.pending.decision for hpa in restored.state.hpas.values() if hpa.row.pending]
    assert left == [standing]
    assert lost
    assert (restored.seq, restored.prev) == NEWEST


@pytest.mark.parametrize(
    ("newest", "decisions", "wanted"),
    [
        pytest.param(NEWEST, OffsetBounds(2, 9), NEWEST, id="some are left"),
        pytest.param(TailHead(0, ""), OffsetBounds(9, 9), TailHead(9, ""), id="all have expired"),
        pytest.param(TailHead(0, ""), OffsetBounds(0, 0), TailHead(0, ""), id="there was none"),
    ],
)
def test_a_number_is_never_given_twice(newest: TailHead, decisions: OffsetBounds, wanted: TailHead) -> None:
    assert head_after(newest, decisions) == wanted


@pytest.mark.parametrize(
    ("bounds", "is_empty"),
    [
        pytest.param(OffsetBounds(0, 0), True, id="created again"),
        pytest.param(OffsetBounds(40, 40), True, id="every row has expired"),
        pytest.param(OffsetBounds(39, 40), False, id="a row is left"),
    ],
)
def test_a_rebuild_wants_a_changelog_without_rows(bounds: OffsetBounds, is_empty: bool) -> None:
    found = {TopicPartition(topics.CHANGELOG, 1): bounds, TopicPartition(topics.LOG, 1): OffsetBounds(5, 9)}
    if is_empty:
        check_empty(found)
        return
    with pytest.raises(StartError, match=r"holds records in partitions \[1\]"):
        check_empty(found)
