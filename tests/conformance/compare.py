"""Compare two JSON values and say where they differ."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

AnswerDifference = tuple[str, Any, Any]
"""(path, upstream's value, ours)"""

ABSENT = "(absent)"


def differences(upstream: Any, ours: Any, path: str = "") -> Iterator[AnswerDifference]:
    """Give every place where the values differ, deepest first; types count (1 is not 1.0 or True)."""
    if isinstance(upstream, dict) and isinstance(ours, dict):
        for key in sorted(upstream.keys() | ours.keys()):
            yield from differences(upstream.get(key, ABSENT), ours.get(key, ABSENT), f"{path}.{key}" if path else key)
    elif isinstance(upstream, list) and isinstance(ours, list) and len(upstream) == len(ours):
        for index, (theirs, mine) in enumerate(zip(upstream, ours, strict=True)):
            yield from differences(theirs, mine, f"{path}[{index}]")
    elif type(upstream) is not type(ours) or upstream != ours:
        yield path, upstream, ours


def attempt(compare: Callable[[], Iterable[AnswerDifference]]) -> list[AnswerDifference]:
    """Compare one case; an engine that breaks on it differs from upstream there, and the other cases still count."""
    try:
        return list(compare())
    except Exception as error:
        return [broken(error)]


def broken(error: Exception) -> AnswerDifference:
    """Give the difference that an exception is."""
    return "", ABSENT, f"{type(error).__name__}: {error}"
