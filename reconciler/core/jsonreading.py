"""JSON that an API server sent, of which nothing is taken for granted. No I/O."""

import json
from typing import Any

import msgspec

from schemas.kubernetes.shape import well_formed


def read_json(data: bytes) -> Any:
    """Read JSON as upstream's decoder does: half a surrogate pair, which no encoder takes, is a replacement character.

    What msgspec refuses, Python's own reader is asked for.

    Raises:
        ValueError: it is not JSON, or nested so deeply that it can be nothing of Kubernetes.
    """
    try:
        try:
            return msgspec.json.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return _well_formed(json.loads(data))
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _well_formed(value: Any) -> Any:
    if isinstance(value, str):
        return well_formed(value)
    if isinstance(value, list):
        return [_well_formed(each) for each in value]
    if isinstance(value, dict):
        return {well_formed(name): _well_formed(each) for name, each in value.items()}
    return value
