"""CapacityGroups in the state: what its members (HPAs) may add, and the division in the partition that decides for it.

Partitions meet in messages only, as for a FleetHPA (docs/decisions/0017-across-clusters.md). Every partition knows the
groups; a member reports after its evaluations to the partition of `@capacity/NAME`, which allots. A member without a
fresh allotment adds nothing (`Hold`) or what it wants (`Open`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from msgspec import structs

from schemas import limits
from schemas.capacity import (
    CAPACITY,
    MOST_USE,
    UNITS_ANNOTATION,
    CapacityAllotment,
    CapacityGroupSet,
    CapacityLimit,
    CapacityMatch,
    CapacityReport,
    parse_units,
)
from schemas.decisions import Step
from schemas.keys import HpaId, parse_hpa_id
from schemas.limits import share_of
from streams.across.allotments import CapacityLeft, allot_capacity, outstanding, reported, used
from streams.across.fleet import is_seen
from streams.hpa.evaluation import Pending
from streams.hpa.observation import NO_PODS, SeenPods, TargetPods
from streams.state.acrossrows import (
    CAPACITY_LASTS_MS,
    CapacityMember,
    CeilingRow,
    ClaimReport,
    ClaimRow,
    GroupRow,
    MemberReport,
)
from streams.state.clustersettings import Effective
from streams.state.hpastate import OUTCOME_WAIT_MS, WRITE_TTL_MS, Hpa
from streams.state.namespace import Namespace
from streams.state.partitionstate import Message, State
from streams.state.rows import NOTHING

if TYPE_CHECKING:
    from streams.state.fold import EntryFold

LASTS_MS: Final = CAPACITY_LASTS_MS
"""How long an allotment lasts, in log time."""
SETTLES_MS: Final = LASTS_MS + WRITE_TTL_MS + OUTCOME_WAIT_MS
"""How long a new group allots nothing: until what a deleted one of its name allotted has ended and was written."""
GATHERS_MS: Final = 1_000
"""How long after a report the group is divided, so that of HPAs that ask together the one with priority comes first."""
REPEATS_MS: Final = 15_000
"""How often allotments that no report shows are sent again, and old ones are made anew."""
REPORTS_MS: Final = 30_000
"""How often a member reports the same again."""
FORGETS_MS: Final = 3_600_000
"""How long a member that has not reported is counted, unless its report shows that it left."""
_MEMBER_BYTES: Final = 160
"""What a member takes beside its name, at most."""


# --- groups, in every partition ---------------------------------------------------------------------------------------


class _Derived:
    """Values derived from the groups of a partition, until one of them changes."""

    def __init__(self, groups: Mapping[str, GroupRow]) -> None:
        self.matches = {name: CapacityMatch(row.spec) for name, row in sorted(groups.items())}
        self.due_ms = 0
        """When the first group of this partition is to be divided."""
        self.priorities: dict[HpaId, tuple[bytes, Mapping[str, int]]] = {}
        """HPA -> its object, and the groups that this makes it a member of, with its priority there."""

    @classmethod
    def of(cls, state: State) -> _Derived:
        known = state.derived.get(cls)
        if known is None:
            known = state.derived[cls] = cls(state.row.groups)
        assert isinstance(known, cls)
        return known


def fold_group(fold: EntryFold, body: CapacityGroupSet) -> None:
    """Fold a group that was applied, changed or deleted. Under a new revision what its members may have is counted as
    before.
    """
    state = fold.state
    row, name = state.row, body.name
    known = row.groups.get(name)
    if body.spec is None:
        state.drop_bounded(limits.ALL_GROUPS, row.groups, name)
        row.ceilings.pop(name, None)
    else:
        taken_ms = state.now_ms if known is None else known.taken_ms
        group = GroupRow(body.revision, body.spec, taken_ms, body.stated_by)
        if not state.put_or_refuse(limits.ALL_GROUPS, row.groups, name, group):
            return
        ceiling = row.ceilings.get(name)
        if known is not None and ceiling is not None and known.revision != body.revision:
            members = {
                key: structs.replace(each, account=each.account.of_new_spec) for key, each in ceiling.members.items()
            }
            row.ceilings[name] = structs.replace(ceiling, members=members, first_ms=state.now_ms)
    state.derived.pop(_Derived, None)


def after_loss(state: State) -> None:
    """Let each group begin anew where what it had allotted is lost: it allots nothing until that has ended."""
    for name, each in state.row.groups.items():
        state.row.groups[name] = structs.replace(each, taken_ms=state.now_ms)


# --- a member ---------------------------------------------------------------------------------------------------------


def _priorities(state: State, hpa: Hpa) -> Mapping[str, int]:
    """Return the groups that an HPA is of, and its priority there. Of a FleetHPA, its HPAs in clusters are members."""
    if not state.row.groups:
        return NOTHING
    derived = _Derived.of(state)
    known = derived.priorities.get(hpa.id)
    if known is not None and known[0] is hpa.row.hpa:
        return known[1]
    priorities: dict[str, int] = {}
    if hpa.row.fleet is None:
        labels = hpa.row.hpa_object()["metadata"].get("labels") or {}
        for name, group in derived.matches.items():
            priority = group.priority(hpa.id.cluster, hpa.id.namespace, labels)
            if priority is not None:
                priorities[name] = priority
    derived.priorities[hpa.id] = (hpa.row.hpa, priorities)
    return priorities


def capacity_left(state: State, hpa: Hpa, settings: Effective, pods: SeenPods) -> CapacityLeft | None:
    """Return what the tightest of the HPA's groups leaves; None: nothing bounds it."""
    tightest: CapacityLeft | None = None
    for name in _priorities(state, hpa):
        group = state.row.groups[name]
        if not weight(hpa, group.spec.limit, settings, pods):
            continue
        claim = hpa.row.claims.get(name)
        if claim is not None and claim.revision == group.revision and _is_fresh(claim, state.now_ms):
            use = (claim.used, claim.share, claim.number)
            left = CapacityLeft(name, group.spec.limit, claim.replicas, use)
        elif group.spec.when_unknown == "Open":
            continue
        else:
            left = CapacityLeft(name, group.spec.limit, 0)
        if tightest is None or left.most < tightest.most:
            tightest = left
    return tightest


