"""What an observer knows of a cluster, when it works for a namespace, and when it takes over."""

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from reconciler.core.metricanswers import APART_MS
from reconciler.core.objects import Asking, KeptHpa, asking_of, conflicting_autoscaler, kept_hpa
from reconciler.observer.clusterview import WATCHES, ClusterState, NamespaceState, scales_watch
from reconciler.observer.metricpolls import Phases, Timetable
from reconciler.observer.observertopics import MOST_SESSIONS, SILENCE_MS, OtherSessions, central_hpa
from reconciler.observer.troubles import ReadProblem, Troubles
from runtime.process import WorkerPool
from schemas.keys import SessionName
from schemas.kubernetes.shape import Json
from schemas.limits import CLUSTERS
from schemas.observed import API_SERVER_PART, AutoscalerSet, ConflictingAutoscaler, Heartbeat, Pod, ScaleSet, Target
from schemas.syncperiods import PERIOD_ANNOTATION
from tests.kit.partition import make_hpa
from tests.patience import PATIENCE_S

WEB = Target(group="apps", kind="Deployment", name="web")
GEAR = Target(group="example.com", kind="Widget", name="gear")


def failing(text: str) -> ReadProblem:
    return ReadProblem("failing", text)


def hpa(name: str, namespace: str = "shop", target: Target = WEB) -> tuple[str, str, KeptHpa]:
    reference = {"kind": target.kind, "name": target.name, "apiVersion": f"{target.group}/v1"}
    item = {"metadata": {"name": name, "namespace": namespace}, "spec": {"scaleTargetRef": reference}}
    return namespace, name, kept_hpa(item)


def test_a_list_of_the_cluster_speaks_for_every_namespace_that_has_or_had_hpas() -> None:
    state = ClusterState()
    assert state.replace_hpas("", [hpa("a"), hpa("b", "other")]) == {"shop", "other"}
    assert state.replace_hpas("", [hpa("a")]) == {"shop", "other"}
    assert state.active() == ["shop"]
    assert state.replace_hpas("", [hpa("a")]) == {"shop"}


def test_a_list_of_one_namespace_leaves_the_others_alone() -> None:
    state = ClusterState()
    state.replace_hpas("", [hpa("a"), hpa("b", "other")])
    assert state.replace_hpas("shop", []) == {"shop"}
    assert state.active() == ["other"]


def test_namespaces_with_the_same_problems_share_a_heartbeat() -> None:
    state = ClusterState()
    for name in ("a", "b", "c"):
        state.namespace(name)
    state.troubles.record("pods", "b", ReadProblem("forbidden", "no right to list pods"))
    fine, troubled = state.heartbeats(["a", "b", "c"], "s@1", "v1.37.0")
    assert fine == (["a", "c"], Heartbeat(session="s@1", watches=list(WATCHES), kubernetes="v1.37.0"))
    assert troubled[0] == ["b"]
    assert troubled[1].problems == {"pods": "no right to list pods"}
    assert troubled[1].reasons == {"pods": "forbidden"}


def test_a_central_hpa_makes_a_namespace_active_and_survives_a_list() -> None:
    state = ClusterState()
    state.set_central("shop", "c", Asking(WEB))
    state.replace_hpas("", [])
    assert state.active() == ["shop"]
    assert state.namespace("shop").targets() == {WEB}
    state.set_central("shop", "c", None)
    assert not state.active()


def test_pods_that_a_list_does_not_name_are_gone_and_repeats_tell_nothing() -> None:
    state = ClusterState()
    assert not state.pods_known("shop")
    state.replace_pods("", [("shop", Pod(name="a")), ("shop", Pod(name="b"))])
    assert state.replace_pods("", [("shop", Pod(name="b"))]) == {"shop"}
    assert list(state.namespace("shop").pods) == ["b"]
    assert state.pods_known("shop")
    assert not state.set_pod("shop", Pod(name="b"))
    assert state.set_pod("shop", Pod(name="b", phase="Failed"))


