"""Agents: clusters that are observed and written by a process of their own inside them, over two topics of their own.

`fleethpa.from.NAME.N` carries all that the agent of cluster NAME reports, `fleethpa.to.NAME.N` all that it is to know.
N is the incarnation: a cluster that is added again gets a higher one, so that no topic is ever used twice. Which
clusters have an agent is folded from the entries of `fleethpa.settings`. No I/O.
"""

from typing import Annotated, NamedTuple

from msgspec import Meta

from schemas.limits import CLUSTER_HPAS, CLUSTER_NAMESPACES, MAX_TIME_MS, Positive
from schemas.observed import EntryBody
from schemas.topics import PREFIX

FROM_PREFIX = f"{PREFIX}from."
TO_PREFIX = f"{PREFIX}to."
STAND_IN_POLICY = "fleethpa.io/stand-in"
"""Annotation of a central HPA, which the stand-in reads: `native` (default), `hold`, `floor=N` or `floor=peak-24h`."""
MAX_TOPIC_NAME = 249
"""Kafka's limit."""

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
    def commands(self) -> str:
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
