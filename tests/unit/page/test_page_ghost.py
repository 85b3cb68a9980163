"""Another spec on the last hour: the sliders of a spec, what an address may ask of them, and the picture."""

from __future__ import annotations

from typing import Any

import pytest

from fleethpa.page.ghost import controls
from tests.kit.cli import Fleet
from tests.kit.page import Shown, browsing, over

SPEC: dict[str, Any] = {
    "minReplicas": 2,
    "maxReplicas": 12,
    "metrics": [
        {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}}},
        {"type": "Pods", "pods": {"metric": {"name": "rps"}, "target": {"type": "AverageValue", "averageValue": "10"}}},
    ],
    "behavior": {"scaleDown": {"stabilizationWindowSeconds": 300}},
}
WINDOWS = ["scaleUp.stabilizationWindowSeconds=0", "scaleDown.stabilizationWindowSeconds=300"]


@pytest.mark.parametrize(
    ("asked", "settings"),
    [
        ({}, ["minReplicas=2", "maxReplicas=12", "cpu=60%", *WINDOWS]),
        ({"maxReplicas": "20", "cpu": "75"}, ["minReplicas=2", "maxReplicas=20", "cpu=75%"]),
        ({"maxReplicas": "999999999", "minReplicas": "0"}, ["minReplicas=1", "maxReplicas=24"]),
        ({"maxReplicas": "9" * 5_000, "cpu": "<b>", "rps": "1"}, ["minReplicas=2", "maxReplicas=12", "cpu=60%"]),
        ({"maxReplicas": "-1", "minReplicas": "٣"}, ["minReplicas=2", "maxReplicas=12"]),
    ],
)
def test_sliders_are_the_fields_of_the_spec_with_values_within_their_ends(
    asked: dict[str, str], settings: list[str]
) -> None:
    found = [each.setting for each in controls(SPEC, asked, 60)]
    assert found[: len(settings)] == settings
    assert len(found) == 5


@pytest.mark.parametrize("behavior", [{}, {"behavior": {"scaleUp": {"selectPolicy": "Max"}, "scaleDown": None}}])
def test_windows_that_a_spec_does_not_name_have_the_values_in_force(behavior: dict[str, Any]) -> None:
    found = controls({"maxReplicas": 12} | behavior, {}, 60)
    windows = ["scaleUp.stabilizationWindowSeconds=0", "scaleDown.stabilizationWindowSeconds=60"]
    assert [each.setting for each in found] == ["minReplicas=1", "maxReplicas=12", *windows]
    assert not any(each.value != each.deployed for each in found)


@pytest.fixture
def fleet(monkeypatch: pytest.MonkeyPatch) -> Fleet:
    made = Fleet()
    made.settle(replicas=3, usage_milli=300)
    for usage in (500, 500, 300):
        made.now_ms += 15_000
        made.observe(3, usage)
    over(made, monkeypatch)
    return made


async def test_another_spec_is_tried_on_the_last_hour(fleet: Fleet) -> None:
    async with browsing() as client:
        part = await (await client.get("/try/ghost", params={"hpa": "east/shop/checkout", "maxReplicas": "3"})).text()
        whole = await (await client.get("/try", params={"hpa": "east/shop/checkout", "maxReplicas": "3"})).text()
        plain = await (await client.get("/try/ghost", params={"hpa": "east/shop/checkout"})).text()
    for text in (part, whole):
        assert "maxReplicas=3 would have cost" in Shown(text).text
        assert "maxReplicas: 3" in Shown(text).text
        assert "--set maxReplicas=3 --since 7d" in Shown(text).text
    assert "This is the spec that is deployed" in Shown(plain).text


async def test_a_spec_that_is_not_valid_and_an_hpa_that_is_not_there_are_named(fleet: Fleet) -> None:
    async with browsing() as client:
        asked = {"hpa": "east/shop/checkout", "minReplicas": "9", "maxReplicas": "3"}
        wrong = await (await client.get("/try/ghost", params=asked)).text()
        missing = await client.get("/try/ghost", params={"hpa": "east/shop/chekout"})
        assert missing.status == 400
    assert "the changed HPA is invalid" in Shown(wrong).text
    assert "svg" not in wrong
