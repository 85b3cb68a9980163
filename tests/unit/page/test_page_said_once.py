"""The page of an HPA says each thing once, and its timeline only what changed."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from msgspec import structs

from fleethpa.fleet.decisionpage import explained
from fleethpa.fleet.troubles import ClusterTrouble
from fleethpa.fleet.views import Problem
from fleethpa.page.hpapast import HpaPast
from fleethpa.page.hpaview import is_counted, said_once, timeline
from fleethpa.show.text import rfc3339
from schemas.decisions import Decision
from schemas.kubernetes.gotimes import parse_time_ms
from tests.kit.cli import Fleet
from tests.kit.page import Shown, browsing, over

PATH = "/hpa/east/shop/checkout"
LOST = ClusterTrouble(
    "apiServerAway", 0, "its API server does not answer since 12:00", "kubectl --context east version"
)


@pytest.fixture
def fleet(monkeypatch: pytest.MonkeyPatch) -> Fleet:
    made = Fleet()
    over(made, monkeypatch)
    made.settle()
    return made


def decided(fleet: Fleet, **changes: Any) -> Decision:
    return structs.replace(fleet.decisions()[-1].decision, **changes)


def failed(fleet: Fleet) -> Decision:
    changes: dict[str, Any] = {"error": "no answer", "metrics": [], "final_desired_replicas": 3, "current_replicas": 3}
    return decided(fleet, **changes)


def test_a_dead_cluster_is_said_by_the_verdict_and_its_next_step_by_one_box(fleet: Fleet) -> None:
    decision = failed(fleet)
    trouble = ClusterTrouble(LOST.kind, parse_time_ms(decision.time) - 60_000, LOST.what, LOST.next_step)
    found = explained(decision, troubles=[trouble])
    assert found.verdict == "no metric: cluster east unreachable for 1m; replicas held at 3"
    # Its problem is as of now, the verdict as of the decision.
    problem = Problem("no metrics", "no metric: cluster east unreachable for 1m15s; replicas held at 3")
    assert said_once(found, [problem]) == ([], ["Next: kubectl --context east version"])
    # Every view says above what is wrong with the cluster, and what comes next.
    assert said_once(found, [problem], ["cluster east: away. Next: kubectl --context east version"]) == ([], [])


def test_that_ingest_hangs_is_said_at_the_head_of_every_view_alone(fleet: Fleet) -> None:
    found, unfed = explained(failed(fleet)), "ingest hangs since 12:00:00 (1m)"
    problem = Problem("no metrics", f"no metric: {unfed}; replicas held at 3")
    assert said_once(found, [problem], ["ingest hangs or does not run: nothing comes in"], unfed) == ([], [])
    assert said_once(found, [problem], [], unfed) == ([], [problem.text])


def test_without_a_count_there_is_no_picture_of_the_arithmetic(fleet: Fleet) -> None:
    found = explained(decided(fleet))
    assert is_counted(found)
    assert not is_counted(replace(found, steps=[step._replace(value="-") for step in found.steps]))


def test_a_trouble_that_the_verdict_does_not_say_stays_whole(fleet: Fleet) -> None:
    trouble = ClusterTrouble("watchFailing", 0, "pods cannot be watched", "fleethpa doctor")
    found = explained(failed(fleet), troubles=[trouble])
    problem = Problem("no metrics", "no metric: cluster east unreachable for 1m")
    whole = "Cluster east: pods cannot be watched. Next: fleethpa doctor"
    assert said_once(found, [problem]) == ([], [whole, problem.text])


@pytest.mark.parametrize(
    ("limits", "problem", "chips", "boxes"),
    [
        pytest.param(["MaxReplicas"], ("saturated", "saturated: at max 3, asks for 9"), ["saturated"], 0, id="said"),
        pytest.param([], ("saturated", "saturated: at max 3, asks for 9"), [], 1, id="saturated only since then"),
        pytest.param([], ("off", "mode off: nothing is decided"), [], 1, id="the verdict knows nothing of the mode"),
        pytest.param([], ("paused", "paused: by anna"), [], 1, id="paused after the decision"),
        pytest.param([], ("fight", "two writers undo each other"), [], 1, id="a fight of which there is no notice"),
    ],
)
def test_a_problem_is_a_chip_only_where_the_verdict_says_it(
    fleet: Fleet, limits: list[str], problem: tuple[str, str], chips: list[str], boxes: int
) -> None:
    decision = decided(fleet, constraints_applied=limits, final_desired_replicas=3, current_replicas=3, max_replicas=3)
    said, left = said_once(explained(decision), [Problem(*problem)])
    assert [label for label, _ in said] == chips
    assert left == [problem[1]] * boxes


def test_without_a_decision_every_problem_is_a_box() -> None:
    assert said_once(None, [Problem("off", "mode off: nothing is decided")]) == ([], ["mode off: nothing is decided"])


async def test_the_timeline_has_changes_and_on_demand_every_evaluation(fleet: Fleet) -> None:
    for usage_milli in (300, 300, 900):
        fleet.append(after_ms=16_000)
        fleet.observe(3, usage_milli)
    fleet.append(after_ms=16_000)
    at = rfc3339(fleet.now_ms)

    def kinds(view: Shown) -> list[str]:
        classes = [str(attributes.get("class")) for tag, attributes in view.tags if tag == "li"]
        return [each for each in classes if each.startswith("kind-")]

    async with browsing() as client:
        changes = Shown(await (await client.get(f"{PATH}?at={at}")).text())
        every = Shown(await (await client.get(f"{PATH}?show=all&at={at}")).text())
    assert {"kind-same", "kind-scale"} <= set(kinds(every))
    assert kinds(changes) == [kind for kind in kinds(every) if kind != "kind-same"]
    assert "Changes; all evaluations" in changes.text
    assert "All evaluations; only changes" in every.text
    # A span of the charts keeps what the timeline shows.
    spans = [str(each.get("href")) for tag, each in every.tags if tag == "a" and "span=" in str(each.get("href"))]
    assert any("show=all" in href for href in spans)


@pytest.mark.parametrize(("result", "shown"), [("applied", ["scale"]), ("failed", ["write", "scale"])])
def test_that_a_change_was_applied_is_said_on_its_line_and_that_it_was_not_on_one_of_its_own(
    fleet: Fleet, result: str, shown: list[str]
) -> None:
    scaled = structs.replace(fleet.decisions()[-1], decision=decided(fleet, id="d-1", direction="ScaleUp", error=""))
    outcome = {"result": result, "message": "no"}
    written = decided(fleet, id="d-2", kind="completion", completes="d-1", outcome=outcome, error="")
    read = HpaPast([scaled, structs.replace(scaled, time_ms=scaled.time_ms + 1, decision=written)], (), is_whole=True)
    assert [line["kind"] for line in timeline(read, every=False)] == shown
    assert timeline(read, every=False)[-1]["is_applied"] == (result == "applied")
    assert [line["kind"] for line in timeline(read)] == ["write", "scale"]


async def test_charts_come_before_the_arithmetic_and_the_timeline(fleet: Fleet) -> None:
    async with browsing() as client:
        view = Shown(await (await client.get(PATH)).text())
    ids = [attributes.get("id") for _, attributes in view.tags]
    places = [ids.index(name) for name in ("head", "charts", "why", "past", "more")]
    assert all(one < next_ for one, next_ in pairwise(places))
