"""What `explain` and `verify` know beyond the record: an evaluation repeated, compared, and what would change it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from fleethpa.fleet import decisions as decisionlists
from fleethpa.fleet.decisionfinding import AskedId, no_decision, only
from fleethpa.fleet.decisionpage import Explanation, explained
from fleethpa.fleet.state import read_state
from fleethpa.fleet.troubles import ClusterTrouble
from fleethpa.frame.errors import usage
from fleethpa.frame.sources import talking
from runtime.log import clean
from schemas.keys import FLEET
from streams import attachments
from streams.across.fleet import CONSTRAINT as SHARE
from streams.analysis.answer import answer
from streams.analysis.counterfactual import Counterfactuals, counterfactuals
from streams.analysis.load import BACK_MS, LoweredRequest, lowered_requests
from streams.analysis.podfaults import foreign_pods, pod_faults
from streams.archive.layout import ArchiveError
from streams.history.evaluations import FarStateError, evaluation_of
from streams.history.past import LogGoneError, Past
from streams.history.recorded import Recorded
from streams.history.replay import Derived, derive, differences
from streams.state.fights import Fight, fight_now
from streams.state.inputs import EvaluationInputs
from streams.state.ledger import CoreError
from streams.state.limits.limit import stopped
from streams.state.needs import is_disabled


async def derived_again(past: Past, asked: AskedId, servers: str) -> Derived:
    """Derive the decision that is named again from the log; `servers`: the brokers, for messages.

    Raises CommandError: no such decision (exit 4), or the source cannot be read.
    """
    async with talking(servers):
        try:
            if asked.partition >= await past.partitions():
                raise no_decision(asked, f"The topics have no partition {asked.partition}.")
            derived = await derive(past, asked.partition, asked.text, lambda ids: only(asked, ids))
        except (ArchiveError, CoreError) as error:
            raise usage(
                f"decision {asked.text} cannot be re-derived: {error}", next_step="fleethpa audit verify"
            ) from error
    if derived.published is None and derived.made is None:
        raise no_decision(asked, "Neither the decisions nor the log hold it.")
    return derived


def derived_document(past: Past, derived: Derived) -> dict[str, Any]:
    """Return what came out, as machine formats show it."""
    standing, recomputed = derived.published, derived.made
    value = standing.value if standing else b""
    differing = differences(value, recomputed.value) if standing and recomputed else []
    body: dict[str, Any] = msgspec.json.decode(recomputed.value if recomputed else value)
    identical = standing is not None and recomputed is not None and value == recomputed.value
    return {
        "id": derived.id,
        "identical": identical,
        "source": past.name,
        "recorded": standing is not None,
        "recomputed": recomputed is not None,
        "offset": standing.offset if standing else None,
        "seq": body.get("seq"),
        "input": body.get("input"),
        "engine": body.get("engine", 1),
        "start": derived.start,
        "logRecords": derived.folded,
        "differences": [{"path": d.path, "text": str(d)} for d in differing],
    }


def derived_text(found: dict[str, Any]) -> str:
    """Return what came out (a `document`), for people."""
    start = f"the snapshot at log offset {found['start']}" if found["start"] >= 0 else "the log's first record"
    lines = [f"decision   {found['id']}  number {found['seq']} of its partition"]
    if found["input"]:
        lines.append(
            f"input      log {found['input']['partition']}@{found['input']['offset']}  {found['input']['hash']}"
        )
    lines.append(f"made from  {start}, {found['logRecords']:,} log records folded")
    if found["identical"]:
        return "\n".join([*lines, "identical  to the byte"])
    if not found["recorded"]:
        return "\n".join([*lines, "MISSING    it follows from the log, but is not among the decisions"])
    if not found["recomputed"]:
        return "\n".join([*lines, "EXTRA      it is recorded, but does not follow from the log"])
    shown = [clean(f"DIFFERS    {each['text']}") for each in found["differences"]]
    return "\n".join([*lines, *(shown or ["DIFFERS    in its bytes, though not in their meaning"])])


RECENT_MS: Final = 300_000
"""A decision that is older says nothing of how its cluster is now."""


@dataclass(frozen=True)
class Again:
    """A decision that was evaluated again: the whole record, what would have changed the answer, and a fight over the
    replicas that went on then. `unknown`: why that cannot be found out, where the log no longer reaches back far
    enough.
    """

    recorded: Recorded
    would: Counterfactuals | None = None
    fight: Fight | None = None
    unknown: str = ""
    lowered: Sequence[LoweredRequest] = ()
    """Requests that fell before it."""
    stopped: Sequence[tuple[str, str]] = ()
    """Why changes of it were not written then, whether it asked for one or not, by label: `Paused`, `Frozen`."""
    pods: Sequence[str] = ()
    """Which pods could not be counted, and why; a fault of upstream that it met."""
    disabled: str = ""
    """The direction of the spec's behavior (`scaleUp`, `scaleDown`) that forbids what its metrics ask for."""
    is_far: bool = False
    """Whether it was not evaluated again, as that would have cost more than it may."""

    def explained(self, ending: Recorded | None, troubles: Sequence[ClusterTrouble] = ()) -> Explanation:
        """The explanation. `ending`: the record that completed its write; `troubles`: of its cluster."""
        ended = ending.decision if ending is not None else None
        return explained(
            self.recorded.decision,
            ended,
            would=self.would,
            fight=self.fight,
            troubles=troubles,
            lowered=self.lowered,
            stopped=self.stopped,
            pods=self.pods,
            disabled=self.disabled,
        )


