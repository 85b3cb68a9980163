"""State rows: what the decider keeps per HPA and per namespace; a partition's own row is in `partitionrow.py`.

Fields are only ever added at the end, with a default: the structs are stored as arrays (`rowcodec.py`).
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Raw, Struct, field

from schemas.answers import DEFAULT_WINDOW_MS, MetricAnswer
from schemas.codec import encode_to_keep
from schemas.keys import HpaId
from schemas.observed import ConflictingAutoscaler, Mode, Origin, Pod
from streams.hpa.evaluation import EMPTY_HISTORY, History, Pending
from streams.state.acrossrows import ClaimRow, FleetRow, ShareRow
from streams.state.ledger import StateError

NOTHING_APPLIED = -1
SIDES = (0, 1, 2)
"""A namespace is stored in three kinds of rows, of the first two as many as it takes: all that changes with every
answer; its pods and pushed samples; what is seen for partial views, if anything is.
"""

TargetName = tuple[str, str, str]
"""(group, kind, name) of a scale target."""
QueryKey = tuple[str, str, str, str, str, str]
"""What a metrics API was asked (`schemas.answers.query_of`), selectors in canonical form."""
SeriesKey = tuple[str, str, str, str, str]
"""(type, metric, container, object kind, object) of pushed samples."""
MetricKey = tuple[str, ...]
"""What a metric is made of: a `QueryKey` or a `SeriesKey`."""
SERIES_FIELDS = 5
NOTHING: Mapping[str, Any] = {}
"""Of an HPA that has nothing of a kind: an empty dictionary of its own takes 64 bytes."""
_ANSWER = msgspec.json.Decoder(MetricAnswer)
decoded_status = msgspec.msgpack.Decoder(dict[str, Any]).decode
_packed = msgspec.msgpack.Encoder().encode
NO_NATIVE: Final = b"{}"
NO_STATUS, NOTHING_SHOWN = Raw(_packed(None)), Raw(_packed({}))


def is_series(key: MetricKey) -> bool:
    """Tell a series of pushed samples from a question."""
    return len(key) == SERIES_FIELDS


class DirectoryKey(NamedTuple):
    """Identity of an HPA within its namespace: a central one and one of the cluster may have the same name."""

    name: str
    origin: Origin


class Pause(Struct, array_like=True, frozen=True, gc=False):
    """A pause: `until_ms` 0 means until resumed. `replicas`: of an override, which is kept among the pauses.
    `by_budget`: of a budget with `then=hold`; it pauses nothing that is exempt. `stated_by`: as of `Command`.
    """

    until_ms: int = 0
    author: str = ""
    reason: str = ""
    since_ms: int = 0
    replicas: int = 0
    by_budget: bool = False
    stated_by: str = ""


class PendingWrite(Struct, array_like=True, frozen=True, gc=False):
    """A wanted write whose outcome is not known yet."""

    decision: str
    uid: str
    pending: Pending
    wanted_ms: int
    expires_ms: int
    """From this moment the reconciler no longer writes; 5 s later the write counts as failed."""
    current_replicas: int
    evaluated_ms: int = 0
    """Time as of which it was wanted: that of its scale event."""
    rules: str = ""
    """The rules of its evaluation (`Effective.rules`), by which it ends also after an upgrade of the cluster."""

    def stepped_back(self, now_ms: int) -> dict[str, Any]:
        """Return the fields that change, beside `logtime.BOUNDED`, where log time steps back to `now_ms`."""
        return {"expires_ms": min(self.expires_ms, now_ms + self.expires_ms - self.wanted_ms)}


class BudgetEntry(Struct, array_like=True, frozen=True, gc=False):
    """What an HPA counted for in its namespace's and cluster's budgets from log offset `offset` on.

    `replicas`: of its scale. `ready`: how many of them have been ready (`BudgetAccount.before`). `removed`, `added`:
    replicas changed (negative: a write failed, they are free again); they count as of `at_ms` (0: as of `time_ms`).
    `claims_*`: it was cut in this way, and asks for more.
    """

    offset: int
    time_ms: int
    replicas: int
    ready: int
    removed: int = 0
    added: int = 0
    at_ms: int = 0
    claims_removal: bool = False
    claims_addition: bool = False


def kept_status(status: Mapping[str, Any]) -> Raw:
    """Encode a status as a row keeps it, without the room that the encoder leaves behind it."""
    return Raw(bytes(memoryview(_packed(status))))


class HpaRow(Struct, array_like=True, kw_only=True, gc=False):
    """The stored state of one HPA. Lists that are mostly empty are tuples: an empty list takes 56 bytes."""

    cluster: str
    namespace: str
    name: str
    uid: str = ""
    origin: Origin = "cluster"
    generation: int = 0
    hpa: bytes = b"{}"
    """The object without its status: defaulted autoscaling/v2, JSON."""
    spec_hash: str = ""
    """SHA-256 (hex) of the canonical JSON of `spec`."""
    author: str = ""
    """Who made the newest spec change, where that is known, and why (`change_reason`)."""
    change_reason: str = ""
    deleted: bool = False
    """Deleted, but still remembered until its next due evaluation."""
    gone: bool = False
    """Forgotten: a tombstone."""
    status: Raw = NO_STATUS
    """The status that fleethpa's own decisions gave, as MessagePack: a dictionary would take three times as much
    memory. NO_STATUS: the native object's counts.
    """
    native: bytes = NO_NATIVE
    """The status of the object in the cluster, as last seen, as JSON. Only HPAs in shadow read it; a dictionary would
    take four times as much memory.
    """
    history: History = EMPTY_HISTORY
    """Recommendations and scale events."""
    registered: tuple[int, str] = (NOTHING_APPLIED, "")
    """The pod selector that the overlap check knows (empty: none), and the log offset from which on it does."""
    restart_seen: int = NOTHING_APPLIED
    """Offset of the newest restart that this HPA has taken part in."""
    next_due_ms: int = 0
    """When the answers for the next evaluation are expected."""
    pending: PendingWrite | None = None
    last_decision: str = ""
    last_decision_ms: int = 0
    last_offset: int = NOTHING_APPLIED
    seen_replicas: int | None = None
    """spec.replicas that the last evaluation saw."""
    written: tuple[int, str] | None = None
    """(replicas, decision) of the last write of ours that was applied."""
    native_moves: tuple[tuple[int, int, int], ...] = ()
    """(from, to, time ms) of the native controller's writes since the last evaluation."""
    mode: Mode = "shadow"
    """Mode of the last evaluation."""
    paused: str = ""
    """`held` of it: which limit kept back the write that it asked for, not only a pause; empty: none did."""
    refused: str = ""
    """Why it could not enforce; empty: it could, or was not asked to."""
    due_again: bool = False
    """The spec changed while a write was pending: the next evaluation follows its completion at once."""
    moves: tuple[tuple[int, int, int, str], ...] = ()
    """The last changes of spec.replicas: (time ms, before, after, writer). Those of other writers are added when an
    evaluation sees them, fleethpa's own when their outcome arrives.
    """
    hidden: bytes = b""
    """Origin `central` only: the cluster's HPA of the same name (JSON, with its status) as last seen; empty: none."""
    shadow_status: Raw = NOTHING_SHOWN
    """The status that the last evaluation gave where the native object's counts, as MessagePack; no decision reads it:
    it is what read verbs show.
    """
    evaluated_ms: int = 0
    """Time as of which the last evaluation decided; 0: none under this spec yet."""
    budget: tuple[BudgetEntry, ...] = ()
    """What it counted for in budgets, oldest first; empty while no budget is set."""
    annotations: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    """fleethpa's own annotations of the object, as last seen."""
    failures: int = 0
    """Evaluations in a row that found no metrics; counted only for an HPA with a fallback."""
    early_ms: int = 0
    """A pushed sample moved a metric: the HPA is evaluated at this time, before `next_due_ms`; 0: none did."""
    ratios: tuple[float | None, ...] = ()
    """Per metric, usage over target as of the last evaluation; kept only where samples may bring an evaluation."""
    gone_ms: int = 0
    """Log time at which it became a tombstone."""
    revision: int = 0
    """Of the spec of the FleetHPA that it is, or that it belongs to; 0: it is an HPA by itself."""
    share: ShareRow | None = None
    """Of an HPA that belongs to a FleetHPA."""
    fleet: FleetRow | None = None
    """Of a FleetHPA."""
    claims: Mapping[str, ClaimRow] = field(default_factory=lambda: NOTHING)
    """CapacityGroup -> what the HPA has of it."""
    blocked: tuple[int, ...] = ()
    """The metric that pods without metrics kept from changing the count at the last evaluation
    (`streams.state.needs.Blocked`); no decision reads it: it is what read verbs show.
    """
    wants: int | None = None
    """The replicas that the metrics asked for at the last evaluation, before any limit; None: they gave no answer, or
    there was no evaluation under this spec yet. No decision reads it: it is what read verbs show.
    """
    lost: tuple[tuple[int, str, int], ...] = ()
    """(replicas, decision, when it was wanted in ms) of the last writes whose outcomes never came, oldest first, until
    one is applied or an evaluation sees that the scale has changed.
    """

    def __post_init__(self) -> None:
        # What was decoded lies in the bytes of the whole row.
        self.status = NO_STATUS if self.status == NO_STATUS else self.status.copy()
        self.shadow_status = NOTHING_SHOWN if self.shadow_status == NOTHING_SHOWN else self.shadow_status.copy()
        self.annotations = self.annotations or NOTHING
        self.claims = self.claims or NOTHING

    def stepped_back(self, now_ms: int) -> dict[str, Any]:
        """Return the fields that change, beside `logtime.BOUNDED`, where log time steps back to `now_ms`."""
        return {
            "moves": tuple((min(each[0], now_ms), *each[1:]) for each in self.moves),
            "native_moves": tuple((*each[:2], min(each[2], now_ms)) for each in self.native_moves),
        }

    @property
    def id(self) -> HpaId:
        return HpaId(self.cluster, self.namespace, self.name)

    @property
    def is_live(self) -> bool:
        """Whether the HPA is there."""
        return not (self.gone or self.deleted)

    @property
    def native_status(self) -> dict[str, Any]:
        """The status of the object in the cluster, as last seen."""
        return msgspec.json.decode(self.native, type=dict[str, Any])

    @property
    def own_status(self) -> dict[str, Any] | None:
        """The status that fleethpa's own decisions gave, decoded anew at each call; None: the native one counts."""
        return None if self.status is NO_STATUS else decoded_status(self.status)

    def keep_status(self, status: Mapping[str, Any] | None) -> None:
        """Keep the status that a decision gave; None: the native object's counts."""
        self.status = NO_STATUS if status is None else kept_status(status)

    def see_native(self, status: dict[str, Any]) -> None:
        """Keep the status of the object in the cluster."""
        self.native = encode_to_keep(status) if status else NO_NATIVE

    @property
    def shown_status(self) -> Mapping[str, Any]:
        """The status to show: fleethpa's own, else what an evaluation in shadow gave, else the native object's."""
        own = self.own_status
        return (decoded_status(self.shadow_status) or self.native_status) if own is None else own

    def hpa_object(self) -> dict[str, Any]:
        """Return the object (metadata and spec, without status)."""
        return msgspec.json.decode(self.hpa, type=dict[str, Any])


