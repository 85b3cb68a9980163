"""The page behind a proxy: who may see one namespace sees one namespace, in whatever the page shows."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer

from fleethpa.frame.configuration import Config
from fleethpa.frame.listening import names_of
from fleethpa.page import seenpages
from fleethpa.page.guarding import Guard
from fleethpa.page.livereader import LiveReader
from fleethpa.page.seenpages import SeenPages
from fleethpa.page.server import PageServer
from reconciler.clusters.answers import UnreachableError
from schemas.entries import WHOLE_PARTITION_KEY
from schemas.observed import AutoscalerList, AutoscalerSet, Command
from schemas.settings import SettingsSet
from streams.history.seenpast import SeenParts, SeenScope
from tests.kit.cli import SETTINGS, Cli, Fleet, hpa
from tests.kit.page import Shown, over

TOKEN = "a-token-of-the-proxy"
GUARD = Guard(names_of("127.0.0.1", ()), TOKEN, "X-Forwarded-User", "X-Forwarded-Groups")
HIDDEN = ("payroll", "westminster")
"""A namespace and a cluster that a user of the team shop may not see."""
SHOP = SeenParts([SeenScope(["east"], ["shop"])])


def by(user: str = "anna", groups: str = "team-shop") -> dict[str, str]:
    return {"Authorization": f"Bearer {TOKEN}", "X-Forwarded-User": user, "X-Forwarded-Groups": groups}


@pytest.fixture
def fleet(monkeypatch: pytest.MonkeyPatch) -> Fleet:
    """HPAs of one name in a namespace that is seen, in one that is not, and in a cluster that is not."""
    made = Fleet()
    made.append(SettingsSet(cluster="*", settings=SETTINGS), key=WHOLE_PARTITION_KEY)
    for cluster, namespace in (("east", "payroll"), ("westminster", "shop"), ("east", "shop")):
        made.cluster, made.namespace = cluster, namespace
        made.append(AutoscalerList(list_id="a", hpas=[hpa(namespace=namespace)], session="s"))
        made.observe(3, 300)
        made.observe(3, 900)
        lost = AutoscalerSet(hpa=hpa("lost", namespace), origin="central", mode="shadow")
        made.append(lost)
        made.append(Command(command="pause", name="checkout", author="x", reason=f"{namespace} of {cluster}"))
    made.checkpoint()
    over(made, monkeypatch)
    return made


class Hub:
    """Says what users may see, by their groups."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, tuple[str, ...]]] = []
        self.is_away = False

    async def __call__(self, user: str, groups: tuple[str, ...]) -> SeenParts | None:
        self.asked.append((user, groups))
        if self.is_away:
            raise UnreachableError("no answer within 5 s")
        if "admins" in groups:
            return None
        scopes = [SeenScope(["east"], [each.removeprefix("team-")]) for each in groups if each.startswith("team-")]
        return SeenParts(scopes)


@pytest.fixture
def hub() -> Hub:
    return Hub()


@pytest.fixture
async def client(fleet: Fleet, hub: Hub) -> AsyncIterator[TestClient[Any, Any]]:
    def make(seen: SeenParts | None) -> PageServer:
        return PageServer(LiveReader("kafka", Config(brokers="memory:1"), seen), GUARD, {}, "memory:1")

    async with TestClient(TestServer(SeenPages(GUARD, hub, make).app())) as found:
        yield found


def addresses(fleet: Fleet, namespace: str, cluster: str = "east") -> Iterator[str]:
    """Addresses about one HPA, and about all of them."""
    ids = [
        each.decision.id for each in fleet.decisions() if (each.hpa.cluster, each.hpa.namespace) == (cluster, namespace)
    ]
    whole = f"{cluster}/{namespace}/checkout"
    yield from ("/", "/?q=checkout", "/?sort=replicas", f"/?q=ns:{namespace}", "/fleet/replay", "/changes?show=all")
    yield from (f"/changes?q={namespace}&show=all", "/changes/newer?after=0", "/clusters", "/rollouts", "/rollout/x")
    yield from (f"/find?q={namespace}", f"/find?q={ids[-1]}", f"/hpa/{whole}", f"/hpa/{whole}?whole=1&show=all")
    yield from (f"/hpa/{whole}/series", f"/hpa/{whole}/spec?one=0&other=1", "/capacity/x", "/try", f"/try?hpa={whole}")
    yield from (f"/try/hpas?q={namespace}", "/try/hpas?q=che", f"/try/ghost?hpa={whole}", "/audit", "/nosuch")
    yield from (f"/decision/{ids[-1]}", f"/decision/{ids[0]}/verify", f"/diff?other={ids[-1]}")


async def text_at(client: TestClient[Any, Any], path: str, **headers: str) -> tuple[int, str]:
    answer = await client.get(path, headers=by() | headers, allow_redirects=False)
    return answer.status, await answer.text() + str(answer.headers)


async def test_no_address_says_anything_of_what_may_not_be_seen(client: TestClient[Any, Any], fleet: Fleet) -> None:
    statuses = {}
    for path in dict.fromkeys(addresses(fleet, "shop")):
        status, text = await text_at(client, path)
        statuses[path] = status
        assert status < 500, (path, text)
        for name in HIDDEN:
            assert name not in text, path
    refused = {path.rpartition("/")[2] for path, status in statuses.items() if status == 403}
    assert refused == {"audit", "verify"}
    absent = {path.partition("?")[0] for path, status in statuses.items() if status == 404}
    assert absent == {"/rollout/x", "/capacity/x", "/nosuch", "/diff"}


