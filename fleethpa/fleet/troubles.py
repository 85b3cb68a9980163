"""What is known of a cluster, and what keeps it from being observed, measured or written.

Each thing once, with since when and what to do next, in the order in which one hides another: an observer that does
not report (then nothing else is known), an API server that is away (then nothing else can be read), a watch that is
forbidden or fails, a metrics API that fails, and a reconciler that is missing or cannot write.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal, NamedTuple

from fleethpa.fleet.polledsources import POLLED_SOURCES
from fleethpa.show.text import span, time_ago
from fleethpa.show.words import counted, one_line
from schemas.entries import HUB_HOLDER
from schemas.observed import (
    API_SERVER_PART,
    CANARY_PART,
    CONFLICTING_PART,
    MEMBERSHIP_PART,
    NATIVE_EVIDENCE_PART,
    OF_API_SERVER,
    REFUSED_PART,
    ObserverTrouble,
    Reason,
)
from schemas.settings import ClusterSettings
from streams.hpa.rules import CURRENT_TEXT, NEWEST, OLDEST, RELEASED, UnknownRulesError, minor_of
from streams.state.clustersettings import DEFAULT_SYNC_PERIOD_MS
from streams.state.gather import HEARTBEAT_LIMIT_MS
from streams.state.hpastate import WRITE_TTL_MS
from streams.state.partitionrow import AgentRow, ControlRow, ReportRow, ServedRow
from streams.state.rows import RefusedRow
from streams.state.timing import held_ms

LEAST_QUIET_MS: Final = 12_000
MOST_QUIET_MS: Final = 20_000
REFUSED_SHOWN_MS: Final = 3_600_000
"""How long a refusal because of a limit is shown."""
MOST_SILENT_MS: Final = 30_000

Kind = Literal[
    "observerSilent", "apiServerAway", "credentialsRefused", "identityRefused", "watchForbidden", "watchFailing",
    "metricsFailing", "canaryFailing", "twoNames", "observerClock", "reconcilerClock", "reconcilerSilent",
    "reconcilerFailing", "standIn", "conflictsUnseen", "left", "unhealthy", "reportsRefused", "nativeEvidence",
    "overLimit", "versionTooOld", "versionUnknown",
]  # fmt: skip
_STALE: Final[frozenset[Kind]] = frozenset(
    {
        "observerSilent",
        "apiServerAway",
        "credentialsRefused",
        "identityRefused",
        "watchForbidden",
        "watchFailing",
        "left",
    }
)
_MINOR: Final[frozenset[Kind]] = frozenset(
    {"canaryFailing", "conflictsUnseen", "unhealthy", "reportsRefused", "nativeEvidence", "overLimit", "versionUnknown"}
)


def ask_api_server(cluster: str) -> str:
    """Return the command that shows whether a cluster's API server answers."""
    return f"kubectl --context {cluster} get --raw /readyz"


ASK_NOW: Final = "fleethpa get clusters --from kafka"
"""The next step where nothing is known of what runs now."""
INGEST_EVERY_MS: Final = 5_000
"""Ingest appends at least one record to the log in this time, so reports that came are in it by then."""


