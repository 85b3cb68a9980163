"""What processes write where a person reads it: text without characters that act on a terminal, and the log.

The log of every process is one JSON object per line on stderr, and no line more than once a minute.

How often a long-running process looks for reference cycles.

The clocks of a process: injected where time matters, so that tests set them.
"""

import gc
import json
import logging
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

THRESHOLDS = (20_000, 50, 100)
"""A hundred thousand pods or decisions live long: walking them at every 700 new objects can take half of the time."""


def look_for_cycles_seldom() -> None:
    """Leave out what has been loaded so far, and look for cycles seldom, from now on."""
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)


@contextmanager
def without_cycle_search() -> Iterator[None]:
    """Look for no reference cycles while state is read, of which nothing is garbage."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


Clock = Callable[[], int]
"""Gives milliseconds since the epoch."""


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


def boot_s() -> float:
    """Seconds of a clock that never goes back and also runs while the machine sleeps, where the system has one."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)


_RARE: Final = re.compile(r"[^\n\t -~]")
"""What may be unprintable: all but printable ASCII, line ends and tabs."""
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_FOREIGN: Final = ("aiokafka", "faust", "mode", "kubernetes")
"""Packages whose lines are the same if their text is: connections, ports and errors in it differ from line to line."""
_NUMBERS: Final = re.compile(r"\d+")
SPARED_S: Final = 60.0
MOST_LINES: Final = 1_000
"""Different lines that are remembered."""


def clean_lines(text: str) -> str:
    """A text of lines for a terminal: what does not print (escapes, C1, bidirectional overrides) becomes a space."""
    return _RARE.sub(lambda found: found[0] if found[0].isprintable() else " ", text)


def clean(text: str) -> str:
    """A text for one line of a terminal: as `clean_lines`, and line ends and tabs become spaces too."""
    return text if text.isprintable() else clean_lines(text).replace("\n", " ").replace("\t", " ")


def escaped(text: str) -> str:
    """JSON or YAML whose strings hold what does not print as `\\u` escapes: the same data, and safe on a terminal.

    In YAML the strings with such characters must be in double quotes.
    """
    if text.isascii() and "\x7f" not in text:
        return text
    return _RARE.sub(lambda found: found[0] if found[0].isprintable() else _escape(found[0]), text)


def _escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


class JsonLines(logging.Formatter):
    """One JSON object per line: a constant message, its data beside it."""

    def format(self, record: logging.LogRecord) -> str:
        data = {key: value for key, value in vars(record).items() if key not in _OWN}
        line = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return escaped(json.dumps(line | data, default=str, ensure_ascii=False))


@dataclass
class _Line:
    """A line since it was last written: how often it came, that time included, and the last time."""

    since_s: float
    last: logging.LogRecord
    count: int = 1


class OncePerMinute:
    """Decides which lines are written: of those that are the same the first, and one for each minute of the others.

    Lines are the same if logger, level, text and data are. In an error's text numbers do not count, since
    ports, offsets and ids are in it. Lines for debugging, and those of a process that ends (`critical`), are all
    written.
    """

    def __init__(self) -> None:
        self._lines: dict[tuple[Any, ...], _Line] = {}
        """In the order of their times."""

    def lines_for(self, record: logging.LogRecord, now_s: float) -> list[logging.LogRecord]:
        """The lines to write now: this one or none, and those that count what came in a minute that is over.

        Args:
            now_s: monotonic time in seconds.
        """
        if record.levelno < logging.INFO or record.levelno >= logging.CRITICAL:
            return [record]
        key = _identity(record)
        if (known := self._lines.get(key)) is None:
            written, self._lines[key] = [record], _Line(now_s, record)
        else:
            written, known.last, known.count = [], record, known.count + 1
        while now_s - (oldest := self._lines[first := next(iter(self._lines))]).since_s >= SPARED_S or self._is_full:
            del self._lines[first]
            if oldest.count > 1:
                oldest.last.repeated = f"{oldest.count - 1} more of the same in the last minute"
                written.append(oldest.last)
                self._lines[first] = _Line(now_s, oldest.last)
        return written

    @property
    def _is_full(self) -> bool:
        return len(self._lines) > MOST_LINES


def _identity(record: logging.LogRecord) -> tuple[Any, ...]:
    if record.name.split(".")[0] in _FOREIGN:
        return record.name, record.levelno, record.msg
    data = {key: str(value) for key, value in vars(record).items() if key not in _OWN}
    if "error" in data:
        data["error"] = _NUMBERS.sub("#", data["error"])
    return record.name, record.levelno, record.getMessage(), *sorted(data.items())


class _Sparing(logging.StreamHandler[Any]):
    """Writes to stderr what `OncePerMinute` lets through."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)
        self._lines = OncePerMinute()

    def emit(self, record: logging.LogRecord) -> None:
        for each in self._lines.lines_for(record, time.monotonic()):
            super().emit(each)


def set_up_logging(level: str) -> None:
    """Log to stderr from this level on: `debug`, `info`, `warning` or `error`."""
    handler = _Sparing()
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=level.upper(), handlers=[handler])
    for noisy in ("aiokafka", "kubernetes"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    # A rejoin is how groups work; the driver calls it an error.
    logging.getLogger("aiokafka.consumer.group_coordinator").setLevel(logging.CRITICAL)
    logging.getLogger("aiokafka.coordinator").setLevel(logging.CRITICAL)
