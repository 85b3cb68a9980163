"""The agent of one cluster: the leading one of its replicas observes the cluster and carries out decisions.

It opens all connections itself: to Kafka and to the cluster's own API server. If Kafka cannot be reached, the agent
keeps running and reports later what it saw. A term begins when this replica gets the Lease and ends when it can no
longer renew it. Each term is a separate observer session with the term's generation, so that the fold follows it.
"""

import asyncio
import logging
import socket
import uuid
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Any

from msgspec import structs

from reconciler.agents.agent.agenttopics import AgentPublisher, CommandReader
from reconciler.agents.agent.clusterstore import ClusterStore
from reconciler.agents.agent.election import Election
from reconciler.agents.agent.standin import StandIn, Surroundings, stand_by
from reconciler.agents.standin.evidence import GRACE_MS, Judge, grace_of, stagger_ms
from reconciler.agents.standin.protocol import HpaKey
from reconciler.apply.clusterwriters import ClusterWriters, WriterLimits
from reconciler.apply.reconcilermetrics import ReconcilerMetrics
from reconciler.clusters.answers import ApiError, ClusterError
from reconciler.clusters.client import ClusterClient
from reconciler.core.inbox import Position
from reconciler.core.knowledge import KnowledgeFold, Learnt
from reconciler.core.lease import RETRY_S
from reconciler.core.writeplan import WriteGuards, guards_of
from reconciler.core.writeproblems import joined_problem
from reconciler.observer.clusterobserver import ClusterObserver
from reconciler.observer.clusterview import ObserverConfig, ObserverMetrics
from reconciler.observer.metricpolls import Phases
from reconciler.observer.nativecontroller import Evidence
from reconciler.observer.troubles import ERROR_CHARACTERS
from runtime import ending
from runtime.brokerclock import BrokerClock
from runtime.ending import first_of
from runtime.process import PartHealth
from schemas.agents import AgentTopics
from schemas.decisions import Decision
from schemas.entries import ControlTransferred, Outcome
from schemas.inforce import InForce, report_every_ms
from schemas.keys import SessionName
from schemas.observed import Serving, WriteProblem
from schemas.topics import SCALES

HOME = "fleethpa-system"
LEASE = "fleethpa-agent"


def _identity() -> str:
    """A name of this run: also a process that comes back under its old name begins a new term."""
    return f"{socket.gethostname()}_{uuid.uuid4().hex[:8]}"


@dataclass(frozen=True, kw_only=True)
class AgentConfig(ObserverConfig):
    """Settings of an agent: those of the observer of its only cluster, and its own.

    `incarnation`: which topics are its own. `home`: the namespace of the Leases. `region`: of the hub, as the Lease
    names it. `broker_time`: False where the brokers stamp no append time (the embedded broker): then this machine's
    clock counts. `stand_in`: whether the cluster's own HPA controller scales while the hub is away.
    """

    incarnation: int
    home: str = HOME
    region: str = "main"
    identity: str = field(default_factory=_identity)
    limits: WriterLimits = field(default_factory=WriterLimits)
    broker_time: bool = True
    stand_in: bool = False

    @property
    def hub(self) -> str:
        """Who holds the Lease `fleethpa-hub` while the hub is in charge of the cluster."""
        return f"hub/{self.region}/{self.incarnation}"

    @property
    def topics(self) -> AgentTopics:
        return AgentTopics(self.clusters[0].name, self.incarnation)


log = logging.getLogger(__name__)

FAREWELL_S = 2.0
_NOTHING_LEARNT = "the settings of this cluster have not arrived yet: is a router running?"
_NOBODY_SCALES = "unless another replica of the agent leads, nobody scales in this cluster"
_NOT_LEADING = "this replica of the agent is no longer the leader"


