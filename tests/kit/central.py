"""Central HPAs beside a cluster's own, on one target: the bodies of log entries, and logs in which they come and go."""

import random
from typing import Any

from schemas.answers import Answers
from schemas.entries import Body
from schemas.keys import HpaId
from schemas.observed import AutoscalerDeleted, AutoscalerList, AutoscalerSet, Command, Mode, PodSet
from schemas.settings import ClusterSettings, SettingsSet
from streams.state.ownership import ScaleTarget
from tests.kit.partition import LogBuilder, cpu_answer, make_hpa, make_pod, scale

Json = dict[str, Any]
WEB = HpaId("eu", "shop", "web")
TARGET = ("apps", "Deployment", "web")
SCALE = ScaleTarget("eu", "shop", TARGET)


def settings(**fields: Any) -> SettingsSet:
    return SettingsSet(cluster="eu", settings=ClusterSettings(**fields))


ABSENT, PRESENT = settings(native_controller="absent"), settings(native_controller="present")


def mode(wanted: Mode, name: str = "web") -> Command:
    return Command(command="mode", name=name, mode=wanted)


def native(name: str = "web", uid: str = "uid-web", **spec: Any) -> AutoscalerSet:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    return AutoscalerSet(hpa=make_hpa(name, uid, scaleTargetRef=target, **spec))


def central(name: str = "web", wanted: Mode | None = None, **spec: Any) -> AutoscalerSet:
    body = native(name, **spec).hpa
    body["metadata"] = {"name": name, "namespace": "shop"}
    return AutoscalerSet(hpa=body, origin="central", mode=wanted, author="anna", reason="PAY-1")


UNDO = AutoscalerDeleted(name="web", origin="central")


def world(*before: Body) -> LogBuilder:
    log = LogBuilder()
    log.add(*before, scale(spec=2), PodSet(pod=make_pod("web-0")), PodSet(pod=make_pod("web-1")))
    return log


def evaluate(log: LogBuilder, milli: int = 100, after_ms: int = 15_000) -> list[Json]:
    usage = {"web-0": milli, "web-1": milli}
    return log.add(Answers(items=[cpu_answer("web", usage, log.now_ms)]), after_ms=after_ms)


CENTRAL_EVENTS: list[Body] = [
    native(),
    native(uid="uid-2", maxReplicas=7),
    AutoscalerDeleted(name="web", uid="uid-web"),
    AutoscalerDeleted(name="web", uid="uid-2"),
    AutoscalerDeleted(name="web"),
    AutoscalerList(list_id="l", hpas=[]),
    AutoscalerList(list_id="m", hpas=[native(uid="uid-2").hpa, native("old", "uid-old").hpa]),
    central(),
    central(wanted="enforce", maxReplicas=12),
    central("old"),
    UNDO,
    mode("enforce"),
    PRESENT,
    ABSENT,
]


def central_log(seed: int, steps: int = 30) -> LogBuilder:
    """A log in which central HPAs and the cluster's own of the same names and targets come and go."""
    rng, log = random.Random(seed), world(ABSENT)
    for _ in range(steps):
        log.add(*rng.choices(CENTRAL_EVENTS, k=rng.randrange(1, 4)), after_ms=rng.choice((1_000, 15_000)))
        if rng.random() < 0.4:
            evaluate(log, rng.choice((20, 100)))
    return log