async def evaluated_again(past: Past, recorded: Recorded, most: int | None = None) -> Again:
    """Evaluate a decision again: what would have changed the answer.

    `most`: as of `evaluation_of`.

    A FleetHPA decides over reports, and the HPA in one of its clusters wants its share, whatever its metrics ask for:
    other values of their metrics would show nothing.
    """
    if recorded.decision.kind != "evaluation" or recorded.decision.cluster == FLEET:
        return Again(recorded)
    try:
        again = await evaluation_of(past, recorded, most)
    except FarStateError:
        return Again(recorded, is_far=True)
    except LogGoneError as error:
        return Again(recorded, unknown=str(error))
    inputs = again.inputs
    fight = fight_now(inputs.moves, inputs.now_ms)
    would = None if SHARE in recorded.decision.constraints_applied else counterfactuals(inputs)
    evaluation, current = answer(inputs).evaluation, recorded.decision.current_replicas
    pods = [*pod_faults(inputs, evaluation, again.owners), *filter(None, [foreign_pods(inputs, again.owners)])]
    return Again(
        recorded,
        would,
        fight,
        lowered=await _lowered(past, recorded),
        stopped=_stopped(inputs),
        pods=pods,
        disabled=is_disabled(inputs.spec, recorded.decision.raw_desired_replicas, current),
    )


def _stopped(inputs: EvaluationInputs) -> list[tuple[str, str]]:
    if inputs.mode != "enforce":
        return []
    return stopped(attachments.LIMITS, inputs.limits)


async def _lowered(past: Past, recorded: Recorded) -> list[LoweredRequest]:
    """Which requests fell within ten minutes before a decision to scale up by utilization; others are not looked at."""
    decision = recorded.decision
    if decision.direction != "ScaleUp" or not any(metric.utilization for metric in decision.metrics):
        return []
    since_ms = recorded.time_ms - BACK_MS
    async with aclosing(
        past.decisions(recorded.partition, since_ms, recorded.time_ms, lambda hpa: hpa == recorded.hpa)
    ) as earlier:
        past_ones = [each.decision async for each in earlier if each.decision.kind == "evaluation"]
    return lowered_requests(past_ones, decision)


async def troubles_of(past: Past, recorded: Recorded, ending: Recorded | None, now_ms: int) -> list[ClusterTrouble]:
    """Return what is wrong in the cluster of a decision of now that failed, or whose write did."""
    failed = recorded.decision.error or (ending is not None and ending.decision.error)
    if not failed or now_ms - recorded.time_ms > RECENT_MS:
        return []
    cluster = (await read_state(past)).clusters.get(recorded.decision.cluster)
    return cluster.troubles if cluster is not None else []


def document(again: Again) -> dict[str, Any]:
    """A decision as machine formats of `explain` show it."""
    body = decisionlists.document(again.recorded.decision)
    if again.would is not None:
        body["counterfactuals"] = msgspec.to_builtins(again.would)
    if again.fight is not None:
        body["fight"] = msgspec.to_builtins(again.fight)
    return body
