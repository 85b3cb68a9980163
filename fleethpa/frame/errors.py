"""Exit codes, errors in three parts (what failed, likely cause, next command), and suggestions."""

from __future__ import annotations

import difflib
import importlib
import os
import re
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, ClassVar, Final

import click

from runtime.log import clean

# What each means for users is in docs/reference/cli.md, which `tests.clireference` makes.
OK: Final = 0
ANSWER_IS_NO: Final = 1
"""The command has done its work, and what was asked is not so: not ready, not equal, no room."""
USAGE: Final = 2
UNREACHABLE: Final = 3
NOT_FOUND: Final = 4
"""The object that was named does not exist, or nothing is recorded of the time that was named."""
PARTIAL: Final = 5
"""There is an answer, but a part of it is not known, or only as it was before; the output names that part."""
INTERNAL: Final = 70
TIMED_OUT: Final = 124
INTERRUPTED: Final = 130


class CommandError(Exception):
    """Why a command cannot go on.

    Args:
        what: what failed, with the object and the endpoint.
        cause: the likely cause; may be empty.
        next_step: the command to run next; may be empty.
        code: exit code of the process.

    `others`: further failures, which are printed below this one.
    """

    def __init__(self, what: str, *, cause: str = "", next_step: str = "", code: int = ANSWER_IS_NO) -> None:
        super().__init__(what)
        self.what, self.cause, self.next_step, self.code = what, cause, next_step, code
        self.others: list[CommandError] = []

    def sentence(self) -> str:
        """Return what failed and its cause, on one line."""
        return f"{self.what}. {self.cause}" if self.cause else self.what

    def text(self) -> str:
        """Return the three parts, one per line; below them those of the others."""
        lines = [f"Error: {clean(self.what)}"]
        lines += [f"  {line}" for line in self.cause.splitlines()]
        if self.next_step:
            lines.append(f"  Next: {clean(self.next_step)}")
        return "\n".join([*lines, *(other.text() for other in self.others)])


_VERBS: Final = "fleethpa.verbs"
"""In the context's `meta`: the words of the verb that is called."""
MANIFESTS = (".yaml", ".yml", ".json")
"""How the names of manifests end."""
usage = partial(CommandError, code=USAGE)
"""A wrong use of the command line or a wrong input (exit 2)."""
unreachable = partial(CommandError, code=UNREACHABLE)
"""Kafka or an API server cannot be reached (exit 3)."""
not_found = partial(CommandError, code=NOT_FOUND)
"""The named object does not exist (exit 4)."""
timed_out = partial(CommandError, code=TIMED_OUT)
"""`--timeout` was hit (exit 124)."""


def internal(error: str, hpas: str = "") -> CommandError:
    """A fault of fleethpa itself (exit 70). `hpas`: whose results are missing or incomplete; empty: all are."""
    missing = " Results of what is named are missing or incomplete." if hpas else ""
    return CommandError(
        f"{hpas}: internal error: {error}" if hpas else f"internal error: {error}",
        cause=f"This is a fault of fleethpa.{missing}",
        next_step="run it again with --debug and report what it prints",
        code=INTERNAL,
    )


def unreadable_text(error: OSError | UnicodeDecodeError) -> str:
    """Why a text file cannot be read, in words."""
    if isinstance(error, UnicodeDecodeError):
        byte = error.object[error.start]
        return f"It is not {error.encoding.upper()} text: byte 0x{byte:02x} at position {error.start}."
    return error.strerror or str(error)


def read_text(path: str | Path, what: str, encoding: str = "") -> str:
    """The text of a file; without an encoding as `decode_text` decodes it.

    Raises CommandError: it cannot be read; the error names it as `what` (exit 2).
    """
    from schemas.textfiles import decode_text  # here: help and hints read no file

    try:
        content = Path(path).expanduser().read_bytes()
        return content.decode(encoding) if encoding else decode_text(content)
    except (OSError, UnicodeDecodeError) as error:
        raise usage(f"{what} cannot be read", cause=unreadable_text(error)) from error


