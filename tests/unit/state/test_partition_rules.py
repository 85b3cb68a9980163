"""When an HPA is evaluated, what a wanted write does, and what an evaluation sees."""

from typing import Any, get_args

import msgspec
import pytest

from schemas.answers import Answers, MetricAnswer
from schemas.codec import encode
from schemas.entries import VERSION, WHOLE_PARTITION_KEY, Body, Entry, LogRecord, Outcome
from schemas.keys import HpaId
from schemas.observed import (
    AutoscalerDeleted,
    AutoscalerSet,
    ClusterReport,
    Command,
    Heartbeat,
    ObserverTrouble,
    PodDeleted,
    PodList,
    PodSet,
    Reason,
    Serving,
    WriteProblem,
)
from schemas.settings import ClusterSettings, EngineSet, Restart, SettingsSet, WatermarkReset
from streams.partition import Partition
from streams.state.forgetting import REPORT_KEPT_MS
from streams.state.ledger import LogError, StateError, UnknownEngineError
from streams.state.namespace import Namespace
from streams.state.namespacerows import query_key
from streams.state.partition import checkpoint_period
from streams.state.partitionrow import IndexRow, PartitionRow, ReportRow
from streams.state.rowcodec import applied_offset, bodies_of_namespace, decode_row, load_namespace, merge_rows
from streams.state.rows import AnswerRow, HpaRow, NamespaceRow, ScaleRow
from tests.kit.partition import CLUSTER, ENFORCING, KEY, NAMESPACE, LogBuilder, cpu_answer, make_hpa, make_pod, scale

Json = dict[str, Any]
SECOND = 1_000


def answers(log: LogBuilder, milli: int, pods: int = 2, session: str = "") -> Answers:
    return Answers(items=[cpu_answer("web", {f"web-{i}": milli for i in range(pods)}, log.now_ms)], session=session)


def ready_log(
    *more: Body, settings: ClusterSettings | None = None, replicas: int = 2, hpa: Json | None = None
) -> LogBuilder:
    """HPA web (50 % of 100m) on a Deployment with ready pods; no answer yet."""
    log = LogBuilder()
    if settings is not None:
        log.add(SettingsSet(cluster="*", settings=settings))
    pods = [PodSet(pod=make_pod(f"web-{i}")) for i in range(replicas)]
    log.add(AutoscalerSet(hpa=hpa or make_hpa()), scale(spec=replicas), *pods, *more)
    return log


def only(made: list[Json]) -> Json:
    assert len(made) == 1, made
    return made[0]


def wanting() -> tuple[LogBuilder, Json]:
    """An enforced HPA that wants 4 instead of 2 replicas."""
    log = ready_log(settings=ENFORCING)
    return log, only(log.add(answers(log, 100), after_ms=SECOND))


def outcome(decision: Json, result: Any = "applied", **fields: Any) -> Outcome:
    return Outcome(decision=decision["id"], name=decision["name"], uid=decision["uid"], result=result, **fields)


# --- when -------------------------------------------------------------------------------------------------------------


def test_a_new_hpa_is_evaluated_by_its_first_answer() -> None:
    log = ready_log()
    assert log.add(after_ms=SECOND) == []
    decision = only(log.add(answers(log, 50), after_ms=SECOND))
    assert decision["currentReplicas"] == decision["finalDesiredReplicas"] == 2
    assert decision["metrics"][0]["utilization"] == 50


def test_the_first_answer_to_a_new_question_is_waited_for_as_long_as_an_answer_holds() -> None:
    log = ready_log()
    assert log.add(after_ms=29_999) == []
    assert "no answer within two sync periods (30s)" in only(log.add(after_ms=1))["error"]


def test_the_answer_of_the_next_period_brings_the_next_evaluation_and_it_alone() -> None:
    log = ready_log()
    log.add(answers(log, 50), after_ms=SECOND)
    assert log.ticks(13) == []
    assert len(log.add(answers(log, 50), after_ms=1)) == 1
    assert log.add(answers(log, 50), after_ms=1) == log.ticks(14) == []


def test_an_answer_that_comes_out_of_turn_is_used_at_the_due_time() -> None:
    log = ready_log()
    log.add(answers(log, 50), after_ms=SECOND)
    assert log.add(answers(log, 50), after_ms=12_999) == []
    assert log.add(after_ms=2_000) == []
    assert len(log.add(after_ms=1)) == 1


def test_an_answer_that_does_not_come_is_waited_for_once() -> None:
    log = ready_log()
    log.add(answers(log, 50), after_ms=SECOND)
    assert log.add(after_ms=17_999) == []
    assert len(log.add(after_ms=1)) == 1
    # Due again a period after it was due before, without another wait.
    assert log.add(after_ms=11_999) == []
    assert len(log.add(after_ms=1)) == 1


def test_an_answer_to_somebody_elses_query_is_no_reason() -> None:
    log = ready_log()
    assert log.add(Answers(items=[cpu_answer("other", {"x": 1}, log.now_ms)]), after_ms=SECOND) == []


