"""`lint` and `diff`: manifests checked without a cluster, and compared with what is in force."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from fleethpa.changes import lintrules, targetrules
from fleethpa.changes.lintrules import RULE_TEXTS
from fleethpa.changes.manifests import read_input
from fleethpa.changes.targetrules import fixed_replicas, give_up_replicas
from fleethpa.show.words import counted, sorted_spec
from tests.kit.cli import Cli, Fleet, hpa
from tests.kit.published import fits
from tests.lintreference import page

ROOT = Path(__file__).parents[3]

HPA_ = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler"}


def manifest(name: str = "checkout", **spec: Any) -> dict[str, Any]:
    """An HPA as users write it."""
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "checkout"}
    metrics = [resource("cpu", 60)]
    return {
        **HPA_,
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"scaleTargetRef": target, "minReplicas": 2, "maxReplicas": 20, "metrics": metrics} | spec,
    }


def annotated(name: str, value: str) -> dict[str, Any]:
    body = manifest()
    body["metadata"]["annotations"] = {f"fleethpa.io/{name}": value}
    return body


def resource(name: str, utilization: int) -> dict[str, Any]:
    target = {"type": "Utilization", "averageUtilization": utilization}
    return {"type": "Resource", "resource": {"name": name, "target": target}}


def deployment(resources: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    containers = [{"name": "main", "resources": {"requests": {"cpu": "1"}}}, {"name": "proxy", **(resources or {})}]
    pod = {"containers": containers} | spec.pop("pod", {})
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "checkout", "namespace": "shop"},
        "spec": {"template": {"spec": pod}} | spec,
    }


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cli:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FLEETHPA_RUNTIME_DIR", str(tmp_path))
    return Cli(monkeypatch)


def scaling(version: str, kind: str = "Deployment") -> dict[str, Any]:
    """An HPA with this reference."""
    return manifest(scaleTargetRef={"apiVersion": version, "kind": kind, "name": "checkout"})


def widgets(subresources: dict[str, Any]) -> dict[str, Any]:
    names = {"kind": "Widget", "plural": "widgets"}
    spec = {"group": "example.com", "names": names, "versions": [{"name": "v1", "subresources": subresources}]}
    kind = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
    return kind | {"metadata": {"name": "widgets.example.com"}, "spec": spec}


def elsewhere() -> dict[str, Any]:
    return deployment(WELL_LIMITED) | {"metadata": {"name": "checkout", "namespace": "other"}}


def of_container(name: str) -> dict[str, Any]:
    target = {"type": "AverageValue", "averageValue": "1"}
    return {"type": "ContainerResource", "containerResource": {"name": "cpu", "container": name, "target": target}}


def selecting() -> dict[str, Any]:
    return deployment(WELL_LIMITED, selector={"matchLabels": {"app": "checkout"}})


def labelled(
    kind: str = "Deployment",
    name: str = "exporter",
    *,
    app: str = "checkout",
    namespace: str = "shop",
    owned: bool = False,
) -> dict[str, Any]:
    """Another workload, whose pods have this label."""
    template = {"metadata": {"labels": {"app": app, "part": name}}, "spec": {"containers": [{"name": "main"}]}}
    spec: dict[str, Any] = {"template": template}
    if kind == "CronJob":
        spec = {"jobTemplate": {"spec": spec}}
    metadata: dict[str, Any] = {"name": name, "namespace": namespace} | ({"ownerReferences": [{}]} if owned else {})
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": spec}


def probed(**probes: Any) -> dict[str, Any]:
    """An HPA and its target, as one list; the first container has these probes."""
    target = deployment(WELL_LIMITED)
    target["spec"]["template"]["spec"]["containers"][0] |= probes
    return {"apiVersion": "v1", "kind": "List", "items": [manifest(), target]}


def limited(percent: int, request: str, limit: str) -> dict[str, Any]:
    """An HPA with this target, and a Deployment of one container."""
    resources = {"requests": {"cpu": request}} | ({"limits": {"cpu": limit}} if limit else {})
    target = deployment(pod={"containers": [{"name": "main", "resources": resources}]})
    return {"apiVersion": "v1", "kind": "List", "items": [manifest(metrics=[resource("cpu", percent)]), target]}


def of_namespace(name: str) -> dict[str, Any]:
    described = {"apiVersion": "v1", "kind": "Namespace", "name": name}
    target = {"type": "Value", "value": "10"}
    metric = {"metric": {"name": "requests"}, "describedObject": described, "target": target}
    return manifest(metrics=[{"type": "Object", "object": metric}])


OF_V1 = "autoscaling.alpha.kubernetes.io/metrics"


def scheduled(rule: str, zone: str = "UTC") -> dict[str, Any]:
    return annotated("schedule", json.dumps({"timeZone": zone, "rules": [rule], "otherwise": ["minReplicas=2"]}))


def as_v1(annotation: str) -> dict[str, Any]:
    body = manifest() | {"apiVersion": "autoscaling/v1"}
    del body["spec"]["metrics"]
    body["metadata"]["annotations"] = {OF_V1: annotation}
    return body


def written(*bodies: dict[str, Any]) -> str:
    Path("all.yaml").write_text("---\n".join(yaml.safe_dump(body) for body in bodies))
    return "all.yaml"


def own(kind: str, name: str = "checkout", **spec: Any) -> dict[str, Any]:
    """A FleetHPA or a CapacityGroup."""
    whole = manifest()["spec"] | {"clusters": [{"name": "east"}]}
    group = {"selector": {"matchLabels": {"app": "a"}}, "namespaces": ["shop"], "limit": {"replicas": 8}}
    body = (whole if kind == "FleetHPA" else group) | spec
    metadata = {"name": name} | ({"namespace": "shop"} if kind == "FleetHPA" else {})
    return {"apiVersion": "fleethpa.io/v1alpha1", "kind": kind, "metadata": metadata, "spec": body}


FALLBACK = "failureThreshold=3,replicas=6"
TARGET = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "other"}
WELL_LIMITED = {"resources": {"limits": {"cpu": "1"}}}


@pytest.mark.parametrize(
    ("bodies", "rules"),
    [
        pytest.param([manifest()], [], id="a sound HPA"),
        pytest.param([manifest(maxReplicas=1)], ["invalid"], id="what the API server refuses"),
        pytest.param([manifest(), manifest("again")], ["same-target"], id="two of one target"),
        pytest.param([annotated("fallback", "replicas=3")], ["invalid"], id="a fallback that cannot be read"),
        pytest.param([annotated("fallback", "failureThreshold=3,replicas=6")], [], id="a fallback"),
        pytest.param([annotated("fallback", f"{FALLBACK},behavior=currentReplicas,metric=cpu")], [], id="for a metric"),
        pytest.param([annotated("fallback", f"{FALLBACK},behavior=highest")], ["invalid"], id="an unknown behavior"),
        pytest.param([annotated("fallback", f"{FALLBACK},metric=queue")], ["invalid"], id="for an unknown metric"),
        pytest.param([scheduled("12-24 00:00-24:00 minReplicas=3")], [], id="a schedule"),
        pytest.param([scheduled("24.12. 00:00-24:00 minReplicas=3")], ["schedule"], id="a rule that cannot be read"),
        pytest.param([scheduled("daily 00:00-24:00 minReplicas=99")], ["schedule"], id="a rule that does not fit"),
        pytest.param([scheduled("daily 00:00-24:00 minReplicas=3", "Nowhere")], ["schedule"], id="an unknown zone"),
        pytest.param([annotated("schedule", "daily")], ["schedule"], id="a schedule that is none"),
        pytest.param([annotated("scale-down-block", "metric=cpu,above=80")], [], id="a scale-down block"),
        pytest.param([annotated("scale-down-block", "cpu")], ["invalid"], id="a block that cannot be read"),
        pytest.param([annotated("sync-period", "60s")], [], id="a sync period of its own"),
        pytest.param([annotated("sync-period", "60")], ["invalid"], id="a sync period without a unit"),
        pytest.param([annotated("budget", "exempted")], ["budget"], id="an exemption that is none"),
        pytest.param([manifest(minReplicas=20)], ["fixed-size"], id="no room between minimum and maximum"),
        pytest.param([manifest(metrics=[resource("cpu", 91)])], ["no-headroom"], id="a target just below the request"),
        pytest.param([manifest(metrics=[resource("cpu", 90)])], [], id="just reachable"),
        pytest.param(
            [manifest(metrics=[resource("cpu", 90)], behavior={"scaleUp": {"tolerance": "200m"}})],
            ["no-headroom"],
            id="not reachable with its own tolerance",
        ),
        pytest.param(
            [manifest(behavior={"scaleUp": {"selectPolicy": "Disabled"}})], ["never-up"], id="upwards switched off"
        ),
        pytest.param(
            [manifest(behavior={"scaleDown": {"selectPolicy": "Disabled"}})], ["never-down"], id="downwards off"
        ),
        pytest.param(
            [manifest(behavior={"scaleDown": {"stabilizationWindowSeconds": 0}})], ["no-window"], id="no window"
        ),
        pytest.param(
            [manifest(behavior={"scaleUp": {"stabilizationWindowSeconds": 0}})], [], id="no window upwards is usual"
        ),
        pytest.param(
            [manifest(metrics=[resource("cpu", 60), resource("cpu", 70)])], ["duplicate-metric"], id="a metric twice"
        ),
        pytest.param([manifest(metrics=[resource("memory", 60)])], ["memory-only"], id="memory alone"),
        pytest.param([manifest(metrics=[resource("memory", 60), resource("cpu", 60)])], [], id="memory beside cpu"),
        pytest.param([manifest(), deployment(WELL_LIMITED)], [], id="a target whose limits are its requests"),
        pytest.param([manifest(), deployment()], ["no-request"], id="a container without request"),
        pytest.param(
            [manifest(), deployment(pod={"resources": {"requests": {"cpu": "2"}}})], [], id="requests of the whole pod"
        ),
        pytest.param(
            [manifest(), deployment(WELL_LIMITED, pod={"initContainers": [{"name": "once"}]})],
            [],
            id="an init container that ends",
        ),
        pytest.param(
            [manifest(), deployment(WELL_LIMITED, pod={"initContainers": [{"name": "s", "restartPolicy": "Always"}]})],
            ["no-request"],
            id="a sidecar without request",
        ),
        pytest.param([manifest(), deployment(WELL_LIMITED, replicas=3)], ["fixed-replicas"], id="a fixed count"),
        pytest.param([scaling("extensions/v1beta1")], ["target-kind"], id="a group of long ago"),
        pytest.param([scaling("apps/v1", "deployment")], [], id="a kind in lower case, which upstream finds"),
        pytest.param([scaling("apps/v1", "DEPLOYMENT")], ["target-kind"], id="another case of the kind"),
        pytest.param([scaling("apps/v1", "ReplicationController")], ["target-kind"], id="a kind of another group"),
        pytest.param([scaling("apps/v1", "DaemonSet")], ["target-kind"], id="a kind without /scale"),
        pytest.param([scaling("example.com/v1", "Widget")], [], id="a custom resource, of which nothing is known"),
        pytest.param(
            [scaling("example.com/v1", "Widget"), widgets({})], ["target-kind"], id="a custom resource without scale"
        ),
        pytest.param(
            [scaling("example.com/v1", "Widget"), widgets({"scale": {}})], [], id="a custom resource with scale"
        ),
        pytest.param([manifest(), elsewhere()], ["target-elsewhere"], id="the target is in another namespace"),
        pytest.param([manifest(metrics=[of_container("app")]), deployment()], ["no-container"], id="no such container"),
        pytest.param([manifest(), deployment(WELL_LIMITED), labelled(), labelled("Job", "once")], [], id="no selector"),
        pytest.param([manifest(), selecting(), labelled()], ["shared-pods"], id="pods of another workload"),
        pytest.param([manifest(), selecting(), labelled("CronJob", "each")], ["shared-pods"], id="pods of a CronJob"),
        pytest.param([manifest(), selecting(), labelled(namespace="other")], [], id="in another namespace"),
        pytest.param([manifest(), selecting(), labelled(app="other")], [], id="pods with other labels"),
        pytest.param([manifest(), selecting(), labelled(owned=True)], [], id="a ReplicaSet of the Deployment"),
        pytest.param([probed(startupProbe={"failureThreshold": 40})], ["slow-start"], id="a long startupProbe"),
        pytest.param([probed(startupProbe={"failureThreshold": 30})], [], id="a startupProbe of 300 s"),
        pytest.param([probed(readinessProbe={"initialDelaySeconds": 301})], ["slow-start"], id="a long delay"),
        pytest.param([limited(150, "1", "1500m")], ["no-headroom"], id="150 % of a request whose limit is that"),
        pytest.param([limited(150, "1", "2")], [], id="150 % below the limit"),
        pytest.param([limited(95, "1", "")], [], id="no limit"),
        pytest.param([of_namespace("other")], ["described-namespace"], id="an Object metric of another Namespace"),
        pytest.param([of_namespace("shop")], [], id="an Object metric of its own Namespace"),
        pytest.param([as_v1("no json")], ["v1-annotation"], id="an annotation of v1 that is no JSON"),
        pytest.param([as_v1("[]")], [], id="an annotation of v1"),
        pytest.param(
            [manifest() | {"metadata": {"name": "checkout", "namespace": "shop", "annotations": {OF_V1: "[]"}}}],
            ["v1-annotation"],
            id="an annotation of v1 on an object of v2",
        ),
        pytest.param([own("FleetHPA"), own("CapacityGroup")], [], id="a sound FleetHPA and CapacityGroup"),
        pytest.param([own("FleetHPA", maxReplicas=1)], ["invalid"], id="a FleetHPA whose bounds contradict"),
        pytest.param([own("FleetHPA", clusters=[])], ["invalid"], id="a FleetHPA of no cluster"),
        pytest.param([own("FleetHPA", metrics=[resource("cpu", 91)])], ["no-headroom"], id="a rule on a FleetHPA"),
        pytest.param([manifest(), own("FleetHPA", "all")], ["same-target"], id="an HPA and a FleetHPA of one target"),
        pytest.param([own("CapacityGroup", limit={})], ["invalid"], id="a CapacityGroup without a limit"),
        pytest.param([own("CapacityGroup"), own("CapacityGroup")], ["same-name"], id="a CapacityGroup twice"),
        pytest.param([own("CapacityGroup", ""), own("CapacityGroup", "")], ["invalid"] * 2, id="two without names"),
    ],
)
def test_each_rule(run: Cli, bodies: list[dict[str, Any]], rules: list[str]) -> None:
    file = written(*bodies)
    done = run("lint", "-f", file, "-o", "json")
    items = fits("FindingList", done.stdout)["items"]
    assert [each["rule"] for each in items] == rules
    assert set(rules) <= RULE_TEXTS.keys()
    errors = [each for each in items if each["level"] == "error"]
    assert done.exit_code == (1 if errors else 0)
    assert run("lint", "-f", file, "--strict").exit_code == (1 if rules else 0)
    shown = run("lint", "-f", file)
    assert all(each["message"] in shown.stdout for each in items)
    assert f"{counted(len(errors), 'error')}, {counted(len(items) - len(errors), 'warning')}" in shown.stderr


BY_CLIENT = {"manager": "kubectl-client-side-apply", "operation": "Update", "fieldsV1": {"f:spec": {"f:replicas": {}}}}
BY_SERVER = {"manager": "flux", "operation": "Apply", "fieldsV1": {"f:spec": {"f:replicas": {}}}}


@pytest.mark.parametrize(
    ("managers", "begins", "has"),
    [
        pytest.param([BY_CLIENT], "It is applied by the client: `kubectl apply edit-last-applied", True, id="client"),
        pytest.param(
            [BY_SERVER], "It is applied by the server: the HPA has to own the field first", False, id="server"
        ),
        pytest.param([BY_CLIENT, BY_SERVER], "To give it up: with client-side apply first run", True, id="both"),
        pytest.param(None, "To give it up: with client-side apply first run", True, id="nothing is known"),
        pytest.param("no list", "To give it up: with client-side apply first run", True, id="of the wrong form"),
    ],
)
def test_the_advice_about_replicas_never_leads_to_one_replica(managers: Any, begins: str, has: bool) -> None:
    advice = give_up_replicas("Deployment", "web", "shop", managers)

    assert advice.startswith(begins)
    assert ("edit-last-applied deployment/web -n shop` and remove spec.replicas there" in advice) is has


def test_each_rule_that_can_be_found_has_its_text_and_its_place_in_the_reference() -> None:
    sources = "".join(Path(inspect.getfile(module)).read_text() for module in (lintrules, targetrules))
    named = {*re.findall(r'yield \(?\s*"([a-z0-9-]+)"', sources), *re.findall(r'Finding\("\w+", "([a-z-]+)"', sources)}

    assert named | {"never-up", "never-down", "unknown-field", "duplicate-field"} == RULE_TEXTS.keys()
    assert (ROOT / "docs" / "reference" / "lint.md").read_text() == page(), "run `make generated`"


def test_a_container_metric_asks_for_the_request_of_its_container_alone(run: Cli) -> None:
    target = {"type": "Utilization", "averageUtilization": 50}
    of_main = {"type": "ContainerResource", "containerResource": {"name": "cpu", "container": "main", "target": target}}
    assert run("lint", "-f", written(manifest(metrics=[of_main]), deployment())).stdout == ""


@pytest.mark.parametrize(
    ("arguments", "stated"),
    [
        pytest.param(("lint", "-f", "none.yaml"), "cannot be read", id="lint: a missing file"),
        pytest.param(("lint", "-f", "other.yaml"), "no HorizontalPodAutoscaler", id="lint: no HPA"),
        pytest.param(("diff", "-f", "none.yaml"), "cannot be read", id="diff: a missing file"),
        pytest.param(("diff", "-f", "other.yaml"), "no HorizontalPodAutoscaler", id="diff: no HPA"),
        pytest.param(("diff", "-f", "bad.yaml"), "is invalid", id="diff: an invalid HPA"),
        pytest.param(("diff", "-f", "good.yaml", "--from", "nowhere"), "no such folder", id="diff: no archive"),
    ],
)
def test_wrong_input_is_exit_2(run: Cli, arguments: tuple[str, ...], stated: str) -> None:
    Path("other.yaml").write_text(yaml.safe_dump(deployment()))
    Path("bad.yaml").write_text(yaml.safe_dump(manifest(maxReplicas=1)))
    Path("good.yaml").write_text(yaml.safe_dump(manifest()))
    done = run(*arguments)
    assert (done.exit_code, stated in done.stderr) == (2, True), done.output


def test_what_was_read_is_counted_by_kind(run: Cli) -> None:
    done = run("lint", "-f", written(manifest("a"), own("FleetHPA", "b", scaleTargetRef=TARGET), own("CapacityGroup")))
    assert (done.exit_code, done.stderr) == (0, "1 HPA, 1 FleetHPA, 1 CapacityGroup: 0 errors, 0 warnings\n")


# --- diff -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def beside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cli:
    """A fleet whose `checkout` has two metrics."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FLEETHPA_RUNTIME_DIR", str(tmp_path))
    fleet = Fleet()
    fleet.settle(3, 300)
    return Cli(monkeypatch, fleet)


