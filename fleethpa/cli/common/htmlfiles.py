"""`--html FILE`: where the report of a command is written."""

from __future__ import annotations

from pathlib import Path

from fleethpa.cli.common.failures import CommandError, usage


def check_folder(path: str) -> None:
    """Check, before anything is read, that a report can be written.

    Raises:
        CommandError: its folder does not exist (exit 2).
    """
    if not Path(path).absolute().parent.is_dir():
        raise usage(f"--html {path} cannot be written", cause="Its folder does not exist.")


def write(path: str, text: str) -> None:
    """Write a report.

    Raises:
        CommandError: that is not possible (exit 2).
    """
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandError(f"--html {path} cannot be written", cause=str(error), code=2) from error
