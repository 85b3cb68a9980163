"""What counts of the reports of agents, and of reports on their clusters that come another way. No I/O.

Records bear no sender: all that a broker vouches for is who may write a topic. So the topic of an agent speaks for its
own cluster and no other, about what is observed there and nothing else, and the shared topics do not speak for it.
"""

from collections.abc import Iterator
from typing import Any

from msgspec import structs

from schemas.agentregistry import AgentRegistry
from schemas.agents import AgentSet, AgentTopics
from schemas.autoscalers import AutoscalerDeleted, AutoscalerList, AutoscalerSet
from schemas.codec import encode
from schemas.entries import Body
from schemas.hands import HandsChanged
from schemas.observersessions import parse_session
from schemas.scales import ClusterReport, ScaleSet, Serving
from streams.ingest import topickinds
from streams.ingest.numberchecks import check_range
from streams.ingest.pieces import Conversion, Piece, Refusal

MAX_REPORT_BYTES = 32 * 1024
"""A cluster's report stays in the row of a whole log partition, beside those of other clusters."""
MAX_HPA_BYTES = 64 * 1024
MAX_PROBLEM_CHARACTERS = 1_000
MAX_SELECTOR_CHARACTERS = 16 * 1024
"""Deciders keep what they have parsed of selectors for all clusters."""
FORGOTTEN_S = 86_400.0
"""A namespace of which nothing was reported for a day makes room for another one."""


def agent_instance(cluster: str) -> str:
    """The name under which the agent of a cluster observes, whichever replica leads."""
    return f"agent-{cluster}"


class _Counted:
    """What one agent has reported: namespaces, when each was seen last (seconds), and its HPAs by namespace."""

    def __init__(self) -> None:
        self.seen_s: dict[str, float] = {}
        self.hpas: dict[str, set[str]] = {}
        self.hpa_count = 0

    def drop(self, namespace: str) -> None:
        """Forget the HPAs of a namespace."""
        self.hpa_count -= len(self.hpas.pop(namespace, ()))


class ReportLimits:
    """Counts the namespaces and HPAs that each agent reports. It forgets when ingest restarts."""

    def __init__(self) -> None:
        self._counted: dict[AgentTopics, _Counted] = {}

    def forget(self, keep: set[AgentTopics]) -> None:
        """Forget all agents but these."""
        for gone in self._counted.keys() - keep:
            del self._counted[gone]

    def check_namespace(self, agent: AgentSet, namespace: str, now_s: float) -> None:
        """Count a namespace.

        Raises:
            Refusal: `overLimit`: it is one more than the agent may report.
        """
        counted = self._counted.setdefault(agent.topics, _Counted())
        seen = counted.seen_s
        if namespace not in seen and len(seen) >= agent.max_namespaces:
            for name in [name for name, when_s in seen.items() if now_s - when_s > FORGOTTEN_S]:
                del seen[name]
                counted.drop(name)
            if len(seen) >= agent.max_namespaces:
                raise Refusal("overLimit", f"{_whose(agent)} reports more than {agent.max_namespaces} namespaces")
        seen[namespace] = now_s

    def take_hpa(self, agent: AgentSet, namespace: str, name: str) -> None:
        """Count an HPA.

        Raises:
            Refusal: `overLimit`: it is one more than the agent may report.
        """
        counted = self._counted.setdefault(agent.topics, _Counted())
        names = counted.hpas.setdefault(namespace, set())
        if name in names:
            return
        if counted.hpa_count >= agent.max_hpas:
            raise Refusal("overLimit", f"{_whose(agent)} reports more than {agent.max_hpas} HPAs")
        names.add(name)
        counted.hpa_count += 1

    def drop_hpas(self, agent: AgentSet, namespace: str, name: str = "") -> None:
        """An HPA is gone; without a name: a new full list of the namespace begins."""
        counted = self._counted.setdefault(agent.topics, _Counted())
        if not name:
            counted.drop(namespace)
        elif name in counted.hpas.get(namespace, ()):
            counted.hpas[namespace].discard(name)
            counted.hpa_count -= 1


