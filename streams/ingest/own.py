"""Our own JSON (public records, the simple sample that anyone can send), and what counts of it on which topic. No I/O.

Kinds belong to topics, so that writers of samples cannot change settings. `schemas/json/` describes the formats.

Records bear no sender: all that a broker vouches for is who may write a topic. So the topic of an agent may hold
records of its own cluster only, about what is observed there and nothing else, and the shared topics may hold none of
them.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec
from msgspec import Struct, structs

from schemas import topics
from schemas.agentregistry import AgentRegistry
from schemas.agents import AgentSet, AgentTopics, agent_of_reports
from schemas.codec import encode
from schemas.entries import KINDS, VERSION, Body, ControlTransferred, Outcome, PublicRecord, central_name
from schemas.keys import parse_session
from schemas.limits import AHEAD, PROBLEM, Refusal, shortened
from schemas.observed import (
    REFUSED_PART,
    AutoscalerDeleted,
    AutoscalerList,
    AutoscalerSet,
    ClusterReport,
    Command,
    Heartbeat,
    MetricType,
    ObserverTrouble,
    Point,
    Samples,
    Serving,
)
from streams.ingest import pieces as rates
from streams.ingest.checks import check_cluster, check_namespace, check_range, check_text, time_to_ms, to_milli
from streams.ingest.pieces import SHOWN_S, AgentRates, Conversion, Piece

# --- records and kinds ------------------------------------------------------------------------------------------------

T = TypeVar("T")
_RECORD = msgspec.json.Decoder(PublicRecord)


class ObjectReference(Struct, frozen=True, kw_only=True, rename="camel"):
    """The object that an `Object` metric describes."""

    kind: str
    name: str
    group: str = ""


class PublicSample(Struct, frozen=True, kw_only=True, rename="camel"):
    """One sample: `{"v":1,"ts":…,"cluster":"prod-eu","namespace":"shop","metric":"queue_depth","type":"External",
    "value":610}`.

    `ts`: integer milliseconds or RFC 3339; absent: the Kafka record's own time. `value`: a number or a Kubernetes
    quantity text. `pod` goes with Resource, ContainerResource and Pods; `container` with ContainerResource; `object`
    with Object; `labels` are what a metric selector asks for. `target` and `unit` are for readers only.
    """

    v: Literal[1]
    cluster: str
    namespace: str
    metric: str
    type: MetricType
    value: int | float | str
    ts: int | str | None = None
    pod: str | None = None
    container: str | None = None
    object: ObjectReference | None = None
    labels: dict[str, str] | None = None
    temporality: Literal["gauge", "delta", "cumulative"] = "gauge"
    start: int | str | None = None
    utilization: bool = False
    target: dict[str, Any] | None = None
    unit: str | None = None


def check_version(document: dict[str, Any]) -> None:
    """Refuse a version other than ours. Raises Refusal: `unknownVersion`."""
    version = document.get("v")
    if version != VERSION or isinstance(version, bool):
        raise Refusal("unknownVersion", f"version (v) {str(version)[:40]} is not known here; known is {VERSION}")


def read_record(document: dict[str, Any], refuse: Callable[[Refusal], None]) -> tuple[PublicRecord, list[int]]:
    """Read a record of ours, and the places of its entries in the document: one that does not fit its type is refused
    by itself, so that one bad number takes no other entry of its namespace with it.

    Raises Refusal: `unknownVersion`, `wrongType` with the path of the field.
    """
    check_version(document)
    entries = document.get("entries")
    if not isinstance(entries, list):
        return _convert(document, PublicRecord), []
    try:
        return msgspec.convert(document, PublicRecord), list(range(len(entries)))
    except (msgspec.ValidationError, RecursionError):
        record = _convert(document | {"entries": []}, PublicRecord)
        good: dict[int, Body] = {}
        for index, entry in enumerate(entries):
            try:
                good[index] = _convert({"v": VERSION, "entries": [entry]}, PublicRecord).entries[0]
            except Refusal as refusal:
                refuse(Refusal(refusal.code, refusal.text.replace("$.entries[0]", f"$.entries[{index}]")))
        return structs.replace(record, entries=list(good.values())), list(good)


def read_as_written(value: bytes) -> PublicRecord | None:
    """Read a record that fleethpa's own encoder wrote; None: it may be one of ours, but not byte for byte.

    Equal bytes prove in one go that no field is unknown and no key duplicate.
    """
    try:
        record = _RECORD.decode(value)
        return record if record.v == VERSION and encode(record) == value else None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def read_sample(document: dict[str, Any], record_time_ms: int) -> tuple[str, str, Point]:
    """Read a simple sample: its cluster, its namespace and the point.

    Raises Refusal: `unknownVersion`, `wrongType`, `badName`, `badTime`, `notANumber`, `outOfRange`.
    """
    check_version(document)
    sample = _convert(document, PublicSample)
    check_cluster(sample.cluster)
    check_namespace(sample.namespace)
    reference = sample.object
    point = Point(
        type=sample.type,
        metric=check_text(sample.metric, "metric"),
        milli=to_milli(sample.value),
        time=record_time_ms if sample.ts is None else time_to_ms(sample.ts, "ts"),
        pod=sample.pod or "",
        container=sample.container or "",
        object_kind=_group_kind(reference) if reference else "",
        object=reference.name if reference else "",
        labels=sample.labels or {},
        temporality=sample.temporality,
        start_time=0 if sample.start is None else time_to_ms(sample.start, "start"),
        utilization=sample.utilization,
    )
    return sample.cluster, sample.namespace, point


def _group_kind(reference: ObjectReference) -> str:
    return f"{reference.kind}.{reference.group}" if reference.group else reference.kind


def _convert(document: Any, type_: type[T]) -> T:
    try:
        return msgspec.convert(document, type_)
    except msgspec.ValidationError as error:
        raise Refusal("wrongType", f"not a {type_.__name__}: {error}") from error
    except RecursionError as error:
        raise Refusal("malformed", "nested too deeply") from error


OF_TOPIC = {topic: frozenset(each.tag for each in KINDS if topic in each.topics) for topic in topics.PUBLIC_TOPICS}
"""Topic → the kinds of entries that it may carry."""

SAMPLE_KINDS = frozenset({"samples"})
"""What a topic of other producers may carry: pushed samples and nothing else."""

OBSERVED = frozenset(each.tag for each in KINDS if each.is_observed)
"""Kinds of entries that the agent of a cluster may report; of a cluster with an agent nobody else may."""

WHOLE_PARTITION = frozenset(each.tag for each in KINDS if each.scope == "partition")
"""Kinds that always concern every partition; a `command` does whose record on the topic of settings names no namespace.
"""


def kinds_of(topic: str) -> frozenset[str]:
    """The kinds of entries that a topic may carry."""
    return OF_TOPIC.get(topic) or (OBSERVED if agent_of_reports(topic) else SAMPLE_KINDS)


def topics_of(kind: str) -> list[str]:
    """The topics that may carry a kind of entry."""
    return [topic for each in KINDS if each.tag == kind for topic in each.topics]


def topic_of(namespace: str, bodies: Sequence[Body]) -> str:
    """The topic of a record about a namespace, or (empty) about clusters; pauses are all that such a record holds."""
    if not namespace or all(isinstance(body, Command) and body.is_about_pauses for body in bodies):
        return topics.SETTINGS
    return topics.AUTOSCALERS if central_name(bodies[0]) is None else topics.SPECS


def accepts_foreign(topic: str) -> bool:
    """Whether a topic takes samples in formats other than ours."""
    return topic == topics.SAMPLES or topic not in OF_TOPIC


# --- reports of agents ------------------------------------------------------------------------------------------------


class ReceivedAt(NamedTuple):
    """When a record is taken: by a clock of ingest that does not go back, and when the brokers appended it; seconds."""

    now_s: float
    at_s: float


def agent_instance(cluster: str) -> str:
    """The name under which the agent of a cluster observes, whichever replica leads."""
    return f"agent-{cluster}"


def admit(
    conversion: Conversion, agent: AgentSet | None, topic: AgentTopics, limits: AgentRates, moment: ReceivedAt
) -> None:
    """Keep of an agent's record what it may report; the rest is refused.

    Args:
        agent: the registration of the topic; None: there is none, or no longer.
        limits: those of this agent.
    """
    pieces, conversion.pieces = conversion.pieces, []
    if agent is None:
        conversion.refuse(
            Refusal("noAgent", f"no agent of cluster {topic.cluster!r} is registered for {topic.reports}")
        )
        return
    for piece in pieces:
        try:
            conversion.pieces.append(_Admission(piece, agent, limits, conversion, moment).admitted())
        except Refusal as refusal:
            conversion.refuse(refusal)
    if conversion.refusals:
        limits.refused.record(conversion.refusals, conversion.time_ms, moment.now_s)


class _Admission:
    """One piece of an agent's record, on its way in."""

    def __init__(
        self, piece: Piece, agent: AgentSet, limits: AgentRates, conversion: Conversion, moment: ReceivedAt
    ) -> None:
        self._piece, self._agent, self._found = piece, agent, conversion
        self._namespace, self._moment = piece.namespace, moment
        self._rates, self._refused = limits.rates, limits.refused

    def admitted(self) -> Piece:
        """Return the piece, or what may be taken of it. Raises Refusal: nothing of it."""
        body = self._piece.body
        for cluster in _clusters(self._piece):
            if cluster != self._agent.cluster:
                raise Refusal("otherCluster", f"{_whose(self._agent)} may not report on cluster {cluster[:80]!r}")
        if isinstance(body, Serving | ControlTransferred | ClusterReport):
            return self._piece._replace(body=self._of_cluster(body))
        if session := getattr(body, "session", ""):
            self._check_session(session)
        return self._piece._replace(body=self._of_namespace(body))

    # --- the whole cluster --------------------------------------------------------------------------------------------

    def _of_cluster(self, body: Serving | ControlTransferred | ClusterReport) -> Body:
        if isinstance(body, ClusterReport):
            return self._report(body)
        if isinstance(body, Serving):
            check_range(len(body.clusters), "length of clusters", 0, 1)
            copied: Body = body
        else:
            check_range(len(body.natives), "length of natives", 0, self._agent.max_hpas)
            copied = structs.replace(body, natives=[])  # those go into one partition each
        kind, at_s = str(body.__struct_config__.tag), self._moment.at_s
        self._rates.count(rates.CLUSTER, (kind,), at_s, f"{kind} of {_whose(self._agent)}")
        what = f"bytes of {_whose(self._agent)} for every log partition"
        self._rates.count(rates.COPIED_BYTES, ("bytes",), at_s, what, len(encode(copied)))
        return body

    def _report(self, body: ClusterReport) -> Body:
        self._check_session(body.session)
        if body.instance != agent_instance(self._agent.cluster):
            wanted = agent_instance(self._agent.cluster)
            raise Refusal("badName", f"the reports of {_whose(self._agent)} must be of instance {wanted!r}")
        refused = self._refused
        if self._moment.now_s - refused.last_s > SHOWN_S:
            return body
        error = shortened(f"{refused.count} entries, at last: {refused.text}", PROBLEM)
        trouble = ObserverTrouble(part=REFUSED_PART, reason="failing", since=refused.first_ms, error=error)
        return structs.replace(body, troubles=[trouble, *body.troubles])

    def _check_session(self, session: str) -> None:
        parsed, wanted = parse_session(session), agent_instance(self._agent.cluster)
        if parsed is None or parsed.instance != wanted:
            raise Refusal("badName", f"sessions of {_whose(self._agent)} must be of instance {wanted!r}")

    # --- a namespace --------------------------------------------------------------------------------------------------

    def _of_namespace(self, body: Body) -> Body:
        match body:
            case AutoscalerSet() | AutoscalerDeleted() | AutoscalerList():
                return self._autoscalers(body)
            case Samples():
                return structs.replace(body, points=self._each(body.points, self._admit_point))
            case Outcome():
                self._record_hpa(body.name)
            case Heartbeat():
                for name in (self._namespace, *body.namespaces):
                    self._rates.count(rates.BEATS, ("beat", name), self._moment.at_s, f"heartbeats of namespace {name}")
        return body

    def _each(self, items: Iterable[T], take: Callable[[T], None]) -> list[T]:
        """Those that are taken; each of the others is refused by itself."""
        taken = []
        for item in items:
            try:
                take(item)
            except Refusal as refusal:
                self._found.refuse(refusal)
            else:
                taken.append(item)
        return taken

    # --- HPAs ---------------------------------------------------------------------------------------------------------

    def _autoscalers(self, body: AutoscalerSet | AutoscalerDeleted | AutoscalerList) -> Body:
        if not isinstance(body, AutoscalerList) and body.origin != "cluster":
            raise Refusal("notAllowed", f"{_whose(self._agent)} may not change central HPAs")
        if not isinstance(body, AutoscalerList):
            self._record_hpa(body.name if isinstance(body, AutoscalerDeleted) else body.hpa["metadata"]["name"])
            return body
        return structs.replace(body, hpas=self._each(body.hpas, lambda hpa: self._record_hpa(hpa["metadata"]["name"])))

    def _record_hpa(self, name: str) -> None:
        place = f"{self._namespace}/{name}"
        self._rates.count(rates.HPA, (self._namespace, name), self._moment.at_s, f"reports on HPA {place}")

    # --- samples ------------------------------------------------------------------------------------------------------

    def _admit_point(self, point: Point) -> None:
        what = f"samples of namespace {self._namespace}"
        self._rates.count(rates.SAMPLES, (self._namespace,), self._moment.at_s, what)


