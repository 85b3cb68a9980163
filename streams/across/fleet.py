"""FleetHPAs in the state: the FleetHPA itself (the parent, of cluster `@fleet`), and its members, the HPA in each of
its clusters.

Partitions meet in messages only (docs/decisions/0017-across-clusters.md). A member reports with each evaluation at its
own time; the FleetHPA is evaluated once all clusters have, divides the total, and allots. A member that gets an
allotment is evaluated at once, and wants that share in place of what its metrics ask for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from msgspec import structs

from schemas import limits
from schemas.decisions import Step
from schemas.entries import FleetAllotment, FleetReport, FleetReportItem
from schemas.observed import AutoscalerSet
from streams.across.allotments import allot, booked, obeyed, outstanding
from streams.across.bounds import ClusterNeed, FleetBounds, fleet_bounds, need_of
from streams.across.division import NO_SHARES, ROOM, Divided, capped, caps_of, next_division, next_room
from streams.hpa.autoscaler import Autoscaler, ControllerSettings
from streams.hpa.evaluation import Evaluation, History, Pending
from streams.hpa.metrics import JoinedObservation
from streams.hpa.normalize import scale_up_limit
from streams.hpa.observation import PodCounts, Scale, ScaleFailure
from streams.hpa.parts import (
    PartObservation,
    SeenPart,
    added_up,
    changed,
    fits,
    joined,
    newest_events,
    seen_part,
    totals,
    within,
    written_part,
)
from streams.hpa.rules import Rules
from streams.state.acrossrows import KEEP, Account, Allotment, FleetRow, MemberReport, MemberRoom, PartRow, ShareRow
from streams.state.logtime import STEP_LIMIT_MS
from streams.state.namespace import Namespace
from streams.state.partitionstate import Message
from streams.state.rows import HpaRow
from streams.state.timing import ANSWER_WAIT_MS, Turn, slack_ms

if TYPE_CHECKING:
    from streams.state.fold import EntryFold

CONSTRAINT: Final = "FleetHPA"
AWAY_PERIODS: Final = 2
"""A cluster that has not reported for so many sync periods is away."""
MOVED_PERCENT: Final = 5
"""Where what all clusters show of a metric has changed by more than this since the last evaluation, the next one does
not wait for all of them.
"""
SILENCE_MS: Final = 30_000
"""How long a cluster whose scales are not seen still reports. After that it reports nothing, and so becomes away."""
NO_REPORT: Final = "no cluster has reported on its replicas"
NOT_ALL: Final = "not all clusters have reported on their replicas yet"


def take_revision(row: HpaRow, body: AutoscalerSet, now_ms: int) -> None:
    """Take over what an object says of a FleetHPA; under a new revision nothing is known of the other side."""
    if body.revision == row.revision:
        return
    fleet, row.revision = row.fleet, body.revision
    share = row.share or ShareRow()
    share = ShareRow(share.number, returns=share.returns, reported_ms=share.reported_ms)
    row.share = share if body.revision and body.fleet is None else None
    row.fleet = None
    if body.fleet is not None:
        known = {} if fleet is None else fleet.accounts
        names = [each.name for each in body.fleet.clusters]
        accounts = {name: known.get(name, Account()).of_new_spec for name in names}
        begun = () if fleet is None else tuple([name for name in fleet.begun if name in accounts])
        row.fleet = FleetRow(body.fleet, now_ms, accounts, begun=begun)


# --- a member ---------------------------------------------------------------------------------------------------------


def take_allotment(row: HpaRow, body: FleetAllotment) -> bool:
    """Take a share; say whether it is a new one."""
    share = row.share
    if share is None or body.revision != row.revision:
        return False
    received = Allotment(body.number, KEEP if body.replicas is None else body.replicas)
    if obeyed(Allotment(share.number, share.replicas), received) is not received:
        return False
    if body.replicas is not None and body.returns != share.returns:
        return False  # from before it was away
    row.share = structs.replace(
        share, number=received.number, replicas=received.replicas, decision=body.decision, is_new=True
    )
    return True


def share_now(share: ShareRow, now_ms: int, period_ms: int) -> ShareRow:
    """Return the share that a cluster obeys now: none that is older than an absence. While a cluster does not report,
    what it has may be given to others; so it keeps what it has until it gets a share again.
    """
    if not share.reported_ms or now_ms - share.reported_ms <= _longest_ms(period_ms):
        return share
    return ShareRow(share.number, is_new=False, returns=share.returns + 1, reported_ms=now_ms)


def is_seen(namespace: Namespace, now_ms: int) -> bool:
    """Return whether a cluster shows its scales: an observer that says nothing for 30 s, or that cannot read them for
    so long, leaves only what was there before. Where none has ever sent a heartbeat, nothing is known against it.
    """
    watch = namespace.watches.get("scales")
    return watch is None or now_ms - watch.reported_ms <= SILENCE_MS


def report(row: HpaRow, share: ShareRow, part: PartObservation, wanted: Pending | None) -> FleetReportItem | None:
    """Return what a member reports after an evaluation; None: it cannot say what it has.

    Args:
        wanted: the write that begins now.
    """
    if not isinstance(part.scale, Scale):
        return None
    had = part.scale.spec_replicas
    after = had if wanted is None else wanted.desired_replicas
    return FleetReportItem(
        row.name, row.revision, share.number, min(had, after), max(had, after), written_part(part), share.returns
    )


# --- the FleetHPA -----------------------------------------------------------------------------------------------------


def after_loss(fleet: FleetRow, offset: int, now_ms: int) -> FleetRow:
    """Return what a FleetHPA knows where what it had allotted is lost: nothing, until each cluster obeys this log
    offset as a number. That is above all former ones, since a record brings at most one allotment to each cluster.
    """
    return FleetRow(fleet.spec, now_ms, {name: each.fenced(offset) for name, each in fleet.accounts.items()})


def take_report(
    fleet: FleetRow, revision: int, member: str, at_ms: int, item: FleetReportItem, now_ms: int
) -> FleetRow:
    """Book what a cluster reported; of another revision, or from one that takes no part, it changes nothing.

    Args:
        at_ms: when it was reported, by the cluster's own log time.
    """
    account = fleet.accounts.get(member)
    if account is None or item.revision != revision:
        return fleet
    # More than its own maxReplicas does not count: it would leave the others nothing.
    most = fleet.most_of(member)
    reported_now = MemberReport(item.obeys, min(item.replicas, most), min(item.most, most), returns=item.returns)
    accounts = fleet.accounts
    is_same = account.report == reported_now
    if not is_same and (after := booked(account, reported_now)) is not account:
        accounts = accounts | {member: after}
    known = fleet.parts.get(member)
    if at_ms - now_ms > STEP_LIMIT_MS:
        at_ms = now_ms  # its log time is wrong, and will be set right: what it reports then is not older
    if known is not None and at_ms <= known.at_ms:
        # It came late, or again.
        return fleet if accounts is fleet.accounts else structs.replace(fleet, accounts=accounts)
    row = PartRow(now_ms, at_ms, item.part)
    parts = fleet.parts | {member: row}
    moved_ms, drift, fresh = fleet.moved_ms, fleet.drift, fleet.fresh
    if not moved_ms:
        is_like = known is not None and is_same and _seen_part(row).rest == _seen_part(known).rest
        if known is not None and is_like:
            drift = changed(drift, _seen_part(known), _seen_part(row))
        if not is_like or _has_moved(fleet.totals, drift):
            moved_ms = now_ms
    return structs.replace(
        fleet,
        accounts=accounts,
        parts=parts,
        fresh=fresh if member in fresh else (*fresh, member),
        first_ms=fleet.first_ms or now_ms,
        moved_ms=moved_ms,
        drift=drift,
    )


def _seen_part(row: PartRow) -> SeenPart:
    """Return the part that a cluster reported."""
    return row.read_by(seen_part)


def _part(fleet: FleetRow, name: str) -> PartObservation:
    """Return the newest part of a cluster, which has reported."""
    return _seen_part(fleet.parts[name]).part


def _has_moved(before: tuple[int, ...], drift: tuple[int, ...]) -> bool:
    """Return whether what all clusters show of a metric has changed by more than MOVED_PERCENT."""
    if len(before) != len(drift):
        return True
    return any([100 * abs(more) > MOVED_PERCENT * abs(total) for total, more in zip(before, drift, strict=True)])


def away(fleet: FleetRow, now_ms: int, period_ms: int) -> list[str]:
    """Name the clusters that have not reported for two sync periods, in the order of the spec."""
    since_ms = now_ms - _longest_ms(period_ms)
    if fleet.taken_ms >= since_ms:
        return []
    parts = fleet.parts
    return [name for name in fleet.accounts if name not in parts or parts[name].taken_ms < since_ms]


def spilled(fleet: FleetRow, now_ms: int, period_ms: int) -> list[str]:
    """Name the clusters that have been away for so long that what they have does not count any more."""
    after_ms = fleet.spec.away_spill_after_ms
    if not after_ms or not (gone := away(fleet, now_ms, period_ms)):
        return []
    return [name for name in gone if after_ms <= now_ms - _reported_ms(fleet, name)]


def _reported_ms(fleet: FleetRow, name: str) -> int:
    """Return when a cluster reported last, or when the spec came, whichever was later (log time)."""
    part = fleet.parts.get(name)
    return fleet.taken_ms if part is None else max(part.taken_ms, fleet.taken_ms)


def fleet_turn(fleet: FleetRow, evaluated_ms: int, now_ms: int, period_ms: int) -> Turn:
    """Return whether the FleetHPA is evaluated now: once all clusters that are not away have reported since the last
    time, a period after that at the latest; where one shows something else than before, half a period after the first
    report at the latest; without any report, every two periods.

    The time depends on what was reported only, not on when this is asked, so that it is the same after a restart.
    """
    longest_ms = _longest_ms(period_ms) + 1
    if fleet.fresh:
        latest_ms = evaluated_ms + period_ms + slack_ms(period_ms)
        if fleet.moved_ms:
            latest_ms = max(fleet.moved_ms, fleet.first_ms + period_ms // 2)
        at_ms = min(latest_ms, evaluated_ms + period_ms // 2)
        for name in fleet.accounts if len(fleet.fresh) < len(fleet.accounts) else ():
            if name not in fleet.fresh:
                at_ms = max(at_ms, min(latest_ms, _reported_ms(fleet, name) + longest_ms))
                if at_ms == latest_ms:
                    break
    else:
        at_ms = max(evaluated_ms, fleet.taken_ms) + longest_ms
    return Turn(True, now_ms + longest_ms, now_ms) if now_ms >= at_ms else Turn(False, at_ms, at_ms)


@lru_cache
def _longest_ms(period_ms: int) -> int:
    """For how long a cluster may be silent without being away: it reports after it has waited for answers, too."""
    return max(AWAY_PERIODS * period_ms, period_ms + ANSWER_WAIT_MS) + slack_ms(period_ms)


def seen_by(
    fleet: FleetRow, autoscaler: Autoscaler, is_enforced: bool, now_ms: int, period_ms: int
) -> JoinedObservation:
    """Add up the newest parts of the clusters that are not away.

    Each counts with what it has or is about to have, so that an allotment on its way is not decided once more.
    """
    gone, read = away(fleet, now_ms, period_ms), _read(fleet, autoscaler, now_ms, period_ms)
    names = list(read)
    if not names:
        return JoinedObservation(ScaleFailure(NO_REPORT), PodCounts(), (None,) * len(autoscaler.metrics))
    left = spilled(fleet, now_ms, period_ms)
    if any(
        [each.report is None and name not in (left if each.fence else gone) for name, each in fleet.accounts.items()]
    ):
        # What they have would be missing in the total, and be taken from the others.
        return JoinedObservation(ScaleFailure(NOT_ALL), PodCounts(), (None,) * len(autoscaler.metrics))
    total = joined([read[name] for name in names])
    if not isinstance(total.scale, Scale):
        return total
    return structs.replace(total, scale=structs.replace(total.scale, spec_replicas=_present(fleet, names, is_enforced)))


def _read(fleet: FleetRow, autoscaler: Autoscaler, now_ms: int, period_ms: int) -> dict[str, PartObservation]:
    """Return the newest parts of the clusters that are not away, as far as they are of this spec."""
    gone = away(fleet, now_ms, period_ms)
    read = {name: _part(fleet, name) for name in fleet.accounts if name in fleet.parts and name not in gone}
    return {name: read[name] for name, fit in zip(read, fits(read.values(), autoscaler), strict=True) if fit}


def bounds_of(
    fleet: FleetRow,
    autoscaler: Autoscaler,
    settings: ControllerSettings,
    is_enforced: bool,
    now_ms: int,
    period_ms: int,
) -> FleetBounds | None:
    """Return what the clusters' own metrics let the total be; None: they do not bound it, or not all are known."""
    read, needs = _read(fleet, autoscaler, now_ms, period_ms), dict[str, ClusterNeed]()
    if any([fleet.accounts[name].report is None for name in read]):
        return None
    for name, part in read.items():
        most = fleet.most_of(name)
        need = need_of(part, fleet.accounts[name].present, most, autoscaler, settings, now_ms)
        if need is not None:
            needs[name] = need
    if not needs:
        return None
    present = _present(fleet, list(read), is_enforced)
    return fleet_bounds(needs, joined(list(read.values())), present, autoscaler, settings, now_ms)


