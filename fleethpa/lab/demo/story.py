"""The story of the demonstration: each act moves something in the simulated clusters and checks their own API."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Final

from fleethpa.lab.demo.screen import DemoReport, missing_held, until
from fleethpa.lab.simulator.cluster import Fleet, SimulatedCluster
from fleethpa.lab.simulator.model import ConstantLoad
from fleethpa.lab.simulator.server import MetricsFault
from schemas.keys import FLEET, HpaId
from schemas.settings import ClusterSettings

SAMPLE_MS: Final = 1_000
WINDOW_S: Final = 12
"""Stabilization window of east's scale-down."""
STEP_PODS: Final = 3
"""What east's scale-up policy allows within STEP_S."""
STEP_S: Final = 5
MOST: Final = 10
"""maxReplicas of each HPA."""
SETTINGS: Final = ClusterSettings(
    sync_period_ms=2_000,
    downscale_stabilization_ms=4_000,
    cpu_initialization_period_ms=4_000,
    initial_readiness_delay_ms=2_000,
    default_mode="enforce",
    # The simulated clusters have no controller manager at all.
    native_controller="absent",
)

EAST: Final = HpaId("east", "shop", "checkout")
WEST: Final = HpaId("west", "shop", "search")
NORTH: Final = HpaId("north", "factory", "press")
HPAS: Final = (EAST, WEST, NORTH)
WHOLE: Final = HpaId(FLEET, "shop", "cart")
CARTS: Final = tuple(WHOLE._replace(cluster=name) for name in ("west", "north"))
"""The clusters of the FleetHPA."""

_WORKLOAD: Final = """
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {name}
  namespace: {namespace}
  annotations:
    fleethpa.io/simulation: |
      load: {load}
      pod: {{schedule_ms: 200, ready_ms: 1500, stop_ms: 500, cpu_milli_per_unit: 4, startup_cpu_milli: 500,
            startup_ms: 1500, noise: 0.01}}
      metrics:
        - {{type: Pods, name: http_requests_per_second}}
spec:
  replicas: {replicas}
  selector: {{matchLabels: {{app: {name}}}}}
  template:
    metadata: {{labels: {{app: {name}}}}}
    spec:
      containers:
        - {{name: server, image: "{image}", resources: {{requests: {{cpu: 500m, memory: 128Mi}}}}}}
"""
_HPA: Final = """
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {{name: {name}, namespace: {namespace}, labels: {{team: pay}}}}
spec:
  scaleTargetRef: {{apiVersion: apps/v1, kind: Deployment, name: {name}}}
  minReplicas: 2
  maxReplicas: {most}
  metrics:
    - {{type: Resource, resource: {{name: cpu, target: {{type: Utilization, averageUtilization: 60}}}}}}{more}
  behavior:
    scaleUp:
      stabilizationWindowSeconds: 0
      policies: [{{type: Pods, value: {pods}, periodSeconds: {period}}}]
    scaleDown:
      stabilizationWindowSeconds: {window}
      policies: [{{type: Percent, value: 100, periodSeconds: 5}}]
"""
_REQUESTS: Final = """
    - type: Pods
      pods: {metric: {name: http_requests_per_second}, target: {type: AverageValue, averageValue: "75"}}"""

_FLEET_HPA: Final = """
apiVersion: fleethpa.io/v1alpha1
kind: FleetHPA
metadata: {{name: {name}, namespace: {namespace}}}
spec:
  scaleTargetRef: {{apiVersion: apps/v1, kind: Deployment, name: {name}}}
  minReplicas: 2
  maxReplicas: {most}
  metrics: [{{type: Resource, resource: {{name: cpu, target: {{type: Utilization, averageUtilization: 60}}}}}}]
  behavior: {{scaleUp: {{policies: [{{type: Pods, value: {most}, periodSeconds: 5}}]}}}}
  clusters: [{{name: west, minReplicas: 1}}, {{name: north, minReplicas: 1}}]
  placement: {{rebalanceAfter: 2s}}
"""

LOADS: Final = {EAST: 130.0, WEST: 400.0, NORTH: 130.0} | dict.fromkeys(CARTS, 130.0)
REPLICAS: Final = {EAST: 2, WEST: 6, NORTH: 2} | dict.fromkeys(CARTS, 2)


