"""The recorded cases of the controller: what fresh ones are made from, and what proves the compiled code."""

import gzip
from collections.abc import Sequence
from pathlib import Path

import orjson

from schemas.kubernetes.shape import Json

DATA = Path(__file__).parents[1] / "conformance" / "data"
FILES = ("controller-random", "controller-boundary", "controller-trace", "calculator")


def recorded() -> list[Json]:
    """Return all recorded cases of this version, with the answers."""
    files = [gzip.decompress((DATA / f"{name}.jsonl.gz").read_bytes()) for name in FILES]
    return [orjson.loads(line) for file in files for line in file.splitlines()]


def unlike(known: Sequence[Json], answers: Sequence[Json]) -> list[str]:
    """Return the names of those that the compiled code answers otherwise than recorded."""
    return [case["id"] for case, answer in zip(known, answers, strict=True) if case != answer]