class DirectoryEntry(Struct, array_like=True, frozen=True, gc=False):
    """An HPA as its namespace knows it."""

    target: TargetName
    origin: Origin = "cluster"
    mark: str = ""
    """Full list that named it last."""
    uid: str = ""
    """uid of the cluster's object; empty: not known, or a central one."""
    replaced: str = ""
    """uid of the cluster's object that was deleted when this central HPA adopted it: late news of it is ignored."""
    own: int = 0
    """Bytes of the object, which the HPA's own row keeps."""


class ScaleRow(Struct, array_like=True, frozen=True, gc=False):
    """The newest observation of a scale; `error` instead of it where it could not be read."""

    spec_replicas: int = 0
    status_replicas: int = 0
    selector: str = ""
    resource_version: str = ""
    error: str | None = None
    session: str = ""
    seen_ms: int = 0
    manager: str = ""
    manager_ms: int = 0
    outcome_offset: int = NOTHING_APPLIED
    """Log offset of the newest decision whose outcome reported what the scale shows."""
    uid: str = ""
    stated_ms: int = 0
    """When the session reported it, by its own clock."""


class PodEntry(Struct, array_like=True, frozen=True, gc=False):
    """A pod, and the full list that named it last."""

    pod: Pod
    mark: str = ""


class AnswerRow(Struct, array_like=True, frozen=True, gc=False):
    """The newest answer to one query: when it was given (log time at the latest) and where it came from. It is kept as
    the JSON of the log: a fleet has hundreds of thousands of pods, and an evaluation reads it once.
    """

    time_ms: int
    source: str = ""
    json: bytes = b""

    @property
    def answer(self) -> MetricAnswer:
        """The answer, decoded anew at each call. Raises StateError: it cannot be read."""
        try:
            return _ANSWER.decode(self.json)
        except msgspec.DecodeError as error:
            raise StateError(f"an answer of the log cannot be read: {error}") from error


