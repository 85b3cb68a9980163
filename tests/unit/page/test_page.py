"""The page: what it shows is what the commands say, hostile names are text, and who may not read is refused."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import shlex
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web

from fleethpa.fleet.decisionfinding import find_decision
from fleethpa.fleet.state import read_state
from fleethpa.fleet.views import FleetState, HpaView
from fleethpa.frame.configuration import Config
from fleethpa.frame.listening import names_of
from fleethpa.page.addresses import MOST_NAMES, environment
from fleethpa.page.decisionview import shown_value
from fleethpa.page.fleetview import FLEET_WORDS, FilterTextError, read_filter, sparkline
from fleethpa.page.guarding import HEADERS, Guard, request_log
from fleethpa.page.hpapast import Depth, HpaPast, KeptEvaluations, newest_of, read_decisions, read_timeline
from fleethpa.page.hpaview import bundle_command, series, timeline
from fleethpa.page.livereader import STALE_S, STALL_S, LiveReader
from fleethpa.page.server import READER, PageServer
from fleethpa.page.tryview import commands
from fleethpa.show import words
from fleethpa.show.report import MOST_POINTS
from fleethpa.show.text import dated, rfc3339, time_of_day
from schemas.entries import WHOLE_PARTITION_KEY
from schemas.keys import HpaId
from schemas.kubernetes.gotimes import parse_time_ms
from schemas.observed import AutoscalerList, Command
from schemas.settings import Restart
from streams.history.past import Past
from streams.history.replay import NOTHING
from streams.state.logtime import CONFIRMED_MS
from streams.state.moves import Move
from tests.kit.archive import ENFORCING, topics_of
from tests.kit.cli import Cli, Fleet, hpa, table_rows
from tests.kit.generated_log import START_MS
from tests.kit.generated_log import Fleet as GeneratedFleet
from tests.kit.memorypast import MemoryPast
from tests.kit.page import LOCAL, Shown, browsing, over
from tests.patience import PATIENCE_S
from tests.unit.cli.test_cli_doctor import Running

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "fleethpa" / "page"
HOSTILE = "<img src=x onerror=alert(1)>\u202e'\";{{7*7}}</script>"
CHECKOUT = "/hpa/east/shop/checkout"


@pytest.fixture
def fleet(monkeypatch: pytest.MonkeyPatch) -> Fleet:
    """`checkout` runs 3 pods at 100% of 60%: 5 are wanted and written; then the metric fails."""
    made = Fleet()
    made.settle(replicas=3, usage_milli=500)
    made.applied(5)
    made.now_ms += 20_000
    made.observe(5, 300)
    over(made, monkeypatch)
    return made


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, fleet: Fleet) -> Cli:
    return Cli(monkeypatch, fleet)


async def shown(address: str, **headers: str) -> Shown:
    async with browsing() as client:
        answer = await client.get(address, headers=headers)
        assert answer.status == 200, await answer.text()
        return Shown(await answer.text())


# --- the same values as the commands ----------------------------------------------------------------------------------


async def test_the_fleet_says_what_get_hpa_says(fleet: Fleet, run: Cli) -> None:
    rows = table_rows((await asyncio.to_thread(run, "get", "hpa", "-A", "-o", "wide")).stdout)
    found = await shown("/")
    for header in ("TARGETS", "MINPODS", "MAXPODS", "REPLICAS", "MODE", "PROBLEM"):
        assert found.cells[header] == [row[header] for row in rows]
    assert len(rows) == 1


async def test_the_clusters_say_what_get_clusters_says(fleet: Fleet, run: Cli) -> None:
    rows = table_rows((await asyncio.to_thread(run, "get", "clusters", "-o", "wide")).stdout)
    found = await shown("/clusters")
    assert set(found.cells) == set(rows[0])
    for header in ("NAME", "HPAS", "ENFORCE", "STATE"):
        assert found.cells[header] == [row[header] for row in rows]
    # What is wrong is said once, below the cards.
    assert found.cells["PROBLEMS"] == ["1 below"]
    assert found.text.count(rows[0]["PROBLEMS"]) == 1


async def test_the_verdict_steps_and_counterfactuals_are_those_of_explain(fleet: Fleet, run: Cli) -> None:
    lines = (await asyncio.to_thread(run, "explain", "east/shop/checkout")).stdout.splitlines()
    text = (await shown(CHECKOUT)).text
    verdict = next(line for line in lines if line.startswith("Result")).removeprefix("Result").strip()
    for part in re.split(r"\s{2,}", verdict):
        assert part in text
    table = lines[lines.index(next(line for line in lines if line.startswith("STEP"))) + 1 :]
    for line in table:
        for part in re.split(r"\s{2,}|◀ winner", line):
            if part and not part.startswith(("Inputs", "fleethpa.", "Recompute", "log ")):
                assert part.removesuffix(":") in text or part.startswith("Would change"), part


async def test_the_record_of_a_decision_is_that_of_explain_as_json(fleet: Fleet, run: Cli) -> None:
    stated = json.loads((await asyncio.to_thread(run, "explain", "east/shop/checkout", "-o", "json")).stdout)
    html = (await shown(f"/decision/{stated['id']}")).text
    assert " ".join((await asyncio.to_thread(run, "explain", stated["id"], "-o", "json")).stdout.split()) in html


async def test_changes_say_what_decisions_says(fleet: Fleet, run: Cli) -> None:
    since = rfc3339(fleet.now_ms - 3_600_000)
    out = (await asyncio.to_thread(run, "decisions", "-A", "--changes", "--since", since, "-o", "wide")).stdout
    rows = table_rows(out)[::-1]
    found = await shown(f"/changes?since={since}")
    assert rows
    for header in ("FROM", "TO", "LIMITED BY", "APPLIED"):
        assert found.cells[header] == [row[header] for row in rows]


async def test_the_list_of_changes_says_that_there_are_newer_ones(fleet: Fleet) -> None:
    async with browsing() as client:
        found = Shown(await (await client.get("/changes")).text())
        [newer] = [attributes for _, attributes in found.tags if attributes.get("id") == "newer"]
        assert "hidden" in newer
        still = Shown(await (await client.get(newer["hx-get"] or "")).text())
        assert "hidden" in still.tags[0][1]
        changed = Shown(await (await client.get("/changes/newer?after=0")).text())
        assert "hidden" not in changed.tags[0][1]
        assert "1 HPA has other replicas since 1970-01-01 00:00:00 (" in changed.text
        for odd in ("", "x", "9" * 19):
            assert (await client.get(f"/changes/newer?after={odd}")).status == 200


@pytest.mark.parametrize(
    ("asked", "address"),
    [
        ("east/shop/checkout", "/hpa/east/shop/checkout"),
        ("CHECK", "/hpa/east/shop/checkout"),
        ("east", "/?q=cluster%3Aeast"),
        ("1-10-dc03866d-1fa3-47df-8fe8-5606ba92925d", "/decision/1-10-dc03866d-1fa3-47df-8fe8-5606ba92925d"),
        ("nothing here", "/?q=nothing+here"),
        ("//evil.example", "/?q=%2F%2Fevil.example"),
        ("", "/"),
    ],
)
async def test_the_search_leads_to_what_it_names(fleet: Fleet, asked: str, address: str) -> None:
    async with browsing() as client:
        answer = await client.get("/find", params={"q": asked}, allow_redirects=False)
        assert (answer.status, answer.headers["Location"]) == (303, address)


async def test_the_receipt_derives_the_decision_again(fleet: Fleet, run: Cli) -> None:
    id_ = fleet.decisions()[0].decision.id
    found = await shown(f"/decision/{id_}/verify")
    assert ("p", {"class": "good", "data-identical": "yes"}) in found.tags
    fleet.values[0] = fleet.values[0].replace(b'"finalDesiredReplicas":5', b'"finalDesiredReplicas":6')
    forged = await shown(f"/decision/{id_}/verify")
    assert ("p", {"class": "bad", "data-identical": "no"}) in forged.tags
    assert "finalDesiredReplicas: recorded 6, recomputed 5" in forged.text


@pytest.mark.parametrize(
    ("address", "command"),
    [
        ("/?q=cluster:e* problem:any", "fleethpa get hpa -A -C 'e*' --problem"),
        ("/?q=check !mode:shadow", "fleethpa get hpa -A (without check !mode:shadow)"),
        ("/?q=cluster:a,b", "fleethpa get hpa -A (without cluster:a,b)"),
        ("/changes?q=direction:up limit:MaxReplicas", "--changes --direction up --limited-by MaxReplicas"),
        ("/changes?q=direction:up direction:down", "--direction up (without direction:down)"),
        ("/changes?q=direction:u* limit:M*", "--changes (without direction:u* limit:M*)"),
    ],
)
async def test_the_command_says_what_it_can_of_the_filter(fleet: Fleet, address: str, command: str) -> None:
    text = (await shown(address)).text
    assert text.partition("The same as a command:")[2].strip().endswith(command)


async def test_the_command_is_of_the_moment_that_is_shown(fleet: Fleet) -> None:
    at_ms = fleet.decisions()[0].time_ms
    moment = rfc3339(at_ms)
    for address, command in (
        ("/", f"get hpa -A --at {moment}"),
        ("/clusters", f"get clusters -o wide --at {moment}"),
        ("/changes", f"--until {rfc3339(at_ms + 1)}"),
    ):
        assert (await shown(f"{address}?at={moment}")).text.endswith(command), address


async def test_a_decision_shows_how_old_its_samples_were_then(fleet: Fleet) -> None:
    first = fleet.decisions()[0].decision
    fleet.now_ms += 600_000
    fleet.observe(5, 300)
    found = (await shown(f"/decision/{first.id}")).text
    assert "Newest sample then" in found
    assert "m ago" not in found


@pytest.mark.parametrize(
    ("created", "path"),
    [
        pytest.param("2026-11-28T10:00:00Z", "M0.0 1.0H60.0V9.0H90.0", id="before this hour"),
        pytest.param("2026-11-28T11:30:00Z", "M0.0 1.0H30.0V9.0H90.0", id="in this hour"),
        pytest.param(None, "M0.0 1.0H60.0V9.0H90.0", id="not known"),
    ],
)
def test_the_line_of_the_last_hour_begins_where_the_hpa_does(created: str | None, path: str) -> None:
    noon = parse_time_ms("2026-11-28T12:00:00Z")
    view = HpaView(
        HpaId("east", "shop", "checkout"),
        {"metadata": {"creationTimestamp": created}, "status": {"currentReplicas": 4}},
        "enforce",
        "cluster",
        0,
        moves=(Move(noon - 1_200_000, 8, 4, "fleethpa"),),
        clock_ms=noon,
    )
    assert sparkline(view) == path


async def test_a_decision_is_compared_with_the_evaluation_before_it(fleet: Fleet) -> None:
    evaluated = [each for each in fleet.decisions() if each.decision.kind == "evaluation"]
    found = await shown(f"/diff?other={evaluated[1].decision.id}")
    assert evaluated[0].decision.id in found.text
    assert "currentReplicas" in found.text
    for each in evaluated[:2]:  # what came out is above the fields
        assert f"{dated(each.time_ms)} {words.change(each.decision)} " in found.text
    assert found.text.index(" seq ") > found.text.index(" metrics[cpu]. newest ")  # a line may break at the dot
    folded = found.text.index(" more in the status, and in hashes and numbers of the record ")
    assert found.text.index(" metrics[cpu]. newest ") < folded < found.text.index(" status - observedGeneration: 1 ")
    assert folded < found.text.index(" prev ")
    newest = evaluated[1].decision.metrics[0].newest
    assert newest is not None
    assert rfc3339(newest) in found.text
    assert str(newest) not in found.text
    assert f"/diff?other={evaluated[1].decision.id}" in str((await shown(f"/decision/{evaluated[1].decision.id}")).tags)
    async with browsing() as client:
        answer = await client.get(f"/diff?other={evaluated[0].decision.id}")
        assert answer.status == 404
        assert "holds no decision of east/shop/checkout before" in Shown(await answer.text()).text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        pytest.param(NOTHING, "-", id="a field that one of the two lacks"),
        pytest.param(["ScaleUpPolicy", "MaxReplicas"], "ScaleUpPolicy, MaxReplicas", id="texts are on one line"),
        pytest.param({"in": 2, "detail": {"limit": 5}}, "in: 2\ndetail:\n  limit: 5", id="what has parts is YAML"),
        pytest.param([{"step": "final", "out": 5}], "- step: final\n  out: 5", id="several of these"),
        pytest.param({"message": 30 * "no answer "}, f"message: '{30 * 'no answer '}'", id="a long text is not broken"),
        pytest.param(5, "5", id="a number"),
    ],
)
def test_a_value_that_is_compared_is_shown_as_text(value: Any, text: str) -> None:
    assert shown_value("steps", value) == text


async def test_the_record_that_ends_a_write_leads_to_the_decision_that_wanted_it(fleet: Fleet) -> None:
    ending = next(each for each in fleet.decisions() if each.decision.kind == "completion")
    found = await shown(f"/decision/{ending.decision.id}")
    assert f"It ends the write of decision {ending.decision.completes}" in found.text
    assert "Evaluated" not in found.text
    assert "Health of the metrics" not in found.text


async def test_a_time_in_the_address_puts_the_view_at_that_moment(fleet: Fleet, run: Cli) -> None:
    first = fleet.decisions()[0]
    moment = rfc3339(first.time_ms)
    lines = (await asyncio.to_thread(run, "explain", f"east/shop/checkout@{moment}")).stdout
    found = (await shown(f"{CHECKOUT}?at={moment}")).text
    assert "Goes up from 3 to 5" in lines
    assert "Goes up from 3 to 5: cpu 100% of 60% asks for 5" in found
    assert f"As of {dated(first.time_ms)}" in found
    assert "Goes up from 3 to 5" not in (await shown(CHECKOUT)).text


async def test_a_decision_with_a_time_in_its_address_has_the_log_as_of_then(fleet: Fleet) -> None:
    first, *_, last = (each for each in fleet.decisions() if each.decision.kind == "evaluation")
    for address in (f"/decision/{first.decision.id}", f"/diff?other={last.decision.id}"):
        found = (await shown(f"{address}{'&' if '?' in address else '?'}at={rfc3339(first.time_ms)}")).text
        assert f"log until {time_of_day(first.time_ms, first.time_ms)}" in found, address


async def test_the_charts_draw_the_recorded_decisions(fleet: Fleet) -> None:
    async with browsing() as client:
        drawn = await (await client.get(f"{CHECKOUT}/series?at={rfc3339(fleet.now_ms)}")).json()
    made = [each for each in fleet.decisions() if each.decision.kind == "evaluation"]
    assert drawn["times"] == [each.time_ms / 1000 for each in made]
    assert drawn["wanted"] == [each.decision.final_desired_replicas for each in made]
    assert drawn["metrics"][0]["values"] == [each.decision.metrics[0].utilization for each in made]
    assert drawn["metrics"][0]["unit"] == "%"


async def test_the_chart_of_memory_is_in_mebibytes(fleet: Fleet) -> None:
    target = {"type": "AverageValue", "averageValue": "200Mi"}
    changed = hpa(metrics=[{"type": "Resource", "resource": {"name": "memory", "target": target}}])
    changed["metadata"]["generation"] = 2
    fleet.append(AutoscalerList(list_id="c", hpas=[changed], session="s"))
    fleet.now_ms += 20_000
    fleet.observe(5, 500)
    async with browsing() as client:
        drawn = await (await client.get(f"{CHECKOUT}/series?at={rfc3339(fleet.now_ms)}")).json()
    memory = next(each for each in drawn["metrics"] if each["name"] == "memory")
    assert (memory["unit"], memory["targets"][-1]) == ("Mi", 200)


async def test_changes_of_the_spec_and_pauses_that_hold_are_marked_in_the_charts(fleet: Fleet) -> None:
    changed = hpa(maxReplicas=12)
    changed["metadata"]["generation"] = 2
    fleet.append(AutoscalerList(list_id="c", hpas=[changed], session="s"))
    fleet.append(Command(command="pause", name="checkout", author="anna", reason="INC-1"))
    fleet.now_ms += 20_000
    fleet.observe(5, 500)
    async with browsing() as client:
        drawn = await (await client.get(f"{CHECKOUT}/series?at={rfc3339(fleet.now_ms)}")).json()
    marks = {mark["kind"]: mark["text"] for mark in drawn["marks"]}
    assert marks["spec"] == "revision 2"
    assert "anna" in marks["command"]
    assert "INC-1" in marks["command"]


async def test_a_restart_that_cleared_the_windows_is_marked_with_its_reason(fleet: Fleet) -> None:
    fleet.append(Restart(author="anna", reason="INC-2"), key=WHOLE_PARTITION_KEY)
    fleet.now_ms += 20_000
    fleet.observe(5, 500)
    async with browsing() as client:
        drawn = await (await client.get(f"{CHECKOUT}/series?at={rfc3339(fleet.now_ms)}")).json()
    (text,) = [mark["text"] for mark in drawn["marks"] if mark["kind"] == "restart"]
    assert text.startswith("windows cleared: ")
    assert "INC-2" in text


async def test_a_change_is_marked_when_it_was_recorded_and_shown_as_a_diff(fleet: Fleet) -> None:
    changed = hpa(maxReplicas=12)
    changed["metadata"]["generation"] = 2
    fleet.now_ms += 7_000
    fleet.append(AutoscalerList(list_id="c", hpas=[changed], session="s"))
    changed_ms = fleet.now_ms
    fleet.append(Command(command="pause", name="checkout", author="anna", reason="INC-1"))
    fleet.now_ms += 20_000
    fleet.observe(5, 300)
    async with browsing() as client:
        view = await (await client.get(f"{CHECKOUT}?at={rfc3339(fleet.now_ms)}")).text()
        past = next(attributes for tag, attributes in Shown(view).tags if attributes.get("id") == "past")
        marks = {mark["kind"]: mark for mark in json.loads(past["data-marks"] or "")}
        assert marks["spec"]["time"] == changed_ms / 1000
        assert "maxReplicas 20→12" in marks["spec"]["text"]
        assert "INC-1" in marks["command"]["text"]
        address = next(each["href"] for tag, each in Shown(view).tags if "/spec?" in (each.get("href") or ""))
        diff = Shown(await (await client.get(address or "")).text())
    lines = [text.strip() for text in diff.texts]
    assert lines.index("-maxReplicas: 20") + 1 <= lines.index("+maxReplicas: 12")
    assert "scaleTargetRef:" in lines


@pytest.mark.parametrize("query", ["", "?other=x", "?other=1&one=-3", "?other=²"])
async def test_changes_that_are_not_named_by_offsets_are_refused(fleet: Fleet, query: str) -> None:
    async with browsing() as client:
        answer = await client.get(f"{CHECKOUT}/spec{query}")
        assert answer.status == 400
        assert "fleethpa history east/shop/checkout" in Shown(await answer.text()).text


@pytest.mark.parametrize("number", ["²", "1" * 5_000, "-1", "0", "9" * 19, "x"])
async def test_a_page_or_bar_that_is_no_number_or_is_not_there_shows_what_there_is(fleet: Fleet, number: str) -> None:
    async with browsing() as client:
        for address in (f"/?page={number}", f"/changes?bar={number}"):
            assert (await client.get(address)).status == 200, address[:40]


async def test_a_fault_is_a_page_that_says_so_and_a_line_of_the_log_with_the_address(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("no")

    monkeypatch.setattr("fleethpa.page.server.changes_view", broken)
    async with browsing() as client:
        answer = await client.get("/changes")
        shown = Shown(await answer.text()).text
    assert answer.status == 500
    assert "internal error: ZeroDivisionError" in shown
    assert "fleethpa page" in shown
    assert [vars(each)["path"] for each in caplog.records if each.name == "fleethpa.page.server"] == ["/changes"]


async def test_the_audit_view_says_what_the_record_covers(fleet: Fleet) -> None:
    found = await shown("/audit")
    assert "fleethpa audit keygen" in found.text
    assert "Closed segments" not in found.text
    assert "as it is kept now" not in found.text
    assert "as it is kept now, and not at the time above" in (await shown("/audit?at=1s")).text


async def test_a_view_says_why_what_it_shows_may_be_old(monkeypatch: pytest.MonkeyPatch) -> None:
    quiet = Running()
    quiet.run(60, without=("ingest",))
    over(quiet, monkeypatch)
    for address in ("/", "/clusters", "/changes"):
        assert "nothing has come into the log since" in (await shown(address)).text, address
    later_ms = quiet.now_ms + 3_600_000
    found = (await shown(f"/?at={rfc3339(later_ms)}")).text
    assert f"before {dated(later_ms)}: shown as of its end" in found
    assert not re.search(r"(since|before|until|as of|ends at) \S+T\d", found), "times are written as people write them"


# --- what comes from clusters is text ---------------------------------------------------------------------------------


async def test_hostile_names_and_messages_are_text(fleet: Fleet) -> None:
    made = hpa()
    made["metadata"]["labels"] = {"app": HOSTILE}
    fleet.append(AutoscalerList(list_id="b", hpas=[made, hpa(HOSTILE)], session="s"))
    fleet.observe(5, 300, error=HOSTILE + "x" * 10_000)
    for address in ("/", CHECKOUT, "/clusters", "/changes?show=all&since=7d"):
        found = await shown(address)
        assert not [tag for tag, _ in found.tags if tag == "img"]
        assert all(attrs.get("src") or tag != "script" for tag, attrs in found.tags), "an inline script"
        assert not [name for _, attrs in found.tags for name in attrs if name.startswith("on") or name == "style"]
        assert "\u202e" not in found.text
        assert " 49" not in found.text
    assert "<img src=x onerror=alert(1)>" in (await shown("/")).text


# --- who may read -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("127.0.0.1:9", 200),
        ("[::1]:9", 200),
        ("evil.example", 421),
        ("localhost.evil.example", 421),
    ],
)
async def test_a_foreign_host_header_is_refused(fleet: Fleet, host: str, status: int) -> None:
    async with browsing() as client:
        assert (await client.get("/", headers={"Host": host})).status == status


async def test_every_answer_has_the_security_headers(fleet: Fleet) -> None:
    async with browsing() as client:
        for address in ("/", CHECKOUT, "/nothing", "/hpa/a/b/c", "/static/page.js", "/decision/zz"):
            answer = await client.get(address)
            assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS, address
    assert "unsafe" not in HEADERS["Content-Security-Policy"]


async def test_without_the_token_nothing_of_the_fleet_is_read(fleet: Fleet) -> None:
    guard = Guard(names_of("127.0.0.1", ()), token="0123456789abcdef")
    async with browsing(guard) as client:
        for address in ("/", CHECKOUT, f"{CHECKOUT}/series", "/changes", "/clusters", "/audit", "/live", "/diff"):
            assert (await client.get(address)).status == 401, address
            wrong = await client.get(address, headers={"Authorization": "Bearer wrong"})
            assert wrong.status == 401
        right = await client.get("/", headers={"Authorization": "Bearer 0123456789abcdef"})
        assert right.status == 200
        sent = await client.get("/", headers={"Accept": "text/html"}, allow_redirects=False)
        assert (sent.status, sent.headers["Location"]) == (303, "/login")
        refused = await client.post("/login", data={"token": "wrong"}, allow_redirects=False)
        assert not refused.cookies
        taken = await client.post("/login", data={"token": "0123456789abcdef"}, allow_redirects=False)
        cookie = taken.cookies["fleethpa-page"]
        assert (cookie["httponly"], cookie["samesite"]) == (True, "Strict")
        assert "0123456789abcdef" not in cookie.value
        assert (await client.get("/")).status == 200


async def test_behind_a_proxy_the_user_must_be_named(fleet: Fleet) -> None:
    async with browsing(Guard(names_of("127.0.0.1", ()), user_header="X-Forwarded-User")) as client:
        assert (await client.get("/")).status == 401
        assert (await client.get("/", headers={"X-Forwarded-User": "anna"})).status == 200


@pytest.mark.parametrize(
    ("arguments", "stated"),
    [
        (("--host", "0.0.0.0"), "nobody would be asked who they are"),
        (("--host", "10.0.0.7"), "nobody would be asked who they are"),
        (("--host", "0.0.0.0", "--behind-proxy", "X-User"), "DNS rebinding"),
        (("--token-file", "/nothing/there"), "cannot be read"),
        (("--from", "/nothing/there"), "no such folder"),
    ],
)
def test_an_unsafe_start_is_refused_with_the_next_step(run: Cli, arguments: tuple[str, ...], stated: str) -> None:
    found = run("page", *arguments)
    assert found.exit_code == 2
    assert stated in found.stderr


# --- another spec on the past -----------------------------------------------------------------------------------------


async def test_commands_for_a_shell_are_quoted_and_escaped(fleet: Fleet) -> None:
    hostile = HpaId("east", "shop", "a'$(reboot)&<b>")
    words = commands(hostile, ["cpu=70%"])
    assert [shlex.split(shlex.join(each)) for each in words] == words
    assert words[0] == ["fleethpa", "backtest", str(hostile), "--set", "cpu=70%", "--since", "7d"]
    assert shlex.split(bundle_command(hostile, 7_200_000, 86_400_000)) == [
        *("fleethpa", "export", "bundle", str(hostile)),
        *("--since", "1970-01-01T01:00:00.000Z", "--until", "1970-01-01T02:00:00.001Z", "--out", f"{hostile.name}.tar"),
    ]
    template = environment().from_string('{% include "trycommands.html" %}')
    text = template.render(commands=[shlex.join(each) for each in words], manifest="<script>", swapped=False)
    assert "$(reboot)&amp;&lt;b&gt;" in text
    assert "<script>" not in text
    assert shlex.join(words[2]) in Shown(text).text


async def test_what_the_page_starts_no_longer_it_says_as_a_command(fleet: Fleet) -> None:
    async with browsing() as client:
        for address, stated in (
            ("/audit", "fleethpa audit verify"),
            ("/decision/0-2-uid-checkout", "fleethpa replay 0-2-uid-checkout"),
            ("/clusters", "fleethpa upgrade-preview -A --to 1.37"),
            (f"{CHECKOUT}?span=15m", "fleethpa export bundle east/shop/checkout --since"),
            ("/try?hpa=east/shop/checkout", "fleethpa tune east/shop/checkout"),
            ("/try?hpa=east/shop/checkout", "fleethpa backtest -f hpa.yaml -C east --since 7d"),
            ("/try?hpa=east/shop/checkout", "averageUtilization: 60"),
        ):
            assert stated in Shown(await (await client.get(address)).text()).text, address
        gone = await client.get("/upgrade")
        assert (gone.status, "fleethpa upgrade-preview -A --to VERSION" in await gone.text()) == (404, True)
        for address in ("/try", "/audit"):
            assert (await client.post(address, data={})).status == 405


async def test_a_form_of_another_site_is_refused(fleet: Fleet) -> None:
    async with browsing() as client:
        for address in ("/try", "/login"):
            answer = await client.post(address, data={}, headers={"Origin": "https://evil.example"})
            assert answer.status == 403


_CROSS = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}
_LINK = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}


@pytest.mark.parametrize(
    ("method", "headers", "is_answered"),
    [
        pytest.param("GET", {}, True, id="a program"),
        pytest.param("GET", _CROSS, False, id="a picture of another site"),
        pytest.param("GET", _CROSS | {"Sec-Fetch-Site": "same-site"}, False, id="of another port of this machine"),
        pytest.param("GET", _LINK | {"Sec-Fetch-Dest": "iframe"}, False, id="a frame of another site"),
        pytest.param("GET", _LINK, True, id="a link on another site"),
        pytest.param("GET", _CROSS | {"Sec-Fetch-Site": "same-origin"}, True, id="a picture of this page"),
        pytest.param("GET", _LINK | {"Sec-Fetch-Site": "none"}, True, id="typed by the user"),
        pytest.param("GET", {"Origin": "http://127.0.0.1:1"}, False, id="an older browser, another port"),
        pytest.param("POST", {}, True, id="a program's form"),
        pytest.param("POST", _LINK, False, id="a form of another site"),
        pytest.param("POST", {"Sec-Fetch-Site": "same-site"}, False, id="a form of another port"),
        pytest.param("POST", {"Sec-Fetch-Site": "same-origin"}, True, id="a form of this page"),
        pytest.param("POST", {"Origin": "http://127.0.0.1:{port}"}, True, id="an older browser, this page"),
        pytest.param("POST", {"Origin": "http://127.0.0.1:1"}, False, id="an older browser, a form of another port"),
        pytest.param("POST", {"Origin": "http://127.0.0.1"}, False, id="an older browser, the usual port"),
        pytest.param("POST", {"Origin": "null"}, False, id="of nobody"),
    ],
)
async def test_only_links_of_other_sites_and_ports_are_answered(
    fleet: Fleet, method: str, headers: dict[str, str], is_answered: bool
) -> None:
    async with browsing() as client:
        sent = {name: value.format(port=client.port) for name, value in headers.items()}
        address = "/" if method == "GET" else "/login"
        answer = await client.request(method, address, headers=sent, allow_redirects=False)
        assert (answer.status == 403) is not is_answered, await answer.text()


# --- errors, filters, charts ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "status", "stated"),
    [
        ("/hpa/east/shop/chekout", 404, "Did you mean east/shop/checkout?"),
        ("/decision/0-1-x", 404, "no decision 0-1-x"),
        ("/?at=yesterday", 400, "is not a valid time"),
        ("/changes?since=soon", 400, "is not a valid time"),
        ("/nothing/here", 404, "there is no view /nothing/here"),
        ("/hpa/east/shop", 404, "/hpa/CLUSTER/NAMESPACE/NAME"),
        (f"{CHECKOUT}?span=long", 400, "span 'long' is not a duration"),
        (f"{CHECKOUT}/series?span=0s", 400, "holds no time"),
        ("/try?hpa=east/shop/chekout", 200, "no HPA east/shop/chekout Did you mean east/shop/checkout?"),
        ("/changes?q=direction:sideways", 200, "there is no direction 'sideways'; there are up, down, none"),
    ],
)
async def test_an_address_that_names_nothing_says_what_to_do(
    fleet: Fleet, address: str, status: int, stated: str
) -> None:
    async with browsing() as client:
        answer = await client.get(address)
        assert answer.status == status
        assert stated in Shown(await answer.text()).text


async def test_an_address_that_takes_no_form_says_which_method_it_takes(fleet: Fleet) -> None:
    async with browsing() as client:
        answer = await client.post("/clusters", data={})
        assert (answer.status, answer.headers["Allow"]) == (405, "GET,HEAD")
        assert "/clusters answers to no POST" in Shown(await answer.text()).text
        answer = await client.post("/login", data={"token": "a" * 5_000})
        assert answer.status == 413
        assert "4 KiB at most" in Shown(await answer.text()).text
        assert answer.headers["X-Content-Type-Options"] == "nosniff"


async def test_a_page_behind_the_last_one_is_the_last_one(fleet: Fleet) -> None:
    assert "east/shop/checkout" in "".join((await shown("/?page=99")).text.split())


async def test_a_request_that_is_not_http_is_one_line_of_the_log(
    fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    server = PageServer(LiveReader("kafka", Config(brokers="memory:1")), LOCAL, {}, "memory:1")
    runner = web.AppRunner(server.app(), logger=request_log())
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        reader, writer = await asyncio.open_connection(*runner.addresses[0])
        writer.write(b"GET /?q=\xff HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.0 400")
        writer.close()
    finally:
        await runner.cleanup()
    stated = [each for each in caplog.records if each.name == request_log().name]
    assert [(each.levelname, each.exc_info) for each in stated] == [("WARNING", None)]


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("", True),
        ("check", True),
        ("!check", False),
        ("cluster:east namespace:sh*", True),
        ("!cluster:east", False),
        ("cluster:west", False),
        ("problem:any", True),
        ('problem:"at max"', True),
        ("!problem:any mode:enforce", False),
        ("mode:enforce !problem:fight", True),
    ],
)
def test_words_of_a_filter_combine_and_can_be_negated(text: str, fits: bool) -> None:
    row = {
        "cluster": ["east"],
        "namespace": ["shop"],
        "name": ["checkout"],
        "mode": ["enforce"],
        "problem": ["at maxReplicas 10", "at max"],
    }
    assert read_filter(text, FLEET_WORDS).fits(row) is fits


@pytest.mark.parametrize("text", ["colour:red", '"open', "mode:shadwo", "!mode:Enforce"])
def test_a_filter_that_cannot_be_read_is_an_error(text: str) -> None:
    with pytest.raises(FilterTextError):
        read_filter(text, FLEET_WORDS)


@pytest.mark.parametrize(
    ("time", "text"),
    [
        pytest.param("2026-11-28T00:00:00Z", "00:00:00", id="this day"),
        pytest.param("2026-11-27T23:59:59.999Z", "11-27 23:59:59", id="the day before"),
        pytest.param("2026-11-29T00:00:01Z", "11-29 00:00:01", id="the day after"),
        pytest.param("2025-11-28T12:00:00Z", "2025-11-28 12:00:00", id="the year before"),
    ],
)
def test_a_time_of_another_day_has_its_date(time: str, text: str) -> None:
    assert time_of_day(parse_time_ms(time), parse_time_ms("2026-11-28T12:00:00Z")) == text


def test_a_gap_in_the_decisions_stays_a_gap(fleet: Fleet) -> None:
    fleet.append(after_ms=3_600_000)
    fleet.now_ms += CONFIRMED_MS
    fleet.observe(5, 300)
    made = series(fleet.decisions())
    hole = made.wanted.index(None)
    assert 0 < hole < len(made.wanted) - 1
    assert made.metrics[0].values[hole] is None


def test_thinning_keeps_every_move_of_the_replicas(fleet: Fleet) -> None:
    few = [each for each in fleet.decisions() if each.decision.kind == "evaluation"]
    assert few[0].decision.current_replicas != few[-1].decision.current_replicas
    drawn = series([few[-1]] * (3 * MOST_POINTS) + [few[0]] + [few[-1]] * (3 * MOST_POINTS))
    assert len(drawn.times) < MOST_POINTS + 10
    assert few[0].decision.current_replicas in drawn.spec


# --- vendored files ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("folder", [PAGE / "vendor", ROOT / "tests" / "page"])
def test_vendored_files_are_those_that_vendor_json_names(folder: Path) -> None:
    listed: dict[str, Any] = {}
    for each in json.loads((folder / "VENDOR.json").read_text()):
        assert each["licence"] in ("MIT", "0BSD", "MPL-2.0")
        assert each["licenceFile"] in each["files"]
        assert all(each["version"] in name for name in each["files"])
        listed |= each["files"]
    there = {path.name for path in folder.iterdir() if path.suffix in (".js", ".css", ".LICENSE")}
    assert there == set(listed)
    for name, digest in listed.items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest, name


def test_everything_that_a_browser_loads_is_small_and_comes_from_here() -> None:
    loaded = [*(PAGE / "vendor").glob("*.min.*"), *(PAGE / "static").iterdir()]
    assert sum(path.stat().st_size for path in loaded) < 200_000
    for template in (PAGE / "templates").iterdir():
        text = template.read_text()
        assert not re.search(r"(?:src|href|action)=[\"'](?:https?:)?//", text), template.name
        assert not re.search(r"\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)", text), template.name
        assert "|safe" not in text, template.name


# --- live -------------------------------------------------------------------------------------------------------------


async def test_a_browser_learns_that_something_is_new(fleet: Fleet) -> None:
    async with browsing() as client:
        assert (await client.get("/")).status == 200
        answer = await client.get("/live")
        assert answer.headers["Content-Type"] == "text/event-stream"
        fleet.observe(5, 310)
        async for line in answer.content:
            if line.startswith(b"event: changed"):
                break
        answer.close()


async def test_a_source_that_is_away_is_reported_and_comes_back(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fleethpa.page.livereader.RETRY_S", 0.01)
    monkeypatch.setattr("fleethpa.page.livereader.EVERY_S", 0.01)
    async with browsing() as client:
        assert "cannot be read since" not in await (await client.get("/")).text()

        def away(source: str, config: Any, at_ms: int | None = None) -> Any:
            raise OSError("connection refused")

        events = await client.get("/live")
        monkeypatch.setattr("fleethpa.page.livereader.open_past", away)
        assert client.app is not None
        reader = client.app[READER]
        await reader.close()
        while not reader.problem:
            fleet.observe(5, 300)
            await reader.changed(reader.version, 5)
        text = await (await client.get("/")).text()
        assert "cannot be read since" in text
        assert "checkout" in text
        over(fleet, monkeypatch)
        while reader.problem:
            await reader.changed(reader.version, 5)
        assert "cannot be read since" not in await (await client.get("/")).text()
        events.close()


async def test_a_view_does_not_wait_for_the_state_that_is_being_read(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading the state of a large fleet takes seconds of computing."""
    going_on, may_end = threading.Event(), threading.Event()

    async def slow(past: Past) -> FleetState:
        going_on.set()
        assert may_end.wait(30)  # keeps its loop busy
        return await read_state(past)

    async with browsing() as client:
        assert "checkout" in await (await client.get("/")).text()
        assert client.app is not None
        reader = client.app[READER]
        monkeypatch.setattr("fleethpa.page.livereader.read_state", slow)
        refreshing = asyncio.create_task(reader._refresh())
        assert await asyncio.to_thread(going_on.wait, 30)
        assert "checkout" in await (await client.get("/")).text()
        assert not refreshing.done()
        may_end.set()
        await refreshing


