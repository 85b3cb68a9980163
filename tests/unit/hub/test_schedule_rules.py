"""Rules of dates and months, and annotations that decisions follow, as objects of the hub's API state them."""

import pytest

from schemas.keys import HpaId
from tests.kit.hubapi import HubApi, template

WEB = HpaId("east", "shop", "web")
TARGET = {"kind": "CentralHPA", "name": "web"}


@pytest.fixture
def api() -> HubApi:
    made = HubApi()
    made.grant("shop", "east")
    return made


@pytest.mark.parametrize(
    ("rule", "least"),
    [
        ("monthly 1-31 00:00-24:00 minReplicas=5", 5),
        ("01-01..12-31 00:00-24:00 minReplicas=5", 5),
        ("2000-01-01..2100-12-31 00:00-24:00 minReplicas=5", 5),
        ("2000-12-24 00:00-24:00 minReplicas=5", 2),
    ],
)
async def test_a_schedule_may_have_rules_of_months_and_dates(api: HubApi, rule: str, least: int) -> None:
    api.apply("CentralHPA", "web", {"clusters": ["east"], "template": template()}, "shop")
    key = api.apply("Schedule", "day", {"target": TARGET, "rules": [rule]}, "shop")
    assert (await api.settle())[key].reason == "Accepted"
    assert (await api.view(WEB)).spec["minReplicas"] == least


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        ("monthly 32 00:00-24:00 minReplicas=5", "'32' is not a day of the month"),
        ("2026-02-30 00:00-24:00 minReplicas=5", "'2026-02-30' is not a date"),
        ("12-24..12-26 00:00-24:00 minReplicas=50", "minReplicas"),
    ],
)
async def test_a_rule_that_is_wrong_is_refused_by_name(api: HubApi, rule: str, says: str) -> None:
    api.apply("CentralHPA", "web", {"clusters": ["east"], "template": template()}, "shop")
    key = api.apply("Schedule", "day", {"target": TARGET, "rules": [rule]}, "shop")
    verdict = (await api.settle())[key]
    assert verdict.reason == "Invalid"
    assert says in verdict.message
    assert (await api.view(WEB)).spec["minReplicas"] == 2


@pytest.mark.parametrize(
    ("annotation", "text", "says"),
    [
        ("fleethpa.io/fallback", "failureThreshold=3,replicas=6,behavior=most", "behavior='most' is not known"),
        (
            "fleethpa.io/fallback",
            "failureThreshold=3,replicas=6,metric=queue",
            "the spec has no metric queue; it has cpu",
        ),
        ("fleethpa.io/sync-period", "60", "'60' must be from 100ms to 1h, such as 60s"),
    ],
)
async def test_an_annotation_that_cannot_be_followed_is_refused(
    api: HubApi, annotation: str, text: str, says: str
) -> None:
    spec = {"clusters": ["east"], "template": template()}
    key = api.apply("CentralHPA", "web", spec, "shop", annotations={annotation: text})
    verdict = (await api.settle())[key]
    assert verdict.reason == "Invalid"
    assert says in verdict.message
