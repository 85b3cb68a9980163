"""Read verbs over a fleet in memory: get, describe, decisions, explain, status."""

from __future__ import annotations

import importlib
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import orjson
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from fleethpa.cli.status import changed_lines
from fleethpa.fleet.decisionfinding import asked_id, only, short_id, short_ids
from fleethpa.fleet.decisionpage import explained, explanation_lines
from fleethpa.fleet.decisions import Filter
from fleethpa.fleet.finding import Selection
from fleethpa.fleet.lists import visible
from fleethpa.fleet.state import read_state
from fleethpa.fleet.troubles import ClusterTrouble
from fleethpa.frame.errors import CommandError
from fleethpa.frame.session import Session
from fleethpa.show.text import Column, Widths, rfc3339, table
from schemas.codec import encode
from schemas.entries import WHOLE_PARTITION_KEY, Body, LogRecord, Outcome
from schemas.keys import HpaId
from schemas.kubernetes.gotimes import parse_time_ms
from schemas.observed import (
    AutoscalerDeleted,
    AutoscalerList,
    AutoscalerSet,
    ClusterReport,
    Command,
    Heartbeat,
    ObserverTrouble,
)
from schemas.settings import SettingsSet
from streams.archive.layout import DECISIONS, LOG, archived_record
from streams.state.moves import KEPT_MOVES
from streams.state.needs import STATES
from tests.kit.cli import SETTINGS, START_MS, Cli, Fleet, FleetPast, hpa, table_rows
from tests.kit.memorypast import MemoryPast
from tests.kit.published import fits

HEADER = "NAMESPACE  NAME  CLUSTER  REFERENCE  TARGETS  MINPODS  MAXPODS  REPLICAS  WANTS  MODE  AGE  PROBLEM"
CHECKOUT = HpaId("east", "shop", "checkout")


@pytest.fixture
def fleet() -> Fleet:
    """`checkout` runs 3 pods at 100% of 60%: 5 are wanted, and written."""
    made = Fleet()
    made.settle(replicas=3, usage_milli=500)
    made.applied(5)
    return made


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, fleet: Fleet, tmp_path: Path) -> Cli:
    monkeypatch.setenv("FLEETHPA_RUNTIME_DIR", str(tmp_path))
    return Cli(monkeypatch, fleet)


# --- get --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("checkpointed", [False, True], ids=["from the log alone", "from rows and the log since"])
def test_get_shows_kubectls_columns_cluster_and_mode(run: Cli, fleet: Fleet, checkpointed: bool) -> None:
    if checkpointed:
        fleet.checkpoint()
    fleet.observe(5, 300)
    lines = run("get", "hpa", "-A").stdout.splitlines()
    assert "  ".join(lines[0].split()) == HEADER
    cells = [cell for cell in lines[1].split("  ") if cell]
    assert [cell.strip() for cell in cells[:5]] == ["shop", "checkout", "east", "Deployment/checkout", "cpu: 100%/60%"]
    assert [cell.strip() for cell in cells[5:9]] == ["2", "20", "3", "5"]


def test_get_json_yaml_and_jsonl_agree_and_fit_the_schema(run: Cli) -> None:
    document = fits("HpaList", run("get", "hpa", "-A", "-o", "json").stdout)
    assert document["items"][0]["spec"]["maxReplicas"] == 20
    assert yaml.safe_load(run("get", "hpa", "-A", "-o", "yaml").stdout) == document
    assert [orjson.loads(line) for line in run("get", "hpa", "-A", "-o", "jsonl").stdout.splitlines()] == document[
        "items"
    ]


def test_get_name_and_no_headers(run: Cli) -> None:
    assert run("get", "hpa", "-A", "-o", "name").stdout == "hpa/east/shop/checkout\n"
    assert "NAMESPACE" not in run("get", "hpa", "-A", "--no-headers").stdout


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        pytest.param(["-n", "shop"], True, id="its namespace"),
        pytest.param(["-n", "other"], False, id="another namespace"),
        pytest.param([], False, id="the default namespace, as kubectl"),
        pytest.param(["-A", "-C", "ea*"], True, id="a cluster glob"),
        pytest.param(["-A", "-l", "app=checkout"], True, id="its label"),
        pytest.param(["-A", "-l", "app notin (checkout)"], False, id="a set selector that excludes it"),
        pytest.param(["shop/checkout"], True, id="namespace and name"),
        pytest.param(["east/shop/checkout"], True, id="its whole name"),
    ],
)
def test_selection(run: Cli, arguments: list[str], found: bool) -> None:
    result = run("get", "hpa", *arguments)
    assert result.exit_code == 0, result.output
    assert ("checkout" in result.stdout) is found
    assert found or "No HPAs found" in result.stderr


@pytest.mark.parametrize(
    ("name", "stated"),
    [
        pytest.param("checkout", "Did you mean east/shop/checkout?", id="in another namespace"),
        pytest.param("eastt/shop/checkout", "Did you mean east/shop/checkout?", id="a slip in the cluster's name"),
        pytest.param("west/shop/checkout", "HPAs of this name are east/shop/checkout.", id="in another cluster"),
        pytest.param("mars/shop/none", "Known are east", id="a cluster that is not known"),
    ],
)
def test_a_name_that_is_not_there_exits_4_and_points_at_the_nearest(run: Cli, name: str, stated: str) -> None:
    result = run("get", "hpa", name)
    assert (result.exit_code, result.stdout) == (4, "")
    assert stated in result.stderr
    assert run("get", "hpa", name, "--ignore-not-found").exit_code == 0


