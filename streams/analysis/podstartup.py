"""How long a new pod takes until it takes load, measured from the recording."""

from collections.abc import Iterable
from statistics import median

from msgspec import Struct

from schemas.kubernetes.gotimes import ZERO_TIME_MS
from streams.analysis.recordedload import serving
from streams.hpa.observation import PodRow
from streams.state.probe import EvaluationInputs

DEFAULT_MS = 30_000
_LONGEST_MS = 1_800_000


class StartUp(Struct, frozen=True, kw_only=True, rename="camel"):
    """From the start of a pod to when it takes load, and how that is known.

    `measured`: pods whose start was seen; 0: it was taken from pods that were there (`from start to ready`), or,
    without any, is the default.
    """

    ms: int
    measured: int
    how: str


class StartUpClock:
    """Measures while the evaluations of one HPA are read, oldest first."""

    def __init__(self) -> None:
        self._delays: dict[str, int] = {}
        self._own: dict[str, int] = {}
        self._known: set[str] | None = None

    def see(self, inputs: EvaluationInputs) -> None:
        """Take in the pods of an evaluation."""
        pods = inputs.observation.pods
        if self._known is None:
            self._known = {pod.name for pod in pods.rows}
        for pod in pods.active:
            if pod.name not in self._own and serving(pod, None) and _is_first(pod):
                self._own[pod.name] = pod.ready_at_ms - (pod.start_ms or 0)
                if pod.name not in self._known:
                    self._delays[pod.name] = self._own[pod.name]

    def start_up(self) -> StartUp:
        """What was measured so far."""
        delays, own = self._delays, self._own
        if delays:
            return StartUp(
                ms=round(median(delays.values())), measured=len(delays), how="median of the pods that started"
            )
        if own:
            return StartUp(ms=round(median(own.values())), measured=0, how="start to ready of the pods that were there")
        return StartUp(ms=DEFAULT_MS, measured=0, how="no pod's start is known: assumed")


def start_up(recorded: Iterable[EvaluationInputs]) -> StartUp:
    """Measure over one HPA's recording."""
    clock = StartUpClock()
    for inputs in recorded:
        clock.see(inputs)
    return clock.start_up()


def _is_first(pod: PodRow) -> bool:
    """Its readiness is known and plausibly its first: a pod that lost readiness long after its start tells nothing."""
    if pod.start_ms is None or pod.ready_at_ms == ZERO_TIME_MS:
        return False
    return 0 <= pod.ready_at_ms - pod.start_ms <= _LONGEST_MS
