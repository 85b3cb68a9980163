"""A generated log in closed loop: every wanted write is applied and its outcome recorded, and scale and pods follow.

So most evaluations give what the one before gave, as in a fleet that has run for a while.
"""

import math
from collections.abc import Iterator
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
