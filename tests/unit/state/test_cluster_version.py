"""A cluster's HPAs are decided by the rules of its version, which its observer reports in heartbeats."""

from itertools import pairwise
from typing import Any

import pytest

from schemas.answers import Answers
from schemas.entries import Outcome
from schemas.keys import HpaId
from schemas.observed import AutoscalerList, Heartbeat, PodList
from schemas.settings import ClusterSettings, SettingsSet
from streams.hpa.rules import rules_of
from streams.partition import Partition
from streams.state.clustersettings import effective
from tests.kit.partition import LogBuilder, cpu_answer, fold, history, make_hpa, make_pod, scale

TEN_PERCENT_ABOVE = {f"web-{index}": 55 for index in range(2)}
"""Usage of pods that request 100m: 55 % of a target of 50 %, which up to 1.32 scales up, and from 1.33 on does not."""


def observed(version: str, **settings: Any) -> LogBuilder:
    """A log with one enforced HPA, whose observer has reported this version."""
    log = LogBuilder()
    log.add(SettingsSet(cluster="*", settings=ClusterSettings(default_mode="enforce", native_controller="absent")))
    log.add(SettingsSet(cluster="eu", settings=ClusterSettings(**settings)))
    pods = [make_pod(name) for name in TEN_PERCENT_ABOVE]
    log.add(AutoscalerList(list_id="h", hpas=[make_hpa()], session="s"))
    log.add(scale(session="s"), PodList(list_id="p", pods=pods, session="s"))
    beat(log, version)
    return log


def beat(log: LogBuilder, version: str, session: str = "s") -> None:
    watches = ["pods", "scales", "autoscalers"]
    log.add(Heartbeat(session=session, watches=watches, kubernetes=version))


def a_minute(log: LogBuilder, version: str) -> None:
    """Heartbeats of a minute: after that another version may be taken."""
    for _ in range(6):
        log.now_ms += 10_000
        beat(log, version)


def decided(log: LogBuilder) -> dict[str, Any]:
    """The next decision, 10 % above the target."""
    log.now_ms += 15_000
    answers = Answers(items=[cpu_answer("web", TEN_PERCENT_ABOVE, log.now_ms)], session="s")
    return (log.add(answers) or log.ticks(15))[-1]


@pytest.mark.parametrize(
    ("version", "settings", "wants", "rules"),
    [
        pytest.param("v1.32.4-eks-1", {}, 3, "1.32", id="the cluster's version decides"),
        pytest.param("v1.37.1", {}, None, None, id="1.37 is the default"),
        pytest.param("", {}, None, None, id="without a version 1.37 decides"),
        pytest.param("v1.37.1", {"rules": "1.32"}, 3, "1.32", id="settings pin another version"),
        pytest.param("v1.32.4", {"rules": "1.33"}, None, "1.33", id="also a newer one"),
        pytest.param("v1.36.3 HPAScaleToZero=true", {}, None, "1.36 HPAScaleToZero=true", id="gates that are read"),
        pytest.param("v1.36.3", {"gates": "HPAScaleToZero=true"}, None, "1.36 HPAScaleToZero=true", id="stated gates"),
        pytest.param("v1.37.1", {"gates": "HPAConfigurableTolerance=false"}, None, None, id="a gate that is locked on"),
        pytest.param(
            "v1.36.3 HPAConfigurableTolerance=false",
            {"rules": "1.37"},
            None,
            None,
            id="one that the pinned version locks",
        ),
        pytest.param(
            "v1.36.3 PodLevelResources=true", {"rules": "1.33"}, None, "1.33", id="a pinned version has its own gates"
        ),
        pytest.param(
            "v1.36.3",
            {"rules": "1.33", "gates": "PodLevelResources=true"},
            None,
            "1.33 PodLevelResources=true",
            id="unless settings state them",
        ),
        pytest.param("v1.26.1", {"rules": "1.27"}, 3, "1.27", id="a pinned version where the own one is too old"),
        pytest.param("v1.39.0", {}, None, "1.39", id="a version after the newest known one decides as that"),
        pytest.param("v9", {}, None, None, id="what is no version changes nothing"),
    ],
)
def test_the_rules_of_a_cluster(version: str, settings: dict[str, str], wants: int | None, rules: str | None) -> None:
    decision = decided(observed(version, **settings))

    assert decision.get("wants") == wants
    assert decision.get("rules") == rules


def test_a_cluster_whose_rules_are_not_known_is_not_enforced_until_a_version_is_pinned() -> None:
    log = observed("v1.26.1")
    refused = decided(log)
    log.add(SettingsSet(cluster="eu", settings=ClusterSettings(rules="1.27")))
    enforced = decided(log)

    assert (refused.get("mode"), refused.get("wants"), refused["finalDesiredReplicas"]) == (None, None, 3)
    assert "runs Kubernetes 1.26, whose rules are not known: the oldest known are those of 1.27" in refused["refused"]
    assert refused["refused"].endswith("fleethpa settings eu rules=1.27")
    assert (enforced["mode"], enforced["wants"], enforced.get("refused", "")) == ("enforce", 3, "")