def workload(hpa: HpaId, image: str = "app:1", replicas: int | None = None, load: float | None = None) -> str:
    """The target's manifest."""
    return _WORKLOAD.format(
        name=hpa.name,
        namespace=hpa.namespace,
        load=LOADS[hpa] if load is None else load,
        replicas=replicas or REPLICAS[hpa],
        image=image,
    )


def manifest(hpa: HpaId) -> str:
    """The HPA's manifest: plain autoscaling/v2."""
    window = {EAST: WINDOW_S, WEST: 0, NORTH: 0}[hpa]
    more = _REQUESTS if hpa == WEST else ""
    places = {"name": hpa.name, "namespace": hpa.namespace}
    return _HPA.format(**places, window=window, more=more, period=STEP_S, pods=STEP_PODS, most=MOST)


def demo_fleet() -> Fleet:
    """Three clusters, not yet started."""
    clusters = []
    for hpa in HPAS:
        cluster = SimulatedCluster(hpa.cluster, sample_ms=SAMPLE_MS)
        cluster.apply_yaml(workload(hpa))
        cluster.apply_yaml(manifest(hpa))
        clusters.append(cluster)
        for cart in CARTS:
            if cart.cluster == hpa.cluster:
                cluster.apply_yaml(workload(cart))
    return Fleet(clusters)


async def apply_fleet_hpa(report: DemoReport) -> None:
    """Apply the FleetHPA as a user would, and wait until its clusters have reported to it."""
    text = _FLEET_HPA.format(name=WHOLE.name, namespace=WHOLE.namespace, most=MOST)
    await report.ask("apply", "-f", "-", "--mode", "enforce", "--yes", stdin=text)
    await until(lambda: all(each.get("replicas") for each in _division(report).values()), 20)


async def asked(report: DemoReport, root: Path) -> None:
    """Ask the archive as a user would: why east was scaled last, and what a lower maximum would have done."""
    source = ("--from", str(root))
    why = ("explain", str(EAST), "--change", *source)
    what = f"`fleethpa {' '.join(why)}`: why, and what would have changed it."
    report.screen.act(8, "Any decision can be asked why", what)
    report.screen.quoted(await report.ask(*why))
    flips = (await report.ask_document(*why)).get("counterfactuals", {}).get("flips", [])
    report.promise(
        f"other metric values that change this answer: {len(flips)}, each evaluated again to prove it", bool(flips)
    )
    other = ("backtest", str(EAST), "--set", "maxReplicas=6", "--plot", *source)
    what = f"`fleethpa {' '.join(other)}`: the last minutes, once more."
    report.screen.act(9, "Another spec is tried on what has just happened", what)
    report.screen.quoted(await report.ask(*other))
    deployed = ("backtest", str(EAST), "--set", f"maxReplicas={MOST}", "--model", "open", *source)
    for backtest in (await report.ask_document(*deployed)).get("items", [{"evaluations": 0, "agreed": 0}]):
        report.promise(
            f"the deployed spec, asked at all {backtest['evaluations']} evaluations, answers as recorded",
            0 < backtest["evaluations"] == backtest["agreed"],
        )


HIGH: Final = 580.0
"""East's load at its height: it needs 8 pods, and 7 are not within the tolerance, whichever steps lead there."""


async def load_rises(fleet: Fleet, report: DemoReport) -> None:
    """Load rises in east; a policy limits each step."""
    what = f"East's shop/checkout gets over four times its load; its policy allows {STEP_PODS} more pods in {STEP_S}s."
    report.screen.act(1, "Load rises, replicas follow, a policy limits the step", what)
    mark = len(report.decisions)
    set_load(fleet, EAST, HIGH)
    reached = await until(lambda: report.replicas.get(EAST) == 8, 30)
    steps = [
        r.decision for r in report.since(mark, EAST) if r.decision.final_desired_replicas != r.decision.current_replicas
    ]
    limited = [d for d in steps if "ScaleUpPolicy" in d.constraints_applied]
    report.promise(f"east runs 8 replicas (its API says {report.replicas.get(EAST)})", reached)
    small = all(d.final_desired_replicas - d.current_replicas <= STEP_PODS for d in steps)
    report.promise(
        f"no step was larger than {STEP_PODS} pods, and the policy held at least one", small and bool(limited)
    )