def test_a_selector_in_another_form_is_the_same_query() -> None:
    log = ready_log()
    items = [msgspec.structs.replace(cpu_answer("web", {"web-0": 50}, log.now_ms), selector=" app = web")]
    assert len(log.add(Answers(items=items), after_ms=SECOND)) == 1


def test_a_new_generation_is_due_at_once() -> None:
    log = ready_log()
    log.add(answers(log, 50), after_ms=SECOND)
    edit = AutoscalerSet(hpa=make_hpa(generation=2, maxReplicas=20), author="anna", reason="PAY-311")
    decision = only(log.add(edit, after_ms=5_000))
    assert (decision["generation"], decision["author"], decision["changeReason"]) == (2, "anna", "PAY-311")


def test_a_new_generation_waits_for_an_answer_that_is_about_to_come() -> None:
    log = ready_log()
    log.add(answers(log, 50), after_ms=SECOND)
    assert log.add(AutoscalerSet(hpa=make_hpa(generation=2, maxReplicas=20)), after_ms=12_000) == []
    assert len(log.add(answers(log, 50), after_ms=2_999)) == 1


def test_a_status_update_makes_nothing_due() -> None:
    log = ready_log()
    log.add(answers(log, 50), after_ms=SECOND)
    hpa = make_hpa() | {"status": {"desiredReplicas": 2, "currentMetrics": None}}
    log.add(AutoscalerSet(hpa=hpa), after_ms=SECOND)
    assert log.add(answers(log, 50), after_ms=SECOND) == []


def test_hpas_are_evaluated_in_key_order() -> None:
    log = LogBuilder()
    log.add(*[AutoscalerSet(hpa=make_hpa(name, f"uid-{name}")) for name in ("zeta", "alpha", "alpha-2")])
    made = log.add(after_ms=3_000)
    assert [decision["name"] for decision in made] == ["alpha", "alpha-2", "zeta"]
    assert [decision["seq"] for decision in made] == [1, 2, 3]


def test_off_is_not_evaluated_until_it_is_on_again() -> None:
    log = ready_log(settings=ClusterSettings(default_mode="off"))
    assert log.add(answers(log, 50), after_ms=SECOND) == log.ticks(60) == []
    assert len(log.add(SettingsSet(cluster=CLUSTER, settings=ClusterSettings(default_mode="shadow")))) == 1


def test_a_command_plans_the_parked_hpas_of_its_namespace_only() -> None:
    log = LogBuilder()
    log.add(SettingsSet(cluster=CLUSTER, settings=ClusterSettings(default_mode="off")))
    for namespace in ("shop", "spare"):
        log.add(log.entry(AutoscalerSet(hpa=make_hpa("web", f"uid-{namespace}")), f"{CLUSTER}/{namespace}"))
    assert log.ticks(60) == []
    made = log.add(Command(command="mode", name="web", mode="shadow"))
    assert (made or log.ticks(1))[0]["namespace"] == NAMESPACE
    assert log.partition.state.hpas[HpaId(CLUSTER, "spare", "web")].deadline < 0


# --- writes -----------------------------------------------------------------------------------------------------------


def test_a_wanted_write_is_pending_until_its_outcome() -> None:
    log, wanted = wanting()
    assert (wanted["wants"], wanted["mode"]) == (4, "enforce")
    assert "status" not in wanted
    assert log.ticks(14) == []
    done = only(log.add(outcome(wanted, spec_replicas=4, status_replicas=2)))
    assert (done["kind"], done["completes"], done["outcome"]["result"]) == ("completion", wanted["id"], "applied")
    assert done["id"].endswith("-c")
    assert done["status"]["desiredReplicas"] == 4
    assert done["events"][-1][1] == "SuccessfulRescale"


def test_an_answer_that_came_during_a_write_is_evaluated_right_after_it() -> None:
    log, wanted = wanting()
    assert log.add(answers(log, 100), after_ms=14_000) == []
    completion, evaluation = log.add(outcome(wanted, spec_replicas=4), after_ms=500)
    assert (completion["kind"], evaluation["currentReplicas"]) == ("completion", 4)


def test_a_write_counts_from_its_evaluation_on_so_that_the_next_period_may_write_again() -> None:
    """The default policy doubles at most every 15 s; answers that come a little early must not lose a period to it."""
    policies = [{"type": "Percent", "value": 100, "periodSeconds": 15}]
    log = ready_log(settings=ENFORCING, hpa=make_hpa(behavior={"scaleUp": {"policies": policies}}))
    wanted = only(log.add(answers(log, 100), after_ms=SECOND))
    for replicas in (4, 8):
        log.add(outcome(wanted, spec_replicas=replicas, status_replicas=replicas), after_ms=900)
        pods = [PodSet(pod=make_pod(f"web-{index}")) for index in range(replicas)]
        log.add(*pods)
        wanted = only(log.add(answers(log, 100, replicas), after_ms=14_050))
        assert (wanted["currentReplicas"], wanted["wants"]) == (replicas, min(2 * replicas, 10))


