"""What another version of Kubernetes would have decided, from recorded evaluations."""

from typing import Any

import pytest
from msgspec import structs

from schemas.keys import HpaId
from schemas.observed import Container
from streams.analysis.upgradepreview import SEVERAL, Preview, UpgradeReader, differing
from streams.history.evaluations import Evaluated, events
from streams.hpa.autoscaler import compile_autoscaler
from streams.hpa.observation import ContainerRequests, ObjectSample, PodTemplate
from streams.hpa.rules import CURRENT, RULES, rules_of
from streams.partition import Partition
from streams.state.inputs import EvaluationInputs
from tests.unit.state.test_cluster_version import TEN_PERCENT_ABOVE, decided, observed

HPA = HpaId("eu", "shop", "web")


def recorded(version: str = "v1.32.4") -> list[EvaluationInputs]:
    """Evaluations of an HPA 10 % above its target, in a cluster of this version."""
    log = observed(version)
    decided(log)
    found = events(Partition.empty(0), log.records, lambda hpa: hpa == HPA)
    return [each.inputs for each in found if isinstance(each, Evaluated)]


def previewed(minor: int, *inputs: EvaluationInputs) -> Preview:
    reader = UpgradeReader(HPA, rules_of(minor))
    for each in inputs or recorded():
        reader.add(each)
    return reader.preview()


def test_the_first_decision_that_differs_names_its_rule() -> None:
    found = previewed(33)

    assert found.first is not None
    assert (found.first.current, found.first.recorded, found.first.other) == (2, 3, 2)
    assert found.first.rule == "tolerance_is_band"
    assert found.applied == {"tolerance_is_band": 1}
    assert len(TEN_PERCENT_ABOVE) == found.first.current


def test_an_upgrade_that_changes_no_decision_says_so() -> None:
    found = previewed(31)

    assert (found.first, found.applied, found.findings) == (None, {}, [])
    assert found.evaluations > 0


def test_how_often_a_metric_was_at_the_edge_is_found_before_the_upgrade() -> None:
    assert [each.text for each in previewed(33).findings] == [
        "evaluations with a metric exactly at the edge of the tolerance: 1"
    ]


def test_another_tolerance_has_another_edge() -> None:
    inputs = [structs.replace(each, settings=structs.replace(each.settings, tolerance=0.2)) for each in recorded()]

    assert previewed(33, *inputs).findings == []


