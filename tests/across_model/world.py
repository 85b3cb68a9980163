"""The states of the model and what can happen in each of them.

Time is absent: a report or an allotment that was sent may arrive at any later moment, again and again, or never. So a
restart of the parent or of a member, which sends again what its log holds, is part of every schedule, and so is a
member that is away for long. A write of `/scale` may take for ever; its end is seen only when it was applied or failed.

What is counted: *changes* (of the total, the maximum, the weights, a member that the parent takes for away or back, the
group deleted and applied again), *faults* (a write that fails), *losses* (of what the parent knew) and *lies*.

A group that was deleted and applied again knows nothing of its members, and allotments of its former self may still be
on their way. So reports and allotments name the revision of the spec: a member that has the new one ignores what is of
another, and the parent counts reports of the new one only.

A parent whose state is lost knows nothing of its members either, but their spec is the same, and they go on with what
it had allotted. A member has lost nothing: the part of its log that has its spec has all that was allotted under it.

A member that lies claims another number of replicas than it has, goes away and comes back as it likes. What it has
itself is not bounded then; the other one has no more than the maximum, and loses nothing by it.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

from msgspec import structs

from schemas.observed import FleetCluster
from streams.across.allotments import allot, booked, obeyed, outstanding
from streams.across.division import UNLIMITED, divide, settle
from streams.state.acrossrows import Account, Allotment, MemberReport
from tests.kit.exploring import ViolationError, World

T = TypeVar("T")

EAST, WEST = [FleetCluster(name=name, min_replicas=1, max_replicas=UNLIMITED) for name in ("east", "west")]
MEMBERS = (structs.replace(EAST, weight=2), WEST)
TURNED = (EAST, structs.replace(WEST, weight=2))
"""The members after a change of the spec."""
TOTALS = (2, 3, 6)
MAXIMA = (3, 6)
NO_SHARE = -1
"""What a member obeys while it has no allotment under its spec."""
LIAR, HONEST = 0, 1
"""The member that may lie, and the other one."""
CLAIMS = (0, MAXIMA[1])
"""What a lying member says that it has: more than its own maxReplicas does not count."""
TRUE = -1
"""What a member says that tells the truth."""
ROUNDS = 2
"""Within so many sync periods after the last fault every member has its share."""


class Member(NamedTuple):
    """A member: what it obeys, its replicas, the write in flight (-1: none), how often it has been away, and what it
    claims to have.
    """

    obeys: Allotment
    replicas: int
    writing: int = -1
    returns: int = 0
    says: int = TRUE

    @property
    def most(self) -> int:
        """The most that it may have without a further allotment."""
        return max(self.replicas, self.writing)


class State(NamedTuple):
    """Everything. `sent`, `reports`: what may still arrive and have an effect, of each member. `shares`: what the
    parent wants. `ceiling`: the highest maximum that members may still use. `away`: whom the parent takes for away.
    `has_spec`: whether each member has the parent's revision of the spec. `spilled`: what the member that is away has
    counts no longer. `keeps`: what the honest member has at least, as long as nothing but lies has changed.
    """

    members: tuple[Member, ...]
    accounts: tuple[Account, ...]
    sent: tuple[frozenset[Allotment], ...]
    reports: tuple[frozenset[MemberReport], ...]
    shares: tuple[int, ...]
    total: int
    maximum: int
    ceiling: int
    away: int
    spec: tuple[FleetCluster, ...]
    changes: int
    faults: int
    has_spec: tuple[bool, ...] = (True,) * len(MEMBERS)
    spilled: bool = False
    losses: int = 0
    lies: int = 0
    keeps: int = 0


class Rules(NamedTuple):
    """The mechanisms in force, each of which can be switched off to see what it is for.

    Args:
        seen: what the parent keeps of a member's account when it allots.
        obeys: what a member obeys after it received an allotment.
        most: what a member reports as the most that it may have.
        maximum: the maximum that is allotted under, given what members may have by now.
        waits: the parent adds nothing before each member that is not away has reported.
        revisions: reports and allotments of another revision of the spec are ignored.
        fences: after a loss the parent counts a member once that obeys a number above all that are lost.
        absences: a member that was away obeys nothing that was allotted to it before.
        held: what is not divided among the others while a member is away.
    """

    seen: Callable[[Account], Account] = lambda account: account
    obeys: Callable[[Allotment, Allotment], Allotment] = obeyed
    most: Callable[[Member], int] = lambda member: member.most
    maximum: Callable[[int, int], int] = lambda maximum, counted: maximum
    waits: bool = True
    revisions: bool = True
    fences: bool = True
    absences: bool = True
    held: Callable[[Account], int] = lambda account: account.given


def _newest_allotment(account: Account) -> Account:
    if account.report is None:
        return account
    return Account(MemberReport(account.report.obeys, account.newest.replicas, 0), account.allotted[-1:])


def _newest_report(account: Account) -> Account:
    is_obeyed = account.report is not None and account.newest.number == account.report.obeys
    return Account(account.report, account.allotted[-1:] if is_obeyed else ())


MUTATIONS: dict[str, Rules] = {
    "older-allotments": Rules(seen=_newest_allotment),
    "allotments-on-their-way": Rules(seen=_newest_report),
    "numbers": Rules(obeys=lambda now, received: received),
    "writes-in-flight": Rules(most=lambda member: member.replicas),
    "nothing-added-above-the-maximum": Rules(maximum=max),
    "waiting-for-first-reports": Rules(waits=False),
    "revisions": Rules(revisions=False),
    "fences": Rules(fences=False),
    "absences": Rules(absences=False),
    "claims-take-nothing": Rules(held=lambda account: account.counted),
}
"""The protocol without one of its mechanisms, each of which must break an invariant."""


def settled(changes: int, faults: int) -> State:
    """Both members have their shares, the parent knows it, and the maximum leaves room."""
    return _beginning(_divided(TOTALS[1], MAXIMA[1]), TOTALS[1], changes, faults)


def full(changes: int, faults: int) -> State:
    """As many replicas as the maximum allows, most of them in the west, and most are to be in the east."""
    return _beginning((1, MAXIMA[1] - 1), MAXIMA[1], changes, faults)


def moving(changes: int, faults: int) -> State:
    """As `full`, later: the west has given what it was to give, and the east's write of what it got is in flight."""
    state = _beginning((1, MAXIMA[1] - 4), MAXIMA[1], changes, faults)
    east, newest = state.accounts[0], Allotment(2, 4)
    accounts = (structs.replace(east, allotted=(*east.allotted, newest)), state.accounts[1])
    return state._replace(members=(Member(newest, 1, writing=4), state.members[1]), accounts=accounts)


