"""Writing statuses in a cluster that does not answer."""

from typing import Any

import msgspec
import pytest
from msgspec import structs
from prometheus_client import CollectorRegistry

from reconciler.apply.actuator import DOWN_FOR_MS
from reconciler.apply.clusterwriters import failure_of
from reconciler.apply.reconcilermetrics import ReconcilerMetrics
from reconciler.apply.statuswriter import GIVE_UP_MS, StatusWrite, StatusWriter
from reconciler.clusters.answers import ApiError, UnreachableError
from reconciler.core.inbox import Position, ShownDecision, shown_decision
from reconciler.core.statuses import HpaAnswer
from schemas.codec import encode
from schemas.decisions import Decision, InputPosition
from schemas.observed import Reason, WriteProblem


class Silent:
    """A client of a cluster that answers nothing; each request takes as long as a status is tried."""

    name = "east"

    def __init__(self) -> None:
        self.asked = 0
        self.now_ms = 1_000_000

    async def get_as(self, form: type[HpaAnswer], path: str) -> HpaAnswer:
        self.asked += 1
        self.now_ms += GIVE_UP_MS
        raise UnreachableError("no answer within 5 s")


def status_write() -> StatusWrite:
    made = StatusWrite()
    made.add(shown_status({"currentReplicas": 3}), Position(0, 1))
    return made


