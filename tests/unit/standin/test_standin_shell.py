"""The stand-in as it runs, against an API server that delays, reorders and drops: never two in charge, always one."""

import asyncio
import copy
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.agents.agent.clusterstore import ClusterStore
from reconciler.agents.agent.nativework import AT_ONCE, PER_LOOK
from reconciler.agents.agent.standin import StandIn, Surroundings, stand_by
from reconciler.agents.standin.effective import frozen_or_paused
from reconciler.agents.standin.evidence import GRACE_MS, LONGEST_GAP_MS, PROOF_MS, Judge
from reconciler.agents.standin.objects import PROOF_ANNOTATION, REASON_ANNOTATION, is_scaled_to_zero, unreported
from reconciler.agents.standin.protocol import HpaKey, SetHolder
from reconciler.clusters.answers import ApiError, UnreachableError
from reconciler.core.fence import GENERATION_LABEL, LEASE
from reconciler.core.knowledge import KnowledgeFold
from reconciler.core.objects import FIELD_MANAGER, STAND_IN_LABEL
from schemas.agents import STAND_IN_POLICY as POLICY
from schemas.codec import encode
from schemas.decisions import Decision, InputPosition
from schemas.entries import ControlTransferred, LeftNative, Outcome
from schemas.kubernetes.gotimes import rfc3339_seconds
from schemas.topics import MAX_LOG_RECORD_BYTES
from tests.laws import examples

Json = dict[str, Any]
HUB = "hub/main/1"
BEGIN_MS = 1_790_000_000_000
SPEC = {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "maxReplicas": 9}
NAMES = ("web", "api", "db")
COPIED = "copied"
FENCE_LAG_S, ADMITTED_S = 2, 4


@dataclass
class Request:
    """A write on its way, until `due_s`; `admitted`: the fence has let it in."""

    due_s: float
    method: str
    path: str
    body: Json
    admitted: bool = False


