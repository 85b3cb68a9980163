"""The observer: clusters in, public records out. Each cluster works for itself, a dead one delays no other."""

import asyncio
import logging
import time
from collections.abc import Collection
from contextlib import AsyncExitStack
from functools import partial

from reconciler.clusters.client import ClusterClient
from reconciler.clusters.clusterfinder import ClusterFinder, JoinedCluster, Members
from reconciler.core.foundclusters import Member
from reconciler.observer.clusterobserver import ClusterObserver
from reconciler.observer.clusterview import ObserverConfig, ObserverMetrics
from reconciler.observer.metricpolls import Phases
from reconciler.observer.nativecontroller import Evidence
from reconciler.observer.observertopics import OtherSessions, RecordPublisher, central_hpa, follow_others
from runtime import ending, kafkaclients
from runtime.process import PartHealth
from runtime.records import Publisher, follow_topic
from schemas.entries import Body
from schemas.inforce import InForce
from schemas.keys import SessionName
from schemas.settings import ClusterSettings, SettingsSet
from schemas.syncperiods import StatedPeriod
from schemas.topics import AUTOSCALERS, PODS, SAMPLES, SCALES, SETTINGS, SPECS

log = logging.getLogger(__name__)

FAREWELL_S = 2.0
"""How long an observer that ends waits for the brokers to take its last reports."""


