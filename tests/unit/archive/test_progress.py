"""The progress of long reading: how much is done, where that is known."""

from __future__ import annotations

import pytest

from fleethpa.frame.sources import log_length, share_done, so_far
from streams.archive.layout import LOG, ArchivedRecord, ArchiveError, archived_record
from tests.kit.memorypast import MemoryPast


@pytest.mark.parametrize(
    ("done", "due", "stated"),
    [
        pytest.param(5, 0, "", id="nobody knows how much there is"),
        pytest.param(0, 200, "0% ", id="nothing done"),
        pytest.param(50, 200, "25% ", id="a quarter"),
        pytest.param(300, 200, "99% ", id="more than was expected is not the end"),
    ],
)
def test_the_share_that_is_done(done: int, due: int, stated: str) -> None:
    assert share_done(done, due) == stated


@pytest.mark.parametrize(
    ("done", "stated"),
    [
        pytest.param((0, 0), "", id="nothing was counted yet"),
        pytest.param((4_000, 0), "reading 4,000 log records (2,000/s)", id="the log alone"),
        pytest.param((0, 1_000), "reading 1,000 decisions (500/s)", id="decisions alone"),
        pytest.param((4_000, 1_000), "reading 1,000 decisions, 4,000 log records (500/s)", id="both"),
    ],
)
def test_what_has_been_read_so_far(done: tuple[int, int], stated: str) -> None:
    assert so_far("reading", *done, seconds=2.0) == stated


def records(first: int, count: int) -> list[ArchivedRecord]:
    return [archived_record(offset, 1_000, b"", (), b"") for offset in range(first, first + count)]


async def test_the_length_of_a_log_counts_what_is_kept_of_all_partitions() -> None:
    past = MemoryPast({(LOG, 0): records(7, 3), (LOG, 1): []}, partitions=2)
    assert await log_length(past) == 3


async def test_a_damaged_archive_is_left_to_the_work_itself() -> None:
    class Damaged(MemoryPast):
        async def offsets(self, topic: str, partition: int) -> range:
            raise ArchiveError("damaged")

    assert await log_length(Damaged({})) == 0
