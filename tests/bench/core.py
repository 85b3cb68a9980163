"""Measures of the core: no Kafka, no Kubernetes, one process."""

import gc
import time
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import cramjam

from runtime.kafkaclients import ZSTD_LEVEL
from schemas.answers import Answers, MetricAnswer, PodUsage, in_columns
from schemas.codec import encode
from schemas.entries import Entry, LogRecord
from schemas.observed import Container, Pod
from streams.hpa.autoscaler import ControllerSettings, compile_autoscaler
from streams.hpa.evaluation import EMPTY_HISTORY
from streams.hpa.observation import ExternalSamples, Observation, Scale, TargetPods, pod_samples
from streams.hpa.reconcile import decide
from streams.partition import Partition
from streams.state.ledger import DecisionRecord
from streams.state.membership import pod_row
from streams.state.rowcodec import merge_rows
from tests.kit.closedloop import ClosedLoop, Record, steady_fleet
from tests.kit.generated_log import START_MS, Fleet, partition_log

RUNS = 5
STEADY_RUNS = 3
WARM_MINUTES = 8.0
"""Log time after which a fleet counts as one that has run for a while."""
Line = tuple[str, float, str]
Log = list[tuple[int, int, bytes]]


def best(work: Callable[[], int]) -> float:
    """Run `work` several times; give the most that it did in a second of CPU time."""
    rates = []
    for _ in range(RUNS):
        began = time.process_time()
        done = work()
        rates.append(done / (time.process_time() - began))
    return max(rates)


# --- decide -----------------------------------------------------------------------------------------------------------


def decide_alone() -> Iterator[Line]:
    """`decide` with an observation that is ready: no fold, no record."""
    for pods, metrics in ((5, 1), (20, 3)):
        yield f"decide, {pods} pods, {metrics} metric(s)", best(partial(_decide, pods, metrics)), "evaluations/s"


def _decide(pods: int, metrics: int, rounds: int = 2_000) -> int:
    fleet = Fleet(metrics=metrics, pods=pods)
    autoscaler = compile_autoscaler(_hpa(fleet))
    rows = TargetPods(tuple(pod_row(_pod(index)) for index in range(pods)))
    status: dict[str, Any] = {}
    history, settings = EMPTY_HISTORY, ControllerSettings()
    for index in range(rounds):
        now_ms = START_MS + index * 15_000
        usage = {f"web-{pod}": (180 + (index + pod) % 40, now_ms - 5_000, 15_000) for pod in range(pods)}
        memory = {f"web-{pod}": (200_000_000_000, now_ms - 5_000, 15_000) for pod in range(pods)}
        answers = (pod_samples(usage), pod_samples(memory), ExternalSamples((pods * 9_000,)))[:metrics]
        observation = Observation(Scale(pods, pods, "app=web"), rows, answers)
        evaluation = decide(autoscaler, status, observation, history, settings, now_ms)
        history = evaluation.history
        if evaluation.result is not None:
            status = evaluation.result.status
    return rounds


def _hpa(fleet: Fleet) -> dict[str, Any]:
    log = partition_log(Fleet(hpas=1, namespaces=1, minutes=0, metrics=fleet.metrics, pods=fleet.pods))
    partition = Partition.empty(0)
    partition.apply(*log[0])
    return next(iter(partition.state.hpas.values())).row.hpa_object()


def _pod(index: int) -> Pod:
    return Pod(
        name=f"web-{index}",
        labels={"app": "web"},
        start=START_MS - 600_000,
        ready="True",
        ready_at=START_MS - 590_000,
        containers=[Container(name="main", requests={"cpu": "250m", "memory": "256Mi"})],
    )


# --- fold -------------------------------------------------------------------------------------------------------------


def fold_samples() -> Iterator[Line]:
    """Fold answers of the metrics API into a partition whose pods no HPA asks about."""
    records = [_answers(index) for index in range(40)]

    def work() -> int:
        partition = Partition.empty(0)
        for offset, value in enumerate(records):
            partition.apply(offset, START_MS + offset * 20, value)
        return 40 * 2_000

    yield "fold", best(work), "pod samples/s"


def _answers(index: int) -> bytes:
    """20 targets with 100 pods each."""
    time_ms = START_MS + index * 20
    items = []
    for target in range(20):
        usages = [_usage(f"app{target}-{pod}", 100 + pod, time_ms) for pod in range(100)]
        items.append(MetricAnswer(api="resource", selector=f"app=app{target}", pods=in_columns(usages)))
    return encode(LogRecord(v=1, entries=[Entry(key="c/ns", body=Answers(items=items))]))


def _usage(pod: str, milli: int, time_ms: int) -> PodUsage:
    return PodUsage(pod, time_ms, 15_000, [("main", {"cpu": milli, "memory": 10**9})])


# --- partition --------------------------------------------------------------------------------------------------------


def partition_decisions() -> Iterator[Line]:
    """Everything a worker computes: decode, fold, evaluate, record, checkpoint rows."""
    for pods, metrics in ((5, 1), (20, 3)):
        log = partition_log(Fleet(hpas=300, namespaces=30, minutes=5, pods=pods, metrics=metrics))
        yield f"partition, {pods} pods, {metrics} metric(s)", best(partial(_count, log)), "decisions/s"


