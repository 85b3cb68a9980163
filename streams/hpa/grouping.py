"""Sort a target's pods into counted, not ready, missing and ignored, and sum what the formulas need of each group.

Sums are Python integers: where upstream wraps (int64) the caller wraps the total, which gives the same low 64 bits in
any order, so that the groups of the parts of a target, added up, are the groups of the whole (`join`).
Source: upstream `groupPods` (v1.37.1: a Succeeded pod is not ignored).
"""

from collections.abc import Sequence

from msgspec import Struct, structs

from streams.hpa.autoscaler import ControllerSettings
from streams.hpa.gofloat import MAX_INT64, trunc_div, wrap64
from streams.hpa.observation import PodRow, PodSamples, RequestTable, TargetPods


class MetricError(Exception):
    """The calculation of a metric failed with this text, as upstream words it."""


NO_PODS_ERROR = "no pods returned by selector while calculating replica count"
NO_SAMPLES_ERROR = "did not receive metrics for targeted pods (pods might be unready)"


class Groups(Struct, array_like=True, frozen=True, gc=False, tag=True):
    """Counts and sums of the groups, each pod being in one. Requests are 0 where no request table was given."""

    ready: int
    ready_milli: int
    ready_request: int
    missing: int
    missing_request: int
    unready: int
    unready_request: int
    ignored: int
    strays: int
    """Samples of no listed pod: they stay in the map. The samples of ignored and unready pods leave it."""
    kept_milli: int
    """Sum of the samples in the map."""
    request_error: str = ""
    """Error of the request table, naming the first pod without a request."""
    missing_fallback: int = 0
    """What missing pods count as when scaling down from a utilization: the target, or 100 %, of their request each,
    truncated pod by pod."""
    oldest_ms: int | None = None
    newest_ms: int | None = None
    """Times of the samples, where these are not at hand (`streams.hpa.parts`); None: there is none."""

    def fault(self) -> str:
        """Return why nothing can be calculated; empty: it can."""
        if not self.ready + self.missing + self.unready + self.ignored:
            return NO_PODS_ERROR
        return self.request_error if self.ready + self.strays else NO_SAMPLES_ERROR


def group(
    pods: TargetPods,
    answer: PodSamples,
    cpu: bool,
    requests: RequestTable | None,
    settings: ControllerSettings,
    now_ms: int,
    target: int = 0,
) -> Groups:
    """Group `pods` by the samples of one metric.

    `cpu` (resource exactly `cpu`, whole pod or container) makes readiness and age count. `target`: of a utilization.
    """
    samples = answer.samples
    if (
        samples
        and len(samples) == len(pods.active)
        and all([pod.name in samples for pod in pods.active])
        and (not cpu or pods.are_settled(settings.cpu_initialization_period_ms, now_ms))
    ):
        # The samples are those of the active pods, one each, and all of them count.
        return of_all(pods, answer.total_milli, requests)
    return group_by_pod(pods, answer, cpu, requests, settings, now_ms, target)


def join(parts: Sequence[Groups]) -> Groups:
    """Add up the groups of the parts of a target, as if one controller had grouped all pods."""
    if len(parts) == 1:
        return parts[0]
    columns = zip(*map(structs.astuple, parts), strict=True)
    ready, ready_milli, ready_request, missing, missing_request, unready, unready_request, *others = columns
    ignored, strays, kept_milli, errors, fallback, oldest, newest = others
    return Groups(
        ready=sum(ready),
        ready_milli=sum(ready_milli),
        ready_request=sum(ready_request),
        missing=sum(missing),
        missing_request=sum(missing_request),
        unready=sum(unready),
        unready_request=sum(unready_request),
        ignored=sum(ignored),
        strays=sum(strays),
        kept_milli=sum(kept_milli),
        request_error=min(filter(None, errors), key=_order, default=""),
        missing_fallback=sum(fallback),
        oldest_ms=min([each for each in oldest if each is not None], default=None),
        newest_ms=max([each for each in newest if each is not None], default=None),
    )


def _order(request_error: str) -> tuple[int, str]:
    """Order errors by the pod that they name at their end, with web-2 before web-10: parts have no order of a list."""
    pod = request_error.rpartition(" ")[2]
    return len(pod), pod


def of_all(pods: TargetPods, total: int, requests: RequestTable | None) -> Groups:
    """Group without looking at each pod where each active pod has one sample, all of them count, and no other pod has
    one. `total`: the sum of the samples.
    """
    ready, pending, ignored = len(pods.active), len(pods.pending), len(pods.ignored)
    active_request, pending_request, error = 0, 0, ""
    if requests is not None:
        active_request, pending_request, error = requests.active_total, requests.pending_total, requests.error
    return Groups(ready, total, active_request, 0, 0, pending, pending_request, ignored, 0, total, error)


def group_by_pod(
    pods: TargetPods,
    answer: PodSamples,
    cpu: bool,
    requests: RequestTable | None,
    settings: ControllerSettings,
    now_ms: int,
    target: int = 0,
) -> Groups:
    """Do what `group` does, pod by pod."""
    percent = max(100, target)
    samples = answer.samples
    removed, removed_milli = _inactive(pods, samples)
    ready = ready_milli = ready_request = missing = missing_request = fallback = unready = unready_request = 0
    wanted = requests.active if requests is not None and not requests.error else (0,) * len(pods.active)
    init_ms, delay_ms = settings.cpu_initialization_period_ms, settings.initial_readiness_delay_ms
    for pod, request in zip(pods.active, wanted, strict=True):
        sample = samples.get(pod.name)
        if sample is None:
            missing += 1
            missing_request += request
            used = request * percent
            fallback += used // 100 if 0 <= used <= MAX_INT64 else trunc_div(wrap64(used), 100)
        elif cpu and is_unready(pod, sample, init_ms, delay_ms, now_ms):
            unready += 1
            unready_request += request
            removed += 1
            removed_milli += sample[0]
        else:
            ready += 1
            ready_milli += sample[0]
            ready_request += request
    return Groups(
        ready,
        ready_milli,
        ready_request,
        missing,
        missing_request,
        unready + len(pods.pending),
        unready_request + (requests.pending_total if requests is not None else 0),
        len(pods.ignored),
        len(samples) - removed - ready,
        answer.total_milli - removed_milli,
        "" if requests is None else requests.error,
        fallback,
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
    """Return whether a running pod's cpu sample does not count yet. Unknown readiness is not False; bounds are
    strict.
    """
    ready, start_ms = pod.ready, pod.start_ms
    if ready is None or start_ms is None:
        return True
    if start_ms + init_ms > now_ms:
        return ready == "False" or sample[1] < pod.ready_at_ms + sample[2]
    return ready == "False" and start_ms + delay_ms > pod.ready_at_ms
