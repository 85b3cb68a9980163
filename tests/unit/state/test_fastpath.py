"""The fast path of evaluations gives the bytes of the general one, and says so itself where it would not."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from schemas.answers import Answers, MetricAnswer
from schemas.entries import Body, Outcome
from schemas.observed import (
    AutoscalerDeleted,
    AutoscalerList,
    AutoscalerSet,
    Command,
    Heartbeat,
    PodDeleted,
    PodSet,
    Rival,
    Target,
)
from schemas.settings import ClusterSettings, EngineSet, Restart, SettingsSet
from streams.hpa.evaluation import MetricEvaluation
from streams.hpa.metrics import status_of
from streams.state import memo as memos
from streams.state.ledger import StateError
from streams.state.memo import FastPath
from streams.state.partition import Partition
from tests.kit.fastpath import NEVER, checking, without_fast_path
from tests.kit.partition import ENFORCING, NAMESPACE, LogBuilder, Record, cpu_answer, make_hpa, make_pod, scale
from tests.laws import examples

PERIOD_MS = 15_000
BEHAVIOR = {
    "scaleUp": {"policies": [{"type": "Pods", "value": 2, "periodSeconds": 60}], "stabilizationWindowSeconds": 0},
    "scaleDown": {"policies": [{"type": "Percent", "value": 50, "periodSeconds": 30}]},
}
SETTINGS = (
    ENFORCING,
    ClusterSettings(default_mode="shadow", native_controller="absent"),
    ClusterSettings(default_mode="enforce", native_controller="absent", tolerance="0.02"),
    ClusterSettings(default_mode="enforce", native_controller="absent", removal_budget="1/10m"),
    ClusterSettings(default_mode="enforce", native_controller="absent", frozen=True, sync_period_ms=10_000),
    ClusterSettings(default_mode="enforce", native_controller="absent", rules="1.30"),
    ClusterSettings(default_mode="enforce", native_controller="absent", namespaces={NAMESPACE: "shadow"}),
    ClusterSettings(default_mode="enforce", native_controller="present", native_evidence="a lease is held"),
    ClusterSettings(default_mode="enforce", native_controller="absent", partial_view=True, max_step=1),
    ClusterSettings(default_mode="enforce", native_controller="absent", evaluate_on="sample"),
)


class CalmFleet:
    """Two HPAs, one with `behavior` and a second metric, that are mostly at rest. Writes are applied at once."""

    def __init__(self) -> None:
        self.log = LogBuilder()
        self.level = {"web": 50, "api": 50}
        self.replicas = {"web": 4, "api": 3}
        self.generation = dict.fromkeys(self.level, 1)
        self.missing = self.queue = 0
        self.promql = ""
        self.add(EngineSet(engine=1), SettingsSet(cluster="*", settings=ENFORCING))
        for app, count in self.replicas.items():
            pods = [PodSet(pod=make_pod(f"{app}-{index}", app)) for index in range(count)]
            self.add(AutoscalerSet(hpa=self.hpa(app)), scale(app, count), *pods)

    def hpa(self, app: str) -> dict[str, Any]:
        spec: dict[str, Any] = {"maxReplicas": 8 + self.generation[app], "minReplicas": 1}
        if app == "web":
            cpu = {"type": "Resource", "resource": {"name": "cpu", "target": _utilization(50)}}
            queue = {"metric": {"name": "queue"}, "target": {"type": "AverageValue", "averageValue": "10"}}
            spec |= {"behavior": BEHAVIOR, "metrics": [cpu, {"type": "External", "external": queue}]}
        hpa = make_hpa(app, f"uid-{app}", self.generation[app], **spec)
        hpa["metadata"]["annotations"] = {"fleethpa.io/fallback": "failureThreshold=2,replicas=4"}
        return hpa

    def add(self, *bodies: Body, after_ms: int = 500) -> None:
        made = self.log.add(*bodies, after_ms=after_ms)
        for decision in made:
            if decision.get("wants") is not None:
                self._apply(decision)

    def _apply(self, decision: dict[str, Any]) -> None:
        app, wants = decision["scaleTargetRef"]["name"], decision["wants"]
        before, self.replicas[app] = self.replicas[app], wants
        pods: list[Body] = [PodDeleted(name=f"{app}-{index}") for index in range(wants, before)]
        for index in range(before, wants):
            now_ms = self.log.now_ms
            pods.append(PodSet(pod=make_pod(f"{app}-{index}", app, start=now_ms, ready_at=now_ms)))
        made = {"decision": decision["id"], "name": decision["name"], "uid": decision["uid"]}
        self.add(Outcome(**made, result="applied", spec_replicas=wants), scale(app, wants), *pods)

    def rest(self, periods: int) -> None:
        """Let some periods pass, in which the load hardly changes."""
        for period in range(periods):
            external = [(self.queue, self.log.now_ms)]
            items = [MetricAnswer(api="external", metric="queue", items=external, promql=self.promql)]
            for app, count in self.replicas.items():
                first = self.missing if app == "web" else 0
                usage = {f"{app}-{index}": self.level[app] + (period + index) % 3 for index in range(first, count)}
                items.append(cpu_answer(app, usage, self.log.now_ms))
            beat = Heartbeat(session="s", watches=["pods", "scales", "autoscalers", "metrics"])
            self.add(Answers(items=items), beat, after_ms=PERIOD_MS - 500)

    def happen(self, what: str, number: int) -> None:
        """Let one thing happen to an HPA, or to both."""
        app = "web" if number % 3 else "api"
        EVENTS[what](self, app, number)


def _utilization(percent: int) -> dict[str, Any]:
    return {"type": "Utilization", "averageUtilization": percent}


def _edit(fleet: CalmFleet, app: str, _: int) -> None:
    fleet.generation[app] += 1
    fleet.add(AutoscalerSet(hpa=fleet.hpa(app)))


def _pod(fleet: CalmFleet, app: str, number: int) -> None:
    at_ms = fleet.log.now_ms - (number % 4) * 100_000
    ready = "False" if number % 5 == 0 else "True"
    fleet.add(PodSet(pod=make_pod(f"{app}-{number % 5}", app, start=at_ms, ready_at=at_ms, ready=ready)))


def _status(fleet: CalmFleet, app: str, number: int) -> None:
    hpa = fleet.hpa(app)
    hpa["status"] = {"currentReplicas": number % 4, "desiredReplicas": number % 5}
    fleet.add(AutoscalerSet(hpa=hpa))


def _born_again(fleet: CalmFleet, app: str, _: int) -> None:
    fleet.add(AutoscalerDeleted(name=app, uid=f"uid-{app}"))
    fleet.add(AutoscalerSet(hpa=fleet.hpa(app)))


def _load(fleet: CalmFleet, app: str, number: int) -> None:
    fleet.level[app] = (20, 44, 49, 51, 54, 58, 90)[number % 7]


def _failure(fleet: CalmFleet, app: str, _: int) -> None:
    fleet.add(Answers(items=[MetricAnswer(api="resource", selector=f"app={app}", error="timeout")]), after_ms=14_000)


def _scaled(fleet: CalmFleet, app: str, number: int) -> None:
    fleet.replicas[app] = number % 5
    fleet.add(scale(app, number % 5, manager="kubectl"))


def _second_hpa(fleet: CalmFleet, app: str, number: int) -> None:
    """Another HPA of the same target comes, goes, or gets another target."""
    if number % 4 == 0:
        fleet.add(AutoscalerDeleted(name="second", uid="uid-second"))
        return
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": app}
    made = make_hpa("second", "uid-second", number, scaleTargetRef=target)
    fleet.add(AutoscalerSet(hpa=made, origin="central" if number % 4 == 1 else "cluster"))


def _rivals(fleet: CalmFleet, app: str, number: int) -> None:
    target = Target(group="apps", kind="Deployment", name=app)
    rivals = [Rival(kind="ScaledObject", name="keda", target=target)] * (number % 2)
    fleet.add(AutoscalerList(list_id=f"list-{number}", hpas=[fleet.hpa(each) for each in fleet.level], rivals=rivals))


def _annotated(fleet: CalmFleet, app: str, number: int) -> None:
    hpa = fleet.hpa(app)
    hpa["metadata"]["annotations"] = {"fleethpa.io/budget": "exempt"} if number % 2 else {}
    fleet.add(AutoscalerSet(hpa=hpa))


EVENTS: dict[str, Callable[[CalmFleet, str, int], None]] = {
    "edit": _edit,
    "pod": _pod,
    "status": _status,
    "born again": _born_again,
    "load": _load,
    "queue": lambda fleet, _, number: setattr(fleet, "queue", (0, 30_000, 41_000, 80_000)[number % 4]),
    "missing": lambda fleet, _, number: setattr(fleet, "missing", number % 3),
    "failure": _failure,
    "promql": lambda fleet, _, number: setattr(fleet, "promql", "sum(q)" * (number % 2)),
    "scaled": _scaled,
    "settings": lambda fleet, _, number: fleet.add(SettingsSet(cluster="*", settings=SETTINGS[number % len(SETTINGS)])),
    "pause": lambda fleet, app, number: fleet.add(Command(command="pause", name=app if number % 2 else "")),
    "resume": lambda fleet, app, number: fleet.add(Command(command="resume", name=app if number % 2 else "")),
    "override": lambda fleet, app, number: fleet.add(
        Command(command="override", name=app, replicas=1 + number % 6, until=fleet.log.now_ms + number * 1_000)
    ),
    "mode of the namespace": lambda fleet, _, number: fleet.add(
        Command(command="mode", name="", mode=("enforce", "shadow", "off")[number % 3])
    ),
    "mode of the cluster": lambda fleet, _, number: fleet.add(
        SettingsSet(cluster="eu", settings=SETTINGS[number % len(SETTINGS)])
    ),
    "another HPA of the target": _second_hpa,
    "rivals": _rivals,
    "annotations": _annotated,
    "off": lambda fleet, app, _: fleet.add(Command(command="mode", name=app, mode="off")),
    "enforce": lambda fleet, app, _: fleet.add(Command(command="mode", name=app, mode="enforce")),
    "restart": lambda fleet, _, __: fleet.add(Restart(reason="rows were lost")),
    "same pods as the other": lambda fleet, _, number: fleet.add(
        PodSet(pod=make_pod("web-0", "api" if number % 2 else "web"))
    ),
    "gap": lambda fleet, _, number: fleet.add(after_ms=(100_000, 400_000)[number % 2]),
}
HAPPENINGS = st.lists(
    st.tuples(st.sampled_from(sorted(EVENTS)), st.integers(0, 419), st.integers(1, 9)), min_size=1, max_size=12
)


def calm_log(happenings: list[tuple[str, int, int]]) -> LogBuilder:
    """The log of a calm fleet to which some things happen, with as many quiet periods after each."""
    fleet = CalmFleet()
    fleet.rest(5)
    for what, number, periods in happenings:
        fleet.happen(what, number)
        fleet.rest(periods)
    return fleet.log


def folded(records: list[Record], restarts: frozenset[int] = frozenset()) -> tuple[list[bytes], list[Any], int]:
    """Fold a log with a checkpoint every tenth record, and restarts from its rows after some of these.

    Gives the decisions, all rows of all checkpoints, and how many evaluations took the fast path.
    """
    partition, rows, written, made, fast = Partition.empty(0), dict[bytes, bytes](), list[Any](), list[bytes](), 0
    for record in records:
        made += [each.value for each in partition.apply(*record)]
        if record.offset % 10 == 9:
            written += partition.checkpoint()
            rows |= dict(written)
            if record.offset // 10 in restarts:
                fast += partition.state.fast.found
                partition = Partition.restore(0, rows)
    return made, [*written, *partition.checkpoint()], fast + partition.state.fast.found


@settings(max_examples=examples(30))
@given(happenings=HAPPENINGS, restarts=st.frozensets(st.integers(0, 20), max_size=4))
def test_decisions_and_rows_are_the_same_with_and_without_the_fast_path(
    happenings: list[tuple[str, int, int]], restarts: frozenset[int]
) -> None:
    with without_fast_path():
        log = calm_log(happenings)
        plain, rows, _ = folded(log.records)
        restarted_rows = folded(log.records, restarts)[1]
    with checking(NEVER):
        assert folded(log.records)[:2] == (plain, rows)
        assert folded(log.records, restarts)[:2] == (plain, restarted_rows)
    assert folded(log.records)[:2] == (plain, rows)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(
            lambda fleet: fleet.add(scale("web", 4, session="gone")), id="its observer sends no more heartbeats"
        ),
        pytest.param(
            lambda fleet: fleet.add(structs.replace(scale("web", 4), error="forbidden")), id="its scale cannot be read"
        ),
        pytest.param(
            lambda fleet: fleet.add(structs.replace(scale("web", 4), status_replicas=3)), id="its status is another one"
        ),
        pytest.param(
            lambda fleet: fleet.add(PodSet(pod=make_pod("web-0", ready="False"))), id="a pod is not ready any more"
        ),
    ],
)
def test_a_change_of_scale_or_pods_after_a_rest_is_seen_on_the_fast_path_too(
    change: Callable[[CalmFleet], None],
) -> None:
    with without_fast_path():
        fleet = CalmFleet()
        fleet.rest(6)
        change(fleet)
        fleet.rest(4)
        plain, rows, _ = folded(fleet.log.records)
    with checking(NEVER):
        made, again, fast = folded(fleet.log.records)
    assert (made, again) == (plain, rows)
    assert fast > 6


def test_a_fleet_at_rest_takes_the_fast_path() -> None:
    with checking(NEVER):
        made, _, fast = folded(calm_log([("load", 3, 40)]).records)
    assert fast > 0.8 * len(made)


def test_full_lists_that_repeat_what_is_known_leave_hpas_on_the_fast_path() -> None:
    with checking(NEVER):
        _, _, undisturbed = folded(calm_log([("load", 3, 24)]).records)
        _, _, fast = folded(calm_log([("load", 3, 4), *[("rivals", 2, 4)] * 5]).records)
    assert fast == undisturbed


def test_an_hpa_whose_memo_is_lost_in_a_restart_takes_the_general_path_and_learns_again() -> None:
    log = calm_log([("load", 3, 30)])
    with checking(NEVER):
        whole, _, undisturbed = folded(log.records)
        made, _, fast = folded(log.records, frozenset((1, 2, 3)))
    assert made == whole
    assert 0 < fast < undisturbed


def test_the_end_of_a_rival_ends_the_fast_path_of_the_hpa_that_it_stopped() -> None:
    fleet = CalmFleet()
    fleet.add(SettingsSet(cluster="*", settings=ClusterSettings(default_mode="enforce", native_controller="present")))
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "api"}
    second = make_hpa("second", "uid-second", 1, scaleTargetRef=target)
    fleet.add(AutoscalerSet(hpa=second, origin="central"))
    fleet.rest(6)
    hpa = next(each for name, each in fleet.log.partition.state.hpas.items() if name.name == "second")
    assert hpa.memo is not None
    assert (hpa.row.mode, hpa.row.refused != "") == ("shadow", True)
    fleet.add(AutoscalerDeleted(name="api"))
    fleet.rest(1)
    assert (hpa.row.mode, hpa.row.refused) == ("enforce", "")


def test_an_hpa_that_comes_to_share_pods_ends_the_fast_path_of_the_other() -> None:
    fleet = CalmFleet()
    fleet.add(AutoscalerSet(hpa=make_hpa("late", "uid-late")))
    fleet.rest(6)
    hpas = {name.name: each for name, each in fleet.log.partition.state.hpas.items()}
    assert hpas["web"].memo is not None
    fleet.add(structs.replace(scale("late", 4), selector="app=web"))
    fleet.rest(2)
    assert hpas["web"].memo is None
    assert "AmbiguousSelector" in str(hpas["web"].row.own_status)


def wrong_status(metric: MetricEvaluation) -> dict[str, Any]:
    """A status that the general path does not give."""
    return {**status_of(metric), "type": "wrong"}


def test_a_difference_ends_the_fast_path_of_its_hpa_and_the_general_result_is_recorded() -> None:
    log = calm_log([("load", 3, 10)])
    plain, rows, _ = folded(log.records)
    with checking(1) as patch:
        patch.setattr(memos, "RAISES", False)
        patch.setattr("streams.state.fastpath.status_of", wrong_status)
        assert folded(log.records) == (plain, rows, 2)
        partition = Partition.empty(0)
        for record in log.records:
            partition.apply(*record)
    found = partition.state.fast.differences
    assert len(found) == len(partition.state.hpas) == 2
    assert found[0].startswith("HPA eu/shop/")
    assert ": status: fast path " in found[0]


def test_a_difference_ends_the_partition_where_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streams.state.fastpath.status_of", wrong_status)
    with pytest.raises(StateError, match="status: fast path"):
        calm_log([("load", 3, 10)])


@pytest.mark.parametrize(("every", "least", "most"), [(1, 5_000, 5_000), (10, 480, 520), (1_000, 4, 6)])
def test_one_of_so_many_evaluations_is_checked(every: int, least: int, most: int) -> None:
    with checking(every):
        fast = FastPath()
        taken = [fast.takes() for _ in range(5_000)]
    assert least <= taken.count(False) == fast.checked <= most


def test_checks_do_not_meet_the_same_hpas_in_each_period() -> None:
    """A fleet of 500 HPAs is evaluated in the same order again and again: over time, many of them are checked."""
    with checking(1_000):
        fast = FastPath()
        checked = {number % 500 for number in range(500_000) if not fast.takes()}
    assert len(checked) > 250
