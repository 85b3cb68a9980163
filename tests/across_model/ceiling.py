"""A ceiling over two members: report and allotment, where an allotment is the most that a member may have, and ends.

As in `tests.across_model.world` time is absent: what was sent arrives at any later moment, again and again, or never,
and an allotment may end in a member at any moment. Reports of one member are in order by what they say (`at`), so one
that is older than a known one is ignored: of those on their way only what is newer has an effect.

What is counted: *changes* (of what a member wants, of the limit, the group deleted and applied again), *faults* (a
write that fails) and *lies*: a member claims another number of replicas than it has, and wants more than the limit.
What it has itself is not bounded then; the other one has no more than the limit, and loses nothing by it.
"""

from collections.abc import Iterator
from typing import NamedTuple, TypeVar

from msgspec import structs

from streams.across.allotments import allot_capacity, obeyed, outstanding, reported
from streams.state.acrossrows import Account, Allotment, CapacityMember, MemberReport
from tests.kit.exploring import ViolationError, World

T = TypeVar("T")

NAMES = ("east", "west")
WANTS = (1, 4)
LIMITS = (5, 3)
NONE = Allotment(0, -1)
"""What a member obeys that has no allotment under its spec."""
LIAR, HONEST = 0, 1
"""The member that may lie, and the other one."""
CLAIMS = (0, LIMITS[0] + 1)
"""What a lying member says that it has."""
TRUE, DOUBTED = -1, -2
"""What a member says that tells the truth; that does again, but the group does not know it yet."""
_MOST_ON_THE_WAY = 2
_LAST_NUMBER = 4
"""Allotments are made up to this number: they end and are repeated for ever."""
_LASTS_MS = 60_000


class Claimant(NamedTuple):
    """A member: what it obeys, whether that has ended, its replicas, the write in flight (-1: none), what it wants, and
    what it claims to have.
    """

    obeys: Allotment
    has_ended: bool
    replicas: int
    wants: int
    writing: int = -1
    says: int = TRUE

    @property
    def has(self) -> int:
        """Its replicas, or those that a write in flight gives."""
        return max(self.replicas, self.writing)

    @property
    def may(self) -> int:
        """The most that it may have without a further allotment."""
        return self.has if self.has_ended else max(self.has, self.obeys.replicas)


class Shared(NamedTuple):
    """Everything. `sent`: allotments that may still have an effect; `reports`: those on their way, oldest first.
    `ceiling`: the highest limit that members may still use. `settles`: the group was applied anew, and allotments of
    the former one may be in force. `has_spec`: whether each member has the group's revision. `keeps`: what the honest
    member has at least, as long as nothing but lies has changed.
    """

    members: tuple[Claimant, ...]
    known: tuple[CapacityMember, ...]
    sent: tuple[frozenset[Allotment], ...]
    reports: tuple[tuple[MemberReport, ...], ...]
    limit: int
    ceiling: int
    changes: int
    faults: int
    settles: bool = False
    has_spec: tuple[bool, ...] = (True, True)
    lies: int = 0
    keeps: int = 0


class CapacityRules(NamedTuple):
    """The mechanisms in force, each of which can be switched off to see what it is for."""

    counts_allotments: bool = True
    """The group counts allotments that no report shows."""
    counts_ended: bool = True
    """It still counts one that has ended by its own clock until the member reports it."""
    numbers: bool = True
    """A member obeys higher numbers only."""
    writes: bool = True
    """A member reports the write in flight."""
    orders: bool = True
    """An older report is ignored."""
    settles: bool = True
    """After the group was applied anew nothing is allotted until former allotments have ended."""
    revisions: bool = True
    """A member with the new revision drops what it had of the former one."""


CAPACITY_MUTATIONS = {
    name: CapacityRules(**{name.replace("-", "_"): False})
    for name in ("counts-allotments", "counts-ended", "numbers", "writes", "orders", "settles", "revisions")
}
"""The protocol without one of its mechanisms, each of which must break an invariant."""


def idle(changes: int, faults: int) -> Shared:
    """Both have what they want, and the group knows it."""
    return _beginning((1, 1), changes, faults)


