"""A fleet under attack: Apache Kafka with permissions, the processes of production, and everything hostile at once.

A tenant, a metric producer and somebody with an agent's credentials do what theirs allow, each with the credentials
that it takes, while 48 HPAs of others, in the same partitions of the log, are to be evaluated in time. One agent may
no longer read what it is to do. The figures are those of docs/operations.md, "How it is tested".
"""

import asyncio
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import count, pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest
from aiokafka import TopicPartition
from msgspec import structs

from fleethpa.cli.clusters import QUOTAS, create_topics, new_agent
from fleethpa.frame.writer import open_writer
from fleethpa.lab.simulator import resources
from fleethpa.lab.simulator.cluster import SimulatedCluster
from fleethpa.lab.simulator.server import MetricsFault
from reconciler.agents.agent.process import HOME
from runtime.kafkaclients import reader, running_producer
from runtime.topicadmin import TopicAdmin
from runtime.topicneeds import Acl, WantedTopic, agent_acls
from schemas import limits, topics
from schemas.agentregistry import AgentRegistry
from schemas.agents import ONLY_PARTITION, AgentSet
from schemas.codec import decode, encode
from schemas.connection import KafkaSettings
from schemas.decisions import uid_of
from schemas.entries import WHOLE_PARTITION_KEY, Body, ControlTransferred, LeftNative, LogRecord, PublicRecord
from schemas.keys import HpaId, namespace_key
from schemas.observed import (
    AutoscalerSet,
    ClusterReport,
    ObserverTrouble,
    PodSet,
    Point,
    Samples,
    Serving,
    WriteProblem,
)
from schemas.partitioning import partition_for
from schemas.settings import SettingsSet
from streams.history.recorded import recorded_at
from streams.ingest import pieces as rates
from tests.kafka.broker import fetch_jars
from tests.kafka.conftest import PARTITIONS, make_topics
from tests.kafka.fleet import SETTINGS, Part, Rig, World
from tests.kafka.granting import grant
from tests.kafka.measure_agents import rss_mb
from tests.kafka.run_reading import read_topic
from tests.kafka.secured import Secured, scram, secured_broker
from tests.kafka.test_pipeline import fleethpa, until
from tests.kit.limits import external, text
from tests.kit.partition import make_pod
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.hostile

SYNC_MS = 15_000
ATTACK_S = 60
USERS = ("observer", "ingest", "decider", "reconciler", "router", "operator", "reader")
PUSH, PREVIEWS, PULLED, ROGUE = "c0", "c1", "c2", "rogue"
"""Clusters: of the hostile tenant; of the previews; with an agent; one of whose agent the credentials are stolen."""
SAMPLE_TOPIC = "shop.samples"
SAMPLES_BYTES = 20_000_000
PREVIEWS_A_WAVE, WAVES = 50, 40
AGENT_HPAS = 2_500
"""`admin clusters add --max-hpas`: what a stolen credential may fill in a log partition, at some 10 kB in a decider."""
LINES = 40
"""Of the log of a part, meanwhile."""


def hostile_namespace(cluster: str, stem: str, number: int) -> str:
    """A namespace whose log partition is this one, where some of the others' HPAs are, too."""
    names = (f"{stem}{at}" for at in count())
    return next(name for name in names if partition_for(namespace_key(cluster, name), PARTITIONS) == number)


@dataclass
class Site:
    """Broker, fleet, and how each of the attackers gets in."""

    secured: Secured
    rig: Rig
    world: World
    pulled: AgentSet
    rogue: AgentSet
    sent: Counter[str] = field(default_factory=Counter)
    """Bytes, by attacker."""
    evaluated: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    """uid of an HPA -> when it was evaluated."""

    def login(self, user: str) -> KafkaSettings:
        return replace(self.secured.admin, username=user, password=f"{user}-secret")


