"""Which replica of an agent may act, from what each of them saw of the Lease; and what time the brokers have."""

import copy
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.agents.agent.election import Election
from reconciler.agents.agent.process import Agent, AgentConfig
from reconciler.clusters.answers import ApiError, UnreachableError
from reconciler.clusters.client import ClusterConfig
from reconciler.core.lease import (
    DURATION_S,
    RENEW_DEADLINE_S,
    LeaseWatch,
    SeenLease,
    lease_spec,
    new_lease,
    next_step,
    seen_lease,
    watched,
)
from schemas.connection import KafkaSettings
from schemas.kubernetes.shape import Json


def lease(holder: str = "a", generation: int = 3, renewed: str = "t1", version: str = "9") -> SeenLease:
    return SeenLease(holder, generation, version, renewed=renewed)


@pytest.mark.parametrize(
    ("holder", "silent_s", "step"),
    [
        pytest.param("b", 0, "renew", id="its own is renewed"),
        pytest.param("b", 100, "renew", id="also after a long time in which nobody took it"),
        pytest.param("", 0, "take", id="one that was given back is taken at once"),
        pytest.param("a", DURATION_S - 0.1, "wait", id="a holder that renewed it lately is left alone"),
        pytest.param("a", DURATION_S, "take", id="one that was silent for the whole duration is replaced"),
    ],
)
def test_what_a_candidate_does(holder: str, silent_s: float, step: str) -> None:
    assert next_step(LeaseWatch(lease(holder), 50.0), "b", 50.0 + silent_s) == step


def test_only_a_renewal_shows_that_the_holder_lives() -> None:
    first = watched(None, lease(renewed="t1"), 10.0)
    same = watched(first, lease(renewed="t1", version="10"), 20.0)
    assert same.since_s == 10.0
    assert watched(same, lease(renewed="t2"), 30.0).since_s == 30.0
    assert watched(same, lease(holder="c", renewed="t1"), 30.0).since_s == 30.0


def test_a_lease_is_read_as_it_is_written() -> None:
    body = new_lease("home", "agent", lease_spec("b", 4, "2026-11-22T08:00:00.000000Z"))
    body["metadata"]["resourceVersion"] = "12"
    assert seen_lease(body) == SeenLease("b", 4, "12", renewed="2026-11-22T08:00:00.000000Z")
    assert seen_lease({"metadata": {"resourceVersion": "1"}}) == SeenLease("", 0, "1")


@dataclass
class Replica:
    """A candidate as `Election` works, on a Lease that is changed by compare-and-set."""

    name: str
    watch: LeaseWatch | None = None
    holds_until_s: float = 0.0

    def look(self, shared: list[SeenLease], now_s: float) -> None:
        self.watch = watched(self.watch, shared[-1], now_s)
        step = next_step(self.watch, self.name, now_s)
        if step != "wait":
            goes_on = step == "renew" and now_s < self.holds_until_s
            generation = shared[-1].generation + (not goes_on)
            shared.append(SeenLease(self.name, generation, str(len(shared)), renewed=str(now_s)))
            self.watch = watched(self.watch, shared[-1], now_s)
            self.holds_until_s = now_s + RENEW_DEADLINE_S


@given(st.lists(st.tuples(st.integers(0, 2), st.floats(0, 20)), max_size=60))
def test_there_are_never_two_leaders_and_each_term_has_a_higher_number(looks: list[tuple[int, float]]) -> None:
    """However long each replica is suspended between two looks at the Lease."""
    replicas = [Replica(name) for name in "abc"]
    shared, now_s = [SeenLease("", 0, "0")], 0.0
    terms: list[tuple[str, int]] = []
    for which, pause_s in looks:
        now_s += pause_s
        replicas[which].look(shared, now_s)
        leaders = [each.name for each in replicas if now_s < each.holds_until_s]
        assert len(leaders) <= 1
        if leaders and (not terms or terms[-1][1] != shared[-1].generation):
            terms.append((leaders[0], shared[-1].generation))
    generations = [generation for _, generation in terms]
    assert generations == sorted(set(generations))