def with_bounds(
    autoscaler: Autoscaler, bounds: FleetBounds | None, present: int, history: History, now_ms: int, rules: Rules
) -> Autoscaler:
    """Return the spec of the FleetHPA within what its clusters let the total be. What the total rises by for clusters
    whose load others hide is bounded by the policies, too.
    """
    if bounds is None:
        return autoscaler
    most = min(autoscaler.max_replicas, max(bounds.most, autoscaler.min_replicas))
    least = bounds.least
    if least > present and autoscaler.scale_up is not None:
        least = min(least, scale_up_limit(autoscaler.scale_up, present, history, now_ms, rules)[0])
    elif least > present:
        least = min(least, max(2 * present, 4))  # as `normalize` bounds it without `behavior`
    return structs.replace(autoscaler, max_replicas=most, min_replicas=min(max(autoscaler.min_replicas, least), most))


def beginning(fleet: FleetRow, now_ms: int, period_ms: int) -> list[str]:
    """Name the clusters that have reported, and whose recommendations the windows of the FleetHPA do not hold yet."""
    names = [name for name in fleet.parts if name not in fleet.begun]
    gone = away(fleet, now_ms, period_ms) if names else []
    return [name for name in names if name not in gone]


def with_past_of(history: History, fleet: FleetRow, names: Sequence[str], now_ms: int, period_ms: int) -> History:
    """Take over what the autoscalers of clusters recommended, added and removed that the FleetHPA did not decide for
    until now: its windows end as theirs would have, what they had after a peak is not taken from them at once, and what
    they changed counts for its policies. One that never recommended anything counts with its replicas, as an HPA
    begins.

    Source: upstream `recordInitialRecommendation`, v1.37.1, for one controller.
    """
    history = _like_with_like(history, fleet, now_ms, period_ms)
    if not names:
        return history
    recommendations: list[Sequence[tuple[int, int]]] = (
        [history.recommendations] if fleet.begun and history.recommended else []
    )
    for name in names:
        part = _part(fleet, name)
        recommendations.append(part.recommended or ((fleet.accounts[name].present, now_ms),))
    parts = [_part(fleet, name) for name in names]
    added = newest_events([*history.scale_up_events, *[each for part in parts for each in part.added]])
    removed = newest_events([*history.scale_down_events, *[each for part in parts for each in part.removed]])
    return History((), (), added, removed).with_recommendations(added_up(recommendations))