def test_after_an_outcome_the_next_evaluation_sees_its_scale() -> None:
    log, wanted = wanting()
    log.add(outcome(wanted, spec_replicas=4, status_replicas=2), after_ms=SECOND)
    decision = only(log.add(answers(log, 50), after_ms=14_000))
    assert decision["currentReplicas"] == 4
    assert decision["observed"]["change"] == {"from": 2, "to": 4, "by": "decision", "decision": wanted["id"]}


def test_without_an_outcome_the_write_fails_five_seconds_after_its_time_to_live() -> None:
    log, wanted = wanting()
    assert wanted["expires"] == log.now_ms + 10_000
    assert log.add(after_ms=14_999) == []
    failed = only(log.add(after_ms=1))
    assert failed["outcome"]["result"] == "timeout"
    assert failed["events"][-1][1] == "FailedRescale"
    assert failed["status"]["desiredReplicas"] == 0


@pytest.mark.parametrize(
    ("clusters", "before_ms", "text"),
    [
        pytest.param([], 0, "no outcome came back within 15s", id="no reconciler ever reported whom it serves"),
        pytest.param([CLUSTER], 0, "no outcome came back within 15s", id="the cluster's reconciler is slow"),
        pytest.param(["other"], 0, "no reconciler serves cluster eu", id="only another cluster is served"),
        pytest.param([CLUSTER], 16_000, "no reconciler serves cluster eu", id="the cluster's reconciler fell silent"),
    ],
)
def test_a_write_that_nobody_makes_says_whether_anybody_serves_its_cluster(
    clusters: list[str], before_ms: int, text: str
) -> None:
    log = ready_log(*([Serving(session="r", clusters=clusters)] if clusters else []), settings=ENFORCING)
    wanted = only(log.add(answers(log, 100), after_ms=before_ms + SECOND))
    failed = only(log.add(after_ms=15_000))
    assert (failed["completes"], failed["outcome"]) == (wanted["id"], {"result": "timeout", "error": text})
    condition = next(each for each in failed["status"]["conditions"] if each["type"] == "AbleToScale")
    assert condition["message"].endswith(text)


def test_the_partition_knows_who_served_and_who_appended_last() -> None:
    log = LogBuilder()
    log.add(Serving(session="r", clusters=["eu", "us"], problems={"us": WriteProblem("refused", "unreachable")}))
    begun_ms = log.now_ms
    log.ticks(3)
    beat = encode(LogRecord(v=1, entries=[], by="ingest"))
    log.partition.apply(len(log.records), begun_ms + 4_000, beat)
    row = Partition.restore(0, dict(log.partition.checkpoint())).state.row
    assert (row.ticked_ms, row.ingested_ms) == (begun_ms + 3_000, begun_ms + 4_000)
    assert {name: (each.reported_ms, each.problem) for name, each in row.served.items()} == {
        "eu": (begun_ms, ""),
        "us": (begun_ms, "refused"),
    }


@pytest.mark.parametrize(
    ("result", "error", "text"),
    [
        pytest.param("failed", "forbidden", "forbidden", id="failed says the API's words"),
        pytest.param("refused", "moved by kubectl", "moved by kubectl", id="refused says the guard's words"),
        pytest.param("stale", "", "it was not made within 10s", id="stale says so"),
        pytest.param("superseded", "", "a newer decision took its place", id="superseded says so"),
    ],
)
def test_an_outcome_that_is_not_applied_fails_the_rescale(result: str, error: str, text: str) -> None:
    log, wanted = wanting()
    done = only(log.add(outcome(wanted, result, error=error)))
    condition = done["status"]["conditions"][0]
    assert (condition["reason"], condition["message"].rpartition(": ")[2]) == ("FailedUpdateScale", text)
    assert "lastScaleTime" not in done["status"]


def test_the_first_outcome_of_a_decision_wins() -> None:
    log, wanted = wanting()
    done = only(log.add(outcome(wanted, spec_replicas=4), outcome(wanted, "failed", spec_replicas=9, error="no")))
    assert done["outcome"]["result"] == "applied"
    assert log.add(outcome(wanted, "failed", spec_replicas=9)) == []
    assert only(log.add(answers(log, 50), after_ms=15_000))["currentReplicas"] == 4


@pytest.mark.parametrize(
    "decision", [f"0-{2**20}-uid-web", f"0-{2**64}-uid-web", f"0-{'9' * 200}-uid-web", "0-x-uid-web", "", "7"]
)
def test_the_outcome_of_what_no_decision_is_called_shows_no_scale(decision: str) -> None:
    log, wanted = wanting()
    log.add(outcome(wanted | {"id": decision}, spec_replicas=9))
    assert only(log.add(outcome(wanted, spec_replicas=4)))["outcome"]["result"] == "applied"
    assert only(log.add(answers(log, 50), after_ms=15_000))["currentReplicas"] == 4


def test_an_outcome_for_another_uid_is_not_ours() -> None:
    log, wanted = wanting()
    assert log.add(outcome(wanted | {"uid": "somebody"}, spec_replicas=4)) == []


