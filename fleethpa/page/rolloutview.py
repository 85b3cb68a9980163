"""Rollouts of changed specs: how far each has come, and how each of its waves fared."""

from __future__ import annotations

from typing import Any

from fleethpa.cli.common.rolloutlisting import (
    found_rollout,
    measured_waves,
    rollout_columns,
    rollout_lines,
    rollout_next,
)
from fleethpa.cli.common.rollouts import rollouts_in
from fleethpa.cli.common.views import FleetState
from fleethpa.cli.output.table import clean
from fleethpa.cli.output.words import counted
from schemas.keys import HpaId
from streams.history.past import Past

SHOWN = 200


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


async def read_rollout(past: Past, state: FleetState, id_: str) -> dict[str, Any]:
    """What the template of one rollout shows.

    Raises:
        CommandError: no HPA carries a rollout of this id (exit 4).
    """
    rollout = found_rollout(state, id_)
    waves = await measured_waves(past, rollout)
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
