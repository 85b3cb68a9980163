"""The stand-in of each term of an agent's replica, and the looks at the Lease of a replica that does not lead."""

from collections.abc import Callable

from reconciler.agent.agentconfig import AgentConfig
from reconciler.agent.agentprocess import AgentTerm
from reconciler.agent.clusterstore import ClusterStore
from reconciler.agent.election import boot_s
from reconciler.agent.standin import StandIn, Surroundings
from reconciler.clusters.client import ClusterClient
from reconciler.clusters.clustererrors import ClusterError
from reconciler.standin.evidence import GRACE_MS, Judge, grace_of, stagger_ms
from reconciler.standin.objects import lease_seen
from schemas.hands import HandsChanged


async def stand_by(store: ClusterStore, judge: Judge, *, clock_s: Callable[[], float] = boot_s) -> None:
    """Look at the Lease once, in a replica that does not lead."""
    try:
        lease = await store.lease()
    except ClusterError:
        judge.stood_by(int(clock_s() * 1000), None, is_ok=False)
    else:
        judge.stood_by(int(clock_s() * 1000), None if lease is None else lease_seen(lease), is_ok=True)


def _store(config: AgentConfig, client: ClusterClient, grace: Callable[[], int] = lambda: GRACE_MS) -> ClusterStore:
    return ClusterStore(client, config.home, config.namespaces, grace)


class StandIns:
    """Makes the stand-in of each term of one replica; what it saw of the hub and of the Lease goes on between terms."""

    def __init__(self) -> None:
        self._judge = Judge()

    async def stand_by(self, config: AgentConfig, client: ClusterClient) -> None:
        """Look at the Lease, so that a term that begins later knows how long its holder has had it."""
        await stand_by(_store(config, client), self._judge)

    def __call__(self, term: AgentTerm) -> StandIn:
        """The stand-in of a term that begins."""
        config, name = term.config, term.client.name

        async def publish(change: HandsChanged) -> None:
            await term.publisher.publish("", "", change)

        def grace() -> int:
            return grace_of(term.settings.sync_period_ms(name, config.sync_period_ms))

        around = Surroundings(
            cluster=name,
            hub=config.hub,
            knowledge=term.knowledge,
            now_ms=term.now_ms,
            is_frozen=lambda: term.settings.guards(name).frozen,
            has_no_native=lambda: term.knowledge.has_no_native,
            grace_ms=grace,
            has_caught_up=lambda: term.has_caught_up,
            publish=publish,
            note=term.health.note,
        )
        self._judge.begin_term(stagger_ms(name))
        return StandIn(around, _store(config, term.client, grace), self._judge)
