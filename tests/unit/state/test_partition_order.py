"""Scale observations and outcomes that come late or once more do not undo what came after them."""

from schemas.answers import Answers
from schemas.entries import Outcome
from schemas.observed import AutoscalerSet, PodSet
from schemas.settings import ClusterSettings, SettingsSet
from tests.kit.partition import LogBuilder, cpu_answer, fold, make_hpa, make_pod, scale

ENFORCING = ClusterSettings(default_mode="enforce", native_controller="absent")


def _log() -> LogBuilder:
    log = LogBuilder()
    log.add(SettingsSet(cluster="*", settings=ENFORCING))
    pods = [PodSet(pod=make_pod(f"web-{index}"), session="s") for index in range(2)]
    log.add(AutoscalerSet(hpa=make_hpa(), session="s"), scale(session="s"), *pods)
    return log


def _answer(log: LogBuilder, milli: int) -> Answers:
    usage = {f"web-{index}": milli for index in range(2)}
    return Answers(items=[cpu_answer("web", usage, log.now_ms)], session="s")


def _current(log: LogBuilder) -> int:
    """The replicas that the next evaluation sees."""
    made = log.add(_answer(log, 50), after_ms=15_000)
    return int(made[-1]["currentReplicas"])


def test_a_scale_that_the_session_reported_before_is_late_and_does_not_count() -> None:
    log = _log()
    late = log.now_ms
    log.add(scale(spec=5, session="s"), after_ms=1_000)
    log.add(log.entry(scale(spec=2, session="s"), time_ms=late), after_ms=1_000)
    assert _current(log) == 5


def test_a_scale_of_another_session_counts_whatever_its_clock_says() -> None:
    log = _log()
    log.add(scale(spec=5, session="s"), after_ms=1_000)
    log.add(log.entry(scale(spec=3, session="other"), time_ms=1), after_ms=31_000)
    assert _current(log) == 3


def test_an_outcome_repeated_after_a_newer_scale_does_not_bring_its_replicas_back() -> None:
    log = _log()
    wanted = log.add(_answer(log, 100), after_ms=1_000)[-1]
    ended = Outcome(decision=wanted["id"], name="web", uid="uid-web", result="applied", spec_replicas=4)
    log.add(ended, after_ms=1_000)
    log.add(scale(spec=6, session="s"), after_ms=1_000)
    log.add(ended, after_ms=1_000)
    assert _current(log) == 6


def test_late_records_fold_to_the_same_bytes_from_a_checkpoint() -> None:
    log = _log()
    late = log.now_ms
    log.add(scale(spec=5, session="s"), after_ms=1_000)
    before = len(log.records)
    log.add(log.entry(scale(spec=2, session="s"), time_ms=late), after_ms=1_000)
    assert _current(log) == 5
    partition, _ = fold(log.records[:before])
    restored = type(partition).restore(0, dict(partition.checkpoint()))
    made = [decision.value for record in log.records[before:] for decision in restored.apply(*record)]
    assert made == [decision.value for decision in log.decisions][-len(made) :]
