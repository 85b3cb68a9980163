"""What a fold of the past answers where the log has lost its beginning, or records in its middle."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from streams.archive.layout import LOG, ArchivedRecord, archived_record
from streams.history.past import LogGoneError
from streams.partition import Partition
from tests.kit.archive import ENFORCING
from tests.kit.generated_log import START_MS, Fleet, partition_log
from tests.kit.memorypast import MemoryPast

MADE = [
    archived_record(offset, time_ms, b"", (), value)
    for offset, (_, time_ms, value) in enumerate(partition_log(Fleet(hpas=2, minutes=2, metrics=1, settings=ENFORCING)))
]
STORED = 3
"""Offset that the stored rows have applied."""


class StoredPast(MemoryPast):
    """Its rows are a checkpoint, too."""

    async def checkpoint(
        self, partition: int, *, below: int | None = None, before_ms: int | None = None
    ) -> Mapping[bytes, bytes]:
        return await self.newest_rows(partition)


def _rows() -> dict[bytes, bytes]:
    partition = Partition.empty(0)
    for record in MADE[: STORED + 1]:
        partition.apply(record.offset, record.timestamp_ms, record.value)
    return dict(partition.checkpoint())


@pytest.mark.parametrize(
    ("rows", "kept", "stated"),
    [
        ({}, MADE[60:], "begins at offset 60: earlier records are gone, and no stored state is old enough"),
        (_rows(), MADE[60:], "begins at offset 60: what came after the stored state of offset 3 is gone"),
        (_rows(), MADE[:10] + MADE[60:], "offset 60 does not follow 9"),
    ],
    ids=["nothing stored", "stored state before the gap", "a gap in the middle"],
)
async def test_a_time_before_a_gap_of_the_log_ends_is_an_error_and_no_older_state(
    rows: Mapping[bytes, bytes], kept: list[ArchivedRecord], stated: str
) -> None:
    past = StoredPast({(LOG, 0): kept}, rows)
    for time_ms in (MADE[60].timestamp_ms - 1, MADE[60].timestamp_ms):
        with pytest.raises(LogGoneError, match=stated):
            await past.fold_to(0, time_ms=time_ms)


async def test_a_time_before_the_first_record_of_a_whole_log_is_an_empty_state() -> None:
    assert (await MemoryPast({(LOG, 0): MADE}).fold_to(0, time_ms=START_MS - 1)).partition.applied_offset == -1
