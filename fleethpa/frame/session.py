"""What every command shares: the common options, the configuration, stdout and stderr, and the time limit."""

from __future__ import annotations

import functools
import gc
import os
import re
import shutil
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import click

from fleethpa.frame.configuration import Config, load
from fleethpa.frame.errors import (
    KUBECTL,
    NAME,
    OK,
    WARNING,
    CommandError,
    add_help,
    completed,
    hinted,
    imported,
    internal,
    usage,
    words_of,
)
from fleethpa.frame.options import moment, parse_duration_ms, together
from fleethpa.show.formats import Listing, one, render
from fleethpa.show.report import QuestionReport, report_lines
from fleethpa.show.text import Widths, folded, for_terminal
from fleethpa.show.words import listed
from runtime.log import THRESHOLDS, clean, wall_clock_ms
from schemas.codec import whole_number

if TYPE_CHECKING:
    from fleethpa.frame.remote import RemoteAnswer
    from fleethpa.frame.writer import Writer
    from schemas.keys import HpaId
    from streams.history.parallel import Faults
    from streams.history.past import Past

P = ParamSpec("P")
R = TypeVar("R")
COMMON_NAMES = ("brokers", "kafka_config", "config", "kubeconfig", "color", "time", "quiet", "debug", "timeout")
CONFIGURED = ("brokers", "kafka_config", "config", "kubeconfig", "author", "hub_context", "hub_namespace")
"""Options that take part in the merged configuration; the last three are the write verbs' own."""
WIDEST_PLOT = 120
"""Characters of a plot on a terminal, at most."""
MOST_NAMED = 20
"""HPAs that failed by one fault, which its error names at most."""
SILENT_S = 5.0
"""How long brokers may be silent before a message about it is printed."""
ANSWER_S = 10.0
"""How long brokers may be silent before a command without --timeout ends."""
TRAVEL = "world_at"
"""The parameter of `--at`."""
SHARED = (*COMMON_NAMES, "source", "author", "hub_context", "hub_namespace", TRAVEL)
"""Parameters that a command's session takes."""
WRITES_TO_HUB = f"{NAME}.hub"
"""In the context's `meta`: what carries a write verb out in the hub's API, as `imported` takes it."""


