"""Which process is named as hung, by what it alone does, and what is then no problem of an HPA."""

import re
from dataclasses import replace
from typing import get_args

import pytest
from msgspec import structs

from fleethpa.fleet.hung import MOST_SIGN_DUE_MS, REPORT_DUE_MS, SignsOfLife, hung_archiver, hung_processes, unanswered
from fleethpa.fleet.troubles import ClusterView, HungProcess, cut_off, quiet_limit_ms, silent_limit_ms
from fleethpa.fleet.views import FleetState, HpaView
from schemas.decisions import NO_OUTCOME
from schemas.inforce import report_every_ms
from schemas.keys import HpaId
from schemas.observed import API_SERVER_PART, ObserverTrouble
from schemas.settings import ClusterSettings
from schemas.topics import QuietProcess
from streams.state.partitionrow import AgentRow, ReportRow, ServedRow

NOW_MS = 1_795_269_600_000
QUIET_MS = quiet_limit_ms(15_000)


def cluster(name: str, *, observed_ms: int = 1_000, served_ms: int = 1_000) -> ClusterView:
    """A cluster whose observer and reconciler reported at this age."""
    return ClusterView(
        name,
        hpas=1,
        modes={"enforce": 1},
        clock_ms=NOW_MS,
        reported_ms=NOW_MS - observed_ms,
        reports=[ReportRow(name, "o", "s", NOW_MS - observed_ms)],
        served=ServedRow(NOW_MS - served_ms),
    )


def with_agent(name: str, *, observed_ms: int = 1_000, served_ms: int = 1_000) -> ClusterView:
    """As `cluster`, with an agent that observes and writes it."""
    return replace(cluster(name, observed_ms=observed_ms, served_ms=served_ms), agent=AgentRow(1))


def ago(*quiet_ms: int) -> dict[int, int]:
    return {number: NOW_MS - each if each else 0 for number, each in enumerate(quiet_ms)}


SILENT = silent_limit_ms(15_000) + 1_000


def hung(
    ingested: dict[int, int],
    decided: dict[int, int],
    clusters: list[ClusterView] | None = None,
    signs: dict[QuietProcess, int] | None = None,
    *,
    skew_ms: int = 0,
) -> list[HungProcess]:
    """`skew_ms`: by how much the reader's clock is ahead of that of the processes."""
    return hung_processes(NOW_MS + skew_ms, SignsOfLife(ingested, decided, signs or {}), clusters or [], QUIET_MS)