def _like_with_like(history: History, fleet: FleetRow, now_ms: int, period_ms: int) -> History:
    """Return the history with recommendations for the clusters that take part now. Where others did at the last
    evaluation, the windows begin with what these have: a total of more clusters would have these scale up without load,
    and one of fewer would have them scale down.
    """
    present = recommended_for(fleet, now_ms, period_ms)
    if history.recommended is None or not fleet.recommended_for or present == fleet.recommended_for:
        return history
    had = sum([fleet.accounts[name].present for name in present])
    return history.with_recommendations([(had, now_ms)] if present else ())


def recommended_for(fleet: FleetRow, now_ms: int, period_ms: int) -> tuple[str, ...]:
    """Return the clusters that are not away and whose recommendations the windows hold already."""
    gone = away(fleet, now_ms, period_ms)
    return tuple([name for name in fleet.begun if name not in gone and name in fleet.parts])


def _present(fleet: FleetRow, names: Sequence[str], is_enforced: bool) -> int:
    """Return what these clusters have or are about to have. The half of a move between them that is still to come
    counts as done: else the FleetHPA would be decided for the replicas that both have meanwhile, and keep them.
    """
    accounts = {name: fleet.accounts[name] for name in names}
    present = sum([each.present for each in accounts.values()])
    if not is_enforced or not all([each.allotted and each.report is not None for each in accounts.values()]):
        return present
    newest = {name: each.newest.replicas for name, each in accounts.items()}
    return present + sum([fleet.shares.get(name, replicas) - replicas for name, replicas in newest.items()])


