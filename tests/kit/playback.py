"""Logs with their timestamps for playback, and what a pure fold makes of them."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from schemas.settings import ClusterSettings
from streams.partition import Partition
from tests.kit.generated_log import Fleet, generate

ENFORCING = ClusterSettings(default_mode="enforce", native_controller="absent")


class TimedRecord(NamedTuple):
    """A log record: its value and its timestamp."""

    timestamp_ms: int
    value: bytes


Log = Mapping[int, Sequence[TimedRecord]]
"""Log partition → its records from offset 0."""


def make_log(*, partitions: int, minutes: float, hpas: int, seed: int) -> Log:
    """A seeded log; odd seeds enforce, so that writes are pending, time out and complete as failed."""
    fleet = Fleet(
        hpas=hpas,
        namespaces=max(1, hpas // 4),
        minutes=minutes,
        seed=seed,
        partitions=partitions,
        metrics=1 + seed % 3,
        settings=ENFORCING if seed % 2 else None,
    )
    log: dict[int, list[TimedRecord]] = {number: [] for number in range(partitions)}
    for record in generate(fleet):
        log[record.partition].append(TimedRecord(record.timestamp_ms, record.value))
    return log


def fold(log: Log) -> dict[int, list[bytes]]:
    """The decisions of each partition, by the pure core alone."""
    decided: dict[int, list[bytes]] = {}
    for number, records in log.items():
        partition = Partition.empty(number)
        decided[number] = [
            decision.value
            for offset, record in enumerate(records)
            for decision in partition.apply(offset, record.timestamp_ms, record.value)
        ]
    return decided