class LateServer:
    """An API server with the Lease of the election. Time passes only as the test says: before, within and after
    requests.
    """

    name = "east"

    def __init__(self) -> None:
        self.now_s = 100.0
        self.lease: Json | None = None
        self.version = 0
        self.delays_s: dict[str, float] = {}
        self.lost: set[str] = set()

    async def get_object(self, path: str, **_: object) -> Json:
        found = copy.deepcopy(self.lease)
        self._passes("GET")
        if found is None:
            raise ApiError(404, "not found", reason="NotFound")
        return found

    async def request(self, method: str, path: str, *, body: Json, **_: object) -> Json:
        if method == "POST" and self.lease is not None:
            raise ApiError(409, "there is one", reason="AlreadyExists")
        if method == "PUT" and (self.lease or {})["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"]:
            raise ApiError(409, "another version", reason="Conflict")
        self.version += 1
        self.lease = {**body, "metadata": {**body["metadata"], "resourceVersion": str(self.version), "uid": "u"}}
        self._passes(method)
        return copy.deepcopy(self.lease)

    async def put(self, path: str, body: Json, **_: object) -> Json:
        return await self.request("PUT", path, body=body)

    def _passes(self, method: str) -> None:
        """The answer is on its way for as long as the test says, and may be lost."""
        self.now_s += self.delays_s.get(method, 0.0)
        if method in self.lost:
            raise UnreachableError("no answer")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> LateServer:
    made = LateServer()
    monkeypatch.setattr("reconciler.agents.agent.election.boot_s", lambda: made.now_s)
    return made


def _candidate(server: LateServer, identity: str = "a") -> Election:
    return Election(server, "home", "agent", identity)  # type: ignore[arg-type]


@pytest.mark.parametrize("method", ["POST", "PUT"])
async def test_a_term_counts_from_before_its_request_was_sent(server: LateServer, method: str) -> None:
    """The others may count from the moment at which the API server wrote the Lease, which may be at once."""
    if method == "PUT":
        server.lease = new_lease("home", "agent", lease_spec("", 3, "t"))
        server.lease["metadata"]["resourceVersion"] = "0"
    server.delays_s = {"GET": 3.0 if method == "PUT" else 0.0, method: 4.0}
    candidate, asked_s = _candidate(server), server.now_s
    assert await candidate._try()
    server.now_s = asked_s + RENEW_DEADLINE_S - 0.1
    assert candidate.leads
    server.now_s = asked_s + RENEW_DEADLINE_S
    assert not candidate.leads


async def test_a_term_whose_request_took_longer_than_a_term_never_began(server: LateServer) -> None:
    candidate = _candidate(server)
    server.delays_s = {"POST": RENEW_DEADLINE_S}
    assert not await candidate._try()
    assert not candidate.leads
    server.delays_s = {}
    assert await candidate._try()
    assert candidate.generation == 2


async def test_a_term_that_ended_is_not_taken_up_again_though_the_lease_is_still_its_own(server: LateServer) -> None:
    candidate = _candidate(server)
    assert await candidate.campaign() == 1
    server.lost = {"GET"}
    server.now_s += RENEW_DEADLINE_S
    assert not await candidate._try()
    assert not candidate.leads
    server.lost = set()
    assert (server.lease or {})["spec"]["holderIdentity"] == candidate.identity
    assert await candidate._try()
    assert candidate.generation == 2


@pytest.mark.parametrize("late", ["GET", "PUT"])
async def test_a_term_that_ends_while_its_renewal_is_on_the_way_stays_ended(server: LateServer, late: str) -> None:
    candidate = _candidate(server)
    term = await candidate.campaign()
    server.now_s += RENEW_DEADLINE_S - 1
    server.delays_s = {late: 3.0}
    held = await candidate._try()
    assert not candidate.leads or candidate.generation > term
    assert held is candidate.leads
    server.delays_s = {}
    assert await candidate._try()
    assert candidate.generation > term


async def test_who_leads_renews_within_one_term(server: LateServer) -> None:
    candidate = _candidate(server)
    term = await candidate.campaign()
    server.delays_s = {"GET": 1.0, "PUT": 1.0}
    for _ in range(10):
        assert await candidate._try()
        assert (candidate.leads, candidate.generation) == (True, term)


async def test_a_replica_that_cannot_reach_the_lease_for_longer_than_a_term_is_not_ready(server: LateServer) -> None:
    """As where its service account was deleted: then no replica can lead, and nobody scales in the cluster."""
    agent = Agent(AgentConfig(kafka=KafkaSettings(), clusters=(ClusterConfig("east"),), incarnation=1))
    candidate = _candidate(server)

    async def problems() -> list[str]:
        await candidate._try()
        agent.show(candidate)
        return agent.health.problems()

    assert await problems() == []
    server.lost = {"GET"}
    assert await problems() == []
    server.now_s += DURATION_S - 0.1
    assert await problems() == []  # an API server that restarts
    server.now_s += 0.1
    [problem] = await problems()
    assert problem.startswith("[-] lease: no answer; unless another replica of the agent leads, nobody scales")
    server.lost = set()
    assert await problems() == []