def as_it_stands() -> dict[str, Any]:
    body = hpa()
    return {**HPA_, "metadata": {"name": "checkout", "namespace": "shop"}, "spec": body["spec"]}


def test_the_same_spec_is_no_difference_whatever_is_left_to_defaults(beside: Cli) -> None:
    done = beside("diff", "-f", written(as_it_stands()))
    assert (done.exit_code, done.stdout) == (0, "")
    assert "1 compared, 0 different" in done.stderr


def test_a_difference_is_shown_as_lines_and_as_json(beside: Cli) -> None:
    body = as_it_stands()
    body["spec"] |= {"maxReplicas": 16}
    done = beside("diff", "-f", written(body))
    assert done.exit_code == 1
    assert "-maxReplicas: 20" in done.stdout
    assert "+maxReplicas: 16" in done.stdout
    assert "--- east/shop/checkout (in force)" in done.stdout
    assert "fleethpa backtest -f all.yaml" in done.stderr
    item = fits("DifferenceList", beside("diff", "-f", "all.yaml", "-o", "json").stdout)["items"][0]
    assert (item["what"], item["changes"]) == ("changed", ["maxReplicas 20→16"])
    assert "\x1b[32m+maxReplicas" in beside("diff", "-f", "all.yaml", "--color", "always").stdout


