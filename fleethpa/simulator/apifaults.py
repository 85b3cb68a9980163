"""What goes wrong between a client and a simulated API server: faults by route, and access by token and namespace."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final

from fleethpa.simulator.apistatus import StatusError, forbidden

ACTIONS: Final = ("status", "hang", "drop", "none")


@dataclass(slots=True)
class Fault:
    """A fault for the requests whose method and path match; the newest matching one applies."""

    path: str = ".*"
    """Regular expression, searched in the path with its query."""
    method: str = ".*"
    action: str = "status"
    """status: answer with it; hang: wait until the fault is removed, go on; drop: cut the connection; none: delay."""
    status: int = 503
    message: str = "simulated fault"
    retry_after_s: int = 0
    delay_ms: int = 0
    """Real milliseconds before the action, or before the normal answer (action none)."""
    after: bool = False
    """Do the request first, then fail: the client cannot know that its write has happened."""
    remaining: int | None = None
    """Requests that it still hits; None = all."""
    number: int = 0

    def __post_init__(self) -> None:
        if self.action not in ACTIONS:
            raise ValueError(f"fault action {self.action!r} is unknown: use one of {', '.join(ACTIONS)}")
        re.compile(self.path), re.compile(self.method)

    def matches(self, method: str, path: str) -> bool:
        """Whether the fault is for this request."""
        hit = re.fullmatch(self.method, method) and re.search(self.path, path)
        return bool(hit) and self.remaining != 0


class Faults:
    """The faults of one API server."""

    def __init__(self) -> None:
        self._faults: dict[int, Fault] = {}
        self._numbers = itertools.count(1)
        self._changed = asyncio.Event()

    def add(self, fault: Fault) -> int:
        """Install a fault and return its number."""
        fault.number = next(self._numbers)
        self._faults[fault.number] = fault
        return fault.number

    def remove(self, number: int | None = None) -> None:
        """Remove one fault, or all."""
        if number is None:
            self._faults.clear()
        else:
            self._faults.pop(number, None)
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def take(self, method: str, path: str) -> Fault | None:
        """Return the fault that hits this request and count it."""
        for fault in reversed(self._faults.values()):
            if fault.matches(method, path):
                if fault.remaining is not None:
                    fault.remaining -= 1
                return fault
        return None

    async def removal(self, number: int) -> None:
        """Wait until a fault is gone."""
        while number in self._faults:
            await self._changed.wait()


@dataclass(frozen=True, slots=True)
class Denial:
    """Requests that role-based access control refuses; the fields are glob patterns."""

    namespace: str = "*"
    resource: str = "*"
    """The plural, with subresource: deployments/scale."""
    verb: str = "*"
    user: str = "*"


@dataclass
class TokenAccess:
    """Who may do what."""

    tokens: dict[str, str] = field(default_factory=dict)
    """Bearer token -> user name; no tokens at all = everybody is admin."""
    denials: list[Denial] = field(default_factory=list)

    def user(self, headers: Mapping[str, str]) -> str:
        """Return the user of a request.

        Raises:
            StatusError: 401.
        """
        if not self.tokens:
            return "system:admin"
        scheme, _, token = headers.get("Authorization", "").partition(" ")
        user = self.tokens.get(token.strip()) if scheme.lower() == "bearer" else None
        if user is None:
            raise StatusError(401, "Unauthorized")
        return user

    def allows(self, user: str, verb: str, resource: str, namespace: str) -> bool:
        """Whether no denial matches."""
        request = (namespace, resource, verb, user)
        patterns = [(d.namespace, d.resource, d.verb, d.user) for d in self.denials]
        return not any(all(map(fnmatchcase, request, pattern)) for pattern in patterns)

    def check(self, user: str, verb: str, resource: str, group: str, namespace: str, name: str) -> None:
        """Refuse what a denial matches.

        Raises:
            StatusError: 403.
        """
        if not self.allows(user, verb, resource, namespace):
            raise forbidden(user, verb, resource, group, namespace, name)


def fault_from(document: Mapping[str, Any]) -> Fault:
    """Read a fault as the control endpoint takes it.

    Raises:
        ValueError: Unknown field, action or pattern.
    """
    try:
        return Fault(**document)
    except (TypeError, re.error) as error:
        raise ValueError(f"fault: {error}") from error
