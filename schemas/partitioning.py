"""Which partition of a topic a key goes to, as Kafka's default partitioner has it."""

from collections.abc import Iterable
from functools import lru_cache

from schemas.keys import namespace_key

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Kafka's murmur2 of a key, as an unsigned 32-bit integer.

    Source: org.apache.kafka.common.utils.Utils.murmur2 (seed 0x9747b28c).
    """
    length = len(data)
    h = (_SEED ^ length) & _MASK
    whole = length & ~3
    for i in range(0, whole, 4):
        k = int.from_bytes(data[i : i + 4], "little") * _M & _MASK
        k = (k ^ (k >> 24)) * _M & _MASK
        h = (h * _M & _MASK) ^ k
    if tail := data[whole:]:
        h = (h ^ int.from_bytes(tail, "little")) * _M & _MASK
    h = (h ^ (h >> 13)) * _M & _MASK
    return h ^ (h >> 15)


def by_partition(cluster: str, namespaces: Iterable[str], partitions: int) -> dict[int, list[str]]:
    """Partition → those of a cluster's namespaces that are in it, in their order."""
    by_number: dict[int, list[str]] = {}
    for name in namespaces:
        by_number.setdefault(partition_for(namespace_key(cluster, name), partitions), []).append(name)
    return by_number


@lru_cache(maxsize=65_536)
def partition_for(key: str, partitions: int) -> int:
    """The partition of a `cluster/namespace` key, the same that Kafka's default partitioner picks.

    Args:
        key: `cluster/namespace`.
        partitions: partition count of the log, fixed for life.
    """
    return (murmur2(key.encode()) & 0x7FFFFFFF) % partitions
