"""Columns of quantities and durations as metrics APIs answer them: as many texts as there are pods, read in one go."""

from collections.abc import Sequence
from typing import Any, Final

import orjson

from schemas.kubernetes.gotimes import parse_duration_ms
from schemas.kubernetes.quantity import parse_milli

_SURELY_MILLI_I64 = 10**12
"""Of so many KiB the milli value fits 64 bits."""
_DIGITS = "0123456789"
_EXACT_CHARACTERS: Final = 12
"""A text of so many has at most nine digits behind the point, which are whole nanoseconds."""
_EXACT_SECONDS: Final = 10**5
"""Of fewer, a thousandfold is wrong by less than 10^-7 as a float, a tenth of what `_HALF_NS_MS` makes up for."""
_HALF_NS_MS: Final = 5e-7


def parse_millis(texts: Sequence[str], *, saturating: bool = False) -> list[int]:
    """Return `parse_milli` of each text, with spaces around it or not: of a column of whole nano cores or of KiB, as
    metrics.k8s.io has them, in one go.
    """
    if texts and (suffix := texts[0][-2:].lstrip(_DIGITS)) in ("n", "Ki"):
        numbers = plain_numbers(texts, suffix)
        if numbers and max(numbers) < _SURELY_MILLI_I64:
            if suffix == "Ki":
                return [number * 1_024_000 for number in numbers]
            return [-(-number // 1_000_000) for number in numbers]
    return [parse_milli(text.strip(), saturating=saturating) for text in texts]


def plain_numbers(texts: Sequence[str], unit: str, *, fractions: bool = False) -> list[Any]:
    """Return the numbers of texts that are plain decimal numbers with this unit behind them; empty: some are not.

    An integer beyond 64 bits is a float. `fractions`: they may have a point, and are floats then.
    """
    joined, end = ",".join(texts) + ",", f"{unit},"
    if joined.count(end) != len(texts):
        return []
    numbers = joined.replace(end, ",")
    digits = numbers.replace(",", "").replace(".", "") if fractions else numbers.replace(",", "")
    if not (digits.isdigit() and digits.isascii()):
        return []
    try:
        values: list[Any] = orjson.loads(f"[{numbers[:-1]}]")
    except orjson.JSONDecodeError:  # zeros before a number, or a point without digits
        return []
    return values if len(values) == len(texts) else []


def parse_durations_ms(texts: Sequence[str]) -> list[int]:
    """Return `parse_duration_ms` of each text: of seconds with a fraction, as metrics-server has them, in one go."""
    is_exact = max(map(len, texts), default=0) <= _EXACT_CHARACTERS
    if is_exact and (seconds := plain_numbers(texts, "s", fractions=True)) and max(seconds) < _EXACT_SECONDS:
        return [int(each * 1e3 + _HALF_NS_MS) for each in seconds]
    return list(map(parse_duration_ms, texts))
