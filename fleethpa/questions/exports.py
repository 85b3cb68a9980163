"""Decisions as flat rows for analysts, and the files they go to: JSON lines or CSV, whole or partitioned."""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

import msgspec

from fleethpa.show.formats import csv_cell, to_json_line
from fleethpa.show.text import rfc3339
from schemas.codec import WireError
from schemas.decisionfields import DECISION_FIELDS, DecisionField
from schemas.decisions import ColumnType
from schemas.keys import HpaId
from streams.history.parallel import Faults
from streams.history.recorded import Recorded

BATCH: Final = 5_000
MOST_HELD: Final = 20_000
"""Rows that wait for their files, at most."""
MOST_OPEN: Final = 100
"""Files that are open at a time, at most: systems allow some hundreds."""
PARTITION_KEYS: Final = ("cluster", "namespace", "date", "hour")

_READ: Final[dict[ColumnType, Callable[[Any], Any]]] = {
    "texts": list,
    "json": msgspec.to_builtins,
    "result": lambda value: str(value.get("result", "")),
}
"""How the value of a column is made of that of its field, by the column's type; of others they are the same."""


def _column(field: DecisionField) -> tuple[str, ColumnType, Callable[[Recorded], Any]]:
    if field.column == "time":
        return field.name, "time", lambda recorded: recorded.time_ms
    value, read = attrgetter(f"decision.{field.name}"), _READ.get(field.column)
    return field.name, field.column, value if read is None else lambda recorded: read(value(recorded))


COLUMNS: Final[tuple[tuple[str, ColumnType, Callable[[Recorded], Any]], ...]] = (
    ("partition", "integer", lambda r: r.partition),
    ("offset", "integer", lambda r: r.offset),
    ("log_offset", "integer", lambda r: r.decision.input.offset),
    ("log_hash", "text", lambda r: r.decision.input.hash),
    *map(_column, (each for each in DECISION_FIELDS if each.column)),
)
"""Name, type and value of every column: where the decision is, and the fields that have one."""


ExportedRow = list[str]
"""The cells of a decision: CSV's texts, or the one line of JSON."""


def row_of(recorded: Recorded, format_: str) -> ExportedRow:
    """The row of a decision.

    Raises WireError: the format has no place for a number of it; the text names the record and the column.
    """
    if format_ == "csv":
        return [csv_cell(str(_cell(recorded, *column))) for column in COLUMNS]
    return [_line(recorded)]


def _line(recorded: Recorded) -> str:
    line = {name: rfc3339(get(recorded)) if kind == "time" else get(recorded) for name, kind, get in COLUMNS}
    try:
        return to_json_line(line)
    except TypeError:
        for name, value in line.items():
            _json(recorded, name, value)
        raise


def _cell(recorded: Recorded, name: str, kind: str, get: Callable[[Recorded], Any]) -> Any:
    value = get(recorded)
    if value is None:
        return ""
    if kind == "texts":
        return ",".join(value)
    if kind == "json":
        return _json(recorded, name, value)
    return rfc3339(value) if kind == "time" else value


def _json(recorded: Recorded, name: str, value: Any) -> str:
    """The JSON of a column's value: what a record holds and JSON does not are numbers beyond 64 bits."""
    try:
        return to_json_line(value)
    except TypeError as error:
        raise _misfit(recorded, name, error) from error


def _misfit(recorded: Recorded, name: str, why: object) -> WireError:
    return WireError(f"decision at {recorded.partition}@{recorded.offset}: {name}: {why}")


class TextSheet:
    """CSV or JSON lines; `path` None is stdout."""

    def __init__(self, path: Path | None, format_: str) -> None:
        self._path, self._format = path, format_
        self._file: Any = sys.stdout if path is None else path.open("w", encoding="utf-8", newline="")
        self._csv = csv.writer(self._file, lineterminator="\n")
        if format_ == "csv":
            self._csv.writerow(name for name, _, _ in COLUMNS)

    def write(self, rows: list[ExportedRow]) -> None:
        for row in rows:
            if self._format == "csv":
                self._csv.writerow(row)
            else:
                self._file.write(row[0] + "\n")

    def close(self) -> None:
        self._file.flush()
        if self._path is not None:
            self._file.close()


