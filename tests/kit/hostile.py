"""Records that nobody of good will sends: those of every kind, with some values replaced, left out or repeated."""

import json
import random
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import orjson

from streams.ingest import convert
from streams.ingest.preflight import example

GOLDEN = Path(__file__).parents[1] / "golden" / "public"
RECORDS = [path.read_bytes() for path in sorted(GOLDEN.glob("*.json"))]
SAMPLES = [example(format_) for format_ in (convert.OTLP_JSON, convert.SAMPLE)]
_NUMBERS = [0, -1, 2**31, 2**53, 2**63 - 1, -(2**63), 2**63, 2**64 - 1, 1e308, -0.0, 1.5, 253_402_300_800_000]
_TEXTS = [
    "",
    "*",
    "a" * 300,
    "x" * 5_000,
    "\x1b[31m\u202e",
    "\x00",
    "\ud7ff",
    "1e309",
    "9" * 400,
    "1E1000000000",
    "a/b",
]
_TIMES = ["0000-01-01", "9999-12-31T23:59:59Z"]
_OTHERS: list[Any] = [None, True, [], {}, [[]], [None] * 3, {"": ""}, {"a": {"b": [1]}}]
_VALUES: list[Any] = [*_NUMBERS, *_TEXTS, *_TIMES, *_OTHERS]


def hostile_record(chosen: random.Random) -> bytes:
    """Give one record, mostly JSON; about half of them have a single fault."""
    document = orjson.loads(chosen.choice([*RECORDS, *SAMPLES]))
    for _ in range(chosen.choice((1, 1, 1, 2, 3, 6))):
        place = chosen.choice(list(places(document)))
        _spoil(chosen, document, place)
    value = json.dumps(document, ensure_ascii=chosen.random() < 0.7).encode()
    if chosen.random() < 0.05:
        value = value[: chosen.randrange(len(value))]
    return value


def places(value: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The keys and indices that lead to each value within another."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in items:
        yield (*before, key)
        yield from places(part, (*before, key))
    if not before and not items:
        yield ("v",)


def _spoil(chosen: random.Random, document: Any, place: tuple[Any, ...]) -> None:
    parent, key = document, place[-1]
    for each in place[:-1]:
        parent = parent[each]
    what = chosen.random()
    if what < 0.6:
        parent[key] = deepcopy(chosen.choice(_VALUES))
    elif what < 0.7:
        parent.pop(key, None) if isinstance(parent, dict) else parent.pop(key)
    elif what < 0.8 and isinstance(parent, list):
        parent.extend([deepcopy(parent[key])] * chosen.choice((1, 80)))
    else:
        other = orjson.loads(chosen.choice(RECORDS))
        for each in chosen.choice(list(places(other))):
            other = other[each]
        parent[key] = other
