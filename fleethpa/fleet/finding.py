"""Finding the HPAs, the clusters or the one decision that a command names.

An ID of a decision is `PARTITION-OFFSET-UID`, with `-c` behind it for the end of a write. A short form leaves out the
end of the UID, as git does.
"""

from __future__ import annotations

import asyncio
import difflib
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final, NamedTuple

from fleethpa.fleet.selection import DEFAULT_NAMESPACE, Ref, Selection, parse_ref
from fleethpa.fleet.state import read_state
from fleethpa.fleet.views import FleetState, HpaView
from fleethpa.frame.errors import CommandError, not_found, usage
from fleethpa.frame.options import moment
from fleethpa.frame.session import Session
from fleethpa.show.times import rfc3339
from fleethpa.show.words import counted
from schemas.keys import HpaId, partition_for
from streams.state.rowcodec import decode_row, row_kind
from streams.state.rows import HpaRow

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
    found = [id_ for id_ in known if asked.fits(id_)] or [id_ for id_ in known if asked._replace(ending=True).fits(id_)]
    if len(found) > 1:
        raise ambiguous(asked.text, found)
    return found[0] if found else None


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


def _place(id_: str) -> str:
    return "-".join(id_.split("-", 2)[:2])


def _short(id_: str, others: set[str]) -> str:
    bare = id_.removesuffix(_ENDING)
    least = len(_place(id_)) + 1 + _SHOWN
    length = next(
        (n for n in range(least, len(bare)) if sum(each.startswith(bare[:n]) for each in others) == 1), len(bare)
    )
    return bare[:length] + id_[len(bare) :]


_MOST_LABELS: Final = 10


def chosen(state: FleetState, selection: Selection) -> list[HpaView]:
    """Return the HPAs that a selection means, in order. Raises CommandError: a named HPA does not exist (exit 4)."""
    views = [view for hpa, view in state.hpas.items() if selection.matches(hpa, view.labels)]
    if missing := selection.missing(view.id for view in views):
        raise no_such_hpa(missing[0], state.hpas, selection.namespace)
    return views


def chosen_some(state: FleetState, selection: Selection) -> list[HpaView]:
    """As `chosen`. Raises CommandError: also where there is none (exit 4)."""
    if not (views := chosen(state, selection)):
        raise not_found(f"no HPA matches {selection}", next_step="fleethpa get hpa -A")
    return views


def alone(views: Sequence[HpaView], verb: str, note: Callable[[str], None]) -> list[HpaView]:
    """The HPAs that decide by themselves; `note` is called with how many others were left out.

    Raises CommandError: there are only others, whose decisions `verb` cannot judge (exit 2).
    """
    found = [view for view in views if not view.is_of_fleet]
    left = [view for view in views if view.is_of_fleet]
    if not left:
        return found
    whole = left[0].whole or left[0].id
    step = f"fleethpa backtest {whole} --set cpu=50%"
    if found:
        note(f"note: left out of {verb}: {counted(len(left), 'HPA')} of FleetHPAs. Next: {step}")
        return found
    what = "is a FleetHPA" if left[0].fleet is not None else f"has the share that FleetHPA {whole} allots"
    raise usage(
        f"{verb} is for HPAs that decide by themselves, and {left[0].id} {what}",
        cause="A FleetHPA decides over the pods of all its clusters, and the HPA in a cluster wants its share, "
        "without regard to its own metrics.",
        next_step=f"{step}, which tries other settings",
    )


def not_evaluated(what: str, name: object = "-A") -> CommandError:
    """The error for a window without evaluations. `name`: the HPA; `-A`: all."""
    return not_found(what, next_step=f"fleethpa decisions {name} --since 30d, to see when there are some")


