"""`adopt` and `release` in bulk: nothing is moved twice, nothing is lost, wherever the command is killed."""

import contextlib
import json
import re
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest
from click.testing import Result
from msgspec import structs

from fleethpa.changes import handover
from fleethpa.changes.handover import Place, place_of
from fleethpa.frame.errors import CommandError
from fleethpa.frame.writer import Fate, SentRecord
from reconciler.clusters.answers import ApiError
from reconciler.core.objects import STAND_IN_LABEL
from schemas.agents import AgentSet
from schemas.codec import decode
from schemas.entries import WHOLE_PARTITION_KEY, Body, LogRecord
from schemas.keys import HpaId
from schemas.observed import ABSENT, AutoscalerList, AutoscalerSet, Command, Heartbeat, Serving
from schemas.settings import ClusterSettings, SettingsSet
from streams.hpa.rules import RULES
from streams.partition import Partition
from streams.state.guards import pause_in_force
from streams.state.ownership import ownership
from tests.kit.cli import Cli, Fleet, FleetPast, hpa
from tests.kit.partition import history
from tests.laws import one_of

Json = dict[str, Any]
KEY = "east/shop"
NAMES = ("api", "queue", "web")


class Killed(BaseException):
    """The command ends here, as by SIGKILL."""


class Cluster:
    """One namespace of a cluster with its native controller, the log, and an observer that is late until asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.fleet, self.folder = Fleet(), folder
        self.real: dict[str, Json] = {}
        self.births, self.effects, self.killed_at = 0, 0, 0
        self.native_runs, self.refuses, self.by_agent, self.agent_is_silent = True, "", False, False
        self.check: Callable[[], None] = lambda: None
        self.fleet.append(
            SettingsSet(cluster="*", settings=ClusterSettings(native_controller="present")), key=WHOLE_PARTITION_KEY
        )
        self.fleet.append(AutoscalerList(list_id="first", hpas=[], session="s"))
        self.cli = Cli(monkeypatch, self.fleet)
        monkeypatch.setattr("fleethpa.frame.session.Session.now_ms", lambda session: self.fleet.now_ms)
        monkeypatch.setenv("FLEETHPA_RUNTIME_DIR", str(folder))

        @asynccontextmanager
        async def opened(config: Any) -> AsyncIterator["Cluster"]:
            yield self

        monkeypatch.setattr("fleethpa.frame.writer.open_writer", opened)
        opened = AsyncMock(side_effect=lambda session, clusters: dict.fromkeys(clusters, self))
        monkeypatch.setattr(handover, "open_clients", opened)
        monkeypatch.setattr(handover, "rest", self.rest)
        monkeypatch.setattr("fleethpa.changes.releasing.rest", self.rest)
        self.monkeypatch = monkeypatch

    # --- the log, as a command writes it ------------------------------------------------------------------------------

    partitions = 1

    async def send(self, subject: str, cluster: str, namespace: str, bodies: Sequence[Body]) -> SentRecord:
        self.effect()
        observed = [body for body in bodies if getattr(body, "origin", "central") == "cluster"]
        assert not (self.by_agent and observed), "ingest would refuse what only the agent may say"
        self.fleet.append(*bodies)
        self.check()
        return SentRecord(subject, "fleethpa.autoscalers", 0, 0)

    async def fates(self, waiting: Iterable[SentRecord], timeout_s: float) -> list[Fate]:
        return [Fate(pending, "logged") for pending in waiting]

    # --- the API server -----------------------------------------------------------------------------------------------

    async def get_object(self, path: str, **_: object) -> Json:
        name = path.partition("?")[0].rpartition("/")[2]
        if name == "horizontalpodautoscalers":
            # Two pages, whose items do not say what they are, as those of an API server.
            items = [{part: each[part] for part in each if part not in ("kind", "apiVersion")} for each in self._all()]
            if "continue=" in path:
                return {"items": items[1:], "metadata": {}}
            return {"items": items[:1], "metadata": {"continue": "x"}}
        if name not in self.real:
            raise ApiError(404, f"{name} not found")
        return self._all()[sorted(self.real).index(name)]

    def _all(self) -> list[Json]:
        """The native controller gives every object a status, and keeps what stands in it."""
        for each in self.real.values():
            if self.native_runs:
                each["status"] = (each.get("status") or {}) | {"observedGeneration": 1}
        return [self.real[name] for name in sorted(self.real)]

    async def request(self, method: str, path: str, body: Json, **_: object) -> Json:
        if path.endswith("?dryRun=All"):
            if body["metadata"]["name"] == self.refuses:
                raise ApiError(403, "denied by an admission webhook")
            return body
        self.effect()
        name = path.removesuffix("/status").rpartition("/")[2]
        if method == "POST":
            if body["metadata"]["name"] in self.real:
                raise ApiError(409, "already exists")
            self.births += 1
            body = body | {"metadata": body["metadata"] | {"uid": f"uid-{self.births}", "generation": 1}}
            self.real[body["metadata"]["name"]] = body
        elif method == "PUT":
            self.real[name]["status"] = body["status"]
        else:
            assert body["preconditions"]["uid"] == self.real[name]["metadata"]["uid"]
            del self.real[name]
        self.check()
        return body

    async def put(self, path: str, body: Json, **_: object) -> Json:
        return await self.request("PUT", path, body)

    async def close(self) -> None:
        pass

    # --- what happens -------------------------------------------------------------------------------------------------

    def effect(self) -> None:
        self.effects += 1
        if self.effects == self.killed_at:
            raise Killed

    def add_native(self, *names: str, **metadata: Any) -> None:
        for name in names:
            self.births += 1
            made = hpa(name)
            made["metadata"] |= {"uid": f"uid-{self.births}"} | metadata
            self.real[name] = made
            self.fleet.append(AutoscalerSet(hpa=made, session="s"))
        self.fleet.checkpoint()

    def add_central(self, *names: str, mode: Any = "enforce", **metadata: Any) -> None:
        for name in names:
            made = hpa(name)
            made["metadata"] |= metadata
            self.fleet.append(AutoscalerSet(hpa=made, origin="central", mode=mode, author="eva"))
        self.fleet.checkpoint()

    def silence_agent(self) -> None:
        """From here on nothing that it should report comes, so that what waits for it does so to the end."""
        self.agent_is_silent = True
        self.monkeypatch.setattr(handover, "REPORTED_S", 0.2)

    async def rest(self, seconds: float) -> None:
        if not self.agent_is_silent:
            self.observe()
        self.check()

    def add_agent(self) -> None:
        self.by_agent = True
        self.fleet.append(AgentSet(cluster="east", incarnation=1), key=WHOLE_PARTITION_KEY)

    def observe(self) -> None:
        self.fleet.append(AutoscalerList(list_id=f"l{len(self.fleet.log)}", hpas=self._all(), session="s"))
        self.fleet.checkpoint()

    def time_passes(self) -> None:
        """More than a minute; the observer publishes what is there."""
        self.fleet.append(after_ms=61_000)
        self.observe()

    def run(self, *arguments: str) -> Result:
        self.fleet.checkpoint()
        where = ("--export", str(self.folder)) if arguments[0] == "adopt" else ()
        return self.cli(*arguments, *where, "--yes", "--reason", "moving")

    # --- what is ------------------------------------------------------------------------------------------------------

    @property
    def state(self) -> Any:
        return self.fleet.partition.state

    def central(self) -> set[str]:
        return {hpa.name for hpa, claim in ownership(self.state).claims.items() if claim.origin == "central"}

    def writing(self) -> set[str]:
        """Those that fleethpa scales."""
        namespace, row = self.state.namespaces[KEY], self.state.row
        return {
            hpa.name
            for hpa, claim in ownership(self.state).claims.items()
            if claim.mode == "enforce" and not pause_in_force(namespace, hpa.name, row, True, self.fleet.now_ms)
        }


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cluster:
    return Cluster(monkeypatch, tmp_path)


def none_is_scaled_twice(cluster: Cluster) -> Callable[[], None]:
    def check() -> None:
        assert not cluster.writing() & cluster.real.keys()

    return check


# --- killed -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("killed_at", one_of(4, range(1, 17)))
@pytest.mark.parametrize("by_agent", [False, True], ids=["", "agent"])
@pytest.mark.parametrize("verb", ["adopt", "release"])
def test_killed_before_any_step_one_of_the_two_scales_and_the_next_run_ends_it(
    cluster: Cluster, verb: str, killed_at: int, by_agent: bool
) -> None:
    if by_agent:
        cluster.add_agent()
    (cluster.add_native if verb == "adopt" else cluster.add_central)(*NAMES)
    cluster.check, cluster.killed_at = none_is_scaled_twice(cluster), killed_at
    with contextlib.suppress(Killed):
        cluster.run(verb, "-C", "east", "-A")
    cluster.time_passes()
    assert cluster.writing() | cluster.real.keys() == set(NAMES)
    assert not cluster.writing() & cluster.real.keys()
    again = cluster.run(verb, "-C", "east", "-n", "shop")
    assert again.exit_code == 0, again.stderr
    cluster.time_passes()
    left = cluster.real.keys() if verb == "adopt" else cluster.central()
    assert left == set()
    assert (cluster.writing() if verb == "adopt" else cluster.real.keys()) == set(NAMES)


def test_every_step_was_tried(cluster: Cluster) -> None:
    cluster.add_native(*NAMES)
    assert cluster.run("adopt", "-C", "east", "-A").exit_code == 0
    adopting = cluster.effects
    assert cluster.run("release", "-C", "east", "-A").exit_code == 0
    assert (adopting, cluster.effects - adopting) == (9, 15)


def test_adopt_names_that_no_central_hpa_was_there(cluster: Cluster) -> None:
    """One that somebody else applies meanwhile is not replaced."""
    cluster.add_native("web")
    assert cluster.run("adopt", "-C", "east", "-A").exit_code == 0
    entries = [entry for _, _, value in cluster.fleet.log for entry in decode(value, LogRecord).entries]
    begun = [each.body for each in entries if isinstance(each.body, AutoscalerSet) and each.body.origin == "central"]
    assert [each.changes for each in begun] == [ABSENT]


def test_an_interrupted_run_is_continued_at_once(cluster: Cluster) -> None:
    """Before the observer has seen anything, and while the pauses of the first run last."""
    cluster.add_central(*NAMES)
    cluster.check, cluster.killed_at = none_is_scaled_twice(cluster), 6
    with pytest.raises(Killed):
        cluster.run("release", "-C", "east", "-A")
    assert len(cluster.real) == 2
    assert cluster.run("release", "-C", "east", "-A").exit_code == 0
    assert cluster.real.keys() == set(NAMES)
    assert not cluster.central()


def test_a_deletion_that_the_log_lacks_is_recorded_by_the_next_run(cluster: Cluster) -> None:
    cluster.add_native("web")
    cluster.killed_at = 3
    with pytest.raises(Killed):
        cluster.run("adopt", "east/shop/web")
    assert (cluster.real, cluster.writing()) == ({}, set())
    assert "native HPA east/shop/web deleted" in cluster.run("adopt", "east/shop/web").stdout
    assert cluster.writing() == {"web"}
    assert "nothing to adopt (1 HPA, all central)" in cluster.run("adopt", "east/shop/web").stdout


# --- release ----------------------------------------------------------------------------------------------------------


def test_release_makes_native_hpas_of_the_present_specs(cluster: Cluster) -> None:
    cluster.add_native("web")
    assert cluster.run("adopt", "east/shop/web").exit_code == 0
    changed = hpa("web", maxReplicas=33)
    cluster.fleet.append(AutoscalerSet(hpa=changed, origin="central", author="eva"))
    result = cluster.run("release", "east/shop/web")
    assert (result.exit_code, result.stdout) == (0, "hpa east/shop/web released\n")
    assert cluster.real["web"]["spec"]["maxReplicas"] == 33
    (now,) = ownership(cluster.state).claims.values()
    assert (now.origin, now.asked, now.mode) == ("cluster", "shadow", "shadow")


def test_history_says_who_released_an_hpa_and_why(cluster: Cluster) -> None:
    cluster.add_central("web")
    cluster.run("release", "-C", "east", "-A")
    changes = history(Partition.empty(0), cluster.fleet.log, HpaId("east", "shop", "web"))
    assert ("released", "anna", "moving") in [(each.what, each.author, each.reason) for each in changes]


def test_a_dry_run_asks_the_api_server_and_changes_nothing(cluster: Cluster) -> None:
    cluster.add_central("api", "web")
    cluster.refuses = "api"
    result = cluster.run("release", "-C", "east", "-A", "--dry-run")
    assert (result.exit_code, cluster.effects) == (1, 0)
    assert (
        "east/shop/api cannot be released\n  The API server would refuse it: denied by an admission webhook."
        in result.stderr
    )
    assert "hpa east/shop/web: create the native HPA" in result.stdout
    assert cluster.run("release", "-C", "east", "-A").exit_code == 1
    assert (set(cluster.real), cluster.central(), cluster.writing()) == ({"web"}, {"api"}, {"api"})


def test_an_adopted_hpa_is_decided_by_the_rules_of_its_clusters_version(cluster: Cluster) -> None:
    cluster.add_native("web")
    cluster.fleet.append(Heartbeat(session="s", watches=["autoscalers"], kubernetes="v1.32.4"))
    cluster.run("adopt", "east/shop/web")
    for _ in range(20):
        cluster.fleet.append(after_ms=1_000)

    found = [each.decision for each in cluster.fleet.decisions() if each.decision.origin == "central"]
    assert {each.rules for each in found} == {"1.32"}


def test_release_names_what_the_native_controller_does_otherwise_than_the_pinned_rules(cluster: Cluster) -> None:
    cluster.add_native("web")
    cluster.run("adopt", "east/shop/web")
    cluster.fleet.append(Heartbeat(session="s", watches=["autoscalers"], kubernetes="v1.34.2"))
    pinned = SettingsSet(cluster="east", settings=ClusterSettings(native_controller="present", rules="1.33"))
    cluster.fleet.append(pinned, key=WHOLE_PARTITION_KEY)
    cluster.fleet.checkpoint()
    asked = cluster.run("release", "east/shop/web", "--dry-run").stderr
    cluster.fleet.append(structs.replace(pinned, settings=ClusterSettings(native_controller="present", rules="")))
    cluster.fleet.checkpoint()

    does = "the native controller of v1.34.2 does what the rules 1.33 do not: "
    assert [line.partition(does)[2] for line in asked.splitlines() if does in line] == [
        RULES[name].change
        for name in ("memory_is_binary", "conflicts_retried", "external_average_saturates", "pod_level_requests")
    ]
    assert does not in cluster.run("release", "east/shop/web", "--dry-run").stderr


def test_release_asks(cluster: Cluster) -> None:
    cluster.add_central("api", "web")
    cluster.fleet.checkpoint()
    result = cluster.cli("release", "-C", "east", "-A")
    assert (result.exit_code, cluster.effects) == (2, 0)
    assert "release gives 2 HPAs of east back to the native controller of east" in result.stderr


def _shadow(cluster: Cluster) -> None:
    cluster.fleet.append(Command(command="mode", name="web", mode="shadow"))


def _off(cluster: Cluster) -> None:
    cluster.fleet.append(Command(command="mode", name="web", mode="off"))


def _paused(cluster: Cluster) -> None:
    cluster.fleet.append(Command(command="pause", name="web", author="bob", reason="holiday"))


def _paused_down(cluster: Cluster) -> None:
    cluster.fleet.append(Command(command="pause", name="web", pause_kind="scaleDown"))


def _namespace_paused(cluster: Cluster) -> None:
    cluster.fleet.append(Command(command="pause"))


def _frozen(cluster: Cluster) -> None:
    cluster.fleet.append(SettingsSet(cluster="east", settings=ClusterSettings(frozen=True)), key=WHOLE_PARTITION_KEY)


@pytest.mark.parametrize(
    ("hold", "why"),
    [
        (_shadow, "mode shadow"),
        (_off, "mode off"),
        (_paused, "holiday"),
        (_paused_down, "paused: scaleDown"),
        (_namespace_paused, "for namespace shop"),
        (_frozen, "cluster east is frozen"),
    ],
)
def test_what_fleethpa_does_not_scale_is_released_only_where_the_command_asks_for_it(
    cluster: Cluster, hold: Callable[[Cluster], None], why: str
) -> None:
    cluster.add_central("web")
    hold(cluster)
    result = cluster.run("release", "-C", "east", "-A")
    assert (result.exit_code, cluster.real) == (1, {})
    assert "east/shop/web is not released (" in result.stderr
    assert why in result.stderr
    reported = cluster.run("release", "-C", "east", "-A", "--include-held")
    assert (reported.exit_code, set(cluster.real)) == (0, {"web"})
    assert "warning: the native controller will scale what fleethpa does not: east/shop/web" in reported.stderr


def test_the_pause_of_a_namespace_counts_beside_that_of_an_earlier_run(cluster: Cluster) -> None:
    cluster.add_central("web")
    cluster.killed_at = 2
    with pytest.raises(Killed):
        cluster.run("release", "-C", "east", "-A")
    _namespace_paused(cluster)
    assert re.search(
        r"web is not released \(paused: .*for namespace shop", cluster.run("release", "-C", "east", "-A").stderr
    )


def test_a_native_hpa_of_the_same_name_with_another_spec_is_not_overwritten(cluster: Cluster) -> None:
    cluster.add_native("web")
    cluster.real["web"]["spec"] |= {"maxReplicas": 7}
    cluster.add_central("web")
    result = cluster.run("release", "-C", "east", "-A")
    assert result.exit_code == 1
    assert "maxReplicas 7→20" in result.stderr
    assert cluster.effects == 0


def test_a_native_hpa_of_another_name_on_the_target_stops_it(cluster: Cluster) -> None:
    cluster.add_native("old")
    cluster.real["old"]["spec"] |= {"scaleTargetRef": hpa("web")["spec"]["scaleTargetRef"]}
    cluster.add_central("web", mode="shadow")
    result = cluster.run("release", "-C", "east", "-A", "--include-held")
    assert (result.exit_code, cluster.effects) == (1, 0)
    assert "the native HPA shop/old drives its target" in result.stderr
    assert "save it with kubectl --context east get hpa old -n shop -o yaml > old.yaml, then" in result.stderr


def test_without_a_native_controller_nothing_is_released(cluster: Cluster) -> None:
    cluster.add_central("web")
    absent = SettingsSet(cluster="east", settings=ClusterSettings(native_controller="absent"))
    cluster.fleet.append(absent, key=WHOLE_PARTITION_KEY)
    result = cluster.run("release", "-C", "east", "-A")
    assert (result.exit_code, cluster.effects) == (1, 0)
    assert "cluster east has no native HPA controller" in result.stderr
    assert "native-controller=present" not in result.stderr, "a setting switches no controller on"
    assert "switch it on, then" in result.stderr


def test_where_no_native_controller_looks_the_central_ones_go_on(cluster: Cluster) -> None:
    cluster.add_central(*NAMES)
    cluster.native_runs = False
    result = cluster.run("release", "-C", "east", "-A", "--native-wait", "0s")
    assert result.exit_code == 1
    assert "the native controller of cluster east has not looked at 3 HPAs within 0 s" in result.stderr
    assert (cluster.real, cluster.writing()) == ({}, set(NAMES))


@pytest.mark.parametrize("paused", [False, True], ids=["in shadow", "paused"])
def test_a_native_hpa_that_was_there_stays_where_the_central_one_would_not_scale(
    cluster: Cluster, paused: bool
) -> None:
    cluster.add_native("web")
    cluster.add_central("web", mode="enforce" if paused else "shadow")
    if paused:
        cluster.fleet.append(Command(command="pause", name="web", author="eva"), key=KEY)
    cluster.native_runs = False
    result = cluster.run("release", "east/shop/web", "--native-wait", "0s")
    assert result.exit_code == 1
    assert "Not deleted, since fleethpa did not create it or would not scale in its place: east/shop/web." in (
        result.stderr
    )
    assert "deleted again" not in result.stderr
    assert cluster.real.keys() == {"web"}


@pytest.mark.parametrize("by", ["kubectl", "fleethpa"])
def test_a_native_hpa_that_was_there_is_deleted_again_only_if_fleethpa_created_it(cluster: Cluster, by: str) -> None:
    cluster.add_native("web")
    cluster.real["web"]["metadata"]["managedFields"] = [{"manager": by, "fieldsV1": {"f:spec": {"f:maxReplicas": {}}}}]
    cluster.add_central("web")
    cluster.native_runs = False
    result = cluster.run("release", "east/shop/web", "--native-wait", "0s")
    assert result.exit_code == 1
    assert ("fleethpa did not create it" in result.stderr) == (by == "kubectl")
    assert set(cluster.real) == ({"web"} if by == "kubectl" else set())


def test_policies_stay_with_an_hpa_over_release_and_adopt(cluster: Cluster) -> None:
    policies = {"fleethpa.io/stand-in": "hold", "fleethpa.io/fallback": "replicas=4", "fleethpa.io/budget": "exempt"}
    cluster.add_central("web", annotations=policies | {"fleethpa.io/rollout": "{}"})
    assert cluster.run("release", "-C", "east", "-A").exit_code == 0
    assert cluster.real["web"]["metadata"]["annotations"] == policies
    assert cluster.run("adopt", "-C", "east", "-A").exit_code == 0
    printed = cluster.cli("get", "hpa", "web", "-C", "east", "-n", "shop", "-o", "json").stdout
    (adopted,) = json.loads(printed)["items"]
    assert adopted["metadata"]["annotations"] == policies


def test_a_target_at_zero_is_found_by_scaling(cluster: Cluster) -> None:
    zero = {
        "type": "ScaledToZero",
        "status": "True",
        "reason": "ScaledToZero",
        "message": "",
        "lastTransitionTime": "2026-11-22T08:00:00Z",
    }
    status = {"currentReplicas": 0, "desiredReplicas": 0, "lastScaleTime": "2026-11-22T08:00:00Z", "conditions": [zero]}
    cluster.add_central("web")
    cluster.state.hpas[HpaId("east", "shop", "web")].row.keep_status(status)
    cluster.state.hpas[HpaId("east", "shop", "web")].dirty = True
    cluster.native_runs = False
    cluster.run("release", "-C", "east", "-A", "--native-wait", "0s")
    assert cluster.real == {}
    cluster.native_runs = True
    assert cluster.run("release", "-C", "east", "-A").exit_code == 0
    assert cluster.real["web"]["status"] == status | {"observedGeneration": 1}


def test_marks_of_gitops_tools_do_not_come_along(cluster: Cluster) -> None:
    labels = {"app": "web", "app.kubernetes.io/instance": "shop"}
    annotations = {"note": "kept", "argocd.argoproj.io/tracking-id": "shop:x"}
    cluster.add_central("web", labels=labels, annotations=annotations)
    result = cluster.run("release", "-C", "east", "-A")
    metadata = cluster.real["web"]["metadata"]
    assert (metadata["labels"], metadata["annotations"]) == ({"app": "web"}, {"note": "kept"})
    assert "app.kubernetes.io/instance, argocd.argoproj.io/tracking-id" in result.stderr


# --- adopt ------------------------------------------------------------------------------------------------------------


def test_adopt_takes_a_whole_cluster_and_saves_every_hpa(cluster: Cluster) -> None:
    cluster.add_native(*NAMES)
    result = cluster.run("adopt", "-C", "east", "-A")
    assert result.exit_code == 0
    assert "adopt deletes 3 native HPAs in east" in result.stderr
    assert "kube_horizontalpodautoscaler_* of kube-state-metrics go silent" in result.stderr
    assert "compose/prometheus-kube-state-metrics.yaml" in result.stderr
    assert sorted(path.name for path in cluster.folder.iterdir()) == [f"east.shop.{name}.yaml" for name in NAMES]
    assert (cluster.real, cluster.writing()) == ({}, set(NAMES))


def test_adopt_leaves_what_another_controller_owns(cluster: Cluster) -> None:
    owner = {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "name": "queue", "controller": True}
    cluster.add_native("queue", ownerReferences=[owner])
    cluster.add_native("web")
    result = cluster.run("adopt", "-C", "east", "-n", "shop")
    assert (result.exit_code, set(cluster.real), cluster.writing()) == (1, {"queue"}, {"web"})
    assert "east/shop/queue is not adopted: ScaledObject/queue owns it" in result.stderr


def test_adopt_leaves_what_an_object_of_the_hubs_api_makes_and_names_it(cluster: Cluster) -> None:
    cluster.add_native("web")
    cluster.observe()
    owner = {"object": "CentralHPA/shop/web", "uid": "u", "generation": 1}
    cluster.add_central("web", mode="shadow", annotations={"fleethpa.io/object": json.dumps(owner)})
    before = len(cluster.fleet.log)
    result = cluster.run("adopt", "east/shop/web")
    assert result.exit_code == 1
    assert "hpa east/shop/web: not written, as CentralHPA/shop/web of the hub's API states it" in result.stderr
    assert (set(cluster.real), len(cluster.fleet.log)) == ({"web"}, before)


def test_an_hpa_that_the_log_does_not_know_yet_is_not_adopted_into_a_cluster_whose_scale_downs_are_paused(
    cluster: Cluster,
) -> None:
    cluster.add_native("web")
    cluster.fleet.append(Command(command="pause", cluster="east", pause_kind="scaleDown"), key=WHOLE_PARTITION_KEY)
    cluster.fleet.checkpoint()
    cluster.real["new"] = hpa("new") | {"metadata": {"namespace": "shop", "name": "new", "uid": "uid-new"}}
    result = cluster.run("adopt", "east/shop/new")
    assert (result.exit_code, "new" in cluster.real) == (1, True), result.output
    assert "east/shop/new is not adopted (paused: paused scaleDown" in result.stderr
    assert "Next: fleethpa resume -C east\n" in result.stderr


def test_two_native_hpas_of_one_target_stay_and_the_hint_deletes_one_of_them_where_it_is(cluster: Cluster) -> None:
    cluster.add_native(*NAMES)
    cluster.real["queue"]["spec"] |= {"scaleTargetRef": hpa("web")["spec"]["scaleTargetRef"]}
    cluster.observe()
    result = cluster.run("adopt", "-C", "east", "-A")
    assert (result.exit_code, set(cluster.real), cluster.writing()) == (1, {"queue", "web"}, {"api"})
    assert "east/shop/queue and east/shop/web are not adopted: they have one target" in result.stderr
    assert "kubectl --context east delete hpa web -n shop" in result.stderr
    assert "fleethpa delete" not in result.stderr
    # What the hint does helps.
    del cluster.real["web"]
    cluster.observe()
    assert cluster.run("adopt", "-C", "east", "-A").exit_code == 0
    assert (cluster.real, cluster.writing()) == ({}, {"api", "queue"})


@pytest.mark.parametrize("hold", [_paused, _namespace_paused, _frozen])
def test_what_would_be_scaled_by_nobody_is_not_adopted(cluster: Cluster, hold: Callable[[Cluster], None]) -> None:
    cluster.add_native("web")
    hold(cluster)
    result = cluster.run("adopt", "-C", "east", "-A")
    assert (result.exit_code, cluster.effects) == (1, 0)
    assert "Nothing would scale it any more" in result.stderr


def test_adopt_says_which_central_specs_it_replaces(cluster: Cluster) -> None:
    cluster.add_native("web")
    cluster.fleet.append(AutoscalerSet(hpa=hpa("web", maxReplicas=5), origin="central", mode="shadow"))
    assert (
        "the central HPA east/shop/web gets the native spec: maxReplicas 5→20"
        in cluster.run("adopt", "-C", "east", "-A").stderr
    )


def test_of_a_group_that_could_not_all_be_deleted_the_log_knows_what_is_gone(cluster: Cluster) -> None:
    cluster.add_native(*NAMES)
    removed = cluster.request

    async def fails(method: str, path: str, body: Json, **_: object) -> Json:
        if method == "DELETE" and path.endswith("/queue"):
            raise ApiError(500, "no quorum")
        return await removed(method, path, body)

    cluster.request = fails  # type: ignore[method-assign]
    assert cluster.run("adopt", "-C", "east", "-A").exit_code == 3
    assert (set(cluster.real), cluster.writing()) == ({"queue", "web"}, {"api"})


# --- while parts are ill ----------------------------------------------------------------------------------------------


def hangs(name: str, cluster: Cluster) -> None:
    """Let a part of fleethpa, or the cluster's agent, say nothing for longer than it may."""
    observed = Heartbeat(session="s", watches=["pods", "autoscalers", "scales"])
    cluster.fleet.append(observed, Serving(session="r", clusters=["east"]))
    cluster.fleet.append()
    cluster.fleet.checkpoint()
    for _ in range(10):
        cluster.fleet.append(after_ms=5_000, by="ingest")
        if name == "reconciler":
            cluster.fleet.append(observed, after_ms=0)
        if name == "decider":
            cluster.fleet.append(observed, Serving(session="r", clusters=["east"]), after_ms=0)
    if name == "decider":
        cluster.monkeypatch.setattr(FleetPast, "now_ms", lambda _: cluster.fleet.now_ms)


