"""How long the hub has been silent, or has worked again, as one agent sees it. Times are arguments; no clock is read.

All times are milliseconds of one clock that never goes back. Time counts only while the agent's own reads of the API
server succeed, so that an agent that was cut off or suspended does not take over when it returns.
"""

import re
from collections.abc import Collection
from typing import Final

from reconciler.agents.standin.protocol import CLOSING, HpaKey, Judgement
from reconciler.core.fence import STAND_IN
from reconciler.core.lease import SeenLease
from reconciler.core.metricanswers import phase_ms
from reconciler.core.writeplan import WRITE_TIMEOUT_S

GRACE_MS = 30_000
"""How long the hub is silent before the stand-in takes over, and the stand-in before the hub may."""
PERIODS_OF_GRACE = 2
"""The least grace period in sync periods: a working hub makes a decision of each HPA once a period."""
PROOF_MS = 60_000
"""How long the hub must have worked before it takes over again, the first time."""
LONGEST_PROOF_MS = 1_800_000
STEADY_MS = 600_000
"""How long the hub must be in charge after a hand-back for the next one not to take longer."""
STAGGER_MS = 15_000
"""The time over which the hand-backs of many clusters are spread."""
SETTLE_MS = 2_000 + WRITE_TIMEOUT_S * 1_000
"""How long nothing is done after the holder changed: then the admission policies have seen the change (measured: 24 ms
at most), and no write that they admitted before is still running."""
STUCK_MS = 60_000
"""How long a hand-back waits for the native controller before the stand-in is in charge again."""
FRESH_MS = 20_000
"""Maximum age of a decision as a sign that the hub works; an older one only shows since when it may be silent."""
LONGEST_GAP_MS = 5_000
"""Maximum time between two successful reads for the time between them to count."""
FAILING: Final = 3
"""HPAs whose writes must fail for lack of rights, with none that succeeds, before the hub counts as unable to write."""
_NAMED: Final = 10
_NO_RIGHT = re.compile(r'\S+ "[^"]*" is forbidden: User "')
"""How the API server's authorizer refuses a request, at the beginning of the text. Source: apiserver
`responsewriters.forbiddenMessage` and apimachinery `NewForbidden`; what admission refuses continues otherwise."""


def is_for_want_of_rights(error: str) -> bool:
    """Whether a write failed because the hub's own account may not make it.

    Every other error would meet the native controller's write, too, and is no reason for it to take over: a target that
    is missing (404) or invalid (422), a conflict, a refusal by an admission policy, an API server that fails, is
    overloaded or does not answer, although it answers the reads of the Lease over the same connection.
    """
    return _NO_RIGHT.match(error) is not None


class ReadTime:
    """How much time has passed in which reads succeeded."""

    def __init__(self) -> None:
        self.counted_ms = 0
        self._last_ms: int | None = None

    def read(self, now_ms: int, *, is_ok: bool) -> None:
        """A read of the API server ended."""
        if is_ok and self._last_ms is not None:
            gap_ms = now_ms - self._last_ms
            self.counted_ms += gap_ms if gap_ms <= LONGEST_GAP_MS else 0
        self._last_ms = now_ms if is_ok else None


