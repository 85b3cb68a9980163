"""Recorded cases, changed in a few places: numbers to others at and next to bounds, and things happen that did not."""

import copy
import random
from collections.abc import Iterator, Sequence
from typing import Any

from schemas.kubernetes.shape import Json
from tests.upstream.freshcases import CONFLICT, ERRORS, status, template
from tests.upstream.freshspecs import TARGET_REFS, edited, rules
from tests.upstream.values import (
    INT32_MAX,
    INT32_MIN,
    INT64_MAX,
    INT64_MIN,
    REQUESTS,
    SELECTORS,
    TARGETS,
    TOLERANCES,
    huge,
    near,
    pick,
)

_INT32 = frozenset(
    {
        *("minReplicas", "maxReplicas", "currentReplicas", "desiredReplicas", "spec", "status"),
        *("averageUtilization", "periodSeconds", "stabilizationWindowSeconds"),
    }
)
_TIMES = frozenset({"start", "readyAt", "ts"})
_KEPT = frozenset({"seed", "t", "now", "template", "generation", "observedGeneration", "window"})
"""Numbers that are changed elsewhere or not at all."""


def mutated(chance: random.Random, recorded: Json, name: str) -> Json:
    """Return a recorded case, without its answers, with some changes."""
    made = copy.deepcopy(recorded) | {"id": name}
    if "ticks" not in made:
        del made["out"]
        for _ in range(chance.randint(1, 4)):
            _change_number(chance, made)
        return made
    del made["memory"]
    made["ticks"] = [{"in": tick["in"]} for tick in made["ticks"][:60]]
    for _ in range(chance.randint(1, 6)):
        chance.choices(_CHANGES, _WEIGHTS)[0](chance, made)
    return made


def _numbers(value: Any, name: str = "") -> Iterator[tuple[Any, Any, str]]:
    """Yield every whole number inside: what holds it, its key there, and its name. In a list the place says the name: a
    sample of a pod is `[value, ts, window]`.
    """
    pairs: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in pairs:
        called = key if isinstance(key, str) else name if name == "values" else ("value", "ts", "window")[key % 3]
        if isinstance(each, int) and not isinstance(each, bool):
            if called not in _KEPT:
                yield value, key, called
        elif key != "status":  # of the HPA, whose JSON leaves out what is zero
            yield from _numbers(each, called)


def _change_number(chance: random.Random, made: Json) -> None:
    holder, key, name = chance.choice(list(_numbers(made)))
    old = holder[key]
    is_time = name in _TIMES or name.endswith("Ms")
    is_small = name in _INT32 or "periodSeconds" in holder
    if is_time:
        new = (
            near(chance, old, -(10**12), 10**12)
            if chance.random() < 0.7
            else old + chance.choice((-60_000, 15_000, 300_000))
        )
        holder[key] = max(0, new) if name.endswith("Ms") else new
    elif is_small:
        small = pick(
            chance,
            (50, near(chance, old)),
            (20, chance.randint(0, 50)),
            (10, old * 2),
            (10, 0),
            (5, INT32_MAX),
            (2, -1),
        )
        holder[key] = max(INT32_MIN, min(INT32_MAX, small))
    else:
        holder[key] = pick(
            chance,
            (50, near(chance, old, INT64_MIN, INT64_MAX)),
            (20, max(INT64_MIN, min(INT64_MAX, int(old * chance.choice((2, 0.5, 1.1, 0.9, 10)))))),
            (5, 0),
            (8, huge(chance)),
            (2, -old if old > INT64_MIN else old),
        )
        if key == "target" and made.get("kind") == "resource":
            holder[key] = near(chance, old, 0)


def _tick(chance: random.Random, made: Json) -> Json:
    inside: Json = chance.choice(made["ticks"])["in"]
    return inside


def _change_times(chance: random.Random, made: Json) -> None:
    """Move all ticks from one on, never before the one before it."""
    ticks = made["ticks"]
    index = chance.randrange(len(ticks))
    before = ticks[index - 1]["in"]["t"] if index else 0
    behavior = made["hpa"]["spec"].get("behavior") or {}
    bounds = [policy["periodSeconds"] for each in behavior.values() for policy in each.get("policies") or ()]
    bounds += [each.get("stabilizationWindowSeconds", 15) for each in behavior.values()] or [15]
    bound = max(0, min(chance.choice(bounds), 100_000)) * 1_000
    wanted = pick(
        chance,
        (30, before + bound + chance.choice((-1, 0, 1))),
        (20, ticks[index]["in"]["t"] + chance.choice((-1, 1))),
        (5, before),
    )
    shift = max(before, wanted) - ticks[index]["in"]["t"]
    for tick in ticks[index:]:
        tick["in"]["t"] += shift