@pytest.mark.parametrize(
    ("then", "changes"),
    [
        pytest.param(
            "v1.33.0", ["cluster eu runs Kubernetes v1.33.0, before v1.32.1", "rules 1.32→1.33"], id="upgrade"
        ),
        pytest.param(
            "v1.40.0",
            [
                "cluster eu runs Kubernetes v1.40.0, before v1.32.1",
                "rules 1.32→1.38 (the newest that are known: those of 1.40 are not)",
            ],
            id="to a version that is newer than every known one",
        ),
        pytest.param("v1.32.9", [], id="a patch of the same version"),
    ],
)
def test_the_history_of_an_hpa_shows_the_upgrade_of_its_cluster(then: str, changes: list[str]) -> None:
    log = observed("v1.32.1")
    a_minute(log, "v1.32.1")
    before = len(log.records)
    beat(log, then)

    assert _rules_changes(log, before) == ([changes] if changes else [])


def test_the_history_of_an_hpa_shows_that_a_version_was_pinned_and_that_an_upgrade_then_changes_nothing() -> None:
    log = observed("v1.32.1")
    before = len(log.records)
    log.add(SettingsSet(cluster="eu", settings=ClusterSettings(rules="1.32", gates="")))
    log.add(SettingsSet(cluster="eu", settings=ClusterSettings(rules="1.34")))
    a_minute(log, "v1.32.1")
    beat(log, "v1.33.0")

    assert _rules_changes(log, before) == [
        ["rules 1.32→1.34"],
        ["cluster eu runs Kubernetes v1.33.0, before v1.32.1", "the rules stay those of 1.34"],
    ]


def _rules_changes(log: LogBuilder, begin: int) -> list[list[str]]:
    """What the history shows of rules from a record on."""
    partition = Partition.empty(log.partition.number)
    records = [(each.offset, each.timestamp_ms, each.value) for each in log.records]
    for record in records[:begin]:
        partition.apply(*record)
    found = history(partition, records[begin:], HpaId("eu", "shop", "web"))
    return [each.changes for each in found if each.what == "rules"]


def test_an_upgrade_changes_the_rules_at_one_record_of_the_log() -> None:
    log = observed("v1.32.1", max_step=1)
    before = decided(log)
    log.now_ms += 60_000
    beat(log, "v1.33.0")
    log.ticks(20)
    after = decided(log)

    assert (before["rules"], after["rules"]) == ("1.32", "1.33")
    assert (before.get("wants"), after.get("wants")) == (3, None)
    assert fold(log.records)[1] == [decision.value for decision in log.decisions]


def test_an_upgrade_to_a_version_that_locks_a_stated_gate_does_not_stop_the_partition() -> None:
    log = observed("v1.36.1", gates="HPAConfigurableTolerance=false")
    before = decided(log)
    log.now_ms += 60_000
    beat(log, "v1.37.0")
    log.ticks(20)

    assert before["rules"] == "1.36 HPAConfigurableTolerance=false"
    assert decided(log).get("rules") is None


def test_a_write_that_an_upgrade_overtakes_ends_by_the_rules_of_its_evaluation() -> None:
    log = observed("v1.32.1")
    a_minute(log, "v1.32.1")
    wanted = decided(log)
    beat(log, "v1.37.0")
    log.ticks(1)
    done = Outcome(decision=wanted["id"], name="web", uid=wanted["uid"], result="applied", spec_replicas=3)
    (ended,) = log.add(done)

    assert (wanted["rules"], ended["completes"]) == ("1.32", wanted["id"])
    # From 1.36 on each write sets the condition ScaledToZero.
    assert {each["type"] for each in ended["status"]["conditions"]}.isdisjoint({"ScaledToZero"})


def test_heartbeats_that_contradict_each_other_change_the_rules_once_a_minute() -> None:
    log = observed("v1.32.1")
    changes = []
    for number in range(130):
        log.now_ms += 1_000
        beat(log, f"v1.{33 + number % 2}.0")
        changes.append(log.partition.state.version_of("eu"))

    assert sum(before != after for before, after in pairwise(changes)) == 2


def test_a_session_that_is_not_followed_does_not_change_the_rules() -> None:
    log = observed("v1.32.1")
    a_minute(log, "v1.32.1")
    beat(log, "v1.37.0", session="another")

    assert decided(log)["rules"] == "1.32"


def test_clusters_that_share_metrics_and_pod_templates_keep_their_own_rules() -> None:
    old, new = observed("v1.32.1"), observed("v1.37.1")

    assert [decided(log).get("wants") for log in (old, new, old)] == [3, None, 3]


def test_the_settings_of_a_decision_carry_the_rules() -> None:
    found = effective({"eu": ClusterSettings(gates="HPAScaleToZero=false")}, "eu", "v1.37.1")

    assert found.controller.rules == rules_of(37, {"HPAScaleToZero": False})
    assert found.rules == "1.37 HPAScaleToZero=false"
