"""`python -m tests.kubernetes.acceptance`: two real clusters from shadow to enforce and through troubles, as a table.

Cluster `push` is connected by kubeconfig, cluster `pull` by an agent. Both keep their native controller. First that
scales, with fleethpa in shadow beside it; then all HPAs are adopted and get the same demands again, and what fleethpa
shows is compared with what the native controller showed. fleethpa has the permissions that its commands print.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import yaml

from reconciler.clusters.manifests import AGENT, AgentPlace, agent_manifests
from reconciler.core.objects import STAND_IN_LABEL
from schemas.agents import AgentSet
from tests.kubernetes import binaries
from tests.kubernetes.access import granted, refused, used
from tests.kubernetes.agents import AgentReplicas, register
from tests.kubernetes.controlplane import DOWNSCALE_STABILIZATION_S, SYNC_PERIOD_S, kubeconfig
from tests.kubernetes.hub import HOME, SAME_SETTINGS, USER, Hub, admit, give_token, write_kubeconfig
from tests.kubernetes.showing import kinds_of, leaves, pages, rescales_of, status_of
from tests.kubernetes.site import Site, until
from tests.kubernetes.workloads import BROKEN, HPAS, NAMESPACE, TO_MAXIMUM, WIDGETS, demand, deployment, wanted
from tests.kubernetes.world import NAMES, counts, furnish_all, is_at, rbac, shown

Json = dict[str, Any]

PUSH, PULL = "push", "pull"
REGISTERED: Final = AgentSet(cluster=PULL, incarnation=1)
AGENT_USER: Final = f"system:serviceaccount:{HOME}:{AGENT}"
USERS: Final = {PUSH: USER, PULL: AGENT_USER}
TOKEN: Final = "first"
HUB_PARTS: Final = ("ingest", "decider", "router", "observer", "reconciler")
SETTLED_S: Final = 600.0
QUIET_S: Final = DOWNSCALE_STABILIZATION_S + 2 * SYNC_PERIOD_S
"""A status that did not change for this time stays as it is: no recommendation is kept longer."""
HELD_S: Final = 4 * SYNC_PERIOD_S
ADOPTED: Final = [name for name in NAMES if name != "no-target"]
"""Whose target can bear events."""


@dataclass(frozen=True)
class Shown:
    """What a cluster shows of its HPAs at rest: status by name, and the lines of `kubectl describe hpa`."""

    status: Mapping[str, Json]
    pages: Mapping[str, list[str]]


def differences(native: Shown, ours: Shown) -> list[str]:
    """Every field and line that differs, with both values."""
    found = []
    for name, status in native.status.items():
        theirs, own = leaves(status), leaves(ours.status.get(name) or {})
        found += [
            f"{name}{path}: native {theirs.get(path)!r}, fleethpa {own.get(path)!r}"
            for path in sorted(theirs.keys() | own.keys())
            if theirs.get(path) != own.get(path)
        ]
    for name, lines in native.pages.items():
        own_lines = ours.pages.get(name, [])
        found += [f"{name}: only native prints {line!r}" for line in lines if line not in own_lines]
        found += [f"{name}: only fleethpa prints {line!r}" for line in own_lines if line not in lines]
    return found


@dataclass
class Walk:
    """The clusters, the hub, and what was seen so far."""

    sites: Mapping[str, Site]
    hub: Hub
    agents: AgentReplicas
    tokens: Mapping[str, Path]
    manifests: list[Json]
    """Of the agent."""
    operator: Path
    """The kubeconfig of who adopts: fleethpa itself has no such rights."""
    native: dict[tuple[str, int], Shown] = field(default_factory=dict)
    """Cluster and demand → what was shown while the native controller scaled."""
    native_events: dict[str, list[Json]] = field(default_factory=dict)
    native_kinds: dict[str, dict[str, set[tuple[str, ...]]]] = field(default_factory=dict)
    first_events: dict[str, list[Json]] = field(default_factory=dict)
    """Events since the adoption: of one that comes all the time the recorder soon drops most, as native's does."""
    missed: dict[str, Json] = field(default_factory=dict)
    """What native shows of an HPA whose target is deleted."""
    away: list[tuple[str, str]] = field(default_factory=list)
    """Spans of time (RFC 3339) in which requests were refused on purpose."""

    # --- demand -------------------------------------------------------------------------------------------------------

    def settle(self, percent: int, *names: str) -> None:
        """Demand the same in these clusters (default: both), and wait until all targets have what they then want."""
        for name in names or self.sites:
            demand(self.sites[name].backend, percent)
        right = wanted(percent)
        for name in names or self.sites:
            site = self.sites[name]
            self.until(partial(is_at, site, percent), partial(_off, site, right))

    def until(self, found: Callable[[], object], what: Callable[[], str], timeout_s: float = SETTLED_S) -> None:
        """Wait until something holds; `what` says what does not."""
        try:
            until(found, "", timeout_s, every_s=1.0)
        except AssertionError as error:
            raise AssertionError(f"not within {timeout_s:g} s: {what()}") from error

    def rest(self, statuses: Callable[[], object]) -> None:
        """Wait until what is shown has not changed for a while."""
        last, since = statuses(), time.monotonic()
        deadline = since + SETTLED_S
        while time.monotonic() - since < QUIET_S:
            assert time.monotonic() < deadline, "the statuses never rest"
            time.sleep(1.0)  # between two looks at the clusters; bounded by the deadline
            if (now := statuses()) != last:
                last, since = now, time.monotonic()

    # --- what is shown ------------------------------------------------------------------------------------------------

    def native_statuses(self) -> dict[str, Mapping[str, Json]]:
        """The status of every native HPA, by cluster."""
        return {name: shown(site) for name, site in self.sites.items()}

    def central_statuses(self) -> dict[str, Mapping[str, Json]]:
        """The status of every HPA as fleethpa shows it, by cluster."""
        found: dict[str, dict[str, Json]] = {name: {} for name in self.sites}
        for each in self.hub.items("get", "hpa", "-A", codes=(0, 5)):
            found[each["cluster"]][each["metadata"]["name"]] = status_of(each)
        return {name: statuses for name, statuses in found.items()}

    def central(self, cluster: str) -> Shown:
        """What fleethpa shows of a cluster."""
        described = self.hub.run("describe", "-n", NAMESPACE, "-C", cluster)
        return Shown(self.central_statuses()[cluster], pages(described))

    def note_native(self, percent: int) -> None:
        """Keep what native shows at rest under a demand."""
        self.rest(self.native_statuses)
        for name, site in self.sites.items():
            described = site.plane.kubectl("describe", "hpa", "-n", NAMESPACE)
            self.native[name, percent] = Shown(shown(site), pages(described))

    def compare(self, percent: int) -> str:
        """Compare what fleethpa shows with what native showed; how much that was."""
        fields = lines = 0
        for cluster in self.sites:
            native = self.native[cluster, percent]
            found = partial(self._differences, cluster, percent)
            self.until(partial(_is_empty, found), partial(_lines, found), 120.0)
            fields += sum(len(leaves(status)) for status in native.status.values())
            lines += sum(map(len, native.pages.values()))
        return f"{fields} status fields and {lines} lines of describe are the same"

    def _differences(self, cluster: str, percent: int) -> list[str]:
        found = differences(self.native[cluster, percent], self.central(cluster))
        return [f"{cluster} at {percent} %: {each}" for each in found]

    def forget_events(self) -> None:
        """Delete all Events."""
        for site in self.sites.values():
            site.plane.kubectl("delete", "events", "--all", "-n", NAMESPACE)

    def modes(self, cluster: str) -> set[tuple[str, str]]:
        """Origin and mode of the HPAs."""
        return {(each["origin"], each["mode"]) for each in self.hub.items("get", "hpa", "-A", "-C", cluster)}

    def requests(self, cluster: str) -> list[Json]:
        """What fleethpa asked an API server for, but while that refused on purpose."""
        return [
            each
            for each in self.sites[cluster].plane.audit(USERS[cluster])
            if not any(begin <= each["requestReceivedTimestamp"] <= end for begin, end in self.away)
        ]

    @contextmanager
    def refusing(self) -> Iterator[None]:
        """What is refused meanwhile is meant to be."""
        begin = _now()
        try:
            yield
        finally:
            self.away.append((begin, _now()))


