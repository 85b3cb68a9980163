"""Guardrails: rules over removals of replicas, as data. `guardrails.yaml` holds one `Guardrails` object.

Which pauses of guardrails stand, from the topics that say so. The log has the truth; this is for those who follow it
from outside the log: routers and the breaker itself.

The two topics are read independently of each other, so what ends a pause may be read before it or long after it: times
decide. In whatever order they are read, the outcome is that of the log (`streams.state.guards`).
"""

from typing import Final, Literal, NamedTuple

from msgspec import Struct

from schemas.entries import BreakerCommand, GuardrailResume
from schemas.keys import EVERY_CLUSTER
from schemas.kubernetes.gotimes import parse_duration_ms, parse_time_ms
from schemas.limits import GUARDRAIL_NAME

MOST_PAUSES: Final = 1_000
"""What is kept of them, so that a false breaker can fill neither a row nor a process; more are passed over."""
_NEVER: Final = -1


class StandingPause(NamedTuple):
    """A pause of a guardrail. `namespace`: of which alone; empty: of the whole cluster. `until_ms` 0: it waits for a
    person. `since_ms`: time of the record that says so.
    """

    cluster: str
    namespace: str
    guardrail: str
    until_ms: int
    since_ms: int


def is_in_force(until_ms: int, now_ms: int) -> bool:
    """Whether a pause, of a person or a guardrail, has not ended by itself; one without an end (0) never does."""
    return not until_ms or now_ms < until_ms


class _Said(Struct):
    """What the breaker recorded of one guardrail and cluster or namespace, as far as it still matters: the last pause
    that waits for a person, which only a person ends, and the last one that ends by itself, unless the breaker did.
    """

    waits_ms: int = _NEVER
    until_ms: int = 0
    since_ms: int = _NEVER


class GuardrailStanding:
    """Folds the breaker's entries and those of persons that end its pauses, with the times of their records."""

    def __init__(self) -> None:
        self._stated: dict[tuple[str, str, str], _Said] = {}
        self._resumed_ms: dict[tuple[str, str], int] = {}

    def take(self, body: BreakerCommand, time_ms: int) -> None:
        """Apply an entry of the breaker. What it says after a pause that waits for a person counts only if a person
        has ended that one in between, which may be read later.
        """
        key = body.cluster, body.namespace, body.guardrail
        if key not in self._stated:
            if body.command != "pause" or not self._has_room(time_ms):
                return
            self._stated[key] = _Said()
        stated = self._stated[key]
        if body.command == "resume":
            stated.since_ms = _NEVER
        elif body.until:
            stated.until_ms, stated.since_ms = body.until, time_ms
        else:
            stated.waits_ms = time_ms

    def resume(self, body: GuardrailResume, time_ms: int) -> None:
        """A person ended what guardrails paused until then."""
        scope = body.cluster, body.namespace
        self._resumed_ms[scope] = max(time_ms, self._resumed_ms.get(scope, _NEVER))

    def in_force(self, now_ms: int, cluster: str | None = None) -> list[StandingPause]:
        """The pauses in force, of one cluster or (None) of all, by cluster and name."""
        keys = sorted(key for key in self._stated if cluster in (None, key[0]))
        return [pause for key in keys if (pause := self._pause(key, now_ms)) is not None]

    def _pause(self, key: tuple[str, str, str], now_ms: int) -> StandingPause | None:
        stated = self._stated[key]
        scopes = {(EVERY_CLUSTER, ""), (key[0], ""), key[:2]}
        resumed_ms = max(self._resumed_ms.get(scope, _NEVER) for scope in scopes)
        if stated.waits_ms > resumed_ms:
            return StandingPause(*key, 0, stated.waits_ms)
        if stated.since_ms > resumed_ms and now_ms < stated.until_ms:
            return StandingPause(*key, stated.until_ms, stated.since_ms)
        return None

    def _has_room(self, now_ms: int) -> bool:
        if len(self._stated) >= MOST_PAUSES:
            self._stated = {key: stated for key, stated in self._stated.items() if self._pause(key, now_ms) is not None}
        return len(self._stated) < MOST_PAUSES


API_VERSION = "fleethpa.io/v1"
SHORTEST_MS = 60_000
LONGEST_MS = 3_600_000


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
    removed_percent: int
    least_removed: int = 10
    cluster_weight_percent: int = 40
    pause: str = "15m"
    act: bool = False
    act_from: str = ""

    @property
    def window_ms(self) -> int:
        """Length of the sliding window."""
        return parse_duration_ms(self.window)

    @property
    def pause_ms(self) -> int:
        """Length of the pause."""
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
        for field in ("removed_percent", "cluster_weight_percent"):
            value = getattr(rule, field)
            if not 1 <= value <= 100:
                found.append(f"{place}.{_camel(field)}: {value} must be from 1 to 100")
        if rule.least_removed < 1:
            found.append(f"{place}.leastRemoved: {rule.least_removed} must be at least 1")
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


def _camel(field: str) -> str:
    first, *rest = field.split("_")
    return first + "".join(word.capitalize() for word in rest)
