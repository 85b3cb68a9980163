"""The page over Apache Kafka: as somebody who may only read, and while the broker goes away and comes back."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from pathlib import Path

import pytest

from tests.kafka.broker import KafkaBroker
from tests.kafka.fleet import Rig, World
from tests.kafka.granting import grant
from tests.kafka.secured import scram, secured_broker
from tests.kafka.test_pipeline import until
from tests.page.browsing import serving

pytestmark = pytest.mark.kafka


def _get(address: str) -> str:
    with urllib.request.urlopen(address, timeout=60) as answer:
        text: str = answer.read().decode()
    return text


async def _got(address: str) -> str:
    return await asyncio.to_thread(_get, address)


@pytest.mark.slow
async def test_the_page_says_that_the_broker_is_away_and_recovers(kafka: KafkaBroker, tmp_path: Path) -> None:
    world = World(clusters=1, namespaces=1, hpas=2)
    async with Rig(kafka, tmp_path / "rig", world) as rig:
        rig.add_all()
        with serving("--brokers", kafka.bootstrap) as address:

            async def shows(text: str) -> bool:
                return text in await _got(address)

            await until(lambda: shows("/hpa/c0/n0/app1"), "the page shows the fleet", 120)
            kafka.kill()
            await until(lambda: shows('role="alert">The source '), "the page says that Kafka is away", 120)
            assert await shows("/hpa/c0/n0/app1"), "what was read last is still shown"
            kafka.start()
            rig.heal()

            async def is_back() -> bool:
                return not await shows('role="alert">The source ')

            await until(is_back, "the page reads again", 180)
            assert await shows("/hpa/c0/n0/app1")


async def test_the_page_needs_the_permissions_of_a_reader_and_no_others(tmp_path: Path) -> None:
    users = ("ingest", "decider", "observer", "reconciler", "reader", "operator")
    async with secured_broker(tmp_path / "kafka", users) as found:
        properties = {name: found.properties(tmp_path / f"{name}.properties", *scram(name)) for name in users}
        for name in users:
            await grant(found.admin, name, f"User:{name}")  # type: ignore[arg-type]
        world = World(clusters=1, namespaces=1, hpas=1)
        rig = Rig(found.broker, tmp_path / "rig", world, settings=found.admin, properties=properties)
        async with rig:
            rig.add_all()
            reader = ("--brokers", found.broker.bootstrap, "--kafka-config", str(properties["reader"]))
            with serving(*reader) as address:

                async def has_decided() -> bool:
                    text = await _got(f"{address}/hpa/c0/n0/app0/series")
                    return bool(json.loads(text)["times"])

                async def is_known() -> bool:
                    return "/hpa/c0/n0/app0" in await _got(address)

                await until(is_known, "the page shows the fleet", 120)
                await until(has_decided, "the page shows decisions", 120)
                for view in ("/changes?show=all", "/clusters", "/audit", "/hpa/c0/n0/app0"):
                    assert "cannot be read" not in await _got(address + view), view
