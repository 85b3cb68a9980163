"""Removal and addition budgets: what decisions of a namespace or cluster may still change within a sliding window.

What an HPA removed, added and asked for is in its own row (`BudgetEntry`), each entry with the log offset at which it
was made. A `BudgetBook` adds these up per namespace and cluster. It is never stored: it is made of the rows when it is
first asked for. Counts are replicas, times are log time in Unix milliseconds.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Literal, NamedTuple, cast

from msgspec import Struct

from schemas.decisions import Step
from schemas.keys import HpaId
from schemas.settings import EVERY_NAMESPACE, LONGEST_MS, READERS, Budget, ClusterSettings
from streams.state.clustersettings import read_or
from streams.state.partitionstate import State
from streams.state.rows import BudgetEntry

BUCKET_MS = 15_000
ENTRIES_KEPT_MS = LONGEST_MS + 2 * BUCKET_MS
CLAIM_PERIODS = 2
"""Sync periods for which an HPA that was cut counts as asking for more."""
Way = Literal["removal", "addition"]
CONSTRAINT: dict[Way, str] = {"removal": "RemovalBudget", "addition": "AdditionBudget"}


class Budgets(Struct, frozen=True):
    """The budgets of a cluster's settings; None: there is none. `namespaces`: by name, `*` for those without own."""

    removal: Budget | None = None
    removals: dict[str, Budget | None] = {}
    addition: Budget | None = None
    additions: dict[str, Budget | None] = {}

    @classmethod
    def stated_by(cls, settings: ClusterSettings) -> "Budgets":
        """Return the budgets of a cluster's settings as they are written."""
        return cls(
            removal=_read("removal_budget", settings.removal_budget),
            removals=_read_each("removal_budgets", settings.removal_budgets),
            addition=_read("addition_budget", settings.addition_budget),
            additions=_read_each("addition_budgets", settings.addition_budgets),
        )

    @property
    def is_set(self) -> bool:
        return bool(self.removal or self.removals or self.addition or self.additions)

    def of(self, way: Way, namespace: str) -> tuple[Budget | None, Budget | None]:
        """Return the budgets of a namespace and of the whole cluster."""
        cluster, own = (self.removal, self.removals) if way == "removal" else (self.addition, self.additions)
        return own.get(namespace, own.get(EVERY_NAMESPACE)), cluster


def _read(field: str, text: str | None) -> Budget | None:
    return cast("Budget | None", read_or(None, text, READERS[field]))


def _read_each(field: str, texts: Mapping[str, str] | None) -> dict[str, Budget | None]:
    return {namespace: _read(field, text) for namespace, text in (texts or {}).items()}


class Left(Struct, frozen=True, gc=False):
    """What an HPA may change now, and what bounds it.

    `cap`: replicas. `scope`: the namespace or cluster whose budget is the tighter one. `allowed`, `used`: replicas of
    that budget within the window. `share`: what of it is this HPA's. `until_ms`: when more is free.
    """

    cap: int
    scope: str
    budget: Budget
    allowed: int
    used: int
    share: int
    until_ms: int

    @property
    def is_used_up(self) -> bool:
        """Whether nothing of the budget is left to anybody."""
        return self.used >= self.allowed

    def step(self, way: Way, before: int, after: int) -> Step:
        """Return the decision's step."""
        detail: dict[str, Any] = {"budget": self.budget.text, "of": self.scope, "allowed": self.allowed}
        detail |= (
            {"used": self.used} if self.cap >= self.allowed - self.used else {"used": self.used, "share": self.share}
        )
        return Step(step=f"{way}Budget", in_=before, out=after, detail=detail, until=self.until_ms)

    def text(self, way: Way) -> str:
        """Return why nothing is written at all."""
        verb = "removed" if way == "removal" else "added"
        return (
            f"held: the {way} budget of {self.scope} ({self.budget.text}) allows {self.allowed}, "
            f"and {self.used} were {verb}"
        )