def shown_status(status: dict[str, Any], events: tuple[tuple[str, str, str], ...] = ()) -> ShownDecision:
    decision = Decision(
        id="0-1-web",
        seq=1,
        prev="",
        cluster="east",
        namespace="shop",
        name="web",
        uid="u",
        time="2026-11-21T12:00:00.000Z",
        input=InputPosition(partition=0, offset=0, hash=""),
        scale_target_ref={"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        mode="enforce",
        status=status,
        events=list(events),
    )
    shown = shown_decision(decision)
    assert shown is not None
    return shown


async def test_what_waits_for_a_cluster_that_is_down_is_given_up_without_trying_each_for_long() -> None:
    client, metrics = Silent(), ReconcilerMetrics(CollectorRegistry())
    status_writer = StatusWriter(client, metrics=metrics, clock=lambda: client.now_ms)  # type: ignore[arg-type]
    for _ in range(100):
        await status_writer.write(status_write())
    assert client.asked == 1
    client.now_ms += DOWN_FOR_MS
    await status_writer.write(status_write())
    assert client.asked == 2, "looked again after a while"


class Counting(Silent):
    """A client that answers: it keeps one HPA and counts what is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[str] = []
        self.sent: list[dict[str, Any]] = []
        """The metadata of the writes."""
        self.metadata: dict[str, Any] = {"uid": "u"}
        self.version = 0
        self.live: dict[str, Any] = {"spec": {"maxReplicas": 5}}
        self.changed()

    async def get_as(self, form: type[HpaAnswer], path: str) -> HpaAnswer:
        self.requests.append("get")
        return msgspec.json.decode(encode(self.live), type=form)

    async def put_bytes(self, path: str, body: bytes) -> bytes:
        self.requests.append("put")
        sent = msgspec.json.decode(body)
        self.sent.append(sent["metadata"])
        if sent["metadata"]["resourceVersion"] != self.live["metadata"]["resourceVersion"]:
            raise ApiError(409, "the object has been modified", reason="Conflict")
        self.changed(status=sent["status"])
        return encode(self.live)

    def changed(self, **fields: Any) -> None:
        self.version += 1
        self.live = self.live | fields | {"metadata": self.metadata | {"resourceVersion": str(self.version)}}


def repeated(replicas: int) -> StatusWrite:
    """What a decision asks for that shows only other values of metrics."""
    made = StatusWrite()
    made.add(shown_status({"currentReplicas": replicas}))
    return made


async def test_an_object_is_read_anew_only_where_somebody_else_has_changed_it() -> None:
    client = Counting()
    status_writer = StatusWriter(client, metrics=ReconcilerMetrics(CollectorRegistry()), clock=lambda: client.now_ms)  # type: ignore[arg-type]
    await status_writer.write(status_write())
    await status_writer.write(repeated(4))
    await status_writer.write(repeated(4))
    assert client.requests == ["get", "put", "put"]
    client.changed(spec={"maxReplicas": 9})
    await status_writer.write(repeated(5))
    assert client.requests[3:] == ["put", "get", "put"], "a conflict, then what is there now"
    assert (client.live["spec"], client.live["status"]) == ({"maxReplicas": 9}, {"currentReplicas": 5})


async def test_of_the_statuses_that_wait_the_newest_is_written_and_the_others_are_not_read() -> None:
    client = Counting()
    status_writer = StatusWriter(client, metrics=ReconcilerMetrics(CollectorRegistry()), clock=lambda: client.now_ms)  # type: ignore[arg-type]
    made = status_write()
    made.add(structs.replace(shown_status({"currentReplicas": 4}), status=b"not to be read"))
    made.add(shown_status({"currentReplicas": 5}))
    await status_writer.write(made)
    assert (client.requests, client.live["status"]) == (["get", "put"], {"currentReplicas": 5})


@pytest.mark.parametrize(
    ("status", "error", "is_named"),
    [
        pytest.param(403, "no right", True, id="a right that is missing"),
        pytest.param(400, 'admission webhook "guard" denied the request', True, id="a webhook"),
        pytest.param(404, "not found", False, id="an HPA that was deleted"),
    ],
)
async def test_statuses_that_an_api_server_refuses_are_named_until_it_takes_one(
    status: int, error: str, is_named: bool
) -> None:
    class Refusing(Counting):
        refuses = True

        async def put_bytes(self, path: str, body: bytes) -> bytes:
            if self.refuses:
                raise ApiError(status, error)
            return await super().put_bytes(path, body)

    client = Refusing()
    status_writer = StatusWriter(client, metrics=ReconcilerMetrics(CollectorRegistry()), clock=lambda: client.now_ms)  # type: ignore[arg-type]
    await status_writer.write(status_write())
    problem = failure_of(status_writer.failed, client.now_ms, "status or Event")
    text = f"the last status or Event of 1 HPA failed, shop/web: {error}"
    reason: Reason = "forbidden" if status == 403 else "failing"
    assert problem == (WriteProblem(text, reason) if is_named else None)
    client.refuses = False
    await status_writer.write(repeated(4))
    assert status_writer.failed == {}


async def test_managed_fields_are_neither_kept_nor_sent_back() -> None:
    client = Counting()
    client.metadata["managedFields"] = [{"manager": "fleethpa"}]
    status_writer = StatusWriter(client, metrics=ReconcilerMetrics(CollectorRegistry()), clock=lambda: client.now_ms)  # type: ignore[arg-type]
    for replicas in (4, 5, 6):
        await status_writer.write(repeated(replicas))
    assert client.sent == [{"uid": "u", "resourceVersion": str(version)} for version in (1, 2, 3)]


async def test_statuses_in_which_only_values_differ_wait_for_the_setting_and_news_do_not() -> None:
    client = Counting()
    status_writer = StatusWriter(client, metrics=ReconcilerMetrics(CollectorRegistry()), clock=lambda: client.now_ms)  # type: ignore[arg-type]
    shown = shown_status({"currentReplicas": 3})
    assert status_writer.is_due(shown.hpa, 60_000), "nothing was shown yet"
    await status_writer.write(status_write())
    client.now_ms += 59_999
    assert (status_writer.is_due(shown.hpa, 0), status_writer.is_due(shown.hpa, 60_000)) == (True, False)
    client.now_ms += 1
    assert status_writer.is_due(shown.hpa, 60_000)
    waiting = StatusWrite()
    waiting.add(shown, status=False)
    assert (waiting.status, waiting.positions) == (None, ())


async def test_a_full_record_reads_the_object_only_where_it_shows_nothing_new() -> None:
    client, metrics = Counting(), ReconcilerMetrics(CollectorRegistry())
    status_writer = StatusWriter(client, metrics=metrics, clock=lambda: client.now_ms)  # type: ignore[arg-type]
    for replicas in (3, 4, 4):
        made = StatusWrite()
        made.add(shown_status({"currentReplicas": replicas}), Position(0, 1))
        await status_writer.write(made)
    assert client.requests == ["get", "put", "put", "get"], "others may have changed what shows nothing new"


class TwiceSent(Counting):
    """A client whose connection was closed after the Event had been created: it sends it again, and is refused."""

    def __init__(self) -> None:
        super().__init__()
        self.event: dict[str, Any] = {}

    async def create_named(self, path: str, body: dict[str, Any]) -> None:
        self.requests.append("create")
        self.event = {**body, "metadata": {**body["metadata"], "resourceVersion": "1"}}
        raise ApiError(409, "there is one", reason="AlreadyExists")

    async def get_object(self, path: str) -> dict[str, Any]:
        self.requests.append("get event")
        return self.event


async def test_an_event_that_was_sent_twice_is_counted_once() -> None:
    client = TwiceSent()
    status_writer = StatusWriter(client, metrics=ReconcilerMetrics(CollectorRegistry()), clock=lambda: client.now_ms)  # type: ignore[arg-type]
    made = StatusWrite()
    made.add(shown_status({"currentReplicas": 3}, (("Normal", "SuccessfulRescale", "New size: 3"),)), Position(0, 1))
    await status_writer.write(made)
    assert client.requests == ["get", "put", "create", "get event"], "no patch that counts it once more"
    assert client.event["count"] == 1
