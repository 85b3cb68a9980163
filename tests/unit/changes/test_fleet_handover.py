"""`adopt` of the HPAs of several clusters into one FleetHPA, and `release` back."""

import contextlib
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest
import yaml
from click.testing import Result

from fleethpa.changes import handover
from fleethpa.frame.writer import SentRecord
from reconciler.clusters.answers import UnreachableError
from schemas.entries import WHOLE_PARTITION_KEY, FleetAllotment
from schemas.keys import HpaId
from schemas.observed import AutoscalerList, AutoscalerSet, Command, Target
from schemas.observed import ScaleSet as Scale
from schemas.settings import ClusterSettings, SettingsSet
from streams.state.ownership import ownership
from tests.kit.cli import hpa
from tests.laws import one_of
from tests.unit.changes.test_handover import Cluster, Killed

WHOLE = "@fleet/shop/web"
NAMES = ("east", "west")


class Server(Cluster):
    """The API server of one cluster of two that have one log."""

    def __init__(self, name: str, two: "TwoClusters") -> None:
        self.name, self.two = name, two
        self.real, self.births, self.native_runs, self.refuses = {}, 0, True, ""
        self.is_up = True

    def effect(self) -> None:
        self.two.effect()

    def check(self) -> None:
        self.two.none_is_scaled_twice()

    async def get_object(self, path: str, **options: object) -> dict[str, Any]:
        if not self.is_up:
            raise UnreachableError("connection refused")
        return await super().get_object(path, **options)