async def test_while_the_source_does_not_answer_every_view_shows_the_last_that_was_known(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that hangs gives no error for most of a minute."""
    monkeypatch.setattr("fleethpa.page.livereader.STALE_S", 0.0)
    monkeypatch.setattr("fleethpa.page.livereader.PATIENT_S", 0.01)

    async def hangs(*_: Any) -> Any:
        await asyncio.Event().wait()

    async with browsing() as client:
        before = await (await client.get("/hpa/east/shop/checkout")).text()
        assert '<b class="past">' not in before
        monkeypatch.setattr("fleethpa.page.livereader.read_state", hangs)
        monkeypatch.setattr("fleethpa.page.server.read_hpa", hangs)
        assert client.app is not None
        client.app[READER]._took_s = 0.0  # a state that was read quickly is soon old
        for address in ("/", "/clusters", "/rollouts", "/hpa/east/shop/checkout"):
            answer = await client.get(address)
            text = await answer.text()
            assert answer.status == 200, address
            assert "<title>the source has not answered · " in text, address
            assert "The source has not answered since" in text, address
            assert ">Live<" not in text, address
        known = Shown(text)
        newest = rfc3339(max(each.time_ms for each in fleet.decisions() if each.decision.kind == "evaluation"))
        assert f"cannot be read now. What is shown of it was decided until {newest}." in text
        assert '<b class="past">5<small>last known' in text
        assert "at target" in known.text or "cpu" in known.text
        fleet_page = await (await client.get("/")).text()
        assert "The source has not answered: 1 HPA shown as last known." in fleet_page
        clusters = await (await client.get("/clusters")).text()
        assert 'data-column="STATE" data-label="State">unknown<' in clusters, clusters
        assert "not known now" in fleet_page
        for address, what in (
            ("/hpa/east/shop/later", "no HPA east/shop/later"),
            ("/capacity/later", "no CapacityGroup &#39;later&#39;"),
        ):
            answer = await client.get(address)
            text = await answer.text()
            assert (answer.status, f"{what} in the log until " in text) == (503, True), text
            assert "What is there now is not known: the source has not answered." in text, text


async def test_every_next_step_of_an_hpa_is_a_command_that_runs(
    fleet: Fleet, run: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(6):
        fleet.append(after_ms=10_000, by="ingest")
    monkeypatch.setattr("fleethpa.page.livereader.wall_clock_ms", lambda: fleet.now_ms)
    monkeypatch.setattr("fleethpa.frame.errors.completed", lambda command, options: f"{command} --brokers kafka:1")
    async with browsing() as client:
        text = await (await client.get("/hpa/east/shop/checkout")).text()
    steps = re.findall(r'<p class="banner">[^<]*Next: ([^<]*)<', text)
    assert steps == [
        "fleethpa run observer --contexts east --kubeconfig FILE --brokers kafka:1",
        "fleethpa run reconciler --contexts east --kubeconfig FILE --brokers kafka:1",
    ]


async def test_replicas_are_as_old_as_the_last_report_and_not_as_the_evaluation_that_went_on_with_it(
    fleet: Fleet, run: Cli
) -> None:
    reported_ms = fleet.now_ms
    fleet.append(after_ms=20_000)
    evaluated = fleet.decisions()[-1]
    assert (evaluated.time_ms, evaluated.decision.reason) != (reported_ms, "FailedGetScale")
    fleet.append(after_ms=40_000)
    assert fleet.decisions()[-1].decision.reason == "FailedGetScale"
    async with browsing() as client:
        text = await (await client.get(f"/hpa/east/shop/checkout?at={rfc3339(fleet.now_ms)}")).text()
    assert '<b class="past">5<small>last known 60s ago</small></b>' in text


async def test_an_hpa_whose_scale_cannot_be_read_shows_the_last_known_replicas_and_never_0(
    fleet: Fleet, run: Cli
) -> None:
    fleet.append(after_ms=60_000)  # its observer is silent for too long
    assert fleet.decisions()[-1].decision.reason == "FailedGetScale"
    newest = fleet.decisions()[-1].decision.id
    async with browsing() as client:
        text = await (await client.get("/hpa/east/shop/checkout")).text()
        assert re.search(r'<b class="past">5<small>last known</small></b>', text), text
        fleet_then = f"/hpa/east/shop/checkout?at={rfc3339(fleet.now_ms)}"
        assert '<b class="past">5<small>last known 60s ago</small></b>' in await (await client.get(fleet_then)).text()
        assert '<b class="past">?</b>' in await (await client.get(f"/decision/{newest}")).text()


async def test_a_reading_that_failed_after_a_minute_is_no_reason_to_show_an_old_state(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How long a state may be shown follows from how long it takes to read one."""
    clock_s = 1_000.0
    clock = SimpleNamespace(monotonic=lambda: clock_s, time_ns=time.time_ns)
    monkeypatch.setattr("fleethpa.page.livereader.time", clock)

    async def stalled(past: Past) -> FleetState:
        nonlocal clock_s
        clock_s += STALL_S
        raise TimeoutError

    reader = LiveReader("kafka", Config(brokers="memory:1"))
    old = await reader.state_at(None)
    clock_s += STALE_S + 1
    with monkeypatch.context() as patched:
        patched.setattr("fleethpa.page.livereader.read_state", stalled)
        known = await reader.state_at(None)
        assert (known.clock_ms, known.is_last_known, old.is_last_known) == (old.clock_ms, True, False)
        assert reader.problem
    fleet.observe(5, 300)
    clock_s += STALE_S + 1
    assert (await reader.state_at(None)).clock_ms > old.clock_ms
    assert not reader.problem
    await reader.close()


@pytest.mark.parametrize("turns", range(4))
async def test_a_browser_that_goes_at_the_moment_of_a_change_is_let_go(fleet: Fleet, turns: int) -> None:
    reader = LiveReader("kafka", Config(brokers="memory:1"))
    waiting = asyncio.create_task(reader.changed(0, 30))
    for _ in range(10):  # into its wait
        await asyncio.sleep(0)
    async with reader._changed:
        reader.version += 1
        reader._changed.notify_all()
    for _ in range(turns):
        await asyncio.sleep(0)
    is_done = waiting.done()
    waiting.cancel()
    await asyncio.wait({waiting}, timeout=PATIENCE_S)
    assert waiting.cancelled() != is_done


@pytest.mark.parametrize("wanted", ["app0", "app1", "nobody"])
async def test_decisions_of_one_hpa_are_those_among_all(wanted: str) -> None:
    """Records of others are passed over by their heads."""
    made = topics_of(GeneratedFleet(hpas=4, namespaces=1, minutes=3, settings=ENFORCING))
    past = MemoryPast(made)
    everything = [each async for each in past.decisions(0, START_MS + 40_000, START_MS + 150_000)]
    mine = [
        each async for each in past.decisions(0, START_MS + 40_000, START_MS + 150_000, lambda hpa: hpa.name == wanted)
    ]
    assert mine == [each for each in everything if each.decision.name == wanted]
    assert bool(mine) == (wanted != "nobody")


async def test_the_timeline_of_a_long_span_is_read_backwards_until_there_are_enough_lines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fleet = GeneratedFleet(hpas=1, namespaces=1, minutes=20, settings=ENFORCING)
    past = MemoryPast(topics_of(fleet))
    hpa, at_ms, span_ms = HpaId("c0", "ns0", "app0"), START_MS + 20 * 60_000, 3_600_000
    everything = HpaPast((await read_decisions(past, hpa, at_ms, span_ms))[0], (), is_whole=False)
    lines = timeline(everything)
    for shown_lines in (1, len(lines) // 2, len(lines), len(lines) + 1):
        monkeypatch.setattr("fleethpa.page.hpaview.TIMELINE", shown_lines)
        monkeypatch.setattr("fleethpa.page.hpapast.TIMELINE", shown_lines)
        monkeypatch.setattr("fleethpa.page.hpapast.FIRST_PART_MS", 60_000)
        read, whole_ms = await read_timeline(past, hpa, at_ms, span_ms)
        assert whole_ms == 0
        assert timeline(HpaPast(read, (), is_whole=False)) == lines[:shown_lines]
        assert (len(read) < len(everything.decisions)) == (shown_lines < len(lines))
        assert newest_of(read) == newest_of(everything.decisions)
        assert newest_of(read) == (await find_decision(past, str(hpa), None, at_ms=at_ms))[:2]


async def test_a_decision_is_evaluated_again_once_for_all_views_of_it(fleet: Fleet) -> None:
    past = fleet.past(None)
    found, *_ = await find_decision(past, "east/shop/checkout", None)
    kept = KeptEvaluations()
    first = await kept.of(past, found)
    read = past.log_records_read
    assert first.would is not None
    assert await kept.of(past, found) is first
    assert past.log_records_read == read


async def test_a_name_is_searched_among_the_hpas_and_a_wrong_one_is_answered_in_words(fleet: Fleet) -> None:
    names = [f"app-{number:03}" for number in range(100)]
    fleet.append(AutoscalerList(list_id="b", hpas=[hpa(), *map(hpa, names)], session="s"))

    async with browsing() as client:

        async def options(text: str) -> list[str | None]:
            answer = Shown(await (await client.get("/try/hpas", params={"hpa": text})).text())
            return [attributes["value"] for tag, attributes in answer.tags if tag == "option"]

        assert await options("") == [f"east/shop/{name}" for name in names[:MOST_NAMES]]
        assert await options("EAST check") == ["east/shop/checkout"]
        assert await options("nothing") == []
        meant = Shown(await (await client.get("/try", params={"hpa": "check"})).text())
        assert "on the recorded past of east/shop/checkout" in meant.text
        form = Shown(await (await client.get("/try")).text())
        assert sum(tag == "option" for tag, _ in form.tags) == MOST_NAMES
        for text, stated in (
            ("east/shop/chekout", "Did you mean east/shop/checkout?"),
            ("nowhere/shop/checkout", "HPAs of this name are east/shop/checkout."),
            ("a/b/c/d", "Write [CLUSTER/][NAMESPACE/]NAME"),
            ("app-05", "There is east/shop/app-050, east/shop/app-051, east/shop/app-052."),
        ):
            answer = Shown(await (await client.get("/try", params={"hpa": text})).text())
            assert stated in answer.text
            field = next(attributes for tag, attributes in answer.tags if attributes.get("id") == "hpa")
            assert (field["value"], field["aria-invalid"]) == (text, "true")


async def test_what_is_much_to_read_is_shown_in_part_and_asks_for_the_rest(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(html: str) -> dict[str, str | None]:
        return next(fields for tag, fields in Shown(html).tags if tag == "p" and fields.get("id") == "late")

    address = "/hpa/east/shop/checkout"
    monkeypatch.setattr("fleethpa.page.server.QUICK", Depth(most_folded=0, most_again=0))
    async with browsing() as client:
        first = late(await (await client.get(f"{address}?span=15m")).text())
        assert first["hx-get"] == f"{address}?span=15m&whole=1"
        assert "hidden" not in first
        assert "hidden" in late(await (await client.get(f"{address}?span=15m&whole=1")).text())
        assert "hidden" in late(await (await client.get(f"{address}?span=15m")).text()), "only what came since is read"
