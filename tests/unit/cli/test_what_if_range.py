"""`what-if` with values that the controller cannot calculate with, and with specs from manifests."""

from pathlib import Path

import pytest

from schemas.entries import WHOLE_PARTITION_KEY
from schemas.observed import Heartbeat, ScaleSet, Target
from schemas.settings import ClusterSettings, SettingsSet
from tests.kit.cli import Cli, Fleet
from tests.kit.published import fits

NAME = "east/shop/checkout"
OUT = "out of range"
HELD = "held by the overflow guard (hold-on-overflow)"


@pytest.fixture
def fleet() -> Fleet:
    made = Fleet()
    made.settle()
    made.checkpoint()
    return made


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, fleet: Fleet, tmp_path: Path) -> Cli:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FLEETHPA_RUNTIME_DIR", str(tmp_path))
    return Cli(monkeypatch, fleet)


@pytest.mark.parametrize(
    ("option", "value", "code", "stated"),
    [
        pytest.param("--metric", "cpu=1e18", 2, OUT, id="beyond int64 thousandths"),
        pytest.param("--metric", "cpu=-1e18", 2, OUT, id="below"),
        pytest.param("--metric", "cpu=1e400", 2, OUT, id="beyond a double"),
        pytest.param("--metric", "cpu=9223372036854775e0", 2, OUT, id="in range for a pod, not for three"),
        pytest.param("--metric", "cpu=+99999999999999999999%", 2, OUT, id="relative"),
        pytest.param("--metric", f"cpu={'9' * 30}%", 2, OUT, id="a utilization"),
        pytest.param("--metric", "cpu=10Gi", 0, HELD, id="a percentage that leaves 32 bits"),
        pytest.param("--metric", "cpu=-5", 0, HELD, id="a negative proposal"),
        pytest.param("--metric", "cpu=1e3", 0, "3 → 6", id="in range"),
        pytest.param("--metric", "cpu=90", 2, "Next: --metric cpu=90%", id="a utilization without its unit"),
        pytest.param("--set", "cpu=70", 2, "Next: --set cpu=70%", id="a target of a utilization without its unit"),
        pytest.param("--set", "cpu=500m", 0, "500m", id="a quantity per pod"),
        pytest.param("--metric", "cpu=NaN", 2, "'NaN' is not a quantity", id="not a number"),
        pytest.param("--metric", "cpu=", 2, "--metric cpu=90%", id="no value"),
        pytest.param("--metric", "cpu=٣", 2, "is not a quantity", id="digits of another script"),
        pytest.param("--metric", "gpu=1", 2, "It has cpu.", id="no such metric"),
        pytest.param("--set", "cpu=1e400", 2, OUT, id="a target beyond a double"),
        pytest.param("--set", "maxReplicas=²", 2, "takes a whole number", id="a digit that is not a number"),
        pytest.param(
            "--set", "minReplicas=2,cpu=9%", 2, "Next: --set minReplicas=2 --set cpu=9%", id="two fields in one --set"
        ),
        pytest.param("--metric", "cpu=9%,rps=1", 2, "Next: --metric cpu=9% --metric rps=1", id="two metrics in one"),
        pytest.param("--set", "maxReplicas=99999999999", 2, "an integer of 32 bits", id="a maximum beyond 32 bits"),
        pytest.param(
            "--set", "scaleDown.stabilizationWindowSeconds=--5", 2, "an integer of 32 bits", id="a double sign"
        ),
    ],
)
def test_values_out_of_range_are_errors_or_named_with_their_guard(
    run: Cli, option: str, value: str, code: int, stated: str
) -> None:
    result = run("what-if", NAME, option, value)
    assert result.exit_code == code, result.stderr
    assert stated in (result.stderr if code else result.stdout)


def test_an_overflow_that_no_guard_holds_is_named_too(run: Cli, fleet: Fleet) -> None:
    settings = ClusterSettings(hold_on_overflow=False)
    fleet.append(SettingsSet(cluster="*", settings=settings), key=WHOLE_PARTITION_KEY)
    fleet.now_ms += 15_000
    fleet.observe(3, 300)
    result = run("what-if", NAME, "--metric", "cpu=10Gi", "-o", "json")
    document = fits("WhatIf", result.stdout)
    [metric] = document["whatIf"]["metrics"]
    assert metric["overflow"].startswith("overflow: no guard holds it")
    [metric] = document["recorded"]["metrics"]
    assert metric["overflow"] == ""


def test_replicas_that_are_not_known_are_shown_so(run: Cli, fleet: Fleet) -> None:
    target = Target(group="apps", kind="Deployment", name="checkout")
    fleet.append(ScaleSet(target=target, error='deployments.apps "checkout" not found', session="s"))
    for _ in range(4):
        fleet.append(Heartbeat(session="s", watches=["pods", "autoscalers", "scales"]), after_ms=5_000)
    result = run("what-if", NAME, "--set", "maxReplicas=9")
    assert (result.exit_code, "<unknown>   winner -   (recorded <unknown>)" in result.stdout) == (0, True)
    document = fits("WhatIf", run("what-if", NAME, "--set", "maxReplicas=9", "-o", "json").stdout)
    assert document["whatIf"]["currentReplicas"] is None
    assert document["whatIf"]["finalDesiredReplicas"] is None


def test_a_manifest_is_tried_in_place_of_the_recorded_spec(run: Cli) -> None:
    Path("hpa.yaml").write_text(
        "apiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nmetadata: {name: checkout, namespace: shop}\n"
        "spec:\n  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: checkout}\n  maxReplicas: 9\n"
        "  metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 30}}}]\n"
    )
    assert "3 → 6" in run("what-if", NAME, "-f", "hpa.yaml").stdout
    assert "3 → 5" in run("what-if", NAME, "-f", "hpa.yaml", "--set", "maxReplicas=5").stdout
    other = run("what-if", NAME, "-f", "-", stdin=Path("hpa.yaml").read_text().replace("name: checkout,", "name: web,"))
    assert (other.exit_code, "no HPA shop/checkout there" in other.stderr) == (2, True)
    assert "The HPAs there are: shop/web." in other.stderr