def spilled(changes: int, faults: int) -> State:
    """All that the maximum allows is allotted, and the east is away with an allotment of one more on its way."""
    state = _beginning((2, MAXIMA[1] - 3), MAXIMA[1], changes, faults)
    east, arriving = state.accounts[0], Allotment(2, 3)
    accounts = (structs.replace(east, allotted=(*east.allotted, arriving)), state.accounts[1])
    return _wanting(state._replace(accounts=accounts, sent=(frozenset([arriving]), frozenset()), away=0), Rules())


def again(changes: int, faults: int) -> State:
    """The group was deleted and applied again while an allotment of most replicas to the east was on its way; by now
    most are to be in the west.
    """
    state = _beginning((1, 1), MAXIMA[1], changes, faults)
    east = frozenset([Allotment(2, MAXIMA[1] - 1)])
    shares = _divided(MAXIMA[1], MAXIMA[1], TURNED)
    return _applied_again(state._replace(sent=(east, frozenset()), shares=shares, spec=TURNED))


def lost(changes: int, faults: int) -> State:
    """As `full`, and the state of the parent is lost at any moment, twice."""
    return full(changes, faults)._replace(losses=2)


def lying(changes: int, faults: int) -> State:
    """Both have their shares, which is all that the maximum allows, and one of them lies twice."""
    shares = _divided(MAXIMA[1], MAXIMA[1])
    return _beginning(shares, MAXIMA[1], changes, faults)._replace(lies=2, keeps=shares[HONEST])


BEGINNINGS = {
    "settled": settled,
    "full": full,
    "moving": moving,
    "again": again,
    "spilled": spilled,
    "lost": lost,
    "lying": lying,
}


def _beginning(had: tuple[int, ...], total: int, changes: int, faults: int) -> State:
    return State(
        members=tuple(Member(Allotment(1, share), share) for share in had),
        accounts=tuple(Account(MemberReport(1, share, share), (Allotment(1, share),)) for share in had),
        sent=(frozenset(),) * len(had),
        reports=(frozenset(),) * len(had),
        shares=_divided(total, MAXIMA[1]),
        total=total,
        maximum=MAXIMA[1],
        ceiling=MAXIMA[1],
        away=-1,
        spec=MEMBERS,
        changes=changes,
        faults=faults,
    )


def _divided(total: int, maximum: int, spec: tuple[FleetCluster, ...] = MEMBERS) -> tuple[int, ...]:
    return tuple(divide(min(total, maximum), spec).values())


