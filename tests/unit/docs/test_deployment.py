"""compose/: what it runs are commands of this release, what its alerts ask for are metrics of this release."""

import os
import re
import subprocess
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.metadata import version as installed
from itertools import takewhile
from pathlib import Path
from typing import Any

import click
import jsonschema
import orjson
import pytest
import yaml

from fleethpa.cli.main import cli, verbs
from fleethpa.fleet.polledsources import POLLED_SOURCES
from fleethpa.frame.errors import LAB
from reconciler.clusters.manifests import manifests
from schemas import connection
from tests.dist import IMAGE
from tests.kubernetes.manifests import CHART, chart_files, chart_yaml, find_helm, plain, render

ROOT = Path(__file__).parents[3]
COMPOSE = ROOT / "compose"
PLAIN = ("kubernetes/hub.yaml",)
Document = dict[str, Any]


@cache
def documents(name: str) -> list[Document]:
    """The documents of a file in compose/."""
    return [document for document in yaml.load_all((COMPOSE / name).read_text(), yaml.CSafeLoader) if document]


def pods() -> Iterator[tuple[str, Document]]:
    """Name and pod spec of every workload."""
    for document in workloads():
        yield document["metadata"]["name"], document["spec"]["template"]["spec"]


def workloads() -> Iterator[Document]:
    """Every object of the plain manifests that makes pods."""
    for name in PLAIN:
        yield from (document for document in documents(name) if "template" in document.get("spec", {}))


def commands() -> Iterator[Any]:
    """Every fleethpa command that compose/ runs."""
    for name, service in documents("compose.yaml")[0]["services"].items():
        if service["image"] == "fleethpa":
            yield pytest.param(service["command"], id=f"compose runs {name}")
    for name, pod in pods():
        yield pytest.param(pod["containers"][0]["args"], id=f"Kubernetes runs {name}")


def parse(arguments: list[str]) -> str:
    """Parse a command line down to its last command, without running it; that command's path."""
    context = cli.make_context("fleethpa", list(arguments))
    while isinstance(context.command, click.Group):
        name, command, rest = context.command.resolve_command(context, [*context.protected_args, *context.args])
        assert command is not None
        context = command.make_context(name, rest, parent=context)
    return context.command_path


@pytest.mark.filterwarnings("ignore:.*protected_args.*:DeprecationWarning")
@pytest.mark.parametrize("arguments", list(commands()))
def test_every_command_is_one_of_this_release(arguments: list[str]) -> None:
    words = list(takewhile(lambda word: not word.startswith("-"), arguments))
    assert parse(arguments).split()[1:] == words[: 3 if words[0] == "admin" else 2]


@pytest.mark.filterwarnings("ignore:.*protected_args.*:DeprecationWarning")
def test_an_unknown_option_would_be_found() -> None:
    with pytest.raises(click.NoSuchOption):
        parse(["run", "decider", "--no-such-option"])


def test_containers_run_as_nobody_and_cannot_write_their_file_system() -> None:
    for name, pod in pods():
        assert pod["securityContext"]["runAsNonRoot"], name
        container = pod["containers"][0]["securityContext"]
        assert container["readOnlyRootFilesystem"], name
        assert container["allowPrivilegeEscalation"] is False, name
    assert "USER 65532" in (COMPOSE / "Dockerfile").read_text()