def without_away(autoscaler: Autoscaler, fleet: FleetRow, now_ms: int, period_ms: int) -> Autoscaler:
    """Return the spec of the FleetHPA, less what clusters that are away have: it counts towards both bounds until it is
    spilled.
    """
    gone, left = away(fleet, now_ms, period_ms), spilled(fleet, now_ms, period_ms)
    held = sum([fleet.accounts[name].given for name in gone if name not in left])
    least = sum([each.min_replicas for each in fleet.spec.clusters if each.name not in gone])
    return within(autoscaler, held, least)


def divided(
    fleet: FleetRow,
    total: int | None,
    maximum: int,
    is_enforced: bool,
    now_ms: int,
    period_ms: int,
    keeps: Mapping[str, int] = NO_SHARES,
) -> FleetRow:
    """Divide the total among the clusters that are not away, and allot; without a total nothing moves.

    Args:
        maximum: of the FleetHPA, clusters that are away included, but for those that are spilled.
        is_enforced: allot; else the division is only shown.
        keeps: what is not taken from a cluster where the total falls.
    """
    after = _divided(fleet, total, maximum, is_enforced, now_ms, period_ms, keeps)
    below_share = _below_share(after, now_ms, period_ms) if is_enforced else {}
    return after if below_share == after.below_share else structs.replace(after, below_share=below_share)


