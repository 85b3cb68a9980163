"""One write changes no more replicas than the cluster's setting `max-step` says."""

from streams.hpa.observation import SeenPods
from streams.state.limits.limit import LimitedWrite, WriteLimit
from streams.state.subject import Subject


class MaxStep(WriteLimit):
    name = "MaxStep"
    settings = ("max_step",)

    def inputs(self, subject: Subject, pods: SeenPods) -> int | None:
        return subject.settings.max_step

    def apply(self, inputs: int, write: LimitedWrite) -> LimitedWrite:
        return write if abs(write.change) <= inputs else write.cut(self.name, inputs, "")