def moves(state: State, rules: Rules) -> Iterator[tuple[str, State]]:
    """Give all that can happen in a state."""
    yield from _parent(state, rules)
    for at in range(len(MEMBERS)):
        yield from _member(state, at, rules)
    if state.away >= 0 and not state.spilled:
        yield "what the member that is away has is spilled", _wanting(state._replace(spilled=True), rules)
    if state.changes:
        yield from _changes(state._replace(changes=state.changes - 1), rules)
    if state.losses:
        yield "the state of the parent is lost", _lost(state._replace(losses=state.losses - 1), rules)
    if state.lies:
        yield from _lies(state._replace(lies=state.lies - 1), rules)
    if state.members[LIAR].says != TRUE:
        yield f"{MEMBERS[LIAR].name} tells the truth", _truthful(state)


def _lies(state: State, rules: Rules) -> Iterator[tuple[str, State]]:
    name, member = MEMBERS[LIAR].name, state.members[LIAR]
    for claim in CLAIMS:
        if claim != member.says:
            yield f"{name} says that it has {claim}", _with_member(state, LIAR, member._replace(says=claim))
    if state.away < 0:
        yield f"{name} goes away", _wanting(_with_away(state, LIAR, rules), rules)
    else:
        yield f"{name} comes back", _wanting(_with_away(state, -1, rules), rules)


def _truthful(state: State) -> State:
    """The liar tells the truth: what it has is counted from now on."""
    state = _with_member(state, LIAR, state.members[LIAR]._replace(says=TRUE))
    return state._replace(ceiling=max(state.ceiling, _may(state)))


def _lost(state: State, rules: Rules) -> State:
    """The fence is above all numbers that there were, as an offset of the parent's log is."""
    numbers = [0]
    for member, account, sent in zip(state.members, state.accounts, state.sent, strict=True):
        numbers += [member.obeys.number, account.newest.number, account.fence, *(each.number for each in sent)]
    unknown = Account(fence=max(numbers) + 1 if rules.fences else 0)
    # One that is away and had never reported is counted from now on.
    ceiling = state.ceiling if _known(state) else max(state.ceiling, _may(state))
    return state._replace(accounts=(unknown,) * len(MEMBERS), ceiling=ceiling)


def _parent(state: State, rules: Rules) -> Iterator[tuple[str, State]]:
    evaluated = evaluate(state, rules)
    if evaluated != state:
        yield "the parent is evaluated", evaluated
    for at, member in enumerate(MEMBERS):
        for report in sorted(state.reports[at], key=structs.astuple):  # a walk is the same each time
            yield f"a report of {member.name} arrives: {report}", _booked(state, at, report)


def _booked(state: State, at: int, report: MemberReport) -> State:
    accounts = _put(state.accounts, at, booked(state.accounts[at], report))
    # What a member that is away has becomes known: it may be more than the maximum leaves.
    ceiling = state.ceiling if _known(state) else max(state.ceiling, _may(state))
    return state._replace(accounts=accounts, ceiling=ceiling)


def evaluate(state: State, rules: Rules) -> State:
    """Allot, and send what is outstanding.

    Raises ViolationError: an allotment leads away from the share that is wanted, or past it.
    """
    present = [at for at in range(len(MEMBERS)) if at != state.away]
    if not rules.waits:
        present = [at for at in present if state.accounts[at].report is not None]
    wanted = {MEMBERS[at].name: state.shares[at] for at in present}
    counting = [at for at in range(len(MEMBERS)) if at != state.away or not state.spilled]
    seen = {MEMBERS[at].name: rules.seen(state.accounts[at]) for at in counting}
    counted = sum(account.counted for account in seen.values())
    made = allot(wanted, seen, rules.maximum(state.maximum, counted))
    accounts, sent = list(state.accounts), list(state.sent)
    for at in present:
        before, new = state.accounts[at].newest, made[MEMBERS[at].name].newest
        if new != before:
            _check_way(before.replicas, new.replicas, state.shares[at])
            accounts[at] = Account(state.accounts[at].report, (*state.accounts[at].allotted, new))
    for name, allotment in outstanding({MEMBERS[at].name: accounts[at] for at in present}):
        at = next(at for at in present if MEMBERS[at].name == name)
        report = accounts[at].report
        # One that follows from a report before an absence is ignored; KEEP never is.
        if report is None or report.returns == state.members[at].returns:
            sent[at] |= {allotment}
    return state._replace(accounts=tuple(accounts), sent=tuple(sent))


def _check_way(before: int, after: int, share: int) -> None:
    is_up, is_down = before < after <= share, before > after >= share
    if not (is_up or is_down or before == after):
        raise ViolationError(f"a replica moves twice for one cause: {before} to {after} on the way to {share}")


