"""Moments and windows of time, as options name them.

Durations that users give, such as `1h30m`.
"""

from __future__ import annotations

import re
from typing import Final

from fleethpa.frame.errors import CommandError, usage
from fleethpa.show.times import LATEST_MS
from schemas.kubernetes.gotimes import parse_time_ms

_UNITS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_PART: Final = re.compile(r"([0-9]{1,15})(ms|s|m|h|d)")


def parse_duration_ms(text: str, option: str = "duration") -> int:
    """Read `90s`, `1h30m`, `2d` or `500ms` into milliseconds. Raises CommandError: not a duration (exit 2)."""
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise usage(f"{option} {text!r} is not a duration", cause="A duration is written as 30s, 5m, 2h or 1h30m.")
    return sum(int(number) * _UNITS[unit] for number, unit in parts)


def moment(text: str | None, now_ms: int, option: str) -> int | None:
    """Read `2h` (ago) or an RFC 3339 time; what lies before 1970 is 1970. Raises CommandError: neither (exit 2)."""
    if text is None:
        return None
    try:
        is_time = text[:4].isdigit() and "-" in text
        time_ms = parse_time_ms(text) if is_time else now_ms - parse_duration_ms(text, option)
    except (ValueError, CommandError) as error:
        raise _no_time(text, option) from error
    if time_ms > LATEST_MS:
        raise _no_time(text, option)
    return max(0, time_ms)


def _no_time(text: str, option: str) -> CommandError:
    cause = "Write 2h, or a time with its zone, such as 2026-11-21T08:00:15Z."
    return usage(f"{option} {text!r} is not a valid time", cause=cause)
