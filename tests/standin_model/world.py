"""The states of the model and what can happen in each of them.

A state is a tuple of plain values. Time is absent: whoever looks may stall for ever before it acts on what it saw, and
a request may arrive at any later moment, or never (not to act is the same). What the protocol assumes about time is in
two places: `_may_settle` (a change of hands was seen long enough ago) and `_judged` (silence and proof of life).

A fault is: a crash of the hub or of an agent, a cut of the hub's heartbeats, a request that arrives late, a deleted
Lease, a hub that holds a living agent for silent, writes that begin to fail, a hand-back that is stuck, a finalizer
that somebody gives the native HPA (it may be taken away at any time). Everything else costs nothing.

That a hand-back is stuck takes a minute, so that what was seen before it, and what the hub wrote then, is long over.

Failing writes are of two sorts, and end at any time. `rights`: the API server refuses `/scale` to the hub's account,
which alone has no right to write it. `everyone`: an admission policy, a quota or an API server in trouble refuses
`/scale` and new native HPAs, whoever asks.
"""

from collections.abc import Callable, Iterator
from functools import cache
from typing import Literal, NamedTuple

from fleethpa.fleet.troubles import ClusterView
from reconciler.agents.standin.evidence import is_for_want_of_rights
from reconciler.agents.standin.protocol import (
    CLOSING,
    CloseNative,
    CreateLease,
    CreateNative,
    DeleteNative,
    HpaKey,
    Judgement,
    NativeSeen,
    OpenNative,
    Renew,
    Request,
    Seen,
    SetHolder,
    agent_steps,
    hub_refusal,
    is_stand_in,
)
from reconciler.core.fence import STAND_IN
from reconciler.core.lease import SeenLease
from streams.state.partitionrow import ControlRow, ServedRow
from tests.kit.exploring import ViolationError

HUB = "hub/model/1"
KEY = HpaKey("shop", "web")
SPEC = "spec"
NOT_ADMITTED = -1
Failing = Literal["", "rights", "everyone", "remembered"]
"""Which writes fail. `remembered`: none does any more, and still counts; only without `Rules.forgets`."""
ERRORS: dict[Failing, str] = {
    "rights": 'deployments.apps "web" is forbidden: User "agent" cannot update resource "deployments/scale"',
    "everyone": 'admission webhook "policy.example.com" denied the request: frozen',
}
_UIDS = 1_000
"""More than any generation: see `_order_of`."""


class Lease(NamedTuple):
    """The Lease, or what somebody saw of it. `uid`: how many were deleted before; the three are its version."""

    holder: str
    generation: int
    uid: int


class Native(NamedTuple):
    """The native HPA. `version` changes with every write of it; `spec`: the version at which its spec changed last.

    `is_held`: it has a finalizer; `is_deleting`: it was deleted, and is held; `is_left`: the hub got the cluster back
    without waiting for it any longer.
    """

    uid: int
    version: int
    spec: int
    generation: int
    is_closed: bool
    is_ended: bool
    is_held: bool = False
    is_deleting: bool = False
    is_left: bool = False


class Actor(NamedTuple):
    """A process of the protocol. `lease`, `native`, `scale`: what it saw last, in the order scale, Lease, native."""

    is_alive: bool = True
    has_looked: bool = False
    lease: Lease | None = None
    native: Native | None = None
    scale: int = 0
    is_settled: bool = False
    remembered: int = 0


class Sent(NamedTuple):
    """A request. `before`: the Lease that is to be changed; `admitted`: which Lease (`_order_of`) the fence had seen
    when it let the request in; -1: it has not arrived yet.
    """

    kind: str
    holder: str = ""
    generation: int = 0
    uid: int = 0
    version: int = 0
    before: Lease | None = None
    admitted: int = NOT_ADMITTED


class State(NamedTuple):
    """Everything. `known`: uid, spec and closed, as the native controller last saw its HPA; `is_writing`: that
    controller holds a count that it will write to `/scale`; `deleted`: Leases that were deleted; `scale`: version of
    the target.
    """

    lease: Lease | None
    fence: Lease | None
    native: Native | None
    known: tuple[int, int, bool] | None
    is_writing: bool
    hub: Actor
    agents: tuple[Actor, Actor]
    has_signs: bool
    late: tuple[Sent, ...]
    deleted: int
    scale: int
    faults: int
    failing: Failing = ""


