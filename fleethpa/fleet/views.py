"""What read verbs show of an HPA and of the fleet, the problems that many HPAs share, and what replicas cost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from fleethpa.fleet.troubles import ClusterView, HungProcess, quiet_limit_ms
from fleethpa.show import words
from fleethpa.show.text import clock, time_of_day
from fleethpa.show.words import cause, listed
from schemas.decisions import IGNORED_REASON, NO_OUTCOME, REFUSAL_REASON, UNANSWERED
from schemas.keys import EVERY_CLUSTER, FLEET, HpaId
from schemas.observed import ABSENT, IGNORED, FleetCluster, FleetSpec, Mode
from schemas.settings import ClusterSettings, parse_price, settings_of
from schemas.syncperiods import PERIOD_ANNOTATION
from streams.state.acrossrows import CapacityMember, GroupRow
from streams.state.clustersettings import effective
from streams.state.fights import Fight, by_another, fight_now
from streams.state.moves import Move
from streams.state.namespace import Namespace
from streams.state.needs import Blocked, Flapping, flapping, is_content, is_disabled, is_saturated
from streams.state.partitionrow import PartitionRow
from streams.state.replacements.override import Override

if TYPE_CHECKING:
    from streams.history.recorded import Recorded


_LABELS: Final = {
    "FailedGetScale": "no scale",
    "FailedUpdateScale": "write failed",
    "ScalingDisabled": "disabled",
    "AmbiguousSelector": "ambiguous selector",
    "InvalidSelector": "invalid selector",
}
"""Few words for upstream's reason of a condition that is False; every other reason concerns the metrics."""
_ANSWER_LABELS: Final = frozenset({"no metrics", "no scale"})
"""Of problems that an HPA has because its cluster does not answer."""


class Problem(NamedTuple):
    """One problem of an HPA.

    `label`: few words, of all problems of the kind. `text`: the whole. `cause`: what other HPAs of the cluster may have
    in common with it; empty: the problem is this HPA's own. `waits`: whether `status` counts it as not having what it
    wants. `brief`: for a narrow column; empty: the label.
    """

    label: str
    text: str
    cause: str = ""
    waits: bool = True
    brief: str = ""


class MemberView(NamedTuple):
    """What a FleetHPA knows of one of its clusters; replicas are counts.

    `share`: None before the first division. `has`: as it reported last under the present spec; None: it has not.
    `may_have`: the most that it can have until it reports again, by its report and what was allotted to it.
    `reported_ms`: when its newest report came (log time; 0: none did). `is_away`: it has not reported for two sync
    periods; `is_spilled`: for so long that what it has does not count any more. `room`: how many pods it has nodes
    for, where some have waited for a node; None: none has. `problem`: why it does not have its share, or what does not
    count of what it reports; empty: nothing is wrong.
    """

    cluster: FleetCluster
    share: int | None
    has: int | None
    may_have: int
    reported_ms: int
    is_away: bool
    is_spilled: bool = False
    room: int | None = None
    problem: str = ""


