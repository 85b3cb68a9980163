"""The pauses that persons have set, folded from their commands, and which of them stops a write. No I/O."""

from collections.abc import Iterable
from typing import Literal

from schemas.agents import KnownPause
from schemas.autoscalers import Command
from schemas.keys import EVERY_CLUSTER

ScalingDirection = Literal["scaleUp", "scaleDown"]


class PauseFold:
    """Pauses of HPAs, namespaces, clusters and all clusters."""

    def __init__(self) -> None:
        self._pauses: dict[tuple[str, str, str], dict[str, KnownPause]] = {}

    def take(self, cluster: str, namespace: str, command: Command) -> bool:
        """Apply `pause` or `resume` to an HPA, a namespace (no name), a cluster (no namespace), or all (`*`); whether
        it is one of them. A command of `mode` is not.
        """
        if command.command == "mode":
            return False
        known = self._pauses.setdefault((cluster or EVERY_CLUSTER, namespace, command.name), {})
        if command.command == "pause":
            pause = KnownPause(kind=command.pause_kind, namespace=namespace, name=command.name, until=command.until)
            known[command.pause_kind] = pause
        elif command.pause_kind == "all":
            known.clear()
        else:
            known.pop(command.pause_kind, None)
        return True

    def in_force(self, cluster: str, now_ms: int) -> list[KnownPause]:
        """The pauses in force in a cluster."""
        return [
            pause
            for (where, _, _), known in sorted(self._pauses.items())
            if where in (cluster, EVERY_CLUSTER)
            for pause in known.values()
            if is_in_force(pause, now_ms)
        ]


def is_in_force(pause: KnownPause, now_ms: int) -> bool:
    """Whether a pause has not ended by itself."""
    return not pause.until or now_ms < pause.until


def covers(pause: KnownPause, namespace: str, name: str, direction: ScalingDirection) -> bool:
    """Whether a pause, while it is in force, stops changes of an HPA in a direction."""
    return pause.kind in ("all", direction) and pause.namespace in ("", namespace) and pause.name in ("", name)


def stopping(
    pauses: Iterable[KnownPause], namespace: str, name: str, direction: ScalingDirection, now_ms: int
) -> KnownPause | None:
    """The first pause in force that stops changes of an HPA in a direction; None: none does."""
    found = (pause for pause in pauses if covers(pause, namespace, name, direction))
    return next((pause for pause in found if is_in_force(pause, now_ms)), None)