Steps = Callable[[Seen, Judgement, int], list[Request]]
Counts = Callable[[str], bool]
"""Whether an error of the hub's writes counts against the hub."""


def real_agent(seen: Seen, judged: Judgement, remembered: int) -> list[Request]:
    """An agent, as the product has it."""
    return agent_steps(seen, judged, hub=HUB, wanted={KEY: SPEC}, remembered=remembered)


def real_agent_alone(seen: Seen, judged: Judgement, remembered: int) -> list[Request]:
    """The same where the settings say that no native controller runs."""
    return agent_steps(seen, judged, hub=HUB, wanted={KEY: SPEC}, remembered=remembered, has_native_controller=False)


def possible_rescue(seen: Seen, judged: Judgement, remembered: int) -> list[Request]:
    """What a hub with access of its own could do where the agents are silent: lead the cluster through `closing`, as an
    agent does. It never creates a Lease, as only an agent knows whether native HPAs are to be kept. No process does so.
    """
    lease = seen.lease
    if lease is None or lease.is_hub:
        return []
    if lease.holder != CLOSING:
        return [SetHolder(CLOSING, lease.generation + 1, lease.version, lease.uid)]
    return agent_steps(seen, judged, hub=HUB, wanted={})


class Rules(NamedTuple):
    """The mechanisms in force, each of which can be switched off to see what it is for.

    Args:
        has_fence: an admission policy has the Lease as parameter.
        has_generation: it compares the label of a native HPA with the generation.
        compares: the Lease changes by compare-and-set.
        touches: without a fence, a write of the hub is bound to the version of the target, which an agent moves
            before it creates a native HPA.
        settles: nothing is done before a change of hands has settled.
        late: kinds of requests that may arrive late.
        has_controller: a native controller runs; False: none does, and the settings say so.
        counts: which errors of writes count against the hub.
        forgets: failed writes no longer count once writes succeed again, after a while, or under another holder.
        shows: an agent reports which writes fail, and `get clusters` shows that.
        may_hold: somebody may give the native HPA a finalizer.
    """

    agent: Steps = real_agent
    rescue: Steps = possible_rescue
    has_fence: bool = True
    has_generation: bool = True
    compares: bool = True
    touches: bool = False
    settles: bool = True
    late: frozenset[str] = frozenset({"lease", "holder", "create", "open", "close", "delete", "write"})
    has_controller: bool = True
    counts: Counts = is_for_want_of_rights
    forgets: bool = True
    shows: bool = True
    may_hold: bool = True

    @property
    def is_whole(self) -> bool:
        """Whether every mechanism is in force that the API server provides."""
        return self.has_fence and self.has_generation and self.compares and self.settles


ALONE = Rules(agent=real_agent_alone, has_controller=False)
"""No native controller runs, and the settings say so."""


def first(faults: int) -> State:
    """The hub is in charge and all is well."""
    lease = Lease(HUB, 1, 0)
    return State(lease, lease, None, None, False, Actor(), (Actor(), Actor()), True, (), 0, 0, faults)


def stood_in(faults: int) -> State:
    """The stand-in is in charge, and the hub has just come back."""
    lease = Lease(STAND_IN, 2, 0)
    native = Native(1, 1, 1, 2, is_closed=False, is_ended=False)
    return first(faults)._replace(lease=lease, fence=lease, native=native, known=(1, 1, False))


def switched_off(faults: int) -> State:
    """The stand-in is in charge, and the native controller was switched off meanwhile."""
    return stood_in(faults)._replace(known=None)


def canonical(state: State, rules: Rules) -> State:
    """The same state in the one form that stands for all that differ in nothing that can still matter.

    The two agents are alike, late requests have no order, versions of the target are compared for equality only. With
    every mechanism in force, what can no longer have an effect is forgotten: requests that are bound to a version that
    is gone (versions never come back), and looks from which nothing else can follow. Uids and versions are numbered
    anew, as they are compared for equality only, and where no Lease can be deleted any more, generations are, too.
    """
    if rules.is_whole:
        one, other = state.agents
        hub, agents = _without_dead(state, state.hub), (_without_dead(state, one), _without_dead(state, other))
        late = tuple([sent for sent in state.late if not _is_dead(state, sent)]) if state.late else ()
        if hub is not state.hub or agents != state.agents or len(late) != len(state.late):
            state = state._replace(hub=hub, agents=agents, late=late)
        state = _natives_numbered(state)
        if not state.faults and state.lease is not None:
            state = _generations_numbered(state)
    one, other = state.agents
    if one != other and _order(other) < _order(one):
        state = state._replace(agents=(other, one))
    if len(state.late) > 1:
        state = state._replace(late=tuple(sorted(state.late, key=_late_order)))
    return _scales_numbered(state) if state.scale else state


