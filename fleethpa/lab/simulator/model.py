"""Load over time, and a workload under it: its pods' lives and what they use, stepped in simulated time.

Pure: no I/O, no clock, no randomness. Times are milliseconds since the epoch. The annotation `fleethpa.io/simulation`
on a workload, in YAML, is how it behaves.

Example:
    load: {shape: sine, base: 200, amplitude: 150, period_s: 600}
    pod: {ready_ms: 5000, cpu_milli_per_unit: 4, capacity: 60}
    metrics:
      - {type: Pods, name: http_requests_per_second}
      - {type: Object, name: requests_per_second, object: {kind: Service, name: checkout}}
      - {type: External, name: queue_messages_ready, labels: {queue: encode}}
"""

from __future__ import annotations

import math
import zlib
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from schemas.kubernetes.manifests import YamlTextError, parse_yaml


class LoadCurve(Protocol):
    """A total load as a function of time."""

    def at(self, elapsed_s: float) -> float:
        """Return the units per second at so many seconds after the workload's start."""
        ...


@dataclass(frozen=True, slots=True)
class ConstantLoad:
    """Always the same load."""

    value: float = 0.0

    def at(self, elapsed_s: float) -> float:
        return self.value


@dataclass(frozen=True, slots=True)
class StepLoad:
    """`before` until `at_s`, `after` from then on."""

    before: float
    after: float
    at_s: float

    def at(self, elapsed_s: float) -> float:
        return self.after if elapsed_s >= self.at_s else self.before


@dataclass(frozen=True, slots=True)
class RampLoad:
    """From `start` to `end` in a straight line over `over_s` seconds that begin at `from_s`."""

    start: float
    end: float
    over_s: float
    from_s: float = 0.0

    def at(self, elapsed_s: float) -> float:
        share = min(1.0, max(0.0, (elapsed_s - self.from_s) / self.over_s))
        return self.start + (self.end - self.start) * share


@dataclass(frozen=True, slots=True)
class SineLoad:
    """`base` plus or minus `amplitude`, never below nothing; begins at `base`, rising."""

    base: float
    amplitude: float
    period_s: float

    def at(self, elapsed_s: float) -> float:
        return max(0.0, self.base + self.amplitude * math.sin(2 * math.pi * elapsed_s / self.period_s))


@dataclass(frozen=True, slots=True)
class SpikeLoad:
    """`base`, but `peak` for `duration_s` seconds from `at_s`; again every `every_s`, if that is set."""

    base: float
    peak: float
    at_s: float
    duration_s: float
    every_s: float | None = None

    def at(self, elapsed_s: float) -> float:
        into = elapsed_s - self.at_s
        if self.every_s is not None and into >= 0:
            into %= self.every_s
        return self.peak if 0 <= into < self.duration_s else self.base


SHAPES: dict[str, Callable[..., LoadCurve]] = {
    "constant": ConstantLoad,
    "step": StepLoad,
    "ramp": RampLoad,
    "sine": SineLoad,
    "spike": SpikeLoad,
}


def parse_load(document: Mapping[str, Any] | float | int) -> LoadCurve:
    """Read a load as manifests and the control endpoint write it: a number, or `{"shape": "sine", ...}`.

    Raises ValueError: Unknown shape, unknown or missing field, or a period that is not positive.
    """
    if isinstance(document, int | float):
        return ConstantLoad(float(document))
    fields = dict(document)
    shape = fields.pop("shape", "constant")
    if shape not in SHAPES:
        raise ValueError(f"load.shape {shape!r} is unknown: use one of {', '.join(SHAPES)}")
    for name in ("period_s", "over_s", "duration_s", "every_s"):
        if name in fields and not fields[name] > 0:
            raise ValueError(f"load.{name} is {fields[name]}: it must be above 0")
    try:
        return SHAPES[shape](**fields)
    except TypeError as error:
        raise ValueError(f"load of shape {shape}: {error}") from error


# --- a workload under load --------------------------------------------------------------------------------------------


SAMPLES_KEPT: Final = 240


@dataclass(frozen=True, slots=True)
class PodProfile:
    """How one pod of the workload lives and what a unit of load costs it."""

    schedule_ms: int = 300
    """From creation to Running."""
    ready_ms: int = 2_000
    """From Running to Ready."""
    stop_ms: int = 1_000
    """From deletion to gone; the deletionTimestamp is set for that long."""
    idle_cpu_milli: int = 10
    cpu_milli_per_unit: float = 5.0
    """Millicores for one unit of load per second."""
    cpu_limit_milli: int = 2_000
    startup_cpu_milli: int = 0
    """Extra millicores while starting up, for `startup_ms` from Running on."""
    startup_ms: int = 0
    idle_memory_bytes: int = 64 << 20
    memory_bytes_per_unit: int = 256 << 10
    capacity: float | None = None
    """Units per second that a pod can serve; None = no limit. What is above it waits in the queue."""
    noise: float = 0.0
    """Share by which samples of one pod differ from the next, e.g. 0.05."""