def nothing_found(selection: Selection, state: FleetState, verb: str) -> str:
    """What to say where a selection means no HPA, with the next step."""
    known = sorted(state.clusters)
    if known and not any(map(selection.cluster_matches, known)):
        return f"No HPAs found: no cluster matches {','.join(selection.clusters)}; known are {', '.join(known)}."
    where = f"in namespace {selection.namespace}" if selection.namespace else "in any namespace"
    unlabelled = replace(selection, labels=None, selector="")
    there = [view for hpa, view in state.hpas.items() if unlabelled.matches(hpa, view.labels)]
    if selection.selector and there:
        keys = sorted({key for view in there for key in view.labels})
        known_labels = f"have the labels {', '.join(keys[:_MOST_LABELS])}" if keys else "have no labels"
        return f"No HPAs found {where} with -l {selection.selector}; {len(there)} there {known_labels}."
    if selection.namespace and state.hpas:
        return f"No HPAs found {where}; there are {len(state.hpas)} elsewhere: fleethpa {verb} -A"
    if state.hpas:
        return f"No HPAs found {where} that match."
    return f"No HPAs found {where}. Next: fleethpa apply -f hpa.yaml, or fleethpa get clusters"


def matching_clusters(state: FleetState, globs: tuple[str, ...], contexts: tuple[str, ...] = ()) -> list[str]:
    """Return the known clusters that match; without globs all. Raises CommandError: a glob matches none (exit 4)."""
    known = sorted(set(state.clusters) | set(contexts))
    for glob in globs:
        if not any(fnmatchcase(name, glob) for name in known):
            cause = nearest_cluster(glob, known)
            raise not_found(f"no cluster matches {glob!r}", cause=cause, next_step="fleethpa get clusters")
    return [name for name in known if not globs or any(fnmatchcase(name, glob) for glob in globs)]


def no_such_cluster(name: str, state: FleetState) -> CommandError:
    """The error for a name that no cluster bears."""
    cause = nearest_cluster(name, state.clusters)
    return not_found(f"no cluster {name}", cause=cause, next_step="fleethpa get clusters")


def unknown_cluster(
    what: str, names: Iterable[str], known: Collection[str], *, later: str, kept: Collection[str] = ()
) -> CommandError | None:
    """The error for an object that names a cluster that nobody has reported; None: it names none.

    Args:
        later: what to type for a cluster that is added later; has `{name}` in it.
        kept: clusters that the object had before, which it may go on naming.
    """
    for name in names:
        if name not in known and name not in kept:
            next_step = f"correct the name, or for a cluster that is added later {later.format(name=name)}"
            cause = nearest_cluster(name, sorted(known))
            return not_found(f"{what} names the cluster {name}, which is not known", cause=cause, next_step=next_step)
    return None


def nearest_cluster(name: str, known: Iterable[str]) -> str:
    """Which clusters there are, for the cause of an error; the one that was probably meant comes first."""
    names = list(known)
    near = difflib.get_close_matches(name, names, n=1)
    meant = f"Did you mean {near[0]}? " if near else ""
    return f"{meant}Known are {', '.join(names) or 'none'}."


def sole_id(found: Iterable[HpaId], what: str) -> HpaId:
    """Return the only one of some names, of which there is at least one.

    Raises CommandError: there are several (exit 2).
    """
    names = list(found)
    if len(names) > 1:
        listed = ", ".join(map(str, names[:5]))
        raise usage(
            f"{what} matches {len(names)} HPAs", cause=f"They are {listed}.", next_step=f"name one, such as {names[0]}"
        )
    return names[0]


async def places_read(past: Past, selection: Selection) -> list[int] | None:
    """The partitions of what is named; None: the names leave them open, so that it may be in any."""
    places = selection.places()
    if places is None:
        return None
    count = await past.partitions()
    return sorted({partition_for(place, count) for place in places})


async def names_known(past: Past) -> list[HpaId]:
    """The HPAs of the newest stored rows, for suggestions: reading names costs far less than folding the log.

    One that was created since they were stored is not among them. Where no rows are stored, the log is folded.
    """
    found: list[HpaId] = []
    unstored: list[int] = []
    numbers = range(await past.partitions())
    for number, stored in enumerate(await asyncio.gather(*map(past.newest_rows, numbers))):
        if not stored:
            unstored.append(number)
        for key, value in stored.items():
            row = decode_row(key, value) if row_kind(key)[0] == "h" else None
            if isinstance(row, HpaRow) and not (row.gone or row.deleted):
                found.append(row.id)
    return sorted([*found, *((await read_state(past, unstored)).hpas if unstored else ())])


