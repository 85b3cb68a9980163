"""The observer: clusters in, public records out. Each cluster works for itself, a dead one delays no other."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

from reconciler.apply import reconcilerkafka
from reconciler.apply.publish import Publisher
from reconciler.apply.reconcilerconfig import ObserverConfig
from reconciler.apply.reconcilerhealth import Health, first_error, serve, tell_when_ready
from reconciler.apply.settingsfollower import follow_settings
from reconciler.apply.telemetry import ObserverMetrics
from reconciler.clusters.client import ClusterClient
from reconciler.core.writelimits import GuardSettings
from reconciler.observer.centralhpas import CentralHpas, follow_central, group_of
from reconciler.observer.clusterobserver import ClusterObserver
from reconciler.observer.nativecanary import prove_native_absent
from reconciler.observer.publisher import Outlet
from reconciler.observer.takeover import follow_others
from schemas.autoscalers import AutoscalerSet
from schemas.keys import HpaId
from schemas.settings import ClusterSettings, SettingsSet
from schemas.topics import AUTOSCALERS, SETTINGS

log = logging.getLogger(__name__)


class Observer:
    """Observes the configured clusters."""

    def __init__(self, config: ObserverConfig) -> None:
        self._config = config
        self.health = Health("kafka")
        self._metrics = ObserverMetrics(self.health.registry)
        self._settings = GuardSettings()
        self._clusters: dict[str, ClusterObserver] = {}

    async def run(self, stop: asyncio.Event) -> None:
        """Observe until `stop` is set. An unexpected error ends it by exception."""
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(serve(self.health, self._config.web_port, self._config.web_host))
            producer = await stack.enter_async_context(reconcilerkafka.producer(self._config.kafka))
            self.health.ready("kafka")
            await self._observe(Publisher(producer), stop)

    async def _observe(self, publisher: Publisher, stop: asyncio.Event) -> None:
        outlet = Outlet(publisher, self._metrics, self._config.clock)
        clients = [ClusterClient(cluster) for cluster in self._config.clusters]
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(outlet.run()), group.create_task(self._follow_settings())]
                for client in clients:
                    observer = self._observer(client, outlet)
                    tasks.append(group.create_task(observer.run()))
                    if self._config.prove_native_absent:
                        tasks.append(group.create_task(self._prove(client, publisher)))
                tasks += [group.create_task(self._follow_central(publisher)), group.create_task(self._follow_others())]
                await stop.wait()
                for task in tasks:
                    task.cancel()
            await outlet.flush()
            for observer in self._clusters.values():
                await observer.farewell()
            await outlet.flush()
        finally:
            for client in clients:
                await client.close()

    def _observer(self, client: ClusterClient, outlet: Outlet) -> ClusterObserver:
        def sync_period_ms() -> int:
            return self._settings.sync_period_ms(client.name, self._config.sync_period_ms)

        observer = ClusterObserver(client, self._config, outlet, self._metrics, sync_period_ms, self.health.note)
        self._clusters[client.name] = observer
        return observer

    async def _follow_settings(self) -> None:
        await follow_settings(self._config.kafka, self._settings.apply, lambda: None)

    async def _follow_central(self, publisher: Publisher) -> None:
        async def told(cluster: str, namespace: str, name: str, hpa: dict[str, Any] | None) -> None:
            if (observer := self._clusters.get(cluster)) is not None:
                await observer.central(namespace, name, hpa)

        async def say(hpa: HpaId, body: AutoscalerSet) -> None:
            await publisher.send(AUTOSCALERS, hpa.cluster, hpa.namespace, [body], self._config.clock())

        known = CentralHpas(self._clusters.keys())
        group = group_of(self._clusters)
        await follow_central(self._config.kafka, group, told, known, say, self._config.clock)

    async def _follow_others(self) -> None:
        async def silent(cluster: str) -> None:
            if (observer := self._clusters.get(cluster)) is not None:
                await observer.resend_all()

        own = frozenset(observer.session for observer in self._clusters.values())
        await follow_others(self._config.kafka, own, self._config.clock, silent)

    async def _prove(self, client: ClusterClient, publisher: Publisher) -> None:
        verdict = await prove_native_absent(client, self._config.canary_namespace, self._config.canary_wait_s)
        log.info("native controller", extra={"cluster": client.name, "verdict": verdict})
        entry = SettingsSet(
            cluster=client.name,
            settings=ClusterSettings(native_controller=verdict),
            author=self._config.author,
            reason=f"canary HPA in {self._config.canary_namespace}, {self._config.canary_wait_s:g} s",
        )
        await publisher.send(SETTINGS, "", "", [entry], self._config.clock())


async def run_observer(
    config: ObserverConfig, stop: asyncio.Event, announce: Callable[[int], None] | None = None
) -> None:
    """Run an observer until `stop` is set; `announce` is told the port of its health once it is ready (0: none)."""
    part = Observer(config)
    with first_error():
        await tell_when_ready(part.run(stop), part.health, announce)