def test_the_order_of_metrics_does_not_count(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from schemas.observed import AutoscalerSet

    monkeypatch.chdir(tmp_path)
    metrics = [resource("cpu", 60), resource("memory", 70)]
    fleet = Fleet()
    fleet.append(AutoscalerSet(hpa=hpa(metrics=metrics), session="s"))
    body = as_it_stands()
    body["spec"]["metrics"] = metrics[::-1]
    assert Cli(monkeypatch, fleet)("diff", "-f", written(body)).exit_code == 0
    body["spec"]["metrics"] = [resource("memory", 71), metrics[0]]
    assert "+      averageUtilization: 71" in Cli(monkeypatch, fleet)("diff", "-f", written(body)).stdout


def test_an_hpa_that_is_not_there_is_new_where_it_is_asked_for(beside: Cli) -> None:
    file = written(as_it_stands() | {"metadata": {"name": "other", "namespace": "shop"}})
    done = beside("diff", "-f", file, "-C", "east", "-o", "json")
    item = fits("DifferenceList", done.stdout)["items"][0]
    assert (done.exit_code, item["what"], item["before"]) == (1, "new", None)
    assert "--- /dev/null" in beside("diff", "-f", file).stdout
    assert beside("diff", "-f", file, "-C", "mars").exit_code == 4


def test_a_fleet_that_nobody_has_heard_of_is_no_agreement(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    done = Cli(monkeypatch, Fleet())("diff", "-f", written(manifest()))
    assert (done.exit_code, "no cluster is known" in done.stderr) == (2, True)
    assert done.stdout == ""


def test_metrics_stand_in_an_order_that_their_targets_do_not_change() -> None:
    def described(name: str, value: str) -> dict[str, Any]:
        # The API's own order of members: the target comes before the metric.
        found = {"describedObject": {"kind": "Service", "name": "web"}, "target": {"type": "Value", "value": value}}
        return {"type": "Object", "object": found | {"metric": {"name": name}}}

    ordered = sorted_spec({"metrics": [described("a", "1"), described("b", "2")]})["metrics"]
    changed = sorted_spec({"metrics": [described("b", "2"), described("a", "3")]})["metrics"]
    assert [each["object"]["metric"]["name"] for each in ordered] == ["a", "b"]
    assert [each["object"]["metric"]["name"] for each in changed] == ["a", "b"]


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(["replicas"], id="a list"),
        pytest.param("replicas", id="a text"),
        pytest.param({"template": 4}, id="a template that is a number"),
        pytest.param({"template": {"spec": {"containers": 4, "initContainers": {}}}}, id="containers that are no list"),
        pytest.param({"template": {"spec": {"containers": [1, {"name": "x", "resources": 5}]}}}, id="a container of 1"),
        pytest.param(
            {"template": {"spec": {"containers": [{"name": "x", "resources": {"requests": []}}]}}}, id="requests: []"
        ),
    ],
)
def test_a_target_of_the_wrong_form_ends_neither_lint_nor_apply(run: Cli, spec: Any) -> None:
    target = deployment() | {"spec": spec}
    path = written(manifest(), target)
    result = run("lint", "-f", path)
    assert result.exit_code == 0, result.output
    assert "internal error" not in result.stderr
    assert fixed_replicas(read_input((path,)), manifest(), "shop") == ""