@dataclass(frozen=True)
class HpaView:
    """The present state of one HPA.

    `hpa`: the autoscaling/v2 object with its status. `last_decision`: id of its newest decision as the fold gives it,
    which a decider may not have recorded yet, with `-c` if it ended a write; empty before the first. `decision`: its
    newest recorded evaluation, where a verb has read it (`decided`). `paused`: the pauses in force now, in words
    (that of a decision and of a row has any limit that held it, which is `held` here); `refused`: why it may not
    enforce. Both are empty where there is nothing of that.
    """

    id: HpaId
    hpa: dict[str, Any]
    mode: Mode
    origin: str
    partition: int
    version: str = ABSENT
    """Of a central HPA: names what is stored, for an entry that changes it."""
    last_decision: str = ""
    decision: Recorded | None = None
    paused: str = ""
    pauses: tuple[tuple[str, str], ...] = ()
    """What is paused, in words, and the command that ends that; the narrowest first."""
    paused_briefly: str = ""
    """The narrowest pause: what, by whom, until when."""
    held: str = ""
    """Why the last evaluation wanted no write although it had another count: a brake, or a pause as of then."""
    refused: str = ""
    twin: str = ""
    """The HPA that drives the same target and is refused because of this one, as this one because of it: which is the
    newer of the two, and the command that deletes it; empty: there is none.
    """
    override: Override | None = None
    """The replicas that a person wants in place of what the metrics ask for."""
    author: str = ""
    reason: str = ""
    moves: tuple[Move, ...] = ()
    """The last changes of spec.replicas and who made them."""
    wants: int | None = None
    """The replicas that its metrics asked for at the last evaluation, before any limit; None: they gave no answer."""
    blocked: Blocked | None = None
    """The metric that pods without metrics keep from changing the count."""
    clock_ms: int = 0
    is_writing: bool = False
    """Whether the outcome of a wanted write is not known yet."""
    cut_off: str = ""
    """Why no metrics of its cluster can come now, in few words; empty: nothing keeps them."""
    unfed: str = ""
    """Why no answer comes into the log, from whatever cluster; empty: answers come."""
    is_past: bool = False
    """Whether its status, and so the values of its metrics, are only the last that was known."""
    own_period_ms: int | None = None
    """The sync period that it has by its annotation; None: its cluster's."""
    period_notice: str = ""
    """Why that is not the one that it states, as a predicate of the annotation; empty: it is, or none is stated."""
    revision: int = 0
    """Of the spec of the FleetHPA that it is, or that it belongs to; 0: it is an HPA by itself."""
    fleet: FleetSpec | None = None
    """Of a FleetHPA: how it is divided."""
    differing: tuple[str, ...] = ()
    """Of a FleetHPA: in which settings its clusters differ, and what is used."""
    members: tuple[MemberView, ...] = ()
    """Of a FleetHPA: its clusters, in the order of the spec."""
    incomplete: str = ""
    """Of a FleetHPA, or of an HPA that belongs to one: which of its records have not arrived; empty: all have."""
    is_unserved: bool = False
    """Whether no reconciler has ever served its cluster, so that no outcome comes."""
    is_unanswered: bool = False
    """Whether outcomes cannot come now: that one is missing is then no problem of this HPA."""

    @property
    def fleet_hpa(self) -> HpaId | None:
        """The FleetHPA whose share it wants; None: it belongs to none."""
        return self.id._replace(cluster=FLEET) if self.revision and self.fleet is None else None

    @property
    def override_text(self) -> str:
        """The override in words; empty: there is none."""
        it = self.override
        return "" if it is None else it.text_until(time_of_day(it.until_ms, self.clock_ms))

    @property
    def fight(self) -> Fight | None:
        """Two writers that undo each other now, where there are."""
        return fight_now(self.moves, self.clock_ms)

    @property
    def has(self) -> int | None:
        """The replicas that it has; None: not known."""
        replicas = self.status.get("currentReplicas")
        if isinstance(replicas, int):
            return replicas
        # The API leaves a zero out: it is known to be one where the scale was read.
        able = [each for each in self.status.get("conditions") or () if each.get("type") == "AbleToScale"]
        return 0 if any(each.get("reason") != "FailedGetScale" for each in able) else None

    @property
    def is_saturated(self) -> bool:
        """Whether it has all that maxReplicas allows, and its metrics ask for more."""
        return self.override is None and is_saturated(self.wants, self.has, self.spec.get("maxReplicas") or 0)

    @property
    def is_content_at_max(self) -> bool:
        """Whether it has all that maxReplicas allows, and its metrics do not ask for more."""
        return is_content(self.wants, self.has, self.spec.get("maxReplicas") or 0)

    @property
    def need(self) -> float:
        """How much it lacks, as the part of what it has by which its metrics ask for more; 0: nothing."""
        return (self.wants or 0) / max(1, self.has or 0) if self.is_saturated else 0.0

    @property
    def flapping(self) -> Flapping | None:
        """How it goes up and down; None: it does not, or because two writers undo each other."""
        return flapping(self.moves, self.clock_ms) if self.fight is None else None

    @cached_property
    def problems(self) -> tuple[Problem, ...]:
        """Everything that is wrong with it; empty: nothing."""
        return tuple(_problems(self))

    @property
    def is_of_fleet(self) -> bool:
        """Whether it is a FleetHPA, or the HPA of one in a cluster."""
        return bool(self.revision)

    @property
    def weight(self) -> int:
        """How early it is listed: 2: it waits for what it wants; 1: it has another problem; 0: it has none."""
        return 2 if any(problem.waits for problem in self.problems) else 1 if self.problems else 0

    @property
    def spec(self) -> dict[str, Any]:
        """The spec."""
        spec: dict[str, Any] = self.hpa.get("spec") or {}
        return spec

    @property
    def status(self) -> dict[str, Any]:
        """The status."""
        status: dict[str, Any] = self.hpa.get("status") or {}
        return status

    @property
    def labels(self) -> dict[str, str]:
        """The HPA object's labels."""
        labels: dict[str, str] = (self.hpa.get("metadata") or {}).get("labels") or {}
        return labels

    @property
    def annotations(self) -> dict[str, str]:
        """The HPA object's annotations."""
        annotations: dict[str, str] = (self.hpa.get("metadata") or {}).get("annotations") or {}
        return annotations


