"""A cluster that is frozen (setting `frozen`) is not written at all."""

from typing import Any

from streams.hpa.observation import SeenPods
from streams.state.limits.limit import LimitedWrite, WriteLimit
from streams.state.subject import Subject


class Frozen(WriteLimit):
    name = "Frozen"
    settings = ("frozen",)

    def inputs(self, subject: Subject, pods: SeenPods) -> str | None:
        return f"cluster {subject.namespace.cluster} is frozen" if subject.settings.frozen else None

    def apply(self, inputs: str, write: LimitedWrite) -> LimitedWrite:
        return write.blocked(self.name, inputs)

    def stops(self, inputs: Any) -> str:
        return f"{inputs}; what the metrics ask for is recorded, and changes are not written"