def scarce(changes: int, faults: int) -> Shared:
    """Both want more than the limit leaves."""
    state = _beginning((1, 1), changes, faults)
    return state._replace(members=tuple(each._replace(wants=4) for each in state.members))


def anew(changes: int, faults: int) -> Shared:
    """The group was deleted and applied again, while an allotment to the east was on its way."""
    state = scarce(changes, faults)
    return _applied_anew(state._replace(sent=(frozenset([Allotment(2, 4)]), frozenset())))


def lying(changes: int, faults: int) -> Shared:
    """As `scarce`, and one of them lies twice."""
    return scarce(changes, faults)._replace(lies=2, keeps=1)


CAPACITY_BEGINNINGS = {"idle": idle, "scarce": scarce, "anew": anew, "lying": lying}


def _beginning(had: tuple[int, ...], changes: int, faults: int) -> Shared:
    return Shared(
        members=tuple(Claimant(Allotment(1, each), False, each, each) for each in had),
        known=tuple(
            CapacityMember(Account(MemberReport(1, each, each), (Allotment(1, each),)), each, each, 1, 0, 0)
            for each in had
        ),
        sent=(frozenset(),) * len(had),
        reports=((),) * len(had),
        limit=LIMITS[0],
        ceiling=LIMITS[0],
        changes=changes,
        faults=faults,
    )


def _moves(state: Shared, rules: CapacityRules) -> Iterator[tuple[str, Shared]]:
    evaluated = evaluate(state, rules)
    newest = max(each.account.newest.number for each in evaluated.known)
    if evaluated != state and newest <= _LAST_NUMBER:
        yield "the group allots", evaluated
    for at, name in enumerate(NAMES):
        yield from _arriving(state, at, name, rules)
        yield from _member(state, at, name, rules)
    # One that has never reported by then counts as nothing, and may be above the limit: here all have.
    if state.settles and not _is_in_force(state) and all(each.account.report is not None for each in state.known):
        yield "what the former group allotted has ended", state._replace(settles=False)
    if state.changes:
        yield from _changed(state._replace(changes=state.changes - 1, keeps=0))
    liar = state.members[LIAR]
    for claim in CLAIMS if state.lies else ():
        if claim != liar.says:
            lied = _with(state, LIAR, liar._replace(says=claim))._replace(lies=state.lies - 1)
            yield f"{NAMES[LIAR]} says that it has {claim}", lied
    if liar.says >= 0:
        yield f"{NAMES[LIAR]} tells the truth", _with(state, LIAR, liar._replace(says=DOUBTED))


def evaluate(state: Shared, rules: CapacityRules) -> Shared:
    """Allot, and send what is outstanding."""
    if state.settles and rules.settles:
        return state
    seen = {name: _seen(each, rules) for name, each in zip(NAMES, state.known, strict=True)}
    made = allot_capacity(state.limit, seen, now_ms=0, lasts_ms=_LASTS_MS)
    known, sent = list(state.known), list(state.sent)
    for at, name in enumerate(NAMES):
        if made[name] is not seen[name]:
            newest, before = made[name].account.newest, state.known[at].account
            account = Account(before.report, (*before.allotted, newest))
            known[at] = structs.replace(state.known[at], account=account, until_ms=_LASTS_MS)
    for name, allotment in outstanding({name: known[at].account for at, name in enumerate(NAMES)}):
        sent[NAMES.index(name)] |= {allotment}
    return state._replace(known=tuple(known), sent=tuple(sent))


def _seen(each: CapacityMember, rules: CapacityRules) -> CapacityMember:
    """What the group takes into account, and as not yet old: a renewal is another allotment, made by a change."""
    account = each.account
    if not rules.counts_allotments and account.report is not None:
        account = Account(account.report)
    if not rules.counts_ended and account.report is not None:
        account = Account(MemberReport(account.newest.number, each.has, each.has, has_ended=True))
    return structs.replace(each, account=account, until_ms=_LASTS_MS)


def _arriving(state: Shared, at: int, name: str, rules: CapacityRules) -> Iterator[tuple[str, Shared]]:
    for index, report in enumerate(state.reports[at]):
        later = state.reports[at][index + 1 :] if rules.orders else _without(state.reports[at], index)
        yield (
            f"a report of {name} arrives: {report}",
            _booked(state._replace(reports=_put(state.reports, at, later)), at, report),
        )


