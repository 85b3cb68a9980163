"""What one evaluation reads, as a value: replays decide from it, and change parts of it."""

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from schemas.keys import HpaId
from schemas.observed import Mode, Origin
from streams.hpa.autoscaler import Autoscaler, ControllerSettings
from streams.hpa.evaluation import History
from streams.hpa.metrics import JoinedObservation
from streams.hpa.observation import Observation
from streams.state.acrossrows import FleetRow


class NamedInputs(Struct, frozen=True, gc=False):
    """What each of several limits (or replacements) reads, by its name; one that is not there changes nothing."""

    items: tuple[tuple[str, Any], ...] = ()

    def of(self, name: str) -> Any:
        """Return what one reads; None: it changes nothing."""
        return next((value for known, value in self.items if known == name), None)

    def without(self, *names: str) -> "NamedInputs":
        """Return the inputs as if these were not there."""
        return NamedInputs(tuple([each for each in self.items if each[0] not in names]))

    def with_one(self, name: str, value: Any) -> "NamedInputs":
        """Return the inputs with another value for one of them."""
        return NamedInputs((*self.without(name).items, (name, value)))


class FleetInputs(Struct, frozen=True, gc=False):
    """What an evaluation of a FleetHPA reads: the parts that its clusters reported, added up, and what it knew of them
    before it. `now_ms`: log time.
    """

    joined: JoinedObservation
    row: FleetRow
    now_ms: int


class EvaluationInputs(Struct, frozen=True, kw_only=True):
    """Everything that one evaluation reads: `decide`, replacements and limits give its decision from nothing else.

    `status`: the stored status before it. `history`: memory before it, already emptied at a restart in the log
    (`restart`: why). `now_ms`: time as of which it decides, up to 2 s ahead of the log (`streams.state.timing.as_of`).
    `native_moves`: (from, to, time ms) of the native controller's writes since the evaluation before.
    `moves`: the last changes of the replicas, up to what this evaluation sees (`streams.state.moves.Move`). Of a
    decision only its `states` follow from them (whether it is flapping), which a backtest leaves out.
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
    limits: NamedInputs = NamedInputs()
    """What each of fleethpa's own limits reads (`streams.state.limits`)."""
    replacements: NamedInputs = NamedInputs()
    """What each replacement of the metrics reads (`streams.state.replacements`)."""
    restart: str = ""
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
