"""Decisions on the topic beyond the recovered state."""

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import orjson
import pytest

from streams.decider.tail import RecordedTail, StandingError, TailHead


class Record(NamedTuple):
    """A record of the decisions topic."""

    offset: int
    value: bytes


NOTHING = TailHead(0, "")


def chain(log_offsets: Sequence[int], seq: int = 0, prev: str = "") -> list[bytes]:
    """Decisions caused by these log offsets, chained."""
    values = []
    for number, log_offset in enumerate(log_offsets, start=seq + 1):
        value = orjson.dumps({"id": f"3-{log_offset}-uid-a-{number}", "seq": number, "prev": prev, "more": [1]})
        values.append(value)
        prev = digest(value)
    return values


def digest(value: bytes) -> str:
    """SHA-256 as the chain holds it."""
    return hashlib.sha256(value).hexdigest()


class Topic:
    """A decisions partition that hands out two records at a time."""

    def __init__(self, values: Sequence[bytes]) -> None:
        self.records = [Record(offset, value) for offset, value in enumerate(values)]
        self.position = 0

    async def fetch(self) -> Sequence[Record]:
        """The next two records."""
        found = self.records[self.position : self.position + 2]
        self.position += len(found)
        return found

    def standing(self, recovered: TailHead = NOTHING, end: int | None = None) -> RecordedTail:
        """Read this topic from its first record."""
        return RecordedTail(3, recovered, 0, len(self.records) if end is None else end, self.fetch)


def numbers(found: object) -> list[int]:
    """Sequence numbers of the decisions found."""
    assert isinstance(found, dict)
    return [orjson.loads(value)["seq"] for value in found.values()]


async def test_each_log_offset_gets_the_decisions_that_it_caused() -> None:
    standing = Topic(chain([4, 4, 9])).standing()
    assert [numbers(await standing.at(offset)) for offset in (3, 4, 5, 9, 10)] == [[], [1, 2], [], [3], []]


async def test_no_more_is_read_than_the_fold_needs() -> None:
    topic = Topic(chain([1, 2, 3, 4, 5, 6]))
    standing = topic.standing()
    await standing.at(1)
    assert topic.position == 2
    assert not standing.exhausted


async def test_decisions_that_the_recovered_state_knows_are_passed_over() -> None:
    values = chain([1, 2, 3])
    standing = Topic(values).standing(TailHead(2, digest(values[1])))
    assert [numbers(await standing.at(offset)) for offset in (1, 2, 3)] == [[], [], [3]]


async def test_a_second_copy_of_the_same_bytes_is_harmless() -> None:
    values = chain([1, 2, 3])
    standing = Topic([*values[:2], values[0], values[1], values[2]]).standing()
    assert [numbers(await standing.at(offset)) for offset in (1, 2, 3)] == [[1], [2], [3]]
    assert standing.duplicates == 2


async def test_records_that_came_after_the_partition_was_taken_over_are_our_own() -> None:
    standing = Topic(chain([1, 2, 3])).standing(end=2)
    assert [numbers(await standing.at(offset)) for offset in (1, 2, 3)] == [[1], [2], []]
    assert standing.exhausted


async def fold_all(standing: RecordedTail) -> None:
    """Ask for every log offset, as the fold does."""
    for offset in range(-1, 5):
        await standing.at(offset)


ONE, TWO, THREE = chain([1, 2, 3])
OTHER_TWO = TWO.replace(b'"more":[1]', b'"more":[2]')


@pytest.mark.parametrize(
    ("values", "recovered", "reason"),
    [
        pytest.param([ONE, THREE], TailHead(0, ""), "number 3 follows number 1", id="a hole"),
        pytest.param([TWO], TailHead(0, ""), "number 2 follows number 0", id="a beginning that is missing"),
        pytest.param([ONE, TWO, OTHER_TWO], TailHead(0, ""), "second version of decision number 2", id="two versions"),
        pytest.param([ONE, OTHER_TWO, THREE], TailHead(0, ""), "does not name the record before", id="a broken chain"),
        pytest.param([ONE], TailHead(2, digest(TWO)), "decisions were lost", id="an end before the recovered state"),
        pytest.param(
            [], TailHead(2, digest(TWO)), "decisions were lost", id="an empty topic under a state that decided"
        ),
        pytest.param(
            [ONE, OTHER_TWO], TailHead(2, digest(TWO)), "not the one that the state follows", id="another past"
        ),
    ],
)
async def test_a_topic_that_does_not_continue_the_state_stops_the_worker(
    values: list[bytes], recovered: TailHead, reason: str
) -> None:
    standing = Topic(values).standing(recovered)
    with pytest.raises(StandingError, match=reason):
        await fold_all(standing)
