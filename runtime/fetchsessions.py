"""Fetch sessions (KIP-227): a fetch names only the partitions of which something has changed, and so does its answer.

The driver (aiokafka 0.14) names every partition in each fetch, which costs both ends more than the records do where
most partitions bring nothing: ingest reads 168 of them, ten times a second. And it looks up leader and position of each
for it, which takes as long again; `FetchPlan` keeps them.

Source: https://cwiki.apache.org/confluence/display/KAFKA/KIP-227%3A+Introduce+Incremental+FetchRequests;
clients/src/main/java/org/apache/kafka/clients/FetchSessionHandler.java.
"""

import random
from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from functools import partial
from typing import Any

from aiokafka import TopicPartition
from aiokafka.protocol.fetch import FetchRequest
from msgspec import Struct

FIRST_VERSION = 7
"""Of the fetch request that has sessions."""
_NO_SESSION, _FIRST_EPOCH, _LAST_EPOCH = 0, 0, 2**31 - 1

FetchPlace = tuple[int, int, int]
"""Of a partition its number, from which offset on it is fetched, and at most how many bytes."""
Places = dict[str, list[FetchPlace]]
"""Topic -> its partitions."""
Topics = list[tuple[str, list[Any]]]
Send = Callable[[FetchRequest], Awaitable[Any]]


class _Part(Struct):
    tp: TopicPartition
    state: Any
    place: FetchPlace = (-1, -1, 0)


class FetchPlan:
    """The partitions of an assignment by leader, for as long as `leaders`, the metadata of the driver, are the same."""

    def __init__(self, assignment: Any, leaders: Mapping[str, Mapping[int, Any]]) -> None:
        self.assignment, self.leaders = assignment, leaders
        self._by_node: dict[int, dict[str, list[_Part]]] = {}
        self.node_of: dict[TopicPartition, int] = {}
        for tp in sorted(assignment.tps):
            metadata = leaders.get(tp.topic, {}).get(tp.partition)
            self.node_of[tp] = node_id = -1 if metadata is None else metadata.leader
            part = _Part(tp, assignment.state_value(tp))
            self._by_node.setdefault(node_id, {}).setdefault(tp.topic, []).append(part)

    @property
    def nodes(self) -> Sequence[int]:
        """The brokers to fetch from; -1: a partition has no leader that is known."""
        return list(self._by_node)

    def topics(self, node_id: int, without: Container[TopicPartition], most_bytes: int) -> Topics | None:
        """What a fetch from a broker asks for, but for partitions of which records are here; None: the position of one
        is not known, or it is paused.
        """
        found: Topics = []
        for topic, parts in self._by_node[node_id].items():
            places = []
            for part in parts:
                state = part.state
                offset = state._position
                if offset is None or state._paused:
                    return None
                if part.tp in without:
                    continue
                if part.place[1] != offset:
                    part.place = (part.tp.partition, offset, most_bytes)
                places.append(part.place)
            if places:
                found.append((topic, places))
        return found


class SessionClient:
    """The client of a consumer, of which each fetch is part of a session with its broker; all else is the client's."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.cluster = client.cluster  # the driver asks for it once per partition
        self._sessions: dict[int, FetchSession] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def begin_anew(self) -> None:
        """Let the next answers show every partition, as after a new assignment, of which nothing is known yet."""
        for session in self._sessions.values():
            session.restart()

    async def send(self, node_id: int, request: Any, **options: Any) -> Any:
        """Do what the client's does. An answer to a fetch leaves out the partitions without news."""
        send = partial(self._client.send, node_id, **options)
        if not isinstance(request, FetchRequest):
            return await send(request)
        return await self._sessions.setdefault(node_id, FetchSession()).fetch(request, send)


class FetchSession:
    """A session with one broker: which partitions it knows, and from which offset on."""

    def __init__(self) -> None:
        self._id, self._epoch = _NO_SESSION, _FIRST_EPOCH
        self._known: Places = {}

    def restart(self) -> None:
        """Name everything in the next fetch; the broker then forgets this session and begins another one."""
        self._epoch, self._known = _FIRST_EPOCH, {}

    async def fetch(self, request: FetchRequest, send: Send) -> Any:
        """Send a fetch of all wanted partitions as what differs from the one before.

        Without an answer, or after one that refuses the session, nobody knows what the broker knows: a new one begins.
        """
        epoch, known, wanted = self._epoch, self._known, dict(request.topics)
        news, forgotten = differences(known, wanted)
        if not known:  # without a session who is always named first would be read first, too
            for _, places in request.topics:
                random.shuffle(places)
            random.shuffle(request.topics)
            news = request.topics
        asked = SessionRequest(request, self._id, epoch, news, forgotten)
        self.restart()
        answer = await send(asked)
        if answer.API_VERSION >= FIRST_VERSION and not answer.error_code:
            self._id = answer.session_id
            if self._id != _NO_SESSION:  # a broker that keeps no more sessions answers without one
                self._epoch, self._known = 1 if epoch == _LAST_EPOCH else epoch + 1, wanted
                request._topics = _answered(wanted, answer.topics)  # the driver looks at each
        return answer


def _answered(wanted: Places, answered: Topics) -> Topics:
    """What was asked for of the partitions that are answered."""
    found: Topics = []
    for topic, parts in answered:
        numbers = {number for number, *_ in parts}
        found.append((topic, [place for place in wanted.get(topic, ()) if place[0] in numbers]))
    return found


class SessionRequest(FetchRequest):  # type: ignore[misc]  # the driver has no types
    """A fetch as part of a session; a broker that has none is sent the whole one.

    `whole`: the fetch of all wanted partitions. `news`: those of which the broker does not know that they are wanted,
    or from there on. `forgotten`: those that are not wanted any more.
    """

    def __init__(self, whole: FetchRequest, session_id: int, epoch: int, news: Topics, forgotten: Topics) -> None:
        self.__dict__ |= vars(whole)
        self._whole, self._news, self._forgotten = whole, news, forgotten
        self._session_id, self._epoch = session_id, epoch

    def build(self, request_struct_class: Any) -> Any:
        """Make the request of the version that the broker takes."""
        if request_struct_class.API_VERSION < FIRST_VERSION:
            return self._whole.build(request_struct_class)
        self._topics = self._news
        built: Any = super().build(request_struct_class)
        built.session_id, built.session_epoch = self._session_id, self._epoch
        built.forgotten_topics_data = self._forgotten
        return built


def differences(known: Places, wanted: Places) -> tuple[Topics, Topics]:
    """What is wanted and not known like this, and the numbers of the partitions that are not wanted any more."""
    news, forgotten = [], []
    for topic in sorted(known.keys() | wanted.keys()):
        if (held := known.get(topic, [])) == (asked := wanted.get(topic, [])):
            continue
        before, now = set(held), set(asked)
        if fresh := now - before:
            news.append((topic, sorted(fresh)))
        if gone := {number for number, *_ in before - now} - {number for number, *_ in fresh}:
            forgotten.append((topic, sorted(gone)))
    return news, forgotten