def _clusters(piece: Piece) -> list[str]:
    """The clusters that a piece is about."""
    if isinstance(piece.body, Serving):
        return [*piece.body.clusters, *piece.body.problems]
    if isinstance(piece.body, ControlTransferred):
        return [piece.body.cluster]
    return [piece.cluster]


def _whose(agent: AgentSet) -> str:
    return f"the agent of cluster {agent.cluster!r}"


# --- every source -----------------------------------------------------------------------------------------------------


def refuse_future(conversion: Conversion, now_ms: int) -> None:
    """Refuse samples whose time is too far ahead: each would be used until then, and true ones be dropped as older."""
    newest_ms = now_ms + AHEAD.most
    for at, piece in enumerate(conversion.pieces):
        body = piece.body
        if not isinstance(body, Samples) or all(point.time <= newest_ms for point in body.points):
            continue
        for point in body.points:
            if point.time > newest_ms:
                conversion.points -= 1
                text = f"time of {point.metric[:200]} is {point.time}, more than {AHEAD.most // 1000} s after now"
                conversion.refuse(Refusal("badTime", text))
        points = [point for point in body.points if point.time <= newest_ms]
        conversion.pieces[at] = piece._replace(body=structs.replace(body, points=points))
    conversion.pieces = [
        piece for piece in conversion.pieces if not isinstance(piece.body, Samples) or piece.body.points
    ]


