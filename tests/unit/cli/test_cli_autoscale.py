"""`fleethpa autoscale`: what it creates is what kubectl's verb of that name would."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from schemas.observed import AutoscalerSet
from tests.kit.cli import Broker, Cli


def utilization(resource: str, percent: int) -> dict[str, Any]:
    target = {"type": "Utilization", "averageUtilization": percent}
    return {"type": "Resource", "resource": {"name": resource, "target": target}}


def average(resource: str, value: str) -> dict[str, Any]:
    return {
        "type": "Resource",
        "resource": {"name": resource, "target": {"type": "AverageValue", "averageValue": value}},
    }


def specs(broker: Broker) -> list[dict[str, Any]]:
    return [body.hpa["spec"] for _, _, body in broker.written if isinstance(body, AutoscalerSet)]


@pytest.mark.parametrize(
    ("options", "least", "metrics"),
    [
        pytest.param((), 1, [utilization("cpu", 80)], id="the default of the API server"),
        pytest.param(("--min", "3"), 3, [utilization("cpu", 80)], id="a minimum"),
        pytest.param(("--min", "0"), 1, [utilization("cpu", 80)], id="0 counts as none, as in kubectl"),
        pytest.param(("--cpu", "70%"), 1, [utilization("cpu", 70)], id="percent"),
        pytest.param(("--cpu-percent", "70"), 1, [utilization("cpu", 70)], id="the older word"),
        pytest.param(("--cpu-percent", "-1"), 1, [utilization("cpu", 80)], id="a negative percentage"),
        pytest.param(("--cpu", "500m"), 1, [average("cpu", "500m")], id="an average"),
        pytest.param(("--cpu", "500"), 1, [average("cpu", "500m")], id="a bare number of cpu is milli"),
        pytest.param(("--memory", "200"), 1, [average("memory", "200Mi")], id="and of memory Mi"),
        pytest.param(
            ("--cpu", "70%", "--memory", "1Gi"), 1, [utilization("cpu", 70), average("memory", "1Gi")], id="both"
        ),
    ],
)
def test_the_spec_is_kubectls(
    run: Cli, broker: Broker, options: tuple[str, ...], least: int, metrics: list[dict[str, Any]]
) -> None:
    done = run("autoscale", "deployment/web", "--max", "10", "-n", "shop", *options)

    assert (done.exit_code, done.stdout) == (0, "hpa east/shop/web created\n"), done.output
    reference = {"kind": "Deployment", "name": "web", "apiVersion": "apps/v1"}
    expected = {"scaleTargetRef": reference, "minReplicas": least, "maxReplicas": 10, "metrics": metrics}
    assert specs(broker) == [expected]


@pytest.mark.parametrize(
    ("words", "targets"),
    [
        pytest.param(("deploy", "web"), ["Deployment/web"], id="a short name"),
        pytest.param(("sts", "db", "cache"), ["StatefulSet/db", "StatefulSet/cache"], id="several of one type"),
        pytest.param(("rs/a", "deployments.apps/b"), ["ReplicaSet/a", "Deployment/b"], id="types of their own"),
        pytest.param(("rc/old",), ["ReplicationController/old"], id="the core group"),
    ],
)
def test_a_workload_is_named_as_in_kubectl(
    run: Cli, broker: Broker, words: tuple[str, ...], targets: list[str]
) -> None:
    assert run("autoscale", *words, "--max", "10", "--name", "named").exit_code == (0 if len(targets) == 1 else 2)
    broker.written.clear()
    assert run("autoscale", *words, "--max", "10", "--yes").exit_code == 0
    references = [each["scaleTargetRef"] for each in specs(broker)]
    assert ["{kind}/{name}".format_map(each) for each in references] == targets
    assert {each["apiVersion"] for each in references} <= {"apps/v1", "v1"}


def test_manifests_of_workloads_are_read(run: Cli, broker: Broker, tmp_path: Path) -> None:
    file = tmp_path / "all.yaml"
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}}
    workload = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "shop"}}
    file.write_text(yaml.safe_dump_all([service, workload]))

    assert run("autoscale", "-f", str(file), "--max", "4").stdout == "hpa east/shop/web created\n"
    file.write_text(yaml.safe_dump(service))
    refused = run("autoscale", "-f", str(file), "--max", "4")
    assert (refused.exit_code, "no workload in the input" in refused.stderr) == (2, True)
    assert len(specs(broker)) == 1


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        pytest.param(("deployment/checkout", "-n", "shop"), 1, "hpa east/shop/checkout already exists", id="is there"),
        pytest.param((), 2, "Name workloads as TYPE/NAME or TYPE NAME", id="nothing named"),
        pytest.param(("web",), 2, "Name workloads as TYPE/NAME or TYPE NAME", id="a name alone"),
        pytest.param(("daemonset/web",), 2, "autoscale does not know the type daemonset", id="a type without /scale"),
        pytest.param(
            ("deployment.extensions/web",), 2, "autoscale does not know the type deployment.ext", id="a group"
        ),
        pytest.param(("deploy/web", "--cpu", "70 %"), 2, "--cpu '70 %' cannot be a target", id="no percentage"),
        pytest.param(("deploy/web", "--cpu", "much"), 2, "quantities must match", id="no quantity"),
        pytest.param(("deploy/web", "--cpu", "1", "--cpu-percent", "5"), 2, "are the same", id="cpu twice"),
        pytest.param(("deploy/web", "--min", "11"), 2, "must be greater than or equal to `minReplicas`", id="bounds"),
    ],
)
def test_what_cannot_be_created_is_refused_with_the_reason(
    run: Cli, broker: Broker, arguments: tuple[str, ...], code: int, text: str
) -> None:
    refused = run("autoscale", *arguments, "--max", "10")

    assert (refused.exit_code, text in refused.stderr) == (code, True), refused.output
    assert broker.written == []


def test_a_dry_run_writes_nothing(run: Cli, broker: Broker) -> None:
    done = run("autoscale", "deploy/web", "--max", "3", "--dry-run")

    assert (done.exit_code, broker.written) == (0, [])
    assert "hpa east/default/web created (dry run)" in done.stdout
