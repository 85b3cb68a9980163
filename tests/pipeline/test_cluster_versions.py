"""Clusters of different versions, observed at once: the decisions of each carry the rules of its version."""

from pathlib import Path
from typing import Any

from runtime.log import wall_clock_ms
from schemas.answers import Answers
from schemas.observed import Heartbeat
from tests.kit.clusters import FaultyCluster
from tests.kit.partition import LogBuilder
from tests.pipeline.cluster_rig import NAMESPACE, Rig, deployment, hpa, observed, rig

RULES = {27: "1.27", 28: "1.28", 32: "1.32", 33: "1.33", 34: "1.34", 35: "1.35", 36: "1.36", 37: None}
"""Minor version of a cluster -> the rules in its decisions; None: none are named, as 1.37 is the default."""
GATES = {"HPAScaleToZero": True, "HPAConfigurableTolerance": False}
GATED = {35: "1.35 HPAConfigurableTolerance=false,HPAScaleToZero=true"}
"""The one of them whose API server may be asked for its gates."""


def begin(cluster: FaultyCluster, minor: int) -> None:
    cluster.api.kubernetes, cluster.api.gates = f"v1.{minor}.3", GATES if minor in GATED else None
    cluster.apply(deployment("web"))
    cluster.apply(hpa("web"))


def decisions(made: Rig, cluster: str) -> list[dict[str, Any]]:
    """What the core decides of what the observer reported of a cluster."""
    log = LogBuilder()
    log.now_ms = wall_clock_ms()
    bodies = [body for _, where, inside, body in made.topics.entries if (where, inside) == (cluster, NAMESPACE)]
    # The topics were read in any order, and a heartbeat counts after the first list of its session.
    for body in sorted(bodies, key=lambda each: isinstance(each, Heartbeat)):
        log.add(log.entry(body, f"{cluster}/{NAMESPACE}"))
    return [each for each in log.ticks(46) if "scaleTargetRef" in each]


async def test_the_decisions_of_each_cluster_carry_the_rules_of_its_version(tmp_path: Path) -> None:
    async with rig(tmp_path, [f"v{minor}" for minor in RULES]) as made:
        for minor in RULES:
            begin(made.sims[f"v{minor}"], minor)

        def are_reported() -> bool:
            beats = {each.kubernetes.partition("+")[0] for each in made.topics.of(Heartbeat)}
            asked = [made.topics.of(Answers, f"v{minor}", NAMESPACE) for minor in RULES]
            return beats >= {f"v1.{minor}.3" for minor in RULES} and all(asked)

        async with observed(made):
            await made.topics.until(are_reported, "the version and the metrics of each cluster")

        found = {minor: {each.get("rules") for each in decisions(made, f"v{minor}")} for minor in RULES}
        assert found == {minor: {GATED.get(minor, rules)} for minor, rules in RULES.items()}