def test_what_was_not_there_when_it_was_last_known_may_be_there_now(
    run: Cli, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet.append()
    fleet.checkpoint()
    for _ in range(12):
        fleet.append(after_ms=5_000, by="ingest")
    monkeypatch.setattr(FleetPast, "now_ms", lambda _: fleet.now_ms)
    for verb in (("get", "hpa"), ("describe",), ("status",)):
        result = run(*verb, "east/shop/later")
        assert (result.exit_code, result.stdout) == (5, ""), result.output
        assert "warning: the decider hangs or does not run" in result.stderr
        assert "Error: no HPA east/shop/later when it was last known" in result.stderr


def test_a_silent_cluster_keeps_its_rows_and_exits_5(run: Cli, fleet: Fleet) -> None:
    for _ in range(5):
        fleet.append(after_ms=10_000, by="ingest")
    fleet.checkpoint()
    result = run("get", "hpa", "-A")
    assert result.exit_code == 5
    assert "checkout" in result.stdout
    assert "cluster east: its observer has been silent since" in result.stderr


def test_get_clusters(run: Cli, fleet: Fleet) -> None:
    fleet.checkpoint()
    document = fits("ClusterList", run("get", "clusters", "-o", "json").stdout)
    assert [(c["name"], c["state"], c["hpas"], c["modes"]) for c in document["items"]] == [
        ("east", "up", 1, {"enforce": 1})
    ]
    assert run("get", "clusters", "mars").exit_code == 4


async def test_what_the_log_says_since_the_rows_counts(fleet: Fleet) -> None:
    fleet.checkpoint()
    fleet.append(AutoscalerSet(hpa=hpa(maxReplicas=9), author="anna", reason="PAY-1"))
    fleet.append(Command(command="pause", name="checkout", author="bob", reason="INC-42"))
    view = (await read_state(fleet.past())).hpas[CHECKOUT]
    assert (view.spec["maxReplicas"], view.author) == (9, "anna")
    assert "by bob" in view.paused
    assert view.paused.endswith("INC-42")
    fleet.append(AutoscalerDeleted(name="checkout"))
    assert CHECKOUT not in (await read_state(fleet.past())).hpas


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        (Command(command="pause", name="checkout", author="bob", reason="INC-42"), "paused by bob"),
        (
            Command(command="pause", name="checkout", author="bob", until=START_MS + 3_600_000),
            "paused by bob until 15:00",
        ),
        (Command(command="pause", name="", until=START_MS + 86_400_000), "namespace paused until 11-22 14:00"),
        (Command(command="pause", name="checkout", pause_kind="scaleDown", author="bob"), "scaleDown paused by bob"),
        (
            Command(command="override", name="checkout", replicas=7, until=START_MS + 3_600_000),
            "override to 7 until 15:00",
        ),
    ],
)
def test_a_list_shows_whose_pause_it_is_and_until_when(run: Cli, fleet: Fleet, command: Command, shown: str) -> None:
    fleet.append(command)
    fleet.checkpoint()
    assert run("get", "hpa", "-A").stdout.splitlines()[1].endswith(f"  {shown}")


async def test_a_resume_of_one_direction_leaves_the_pause_of_the_other(fleet: Fleet) -> None:
    fleet.checkpoint()
    for kind in ("scaleUp", "scaleDown"):
        fleet.append(Command(command="pause", name="checkout", pause_kind=kind))
    fleet.append(Command(command="resume", name="checkout", pause_kind="scaleUp"))
    assert (await read_state(fleet.past())).hpas[CHECKOUT].paused.startswith("scaleDown")
    fleet.append(Command(command="resume", name="checkout"))
    assert not (await read_state(fleet.past())).hpas[CHECKOUT].paused


async def test_what_a_full_list_since_the_rows_no_longer_names_is_gone(fleet: Fleet) -> None:
    fleet.checkpoint()
    fleet.append(AutoscalerSet(hpa=hpa("central"), origin="central"))
    lists = [AutoscalerList(list_id="b", hpas=[hpa(name)], chunk=n, chunks=2) for n, name in enumerate(("api", "web"))]
    fleet.append(lists[0])
    assert CHECKOUT in (await read_state(fleet.past())).hpas
    fleet.append(lists[1])
    names = {str(hpa) for hpa in (await read_state(fleet.past())).hpas}
    assert names == {"east/shop/api", "east/shop/central", "east/shop/web"}
    fleet.checkpoint()
    assert {str(hpa) for hpa in (await read_state(fleet.past())).hpas} == names


async def test_an_adopted_hpa_stays_when_the_native_one_goes(fleet: Fleet) -> None:
    fleet.append(AutoscalerSet(hpa=hpa(), origin="central", mode="enforce"))
    fleet.append(AutoscalerDeleted(name="checkout", origin="cluster"))
    assert (await read_state(fleet.past())).hpas[CHECKOUT].origin == "central"
    fleet.append(AutoscalerDeleted(name="checkout", origin="central"))
    assert CHECKOUT not in (await read_state(fleet.past())).hpas


async def test_a_pause_ends_by_itself(fleet: Fleet) -> None:
    fleet.append(Command(command="pause", name="checkout", until=fleet.now_ms + 5_000))
    assert (await read_state(fleet.past())).hpas[CHECKOUT].paused
    fleet.append(after_ms=6_000)
    assert not (await read_state(fleet.past())).hpas[CHECKOUT].paused


def test_a_paused_hpa_shows_in_mode_and_problems(run: Cli, fleet: Fleet) -> None:
    assert run("get", "hpa", "-A", "--problem").stdout == ""
    fleet.append(Command(command="pause", name="checkout", reason="INC-42"))
    assert "enforce (paused)" in run("get", "hpa", "-A", "--problem").stdout


def states_listed(run: Cli) -> set[str]:
    """The states for which `decisions --state` lists the newest evaluation."""
    all_ = map(orjson.loads, run("decisions", "-A", "-o", "jsonl").stdout.splitlines())
    newest = [each["id"] for each in all_ if each.get("kind", "evaluation") == "evaluation"][-1]
    found = {each: run("decisions", "-A", "--state", each, "-o", "jsonl").stdout for each in STATES}
    return {each for each, lines in found.items() if newest in lines}


@pytest.mark.parametrize(
    ("usage_milli", "wants", "status"),
    [
        pytest.param(400, "7", "saturated: at max 5, asks for 7", id="saturated"),
        pytest.param(300, "5", "ok (at max 5, has enough)", id="within tolerance"),
        pytest.param(100, "2", "ok (at max 5, has enough)", id="asks for fewer, and the window holds"),
    ],
)
def test_an_hpa_at_max_is_saturated_only_if_its_metrics_ask_for_more(
    run: Cli, fleet: Fleet, usage_milli: int, wants: str, status: str
) -> None:
    fleet.append(AutoscalerSet(hpa=hpa(maxReplicas=5)), after_ms=16_000)
    fleet.observe(5, 600)
    fleet.append(after_ms=16_000)
    fleet.observe(5, usage_milli)
    is_saturated = "saturated" in status
    row = run("get", "hpa", "-A", "--no-headers").stdout.split()
    assert row[-4] == wants, row
    assert row[-1] == ("saturated" if is_saturated else "-")
    shown = run("get", "hpa", "-A", "--problem")
    assert ("saturated: at max 5, asks for 7" in shown.stdout) == is_saturated
    assert ("No HPA has a problem." in shown.stderr) != is_saturated
    made = run("status", "-A")
    assert status in made.stdout
    assert made.exit_code == is_saturated
    (item,) = fits("HpaList", run("get", "hpa", "-A", "-o", "json").stdout)["items"]
    assert (item["wants"], item["saturated"]) == (int(wants), is_saturated)
    assert states_listed(run) == {"saturated" if is_saturated else "content"}


