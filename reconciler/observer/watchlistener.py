"""What a reflector tells about one watch, as calls of two functions."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from reconciler.observer.troubles import NoteProblem, ReadProblem
from schemas.kubernetes.jsontypes import Json


def _whole(item: Json) -> Json:
    return item


@dataclass(frozen=True)
class WatchListener:
    """Hears one watch for an observer (a `Listener` of `reflector.py`). `watch`: its name in problems."""

    watch: str
    listed: Callable[[str, list[Any]], Awaitable[None]]
    changed: Callable[[str, Json], Awaitable[None]]
    trouble: NoteProblem
    keep: Callable[[Json], Any] = _whole

    def kept(self, item: Json) -> Any:
        return self.keep(item)

    def problem(self, namespace: str, problem: ReadProblem | None) -> None:
        self.trouble(self.watch, namespace, problem)
