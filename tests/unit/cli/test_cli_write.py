"""Write verbs over a fleet in memory: what would be written, what is refused, and with which text."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiokafka.errors import KafkaTimeoutError, RequestTimedOutError, TopicAuthorizationFailedError

from fleethpa.changes.manifests import check_hpa, read_input
from fleethpa.changes.settings import parse_changes
from fleethpa.frame import session
from fleethpa.frame.errors import CommandError
from fleethpa.frame.writer import Fate, RefusedRecordError, SentRecord, Writer, _fates_in
from schemas.codec import encode
from schemas.entries import WHOLE_PARTITION_KEY, Entry, LogRecord, Source
from schemas.observed import (
    AutoscalerDeleted,
    AutoscalerList,
    AutoscalerSet,
    ClusterReport,
    Command,
    ConflictingAutoscaler,
    Heartbeat,
    Target,
)
from schemas.settings import ClusterSettings, SettingsSet
from streams.history.past import Folded, Past
from tests.kit.cli import Broker, Cli, Fleet, hpa
from tests.kit.published import fits

GOOD = """
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web, namespace: shop}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  maxReplicas: 8
"""
NATIVE = SettingsSet(cluster="east", settings=ClusterSettings(native_controller="present"))
DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec: {replicas: 3}
"""
FIVE_ERRORS = """
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web, namespace: shop}
spec:
  scaleTargetRef: {kind: "", name: ""}
  minReplicas: -1
  maxReplicas: 0
  metrics:
    - {type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: -5}}}
"""


# --- apply ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "before", "after", "changes"),
    [
        pytest.param("fleethpa.io/budget", "", "exempt", True, id="set"),
        pytest.param("fleethpa.io/budget", "exempt", "", True, id="taken away"),
        pytest.param("fleethpa.io/budget", "exempt", "exempt", False, id="the same"),
        pytest.param("fleethpa.io/stand-in", "hold", "floor=3", True, id="what the stand-in reads"),
    ],
)
def test_an_annotation_of_fleethpas_that_alone_changed_is_applied_and_is_a_difference(
    run: Cli, fleet: Fleet, broker: Broker, name: str, before: str, after: str, changes: bool
) -> None:
    words = f" (annotation {name})" if changes else ""

    def with_budget(value: str) -> str:
        own = f', annotations: {{{name}: "{value}"}}' if value else ""
        return GOOD.replace("namespace: shop}", f"namespace: shop{own}}}")

    body, _ = check_hpa(read_input((_written(run, with_budget(before)),)).hpas[0], "shop")
    fleet.append(AutoscalerSet(hpa=body, origin="central", mode="shadow"))
    fleet.checkpoint()
    compared = run("diff", "-f", "-", stdin=with_budget(after))
    applied = run("apply", "-f", "-", stdin=with_budget(after))
    assert applied.stdout == f"hpa east/shop/web {'configured' if words else 'unchanged'}{words}\n"
    assert compared.exit_code == (1 if words else 0), compared.output
    assert (name in compared.stdout) == bool(words)
    assert len(broker.written) == (1 if words else 0)


def test_apply_creates_a_central_hpa_with_author_and_reason(run: Cli, broker: Broker) -> None:
    result = run("apply", "-f", "-", "--reason", "PAY-1", stdin=GOOD)
    assert (result.exit_code, result.stdout) == (0, "hpa east/shop/web created\n")
    [(cluster, namespace, body)] = broker.written
    assert isinstance(body, AutoscalerSet)
    assert (cluster, namespace, body.origin, body.author, body.reason) == ("east", "shop", "central", "anna", "PAY-1")
    assert body.hpa["spec"]["minReplicas"] == 1


@pytest.fixture
def two_clusters(fleet: Fleet) -> Fleet:
    """`checkout` is east's own; central are `web` in east, in shadow, and another `web` in west, enforced."""
    fleet.append(AutoscalerSet(hpa=hpa("web", maxReplicas=8), origin="central", mode="shadow"))
    west = hpa("web", maxReplicas=5)
    fleet.append(ClusterReport(cluster="west", session="s", instance="o"), key=WHOLE_PARTITION_KEY)
    fleet.append(AutoscalerSet(hpa=west, origin="central", mode="enforce"), key="west/shop")
    fleet.checkpoint()
    return fleet


@pytest.mark.parametrize("output", ["yaml", "json"])
def test_what_get_has_printed_is_put_back_by_apply(
    run: Cli, two_clusters: Fleet, broker: Broker, tmp_path: Path, output: str
) -> None:
    backup = tmp_path / f"backup.{output}"
    backup.write_text(run("get", "hpa", "-A", "-o", output).stdout)
    checked = run("lint", "-f", str(backup))
    assert checked.exit_code == 0, checked.output
    assert run("diff", "-f", str(backup)).exit_code == 0
    unchanged = run("apply", "-f", str(backup)).stdout
    assert unchanged == "hpa east/shop/web unchanged\nhpa west/shop/web unchanged\n"

    two_clusters.append(AutoscalerSet(hpa=hpa("web", maxReplicas=3), origin="central", mode="enforce"))
    two_clusters.append(AutoscalerDeleted(name="web", origin="central"), key="west/shop")
    two_clusters.checkpoint()
    assert run("diff", "-f", str(backup)).exit_code == 1
    done = run("apply", "-f", str(backup), "--yes", "--reason", "restored")
    assert done.exit_code == 0, done.output
    assert "1 HPA left out" in done.stderr
    assert "Its mode is the one set for" not in done.stderr
    written = [(cluster, body.mode, body.hpa) for cluster, _, body in broker.written if isinstance(body, AutoscalerSet)]
    assert [each[:2] for each in written] == [("east", "shadow"), ("west", "enforce")]
    assert [each[2]["spec"]["maxReplicas"] for each in written] == [8, 5]
    # What the earlier object was given by others does not come along.
    assert not any({"uid", "generation"} & each[2]["metadata"].keys() for each in written)