async def check_known(past: Past, selection: Selection, seen: Iterable[HpaId] = ()) -> None:
    """Check that every named HPA exists now, or is among those `seen` in decisions: it may have been deleted.

    Raises CommandError: one does not (exit 4).
    """
    seen = set(seen)
    if not selection.missing(seen):
        return
    state = await read_state(past)
    known = seen | set(state.hpas) | state.forgotten
    if missing := selection.missing(known):
        raise no_such_hpa(missing[0], known, selection.namespace)


_NEAR: Final = 0.8
"""How alike two names of clusters are before one counts as a slip of the other: `east` and `west` do not."""
_MOST_NAMED: Final = 5
"""HPAs of one name that an error lists."""


_OTHER_TYPES: Final = {"cluster": "fleethpa get clusters", "capacitygroup": "fleethpa capacity --help"}
"""What shows the types that verbs of HPAs do not take before a name, as in `describe cluster east`."""


def no_such_hpa(ref: Ref, known: Iterable[HpaId], namespace: str | None) -> CommandError:
    """The error for a name that no HPA bears, with the nearest that exist."""
    where = "" if ref.namespace else f" in namespace {namespace}" if namespace else ""
    if "@" in ref.name:
        cause = "NAME@TIME is read by explain and what-if; get and describe have --at TIME."
        return not_found(f"no HPA {ref}{where}", cause=cause)
    listed = sorted(known)
    same = [hpa for hpa in listed if hpa.name == ref.name]
    if same:
        near = difflib.get_close_matches(ref.cluster or "", {hpa.cluster for hpa in same}, n=1, cutoff=_NEAR)
        # A name in another cluster is never suggested alone: what is typed next may write there.
        meant = [hpa for hpa in same if hpa.cluster in near] or same
        if len(meant) == 1 and (near or not ref.cluster):
            return not_found(f"no HPA {ref}{where}", cause=f"Did you mean {meant[0]}?", next_step=f"name it {meant[0]}")
        cause = f"HPAs of this name are {', '.join(map(str, meant[:_MOST_NAMED]))}."
        return not_found(f"no HPA {ref}{where}", cause=cause, next_step="fleethpa get hpa -A")
    clusters = sorted({hpa.cluster for hpa in listed})
    if ref.cluster and ref.cluster not in clusters:
        cause = f"No cluster {ref.cluster} is known; known are {', '.join(clusters) or 'none'}."
        return not_found(f"no HPA {ref}", cause=cause, next_step="fleethpa get clusters")
    if ref.namespace is None and ref.name in clusters:
        step = f"fleethpa get hpa -A -C {ref}"
        return not_found(f"no HPA {ref}{where}", cause=f"{ref} is a cluster; -C names it.", next_step=step)
    cause = _alike(ref.name, [hpa for hpa in listed if ref.cluster in (None, hpa.cluster)])
    step = _OTHER_TYPES.get(ref.name.lower().removesuffix("s"), "fleethpa get hpa -A")
    return not_found(f"no HPA {ref}{where}", cause=cause, next_step=step)


def _alike(text: str, listed: Sequence[HpaId]) -> str:
    """The HPAs with the nearest name, those of a namespace of that name, or those that have it in their names; empty:
    there are none.
    """
    names = difflib.get_close_matches(text, [hpa.name for hpa in listed], n=1)
    likely = [hpa for hpa in listed if hpa.name in names]
    if len(likely) == 1:
        return f"Did you mean {likely[0]}?"
    if likely:
        return f"HPAs of the name {names[0]} are {', '.join(map(str, likely[:_MOST_NAMED]))}."
    if inside := [hpa for hpa in listed if hpa.namespace == text]:
        return f"{text} is a namespace; its HPAs are {', '.join(map(str, inside[:_MOST_NAMED]))}."
    alike = [hpa for hpa in listed if text in hpa.name]
    return f"HPAs with {text} in their names are {', '.join(map(str, alike[:_MOST_NAMED]))}." if alike else ""


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
    return name, moment(stated, session.now_ms(), f"{name}@" if text else "--at") if stated else None


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
    if asked := asked_id(what):
        if change:
            raise usage(
                f"{what} is the ID of a decision",
                cause="--change selects one of an HPA's decisions, and this ID is one decision already.",
            )
        return FoundDecision(*await _by_id(past, asked), None)
    asked_hpa = _AskedHpa(ref := parse_ref(what), ref.namespace or namespace or DEFAULT_NAMESPACE, at_ms, change)
    everything, fitting, state = await _latest(past, asked_hpa)
    sole_id(sorted({recorded.hpa for recorded in fitting}), what)
    found = max(fitting, key=lambda recorded: (recorded.time_ms, recorded.head.seq))
    return FoundDecision(found, _ending(found, everything), state)


