"""Changed specs and metric values from `--set` and `--metric`, and the revisions of an HPA's spec, read off the log."""

from __future__ import annotations

import copy
import difflib
import re
import shlex
from collections.abc import Sequence
from contextlib import aclosing
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

import msgspec

from fleethpa.changes.manifests import FileManifest, check_hpa
from fleethpa.fleet.finding import Selection, check_clusters, names_known, no_such_hpa, places_read, sole_id
from fleethpa.fleet.state import read_state
from fleethpa.fleet.views import FleetState
from fleethpa.frame.errors import CommandError, not_found, usage
from fleethpa.frame.session import Session
from fleethpa.show import words
from fleethpa.show.text import rfc3339
from fleethpa.show.words import alike
from schemas.decisions import Decision, log_offset_of
from schemas.keys import HpaId
from schemas.kubernetes.hpa import manifest_of, semantically_equal_spec
from schemas.kubernetes.metricspecs import metric_name, metric_source
from schemas.kubernetes.quantity import QuantityError, parse_quantity
from schemas.kubernetes.shape import Json
from schemas.partitioning import partition_for
from schemas.syncperiods import MOST_PERIOD_MS
from streams.analysis.counterfactual import Varied, total_of, varied
from streams.analysis.revisions import Revision, RevisionReader, under
from streams.hpa.observation import PodSamples
from streams.state.inputs import EvaluationInputs

if TYPE_CHECKING:
    from streams.history.past import Past
    from streams.partition import Partition


async def read_revisions(
    session: Session, past: Past, selection: Selection, since_ms: int | None = None
) -> tuple[FleetState, HpaId, list[Revision]]:
    """Read the state of the HPA's partition (of the fleet, if its name leaves that open), which HPA is meant, and its
    changes, oldest first.

    Raises CommandError: no such HPA (exit 4), several, or a source that cannot be read.
    """
    state, hpa = await read_one(past, selection)
    revisions, begins_ms = await revisions_in(past, hpa, since_ms)
    if begins_ms is not None:
        session.note(f"note: {past.name} goes back only to {rfc3339(begins_ms)}")
    return state, hpa, revisions


async def with_decisions(past: Past, hpa: HpaId, revisions: Sequence[Revision]) -> list[Revision]:
    """The changes of one HPA, oldest first, each with the first decision that was recorded under it.

    For each change an hour of decisions is read at most: no sync period is longer.
    """
    number = partition_for(hpa.namespace_key, await past.partitions())
    known, decision = list[Revision](), None
    for index, each in enumerate(revisions):
        is_later = decision is None or log_offset_of(decision.id) < each.offset
        if is_later and each.kind.may_be_decided:
            decision = await _first_evaluation(past, number, hpa, each)
        known.append(under(revisions, index, decision))
    return known


async def _first_evaluation(past: Past, number: int, hpa: HpaId, change: Revision) -> Decision | None:
    until_ms = change.time + MOST_PERIOD_MS + 1
    async with aclosing(past.decisions(number, change.time, until_ms, hpa.__eq__)) as decisions:
        async for recorded in decisions:
            decision = recorded.decision
            if decision.kind == "evaluation" and log_offset_of(decision.id) >= change.offset:
                return decision
    return None


async def read_one(past: Past, selection: Selection) -> tuple[FleetState, HpaId]:
    """Read the state of an HPA's partition (of the fleet, if its name leaves that open), and which HPA is meant.

    Raises CommandError: no such HPA (exit 4), or several.
    """
    if len(selection.refs) > 1:
        named = ", ".join(map(str, selection.refs))
        raise usage(f"one HPA at a time, not {len(selection.refs)}", cause=f"The names are {named}.")
    state = await read_state(past, await places_read(past, selection))
    hpa = _meant(state, selection)
    if hpa is None and selection.clusters:
        check_clusters(await read_state(past), selection)
    if hpa is None and not selection.refs:
        raise not_found(f"no HPA of {selection}", next_step="fleethpa get hpa -A")
    if hpa is None:
        raise no_such_hpa(selection.refs[0], await names_known(past), selection.namespace)
    return state, hpa


