"""The inputs of evaluations, from a log folded with a probe, and the syncs of a cluster's own HPA controller.

Those of many HPAs are read some at a time, so that memory stays bounded.
"""

from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Iterator, Mapping
from contextlib import aclosing, nullcontext
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import msgspec
from msgspec import structs

from schemas.decisions import links_of, log_offset_of
from schemas.entries import Entry, LogRecord
from schemas.keys import FLEET, HpaId, split_namespace_key
from schemas.observed import AutoscalerList, AutoscalerSet, ScaleSet
from schemas.partitioning import partition_for
from streams import attachments
from streams.archive.layout import PlainRecord
from streams.history.parallel import Faults
from streams.history.past import LogGoneError, Past
from streams.history.recorded import Recorded
from streams.hpa.observation import Scale
from streams.partition import Partition
from streams.state.inputs import EvaluationInputs, WriteEnded
from streams.state.limits.limit import depends_on_others
from streams.state.moves import shows_a_write
from streams.state.namespacerows import target_key
from streams.state.ownperiod import settings_for
from streams.state.partition import stored_row
from streams.state.steps import inputs_now

T = TypeVar("T")
_TRACES = (b'"autoscalerSet"', b'"autoscalerList"', b'"scaleSet"')
_REMEMBERED_PERIODS = 2
"""Sync periods within which the status of a sync follows its scale."""


class NativeSync(NamedTuple):
    """A status that the cluster's own controller wrote for an HPA in shadow.

    `inputs`: what an evaluation right before that sync's first trace in the log would have read. `rescaled`: with this
    status the controller says that it has changed the replicas.
    """

    inputs: EvaluationInputs
    status: dict[str, Any]
    rescaled: bool


class NativeTraces:
    """Follows a log partition, record by record, before each of them is applied.

    A controller changes the scale, then the status; an observer may report the two in either order and in different
    records. What the controller saw is what the log holds before the first of them.
    """

    def __init__(self, wanted: Callable[[HpaId], bool]) -> None:
        self._wanted = wanted
        self._before_scale: dict[HpaId, EvaluationInputs] = {}

    def before(self, partition: Partition, record: PlainRecord) -> Iterator[NativeSync]:
        """Yield the syncs of wanted HPAs that a record, which the partition has not applied yet, shows."""
        value = record[2]
        if not any(kind in value for kind in _TRACES):
            return
        for entry in msgspec.json.decode(value, type=LogRecord).entries:
            for name, hpa in _traces(partition, entry):
                of_hpa = HpaId(*split_namespace_key(entry.key), name)
                inputs = _inputs_before(partition, of_hpa, record) if self._wanted(of_hpa) else None
                if inputs is None:
                    continue
                if hpa is None:
                    self._before_scale[of_hpa] = inputs
                elif (sync := self._sync(partition, inputs, hpa)) is not None:
                    yield sync

    def _sync(self, partition: Partition, inputs: EvaluationInputs, hpa: dict[str, Any]) -> NativeSync | None:
        row, status = partition.state.hpas[inputs.hpa].row, hpa.get("status") or {}
        metadata = hpa["metadata"]
        same = metadata.get("uid", row.uid) == row.uid and int(metadata.get("generation") or 0) == row.generation
        if not same or status == inputs.status:
            return None
        scaled = self._before_scale.pop(inputs.hpa, None)
        if scaled is not None and _precedes(scaled, inputs) and _sees(scaled, status) and not _sees(inputs, status):
            return NativeSync(scaled, status, shows_a_write(inputs.status, status))
        return NativeSync(inputs, status, shows_a_write(inputs.status, status))