class _Scope:
    """Sums of a namespace, or of the part of a cluster that lives in this log partition.

    Args:
        counts_ready: the size of an HPA is its replicas that have been ready, else all of them.
    """

    __slots__ = ("asked", "changed", "claims", "counts_ready", "largest", "sizes", "total")

    def __init__(self, *, counts_ready: bool) -> None:
        self.counts_ready = counts_ready
        self.sizes: dict[HpaId, tuple[int, int]] = {}
        """HPA -> its size, and all of its replicas."""
        self.total, self.asked = 0, 0
        """The sums of these."""
        self.largest: dict[int, int] = {}
        """Bucket -> the largest total within it, for buckets in which the total changed."""
        self.changed: dict[Way, dict[int, int]] = {"removal": {}, "addition": {}}
        """Bucket -> replicas."""
        self.claims: dict[Way, dict[HpaId, int]] = {"removal": {}, "addition": {}}
        """HPA -> when it was last cut."""

    def add(self, hpa: HpaId, entry: BudgetEntry) -> None:
        bucket = entry.time_ms // BUCKET_MS
        before, asked = self.sizes.get(hpa, (0, 0))
        size = entry.ready if self.counts_ready else entry.replicas
        self.sizes[hpa] = size, entry.replicas
        self.asked += entry.replicas - asked
        if size != before:
            largest = max(self.largest.get(bucket, 0), self.total)
            self.total += size - before
            self.largest[bucket] = max(largest, self.total)
        at = (entry.at_ms or entry.time_ms) // BUCKET_MS
        ways: tuple[tuple[Way, int, bool], ...] = (
            ("removal", entry.removed, entry.claims_removal),
            ("addition", entry.added, entry.claims_addition),
        )
        for way, count, claims in ways:
            if count:
                self.changed[way][at] = self.changed[way].get(at, 0) + count
            if claims:
                self.claims[way][hpa] = entry.time_ms
            else:
                self.claims[way].pop(hpa, None)

    def forget(self, now_ms: int) -> None:
        """Drop buckets that no window reaches."""
        oldest = (now_ms - ENTRIES_KEPT_MS) // BUCKET_MS - 1
        for known in (self.largest, *self.changed.values()):
            if len(known) > 2 * (ENTRIES_KEPT_MS // BUCKET_MS):
                for bucket in [each for each in known if each < oldest]:
                    del known[bucket]

    def size_of(self, hpa: HpaId) -> int:
        """Return the size of an HPA; 0 of one that is not known."""
        return self.sizes.get(hpa, (0, 0))[0]

    def base(self, way: Way, first: int) -> int:
        """Return the replicas that a percentage is of: the most that it had since the bucket `first`, or for additions
        what was there before them, else each one would allow the next.
        """
        if way == "addition":
            return max(0, min(self.total, self.asked - self.used(way, first)))
        return max(self.total, max((count for bucket, count in self.largest.items() if bucket >= first), default=0))

    def used(self, way: Way, first: int) -> int:
        """Return what was changed since the bucket `first`."""
        return max(0, sum(count for bucket, count in self.changed[way].items() if bucket >= first))

    def oldest(self, way: Way, first: int) -> int | None:
        """Return the oldest bucket of the window in which something changed."""
        return min((each for each, count in self.changed[way].items() if each >= first and count > 0), default=None)


def _seen_from(whole: _Scope, others: Iterable[_Scope], way: Way, first: int) -> tuple[int, int]:
    """Return what a budget is a percentage of, and what of it is used, as one namespace of a cluster sees it.

    `others`: the other namespaces. One that has more replicas than all the rest of the cluster counts for as many as
    the rest, its changes in the same proportion, and none changes more than it has. So no namespace decides alone, by
    its size or by what happens in it, what the others may change.
    """
    everything = base = whole.base(way, first)
    used = whole.used(way, first)
    for other in others:
        size, changed = other.base(way, first), other.used(way, first)
        weight = max(0, min(size, everything - size))
        base -= size - weight
        used -= changed - min(weight, -(-changed * weight // max(1, size)))
    return base, max(0, used)


class BudgetBook:
    """The sums of all namespaces and clusters of one log partition, and the budgets of its clusters."""

    def __init__(self) -> None:
        self._budgets: dict[str, tuple[ClusterSettings, Budgets]] = {}
        """Cluster -> its settings, and the budgets that they state."""
        self._namespaces = defaultdict[str, _Scope](partial(_Scope, counts_ready=False))
        """Namespace -> its sums, for a budget of its own."""
        self._clusters = defaultdict[str, _Scope](partial(_Scope, counts_ready=True))
        self._parts: defaultdict[str, defaultdict[str, _Scope]] = defaultdict(
            lambda: defaultdict(partial(_Scope, counts_ready=True))
        )
        """Cluster -> namespace -> its part in the cluster's sums."""

    @classmethod
    def of(cls, state: State) -> "BudgetBook":
        """Return the book of a partition."""
        known = state.derived.get(cls)
        if known is None:
            known = state.derived[cls] = cls()
            known._load([(name, hpa.row.budget) for name, hpa in state.hpas.items() if hpa.row.budget])
        assert isinstance(known, cls)
        return known

    def _load(self, rows: list[tuple[HpaId, tuple[BudgetEntry, ...]]]) -> None:
        """Make the sums from the rows of all HPAs."""
        entries = [(entry.offset, hpa, index, entry) for hpa, known in rows for index, entry in enumerate(known)]
        for _, hpa, _, entry in sorted(entries, key=lambda item: item[:3]):
            self.add(hpa, entry)

    def budgets(self, cluster: str, settings: ClusterSettings) -> Budgets:
        """Return the budgets that settings of a cluster state, read once as long as they are the same."""
        known = self._budgets.get(cluster)
        if known is None or known[0] is not settings:
            known = self._budgets[cluster] = settings, Budgets.stated_by(settings)
        return known[1]

    def add(self, hpa: HpaId, entry: BudgetEntry) -> None:
        """Count what an HPA has just changed or asked for."""
        for scope in (
            self._clusters[hpa.cluster],
            self._parts[hpa.cluster][hpa.namespace],
            self._namespaces[hpa.namespace_key],
        ):
            scope.add(hpa, entry)
            scope.forget(entry.time_ms)

    def drop(self, hpa: HpaId) -> None:
        """Forget an HPA that has long been gone, and its namespace after the last one."""
        scopes: tuple[tuple[dict[str, _Scope], str], ...] = (
            (self._clusters, hpa.cluster),
            (self._parts[hpa.cluster], hpa.namespace),
            (self._namespaces, hpa.namespace_key),
        )
        for known, key in scopes:
            if (scope := known.get(key)) is None:
                continue
            scope.sizes.pop(hpa, None)
            for claims in scope.claims.values():
                claims.pop(hpa, None)
            if not scope.sizes and known is not self._clusters:
                del known[key]

    def left(
        self, way: Way, hpa: HpaId, own: tuple[BudgetEntry, ...], *, budgets: Budgets, now_ms: int, period_ms: int
    ) -> Left | None:
        """Return what an HPA may remove or add now; None: no budget bounds it.

        First every HPA gets its share by size. What others leave is shared, from the next period on, among those that
        were cut and still ask.

        Args:
            own: the HPA's own entries.
            period_ms: the sync period.
        """
        asking = _Asking(way, hpa, own, now_ms, period_ms)
        of_namespace, of_cluster = budgets.of(way, hpa.namespace)
        bounds: list[Left] = []
        if of_namespace is not None:
            scope = self._namespaces[hpa.namespace_key]
            bounds.append(asking.left(scope, [], f"namespace {hpa.namespace_key}", of_namespace))
        if of_cluster is not None:
            scope = self._clusters[hpa.cluster]
            others = [part for other, part in self._parts[hpa.cluster].items() if other != hpa.namespace]
            bounds.append(asking.left(scope, others, f"cluster {hpa.cluster}", of_cluster))
        # Of two that leave the same, the one that holds: it must not be hidden by the other.
        return min(bounds, key=lambda left: (left.cap, not left.budget.holds), default=None)


class _Asking(NamedTuple):
    """An HPA that asks what it may change now; `own`: its own entries."""

    way: Way
    hpa: HpaId
    own: tuple[BudgetEntry, ...]
    now_ms: int
    period_ms: int

    def left(self, scope: _Scope, others: list[_Scope], name: str, budget: Budget) -> Left:
        """Return what a budget leaves to the HPA. `others`: as for `_seen_from`."""
        # One bucket more than the window has: what lies in the oldest one may be younger than the window.
        first = (self.now_ms - budget.window_ms) // BUCKET_MS
        base, used = _seen_from(scope, others, self.way, first)
        base = max(1, base)
        allowed = budget.allowed(base)
        free = max(0, allowed - used)
        own_used = self._own_used(first)
        size = scope.size_of(self.hpa)
        weight = size + max(0, own_used) if self.way == "removal" else max(1, size)
        share = max(1, -(-allowed * weight // base))
        cap = min(free, max(0, share - own_used, self._portion_of_claims(scope, free)))
        oldest = scope.oldest(self.way, first)
        until_ms = self.now_ms + self.period_ms
        if cap == free and oldest is not None:
            until_ms = (oldest + 1) * BUCKET_MS + _whole_buckets(budget.window_ms)
        return Left(cap, name, budget, allowed, used, share, until_ms)

    def _own_used(self, first: int) -> int:
        return sum(
            _count(entry, self.way) for entry in self.own if (entry.at_ms or entry.time_ms) // BUCKET_MS >= first
        )

    def _portion_of_claims(self, scope: _Scope, free: int) -> int:
        """Return the HPA's part of what is free, among those that were cut and still ask; 0: it is none of them."""
        claims, since_ms = scope.claims[self.way], self.now_ms - CLAIM_PERIODS * self.period_ms
        if claims.get(self.hpa, -1) < since_ms:
            return 0
        size = scope.size_of(self.hpa)
        asking = sum(scope.size_of(each) for each, at in claims.items() if each != self.hpa and at >= since_ms)
        return -(-free * size // max(1, size + asking))


def _whole_buckets(window_ms: int) -> int:
    return -(-window_ms // BUCKET_MS) * BUCKET_MS


def _count(entry: BudgetEntry, way: Way) -> int:
    return entry.removed if way == "removal" else entry.added


def trimmed(entries: tuple[BudgetEntry, ...], oldest_ms: int) -> tuple[BudgetEntry, ...]:
    """Drop entries that no evaluation after a checkpoint reads; the newest dropped one would say the size, so it stays.

    `oldest_ms`: log time of the checkpoint before this one.
    """
    first_ms = oldest_ms - ENTRIES_KEPT_MS
    kept = 0
    while kept + 1 < len(entries) and entries[kept + 1].time_ms < first_ms:
        kept += 1
    return entries[kept:]
