"""An HPA of one cluster: it sees its pods and metrics, and writes its target's scale."""

from typing import Any

from streams.hpa.autoscaler import Autoscaler
from streams.hpa.evaluation import History
from streams.hpa.metrics import JoinedObservation
from streams.hpa.observation import Observation, Scale
from streams.state.clustersettings import Effective
from streams.state.gather import observe_metric, observe_scale
from streams.state.hpastate import Hpa
from streams.state.inputs import FleetInputs
from streams.state.namespace import Namespace
from streams.state.overlap import sharing_pods
from streams.state.partitionstate import State
from streams.state.rows import HpaRow
from streams.state.subject import Decided, Limited, Observed, Subject
from streams.state.timing import Turn, without_early_turn
from streams.state.turns import is_waited_for, next_turn, or_early


class ClusterHpa:
    """As `streams.state.subject.SubjectKind`. What no other kind claims is of this one."""

    def is_of(self, row: HpaRow) -> bool:
        return True

    def settings(self, state: State, row: HpaRow) -> Effective:
        return state.settings(row.cluster)

    def obeys(self, row: HpaRow, cluster: str) -> bool:
        return row.cluster == cluster

    def bounded(self, subject: Subject) -> Subject:
        return subject

    def read(self, subject: Subject) -> tuple[Observation | JoinedObservation, list[str]]:
        namespace, queries, now_ms = subject.namespace, subject.hpa.queries, subject.state.now_ms
        scale = observe_scale(namespace, subject.autoscaler, subject.scale_row, now_ms)
        if not isinstance(scale, Scale):
            return Observation(scale), [""] * len(queries)
        pods = namespace.membership.matching(scale.selector, subject.settings.controller.rules)
        read = [observe_metric(namespace, query, pods, subject.settings, now_ms) for query in queries]
        answers = tuple([answer for answer, _ in read])
        sharing = sharing_pods(subject.state, namespace, subject.hpa, scale.selector, pods)
        return Observation(scale, pods, answers, sharing), [each[1] for each in read]

    def remembered(self, subject: Subject, history: History) -> History:
        return history

    def decided_by(self, subject: Subject, observed: Observed) -> Autoscaler:
        return subject.autoscaler

    def finish(
        self, subject: Subject, observed: Observed, decided: Decided, limited: Limited
    ) -> tuple[Decided, Limited]:
        return decided, limited

    def shown(self, subject: Subject) -> dict[str, Any]:
        return {}

    def replayed(self, subject: Subject, observed: Observed) -> tuple[Observation, FleetInputs | None]:
        seen = observed.observation
        assert isinstance(seen, Observation)
        return seen, None

    def tell(self, subject: Subject, decision: str) -> None:
        """Nobody has to know."""

    def turn(self, state: State, namespace: Namespace, hpa: Hpa, settings: Effective) -> Turn:
        turn, row = next_turn(state, namespace, hpa, settings), hpa.row
        if state.row.every > 1 and not is_waited_for(state, hpa):
            turn = without_early_turn(turn, state.now_ms, row.evaluated_ms, settings.sync_period_ms, state.row.every)
        return or_early(turn, state, hpa, settings)
