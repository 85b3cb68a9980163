"""Split the pods of a case over the members of a fleet by a seeded hash, and join what the members would report."""

import zlib

from streams.hpa.autoscaler import Autoscaler, ControllerSettings
from streams.hpa.metrics import JoinedObservation
from streams.hpa.observation import MetricReading, Observation, PodSamples, Scale, ScaleFailure, TargetPods, pod_samples
from streams.hpa.parts import joined, summed

SEED = "across"


def member_of(name: str, members: int, seed: str = SEED) -> int:
    """Give the member that has the pod (or the sample) of this name."""
    return zlib.crc32(f"{seed}/{name}".encode()) % members


def split(seen: Observation, members: int, settings: ControllerSettings, seed: str = SEED) -> list[Observation]:
    """Give what each member sees.

    Replicas are split as evenly as they can be, a pod and its samples are in one member, and a failure or the value of
    an Object or External metric is the same in all.
    """
    rows = [
        tuple(row for row in seen.pods.rows if member_of(row.name, members, seed) == each) for each in range(members)
    ]
    return [
        Observation(
            _scale(seen.scale, each, members),
            TargetPods(rows[each], settings.rules),
            tuple(_answer(answer, each, members, seed) for answer in seen.answers),
            seen.ambiguous,
        )
        for each in range(members)
    ]


def _scale(scale: Scale | ScaleFailure, member: int, members: int) -> Scale | ScaleFailure:
    if isinstance(scale, ScaleFailure):
        return scale
    return Scale(
        _share(scale.spec_replicas, member, members), _share(scale.status_replicas, member, members), scale.selector
    )


def _share(replicas: int, member: int, members: int) -> int:
    return replicas // members + (member < replicas % members)


def _answer(answer: MetricReading | None, member: int, members: int, seed: str) -> MetricReading | None:
    if not isinstance(answer, PodSamples):
        return answer
    return pod_samples(
        {name: each for name, each in answer.samples.items() if member_of(name, members, seed) == member}
    )


def split_and_join(
    autoscaler: Autoscaler, seen: Observation, members: int, settings: ControllerSettings, now_ms: int
) -> JoinedObservation:
    """Split what one controller sees, report each member's part, and add the reports up."""
    return joined([summed(autoscaler, each, settings, now_ms) for each in split(seen, members, settings)])