def _member(state: State, at: int, rules: Rules) -> Iterator[tuple[str, State]]:
    name, member = MEMBERS[at].name, state.members[at]
    for allotment in sorted(state.sent[at], key=structs.astuple):
        obeys = rules.obeys(member.obeys, allotment)
        yield f"{name} receives {allotment}", _with_member(state, at, member._replace(obeys=obeys))
    if not state.has_spec[at]:
        yield f"{name} has the new spec", _with_spec(state, at, rules)
    report = reported(member, rules)
    is_counted = state.has_spec[at] or not rules.revisions
    if is_counted and report not in state.reports[at] and report != state.accounts[at].report:
        reports = _put(state.reports, at, state.reports[at] | {report})
        yield f"{name} reports {report}", state._replace(reports=reports)
    if member.writing >= 0:
        written = member._replace(replicas=member.writing, writing=-1)
        yield f"a write of {name} is applied", _with_member(state, at, written)
        if state.faults:
            failed = _with_member(state, at, member._replace(writing=-1))
            yield f"a write of {name} fails", failed._replace(faults=state.faults - 1)
    elif member.obeys.replicas not in (NO_SHARE, member.replicas):
        begun = member._replace(writing=member.obeys.replicas)
        yield f"{name} begins to write {begun.writing}", _with_member(state, at, begun)


def reported(member: Member, rules: Rules) -> MemberReport:
    """What a member reports now."""
    if member.says != TRUE:
        member = member._replace(replicas=member.says)
    least = member.replicas if member.writing < 0 else min(member.replicas, member.writing)
    return MemberReport(member.obeys.number, least, rules.most(member), returns=member.returns)


def _with_member(state: State, at: int, member: Member) -> State:
    return state._replace(members=_put(state.members, at, member))


def _changes(state: State, rules: Rules) -> Iterator[tuple[str, State]]:
    state = state._replace(keeps=0)
    for total in TOTALS:
        if total != state.total:
            yield f"the load asks for {total}", _wanting(state._replace(total=total), rules)
    for maximum in MAXIMA:
        if maximum != state.maximum:
            ceiling = max(state.ceiling, maximum)
            yield f"maxReplicas is {maximum}", _wanting(state._replace(maximum=maximum, ceiling=ceiling), rules)
    if state.away < 0:
        spec = TURNED if state.spec == MEMBERS else MEMBERS
        shares = _divided(state.total, state.maximum, spec)
        yield "the weights change, and the division has differed for long", state._replace(spec=spec, shares=shares)
    for away in (-1, 0):
        if away != state.away:
            moved = _with_away(state, away, rules)
            yield f"away is {MEMBERS[away].name if away >= 0 else 'nobody'}", _wanting(moved, rules)
    if all(state.has_spec) and state.away < 0:
        yield "the group is deleted and applied again", _applied_again(state)


def _with_away(state: State, away: int, rules: Rules) -> State:
    """Another member is away, or nobody: what one that is back has is counted, and may be above the maximum. It obeys
    nothing from before, so that it adds nothing to that.
    """
    is_counted, back = _known(state) and not state.spilled, state.away
    if back >= 0 and rules.absences:
        member = state.members[back]
        keeps = Allotment(member.obeys.number, NO_SHARE)
        state = _with_member(state, back, member._replace(obeys=keeps, returns=member.returns + 1))
        state = state._replace(sent=_put(state.sent, back, frozenset()))
    ceiling = state.ceiling if is_counted else max(state.ceiling, _may(state, back if state.spilled else -1))
    return state._replace(away=away, spilled=False, ceiling=ceiling)


def _with_spec(state: State, at: int, rules: Rules) -> State:
    """A member has the new spec: allotments of the former one mean nothing to it any more, and it keeps what it has."""
    state = state._replace(has_spec=_put(state.has_spec, at, True))
    if not rules.revisions:
        return state
    member = state.members[at]
    member = member._replace(obeys=Allotment(member.obeys.number, NO_SHARE))
    return _with_member(state._replace(sent=_put(state.sent, at, frozenset())), at, member)


def _applied_again(state: State) -> State:
    """The parent knows nothing of its members, and these have the former revision of the spec."""
    unknown, none = (Account(),) * len(MEMBERS), (frozenset[MemberReport](),) * len(MEMBERS)
    return state._replace(accounts=unknown, reports=none, has_spec=(False,) * len(MEMBERS))


def _known(state: State) -> bool:
    """Whether a member that is away has reported, or may have before a loss: what it has is counted then."""
    return state.away < 0 or state.accounts[state.away].report is not None or state.accounts[state.away].fence > 0


