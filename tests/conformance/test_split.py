"""The split law: what the reports of several clusters add up to is decided as one controller decides on all pods."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.hpa.autoscaler import ControllerSettings, compile_autoscaler
from streams.hpa.evaluation import EMPTY_HISTORY
from streams.hpa.grouping import Groups
from streams.hpa.metrics import JoinedObservation
from streams.hpa.observation import (
    ContainerRequests,
    MetricFailure,
    Observation,
    PodRow,
    PodTemplate,
    Scale,
    TargetPods,
    pod_samples,
)
from streams.hpa.parts import joined, summed
from streams.hpa.reconcile import decide
from tests.conformance.runner import run
from tests.conformance.splitting import split_and_join
from tests.conformance.vectorerrors import InputError

DATA = Path(__file__).parent / "data"
TEMPLATE = PodTemplate([ContainerRequests("app", {"cpu": "100m"})])
SETTINGS = ControllerSettings()
NOW_MS = 946_684_800_000
AUTOSCALER = compile_autoscaler(
    {
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {
            "scaleTargetRef": {"kind": "Deployment", "name": "web", "apiVersion": "apps/v1"},
            "minReplicas": 1,
            "maxReplicas": 50,
            "metrics": [
                {
                    "type": "Resource",
                    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}},
                }
            ],
        },
    }
)


@pytest.mark.parametrize("members", [2, 3, 5])
def test_a_sample_of_all_cases_is_decided_alike_however_their_pods_are_split(members: int) -> None:
    names = ["calculator", "controller-boundary", "controller-random", "controller-trace"]
    report = run([DATA / f"{name}.jsonl.gz" for name in names], jobs=1, limit=90, members=members)

    assert [shown for file in report.files for shown in file.first] == []
    assert sum(file.equal for file in report.files) == sum(file.cases for file in report.files) > 250


def test_kinds_without_pods_are_refused() -> None:
    with pytest.raises(InputError, match="cases of kind quantity have no pods to split"):
        run([DATA / "api-quantity.jsonl.gz"], jobs=1, members=2)


HUGE = 2**62
"""Three of these leave int64, two of them do not."""


@given(
    usages=st.lists(st.none() | st.integers(0, 400) | st.integers(HUGE, HUGE + 9), min_size=1, max_size=12),
    members=st.integers(2, 5),
)
def test_sums_that_leave_int64_are_those_of_one_controller(usages: list[int | None], members: int) -> None:
    rows = tuple(PodRow(f"p{each}", TEMPLATE, "Running", NOW_MS - 10**6, "True") for each in range(len(usages)))
    samples = {f"p{each}": (usage, NOW_MS, 30_000) for each, usage in enumerate(usages) if usage is not None}
    seen = Observation(Scale(len(rows), len(rows), "app=web"), TargetPods(rows), (pod_samples(samples),))
    whole = split_and_join(AUTOSCALER, seen, members, SETTINGS, NOW_MS)

    alone, across = (_decided(each) for each in (seen, whole))
    assert across == alone


def _decided(seen: Observation | JoinedObservation) -> tuple[object, ...]:
    made = decide(AUTOSCALER, {}, seen, EMPTY_HISTORY, SETTINGS, NOW_MS)
    status = made.pending.conditions if made.pending else made.result and made.result.status
    return made.desired_replicas, made.reason, made.path, status, [each.calculation for each in made.metrics]


def _member(pods: int, answer: dict[str, int] | str, name: str) -> Observation:
    rows = tuple(PodRow(f"{name}{each}", TEMPLATE, "Running", NOW_MS - 10**6, "True") for each in range(pods))
    reading = (
        MetricFailure(answer)
        if isinstance(answer, str)
        else pod_samples({pod: (milli, NOW_MS, 30_000) for pod, milli in answer.items()})
    )
    return Observation(Scale(pods, pods, "app=web"), TargetPods(rows), (reading,))


def test_the_pods_of_a_member_that_cannot_read_a_metric_are_missing() -> None:
    parts = [_member(2, {"e0": 90, "e1": 90}, "e"), _member(3, "timeout", "w")]
    whole = joined([summed(AUTOSCALER, each, SETTINGS, NOW_MS) for each in parts])

    reading = whole.answers[0]
    assert isinstance(reading, Groups)
    assert (reading.ready, reading.missing, reading.missing_request) == (2, 3, 300)
    assert whole.scale == Scale(5, 5, "app=web")


def test_a_metric_that_no_member_can_read_fails_as_in_the_first() -> None:
    parts = [_member(2, "east: timeout", "e"), _member(3, "west: timeout", "w")]
    whole = joined([summed(AUTOSCALER, each, SETTINGS, NOW_MS) for each in parts])

    assert whole.answers == (MetricFailure("east: timeout"),)