EXTERNAL = {"type": "External", "external": {"metric": {"name": "depth"}, "target": {"type": "Value", "value": "5"}}}
TO_ZERO = {"minReplicas": 0, "metrics": [EXTERNAL]}
TOLERANT = {"behavior": {"scaleUp": {"tolerance": "50m"}, "scaleDown": {"stabilizationWindowSeconds": 60}}}


@pytest.mark.parametrize(
    ("spec", "options", "found"),
    [
        pytest.param(TO_ZERO, ("1.36",), [("error", "must be greater than or equal to 1")], id="zero before 1.37"),
        pytest.param(TO_ZERO, ("1.36", "--gates", "HPAScaleToZero=true"), [], id="zero with the gate"),
        pytest.param(TO_ZERO, ("1.37",), [], id="zero from 1.37 on"),
        pytest.param(
            TOLERANT, ("1.34",), [("warning", "scaleUp.tolerance has no effect by the rules of 1.34")], id="tolerance"
        ),
        pytest.param(TOLERANT, ("1.35",), [], id="a tolerance that is obeyed"),
    ],
)
def test_what_a_version_refuses_or_leaves_without_effect(
    run: Cli, spec: dict[str, Any], options: tuple[str, ...], found: list[tuple[str, str]]
) -> None:
    done = run("lint", "-f", written(manifest(**spec)), "-o", "json", "--kubernetes", *options)
    items = [each for each in fits("FindingList", done.stdout)["items"] if each["rule"] == "version"]

    assert [each["level"] for each in items] == [level for level, _ in found]
    assert all(text in each["message"] for each, (_, text) in zip(items, found, strict=True))


