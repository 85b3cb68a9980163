"""Answers other than success, as `metav1.Status` bodies in the words of the API server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from schemas.kubernetes.fielderrors import FieldError, aggregate
from schemas.kubernetes.shape import Json

_REASONS: Final = {
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
MODIFIED: Final = "the object has been modified; please apply your changes to the latest version and try again"


class StatusError(Exception):
    """A request that fails with a Kubernetes Status."""

    def __init__(
        self, code: int, message: str, *, reason: str = "", details: Json | None = None, retry_after_s: int = 0
    ) -> None:
        super().__init__(message)
        self.code, self.message, self.retry_after_s = code, message, retry_after_s
        self.reason = reason or _REASONS.get(code, "")
        self.details = (details or {}) | ({"retryAfterSeconds": retry_after_s} if retry_after_s else {})

    def status(self) -> Json:
        """Return the body."""
        head: Json = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
        return head | {"message": self.message, "reason": self.reason, "details": self.details, "code": self.code}


def _details(resource: str, name: str) -> Json:
    plural, _, group = resource.partition(".")
    return {"name": name, "kind": plural} | ({"group": group} if group else {})


def not_served() -> StatusError:
    """Return the answer to a path that names no resource."""
    return StatusError(404, "the server could not find the requested resource")


def not_found(resource: str, name: str) -> StatusError:
    """Return the answer for an object that does not exist. `resource`: plural and group, e.g. deployments.apps."""
    return StatusError(404, f'{resource} "{name}" not found', details=_details(resource, name))


def already_exists(resource: str, name: str) -> StatusError:
    """Return the answer to a creation under a name that is taken."""
    message = f'{resource} "{name}" already exists'
    return StatusError(409, message, reason="AlreadyExists", details=_details(resource, name))


def conflict(resource: str, name: str, text: str = MODIFIED) -> StatusError:
    """Return the answer to a write whose precondition fails, by default that on the resource version."""
    message = f'Operation cannot be fulfilled on {resource} "{name}": {text}'
    return StatusError(409, message, details=_details(resource, name))


def invalid(kind: str, group: str, name: str, problems: Sequence[FieldError]) -> StatusError:
    """Return the answer to an object that breaks the rules of its type."""
    subject = f"{kind}.{group}" if group else kind
    causes = [{"reason": problem.type, "message": problem.body, "field": problem.field} for problem in problems]
    details: Json = {"name": name} if name else {}
    details |= {"group": group, "kind": kind, "causes": causes}
    text = aggregate([problem.string for problem in problems])
    return StatusError(422, f'{subject} "{name}" is invalid: {text}', details=details)


def expired(asked: int, oldest: int) -> StatusError:
    """Return the answer to a watch from a resource version that is no longer kept."""
    return StatusError(410, f"too old resource version: {asked} ({oldest})")