def _is_dead(state: State, sent: Sent) -> bool:
    """Whether a late request will fail whenever it arrives."""
    if sent.kind == "holder":
        return sent.before != state.lease
    if sent.kind in ("open", "close", "delete"):
        native = state.native
        return native is None or (native.uid, native.version) != (sent.uid, sent.version)
    return False


def _without_dead(state: State, actor: Actor) -> Actor:
    """An actor without what it saw and can make no use of; it may look again at any time."""
    lease, native = actor.lease, actor.native
    if lease is None:
        return actor
    if _is_hub(lease):
        if native is None or lease == state.lease or _can_act(state, lease, native):
            return actor._replace(is_settled=False) if actor.is_settled else actor
        return Actor(is_alive=actor.is_alive, remembered=actor.remembered)
    if lease == state.lease:
        # Before the change of hands has settled, only the Lease counts.
        return actor if actor.is_settled or native is None else actor._replace(native=None)
    if not actor.is_settled or not _can_act(state, lease, native):
        return Actor(is_alive=actor.is_alive, remembered=actor.remembered)
    return actor


def _can_act(state: State, lease: Lease, native: Native | None) -> bool:
    """Whether who saw a Lease that is no longer can still do something besides changing it, which fails."""
    if native is not None and state.native is not None and native[:2] == state.native[:2]:
        return True
    return native is None and _is_stand_in(lease) and state.fence is not None and state.fence[:2] == lease[:2]


def _order(actor: Actor) -> tuple[object, ...]:
    lease, native = actor.lease or (), actor.native or ()
    return (actor.is_alive, actor.has_looked, actor.is_settled, actor.remembered, actor.scale, lease, native)


def _late_order(sent: Sent) -> tuple[object, ...]:
    return (*sent._replace(before=None, admitted=0)[:5], sent.before or (), sent.admitted)


def _natives_numbered(state: State) -> State:
    """Uids and versions of native HPAs as small numbers, the versions in their order: the next is above all known."""
    known: dict[int, set[int]] = {}
    if state.native is not None:
        known[state.native.uid] = {state.native.version, state.native.spec}
    if state.known is not None:
        known.setdefault(state.known[0], set()).add(state.known[1])
    for actor in (state.hub, *state.agents):
        if actor.native is not None:
            known.setdefault(actor.native.uid, set()).add(actor.native.version)
    for sent in state.late:
        if sent.uid:
            known.setdefault(sent.uid, set()).add(sent.version)
    if known.keys() <= {1} and known.get(1, _FIRST) in (_FIRST, _FIRST_TWO) and not _knows_spec(state):
        return state
    uids = {uid: number for number, uid in enumerate(known, 1)}
    versions = {
        (uid, version): number for uid, found in known.items() for number, version in enumerate(sorted(found), 1)
    }

    def seen(actor: Actor) -> Actor:
        native = actor.native
        if native is None:
            return actor
        # Nobody who looks knows at which version the spec changed.
        return actor._replace(
            native=native._replace(uid=uids[native.uid], version=versions[native.uid, native.version], spec=0)
        )

    native = state.native
    if native is not None:
        version, spec = versions[native.uid, native.version], versions[native.uid, native.spec]
        native = native._replace(uid=uids[native.uid], version=version, spec=spec)
    return state._replace(
        native=native,
        known=None if state.known is None else (uids[state.known[0]], versions[state.known[:2]], state.known[2]),
        hub=seen(state.hub),
        agents=(seen(state.agents[0]), seen(state.agents[1])),
        late=tuple(
            sent._replace(uid=uids[sent.uid], version=versions[sent.uid, sent.version]) if sent.uid else sent
            for sent in state.late
        ),
    )


_FIRST, _FIRST_TWO = {1}, {1, 2}


def _knows_spec(state: State) -> bool:
    return any(each.native is not None and each.native.spec for each in (state.hub, *state.agents))


