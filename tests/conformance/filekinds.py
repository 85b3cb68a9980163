"""Tell what a conformance file holds by its content, never by its name."""

from collections.abc import Callable, Iterable, Iterator

from schemas.kubernetes.shape import Json
from tests.conformance import calculatorcases, metricsclientcases, scenarios
from tests.conformance.compare import AnswerDifference
from tests.conformance.vectorerrors import UnknownFileKindError

FileCheck = Callable[[Iterable[Json]], Iterator[tuple[int, list[AnswerDifference]]]]
SplitCheck = Callable[[Iterable[Json], int], Iterator[tuple[int, list[AnswerDifference]]]]

RECORDING = "recording"
API_KINDS = ("quantity", "defaulting", "validation", "conversion", "selectors", "kubectl")

SPLIT_CHECKS: dict[str, SplitCheck] = {"controller": scenarios.check, "calculator": calculatorcases.check}
"""Kinds of the controller whose cases have pods, which can be split over so many clusters."""

CHECKS: dict[str, FileCheck] = {"metrics-client": metricsclientcases.check}
"""Kinds below the controller, without pods."""

STANDALONE = frozenset({*SPLIT_CHECKS, *CHECKS, "quantity", "defaulting", "validation", "conversion"})
"""Kinds whose cases stand alone, so that chunks of a file can be checked by different processes."""


def kind_of(first: Json, second: Json | None) -> str:
    """Name the kind of a file by its first two lines.

    Raises:
        UnknownKindError: the lines are of no known kind, or of a part of a recording that is not its syncs.
    """
    if "ticks" in first:
        return "controller"
    if "currentReplicas" in first and "metric" in first:
        return "calculator"
    if "response" in first:
        return "metrics-client"
    if first.get("type") == "header":
        return _recording(second)
    return _api(first)


def _recording(second: Json | None) -> str:
    if second is not None and second.get("type") == "sync":
        return RECORDING
    raise UnknownFileKindError(
        "this is a part of a recording; give its NAME-syncs.jsonl.gz, the others are read beside it"
    )


def _api(first: Json) -> str:
    if "labelSets" in first:
        return "selectors"
    if "op" in first:
        return "validation"
    if "from" in first:
        return "conversion"
    if first.get("kind") in ("describe", "get", "age"):
        return "kubectl"
    if "fromMilli" in first or "cmp" in first or isinstance(first.get("in"), str):
        return "quantity"
    if isinstance(first.get("in"), dict) and "out" in first:
        return "defaulting"
    raise UnknownFileKindError(f"no known kind of case: its first line has the keys {', '.join(sorted(first))}")