def _change_spec(chance: random.Random, made: Json) -> None:
    spec = made["hpa"]["spec"]
    match chance.randrange(6):
        case 0:
            spec["behavior"] = {"scaleUp": rules(chance, True), "scaleDown": rules(chance, False)}
        case 1:
            spec.pop("behavior", None)
        case 2:
            spec["scaleTargetRef"] = pick(chance, *TARGET_REFS)
        case 3:
            spec["minReplicas"] = chance.choice((0, 1, 2, 5, spec["maxReplicas"]))
        case 4:
            for each in (spec.get("behavior") or {}).values():
                each["tolerance"] = chance.choice(TOLERANCES)
        case _:
            for metric in spec.get("metrics") or ():
                target: Json = next(
                    (each["target"] for each in metric.values() if isinstance(each, dict) and "target" in each), {}
                )
                for key in ("averageValue", "value"):
                    if key in target:
                        target[key] = chance.choice(TARGETS)


def _change_scale(chance: random.Random, made: Json) -> None:
    inside = _tick(chance, made)
    if "scale" in inside:
        spec = made["hpa"]["spec"]
        low, high = spec.get("minReplicas", 1), spec["maxReplicas"]
        inside["scale"]["spec"] = near(chance, chance.choice((0, low, high, inside["scale"].get("spec", 0))), 0)
        if chance.random() < 0.3:
            inside["scale"]["selector"] = chance.choice(SELECTORS)


def _add_failure(chance: random.Random, made: Json) -> None:
    inside = _tick(chance, made)
    match chance.randrange(4):
        case 0:
            inside["statusUpdateError"] = "Internal error occurred: boom"
        case 1:
            answers: tuple[Json, ...] = ({"conflict": CONFLICT}, {"error": "exceeded quota"}, {})
            inside["scaleUpdate"] = [chance.choice(answers) for _ in range(chance.randint(1, 6))]
        case 2:
            inside["scaleError"] = 'deployments.apps "web" not found'
            inside.pop("scale", None)
        case _:
            for index in range(len(inside.get("metrics") or ())):
                if inside["metrics"][index] and chance.random() < 0.5:
                    inside["metrics"][index] = {"error": chance.choice(ERRORS)}


def _add_event(chance: random.Random, made: Json) -> None:
    inside = _tick(chance, made)
    match chance.randrange(5):
        case 0:
            inside["restart"] = True
        case 1:
            inside["hpaRecreated"] = True
            inside.pop("hpaDeleted", None)
        case 2:
            names = chance.sample(("a", "b", "hp", "z"), chance.randint(1, 2))
            inside["otherHpas"] = [{"name": name, "selector": chance.choice(SELECTORS)} for name in names]
        case 3:
            # The metrics stay those that the answers of the later ticks are for.
            changed = edited(chance, made["hpa"]["spec"])
            metrics = made["hpa"]["spec"].get("metrics")
            if not any("hpaEdit" in tick["in"] for tick in made["ticks"]):
                inside["hpaEdit"] = {**changed, **({"metrics": metrics} if metrics else {})}
                if not metrics:
                    inside["hpaEdit"].pop("metrics", None)
        case _:
            made["hpa"]["status"] = status(chance)


def _change_pods(chance: random.Random, made: Json) -> None:
    listed = [tick["in"]["pods"] for tick in made["ticks"] if tick["in"].get("pods")]
    if not listed:
        return
    pods = chance.choice(listed)
    each = chance.choice(pods)
    match chance.randrange(7):
        case 0:
            each["ready"] = chance.choice(("True", "False", "Unknown"))
        case 1:
            each.pop(chance.choice(("ready", "readyAt", "start")), None)
        case 2:
            each["phase"] = chance.choice(("Pending", "Failed", "Succeeded", "Unknown"))
        case 3:
            each["deleting"] = True
        case 4:
            pods.remove(each)
        case 5:
            each["labels"] = chance.choice(({"app": "y"}, {}, {"app": "x", "tier": "z"}))
        case _:
            chance.shuffle(pods)


def _change_samples(chance: random.Random, made: Json) -> None:
    found = [metric for tick in made["ticks"] for metric in tick["in"].get("metrics") or () if metric.get("pods")]
    if found:
        samples = chance.choice(found)["pods"]
        samples.pop(chance.choice(list(samples)))
        if chance.random() < 0.2:
            samples["stray"] = 100


def _change_templates(chance: random.Random, made: Json) -> None:
    templates = made["templates"]
    index = chance.randrange(len(templates))
    if chance.random() < 0.5:
        templates[index] = template(chance)
        return
    for shape in templates[index]["containers"]:
        if chance.random() < 0.5:
            shape["requests"] = {"cpu": chance.choice(REQUESTS), "memory": chance.choice(REQUESTS)}


_CHANGES: Sequence[Any] = (
    _change_number,
    _change_times,
    _change_spec,
    _change_scale,
    _add_failure,
    _add_event,
    _change_pods,
    _change_samples,
    _change_templates,
)
_WEIGHTS = (30, 12, 12, 12, 8, 8, 10, 6, 5)