async def revisions_in(past: Past, hpa: HpaId, since_ms: int | None = None) -> tuple[list[Revision], int | None]:
    """Read one HPA's changes, oldest first, and where the log begins, if it has lost its beginning and all was asked.

    Raises ArchiveError, CoreError: the source cannot be read.
    """
    number = partition_for(hpa.namespace_key, await past.partitions())
    partition = await past.restored(number, before_ms=since_ms)
    lost = since_ms is None and partition.applied_offset >= 0
    begins_ms = partition.clock_ms if lost else None
    return await FollowedRevisions(partition, hpa, since_ms or 0).read_on(past), begins_ms


class FollowedRevisions:
    """One HPA's changes from a time on. What is read later begins where the reading before has ended.

    Args:
        partition: the HPA's, as of before that time.
    """

    def __init__(self, partition: Partition, hpa: HpaId, since_ms: int) -> None:
        self.since_ms = since_ms
        self._partition, self._reader = partition, RevisionReader(partition, hpa)
        self._found: list[Revision] = []

    async def read_on(self, past: Past) -> list[Revision]:
        """Return the changes up to now, oldest first. Raises ArchiveError, CoreError: the source cannot be read."""
        until_ms = None if past.at_ms is None else past.at_ms + 1
        async with aclosing(past.following(self._partition, until_ms=until_ms)) as records:
            async for record in records:
                self._found += [each for each in self._reader.read(record.plain) if each.time >= self.since_ms]
        return [*self._found]


def _meant(state: FleetState, selection: Selection) -> HpaId | None:
    """The only HPA that matches: among those that exist, else among those that were deleted. None if no HPA matches."""
    for known in (state.hpas, sorted(state.forgotten)):
        if matches := [hpa for hpa in known if selection.matches(hpa)]:
            return sole_id(matches, str(selection))
    return None


def revision_of(revisions: Sequence[Revision], number: int, hpa: HpaId) -> tuple[Revision, Json]:
    """The newest revision of a number, and its spec: an HPA that was created again counts from 1 again.

    Raises CommandError: no such revision (exit 4).
    """
    for each in reversed(revisions):
        if each.generation == number and each.spec is not None:
            return each, each.spec
    raise _no_revision(revisions, f"no revision {number}", hpa)


def revision_before(revisions: Sequence[Revision], current: Json, hpa: HpaId) -> tuple[Revision, Json]:
    """The newest revision whose spec is not the current one, and its spec.

    Raises CommandError: no such revision (exit 4).
    """
    for each in reversed(revisions):
        if each.spec is not None and not semantically_equal_spec(each.spec, current):
            return each, each.spec
    raise _no_revision(revisions, "no revision with another spec", hpa)


def _no_revision(revisions: Sequence[Revision], what: str, hpa: HpaId) -> CommandError:
    known = ", ".join(dict.fromkeys(str(each.generation) for each in revisions if each.spec is not None))
    cause = f"The log knows {known}." if known else "The log knows none."
    return not_found(f"{hpa} has {what}", cause=cause, next_step=f"fleethpa history {hpa}")


def change_text(revision: Revision) -> str:
    """Return what a change was, in words."""
    texts = [revision.what] if revision.what in ("adopted", "released") else []
    return "; ".join([*texts, *revision.changes]) or revision.what


def revision_document(hpa: HpaId, each: Revision) -> Json:
    """A change as machine formats show it."""
    document: Json = msgspec.to_builtins(each)
    head = {"cluster": hpa.cluster, "namespace": hpa.namespace, "name": hpa.name}
    return head | document | {"time": rfc3339(each.time)}


_COUNTS: Final = ("minReplicas", "maxReplicas")
_BEHAVIOR: Final = ("scaleUp", "scaleDown")
_RELATIVE: Final = re.compile(r"([+-])([0-9]+)(\.[0-9]{1,18})?%")
_PERCENT: Final = re.compile(r"([0-9]+)%")
_MOST_DIGITS: Final = 18
"""Of a whole percentage: as many as fit into 64 bits. Python reads none of more than 4,300."""
_INTEGER: Final = re.compile(r"-?[0-9]{1,18}", re.ASCII)
_DIGITS: Final = re.compile(r"[0-9]+")
_MOST: Final = parse_quantity(f"{2**63 - 1}m")
_LEAST: Final = parse_quantity(f"-{2**63 - 1}m")
"""What the controller can calculate with: 64-bit integers of thousandths."""
_EXAMPLES: Final = (
    "--set maxReplicas=16, --set cpu=80%, --set queue_depth=500, --set scaleDown.stabilizationWindowSeconds=60"
)