# --- shared topics ----------------------------------------------------------------------------------------------------


def refuse_agents(conversion: Conversion, registry: AgentRegistry) -> None:
    """Refuse what a record of a shared topic reports on clusters that have an agent."""
    if not any(registry.present(cluster) for piece in conversion.pieces for cluster in _clusters(piece)):
        return
    pieces, conversion.pieces = conversion.pieces, []
    for piece in pieces:
        cluster = next((name for name in _clusters(piece) if registry.present(name)), None)
        if cluster is None or not _is_observed(piece.body):
            conversion.pieces.append(piece)
            continue
        text = f"cluster {cluster!r} has an agent: only its own topic has reports on it"
        conversion.refuse(Refusal("agentCluster", text))
        if isinstance(piece.body, Serving) and (rest := _without_agents(piece.body, registry)).clusters:
            conversion.pieces.append(piece._replace(body=rest))


def _is_observed(body: Body) -> bool:
    if isinstance(body, AutoscalerSet | AutoscalerDeleted) and body.origin != "cluster":
        return False
    return body.__struct_config__.tag in OBSERVED


def _without_agents(body: Serving, registry: AgentRegistry) -> Serving:
    return structs.replace(
        body,
        clusters=[name for name in body.clusters if not registry.present(name)],
        problems={name: problem for name, problem in body.problems.items() if not registry.present(name)},
    )
