"""Ages as kubectl shows them.

Source: k8s.io/apimachinery/pkg/util/duration v0.37.1; `translateTimestampSince` of pkg/printers v1.37.1.
"""

from __future__ import annotations

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
