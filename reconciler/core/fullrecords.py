"""What decisions show of their HPAs, encoded until it is written, and the newest full record of each HPA, which short
ones repeat but for their values.
"""

from sys import intern

from msgspec import Struct, structs

from reconciler.core.statusplan import wants_events, wants_status
from schemas.codec import decode, encode_to_keep
from schemas.decisions import Decision, InputPosition, ShortDecision, expand
from schemas.keys import HpaId

KEPT_MS = 1_800_000
"""A full record that no later one replaced is forgotten after this time: the decider writes one every 10 minutes for
each HPA that is still evaluated.
"""
_NOWHERE = InputPosition(partition=0, offset=0, hash="")


class ShownDecision(Struct, frozen=True, gc=False):
    """A decision as it waits for its turn, without what only explains it: encoded, a fifth of the size of its objects.

    `full`: the full record, or the one that `short` repeats (empty: it is a full one). `has_status`, `has_events`:
    whether its status, and its Events, are fleethpa's to write.
    """

    hpa: HpaId
    has_status: bool
    has_events: bool
    full: bytes
    short: bytes = b""

    def whole(self) -> Decision:
        """The decision with all that its status and Events show."""
        full = decode(self.full, Decision)
        return expand(decode(self.short, ShortDecision), full) if self.short else full


def shown_decision(decision: Decision, hpa: HpaId | None = None) -> ShownDecision | None:
    """What a full record shows; None: nothing. `hpa`: its id, where that is kept already."""
    has_status, has_events = wants_status(decision), wants_events(decision)
    if not (has_status or has_events):
        return None
    hpa = hpa or HpaId(intern(decision.cluster), intern(decision.namespace), decision.name)
    return ShownDecision(hpa, has_status, has_events, encode_to_keep(_without_explanation(decision)))


class _Kept(Struct, frozen=True, gc=False):
    seq: int
    partition: int
    taken_ms: int
    shown: ShownDecision


class FullRecords:
    """Full records by id, one per HPA; those that show nothing are not kept."""

    def __init__(self) -> None:
        self._kept: dict[str, _Kept] = {}
        self._newest: dict[HpaId, str] = {}

    def take(self, decision: Decision, partition: int, now_ms: int) -> ShownDecision | None:
        """Remember a full record that short ones may repeat, unless a later one of its HPA is known.

        Returns what the record shows, if it shows anything.
        """
        hpa = HpaId(decision.cluster, decision.namespace, decision.name)
        known = self._kept.get(self._newest.get(hpa, ""))
        shown = shown_decision(decision, None if known is None else known.shown.hpa)
        if decision.kind != "evaluation" or decision.wants is not None:
            return shown
        if known is not None:
            if known.partition == partition and known.seq >= decision.seq:
                return shown
            self._drop(self._newest[hpa])
        if shown is not None:
            self._newest[shown.hpa] = decision.id
            self._kept[decision.id] = _Kept(decision.seq, partition, now_ms, shown)
        self._forget_old(now_ms)
        return shown

    def repeated(self, short: ShortDecision) -> ShownDecision | None:
        """What a short record shows; None where the record that it repeats is not known, or shows nothing."""
        kept = self._kept.get(short.same_as)
        if kept is None:
            return None
        own = structs.replace(short, prev="", input=_NOWHERE, newest=[])
        return structs.replace(kept.shown, short=encode_to_keep(own))

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
        self._newest.pop(self._kept.pop(id_).shown.hpa, None)

    def __len__(self) -> int:
        return len(self._kept)


def _without_explanation(decision: Decision) -> Decision:
    """Leave out what only explains a decision, and what each short record has of its own."""
    own = structs.replace(decision, prev="", input=_NOWHERE)
    return structs.replace(own, steps=[], constraints_applied=[], observed={}, labels={}, error="", spec_hash="")
