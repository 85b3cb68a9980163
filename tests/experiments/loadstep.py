"""From a load step to wanted writes in log time, with pushed samples: `python -m tests.experiments.loadstep`.

The core alone: what the processes and the brokers take comes on top. Each HPA's five pods push their usage every two
seconds; after a minute the load of all becomes 2.5 times as large. Writes have their outcome 200 ms later, and new pods
are ready with it.
"""

import sys
import time
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Any, Literal

import msgspec

from schemas.codec import encode
from schemas.entries import WHOLE_PARTITION_KEY, Body, Entry, LogRecord, Outcome
from schemas.observed import AutoscalerSet, PodSet, Point, Samples
from schemas.settings import ClusterSettings, EngineSet, SettingsSet
from streams.partition import Partition
from tests.kit.partition import START_MS, make_hpa, make_pod, scale

HPAS, PODS, PERIOD_MS, PUSH_MS, WRITE_MS = 300, 5, 15_000, 2_000, 200
STEP_MS, END_MS, FACTOR = 60_000, 120_000, 2.5
Mode = Literal["period", "sample"]


class LoadStep:
    """One run."""

    def __init__(self, mode: Mode) -> None:
        self.partition, self.offset = Partition.empty(0), 0
        self.replicas = dict.fromkeys(range(HPAS), PODS)
        self.first: dict[int, int] = {}
        self.last: dict[int, int] = {}
        """HPA -> milliseconds from the step to the first and the last wanted write."""
        self.evaluations = 0
        settings = ClusterSettings(
            default_mode="enforce", native_controller="absent", sources={"Resource": "samples"}, evaluate_on=mode
        )
        self._log(0, WHOLE_PARTITION_KEY, EngineSet(engine=1), SettingsSet(cluster="*", settings=settings))
        # Spread over the sync period, as the phases of namespaces are.
        self.events = [(number * PERIOD_MS // HPAS, number, -1) for number in range(HPAS)]
        """(when, HPA, place of the wanted write in `writes`; -1: a push)."""
        heapify(self.events)
        self.writes: list[dict[str, Any]] = []

    def run(self) -> "LoadStep":
        """Play it to its end."""
        for number in range(HPAS):
            name = f"web-{number}"
            pods = [PodSet(pod=make_pod(f"{name}-{index}", name)) for index in range(PODS)]
            hpa = make_hpa(name, f"uid-{number}", maxReplicas=40)
            hpa["metadata"]["namespace"] = f"ns-{number // 10}"
            self._log(0, self._key(number), *pods, scale(name, PODS), AutoscalerSet(hpa=hpa))
        while self.events and self.events[0][0] < END_MS:
            now_ms, number, place = heappop(self.events)
            if place >= 0:
                self._write(now_ms, number, self.writes[place])
                continue
            self._log(now_ms, self._key(number), self._samples(now_ms, number))
            heappush(self.events, (now_ms + PUSH_MS, number, -1))
        return self

    def _samples(self, now_ms: int, number: int) -> Samples:
        milli = round(PODS * 50 * (FACTOR if now_ms >= STEP_MS else 1.0) / self.replicas[number])
        names = [f"web-{number}-{index}" for index in range(self.replicas[number])]
        at_ms = START_MS + now_ms
        return Samples(points=[Point(type="Resource", metric="cpu", pod=pod, milli=milli, time=at_ms) for pod in names])

    def _write(self, now_ms: int, number: int, wanted: dict[str, Any]) -> None:
        name, before, self.replicas[number] = f"web-{number}", self.replicas[number], wanted["wants"]
        pods = [PodSet(pod=make_pod(f"{name}-{index}", name)) for index in range(before, wanted["wants"])]
        outcome = Outcome(
            decision=wanted["id"], name=name, uid=wanted["uid"], result="applied", spec_replicas=wanted["wants"]
        )
        self._log(now_ms, self._key(number), *pods, scale(name, wanted["wants"]), outcome)

    def _key(self, number: int) -> str:
        return f"eu/ns-{number // 10}"

    def _log(self, now_ms: int, key: str, *bodies: Body) -> None:
        value = encode(LogRecord(v=1, entries=[Entry(key=key, body=body) for body in bodies]))
        for made in self.partition.apply(self.offset, START_MS + now_ms, value):
            decision = msgspec.json.decode(made.value)
            self.evaluations += decision.get("kind", "evaluation") == "evaluation"
            if decision.get("wants") is not None:
                number = int(decision["name"].removeprefix("web-"))
                heappush(self.events, (now_ms + WRITE_MS, number, len(self.writes)))
                self.writes.append(decision)
                if now_ms >= STEP_MS:
                    self.first.setdefault(number, now_ms - STEP_MS)
                    self.last[number] = now_ms - STEP_MS
        self.offset += 1


def report(mode: Mode) -> Iterator[str]:
    """Run and print."""
    began = time.process_time()
    run = LoadStep(mode).run()
    yield (
        f"evaluate-on={mode}: {run.evaluations} evaluations of {HPAS} HPAs in {END_MS // 1000} s, "
        f"{time.process_time() - began:.2f} s of CPU, the making of the log included"
    )
    for which, found in (("first", run.first), ("last", run.last)):
        times = sorted(found.values())
        yield (
            f"  step to {which} wanted write: p50 {times[len(times) // 2]} ms, p99 {times[len(times) * 99 // 100]} ms, "
            f"max {times[-1]} ms of {len(times)}"
        )


if __name__ == "__main__":
    for each in ("period", "sample"):
        for line in report(each):
            sys.stdout.write(line + "\n")