def _below_share(fleet: FleetRow, now_ms: int, period_ms: int) -> dict[str, int]:
    """Return the clusters that take part and have less than their share, and since when."""
    gone = away(fleet, now_ms, period_ms)
    return {
        name: fleet.below_share.get(name, now_ms)
        for name, share in fleet.shares.items()
        if name not in gone and (known := fleet.accounts.get(name)) is not None
        if known.report is not None and known.report.replicas < share
    }


def _divided(
    fleet: FleetRow,
    total: int | None,
    maximum: int,
    is_enforced: bool,
    now_ms: int,
    period_ms: int,
    keeps: Mapping[str, int],
) -> FleetRow:
    gone, left = away(fleet, now_ms, period_ms), spilled(fleet, now_ms, period_ms)
    kept, members = _seen(fleet, now_ms), [each for each in fleet.spec.clusters if each.name not in gone]
    if total is None or not members:
        return kept
    # A cluster that is back, or new, begins with what it has.
    known = fleet.shares
    before = {each.name: known.get(each.name, fleet.accounts[each.name].present) for each in members}
    roomy = capped(total, members, caps_of(kept.rooms))
    division = next_division(total, roomy, fleet.spec, Divided(before, fleet.since_ms or None), now_ms, keeps)
    accounts = fleet.accounts
    if is_enforced:
        accounts |= allot(division.shares, {name: each for name, each in accounts.items() if name not in left}, maximum)
    return structs.replace(kept, accounts=accounts, shares=division.shares, since_ms=division.differs_since_ms or 0)


def _seen(fleet: FleetRow, now_ms: int) -> FleetRow:
    """Return what is known after an evaluation that has seen all reports, but for the division."""
    seen = totals(list(map(_seen_part, fleet.parts.values())))
    drift, rooms = (0,) * len(seen), _rooms(fleet, now_ms)
    return structs.replace(fleet, fresh=(), first_ms=0, moved_ms=0, totals=seen, drift=drift, rooms=rooms)