def _generations_numbered(state: State) -> State:
    """Generations from 1 on, each as far above the least as it was: they are compared, and the next is one more.

    Only while there is a Lease that will never be deleted: for one that is created anew, what is remembered counts.
    """
    one, other, hub = *state.agents, state.hub
    if not (one.remembered or other.remembered or hub.remembered):
        for each in (one.lease, other.lease, hub.lease, state.native, state.fence, state.lease):
            if each is not None and each.generation == 1:
                return state
    leases = [state.lease, state.fence, *(actor.lease for actor in (state.hub, *state.agents))]
    leases += [sent.before for sent in state.late]
    natives = [state.native, *(actor.native for actor in (state.hub, *state.agents))]
    found = [each.generation for each in (*leases, *natives) if each is not None]
    found += [sent.generation for sent in state.late if sent.generation]
    found += [sent.admitted % _UIDS for sent in state.late if sent.admitted > 0]
    over = min(found) - 1
    if not over and not any(actor.remembered for actor in (state.hub, *state.agents)):
        return state

    def lease(given: Lease | None) -> Lease | None:
        return given and given._replace(generation=given.generation - over)

    def native(given: Native | None) -> Native | None:
        return given and given._replace(generation=given.generation - over)

    def seen(actor: Actor) -> Actor:
        return actor._replace(lease=lease(actor.lease), native=native(actor.native), remembered=0)

    return state._replace(
        lease=lease(state.lease),
        fence=lease(state.fence),
        native=native(state.native),
        hub=seen(state.hub),
        agents=(seen(state.agents[0]), seen(state.agents[1])),
        late=tuple(
            sent._replace(
                generation=sent.generation and sent.generation - over,
                before=lease(sent.before),
                admitted=sent.admitted - over if sent.admitted > 0 else sent.admitted,
            )
            for sent in state.late
        ),
    )


def _scales_numbered(state: State) -> State:
    names: dict[int, int] = {0: 0, state.scale: 1}
    for version in (state.hub.scale, *(each.scale for each in state.agents), *(each.version for each in state.late)):
        names.setdefault(version, len(names))
    one, other = state.agents
    return state._replace(
        scale=1,
        hub=state.hub._replace(scale=names[state.hub.scale]),
        agents=(one._replace(scale=names[one.scale]), other._replace(scale=names[other.scale])),
        late=tuple(each._replace(version=names[each.version]) if each.kind == "write" else each for each in state.late),
    )


# --- what everybody asks the product's own functions ------------------------------------------------------------------


def _seen(actor: Actor) -> Seen:
    lease = _lease_seen(actor.lease)
    if actor.native is None:
        return Seen(lease)
    uid, version, _, generation, is_closed, is_ended, _, is_deleting, _ = actor.native
    native = NativeSeen(
        KEY, str(uid), str(version), generation, SPEC, is_closed=is_closed, is_ended=is_ended, is_deleting=is_deleting
    )
    return Seen(lease, (native,))


@cache
def _requests(steps: Steps, actor: Actor, judged: Judgement) -> tuple[Sent, ...]:
    asked = steps(_seen(actor), judged, actor.remembered)
    return tuple(_sent(request) for request in asked if not isinstance(request, Renew))  # which changes no hands


def _sent(request: Request) -> Sent:
    match request:
        case CreateLease(holder=holder, generation=generation):
            return Sent("lease", holder, generation)
        case SetHolder(holder=holder, generation=generation, version=version):
            return Sent("holder", holder, generation, before=_lease_of(version))
        case CreateNative(generation=generation):
            return Sent("create", generation=generation)
        case OpenNative(generation=generation, uid=uid, version=version):
            return Sent("open", generation=generation, uid=int(uid), version=int(version))
        case CloseNative(generation=generation, uid=uid, version=version):
            return Sent("close", generation=generation, uid=int(uid), version=int(version))
        case DeleteNative(uid=uid, version=version):
            return Sent("delete", uid=int(uid), version=int(version))
    raise AssertionError(request)


_VERSION = " "


def _lease_of(version: str) -> Lease:
    holder, generation, uid = version.split(_VERSION)
    return Lease(holder, int(generation), int(uid))


@cache
def _lease_seen(lease: Lease | None) -> SeenLease | None:
    if lease is None:
        return None
    return SeenLease(lease.holder, lease.generation, _VERSION.join(map(str, lease)), str(lease.uid))


@cache
def _is_hub(lease: Lease | None) -> bool:
    return not hub_refusal(_lease_seen(lease))


@cache
def _is_stand_in(lease: Lease | None) -> bool:
    return is_stand_in(_lease_seen(lease))


# --- what can happen --------------------------------------------------------------------------------------------------


