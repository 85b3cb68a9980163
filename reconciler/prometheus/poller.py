"""Ask a cluster's Prometheus in place of its metrics APIs: at most one request per distinct query and sync period."""

import asyncio
import logging
from collections.abc import Collection, Coroutine, Iterable, Sequence
from contextlib import suppress
from typing import Any, Final

from msgspec import structs

from reconciler.clusters.answers import ApiError, ClusterError, NoAnswerError
from reconciler.clusters.nativehpas import Resource
from reconciler.core.metricanswers import failed
from reconciler.observer.polledsource import OpenSource, SourceContext
from reconciler.observer.sharedresults import SharedResults
from reconciler.observer.troubles import ReadProblem, problem_of
from reconciler.prometheus import promanswers, promlimits
from reconciler.prometheus.connections import PromConnection, PromConnections
from reconciler.prometheus.promanswers import not_found
from reconciler.prometheus.promclient import PromClient
from reconciler.prometheus.promrules import ANY, NAMESPACES, PODS, ObjectResource, QueryRule, RulesError, SeriesRule
from runtime.log import Clock
from schemas.answers import MetricAnswer, Query, is_root_scoped
from schemas.kubernetes.selectors import SelectorError, parse_selector

log = logging.getLogger(__name__)

LOOK_AGAIN_MS: Final = 60_000
"""Series names are looked up again this soon where a metric is asked for that none of them is."""
LOOK_EVERY_MS: Final = 600_000
"""How often they are looked up, and how old a series may be: the adapter's --metrics-relist-interval."""
FAILED_MS: Final = 15_000
"""How soon they are looked up again after a failure."""

AskedOfPods = tuple[Query, Collection[str]]
"""A question about pods, and the names of those."""


_NONE: list[str] = []