def _may(state: State, keeps: int = -1) -> int:
    """The most that all members may have by what they have, obey and may still receive; member `keeps`: what it has."""
    return sum(
        max([member.most, *([member.obeys.replicas, *[each.replicas for each in arriving]] if at != keeps else [])])
        for at, (member, arriving) in enumerate(zip(state.members, state.sent, strict=True))
    )


def _wanting(state: State, rules: Rules) -> State:
    """Divide as the parent does: what an away member may have is not divided again."""
    present = [at for at in range(len(MEMBERS)) if at != state.away]
    held = 0 if state.away < 0 or state.spilled else rules.held(state.accounts[state.away])
    total = min(state.total, state.maximum) - held
    members = [state.spec[at] for at in present]
    settled = settle(total, members, {MEMBERS[at].name: state.shares[at] for at in present})
    shares = tuple(settled.get(member.name, state.shares[at]) for at, member in enumerate(MEMBERS))
    return state._replace(shares=shares)


def _put(values: tuple[T, ...], at: int, value: T) -> tuple[T, ...]:
    return (*values[:at], value, *values[at + 1 :])


def canonical(state: State, rules: Rules) -> State:
    """Leave out what can have no effect any more."""
    sent = tuple(
        frozenset(each for each in sent if rules.obeys(member.obeys, each) != member.obeys)
        for sent, member in zip(state.sent, state.members, strict=True)
    )
    reports = tuple(
        frozenset(each for each in reports if booked(account, each) != account)
        for reports, account in zip(state.reports, state.accounts, strict=True)
    )
    state = state._replace(sent=sent, reports=reports)
    return state._replace(ceiling=state.maximum) if _may(state) <= state.maximum else state


def check(state: State) -> None:
    """Check what must hold in every state; a member that is away and never reported, or is spilled, or lies, is not
    counted.

    Raises ViolationError.
    """
    is_counted = _known(state) and not state.spilled
    counting = [member for at, member in enumerate(state.members) if at != state.away or is_counted]
    total = sum(member.most for member in counting if member.says == TRUE)
    if total > state.ceiling:
        raise ViolationError(f"{total} replicas, above the maximum of {state.ceiling}")
    if (has := state.members[HONEST].replicas) < state.keeps:
        raise ViolationError(f"{MEMBERS[HONEST].name} has {has} replicas of {state.keeps} because of a lie")
    for member, bounds in zip(state.members, MEMBERS, strict=True):
        if member.replicas < bounds.min_replicas:
            raise ViolationError(f"{bounds.name} is below its minimum")


def check_recovery(state: State, rules: Rules) -> None:
    """Check that without further changes and faults every member has its share within two sync periods, and one more
    after a loss.

    Raises ViolationError: it has not.
    """
    if state.members[LIAR].says != TRUE:
        state = _truthful(state)
    if state.away >= 0:
        state = _wanting(_with_away(state, -1, rules), rules)
    for at, has_spec in enumerate(state.has_spec):
        state = state if has_spec else _with_spec(state, at, rules)
    for at, member in enumerate(state.members):
        if member.writing >= 0:
            state = _with_member(state, at, member._replace(replicas=member.writing, writing=-1))
    for _ in range(ROUNDS + any(each.fence for each in state.accounts)):
        state = _quiet_round(state, rules)
        check(state)
    if any(member.replicas != share for member, share in zip(state.members, state.shares, strict=True)):
        had = [member.replicas for member in state.members]
        raise ViolationError(f"after these sync periods without a fault the members have {had}, not {state.shares}")


def _quiet_round(state: State, rules: Rules) -> State:
    """One sync period: reports, an evaluation, allotments, writes."""
    for at, member in enumerate(state.members):
        state = _booked(state, at, reported(member, rules))
    state = evaluate(state, rules)
    for at, member in enumerate(state.members):
        newest = max(state.sent[at], key=structs.astuple, default=member.obeys)
        obeys = rules.obeys(member.obeys, newest)
        replicas = member.replicas if obeys.replicas < 0 else obeys.replicas
        state = _with_member(state, at, member._replace(obeys=obeys, replicas=replicas, writing=-1))
    return canonical(state, rules)


def world(begin: State, rules: Rules | None = None) -> World[State]:
    """The states that the changes and faults of a beginning lead to."""
    rules = rules or Rules()

    def holds(state: State) -> None:
        check(state)
        check_recovery(state, rules)

    return World(begin, lambda state: ((what, canonical(moved, rules)) for what, moved in moves(state, rules)), holds)
