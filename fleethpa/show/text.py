"""Text as people and kubectl write it: tables, and times, durations and ages.

A table has UPPERCASE headers, two spaces between columns, no box, and nothing is cut off. Source of times:
k8s.io/apimachinery/pkg/util/duration v0.37.1; `translateTimestampSince` of pkg/printers v1.37.1.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import zip_longest
from typing import Final, Generic, Literal, TypeVar

from runtime.log import clean, clean_lines
from schemas.kubernetes.gotimes import parse_time_ms, rfc3339_seconds

# --- tables -----------------------------------------------------------------------------------------------------------

T = TypeVar("T")
GAP: Final = "  "
LEAST_TEXT: Final = 24
"""Characters that a text needs beside other columns, or its lines would be too short to read."""
_STYLES: Final = {"red": "31", "yellow": "33", "green": "32", "dim": "2", "bold": "1", "cyan": "36"}
_PAINTED: Final = re.compile(rf"(\x1b\[(?:0|{'|'.join(_STYLES.values())})m)")
_WORDS: Final = re.compile(r" *(?:\S*fleethpa .*|kubectl .*|[^ ]+)")
"""A command is one word: who copies it from two lines would run half of it."""
_BEGINS: Final = re.compile(r"^ *| {2,}")


@dataclass(frozen=True)
class Column(Generic[T]):
    """A column: its header and the text of its cell. `wide` columns appear with `-o wide` only.

    `dispensable`: where the terminal is too narrow the column is left out, the highest number first; 0: never.
    """

    header: str
    cell: Callable[[T], str]
    wide: bool = False
    dispensable: int = 0


def too_wide(items: Sequence[T], columns: Sequence[Column[T]], width: int) -> frozenset[str]:
    """The headers of the dispensable columns that must be left out for the table to fit a width."""
    rows = [[column.header for column in columns], *[[column.cell(item) for column in columns] for item in items]]
    sizes = {column.header: max(map(len, cells)) for column, *cells in zip(columns, *rows, strict=True)}
    total = sum(sizes.values()) + len(GAP) * (len(columns) - 1)
    left_out: set[str] = set()
    for column in sorted(filter(lambda each: each.dispensable, columns), key=lambda each: -each.dispensable):
        if total <= width:
            break
        left_out.add(column.header)
        total -= sizes[column.header] + len(GAP)
    return frozenset(left_out)


def paint(text: str, style: str, *, color: bool) -> str:
    """Return text in a style (`red`, `bold`, …), or as it is without colour."""
    return f"\x1b[{_STYLES[style]}m{clean_lines(text)}\x1b[0m" if color and style and text else text


def for_terminal(text: str, *, color: bool, keep: Callable[[str], str] = clean_lines) -> str:
    """A text of which nothing acts on a terminal, except with `color` the styles of `paint`.

    `keep`: what is left of the text between these; `clean` keeps it to one line.
    """
    if not color:
        return keep(text)
    return "".join(part if _PAINTED.fullmatch(part) else keep(part) for part in _PAINTED.split(text))


def layout(rows: Sequence[Sequence[str]], widths: Widths | None = None, *, numbers: bool = False) -> list[str]:
    """Align the cells of rows in columns, each kept to its line; the last cell of a row is not padded.

    `numbers`: the columns behind the first are flush right.
    """
    rows = [[clean(cell) for cell in row] for row in rows]
    widths = widths or Widths()
    widths.widen(rows)
    behind = str.rjust if numbers else str.ljust
    return [
        GAP.join((behind if at else str.ljust)(cell, widths.known[at]) for at, cell in enumerate(row)).rstrip()
        for row in rows
    ]


def folded(line: str, width: int | None) -> list[str]:
    """A line as lines of at most `width` characters (None: any number), each further one below the last column.

    It is broken at spaces; a word that is longer, and a command, stays whole. Styles take no room.
    """
    if width is None or len(_PAINTED.sub("", line)) <= width:
        return [line]
    plain = _PAINTED.sub("", line)
    begins = [match.end() for match in _BEGINS.finditer(plain)]
    hanging = max((at for at in begins[1:] if at + LEAST_TEXT <= width), default=begins[0] + len(GAP))
    lines, used = [""], 0
    for word in _WORDS.findall(line):
        size = len(_PAINTED.sub("", word))
        if used and used + size > width:
            word = " " * hanging + word.lstrip(" ")
            size, used = len(_PAINTED.sub("", word)), 0
            lines.append("")
        lines[-1] += word
        used += size
    return lines


def _fitting(sizes: Sequence[int], width: int | None) -> list[tuple[int, int]]:
    """From which column to before which each line of a row goes, so that the lines fit a width (None: one line)."""
    starts, used = [0], 0
    for at, size in enumerate(sizes):
        needed = min(size, LEAST_TEXT) if at == len(sizes) - 1 else size
        if width is not None and at > starts[-1] and used + len(GAP) + needed > width:
            starts.append(at)
            used = 0
        used += len(GAP) + size
    return list(zip(starts, [*starts[1:], len(sizes)], strict=True))


class Widths:
    """Widths of columns that only grow, so that what is printed later stays under what was printed before."""

    def __init__(self, known: Iterable[int] = ()) -> None:
        self.known = list(known)
        """The width of each column, from the first."""

    def widen(self, rows: Iterable[Sequence[str]]) -> None:
        """Make room for the cells of rows."""
        longest = [max(map(len, cells)) for cells in zip_longest(*rows, fillvalue="")]
        self.known = [max(pair) for pair in zip_longest(self.known, longest, fillvalue=0)]


def table(
    items: Iterable[T],
    columns: Sequence[Column[T]],
    *,
    headers: bool = True,
    style: Callable[[T], str] | None = None,
    color: bool = False,
    widths: Widths | None = None,
    width: int | None = None,
) -> list[str]:
    """Lay out items as lines.

    `style` names the style of an item's line; it counts only with `color`. `widths`: those of the lines printed before.
    `width`: what is wider has several lines for each item, the later ones indented; nothing is left out.
    """
    listed = list(items)
    rows = [[column.cell(item) for column in columns] for item in listed]
    rows = ([[column.header for column in columns]] if headers else []) + rows
    widths = widths or Widths()
    whole = layout(rows, widths)
    parts = _fitting(widths.known, width)
    if len(parts) > 1:
        laid = [layout([row[begin:end] for row in rows], Widths(widths.known[begin:end])) for begin, end in parts]
        whole = [("\n" + GAP).join(filter(None, lines)) for lines in zip(*laid, strict=True)]
    styles = [""] * headers + [style(item) if style and color else "" for item in listed]
    return [
        paint(each, name, color=color)
        for lines, name in zip(whole, styles, strict=True)
        for line in lines.split("\n")
        for each in folded(line, width)
    ]


# --- times ------------------------------------------------------------------------------------------------------------

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


SECOND_MS: Final = 1_000
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
    return time_of_day(time_ms, now_ms)[:-3]


def time_of_day(time_ms: int, now_ms: int) -> str:
    """The same to the second: `08:30:15`. Where the year is another one, it is part of the date."""
    text, now = rfc3339(time_ms), rfc3339(now_ms)
    begin = 11 if text[:10] == now[:10] else 5 if text[:4] == now[:4] else 0
    return text[begin:19].replace("T", " ")


def dated(time_ms: int) -> str:
    """The same with its whole date: `2026-11-28 08:30:15`."""
    return rfc3339(time_ms)[:19].replace("T", " ")


def time_ago(time_ms: int, now_ms: int) -> str:
    """The same in a sentence, with how long ago it was: `08:30:15 (57s ago)`; of what comes: `08:30:15 (in 57s)`."""
    ahead_ms = time_ms - now_ms
    how_long = f"in {age(ahead_ms)}" if ahead_ms >= SECOND_MS else f"{age(max(0, -ahead_ms))} ago"
    return f"{time_of_day(time_ms, now_ms)} ({how_long})"


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


def shown(time_ms: int, style: str, now_ms: int, precision: Literal["milliseconds", "seconds"] = "milliseconds") -> str:
    """A time as `--time` asks for it: `utc`, `local` or `relative`. `precision`: seconds for a stated one."""
    if style == "relative":
        return f"in {age(time_ms - now_ms)}" if time_ms > now_ms else f"{age(now_ms - time_ms)} ago"
    if style == "local":
        return datetime.fromtimestamp(time_ms / 1000, UTC).astimezone().isoformat(timespec=precision)
    return rfc3339(time_ms) if precision == "milliseconds" else rfc3339_seconds(time_ms)
