"""A decision as a page: what came out, its steps and metrics with their numbers, and what would change the answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from fleethpa.fleet.decisionsteps import StepRow, step_rows
from fleethpa.fleet.troubles import ClusterTrouble, cut_off
from fleethpa.show import words
from fleethpa.show.text import age, clock, for_terminal, layout, paint, shown, span, time_ago, time_of_day
from fleethpa.show.words import cause, threshold
from runtime.log import clean
from schemas.constraints import cuts, of_step, words_of
from schemas.decisionfields import DECISION_FIELDS
from schemas.decisions import Decision
from schemas.kubernetes.gotimes import parse_time_ms
from streams.analysis.rulewords import rules_in_words
from streams.hpa.gofloat import MIN_INT64
from streams.state.fights import Fight

if TYPE_CHECKING:
    from streams.analysis.counterfactual import Counterfactuals, Flip, Unmoved, Without
    from streams.analysis.load import LoweredRequest

MetricHealth = tuple[str, str, str, str, str]


def metric_health(decision: Decision, now_ms: int) -> list[MetricHealth]:
    """Name, source position, age of the newest sample at `now_ms`, pods used and note of each metric, in spec order."""
    rows = []
    for index, metric in enumerate(decision.metrics):
        source = decision.input.sources[index] if index < len(decision.input.sources) else ""
        newest = f"{age(max(0, now_ms - metric.newest))} ago" if metric.newest is not None else "-"
        note = cause(metric.error) if metric.error else words.note(metric.note)
        rows.append((words.short_name(metric), source or "-", newest, str(metric.pods_used), note or "-"))
    return rows


_TAKEN_AWAY_HOW: Final = ("MinReplicas", "StabilizationWindow", "Tolerance")
"""Limits whose removal needs an explanation; the names of the others are enough."""


def would_rows(made: Counterfactuals, made_ms: int) -> list[tuple[str, str, str]]:
    """Return what would be different, the count then, and how it was found. `made_ms`: when it was decided."""
    rows = (
        []
        if not made.apart_from
        else [(f"without {made.apart_from}", f"→ {made.final}", "and what follows is without it, too")]
    )
    rows += [_flip(flip) for flip in made.flips]
    taken = [_without(each, made.final) for each in made.without]
    rows += [row for row in taken if row[1] != "-"]
    for asks in (each.asks for each in made.unmoved if each.asks is not None):
        what, answer, how = _flip(asks)
        rows.append((f"{what}, for the metrics alone", answer, f"{how}; asked for, and held"))
    if made.release is not None:
        rows.append(
            (
                f"from {time_of_day(made.release.at, made_ms)} on",
                f"→ {made.release.answer}",
                "if everything else stays the same",
            )
        )
    # What changes nothing comes last.
    several = len({flip.metric for flip in made.flips} | {each.metric for each in made.unmoved}) > 1
    rows += [
        (f"{words.short(each.name)} {each.direction}", "-", f"changes nothing{_because(each, several)}")
        for each in made.unmoved
    ]
    return rows + [row for row in taken if row[1] == "-"]


def _flip(flip: Flip) -> tuple[str, str, str]:
    sign = "≤" if flip.direction == "lower" else "≥"
    name = words.short(flip.name)
    value, now = threshold(flip.value, flip.now, name, lower=flip.direction == "lower")
    if flip.percent:
        detail = f"{flip.varied} at {value}; was {now} ({flip.shown_now}%)"
        return f"{name} {sign} {flip.shown}%", f"→ {flip.answer}", detail
    if flip.shown not in (flip.value, MIN_INT64):  # the average over no pods
        shown, _ = threshold(flip.shown, flip.shown_now, name, lower=flip.direction == "lower")
        return f"{name} {sign} {shown} on average", f"→ {flip.answer}", f"{flip.varied} at {value}; was {now}"
    return f"{name} {sign} {value}", f"→ {flip.answer}", f"{flip.varied}; was {now}"


def _without(each: Without, final: int) -> tuple[str, str, str]:
    what = f"without {words_of(each.limit)}"
    if each.answer == final:
        return what, "-", "changes nothing"
    return what, f"→ {each.answer}", each.how if each.limit in _TAKEN_AWAY_HOW else ""


def _because(each: Unmoved, several: bool) -> str:
    """Return what keeps the answer as it is at any value of the metric."""
    if each.limits:
        names = words.listed(words_of(limit) for limit in each.limits)
        return f": {names} {'holds' if len(each.limits) == 1 else 'hold'} the replicas"
    if each.failed:
        listed = ", ".join(map(words.short, each.failed))
        have = "have" if len(each.failed) > 1 else "has"
        return f": replicas do not go down while {listed} {have} no value"
    return ": another metric decides" if several else ""


@dataclass(frozen=True)
class Explanation:
    """A decision, explained: what `explain` prints and the page shows.

    `ended`: what became of the write that it wanted; empty where it wanted none. `around`: what else was going on, by
    label. `would`: what would have changed the answer.
    """

    decision: Decision
    time_ms: int
    verdict: str
    ended: str
    around: Sequence[tuple[str, str]]
    steps: Sequence[StepRow]
    would: Sequence[tuple[str, str, str]]
    version: str = ""
    """The resourceVersion of the scale after the write; empty: none was made, or the API server gave none."""

    @property
    def notices(self) -> list[str]:
        """What else was going on, a text each with the command that comes next."""
        texts: list[str] = []
        for label, text in self.around:
            if label or not texts:
                # Of a fight, the text says that it is one.
                texts.append(text if label == "Fight" else f"{label} {text}".strip())
            else:
                texts[-1] = f"{texts[-1]}. {text}"
        return texts

    @property
    def count(self) -> str:
        """The replicas that were decided; `?` where the scale could not be read."""
        return str(self.decision.final_desired_replicas) if words.scale_is_known(self.decision) else "?"

    @property
    def failed(self) -> bool:
        """Whether there was no answer, or none that may be written."""
        return bool(self.decision.error or self.decision.refused)

    @property
    def cut_off(self) -> bool:
        """Whether the verdict names what is wrong with the cluster, because of which there is no metric."""
        return self.verdict.startswith(words.NO_METRIC)

    @property
    def held(self) -> str:
        """Which of fleethpa's own limits keeps the count, and until when; empty: none does."""
        return words.braked(self.decision) if self.decision.kind == "evaluation" else ""

    @property
    def bars(self) -> list[float]:
        """The count after each step as a share of the highest one; 0 where it is not known."""
        counts = [int(step.value) if step.value.isdigit() else 0 for step in self.steps]
        return [count / max(1, *counts) for count in counts]


