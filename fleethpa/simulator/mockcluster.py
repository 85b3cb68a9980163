"""librdkafka's mock cluster through its C interface, from the library that the confluent-kafka wheel carries.

The Python client can start one as well, but not set how long a new consumer group waits for members (3 s).
Source: rdkafka_mock.h of librdkafka 2.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import confluent_kafka

_PRODUCER: Final = 0
_TEXT_BYTES: Final = 512


class MockClusterError(Exception):
    """The library is not there, or refuses."""


class MockCluster:
    """One broker on a free port of 127.0.0.1, from construction to close()."""

    def __init__(self, *, rebalance_delay_ms: int = 0) -> None:
        self._library = _library()
        text = ctypes.create_string_buffer(_TEXT_BYTES)
        settings = self._library.rd_kafka_conf_new()
        self._library.rd_kafka_conf_set(settings, b"log_level", b"3", text, _TEXT_BYTES)
        self._client = self._library.rd_kafka_new(_PRODUCER, settings, text, _TEXT_BYTES)
        if not self._client:
            raise MockClusterError(f"librdkafka did not start: {text.value.decode()}")
        self._cluster = self._library.rd_kafka_mock_cluster_new(self._client, 1)
        if not self._cluster:
            self._library.rd_kafka_destroy(self._client)
            raise MockClusterError("librdkafka did not start a mock cluster: is 127.0.0.1 available?")
        self._library.rd_kafka_mock_group_initial_rebalance_delay_ms(self._cluster, rebalance_delay_ms)
        self.bootstrap: str = self._library.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()

    def close(self) -> None:
        """End the broker; only once."""
        self._library.rd_kafka_mock_cluster_destroy(self._cluster)
        self._library.rd_kafka_destroy(self._client)


@lru_cache(maxsize=1)
def _library() -> Any:
    package = Path(confluent_kafka.__file__).parent
    # Linux wheels keep their libraries beside the package, macOS wheels inside it.
    folders = (package.parent / "confluent_kafka.libs", package / ".dylibs")
    found = [file for folder in folders if folder.is_dir() for file in sorted(folder.glob("librdkafka*"))]
    if not found:
        raise MockClusterError(f"no librdkafka in {folders[0]}: install confluent-kafka from its wheel")
    library = ctypes.CDLL(str(found[0]))
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
