"""The newest full record of each HPA, so that short ones, which repeat it but for its values, are given back whole."""

from typing import NamedTuple

from schemas.decisions import Decision, ShortDecision, expand
from schemas.keys import HpaId

KEPT_MS = 1_800_000
"""A full record that no later one replaced is forgotten after this time: the decider writes one every 10 minutes for
each HPA that is still evaluated.
"""


class _Kept(NamedTuple):
    record: Decision
    partition: int
    taken_ms: int


class FullRecords:
    """Full records by id, one per HPA."""

    def __init__(self) -> None:
        self._kept: dict[str, _Kept] = {}
        self._newest: dict[HpaId, str] = {}

    def take(self, decision: Decision, partition: int, now_ms: int) -> None:
        """Remember a full record that short ones may repeat, unless a later one of its HPA is known."""
        if decision.kind != "evaluation" or decision.wants is not None:
            return
        hpa = HpaId(decision.cluster, decision.namespace, decision.name)
        known = self._kept.get(self._newest.get(hpa, ""))
        if known is not None and known.partition == partition and known.record.seq >= decision.seq:
            return
        self._kept.pop(self._newest.get(hpa, ""), None)
        self._newest[hpa] = decision.id
        self._kept[decision.id] = _Kept(decision, partition, now_ms)
        self._forget_old(now_ms)

    def whole(self, short: ShortDecision) -> Decision | None:
        """Give a short record back whole; None where the record that it repeats is not known."""
        kept = self._kept.get(short.same_as)
        return None if kept is None else expand(short, kept.record)

    def forget(self, partitions: set[int]) -> None:
        """Forget the records of these partitions of the decisions topic."""
        for id_ in [id_ for id_, kept in self._kept.items() if kept.partition in partitions]:
            self._drop(id_)

    def _forget_old(self, now_ms: int) -> None:
        # The oldest come first: a record that replaces another is put at the end.
        while self._kept:
            oldest = next(iter(self._kept))
            if now_ms - self._kept[oldest].taken_ms <= KEPT_MS:
                return
            self._drop(oldest)

    def _drop(self, id_: str) -> None:
        record = self._kept.pop(id_).record
        self._newest.pop(HpaId(record.cluster, record.namespace, record.name), None)

    def __len__(self) -> int:
        return len(self._kept)
