"""HPAs whose metrics are pushed, and logs in which samples bring evaluations (`evaluateOn: sample`)."""

import random
from typing import Any

from schemas.entries import Outcome
from schemas.observed import AutoscalerSet, PodSet, Point, Samples
from schemas.settings import ClusterSettings, SettingsSet
from tests.kit.partition import LogBuilder, make_hpa, make_pod, scale

Json = dict[str, Any]
ON: Json = {"evaluate_on": "sample"}
SECOND = 1_000


class Pushed:
    """Apps of two pods each, of which 50m are half of what they request: the target. Their usage is pushed."""

    def __init__(self, *apps: str, number: int = 0, **changes: Any) -> None:
        self.log, self.apps = LogBuilder(number), apps or ("web",)
        settings = ClusterSettings(sources={"Resource": "samples"}, default_mode="enforce", native_controller="absent")
        self.log.add(SettingsSet(cluster="*", settings=settings))
        self.log.add(SettingsSet(cluster="*", settings=ClusterSettings(**changes)))
        for app in self.apps:
            pods = [PodSet(pod=make_pod(f"{app}-{index}", app)) for index in range(2)]
            self.log.add(AutoscalerSet(hpa=make_hpa(app, f"uid-{app}")), scale(app), *pods)

    def push(self, milli: int, after_ms: int, *apps: str) -> list[Json]:
        """A sample of each pod; gives the decisions of that record."""
        self.log.now_ms += after_ms
        points = [
            Point(type="Resource", metric="cpu", pod=f"{app}-{index}", milli=milli, time=self.log.now_ms)
            for app in apps or self.apps
            for index in range(2)
        ]
        return self.log.add(Samples(points=points))

    def settled(self) -> "Pushed":
        """After the first evaluation and the one of the next period, both within the tolerance."""
        assert len(self.push(50, SECOND)) == len(self.apps)
        for _ in range(3):
            self.push(50, 5 * SECOND)
        return self

    def until_decided(self, limit_s: int = 30) -> tuple[int, Json]:
        """Ticks until a decision; gives how many milliseconds went by."""
        since_ms = self.log.now_ms
        for _ in range(limit_s * 10):
            if made := self.log.add(after_ms=100):
                return self.log.now_ms - since_ms, made[0]
        raise AssertionError("no decision")


def moving_samples(seed: int, *, records: int = 150, number: int = 0) -> LogBuilder:
    """Samples that jump, at any distance in time, with writes that end at some time."""
    chance = random.Random(seed)
    pushed = Pushed("api", "web", number=number, **ON, evaluate_floor_ms=chance.choice((100, 1_000, 4_000)))
    wanted: list[Json] = []
    for _ in range(records):
        what = chance.random()
        if what < 0.6:
            apps = chance.choice((("api",), ("web",), ("api", "web")))
            made = pushed.push(chance.choice((10, 48, 50, 52, 90, 200)), chance.choice((10, 300, 900, 2_000)), *apps)
        elif what < 0.9 or not wanted:
            made = pushed.log.add(after_ms=chance.choice((100, 1_000, 3_000)))
        else:
            end = wanted.pop()
            result: Any = chance.choice(("applied", "failed"))
            replicas = end["wants"] if result == "applied" else None
            body = Outcome(decision=end["id"], name=end["name"], uid=end["uid"], result=result, spec_replicas=replicas)
            made = pushed.log.add(body, after_ms=chance.choice((10, 500)))
        wanted += [decision for decision in made if decision.get("wants") is not None]
    return pushed.log
