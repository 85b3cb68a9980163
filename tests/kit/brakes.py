"""A namespace of HPAs whose writes succeed or fail at once, to try brakes on."""

from typing import Any

import msgspec

from schemas.answers import Answers
from schemas.decisions import Decision
from schemas.entries import Outcome
from schemas.observed import AutoscalerSet, PodDeleted, PodSet
from schemas.settings import ClusterSettings, SettingsSet
from tests.kit.partition import ENFORCING, LogBuilder, cpu_answer, make_hpa, make_pod, scale

Json = dict[str, Any]
SECOND, MINUTE = 1_000, 60_000
AT_ONCE = {
    "scaleUp": {"stabilizationWindowSeconds": 0, "policies": [{"type": "Percent", "value": 900, "periodSeconds": 15}]},
    "scaleDown": {
        "stabilizationWindowSeconds": 0,
        "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}],
    },
}


class World:
    """HPAs of a namespace whose writes all succeed at once, unless a test makes them fail.

    Pods that are removed go; those that are added never come, so that only the first of two additions is more.
    """

    def __init__(self, *apps: str, replicas: int = 10, **braking: Any) -> None:
        self.log = LogBuilder()
        self.replicas = dict.fromkeys(apps, replicas)
        self.log.add(SettingsSet(cluster="*", settings=ENFORCING))
        self.log.add(SettingsSet(cluster="eu", settings=ClusterSettings(**braking)))
        for app in apps:
            self.put(app)
        self.poll(50)
        self.log.now_ms += 15 * SECOND

    def put(self, app: str, annotations: dict[str, str] | None = None, **spec: Any) -> None:
        usual: Json = {"maxReplicas": 1_000, "behavior": AT_ONCE}
        hpa = make_hpa(app, f"uid-{app}", **(usual | spec))
        if annotations:
            hpa["metadata"]["annotations"] = annotations
        pods = [PodSet(pod=make_pod(f"{app}-{index}", app)) for index in range(self.replicas[app])]
        self.log.add(AutoscalerSet(hpa=hpa), scale(app, self.replicas[app]), *pods)

    def poll(self, milli: int | dict[str, int], result: str = "applied") -> dict[str, Json]:
        """One answer for each HPA, what is decided, and the outcomes of it."""
        usage = milli if isinstance(milli, dict) else dict.fromkeys(self.replicas, milli)
        items = [
            cpu_answer(app, {f"{app}-{index}": usage[app] for index in range(count)}, self.log.now_ms)
            for app, count in self.replicas.items()
        ]
        made = {}
        for each in self.log.add(Answers(items=items)):
            made[each["name"]] = each
        for app, decision in made.items():
            wants = decision.get("wants")
            if wants is None:
                continue
            applied = result == "applied"
            outcome: Any = Outcome(
                decision=decision["id"],
                name=app,
                uid=decision["uid"],
                result="applied" if applied else "failed",
                spec_replicas=wants if applied else self.replicas[app],
            )
            gone = [PodDeleted(name=f"{app}-{index}") for index in range(wants, self.replicas[app])] if applied else []
            if applied:
                self.replicas[app] = wants
            self.log.add(outcome, *gone)
        return made

    def period(self, milli: int | dict[str, int], result: str = "applied") -> dict[str, Json]:
        self.log.now_ms += 15 * SECOND
        return self.poll(milli, result)


def after(made: dict[str, Json]) -> dict[str, int]:
    return {app: decision["finalDesiredReplicas"] for app, decision in made.items()}


def whole(log: LogBuilder) -> list[Decision]:
    """All decisions of a log."""
    return [msgspec.json.decode(record.value, type=Decision) for record in log.decisions]