def moves(state: State, rules: Rules) -> Iterator[tuple[str, State]]:
    """Every next state, with what happened.

    Raises:
        ViolationError: something happens that must not.
    """
    yield from _controller_moves(state, rules)
    if state.fence != state.lease:
        yield "fence", state._replace(fence=state.lease)
    for number in (0, 1):
        yield from _agent_moves(state, rules, number)
    yield from _hub_moves(state, rules)
    yield from _late_moves(state, rules)
    if not state.has_signs:
        yield "signs back", state._replace(has_signs=True)
    if state.failing in ERRORS:
        yield "writes succeed again", state._replace(failing="" if rules.forgets else "remembered")
    if state.native is not None and state.native.is_held:
        yield "finalizer removed", state._replace(native=_released(state.native))
    if state.faults:
        rest = state._replace(faults=state.faults - 1)
        if state.native is not None and not state.native.is_held and rules.may_hold:
            held = state.native._replace(is_held=True, version=state.native.version + 1)
            yield "finalizer added", rest._replace(native=held)
        if state.has_signs:
            yield "signs cut", rest._replace(has_signs=False)
        if state.lease is not None:
            yield "Lease deleted", rest._replace(lease=None, deleted=state.deleted + 1)
        if not state.failing:
            yield "writes fail for lack of rights", rest._replace(failing="rights")
            yield "writes fail for everyone", rest._replace(failing="everyone")


def _controller_moves(state: State, rules: Rules) -> Iterator[tuple[str, State]]:
    """The native HPA controller: one worker, whose knowledge of the object lags, and whose writes may take any time."""
    if not rules.has_controller:
        return
    native, known = state.native, state.known
    now = None if native is None else (native.uid, native.spec, native.is_closed)
    if known != now:
        yield "controller notices", state._replace(known=now)
    if state.is_writing and state.failing == "everyone":
        yield "native write refused", state._replace(is_writing=False)
    elif state.is_writing:
        # What is left keeps its target from the hub, which then writes all others.
        if _is_hub(state.lease) and (native is None or not native.is_left):
            raise ViolationError("a native write is applied while the hub is in charge")
        yield "native write", state._replace(is_writing=False, scale=_moved(state))
    elif known is not None and not known[2]:
        yield "controller begins", state._replace(is_writing=True)
    elif native is not None and known == now and not native.is_ended:
        yield "controller confirms", state._replace(native=_ended(native))


def _agent_moves(state: State, rules: Rules, number: int) -> Iterator[tuple[str, State]]:
    agent = state.agents[number]
    name = f"agent {number + 1}"

    def become(actor: Actor, before: State = state) -> State:
        agents = (actor, before.agents[1]) if number == 0 else (before.agents[0], actor)
        return before._replace(agents=agents)

    if not agent.is_alive:
        yield f"{name} starts", become(Actor())
        return
    yield from ((f"{name} {what}", become(actor)) for what, actor in _looks(state, rules, agent))
    if agent.has_looked:
        judged = _judged(state, rules, agent)
        for sent in _requests(rules.agent, agent, judged):
            yield from _sendings(state, rules, sent, name)
        yield from _writes(state, rules, agent, name)
    if state.faults:
        rest = state._replace(faults=state.faults - 1)
        yield f"{name} crashes", become(Actor(is_alive=False), rest)
        if agent.has_looked and agent.lease is not None:
            for sent in _requests(rules.agent, agent, _judged(state, rules, agent, is_stuck=True)):
                if sent.kind == "holder" and sent not in _requests(rules.agent, agent, judged):
                    yield f"{name} is stuck, {sent.kind}", _after_a_minute(_arrive(rest, rules, sent))


def _after_a_minute(state: State) -> State:
    """What a hand-back that was stuck leaves: looks and writes of an earlier time are over by then."""
    if not _is_hub(state.lease):
        return state

    def seen(actor: Actor) -> Actor:
        return Actor(is_alive=actor.is_alive, remembered=actor.remembered) if _is_hub(actor.lease) else actor

    return state._replace(
        native=state.native and state.native._replace(is_left=True),
        hub=seen(state.hub),
        agents=(seen(state.agents[0]), seen(state.agents[1])),
        late=tuple(each for each in state.late if each.kind != "write"),
    )


def _released(native: Native) -> Native | None:
    return None if native.is_deleting else native._replace(is_held=False, version=native.version + 1)


