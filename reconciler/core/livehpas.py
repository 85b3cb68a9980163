"""The status of an HPA: whether it is to be written, and the body of the request.

A short record differs from the full one that it repeats in the values of its metrics alone. So the text of the last
written status is kept, cut where the values are, and the next one is this text with other values: the same bytes as the
decision, expanded and encoded, would give (`tests/unit/core/test_reconcile_status.py`), at a tenth of the time.
"""

from collections.abc import Mapping
from itertools import chain, zip_longest
from typing import Any

import msgspec
from msgspec import Raw, Struct, structs

from schemas.codec import encode, encode_to_keep
from schemas.decisions import Decision, ShortDecision, format_of
from schemas.kubernetes.quantity import Format, QuantityError, equal_quantity_text, format_milli

_QUANTITIES = frozenset({"value", "averageValue"})
_HEAD = b'{"apiVersion":"autoscaling/v2","kind":"HorizontalPodAutoscaler","metadata":'
_CUT = "\0"
"""Marks a place in JSON that is being made: JSON has no such character."""


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


class _ValueForm(Struct, frozen=True, gc=False):
    """How the value of a metric is written: its text, cut where the quantity is, without the closing brace."""

    text: str
    format: Format


class _StatusForm(Struct, frozen=True, gc=False):
    """The text of the status of full record `of`, cut where short records put their values."""

    of: str
    parts: tuple[bytes, ...]
    values: tuple[_ValueForm, ...]


class LiveHpa(Struct, frozen=True, gc=False):
    """An HPA as it is kept for the next write of its status: encoded, a quarter of the size of its objects.

    `before` and `after` are its JSON around the resource version, up to the status. The status is `status`, or where it
    is one that fleethpa wrote, `form` with `values`.
    """

    uid: str
    before: bytes
    version: str
    after: bytes
    status: bytes
    form: _StatusForm | None = None
    values: tuple[bytes, ...] = ()


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
    metadata["resourceVersion"] = Raw(_CUT.encode())
    before, after = encode(metadata).split(_CUT.encode())
    return LiveHpa(
        uid, before, version, b"".join((after, b',"spec":', answer.spec, b',"status":')), bytes(answer.status)
    )


def body_of(live: LiveHpa) -> bytes:
    """The HPA to PUT to `/status`, with the resource version that was seen last."""
    return b"".join((_HEAD, live.before, encode(live.version), live.after, status_of(live), b"}"))


def status_of(live: LiveHpa) -> bytes:
    if live.form is None:
        return live.status
    return b"".join(chain.from_iterable(zip_longest(live.form.parts, live.values, fillvalue=b"")))


def written(live: LiveHpa, answer: VersionAnswer) -> LiveHpa:
    """The HPA after its status was written. Whatever else differs in the answer was written by somebody else before
    the resource version that the write was made on, and is kept already.

    Raises ValueError: the answer has no resource version.
    """
    if not answer.metadata.version:
        raise ValueError("it has no resource version")
    return structs.replace(live, version=answer.metadata.version)


def with_values(live: LiveHpa, short: ShortDecision) -> LiveHpa | None:
    """The HPA with the status of a short record; None where not only values of the written status change, or where
    this is not known.
    """
    form = live.form
    if form is None or form.of != short.same_as or (form.values and len(form.values) != len(short.m)):
        return None
    values = []
    for each, (value, utilization, *_) in zip(form.values, short.m, strict=False):
        if value is None:
            return None
        text = each.text.replace(_CUT, format_milli(value, each.format))
        values.append(
            (f'{text},"averageUtilization":{utilization}}}' if utilization is not None else text + "}").encode()
        )
    return LiveHpa(live.uid, live.before, live.version, live.after, b"", form, tuple(values))


def status_update(decision: Decision, live: LiveHpa, full_id: str = "") -> LiveHpa | None:
    """The HPA with the status of a decision; None where nothing is to be written.

    An HPA of another uid is another HPA: nothing is written to it.

    Args:
        full_id: of the full record, which the decision is or repeats.
    """
    status = decision.status
    if status is None or live.uid != decision.uid:
        return None
    if same_status(_decoded(status_of(live)) or {}, status):
        return None
    form, values = _form_of(decision, full_id or decision.id)
    return structs.replace(live, status=b"" if form else encode_to_keep(status), form=form, values=values)


def _form_of(decision: Decision, full_id: str) -> tuple[_StatusForm | None, tuple[bytes, ...]]:
    """How short records write the status of their full one (`schemas.decisions.expand`), and its own values; None where
    a metric has no values.
    """
    status = decision.status or {}
    current = status.get("currentMetrics") or []
    if not current or len(current) != len(decision.metrics):
        return _StatusForm(full_id, (encode_to_keep(status),), ()), ()
    shown, forms, values = [], [], []
    for each in current:
        key = next((key for key in each if key != "type"), None)
        names = [] if key is None else [name for name in each[key]["current"] if name != "averageUtilization"]
        if key is None or not names or not _QUANTITIES.issuperset(names):
            return None, ()
        text = "{" + ",".join(f'"{name}":"{_CUT}"' for name in names)
        forms.append(_ValueForm(text, format_of(each[key])))
        values.append(encode_to_keep(each[key]["current"]))
        shown.append({**each, key: {**each[key], "current": Raw(_CUT.encode())}})
    parts = encode({**status, "currentMetrics": shown}).split(_CUT.encode())
    return _StatusForm(full_id, tuple(parts), tuple(forms)), tuple(values)


def _decoded(status: bytes) -> Any:
    try:
        return msgspec.json.decode(status)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None  # fleethpa writes valid UTF-8 only, so somebody else wrote this status


def same_status(left: Any, right: Any) -> bool:
    """Whether two statuses mean the same: an absent, null and empty field are one, quantities equal by value."""
    if left == right:  # as most parts of most statuses are, from one write to the next
        return True
    if isinstance(left, Mapping) and isinstance(right, Mapping):
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
