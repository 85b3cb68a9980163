"""A time of the week that comes again, as schedules write it."""

import re

from msgspec import Struct

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
