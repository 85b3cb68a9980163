"""Errors of a member cluster.

ClusterError
├── ApiError            the API server answered, and said no
├── UnreachableError    no answer of an API server: refused, hung, dropped, or something else answered
│   └── NoAnswerError   nothing answered at all
├── UnreadableError     an answer of an API server, in which an object is of a shape that none gives
└── ConfigError         the cluster cannot even be asked: kubeconfig or credentials
"""

from collections.abc import Iterator
from contextlib import contextmanager

from reconciler.core.guardsettings import Trouble
from schemas.limits import ERROR, shortened

_ODD_SHAPE = (LookupError, TypeError, AttributeError, ValueError)


class ClusterError(Exception):
    """A request to a member cluster failed; the text is for users."""

    def trouble(self) -> Trouble:
        """Give the failure in the form that the plan needs."""
        return Trouble(0, str(self))


class ApiError(ClusterError):
    """An answer other than success. `reason` is the Status' (`Conflict`, `Expired`, …), empty without one.

    A message may be as long as the answer. It goes into reports, decisions, conditions and Events: a long one is cut.
    """

    def __init__(self, status: int, message: str, *, reason: str = "", retry_after_ms: int | None = None) -> None:
        message = shortened(message, ERROR)
        super().__init__(message)
        self.status, self.message, self.reason, self.retry_after_ms = status, message, reason, retry_after_ms

    def trouble(self) -> Trouble:
        return Trouble(self.status, self.message, self.retry_after_ms)


class UnreachableError(ClusterError):
    """No answer came, or not a whole one, or one that is no object of Kubernetes, as a proxy gives in place of the API
    server: nothing else need be asked for a while.
    """


class NoAnswerError(UnreachableError):
    """No answer came, or it broke off. `was_connected`: the request was sent, so that perhaps only what is to answer it
    hangs, such as a metrics API behind the API server.
    """

    def __init__(self, message: str, *, was_connected: bool = False) -> None:
        super().__init__(message)
        self.was_connected = was_connected


class UnreadableError(ClusterError):
    """An answer came, and an object in it is not what an API server gives. Other requests may well succeed."""


class ConfigError(ClusterError):
    """The kubeconfig or the credentials of a cluster cannot be used."""


@contextmanager
def reading(failure: str) -> Iterator[None]:
    """Read objects that a cluster gave. One of an odd shape is a trouble of its cluster and concerns no other.

    Raises:
        UnreadableError: a field is missing or of another type; the text begins with `failure`, and the field follows.
    """
    try:
        yield
    except _ODD_SHAPE as error:
        raise UnreadableError(f"{failure}: {type(error).__name__}: {error}") from error
