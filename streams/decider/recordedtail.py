"""The decisions on the decisions topic after the recovered state, read as the fold reaches them."""

import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from schemas.chain import REMEMBERED, Links, links_of, log_offset_of


class StandingError(Exception):
    """The decisions topic does not continue the recovered state; the text names the fault and its place."""


class DecisionOnTopic(Protocol):
    """What is read of a record of the decisions topic."""

    @property
    def offset(self) -> int: ...

    @property
    def value(self) -> bytes: ...


Fetch = Callable[[], Awaitable[Sequence[DecisionOnTopic]]]
"""The next records of the decisions partition, in order; waits for them."""


class TailHead(NamedTuple):
    """The newest decision of the chain: its number and the SHA-256 (hex) of its value."""

    seq: int
    digest: str


class RecordedTail:
    """Decisions of one partition after `recovered`, by the log offset that caused them.

    Nothing is read before it is needed, so a long replay holds few decisions in memory.

    Args:
        partition: number of the decisions partition.
        recovered: the last decision that the recovered state knows; seq 0 for none.
        end: offset after the last record that stood when the partition was taken over.
    """

    def __init__(self, partition: int, recovered: TailHead, first: int, end: int, fetch: Fetch) -> None:
        self._partition = partition
        self._recovered = recovered
        self._position = first
        self._end = end
        self._fetch = fetch
        self._head: TailHead | None = None
        self._digests: dict[int, str] = {}
        self._newest_log_offset = -1
        self._by_offset: dict[int, dict[str, bytes]] = {}
        self.duplicates = 0

    @classmethod
    def none(cls, partition: int) -> "RecordedTail":
        """Without any published decision."""

        async def fetch() -> Sequence[DecisionOnTopic]:
            return ()

        return cls(partition, TailHead(0, ""), 0, 0, fetch)

    @property
    def exhausted(self) -> bool:
        """Whether everything that stood has been read."""
        return self._position >= self._end

    @property
    def finished(self) -> bool:
        """Whether all published decisions have been given."""
        return self.exhausted and not self._by_offset

    async def at(self, log_offset: int) -> Mapping[str, bytes]:
        """Decision id → value of the decisions that this log offset caused and that are published; each is given once.

        Raises:
            StandingError: a hole, a broken chain, two versions of one decision, or an end before the recovered state.
        """
        while not self.exhausted and self._newest_log_offset <= log_offset:
            for record in await self._fetch():
                self._read(record)
        if self.exhausted:
            self._check_end()
        return self._by_offset.pop(log_offset, {})

    def _read(self, record: DecisionOnTopic) -> None:
        if record.offset >= self._end:
            self._position = record.offset
            return
        links = links_of(record.value)
        digest = hashlib.sha256(record.value).hexdigest()
        if self._is_new(links, digest, record.offset):
            self._keep(links, record.value)
        self._position = record.offset + 1

    def _is_new(self, links: Links, digest: str, offset: int) -> bool:
        head = self._head
        if head is not None and links.seq <= head.seq:
            if self._digests.get(links.seq, digest) != digest:
                raise StandingError(f"{self._where(offset)}: a second version of decision number {links.seq}")
            self.duplicates += 1
            return False
        before = head or self._recovered
        if links.seq > before.seq + 1:
            raise StandingError(f"{self._where(offset)}: number {links.seq} follows number {before.seq}")
        if links.seq == before.seq + 1 and links.prev != before.digest:
            raise StandingError(f"{self._where(offset)}: number {links.seq} does not name the record before it")
        if links.seq == self._recovered.seq and digest != self._recovered.digest:
            raise StandingError(f"{self._where(offset)}: number {links.seq} is not the one that the state follows from")
        self._head = TailHead(links.seq, digest)
        self._digests[links.seq] = digest
        self._digests.pop(links.seq - REMEMBERED, None)
        return links.seq > self._recovered.seq

    def _keep(self, links: Links, value: bytes) -> None:
        log_offset = log_offset_of(links.id)
        self._newest_log_offset = max(self._newest_log_offset, log_offset)
        self._by_offset.setdefault(log_offset, {})[links.id] = value

    def _check_end(self) -> None:
        newest = self._head.seq if self._head else 0
        if newest < self._recovered.seq:
            raise StandingError(
                f"{self._where(self._end)}: the newest decision is number {newest}, but the recovered state follows"
                f" from number {self._recovered.seq}: decisions were lost"
            )

    def _where(self, offset: int) -> str:
        return f"decisions partition {self._partition} offset {offset}"
