"""Times and durations as Go and Kubernetes write them: the one reader and the one writer of each."""

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

ZERO_TIME_MS: Final = -62_135_596_800_000
"""Go's zero time, 0001-01-01T00:00:00Z: what upstream reads where a time is null or absent."""

_RFC3339: Final = re.compile(r"(\d{4}-\d\d-\d\dT)(\d?\d:\d\d:\d\d)(?:[.,](\d+))?(?:Z|([+-])(\d\d):(\d\d))", re.ASCII)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_MOST_OFFSET_HOURS, _MOST_OFFSET_MINUTES = 24, 60
_PART: Final = re.compile(r"([0-9]*)(?:\.([0-9]*))?(ns|us|µs|μs|ms|s|m|h)")
_UNIT_NS: Final = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "μs": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}
_MOST_NS: Final = 2**63


def parse_moment(text: str) -> datetime:
    """Read an RFC 3339 time as a moment in UTC, fractions of a second cut off.

    Source: Go's `time.Parse(time.RFC3339, …)`: hours of one digit, a comma before the fraction and offsets of up to
    24:60 are accepted, other forms of ISO 8601 are not.

    Raises ValueError: the text is not an RFC 3339 time, or no moment of the years 1 to 9999.
    """
    return _parsed(text)[0]


@lru_cache(maxsize=256)  # the time of a record is asked for again and again while the record is read
def parse_time_ms(text: str) -> int:
    """Read an RFC 3339 time as Unix milliseconds; what is finer is cut off.

    Raises ValueError: the text is not an RFC 3339 time.
    """
    moment, fraction = _parsed(text)
    return (moment - _EPOCH) // _MILLISECOND + int((fraction or "0")[:3].ljust(3, "0"))


def rfc3339_seconds(time_ms: int) -> str:
    """Write Unix milliseconds as Kubernetes writes times: UTC, whole seconds, the rest cut off."""
    return _seconds_text(time_ms // 1000)


def parse_duration_ns(text: str) -> int:
    """Read a Go duration (`15s`, `1m30s`, `-1.5h`) as nanoseconds.

    Source: Go's `time.ParseDuration`, its arithmetic of fractions included.

    Raises ValueError: the text is not a Go duration, or beyond 64 bits of nanoseconds.
    """
    negative, rest = text.startswith("-"), text[1:] if text[:1] in ("-", "+") else text
    if rest == "0":
        return 0
    total_ns = position = 0
    while position < len(rest):
        part = _PART.match(rest, position)
        if part is None or not (part[1] or part[2]):
            break
        position = part.end()
        unit_ns = _UNIT_NS[part[3]]
        total_ns += int(part[1] or "0") * unit_ns + _fraction_ns(part[2] or "", unit_ns)
    if not rest or position != len(rest):
        raise ValueError(f"duration {text!r} cannot be read; write it as in Go, for instance 30s or 1m30s")
    if total_ns > _MOST_NS or (total_ns == _MOST_NS and not negative):
        raise ValueError(f"duration {text!r} is beyond 64 bits of nanoseconds")
    return -total_ns if negative else total_ns


def parse_duration_ms(text: str) -> int:
    """Read a Go duration as milliseconds; what is finer is cut off toward zero.

    Raises ValueError: the text is not a Go duration, or beyond 64 bits of nanoseconds.
    """
    duration_ns = parse_duration_ns(text)
    return duration_ns // 10**6 if duration_ns >= 0 else -(-duration_ns // 10**6)


def _parsed(text: str) -> tuple[datetime, str | None]:
    match = _RFC3339.fullmatch(text)
    if match is None:
        raise ValueError(f"time {text!r} cannot be read; write it as RFC 3339, for instance 2000-01-01T00:00:00Z")
    local = datetime.fromisoformat(f"{match[1]}{match[2]:0>8}+00:00")
    if not match[4]:
        return local, match[3]
    hours, minutes = int(match[5]), int(match[6])
    if hours > _MOST_OFFSET_HOURS or minutes > _MOST_OFFSET_MINUTES:
        raise ValueError(f"time {text!r}: the time zone is out of range")
    offset = timedelta(hours=hours, minutes=minutes)
    try:
        return (local - offset if match[4] == "+" else local + offset), match[3]
    except OverflowError as error:
        raise ValueError(f"time {text!r} is not within the years 1 to 9999") from error


def _fraction_ns(digits: str, unit_ns: int) -> int:
    """Return the nanoseconds of a fraction. Go keeps as many digits as fit 63 bits and multiplies in doubles."""
    value, scale = 0, 1.0
    for digit in digits:
        following = value * 10 + int(digit)
        if value > (_MOST_NS - 1) // 10 or following > _MOST_NS:
            break
        value, scale = following, scale * 10
    return int(value * (unit_ns / scale)) if value else 0


@lru_cache(maxsize=256)
def _seconds_text(seconds: int) -> str:
    moment = _EPOCH + timedelta(seconds=seconds)
    # Not strftime, which does not pad years below 1000.
    return moment.replace(tzinfo=None).isoformat() + "Z"


def time_ms(text: str | None) -> int | None:
    """Milliseconds since the epoch of an RFC 3339 time; None for an absent one. Raises ValueError: not such a time."""
    return parse_time_ms(text) if text else None
