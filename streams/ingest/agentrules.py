"""What counts of the reports of agents, and of reports on their clusters that come another way. No I/O.

Records bear no sender: all that a broker vouches for is who may write a topic. So the topic of an agent may hold
records of its own cluster only, about what is observed there and nothing else, and the shared topics may hold none of
them.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeVar

from msgspec import structs

from schemas.agents import AgentRegistry, AgentSet, AgentTopics
from schemas.codec import encode
from schemas.entries import Body, HandsChanged, Outcome
from schemas.keys import parse_session
from schemas.limits import PROBLEM, Refusal, shortened
from schemas.observed import (
    REFUSED_PART,
    AutoscalerDeleted,
    AutoscalerList,
    AutoscalerSet,
    ClusterReport,
    Heartbeat,
    ObserverTrouble,
    Point,
    Samples,
    Serving,
)
from streams.ingest import own as topickinds
from streams.ingest import pieces as rates
from streams.ingest.checks import check_range
from streams.ingest.pieces import SHOWN_S, AgentRates, Conversion, Piece
from streams.state.answers import series_name
from streams.state.namespacerows import spread_over

AHEAD_MS = 300_000
"""A pushed sample may be from so far in the future: it is kept until an hour after its own time."""

T = TypeVar("T")


class ReceivedAt(NamedTuple):
    """When a record is taken: by a clock of ingest that does not go back, and when the brokers appended it; seconds."""

    now_s: float
    at_s: float


def agent_instance(cluster: str) -> str:
    """The name under which the agent of a cluster observes, whichever replica leads."""
    return f"agent-{cluster}"


def admit(
    found: Conversion, agent: AgentSet | None, topic: AgentTopics, limits: AgentRates, moment: ReceivedAt
) -> None:
    """Keep of an agent's record what it may report; the rest is refused.

    Args:
        agent: the registration of the topic; None: there is none, or no longer.
        limits: those of this agent.
    """
    pieces, found.pieces = found.pieces, []
    if agent is None:
        found.refuse(Refusal("noAgent", f"no agent of cluster {topic.cluster!r} is registered for {topic.reports}"))
        return
    try:
        what = f"bytes of the reports of {_whose(agent)}"
        limits.rates.take(rates.REPORTED_BYTES, ("reported",), moment.at_s, what, found.size)
    except Refusal as refusal:
        found.refuse(refusal)
        pieces = []
    for piece in pieces:
        try:
            found.pieces.append(_Admission(piece, agent, limits, found, moment).admitted())
        except Refusal as refusal:
            found.refuse(refusal)
    if found.refusals:
        limits.refused.note(found.refusals, found.time_ms, moment.now_s)


class _Admission:
    """One piece of an agent's record, on its way in."""

    def __init__(
        self, piece: Piece, agent: AgentSet, limits: AgentRates, found: Conversion, moment: ReceivedAt
    ) -> None:
        self._piece, self._agent, self._found = piece, agent, found
        self._namespace, self._moment = piece.namespace, moment
        self._rates, self._refused = limits.rates, limits.refused

    def admitted(self) -> Piece:
        """Give the piece, or what may be taken of it. Raises Refusal: nothing of it."""
        body = self._piece.body
        for cluster in _clusters(self._piece):
            if cluster != self._agent.cluster:
                raise Refusal("otherCluster", f"{_whose(self._agent)} may not report on cluster {cluster[:80]!r}")
        if isinstance(body, Serving | HandsChanged | ClusterReport):
            return self._piece._replace(body=self._of_cluster(body))
        if session := getattr(body, "session", ""):
            self._check_session(session)
        return self._piece._replace(body=self._of_namespace(body))

    # --- the whole cluster --------------------------------------------------------------------------------------------

    def _of_cluster(self, body: Serving | HandsChanged | ClusterReport) -> Body:
        if isinstance(body, ClusterReport):
            return self._report(body)
        if isinstance(body, Serving):
            check_range(len(body.clusters), "length of clusters", 0, 1)
            copied: Body = body
        else:
            check_range(len(body.natives), "length of natives", 0, self._agent.max_hpas)
            copied = structs.replace(body, natives=[])  # those go into one partition each
        kind, at_s = str(body.__struct_config__.tag), self._moment.at_s
        self._rates.take(rates.CLUSTER, (kind,), at_s, f"{kind} of {_whose(self._agent)}")
        what = f"bytes of {_whose(self._agent)} for every log partition"
        self._rates.take(rates.COPIED_BYTES, ("bytes",), at_s, what, len(encode(copied)))
        return body

    def _report(self, body: ClusterReport) -> Body:
        self._check_session(body.session)
        if body.instance != agent_instance(self._agent.cluster):
            wanted = agent_instance(self._agent.cluster)
            raise Refusal("badName", f"the reports of {_whose(self._agent)} must be of instance {wanted!r}")
        refused = self._refused
        if self._moment.now_s - refused.last_s > SHOWN_S:
            return body
        error = shortened(f"{refused.count} entries, at last: {refused.text}", PROBLEM)
        trouble = ObserverTrouble(part=REFUSED_PART, reason="failing", since=refused.first_ms, error=error)
        return structs.replace(body, troubles=[trouble, *body.troubles])

    def _check_session(self, session: str) -> None:
        parsed, wanted = parse_session(session), agent_instance(self._agent.cluster)
        if parsed is None or parsed.instance != wanted:
            raise Refusal("badName", f"sessions of {_whose(self._agent)} must be of instance {wanted!r}")

    # --- a namespace --------------------------------------------------------------------------------------------------

    def _of_namespace(self, body: Body) -> Body:
        match body:
            case AutoscalerSet() | AutoscalerDeleted() | AutoscalerList():
                return self._autoscalers(body)
            case Samples():
                return structs.replace(body, points=self._each(body.points, self._take_point))
            case Outcome():
                self._note_hpa(body.name)
            case Heartbeat():
                for name in (self._namespace, *body.namespaces):
                    self._rates.take(rates.BEATS, ("beat", name), self._moment.at_s, f"heartbeats of namespace {name}")
        return body

    def _each(self, items: Iterable[T], take: Callable[[T], None]) -> list[T]:
        """Those that are taken; each of the others is refused by itself."""
        taken = []
        for item in items:
            try:
                take(item)
            except Refusal as refusal:
                self._found.refuse(refusal)
            else:
                taken.append(item)
        return taken

    # --- HPAs ---------------------------------------------------------------------------------------------------------

    def _autoscalers(self, body: AutoscalerSet | AutoscalerDeleted | AutoscalerList) -> Body:
        if not isinstance(body, AutoscalerList) and body.origin != "cluster":
            raise Refusal("notAllowed", f"{_whose(self._agent)} may not change central HPAs")
        if not isinstance(body, AutoscalerList):
            self._note_hpa(body.name if isinstance(body, AutoscalerDeleted) else body.hpa["metadata"]["name"])
            return body
        return structs.replace(body, hpas=self._each(body.hpas, lambda hpa: self._note_hpa(hpa["metadata"]["name"])))

    def _note_hpa(self, name: str) -> None:
        place = f"{self._namespace}/{name}"
        self._rates.take(rates.HPA, (self._namespace, name), self._moment.at_s, f"reports on HPA {place}")

    # --- samples ------------------------------------------------------------------------------------------------------

    def _take_point(self, point: Point) -> None:
        newest_ms = self._found.received_ms + AHEAD_MS
        if point.time > newest_ms:
            raise Refusal("badTime", f"time of {point.metric} is {point.time}, {AHEAD_MS // 1000} s after now or more")
        what = f"samples of namespace {self._namespace}"
        self._rates.take(rates.SAMPLES, (self._namespace, spread_over(series_name(point))), self._moment.at_s, what)