@pytest.mark.parametrize(
    ("name", "stated"),
    [
        ("observer", "its observer has been silent since"),
        ("reconciler", "its reconciler has been silent since"),
        ("decider", "the decider hangs or does not run"),
    ],
)
def test_no_native_hpa_is_deleted_while_what_would_scale_in_its_place_hangs(
    cluster: Cluster, name: str, stated: str
) -> None:
    cluster.add_native("web")
    hangs(name, cluster)
    # Without a further checkpoint, which a decider that hangs does not make.
    adopted = cluster.cli("adopt", "-C", "east", "-A", "--export", str(cluster.folder), "--yes")
    assert (adopted.exit_code, set(cluster.real), cluster.writing()) == (1, {"web"}, set()), adopted.output
    assert f"Error: east/shop/web is not adopted ({stated}" in adopted.stderr
    assert "Nothing would scale it any more." in adopted.stderr


def test_where_no_reconciler_has_ever_served_the_cluster_adopt_says_that_nothing_would_scale(cluster: Cluster) -> None:
    cluster.add_native("web")
    text = "warning: no reconciler has ever served cluster east: nothing scales there until one does."
    assert text in cluster.run("adopt", "-C", "east", "-A", "--dry-run").stderr
    assert text not in cluster.run("adopt", "-C", "east", "-A", "--dry-run", "--mode", "shadow").stderr
    cluster.fleet.append(Serving(session="r", clusters=["east"]))
    assert text not in cluster.run("adopt", "-C", "east", "-A", "--dry-run").stderr


