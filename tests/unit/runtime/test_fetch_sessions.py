"""Fetch sessions against brokers of the test's own, which keep sessions, lose them, or have none."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import KafkaConnectionError
from aiokafka.protocol.fetch import FetchRequest
from hypothesis import given
from hypothesis import strategies as st

from runtime.fetchsessions import SessionClient

NODE, MOST = 1, 1_000
Place = tuple[str, int]
PLACES: list[Place] = [("samples", 0), ("samples", 1), ("pods", 0), ("pods", 1)]
NOT_FOUND, BAD_EPOCH = 70, 71


@dataclass
class Session:
    """What a broker knows of a session: the offset and the end of each partition that it last answered."""

    epoch: int = 1
    places: dict[Place, list[int]] = field(default_factory=dict)


class Broker:
    """A client whose broker answers fetches as Apache Kafka's FetchManager does. `versions`: of the fetch request."""

    def __init__(self, *, newest: int = 11, keeps: bool = True) -> None:
        self.versions, self.keeps = {FetchRequest.API_KEY: (4, newest)}, keeps
        self.cluster = "what is known of the brokers"
        self.ends = dict.fromkeys(PLACES, 0)
        self.sessions: dict[int, Session] = {}
        self.made = 0
        self.named: list[set[Place]] = []
        """The partitions in each request."""
        self.loses_request = self.loses_answer = False

    async def send(self, node_id: int, request: Any) -> Any:
        if not isinstance(request, FetchRequest):
            return request
        asked = request.prepare(self.versions)
        type(asked).SCHEMA.encode([vars(asked)[name] for name in asked.SCHEMA.names])  # the driver can write it
        if self.loses_request:
            raise KafkaConnectionError("the request was lost")
        answer = self._answer(asked)
        if self.loses_answer:
            raise KafkaConnectionError("the answer was lost")
        return answer

    def _answer(self, asked: Any) -> Any:
        version = asked.API_VERSION
        named = {
            (topic, each[0]): each[-3 if version >= 5 else 1] for topic, numbers in asked.topics for each in numbers
        }
        self.named.append(set(named))
        if version < 7:
            return answer_of(version, 0, 0, {place: self.ends[place] for place in named})
        if asked.session_epoch == 0:
            self.sessions.pop(asked.session_id, None)
            self.made += self.keeps
            session = Session(places={place: [offset, -1] for place, offset in named.items()})
            if self.keeps:
                self.sessions[self.made] = session
            return answer_of(version, 0, self.made if self.keeps else 0, news(session, self.ends, whole=True))
        if (known := self.sessions.get(asked.session_id)) is None:
            return answer_of(version, NOT_FOUND, 0, {})
        session = known
        if session.epoch != asked.session_epoch:
            return answer_of(version, BAD_EPOCH, 0, {})
        session.epoch += 1
        for place, offset in named.items():
            session.places.setdefault(place, [offset, -1])[0] = offset
        for topic, numbers in asked.forgotten_topics_data:
            for number in numbers:
                del session.places[topic, number]
        return answer_of(version, 0, asked.session_id, news(session, self.ends))


def news(session: Session, ends: dict[Place, int], *, whole: bool = False) -> dict[Place, int]:
    found = {}
    for place, known in session.places.items():
        if whole or ends[place] > known[0] or ends[place] != known[1]:
            found[place] = known[1] = ends[place]
    return found


def answer_of(version: int, error: int, session_id: int, ends: dict[Place, int]) -> Any:
    topics = [(topic, [(number, 0, end)]) for (topic, number), end in ends.items()]
    top = {"error_code": error, "session_id": session_id} if version >= 7 else {}
    return SimpleNamespace(API_VERSION=version, topics=topics, **top)


class Reader:
    """Fetches as the driver does: positions move by what an answer brings, and nobody else's answers are taken."""

    def __init__(self, broker: Broker) -> None:
        self.broker, self.client = broker, SessionClient(broker)
        self.positions = dict.fromkeys(PLACES, 0)
        self.ends: dict[Place, int] = {}
        self.resting: set[Place] = set()

    async def fetch(self) -> None:
        wanted = [place for place in PLACES if place not in self.resting]
        topics = [
            (topic, [(n, self.positions[topic, n], MOST) for t, n in wanted if t == topic])
            for topic in ("samples", "pods")
        ]
        request = FetchRequest(100, 1, MOST, 1, [each for each in topics if each[1]])
        asked = {place: self.positions[place] for place in wanted}
        try:
            answer = await self.client.send(NODE, request)
        except KafkaConnectionError:
            return
        for topic, numbers in answer.topics:
            for number, _, end in numbers:
                assert asked[topic, number] == self.positions[topic, number]
                self.ends[topic, number] = end
                self.positions[topic, number] = max(self.positions[topic, number], end)