def explained(
    decision: Decision,
    ending: Decision | None = None,
    *,
    would: Counterfactuals | None = None,
    fight: Fight | None = None,
    troubles: Iterable[ClusterTrouble] = (),
    lowered: Iterable[LoweredRequest] = (),
    stopped: Sequence[tuple[str, str]] = (),
    pods: Sequence[str] = (),
    disabled: str = "",
) -> Explanation:
    """Explain a decision.

    `ending` is the record that completed its write, where there is one; `would`: what would have changed the answer;
    `fight`: two writers that undid each other when it was made; `troubles`: what is wrong in its cluster; `lowered`:
    requests that fell before it; `stopped`: which of its changes were not to be written then, and why, by label;
    `pods`: which pods could not be counted; `disabled`: the direction that the spec forbids and its metrics ask for.
    """
    made_ms, troubles = parse_time_ms(decision.time), list(troubles)
    verdict = _for_want_of_metrics(decision, made_ms, troubles) or _verdict(decision, disabled)
    is_said = bool(decision.paused) and decision.paused.removeprefix("held: ") in verdict
    return Explanation(
        decision,
        made_ms,
        verdict,
        "" if is_said else _ending(decision, ending, made_ms),
        [
            *_stopped(decision, stopped),
            *(("Pods", text) for text in pods),
            *_surroundings(decision, fight, troubles),
            *map(_lowered, lowered),
        ],
        list(step_rows(decision)),
        would_rows(would, made_ms) if would is not None else [],
        "" if ending is None else ending.outcome.get("resourceVersion", ""),
    )


def explanation_lines(
    explanation: Explanation, *, now_ms: int, time_style: str = "utc", color: bool = False
) -> list[str]:
    """An explanation on a terminal."""
    head = [f"{label:<10} {text}" for label, text in (*_head(explanation, now_ms, time_style, color),)]
    around = [paint(f"{label:<10} {text}", "red", color=color) for label, text in explanation.around]
    winner = f"   {paint('◀ winner', 'green', color=color)}"
    steps = layout([("STEP", "VALUE", "DETAIL"), *(step[:3] for step in explanation.steps)])
    shown = [
        f"{line}{winner if step.is_winner else ''}" for line, step in zip(steps[1:], explanation.steps, strict=True)
    ]
    would = [f"  {line}" for line in layout(explanation.would)] if explanation.would else []
    if would:
        would.insert(0, "Would change the answer (each checked by evaluating it):")
    lines = [*head, *around, "", steps[0], *shown, "", *_tail(explanation.decision), *would]
    return [for_terminal(line, color=color, keep=clean) for line in lines]