def test_a_spec_change_during_a_write_is_looked_at_right_after_it() -> None:
    log, wanted = wanting()
    log.add(AutoscalerSet(hpa=make_hpa(generation=2, maxReplicas=3)), after_ms=SECOND)
    log.add(after_ms=SECOND)
    completion, evaluation = log.add(outcome(wanted, spec_replicas=4))
    assert (completion["kind"], evaluation["wants"]) == ("completion", 3)


def test_memory_survives_a_deletion_that_is_undone_before_the_next_due_time() -> None:
    log, wanted = wanting()
    log.add(outcome(wanted, spec_replicas=4), after_ms=SECOND)
    log.add(AutoscalerDeleted(name="web", uid="uid-web"), after_ms=SECOND)
    log.add(answers(log, 1, 2), after_ms=SECOND)
    held = only(log.add(AutoscalerSet(hpa=make_hpa(uid="uid-2")), after_ms=SECOND))
    assert held["constraintsApplied"] == ["StabilizationWindow"]
    assert held["status"].get("lastScaleTime") is None


def test_a_due_evaluation_forgets_a_deleted_hpa() -> None:
    log, wanted = wanting()
    log.add(outcome(wanted, spec_replicas=4), after_ms=SECOND)
    log.add(AutoscalerDeleted(name="web", uid="uid-web"), after_ms=SECOND)
    assert log.ticks(16) == []
    log.add(AutoscalerSet(hpa=make_hpa(uid="uid-2")))
    fresh = only(log.add(answers(log, 1, 2), after_ms=SECOND))
    # A new memory begins with the current count, so that is what holds it.
    assert fresh["steps"][1]["detail"]["at"] == log.now_ms


def test_a_deletion_of_an_older_object_of_the_name_changes_nothing() -> None:
    log = ready_log()
    log.add(AutoscalerDeleted(name="web", uid="an-older-one"))
    assert len(log.add(answers(log, 50), after_ms=SECOND)) == 1


# --- what it sees -----------------------------------------------------------------------------------------------------


def test_an_answer_without_a_next_one_becomes_an_error_after_two_periods() -> None:
    log = ready_log()
    log.add(answers(log, 50), after_ms=SECOND)
    assert "error" not in only(log.ticks(18))
    assert "no answer within two sync periods (30s)" in log.ticks(30)[-1]["error"]


def test_an_answer_from_long_before_counts_as_none() -> None:
    log = ready_log()
    late = log.entry(answers(log, 50), time_ms=log.now_ms - 31_000)
    assert "no answer within two sync periods" in only(log.add(late, after_ms=SECOND))["error"]


def test_an_error_of_the_metrics_api_is_upstreams_error() -> None:
    log = ready_log()
    failed = MetricAnswer(api="resource", selector="app=web", error="nope")
    decision = only(log.add(Answers(items=[failed]), after_ms=SECOND))
    assert decision["events"][0][2].endswith("unable to fetch metrics from resource metrics API: nope")


def test_a_missing_sample_is_not_zero() -> None:
    log = ready_log()
    decision = only(log.add(answers(log, 100, 1), after_ms=SECOND))
    assert (decision["metrics"][0]["podsUsed"], decision["metrics"][0]["podsMissing"]) == (1, 1)
    assert decision["rawDesiredReplicas"] == 2


@pytest.mark.parametrize(
    ("body", "text"),
    [
        pytest.param(scale(spec=2, error="not found"), "not found", id="a scale that cannot be read says why"),
        pytest.param(
            scale(spec=2, session="s"), "has come for more than 30s", id="an observer's word ages without heartbeats"
        ),
    ],
)
def test_a_scale_that_is_not_known_is_a_failed_read(body: Body, text: str) -> None:
    log = ready_log(body)
    log.add(answers(log, 50), after_ms=SECOND)
    decision = [made for made in log.ticks(40) if "error" in made][-1] if body.session else log.ticks(20)[-1]  # type: ignore[union-attr]
    assert text in decision["status"]["conditions"][0]["message"]
    assert decision["status"]["conditions"][0]["reason"] == "FailedGetScale"


def _decoded(log: LogBuilder) -> list[Json]:
    return [msgspec.json.decode(decision.value) for decision in log.decisions]


def test_a_heartbeat_keeps_the_scale_alive_unless_it_reports_a_problem() -> None:
    log = ready_log(scale(spec=2, session="s"))
    for _ in range(5):
        log.add(Heartbeat(session="s", watches=["scales"]), answers(log, 50), after_ms=15_000)
    assert all("error" not in decision for decision in _decoded(log)[1:])
    for _ in range(4):
        log.add(Heartbeat(session="s", problems={"scales": "forbidden"}), answers(log, 50), after_ms=15_000)
    errors = [decision["error"] for decision in _decoded(log) if "error" in decision]
    assert errors[-1].endswith("(forbidden)")