class Arrival(Struct, array_like=True, frozen=True, gc=False):
    """When the newest answers to a question, or samples of a series, began to come, and those before them (0: none)."""

    started_ms: int
    before_ms: int = 0


class SampleRow(Struct, array_like=True, frozen=True, gc=False):
    """The newest pushed sample of a pod, object or external series.

    `milli` is the value as decisions use it (rates made). `last_milli`, `start_ms`: the newest raw point of a counter.
    """

    milli: int | None
    time_ms: int
    window_ms: int = DEFAULT_WINDOW_MS
    source: str = ""
    utilization: bool = False
    last_milli: int | None = None
    start_ms: int = 0


class WatchRow(Struct, array_like=True, frozen=True, gc=False):
    """Newest report of an observer's watch on a namespace: `kind` is pods, autoscalers, scales or metrics."""

    session: str = ""
    reported_ms: int = 0
    problem: str = ""
    reason: str = ""
    """Why, for a problem: `unreachable`, `forbidden` or `failing`; empty from an observer that does not say."""
    beat_ms: int = 0
    """Newest heartbeat, be it with a problem or without; `reported_ms` stays where it was while there is one."""


class ListProgress(Struct, array_like=True, frozen=True, gc=False):
    """A full list that arrives in chunks; `next_chunk` -1: a chunk was missed, so nothing is removed."""

    list_id: str = ""
    next_chunk: int = 0
    mark: str = ""
    """Place of its first chunk in the log: what it names or what changes while it comes in bears this mark."""

    def after(self, list_id: str, chunk: int, place: str) -> "ListProgress":
        """Return the progress after a chunk; a list that misses one removes nothing."""
        if chunk == 0:
            return ListProgress(list_id, 1, place)
        is_next = (self.list_id, self.next_chunk) == (list_id, chunk)
        return ListProgress(list_id, chunk + 1 if is_next else -1, self.mark)