def split(text: str, option: str) -> tuple[str, str]:
    """Read `NAME=VALUE`. Raises CommandError: it is not that (exit 2)."""
    name, sign, value = text.partition("=")
    if not (name and sign and value):
        examples = _EXAMPLES if option == "--set" else "--metric cpu=90%, --metric queue_depth=+30%, --metric rps=250"
        raise usage(f"{option} {text!r} is not NAME=VALUE", cause=f"For example {examples}.")
    parts = text.split(",")
    if len(parts) > 1 and all("=" in part for part in parts):
        step = " ".join(f"{option} {shlex.quote(part.strip())}" for part in parts)
        raise usage(f"{option} {text!r} has several fields", cause=f"Each needs a {option} of its own.", next_step=step)
    return name, value


def changed_spec(spec: dict[str, Any], settings: tuple[str, ...], *, is_kept: bool = False) -> dict[str, Any]:
    """Return a copy of a defaulted spec with `--set` applied, not yet checked.

    Args:
        is_kept: the settings are those that a schedule keeps, which were checked when it was made; the target may have
            been of another type then.

    Raises CommandError: the field or metric is not known, the value is not of its kind, or the unit of a utilization is
    missing (exit 2).
    """
    changed = copy.deepcopy(spec)
    for text in settings:
        name, value = split(text, "--set")
        path = name.removeprefix("behavior.").split(".")
        if name in _COUNTS:
            changed[name] = _whole(name, value)
        elif path[0] in _BEHAVIOR and len(path) == 2:
            changed.setdefault("behavior", {}).setdefault(path[0], {})[path[1]] = (
                int(value) if _INTEGER.fullmatch(value) else value
            )
        else:
            _set_target(changed, name, value, is_kept)
    return changed


def checked(hpa: dict[str, Any], spec: dict[str, Any], source: str) -> dict[str, Any]:
    """Return a spec defaulted and checked as the API server would.

    Raises CommandError: it is not valid; every error is named (exit 2).
    """
    body = manifest_of({name: hpa["metadata"].get(name) for name in ("name", "namespace")}, spec)
    whole, errors = check_hpa(FileManifest(source, body), "default")
    if errors:
        raise usage(f"{source}: the changed HPA is invalid", cause="\n".join(errors))
    checked_spec: dict[str, Any] = whole["spec"]
    return checked_spec


def _whole(name: str, value: str) -> int:
    if not _INTEGER.fullmatch(value):
        raise usage(f"--set {name}={value}: {name} takes a whole number", cause=f"For example {name}=16.")
    return int(value)


def _set_target(spec: dict[str, Any], name: str, value: str, is_kept: bool) -> None:
    targets = [target for known, target in _targets(spec) if known == name]
    if not targets:
        names = list(dict.fromkeys(known for known, _ in _targets(spec)))
        cause = f"Fields are {', '.join(_COUNTS)}, scaleUp.*, scaleDown.*; metrics are {', '.join(names) or 'none'}."
        near = difflib.get_close_matches(name, [*_COUNTS, *names], n=1)
        step = f"--set {near[0]}={value}" if near else _EXAMPLES
        raise usage(f"--set {name}={value}: no such field or metric", cause=cause, next_step=step)
    for target in targets:
        if percent := _PERCENT.fullmatch(value):
            target.clear()
            number = _whole_percent(f"--set {name}={value}", percent[1])
            target.update({"type": "Utilization", "averageUtilization": number})
            continue
        if target.get("averageUtilization") is not None and not is_kept:
            _refuse_without_unit("--set", name, value)
        kind = "value" if target.get("type") == "Value" else "averageValue"
        _quantity(f"--set {name}", value)
        target.clear()
        target.update({"type": kind[0].upper() + kind[1:], kind: value})


def _refuse_without_unit(option: str, name: str, value: str) -> None:
    """Raise CommandError where a bare number is given for a utilization: 70 would be read as 70 cores, not as 70%."""
    if _DIGITS.fullmatch(value):
        raise usage(
            f"{option} {name}={value}: the target is a utilization, and {value} has no unit",
            cause="A percentage has a %; a quantity per pod has a suffix here, such as 500m or 2Gi.",
            next_step=f"{option} {name}={value}%",
        )