@pytest.mark.parametrize("home", [KEY, f"{CLUSTER}/other"])
def test_a_heartbeat_is_about_the_namespace_of_its_record_and_the_further_ones_that_it_names(home: str) -> None:
    """An entry of namespace `other` that names `shop`, and the other way round, keep the scales of both alive."""
    log = ready_log(scale(spec=2, session="s"))
    further = [name for name in ("shop", "other") if not home.endswith(f"/{name}")]
    beat = Heartbeat(session="s", watches=["scales"], namespaces=further)
    for _ in range(5):
        log.add(log.entry(beat, home), answers(log, 50), after_ms=15_000)
    assert all("error" not in decision for decision in _decoded(log)[1:])
    watches = [log.partition.state.namespaces[f"{CLUSTER}/{name}"].watches for name in ("shop", "other")]
    assert [each["scales"].reported_ms for each in watches] == [log.now_ms] * 2


_WHY_TOO_OLD = {
    "unreachable": "the cluster's API server has not answered for more than 30s",
    "forbidden": "the observer has had no right to read this scale",
    "failing": "the observer has failed to read this scale",
    "identity": "the API server has not shown that it is this cluster's",
}


@pytest.mark.parametrize("reason", get_args(Reason))
def test_a_scale_that_is_too_old_names_who_is_silent(reason: Reason) -> None:
    log = ready_log(scale(spec=2, session="s"))
    troubled = Heartbeat(session="s", watches=["scales"], problems={"scales": "refused"}, reasons={"scales": reason})
    for _ in range(6):
        log.add(troubled, answers(log, 50), after_ms=10_000)
    error = [decision["error"] for decision in _decoded(log) if "error" in decision][-1]
    assert _WHY_TOO_OLD[reason] in error
    assert error.endswith("(refused)")
    for _ in range(6):  # now the observer itself falls silent
        log.add(answers(log, 50), after_ms=10_000)
    error = [decision["error"] for decision in _decoded(log) if "error" in decision][-1]
    assert "no report of the cluster's observer has come for more than 30s" in error


def test_an_unobserved_scale_is_a_failed_read_and_not_zero() -> None:
    log = LogBuilder()
    log.add(AutoscalerSet(hpa=make_hpa()))
    assert "has not been observed yet" in only(log.add(after_ms=3_000))["error"]


def test_two_hpas_on_the_same_pods_are_ambiguous_from_the_second_read_on() -> None:
    log = ready_log(AutoscalerSet(hpa=make_hpa("twin", "uid-twin")), scale("twin"))
    log.add(msgspec.structs.replace(scale("twin"), selector="app=web,app!=other"), PodSet(pod=make_pod("web-2")))
    first, second = log.add(answers(log, 50), after_ms=30_000)
    # In key order twin comes first and knows nobody; web then knows twin.
    assert first["name"] == "twin"
    assert "AmbiguousSelector" not in str(first)
    assert "controlled by more than one HPA (e.g. [shop/twin shop/web])" in second["error"]
    log.add(AutoscalerDeleted(name="twin", uid="uid-twin"))
    assert "AmbiguousSelector" not in str(only(log.add(answers(log, 50, 3), after_ms=15_000)))


# --- observer sessions ------------------------------------------------------------------------------------------------


def pod_names(log: LogBuilder) -> list[str]:
    return sorted(log.partition.state.namespaces[KEY].pods)


def pod_list(session: str, *names: str, list_id: str = "l", chunk: int = 0, chunks: int = 1) -> PodList:
    return PodList(
        list_id=list_id, pods=[make_pod(name) for name in names], session=session, chunk=chunk, chunks=chunks
    )


def test_a_second_session_is_ignored_and_counted_while_the_first_is_alive() -> None:
    log = LogBuilder()
    log.add(pod_list("s1", "a"))
    log.add(PodSet(pod=make_pod("b"), session="s2"), pod_list("s2", "c"), after_ms=30_000)
    assert pod_names(log) == ["a"]
    assert log.partition.state.row.sessions["eu/pods"].ignored == 2


def test_another_session_takes_over_after_thirty_seconds_with_a_full_list() -> None:
    log = LogBuilder()
    log.add(pod_list("s1", "a", "b"))
    log.add(PodSet(pod=make_pod("c"), session="s2"), after_ms=30_001)
    assert pod_names(log) == ["a", "b"]
    log.add(pod_list("s2", "a"), PodSet(pod=make_pod("d"), session="s2"), PodSet(pod=make_pod("e"), session="s1"))
    assert pod_names(log) == ["a", "d"]


@pytest.mark.parametrize(
    ("second", "follows"),
    [
        pytest.param("node-1@2000", True, id="a later session of the same instance"),
        pytest.param("node-1@999", False, id="an earlier session of the same instance"),
        pytest.param("node-2@2000", False, id="another instance"),
        pytest.param("node-1", False, id="a session without an epoch"),
    ],
)
def test_only_a_later_session_of_the_same_instance_supersedes_a_live_one(second: str, follows: bool) -> None:
    log = LogBuilder()
    log.add(pod_list("node-1@1000", "a"), scale(spec=2, session="node-1@1000"), answers(log, 10, session="node-1@1000"))
    log.add(PodSet(pod=make_pod("b"), session=second), after_ms=SECOND)
    assert pod_names(log) == ["a"]  # nobody is followed before a full list
    log.add(pod_list(second, "c"), scale(spec=5, session=second), after_ms=SECOND)
    assert pod_names(log) == (["c"] if follows else ["a"])
    namespace = log.partition.state.namespaces[KEY]
    assert [row.spec_replicas for row in namespace.scales.values()] == ([5] if follows else [2])
    log.add(PodSet(pod=make_pod("late"), session="node-1@1000"), after_ms=SECOND)
    assert pod_names(log) == (["c"] if follows else ["a", "late"])