def _traces(partition: Partition, entry: Entry) -> Iterator[tuple[str, dict[str, Any] | None]]:
    """Yield the names of HPAs whose status (their object) or scale (None) an entry may change."""
    body = entry.body
    if isinstance(body, AutoscalerSet) and body.origin == "cluster":
        yield body.hpa["metadata"]["name"], body.hpa
    elif isinstance(body, AutoscalerList):
        yield from ((hpa["metadata"]["name"], hpa) for hpa in body.hpas)
    elif isinstance(body, ScaleSet):
        namespace = partition.state.namespaces.get(entry.key)
        if namespace is not None:
            yield from ((key.name, None) for key in sorted(namespace.by_target.get(target_key(body.target), ())))


def _inputs_before(partition: Partition, name: HpaId, record: PlainRecord) -> EvaluationInputs | None:
    """Return what an evaluation right before a record, at its time, would read; None: there is no such HPA in
    shadow.
    """
    state = partition.state
    hpa = state.hpas.get(name)
    if hpa is None or not hpa.row.is_live:
        return None
    namespace = state.namespace(name.cluster, name.namespace)
    inputs = inputs_now(state, namespace, hpa, settings_for(state, hpa))
    return structs.replace(inputs, now_ms=max(state.now_ms, record[1])) if inputs.follows_native else None


def _precedes(scaled: EvaluationInputs, inputs: EvaluationInputs) -> bool:
    return inputs.now_ms - scaled.now_ms <= _REMEMBERED_PERIODS * inputs.period_ms


def _sees(inputs: EvaluationInputs, status: dict[str, Any]) -> bool:
    scale = inputs.observation.scale
    return isinstance(scale, Scale) and scale.spec_replicas == status.get("currentReplicas", 0)


class Evaluated(NamedTuple):
    """An evaluation of the log: what it read and the decision record that the log gives for it."""

    inputs: EvaluationInputs
    value: bytes
    owners: Mapping[str, str] = MappingProxyType({})
    """Pod of the target → its controller as `Kind/name`, where one evaluation was asked for; no decision reads them."""


HpaEvent = Evaluated | WriteEnded | NativeSync


def hpa_of(event: HpaEvent) -> HpaId:
    return event.hpa if isinstance(event, WriteEnded) else event.inputs.hpa


def events(
    partition: Partition,
    records: Iterable[PlainRecord],
    wanted: Callable[[HpaId], bool],
    traces: NativeTraces | None = None,
    only: Callable[[HpaId], bool] | None = None,
) -> Iterator[HpaEvent]:
    """Fold `records` onto `partition` and give what became of the wanted HPAs, in the order of the log.

    `traces`: gives the syncs of the clusters' own controllers, too, each before the record that shows it. `only`: as of
    `Partition.apply`.
    """
    reported: list[EvaluationInputs | WriteEnded] = []

    def probe(each: EvaluationInputs | WriteEnded) -> None:
        if wanted(each.hpa):
            reported.append(each)

    for offset, timestamp_ms, value in records:
        if traces is not None:
            yield from traces.before(partition, (offset, timestamp_ms, value))
        reported.clear()
        decisions = partition.apply(offset, timestamp_ms, value, probe=probe, only=only)
        if not reported:
            continue
        values = {decision.id: decision.value for decision in decisions}
        for each in reported:
            yield Evaluated(each, values[each.decision]) if isinstance(each, EvaluationInputs) else each


class FarStateError(LogGoneError):
    """The nearest stored state before a decision is further away than a question may cost."""


FEW: Final = 500
"""Decisions of a partition that are repeated at once (50 ms). Of more, those of the one HPA are made first."""