@pytest.mark.parametrize(
    ("before", "after", "is_new"),
    [
        pytest.param({"resource_version": "5"}, {"resource_version": "6"}, False, id="a version alone"),
        pytest.param({"spec_replicas": 1}, {"spec_replicas": 2}, True, id="a count"),
        pytest.param(
            {"spec_replicas": 1, "resource_version": "10", "uid": "u"},
            {"spec_replicas": 2, "resource_version": "9", "uid": "u"},
            False,
            id="an older read that comes late",
        ),
        pytest.param(
            {"spec_replicas": 1, "resource_version": "10", "uid": "u"},
            {"spec_replicas": 2, "resource_version": "9", "uid": "v"},
            True,
            id="a lower version of another object",
        ),
        pytest.param({"spec_replicas": 1, "resource_version": "10"}, {"error": "gone"}, True, id="an error"),
    ],
)
def test_scales_are_published_when_they_have_changed(before: Any, after: Any, is_new: bool) -> None:
    state = ClusterState()
    assert state.set_scale("shop", ScaleSet(target=WEB, **before))
    assert state.set_scale("shop", ScaleSet(target=WEB, **after)) is is_new


def test_scales_are_a_problem_only_where_reading_them_fails_as_well() -> None:
    state = ClusterState()
    state.replace_hpas("", [hpa("a"), hpa("b", target=GEAR)])
    state.troubles.record(scales_watch("Widget", "example.com"), "", failing("no matches for kind"))
    assert not state.is_watched(GEAR, "shop")
    assert state.problems("shop") == {}  # read one by one: the others of the namespace must not suffer
    state.troubles.record("scales", "shop", failing("no answer within 5 s"))
    assert state.problems("shop") == {"scales": failing("no answer within 5 s")}
    state.troubles.record(scales_watch("Widget", "example.com"), "", None)
    assert state.problems("shop") == {}


def test_a_problem_of_a_namespace_is_its_own_and_one_of_the_cluster_is_everybodys() -> None:
    state = ClusterState()
    state.troubles.record("pods", "vault", failing("forbidden"))
    assert (state.problems("vault"), state.problems("shop")) == ({"pods": failing("forbidden")}, {})
    state.troubles.record("autoscalers", "", failing("down"))
    assert state.problems("shop") == {"autoscalers": failing("down")}


def test_keda_objects_become_conflicting_autoscalers_with_kedas_defaults() -> None:
    raw = {"metadata": {"name": "so"}, "spec": {"scaleTargetRef": {"name": "web"}}}
    target = Target(group="apps", kind="Deployment", name="web")
    assert conflicting_autoscaler(raw) == ConflictingAutoscaler(kind="ScaledObject", name="so", target=target)


def test_while_the_api_server_is_away_nothing_that_was_reported_is_known_to_hold() -> None:
    state = ClusterState()
    state.troubles.record("pods", "shop", ReadProblem("forbidden", "pods is forbidden"))
    away = ReadProblem("unreachable", "connection refused")
    state.troubles.record(API_SERVER_PART, "", away)
    assert state.problems("shop") == {"pods": away, "autoscalers": away, "scales": away}
    state.troubles.record(API_SERVER_PART, "", None)
    assert state.problems("shop") == {"pods": ReadProblem("forbidden", "pods is forbidden")}


def test_a_trouble_keeps_its_beginning_while_its_reason_stays_and_tells_where_it_is() -> None:
    now, changes = [1_000], [0]

    def changed() -> None:
        changes[0] += 1

    troubles = Troubles(lambda: now[0], changed)
    troubles.record("metrics.k8s.io", "shop", ReadProblem("failing", "503"))
    now[0] = 2_000
    troubles.record("metrics.k8s.io", "shop", ReadProblem("failing", "503 again"))
    troubles.record("metrics.k8s.io", "vault", ReadProblem("failing", "503"))
    [one] = troubles.report()
    assert (one.part, one.reason, one.since, one.error, one.namespaces) == (
        "metrics.k8s.io", "failing", 1_000, "503 again", []
    )  # fmt: skip
    assert changes == [2]
    troubles.record("metrics.k8s.io", "other", None)
    [one] = troubles.report()
    assert (one.namespaces, one.namespace_count) == (["shop", "vault"], 2)
    troubles.record("metrics.k8s.io", "shop", ReadProblem("forbidden", "no", ("list pods.metrics.k8s.io",)))
    assert [(each.reason, each.since, each.rights) for each in troubles.report()] == [
        ("forbidden", 2_000, ["list pods.metrics.k8s.io"]),
        ("failing", 2_000, []),
    ]
    troubles.record("metrics.k8s.io", "shop", None)
    troubles.forget("metrics.k8s.io", "vault")
    assert troubles.report() == []


