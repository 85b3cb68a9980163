"""What a reconciler keeps of the decisions that it has read: the newest wanted write of each target, what is to be
shown of each HPA, and the offsets of a partition whose work has ended.
"""

from collections.abc import Iterable
from sys import intern
from typing import Any, NamedTuple

from msgspec import Struct, structs

from reconciler.core.events import wants_events
from reconciler.core.statuses import wants_status
from schemas.codec import encode, encode_to_keep
from schemas.decisions import Decision, InputPosition
from schemas.keys import HpaId

SHOWN_EVERY_MS = 600_000
"""A decision that shows nothing new is taken for news once in this time: somebody else may have changed the status."""
KEPT_MS = 3 * SHOWN_EVERY_MS
"""What an HPA shows is forgotten after this time without news: it is not evaluated any more."""
_NOWHERE = InputPosition(partition=0, offset=0, hash="")


class ShownDecision(Struct, frozen=True, gc=False):
    """A decision as it waits for its turn.

    `has_status`, `has_events`: whether its status, and its Events, are fleethpa's to write. `status`: as JSON, which
    takes a fifth of the memory of its objects; empty: it has none. `decision`: what else its Events show.
    """

    hpa: HpaId
    has_status: bool
    has_events: bool
    status: bytes
    decision: Decision


def shown_decision(decision: Decision) -> ShownDecision:
    """Return a decision as it waits for its turn, without what only explains it."""
    hpa = HpaId(intern(decision.cluster), intern(decision.namespace), decision.name)
    status = b"" if decision.status is None else encode_to_keep(decision.status)
    return ShownDecision(hpa, wants_status(decision), wants_events(decision), status, _only_events(decision))


def _only_events(decision: Decision) -> Decision:
    """Leave out all that Events do not show."""
    own = structs.replace(decision, prev="", input=_NOWHERE, status=None)
    return structs.replace(own, steps=[], metrics=[], constraints_applied=[], observed={}, labels={})


class _Told(NamedTuple):
    partition: int
    since_ms: int
    told: int


class ShownChanges:
    """Knows of each HPA what its decisions show but for the values of metrics, and so which decision shows more."""

    def __init__(self) -> None:
        self._told: dict[HpaId, _Told] = {}

    def shows_more(self, decision: Decision, hpa: HpaId, partition: int, now_ms: int) -> bool:
        """Whether a decision that shows something shows more than other values of metrics than the one before.

        `partition`: in which it was read.
        """
        told = _told(decision)
        before = self._told.get(hpa, _Told(partition, now_ms - SHOWN_EVERY_MS, told))
        if (before.partition, before.told) == (partition, told) and now_ms - before.since_ms < SHOWN_EVERY_MS:
            return False
        self._told.pop(hpa, None)  # so that the oldest come first
        self._told[hpa] = _Told(partition, now_ms, told)
        self._forget_old(now_ms)
        return True

    def forget(self, partitions: set[int]) -> None:
        """Forget what was read in these partitions."""
        self._told = {hpa: each for hpa, each in self._told.items() if each.partition not in partitions}

    def _forget_old(self, now_ms: int) -> None:
        while self._told:
            oldest = next(iter(self._told))
            if now_ms - self._told[oldest].since_ms <= KEPT_MS:
                return
            del self._told[oldest]

    def __len__(self) -> int:
        return len(self._told)


def _told(decision: Decision) -> int:
    """A hash of what a decision shows but for the values of metrics."""
    status = decision.status or {}
    metrics = [_without_values(each) for each in status.get("currentMetrics") or ()]
    shown = {**status, "currentMetrics": metrics}
    return hash(encode((decision.uid, shown, decision.events)))


def _without_values(metric: dict[str, Any]) -> dict[str, Any]:
    return {
        key: {name: part for name, part in each.items() if name != "current"} if isinstance(each, dict) else each
        for key, each in metric.items()
    }


class TargetKey(NamedTuple):
    """One scale subresource of the fleet."""

    cluster: str
    namespace: str
    group: str
    kind: str
    name: str


class Position(NamedTuple):
    """The place of a decision: partition and offset in the decisions topic, and in which assignment it was read.

    `is_new`: it came after this process began to read the partition, so that who read it before has not read this one.
    """

    partition: int
    offset: int
    assignment: int = 0
    is_new: bool = False


class WantedWrite(NamedTuple):
    """A wanted write, the decision without what it shows and explains, and where it came from."""

    decision: Decision
    position: Position


