"""Where the processes of the command line begin. It imports next to nothing, so that Ctrl-C soon has an answer.

The modules of a command take a third of a second to import, in which Ctrl-C would print a traceback.
"""

import os
import signal

_BY_SIGNAL = 128
"""Exit codes of commands that a signal ends are this many above its number (`fleethpa.frame.errors.INTERRUPTED`)."""


def main() -> None:
    """Entry point of `fleethpa` and `python -m fleethpa`."""
    _end_at_signals()
    from fleethpa.cli.main import main as command

    _raise_interrupts()
    command()


def kubectl_main() -> None:
    """Entry point of `kubectl fleethpa`."""
    _end_at_signals()
    from fleethpa.cli.main import kubectl_plugin as command

    _raise_interrupts()
    command()


def _end_at_signals() -> None:
    # The kernel does not deliver a SIGTERM that is not handled to the first process of a container.
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _end)
    # A job that was started in the background of a script ignores Ctrl-C, and continues doing so.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def _raise_interrupts() -> None:
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(number: int, _: object) -> None:
    os._exit(_BY_SIGNAL + number)
