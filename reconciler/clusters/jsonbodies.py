"""JSON bodies of requests to API servers and of their answers."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec import Raw, Struct

from reconciler.clusters.clustererrors import ApiError, UnreachableError
from reconciler.core.apierrors import read_json
from schemas.texts import whole_number

T = TypeVar("T")


def read_object(data: bytes, asked: str) -> dict[str, Any]:
    """Read the body of an answer. Raises UnreachableError: it is not a JSON object: something else answered."""
    try:
        found = read_json(data)
    except ValueError as error:
        raise UnreachableError(f"{asked}: the answer is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise UnreachableError(f"{asked}: the answer is not a JSON object")
    return found


class ListPage(NamedTuple):
    """A page of a list: its metadata, and its items, each of which becomes an object when it is its turn."""

    metadata: dict[str, Any]
    items: Iterator[Any]


class _PageForm(Struct, gc=False):
    metadata: Any = None
    items: list[Raw] | None = None


def read_page(data: bytes, asked: str) -> ListPage:
    """Read the body of a page of a list. Its items may raise what this raises.

    Raises UnreachableError: it is not an object of Kubernetes: something else answered.
    """
    items: Iterator[Any]
    try:
        page = msgspec.json.decode(data, type=_PageForm)
        metadata, items = page.metadata, (_item(raw, asked) for raw in page.items or ())
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        found = read_object(data, asked)
        metadata, items = found.get("metadata"), iter(found.get("items") or ())
    return ListPage(known_metadata(metadata, asked, data[:200].decode(errors="replace")), items)


def _item(raw: Raw, asked: str) -> Any:
    try:
        return read_json(bytes(raw))
    except ValueError as error:
        raise UnreachableError(f"{asked}: the answer is not JSON: {error}") from error


def known_metadata(metadata: Any, asked: str, answer: str) -> dict[str, Any]:
    """The metadata of an object or a list, which always has a resource version.

    Raises UnreachableError: it is none: something else answered, such as a proxy with a page of its own.
    """
    if not (isinstance(metadata, dict) and metadata.get("resourceVersion")):
        raise UnreachableError(f"{asked}: the answer is not an object of Kubernetes: {answer}")
    return metadata


def read_as(form: type[T], data: bytes, asked: str) -> T:
    """Read the body of an answer as a type.

    Raises UnreachableError: it is not a JSON object. Raises ValueError: it is not of this form.
    """
    try:
        return msgspec.json.decode(data, type=form)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # Written anew, because a form may keep parts of the answer as they are (`Raw`).
        return msgspec.json.decode(encoded(read_object(data, asked)), type=form)


def encoded(body: Mapping[str, Any]) -> bytes:
    """Write JSON; half a surrogate pair is escaped."""
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError:
        return json.dumps(body).encode()


def watch_event(line: bytes) -> dict[str, Any]:
    """Read an event of a watch. Raises ApiError: it is an ERROR event. Raises UnreachableError: it is not an event."""
    try:
        event = read_json(line)
        kind, found = event["type"], event["object"]
        _ = (found["metadata"] if kind != "ERROR" else found).keys()
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UnreachableError(f"watch: an event is not what it should be: {error}") from error
    if kind == "ERROR":
        code = whole_number(str(found.get("code")))
        raise ApiError(code or 500, str(found.get("message") or found), reason=str(found.get("reason") or ""))
    return dict(event)
