"""`hub manifests`, `hub release`, `export objects`, and the commands that an object refuses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import yaml

from fleethpa.hub.kinds import BY_NAME, hub_object
from schemas.observed import AutoscalerDeleted, AutoscalerSet
from schemas.settings import ClusterSettings, SettingsSet
from tests.kit.cli import Broker, Cli
from tests.kit.hubapi import HubApi, template
from tests.unit.hub.test_stating import manifest


@pytest.fixture
def api() -> HubApi:
    made = HubApi()
    made.grant("shop", "*")
    return made


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    made = Broker()

    @asynccontextmanager
    async def opened(_: Any) -> AsyncIterator[Broker]:
        yield made

    monkeypatch.setattr("fleethpa.frame.writer.open_writer", opened)
    return made


def test_manifests_are_printed_without_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    found = list(yaml.safe_load_all(Cli(monkeypatch)("hub", "manifests").stdout))
    assert [each["metadata"]["name"] for each in found if each["kind"] == "CustomResourceDefinition"] == [
        f"{kind.plural}.fleethpa.io" for kind in BY_NAME.values()
    ]


@pytest.mark.parametrize(
    "arguments",
    [
        ("delete", "east/shop/web"),
        ("rollout", "undo", "east/shop/web"),
        ("schedule", "create", "east/shop/web", "--rule", "daily 00:00-24:00 minReplicas=4"),
        ("mode", "off", "east/shop/web"),
        ("settings", "east", "sync-period=20s"),
        ("resume", "east/shop/web"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_command_leaves_alone_what_an_object_states_and_names_it(
    api: HubApi, broker: Broker, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    spec = {"clusters": ["east"], "mode": "shadow", "template": template()}
    api.apply("CentralHPA", "web", spec, "shop")
    asyncio.run(api.settle())
    api.apply("CentralHPA", "web", spec | {"template": template(most=9)}, "shop")
    api.apply("Pause", "stop", {"clusters": ["east"], "hpa": "web"}, "shop")
    api.apply("ClusterConfig", "east", {"settings": {"sync-period": "10s"}})
    asyncio.run(api.settle())

    found = Cli(monkeypatch, api.fleet)(*arguments, "--yes")

    assert found.exit_code == 1, found.stderr
    assert "of the hub's API states it" in found.stderr
    assert "Next: kubectl " in found.stderr
    assert broker.written == []


def test_release_gives_back_and_says_what_is_stated_where_nothing_is(
    api: HubApi, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.apply("CentralHPA", "web", {"clusters": ["east"], "template": template()}, "shop")
    asyncio.run(api.settle())
    cli = Cli(monkeypatch, api.fleet)

    wrong = cli("hub", "release", "CentralHPA/shop/wbe", "--yes")
    done = cli("hub", "release", "CentralHPA/shop/web", "--yes")

    assert wrong.exit_code == 4
    assert "CentralHPA/shop/web" in wrong.stderr
    assert done.exit_code == 0, done.stderr
    ((cluster, namespace, body),) = broker.written
    assert (cluster, namespace) == ("east", "shop")
    assert isinstance(body, AutoscalerSet)
    assert "annotations" not in body.hpa["metadata"] or not body.hpa["metadata"]["annotations"]


def test_exported_objects_state_what_the_log_has_and_taking_them_changes_nothing_but_the_owner(
    api: HubApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    for cluster in ("east", "west"):
        body = AutoscalerSet(hpa=manifest("web", "shop"), origin="central", mode="shadow")
        api.fleet.append(body, key=f"{cluster}/shop")
    other = manifest("web", "shop")
    other["spec"]["maxReplicas"] = 40
    api.fleet.append(AutoscalerSet(hpa=other, origin="central", mode="enforce"), key="north/shop")
    api.fleet.append(SettingsSet(cluster="east", settings=ClusterSettings(max_step=3)), key="*")
    before = {hpa: (view.spec, view.mode) for hpa, view in asyncio.run(api.hpas()).items()}

    result = Cli(monkeypatch, api.fleet)("export", "objects")
    objects = list(yaml.safe_load_all(result.stdout))

    named = [(each["kind"], each["metadata"]["name"], each["spec"].get("clusters")) for each in objects]
    assert named == [
        ("ClusterConfig", "east", None),
        ("CentralHPA", "web", ["east", "west"]),
        ("CentralHPA", "web-north", ["north"]),
    ]
    for each in objects:
        metadata = each["metadata"]
        api.apply(each["kind"], metadata["name"], each["spec"], metadata.get("namespace", ""))
    verdicts = asyncio.run(api.settle())
    assert all(each.is_accepted for each in verdicts.values()), verdicts
    assert {hpa: (view.spec, view.mode) for hpa, view in asyncio.run(api.hpas()).items()} == before
    assert not Cli(monkeypatch, api.fleet)("export", "objects").stdout


def test_an_object_with_an_unknown_field_is_read_with_a_reason() -> None:
    body = {"metadata": {"name": "x"}, "spec": {"clusters": ["east"], "untill": "x"}}
    assert "untill" in hub_object(BY_NAME["ClusterPause"], body).problem
    assert AutoscalerDeleted(name="x").stated_by == ""
