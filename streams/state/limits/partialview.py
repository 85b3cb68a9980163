"""Scale-downs in a namespace whose pods or metrics vanish together are not believed (setting `partial-view`)."""

from typing import NamedTuple

from schemas.decisions import Step
from streams.hpa.evaluation import Pending
from streams.state.limits.limit import LimitedWrite, WriteLimit
from streams.state.partialview import LONGEST_HOLD_MS, partial_view
from streams.state.subject import Observed, Subject


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
