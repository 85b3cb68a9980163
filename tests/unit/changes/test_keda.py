"""`fleethpa import keda`: thirty ScaledObjects, none of which is changed silently."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from fleethpa.changes.keda import TRIGGERS, cron_times, imported
from fleethpa.changes.manifests import FileManifest, check_hpa
from fleethpa.changes.schedules import check_schedule, schedule_of
from reconciler.prometheus.promrules import parse_rules
from streams.state.replacements.fallback import BEHAVIORS, FALLBACK_ANNOTATION, parse_fallback
from tests.kit.cli import Cli
from tests.kit.documented import ROOT
from tests.kit.published import fits

FILE = ROOT / "tests" / "data" / "keda" / "scaledobjects.yaml"
OBJECTS: dict[str, dict[str, Any]] = {each["metadata"]["name"]: each for each in yaml.safe_load_all(FILE.read_text())}
Path_ = tuple[str | int, ...]


def read(body: dict[str, Any]) -> Any:
    return imported(FileManifest("a.yaml", body))


def leaves(value: Any, path: Path_ = ()) -> Iterator[tuple[Path_, Any]]:
    """Every value of an object with its path."""
    if isinstance(value, dict | list) and value:
        for key, each in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(each, (*path, key))
    else:
        yield path, value


def named(path: Path_) -> set[str]:
    """How a field, and what it is in, may be named."""
    text, found = "", set()
    for key in path:
        if isinstance(key, int):
            text += f"[{key}]"
        else:
            found.add(f"{text}[{key}]")
            text += f".{key}" if text else key
        found.add(text)
    return found


def changed(body: dict[str, Any], path: Path_) -> dict[str, Any]:
    """The same object with another value in one place."""
    made: Any = copy.deepcopy(body)
    part = made
    for key in path[:-1]:
        part = part[key]
    value = part[path[-1]]
    if isinstance(value, bool):
        part[path[-1]] = not value
    elif isinstance(value, int):
        part[path[-1]] = value + 1
    else:
        part[path[-1]] = str(int(value) + 1) if value.isdecimal() else f"{value}x"
    found: dict[str, Any] = made
    return found


def test_there_are_thirty_and_of_most_kinds() -> None:
    kinds = {trigger["type"] for body in OBJECTS.values() for trigger in body["spec"]["triggers"]}
    assert len(OBJECTS) == 30
    assert len(kinds) >= 20


@pytest.mark.parametrize("name", OBJECTS)
def test_every_field_makes_a_difference_or_is_named(name: str) -> None:
    """The law of the import: what can be changed without a change of the result is in the list of what is left."""
    body = OBJECTS[name]
    was = read(body)
    for path, _ in leaves(body):
        if path in (("apiVersion",), ("kind",)):
            continue
        now = read(changed(body, path))
        is_used = (now.name, now.hpa, now.rules, now.is_whole) != (was.name, was.hpa, was.rules, was.is_whole)
        assert is_used or named(path) & was.left.keys(), path


@pytest.mark.parametrize("name", OBJECTS)
def test_what_comes_out_is_a_valid_hpa_with_what_the_object_says(name: str) -> None:
    body, found = OBJECTS[name], read(OBJECTS[name])
    if found.hpa is None:
        assert not found.is_whole
        assert "spec" in found.left
        return
    _, errors = check_hpa(FileManifest("a.yaml", found.hpa), "default")
    assert errors == []
    assert found.hpa["spec"]["maxReplicas"] == body["spec"].get("maxReplicaCount", 100)
    assert found.hpa["spec"]["scaleTargetRef"]["name"] == body["spec"]["scaleTargetRef"]["name"]
    assert schedule_of(found.hpa) is None or all(schedule_of(found.hpa).parsed())  # type: ignore[union-attr]
    fallback = found.hpa["metadata"].get("annotations", {}).get(FALLBACK_ANNOTATION)
    assert (fallback is not None) == ("fallback" in body["spec"])
    assert fallback is None or parse_fallback(fallback) is not None
    metrics = [each for each in body["spec"]["triggers"] if each["type"] != "cron"]
    assert found.is_whole == (len(found.hpa["spec"]["metrics"]) == len(metrics) and not found_lost(found))


def found_lost(found: Any) -> bool:
    """Whether a trigger, or a formula over them, is named as lost."""
    return any(
        re.fullmatch(r"spec\.triggers\[\d+\]|spec\.advanced\.scalingModifiers", path)
        and not why.startswith("nothing serves the metric")
        for path, why in found.left.items()
    )


def test_a_query_becomes_a_rule_that_the_observer_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = tmp_path / "one.yaml"
    one.write_text(yaml.safe_dump(OBJECTS["checkout"]))
    run = Cli(monkeypatch)
    done = run("import", "keda", "-f", str(one), "--rules", str(tmp_path / "rules.yaml"))
    assert done.exit_code == 0, done.output
    (hpa,) = yaml.safe_load_all(done.stdout)
    (metric,) = hpa["spec"]["metrics"]
    assert metric["external"] == {
        "metric": {"name": "checkout-s0-prometheus"},
        "target": {"type": "AverageValue", "averageValue": "100"},
    }
    rules = yaml.safe_load((tmp_path / "rules.yaml").read_text())["externalRules"]
    assert rules[0]["metricsQuery"] == 'sum(rate(http_requests_total{app="checkout"}[2m]))'
    assert rules[0]["name"]["as"] == "checkout-s0-prometheus"
    assert parse_rules((tmp_path / "rules.yaml").read_text(), "rules.yaml")
    assert "not carried over: spec.triggers[0].metadata.serverAddress: of the observer" in done.stderr


@pytest.mark.parametrize(
    ("stated", "annotation", "named"),
    [
        pytest.param({}, "failureThreshold=3,replicas=6,metric={}", "", id="no behavior"),
        pytest.param({"behavior": "static"}, "failureThreshold=3,replicas=6,metric={}", "", id="the default"),
        pytest.param(
            {"behavior": "currentReplicasIfHigher"},
            "failureThreshold=3,replicas=6,behavior=currentReplicasIfHigher,metric={}",
            "",
            id="a behavior",
        ),
        pytest.param(
            {"behavior": "new"},
            "failureThreshold=3,replicas=6,metric={}",
            f"'new' is not one of {', '.join(BEHAVIORS)}: static is taken",
            id="a behavior that is not known",
        ),
    ],
)
def test_a_fallback_keeps_its_behavior_and_is_for_what_keda_serves(
    stated: dict[str, str], annotation: str, named: str
) -> None:
    body = copy.deepcopy(OBJECTS["checkout"])
    body["spec"]["fallback"] = {"failureThreshold": 3, "replicas": 6} | stated
    cpu = {"type": "cpu", "metricType": "Utilization", "metadata": {"value": "60"}}
    body["spec"]["triggers"].append(cpu)
    found = read(body)
    assert found.hpa["metadata"]["annotations"][FALLBACK_ANNOTATION] == annotation.format("checkout-s0-prometheus")
    assert found.left.get("spec.fallback.behavior", "") == named


def test_cron_triggers_become_a_schedule_in_which_the_most_replicas_win() -> None:
    body = copy.deepcopy(OBJECTS["office"])
    more = {"timezone": "Europe/Berlin", "start": "0 9 * * 2", "end": "0 10 * * 2", "desiredReplicas": "9"}
    body["spec"]["triggers"].insert(0, {"type": "cron", "metadata": more})
    schedule = schedule_of(read(body).hpa)
    assert schedule is not None
    assert schedule.time_zone == "Europe/Berlin"
    assert schedule.rules == ["Mon,Tue,Wed,Thu,Fri 08:00-18:00 minReplicas=6", "Tue 09:00-10:00 minReplicas=9"]
    assert schedule.otherwise == ["minReplicas=2"]


@pytest.mark.parametrize(
    ("start", "end", "times"),
    [
        pytest.param("0 8 * * 1-5", "30 18 * * 1-5", "Mon,Tue,Wed,Thu,Fri 08:00-18:30", id="days of the week"),
        pytest.param("0 22 * * *", "0 6 * * *", "daily 22:00-06:00", id="over every night"),
        pytest.param("0 22 * * 5", "0 6 * * 6", "Fri 22:00-06:00", id="over one night"),
        pytest.param("0 9 * * SAT,SUN", "0 17 * * 6,7", "Sat,Sun 09:00-17:00", id="names and both Sundays"),
        pytest.param("0 6 * * 1", "0 20 * * 5", None, id="one span of several days"),
        pytest.param("0 6 1,15 * *", "0 20 1,15 * *", "monthly 1,15 06:00-20:00", id="days of the month"),
        pytest.param("0 6 24 12 *", "0 20 24 12 *", "12-24 06:00-20:00", id="a date of every year"),
        pytest.param("0 6 1-5 3 *", "0 20 1-5 3 *", "03-01..03-05 06:00-20:00", id="dates of every year"),
        pytest.param("0 6 1 * *", "0 20 3 * *", None, id="one span of several days of the month"),
        pytest.param("0 22 1 * *", "0 6 2 * *", None, id="over the night of a day of the month"),
        pytest.param("0 6 1 * 1", "0 20 1 * 1", None, id="a day of the month or of the week"),
        pytest.param("0 6 5-1 3 *", "0 20 5-1 3 *", None, id="days of a month that end before they begin"),
        pytest.param("0 6 32 * *", "0 20 32 * *", None, id="no day of a month"),
        pytest.param("0 6 30 2 *", "0 20 30 2 *", None, id="no date"),
        pytest.param("0 6 1 1,7 *", "0 20 1 1,7 *", None, id="several months"),
        pytest.param("0 6 1 */2 *", "0 20 1 */2 *", None, id="every other month"),
        pytest.param("*/5 * * * *", "0 20 * * *", None, id="again and again"),
        pytest.param("0 8 * * 1-5", "0 8 * * 1-5", None, id="no time at all"),
        pytest.param("0 22 * * 5", "0 6 * * 5", None, id="an end that comes six days later"),
        pytest.param("0 25 * * *", "0 6 * * *", None, id="no hour"),
    ],
)
def test_cron_expressions_are_read_as_days_and_times_or_not_at_all(start: str, end: str, times: str | None) -> None:
    assert cron_times(start, end) == times


EXTERNAL = "AverageValue"


@pytest.mark.parametrize(
    ("kind", "stated", "target"),
    [
        pytest.param("rabbitmq", {"queueLength": "5"}, {"type": EXTERNAL, "averageValue": "5"}, id="of KEDA 2.0"),
        pytest.param("gcp-pubsub", {"subscriptionSize": "3"}, {"type": EXTERNAL, "averageValue": "3"}, id="deprecated"),
        pytest.param(
            "redis-streams",
            {"consumerGroup": "g", "lagCount": "10"},
            {"type": EXTERNAL, "averageValue": "10"},
            id="the lag of a consumer group",
        ),
        pytest.param(
            "redis-streams",
            {"consumerGroup": "g", "streamLength": "10"},
            {"type": EXTERNAL, "averageValue": "5"},
            id="a length that does not count beside a consumer group",
        ),
        pytest.param(
            "redis-streams", {"streamLength": "50"}, {"type": EXTERNAL, "averageValue": "50"}, id="of a stream"
        ),
        pytest.param(
            "redis-streams", {"stream": "s"}, {"type": EXTERNAL, "averageValue": "5"}, id="the default of a stream"
        ),
        pytest.param("datadog", {"targetValue": "7"}, {"type": EXTERNAL, "averageValue": "7"}, id="of a cluster agent"),
        pytest.param(
            "datadog", {"queryValue": "7", "type": "global"}, {"type": "Value", "value": "7"}, id="a type of Datadog"
        ),
        pytest.param(
            "selenium-grid", {"nodeMaxSessions": "4"}, {"type": EXTERNAL, "averageValue": "1"}, id="always one"
        ),
    ],
)
def test_the_target_is_in_the_field_that_keda_reads(kind: str, stated: dict[str, str], target: dict[str, str]) -> None:
    body = copy.deepcopy(OBJECTS["orders"])
    body["spec"]["triggers"] = [{"type": kind, "metadata": stated}]
    found = read(body)
    assert found.is_whole
    assert [each["external"]["target"] for each in found.hpa["spec"]["metrics"]] == [target]


@pytest.mark.parametrize(
    ("kind", "stated", "path", "why"),
    [
        pytest.param("azure-servicebus", {"queueLength": "10"}, "messageCount", "not given: 5", id="a field of KEDA 1"),
        pytest.param("kafka", {"maxReplicaCount": "6"}, "maxReplicaCount", "does not read it", id="of the spec"),
        pytest.param("prometheus", {"metricType": "Value"}, "metricType", "does not read it", id="of the trigger"),
    ],
)
def test_a_target_that_is_not_given_and_a_field_in_a_wrong_place_are_named(
    kind: str, stated: dict[str, str], path: str, why: str
) -> None:
    body = copy.deepcopy(OBJECTS["checkout"])
    trigger = body["spec"]["triggers"][0]
    trigger |= {"type": kind, "metadata": (trigger["metadata"] if kind == "prometheus" else {}) | stated}
    assert why in read(body).left[f"spec.triggers[0].metadata.{path}"]


def test_further_targets_of_one_trigger_are_lost_by_name() -> None:
    body = copy.deepcopy(OBJECTS["orders"])
    stated = {"messageCountTarget": "50", "messageSpoolUsageTarget": "100"}
    body["spec"]["triggers"] = [{"type": "solace-event-queue", "metadata": stated}]
    found = read(body)
    assert found.hpa is not None
    assert not found.is_whole
    assert "metric of its own" in found.left["spec.triggers[0].metadata.messageSpoolUsageTarget"]


def test_the_empty_formula_that_keda_writes_loses_nothing() -> None:
    body = copy.deepcopy(OBJECTS["tuned"])
    body["spec"]["advanced"]["scalingModifiers"] = {}
    assert read(body).is_whole


@pytest.mark.parametrize(
    ("changes", "path", "why"),
    [
        pytest.param(
            {"maxReplicaCount": "${MAX}"}, "spec.maxReplicaCount", "'${MAX}' is not a number", id="a variable"
        ),
        pytest.param({"minReplicaCount": "2"}, "spec.minReplicaCount", "'2' is not a number", id="a text"),
        pytest.param({"minReplicaCount": 13}, "spec", "maxReplicas: Invalid value: 12", id="more than the most"),
        pytest.param({"scaleTargetRef": {"name": False}}, "spec.scaleTargetRef", "quotes", id="a name like a truth"),
        pytest.param({"scaleTargetRef": {"deploymentName": "a"}}, "spec.scaleTargetRef", "names nothing", id="KEDA 1"),
    ],
)
def test_what_no_api_server_would_take_makes_no_hpa(changes: dict[str, Any], path: str, why: str) -> None:
    body = copy.deepcopy(OBJECTS["orders"])
    body["spec"] |= changes
    found = read(body)
    assert (found.hpa, found.is_whole) == (None, False)
    assert why in found.left[path]


def test_a_least_that_is_no_number_is_named_beside_metrics_of_the_pods_too() -> None:
    cpu = {"type": "cpu", "metricType": "Utilization", "metadata": {"value": "60"}}
    body = OBJECTS["orders"] | {"spec": {"scaleTargetRef": {"name": "a"}, "minReplicaCount": "2", "triggers": [cpu]}}
    found = read(body)
    assert found.hpa is None
    assert "'2' is not a number" in found.left["spec.minReplicaCount"]


def test_types_of_a_cpu_target_that_contradict_each_other_are_lost_and_a_missing_one_is_named() -> None:
    def of_trigger(**trigger: Any) -> Any:
        spec = {"scaleTargetRef": {"name": "a"}, "minReplicaCount": 2, "triggers": [{"type": "cpu"} | trigger]}
        return read(OBJECTS["orders"] | {"spec": spec})

    both = of_trigger(metricType="AverageValue", metadata={"type": "Utilization", "value": "80"})
    assert not both.is_whole
    assert "keep one of them" in both.left["spec.triggers[0].metadata.type"]
    assert of_trigger(metricType="Utilization", metadata={"type": "Utilization", "value": "80"}).is_whole
    neither = of_trigger(metadata={"value": "80"})
    assert neither.is_whole
    assert "Utilization is taken" in neither.left["spec.triggers[0].metricType"]


@pytest.mark.parametrize("value", ["${LENGTH}", "{{ .Values.length }}", "0", "-1", "5%"])
def test_a_target_that_is_no_number_above_0_is_lost_by_name(value: str) -> None:
    body = copy.deepcopy(OBJECTS["lagged"])
    body["spec"]["triggers"][0]["metadata"]["lagThreshold"] = value
    found = read(body)
    assert not found.is_whole
    assert found.left["spec.triggers[0].metadata.lagThreshold"] == f"{value!r} is not a number above 0"


def test_an_object_of_keda_1_is_refused_by_its_version() -> None:
    found = read(OBJECTS["orders"] | {"apiVersion": "keda.k8s.io/v1alpha1"})
    assert (found.hpa, found.is_whole) == (None, False)
    assert "keda.sh/v1alpha1" in found.left["apiVersion"]


def test_a_field_that_is_given_twice_is_named() -> None:
    found = imported(FileManifest("a.yaml", OBJECTS["orders"], ("spec.minReplicaCount",)))
    assert found.left["spec.minReplicaCount"] == "it is given twice, and the last one counts"


def test_a_schedule_stays_within_what_the_hpa_may_have() -> None:
    body = copy.deepcopy(OBJECTS["office"])
    body["spec"] |= {"minReplicaCount": 0, "maxReplicaCount": 5}
    found = read(body)
    schedule = schedule_of(found.hpa)
    assert schedule is not None
    assert schedule.rules == ["Mon,Tue,Wed,Thu,Fri 08:00-18:00 minReplicas=5"]
    assert schedule.otherwise == ["minReplicas=1"]
    check_schedule(found.hpa)
    assert {"spec.minReplicaCount", "spec.triggers[0].metadata.desiredReplicas"} <= found.left.keys()


@pytest.mark.parametrize("zone", ["GMT+8", "", "Europe/Nowhere"])
def test_a_time_zone_that_is_not_known_is_lost_by_name(zone: str) -> None:
    body = copy.deepcopy(OBJECTS["office"])
    body["spec"]["triggers"][0]["metadata"]["timezone"] = zone
    found = read(body)
    assert not found.is_whole
    assert schedule_of(found.hpa) is None
    assert f"{zone!r} is not a time zone" in found.left["spec.triggers[0].metadata.timezone"]


def test_an_empty_answer_of_a_prometheus_is_named_where_keda_takes_it_for_0() -> None:
    assert "no 0" in read(OBJECTS["checkout"]).left["spec.triggers[0].metadata.ignoreNullValues"]


@pytest.mark.parametrize(("name", "option"), [("paused-scale-in", "--scale-in"), ("paused-scale-out", "--scale-out")])
def test_a_pause_of_one_direction_is_named_with_its_option(name: str, option: str) -> None:
    body = copy.deepcopy(OBJECTS["orders"])
    body["metadata"]["annotations"] = {f"autoscaling.keda.sh/{name}": "true"}
    assert read(body).left[f"metadata.annotations[autoscaling.keda.sh/{name}]"].endswith(option)


def test_jobs_beside_scaled_objects_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, job = tmp_path / "a.yaml", {"kind": "ScaledJob", "metadata": {"name": "nightly"}}
    file.write_text(yaml.safe_dump_all([OBJECTS["orders"], job]))
    done = Cli(monkeypatch)("import", "keda", "-f", str(file))
    assert done.exit_code == 0
    assert "ScaledJob nightly starts Jobs" in done.stderr
    file.write_text(yaml.safe_dump(job))
    done = Cli(monkeypatch)("import", "keda", "-f", str(file))
    assert done.exit_code == 2
    assert "It has objects of other kinds: ScaledJob." in done.stderr


def test_a_template_as_the_target_is_refused_and_one_in_a_query_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body, file = copy.deepcopy(OBJECTS["logs"]), tmp_path / "a.yaml"
    body["spec"]["triggers"][0]["metadata"]["query"] = '{app="logs"} | line_format "{{ .status }}"'
    file.write_text(yaml.safe_dump(body))
    assert Cli(monkeypatch)("import", "keda", "-f", str(file)).exit_code == 0
    body["spec"]["scaleTargetRef"]["name"] = "{{ .Release.Name }}"
    file.write_text(yaml.safe_dump(body))
    done = Cli(monkeypatch)("import", "keda", "-f", str(file))
    assert done.exit_code == 2
    assert "a template that is not rendered" in done.stderr


@pytest.mark.parametrize(
    ("file", "text", "step"),
    [
        pytest.param("templates/a.yaml", "kind: {{ .x }}\n", "helm template {folder}", id="a template"),
        pytest.param("Chart.yaml", "name: x\n", "helm template {folder}", id="a chart"),
        pytest.param("values.yaml", "name: x\n", "helm template CHART -f {folder}/values.yaml", id="values"),
        pytest.param("kustomization.yaml", "name: x\n", "kubectl kustomize {folder}", id="a kustomization"),
        pytest.param("a.yaml", "name: x\n", "helm template CHART -f {folder}/a.yaml", id="an object of no kind"),
    ],
)
def test_what_has_to_be_rendered_first_is_to_be_given_to_the_import_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, text: str, step: str
) -> None:
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    done = Cli(monkeypatch)("import", "keda", "-f", str(path))
    assert done.exit_code == 2
    assert f"{step.format(folder=tmp_path)} | fleethpa import keda -f -" in done.stderr, done.stderr


def test_a_trigger_that_is_in_no_hpa_fails_and_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(yaml.safe_dump(OBJECTS["pushy"]))
    done = Cli(monkeypatch)("import", "keda", "-f", str(file))
    assert done.exit_code == 1
    assert "pushy: HPA keda-hpa-pushy, which scales by less than KEDA does" in done.stderr
    assert "spec.triggers[0]: a trigger 'external-push' is not known here" in done.stderr
    document = fits("KedaImportList", Cli(monkeypatch)("import", "keda", "-f", str(file), "-o", "json").stdout)
    assert document["items"][0]["everyTrigger"] is False


def test_queries_of_two_servers_are_not_one_file_of_rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = copy.deepcopy(OBJECTS["held"])
    other["spec"]["triggers"][0]["metadata"]["serverAddress"] = "http://other:9090"
    file = tmp_path / "a.yaml"
    file.write_text(yaml.safe_dump_all([OBJECTS["checkout"], other]))
    done = Cli(monkeypatch)("import", "keda", "-f", str(file), "--rules", str(tmp_path / "rules.yaml"))
    assert done.exit_code == 2
    assert "A file of rules is of one Prometheus" in done.stderr
    assert not (tmp_path / "rules.yaml").exists()


def test_the_table_of_the_documentation_is_that_of_the_code() -> None:
    rows = re.findall(
        r"^\| `([\w-]+)` \| `(\w+)`(?: \((\d+)\))? \| (.*) \|$", (ROOT / "docs/keda.md").read_text(), re.M
    )
    assert {kind: (target, default, source) for kind, target, default, source in rows} == {
        kind: tuple(each) for kind, each in TRIGGERS.items()
    }


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of each value in a document."""
    yield path
    if isinstance(value, dict | list):
        for key, each in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _places(each, (*path, key))


@pytest.mark.parametrize(
    "odd", [None, 5, -1, True, "x", "9" * 5_000, [], [1], {}, {"a": 1}, 1.5], ids=lambda value: repr(value)[:9]
)
def test_a_value_of_any_type_in_any_place_is_read_or_named_and_never_an_error(odd: Any) -> None:
    names = ("checkout", "office", "held")
    for whole in (OBJECTS[name] for name in names):
        for path in _places(whole):
            if not path or path in (("kind",), ("apiVersion",)):
                continue
            body = copy.deepcopy(whole)
            inner = body
            for key in path[:-1]:
                inner = inner[key]
            inner[path[-1]] = odd
            found = read(body)
            assert found.hpa is not None or found.left, path


def test_triggers_that_are_no_list_are_lost_by_name() -> None:
    body = copy.deepcopy(OBJECTS["checkout"])
    body["spec"]["triggers"] = {"type": "cpu"}
    found = read(body)
    assert (found.hpa, found.is_whole) == (None, False)
    assert found.left["spec.triggers"] == "it is no list"
