"""Scenarios and calculations from nothing, by seed: everything that the format of the recorded cases can say."""

import random
from typing import Any

from schemas.kubernetes.quantity import parse_quantity
from schemas.kubernetes.shape import Json
from tests.upstream.freshspecs import edited, spec
from tests.upstream.values import INT32_MAX, POD_LABELS, REQUESTS, SELECTORS, huge, int64, maybe, near, pick, replicas

ERRORS = (
    "no metrics returned from resource metrics API",
    "unable to fetch metrics from external metrics API: boom",
    "unable to fetch metrics from custom metrics API: the server could not find the metric %s for pods",
    "",
    "first line\nsecond line %d",
)
CONFLICT = (
    'Operation cannot be fulfilled on deployments.apps "web": the object has been modified; please apply your changes '
    "to the latest version and try again"
)
_DAY_MS = 86_400_000


def scenario(chance: random.Random, name: str) -> Json:
    """Return a scenario without its answers."""
    templates = [template(chance) for _ in range(pick(chance, (70, 1), (20, 2), (10, 3)))]
    first = spec(chance)
    hpa = {
        **{"kind": "HorizontalPodAutoscaler", "apiVersion": "autoscaling/v2"},
        "metadata": {"name": "hpa", "namespace": "ns", "generation": pick(chance, (90, 1), (9, 7), (1, 2**53 + 1))},
        "spec": first,
        "status": status(chance),
    }
    settings = _settings(chance)
    return {
        **{"id": name, "family": "fresh", "kind": "fresh", "controller": settings, "hpa": hpa, "labels": {"app": "x"}},
        **{"templates": templates, "ticks": _Ticks(chance, first, settings, len(templates)).made()},
    }


def without_kept_sums(case: Json) -> Json:
    """Return a case without what upstream changes in the pods that it keeps, so that each evaluation sees another sum.

    It adds the overhead to the pod's own quantity where that is a pod-level request of more than 64 bits, or of more
    digits, since a copy of such a quantity has the same number. Source: component-helpers v0.37.1 `addResourceList`.
    """
    return case | {"templates": [_with_safe_overhead(each) for each in case.get("templates") or ()]}


def _with_safe_overhead(template: Json) -> Json:
    whole, overhead = template.get("podRequests") or {}, template.get("overhead") or {}
    safe = {name: text for name, text in overhead.items() if name not in whole or not _is_beyond_64_bits(whole[name])}
    return template if safe == overhead else template | {"overhead": safe}


def _is_beyond_64_bits(text: str) -> bool:
    return parse_quantity(text).scale is not None


def _settings(chance: random.Random) -> Json:
    return {
        "tolerance": pick(
            chance, (60, 0.1), (10, 0.0), (10, round(chance.random(), 3)), (5, 1.0), (3, 2.5), (1, 1e-12), (1, -0.1)
        ),
        "downscaleStabilizationMs": pick(
            chance, (50, 300_000), (10, 0), (10, 60_000), (5, 1_500), (5, 999), (5, 15_000), (5, _DAY_MS)
        ),
        "cpuInitializationPeriodMs": pick(chance, (60, 300_000), (20, 0), (10, 60_000), (5, 120_500)),
        "initialReadinessDelayMs": pick(chance, (60, 30_000), (20, 0), (10, 120_000), (5, 10_001)),
    }


def template(chance: random.Random) -> Json:
    """Return the shape of a pod: containers with requests, sidecars, pod-level requests, overhead."""
    made: Json = {"containers": [_container(chance, f"c{index}") for index in range(chance.choice((1, 1, 2, 3)))]}
    init = [_container(chance, "side") | {"restartAlways": True}] if maybe(chance, 0.25) else []
    init += [_container(chance, "init")] if maybe(chance, 0.15) else []
    init += [_container(chance, "late") | {"restartAlways": True}] if maybe(chance, 0.05) else []
    if init:
        made["initContainers"] = init
    if maybe(chance, 0.15):
        made["podRequests"] = _requests(chance)
    if maybe(chance, 0.1):
        made["overhead"] = {"cpu": "15m", "memory": "10Mi"} if maybe(chance, 0.7) else _requests(chance)
    return made


def _container(chance: random.Random, name: str) -> Json:
    return {"name": name, "requests": _requests(chance)} if maybe(chance, 0.97) else {"name": name}


