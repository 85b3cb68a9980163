"""How what crosses a topic or a file is written and read: the one codec of bytes, by msgspec, which also validates
them; whole numbers; and times of the week such as `Mon-Fri 07:00-20:00`.
"""

import re
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

T = TypeVar("T")
_ENCODER = msgspec.json.Encoder()


class WireError(ValueError):
    """Bytes that are not what they should be; the text names the field (a JSON path) and the reason."""


def encode(value: Any) -> bytes:
    """Encode a struct or JSON-like value.

    Key order is the order of the fields of the struct or the insertion order of the mapping, so equal values built the
    same way give equal bytes. Numbers must be integers: decimals cross a topic as text.
    """
    return _ENCODER.encode(value)


def encode_to_keep(value: Any) -> bytes:
    """Encode what stays in memory: the same bytes without the room behind them, up to half as much again, that the
    encoder leaves.
    """
    return bytes(memoryview(_ENCODER.encode(value)))


def in_words(error: msgspec.ValidationError, place: str = "") -> str:
    """Say what is wrong with a part of a document at `place`, the field first: `rules[0].type: expected …`."""
    text, _, field = str(error).partition(" - at `$")
    where = f"{place}{field.removesuffix('`')}".lstrip(".")
    return f"{where}: {text[0].lower()}{text[1:]}" if where else text


def decode(data: bytes, type_: type[T]) -> T:
    """Decode and validate.

    Raises WireError: not JSON, or not of that type; unknown fields are ignored, so that old code reads newer records.
    """
    try:
        return msgspec.json.decode(data, type=type_)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise WireError(str(error)) from error
    except RecursionError as error:
        raise WireError("nested too deeply") from error


MOST_DIGITS = 19
"""As many as the largest number of 64 bits has. Python reads none of more than 4,300 digits."""


def whole_number(text: str) -> int | None:
    """The number that a text of ASCII digits names; None: it is no such text, or has more than MOST_DIGITS.

    `str.isdigit` is no test for this: "²" is a digit to it, and no number to `int`.
    """
    return int(text) if text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS else None


# --- times of the week ------------------------------------------------------------------------------------------------

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_CLOCK = re.compile(r"([01][0-9]|2[0-4]):([0-5][0-9])", re.ASCII)
_DAY_MINUTES = 1440
EXAMPLE = "'Mon-Fri 07:00-20:00', 'Sat,Sun 10:00-16:00', 'daily 22:00-06:00'"


class Weekly(Struct, frozen=True):
    """Days (0 is Monday) and minutes of the day, from `begin_min` to before `end_min`. An end before the begin is on
    the day after.
    """

    days: frozenset[int]
    begin_min: int
    end_min: int

    def holds(self, day: int, minute: int) -> bool:
        """Whether a minute of a day of the week (0 is Monday) belongs to it."""
        if self.begin_min < self.end_min:
            return day in self.days and self.begin_min <= minute < self.end_min
        return (day in self.days and minute >= self.begin_min) or ((day - 1) % 7 in self.days and minute < self.end_min)


def parse_weekly(text: str) -> Weekly:
    """Read days and times. Raises ValueError: it is not that; says what it should be."""
    days, _, times = text.strip().partition(" ")
    begin, dash, end = times.strip().partition("-")
    if not dash:
        raise ValueError(f"{text!r} has no times; write {EXAMPLE}")
    found = Weekly(_days(days), _minutes(begin), _minutes(end))
    if found.begin_min == found.end_min or found.begin_min == _DAY_MINUTES:
        raise ValueError(f"{text!r} is empty; all day is 00:00-24:00")
    return found


def _days(text: str) -> frozenset[int]:
    if text == "daily":
        return frozenset(range(7))
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        for name in (first, last) if dash else (first,):
            if name not in DAYS:
                raise ValueError(f"{name!r} is not a day; days are {', '.join(DAYS)}, or daily")
        begin, end = DAYS.index(first), DAYS.index(last if dash else first)
        found.update((begin + step) % 7 for step in range((end - begin) % 7 + 1))
    return frozenset(found)


def _minutes(text: str) -> int:
    match = _CLOCK.fullmatch(text.strip())
    minutes = int(match[1]) * 60 + int(match[2]) if match else _DAY_MINUTES + 1
    if minutes > _DAY_MINUTES:
        raise ValueError(f"{text.strip()!r} is not a time of day; write 07:00 to 24:00")
    return minutes
