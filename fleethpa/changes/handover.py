"""Shared by `adopt` and `release`: which HPAs they mean, and the steps by which control of HPAs is transferred.

An operator's proof that no native controller runs is here, too: an agent cannot record it, as it may write no settings.
Requests use the user's own credentials (`--kubeconfig`), and texts about native objects repeat what the API server
answered, not what an observer has seen.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Literal, TypeVar

import click

from fleethpa.changes.foresight import Present, concerns, needs_agreement, read_present
from fleethpa.changes.records import PlannedRecord
from fleethpa.changes.writing import Concern, WriteOptions, change, confirm, rest, write_all
from fleethpa.fleet.finding import DEFAULT_NAMESPACE, Ref, hpa_names, named_namespace, no_such_cluster, parse_ref
from fleethpa.fleet.members import member_clusters
from fleethpa.fleet.state import read_state
from fleethpa.fleet.troubles import ask_api_server
from fleethpa.fleet.views import FleetState
from fleethpa.frame.errors import OK, PARTIAL, CommandError, unreachable, usage
from fleethpa.frame.options import Decorator, gathered, parse_duration_ms
from fleethpa.frame.session import Session
from fleethpa.frame.sources import client_settings, connecting
from reconciler.clusters.answers import ApiError, ClusterError, IdentityError, reading
from schemas.entries import Body
from schemas.keys import FLEET, HpaId
from schemas.kubernetes.shape import Json
from schemas.observed import AutoscalerDeleted
from schemas.partitioning import partition_for
from schemas.settings import ClusterSettings, SettingsSet
from streams.state.rows import DirectoryKey

if TYPE_CHECKING:
    from reconciler.clusters.client import ClusterClient
    from reconciler.clusters.nativehpas import NativeHpas


T = TypeVar("T")

BATCH: Final = 20
"""Control of so many HPAs is transferred at once: few enough that a command which is killed leaves little half done."""
LOOK_EVERY_S: Final = 0.5
REPORTED_S: Final = 30.0
"""How long an agent may take to report what was done in its cluster."""


@dataclass(frozen=True)
class Place:
    """The HPAs of which control is transferred: one, those of a namespace (`name` empty), or those of a cluster (both
    empty).
    """

    cluster: str
    namespace: str = ""
    name: str = ""
    clusters: tuple[str, ...] = ()
    """Of a FleetHPA: those whose HPAs of its name it is made of."""

    def holds(self, hpa: HpaId) -> bool:
        """Whether an HPA is meant."""
        return hpa.cluster == self.cluster and self.namespace in ("", hpa.namespace) and self.name in ("", hpa.name)

    def __str__(self) -> str:
        return "/".join(part for part in (self.cluster, self.namespace, self.name) if part)

    @property
    def arguments(self) -> str:
        """The arguments of a command that name the same HPAs."""
        if self.name:
            return str(self)
        return f"-C {self.cluster} -n {self.namespace}" if self.namespace else f"-C {self.cluster} -A"


def place_options(verb: str) -> Decorator:
    """`[CLUSTER/][NAMESPACE/]NAME` as in `get`, or `-C` with `-n` or `-A`; the function gets one argument `place`."""
    what = "[[CLUSTER/][NAMESPACE/]NAME]"
    return gathered(
        "place",
        partial(place_of, verb),
        click.argument("name", required=False, shell_complete=hpa_names, metavar=what),
        click.option("-n", "--namespace", help="Namespace of NAME; without NAME all of it."),
        click.option("-A", "--all-namespaces", is_flag=True, help="Every HPA of the cluster."),
        click.option("-C", "--cluster", help="The cluster, where NAME does not name it; of a FleetHPA a list."),
    )


def place_of(verb: str, name: str | None, cluster: str | None, namespace: str | None, all_namespaces: bool) -> Place:
    """Read which HPAs a hand-over means. Raises CommandError: none is named, or two contradict (exit 2)."""
    namespace = named_namespace(namespace)
    if namespace and all_namespaces:
        raise usage("-n and -A exclude each other")
    if cluster is not None and not cluster.strip():
        raise usage("-C is empty", cause="Name a cluster.")
    if name is not None:
        return _one_hpa(verb, parse_ref(name), cluster, namespace, all_namespaces)
    if cluster and (namespace or all_namespaces):
        return Place(cluster, namespace or "")
    raise usage(
        f"{verb} what?",
        cause="Name an HPA, CLUSTER/NAMESPACE/NAME, or a cluster with -C and a namespace with -n or all with -A.",
        next_step=f"fleethpa {verb} -C {cluster or 'CLUSTER'} -n NAMESPACE --dry-run",
    )


def _one_hpa(verb: str, ref: Ref, cluster: str | None, namespace: str | None, all_namespaces: bool) -> Place:
    if ref.cluster == FLEET:
        namespace = ref.namespace or namespace or DEFAULT_NAMESPACE
        return Place(FLEET, namespace, ref.name, tuple(filter(None, (cluster or "").split(","))))
    if all_namespaces:
        raise usage(f"-A means every HPA of a cluster, and {ref} names one", next_step="leave out one of them")
    for given, option, named in ((cluster, "-C", ref.cluster), (namespace, "-n", ref.namespace)):
        if given and named and given != named:
            raise usage(f"{option} {given} and {ref} contradict each other", next_step="leave out one of them")
    place = Place(ref.cluster or cluster or "", ref.namespace or namespace or DEFAULT_NAMESPACE, ref.name)
    if not place.cluster:
        raise usage(
            f"{ref} does not say in which cluster",
            cause=f"As in `fleethpa get hpa`, it is the HPA {place.name} of namespace {place.namespace}.",
            next_step=f"fleethpa {verb} {ref} -C CLUSTER --dry-run"
            + ("" if ref.namespace else f"; all of a cluster {ref}: fleethpa {verb} -C {ref} -A --dry-run"),
        )
    return place


# --- the steps --------------------------------------------------------------------------------------------------------


@dataclass
class Plan(Generic[T]):
    """What a hand-over would do.

    Attributes:
        moved: the HPAs of which control is transferred, in order.
        gone: uid of a native object that an interrupted run has deleted, and of whose end the log does not know.
        problems: why other HPAs stay.
        concerns: what the user must agree to.
    """

    moved: dict[HpaId, T] = field(default_factory=dict)
    gone: dict[HpaId, str] = field(default_factory=dict)
    problems: list[CommandError] = field(default_factory=list)
    concerns: list[Concern] = field(default_factory=list)


class HandOver(ABC, Generic[T]):
    """The steps by which control of HPAs is transferred; each verb has its own for a group of HPAs.

    Two controllers never scale the same target: the one that gives it up has stopped before the other may begin. A run
    that was killed on any step is continued by the next one.
    """

    verb: ClassVar[str]
    because: ClassVar[str]
    """The recorded reason where the user gives none."""

    def __init__(
        self, session: Session, place: Place, hpas: NativeHpas, state: FleetState, options: WriteOptions
    ) -> None:
        """`options`: of a command that writes."""
        self.session, self.place, self.hpas, self.state = session, place, hpas, state
        self._options = options
        self.author, self.reason = session.config.author, options.reason or self.because
        self.by_agent = has_agent(state, place.cluster)
        """Only the cluster's agent may record what is there."""

    async def carry_out(self, plan: Plan[T]) -> int:
        """Report what stays, ask, and take all steps; return the exit code.

        Raises CommandError: a step failed; the HPAs are as after a crash at that step, see the module of the verb.
        """
        code = self.session.report(*plan.problems)
        if not (plan.moved or plan.gone):
            return code
        confirm(self.session, plan.concerns, self._options, f"{self.verb} {self.place}")
        if self._options.dry_run:
            for text in self.described(plan):
                self.session.out(f"{text} (dry run)")
            return code
        async with self.session.writer() as self._writer:
            code = max(code, await self.report_gone(plan.gone))
            moved = list(plan.moved.items())
            for first in range(0, len(moved), BATCH):
                if (ended := await self.move(dict(moved[first : first + BATCH]))) != OK:
                    return ended
        for text in self.afterwards():
            self.session.note(text)
        return code

    @abstractmethod
    def described(self, plan: Plan[T]) -> Iterator[str]:
        """The steps, for a dry run."""

    @abstractmethod
    async def move(self, group: Mapping[HpaId, T]) -> int:
        """Carry out all steps for some HPAs; return the exit code. Raises as `carry_out`."""

    @abstractmethod
    def afterwards(self) -> Iterator[str]:
        """Yield what the user may do next."""

    # --- steps of both verbs ------------------------------------------------------------------------------------------

    async def record(self, writes: Sequence[PlannedRecord], *, must_arrive: bool = True, silent: bool = False) -> int:
        """Write records and wait for them in the log; return the exit code.

        Args:
            must_arrive: whether the next step depends on them.
            silent: whether this step is not worth a line on the terminal.
        """
        if not writes:
            return OK
        return await write_all(self.session, self._writer, writes, self._options.wait, must_arrive, silent=silent)

    async def report_gone(self, gone: Mapping[HpaId, str]) -> int:
        """See that the log knows what is gone from the cluster, by uid, however late an observer sees it; return the
        exit code.
        """
        if not self.by_agent:
            return await self.record([self.deletion(hpa, uid) for hpa, uid in gone.items()], must_arrive=False)
        late = await until_reported(self.session, dict.fromkeys(gone, ""))
        for hpa in gone:
            if hpa not in late:
                self.session.out(f"native HPA {hpa} deleted")
        if late:
            agent = f"the agent of cluster {late[0].cluster}"
            reported = f"{agent} has not reported that {late[0]} is gone: nothing scales it until then"
            self.session.warn(f"{reported}. Next: fleethpa get clusters {late[0].cluster}")
        return PARTIAL if late else OK

    async def delete(self, hpa: HpaId, uid: str) -> None:
        """Delete this very native object: a newer one of the same name stays.

        Raises CommandError: it could not be deleted (exit 3).
        """
        try:
            await self.hpas.delete(hpa.namespace, hpa.name, uid=uid)
        except ClusterError as error:
            raise unreachable(
                f"the native HPA {hpa} was not deleted: {error}",
                cause="The central HPA exists, but writes nothing while the native one exists.",
                next_step=f"kubectl --context {hpa.cluster} delete hpa {hpa.name} -n {hpa.namespace}",
            ) from error

    def deletion(self, hpa: HpaId, uid: str, reason: str = "adopted by fleethpa") -> PlannedRecord:
        """The record that a native object was deleted."""
        body = AutoscalerDeleted(name=hpa.name, uid=uid, author=self.author, reason=reason)
        return about(hpa, f"native HPA {hpa} deleted", body)


