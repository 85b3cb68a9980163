"""What keeps HPAs from being scaled, in words, and which of it many HPAs of a cluster share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from fleethpa.cli.output import words
from fleethpa.cli.output.errortexts import cause

if TYPE_CHECKING:
    from fleethpa.cli.common.views import HpaView
    from schemas.keys import HpaId

_LABELS: Final = {
    "FailedGetScale": "no scale",
    "FailedUpdateScale": "write failed",
    "ScalingDisabled": "disabled",
    "AmbiguousSelector": "ambiguous selector",
    "InvalidSelector": "invalid selector",
}
"""Few words for upstream's reason of a condition that is False; every other reason concerns the metrics."""


class Problem(NamedTuple):
    """One problem of an HPA.

    `label`: few words, for a narrow column. `text`: the whole. `cause`: what other HPAs of the cluster may have in
    common with it; empty: the problem is this HPA's own. `waits`: whether `status` counts it as not having what it
    wants.
    """

    label: str
    text: str
    cause: str = ""
    waits: bool = True


class Shared(NamedTuple):
    """HPAs of one cluster that have the same problem for the same cause."""

    cluster: str
    views: list[HpaView]
    text: str

    @property
    def name(self) -> str:
        """The cluster and how many HPAs, for a column of names."""
        return f"{self.cluster} ({words.counted(len(self.views), 'HPA')})"


def problems_of(view: HpaView) -> list[Problem]:
    """Everything that is wrong with an HPA; empty: nothing."""
    return list(_problems(view))


def by_cause(views: Iterable[HpaView]) -> tuple[dict[HpaId, list[Problem]], list[Shared]]:
    """Split the problems of HPAs: those that each has of its own, and those that several of a cluster have in common.

    An HPA whose problems are all shared is not among the first; one without a problem is, with none.
    """
    found = {view.id: (view, problems_of(view)) for view in views}
    groups: dict[tuple[str, str], list[HpaView]] = {}
    for view, problems in found.values():
        for problem in problems:
            if problem.cause:
                groups.setdefault((view.id.cluster, problem.cause), []).append(view)
    shared = {key: group for key, group in groups.items() if len(group) > 1}
    own: dict[HpaId, list[Problem]] = {}
    for hpa, (_, problems) in found.items():
        left = [problem for problem in problems if (hpa.cluster, problem.cause) not in shared]
        if left or not problems:
            own[hpa] = left
    return own, [Shared(cluster, group, text) for (cluster, text), group in shared.items()]


def _problems(view: HpaView) -> Iterator[Problem]:
    if view.mode == "off":
        yield Problem("off", "mode off: nothing is decided", "mode off: nothing is decided")
    if view.paused:
        yield Problem("paused", f"paused: {view.paused}", f"paused: {view.paused}")
    if view.refused:
        text = f"enforcing is refused: {view.refused}"
        yield Problem("refused", text, text)
    for condition in view.status.get("conditions") or []:
        if condition.get("type") in ("AbleToScale", "ScalingActive") and condition.get("status") == "False":
            yield _of_condition(condition)
    if view.at_max:
        yield Problem("at max", f"at maxReplicas {view.spec['maxReplicas']}{_asked_for(view)}", waits=False)
    if view.fight is not None:
        yield Problem("fight", words.fight(view.fight))


def _of_condition(condition: dict[str, Any]) -> Problem:
    reason, message = str(condition.get("reason", "")), str(condition.get("message", ""))
    label = _LABELS.get(reason, "no metrics" if condition["type"] == "ScalingActive" else reason or "not able to scale")
    found = cause(message)
    text = f"{label}: {found}" if found else f"{label} ({reason})"
    return Problem(label, text, text)


def _asked_for(view: HpaView) -> str:
    return words.asked_for(view.decision.decision) if view.decision else ""
