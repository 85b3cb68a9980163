"""A recording of the native controller: every sync derived again from what the controller had been answered.

`NAME-syncs.jsonl.gz` names lines of its siblings (`-watch`, `-answers`, `-controller`) by id. Each sync is given to the
engine with the HPA, pods, scale and metric answers of that moment; write and status must be the controller's. What
upstream leaves to chance is recognised by a rule each (`openpoints.py`) and counted, never dropped.
"""

from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct, structs

from schemas.kubernetes.hpa import semantically_equal_status
from schemas.kubernetes.selectors import SelectorError, parse_selector
from schemas.kubernetes.shape import Json
from streams.hpa import autoscaler as kinds
from streams.hpa.autoscaler import Autoscaler, MetricSpec, compile_autoscaler
from streams.hpa.evaluation import EMPTY_HISTORY, History, ReconcileResult
from streams.hpa.observation import NO_PODS, MetricFailure, MetricReading, Observation, TargetPods
from streams.hpa.reconcile import complete, decide
from streams.hpa.rules import Rules, minor_of, rules_of
from tests.conformance import openpoints
from tests.conformance.compare import ABSENT, AnswerDifference, differences
from tests.conformance.taped import asked_of, error_answer, outcome_of, read_answer, scale_of, settings_of, unavailable
from tests.conformance.tapes import Tapes, time_ms
from tests.conformance.vectorerrors import InputError

LAG_S = 0.05
"""How much earlier or later than the recorder the controller may have seen a change."""

CUT_S = 5.0
"""A sync that began less than this before the controller ended may be unfinished."""

NOT_ASKED = MetricFailure("(the controller did not ask)")

_EMPTY_STATUS: Json = {"desiredReplicas": 0, "currentMetrics": None}


class DerivedSync(Struct, frozen=True):
    """What the engine makes of a sync."""

    asked: int | None
    result: ReconcileResult
    pods: TargetPods
    before: Json


def check(
    path: Path, limit: int | None = None, rules: Rules | None = None
) -> Iterator[tuple[str | None, list[AnswerDifference]]]:
    """Give (class of an explained difference or None, differences) of each sync, in time order.

    `rules` are those to answer with; None: those of the version that was recorded.

    Raises:
        InputError: a file of the recording is missing or unreadable.
    """
    tapes = Tapes(path)
    try:
        replay = Replay(tapes, rules)
        syncs = sorted(tapes.syncs, key=replay.moment)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise InputError(f"{path}: a sync or the header cannot be read: {type(error).__name__}: {error}") from error
    for sync in syncs[:limit]:
        try:
            yield replay.check(sync)
        # An engine that breaks on a sync, or a sync without its objects, is a difference; the other syncs still count.
        except Exception as error:
            yield None, [(f"{sync['hpa']}@{sync['t']}", ABSENT, f"{type(error).__name__}: {error}")]


class View(Struct, frozen=True):
    """The moments as of which a sync sees the world (Unix seconds)."""

    moment: float
    """The clock of the decision."""
    pods_at: float
    registered_at: float
    """When the other HPAs' selectors were looked at."""
    hpa_at: float | None
    """None: the version that the sync names."""


