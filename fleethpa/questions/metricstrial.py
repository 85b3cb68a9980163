"""What an HPA would see of a metric in a Prometheus, before it is written: one look-up and one query."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from reconciler.clusters.prometheus import PromClient
from reconciler.core import promanswers
from reconciler.core.promanswers import PromResult
from reconciler.core.promrules import ANY, NAMESPACES, PODS, ObjectResource
from reconciler.core.promsettings import PromConnection
from reconciler.observer.prometheuspolls import SeriesNames
from runtime.log import wall_clock_ms
from schemas.answers import MetricAnswer, Query
from schemas.kubernetes.quantity import format_milli
from schemas.kubernetes.selectors import Selector

_METRIC: Final = re.compile(r"[\w.:|-]+")


@dataclass(frozen=True)
class MetricTrial:
    """What one type of metric would see. `rows`: an object or a series, and its value; `seen`: what an HPA makes of it,
    or why it gets nothing.
    """

    kind: str
    query: str
    rows: Sequence[tuple[str, str]]
    seen: str
    failed: bool = False


def is_metric(text: str) -> bool:
    """Whether a text is the name of a metric, as opposed to an expression."""
    return _METRIC.fullmatch(text) is not None


def guessed_resource(group_kind: str) -> ObjectResource:
    """The resource of a kind, by its name alone. Source: apimachinery meta/restmapper.go UnsafeGuessKindToResource."""
    kind, _, group = group_kind.partition(".")
    singular = kind.lower()
    if singular.endswith("s"):
        return ObjectResource(f"{singular}es", singular, group)
    return ObjectResource(f"{singular[:-1]}ies" if singular.endswith("y") else f"{singular}s", singular, group)


class Trials:
    """Tries metrics on one Prometheus, for HPAs of one namespace. Every method raises ClusterError: it cannot be asked,
    or refuses. Raises RulesError: a rule cannot be used for the question. Raises ValueError: an answer cannot be read.
    """

    def __init__(self, connection: PromConnection, namespace: str) -> None:
        self._rules, self._namespace = connection.rules, namespace
        self._client = PromClient(connection)
        self._names = SeriesNames(self._client, wall_clock_ms)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def expression(self, text: str) -> MetricTrial:
        """An expression as it is, seen as an External metric."""
        return _external("expression", text, "", await self._client.query(text))

    async def external(self, metric: str, selector: Selector) -> MetricTrial | None:
        """An External metric; None: no rule has it."""
        found = await self._names.find(metric, self._rules.external)
        if found is None:
            return None
        text = found[0].of_external(found[1], self._namespace, selector)
        return _external("External", text, metric, await self._client.query(text))

    async def pods(self, metric: str, selector: Selector) -> MetricTrial | None:
        """A Pods metric of all pods of the namespace that have it; None: no rule has it."""
        found = await self._names.find(metric, self._rules.custom, PODS)
        if found is None:
            return None
        text = found[0].of_objects(found[1], PODS, self._namespace, selector, [ANY])
        result, label = await self._client.query(text), found[0].labels.of(PODS)
        names = {sample.metric[label] for sample in result.samples if label in sample.metric}
        query = Query(api="pods", metric=metric)
        (answer,) = promanswers.pod_answers([(query, names)], result, label, wall_clock_ms())
        total = sum(each.milli for each in answer.values)
        count = len(answer.values)
        seen = f"average {format_milli(total // count)} of {count} pods" if count else "no pod has the metric"
        rows = [(each.pod, format_milli(each.milli)) for each in answer.values]
        return MetricTrial("Pods", text, rows, answer.error or seen, bool(answer.error) or not count)

    async def object(self, metric: str, selector: Selector, group_kind: str, name: str) -> MetricTrial | None:
        """An Object metric; None: no rule has it."""
        root = group_kind == "Namespace"
        resource = NAMESPACES if root else guessed_resource(group_kind)
        found = await self._names.find(metric, self._rules.custom, resource)
        if found is None:
            return None
        name, inside = (self._namespace, "") if root else (name, self._namespace)
        text = found[0].of_objects(found[1], resource, inside, selector, [name])
        query = Query(api="object", metric=metric, group_kind=group_kind, object=name)
        result, label = await self._client.query(text), found[0].labels.of(resource)
        answer = promanswers.object_answer(query, result, label, name, resource, wall_clock_ms())
        rows = [] if answer.error else [(f"{group_kind}/{name}", format_milli(answer.milli))]
        return MetricTrial(
            "Object", text, rows, answer.error or f"value {format_milli(answer.milli)}", bool(answer.error)
        )


def _external(kind: str, text: str, metric: str, result: PromResult) -> MetricTrial:
    answer: MetricAnswer = promanswers.external_answer(Query(api="external", metric=metric), result)
    if answer.error:
        return MetricTrial(kind, text, [], answer.error, True)
    if not answer.items:
        return MetricTrial(kind, text, [], "no metrics returned from external metrics API", True)
    rows = [(str(sample), format_milli(milli)) for sample, (milli, _) in zip(result.samples, answer.items, strict=True)]
    total = format_milli(sum(milli for milli, _ in answer.items))
    return MetricTrial(kind, text, rows, f"value {total}, the sum of {len(rows)} series")
