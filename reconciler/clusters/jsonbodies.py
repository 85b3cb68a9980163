"""JSON bodies of requests to API servers and of their answers."""

import json
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from reconciler.clusters.clustererrors import ApiError, UnreachableError
from reconciler.core.jsonreading import read_json
from schemas.wholenumbers import whole_number

T = TypeVar("T")


def read_object(data: bytes, asked: str) -> dict[str, Any]:
    """Read the body of an answer.

    Raises:
        UnreachableError: it is not a JSON object: something else answered.
    """
    try:
        found = read_json(data)
    except ValueError as error:
        raise UnreachableError(f"{asked}: the answer is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise UnreachableError(f"{asked}: the answer is not a JSON object")
    return found


def read_as(form: type[T], data: bytes, asked: str) -> T:
    """Read the body of an answer as a type.

    Raises:
        UnreachableError: it is not a JSON object.
        ValueError: it is not of this form.
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
    """Read an event of a watch.

    Raises:
        ApiError: it is an ERROR event.
        UnreachableError: it is not an event.
    """
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