def about(hpa: HpaId, subject: str, body: Body, *also: Body) -> PlannedRecord:
    """A record about one HPA; `subject`: how it is shown to the user."""
    return PlannedRecord(subject, body, hpa.cluster, hpa.namespace, also)


# --- the cluster ------------------------------------------------------------------------------------------------------


@contextmanager
def asking(cluster: str, what: str) -> Iterator[None]:
    """Ask an API server; its errors become those of a command.

    Raises CommandError: it refuses `what`, or is not known to be that of the cluster (exit 1), or does not answer (3).
    """
    try:
        yield
    except IdentityError as error:
        raise CommandError(f"cannot {what}: {error}", next_step=f"fleethpa admin clusters check {cluster}") from error
    except ApiError as error:
        step = "run the command again" if error.is_conflict else f"fleethpa admin clusters check {cluster} --enforce"
        raise CommandError(f"cannot {what}: {error}", next_step=step) from error
    except ClusterError as error:
        what = f"cluster {cluster} does not answer: {error}"
        raise unreachable(what, next_step=ask_api_server(cluster)) from error


async def native_objects(hpas: NativeHpas, place: Place) -> dict[HpaId, Json]:
    """The HPA objects that a place means, as its API server has them. Raises as `asking`."""
    with asking(place.cluster, "read the native HPAs"):
        if place.name:
            one = await hpas.get(place.namespace, place.name)
            bodies = [] if one is None else [one]
        else:
            bodies = await hpas.listed(place.namespace)
        with reading("the native HPAs cannot be read"):
            names = {
                HpaId(place.cluster, each["metadata"]["namespace"], each["metadata"]["name"]): each for each in bodies
            }
    return dict(sorted(names.items()))