def _targets(spec: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [(metric_name(metric), metric_source(metric)["target"]) for metric in spec.get("metrics") or []]


def setting_of(spec: dict[str, Any], name: str, option: str) -> str:
    """The setting, as `--set` takes it, that gives a field the value which it has: `minReplicas=2`, `cpu=50%`.

    Raises CommandError: there is no such count or metric, or several metrics of the name differ (exit 2).
    """
    if name in _COUNTS:
        return f"{name}={spec.get(name, 1)}"
    texts = {_target_text(target) for known, target in _targets(spec) if known == name}
    if len(texts) != 1:
        names = ", ".join(dict.fromkeys([*_COUNTS, *(known for known, _ in _targets(spec))]))
        raise usage(f"{option} {name}: no such field or metric", cause=f"A schedule sets {names}.")
    return f"{name}={texts.pop()}"


def _target_text(target: dict[str, Any]) -> str:
    if target.get("averageUtilization") is not None:
        return f"{target['averageUtilization']}%"
    return str(target.get("value") if target.get("type") == "Value" else target.get("averageValue"))


def _quantity(option: str, value: str) -> int:
    try:
        quantity = parse_quantity(value)
    except QuantityError as error:
        cause = "A quantity is a number with an optional suffix, such as 250m, 1.5, 3k or 2Gi."
        raise usage(f"{option}={value}: {value!r} is not a quantity", cause=cause) from error
    if quantity.cmp(_MOST) > 0 or quantity.cmp(_LEAST) < 0:
        raise _out_of_range(f"{option}={value}")
    return quantity.milli_value()


def _whole_percent(what: str, digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise _out_of_range(what)
    return int(digits)


def _out_of_range(what: str) -> CommandError:
    return usage(
        f"{what}: out of range",
        cause=f"The controller calculates with at most {_MOST} (for all pods together), and at least {_LEAST}.",
    )


# --- other metric values ----------------------------------------------------------------------------------------------


def with_metrics(inputs: EvaluationInputs, settings: tuple[str, ...]) -> tuple[EvaluationInputs, list[str]]:
    """Return the inputs with `--metric NAME=VALUE` applied, and what that did in words.

    Raises CommandError: no such metric, or the metric has no value in this evaluation (exit 2).
    """
    stated = []
    for text in settings:
        name, value = split(text, "--metric")
        known = [words.short(metric.name) for metric in inputs.autoscaler.metrics]
        if name not in known:
            raise usage(f"--metric {name}: the HPA has no such metric", cause=f"It has {', '.join(known)}.")
        # Several may bear one name (of other containers, with other selectors): each is varied.
        numbers = [number for at, each in enumerate(known) if each == name and (number := varied(inputs, at))]
        if not numbers:
            raise usage(
                f"--metric {name}: the metric has no value in this evaluation",
                cause="A metric that failed cannot be changed.",
            )
        for number in numbers:
            wanted = _number(inputs, number, name, value)
            if not -(2**63) < wanted < 2**63:
                raise _out_of_range(f"--metric {text}")
            inputs = number.at(inputs, wanted)
            before, after = alike((number.now, wanted), name)
            stated.append(f"{name}: {number.what} {before} → {after}")
    return inputs, stated


def _number(inputs: EvaluationInputs, number: Varied, name: str, value: str) -> int:
    """The varied number for `+30%` (of what it was), `90%` (utilization), or a quantity as the status shows it."""
    if relative := _RELATIVE.fullmatch(value):
        percentage = _whole_percent(f"--metric {name}={value}", relative[2]) + Fraction(f"0{relative[3] or ''}")
        share = percentage / 100 * (1 if relative[1] == "+" else -1)
        return max(0, round(number.now * (1 + share)))

    if percent := _PERCENT.fullmatch(value):
        if number.spec.calculation != "utilization":
            raise usage(f"--metric {name}={value}: the target is not a utilization", cause="Write +30%, or a quantity.")
        return total_of(inputs, number.index, percent=_whole_percent(f"--metric {name}={value}", percent[1]))
    if number.spec.calculation == "utilization":
        _refuse_without_unit("--metric", name, value)
    milli = _quantity(f"--metric {name}", value)
    of_pods = isinstance(inputs.observation.answers[number.index], PodSamples)
    return total_of(inputs, number.index, milli=milli) if of_pods else milli
