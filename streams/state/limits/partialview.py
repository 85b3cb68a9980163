"""Scale-downs in a namespace whose pods or metrics vanish or fall together are not believed (setting `partial-view`).

What is seen of the namespace is compared with the last four sync periods; while the view is partial, scale-downs there
are blocked for half an hour at most. Counts are pods or answers, totals are metric values in milli, times are log time
in Unix milliseconds.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from msgspec import Struct, structs

from schemas import limits
from schemas.answers import MetricAnswer
from schemas.decisions import Step
from schemas.kubernetes.selectors import canonical_selector, is_selector
from streams.hpa.evaluation import Pending
from streams.hpa.observation import PodRow
from streams.state.limits.limit import LimitedWrite, WriteLimit
from streams.state.namespace import Namespace
from streams.state.namespacerows import VIEW_SIDE
from streams.state.partitionstate import State
from streams.state.rows import SampleRow, SeenRow, ViewRow
from streams.state.subject import HpaAccount, Observed, Subject

PERIODS = 4
"""Sync periods whose observations say what should be there."""
LEAST = 3
"""Fewer pods, metrics or targets are never a partial view."""
LONGEST_HOLD_MS = 1_800_000
_LATE_MS = 5_000
_SIGHT_BYTES = 400
_SEPARATOR = "\x00"
_TENTH = 10
_PODS, _METRICS = "pods", "metrics"
_NO_ROW = ViewRow()


class ViewNow(NamedTuple):
    """Why the view of the namespace is partial, and until when scale-downs are held for it at most."""

    reason: str
    until_ms: int


class PartialView(WriteLimit):
    name = "PartialView"
    settings = ("partial_view",)

    def inputs(self, subject: Subject, observed: Observed) -> ViewNow | None:
        namespace, now_ms = subject.namespace, subject.state.now_ms
        reason = partial_view(namespace, now_ms) if subject.settings.stated.partial_view else ""
        return ViewNow(reason, namespace.view.since_ms + LONGEST_HOLD_MS) if reason else None

    def apply(self, inputs: ViewNow, write: LimitedWrite) -> LimitedWrite:
        return write if write.is_up else write.blocked(self.name, inputs.reason, _step(write.pending, inputs))

    def stops(self, inputs: ViewNow) -> str:
        return f"{inputs.reason}; what the metrics ask for is recorded, and scale-downs are not written"


def _step(pending: Pending, view: ViewNow) -> Step:
    return Step(
        step="partialView",
        in_=pending.desired_replicas,
        out=pending.current_replicas,
        detail={"reason": view.reason.rpartition(": ")[2]},
        until=view.until_ms,
    )


class ViewAccount(HpaAccount):
    """What was observed of each namespace in the last periods, in clusters with the setting `partial-view`."""

    def folded(self, state: State) -> None:
        """Compare what is seen of the namespaces that the record is about with what was seen before."""
        for key in sorted(state.seen & state.namespaces.keys()):
            namespace = state.namespaces[key]
            settings = state.settings(namespace.cluster)
            if settings.stated.partial_view:
                check_view(namespace, state.now_ms, settings.sync_period_ms, settings.sample_age_limit_ms)


class _Sight(NamedTuple):
    """One thing that is seen now.

    `here`: ready pods of a target, or how many of its ready pods have a value of a metric (1 or 0 for a metric of no
    pods). `most`: what that can be at most now. `total`: sum of the values; None: not a metric. `time_ms`: of the
    answer.
    """

    kind: str
    group: str
    name: str
    here: int
    most: int
    total: int | None
    time_ms: int

    @property
    def key(self) -> str:
        return _SEPARATOR.join((self.kind, self.group, self.name))


class _Loss(Struct, frozen=True):
    kind: str
    now: int
    before: int

    @property
    def is_partial(self) -> bool:
        """More than half is gone, and at least three."""
        lost = self.before - self.now
        return lost >= LEAST and lost * 2 > self.before

    def __str__(self) -> str:
        what = "ready pods are seen" if self.kind == _PODS else "metric values of ready pods are seen"
        return f"{self.now} of {self.before} {what}"


def _within(sights: dict[str, _Sight]) -> dict[str, _Sight]:
    """Those that the view has room for, the first by name: of each it keeps the name three times and some numbers."""
    kept, size = {}, 0
    for key in sorted(sights):
        size += 3 * len(key.encode()) + _SIGHT_BYTES
        if size > limits.NAMESPACE_VIEW.most:
            break
        kept[key] = sights[key]
    return kept


def check_view(namespace: Namespace, now_ms: int, period_ms: int, age_limit_ms: int) -> None:
    """Compare what is seen of a namespace now with what was seen before, and hold or release its scale-downs."""
    namespace.dirty.add(VIEW_SIDE)
    view = namespace.view
    sights = _within({sight.key: sight for sight in _sights(namespace, now_ms, period_ms, age_limit_ms)})
    if view.since_ms and now_ms - view.since_ms >= LONGEST_HOLD_MS:
        # What is seen after half an hour is what there is.
        view = _NO_ROW
    held = bool(view.since_ms)
    seen = {key: _with(view.seen.get(key, []), sight, now_ms, period_ms) for key, sight in sights.items()}
    reference = view.reference if held else _reference(seen, sights)
    fallen = _still_fallen(view, sights, now_ms - period_ms - _LATE_MS) | _fallen(view, sights, now_ms)
    reason = _reason(_losses(reference, sights), fallen)
    if not reason:
        namespace.view = ViewRow(seen, fallen=fallen)
    elif held:
        namespace.view = ViewRow(seen, view.since_ms, view.reason, reference, fallen)
    else:
        namespace.view = ViewRow(seen, now_ms, reason, reference, fallen)


def partial_view(namespace: Namespace, now_ms: int) -> str:
    """Return why scale-downs in a namespace are held now; empty: its view is whole."""
    view = namespace.view
    if not view.since_ms or now_ms - view.since_ms >= LONGEST_HOLD_MS:
        return ""
    return f"held: the view of namespace {namespace.key} is partial: {view.reason}"


def _sights(namespace: Namespace, now_ms: int, period_ms: int, age_limit_ms: int) -> Iterator[_Sight]:
    groups: dict[str, frozenset[str]] = {}
    for target in sorted(namespace.by_target):
        scale = namespace.scales.get(target)
        if scale is None or scale.error is not None or not is_selector(scale.selector):
            continue
        ready = frozenset(pod.name for pod in namespace.membership.matching(scale.selector).rows if _is_ready(pod))
        groups[canonical_selector(scale.selector) or scale.selector] = ready
        yield _Sight(_PODS, "/".join(target), "", len(ready), scale.spec_replicas, None, now_ms)
    yield from _answered(namespace, groups, now_ms - 2 * period_ms - _LATE_MS)
    yield from _pushed(namespace, groups, now_ms - age_limit_ms)


def _is_ready(pod: PodRow) -> bool:
    return pod.phase == "Running" and pod.ready == "True" and not pod.deleting


def _answered(namespace: Namespace, groups: dict[str, frozenset[str]], oldest_ms: int) -> Iterator[_Sight]:
    for query, row in namespace.answers.items():
        if row.time_ms < oldest_ms:
            continue
        answer, time_ms = row.answer, row.time_ms
        name = _SEPARATOR.join((query[0], *query[2:]))
        ready = groups.get(query[1])
        if query[0] in ("object", "external"):
            values = [milli for milli, _ in answer.items] if query[0] == "external" else [answer.milli]
            yield _of_no_pods(name, [] if answer.error is not None else values, time_ms)
        elif ready is not None:
            count = 0 if answer.pods is None else sum([pod in ready for pod in answer.pods.pod_names])
            yield _Sight(_METRICS, query[1], name, count, len(ready), None, time_ms)
            for resource, total in _totals(answer).items():
                yield _Sight("total", query[1], f"{name}{_SEPARATOR}{resource}", 0, 0, total, time_ms)


def _totals(answer: MetricAnswer) -> dict[str, int]:
    """The sum of an answer's values over all pods, by resource; of a metric that is no resource under an empty name."""
    totals: dict[str, int] = {}
    for _, columns in answer.pods.containers() if answer.pods is not None else ():
        for resource, millis in columns.items():
            if resource or answer.api == "pods":
                totals[resource] = totals.get(resource, 0) + sum([milli for milli in millis if milli is not None])
    return totals


