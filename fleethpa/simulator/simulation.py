"""How a workload behaves: the annotation `fleethpa.io/simulation` on a workload, in YAML.

Example:
    load: {shape: sine, base: 200, amplitude: 150, period_s: 600}
    pod: {ready_ms: 5000, cpu_milli_per_unit: 4, capacity: 60}
    metrics:
      - {type: Pods, name: http_requests_per_second}
      - {type: Object, name: requests_per_second, object: {kind: Service, name: checkout}}
      - {type: External, name: queue_messages_ready, labels: {queue: encode}}
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from fleethpa.simulator.loadcurve import ConstantLoad, LoadCurve, parse_load
from fleethpa.simulator.model import PodProfile, with_profile
from schemas.yamltext import YamlTextError, parse_yaml

ANNOTATION: Final = "fleethpa.io/simulation"
SIGNALS: Final = {"Pods": "share", "Object": "total", "External": "queue"}
"""What a metric shows unless it says otherwise: a pod's share of the load, the total load, or the queue."""


@dataclass(frozen=True, slots=True)
class SimulatedSeries:
    """A metric that the workload's environment offers."""

    type: str
    name: str
    signal: str
    object_kind: str = ""
    object_name: str = ""
    labels: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Simulation:
    """Load, pod profile and metrics of a workload."""

    load: LoadCurve = field(default_factory=ConstantLoad)
    profile: PodProfile = field(default_factory=PodProfile)
    series: tuple[SimulatedSeries, ...] = ()


def parse_simulation(text: str) -> Simulation:
    """Read the annotation; the empty text is a workload without load.

    Raises:
        ValueError: Not YAML, or a field is unknown; the message names it.
    """
    try:
        document = parse_yaml(text) or {}
    except YamlTextError as error:
        raise ValueError(f"annotation {ANNOTATION} is not YAML: {error}") from error
    if not isinstance(document, dict) or not document.keys() <= {"load", "pod", "metrics"}:
        raise ValueError(f"annotation {ANNOTATION}: only load, pod and metrics are known")
    series = tuple(_series(entry) for entry in document.get("metrics") or ())
    profile = with_profile(PodProfile(), **(document.get("pod") or {}))
    return Simulation(parse_load(document.get("load", 0)), profile, series)


def _series(entry: dict[str, Any]) -> SimulatedSeries:
    kind = entry.get("type", "")
    if kind not in SIGNALS or "name" not in entry:
        raise ValueError(f"annotation {ANNOTATION}: metric {entry} needs a name and type Pods, Object or External")
    described = entry.get("object") or {}
    signal = entry.get("signal", SIGNALS[kind])
    if signal not in SIGNALS.values():
        raise ValueError(f"annotation {ANNOTATION}: signal {signal!r} is unknown: use share, total or queue")
    return SimulatedSeries(
        kind,
        entry["name"],
        signal,
        described.get("kind", ""),
        described.get("name", ""),
        dict(entry.get("labels") or {}),
    )