class AgentTerm:
    """One term of leadership: the observer session, the writers and the stand-in of this cluster.

    `judge`: what this replica saw of the hub and the Lease, which continues from term to term.
    """

    def __init__(
        self,
        config: AgentConfig,
        client: ClusterClient,
        election: Election,
        health: PartHealth,
        metrics: tuple[ReconcilerMetrics, ObserverMetrics],
        judge: Judge,
    ) -> None:
        self.config, self.client, self.election, self.health = config, client, election, health
        self.topics: AgentTopics = config.topics
        self.generation = election.generation
        self.knowledge, self.in_force = KnowledgeFold(), InForce()
        self.clock = BrokerClock(config.broker_time)
        self._native_evidence = ""
        """What shows that a native controller runs, independent of the settings; empty: nothing does."""
        self._metrics, observer_metrics = metrics
        self.session = SessionName(f"agent-{client.name}", self.generation)
        self.publisher = AgentPublisher(config.kafka, self.topics.reports, observer_metrics, self.clock)
        self._reading, self._why_unread = asyncio.Event(), ""
        """Set whenever the topic of commands was read, or could not be; a beat that finds it unset waits. And why."""
        self.has_caught_up = False
        """Whether all commands were read that waited when the term began."""
        self.writers = ClusterWriters(
            self,
            self._metrics,
            limits=config.limits,
            clock=self.clock.now_ms,
            forbids=lambda cluster: self.forbids(),
            blocks=self._blocks,
            guards=self.guards,
            status_every_ms=lambda cluster: self.in_force.status_every_ms(cluster),
        )
        self._store = ClusterStore(client, config.home, config.namespaces, self._grace_ms)
        self.observer = self._observer(observer_metrics)
        self._stand_in = self._made_stand_in(judge) if config.stand_in else None

    def _observer(self, metrics: ObserverMetrics) -> ClusterObserver:
        config = self.config
        canary = config.namespaces[0] if config.namespaces else config.canary_namespace
        return ClusterObserver(
            self.client,
            replace(config, instance=self.session.instance, canary_namespace=canary, clock=self.clock.now_ms),
            self.publisher,
            metrics,
            session=self.session,
            phases=Phases(self.session.instance),
            sync_period_ms=lambda stated: self.in_force.sync_period_ms(self.client.name, config.sync_period_ms, stated),
            pushed=lambda: self.in_force.pushed(self.client.name),
            note=self.health.record,
            native_absent_since_ms=lambda: self.in_force.native_absent_since_ms(self.client.name),
            started_ms=self.clock.now_ms(),
            is_stand_ins=self._store.is_own,
        )

    def _grace_ms(self) -> int:
        return grace_of(self.in_force.sync_period_ms(self.client.name, self.config.sync_period_ms))

    def _made_stand_in(self, judge: Judge) -> StandIn:
        config, name = self.config, self.client.name

        async def publish(change: ControlTransferred) -> None:
            await self.publisher.publish("", "", change)

        around = Surroundings(
            cluster=name,
            hub=config.hub,
            knowledge=self.knowledge,
            now_ms=self.clock.now_ms,
            is_frozen=lambda: bool(self.in_force.of(name).frozen),
            has_no_native=lambda: self.has_no_native,
            grace_ms=self._grace_ms,
            has_caught_up=lambda: self.has_caught_up,
            publish=publish,
            note=self.health.record,
        )
        judge.begin_term(stagger_ms(name))
        return StandIn(around, self._store, judge)

    # --- what holds now -----------------------------------------------------------------------------------------------

    def forbids(self) -> str:
        """Why nothing may be written to the cluster now; empty: it may."""
        if not self.election.leads:
            return _NOT_LEADING
        if problem := self.clock.problem:
            return problem
        if not self.knowledge.is_complete:
            return _NOTHING_LEARNT
        return "" if self._stand_in is None else self._stand_in.forbids()

    def _blocks(self, decision: Decision) -> str:
        key = HpaKey(decision.namespace, decision.name)
        return "" if self._stand_in is None else self._stand_in.blocks(key)

    def in_charge(self) -> str:
        """Why the hub is not in charge, or that this is not known; empty: it is, or nothing stands in."""
        return "" if self._stand_in is None else self._stand_in.forbids()

    @property
    def has_no_native(self) -> bool:
        """Whether the settings say that no native HPA controller runs."""
        return self.in_force.of(self.client.name).native_controller == "absent"

    def guards(self, cluster: str) -> WriteGuards:
        """Return what forbids writes in the cluster now."""
        guards = guards_of(self.in_force, cluster, self.clock.now_ms())
        return structs.replace(guards, pauses=tuple(self.knowledge.pauses), native=self._native_evidence)

    async def _native_runs(self, evidence: Evidence) -> None:
        """A native controller has written since the settings were read: it runs, even if they declare it absent."""
        name = self.client.name
        if not self._native_evidence:
            level = logging.ERROR if self.has_no_native else logging.INFO
            log.log(level, "a native controller runs", extra={"cluster": name, "evidence": evidence.text})
        self._native_evidence = evidence.text
        self.health.record("native controller", evidence.text)

    # --- the term -----------------------------------------------------------------------------------------------------

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set, then report the end of the session; or until the Lease is lost."""
        reader = CommandReader(
            self.topics.commands,
            self.writers,
            self.knowledge,
            learnt=self._learnt,
            received=self._received,
            looked=self._looked,
            failed=self._unread,
            now_ms=self.clock.now_ms,
        )
        async with asyncio.TaskGroup() as group:
            writing = group.create_task(self.publisher.run())
            work: list[Any] = [self._observe(), self._beat()]
            work.append(self.observer.native.run(self._native_runs))
            work.append(reader.run(self.config.kafka))
            if self._stand_in is not None:
                work.append(self._stand_in.run())
            tasks = [group.create_task(each) for each in work]
            tasks += self.writers.open(self.client, group)
            await first_of(stop.wait(), self.election.hold())
            for task in tasks:
                task.cancel()
            if self.election.leads:
                await self._shutdown_report()
            writing.cancel()

    async def _observe(self) -> None:
        """Observe the cluster, once it is known which HPAs are the stand-in's: they are not reported."""
        while True:
            try:
                await self._store.load_own()
                break
            except ApiError as error:
                if error.status in (403, 404):  # an agent without a stand-in has no right to see any: it made none
                    break
                self.health.record("observer", f"which HPAs are the stand-in's cannot be read: {error}")
            except ClusterError as error:
                self.health.record("observer", f"which HPAs are the stand-in's cannot be read: {error}")
            await asyncio.sleep(RETRY_S)
        self.health.record("observer", None)
        await self.observer.run()

    async def _shutdown_report(self) -> None:
        try:
            async with asyncio.timeout(ending.left_s(FAREWELL_S)):
                await self.observer.shutdown_report()
                await self.publisher.drained()
        except TimeoutError:
            log.warning("ended without a shutdown report: the brokers are away", extra={"cluster": self.client.name})

    def _learnt(self, learnt: Learnt) -> None:
        if learnt.has_settings:
            self.in_force, self._native_evidence = InForce(self.knowledge.settings, self.clock.now_ms()), ""
            self.health.record("native controller", None)
            self.observer.settings_changed()
        self.health.record("knowledge", None if self.knowledge.is_complete else _NOTHING_LEARNT)
        for (namespace, name), hpa in learnt.hpas.items():
            self.observer.central(namespace, name, hpa)

    def _looked(self, is_caught_up: bool) -> None:
        self.has_caught_up = self.has_caught_up or is_caught_up
        self._unread("")

    def _unread(self, why: str) -> None:
        """Note why the topic of commands cannot be read; empty: it was. Either is reported."""
        self._why_unread = why
        self.health.record("commands", why or None)
        self._reading.set()

    def _received(self, decision: Decision, is_past: bool) -> None:
        if self._stand_in is not None:
            self._stand_in.received(decision, is_past=is_past)

    async def _beat(self) -> None:
        """Report that this cluster is served, or why its commands cannot be read; nothing while that is not known."""
        while True:
            await self._reading.wait()
            self._reading.clear()
            problem = self._problem()
            problems = {} if problem is None else {self.client.name: problem}
            body = Serving(session=str(self.session), clusters=[self.client.name], problems=problems)
            await self.publisher.put(SCALES, "", "", [body])
            period_ms = self.in_force.sync_period_ms(self.client.name, self.config.sync_period_ms)
            await asyncio.sleep(report_every_ms(period_ms, self.config.heartbeat_ms) / 1000)

    def _problem(self) -> WriteProblem | None:
        """Why not everything is written in the cluster now; None: it is."""
        own = (self._why_unread, self.forbids() if self.election.leads else "")
        stand_in = "" if self._stand_in is None else self._stand_in.trouble()
        problem = joined_problem(
            [
                *(WriteProblem(text, "failing") for text in own if text),
                *self.writers.problems().values(),
                WriteProblem(stand_in, "failing") if stand_in else None,
            ]
        )
        return None if problem is None else structs.replace(problem, error=problem.error[:ERROR_CHARACTERS])

    # --- what the writers ask -----------------------------------------------------------------------------------------

    def begin(self, position: Position) -> None:
        """Nothing is kept: a new leader reads the last minutes again."""

    def done(self, position: Position) -> None:
        """Nothing is kept."""

    def is_ours(self, position: Position) -> bool:
        """Whether this replica still leads: else the new leader says what becomes of the write."""
        return self.election.leads

    async def publish(self, decision: Decision, ended: Outcome) -> None:
        """Report an outcome before all else that waits."""
        if self._stand_in is not None:
            self._stand_in.wrote(decision, ended)
        await self.publisher.publish(decision.cluster, decision.namespace, ended)


