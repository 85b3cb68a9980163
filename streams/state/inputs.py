"""Everything that one evaluation reads, as a value: `decide` and the guards give its decision from nothing else."""

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from schemas.keys import HpaId
from schemas.observed import Mode, Origin
from streams.across.allotments import FleetRow
from streams.across.capacity import CapacityLeft
from streams.hpa.autoscaler import Autoscaler, ControllerSettings
from streams.hpa.evaluation import History
from streams.hpa.metrics import JoinedObservation
from streams.hpa.observation import Observation
from streams.state.budget import Left, Way
from streams.state.overrides import Fallback, Override


class Guards(Struct, frozen=True, gc=False):
    """What may hold or cut a wanted write of an enforced HPA, as `streams.state.brakes.limited` asks for it.

    `frozen`, `paused_*`: why, empty where it is not. `removal`, `addition`: what the budgets leave to it, for a probe;
    None: no budget bounds it.
    """

    frozen: str = ""
    paused_up: str = ""
    paused_down: str = ""
    hold_on_overflow: bool = True
    max_step: int | None = None
    removal: Left | None = None
    addition: Left | None = None
    partial_view: str = ""
    """Why scale-downs in the namespace are held, and until when at most; empty: they are not."""
    partial_until_ms: int = 0
    capacity: CapacityLeft | None = None
    """What the HPA's CapacityGroups leave to it; None: none bounds it."""

    def left(self, way: Way) -> Left | None:
        """What the budgets leave to removals or to additions; None: nothing bounds them."""
        return self.removal if way == "removal" else self.addition


class FleetInputs(Struct, frozen=True, gc=False):
    """What an evaluation of a FleetHPA reads: the parts that its clusters reported, added up, and what it knew of them
    before it. `now_ms`: log time.
    """

    joined: JoinedObservation
    row: FleetRow
    now_ms: int


class EvaluationInputs(Struct, frozen=True, kw_only=True):
    """Everything that one evaluation reads: `decide` and the guards give its decision from nothing else.

    `status`: the stored status before it. `history`: memory before it, already emptied at a restart in the log
    (`restart`: why). `now_ms`: time as of which it decides, up to 2 s ahead of the log (`streams.state.timing.as_of`).
    `native_moves`: (from, to, time ms) of the native controller's writes since the evaluation before.
    `moves`: the last changes of the replicas, up to what this evaluation sees (`streams.state.moves.Move`); no decision
    depends on them.
    """

    decision: str
    hpa: HpaId
    partition: int
    offset: int
    now_ms: int
    mode: Mode
    origin: Origin
    generation: int
    spec: dict[str, Any]
    autoscaler: Autoscaler
    status: dict[str, Any]
    observation: Observation
    history: History
    settings: ControllerSettings
    period_ms: int
    guards: Guards
    restart: str = ""
    fallback: Fallback | None = None
    """Replicas for lost metrics; counts where `failures`, the evaluations in a row that failed, this one as well if it
    does, reach its threshold."""
    failures: int = 0
    override: Override | None = None
    native_moves: tuple[tuple[int, int, int], ...] = ()
    moves: tuple[tuple[int, int, int, str], ...] = ()
    follows_native: bool = False
    """In shadow beside a native controller, whose writes take the place of outcomes: its scale events are the HPA's."""
    fleet: FleetInputs | None = None
    """Of a FleetHPA, whose `observation` has the scale alone."""


class WriteEnded(Struct, frozen=True, kw_only=True):
    """A wanted write came to its end. `evaluated_ms`: the time of its scale event, as of which it was wanted.

    `restart`: a restart in the log since; the memory was emptied.
    """

    hpa: HpaId
    decision: str
    current_replicas: int
    desired_replicas: int
    now_ms: int
    wanted_ms: int
    evaluated_ms: int
    applied: bool
    restart: bool


Probe = Callable[[EvaluationInputs | WriteEnded], None]
"""What is called with the inputs of each evaluation and the end of each write."""
