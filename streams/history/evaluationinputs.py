"""From a log to the inputs of its evaluations: fold it with a probe and give each evaluation with its record."""

from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import aclosing
from typing import NamedTuple

from schemas.chain import log_offset_of
from schemas.keys import HpaId
from streams.archive.segments import PlainRecord
from streams.history.nativetraces import NativeSync, NativeTraces
from streams.history.past import LogGoneError, Past
from streams.history.recorded import Recorded
from streams.state.partition import Partition
from streams.state.probe import EvaluationInputs, WriteEnded


class Evaluated(NamedTuple):
    """An evaluation of the log: what it read and the decision record that the log gives for it."""

    inputs: EvaluationInputs
    value: bytes


HpaEvent = Evaluated | WriteEnded | NativeSync


def hpa_of(event: HpaEvent) -> HpaId:
    """Return whose event it is."""
    return event.hpa if isinstance(event, WriteEnded) else event.inputs.hpa


def events(
    partition: Partition,
    records: Iterable[PlainRecord],
    wanted: Callable[[HpaId], bool],
    traces: NativeTraces | None = None,
) -> Iterator[HpaEvent]:
    """Fold `records` onto `partition` and give what became of the wanted HPAs, in the order of the log.

    `traces`: gives the syncs of the clusters' own controllers, too, each before the record that tells of it.
    """
    told: list[EvaluationInputs | WriteEnded] = []

    def probe(each: EvaluationInputs | WriteEnded) -> None:
        if wanted(each.hpa):
            told.append(each)

    for offset, timestamp_ms, value in records:
        if traces is not None:
            yield from traces.before(partition, (offset, timestamp_ms, value))
        told.clear()
        decisions = partition.apply(offset, timestamp_ms, value, probe=probe)
        if not told:
            continue
        values = {decision.id: decision.value for decision in decisions}
        for each in told:
            yield Evaluated(each, values[each.decision]) if isinstance(each, EvaluationInputs) else each


async def evaluation_of(past: Past, recorded: Recorded) -> Evaluated:
    """Return the inputs of a decision, after checking that the log gives exactly that decision again.

    Raises:
        LogGoneError: the log does not hold them any more, or gives another decision.
    """
    id_ = recorded.decision.id
    offset = log_offset_of(id_)
    partition = await past.restored(recorded.partition, below=offset)
    async with aclosing(past.following(partition, upto=offset)) as records:
        async for record in records:
            for each in events(partition, [record.plain], lambda _: True):
                if isinstance(each, Evaluated) and each.inputs.decision == id_:
                    return _checked(each, recorded)
    raise LogGoneError(f"the log holds no evaluation {id_}")


def _checked(found: Evaluated, recorded: Recorded) -> Evaluated:
    if found.value != recorded.value:
        id_ = recorded.decision.id
        raise LogGoneError(f"the log gives another decision {id_} than the recorded one: fleethpa verify {id_}")
    return found


async def events_between(
    past: Past,
    number: int,
    since_ms: int,
    until_ms: int | None,
    wanted: Callable[[HpaId], bool],
    *,
    native: bool = False,
) -> AsyncGenerator[HpaEvent, None]:
    """Give what became of HPAs of a log partition in a time: evaluations with their inputs, and ends of writes.

    `native`: and the syncs of the cluster's own controller.

    The bytes of the decision records, which would be most of a long window, are left out.

    Raises:
        LogGoneError: the log does not reach back to the start.
    """
    traces = NativeTraces(wanted) if native else None
    partition = await past.restored(number, before_ms=since_ms)
    async with aclosing(past.following(partition, until_ms=until_ms)) as records:
        async for record in records:
            for each in events(partition, [record.plain], wanted, traces):
                now_ms = each.now_ms if isinstance(each, WriteEnded) else each.inputs.now_ms
                if now_ms >= since_ms:
                    yield Evaluated(each.inputs, b"") if isinstance(each, Evaluated) else each