@pytest.mark.parametrize(
    ("ingested", "decided", "clusters", "named"),
    [
        pytest.param(ago(900, 900), ago(900, 900), [cluster("east")], [], id="all work"),
        pytest.param(
            ago(900 + QUIET_MS, 900), ago(900 + QUIET_MS, 900), [cluster("east")], [], id="at the bound, none"
        ),
        pytest.param(
            ago(900, 900),
            ago(22_000, 22_000),
            [cluster("east")],
            ["the decider hangs or does not run: nothing was decided in the log since"],
            id="decider",
        ),
        pytest.param(
            ago(900, 900),
            ago(22_000, 900),
            [],
            ["the decider hangs or does not run: nothing was decided in log partition 0 since"],
            id="one of two deciders",
        ),
        pytest.param(
            ago(30_000, 30_000),
            ago(900, 900),
            [cluster("east", observed_ms=SILENT, served_ms=SILENT)],
            ["ingest hangs or does not run: nothing has come into the log since"],
            id="ingest, and not those whose reports it does not carry",
        ),
        pytest.param(
            ago(30_000, 30_000),
            ago(29_000, 29_000),
            [cluster("east", observed_ms=SILENT)],
            ["neither ingest nor the decider has written to the log since"],
            id="both",
        ),
        pytest.param(
            ago(900),
            ago(900),
            [cluster("east", observed_ms=SILENT), cluster("west", observed_ms=SILENT), cluster("north")],
            ["the observer of east, west hangs or does not run: no report since"],
            id="the observer of two clusters, one line",
        ),
        pytest.param(
            ago(900),
            ago(900),
            [cluster("east", served_ms=SILENT)],
            ["the reconciler of east hangs or does not run: no report since"],
            id="reconciler",
        ),
        pytest.param(
            ago(900),
            ago(900),
            [
                cluster("east", observed_ms=SILENT, served_ms=SILENT),
                with_agent("west", observed_ms=SILENT, served_ms=SILENT),
                with_agent("north", observed_ms=SILENT - 5_000, served_ms=SILENT),
            ],
            [
                "the observer of east hangs or does not run: no report since",
                "the reconciler of east hangs or does not run: no report since",
                "the agent of west, north hangs, does not run, does not reach Kafka or is not read: no report since",
            ],
            id="agents, one line",
        ),
        pytest.param(
            ago(900),
            ago(900),
            [with_agent("west", served_ms=SILENT)],
            ["the reconciler in the agent of west hangs or does not run: no report since"],
            id="a part of an agent",
        ),
        pytest.param(
            ago(900),
            ago(900),
            [replace(with_agent("west", observed_ms=SILENT), served=None)],
            [],
            id="an agent that was registered and of which nothing has come yet",
        ),
        pytest.param(
            ago(900),
            ago(900),
            [replace(cluster("east"), beat_ms=NOW_MS - 31_000)],
            [],
            id="an observer that reports, and on none of its namespaces",
        ),
        pytest.param(ago(0, 900), ago(0, 900), [], [], id="a partition in which nothing was ever written"),
    ],
)
def test_a_process_that_hangs_is_named_and_nothing_that_follows_from_it(
    ingested: dict[int, int], decided: dict[int, int], clusters: list[ClusterView], named: list[str]
) -> None:
    found = hung(ingested, decided, clusters)
    assert [each.text.partition(" since ")[0] + " since" for each in found] == named
    agents = [each for each in found if "agent" in each.text]
    assert all(". Next: fleethpa " in each.text for each in found if each not in agents)
    for each in agents:
        assert re.search(
            r"Next: kubectl --context (north|west) -n fleethpa-system logs deployment/fleethpa-agent", each.text
        )


def test_of_a_decider_that_hangs_it_is_not_said_that_replicas_stay_since_a_stand_in_may_scale() -> None:
    (found,) = hung(ago(900, 900), ago(22_000, 900), [with_agent("west")])
    assert "in log partition 0 since" in found.text
    assert "ago), what is shown of its HPAs is as of then, and fleethpa scales none of them. Next: " in found.text


def test_an_agent_was_heard_of_when_the_newest_of_its_parts_reported() -> None:
    (found,) = hung(ago(900), ago(900), [with_agent("west", observed_ms=SILENT - 5_000, served_ms=SILENT)])
    assert found.since_ms == NOW_MS - SILENT + 5_000


@pytest.mark.parametrize("process", get_args(QuietProcess))
@pytest.mark.parametrize("ingested", [pytest.param(900, id="alone"), pytest.param(30_000, id="beside ingest")])
def test_a_process_that_writes_nothing_is_named_by_its_signs_of_life(process: QuietProcess, ingested: int) -> None:
    def named(age_ms: int) -> list[str]:
        found = hung(ago(ingested), ago(900), signs={process: NOW_MS - 900 - age_ms})
        return [each.text for each in found if each.process == process]

    assert named(MOST_SIGN_DUE_MS) == []
    (text,) = named(MOST_SIGN_DUE_MS + 1)
    assert text.startswith(
        f"the {process} hangs, does not run, may not commit heartbeats, or its clock is behind: no heartbeat since "
    )
    assert text.endswith(f". Next: fleethpa {'admin archive --to DIR' if process == 'archiver' else f'run {process}'}")


