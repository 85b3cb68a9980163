"""A write adds no more than what the CapacityGroups of an HPA have allotted to it (`capacity`)."""

from streams.across import capacity
from streams.across.allotments import CONSTRAINT, STEP, CapacityLeft
from streams.state.hpastate import Hpa
from streams.state.limits.limit import LimitedWrite, WriteLimit
from streams.state.partitionstate import State
from streams.state.subject import Decided, HpaAccount, Limited, Observed, Subject


class CapacityGroups(WriteLimit):
    name = CONSTRAINT
    reads_others = True

    def inputs(self, subject: Subject, observed: Observed) -> CapacityLeft | None:
        return capacity.capacity_left(subject.state, subject.hpa, subject.settings, observed.observation.pods)

    def apply(self, inputs: CapacityLeft, write: LimitedWrite) -> LimitedWrite:
        wanted = write.pending
        if not write.is_up or wanted.desired_replicas <= inputs.most:
            return write
        room = max(0, inputs.most - wanted.current_replicas)
        step = inputs.step(wanted.desired_replicas, write.cut_to(room).desired_replicas)
        return write.cut(self.name, room, inputs.text, step)


class CapacityAccount(HpaAccount):
    """What an HPA reports to its groups after each evaluation."""

    def after(self, subject: Subject, observed: Observed, decided: Decided, limited: Limited) -> None:
        state = subject.state
        if state.row.groups or subject.hpa.row.claims:
            cut = limited.brake if limited.brake is not None and limited.brake.step == STEP else None
            state.messages += capacity.report(
                state,
                subject.namespace,
                subject.hpa,
                subject.settings,
                observed.observation.pods,
                observed.replicas,
                limited.wanted,
                cut,
            )

    def reports(self, hpa: Hpa) -> bool:
        return bool(hpa.row.claims)

    def calls_early(self, hpa: Hpa) -> bool:
        return capacity.is_awaited(hpa)

    def left(self, state: State, hpa: Hpa) -> None:
        state.messages += capacity.leave(state, hpa)

    def lost(self, state: State) -> None:
        capacity.after_loss(state)

    def ended(self, state: State) -> None:
        """Divide the groups that are due."""
        state.messages += capacity.capacity_turns(state)