@asynccontextmanager
async def native_hpas(session: Session, clusters: Iterable[str]) -> AsyncIterator[dict[str, NativeHpas]]:
    """Open the API servers of clusters. Raises CommandError: as `open_clients`."""
    from reconciler.clusters.nativehpas import NativeHpas

    clients = await open_clients(session, clusters)
    try:
        yield {name: NativeHpas(client) for name, client in clients.items()}
    finally:
        for client in clients.values():
            await client.close()


async def open_clients(session: Session, clusters: Iterable[str]) -> dict[str, ClusterClient]:
    """Make the clients of clusters, each of which has to show the UID that its settings state.

    Raises CommandError: the kubeconfig has no context of this name (exit 2), or the brokers cannot be reached (3).
    """
    from reconciler.clusters.client import ClusterClient
    from runtime.records import read_in_force

    configs, names = {each.name: each for each in member_clusters(session.config)}, list(clusters)
    if unknown := [name for name in names if name not in configs]:
        cause = f"{session.config.kubeconfig} has {', '.join(configs) or 'none'}."
        raise usage(f"no context for cluster {unknown[0]}", cause=cause, next_step="add --kubeconfig FILE")
    settings = client_settings(session.config)
    async with connecting(settings.bootstrap_servers):
        in_force = await read_in_force(settings)
    return {name: ClusterClient(configs[name], partial(in_force.cluster_uid, name)) for name in names}