class _AskedHpa(NamedTuple):
    """The evaluations of which the newest is asked for; the other fields as for `find_decision`."""

    ref: Ref
    scope: str
    at_ms: int | None
    change: bool

    def names(self, hpa: HpaId) -> bool:
        return hpa.name == self.ref.name and hpa.namespace == self.scope and self.ref.cluster in (None, hpa.cluster)

    def fits(self, recorded: Recorded) -> bool:
        if not self.names(recorded.hpa) or recorded.head.kind != "evaluation":
            return False
        if self.at_ms is not None and recorded.time_ms > self.at_ms:
            return False
        return not self.change or recorded.outline.final_desired_replicas != recorded.outline.current_replicas


async def _latest(past: Past, asked: _AskedHpa) -> tuple[list[Recorded], list[Recorded], FleetState]:
    """The newest decisions of the HPAs of a name, those of them that fit, of the living first, else of the deleted, and
    the state in which they are.

    Raises CommandError: there is no such HPA, or it has no decision that fits (exit 4).
    """
    ref, count = asked.ref, await past.partitions()
    state = await read_state(past, [partition_for(f"{ref.cluster}/{asked.scope}", count)] if ref.cluster else None)
    living, forgotten = ([hpa for hpa in known if asked.names(hpa)] for known in (state.hpas, state.forgotten))
    if not living and not forgotten:
        raise no_such_hpa(ref, await names_known(past) if ref.cluster else state.hpas, asked.scope)
    everything: list[Recorded] = []
    for names in filter(None, (living, forgotten)):
        numbers = sorted({partition_for(hpa.namespace_key, count) for hpa in names})
        tails = await past.tail(lambda _, decisions: any(map(asked.fits, decisions)), numbers, asked.at_ms)
        everything = [recorded for tail in tails.values() for recorded in tail]
        if fitting := [recorded for recorded in everything if asked.fits(recorded)]:
            return everything, fitting, state
    decided = any(state.hpas[hpa].last_decision for hpa in living)
    raise _none_fits(asked, unrecorded=decided and not everything)


async def _by_id(past: Past, asked: AskedId) -> tuple[Recorded, Recorded | None]:
    def enough(_: int, decisions: list[Recorded]) -> bool:
        reached = bool(decisions) and decisions[0].decision.input.offset < asked.offset
        return reached or any(recorded.head.id == asked.text for recorded in decisions)

    if asked.partition >= await past.partitions():
        raise not_found(f"no decision {asked.text}", cause=f"There is no partition {asked.partition}.")
    tail = (await past.tail(enough, [asked.partition]))[asked.partition]
    id_ = only(asked, (recorded.head.id for recorded in tail))
    for recorded in tail:
        if recorded.head.id == id_:
            return recorded, _ending(recorded, tail)
    raise not_found(
        f"no decision {asked.text}",
        cause="The decisions topic does not hold it, or no longer does.",
        next_step="fleethpa decisions -A",
    )


def _ending(found: Recorded, all_: Iterable[Recorded]) -> Recorded | None:
    return next((recorded for recorded in all_ if recorded.head.completes == found.head.id), None)


def _none_fits(asked: _AskedHpa, *, unrecorded: bool) -> CommandError:
    ref, at_ms = asked.ref, asked.at_ms
    when = f" at or before {rfc3339(at_ms)}" if at_ms is not None else ""
    when = when or (" that changed the replicas" if asked.change else "")
    if unrecorded and not when:
        cause = "The log already holds what it will be decided from, but the decider has not recorded a decision yet."
        return not_found(f"{ref} has no recorded decision", cause=cause, next_step="fleethpa doctor")
    if not when:
        cause = "It is decided when its scale, its pods and an answer of its metrics have been reported."
        return not_found(f"{ref} has no decision yet", cause=cause, next_step="fleethpa doctor")
    return not_found(f"{ref} has no decision{when}", next_step=f"fleethpa decisions {ref} -n {asked.scope}")