def _off(site: Site, right: Mapping[str, int]) -> str:
    found = counts(site)
    wrong = [name for name, count in right.items() if found.get(name) != count]
    return f"{site.name}: " + ", ".join(f"{name} has {found.get(name)}, not {right[name]}" for name in wrong)


def _is_empty(found: Callable[[], list[str]]) -> bool:
    return not found()


def _lines(found: Callable[[], list[str]]) -> str:
    return "\n".join(found())


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


# --- the steps --------------------------------------------------------------------------------------------------------


def shadow(walk: Walk, minutes: float) -> str:
    """Shadow beside the native controller, under changing demand."""
    begun, cycles = time.monotonic(), 0
    walk.note_native(100)
    while not cycles or time.monotonic() - begun < 60 * minutes:
        for percent in (200, 0):
            walk.settle(percent)
        cycles += 1
    for name, site in walk.sites.items():
        events = site.plane.objects("events", NAMESPACE)
        walk.native_kinds[name] = {each: kinds_of(events, each) for each in BROKEN}
    walk.rest(walk.native_statuses)
    lasted = (time.monotonic() - begun) / 60
    return f"{len(NAMES)} HPAs in each cluster, {lasted:.1f} min, {cycles} times up and down; {_unexplained(walk)}"


def _unexplained(walk: Walk) -> str:
    reports = walk.hub.items("shadow-report", "-A", "--since", "1h", codes=(0, 1))
    assert len(reports) == len(walk.sites) * len(NAMES), [report["name"] for report in reports]
    wrong = [report for report in reports if report["counts"]["semantics"]]
    assert not wrong, json.dumps(wrong, indent=1)
    compared = sum(report["decisions"] for report in reports)
    assert all(report["decisions"] >= 10 or report["name"] == "no-target" for report in reports), reports
    return f"{compared} decisions compared, none differs without a reason"