def _without(reports: tuple[MemberReport, ...], index: int) -> tuple[MemberReport, ...]:
    return reports[:index] + reports[index + 1 :]


def _booked(state: Shared, at: int, report: MemberReport) -> Shared:
    # What it wants is read anew at each allotment: only what it may have is late in this model.
    member = state.members[at]
    after = reported(
        structs.replace(state.known[at], at=0),
        report,
        wants=member.wants if member.says < 0 else max(CLAIMS),
        weight=1,
        priority=0,
        at=1,
        now_ms=0,
    )
    if member.says == DOUBTED and report == report_of(member, CapacityRules()):
        # What it has is known from now on, and may be above the limit.
        state = _with(state, at, member._replace(says=TRUE))
        state = state._replace(ceiling=max(state.ceiling, _may(state)))
    return state._replace(known=_put(state.known, at, structs.replace(after, at=0)))


def report_of(member: Claimant, rules: CapacityRules) -> MemberReport:
    """What a member reports now."""
    if member.says >= 0:
        member = member._replace(replicas=member.says)
    has, most = member.has, member.may
    if not rules.writes:
        has, most = member.replicas, max(member.replicas, 0 if member.has_ended else member.obeys.replicas)
    return MemberReport(member.obeys.number, has, most, member.has_ended)


def _member(state: Shared, at: int, name: str, rules: CapacityRules) -> Iterator[tuple[str, Shared]]:
    member = state.members[at]
    for allotment in sorted(state.sent[at], key=structs.astuple):
        if allotment.number > member.obeys.number or not rules.numbers:
            taken = member._replace(obeys=allotment, has_ended=False)
            yield f"{name} receives {allotment}", _with(state, at, taken)
    if not state.has_spec[at]:
        yield f"{name} has the new spec", _with_spec(state, at, rules)
    if not member.has_ended:
        yield f"the allotment of {name} ends", _with(state, at, member._replace(has_ended=True))
    report, on_the_way = report_of(member, rules), state.reports[at]
    newest = on_the_way[-1] if on_the_way else state.known[at].account.report
    if state.has_spec[at] and report != newest and len(on_the_way) < _MOST_ON_THE_WAY:
        yield f"{name} reports {report}", state._replace(reports=_put(state.reports, at, (*on_the_way, report)))
    if member.writing >= 0:
        yield f"a write of {name} is applied", _with(state, at, member._replace(replicas=member.writing, writing=-1))
        if state.faults:
            yield (
                f"a write of {name} fails",
                _with(state, at, member._replace(writing=-1))._replace(faults=state.faults - 1),
            )
    elif (wanted := _wanted(member)) != member.replicas:
        yield f"{name} begins to write {wanted}", _with(state, at, member._replace(writing=wanted))


def _wanted(member: Claimant) -> int:
    """What it writes next: fewer at once, more only within an allotment in force."""
    limit = member.replicas if member.has_ended else max(member.replicas, member.obeys.replicas)
    return min(member.wants, limit)


def _with(state: Shared, at: int, member: Claimant) -> Shared:
    return state._replace(members=_put(state.members, at, member))


def _with_spec(state: Shared, at: int, rules: CapacityRules) -> Shared:
    state = state._replace(has_spec=_put(state.has_spec, at, True))
    if not rules.revisions:
        return state
    member = state.members[at]
    fresh = member._replace(obeys=Allotment(member.obeys.number, -1), has_ended=True)
    return _with(state._replace(sent=_put(state.sent, at, frozenset())), at, fresh)


def _changed(state: Shared) -> Iterator[tuple[str, Shared]]:
    for at, name in enumerate(NAMES):
        for wants in WANTS:
            if wants != state.members[at].wants:
                yield f"{name} wants {wants}", _with(state, at, state.members[at]._replace(wants=wants))
    for limit in LIMITS:
        if limit != state.limit:
            yield f"the limit is {limit}", state._replace(limit=limit, ceiling=max(state.ceiling, limit))
    if all(state.has_spec) and not state.settles:
        yield "the group is deleted and applied again", _applied_anew(state)


