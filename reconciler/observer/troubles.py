"""What an observer cannot see in a cluster, why, and since when."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from reconciler.clusters.answers import UNKNOWN_USER, ApiError, ClusterError, IdentityError, UnreachableError
from runtime.log import Clock
from schemas.observed import API_SERVER_PART, OF_API_SERVER, ObserverTrouble, Reason

NAMED_NAMESPACES = 20
ERROR_CHARACTERS = 1_000
"""Longer error texts are cut in a report."""


class ReadProblem(NamedTuple):
    """Why something cannot be observed: a reason in one word, the API server's text, and the missing permissions.

    `is_missing`: the API server has no such thing.
    """

    reason: Reason
    text: str
    rights: tuple[str, ...] = ()
    is_missing: bool = False


NoteProblem = Callable[[str, str, ReadProblem | None], None]
"""part, namespace (empty: the whole cluster), and its problem; None: it has none (any more)."""


def problem_of(error: ClusterError, *rights: str) -> ReadProblem:
    """The problem that an error shows. `rights` are what the request needed, as `verb resource.group`."""
    if isinstance(error, IdentityError):
        return ReadProblem("identity", str(error))
    if isinstance(error, UnreachableError):
        return ReadProblem("unreachable", str(error))
    if isinstance(error, ApiError) and error.status == UNKNOWN_USER:  # no right helps somebody who is not known
        return ReadProblem("forbidden", str(error))
    if isinstance(error, ApiError) and error.status == 403:
        return ReadProblem("forbidden", str(error), rights)
    return ReadProblem("failing", str(error), is_missing=error.is_missing)


class Troubles:
    """All problems of one cluster by part and namespace (empty: the whole cluster).

    `changed` is called when a trouble begins or ends, or when its reason changes.
    """

    def __init__(self, clock: Clock, changed: Callable[[], None] = lambda: None) -> None:
        self._clock, self._changed = clock, changed
        self._known: dict[tuple[str, str], tuple[ReadProblem, int]] = {}
        self._fine: dict[str, set[str]] = {}

    def record(self, part: str, namespace: str, problem: ReadProblem | None) -> None:
        """A part has this problem in a namespace now; None: it has none (any more)."""
        key, fine = (part, namespace), self._fine.setdefault(part, set())
        before = self._known.pop(key, None)
        if problem is None:
            fine.add(namespace)
        else:
            fine.discard(namespace)
            is_same = before is not None and before[0].reason == problem.reason
            self._known[key] = problem, before[1] if before is not None and is_same else self._clock()
        if (before and before[0].reason) != (problem and problem.reason):
            self._changed()

    def forget(self, part: str, namespace: str) -> None:
        """Drop a part that is no longer requested in a namespace."""
        self._fine.get(part, set()).discard(namespace)
        if self._known.pop((part, namespace), None) is not None:
            self._changed()

    def find(self, part: str, namespace: str) -> ReadProblem | None:
        """The problem of a part in a namespace, be it the namespace's own or that of the whole cluster."""
        if not self._known:  # as nearly always
            return None
        known = self._known.get((part, namespace)) or self._known.get((part, ""))
        return None if known is None else known[0]

    def report(self) -> list[ObserverTrouble]:
        """All troubles, one per part and reason, in order. While the API server is away, it alone explains silence."""
        away = (API_SERVER_PART, "") in self._known
        groups: dict[tuple[str, Reason], list[str]] = {}
        for (part, namespace), (problem, _) in sorted(self._known.items()):
            if away and part != API_SERVER_PART and problem.reason in OF_API_SERVER:
                continue
            groups.setdefault((part, problem.reason), []).append(namespace)
        return [self._trouble(part, reason, namespaces) for (part, reason), namespaces in groups.items()]

    def _trouble(self, part: str, reason: Reason, namespaces: list[str]) -> ObserverTrouble:
        known = [self._known[part, namespace] for namespace in namespaces]
        is_everywhere = "" in namespaces or not self._fine.get(part)
        return ObserverTrouble(
            part=part,
            reason=reason,
            since=min(since_ms for _, since_ms in known),
            error=known[0][0].text[:ERROR_CHARACTERS],
            namespaces=[] if is_everywhere else namespaces[:NAMED_NAMESPACES],
            namespace_count=0 if is_everywhere else len(namespaces),
            rights=_rights(problem for problem, _ in known),
        )


def _rights(problems: Iterable[ReadProblem]) -> list[str]:
    return list(dict.fromkeys(right for problem in problems for right in problem.rights))
