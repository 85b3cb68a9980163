"""`pause`, `resume`, `mode`, `settings`: per HPA, namespace, cluster or everything; recorded with author and reason."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from fleethpa.completing import hpa_names
from fleethpa.errors import not_found, usage
from fleethpa.output.times import parse_duration_ms, span
from fleethpa.selection import DEFAULT_NAMESPACE, TYPE_WORDS, Selection, parse_ref
from fleethpa.session import Session, command_options, output_option
from fleethpa.writing import Write, confirm, dry_run, write_all, write_options

if TYPE_CHECKING:
    from fleethpa.views import FleetState
    from schemas.entries import Command

R = TypeVar("R")
EVERYTHING: Final = "*"


@dataclass(frozen=True)
class Scope:
    """What a command is about: HPAs (`names`), namespaces, clusters or (`everything`) the fleet."""

    names: tuple[str, ...]
    namespace: str | None
    clusters: tuple[str, ...]
    everything: bool

    def check(self, verb: str) -> None:
        """Raise a usage error where the scope is empty or contradicts itself."""
        if self.everything and (self.names or self.namespace or self.clusters):
            raise usage("--all excludes names, -n and -C", cause="--all is the whole fleet.")
        if not (self.everything or self.names or self.namespace or self.clusters):
            examples = f"fleethpa {verb} east/shop/checkout | -n shop -C east | -C east | --all"
            raise usage(f"{verb} what?", cause="Name HPAs, a namespace, clusters, or --all.", next_step=examples)


def scope_options(function: Callable[..., R]) -> Callable[..., R]:
    """NAMES, `-n`, `-C` and `--all` as one argument `scope`."""

    @functools.wraps(function)
    def wrapper(*args: Any, names: tuple[str, ...], **kwargs: Any) -> R:
        globs = tuple(part.strip() for part in (kwargs.pop("clusters") or "").split(",") if part.strip())
        named = names[1:] if names and names[0] in TYPE_WORDS else names
        scope = Scope(named, kwargs.pop("namespace"), globs, kwargs.pop("everything"))
        return function(*args, scope=scope, **kwargs)

    decorated: Callable[..., R] = wrapper
    for option in (
        click.option("--all", "everything", is_flag=True, help="The whole fleet."),
        click.option("-C", "--clusters", metavar="GLOB,…", help="Clusters; alone: everything in them."),
        click.option("-n", "--namespace", help="Namespace; without a name: everything in it."),
    ):
        decorated = option(decorated)
    return decorated


@click.command()
@click.argument("names", nargs=-1, shell_complete=hpa_names, metavar="[[CLUSTER/][NAMESPACE/]NAME]…")
@scope_options
@click.option("--for", "lasting", metavar="DURATION", help="End by itself after so long.")
@click.option("--scale-in", is_flag=True, help="Only stop scaling down.")
@click.option("--scale-out", is_flag=True, help="Only stop scaling up.")
@write_options
@command_options()
def pause(
    session: Session, /, scope: Scope, lasting: str | None, scale_in: bool, scale_out: bool, **written: Any
) -> int:
    """Stop writing replicas; deciding and recording go on. `pause --all` is the stop button."""
    from schemas.entries import Command

    if scale_in and scale_out:
        raise usage(
            "--scale-in and --scale-out exclude each other", cause="Without either, both directions are paused."
        )
    until = session.now_ms() + parse_duration_ms(lasting, "--for") if lasting else 0
    words = "paused" + (" for scale-in" if scale_in else " for scale-out" if scale_out else "")
    command = Command(
        command="pause",
        pause_kind="scaleDown" if scale_in else "scaleUp" if scale_out else "all",
        until=until,
        author=session.config.author,
        reason=written["reason"],
    )
    # Stopping must not wait for an answer.
    return _issue(session, scope, command, words + (f" for {lasting}" if lasting else ""), written | {"yes": True})


@click.command()
@click.argument("names", nargs=-1, shell_complete=hpa_names, metavar="[[CLUSTER/][NAMESPACE/]NAME]…")
@scope_options
@write_options
@command_options()
def resume(session: Session, /, scope: Scope, **written: Any) -> int:
    """End a pause of the same scope."""
    from schemas.entries import Command

    command = Command(command="resume", author=session.config.author, reason=written["reason"])
    return _issue(session, scope, command, "resumed", written)


@click.command()
@click.argument("wanted", type=click.Choice(["off", "shadow", "enforce"]))
@click.argument("names", nargs=-1, shell_complete=hpa_names, metavar="[[CLUSTER/][NAMESPACE/]NAME]…")
@scope_options
@write_options
@command_options()
def mode(session: Session, /, wanted: Any, scope: Scope, **written: Any) -> int:
    """Set the mode: off (do nothing), shadow (decide and record) or enforce (also write)."""
    from schemas.entries import Command

    command = Command(command="mode", mode=wanted, author=session.config.author, reason=written["reason"])
    return _issue(session, scope, command, f"set to {wanted}", written)


def _default_mode(state: FleetState, clusters: list[str], command: Command, words: str) -> list[Write]:
    """The mode of whole clusters is their setting; the fleet's holds where a cluster has none of its own."""
    from schemas.entries import ClusterSettings, SettingsSet

    def write(name: str) -> Write:
        settings = ClusterSettings(default_mode=command.mode)
        body = SettingsSet(cluster=name, settings=settings, author=command.author, reason=command.reason)
        return Write(f"{'fleet' if name == EVERYTHING else f'cluster {name}'} {words}", body, name)

    if clusters != [EVERYTHING]:
        return [write(name) for name in clusters]
    own = [name for name, held in state.settings.items() if held.default_mode is not None and name != EVERYTHING]
    return [write(name) for name in [EVERYTHING, *own]]