GROUPLESS = {"scaleTargetRef": {"apiVersion": "v1", "kind": "Deployment", "name": "web"}}
NAMELESS = {
    "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": ""},
    "metrics": [{"type": "Pods"}],
}


@pytest.mark.parametrize(
    ("spec", "version", "errors"),
    [
        pytest.param(GROUPLESS, "1.33", [], id="a target without a group before 1.34"),
        pytest.param(GROUPLESS, "1.34", ["apiVersion must specify API group"], id="a target without a group"),
        pytest.param({"maxReplicas": 0}, "1.35", ["must be greater than 0", "`minReplicas`"], id="no maximum in 1.35"),
        pytest.param({"maxReplicas": 0}, "1.36", ["`minReplicas`", "Required value"], id="no maximum in 1.36"),
        pytest.param(NAMELESS, "1.37", ["scaleTargetRef.name", "metrics[0].pods"], id="a name missing in 1.37"),
        pytest.param(NAMELESS, "1.38", ["metrics[0].pods", "scaleTargetRef.name"], id="reported last in 1.38"),
    ],
)
def test_errors_are_those_of_the_version_that_is_asked_about(
    run: Cli, spec: dict[str, Any], version: str, errors: list[str]
) -> None:
    done = run("lint", "-f", written(manifest(**spec)), "-o", "json", "--kubernetes", version)
    found = [each["message"] for each in fits("FindingList", done.stdout)["items"] if each["rule"] == "invalid"]

    assert len(found) == len(errors)
    assert all(text in message for message, text in zip(found, errors, strict=True)), found