def test_of_an_archive_only_the_process_that_writes_it_is_named() -> None:
    assert hung_archiver(NOW_MS, {}) == hung_archiver(NOW_MS, {"archiver": NOW_MS - MOST_SIGN_DUE_MS}) == []
    (named,) = hung_archiver(NOW_MS, {"archiver": NOW_MS - MOST_SIGN_DUE_MS - 1})
    assert (named.process, named.since_ms) == ("archiver", NOW_MS - MOST_SIGN_DUE_MS - 1)


@pytest.mark.parametrize("skew_ms", [-60_000, 15_000, QUIET_MS - 1_000])
def test_the_clock_of_the_reader_names_no_process(skew_ms: int) -> None:
    signs: dict[QuietProcess, int] = {name: NOW_MS - 4_000 for name in get_args(QuietProcess)}
    assert hung(ago(900, 4_000), ago(900, 900), signs=signs, skew_ms=skew_ms) == []
    (named,) = hung(ago(900, 900), ago(30_000, 30_000), signs=signs, skew_ms=skew_ms)
    assert named.process == "decider"


@pytest.mark.parametrize("ahead", get_args(QuietProcess))
def test_the_clock_of_one_process_that_is_ahead_says_nothing_about_the_others(ahead: QuietProcess) -> None:
    signs: dict[QuietProcess, int] = {name: NOW_MS - 4_000 for name in get_args(QuietProcess)}
    signs[ahead] = NOW_MS + 120_000
    assert hung(ago(900, 4_000), ago(900, 900), [cluster("east")], signs) == []
    assert hung(ago(900, 4_000), ago(900, 900), [cluster("east")], signs, skew_ms=-3_000) == []
    (named,) = hung(ago(900, 900), ago(30_000, 30_000), signs=signs)
    assert named.process == "decider"
    (named,) = hung(ago(30_000), ago(30_000), signs=signs)
    assert "neither ingest nor the decider has written to the log" in named.text


def test_a_clock_that_is_far_ahead_may_also_be_a_log_without_writers() -> None:
    signs: dict[QuietProcess, int] = {"router": NOW_MS - 4_000}
    (named,) = hung(ago(900, 900), ago(900, 900), signs=signs, skew_ms=60_000)
    assert "neither ingest nor the decider has written to the log" in named.text
    assert "(or the clock of this machine is ahead)" in named.text


@pytest.mark.parametrize("period_ms", [5_000, 15_000, 60_000])
def test_each_process_is_named_within_three_sync_periods(period_ms: int) -> None:
    state = FleetState(settings={"*": ClusterSettings(sync_period_ms=period_ms)})
    tick_ms = 1_000  # the newest sign may be as old
    assert state.quiet_ms + tick_ms < 3 * period_ms
    assert state.quiet_ms > 2 * 5_000  # ingest's empty records and the heartbeats come every 5 s
    assert silent_limit_ms(period_ms) + tick_ms < 3 * period_ms
    assert silent_limit_ms(period_ms) > 2 * report_every_ms(period_ms, 10_000), "one late report names nobody"


@pytest.mark.parametrize(
    ("process", "silent"), [("observer", {"observed_ms": 13_000}), ("reconciler", {"served_ms": 13_000})]
)
def test_the_processes_of_a_cluster_with_a_short_period_are_named_sooner(process: str, silent: dict[str, int]) -> None:
    usual = cluster("east", **silent)
    assert hung(ago(900), ago(900), [usual]) == []
    (named,) = hung(ago(900), ago(900), [replace(usual, settings=ClusterSettings(sync_period_ms=5_000))])
    assert named.process == process


def test_the_shortest_period_that_is_set_counts() -> None:
    own = {"*": ClusterSettings(sync_period_ms=60_000), "east": ClusterSettings(sync_period_ms=5_000)}
    assert FleetState(settings=own).quiet_ms == quiet_limit_ms(5_000) < FleetState().quiet_ms