@dataclass(slots=True)
class SimulatedPod:
    """One pod, and when it runs, is ready, is deleted and is gone."""

    name: str
    revision: str
    created_ms: int
    running_ms: int
    ready_at_ms: int
    deleting_ms: int | None = None
    gone_ms: int | None = None

    def alive(self) -> bool:
        """Not on its way out: it counts as a replica."""
        return self.deleting_ms is None

    def phase(self, now_ms: int) -> str:
        """Pending or Running."""
        return "Running" if now_ms >= self.running_ms else "Pending"

    def ready(self, now_ms: int) -> bool:
        """Ready to take load."""
        return now_ms >= self.ready_at_ms


@dataclass(frozen=True, slots=True)
class SimulatedUsage:
    """What one pod used at the time of a sample; `load` is its share, in units per second."""

    cpu_milli: int
    memory_bytes: int
    load: float


@dataclass(frozen=True, slots=True)
class UsageSample:
    """What a metrics server saw at `time_ms`; pods that do not run are absent."""

    time_ms: int
    pods: dict[str, SimulatedUsage]
    total_load: float
    queue: float


@dataclass
class SimulatedWorkload:
    """A scalable workload: set `replicas`, `revision` or `profile` at any time, then `advance_to` a later time."""

    name: str
    now_ms: int
    replicas: int = 1
    load: LoadCurve = field(default_factory=ConstantLoad)
    profile: PodProfile = field(default_factory=PodProfile)
    revision: str = "1"
    ordinals: bool = False
    """A StatefulSet: pods are named by ordinal, and one that is replaced goes before the new one comes."""
    sample_ms: int = 15_000
    pods: dict[str, SimulatedPod] = field(default_factory=dict)
    queue: float = 0.0
    samples: deque[UsageSample] = field(default_factory=lambda: deque(maxlen=SAMPLES_KEPT))
    _serial: int = 0
    _start_ms: int = 0

    def __post_init__(self) -> None:
        self._start_ms = self.now_ms
        self._reconcile()

    # -- reading -----------------------------------------------------------------------------------------------------

    def total_load(self) -> float:
        """Units per second that arrive now."""
        return self.load.at((self.now_ms - self._start_ms) / 1000)

    def alive(self) -> list[SimulatedPod]:
        """The pods that count as replicas, oldest first."""
        return [pod for pod in self.pods.values() if pod.alive()]

    def ready_pods(self) -> list[SimulatedPod]:
        """The pods that share the load now; a terminating pod no longer does."""
        return [pod for pod in self.alive() if pod.ready(self.now_ms)]

    def next_change_ms(self) -> int:
        """When something happens next by itself, at the latest the next sample."""
        times = [(self.now_ms // self.sample_ms + 1) * self.sample_ms]
        for pod in self.pods.values():
            times += [t for t in (pod.running_ms, pod.ready_at_ms, pod.gone_ms) if t is not None and t > self.now_ms]
        return min(times)

    # -- changing ----------------------------------------------------------------------------------------------------

    def set_load(self, load: LoadCurve) -> None:
        """Change the load; its time begins now."""
        self.load, self._start_ms = load, self.now_ms

    def kill(self, name: str) -> None:
        """Delete one pod; another takes its place. Raises KeyError: There is no such pod."""
        self._delete(self.pods[name])
        self._reconcile()

    def advance_to(self, now_ms: int) -> None:
        """Live on until `now_ms`, through every change and sample on the way."""
        self._reconcile()
        while self.now_ms < now_ms:
            upto = min(now_ms, self.next_change_ms())
            if self.profile.capacity is not None:
                upto = min(upto, self.now_ms + 1_000)  # the queue is integrated in steps of a second
                self._serve(upto - self.now_ms)
            self.now_ms = upto
            self._remove_gone()
            self._reconcile()
            if upto % self.sample_ms == 0:
                self.samples.append(self.sample())

    def sample(self) -> UsageSample:
        """Measure all running pods now."""
        ready = self.ready_pods()
        share = self._served_per_pod(len(ready)) if ready else 0.0
        names = {pod.name for pod in ready}
        usages = {
            pod.name: self._usage(pod, share if pod.name in names else 0.0)
            for pod in self.pods.values()
            if pod.phase(self.now_ms) == "Running" and pod.deleting_ms is None
        }
        return UsageSample(self.now_ms, usages, self.total_load(), self.queue)

    # -- inside ------------------------------------------------------------------------------------------------------

    @property
    def _surge(self) -> int:
        """Pods beyond the replicas during a rollout; a workload without any may lack one pod instead."""
        return 0 if self.ordinals else 1

    def _served_per_pod(self, ready: int) -> float:
        arriving = self.total_load()
        if self.profile.capacity is None:
            return arriving / ready
        # Whoever has a queue works at full speed until it is empty.
        return self.profile.capacity if self.queue > 0 else min(arriving / ready, self.profile.capacity)

    def _serve(self, span_ms: int) -> None:
        capacity = (self.profile.capacity or 0.0) * len(self.ready_pods())
        self.queue = max(0.0, self.queue + (self.total_load() - capacity) * span_ms / 1000)

    def _usage(self, pod: SimulatedPod, share: float) -> SimulatedUsage:
        profile = self.profile
        cpu = profile.idle_cpu_milli + profile.cpu_milli_per_unit * share
        if self.now_ms < pod.running_ms + profile.startup_ms:
            cpu += profile.startup_cpu_milli
        factor = 1.0 + profile.noise * _jitter(pod.name, self.now_ms)
        memory = profile.idle_memory_bytes + profile.memory_bytes_per_unit * share
        return SimulatedUsage(min(profile.cpu_limit_milli, round(cpu * factor)), round(memory), share * factor)

    def _remove_gone(self) -> None:
        gone = [name for name, pod in self.pods.items() if pod.gone_ms is not None and pod.gone_ms <= self.now_ms]
        for name in gone:
            del self.pods[name]

    def _reconcile(self) -> None:
        """Bring pods to what is wanted, one rolling step at a time; called after every change."""
        alive = self.alive()
        old = [pod for pod in alive if pod.revision != self.revision]
        if not old and len(alive) == self.replicas:
            return
        surge = self._surge if old else 0
        missing = min(self.replicas - (len(alive) - len(old)), self.replicas + surge - len(alive))
        for _ in range(missing):
            if not self._create():
                break
        self._scale_down(old)

    def _scale_down(self, old: list[SimulatedPod]) -> None:
        alive = self.alive()
        current = [pod for pod in alive if pod.revision == self.revision]
        for pod in self._by_removal(current)[: max(0, len(current) - self.replicas)]:
            self._delete(pod)
        spare = len(self.ready_pods()) - max(0, self.replicas - (1 - self._surge))
        excess = len(alive) - self.replicas - self._surge
        for pod in self._by_removal(old):
            if pod.ready(self.now_ms):
                if spare <= 0 and excess <= 0:
                    break
                spare -= 1
            excess -= 1
            self._delete(pod)

    def _by_removal(self, pods: list[SimulatedPod]) -> list[SimulatedPod]:
        if self.ordinals:
            return sorted(pods, key=lambda pod: -int(pod.name.rpartition("-")[2]))
        return sorted(pods, key=lambda pod: (pod.ready(self.now_ms), pod.phase(self.now_ms), -pod.created_ms))

    def _create(self) -> bool:
        name = self._free_name()
        if name is None:
            return False
        running = self.now_ms + self.profile.schedule_ms
        ready = running + self.profile.ready_ms
        self.pods[name] = SimulatedPod(name, self.revision, self.now_ms, running, ready)
        return True

    def _free_name(self) -> str | None:
        if self.ordinals:
            # A terminating pod holds its ordinal until it is gone.
            names = (f"{self.name}-{ordinal}" for ordinal in range(self.replicas))
            return next((name for name in names if name not in self.pods), None)
        while True:
            self._serial += 1
            name = f"{self.name}-{self.revision}-{short_hash(f'{self.name}/{self._serial}', 5)}"
            if name not in self.pods:
                return name

    def _delete(self, pod: SimulatedPod) -> None:
        if pod.deleting_ms is None:
            pod.deleting_ms, pod.gone_ms = self.now_ms, self.now_ms + self.profile.stop_ms


def _jitter(name: str, time_ms: int) -> float:
    """A number in [-1, 1] that is the same in every run."""
    return zlib.crc32(f"{name}@{time_ms}".encode()) / 0x7FFFFFFF - 1.0


def short_hash(text: str, length: int) -> str:
    """Return so many letters as names of pods carry them, the same in every run."""
    letters = "bcdfghjklmnpqrstvwxz2456789"
    number = zlib.crc32(text.encode())
    return "".join(letters[(number // len(letters) ** place) % len(letters)] for place in range(length))


ANNOTATION: Final = "fleethpa.io/simulation"
_TYPES: Final = ("Pods", "Object", "External")


@dataclass(frozen=True, slots=True)
class SimulatedSeries:
    """A metric that the workload's environment offers.

    By its type it is a pod's share of the load (Pods), the whole load (Object), or the queue (External).
    """

    type: str
    name: str
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

    Raises ValueError: Not YAML, or a field is unknown; the message names it.
    """
    try:
        document = parse_yaml(text) or {}
    except YamlTextError as error:
        raise ValueError(f"annotation {ANNOTATION} is not YAML: {error}") from error
    if not isinstance(document, dict) or not document.keys() <= {"load", "pod", "metrics"}:
        raise ValueError(f"annotation {ANNOTATION}: only load, pod and metrics are known")
    series = tuple(_series(entry) for entry in document.get("metrics") or ())
    try:
        profile = PodProfile(**(document.get("pod") or {}))
    except TypeError as error:
        raise ValueError(f"annotation {ANNOTATION}: pod: {error}") from error
    return Simulation(parse_load(document.get("load", 0)), profile, series)


def _series(entry: dict[str, Any]) -> SimulatedSeries:
    kind, described = entry.get("type", ""), entry.get("object") or {}
    if kind not in _TYPES or "name" not in entry:
        raise ValueError(f"annotation {ANNOTATION}: metric {entry} needs a name and type Pods, Object or External")
    labels = dict(entry.get("labels") or {})
    return SimulatedSeries(kind, entry["name"], described.get("kind", ""), described.get("name", ""), labels)
