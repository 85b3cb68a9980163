"""The times at which a rule of a schedule holds: days of the week, days of the month or dates, and times of day."""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from typing import Final, TypeAlias

from msgspec import Struct

DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
MONTHLY: Final = "monthly"
DAY_MINUTES: Final = 1440
EXAMPLE: Final = (
    "'Mon-Fri 07:00-20:00', 'Sat,Sun 10:00-16:00', 'daily 22:00-06:00', 'monthly 1,15,last 08:00-18:00', "
    "'2026-12-24..2026-12-26 00:00-24:00', '12-24..01-02 00:00-24:00'"
)
_CLOCK: Final = re.compile(r"([01][0-9]|2[0-4]):([0-5][0-9])", re.ASCII)
_DATE: Final = re.compile(r"(?:([0-9]{4})-)?([0-9]{2})-([0-9]{2})", re.ASCII)
_LEAP_YEAR: Final = 2000
"""A year that has every day that some year has."""


class Weekdays(Struct, frozen=True):
    """Days of the week, 0 is Monday."""

    days: frozenset[int]

    def has(self, day: date) -> bool:
        """Whether a day is one of these."""
        return day.weekday() in self.days


class MonthDays(Struct, frozen=True):
    """Days of every month that has them, 1 to 31. `has_last`: also its last day, whatever its number."""

    days: frozenset[int]
    has_last: bool = False

    def has(self, day: date) -> bool:
        """Whether a day is one of these."""
        return day.day in self.days or (self.has_last and day.day == monthrange(day.year, day.month)[1])


class Dates(Struct, frozen=True):
    """Spans of dates, from the first to the last one, which is in it: of one year as (year, month, day), of every year
    as (month, day). A yearly span whose last date is before its first passes over the end of the year.
    """

    spans: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]

    def has(self, day: date) -> bool:
        """Whether a day is in one of the spans."""
        whole = (day.year, day.month, day.day)
        return any(_is_within(whole[-len(first) :], first, last) for first, last in self.spans)

    @property
    def last_day(self) -> date | None:
        """The last day of all; None: it comes again every year."""
        ends = [last for _, last in self.spans if len(last) == 3]
        return date(*max(ends)) if len(ends) == len(self.spans) else None


def _is_within(day: tuple[int, ...], first: tuple[int, ...], last: tuple[int, ...]) -> bool:
    return first <= day <= last if first <= last else day >= first or day <= last


DayRule: TypeAlias = Weekdays | MonthDays | Dates


class Window(Struct, frozen=True):
    """Days, and on each of them the minutes of the day from `begin_min` to before `end_min`. An end before the begin is
    on the day after.
    """

    days: DayRule
    begin_min: int
    end_min: int

    def holds(self, local: datetime) -> bool:
        """Whether a moment belongs to it, as the clock of its place shows it."""
        minute, day = local.hour * 60 + local.minute, local.date()
        if self.begin_min < self.end_min:
            return self.begin_min <= minute < self.end_min and self.days.has(day)
        if minute >= self.begin_min:
            return self.days.has(day)
        return minute < self.end_min and self.days.has(day - timedelta(days=1))


def parse_window(text: str) -> Window:
    """Read days and times. Raises ValueError: it is not that; says what it should be."""
    words = text.split()
    if len(words) < 2 or "-" not in words[-1] or ":" not in words[-1]:
        raise ValueError(f"{text.strip()!r} has no times; write {EXAMPLE}")
    if len(words) == 3 and words[0] == MONTHLY:
        days: DayRule = _month_days(words[1])
    elif len(words) == 2 and words[0] != MONTHLY:
        days = _days(words[0])
    else:
        what = " ".join(words[:-1])
        raise ValueError(f"{what!r} is not one word of days, nor 'monthly' with days of the month; write {EXAMPLE}")
    begin, _, end = words[-1].partition("-")
    window = Window(days, _minutes(begin), _minutes(end))
    if window.begin_min == window.end_min or window.begin_min == DAY_MINUTES:
        raise ValueError(f"{text!r} is empty; all day is 00:00-24:00")
    return window


def _days(text: str) -> DayRule:
    if text == "daily":
        return Weekdays(frozenset(range(7)))
    return _dates(text) if text[0].isdigit() else Weekdays(frozenset(_weekdays(text)))


def _weekdays(text: str) -> Iterator[int]:
    for part in text.split(","):
        first, dash, last = part.partition("-")
        for name in (first, last) if dash else (first,):
            if name not in DAYS:
                raise ValueError(
                    f"{name!r} is not a day; days are {', '.join(DAYS)}, daily, 'monthly 1,15,last', "
                    "or dates as 2026-12-24 and 12-24"
                )
        begin, end = DAYS.index(first), DAYS.index(last if dash else first)
        yield from ((begin + step) % 7 for step in range((end - begin) % 7 + 1))


def _month_days(text: str) -> MonthDays:
    days: set[int] = set()
    parts = text.split(",")
    for part in parts:
        if part == "last":
            continue
        first, dash, last = part.partition("-")
        begin, end = _month_day(first), _month_day(last if dash else first)
        if end < begin:
            raise ValueError(f"{part!r} ends before it begins; write {first}-31,1-{last} for days over a month's end")
        days.update(range(begin, end + 1))
    return MonthDays(frozenset(days), has_last="last" in parts)


def _month_day(text: str) -> int:
    day = int(text) if re.fullmatch(r"[0-9]{1,2}", text, re.ASCII) else 0
    if not 1 <= day <= 31:
        raise ValueError(f"{text!r} is not a day of the month; write 1 to 31, or last")
    return day


def _dates(text: str) -> Dates:
    return Dates(tuple(_span(part) for part in text.split(",")))


def _span(part: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    names = part.split("..")
    if len(names) > 2:
        raise ValueError(f"{part!r} is not a span of dates; write 2026-12-24..2026-12-26")
    first, last = _date(names[0]), _date(names[-1])
    if len(first) != len(last):
        raise ValueError(f"{part!r} has a year at one end only; write it at both ends, or at none")
    if len(first) == 3 and last < first:
        raise ValueError(f"{part!r} ends before it begins")
    return first, last


def _date(text: str) -> tuple[int, ...]:
    match = _DATE.fullmatch(text)
    if match is None:
        raise ValueError(
            f"{text!r} is not a date; write 2026-12-24, 12-24 for every year, or 'monthly 24' for every month"
        )
    parts = tuple(int(part) for part in match.groups() if part is not None)
    try:
        date(*(parts if len(parts) == 3 else (_LEAP_YEAR, *parts)))
    except ValueError as error:
        raise ValueError(f"{text!r} is not a date: {error}") from error
    return parts


def _minutes(text: str) -> int:
    match = _CLOCK.fullmatch(text)
    minutes = int(match[1]) * 60 + int(match[2]) if match else DAY_MINUTES + 1
    if minutes > DAY_MINUTES:
        raise ValueError(f"{text!r} is not a time of day; write 07:00 to 24:00")
    return minutes