@pytest.mark.parametrize(
    ("view", "decided", "is_lost"),
    [
        pytest.param(cluster("east"), 900, False, id="all work"),
        pytest.param(cluster("east", served_ms=REPORT_DUE_MS + 1), 900, True, id="a report of the reconciler is due"),
        pytest.param(cluster("east"), 22_000, True, id="the decider hangs"),
    ],
)
def test_a_missing_outcome_is_no_problem_of_an_hpa_where_none_can_come(
    view: ClusterView, decided: int, is_lost: bool
) -> None:
    found = hung(ago(900), ago(decided), [view])
    assert unanswered(found, view) == is_lost
    condition = {
        "type": "AbleToScale",
        "status": "False",
        "reason": "FailedUpdateScale",
        "message": f"the HPA controller was unable to update the target scale: {NO_OUTCOME}",
    }
    hpa = HpaView(
        HpaId("east", "shop", "checkout"),
        {"spec": {"minReplicas": 1, "maxReplicas": 9}, "status": {"conditions": [condition]}},
        "enforce",
        "central",
        0,
        is_unanswered=is_lost,
    )
    assert [problem.label for problem in hpa.problems] == ([] if is_lost else ["write failed"])


def test_a_missing_outcome_is_no_problem_where_an_agent_gets_no_decisions() -> None:
    router = [HungProcess("router", 0, "the router hangs", "fleethpa run router")]
    view = cluster("west")
    assert not unanswered(router, view)
    view.agent = AgentRow(incarnation=1)
    assert unanswered(router, view)


def test_where_no_reconciler_serves_a_cluster_its_hpas_say_so_and_not_that_writes_fail() -> None:
    condition = {"type": "AbleToScale", "status": "False", "reason": "FailedUpdateScale", "message": NO_OUTCOME}
    body = {"spec": {"minReplicas": 1, "maxReplicas": 9}, "status": {"conditions": [condition]}}
    view = HpaView(HpaId("east", "shop", "checkout"), body, "enforce", "central", 0, is_unserved=True)
    assert [(each.label, each.text) for each in view.problems] == [
        ("not written", "not written: no reconciler serves cluster east")
    ]


def test_an_hpa_without_metrics_names_what_its_cluster_has_and_not_the_error_of_a_client() -> None:
    away = ObserverTrouble(
        part=API_SERVER_PART,
        reason="unreachable",
        error="Cannot connect to host 127.0.0.1:38417",
        since=NOW_MS - 21_000,
    )
    east = cluster("east")
    east.reports = [structs.replace(east.reports[0], troubles=[away])]
    why = cut_off("east", NOW_MS, east.troubles)
    assert why == "cluster east unreachable for 21s"
    message = "the HPA was unable to compute the replica count: Cannot connect to host 127.0.0.1:38417"
    condition = {"type": "ScalingActive", "status": "False", "reason": "FailedGetResourceMetric", "message": message}
    # Once the scale is too old, too, both conditions have the one cause.
    unread = {"type": "AbleToScale", "status": "False", "reason": "FailedGetScale", "message": message}
    status = {"currentReplicas": 7, "conditions": [unread, condition]}
    shown = {
        text: HpaView(HpaId("east", "shop", "web"), {"status": status}, "enforce", "central", 0, cut_off=text).problems
        for text in (why, "")
    }
    assert [each.text for each in shown[why]] == [f"no metric: {why}; replicas held at 7"]
    assert [each.label for each in shown[""]] == ["no scale", "no metrics"]
    assert all("Cannot connect" in each.text for each in shown[""])
    # All HPAs of the cluster have the cause in common, whatever each is held at.
    assert shown[why][0].cause == f"no metric: {why}"


def test_nothing_is_cut_off_where_the_cluster_answers() -> None:
    assert cut_off("east", NOW_MS, cluster("east").troubles) == ""
