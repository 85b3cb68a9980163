"""Rollouts of changed specs: how far each has come, and how each of its waves fared."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Any, Final

from fleethpa.cli.common.rolloutlisting import (
    WaveReading,
    found_rollout,
    measured_waves,
    rollout_columns,
    rollout_lines,
    rollout_next,
)
from fleethpa.cli.common.rollouts import rollouts_in
from fleethpa.cli.common.views import FleetState
from fleethpa.cli.output.words import counted
from runtime.jsonlog import clean
from schemas.keys import HpaId
from streams.history.past import Past

SHOWN: Final = 200
KEPT: Final = 8
"""Rollouts whose readings are kept."""


def rollouts_view(state: FleetState, now_ms: int) -> dict[str, Any]:
    """What the template of all rollouts shows, the newest first."""
    columns = rollout_columns("utc", now_ms, state.clock_ms)
    found = sorted(rollouts_in(state).values(), key=lambda each: each.plan.begun_ms, reverse=True)
    return {
        "headers": [column.header for column in columns],
        "rows": [
            {"id": each.id, "cells": [(column.header, clean(column.cell(each))) for column in columns]}
            for each in found[:SHOWN]
        ],
        "found": len(found),
        "shown": SHOWN,
    }


class RolloutReadings:
    """What was read of the waves of the rollouts that were looked at last; a live update reads only what is new."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, dict[int, WaveReading]] = OrderedDict()
        self.turn = asyncio.Lock()
        """Held while a rollout is read."""

    def of(self, rollout_id: str) -> dict[int, WaveReading]:
        """The readings of one rollout, by the number of its wave."""
        found = self._kept.setdefault(rollout_id, {})
        self._kept.move_to_end(rollout_id)
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return found


async def read_rollout(
    past: Past, state: FleetState, id_: str, readings: RolloutReadings | None = None
) -> dict[str, Any]:
    """What the template of one rollout shows. `readings`: of the present; None: nothing is kept.

    Raises:
        CommandError: no HPA carries a rollout of this id (exit 4).
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
        "lines": [(label, clean(text)) for label, text in rollout_lines(rollout, state.clock_ms, waves)],
        "next": rollout_next(rollout, state.clock_ms),
        "hpas": sorted(ids)[:SHOWN],
        "all": counted(len(ids), "HPA"),
        "shown": SHOWN,
    }