def test_what_an_hpa_without_stabilization_windows_wants_is_known(run: Cli, fleet: Fleet) -> None:
    behavior = {name: {"stabilizationWindowSeconds": 0} for name in ("scaleUp", "scaleDown")}
    fleet.append(AutoscalerSet(hpa=hpa(maxReplicas=5, behavior=behavior)), after_ms=16_000)
    for _ in range(2):
        fleet.observe(5, 400)
        fleet.append(after_ms=16_000)
    row = run("get", "hpa", "-A", "--no-headers").stdout.split()
    assert (row[-4], row[-1]) == ("7", "saturated")


def test_what_an_hpa_wants_is_a_question_mark_while_its_metrics_give_no_answer(run: Cli, fleet: Fleet) -> None:
    fleet.append(after_ms=16_000)
    fleet.observe(5, 100, error="no answer")
    assert " ?      enforce" in run("get", "hpa", "-A").stdout


def test_pods_without_metrics_that_hold_an_overloaded_hpa_are_a_problem(run: Cli, fleet: Fleet) -> None:
    finished = [structs.replace(fleet._pod(number), name=f"migrate-{number}", phase="Succeeded") for number in range(6)]
    fleet.append(after_ms=16_000)
    fleet.observe(2, 820, unmeasured=finished)
    assert "blocked: cpu at 273% of its target changes nothing, because of 6 pods without metrics" in (
        run("get", "hpa", "-A", "--problem").stdout
    )
    assert run("get", "hpa", "-A").stdout.splitlines()[1].endswith("  blocked")
    assert run("status", "-A").exit_code == 1
    assert states_listed(run) == {"blocked"}


@pytest.mark.parametrize(
    ("usage_milli", "direction", "exit_code"), [(900, "scale-up", 1), (60, "scale-down", 0), (300, "", 0)]
)
def test_a_direction_that_the_spec_disables_is_named(
    run: Cli, fleet: Fleet, usage_milli: int, direction: str, exit_code: int
) -> None:
    behavior = {name: {"selectPolicy": "Disabled"} for name in ("scaleUp", "scaleDown")}
    fleet.append(AutoscalerSet(hpa=hpa(behavior=behavior)), after_ms=16_000)
    fleet.observe(5, usage_milli)
    found = run("get", "hpa", "-A", "--problem").stdout
    field = {"scale-up": "scaleUp", "scale-down": "scaleDown"}.get(direction, "")
    text = f"{direction} is disabled by the spec (behavior.{field}.selectPolicy: Disabled)"
    assert (text in found) == bool(direction), found
    assert "disabled" in found or not direction
    assert run("status", "-A").exit_code == exit_code
    assert states_listed(run) == ({"disabled"} if direction else set())


def test_an_hpa_that_goes_up_and_down_is_flapping_and_one_that_only_grows_is_not(run: Cli, fleet: Fleet) -> None:
    any_step = {"selectPolicy": "Max", "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}]}
    at_once = any_step | {"stabilizationWindowSeconds": 0}
    replicas, behavior = 3, {"scaleUp": at_once, "scaleDown": at_once}
    fleet.append(AutoscalerSet(hpa=hpa(behavior=behavior)), after_ms=16_000)
    for number in range(KEPT_MOVES + 1):
        fleet.append(after_ms=16_000)
        fleet.observe(replicas, 600 if number % 2 else 20)
        if (wanted := fleet.decisions()[-1].decision.wants) is not None:
            fleet.applied(wanted)
            replicas = wanted
    found = run("get", "hpa", "-A", "--problem").stdout
    assert re.search(r"flapping: 8 changes in \d+ min, 7 of them take back the one before", found), found
    fleet.append(after_ms=16_000)
    fleet.observe(replicas, 300)
    assert states_listed(run) == {"flapping"}


def test_problem_lists_each_problem_with_its_cause(run: Cli, fleet: Fleet) -> None:
    fleet.append(after_ms=16_000)
    fleet.observe(5, 100, error="the server is currently unable to handle the request (get pods.metrics.k8s.io)")
    text = run("get", "hpa", "-A", "--problem").stdout
    assert text.splitlines()[1].endswith(
        "no metrics: the server is currently unable to handle the request (get pods.metrics.k8s.io)"
    ), text
    assert run("get", "hpa", "-A").stdout.splitlines()[1].endswith("  no metrics")
    document = fits("HpaList", run("get", "hpa", "-A", "-o", "json").stdout)
    assert document["items"][0]["problems"][0].startswith("no metrics: the server")


def test_hpas_of_a_cluster_with_the_same_cause_share_a_line(run: Cli, fleet: Fleet) -> None:
    names = ["checkout", *(f"web-{number}" for number in range(40))]
    fleet.append(AutoscalerList(list_id="many", hpas=[hpa(name) for name in names], session="s"))
    fleet.append(*[Command(command="mode", name=name, mode="off", author="anna") for name in names])
    fleet.append(Command(command="pause", name="checkout", author="anna", reason="INC-42"))
    status = run("status", "-A")
    assert status.exit_code == 1
    assert "east (41 HPAs)" in status.stdout, status.stdout
    assert "mode off: nothing is decided" in status.stdout
    assert len(status.stdout.splitlines()) == 2
    problems = run("get", "hpa", "-A", "--problem").stdout.splitlines()
    assert [line for line in problems if "mode off" in line] == ["east (41 HPAs): mode off: nothing is decided"]
    assert [line.split()[1] for line in problems if "INC-42" in line] == ["checkout"]
    assert len(run("get", "hpa", "-A", "--problem", "-o", "wide").stdout.splitlines()) == 42


@pytest.mark.parametrize("width", [80, 90, 110, 200])
def test_the_table_fits_the_terminal_and_keeps_what_tells_the_state(
    run: Cli, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    lines = run("get", "hpa", "-A").stdout.splitlines()
    assert max(map(len, lines)) <= width
    assert {"NAMESPACE", "NAME", "CLUSTER", "TARGETS", "REPLICAS", "MODE", "PROBLEM"} <= set(lines[0].split())
    assert ("REFERENCE" in lines[0]) == (width > 110)
    assert "REFERENCE" in run("get", "hpa", "-A", "-o", "wide").stdout


@pytest.mark.parametrize("width", [40, 60])
@pytest.mark.parametrize(
    "words",
    [
        "get hpa -A",
        "get hpa -A -o wide",
        "get clusters",
        "describe east/shop/checkout",
        "explain east/shop/checkout",
        "decisions -A",
        "decisions -A --changes -o wide",
        "decisions -A --follow",
        "history east/shop/checkout",
        "config view",
        "audit verify",
    ],
)
def test_a_narrow_terminal_gets_short_lines_with_every_word_of_the_pipe(
    run: Cli, monkeypatch: pytest.MonkeyPatch, words: str, width: int
) -> None:
    piped = run(*words.split()).stdout
    monkeypatch.setattr("fleethpa.frame.session.Session.folds_at", width)
    lines = run(*words.split()).stdout.splitlines()
    long = [line for line in lines if len(line) > width]
    assert not [line for line in long if len(line.split()) > 1 and "fleethpa " not in line]
    assert Counter(" ".join(lines).split()) == Counter(piped.split())


def test_only_a_terminal_folds_lines() -> None:
    assert Session({}).folds_at is None


def test_lines_of_a_watch_stay_under_each_other() -> None:
    columns = [Column[tuple[str, str]]("NAME", lambda each: each[0]), Column("STATE", lambda each: each[1])]
    widths = Widths()
    first = table([("a", "up"), ("longer-name", "up")], columns, widths=widths)
    later = table([("b", "down")], columns, headers=False, widths=widths)
    assert first[0].index("STATE") == later[0].index("down")


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(["hpas", "-A"], id="the plural"),
        pytest.param(["horizontalpodautoscalers", "-A"], id="the whole word"),
        pytest.param(["HPA", "-A"], id="upper case"),
        pytest.param(["hpa/checkout", "-n", "shop"], id="type and name with a slash"),
        pytest.param(["hpa/east/shop/checkout"], id="as -o name prints it"),
        pytest.param(["hpa", "hpa/east/shop/checkout"], id="as -o name prints it, behind the type"),
    ],
)
def test_get_takes_types_as_kubectl_writes_them(run: Cli, words: list[str]) -> None:
    made = run("get", *words, "-o", "name")
    assert (made.exit_code, made.stdout) == (0, "hpa/east/shop/checkout\n"), made.output


