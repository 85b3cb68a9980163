"""What observers may poll in place of the metrics APIs of a cluster: one line each, from which its option, its help and
the words of its troubles follow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import click

from fleethpa.frame.errors import read_text, usage
from fleethpa.frame.options import Decorator, together

if TYPE_CHECKING:
    from reconciler.observer.polledsource import OpenSource

T = TypeVar("T")
FileReader = Callable[[str], str]


class SourceKind(NamedTuple):
    """A kind of source; its name is that of its option, and the `part` of its troubles.

    `help`: of the option, which takes a file. `docs`: the page about this file, by its path from the root of the
    repository; an error about the file ends with it. `read`: the source that this file describes, by its path and what
    reads it and the files that it names; a ValueError is about the file. `title`: what a trouble is of, as in `its
    Prometheus is away`. `check`: the command that a trouble names as the next step; `{cluster}` in it becomes the
    cluster of the trouble.
    """

    help: str
    docs: str
    read: Callable[[str, FileReader], OpenSource]
    title: str
    check: str


def _prometheus(path: str, read: FileReader) -> OpenSource:
    from reconciler.prometheus.connections import read_connections
    from reconciler.prometheus.poller import open_prometheus

    return open_prometheus(read_connections(path, read))


POLLED_SOURCES: Final[dict[str, SourceKind]] = {
    "prometheus": SourceKind(
        help="Which Prometheus is asked for metrics in place of the metrics APIs, per cluster (docs/prometheus.md).",
        docs="docs/prometheus.md",
        read=_prometheus,
        title="its Prometheus",
        check="fleethpa metrics try 'vector(1)' --prometheus FILE -C {cluster}",
    )
}


def source_option(name: str) -> Decorator:
    """The option that takes the file of a source."""
    return click.option(f"--{name}", metavar="FILE", help=POLLED_SOURCES[name].help)


def source_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of all sources."""
    return together(*map(source_option, POLLED_SOURCES))(command)


def read_source(name: str, path: str, read: Callable[[str, FileReader], T]) -> T:
    """Return what the file of a source says. Raises CommandError: it, or one that it names, cannot be used (exit 2)."""
    try:
        return read(path, lambda file: read_text(file, f"--{name}: {file}"))
    except ValueError as error:
        next_step = f"see {POLLED_SOURCES[name].docs} for its fields"
        raise usage(f"--{name} {path} cannot be used", cause=str(error), next_step=next_step) from error


def polled_sources(options: Mapping[str, Any]) -> dict[str, OpenSource]:
    """The sources that the options name. Raises CommandError: as `read_source`."""
    given = {name: options.get(name.replace("-", "_")) for name in POLLED_SOURCES}
    return {name: read_source(name, path, POLLED_SOURCES[name].read) for name, path in given.items() if path}