def admit(found: Conversion, agent: AgentSet | None, topic: AgentTopics, limits: ReportLimits, now_s: float) -> None:
    """Keep of an agent's record what it may report; the rest is refused.

    Args:
        agent: the registration of the topic; None: there is none, or no longer.
        now_s: the time of a clock that does not go back.
    """
    pieces, found.pieces = found.pieces, []
    for piece in pieces:
        try:
            if agent is None:
                raise Refusal("noAgent", f"no agent of cluster {topic.cluster!r} is registered for {topic.reports}")
            found.pieces.append(_admitted(piece, agent, limits, found, now_s))
        except Refusal as refusal:
            found.refuse(refusal)


def _admitted(piece: Piece, agent: AgentSet, limits: ReportLimits, found: Conversion, now_s: float) -> Piece:
    body = piece.body
    for cluster in _clusters(piece):
        if cluster != agent.cluster:
            raise Refusal("otherCluster", f"{_whose(agent)} may not speak for cluster {cluster[:80]!r}")
    if isinstance(body, Serving):
        check_range(len(body.clusters), "length of clusters", 0, 1)
        for text in body.problems.values():
            check_range(len(text), "length of problems", 0, MAX_PROBLEM_CHARACTERS)
        return piece
    if isinstance(body, ClusterReport):
        _check_report(body, agent)
        return piece
    if isinstance(body, HandsChanged):
        check_range(len(body.natives), "length of natives", 0, agent.max_hpas)
        return piece
    if isinstance(body, ScaleSet):
        check_range(len(body.selector), "length of selector", 0, MAX_SELECTOR_CHARACTERS)
    limits.check_namespace(agent, piece.namespace, now_s)
    if isinstance(body, AutoscalerSet | AutoscalerDeleted | AutoscalerList):
        return piece._replace(body=_autoscalers(piece, body, agent, limits, found))
    return piece


def _check_report(body: ClusterReport, agent: AgentSet) -> None:
    session = parse_session(body.session)
    wanted = agent_instance(agent.cluster)
    if body.instance != wanted or session is None or session.instance != wanted:
        raise Refusal("badName", f"the reports of {_whose(agent)} must be of instance {wanted!r}")
    check_range(len(encode(body)), "size of the clusterReport", 0, MAX_REPORT_BYTES)


def _autoscalers(
    piece: Piece,
    body: AutoscalerSet | AutoscalerDeleted | AutoscalerList,
    agent: AgentSet,
    limits: ReportLimits,
    found: Conversion,
) -> Body:
    if not isinstance(body, AutoscalerList) and body.origin != "cluster":
        raise Refusal("notAllowed", f"{_whose(agent)} may not change central HPAs")
    if isinstance(body, AutoscalerDeleted):
        limits.drop_hpas(agent, piece.namespace, body.name)
        return body
    if isinstance(body, AutoscalerSet):
        _take_hpa(body.hpa, piece.namespace, agent, limits)
        return body
    if body.chunk == 0:
        limits.drop_hpas(agent, piece.namespace)
    return structs.replace(body, hpas=list(_within(body.hpas, piece.namespace, agent, limits, found)))


def _within(
    hpas: list[dict[str, Any]], namespace: str, agent: AgentSet, limits: ReportLimits, found: Conversion
) -> Iterator[dict[str, Any]]:
    for hpa in hpas:
        try:
            _take_hpa(hpa, namespace, agent, limits)
        except Refusal as refusal:
            found.refuse(refusal)
        else:
            yield hpa


def _take_hpa(hpa: dict[str, Any], namespace: str, agent: AgentSet, limits: ReportLimits) -> None:
    name = str(hpa["metadata"]["name"])
    check_range(len(encode(hpa)), f"size of HPA {namespace}/{name}", 0, MAX_HPA_BYTES)
    limits.take_hpa(agent, namespace, name)


def _clusters(piece: Piece) -> list[str]:
    """The clusters that a piece speaks for."""
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
        text = f"cluster {cluster!r} has an agent: only its own topic speaks for it"
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
