"""What a command would change: its records are folded into a copy of the present state before they are written.

Who scales a target afterwards is thus answered by the rules that the decider itself follows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleethpa.changes.records import PlannedRecord
from fleethpa.changes.writing import Concern
from fleethpa.fleet.state import read_state
from fleethpa.frame.errors import CommandError
from fleethpa.show.words import counted, listed
from runtime.log import without_cycle_search
from schemas.codec import encode
from schemas.entries import VERSION, WHOLE_PARTITION_KEY, Entry, LogRecord
from schemas.keys import EVERY_CLUSTER, FLEET, HpaId, namespace_key
from schemas.partitioning import partition_for
from streams.partition import Partition
from streams.state.ownership import Claim, Holder, Ownership, ScaleTarget, ownership

if TYPE_CHECKING:
    from fleethpa.fleet.views import FleetState
    from streams.history.past import Folded, Past

LISTED = 5
"""How many targets or HPAs a question names; of the rest it gives the number."""


@dataclass(frozen=True)
class Foresight:
    """Who drives which target before and after some records."""

    before: Ownership
    after: Ownership

    def lost(self) -> list[str]:
        """Return which targets something scales now and nothing would scale afterwards."""
        gone = self.before.lost(self.after)
        places = {(target.namespace, target.target) for target in gone if target.cluster != FLEET}
        return [
            f"{_where(target, held)}, which {_holders(held)} scales now"
            for target, held in sorted(gone.items())
            if target.cluster != FLEET or (target.namespace, target.target) not in places
        ]

    def refusals(self, hpas: Iterable[HpaId]) -> dict[HpaId, Claim]:
        """Return those of some HPAs that would be asked to enforce, and refused."""
        claims = {hpa: self.after.claims[hpa] for hpa in hpas if hpa in self.after.claims}
        return {hpa: claim for hpa, claim in claims.items() if claim.asked == "enforce" and claim.refused}

    def changed_modes(self) -> list[HpaId]:
        """Return the HPAs whose mode would be another one."""
        before, after = self.before.claims, self.after.claims
        return [hpa for hpa in before.keys() & after.keys() if before[hpa].asked != after[hpa].asked]

    def displaced(self, hpa: HpaId) -> list[Holder]:
        """Return the other HPAs that drive the target of an HPA now, and this one in their place afterwards."""
        claim = self.after.claims.get(hpa)
        after = self.after.holders.get(claim.target, []) if claim is not None else []
        if claim is None or Holder(hpa, native=False) not in after:
            return []
        return [each for each in self.before.holders.get(claim.target, []) if each.hpa != hpa and each not in after]

    def handed_over(self) -> list[str]:
        """Return which targets pass between a cluster's HPA and the central one of its name."""
        texts = []
        for hpa, claim in sorted(self.after.claims.items()):
            held = self.before.claims.get(hpa)
            if held is None or held.origin == claim.origin:
                continue
            is_central = claim.origin == "central"
            new = (
                "the central HPA takes over from the cluster's" if is_central else "the cluster's HPA takes over again"
            )
            texts.append(f"{hpa}: {new}, in mode {claim.mode}; what was remembered of recommendations is kept")
        return texts

    def touched(self, writes: Iterable[PlannedRecord]) -> list[HpaId]:
        """Return the HPAs that some records are about, existing ones and new ones."""
        claims = self.before.claims.keys() | self.after.claims.keys()
        return sorted({hpa for write in writes for hpa in _meant(write, claims)})

    def summary(self, hpas: Sequence[HpaId]) -> str:
        """Count HPAs by cluster and mode: `east: 8 enforce, 2 shadow; west: 1 new`."""
        clusters: dict[str, Counter[str]] = {}
        for hpa in hpas:
            claim = self.before.claims.get(hpa)
            is_refused = claim is not None and claim.asked == "enforce" and claim.refused
            shown = "new" if claim is None else "enforce (refused)" if is_refused else claim.mode
            clusters.setdefault(hpa.cluster, Counter())[shown] += 1
        counts = {
            cluster: ", ".join(f"{count} {mode}" for mode, count in sorted(modes.items()))
            for cluster, modes in clusters.items()
        }
        return "; ".join(f"{cluster}: {text}" for cluster, text in sorted(counts.items()))


def _holders(held: Sequence[Holder]) -> str:
    names = [f"{'the native controller by HPA' if each.native else 'fleethpa by HPA'} {each.hpa.name}" for each in held]
    return " and ".join(names)


