"""The topics: names, meaning, and the settings that each needs on Apache Kafka."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

Headers = Sequence[tuple[str, bytes]]
"""The headers of a Kafka record, in order."""


PREFIX = "fleethpa."
SAMPLES = "fleethpa.samples"
PODS = "fleethpa.pods"
AUTOSCALERS = "fleethpa.autoscalers"
SCALES = "fleethpa.scales"
SETTINGS = "fleethpa.settings"
OUTCOMES = "fleethpa.outcomes"
REPORTS = "fleethpa.reports"
SPECS = "fleethpa.specs"
LOG = "fleethpa.log"
DECISIONS = "fleethpa.decisions"
REJECTED = "fleethpa.rejected"
DECIDER_APP_ID = "fleethpa-decider"
STATE_TABLE = "state"
CHANGELOG = f"{DECIDER_APP_ID}-{STATE_TABLE}-changelog"

INGEST_GROUP = "fleethpa-ingest"
AGENT_INGEST_GROUP = "fleethpa-ingest-agents"
"""The group in which ingest reads the topics of agents."""
ROUTER_GROUP = "fleethpa-router"
RECONCILER_GROUPS = "fleethpa-reconciler-"
"""How the names of the groups begin that reconcilers read decisions in: one group per set of clusters."""

ALIVE_GROUPS = "fleethpa-alive-"
"""How the names of the groups begin that keep the signs of life of processes."""
QuietProcess = Literal["router", "scheduler", "archiver"]
"""A process that writes nothing to the log while nothing happens, so that it is known by its signs of life only."""

PUBLIC_TOPICS = (SAMPLES, PODS, AUTOSCALERS, SCALES, SETTINGS, OUTCOMES, REPORTS, SPECS)
"""What ingest reads. All share the partition count of the log, so that the range assignor gives one worker a
namespace in all.
"""

DEFAULT_PARTITIONS = 24
EMBEDDED_PARTITIONS = 4
"""Of every topic on the embedded broker: the default of librdkafka's mock cluster, which no setting changes."""
MAX_PARTITIONS = 10_000
"""The most that a log has: entries that record more are refused."""

MAX_LOG_RECORD_BYTES = 512 * 1024
MAX_ROW_BYTES = 512 * 1024
REJECTED_KEPT_BYTES = 256 * 1024

_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS


@dataclass(frozen=True)
class Topic:
    """A topic and the configuration it needs; values are Kafka's own texts."""

    name: str
    config: dict[str, str] = field(default_factory=dict)


def _delete(retention_ms: int, **config: str) -> dict[str, str]:
    wanted = {"cleanup.policy": "delete", "retention.ms": str(retention_ms), "max.message.bytes": str(1_048_576)}
    return wanted | {name.replace("_", "."): value for name, value in config.items()}


_NEWEST_STAYS = {
    "cleanup.policy": "compact",
    "max.message.bytes": str(1_048_576),
    "min.compaction.lag.ms": str(30 * _DAY_MS),
}
"""The newest record of each key stays, for those who start later: of a central HPA; of a pause or override of one kind
and scope, beside all other changes of settings (docs/decisions/0008). Older ones stay while ingest may be behind.
"""

TOPICS: tuple[Topic, ...] = (
    Topic(SAMPLES, _delete(3 * _DAY_MS)),
    Topic(PODS, _delete(7 * _DAY_MS)),
    Topic(AUTOSCALERS, _delete(30 * _DAY_MS)),
    Topic(SCALES, _delete(7 * _DAY_MS)),
    Topic(SETTINGS, _NEWEST_STAYS),
    Topic(OUTCOMES, _delete(30 * _DAY_MS)),
    Topic(REPORTS, _delete(_DAY_MS)),
    Topic(SPECS, _NEWEST_STAYS),
    Topic(LOG, _delete(7 * _DAY_MS, message_timestamp_type="LogAppendTime")),
    Topic(DECISIONS, _delete(30 * _DAY_MS)),
    Topic(REJECTED, _delete(30 * _DAY_MS)),
    Topic(
        CHANGELOG,
        {
            "cleanup.policy": "compact",
            "max.message.bytes": str(1_048_576),
            "segment.ms": str(_HOUR_MS // 6),
            "segment.bytes": str(64 * 1024 * 1024),
            "min.cleanable.dirty.ratio": "0.1",
            "min.compaction.lag.ms": str(_HOUR_MS),
            "max.compaction.lag.ms": str(2 * _HOUR_MS),
            "delete.retention.ms": str(7 * _DAY_MS),
        },
    ),
)
"""Every topic of fleethpa with the settings `fleethpa topics init` gives it."""

AGENT_REPORTS_CONFIG = _delete(3 * _DAY_MS, message_timestamp_type="LogAppendTime", compression_type="producer")
AGENT_ORDERS_CONFIG = _delete(_DAY_MS, message_timestamp_type="LogAppendTime")
"""The settings of the two topics that each agent has. Agents learn the brokers' time from the append times. Brokers
keep what an agent reports as compressed as it came: to write it otherwise they would unpack a megabyte of zstd, which
may hold gigabytes, onto their heap. Ingest unpacks it with a bound (`runtime/batches.py`).
"""
