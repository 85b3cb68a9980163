"""The core in its steady state: every wanted write is applied and its outcome recorded, and scale and pods follow.

So most evaluations give what the one before gave, as in a fleet that has run for a while.
The log is made once, in closed loop with the decisions that it causes, and then folded again against the clock.
"""

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from heapq import heappop, heappush
from typing import Any, Final

import msgspec

from schemas.entries import Body, Outcome
from schemas.observed import Pod, PodDeleted, PodSet
from schemas.settings import ClusterSettings
from schemas.topics import OUTCOMES, PODS, SCALES
from streams.partition import Partition
from streams.state.ledger import DecisionRecord
from tests.kit.generated_log import Fleet, GeneratedRecord, GeneratedWorkload, LogGenerator

WRITE_MS: Final = 500
"""From a wanted write to its outcome."""
WAVE_MINUTES: Final = 90.0
WARM_MINUTES: Final = 8.0
"""Log time after which a fleet counts as one that has run for a while."""
RUNS: Final = 3
ENFORCED: Final = ClusterSettings(default_mode="enforce", native_controller="absent")
Record = tuple[int, int, bytes]


class ClosedLoop(LogGenerator):
    """A fleet whose scales follow its decisions. The load of a workload is shared by its pods."""

    def __init__(self, fleet: Fleet, number: int = 0) -> None:
        """`number`: of the partition that decides."""
        super().__init__(fleet)
        self.partition = Partition.empty(number)
        self.writes: list[tuple[int, str, str, int, dict[str, Any]]] = []
        """When a write is made, of which HPA, and its decision: a heap."""
        self.by_name = {(each.key, each.name): each for each in self.workloads}

    def log(self) -> list[Record]:
        """Make the log, in closed loop with the decisions that it causes."""
        return [record for record, _ in self.decided()]

    def decided(self) -> Iterator[tuple[Record, list[DecisionRecord]]]:
        """Make the log, each record with the decisions that it causes."""
        for record in self.run():
            made = self.partition.apply(*record[1:])
            for decision in made:
                if b'"wants":' in decision.value:
                    wanted = msgspec.json.decode(decision.value)
                    if wanted.get("wants") is not None:
                        due_ms = self.now_ms + WRITE_MS
                        heappush(self.writes, (due_ms, decision.key, wanted["name"], decision.seq, wanted))
            yield record[1:], made

    def _ticks(self) -> Iterator[GeneratedRecord]:
        while self.writes and self.writes[0][0] <= self.now_ms:
            _, key, name, _, wanted = heappop(self.writes)
            yield self._batch(key, self._written(self.by_name[key, name], wanted))
        yield from super()._ticks()

    def _written(self, workload: GeneratedWorkload, wanted: dict[str, Any]) -> list[tuple[str, Body]]:
        """Apply a write: its outcome, the scale as it is watched, and the pods that come and go."""
        replicas: int = wanted["wants"]
        workload.replicas = replicas
        outcome = Outcome(
            decision=wanted["id"], name=workload.name, uid=wanted["uid"], result="applied", spec_replicas=replicas
        )
        bodies: list[tuple[str, Body]] = [(OUTCOMES, outcome), (SCALES, self._scale(workload))]
        while len(workload.pods) > replicas:
            gone = workload.pods.pop()
            bodies.append((PODS, PodDeleted(name=gone.name, session="generated")))
        while len(workload.pods) < replicas:
            workload.pods.append(self._young_pod(workload))
            bodies.append((PODS, PodSet(pod=workload.pods[-1], session="generated")))
        return bodies

    def _young_pod(self, workload: GeneratedWorkload) -> Pod:
        """A pod that was started by a scale-up, so that its initialization is not over for five minutes."""
        second_ms = self.now_ms // 1000 * 1000
        return msgspec.structs.replace(self._pod(workload), start=second_ms, ready_at=second_ms)

    def _load(self, workload: GeneratedWorkload) -> float:
        minutes = (self.now_ms - self.fleet.start_ms) / 60_000
        whole = 0.5 + 0.15 * math.sin(workload.phase + math.tau * minutes / WAVE_MINUTES)
        return whole * self.fleet.pods / len(workload.pods)


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


def steady_fleet(hpas: int, minutes: float, pods: int = 5, seed: int = 0) -> Fleet:
    """A fleet for the closed loop, of one partition."""
    return Fleet(
        hpas=hpas,
        namespaces=max(1, hpas // 10),
        minutes=minutes,
        pods=pods,
        churn=0.002,
        noise=0.03,
        settings=ENFORCED,
        seed=seed,
    )


def measured(log: tuple[Record, ...]) -> Steady:
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
        runs = [measured(steady_log(pods)) for _ in range(RUNS)]
        best = min(runs, key=lambda run: run.cpu_s)
        yield f"steady, {pods} pods", best.evaluations / best.cpu_s, "evaluations/CPU s"
