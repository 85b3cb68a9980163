"""What may hold, cut or replace a proposal (`constraintsApplied` of a decision), with all that readers need of it.

This is the one place that names them: words, filters, the page, the counterfactuals and the reconciler's last check
read this table. A limit or replacement of fleethpa's own has, beside its line here, its rule in `streams.state.limits`,
`streams.state.replacements` or `streams.across`.
"""

from typing import Final, Literal

from msgspec import Struct

ScalingSide = Literal["", "up", "down"]


class Constraint(Struct, frozen=True, kw_only=True):
    """One of them.

    `words`: as it stands in a sentence, with its article. `side`: the direction in which alone it acts; empty: in both.
    `kind`: `upstream` for a rule of the HPA itself; `limit` for one of fleethpa's own limits on a write, `replacement`
    for what takes the place of the metrics. `cuts`: a limit that may leave a part of the write, so that it can end
    outside minReplicas and maxReplicas, on the way to them. `step`: the step of a decision that explains it; empty: it
    has none of its own. `named_by`: where in the detail of that step the name of the object stands that sets it; empty:
    no object does. `label`: how a table names that step. `released`: what happens when the step's `until` is reached;
    empty: it has no such time.

    So of a removal budget the page says: `held by the removal budget` (`words`); `the removal budget of namespace shop
    (30%/10m) allows 4, and 4 were removed` (the decision's `paused`); `until 15:09:23: more may be removed`
    (`released`).
    """

    name: str
    words: str
    side: ScalingSide = ""
    kind: Literal["upstream", "limit", "replacement"] = "upstream"
    cuts: bool = False
    step: str = ""
    named_by: str = ""
    label: str = ""
    released: str = ""


_LISTED: Final = (
    Constraint(name="MinReplicas", words="minReplicas", side="down"),
    Constraint(name="MaxReplicas", words="maxReplicas", side="up"),
    Constraint(name="ScaleUpPolicy", words="a scale-up policy", side="up"),
    Constraint(name="ScaleDownPolicy", words="a scale-down policy", side="down"),
    Constraint(name="ScaleUpLimit", words="the scale-up limit (twice the current count, at least 4)", side="up"),
    Constraint(name="StabilizationWindow", words="the stabilization window"),
    Constraint(name="Tolerance", words="the tolerance"),
    Constraint(name="Paused", words="a pause", kind="limit", label="pause"),
    Constraint(name="Frozen", words="the freeze of the cluster", kind="limit", label="freeze"),
    Constraint(name="Overflow", words="the overflow guard", kind="limit", label="overflow guard"),
    Constraint(
        name="MaxStep", words="the max-step setting of the cluster", kind="limit", cuts=True, label="largest step"
    ),
    Constraint(
        name="RemovalBudget",
        words="the removal budget",
        side="down",
        kind="limit",
        cuts=True,
        step="removalBudget",
        label="removal budget",
        released="more may be removed",
    ),
    Constraint(
        name="AdditionBudget",
        words="the addition budget",
        side="up",
        kind="limit",
        cuts=True,
        step="additionBudget",
        label="addition budget",
        released="more may be added",
    ),
    Constraint(
        name="PartialView",
        words="the partial view of the namespace",
        side="down",
        kind="limit",
        step="partialView",
        label="partial view",
        released="it is released when the view is whole, or else",
    ),
    Constraint(
        name="ScaleDownBlock",
        words="the scale-down block that its annotation sets",
        side="down",
        kind="limit",
        step="scaleDownBlock",
        label="scale-down block",
    ),
    Constraint(name="Fallback", words="the fallback for lost metrics", kind="replacement", step="fallback"),
    Constraint(name="Override", words="an override", kind="replacement", step="override"),
    Constraint(
        name="FleetHPA",
        words="the share of a FleetHPA",
        kind="replacement",
        step="allotment",
        label="share of FleetHPA",
    ),
    Constraint(
        name="CapacityGroup",
        words="a CapacityGroup",
        side="up",
        kind="limit",
        cuts=True,
        step="capacity",
        named_by="group",
        label="capacity group",
    ),
)
CONSTRAINTS: dict[str, Constraint] = {each.name: each for each in _LISTED}
"""Name → constraint, in the order in which lists show them."""


def words_of(name: str) -> str:
    """Return a constraint in words; one that is not known (of a newer version) by its name."""
    known = CONSTRAINTS.get(name)
    return name if known is None else known.words


def of_step(step: str) -> Constraint | None:
    """Return the constraint that a step of a decision explains; None: the step is of no single one."""
    return next((each for each in CONSTRAINTS.values() if each.step and each.step == step), None)


def is_limit(name: str) -> bool:
    """Return whether it is one of fleethpa's own limits on a write."""
    known = CONSTRAINTS.get(name)
    return known is not None and known.kind == "limit"


def cuts(name: str) -> bool:
    """Return whether it may leave a part of a write."""
    known = CONSTRAINTS.get(name)
    return known is not None and known.cuts


def acts_on(name: str, side: ScalingSide) -> bool:
    """Return whether it acts on changes in this direction."""
    known = CONSTRAINTS.get(name)
    return known is None or known.side in ("", side)
