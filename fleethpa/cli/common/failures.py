"""What a command ends with: the exit codes, and errors in three parts (what failed, likely cause, next command)."""

from __future__ import annotations

from typing import Final

from runtime.jsonlog import clean

OK: Final = 0
ANSWER_IS_NO: Final = 1
USAGE: Final = 2
UNREACHABLE: Final = 3
NOT_FOUND: Final = 4
PARTIAL: Final = 5
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
    """

    def __init__(self, what: str, *, cause: str = "", next_step: str = "", code: int = ANSWER_IS_NO) -> None:
        super().__init__(what)
        self.what, self.cause, self.next_step, self.code = what, cause, next_step, code

    def text(self) -> str:
        """Return the three parts, one per line."""
        lines = [f"Error: {clean(self.what)}"]
        lines += [f"  {line}" for line in self.cause.splitlines()]
        if self.next_step:
            lines.append(f"  Next: {clean(self.next_step)}")
        return "\n".join(lines)


def usage(what: str, *, cause: str = "", next_step: str = "") -> CommandError:
    """A wrong use of the command line or a wrong input (exit 2)."""
    return CommandError(what, cause=cause, next_step=next_step, code=USAGE)


def unreachable(what: str, *, cause: str = "", next_step: str = "") -> CommandError:
    """Kafka or an API server cannot be reached (exit 3)."""
    return CommandError(what, cause=cause, next_step=next_step, code=UNREACHABLE)


def not_found(what: str, *, cause: str = "", next_step: str = "") -> CommandError:
    """The named object does not exist (exit 4)."""
    return CommandError(what, cause=cause, next_step=next_step, code=NOT_FOUND)


def timed_out(what: str, *, cause: str = "", next_step: str = "") -> CommandError:
    """`--timeout` was hit (exit 124)."""
    return CommandError(what, cause=cause, next_step=next_step, code=TIMED_OUT)


def unreadable_text(error: OSError | UnicodeDecodeError) -> str:
    """Why a text file cannot be read, in words."""
    if isinstance(error, UnicodeDecodeError):
        return f"It is not UTF-8 text: byte 0x{error.object[error.start]:02x} at position {error.start}."
    return error.strerror or str(error)