@asynccontextmanager
async def site(folder: Path) -> AsyncIterator[Site]:
    agents = [new_agent(AgentRegistry(), name, 2_000, AGENT_HPAS) for name in (PULLED, ROGUE)]
    users = (*USERS, "producer", *(f"fleethpa-agent-{agent.cluster}" for agent in agents))
    async with secured_broker(folder / "kafka", users) as secured:
        for name in USERS:
            await grant(secured.admin, name, f"User:{name}")  # type: ignore[arg-type]
        await make_topics(secured.admin, [WantedTopic(SAMPLE_TOPIC, PARTITIONS, 1, {})])
        async with TopicAdmin(secured.admin) as admin:
            assert await admin.allow([Acl("topic", SAMPLE_TOPIC, ("READ",))], "User:ingest")
            assert await admin.allow([Acl("topic", SAMPLE_TOPIC, ("WRITE",))], "User:producer")
            for agent in agents:
                await create_topics(admin, agent.topics, None)
                assert await admin.allow(agent_acls(agent.topics), f"User:fleethpa-agent-{agent.cluster}")
        properties = {
            name: secured.properties(folder / f"{name}.properties", *scram(name)) for name in (*USERS, "admin")
        }
        properties["agent"] = secured.properties(folder / "agent.properties", *scram(f"fleethpa-agent-{PULLED}"))
        await asyncio.to_thread(_set_quotas, secured, properties["admin"], [users[-2], users[-1]])
        world = World(clusters=3, namespaces=4, hpas=4)
        world.fleet[PULLED].create_namespace(HOME)
        # Not static: an ingest that has ended must have left its group, or its offsets could not be reset.
        rig = Rig(secured.broker, folder / "rig", world, static=False, settings=secured.admin, properties=properties)
        async with rig:
            async with open_writer(rig.config) as writer:
                settings = SettingsSet(cluster="*", settings=structs.replace(SETTINGS, sync_period_ms=SYNC_MS))
                await writer.send("settings and agents", "*", "", [settings, *agents])
            _start(rig, agents[0])
            made = Site(secured, rig, world, agents[0], agents[1])
            following = asyncio.create_task(_follow(made))
            try:
                yield made
            finally:
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)


def _start(rig: Rig, agent: AgentSet) -> None:
    pushed = ("--contexts", f"{PUSH},{PREVIEWS}")
    rig.add("ingest-0", "--sample-topic", SAMPLE_TOPIC)
    rig.add("decider-0")
    rig.add("observer-0", *pushed)
    rig.add("reconciler-0", *pushed)
    rig.add("router-0")
    # The stand-in would take the cluster over from a hub that it cannot read; it has tests of its own.
    rig.add("agent-0", "--contexts", PULLED, "--incarnation", str(agent.incarnation), "--no-stand-in")


def _set_quotas(secured: Secured, properties: Path, users: list[str]) -> None:
    """Give agents' users the quotas that `admin clusters add` prints, with Kafka's own tool."""
    tool = ("java", "-Xmx128m", "-cp", f"{fetch_jars()}/*", "kafka.admin.ConfigCommand", "--alter")
    reach = ("--bootstrap-server", secured.broker.bootstrap, "--command-config", str(properties))
    named = [part for user in users for part in ("--entity-type", "users", "--entity-name", user)]
    for at in range(0, len(named), 4):
        command = [*tool, *reach, "--add-config", QUOTAS, *named[at : at + 4]]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
        assert done.returncode == 0, done.stdout + done.stderr


# --- the tenant -------------------------------------------------------------------------------------------------------


def _labels(size: int) -> dict[str, str]:
    return {f"label-{number:05}": text(60, number % 999) for number in range(size // 78)}


def _deployment(name: str, namespace: str, replicas: int, labels: dict[str, str], **selector: str) -> dict[str, Any]:
    chosen = {"app": name[:60], **selector}
    template = {"metadata": {"labels": labels | chosen}, "spec": {"containers": [{"name": "a", "image": "a:1"}]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"replicas": replicas, "selector": {"matchLabels": chosen}, "template": template},
    }


def _hpa(name: str, namespace: str, metrics: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
    cpu = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}}}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 9, "metrics": metrics or [cpu]},
    }