def _problems(view: HpaView) -> Iterator[Problem]:
    yield from _by_command(view)
    conditions = view.status.get("conditions") or []
    is_ignored = IGNORED in view.hpa or any(each.get("reason") == IGNORED_REASON for each in conditions)
    if is_ignored:
        why = view.refused or next(each["message"] for each in conditions if each.get("reason") == IGNORED_REASON)
        yield Problem("ignored", why)
    elif view.twin:
        yield Problem("refused", view.twin, view.twin)
    elif view.refused:
        text = f"enforcing is refused: {view.refused}"
        yield Problem("refused", text, text)
    yield from _of_conditions(view, conditions)
    yield from _of_members(() if view.is_unanswered else view.members)
    for text in view.differing:
        yield Problem("settings", text, text)
    if view.incomplete:
        yield Problem("incomplete", view.incomplete, view.incomplete)
    if held := _blocked_by(view):
        yield Problem("held", held, waits=False)
    if view.period_notice:
        text = f"its annotation {PERIOD_ANNOTATION} {view.period_notice}"
        yield Problem("sync period", text, text, waits=False)
    yield from _of_needs(view)
    if view.fight is not None:
        yield Problem("fight", words.fight(view.fight))
    # One may well be a write of which the outcome was lost. In shadow another hub may well be the one that enforces.
    if view.mode == "enforce" and (times := by_another(view.moves, view.clock_ms)) > 1:
        lost = "of which no outcome came into this log: does another hub enforce it, or were outcomes lost?"
        text = f"fleethpa scaled it {times} times, {lost}"
        yield Problem("another hub", text)


def _of_needs(view: HpaView) -> Iterator[Problem]:
    """Yield what its metrics ask for and it does not get, and what it gets too often."""
    most = view.spec.get("maxReplicas")
    if view.is_saturated:
        yield Problem("saturated", f"saturated: at max {most}, asks for {view.wants}")
    if view.blocked is not None:
        yield Problem("blocked", words.blocked(view.blocked, view.spec), waits=view.blocked.percent > 100)
    if direction := is_disabled(view.spec, view.wants, view.has):
        field, text = words.disabled_direction(direction)
        yield Problem(f"{field} disabled", f"{text}; metrics ask for {view.wants}", waits=direction == "scaleUp")
    if view.flapping is not None:
        yield Problem("flapping", words.flapping(view.flapping), waits=False)


def _blocked_by(view: HpaView) -> str:
    """Return what holds the count of an HPA that is not paused: in the words of its row, else of its newest decision,
    where that was read, which also tells of a write that a limit has cut.
    """
    if view.paused:
        return ""
    return view.held or (words.braked(view.decision.decision) if view.decision else "")