@pytest.mark.parametrize(
    ("type_", "stated"),
    [
        ("capacity", "Next: ./fleethpa get capacitygroups"),
        ("pods", "Next: kubectl --context CLUSTER get pods"),
        ("hpaa", "Did you mean `hpa`?"),
        ("clustres", "Next: ./fleethpa get clusters"),
        ("decisions", "Next: ./fleethpa decisions -A"),
    ],
)
def test_get_of_another_type_says_what_lists_it(
    run: Cli, monkeypatch: pytest.MonkeyPatch, type_: str, stated: str
) -> None:
    monkeypatch.setattr("fleethpa.frame.errors.program", lambda: "./fleethpa")
    made = run("get", type_, "-A")
    assert (made.exit_code, made.stdout) == (2, "")
    assert stated in made.stderr


# --- describe ---------------------------------------------------------------------------------------------------------


def test_describe_is_kubectls_page_and_ours(run: Cli) -> None:
    text = run("describe", "hpa", "east/shop/checkout").stdout
    head, _, tail = text.partition("\n\n")
    assert head.startswith("Name:")
    assert "Conditions:" in head
    assert re.search(r"(?m)^  TIME +REPLICAS +ID +WHY$", tail)
    for word in (
        "Cluster:",
        "Mode:",
        "Paused:",
        "Inputs:",
        "Last decisions:",
        "3 → 5",
        "Next: fleethpa explain east/shop/checkout",
    ):
        assert word in tail


@pytest.mark.parametrize(
    ("body", "stated"),
    [
        pytest.param(Command(command="mode", name="checkout", mode="off"), "is off now", id="off"),
        pytest.param(AutoscalerDeleted(name="checkout", session="s"), "has been deleted", id="deleted"),
    ],
)
def test_the_last_decision_is_not_taken_for_the_present(
    run: Cli, fleet: Fleet, monkeypatch: pytest.MonkeyPatch, body: Body, stated: str
) -> None:
    monkeypatch.setattr(FleetPast, "now_ms", lambda _: fleet.now_ms)
    assert stated not in run("explain", "east/shop/checkout").stderr
    fleet.append(body)
    assert f"warning: east/shop/checkout {stated}" in run("explain", "east/shop/checkout").stderr
    assert stated not in run("explain", "east/shop/checkout", "--at", "2026-11-21T14:00:01Z").stderr


def test_a_hint_to_which_no_option_is_added_imports_no_other_verb(run: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    imported: list[str] = []
    import_module = importlib.import_module

    def noting(name: str) -> Any:
        imported.append(name)
        return import_module(name)

    monkeypatch.setattr(importlib, "import_module", noting)
    assert "Recompute: fleethpa replay 0-" in run("explain", "east/shop/checkout").stdout
    assert [name for name in imported if name.startswith("fleethpa.cli.")] == ["fleethpa.cli.explain"]


# --- decisions --------------------------------------------------------------------------------------------------------


def test_decisions_are_listed_oldest_first_and_fit_the_schema(run: Cli, fleet: Fleet) -> None:
    document = fits("DecisionList", run("decisions", "-A", "-o", "json").stdout)
    seqs = [item["seq"] for item in document["items"]]
    assert seqs == sorted(seqs)
    assert len(seqs) == len(fleet.decisions())
    assert {"evaluation", "completion"} <= {item["record"] for item in document["items"]}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        pytest.param(["--last", "1"], ["completion"], id="the newest"),
        pytest.param(["--limited-by", "MaxReplicas"], [], id="by a limit that did not bind"),
        pytest.param(["--reason", "cpu*above target"], ["evaluation", "completion"], id="by reason"),
        pytest.param(["--since", "1s"], [], id="none is that young"),
    ],
)
def test_decision_filters(run: Cli, arguments: list[str], expected: list[str]) -> None:
    lines = run("decisions", "-A", "-o", "jsonl", *arguments).stdout.splitlines()
    assert [orjson.loads(line)["record"] for line in lines][-len(expected) :] == expected
    assert expected or not lines


def test_decisions_are_selected_by_the_state_that_they_found(fleet: Fleet, run: Cli) -> None:
    evaluated = next(each for each in fleet.decisions() if each.decision.kind == "evaluation")
    recorded = structs.replace(evaluated, decision=structs.replace(evaluated.decision, states=["blocked", "flapping"]))
    found = {state for state in STATES if Filter(Selection(), state=state).matches(recorded)}
    assert found == {"blocked", "flapping"}
    refused = run("decisions", "-A", "--state", "hungry")
    assert refused.exit_code == 2
    assert "is not one of 'saturated', 'content', 'blocked', 'disabled', 'flapping'" in refused.stderr


def test_a_change_has_one_row_with_the_outcome_of_its_write(run: Cli) -> None:
    [row] = table_rows(run("decisions", "-A", "--changes", "-o", "wide").stdout)
    assert (row["FROM"], row["TO"], row["APPLIED"]) == ("3", "5", "applied")
    [item] = fits("DecisionList", run("decisions", "-A", "--changes", "-o", "json").stdout)["items"]
    assert (item["record"], item["outcome"]["result"]) == ("evaluation", "applied")
    followed = run("decisions", "-A", "--changes", "--follow", "-o", "jsonl").stdout.splitlines()
    assert [orjson.loads(line)["record"] for line in followed] == ["evaluation", "completion"]


