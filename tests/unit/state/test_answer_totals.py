"""The sum of a packed answer gives the groups that its samples give, wherever it is taken."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from schemas.answers import MetricAnswer, PodUsage, PodValue, packed
from schemas.codec import encode
from streams.hpa.autoscaler import RAW_AVERAGE, UTILIZATION, MetricSpec
from streams.hpa.metrics import grouped, grouped_total
from streams.hpa.observation import ContainerRequests, PodRow, PodSamples, PodTemplate, TargetPods
from streams.state.clustersettings import effective
from streams.state.gather import MetricQuery, observe_metric, observe_total
from streams.state.namespace import Namespace
from streams.state.rows import AnswerRow, QueryKey

NOW_MS = 10_000_000
QUERY: QueryKey = ("resource", "app=web", "", "", "", "")
SETTINGS = effective({}, "east")
TEMPLATE = PodTemplate([ContainerRequests("main", {"cpu": "100m", "memory": "1Gi"}, False)], [], None, {})
NAMES = ("web-1", "web-2", "web-3")
TIMES = st.sampled_from((0, 1, NOW_MS - 60_000, NOW_MS - 30_000))
RESOURCES = st.sampled_from(("cpu", "memory"))
PODS = st.lists(
    st.builds(
        PodRow,
        st.sampled_from(NAMES),
        st.just(TEMPLATE),
        st.sampled_from(("Running", "Running", "Running", "Pending", "Failed")),
        st.sampled_from((1, NOW_MS - 10_000)),
        st.sampled_from(("True", "True", "False")),
        deleting=st.sampled_from((False, False, False, True)),
    ),
    max_size=3,
    unique_by=lambda pod: pod.name,
)


def usages(containers: tuple[str, ...]) -> st.SearchStrategy[list[PodUsage]]:
    amounts = st.fixed_dictionaries({"cpu": st.integers(0, 2**62), "memory": st.integers(0, 2**62)})
    each = st.tuples(
        st.sampled_from(NAMES), TIMES, st.lists(amounts, min_size=len(containers), max_size=len(containers))
    )
    return st.lists(
        each.map(lambda it: PodUsage(it[0], it[1], 15_000, list(zip(containers, it[2], strict=True)))), min_size=1
    )


def namespace_with(answer: MetricAnswer, given_ms: int = NOW_MS) -> Namespace:
    namespace = Namespace("east", "shop")
    namespace.answers[QUERY] = (AnswerRow(given_ms, "", encode(answer)),)
    return namespace


def taken(answer: MetricAnswer, pods: TargetPods, resource: str = "cpu") -> tuple[int, int, int] | None:
    query = MetricQuery("Resource", query=QUERY, resource=resource)
    return observe_total(namespace_with(answer), query, pods, SETTINGS, NOW_MS)


@given(usages(("main",)) | usages(("main", "proxy")), PODS, RESOURCES, st.booleans())
def test_a_sum_that_is_taken_gives_the_groups_of_the_samples(
    items: list[PodUsage], rows: list[PodRow], resource: str, is_utilization: bool
) -> None:
    answer = packed(MetricAnswer(api="resource", selector="app=web", usages=items))
    pods, query = TargetPods(tuple(rows)), MetricQuery("Resource", query=QUERY, resource=resource)
    how = UTILIZATION if is_utilization else RAW_AVERAGE
    spec = MetricSpec(type="Resource", calculation=how, name=resource, resource=resource, target=50)
    total = observe_total(namespace_with(answer), query, pods, SETTINGS, NOW_MS)
    if total is None:
        return
    samples, _ = observe_metric(namespace_with(answer), query, pods, SETTINGS, NOW_MS)
    assert isinstance(samples, PodSamples)
    assert total == (samples.total_milli, samples.oldest_ms, samples.newest_ms)
    groups = grouped_total(spec, pods, *total, SETTINGS.controller, NOW_MS)
    if groups is not None:
        whole = grouped(spec, samples, pods, SETTINGS.controller, NOW_MS)
        assert groups == structs.replace(whole, oldest_ms=samples.oldest_ms, newest_ms=samples.newest_ms)


PAIR = TargetPods(tuple(PodRow(name, TEMPLATE, "Running", 1, "True") for name in NAMES[:2]))
BOTH = [PodUsage(name, NOW_MS - age, 15_000, [("main", {"cpu": 7, "memory": 9})]) for age, name in enumerate(NAMES[:2])]


def test_the_sum_is_taken_in_whatever_order_the_pods_are_named() -> None:
    for items in (BOTH, BOTH[::-1]):
        answer = packed(MetricAnswer(api="resource", usages=items))
        assert taken(answer, PAIR) == (14, NOW_MS - 1, NOW_MS)
        assert taken(answer, PAIR, "memory") == (18, NOW_MS - 1, NOW_MS)


def test_the_sum_of_a_custom_metric_is_taken() -> None:
    values = [PodValue(name, 5, NOW_MS, 60_000) for name in NAMES[:2]]
    answer = packed(MetricAnswer(api="pods", metric="rps", values=values))
    assert taken(answer, PAIR, "") == (10, NOW_MS, NOW_MS)


def test_no_sum_is_taken_where_pods_or_values_are_to_be_looked_at() -> None:
    whole = MetricAnswer(api="resource", usages=BOTH)
    one_more = [*BOTH, PodUsage("web-3", NOW_MS, 15_000, [("main", {"cpu": 7, "memory": 9})])]
    two = [PodUsage(each.pod, each.time, 15_000, [*each.containers, ("proxy", {"cpu": 1})]) for each in BOTH]
    others = [
        whole,
        packed(structs.replace(whole, usages=BOTH[:1])),
        packed(structs.replace(whole, usages=one_more)),
        packed(structs.replace(whole, usages=[BOTH[0], BOTH[0]])),
        packed(structs.replace(whole, usages=two)),
        structs.replace(packed(whole), error="timeout"),
        packed(structs.replace(whole, usages=[structs.replace(BOTH[0], time=0), BOTH[1]])),
    ]
    assert [taken(each, PAIR) for each in others] == [None] * len(others)
    assert taken(packed(whole), TargetPods(())) is None
    assert taken(packed(whole), PAIR, "nvidia.com/gpu") is None
    query = MetricQuery("Resource", query=QUERY, resource="cpu")
    old = namespace_with(packed(whole), NOW_MS - 2 * SETTINGS.sync_period_ms - 1)
    assert observe_total(old, query, PAIR, SETTINGS, NOW_MS) is None


def test_damaged_columns_are_left_to_the_reader_of_each_pod() -> None:
    made = packed(MetricAnswer(api="resource", usages=BOTH))
    assert made.packed is not None
    for wrong in (
        structs.replace(made.packed, ages=[1]),
        structs.replace(made.packed, columns=[("main", "cpu", 1, [7])]),
        structs.replace(made.packed, columns=[]),
    ):
        assert taken(structs.replace(made, packed=wrong), PAIR) is None


def test_pods_that_are_not_ready_yet_are_grouped_one_by_one() -> None:
    young = TargetPods(tuple(PodRow(name, TEMPLATE, "Running", NOW_MS - 10_000, "True") for name in NAMES[:2]))
    spec = MetricSpec(type="Resource", calculation=UTILIZATION, name="cpu", resource="cpu", target=50)
    assert grouped_total(spec, young, 14, 1, 2, SETTINGS.controller, NOW_MS) is None
    memory = structs.replace(spec, name="memory", resource="memory")
    assert grouped_total(memory, young, 14, 1, 2, SETTINGS.controller, NOW_MS) is not None
