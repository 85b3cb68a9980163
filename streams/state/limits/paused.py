"""What a person paused: scale-ups, scale-downs or both of an HPA, a namespace, a cluster or all clusters."""

from typing import NamedTuple

from streams.state.guards import pause_in_force
from streams.state.limits.budgets import is_exempt
from streams.state.limits.limit import LimitedWrite, WriteLimit
from streams.state.subject import Observed, Subject


class PausesInForce(NamedTuple):
    """Which pause stops scale-ups and scale-downs, in words; empty: none."""

    up: str
    down: str


class Paused(WriteLimit):
    name = "Paused"

    def inputs(self, subject: Subject, observed: Observed) -> PausesInForce | None:
        namespace, state, name, exempt = subject.namespace, subject.state, subject.hpa.id.name, is_exempt(subject.hpa)
        up, down = (
            pause_in_force(namespace, name, state.row, is_up, state.now_ms, is_exempt=exempt) for is_up in (True, False)
        )
        return PausesInForce(up, down) if up or down else None

    def apply(self, inputs: PausesInForce, write: LimitedWrite) -> LimitedWrite:
        why = inputs.up if write.is_up else inputs.down
        return write.blocked(self.name, why) if why else write

    def stops(self, inputs: PausesInForce) -> str:
        what = "changes" if inputs.up and inputs.down else "scale-ups" if inputs.up else "scale-downs"
        why = "; ".join(dict.fromkeys(filter(None, inputs)))
        return f"{why}; what the metrics ask for is recorded, and {what} are not written"
