"""Answers other than success, as `metav1.Status` bodies: the words are the API server's.

What goes wrong between a client and a simulated API server: faults by route, and access by token and namespace.
"""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final

from schemas.kubernetes.fielderrors import FieldError, aggregate
from schemas.kubernetes.shape import Json

_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    409: "Conflict",
    410: "Expired",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


class StatusError(Exception):
    """A request that fails with a Kubernetes Status."""

    def __init__(
        self, code: int, message: str, *, reason: str | None = None, details: Json | None = None, retry_after_s: int = 0
    ) -> None:
        super().__init__(message)
        self.code, self.message, self.retry_after_s = code, message, retry_after_s
        self.reason = _REASONS.get(code, "") if reason is None else reason
        self.details = details
        if retry_after_s:
            self.details = {**(details or {}), "retryAfterSeconds": retry_after_s}

    def status(self) -> Json:
        """Return the body."""
        body: Json = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
        }
        if self.details is not None:
            body["details"] = self.details
        return body


class UnknownGroupError(StatusError):
    """A path of an API group that is not served: the API server's own router answers, in plain text."""

    def __init__(self) -> None:
        super().__init__(404, "404 page not found")


def _details(resource: str, name: str) -> Json:
    plural, _, group = resource.partition(".")
    return {"name": name, "kind": plural} | ({"group": group} if group else {})


def not_served() -> StatusError:
    """No resource has this path, in a group that is served."""
    return StatusError(404, "the server could not find the requested resource", details={})


def forbidden(user: str, verb: str, resource: str, group: str, namespace: str, name: str) -> StatusError:
    """Access control refuses a request; `resource` is the plural with its subresource."""
    where = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
    what = f'cannot {verb} resource "{resource}" in API group "{group}" {where}'
    plural = resource.partition("/")[0]
    subject = (f"{plural}.{group}" if group else plural) + (f' "{name}"' if name else "")
    details = ({"name": name} if name else {}) | ({"group": group} if group else {}) | {"kind": plural}
    return StatusError(403, f'{subject} is forbidden: User "{user}" {what}', details=details)


def not_found(resource: str, name: str) -> StatusError:
    """`resource` is the plural with its group, e.g. deployments.apps."""
    return StatusError(404, f'{resource} "{name}" not found', details=_details(resource, name))


def already_exists(resource: str, name: str) -> StatusError:
    """The name is taken."""
    message = f'{resource} "{name}" already exists'
    return StatusError(409, message, reason="AlreadyExists", details=_details(resource, name))


def conflict(resource: str, name: str) -> StatusError:
    """A write carried a resource version that is no longer the newest."""
    text = "the object has been modified; please apply your changes to the latest version and try again"
    message = f'Operation cannot be fulfilled on {resource} "{name}": {text}'
    return StatusError(409, message, details=_details(resource, name))


def uid_conflict(resource: str, name: str, wanted: str, found: str) -> StatusError:
    """A write carried the uid of another object of this name."""
    text = f"Precondition failed: UID in precondition: {wanted}, UID in object meta: {found}"
    message = f'Operation cannot be fulfilled on {resource} "{name}": {text}'
    return StatusError(409, message, details=_details(resource, name))


def deleted_uid_conflict(kind: str, name: str, wanted: str, found: str) -> StatusError:
    """A deletion named the uid of another object of this name. `kind`: with its group."""
    text = f"the UID in the precondition ({wanted}) does not match the UID in record ({found})."
    more = "The object might have been deleted and then recreated"
    message = f'Operation cannot be fulfilled on {kind} "{name}": {text} {more}'
    return StatusError(409, message, details=_details(kind, name))


def invalid(kind: str, group: str, name: str, problems: Sequence[FieldError]) -> StatusError:
    """An object that breaks rules of its type."""
    subject = f"{kind}.{group}" if group else kind
    causes = [{"reason": problem.type, "message": problem.body, "field": problem.field} for problem in problems]
    details: Json = {"name": name} if name else {}
    details |= {"group": group, "kind": kind, "causes": causes}
    text = aggregate([problem.string for problem in problems])
    return StatusError(422, f'{subject} "{name}" is invalid: {text}', details=details)


def expired(asked: int, oldest: int) -> StatusError:
    """A watch asked for history that is gone."""
    return StatusError(410, f"too old resource version: {asked} ({oldest})")


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
        """Return the user of a request. Raises StatusError: 401."""
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
        """Refuse what a denial matches. Raises StatusError: 403."""
        if not self.allows(user, verb, resource, namespace):
            raise forbidden(user, verb, resource, group, namespace, name)


def fault_from(document: Mapping[str, Any]) -> Fault:
    """Read a fault as the control endpoint takes it. Raises ValueError: Unknown field, action or pattern."""
    try:
        return Fault(**document)
    except (TypeError, re.error) as error:
        raise ValueError(f"fault: {error}") from error
