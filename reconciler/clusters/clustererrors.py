"""Errors of a member cluster.

ClusterError
├── ApiError            the API server answered, and said no
├── UnreachableError    no answer: refused, hung, dropped, or not HTTP
└── ConfigError         the cluster cannot even be asked: kubeconfig or credentials
"""

from reconciler.core.plan import Trouble


class ClusterError(Exception):
    """A request to a member cluster failed; the text is for users."""

    def trouble(self) -> Trouble:
        """Give the failure in the form that the plan needs."""
        return Trouble(0, str(self))


class ApiError(ClusterError):
    """An answer other than success. `reason` is the Status' (`Conflict`, `Expired`, …), empty without one."""

    def __init__(self, status: int, message: str, *, reason: str = "", retry_after_ms: int | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.reason, self.retry_after_ms = status, message, reason, retry_after_ms

    def trouble(self) -> Trouble:
        return Trouble(self.status, self.message, self.retry_after_ms)


class UnreachableError(ClusterError):
    """No answer came, or not a whole one."""


class ConfigError(ClusterError):
    """The kubeconfig or the credentials of a cluster cannot be used."""
