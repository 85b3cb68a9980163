"""A seasonal forecast as rules by the time of the week: what a schedule of plain HPA settings can say of it."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Literal
from zoneinfo import ZoneInfo

from schemas.weekly import Weekly

MOST_RULES = 48
_SLOTS_MIN = (30, 60, 120, 240)
_DAY_MIN = 1440

DayFloors = tuple[int, ...]
"""minReplicas of each slot of a day."""


def season_rules(
    floor: Callable[[int], int], least: int, begin_ms: int, days: Literal[1, 7], zone: ZoneInfo
) -> list[tuple[Weekly, int]]:
    """Rules for minReplicas that are never below a forecast for the coming season.

    Slots of half an hour take the highest floor within them; equal neighbours, and days that are equal, become one
    rule. Where there are more than `MOST_RULES`, slots are longer.

    Args:
        floor: the forecast of minReplicas at a moment; it is asked once a minute.
        least: minReplicas where no rule holds; slots that need no more have none.
        begin_ms: the season begins here.
        days: 1: every day has the same rules; 7: each day of the week has its own.
        zone: of the times.
    """
    found: list[tuple[Weekly, int]] = []
    for slot_min in _SLOTS_MIN:
        found = _rules(_slots(floor, begin_ms, days, zone, slot_min), least, slot_min)
        if len(found) <= MOST_RULES:
            break
    return found


def _slots(
    floor: Callable[[int], int], begin_ms: int, days: Literal[1, 7], zone: ZoneInfo, slot_min: int
) -> dict[int, DayFloors]:
    """The highest floors of each day of the week."""
    highest: dict[int, list[int]] = {day: [0] * (_DAY_MIN // slot_min) for day in range(7)}
    begin = datetime.fromtimestamp(begin_ms // 60_000 * 60, zone)
    for minute in range(days * _DAY_MIN):
        moment = begin + timedelta(minutes=minute)  # on the clock of the zone
        at = (moment.hour * 60 + moment.minute) // slot_min
        value = floor(round(moment.timestamp() * 1000))
        for day in range(7) if days == 1 else (moment.weekday(),):
            highest[day][at] = max(highest[day][at], value)
    return {day: tuple(slots) for day, slots in highest.items()}


def _rules(by_day: dict[int, DayFloors], least: int, slot_min: int) -> list[tuple[Weekly, int]]:
    alike: dict[DayFloors, list[int]] = {}
    for day, slots in by_day.items():
        alike.setdefault(slots, []).append(day)
    found = []
    for slots, days in alike.items():
        begin = 0
        for at in range(1, len(slots) + 1):
            if at < len(slots) and slots[at] == slots[begin]:
                continue
            if slots[begin] > least:
                found.append((Weekly(frozenset(days), begin * slot_min, at * slot_min), slots[begin]))
            begin = at
    return found
