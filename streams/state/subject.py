"""One HPA at one log record, and the values that one step of its evaluation gives to the next."""

from typing import Any, Protocol

from msgspec import Struct, structs

from schemas.decisions import Step
from schemas.keys import HpaId
from schemas.observed import AutoscalerSet
from streams.hpa.autoscaler import Autoscaler
from streams.hpa.evaluation import Evaluation, History, Pending, ReconcileResult
from streams.hpa.metrics import JoinedObservation
from streams.hpa.observation import Observation
from streams.state.clustersettings import Effective
from streams.state.guards import EffectiveMode, asked_mode, ignored
from streams.state.hpastate import Hpa
from streams.state.inputs import FleetInputs
from streams.state.moves import Stored
from streams.state.namespace import Namespace
from streams.state.partitionstate import State
from streams.state.rows import HpaRow, PendingWrite, ScaleRow
from streams.state.timing import Turn


class Subject(Struct, frozen=True, gc=False):
    """One HPA at one log record, and what is in force for it."""

    state: State
    namespace: Namespace
    hpa: Hpa
    settings: Effective
    autoscaler: Autoscaler
    effective_mode: EffectiveMode
    ignores: bool
    """Nothing is decided by this HPA, since it or what would be recorded is too large."""
    scale_row: ScaleRow | None
    evaluated_ms: int
    """Time as of which the evaluation decides (`streams.state.timing.as_of`)."""
    kind: "SubjectKind"
    of_kind: Any = None
    """What its kind has found out for its own later steps; None: nothing."""

    @property
    def follows_native(self) -> bool:
        """Return whether the status is the native controller's, which looks after the HPA while fleethpa does not."""
        return (
            self.hpa.row.origin == "cluster" and self.effective_mode.mode != "enforce" and not self.effective_mode.shown
        )

    @property
    def status(self) -> dict[str, Any]:
        """The HPA's status before the evaluation."""
        return self.hpa.row.native_status if self.follows_native else own_status(self.hpa)

    def too_large(self, why: str) -> "Subject":
        """Return the subject by which nothing is decided after all, since no topic takes the decision that was made."""
        mode = asked_mode(self.namespace, self.hpa.id.name, self.settings)
        return structs.replace(self, ignores=True, effective_mode=ignored(self.hpa, mode, self.settings, why))


class Observed(Struct, frozen=True, gc=False):
    """What an evaluation reads, beside its subject."""

    observation: Observation | JoinedObservation
    """Joined where it is of several clusters."""
    sources: list[str]
    """Per metric, the source position of the newest record that it is made of."""
    status: dict[str, Any]
    history: History
    change: dict[str, Any]
    """What moved the target since the evaluation before; empty: it was not moved."""
    moves: tuple[Stored, ...]
    restart: str
    """A restart of the log since the evaluation before, for which `history` is empty."""
    replicas: int | None
    """What the scale shows; None: it could not be read."""
    asked: tuple[str, ...]
    """What a polled source was asked for each metric, empty for one of a metrics API; no item: none was asked."""

    @property
    def ready(self) -> int:
        """The ready pods of the HPA's target. Pods that several HPAs would count are left out."""
        return 0 if self.observation.ambiguous else self.observation.pods.running_ready


class Decided(Struct, frozen=True, gc=False):
    """What the metrics ask for, or what takes their place."""

    evaluation: Evaluation
    replaced_by: str = ""
    """What took the place of what the metrics ask for (`streams.state.replacements`); empty: nothing did."""
    replaced: Step | None = None
    """The step that says so."""
    blocked: tuple[int, ...] = ()
    """The metric that pods without metrics keep from changing the count (`streams.state.needs.blocked`); empty: none.
    """
    asked: int | None = None
    """The replicas that the metrics ask for, also where something takes their place; None: they give no answer."""
    further: tuple[Step, ...] = ()
    """What the kind of the subject adds at the end of the steps."""


class Limited(Struct, frozen=True, gc=False):
    """What fleethpa's own limits leave of it: the write to want (None: none), and the result as long as it is not known
    what becomes of the write.
    """

    wanted: Pending | None
    result: ReconcileResult
    constraints: list[str]
    held: str = ""
    """Why the write that was asked for is not wanted: `paused` in the record. Empty: nothing holds it."""
    brake: Step | None = None