def _rooms(fleet: FleetRow, now_ms: int) -> dict[str, MemberRoom]:
    """Return what is known of the room in clusters, by the reports since the last evaluation."""
    after_ms, rooms = fleet.spec.spill_after_ms, dict(fleet.rooms)
    for name in fleet.fresh if after_ms else ():
        part = _part(fleet, name)
        if isinstance(part.scale, Scale):
            # What is allotted and not there, for whatever reason, is as good as pods that wait for a node.
            has, allotted = (
                part.scale.spec_replicas,
                max(part.scale.spec_replicas, fleet.accounts[name].newest.replicas),
            )
            waiting = part.pods.waiting + allotted - has
            rooms[name] = next_room(rooms.get(name, ROOM), allotted, waiting, after_ms, now_ms)
    return {name: room for name, room in rooms.items() if room != ROOM}


def shares_steps(fleet: FleetRow, now_ms: int, period_ms: int) -> list[Step]:
    """Return the step of a decision that says which clusters do not have their shares, and why; none where all have, or
    where they are on their way.
    """
    why = dict(unreached(fleet, now_ms, period_ms))
    if not why:
        return []
    known = {name: fleet.accounts[name].report for name in fleet.shares}
    has = sum([each.replicas for each in known.values() if each is not None])
    return [Step(step="shares", in_=sum(fleet.shares.values()), out=has, detail=why)]


def unreached(fleet: FleetRow, now_ms: int, period_ms: int) -> Iterator[tuple[str, str]]:
    """Return the clusters that do not have their shares and have not for long, or to which not all is allotted, each
    with the reason; and those that report more than their own maxReplicas.
    """
    long_ms = _longest_ms(period_ms)
    for name, account in fleet.accounts.items():
        claimed, most = _claimed(fleet, name), fleet.most_of(name)
        if claimed > most:
            yield name, f"says that it has {claimed}, more than its maxReplicas {most}: the rest does not count"
        elif name in fleet.over:
            yield name, f"its metrics ask for more than its maxReplicas {most}: the rest does not count"
        if name not in fleet.below_share or account.report is None:
            continue
        has, share = account.report.replicas, fleet.shares[name]
        if account.newest.replicas < share:
            yield name, f"share {share}, {account.newest.replicas} allotted: {_blockers(fleet, name)}"
        elif now_ms - fleet.below_share[name] > long_ms:
            what = (
                "has not got its share" if account.report.obeys < account.newest.number else "its scale does not follow"
            )
            yield name, f"share {share}, has {has}: {what}"


def _claimed(fleet: FleetRow, name: str) -> int:
    """Return the replicas that the scale of a cluster shows, as it reported last, however many they are."""
    scale = _part(fleet, name).scale if name in fleet.parts else None
    return scale.spec_replicas if isinstance(scale, Scale) else 0


def _blockers(fleet: FleetRow, name: str) -> str:
    """Return what keeps an addition from a cluster."""
    unknown = [other for other, each in fleet.accounts.items() if each.report is None or each.fence]
    if unknown:
        return f"{', '.join(unknown)} must report first"
    more = {other: each.counted for other, each in fleet.accounts.items()}
    above = [other for other in more if other != name and more[other] > fleet.shares.get(other, 0)]
    return ", ".join(f"{other} may have {more[other]}" for other in above) or "all clusters together may have no more"


def there_is(fleet: FleetRow, now_ms: int, period_ms: int) -> int:
    """Return what the clusters that are not away have, as they reported last."""
    gone = away(fleet, now_ms, period_ms)
    reports = [each.report for name, each in fleet.accounts.items() if name not in gone]
    return sum([each.replicas for each in reports if each is not None])