def _hub_moves(state: State, rules: Rules) -> Iterator[tuple[str, State]]:
    hub = state.hub
    if not hub.is_alive:
        yield "hub starts", state._replace(hub=Actor())
        return
    yield from ((f"hub {what}", state._replace(hub=actor)) for what, actor in _looks(state, rules, hub))
    is_silent = not any(agent.is_alive for agent in state.agents)
    if hub.has_looked:
        yield from _writes(state, rules, hub, "hub")
        if is_silent or state.faults:
            before = state if is_silent else state._replace(faults=state.faults - 1)
            judged = Judgement(is_settled=hub.is_settled or not rules.settles)
            for sent in _requests(rules.rescue, hub, judged):
                yield from _sendings(before, rules, sent, "hub")
    if state.faults:
        yield "hub crashes", state._replace(hub=Actor(is_alive=False), faults=state.faults - 1)


def _late_moves(state: State, rules: Rules) -> Iterator[tuple[str, State]]:
    for place, sent in enumerate(state.late):
        rest = state._replace(late=state.late[:place] + state.late[place + 1 :])
        if sent.admitted != NOT_ADMITTED:
            yield f"late {sent.kind} carried out", _carry_out(rest, rules, sent)
        elif not rules.has_fence:
            yield f"late {sent.kind} arrives", _carry_out(rest, rules, sent)
        elif not _admits(rules, state, sent):
            yield f"late {sent.kind} refused", rest
        else:
            admitted = sent._replace(admitted=_order_of(state.fence))
            yield f"late {sent.kind} admitted", rest._replace(late=(*rest.late, admitted))


def _looks(state: State, rules: Rules, actor: Actor) -> Iterator[tuple[str, Actor]]:
    """Look again, at once or after the time in which a change of hands has settled: a look before does not count."""
    lease = state.lease
    is_same = actor.lease is not None and lease is not None and actor.lease[:2] == lease[:2]
    looked = Actor(
        has_looked=True,
        lease=lease,
        native=state.native,
        scale=state.scale,
        is_settled=actor.is_settled and is_same,
        remembered=0 if lease is not None else max(actor.remembered, actor.lease.generation if actor.lease else 0),
    )
    if looked != actor:
        yield "looks", looked
    if lease is not None and is_same and not looked.is_settled and _may_settle(state, lease):
        yield "looks after a while", looked._replace(is_settled=True)


def _may_settle(state: State, lease: Lease) -> bool:
    """Whether so much time can have passed since this Lease was seen: the fence has seen it, too, and what an older
    fence admitted is over.
    """
    has_fence_seen = state.fence in (lease, state.lease)
    return has_fence_seen and not any(NOT_ADMITTED < sent.admitted < _order_of(lease) for sent in state.late)


def _order_of(lease: Lease | None) -> int:
    """A number that rises with each change of hands, also where a Lease that was created anew repeats a generation."""
    return 0 if lease is None else lease.uid * _UIDS + lease.generation


def _judged(state: State, rules: Rules, agent: Actor, *, is_stuck: bool = False) -> Judgement:
    # Where no native controller runs, nothing is kept for it, so that no decisions are expected either.
    is_heard = (state.has_signs and state.hub.is_alive) or not rules.has_controller
    is_counted = state.failing == "remembered" or _is_counted(rules.counts, state.failing)
    # As the failures are the hub's, they count only while it is in charge.
    is_silent = not is_heard or (is_counted and (_is_hub(agent.lease) or not rules.forgets))
    # That the hub is tried again while its writes still fail is a return followed by another fault: else the generation
    # would rise for ever.
    is_proven = is_heard and not is_silent and not (is_counted and rules.has_controller)
    return _judgement(is_silent, is_proven, agent.is_settled or not rules.settles, is_stuck)


@cache
def _is_counted(counts: Counts, failing: Failing) -> bool:
    return bool(failing) and counts(ERRORS[failing])


@cache
def _judgement(is_silent: bool, is_proven: bool, is_settled: bool, is_stuck: bool) -> Judgement:
    return Judgement(is_hub_silent=is_silent, is_hub_proven=is_proven, is_settled=is_settled, is_stuck=is_stuck)


def _writes(state: State, rules: Rules, actor: Actor, name: str) -> Iterator[tuple[str, State]]:
    """A decision of the hub is written, by the hub itself or by an agent, who saw that the hub is in charge."""
    if _is_hub(actor.lease) and (actor.native is None or not rules.has_controller):  # `StandIn.blocks`
        yield from _sendings(state, rules, Sent("write", version=actor.scale), name)


