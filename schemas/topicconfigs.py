"""The settings that each topic needs on Apache Kafka."""

from dataclasses import dataclass, field

from schemas.topics import (
    AUTOSCALERS,
    CHANGELOG,
    DECISIONS,
    LOG,
    OUTCOMES,
    PODS,
    REJECTED,
    REPORTS,
    SAMPLES,
    SCALES,
    SETTINGS,
    SPECS,
)

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
    Topic(SCALES, _delete(7 * _DAY_MS, message_timestamp_type="LogAppendTime")),
    Topic(SETTINGS, _NEWEST_STAYS),
    Topic(OUTCOMES, _delete(30 * _DAY_MS, message_timestamp_type="LogAppendTime")),
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
"""Every topic of fleethpa with the settings `fleethpa admin topics init` gives it. Where a reconciler writes, the
acknowledgements show it the brokers' time, which wanted writes expire by.
"""


AGENT_REPORTS_CONFIG = _delete(3 * _DAY_MS, message_timestamp_type="LogAppendTime", compression_type="producer")
AGENT_ORDERS_CONFIG = _delete(_DAY_MS, message_timestamp_type="LogAppendTime")
"""The settings of the two topics that each agent has. Agents learn the brokers' time from the append times. Brokers
keep what an agent reports as compressed as it came: to write it otherwise they would unpack a megabyte of zstd, which
may hold gigabytes, onto their heap. Ingest unpacks it with a bound (`runtime/batches.py`).
"""