def test_while_the_api_server_is_away_only_that_is_reported_of_what_does_not_answer() -> None:
    troubles = Troubles(lambda: 5)
    troubles.record("pods", "", ReadProblem("unreachable", "connection refused"))
    troubles.record("metrics.k8s.io", "shop", ReadProblem("forbidden", "no"))
    troubles.record(API_SERVER_PART, "", ReadProblem("unreachable", "connection refused"))
    assert [each.part for each in troubles.report()] == [API_SERVER_PART, "metrics.k8s.io"]


# --- takeover ---------------------------------------------------------------------------------------------------------


def test_another_session_is_reported_once_when_it_has_been_silent_for_long_enough() -> None:
    others = OtherSessions(SessionName("mine", 5), {"east"})
    others.receive("east", Heartbeat(session="mine@4", watches=["pods"]), 0)
    others.receive("east", Heartbeat(session="theirs", watches=["pods"]), 1_000)
    assert others.fallen_silent(1_000 + SILENCE_MS - 1) == set()
    assert others.fallen_silent(1_000 + SILENCE_MS) == {"east"}
    assert others.fallen_silent(10 * SILENCE_MS) == set()


def test_a_session_that_ends_is_silent_at_once_and_once_more_when_the_fold_surely_knows() -> None:
    others = OtherSessions(SessionName("mine", 5), {"east"})
    others.receive("east", Heartbeat(session="theirs"), 5)
    assert others.fallen_silent(5) == {"east"}
    assert others.fallen_silent(6) == set()
    assert others.fallen_silent(5 + SILENCE_MS) == {"east"}
    assert others.fallen_silent(10 * SILENCE_MS) == set()


def test_a_later_session_of_this_name_that_ends_gives_the_cluster_back_to_this_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    others = OtherSessions(SessionName("mine", 5), {"east"})
    others.receive("east", beat_of("mine@6"), 0)
    assert others.fallen_silent(1) == set()
    others.receive("east", Heartbeat(session="mine@6"), 2)
    assert others.fallen_silent(2) == {"east"}
    assert others.fallen_silent(2 + SILENCE_MS) == {"east"}, "once more, when the fold surely knows"
    others.receive("east", beat_of("mine@7"), 100_000)
    assert others.fallen_silent(100_000 + SILENCE_MS) == {"east"}, "one that was killed"
    assert len(caplog.messages) == 2, "each of them is named"
    others.receive("east", Heartbeat(session="mine@4"), 200_000)
    assert others.fallen_silent(300_000) == set(), "an earlier one is superseded"


def test_more_sessions_than_there_are_observers_take_no_more_room() -> None:
    others = OtherSessions(SessionName("mine", 5), {"east"})
    others.knows_the_past = True
    for number in range(MOST_SESSIONS + 50):
        others.receive("east", Heartbeat(session=f"made-up-{number}", watches=["pods"]), number)
    assert len(others._received) == MOST_SESSIONS
    assert not others.may_precede("west")
    for number in range(CLUSTERS.most + 50):
        others.receive(f"made-up-{number}", Heartbeat(session="theirs", watches=["pods"]), number)
    assert len(others._ever) == CLUSTERS.most
    assert others.may_precede("west")