def test_apply_of_what_get_has_printed_copies_nothing_to_another_cluster(
    run: Cli, two_clusters: Fleet, broker: Broker
) -> None:
    backup = run("get", "hpa", "-A", "-o", "yaml").stdout.replace("maxReplicas: 5", "maxReplicas: 6")
    done = run("apply", "-f", "-", "-C", "west", "--yes", stdin=backup)
    assert (done.exit_code, [cluster for cluster, _, _ in broker.written]) == (0, ["west"])
    assert "2 HPAs left out" in done.stderr


def test_apply_follows_the_version_of_the_cluster(run: Cli, fleet: Fleet, broker: Broker) -> None:
    fleet.append(Heartbeat(session="s", watches=["autoscalers"], kubernetes="v1.34.2"))
    fleet.checkpoint()
    tolerant = GOOD + "  behavior: {scaleUp: {tolerance: 50m}}\n"
    metric = "{type: External, external: {metric: {name: depth}, target: {type: Value, value: 5}}}"
    to_zero = f"{GOOD}  minReplicas: 0\n  metrics: [{metric}]\n"

    warned = run("apply", "-f", "-", "--dry-run", stdin=tolerant)
    refused = run("apply", "-f", "-", stdin=to_zero)

    assert "scaleUp.tolerance has no effect by the rules of 1.34" in warned.stderr
    assert (warned.exit_code, refused.exit_code, broker.written) == (0, 2, [])
    assert "must be greater than or equal to 1 (Kubernetes 1.34, gate HPAScaleToZero)" in refused.stderr


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param(
            "metric=queue_depth,above=0", "the spec has no metric queue_depth; it has cpu", id="not one of its metrics"
        ),
        pytest.param("metric=cpu,above=many", "above='many' is not a quantity", id="no quantity"),
        pytest.param("cpu", "'cpu' must be such as metric=queue_depth,above=0", id="another form"),
    ],
)
@pytest.mark.parametrize("verb", ["apply", "lint", "diff"])
def test_a_scale_down_block_of_no_use_is_refused_by_name(
    run: Cli, broker: Broker, verb: str, text: str, says: str
) -> None:
    block = f'annotations: {{fleethpa.io/scale-down-block: "{text}"}}'
    refused = run(verb, "-f", "-", stdin=GOOD.replace("namespace: shop}", f"namespace: shop, {block}}}"))
    said = refused.output.replace("\n", " ")
    assert (refused.exit_code, broker.written) == (1 if verb == "lint" else 2, []), said
    assert f"metadata.annotations[fleethpa.io/scale-down-block]: {says}" in " ".join(said.split())
    assert "web" in said


def test_apply_tells_what_changed_and_what_did_not(run: Cli, fleet: Fleet) -> None:
    body, errors = check_hpa(read_input((_written(run, GOOD),)).hpas[0], "shop")
    assert not errors
    fleet.append(AutoscalerSet(hpa=body, origin="central", mode="shadow"))
    assert run("apply", "-f", "-", stdin=GOOD).stdout == "hpa east/shop/web unchanged\n"
    changed = run("apply", "-f", "-", stdin=GOOD.replace("maxReplicas: 8", "maxReplicas: 6"))
    assert changed.stdout == "hpa east/shop/web configured (maxReplicas 8→6)\n"


def _written(run: Cli, text: str) -> str:
    import tempfile

    with tempfile.NamedTemporaryFile("w", suffix=".yaml", delete=False) as file:
        file.write(text)
    return file.name


def test_all_errors_of_a_manifest_are_reported_at_once(run: Cli, broker: Broker) -> None:
    result = run("apply", "-f", "-", stdin=FIVE_ERRORS)
    assert (result.exit_code, broker.written) == (2, [])
    for field in (
        "spec.scaleTargetRef.kind",
        "spec.scaleTargetRef.name",
        "spec.minReplicas",
        "spec.maxReplicas",
        "spec.metrics[0].resource.target.averageUtilization",
    ):
        assert f"* {field}: " in result.stderr


def test_apply_warns_where_the_targets_manifest_fixes_replicas(run: Cli) -> None:
    result = run("apply", "-f", "-", stdin=f"{DEPLOYMENT}---{GOOD}")
    assert result.exit_code == 0
    assert "Deployment/web sets spec.replicas" in result.stderr
    assert "sets spec.replicas" not in run("apply", "-f", "-", stdin=GOOD).stderr


def test_apply_refuses_a_target_that_a_native_hpa_drives_unless_in_shadow(
    run: Cli, fleet: Fleet, broker: Broker
) -> None:
    fleet.append(NATIVE, key="*")
    text = GOOD.replace("name: web}\n  max", "name: checkout}\n  max")
    refused = run("apply", "-f", "-", stdin=text)
    assert (refused.exit_code, broker.written) == (1, [])
    assert 'native HPA "checkout" (kube-controller-manager) owns Deployment/checkout' in refused.stderr
    assert "fleethpa adopt east/shop/checkout, then apply with the name checkout" in refused.stderr
    shadow = run("apply", "-f", "-", "--mode", "shadow", stdin=text)
    assert shadow.exit_code == 0
    assert isinstance(broker.written[0][2], AutoscalerSet)