def bounds_steps(autoscaler: Autoscaler, bounds: FleetBounds | None, evaluation: Evaluation) -> list[Step]:
    """Return the step of a decision that says how the clusters' own metrics bounded the total; none: they did not."""
    normalization = evaluation.normalization
    if bounds is None or evaluation.desired_replicas is None:
        return []
    wanted = evaluation.current_replicas or 0 if normalization is None else normalization.stabilized
    desired = evaluation.desired_replicas
    if wanted < desired <= bounds.least and desired > autoscaler.min_replicas:
        return [Step(step="clusters", in_=wanted, out=desired, detail={"keep": _listed(bounds.keeps)})]
    if wanted > desired >= bounds.most and desired < autoscaler.max_replicas:
        return [Step(step="clusters", in_=wanted, out=desired, detail={"countWith": _listed(bounds.counted)})]
    return []


def with_over(fleet: FleetRow, bounds: FleetBounds | None, steps: Sequence[Step]) -> FleetRow:
    """Return the row with the clusters whose metrics ask for more than they count with, where that bounds the total."""
    is_capped = any(["countWith" in each.detail for each in steps])
    over = bounds.over if bounds is not None and is_capped else ()
    return fleet if over == fleet.over else structs.replace(fleet, over=over)


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join([f"{name} {count}" for name, count in counts.items()])


def allotments(row: HpaRow, fleet: FleetRow, decision: str, now_ms: int, is_enforced: bool) -> list[Message]:
    """Return the allotments that no report shows to be obeyed yet; they are sent with each decision. In shadow, those
    by which a cluster keeps what it has.
    """
    reports = {name: each.report for name, each in fleet.accounts.items()}
    messages = [
        (name, each, None if each.replicas == KEEP else each.replicas) for name, each in outstanding(fleet.accounts)
    ]
    return [
        Message(
            name,
            row.namespace,
            now_ms,
            FleetAllotment(
                name=row.name,
                revision=row.revision,
                number=each.number,
                replicas=replicas,
                decision=decision,
                returns=0 if (report := reports[name]) is None else report.returns,
            ),
        )
        for name, each, replicas in messages
        if is_enforced or replicas is None
    ]


def shown(fleet: FleetRow, now_ms: int, period_ms: int) -> dict[str, Any]:
    """Return what a decision shows of the clusters: share, newest allotment, what they have, who is away, and who has
    room for no more than `room`.
    """
    gone, left, caps = away(fleet, now_ms, period_ms), spilled(fleet, now_ms, period_ms), caps_of(fleet.rooms)
    by_cluster: dict[str, Any] = {}
    for name, account in fleet.accounts.items():
        by_cluster[name] = {"share": fleet.shares.get(name)} if name in fleet.shares else {}
        if account.report is not None:
            by_cluster[name]["replicas"] = account.report.replicas
        if account.allotted:
            by_cluster[name]["allotted"] = account.newest.replicas
        if name in gone:
            by_cluster[name]["away"] = True
        if name in left:
            by_cluster[name]["spilled"] = True
        if name in caps:
            by_cluster[name]["room"] = caps[name]
    return by_cluster


# --- entries ----------------------------------------------------------------------------------------------------------


def fold_report(fold: EntryFold, body: FleetReport) -> None:
    """Fold what HPAs in a cluster reported to FleetHPAs."""
    state, now_ms = fold.state, fold.now_ms
    for each in body.items:
        hpa = fold.live(each.name)
        known = None if hpa is None else hpa.row.fleet
        if hpa is None or known is None:
            continue
        row = hpa.row
        if known.parts_bytes(body.member, each.part) > limits.FLEET_PARTS.most:
            fold.namespace.touch()
            fold.namespace.refuse(limits.FLEET_PARTS, row.name)
            continue
        row.fleet = take_report(known, row.revision, body.member, body.at, each, now_ms)
        if row.fleet is not known:
            hpa.dirty = True
            turn = fleet_turn(row.fleet, row.evaluated_ms, now_ms, state.settings_of(hpa).sync_period_ms)
            if turn.evaluate or turn.due_ms != row.next_due_ms:
                state.ready_or_due.add(hpa.id)


def fold_allotment(fold: EntryFold, body: FleetAllotment) -> None:
    """Fold the share that a FleetHPA gave to an HPA."""
    hpa = fold.live(body.name)
    if hpa is not None and take_allotment(hpa.row, body):
        hpa.dirty = True
        fold.state.ready_or_due.add(hpa.id)