def _of_no_pods(name: str, values: Sequence[int], time_ms: int) -> _Sight:
    """A metric of an object, or an external one. `values`: empty where none is known."""
    total = sum(values) if values else None
    return _Sight(_METRICS, name.replace(_SEPARATOR, "|"), "", int(bool(values)), 1, total, time_ms)


def _pushed(namespace: Namespace, groups: dict[str, frozenset[str]], oldest_ms: int) -> Iterator[_Sight]:
    for key, samples in namespace.series.items():
        name = _SEPARATOR.join(key)
        if key[0] in ("Object", "External"):
            fresh = [row for row in samples.values() if row.time_ms >= oldest_ms and row.milli is not None]
            yield _of_no_pods(name, [row.milli or 0 for row in fresh], _newest_ms(fresh))
            continue
        for group, ready in groups.items():
            own = [row for pod in ready if (row := samples.get(pod)) is not None and row.time_ms >= oldest_ms]
            total = sum([row.milli or 0 for row in own]) if own else None
            yield _Sight(_METRICS, group, name, len(own), len(ready), total, _newest_ms(own))


def _newest_ms(samples: Sequence[SampleRow]) -> int:
    return max([row.time_ms for row in samples], default=0)


def _with(known: list[SeenRow], sight: _Sight, now_ms: int, period_ms: int) -> list[SeenRow]:
    """Add what is seen now to what was seen in the last periods: one entry per answer, or per period."""
    kept = [each for each in known if each.time_ms > now_ms - PERIODS * period_ms - _LATE_MS]
    last = kept[-1] if kept else None
    if last is not None and (sight.time_ms == last.answer_ms or now_ms - last.time_ms < period_ms // 2):
        total = sight.total if sight.total is not None else last.total
        kept[-1] = structs.replace(last, count=max(last.count, sight.here), total=total, answer_ms=sight.time_ms)
        return kept
    return [*kept, SeenRow(now_ms, sight.here, sight.total, sight.time_ms)]


def _reference(seen: dict[str, list[SeenRow]], sights: dict[str, _Sight]) -> dict[str, int]:
    return {key: max(each.count for each in seen[key]) for key, sight in sights.items() if sight.most}


def _losses(reference: dict[str, int], sights: dict[str, _Sight]) -> list[_Loss]:
    """Sum up what should be there and what is, over all pods and over all metrics.

    Pods and values that are gone because their target is smaller now are not lost.
    """
    now, before = {_PODS: 0, _METRICS: 0}, {_PODS: 0, _METRICS: 0}
    for key, count in reference.items():
        sight = sights.get(key)
        if sight is None or sight.kind not in now:
            continue
        should = min(count, sight.most)
        before[sight.kind] += should
        now[sight.kind] += min(should, sight.here)
    return [_Loss(kind, now[kind], before[kind]) for kind in (_PODS, _METRICS)]


def _fallen(view: ViewRow, sights: dict[str, _Sight], now_ms: int) -> dict[str, tuple[int, int]]:
    """Return the metrics that fell by more than 90 % with their newest answer: (total before, when)."""
    fallen = {}
    for key, sight in sights.items():
        known = view.seen.get(key)
        if key in view.fallen or sight.total is None or not known or known[-1].answer_ms == sight.time_ms:
            continue
        before = known[-1].total
        if before is not None and sight.total * _TENTH < before:
            fallen[key] = (before, now_ms)
    return fallen


def _still_fallen(view: ViewRow, sights: dict[str, _Sight], since_ms: int) -> dict[str, tuple[int, int]]:
    """Return those that fell before and are still low: of the last period, or any while scale-downs are held."""
    return {
        key: (before, at_ms)
        for key, (before, at_ms) in view.fallen.items()
        if (view.since_ms or at_ms > since_ms) and not _is_back(sights.get(key), before)
    }


def _is_back(sight: _Sight | None, before: int) -> bool:
    return sight is not None and sight.total is not None and sight.total * _TENTH >= before


def _reason(losses: list[_Loss], fallen: dict[str, tuple[int, int]]) -> str:
    """Return what makes the view partial; empty: nothing does."""
    for loss in losses:
        if loss.is_partial:
            return str(loss)
    groups = {key.split(_SEPARATOR)[1] for key in fallen}
    return f"the metrics of {len(groups)} targets fell by more than 90% at once" if len(groups) >= LEAST else ""