def test_a_version_that_is_not_known_cannot_be_checked_against(run: Cli) -> None:
    refused = run("lint", "-f", written(manifest()), "--kubernetes", "1.20")

    assert (refused.exit_code, "the oldest known version is 1.27" in refused.stderr) == (2, True)


OLD_CPU = {"type": "Resource", "resource": {"name": "cpu", "targetAverageUtilization": 50}}
OLD_QUEUE = {"type": "External", "external": {"metricName": "queue", "metricSelector": {}}, "targetValue": 90}
OLD_ROUTE = {"type": "Object", "object": {"target": {"kind": "Ingress", "name": "i"}, "metricName": "m"}}


@pytest.mark.parametrize("validate", ["strict", "warn", "ignore"])
def test_fields_of_v2beta1_below_v2_are_one_error_that_says_what_to_write(run: Cli, validate: str) -> None:
    metrics = [OLD_CPU, OLD_QUEUE, resource("memory", 50), OLD_ROUTE]
    done = run("lint", "-f", written(manifest(metrics=metrics)), "-o", "json", f"--validate={validate}")

    [message] = [each["message"] for each in yaml.safe_load(done.stdout)["items"] if each["level"] == "error"]
    assert message == (
        "spec.metrics[0], spec.metrics[1], spec.metrics[3]: fields of autoscaling/v2beta1 below autoscaling/v2. In "
        "autoscaling/v2: resource.targetAverageUtilization is resource.target.averageUtilization with target.type: "
        "Utilization; external.metricName is external.metric.name; external.metricSelector is external.metric.selector;"
        " targetValue is external.target.value with target.type: Value; object.metricName is object.metric.name; "
        "object.target is object.describedObject"
    )


