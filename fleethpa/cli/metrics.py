"""`fleethpa metrics`: what an HPA would see of a metric in a Prometheus, by one look-up and one query."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import click

from fleethpa.fleet.polledsources import read_source, source_option
from fleethpa.frame.errors import ANSWER_IS_NO, OK, SuggestingGroup, not_found, unreachable, usage
from fleethpa.frame.session import Session, command_options
from fleethpa.show.text import layout
from reconciler.clusters.answers import ClusterError
from reconciler.prometheus import promanswers
from reconciler.prometheus.connections import PromConnection, read_connections
from reconciler.prometheus.promanswers import PromResult
from reconciler.prometheus.promrules import ANY, NAMESPACES, PODS, ObjectResource, RulesError
from runtime.log import wall_clock_ms
from schemas.answers import MetricAnswer, Query
from schemas.kubernetes.quantity import format_milli
from schemas.kubernetes.selectors import Selector, SelectorError, parse_selector
from streams.hpa.observation import PodSamples, compile_answer


@click.group(cls=SuggestingGroup)
def metrics() -> None:
    """Try a metric of a Prometheus: see what an HPA would see."""


@metrics.command("try")
@click.argument("what", metavar="METRIC|EXPRESSION")
@source_option("prometheus")
@click.option("-C", "--cluster", default="*", metavar="NAME", help="Whose Prometheus.")
@click.option("-n", "--namespace", default="default", help="Namespace of the HPA.")
@click.option("--object", "described", metavar="KIND[.GROUP]/NAME", help="Try an Object metric of this object.")
@click.option("--selector", "selector_text", metavar="KEY=VALUE,…", help="The metric's own selector.")
@click.option("--expression", is_flag=True, help="Send the argument as it is, although it could be a metric's name.")
@command_options()
def try_(
    session: Session,
    /,
    what: str,
    prometheus: str | None,
    cluster: str,
    namespace: str,
    described: str | None,
    selector_text: str | None,
    expression: bool,
) -> int:
    """Ask a Prometheus for a metric as the observer would, and show what an HPA would see.

    METRIC is the name in an HPA: it is tried as an External metric and as a Pods metric of all pods of the namespace,
    or with --object as an Object metric. Anything else is an expression in PromQL, seen as an External metric. Exit 1
    if an HPA would get an error.
    """
    connection = read_source("prometheus", prometheus, read_connections).of(cluster) if prometheus else None
    if connection is None:
        raise usage(
            f"no Prometheus is known for cluster {cluster}",
            cause=f"--prometheus {prometheus or 'FILE'} names none." if prometheus else "--prometheus is not given.",
            next_step=f"fleethpa metrics try {shlex.quote(what)} --prometheus FILE -C NAME",
        )
    try:
        selector = parse_selector(selector_text or "")
    except SelectorError as error:
        raise usage(f"--selector {selector_text} cannot be used", cause=str(error)) from error
    if described and not all(described.partition("/")):
        raise usage(f"--object {described} cannot be used", cause="It must be KIND[.GROUP]/NAME, as Service/web.")
    trials = session.run(_tried(connection, what, namespace, described or "", selector, expression))
    if not trials:
        raise not_found(
            f"no metric {what}",
            cause=f"No rule of {connection.rules_file} makes it of a series that is there.",
            next_step=shlex.join(
                ["fleethpa", "metrics", "try", what, "--prometheus", str(prometheus), "-C", cluster, "--expression"]
            ),
        )
    for trial in trials:
        rows = [("Metric", trial.kind), ("Query", " ".join(trial.query.split())), ("HPA sees", trial.seen)]
        session.lines([*layout(rows), *(f"  {line}" for line in layout(trial.rows)), ""])
    return ANSWER_IS_NO if all(trial.failed for trial in trials) else OK


async def _tried(
    connection: PromConnection, what: str, namespace: str, described: str, selector: Selector, expression: bool
) -> list[MetricTrial]:
    trials = Trials(connection, namespace)
    try:
        if expression or not is_metric(what):
            return [await trials.expression(what)]
        if described:
            kind, _, name = described.partition("/")
            tries = [await trials.object(what, selector, kind, name)]
        else:
            tries = [await trials.external(what, selector), await trials.pods(what, selector)]
        return [each for each in tries if each is not None]
    except RulesError as error:
        raise usage(f"{connection.rules_file} cannot be used for {what}", cause=str(error)) from error
    except (ClusterError, ValueError) as error:
        raise unreachable(f"{connection.http.url} cannot be asked", cause=str(error)) from error
    finally:
        await trials.close()


# --- one look-up and one query of a Prometheus ------------------------------------------------------------------------


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
        from reconciler.prometheus.poller import SeriesNames
        from reconciler.prometheus.promclient import PromClient

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
        rule_and_series = await self._names.find(metric, self._rules.external)
        if rule_and_series is None:
            return None
        text = rule_and_series[0].of_external(rule_and_series[1], self._namespace, selector)
        return _external("External", text, metric, await self._client.query(text))

    async def pods(self, metric: str, selector: Selector) -> MetricTrial | None:
        """A Pods metric of all pods of the namespace that have it; None: no rule has it."""
        rule_and_series = await self._names.find(metric, self._rules.custom, PODS)
        if rule_and_series is None:
            return None
        text = rule_and_series[0].of_objects(rule_and_series[1], PODS, self._namespace, selector, [ANY])
        result, label = await self._client.query(text), rule_and_series[0].labels.of(PODS)
        names = {sample.metric[label] for sample in result.samples if label in sample.metric}
        query = Query(api="pods", metric=metric)
        (answer,) = promanswers.pod_answers([(query, names)], result, label, wall_clock_ms())
        reading = compile_answer(answer)
        pods = reading.samples if isinstance(reading, PodSamples) else {}
        total, count = sum(milli for milli, *_ in pods.values()), len(pods)
        seen = f"average {format_milli(total // count)} of {count} pods" if count else "no pod has the metric"
        rows = [(pod, format_milli(milli)) for pod, (milli, *_) in pods.items()]
        return MetricTrial("Pods", text, rows, answer.error or seen, bool(answer.error) or not count)

    async def object(self, metric: str, selector: Selector, group_kind: str, name: str) -> MetricTrial | None:
        """An Object metric; None: no rule has it."""
        root = group_kind == "Namespace"
        resource = NAMESPACES if root else guessed_resource(group_kind)
        rule_and_series = await self._names.find(metric, self._rules.custom, resource)
        if rule_and_series is None:
            return None
        name, inside = (self._namespace, "") if root else (name, self._namespace)
        text = rule_and_series[0].of_objects(rule_and_series[1], resource, inside, selector, [name])
        query = Query(api="object", metric=metric, group_kind=group_kind, object=name)
        result, label = await self._client.query(text), rule_and_series[0].labels.of(resource)
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
