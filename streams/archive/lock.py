"""Who writes an archive: one process at a time, and readers can tell whether one does."""

import fcntl
from pathlib import Path
from typing import IO

from streams.archive.segments import ArchiveError, reading

_LOCK = "lock"


class Lock:
    """Only one process writes an archive; readers ask with `is_written` whether one does."""

    def __init__(self, root: Path) -> None:
        self._file: IO[bytes] = (root / _LOCK).open("ab")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self._file.close()
            raise ArchiveError(f"{root}: another process writes this archive") from error

    def release(self) -> None:
        """Let another process write."""
        self._file.close()


def is_written(root: Path) -> bool:
    """Whether a process writes this archive now."""
    try:
        with reading(root / _LOCK):
            file = (root / _LOCK).open("rb")
    except FileNotFoundError:
        return False
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False