# --- agents -----------------------------------------------------------------------------------------------------------


def test_where_an_agent_observes_commands_wait_for_its_report(cluster: Cluster) -> None:
    cluster.add_agent()
    cluster.add_native(*NAMES)
    cluster.check = none_is_scaled_twice(cluster)
    adopted = cluster.run("adopt", "-C", "east", "-A")
    assert (adopted.exit_code, cluster.writing()) == (0, set(NAMES))
    assert "native HPA east/shop/web deleted" in adopted.stdout
    released = cluster.run("release", "-C", "east", "-A")
    assert (released.exit_code, set(cluster.real), cluster.central()) == (0, set(NAMES), set())


def test_an_agent_that_says_nothing_is_named(cluster: Cluster) -> None:
    cluster.add_agent()
    cluster.add_native("web")
    cluster.add_central("api")
    cluster.silence_agent()
    adopted = cluster.run("adopt", "-C", "east", "-A")
    assert adopted.exit_code == 5
    assert "the agent of cluster east has not reported that east/shop/web is gone" in adopted.stderr
    released = cluster.run("release", "east/shop/api")
    assert released.exit_code == 3
    assert "the agent of cluster east has not reported the native HPA east/shop/api" in released.stderr
    assert (set(cluster.real), cluster.writing()) == (set(), {"api"})