def test_apply_over_an_hpa_of_its_name_that_fleethpa_drives_takes_over(run: Cli, broker: Broker) -> None:
    text = GOOD.replace("name: web", "name: checkout")
    result = run("apply", "-f", "-", stdin=text)
    assert (result.exit_code, result.stdout) == (0, "hpa east/shop/checkout created\n")
    assert "the central HPA takes over from the cluster's, in mode enforce" in result.stderr
    body = broker.written[0][2]
    assert isinstance(body, AutoscalerSet)
    assert body.mode is None


def test_apply_does_not_advise_what_switches_autoscaling_off(run: Cli, broker: Broker) -> None:
    text = GOOD.replace("name: web}\n  max", "name: checkout}\n  max")
    other = run("apply", "-f", "-", stdin=text)
    assert (other.exit_code, broker.written) == (1, [])
    assert "east/shop/web: fleethpa drives Deployment/checkout by HPA checkout" in other.stderr
    assert "name the HPA checkout in the manifest" in other.stderr
    hidden = run("apply", "-f", "-", "--mode", "shadow", stdin=GOOD.replace("name: web", "name: checkout"))
    assert (hidden.exit_code, broker.written) == (2, [])
    assert (
        "nothing will scale any more: Deployment/checkout in east/shop, which fleethpa by HPA checkout" in hidden.stderr
    )


def test_apply_refuses_a_target_that_a_scaled_object_drives(run: Cli, fleet: Fleet) -> None:
    other = ConflictingAutoscaler(
        kind="ScaledObject", name="web-so", target=Target(group="apps", kind="Deployment", name="web")
    )
    fleet.append(AutoscalerList(list_id="b", hpas=[hpa()], conflicting=[other], session="s"))
    fleet.checkpoint()
    result = run("apply", "-f", "-", stdin=GOOD)
    assert result.exit_code == 1
    assert "ScaledObject shop/web-so drives Deployment/web too" in result.stderr
    assert "kubectl --context east delete scaledobject web-so -n shop" in result.stderr


def test_dry_run_writes_nothing(run: Cli, broker: Broker) -> None:
    result = run("apply", "-f", "-", "--dry-run", stdin=GOOD)
    assert (result.exit_code, result.stdout, broker.written) == (0, "hpa east/shop/web created (dry run)\n", [])


@pytest.mark.parametrize(
    ("arguments", "text", "code", "stated"),
    [
        pytest.param(["-C", "mars"], GOOD, 4, "no cluster matches 'mars'", id="a wrong cluster name"),
        pytest.param(["-n", "other"], GOOD, 2, "namespaces do not match", id="another namespace than the manifest's"),
        pytest.param([], DEPLOYMENT, 2, "It has objects of other kinds: Deployment", id="no HPA in the input"),
        pytest.param([], "", 2, "The input is empty", id="nothing in the input"),
        pytest.param([], "a: [", 2, "line 1, column 5", id="no YAML"),
        pytest.param([], "- a", 2, "expected an object with apiVersion and kind, got a list", id="a list"),
        pytest.param([], "metadata: {}", 2, "an object has no kind", id="no kind"),
        pytest.param([], GOOD.replace("v2", "v3"), 2, "is invalid", id="an unknown version"),
        pytest.param([], GOOD.replace("8", "many"), 2, "is invalid", id="a text for a number"),
    ],
)
def test_wrong_input_to_apply(run: Cli, arguments: list[str], text: str, code: int, stated: str) -> None:
    result = run("apply", "-f", "-", *arguments, stdin=text)
    assert (result.exit_code, result.stdout) == (code, "")
    assert stated in result.stderr


def test_what_ingest_rejects_exits_1_with_its_reason(run: Cli, broker: Broker) -> None:
    broker.state, broker.reason = "rejected", "metadata.name: too long"
    result = run("apply", "-f", "-", stdin=GOOD)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "metadata.name: too long" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "done"),
    [(["apply", "-f", "-"], "hpa east/shop/web created"), (["pause", "--all", "--reason", "INC-7"], "fleet paused")],
)
def test_what_does_not_reach_the_log_in_time_is_not_said_to_be_in_force(
    run: Cli, broker: Broker, arguments: list[str], done: str
) -> None:
    broker.state = "unknown"
    result = run(*arguments, "--wait", "3s", stdin=GOOD)
    assert result.exit_code == 5
    assert result.stdout == f"{done} (written, not recorded yet)\n"
    assert "warning: not recorded within 3s, so that it may not be in force: fleethpa.autoscalers-0@0" in result.stderr
    assert "fleethpa doctor --only log" in result.stderr