async def rolling_update(fleet: Fleet, report: DemoReport) -> None:
    """A rolling update in east: new pods start, burn CPU, and are not counted before they are ready.

    North is lost meanwhile: it takes half a minute until a FleetHPA counts a cluster as away.
    """
    what = "A new image in east: every pod is replaced; starting pods burn CPU, and the HPA must not be fooled."
    report.screen.act(2, "A rolling update does not over-scale", what)
    await fleet["north"].stop_api(abort=True)
    report.screen.line("meanwhile north's API server stops; scenes 4 and 5 look at that")
    mark, old = len(report.decisions), {pod["metadata"]["name"] for pod in await report.pods(EAST)}
    report.highest[EAST] = report.replicas.get(EAST, 0)
    await until(lambda: _settled(report, EAST, mark), 10)
    fleet["east"].apply_yaml(workload(EAST, image="app:2", replicas=report.replicas[EAST], load=HIGH))

    shown = 0

    async def replaced() -> bool:
        nonlocal shown
        pods = await report.pods(EAST)
        names = {pod["metadata"]["name"] for pod in pods}
        if (gone := len(old - names)) >= shown + 2:
            shown = gone
            report.screen.line(f"{gone} of {len(old)} old pods replaced, {report.replicas.get(EAST)} replicas wanted")
        return not names & old and len(pods) == 8 and all(map(_ready, pods))

    done = await until(replaced, 25)
    mark_after = len(report.decisions)
    await until(lambda: len(report.since(mark_after, EAST)) >= 2, 8)
    wanted = [r.decision.final_desired_replicas for r in report.since(mark, EAST)]
    report.promise("all 8 pods of east are new and ready", done)
    report.promise(f"{len(wanted)} evaluations meanwhile, none wanted more than 8", bool(wanted) and max(wanted) <= 8)
    report.promise(
        f"east never ran more than 8 replicas (highest: {report.highest.get(EAST)})", report.highest.get(EAST) == 8
    )


async def metric_missing(fleet: Fleet, report: DemoReport) -> None:
    """West loses a metric while its load falls: nothing scales down until the metric is back."""
    what = "In west the load falls, but the API of http_requests_per_second fails: absence is not zero."
    report.screen.act(3, "A metric goes missing, and nothing scales down", what)
    mark, before = len(report.decisions), report.replicas.get(WEST, 0)
    fleet["west"].set_metrics_faults([MetricsFault(WEST.namespace, "http_requests_per_second")])
    set_load(fleet, WEST, 130)
    held = await until(lambda: sum(map(missing_held, report.since(mark, WEST))) >= 3, 20)
    kept = report.replicas.get(WEST) == before
    report.promise(f"three times cpu asked for fewer, and west kept its {before} replicas", held and kept)
    fleet["west"].set_metrics_faults([])
    report.screen.line("the metric is back")
    fell = await until(lambda: report.replicas.get(WEST) == 2, 20)
    report.promise(f"with both metrics west goes to 2 replicas (its API says {report.replicas.get(WEST)})", fell)


async def cluster_away(fleet: Fleet, report: DemoReport) -> None:
    """North's API server is away; the others continue."""
    what = "The API server of north has stopped. Its load rises meanwhile; west and east must not notice."
    report.screen.act(4, "A cluster goes away, the others continue", what)
    mark = len(report.decisions)
    set_load(fleet, NORTH, 340)
    set_load(fleet, WEST, 330)
    grew = await until(lambda: report.replicas.get(WEST, 0) == 5, 20)
    report.promise(f"west went on to 5 replicas without north (its API says {report.replicas.get(WEST)})", grew)
    went_on = await until(lambda: len(report.since(mark, EAST)) >= 4, 20)
    report.promise(f"east was evaluated {len(report.since(mark, EAST))} times without north", went_on)
    moved = [r for r in report.since(mark, NORTH) if r.decision.final_desired_replicas != r.decision.current_replicas]
    report.promise("no replicas of north changed while it could not be observed", not moved)
    away = await until(lambda: _shown_as_away(report), 30)
    report.promise("`fleethpa get clusters` shows north as away, since when and why", away)


