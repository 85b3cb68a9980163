"""Where a server of this program listens, and by which names it is called."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from fleethpa.frame.errors import CommandError, usage


def is_loopback(host: str) -> bool:
    """Whether an address to listen on is reached from this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def names_of(host: str, others: Iterable[str]) -> frozenset[str]:
    """The Host names that are accepted: those of this machine where it listens there only, and those that are given."""
    own = {"localhost", "127.0.0.1", "::1"} if is_loopback(host) else set()
    return frozenset(({bare(name) for name in others} | own | {bare(host)}) - {""})


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
