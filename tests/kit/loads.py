"""Loads that only tests and benches play: recorded ones from a file (traces), and straight lines between points.

Two formats. Text: one number a line, one line a second. CSV with the header `timestamp,value`: times rise, in RFC 3339
or as `2014-04-10 00:04:00`, taken as UTC. Numbers are units per second after scaling.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path


@dataclass(frozen=True)
class Trace:
    """A series of values at seconds after its begin; both have the same length, at least 2."""

    seconds: tuple[float, ...]
    values: tuple[float, ...]

    @property
    def length_s(self) -> float:
        """From the first value to where the last one ends, if it holds as long as the one before."""
        return self.seconds[-1] + self.seconds[-1] - self.seconds[-2]


@dataclass(frozen=True)
class TraceLoad:
    """A trace as a load: values times `scale`, time `speed` times as fast. Each value holds until the next; at the end
    the trace begins again.
    """

    trace: Trace
    scale: float = 1.0
    speed: float = 1.0
    _length_s: float = field(init=False, repr=False, default=0.0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_length_s", self.trace.length_s)

    @property
    def length_s(self) -> float:
        """How long the trace takes at this speed."""
        return self._length_s / self.speed

    def at(self, elapsed_s: float) -> float:
        index = bisect_right(self.trace.seconds, elapsed_s * self.speed % self._length_s) - 1
        return self.trace.values[max(0, index)] * self.scale


def parse_trace(text: str, source: str) -> Trace:
    """Read a trace's text; `source` names it in errors.

    Raises ValueError: a line is not as the format says; the message names the line.
    """
    lines = text.splitlines()
    if lines and lines[0].strip().lower() == "timestamp,value":
        rows = [_row(line, number, source) for number, line in enumerate(lines[1:], 2) if line.strip()]
        begin = rows[0][0] if rows else 0.0
        seconds = tuple(time_s - begin for time_s, _ in rows)
        values = tuple(value for _, value in rows)
    else:
        values = tuple(_value(line, number, source) for number, line in enumerate(lines, 1) if line.strip())
        seconds = tuple(float(number) for number in range(len(values)))
    if len(values) < 2:
        raise ValueError(f"{source}: a trace has at least two values; one number a line, or CSV with timestamp,value")
    if any(later <= earlier for earlier, later in pairwise(seconds)):
        at = next(number for number, (a, b) in enumerate(pairwise(seconds), 3) if b <= a)
        raise ValueError(f"{source}: line {at}: timestamps must rise")
    return Trace(seconds, values)


def _row(line: str, number: int, source: str) -> tuple[float, float]:
    time, comma, value = line.partition(",")
    try:
        moment = datetime.fromisoformat(time.strip())
    except ValueError as error:
        raise ValueError(f"{source}: line {number}: no timestamp, such as 2014-04-10 00:04:00") from error
    if not comma:
        raise ValueError(f"{source}: line {number}: no value after the timestamp")
    utc = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return utc.timestamp(), _value(value, number, source)


def _value(text: str, number: int, source: str) -> float:
    try:
        value = float(text)
    except ValueError as error:
        raise ValueError(f"{source}: line {number}: not a number") from error
    if not (math.isfinite(value) and value >= 0):
        raise ValueError(f"{source}: line {number}: a load is a finite number, at least 0")
    return value


def read_trace(path: str | Path) -> Trace:
    """Read a trace's file. Raises ValueError: it cannot be read, or is not a trace."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"trace {path} cannot be read: {error}") from error
    return parse_trace(text, str(path))


@dataclass(frozen=True, slots=True)
class PointsLoad:
    """A load through (seconds, units per second), times rising; straight lines between, flat outside."""

    points: tuple[tuple[float, float], ...]

    def at(self, elapsed_s: float) -> float:
        before = self.points[0]
        for point in self.points:
            if point[0] > elapsed_s:
                if point is self.points[0]:
                    return point[1]
                share = (elapsed_s - before[0]) / (point[0] - before[0])
                return before[1] + (point[1] - before[1]) * share
            before = point
        return before[1]