def _sendings(state: State, rules: Rules, sent: Sent, name: str) -> Iterator[tuple[str, State]]:
    if rules.touches and sent.kind == "create":
        state = state._replace(scale=_moved(state))
    now = _arrive(state, rules, sent)
    if now != state:
        yield f"{name}: {sent.kind} {sent.holder}", now
    if state.faults and sent.kind in rules.late and sent not in state.late:
        yield (
            f"{name}: {sent.kind} {sent.holder}, late",
            state._replace(late=(*state.late, sent), faults=state.faults - 1),
        )


def _arrive(state: State, rules: Rules, sent: Sent) -> State:
    return _carry_out(state, rules, sent) if _admits(rules, state, sent) else state


def _admits(rules: Rules, state: State, sent: Sent) -> bool:
    """The API server with the admission policy, as `reconciler.agents.standin.objects` writes it."""
    fence = state.fence
    if state.failing in ERRORS and (sent.kind == "write" or (state.failing == "everyone" and sent.kind == "create")):
        return False
    if not rules.has_fence:
        return True
    if sent.kind == "write":
        return _is_hub(fence)
    if sent.kind in ("create", "open"):
        is_generation = fence is not None and fence.generation == sent.generation
        return _is_stand_in(fence) and (is_generation or not rules.has_generation)
    return True


def _carry_out(state: State, rules: Rules, sent: Sent) -> State:
    match sent.kind:
        case "lease" | "holder":
            return _set_lease(state, rules, sent)
        case "write":
            return _write(state, rules, sent)
        case "create":
            if state.native is not None:
                return state
            return state._replace(native=Native(_uid(state), 1, 1, sent.generation, is_closed=False, is_ended=False))
    native = state.native
    is_version = native is not None and (native.version == sent.version)
    if native is None or native.uid != sent.uid or not is_version:
        return state
    if sent.kind == "delete" and native.is_held:
        return state._replace(native=native._replace(is_deleting=True, version=native.version + 1))
    if sent.kind == "delete":
        return state._replace(native=None)
    version = native.version + 1
    native = native._replace(version=version, generation=sent.generation)
    if sent.kind == "open" or not native.is_closed:
        native = native._replace(spec=version, is_closed=sent.kind == "close", is_ended=False)
    return state._replace(native=native)


def _ended(native: Native) -> Native:
    return native._replace(is_ended=True, version=native.version + 1)


def _uid(state: State) -> int:
    """A uid that nobody knows."""
    seen = [actor.native.uid for actor in (state.hub, *state.agents) if actor.native is not None]
    seen += [sent.uid for sent in state.late]
    return 1 + max((*seen, state.known[0] if state.known is not None else 0))


def _moved(state: State) -> int:
    """A version of the target that nobody knows; 0 where versions of it do not count."""
    if not state.scale:
        return 0
    return 1 + max(
        state.scale, state.hub.scale, *(each.scale for each in state.agents), *(s.version for s in state.late)
    )


def _set_lease(state: State, rules: Rules, sent: Sent) -> State:
    if sent.kind == "lease":
        is_met = state.lease is None
    else:
        is_met = state.lease is not None and (state.lease == sent.before or not rules.compares)
    return state._replace(lease=Lease(sent.holder, sent.generation, state.deleted)) if is_met else state


def _write(state: State, rules: Rules, sent: Sent) -> State:
    """A write of the hub reaches `/scale`.

    Where there is a fence, the version of the target is not looked at: it would make the write fail more often.
    """
    if rules.touches and state.scale != sent.version:
        return state
    native = state.native
    is_harmless = native is None or _is_over(native, rules) or (native.is_left and not rules.has_controller)
    if not is_harmless:
        raise ViolationError("a write of the hub is applied while a native HPA of ours exists")
    if state.is_writing or (state.known is not None and not state.known[2]):
        raise ViolationError("a write of the hub is applied while a native write can still come")
    return state._replace(scale=_moved(state))


def _is_over(native: Native, rules: Rules) -> bool:
    """Whether no write can come from a native HPA that is held."""
    return native.is_closed and native.is_deleting and (native.is_ended or not rules.has_controller)


def check(state: State, rules: Rules) -> None:
    """What must hold in every state.

    Raises:
        ViolationError: it does not.
    """
    if (
        state.native is not None
        and _is_hub(state.lease)
        and not (_is_over(state.native, rules) or state.native.is_left)
    ):
        raise ViolationError("the hub holds the Lease while a native HPA of ours exists")


