"""The `fleethpa` command and its table of verbs, imported when they are called; `completion`, `config`, `version`."""

from __future__ import annotations

import errno
import gc
import os
import platform
import sys
import traceback
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import takewhile
from typing import Any, Final, NamedTuple, NoReturn

import click

from fleethpa.frame.errors import (
    EXTRAS,
    INTERNAL,
    INTERRUPTED,
    OK,
    USAGE,
    CommandError,
    ImportedGroup,
    SuggestingGroup,
    add_help,
    completed,
    internal,
    misused,
    near_options,
    program,
    replaced,
    usage,
    without_extra,
    without_file,
    without_log,
)
from fleethpa.frame.options import output_option
from fleethpa.frame.session import WRITES_TO_HUB, Session, command_options, group_options, say
from fleethpa.show.formats import Listing, one
from fleethpa.show.text import Column
from schemas.decisions import ENGINE

_FULL: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}


class Verb(NamedTuple):
    """A verb: its module and attribute below `fleethpa`, and one line of help, so that the list needs no import."""

    place: str
    help: str


SECTIONS: Final[dict[str, dict[str, Verb]]] = {
    "See": {
        "get": Verb("cli.get:get", "List HPAs, clusters or CapacityGroups."),
        "describe": Verb(
            "cli.describe:describe", "Show an HPA as kubectl does, then its mode, inputs and last decisions."
        ),
        "explain": Verb("cli.explain:explain", "Show a decision step by step, with every number that led to it."),
        "decisions": Verb("cli.decisions:decisions", "List or follow decisions."),
        "audit": Verb(
            "cli.audit:audit", "Check that no decision was altered, and create the key that signs checkpoints."
        ),
        "replay": Verb("cli.replay:replay", "Derive recorded decisions again from the log, and compare them."),
        "history": Verb("cli.history:history", "Show who changed an HPA's spec or mode, when, why and what."),
        "status": Verb(
            "cli.status:status", "Report whether HPAs run the desired number of replicas; --watch waits for it."
        ),
        "page": Verb("page.pagecommand:page", "See the fleet in a browser, live or from an archive."),
        "mcp": Verb("mcp.mcpcommand:mcp", "Serve the read verbs as tools of the Model Context Protocol."),
        "doctor": Verb("cli.doctor:doctor", "Check every part; report what is wrong and what to do."),
    },
    "Ask the log": {
        "what-if": Verb(
            "cli.what_if:what_if", "Evaluate a decision once more, with another spec or other metric values."
        ),
        "backtest": Verb("cli.backtest:backtest", "Try another spec on the recorded past, and compare."),
        "cost": Verb("cli.cost:cost", "Show what HPAs cost and waste, from their decisions, at the size of a fleet."),
        "savings": Verb("tuning.savings:savings", "Show what changes of specs saved on the load that really came."),
        "tune": Verb("tuning.tune:tune", "Show what HPAs cost against an ideal autoscaler, and propose better specs."),
        "upgrade-preview": Verb(
            "cli.upgrade_preview:upgrade_preview",
            "Show which decisions another version of Kubernetes would have made otherwise, and why.",
        ),
        "limits": Verb("cli.limits:limits", "Try budgets and other limits on the recorded past."),
        "capacity": Verb("cli.capacity:capacity", "A ceiling that many HPAs share: describe, delete it."),
        "metrics": Verb("cli.metrics:metrics", "Try a metric of a Prometheus: see what an HPA would see."),
        "shadow-report": Verb(
            "cli.shadow_report:shadow_report",
            "Compare fleethpa in shadow mode with the cluster's own controller; name HPAs that are ready to enforce.",
        ),
        "export": Verb(
            "cli.export:export",
            "Write decisions as JSON lines or CSV, what was recorded of an HPA as one file, "
            "or objects of the hub's API.",
        ),
    },
    "Change": {
        "lint": Verb("cli.lint:lint", "Check manifests without a cluster."),
        "diff": Verb("cli.diff:diff", "Show what apply would change."),
        "apply": Verb("cli.apply:apply", "Create or change central HPAs from manifests."),
        "autoscale": Verb("cli.autoscale:autoscale", "Create a central HPA for a workload, as kubectl autoscale does."),
        "import": Verb(
            "cli.import_:import_", "Make HPAs of KEDA's ScaledObjects; name every field that is not carried over."
        ),
        "rollout": Verb(
            "rollouts.rollout:rollout",
            "Change central HPAs in waves of clusters; revert all of them when a wave fails.",
        ),
        "schedule": Verb(
            "cli.schedule:schedule",
            "Change settings of central HPAs at given times; `fleethpa run scheduler` applies the changes.",
        ),
        "delete": Verb("cli.delete:delete", "Delete central HPAs."),
        "adopt": Verb("cli.adopt:adopt", "Move a cluster's own HPAs into fleethpa."),
        "release": Verb("cli.release:release", "Give HPAs back to their cluster's own controller."),
        "pause": Verb("cli.pause:pause", "Stop writing replicas: an HPA, a namespace, a cluster or --all."),
        "resume": Verb("cli.resume:resume", "End a pause."),
        "override": Verb(
            "cli.override:override",
            "Scale HPAs to a number of replicas for a while, in place of what their metrics ask for.",
        ),
        "mode": Verb("cli.mode:mode", "Set off, shadow or enforce."),
        "settings": Verb("cli.settings:settings", "Show or change the settings of a cluster."),
    },
    "Run": {
        "dev": Verb(
            "lab.demo.democommand:dev",
            "Run everything on this machine: embedded broker, simulated clusters, all processes.",
        ),
        "demo": Verb(
            "lab.demo.democommand:demo",
            "Watch fleethpa do its main job, in under two minutes; `demo day` writes the archive of a recorded day.",
        ),
        "run": Verb(
            "cli.run:run",
            "Run one process: ingest, decider, reconciler, observer, agent, router, scheduler, hub, or all.",
        ),
        "admin": Verb(
            "cli.admin:admin",
            "Topics, sources of ingest, the archive, and clusters with an agent: what the operators of the hub need.",
        ),
        "hub": Verb(
            "hub.hubcommand:hub",
            "Print what the hub's cluster needs for the kinds of its Kubernetes API; "
            "give back what a lost object stated.",
        ),
    },
    "More": {
        "config": Verb("cli.main:config", "Show the configuration in force and where each value came from."),
        "completion": Verb("cli.main:completion", "Print the completion script of a shell."),
        "version": Verb("cli.main:version", "Print versions."),
    },
}
"""Under each title of the help, its verbs by name."""