def _requests(chance: random.Random) -> dict[str, str]:
    usual = {"cpu": chance.choice(REQUESTS[:10]), "memory": chance.choice(REQUESTS[10:15])}
    if maybe(chance, 0.9):
        return usual
    names = chance.sample(
        ("cpu", "memory", "ephemeral-storage", "acme.io/widget", "hugepages-2Mi"), chance.randint(0, 3)
    )
    return {name: chance.choice(REQUESTS) for name in names}


def status(chance: random.Random) -> Json:
    """Return the status that the HPA has at first: none mostly."""
    made: Json = {"desiredReplicas": 0, "currentMetrics": None}
    if maybe(chance, 0.8):
        return made
    made["desiredReplicas"] = chance.choice((0, 1, 3, 17))
    if maybe(chance, 0.5):
        made["currentReplicas"] = chance.randint(1, 9)
    if maybe(chance, 0.3):
        made["lastScaleTime"] = "1999-12-31T23:29:55Z"
    if maybe(chance, 0.3):
        made["observedGeneration"] = chance.choice((0, 1, 3))
    if maybe(chance, 0.2):
        current = {"averageValue": chance.choice(("1", "100m", "1500m", "3k")), "averageUtilization": 3}
        made["currentMetrics"] = [{"type": "Resource", "resource": {"name": "cpu", "current": current}}]
    kinds = chance.sample(
        ("AbleToScale", "ScalingActive", "ScalingLimited", "ScaledToZero", "Odd"), chance.randint(0, 4)
    )
    conditions = [
        {
            **{"type": kind, "status": chance.choice(("True", "True", "False", "Unknown", ""))},
            **({"lastTransitionTime": chance.choice(("1999-12-31T22:35:54Z", None))}),
            **({"reason": "Reason", "message": "message %d"} if maybe(chance, 0.8) else {}),
        }
        for kind in kinds
    ]
    return made | ({"conditions": conditions} if conditions else {})


def pods(chance: random.Random, count: int, now_ms: int, settings: Json, templates: int) -> list[Json]:
    """Return pods, old and ready mostly, others about to become so: on and beside the bounds of the readiness rules."""
    made = []
    for index in range(count):
        age = pick(
            chance,
            (60, chance.randint(600_000, 80_000_000)),
            (10, settings["cpuInitializationPeriodMs"] + chance.choice((-1_000, -1, 0, 1, 1_000))),
            (20, chance.randint(0, 400_000)),
        )
        start = now_ms - age
        ready_at = pick(
            chance,
            (40, start + chance.randint(0, 60_000)),
            (10, start + settings["initialReadinessDelayMs"] + chance.choice((-1_000, -1, 0, 1, 1_000))),
            (10, start),
            (10, now_ms - chance.choice((0, 14_999, 15_000, 15_001, 30_000, 60_000, 60_001))),
        )
        each: Json = {"name": f"p{index}"}
        if templates > 1 and maybe(chance, 0.4):
            each["template"] = chance.randrange(templates)
        if maybe(chance, 0.08):
            each["phase"] = chance.choice(("Pending", "Pending", "Failed", "Succeeded", "Unknown", "", "Running"))
        if maybe(chance, 0.97):
            each["start"] = start
        if maybe(chance, 0.97):
            each["ready"] = pick(chance, (80, "True"), (15, "False"), (3, "Unknown"), (1, ""))
            if maybe(chance, 0.97):
                each["readyAt"] = ready_at
        if maybe(chance, 0.05):
            each["deleting"] = True
        if maybe(chance, 0.05):
            each["labels"] = chance.choice(POD_LABELS)
        made.append(each)
    if made and maybe(chance, 0.05):
        chance.shuffle(made)
    return made


