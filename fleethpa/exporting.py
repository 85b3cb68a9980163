"""Decisions as flat rows for analysts, and the files they go to: Parquet, CSV or JSON lines, whole or partitioned."""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from fleethpa.decisions import Recorded
from fleethpa.output.formats import to_json_line
from schemas.keys import HpaId

BATCH: Final = 5_000
PARTITION_KEYS: Final = ("cluster", "namespace", "date", "hour")

COLUMNS: Final[tuple[tuple[str, str, Callable[[Recorded], Any]], ...]] = (
    ("time", "time", lambda r: r.time_ms),
    ("id", "text", lambda r: r.decision.id),
    ("kind", "text", lambda r: r.decision.kind),
    ("cluster", "text", lambda r: r.decision.cluster),
    ("namespace", "text", lambda r: r.decision.namespace),
    ("name", "text", lambda r: r.decision.name),
    ("uid", "text", lambda r: r.decision.uid),
    ("mode", "text", lambda r: r.decision.mode),
    ("origin", "text", lambda r: r.decision.origin),
    ("current_replicas", "integer", lambda r: r.decision.current_replicas),
    ("raw_desired_replicas", "integer", lambda r: r.decision.raw_desired_replicas),
    ("final_desired_replicas", "integer", lambda r: r.decision.final_desired_replicas),
    ("direction", "text", lambda r: r.decision.direction),
    ("reason", "text", lambda r: r.decision.reason),
    ("selected_metric", "text", lambda r: r.decision.selected_metric),
    ("constraints_applied", "texts", lambda r: list(r.decision.constraints_applied)),
    ("wants", "integer", lambda r: r.decision.wants),
    ("completes", "text", lambda r: r.decision.completes),
    ("outcome", "text", lambda r: str(r.decision.outcome.get("result", ""))),
    ("error", "text", lambda r: r.decision.error),
    ("paused", "text", lambda r: r.decision.paused),
    ("refused", "text", lambda r: r.decision.refused),
    ("min_replicas", "integer", lambda r: r.decision.min_replicas),
    ("max_replicas", "integer", lambda r: r.decision.max_replicas),
    ("generation", "integer", lambda r: r.decision.generation),
    ("spec_hash", "text", lambda r: r.decision.spec_hash),
    ("author", "text", lambda r: r.decision.author),
    ("change_reason", "text", lambda r: r.decision.change_reason),
    ("engine", "integer", lambda r: r.decision.engine),
    ("metrics", "json", lambda r: msgspec.to_builtins(r.decision.metrics)),
    ("steps", "json", lambda r: msgspec.to_builtins(r.decision.steps)),
    ("short", "flag", lambda r: r.short),
    ("seq", "integer", lambda r: r.decision.seq),
    ("prev", "text", lambda r: r.decision.prev),
    ("partition", "integer", lambda r: r.partition),
    ("offset", "integer", lambda r: r.offset),
    ("log_offset", "integer", lambda r: r.decision.input.offset),
    ("log_hash", "text", lambda r: r.decision.input.hash),
)
"""Name, type and value of every column; columns are only ever added, at the end."""


class Sheet(Protocol):
    """One output file."""

    def write(self, rows: list[Recorded]) -> None:
        """Append rows."""
        ...

    def close(self) -> None:
        """Complete the file."""
        ...


class TextSheet:
    """CSV or JSON lines; `path` None is stdout."""

    def __init__(self, path: Path | None, format_: str) -> None:
        self._path, self._format = path, format_
        self._file: Any = sys.stdout if path is None else path.open("w", encoding="utf-8", newline="")
        self._csv = csv.writer(self._file, lineterminator="\n")
        if format_ == "csv":
            self._csv.writerow(name for name, _, _ in COLUMNS)

    def write(self, rows: list[Recorded]) -> None:
        for row in rows:
            if self._format == "csv":
                self._csv.writerow(_cell(kind, get(row)) for _, kind, get in COLUMNS)
            else:
                line = {name: _json(kind, get(row)) for name, kind, get in COLUMNS}
                self._file.write(to_json_line(line) + "\n")

    def close(self) -> None:
        self._file.flush()
        if self._path is not None:
            self._file.close()


