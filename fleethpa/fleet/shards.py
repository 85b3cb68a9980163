"""A report by several processes or machines: each takes some log partitions and writes a part, and one puts the parts
together. A Kubernetes Indexed Job does the first (`compose/kubernetes/report-job.yaml`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final, Generic, NamedTuple, TypeVar

import click
import msgspec

from fleethpa.fleet.finding import Selection
from fleethpa.fleet.views import HpaView
from fleethpa.frame.errors import CommandError, unreadable_text, usage
from fleethpa.frame.options import Decorator, gathered
from fleethpa.frame.session import Session
from fleethpa.show.text import rfc3339
from fleethpa.show.words import counted
from schemas.keys import HpaId
from streams.archive.layout import write_atomically
from streams.history.parallel import Faults

T = TypeVar("T")
_SHARD: Final = re.compile(r"([0-9]{1,6})/([1-9][0-9]{0,5})", re.ASCII)


class Shard(NamedTuple):
    """One part of the log partitions: those whose number divided by `of` leaves `rest`."""

    rest: int
    of: int

    def __str__(self) -> str:
        return f"{self.rest}/{self.of}"

    def keeps(self, partition: int) -> bool:
        """Whether a log partition is one of them."""
        return partition % self.of == self.rest


def parse_shard(text: str) -> Shard:
    """Read `3/8`, the fourth of eight. Raises CommandError: it is none (exit 2)."""
    match = _SHARD.fullmatch(text)
    shard = Shard(*map(int, match.groups())) if match else None
    if shard is None or shard.rest >= shard.of:
        raise usage(f"--shard {text!r} is no shard", cause="Of 8 shards the first is 0/8 and the last 7/8.")
    return shard


class AskedShard(NamedTuple):
    """`--shard` and `--parts` as they are typed, of which none, the second or both are given."""

    shard: Shard | None
    folder: Path | None

    @property
    def merges(self) -> bool:
        """Whether parts that are there are put together, and nothing is read from a log."""
        return self.shard is None and self.folder is not None

    def kept(self, views: Sequence[HpaView]) -> list[HpaView]:
        """The HPAs that this shard is about; all of them without a shard."""
        return [view for view in views if self.shard is None or self.shard.keeps(view.partition)]

    def write(self, session: Session, faults: Faults, asked: dict[str, Any], found: Sequence[T], item: type[T]) -> None:
        """Write the part of this shard, unless it lacks HPAs for faults of fleethpa: then it has to be done again."""
        assert self.shard is not None
        assert self.folder is not None
        if not faults:
            path = Parts(self.folder, item).write(self.shard, asked, found)
            session.note(f"shard {self.shard}: {counted(len(found), 'HPA')} in {path}")

    def merged(self, item: type[T]) -> tuple[dict[str, Any], list[T]]:
        """Return what all parts say; raises as `Parts.read`."""
        assert self.folder is not None
        return Parts(self.folder, item).read()


def asked_of(report: str, selection: Selection, window: tuple[int, int], **more: str | None) -> dict[str, Any]:
    """A question with its options, which all of its parts must have in common."""
    times = {"since": rfc3339(window[0]), "until": rfc3339(window[1])}
    return {"report": report, "of": str(selection), "clusters": list(selection.clusters), **times, **more}


def by_partitions(views: Sequence[HpaView]) -> list[frozenset[HpaId]]:
    """The HPAs of each log partition, those of the partition with the most first: readings go on beside each other."""
    of_partition: dict[int, list[HpaId]] = {}
    for view in views:
        of_partition.setdefault(view.partition, []).append(view.id)
    return [frozenset(hpas) for _, hpas in sorted(of_partition.items(), key=lambda each: (-len(each[1]), each[0]))]


def _asked(shard: str | None, parts: str | None) -> AskedShard:
    if shard is not None and parts is None:
        raise usage("--shard without --parts", cause="A shard is written to a folder.", next_step="--parts DIR")
    return AskedShard(None if shard is None else parse_shard(shard), None if parts is None else Path(parts))


def shard_options() -> Decorator:
    """`--shard` and `--parts`; the function gets one argument `asked_shard`."""
    return gathered(
        "asked_shard",
        _asked,
        click.option("--shard", metavar="I/N", help="Only every N-th log partition, from I on; into --parts."),
        click.option("--parts", metavar="DIR", help="Where shards are written; without --shard: put them together."),
    )


class PartHead(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The first line of a part. `asked`: the question with its options, of which all parts must have the same."""

    asked: dict[str, Any]
    index: int
    of: int


class Parts(Generic[T]):
    """The parts of one question in a folder. `item`: the type of what a part lists, a line of JSON each."""

    def __init__(self, folder: Path, item: type[T]) -> None:
        self._folder, self._item = folder, item

    def write(self, shard: Shard, asked: dict[str, Any], items: Iterable[T]) -> Path:
        """Write a part, whole or not at all. Raises CommandError: it cannot be written (exit 2)."""
        path = self._folder / f"part-{shard.rest}-of-{shard.of}.jsonl"
        lines = [PartHead(asked=asked, index=shard.rest, of=shard.of), *items]
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            write_atomically(path, b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
        except OSError as error:
            raise usage(f"--parts {self._folder} cannot be written", cause=unreadable_text(error)) from error
        return path

    def read(self) -> tuple[dict[str, Any], list[T]]:
        """Return what was asked, and what all parts list.

        Raises CommandError: a part is missing, cannot be read or is of another question (exit 2).
        """
        parts: dict[int, tuple[PartHead, list[T]]] = {}
        for path in self._paths():
            head, items = self._part(path)
            first = next(iter(parts.values()), (head, []))[0]
            if (head.asked, head.of) != (first.asked, first.of):
                raise usage(
                    f"{path} is of another question than the other parts in --parts {self._folder}",
                    cause=f"It is shard {head.index}/{head.of} of {_text(head.asked)}; the others are of "
                    f"{_text(first.asked)} in {counted(first.of, 'shard')}.",
                    next_step="an empty folder, and the same options for all, with times as 2026-11-21T08:00:00Z",
                )
            parts[head.index] = head, items
        head = next(iter(parts.values()))[0]
        missing = [f"{index}/{head.of}" for index in range(head.of) if index not in parts]
        if missing:
            raise usage(
                f"--parts {self._folder}: {counted(len(missing), 'shard')} of {head.of} missing",
                cause=f"There is no part of {', '.join(missing[:10])}{' and others' if missing[10:] else ''}.",
                next_step=f"the same command with --shard {missing[0]} --parts {self._folder}",
            )
        return head.asked, [item for index in sorted(parts) for item in parts[index][1]]

    def _paths(self) -> list[Path]:
        paths = sorted(self._folder.glob("part-*-of-*.jsonl")) if self._folder.is_dir() else []
        if not paths:
            cause = "There is no file part-I-of-N.jsonl in it."
            raise usage(f"--parts {self._folder} has no parts", cause=cause, next_step="--shard 0/1 writes one")
        return paths

    def _part(self, path: Path) -> tuple[PartHead, list[T]]:
        try:
            first, *rest = path.read_bytes().splitlines()
            items = [msgspec.json.decode(line, type=self._item) for line in rest]
            return msgspec.json.decode(first, type=PartHead), items
        except (OSError, ValueError) as error:  # msgspec.DecodeError is a ValueError, and so is a file without a line
            raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> CommandError:
    cause = unreadable_text(error) if isinstance(error, OSError) else f"It is no part of this report: {error}."
    return usage(f"{path} cannot be read", cause=cause, next_step="write it again, with --shard and the same release")


def _text(asked: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in asked.items())