def test_a_native_hpa_that_stays_is_not_reported_as_deleted_where_the_agent_says_nothing(cluster: Cluster) -> None:
    cluster.add_native("api")
    cluster.add_central("api", "web")
    cluster.add_agent()
    cluster.silence_agent()
    released = cluster.run("release", "-C", "east", "-A")
    assert released.exit_code == 3
    assert "has not reported the native HPA" in released.stderr
    assert "The native HPAs that fleethpa created were deleted again" in released.stderr
    assert "would not scale in its place: east/shop/api." in released.stderr
    assert set(cluster.real) == {"api"}


@pytest.mark.parametrize("verb", ["adopt", "release"])
def test_what_the_stand_in_keeps_is_neither_adopted_nor_released(cluster: Cluster, verb: str) -> None:
    cluster.add_central("web")
    kept = hpa("web")
    kept["metadata"] |= {"uid": "uid-9", "labels": {STAND_IN_LABEL: "true"}}
    cluster.real["web"] = kept
    result = cluster.run(verb, "-C", "east", "-A")
    assert (set(cluster.real), cluster.central(), cluster.effects) == ({"web"}, {"web"}, 0), result.output


# --- back and forth ---------------------------------------------------------------------------------------------------


def test_back_and_forth(cluster: Cluster) -> None:
    cluster.add_native(*NAMES)
    cluster.check = none_is_scaled_twice(cluster)
    before = {name: each["spec"] for name, each in cluster.real.items()}
    for _ in range(3):
        assert cluster.run("adopt", "-C", "east", "-A").exit_code == 0
        assert (cluster.real, cluster.writing()) == ({}, set(NAMES))
        assert cluster.run("release", "-C", "east", "-A").exit_code == 0
        assert {name: each["spec"] for name, each in cluster.real.items()} == before
        assert not cluster.central()