class _Ticks:
    """The ticks of a scenario: a world that mostly obeys the HPA, and in which anything may happen."""

    def __init__(self, chance: random.Random, first: Json, settings: Json, templates: int) -> None:
        self.chance, self.spec, self.settings, self.templates = chance, first, settings, templates
        self.odd = maybe(chance, 0.12)
        self.now_ms = 0
        self.replicas = pick(chance, (70, self._within()), (30, replicas(chance)))
        self.pods: list[Json] = []
        self.load = 10 ** chance.uniform(-1, 1)
        self.selector = pick(chance, (85, "app=x"), (15, chance.choice(SELECTORS)))
        self.deleted = False

    def _within(self) -> int:
        low = self.spec.get("minReplicas") or 1
        return self.chance.randint(min(low, self.spec["maxReplicas"]), max(low, self.spec["maxReplicas"], 1))

    def made(self) -> list[Json]:
        """Return all ticks."""
        count = pick(self.chance, (30, 1), (40, self.chance.randint(2, 6)), (25, self.chance.randint(6, 20)), (5, 40))
        return [{"in": self._tick(index)} for index in range(count)]

    def _tick(self, index: int) -> Json:
        chance = self.chance
        if index:
            self.now_ms += self._gap()
        made: Json = {"t": self.now_ms}
        self._hpa(made)
        if not index or maybe(chance, 0.4):
            count = min(self.replicas, 12) if maybe(chance, 0.8) else chance.randint(0, 14)
            self.pods = pods(chance, count, self.now_ms, self.settings, self.templates)
            made["pods"] = self.pods
        self._others(made)
        if maybe(chance, 0.02):
            made["scaleError"] = chance.choice(('deployments.apps "web" not found', "", "100% %s"))
        else:
            made["scale"] = self._scale()
        if maybe(chance, 0.08):
            made["scaleUpdate"] = self._updates()
        if maybe(chance, 0.03):
            made["statusUpdateError"] = chance.choice(("Internal error occurred: boom", "", "%v"))
        self.load *= 2 ** chance.uniform(-1.2, 1.2)
        self.load = min(max(self.load, 0.01), 100)
        made["metrics"] = [self._answer(each) for each in self.spec.get("metrics") or []]
        self._follow()
        return made

    def _gap(self) -> int:
        chance = self.chance
        behavior = self.spec.get("behavior") or {}
        bounds = [policy["periodSeconds"] for each in behavior.values() for policy in each["policies"]]
        bounds += [each.get("stabilizationWindowSeconds", 0) for each in behavior.values()]
        bounds += [self.settings["downscaleStabilizationMs"] // 1000]
        bound: int = min(max(chance.choice(bounds), 0), 100_000) * 1000
        return pick(
            chance,
            (50, 15_000 + chance.choice((0, 0, 7, 23, 46))),
            (25, max(0, bound + chance.choice((-1, 0, 1)))),
            (10, max(0, bound // 2 + chance.choice((-1, 0, 1)))),
            (5, 0),
            (5, chance.randint(0, 600_000)),
            (1, _DAY_MS),
        )

    def _hpa(self, made: Json) -> None:
        chance = self.chance
        if maybe(chance, 0.02):
            made["restart"] = True
        if maybe(chance, 0.02) or (self.deleted and maybe(chance, 0.5)):
            made["hpaRecreated"] = True
            self.deleted = False
        elif maybe(chance, 0.015) and not self.deleted:
            made["hpaDeleted"] = self.deleted = True
        if maybe(chance, 0.06):
            made["hpaEdit"] = self.spec = edited(chance, self.spec)

    def _others(self, made: Json) -> None:
        chance = self.chance
        if maybe(chance, 0.06):
            names = chance.sample(("a", "b", "hp", "hpa-2", "z"), chance.randint(1, 3))
            made["otherHpas"] = [{"name": name, "selector": chance.choice(SELECTORS)} for name in names]

    def _scale(self) -> Json:
        chance = self.chance
        if maybe(chance, 0.03):
            self.selector = chance.choice(SELECTORS)
        actual = self.replicas if maybe(chance, 0.7) else near(chance, self.replicas, 0)
        actual = actual if maybe(chance, 0.97) else replicas(chance)
        shown = self.replicas
        if self.odd and maybe(chance, 0.1):
            shown = chance.choice((-1, -3, INT32_MAX, -(2**31)))
        return {"spec": shown, "status": actual, "selector": self.selector}

    def _updates(self) -> list[Json]:
        chance = self.chance
        answers: tuple[Json, ...] = (
            {"conflict": CONFLICT},
            {"conflict": CONFLICT},
            {"error": "exceeded quota: 100%s"},
            {},
            {"error": ""},
        )
        return [chance.choice(answers) for _ in range(chance.choice((1, 1, 2, 3, 5, 6)))]

    def _answer(self, metric: Json) -> Json:
        chance = self.chance
        if maybe(chance, 0.06):
            return {"error": chance.choice(ERRORS)}
        window = chance.choice((15, 15, 30, 60, 60, 0, 90))
        sampled = self.now_ms - chance.choice((0, 1, 5_000, 15_000, 30_000, 60_000))
        ts = sampled // 1000 * 1000 if maybe(chance, 0.7) else sampled
        match metric["type"]:
            case "Object":
                return {"value": self._total(), "ts": ts}
            case "External":
                count = pick(chance, (70, 1), (20, 3), (5, 0), (5, 10))
                return {"values": [self._total() // count for _ in range(count)], "ts": ts}
        return {"ts": ts, "window": window, "pods": self._samples(ts, window)}

    def _total(self) -> int:
        chance = self.chance
        if self.odd and maybe(chance, 0.4):
            return huge(chance)
        base = chance.choice((1, 100, 1_000, 1_000, 1_500, 10_000, 33, 100 * 2**20 * 1000))
        exact = base * max(self.replicas, 1) * self.load
        return pick(
            chance,
            (70, int64(exact)),
            (20, int64(base * near(chance, max(self.replicas, 1)))),
            (5, 0),
            (5, near(chance, int64(exact), -9, 2**60)),
        )

    def _samples(self, ts: int, window: int) -> Json:
        chance = self.chance
        base = chance.choice((50, 100, 100, 250, 1_000, 33, 100 * 2**20 * 1000, 80))
        made: dict[str, Any] = {}
        for pod in self.pods:
            if maybe(chance, 0.06):
                continue
            value = int64(base * self.load * chance.choice((1, 1, 1, 0.9, 1.1, chance.random() * 2)))
            if self.odd and maybe(chance, 0.2):
                value = huge(chance)
            own = [value, ts - chance.choice((0, 1, 1_000, 60_000)), chance.choice((15, 60, window))]
            made[pod["name"]] = own if maybe(chance, 0.06) else value
        if maybe(chance, 0.04):
            made["stray"] = base
        return made

    def _follow(self) -> None:
        """Let the target have other replicas at the next tick, as the HPA or somebody else may have wanted."""
        chance = self.chance
        wanted = max(0, min(INT32_MAX, int(self.replicas * self.load) + chance.choice((-1, 0, 0, 1))))
        low, high = self.spec.get("minReplicas", 1), self.spec["maxReplicas"]
        self.replicas = pick(
            chance,
            (50, self.replicas),
            (30, max(low, min(wanted, high, 2 * self.replicas + 4))),
            (8, near(chance, self.replicas, 0)),
            (4, 0),
            (4, near(chance, chance.choice((low, high)), 0)),
            (2, replicas(chance)),
        )
        self.replicas = max(0, self.replicas)


def calculation(chance: random.Random, name: str) -> Json:
    """Return one metric and one call of the replica calculator."""
    kind = pick(
        chance,
        (35, "resource"),
        (15, "rawResource"),
        (15, "pods"),
        (10, "object"),
        (8, "objectPerPod"),
        (10, "external"),
        (8, "externalPerPod"),
    )
    settings = _settings(chance)
    templates = [template(chance) for _ in range(chance.choice((1, 1, 2, 3)))]
    current = replicas(chance)
    metric_type = {"object": "Object", "objectPerPod": "Object", "external": "External", "externalPerPod": "External"}
    ticks = _Ticks(chance, {"maxReplicas": 5, "minReplicas": 1}, settings, len(templates))
    ticks.now_ms, ticks.replicas = chance.randint(0, 600_000), current
    count = min(current, 12) if maybe(chance, 0.8) else chance.randint(0, 14)
    ticks.pods = pods(chance, count, ticks.now_ms, settings, len(templates))
    target = pick(
        chance,
        (60, chance.choice((1, 100, 1_000, 33, 50, 250))),
        (30, chance.randint(1, 10**9)),
        (4, huge(chance)),
        (2, 0),
        (2, -7),
    )
    percent = pick(chance, (80, chance.randint(1, 120)), (5, chance.choice((1, INT32_MAX, 0, -1, 101))))
    tolerance = chance.choice((0.1, 0.1, 0.0, 0.05, 0.2, round(chance.random(), 3), 1.0, 3.5))
    other = tolerance if maybe(chance, 0.6) else chance.choice((0.1, 0.0, 0.5, 0.01))
    made: Json = {
        **{"id": name, "kind": kind, "now": ticks.now_ms, "toleranceUp": tolerance, "toleranceDown": other},
        "cpuInitializationPeriodMs": settings["cpuInitializationPeriodMs"],
        "initialReadinessDelayMs": settings["initialReadinessDelayMs"],
        **{"currentReplicas": current, "target": percent if kind == "resource" else target, "labels": {"app": "x"}},
        **{"selector": chance.choice(("app=x", "app=x", "app=x", "app", "app=y", "!app")), "templates": templates},
        **{"pods": ticks.pods, "metric": ticks._answer({"type": metric_type.get(kind, "Pods")})},
    }
    if kind in ("resource", "rawResource"):
        made["resource"] = pick(chance, (60, "cpu"), (30, "memory"), (5, "acme.io/widget"))
        if maybe(chance, 0.3):
            made["container"] = chance.choice(("c0", "c1", "side", "init", "none"))
    return made
