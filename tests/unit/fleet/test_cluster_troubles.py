"""What is wrong in a cluster is named once, by its cause."""

import re
from typing import Any, get_args

import pytest

from fleethpa.fleet.troubles import ClusterTrouble, ClusterView, cut_off, shared_troubles
from schemas.observed import ObserverTrouble, Reason
from streams.state.partitionrow import AgentRow, ControlRow, ReportRow, ServedRow

PARTS = (
    *("apiServer", "pods", "scales", "metrics.k8s.io", "prometheus", "canary", "membership", "nativeEvidence"),
    *("scaledobjects", "refusedReports"),
)
NOW_MS = 1_795_269_600_000
ALIVE = ServedRow(NOW_MS - 5_000)


def troubles_of(now_ms: int = NOW_MS, *, enforced: int = 2, **known: Any) -> list[ClusterTrouble]:
    return ClusterView("east", clock_ms=now_ms, modes={"enforce": enforced}, **known).troubles


def report(*troubles: ObserverTrouble, reported_ms: int = NOW_MS - 5_000, **fields: Any) -> ReportRow:
    return ReportRow("east", "o", "s", reported_ms, troubles=list(troubles), **fields)


def trouble(part: str, reason: Any = "failing", **fields: Any) -> ObserverTrouble:
    return ObserverTrouble(part=part, reason=reason, since=NOW_MS - 60_000, **fields)


@pytest.mark.parametrize("reason", get_args(Reason))
@pytest.mark.parametrize("part", PARTS)
def test_each_part_has_words_and_a_next_step_for_each_reason(part: str, reason: Reason) -> None:
    [told] = troubles_of(enforced=0, reports=[report(trouble(part, reason, error="refused"))], reported_ms=NOW_MS)
    assert told.text.endswith(": refused")
    assert told.next_step


@pytest.mark.parametrize(
    ("given", "kinds"),
    [
        pytest.param({}, [], id="nothing"),
        pytest.param({"reported_ms": None}, ["observerSilent"], id="never observed"),
        pytest.param({"reported_ms": NOW_MS - 30_001, "reports": []}, ["observerSilent"], id="silent for long"),
        pytest.param({"reported_ms": NOW_MS - 30_000, "reports": []}, [], id="silent, not yet for long"),
        pytest.param({"reports": [report(stopped=True)]}, ["observerSilent"], id="stopped on purpose, seen at once"),
        pytest.param(
            {"reports": [report(stopped=True, reported_ms=NOW_MS), report()]},
            [],
            id="one of two was stopped, as in a rolling update",
        ),
        pytest.param(
            {"reports": [report(stopped=True, reported_ms=NOW_MS), report(reported_ms=NOW_MS - 30_001)]},
            ["observerSilent"],
            id="one of two was stopped, and the other is silent",
        ),
        pytest.param(
            {"reports": [report(trouble("membership", error="it is gone"), stopped=True)], "served": None},
            ["left"],
            id="it left the fleet, so nothing else matters",
        ),
        pytest.param({"reports": [report(trouble("membership"))]}, ["unhealthy"], id="its object says it is ill"),
        pytest.param(
            {"reported_ms": NOW_MS - 60_000, "reports": [report(trouble("apiServer"), reported_ms=NOW_MS - 60_000)]},
            ["observerSilent"],
            id="the last report of a silent observer may be outdated",
        ),
        pytest.param(
            {"reports": [report(trouble("pods")), report(reported_ms=NOW_MS - 9_000)]},
            ["watchFailing"],
            id="the newest of several reports",
        ),
        pytest.param(
            {"reports": [report(trouble("apiServer", "unreachable"), trouble("metrics.k8s.io", "forbidden"))]},
            ["apiServerAway", "metricsFailing"],
            id="another cause beside an API server that is away",
        ),
        pytest.param(
            {
                "reports": [
                    report(
                        trouble("apiServer", error="overloaded"),
                        trouble("pods", error="overloaded"),
                        trouble("autoscalers", error="another"),
                    )
                ]
            },
            ["apiServerAway", "watchFailing"],
            id="an API server that answers everything with one error is one trouble",
        ),
        pytest.param(
            {"reports": [report(trouble("apiServer", "identity"), trouble("pods", "identity"))]},
            ["identityRefused"],
            id="an API server that does not show the stated UID",
        ),
        pytest.param(
            {"reports": [report(trouble("external.metrics.k8s.io"), trouble("widgets.example.com", "forbidden"))]},
            ["watchForbidden", "metricsFailing"],
            id="watches before metrics",
        ),
        pytest.param(
            {"reports": [report(trouble("prometheus", "unreachable"), trouble("scaledobjects"))]},
            ["conflictsUnseen", "metricsFailing"],
            id="a Prometheus that is away hides nothing of the cluster",
        ),
        pytest.param({"reports": [report(trouble("canary"))]}, ["canaryFailing"], id="the canary"),
        pytest.param({"reports": [report()], "beat_ms": NOW_MS - 30_000}, [], id="heartbeats of namespaces, 30 s old"),
        pytest.param(
            {"reports": [report()], "beat_ms": NOW_MS - 30_001},
            ["observerSilent"],
            id="an observer that is started again and again, and gets no further than its first report",
        ),
        pytest.param({"reports": [report(stated_ms=NOW_MS - 35_000)]}, [], id="reports that come 30 s late"),
        pytest.param(
            {"reports": [report(stated_ms=NOW_MS - 35_001)]}, ["observerClock"], id="an observer whose clock is behind"
        ),
        pytest.param({"reports": [report(stated_ms=NOW_MS + 120_000)]}, [], id="one whose clock is ahead does no harm"),
        pytest.param({"served": ServedRow(NOW_MS, stated_ms=NOW_MS + 5_000)}, [], id="a reconciler 5 s ahead"),
        pytest.param(
            {"served": ServedRow(NOW_MS, stated_ms=NOW_MS + 5_001)}, ["reconcilerClock"], id="a reconciler more ahead"
        ),
        pytest.param(
            {"served": ServedRow(NOW_MS, "down", stated_ms=NOW_MS - 120_000)},
            ["reconcilerClock", "reconcilerFailing"],
            id="a reconciler whose clock is behind, and that cannot write",
        ),
        pytest.param({"served": None}, ["reconcilerSilent"], id="no reconciler"),
        pytest.param({"served": None, "enforced": 0}, [], id="no reconciler, and none is needed"),
        pytest.param({"served": ServedRow(NOW_MS - 30_001)}, ["reconcilerSilent"], id="a silent reconciler"),
        pytest.param({"served": ServedRow(NOW_MS, "refused")}, ["reconcilerFailing"], id="one that cannot write"),
        pytest.param(
            {"served": ServedRow(NOW_MS, "refused"), "hands": ControlRow([(NOW_MS - 60_000, "stand-in", 3)])},
            ["standIn"],
            id="its stand-in is in charge, so that the hub cannot write",
        ),
        pytest.param({"hands": ControlRow([(NOW_MS, "hub/main/1", 5)])}, [], id="the hub has it back"),
        pytest.param({"kubernetes": "v1.27.16"}, [], id="the oldest known version of Kubernetes"),
        pytest.param({"kubernetes": "v1.26.9"}, ["versionTooOld"], id="one whose rules are not known"),
        pytest.param({"kubernetes": "v1.38.0"}, [], id="the newest known one"),
        pytest.param({"kubernetes": "v1.39.0"}, ["versionUnknown"], id="one that is newer than every known one"),
        pytest.param({"kubernetes": "v9"}, ["versionUnknown"], id="what is no version of Kubernetes"),
    ],
)
def test_each_cause_is_named_once(given: dict[str, Any], kinds: list[str]) -> None:
    usual: dict[str, Any] = {"reported_ms": NOW_MS - 5_000, "reports": [report()], "served": ALIVE, "enforced": 2}
    found = troubles_of(**(usual | given))
    assert [each.kind for each in found] == kinds
    assert all(each.next_step and "\n" not in each.text for each in found)


