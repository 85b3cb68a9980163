"""Agents: clusters that are observed and written by a process of their own inside them, over two topics of their own.

`fleethpa.from.NAME.N` carries all that the agent of cluster NAME reports, `fleethpa.to.NAME.N` all that it is to know.
N is the incarnation: a cluster that is added again gets a higher one, so that no topic is ever used twice. Which
clusters have an agent is folded from the entries of `fleethpa.settings`. No I/O.
"""

from typing import Annotated, Any, Literal, NamedTuple

from msgspec import Meta, Struct

from schemas.limits import CLUSTER_HPAS, CLUSTER_NAMESPACES, MAX_TIME_MS, Positive
from schemas.observed import EntryBody
from schemas.settings import SettingsSet
from schemas.topics import PREFIX

FROM_PREFIX = f"{PREFIX}from."
TO_PREFIX = f"{PREFIX}to."
MAX_TOPIC_NAME = 249
"""Kafka's limit."""

SNAPSHOT_TYPE = b"io.fleethpa.snapshot.v1"
"""Value of the header `ce_type` of an `AgentKnowledge` record; decisions have their own."""
ONLY_PARTITION = 0
"""The topics of an agent have one partition, also if a broker creates them with more."""


class AgentTopics(NamedTuple):
    """The topics of one incarnation of an agent cluster."""

    cluster: str
    incarnation: int

    @property
    def reports(self) -> str:
        """What comes from the agent."""
        return f"{FROM_PREFIX}{self.cluster}.{self.incarnation}"

    @property
    def orders(self) -> str:
        """What goes to the agent."""
        return f"{TO_PREFIX}{self.cluster}.{self.incarnation}"


def agent_of_reports(topic: str) -> AgentTopics | None:
    """Whose reports a topic carries; None: it is not such a topic."""
    if not topic.startswith(FROM_PREFIX):
        return None
    cluster, _, number = topic.removeprefix(FROM_PREFIX).rpartition(".")
    usual = number.isascii() and number.isdecimal() and number == str(int(number))
    return AgentTopics(cluster, int(number)) if cluster and usual else None


def metric_name(cluster: str) -> str:
    """A name as Kafka's metrics bear it: clusters that differ only in `.` and `_` cannot both have topics."""
    return cluster.replace(".", "_")


class AgentSet(EntryBody, frozen=True, kw_only=True, tag="agent"):
    """Cluster `cluster` has an agent from here on, which reports on the topic of this incarnation; ingest copies the
    entry into every partition.

    `left`: it has one no longer. Reports of earlier incarnations, and after `left` of this one, count no more.
    `max_namespaces`, `max_hpas`: what it may report.
    """

    cluster: str
    incarnation: Annotated[int, Meta(ge=1, le=MAX_TIME_MS)]
    left: bool = False
    max_namespaces: Positive = CLUSTER_NAMESPACES.most
    max_hpas: Positive = CLUSTER_HPAS.most
    author: str = ""
    reason: str = ""

    @property
    def topics(self) -> AgentTopics:
        """Its topics."""
        return AgentTopics(self.cluster, self.incarnation)


class CentralHpa(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A central HPA of the cluster: its manifest, defaulted autoscaling/v2. `deleted`: it is gone."""

    namespace: str
    name: str
    hpa: dict[str, Any] = {}
    deleted: bool = False


class KnownPause(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A pause that holds in the cluster: of one HPA, of a namespace (no `name`), or of all (neither); or (`override`)
    the `replicas` that a person wants of one HPA in place of what its metrics ask for, which stops nothing.

    `until`: when it ends by itself (Unix ms); 0: never.
    """

    kind: Literal["all", "scaleUp", "scaleDown", "override"] = "all"
    namespace: str = ""
    name: str = ""
    until: int = 0
    replicas: int = 0


class AgentKnowledge(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What an agent must know beside decisions: the settings of its cluster and its central HPAs.

    With `snapshot` (a name) it is one of `chunks` parts of the whole: once all have come, what none of them names is
    gone. Without, it is a change: HPAs are added, replaced or deleted. `settings`, where there are any, replace all
    those before: the merged settings of `*` and of the cluster. `pauses`, where it is not None, replaces those before:
    the stand-in keeps to them, and to overrides, while the hub is away. `time`: when it was written (ms, the writer's
    clock).
    """

    v: int
    cluster: str
    time: int
    snapshot: str = ""
    chunk: int = 0
    chunks: int = 1
    settings: list[SettingsSet] = []
    hpas: list[CentralHpa] = []
    pauses: list[KnownPause] | None = None


class AgentRegistry:
    """The newest registration of each cluster, also of those whose agent has left."""

    def __init__(self) -> None:
        self._known: dict[str, AgentSet] = {}

    def apply(self, entry: AgentSet) -> bool:
        """Take a registration in; return whether it is new. A repeated or older one is not."""
        known = self._known.get(entry.cluster)
        if known is not None and (entry.incarnation, entry.left) <= (known.incarnation, known.left):
            return False
        self._known[entry.cluster] = entry
        return True

    def newest(self, cluster: str) -> AgentSet | None:
        """The newest registration of a cluster, which may have left."""
        return self._known.get(cluster)

    def present(self, cluster: str) -> AgentSet | None:
        """The agent of a cluster; None: it has none."""
        found = self._known.get(cluster)
        return None if found is None or found.left else found

    def agents(self) -> list[AgentSet]:
        """All agents there are now, by the names of their clusters."""
        return [self._known[name] for name in sorted(self._known) if not self._known[name].left]

    def agent_of(self, topics: AgentTopics) -> AgentSet | None:
        """The agent that reports on a topic; None: it has left, or a later incarnation took its place."""
        found = self.present(topics.cluster)
        return found if found is not None and found.incarnation == topics.incarnation else None