def _of_conditions(view: HpaView, conditions: list[dict[str, Any]]) -> Iterator[Problem]:
    is_named = False
    for condition in conditions:
        # Both are problems of their own already.
        if condition.get("reason") == IGNORED_REASON or (view.refused and condition.get("reason") == REFUSAL_REASON):
            continue
        if view.twin and condition.get("reason") == "AmbiguousSelector":  # which follows from the same
            continue
        if NO_OUTCOME in str(condition.get("message")) and (view.is_unanswered or view.is_unserved):
            if view.is_unserved:
                text = f"not written: no reconciler serves cluster {view.id.cluster}"
                yield Problem("not written", text, text)
            continue
        if condition.get("type") in ("AbleToScale", "ScalingActive") and condition.get("status") == "False":
            problem, message = _of_condition(view, condition), str(condition.get("message"))
            why = view.cut_off or (view.unfed if any(text in message for text in UNANSWERED) else "")
            if not (why and problem.label in _ANSWER_LABELS):
                yield problem
            elif not is_named:
                is_named = True
                yield _for_want_of_metrics(view, why)


def _of_members(members: Iterable[MemberView]) -> Iterator[Problem]:
    """The clusters of a FleetHPA that are away: it adds up no pods of theirs, and cannot change what they have; and
    those that do not have their share.
    """
    for each in members:
        if each.is_away:
            what = "is away" if each.has is not None else "has not reported under the present spec"
            text = f"cluster {each.cluster.name} {what}"
            yield Problem("away", text, text)
        elif each.problem:
            text = f"cluster {each.cluster.name}: {each.problem}"
            yield Problem("share", text, text)


def _for_want_of_metrics(view: HpaView, why: str) -> Problem:
    """The problem of an HPA that gets no answers: the reason, not the error of a client that met it."""
    held = view.status.get("currentReplicas")
    text = f"{words.NO_METRIC}{why}"
    return Problem("no metrics", text if held is None else f"{text}; replicas held at {held}", text)


def _by_command(view: HpaView) -> Iterator[Problem]:
    """Yield what persons did to it."""
    if view.mode == "off":
        yield Problem("off", "mode off: nothing is decided", "mode off: nothing is decided")
    if view.paused:
        yield Problem("paused", f"paused: {view.paused}", f"paused: {view.paused}", brief=view.paused_briefly)
    if view.override is not None:
        idle = "" if view.mode == "enforce" else f" (without effect in mode {view.mode})"
        briefly = f"override to {view.override.replicas} until {clock(view.override.until_ms, view.clock_ms)}"
        yield Problem("override", f"{view.override_text}{idle}", waits=False, brief=briefly)


def _missing_metrics(view: HpaView) -> str:
    """How many of its metrics have no value, where some have one; empty: none has."""
    every = len(view.spec.get("metrics") or ())
    known = sum(bool(each.get("type")) for each in view.status.get("currentMetrics") or ())
    return f"{every - known} of {every} metrics missing" if 0 < known < every else ""


def _of_condition(view: HpaView, condition: dict[str, Any]) -> Problem:
    reason, message = str(condition.get("reason", "")), str(condition.get("message", ""))
    label = _LABELS.get(reason, "no metrics" if condition["type"] == "ScalingActive" else reason or "not able to scale")
    if label == "no metrics" and (missing := _missing_metrics(view)):
        label = missing
    cause_text = cause(message)
    text = f"{label}: {cause_text}" if cause_text else f"{label} ({reason})"
    return Problem(label, text, text)


def unread_words(*, is_late: bool) -> str:
    """Return in few words what is wrong with a source that is not read. `is_late`: it may answer yet."""
    return "the source has not answered" if is_late else "the source cannot be read"


