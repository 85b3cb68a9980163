"""Rollouts on the page: all of them, and one with how its waves fared."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from fleethpa.fleet.views import FleetState
from fleethpa.page.fleetview import SHOWN_CHANGES
from fleethpa.page.hpapast import LastUsed
from fleethpa.rollouts.marks import rollouts_in
from fleethpa.rollouts.wavedrive import (
    WaveReading,
    found_rollout,
    measured_waves,
    rollout_columns,
    rollout_lines,
    rollout_next,
)
from fleethpa.show.words import counted
from schemas.keys import HpaId
from streams.history.past import Past

KEPT: Final = 8
"""Rollouts whose readings are kept."""


def rollouts_view(state: FleetState, now_ms: int) -> dict[str, Any]:
    """What the template of all rollouts shows, the newest first."""
    found = sorted(rollouts_in(state).values(), key=lambda each: each.plan.begun_ms, reverse=True)
    return {
        "columns": rollout_columns("utc", now_ms, state.clock_ms),
        "rollouts": found[:SHOWN_CHANGES],
        "found": len(found),
        "shown": SHOWN_CHANGES,
    }


class RolloutReadings:
    """What was read of the waves of the rollouts that were looked at last; a live update reads only what is new."""

    def __init__(self) -> None:
        self._kept = LastUsed[str, dict[int, WaveReading]](KEPT)
        self.turn = asyncio.Lock()
        """Held while a rollout is read."""

    def of(self, rollout_id: str) -> dict[int, WaveReading]:
        """The readings of one rollout, by the number of its wave."""
        return self._kept.keep(rollout_id, self._kept.get(rollout_id, {}))


async def read_rollout(
    past: Past, state: FleetState, id_: str, readings: RolloutReadings | None = None
) -> dict[str, Any]:
    """What the template of one rollout shows. `readings`: of the present; None: nothing is kept.

    Raises CommandError: no HPA carries a rollout of this id (exit 4).
    """
    rollout = found_rollout(state, id_)
    if readings is None:
        waves = await measured_waves(past, rollout)
    else:
        async with readings.turn:
            waves = await measured_waves(past, rollout, readings.of(id_))
    ids: list[tuple[HpaId, str]] = [
        (hpa, "changed since" if rollout.is_overtaken(hpa) else "reverted" if mark.reverted else f"wave {mark.wave}")
        for hpa, mark in rollout.marks.items()
    ]
    return {
        "id": id_,
        "lines": rollout_lines(rollout, state.clock_ms, waves),
        "next": rollout_next(rollout, state.clock_ms),
        "hpas": sorted(ids)[:SHOWN_CHANGES],
        "all": counted(len(ids), "HPA"),
        "shown": SHOWN_CHANGES,
    }