def test_a_report_on_a_cluster_is_kept_in_the_partition_row_and_decides_nothing() -> None:
    log = LogBuilder()
    trouble = ObserverTrouble(part="apiServer", reason="unreachable", since=5, error="connection refused")
    report = ClusterReport(cluster="eu", session="node-1@9", instance="node-1", started=1, troubles=[trouble])
    assert log.add(log.entry(report, WHOLE_PARTITION_KEY), after_ms=SECOND) == []
    row = decode_row(b"0|p", log.partition.checkpoint()[-1][1])
    assert isinstance(row, PartitionRow)
    stated_ms = log.now_ms - SECOND  # the entry was made before it was appended
    assert row.reports == {
        "eu/node-1": ReportRow("eu", "node-1", "node-1@9", log.now_ms, 1, [trouble], False, stated_ms)
    }
    others = ClusterReport(cluster="eu", session="node-2@9", instance="node-2")
    log.add(log.entry(others, WHOLE_PARTITION_KEY), after_ms=REPORT_KEPT_MS)
    assert sorted(log.partition.state.row.reports) == ["eu/node-1", "eu/node-2"]
    log.add(log.entry(others, WHOLE_PARTITION_KEY), after_ms=1)
    assert sorted(log.partition.state.row.reports) == ["eu/node-2"]


def test_what_is_over_a_limit_in_a_report_of_a_cluster_counts_in_no_namespace() -> None:
    log = LogBuilder()
    troubles = [ObserverTrouble(part="pods", reason="failing", error="x" * 1_000, since=1)] * 500
    report = ClusterReport(cluster="eu", session="s1", instance="node-1", troubles=troubles)
    log.add(log.entry(pod_list("s1", "a")), log.entry(report, WHOLE_PARTITION_KEY))
    assert log.partition.state.row.reports
    assert log.partition.state.namespaces[KEY].ignored == {}


def test_a_session_that_watches_nothing_any_more_hands_over_at_once() -> None:
    log = LogBuilder()
    log.add(pod_list("s1", "a"))
    log.add(Heartbeat(session="s1"), pod_list("s2", "b"), after_ms=SECOND)
    assert pod_names(log) == ["b"]


def test_after_a_takeover_changes_count_only_where_the_new_session_has_listed() -> None:
    log = LogBuilder()
    log.add(pod_list("s1", "a"), log.entry(pod_list("s1", "x"), "eu/other"))
    log.add(log.entry(pod_list("s2", "y"), "eu/other"), PodDeleted(name="a", session="s2"), after_ms=31_000)
    assert pod_names(log) == ["a"]
    assert "not begun with a full list" in str(log.partition.state.namespaces[KEY].ignored)


@pytest.mark.parametrize(
    ("chunks", "left"),
    [
        pytest.param([("b", 0), ("c", 1)], ["b", "c"], id="a whole list removes what it does not name"),
        pytest.param([("c", 1)], ["a", "c"], id="a list without its first chunk removes nothing"),
        pytest.param([("b", 0)], ["a", "b"], id="a list without its last chunk removes nothing"),
    ],
)
def test_full_lists_remove_what_is_gone(chunks: list[tuple[str, int]], left: list[str]) -> None:
    log = LogBuilder()
    log.add(pod_list("s", "a", list_id="first"))
    for name, chunk in chunks:
        log.add(pod_list("s", name, list_id="second", chunk=chunk, chunks=2))
    assert pod_names(log) == left


def test_a_pod_that_appears_during_a_full_list_stays() -> None:
    log = LogBuilder()
    log.add(pod_list("s", "a", chunk=0, chunks=2), PodSet(pod=make_pod("new"), session="s"))
    log.add(pod_list("s", "b", chunk=1, chunks=2))
    assert pod_names(log) == ["a", "b", "new"]


# --- input ------------------------------------------------------------------------------------------------------------


def test_an_entry_that_comes_again_is_dropped_and_one_without_source_is_not() -> None:
    log = LogBuilder()
    entry = log.entry(PodSet(pod=make_pod("a")))
    log.add(entry)
    log.add(PodDeleted(name="a"))
    log.add(entry)
    assert pod_names(log) == []
    assert log.partition.state.row.duplicates == 1
    log.add(Entry(key=KEY, body=PodSet(pod=make_pod("a"))))
    assert pod_names(log) == ["a"]


def test_a_reset_lets_a_topic_that_was_made_again_begin_anew() -> None:
    log = LogBuilder()
    entry = log.entry(PodSet(pod=make_pod("a")))
    log.add(entry)
    log.add(PodDeleted(name="a"), Entry(key="*", body=WatermarkReset(topic="t", source_partition=0)), entry)
    assert pod_names(log) == ["a"]


