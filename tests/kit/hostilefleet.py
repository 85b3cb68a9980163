"""A FleetHPA one of whose clusters lies, cannot write, goes away or has settings of its own, and what holds for it.

A run is drawn from a seed: first under a constant load, then with more of it.
"""

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any, Final

from msgspec import structs

from schemas.entries import FleetReport, FleetReportItem
from schemas.keys import FLEET
from schemas.settings import ClusterSettings, SettingsSet
from streams.across.fleet import unreached
from streams.hpa.grouping import Groups
from streams.hpa.observation import Scale
from streams.hpa.parts import PartObservation, read_part, written_part
from streams.state.partitionstate import Message
from tests.kit.exploring import ViolationError
from tests.kit.fleet import PERIOD_MS, Fleet

CPU = 1_000
"""One CPU, in milli-CPU; a pod requests a tenth of it, and the target is half of that."""
Lie = Callable[[PartObservation], PartObservation]


def _groups(part: PartObservation, **fields: int) -> PartObservation:
    (found,) = part.answers
    if not isinstance(found, Groups):
        return part  # it has no pods
    return structs.replace(part, answers=(structs.replace(found, **fields),))


def idle(part: PartObservation) -> PartObservation:
    """Its two pods request 1,000 CPUs each, and use nothing."""
    return _groups(part, kept_milli=0, ready_milli=0, ready_request=2_000 * CPU)


def busy(part: PartObservation) -> PartObservation:
    """They use 1,000,000 CPUs."""
    return _groups(part, kept_milli=1_000_000 * CPU, ready_milli=1_000_000 * CPU)


def huge(part: PartObservation) -> PartObservation:
    """Its scale says 1,000,000 replicas."""
    assert isinstance(part.scale, Scale)
    return structs.replace(part, scale=structs.replace(part.scale, spec_replicas=1_000_000))


def lying(name: str, lie: Lie, most: int | None = None) -> Callable[[Message], list[Message]]:
    """Change what a cluster reports on itself; the others tell the truth."""

    def deliver(message: Message) -> list[Message]:
        body = message.body
        if not isinstance(body, FleetReport) or body.member != name:
            return [message]
        items = [_changed(item) for item in body.items]
        return [structs.replace(message, body=structs.replace(body, items=items))]

    def _changed(item: FleetReportItem) -> FleetReportItem:
        part = lie(read_part(item.part))
        assert isinstance(part.scale, Scale)
        claimed = part.scale.spec_replicas
        if claimed == 1_000_000:
            return structs.replace(item, part=written_part(part), replicas=claimed, most=claimed)
        return structs.replace(item, part=written_part(part))

    return deliver


PODS: Final = {"east": 10, "north": 6, "west": 4}
LOAD: Final = {"east": 500, "north": 300, "west": 200}
"""In milli-CPU: all pods are at their target."""
MORE: Final = {"east": 900, "north": 600, "west": 400}
MAXIMUM: Final = 60
HONEST: Final = ("east", "north")
"""Those that tell the truth, write and stay."""
KINDS: Final = ("idle", "busy", "huge", "cannot write", "away", "settings")
"""What west does; the first three are lies."""
LIES: Final = {"idle": idle, "busy": busy, "huge": huge}
_EVERY: Final = 8
_SHOWN_WITHIN: Final = 5
"""Periods after which a share that is not reached has to be a step and a problem."""


class Hostile(Fleet):
    """Three clusters, of which west does what is drawn, several things at a time."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        spec: dict[str, Any] = {"spill_after_ms": self.random.choice([0, 60_000])}
        spec["away_spill_after_ms"] = self.random.choice([0, 60_000])
        self.does: tuple[str, ...] = ()
        self.has_lied = self.has_own_settings = False
        self.happened: Counter[str] = Counter()
        self._missing: Counter[str] = Counter()
        super().__init__(PODS, MAXIMUM, weights=PODS, rebalance_after_ms=36_000_000, **spec)

    def disturb(self) -> None:
        """Draw what west does from now on."""
        self.do(*self.random.sample(KINDS, self.random.randrange(4)))

    def do(self, *does: str) -> None:
        """Let west do this from now on, and nothing else; of several lies it tells the last one."""
        lies = [each for each in does if each in LIES]
        does = tuple(each for each in does if each not in lies[:-1])
        self.does = does
        self.happened.update(does)
        self.deliver = lambda message: [message]
        self.refusing = {"west"} if "cannot write" in does else set()
        self.away = {"west"} if "away" in does else set()
        for lie in lies[-1:]:
            self.deliver, self.has_lied = lying("west", LIES[lie]), True
        if "settings" in does:
            self.has_own_settings = True
            period_ms = self.random.choice([5_000, 15_000])
            body = SettingsSet(cluster="west", settings=ClusterSettings(downscale_stabilization_ms=period_ms * 12))
            for name in self.logs:
                self.add(name, body)

    def check(self, *, is_constant: bool) -> None:
        """Check what must hold after a period. `is_constant`: the load has never changed.

        Raises ViolationError: an honest cluster has less than its own metrics keep, something was added without load,
        or a share that is not reached for long is not named.
        """
        if low := [name for name in HONEST if self.replicas[name] < PODS[name]]:
            raise ViolationError(f"{low} are below what their own metrics keep: {self.replicas}")
        if is_constant and not self.has_lied and self.total > sum(PODS.values()):
            raise ViolationError(f"replicas were added without load: {self.replicas}")
        self._check_named()

    def _check_named(self) -> None:
        log, fleet = self.logs[FLEET], self.row(FLEET).fleet
        if fleet is None:
            raise ViolationError("the whole is not there")
        # Who claims a million replicas seems to have its share; the claim is a problem itself.
        claims = {"west"} if "huge" in self.does else set()
        lacking = {name for name, share in fleet.shares.items() if self.replicas[name] < share} - self.away - claims
        self._missing = Counter({name: self._missing[name] + 1 for name in lacking})
        late = {name for name, periods in self._missing.items() if periods > _SHOWN_WITHIN}
        shown = {name for each in self.last()["steps"] if each["step"] == "shares" for name in each["detail"]}
        problems = {name for name, _ in unreached(fleet, log.now_ms, PERIOD_MS)}
        if late - shown or late - problems:
            raise ViolationError(f"shares {fleet.shares} are not reached: {self.replicas}; {shown=}, {problems=}")


def hostile_run(seed: int, constant: int = 48, growing: int = 24) -> Hostile:
    """A run of so many periods under a constant load, and so many with more of it, checked after each.

    Raises ViolationError: something does not hold; names the seed, the period and what west did.
    """
    run = Hostile(seed)
    for number in range(constant + growing):
        if number % _EVERY == _EVERY // 2:
            run.disturb()
        run.period(LOAD if number < constant else MORE)
        try:
            run.check(is_constant=number < constant)
        except ViolationError as error:
            raise ViolationError(f"seed {seed}, period {number}, west: {', '.join(run.does)}: {error}") from error
    return run
