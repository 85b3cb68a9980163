"""What upstream's metrics clients make of a metrics API's answer: values per pod, or an error text.

The answer is the wire form that the observer made of the API's JSON (`reconciler.core.metricanswers`).
Source: upstream `metrics/client.go`, v1.37.1.
"""

from typing import Final, Literal

from schemas.kubernetes.gotimes import ZERO_TIME_MS
from schemas.samples import MetricAnswer
from streams.hpa.gofloat import wrap64
from streams.hpa.observation import ExternalSamples, MetricFailure, MetricReading, ObjectSample, pod_samples

UpstreamApi = Literal["resource", "custom", "external"]

SERVED_BY: Final[dict[str, UpstreamApi]] = {
    "resource": "resource",
    "pods": "custom",
    "object": "custom",
    "external": "external",
}
"""Which metrics API answers a query, as error messages name it."""


def fetch_failure(api: UpstreamApi, message: str) -> MetricFailure:
    """Give the error of a request that the API answered with an error; `message` is that of the answer's Status."""
    return MetricFailure(f"unable to fetch metrics from {api} metrics API: {message}")


def empty_failure(api: UpstreamApi) -> MetricFailure:
    """Give the error of an answer without items."""
    return MetricFailure(f"no metrics returned from {api} metrics API")


def compile_answer(answer: MetricAnswer, resource: str = "", container: str = "") -> MetricReading:
    """Turn a metrics API's answer into what a calculation takes.

    `resource` and `container`: what a Resource or ContainerResource metric asks of the answer; without a container
    the values of a pod's containers are summed. The last item of a pod wins. A time of 0 is one that the API did not
    give, which upstream reads as Go's zero time.
    """
    if answer.error is not None:
        return fetch_failure(SERVED_BY[answer.api], answer.error)
    if answer.api == "resource":
        return _of_usages(answer, resource, container)
    if answer.api == "object":
        return ObjectSample(answer.milli, answer.time or ZERO_TIME_MS)
    if answer.api == "pods":
        if not answer.values:
            return empty_failure("custom")
        return pod_samples(
            {value.pod: (value.milli, value.time or ZERO_TIME_MS, value.window_ms) for value in answer.values}
        )
    if not answer.items:
        return empty_failure("external")
    times = [time_ms or ZERO_TIME_MS for _, time_ms in answer.items]
    return ExternalSamples(tuple([milli for milli, _ in answer.items]), min(times), max(times))


def _of_usages(answer: MetricAnswer, resource: str, container: str) -> MetricReading:
    """Read the values of one resource. A pod whose item lacks it (no containers, or one without it) is absent."""
    if not answer.usages:
        return empty_failure("resource")
    samples: dict[str, tuple[int, int, int]] = {}
    for usage in answer.usages:
        containers = usage.containers
        if container:
            milli = _of_container(containers, resource, container)
        elif len(containers) == 1:
            milli = containers[0][1].get(resource)
        else:
            milli = _of_pod(containers, resource)
        if milli is not None:
            samples[usage.pod] = (milli, usage.time or ZERO_TIME_MS, usage.window_ms)
    return pod_samples(samples)


def _of_pod(containers: list[tuple[str, dict[str, int]]], resource: str) -> int | None:
    """Sum over all containers; a container without the resource makes the pod absent."""
    if not containers:
        return None
    total = 0
    for _, usage in containers:
        milli = usage.get(resource)
        if milli is None:
            return None
        total += milli
    return wrap64(total)


def _of_container(containers: list[tuple[str, dict[str, int]]], resource: str, container: str) -> int | None:
    """Read the first container of that name, also where a later one has the resource and it does not."""
    for name, usage in containers:
        if name == container:
            return usage.get(resource)
    return None
