"""The embedded broker: librdkafka's mock cluster, from the library in the confluent-kafka wheel, by its C interface.

The Python client cannot set how long a new consumer group waits for members. It is a real TCP broker for one machine,
in memory only and not Kafka. Measured with aiokafka 0.14 and librdkafka 2.16:

* every topic has 4 partitions and is created by the first metadata request that names it; there is no CreateTopics;
* a partition keeps about 5 MB and its newest batch; the oldest batches go first;
* records keep the producer's timestamp, and the time in a produce answer is a constant;
* `offsets_for_times`, compaction, deletion of topics and security do not exist;
* a member of a group that disappears is missed after its session timeout, and a group that is joined again soon after
  its only member left waits about 9 s;
* groups, commits, seeks, headers, idempotent and transactional producers work.

Source: rdkafka_mock.h of librdkafka 2.
"""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from schemas.topics import EMBEDDED_PARTITIONS

_PRODUCER: Final = 0
_TEXT_BYTES: Final = 512


@lru_cache(maxsize=1)
def _library() -> Any:
    import confluent_kafka  # here: it comes with an extra, and no `--help` needs it

    package = Path(confluent_kafka.__file__).parent
    # Linux wheels keep their libraries beside the package, macOS wheels inside it.
    folders = (package.parent / "confluent_kafka.libs", package / ".dylibs")
    files = [file for folder in folders if folder.is_dir() for file in sorted(folder.glob("librdkafka*"))]
    if not files:
        raise EmbeddedBrokerError(f"no librdkafka in {folders[0]}: install confluent-kafka from its wheel")
    library = ctypes.CDLL(str(files[0]))
    pointer, text, size, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int
    _declare(library, "rd_kafka_conf_new", pointer)
    _declare(library, "rd_kafka_conf_set", number, pointer, text, text, text, size)
    _declare(library, "rd_kafka_new", pointer, number, pointer, text, size)
    _declare(library, "rd_kafka_destroy", None, pointer)
    _declare(library, "rd_kafka_mock_cluster_new", pointer, pointer, number)
    _declare(library, "rd_kafka_mock_cluster_destroy", None, pointer)
    _declare(library, "rd_kafka_mock_cluster_bootstraps", text, pointer)
    _declare(library, "rd_kafka_mock_group_initial_rebalance_delay_ms", None, pointer, ctypes.c_int32)
    return library


def _declare(library: ctypes.CDLL, name: str, result: Any, *arguments: Any) -> None:
    function = getattr(library, name)
    function.restype, function.argtypes = result, list(arguments)


class EmbeddedBrokerError(Exception):
    """The embedded broker did not do what it was asked for."""


class EmbeddedBroker:
    """A mock Kafka cluster of one broker on a free port of 127.0.0.1, alive from start() to stop()."""

    def __init__(self) -> None:
        self._client = self._cluster = None
        self._bootstrap = ""

    @property
    def bootstrap(self) -> str:
        """The address for `bootstrap_servers`, as host:port. Raises EmbeddedBrokerError: The broker does not run."""
        if not self._bootstrap:
            raise EmbeddedBrokerError("the embedded broker is not running: call start() first")
        return self._bootstrap

    def start(self) -> str:
        """Start the broker, unless it runs, and return its address.

        Raises EmbeddedBrokerError: The confluent-kafka package has no usable librdkafka, or it refuses.
        """
        if self._bootstrap:
            return self._bootstrap
        library, text = _library(), ctypes.create_string_buffer(_TEXT_BYTES)
        settings = library.rd_kafka_conf_new()
        library.rd_kafka_conf_set(settings, b"log_level", b"3", text, _TEXT_BYTES)
        self._client = library.rd_kafka_new(_PRODUCER, settings, text, _TEXT_BYTES)
        if not self._client:
            raise EmbeddedBrokerError(f"librdkafka did not start: {text.value.decode()}")
        self._cluster = library.rd_kafka_mock_cluster_new(self._client, 1)
        if not self._cluster:
            library.rd_kafka_destroy(self._client)
            raise EmbeddedBrokerError("librdkafka did not start a mock cluster: is 127.0.0.1 available?")
        library.rd_kafka_mock_group_initial_rebalance_delay_ms(self._cluster, 0)
        self._bootstrap = library.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()
        return self._bootstrap

    def ensure_topics(self, names: Iterable[str], timeout_s: float = 10.0) -> None:
        """Bring topics into being; one that exists stays as it is.

        Raises EmbeddedBrokerError: A topic did not come up, or not with the expected partitions.
        """
        from confluent_kafka import Producer

        quiet = logging.getLogger("fleethpa.lab.simulator.broker.librdkafka")
        asker = Producer({"bootstrap.servers": self.bootstrap, "log_level": 3}, logger=quiet)
        for name in names:
            topic = asker.list_topics(name, timeout=timeout_s).topics[name]
            if topic.error is not None or len(topic.partitions) != EMBEDDED_PARTITIONS:
                reason = topic.error or f"{len(topic.partitions)} partitions, not {EMBEDDED_PARTITIONS}"
                raise EmbeddedBrokerError(f"topic {name} on the embedded broker at {self.bootstrap}: {reason}")

    def stop(self) -> None:
        """End the broker; all that it held is gone."""
        if self._bootstrap:
            self._bootstrap = ""
            _library().rd_kafka_mock_cluster_destroy(self._cluster)
            _library().rd_kafka_destroy(self._client)

    def __enter__(self) -> EmbeddedBroker:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
