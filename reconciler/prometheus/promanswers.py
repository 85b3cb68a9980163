"""The answers that are made of a Prometheus' own: those that prometheus-adapter would make.

Source: prometheus-adapter v0.12.0, pkg/custom-provider/{provider,series_registry}.go, pkg/external-provider and
pkg/resourceprovider. Where an object has several series the last one counts, and NaN is 0, except for External metrics.
A number that cannot be a quantity in milli (NaN of an External metric, an infinity, beyond 64 bits) is an error here:
the answer of the adapter then depends on the processor that it runs on.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Final

import msgspec
from msgspec import Raw, Struct, structs

from reconciler.core.metricanswers import failed
from reconciler.prometheus.promrules import PODS, ObjectResource, ResourceRules
from schemas.answers import MetricAnswer, PodUsage, Query, in_columns, pod_value

_I64: Final = 2**63


class PromSample(Struct, frozen=True, gc=False):
    """One series of an instant vector. `value`: time in seconds, and the number as text; None: a native histogram."""

    metric: dict[str, str] = {}
    value: tuple[float, str] | None = None

    def __str__(self) -> str:
        labels = ",".join(f'{name}="{value}"' for name, value in sorted(self.metric.items()))
        return f"{{{labels}}}"

    @property
    def number(self) -> float:
        """Its number; NaN for a histogram. Raises ValueError: it cannot be read."""
        return math.nan if self.value is None else float(self.value[1])

    @property
    def time_ms(self) -> int:
        """When the query was evaluated, by the clock of the Prometheus."""
        return 0 if self.value is None else max(0, round(self.value[0] * 1000))


class _Data(Struct, frozen=True, rename="camel"):
    result_type: str
    result: Raw = Raw(b"[]")


class _Answer(Struct, frozen=True, rename="camel"):
    status: str
    data: Raw = Raw(b"null")
    error_type: str = ""
    error: str = ""


class PromResult(Struct, frozen=True):
    """What a query gave: its type (`vector`, `scalar`, …) and its series; those of another type are not read."""

    type: str
    samples: list[PromSample] = []


_ANSWER = msgspec.json.Decoder(_Answer)


def stated_error(body: bytes) -> str:
    """The error that a body states, such as `bad_data: …`; empty: it states none."""
    try:
        answer = _ANSWER.decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return ""
    return f"{answer.error_type}: {answer.error}" if answer.status == "error" else ""


def read_result(body: bytes) -> PromResult:
    """The result of an instant query. Raises ValueError: the body is not one."""
    try:
        return _result(body)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _result(body: bytes) -> PromResult:
    data = msgspec.json.decode(_ANSWER.decode(body).data, type=_Data)
    if data.result_type == "scalar":
        value = msgspec.json.decode(data.result, type=tuple[float, str])
        return PromResult(data.result_type, [PromSample(value=value)])
    if data.result_type != "vector":
        return PromResult(data.result_type)
    return PromResult(data.result_type, msgspec.json.decode(data.result, type=list[PromSample]))


def read_names(body: bytes) -> list[str]:
    """The values of a label. Raises ValueError: the body is not a list of them."""
    try:
        return sorted(msgspec.json.decode(_ANSWER.decode(body).data, type=list[str]))
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def milli_of(number: float) -> int | None:
    """A number in milli, cut off toward zero as the adapter does; None: it cannot be a quantity."""
    scaled = number * 1000.0
    return None if math.isnan(scaled) or abs(scaled) >= _I64 else int(scaled)


def _milli_or_zero(number: float) -> int | None:
    return 0 if math.isnan(number) else milli_of(number)


def not_found(metric: str, of: str, why: str) -> str:
    """The adapter's error for a metric that it does not have, and why it has none.

    Source: custom-metrics-apiserver pkg/provider/errors.go.
    """
    return f"the server could not find the metric {metric} for {of} ({why})"


def _values(result: PromResult, label: str) -> dict[str, float]:
    """Object → number; of several series of one object the last counts."""
    return {sample.metric.get(label, ""): sample.number for sample in result.samples}


def _wrong_type(result: PromResult, *right: str) -> str:
    return "" if result.type in right else f"the query gives a {result.type}, and must give a {' or a '.join(right)}"


def pod_answers(
    asked: Sequence[tuple[Query, Collection[str]]], result: PromResult, label: str, now_ms: int
) -> list[MetricAnswer]:
    """The answers to `pods` questions that one query asked together: per question the values of its pods, by name.

    A pod without a series, or whose number cannot be a quantity, is left out. Raises ValueError: one cannot be read.
    """
    if wrong := _wrong_type(result, "vector"):
        return [failed(query, wrong) for query, _ in asked]
    millis = {name: _milli_or_zero(number) for name, number in _values(result, label).items()}
    return [
        structs.replace(
            query,
            pods=in_columns(
                [pod_value(name, milli, now_ms) for name in sorted(names) if (milli := millis.get(name)) is not None]
            ),
        )
        for query, names in asked
    ]


def object_answer(
    query: Query, result: PromResult, label: str, name: str, resource: ObjectResource, now_ms: int
) -> MetricAnswer:
    """The answer to an `object` question. Raises ValueError: a number cannot be read."""
    if wrong := _wrong_type(result, "vector"):
        return failed(query, wrong)
    number = _values(result, label).get(name)
    if number is None:
        why = f"no series has {label}={name}" if result.samples else "the query gives no series"
        return failed(query, not_found(query.metric, f"{resource} {name}", why))
    milli = _milli_or_zero(number)
    if milli is None:
        return failed(query, f"the value {number:g} of metric {query.metric} is not a quantity")
    return structs.replace(query, milli=milli, time=now_ms)


def external_answer(query: Query, result: PromResult) -> MetricAnswer:
    """The answer to an `external` question, one value per series. Raises ValueError: a number cannot be read."""
    if wrong := _wrong_type(result, "vector", "scalar"):
        return failed(query, wrong)
    items = []
    for sample in result.samples:
        milli = milli_of(sample.number)
        if milli is None:
            return failed(query, f"the value {sample.number:g} of series {sample} is not a quantity")
        items.append((milli, sample.time_ms))
    return structs.replace(query, items=items)


def usage_answers(
    asked: Sequence[tuple[Query, Collection[str]]], cpu: PromResult, memory: PromResult, rules: ResourceRules
) -> list[MetricAnswer]:
    """The answers to `resource` questions: the pods that have both CPU and memory.

    Raises ValueError: a number cannot be read.
    """
    if wrong := _wrong_type(cpu, "vector") or _wrong_type(memory, "vector"):
        return [failed(query, wrong) for query, _ in asked]
    cpus = _containers(cpu, rules.cpu.labels.of(PODS), rules.cpu_container)
    memories = _containers(memory, rules.memory.labels.of(PODS), rules.memory_container)
    both = cpus.keys() & memories
    usages = {name: _usage(name, cpus[name], memories[name], rules.window_ms) for name in both}
    return [
        structs.replace(query, pods=in_columns([usages[name] for name in sorted(names) if name in usages]))
        for query, names in asked
    ]


_Containers = Mapping[str, tuple[int, int]]
"""Container → what it uses in milli, and the time."""


def _containers(result: PromResult, pod: str, container: str) -> dict[str, dict[str, tuple[int, int]]]:
    usage: dict[str, dict[str, tuple[int, int]]] = {}
    for sample in result.samples:
        number = sample.number
        milli = milli_of(0.0 if math.isnan(number) else max(0.0, number))
        if milli is not None:
            pods = usage.setdefault(sample.metric.get(pod, ""), {})
            pods[sample.metric.get(container, "")] = (milli, sample.time_ms)
    return usage


def _usage(name: str, cpu: _Containers, memory: _Containers, window_ms: int) -> PodUsage:
    """A container that has only one of the two uses nothing of the other."""
    containers = [
        (each, {"cpu": cpu.get(each, (0, 0))[0], "memory": memory.get(each, (0, 0))[0]})
        for each in sorted(cpu.keys() | memory.keys())
    ]
    earliest = min(time_ms for _, time_ms in (*cpu.values(), *memory.values()))
    return PodUsage(name, earliest, window_ms, containers)
