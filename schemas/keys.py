"""Identities, names of observer sessions, and the one partition function.

The log and the decisions are keyed by `cluster/namespace`; an HPA is `cluster/namespace/name`. A session is
`instance@epoch`, so that a restarted observer supersedes its own dead session.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Final, NamedTuple


class SessionName(NamedTuple):
    """One run of an observer. `epoch`: when it began (ns since 1970), so that a later one of `instance` is higher."""

    instance: str
    epoch: int

    def __str__(self) -> str:
        return f"{self.instance}@{self.epoch}"


_MAX_DIGITS = 4_300
"""Python reads no integer with more digits."""


def parse_session(text: str) -> SessionName | None:
    """Read a session's name; None: it has no epoch, so its place among others is not known."""
    instance, _, epoch = text.rpartition("@")
    is_number = epoch.isascii() and epoch.isdecimal() and len(epoch) <= _MAX_DIGITS
    return SessionName(instance, int(epoch)) if instance and is_number else None


def supersedes(newer: str, older: str) -> bool:
    """Whether `newer` is a later session of the same instance as `older`, which has therefore ended."""
    one, other = parse_session(newer), parse_session(older)
    return one is not None and other is not None and one.instance == other.instance and one.epoch > other.epoch


FLEET: Final = "@fleet"
"""Stands in place of a cluster in the identity of a FleetHPA, `@fleet/namespace/name`. No cluster can be called so."""
EVERY_CLUSTER = "*"
"""What settings and commands name instead of a cluster where they are about all of them."""
_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


class HpaId(NamedTuple):
    """The identity of an HPA: which cluster, namespace and name."""

    cluster: str
    namespace: str
    name: str

    @property
    def namespace_key(self) -> str:
        """The key of the log and decision records of this HPA."""
        return namespace_key(self.cluster, self.namespace)

    def __str__(self) -> str:
        return f"{self.cluster}/{self.namespace}/{self.name}"


def namespace_key(cluster: str, namespace: str) -> str:
    """Key of the log and the decisions: `cluster/namespace`."""
    return f"{cluster}/{namespace}"


def split_namespace_key(key: str) -> tuple[str, str]:
    """The inverse of `namespace_key`.

    Raises ValueError: the key is not of the form `cluster/namespace` with both parts non-empty.
    """
    cluster, slash, namespace = key.partition("/")
    if not (cluster and slash and namespace) or "/" in namespace:
        raise ValueError(f"key must be cluster/namespace, got {key!r}")
    return cluster, namespace


def parse_hpa_id(text: str) -> HpaId:
    """Read `cluster/namespace/name`. Raises ValueError: not three non-empty parts."""
    parts = text.split("/")
    if len(parts) != 3 or not all(parts):
        raise ValueError(f"an HPA is cluster/namespace/name, got {text!r}")
    return HpaId(*parts)


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
    found: dict[int, list[str]] = {}
    for name in namespaces:
        found.setdefault(partition_for(namespace_key(cluster, name), partitions), []).append(name)
    return found


@lru_cache(maxsize=65_536)
def partition_for(key: str, partitions: int) -> int:
    """The partition of a `cluster/namespace` key, the same that Kafka's default partitioner picks.

    Args:
        key: `cluster/namespace`.
        partitions: partition count of the log, fixed for life.
    """
    return (murmur2(key.encode()) & 0x7FFFFFFF) % partitions
