"""A workload with its HPA, for which a running reconciler acts."""

from dataclasses import dataclass
from typing import Any

from fleethpa.lab.simulator.resources import by_kind
from reconciler.apply.clusterwriters import WriterLimits
from reconciler.apply.process import ReconcilerConfig
from schemas.decisions import Decision
from schemas.entries import Outcome
from tests.kit.clusters import FaultyCluster
from tests.patience import PATIENCE_S
from tests.pipeline.cluster_rig import NAMESPACE, Rig


def config(made: Rig, **changes: Any) -> ReconcilerConfig:
    given: dict[str, Any] = {"kafka": made.kafka, "clusters": made.clusters}
    return ReconcilerConfig(**given | {"limits": WriterLimits(request_timeout_s=2.0)} | changes)


@dataclass
class App:
    """A workload with its HPA in cluster east."""

    made: Rig
    name: str

    @property
    def sim(self) -> FaultyCluster:
        return self.made.sims["east"]

    @property
    def scale(self) -> str:
        return f"deployments/{self.name}/scale"

    @property
    def replicas(self) -> int:
        found = self.sim.store.get(("deployments.apps", NAMESPACE, self.name))
        assert found is not None
        return int(found["spec"]["replicas"])

    async def decided(self, **changes: Any) -> Decision:
        return await self.made.decider.decision(self.sim, self.name, **{"wants": 5, **changes})

    async def ends(self, decision: Decision | None = None, **changes: Any) -> Outcome:
        published = await self.made.decider.publish(decision or await self.decided(**changes))
        return await outcome(self.made, published)

    def delete(self, api_version: str, kind: str) -> None:
        self.sim.writes.delete(by_kind(api_version, kind), NAMESPACE, self.name, {})


async def outcome(made: Rig, decision: Decision, timeout_s: float = PATIENCE_S) -> Outcome:
    def found() -> Any:
        return next((each for each in made.topics.of(Outcome) if each.decision == decision.id), None)

    result: Outcome = await made.topics.until(found, f"outcome of {decision.id}", timeout_s)
    return result


def asked(sim: FaultyCluster, verb: str, path: str) -> list[Any]:
    return [each for each in sim.api.audit if each.verb == verb and path in each.path and each.code == 200]


def taken(made: Rig) -> float:
    """How many wanted writes the reconciler has read."""
    found = made.part.health.registry.get_sample_value("fleethpa_reconciler_decisions_total", {"asks": "write"})
    return found or 0.0