class SeriesNames:
    """The names of series that selectors match, looked up seldom. What was found stays while a look-up fails."""

    def __init__(self, client: PromClient, clock: Clock) -> None:
        self._client, self._clock = client, clock
        self._known: dict[str, tuple[int, list[str] | None, ClusterError | None]] = {}
        """Selector → when it was looked up last, the names found last, and why the last look-up found none."""
        self._metrics: dict[tuple[int, str], tuple[list[str], dict[str, str]]] = {}
        """Rule (by identity) and selector → the names, and the series of each metric that the rule makes of them."""
        self._looking = asyncio.Lock()

    async def find(
        self, metric: str, rules: Iterable[SeriesRule], resource: ObjectResource | None = None
    ) -> tuple[SeriesRule, str] | None:
        """The rule and the series of a metric, of several rules the last; None: none of the rules makes it of a series.

        Args:
            resource: what a custom metric is about. As in the adapter, rules without a label for it are left out.
        Raises ClusterError: a selector's names were never known, and cannot be looked up.
        """
        selectors: list[tuple[SeriesRule, str]] = []
        for rule in rules:
            with suppress(RulesError):
                selectors.append((rule, rule.selector(resource)))
        for oldest_ms in (LOOK_EVERY_MS, LOOK_AGAIN_MS):
            for rule, selector in reversed(selectors):
                series = self._series(rule, selector, await self._names(selector, oldest_ms)).get(metric)
                if series is not None:
                    return rule, series
        return None

    def _series(self, rule: SeriesRule, selector: str, names: list[str]) -> dict[str, str]:
        known = self._metrics.get((id(rule), selector))
        if known is None or known[0] is not names:
            known = self._metrics[id(rule), selector] = names, rule.metrics_of(names)
        return known[1]

    async def _names(self, selector: str, oldest_ms: int) -> list[str]:
        async with self._looking:
            now_ms = self._clock()
            looked_ms, names, error = self._known.get(selector, (0, None, None))
            if not 0 <= now_ms - looked_ms < (oldest_ms if error is None else FAILED_MS):
                try:
                    names, error = await self._client.names(selector, (now_ms - LOOK_EVERY_MS) // 1000), None
                except ClusterError as failure:
                    log.warning("series not looked up", extra={"selector": selector, "error": str(failure)})
                    error = failure
                self._known[selector] = now_ms, names, error
        if names is None and error is not None:
            raise error
        return _NONE if names is None else names


class PrometheusPoller:
    """Answers the questions for which a cluster's Prometheus is asked; what it cannot do becomes a trouble."""

    def __init__(self, connection: PromConnection, context: SourceContext) -> None:
        self.answers = connection.answers
        self._connection, self._rules, self._context = connection, connection.rules, context
        self._clock, self._client = context.clock, PromClient(connection)
        self._shared = SharedResults(self._client.query, self._clock, context.period_ms)
        self._names = SeriesNames(self._client, self._clock)

    async def ask(self, namespace: str, asked: Sequence[Query]) -> list[MetricAnswer]:
        """Answer the questions of a namespace; those about pods that are not known yet are left out."""
        pods = self._context.pods(namespace)
        about_pods = [query for query in asked if query.api in ("resource", "pods")]
        groups: dict[tuple[str, str, str], list[AskedOfPods]] = {}
        work: list[Coroutine[Any, Any, list[MetricAnswer]]] = []
        problems: list[ReadProblem] = []
        for query in about_pods if pods is not None else ():
            try:
                selector = parse_selector(query.selector)
            except SelectorError as error:
                work.append(_given(failed(query, str(error))))
                continue
            names = [name for name, pod in (pods or {}).items() if selector.matches(pod.labels)]
            groups.setdefault((query.api, query.metric, query.metric_selector), []).append((query, names))
        for (api, _, _), group in groups.items():
            asking = self._usages(namespace, group) if api == "resource" else self._of_pods(namespace, group)
            work.append(self._tried([query for query, _ in group], asking, problems))
        for query in asked:
            if query.api in ("object", "external"):
                asking = self._object(namespace, query) if query.api == "object" else self._external(namespace, query)
                work.append(self._tried([query], asking, problems))
        all_answers = [answer for answers in await asyncio.gather(*work) for answer in answers]
        self._context.note(namespace, problems[0] if problems else None)
        return all_answers

    async def close(self) -> None:
        """End the requests and close the connections."""
        await self._shared.close()
        await self._client.close()

    async def _tried(
        self, asked: Sequence[Query], made: Coroutine[Any, Any, list[MetricAnswer]], problems: list[ReadProblem]
    ) -> list[MetricAnswer]:
        """The answers; an error is the answer to all of the questions. `problems` takes those of the Prometheus.

        The adapter hides such an error from the HPA (`unable to fetch metrics`) and logs it as one from prometheus:
        here the HPA sees it, behind what the controller writes before the error of any metrics API.
        Source: prometheus-adapter v0.12.0, pkg/custom-provider/provider.go and pkg/external-provider.
        """
        try:
            return await made
        except (ClusterError, ValueError) as error:
            if not _is_of_the_question(error):
                problems.append(_problem(error))
            return [failed(query, f"prometheus: {error}") for query in asked]

    # --- questions ----------------------------------------------------------------------------------------------------

    async def _of_pods(self, namespace: str, group: Sequence[AskedOfPods]) -> list[MetricAnswer]:
        query, names = group[0][0], _all_names(group)
        named = await self._names.find(query.metric, self._rules.custom, PODS) if names else None
        if named is None:
            why = self._no_series() if names else "no pod matches the selector"
            return [failed(each, not_found(query.metric, "pods", why)) for each, _ in group]
        (rule, series), selector = named, parse_selector(query.metric_selector)
        text, shown = (rule.of_objects(series, PODS, namespace, selector, each) for each in (names, (ANY,)))
        result = await self._shared.result(text, namespace)
        answers = promanswers.pod_answers(group, result, rule.labels.of(PODS), self._clock())
        return _with_query(answers, shown)

    async def _usages(self, namespace: str, group: Sequence[AskedOfPods]) -> list[MetricAnswer]:
        rules, names = self._rules.resource, _all_names(group)
        assert rules is not None  # checked where the settings are read
        if not names:
            return [query for query, _ in group]

        def text(rule: QueryRule, container: str, pods: Sequence[str]) -> str:
            return rule.of_objects("", PODS, namespace, parse_selector(""), pods, [container])

        both = (rules.cpu, rules.cpu_container), (rules.memory, rules.memory_container)
        cpu, memory = await asyncio.gather(*(self._shared.result(text(*each, names), namespace) for each in both))
        answers = promanswers.usage_answers(group, cpu, memory, rules)
        return _with_query(answers, text(*both[0], (ANY,)))

    async def _object(self, namespace: str, query: Query) -> list[MetricAnswer]:
        root = is_root_scoped(query)
        try:
            resource = NAMESPACES if root else _described(await self._context.resource_of(query.group_kind))
        except NoAnswerError:
            return []  # the API server is away: the observer's own outage, as for the metrics APIs
        except ClusterError as error:
            return [failed(query, str(error))]
        name = namespace if root else query.object
        named = await self._names.find(query.metric, self._rules.custom, resource)
        if named is None:
            return [failed(query, not_found(query.metric, f"{resource} {name}", self._no_series()))]
        rule, series = named
        inside, selector = "" if root else namespace, parse_selector(query.metric_selector)
        text = rule.of_objects(series, resource, inside, selector, [name])
        result, label = await self._shared.result(text, namespace), rule.labels.of(resource)
        return _with_query([promanswers.object_answer(query, result, label, name, resource, self._clock())], text)

    async def _external(self, namespace: str, query: Query) -> list[MetricAnswer]:
        named = await self._names.find(query.metric, self._rules.external)
        if named is None:
            return [failed(query, not_found(query.metric, f"namespace {namespace}", self._no_series()))]
        text = named[0].of_external(named[1], namespace, parse_selector(query.metric_selector))
        return _with_query([promanswers.external_answer(query, await self._shared.result(text, namespace))], text)

    def _no_series(self) -> str:
        return f"no rule of {self._connection.rules_file} makes it of a series"


def _described(resource: Resource) -> ObjectResource:
    return ObjectResource(resource.plural, resource.kind.lower(), resource.group)


async def _given(answer: MetricAnswer) -> list[MetricAnswer]:
    return [answer]


def _all_names(group: Sequence[AskedOfPods]) -> list[str]:
    """The names of the pods of all questions; of too many for one query, the pattern that matches every pod."""
    names = sorted({name for _, each in group for name in each})
    return names if len(names) <= promlimits.NAMES.most else [ANY]


def _with_query(answers: Sequence[MetricAnswer], text: str) -> list[MetricAnswer]:
    return [structs.replace(answer, asked=" ".join(text.split())) for answer in answers]


def _is_of_the_question(error: Exception) -> bool:
    """Whether the Prometheus is well: a rule cannot be used for a question, or the query is one that it refuses."""
    return isinstance(error, RulesError) or (isinstance(error, ApiError) and error.status in (400, 404, 422))


def _problem(error: Exception) -> ReadProblem:
    return problem_of(error) if isinstance(error, ClusterError) else ReadProblem("failing", str(error))


def open_prometheus(connections: PromConnections) -> OpenSource:
    """The Prometheus of each cluster that has one, as a source that observers poll."""

    def opened(context: SourceContext) -> PrometheusPoller | None:
        connection = connections.of(context.cluster)
        return None if connection is None else PrometheusPoller(connection, context)

    return opened
