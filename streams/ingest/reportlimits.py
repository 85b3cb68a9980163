"""What ingest remembers of each agent to bound what it reports: sizes, rates, and what was refused. No I/O."""

from schemas.agents import AgentSet, AgentTopics
from streams.ingest.agentledger import AgentLedger
from streams.ingest.agentrates import Rates
from streams.ingest.pieces import Refusal

SHOWN_S = 600.0
"""For so long the reports of an agent tell of what was refused of it."""


class RefusedLately:
    """What was refused of an agent lately."""

    def __init__(self) -> None:
        self.count, self.text = 0, ""
        self.first_ms = 0
        self.last_s = float("-inf")

    def note(self, refusals: list[Refusal], time_ms: int, now_s: float) -> None:
        if now_s - self.last_s > SHOWN_S:
            self.count, self.first_ms = 0, time_ms
        self.count += len(refusals)
        self.text, self.last_s = refusals[-1].text, now_s


class ReportLimits:
    """Counts what each agent reports: what deciders keep of it, how often, and what was refused.

    It forgets when ingest restarts, and when another worker has read the topic meanwhile.

    Args:
        partitions: partition count of the log.
    """

    def __init__(self, partitions: int) -> None:
        self._partitions = partitions
        self._ledgers: dict[AgentTopics, AgentLedger] = {}
        self._rates: dict[AgentTopics, Rates] = {}
        self._refused: dict[AgentTopics, RefusedLately] = {}

    def forget(self, keep: set[AgentTopics]) -> None:
        """Forget all agents but these."""
        for gone in self._ledgers.keys() - keep:
            self.begin(gone)
        for gone in self._refused.keys() - keep:
            del self._refused[gone]

    def begin(self, agent: AgentTopics) -> None:
        """Begin anew for an agent: records of it were read elsewhere."""
        self._ledgers.pop(agent, None)
        self._rates.pop(agent, None)

    def ledger(self, agent: AgentSet) -> AgentLedger:
        """What deciders keep of an agent."""
        return self._ledgers.setdefault(agent.topics, AgentLedger(agent.cluster, self._partitions))

    def rates(self, agent: AgentSet) -> Rates:
        """How often an agent reports."""
        return self._rates.setdefault(agent.topics, Rates())

    def refused(self, agent: AgentTopics) -> RefusedLately:
        """What was refused of an agent lately."""
        return self._refused.setdefault(agent, RefusedLately())
