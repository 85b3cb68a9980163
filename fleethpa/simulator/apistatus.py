"""Answers other than success, as `metav1.Status` bodies: the words are the API server's."""

from __future__ import annotations

from collections.abc import Sequence

from schemas.kubernetes.fielderrors import FieldError, aggregate
from schemas.kubernetes.jsontypes import Json

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
        self,
        code: int,
        message: str,
        *,
        reason: str | None = None,
        details: Json | None = None,
        retry_after_s: int = 0,
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