def quiet_limit_ms(sync_period_ms: int) -> int:
    """After how much silence a process hangs whose signs come every 5 s or more often: soon enough that it is named
    within three sync periods, of 15 s or of 5 s.

    A decider appends a tick a second to every partition of the log, ingest a record in INGEST_EVERY_MS.
    """
    return min(MOST_QUIET_MS, max(LEAST_QUIET_MS, sync_period_ms * 5 // 2))


def silent_limit_ms(sync_period_ms: int) -> int:
    """After how long without a report (log time) an observer or a reconciler of a cluster counts as silent.

    They report once per sync period, every 5 to 10 s: two reports are missing then.
    """
    return min(MOST_SILENT_MS, max(LEAST_QUIET_MS, sync_period_ms * 12 // 5))


Process = Literal["ingest", "decider", "observer", "reconciler", "router", "scheduler", "archiver", "hub", "agent"]


def silent_words(process: Process) -> str:
    """Return the possible reasons why nothing comes from a process. An agent is in another network than the brokers,
    and ingest may lack the right to read its topic.
    """
    is_agent = process == "agent"
    return "hangs, does not run, does not reach Kafka or is not read" if is_agent else "hangs or does not run"


@dataclass(frozen=True)
class HungProcess:
    """A process from which nothing comes. `since_ms`: its last sign. `what`: what is known of it, and what follows."""

    process: Process
    since_ms: int
    what: str
    next_step: str

    @property
    def text(self) -> str:
        """A sentence with the next command."""
        return f"{self.what}. Next: {self.next_step}"

    @property
    def brief(self) -> str:
        """A few words for a title."""
        return f"{self.process} {silent_words(self.process)}"

    @property
    def stops_deciding(self) -> bool:
        """Whether nothing is decided, in whatever cluster, because of it."""
        return self.process in ("ingest", "decider")

    @property
    def hides_the_present(self) -> bool:
        """Whether what is shown of HPAs is only the last that was known, because of it."""
        return self.stops_deciding or self.process in ("observer", "agent")


_REFUSES: Final = "refuses the credentials of its observer"
_CUT_OFF: Final[Mapping[Kind, str]] = {
    "observerSilent": "cluster {} not observed",
    "apiServerAway": "cluster {} unreachable",
    "credentialsRefused": f"cluster {{}} {_REFUSES}",
    "identityRefused": "cluster {} not known to be the one that was stated",
}


@dataclass(frozen=True)
class ClusterTrouble:
    """One thing that is wrong in a cluster.

    `since_ms`: when it began (Unix milliseconds; None: it was never otherwise). `what`, `detail`: what is wrong, and
    what more is known of it, without the name of the cluster. `next_step`: the command that helps. `known_ms`: the log
    time as of which since when is said; None: it is not said.
    """

    kind: Kind
    since_ms: int | None
    what: str
    next_step: str
    detail: str = ""
    known_ms: int | None = None

    @property
    def text(self) -> str:
        """One line, without the name of the cluster: `its API server is away since 15:09:23 (57s ago): timed out`."""
        when = "" if self.known_ms is None else since(self.since_ms, self.known_ms)
        return f"{self.what}{when}{self.detail}"

    @property
    def timeless(self) -> str:
        """As `text`, without since when."""
        return f"{self.what}{self.detail}"

    @property
    def is_grave(self) -> bool:
        """Whether it keeps HPAs of the cluster from being scaled."""
        return self.kind not in _MINOR

    @property
    def hides_the_present(self) -> bool:
        """Whether what is shown of the cluster's HPAs is only the last that was known."""
        return self.kind in _STALE and self.since_ms is not None

    @property
    def blinds(self) -> bool:
        """Whether something in the cluster is not watched any more."""
        return self.kind in ("watchForbidden", "watchFailing") and self.since_ms is not None

    @property
    def is_named_first(self) -> bool:
        """Whether every read verb and view names it before anything else, as a remark on the state."""
        return self.is_away or self.blinds or self.kind == "twoNames"

    @property
    def is_of_silence(self) -> bool:
        """Whether it is that nothing is heard of an observer, a reconciler or an agent."""
        return self.kind in ("observerSilent", "reconcilerSilent")

    @property
    def is_away(self) -> bool:
        """Whether the cluster's API server gives no answers any more."""
        return self.kind in AWAY and self.since_ms is not None


@dataclass
class ClusterView:
    """One cluster as the log knows it.

    `reported_ms`: the last report of an observer on anything (log time; None: never). `problems`: watch of a
    namespace → its error. `reports`: newest reports of its observers. `served`: the reconciler's last report.
    """

    name: str
    hpas: int = 0
    namespaces: int = 0
    modes: dict[str, int] = field(default_factory=dict)
    reported_ms: int | None = None
    clock_ms: int = 0
    problems: dict[str, str] = field(default_factory=dict)
    settings: ClusterSettings = field(default_factory=ClusterSettings)
    paused: str = ""
    """What a person paused there."""
    is_cut_off: bool = False
    """Whether nothing comes into the log any more, so that nothing is known of how it is now."""
    reports: list[ReportRow] = field(default_factory=list)
    served: ServedRow | None = None
    hands: ControlRow | None = None
    """Who is and was in charge of it; None: always the hub."""
    refused: dict[str, RefusedRow] = field(default_factory=dict)
    """Namespace and limit -> what was not stored because of it."""
    kubernetes: str = ""
    """Version of its API server and the feature gates that were read (`schemas.observed.Heartbeat`); empty: unknown."""
    agent: AgentRow | None = None
    """Its agent, which may have left; None: it never had one."""
    is_over: bool = False
    """Whether the log has ended, as that of an archive: nothing is known of what runs now."""
    beat_ms: int = 0
    """The newest heartbeat of its namespaces with HPAs (log time; 0: none is known)."""
    two_names: str = ""
    """Why it seems to be the same cluster as another one; empty: it does not."""

    @property
    def pauses(self) -> list[tuple[str, str]]:
        """What pauses all of it, in words, and the command that ends that."""
        resume = f"fleethpa resume -C {self.name}"
        return [(f"paused {self.paused}", resume)] if self.paused else []

    @property
    def has_agent(self) -> bool:
        """Whether an agent observes and writes it."""
        return self.agent is not None and not self.agent.left

    @property
    def has_left(self) -> bool:
        """Whether its agent was removed, and no observer reports on it."""
        return self.agent is not None and self.agent.left and not self.reports

    @property
    def troubles(self) -> list[ClusterTrouble]:
        """What keeps it from being observed, measured or written, the gravest first."""
        due_ms = self.clock_ms - silent_limit_ms(self.settings.sync_period_ms or DEFAULT_SYNC_PERIOD_MS)
        troubles = list(_observed(self, due_ms))
        if any(trouble.kind == "left" for trouble in troubles):
            return troubles
        if self.two_names:
            troubles.append(ClusterTrouble("twoNames", None, self.two_names, "kubectl config view"))
        troubles += list(_stood_in(self, due_ms)) or _written(self, due_ms)
        troubles += [*_unknown_version(self), *_over_limits(self)]
        if self.is_over:
            return [replace(each, next_step=ASK_NOW) if each.is_of_silence else each for each in troubles]
        if not self.has_agent:
            return troubles
        return [replace(trouble, next_step=_check_agent(self.name, trouble)) for trouble in troubles]

    @property
    def hidden(self) -> ClusterTrouble | None:
        """Why its HPAs are shown only as last known; None: they are shown as they are."""
        return next((trouble for trouble in self.troubles if trouble.hides_the_present), None)


class SharedTrouble(NamedTuple):
    """One thing that is wrong in some clusters. `since_ms`: when it began in the first of them; None: not known.
    `text`: without since when (`ClusterTrouble.timeless`). `trouble`: as the first cluster has it.
    """

    clusters: list[str]
    since_ms: int | None
    text: str
    trouble: ClusterTrouble


def shared_troubles(troubles: Iterable[tuple[ClusterView, ClusterTrouble]]) -> list[SharedTrouble]:
    """Put the troubles of clusters that differ at most in since when together, in their order."""
    groups: dict[tuple[Kind, str], list[tuple[str, ClusterTrouble]]] = {}
    for cluster, trouble in troubles:
        groups.setdefault((trouble.kind, trouble.timeless), []).append((cluster.name, trouble))
    return [
        SharedTrouble(
            [name for name, _ in each],
            min((trouble.since_ms for _, trouble in each if trouble.since_ms is not None), default=None),
            text,
            each[0][1],
        )
        for (_, text), each in groups.items()
    ]


def cut_off(cluster: str, now_ms: int, troubles: Iterable[ClusterTrouble]) -> str:
    """Why no metrics of a cluster can come, in few words: `cluster north unreachable for 21s`; empty: they can."""
    for trouble in troubles:
        if trouble.kind == "observerClock":
            return f"all reports of the observer of {cluster} count as too old"
        words = _CUT_OFF.get(trouble.kind)
        if words and trouble.since_ms is not None:
            return f"{words.format(cluster)} for {span(max(0, now_ms - trouble.since_ms) // 1000 * 1000) or '0s'}"
    return ""


def _check_agent(cluster: str, trouble: ClusterTrouble) -> str:
    """The next step where an agent, not an observer or a reconciler of the hub, is to do the work. That it cannot write
    may be because of Kafka, the Lease or the API server: its log tells.
    """
    is_of_silence = trouble.is_of_silence and trouble.next_step.startswith("fleethpa run ")
    if is_of_silence or (trouble.kind == "reconcilerFailing" and trouble.next_step == ask_api_server(cluster)):
        return f"kubectl --context {cluster} -n fleethpa-system logs deployment/fleethpa-agent"
    return trouble.next_step


def since(since_ms: int | None, now_ms: int) -> str:
    """` since 08:30:15 (88s ago)`; empty where it is not known since when."""
    return "" if since_ms is None else f" since {time_ago(since_ms, now_ms)}"


# --- observed ---------------------------------------------------------------------------------------------------------


def _awaited(cluster: ClusterView, due_ms: int) -> AgentRow | None:
    """Return the agent that is registered and of which nothing has come: its reconciling part reports from the
    beginning on, whatever is enforced. None: there is no such agent.
    """
    is_silent = cluster.reported_ms is None or cluster.reported_ms < due_ms
    return cluster.agent if cluster.has_agent and cluster.served is None and is_silent else None


def _observed(cluster: ClusterView, due_ms: int) -> Iterator[ClusterTrouble]:
    """Yield what the reports of observers say, and that none came since `due_ms`, by which one was due."""
    start = f"fleethpa run observer --contexts {cluster.name} --kubeconfig FILE"
    now_ms, reported_ms = cluster.clock_ms, cluster.reported_ms
    # One of two observers that stops, as in a rolling update, leaves the other one.
    alive = [each for each in cluster.reports if not each.stopped and each.reported_ms >= due_ms]
    newest = max(alive or cluster.reports, key=lambda report: report.reported_ms, default=None)
    if (agent := _awaited(cluster, due_ms)) is not None:
        what = f"no report of its agent of incarnation {agent.incarnation} has come yet"
        detail = ", and what an earlier one reports is refused"
        step = f"kubectl --context {cluster.name} -n fleethpa-system get deployment fleethpa-agent -o yaml"
        yield ClusterTrouble("observerSilent", reported_ms, what, step, detail)
    elif reported_ms is None:
        yield ClusterTrouble("observerSilent", None, "no observer of it has ever reported", start)
    elif newest is not None and newest.reported_ms >= reported_ms and (left := _left(newest)):
        step = f"fleethpa get hpa -A -C {cluster.name}"
        yield ClusterTrouble("left", newest.reported_ms, "it has left the fleet", step, f": {left}", now_ms)
    elif newest is not None and newest.stopped and newest.reported_ms >= reported_ms:
        what = "its observer was stopped"
        yield ClusterTrouble("observerSilent", newest.reported_ms, what, start, known_ms=now_ms)
    elif reported_ms < due_ms:
        what = "its observer has been silent"
        yield ClusterTrouble("observerSilent", reported_ms, what, start, known_ms=now_ms)
    elif 0 < cluster.beat_ms < now_ms - HEARTBEAT_LIMIT_MS:
        # As one does that is started again and again, since what comes next ends it.
        what = "its observer has reported on none of its namespaces"
        detail = ": it is started again and again, or another observer of the cluster was followed until then"
        step = "read the observer's log"
        yield ClusterTrouble("observerSilent", cluster.beat_ms, what, step, detail, known_ms=now_ms)
    elif newest is not None:
        period_ms = cluster.settings.sync_period_ms or DEFAULT_SYNC_PERIOD_MS
        late_ms = newest.reported_ms - newest.stated_ms if newest.stated_ms else 0
        if late_ms > held_ms(period_ms):
            what = f"its observer dates what it reports {_seconds(late_ms)} before log time{_TOO_EARLY}"
            yield ClusterTrouble("observerClock", None, what, _CLOCKS, ", and all its metrics count as too old")
        yield from _reported(cluster.name, now_ms, newest.troubles)


_TOO_EARLY: Final = ": its clock is behind, or reports come late"
_CLOCKS: Final = "compare the clocks, see docs/operations.md#recovery"


def _seconds(ms: int) -> str:
    return span(ms // 1000 * 1000)


def _left(report: ReportRow) -> str:
    """Why the cluster left, in the last report of an observer that stopped for that; empty: it did not leave."""
    return next(
        (trouble.error for trouble in report.troubles if report.stopped and trouble.part == MEMBERSHIP_PART), ""
    )


_API_SERVER: Final[Mapping[Reason, tuple[Kind, str]]] = {
    "unreachable": ("apiServerAway", "is away"),
    "failing": ("apiServerAway", "cannot be asked"),
    # Of what names no resource: it does not know who asks.
    "forbidden": ("credentialsRefused", _REFUSES),
    "identity": ("identityRefused", "is not known to be this cluster's"),
}
"""Reason -> kind of trouble, and what is wrong with the API server."""
AWAY: Final[frozenset[Kind]] = frozenset(kind for kind, _ in _API_SERVER.values())
_STEPS_OF_SERVER: Final[Mapping[Kind, str]] = {
    "apiServerAway": ask_api_server("{}"),
    "credentialsRefused": "kubectl --context {} auth whoami",
    "identityRefused": "fleethpa admin clusters check {}",
}


def _reported(cluster: str, now_ms: int, troubles: list[ObserverTrouble]) -> Iterator[ClusterTrouble]:
    away = [trouble for trouble in troubles if trouble.part == API_SERVER_PART]
    for trouble in away:
        kind, what = _API_SERVER[trouble.reason]
        step = _STEPS_OF_SERVER[kind].format(cluster)
        yield ClusterTrouble(kind, trouble.since, f"its API server {what}", step, _error(trouble), now_ms)
    of_metrics = {each.part for each in troubles if each.part in POLLED_SOURCES or each.part.endswith("metrics.k8s.io")}
    for trouble in sorted(troubles, key=lambda each: (each.part in of_metrics, each.part)):
        # While the API server does not answer, nothing else there does; a trouble of its own is reported afterwards.
        if trouble not in away and not any(_is_of_server(trouble, each) for each in away):
            yield _part(cluster, now_ms, trouble)


def _is_of_server(trouble: ObserverTrouble, away: ObserverTrouble) -> bool:
    """Whether a part has no other trouble than the API server: no answer came, or the same error for everything."""
    return trouble.reason in OF_API_SERVER or (bool(trouble.error) and trouble.error == away.error)


def _part(cluster: str, now_ms: int, trouble: ObserverTrouble) -> ClusterTrouble:
    kind, what, step, detail = _kind_of_part(cluster, trouble)
    known_ms = None if kind == "nativeEvidence" else now_ms
    return ClusterTrouble(kind, trouble.since, what, step, f"{detail}{_error(trouble)}", known_ms)


def _kind_of_part(cluster: str, trouble: ObserverTrouble) -> tuple[Kind, str, str, str]:
    """Return the kind of a part's trouble, what is wrong, the next step, and what is known beside its error."""
    where, check = _where(trouble), f"fleethpa admin clusters check {cluster}"
    missing = f", which needs {', '.join(trouble.rights)}" if trouble.rights else ""
    if trouble.part.endswith("metrics.k8s.io"):
        word = "is forbidden to the observer" if trouble.reason == "forbidden" else "fails"
        step = check if trouble.reason == "forbidden" else f"kubectl --context {cluster} get apiservices"
        return "metricsFailing", f"metrics API {trouble.part} {word}{where}", step, missing
    if trouble.part in POLLED_SOURCES:
        source = POLLED_SOURCES[trouble.part]
        word = {"unreachable": "is away", "forbidden": "refuses the observer"}.get(trouble.reason, "fails")
        return "metricsFailing", f"{source.title} {word}{where}", source.check.format(cluster=cluster), ""
    if trouble.part == CANARY_PART:
        return "canaryFailing", f"it cannot be proven that no native HPA controller runs{where}", check, missing
    if trouble.part == NATIVE_EVIDENCE_PART:
        step = f"kubectl --context {cluster} get hpa -A -o yaml --show-managed-fields"
        return "nativeEvidence", "something was written in the name of the native HPA controller", step, ""
    if trouble.part == MEMBERSHIP_PART:
        return "unhealthy", "the object that names it reports", "kubectl get clusterprofiles -A", ""
    if trouble.part == REFUSED_PART:
        step = f"read fleethpa.rejected; fleethpa admin clusters remove {cluster}, if its agent is not to be trusted"
        return "reportsRefused", "ingest refuses some of what its agent reports", step, ""
    if trouble.part == CONFLICTING_PART:
        return "conflictsUnseen", f"watching {trouble.part} fails{where}", check, missing
    if trouble.reason == "forbidden":
        return "watchForbidden", f"watching {trouble.part} is forbidden{where}", check, missing
    return "watchFailing", f"watching {trouble.part} fails{where}", check, missing


def _where(trouble: ObserverTrouble) -> str:
    if not trouble.namespaces:
        return ""
    if trouble.namespace_count > 3:
        return f" in {counted(trouble.namespace_count, 'namespace')}"
    return f" in {', '.join(trouble.namespaces)}"


def _error(trouble: ObserverTrouble) -> str:
    return f": {one_line(trouble.error)}" if trouble.error else ""


# --- written ----------------------------------------------------------------------------------------------------------


_WHO_SCALES: Final = {
    "stand-in": "the cluster's own controller scales in place of fleethpa",
    "closing": "nobody scales until the stand-in's HPAs have ended",
}
"""Holder of the Lease -> what it means, where it is not the hub."""


_UNSTAMPED: Final = " and the brokers do not stamp what it writes"
"""Else it takes their time from what they acknowledge."""
_TOPICS: Final = "fleethpa admin topics check"


def _stood_in(cluster: ClusterView, due_ms: int) -> Iterator[ClusterTrouble]:
    """Where the stand-in is in charge, why it is, and what keeps it from scaling; not that the hub cannot write."""
    hands, served = cluster.hands, cluster.served
    if hands is None or not hands.changes or hands.changes[-1][1].startswith(HUB_HOLDER):
        return
    begun_ms, holder, generation = hands.changes[-1]
    reason, enforced = "", counted(cluster.modes.get("enforce", 0), "enforced HPA")
    # What the agent reported before the holder changed is about another holder.
    if served is not None and served.reported_ms >= max(due_ms, begun_ms) and served.problem:
        reason = f"; its agent reports: {one_line(served.problem)}"
    lease = f"kubectl --context {cluster.name} -n fleethpa-system get lease fleethpa-hub -o yaml"
    who = _WHO_SCALES.get(holder, "fleethpa writes nothing there")
    detail = f" (generation {generation}): {who} ({enforced}){reason}"
    yield ClusterTrouble("standIn", begun_ms, f"{holder} is in charge", lease, detail, cluster.clock_ms)


def run_reconciler(cluster: str) -> str:
    """Return the command that serves a cluster."""
    return f"fleethpa run reconciler --contexts {cluster} --kubeconfig FILE"


def silent_reconciler(cluster: ClusterView, due_ms: int, detail: str = "") -> ClusterTrouble | None:
    """Return the trouble that a reconciler which served a cluster has not reported since `due_ms` (log time); None: it
    has, or none ever served it.
    """
    served = cluster.served
    if served is None or served.reported_ms >= due_ms:
        return None
    what, start = "its reconciler has been silent", run_reconciler(cluster.name)
    return ClusterTrouble("reconcilerSilent", served.reported_ms, what, start, detail, cluster.clock_ms)


def _written(cluster: ClusterView, due_ms: int) -> Iterator[ClusterTrouble]:
    enforced, served = cluster.modes.get("enforce", 0), cluster.served
    if not enforced or _awaited(cluster, due_ms) is not None:
        return
    waiting = f"{counted(enforced, 'enforced HPA')} not written"
    if served is None:
        what = f"no reconciler serves it: {waiting}"
        yield ClusterTrouble("reconcilerSilent", None, what, run_reconciler(cluster.name))
        return
    if (silent := silent_reconciler(cluster, due_ms, f": {waiting}")) is not None:
        yield silent
        return
    off_ms = served.reported_ms - served.stated_ms if served.stated_ms else 0
    if off_ms < -WRITE_TTL_MS // 2:
        text = (
            f"its reconciler's clock is {_seconds(-off_ms)} ahead of log time{_UNSTAMPED}: its writes end as too late"
        )
        yield ClusterTrouble("reconcilerClock", None, text, _TOPICS)
    elif off_ms > MOST_SILENT_MS:
        text = (
            f"its reconciler dates what it reports {_seconds(off_ms)} before log time: reports come late, or its clock"
        )
        detail = f" is behind{_UNSTAMPED}, and it may carry out writes that are too old"
        yield ClusterTrouble("reconcilerClock", None, text, _TOPICS, detail)
    if served.problem:
        text = f"its reconciler cannot write: {one_line(served.problem)}"
        is_checked = served.reason in ("forbidden", "identity")
        step = f"fleethpa admin clusters check {cluster.name}" if is_checked else ask_api_server(cluster.name)
        yield ClusterTrouble("reconcilerFailing", None, text, step)


def _unknown_version(cluster: ClusterView) -> Iterator[ClusterTrouble]:
    """A version whose rules are not known: an older one must not be enforced, a newer one is decided as the newest."""
    kubernetes = cluster.kubernetes.partition(" ")[0]
    if not kubernetes or cluster.settings.rules:  # they decide in its place
        return
    pin = f"fleethpa settings {cluster.name} rules=1."
    try:
        minor = minor_of(kubernetes)
    except UnknownRulesError:
        text = f"its version {one_line(kubernetes)} is not known: its HPAs are decided as {CURRENT_TEXT}"
        yield ClusterTrouble("versionUnknown", None, text, f"{pin}{RELEASED}")
        return
    if minor < OLDEST:
        text = f"Kubernetes 1.{minor} is older than 1.{OLDEST}, the oldest known version: its HPAs are not enforced"
        yield ClusterTrouble("versionTooOld", None, text, f"{pin}{OLDEST}")
    elif minor > NEWEST:
        text = f"Kubernetes 1.{minor} is newer than every known version: its HPAs are decided as 1.{NEWEST}"
        yield ClusterTrouble("versionUnknown", None, text, f"{pin}{NEWEST}")


# --- not stored -------------------------------------------------------------------------------------------------------


def _over_limits(cluster: ClusterView) -> Iterator[ClusterTrouble]:
    """Yield what the limits kept out of the state lately."""
    for what, row in sorted(cluster.refused.items()):
        if cluster.clock_ms - row.last_ms <= REFUSED_SHOWN_MS:
            refused = f"over a limit, {counted(row.count, 'report')} not taken"
            step = f"fleethpa get hpa -A -C {cluster.name}; the limits are in docs/limits.md"
            detail = f": {what}; newest: {one_line(row.name)}"
            yield ClusterTrouble("overLimit", row.first_ms, refused, step, detail, cluster.clock_ms)
