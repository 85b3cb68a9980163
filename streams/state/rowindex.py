"""Which rows belong to a checkpoint: their keys and offsets, in pieces of bounded size, each stored as a row.

The partition's own row has the offset of each piece, so a restore notices a row or a piece that is missing or old. A
row that no piece names is a leftover: whatever it holds was removed from the state. Rows of what is gone are deleted
from the changelog by the checkpoint after the one that says so: until then the rows of the one before are whole.
"""

from collections.abc import Iterable, Iterator, Mapping
from zlib import crc32

from streams.state.logerrors import StateError
from streams.state.partitionrow import IndexRow, PartitionRow
from streams.state.rowcodec import index_key

MOST_NAMES = 1_024
"""Names in a piece, on average: with the longest names of Kubernetes they take less than `MAX_ROW_BYTES`."""


class RowIndex:
    """The index of one partition: what the rows are that its checkpoints wrote."""

    def __init__(self) -> None:
        self.written: dict[str, int] = {}
        self.gone: dict[str, int] = {}
        self._leftovers: set[str] = set()
        """Keys of rows that are stored and that nothing names."""
        self._pieces = 0
        self._changed: set[int] = set()

    def write(self, key: str, offset: int) -> None:
        """Note that a row was written with this applied offset."""
        self.written[key] = offset
        self.gone.pop(key, None)
        self._leftovers.discard(key)
        self._note(key)

    def remove(self, key: str, offset: int) -> None:
        """Note that the record at a log offset removed what a row holds."""
        if self.written.pop(key, None) is not None:
            self.gone[key] = offset
            self._note(key)

    def _note(self, key: str) -> None:
        if self._pieces:
            self._changed.add(_piece_of(key, self._pieces))

    def settled(self) -> list[str]:
        """Give the rows to delete: those that the checkpoint before said are gone. They are named no longer."""
        found = sorted({*self.gone, *self._leftovers})
        for key in self.gone:
            self._note(key)
        self.gone, self._leftovers = {}, set()
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
            row.index[at] = row.offset
            yield index_key(row.number, wanted, at), piece

    def all_pieces(self) -> list[IndexRow]:
        """Give all pieces as of the last checkpoint, in order."""
        return list(self._made(set(range(self._pieces))).values())

    def _made(self, wanted: set[int]) -> dict[int, IndexRow]:
        made = {at: IndexRow({}, {}) for at in sorted(wanted)}
        for key, written in self.written.items():
            if (piece := made.get(_piece_of(key, self._pieces))) is not None:
                piece.written[key] = written
        for key, gone in self.gone.items():
            if (piece := made.get(_piece_of(key, self._pieces))) is not None:
                piece.gone[key] = gone
        return made

    def load(self, pieces: Iterable[IndexRow], stored: Mapping[str, int], offset: int) -> dict[str, int]:
        """Take up stored pieces; give the rows that count, with their applied offsets.

        Those that no piece names are of a torn checkpoint: `write` says that one of them is used.

        Args:
            pieces: all that the partition's row of log offset `offset` names; or newer ones, of a torn checkpoint.
            stored: key -> applied offset of every row that is stored, but for these pieces and the partition's own.

        Raises:
            StateError: a row that is named is missing, or older than it was written.
        """
        for piece in pieces:
            self._pieces += 1
            self.written |= piece.written
            # What a record removes that is still to be applied is there until then.
            self.written |= {key: -1 for key, at in piece.gone.items() if at > offset}
            self.gone |= {key: at for key, at in piece.gone.items() if at <= offset}
        check_written(self.written, stored)
        counted = {key: at for key, at in stored.items() if key in self.written or at > offset}
        self._leftovers = stored.keys() - counted.keys() - self.gone.keys()
        return counted


def check_written(named: Mapping[str, int], stored: Mapping[str, int]) -> None:
    """Check that rows are stored, none older than its name says.

    Raises:
        StateError: one is missing or old.
    """
    for key, written in named.items():
        applied = stored.get(key)
        if applied is None:
            raise StateError(f"state row {key} is missing; it was last written at log offset {written}")
        if applied < written:
            raise StateError(f"state row {key} is of log offset {applied}, {written} was written")


def _piece_of(key: str, pieces: int) -> int:
    return crc32(key.encode()) % pieces