@dataclass
class FleetState:
    """Everything that read verbs show."""

    hpas: dict[HpaId, HpaView] = field(default_factory=dict)
    clusters: dict[str, ClusterView] = field(default_factory=dict)
    namespaces: dict[tuple[str, str], Namespace] = field(default_factory=dict)
    settings: dict[str, ClusterSettings] = field(default_factory=dict)
    """As set: per cluster, and `*` for all."""
    partitions: dict[int, PartitionRow] = field(default_factory=dict)
    """The decider's newest checkpoint of each log partition."""
    folded: dict[int, PartitionRow] = field(default_factory=dict)
    """The row of each log partition as of the state."""
    forgotten: set[HpaId] = field(default_factory=set)
    """HPAs that were there once and have been deleted."""
    capacity_groups: dict[str, GroupRow] = field(default_factory=dict)
    capacity_members: dict[str, Mapping[str, CapacityMember]] = field(default_factory=dict)
    """CapacityGroup → its members (`cluster/namespace/name`)."""
    scattered_groups: set[str] = field(default_factory=set)
    """CapacityGroups of which some partitions have another spec or none."""
    clock_ms: int = 0
    """Log time of the state."""
    ingested_ms: dict[int, int] = field(default_factory=dict)
    """Log partition → when ingest last appended to it (log time; 0: never)."""
    decided_ms: dict[int, int] = field(default_factory=dict)
    """Log partition → when a decider last ticked there or wrote its state (log time; 0: never)."""
    every: dict[int, int] = field(default_factory=dict)
    """Log partition → sync periods per evaluation of an HPA; more than 1 since its decider was behind."""
    end_ms: int = 0
    """Timestamp of the newest log record; later than `clock_ms` where the decider is far behind."""
    short_ms: dict[int, int] = field(default_factory=dict)
    """Log partitions that an archive has less of than of others → their ends (log time): what is of them is older."""
    paused: str = ""
    """What a person paused in all clusters at once."""
    hung: tuple[HungProcess, ...] = ()
    """Processes that hang or do not run."""
    unread: str = ""
    """Why the source cannot be read any more, so that this is the last that was known of it; empty: it can."""
    is_late: bool = False
    """Whether the source that is not read is only late: it may answer yet."""
    remarks: tuple[str, ...] = ()
    """Each reason why it is not of the moment that was asked for, or not whole, with the next step."""

    @cached_property
    def ordered(self) -> Sequence[HpaView]:
        """All HPAs: those that wait for something first, of these the ones that lack most, then those with another
        problem. It is sorted once: ask when the state is complete.
        """
        return sorted(self.hpas.values(), key=lambda view: (-view.weight, -view.need, view.id))

    @property
    def ills(self) -> tuple[str, ...]:
        """What is wrong with fleethpa itself, or keeps a cluster from being seen, in few words and the gravest first;
        empty: nothing that is known.
        """
        if self.unread:  # how processes and clusters are now is not known
            return (unread_words(is_late=self.is_late),)
        away = [name for name, cluster in self.clusters.items() if any(each.is_away for each in cluster.troubles)]
        processes = sorted(self.hung, key=lambda each: not each.hides_the_present)
        stalled = ["nothing comes into the log"] if self.is_cut_off and not self.hung else []
        seen = [f"{'cluster' if len(away) == 1 else 'clusters'} {listed(away, 3)} away"] if away else []
        return tuple(dict.fromkeys([*stalled, *(each.brief for each in processes), *seen]))

    @property
    def stopped_by(self) -> HungProcess | None:
        """The process that hangs and without which nothing is decided; None: none is known to."""
        return next((each for each in self.hung if each.stops_deciding), None)

    @property
    def is_last_known(self) -> bool:
        """Whether all that is shown is only the last that was known."""
        return bool(self.unread) or self.is_cut_off or self.stopped_by is not None

    def is_known_of_before(self, hpa: HpaView) -> bool:
        """Whether what is shown of an HPA is only the last that was known."""
        cluster = self.clusters.get(hpa.id.cluster)
        is_hidden = cluster is not None and cluster.hidden is not None
        return self.is_last_known or hpa.partition in self.short_ms or is_hidden

    @property
    def newest_ms(self) -> int:
        """When something came into the log last (log time; 0: never)."""
        return max(self.ingested_ms.values(), default=0)

    @property
    def is_cut_off(self) -> bool:
        """Whether time continues in the log, but nothing comes in: ingest does not work."""
        return self.end_ms - self.newest_ms > self.quiet_ms

    @property
    def slowed(self) -> str:
        """Which HPAs a decider that was behind evaluates less often, and how often; empty: none."""
        slow = {number: every for number, every in sorted(self.every.items()) if every > 1}
        if not slow:
            return ""
        often = " to ".join(map(str, sorted({min(slow.values()), max(slow.values())})))
        return f"each HPA of log partition {listed(map(str, slow))} is evaluated once in {often} sync periods for now"

    @property
    def quiet_ms(self) -> int:
        """After how much silence a process hangs, by the shortest sync period that is set."""
        return quiet_limit_ms(
            min(effective(self.settings, name).sync_period_ms for name in (EVERY_CLUSTER, *self.settings))
        )