def _clusters(piece: Piece) -> list[str]:
    """The clusters that a piece is about."""
    if isinstance(piece.body, Serving):
        return [*piece.body.clusters, *piece.body.problems]
    if isinstance(piece.body, HandsChanged):
        return [piece.body.cluster]
    return [piece.cluster]


def _whose(agent: AgentSet) -> str:
    return f"the agent of cluster {agent.cluster!r}"


# --- shared topics ----------------------------------------------------------------------------------------------------


def refuse_agents(found: Conversion, registry: AgentRegistry) -> None:
    """Refuse what a record of a shared topic reports on clusters that have an agent."""
    if not any(registry.present(cluster) for piece in found.pieces for cluster in _clusters(piece)):
        return
    pieces, found.pieces = found.pieces, []
    for piece in pieces:
        cluster = next((name for name in _clusters(piece) if registry.present(name)), None)
        if cluster is None or not _is_observed(piece.body):
            found.pieces.append(piece)
            continue
        text = f"cluster {cluster!r} has an agent: only its own topic has reports on it"
        found.refuse(Refusal("agentCluster", text))
        if isinstance(piece.body, Serving) and (rest := _without_agents(piece.body, registry)).clusters:
            found.pieces.append(piece._replace(body=rest))


def _is_observed(body: Body) -> bool:
    if isinstance(body, AutoscalerSet | AutoscalerDeleted) and body.origin != "cluster":
        return False
    return body.__struct_config__.tag in topickinds.OBSERVED


def _without_agents(body: Serving, registry: AgentRegistry) -> Serving:
    return structs.replace(
        body,
        clusters=[name for name in body.clusters if not registry.present(name)],
        problems={name: text for name, text in body.problems.items() if not registry.present(name)},
    )
