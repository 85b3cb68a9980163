"""The settings of an ingest worker. None of them changes a decision; only entries of the log do."""

from dataclasses import dataclass, field
from typing import Literal

from schemas.connection import KafkaSettings
from schemas.topics import INGEST_GROUP, PUBLIC_TOPICS
from streams.ingest.mapping import Mapping


@dataclass(frozen=True, kw_only=True)
class IngestConfig:
    """Settings of one worker.

    `sample_topics`: topics of other producers, read beside the public ones. `timestamp`: `append` lets the broker stamp
    the log, `source` (playback) stamps it with source times. `member`: a name that stays over restarts, so that a
    restart costs no rebalance. `web_port`: 0 for a free port, None for no server.
    """

    kafka: KafkaSettings = field(default_factory=KafkaSettings)
    mapping: Mapping = field(default_factory=Mapping)
    sample_topics: tuple[str, ...] = ()
    timestamp: Literal["append", "source"] = "append"
    group: str = INGEST_GROUP
    member: str = ""
    web_host: str = "127.0.0.1"
    web_port: int | None = None
    batch_ms: int = 5
    """How long entries are collected for one log record after the first have come; the price is that much latency. Most
    come together: the brokers collect for a fetch (`runtime.kafkaclients.FETCH_MAX_WAIT_MS`).
    """
    commit_ms: int = 1_000
    """How often offsets are committed; what was read since is read again after a crash, and dropped by the fold."""
    hold_ms: int = 5_000
    """How long a partition that is behind may hold up the others; in playback there is no limit."""
    session_timeout_ms: int = 10_000
    """After this silence of a worker its partitions go to others."""

    @property
    def topics(self) -> tuple[str, ...]:
        """All topics that are read."""
        return (*PUBLIC_TOPICS, *(topic for topic in self.sample_topics if topic not in PUBLIC_TOPICS))

    @property
    def is_playback(self) -> bool:
        """Whether log time is source time."""
        return self.timestamp == "source"