def test_the_row_of_a_change_says_why_its_write_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet()
    fleet.settle(replicas=3, usage_milli=500)
    [wanted] = [each.decision for each in fleet.decisions() if each.decision.wants is not None]
    fleet.append(Outcome(decision=wanted.id, name=wanted.name, uid=wanted.uid, result="failed", error="admission: no"))
    [row] = table_rows(Cli(monkeypatch, fleet)("decisions", "-A", "--changes", "-o", "wide").stdout)
    assert row["APPLIED"] == "failed"
    assert row["WHY"].startswith("cpu above target (100%/60%); ")
    assert row["WHY"].endswith("admission: no")


def test_the_newest_changes_are_counted_by_changes(run: Cli, fleet: Fleet) -> None:
    fleet.append(after_ms=15_000)
    fleet.observe(5, 900)
    fleet.applied(8)
    lines = run("decisions", "-A", "--changes", "--last", "2", "-o", "jsonl").stdout.splitlines()
    assert [orjson.loads(line)["record"] for line in lines] == ["evaluation", "evaluation"]


def test_following_prints_each_decision_once(run: Cli, fleet: Fleet) -> None:
    lines = run("decisions", "-A", "--follow", "-o", "jsonl").stdout.splitlines()
    assert [orjson.loads(line)["id"] for line in lines] == [r.decision.id for r in fleet.decisions()]
    refused = run("decisions", "-A", "--follow", "-o", "json")
    assert refused.exit_code == 2
    assert "use -o jsonl" in refused.stderr


def test_a_wide_list_names_the_newest_decision_of_each_hpa_so_that_it_can_be_explained(fleet: Fleet, run: Cli) -> None:
    [row] = table_rows(run("get", "hpa", "-A", "-o", "wide").stdout)
    assert (
        run("explain", row["DECISION"], "-o", "json").stdout
        == run("explain", "checkout", "-n", "shop", "-o", "json").stdout
    )


def test_json_has_the_decision_that_the_wide_list_has(fleet: Fleet, run: Cli) -> None:
    def named() -> tuple[str, str]:
        (item,) = fits("HpaList", run("get", "hpa", "-A", "-o", "json").stdout)["items"]
        (row,) = table_rows(run("get", "hpa", "-A", "-o", "wide").stdout)
        return item["lastDecision"], row["DECISION"]

    assert fleet.decisions()[-1].decision.id.endswith("-c")  # the end of its write
    assert named() == ("0-2-uid-checkout", short_id("0-2-uid-checkout"))
    recorded = fleet.values[:]
    fleet.append(after_ms=16_000)
    fleet.observe(5, 310)
    newest = fleet.decisions()[-1].decision.id
    assert named() == (newest, short_id(newest))
    fleet.values = recorded  # the log holds what it follows from, and no decider has recorded it
    assert named() == ("0-2-uid-checkout", short_id("0-2-uid-checkout"))
    fleet.append(Command(command="mode", name="checkout", mode="off", author="anna"))
    assert named() == ("", "-")