def _issue(session: Session, scope: Scope, command: Command, words: str, written: dict[str, Any]) -> int:
    from fleethpa.writer import open_writer

    scope.check(command.command)

    async def work() -> int:
        writes = await _writes(session, scope, command, words)
        if written["dry_run"]:
            return dry_run(session, writes)
        confirm({write.cluster for write in writes}, written["yes"], command.command)
        async with open_writer(session.config) as writer:
            return await write_all(session, writer, writes, written["wait"])

    return session.run(work())


async def _writes(session: Session, scope: Scope, command: Command, words: str) -> list[Write]:
    from msgspec import structs

    from fleethpa.finding import matching_clusters
    from fleethpa.state import read_state

    if scope.everything and command.command != "mode":
        # The stop button reads nothing first.
        return [Write(f"fleet {words}", structs.replace(command, cluster=EVERYTHING), EVERYTHING)]
    async with session.reader() as reader:
        state = await read_state(reader)
    if scope.everything:
        return _default_mode(state, [EVERYTHING], command, words)
    if scope.names:
        return _of_hpas(state, scope, command, words)
    clusters = matching_clusters(state, scope.clusters, session.config.contexts)
    if scope.namespace:
        return _of_namespaces(state, scope.namespace, clusters, command, words)
    if command.command == "mode":
        return _default_mode(state, clusters, command, words)
    return [Write(f"cluster {name} {words}", structs.replace(command, cluster=name), name) for name in clusters]


def _of_hpas(state: FleetState, scope: Scope, command: Command, words: str) -> list[Write]:
    from msgspec import structs

    from fleethpa.finding import chosen

    refs = tuple(parse_ref(name) for name in scope.names)
    selection = Selection(refs, scope.namespace or DEFAULT_NAMESPACE, scope.clusters)
    return [
        Write(
            f"hpa {view.id} {words}",
            structs.replace(command, name=view.id.name),
            view.id.cluster,
            view.id.namespace,
        )
        for view in chosen(state, selection)
    ]


def _of_namespaces(state: FleetState, namespace: str, clusters: list[str], command: Command, words: str) -> list[Write]:
    known = {hpa.cluster for hpa in state.hpas if hpa.namespace == namespace}
    known |= {cluster for cluster, name in state.namespaces if name == namespace}
    found = [cluster for cluster in clusters if cluster in known]
    if not found:
        raise not_found(f"no namespace {namespace} in {', '.join(clusters)}", next_step="fleethpa get hpa -A")
    return [Write(f"namespace {cluster}/{namespace} {words}", command, cluster, namespace) for cluster in found]


# --- settings ---------------------------------------------------------------------------------------------------------


