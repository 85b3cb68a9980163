"""Durations that users give, such as `1h30m`."""

from __future__ import annotations

import re
from typing import Final

from fleethpa.cli.common.failures import usage

_UNITS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_PART: Final = re.compile(r"([0-9]{1,15})(ms|s|m|h|d)")


def parse_duration_ms(text: str, option: str = "duration") -> int:
    """Read `90s`, `1h30m`, `2d` or `500ms` into milliseconds.

    Raises:
        CommandError: not a duration (exit 2).
    """
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise usage(f"{option} {text!r} is not a duration", cause="A duration is written as 30s, 5m, 2h or 1h30m.")
    return sum(int(number) * _UNITS[unit] for number, unit in parts)