def native_answers(walk: Walk) -> str:
    """What the native controller gives for the demands that fleethpa gets later."""
    # A recorder of Events writes 25 of an object, and one every five minutes after that (client-go, spamFilter). In
    # shadow the native controller has used them up; fleethpa has not. A controller manager that was started anew has
    # all of them again.
    for site in walk.sites.values():
        site.plane.start_controllers()
    walk.forget_events()
    for percent in (200, 0, 200):
        walk.settle(percent)
        walk.note_native(percent)
    for name, site in walk.sites.items():
        walk.native_events[name] = site.plane.objects("events", NAMESPACE)
    for name, status in _without_target(walk, walk.native_statuses).items():
        walk.missed[name] = status
    walk.settle(0)
    return "status, Events and describe kept for 200 %, 0 %, 200 % and a deleted target"


def _without_target(walk: Walk, statuses: Callable[[], Mapping[str, Mapping[str, Json]]]) -> dict[str, Json]:
    """Delete a target; the status of its HPA then, by cluster. The target is there again afterwards."""
    for site in walk.sites.values():
        site.plane.kubectl("delete", "deployment", "cpu", "-n", NAMESPACE)

    def reasons() -> set[str]:
        conditions = [each for found in statuses().values() for each in found["cpu"].get("conditions", ())]
        return {each["reason"] for each in conditions if each["type"] == "AbleToScale"}

    walk.until(lambda: reasons() == {"FailedGetScale"}, lambda: f"the target is missed: {reasons()}")
    found = {name: dict(each["cpu"]) for name, each in statuses().items()}
    for site in walk.sites.values():
        site.plane.apply([deployment("cpu")])
    walk.until(lambda: reasons() != {"FailedGetScale"}, lambda: f"the target is back: {reasons()}")
    return found


def adopt(walk: Walk) -> str:
    """Give fleethpa the permission to write, and all HPAs."""
    push, hub = walk.sites[PUSH].plane, walk.hub
    push.kubectl("apply", "-f", "-", stdin=hub.run(*rbac(enforce=True)))
    hub.run("admin", "clusters", "check", PUSH, "--enforce")
    hub.start("reconciler")
    before = {name: counts(site) for name, site in walk.sites.items()}
    for name in walk.sites:
        options = ("--yes", "--reason", "the walk", "--wait", "60s", "--export", str(walk.operator.parent / "saved"))
        hub.run("adopt", "-C", name, "-n", NAMESPACE, *options, "--kubeconfig", str(walk.operator))
    for name, site in walk.sites.items():
        walk.until(partial(_is_adopted, walk, name), partial(_modes, walk, name))
        assert not site.hpas(NAMESPACE)
        assert counts(site) == before[name], f"{name}: a replica moved"
    return f"{len(walk.sites) * len(NAMES)} HPAs are fleethpa's, and no replica moved"