class Replay:
    """The engine's memory and everything it needs to see, sync after sync."""

    def __init__(self, tapes: Tapes, rules: Rules | None = None) -> None:
        self.tapes = tapes
        self.rules = rules or rules_of(minor_of(tapes.header["kubernetes"]))
        self.settings = settings_of(tapes.header.get("kcm_flags") or (), self.rules)
        self._histories: dict[str, tuple[float, History]] = {}
        self._previous: dict[str, tuple[Json, History, View]] = {}
        self._compiled: dict[tuple[str, int], Autoscaler] = {}
        self._registrations: dict[str, list[tuple[float, str]]] = {}
        for sync in sorted(tapes.syncs, key=self._scale_read):
            if sync["scale"].get("code") == 200 and sync["scale"].get("selector"):
                entry = (self._scale_read(sync), sync["scale"]["selector"])
                self._registrations.setdefault(sync["hpa"], []).append(entry)
        self._selected: tuple[int, dict[str, TargetPods]] = (-1, {})

    def moment(self, sync: Json) -> float:
        """Give the clock of a decision: the end of the last metrics call; without one, of the scale read."""
        calls = [self.tapes.calls[each]["done"] for each in sync["answers"] if each in self.tapes.calls]
        return max(calls, default=self._scale_read(sync))

    def check(self, sync: Json) -> tuple[str | None, list[AnswerDifference]]:
        """Derive one sync and compare it with what the controller did."""
        view = self._view(sync)
        history = self._history(sync["hpa"], view.moment)
        derived = self._derive(sync, history, view)
        found = self._differences(sync, derived)
        explained = None
        if found:
            explained = self._explained(sync, derived)
            if explained is None:
                derived, explained = self._seen_otherwise(sync, history, view, derived)
        self._histories[sync["hpa"]] = (view.moment, derived.result.history)
        self._previous[sync["hpa"]] = (sync, history, view)
        return explained, ([] if explained else found)

    def _view(self, sync: Json) -> View:
        moment = self.moment(sync)
        return View(moment, moment, self._scale_read(sync), None)

    def _explained(self, sync: Json, derived: DerivedSync) -> str | None:
        if self._is_cut_off(sync, derived):
            return openpoints.CUT_OFF
        if asked_of(sync) != derived.asked:
            return None
        status = sync.get("status")
        span = (sync["t"], status["t"] if status else sync["t"])
        names = [row.name for row in derived.pods.rows]
        return openpoints.explain(derived.before, self._recorded(sync), derived.result.status, names, span)

    def _is_cut_off(self, sync: Json, derived: DerivedSync) -> bool:
        """Tell whether the controller (or the recording) ended in the middle of this sync, so far equal to ours."""
        if sync.get("status") is not None or asked_of(sync) not in (None, derived.asked):
            return False
        return any(sync["t"] <= end <= sync["t"] + CUT_S for end in self.tapes.ends)

    def _seen_otherwise(
        self, sync: Json, history: History, view: View, first: DerivedSync
    ) -> tuple[DerivedSync, str | None]:
        """Try what the controller may have seen up to 50 ms before or after the recorder, one change at a time."""
        for reason, other_history, other in self._otherwise(sync, history, view):
            derived = self._derive(sync, other_history, other)
            if not self._differences(sync, derived) or self._explained(sync, derived):
                return derived, reason
        return first, None

    def _otherwise(self, sync: Json, history: History, view: View) -> Iterator[tuple[str, History, View]]:
        for pods_at in self._near(view.moment, self.tapes.pods.moments):
            yield openpoints.POD_CHANGE, history, structs.replace(view, pods_at=pods_at)
        for other in self._previous_histories(sync["hpa"], history):
            yield openpoints.POD_CHANGE, other, view
        for hpa_at in self._near(sync["t"], [each.seen for each in self.tapes.hpas.get(sync["hpa"], ())]):
            if self.tapes.hpa_at(sync["hpa"], hpa_at) is not None:
                yield openpoints.HPA_CHANGE, history, structs.replace(view, hpa_at=hpa_at)
        for shift in (-LAG_S, LAG_S):
            yield openpoints.REGISTRATION, history, structs.replace(view, registered_at=view.registered_at + shift)
        for shift in (-LAG_S, LAG_S):
            yield openpoints.BOUND, history, structs.replace(view, moment=view.moment + shift)

    def _previous_histories(self, name: str, history: History) -> Iterator[History]:
        """Give what the memory would be had the previous sync seen other pods, with the same visible end."""
        if name not in self._previous or history is EMPTY_HISTORY:
            return
        sync, before, view = self._previous[name]
        for pods_at in self._near(view.moment, self.tapes.pods.moments):
            derived = self._derive(sync, before, structs.replace(view, pods_at=pods_at))
            if not self._differences(sync, derived):
                yield derived.result.history

    def _near(self, moment: float, changes: list[float]) -> list[float]:
        """Give moments just before and at each change near `moment`."""
        near = sorted({each for each in changes if abs(each - moment) <= LAG_S})
        return [moved for each in near for moved in (each - 1e-6, each)]

    def _differences(self, sync: Json, derived: DerivedSync) -> list[AnswerDifference]:
        asked, recorded = asked_of(sync), self._recorded(sync)
        ours = None if semantically_equal_status(derived.before, derived.result.status) else derived.result.status
        if asked == derived.asked and recorded == ours:
            return []
        return list(
            differences(
                {"write": asked, "status": ABSENT if recorded is None else recorded},
                {"write": derived.asked, "status": ABSENT if ours is None else ours},
                f"{sync['hpa']}@{sync['t']}",
            )
        )

    def _recorded(self, sync: Json) -> Json | None:
        status = sync.get("status")
        if status is None:
            return None
        full: Json = self.tapes.calls[status["id"]]["status"]
        return full

    def _derive(self, sync: Json, history: History, view: View) -> DerivedSync:
        hpa = self._hpa(sync, view.hpa_at)
        before = hpa.get("status") or _EMPTY_STATUS
        autoscaler = self._compile(hpa)
        pods, ambiguous = self._pods(sync, view)
        observation = Observation(scale_of(sync), pods, self._answers(sync, autoscaler), ambiguous)
        now_ms = time_ms(view.moment)
        evaluation = decide(autoscaler, before, observation, history, self.settings, now_ms)
        if evaluation.pending is None:
            if evaluation.result is None:
                raise ValueError("an evaluation must end or want a write")
            return DerivedSync(None, evaluation.result, pods, before)
        write = self.tapes.calls.get((sync.get("write") or {}).get("id"))
        written_ms = time_ms(write["done"]) if write else now_ms
        outcome = outcome_of(sync)
        result = complete(evaluation.pending, before, evaluation.history, outcome, written_ms, rules=self.rules)
        return DerivedSync(evaluation.pending.desired_replicas, result, pods, before)

    def _hpa(self, sync: Json, at: float | None) -> Json:
        known = sync.get("hpaResourceVersion") or "0"
        if sync.get("status") is None:
            # Only the recorder's last version is known, but the controller never works on an older one than it wrote.
            known = max(known, self.tapes.own_write(sync["hpa"], sync["t"]), key=int)
        version = None if at is not None else self.tapes.hpa(sync["hpa"], known)
        version = version or self.tapes.hpa_at(sync["hpa"], sync["t"] if at is None else at)
        if version is None:
            raise ValueError(f"the recording has no object of HPA {sync['hpa']} before {sync['t']}")
        return version.object

    def _compile(self, hpa: Json) -> Autoscaler:
        key = (hpa["metadata"].get("uid", ""), hpa["metadata"].get("generation", 0))
        if key not in self._compiled:
            self._compiled[key] = compile_autoscaler(hpa, self.rules)
        return self._compiled[key]

    def _history(self, name: str, moment: float) -> History:
        """Give the controller's memory: lost at a restart, and when a reconcile found the HPA missing."""
        since, history = self._histories.get(name, (0.0, EMPTY_HISTORY))
        lost = [*self.tapes.restarts, *(time for time, hpa in self.tapes.forgotten if hpa == name)]
        return EMPTY_HISTORY if any(since < time <= moment for time in lost) else history

    def _scale_read(self, sync: Json) -> float:
        call = self.tapes.calls.get(sync["scale"].get("id"))
        return float(call["done"] if call else sync["t"])

    def _pods(self, sync: Json, view: View) -> tuple[TargetPods, tuple[str, ...]]:
        text = sync["scale"].get("selector")
        if not text:
            return NO_PODS, ()
        try:
            selector = parse_selector(text)
        except SelectorError:
            return NO_PODS, ()
        epoch, present = self.tapes.pods.at(view.pods_at)
        chosen = [(pod.row, pod.labels) for pod in present if pod.row is not None and selector.matches(pod.labels)]
        names = {sync["hpa"]}
        for name, other in self._registered(view.registered_at).items():
            if any(parse_selector(other).matches(labels) for _, labels in chosen):
                names.add(name)
        ambiguous = (
            tuple(sorted(f"{self.tapes.namespace}/{name}" for name in names)) if len(names) > 1 and chosen else ()
        )
        if self._selected[0] != epoch:
            self._selected = (epoch, {})
        pods = self._selected[1].setdefault(text, TargetPods(tuple(row for row, _ in chosen), self.rules))
        return pods, ambiguous

    def _registered(self, moment: float) -> dict[str, str]:
        """Give the selectors of the HPAs that have read their scale since the last restart and still exist."""
        restarted = max((time for time in self.tapes.restarts if time <= moment), default=0.0)
        selectors: dict[str, str] = {}
        for name, read in self._registrations.items():
            index = bisect_right(read, moment, key=lambda entry: entry[0]) - 1
            if index >= 0 and read[index][0] > restarted and self._exists_since(name, read[index][0], moment):
                selectors[name] = read[index][1]
        return selectors

    def _exists_since(self, name: str, since: float, moment: float) -> bool:
        return not any(each.deleted and since < each.seen <= moment for each in self.tapes.hpas.get(name, ()))

    def _answers(self, sync: Json, autoscaler: Autoscaler) -> tuple[MetricReading | None, ...]:
        ids = iter(sync["answers"])
        answers: list[MetricReading | None] = []
        for spec in autoscaler.metrics:
            identifier = None if spec.calculation == kinds.INVALID else next(ids, None)
            answers.append(NOT_ASKED if identifier is None else self._answer(spec, identifier))
        return tuple(answers)

    def _answer(self, spec: MetricSpec, identifier: str) -> MetricReading:
        line = self.tapes.answers.get(identifier)
        if line is None:
            return error_answer(spec, unavailable(self.tapes.calls[identifier]["uri"]))
        if line["status"] != 200:
            message = line["body"].get("message") or unavailable(self.tapes.calls[identifier]["uri"])
            return error_answer(spec, message)
        return read_answer(spec, line["body"], self.tapes.namespace, self.rules)
