"""Options of several commands, and values that options take: durations, moments, and conditions of `--fail-if`."""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import click

from fleethpa.frame.errors import CommandError, usage, without_extra
from fleethpa.show.formats import FORMATS
from fleethpa.show.text import LATEST_MS, rfc3339
from schemas import settings
from schemas.kubernetes.gotimes import parse_time_ms

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
_UNITS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DAY_MS: Final = _UNITS["d"]
_CLOCK: Final = re.compile(r"(yesterday )?([01][0-9]|2[0-3]):([0-5][0-9])(?::([0-5][0-9]))?")
_DATED: Final = re.compile(r"(?:([0-9]{4})-)?([0-9]{2}-[0-9]{2}) ([0-9]{2}:[0-9]{2}:[0-9]{2})")
_PART: Final = re.compile(r"([0-9]{1,15})(ms|s|m|h|d)")


def parse_duration_ms(text: str, option: str = "duration") -> int:
    """Read `90s`, `1h30m`, `2d` or `500ms` into milliseconds. Raises CommandError: not a duration (exit 2)."""
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise usage(f"{option} {text!r} is not a duration", cause="A duration is written as 30s, 5m, 2h or 1h30m.")
    return sum(int(number) * _UNITS[unit] for number, unit in parts)


class DurationMs(click.ParamType):
    """The type of an option that takes a duration; the command gets milliseconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        return value if isinstance(value, int) else parse_duration_ms(value, param.opts[0] if param else "duration")

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        return "DURATION"


def moment(text: str | None, now_ms: int, option: str) -> int | None:
    """Read `2h` (ago), `08:05`, `08:05:30` or `yesterday 08:05` (UTC), a time as sentences have it (`11-21 08:05:30`,
    `2026-11-21 08:05:30`, UTC), or an RFC 3339 time.

    What lies before 1970 is 1970; a time without its day or year is the newest such time that is not after now.

    Raises CommandError: none of these (exit 2).
    """
    if text is None:
        return None
    if (clock := _CLOCK.fullmatch(text)) is not None:
        return _at_clock(now_ms, *clock.groups())
    try:
        if (dated := _DATED.fullmatch(text)) is not None:
            return _at_date(now_ms, *dated.groups())
        is_time = text[:4].isdigit() and "-" in text
        time_ms = parse_time_ms(text) if is_time else now_ms - parse_duration_ms(text, option)
    except (ValueError, CommandError) as error:
        raise _no_time(text, option) from error
    if time_ms > LATEST_MS:
        raise _no_time(text, option)
    return max(0, time_ms)


def _at_clock(now_ms: int, yesterday: str | None, hours: str, minutes: str, seconds: str | None) -> int:
    """The moment of a time of day, UTC."""
    day_ms = now_ms - now_ms % _DAY_MS
    time_ms = day_ms + int(hours) * _UNITS["h"] + int(minutes) * _UNITS["m"] + int(seconds or 0) * _UNITS["s"]
    return max(0, time_ms - _DAY_MS if yesterday or time_ms > now_ms else time_ms)


def _at_date(now_ms: int, year: str | None, day: str, clock: str) -> int:
    """The moment of a date and a time of day, UTC. Raises ValueError: there is no such date or time."""
    this_year = int(rfc3339(now_ms)[:4])
    years = [year] if year is not None else [f"{this_year:04}", f"{this_year - 1:04}"]
    times_ms = [parse_time_ms(f"{each}-{day}T{clock}Z") for each in years]
    return max(0, next((time_ms for time_ms in times_ms if time_ms <= now_ms), times_ms[-1]))


def _no_time(text: str, option: str) -> CommandError:
    cause = "Write 2h, 08:05 or yesterday 08:05 (UTC), or a time with its zone, such as 2026-11-21T08:00:15Z."
    return usage(f"{option} {text!r} is not a valid time", cause=cause)


class ConditionMeasure(NamedTuple):
    """A measure that a condition can name: the field that holds it, and its unit."""

    field: str
    unit: Literal["number", "minutes", "percent"] = "number"


MEASURES: Final[Mapping[str, ConditionMeasure]] = {
    "replica_hours": ConditionMeasure("replica_hours"),
    "time_above_target": ConditionMeasure("above_target_minutes", "minutes"),
    "worst_overload": ConditionMeasure("worst_overload"),
    "time_at_max": ConditionMeasure("at_max_minutes", "minutes"),
    "scale_events": ConditionMeasure("scale_events"),
    "direction_flips": ConditionMeasure("direction_flips"),
}
"""Those of a backtest."""
WAVE_MEASURES: Final[Mapping[str, ConditionMeasure]] = {
    "replicas_removed": ConditionMeasure("replicas_removed", "percent"),
    "recommended_removal": ConditionMeasure("recommended_removal", "percent"),
    "at_max": ConditionMeasure("at_max", "percent"),
    "failing": ConditionMeasure("failing", "percent"),
    "scale_events": ConditionMeasure("scale_events"),
    "direction_flips": ConditionMeasure("direction_flips"),
}
"""Those of a wave of a rollout."""
_TEST: Final = re.compile(r"\s*(\w+)\s*(>=|<=|>|<)\s*([+-]?)(\d+(?:\.\d+)?)\s*(%|s|m|h)?\s*")
_COMPARE: Final[dict[str, Callable[[float, float], bool]]] = {
    ">": operator.gt,
    "<": operator.lt,
    ">=": operator.ge,
    "<=": operator.le,
}
_MINUTES: Final = {"s": 1 / 60, "m": 1.0, "h": 60.0, "": 1.0}


@dataclass(frozen=True)
class FailIf:
    """With a sign the change against the recording counts (`%`: relative), without one the candidate's own value.

    A measure that is a percentage itself changes by percentage points.
    """

    text: str
    measure: str
    field: str
    compare: str
    sign: str
    number: float
    percent: bool

    @property
    def compares(self) -> bool:
        """Whether what was before counts."""
        return bool(self.sign)

    def value(self, measures: Any) -> float:
        """The measure's value in a struct of measures."""
        return float(getattr(measures, self.field))

    def holds(self, recorded: Any, candidate: Any) -> bool:
        """Whether the condition is met, so that the gate fails; both are structs of measures."""
        before, after = self.value(recorded), self.value(candidate)
        limit = -self.number if self.sign == "-" else self.number
        if not self.sign:
            return _COMPARE[self.compare](after, limit)
        if not self.percent:
            return _COMPARE[self.compare](after - before, limit)
        # Of nothing, any growth is beyond every percentage.
        change = (after / before - 1) * 100 if before else (float("inf") if after else 0.0)
        return _COMPARE[self.compare](change, limit)


