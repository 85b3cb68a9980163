"""Random single changes to archives and to records as read from topics, and forgers who recompute what follows."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import orjson
from msgspec import structs

from streams.archive.layout import (
    DECISIONS,
    LOG,
    SEGMENT,
    ArchivedRecord,
    ArchiveError,
    archived_record,
    read_frames,
    read_snapshot,
)
from streams.archive.signing import Heads, check_layout
from streams.history.archivepast import ArchivePast
from streams.history.past import Past
from streams.history.replay import Report, Task
from streams.history.verify import checkpoints_of, verify_partition
from streams.partition import Partition
from tests.kit.archive import ENFORCING, Topics, as_record
from tests.kit.generated_log import Fleet

FLEET = Fleet(hpas=3, namespaces=3, minutes=1, partitions=2, metrics=2, seed=4, settings=ENFORCING)


class Verdict(NamedTuple):
    """What verification says: what is wrong (empty: nothing), and how many copies it met."""

    fault: str
    duplicates: int

    @property
    def is_noticed(self) -> bool:
        """Whether anything was printed."""
        return bool(self.fault) or self.duplicates > 0


def judged(source: Past, partitions: int, checkpoints: list[Heads]) -> Verdict:
    """Verify all partitions in this process."""
    reports: list[Report] = []
    for number in range(partitions):
        reports.append(verify_partition(Task(source, number, None, checkpoints)))
        if wrong(reports[-1]):
            break
    return Verdict(next(filter(None, map(wrong, reports)), ""), sum(r.duplicates for r in reports))


def wrong(report: Report) -> str:
    """What is wrong in a partition: a decision that differs, or a fault; empty: nothing."""
    return "; ".join([*(f"{each.id} differs in {each.path}" for each in report.divergences), report.fault]).strip("; ")


def judged_archive(root: Path, public: Path | None) -> Verdict:
    """Verify an archive."""
    try:
        heads = checkpoints_of(root, public)
        partitions = check_layout(root)
    except ArchiveError as error:
        return Verdict(str(error), 0)
    return judged(ArchivePast(root), partitions, heads)


# --- files ------------------------------------------------------------------------------------------------------------


def files_of(root: Path) -> dict[Path, bytes]:
    """Every file of an archive but its lock."""
    return {path: path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file() and path.name != "lock"}


def restore(root: Path, files: Mapping[Path, bytes]) -> None:
    """Put the files back."""
    for path in root.rglob("*"):
        if path.is_file() and path.name != "lock" and path not in files:
            path.unlink()
    for path, data in files.items():
        if not path.exists() or path.read_bytes() != data:
            path.write_bytes(data)


def damage_file(root: Path, files: Mapping[Path, bytes], rng: random.Random) -> str:
    """One random change to one file; gives what it was."""
    path = rng.choice(sorted(files))
    data = bytearray(files[path])
    kind = rng.choice(["flip", "flip", "drop", "truncate", "swap", "duplicate"])
    if kind == "flip":
        place, bit = rng.randrange(len(data)), rng.randrange(8)
        data[place] ^= 1 << bit
        path.write_bytes(data)
        return f"flip bit {bit} of byte {place} of {path.relative_to(root)}"
    if kind == "drop":
        path.unlink()
        return f"drop {path.relative_to(root)}"
    if kind == "truncate":
        length = rng.randrange(len(data))
        path.write_bytes(data[:length])
        return f"truncate {path.relative_to(root)} to {length} bytes"
    other = rng.choice([p for p in sorted(files) if files[p] != files[path]])
    other.write_bytes(data)
    if kind == "swap":
        path.write_bytes(files[other])
    return f"{kind} {path.relative_to(root)} and {other.relative_to(root)}"


def meaning(root: Path, path: Path) -> object:
    """What a file says: a change of a bit that compression does not use is no change."""
    try:
        if path.name.endswith(tuple(SEGMENT.values())):
            return [record for _, records in read_frames(path, torn_end_ok=False) for record in records]
        if path.suffix == ".rows":
            return read_snapshot(path)
    except ArchiveError:
        return None
    return path.read_bytes()


def says_the_same(root: Path, files: Mapping[Path, bytes], meanings: Mapping[Path, object]) -> bool:
    """Whether the archive, though changed in its bytes, holds exactly what it held."""
    return set(files_of(root)) == set(files) and all(
        path.read_bytes() == files[path] or meaning(root, path) == meanings[path] for path in files
    )


# --- records ----------------------------------------------------------------------------------------------------------


def _flip_bytes(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def flip(records: list[ArchivedRecord], at: int, sealed: int, rng: random.Random) -> str:
    """Flip one bit of a value, a key, a header or (log) a timestamp."""
    record = records[at]
    what = rng.choice(["value", "value", "value", "key" if record.key else "timestamp", "header"])
    if what == "key":
        records[at] = structs.replace(record, key=_flip_bytes(record.key, rng))
    elif what == "header" and record.headers:
        headers = list(record.headers)
        index = rng.randrange(len(headers))
        headers[index] = (headers[index][0], _flip_bytes(headers[index][1], rng))
        records[at] = archived_record(record.offset, record.timestamp_ms, record.key, headers, record.value)
    elif what == "timestamp" and not record.key:
        records[at] = structs.replace(record, timestamp_ms=record.timestamp_ms ^ (1 << rng.randrange(40)))
    else:
        records[at] = structs.replace(record, value=_flip_bytes(record.value, rng))
    return f"flip a bit in the {what}"


def drop(records: list[ArchivedRecord], at: int, sealed: int, rng: random.Random) -> str:
    """Leave one out."""
    del records[at]
    return "drop"


def swap(records: list[ArchivedRecord], at: int, sealed: int, rng: random.Random) -> str:
    """Exchange two; their offsets stay where they were."""
    other = rng.choice([n for n in range(sealed) if records[n].value != records[at].value])
    a, b = records[at], records[other]
    records[at], records[other] = structs.replace(b, offset=a.offset), structs.replace(a, offset=b.offset)
    return f"swap with {other}"


def duplicate(records: list[ArchivedRecord], at: int, sealed: int, rng: random.Random) -> str:
    """Put a copy somewhere behind, but not behind all that is sealed: there it would only be the next record."""
    at = min(at, sealed - 2)
    to = rng.randrange(at, sealed)
    records.insert(to, records[at])
    return f"copy to {to}"


def truncate(records: list[ArchivedRecord], at: int, sealed: int, rng: random.Random) -> str:
    """Cut off the end."""
    del records[at:]
    return "truncate"


CHANGES: tuple[Callable[[list[ArchivedRecord], int, int, random.Random], str], ...] = (
    flip,
    flip,
    drop,
    swap,
    duplicate,
    truncate,
)


def change_records(made: Topics, rng: random.Random, *, renumber: bool | None = None) -> tuple[str, Topics]:
    """One random change to the records of one topic partition, as another reader would find them.

    Of the log only what a decision follows from is changed: what comes after the newest decision is not sealed yet.
    """
    topic, number = rng.choice(sorted(key for key, records in made.items() if records and made[DECISIONS, key[1]]))
    records = list(made[topic, number])
    sealed = orjson.loads(made[DECISIONS, number][-1].value)["input"]["offset"] + 1 if topic == LOG else len(records)
    at = rng.randrange(sealed)
    what = rng.choice(CHANGES)(records, at, sealed, rng)
    if renumber if renumber is not None else rng.random() < 0.7:
        records = [structs.replace(record, offset=offset) for offset, record in enumerate(records)]
    return f"{what} at {topic}-{number}@{at}", made | {(topic, number): records}


def rechained(made: Topics, number: int) -> Topics:
    """A forger who numbers and chains the decisions of a partition anew after changing one."""
    records, prev = [], ""
    for offset, record in enumerate(made[DECISIONS, number]):
        try:
            body = orjson.loads(record.value)
            body["seq"], body["prev"] = offset + 1, prev
            value = orjson.dumps(body)
        except (orjson.JSONDecodeError, TypeError):
            value = record.value
        prev = sha256(value).hexdigest()
        records.append(structs.replace(record, offset=offset, value=value))
    return made | {(DECISIONS, number): records}


def decided_anew(made: Topics, number: int) -> Topics | None:
    """A forger who changes the log and decides anew all that follows; None where the log cannot be folded."""
    partition = Partition.empty(number)
    decisions: list[ArchivedRecord] = []
    log = [structs.replace(record, offset=offset) for offset, record in enumerate(made[LOG, number])]
    try:
        for record in log:
            for decision in partition.apply(record.offset, record.timestamp_ms, record.value):
                decisions.append(as_record(len(decisions), record.timestamp_ms, decision))
    except Exception:  # a log that the core cannot fold is no use to a forger
        return None
    return made | {(LOG, number): log, (DECISIONS, number): decisions}