def _is_adopted(walk: Walk, cluster: str) -> bool:
    return walk.modes(cluster) == {("central", "enforce")}


def _modes(walk: Walk, cluster: str) -> str:
    return f"{cluster}: {walk.modes(cluster)}"


def same_answers(walk: Walk) -> str:
    """The same demands once more: replicas, status and describe are as native gave them."""
    walk.rest(walk.central_statuses)
    for name, site in walk.sites.items():
        walk.first_events[name] = site.plane.objects("events", NAMESPACE)
    walk.forget_events()
    stated = ""
    for percent in (200, 0, 200):
        walk.settle(percent)
        walk.rest(walk.central_statuses)
        stated = walk.compare(percent)
    return f"at 200 %, 0 %, 200 %: replicas, and each time {stated}"


def same_events(walk: Walk) -> str:
    """The Events are as native gave them."""
    compared = 0
    kinds = {each["metadata"]["name"]: each["spec"]["scaleTargetRef"]["kind"] for each in HPAS}
    for cluster, site in walk.sites.items():
        events = site.plane.objects("events", NAMESPACE)
        for name in ADOPTED:
            if name in BROKEN:
                ours, native = kinds_of(walk.first_events[cluster], name, kinds[name]), walk.native_kinds[cluster][name]
                assert ours == native, f"{cluster}/{name}: native {native}, fleethpa {ours}"
                compared += len(native)
            elif name not in TO_MAXIMUM:
                # An Event that is counted up keeps the time at which it was first seen, so that order says nothing.
                ours_, native_ = (sorted(rescales_of(found, name)) for found in (events, walk.native_events[cluster]))
                assert ours_ == native_, f"{cluster}/{name}: native {native_}, fleethpa {ours_}"
                compared += len(native_)
    return f"{compared} Events are the same (type, reason, message)"


def target_deleted(walk: Walk) -> str:
    """A target is deleted and comes back."""
    walk.rest(walk.central_statuses)  # as it was natively: no pod is new
    found = _without_target(walk, walk.central_statuses)
    for name, status in found.items():
        wrong = [path for path, value in leaves(walk.missed[name]).items() if leaves(status).get(path) != value]
        assert not wrong, f"{name}: native {walk.missed[name]}, fleethpa {status}"
    walk.settle(200)
    return "its HPA shows what native showed; scaled again when it is back"


def rolling_update(walk: Walk) -> str:
    """The real Deployment controller replaces all pods."""
    for site in walk.sites.values():
        site.plane.kubectl("set", "image", "deployment/cpu", "server=shop:2", "-n", NAMESPACE)
    for site in walk.sites.values():
        until(partial(_is_rolled, site), "the update is through", 120.0, every_s=0.2)
    return "4 replicas all the time"


def _is_rolled(site: Site) -> bool:
    live = json.loads(site.plane.kubectl("get", "deployment", "cpu", "-n", NAMESPACE, "-o", "json"))
    assert live["spec"]["replicas"] == 4, f"{site.name}: {live['spec']['replicas']} replicas"
    status = live["status"]
    new = status["updatedReplicas"] if status["observedGeneration"] == live["metadata"]["generation"] else 0
    return {new, status["replicas"], status.get("readyReplicas", 0)} == {4}


def custom_resource(walk: Walk) -> str:
    """A custom resource is scaled through its scale subresource."""
    has = {name: counts(site)["widget"] for name, site in walk.sites.items()}
    assert set(has.values()) == {4}, has
    return f"{WIDGETS} is scaled like the others"


def api_server_restarted(walk: Walk) -> str:
    """Both API servers crash and come back."""
    with walk.refusing():  # until it has read the roles, an API server that starts refuses everybody
        for site in walk.sites.values():
            site.plane.kill_api_server()
        for site in walk.sites.values():
            site.plane.start_api_server()
    walk.settle(0)
    return "followed again"


def token_rotated(walk: Walk) -> str:
    """The tokens are replaced, and the old ones die."""
    for name, site in walk.sites.items():
        give_token(site, "second", walk.tokens[name], USERS[name].rpartition(":")[2])
        site.plane.kubectl("delete", "secret", TOKEN, "-n", HOME)
    walk.settle(200)
    return "the new ones are used"