def _head(explanation: Explanation, now_ms: int, time_style: str, color: bool) -> Iterator[tuple[str, str]]:
    decision = explanation.decision
    target = decision.scale_target_ref or {"kind": "?", "name": "?"}
    who = f"{decision.cluster}  {decision.namespace}/{decision.name} → {target.get('kind')}/{target.get('name')}"
    yield "Decision", f"{decision.id}   {who}   mode {decision.mode} ({decision.origin})"
    when = time_ago(explanation.time_ms, now_ms)
    if time_style != "utc":
        when = shown(explanation.time_ms, time_style, now_ms)
    rules = f"   rules of Kubernetes {rules_in_words(decision.rules)}" if decision.rules else ""
    yield "Evaluated", f"{when}  spec generation {decision.generation}   engine {decision.engine}{rules}"
    what = paint(explanation.verdict, _style(decision), color=color)
    version = f" (scale.resourceVersion {explanation.version})" if explanation.version and explanation.ended else ""
    yield "Result", "    ".join(filter(None, (what, f"{explanation.ended}{version}")))
    yield from labelled(decision)


def labelled(decision: Decision) -> Iterator[tuple[str, str]]:
    """The fields that have a line of their own, with their labels."""
    for field in DECISION_FIELDS:
        if field.label and (value := getattr(decision, field.name)):
            yield field.label, words.one_line(", ".join(value) if isinstance(value, list) else str(value))