@pytest.mark.parametrize(
    ("name", "cluster", "namespace", "all_namespaces", "place"),
    [
        pytest.param("east/shop/web", None, None, False, Place("east", "shop", "web"), id="an HPA by its whole name"),
        pytest.param(
            "shop/web", "east", None, False, Place("east", "shop", "web"), id="A/B is NAMESPACE/NAME, as in get"
        ),
        pytest.param("web", "east", "shop", False, Place("east", "shop", "web"), id="by options"),
        pytest.param(
            "web", "east", None, False, Place("east", "default", "web"), id="without -n it is default, as in get"
        ),
        pytest.param(None, "east", "shop", False, Place("east", "shop"), id="a namespace"),
        pytest.param(None, "east", None, True, Place("east"), id="a cluster"),
    ],
)
def test_a_place_is_named_as_in_get(
    name: str | None, cluster: str | None, namespace: str | None, all_namespaces: bool, place: Place
) -> None:
    assert place_of("adopt", name, cluster, namespace, all_namespaces) == place
    words = place.arguments.split()
    again = (words[0], None, None, False) if place.name else (None, "east", place.namespace or None, "-A" in words)
    assert place_of("release", *again) == place


@pytest.mark.parametrize("text", ["", "east/", "/shop", "a/b/c/d"])
def test_what_names_no_hpa_is_refused(text: str) -> None:
    with pytest.raises(CommandError, match="is not the name of an HPA"):
        place_of("adopt", text, "east", None, False)