class Judge:
    """Turns what one replica of an agent sees of the hub and of the Lease into judgements, for as long as it runs.

    Silence also counts from before a term: a replica that stood by, or was just started, does not wait for a second
    grace period, because the commands that it reads at the beginning of its term show when the hub decided last.

    `grace_ms`: how long silence lasts before it counts (`grace_of` a sync period); may change at any time.
    """

    def __init__(self) -> None:
        self.grace_ms, self._stagger_ms = GRACE_MS, 0
        self._time = ReadTime()
        self._since: dict[int, int] = {}
        self._signs: dict[int, int] = {}
        self._is_new_term = True
        self._shown: set[int] = set()
        self._failed: dict[HpaKey, int] = {}
        """When the last write of an HPA failed for lack of rights; forgotten after a grace period, at the first write
        that succeeds, and when control of the cluster is transferred."""
        self._failing_since: int | None = None
        self._failure = ""
        self._alive_since: int | None = None
        self._lease: tuple[str, str, int] | None = None
        self._lease_since_ms = 0

    def begin_term(self, stagger_ms: int = 0) -> None:
        """This replica leads from now on; what it received from the hub and saw of the Lease before still counts.

        `stagger_ms`: what is added to the proof of life in this cluster.
        """
        self._stagger_ms, self._is_new_term = stagger_ms, True
        self._shown.clear()
        self._forget_failures()
        self._alive_since = None

    def stood_by(self, now_ms: int, lease: SeenLease | None, *, is_ok: bool) -> None:
        """A look at the cluster without leading, which ended now. Its holder settles for a later term, too."""
        self._time.read(now_ms, is_ok=is_ok)
        if is_ok:
            self.saw(now_ms, lease)

    def saw(self, now_ms: int, lease: SeenLease | None) -> None:
        """The Lease as the API server has just returned it; None if it does not exist."""
        if lease is None:
            self._lease = None
            return
        hand = (lease.uid, lease.holder, lease.generation)
        if hand != self._lease:
            self._lease, self._lease_since_ms = hand, now_ms
            self._forget_failures()
            if lease.holder == STAND_IN:  # also after a hand-back that was stuck: else the next would begin at once
                self._alive_since = None

    def expect(self, partitions: Collection[int]) -> None:
        """The log partitions that hold enforced HPAs of this cluster; none: there is nothing to decide, and all is
        well. What a term expects from its beginning on was expected before it.
        """
        for gone in self._since.keys() - set(partitions):
            del self._since[gone]
        for new in set(partitions) - self._since.keys():
            self._since[new] = 0 if self._is_new_term else self._time.counted_ms
            self._alive_since = None
        self._is_new_term = False

    def sign(self, partition: int, *, age_ms: int = 0) -> None:
        """A decision of this cluster came from this partition, `age_ms` after it was made."""
        self._signs[partition] = max(self._signs.get(partition, 0), self._time.counted_ms - age_ms)
        if age_ms <= FRESH_MS:
            self._shown.add(partition)

    def wrote(self, hpa: HpaKey, error: str = "") -> None:
        """A write of the hub's was applied (no `error`), or the API server did not carry it out."""
        if not error:
            self._forget_failures()
        elif is_for_want_of_rights(error):
            self._failed[hpa], self._failure = self._time.counted_ms, error

    def _forget_failures(self) -> None:
        self._failed.clear()
        self._failing_since = None

    def judge(
        self,
        now_ms: int,
        lease: SeenLease | None,
        *,
        is_ok: bool,
        took_ms: int = 0,
        proof_ms: int = PROOF_MS,
        has_received: bool = True,
    ) -> Judgement:
        """Judge after a look at the cluster.

        Args:
            now_ms: when the look began.
            is_ok: the API server answered.
            took_ms: until the Lease was read: a holder that is new settles from then on, as the change may have been
                made just before the answer.
            proof_ms: see `next_proof_ms`.
            has_received: what the hub sent until now was read, or nothing can be; else its silence is not known yet.
        """
        self._time.read(now_ms, is_ok=is_ok)
        if is_ok:
            self.saw(now_ms + took_ms, lease)
        counted = self._time.counted_ms
        reason = self._silence(counted) if has_received else ""
        is_silent = bool(reason)
        self._record_heartbeats(counted, is_silent)
        since = self._alive_since
        held_ms = now_ms - self._lease_since_ms
        return Judgement(
            is_hub_silent=is_silent,
            is_hub_proven=since is not None and counted - since >= proof_ms + self._stagger_ms,
            is_settled=self._lease is not None and held_ms >= SETTLE_MS,
            is_stuck=lease is not None and lease.holder == CLOSING and held_ms >= SETTLE_MS + STUCK_MS,
            reason=reason,
        )

    def _silence(self, counted: int) -> str:
        """Why the hub counts as silent; empty: it does not."""
        if self._is_failing(counted):
            return f"the API server refused the hub's writes: {self._failure}"
        silent = [key for key, at in self._since.items() if counted - max(at, self._signs.get(key, 0)) >= self.grace_ms]
        return f"no decisions from {_partitions(silent)} for {self.grace_ms // 1000} s" if silent else ""

    def _is_failing(self, counted: int) -> bool:
        """Whether writes of enough HPAs have failed again and again for the whole grace period."""
        self._failed = {hpa: at for hpa, at in self._failed.items() if counted - at < self.grace_ms}
        if len(self._failed) < FAILING:
            self._failing_since = None
        elif self._failing_since is None:
            self._failing_since = counted
        return self._failing_since is not None and counted - self._failing_since >= self.grace_ms

    def _record_heartbeats(self, counted: int, is_silent: bool) -> None:
        is_alive = not is_silent and self._shown >= self._since.keys()
        if not is_alive:
            self._alive_since = None
            if is_silent:
                self._shown.clear()
        elif self._alive_since is None:
            self._alive_since = counted


def _partitions(numbers: Collection[int]) -> str:
    named = ", ".join(map(str, sorted(numbers)[:_NAMED]))
    return f"partition {named} of the log" if len(numbers) == 1 else f"{len(numbers)} partitions of the log ({named})"


def grace_of(sync_period_ms: int) -> int:
    """How long the hub must be silent in a cluster with this sync period."""
    return max(GRACE_MS, PERIODS_OF_GRACE * sync_period_ms)


def stagger_ms(cluster: str) -> int:
    """How much later than others this cluster is handed back."""
    return phase_ms(cluster, STAGGER_MS)


def next_proof_ms(last_proof_ms: int | None, in_charge_ms: int | None) -> int:
    """How long the hub must show life after a take-over.

    Args:
        last_proof_ms: what it had to show the last time; None: never.
        in_charge_ms: how long it was in charge since then; None: unknown.
    """
    if last_proof_ms is None or in_charge_ms is None or in_charge_ms >= STEADY_MS:
        return PROOF_MS
    return min(2 * max(last_proof_ms, PROOF_MS), LONGEST_PROOF_MS)
