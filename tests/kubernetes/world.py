"""Two real clusters under the same demand: the native controller scales one of them, with fleethpa in shadow beside it,
and fleethpa alone scales the other.
"""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

from tests.kubernetes.backend import WINDOW_S
from tests.kubernetes.controlplane import CPU_INITIALIZATION_S
from tests.kubernetes.hub import SAME_SETTINGS, Hub, admit, write_kubeconfig
from tests.kubernetes.node import is_ready
from tests.kubernetes.showing import status_of
from tests.kubernetes.site import Site, until
from tests.kubernetes.workloads import HPAS, NAMESPACE, WIDGETS, definition, demand, namespace, wanted, workloads

Json = dict[str, Any]

NAMES: Final = [each["metadata"]["name"] for each in HPAS]
SETTLED_S: Final = 150.0
LONGEST_PERIOD_S: Final = 15
"""Of the scaling policies: upstream's default, and that of the HPAs here."""
_TARGETS: Final = "deployments,statefulsets,replicasets,replicationcontrollers"


@dataclass(frozen=True)
class World:
    """`native`: scaled by its own controller, fleethpa in shadow. `central`: scaled by fleethpa alone."""

    native: Site
    central: Site
    hub: Hub
    tokens: Mapping[str, Path]
    """Cluster → the file with fleethpa's token there."""

    @property
    def sites(self) -> tuple[Site, Site]:
        """Both clusters."""
        return self.native, self.central

    def demand(self, percent: int) -> None:
        """Demand the same in both clusters."""
        for site in self.sites:
            demand(site.backend, percent)

    def settle(self, percent: int) -> None:
        """Wait until all targets have the count at which they come to rest.

        Raises:
            AssertionError: they have not in time; shows what differs, and what fleethpa's parts printed.
        """
        for site in self.sites:
            self.until(partial(is_at, site, percent), partial(_off, site, wanted(percent)))

    def enforce(self) -> None:
        """Wait until the canary has proved that no native controller runs, and all HPAs there are enforced."""
        self.until(lambda: self._native_controller() == "absent", lambda: "the canary's verdict")
        self.until(lambda: self._modes() == {"enforce"}, lambda: f"the HPAs are enforced; modes are {self._modes()}")

    def _native_controller(self) -> str:
        # 5: on a busy machine the log may have been silent for a while.
        found = {each["name"]: each for each in self.hub.items("get", "clusters", codes=(0, 5))}
        return str(found[self.central.name]["settings"].get("nativeController"))

    def _modes(self) -> set[str]:
        return {each["mode"] for each in self.hub.items("get", "hpa", "-A", "-C", self.central.name)}

    def rest(self) -> None:
        """Wait until no policy counts an earlier scaling: by which steps the next goes is then the same everywhere.

        A limit of N pods in 15 s counts from what there was 15 s ago. Which of two clusters still counts the last
        scaling when both are given the next demand would be a matter of how soon each has followed the one before.
        """
        self.until(lambda: all(_is_at_rest(site) for site in self.sites), lambda: "the last scaling is long ago")

    def until(self, found: Callable[[], bool], what: Callable[[], str], timeout_s: float = SETTLED_S) -> None:
        """Wait until something holds; `what` says what does not."""
        try:
            until(found, "", timeout_s, every_s=1.0)
        except AssertionError as error:
            raise AssertionError(f"not within {timeout_s:g} s: {what()}\n{self.hub.tails()}") from error


