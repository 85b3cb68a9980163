"""The one reader of JSON that others wrote: answers of API servers, what plugins print, what Secrets and files hold."""

import json
from typing import Any

import msgspec

from schemas.kubernetes.decoding import well_formed
from schemas.limits import JSON_DEPTH


def read_json(data: bytes | str) -> Any:
    """Read JSON as upstream's decoder does: half a surrogate pair, which no encoder takes, is a replacement character.

    What msgspec refuses, Python's own reader is asked for.

    Raises ValueError: it is not JSON, or nested so deeply that it can be nothing of Kubernetes.
    """
    try:
        try:
            return msgspec.json.decode(data)
        except (msgspec.DecodeError, UnicodeError):
            return _well_formed(json.loads(data))
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def read_document(data: bytes | str) -> Any:
    """Read JSON that is kept. Raises ValueError: as `read_json`, or it is nested too deeply (`check_depth`)."""
    document = read_json(data)
    check_depth(document)
    return document


def check_depth(value: Any) -> None:
    """Check a value that is kept and compared later, which takes as deep a stack as reading it did.

    Raises ValueError: it is deeper than JSON_DEPTH.
    """
    level, depth = [value], 0
    while level := [each for one in level for each in _parts(one)]:
        depth += 1
        if depth > JSON_DEPTH.most:
            raise ValueError(f"it is nested too deeply: the limit is {JSON_DEPTH.most} levels")


def _parts(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _well_formed(value: Any) -> Any:
    if isinstance(value, str):
        return well_formed(value)
    if isinstance(value, list):
        return [_well_formed(each) for each in value]
    if isinstance(value, dict):
        return {well_formed(name): _well_formed(each) for name, each in value.items()}
    return value
