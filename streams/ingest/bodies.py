"""Validate bodies for the log: names, ranges and manifests, so that later stages need not check them."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from msgspec import structs

from schemas import limits, topics
from schemas.agents import AgentSet
from schemas.answers import Answers
from schemas.capacity import CAPACITY, CapacityAllotment, CapacityGroupSet, CapacityReport
from schemas.codec import encode
from schemas.decisions import ENGINE
from schemas.entries import Body, ControlTransferred, FleetAllotment, FleetReport, Outcome, central_name
from schemas.fitting import fitted, fitted_hpa
from schemas.keys import EVERY_CLUSTER, FLEET
from schemas.kubernetes.shape import Json
from schemas.limits import MAX_TIME_MS, OverLimitError, Refusal
from schemas.observed import (
    IGNORED,
    AutoscalerDeleted,
    AutoscalerList,
    AutoscalerSet,
    ClusterReport,
    Command,
    ConflictingAutoscaler,
    Heartbeat,
    PodDeleted,
    PodList,
    PodSet,
    Samples,
    ScaleSet,
    Serving,
)
from schemas.settings import EVERY_NAMESPACE, SETTING_NAMES, EngineSet, LogTimeSet, Restart, SettingsSet, WatermarkReset
from streams.ingest import own as topickinds
from streams.ingest.acrosschecks import (
    check_allotment,
    check_capacity_allotment,
    check_capacity_report,
    check_fleet,
    check_fleet_report,
    check_group,
    check_of_fleet,
    checked_item,
)
from streams.ingest.checks import check_chunk, check_cluster, check_namespace, check_object, check_range, check_text
from streams.ingest.hpamanifests import checked_hpa
from streams.ingest.observedchecks import check_answers, check_pod, check_pod_list
from streams.ingest.pieces import Piece, SourcePlace
from streams.state.clustersettings import TEXT_READERS
from streams.state.namespacerows import target_key

Refuse = Callable[[Refusal], None]
T = TypeVar("T")


def normalize(body: Body, place: SourcePlace, refuse: Refuse) -> Piece:
    """Check one body of a record of ours and give the piece for the log.

    Args:
        refuse: takes the parts that are left out of a body whose rest is good (one HPA of a list), and what exceeds a
            limit and is taken in a smaller form.

    Raises:
        Refusal: the body cannot be used at all.
    """
    kind = kind_of(body)
    _check_kind(kind, body, place)
    body = fitted(body, place.namespace, refuse)
    if session := getattr(body, "session", ""):
        check_text(session, "session")  # the fold reads its number and keeps it in rows
    everywhere = kind == "command" and place.topic == topics.SETTINGS and not place.namespace
    if kind in topickinds.WHOLE_PARTITION or everywhere:
        return Piece("", "", _checked(body, place, refuse))
    if isinstance(body, ClusterReport):
        check_cluster(body.cluster)
        return Piece(body.cluster, "", _checked(body, place, refuse))
    if not (place.cluster and place.namespace):
        raise Refusal("noIdentity", f"a record with {kind!r} needs cluster and namespace")
    if isinstance(body, CapacityReport) != (place.cluster == CAPACITY):
        raise Refusal("invalid", f"{CAPACITY} takes reports to CapacityGroups, and nothing else does")
    if isinstance(body, CapacityReport):
        check_capacity_report(body, place)
    elif place.cluster == FLEET:
        check_of_fleet(body, kind)
    else:
        check_cluster(place.cluster)
    check_namespace(place.namespace)
    return Piece(place.cluster, place.namespace, _checked(body, place, refuse))


def kind_of(body: Body) -> str:
    """The kind of an entry, as its record names it."""
    return str(body.__struct_config__.tag)


def _check_kind(kind: str, body: Body, place: SourcePlace) -> None:
    if place.topic == topics.AUTOSCALERS and central_name(body) is not None:
        raise Refusal("wrongTopic", f"a central HPA is not read from {place.topic}; send it to {topics.SPECS}")
    if kind not in topickinds.kinds_of(place.topic):
        wanted = " or ".join(topickinds.topics_of(kind))
        raise Refusal("wrongTopic", f"kind {kind!r} is not read from {place.topic}; send it to {wanted}")


def check_one_hpa(bodies: Sequence[Body], topic: str) -> None:
    """Refuse a record of `fleethpa.specs` that is not of one central HPA: compaction keeps one record of each."""
    if topic != topics.SPECS or any(kind_of(body) not in topickinds.kinds_of(topic) for body in bodies):
        return  # what is of another topic is refused by itself
    name = central_name(bodies[0]) if bodies else None
    if name is None or not all(isinstance(body, Command) and body.name == name for body in bodies[1:]):
        raise Refusal(
            "invalid", f"a record of {topic} has a central HPA as its first entry, and then only commands for that one"
        )


def _checked(body: Body, place: SourcePlace, refuse: Refuse) -> Body:
    match body:
        case AutoscalerSet():
            return _autoscaler_set(body, place, refuse)
        case AutoscalerList():
            return _autoscaler_list(body, place, refuse)
        case PodList():
            check_pod_list(body)
            limits.check(limits.LIST, len(encode(body)), f"pods of namespace {place.namespace}")
        case Command():
            _command(body, place)
        case FleetReport():
            return _fleet_report(body, place, refuse)
        case _:
            _CHECKS[type(body)](body)
    return body


def _autoscaler_set(body: AutoscalerSet, place: SourcePlace, refuse: Refuse) -> Body:
    if body.mode is not None and body.origin != "central":
        raise Refusal("invalid", "mode goes only with origin central; use a mode command for an HPA of a cluster")
    if (body.fleet is not None or body.revision) and body.origin != "central":
        raise Refusal("invalid", "fleet and revision go only with origin central: a cluster's HPA has none")
    if body.changes and body.origin != "central":
        raise Refusal("invalid", "changes goes only with origin central: a cluster's HPA has its own resourceVersion")
    checked = structs.replace(body, hpa=_checked_hpa(body.hpa, place, refuse))
    limits.check(limits.UID, len(body.changes), checked.hpa["metadata"]["name"])
    if checked.fleet is not None:
        check_fleet(checked.fleet, checked.hpa["spec"], checked.revision, place)
    return checked


def _checked_hpa(hpa: Json, place: SourcePlace, refuse: Refuse) -> Json:
    """An HPA as it goes into the log: checked and defaulted, or a stub of one that exceeds a limit."""
    why = hpa.get(IGNORED)
    if not isinstance(why, str):
        checked = checked_hpa(hpa, place.namespace)
        # In the defaulted object of the newest version fields may be that were hidden in annotations. Most are as they
        # came, which was within the limits.
        return checked if checked == hpa else fitted_hpa(checked, place.namespace, refuse)
    checked = checked_hpa({name: value for name, value in hpa.items() if name != IGNORED}, place.namespace)
    checked["spec"].pop("metrics", None)  # the default of an HPA without any
    why = limits.shortened(why, limits.ERROR)
    refuse(Refusal("overLimit", why))
    return {**checked, IGNORED: why}


def _autoscaler_list(body: AutoscalerList, place: SourcePlace, refuse: Refuse) -> Body:
    check_chunk(body.list_id, body.chunk, body.chunks)
    conflicting = list(_checked_autoscalers(body.conflicting, refuse))
    hpas = list(_good(body.hpas, lambda hpa: _checked_hpa(hpa, place, refuse), refuse))
    checked = structs.replace(body, hpas=hpas, conflicting=conflicting)
    limits.check(limits.LIST, len(encode(checked)), f"HPAs of namespace {place.namespace}")
    return checked


def _fleet_report(body: FleetReport, place: SourcePlace, refuse: Refuse) -> Body:
    check_fleet_report(body, place)
    of = f"{body.member}/{place.namespace}"
    items = list(_good(body.items, lambda item: checked_item(item, of), refuse))
    if not items:
        raise Refusal("empty", f"the report of {of} has no item that can be used")
    return structs.replace(body, items=items)


def _good(items: Iterable[T], take: Callable[[T], T], refuse: Refuse) -> Iterator[T]:
    """Yield what can be used of a list; what cannot is refused by itself, since the others are as good as ever."""
    for item in items:
        try:
            yield take(item)
        except Refusal as refusal:
            refuse(refusal)


def _checked_autoscalers(conflicting: list[ConflictingAutoscaler], refuse: Refuse) -> Iterator[ConflictingAutoscaler]:
    """A conflicting autoscaler of an impossible name has no target, so the list is as good without it."""
    for index, other in enumerate(conflicting):
        size = max(map(len, (other.kind, other.name, *target_key(other.target))))
        if size <= limits.SCALE_NAME.most:
            yield other
        else:
            refuse(OverLimitError(limits.SCALE_NAME, f"conflicting[{index}]", size))


def _command(body: Command, place: SourcePlace) -> None:
    if body.command == "mode" and body.mode is None:
        raise Refusal("invalid", "command mode needs mode: off, shadow or enforce")
    if body.name:
        check_object(body.name, "name")
    if body.command == "override":
        _override(body, place)
    if place.topic == topics.SETTINGS and not place.namespace:
        if body.name:
            raise Refusal("invalid", "a command for one HPA needs the cluster and namespace of its record")
        _cluster_or_all(body.cluster)
    elif body.is_about_pauses != (place.topic == topics.SETTINGS):
        wanted = topics.SETTINGS if body.is_about_pauses else topics.AUTOSCALERS
        raise Refusal("wrongTopic", f"command {body.command} of HPAs and namespaces: send it to {wanted}")


def _override(body: Command, place: SourcePlace) -> None:
    if not (body.name and place.namespace):
        raise Refusal(
            "invalid", "command override is of one HPA: it needs a name, and cluster and namespace of its record"
        )
    if body.replicas is not None:
        check_range(body.until, "until", 1, MAX_TIME_MS)


def _cluster_or_all(name: str) -> None:
    if name != "*":
        check_cluster(name)


def _scale(body: ScaleSet) -> None:
    check_text(body.target.kind, "target.kind")
    check_object(body.target.name, "target.name")
    limits.check(limits.SCALE_NAME, len(body.target.group), "target.group")


def _heartbeat(body: Heartbeat) -> None:
    check_text(body.session, "session")
    limits.check(limits.WATCHES, len(body.watches) + len(body.problems) + len(body.reasons), "a heartbeat")
    for name in (*body.watches, *body.problems, *body.reasons):
        check_text(name, "watch")
    limits.check(limits.VERSION, len(body.kubernetes), "kubernetes")
    limits.check(limits.BEAT_NAMESPACES, len(body.namespaces), "a heartbeat")
    for name in body.namespaces:
        check_namespace(name)


def _report(body: ClusterReport) -> None:
    check_text(body.session, "session")
    limits.check(limits.TROUBLES, len(body.troubles), f"cluster {body.cluster}")
    limits.check(limits.REPORT, len(encode(body)), f"cluster {body.cluster}")
    for index, trouble in enumerate(body.troubles):
        place = f"troubles[{index}]"
        check_text(trouble.part, f"{place}.part")
        limits.check(limits.TROUBLE_NAMESPACES, len(trouble.namespaces), place)


def _outcome(body: Outcome) -> None:
    check_text(body.decision, "decision")
    check_object(body.name, "name")
    limits.check(limits.UID, len(body.uid), f"the outcome of {body.decision}")


def _serving(body: Serving) -> None:
    check_text(body.session, "session")
    for cluster in (*body.clusters, *body.problems):
        check_cluster(cluster)


def _control_transferred(body: ControlTransferred) -> None:
    check_cluster(body.cluster)
    check_text(body.holder, "holder")
    limits.check(limits.NAME, len(body.before), "controlTransferred.before")
    for native in body.natives:
        check_namespace(native.namespace)
        check_object(native.name, "natives.name")


def _settings(body: SettingsSet) -> None:
    if body.cluster != FLEET:  # of FleetHPAs
        _cluster_or_all(body.cluster)
    limits.check(limits.SETTINGS, len(encode(body)), f"cluster {body.cluster}")
    settings = body.settings
    for field, read in TEXT_READERS.items():
        if isinstance(text := getattr(settings, field), str):
            _read(text, f"settings.{_WIRE_NAMES[field]}", read)
    if settings.cluster_uid is not None and body.cluster in (EVERY_CLUSTER, FLEET):
        raise Refusal("invalid", f"settings.clusterUid: it belongs to one cluster, not to {body.cluster}")
    for namespace in settings.namespaces or {}:
        check_namespace(namespace)
    for name in body.unset:
        if name not in SETTING_NAMES:
            raise Refusal("invalid", f"unset {name[:40]!r}: known settings are {', '.join(SETTING_NAMES)}")
    _budgets("removal_budgets", settings.removal_budgets or {})
    _budgets("addition_budgets", settings.addition_budgets or {})


def _budgets(field: str, budgets: Mapping[str, str]) -> None:
    for namespace, text in budgets.items():
        if namespace != EVERY_NAMESPACE:
            check_namespace(namespace)
        _read(text, f"settings.{_WIRE_NAMES[field]}[{namespace}]", TEXT_READERS[field])


def _read(text: str, field: str, read: Callable[[str], object]) -> None:
    try:
        read(text)
    except ValueError as error:
        raise Refusal("invalid", f"{field} {text[:40]!r}: {error}") from error


_WIRE_NAMES = {field: name for name, field in SETTING_NAMES.items()}


def _engine(body: EngineSet) -> None:
    if body.engine > ENGINE:
        # What only that engine knows, such as its settings, would be lost here on its way into the log.
        raise Refusal("invalid", f"engine {body.engine}: this ingest has engine {ENGINE}; upgrade it first")


def _deleted(body: PodDeleted | AutoscalerDeleted) -> None:
    check_object(body.name, "name")
    limits.check(limits.UID, len(getattr(body, "uid", "")), body.name)


_CHECKS: dict[type, Callable[[Any], object]] = {
    Answers: check_answers,
    Samples: check_answers,
    PodSet: lambda body: check_pod(body.pod),
    PodDeleted: _deleted,
    AutoscalerDeleted: _deleted,
    ScaleSet: _scale,
    Heartbeat: _heartbeat,
    ClusterReport: _report,
    Outcome: _outcome,
    FleetAllotment: check_allotment,
    CapacityGroupSet: check_group,
    CapacityReport: lambda _: None,  # checked with its place
    CapacityAllotment: check_capacity_allotment,
    Serving: _serving,
    ControlTransferred: _control_transferred,
    SettingsSet: _settings,
    AgentSet: lambda body: check_cluster(body.cluster),
    EngineSet: _engine,
    WatermarkReset: lambda body: check_text(body.topic, "topic"),
    LogTimeSet: lambda body: check_text(body.author, "author"),
    Restart: lambda body: check_text(body.reason, "reason"),
}
"""Body -> its check, which raises Refusal; of those that are good as they are, wherever they come from."""