def test_a_right_that_a_reconciler_lacks_is_known_by_its_reason_and_not_by_a_text() -> None:
    usual: dict[str, Any] = {"reported_ms": NOW_MS, "reports": [report()], "enforced": 2}
    text = 'deployments.apps "web" is forbidden: nobody may'
    steps = {
        reason: [each.next_step for each in troubles_of(**usual, served=ServedRow(NOW_MS, text, reason=reason))]
        for reason in ("forbidden", "failing", "unreachable", "")
    }
    ask = ["kubectl --context east get --raw /readyz"]
    check = ["fleethpa admin clusters check east"]
    assert steps == {"forbidden": check, "failing": ask, "unreachable": ask, "": ask}


def test_where_is_named_as_long_as_it_is_short() -> None:
    few = trouble("pods", namespaces=["data", "shop"], namespace_count=2)
    many = trouble("scales", "forbidden", namespaces=["a", "b", "c"], namespace_count=40, rights=["list x.apps"])
    texts = [each.text for each in troubles_of(reported_ms=NOW_MS, reports=[report(few, many)], enforced=0)]
    assert [re.sub(r" since \S+ \(60s ago\)", "", text) for text in texts] == [
        "watching pods fails in data, shop",
        "watching scales is forbidden in 40 namespaces, which needs list x.apps",
    ]


def test_what_is_wrong_in_several_clusters_is_one_trouble_of_all_of_them() -> None:
    def away(name: str, age_ms: int, error: str = "") -> ClusterView:
        found = ObserverTrouble(part="apiServer", reason="unreachable", since=NOW_MS - age_ms, error=error)
        return ClusterView(
            name, clock_ms=NOW_MS, reported_ms=NOW_MS, reports=[ReportRow(name, "o", "s", NOW_MS, troubles=[found])]
        )

    views = [away("a", 5_000), away("b", 60_000), away("c", 70_000, "refused")]
    found = shared_troubles((view, trouble) for view in views for trouble in view.troubles)
    assert [(each.clusters, each.since_ms, each.text) for each in found] == [
        (["a", "b"], NOW_MS - 60_000, "its API server is away"),
        (["c"], NOW_MS - 70_000, "its API server is away: refused"),
    ]
    assert found[0].trouble == views[0].troubles[0]