def test_a_record_that_the_brokers_do_not_confirm_may_be_written_or_not(
    run: Cli, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hangs(*_: object) -> SentRecord:
        await asyncio.Event().wait()
        raise AssertionError("it waits for ever")

    monkeypatch.setattr(broker, "send", hangs)
    monkeypatch.setattr(session, "ANSWER_S", 0.01)
    result = run("pause", "--all", "--reason", "INC-7")
    assert (result.exit_code, result.stdout) == (3, "")
    assert "warning: Kafka has not confirmed this record, which may be written or not: fleet paused" in result.stderr
    assert "has not answered for" in result.stderr


def test_what_was_written_before_a_record_was_refused_is_named(
    run: Cli, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = broker.send

    async def takes_one(*record: Any) -> SentRecord:
        if broker.written:
            raise RefusedRecordError("fleethpa.settings did not accept the record", code=3)
        return await written(*record)

    monkeypatch.setattr(broker, "send", takes_one)
    result = run("apply", "-f", "-", "--yes", stdin=f"{GOOD}---{GOOD.replace('web', 'old')}")
    assert result.exit_code == 3, result.stderr
    assert result.stdout == "hpa east/shop/web created (written, not recorded yet)\n"
    assert "Error: fleethpa.settings did not accept the record" in result.stderr
    assert "may be written or not" not in result.stderr


def test_where_the_log_cannot_be_read_what_was_written_is_named(
    run: Cli, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def denied(*_: object) -> list[Fate]:
        raise CommandError("cannot talk to Kafka at k: TopicAuthorizationFailedError", code=3)

    monkeypatch.setattr(broker, "fates", denied)
    result = run("pause", "--all", "--reason", "INC-7")
    assert result.exit_code == 3
    assert result.stdout == "fleet paused (written, not recorded yet)\n"
    assert "TopicAuthorizationFailedError" in result.stderr


def test_v1_v2beta2_lists_and_folders_are_read(tmp_path: Path) -> None:
    v1 = GOOD.replace("autoscaling/v2", "autoscaling/v1").replace("name: web, ", "name: old, ")
    (tmp_path / "a.yaml").write_text(f"{v1}  targetCPUUtilizationPercentage: 55\n")
    (tmp_path / "b.json").write_text('{"kind":"List","apiVersion":"v1","items":[{"kind":"ConfigMap"}]}')
    (tmp_path / "notes.txt").write_text("not read")
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "c.yaml").write_text(GOOD)
    found = read_input((str(tmp_path),))
    assert len(found.hpas) == 1
    body, errors = check_hpa(found.hpas[0], "shop")
    assert (errors, body["apiVersion"]) == ([], "autoscaling/v2")
    assert body["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"] == 55
    assert [other.body["kind"] for other in found.others] == ["ConfigMap"]


def test_a_folder_without_manifests_of_its_own_says_so(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "c.yaml").write_text(GOOD)
    with pytest.raises(CommandError, match="no manifests found") as caught:
        read_input((str(tmp_path),))
    assert "not those of folders in it" in caught.value.text()


# --- delete -----------------------------------------------------------------------------------------------------------


def test_delete_is_for_central_hpas_only(run: Cli, fleet: Fleet, broker: Broker) -> None:
    refused = run("delete", "east/shop/checkout")
    assert (refused.exit_code, broker.written) == (1, [])
    assert "kubectl --context east delete hpa checkout -n shop" in refused.stderr
    body, _ = check_hpa(read_input((_written(run, GOOD),)).hpas[0], "shop")
    fleet.append(AutoscalerSet(hpa=body, origin="central"))
    asked = run("delete", "east/shop/web")
    assert (asked.exit_code, broker.written) == (2, [])
    assert "nothing will scale any more: Deployment/web in east/shop" in asked.stderr
    deleted = run("delete", "east/shop/web", "--yes")
    assert deleted.stdout == "hpa east/shop/web deleted\n"
    assert "warning: nothing will scale any more" in deleted.stderr
    assert isinstance(broker.written[0][2], AutoscalerDeleted)
    assert run("delete", "east/shop/none").exit_code == 4
    assert run("delete", "east/shop/none", "--ignore-not-found").exit_code == 0
    assert run("delete").exit_code == 2


# --- pause, resume, mode ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "stated", "expected"),
    [
        pytest.param(
            ["east/shop/checkout"], "hpa east/shop/checkout paused", ("east", "shop", "checkout"), id="an HPA"
        ),
        pytest.param(
            ["-n", "shop", "-C", "east"], "namespace east/shop paused", ("east", "shop", ""), id="a namespace"
        ),
        pytest.param(["-C", "ea*"], "cluster east paused", ("east", "", ""), id="a cluster"),
        pytest.param(["--all"], "fleet paused", ("*", "", ""), id="everything, without a question"),
    ],
)
def test_pause_scopes(run: Cli, broker: Broker, arguments: list[str], stated: str, expected: tuple[str, ...]) -> None:
    result = run("pause", *arguments, "--reason", "INC-42")
    assert (result.exit_code, result.stdout) == (0, f"{stated}\n")
    [(cluster, namespace, body)] = broker.written
    assert isinstance(body, Command)
    assert (cluster, namespace, body.name) == expected
    assert (body.command, body.author, body.reason) == ("pause", "anna", "INC-42")


@pytest.mark.parametrize("reason", [(), ("--reason", " ")], ids=["no reason", "an empty reason"])
def test_a_pause_of_the_fleet_without_a_reason_needs_a_yes(run: Cli, broker: Broker, reason: tuple[str, ...]) -> None:
    refused = run("pause", "--all", *reason)
    assert (refused.exit_code, broker.written) == (2, [])
    assert "every cluster would be paused, and no --reason says why" in refused.stderr
    assert "add --yes" in refused.stderr
    agreed = run("pause", "--all", "--yes", *reason)
    assert (agreed.exit_code, agreed.stdout, len(broker.written)) == (0, "fleet paused\n", 1)


@pytest.mark.parametrize(
    ("standing", "arguments", "stays"),
    [
        pytest.param(("", "checkout"), ["east/shop/checkout"], "", id="what is resumed"),
        pytest.param(("", ""), ["east/shop/checkout"], "fleethpa resume -C east -n shop", id="its namespace stays"),
        pytest.param(("east", ""), ["east/shop/checkout"], "fleethpa resume -C east", id="its cluster stays"),
        pytest.param(("", "checkout"), ["-C", "east"], "fleethpa resume east/shop/checkout", id="an HPA stays"),
        pytest.param(("*", ""), ["east/shop/checkout"], "fleethpa resume --all", id="all clusters stay"),
    ],
)
def test_a_resume_names_the_pauses_that_go_on(
    run: Cli, fleet: Fleet, standing: tuple[str, str], arguments: list[str], stays: str
) -> None:
    cluster, name = standing
    pause = Command(command="pause", cluster=cluster, name=name, author="bob", reason="INC-2")
    fleet.append(pause, key=WHOLE_PARTITION_KEY if cluster else "east/shop")
    fleet.checkpoint()
    done = run("resume", *arguments, "--yes")
    assert done.exit_code == 0
    if stays:
        assert f"Next: {stays}\n" in done.stderr, done.stderr
        assert "INC-2" in done.stderr
    else:
        assert "paused" not in done.stderr, done.stderr


def test_pause_kinds_and_duration(run: Cli, broker: Broker) -> None:
    run("pause", "east/shop/checkout", "--scale-in", "--for", "2h")
    body = broker.written[0][2]
    assert isinstance(body, Command)
    assert body.pause_kind == "scaleDown"
    assert body.until > 0
    assert run("pause", "--all", "--scale-in", "--scale-out").exit_code == 2


def test_an_override_and_its_end_are_commands_about_one_hpa(run: Cli, broker: Broker) -> None:
    asked = ["override", "east/shop/checkout", "--replicas", "12", "--for", "2h", "--reason", "sale"]
    assert run(*asked).stdout == "hpa east/shop/checkout overridden to 12 replicas for 2h\n"
    ended = run("override", "east/shop/checkout", "--end")
    assert (ended.exit_code, ended.stdout) == (0, "hpa east/shop/checkout override ended\n")
    assert "hpa east/shop/checkout has no override" in ended.stderr
    (first, end) = (each for _, _, each in broker.written)
    assert isinstance(first, Command)
    assert (first.command, first.name, first.replicas, first.author, first.reason) == (
        "override",
        "checkout",
        12,
        "anna",
        "sale",
    )
    assert first.until > 0
    assert end == Command(command="override", name="checkout", author="anna")


def test_an_override_that_the_hpa_bounds_is_warned_of(run: Cli, broker: Broker) -> None:
    bounded = run("override", "east/shop/checkout", "--replicas", "21", "--for", "2h")
    assert bounded.exit_code == 0
    assert "hpa east/shop/checkout: minReplicas 2 and maxReplicas 20 bound the override" in bounded.stderr


@pytest.mark.parametrize(
    ("cluster", "shown"),
    [("*", "pause of all clusters"), ("east", "pause of cluster east"), ("", "pause of namespace")],
)
def test_history_shows_of_what_a_pause_is(run: Cli, fleet: Fleet, cluster: str, shown: str) -> None:
    fleet.append(Command(command="pause", cluster=cluster), key=WHOLE_PARTITION_KEY if cluster else "east/shop")
    fleet.checkpoint()
    assert shown in run("history", "east/shop/checkout").stdout


def test_an_override_is_shown_everywhere(run: Cli, fleet: Fleet) -> None:
    until_ms = fleet.now_ms + 3_600_000
    body = Command(command="override", name="checkout", replicas=12, until=until_ms, author="anna", reason="sale")
    fleet.append(body)
    fleet.append(after_ms=15_000)
    fleet.observe(3, 300)
    text = "override to 12 replicas by anna until 15:00:00: sale"
    for arguments in (
        ["get", "hpa", "-A", "--problem"],
        ["describe", "hpa", "east/shop/checkout"],
        ["explain", "east/shop/checkout"],
        ["decisions", "-A"],
        ["status", "-A"],
    ):
        shown = run(*arguments).stdout
        assert text in shown, (arguments, shown)
    assert "enforce (override)" in run("get", "hpa", "-A").stdout
    assert "override to 12 replicas until" in run("history", "east/shop/checkout").stdout
    changes = fits("RevisionList", run("history", "east/shop/checkout", "-o", "json").stdout)["items"]
    assert [each["what"] for each in changes] == ["created", "override"]
    document = msgspec.json.decode(run("get", "hpa", "-A", "-o", "json").stdout)
    assert document["items"][0]["override"].startswith("override to 12 replicas by anna until 2026-11-21T")


def test_mode_of_a_cluster_is_its_setting_and_of_an_hpa_a_command(run: Cli, broker: Broker) -> None:
    assert run("mode", "shadow", "-C", "east", "--yes").stdout == "cluster east set to shadow\n"
    assert run("mode", "enforce", "east/shop/checkout").stdout == "hpa east/shop/checkout set to enforce\n"
    setting, command = broker.written[0][2], broker.written[1][2]
    assert isinstance(setting, SettingsSet)
    assert isinstance(command, Command)
    assert (setting.settings.default_mode, command.mode) == ("shadow", "enforce")


@pytest.mark.parametrize(
    ("arguments", "stated"),
    [
        pytest.param(["mode", "enforce", "--all"], "mode touches 2 HPAs (east: 2 enforce)", id="mode of the fleet"),
        pytest.param(["mode", "off", "--all"], "nothing will scale any more", id="which leaves targets to nobody"),
        pytest.param(["resume", "--all"], "resume touches 2 HPAs (east: 2 enforce)", id="resume of the fleet"),
        pytest.param(["mode", "shadow", "-n", "shop"], "mode touches 2 HPAs (east: 2 enforce)", id="a namespace"),
        pytest.param(["resume", "checkout", "web", "-n", "shop"], "resume touches 2 HPAs", id="two that are named"),
    ],
)
def test_what_touches_several_hpas_says_which_and_needs_a_yes(
    run: Cli, fleet: Fleet, broker: Broker, arguments: list[str], stated: str
) -> None:
    fleet.append(AutoscalerSet(hpa=hpa("web"), session="s"))
    asked = run(*arguments)
    assert (asked.exit_code, asked.stdout, broker.written) == (2, "", [])
    assert stated in asked.stderr
    assert "add --yes" in asked.stderr
    seen = run(*arguments, "--dry-run")
    assert (seen.exit_code, broker.written) == (0, [])
    assert stated in seen.stderr
    assert run(*arguments, "--yes").exit_code == 0
    assert broker.written


def test_enforcing_that_is_refused_fails_and_names_the_command(run: Cli, fleet: Fleet, broker: Broker) -> None:
    fleet.append(NATIVE, key="*")
    refused = run("mode", "enforce", "east/shop/checkout")
    assert (refused.exit_code, refused.stdout, broker.written) == (1, "", [])
    assert "hpa east/shop/checkout cannot be enforced, and nothing was changed" in refused.stderr
    assert "Next: fleethpa adopt east/shop/checkout" in refused.stderr


def test_a_target_does_not_pass_to_an_hpa_of_another_name_unasked(run: Cli, fleet: Fleet, broker: Broker) -> None:
    body = hpa("mine", scaleTargetRef=hpa()["spec"]["scaleTargetRef"])
    fleet.append(AutoscalerSet(hpa=body, origin="central", mode="shadow"))
    asked = run("mode", "enforce", "east/shop/mine")
    assert (asked.exit_code, broker.written) == (2, [])
    assert "east/shop/mine takes Deployment/checkout over from HPA checkout" in asked.stderr
    assert run("mode", "enforce", "east/shop/mine", "--yes").exit_code == 0


def test_of_a_cluster_what_can_be_enforced_is_and_the_rest_is_named(run: Cli, fleet: Fleet, broker: Broker) -> None:
    fleet.append(AutoscalerList(list_id="w", hpas=[hpa(), hpa("web")], session="t"), key="west/shop")
    fleet.append(SettingsSet(cluster="west", settings=NATIVE.settings), key="*")
    result = run("mode", "enforce", "--all", "--yes")
    assert (result.exit_code, result.stdout) == (1, "fleet set to enforce\n")
    assert "2 HPAs (west/shop/checkout, west/shop/web) will be refused for now" in result.stderr
    assert "Next: fleethpa adopt west/shop/checkout, and so for each of them\n" in result.stderr


def test_several_clusters_need_a_yes(run: Cli, fleet: Fleet, broker: Broker) -> None:
    fleet.append(AutoscalerList(list_id="w", hpas=[hpa()], session="t"), key="west/shop")
    asked = run("resume", "-C", "*")
    assert (asked.exit_code, broker.written) == (2, [])
    assert "add --yes" in asked.stderr
    assert run("resume", "-C", "*", "--yes").exit_code == 0
    assert len(broker.written) == 2


# --- settings ---------------------------------------------------------------------------------------------------------

EXAMPLES = Path(__file__).parents[3] / "examples"


def test_the_settings_for_production_are_taken_from_their_file(run: Cli, fleet: Fleet, broker: Broker) -> None:
    file = str(EXAMPLES / "settings/production.yaml")
    assert run("settings", "*", "-f", file, "sync-period=5s", "--reason", "brakes").exit_code == 0
    [(cluster, _, body)] = broker.written
    assert isinstance(body, SettingsSet)
    assert (cluster, body.settings) == (
        "*",
        ClusterSettings(
            removal_budget="30%/10m", removal_budgets={"*": "30%/10m"}, partial_view=True, sync_period_ms=5_000
        ),
    )


@pytest.mark.parametrize(
    ("text", "stated"),
    [
        pytest.param("- a", "has no settings", id="a list"),
        pytest.param("max-step: [1]", "max-step has no value", id="a list as value"),
        pytest.param("{", "is not YAML", id="no YAML"),
        pytest.param("maxstep: 1", "maxstep", id="an unknown name"),
    ],
)
def test_a_file_that_has_no_settings_is_refused(run: Cli, tmp_path: Path, text: str, stated: str) -> None:
    (tmp_path / "settings.yaml").write_text(text)
    refused = run("settings", "*", "-f", str(tmp_path / "settings.yaml"))
    assert refused.exit_code == 2
    assert stated in refused.stderr


def test_settings_are_read_by_name() -> None:
    changes = ("sync-period=5s", "tolerance=0.05", "frozen=true", "namespace.shop=off", "source.Pods=samples")
    found = parse_changes(changes).settings(ClusterSettings())
    assert (found.sync_period_ms, found.tolerance, found.frozen) == (5_000, "0.05", True)
    assert (found.namespaces, found.sources) == ({"shop": "off"}, {"Pods": "samples"})


def test_settings_are_shown_with_the_defaults_of_all(run: Cli) -> None:
    shown = run("settings", "east").stdout
    assert "native-controller  absent" in shown
    # As they are written, so that a line can be pasted.
    names = [line.split() for line in shown.splitlines()[1:]]
    assert parse_changes(tuple(f"{name}={value}" for name, value in names))
    assert run("settings", "mars").exit_code == 4


def test_settings_of_an_unknown_cluster_need_an_explicit_yes(run: Cli, broker: Broker) -> None:
    refused = run("settings", "eats", "frozen=true")
    assert (refused.exit_code, broker.written) == (2, [])
    assert "Did you mean east?" in refused.stderr
    assert "--yes" in refused.stderr
    assert run("settings", "eats", "frozen=true", "--dry-run").exit_code == 2
    meant = run("settings", "mars", "frozen=true", "--reason", "new", "--yes")
    assert meant.exit_code == 0
    assert "mars has not reported yet" in meant.stderr
    assert isinstance(broker.written[0][2], SettingsSet)


def test_settings_can_be_taken_away_again(run: Cli, fleet: Fleet, broker: Broker) -> None:
    def change(*changes: str) -> str:
        broker.written.clear()
        assert run("settings", "east", *changes, "--yes").exit_code == 0
        fleet.append(*(body for _, _, body in broker.written), key=WHOLE_PARTITION_KEY)
        return run("settings", "east").stdout

    before = run("settings", "east").stdout
    changed = change("max-step=3", "sync-period=5s", "namespace.shop=off", "namespace.pay=off")
    assert [line.split()[0] for line in changed.splitlines()] == [
        "SETTING",
        "sync-period",
        "default-mode",
        "native-controller",
        "max-step",
        "namespace.shop",
        "namespace.pay",
    ]
    assert fleet.partition.state.settings("east").stated.max_step == 3
    kept = change("max-step=", "sync-period=default", "namespace.shop=")
    assert "max-step" not in kept
    assert "namespace.pay" in kept
    assert "namespace.shop" not in kept
    assert fleet.partition.state.settings("east").stated.max_step is None
    assert change("namespace.pay=") == before
    assert "east" not in fleet.partition.state.row.settings


def test_budgets_of_a_cluster_and_its_namespaces_are_stored_and_shown(run: Cli, fleet: Fleet, broker: Broker) -> None:
    asked = ("settings", "east", "removal-budget=30%/10m", "removal-budget.shop=5/10m", "removal-budget.*=off", "--yes")
    assert run(*asked).exit_code == 0
    fleet.append(*(body for _, _, body in broker.written), key=WHOLE_PARTITION_KEY)
    shown = run("settings", "east").stdout
    assert all(text in shown for text in ("removal-budget  ", "removal-budget.shop", "removal-budget.*", "5/10m"))


def test_a_cluster_of_which_only_settings_are_known_can_be_removed(run: Cli, fleet: Fleet, broker: Broker) -> None:
    ghost = SettingsSet(cluster="nosuch", settings=ClusterSettings(tolerance="0.2"))
    fleet.append(ghost, key=WHOLE_PARTITION_KEY)
    assert "nosuch" in run("get", "clusters").stdout
    assert run("settings", "nosuch", "--remove").exit_code == 0
    fleet.append(*(body for _, _, body in broker.written), key=WHOLE_PARTITION_KEY)
    assert "nosuch" not in run("get", "clusters").stdout
    assert run("settings", "nosuch", "--remove").exit_code == 4
    assert run("settings", "nosuch", "tolerance=").exit_code == 4


def test_the_settings_of_hpas_in_use_are_removed_only_on_purpose(run: Cli, broker: Broker) -> None:
    refused = run("settings", "*", "--remove")
    assert (refused.exit_code, broker.written) == (2, [])
    assert "1 HPA would get other settings" in refused.stderr
    assert run("settings", "*", "--remove", "--yes").exit_code == 0
    assert run("settings", "east", "--remove").exit_code == 4


@pytest.mark.parametrize(
    ("arguments", "code", "stated"),
    [
        pytest.param(["settings", "east", "sync-period=0s"], 2, "expected at least 0.1s", id="no period"),
        pytest.param(["settings", "east", "sync-period=99999999999d"], 2, "too long", id="a period without an end"),
        pytest.param(["settings", "east", "tolerance=5"], 0, "tolerance 5 is 500%", id="a tolerance in percent"),
        pytest.param(["settings", "east", "tolerance=-1"], 2, "expected a number", id="a negative tolerance"),
        pytest.param(["settings", "east", "max-step=0"], 2, "from 1 to", id="no step"),
        pytest.param(["settings", "east", "removal-budget=5/10m"], 2, "must be a percentage", id="a cluster's count"),
        pytest.param(["settings", "east", "removal-budget.shop=5"], 2, "write it as 30%/10m", id="a budget"),
        pytest.param(["settings", "east", "max-step=99999999999"], 2, "from 1 to", id="a step beyond 32 bits"),
        pytest.param(["settings", "east", "max-step=²"], 2, "from 1 to", id="a digit that is not a number"),
        pytest.param(["settings", "east", "maxstep=3"], 2, "Did you mean max-step?", id="a near miss"),
        pytest.param(["settings", "east", "frozen=yes"], 2, "expected true or false", id="another word for true"),
        pytest.param(["settings", "east", "frozen=true", "frozen=false"], 2, "given twice", id="twice"),
        pytest.param(["settings", "east", "namespace.=off"], 2, "is not a setting", id="a namespace without a name"),
        pytest.param(
            ["settings", "east", "source.External=prometheus"], 2, "run observer --prometheus FILE", id="a Prometheus"
        ),
        pytest.param(
            ["settings", "east", "namespace.A_B=off"], 2, "ingest would reject it", id="what is not a namespace"
        ),
        pytest.param(["settings", "a b", "frozen=true", "--yes"], 2, "ingest would reject it", id="not a cluster name"),
        pytest.param(["pause", "--all", "--for", "0s"], 2, "cannot be used", id="a pause that is over"),
        pytest.param(["pause", "--all", "--for", ""], 2, "is not a duration", id="a pause for nothing"),
        pytest.param(["pause", "--all", "--for", "99999999999d"], 2, "cannot be used", id="a pause for ever"),
        pytest.param(["pause", "--all", "--wait", "soon"], 2, "--wait 'soon' is not a duration", id="a wrong wait"),
    ],
)
def test_a_dry_run_validates_as_the_real_run_does(
    run: Cli, broker: Broker, arguments: list[str], code: int, stated: str
) -> None:
    dry, real = run(*arguments, "--dry-run"), run(*arguments)
    assert (dry.exit_code, dry.stderr) == (real.exit_code, real.stderr)
    assert real.exit_code == code
    assert stated in real.stderr
    assert bool(broker.written) == (code == 0)


def test_an_expired_pause_is_gone_everywhere(run: Cli, fleet: Fleet) -> None:
    pause = Command(command="pause", cluster="east", until=fleet.now_ms + 10_000)
    fleet.append(pause, key=WHOLE_PARTITION_KEY)
    assert "paused" in run("get", "clusters").stdout
    fleet.append(Heartbeat(session="s", watches=["pods"]), after_ms=20_000)
    assert "paused" not in run("get", "clusters").stdout
    assert "paused" not in run("get", "hpa", "-A", "-o", "wide").stdout


# --- the writer -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "is_refused"),
    [(TopicAuthorizationFailedError(), True), (RequestTimedOutError(), False), (KafkaTimeoutError(), False)],
    ids=lambda each: type(each).__name__,
)
async def test_only_a_refusal_says_that_a_record_is_not_written(error: Exception, is_refused: bool) -> None:
    class Producer:
        async def partitions_for(self, topic: str) -> set[int]:
            return {0}

        async def send(self, topic: str, **record: object) -> None:
            raise error

    class Consumer:
        async def getmany(self, timeout_ms: int) -> None:
            raise error

    writer = Writer(Producer(), Consumer(), 1, "k")
    with pytest.raises(CommandError) as caught:
        await writer.send("paused", "east", "shop", [Command(command="pause", name="web")])
    assert (caught.value.code, isinstance(caught.value, RefusedRecordError)) == (3, is_refused)
    assert caught.value.next_step or not is_refused
    with pytest.raises(CommandError) as caught:
        await writer.fates([SentRecord("paused", "fleethpa.settings", 0, 0)], 60.0)
    assert caught.value.code == 3


