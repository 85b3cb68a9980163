"""Whether a native HPA controller runs: hints, and the proof by a canary HPA.

The canary's target does not exist, so a native controller writes a condition within a sync period and scales nothing.
A write in the manager's name (`managedFields`) is only a reason to make a canary: any client that may update an object
can forge or remove the entry. Entries of `/scale` bear no time and are not used.

Source: pkg/controller/podautoscaler/horizontal.go, `updateStatus`.
"""

import asyncio
import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Literal, NamedTuple

from reconciler.clusters.answers import ApiError, ClusterError
from reconciler.clusters.client import ClusterClient
from reconciler.clusters.nativehpas import NativeHpas
from reconciler.core.objects import CANARY_LABEL
from reconciler.observer.troubles import ReadProblem, problem_of
from runtime.log import Clock
from schemas.kubernetes.gotimes import time_ms
from schemas.kubernetes.shape import HPA_HEAD

NATIVE_MANAGER = "kube-controller-manager"
AHEAD_MS: Final = 300_000
"""How far the API server's clock may be ahead of the observer's; entries of later times are forged."""


class Evidence(NamedTuple):
    """A write of the native controller: when (ms, cut to the second by the API server), and a text that names both."""

    time_ms: int
    text: str


def native_status_write(hpa: Mapping[str, Any], now_ms: int) -> Evidence | None:
    """The native controller's newest write of an HPA's status; None: it made none that still shows, or that can be."""
    metadata = hpa["metadata"]
    writes = [
        (when_ms, str(entry["time"]))
        for entry in metadata.get("managedFields") or ()
        if entry.get("manager") == NATIVE_MANAGER and entry.get("subresource") == "status"
        if (when_ms := time_ms(entry.get("time"))) is not None and when_ms <= now_ms + AHEAD_MS
    ]
    if not writes:
        return None
    when_ms, when = max(writes)
    return Evidence(when_ms, f"it wrote the status of HPA {metadata['namespace']}/{metadata['name']} at {when}")


log = logging.getLogger(__name__)
Verdict = Literal["absent", "present"]
NoteCanary = Callable[[ReadProblem | None], None]
_LOOK_EVERY_S = 1.0
FIRST_PAUSE_S = 2.0
LONGEST_PAUSE_S = 60.0
REFUSED_PAUSE_S = 900.0
"""After the API server refused a canary for lack of rights, which only a person changes."""
ASKED_AGAIN_S = 300.0
"""From one canary to the next, even if something is written in the native controller's name meanwhile."""
RIGHTS = tuple(f"{verb} horizontalpodautoscalers.autoscaling" for verb in ("create", "get", "delete"))


class Canary:
    """The proof for one cluster.

    Args:
        namespace: where the canary lives.
        wait_s: how long its status must stay empty; well above the controller manager's sync period (15 s unless set
            otherwise) to prove anything.
        note: called with the problem that prevents the proof, or with None once there is none.
    """

    def __init__(self, client: ClusterClient, namespace: str, wait_s: float, note: NoteCanary) -> None:
        self._cluster, self._wait_s, self._note = client.name, wait_s, note
        self._hpas, self._namespace = NativeHpas(client), namespace
        self._left: set[str] = set()

    async def verdict(self) -> Verdict:
        """Find out whether a native controller runs. Failures are retried until there is an answer, after a refusal for
        lack of rights every 15 minutes.

        An interrupted proof starts again: while the API server was away, a native controller could not write.
        """
        pause_s = 0.0
        while True:
            try:
                proof = await self.prove()
            except ClusterError as error:
                log.warning("the canary proved nothing", extra={"cluster": self._cluster, "error": str(error)})
                problem = problem_of(error, *RIGHTS)
                pause_s = pause_after(problem, pause_s)
                self._note(problem)
            else:
                self._note(None)
                return proof
            await asyncio.sleep(pause_s)

    async def prove(self) -> Verdict:
        """Try once. Raises ClusterError: the proof was interrupted, or the cluster refuses it."""
        for name in sorted(self._left):
            await self._delete(name)
        name = f"fleethpa-canary-{uuid.uuid4().hex[:8]}"
        self._left.add(name)  # a request without an answer may have made it
        try:
            await self._hpas.create(_canary(self._namespace, name))
        except ApiError:
            self._left.discard(name)
            raise
        try:
            return await self._watch_status(name)
        finally:
            await self._delete(name)

    async def _watch_status(self, name: str) -> Verdict:
        ends = time.monotonic() + self._wait_s
        while True:
            canary = await self._hpas.get(self._namespace, name)
            if canary is None:
                raise ApiError(404, f"the canary HPA {self._namespace}/{name} was deleted while it was watched")
            status = canary.get("status") or {}
            if status.get("conditions") or status.get("observedGeneration"):
                return "present"
            if time.monotonic() >= ends:
                return "absent"
            await asyncio.sleep(min(_LOOK_EVERY_S, self._wait_s))

    async def _delete(self, name: str) -> None:
        try:
            await self._hpas.delete(self._namespace, name)
            self._left.discard(name)
        except ClusterError as error:
            about = {"cluster": self._cluster, "hpa": f"{self._namespace}/{name}", "error": str(error)}
            log.error("canary not deleted", extra=about)


