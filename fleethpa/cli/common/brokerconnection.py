"""Connecting the command line to Kafka: errors in three parts instead of a driver's traceback and log lines."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fleethpa.cli.common.configuration import Config
from fleethpa.cli.common.failures import CommandError, unreachable, usage
from schemas.connection import KafkaSettings, SettingsError


def client_settings(config: Config) -> KafkaSettings:
    """Return the connection settings, with the driver's own log lines silenced: failures reach the user as errors."""
    for name in ("aiokafka", "kafka"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return config.kafka()


@asynccontextmanager
async def connecting(brokers: str) -> AsyncIterator[None]:
    """Turn what the driver raises while connecting into a CommandError (exit 3; wrong settings: 2)."""
    from aiokafka.errors import IncompatibleBrokerVersion, KafkaError

    try:
        yield
    except SettingsError as error:
        raise usage("the Kafka settings cannot be used", cause=str(error)) from error
    except IncompatibleBrokerVersion as error:
        cause = "The embedded broker of `fleethpa dev` knows no administration; use Apache Kafka for this."
        raise unreachable(f"the broker at {brokers} does not support this request: {error}", cause=cause) from error
    except (KafkaError, OSError) as error:
        cause = "No broker answers there, or it refuses this user, or TLS does not fit."
        step = "check --brokers / --kafka-config; `fleethpa dev` starts a broker on this machine"
        detail = str(error) or type(error).__name__
        raise unreachable(f"cannot talk to Kafka at {brokers}: {detail}", cause=cause, next_step=step) from error


async def partition_counts(consumer: Any, topics: tuple[str, ...], brokers: str) -> dict[str, int]:
    """Return the number of partitions of each topic.

    Raises:
        CommandError: a topic does not exist (exit 3).
    """
    # Private, but the only request that lists topics without creating them; the driver's version is pinned.
    cluster = await consumer._client.fetch_all_metadata()
    counts = {topic: len(cluster.partitions_for_topic(topic) or ()) for topic in topics}
    if missing := [topic for topic, count in counts.items() if not count]:
        raise missing_topic(missing[0], brokers)
    return counts


def missing_topic(topic: str, brokers: str) -> CommandError:
    """The error for a topic that does not exist."""
    return unreachable(
        f"topic {topic} does not exist at {brokers}",
        cause="These brokers have not been prepared for fleethpa, or this user may not see the topic "
        "(fleethpa topics acls).",
        next_step="fleethpa topics init",
    )