class Agent:
    """One replica of an agent. It is ready once it knows who leads, and as long as it can read and write that Lease."""

    def __init__(self, config: AgentConfig) -> None:
        self._config, self._judge = config, Judge()
        self.health = PartHealth("lease")
        cluster_metrics = ReconcilerMetrics(self.health.registry)
        self._metrics = cluster_metrics, ObserverMetrics(self.health.registry, shared=cluster_metrics)
        self.term: AgentTerm | None = None
        """The present term; None: another replica leads, or none does."""

    async def run(self, stop: asyncio.Event) -> None:
        """Lead or stand by until `stop` is set. An unexpected error ends it by exception."""
        config = self._config
        client = ClusterClient(config.clusters[0], self._stated_uid)
        election = Election(client, config.home, LEASE, config.identity)
        async with AsyncExitStack() as stack:
            stack.push_async_callback(client.close)
            await stack.enter_async_context(self.health.served(config))
            stack.push_async_callback(election.release)
            async with asyncio.TaskGroup() as group:
                beside = [group.create_task(self._record_election(election))]
                if config.stand_in:
                    beside.append(group.create_task(self._stand_by(client)))
                while await self._elected(election, stop):
                    self.term = AgentTerm(config, client, election, self.health, self._metrics, self._judge)
                    await self.term.run(stop)
                    self.term = None
                    self.health.forget("")  # what the leader knew of the cluster and Kafka: this replica looks no more
                for each in beside:
                    each.cancel()

    def _stated_uid(self) -> str:
        """The UID that the settings state, as far as the present term has learnt them."""
        return self.term.in_force.cluster_uid(self._config.clusters[0].name) if self.term else ""

    async def _stand_by(self, client: ClusterClient) -> None:
        """Read the hub\'s Lease, so that a term that begins later knows how long its holder has had it."""
        store = ClusterStore(client, self._config.home, self._config.namespaces, lambda: GRACE_MS)
        while True:
            if self.term is None:
                await stand_by(store, self._judge)
            await asyncio.sleep(RETRY_S)

    async def _elected(self, election: Election, stop: asyncio.Event) -> bool:
        """Wait for a term; False: `stop` was set first."""
        await first_of(stop.wait(), election.campaign())
        return election.leads and not stop.is_set()

    async def _record_election(self, election: Election) -> None:
        while True:
            self.show(election)
            await asyncio.sleep(RETRY_S / 4)

    def show(self, election: Election) -> None:
        """Show on /readyz who leads, what keeps the Lease out of reach, and of the leader why it cannot write to Kafka
        and the hub is not in charge; with a Lease out of reach for long, the replica is not ready.
        """
        if election.is_out_of_reach:
            self.health.unready("lease", f"{election.trouble}; {_NOBODY_SCALES}")
        elif election.holder:
            self.health.ready("lease")
        leader = "this replica" if election.leads else election.holder or "nobody"
        self.health.record("leader", f"{leader}, generation {election.generation}")
        self.health.record("lease", election.trouble or None)
        self.health.record("kafka", (self.term.publisher.problem if self.term else "") or None)
        self.health.record("in charge", (self.term.in_charge() if self.term else "") or None)
