"""What the log shows of the syncs of a cluster's own HPA controller, and what it held right before each of them."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec
from msgspec import structs

from schemas.autoscalers import AutoscalerList, AutoscalerSet
from schemas.entries import Entry, LogRecord
from schemas.keys import HpaId, split_namespace_key
from schemas.scales import ScaleSet
from streams.archive.segments import PlainRecord
from streams.hpa.observation import Scale
from streams.state.evaluator import Evaluator
from streams.state.namespacekeys import target_key
from streams.state.partition import Partition
from streams.state.probe import EvaluationInputs
from streams.state.shadow import tells_of_a_write

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
        """Give the syncs of wanted HPAs that a record, which the partition has not applied yet, tells of."""
        value = record[2]
        if not any(kind in value for kind in _TRACES):
            return
        for entry in msgspec.json.decode(value, type=LogRecord).entries:
            for name, hpa in _traces(partition, entry):
                found = HpaId(*split_namespace_key(entry.key), name)
                inputs = _inputs_before(partition, found, record) if self._wanted(found) else None
                if inputs is None:
                    continue
                if hpa is None:
                    self._before_scale[found] = inputs
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
            return NativeSync(scaled, status, tells_of_a_write(inputs.status, status))
        return NativeSync(inputs, status, tells_of_a_write(inputs.status, status))


def _traces(partition: Partition, entry: Entry) -> Iterator[tuple[str, dict[str, Any] | None]]:
    """Give the names of HPAs whose status (their object) or scale (None) an entry may change."""
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
    """Say what an evaluation right before a record, at its time, would read; None: there is no such HPA in shadow."""
    state = partition.state
    hpa = state.hpas.get(name)
    if hpa is None or hpa.row.gone or hpa.row.deleted:
        return None
    namespace = state.namespace(name.cluster, name.namespace)
    inputs = Evaluator(state, namespace, hpa, state.settings(name.cluster)).inputs()
    return structs.replace(inputs, now_ms=max(state.now_ms, record[1])) if inputs.follows_native else None


def _precedes(scaled: EvaluationInputs, inputs: EvaluationInputs) -> bool:
    return inputs.now_ms - scaled.now_ms <= _REMEMBERED_PERIODS * inputs.period_ms


def _sees(inputs: EvaluationInputs, status: dict[str, Any]) -> bool:
    scale = inputs.observation.scale
    return isinstance(scale, Scale) and scale.spec_replicas == status.get("currentReplicas", 0)
