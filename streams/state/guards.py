"""Mode, pauses and guards: whether an HPA may want a write. Every refusal gives its reason and the next step, and is
shown in the HPA's own status where nobody else looks after that.
"""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct, structs

from schemas.codec import encode
from schemas.decisions import IGNORED_REASON, REFUSAL_REASON
from schemas.keys import EVERY_CLUSTER
from schemas.kubernetes.shape import JsonView
from schemas.limits import DECISION, ERROR, shortened
from schemas.observed import Mode
from schemas.pauses import is_in_force, stopping_kinds
from streams.hpa.evaluation import Conditions, Evaluation, History, ReconcileResult, new_status
from streams.hpa.rules import OLDEST
from streams.state.clustersettings import Effective
from streams.state.hpastate import Hpa
from streams.state.namespace import Namespace
from streams.state.namespacerows import target_key
from streams.state.partitionrow import PartitionRow
from streams.state.rows import DirectoryKey, Pause, TargetName

_EVERYWHERE: Final = "all clusters"
_LARGE_CONDITIONS: Final = DECISION.most // 4
"""JSON of conditions that an ignored HPA does not keep: the decision that shows it as ignored must be small."""


def in_force(known: Mapping[str, Mapping[str, Pause]], now_ms: int) -> dict[str, dict[str, Pause]]:
    """Return the pauses that have not ended by themselves."""
    return {
        scope: left
        for scope, pauses in known.items()
        if (left := {name: pause for name, pause in pauses.items() if is_in_force(pause.until_ms, now_ms)})
    }


class EffectiveMode(Struct, frozen=True):
    """The mode of an HPA before its evaluation, and why enforcing is refused or the HPA is ignored."""

    mode: Mode
    """What is in force: `shadow` also where enforcing was asked for and refused."""
    refused: str = ""
    remedy: str = ""
    """The command that removes the reason of the refusal; `refused` ends with it."""
    shown: bool = False
    """Refused where no native controller looks after the HPA's status: fleethpa says so there."""


_NOT_ENFORCED: dict[Mode, EffectiveMode] = {"off": EffectiveMode("off"), "shadow": EffectiveMode("shadow")}
_ENFORCED = EffectiveMode("enforce")


def asked_mode(namespace: Namespace, name: str, settings: Effective) -> Mode:
    """Return the mode asked for: the HPA's own, else its namespace's, else the cluster's, else shadow."""
    if namespace.commands:
        for scope in (name, ""):
            command = namespace.commands.get(scope)
            if command is not None and command[0] is not None:
                return command[0]
    return settings.namespaces.get(namespace.name, settings.default_mode)


def effective_mode(namespace: Namespace, hpa: Hpa, settings: Effective) -> EffectiveMode:
    """Return the mode in force and why enforcing is refused, if it is."""
    mode = asked_mode(namespace, hpa.id.name, settings)
    if hpa.ignored and mode != "off":
        return ignored(hpa, mode, settings, hpa.ignored)
    if mode != "enforce":
        return _NOT_ENFORCED[mode]
    reason, remedy = _refusal(namespace, hpa, settings)
    if not reason:
        return _ENFORCED
    shown = hpa.row.origin == "cluster" and settings.native_absent
    return EffectiveMode("shadow", shortened(f"{reason}: {remedy}", ERROR), remedy, shown)


def ignored(hpa: Hpa, asked: Mode, settings: Effective, why: str) -> EffectiveMode:
    """Return the mode of an HPA of which nothing is decided since it is too large, or what would be recorded is."""
    remedy = f"fleethpa apply {hpa.id}"
    if hpa.row.origin == "cluster":
        remedy = f"kubectl --context {hpa.id.cluster} edit hpa {hpa.id.name} -n {hpa.id.namespace}"
    shown = hpa.row.origin == "central" or (asked == "enforce" and settings.native_absent)
    return EffectiveMode("shadow", f"{why}: make it smaller, for example by {remedy}", remedy, shown)


def _refusal(namespace: Namespace, hpa: Hpa, settings: Effective) -> tuple[str, str]:
    """Return the reason why an HPA must not write, and the command that changes this; both empty if it may."""
    cluster, origin, target = hpa.id.cluster, hpa.row.origin, hpa.target
    if settings.too_old:
        return (
            f"cluster {cluster} runs Kubernetes {settings.too_old}, whose rules are not known: "
            f"the oldest known are those of 1.{OLDEST}; to enforce by these",
            f"fleethpa settings {cluster} rules=1.{OLDEST}",
        )
    if origin == "cluster" and settings.native_evidence:
        return (
            f"a native HPA controller runs in cluster {cluster}: {settings.native_evidence}; switch it off there and "
            "prove it with: fleethpa run observer --prove-native-absent, or take this HPA over",
            f"fleethpa adopt {hpa.id}",
        )
    if origin == "cluster" and not settings.native_absent:
        return (
            f"enforcing needs proof that no native HPA controller runs in cluster {cluster}; "
            "where it has been switched off",
            f"fleethpa settings {cluster} native-controller=absent",
        )
    own = DirectoryKey(hpa.id.name, origin)
    others = namespace.by_target.get(target, ())
    conflicting = sorted([other for other in others if other != own and _stops(namespace, other, own, settings)])
    if conflicting and conflicting[0].origin == origin:
        # They stop each other. A command that names the other one would be given for both, and followed for both it
        # would delete both.
        text = (
            f"{_describe_hpa(namespace, conflicting[0])} drives {_print(target)} too, and the newer of the two must go"
        )
        return f"{text}; AGE shows which that is", f"fleethpa get hpa -C {cluster} -n {namespace.name}"
    if conflicting:
        return _too(_describe_hpa(namespace, conflicting[0]), target), _deletion(namespace, conflicting[0])
    for each in namespace.conflicting:
        if target_key(each.target) == target:
            deletion = _kubectl_deletion(namespace, each.kind.lower(), each.name)
            return _too(f"{each.kind} {namespace.name}/{each.name}", target), deletion
    return "", ""


