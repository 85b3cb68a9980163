"""The status of an HPA: whether it is to be written, and the body of the request."""

from typing import Any

import msgspec
from msgspec import Raw, Struct, structs

from schemas.codec import encode, encode_to_keep
from schemas.decisions import Decision
from schemas.kubernetes.quantity import QuantityError, equal_quantity_text
from schemas.kubernetes.shape import HPA_HEAD

_QUANTITIES = frozenset({"value", "averageValue"})


class HpaAnswer(Struct, frozen=True, gc=False):
    """An HPA in an answer of an API server, of which only the names of its metadata are decoded."""

    metadata: dict[str, Raw]
    spec: Raw = Raw(b"{}")
    status: Raw = Raw(b"null")


class _Version(Struct, frozen=True, gc=False):
    version: str = msgspec.field(name="resourceVersion")


class VersionAnswer(Struct, frozen=True, gc=False):
    """What is needed of the answer to a write: the version that the next one is made on."""

    metadata: _Version


class LiveHpa(Struct, frozen=True, gc=False):
    """An HPA as it is kept for the next write of its status: encoded, a quarter of the size of its objects.

    `metadata` is without managed fields, and has the resource version that was seen last.
    """

    uid: str
    metadata: bytes
    spec: bytes
    status: bytes


def live_hpa(answer: HpaAnswer) -> LiveHpa:
    """Keep an HPA without its managed fields, which are half of it.

    The API server takes those of the stored object at a write of a subresource, whatever is sent. Source: apimachinery
    pkg/util/managedfields/internal/fieldmanager.go `decodeLiveOrNew`.

    Raises ValueError: it is not an object of Kubernetes: it has no uid or no resource version.
    """
    metadata = {name: value for name, value in answer.metadata.items() if name != "managedFields"}
    uid, version = (msgspec.json.decode(metadata.get(name, Raw(b"null"))) for name in ("uid", "resourceVersion"))
    if not (isinstance(uid, str) and version and isinstance(version, str)):
        raise ValueError("it has no uid or no resource version")
    return LiveHpa(uid, encode_to_keep(metadata), bytes(answer.spec), bytes(answer.status))


def body_of(live: LiveHpa) -> bytes:
    """The HPA to PUT to `/status`, with the resource version that was seen last."""
    return encode(HPA_HEAD | {"metadata": Raw(live.metadata), "spec": Raw(live.spec), "status": Raw(live.status)})


def written(live: LiveHpa, version: str) -> LiveHpa:
    """The HPA after its status was written. Whatever else differs in the answer was written by somebody else before
    the resource version that the write was made on, and is kept already.

    Raises ValueError: the answer has no resource version.
    """
    if not version:
        raise ValueError("it has no resource version")
    metadata = msgspec.json.decode(live.metadata, type=dict[str, Raw])
    metadata["resourceVersion"] = Raw(encode(version))
    return structs.replace(live, metadata=encode_to_keep(metadata))


def status_update(status: bytes, uid: str, live: LiveHpa) -> LiveHpa | None:
    """Return the HPA with the status of a decision (JSON; empty: it has none); None: nothing is to be written.

    An HPA of another uid is another HPA: nothing is written to it.
    """
    if not status or live.uid != uid or live.status == status:
        return None
    if same_status(_decoded(live.status) or {}, _decoded(status)):
        return None
    return structs.replace(live, status=status)


def _decoded(status: bytes) -> Any:
    try:
        return msgspec.json.decode(status)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None  # fleethpa writes valid UTF-8 only, so somebody else wrote this status


def same_status(left: Any, right: Any) -> bool:
    """Whether two statuses mean the same: an absent, null and empty field are one, quantities equal by value."""
    if left == right:  # as most parts of most statuses are, from one write to the next
        return True
    if isinstance(left, dict) and isinstance(right, dict):
        for key in {**left, **right}:
            a, b = left.get(key), right.get(key)
            if a != b and not _same_field(key, a, b):
                return False
        return True
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same_status, left, right))
    return _is_empty(left) and _is_empty(right)


def _same_field(key: str, left: Any, right: Any) -> bool:
    if not (left and right):
        return _is_empty(left) and _is_empty(right)
    if key in _QUANTITIES and isinstance(left, str) and isinstance(right, str):
        return _same_quantity(left, right)
    return same_status(left, right)


def _same_quantity(left: str, right: str) -> bool:
    try:
        return equal_quantity_text(left, right)
    except QuantityError:
        return False  # none that fleethpa writes


def _is_empty(value: Any) -> bool:
    return value in (None, [], {}, 0)


def wants_status(decision: Decision) -> bool:
    """Whether this decision is to be shown in its HPA's status."""
    return has_result(decision) and decision.origin == "cluster" and decision.status is not None


def has_result(decision: Decision) -> bool:
    """Whether status and Events of the HPA are fleethpa's to write."""
    return decision.mode == "enforce" or decision.shows_refusal