def _count(log: Log) -> int:
    return sum(len(made) for made in _run(log))


def _run(log: Log) -> Iterator[list[DecisionRecord]]:
    partition = Partition.empty(0)
    for record in log:
        yield partition.apply(*record)
        if partition.due_checkpoint:
            partition.checkpoint()


# --- at rest ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Steady:
    """What the measured part of a log took."""

    evaluations: int
    cpu_s: float


@lru_cache(maxsize=4)
def steady_log(pods: int) -> tuple[Record, ...]:
    """The log of a fleet with so many pods per HPA: 300 HPAs of 5 pods, fewer of more."""
    hpas = max(10, 300 * 5 // pods)
    return tuple(ClosedLoop(steady_fleet(hpas, WARM_MINUTES + 4, pods)).log())


def folded_at_rest(log: tuple[Record, ...]) -> Steady:
    """Fold a log; time what follows the start."""
    partition = Partition.empty(0)
    evaluations = 0
    begin_ms = log[0][1] + round(WARM_MINUTES * 60_000)
    began = None
    for record in log:
        if began is None and record[1] >= begin_ms:
            began = time.process_time()
        made = partition.apply(*record)
        if partition.due_checkpoint:
            partition.checkpoint()
        if began is not None:
            evaluations += len(made)
            for decision in made:
                evaluations -= decision.id.endswith("-c")
    if began is None:
        raise ValueError("the log ends before its steady state")
    return Steady(evaluations, time.process_time() - began)


def steady_state() -> Iterator[tuple[str, float, str]]:
    """Everything that a worker computes, of fleets that have run for a while."""
    for pods in (5, 500):
        runs = [folded_at_rest(steady_log(pods)) for _ in range(STEADY_RUNS)]
        best = min(runs, key=lambda run: run.cpu_s)
        yield f"steady, {pods} pods", best.evaluations / best.cpu_s, "evaluations/CPU s"


# --- sizes ------------------------------------------------------------------------------------------------------------


def memory_of_state() -> Iterator[Line]:
    """Memory of what a decider holds of an HPA and its pods after minutes of evaluations, without modules."""
    _count(partition_log(Fleet(hpas=2, namespaces=1, minutes=1)))
    for hpas, pods in ((1_000, 5), (100, 50)):
        log = partition_log(Fleet(hpas=hpas, namespaces=hpas // 10, minutes=6, pods=pods))
        gc.collect()
        tracemalloc.start()
        partition = Partition.empty(0)
        for record in log:
            partition.apply(*record)
            if partition.due_checkpoint:
                partition.checkpoint()
        gc.collect()
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        yield f"memory of a decider, per HPA of {pods} pods", held / hpas, "bytes"


def decision_bytes() -> Iterator[Line]:
    """Size of decision values, as they are and in a batch that the producer compresses."""
    log = partition_log(Fleet(hpas=100, namespaces=10, minutes=10, metrics=1))
    decisions = [decision for made in _run(log) for decision in made]
    values = [decision.value for decision in decisions]
    packed = sum(len(bytes(cramjam.zstd.compress(b"".join(batch), level=3))) for batch in _batches(values))
    yield "decision", sum(map(len, values)) / len(values), "bytes"
    yield "decision, in zstd batches of 64", packed / len(values), "bytes"


def disk_of_topics() -> Iterator[Line]:
    """What 1,000 HPAs in shadow write in a day, from an hour; what a record causes is compressed by itself: with zstd
    what is in the log, with lz4 the rest.
    """
    hpas, minutes = 100, 60
    log = partition_log(Fleet(hpas=hpas, namespaces=10, minutes=minutes, metrics=1))
    partition = Partition.empty(0)
    written: dict[str, list[list[tuple[bytes, bytes]]]] = {"log": [], "decisions": [], "changelog": []}
    newest: dict[bytes, bytes] = {}
    for record in log:
        if record[2].count(b"{") > 2:
            written["log"].append([(b"", record[2])])
        made = [
            (decision.key.encode() + b"".join(map(_header_bytes, decision.headers)), decision.value)
            for decision in partition.apply(*record)
        ]
        if made:
            written["decisions"].append(made)
        if partition.due_checkpoint:
            rows = partition.checkpoint()
            written["changelog"].append(rows)
            merge_rows(newest, rows)
    factor = 1_000 / hpas * 24 * 60 / minutes / 1e6
    for topic, batches in written.items():
        joined = (b"".join(map(b"".join, batch)) for batch in batches)
        compress = partial(cramjam.zstd.compress, level=ZSTD_LEVEL) if topic == "log" else cramjam.lz4.compress_block
        packed = sum(len(bytes(compress(each))) for each in joined)
        yield f"{topic}, 1,000 HPAs of 5 pods", packed * factor, "MB a day"
    kept = sum(len(key) + len(value) for key, value in newest.items())
    yield "changelog once compacted, 1,000 HPAs of 5 pods", kept * 1_000 / hpas / 1e6, "MB"


def _header_bytes(header: tuple[str, bytes]) -> bytes:
    return header[0].encode() + header[1]


def _batches(values: list[bytes]) -> Iterator[list[bytes]]:
    for at in range(0, len(values), 64):
        yield values[at : at + 64]