def _applied_anew(state: Shared) -> Shared:
    none: tuple[tuple[MemberReport, ...], ...] = ((), ())
    return state._replace(
        known=(CapacityMember(), CapacityMember()), reports=none, has_spec=(False, False), settles=True
    )


def _is_in_force(state: Shared) -> bool:
    """Whether what was allotted before the group was applied anew may still be used, or is on its way."""
    return any(
        not state.has_spec[at] and (bool(state.sent[at]) or not member.has_ended)
        for at, member in enumerate(state.members)
    )


def _may(state: Shared) -> int:
    """The most that all members may have by what they have, obey and may still receive."""
    return sum(
        max([member.may, *[each.replicas for each in arriving]])
        for member, arriving in zip(state.members, state.sent, strict=True)
    )


def _put(values: tuple[T, ...], at: int, value: T) -> tuple[T, ...]:
    return (*values[:at], value, *values[at + 1 :])


def canonical(state: Shared, rules: CapacityRules) -> Shared:
    """Leave out what can have no effect any more."""
    sent = tuple(
        frozenset(each for each in sent if not rules.numbers or obeyed(member.obeys, each) is each)
        for sent, member in zip(state.sent, state.members, strict=True)
    )
    known = tuple(structs.replace(each, until_ms=0) for each in state.known)
    state = state._replace(sent=sent, known=known)
    return state._replace(ceiling=state.limit) if _may(state) <= state.limit else state


def check(state: Shared) -> None:
    """Check what must hold in every state: no more replicas, applied or in flight, than the limit (after it was
    lowered: than were allowed before, until members have obeyed); one that lies is not counted. Raises ViolationError.
    """
    total = sum(member.has for member in state.members if member.says == TRUE)
    if (has := state.members[HONEST].replicas) < state.keeps:
        raise ViolationError(f"{NAMES[HONEST]} has {has} replicas of {state.keeps} because of a lie")
    if total > state.ceiling:
        raise ViolationError(f"{total} replicas, above the limit of {state.ceiling}")


def check_use(state: Shared, rules: CapacityRules) -> None:
    """Check that without further changes and faults the limit is used within three sync periods, and no replica is
    taken from a member that wants it. Raises ViolationError.
    """
    if state.members[LIAR].says >= 0:
        state = _with(state, LIAR, state.members[LIAR]._replace(says=DOUBTED))
    for at, has_spec in enumerate(state.has_spec):
        state = state if has_spec else _with_spec(state, at, rules)
    state = state._replace(settles=False)
    # What a member has begun to give up itself is not taken from it, though it may want it again by now.
    had = [min(each.replicas, each.wants, each.writing if each.writing >= 0 else each.wants) for each in state.members]
    for _ in range(3):
        state = _quiet_round(state, rules)
        check(state)
    replicas = [member.replicas for member in state.members]
    wants = sum(member.wants for member in state.members)
    if any(after < before for after, before in zip(replicas, had, strict=True)):
        raise ViolationError(f"a member had {had} and has {replicas}")
    if sum(replicas) < min(wants, state.limit):
        raise ViolationError(f"members have {replicas} and want {wants}, and the limit is {state.limit}")


def _quiet_round(state: Shared, rules: CapacityRules) -> Shared:
    for at, member in enumerate(state.members):
        if member.writing >= 0:
            member = member._replace(replicas=member.writing, writing=-1)
        state = _with(state, at, member._replace(writing=-1))
        state = _booked(state._replace(reports=_put(state.reports, at, ())), at, report_of(state.members[at], rules))
    state = evaluate(state, rules)
    for at, member in enumerate(state.members):
        newest = max(state.sent[at], key=structs.astuple, default=member.obeys)
        if obeyed(member.obeys, newest) is newest and newest is not member.obeys:
            member = member._replace(obeys=newest, has_ended=False)
        state = _with(state, at, member._replace(replicas=_wanted(member)))
    return canonical(state, rules)


def capacity_world(begin: Shared, rules: CapacityRules | None = None) -> World[Shared]:
    """The states that the changes and faults of a beginning lead to."""
    rules = rules or CapacityRules()

    def holds(state: Shared) -> None:
        check(state)
        check_use(state, rules)

    return World(begin, lambda state: ((what, canonical(moved, rules)) for what, moved in _moves(state, rules)), holds)