def _is_fresh(claim: ClaimRow, now_ms: int) -> bool:
    return claim.number > 0 and now_ms < claim.until_ms


def weight(hpa: Hpa, limit: CapacityLimit, settings: Effective, pods: SeenPods) -> int:
    """Return what one replica of an HPA uses of a limit, as `replica_use`."""
    is_central = hpa.row.origin == "central"
    return replica_use(hpa.annotation(UNITS_ANNOTATION), limit, settings, pods, is_central=is_central)


def replica_use(
    annotation: str, limit: CapacityLimit, settings: Effective, pods: SeenPods, *, is_central: bool = True
) -> int:
    """Return what one replica uses of a limit; 0: nothing, or nobody knows.

    Units: what the annotation `fleethpa.io/units` says, else (empty) the most that one of the pods requests. An
    annotation of a cluster's own HPA is the tenant's to write: it counts as far as its pods request as much.
    """
    if limit.kind == "replicas":
        return 1
    if limit.kind == "cost":
        return settings.price
    stated: int | None = None
    if annotation:
        try:
            stated = parse_units(annotation).get(limit.name, 0)
        except ValueError:
            stated = 0
    if stated is not None and is_central:
        return stated
    rows = pods.rows if isinstance(pods, TargetPods) else NO_PODS.rows
    requested = [pod.template.request(limit.name, "", settings.controller.rules) for pod in rows]
    request = min(MOST_USE, max([each for each in requested if isinstance(each, int)], default=0))
    return request if stated is None else min(MOST_USE, max(request, min(stated, limits.UNITS_FACTOR.most * request)))


def take_allotment(hpa: Hpa, body: CapacityAllotment, now_ms: int) -> bool:
    """Take an allotment; say whether the HPA is to be evaluated at once, as one that waits may add replicas now."""
    claim = hpa.row.claims.get(body.group)
    if claim is None or body.revision != claim.revision or body.number <= claim.number:
        return False
    is_new = claim.waits and body.replicas > (claim.replicas if _is_fresh(claim, now_ms) else 0)
    after = structs.replace(
        claim,
        number=body.number,
        replicas=body.replicas,
        until_ms=min(body.until, now_ms + LASTS_MS),  # the group's log time may be ahead
        used=body.used,
        share=body.share,
        is_new=is_new,
    )
    hpa.row.claims = {**hpa.row.claims, body.group: after}
    return is_new


def is_awaited(hpa: Hpa) -> bool:
    """Return whether an allotment has come for which the HPA is evaluated before its time."""
    claims = hpa.row.claims
    return bool(claims) and any([each.is_new for each in claims.values()])


