"""Trials of damage: each makes one random change and fails if verification says nothing. Shared by both tiers."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from pathlib import Path

import pytest

from streams.archive.layout import DECISIONS, LOG
from streams.archive.signing import CheckpointWriter, make_key, read_private
from streams.history.verify import checkpoints_of
from tests.kit.archive import Topics, topics_of, write_archive
from tests.kit.damage import (
    FLEET,
    change_records,
    damage_file,
    decided_anew,
    files_of,
    judged,
    judged_archive,
    meaning,
    rechained,
    restore,
    says_the_same,
)
from tests.kit.memorypast import MemoryPast

SEGMENT_MS = 20_000


class Signed:
    """An archive with signed checkpoints, and what it was made of."""

    def __init__(self, folder: Path) -> None:
        self.made: Topics = topics_of(FLEET)
        self.public = folder / "audit.pub"
        make_key(folder / "audit.key", self.public)
        self.root = folder / "archive"
        writer = CheckpointWriter(self.root, read_private(folder / "audit.key"))
        write_archive(
            self.root, FLEET, segment_ms=SEGMENT_MS, topics=self.made, checkpoints=writer, sign_every=40, finish=True
        )
        self.checkpoints = checkpoints_of(self.root, self.public)
        assert len(self.checkpoints) >= 3


def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trials need no durability."""
    monkeypatch.setattr("os.fsync", lambda descriptor: None)


def damage_files(signed: Signed, trials: int, seed: int) -> Counter[str]:
    """Single changes to the files of an archive; counts kinds, and changes that change nothing."""
    rng, files = random.Random(seed), files_of(signed.root)
    meanings = {path: meaning(signed.root, path) for path in files}
    counts: Counter[str] = Counter()
    for _ in range(trials):
        what = damage_file(signed.root, files, rng)
        if says_the_same(signed.root, files, meanings):
            counts["no change"] += 1
        else:
            assert judged_archive(signed.root, signed.public).fault, what
            counts[what.split()[0]] += 1
        restore(signed.root, files)
    assert judged_archive(signed.root, signed.public).fault == ""
    return counts


def damage_records(signed: Signed, trials: int, seed: int) -> Counter[str]:
    """Single changes to records as read from topics: no file, no manifest, no signature helps here."""
    rng, counts = random.Random(seed), Counter[str]()
    for _ in range(trials):
        what, changed = change_records(signed.made, rng)
        verdict = judged(MemoryPast(changed), FLEET.partitions, [])
        # A copy of a decision with an offset of its own is what a revived worker leaves: counted, not a fault.
        is_copy = what.startswith("copy") and DECISIONS in what
        assert verdict.is_noticed if is_copy else verdict.fault, what
        counts[what.split()[0]] += 1
    assert judged(MemoryPast(signed.made), FLEET.partitions, []) == ("", 0)
    return counts


def forge_chains(signed: Signed, trials: int, seed: int) -> Counter[str]:
    """A decision is changed and the chain after it made anew: recomputation finds it without any signature."""
    rng, counts = random.Random(seed), Counter[str]()
    only = {key: records for key, records in signed.made.items() if key[0] == DECISIONS}
    for _ in range(trials):
        what, changed = change_records(only, rng, renumber=True)
        number = next(n for (_, n), records in changed.items() if records is not only[DECISIONS, n])
        forged = rechained(signed.made | changed, number)
        if forged == signed.made:
            continue  # what was changed was a number or a link, and both were made anew
        assert judged(MemoryPast(forged), FLEET.partitions, []).fault, what
        counts[what.split()[0]] += 1
    return counts


def forge_everything(signed: Signed, folder: Path, trials: int, seed: int) -> Counter[str]:
    """The log is changed and all that follows made anew: decisions, chains, segments, manifests, heads, snapshots.

    Such an archive is consistent in itself; the signed checkpoints of the true one tell.
    """
    rng, counts = random.Random(seed), Counter[str]()
    only = {key: records for key, records in signed.made.items() if key[0] == LOG}
    while counts.total() < trials:
        what, changed = change_records(only | _decisions(signed.made), rng, renumber=True)
        if DECISIONS in what:
            continue
        number = int(what.rsplit("@", 1)[0].rsplit("-", 1)[1])
        forged = decided_anew(signed.made | changed, number)
        if forged is None:
            continue
        root = folder / "forged"
        shutil.rmtree(root, ignore_errors=True)
        write_archive(root, FLEET, segment_ms=SEGMENT_MS, topics=forged)
        assert judged_archive(root, None).fault == "", what
        shutil.copytree(signed.root / "checkpoints", root / "checkpoints")
        assert judged_archive(root, signed.public).fault, what
        assert judged(MemoryPast(forged), FLEET.partitions, signed.checkpoints).fault, what
        counts[what.split()[0]] += 1
    return counts


def _decisions(made: Topics) -> Topics:
    return {key: records for key, records in made.items() if key[0] == DECISIONS}