class SeenRow(Struct, array_like=True, frozen=True, gc=False):
    """What was seen of a target's pods or of a metric at `time_ms`: how many, the sum of values (None: not a metric),
    and when the answer was given.
    """

    time_ms: int
    count: int
    total: int | None
    answer_ms: int


class ViewRow(Struct, array_like=True, frozen=True):
    """What was observed of a namespace in the last periods, and why scale-downs are blocked (`limits/partialview.py`).

    `since_ms`: since when they are blocked; 0: they are not. `reference`: what should be there. `fallen`: metrics that
    fell, with their totals before and when.
    """

    seen: dict[str, list[SeenRow]] = {}
    since_ms: int = 0
    reason: str = ""
    reference: dict[str, int] = {}
    fallen: dict[str, tuple[int, int]] = {}


class RefusedRow(Struct, array_like=True, frozen=True, gc=False):
    """What was not stored because of a limit: how often, the newest name, and when (log time)."""

    count: int = 0
    name: str = ""
    first_ms: int = 0
    last_ms: int = 0


class NamespaceRow(Struct, array_like=True, kw_only=True):
    """A stored part of a namespace: part 0, 3, 6 … of the first kind of rows, 1, 4, 7 … of the second (`SIDES`)."""

    cluster: str
    namespace: str
    part: int = 0
    # What may be cut, in rows of the first kind:
    autoscalers: list[tuple[DirectoryKey, DirectoryEntry]] = []
    """The HPAs of the namespace."""
    answers: list[AnswerRow] = []
    scales: list[tuple[TargetName, ScaleRow]] = []
    # In rows of the second kind:
    pods: list[PodEntry] = []
    samples: list[tuple[SeriesKey, str, SampleRow]] = []
    # In both:
    arrivals: list[tuple[MetricKey, Arrival]] = []
    """When answers and samples came, by question or series."""
    # In part 2:
    view: ViewRow | None = None
    # In part 0:
    pod_list: ListProgress = ListProgress()
    hpa_list: ListProgress = ListProgress()
    conflicting: list[ConflictingAutoscaler] = []
    conflicting_coming: list[ConflictingAutoscaler] = []
    watches: dict[str, WatchRow] = {}
    listed: dict[str, str] = {}
    """Watch -> session whose full list this namespace holds."""
    commands: dict[str, tuple[Mode | None, dict[str, Pause]]] = {}
    """HPA name (empty: the whole namespace) -> mode by command, pauses (and the override) by kind."""
    ignored: dict[str, int] = {}
    """Entries not applied, by reason."""
    refused: dict[str, RefusedRow] = {}
    """Limit -> what was not stored because of it."""
    born: int = NOTHING_APPLIED
    """Log offset of the record that first named the namespace."""
    idle_ms: int = 0
    """Log time since which nothing but samples came for the namespace, which has no HPA; 0: something did."""
    unused: dict[str, int] = {}
    """Names in `commands` without an HPA -> log time since when."""

    def stepped_back(self, now_ms: int) -> dict[str, Any]:
        """Return the fields that change, beside `logtime.BOUNDED`, where log time steps back to `now_ms`."""
        return {"view": None, "unused": {name: min(since_ms, now_ms) for name, since_ms in self.unused.items()}}