def parse_fail_if(text: str, measures: Mapping[str, ConditionMeasure] = MEASURES) -> FailIf:
    """Read a condition on one of some measures.

    Raises CommandError: it cannot be read, or names no measure (exit 2).
    """
    match = _TEST.fullmatch(text)
    if match is None:
        examples = "'time_above_target>+10%', 'worst_overload>1.5'"
        if measures is not MEASURES:
            examples = "'replicas_removed>30%', 'scale_events>+2'"
        raise usage(f"--fail-if {text!r} cannot be read", cause=f"Write MEASURE, > or <, and a value: {examples}.")
    name, compare, sign, number, unit = (group or "" for group in match.groups())
    if name not in measures:
        raise usage(f"--fail-if {text!r}: {name!r} is not a measure", cause=f"Measures are {', '.join(measures)}.")
    measure = measures[name]
    if unit == "%" and not sign and measure.unit != "percent":
        raise usage(
            f"--fail-if {text!r}: a percentage is relative to the recording", cause=f"Write +{number}% or -{number}%."
        )
    if unit in ("s", "m", "h") and measure.unit != "minutes":
        raise usage(f"--fail-if {text!r}: {name} is not a time")
    if measure.unit == "minutes" and not unit and float(number):
        raise usage(f"--fail-if {text!r}: {name} is a time", cause=f"Write {sign}{number}m, or with s or h.")
    if measure.unit == "percent" and unit != "%":
        raise usage(f"--fail-if {text!r}: {name} is a percentage", cause=f"Write {sign}{number}%.")
    scale = _MINUTES[unit] if measure.unit == "minutes" and unit != "%" else 1.0
    relative = unit == "%" and measure.unit != "percent"
    return FailIf(text.strip(), name, measure.field, compare, sign, float(number) * scale, relative)


def together(*options: Decorator) -> Decorator:
    """Several options (and arguments) as one decorator, in the order of the help."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def gathered(name: str, make: Callable[..., Any], *options: Decorator) -> Decorator:
    """Options (and arguments) of which the function gets one value, `name`: `make` makes it of theirs."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            given = {each: kwargs.pop(each) for each in names}
            return function(*args, **{name: make(**given)}, **kwargs)

        known = len(getattr(wrapper, "__click_params__", ()))
        decorated: Any = together(*options)(wrapper)
        names = [param.name for param in decorated.__click_params__[known:]]
        return wrapper

    return decorate


def parse_price(text: str | None) -> Decimal | None:
    """Read `--price`, per replica-hour; None: none was given. Raises CommandError: not a number from 0 on (exit 2)."""
    if text is None:
        return None
    try:
        return settings.parse_price(text.removesuffix("/h"))
    except ValueError as error:
        cause = "A price per replica-hour is a number from 0 on: 0.04/h."
        raise usage(f"--price {text} is not a price", cause=cause) from error


price_option: Final = click.option(
    "--price",
    metavar="NUMBER/h",
    callback=lambda _, __, text: parse_price(text),
    help="What a replica costs per hour, such as 0.04/h [default: the price in the settings of the clusters].",
)


web_options: Final = together(
    click.option(
        "--web-port", type=click.IntRange(0, 65535), help="Port of /healthz, /readyz, /metrics; 0 takes a free one."
    ),
    click.option(
        "--web-host", default="127.0.0.1", help="Address on which they are served; use 0.0.0.0 in a container."
    ),
)
"""Options of commands that serve their health and metrics."""


def _checked_folder(_: click.Context, __: click.Parameter, path: str | None) -> str | None:
    """Check, before anything is read, that a report can be written. Raises CommandError: it cannot (exit 2)."""
    if path and not Path(path).absolute().parent.is_dir():
        raise usage(f"--html {path} cannot be written", cause="Its folder does not exist.")
    if path and find_spec("jinja2") is None:
        raise without_extra("jinja2")
    return path


html_option = click.option(
    "--html", metavar="FILE", callback=_checked_folder, help="Write the report as one HTML file."
)


def output_option(formats: tuple[str, ...] = FORMATS) -> Decorator:
    """`-o`, with the formats that the command knows."""
    return click.option("-o", "--output", type=OutputFormat(formats), default="table", help="Output format.")


_GONE_FORMATS: Final = {
    "csv": "-o json | jq -r '.items[] | [.namespace, .name] | @csv'",
    "jsonpath": "-o json | jq -r '.items[].name'",
    "parquet": "-o jsonl, which DuckDB and Spark read",
}
"""Formats that are no longer there -> what to write instead."""


class OutputFormat(click.Choice[str]):
    """An output format. A format that was removed is answered with its replacement."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        name = str(value).partition("=")[0]
        if name in _GONE_FORMATS and name not in self.choices:
            raise usage(f"`-o {name}` is no longer there", next_step=_GONE_FORMATS[name])
        return super().convert(value, param, ctx)