async def region_lost(fleet: Fleet, report: DemoReport) -> None:
    """The FleetHPA of west and north: west takes over within the maximum, north comes back, and nothing jumps."""
    west, north = CARTS
    what = f"shop/cart is one autoscaler over west and north, at most {MOST} replicas in both; west gets all the load."
    report.screen.act(5, "A region is lost, the other takes over within the maximum", what)
    kept, before = report.replicas.get(north, 0), report.replicas.get(NORTH, 0)
    away = await until(lambda: bool(_division(report).get("north", {}).get("away")), 45)
    report.promise(f"the FleetHPA counts north as away, with its {kept} replicas", away)
    set_load(fleet, west, 1_000)
    took_over = await until(lambda: report.replicas.get(west) == MOST - kept, 25)
    now = report.replicas.get(west)
    report.promise(f"west took over: it has {now}, all that maxReplicas {MOST} leaves beside north's {kept}", took_over)
    set_load(fleet, west, 300)
    set_load(fleet, north, 300)
    await fleet["north"].start_api()
    report.screen.line("north answers again, and half of the load is there again")
    divided = await until(
        lambda: sum(_counts(report)) in (8, 9) and abs(_counts(report)[0] - _counts(report)[1]) <= 1, 40
    )
    shares = " and ".join(map(str, _counts(report)))
    report.promise(f"the replicas that both need are divided again: {shares}", divided)
    report.promise(
        f"both never had more than {MOST} replicas together (highest: {report.highest_of_carts})",
        report.highest_of_carts == MOST,
    )
    back = await until(lambda: report.replicas.get(NORTH, 0) == 5, 30)
    now = report.replicas.get(NORTH)
    report.promise(f"north's own HPA caught up from {before} to 5 replicas (its API says {now})", back)


async def load_falls(fleet: Fleet, report: DemoReport) -> None:
    """Load falls in east: the stabilization window holds, then lets go."""
    what = f"East's load falls to where it began; its window looks back {WINDOW_S}s for the highest recommendation."
    report.screen.act(6, "Load falls: the stabilization window holds, then lets go", what)
    mark, loop = len(report.decisions), asyncio.get_running_loop()
    began = loop.time()
    set_load(fleet, EAST, 130)
    held = await until(
        lambda: any("StabilizationWindow" in r.decision.constraints_applied for r in report.since(mark, EAST)), 12
    )
    fell = await until(lambda: report.replicas.get(EAST) == 2, WINDOW_S + 25)
    took = loop.time() - began
    report.promise(f"the window held the replicas, for {took:.0f}s in all", held and took >= WINDOW_S - 3)
    report.promise(f"then east went to 2 replicas (its API says {report.replicas.get(EAST)})", fell)
    # The record ends settled: with the outcome of the write, and with an evaluation of what is there since.
    mark = len(report.decisions)
    settled = await until(lambda: all(_settled(report, hpa, mark) for hpa in HPAS), 15)
    report.promise("at the end every HPA has what its metrics ask for", settled)


ACTS = (load_rises, rolling_update, metric_missing, cluster_away, region_lost, load_falls)


def set_load(fleet: Fleet, hpa: HpaId, units: float) -> None:
    """Give a workload another load from now on."""
    fleet[hpa.cluster].set_load(hpa.namespace, hpa.name, ConstantLoad(units))


def _counts(report: DemoReport) -> list[int]:
    """The replicas of the FleetHPA's clusters."""
    return [report.replicas.get(each, 0) for each in CARTS]


def _division(report: DemoReport) -> dict[str, Any]:
    """Return what the newest decision of the FleetHPA says of its clusters."""
    decisions = report.since(0, WHOLE)
    clusters: dict[str, Any] = decisions[-1].decision.observed.get("clusters", {}) if decisions else {}
    return clusters


async def _shown_as_away(report: DemoReport) -> bool:
    lines = (await report.ask("get", "clusters")).splitlines()
    away_lines = [line for line in lines if line.startswith(f"{NORTH.cluster} ") and " away " in line]
    for line in away_lines:
        report.screen.line(line)
    return bool(away_lines)


def _settled(report: DemoReport, hpa: HpaId, mark: int) -> bool:
    """Whether its newest evaluation found what its metrics ask for, and did not only now decide it."""
    newest = [each.decision for each in report.since(mark, hpa)[-1:]]
    has = report.replicas.get(hpa)
    return any(each.current_replicas == has == each.raw_desired_replicas for each in newest)


def _ready(pod: dict[str, object]) -> bool:
    status = pod.get("status")
    conditions = status.get("conditions") if isinstance(status, dict) else None
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions or [])