class Export:
    """Rows go to one file, or (partitioned) to `key=value/…` folders as Hive, DuckDB and Spark read them.

    Files get their names at the end: what fails leaves none, and none that stood there before is lost. Of a folder
    that has been left for others the next file is `decisions-1`, for only some files are open at a time.
    """

    def __init__(self, format_: str, out: Path | None, keys: tuple[str, ...]) -> None:
        self._format, self._out, self._keys = format_, out, keys
        self._waiting: dict[tuple[str, ...], list[ExportedRow]] = {}
        self._sheets: dict[tuple[str, ...], TextSheet] = {}
        self._begun: dict[tuple[str, ...], int] = {}
        self._unnamed: list[tuple[Path, Path]] = []
        self._held = self.rows = 0
        self.hpas: set[HpaId] = set()
        """Whose decisions were taken."""
        self.faults = Faults()
        """Of HPAs that lack rows."""

    @property
    def files(self) -> int:
        """How many files were made."""
        return sum(self._begun.values())

    def __enter__(self) -> Export:
        if not self._keys:
            self._sheet(())
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._flush_all()
                self._close_all()
                while self._unnamed:
                    temporary, path = self._unnamed.pop()
                    temporary.replace(path)
        finally:
            with suppress(OSError):
                self._close_all()
            for temporary, _path in self._unnamed:
                temporary.unlink(missing_ok=True)

    def add(self, recorded: Recorded) -> None:
        """Add a decision. From the first fault with one of an HPA on, its rows are left out."""
        self.hpas.add(recorded.hpa)
        with self.faults.of(recorded.hpa):
            key = tuple(f"{name}={_key(name, recorded)}" for name in self._keys)
            row = row_of(recorded, self._format)
        if recorded.hpa in self.faults:
            return
        waiting = self._waiting.setdefault(key, [])
        waiting.append(row)
        self._held += 1
        self.rows += 1
        if len(waiting) >= BATCH:
            self._flush(key)
        elif self._held >= MOST_HELD:
            self._flush_all()

    def _flush_all(self) -> None:
        for key in list(self._waiting):
            self._flush(key)

    def _flush(self, key: tuple[str, ...]) -> None:
        rows = self._waiting.pop(key)
        self._held -= len(rows)
        self._sheet(key).write(rows)

    def _close_all(self) -> None:
        while self._sheets:
            self._sheets.popitem()[1].close()

    def _sheet(self, key: tuple[str, ...]) -> TextSheet:
        if key not in self._sheets:
            if len(self._sheets) >= MOST_OPEN:
                self._sheets.pop(next(iter(self._sheets))).close()
            self._sheets[key] = self._made(self._path(key))
        return self._sheets[key]

    def _path(self, key: tuple[str, ...]) -> Path | None:
        number = self._begun.get(key, 0)
        self._begun[key] = number + 1
        if not self._keys or self._out is None:
            return self._out
        folder = self._out.joinpath(*key)
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"decisions{f'-{number}' if number else ''}.{self._format}"

    def _made(self, path: Path | None) -> TextSheet:
        if path is not None and (path.is_file() or not path.exists()):  # not /dev/stdout, nor a named pipe
            unnamed = path.with_name(f".{path.name}.tmp")
            self._unnamed.append((unnamed, path))
            path = unnamed
        return TextSheet(path, self._format)


def _key(name: str, recorded: Recorded) -> str:
    if name in ("date", "hour"):
        moment = datetime.fromtimestamp(recorded.time_ms / 1000, UTC)
        return moment.strftime("%Y-%m-%d" if name == "date" else "%H")
    return str(getattr(recorded.decision, name))
