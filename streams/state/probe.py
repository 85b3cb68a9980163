"""What a probe of `Partition.apply` receives: the exact inputs of each evaluation and the end of each write."""

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from schemas.autoscalers import Mode, Origin
from schemas.keys import HpaId
from streams.hpa.autoscaler import Autoscaler, ControllerSettings
from streams.hpa.evaluation import History
from streams.hpa.observation import Observation
from streams.state.budget import Left
from streams.state.fallback import Fallback


class ProbeGuards(Struct, frozen=True, gc=False):
    """What may prevent a wanted write of an enforced HPA. `paused_*`: the pause's reason, empty without one.

    `removal`, `addition`: what the budgets leave to it; None: no budget bounds it.
    """

    frozen: bool = False
    paused_up: str = ""
    paused_down: str = ""
    hold_on_overflow: bool = True
    max_step: int | None = None
    removal: Left | None = None
    addition: Left | None = None
    partial_view: str = ""
    """Why scale-downs in the namespace are held, and until when at most; empty: they are not."""
    partial_until_ms: int = 0


class EvaluationInputs(Struct, frozen=True, kw_only=True):
    """Everything that one evaluation reads: `decide` and the guards give its decision from nothing else.

    `status`: the stored status before it. `history`: memory before it, already emptied where the log said restart
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
    guards: ProbeGuards
    restart: str = ""
    fallback: Fallback | None = None
    """Replicas for lost metrics; counts where `failures`, the evaluations in a row that failed, this one as well if it
    does, reach its threshold."""
    failures: int = 0
    native_moves: tuple[tuple[int, int, int], ...] = ()
    moves: tuple[tuple[int, int, int, str], ...] = ()
    follows_native: bool = False
    """In shadow beside a native controller, whose writes take the place of outcomes: its scale events are the HPA's."""


class WriteEnded(Struct, frozen=True, kw_only=True):
    """A wanted write came to its end. `evaluated_ms`: the time of its scale event, as of which it was wanted.

    `restart`: the log said restart since, so the memory was emptied before.
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