def test_other_errors_stay_beside_that_of_old_fields(run: Cli) -> None:
    body = manifest(metrics=[{"type": "Pods"}, OLD_CPU], maxReplica=3)
    done = run("lint", "-f", written(body), "-o", "json")

    messages = [each["message"] for each in yaml.safe_load(done.stdout)["items"]]
    assert sum("v2beta1" in message for message in messages) == 1
    assert any("spec.metrics[0].pods: Required value" in message for message in messages)
    assert any('"spec.maxReplica"' in message for message in messages)


@pytest.mark.parametrize("version", ["v2beta2", "v2beta1", "v2alpha1"])
def test_a_version_that_is_served_no_more_is_converted_and_named(run: Cli, version: str) -> None:
    metrics = [resource("cpu", 50) if version == "v2beta2" else OLD_CPU]
    done = run(
        "lint", "-f", written(manifest(metrics=metrics) | {"apiVersion": f"autoscaling/{version}"}), "-o", "json"
    )

    [finding] = [each for each in yaml.safe_load(done.stdout)["items"] if each["rule"] != "no-window"]
    assert (finding["level"], finding["rule"]) == ("warning", "removed-version")
    assert f"autoscaling/{version} is not served from Kubernetes 1.2" in finding["message"]


GOOD = yaml.safe_dump(manifest())


KUSTOMIZATION = "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [hpa.yaml]"