@dataclass
class FakeCluster:
    """An API server with the fence, and a native controller, in virtual seconds. `trouble`: how often something goes
    wrong with a request.
    """

    random: random.Random
    trouble: float = 0.0
    now_s: float = 0.0
    version: int = 0
    objects: dict[str, Json] = field(default_factory=dict)
    late: list[Request] = field(default_factory=list)
    fence: list[tuple[float, Json | None]] = field(default_factory=list)
    native_writing: str = ""
    """The HPA whose target the native controller is about to write; empty: none."""
    hub_writes: int = 0
    hub_wrote: dict[str, float] = field(default_factory=dict)
    """When the hub last wrote each target."""
    cut: set[str] = field(default_factory=set)
    has_fence: bool = True
    touched: list[str] = field(default_factory=list)

    # --- what passes ------------------------------------------------------------------------------------------------

    def second(self) -> None:
        """A second passes."""
        self.now_s += 1
        for request in [each for each in self.late if each.due_s <= self.now_s]:
            self.late.remove(request)
            try:
                self.arrive(request)
            except (ApiError, UnreachableError):
                continue
        self.native_controller()

    def native_controller(self) -> None:
        """It notices its HPAs after a while, and ends a write before it looks again."""
        if self.native_writing:
            if self.random.random() < 0.5:
                # What is left when the hub has the cluster again keeps its own target from it.
                is_left = self.native_writing in self.objects
                assert is_left or not self.lease_holder().startswith("hub/"), (
                    "a native write while the hub is in charge"
                )
                self.native_writing = ""
            return
        for hpa in self.hpas():
            if self.random.random() < 0.7:
                continue
            if frozen_or_paused(hpa["spec"]):
                hpa.setdefault("status", {})["observedGeneration"] = hpa["metadata"]["generation"]
                self.stamp(hpa)
            else:
                self.native_writing = hpa["metadata"]["name"]
                return

    def lease_holder(self) -> str:
        lease = self.objects.get(LEASE)
        return "" if lease is None else str(lease["spec"]["holderIdentity"])

    def hpas(self) -> list[Json]:
        """Those of the stand-in."""
        return [
            each
            for each in self.objects.values()
            if each["kind"] == "HorizontalPodAutoscaler" and each["metadata"]["name"] != COPIED
        ]

    def can_scale(self, name: str) -> bool:
        """Whether an HPA of the stand-in may still scale its target: not once its controller has seen its end."""
        hpa = self.objects.get(name)
        if hpa is None:
            return False
        is_seen = hpa["status"].get("observedGeneration") == hpa["metadata"]["generation"]
        return not (frozen_or_paused(hpa["spec"]) and is_seen and "deletionTimestamp" in hpa["metadata"])

    def add_copy(self, **changes: Any) -> None:
        """A tenant's HPA with everything that the stand-in writes into its own, in fleethpa's name, which no DELETE
        removes.
        """
        fields: Json = {"f:metadata": {"f:labels": {f"f:{STAND_IN_LABEL}": {}, f"f:{GENERATION_LABEL}": {}}}}
        metadata = {
            "name": COPIED,
            "namespace": "shop",
            "uid": "p1",
            "resourceVersion": "0",
            "generation": 1,
            "labels": {STAND_IN_LABEL: "true", GENERATION_LABEL: "1"},
            "finalizers": ["example.com/never"],
            "managedFields": [{"manager": FIELD_MANAGER, "operation": "Update", "fieldsV1": fields}],
        }
        self.objects[COPIED] = {
            "kind": "HorizontalPodAutoscaler",
            "metadata": metadata | changes,
            "spec": SPEC,
            "status": {},
        }

    def stamp(self, item: Json) -> None:
        self.version += 1
        item["metadata"]["resourceVersion"] = str(self.version)

    # --- requests ---------------------------------------------------------------------------------------------------

    async def request(self, who: str, method: str, path: str, body: Mapping[str, Any] | None = None) -> Json:
        """Carry a request out, unless it is lost, or late, or its answer is."""
        if who in self.cut:
            raise UnreachableError("cut off")
        request = Request(self.now_s, method, path, copy.deepcopy(dict(body or {})))
        fate = self.random.random()
        if fate < self.trouble / 3:
            raise UnreachableError("lost")
        if fate < 2 * self.trouble / 3 and method != "GET":
            request.due_s = self.now_s + self.random.choice([1, 3, 20, 60, 200])
            self.late.append(request)
            raise UnreachableError("no answer")
        found = self.arrive(request)
        if fate < self.trouble:
            raise UnreachableError("the answer is lost")
        return found

    def arrive(self, request: Request) -> Json:
        """A request arrives: the fence looks at it, and it is carried out at once or within 4 s."""
        name = request.path.partition("?")[0].rpartition("/")[2]
        if request.method == "GET":
            return self.read(request.path, name)
        if "dryRun=All" in request.path:
            return request.body
        if not request.admitted:
            self.admit(request)
            if self.random.random() < self.trouble / 3:
                request.admitted, request.due_s = True, self.now_s + self.random.uniform(0, ADMITTED_S - 1)
                self.late.append(request)
                raise UnreachableError("slow")
        return self.write(request, name)

    def admit(self, request: Request) -> None:
        """As `reconciler.agents.standin.objects` has it, with the Lease as it was up to two seconds ago."""
        lease = next(lease for at_s, lease in reversed(self.fence) if at_s <= self.now_s)
        holder = "" if lease is None else lease["spec"]["holderIdentity"]
        labels = request.body.get("metadata", {}).get("labels") or {}
        if request.path == "scale":
            refused = not holder.startswith("hub/")
        elif "horizontalpodautoscalers" in request.path and request.method != "DELETE":
            is_now = lease is not None and labels[GENERATION_LABEL] == str(lease["spec"]["leaseTransitions"])
            is_closed = request.method == "PUT" and frozen_or_paused(request.body["spec"])
            refused = not is_closed and not (holder == "stand-in" and is_now)
        else:
            refused = False
        if refused:
            raise ApiError(403, "the fence refuses it", reason="Forbidden")

    def read(self, path: str, name: str) -> Json:
        if name in ("horizontalpodautoscalers", "configmaps"):
            kind = {"horizontalpodautoscalers": "HorizontalPodAutoscaler", "configmaps": "ConfigMap"}[name]
            items = [each for each in self.objects.values() if each["kind"] == kind]
            if label := parse_qs(path.partition("?")[2]).get("labelSelector"):
                wanted = label[0].partition("=")[0]
                items = [each for each in items if wanted in (each["metadata"].get("labels") or {})]
            return {"metadata": {"resourceVersion": str(self.version)}, "items": copy.deepcopy(items)}
        if path.endswith("/scale"):
            return {"metadata": {"name": "web", "resourceVersion": "1"}, "spec": {"replicas": 2}}
        if "validatingadmissionpolicybindings" in path and self.has_fence:
            return {"metadata": {"resourceVersion": "1"}}
        if name not in self.objects:
            raise ApiError(404, f"{name} not found", reason="NotFound")
        return copy.deepcopy(self.objects[name])

    def write(self, request: Request, name: str) -> Json:
        if request.path == "scale":
            target = request.body["metadata"]["name"]
            assert not self.can_scale(target), "a write of the hub beside a native HPA"
            assert self.native_writing != target, "a write of the hub while a native one is coming"
            self.hub_writes += 1
            self.hub_wrote[target] = self.now_s
            return {}
        if request.method == "PATCH":
            self.touched.append(request.path.partition("?")[0])
            return {}
        key = name if request.method != "POST" else request.body["metadata"]["name"]
        known = self.objects.get(key)
        if request.method == "POST":
            if known is not None:
                raise ApiError(409, "there is one", reason="AlreadyExists")
            return self.put(key, request.body, None)
        if known is None:
            raise ApiError(404, "not found", reason="NotFound")
        asked = request.body.get("preconditions") or request.body.get("metadata") or {}
        for part in ("uid", "resourceVersion"):
            if part in asked and asked[part] != known["metadata"][part]:
                raise ApiError(409, f"another {part}", reason="Conflict")
        if request.method == "DELETE":
            if known["metadata"].get("finalizers"):
                known["metadata"]["deletionTimestamp"] = "2026-09-21T00:00:00Z"
                self.stamp(known)
                return copy.deepcopy(known)
            return self.remove(key)
        return self.put(key, request.body, known)

    def put(self, key: str, body: Json, known: Json | None) -> Json:
        item = copy.deepcopy(body)
        metadata = item["metadata"]
        same = known is not None and known.get("spec") == item.get("spec")
        metadata["generation"] = 1 if known is None else known["metadata"]["generation"] + (not same)
        item["status"] = {} if known is None else known.get("status", {})
        self.stamp(item)
        metadata["uid"] = f"u{self.version}" if known is None else known["metadata"]["uid"]
        self.objects[key] = item
        if key == LEASE:
            self.note_lease(item)
        return copy.deepcopy(item)

    def remove(self, key: str) -> Json:
        del self.objects[key]
        self.version += 1
        if key == LEASE:
            self.note_lease(None)
        return {}

    def note_lease(self, lease: Json | None) -> None:
        newest = self.fence[-1][0] if self.fence else 0.0
        at_s = max(newest, self.now_s + self.random.uniform(0, FENCE_LAG_S - 1))
        self.fence.append((at_s, copy.deepcopy(lease)))


class FakeClient:
    """What `ClusterStore` asks, of one agent."""

    def __init__(self, cluster: FakeCluster, who: str) -> None:
        self._cluster, self._who, self.name = cluster, who, "east"

    async def request(self, method: str, path: str, *, body: Json | None = None, **_: object) -> Json:
        return await self._cluster.request(self._who, method, path, body)

    async def get(self, path: str, **_: object) -> Json:
        return await self.request("GET", path)

    get_object = get

    async def put(self, path: str, body: Json, **_: object) -> Json:
        return await self.request("PUT", path, body=body)


