"""A recorded load from a file: a trace, scaled in size and time.

Two formats. Text: one number a line, one line a second. CSV with the header `timestamp,value`: times rise, in RFC 3339
or as `2014-04-10 00:04:00`, taken as UTC. Numbers are units per second after scaling; a trace of counts per interval is
scaled with `peak` or `scale`.

Load over time: how many units per second (requests, messages) arrive at a workload. Pure but for traces' files.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol


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


def trace_load(file: str, scale: float | None = None, peak: float | None = None, speed: float = 1.0) -> TraceLoad:
    """A trace's file as a load: `peak` scales so that its highest value becomes that many units per second.

    Raises ValueError: the file is not a trace, both `scale` and `peak` are given, or a number is not above 0.
    """
    if scale is not None and peak is not None:
        raise ValueError("load of shape trace: give scale or peak, not both")
    for name, number in (("scale", scale), ("peak", peak), ("speed", speed)):
        if number is not None and not number > 0:
            raise ValueError(f"load.{name} is {number}: it must be above 0")
    trace = read_trace(file)
    if peak is not None:
        highest = max(trace.values)
        if not highest:
            raise ValueError(f"{file}: every value is 0: it cannot be scaled to a peak")
        scale = peak / highest
    return TraceLoad(trace, 1.0 if scale is None else scale, speed)


class LoadCurve(Protocol):
    """A total load as a function of time."""

    def at(self, elapsed_s: float) -> float:
        """Return the units per second at so many seconds after the workload's start."""
        ...


@dataclass(frozen=True, slots=True)
class ConstantLoad:
    """Always the same load."""

    value: float = 0.0

    def at(self, elapsed_s: float) -> float:
        return self.value


@dataclass(frozen=True, slots=True)
class StepLoad:
    """`before` until `at_s`, `after` from then on."""

    before: float
    after: float
    at_s: float

    def at(self, elapsed_s: float) -> float:
        return self.after if elapsed_s >= self.at_s else self.before


@dataclass(frozen=True, slots=True)
class RampLoad:
    """From `start` to `end` in a straight line over `over_s` seconds that begin at `from_s`."""

    start: float
    end: float
    over_s: float
    from_s: float = 0.0

    def at(self, elapsed_s: float) -> float:
        share = min(1.0, max(0.0, (elapsed_s - self.from_s) / self.over_s))
        return self.start + (self.end - self.start) * share


@dataclass(frozen=True, slots=True)
class SineLoad:
    """`base` plus or minus `amplitude`, never below nothing; begins at `base`, rising."""

    base: float
    amplitude: float
    period_s: float

    def at(self, elapsed_s: float) -> float:
        return max(0.0, self.base + self.amplitude * math.sin(2 * math.pi * elapsed_s / self.period_s))


@dataclass(frozen=True, slots=True)
class SpikeLoad:
    """`base`, but `peak` for `duration_s` seconds from `at_s`; again every `every_s`, if that is set."""

    base: float
    peak: float
    at_s: float
    duration_s: float
    every_s: float | None = None

    def at(self, elapsed_s: float) -> float:
        into = elapsed_s - self.at_s
        if self.every_s is not None and into >= 0:
            into %= self.every_s
        return self.peak if 0 <= into < self.duration_s else self.base


@dataclass(frozen=True, slots=True)
class PointsLoad:
    """A recorded load: (seconds, units per second), times rising; straight lines between, flat outside."""

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


def _points(points: list[list[float]]) -> PointsLoad:
    if not points:
        raise ValueError("points: at least one [seconds, units per second] is needed")
    pairs = tuple((float(second), float(value)) for second, value in points)
    if any(later[0] <= earlier[0] for earlier, later in itertools.pairwise(pairs)):
        raise ValueError("points: times must rise")
    return PointsLoad(pairs)


SHAPES: dict[str, Callable[..., LoadCurve]] = {
    "constant": ConstantLoad,
    "step": StepLoad,
    "ramp": RampLoad,
    "sine": SineLoad,
    "spike": SpikeLoad,
    "points": _points,
    "trace": trace_load,
}


def parse_load(document: Mapping[str, Any] | float | int) -> LoadCurve:
    """Read a load as manifests and the control endpoint write it: a number, or `{"shape": "sine", ...}`.

    Raises ValueError: Unknown shape, unknown or missing field, or a period that is not positive.
    """
    if isinstance(document, int | float):
        return ConstantLoad(float(document))
    fields = dict(document)
    shape = fields.pop("shape", "constant")
    if shape not in SHAPES:
        raise ValueError(f"load.shape {shape!r} is unknown: use one of {', '.join(SHAPES)}")
    for name in ("period_s", "over_s", "duration_s", "every_s"):
        if name in fields and not fields[name] > 0:
            raise ValueError(f"load.{name} is {fields[name]}: it must be above 0")
    try:
        return SHAPES[shape](**fields)
    except TypeError as error:
        raise ValueError(f"load of shape {shape}: {error}") from error