_NEAR: Final = 0.6
_NEAR_OPTION: Final = 0.7
_MEANT: Final = {
    **dict.fromkeys(("disable", "freeze", "halt", "hold", "stop", "suspend"), "pause"),
    **dict.fromkeys(("continue", "enable", "unfreeze", "unpause"), "resume"),
    **dict.fromkeys(("revert", "undo"), "rollout"),
    **dict.fromkeys(("list", "ls", "show", "top"), "get"),
    **dict.fromkeys(("create", "edit", "patch"), "apply"),
    **dict.fromkeys(("check", "validate"), "lint"),
    **dict.fromkeys(("diagnose", "health"), "doctor"),
    **dict.fromkeys(("events", "log", "logs"), "decisions"),
    **dict.fromkeys(("remove", "rm"), "delete"),
    **dict.fromkeys(("spend", "usage", "waste"), "cost"),
    "who": "history",
    "why": "explain",
    "scale": "override",
}
"""Words that other tools have for a command. By its letters `freeze` is nearest to `release`, which gives HPAs away."""


_BUDGET: Final = (
    "a removal budget bounds what decisions remove, and pauses removals with then=hold (docs/brakes.md)",
    "settings CLUSTER removal-budget=30%/10m,then=hold",
)
_REPLACED: Final[Mapping[str, tuple[str, str]]] = {
    "audit list": ("it was another name of decisions", "decisions -A"),
    "audit tail": ("it was another name of decisions --follow", "decisions -A --follow"),
    "backtest --forecast": ("rules of a schedule, or another target, do what it did", "tune NAME"),
    "backtest --emit-schedule": ("rules of a schedule are tried with --schedule", "backtest NAME --schedule RULE"),
    "verify": ("replay derives decisions again; audit verify also checks files and signatures", "replay ID"),
    "audit verify --hpa": ("replay derives the decisions of one HPA again", "replay NAME"),
    **{name: ("it is below admin", f"admin {name} --help") for name in ("topics", "ingest", "archive", "clusters")},
    "rollback": ("it is a command of rollout, as kubectl's", "rollout undo NAME"),
    "rollout rollback": ("it has kubectl's name", "rollout undo NAME"),
    "regret": ("tune compares what ran with an ideal autoscaler (docs/tune.md)", "tune -A"),
    "guardrails": _BUDGET,
    "run breaker": _BUDGET,
    "resume --guardrails": _BUDGET,
    "capacity test": ("`limits test` tries a CapacityGroup, and settings that are limits", "limits test -f FILE"),
}
"""Verbs and options that are no longer there -> what takes their place, and the command to run next."""


def replaced(context: click.Context | None, word: str) -> CommandError | None:
    """Return the answer to a subcommand or an option that is no longer there; None: there never was one.

    Args:
        context: that of the command to which `word` belongs.
    """
    words = [word]
    while context is not None and context.parent is not None:
        words.insert(0, context.info_name or "")
        context = context.parent
    name = " ".join(words)
    if name not in _REPLACED:
        return None
    text, command = _REPLACED[name]
    return usage(f"`{name}` is no longer there: {text}", next_step=f"{program()} {command}")


def near_options(error: click.NoSuchOption) -> list[str]:
    """The options of the verb that an unknown one may be a slip of; click also takes `--time` for `--price`."""
    name = error.option_name.lstrip("-").lower()
    return [
        option
        for option in error.possibilities or ()
        if difflib.SequenceMatcher(None, name, option.lstrip("-")).ratio() >= _NEAR_OPTION
    ]


def without_file(error: click.ClickException, arguments: Sequence[str]) -> CommandError | None:
    """Return what to type where a verb lacks its -f, as in `apply hpa.yaml`; None: the error is another one.

    `arguments`: those of the whole command line.
    """
    if not isinstance(error, click.MissingParameter) or error.param is None or error.ctx is None:
        return None
    if "-f" not in error.param.opts:
        return None
    verb, named = error.ctx.command_path, [word for word in arguments if word.endswith(MANIFESTS)]
    if not named:
        return usage(f"{error.ctx.info_name} needs a file", next_step=f"{verb} -f FILE")
    at = arguments.index(named[0])
    words = [program(), *arguments[:at], "-f", *arguments[at:]]
    return usage(f"{named[0]} is read only after -f", next_step=shlex.join(words))


