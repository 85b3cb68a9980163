"""The status of an object: what became of it, and how its HPAs are. Pure.

Conditions are as the conventions of the Kubernetes API have them: `Accepted`, `Ready` and `Degraded`, and `Stalled`
where nothing goes on without a change of the object, as kstatus reads it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from fleethpa.fleet.views import FleetState, HpaView
from fleethpa.hub.kinds import Author, HubObject, until_ms
from fleethpa.hub.scene import ObjectVerdict
from fleethpa.show.words import counted
from schemas.keys import FLEET
from schemas.kubernetes.gotimes import rfc3339_seconds
from schemas.kubernetes.shape import Json

_NAMED: Final = 3
_MOST_TEXT: Final = 1_000
_WORD: Final = re.compile(r"[A-Za-z0-9]+")


class Condition(NamedTuple):
    """One condition, without its times."""

    type: str
    status: str
    reason: str
    message: str = ""


def status_of(
    item: HubObject, verdict: ObjectVerdict, state: FleetState, now_ms: int, author: Author, *, is_written: bool
) -> Json:
    """The status to be shown. What did not change keeps its time, and its decision id.

    Args:
        is_written: whether all that the object states was in the log when `state` was read.
    """
    old: Json = item.body.get("status") or {}
    views = [state.hpas[hpa] for hpa in verdict.hpas if hpa in state.hpas]
    conditions = [_accepted(verdict), _ready(item, verdict, views, state, now_ms, is_written)]
    if item.kind.scales:
        conditions.append(_degraded(views, state))
    if not verdict.is_accepted:
        conditions.append(Condition("Stalled", "True", verdict.reason, verdict.message))
    status: Json = {
        "observedGeneration": item.generation,
        "conditions": _timed(conditions, old.get("conditions") or (), item.generation, now_ms),
        "author": {"name": author.name, "proven": author.proven},
    }
    if item.kind.scales:
        known = {each["name"]: each for each in old.get("clusters") or ()}
        members = [view for view in views if view.id.cluster != FLEET]
        clusters = [_member(view, state, known.get(view.id.cluster) or {}) for view in members]
        status["clusters"] = sorted(clusters, key=lambda each: str(each["name"]))
        names = {hpa for hpa in verdict.hpas if hpa.cluster != FLEET}
        status["summary"] = f"{sum(bool(view.last_decision) for view in members)}/{len(names)}"
    return status


def _accepted(verdict: ObjectVerdict) -> Condition:
    return Condition("Accepted", _truth(verdict.is_accepted), verdict.reason, verdict.message)


def _ready(
    item: HubObject, verdict: ObjectVerdict, views: Sequence[HpaView], state: FleetState, now_ms: int, is_written: bool
) -> Condition:
    if not verdict.is_accepted and not verdict.hpas:
        return Condition("Ready", "False", verdict.reason, verdict.message)
    if not is_written:
        return Condition("Ready", "False", "Recording", "It is on its way into the log.")
    ends_ms = until_ms(getattr(item.spec, "until", None))
    if ends_ms and ends_ms <= now_ms:
        return Condition("Ready", "False", "Ended", f"It ended at {rfc3339_seconds(ends_ms)}.")
    if not item.kind.scales:
        return Condition("Ready", "True", "InForce", "The log has it.")
    if (why := _unknown(views, state)) is not None:
        return Condition("Ready", "Unknown", *why)
    waiting = [str(view.id) for view in views if not view.last_decision]
    if waiting or len(views) < len(verdict.hpas):
        return Condition("Ready", "False", "NoDecisionYet", f"Not decided yet: {_listed(waiting)}.")
    return Condition("Ready", "True", "Decided", f"{counted(len(views), 'HPA')} decided.")


def _unknown(views: Sequence[HpaView], state: FleetState) -> tuple[str, str] | None:
    """Why the present of some HPAs is not known."""
    if state.is_last_known:
        return "NotKnown", f"fleethpa is not well: {'; '.join(state.ills) or 'nothing comes into the log'}."
    away = [f"{view.id.cluster}: {view.cut_off}" for view in views if view.cut_off]
    return ("ClusterAway", f"{_listed(sorted(set(away)))}.") if away else None


def _degraded(views: Sequence[HpaView], state: FleetState) -> Condition:
    if (why := _unknown(views, state)) is not None:
        return Condition("Degraded", "True" if why[0] == "ClusterAway" else "Unknown", *why)
    problems = [(not each.waits, each.label, f"{view.id}: {each.text}") for view in views for each in view.problems]
    paused = [f"{view.id}: {view.paused}" for view in views if view.paused]
    if not problems:
        text = f"Paused: {_listed(paused)}." if paused else ""
        return Condition("Degraded", "False", "Paused" if paused else "AsExpected", text)
    _, label, _ = min(problems, key=lambda each: each[0])
    return Condition("Degraded", "True", one_word(label), _listed([text for _, _, text in sorted(problems)]))


def one_word(label: str) -> str:
    """The reason of a condition for a label of a problem: `write failed` → `WriteFailed`."""
    return "".join(word[0].upper() + word[1:] for word in _WORD.findall(label))


def _listed(texts: Sequence[str]) -> str:
    more = f"; and {len(texts) - _NAMED} more" if len(texts) > _NAMED else ""
    return ("; ".join(texts[:_NAMED]) + more)[:_MOST_TEXT]


def _member(view: HpaView, state: FleetState, old: Json) -> Json:
    """One cluster. What nobody can know now is left out."""
    member: Json = {"name": view.id.cluster, "mode": view.mode}
    if state.is_last_known:
        member |= {"override": old["override"]} if "override" in old else {}
    elif view.override is not None:
        member["override"] = view.override.replicas
    if not (state.is_last_known or view.cut_off or view.unfed):
        wanted = view.status.get("desiredReplicas")
        member |= {} if view.has is None else {"replicas": view.has}
        member |= {"wanted": wanted} if isinstance(wanted, int) and view.last_decision else {}
    numbers = ("replicas", "wanted", "mode")
    same = old.get("decision") and all(old.get(name) == member.get(name) for name in numbers)
    decision = old["decision"] if same else view.last_decision
    return member | ({"decision": decision} if decision else {})


def _timed(
    conditions: Sequence[Condition], old: Sequence[Mapping[str, Any]], generation: int, now_ms: int
) -> list[Json]:
    known = {each.get("type"): each for each in old}
    bodies: list[Json] = []
    for each in conditions:
        before = known.get(each.type) or {}
        is_same = before.get("status") == each.status
        since = str(before.get("lastTransitionTime") or "") if is_same else ""
        times = {"observedGeneration": generation, "lastTransitionTime": since or rfc3339_seconds(now_ms)}
        bodies.append(each._asdict() | times)
    return bodies


class StatusEvent(NamedTuple):
    """An Event about an object: its type, reason and message."""

    type: str
    reason: str
    message: str


def status_events(old: Json, new: Json) -> list[StatusEvent]:
    """The Events of a changed status: one for each condition whose status or reason is another one, and for each
    cluster in which an override has ended.
    """
    before = {each.get("type"): each for each in old.get("conditions") or ()}
    events = []
    for each in new["conditions"]:
        last = before.get(each["type"]) or {}
        if each["type"] == "Stalled" or (last.get("status"), last.get("reason")) == (each["status"], each["reason"]):
            continue
        is_bad = each["status"] == ("True" if each["type"] == "Degraded" else "False")
        is_start = not last and not is_bad
        if is_start or each["reason"] in ("Recording", "NoDecisionYet"):
            continue
        text = each["message"] or ("It is as it should be again." if last.get("status") == "True" else "")
        is_warning = is_bad and each["reason"] not in ("Ended", "Paused")
        events.append(StatusEvent("Warning" if is_warning else "Normal", each["reason"], text or each["reason"]))
    events += [
        StatusEvent("Normal", "OverrideEnded", f"The override to {replicas} replicas in {name} has ended.")
        for name, replicas in _overrides(old).items()
        if any(each["name"] == name for each in new.get("clusters") or ()) and name not in _overrides(new)
    ]
    return events


def _overrides(status: Json) -> dict[str, int]:
    """Cluster → the replicas of the override that is in force there."""
    return {str(each["name"]): each["override"] for each in status.get("clusters") or () if "override" in each}


def is_worth_writing(old: Json, new: Json) -> bool:
    """Whether a status differs in more than the words of its messages."""
    return _plain(old) != _plain(new)


def _plain(status: Json) -> Json:
    conditions = [{k: v for k, v in each.items() if k != "message"} for each in status.get("conditions") or ()]
    return {name: status.get(name) for name in ("observedGeneration", "author", "clusters", "summary")} | {
        "conditions": conditions
    }


def _truth(value: bool) -> str:
    return "True" if value else "False"
