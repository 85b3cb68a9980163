"""Where a server of this program listens, and by which names it is called."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from typing import Final

from fleethpa.frame.errors import CommandError, usage

_NAMED: Final = re.compile(
    r"(?P<name>[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.?|\[[0-9a-fA-F:.%]+\])(:(?P<port>[0-9]{1,5}))?"
)
_MOST_PORT: Final = 65_535


def is_loopback(host: str) -> bool:
    """Whether an address to listen on is reached from this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def names_of(host: str, others: Iterable[str]) -> frozenset[str]:
    """The Host names that are accepted: those of this machine where it listens there only, and those that are given.

    Raises CommandError: one of `others` is not a host, with or without a port (exit 2).
    """
    others = list(others)
    for name in others:
        if not _is_host(name):
            raise usage(
                f"--allowed-host {name!r} is not the name of a host",
                cause="Write what stands in the address between // and the next /, such as fleet.example.",
            )
    own = {"localhost", "127.0.0.1", "::1"} if is_loopback(host) else set()
    return frozenset(({bare(name) for name in others} | own | {bare(host)}) - {""})


def _is_host(text: str) -> bool:
    if found := _NAMED.fullmatch(text.strip()):
        return int(found["port"] or 0) <= _MOST_PORT
    try:
        return ipaddress.ip_address(text.strip()).version == 6  # also without brackets
    except ValueError:
        return False


def bare(host: str) -> str:
    """A Host header without its port, in lower case."""
    text = host.strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text if text.count(":") > 1 else text.partition(":")[0]


def in_url(host: str) -> str:
    """An address as it stands in a URL."""
    return f"[{host}]" if ":" in host else host


def cannot_listen(host: str, port: int, error: OSError, next_step: str) -> CommandError:
    """The error for an address that cannot be listened on (exit 2)."""
    why = (error.strerror or str(error)).partition(" (while attempting")[0]  # Python adds the address
    return usage(f"cannot listen on {host}:{port}: {why}", next_step=next_step)


def nameless(host: str, next_step: str) -> CommandError | None:
    """The error for a server on all addresses that does not say by which names it is called (exit 2)."""
    if host not in ("0.0.0.0", "::"):
        return None
    return usage(
        f"--host {host} does not say by which name it is called",
        cause="What answers to any name can be read through other sites (DNS rebinding).",
        next_step=next_step,
    )