def misused(error: click.ClickException, root: click.Command, arguments: Sequence[str]) -> CommandError:
    """Return a refusal of click's in three parts. `arguments`: those of the whole command line."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    words = [program(), *(_called(root, arguments) if context is None else words_of(context))]
    what, _, meant = " ".join(error.format_message().split()).partition(" Did you mean ")
    cause = f"Did you mean {meant}" if meant else ""
    is_of_arguments = isinstance(error, click.MissingParameter) or type(error) is click.UsageError
    if context is not None and is_of_arguments:
        cause = " ".join(["Usage:", *words, *context.command.collect_usage_pieces(context)])
    return usage(what.rstrip("."), cause=cause, next_step=" ".join([*words, "--help"]))


def _called(root: click.Command, arguments: Sequence[str]) -> list[str]:
    """The words that name a command: what reads the options of one does not say which command that is."""
    words: list[str] = []
    command: click.Command | None = root
    for word in arguments:
        if not isinstance(command, click.Group):
            break
        if word in command.list_commands(context := click.Context(command)):
            words.append(word)
            command = command.get_command(context, word)
    return words


def without_log(context: click.Context, arguments: Sequence[str]) -> CommandError:
    """The error for `--from` with a verb that reads no log, or before the command of a group. `arguments`: those of
    the whole command line.
    """
    verb = context.command_path
    if context.parent is None:
        meant = " ".join(_called(context.command, arguments) or ("get", "hpa"))
        return usage(f"{verb} --from: a command comes first", next_step=f"{verb} {meant} --from …")
    commands = [each for each in getattr(context.command, "commands", {}).values() if _has_option(each, "--from")]
    if commands:
        return usage(f"{verb} --from: a command comes first", next_step=f"{verb} {commands[0].name} --from …")
    cause = "It acts on the running fleet or on files: an archive is only read, by the verbs that show what it holds."
    return usage(f"{verb} has no --from", cause=cause, next_step=f"leave out --from, or {verb} --help")


def _has_option(command: click.Command, name: str) -> bool:
    return any(name in option.opts for option in command.params)


class SuggestingGroup(click.Group):
    """A group whose error for an unknown command names the nearest one and the help that comes next."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, known = args[0], self.list_commands(ctx)
        if name in known or name.startswith("-"):
            ctx.meta[_VERBS] = [*ctx.meta.get(_VERBS, ()), name]
            return super().resolve_command(ctx, args)
        if (answer := replaced(ctx, name)) is not None:
            raise answer
        meant = _MEANT.get(name)
        if name == "help":
            raise usage(f"{name} is an option", next_step=f"{ctx.command_path} --help")
        root = ctx.find_root()
        verbs = root.command.list_commands(root) if isinstance(root.command, click.Group) else ()
        if ctx.parent and meant not in known and name in verbs:
            what = f"unknown command {name!r} of `{ctx.command_path}`"
            raise usage(what, cause=f"`{name}` is a verb.", next_step=f"{root.command_path} {name} --help")
        near = [meant] if meant in known else difflib.get_close_matches(name, known, n=1, cutoff=_NEAR)
        cause = f"Did you mean `{near[0]}`?" if near else f"Known are {', '.join(known)}." if ctx.parent else ""
        help_of = f"{ctx.command_path} {near[0]}" if near else ctx.command_path
        what = f"unknown command {name!r} of `{ctx.command_path}`" if ctx.parent else f"unknown verb {name!r}"
        all_verbs = "" if near or ctx.parent else " --all"
        raise CommandError(what, cause=cause, next_step=f"{help_of} --help{all_verbs}", code=USAGE)


