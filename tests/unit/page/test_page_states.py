"""What the page says where there is nothing to show: what happened, and the next step."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer

from fleethpa.frame.configuration import Config
from fleethpa.page.livereader import LiveReader
from fleethpa.page.server import PageServer
from schemas.entries import WHOLE_PARTITION_KEY
from schemas.observed import AutoscalerList
from schemas.settings import SettingsSet
from tests.kit.archive import SMALL, write_archive
from tests.kit.cli import SETTINGS, Fleet, hpa
from tests.kit.page import LOCAL, Shown, browsing, over


async def shown(client: TestClient[Any, Any], path: str, status: int = 200) -> Shown:
    answer = await client.get(path)
    assert answer.status == status
    return Shown(await answer.text())


def links(view: Shown) -> set[str | None]:
    """The addresses of all links."""
    return {attributes.get("href") for tag, attributes in view.tags if tag == "a"}


@pytest.fixture
def fleet(monkeypatch: pytest.MonkeyPatch) -> Fleet:
    made = Fleet()
    over(made, monkeypatch)
    return made


async def test_a_log_without_records_is_called_so(fleet: Fleet) -> None:
    async with browsing() as client:
        view = await shown(client, "/")
        assert "No HPA is known yet." in view.text
        assert "no HPA has been reported. Next: fleethpa doctor" in view.text
        assert "No HPA matches." not in view.text
        for path in ("/", "/clusters", "/rollouts", "/audit", "/try"):
            text = (await shown(client, path)).text
            assert "without a record yet" in text
            assert "1970" not in text
        assert "Nothing has been decided yet." in (await shown(client, "/changes")).text


async def test_an_hpa_that_was_not_decided_yet_says_what_it_waits_for(fleet: Fleet) -> None:
    fleet.append(SettingsSet(cluster="*", settings=SETTINGS), key=WHOLE_PARTITION_KEY)
    fleet.append(AutoscalerList(list_id="a", hpas=[hpa()], session="s"))
    async with browsing() as client:
        view = await shown(client, "/hpa/east/shop/checkout")
        assert "east/shop/checkout has no decision yet It is decided when its scale, its pods" in view.text
        assert "Next: fleethpa doctor" in view.text
        assert "Nothing has been decided yet." in view.text


async def test_a_wrong_name_leads_to_the_one_that_was_meant(fleet: Fleet) -> None:
    fleet.settle()
    async with browsing() as client:
        for path in ("/hpa/east/shop/chekout", "/hpa/eats/shop/checkout"):
            await shown(client, "/")
            view = await shown(client, path, 404)
            assert "/hpa/east/shop/checkout" in links(view)
            assert "Next: fleethpa get hpa -A" in view.text
        nowhere = await shown(client, "/hpa/nowhere/shop/nothing", 404)
        assert "No cluster nowhere is known. Known are east. Next: fleethpa get clusters" in nowhere.text
        assert "Show all 1" in (await shown(client, "/?q=cluster:nowhere")).text
        assert "The views are" in (await shown(client, "/nowhere", 404)).text


async def test_a_moment_before_the_log_leads_to_the_same_view_as_of_now(fleet: Fleet) -> None:
    fleet.settle()
    async with browsing() as client:
        for path in ("/clusters", "/hpa/east/shop/checkout"):
            view = await shown(client, f"{path}?at=2020-01-01T00:00:00Z", 404)
            assert "the log has no record as old as 2020-01-01 00:00:00 It begins at" in view.text
            assert "Next: name a later time, or an archive that was begun earlier" in view.text
            assert path in links(view)


async def test_brokers_that_are_away_are_named_and_can_be_asked_again() -> None:
    server = PageServer(LiveReader("kafka", Config(brokers="127.0.0.1:1")), LOCAL, {}, "127.0.0.1:1")
    async with TestClient(TestServer(server.app())) as client:
        view = await shown(client, "/clusters?q=1", 503)
        assert "cannot talk to Kafka at 127.0.0.1:1" in view.text
        assert "Next: fleethpa doctor" in view.text
        assert "/clusters?q=1" in links(view)


async def test_an_archive_that_is_gone_is_named_with_what_can_be_done(tmp_path: Path) -> None:
    folder = write_archive(tmp_path / "archive", SMALL)
    server = PageServer(LiveReader(str(folder), Config()), LOCAL, {}, "")
    async with TestClient(TestServer(server.app())) as client:
        await shown(client, "/clusters")
        shutil.rmtree(folder)
        view = await shown(client, "/hpa/c0/ns0/app0", 400)
        assert f"--from {folder}: no such folder" in view.text
        assert "Next: name another folder, or make an archive: fleethpa admin archive --to DIR" in view.text