HUB_WRITER: Final = "hub.writing:written"
"""The function that carries out a write verb that is given `--hub`: module and attribute below `fleethpa`."""
FIRST: Final = ("dev", "get", "explain", "decisions", "page", "status", "doctor", "backtest", "apply", "pause")
"""What `--help` shows; `--help --all` shows every verb."""
_ALL: Final = "fleethpa.all"
"""In the context's `meta`: all verbs are asked for."""


def verbs() -> dict[str, Verb]:
    """Return every verb, in the order of the help."""
    return {name: verb for section in SECTIONS.values() for name, verb in section.items()}


EXAMPLES: Final = """
\b
Examples:
  fleethpa dev                                    a whole fleet on this machine, no Docker, no Java
  fleethpa get hpa -A                             every HPA of every cluster
  fleethpa explain east/shop/checkout             why it has the replicas it has
  fleethpa apply -f hpa.yaml -C east              an unmodified autoscaling/v2 manifest
"""


class LazyGroup(ImportedGroup):
    """All verbs, in the sections of the help."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(verbs())

    def place(self, name: str) -> str | None:
        verb = verbs().get(name)
        return None if verb is None else verb.place

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        # click ends at --help, before it has read what follows: `--all` is looked for in what stands before a verb.
        known = verbs()
        own = list(takewhile(lambda word: word not in known, args))
        ctx.meta[_ALL] = "--all" in own
        if ctx.meta[_ALL]:
            args = ["--help", *args[len(own) :]]
        return super().parse_args(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        known = verbs()
        if not ctx.meta.get(_ALL):
            with formatter.section("Ten verbs to begin with"):
                formatter.write_dl([(name, known[name].help) for name in FIRST])
            formatter.write_paragraph()
            formatter.write_text(f"`fleethpa --help --all` shows all {len(known)} verbs.")
            return
        for title, section in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, verb.help) for name, verb in section.items()])


@click.group(
    cls=LazyGroup, epilog=EXAMPLES, context_settings={"help_option_names": ["-h", "--help"], "show_default": True}
)
@group_options
@click.pass_context
def cli(context: click.Context, /, **options: Any) -> None:
    """A central, event-sourced Horizontal Pod Autoscaler for fleets of Kubernetes clusters.

    Objects are named [CLUSTER/][NAMESPACE/]NAME.
    """
    context.obj = {name: value for name, value in options.items() if value is not None}
    context.meta[WRITES_TO_HUB] = HUB_WRITER


def run(arguments: list[str]) -> int:
    """Run the command line and return its exit code; every failure is printed on stderr in three parts."""
    debug = "--debug" in arguments
    try:
        return _invoke(arguments)
    except CommandError as problem:
        return _fail(problem.text(), problem.code, debug)
    except click.ClickException as error:
        return _fail(_refusal(error, arguments), error.exit_code, debug=False)
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except click.exceptions.Abort:
        return _fail("Aborted.", INTERRUPTED, debug)
    except KeyboardInterrupt:
        return _stdout_is_gone(INTERRUPTED)
    except BrokenPipeError:
        return _stdout_is_gone(OK)
    except OSError as error:
        if error.errno not in _FULL:
            return _internal(error, debug)
        return _fail(f"Error: the output cannot be written: {error.strerror}", _stdout_is_gone(USAGE), debug)
    # The last resort: a bug is reported without a traceback, unless the user asks for it.
    except Exception as error:
        return _internal(error, debug)


def _refusal(error: click.ClickException, arguments: list[str]) -> str:
    """Why click does not take a command line, with what was probably meant."""
    if isinstance(error, click.NoSuchOption):
        if error.ctx is not None and error.ctx.parent is None and (verb := error.option_name.lstrip("-")) in verbs():
            return usage(f"{verb} is a verb", next_step=f"{program()} {verb}").text()
        if error.option_name == "--from" and error.ctx is not None:
            return without_log(error.ctx, arguments).text()
        if (answer := replaced(error.ctx, error.option_name)) is not None:
            return answer.text()
        error.possibilities = near_options(error)
    if meant := without_file(error, arguments):
        return meant.text()
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        return error.format_message()
    return misused(error, cli, arguments).text()


def _internal(error: Exception, debug: bool) -> int:
    if isinstance(error, ModuleNotFoundError) and error.name in EXTRAS:
        return _fail(without_extra(str(error.name)).text(), USAGE, debug)
    return _fail(internal(f"{type(error).__name__}: {error}").text(), INTERNAL, debug)


def _invoke(arguments: list[str]) -> int:
    if "_FLEETHPA_COMPLETE" in os.environ:
        cli.main(args=arguments, prog_name="fleethpa")
    # Not cli.main(): click would turn a reader that has gone (`| head`) into exit 1, which means "the answer is no".
    with cli.make_context(program(), list(arguments)) as context:
        try:
            value = cli.invoke(context)
        except CommandError as problem:
            # An error from before there was a session: its next step is as it was written.
            add_help(problem, context)
            problem.next_step = completed(problem.next_step, {})
            raise
    sys.stdout.flush()
    return value if isinstance(value, int) else OK


def _fail(text: str, code: int, debug: bool) -> int:
    if debug:
        say(traceback.format_exc())
    say(text)
    return code


def _stdout_is_gone(code: int) -> int:
    """Nothing more can be written (`| head`, a full disk or pipe), not even by the interpreter's own flush at exit."""
    with suppress(OSError):  # a stdout without a file has nobody to wait for
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


