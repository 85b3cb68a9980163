"""The page's rollouts: what `rollout status` says, from a fleet in which one has gone out."""

from __future__ import annotations

import asyncio
import csv
import io
from typing import Any

import pytest

from tests.unit.page_kit import Shown, browsing, over
from tests.unit.test_rollout import Waves


@pytest.fixture
def waves(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Waves:
    made = Waves(monkeypatch, tmp_path)
    over(made.fleet, monkeypatch)
    return made


async def _shown(address: str, status: int = 200) -> Shown:
    async with browsing() as client:
        answer = await client.get(address)
        assert answer.status == status, await answer.text()
        return Shown(await answer.text())


async def test_rollouts_say_what_rollout_status_says(waves: Waves) -> None:
    assert (await asyncio.to_thread(waves.begin)).exit_code == 0
    waves.fleet.checkpoint()
    rows = list(
        csv.DictReader(io.StringIO((await asyncio.to_thread(waves.cli, "rollout", "status", "-o", "csv")).stdout))
    )
    found = await _shown("/rollouts")
    assert len(rows) == 1
    for header in ("ROLLOUT", "STATE", "WAVE", "CLUSTERS", "BY", "REASON"):
        assert found.cells[header] == [row[header.lower()] for row in rows], header
    lines = (await asyncio.to_thread(waves.cli, "rollout", "status", rows[0]["rollout"])).stdout.splitlines()
    text = (await _shown(f"/rollout/{rows[0]['rollout']}")).text
    for line in lines:
        label, _, said = line.partition("  ")
        assert label in text
        assert said.strip() in text
    assert "c05/shop/checkout wave 3" in text


async def test_a_reverted_rollout_says_why_and_which_hpas_have_their_earlier_spec(waves: Waves) -> None:
    assert (await asyncio.to_thread(waves.begin, target=600)).exit_code == 1
    (id_,) = (await _shown("/rollouts")).cells["ROLLOUT"]
    text = (await _shown(f"/rollout/{id_}")).text
    assert "reverted (wave 1" in text
    assert "c00/shop/checkout reverted" in text
    assert "c01/shop/checkout" not in text


async def test_without_a_rollout_the_page_says_how_to_begin_one(waves: Waves) -> None:
    assert "No HPA carries a rollout" in (await _shown("/rollouts")).text
    assert "no rollout r-nobody" in (await _shown("/rollout/r-nobody", status=404)).text
