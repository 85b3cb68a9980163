"""Guardrails: rules over removals of replicas, as data. `guardrails.yaml` holds one `Guardrails` object."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from schemas.kubernetes.gotimes import parse_duration_ms, parse_time_ms
from schemas.limits import GUARDRAIL_NAME, Positive
from schemas.settings import LONGEST_MS, SHORTEST_MS

Percent = Annotated[int, Meta(ge=1, le=100)]


class Guardrail(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """One rule. It trips where decisions remove `removedPercent` of the replicas of enforced HPAs within `window`.

    `scope` `cluster` looks at each cluster alone. `fleet` looks at all of them: at least 3 must remove replicas, and no
    cluster counts for more than `clusterWeightPercent` of the whole; it trips for the clusters that are above the
    percentage themselves. Fewer than `leastRemoved` replicas never trip. `pause`: for how long scale-downs of these
    clusters are held; the third trip of a rule and cluster within an hour waits for a person. Without `act` the rule
    is only reported; with it too, before `actFrom` (RFC 3339; empty: from the start).
    """

    name: str
    scope: Literal["cluster", "fleet"] = "cluster"
    window: str = "5m"
    removed_percent: Percent
    least_removed: Positive = 10
    cluster_weight_percent: Percent = 40
    pause: str = "15m"
    act: bool = False
    act_from: str = ""

    @property
    def window_ms(self) -> int:
        return parse_duration_ms(self.window)

    @property
    def pause_ms(self) -> int:
        return parse_duration_ms(self.pause)

    def acts_at(self, now_ms: int) -> bool:
        """Whether a trip at this time pauses."""
        return self.act and (not self.act_from or now_ms >= parse_time_ms(self.act_from))


class Guardrails(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A file of rules."""

    api_version: Literal["fleethpa.io/v1"]
    kind: Literal["Guardrails"]
    rules: list[Guardrail]


def problems(guardrails: Guardrails) -> list[str]:
    """Say what is wrong with the rules, each with its place; empty: nothing is."""
    found: list[str] = []
    names: set[str] = set()
    if not guardrails.rules:
        found.append("rules: at least one rule is needed")
    for index, rule in enumerate(guardrails.rules):
        place = f"rules[{index}]"
        if not rule.name or rule.name in names:
            found.append(f"{place}.name: {rule.name!r} must be a name that no other rule has")
        elif len(rule.name) > GUARDRAIL_NAME.most or not rule.name.isprintable():
            found.append(f"{place}.name: {rule.name[:80]!r} must be at most {GUARDRAIL_NAME.most} printable characters")
        names.add(rule.name)
        for field, text in (("window", rule.window), ("pause", rule.pause)):
            found += _span_problem(f"{place}.{field}", text)
        if rule.act_from:
            found += _moment_problem(f"{place}.actFrom", rule)
    return found


def _span_problem(place: str, text: str) -> list[str]:
    try:
        length_ms = parse_duration_ms(text)
    except ValueError as error:
        return [f"{place}: {error}"]
    return [] if SHORTEST_MS <= length_ms <= LONGEST_MS else [f"{place}: {text} must be from 1m to 1h"]


def _moment_problem(place: str, rule: Guardrail) -> list[str]:
    try:
        parse_time_ms(rule.act_from)
    except ValueError:
        return [f"{place}: {rule.act_from[:40]!r} must be a time such as 2026-12-06T08:00:00Z"]
    return [] if rule.act else [f"{place}: it has no effect without act: true"]