def _stops(namespace: Namespace, other: DirectoryKey, own: DirectoryKey, settings: Effective) -> bool:
    """Return whether another HPA of the same target keeps this one from writing.

    The native controller drives an HPA of the cluster, unless it is proven absent. Where it is absent, a central HPA
    takes the target over from the cluster's, so that one of the two always writes; two of one origin stop each other,
    as upstream's do.
    """
    if other.origin == "cluster" and not settings.native_absent:
        return True
    if other.origin == "cluster" and own.origin == "central":
        return False
    return asked_mode(namespace, other.name, settings) == "enforce"


def _too(other: str, target: TargetName) -> str:
    return f"{other} drives {_print(target)} too, and one of them must go, for example"


def _describe_hpa(namespace: Namespace, key: DirectoryKey) -> str:
    kind = "the central HPA" if key.origin == "central" else "the cluster's HPA"
    return f"{kind} {namespace.name}/{key.name}"


def _deletion(namespace: Namespace, key: DirectoryKey) -> str:
    if key.origin == "central":
        return f"fleethpa delete {namespace.key}/{key.name}"
    return _kubectl_deletion(namespace, "hpa", key.name)


def _kubectl_deletion(namespace: Namespace, kind: str, name: str) -> str:
    return f"kubectl --context {namespace.cluster} delete {kind} {name} -n {namespace.name}"


def _print(target: TargetName) -> str:
    return f"{target[1]}/{target[2]}"


def pause_scopes(
    namespace: Namespace, name: str, row: PartitionRow, *, is_exempt: bool = False
) -> list[tuple[str, Mapping[str, Pause]]]:
    """Return what is paused of an HPA, its namespace, its cluster and all clusters: scope in words, pauses by kind.

    `is_exempt`: from budgets, and so from pauses that they make.
    """
    scopes: list[tuple[str, Mapping[str, Pause]]] = [
        ("this HPA", namespace.commands.get(name, (None, {}))[1]),
        (f"namespace {namespace.name}", namespace.commands.get("", (None, {}))[1]),
        (f"cluster {namespace.cluster}", row.pauses.get(namespace.cluster, {})),
        (_EVERYWHERE, row.pauses.get(EVERY_CLUSTER, {})),
    ]
    if not is_exempt:
        return scopes
    return [(scope, {kind: each for kind, each in known.items() if not each.by_budget}) for scope, known in scopes]


def pause_in_force(
    namespace: Namespace, name: str, row: PartitionRow, up: bool, now_ms: int, *, is_exempt: bool = False
) -> str:
    """Return which pause stops a change in this direction now; empty: none. `is_exempt`: as of `pause_scopes`."""
    for scope, known in pause_scopes(namespace, name, row, is_exempt=is_exempt):
        for kind in stopping_kinds("scaleUp" if up else "scaleDown"):
            pause = known.get(kind)
            if pause is not None and is_in_force(pause.until_ms, now_ms):
                return _describe(scope, kind, pause)
    return ""


def _describe(scope: str, kind: str, pause: Pause) -> str:
    be = "are" if scope == _EVERYWHERE else "is"
    text = f"{scope} {be} paused" if kind == "all" else f"{kind} of {scope} is paused"
    if pause.author:
        text += f" by {pause.author}"
    return f"{text}: {pause.reason}" if pause.reason else text


def nothing_decided(status: JsonView, replicas: int | None, history: History, generation: int) -> Evaluation:
    """Return the evaluation of an HPA that is ignored. `status`: before it; `replicas`: its scale (None: not read)."""
    conditions = status.get("conditions") or []
    kept = conditions if len(encode(conditions)) <= _LARGE_CONDITIONS else []
    shown = status.get("currentReplicas", 0) if replicas is None else replicas
    result = ReconcileResult(
        status=new_status(generation, status.get("lastScaleTime"), shown, shown, None, kept), history=history
    )
    return Evaluation(path="ignored", history=history, current_replicas=replicas, reason=IGNORED_REASON, result=result)


def with_refusal(
    result: ReconcileResult, mode: EffectiveMode, before: JsonView, now_ms: int, *, is_ignored: bool
) -> ReconcileResult:
    """Show in the HPA's AbleToScale and Events why nothing is written, if no native controller looks after them.
    Upstream has no such condition.

    The condition's transition time stays while it is False for the same HPA: the evaluation has set it True in between.
    `before`: the status before the evaluation.
    """
    if not (mode.shown or is_ignored):
        return result
    reason = IGNORED_REASON if is_ignored else REFUSAL_REASON
    own = [condition for condition in before.get("conditions") or () if condition["type"] == "AbleToScale"]
    conditions = Conditions(result.status.get("conditions"), now_ms)
    if own:
        conditions.items = [own[0] if each["type"] == "AbleToScale" else each for each in conditions.items]
    conditions.set("AbleToScale", "False", reason, mode.refused)
    status = {**result.status, "conditions": conditions.items}
    return structs.replace(result, status=status, events=(*result.events, ("Warning", reason, mode.refused)))
