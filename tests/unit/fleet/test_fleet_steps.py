"""The steps of a FleetHPA's decision end with its division, and those of its clusters' decisions with the share."""

from typing import Any

import orjson

from fleethpa.fleet.decisionsteps import step_rows
from schemas.codec import decode
from schemas.decisions import Decision
from tests.kit.fleet import Fleet


def steps(decision: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {row.name: (row.value, row.detail) for row in step_rows(decode(orjson.dumps(decision), Decision))}


def test_the_division_and_the_share_are_steps() -> None:
    fleet = Fleet({"east": 2, "west": 2}, 12, weights={"east": 2, "west": 1})
    for _ in range(8):
        fleet.period({"east": 450, "west": 450})
    whole, east = steps(fleet.last()), steps(fleet.last("east"))
    assert (fleet.replicas["east"], fleet.replicas["west"]) == (int(whole["  east"][0]), int(whole["  west"][0]))
    assert whole["  east"][1] == f"has {fleet.replicas['east']}"
    assert int(whole["final"][0]) == sum(fleet.replicas.values())
    assert east["share of FleetHPA"][0] == whole["  east"][0]
    number, of = east["share of FleetHPA"][1].split("; ")[-2:]
    assert number.startswith("number ")
    assert of.removeprefix("decision ") in [each["id"] for each in fleet.decided["@fleet"]]

    fleet.away = {"west"}
    for _ in range(6):
        fleet.period({"east": 450, "west": 450})
    assert steps(fleet.last())["  west"][1].startswith("away, has ")
