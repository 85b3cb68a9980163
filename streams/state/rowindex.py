"""The index of the state rows: which rows belong to a checkpoint, and as of which log offset each was last written.

It has keys and offsets in pieces of bounded size, each a row; the partition's own row has the offset of each piece, so
a restore notices a row or piece that is missing or old. A row that no piece names is a leftover: what it holds was
removed from the state.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from zlib import crc32

from streams.state.ledger import StateError
from streams.state.partitionrow import IndexRow, PartitionRow
from streams.state.rowcodec import index_key

MOST_NAMES = 1_024
"""Names in a piece, on average: with the longest names of Kubernetes they take less than `MAX_ROW_BYTES`."""


class RowIndex:
    """The index of one partition: what the rows are that its checkpoints wrote."""

    def __init__(self) -> None:
        self.written: dict[str, int] = {}
        """Key -> applied offset with which the row was last written."""
        self._leftovers: set[str] = set()
        """Keys of rows that are stored and that nothing names."""
        self._pieces = 0
        self._changed: set[int] = set()

    def write(self, keys: Sequence[str], offset: int) -> None:
        """Note that rows were written with this applied offset."""
        self.written.update(dict.fromkeys(keys, offset))
        if self._leftovers:
            self._leftovers.difference_update(keys)
        if self._pieces > 1:
            self._changed.update([_piece_of(key, self._pieces) for key in keys])
        elif self._pieces and keys:
            self._changed.add(0)

    def remove(self, key: str) -> None:
        """Note that what a row holds was removed."""
        if self.written.pop(key, None) is not None:
            self._leftovers.add(key)
            self._note(key)

    def _note(self, key: str) -> None:
        if self._pieces:
            self._changed.add(_piece_of(key, self._pieces))

    def take_leftovers(self) -> list[str]:
        """Give the rows to delete, once: what they hold was removed, or nothing named them when they were read."""
        found, self._leftovers = sorted(self._leftovers), set()
        return found

    def pieces(self, row: PartitionRow) -> Iterator[tuple[bytes, IndexRow]]:
        """Give the pieces that have changed, with their keys, and note their offset in the partition's row."""
        wanted = max(1, self._pieces)
        while len(self.written) > MOST_NAMES * wanted:
            wanted *= 2
        while wanted > 1 and len(self.written) < MOST_NAMES * wanted // 4:
            wanted //= 2
        if wanted != self._pieces:
            self._leftovers |= {index_key(row.number, self._pieces, at).decode() for at in range(self._pieces)}
            self._pieces, self._changed, row.index = wanted, set(range(wanted)), [row.offset] * wanted
        made = self._made(self._changed)
        self._changed = set()
        for at, piece in made.items():
            row.index[at], key = row.offset, index_key(row.number, wanted, at)
            self._leftovers.discard(key.decode())
            yield key, piece

    def all_pieces(self) -> list[IndexRow]:
        """Give all pieces as of the last checkpoint, in order."""
        return list(self._made(set(range(self._pieces))).values())

    def _made(self, wanted: set[int]) -> dict[int, IndexRow]:
        if wanted == {0} and self._pieces == 1:
            return {0: IndexRow(dict(self.written))}
        made = {at: IndexRow({}) for at in sorted(wanted)}
        for key, written in self.written.items():
            if (piece := made.get(_piece_of(key, self._pieces))) is not None:
                piece.written[key] = written
        return made

    def load(self, pieces: Iterable[IndexRow], stored: Mapping[str, int]) -> None:
        """Take up all stored pieces.

        `stored`: key -> applied offset of every row that is stored, but for these pieces and the partition's own.

        Raises StateError: a row that is named is missing, or older than it was written.
        """
        for piece in pieces:
            self._pieces += 1
            self.written |= piece.written
        check_written(self.written, stored)
        self._leftovers = stored.keys() - self.written.keys()


def check_written(named: Mapping[str, int], stored: Mapping[str, int]) -> None:
    """Check that rows are stored, none older than its name says. Raises StateError: one is missing or old.

    A newer copy, of a checkpoint that has not ended, holds the same: what changes later is written anew.
    """
    for key, written in named.items():
        applied = stored.get(key)
        if applied is None:
            raise StateError(f"state row {key} is missing; it was last written at log offset {written}")
        if applied < written:
            raise StateError(f"state row {key} is of log offset {applied}, {written} was written")


def _piece_of(key: str, pieces: int) -> int:
    return crc32(key.encode()) % pieces