def main() -> None:
    """Entry point of the console script."""
    # A command that answers once ends before anything is worth collecting; `Session.run` switches it on for others.
    gc.disable()
    # A job that was started with closed streams has none; its exit code still counts.
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    code = run(sys.argv[1:])
    if not gc.isenabled():
        _end_at_once(code)
    sys.exit(code)


def kubectl_plugin() -> None:
    """Entry point of the executable that kubectl finds: after the verb, `--context NAME` is `-C NAME`."""
    words = [word.partition("=")[0] for word in sys.argv[1:]]
    if "--context" in words and not {"-C", "--clusters", "--cluster"}.isdisjoint(words):
        both = usage("--context and -C exclude each other", cause="Both name the clusters that are meant.")
        sys.exit(_fail(both.text(), USAGE, debug=False))
    names = {"context": "clusters", "cluster": "clusters"}
    cli.context_settings["token_normalize_func"] = lambda word: names.get(word, word)
    main()


def _end_at_once(code: int) -> NoReturn:
    """End without taking the state of a fleet apart object by object, which would take a tenth of the time."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # `run` has reported what cannot be written
            stream.flush()
    os._exit(code)


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@command_options()
def completion(session: Session, shell: str) -> None:
    """Print the completion script of SHELL; add `source <(fleethpa completion bash)` to ~/.bashrc."""
    from click.shell_completion import get_completion_class  # here: no other verb needs it

    kind = get_completion_class(shell)
    if kind is None:
        raise click.BadParameter(f"there is no completion for {shell}")
    session.out(kind(cli, {}, "fleethpa", "_FLEETHPA_COMPLETE").source())


_SHOWN: Final = ("kafkaConfig", "kubeconfig", "contexts", "author", "hub", "hubNamespace")


@dataclass(frozen=True)
class Setting:
    """One setting. `value` is text, secrets masked; `origin`: the flag, variable or file that named it."""

    name: str
    value: str
    origin: str


@click.group(cls=SuggestingGroup)
def config() -> None:
    """Show the configuration in force and where each value came from."""


@config.command("view")
@click.option("--show-origin", is_flag=True, help="Also where each value came from.")
@output_option(formats=("table", "json", "yaml", "jsonl"))
@command_options()
def view(session: Session, show_origin: bool, output: str) -> None:
    """Print the settings in force: flags come first, then environment, configuration file and `fleethpa dev`.

    FLEETHPA_KAFKA_… and --brokers override the same settings in the file of --kafka-config.
    """
    columns: tuple[Column[Setting], ...] = (
        Column("SETTING", lambda each: each.name),
        Column("VALUE", lambda each: each.value or "<none>"),
        Column("ORIGIN", lambda each: each.origin, wide=True),
    )
    listing = Listing(
        kind="Setting", items=_settings(session), columns=columns, document=asdict, name=lambda each: each.name
    )
    session.listing(listing, "wide" if output == "table" and show_origin else output)


def _settings(session: Session) -> list[Setting]:
    configuration = session.config
    values = {
        "kafkaConfig": configuration.kafka_config,
        "kubeconfig": configuration.kubeconfig,
        "author": configuration.author,
    }
    values |= {
        "contexts": ",".join(configuration.contexts),
        "hub": configuration.hub,
        "hubNamespace": configuration.hub_namespace,
    }
    shown = [Setting(name, values[name], configuration.origins.get(name, "default")) for name in _SHOWN]
    if not (configuration.brokers or configuration.kafka_config):
        return [Setting("kafka.bootstrapServers", "", "default"), *shown]
    origins = configuration.kafka_origins()
    kafka = configuration.kafka().shown()
    return [*(Setting(f"kafka.{_camel(name)}", value, origins[name]) for name, value in kafka.items()), *shown]


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


UPSTREAM = "v1.37.1"
"""Release of Kubernetes whose HPA controller the engine equals."""


@click.command()
@output_option(formats=("table", "json", "yaml"))
@command_options()
def version(session: Session, output: str) -> None:
    """Print the versions of fleethpa, its engine, the upstream controller that it equals, and Python."""
    from importlib.metadata import version as installed  # here: no other verb needs it, and it takes long

    facts = {
        "fleethpa": installed("fleet-hpa"),
        "engine": str(ENGINE),
        "upstream": UPSTREAM,
        "python": platform.python_version(),
    }
    if output == "table":
        session.lines(f"{name:10} {value}" for name, value in facts.items())
    else:
        session.out(one("Version", facts, output))