def agent_killed(walk: Walk) -> str:
    """The leading replica of the agent is killed."""
    first = walk.agents.leader()
    walk.hub.parts[first].kill()
    begun = time.monotonic()
    walk.until(lambda: walk.agents.leader() not in ("", first), lambda: "the other replica leads", 60.0)
    after = time.monotonic() - begun
    walk.settle(0)
    walk.agents.start([first])
    return f"the other one leads after {after:.0f} s"


def hub_killed(walk: Walk) -> str:
    """Everything of the hub is killed: the pull cluster scales by itself, the push cluster keeps its replicas."""
    for name in HUB_PARTS:
        walk.hub.parts[name].kill()
    begun = time.monotonic()
    pull, push = walk.sites[PULL], walk.sites[PUSH]
    walk.until(lambda: _stand_ins(pull) >= set(NAMES) - BROKEN, lambda: f"native HPAs of the agent: {_stand_ins(pull)}")
    after = time.monotonic() - begun
    held = counts(push)
    walk.settle(200, PULL)
    demand(push.backend, 200)
    assert counts(push) == held, _off(push, held)
    for name in HUB_PARTS:
        walk.hub.parts[name].start()
    begun = time.monotonic()
    walk.until(lambda: not pull.hpas(NAMESPACE), lambda: f"still native: {sorted(pull.hpas(NAMESPACE))}")
    back = time.monotonic() - begun
    walk.settle(200)
    walk.settle(0)
    return f"pull: native after {after:.0f} s, back {back:.0f} s after the hub; push: held"


def _stand_ins(site: Site) -> set[str]:
    natives = site.hpas(NAMESPACE)
    return {name for name, each in natives.items() if STAND_IN_LABEL in (each["metadata"].get("labels") or {})}


def access_revoked(walk: Walk) -> str:
    """The permissions are taken away and given back."""
    with walk.refusing():
        for site in walk.sites.values():
            site.plane.kubectl("delete", "clusterrolebinding", "fleethpa")

        for cluster in walk.sites:
            walk.until(partial(_all_troubled, walk, cluster), partial(_troubled, walk, cluster))
        held = {name: counts(site) for name, site in walk.sites.items()}
        for site in walk.sites.values():
            demand(site.backend, 200)
        time.sleep(HELD_S)  # that nothing happens has no event to wait for: replicas must not move for this time
        assert {name: counts(site) for name, site in walk.sites.items()} == held, "replicas moved without access"
        push, pull = (walk.sites[name].plane for name in (PUSH, PULL))
        push.kubectl("apply", "-f", "-", stdin=walk.hub.run(*rbac(enforce=True)))
        pull.apply([each for each in walk.manifests if each["kind"] != "Deployment"])
    walk.settle(200)
    return "reported of every HPA, replicas held; used again when given back"


def _all_troubled(walk: Walk, cluster: str) -> bool:
    return set(_troubled(walk, cluster).split(" ")) >= set(NAMES)


def _troubled(walk: Walk, cluster: str) -> str:
    found = walk.hub.items("get", "hpa", "-A", "-C", cluster, "--problem", codes=(0, 5))
    return " ".join(sorted(each["metadata"]["name"] for each in found))


def least_access(walk: Walk) -> str:
    """The audit logs: nothing refused, nothing asked for that is not granted."""
    roles = {
        PUSH: list(yaml.safe_load_all(walk.hub.run(*rbac(enforce=True)))),
        PULL: [each for each in walk.manifests if each["kind"] in ("Role", "ClusterRole")],
    }
    asked = 0
    for name in walk.sites:
        events = walk.requests(name)
        asked += len(events)
        assert not refused(events), f"{name}: {refused(events)}"
        assert not used(events) - granted(roles[name]), f"{name}: {used(events) - granted(roles[name])}"
    return f"no 403 in {asked} requests but while access was away"


AFTER_SHADOW: Final[Mapping[str, Callable[[Walk], str]]] = {
    "native answers": native_answers,
    "adopt": adopt,
    "status, describe": same_answers,
    "Events": same_events,
    "custom resource": custom_resource,
    "rolling update": rolling_update,
    "target deleted": target_deleted,
    "API server restarted": api_server_restarted,
    "token rotated": token_rotated,
    "agent killed": agent_killed,
    "hub killed": hub_killed,
    "access revoked": access_revoked,
    "least access": least_access,
}
WITHOUT_WHICH_NOTHING: Final = ("shadow", "native answers", "adopt")
"""After one of these has failed, the others would show nothing."""