def test_a_watched_wide_list_prints_no_line_again_that_did_not_change(
    run: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleethpa.cli.get.WATCH_EVERY_S", 0.01)
    watched = run("get", "hpa", "-A", "-o", "wide", "--watch", "--timeout", "200ms").stdout
    assert watched == run("get", "hpa", "-A", "-o", "wide").stdout


async def test_another_decision_alone_is_no_change_of_a_row(fleet: Fleet) -> None:
    view = (await read_state(fleet.past())).hpas[CHECKOUT]
    first = fleet.decisions()[0]
    before, after, other = (
        visible(replace(view, decision=structs.replace(first, decision=structs.replace(first.decision, **changed))))
        for changed in ({}, {"id": "0-9-uid-checkout"}, {"selected_metric": "memory"})
    )
    assert before == after
    assert before != other


@pytest.mark.parametrize("output", ["table", "wide"])
def test_following_prints_a_header_in_every_table(run: Cli, output: str) -> None:
    reported = run("decisions", "-A", "--follow", "-o", output).stdout.splitlines()
    bare = run("decisions", "-A", "--follow", "-o", output, "--no-headers").stdout.splitlines()
    assert (reported[0].split()[0], reported[0].split()[-1]) == ("TIME", "WHY")
    assert reported[1:] == bare


@pytest.mark.parametrize("verb", ["explain", "what-if"])
def test_explain_and_what_if_take_short_ids(run: Cli, fleet: Fleet, verb: str) -> None:
    evaluation = next(r.decision.id for r in fleet.decisions() if r.decision.kind == "evaluation")
    more = ["--set", "maxReplicas=9"] if verb == "what-if" else []
    for asked in (short_id(evaluation), evaluation[:6], f"decision/{evaluation}"):
        made = run(verb, asked, *more)
        assert evaluation in made.output, made.output


def test_lists_print_short_ids_and_json_whole_ones(run: Cli, fleet: Fleet) -> None:
    ids = [r.decision.id for r in fleet.decisions()]
    shown = run("decisions", "-A").stdout
    assert all(short_id(id_) in shown for id_ in ids)
    assert all(id_ in run("decisions", "-A", "-o", "json").stdout for id_ in ids)


ONE, OTHER = "1-82-763c32fd-de02-44c1", "1-82-763c32fd-ffff-44c1"


@pytest.mark.parametrize(
    ("asked", "known", "found"),
    [
        pytest.param("1-82-763c32fd", [ONE, f"{ONE}-c"], ONE, id="the evaluation rather than the end of its write"),
        pytest.param("1-82-763c32fd-c", [ONE, f"{ONE}-c"], f"{ONE}-c", id="the end of a write"),
        pytest.param("1-82-763c32fd", [f"{ONE}-c"], f"{ONE}-c", id="the end of a write, where nothing else is there"),
        pytest.param(ONE, [ONE, f"{ONE}1"], ONE, id="a whole ID that another begins with"),
        pytest.param("1-82-7", [ONE, "2-82-7aaa", "1-8-7aaa"], ONE, id="another place"),
        pytest.param("1-82-8", [ONE], None, id="none"),
    ],
)
def test_a_short_id_names_one_decision(asked: str, known: list[str], found: str | None) -> None:
    read = asked_id(asked)
    assert read is not None
    assert only(read, known) == found


def test_an_ambiguous_id_lists_its_candidates() -> None:
    read = asked_id("1-82-763c")
    assert read is not None
    with pytest.raises(CommandError) as raised:
        only(read, [ONE, OTHER])
    assert raised.value.code == 2
    assert raised.value.cause.splitlines() == ["1-82-763c32fd-d", "1-82-763c32fd-f"]


@given(st.sets(st.from_regex(r"[01]-[0-3]-[ab]{1,12}(-c)?", fullmatch=True), min_size=1))
def test_short_ids_of_a_list_name_their_decisions(ids: set[str]) -> None:
    for id_, short in short_ids(ids).items():
        read = asked_id(short)
        assert read is not None
        assert only(read, ids) == id_


# --- explain ----------------------------------------------------------------------------------------------------------


def test_explain_shows_every_number_of_a_change(run: Cli) -> None:
    text = run("explain", "east/shop/checkout").stdout
    for part in (
        "Goes up from 3 to 5: cpu 100% of 60% asks for 5",
        "applied in",
        "scale.resourceVersion 8",
        "100%/60% = 1.667",
        "ceil(3 × 1.667 = 5.00)",  # noqa: RUF001
        "outside tolerance",
        "◀ winner",
        "stabilization",
        "Inputs   log 0@",
        "Would change the answer",
        "cpu ≤",
    ):
        assert part in text, text


def test_explain_json_is_the_record(run: Cli, fleet: Fleet) -> None:
    document = fits("Decision", run("explain", "east/shop/checkout", "-o", "json").stdout)
    assert document["id"] == [r.decision.id for r in fleet.decisions() if r.decision.kind == "evaluation"][-1]


def test_explain_finds_by_id_by_time_and_by_change(run: Cli, fleet: Fleet) -> None:
    first = fleet.decisions()[0].decision
    fleet.append(after_ms=16_000)
    fleet.observe(5, 310)
    assert "Stays at 5: within tolerance" in run("explain", "east/shop/checkout").stdout
    assert "Goes up from 3 to 5" in run("explain", "east/shop/checkout", "--change").stdout
    assert first.id in run("explain", first.id).stdout
    assert first.id in run("explain", "checkout", "-n", "shop", "--at", first.time).stdout
    assert run("explain", "east/shop/checkout", "--at", "2001-01-01T00:00:00Z").exit_code == 4
    assert run("explain", "east/shop/checkout", "--at", "yesterday").exit_code == 2
    assert run("explain", "0-99-nobody").exit_code == 4


def test_explain_of_what_did_not_change_says_what_held_it(fleet: Fleet) -> None:
    fleet.append(after_ms=16_000)
    fleet.observe(5, 100)
    decision = [r.decision for r in fleet.decisions() if r.decision.kind == "evaluation"][-1]
    text = "\n".join(explanation_lines(explained(decision), now_ms=fleet.now_ms))
    verdict = r"Stays at 5: held by scale-down stabilization until \d\d:\d\d \(in \w+\); cpu 20% of 60% asks for 2"
    assert re.search(verdict, text), text
    assert "held by the recommendation 5 of" in text


def test_explain_of_a_missing_metric_says_so(fleet: Fleet) -> None:
    fleet.append(after_ms=16_000)
    fleet.observe(5, 100, error="the server is currently unable to handle the request")
    decision = fleet.decisions()[-1].decision
    text = "\n".join(explanation_lines(explained(decision), now_ms=fleet.now_ms))
    assert "Stays at 5: cpu: the server is currently unable to handle the request" in text
    assert "FailedGetResourceMetric" in text


@pytest.mark.parametrize(
    ("kind", "began_s", "verdict"),
    [
        pytest.param(
            "apiServerAway", -21, "no metric: cluster east unreachable for 21s; replicas held at 5", id="away"
        ),
        pytest.param(
            "observerSilent", -40, "no metric: cluster east not observed for 40s; replicas held at 5", id="not observed"
        ),
        pytest.param("apiServerAway", 5, "Stays at 5: cpu: connection refused", id="away only later"),
        pytest.param("reconcilerSilent", -40, "Stays at 5: cpu: connection refused", id="something else"),
    ],
)
def test_explain_of_a_cluster_that_gives_nothing_begins_with_that_and_not_with_the_error_of_a_client(
    fleet: Fleet, kind: Literal["apiServerAway", "observerSilent", "reconcilerSilent"], began_s: int, verdict: str
) -> None:
    fleet.append(after_ms=16_000)
    fleet.observe(5, 100, error="connection refused")
    decision = fleet.decisions()[-1].decision
    trouble = ClusterTrouble(kind, parse_time_ms(decision.time) + began_s * 1000, "a text", "a command")
    lines = explanation_lines(explained(decision, troubles=[trouble]), now_ms=fleet.now_ms)
    assert [line for line in lines if line.startswith("Result")] == [f"Result     {verdict}"]
    # The error itself is in the row of the metric.
    assert any(line.startswith("cpu ") and "connection refused" in line for line in lines)


def test_explain_of_a_scale_that_is_too_old_says_at_how_many_replicas_the_status_holds(fleet: Fleet) -> None:
    fleet.append(after_ms=16_000)
    fleet.observe(5, 100, error="connection refused")
    decision = structs.replace(fleet.decisions()[-1].decision, reason="FailedGetScale", observed={}, metrics=[])
    trouble = ClusterTrouble("apiServerAway", parse_time_ms(decision.time) - 45_000, "a text", "a command")
    found = explained(decision, troubles=[trouble])
    assert found.verdict == "no metric: cluster east unreachable for 45s; replicas held at 5"


def test_colours_are_in_explain_only_when_asked_for(run: Cli) -> None:
    assert "\x1b[" not in run("explain", "east/shop/checkout").stdout
    assert "\x1b[32m" in run("explain", "east/shop/checkout", "--color", "always").stdout


# --- status -----------------------------------------------------------------------------------------------------------


def test_what_is_not_watched_any_more_is_named_by_each_verb_and_no_hpa_is_said_to_have_no_problem(
    run: Cli, fleet: Fleet
) -> None:
    fleet.append(after_ms=16_000)
    fleet.observe(5, 310)
    assert "watching" not in run("status", "-A").stderr
    since = fleet.now_ms - 7_000
    troubles = [
        ObserverTrouble(part=part, reason="failing", since=since, error="EOF") for part in ("autoscalers", "pods")
    ]
    fleet.append(ClusterReport(cluster="east", session="s", instance="o", troubles=troubles), key=WHOLE_PARTITION_KEY)
    for arguments in (["status", "-A"], ["get", "hpa", "-A"], ["get", "hpa", "-A", "--problem"]):
        stated = run(*arguments).stderr
        assert re.match(
            r"warning: cluster east: watching autoscalers fails since .* \(7s ago\): EOF \(and 1 more\); ", stated
        )
        assert stated.count("watching autoscalers") == 1, stated
    known = run("status", "-A")
    assert (known.stdout, known.exit_code) == ("east/shop/checkout  ok when last known\n", 5)
    shown = run("get", "hpa", "-A", "--problem").stderr
    assert "No HPA had a problem when it was last known." in shown
    assert "watching pods fails" in shown


def test_status_exits_1_until_replicas_are_as_desired(run: Cli, fleet: Fleet) -> None:
    result = run("status", "east/shop/checkout")
    assert (result.exit_code, result.stdout) == (1, "east/shop/checkout  3 replicas, 5 desired\n")
    fleet.append(after_ms=16_000)
    fleet.observe(5, 310)
    settled = run("status", "east/shop/checkout", "--watch", "--timeout", "5s")
    assert (settled.exit_code, settled.stdout) == (0, "east/shop/checkout  ok\n")


def test_status_wide_names_the_newest_decision_that_was_recorded_of_each_hpa(run: Cli, fleet: Fleet) -> None:
    assert run("status", "east/shop/checkout", "-o", "wide").stdout == (
        "east/shop/checkout  0-2-uid-chec  3 replicas, 5 desired\n"
    )
    recorded = fleet.values[:]
    fleet.append(after_ms=16_000)
    fleet.observe(5, 310)
    # The log holds what it will be decided from; no decider has recorded the decision.
    fleet.values = recorded
    assert run("status", "-A", "-o", "wide").stdout == "east/shop/checkout  0-2-uid-chec  ok\n"


def test_status_wide_has_a_line_for_each_hpa_and_no_id_where_there_is_no_decision(run: Cli, fleet: Fleet) -> None:
    names = ["checkout", "web"]
    fleet.append(AutoscalerList(list_id="many", hpas=[hpa(name) for name in names], session="s"))
    fleet.append(*[Command(command="mode", name=name, mode="off", author="anna") for name in names])
    assert run("status", "-A").stdout.split()[:3] == ["east", "(2", "HPAs)"]
    assert [line.split()[:2] for line in run("status", "-A", "-o", "wide").stdout.splitlines()] == [
        ["east/shop/checkout", "-"],
        ["east/shop/web", "-"],
    ]


def test_a_new_decision_alone_prints_no_line_under_watch() -> None:
    before = [("east/shop/web", "0-2-uid-web", "3 replicas, 5 desired")]
    after = [("east/shop/web", "0-5-uid-web", "3 replicas, 5 desired"), ("east/shop/api", "0-5-uid-api", "ok")]
    assert changed_lines(before, []) == ["east/shop/web  0-2-uid-web  3 replicas, 5 desired"]
    assert changed_lines(after, before) == ["east/shop/api  0-5-uid-api  ok"]


def test_status_of_nothing_is_no_success_and_says_where_there_is_something(run: Cli) -> None:
    result = run("status")
    assert (result.exit_code, result.stdout) == (4, "")
    assert "No HPAs found in namespace default; there are 1 elsewhere. Next: fleethpa status -A" in result.stderr


def test_status_watch_that_does_not_settle_exits_124(run: Cli) -> None:
    assert run("status", "east/shop/checkout", "--watch", "--timeout", "200ms").exit_code == 124


# --- completion -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "typed", "expected"),
    [
        pytest.param("fleethpa explain", "ea", ["east/shop/checkout"], id="an HPA's name"),
        pytest.param("fleethpa get hpa", "we", [], id="nothing that begins so"),
        pytest.param("fleethpa", "expl", ["explain"], id="a verb"),
        pytest.param("fleethpa mode", "sh", ["shadow"], id="a choice"),
    ],
)
def test_completion(run: Cli, words: str, typed: str, expected: list[str]) -> None:
    from click.shell_completion import ShellComplete

    from fleethpa.cli.main import cli

    complete = ShellComplete(cli, {}, "fleethpa", "_FLEETHPA_COMPLETE")
    assert [item.value for item in complete.get_completions(words.split()[1:], typed)] == expected


