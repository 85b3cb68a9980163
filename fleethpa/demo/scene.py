"""The fleet of the demonstration: three clusters, small workloads, loads that the story moves."""

from __future__ import annotations

from typing import Final

from fleethpa.simulator.clock import SimClock
from fleethpa.simulator.simulatedcluster import SimulatedCluster
from fleethpa.simulator.simulatedfleet import Fleet
from schemas.keys import HpaId
from schemas.settings import ClusterSettings

SAMPLE_MS: Final = 1_000
WINDOW_S: Final = 12
"""Stabilization window of east's scale-down."""
STEP_PODS: Final = 3
"""What east's scale-up policy allows within STEP_S."""
STEP_S: Final = 5
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
  maxReplicas: 10
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

LOADS: Final = {EAST: 130.0, WEST: 400.0, NORTH: 130.0}
REPLICAS: Final = {EAST: 2, WEST: 6, NORTH: 2}


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
    period, pods = STEP_S, STEP_PODS
    return _HPA.format(name=hpa.name, namespace=hpa.namespace, window=window, more=more, period=period, pods=pods)


def demo_fleet() -> Fleet:
    """Three clusters, not yet started."""
    clock = SimClock()
    clusters = []
    for hpa in HPAS:
        cluster = SimulatedCluster(hpa.cluster, clock=clock, sample_ms=SAMPLE_MS)
        cluster.apply_yaml(workload(hpa))
        cluster.apply_yaml(manifest(hpa))
        clusters.append(cluster)
    return Fleet(clusters)