async def tenant(site: Site) -> None:
    """Objects that an API server takes and no topic would: in a namespace of each log partition, changed again and
    again.
    """
    cluster = site.world.fleet[PUSH]
    own = [hostile_namespace(PUSH, "evil", number) for number in range(PARTITIONS)]
    cluster.set_metrics_faults([MetricsFault("evil*", message=text(200_000))])
    for namespace in own:
        cluster.apply(_deployment("huge", namespace, 1, {}))
        for number in range(2):
            cluster.apply(_deployment(f"chosen-{number}", namespace, 1, {}, **_labels(384_000)))
            cluster.apply(_hpa(f"chosen-{number}", namespace))
            await asyncio.sleep(0)
        cluster.apply(_deployment("labels", namespace, 2, _labels(495_000)))
        cluster.apply(_hpa("labels", namespace))
        await asyncio.sleep(0)
    for number in range(ATTACK_S // 5):
        for namespace in own:
            cluster.apply(_hpa("huge", namespace, [external(text(110_000, number))]))
        await asyncio.sleep(5)  # how often the tenant edits


async def previews(site: Site) -> None:
    """HPAs and Deployments with long names that come and go, all in one namespace."""
    cluster, namespace = site.world.fleet[PREVIEWS], hostile_namespace(PREVIEWS, "previews", 0)
    for wave in range(WAVES):
        names = [f"preview-{wave}-{number}-{text(225, wave * 50 + number)}" for number in range(PREVIEWS_A_WAVE)]
        for name in names:
            cluster.apply(_deployment(name, namespace, 0, {}))
            cluster.apply(_hpa(name, namespace))
            await asyncio.sleep(0)
        await asyncio.sleep(ATTACK_S / WAVES)  # how long they live
        for name in names:
            for kind in ("HorizontalPodAutoscaler", "Deployment"):
                _delete(cluster, "autoscaling/v2" if kind[0] == "H" else "apps/v1", kind, namespace, name)
            await asyncio.sleep(0)


def _delete(cluster: SimulatedCluster, version: str, kind: str, namespace: str, name: str) -> None:
    cluster.writes.delete(resources.by_kind(version, kind), namespace, name, {})


# --- the metric producer ----------------------------------------------------------------------------------------------


async def producer(site: Site) -> None:
    """Samples with random names of namespaces, clusters that exist, all for one log partition."""
    random, value = Random(7), text(400)
    begun = time.monotonic()
    async with running_producer(site.login("producer"), linger_ms=50) as out:
        while site.sent["producer"] < SAMPLES_BYTES:
            name = f"{random.getrandbits(248):x}"
            if partition_for(namespace_key(PUSH, name), PARTITIONS):
                continue
            point = Point(type="External", metric=name + value, milli=1, time=time.time_ns() // 1_000_000)
            record = PublicRecord(v=1, entries=[Samples(points=[point])], cluster=PUSH, namespace=name)
            site.sent["producer"] += len(encoded := encode(record))
            await out.send(SAMPLE_TOPIC, encoded, partition=0)
            due = begun + ATTACK_S * site.sent["producer"] / SAMPLES_BYTES
            if (early := due - time.monotonic()) > 0.05:
                await asyncio.sleep(early)


# --- a stolen credential of an agent ----------------------------------------------------------------------------------


def _reports(site: Site, number: int) -> list[tuple[str, list[Body]]]:
    """What the credential reports in its turn: namespace and bodies; none: of the whole cluster."""
    session, name = f"agent-{ROGUE}@1", text(240, number)
    natives = [LeftNative(namespace=f"n{at}-{name[:50]}", name=f"{at}-{name}") for at in range(1_500)]
    hands = ControlTransferred(cluster=ROGUE, holder="stand-in", generation=number, time=number, natives=natives)
    trouble = ObserverTrouble(part="pods", reason="failing", since=1, error=text(900, number))
    report = ClusterReport(cluster=ROGUE, session=session, instance=f"agent-{ROGUE}", troubles=[trouble] * 30)
    serving = Serving(
        session=session, clusters=[ROGUE], problems={ROGUE: WriteProblem(text(500_000, number % 999), "failing")}
    )
    hpas: list[Body] = [AutoscalerSet(hpa=_hpa(f"{at}-{name}", f"n{number}"), session=session) for at in range(100)]
    pods: list[Body] = [PodSet(pod=make_pod(f"{at}-{name}", uid=name), session=session) for at in range(500)]
    namespace = f"n{number}"
    return [("", [hands]), ("", [serving]), ("", [report]), (namespace, hpas), (namespace, pods)]


async def rogue(site: Site) -> None:
    """All that an agent may report, as fast as its quota lets it: whole partitions, new namespaces, HPAs, pods."""
    begun, user = time.monotonic(), f"fleethpa-agent-{ROGUE}"
    async with running_producer(site.login(user), max_request_size=1_000_000) as out:
        for number in count(1):
            for namespace, bodies in _reports(site, number):
                record = PublicRecord(
                    v=1, entries=bodies, time=time.time_ns() // 1_000_000, cluster=ROGUE if namespace else "",
                    namespace=namespace,
                )  # fmt: skip
                encoded = encode(record)
                await out.send_and_wait(site.rogue.topics.reports, encoded, partition=ONLY_PARTITION)
                site.sent["rogue"] += len(encoded)
            if time.monotonic() - begun > ATTACK_S:
                return


# --- what must hold ---------------------------------------------------------------------------------------------------


async def test_others_are_evaluated_in_time_whatever_tenants_producers_and_agents_do(tmp_path: Path) -> None:
    async with site(tmp_path) as made:
        parts = made.rig.parts
        await until(lambda: _all_evaluated(made, 0), "every HPA is evaluated", 240)
        pids = {name: part.running.pid for name, part in parts.items()}
        began_at = {name: part.output.stat().st_size for name, part in parts.items()}
        before_mb = {name: rss_mb(pid) for name, pid in pids.items()}
        begun_ms = _now_ms()
        await _attack(made)
        attacked_ms = _now_ms()
        # What waits for ingest and deciders is worked off, and only then counts as survived.
        await until(lambda: _all_evaluated(made, attacked_ms), "every HPA is evaluated after the attacks", 120)
        ended_ms, seconds = _now_ms(), (_now_ms() - begun_ms) / 1000
        assert {name: part.running.pid for name, part in parts.items()} == pids

        gaps = _gaps(made, begun_ms, ended_ms)
        p99_ms = gaps[int(len(gaps) * 0.99)][0]
        print(f"{seconds:.0f} s, sent {dict(made.sent)}; of {len(gaps)} gaps p99 {p99_ms} ms, worst {gaps[-12:]}")
        assert p99_ms < 2 * SYNC_MS, gaps[-30:]
        grown_mb = {name: round(rss_mb(pid) - before_mb[name]) for name, pid in pids.items()}
        print(f"memory in MB: {before_mb}, grown by {grown_mb}")
        assert max(grown_mb.values()) < limits.CLUSTER_BYTES.most / 1e6, grown_mb
        await _check_log(made, seconds)
        lines = {name: part.stated(began_at[name]).splitlines() for name, part in parts.items()}
        print(f"lines of the log: { {name: len(each) for name, each in lines.items()} }")
        for name in ("ingest-0", "decider-0", "observer-0", "router-0", "agent-0"):
            quiet = [line for line in lines[name] if "wanted write ended" not in line]  # of a line per write
            assert len(quiet) < LINES, quiet[:LINES]

        before = parts["agent-0"].output.stat().st_size
        await until(lambda: _writes(parts["agent-0"], before), "the agent that may read again writes", 120)
        await _use_commands(made, tmp_path)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


async def _attack(site: Site) -> None:
    """Everything at once, while an agent may not read what it is to do."""
    orders, user = [Acl("topic", site.pulled.topics.commands, ("READ",))], f"User:fleethpa-agent-{PULLED}"
    async with TopicAdmin(site.secured.admin) as admin:
        assert await admin.disallow(orders, user)
        async with asyncio.TaskGroup() as group:
            for attack in (tenant, previews, producer, rogue):
                group.create_task(attack(site))
        assert await admin.allow(orders, user)


async def _writes(agent: Part, after: int) -> bool:
    return "wanted write ended" in agent.stated(after)


async def _use_commands(site: Site, folder: Path) -> None:
    """The commands work with the least permissions of theirs, and the parts end in order."""
    reach = ("--brokers", site.secured.broker.bootstrap, "--kafka-config")
    reader, operator = ((*reach, str(folder / f"{name}.properties")) for name in ("reader", "operator"))
    evil = hostile_namespace(PUSH, "evil", 0)
    shown = await fleethpa(folder, "describe", "hpa", f"{PUSH}/{evil}/huge", *reader)
    assert "fleethpa ignores this HPA" in shown
    for who in (reader, operator):
        assert "as fleethpa needs them" in await fleethpa(folder, "doctor", "--only", "topics", *who)
    await fleethpa(folder, "admin", "archive", "--to", str(folder / "archive"), "--once", *reader)
    await fleethpa(folder, "pause", f"{PUSH}/n0/app0", "--reason", "INC-1", *operator)
    for name in ("observer-0", "agent-0", "reconciler-0", "router-0", "ingest-0", "decider-0"):
        await site.rig.stop(name)
    reset = ("admin", "ingest", "reset", topics.PODS, "1", "--yes", "--reason", "made again")
    assert "its recorded offsets are dropped; ingest continues from" in await fleethpa(folder, *reset, *operator)


async def _follow(site: Site) -> None:
    """Note when HPAs are evaluated, by the decider's clock."""
    tps = [TopicPartition(topics.DECISIONS, number) for number in range(PARTITIONS)]
    async with reader(site.secured.admin, tps) as consumer:
        async for record in consumer:
            decision = recorded_at(record.partition, record.offset, record.value).decision
            if decision.kind == "evaluation":
                site.evaluated[uid_of(decision.id)].append(record.timestamp)


def _others(site: Site) -> dict[HpaId, str]:
    """The others' HPAs, with their uids."""
    stored = "horizontalpodautoscalers.autoscaling"
    found = {hpa: site.world.fleet[hpa.cluster].store.get((stored, hpa.namespace, hpa.name)) for hpa in site.world.hpas}
    return {hpa: each["metadata"]["uid"] for hpa, each in found.items() if each is not None}


async def _all_evaluated(site: Site, after_ms: int) -> bool:
    assert not any(part.ended for part in site.rig.parts.values()), site.rig.tails()
    return all(max(site.evaluated[uid], default=0) > after_ms for uid in _others(site).values())


def _gaps(site: Site, begun_ms: int, ended_ms: int) -> list[tuple[int, int, str]]:
    """The times between two evaluations of one of the others' HPAs, those at begin and end included, sorted: how long
    in ms, how many seconds after the begin, and of which HPA.
    """
    found = []
    for hpa, uid in _others(site).items():
        times = [begun_ms, *(at for at in site.evaluated[uid] if begun_ms < at < ended_ms), ended_ms]
        found += [(later - at, (at - begun_ms) // 1000, str(hpa)) for at, later in pairwise(times)]
    return sorted(found)


async def _check_log(site: Site, seconds: float) -> None:
    """What attackers add to the log is what they sent, but for what is copied: that has a rate."""
    copied: Counter[int] = Counter()
    added: Counter[str] = Counter()
    for number, records in (await read_topic(site.secured.admin, topics.LOG)).items():
        for record in records:
            assert len(record.value) <= topics.MAX_LOG_RECORD_BYTES
            for entry in decode(record.value, LogRecord).entries:
                if entry.source is None or entry.source.topic not in (SAMPLE_TOPIC, site.rogue.topics.reports):
                    continue
                added["producer" if entry.source.topic == SAMPLE_TOPIC else "rogue"] += len(encode(entry))
                body = entry.body
                if isinstance(body, ControlTransferred):
                    body = structs.replace(body, natives=[])  # those are in the partition of their namespaces only
                if entry.key == WHOLE_PARTITION_KEY and not isinstance(body, ClusterReport):
                    copied[number] += len(encode(body))
    print(f"in the log: {dict(added)}, copied {dict(copied)}")
    assert added["producer"] < 1.5 * site.sent["producer"]
    assert added["rogue"] < 1.5 * site.sent["rogue"]
    assert max(copied.values()) <= rates.COPIED_BYTES.burst + rates.COPIED_BYTES.per_s * seconds