@dataclass
class Session:
    """One run of the command: its common options and everything made from them when first needed."""

    options: dict[str, Any] = field(default_factory=dict)
    _writing: bool = field(default=False, init=False)
    _interrupted: bool = field(default=False, init=False)
    _remarked: set[str] = field(default_factory=set, init=False)

    @functools.cached_property
    def config(self) -> Config:
        """The merged configuration."""
        return load({name: self.options.get(name) for name in CONFIGURED})

    @property
    def quiet(self) -> bool:
        """Whether no remarks are to be printed on stderr."""
        return bool(self.options.get("quiet"))

    @property
    def time_style(self) -> str:
        return str(self.options.get("time") or "utc")

    @property
    def timeout_s(self) -> float | None:
        """Seconds that the command may take, None without a limit."""
        text = self.options.get("timeout")
        if not text:
            return None

        found_ms = parse_duration_ms(text, "--timeout")
        if not found_ms:
            raise usage(f"--timeout {text} leaves no time", cause="Leave --timeout out to wait without a limit.")
        return found_ms / 1000

    @property
    def color(self) -> bool:
        """Whether stdout gets colours: `--color`, then `NO_COLOR` (all styles off), then whether it is a terminal."""
        return use_color(str(self.options.get("color") or "auto"), sys.stdout)

    @property
    def width(self) -> int | None:
        """Characters that a line of stdout may have: `COLUMNS`, then the terminal's; None where nothing limits it."""
        if given := whole_number(os.environ.get("COLUMNS", "")):
            return given
        return (os.get_terminal_size(sys.stdout.fileno()).columns or None) if sys.stdout.isatty() else None

    @property
    def folds_at(self) -> int | None:
        """Characters after which a line of stdout is wrapped; None in a pipe, which gets whole lines."""
        return self.width if sys.stdout.isatty() else None

    def now_ms(self) -> int:
        """Return the time to which ages and `--since 2h` refer: the wall clock, for an archive its newest record."""
        if self.at_ms is not None:
            return self.at_ms
        if self.source != "kafka":
            return self._archive_clock_ms
        return wall_clock_ms()

    @functools.cached_property
    def at_ms(self) -> int | None:
        """The moment that `--at` names; None: the present."""
        text = self.options.get(TRAVEL)
        if not text:
            return None
        now_ms = wall_clock_ms() if self.source == "kafka" else self._archive_clock_ms
        return moment(text, now_ms, "--at")

    @functools.cached_property
    def _archive_clock_ms(self) -> int:
        from fleethpa.frame.sources import archive_past

        with self.readable():
            return archive_past(self.source).newest_ms() or wall_clock_ms()

    @contextmanager
    def readable(self) -> Iterator[None]:
        """Turn errors of what is read from the source, also of a record that is decoded late, into errors for the user.

        Raises CommandError: the source, or a record of it, cannot be read (exit 2).
        """
        try:
            yield
        except CommandError:
            raise
        # Not broad: what is no error of reading a source is raised as it is.
        except Exception as error:
            from fleethpa.frame.sources import unreadable

            problem = unreadable(error, self.source, self._servers)
            if problem is None:
                raise
            raise problem from error

    @property
    def source(self) -> str:
        """What `--from` names: `kafka`, a folder, or the file of a bundle.

        Raises CommandError: an empty text, as a variable that is not set gives it (exit 2).
        """
        given = self.options.get("source")
        if given is not None and not given.strip():
            cause = "--from takes `kafka`, the folder of an archive, the file of a bundle, or the URL of a hub."
            raise usage("--from is empty", cause=cause)
        return "kafka" if given is None else str(given)

    def out(self, text: str) -> None:
        """Write data to stdout."""
        if not text:
            return
        self._writing = True
        try:
            if self._interrupted:
                raise KeyboardInterrupt
            say(text, color=self.color, err=False)
        finally:
            self._writing = False

    def lines(self, lines: Iterable[str], *, err: bool = False) -> None:
        """Write lines, each of them one line whichever text is in it, their hints completed."""
        kept = (hinted(for_terminal(line, color=self.color, keep=clean), self.places) for line in lines)
        text = "\n".join(part for line in kept for part in folded(line, None if err else self.folds_at))
        if err:
            say(text)
        else:
            self.out(text)

    def listing(self, listed: Listing[Any], output: str, *, headers: bool = True, widths: Widths | None = None) -> None:
        """Write a listing to stdout in an output format; `widths`: those of the lines that were printed before."""
        self.out(render(listed, output, headers=headers, color=self.color, widths=widths, width=self.folds_at))

    def publish(
        self,
        report: QuestionReport,
        output: str = "table",
        *,
        html: str | None = None,
        plot: bool = False,
        instead: str | None = None,
    ) -> None:
        """Write a report to stdout in an output format and, with `html`, its page to a file.

        `instead`: what stdout gets in place of the lines of a terminal, which then go to stderr.

        Raises CommandError: the page cannot be written (exit 2).
        """
        if output not in ("table", "wide"):
            self.out(one(report.kind, report.document, output))
        else:
            width = min(WIDEST_PLOT, shutil.get_terminal_size((80, 24)).columns) if plot else 0
            self.lines(report_lines(report, color=self.color, plot_width=width), err=instead is not None)
            self.out(instead or "")
        if html:
            from fleethpa.show.html import page_of

            try:
                Path(html).write_text(page_of(report), encoding="utf-8")
            except OSError as error:
                raise usage(f"--html {html} cannot be written", cause=error.strerror or str(error)) from error
            self.note(f"report: {html}")

    @property
    def places(self) -> dict[str, Any]:
        """What completes a hint: the options that were given, and where kubectl finds the clusters."""
        known: Config | None = self.__dict__.get("config")  # it is not loaded for a hint: that may be what failed
        kubeconfig = known.kubeconfig if known is not None else ""
        return self.options | {KUBECTL: "" if kubeconfig == os.environ.get("KUBECONFIG") else kubeconfig}

    def answered(self, answer: RemoteAnswer) -> int:
        """Print what the hub has printed, and return its exit code."""
        if answer.err:
            say(clean(answer.err.rstrip("\n")))
        self.out(answer.out.rstrip("\n"))
        return answer.code

    def note(self, text: str) -> None:
        """Write a remark to stderr, unless --quiet."""
        if not self.quiet:
            say(clean(completed(text, self.places)))

    def warn(self, text: str) -> None:
        """Write a warning to stderr."""
        say(clean(f"{WARNING}{completed(text, self.places)}"))

    def _remark(self, text: str) -> None:
        """Warn, where the same was not remarked before: how long it has lasted, and where else, makes no difference."""
        what = re.split(":| since | of ", text, maxsplit=1)[0]
        if what not in self._remarked:
            self._remarked.add(what)
            self.warn(text)

    def report(self, *problems: CommandError) -> int:
        """Write errors to stderr, where the command continues; return the highest of their exit codes."""
        for problem in problems:
            say(self.completed(problem).text())
        return max([each.code for each in problems], default=OK)

    def failed(self, faults: Faults) -> int:
        """Name the HPAs that an analysis has no result for, on stderr, with --debug one traceback for each text of an
        error; returns the exit code of its command.
        """
        named: dict[str, list[HpaId]] = {}
        for hpa, fault in sorted(faults.items()):
            if fault.error not in named and self.options.get("debug"):
                say(fault.trace)
            named.setdefault(fault.error, []).append(hpa)
        return self.report(*(internal(error, listed(map(str, hpas), MOST_NAMED)) for error, hpas in named.items()))

    def completed(self, problem: CommandError) -> CommandError:
        """The error with a next step that this user can run as it is."""
        add_help(problem, click.get_current_context())
        for each in (problem, *problem.others):
            each.next_step = completed(each.next_step, self.places)
        return problem

    def run(self, coroutine: Coroutine[Any, Any, R], *, brief: bool = False, follows: bool = False) -> R:
        """Run the command's work within --timeout.

        `brief`: the command answers once and ends, so what it leaves behind is not worth collecting. `follows`: it
        prints until Ctrl-C, which must end it also while it waits for a reader of its output.

        Raises CommandError: the time is over (exit 124).
        """
        import asyncio

        if not brief:
            gc.set_threshold(*THRESHOLDS)
            gc.enable()

        try:
            limit = self.timeout_s
        except CommandError:
            coroutine.close()
            raise

        async def limited() -> R:
            with self._writes_ended_at_interrupt() if follows else nullcontext():
                async with asyncio.timeout(limit):
                    return await coroutine

        try:
            with self.readable():
                return asyncio.run(limited())
        except TimeoutError as error:
            from fleethpa.frame.sources import no_answer

            raise no_answer(str(self.options.get("timeout"))) from error

    @contextmanager
    def _writes_ended_at_interrupt(self) -> Iterator[None]:
        """Let Ctrl-C also end a write to a full pipe.

        asyncio's own handler cancels the task that runs, which has no effect on a write in which it is blocked, nor on
        the next one. Elsewhere that handler decides: an exception must not be raised in any task of the driver.
        """
        import signal
        import threading

        cancel = signal.getsignal(signal.SIGINT)
        if threading.current_thread() is not threading.main_thread() or not callable(cancel):
            yield
            return
        cancels = cancel

        def interrupt(number: int, frame: FrameType | None) -> None:
            self._interrupted = True
            if self._writing:
                raise KeyboardInterrupt
            cancels(number, frame)

        signal.signal(signal.SIGINT, interrupt)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, cancel)

    @property
    def _servers(self) -> str:
        return self.config.servers if self.source == "kafka" else ""

    @asynccontextmanager
    async def past(self, *, watching: bool = False, remarks: bool = True) -> AsyncIterator[Past]:
        """Open what `--from` names: the running fleet's topics or an archive folder, as of `--at`.

        Long reading is shown on stderr, unless the command is `watching`: that never ends. With `remarks`, what a
        person has to know of a state that is read from it is a warning, once.
        """
        from fleethpa.frame.sources import open_past, reading

        async with self._connected(open_past(self.source, self.config, self.at_ms)) as past:
            if remarks:
                past.remark = self._remark
            if watching:
                yield past
                return
            async with reading(self, past):
                yield past

    def writer(self) -> AbstractAsyncContextManager[Writer]:
        """Open a writer to the public topics.

        Raises CommandError: the brokers cannot be reached, or the topics do not exist (exit 3).
        """
        from fleethpa.frame.writer import open_writer

        return self._connected(open_writer(self.config))

    @asynccontextmanager
    async def _connected(self, opening: AbstractAsyncContextManager[R]) -> AsyncIterator[R]:
        async with AsyncExitStack() as stack:
            async with self.waiting():
                opened = await stack.enter_async_context(opening)
            yield opened

    async def reach(self, past: Past) -> None:
        """Wait for the first answer of the brokers, where a past that each reading opens for itself is theirs.

        Raises CommandError: as of `waiting`, or they cannot be used (exit 3).
        """
        if self.source != "kafka":
            return
        from fleethpa.frame.sources import connecting

        async with self.waiting(), connecting(self._servers):
            await past.partitions()

    @asynccontextmanager
    async def waiting(self) -> AsyncIterator[None]:
        """Say on stderr what is waited for where it takes some seconds: the first answer of a broker.

        Raises CommandError: there was none within ANSWER_S; a --timeout takes the place of this limit (exit 3).
        """
        import asyncio

        try:
            with self.remarking(f"Kafka at {self._servers}"):
                async with asyncio.timeout(None if self.timeout_s is not None else ANSWER_S) as limit:
                    yield
        except TimeoutError as error:
            from fleethpa.frame.sources import silent

            if limit.expired():
                raise silent(self._servers, ANSWER_S) from error
            raise

    @contextmanager
    def remarking(self, who: str) -> Iterator[None]:
        """Say on stderr that somebody has not answered, if what runs here takes longer than SILENT_S."""
        import threading

        remark = f"{who} has not answered for {SILENT_S:.0f}s; still waiting"
        waiting = threading.Timer(SILENT_S, self.note, [remark])
        waiting.daemon = True
        waiting.start()
        try:
            yield
        finally:
            waiting.cancel()


