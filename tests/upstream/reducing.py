"""A case that differs, made smaller as long as it does."""

import copy
from collections.abc import Iterator
from typing import Any

from schemas.kubernetes.shape import Json
from tests.conformance.compare import attempt
from tests.conformance.filekinds import SPLIT_CHECKS, kind_of
from tests.kubernetes.binaries import Build
from tests.upstream.answering import answered

ROUNDS = 60
_NEEDED = frozenset(
    {"id", "controller", "hpa", "templates", "ticks", "in", "t", "spec", "status", "labels", "kind", "version"}
)
"""What a case cannot be without."""


def reduced(case: Json, build: Build) -> Json:
    """Return the smallest case that was found to differ still, with upstream's answers."""
    kind = _difference(case)
    for _ in range(ROUNDS):
        smaller = next((each for each in answered(list(_smaller(case)), build) if _difference(each) == kind), None)
        if smaller is None:
            return case
        case = smaller
    return case


def _difference(case: Json) -> str:
    """Tell how a case differs: not at all, in its answer, or because one of the two cannot answer it."""
    if "panic" in case:
        return "upstream's panic"
    check = SPLIT_CHECKS[kind_of(case, None)]
    found = attempt(lambda: next(check([case], 1))[1])
    return ("" if not found else "answer") if all(path for path, *_ in found) else "no answer"


def _smaller(case: Json) -> Iterator[Json]:
    """Yield the case without each of its parts in turn: half of the ticks, a tick, a pod, a policy, a field."""
    ticks = case.get("ticks")
    if ticks and len(ticks) > 1:
        half = len(ticks) // 2
        yield case | {"ticks": ticks[:half]}
        yield case | {"ticks": ticks[half:]}
    for path in _paths(case, ()):
        made = copy.deepcopy(case)
        holder: Any = made
        for step in path[:-1]:
            holder = holder[step]
        del holder[path[-1]]
        if path[-2:-1] == ("metrics",) and path[0] == "hpa":
            for tick in made["ticks"]:
                if len(tick["in"].get("metrics") or ()) > path[-1]:
                    del tick["in"]["metrics"][path[-1]]
        yield made


def _paths(value: Any, path: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """Yield the places of all parts that can be left out, larger ones first."""
    pairs: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    inside = [(key, each) for key, each in pairs if key not in ("out", "memory")]
    yield from ((*path, key) for key, _ in inside if key not in _NEEDED)
    for key, each in inside:
        yield from _paths(each, (*path, key))