class Record:
    def __init__(self, topic: str, value: bytes = b"", headers: Sequence[tuple[str, bytes]] = ()) -> None:
        self.topic, self.value, self.headers = topic, value, headers
        self.partition, self.offset = 2, 9


def test_the_fate_of_a_record_is_read_from_the_log_and_the_rejected() -> None:
    pending = SentRecord("x", "fleethpa.autoscalers", 1, 7)
    source = Source(topic="fleethpa.autoscalers", partition=1, offset=7, index=0, time=0)
    log = encode(LogRecord(v=1, entries=[Entry(key="east/shop", body=AutoscalerDeleted(name="a"), source=source)]))
    where = [("topic", b"fleethpa.autoscalers"), ("partition", b"1"), ("offset", b"7"), ("reason", b"bad")]

    def waiting() -> dict[tuple[str, int, int], SentRecord]:
        return {("fleethpa.autoscalers", 1, 7): pending}

    assert _fates_in(Record("fleethpa.log", log), waiting()) == [Fate(pending, "logged", place=(2, 9))]
    assert _fates_in(Record("fleethpa.rejected", b"", where), waiting()) == [Fate(pending, "rejected", "bad")]
    assert _fates_in(Record("fleethpa.log", b"{}"), waiting()) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ("apply", "-f", "-", "-C", "east"),
        ("settings", "east", "frozen=true"),
        ("delete", "hpa", "web", "-n", "shop", "-C", "east"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_command_that_looks_ahead_folds_the_log_once(
    two_clusters: Fleet, run: Cli, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    folds, fleet = list[None](), Past.fleet

    async def counted(past: Past, partitions: Iterable[int] | None = None) -> list[Folded]:
        folds.append(None)
        return await fleet(past, partitions)

    monkeypatch.setattr(Past, "fleet", counted)
    assert run(*arguments, "--dry-run", stdin=GOOD).exit_code == 0
    assert len(folds) == 1