async def evaluation_of(past: Past, recorded: Recorded, most: int | None = None) -> Evaluated:
    """Return the inputs of a decision, after checking that the log gives exactly that decision again.

    Far from the stored state before it, first only its own HPA is evaluated. If that gives another record, or budgets
    or CapacityGroups bound it, all HPAs of the partition are evaluated.

    Args:
        most: log records that may be folded for it, and decisions that may be repeated; None: any number.

    Raises:
        FarStateError: there are more between it and the stored state before it.
        LogGoneError: the log does not hold them any more, or gives another decision.
    """
    offset = log_offset_of(recorded.decision.id)
    number = recorded.partition
    stored = await past.checkpoint(number, below=offset)
    row = stored_row(number, stored)
    decisions = recorded.decision.seq - row.seq
    if decisions > FEW:
        if most is not None and offset - row.offset > most:
            raise FarStateError(f"{offset - row.offset} log records would have to be folded for it")
        alone = await _evaluation_in(past, Partition.restore(number, stored), recorded, recorded.hpa.__eq__)
        if (
            alone is not None
            and _is_same(alone, recorded.value)
            and not depends_on_others(attachments.LIMITS, alone.inputs.limits)
        ):
            return alone._replace(value=recorded.value)
        if most is not None and decisions > most:
            raise FarStateError(f"{decisions} decisions would have to be repeated for it")
    evaluation = await _evaluation_in(past, Partition.restore(number, stored), recorded)
    if evaluation is None:
        raise LogGoneError(f"the log holds no evaluation {recorded.decision.id}")
    return _checked(evaluation, recorded)


async def _evaluation_in(
    past: Past, partition: Partition, recorded: Recorded, only: Callable[[HpaId], bool] | None = None
) -> Evaluated | None:
    id_ = recorded.decision.id
    async with aclosing(past.following(partition, upto=log_offset_of(id_))) as records:
        async for record in records:
            for each in events(partition, [record.plain], lambda _: True, only=only):
                if isinstance(each, Evaluated) and each.inputs.decision == id_:
                    return each._replace(owners=_owners(partition, each.inputs))
    return None


def _owners(partition: Partition, inputs: EvaluationInputs) -> dict[str, str]:
    namespace = partition.state.namespaces.get(inputs.hpa.namespace_key)
    tracked = {} if namespace is None else namespace.membership.pods
    names = (pod.name for pod in inputs.observation.pods.rows)
    return {name: tracked[name].kind.owner for name in names if name in tracked and tracked[name].kind.owner}


def _is_same(evaluated: Evaluated, value: bytes) -> bool:
    """Whether an evaluation gives a record, but for its place among the decisions of other HPAs."""
    one, other = links_of(evaluated.value), links_of(value)
    placed = b'"seq":%d,"prev":"%s"'
    here, there = placed % (one.seq, one.prev.encode()), placed % (other.seq, other.prev.encode())
    return evaluated.value.replace(here, there, 1) == value


def _checked(evaluated: Evaluated, recorded: Recorded) -> Evaluated:
    if evaluated.value != recorded.value:
        id_ = recorded.decision.id
        raise LogGoneError(f"the log gives another decision {id_} than the recorded one: fleethpa replay {id_}")
    return evaluated


class DependsOnOthersError(Exception):
    """What an HPA may write depends on others of its partition, which were not evaluated."""


async def events_between(
    past: Past,
    number: int,
    since_ms: int,
    until_ms: int | None,
    wanted: Collection[HpaId],
    *,
    native: bool = False,
    alone: bool = False,
) -> AsyncGenerator[HpaEvent, None]:
    """Yield what became of HPAs of a log partition in a time: evaluations with their inputs, and ends of writes.

    The bytes of the decision records, which would be most of a long window, are left out.

    Args:
        native: and the syncs of the cluster's own controller.
        alone: evaluate no HPA of another namespace. Those of one namespace may select the same pods, by which none of
            them is scaled.

    Raises LogGoneError: the log does not reach back to the start. Raises DependsOnOthersError: with `alone`, one of
    them is bound by what others do.
    """
    traces = NativeTraces(wanted.__contains__) if native else None
    partition, places = await past.restored(number, before_ms=since_ms), {each.namespace_key for each in wanted}

    def near(hpa: HpaId) -> bool:
        return hpa.namespace_key in places

    async with aclosing(past.following(partition, until_ms=until_ms)) as records:
        async for record in records:
            for each in events(partition, [record.plain], wanted.__contains__, traces, near if alone else None):
                if alone and isinstance(each, Evaluated) and depends_on_others(attachments.LIMITS, each.inputs.limits):
                    raise DependsOnOthersError(str(each.inputs.hpa))
                now_ms = each.now_ms if isinstance(each, WriteEnded) else each.inputs.now_ms
                if now_ms >= since_ms:
                    yield Evaluated(each.inputs, b"") if isinstance(each, Evaluated) else each