class Shared(NamedTuple):
    """HPAs of one cluster that have the same problem for the same cause."""

    cluster: str
    views: list[HpaView]
    text: str

    @property
    def name(self) -> str:
        """The cluster and how many HPAs, for a column of names."""
        return f"{self.cluster} ({words.counted(len(self.views), 'HPA')})"


def by_cause(views: Iterable[HpaView]) -> tuple[dict[HpaId, list[Problem]], list[Shared]]:
    """Split the problems of HPAs: those that each has of its own, and those that several of a cluster have in common.

    An HPA whose problems are all shared is not among the first; one without a problem is, with none.
    """
    view_and_problems = {view.id: (view, view.problems) for view in views}
    groups: dict[tuple[str, str], list[HpaView]] = {}
    for view, problems in view_and_problems.values():
        for problem in problems:
            if problem.cause:
                groups.setdefault((view.id.cluster, problem.cause), []).append(view)
    shared = {key: group for key, group in groups.items() if len(group) > 1}
    own: dict[HpaId, list[Problem]] = {}
    for hpa, (_, problems) in view_and_problems.items():
        left = [problem for problem in problems if (hpa.cluster, problem.cause) not in shared]
        if left or not problems:
            own[hpa] = left
    return own, [Shared(cluster, group, text) for (cluster, text), group in shared.items()]


# --- what replicas cost -----------------------------------------------------------------------------------------------


def price_of(settings: Mapping[str, ClusterSettings], cluster: str) -> Decimal | None:
    """The price of a replica-hour in a cluster, else that of `*`. None if neither has a price."""
    text = settings_of(settings, cluster).price
    return None if text is None else parse_price(text)


def price_for(
    given: Decimal | None, settings: Mapping[str, ClusterSettings], clusters: Iterable[str], note: Callable[[str], None]
) -> Decimal | None:
    """The price of a replica-hour in a report over some clusters: the given one, else the one that all of them have.

    None: they have none, or different ones, with which `note` is called.
    """
    if given is not None:
        return given
    price_by_cluster = {cluster: price_of(settings, cluster) for cluster in sorted(clusters)}
    prices = set(price_by_cluster.values())
    if len(prices) > 1:
        named = [f"{cluster} {'none' if price is None else price}" for cluster, price in price_by_cluster.items()]
        note(
            f"no costs are shown, for the clusters have different prices: {words.listed(named)}; "
            "--price sets one for all of them"
        )
    return prices.pop() if len(prices) == 1 else None


def priced(hours: float, price: Decimal) -> Decimal:
    """Return what replica-hours cost. `price`: of one."""
    return price * Decimal(str(round(hours, 3)))


def cost_per_hour(state: FleetState) -> Decimal | None:
    """Return what the present replicas of all HPAs cost per hour, in the clusters that have a price; None: none has
    one.
    """
    prices = {cluster: price_of(state.settings, cluster) for cluster in {hpa.cluster for hpa in state.hpas}}
    costs = [
        price * (view.status.get("currentReplicas") or 0)
        for hpa, view in state.hpas.items()
        if (price := prices[hpa.cluster]) is not None and view.fleet is None  # its clusters have the replicas
    ]
    return sum(costs, Decimal(0)) if costs else None


def object_command(verb: str, key: str) -> str:
    """The kubectl command about an object of the hub's API, as `kubectl edit centralhpa web -n shop`."""
    kind, *place = key.split("/")
    namespace = f" -n {place[0]}" if len(place) == 2 else ""
    return f"kubectl {verb} {kind.lower()}.fleethpa.io {place[-1]}{namespace}"


def resume_command(cluster: str, namespace: str = "", name: str = "") -> str:
    """The command that ends a pause of an HPA, a namespace, a cluster, or (`*`) of all clusters."""
    if cluster == EVERY_CLUSTER:
        return "fleethpa resume --all"
    of_namespace = f" -n {namespace}" if namespace else ""
    return (
        f"fleethpa resume {HpaId(cluster, namespace, name)}" if name else f"fleethpa resume -C {cluster}{of_namespace}"
    )
