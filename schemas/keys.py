"""Identities, names of observer sessions, and the one partition function.

The log and the decisions are keyed by `cluster/namespace`; an HPA is `cluster/namespace/name`. A session is
`instance@epoch`, so that a restarted observer supersedes its own dead session.
"""

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
