"""The page's rollouts: what `rollout status` says, from a fleet in which one has gone out."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleethpa.fleet.state import read_state
from fleethpa.page.rolloutview import RolloutReadings, read_rollout, waves_view
from fleethpa.rollouts import wavedrive as rolloutlisting
from fleethpa.rollouts.marks import rollouts_in
from schemas.decisions import Decision
from schemas.keys import HpaId
from streams.analysis.measures import EvaluatedMoment, condensed, moment_of, wave_measures
from tests.kit.cli import table_rows
from tests.kit.page import Shown, browsing, over
from tests.unit.rollouts.test_rollout import Waves


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
    rows = table_rows((await asyncio.to_thread(waves.cli, "rollout", "status", "-o", "wide")).stdout)
    found = await _shown("/rollouts")
    assert len(rows) == 1
    for header in ("ROLLOUT", "STATE", "WAVE", "CLUSTERS", "BY", "REASON"):
        assert found.cells[header] == [row[header] for row in rows], header
    lines = (await asyncio.to_thread(waves.cli, "rollout", "status", rows[0]["ROLLOUT"])).stdout.splitlines()
    text = (await _shown(f"/rollout/{rows[0]['ROLLOUT']}")).text
    for line in lines:
        label, _, stated = line.partition("  ")
        assert label in text
        assert stated.strip() in text
    assert "c05/shop/checkout wave 3" in text


async def test_a_reverted_rollout_says_why_and_which_hpas_have_their_earlier_spec(waves: Waves) -> None:
    assert (await asyncio.to_thread(waves.begin, target=600)).exit_code == 1
    (id_,) = (await _shown("/rollouts")).cells["ROLLOUT"]
    text = (await _shown(f"/rollout/{id_}")).text
    assert "reverted (wave 1" in text
    assert "c00/shop/checkout reverted" in text
    assert "c01/shop/checkout" not in text
    assert "Wave 1 reverted" in text
    assert "Wave 2 not begun" in text
    assert "What it changes" not in text, "the earlier spec is in force"
    # What the wave had, and what it changed, is as of before it was reverted.
    assert "met replicas_removed>30% : 80%" in text
    assert "What it changed in c00/shop/checkout" in text
    assert re.search(r"Reverted (\S+ )?\d\d:\d\d:\d\d \(", text)


async def test_a_rollout_shows_its_waves_with_times_the_conditions_with_values_and_what_it_changes(
    waves: Waves,
) -> None:
    assert (await asyncio.to_thread(waves.begin)).exit_code == 0
    waves.fleet.checkpoint()
    state, past = await read_state(waves.fleet.past()), waves.fleet.past()
    (id_,) = rollouts_in(state)
    found = await read_rollout(past, state, id_)
    assert [(wave.state, wave.style, wave.x, wave.width) for wave in found["waves"]] == [
        ("passed", "passed", 0.0, 16.67),
        ("passed", "passed", 16.67, 16.67),
        ("complete", "passed", 33.33, 66.67),
    ]
    assert all(wave.ends_ms - wave.begun_ms >= 45_000 for wave in found["waves"])
    assert [gate.text for gate in found["waves"][0].gates] == ["replicas_removed>30%", "at_max>+20%", "failing>+10%"]
    assert [gate.value for gate in found["waves"][0].gates] == ["0%", "0% (0% before)", "0% (0% before)"]
    (diff,) = found["diffs"]
    assert [hpa.cluster for hpa in diff.hpas] == ["c00", "c01", "c02", "c03", "c04", "c05"]
    added = [line for kind, line in diff.lines if kind == "added"]
    assert added == ["+      averageUtilization: 50"]
    text = (await _shown(f"/rollout/{id_}")).text
    assert "Wave 3 complete" in text
    assert "What it changes in c00/shop/checkout and 5 more" in text


async def test_a_wave_that_is_watched_has_come_as_far_as_its_time_and_one_without_an_evaluation_has_no_values(
    waves: Waves,
) -> None:
    assert (await asyncio.to_thread(waves.begin)).exit_code == 0
    state = await read_state(waves.fleet.past())
    ((_, rollout),) = rollouts_in(state).items()
    begun_ms, nobody = rollout.ends_ms(3) - rollout.plan.wait_ms, wave_measures({}, {next(iter(rollout.marks)): 3})
    *_, last = waves_view(rollout, begun_ms + rollout.plan.wait_ms // 2, [(nobody, nobody)] * 3)
    assert (last.state, last.style, round(last.done / last.width, 2)) == ("watched", "watched", 0.5)
    assert [(gate.value, gate.is_met) for gate in last.gates] == [("", False)] * 3


async def test_without_a_rollout_the_page_says_how_to_begin_one(waves: Waves) -> None:
    assert "There is no rollout to show." in (found := (await _shown("/rollouts")).text)
    assert "To begin one: fleethpa rollout -f hpa.yaml" in found
    assert "no rollout r-nobody" in (await _shown("/rollout/r-nobody", status=404)).text


async def test_a_live_update_reads_only_what_is_new(waves: Waves, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a view shows that kept its readings is what one shows that reads everything."""
    assert (await asyncio.to_thread(waves.begin)).exit_code == 0
    taken: list[int] = []

    def noted(decision: Decision, time_ms: int) -> EvaluatedMoment:
        taken.append(decision.seq)
        return moment_of(decision, time_ms)

    monkeypatch.setattr(rolloutlisting, "moment_of", noted)
    state = await read_state(waves.fleet.past())
    (id_,) = rollouts_in(state)
    readings = RolloutReadings()
    for _ in range(5):
        state, past = await read_state(waves.fleet.past()), waves.fleet.past()
        kept = await read_rollout(past, state, id_, readings)
        mine, taken[:] = list(taken), []
        assert kept == await read_rollout(past, state, id_)
        whole, taken[:] = set(taken), []
        assert len(mine) == len(set(mine))
        first = whole - set(mine)
        waves.time_passes()
    assert len(mine) < len(whole) / 2
    assert first


@given(
    st.lists(
        st.builds(
            EvaluatedMoment,
            st.integers(0, 9),
            st.integers(0, 4),
            st.integers(0, 4),
            st.none() | st.integers(0, 4),
            st.booleans(),
            st.booleans(),
        ),
        max_size=12,
    ),
    st.integers(0, 12),
)
def test_moments_that_are_left_out_change_no_measure(found: list[EvaluatedMoment], at: int) -> None:
    hpa = HpaId("east", "shop", "checkout")
    kept = condensed([*condensed(found[:at]), *found[at:]])
    assert wave_measures({hpa: kept}, {hpa: 3}) == wave_measures({hpa: found}, {hpa: 3})
    assert kept[:1] == found[:1]