def pause_after(problem: ReadProblem, before_s: float) -> float:
    """How long to wait until the next canary. `before_s`: after the failure before this one; 0: it is the first."""
    if problem.reason == "forbidden":
        return REFUSED_PAUSE_S
    return FIRST_PAUSE_S if before_s > LONGEST_PAUSE_S else min(max(2 * before_s, FIRST_PAUSE_S), LONGEST_PAUSE_S)


class NativeWatch:
    """Asks a canary about each write in the native controller's name that contradicts a proof of its absence.

    Args:
        canary: makes one that notes its problems by the function that it is given.
        note: called with what is doubted, or with None once nothing is.
        absent_since_ms: when it was proven or set that no native controller runs, or None if that does not hold.
    """

    def __init__(
        self,
        cluster: str,
        canary: Callable[[NoteCanary], Canary],
        *,
        note: NoteCanary,
        absent_since_ms: Callable[[], int | None],
        clock: Clock,
    ) -> None:
        self._cluster, self._canary, self._note, self._clock = cluster, canary, note, clock
        self.absent_since_ms = absent_since_ms
        self._refuted_ms = 0
        self.newest: Evidence | None = None
        """The newest such write that the cluster shows."""
        self.news = asyncio.Event()
        """Set it when the settings have changed."""

    def wrote(self, evidence: Evidence | None) -> None:
        """An object shows this write in the native controller's name; None: it shows none."""
        if evidence is not None and (self.newest is None or evidence.time_ms > self.newest.time_ms):
            self.newest = evidence
            self.news.set()

    def refute(self, time_ms: int) -> None:
        """A canary made at `time_ms` showed that none runs: somebody else wrote what was written until then."""
        self._refuted_ms = time_ms

    def contradicts(self, evidence: Evidence | None) -> bool:
        """Whether something was written in the native controller's name after it counted as absent."""
        since_ms = self.absent_since_ms()
        return evidence is not None and since_ms is not None and evidence.time_ms > max(since_ms, self._refuted_ms)

    async def run(self, runs: Callable[[Evidence], Awaitable[None]]) -> None:
        """Watch until cancelled; `runs` is called where a native controller runs indeed, with what led to it."""
        while True:
            await self.news.wait()
            self.news.clear()
            evidence = self.newest
            if evidence is None or not self.contradicts(evidence):
                continue
            if await self._asked(evidence) == "present":
                await runs(evidence)
            await asyncio.sleep(ASKED_AGAIN_S)
            self.news.set()

    async def _asked(self, evidence: Evidence) -> Verdict:
        doubt, began_ms = {"cluster": self._cluster, "evidence": evidence.text}, self._clock()
        log.warning("something was written in the native controller's name: a canary is asked", extra=doubt)

        def note(problem: ReadProblem | None) -> None:
            waiting = ReadProblem("failing", "a canary is being asked") if problem is None else problem
            self._note(waiting._replace(text=f"{evidence.text}, and {waiting.text}"))

        note(None)
        verdict = await self._canary(note).verdict()
        if verdict == "present":
            self._note(None)
            return verdict
        log.warning("no native controller runs: somebody else wrote in its name", extra=doubt)
        self.refute(began_ms)
        self._note(ReadProblem("failing", f"{evidence.text}, but a canary showed that it does not run"))
        return verdict


def _canary(namespace: str, name: str) -> dict[str, object]:
    return HPA_HEAD | {
        "metadata": {"namespace": namespace, "name": name, "labels": {CANARY_LABEL: "true"}},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "minReplicas": 1,
            "maxReplicas": 1,
        },
    }
