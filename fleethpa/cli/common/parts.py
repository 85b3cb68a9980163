"""The long-running parts: their settings from the command line, and how they run together in one process."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from fleethpa.cli.common.configuration import Config
from fleethpa.cli.common.failures import CommandError, unreachable, usage
from reconciler.clusters.clustererrors import ConfigError
from runtime import ending

if TYPE_CHECKING:
    from fleethpa.cli.common.session import Session
    from reconciler.clusters.client import ClusterConfig

log = logging.getLogger(__name__)

Part = Callable[[asyncio.Event], Awaitable[None]]
"""Runs until the event is set; anything it raises ends the process, a restart is the recovery."""


def member_clusters(config: Config, in_cluster_name: str = "") -> tuple[ClusterConfig, ...]:
    """The clusters to watch and write: contexts of the kubeconfig, or the cluster that this process runs in.

    Raises:
        CommandError: the kubeconfig cannot be used, or none is known (exit 2).
    """
    from reconciler.clusters.client import ClusterConfig, clusters_of

    if in_cluster_name:
        return (ClusterConfig(in_cluster_name),)
    if not config.kubeconfig:
        raise usage(
            "no member clusters are known",
            cause="Neither --kubeconfig nor a configuration file names a kubeconfig.",
            next_step="add --kubeconfig FILE, or --in-cluster NAME inside a cluster",
        )
    try:
        return tuple(clusters_of(config.kubeconfig, config.contexts))
    except ConfigError as error:
        raise usage(
            f"kubeconfig {config.kubeconfig} cannot be used",
            cause=str(error),
            next_step="name a readable kubeconfig with --kubeconfig FILE",
        ) from error


def run_parts(session: Session, parts: Mapping[str, Part]) -> None:
    """Run parts until SIGINT or SIGTERM; one that fails ends all. The end takes no longer than `runtime.ending` allows.

    Raises:
        CommandError: a part could not go on; names it and says why (exit 3).
    """
    try:
        session.run(_run_together(parts))
    finally:
        ending.over()


async def _run_together(parts: Mapping[str, Part]) -> None:
    stop = stop_on_signals()
    tasks = {name: asyncio.create_task(_until(part, stop), name=name) for name, part in parts.items()}
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait([*tasks.values(), stopping], return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    ended = [f"{name}: {task.exception()!r}" for name, task in tasks.items() if task.done() and not task.cancelled()]
    ending.begin("; ".join(ended) or "a signal asked for it", asyncio.get_running_loop())
    stop.set()
    _, hung = await asyncio.wait(tasks.values(), timeout=ending.CANCELLED_S)
    if hung:
        data = {"parts": [task.get_name() for task in hung], "tasks": ending.unfinished(asyncio.get_running_loop())}
        log.warning("ended before its work was done: the next process repeats it", extra=data)
        for task in hung:
            task.cancel()
        await asyncio.wait(hung, timeout=ending.ENDED_S - ending.CANCELLED_S)
    for name, task in tasks.items():
        error = task.exception() if task.done() and not task.cancelled() else None
        if error is not None:
            raise _failed(name, error) from error


def stop_on_signals() -> asyncio.Event:
    """An event that SIGINT and SIGTERM set from now on."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    return stop


async def _until(part: Part, stop: asyncio.Event) -> None:
    await part(stop)


def _failed(name: str, error: BaseException) -> BaseException:
    if isinstance(error, CommandError):
        return error
    known = (ValueError, OSError, LookupError)
    text = str(error) or type(error).__name__
    if "AuthorizationFailed" in type(error).__name__:
        cause = f"Kafka denies this user access: {type(error).__name__}."
        return unreachable(f"{name} cannot continue: {text}", cause=cause, next_step=f"fleethpa topics acls {name}")
    if isinstance(error, known) or type(error).__module__.split(".")[0] in (
        "streams",
        "reconciler",
        "runtime",
        "schemas",
        "aiokafka",
    ):
        return unreachable(f"{name} cannot continue: {text}", next_step="fleethpa topics check")
    return error


def announce(name: str) -> Callable[[int], None]:
    """Say on stderr where a part serves its health."""

    def tell(port: int) -> None:
        where = f", health and metrics on http://127.0.0.1:{port}" if port else ""
        print(f"{name} is running{where}", file=sys.stderr, flush=True)

    return tell