def test_log_time_never_runs_backwards() -> None:
    log = ready_log()
    log.add(answers(log, 50), after_ms=SECOND)
    log.add(after_ms=-60_000)
    assert log.partition.clock_ms == log.now_ms + 60_000
    log.now_ms += 60_000
    assert only(log.add(answers(log, 50), after_ms=15_000))["currentReplicas"] == 2


@pytest.mark.parametrize(
    ("body", "step_ms", "text"),
    [
        pytest.param([], 310_001, "log time stepped 310s ahead", id="a step of more than five minutes"),
        pytest.param([Restart(reason="rows were lost")], SECOND, "restart: rows were lost", id="a restart entry"),
    ],
)
def test_a_restart_begins_windows_anew_and_says_so(body: list[Body], step_ms: int, text: str) -> None:
    log = ready_log(replicas=4)
    log.add(answers(log, 200, 4), after_ms=SECOND)
    log.add(*body, after_ms=step_ms)
    log.add(PodSet(pod=make_pod("web-0")), after_ms=3_000)
    decision = next(made for made in (*_decoded(log), *log.ticks(20)) if "restart" in made.get("observed", {}))
    assert decision["observed"]["restart"] == text
    memory = log.partition.state.hpas[HpaId("eu", "shop", "web")].row.history.recommendations
    assert memory[0][0] == 4
    assert len(memory) <= 2


def test_a_step_of_exactly_five_minutes_is_no_restart() -> None:
    log = ready_log()
    log.add(after_ms=300_000)
    assert log.partition.state.row.restart_offset == -1


def test_an_unknown_engine_stops_the_partition_and_names_the_release() -> None:
    log = LogBuilder()
    with pytest.raises(UnknownEngineError, match=r"engine 99.*run a fleethpa release that has engine 99"):
        log.add(Entry(key="*", body=EngineSet(engine=99)))


def test_what_is_no_log_record_stops_the_partition() -> None:
    with pytest.raises(LogError, match="partition 3 offset 0 is not a log record"):
        Partition.empty(3).apply(0, 1, b"[]")


def test_a_hole_in_the_log_stops_the_partition() -> None:
    partition = Partition.empty(0)
    partition.apply(7, 1, encode(LogRecord(v=1, entries=[])))
    with pytest.raises(LogError, match="offset 9 does not follow 7"):
        partition.apply(9, 1, encode(LogRecord(v=1, entries=[])))


# --- rows -------------------------------------------------------------------------------------------------------------


def test_rows_are_written_layer_by_layer_and_say_what_they_hold() -> None:
    log, wanted = wanting()
    written = log.partition.checkpoint()
    keys = [b"0|h/eu/shop/web", b"0|n/eu/shop#0", b"0|n/eu/shop#1", b"0|i/1.0", b"0|p"]
    assert [key for key, _ in written] == keys
    hpa, namespace, pods, index, partition = (decode_row(key, value) for key, value in written)
    assert isinstance(hpa, HpaRow)
    assert isinstance(pods, NamespaceRow)
    assert isinstance(namespace, NamespaceRow)
    assert isinstance(partition, PartitionRow)
    assert hpa.pending is not None
    assert hpa.pending.decision == wanted["id"]
    assert hpa.hpa_object()["spec"]["maxReplicas"] == 10
    assert [each.pod.name for each in pods.pods] == ["web-0", "web-1"]
    assert [len(row.answers) for row in (pods, namespace)] == [0, 1]
    assert index == IndexRow({"0|h/eu/shop/web": 2, "0|n/eu/shop#0": 2, "0|n/eu/shop#1": 2})
    assert partition.index == [2]
    assert {applied_offset(value) for _, value in written} == {2}
    assert log.partition.checkpoint()[:-1] == []


def test_the_row_of_the_pods_is_written_only_if_a_pod_or_a_pushed_sample_changed() -> None:
    log = ready_log()
    log.partition.checkpoint()
    log.add(answers(log, 50), after_ms=SECOND)
    assert b"0|n/eu/shop#1" not in dict(log.partition.checkpoint())
    log.add(PodSet(pod=make_pod("web-3")))
    assert b"0|n/eu/shop#1" in dict(log.partition.checkpoint())


@pytest.mark.parametrize("which", [b"0|h/eu/shop/web", b"0|n/eu/shop#0", b"0|n/eu/shop#1", b"0|i/1.0"])
def test_a_missing_or_old_row_stops_a_restore(which: bytes) -> None:
    log = ready_log()
    old = dict(log.partition.checkpoint())
    log.add(answers(log, 50), PodSet(pod=make_pod("web-3")), after_ms=SECOND)
    new = dict(log.partition.checkpoint())
    with pytest.raises(StateError, match="is missing; it was last written at log offset 1"):
        Partition.restore(0, {key: value for key, value in new.items() if key != which})
    with pytest.raises(StateError, match="is of log offset 0, 1 was written"):
        Partition.restore(0, new | {which: old[which]})


