"""Times, durations and ages as people and kubectl write them.

Source: k8s.io/apimachinery/pkg/util/duration v0.37.1; `translateTimestampSince` of pkg/printers v1.37.1.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from schemas.kubernetes.gotimes import parse_time_ms

UNKNOWN = "<unknown>"


def human_duration(seconds: float) -> str:
    """Show a duration as kubectl shows ages; part seconds are cut off toward zero."""
    whole = int(seconds)  # not //: minus one and a half second still is "almost now"
    if whole < -1:
        return "<invalid>"
    if whole < 120:
        return f"{max(whole, 0)}s"
    minutes, hours, days = whole // 60, whole // 3600, whole // 86_400
    if minutes < 10:
        return _two_units(minutes, "m", whole % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return _two_units(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if hours < 192:
        return _two_units(days, "d", hours % 24, "h")
    if days < 730:
        return f"{days}d"
    return _two_units(days // 365, "y", days % 365 if days < 2920 else 0, "d")


def since(time: str | None, now_ms: int) -> str:
    """Show how long ago an RFC 3339 time was; `<unknown>` without one."""
    return human_duration((now_ms - parse_time_ms(time)) / 1000) if time else UNKNOWN


def _two_units(first: int, first_unit: str, second: int, second_unit: str) -> str:
    return f"{first}{first_unit}" + (f"{second}{second_unit}" if second else "")


LATEST_MS: Final = 253_402_300_799_999
"""The end of the year 9999: no later time can be written."""


def age(span_ms: int) -> str:
    """A span as kubectl writes ages: two units at most, coarser as it grows."""
    return human_duration(span_ms / 1000)


def span(ms: int) -> str:
    """A span that needs to be exact to the second: `3m12s`; below ten seconds with tenths: `2.5s`."""
    if ms < 10_000:
        return f"{ms / 1000:.1f}s".replace(".0s", "s")
    hours, rest = divmod(ms // 1000, 3600)
    minutes, seconds = divmod(rest, 60)
    return "".join(f"{count}{unit}" for count, unit in ((hours, "h"), (minutes, "m"), (seconds, "s")) if count)


def rfc3339(time_ms: int) -> str:
    """RFC 3339, UTC, milliseconds."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{time_ms % 1000:03d}Z"


def clock(time_ms: int, now_ms: int) -> str:
    """A time of the day (UTC): `08:30`; with its date where that is not today's: `11-28 08:30`."""
    moment, now = (datetime.fromtimestamp(each / 1000, UTC) for each in (time_ms, now_ms))
    return moment.strftime("%H:%M" if moment.date() == now.date() else "%m-%d %H:%M")


def axis_labels(begin_ms: int, end_ms: int, count: int) -> list[tuple[int, str]]:
    """At most `count` times (UTC), spread evenly over a span with its ends, and labels of which no two are equal."""
    times = [begin_ms + (end_ms - begin_ms) * part // (count - 1) for part in range(count)]
    moments = [datetime.fromtimestamp(time_ms / 1000, UTC) for time_ms in times]
    day = "" if moments[0].date() == moments[-1].date() else "%m-%d "
    for style in (f"{day}%H:%M", f"{day}%H:%M:%S"):
        texts = [moment.strftime(style) for moment in moments]
        if len(set(texts)) == count:
            return list(zip(times, texts, strict=True))
    # Less than a second for each label: a label that repeats an earlier one is left out.
    first = {text: time_ms for time_ms, text in reversed(list(zip(times, texts, strict=True)))}
    return sorted((time_ms, text) for text, time_ms in first.items())


def shown(time_ms: int, style: str, now_ms: int) -> str:
    """A time as `--time` asks for it: `utc`, `local` or `relative`."""
    if style == "relative":
        return f"{age(now_ms - time_ms)} ago"
    if style == "local":
        moment = datetime.fromtimestamp(time_ms / 1000, UTC).astimezone()
        return moment.isoformat(timespec="milliseconds")
    return rfc3339(time_ms)
