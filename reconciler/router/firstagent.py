"""A router that runs from when a cluster has an agent: before, there is nothing to copy."""

import asyncio
from collections.abc import Callable

from reconciler.router.routerprocess import RouterConfig, run_router
from runtime.settingsfollower import follow_entries
from schemas.agentregistry import AgentRegistry
from schemas.agents import AgentSet
from schemas.connection import KafkaSettings


async def run_router_for_agents(
    config: RouterConfig, stop: asyncio.Event, announce: Callable[[int], None] | None = None
) -> None:
    """Wait until a cluster has an agent, and run a router from then on. Without agents nothing is read but settings."""
    if await _has_agents(config.kafka, stop):
        await run_router(config, stop, announce)


async def _has_agents(settings: KafkaSettings, stop: asyncio.Event) -> bool:
    """Wait until an agent is registered; False: `stop` came first."""
    registry, caught_up, found = AgentRegistry(), asyncio.Event(), asyncio.Event()

    def look() -> None:
        if caught_up.is_set() and registry.agents():
            found.set()

    def registered(entry: AgentSet, _: int) -> None:
        registry.apply(entry)
        look()

    def all_read() -> None:
        caught_up.set()
        look()

    following = asyncio.ensure_future(follow_entries(settings, AgentSet, registered, all_read))
    waits = [following, asyncio.ensure_future(found.wait()), asyncio.ensure_future(stop.wait())]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        if following.done():
            following.result()  # it ends by an exception only
    finally:
        for each in waits:
            each.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
    return found.is_set() and not stop.is_set()
