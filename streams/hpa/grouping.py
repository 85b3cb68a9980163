"""Sort a target's pods into counted, not ready, missing and ignored, and sum what the formulas need of each group.

Sums are Python integers: where upstream wraps (int64) the caller wraps the total, which gives the same low 64 bits in
any order. Source: upstream `groupPods` (v1.37.1: a Succeeded pod is not ignored).
"""

from msgspec import Struct

from streams.hpa.autoscaler import ControllerSettings
from streams.hpa.observation import PodRow, PodSamples, TargetPods
from streams.hpa.requests import RequestTable


class MetricError(Exception):
    """The calculation of a metric failed with this text, as upstream words it."""


NO_PODS_ERROR = "no pods returned by selector while calculating replica count"
NO_SAMPLES_ERROR = "did not receive metrics for targeted pods (pods might be unready)"


class Groups(Struct, frozen=True, gc=False):
    """Counts and sums of the groups. Requests are 0 where no request table was given."""

    ready: int
    ready_milli: int
    ready_request: int
    missing: int
    missing_request: int
    unready: int
    unready_request: int
    ignored: int
    removed: int
    """Samples of ignored and unready pods: they leave the map of samples."""
    removed_milli: int
    strays: int
    """Samples of no listed pod: they stay in the map."""


def group(
    pods: TargetPods,
    answer: PodSamples,
    cpu: bool,
    requests: RequestTable | None,
    settings: ControllerSettings,
    now_ms: int,
) -> Groups:
    """Group `pods` by the samples of one metric.

    `cpu` (resource exactly `cpu`, whole pod or container) makes readiness and age count.

    Raises MetricError: no pods, or no sample is left to calculate with.
    """
    if not pods.rows:
        raise MetricError(NO_PODS_ERROR)
    if _all_count(pods, answer, cpu, settings, now_ms):
        return _of_all(pods, answer, requests)
    return group_by_pod(pods, answer, cpu, requests, settings, now_ms)


def _all_count(pods: TargetPods, answer: PodSamples, cpu: bool, settings: ControllerSettings, now_ms: int) -> bool:
    """Tell whether the samples are those of the active pods, one each, and all of them count."""
    samples = answer.samples
    if not samples or len(samples) != len(pods.active) or not all(map(samples.__contains__, pods.active_names)):
        return False
    return not cpu or pods.are_settled(settings.cpu_initialization_period_ms, now_ms)


def _of_all(pods: TargetPods, answer: PodSamples, requests: RequestTable | None) -> Groups:
    """Group without looking at each pod: the sums are known."""
    active_request, pending_request = (0, 0) if requests is None else (requests.active_total, requests.pending_total)
    ready, pending = len(pods.active), len(pods.pending)
    ignored = len(pods.ignored)
    return Groups(ready, answer.total_milli, active_request, 0, 0, pending, pending_request, ignored, 0, 0, 0)


def group_by_pod(
    pods: TargetPods,
    answer: PodSamples,
    cpu: bool,
    requests: RequestTable | None,
    settings: ControllerSettings,
    now_ms: int,
) -> Groups:
    """Do what `group` does, pod by pod. Raises MetricError: no sample is left to calculate with."""
    samples = answer.samples
    removed, removed_milli = _inactive(pods, samples)
    ready = ready_milli = ready_request = missing = missing_request = unready = unready_request = 0
    wanted = requests.active if requests is not None and not requests.error else (0,) * len(pods.active)
    init_ms, delay_ms = settings.cpu_initialization_period_ms, settings.initial_readiness_delay_ms
    for pod, request in zip(pods.active, wanted, strict=True):
        sample = samples.get(pod.name)
        if sample is None:
            missing += 1
            missing_request += request
        elif cpu and is_unready(pod, sample, init_ms, delay_ms, now_ms):
            unready += 1
            unready_request += request
            removed += 1
            removed_milli += sample[0]
        else:
            ready += 1
            ready_milli += sample[0]
            ready_request += request
    pending = len(pods.pending)
    in_map = len(samples) - removed
    if not in_map:
        raise MetricError(NO_SAMPLES_ERROR)
    return Groups(
        ready,
        ready_milli,
        ready_request,
        missing,
        missing_request,
        unready + pending,
        unready_request + (requests.pending_total if requests is not None else 0),
        len(pods.ignored),
        removed,
        removed_milli,
        in_map - ready,
    )


def _inactive(pods: TargetPods, samples: dict[str, tuple[int, int, int]]) -> tuple[int, int]:
    """Count and sum the samples of ignored and pending pods."""
    removed = total = 0
    for pods_out in (pods.ignored, pods.pending):
        for pod in pods_out:
            sample = samples.get(pod.name)
            if sample is not None:
                removed += 1
                total += sample[0]
    return removed, total


def is_unready(pod: PodRow, sample: tuple[int, int, int], init_ms: int, delay_ms: int, now_ms: int) -> bool:
    """Tell whether a running pod's cpu sample does not count yet. Unknown readiness is not False; bounds are strict."""
    ready, start_ms = pod.ready, pod.start_ms
    if ready is None or start_ms is None:
        return True
    if start_ms + init_ms > now_ms:
        return ready == "False" or sample[1] < pod.ready_at_ms + sample[2]
    return ready == "False" and start_ms + delay_ms > pod.ready_at_ms
