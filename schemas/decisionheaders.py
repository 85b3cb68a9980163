"""The headers of a record of decisions: its form, and the cluster that it is about."""

from schemas.topics import Headers

FULL_TYPE = "io.fleethpa.decision.v1"
SHORT_TYPE = "io.fleethpa.decision.short.v1"
"""`ce_type` of a full record, and of one that repeats a full one but for its values."""
_SHORT = SHORT_TYPE.encode()
_SOURCE = "/clusters/"


def source_header(cluster: str) -> tuple[str, bytes]:
    """The header that names the cluster."""
    return "ce_source", f"{_SOURCE}{cluster}".encode()


def cluster_of(headers: Headers) -> str:
    """The cluster that a record is about; empty: the headers do not say."""
    return dict(headers).get("ce_source", b"").decode(errors="replace").removeprefix(_SOURCE)


def is_short(headers: Headers) -> bool:
    """Whether a record repeats a full one but for its values."""
    return dict(headers).get("ce_type") == _SHORT