class World:
    """Two agents and a hub on one cluster."""

    def __init__(self, seed: int, trouble: float) -> None:
        self.random = random.Random(seed)
        self.cluster = FakeCluster(self.random, trouble)
        self.cluster.fence.append((0.0, None))
        self.is_hub_alive, self.has_no_native, self.has_caught_up = True, False, True
        self.changes: list[ControlTransferred] = []
        self.troubles: dict[str, str | None] = {}
        self.agents = {name: self._agent(name) for name in ("a", "b")}
        self.seq = 0

    def _agent(self, name: str, judge: Judge | None = None) -> StandIn:
        knowledge = KnowledgeFold()
        knowledge.is_complete = True
        knowledge.hpas = {("shop", each): {"spec": SPEC, "metadata": {}} for each in NAMES}

        async def publish(change: ControlTransferred) -> None:
            self.changes.append(change)

        around = Surroundings(
            cluster="east",
            hub=HUB,
            knowledge=knowledge,
            now_ms=lambda: BEGIN_MS + int(self.cluster.now_s * 1000),
            is_frozen=lambda: False,
            has_no_native=lambda: self.has_no_native,
            grace_ms=lambda: GRACE_MS,
            has_caught_up=lambda: self.has_caught_up,
            publish=publish,
            note=self.troubles.__setitem__,
        )
        return StandIn(around, self._store(name), judge or Judge(), clock_s=lambda: self.cluster.now_s)

    def _store(self, name: str) -> ClusterStore:
        return ClusterStore(FakeClient(self.cluster, name), "fleethpa-system", (), lambda: GRACE_MS)  # type: ignore[arg-type]

    async def stand_by(self, name: str, judge: Judge) -> None:
        """One look of a replica that does not lead."""
        await stand_by(self._store(name), judge, clock_s=lambda: self.cluster.now_s)

    def decision(self, name: str) -> Decision:
        self.seq += 1
        return Decision(
            id=f"0-{self.seq}-{name}",
            seq=self.seq,
            prev="",
            cluster="east",
            namespace="shop",
            name=name,
            uid="u",
            time=rfc3339_seconds(BEGIN_MS + int(self.cluster.now_s * 1000)),
            input=InputPosition(partition=int(name == "api"), offset=self.seq, hash=""),
            mode="enforce",
            origin="central",
        )

    async def run(self, seconds: int, stalled: Callable[[str], bool] = lambda name: False) -> None:
        """Let time pass. An agent that stalls for a second does not look, and what it saw grows old."""
        for _ in range(seconds):
            self.cluster.second()
            for name, agent in self.agents.items():
                if self.is_hub_alive and int(self.cluster.now_s) % 5 == 0:
                    for each in NAMES:
                        agent.received(self.decision(each), is_past=False)
                if stalled(name):
                    continue
                await agent.check()
                await self.hub_writes(name, agent)

    async def hub_writes(self, name: str, agent: StandIn) -> None:
        for target in NAMES:
            if agent.forbids() or agent.blocks(HpaKey("shop", target)):
                continue
            try:
                await self.cluster.request(name, "PUT", "scale", {"metadata": {"name": target}})
            except (ApiError, UnreachableError):
                continue

    @property
    def holder(self) -> str:
        return self.cluster.lease_holder()


def played(seed: int, trouble: float, story: Callable[[World], Awaitable[None]]) -> World:
    world = World(seed, trouble)
    asyncio.run(story(world))  # type: ignore[arg-type]
    return world