def report(
    state: State,
    namespace: Namespace,
    hpa: Hpa,
    settings: Effective,
    pods: SeenPods,
    current: int | None,
    wanted: Pending | None = None,
    cut: Step | None = None,
) -> list[Message]:
    """Return what an HPA reports to its groups after an evaluation, and note it; nothing where it says the same again.

    Args:
        current: replicas of its scale; None: they cannot be read.
        wanted: the write that begins now.
        cut: how a group cut that write.
    """
    row, now_ms = hpa.row, state.now_ms
    priorities = _priorities(state, hpa)
    if not priorities and not row.claims:
        return []
    messages = [_left(hpa, name, claim, state) for name, claim in row.claims.items() if name not in priorities]
    # What the scale says alone is the tenant's to write: it counts as far as pods run, or as it was allotted.
    counts_allotted = wanted is not None or cut is not None or row.mode == "enforce"
    may_send = current is not None and is_seen(namespace, now_ms)
    claims: dict[str, ClaimRow] = {}
    for name, priority in priorities.items():
        group = state.row.groups[name]
        claim = _present(row.claims.get(name), group.revision, waits=cut is not None)
        runs = max(pods.running_ready, claim.replicas if counts_allotted else 0)
        has = min(current or 0, runs)
        use = weight(hpa, group.spec.limit, settings, pods)
        what = _to_report(claim, has, use, priority, wanted, cut, is_fresh=_is_fresh(claim, now_ms))
        if may_send and (what != claim.reported or now_ms - claim.reported_ms >= REPORTS_MS):
            claim = structs.replace(claim, reported=what, reported_ms=now_ms)
            messages.append(_message(hpa, name, claim, state, what))
        claims[name] = claim
    row.claims = claims
    return [each for each in messages if each is not None]


def _present(claim: ClaimRow | None, revision: int, *, waits: bool) -> ClaimRow:
    """Return what an HPA has of a group in its present revision, once an evaluation has used the newest allotment.

    `waits`: the group has cut the write of that evaluation.
    """
    if claim is None or claim.revision != revision:
        claim = ClaimRow(revision, 0 if claim is None else claim.number)
    return structs.replace(claim, waits=waits, is_new=False) if claim.is_new or claim.waits != waits else claim


def _to_report(
    claim: ClaimRow, has: int, use: int, priority: int, wanted: Pending | None, cut: Step | None, *, is_fresh: bool
) -> ClaimReport:
    """Return what an HPA with `has` replicas reports, of which each uses `use`; a write that begins now counts."""
    if wanted is not None:
        has = max(has, wanted.desired_replicas)
    wants = has if wanted is None else wanted.desired_replicas
    return ClaimReport(
        obeys=claim.number,
        has_ended=not is_fresh,
        has=has,
        most=max(has, claim.replicas if is_fresh else 0),
        wants=wants if cut is None else cut.in_,
        weight=use,
        priority=priority,
    )


def leave(state: State, hpa: Hpa) -> list[Message]:
    """Return what an HPA that is evaluated no longer reports to its groups, which then count it no longer."""
    messages = [_left(hpa, name, claim, state) for name, claim in hpa.row.claims.items()]
    hpa.row.claims = NOTHING
    _Derived.of(state).priorities.pop(hpa.id, None)
    return [each for each in messages if each is not None]


def _left(hpa: Hpa, name: str, claim: ClaimRow, state: State) -> Message | None:
    if name not in state.row.groups:
        return None
    what = ClaimReport(claim.number, has_ended=True, has=0, most=0, wants=0, weight=0, priority=0)
    return _message(hpa, name, claim, state, what, has_left=True)


def _message(
    hpa: Hpa, name: str, claim: ClaimRow, state: State, what: ClaimReport, *, has_left: bool = False
) -> Message:
    body = CapacityReport(
        group=name,
        cluster=hpa.id.cluster,
        namespace=hpa.id.namespace,
        name=hpa.id.name,
        revision=claim.revision,
        at=max(0, state.offset),
        **what._asdict(),
        has_left=has_left,
    )
    return Message(CAPACITY, name, state.now_ms, body)


# --- the group --------------------------------------------------------------------------------------------------------


