"""A decision as a page: what came out, the steps with their numbers, its inputs and what would change the answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from fleethpa.cli.output import words
from fleethpa.cli.output.errortexts import one_line
from fleethpa.cli.output.metricline import metric_line
from fleethpa.cli.output.table import for_terminal, layout, paint
from fleethpa.cli.output.times import age, rfc3339, shown, span
from fleethpa.cli.output.would import lines as would_lines
from runtime.jsonlog import clean
from schemas.decisions import Decision, MetricDecision, Step
from schemas.kubernetes.gotimes import parse_time_ms

if TYPE_CHECKING:
    from fleethpa.cli.common.clustertroubles import ClusterTrouble
    from streams.analysis.counterfactual import Counterfactuals
    from streams.state.moves import Fight

StepRow = tuple[str, str, str]
BRAKES: Final = {
    "removalBudget": "more may be removed",
    "additionBudget": "more may be added",
    "partialView": "it is released when the view is whole, or else",
}
"""Step of a brake -> what happens when it lets go."""


def explanation(
    decision: Decision,
    ending: Decision | None,
    *,
    now_ms: int,
    time_style: str = "utc",
    color: bool = False,
    would: Counterfactuals | None = None,
    fight: Fight | None = None,
    troubles: Iterable[ClusterTrouble] = (),
) -> list[str]:
    """Lay out one decision.

    `ending` is the record that completed its write, where there is one; `would`: what would have changed the answer;
    `fight`: two writers that undid each other when it was made; `troubles`: what is wrong in its cluster.
    """
    table = layout([("STEP", "VALUE", "DETAIL"), *steps(decision)])
    lines = [
        *_head(decision, ending, now_ms, time_style, color),
        *[paint(line, "red", color=color) for line in surroundings(decision, fight, troubles)],
        "",
        *[line.replace("◀ winner", paint("◀ winner", "green", color=color)) for line in table],
        "",
        *_tail(decision, would),
    ]
    return [for_terminal(line, color=color, keep=clean) for line in lines]


def _head(
    decision: Decision,
    ending: Decision | None,
    now_ms: int,
    time_style: str,
    color: bool,
) -> list[str]:
    made_ms = parse_time_ms(decision.time)
    target = decision.scale_target_ref or {"kind": "?", "name": "?"}
    who = f"{decision.cluster}  {decision.namespace}/{decision.name} → {target.get('kind')}/{target.get('name')}"
    what = paint(result(decision), _style(decision), color=color)
    when = f"{shown(made_ms, time_style, now_ms)}  ({age(max(0, now_ms - made_ms))} ago)"
    return [
        f"Decision   {decision.id}   {who}   mode {decision.mode} ({decision.origin})",
        f"Evaluated  {when}  spec generation {decision.generation}   engine {decision.engine}",
        f"Result     {what}{_winner(decision)}{ending_text(decision, ending, made_ms)}",
    ]


def surroundings(decision: Decision, fight: Fight | None, troubles: Iterable[ClusterTrouble]) -> Iterator[str]:
    """What else was going on, each with the command that comes next."""
    if fight is not None:
        target = decision.scale_target_ref
        what = f"{target.get('kind', '').lower()} {target.get('name', '')}"
        yield f"Fight      {words.fight(fight)}, since {rfc3339(fight.since)}"
        kubectl = f"kubectl --context {decision.cluster} -n {decision.namespace}"
        yield f"{'':<11}Next: {kubectl} get {what} -o yaml --show-managed-fields"
    for trouble in troubles:
        yield f"Cluster    {decision.cluster}: {trouble.text}"
        yield f"{'':<11}Next: {trouble.next_step}"


def _style(decision: Decision) -> str:
    if decision.error or decision.refused:
        return "red"
    return "green" if decision.final_desired_replicas != decision.current_replicas else "bold"


def result(decision: Decision) -> str:
    """The verdict in one sentence: what came out, what limited or held it, and until when."""
    if decision.kind == "completion":
        return f"WRITE ENDED  {words.why(decision)}"
    before, after = decision.current_replicas, decision.final_desired_replicas
    if not words.scale_is_known(decision):
        return f"NO CHANGE, the replicas are not known: {words.failure(decision)}"
    if before != after:
        return (
            f"SCALE {'UP' if after > before else 'DOWN'}  {before} → {after}{words.limited(decision)}{_free(decision)}"
        )
    if decision.constraints_applied == ["StabilizationWindow"] and not decision.error:
        return f"HELD at {after} by {_window(decision)}{_until(decision)}{words.asked_for(decision)}"
    why = words.reason(decision)
    what = f"NO CHANGE  {why}" if why.startswith("at ") else f"NO CHANGE at {after}: {why}"
    return f"{what}{_free(decision)}"


def _window(decision: Decision) -> str:
    down = (decision.raw_desired_replicas or 0) < decision.final_desired_replicas
    return f"scale-{'down' if down else 'up'} stabilization"


def _until(decision: Decision) -> str:
    ends = [step.until for step in decision.steps if step.until]
    if not ends:
        return ""
    return f" until {rfc3339(max(ends))} (in {span(max(0, max(ends) - parse_time_ms(decision.time)))})"


def _free(decision: Decision) -> str:
    """When a brake lets go, to put behind the verdict; empty where none holds."""
    brake = next((step for step in decision.steps if step.step in BRAKES and step.until), None)
    if brake is None or not brake.until:
        return ""
    left = span(max(0, brake.until - parse_time_ms(decision.time)))
    return f"; {BRAKES[brake.step]} at {rfc3339(brake.until)} (in {left})"


def _winner(decision: Decision) -> str:
    return f"    winner: {words.short(decision.selected_metric)}" if decision.selected_metric else ""


def ending_text(decision: Decision, ending: Decision | None, made_ms: int) -> str:
    """What became of the write that it wanted, to put behind the verdict; empty where it wanted none."""
    if not_made := words.not_written(decision):
        return f"    not written: {not_made}"
    if decision.wants is None or decision.kind == "completion":
        return ""
    if ending is None:
        return "    write pending"
    took = parse_time_ms(ending.time) - made_ms
    version = ending.outcome.get("resourceVersion", "")
    detail = f" (scale.resourceVersion {version})" if version else ""
    error = ending.outcome.get("error")
    return f"    {ending.outcome.get('result', 'ended')} in {span(took)}{detail}" + (f": {error}" if error else "")


# --- steps ------------------------------------------------------------------------------------------------------------


def steps(decision: Decision) -> Iterator[StepRow]:
    """The way from the current count to the final one: step, count after it, and its numbers in words."""
    known = words.scale_is_known(decision)
    yield "current", str(decision.current_replicas) if known else "-", _current(decision)
    for metric in decision.metrics:
        proposal = "-" if metric.proposal is None else str(metric.proposal)
        yield words.short_name(metric), proposal, metric_line(decision, metric, _is_winner(decision, metric))
    if len(decision.metrics) > 1 and decision.raw_desired_replicas is not None:
        yield "max of metrics", str(decision.raw_desired_replicas), ""
    for step in decision.steps:
        if step.step != "metrics":
            yield _step_name(step), str(step.out), _step(decision, step)
    yield "final", str(decision.final_desired_replicas) if known else "-", _final(decision)


def _final(decision: Decision) -> str:
    if not decision.status:
        return ""
    conditions = decision.status.get("conditions") or []
    telling = ("AbleToScale", "ScalingActive")
    false = [c for c in conditions if c.get("type") in telling and c.get("status") == "False"]
    return "; ".join(f"{c.get('type')}=False {c.get('reason')}" for c in false)


def _current(decision: Decision) -> str:
    observed = decision.observed
    if not words.scale_is_known(decision):
        return f"the scale could not be read: {one_line(decision.error)}"
    parts = []
    if "specReplicas" in observed and "statusReplicas" in observed:
        parts = [f"scale.spec {observed['specReplicas']}, scale.status {observed['statusReplicas']}"]
    pods = next((m for m in decision.metrics if m.pods_used or m.pods_not_ready or m.pods_missing), None)
    if pods is not None:
        parts.append(f"{pods.pods_used} ready, {pods.pods_not_ready} not ready, {pods.pods_missing} without metrics")
    return "; ".join(parts)


def _is_winner(decision: Decision, metric: MetricDecision) -> bool:
    if metric.proposal is None or metric.proposal != decision.raw_desired_replicas:
        return False
    first = next((m for m in decision.metrics if m.proposal == decision.raw_desired_replicas), None)
    return first is metric


def _step_name(step: Step) -> str:
    names = {
        "bounds": "min/max bounds",
        "scaleUpPolicy": "scaleUp policy",
        "scaleDownPolicy": "scaleDown policy",
        "removalBudget": "removal budget",
        "additionBudget": "addition budget",
        "partialView": "partial view",
    }
    return names.get(step.step, step.step)


def _step(decision: Decision, step: Step) -> str:
    detail = dict(step.detail)
    parts = [f"{step.in_} → {step.out}"] if step.in_ != step.out else []
    if step.step == "bounds":
        parts.append(f"{decision.min_replicas} … {decision.max_replicas}{_bound(detail)}")
    if step.step == "stabilization":
        parts += _stabilization(decision, step, detail)
    policies = detail.pop("policies", None)
    if "limit" in detail:
        limit = detail.pop("limit")
        parts.append(f"limit {limit}" + (f" = {_policies(policies)}" if policies else ""))
    parts += [_fact(name, value) for name, value in detail.items()]
    return "; ".join(part for part in parts if part)


def _bound(detail: dict[str, Any]) -> str:
    detail.pop("path", None)
    texts = {"TooManyReplicas": ": maxReplicas limits", "TooFewReplicas": ": minReplicas limits"}
    return texts.get(detail.pop("bound", ""), "")


def _stabilization(decision: Decision, step: Step, detail: dict[str, Any]) -> list[str]:
    made_ms = parse_time_ms(decision.time)
    windows = {"up": detail.pop("upWindowMs", None), "down": detail.pop("downWindowMs", None)}
    parts = [f"{name} window {span(length)}" for name, length in windows.items() if length is not None]
    held, at = detail.pop("recommendation", None), detail.pop("at", None)
    if held is not None and at is not None:
        parts.append(f"held by the recommendation {held} of {span(max(0, made_ms - at))} before")
    if step.until:
        parts.append(f"ends in {span(max(0, step.until - made_ms))}")
    return parts


def _policies(policies: list[dict[str, Any]]) -> str:
    return f"({', '.join(map(_policy, policies))})"


def _policy(policy: dict[str, Any]) -> str:
    unit = "%" if policy.get("type") == "Percent" else ""
    period = span(int(policy.get("periodMs", 0)))
    return f"{policy.get('type')} {policy.get('value')}{unit} over {period} → {policy.get('limit')}"


def _fact(name: str, value: Any) -> str:
    if name.endswith("Ms") and isinstance(value, int):
        return f"{_spaced(name[:-2])} {span(value)}"
    if value in (None, "", []):
        return ""
    return f"{_spaced(name)} {value}"


def _spaced(name: str) -> str:
    return "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name)


# --- below the table --------------------------------------------------------------------------------------------------


def _tail(decision: Decision, would: Counterfactuals | None) -> list[str]:
    position = decision.input
    sources = sorted({source for source in position.sources if source})
    lines = [f"Inputs   log {position.partition}@{position.offset}  " + "  ".join(sources)]
    lines[0] = lines[0].rstrip() + f"      Recompute: fleethpa verify {decision.id}"
    lines += [f"Event    {kind} {reason}: {message}" for kind, reason, message in decision.events]
    if would is not None:
        lines += would_lines(would)
    return lines