async def test_a_fetch_names_only_the_partitions_that_moved_and_nothing_is_missed() -> None:
    reader = Reader(broker := Broker())
    await reader.fetch()
    await reader.fetch()
    broker.ends["pods", 1] = 3
    await reader.fetch()
    await reader.fetch()
    assert broker.named == [set(PLACES), set(), set(), {("pods", 1)}]
    assert reader.positions["pods", 1] == 3


async def test_a_partition_that_rests_is_forgotten_and_named_again_afterwards() -> None:
    reader = Reader(broker := Broker())
    await reader.fetch()
    reader.resting.add(("samples", 0))
    await reader.fetch()
    assert set(broker.sessions[1].places) == set(PLACES) - reader.resting
    reader.resting.clear()
    await reader.fetch()
    assert broker.named[-1] == {("samples", 0)}


async def test_after_a_new_assignment_every_partition_is_answered() -> None:
    reader = Reader(broker := Broker())
    await reader.fetch()
    reader.ends.clear()
    reader.client.begin_anew()
    await reader.fetch()
    assert set(reader.ends) == set(PLACES)
    assert list(broker.sessions) == [2]  # the one before is given up


@pytest.mark.parametrize(
    "broker",
    [
        pytest.param(Broker(newest=4), id="an old broker"),
        pytest.param(Broker(newest=6), id="the last version without sessions"),
        pytest.param(Broker(keeps=False), id="a broker that keeps no more sessions"),
    ],
)
async def test_without_sessions_every_fetch_names_all(broker: Broker) -> None:
    reader = Reader(broker)
    broker.ends["pods", 0] = 2
    for _ in range(3):
        await reader.fetch()
    assert broker.named == [set(PLACES)] * 3
    assert reader.positions["pods", 0] == 2


async def test_other_requests_are_none_of_the_sessions_business() -> None:
    client = SessionClient(Broker())
    assert await client.send(NODE, "a question for offsets") == "a question for offsets"
    assert client.ends == dict.fromkeys(PLACES, 0)


@pytest.mark.parametrize("lost", ["request", "answer", "session"])
async def test_what_was_written_is_read_after_a_loss_by_the_second_fetch(lost: str) -> None:
    reader = Reader(broker := Broker())
    for _ in range(2):
        await reader.fetch()
    if lost == "session":
        broker.sessions.clear()
    broker.loses_request, broker.loses_answer = lost == "request", lost == "answer"
    broker.ends["pods", 1] = 3
    await reader.fetch()
    broker.loses_request = broker.loses_answer = False
    for _ in range(2):
        await reader.fetch()
    assert reader.positions == broker.ends


async def test_a_position_that_goes_back_is_named_and_read_from_there() -> None:
    reader = Reader(broker := Broker())
    broker.ends["pods", 1] = 3
    for _ in range(3):
        await reader.fetch()
    reader.positions["pods", 1] = 1
    await reader.fetch()
    assert broker.named[-1] == {("pods", 1)}
    assert reader.positions == broker.ends


steps = st.one_of(
    st.tuples(st.just("write"), st.sampled_from(PLACES)),
    st.tuples(st.just("seek"), st.sampled_from(PLACES)),
    st.tuples(st.sampled_from(["rest", "go on"]), st.sampled_from(PLACES)),
    st.sampled_from(["fetch", "fetch", "fetch", "assign", "restart", "lose request", "lose answer", "full", "room"]),
)


@given(st.lists(steps, max_size=30))
async def test_whatever_happens_everything_that_is_written_is_read(happens: list[Any]) -> None:
    reader = Reader(broker := Broker())
    for step in happens:
        match step:
            case ("write", place):
                broker.ends[place] += 1
            case ("seek", place):
                reader.positions[place] = 0
            case ("rest", place):
                reader.resting.add(place)
            case ("go on", place):
                reader.resting.discard(place)
            case "fetch":
                await reader.fetch()
            case "assign":
                reader.client.begin_anew()
            case "restart":
                broker.sessions.clear()
            case "full" | "room":
                broker.keeps = step == "room"
            case _:
                broker.loses_request, broker.loses_answer = step == "lose request", step == "lose answer"
                await reader.fetch()
                broker.loses_request = broker.loses_answer = False
    reader.resting.clear()
    for _ in range(3):  # the first may be refused
        await reader.fetch()
    assert reader.positions == reader.ends == broker.ends


async def test_of_an_answer_the_driver_looks_only_at_what_is_named() -> None:
    reader = Reader(broker := Broker())
    await reader.fetch()
    broker.ends["pods", 1] = 3
    request = FetchRequest(100, 1, MOST, 1, [(topic, [(n, 0, MOST) for n in (0, 1)]) for topic in ("samples", "pods")])
    await reader.client.send(NODE, request)
    assert request.topics == [("pods", [(1, 0, MOST)])]