# --- the state now and then -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("checkpoint_at", [None, 0, 4, 9], ids=["never", "at first", "amid", "late"])
async def test_the_state_now_is_the_state_at_this_moment(checkpoint_at: int | None) -> None:
    """Whatever was stored when, `get` and `get --at` show the same: both are the fold of the log."""
    fleet, key = Fleet(), "east/shop"
    steps: list[Any] = [
        lambda: fleet.settle(replicas=3, usage_milli=500),
        lambda: fleet.applied(5),
        lambda: fleet.observe(5, 300),
        lambda: fleet.append(Command(command="pause", name="checkout", author="anna", until=fleet.now_ms + 500)),
        lambda: fleet.observe(5, 700),
        lambda: fleet.append(Command(command="mode", name="checkout", mode="shadow"), after_ms=20_000),
        lambda: fleet.observe(5, 900),
        lambda: fleet.append(AutoscalerSet(hpa=hpa("cart"), session="s")),
        lambda: fleet.append(AutoscalerDeleted(name="checkout", session="s"), after_ms=20_000),
        lambda: fleet.append(AutoscalerList(list_id="b", hpas=[hpa("cart", maxReplicas=7)], session="s")),
    ]
    for number, step in enumerate(steps):
        step()
        if number == checkpoint_at:
            fleet.checkpoint()
        now, then = await read_state(fleet.past()), await read_state(fleet.past(fleet.now_ms))
        assert now.hpas == then.hpas, key
        assert now.clusters == then.clusters
        assert now.forgotten == then.forgotten


async def test_a_shadow_hpa_shows_what_fleethpa_would_do_not_the_native_status(fleet: Fleet) -> None:
    fleet.append(Command(command="mode", name="checkout", mode="shadow"))
    fleet.append(after_ms=20_000)
    fleet.observe(5, 450)
    fleet.append(after_ms=20_000)
    fleet.observe(5, 450)
    fleet.checkpoint()
    newest = fleet.decisions()[-1].decision
    view = (await read_state(fleet.past())).hpas[CHECKOUT]
    assert (newest.mode, newest.final_desired_replicas) == ("shadow", 8)
    assert (view.mode, view.last_decision, view.status["desiredReplicas"]) == ("shadow", newest.id, 8)


async def test_the_state_of_a_fleet_whose_decider_is_far_behind_is_what_it_decided_last(fleet: Fleet) -> None:
    fleet.checkpoint()
    decided_ms, decided = fleet.now_ms, len(fleet.values)
    for _ in range(5):
        fleet.append(after_ms=60_000)
    past = FleetPast(fleet, live=True)
    past.made = {**past.made, (DECISIONS, 0): past.made[DECISIONS, 0][:decided]}
    state = await read_state(past)
    assert state.clock_ms < decided_ms + 180_000
    assert state.end_ms == fleet.now_ms
    assert (await read_state(FleetPast(fleet))).clock_ms == fleet.now_ms


