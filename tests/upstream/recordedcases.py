"""The recorded cases of this version: what fresh ones are made from, and what proves the compiled code."""

import gzip
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import orjson

from schemas.kubernetes.shape import Json
from tests.conformance import emptylists

DATA: Final = Path(__file__).parents[1] / "conformance" / "data"
OF_CONTROLLER: Final = (
    "controller-random",
    "controller-boundary",
    "controller-trace",
    "controller-compiled",
    "calculator",
)
OF_API: Final = ("metrics-client", "api-defaulting", "api-conversion", "api-validation", "api-selectors")
ANSWERS: Final = frozenset(
    {
        *(
            "out",
            "error",
            "request",
            "errors",
            "handwritten",
            "message",
            "generation",
            "v1",
            "v2",
            "v1Again",
            "v2Again",
        ),
        *("string", "empty", "matches", "printed", "formatted"),
    }
)
"""What upstream answers in a file of the API."""


def recorded(names: Iterable[str]) -> list[Json]:
    """Return the recorded cases of these files, with the answers."""
    files = [gzip.decompress((DATA / f"{name}.jsonl.gz").read_bytes()) for name in names]
    return [orjson.loads(line) for file in files for line in file.splitlines()]


def questions(case: Json) -> Json:
    """Return a case of the API without its answers."""
    return {key: value for key, value in case.items() if key not in ANSWERS}


def unlike(known: Sequence[Json], answers: Sequence[Json]) -> list[Json]:
    """Return the recorded cases that the compiled code answers otherwise.

    Not those of validation that lost an empty list of policies on their way into the file, which nobody can answer so.
    """
    pairs = zip(known, answers, strict=True)
    return [case for case, answer in pairs if _with_lists(case) != _with_lists(answer) and not _lost_a_list(case)]


def _with_lists(case: Json) -> Json:
    return case | {name: case[name] or [] for name in ("errors", "handwritten") if name in case}


def _lost_a_list(case: Json) -> bool:
    return case.get("op") is not None and any(True for _ in emptylists.restored(case, case))
