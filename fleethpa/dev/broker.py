"""The embedded broker: librdkafka's mock cluster, which the confluent-kafka wheel carries.

It is a real TCP broker for one machine: memory only, not Kafka. Measured with aiokafka 0.14, librdkafka 2.16:

* every topic has 4 partitions and comes into being with the first metadata request that names it; no CreateTopics;
* a partition keeps about 5 MB (4.5 to 5.2 measured) and its newest batch; the oldest batches go first;
* records keep the producer's timestamp: there is no append time, and the time in a produce answer is a constant;
* `offsets_for_times` knows nothing, nothing is compacted, a topic cannot be deleted, there is no security;
* groups, commits, seeks, headers, idempotent and transactional producers work.
"""

from __future__ import annotations

import argparse
import logging
import signal
import threading
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Final

import orjson
from confluent_kafka import Producer

PARTITIONS: Final = 4
"""Partitions of every topic: librdkafka's default for its mock cluster, which no setting changes."""

PARTITION_BYTES: Final = 5 * 1024 * 1024
"""What a partition keeps before the oldest batches are dropped."""


class EmbeddedBrokerError(Exception):
    """The embedded broker did not do what it was asked for."""


class EmbeddedBroker:
    """A mock Kafka cluster of one broker on a free port of 127.0.0.1, alive from start() to stop()."""

    def __init__(self) -> None:
        self._owner: Any = None
        self._bootstrap: str | None = None

    @property
    def bootstrap(self) -> str:
        """The address for `bootstrap_servers`, as host:port.

        Raises:
            EmbeddedBrokerError: The broker does not run.
        """
        if self._bootstrap is None:
            raise EmbeddedBrokerError("the embedded broker is not running: call start() first")
        return self._bootstrap

    def start(self, timeout_s: float = 10.0) -> str:
        """Start the broker, unless it runs, and return its address."""
        if self._bootstrap is None:
            quiet = logging.getLogger("fleethpa.dev.broker.librdkafka")
            # The mock cluster lives inside a client instance and ends with it.
            self._owner = Producer({"test.mock.num.brokers": 1, "log_level": 3}, logger=quiet)
            brokers = self._owner.list_topics(timeout=timeout_s).brokers
            node = next(iter(brokers.values()))
            self._bootstrap = f"{node.host}:{node.port}"
        return self._bootstrap

    def ensure_topics(self, names: Iterable[str], timeout_s: float = 10.0) -> None:
        """Bring topics into being; one that exists stays as it is.

        Raises:
            EmbeddedBrokerError: A topic did not come up, or not with the expected partitions.
        """
        bootstrap = self.bootstrap  # fails clearly when the broker is not running
        for name in names:
            topic = self._owner.list_topics(name, timeout=timeout_s).topics[name]
            if topic.error is not None or len(topic.partitions) != PARTITIONS:
                reason = topic.error or f"{len(topic.partitions)} partitions, not {PARTITIONS}"
                raise EmbeddedBrokerError(f"topic {name} on the embedded broker at {bootstrap}: {reason}")

    def stop(self) -> None:
        """End the broker; all that it held is gone."""
        self._bootstrap = None
        self._owner = None  # the last reference: librdkafka closes the listening socket

    def __enter__(self) -> EmbeddedBroker:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def main(arguments: list[str] | None = None) -> None:
    """Run the broker as a process of its own: print one JSON line with its address, then wait for a signal."""
    parser = argparse.ArgumentParser(prog="python -m fleethpa.dev.broker", description=main.__doc__)
    parser.add_argument("--topics", default="", help="comma-separated topics to create at start")
    options = parser.parse_args(arguments)
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    with EmbeddedBroker() as broker:
        broker.ensure_topics(name for name in options.topics.split(",") if name)
        print(orjson.dumps({"bootstrap": broker.bootstrap, "partitions": PARTITIONS}).decode(), flush=True)
        ended.wait()


if __name__ == "__main__":
    main()