def target_key(decision: Decision) -> TargetKey:
    """The target of a decision; its scaleTargetRef counts where the record has no `target`."""
    cluster, namespace = decision.cluster, decision.namespace
    if decision.target is not None:
        return TargetKey(cluster, namespace, decision.target.group, decision.target.kind, decision.target.name)
    reference = decision.scale_target_ref
    parts = reference.get("apiVersion", "").split("/")
    group = parts[0] if len(parts) == 2 else ""
    return TargetKey(cluster, namespace, group, reference.get("kind", ""), reference.get("name", ""))


_NOTHING_SEEN = (0, "")


class Inbox:
    """The newest decision per target.

    Decisions of a target come from one partition of the log, in the order of their sequence numbers; a sequence number
    that was seen already is a repeat (from a restarted decider) and is ignored.
    """

    def __init__(self) -> None:
        self._seen: dict[int, tuple[int, str]] = {}
        """Partition -> highest sequence number, and the time of its decision."""
        self._newest: dict[TargetKey, tuple[int, WantedWrite | None]] = {}

    def offer(self, decision: Decision, position: Position) -> tuple[WantedWrite | None, list[WantedWrite]]:
        """Add a decision; return the wanted write to carry out and those that it replaces.

        A newer evaluation that wants nothing replaces an older wanted write, too; a completion ends its own.
        """
        if decision.seq <= self._seen.get(position.partition, _NOTHING_SEEN)[0]:
            return None, []
        self._seen[position.partition] = (decision.seq, decision.time)
        key = target_key(decision)
        _, before = self._newest.get(key, (0, None))
        if decision.kind == "completion" and (before is None or before.decision.id != decision.completes):
            return None, []
        wanted = WantedWrite(_write_only(decision), position) if _wants(decision) else None
        if before is None and wanted is None:
            return None, []
        self._keep(key, decision.seq, wanted)
        return wanted, [] if before is None else [before]

    def begins_anew(self, decision: Decision, partition: int) -> bool:
        """Whether the numbers of a partition began again: the topic of decisions was created anew.

        Log time never runs backwards in a partition, so a repeat is never later than the newest decision.
        """
        seq, time = self._seen.get(partition, _NOTHING_SEEN)
        return decision.seq <= seq and decision.time > time

    def _keep(self, key: TargetKey, seq: int, wanted: WantedWrite | None) -> None:
        if wanted is None:
            self._newest.pop(key, None)
        else:
            self._newest[key] = (seq, wanted)

    def is_newest(self, decision: Decision) -> bool:
        """Whether nothing newer was decided for the target."""
        _, wanted = self._newest.get(target_key(decision), (0, None))
        return wanted is not None and wanted.decision.id == decision.id

    def ended(self, decision: Decision) -> None:
        """Forget a wanted write that has an outcome; a newer one of the same target stays."""
        if self.is_newest(decision):
            del self._newest[target_key(decision)]

    def forget(self, partitions: Iterable[int]) -> list[WantedWrite]:
        """Return up partitions that another member owns now; return the wanted writes that are now its own."""
        gone = set(partitions)
        for partition in gone:
            self._seen.pop(partition, None)
        lost = [
            wanted for _, wanted in self._newest.values() if wanted is not None and wanted.position.partition in gone
        ]
        for write in lost:
            del self._newest[target_key(write.decision)]
        return lost

    def __len__(self) -> int:
        return len(self._newest)


def _wants(decision: Decision) -> bool:
    return decision.wants is not None and decision.mode == "enforce" and decision.kind == "evaluation"


def _write_only(decision: Decision) -> Decision:
    """Leave out of a decision what its write does not need, four fifths of it: thousands may wait."""
    return structs.replace(decision, metrics=[], steps=[], observed={}, labels={}, status=None, events=[])


class OffsetProgress:
    """Which offsets of a partition have ended, and so up to where its group may commit."""

    def __init__(self) -> None:
        self._open: dict[int, int] = {}
        self._next = -1

    def begin(self, offset: int) -> None:
        """A record was read; it stays open until `done` was called as often as `begin` for it."""
        self._open[offset] = self._open.get(offset, 0) + 1
        self._next = max(self._next, offset + 1)

    def done(self, offset: int) -> None:
        """End one piece of work of this record; no effect on one that is not open, as its partition was given up."""
        left = self._open.get(offset, 0) - 1
        if left > 0:
            self._open[offset] = left
        else:
            self._open.pop(offset, None)

    @property
    def next(self) -> int:
        """The offset after the newest that was read; -1 before the first record."""
        return self._next

    @property
    def committable(self) -> int:
        """The offset to commit (the next one to read after a restart); -1 before the first record."""
        return min(self._open, default=self._next)

    @property
    def open(self) -> int:
        """How many records still have work in progress."""
        return len(self._open)