class Observer:
    """Observes the configured clusters, and those that are found while it runs."""

    def __init__(self, config: ObserverConfig) -> None:
        self._config = config
        self.health = PartHealth("kafka")
        self._metrics = ObserverMetrics(self.health.registry)
        self._in_force = InForce()
        self._clusters: dict[str, ClusterObserver] = {}
        self._observed: dict[str, JoinedCluster] = {}
        self._central: list[asyncio.Task[None]] = []
        """Follows the specs of central HPAs, once there is a cluster."""
        self._session, self._phases = SessionName(config.instance, time.time_ns()), Phases(config.instance)
        self._others = OtherSessions(self._session, self._clusters.keys())
        self._settings_known = asyncio.Event()

    async def run(self, stop: asyncio.Event) -> None:
        """Observe until `stop` is set. An unexpected error ends it by exception."""
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.health.served(self._config))
            producer = await stack.enter_async_context(kafkaclients.running_producer(self._config.kafka))
            await kafkaclients.know_topics(producer, AUTOSCALERS, PODS, SAMPLES, SCALES, SETTINGS, SPECS)
            self.health.ready("kafka")
            self._publisher = Publisher(producer, waits_for_room=True)
            self.health.check("kafka", self._publisher.problem)
            self._reports = RecordPublisher(self._publisher, self._metrics, self._config.clock)
            await self._observe(stop)

    async def _observe(self, stop: asyncio.Event) -> None:
        finder = ClusterFinder(self._config.sources, self.health.record)
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                work = (self._reports.run(), self._follow_settings(), self._follow_others())
                tasks = [group.create_task(each) for each in work]
                await self._adjust(finder.members())
                tasks.append(group.create_task(finder.run(self._adjust)))
                await stop.wait()
                of_clusters = [task for each in self._observed.values() for task in each.tasks]
                for task in [*tasks, *self._central, *of_clusters]:
                    task.cancel()
            await self._report_end()
        finally:
            for each in self._observed.values():
                await each.client.close()

    async def _report_end(self) -> None:
        try:
            async with asyncio.timeout(ending.left_s(FAREWELL_S)):
                await self._reports.flush()
                for observer in self._clusters.values():
                    await observer.shutdown_report()
                await self._reports.flush()
        except TimeoutError:
            log.warning("ended without a shutdown report: the brokers are away")

    # --- clusters that come and go ------------------------------------------------------------------------------------

    async def _adjust(self, members: Members) -> None:
        """Observe exactly these clusters from now on. What is observed already notices nothing."""
        before = set(self._observed)
        for name in before - members.keys():
            await self._leave(name)
        for name, member in members.items():
            observed = self._observed.get(name)
            if observed is None:
                self._join(member)
            else:
                observed.follow(member)
            self._clusters[name].record_membership(member.trouble)
        if before != set(self._observed):
            self._follow_central()

    def _join(self, member: Member) -> None:
        name = member.config.name
        client = ClusterClient(member.config, partial(self._in_force.cluster_uid, name))
        observer = self._clusters[client.name] = self._observer(client)
        work = [self._observe_one(observer), self._watch_native(client, observer)]
        if self._config.prove_native_absent:
            work.append(self._prove(client, observer))
        tasks = [self._group.create_task(each) for each in work]
        self._observed[client.name] = JoinedCluster(member, client, tasks)
        if member.origin:
            log.info("a cluster joins", extra={"cluster": client.name, "origin": member.origin})

    async def _observe_one(self, observer: ClusterObserver) -> None:
        # Settings may state which cluster it has to be: what another one shows must not get into the log.
        await self._settings_known.wait()
        await observer.run()

    async def _leave(self, name: str) -> None:
        """Stop observing a cluster, and report that: its HPAs keep their replicas."""
        observed, observer = self._observed.pop(name), self._clusters.pop(name)
        log.info("a cluster leaves", extra={"cluster": name, "origin": observed.member.origin})
        await observed.end()
        observer.record_membership(f"{observed.member.origin} no longer names it")
        await observer.shutdown_report()
        await self._reports.flush()
        await observed.client.close()
        self.health.forget(f"{name}/")
        self._metrics.forget(name)
        self._phases.forget(name)

    def _observer(self, client: ClusterClient) -> ClusterObserver:
        def sync_period_ms(stated: Collection[StatedPeriod]) -> int:
            return self._in_force.sync_period_ms(client.name, self._config.sync_period_ms, stated)

        return ClusterObserver(
            client,
            self._config,
            self._reports,
            self._metrics,
            session=self._session,
            phases=self._phases,
            sync_period_ms=sync_period_ms,
            pushed=lambda: self._in_force.pushed(client.name),
            note=self.health.record,
            native_absent_since_ms=lambda: self._in_force.native_absent_since_ms(client.name),
            may_be_preceded=lambda: self._others.may_precede(client.name),
        )

    async def _follow_settings(self) -> None:
        def take(entry: Body, time_ms: int, of_cluster: str, namespace: str) -> None:
            before = {name: self._in_force.of(name) for name in self._clusters}
            pushed = {name: self._in_force.pushed(name) for name in self._clusters}
            change = self._in_force.apply(entry, time_ms, of_cluster, namespace)
            if change is None or change.of != "settings":
                return
            for name, observer in self._clusters.items():
                if pushed[name] - self._in_force.pushed(name):
                    observer.ask_all_soon()
                if before[name] != self._in_force.of(name):
                    observer.settings_changed()
            for observer in self._clusters.values():
                observer.native.news.set()

        await follow_topic(self._config.kafka, SETTINGS, take, self._settings_known.set)

    async def _watch_native(self, client: ClusterClient, observer: ClusterObserver) -> None:
        """Withdraw a proof of absence that a canary contradicts, once all settings are known."""
        await self._settings_known.wait()

        async def runs(evidence: Evidence) -> None:
            await self._report_native(client.name, evidence)

        await observer.native.run(runs)

    def _follow_central(self) -> None:
        """Read the central HPAs of the present clusters, from the beginning: that of a new one may be old."""
        for task in self._central:
            task.cancel()
        following = follow_topic(self._config.kafka, SPECS, self._apply_spec, lambda: None)
        self._central = [self._group.create_task(following)]

    def _apply_spec(self, body: Body, time_ms: int, cluster: str, namespace: str) -> None:
        if (observer := self._clusters.get(cluster)) is not None and (
            central := central_hpa(body, namespace)
        ) is not None:
            observer.central(namespace, *central)

    async def _follow_others(self) -> None:
        async def silent(cluster: str) -> None:
            if (observer := self._clusters.get(cluster)) is not None:
                await observer.resend_all()

        await follow_others(self._config.kafka, self._others, self._config.clock, silent)

    async def _prove(self, client: ClusterClient, observer: ClusterObserver) -> None:
        config, began_ms = self._config, self._config.clock()
        verdict = await observer.canary().verdict()
        log.info("native controller", extra={"cluster": client.name, "verdict": verdict})
        await self._settings_known.wait()
        if verdict == "absent" and self._in_force.native_absent_since_ms(client.name) is not None:
            return observer.native.refute(began_ms)  # settings never expire, so that it is not repeated
        what = f"canary HPA in {config.canary_namespace}, {config.canary_wait_s:g} s"
        evidence = "it wrote the status of the canary HPA" if verdict == "present" else None
        settings = ClusterSettings(native_controller=verdict, native_evidence=evidence)
        await self._set(client.name, settings, what)

    async def _report_native(self, cluster: str, evidence: Evidence) -> None:
        log.error("a native controller runs again", extra={"cluster": cluster, "evidence": evidence.text})
        settings = ClusterSettings(native_controller="present", native_evidence=evidence.text)
        reason = f"kube-controller-manager's HPA controller runs: {evidence.text}"
        await self._set(cluster, settings, reason)

    async def _set(self, cluster: str, settings: ClusterSettings, reason: str) -> None:
        entry = SettingsSet(cluster=cluster, settings=settings, author=self._config.author, reason=reason)
        await self._publisher.send(SETTINGS, "", "", [entry], self._config.clock())