def test_an_observer_of_other_clusters_may_have_the_same_name(caplog: pytest.LogCaptureFixture) -> None:
    others = OtherSessions(SessionName("mine", 5), {"east"})
    others.receive("west", Heartbeat(session="mine@6", watches=["pods"]), 0)
    assert (caplog.messages, others.fallen_silent(10 * SILENCE_MS)) == ([], set())
    others.receive("east", Heartbeat(session="mine@6", watches=["pods"]), 0)
    assert len(caplog.messages) == 1


def beat_of(session: str) -> Heartbeat:
    return Heartbeat(session=session, watches=["pods"])


@pytest.mark.parametrize(
    ("received", "knows", "precedes"),
    [
        pytest.param([], False, True, id="what was published before is not known"),
        pytest.param([], True, False, id="nobody"),
        pytest.param([("east", "mine@5")], True, False, id="only this session itself"),
        pytest.param([("east", "other@4")], True, True, id="another observer"),
        pytest.param([("east", "mine@4")], True, True, id="an earlier one of this name"),
        pytest.param([("east", "no session of ours")], True, True, id="somebody else"),
        pytest.param([("west", "other@4")], True, False, id="another observer of another cluster"),
    ],
)
def test_lists_are_sent_once_more_only_after_another_session(
    received: list[tuple[str, str]], knows: bool, precedes: bool
) -> None:
    others = OtherSessions(SessionName("mine", 5), {"east"})
    others.knows_the_past = knows
    for cluster, session in received:
        others.receive_before(cluster, beat_of(session))
    assert others.may_precede("east") is precedes


# --- timetable --------------------------------------------------------------------------------------------------------


async def test_work_runs_on_its_phase_once_per_period_until_the_namespace_is_taken_off() -> None:
    clock = {"now": 1_000_000}
    done: list[int] = []
    ran = asyncio.Event()

    async def work(namespace: str) -> None:
        done.append(clock["now"])
        ran.set()

    table = Timetable("east", lambda: clock["now"], Phases("node-1"))
    table.add_kind("poll", work, lambda namespace: 1_000)
    task = asyncio.create_task(table.run())
    table.add("shop", at_once=("poll",))
    await asyncio.wait_for(ran.wait(), PATIENCE_S)
    ran.clear()
    clock["now"] += 5_000  # five periods late: one run, not five
    table.add("other")  # wakes the table
    await asyncio.wait_for(ran.wait(), PATIENCE_S)
    assert done == [1_000_000, 1_005_000]
    table.remove("shop")
    table.remove("other")
    assert not table.has("shop")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()


