"""Rules by the time of the week, as people write them: `Mon-Fri 07:00-20:00 minReplicas=8,cpu=70%`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from fleethpa.cli.common.changes import changed_spec, checked
from fleethpa.cli.common.failures import usage
from schemas.weekly import Weekly, parse_weekly
from streams.analysis.seasonrules import season_rules

if TYPE_CHECKING:
    from streams.analysis.timedspecs import Forecast

_EXAMPLE: Final = "'Mon-Fri 07:00-20:00 minReplicas=8,cpu=70%'"


class WeeklyRule(NamedTuple):
    """Settings (as `--set` takes them) that hold at times of the week. `text`: as it was written, spaces reduced."""

    text: str
    times: Weekly
    settings: tuple[str, ...]


def parse_rule(text: str, option: str) -> WeeklyRule:
    """Read a rule.

    Raises:
        CommandError: it is not one (exit 2).
    """
    words = text.split()
    if len(words) != 3:
        raise usage(f"{option} {text!r} is not a rule", cause=f"A rule has days, times and settings: {_EXAMPLE}.")
    try:
        times = parse_weekly(" ".join(words[:2]))
    except ValueError as error:
        raise usage(f"{option} {text!r} is not a rule", cause=str(error)) from error
    return WeeklyRule(" ".join(words), times, tuple(words[2].split(",")))


def parse_zone(name: str, option: str = "--time-zone") -> ZoneInfo:
    """Read the name of a time zone.

    Raises:
        CommandError: this machine does not know it (exit 2).
    """
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        cause = "Zones have names as Europe/Berlin; UTC is always known."
        raise usage(f"{option} {name} is not a time zone that is known here", cause=cause) from error


def spec_under(hpa: dict[str, Any], rule: WeeklyRule, option: str) -> dict[str, Any]:
    """An HPA's spec under a rule, checked as the API server would.

    Raises:
        CommandError: a field is unknown, or the result is not valid (exit 2).
    """
    return checked(hpa, changed_spec(hpa["spec"], rule.settings), f"{option} {rule.text!r} on {_named(hpa)}")


def _named(hpa: dict[str, Any]) -> str:
    metadata = hpa["metadata"]
    return f"{metadata.get('namespace', 'default')}/{metadata['name']}"


SEASONS: Final[dict[int, Literal[1, 7]]] = {86_400_000: 1, 7 * 86_400_000: 7}
"""Days of the seasons, by their milliseconds, that rules can repeat."""


def forecast_rules(forecast: Forecast, begin_ms: int, season_ms: int, zone: ZoneInfo) -> list[str]:
    """The rules of a schedule that has what a forecast says for the coming season. `season_ms`: one of `SEASONS`."""
    least = forecast.autoscaler.min_replicas
    rules = season_rules(forecast.floor, least, begin_ms, SEASONS[season_ms], zone)
    return [f"{times.text} minReplicas={floor}" for times, floor in rules]


class TimedPolicy(NamedTuple):
    """What `backtest` tries beside the spec itself: rules by the time of the week, or a forecast from a season ago."""

    rules: Sequence[WeeklyRule] = ()
    zone: ZoneInfo | None = None
    season_ms: int | None = None

    @property
    def changes(self) -> list[str]:
        """For the report."""
        zone = "" if self.zone is None or self.zone.key == "UTC" else f" ({self.zone.key})"
        found = [f"{rule.text}{zone}" for rule in self.rules]
        if self.season_ms is not None:
            found.append(f"minReplicas from the load of {self.season_ms / 3_600_000:g} h before")
        return found
