"""Load over time: how many units per second (requests, messages) arrive at a workload. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol


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


SHAPES: dict[str, Callable[..., LoadCurve]] = {
    "constant": ConstantLoad,
    "step": StepLoad,
    "ramp": RampLoad,
    "sine": SineLoad,
    "spike": SpikeLoad,
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