TEMPLATE = yaml.safe_dump(manifest("web", maxReplicas="{{ .Values.max }}"))
HELD = yaml.safe_dump({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"a.b": GOOD}})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with one HPA, between files that are none."""
    place = tmp_path / "deploy"
    place.mkdir()
    (place / "hpa.yaml").write_text(GOOD)
    return place


@pytest.mark.parametrize(
    ("name", "content", "rule", "message"),
    [
        pytest.param("kustomization.yaml", "resources: [hpa.yaml]", "no-manifest", "kubectl kustomize", id="kustomize"),
        pytest.param("kustomization.yml", "resources: [hpa.yaml]", "no-manifest", "kubectl kustomize", id="its other"),
        pytest.param("values.yaml", "replicas: 3", "no-manifest", "helm template", id="values"),
        pytest.param("values-prod.yaml", "replicas: 3", "no-manifest", "helm template", id="values of a stage"),
        pytest.param("Chart.yaml", "apiVersion: v2\nname: web", "no-manifest", "helm template", id="a chart"),
        pytest.param("k.yaml", KUSTOMIZATION, "no-manifest", "kubectl kustomize", id="an object of kustomize"),
        pytest.param("t.yaml", "kind: {{ .Values.kind }}", "unreadable", "helm template", id="an unrendered template"),
        pytest.param("t.yaml", TEMPLATE, "unreadable", "helm template", id="a template that is YAML"),
        pytest.param("held.yaml", HELD, "no-manifest", "yq -r 'select(.kind == ", id="manifests in a ConfigMap"),
        pytest.param("prod.yaml", "replicas: 3", "unreadable", "helm template CHART -f", id="values, perhaps"),
        pytest.param("t.yaml", "# {{ a }}\na: [", "unreadable", "line 2, column 5", id="braces in a comment"),
        pytest.param("a.yaml", "a: [", "unreadable", "line 1, column 5", id="no YAML"),
        pytest.param("values.yaml", "a: [", "unreadable", "line 1, column 5", id="values that are no YAML"),
        pytest.param("z.yaml", "a: 1", "unreadable", "an object has no kind", id="no kind"),
        pytest.param("z.json", "[1]", "unreadable", "expected an object", id="a list"),
        pytest.param("z.yaml", b"\xffa", "unreadable", "It is not UTF-8 text", id="no text"),
    ],
)
def test_a_folder_is_checked_to_its_end(
    run: Cli, folder: Path, name: str, content: str | bytes, rule: str, message: str
) -> None:
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    (folder / "web.yaml").write_text(yaml.safe_dump(manifest("web", minReplicas=30)))

    done = run("lint", "-f", str(folder), "-o", "json")

    found = yaml.safe_load(done.stdout)["items"]
    of_file = [each for each in found if each["source"].startswith(str(folder / name))]
    assert [(each["level"], each["rule"]) for each in of_file] == [
        ("warning" if rule == "no-manifest" else "error", rule)
    ]
    assert message in of_file[0]["message"]
    assert "web" in {each["name"] for each in found if each["rule"] == "invalid"}
    assert "2 HPAs" in done.stderr
    assert done.exit_code == 1


def test_files_of_tools_beside_hpas_are_warnings(run: Cli, folder: Path) -> None:
    (folder / "kustomization.yaml").write_text("resources: [hpa.yaml]")

    assert run("lint", "-f", str(folder)).exit_code == 0
    assert run("lint", "-f", str(folder), "--strict").exit_code == 1


def test_of_files_of_tools_alone_the_error_says_what_makes_manifests(run: Cli, folder: Path) -> None:
    (folder / "hpa.yaml").unlink()
    (folder / "Chart.yaml").write_text("apiVersion: v2")
    (folder / "values.yaml").write_text("a: 1")

    done = run("lint", "-f", str(folder))

    assert done.exit_code == 2
    assert f"helm template {folder} | fleethpa lint -f -" in done.stderr


@pytest.mark.parametrize(
    ("name", "step"),
    [
        pytest.param("values.yaml", "helm template {chart} | fleethpa lint -f -", id="its own values"),
        pytest.param("prod.yaml", "helm template {chart} -f {file} | fleethpa lint -f -", id="values of a stage"),
        pytest.param("envs/eu/prod.yml", "helm template {chart} -f {file} | fleethpa lint -f -", id="further down"),
    ],
)
@pytest.mark.parametrize("verb", ["lint", "diff"])
def test_values_of_a_chart_are_known_by_the_folder_they_are_in(
    run: Cli, folder: Path, verb: str, name: str, step: str
) -> None:
    (folder / "Chart.yaml").write_text("apiVersion: v2")
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("replicaCount: 3")

    done = run(verb, "-f", str(file))

    assert done.exit_code == 2
    assert f"{file.name} is of values for a Helm chart" in done.stderr
    assert step.format(chart=folder, file=file) in done.stderr


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("kind: HorizontalPodAutoscaler\nmetadata: {name: '{{ .Release.Name }}-web'}", id="a name"),
        pytest.param("kind: Deployment\nmetadata: {name: '{{ include \"a\" . }}'}", id="a target's name"),
    ],
)
@pytest.mark.parametrize("verb", ["lint", "diff", "apply"])
def test_a_template_that_is_yaml_is_not_taken_for_a_manifest(run: Cli, folder: Path, verb: str, text: str) -> None:
    file = folder / "templates" / "web.yaml"
    file.parent.mkdir()
    file.write_text(f"apiVersion: v1\n{text}\n")

    done = run(verb, "-f", str(file))

    assert done.exit_code == 2
    assert f"{file}: a template that is not rendered, no manifest" in done.stderr
    assert f"helm template {folder} | fleethpa lint -f -" in done.stderr


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("metadata: {name: {{ app_name }}-web}", id="a variable"),
        pytest.param("{% if hpa %}\nmetadata: {name: web}\n{% endif %}", id="a condition"),
    ],
)
def test_a_template_of_another_program_is_named_as_one(run: Cli, folder: Path, text: str) -> None:
    file = folder / "web.yaml"
    file.write_text(f"apiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\n{text}\n")

    done = run("lint", "-f", str(file))

    assert done.exit_code == 2
    assert f"{file}: a template that is not rendered, no manifest" in done.stderr
    assert "render it" in done.stderr


@pytest.mark.parametrize("verb", ["lint", "diff", "apply"])
def test_manifests_in_a_config_map_are_named_with_what_takes_them_out(run: Cli, folder: Path, verb: str) -> None:
    file = folder / "hpa.yaml"
    file.write_text(HELD)

    done = run(verb, "-f", str(file))

    assert done.exit_code == 2
    assert f"{file}: ConfigMap a has manifests in its data" in done.stderr
    assert "data.a.b is a text with HorizontalPodAutoscaler" in done.stderr
    pick = 'select(.kind == "ConfigMap" and .metadata.name == "a") | .data["a.b"]'
    assert f"yq -r '{pick}' {file} | fleethpa lint -f -" in done.stderr


def test_what_writes_takes_all_of_a_folder_or_nothing(run: Cli, folder: Path) -> None:
    (folder / "kustomization.yaml").write_text("resources: [hpa.yaml]")

    done = run("diff", "-f", str(folder))

    assert done.exit_code == 2
    assert "kustomization.yaml is of kustomize" in done.stderr
