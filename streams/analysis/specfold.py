"""The fold of what decides an HPA's spec and mode. Nothing is evaluated, so that hours of the log cost little.

Samples, answers, pods, scales and outcomes are passed over: no spec, mode or observer session follows from them. Nor
does one follow from an evaluation: it removes a deleted HPA, which is as good as not there before that, too.
"""

from schemas.agents import AgentSet
from schemas.autoscalers import AutoscalerDeleted, AutoscalerList, AutoscalerSet, Command
from schemas.entries import WHOLE_PARTITION_KEY
from schemas.scales import Heartbeat
from schemas.settings import EngineSet, SettingsSet, WatermarkReset
from streams.archive.segments import PlainRecord
from streams.state.fold import EntryFold
from streams.state.logrecords import FoldedEntry, read_record
from streams.state.partition import Partition

_FOLDED = (
    AutoscalerSet,
    AutoscalerDeleted,
    AutoscalerList,
    Command,
    Heartbeat,
    SettingsSet,
    EngineSet,
    AgentSet,
    WatermarkReset,
)


def fold_specs(partition: Partition, record: PlainRecord, cluster: str) -> None:
    """Fold what decides the specs and modes of a cluster's HPAs; what else the partition holds is not true after it.

    Raises:
        LogError: it is not a log record.
        UnknownEngineError: the record asks for an engine that this version lacks.
    """
    offset, timestamp_ms, value = record
    state = partition.state
    state.row.clock_ms = state.now_ms = max(state.row.clock_ms, timestamp_ms)
    state.row.offset = offset
    state.offset = offset
    fold = EntryFold(state)
    for index, entry in enumerate(read_record(partition.number, offset, value).entries):
        if isinstance(entry.body, _FOLDED) and _is_of(entry, cluster):
            fold.apply(index, entry)
    state.ready_or_due.clear()
    state.views.clear()


def _is_of(entry: FoldedEntry, cluster: str) -> bool:
    return entry.key == WHOLE_PARTITION_KEY or entry.key.startswith(f"{cluster}/")
