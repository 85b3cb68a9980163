"""The newest full record of each HPA, so that short ones, which repeat it but for its values, are given back whole, as
far as status and Events show it.
"""

from msgspec import Struct, structs

from schemas.codec import decode, encode_to_keep
from schemas.decisions import Decision, InputPosition, ShortDecision, expand
from schemas.keys import HpaId

KEPT_MS = 1_800_000
"""A full record that no later one replaced is forgotten after this time: the decider writes one every 10 minutes for
each HPA that is still evaluated.
"""
_NOWHERE = InputPosition(partition=0, offset=0, hash="")


class _Kept(Struct, frozen=True, gc=False):
    hpa: HpaId
    seq: int
    partition: int
    taken_ms: int
    record: bytes


class FullRecords:
    """Full records by id, one per HPA: encoded, and without what only explains the decision."""

    def __init__(self) -> None:
        self._kept: dict[str, _Kept] = {}
        self._newest: dict[HpaId, str] = {}

    def take(self, decision: Decision, partition: int, now_ms: int) -> None:
        """Remember a full record that short ones may repeat, unless a later one of its HPA is known."""
        if decision.kind != "evaluation" or decision.wants is not None:
            return
        hpa = HpaId(decision.cluster, decision.namespace, decision.name)
        known = self._kept.get(self._newest.get(hpa, ""))
        if known is not None and known.partition == partition and known.seq >= decision.seq:
            return
        self._kept.pop(self._newest.get(hpa, ""), None)
        self._newest[hpa] = decision.id
        self._kept[decision.id] = _Kept(hpa, decision.seq, partition, now_ms, encode_to_keep(_shown(decision)))
        self._forget_old(now_ms)

    def whole(self, short: ShortDecision) -> Decision | None:
        """Give a short record back, with all that its status and Events show; None where the record that it repeats is
        not known.
        """
        kept = self._kept.get(short.same_as)
        return None if kept is None else expand(short, decode(kept.record, Decision))

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
        self._newest.pop(self._kept.pop(id_).hpa, None)

    def __len__(self) -> int:
        return len(self._kept)


def _shown(decision: Decision) -> Decision:
    """Leave out what only explains a decision, and what each short record has of its own."""
    own = structs.replace(decision, prev="", input=_NOWHERE)
    return structs.replace(own, steps=[], constraints_applied=[], observed={}, labels={}, error="", spec_hash="")
