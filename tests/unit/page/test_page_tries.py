"""What a browser is shown of a run on `/try` is the report that the command writes: tables and scores."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer

from fleethpa.frame.configuration import Config
from fleethpa.page.livereader import LiveReader
from fleethpa.page.server import PageServer
from tests.kit.archive import write_archive
from tests.kit.cli import Cli
from tests.kit.generated_log import Fleet
from tests.kit.page import LOCAL, Shown

APP = "c0/ns0/app0"
FLEET = Fleet(hpas=1, namespaces=1, minutes=36, partitions=1, metrics=1, seed=3, pods=6)
DEADLINE_S = 120.0


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_archive(tmp_path_factory.mktemp("archive") / "a", FLEET, segment_ms=600_000)


async def ended(client: TestClient[Any, Any], kind: str) -> str:
    """The view of this browser's run, once it frames its report."""
    until_s = time.monotonic() + DEADLINE_S
    while f"/{kind}/report" not in (text := await (await client.get(f"/{kind}/run")).text()):
        assert "progress" in text, text
        assert time.monotonic() < until_s, text
        await asyncio.sleep(0.1)
    return text


async def reported(client: TestClient[Any, Any], question: str) -> tuple[str, str]:
    """Ask a question on the page: the view at the end of the run, and the report that it frames."""
    form = await (await client.get(f"/try?hpa={APP}")).text()
    assert f'value="{question}"' in form
    manifest = next(data for data in Shown(form).texts if "kind: HorizontalPodAutoscaler" in data)
    data = {"hpa": APP, "manifest": manifest, "since": "1h", "model": "closed", "question": question}
    answer = await client.post("/try", data=data)
    assert answer.status == 200, await answer.text()
    return await ended(client, "try"), await (await client.get("/try/report")).text()


async def test_an_hpa_to_try_is_one_click_away(archive: Path) -> None:
    server = PageServer(LiveReader(str(archive), Config(brokers="none:1")), LOCAL, {}, "none:1")
    async with TestClient(TestServer(server.app())) as client:
        shown = Shown(await (await client.get("/try")).text())
        (address,) = {found["href"] for tag, found in shown.tags if tag == "a" and "/try?" in (found.get("href") or "")}
        assert "minReplicas" in await (await client.get(address or "")).text()


async def test_the_page_shows_what_an_upgrade_would_change(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEETHPA_RUNTIME_DIR", str(tmp_path))
    source = str(archive)
    server = PageServer(LiveReader(source, Config(brokers="none:1")), LOCAL, {"source": source}, "none:1")
    async with TestClient(TestServer(server.app())) as client:
        assert 'href="/upgrade"' in await (await client.get("/clusters")).text()
        refused = await client.post("/upgrade", data={"to": "1.20", "since": "1h"})
        assert "there is no version" in await refused.text()
        refused = await client.post("/upgrade", data={"to": "1.37", "since": "1h", "cluster": "nowhere"})
        assert "There are c0." in Shown(await refused.text()).text
        answer = await client.post("/upgrade", data={"to": "1.38", "since": "1h", "cluster": "c0"})
        assert answer.status == 200, await answer.text()
        view = await ended(client, "upgrade")
        shown = await (await client.get("/upgrade/report")).text()
    assert f"fleethpa upgrade-preview -A --to=1.38 --since=1h -C c0 --from {source}" in Shown(view).text
    assert "Kubernetes 1.38 is not released" in shown


@pytest.mark.slow
async def test_the_page_shows_the_reports_of_the_commands(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """tune: the table; backtest: the scores. Word by word what a terminal would write."""
    monkeypatch.setenv("FLEETHPA_RUNTIME_DIR", str(tmp_path))
    source = str(archive)
    server = PageServer(LiveReader(source, Config(brokers="none:1")), LOCAL, {"source": source}, "none:1")
    run = Cli(monkeypatch)
    async with TestClient(TestServer(server.app())) as client:
        for question, parts in (("tune", ("TOO MANY", "ideal autoscaler", "the deployed spec, in the model")),):
            view, shown = await reported(client, question)
            file = tmp_path / f"{question}.html"
            command = (question, APP, "--since=1h", "--from", source, "--html", str(file))
            assert (await asyncio.to_thread(run, *command)).exit_code == 0
            assert shown == file.read_text(encoding="utf-8")
            assert f"fleethpa {question} {APP} --since=1h --from {source}" in Shown(view).text
            assert all(part in shown for part in parts), shown
        _, shown = await reported(client, "backtest")
        for score in ("over-provisioning", "under-provisioning", "instability", "slack"):
            assert score in shown.lower()


async def test_what_was_recorded_of_an_hpa_is_saved_as_a_bundle_that_verbs_read(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEETHPA_RUNTIME_DIR", str(tmp_path))
    source = str(archive)
    server = PageServer(LiveReader(source, Config(brokers="none:1")), LOCAL, {"source": source}, "none:1")
    async with TestClient(TestServer(server.app())) as client:
        shown = Shown(await (await client.get(f"/hpa/{APP}?at=2m&span=15m")).text())
        action = next(each["action"] for tag, each in shown.tags if tag == "form" and each.get("method") == "post")
        assert action
        saved = await client.post(action)
        content = await saved.read()
        assert saved.status == 200, content
        assert 'filename="app0-2026-01-01T003' in saved.headers["Content-Disposition"]
        unknown = await client.post("/hpa/c0/ns0/nobody/bundle")
        assert (unknown.status, "no HPA c0/ns0/nobody" in await unknown.text()) == (400, True)
        foreign = await client.post(action, headers={"Origin": "http://elsewhere.example"})
        assert foreign.status == 403
    file = tmp_path / "app0.tar"
    file.write_bytes(content)
    explain = ("explain", APP, "--at", "2026-01-01T00:33:00Z", "--from", str(file))
    found = await asyncio.to_thread(Cli(monkeypatch), *explain)
    assert found.exit_code == 0, found.output