def test_a_forgotten_hpa_leaves_a_tombstone() -> None:
    log = ready_log()
    log.add(AutoscalerDeleted(name="web"))
    log.ticks(4)
    row = decode_row(*log.partition.checkpoint()[0])
    assert isinstance(row, HpaRow)
    assert row.gone


def due_ms(number: int, begin_ms: int) -> list[int]:
    """When checkpoints of a partition with a tick per second are due in a minute."""
    partition, found = Partition.empty(number), []
    for offset in range(60):
        partition.apply(offset, begin_ms + offset * SECOND, encode(LogRecord(v=VERSION, entries=[])))
        if partition.due_checkpoint:
            found.append(partition.clock_ms - begin_ms)
            partition.checkpoint()
            assert not partition.due_checkpoint
    return found


def test_a_checkpoint_is_due_every_thirty_seconds_of_log_time() -> None:
    begin_ms = 1_800_000_000_000
    assert due_ms(0, begin_ms) == [0, 30_000]
    assert due_ms(1, begin_ms) == [0, 23_000, 53_000]


@pytest.mark.parametrize("numbers", [range(4), range(12, 18), range(1, 24, 2), range(0, 24, 4)])
def test_the_checkpoints_of_the_partitions_of_a_decider_are_spread_over_four_turns(numbers: range) -> None:
    ends_ms = [next(ms for ms in range(0, 30_001, 500) if checkpoint_period(each, ms)) for each in numbers]
    assert {ms % 30_000 for ms in ends_ms} == {0, 7_500, 15_000, 22_500}


def test_a_large_namespace_is_cut_into_rows_by_what_they_take(monkeypatch: pytest.MonkeyPatch) -> None:
    log = ready_log(replicas=40)
    log.add(answers(log, 50, 40), after_ms=SECOND)
    monkeypatch.setattr("streams.state.rowcodec.MAX_ROW_BYTES", 1_000)
    written = log.partition.checkpoint()
    rows = {key.decode(): value for key, value in written if b"|n/" in key}
    assert next(iter(rows)) == "0|n/eu/shop#0"
    of_pods = [name for name in rows if int(name.partition("#")[2]) % 3 == 1]
    assert of_pods == [f"0|n/eu/shop#{3 * number + 1}" for number in range(len(of_pods))]
    assert len(of_pods) > 3
    assert all(len(value) <= 1_000 + 8 for name, value in rows.items() if name in of_pods)
    whole = Partition.restore(0, dict(written))
    assert list(whole.state.namespaces[KEY].pods) == list(log.partition.state.namespaces[KEY].pods)
    assert list(whole.rows()) == list(log.partition.rows())
    log.add(PodSet(pod=make_pod("web-3", ready="False")))
    again = [key.decode() for key, _ in log.partition.checkpoint() if b"|n/" in key]
    assert again == of_pods, "all rows of the kind of which something has changed"


def test_things_of_very_different_sizes_take_few_rows_each_of_which_the_brokers_take() -> None:
    namespace = Namespace("eu", "shop")
    for number in range(5):
        answer = MetricAnswer(api="external", metric=f"m{number}", error="x" * 320_000)
        namespace.put_answer(query_key(answer), AnswerRow(1, "", encode(answer)))
    for number in range(3_000):
        namespace.put_scale(("apps", "Deployment", f"web-{number}"), ScaleRow(3, 3, f"app=web-{number}"))
    for pieces in (0, 3, 9):
        bodies = bodies_of_namespace(namespace, 0, pieces)
        assert len(bodies) == (pieces or 7)
        rows = [decode_row(b"0|n/eu/shop#0", bytes(8) + body) for body in bodies]
        assert pieces or max(len(msgspec.msgpack.encode(row)) for row in rows) < 700_000
        restored = Namespace("eu", "shop")
        load_namespace(restored, [row for row in rows if isinstance(row, NamespaceRow)])
        assert list(restored.answers.items()) == list(namespace.answers.items())
        assert list(restored.scales.items()) == list(namespace.scales.items())
        assert restored.held.sums == namespace.held.sums


def test_rows_that_a_namespace_needs_no_longer_are_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    log, rows = ready_log(replicas=40), dict[bytes, bytes]()
    monkeypatch.setattr("streams.state.rowcodec.MAX_ROW_BYTES", 1_000)
    merge_rows(rows, log.partition.checkpoint())
    many = len(rows)
    log.add(*[PodDeleted(name=f"web-{number}") for number in range(2, 40)])
    merge_rows(rows, log.partition.checkpoint())
    assert len(rows) < many - 3
    assert sorted(rows) == sorted(key for key, _ in log.partition.rows())
    assert list(Partition.restore(0, rows).state.namespaces[KEY].pods) == ["web-0", "web-1"]


def test_rows_of_other_partitions_are_not_read() -> None:
    log = ready_log()
    rows_of_7 = {key.replace(b"0|", b"7|", 1): value for key, value in log.partition.checkpoint()}
    assert Partition.restore(0, rows_of_7).applied_offset == -1