def is_hub(source: str) -> bool:
    """Whether `--from` names the address of a hub."""
    return "://" in source


def say(text: str, *, err: bool = True, color: bool = False) -> None:
    """Write text to a terminal. Every command writes through this function, so that no text acts on a terminal.

    `color`: the styles of `paint` in it are kept.
    """
    click.echo(for_terminal(text, color=color), err=err, color=True)


def use_color(choice: str, stream: Any) -> bool:
    """Resolve --color; `NO_COLOR` wins over a terminal, `always` over both."""
    if choice == "always":
        return True
    if choice == "never" or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return bool(stream.isatty())


_COMMON = (
    click.option("--brokers", metavar="HOST:PORT,…", help="Kafka bootstrap servers."),
    click.option("--kafka-config", metavar="FILE", help="A Java-style client.properties (TLS, SASL)."),
    click.option("--config", metavar="FILE", help="Configuration file [default: ~/.config/fleethpa/config.yaml]."),
    click.option("--kubeconfig", metavar="FILE", help="Kubeconfig with the contexts of the member clusters."),
    click.option("--color", type=click.Choice(["auto", "always", "never"]), help="Colours [default: auto]."),
    click.option(
        "--time", type=click.Choice(["utc", "local", "relative"]), help="Show times like this [default: utc]."
    ),
    click.option("-q", "--quiet", is_flag=True, default=None, help="Print no remarks on stderr."),
    click.option("--debug", is_flag=True, default=None, help="Show tracebacks."),
    click.option("--timeout", metavar="DURATION", help="Give up (exit 124) after this time, such as 30s."),
)
_SOURCE = click.option(
    "--from",
    "source",
    metavar="kafka|DIR|FILE|URL",
    help="Read the topics of the running fleet, the folder of an archive, a bundle, or ask a hub [default: kafka].",
)


