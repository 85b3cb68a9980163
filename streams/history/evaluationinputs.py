"""From a log to the inputs of its evaluations: fold it with a probe and give each evaluation with its record."""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from schemas.chain import log_offset_of
from schemas.keys import HpaId
from streams.state.partition import Partition
from streams.state.probe import EvaluationInputs, WriteEnded

LogEntry = tuple[int, int, bytes]
"""(offset, timestamp ms, value) of a log record."""


class Evaluated(NamedTuple):
    """An evaluation of the log: what it read and the decision record that the log gives for it."""

    inputs: EvaluationInputs
    value: bytes


Event = Evaluated | WriteEnded


def events(partition: Partition, records: Iterable[LogEntry], wanted: Callable[[HpaId], bool]) -> Iterator[Event]:
    """Fold `records` onto `partition` and give what became of the wanted HPAs, in the order of the log."""
    told: list[EvaluationInputs | WriteEnded] = []

    def probe(each: EvaluationInputs | WriteEnded) -> None:
        if wanted(each.hpa):
            told.append(each)

    for offset, timestamp_ms, value in records:
        told.clear()
        decisions = partition.apply(offset, timestamp_ms, value, probe=probe)
        if not told:
            continue
        values = {decision.id: decision.value for decision in decisions}
        for each in told:
            yield Evaluated(each, values[each.decision]) if isinstance(each, EvaluationInputs) else each


def evaluation_of(partition: Partition, records: Iterable[LogEntry], decision: str) -> Evaluated | None:
    """Give the evaluation that made a decision; None: these records hold none of that id."""
    offset = log_offset_of(decision)
    upto = (record for record in records if record[0] <= offset)
    for each in events(partition, upto, lambda _: True):
        if isinstance(each, Evaluated) and each.inputs.decision == decision:
            return each
    return None