def imported(place: str) -> Any:
    """Return what a table names: module and attribute below `fleethpa`."""
    module, _, attribute = place.partition(":")
    return getattr(importlib.import_module(f"{NAME}.{module}"), attribute)


class ImportedGroup(SuggestingGroup):
    """A group that imports a command when it is called. `places`: module and attribute of each, below `fleethpa`."""

    places: ClassVar[Mapping[str, str]] = {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.places)

    def place(self, name: str) -> str | None:
        """Return where a command is; None: the group has no such command."""
        return self.places.get(name)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if (place := self.place(cmd_name)) is None:
            return None
        try:
            command: click.Command = imported(place)
        except ModuleNotFoundError as error:
            if error.name != f"{NAME}.{LAB}":
                raise
            cause = "It has no simulated clusters and no embedded broker: they are for development."
            raise usage(
                f"{cmd_name} is not in this image", cause=cause, next_step="make demo, in a checkout"
            ) from error
        return command


def words_of(context: click.Context) -> list[str]:
    """The words of a command, without what the program itself was called."""
    if context.parent is None:
        return []
    return [*words_of(context.parent), str(context.info_name)]


EXTRAS: Final[Mapping[str, str]] = {"jinja2": "page", "re2": "prometheus", "confluent_kafka": "lab", "mcp": "mcp"}
"""What an installation may lack, and the extra of the wheel that brings it."""


def without_extra(package: str) -> CommandError:
    """Return what to install where a package of `EXTRAS` is missing."""
    extra = EXTRAS[package]
    return usage(
        f"this needs {package}, which is not installed",
        cause=f"It comes with the extra `{extra}` of the package.",
        next_step=f"pip install 'fleet-hpa[{extra}]'",
    )


NAME: Final = "fleethpa"
LAB: Final = "lab"
"""The package that the production image does not contain."""
OPTIONS: Final = {
    "source": "--from",
    "brokers": "--brokers",
    "kafka_config": "--kafka-config",
    "config": "--config",
    "kubeconfig": "--kubeconfig",
    "hub_context": "--hub",
    "hub_namespace": "--hub-namespace",
}
"""Options that say where fleethpa is, in the order in which hints give them: parameter and flag."""

KUBECTL: Final = "kubectl"
"""Beside the options: the kubeconfig that kubectl needs to know the clusters; empty: it finds them by itself."""

# One space separates the words of a command; a comma after a word, a bracket, a pipe or a second space ends it. Behind
# `python -m` or a path the program is named already.
_COMMAND: Final = re.compile(rf"(?<![\w./-])(?<!-m ){NAME}(?P<words>(?: (?:[^\s,;|()`]|,(?=\S))+)+)")
_KUBECTL: Final = re.compile(r"\bkubectl (?=--context )")
_HINT: Final = re.compile(r"(\b(?:Next|Back|Recompute): )(.*)")
_OWN_CONNECTION: Final = ("dev", "demo")
"""Verbs that bring their own brokers and clusters: a hint at them is a hint at something else than what was given."""


@cache
def program() -> str:
    """How to call this program again from here: its name where the shell finds it, else its path."""
    called = Path(sys.argv[0])
    if (called.parent.name, called.name) == (NAME, "__main__.py"):
        return f"{_from_here(Path(sys.executable))} -m {NAME}"
    if called.name != NAME:
        return NAME  # it runs within another program
    path = shutil.which(NAME)
    return NAME if path and os.path.realpath(path) == os.path.realpath(called) else _from_here(called)


def own_command() -> list[str]:
    """The command that starts a process of this program; one of its script's name, if that was called, so that
    the hints of the process name what a person can type.
    """
    called = Path(os.path.abspath(sys.argv[0]))
    if called.name == NAME and os.access(called, os.X_OK) and called.is_file():
        return [str(called)]
    return [sys.executable, "-m", NAME]


WARNING: Final = "warning: "
"""How each warning on stderr begins."""
FOR_OTHERS: Final = "FLEETHPA_FOR_OTHERS"
"""Set where a verb runs for somebody who is elsewhere: hints then name no place of this machine."""