async def _through_a_loss(world: World) -> None:
    await world.run(20)
    assert world.holder == HUB
    assert world.cluster.hub_writes
    world.is_hub_alive = False
    await world.run(GRACE_MS // 1000 + 15)
    assert world.holder == "stand-in"
    assert {each["metadata"]["name"] for each in world.cluster.hpas()} == set(NAMES)
    written = world.cluster.hub_writes
    await world.run(60)
    assert world.cluster.hub_writes == written
    world.is_hub_alive = True
    await world.run(PROOF_MS // 1000 + 60)
    assert (world.holder, world.cluster.hpas()) == (HUB, [])
    assert world.cluster.hub_writes > written


def test_the_stand_in_takes_over_in_time_and_gives_back() -> None:
    played(1, 0.0, _through_a_loss)


def test_a_fence_that_was_removed_within_a_term_is_missed_before_hpas_are_created() -> None:
    async def story(world: World) -> None:
        await world.run(20)
        world.cluster.has_fence = False
        world.is_hub_alive = False
        await world.run(GRACE_MS // 1000 + 15)

    cluster = played(1, 0.0, story).cluster
    assert {each["metadata"]["name"] for each in cluster.hpas()} == set(NAMES)
    assert set(cluster.touched) == {"/apis/apps/v1/namespaces/shop/deployments/web/scale"}
    assert played(1, 0.0, _through_a_loss).cluster.touched == []


async def _through_trouble(world: World) -> None:
    random_ = world.random
    asleep = dict.fromkeys(world.agents, 0.0)

    def stalled(name: str) -> bool:
        if random_.random() < 0.02:
            asleep[name] = world.cluster.now_s + random_.choice([3, 15, 50])
        return asleep[name] > world.cluster.now_s

    trouble, world.cluster.trouble = world.cluster.trouble, 0.0
    await world.run(20)  # what never was decided is nothing to stand in for
    world.cluster.trouble = trouble
    if random_.random() < 0.5:
        world.cluster.add_copy()
    copied = copy.deepcopy(world.cluster.objects.get(COPIED))
    for _ in range(6):
        world.is_hub_alive = random_.random() < 0.5
        world.cluster.cut = {name for name in world.agents if random_.random() < 0.2}
        if random_.random() < 0.15:
            world.cluster.objects.pop(LEASE, None)
            world.cluster.note_lease(None)
        await world.run(random_.choice([5, 40, 70, 120]), stalled)
    assert world.cluster.objects.get(COPIED) == copied
    # Nothing goes wrong any more: the right one is in charge in the end.
    world.cluster.cut, world.cluster.trouble = set(), 0.0
    world.is_hub_alive = random_.random() < 0.5
    await world.run(300)
    if world.is_hub_alive:
        assert (world.holder, world.cluster.hpas()) == (HUB, [])
    else:
        assert world.holder == "stand-in"
        assert len(world.cluster.hpas()) == len(NAMES)


SEEDS, TROUBLE = st.integers(0, 1 << 32), st.sampled_from([0.05, 0.2, 0.4])


@settings(max_examples=examples(6), deadline=None)
@given(seed=SEEDS, trouble=TROUBLE)
def test_never_two_in_charge_and_in_the_end_the_right_one(seed: int, trouble: float) -> None:
    played(seed, trouble, _through_trouble)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(seed=SEEDS, trouble=TROUBLE)
def test_the_same_for_longer(seed: int, trouble: float) -> None:
    played(seed, trouble, _through_trouble)


def test_an_hpa_that_a_person_gave_the_label_is_left_alone_and_named() -> None:
    world = World(3, 0.0)
    world.cluster.add_copy()
    before = copy.deepcopy(world.cluster.objects[COPIED])

    async def story() -> None:
        await _through_a_loss(world)

    asyncio.run(story())
    assert world.cluster.objects[COPIED] == before
    assert "shop/copied" in (world.troubles["stand-in"] or "")


def test_changes_of_hands_are_reported_with_rising_generations() -> None:
    world = World(2, 0.0)
    del world.agents["b"]

    async def story() -> None:
        reporting = [asyncio.ensure_future(agent.report()) for agent in world.agents.values()]
        await _through_a_loss(world)
        while len(world.changes) < world.cluster.objects[LEASE]["spec"]["leaseTransitions"]:
            await asyncio.sleep(0)
        for each in reporting:
            each.cancel()

    asyncio.run(story())
    found = sorted(world.changes, key=lambda each: each.generation)
    assert [each.holder for each in found] == ["closing", HUB, "stand-in", "closing", HUB]
    assert [each.generation for each in found] == [1, 2, 3, 4, 5]
    assert sorted(each.name for each in found[-1].natives) == sorted(NAMES)


@pytest.mark.parametrize("trouble", [0.0, 0.2])
def test_changes_that_a_lost_agent_could_not_report_are_reported_by_the_next(trouble: float) -> None:
    world = World(8, 0.0)
    del world.agents["b"]

    async def story() -> None:
        await world.run(20)
        world.cluster.trouble = trouble  # an answer that is lost, too, hides a change from the agent that made it
        world.is_hub_alive = False
        await world.run(90)
        del world.agents["a"]  # nothing of what it did is in the log
        world.cluster.trouble = 0.0
        world.agents["b"] = world._agent("b")
        await world.run(2)
        reporting = asyncio.ensure_future(world.agents["b"].report())
        while len(world.changes) < world.cluster.objects[LEASE]["spec"]["leaseTransitions"]:
            await asyncio.sleep(0)
        await world.run(2)
        reporting.cancel()

    asyncio.run(story())
    assert [each.generation for each in world.changes] == list(range(1, len(world.changes) + 1))
    assert world.changes[-1].holder == world.holder == "stand-in"
    assert "for 30 s" in world.changes[-1].reason
    assert [each.reason for each in world.changes[:-1]] == [""] * (len(world.changes) - 1)
    assert unreported(world.cluster.objects[LEASE]) == []


def test_nothing_is_done_under_a_newer_protocol() -> None:
    world = World(3, 0.0)

    async def story() -> None:
        await world.run(20)
        lease = world.cluster.objects[LEASE]
        lease["metadata"]["annotations"]["fleethpa.io/protocol"] = "2"
        await world.run(2)
        before, written = copy.deepcopy(world.cluster.objects[LEASE]), world.cluster.hub_writes
        world.is_hub_alive = False
        await world.run(60)
        assert (world.cluster.objects[LEASE], world.cluster.hpas()) == (before, [])
        assert world.cluster.hub_writes == written

    asyncio.run(story())


async def _a_replica_that_stood_by(world: World) -> None:
    """The leader and the hub are gone at once; the other replica gets the Lease of the election 15 s later."""
    del world.agents["b"]
    await world.run(30)
    world.is_hub_alive = False
    leader, last = world.agents.pop("a"), world.decision("web")
    judge = Judge()
    for _ in range(15):
        world.cluster.second()
        await world.stand_by("b", judge)
    judge.begin_term()
    world.has_caught_up = False
    world.agents["b"] = world._agent("b", judge)
    await world.run(2)
    world.agents["b"].received(last, is_past=False)
    world.has_caught_up = True
    await world.run(11)
    assert world.holder == HUB
    await world.run(3)
    assert world.holder == "stand-in"
    await world.run(8)
    assert len(world.cluster.hpas()) == len(NAMES)
    world.agents["a"] = leader


def test_a_replica_that_stood_by_knows_how_long_the_hub_has_been_silent() -> None:
    played(6, 0.0, _a_replica_that_stood_by)


@pytest.mark.parametrize("is_same_leader", [True, False])
def test_after_the_api_server_was_away_in_a_take_over_the_next_look_goes_on(is_same_leader: bool) -> None:
    """Whoever leads then has seen that the stand-in is in charge, and need not wait for that to settle once more."""
    world, judges = World(9, 0.0), {"a": Judge(), "b": Judge()}
    del world.agents["b"]

    async def story() -> None:
        world.agents["a"] = world._agent("a", judges["a"])
        await world.run(20)
        world.is_hub_alive = False
        while world.holder != "stand-in":
            await world.run(1)
        await world.run(1)
        await world.stand_by("b", judges["b"])
        del world.agents["a"]
        world.cluster.cut = {"a", "b"}
        for _ in range(12):  # the leader could not renew the Lease of the election: its term is over
            world.cluster.second()
            for name, judge in judges.items():
                await world.stand_by(name, judge)
        assert world.cluster.hpas() == []
        world.cluster.cut = set()
        name = "a" if is_same_leader else "b"
        judges[name].begin_term()
        world.agents[name] = world._agent(name, judges[name])
        await world.run(1)
        assert len(world.cluster.hpas()) == len(NAMES)

    asyncio.run(story())


def test_what_cannot_be_heard_counts_as_silence_after_a_while() -> None:
    world = World(7, 0.0)
    del world.agents["b"]

    async def story() -> None:
        await world.run(20)
        judge = Judge()
        for second in range(40):
            judge.stood_by(second * 1000, None, is_ok=True)
        judge.begin_term()
        world.has_caught_up, world.is_hub_alive = False, False
        world.agents["a"] = world._agent("a", judge)
        await world.run(9)
        assert world.holder == HUB
        await world.run(12)
        assert world.holder == "stand-in"

    asyncio.run(story())


def test_where_no_native_controller_runs_nothing_is_handed_over() -> None:
    world = World(5, 0.0)
    world.has_no_native = True

    async def story() -> None:
        await world.run(20)
        world.is_hub_alive = False
        await world.run(90)
        assert (world.holder, world.cluster.hpas()) == (HUB, [])

    asyncio.run(story())


NO_RIGHT = 'deployments.apps "web" is forbidden: User "agent" cannot update resource "deployments/scale"'


def _writing(world: World, error: str, names: tuple[str, ...] = NAMES) -> None:
    """Each look of the agent follows a write of each HPA, carried out or refused as long as the hub is in charge."""
    agent = world.agents["a"]
    look = agent.check

    async def writing() -> None:
        await look()
        for name in () if agent.forbids() else names:
            result: Any = "failed" if error else "applied"
            agent.wrote(world.decision(name), Outcome(decision="d", name=name, uid="u", result=result, error=error))

    agent.check = writing  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("error", "has_no_native", "holder"),
    [
        pytest.param(NO_RIGHT, False, "stand-in", id="no right to write"),
        pytest.param(NO_RIGHT, True, HUB, id="no right to write, and no native controller that could scale"),
        pytest.param('admission webhook "a" denied the request: no', False, HUB, id="denied by admission"),
        pytest.param("PUT /scale: connection refused", False, HUB, id="an API server that restarts"),
    ],
)
def test_the_stand_in_takes_over_only_where_the_native_controller_could_write_what_the_hub_cannot(
    error: str, has_no_native: bool, holder: str
) -> None:
    world = World(5, 0.0)
    del world.agents["b"]
    world.has_no_native = has_no_native
    _writing(world, error)

    async def story() -> None:
        await world.run(60)
        assert (world.holder, len(world.cluster.hpas())) == (holder, len(NAMES) if holder == "stand-in" else 0)

    asyncio.run(story())


def test_three_failed_writes_do_not_keep_the_hub_away_for_good() -> None:
    """After a take-over for lack of rights the hub is tried again, and keeps the cluster once it may write."""
    world = World(5, 0.0)
    del world.agents["b"]
    agent = world.agents["a"]
    look = agent.check
    _writing(world, NO_RIGHT)

    async def story() -> None:
        await world.run(60)
        assert world.holder == "stand-in"
        assert NO_RIGHT in agent.forbids()
        assert NO_RIGHT in world.cluster.objects[LEASE]["metadata"]["annotations"][REASON_ANNOTATION]
        agent.check = look  # type: ignore[method-assign]
        await world.run(PROOF_MS // 1000 + 60)
        assert (world.holder, world.cluster.hpas(), agent.forbids()) == (HUB, [], "")
        assert REASON_ANNOTATION not in world.cluster.objects[LEASE]["metadata"]["annotations"]
        await world.run(6 * 60)
        assert world.holder == HUB

    asyncio.run(story())


def test_what_keeps_the_stand_in_from_scaling_is_reported_while_it_is_in_charge() -> None:
    world = World(5, 0.0)
    del world.agents["b"]
    agent, admit = world.agents["a"], world.cluster.admit

    def refuse(request: Request) -> None:
        if request.method == "POST" and request.body["metadata"]["name"] == "web":
            raise ApiError(403, "exceeded quota", reason="Forbidden")
        admit(request)

    async def story() -> None:
        await world.run(20)
        world.is_hub_alive, world.cluster.admit = False, refuse  # type: ignore[method-assign]
        assert agent.trouble() == ""
        await world.run(GRACE_MS // 1000 + 15)
        assert "exceeded quota" in agent.trouble()
        assert "no decisions from 2 partitions of the log (0, 1) for 30 s" in agent.forbids()
        world.cluster.native_controller = lambda: None  # type: ignore[method-assign]
        for hpa in world.cluster.hpas():
            hpa["status"] = {"conditions": [{"type": "AbleToScale", "status": "False", "message": "denied"}]}
        await world.run(2)
        assert "2 native HPAs do not scale, shop/api: denied" in agent.trouble()

    asyncio.run(story())


def test_a_hand_back_ends_though_the_native_controller_was_switched_off_meanwhile() -> None:
    world = World(6, 0.0)

    async def story() -> None:
        await world.run(20)
        world.is_hub_alive = False
        await world.run(60)
        assert world.cluster.hpas()
        world.cluster.native_writing = ""
        world.cluster.native_controller = lambda: None  # type: ignore[method-assign]
        world.is_hub_alive = True
        await world.run(150)
        # Nobody knows that none runs, and a write of it may still come: the hub has the cluster, but for these targets.
        assert (world.holder, len(world.cluster.hpas())) == (HUB, len(NAMES))
        assert "the HPA controller has not confirmed" in world.agents["a"].trouble()
        world.has_no_native = True
        await world.run(60)
        assert (world.holder, world.cluster.hpas(), world.agents["a"].trouble()) == (HUB, [], "")

    asyncio.run(story())


def test_a_hub_that_flaps_must_show_life_for_longer() -> None:
    world = World(4, 0.0)

    async def story() -> None:
        await _through_a_loss(world)
        assert world.cluster.objects[LEASE]["metadata"]["annotations"][PROOF_ANNOTATION] == str(PROOF_MS)
        world.is_hub_alive = False
        await world.run(60)
        assert world.cluster.objects[LEASE]["metadata"]["annotations"][PROOF_ANNOTATION] == str(2 * PROOF_MS)
        world.is_hub_alive = True
        await world.run(PROOF_MS // 1000 + 30)
        assert world.holder == "stand-in"
        await world.run(PROOF_MS // 1000 + 30)
        assert world.holder == HUB

    asyncio.run(story())


def _hold(world: World, name: str) -> None:
    """A tenant gives a native HPA of the stand-in a finalizer."""
    native = world.cluster.objects[name]
    native["metadata"]["finalizers"] = ["example.com/never"]
    world.cluster.stamp(native)


@pytest.mark.parametrize("has_no_native", [False, True], ids=["native controller", "none"])
def test_a_native_hpa_that_a_finalizer_keeps_keeps_its_own_target_from_the_hub_alone(has_no_native: bool) -> None:
    world = World(6, 0.0)
    del world.agents["b"]
    web = HpaKey("shop", "web")

    async def story() -> None:
        await world.run(20)
        world.is_hub_alive = False
        await world.run(60)
        _hold(world, "web")
        world.has_no_native, world.is_hub_alive = has_no_native, True
        await world.run(PROOF_MS // 1000 + 30)
        begun_s, generation = world.cluster.now_s, world.cluster.objects[LEASE]["spec"]["leaseTransitions"]
        assert (world.holder, [each["metadata"]["name"] for each in world.cluster.hpas()]) == (HUB, ["web"])
        await world.run(900)
        assert (world.holder, world.cluster.objects[LEASE]["spec"]["leaseTransitions"]) == (HUB, generation)
        written = {name for name, at_s in world.cluster.hub_wrote.items() if at_s > begun_s + 800}
        assert written == (set(NAMES) if has_no_native else {"api", "db"})
        if not has_no_native:
            assert "shop/web is still there: the finalizer example.com/never keeps it" in world.agents["a"].blocks(web)
            assert "shop/web" in world.agents["a"].trouble()
            assert not world.agents["a"].blocks(HpaKey("shop", "api"))
        del world.cluster.objects["web"]
        await world.run(10)
        assert (world.agents["a"].blocks(web), world.agents["a"].trouble()) == ("", "")
        await world.run(60)
        assert world.troubles["stand-in"] is None

    asyncio.run(story())


def test_a_native_hpa_that_is_enabled_again_and_again_keeps_its_own_target_from_the_hub_alone() -> None:
    world = World(6, 0.0)
    del world.agents["b"]

    async def story() -> None:
        await world.run(20)
        world.is_hub_alive = False
        await world.run(60)
        world.is_hub_alive = True
        begun_s = 0.0
        for _ in range(PROOF_MS // 1000 + 300):
            native = world.cluster.objects.get("web")
            assert native is not None
            if world.holder != "stand-in":
                world.cluster.put("web", {**native, "spec": SPEC}, native)
            await world.run(1)
            begun_s = begun_s or (world.cluster.now_s if world.holder == HUB else 0.0)
        assert world.holder == HUB
        written = {name for name, at_s in world.cluster.hub_wrote.items() if at_s > begun_s}
        assert (written, [each["metadata"]["name"] for each in world.cluster.hpas()]) == ({"api", "db"}, ["web"])

    asyncio.run(story())


@pytest.mark.parametrize("has_no_native", [False, True], ids=["native controller", "none"])
@pytest.mark.parametrize("is_at_a_loss", [False, True], ids=["while the hub is in charge", "in a hand-back"])
def test_an_hpa_of_a_tenant_in_fleethpas_name_takes_the_cluster_from_nobody(
    has_no_native: bool, is_at_a_loss: bool
) -> None:
    """It has the label and fleethpa's field manager, and what the stand-in wrote into one of its own, and cannot be
    deleted.
    """
    world = World(6, 0.0)
    del world.agents["b"]

    async def story() -> None:
        await world.run(20)
        if is_at_a_loss:
            world.is_hub_alive = False
            await world.run(60)
        shown = world.cluster.objects.get("web", {"metadata": {}})["metadata"]
        world.cluster.add_copy(**{part: shown[part] for part in ("annotations", "labels") if part in shown})
        world.is_hub_alive, world.has_no_native = True, has_no_native
        await world.run(PROOF_MS // 1000 + 60)
        assert (world.holder, world.cluster.hpas()) == (HUB, [])
        before, begun_s = copy.deepcopy(world.cluster.objects[COPIED]), world.cluster.now_s
        holders = set()
        for _ in range(900):
            await world.run(1)
            holders.add(world.holder)
        assert (holders, world.cluster.objects[COPIED]) == ({HUB}, before)
        assert min(world.cluster.hub_wrote.values()) > begun_s + 890
        assert "shop/copied" in str(world.troubles["stand-in"])

    asyncio.run(story())


def test_a_native_hpa_whose_label_somebody_took_away_is_ended_like_the_others() -> None:
    world = World(6, 0.0)
    del world.agents["b"]

    async def story() -> None:
        await world.run(20)
        world.is_hub_alive = False
        await world.run(60)
        native = world.cluster.objects["web"]
        native["metadata"]["labels"] = {}
        world.cluster.stamp(native)
        await world.run(2)
        assert not world.agents["a"]._store.labelled
        del native["metadata"]["annotations"]
        native["metadata"]["labels"] = {}
        world.cluster.stamp(native)
        world.is_hub_alive = True
        await world.run(PROOF_MS // 1000 + 60)
        assert (world.holder, world.cluster.hpas(), world.agents["a"].trouble()) == (HUB, [], "")

    asyncio.run(story())


def test_an_hpa_that_a_tenant_puts_in_place_of_the_stand_ins_is_not_taken_for_it() -> None:
    """Also one with all that the API shows of the other, but for its uid. It keeps its own target from the hub."""
    world = World(6, 0.0)
    del world.agents["b"]

    async def story() -> None:
        await world.run(20)
        world.is_hub_alive = False
        await world.run(60)
        own = world.cluster.objects["web"]
        world.cluster.objects["web"] = {**own, "metadata": own["metadata"] | {"uid": "p2", "finalizers": ["x/y"]}}
        world.agents["a"] = world._agent("a")
        world.is_hub_alive = True
        for name in NAMES:
            world.agents["a"].received(world.decision(name), is_past=False)
        await world.run(PROOF_MS // 1000 + 60)
        assert (world.holder, [each["metadata"]["uid"] for each in world.cluster.hpas()]) == (HUB, ["p2"])
        assert not frozen_or_paused(world.cluster.objects["web"]["spec"])
        assert "the stand-in has no record of it" in world.agents["a"].blocks(HpaKey("shop", "web"))
        assert not world.agents["a"].blocks(HpaKey("shop", "api"))
        assert "shop/web" in world.agents["a"].trouble()

    asyncio.run(story())


def test_a_native_hpa_whose_creation_had_no_answer_is_known_as_the_stand_ins() -> None:
    """Also by the replica that leads next, which knows of it what was recorded before the request was sent."""
    world = World(6, 0.0)
    del world.agents["b"]
    request = world.cluster.request

    async def unanswered(who: str, method: str, path: str, body: Mapping[str, Any] | None = None) -> Json:
        found = await request(who, method, path, body)
        if method == "POST" and path.endswith("horizontalpodautoscalers"):
            world.cluster.cut = {"a"}
            raise UnreachableError("no answer")
        return found

    async def story() -> None:
        await world.run(20)
        world.is_hub_alive, world.cluster.request = False, unanswered  # type: ignore[method-assign]
        await world.run(GRACE_MS // 1000 + 15)
        assert len(world.cluster.hpas()) == 1
        world.cluster.request = request  # type: ignore[method-assign]
        world.cluster.cut = set()
        world.agents["a"] = world._agent("a")
        await world.run(60)
        assert len(world.cluster.hpas()) == len(NAMES)
        assert not world.agents["a"]._store.labelled
        world.is_hub_alive = True
        await world.run(PROOF_MS // 1000 + 60)
        assert (world.holder, world.cluster.hpas()) == (HUB, [])

    asyncio.run(story())


def test_what_an_agent_that_starts_does_not_know_of_it_neither_removes_nor_gives_back() -> None:
    """Its ConfigMaps were deleted, and the hub, which could tell, is away."""
    world = World(6, 0.0)
    del world.agents["b"]

    async def story() -> None:
        await world.run(20)
        world.is_hub_alive = False
        await world.run(60)
        for name in [name for name, each in world.cluster.objects.items() if each["kind"] == "ConfigMap"]:
            del world.cluster.objects[name]
        world.agents["a"] = world._agent("a")
        world.agents["a"]._around.knowledge.is_complete = False
        await world.run(150)
        assert world.holder == "stand-in"
        assert {each["metadata"]["name"] for each in world.cluster.hpas()} == set(NAMES)
        assert not any(frozen_or_paused(each["spec"]) for each in world.cluster.hpas())
        written = dict(world.cluster.hub_wrote)
        world.agents["a"]._around.knowledge.is_complete = world.is_hub_alive = True
        await world.run(PROOF_MS // 1000 + 60)
        # The record of those that it made was lost, too: they are left to a person, and keep their targets until then.
        assert (world.holder, len(world.cluster.hpas()), world.cluster.hub_wrote) == (HUB, len(NAMES), written)
        assert "shop/api has the label" in world.agents["a"].trouble()
        world.cluster.native_writing = ""
        for name in NAMES:
            del world.cluster.objects[name]
        await world.run(60)
        assert min(world.cluster.hub_wrote.values()) > max(written.values())

    asyncio.run(story())


def _with_many(world: World, count: int) -> list[str]:
    """Give the one agent so many HPAs, and decisions of each."""
    del world.agents["b"]
    names = [f"hpa-{number:03}" for number in range(count)]
    world.agents["a"]._around.knowledge.hpas = {("shop", each): {"spec": SPEC, "metadata": {}} for each in names}
    return names


def test_hpas_that_are_refused_keep_none_from_its_turn() -> None:
    """As many as are tried at one look are refused, by a quota perhaps: the others get theirs in time."""
    world = World(6, 0.0)
    names = _with_many(world, PER_LOOK + 20)
    admit = world.cluster.admit

    def refuse(request: Request) -> None:
        if request.method == "POST" and request.body["metadata"]["name"] in names[:PER_LOOK]:
            raise ApiError(403, "exceeded quota", reason="Forbidden")
        admit(request)

    async def story() -> None:
        for each in names:
            world.agents["a"].received(world.decision(each), is_past=False)
        await world.run(20)
        world.is_hub_alive, world.cluster.admit = False, refuse  # type: ignore[method-assign]
        await world.run(GRACE_MS // 1000 + 15)
        assert [each["metadata"]["name"] for each in world.cluster.hpas()] == names[PER_LOOK:]
        assert "exceeded quota" in str(world.troubles["stand-in"])

    asyncio.run(story())


def test_creations_that_hang_do_not_keep_the_time_from_counting() -> None:
    world = World(6, 0.0)
    names = _with_many(world, 3 * AT_ONCE)
    request = world.cluster.request

    async def hanging(who: str, method: str, path: str, body: Mapping[str, Any] | None = None) -> Json:
        if method == "POST" and path.endswith("horizontalpodautoscalers") and not world.is_hub_alive:
            world.cluster.now_s += 4 / AT_ONCE  # as many wait for their 4 s at once
            raise ApiError(504, "the webhook does not answer")
        return await request(who, method, path, body)

    async def story() -> None:
        for each in names:
            world.agents["a"].received(world.decision(each), is_past=False)
        await world.run(20)
        world.cluster.request = hanging  # type: ignore[method-assign]
        world.is_hub_alive = False
        while world.holder != "stand-in":
            await world.run(1)
        begun_s, looks = world.cluster.now_s, 8
        for _ in range(looks):
            looked_s = world.cluster.now_s
            await world.run(1)
            assert world.cluster.now_s - looked_s < LONGEST_GAP_MS / 1000, "longer ones would not count"
        assert world.cluster.now_s > begun_s + looks, "some were tried"

    asyncio.run(story())


def test_a_target_at_zero_is_woken_though_the_answer_to_its_creation_was_lost() -> None:
    world = World(6, 0.0)
    del world.agents["b"]
    sleeping = {"spec": {**SPEC, "minReplicas": 0}, "metadata": {}}
    world.agents["a"]._around.knowledge.hpas["shop", "web"] = sleeping
    request, lost = world.cluster.request, list[str]()

    async def losing(who: str, method: str, path: str, body: Mapping[str, Any] | None = None) -> Json:
        if path.endswith("/scale") and method == "GET":
            return {"metadata": {"name": "web", "resourceVersion": "1"}, "spec": {"replicas": 0}}
        if path.endswith("/web/status"):
            hpa = world.cluster.objects["web"]
            hpa["status"] = {**hpa["status"], **(body or {})["status"]}
            return hpa
        found = await request(who, method, path, body)
        if path.endswith("horizontalpodautoscalers") and method == "POST" and len(lost) < 3:
            lost.append(path)
            raise UnreachableError("the answer is lost")
        return found

    async def story() -> None:
        await world.run(20)
        world.cluster.request = losing  # type: ignore[method-assign]
        world.is_hub_alive = False
        await world.run(GRACE_MS // 1000 + 15)
        assert len(lost) == 3
        assert is_scaled_to_zero(world.cluster.objects["web"])

    asyncio.run(story())


@pytest.mark.parametrize(("policy", "raised"), [("floor=5", 5), ("floor=5000", 9)])
def test_a_target_is_raised_to_its_floor_once(policy: str, raised: int) -> None:
    world = World(6, 0.0)
    del world.agents["b"]
    world.agents["a"]._around.knowledge.hpas["shop", "web"]["metadata"] = {"annotations": {POLICY: policy}}
    request, scales = world.cluster.request, list[int]()

    async def scaling(who: str, method: str, path: str, body: Mapping[str, Any] | None = None) -> Json:
        if "/scale?fieldManager=fleethpa-floor" in path:
            scales.append((body or {})["spec"]["replicas"])
            return {}
        return await request(who, method, path, body)

    async def story() -> None:
        await world.run(20)
        world.cluster.request = scaling  # type: ignore[method-assign]
        world.is_hub_alive = False
        await world.run(GRACE_MS // 1000 + 30)
        assert (world.holder, scales) == ("stand-in", [raised])

    asyncio.run(story())


def test_creations_that_hang_do_not_keep_a_floor_from_being_raised() -> None:
    """A webhook for HPAs hangs; the scale of a target that is to have a floor has nothing to do with it."""
    world = World(6, 0.0)
    names = _with_many(world, 3 * AT_ONCE)
    world.agents["a"]._around.knowledge.hpas["shop", names[0]]["metadata"] = {"annotations": {POLICY: "floor=5"}}
    request, scales = world.cluster.request, list[int]()

    async def hanging(who: str, method: str, path: str, body: Mapping[str, Any] | None = None) -> Json:
        if "/scale?fieldManager=fleethpa-floor" in path:
            scales.append((body or {})["spec"]["replicas"])
            return {}
        if method == "POST" and path.endswith("horizontalpodautoscalers"):
            world.cluster.now_s += 4 / AT_ONCE  # as many wait for their 4 s at once
            raise ApiError(504, "the webhook does not answer")
        return await request(who, method, path, body)

    async def story() -> None:
        for each in names:
            world.agents["a"].received(world.decision(each), is_past=False)
        await world.run(20)
        world.cluster.request = hanging  # type: ignore[method-assign]
        world.is_hub_alive = False
        await world.run(GRACE_MS // 1000 + 30)
        assert (world.holder, scales) == ("stand-in", [5])

    asyncio.run(story())


@pytest.mark.parametrize(
    "item",
    [
        pytest.param("web", id="a text"),
        pytest.param({"metadata": {"name": "web", "namespace": "shop"}, "spec": {}}, id="neither uid nor version"),
        pytest.param(
            {"metadata": {"name": "web", "namespace": "shop", "uid": "u", "resourceVersion": "1"}}, id="no spec"
        ),
    ],
)
def test_a_list_of_native_hpas_of_an_odd_shape_is_a_trouble_of_the_cluster(item: Any) -> None:
    world = World(6, 0.0)
    del world.agents["b"]
    read = world.cluster.read

    def odd(path: str, name: str) -> Json:
        if name == "horizontalpodautoscalers":
            return {"metadata": {"resourceVersion": "9"}, "items": [item]}
        return read(path, name)

    async def story() -> None:
        world.cluster.read = odd  # type: ignore[method-assign]
        await world.run(5)
        assert "cannot be read" in str(world.troubles["stand-in"])
        assert world.agents["a"].forbids()
        del world.cluster.read
        await world.run(20)
        assert (world.holder, world.troubles["stand-in"]) == (HUB, None)

    asyncio.run(story())


def test_a_hand_back_of_more_than_fits_names_those_that_were_scaled_to_zero() -> None:
    """The hub would take them for switched off."""
    agent = World(6, 0.0).agents["a"]
    for number in range(20_000):
        native = LeftNative(namespace="shop", name=f"hpa-{number:05}", scaled_to_zero=number >= 19_990)
        agent._native_work.left[HpaKey(native.namespace, native.name)] = native
    change = agent._next_change(SetHolder(HUB, 4, "1", "u"), "")
    assert len(encode(change)) <= MAX_LOG_RECORD_BYTES < len(encode(list(agent._native_work.left.values())))
    assert sum(native.scaled_to_zero for native in change.natives) == 10


def test_what_is_heard_before_the_cluster_can_be_read_does_not_pile_up() -> None:
    world = World(6, 0.0)
    del world.agents["b"]
    world.cluster.cut = {"a"}

    async def story() -> None:
        await world.run(300)
        assert len(world.agents["a"]._early) == len(NAMES)
        world.cluster.cut = set()
        await world.run(20)
        assert (world.holder, len(world.agents["a"]._specs.saved)) == (HUB, len(NAMES))

    asyncio.run(story())