def _flag(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError("expected true or false")
    return text == "true"


def _choice(*known: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in known:
            raise ValueError(f"expected one of {', '.join(known)}")
        return text

    return parse


def _quantity(text: str) -> str:
    if not re.fullmatch(r"\d{1,6}(\.\d+)?", text):
        raise ValueError("expected a number such as 0.1")
    return text


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ValueError("expected a whole number of at least 1")
    return int(text)


_MODE: Final = _choice("off", "shadow", "enforce")
SETTINGS: Final[dict[str, tuple[str, Callable[[str], Any]]]] = {
    "sync-period": ("sync_period_ms", lambda text: parse_duration_ms(text, "sync-period")),
    "tolerance": ("tolerance", _quantity),
    "downscale-stabilization": ("downscale_stabilization_ms", lambda text: parse_duration_ms(text)),
    "cpu-initialization-period": ("cpu_initialization_period_ms", lambda text: parse_duration_ms(text)),
    "initial-readiness-delay": ("initial_readiness_delay_ms", lambda text: parse_duration_ms(text)),
    "sample-age-limit": ("sample_age_limit_ms", lambda text: parse_duration_ms(text)),
    "default-mode": ("default_mode", _MODE),
    "frozen": ("frozen", _flag),
    "native-controller": ("native_controller", _choice("absent", "present", "unknown")),
    "max-step": ("max_step", _count),
    "hold-on-overflow": ("hold_on_overflow", _flag),
}
"""Setting as written: its field and how its value is read. Beside these: `namespace.NAME=MODE`, `source.TYPE=…`."""


@click.command()
@click.argument("cluster")
@click.argument("changes", nargs=-1, metavar="[NAME=VALUE]…")
@write_options
@output_option(formats=("table", "json", "yaml"))
@command_options()
def settings(session: Session, /, cluster: str, changes: tuple[str, ...], output: str, **written: Any) -> int:
    """Show the settings of CLUSTER ('*': the defaults of all), or change them.

    Names: sync-period, tolerance, downscale-stabilization, cpu-initialization-period, initial-readiness-delay,
    sample-age-limit, default-mode, frozen, native-controller, max-step, hold-on-overflow, namespace.NAME, source.TYPE.
    """
    return _change(session, cluster, changes, written) if changes else _show(session, cluster, output)


def _change(session: Session, cluster: str, changes: tuple[str, ...], written: dict[str, Any]) -> int:
    from fleethpa.writer import open_writer
    from schemas.entries import SettingsSet

    body = SettingsSet(
        cluster=cluster,
        settings=parse_settings(changes),
        author=session.config.author,
        reason=written["reason"],
    )
    writes = [Write(f"settings of {cluster} changed: {', '.join(changes)}", body, cluster)]
    if written["dry_run"]:
        return dry_run(session, writes)

    async def work() -> int:
        if cluster != EVERYTHING:
            await _known(session, cluster)
        async with open_writer(session.config) as writer:
            return await write_all(session, writer, writes, written["wait"])

    return session.run(work())


async def _known(session: Session, cluster: str) -> None:
    from fleethpa.state import read_state

    async with session.reader() as reader:
        state = await read_state(reader)
    if cluster not in state.clusters and cluster not in session.config.contexts:
        session.warn(f"cluster {cluster} has not been heard of yet (known: {', '.join(state.clusters) or 'none'})")


def parse_settings(changes: tuple[str, ...]) -> Any:
    """Read `NAME=VALUE` texts into `ClusterSettings`.

    Raises:
        CommandError: an unknown name or a value that cannot be read (exit 2).
    """
    import typing

    from schemas.entries import ClusterSettings, MetricType

    values: dict[str, Any] = {}
    for text in changes:
        name, equals, value = text.partition("=")
        if not equals:
            raise usage(f"{text!r} is no setting", cause="Write NAME=VALUE, such as sync-period=5s.")
        group, dot, member = name.partition(".")
        try:
            if dot and group == "namespace" and member:
                values.setdefault("namespaces", {})[member] = _MODE(value)
            elif dot and group == "source":
                metric_type = _choice(*typing.get_args(MetricType))(member)
                values.setdefault("sources", {})[metric_type] = _choice("api", "samples")(value)
            elif name in SETTINGS:
                field, parse = SETTINGS[name]
                values[field] = parse(value)
            else:
                raise usage(
                    f"{name} is no setting", cause=f"Known are {', '.join(SETTINGS)}, namespace.NAME, source.TYPE."
                )
        except ValueError as error:
            raise usage(f"{name}={value} cannot be used", cause=str(error)) from error
    return ClusterSettings(**values)


def written_settings(settings: Any) -> list[tuple[str, str]]:
    """Settings as they are written on the command line: name and value."""
    rows = []
    for name, (field, _) in SETTINGS.items():
        value = getattr(settings, field)
        if value is not None:
            text = str(value).lower() if isinstance(value, bool) else str(value)
            rows.append((name, _span(value) if field.endswith("_ms") else text))
    rows += [(f"namespace.{name}", mode) for name, mode in (settings.namespaces or {}).items()]
    return rows + [(f"source.{name}", source) for name, source in (settings.sources or {}).items()]


def _span(ms: int) -> str:
    return f"{ms / 1000:g}s" if ms % 1000 or ms < 1000 else span(ms)


def _show(session: Session, cluster: str, output: str) -> int:
    import msgspec

    from fleethpa.output.formats import one
    from fleethpa.output.table import layout
    from fleethpa.state import read_state
    from schemas.entries import ClusterSettings
    from streams.core.settings import merge

    async def work() -> Any:
        async with session.reader() as reader:
            return await read_state(reader)

    state: FleetState = session.run(work())
    if cluster != EVERYTHING and cluster not in state.clusters:
        known = ", ".join(state.clusters) or "none"
        raise not_found(f"no cluster {cluster}", cause=f"Known are {known}.", next_step="fleethpa get clusters")
    nothing = ClusterSettings()
    effective = merge(state.settings.get(EVERYTHING, nothing), state.settings.get(cluster, nothing))
    body = msgspec.to_builtins(effective)
    if output == "table":
        rows = [("SETTING", "VALUE"), *written_settings(effective)]
        session.out("\n".join(layout(rows)))
        session.note("What is not listed has upstream's default.")
    else:
        session.out(one("Settings", {"cluster": cluster, "settings": body}, output))
    return 0