async def test_nobody_is_silent_in_what_a_decider_that_catches_up_has_not_folded_yet(fleet: Fleet) -> None:
    fleet.append()
    fleet.checkpoint()
    for _ in range(16):
        fleet.append(Heartbeat(session="s", watches=["pods", "autoscalers", "scales"]), after_ms=5_000)
    tick = encode(LogRecord(v=1, entries=[]))
    times_ms = range(fleet.now_ms - 90_000, fleet.now_ms + 1, 1_000)
    caught_up = [archived_record(at, time_ms, b"", (), tick) for at, time_ms in enumerate(times_ms)]
    behind = [archived_record(offset, time_ms, b"", (), value) for offset, time_ms, value in fleet.log]
    made = {(LOG, 0): behind, (LOG, 1): caught_up, (DECISIONS, 0): []}
    past = MemoryPast(made, dict(fleet.rows), partitions=2, live=True)
    state = await read_state(past)
    assert "observerSilent" not in [each.kind for each in state.clusters["east"].troubles]
    assert state.clock_ms == fleet.now_ms


def test_following_says_which_namespace_is_looked_at(run: Cli) -> None:
    nowhere = run("decisions", "--follow")
    assert "No HPAs found in namespace default; there are 1 elsewhere" in nowhere.stderr
    assert "waiting for one to appear" in nowhere.stderr
    assert "following 1 HPA of namespace shop" in run("decisions", "--follow", "-n", "shop").stderr
    assert "following 1 HPA of any namespace" in run("decisions", "-A", "--follow").stderr


@pytest.mark.parametrize("option", [("--last", "3"), ("--until", "1h")], ids=" ".join)
def test_following_has_no_end_to_count_from(run: Cli, option: tuple[str, str]) -> None:
    result = run("decisions", "-A", "--follow", *option)
    assert (result.exit_code, f"--follow and {option[0]} exclude each other" in result.stderr) == (2, True)


def test_a_deleted_hpa_is_found_and_an_unknown_one_is_not_searched_for(run: Cli, fleet: Fleet) -> None:
    fleet.append(AutoscalerDeleted(name="checkout", session="s"), after_ms=20_000)
    fleet.append(after_ms=20_000)
    fleet.checkpoint()
    assert "deleted" in run("history", "checkout", "-n", "shop").stdout
    assert run("explain", "checkout", "-n", "shop").exit_code == 0
    fleet.log[:] = []  # whoever read it would find nothing
    for verb in ("history", "explain", "decisions"):
        result = run(verb, "nosuch", "-n", "shop")
        assert (result.exit_code, "no HPA nosuch" in result.stderr) == (4, True), result.output


def test_a_history_of_no_hpa_says_where_none_is(run: Cli) -> None:
    result = run("history", "hpa", "-n", "elsewhere")
    assert (result.exit_code, "no HPA of namespace elsewhere" in result.stderr) == (4, True), result.output


def test_wide_decisions_show_what_became_of_the_write(run: Cli, fleet: Fleet) -> None:
    wide = run("decisions", "-A", "-o", "wide").stdout
    header = wide.splitlines()[0]
    assert all(name in header for name in ("REASON", "WINNER", "LIMITED BY", "APPLIED", "GENERATION", "BY", "ID"))
    assert "applied" in wide


def test_explain_of_an_hpa_that_was_made_again_does_not_show_its_predecessors_decision(run: Cli, fleet: Fleet) -> None:
    before = fleet.decisions()[0].decision.id
    fleet.append(AutoscalerDeleted(name="checkout"))
    fleet.append(after_ms=16_000)
    made = hpa()
    made["metadata"]["uid"] = "another"
    fleet.append(AutoscalerSet(hpa=made))
    result = run("explain", "east/shop/checkout")
    assert result.exit_code == 4
    assert "checkout has no decision yet" in result.stderr
    assert "It was made again" in result.stderr
    assert f"Next: fleethpa explain {before}" in result.stderr, result.stderr


def test_that_enforcing_is_refused_is_said_once(run: Cli, fleet: Fleet) -> None:
    native = SettingsSet(cluster="*", settings=structs.replace(SETTINGS, native_controller="present"))
    fleet.append(native, key=WHOLE_PARTITION_KEY)
    fleet.append(after_ms=16_000)
    fleet.observe(5, 300)
    text = run("get", "hpa", "-A", "--problem").stdout
    assert text.count("enforcing is refused") == 1, text
    assert "EnforcingRefused" not in text


def test_one_of_two_metrics_without_a_value_is_not_called_no_metrics(run: Cli, fleet: Fleet) -> None:
    queue = {"metric": {"name": "queue"}, "target": {"type": "Value", "value": "10"}}
    metrics = [*hpa()["spec"]["metrics"], {"type": "External", "external": queue}]
    fleet.append(AutoscalerSet(hpa=hpa(metrics=metrics)), after_ms=16_000)
    for _ in range(3):
        fleet.append(after_ms=16_000)
        fleet.observe(5, 60)
    assert "1 of 2 metrics missing" in run("get", "hpa", "-A").stdout, run("get", "hpa", "-A").stdout
    assert "no metrics" not in run("get", "hpa", "-A", "--problem").stdout


def test_that_older_decisions_are_left_out_is_said(run: Cli, fleet: Fleet) -> None:
    assert "older" not in run("decisions", "-A").stderr
    for _ in range(52):
        fleet.append(after_ms=16_000)
        fleet.observe(5, 300)
    made = run("decisions", "-A", "--no-headers")
    assert len(made.stdout.splitlines()) == 50
    assert "The newest 50 are listed; there are older ones. Next: --since 24h, or --last N" in made.stderr
    assert "older" not in run("decisions", "-A", "--last", "3").stderr


@pytest.mark.parametrize(
    ("asked", "lacks"),
    [
        (("-A",), True),
        (("--last", "40", "east/shop/checkout"), True),
        (("--last", "2", "-A"), False),
        (("--since", "30s", "-A"), False),
        (("--since", "1h", "-A"), True),
        (("east/shop/cart",), False),  # made after what has expired
    ],
)
def test_a_list_that_lacks_what_has_expired_says_so(
    monkeypatch: pytest.MonkeyPatch, asked: tuple[str, ...], lacks: bool
) -> None:
    fleet = Fleet()
    fleet.settle()
    for _ in range(12):
        fleet.append(after_ms=15_000)
    cart = hpa("cart")
    cart["metadata"]["creationTimestamp"] = rfc3339(fleet.now_ms)
    fleet.append(AutoscalerSet(session="s", hpa=cart))
    fleet.append(after_ms=15_000)
    fleet.checkpoint()
    assert len(fleet.values) > 8
    monkeypatch.setattr("fleethpa.frame.session.Session.now_ms", lambda _: fleet.now_ms)
    assert "expired" not in Cli(monkeypatch, fleet)("decisions", *asked).stderr, "all of them are kept"
    monkeypatch.setattr(fleet, "past", lambda at_ms=None: FleetPast(fleet, at_ms).without_oldest(5))
    stated = Cli(monkeypatch, fleet)("decisions", *asked).stderr
    assert ("warning: decisions before 2026-11-21 14:0" in stated) == lacks, stated
    assert ("have expired from the topic" in stated) == lacks, stated