@contextmanager
def two_clusters(folder: Path, binaries: Path) -> Iterator[World]:
    """Start everything; fleethpa may do in each cluster what it must, and nothing else."""
    with ExitStack() as stack:
        native = stack.enter_context(Site("east", folder / "east", binaries))
        central = stack.enter_context(Site("west", folder / "west", binaries, native=False))
        tokens = {site.name: folder / f"{site.name}.token" for site in (native, central)}
        furnish_all(native, central)
        members = {tokens[site.name]: site for site in (native, central)}
        hub = stack.enter_context(Hub(folder / "hub", write_kubeconfig(folder / "kubeconfig", members)))
        for site in (native, central):
            admit(site, hub.run(*rbac(enforce=site is central)), tokens[site.name])
        hub.start("ingest")
        hub.run("admin", "topics", "engine", "1", "--reason", "first start", "--yes", "--wait", "30s")
        hub.run("settings", "*", *SAME_SETTINGS, "--yes", "--wait", "30s")
        hub.run("settings", central.name, "default-mode=enforce", "--yes", "--wait", "30s")
        hub.start("decider", "--session-timeout", "10")
        hub.start("observer-of-east", "--contexts", native.name)
        hub.start("observer-of-west", "--contexts", central.name, "--prove-native-absent")
        hub.start("reconciler")
        yield World(native, central, hub, tokens)


def rbac(*, enforce: bool) -> list[str]:
    """The command that prints the permissions."""
    return ["admin", "clusters", "rbac", "--for", WIDGETS, *(["--enforce"] if enforce else [])]


def furnish_all(*sites: Site) -> None:
    """Furnish clusters at the same time: most of it is waiting until pods are no longer new."""
    with ThreadPoolExecutor() as together:
        for done in [together.submit(furnish, site) for site in sites]:
            done.result()


def furnish(site: Site) -> None:
    """Applications that run, and HPAs of every kind."""
    demand(site.backend, 100)
    site.plane.apply([namespace(), definition(WIDGETS, "Widget"), definition("scaledobjects.keda.sh", "ScaledObject")])
    site.plane.kubectl("wait", "--for=condition=Established", "crd", "--all")
    site.plane.start_controllers()  # a controller manager learns of new kinds every 30 s, and at its start
    site.plane.apply(workloads())
    until(partial(_are_settled, site), "the pods of all targets are ready, and no longer new")
    site.plane.apply(HPAS)


def _are_settled(site: Site) -> bool:
    """Whether all pods are there, and so old that their CPU counts: else the first syncs find nothing to go by."""
    pods = site.plane.objects("pods", NAMESPACE)
    owners = [each for each in site.plane.objects(_TARGETS, NAMESPACE) if not each["metadata"].get("ownerReferences")]
    wanted_pods = sum(each["spec"]["replicas"] for each in owners) + sum(
        each["spec"]["replicas"] for each in site.plane.objects(WIDGETS, NAMESPACE)
    )
    newest = _time_ago(CPU_INITIALIZATION_S + WINDOW_S)
    return len(pods) == wanted_pods and all(is_ready(pod) and pod["status"]["startTime"] < newest for pod in pods)


def counts(site: Site) -> dict[str, int]:
    """What the specs of all targets ask for."""
    found = site.plane.objects(f"{_TARGETS},{WIDGETS}", NAMESPACE)
    return {each["metadata"]["name"]: each["spec"]["replicas"] for each in found if each["metadata"]["name"] in NAMES}


def _is_at_rest(site: Site) -> bool:
    latest: str = max((hpa.get("status") or {}).get("lastScaleTime", "") for hpa in site.hpas(NAMESPACE).values())
    return latest < _time_ago(LONGEST_PERIOD_S + 1)


def _time_ago(seconds: int) -> str:
    return (datetime.now(UTC) - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def shown(site: Site) -> dict[str, Json]:
    """The status of every HPA, without what differs from run to run."""
    return {name: status_of(hpa) for name, hpa in site.hpas(NAMESPACE).items()}


def is_at(site: Site, percent: int) -> bool:
    """Whether all targets have the count at which they come to rest."""
    return counts(site) == wanted(percent)


def _off(site: Site, right: Mapping[str, int]) -> str:
    found = counts(site)
    return f"{site.name}: " + ", ".join(
        f"{name} has {found.get(name)}, not {count}" for name, count in right.items() if found.get(name) != count
    )
