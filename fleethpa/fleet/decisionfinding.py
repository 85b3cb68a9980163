"""Finding the one decision that a command names.

An ID of a decision is `PARTITION-OFFSET-UID`, with `-c` behind it for the end of a write. A short form leaves out the
end of the UID, as git does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from fleethpa.fleet.finding import DEFAULT_NAMESPACE, Ref, names_known, no_such_hpa, parse_ref, sole_id
from fleethpa.fleet.state import partitions_about, read_state
from fleethpa.fleet.views import FleetState
from fleethpa.frame.errors import CommandError, not_found, usage
from fleethpa.frame.options import moment
from fleethpa.frame.session import Session
from fleethpa.show.text import dated
from schemas.decisions import uid_of
from schemas.keys import HpaId
from schemas.partitioning import partition_for

if TYPE_CHECKING:
    from streams.history.past import Past
    from streams.history.recorded import Recorded


_ID: Final = re.compile(r"([0-9]{1,18})-([0-9]{1,18})-([0-9a-zA-Z.:_-]+)")
_KIND: Final = "decision/"
_ENDING: Final = "-c"
_SHOWN: Final = 8
"""Characters of a UID that a short form has at least: the first group of a UUID."""


class AskedId(NamedTuple):
    """A decision as named on the command line. `uid`: the beginning of its UID. `ending`: whether it ends a write."""

    text: str
    partition: int
    offset: int
    uid: str
    ending: bool

    def fits(self, id_: str) -> bool:
        """Whether an ID is, or may be, the one that is named."""
        prefix = f"{self.partition}-{self.offset}-{self.uid}"
        return id_ == self.text or (id_.startswith(prefix) and self.ending == id_.endswith(_ENDING))


def asked_id(text: str) -> AskedId | None:
    """Read an ID or a short form; None: it is neither, but may name an HPA."""
    bare = text.removeprefix(_KIND)
    match = _ID.fullmatch(bare)
    if match is None:
        return None
    partition, offset, uid = match.groups()
    return AskedId(bare, int(partition), int(offset), uid.removesuffix(_ENDING), uid.endswith(_ENDING))


def only(asked: AskedId, ids: Iterable[str]) -> str | None:
    """Return the ID that is named; None if no decision has it.

    Raises CommandError: it may be several (exit 2); the error lists them.
    """
    known = sorted(set(ids))
    if asked.text in known:
        return asked.text
    # Without `-c` the end of a write is meant only where its UID names nothing else at this offset.
    matches = [id_ for id_ in known if asked.fits(id_)] or [
        id_ for id_ in known if asked._replace(ending=True).fits(id_)
    ]
    if len(matches) > 1:
        raise ambiguous(asked.text, matches)
    return matches[0] if matches else None


def no_decision(asked: AskedId, cause: str) -> CommandError:
    """The error for an ID that no decision has."""
    return not_found(f"no decision {asked.text}", cause=cause, next_step="fleethpa decisions -A")


def ambiguous(text: str, candidates: Iterable[str]) -> CommandError:
    """The error for a short form that several decisions have."""
    listed = list(candidates)
    shown = "\n".join(short_ids(listed)[id_] for id_ in listed[:20])
    return usage(
        f"{text} is ambiguous: {len(listed)} decisions begin with it", cause=shown, next_step="use one of these"
    )


def short_ids(ids: Iterable[str]) -> dict[str, str]:
    """The short form of each ID: no other among them begins so."""
    known = sorted(set(ids))
    beginnings: dict[str, set[str]] = {}
    for id_ in known:
        bare = id_.removesuffix(_ENDING)
        beginnings.setdefault(_place(bare), set()).add(bare)
    return {id_: _short(id_, beginnings[_place(id_)]) for id_ in known}


def short_id(id_: str) -> str:
    """The short form of one ID."""
    return short_ids([id_])[id_]


async def recorded_among(past: Past, ids: Iterable[str]) -> frozenset[str]:
    """Those of some whole IDs, as a fold of the log gives them, whose decisions a decider has recorded.

    It decides in the order of the log, so that it has made what comes before its newest decision, kept or not. Texts
    that are no ID are left out.
    """
    known = [asked for id_ in set(ids) if (asked := asked_id(id_)) is not None]
    numbers = sorted({asked.partition for asked in known})
    tails = await past.tail(lambda _, decisions: bool(decisions), numbers) if numbers else {}
    newest = {number: tail[-1].decision.input.offset for number, tail in tails.items() if tail}
    last = {each.decision.id for tail in tails.values() for each in tail}
    return frozenset(
        asked.text for asked in known if asked.offset < newest.get(asked.partition, 0) or asked.text in last
    )


def _place(id_: str) -> str:
    return "-".join(id_.split("-", 2)[:2])


def _short(id_: str, others: set[str]) -> str:
    bare = id_.removesuffix(_ENDING)
    least = len(_place(id_)) + 1 + _SHOWN
    length = next(
        (n for n in range(least, len(bare)) if sum(each.startswith(bare[:n]) for each in others) == 1), len(bare)
    )
    return bare[:length] + id_[len(bare) :]


def name_and_moment(session: Session, what: str, at: str | None = None) -> tuple[str, int | None]:
    """Split `NAME@TIME` (or `NAME` and `--at TIME`) into the name and the moment, None without one.

    Raises CommandError: two moments, an empty or unreadable one, or one beside the id of a decision (exit 2).
    """
    cut = what.find("@", 1)  # a FleetHPA begins with it: @fleet/NAMESPACE/NAME
    name, sign, text = (what[:cut], "@", what[cut + 1 :]) if cut > 0 else (what, "", "")
    if sign and not text:
        raise usage(f"{what!r} has no time after the @", cause=f"Write {name}@2h, or {name}@2026-11-21T08:00:15Z.")
    if text and at:
        raise usage("NAME@TIME and --at exclude each other")
    stated = text or at
    if stated and asked_id(name):
        raise usage(
            f"{name} is the ID of a decision",
            cause="A time selects one of an HPA's decisions, and this ID is one decision already.",
        )
    return name, _moment(session, stated, f"{name}@" if text else "--at") if stated else None


def _moment(session: Session, text: str, option: str) -> int | None:
    """Read the moment of a decision; of one that is still to come it is the newest, with a warning."""
    now_ms = session.now_ms()
    at_ms = moment(text, now_ms, option)
    if at_ms is not None and at_ms > now_ms:
        session.warn(f"{option} {text} is later than {dated(now_ms)}, the newest there is, which is shown")
    return at_ms


class FoundDecision(NamedTuple):
    """A decision, and what was read to find it."""

    recorded: Recorded
    ending: Recorded | None
    """What completed it; None: its write has not ended, or there was none."""
    state: FleetState | None
    """The state in which its HPA was looked for; None: an id was asked for."""


async def find_decision(
    past: Past, what: str, namespace: str | None, *, at_ms: int | None = None, change: bool = False
) -> FoundDecision:
    """Find a decision and, where its write has ended, the record that completed it.

    `what`: the id of a decision, or an HPA; then its newest evaluation, or the one at `at_ms`, or (`change`) the newest
    that changed replicas.

    Raises CommandError: no such decision (exit 4), or a name that means several HPAs (exit 2).
    """
    if decision_id := asked_id(what):
        if change:
            raise usage(
                f"{what} is the ID of a decision",
                cause="--change selects one of an HPA's decisions, and this ID is one decision already.",
            )
        return FoundDecision(*await _by_id(past, decision_id), None)
    asked_hpa = _AskedHpa(ref := parse_ref(what), ref.namespace or namespace or DEFAULT_NAMESPACE, at_ms, change)
    everything, fitting, state = await _latest(past, asked_hpa)
    sole_id(sorted({recorded.hpa for recorded in fitting}), what)
    decision = max(fitting, key=lambda recorded: (recorded.time_ms, recorded.decision.seq))
    return FoundDecision(decision, _ending(decision, everything), state)


class _AskedHpa(NamedTuple):
    """The evaluations of which the newest is asked for; the other fields as for `find_decision`."""

    ref: Ref
    scope: str
    at_ms: int | None
    change: bool

    @property
    def is_newest(self) -> bool:
        """Whether the newest evaluation of all is asked for, whatever came of it."""
        return self.at_ms is None and not self.change

    def names(self, hpa: HpaId) -> bool:
        return hpa.name == self.ref.name and hpa.namespace == self.scope and self.ref.cluster in (None, hpa.cluster)

    def fits(self, recorded: Recorded) -> bool:
        if not self.names(recorded.hpa) or recorded.decision.kind != "evaluation":
            return False
        if self.at_ms is not None and recorded.time_ms > self.at_ms:
            return False
        return not self.change or recorded.decision.final_desired_replicas != recorded.decision.current_replicas


async def _latest(past: Past, asked: _AskedHpa) -> tuple[list[Recorded], list[Recorded], FleetState]:
    """The newest decisions of the HPAs of a name, those of them that fit, of the living first, else of the deleted, and
    the state in which they are.

    Raises CommandError: there is no such HPA, or it has no decision that fits (exit 4).
    """
    ref, count = asked.ref, await past.partitions()
    partition = partition_for(f"{ref.cluster}/{asked.scope}", count)
    state = await read_state(past, partitions_about(ref.cluster, partition))
    living, forgotten = ([hpa for hpa in known if asked.names(hpa)] for known in (state.hpas, state.forgotten))
    if not living and not forgotten:
        raise no_such_hpa(ref, await names_known(past) if ref.cluster else state.hpas, asked.scope)
    everything: list[Recorded] = []
    for names in filter(None, (living, forgotten)):
        numbers = sorted({partition_for(hpa.namespace_key, count) for hpa in names})
        tails = await past.tail(lambda _, decisions: any(map(asked.fits, decisions)), numbers, asked.at_ms)
        everything = [recorded for tail in tails.values() for recorded in tail]
        fitting = [recorded for recorded in everything if asked.fits(recorded)]
        if names is living and asked.is_newest:
            # One that was made again has its predecessor's name, but not its decisions.
            own = [each for each in fitting if _is_of(each, state.hpas[each.hpa].last_decision)]
            if fitting and not own:
                raise _made_again(asked, max(fitting, key=lambda each: each.time_ms))
            fitting = own
        if fitting:
            return everything, fitting, state
    decided = any(state.hpas[hpa].last_decision for hpa in living)
    raise _none_fits(asked, unrecorded=decided and not everything)


async def _by_id(past: Past, asked: AskedId) -> tuple[Recorded, Recorded | None]:
    def enough(_: int, decisions: list[Recorded]) -> bool:
        reached = bool(decisions) and decisions[0].decision.input.offset < asked.offset
        return reached or any(recorded.decision.id == asked.text for recorded in decisions)

    if asked.partition >= await past.partitions():
        raise no_decision(asked, f"The topics have no partition {asked.partition}.")
    tail = (await past.tail(enough, [asked.partition]))[asked.partition]
    id_ = only(asked, (recorded.decision.id for recorded in tail))
    for recorded in tail:
        if recorded.decision.id == id_:
            return recorded, _ending(recorded, tail)
    raise no_decision(asked, "The decisions topic does not hold it, or no longer does.")


def _ending(found: Recorded, all_: Iterable[Recorded]) -> Recorded | None:
    return next((recorded for recorded in all_ if recorded.decision.completes == found.decision.id), None)


def _is_of(recorded: Recorded, last_decision: str) -> bool:
    """Whether a decision is of the HPA whose newest one is this; empty: it has none."""
    return bool(last_decision) and uid_of(recorded.decision.id) == uid_of(last_decision)


def _made_again(asked: _AskedHpa, before: Recorded) -> CommandError:
    cause = f"It was made again: the last decision of its predecessor was at {dated(before.time_ms)}."
    step = f"fleethpa explain {before.decision.id}, for that one; fleethpa doctor, if it stays so"
    return not_found(f"{asked.ref} has no decision yet", cause=cause, next_step=step)


def _none_fits(asked: _AskedHpa, *, unrecorded: bool) -> CommandError:
    ref, at_ms = asked.ref, asked.at_ms
    when = f" at or before {dated(at_ms)}" if at_ms is not None else ""
    when = when or (" that changed the replicas" if asked.change else "")
    if unrecorded and not when:
        cause = "The log already holds what it will be decided from, but the decider has not recorded a decision yet."
        return not_found(f"{ref} has no recorded decision", cause=cause, next_step="fleethpa doctor")
    if not when:
        cause = "It is decided when its scale, its pods and an answer of its metrics have been reported."
        return not_found(f"{ref} has no decision yet", cause=cause, next_step="fleethpa doctor")
    return not_found(f"{ref} has no decision{when}", next_step=f"fleethpa decisions {ref} -n {asked.scope}")