def fold_report(fold: EntryFold, body: CapacityReport) -> None:
    """Book what an HPA reports to a group. One of another revision, or of more members than there may be, changes
    nothing.
    """
    state = fold.state
    row, name = state.row, body.group
    group = row.groups.get(name)
    if group is None or group.revision != body.revision:
        return
    ceiling = row.ceilings.get(name, CeilingRow())
    key = str(HpaId(body.cluster, body.namespace, body.name))
    known = ceiling.members.get(key)
    if known is None and (body.has_left or not _has_room(state, name, key)):
        return
    reported_now = MemberReport(body.obeys, body.has, body.most, body.has_ended)
    member = reported(
        known or CapacityMember(),
        reported_now,
        wants=body.wants,
        weight=body.weight,
        priority=body.priority,
        at=body.at,
        now_ms=state.now_ms,
    )
    if member is known:
        return
    members, size = ceiling.members | {key: member}, ceiling.size
    if known is None:
        size += _size(key)
    elif body.has_left:
        del members[key]
        size -= _size(key)
    first_ms = ceiling.first_ms
    if not first_ms and (known is None or body.has_left or body.has_ended or _asks(member) != _asks(known)):
        first_ms = state.now_ms
    row.ceilings[name] = structs.replace(ceiling, members=members, first_ms=first_ms, size=size)
    derived = _Derived.of(state)
    derived.due_ms = min(derived.due_ms, _due_ms(row.ceilings[name]))


def _asks(member: CapacityMember) -> tuple[int, ...]:
    """Return what a division reads of a member: while it is the same, allotments are only made anew in time."""
    return member.account.counted, member.has, member.wants, member.weight, member.priority


def _has_room(state: State, name: str, key: str) -> bool:
    ceilings = state.row.ceilings
    own = ceilings.get(name, CeilingRow()).members
    size = sum([each.size for each in ceilings.values()])
    hpa = parse_hpa_id(key)
    place = f"{hpa.cluster}/{hpa.namespace}/"
    neighbours = sum([each.startswith(place) for each in own])
    of_place = sum([_size(each) for row in ceilings.values() for each in row.members if each.startswith(place)])
    for limit, held, shared, more in (
        (limits.CAPACITY_MEMBERS, len(own), neighbours, 1),
        (limits.ALL_MEMBERS, size, of_place, _size(key)),
    ):
        # The first of a namespace is within its share, however small that is.
        if held + more > limit.most or (shared and shared + more > share_of(limit.most)):
            state.refuse(hpa.cluster, limit, key)
            return False
    return True


def _size(key: str) -> int:
    """Return what a member takes, in bytes."""
    return len(key) + _MEMBER_BYTES


def capacity_turns(state: State) -> list[Message]:
    """Divide the groups that are due, and give the allotments to send."""
    if not state.row.ceilings:
        return []
    derived = _Derived.of(state)
    if state.now_ms < derived.due_ms:
        return []
    messages: list[Message] = []
    for name in sorted(state.row.ceilings):
        if _due_ms(state.row.ceilings[name]) <= state.now_ms:
            messages += _divide(state, name)
    derived.due_ms = min(map(_due_ms, state.row.ceilings.values()))
    return messages


def _due_ms(ceiling: CeilingRow) -> int:
    repeat_ms = ceiling.sent_ms + REPEATS_MS
    return min(repeat_ms, ceiling.first_ms + GATHERS_MS) if ceiling.first_ms else repeat_ms


def _divide(state: State, name: str) -> Iterator[Message]:
    row, now_ms, group = state.row, state.now_ms, state.row.groups[name]
    ceiling = row.ceilings[name]
    repeats = now_ms - ceiling.sent_ms >= REPEATS_MS
    before = {key: each for key, each in ceiling.members.items() if now_ms - each.taken_ms <= FORGETS_MS}
    after = before
    if now_ms - group.taken_ms >= SETTLES_MS:
        after = allot_capacity(group.spec.limit.count, before, now_ms=now_ms, lasts_ms=LASTS_MS)
    size = ceiling.size if len(after) == len(ceiling.members) else sum(map(_size, after))
    row.ceilings[name] = CeilingRow(after, 0, now_ms if repeats else ceiling.sent_ms, size)
    in_use: int | None = None
    for key, allotment in outstanding({key: each.account for key, each in after.items()}):
        member = after[key]
        if repeats or member is not before[key]:
            hpa, in_use = parse_hpa_id(key), used(after) if in_use is None else in_use
            body = CapacityAllotment(
                group=name,
                name=hpa.name,
                revision=group.revision,
                number=allotment.number,
                replicas=allotment.replicas,
                until=member.until_ms,
                used=in_use,
                share=allotment.replicas * member.weight,
            )
            yield Message(hpa.cluster, hpa.namespace, now_ms, body)


# --- entries ----------------------------------------------------------------------------------------------------------


def fold_allotment(fold: EntryFold, body: CapacityAllotment) -> None:
    """Fold what a CapacityGroup allotted to an HPA."""
    hpa = fold.live(body.name)
    if hpa is not None:
        if take_allotment(hpa, body, fold.now_ms):
            fold.state.ready_or_due.add(hpa.id)
        hpa.dirty = True