def _where(target: ScaleTarget, held: Sequence[Holder]) -> str:
    if target.cluster != FLEET:
        return str(target)
    return f"{target.short} in the clusters of {held[0].hpa}"


def _meant(write: PlannedRecord, known: Iterable[HpaId]) -> list[HpaId]:
    hpa = getattr(write.body, "hpa", None)
    if name := str(hpa["metadata"]["name"] if hpa is not None else getattr(write.body, "name", "")):
        return [HpaId(write.cluster, write.namespace, name)]
    return [
        hpa for hpa in known if write.cluster in (EVERY_CLUSTER, hpa.cluster) and write.namespace in ("", hpa.namespace)
    ]


class Present:
    """The state of the log's partitions as of now; records can be tried on copies of it."""

    def __init__(self, folded: Iterable[Folded]) -> None:
        """`folded`: all partitions (`Past.fleet`)."""
        self._stored = {each.partition.number: each.rows() for each in folded}

    def foresee(self, writes: Sequence[PlannedRecord]) -> Foresight:
        """Return who drives what, before and after, in the partitions that records go to."""
        entries = {
            number: [entry for write in writes for entry in self._entries(number, write)] for number in self._stored
        }
        partitions = [Partition.restore(number, self._stored[number]) for number, some in entries.items() if some]
        before = ownership(*(partition.state for partition in partitions))
        for partition in partitions:
            value = encode(LogRecord(v=VERSION, entries=entries[partition.number]))
            partition.apply(partition.applied_offset + 1, partition.clock_ms, value)
        return Foresight(before, ownership(*(partition.state for partition in partitions)))

    def _entries(self, number: int, write: PlannedRecord) -> list[Entry]:
        if not write.namespace:
            return [Entry(key=WHOLE_PARTITION_KEY, body=body) for body in write.bodies]
        key = namespace_key(write.cluster, write.namespace)
        return [Entry(key=key, body=body) for body in write.bodies if partition_for(key, len(self._stored)) == number]


def concerns(verb: str, foresight: Foresight, writes: Sequence[PlannedRecord]) -> list[Concern]:
    """Return what the user must agree to before records are written; empty: nothing."""
    concern_list = []
    touched = foresight.touched(writes)
    if len(touched) > 1:
        concern_list.append(Concern(f"{verb} touches {counted(len(touched), 'HPA')} ({foresight.summary(touched)})"))
    for hpa in touched:
        for holder in foresight.displaced(hpa):
            taken = f"{hpa} takes {foresight.after.claims[hpa].target.short} over from HPA {holder.hpa.name}"
            concern_list.append(Concern(f"{taken}, without what that one remembers of recommendations", harmful=True))
    lost = foresight.lost()
    if lost:
        concern_list.append(Concern(f"nothing will scale any more: {listed(lost, LISTED, '; ')}", harmful=True))
    return concern_list


async def read_present(past: Past) -> tuple[FleetState, Present]:
    """Read the state of all partitions once, to be shown and to try records on. Raises as `read_state` does."""
    with without_cycle_search():
        folded = await past.fleet()
        present = Present(folded)
    return await read_state(past, known=folded), present


def needs_agreement(foresight: Foresight, concerns: Iterable[Concern]) -> bool:
    """Whether the user is asked before settings are changed: modes change, or it does harm."""
    return bool(foresight.changed_modes()) or any(concern.harmful for concern in concerns)


def refusal_errors(refused: Mapping[HpaId, Claim], what: str) -> list[CommandError]:
    """Return which HPAs cannot be enforced, one error for each reason; of several, the command of the first is
    shown.
    """
    by_reason: dict[str, list[HpaId]] = {}
    for hpa, claim in sorted(refused.items()):
        by_reason.setdefault(claim.refused.replace(str(hpa), "HPA"), []).append(hpa)
    return [_refusal([refused[hpa] for hpa in hpas], f"{_named(hpas)} {what}") for hpas in by_reason.values()]


def _refusal(claims: Sequence[Claim], what: str) -> CommandError:
    """The error about HPAs that are refused for one reason, with commands that differ at most by their names."""
    remedies = list(dict.fromkeys(claim.remedy for claim in claims))
    step = remedies[0] + (", and so for each of them" if len(remedies) > 1 else "")
    return CommandError(what, cause=claims[0].refused, next_step=step)


def _named(hpas: Sequence[HpaId]) -> str:
    if len(hpas) == 1:
        return f"hpa {hpas[0]}"
    return f"{len(hpas)} HPAs ({listed(map(str, hpas), LISTED)})"
