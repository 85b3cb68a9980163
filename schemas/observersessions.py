"""Names of observer sessions: `instance@epoch`, so that a restarted observer supersedes its own dead session."""

from typing import NamedTuple


class SessionName(NamedTuple):
    """One run of an observer. `epoch`: when it began (ns since 1970), so that a later one of `instance` is higher."""

    instance: str
    epoch: int

    def __str__(self) -> str:
        return f"{self.instance}@{self.epoch}"


_MAX_DIGITS = 4_300
"""Python reads no integer with more digits."""


def parse_session(text: str) -> SessionName | None:
    """Read a session's name; None: it has no epoch, so its place among others is not known."""
    instance, _, epoch = text.rpartition("@")
    is_number = epoch.isascii() and epoch.isdecimal() and len(epoch) <= _MAX_DIGITS
    return SessionName(instance, int(epoch)) if instance and is_number else None


def supersedes(newer: str, older: str) -> bool:
    """Whether `newer` is a later session of the same instance as `older`, which has therefore ended."""
    one, other = parse_session(newer), parse_session(older)
    return one is not None and other is not None and one.instance == other.instance and one.epoch > other.epoch