class TwoClusters(Cluster):
    """Two clusters, each with its native HPA of the same name, and their log."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        super().__init__(monkeypatch, folder)
        self.servers = {name: Server(name, self) for name in NAMES}
        self.fleet.append(AutoscalerList(list_id="first", hpas=[], session="s"), key="west/shop")
        opened = AsyncMock(side_effect=lambda session, clusters: {name: self.servers[name] for name in clusters})
        monkeypatch.setattr(handover, "open_clients", opened)
        self.check = self.none_is_scaled_twice

    async def send(self, subject: str, cluster: str, namespace: str, bodies: Any) -> SentRecord:
        self.effect()
        self.fleet.append(*bodies, key=f"{cluster}/{namespace}")
        self.none_is_scaled_twice()
        return SentRecord(subject, "fleethpa.autoscalers", 0, 0)

    def observe(self) -> None:
        for name, server in self.servers.items():
            listed = AutoscalerList(list_id=f"l{len(self.fleet.log)}", hpas=server._all(), session="s")
            self.fleet.append(listed, key=f"{name}/shop")
        self.fleet.checkpoint()

    def have(self, replicas: dict[str, int], **changes: dict[str, Any]) -> None:
        """Give each cluster a native HPA with so many replicas. `changes`: of the spec in a cluster."""
        for name, count in replicas.items():
            made = hpa("web", **changes.get(name, {}))
            made["metadata"]["uid"] = f"uid-{name}"
            made["status"] = {"currentReplicas": count, "desiredReplicas": count}
            self.servers[name].real["web"] = made
            target = Target(group="apps", kind="Deployment", name="web")
            scale = Scale(target=target, spec_replicas=count, status_replicas=count, selector="app=web", session="s")
            self.fleet.append(AutoscalerSet(hpa=made, session="s"), scale, key=f"{name}/shop")
        self.fleet.checkpoint()

    def adopt(self, *more: str) -> Result:
        return self.run("adopt", WHOLE, "-C", "east,west", *more)

    def natives(self) -> set[str]:
        return {name for name, server in self.servers.items() if "web" in server.real}

    def owners(self) -> dict[str, str]:
        """Who has the HPA of each cluster, and of the whole, in which mode."""
        claims = ownership(self.state).claims
        return {hpa.cluster: f"{claim.origin} {claim.mode}" for hpa, claim in sorted(claims.items())}

    def none_is_scaled_twice(self) -> None:
        claims = ownership(self.state).claims
        for name in self.natives():
            claim = claims.get(HpaId(name, "shop", "web"))
            if claim is not None and claim.origin == "central" and claim.mode == "enforce":
                namespace, row = self.state.namespaces[f"{name}/shop"], self.state.row
                paused = handover_pause(namespace, row, self.fleet.now_ms)
                assert paused, f"{name} is scaled by two"


def handover_pause(namespace: Any, row: Any, now_ms: int) -> bool:
    from streams.state.guards import pause_in_force

    return bool(pause_in_force(namespace, "web", row, True, now_ms))


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> TwoClusters:
    return TwoClusters(monkeypatch, tmp_path)


def test_hpas_of_two_clusters_become_one_and_go_back(two: TwoClusters) -> None:
    two.have({"east": 6, "west": 3}, west={"minReplicas": 2, "maxReplicas": 5})
    result = two.adopt()
    assert result.exit_code == 0, result.stderr
    assert two.natives() == set()
    assert two.owners() == {"@fleet": "central enforce", "east": "central enforce", "west": "central enforce"}
    (whole,) = [each for each in two.state.hpas.values() if each.row.fleet is not None]
    assert [
        (each.name, each.weight, each.min_replicas, each.max_replicas) for each in whole.row.fleet.spec.clusters
    ] == [("east", 6, hpa("web")["spec"].get("minReplicas", 1), hpa("web")["spec"]["maxReplicas"]), ("west", 3, 2, 5)]
    assert whole.spec["maxReplicas"] == hpa("web")["spec"]["maxReplicas"] + 5
    assert "nothing to adopt" in two.adopt().stdout

    result = two.run("release", WHOLE)
    assert result.exit_code == 0, result.stderr
    assert two.natives() == set(NAMES)
    assert two.servers["west"].real["web"]["spec"]["maxReplicas"] == 5
    assert two.owners() == {"east": "cluster shadow", "west": "cluster shadow"}


@pytest.mark.parametrize("killed_at", one_of(2, range(1, 9)))
def test_an_adoption_that_was_killed_is_ended_by_the_next_run(two: TwoClusters, killed_at: int) -> None:
    two.have({"east": 6, "west": 3})
    two.killed_at = killed_at
    with contextlib.suppress(Killed):
        two.adopt()
    two.time_passes()
    result = two.adopt()
    assert result.exit_code == 0, result.stderr
    two.time_passes()
    assert two.natives() == set()
    assert two.owners() == {"@fleet": "central enforce", "east": "central enforce", "west": "central enforce"}
    revisions = {each.row.revision for each in two.state.hpas.values() if not each.row.gone}
    assert len(revisions) == 1


@pytest.mark.parametrize("killed_at", one_of(3, range(1, 14)))
def test_a_release_that_was_killed_is_ended_by_the_next_run(two: TwoClusters, killed_at: int) -> None:
    two.have({"east": 6, "west": 3})
    assert two.adopt().exit_code == 0
    two.effects, two.killed_at = 0, killed_at
    with contextlib.suppress(Killed):
        two.run("release", WHOLE)
    two.killed_at = 0
    two.time_passes()
    if "@fleet" in two.owners() and two.natives():
        shown = " ".join(two.cli("describe", WHOLE).stdout.split())
        assert f"a release or an adopt has not ended. Next: fleethpa release {WHOLE}" in shown
    result = two.run("release", WHOLE)
    assert result.exit_code == 0 or "there is no FleetHPA" in result.stderr, result.stderr
    two.time_passes()
    assert two.natives() == set(NAMES)
    assert two.owners() == {"east": "cluster shadow", "west": "cluster shadow"}


@pytest.mark.parametrize("killed_at", [5, 8, 10])
def test_a_release_that_was_killed_is_undone_by_adopt_as_describe_says(two: TwoClusters, killed_at: int) -> None:
    two.have({"east": 6, "west": 3})
    assert two.adopt().exit_code == 0
    two.effects, two.killed_at = 0, killed_at
    with pytest.raises(Killed):
        two.run("release", WHOLE)
    two.killed_at = 0
    two.time_passes()
    assert two.natives()
    assert f"fleethpa adopt {WHOLE} -C east,west" in " ".join(two.cli("describe", WHOLE).stdout.split())
    assert two.adopt().exit_code == 0
    two.time_passes()
    assert two.natives() == set()
    assert "has not ended" not in two.cli("describe", WHOLE).stdout


def _pause(two: TwoClusters, cluster: str) -> None:
    two.fleet.append(Command(command="pause", name="web", author="eva"), key=f"{cluster}/shop")
    two.fleet.checkpoint()


@pytest.mark.parametrize("cluster", ["@fleet", "west"])
def test_what_is_paused_is_released_only_if_that_is_asked_for_and_its_pause_ends_with_it(
    two: TwoClusters, cluster: str
) -> None:
    two.have({"east": 6, "west": 3})
    two.adopt()
    _pause(two, cluster)
    before = two.effects
    refused = two.run("release", WHOLE)
    assert (refused.exit_code, two.effects) == (1, before)
    assert f"{cluster}/shop/web is not released (paused" in refused.stderr
    made = two.run("release", WHOLE, "--include-held")
    assert made.exit_code == 0, made.stderr
    assert two.natives() == set(NAMES)
    assert all(not pauses for space in two.state.namespaces.values() for _, pauses in space.commands.values())


def test_nothing_of_fleethpa_writes_in_the_clusters_after_a_release(two: TwoClusters) -> None:
    two.have({"east": 6, "west": 3})
    two.adopt()
    revision = next(each.row.revision for each in two.state.hpas.values() if each.row.fleet is not None)
    assert two.run("release", WHOLE).exit_code == 0
    count = len(two.fleet.values)
    late = FleetAllotment(name="web", revision=revision, number=99, replicas=1, decision="0-1-x")
    for name in NAMES:
        two.fleet.append(late, key=f"{name}/shop")
    for _ in range(40):
        two.fleet.append(after_ms=1_000)
        assert not two.fleet.partition.pop_messages()
    assert len(two.fleet.values) > count  # they are decided on in shadow
    made = [each.decision for each in two.fleet.decisions()[count:]]
    assert {(each.mode, each.wants) for each in made} == {("shadow", None)}


# --- refusals ---------------------------------------------------------------------------------------------------------


def _refused(two: TwoClusters, result: Result, *texts: str) -> None:
    assert result.exit_code != 0
    for text in texts:
        assert text in result.stderr, result.stderr
    assert two.effects == 0
    assert two.natives() == set(NAMES)


def test_hpas_with_different_metrics_are_not_made_one(two: TwoClusters) -> None:
    target = {"type": "Utilization", "averageUtilization": 33}
    metrics = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
    two.have({"east": 6, "west": 3}, west={"metrics": metrics})
    _refused(
        two, two.adopt(), "the HPAs of east and west are not made one: their specs differ beyond their bounds", "33"
    )


def test_a_cluster_that_does_not_answer_takes_no_part(two: TwoClusters) -> None:
    two.have({"east": 6, "west": 3})
    two.servers["west"].is_up = False
    _refused(two, two.adopt(), "cluster west does not answer: connection refused")


def test_another_hpa_on_the_target_is_refused(two: TwoClusters) -> None:
    two.have({"east": 6, "west": 3})
    other = hpa("web") | {"metadata": {"name": "old", "namespace": "shop", "uid": "uid-old"}}
    two.servers["west"].real["old"] = other
    two.observe()
    _refused(two, two.adopt(), "HPA west/shop/old of cluster west drives its target")


def test_a_cluster_without_such_an_hpa_is_named(two: TwoClusters) -> None:
    two.have({"east": 6, "west": 3})
    two.servers["west"].real.clear()
    two.observe()
    result = two.adopt()
    assert (result.exit_code, "cluster west has no HPA shop/web" in result.stderr) == (4, True)
    assert two.effects == 0


def test_a_paused_cluster_is_refused(two: TwoClusters) -> None:
    two.have({"east": 6, "west": 3})
    two.fleet.append(Command(command="pause", name="web", author="eva"), key="west/shop")
    two.fleet.checkpoint()
    _refused(two, two.adopt(), "west/shop/web is not adopted (paused")
    assert "Next: fleethpa resume west/shop/web\n" in two.adopt().stderr


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("adopt", WHOLE), "of which clusters?"),
        (("adopt", WHOLE, "-C", "east,west", "--mode", "shadow"), "would leave nothing that scales"),
        (("release", WHOLE), "there is no FleetHPA"),
    ],
)
def test_wrong_use_says_what_is_meant(two: TwoClusters, arguments: tuple[str, ...], text: str) -> None:
    two.have({"east": 6, "west": 3})
    _refused(two, two.run(*arguments), text)


def test_one_hpa_of_a_fleet_hpa_is_not_released_by_itself(two: TwoClusters) -> None:
    two.have({"east": 6, "west": 3})
    two.adopt()
    before = two.effects
    result = two.run("release", "east/shop/web")
    assert (result.exit_code, two.effects) == (1, before)
    assert f"east/shop/web is not released: it belongs to FleetHPA {WHOLE}" in result.stderr


def test_a_dry_run_names_each_step_and_changes_nothing(two: TwoClusters) -> None:
    two.have({"east": 6, "west": 3})
    result = two.adopt("--dry-run")
    assert (result.exit_code, two.effects) == (0, 0)
    assert "fleethpa @fleet/shop/web created (dry run)" in result.stdout
    assert "delete the native HPA shop/web in cluster west (dry run)" in result.stdout


def test_where_no_native_controller_runs_nothing_is_released(two: TwoClusters) -> None:
    two.have({"east": 6, "west": 3})
    two.adopt()
    absent = SettingsSet(cluster="west", settings=ClusterSettings(native_controller="absent"))
    two.fleet.append(absent, key=WHOLE_PARTITION_KEY)
    two.fleet.checkpoint()
    before = two.effects
    result = two.run("release", WHOLE)
    assert (result.exit_code, two.effects) == (1, before)
    assert "cluster west has no native HPA controller" in result.stderr


# --- in shadow beside the clusters' own HPAs --------------------------------------------------------------------------


def _applied_in_shadow(two: TwoClusters) -> None:
    two.have({"east": 6, "west": 3})
    spec = hpa("web")["spec"] | {
        "minReplicas": 4,
        "maxReplicas": 30,
        "clusters": [{"name": "east", "weight": 3}, {"name": "west"}],
    }
    metadata = {"namespace": "shop", "name": "web"}
    manifest = {"apiVersion": "fleethpa.io/v1alpha1", "kind": "FleetHPA", "metadata": metadata, "spec": spec}
    file = two.folder / "fleethpa.yaml"
    file.write_text(yaml.safe_dump(manifest))
    refused = two.run("apply", "-f", str(file), "--mode", "enforce")
    assert (refused.exit_code, "--mode shadow" in refused.stderr) == (1, True), refused.output
    made = two.run("apply", "-f", str(file), "--mode", "shadow")
    assert made.exit_code == 0, made.output


def test_in_shadow_it_is_applied_beside_the_own_hpas_of_its_clusters(two: TwoClusters) -> None:
    _applied_in_shadow(two)
    assert two.natives() == set(NAMES)
    assert two.owners() == {"@fleet": "central shadow", "east": "central shadow", "west": "central shadow"}
    shown = two.cli("describe", WHOLE)
    assert "has not ended" not in shown.stdout
    two.time_passes()
    assert all(each.decision.wants is None for each in two.fleet.decisions())


def test_it_is_not_enforced_beside_them_and_adopt_takes_it_as_it_was_applied(two: TwoClusters) -> None:
    _applied_in_shadow(two)
    refused = two.run("mode", "enforce", WHOLE)
    assert refused.exit_code == 1
    assert f"{WHOLE} cannot be enforced, and keeps its mode: east, west have HPAs of their own" in refused.stderr
    assert f"fleethpa adopt {WHOLE} -C east,west" in refused.stderr
    assert two.owners()["@fleet"] == "central shadow"

    made = two.adopt()
    assert made.exit_code == 0, made.output
    two.time_passes()
    assert two.natives() == set()
    assert two.owners() == {"@fleet": "central enforce", "east": "central enforce", "west": "central enforce"}
    (whole,) = [each for each in two.state.hpas.values() if each.row.fleet is not None]
    assert (whole.spec["maxReplicas"], [each.weight for each in whole.row.fleet.spec.clusters]) == (30, [3, 1])


def test_one_in_shadow_that_is_deleted_leaves_the_own_hpas_as_they_were(two: TwoClusters) -> None:
    _applied_in_shadow(two)
    assert two.run("delete", WHOLE).exit_code == 0
    two.time_passes()
    assert two.natives() == set(NAMES)
    assert two.owners() == {"east": "cluster shadow", "west": "cluster shadow"}