# --- of many HPAs -----------------------------------------------------------------------------------------------------

MOST_HELD = 300_000
"""Evaluations that are held at a time, some 4 KB each: a week of seven HPAs at 15 s."""
MOST_REDUCED = 1_000_000
"""The same where a reader keeps some 500 bytes of each."""
MOST_COUNTED = 1 << 62
"""The same where a reader keeps nothing of each."""


class Reader(Protocol):
    """Takes in the evaluations of one HPA, in the order of the log, and keeps what its question needs of them."""

    def add(self, inputs: EvaluationInputs) -> None:
        """Add an evaluation."""
        ...


R = TypeVar("R", bound=Reader)


def readers_by_hpa(
    past: Past,
    wanted: set[HpaId],
    window: tuple[int, int],
    reader: Callable[[HpaId], R],
    most: int = MOST_REDUCED,
    faults: Faults | None = None,
) -> AsyncGenerator[dict[HpaId, R], None]:
    """Readers that have taken in the evaluations of HPAs, some at a time, in the order of log partitions and names.

    `window`: from a log time to before another. `most`: evaluations that may be held at a time. `faults`: takes those
    of readers; None: they are raised. Raises LogGoneError: the log does not reach back.
    """

    def take(found: R, event: HpaEvent) -> None:
        if isinstance(event, Evaluated):
            with nullcontext() if faults is None else faults.of(event.inputs.hpa):
                found.add(event.inputs)

    return _by_hpa(past, wanted, window, reader, take, most, native=False)


def events_by_hpa(
    past: Past, wanted: set[HpaId], window: tuple[int, int], *, native: bool = False
) -> AsyncGenerator[dict[HpaId, list[HpaEvent]], None]:
    """Yield what became of HPAs, some at a time, as `readers_by_hpa`.

    `native`: with the syncs of the clusters' own controllers.
    """

    def nothing(_: HpaId) -> list[HpaEvent]:
        return []

    return _by_hpa(past, wanted, window, nothing, list.append, MOST_HELD, native=native)


async def _by_hpa(
    past: Past,
    wanted: set[HpaId],
    window: tuple[int, int],
    begin: Callable[[HpaId], T],
    take: Callable[[T, HpaEvent], None],
    most: int,
    *,
    native: bool,
) -> AsyncGenerator[dict[HpaId, T], None]:
    """Read the log from the nearest snapshot on, one partition after the other.

    HPAs of other namespaces are evaluated only where budgets or CapacityGroups bound those that are wanted. Where a
    partition's HPAs have more than `most` events, half of them are left for another reading of it.
    """
    count = await past.partitions()
    by_partition: dict[int, list[HpaId]] = {}
    for hpa in sorted(wanted):
        by_partition.setdefault(partition_for(hpa.namespace_key, count), []).append(hpa)
    for number, left in sorted(by_partition.items()):
        alone = True
        while left:
            readings = {hpa: begin(hpa) for hpa in left}
            counts, held = dict.fromkeys(left, 0), 0
            try:
                async with aclosing(
                    events_between(past, number, *window, readings, native=native, alone=alone)
                ) as events:
                    async for event in events:
                        hpa = hpa_of(event)
                        # Left for later within its record; or a FleetHPA, which reads sums of clusters and no pods.
                        if hpa not in readings or hpa.cluster == FLEET:
                            continue
                        take(readings[hpa], event)
                        counts[hpa] += 1
                        held += 1
                        while held > most and len(readings) > 1:
                            held -= sum(counts.pop(readings.popitem()[0]) for _ in range(len(readings) // 2))
            except DependsOnOthersError:
                alone = False
                continue
            yield readings
            left = left[len(readings) :]
