"""The hub's reading API: who may ask what, and what somebody sees who may see a part."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import threading
from collections.abc import AsyncIterator, Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from fleethpa.cli.main import cli
from fleethpa.fleet.members import hub_cluster
from fleethpa.frame import remote
from fleethpa.frame.configuration import load
from fleethpa.frame.errors import INTERNAL, TIMED_OUT, UNREACHABLE, CommandError
from fleethpa.frame.remote import COMMAND_TYPE, hub_address
from fleethpa.frame.sources import SEEN
from fleethpa.hub.reading import (
    AT_ONCE,
    MOST_WAITING,
    MOST_WARNINGS,
    READS,
    ReadingApi,
    ReadVerb,
    RefusedRequestError,
    Reviews,
    VerbAnswer,
    VerbTurns,
    openapi,
    parameters_of,
    runner,
)
from schemas.settings import ClusterSettings, SettingsSet
from streams.history.archivepast import ArchivePast
from streams.history.past import Past
from streams.history.seenpast import SeenParts, SeenPast, SeenScope
from tests.kit.archive import write_archive
from tests.kit.cli import Cli
from tests.kit.hubapi import HubApi, template
from tests.kit.hubreviews import ReviewingCluster

SHOP = SeenParts([SeenScope(["east"], ["shop"])])


@pytest.mark.parametrize("verb", READS.values(), ids=lambda verb: verb.path)
def test_no_parameter_of_the_api_names_a_file_a_host_or_a_credential(verb: ReadVerb) -> None:
    known = parameters_of(cli, verb)
    assert {*verb.allowed} <= known.keys(), "a name that the verb does not have"
    assert not {"source", "brokers", "kafka_config", "config", "kubeconfig", "debug", "watch", "follow"} & known.keys()
    assert not [each for each in known.values() if isinstance(each.type, click.Path | click.File)]


class Ran:
    """Stands for what runs a verb."""

    def __init__(self) -> None:
        self.calls: list[tuple[list[str], SeenParts | None]] = []
        self.answer = VerbAnswer(0, b'{"items": []}', "")

    async def __call__(self, arguments: Sequence[str], seen: SeenParts | None) -> VerbAnswer:
        self.calls.append((list(arguments), seen))
        return self.answer


@pytest.fixture
def cluster() -> ReviewingCluster:
    return ReviewingCluster()


@pytest.fixture
def ran() -> Ran:
    return Ran()


@pytest.fixture
async def client(cluster: ReviewingCluster, ran: Ran) -> AsyncIterator[TestClient[Any, Any]]:
    app = web.Application()
    app.add_routes(ReadingApi(cli, Reviews(cluster), ran).routes())  # type: ignore[arg-type]  # stands for a client
    async with TestClient(TestServer(app)) as found:
        yield found


def by(name: str, **headers: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {name}"} | headers


async def test_a_reader_gets_a_verb_run_for_what_the_hub_lets_them_see(client: TestClient[Any, Any], ran: Ran) -> None:
    answer = await client.get("/api/v1/get/hpa?namespace=shop&problem=true", headers=by("anna"))

    assert (answer.status, await answer.json()) == (200, {"items": []})
    expected = ["get", "hpa", "--output=json", "--namespace=shop", "--problem", "--"]
    assert ran.calls == [(expected, SHOP)]


async def test_an_administrator_sees_everything_and_a_glob_of_namespaces_those_that_are_there(
    client: TestClient[Any, Any], cluster: ReviewingCluster, ran: Ran
) -> None:
    cluster.rights.add(("ben", "centralhpas", "pay"))
    await client.get("/api/v1/get/clusters", headers=by("root"))
    await client.get("/api/v1/get/clusters", headers=by("ben"))

    assert [seen for _, seen in ran.calls] == [None, SeenParts([SeenScope(["*"], ["pay-*"])])]


@pytest.mark.parametrize(
    ("path", "headers", "status", "text"),
    [
        ("get/hpa", {}, 401, "give a bearer token"),
        ("get/hpa", {"Authorization": "Basic YTpi"}, 401, "give a bearer token"),
        ("get/hpa", by("mallory"), 401, "does not know this token"),
        ("get/hpa", by("ben"), 403, "may see no namespace"),
        ("settings", by("anna"), 404, "there is no such address"),
        ("get/hpa?source=/etc", by("anna"), 400, "takes no source"),
        ("get/hpa?kafka_config=/etc/passwd", by("anna"), 400, "takes no kafka_config"),
        ("get/hpa?problem=maybe", by("anna"), 400, "true or false"),
        ("get/hpa?names=" + "x" * 5_000, by("anna"), 414, "at most"),
        ("backtest?settings=cpu=50%25&files=/etc/passwd", by("anna"), 400, "takes no files"),
        ("decisions?since=1h&since=2h", by("anna"), 400, "since is given 2 times"),
        ("explain", by("anna"), 400, "explain needs what"),
        ("explain?what=a%00b", by("anna"), 400, "what has a character that no command takes"),
        ("doctor", by("anna"), 403, "about the whole fleet, of which anna may see a part"),
    ],
)
async def test_what_is_refused_has_a_reason_and_runs_nothing(
    client: TestClient[Any, Any], ran: Ran, path: str, headers: dict[str, str], status: int, text: str
) -> None:
    answer = await client.get(f"/api/v1/{path}", headers=headers)

    assert answer.status == status
    assert text in (await answer.json())["error"]
    assert ran.calls == []


async def test_verbs_run_two_at_a_time_and_beyond_a_bound_none_waits() -> None:
    running, most, may_end = 0, 0, asyncio.Event()

    async def run(_: Sequence[str], __: SeenParts | None) -> VerbAnswer:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await may_end.wait()
        running -= 1
        return VerbAnswer(0, b"", "")

    turns = VerbTurns(run)
    tasks = [asyncio.create_task(turns.run([], None)) for _ in range(MOST_WAITING)]
    await asyncio.sleep(0)
    assert running == AT_ONCE
    with pytest.raises(RefusedRequestError, match="16 requests wait already"):
        await turns.run([], None)
    may_end.set()
    assert [answer.code for answer in await asyncio.gather(*tasks)] == [0] * MOST_WAITING
    assert most == AT_ONCE
    assert (await turns.run([], None)).code == 0


async def test_a_value_is_never_taken_for_an_option(client: TestClient[Any, Any], ran: Ran) -> None:
    path = "/api/v1/decisions?names=--from=/etc&reason=--help&since=-o"
    await client.get(path, headers=by("anna"))

    ((arguments, _),) = ran.calls
    assert arguments == ["decisions", "--output=json", "--reason=--help", "--since=-o", "--", "--from=/etc"]


async def test_reviews_count_for_ten_seconds_and_none_is_guessed_while_the_api_is_away(
    client: TestClient[Any, Any], cluster: ReviewingCluster
) -> None:
    await client.get("/api/v1/get/hpa", headers=by("anna"))
    count = len(cluster.asked)
    await client.get("/api/v1/status", headers=by("anna"))
    assert len(cluster.asked) == count

    cluster.is_away = True
    answer = await client.get("/api/v1/get/hpa", headers=by("root"))
    assert answer.status == 503


async def test_a_command_gets_all_that_was_printed_and_the_exit_code(client: TestClient[Any, Any], ran: Ran) -> None:
    ran.answer = VerbAnswer(1, b"NAME\n", "warning: x\n")
    answer = await client.get("/api/v1/status", headers=by("anna", Accept=COMMAND_TYPE))
    assert msgspec.json.decode(await answer.read()) == {"out": "NAME\n", "err": "warning: x\n", "code": 1}

    ran.answer = VerbAnswer(4, b"", "Error: no hpa shop/web\n")
    answer = await client.get("/api/v1/explain?what=web", headers=by("anna"))
    assert (answer.status, await answer.json()) == (404, {"error": "Error: no hpa shop/web"})


async def test_what_is_only_last_known_is_an_answer_with_its_warnings(client: TestClient[Any, Any], ran: Ran) -> None:
    said = 'warning: the decider "hangs" → old\n a remark\nwarning: cluster east is away\n'
    ran.answer = VerbAnswer(5, b'{"items": []}', said)
    answer = await client.get("/api/v1/get/hpa", headers=by("anna"))
    assert (answer.status, await answer.json()) == (200, {"items": []})
    assert answer.headers["Fleethpa-Exit-Code"] == "5"
    warned = ['299 - "the decider \\"hangs\\" ? old"', '299 - "cluster east is away"']
    assert answer.headers.getall("Warning") == warned
    ran.answer = VerbAnswer(0, b"{}", "warning: x\n" * 1_000)
    answer = await client.get("/api/v1/get/hpa", headers=by("anna"))
    assert len(answer.headers.getall("Warning")) == MOST_WARNINGS


@pytest.mark.parametrize(("code", "status"), [(2, 400), (3, 503), (70, 500), (124, 504)])
async def test_a_verb_that_cannot_answer_says_why_and_what_comes_next(
    client: TestClient[Any, Any], ran: Ran, code: int, status: int
) -> None:
    ran.answer = VerbAnswer(code, b"", "Error: Kafka does not answer\n  Next: fleethpa doctor\n")
    answer = await client.get("/api/v1/get/hpa", headers=by("anna"))
    assert answer.status == status
    assert (await answer.json())["error"].endswith("Next: fleethpa doctor")


async def test_an_archive_that_is_missing_is_no_fault_of_who_asks(tmp_path: Path) -> None:
    answer = await runner({}, str(tmp_path / "gone"), for_others=True)(["get", "hpa", "--"], None)
    assert answer.code == UNREACHABLE
    assert "Next: " in answer.err
    assert str(tmp_path) not in answer.err


async def test_the_description_needs_no_token_and_names_every_parameter(client: TestClient[Any, Any]) -> None:
    found = await (await client.get("/api/v1/openapi.json")).json()
    assert found == json.loads(json.dumps(openapi(cli)))
    names = [each["name"] for each in found["paths"]["/api/v1/decisions"]["get"]["parameters"]]
    assert "since" in names
    tried = {each["name"]: each for each in found["paths"]["/api/v1/backtest"]["get"]["parameters"]}
    assert tried["settings"]["schema"] == {"type": "array", "items": {"type": "string"}}
    assert tried["model"]["schema"] == {"type": "string", "enum": ["closed", "open"]}
    assert all(path["get"]["summary"] for path in found["paths"].values())


# --- what is seen -----------------------------------------------------------------------------------------------------


@pytest.fixture
def fleet() -> HubApi:
    """Two teams in two clusters."""
    made = HubApi(("east", "west"))
    for team in ("shop", "pay"):
        made.grant(team, "*")
        made.apply("CentralHPA", f"{team}-web", {"clusters": ["*"], "template": template()}, team)
    made.fleet.append(SettingsSet(cluster="west", settings=ClusterSettings(price="0.4")), key="*")
    asyncio.run(made.settle())
    return made


def ran_as(fleet: HubApi, monkeypatch: pytest.MonkeyPatch, seen: SeenParts | None, *arguments: str) -> Any:
    """A command, as the API runs it for somebody."""
    from fleethpa.frame import sources

    run = Cli(monkeypatch, fleet.fleet)
    opened = sources.open_past

    def restricted(*given: Any) -> Any:
        return _Opened(opened(*given))

    monkeypatch.setattr("fleethpa.frame.sources.open_past", restricted)
    if seen is None:
        monkeypatch.delenv(SEEN, raising=False)
    else:
        monkeypatch.setenv(SEEN, msgspec.json.encode(seen).decode())
    return run(*arguments)


class _Opened:
    def __init__(self, opened: Any) -> None:
        self._opened = opened

    async def __aenter__(self) -> Any:
        from fleethpa.frame.sources import as_seen

        return as_seen(await self._opened.__aenter__())

    async def __aexit__(self, *error: Any) -> Any:
        return await self._opened.__aexit__(*error)


@pytest.mark.parametrize(
    "arguments",
    [
        ("get", "hpa", "-A", "-o", "json"),
        ("get", "hpa", "-A", "-o", "wide"),
        ("get", "clusters", "-o", "json"),
        ("get", "capacitygroups"),
        ("status",),
        ("decisions", "-A", "-o", "json"),
        ("explain", "west/pay/pay-web"),
        ("explain", "shop/pay-web"),
        ("describe", "east/pay/pay-web"),
        ("history", "east/pay/pay-web"),
        ("explain", "east/shop/nosuch"),
        ("history", "pay-wbe"),
        ("what-if", "west/pay/pay-web", "--set", "maxReplicas=3"),
        ("what-if", "east/shop/shop-web", "--set", "maxReplicas=3"),
        ("backtest", "-A", "--set", "maxReplicas=3"),
        ("backtest", "-C", "west", "-A", "--set", "maxReplicas=3", "-o", "json"),
    ],
    ids=" ".join,
)
def test_who_sees_one_namespace_of_one_cluster_is_told_of_nothing_else(
    fleet: HubApi, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    found = ran_as(fleet, monkeypatch, SHOP, *arguments)

    text, typed = found.stdout + found.stderr, " ".join(arguments)
    assert found.exit_code != INTERNAL, text
    assert [hidden for hidden in ("west", "pay-web", "/pay") if hidden not in typed and hidden in text] == [], text


def test_who_sees_a_part_has_that_part_whole(fleet: HubApi, monkeypatch: pytest.MonkeyPatch) -> None:
    everything = json.loads(ran_as(fleet, monkeypatch, None, "get", "hpa", "-A", "-o", "json").stdout)["items"]
    part = json.loads(ran_as(fleet, monkeypatch, SHOP, "get", "hpa", "-A", "-o", "json").stdout)["items"]

    assert len(everything) == 4
    own = [each for each in everything if (each["cluster"], each["metadata"]["namespace"]) == ("east", "shop")]
    assert part == own


def test_who_sees_nothing_gets_nothing(fleet: HubApi, monkeypatch: pytest.MonkeyPatch) -> None:
    found = ran_as(fleet, monkeypatch, SeenParts(), "get", "hpa", "-A", "-o", "json")
    assert json.loads(found.stdout)["items"] == []


@pytest.mark.parametrize(
    "source", ["http://hub.example.com", "ftp://hub", "https://a:b@hub", "https://hub?x=y", "https://"]
)
def test_an_address_to_which_no_token_should_be_sent_is_refused(source: str) -> None:
    with pytest.raises(CommandError) as error:
        hub_address(source)
    assert error.value.code == 2


def test_an_address_of_this_machine_needs_no_encryption() -> None:
    assert hub_address("http://127.0.0.1:7080/") == "http://127.0.0.1:7080"


@pytest.fixture
def signed_in(tmp_path: Path) -> str:
    """A kubeconfig with a token for a hub."""
    context = {"cluster": "hub", "user": "ben"}
    file = tmp_path / "kubeconfig"
    file.write_text(
        json.dumps(
            {
                "clusters": [{"name": "hub", "cluster": {"server": "https://127.0.0.1:1"}}],
                "users": [{"name": "ben", "user": {"token": "t"}}],
                "contexts": [{"name": "aws/hub", "context": context}],
                "current-context": "aws/hub",
            }
        )
    )
    return str(file)


def test_a_hub_that_hangs_is_waited_for_no_longer_than_was_asked_for(
    monkeypatch: pytest.MonkeyPatch, signed_in: str
) -> None:
    monkeypatch.setattr("fleethpa.frame.session.SILENT_S", 0.0)
    with socket.create_server(("127.0.0.1", 0)) as hangs:  # it takes a connection, and says nothing
        hub = f"http://127.0.0.1:{hangs.getsockname()[1]}"
        arguments = ("get", "hpa", "-A", "--from", hub, "--kubeconfig", signed_in)
        found = Cli(monkeypatch)(*arguments, "--timeout", "2s")
        monkeypatch.setattr(remote, "_LONGEST_S", 2.0)
        unlimited = Cli(monkeypatch)(*arguments)
    assert (found.exit_code, unlimited.exit_code) == (TIMED_OUT, UNREACHABLE)
    for each in found, unlimited:
        waits, error, cause, step = each.stderr.splitlines()
        assert waits == f"{hub} has not answered for 0s; still waiting"
        assert error == f"Error: {hub} has not answered for 2s"
        assert "hangs" in cause
        assert "--api" not in step


def test_a_page_without_the_api_is_no_hub_that_lacks_a_verb(monkeypatch: pytest.MonkeyPatch, signed_in: str) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(404)

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as page:
        thread = threading.Thread(target=page.handle_request)
        thread.start()
        hub = f"http://127.0.0.1:{page.server_port}"
        found = Cli(monkeypatch)("get", "hpa", "-A", "--from", hub, "--kubeconfig", signed_in)
        thread.join()
    assert found.exit_code == UNREACHABLE
    assert found.stderr.startswith(f"Error: {hub} does not answer as a hub\n  HTTP 404 Not Found\n")
    assert "--api" in found.stderr


def test_a_hub_that_does_not_answer_is_named_with_the_next_step(
    monkeypatch: pytest.MonkeyPatch, signed_in: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    found = Cli(monkeypatch)("get", "hpa", "-A", "--from", f"http://127.0.0.1:{port}", "--kubeconfig", signed_in)
    assert found.exit_code == UNREACHABLE
    assert found.stderr == (
        f"Error: http://127.0.0.1:{port} does not answer as a hub\n  Connection refused\n"
        "  Next: see that it is the address of a page that was started with --api (docs/hub-api.md)\n"
    )


def test_the_context_of_the_hub_may_have_a_name_that_no_cluster_of_the_fleet_has(tmp_path: Path) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text(json.dumps({"contexts": [{"name": "arn:aws:eks:eu-west-1:1:cluster/hub", "context": {}}]}))
    config = load({"kubeconfig": str(file)})
    found = hub_cluster(config, "arn:aws:eks:eu-west-1:1:cluster/hub")
    assert (found.kubeconfig, found.context) == (str(file), "arn:aws:eks:eu-west-1:1:cluster/hub")
    with pytest.raises(CommandError, match="cannot be used") as refused:
        hub_cluster(config, "nosuch")
    assert "has no context 'nosuch'; it has arn:aws:eks:eu-west-1:1:cluster/hub" in refused.value.cause


def test_what_nobody_has_thought_about_shows_nothing() -> None:
    """A past for somebody refuses what `Past` has and it does not know, such as all records of a topic."""
    past = SeenPast(ArchivePast(Path("none")), SHOP)

    for name in ("records", "stretches", "unchecked", "backwards", "arriving", "fold_to", "snapshot_at"):
        assert hasattr(Past, name)
        with pytest.raises(AttributeError, match=f"{name} may show what somebody may not see"):
            getattr(past, name)
    with pytest.raises(AttributeError):
        past.at_ms = 1


def test_a_state_row_that_is_gone_is_named_to_those_alone_who_may_see_its_namespace() -> None:
    whole = ArchivePast(Path("none"))
    whole.rows_gone = {
        "0|p",
        "1|i/4.2",
        "0|h/east/shop/web",
        "0|n/east/shop#3",
        "0|h/west/pay/pay-web",
        "2|n/west/pay#0",
    }

    assert SeenPast(whole, SHOP).rows_gone == {"0|p", "1|i/4.2", "0|h/east/shop/web", "0|n/east/shop#3"}


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_archive(tmp_path_factory.mktemp("archive") / "a")


APP = "c0/ns0/app0"


@pytest.mark.parametrize(
    "arguments",
    [
        ("get", "hpa", APP, "-o", "json"),
        ("get", "hpa", APP, "--at", "1m", "-o", "wide"),
        ("decisions", APP, "--changes"),
        ("decisions", APP, "--since", "10m", "--until", "5m", "-o", "json"),
        ("decisions", APP, "--last", "3", "-o", "yaml"),
        ("explain", APP, "-o", "json"),
        ("explain", APP, "--no-counterfactuals"),
        ("explain", APP, "--change"),
        ("explain", f"{APP}@1m", "-o", "json"),
        ("describe", APP),
        ("describe", APP, "--at", "1m"),
        ("history", APP),
        ("history", APP, "--since", "1h", "-o", "json"),
        ("history", APP, "--revision", "1"),
        ("status", APP),
        ("what-if", APP, "--set", "maxReplicas=3"),
        ("what-if", f"{APP}@1m", "--metric", "cpu=+30%", "-o", "json"),
        ("backtest", APP, "--set", "maxReplicas=3"),
        ("backtest", APP, "--set", "cpu=50%", "--model", "open", "--since", "3m", "-o", "json"),
    ],
    ids=" ".join,
)
def test_of_what_somebody_may_see_they_are_told_what_an_administrator_is_told(
    archive: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    monkeypatch.setenv("FLEETHPA_RUNTIME_DIR", str(tmp_path))
    run = Cli(monkeypatch)
    monkeypatch.delenv(SEEN, raising=False)
    whole = run(*arguments, "--from", str(archive))
    monkeypatch.setenv(SEEN, msgspec.json.encode(SeenParts([SeenScope(["c0"], ["ns0"])])).decode())
    part = run(*arguments, "--from", str(archive))

    assert whole.stdout
    assert (part.exit_code, part.stdout, part.stderr) == (whole.exit_code, whole.stdout, whole.stderr)


async def test_a_hint_for_somebody_who_is_elsewhere_names_no_place_of_the_hub(tmp_path: Path) -> None:
    root = write_archive(tmp_path / "secret-place")
    answer = await runner({}, str(root), for_others=True)(["explain", "c0/ns0/nobody", "--"], None)
    assert answer.code == 4
    assert re.search(r"Next: fleethpa \w", answer.err), answer.err
    assert "secret-place" not in answer.err.partition("Next: ")[2]
