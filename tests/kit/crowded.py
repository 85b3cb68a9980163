"""Logs in which more comes and goes than is kept."""

import random
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from schemas import limits
from schemas.answers import Answers
from schemas.observed import (
    AutoscalerDeleted,
    AutoscalerList,
    AutoscalerSet,
    Command,
    ConflictingAutoscaler,
    PodDeleted,
    PodList,
    PodSet,
    Point,
    Samples,
    Target,
)
from schemas.settings import SettingsSet
from streams.state import partitionrow
from tests.kit.churn import Churn, churned
from tests.kit.partition import ENFORCING, LogBuilder, Record, cpu_answer, make_hpa, make_pod, scale

TIGHT = {
    "NAMESPACE_PODS": 600,
    "NAMESPACE_ANSWERS": 700,
    "NAMESPACE_SAMPLES": 180,
    "NAMESPACE_SCALES": 330,
    "NAMESPACE_HPAS": 800,
    "NAMESPACE_CONFLICTING": 150,
    "NAMESPACE_COMMANDS": 200,
    "CLUSTER_BYTES": 16_000,
    "CLUSTER_HPAS": 5,
    "CLUSTER_NAMESPACES": 3,
}


def tight(patch: pytest.MonkeyPatch, **others: int) -> None:
    """Set limits that a few objects reach."""
    for name, most in (TIGHT | others).items():
        patch.setattr(limits, name, replace(getattr(limits, name), most=most))


def crowded_log(seed: int) -> LogBuilder:
    """Namespaces of one cluster in which things come and go, more of them than the limits take."""
    chosen, log = random.Random(seed), LogBuilder()
    names = [f"{letter}{number}" for letter in "abc" for number in range(5)]
    log.add(SettingsSet(cluster="*", settings=ENFORCING))
    for _ in range(120):
        entries = []
        for _ in range(chosen.randrange(4)):
            name, number = chosen.choice(names), log.now_ms % 1_000
            place = chosen.choice(("one", "two", "three", "four"))
            made = make_hpa(name, f"uid-{place}-{name}-{len(log.records)}", number)
            conflicting = [
                ConflictingAutoscaler(kind="X", name=name * 9, target=Target(kind="Deployment", name=name))
            ] * 2
            point = Point(type="Pods", metric=name[0], milli=number, time=log.now_ms, pod=name)
            body: Any = chosen.choice(
                (
                    PodSet(pod=make_pod(name, name[0], uid="u" * number)),
                    PodDeleted(name=name),
                    PodList(list_id=f"p{number}", pods=[make_pod(each) for each in names[: number % 9]]),
                    AutoscalerSet(hpa=made | {"metadata": made["metadata"] | {"annotations": {"a": "x" * number}}}),
                    AutoscalerDeleted(name=name),
                    AutoscalerList(list_id=f"h{number}", hpas=[made], conflicting=conflicting),
                    scale(name, number % 9),
                    Samples(points=[point]),
                    Answers(items=[cpu_answer(name[0], dict.fromkeys(names[: number % 9], number), log.now_ms)]),
                    Command(command="pause", name=name, reason="r" * (number // 9)),
                )
            )
            entries.append(log.entry(body, f"eu/{place}"))
        log.add(*entries, after_ms=chosen.choice((20, 700, 3_000, 600_000)))
    return log


CHURN = Churn(days=3, previews=4, names=3, steady=1, rename_days=1, renamed_hpas=1)


@cache
def churn_log() -> list[Record]:
    """HPAs and namespaces that come and go, of which some are named anew."""
    return list(churned(CHURN))


def few_names(patch: pytest.MonkeyPatch) -> None:
    """Keep so few names that those of `churn_log` are forgotten."""
    patch.setattr(partitionrow, "MOST_NAMES", 6)
