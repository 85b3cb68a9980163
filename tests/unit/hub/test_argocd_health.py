"""The health check for Argo CD, run by an interpreter of Lua over statuses that the program makes."""

from __future__ import annotations

from typing import Any

import pytest
from lupa import LuaRuntime

from fleethpa.hub.scene import ObjectVerdict
from schemas.kubernetes.shape import Json
from tests.kit.documented import ROOT
from tests.unit.hub.test_conditions import shown, view

SCRIPT = (ROOT / "compose" / "argocd" / "health.lua").read_text()


def health(status: Json | None, **metadata: Any) -> tuple[str, str]:
    """What Argo CD would show of an object."""
    runtime = LuaRuntime()
    body: Json = {"metadata": {"generation": 3} | metadata} | ({} if status is None else {"status": status})
    runtime.globals()["obj"] = runtime.table_from(body, recursive=True)
    found = runtime.execute(SCRIPT)
    return str(found["status"]), str(found["message"])


def test_what_is_decided_and_well_is_healthy() -> None:
    assert health(shown(view()))[0] == "Healthy"


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (None, ("Progressing", "fleethpa has not seen it yet")),
        (shown(None, is_written=False), ("Progressing", "Recording: It is on its way into the log.")),
        (shown(view(8, 20)), ("Degraded", "Saturated: east/shop/web: saturated: at max 8, asks for 20")),
        (shown(None, ObjectVerdict("Forbidden", "No FleetAccess.")), ("Degraded", "Forbidden: No FleetAccess.")),
        (shown(view(), unread="the brokers are away"), ("Unknown", None)),
    ],
)
def test_everything_else_says_why(status: Json | None, expected: tuple[str, str | None]) -> None:
    found = health(status)
    assert found[0] == expected[0]
    assert expected[1] in (None, found[1])


def test_a_status_of_an_older_generation_and_a_deletion_are_in_progress() -> None:
    assert health(shown(view()), generation=4) == ("Progressing", "fleethpa has not seen the newest change yet")
    deleted = health(shown(view()), deletionTimestamp="2026-01-01T00:00:00Z")
    assert deleted == ("Progressing", "it is being taken out of the log")