def completed(text: str, options: Mapping[str, Any]) -> str:
    """A hint whose commands have the program's name and, where their verb takes them, the options that were given."""
    if os.environ.get(FOR_OTHERS):
        return text

    def complete(match: re.Match[str]) -> str:
        words = match["words"].split()
        end = "." if words[-1].endswith(".") and words[-1] != "." else ""
        words[-1] = words[-1].removesuffix(".")
        words = _with_kubeconfig(words, options)
        if len(words) > 1 and _is_verb(words[0]) and not any(options.get(name) for name in OPTIONS):
            missing: list[str] = []  # nothing to add, so that the verb's module need not be imported
        elif (command := _verb(words)) is None:
            return match[0]
        else:
            takes_none = words[0] in _OWN_CONNECTION or "--help" in words
            missing = [] if takes_none else _missing_options(command, words, options)
        return f"{program()} {' '.join([*words, *missing])}{end}"

    kubeconfig = options.get(KUBECTL)
    kubectl = f"kubectl --kubeconfig {shlex.quote(kubeconfig)} " if kubeconfig else "kubectl "
    return _KUBECTL.sub(lambda _: kubectl, _COMMAND.sub(complete, text))


def _with_kubeconfig(words: list[str], options: Mapping[str, Any]) -> list[str]:
    """A command that has `--kubeconfig FILE`, with the file that was given, and without the option where one is
    configured already.
    """
    at = words.index("--kubeconfig") if "--kubeconfig" in words else len(words)
    if words[at : at + 2] != ["--kubeconfig", "FILE"]:
        return words
    given = options.get("kubeconfig")
    is_known = options.get(KUBECTL) or os.environ.get("KUBECONFIG")
    named = ["--kubeconfig", shlex.quote(str(given))] if given else [] if is_known else words[at : at + 2]
    return [*words[:at], *named, *words[at + 2 :]]


def add_help(problem: CommandError, context: click.Context) -> None:
    """Make the help of the verb the next step of a wrong use that names none."""
    if problem.code == USAGE and not problem.next_step:
        path = context.command_path.removeprefix(context.find_root().command_path).split()
        problem.next_step = " ".join([NAME, *(path or context.meta.get(_VERBS, ())), "--help"])


def hinted(text: str, options: Mapping[str, Any]) -> str:
    """A page whose hints (what follows `Next: `, `Back: ` or `Recompute: ` on a line) are completed."""
    return _HINT.sub(lambda match: match[1] + completed(match[2], options), text)


def _is_verb(word: str) -> bool:
    context = click.get_current_context(silent=True)
    root = context.find_root() if context is not None else None
    return root is not None and isinstance(root.command, click.Group) and word in root.command.list_commands(root)


def _verb(words: list[str]) -> click.Command | None:
    """The command that words name; None: they are prose, or no command runs."""
    context = click.get_current_context(silent=True)
    root = command = context.find_root().command if context is not None else None
    for word in words:
        if context is None or not isinstance(command, click.Group):
            break
        subcommand = command.get_command(context, word)
        if subcommand is None and command is not root and command.invoke_without_command:
            return command  # a verb that has further ones, such as `rollout -f`
        command = subcommand
    return None if isinstance(command, click.Group) else command


def _missing_options(command: click.Command, words: list[str], options: Mapping[str, Any]) -> list[str]:
    taken = {param.name for param in command.params}
    given = {flag: options[name] for name, flag in OPTIONS.items() if options.get(name) and name in taken}
    return [
        part
        for flag, value in given.items()
        if flag not in words and (flag, value) != ("--from", "kafka")
        for part in (flag, shlex.quote(str(value)))
    ]


def _from_here(path: Path) -> str:
    """A path relative to the working folder, if that is shorter."""
    absolute = Path(os.path.abspath(path))
    try:
        return shlex.quote(str(absolute.relative_to(Path.cwd())))
    except (ValueError, OSError):
        return shlex.quote(str(absolute))