def test_a_stand_in_is_shown_with_the_reason_that_its_agent_reports() -> None:
    usual: dict[str, Any] = {"reported_ms": NOW_MS, "reports": [report()], "enforced": 2}
    hands = ControlRow([(NOW_MS - 60_000, "stand-in", 3)])
    [fresh] = troubles_of(**usual, served=ServedRow(NOW_MS, "no right\nto write"), hands=hands)
    assert fresh.text.endswith("; its agent reports: no right")
    [old] = troubles_of(**usual, served=ServedRow(NOW_MS - 30_001, "no right"), hands=hands)
    assert "its agent reports" not in old.text
    [of_before] = troubles_of(**usual, served=ServedRow(NOW_MS - 1, "held by 3"), hands=ControlRow([(NOW_MS, "x", 4)]))
    assert "its agent reports" not in of_before.text


@pytest.mark.parametrize(
    ("agent", "reason", "step"),
    [
        (None, "failing", "kubectl --context east get --raw /readyz"),
        # Kafka, the Lease or the router may be why: none of them is asked by asking the API server.
        (AgentRow(1), "failing", "kubectl --context east -n fleethpa-system logs deployment/fleethpa-agent"),
        (AgentRow(1), "forbidden", "fleethpa admin clusters check east"),
        (None, "identity", "fleethpa admin clusters check east"),
    ],
)
def test_what_is_advised_where_nothing_can_be_written_fits_who_writes(
    agent: AgentRow | None, reason: Reason, step: str
) -> None:
    usual: dict[str, Any] = {"reported_ms": NOW_MS, "reports": [report()], "enforced": 2, "agent": agent}
    [found] = troubles_of(**usual, served=ServedRow(NOW_MS, "refused", reason=reason))
    assert (found.kind, found.next_step) == ("reconcilerFailing", step)


@pytest.mark.parametrize(
    ("holder", "who"),
    [
        ("stand-in", "the cluster's own controller scales in place of fleethpa (2 enforced HPAs)"),
        ("closing", "nobody scales until the stand-in's HPAs have ended (2 enforced HPAs)"),
        ("somebody", "fleethpa writes nothing there (2 enforced HPAs)"),
    ],
)
def test_who_scales_while_the_hub_is_not_in_charge_follows_from_the_holder(holder: str, who: str) -> None:
    usual: dict[str, Any] = {"reported_ms": NOW_MS, "reports": [report()], "served": ALIVE, "enforced": 2}
    [found] = troubles_of(**usual, hands=ControlRow([(NOW_MS - 9_000, holder, 4)]))
    assert found.text.endswith(f"(9s ago) (generation 4): {who}")


@pytest.mark.parametrize(
    ("reason", "what", "cut"),
    [
        ("unreachable", "its API server is away", "cluster east unreachable for 1m"),
        (
            "forbidden",
            "its API server refuses the credentials of its observer",
            "cluster east refuses the credentials of its observer for 1m",
        ),
        ("failing", "its API server cannot be asked", "cluster east unreachable for 1m"),
    ],
)
def test_why_an_api_server_gives_no_answers_is_said_as_it_is(reason: str, what: str, cut: str) -> None:
    found = troubles_of(reported_ms=NOW_MS, reports=[report(trouble("apiServer", reason))], served=ALIVE)
    assert [each.what for each in found] == [what]
    assert cut_off("east", NOW_MS, found) == cut


def test_by_how_much_a_clock_is_wrong_is_said_and_that_metrics_count_as_too_old() -> None:
    observer = report(stated_ms=NOW_MS - 5_000 - 121_300)
    served = ServedRow(NOW_MS, stated_ms=NOW_MS + 120_900)
    found = troubles_of(reported_ms=NOW_MS, reports=[observer], served=served)
    assert [each.text for each in found] == [
        "its observer dates what it reports 2m1s before log time: its clock is behind, or reports come late, and all "
        "its metrics count as too old",
        "its reconciler's clock is 2m ahead of log time and the brokers do not stamp what it writes: its writes end as "
        "too late",
    ]
    assert cut_off("east", NOW_MS, found) == "all reports of the observer of east count as too old"
    assert all(each.is_grave for each in found)


@pytest.mark.parametrize("reported_ms", [None, NOW_MS - 60_000])
def test_an_agent_that_is_registered_and_has_not_reported_is_not_said_to_hang(reported_ms: int | None) -> None:
    (found,) = troubles_of(reported_ms=reported_ms, served=None, agent=AgentRow(2))
    assert found.text == (
        "no report of its agent of incarnation 2 has come yet, and what an earlier one reports is refused"
    )
    assert found.next_step == "kubectl --context east -n fleethpa-system get deployment fleethpa-agent -o yaml"
    assert found.hides_the_present == (reported_ms is not None)