async def test_namespaces_are_due_on_their_phases() -> None:
    now_ms, done = 0, dict[str, int]()

    async def work(namespace: str) -> None:
        done.setdefault(namespace, now_ms)

    phases = Phases("node-1")
    phases.count("east", "ns-0", 20_000)
    table = Timetable("east", lambda: now_ms, phases)
    table.add_kind("poll", work, lambda namespace: 15_000)
    names = [f"ns-{number}" for number in range(8)]
    for name in names:
        table.add(name)
    task = asyncio.create_task(table.run())
    while not done.keys() >= set(names):
        now_ms += APART_MS[-1]
        table.add(f"wakes-{now_ms}")
        for _ in range(3):
            await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    due = {name: done[name] % 15_000 // APART_MS[-1] for name in names}
    assert due == {name: -(-phases.next_ms(f"east/{name}", 15_000, 0) // APART_MS[-1]) % 150 for name in names}
    assert len(set(due.values())) > 4


async def _asked(table: Timetable, clock: dict[str, int], seconds: int) -> None:
    """Let so much time pass, as the table sees it."""
    for _ in range(seconds * 10):
        clock["now"] += APART_MS[-1]
        table.hasten(())  # wakes the table
        for _ in range(3):
            await asyncio.sleep(0)


async def test_a_namespace_with_a_shorter_period_is_asked_more_often_and_others_not() -> None:
    clock, periods = {"now": 1_000_000_000}, {"short": 5_000, "late": 60_000}
    done: dict[str, list[int]] = {"short": [], "late": [], "other": []}

    async def work(namespace: str) -> None:
        done[namespace].append(clock["now"])

    table = Timetable("east", lambda: clock["now"], Phases("node-1"))
    table.add_kind("poll", work, lambda namespace: periods.get(namespace, 15_000))
    for name in done:
        table.add(name)
    task = asyncio.create_task(table.run())
    await _asked(table, clock, 300)
    gaps = {name: {b - a for a, b in pairwise(times)} for name, times in done.items()}
    assert gaps == {"short": {5_000}, "late": {60_000}, "other": {15_000}}

    periods["late"], last_ms = 1_000, done["late"][-1]
    await _asked(table, clock, 1)  # nobody has said so
    assert done["late"][-1] == last_ms
    table.hasten(("late", "nowhere"))
    await _asked(table, clock, 10)
    assert {b - a for a, b in pairwise(done["late"][-10:])} == {1_000}
    del periods["late"]
    await _asked(table, clock, 60)
    assert done["late"][-1] - done["late"][-2] == 15_000
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize(
    ("native", "central", "stated"),
    [
        pytest.param({}, {}, set(), id="none"),
        pytest.param({"web": "5s"}, {"api": "60s"}, {(5_000, "cluster"), (60_000, "central")}, id="of both kinds"),
        pytest.param({"web": "5s"}, {"web": "7s"}, {(7_000, "central")}, id="the central one hides the cluster's"),
        pytest.param({"web": "5s"}, {"web": ""}, set(), id="also where it states none"),
        pytest.param({"web": "soon"}, {}, set(), id="one that cannot be read"),
    ],
)
def test_what_hpas_of_a_namespace_state(
    native: dict[str, str], central: dict[str, str], stated: set[tuple[int, str]]
) -> None:
    state = NamespaceState()
    for name, text in native.items():
        state.hpas[name] = kept_hpa(stating(name, text))
    for name, text in central.items():
        state.central[name] = asking_of(stating(name, text))
    assert state.stated_periods() == stated


def stating(name: str, text: str) -> Json:
    hpa = make_hpa(name)
    hpa["metadata"]["annotations"] = {PERIOD_ANNOTATION: text}
    return hpa


def test_a_changed_annotation_alone_is_noticed() -> None:
    before = kept_hpa(stating("web", "60s"))
    after = kept_hpa(stating("web", "5s"), before)
    assert (before.asking.period_ms, after.asking.period_ms) == (60_000, 5_000)
    assert kept_hpa(stating("web", "5s"), after).asking is after.asking


@pytest.mark.parametrize(
    ("revision", "kept"), [pytest.param(0, True, id="its own"), pytest.param(7, False, id="of a total")]
)
def test_an_hpa_with_a_share_of_a_total_states_no_period(revision: int, kept: bool) -> None:
    entry = AutoscalerSet(hpa=stating("web", "5s"), origin="central", revision=revision)
    found = central_hpa(entry, "shop")
    assert found is not None
    assert found[1] is not None
    assert (PERIOD_ANNOTATION in found[1]["metadata"]["annotations"]) is kept
    assert PERIOD_ANNOTATION in entry.hpa["metadata"]["annotations"]


@pytest.mark.parametrize(("hpas", "moments"), [(1, 15), (1_500, 15), (2_000, 30), (5_000, 75), (20_000, 150)])
def test_the_fewer_hpas_a_process_observes_the_more_of_their_namespaces_are_asked_together(
    hpas: int, moments: int
) -> None:
    phases = Phases("node-1")
    phases.count("west", "shop", 9_999_999)
    phases.forget("west")
    for cluster in ("east", "north"):
        phases.count(cluster, "old", 77)
        phases.count(cluster, "old", 0)
    phases.count("east", "shop", 5)
    phases.count("east", "shop", hpas)
    names = [f"{cluster}/ns-{number}" for cluster in ("east", "north") for number in range(1_000)]
    due = {name: phases.next_ms(name, 15_000, 0) for name in names}
    assert len(set(due.values())) == moments
    assert {phases.next_ms(name, 15_000, due_ms) for name, due_ms in due.items()} == {
        due_ms + 15_000 for due_ms in due.values()
    }


def test_what_many_agents_report_is_spread_over_the_time_between_two_phases() -> None:
    moments = {Phases(f"agent-{number}").next_ms("east/shop", 15_000, 0) for number in range(200)}
    assert len({moment // 100 for moment in moments}) == 10


@pytest.mark.parametrize("period_ms", [500, 10_000])
def test_the_reports_of_a_process_come_together_from_the_second_on(period_ms: int) -> None:
    begun_ms, phases = [1_700_000_000_000 + i * 37 for i in range(1_000)], Phases("node-1")
    next_ms = {begin + phases.until_report_ms(period_ms, begin) for begin in begun_ms}
    assert len({due % period_ms for due in next_ms}) == 1
    waits_ms = [phases.until_report_ms(period_ms, begin) for begin in begun_ms]
    assert period_ms / 10 <= min(waits_ms) <= max(waits_ms) <= 1.1 * period_ms
    assert {phases.until_report_ms(period_ms, due) for due in next_ms} == {period_ms}


async def test_a_clock_that_is_put_back_by_an_hour_does_not_keep_checks_waiting_for_an_hour() -> None:
    clock = {"now": 10_000_000}
    done: list[tuple[str, int]] = []
    ran = asyncio.Event()

    async def work(namespace: str) -> None:
        done.append((namespace, clock["now"]))
        ran.set()

    table = Timetable("east", lambda: clock["now"], Phases("node-1"))
    table.add_kind("check", work, lambda namespace: 10_000)
    task = asyncio.create_task(table.run())
    try:
        table.add("shop", at_once=("check",))
        await asyncio.wait_for(ran.wait(), PATIENCE_S)
        for step_ms in (-3_600_000, 10_000):
            ran.clear()
            clock["now"] += step_ms
            table.add(f"new-{step_ms}", at_once=("check",))  # wakes the table, which looks at the clock
            await asyncio.wait_for(ran.wait(), PATIENCE_S)
            await asyncio.sleep(0)
    finally:
        task.cancel()
    assert [now for namespace, now in done if namespace == "shop"] == [10_000_000, 6_410_000]


# --- pool -------------------------------------------------------------------------------------------------------------


async def test_a_pool_works_in_order_on_at_most_so_many_at_once_and_gives_back_what_overflows() -> None:
    running = most = 0
    begun: list[int] = []
    seen: list[int] = []
    go, full, all_seen = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def work(item: int) -> None:
        nonlocal running, most
        begun.append(item)
        running += 1
        most = max(most, running)
        if running == 2:
            full.set()
        await go.wait()
        running -= 1
        seen.append(item)
        if len(seen) == 3:
            all_seen.set()

    pool: WorkerPool[int, int] = WorkerPool(work, workers=2, limit=3)
    assert [pool.put(number, number) for number in range(4)] == [None, None, None, 0]
    assert pool.remove(2) == 2
    assert pool.remove(2) is None
    pool.put(4, 4)
    task = asyncio.create_task(pool.run())
    await asyncio.wait_for(full.wait(), PATIENCE_S)
    go.set()
    await asyncio.wait_for(all_seen.wait(), PATIENCE_S)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert sorted(seen) == [1, 3, 4]
    assert begun == [1, 3, 4]
    assert most == 2


async def test_a_pool_never_works_on_two_items_of_one_key_at_once() -> None:
    log: list[str] = []
    first, go, done = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def work(item: str) -> None:
        log.append(f"{item} begins")
        if item == "old":
            first.set()
            await go.wait()
        log.append(f"{item} ends")
        if item == "new":
            done.set()
        elif item == "other":
            go.set()

    pool: WorkerPool[str, str] = WorkerPool(work, workers=2, limit=3)
    task = asyncio.create_task(pool.run())
    try:
        pool.put("web", "old")
        await asyncio.wait_for(first.wait(), PATIENCE_S)
        pool.put("web", "new")
        pool.put("api", "other")
        await asyncio.wait_for(done.wait(), PATIENCE_S)
    finally:
        task.cancel()
    assert log == ["old begins", "other begins", "other ends", "old ends", "new begins", "new ends"]
