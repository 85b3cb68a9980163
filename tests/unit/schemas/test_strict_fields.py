"""Strict field validation: unknown and duplicate fields of HPA manifests, in the API server's words."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.kubernetes.decoding import ListOf, Struct
from schemas.kubernetes.hpa import MOST, strict_errors
from schemas.kubernetes.manifests import load_manifests
from schemas.kubernetes.versions import HPA_V1, HPA_V2
from tests.kit.cli import Cli, Fleet

GOOD = """\
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  name: checkout
  namespace: shop
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: checkout}
  minReplicas: 2
  maxReplicas: 8
  metrics:
  - type: Resource
    resource: {name: cpu, target: {type: Utilization, averageUtilization: 60}}
"""
WRONG = GOOD + "  behaviour: {scaleDown: {stabilizationWindowSeconds: 0}}\n"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param("", "", [], id="a sound manifest"),
        pytest.param(
            "  metrics:",
            "  behaviour: {}\n  metrics:",
            ['unknown field "spec.behaviour" (did you mean "behavior"?)'],
            id="British spelling",
        ),
        pytest.param(
            "minReplicas",
            "minreplicas",
            ['unknown field "spec.minreplicas" (did you mean "minReplicas"?)'],
            id="the case counts",
        ),
        pytest.param(
            "averageUtilization",
            "averageUtilisation",
            ['unknown field "spec.metrics[0].resource.target.averageUtilisation" (did you mean "averageUtilization"?)'],
            id="within a list",
        ),
        pytest.param("kind: Horiz", "zebra: 1\nkind: Horiz", ['unknown field "zebra"'], id="at the root, like nothing"),
        pytest.param(
            "  metrics:",
            "  stabilizationWindowSeconds: 5\n  metrics:",
            [
                'unknown field "spec.stabilizationWindowSeconds" '
                "(it belongs in spec.behavior.scaleUp or spec.behavior.scaleDown)"
            ],
            id="in the wrong place",
        ),
        pytest.param(
            "  metrics:",
            "  targetCPUUtilizationPercentage: 5\n  metrics:",
            ['unknown field "spec.targetCPUUtilizationPercentage" (it is a field of autoscaling/v1)'],
            id="of another version",
        ),
        pytest.param(
            "autoscaling/v2",
            "autoscaling/v1",
            ['unknown field "spec.metrics" (it is a field of autoscaling/v2)'],
            id="v1 has no metrics",
        ),
        pytest.param(
            "  maxReplicas: 8", "  maxReplicas: 8\n  maxReplicas: 9", ['duplicate field "spec.maxReplicas"'], id="twice"
        ),
        pytest.param(
            "name: cpu, ",
            "name: cpu, name: memory, ",
            ['duplicate field "spec.metrics[0].resource.name"'],
            id="twice within a list",
        ),
        pytest.param(
            "  name: checkout\n",
            "  name: checkout\n  labels: {a: b, a: c}\n",
            ['duplicate field "metadata.labels.a"'],
            id="a label twice",
        ),
        pytest.param(
            "  name: checkout\n", "  name: checkout\n  labels: {any: thing}\n", [], id="labels have any names"
        ),
        pytest.param(
            "  name: checkout\n", "  name: checkout\n  managedFields: [{anything: 1}]\n", [], id="what is kept as it is"
        ),
        pytest.param(
            "  maxReplicas: 8",
            "  maxReplicas: 8\n  \u00a0minReplicas: 2",
            ['unknown field "spec.\\u00a0minReplicas" (did you mean "minReplicas"?)'],
            id="behind a blank that is none",
        ),
        pytest.param("  metrics:", "  behavior: null\n  metrics:", [], id="null is the absence of a value"),
        pytest.param(
            "kind: Horiz", "status: {currentReplicas: 1}\nkind: Horiz", [], id="kubectl get -o yaml has a status"
        ),
    ],
)
def test_unknown_and_duplicate_fields_are_named(old: str, new: str, expected: list[str]) -> None:
    [manifest] = load_manifests(GOOD.replace(old, new, 1))
    assert [error.string for error in strict_errors(manifest.body, manifest.duplicates)] == expected


def test_json_and_lists_name_the_field_from_the_objects_own_root() -> None:
    hpa = '{"kind":"HorizontalPodAutoscaler","apiVersion":"autoscaling/v2","spec":{"maxReplicas":1,"maxReplicas":2}}'
    listed = load_manifests(f'{{"kind":"List","items":[{{"kind":"ConfigMap","a":1,"a":2}},{hpa}]}}')
    assert [each.duplicates for each in listed] == [("a",), ("spec.maxReplicas",)]
    assert load_manifests(hpa)[0].duplicates == ("spec.maxReplicas",)


def test_a_merged_key_that_is_given_again_is_not_a_duplicate() -> None:
    [manifest] = load_manifests("base: &base {a: 1}\nkind: X\nuse:\n  <<: *base\n  a: 2\n")
    assert manifest.duplicates == ()
    assert manifest.body["use"] == {"a": 2}


def test_no_more_errors_are_listed_than_upstream_lists() -> None:
    [manifest] = load_manifests(GOOD)
    body = manifest.body | {f"field{number}": 1 for number in range(2 * MOST)}
    assert len(strict_errors(body)) == MOST


def _objects(shape: Any, value: Any) -> list[tuple[Struct, dict[str, Any]]]:
    """Every object within a decoded value, with its shape."""
    if isinstance(shape, ListOf):
        return [each for item in value or [] for each in _objects(shape.item, item)]
    if not isinstance(shape, Struct):
        return []
    below = [each for f in shape.fields if f.name in value for each in _objects(f.shape, value[f.name])]
    return [(shape, value), *below]


@given(at=st.integers(0, 30), name=st.text(min_size=1, max_size=12))
def test_a_field_that_no_object_has_is_found_wherever_it_is(at: int, name: str) -> None:
    [manifest] = load_manifests(GOOD)
    places = _objects(HPA_V2, manifest.body)
    shape, place = places[at % len(places)]
    known = name in {field.name for field in shape.fields}
    before = strict_errors(manifest.body)
    place[name] = None
    assert before == []
    assert [error.kind for error in strict_errors(manifest.body)] == ([] if known else ["unknown"])
    assert HPA_V1.fields  # the shapes that are walked are those that decode


# --- the verbs --------------------------------------------------------------------------------------------------------


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cli:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FLEETHPA_RUNTIME_DIR", str(tmp_path))
    fleet = Fleet()
    fleet.settle()
    fleet.checkpoint()
    Path("wrong.yaml").write_text(WRONG)
    return Cli(monkeypatch, fleet)


VERBS = (
    ["lint", "-f", "wrong.yaml"],
    ["apply", "-f", "wrong.yaml", "--dry-run", "--mode", "shadow"],
    ["diff", "-f", "wrong.yaml"],
    ["backtest", "-f", "wrong.yaml"],
    ["what-if", "east/shop/checkout", "-f", "wrong.yaml"],
)


@pytest.mark.parametrize("arguments", VERBS, ids=lambda arguments: arguments[0])
def test_every_verb_that_reads_manifests_refuses_unknown_fields(run: Cli, arguments: list[str]) -> None:
    result = run(*arguments)
    assert result.exit_code == (1 if arguments[0] == "lint" else 2)
    stated = 'strict decoding error: unknown field "spec.behaviour" (did you mean "behavior"?)'
    assert stated in (result.stdout if arguments[0] == "lint" else result.stderr)


@pytest.mark.parametrize("arguments", VERBS, ids=lambda arguments: arguments[0])
def test_unknown_fields_can_be_warnings_or_nothing(run: Cli, arguments: list[str]) -> None:
    warned, ignored = run(*arguments, "--validate=warn"), run(*arguments, "--validate=ignore")
    text = 'unknown field "spec.behaviour"'
    assert text in warned.stdout + warned.stderr
    assert "strict decoding error" not in warned.stdout + warned.stderr
    assert text not in ignored.stdout + ignored.stderr
    assert warned.exit_code == ignored.exit_code != 2


def test_a_changed_field_of_behavior_must_exist(run: Cli) -> None:
    result = run("what-if", "east/shop/checkout", "--set", "scaleDown.stabilisationWindowSeconds=60")
    assert result.exit_code == 2
    assert 'did you mean "stabilizationWindowSeconds"?' in result.stderr
