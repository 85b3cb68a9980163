"""Which clusters have an agent, folded from the entries of `fleethpa.settings`."""

from schemas.agents import AgentSet, AgentTopics


class AgentRegistry:
    """The newest registration of each cluster, also of those whose agent has left."""

    def __init__(self) -> None:
        self._known: dict[str, AgentSet] = {}

    def apply(self, entry: AgentSet) -> bool:
        """Add a registration; return whether it is new. A repeated or older one is not."""
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
        agent = self._known.get(cluster)
        return None if agent is None or agent.left else agent

    def agents(self) -> list[AgentSet]:
        """All agents there are now, by the names of their clusters."""
        return [self._known[name] for name in sorted(self._known) if not self._known[name].left]

    def agent_of(self, topics: AgentTopics) -> AgentSet | None:
        """The agent that reports on a topic; None: it has left, or a later incarnation took its place."""
        agent = self.present(topics.cluster)
        return agent if agent is not None and agent.incarnation == topics.incarnation else None