travel_option = click.option("--at", TRAVEL, metavar="TIME|2h", help="Show the state that the log had at that time.")
"""`--at`: the command shows the world as the log had it then."""


def command_options(
    *, reads: bool = False, asks_hub: bool = True
) -> Callable[[Callable[Concatenate[Session, P], Any]], Callable[..., Any]]:
    """Add the common options to a command; its function gets a `Session` as first argument. `reads`: with `--from`.
    `asks_hub`: where that names a hub, the hub runs the command; else the command asks it for what it reads.

    A function that is a coroutine is run as `Session.run` does.
    """

    def decorate(function: Callable[Concatenate[Session, P], Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            given = {name: kwargs.pop(name) for name in SHARED if name in kwargs}
            outer: dict[str, Any] = click.get_current_context().find_root().obj or {}
            merged = outer | {name: value for name, value in given.items() if value is not None}
            session = Session(merged)
            try:
                context = click.get_current_context()
                if reads and asks_hub and is_hub(session.source):
                    from fleethpa.frame.remote import asked_of_hub

                    with session.remarking(session.source):
                        answer = asked_of_hub(session.source, context, session.config, session.timeout_s)
                    return session.answered(answer)
                if "hub_context" in given and session.config.hub:
                    written: Callable[..., Coroutine[Any, Any, int]] = imported(context.meta[WRITES_TO_HUB])
                    return session.run(written(session, words_of(context), kwargs))
                with session.readable():
                    answer = function(session, *args, **kwargs)
                    return session.run(answer) if isinstance(answer, Coroutine) else answer
            except CommandError as problem:
                session.completed(problem)
                raise

        return together(*_COMMON, *([_SOURCE] if reads else []))(wrapper)

    return decorate


group_options = together(*_COMMON)
"""Give the main group the common options too, so that they may come before the verb."""