# --- never nobody for ever --------------------------------------------------------------------------------------------


def is_somebody_due(state: State) -> bool:
    """Whether somebody must be in charge in the end: an agent is alive, or a hub with access that may lead."""
    is_agent_alive = any(agent.is_alive for agent in state.agents)
    return is_agent_alive or (state.hub.is_alive and state.has_signs and state.lease is not None)


def is_in_charge(state: State, rules: Rules) -> bool:
    """Whether the right one scales, or `get clusters` shows which writes fail, so that nobody does.

    The right one is the hub if it lives, reaches the cluster and may write, else the native controller, where one runs.
    """
    is_heard = state.has_signs and state.hub.is_alive
    is_stand_in_due = rules.has_controller and (not is_heard or state.failing == "rights")
    if not is_stand_in_due or not any(agent.is_alive for agent in state.agents):
        is_left = state.native is not None and not state.native.is_held  # of one that is held, `StandIn.trouble` tells
        if not _is_hub(state.lease) or state.fence != state.lease or is_left:
            return False
        # A hub that is away wants no writes, and is itself what is shown.
        return state.failing not in ERRORS or not is_heard or _is_shown(state.lease, state.failing, rules.shows)
    if not _is_stand_in(state.lease):
        return False
    if state.failing == "everyone":
        return _is_shown(state.lease, state.failing, rules.shows)
    return state.native is not None and (not state.native.is_closed or state.native.is_deleting)  # which is shown, too


@cache
def _is_shown(lease: Lease | None, failing: Failing, shows: bool) -> bool:
    """Whether `get clusters` names the error, once the agent has reported it as `AgentTerm` does."""
    error, holder, generation = ERRORS[failing], *(lease[:2] if lease is not None else ("", 0))
    problem = "; ".join(filter(None, (hub_refusal(_lease_seen(lease)), error if shows else "")))
    hands = ControlRow([(0, holder, generation)])
    cluster = ClusterView("model", reported_ms=0, served=ServedRow(0, problem), modes={"enforce": 1}, hands=hands)
    return any(error in trouble.text for trouble in cluster.troubles)


def what_lasts(state: State) -> tuple[object, ...]:
    """All of a state that `at_rest` looks at."""
    one, other = state.agents
    alive = (one.is_alive, one.remembered, other.is_alive, other.remembered, state.hub.is_alive, state.has_signs)
    return (state.lease, state.native, state.deleted, state.scale, state.failing, *alive)


def at_rest(state: State, rules: Rules) -> State:
    """What remains of a state where nothing goes wrong any more: what was late is lost, and everybody looks anew."""
    native = state.native
    if native is not None and native.is_closed and not native.is_ended:
        native = _ended(native)
    one, other = (Actor(is_alive=each.is_alive, remembered=each.remembered) for each in state.agents)
    return canonical(
        State(
            lease=state.lease,
            fence=state.lease,
            native=native,
            known=native and (native.uid, native.spec, native.is_closed),
            is_writing=False,
            hub=Actor(is_alive=state.hub.is_alive),
            agents=(one, other),
            has_signs=state.has_signs,
            late=(),
            deleted=state.deleted,
            scale=min(state.scale, 1),
            faults=0,
            failing=state.failing,
        ),
        rules,
    )


def quiet_round(state: State, rules: Rules) -> State:
    """From one state at rest to the next: everybody has a turn."""
    for number in (0, 1):
        if state.agents[number].is_alive:
            state = _turn(state, rules, number)
    if state.hub.is_alive and not any(agent.is_alive for agent in state.agents):
        hub = _looked(state, rules, state.hub)
        judged = Judgement(is_settled=True)
        for sent in _requests(rules.rescue, hub, judged):
            state = _arrive(state, rules, sent)
    return at_rest(state, rules)


def _turn(state: State, rules: Rules, number: int) -> State:
    agent = _looked(state, rules, state.agents[number])
    agents = (agent, state.agents[1]) if number == 0 else (state.agents[0], agent)
    state = state._replace(agents=agents)
    for sent in _requests(rules.agent, agent, _judged(state, rules, agent)):
        state = _arrive(state, rules, sent)
    return state


def _looked(state: State, rules: Rules, actor: Actor) -> Actor:
    remembered = actor.remembered if state.lease is None else 0
    return Actor(True, True, state.lease, state.native, state.scale, is_settled=True, remembered=remembered)