def test_ports_are_served_to_other_pods_and_selectors_match_their_templates() -> None:
    for document in workloads():
        if document["kind"] in ("Deployment", "StatefulSet"):
            template = document["spec"]["template"]
            assert document["spec"]["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
            arguments = template["spec"]["containers"][0]["args"]
            prefix = "--" if arguments[0] == "page" else "--web-"
            assert arguments[arguments.index(f"{prefix}host") + 1] == "0.0.0.0"
            assert int(arguments[arguments.index(f"{prefix}port") + 1]) == 8080


def test_the_page_in_a_cluster_asks_for_a_token_and_knows_its_name() -> None:
    (pod,) = [pod for name, pod in pods() if name == "fleethpa-page"]
    arguments = pod["containers"][0]["args"]
    assert "--token-file" in arguments
    assert "fleethpa-page.fleethpa-system.svc" in arguments


@pytest.mark.parametrize("name", PLAIN)
def test_the_permissions_are_those_that_the_command_prints(name: str) -> None:
    labels = {"app.kubernetes.io/name": "fleethpa"}
    granted = [
        document | {"metadata": document["metadata"] | {"labels": labels}}
        for document in documents(name)
        if document["kind"].startswith("ClusterRole")
    ]
    assert sorted(granted, key=_named) == sorted(manifests(enforce=False), key=_named)


def _named(document: Any) -> tuple[str, str]:
    return document["kind"], document["metadata"]["name"]


@pytest.mark.parametrize("name", chart_files())
def test_the_files_of_the_chart_say_what_the_code_says(name: str) -> None:
    assert (CHART / "files" / name).read_text() == chart_files()[name], "run `make manifests`"


def differing(schema: Document, values: Any, at: str = "") -> Iterator[str]:
    """The places that only the schema has, or only the values, wherever the schema names what there may be."""
    if "properties" not in schema:
        return
    named, given = schema["properties"], values if isinstance(values, dict) else {}
    yield from (f"{at}.{name}" for name in sorted(named.keys() ^ given.keys()))
    for name in named.keys() & given.keys():
        yield from differing(named[name], given[name], f"{at}.{name}")


def test_the_values_of_the_chart_are_as_their_schema_says() -> None:
    schema = orjson.loads((CHART / "values.schema.json").read_bytes())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    jsonschema.validate(values, schema)
    del schema["properties"]["global"]  # Helm's own, which a chart does not set
    assert list(differing(schema, values)) == []
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(values | {"replicas": 2}, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(values | {"mode": "hug"}, schema)


@pytest.mark.parametrize("name", POLLED_SOURCES)
def test_the_chart_gives_the_file_of_each_polled_source_to_observers_and_agents(name: str) -> None:
    text = (CHART / "templates" / "clusters.yaml").read_text()
    assert text.count(f'(list "--{name}" ') == 2, "one for observers, one for agents"


def test_the_release_of_the_chart_is_this_one() -> None:
    assert (CHART / "Chart.yaml").read_text() == chart_yaml(), "run `make manifests`"
    chart = yaml.safe_load(chart_yaml())
    assert chart["version"] == chart["appVersion"] == installed("fleet-hpa")


def test_what_the_chart_does_unasked_is_safe() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert values["clusters"]["enforce"] is False
    assert values["clusters"]["found"]["insecureTLS"] is False
    assert values["kafka"]["principals"] == "component"
    assert values["kafka"]["securityProtocol"] == "SASL_SSL"
    assert values["networkPolicy"]["enabled"] is True


def test_the_example_with_oauth2_proxy_fits_the_chart_and_itself() -> None:
    folder = ROOT / "examples" / "oauth2-proxy"
    values = yaml.safe_load((folder / "values.yaml").read_text())
    jsonschema.validate(values, orjson.loads((CHART / "values.schema.json").read_bytes()))
    proxy, service, ingress = yaml.safe_load_all((folder / "proxy.yaml").read_text())
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    (container,) = proxy["spec"]["template"]["spec"]["containers"]
    variables = {each["name"]: each["valueFrom"]["secretKeyRef"] for each in container["env"]}
    (rule,) = ingress["spec"]["rules"]
    backends = {each["path"]: each["backend"]["service"] for each in rule["http"]["paths"]}
    page = {"name": "fleethpa-page", "port": {"number": 7080}}
    (port,) = service["spec"]["ports"]

    assert values["page"]["proxy"] == {"userHeader": "X-Forwarded-User", "groupsHeader": "X-Forwarded-Groups"}
    assert {"--pass-user-headers=true", "--pass-basic-auth=true"} <= set(container["args"])
    assert f"--upstream=http://{page['name']}:7080" in container["args"]
    token = {"name": defaults["page"]["tokenSecret"], "key": "token"}
    assert variables["OAUTH2_PROXY_BASIC_AUTH_PASSWORD"] == token
    own = {"name": service["metadata"]["name"], "port": {"number": port["port"]}}
    assert backends == {"/api/v1/": page, "/": own}
    assert service["spec"]["selector"].items() <= proxy["spec"]["template"]["metadata"]["labels"].items()
    assert [rule["host"]] == values["page"]["allowedHosts"] == ingress["spec"]["tls"][0]["hosts"]
    assert f"--redirect-url=https://{rule['host']}/oauth2/callback" in container["args"]


def notes(*values: str) -> str:
    """What `helm install` would print at the end; no cluster is asked."""
    sets = [word for value in values for word in ("--set", value)]
    command = [find_helm(), "install", "fleethpa", str(CHART), "--dry-run=client", "--set", "hub=eu", *sets]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ | {"KUBECONFIG": ""})
    return done.stdout.partition("NOTES:")[2]


ON = (
    "clusters.enforce=true",
    "archive.claim=past",
    "monitoring.kind=PodMonitor",
    "monitoring.rules=true",
    "scheduler.enabled=true",
    "hubApi.enabled=true",
    "networkPolicy.egress=true",
)


@pytest.mark.skipif(not find_helm(), reason="no helm on this machine")
def test_the_notes_name_what_is_off_with_the_value_that_turns_it_on() -> None:
    home = "clusters.inCluster=home"
    off = notes(home)
    assert all(f"({value.partition('=')[0]}=" in off for value in ON), off
    assert "begins in shadow" in off
    assert "kafka.principals" not in off
    assert "(kafka.principals=component)" in notes(home, "kafka.principals=shared")
    assert "Off, each" not in notes(home, *ON)
    for value in ON:
        left = notes(home, *[each for each in ON if each != value])
        assert left.count("\n  - ") == 1
        assert f"({value.partition('=')[0]}=" in left
    agent = notes("mode=agent", "agent.incarnation=1", home)
    assert "clusters.enforce=true" in agent
    assert "archive.claim" not in agent


@pytest.mark.skipif(not find_helm(), reason="no helm on this machine")
@pytest.mark.parametrize("name", PLAIN)
def test_the_plain_manifests_are_those_of_the_chart(name: str) -> None:
    path = COMPOSE / name
    assert path.read_text() == plain(find_helm(), path.name), "run `make manifests`"


@pytest.mark.skipif(not find_helm(), reason="no helm on this machine")
@pytest.mark.parametrize(
    ("values", "variables", "with_user"),
    [
        pytest.param(
            ["saslMechanism=OAUTHBEARER", "tokenEndpoint=https://i.example.com/token", "clientRack=a"],
            {"SASL_MECHANISM": "OAUTHBEARER", "TOKEN_ENDPOINT": "https://i.example.com/token", "CLIENT_RACK": "a"},
            True,
            id="tokens of an issuer",
        ),
        pytest.param(["saslMechanism=AWS_MSK_IAM"], {"SASL_MECHANISM": "AWS_MSK_IAM"}, False, id="MSK"),
    ],
)
def test_the_chart_passes_on_how_to_sign_in_to_kafka(
    values: list[str], variables: dict[str, str], with_user: bool
) -> None:
    rendered = render(find_helm(), "clusters.inCluster=home", *(f"kafka.{value}" for value in values))
    (settings,) = [each["data"] for each in rendered if each["metadata"]["name"].endswith("-kafka") and "data" in each]
    prefix = "FLEETHPA_KAFKA_"
    assert {f"{prefix}{name}": value for name, value in variables.items()}.items() <= settings.items()
    assert connection.environment_given(settings)  # every variable is one of ours
    assert (f"{prefix}USERNAME" in yaml.safe_dump(rendered)) == with_user


@pytest.mark.skipif(not find_helm(), reason="HUB'S NAME IN THE CHART NOT TESTED: no helm (make test-kubernetes)")
def test_the_chart_requires_the_hubs_name_where_helm_cannot_ask_the_cluster() -> None:
    """Two hubs on one Kafka that are both rendered so would else have one name."""
    with pytest.raises(AssertionError, match="hub is required where helm cannot ask the cluster"):
        render(find_helm(), "clusters.inCluster=home", "hub=")
    rendered = yaml.safe_dump(render(find_helm(), "clusters.inCluster=home", "hub=eu"))
    assert rendered.count("--hub") == 2
    assert "fleethpa-system/fleethpa" not in rendered
    assert render(find_helm(), "mode=agent", "agent.incarnation=3", "clusters.inCluster=east", "hub=")


def packages(name: str) -> dict[str, list[str]]:
    """The packages of a lock file, with their versions, and the hashes of each."""
    found: dict[str, list[str]] = {}
    for line in (ROOT / name).read_text().splitlines():
        if not line.startswith((" ", "#")):
            found[line.split()[0]] = []
        elif "--hash=" in line:
            found[list(found)[-1]].append(line.strip(" \\"))
    return found


def test_the_image_installs_by_hash_also_what_builds_it() -> None:
    text = (COMPOSE / "Dockerfile").read_text().replace("\\\n", "")
    installs = [part for part in re.split(r"\n|&&", text) if "pip install" in part]
    assert all("--require-hashes" in each or each.strip().endswith("--no-deps /wheels/*.whl") for each in installs)
    build, dev = packages("requirements/build.lock"), packages("requirements/dev.lock")
    assert all(hashes and hashes == dev[package] for package, hashes in build.items())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert set(project["build-system"]["requires"]) <= build.keys()


def test_both_stages_of_the_image_have_the_base_that_the_build_names() -> None:
    lines = (COMPOSE / "Dockerfile").read_text().splitlines()
    assert [line.split()[1] for line in lines if line.startswith("FROM ")] == ["${BASE}", "${BASE}"]


def test_a_service_that_runs_a_verb_of_the_lab_has_an_image_with_the_lab() -> None:
    services = yaml.safe_load((COMPOSE / "compose.yaml").read_text())["services"]
    for service in services.values():
        verb = (service.get("command") or [""])[0]
        if verb in verbs() and verbs()[verb].place.startswith(f"{LAB}."):
            assert service["build"]["args"] == {"LAB": "with"}
            assert service["image"] != "fleethpa", "that is the name of the image of production"
    text = (COMPOSE / "Dockerfile").read_text()
    assert "\nARG LAB=without\n" in text
    assert '[ "$LAB" = with ] || rm -r fleethpa/lab' in text


def test_the_image_context_of_a_release_is_what_the_dockerfile_copies() -> None:
    lines = [line.split()[1:-1] for line in (COMPOSE / "Dockerfile").read_text().splitlines() if line[:5] == "COPY "]
    copied = [source for sources in lines for source in sources if not source.startswith(("--from", "/"))]
    assert sorted(IMAGE) == sorted(["compose/Dockerfile", *copied])
    assert all((ROOT / source).exists() for source in IMAGE)


def metrics_and_labels() -> dict[str, set[str]]:
    """Every metric of the reference page, with its labels."""
    lines = (ROOT / "docs/reference/metrics.md").read_text().splitlines()
    rows = [line.split("|") for line in lines if line.startswith("| `fleethpa_")]
    known: dict[str, set[str]] = {}
    for _, name, kind, labels, *_ in rows:
        own = known.setdefault(name.strip(" `"), set())
        own |= set(re.findall(r"`(\w+)`", labels)) | ({"le"} if "histogram" in kind else set())
    return known


@pytest.mark.parametrize(
    "name", ["prometheus-alerts.yaml", "grafana-dashboard.json", "prometheus-kube-state-metrics.yaml"]
)
def test_alerts_and_dashboards_ask_for_metrics_and_labels_that_exist(name: str) -> None:
    known = metrics_and_labels()
    text = (COMPOSE / name).read_text().replace('\\"', '"')
    asked = re.findall(r"(fleethpa_\w+?)(?:_bucket)?(?:\{([^}]*)\})?(?![\w])", text)
    assert asked
    for metric, matchers in asked:
        assert metric in known, metric
        assert set(re.findall(r"(\w+)=~?", matchers)) <= known[metric], f"{metric}{{{matchers}}}"


KUBE_STATE_METRICS: dict[str, set[str]] = {
    "info": {"scaletargetref_api_version", "scaletargetref_kind", "scaletargetref_name"},
    "annotations": set(),
    "labels": set(),
    "metadata_generation": set(),
    "created": set(),
    "spec_max_replicas": set(),
    "spec_min_replicas": set(),
    "spec_target_metric": {"metric_name", "metric_target_type"},
    "spec_behavior_scale_up_tolerance": set(),
    "spec_behavior_scale_down_tolerance": set(),
    "status_target_metric": {"metric_name", "metric_target_type"},
    "status_condition": {"condition", "status"},
    "status_current_replicas": set(),
    "status_desired_replicas": set(),
}
"""What kube-state-metrics exports of an HPA, without `kube_horizontalpodautoscaler_`, and its labels beside `namespace`
and `horizontalpodautoscaler`.

Source: https://github.com/kubernetes/kube-state-metrics/blob/main/docs/metrics/workload/horizontalpodautoscaler-metrics.md
"""


def test_every_series_of_kube_state_metrics_about_hpas_is_recorded_under_its_name_and_labels() -> None:
    rules = documents("prometheus-kube-state-metrics.yaml")[0]["groups"][0]["rules"]
    found = {rule["record"].removeprefix("kube_horizontalpodautoscaler_"): rule["expr"] for rule in rules}
    assert set(found) == set(KUBE_STATE_METRICS)
    for name, labels in KUBE_STATE_METRICS.items():
        kept = set(re.match(r"max by \(([^)]*)\)", found[name])[1].split(", "))  # type: ignore[index]
        assert kept == {"cluster", "namespace", "horizontalpodautoscaler", *labels}, name
        # What a cluster still has itself is not recorded a second time.
        assert found[name].count('origin="central"') == len(re.findall(r"max by", found[name])), name
        assert name in ("annotations", "labels") or f"fleethpa_hpa_{name}" in found[name]


def alerts() -> list[dict[str, Any]]:
    """The alerts of the chart."""
    rules: list[dict[str, Any]] = documents("prometheus-alerts.yaml")[0]["groups"][0]["rules"]
    return rules


def test_an_hpa_that_rests_at_its_maximum_on_purpose_raises_no_alert() -> None:
    found = {each["alert"]: each["expr"] for each in alerts()}
    assert found["FleethpaHpaSaturated"] == "fleethpa_hpa_saturated == 1"
    assert "FleethpaHpaMaxedOut" not in found


def test_every_alert_says_how_long_how_bad_and_what_to_do() -> None:
    assert all({"alert", "expr", "for", "labels", "annotations"} == rule.keys() for rule in alerts())
    assert len({rule["alert"] for rule in alerts()}) == len(alerts())


def test_the_runbook_of_every_alert_is_a_section_of_the_operations_page() -> None:
    page = (ROOT / "docs/operations.md").read_text()
    anchors = {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in re.findall(r"(?m)^#+ (.+)$", page)}
    for rule in alerts():
        path, _, anchor = rule["annotations"]["runbook_url"].partition("#")
        assert (path, anchor) == ("docs/operations.md", rule["alert"].lower())
        assert anchor in anchors


def test_the_row_of_an_hpa_is_repeated_for_each_that_is_chosen() -> None:
    dashboard = orjson.loads((COMPOSE / "grafana-dashboard.json").read_bytes())
    rows = {panel["title"]: panel.get("repeat") for panel in dashboard["panels"] if panel["type"] == "row"}
    assert rows == {"Fleet": None, "HPA $hpa": "hpa", "Pipeline": None, "Writes and audit": None}
    variables = {variable["name"]: variable for variable in dashboard["templating"]["list"]}
    assert variables["hpa"]["multi"]


def test_panels_of_the_dashboard_do_not_overlap() -> None:
    dashboard = orjson.loads((COMPOSE / "grafana-dashboard.json").read_bytes())
    taken: dict[tuple[int, int], str] = {}
    for panel in dashboard["panels"]:
        at = panel["gridPos"]
        for cell in [(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])]:
            assert taken.setdefault(cell, panel["title"]) == panel["title"]
            assert cell[0] < 24
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