def has_agent(state: FleetState, cluster: str) -> bool:
    """Whether a cluster has an agent: then it alone may record what is observed there, and commands wait for it."""
    view = state.clusters.get(cluster)
    return view is not None and view.has_agent


async def until_reported(session: Session, wanted: Mapping[HpaId, str]) -> list[HpaId]:
    """Wait until the log has these native objects (by uid; empty: none of this name); return those that it has not."""
    ends = time.monotonic() + REPORTED_S
    while wanted:
        async with session.past() as past:
            count = await past.partitions()
            state = await read_state(past, sorted({partition_for(hpa.namespace_key, count) for hpa in wanted}))
        open_ = [hpa for hpa, uid in wanted.items() if _known_uid(state, hpa) != uid]
        if not open_ or time.monotonic() >= ends:
            return open_
        await rest(LOOK_EVERY_S)
    return []


def _known_uid(state: FleetState, hpa: HpaId) -> str:
    namespace = state.namespaces.get((hpa.cluster, hpa.namespace))
    entry = namespace.directory.get(DirectoryKey(hpa.name, "cluster")) if namespace is not None else None
    return entry.uid if entry is not None else ""


def owner_of(native: Mapping[str, Any]) -> str:
    """Name the controller that would create an object again (`ScaledObject/web`); empty: no controller would."""
    owners: Iterable[Mapping[str, Any]] = native["metadata"].get("ownerReferences") or ()
    return next((f"{each['kind']}/{each['name']}" for each in owners if each.get("controller")), "")


# --- the proof that no native controller runs -------------------------------------------------------------------------

WITNESSED: Final = "it wrote the status of the canary HPA"


async def prove_native_absent(
    session: Session, cluster: str, namespace: str, lasting: str, options: WriteOptions
) -> int:
    """Create a canary HPA, look whether anybody writes its status, and record the verdict; return the exit code.

    Args:
        namespace: where the canary is created.
        lasting: how long its status must stay empty, as `45s`.
        options: of a command that writes.

    Raises:
        CommandError: the cluster is not known (exit 4) or has no context (2), refuses (1) or does not answer (3).
    """
    from reconciler.observer.nativecontroller import Canary

    lasts_s = parse_duration_ms(lasting, "--canary-wait") / 1000
    client = (await open_clients(session, [cluster]))[cluster]
    try:
        async with session.past() as past:
            state, present = await read_present(past)
        if cluster not in state.clusters:
            raise no_such_cluster(cluster, state)
        what = f"canary HPA in {namespace} for {lasting}"
        if options.dry_run:
            session.out(f"{cluster}: {what} (dry run)")
            return OK
        session.note(f"{cluster}: {what}, whose target does not exist …")
        with asking(cluster, f"prove anything by a canary HPA in {cluster}"):
            verdict = await Canary(client, namespace, lasts_s, lambda _: None).prove()
    finally:
        await client.close()
    code = await _record_verdict(session, present, cluster, verdict, options._replace(reason=options.reason or what))
    if verdict == "absent":
        return code
    problem = CommandError(
        f"a native HPA controller runs in {cluster}",
        cause=f"{WITNESSED[0].upper()}{WITNESSED[1:]}.",
        next_step=f"fleethpa adopt -C {cluster} -A --dry-run, or switch it off",
    )
    return max(code, session.report(problem))


async def _record_verdict(
    session: Session, present: Present, cluster: str, verdict: Literal["present", "absent"], options: WriteOptions
) -> int:
    """Record whether a native controller runs, after a confirmation where that changes modes or does harm."""
    settings = ClusterSettings(native_controller=verdict, native_evidence=WITNESSED if verdict == "present" else None)
    body = SettingsSet(cluster=cluster, settings=settings, author=session.config.author, reason=options.reason)
    writes = [PlannedRecord(f"settings of {cluster} changed: native-controller={verdict}", body, cluster)]
    foresight = present.foresee(writes)
    all_concerns = concerns("clusters prove-native-absent", foresight, writes)
    asks = needs_agreement(foresight, all_concerns)
    return await change(session, "clusters prove-native-absent", writes, all_concerns, options, asks=asks)