def _json(kind: str, value: Any) -> Any:
    return _rfc3339(value) if kind == "time" else value


def _cell(kind: str, value: Any) -> Any:
    if value is None:
        return ""
    if kind == "texts":
        return ",".join(value)
    if kind == "flag":
        return "true" if value else "false"
    return to_json_line(value) if kind == "json" else _json(kind, value)


def _rfc3339(time_ms: int) -> str:
    from fleethpa.output.times import rfc3339

    return rfc3339(time_ms)


class ParquetSheet:
    """Parquet, zstd-compressed, a row group for each batch."""

    def __init__(self, path: Path) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        kinds = {
            "time": pa.timestamp("ms", tz="UTC"),
            "text": pa.string(),
            "texts": pa.list_(pa.string()),
            "integer": pa.int64(),
            "json": pa.string(),
            "flag": pa.bool_(),
        }
        self._pa = pa
        self._schema = pa.schema([(name, kinds[kind]) for name, kind, _ in COLUMNS])
        self._writer = pq.ParquetWriter(path, self._schema, compression="zstd")

    def write(self, rows: list[Recorded]) -> None:
        columns = {
            name: [to_json_line(get(row)) if kind == "json" else get(row) for row in rows]
            for name, kind, get in COLUMNS
        }
        self._writer.write_table(self._pa.table(columns, schema=self._schema))

    def close(self) -> None:
        self._writer.close()


class Export:
    """Rows go to one file, or (partitioned) to `key=value/…` folders as Hive, DuckDB and Spark read them."""

    def __init__(self, format_: str, out: Path | None, keys: tuple[str, ...]) -> None:
        self._format, self._out, self._keys = format_, out, keys
        self._waiting: dict[tuple[str, ...], list[Recorded]] = {}
        self._sheets: dict[tuple[str, ...], Sheet] = {}
        self._exit = ExitStack()
        self.rows = 0
        self.hpas: set[HpaId] = set()
        """Whose decisions were taken."""

    @property
    def files(self) -> int:
        """How many files were made."""
        return len(self._sheets)

    def __enter__(self) -> Export:
        if not self._keys:
            self._sheet(())
        return self

    def __exit__(self, *_: object) -> None:
        for key in list(self._waiting):
            self._flush(key)
        self._exit.close()

    def add(self, recorded: Recorded) -> None:
        """Take a row."""
        key = tuple(f"{name}={_key(name, recorded)}" for name in self._keys)
        waiting = self._waiting.setdefault(key, [])
        waiting.append(recorded)
        self.rows += 1
        self.hpas.add(recorded.hpa)
        if len(waiting) >= BATCH:
            self._flush(key)

    def _flush(self, key: tuple[str, ...]) -> None:
        self._sheet(key).write(self._waiting.pop(key))

    def _sheet(self, key: tuple[str, ...]) -> Sheet:
        if key not in self._sheets:
            path = self._out
            if self._keys:
                assert self._out is not None
                folder = self._out.joinpath(*key)
                folder.mkdir(parents=True, exist_ok=True)
                path = folder / f"decisions.{self._format}"
            self._sheets[key] = self._made(path)
            self._exit.callback(self._sheets[key].close)
        return self._sheets[key]

    def _made(self, path: Path | None) -> Sheet:
        if self._format == "parquet":
            assert path is not None
            return ParquetSheet(path)
        return TextSheet(path, self._format)


def _key(name: str, recorded: Recorded) -> str:
    if name in ("date", "hour"):
        moment = datetime.fromtimestamp(recorded.time_ms / 1000, UTC)
        return moment.strftime("%Y-%m-%d" if name == "date" else "%H")
    return str(getattr(recorded.decision, name))