@pytest.mark.parametrize(("namespace", "cluster"), [("payroll", "east"), ("shop", "westminster")])
async def test_what_may_not_be_seen_is_answered_as_what_is_not_there(
    client: TestClient[Any, Any], fleet: Fleet, namespace: str, cluster: str
) -> None:
    whole = f"{cluster}/{namespace}/checkout"
    hidden = namespace if namespace in HIDDEN else cluster
    nothing = whole.replace(hidden, "nowhere")
    last = [each.decision.id for each in fleet.decisions() if str(each.hpa) == whole][-1]
    status, text = await text_at(client, f"/hpa/{whole}")
    other_status, other = await text_at(client, f"/hpa/{nothing}")

    assert (status, Shown(text).text) == (other_status, Shown(other).text.replace("nowhere", hidden))
    for path in (f"/decision/{last}", f"/decision/{last}/verify", f"/diff?other={last}"):
        found, text = await text_at(client, path)
        none, _ = await text_at(client, path.replace(last, last.replace("-uid-", "-none-")))
        assert found == none, path
        assert found in (403, 404), path
        assert whole not in text


async def test_counts_are_of_what_may_be_seen_and_an_admin_sees_all(client: TestClient[Any, Any]) -> None:
    _, own = await text_at(client, "/")
    _, whole = await text_at(client, "/", **{"X-Forwarded-Groups": "admins"})
    _, again = await text_at(client, "/")

    assert _links(own) == _links(again) == ["/hpa/east/shop/checkout", "/hpa/east/shop/lost"]
    assert len(_links(whole)) == 3 * len(_links(own))
    assert "per second" not in own
    for name in HIDDEN:
        assert name in whole
        assert name not in again


def _links(html: str) -> list[str]:
    """The HPAs that a view leads to."""
    found = {str(attributes.get("href")).partition("?")[0] for tag, attributes in Shown(html).tags if tag == "a"}
    return sorted(each for each in found if each.startswith("/hpa/"))


async def test_a_view_of_the_log_of_the_whole_fleet_is_refused(client: TestClient[Any, Any]) -> None:
    status, text = await text_at(client, "/audit")
    assert status == 403
    assert "you may see a part of the fleet" in Shown(text).text


@pytest.mark.parametrize(
    ("headers", "status", "words"),
    [
        pytest.param({"X-Forwarded-User": ""}, 401, "needs", id="nobody is named"),
        pytest.param({"X-Forwarded-User": "system:admin"}, 401, "begins with `system:`", id="a user of Kubernetes"),
        pytest.param({"X-Forwarded-Groups": "a, system:masters"}, 401, "begins with `system:`", id="its group"),
        pytest.param({"X-Forwarded-Groups": ""}, 403, "you may see nothing", id="no group"),
        pytest.param({"Authorization": "Bearer wrong"}, 401, "the token", id="not the proxy"),
    ],
)
async def test_only_the_proxy_may_name_a_user_and_only_one_who_may_see_something(
    client: TestClient[Any, Any], headers: dict[str, str], status: int, words: str
) -> None:
    found, text = await text_at(client, "/", **headers)
    assert found == status
    assert words in text
    assert "shop" not in Shown(text).text.replace("X-Forwarded", "")


def basic(user: str, password: str) -> str:
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


async def test_a_proxy_may_send_the_token_as_the_password_of_basic_authentication(client: TestClient[Any, Any]) -> None:
    right, _ = await text_at(client, "/", Authorization=basic("anna", f"{TOKEN}\n"))
    for wrong in (basic("anna", "wrong"), basic(TOKEN, ""), "Basic", "Basic %", f"Digest {TOKEN}"):
        status, _ = await text_at(client, "/", Authorization=wrong)
        assert status == 401, wrong
    assert right == 200


async def test_a_second_name_of_a_user_is_refused(client: TestClient[Any, Any], hub: Hub) -> None:
    lines = [*by().items(), ("X-Forwarded-User", "root")]
    answer = await client.get("/", headers=lines)
    assert answer.status == 401
    assert not hub.asked


async def test_while_the_hub_does_not_say_it_nothing_is_shown(client: TestClient[Any, Any], hub: Hub) -> None:
    await text_at(client, "/")
    hub.is_away = True
    status, text = await text_at(client, "/")
    assert status == 503
    assert "no answer within 5 s" in text
    assert "checkout" not in text


async def test_parts_that_nobody_looks_at_make_room_for_others(
    client: TestClient[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seenpages, "MOST_PARTS", 2)
    for team in ("shop", "payroll", "none", "shop"):
        status, text = await text_at(client, "/", **{"X-Forwarded-Groups": f"team-{team}"})
        assert status == 200
        assert ("payroll" in text) is (team == "payroll")

    live = [await client.get("/live", headers=by(groups=f"team-{team}")) for team in ("shop", "payroll")]
    full, text = await text_at(client, "/", **{"X-Forwarded-Groups": "team-none"})
    assert full == 503
    assert "no room for you now" in text
    for each in live:
        each.close()
    async with asyncio.timeout(30):
        while (await text_at(client, "/", **{"X-Forwarded-Groups": "team-none"}))[0] != 200:
            await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("arguments", "stated"),
    [
        ("--host 0.0.0.0 --allowed-host x --behind-proxy X-User --api hub", "could name any user"),
        ("--behind-proxy X-User --proxy-groups X-Groups", "--proxy-groups needs --behind-proxy and --api"),
    ],
)
def test_a_start_that_would_believe_anybody_is_refused(
    monkeypatch: pytest.MonkeyPatch, arguments: str, stated: str
) -> None:
    found = Cli(monkeypatch)("page", *arguments.split())
    assert found.exit_code == 2
    assert stated in found.stderr