class SubjectKind(Protocol):
    """What differs between kinds of HPAs; which is asked of `State.attached`."""

    def is_of(self, row: HpaRow) -> bool:
        """Return whether an HPA is of this kind."""
        ...

    def settings(self, state: State, row: HpaRow) -> Effective:
        """Return the settings by which it is decided as of this record."""
        ...

    def obeys(self, row: HpaRow, cluster: str) -> bool:
        """Return whether these follow from the settings of this cluster."""
        ...

    def bounded(self, subject: Subject) -> Subject:
        """Return the subject with the spec, and the bounds of it, that are in force now."""
        ...

    def read(self, subject: Subject) -> tuple[Observation | JoinedObservation, list[str]]:
        """Return the scale, the pods and an answer per metric, and per metric where its newest record stands."""
        ...

    def remembered(self, subject: Subject, history: History) -> History:
        """Return the memory that is decided by."""
        ...

    def decided_by(self, subject: Subject, observed: Observed) -> Autoscaler:
        """Return the spec that the metrics are evaluated with."""
        ...

    def finish(
        self, subject: Subject, observed: Observed, decided: Decided, limited: Limited
    ) -> tuple[Decided, Limited]:
        """Return what is recorded of what was decided and limited."""
        ...

    def shown(self, subject: Subject) -> dict[str, Any]:
        """Return what the record shows beside what was observed."""
        ...

    def replayed(self, subject: Subject, observed: Observed) -> tuple[Observation, FleetInputs | None]:
        """Return what was observed, as a replay takes it."""
        ...

    def tell(self, subject: Subject, decision: str) -> None:
        """Send what others have to know of a decision."""
        ...

    def turn(self, state: State, namespace: Namespace, hpa: Hpa, settings: Effective) -> Turn:
        """Return whether it is evaluated with this record."""
        ...


class HpaAccount:
    """What a limit or a replacement keeps in rows, and reports to other partitions. Here each step does nothing."""

    def before(self, subject: Subject, observed: Observed) -> None:
        """Note what an HPA has, before it is decided."""

    def after(self, subject: Subject, observed: Observed, decided: Decided, limited: Limited) -> None:
        """Note what was decided."""

    def reports(self, hpa: Hpa) -> bool:
        """Return whether the HPA reports to another partition with each evaluation."""
        return False

    def calls_early(self, hpa: Hpa) -> bool:
        """Return whether something has come from another partition for which the HPA is evaluated before its time."""
        return False

    def in_time(self, hpa: Hpa) -> None:
        """Note that the HPA is evaluated at its own time."""

    def failed(self, state: State, hpa: Hpa, write: PendingWrite) -> None:
        """Take back what a write that failed had reserved."""

    def shown(self, subject: Subject, observed: Observed) -> dict[str, Any]:
        """Return what the record shows of what was observed, since it counts here."""
        return {}

    def left(self, state: State, hpa: Hpa) -> None:
        """Forget an HPA that is evaluated no longer."""

    def tombstone_kept_ms(self, hpa: Hpa) -> int:
        """Return how much longer the row of an HPA that is gone is kept, since what it did still counts."""
        return 0

    def forgotten(self, state: State, name: HpaId) -> None:
        """Drop what is derived from the row of an HPA, which is no longer kept."""

    def trim(self, hpa: Hpa, before_ms: int) -> None:
        """Drop from the row what no evaluation after this checkpoint reads. `before_ms`: log time of the checkpoint
        before it.
        """

    def takes(self, hpa: Hpa, body: AutoscalerSet, now_ms: int) -> None:
        """Take over what an object says of it."""

    def folded(self, state: State) -> None:
        """Do what is due after the entries of a record were folded, before any HPA is evaluated."""

    def lost(self, state: State) -> None:
        """Begin anew: what was kept is lost (an entry `restart`)."""

    def ended(self, state: State) -> None:
        """Do what is due after all HPAs of a record were evaluated."""


def accounts_of(state: State) -> tuple[HpaAccount, ...]:
    """Return the accounts that are attached."""
    accounts: tuple[HpaAccount, ...] = state.attached.accounts
    return accounts


def own_status(hpa: Hpa) -> dict[str, Any]:
    """Return the status from fleethpa's own decisions, else that of the native object."""
    own = hpa.row.own_status
    return hpa.row.native_status if own is None else own