@pytest.mark.parametrize(
    ("target", "found"),
    [
        pytest.param({"type": "Utilization", "averageUtilization": 50}, True, id="a share of what pods request"),
        pytest.param({"type": "AverageValue", "averageValue": "50m"}, False, id="no requests needed"),
    ],
)
def test_sidecars_are_found_where_requests_count_also_without_a_request(target: dict[str, Any], found: bool) -> None:
    last = recorded("v1.28.1")[-1]
    template = PodTemplate(
        [ContainerRequests("main", {"cpu": "100m"})], init_containers=[ContainerRequests("mesh", {}, sidecar=True)]
    )
    rows = tuple(structs.replace(row, template=template) for row in last.observation.pods.rows)
    spec = last.spec | {"metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]}
    inputs = structs.replace(
        last,
        spec=spec,
        autoscaler=compile_autoscaler({"metadata": {"name": "web", "namespace": "shop"}, "spec": spec}),
        observation=structs.replace(last.observation, pods=type(last.observation.pods)(rows)),
    )

    texts = [each.text for each in previewed(29, inputs).findings if each.rule == "sidecars_request"]
    expected = ["its pods have sidecar containers, each of which needs a request: web-0, web-1"]
    assert texts == (expected if found else [])


def test_rules_that_differ_come_in_the_order_of_their_versions() -> None:
    found = differing(rules_of(32), CURRENT)

    assert found[0] == "tolerance_is_band"
    assert [RULES[name].since for name in found] == sorted(RULES[name].since for name in found)
    assert SEVERAL not in RULES


def _with(inputs: EvaluationInputs, **spec: Any) -> EvaluationInputs:
    return structs.replace(inputs, spec=inputs.spec | spec)


def test_a_tolerance_of_its_own_is_found_before_it_acts() -> None:
    inputs = _with(recorded("v1.34.1")[-1], behavior={"scaleUp": {"tolerance": "50m"}, "scaleDown": {}})

    assert [each.text for each in previewed(35, inputs).findings] == ["it has a tolerance of its own: scaleUp 50m"]


@pytest.mark.parametrize(
    ("containers", "found"),
    [
        pytest.param([Container(name="other", requests={"cpu": "100m"})], True, id="the container is missing"),
        pytest.param([Container(name="main", requests={"cpu": "100m"})], False, id="it is there"),
    ],
)
def test_pods_without_the_named_container_are_found(containers: list[Container], found: bool) -> None:
    target = {"type": "Utilization", "averageUtilization": 50}
    metric = {"type": "ContainerResource", "containerResource": {"name": "cpu", "container": "main", "target": target}}
    last = recorded("v1.34.1")[-1]
    template = PodTemplate([ContainerRequests(each.name, each.requests) for each in containers])
    rows = tuple(structs.replace(row, template=template) for row in last.observation.pods.rows)
    pods = type(last.observation.pods)(rows)
    spec = last.spec | {"metrics": [metric]}
    inputs = structs.replace(
        last,
        spec=spec,
        autoscaler=compile_autoscaler({"metadata": {"name": "web", "namespace": "shop"}, "spec": spec}),
        observation=structs.replace(last.observation, pods=pods),
    )

    texts = [each.text for each in previewed(35, inputs).findings if each.rule == "container_must_exist"]
    expected = ["its selector matches pods without the container main: web-0, web-1"]
    assert texts == (expected if found else [])


def _of_template(template: PodTemplate, phase: str = "Running", **spec: Any) -> EvaluationInputs:
    last = recorded("v1.37.1")[-1]
    rows = tuple(structs.replace(row, template=template, phase=phase) for row in last.observation.pods.rows)
    whole = last.spec | spec
    answers = (ObjectSample(1_000),) if spec else last.observation.answers
    return structs.replace(
        last,
        spec=whole,
        autoscaler=compile_autoscaler({"metadata": {"name": "web", "namespace": "shop"}, "spec": whole}),
        observation=structs.replace(last.observation, pods=type(last.observation.pods)(rows), answers=answers),
    )


PLAIN = PodTemplate([ContainerRequests("main", {"cpu": "100m"})])
PER_POD = {"type": "AverageValue", "averageValue": "5"}
OBJECT = {
    "metric": {"name": "requests"},
    "describedObject": {"kind": "Ingress", "name": "web", "apiVersion": "networking.k8s.io/v1"},
    "target": PER_POD,
}


@pytest.mark.parametrize(
    ("inputs", "rule", "text"),
    [
        pytest.param(
            _of_template(PLAIN, "Succeeded"),
            "succeeded_ignored",
            "its selector matches pods that have succeeded, which no longer count: web-0, web-1",
            id="pods that have succeeded",
        ),
        pytest.param(
            _of_template(PodTemplate(PLAIN.containers, pod_requests={"cpu": "1"}, overhead={"cpu": "250m"})),
            "overhead_left_out",
            "the overhead of its pods no longer counts, so that utilization rises: web-0, web-1",
            id="an overhead",
        ),
        pytest.param(
            _of_template(PLAIN, metrics=[{"type": "Object", "object": OBJECT}]),
            "object_average_named",
            "messages call its Object metric by the object, and its status is written once for that",
            id="an Object metric with averageValue",
        ),
        pytest.param(
            _of_template(PodTemplate([ContainerRequests("main", {})], [ContainerRequests("mesh", {}, sidecar=True)])),
            "sidecars_named_first",
            "the error about a missing cpu request names the sidecar",
            id="a sidecar and a container without a request",
        ),
        pytest.param(_of_template(PLAIN), "", "", id="nothing of all that"),
    ],
)
def test_what_1_38_changes_is_found_before_it_acts(inputs: EvaluationInputs, rule: str, text: str) -> None:
    found = [tuple(each) for each in previewed(38, inputs).findings]

    assert found == ([(rule, text)] if rule else [])


def test_an_average_over_no_replicas_is_found() -> None:
    inputs = _of_template(PLAIN, metrics=[{"type": "Object", "object": OBJECT}])
    scale = structs.replace(inputs.observation.scale, status_replicas=0)
    empty = structs.replace(inputs, observation=structs.replace(inputs.observation, scale=scale))

    rules = [each.rule for each in previewed(38, empty).findings]
    assert rules == ["average_of_none_is_zero", "object_average_named"]
