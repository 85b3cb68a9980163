"""Prometheus evaluates the rules of `compose/` itself (`promtool test rules`): what they record, and an alert."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

ROOT: Final = Path(__file__).parents[2]
RECORDED: Final = ROOT / "compose" / "prometheus-kube-state-metrics.yaml"
ALERTS: Final = ROOT / "compose" / "prometheus-alerts.yaml"
pytestmark = [
    pytest.mark.prometheus,
    pytest.mark.skipif(shutil.which("promtool") is None, reason="NO PROMETHEUS: there is no promtool on the PATH"),
]
NAMED: Final = 'cluster="east",namespace="shop"'
INFO: Final = "fleethpa_hpa_info"
PREFIX: Final = "kube_horizontalpodautoscaler_"
METRICS: Final = ("spec_target_metric", "status_target_metric")
"""Families with a series for each metric of an HPA."""


def promtool(*arguments: str) -> str:
    """Run it; fail with all that it says."""
    done = subprocess.run(["promtool", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def rules(path: Path) -> list[dict[str, Any]]:
    """All rules of a file."""
    return [rule for group in yaml.safe_load(path.read_text(encoding="utf-8"))["groups"] for rule in group["rules"]]


def info(name: str, origin: str, instance: str) -> str:
    """The series that says what an HPA is, of one decider."""
    target = 'target_api_version="apps/v1",target_kind="Deployment"'
    return f'{INFO}{{{NAMED},hpa="{name}",origin="{origin}",{target},target_name="{name}",instance="{instance}"}}'


def compare(folder: Path, series: dict[str, str], expected: dict[str, list[tuple[str, float]]], **more: Any) -> None:
    """Let promtool compare what expressions are with what they are expected to be, three minutes on."""
    test = {
        "interval": "15s",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {
                "expr": expr,
                "eval_time": "3m",
                "exp_samples": [{"labels": name, "value": value} for name, value in found],
            }
            for expr, found in expected.items()
        ],
    } | more
    file = folder / "rules-test.yaml"
    body = {"rule_files": [str(RECORDED), str(ALERTS)], "evaluation_interval": "15s", "tests": [test]}
    file.write_text(yaml.safe_dump(body))
    promtool("test", "rules", str(file))


def test_prometheus_takes_all_rules() -> None:
    stated = promtool("check", "rules", "--lint=none", str(RECORDED), str(ALERTS))
    assert f"{len(rules(RECORDED))} rules found" in stated
    assert f"{len(rules(ALERTS))} rules found" in stated


def test_what_kube_state_metrics_no_longer_sees_is_recorded_and_what_it_sees_is_left_to_it(tmp_path: Path) -> None:
    """HPA `web` is in the hub only, and two deciders export it for a moment; `api` is an object of its cluster."""
    series = {
        info("web", "central", "a"): "1x20",
        info("web", "central", "b"): "1x20",
        info("api", "cluster", "a"): "1x20",
    }
    expected: dict[str, list[tuple[str, float]]] = {}
    own = f'{NAMED},horizontalpodautoscaler="web"'
    for rule in rules(RECORDED):
        record, name = rule["record"], rule["record"].removeprefix(PREFIX)
        source = re.search(r"\((fleethpa_hpa_\w+) and on", rule["expr"])
        if name == "info":
            target = 'scaletargetref_api_version="apps/v1",scaletargetref_kind="Deployment",scaletargetref_name="web"'
            expected[record] = [(f"{record}{{{own},{target}}}", 1)]
        elif name in ("annotations", "labels"):
            expected[record] = [(f"{record}{{{own}}}", 1)]
        elif name == "status_condition":
            state = 'condition="ScalingActive",status="false",reason="FailedGetResourceMetric"'
            series |= {f'fleethpa_hpa_{name}{{{NAMED},hpa="{hpa}",{state}}}': "1x20" for hpa in ("web", "api")}
            counts = {"true": 0, "false": 1, "unknown": 0}
            where = f'{own},condition="ScalingActive"'
            expected[record] = [(f'{record}{{{where},status="{each}"}}', count) for each, count in counts.items()]
        else:
            assert source is not None, record
            more = ',metric_name="cpu",metric_target_type="utilization"' if name in METRICS else ""
            series |= {
                f'{source[1]}{{{NAMED},hpa="web"{more}}}': "7x20",
                f'{source[1]}{{{NAMED},hpa="api"{more}}}': "9x20",
            }
            expected[record] = [(f"{record}{{{own}{more}}}", 7)]
    assert len(expected) == len(rules(RECORDED))
    compare(tmp_path, series, expected)


def test_a_saturated_hpa_raises_its_alert_only_once_it_has_lasted(tmp_path: Path) -> None:
    alert = next(rule for rule in rules(ALERTS) if rule.get("alert") == "FleethpaHpaSaturated")
    minutes = int(alert["for"].removesuffix("m"))
    labels = 'alertname="FleethpaHpaSaturated",cluster="east",hpa="web",namespace="shop"'
    extra = "".join(f',{name}="{value}"' for name, value in (alert.get("labels") or {}).items())

    def firing(number: int) -> list[dict[str, Any]]:
        state = f'ALERTS{{{labels}{extra},alertstate="firing"}}'
        return [{"labels": state, "value": 1}] * number

    query = 'ALERTS{alertname="FleethpaHpaSaturated",alertstate="firing"}'
    moments = [(minutes - 1, 0), (minutes + 1, 1)]
    tests = [{"expr": query, "eval_time": f"{at}m", "exp_samples": firing(number)} for at, number in moments]
    saturated = f'fleethpa_hpa_saturated{{{NAMED},hpa="web"}}'
    calm = f'fleethpa_hpa_saturated{{{NAMED},hpa="api"}}'
    lasts = 4 * (minutes + 2)
    compare(tmp_path, {saturated: f"1x{lasts}", calm: f"0x{lasts}"}, {}, promql_expr_test=tests)