def _stopped(decision: Decision, stopped: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield what would have stopped a change; where it stopped one, the verdict says so."""
    if not decision.paused:
        yield from stopped


def _surroundings(
    decision: Decision, fight: Fight | None, troubles: Iterable[ClusterTrouble]
) -> Iterator[tuple[str, str]]:
    """Yield what else was going on, each with the command that comes next."""
    if fight is not None:
        target = decision.scale_target_ref
        what = f"{target.get('kind', '').lower()} {target.get('name', '')}"
        yield "Fight", f"{words.fight(fight)}, since {time_of_day(fight.since, parse_time_ms(decision.time))}"
        kubectl = f"kubectl --context {decision.cluster} -n {decision.namespace}"
        yield "", f"Next: {kubectl} get {what} -o yaml --show-managed-fields"
    for trouble in troubles:
        yield "Cluster", f"{decision.cluster}: {trouble.text}"
        yield "", f"Next: {trouble.next_step}"


def _lowered(lowered: LoweredRequest) -> tuple[str, str]:
    metric = words.short(lowered.metric)
    requests = words.alike((lowered.request_before, lowered.request), metric)
    usages = words.alike((lowered.usage_before, lowered.usage), metric)
    return "Request", (
        f"{metric}: the ratio rose because the request fell, from about {' to '.join(requests)} per pod; "
        f"usage {' → '.join(usages)}; of pods that are resized in place upstream counts the new request at once "
        "(kubernetes #142155)"
    )


def _style(decision: Decision) -> str:
    if decision.error or decision.refused:
        return "red"
    return "green" if decision.final_desired_replicas != decision.current_replicas else "bold"


def _for_want_of_metrics(decision: Decision, made_ms: int, troubles: Iterable[ClusterTrouble]) -> str:
    """The verdict where the cluster gave nothing: the reason, not the error of a client that met it; empty: it gave."""
    stays = decision.final_desired_replicas == decision.current_replicas
    if decision.kind != "evaluation" or not (decision.error and stays) or any(not m.error for m in decision.metrics):
        return ""
    began = [each for each in troubles if each.since_ms is not None and each.since_ms <= made_ms]
    if not (why := cut_off(decision.cluster, made_ms, began)):
        return ""
    shown = (decision.status or {}).get("currentReplicas")
    held = decision.current_replicas if words.scale_is_known(decision) else shown
    return f"{words.NO_METRIC}{why}" + ("" if held is None else f"; replicas held at {held}")


def _verdict(decision: Decision, disabled: str) -> str:
    """The verdict as a sentence: what comes out, what limits or holds it and until when, and what the metric says."""
    if decision.kind == "completion":
        return _sentence(words.why(decision))
    before, after = decision.current_replicas, decision.final_desired_replicas
    if not words.scale_is_known(decision):
        return f"Nothing changes, the replicas are not known: {words.failure(decision)}"
    if before != after:
        way = f"{'up' if after > before else 'down'} from {before} to {after}"
        moves = f"Would go {way}" if words.not_written(decision) else f"Goes {way}"
        return f"{moves}: {_cause_of_change(decision)}{_free(decision)}"
    if words.OVERRIDE in decision.constraints_applied or decision.error or any(each.error for each in decision.metrics):
        return f"Stays at {after}: {words.reason(decision)}{_free(decision)}"
    if disabled and not decision.paused:
        # No window lets go of it: after its end the spec still forbids the change.
        _, text = words.disabled_direction(disabled)
        return _with_asks(f"Stays at {after}: {text}", decision)
    bounds, others = words.holding(decision)
    if not (bounds or others):
        return _kept(decision)
    stays = f"Stays at {' and '.join(bounds) or after}"
    held = _holds(decision, others) if others else ""
    return _with_asks(f"{stays}: {held}" if held else stays, decision, "; " if held else ": ")


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"


def _cause_of_change(decision: Decision) -> str:
    """Which metric asks for a change, and what cuts it."""
    if words.OVERRIDE in decision.constraints_applied:
        return words.limited(decision).removeprefix("; ")
    asks = words.asks(decision) if decision.selected_metric else ""
    limited = words.held_by(decision)
    parts = [asks or words.rescale_reason(decision), limited and f"limited by {limited}"]
    if decision.error:
        parts.append(words.failure(decision))
    return "; ".join(filter(None, parts)) + ("" if asks else words.asked_for(decision))


def _with_asks(text: str, decision: Decision, sign: str = "; ") -> str:
    asks = words.asks(decision)
    return f"{text}{sign}{asks}" if asks else text


def _kept(decision: Decision) -> str:
    """The verdict where nothing beside the metrics keeps the count."""
    after, why, asks = decision.final_desired_replicas, words.reason(decision), words.asks(decision)
    if asks and decision.raw_desired_replicas == after:
        kept = words.kept(decision)
        return f"Stays at {after}: {kept}; {asks}" if kept else f"Stays at {after}: {asks}"
    return f"Stays at {after}: {why}{_free(decision)}"


def _holds(decision: Decision, others: Mapping[str, str]) -> str:
    """Return what holds the count beside its bounds, and until when."""
    if decision.paused:
        return f"{decision.paused.removeprefix('held: ')}{_free(decision)}"
    if set(others) == {"StabilizationWindow"}:
        return f"held by {_window(decision)}{_until(decision)}"
    names = words.listed(others.values())
    if all(map(cuts, others)):
        return f"{names} {'allows' if len(others) == 1 else 'allow'} no more{_until(decision)}"
    return f"held by {names}{_free(decision)}"


def _window(decision: Decision) -> str:
    down = (decision.raw_desired_replicas or 0) < decision.final_desired_replicas
    return f"scale-{'down' if down else 'up'} stabilization"


def _until(decision: Decision) -> str:
    ends = [step.until for step in decision.steps if step.until]
    return f" until {_moment(max(ends), parse_time_ms(decision.time))}" if ends else ""


def _moment(time_ms: int, made_ms: int) -> str:
    """A time of the day, and how long after the decision it is."""
    return f"{clock(time_ms, made_ms)} (in {span(max(0, time_ms - made_ms))})"


def _free(decision: Decision) -> str:
    """When a brake lets go, to put behind the verdict; empty where none holds."""
    for step in decision.steps:
        known = of_step(step.step)
        if known is not None and known.released and step.until:
            return f"; {known.released} at {_moment(step.until, parse_time_ms(decision.time))}"
    return ""


def _ending(decision: Decision, ending: Decision | None, made_ms: int) -> str:
    """Return what became of the write that it wanted; empty where it wanted none."""
    if not_made := words.not_written(decision):
        return f"not written: {not_made}"
    if decision.wants is None or decision.kind == "completion":
        return ""
    if ending is None:
        return "write pending"
    took = parse_time_ms(ending.time) - made_ms
    error = ending.outcome.get("error")
    return f"{ending.outcome.get('result', 'ended')} in {span(took)}" + (f": {error}" if error else "")


# --- below the table --------------------------------------------------------------------------------------------------


def _tail(decision: Decision) -> list[str]:
    position = decision.input
    sources = sorted({source for source in position.sources if source})
    inputs = f"Inputs   log {position.partition}@{position.offset}  {'  '.join(sources)}".rstrip()
    return [
        f"{inputs}      Recompute: fleethpa replay {decision.id}",
        *(f"Event    {kind} {reason}: {message}" for kind, reason, message in decision.events),
    ]