# --- around them ------------------------------------------------------------------------------------------------------


@contextmanager
def two_ways(folder: Path, built: Path) -> Iterator[Walk]:
    """Both clusters furnished, and fleethpa in shadow beside them."""
    with ExitStack() as stack:
        sites = {name: stack.enter_context(Site(name, folder / name, built)) for name in (PUSH, PULL)}
        furnish_all(*sites.values())
        tokens = {name: folder / f"{name}.token" for name in sites}
        hub = stack.enter_context(
            Hub(folder / "hub", write_kubeconfig(folder / "kubeconfig", {tokens[PUSH]: sites[PUSH]}))
        )
        place = AgentPlace(topics=REGISTERED.topics, image="fleethpa:0", custom=(WIDGETS,))
        manifests = agent_manifests(place)
        admit(sites[PUSH], hub.run(*rbac(enforce=False)), tokens[PUSH])
        sites[PULL].plane.apply([each for each in manifests if each["kind"] != "Deployment"])
        give_token(sites[PULL], TOKEN, tokens[PULL], AGENT)
        hub.start("ingest")
        hub.run("admin", "topics", "engine", "1", "--reason", "first start", "--yes", "--wait", "30s")
        hub.run("settings", "*", *SAME_SETTINGS, "--yes", "--wait", "30s")
        register(hub, REGISTERED)
        hub.start("decider", "--session-timeout", "10")
        hub.start("router")
        hub.start("observer")
        agents = AgentReplicas(
            hub, REGISTERED, write_kubeconfig(folder / "agent.kubeconfig", {tokens[PULL]: sites[PULL]})
        )
        agents.start()
        walk = Walk(sites, hub, agents, tokens, manifests, _operator(folder, sites))
        for name in sites:
            walk.until(partial(_is_in_shadow, walk, name), partial(_known, walk, name))
        yield walk


def _is_in_shadow(walk: Walk, cluster: str) -> bool:
    return _known(walk, cluster) == f"{cluster}: {len(NAMES)} HPAs, shadow"


def _known(walk: Walk, cluster: str) -> str:
    found = walk.hub.items("get", "hpa", "-A", "-C", cluster, codes=(0, 4, 5))
    return f"{cluster}: {len(found)} HPAs, {' '.join(sorted({each['mode'] for each in found}))}"


def _operator(folder: Path, sites: Mapping[str, Site]) -> Path:
    """An administrator's kubeconfig for both clusters."""
    members = {}
    for name, site in sites.items():
        own = json.loads(site.plane.kubeconfig.read_text())
        members[name] = own["clusters"][0]["cluster"], own["users"][0]["user"]
    path = folder / "operator.kubeconfig"
    path.write_text(json.dumps(kubeconfig(members)))
    return path


def main() -> int:
    """Walk, and print each step as it ends; 1 if one of them failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0, help="how long in shadow (default: 5)")
    parser.add_argument("--folder", type=Path, help="where logs are kept (default: a new one in /tmp)")
    asked = parser.parse_args()
    folder: Path = asked.folder or Path(tempfile.mkdtemp(prefix="acceptance-"))
    folder.mkdir(parents=True, exist_ok=True)
    print(f"logs in {folder}", file=sys.stderr, flush=True)
    failed: list[str] = []
    print(f"| {'step':<20} | {'seconds':>7} | {'':<6} | result |\n|---|---|---|---|", flush=True)
    begun = time.monotonic()
    with two_ways(folder, binaries.built()) as walk:
        _print_row("two clusters", begun, "ok", f"{PUSH} by kubeconfig, {PULL} by agent")
        steps = {"shadow": partial(shadow, minutes=asked.minutes)} | dict(AFTER_SHADOW)
        for name, step in steps.items():
            begun = time.monotonic()
            try:
                _print_row(name, begun, "ok", step(walk))
            except AssertionError as error:
                failed.append(name)
                _print_row(name, begun, "FAILED", str(error).splitlines()[0][:200])
                print(f"\n{name}:\n{error}\n{walk.hub.tails()}", file=sys.stderr, flush=True)
                if name in WITHOUT_WHICH_NOTHING:
                    break
    return 1 if failed else 0


def _print_row(step: str, begun: float, outcome: str, result: str) -> None:
    print(f"| {step:<20} | {time.monotonic() - begun:>7.0f} | {outcome:<6} | {result} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
