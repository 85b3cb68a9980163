"""docs/shadow-to-enforce.md, walked on a real cluster: every command of it, word for word, in its order."""

import os
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from tests.kafka.fleet import Part
from tests.kit.documented import ROOT, blocks
from tests.kubernetes.backend import Demand
from tests.kubernetes.hub import HOME, USER, Hub
from tests.kubernetes.site import Site, until
from tests.kubernetes.workloads import WIDGETS, definition, deployment, external, hpa, resource, widget

Json = dict[str, Any]

PAGE: Final = "docs/shadow-to-enforce.md"
CLUSTER: Final = "prod-eu"
SHOP, OFFICE = "shop", "office"
NO_IS_AN_ANSWER: Final = "fleethpa shadow-report"
"""It ends with 1 until there has been enough to compare, which takes longer than a test."""
_HEADING = re.compile(r"## (?:\d+\. )?(.*)")
_AT_ONCE: Final = {"scaleDown": {"stabilizationWindowSeconds": 0}}


def sections() -> dict[str, list[str]]:
    """The commands under each heading, which is named without its number."""
    lines = (ROOT / PAGE).read_text(encoding="utf-8").splitlines()
    headings = {number: found[1] for number, line in enumerate(lines, 1) if (found := _HEADING.match(line))}
    commands: dict[str, list[str]] = {heading: [] for heading in headings.values()}
    for each in blocks(PAGE):
        commands[headings[max(number for number in headings if number < each.line)]].append(each.text)
    return commands


COMMANDS: Final = sections()


class Walk:
    """One cluster with the native controller, and who walks from shadow to enforce in it."""

    def __init__(self, site: Site, hub: Hub, folder: Path, binaries: Path) -> None:
        self.site, self.hub, self.folder = site, hub, folder
        self._environ = hub.environ | {
            "HOME": str(folder),
            "KUBECONFIG": str(site.plane.kubeconfig),
            "PATH": f"{binaries}{os.pathsep}{hub.environ['PATH']}",
        }
        del self._environ["FLEETHPA_KUBECONFIG"]

    def carry_out(self, command: str) -> str:
        """Run one command of the page; a part of fleethpa runs on, and takes the place of the one that was there."""
        if command.startswith("fleethpa run "):
            self._start(command)
            return ""
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            capture_output=True,
            text=True,
            cwd=self.folder,
            env=os.environ | self._environ,
            check=False,
        )
        codes = (0, 1) if command.startswith(NO_IS_AN_ANSWER) else (0,)
        stated = f"{command}\nended with {done.returncode}:\n{done.stdout}\n{done.stderr}\n{self.hub.tails()}"
        assert done.returncode in codes, stated
        return done.stdout

    def _start(self, command: str) -> None:
        _, *arguments = shlex.split(command)
        name = arguments[1]
        self.end(name)
        part = Part(name, arguments, self.folder, self._environ, cwd=self.folder)
        self.hub.parts[name] = part
        before = part.output.stat().st_size if part.output.exists() else 0
        part.start()
        until(lambda: f"{name} is running" in part.stated(before), f"{name} runs", 60.0)

    def end(self, name: str) -> None:
        """End a part in order, if it runs."""
        if (part := self.hub.parts.pop(name, None)) is not None:
            part.running.terminate()
            assert part.running.wait(60.0) == 0, part.tail()

    def demand(self, percent: int) -> None:
        """At 100 two replicas are right for each HPA, at 200 four, and so on."""
        for namespace in (SHOP, OFFICE):
            self.site.backend.demands[namespace, "web"] = Demand(cpu_milli=max(0, 2 * percent - 10))
            self.site.backend.external[namespace, "queue"] = 2 * percent

    def settle(self, percent: int, *names: tuple[str, str, str]) -> None:
        """Demand so much, and wait until these targets (namespace, resource, name) have what they want."""
        self.demand(percent)
        right = {0: 1, 100: 2, 200: 4, 400: 8}[percent]
        for target in names:
            until(partial(self._has, target, right), f"{target} has {right} replicas", 90.0)

    def _has(self, target: tuple[str, str, str], replicas: int) -> bool:
        return self.site.replicas(*target) == replicas

    def modes(self) -> dict[str, str]:
        """HPA → mode, as `fleethpa get hpa` shows it."""
        found = self.hub.items("get", "hpa", "-A")
        return {f"{each['metadata']['namespace']}/{each['metadata']['name']}": each["mode"] for each in found}

    def verdict(self) -> str:
        """What fleethpa knows of the native controller."""
        (found,) = self.hub.items("get", "clusters")
        return str(found["settings"].get("nativeController"))


WEB, WIDGET, OFFICE_WEB = (SHOP, "deployment", "web"), (SHOP, WIDGETS, "sorter"), (OFFICE, "deployment", "web")
ALL: Final = (WEB, WIDGET, OFFICE_WEB)
EVERY_HPA: Final = {"shop/web", "shop/sorter", "office/web"}


def _observed(walk: Walk) -> None:
    until(lambda: set(walk.modes()) == EVERY_HPA, "all HPAs are seen", 60.0)


def _native_scaled(walk: Walk) -> None:
    assert set(walk.modes().values()) == {"shadow"}
    walk.settle(0, *ALL)


def _native_off(walk: Walk) -> None:
    walk.site.plane.set_native(False)


def _proven(walk: Walk) -> None:
    until(lambda: walk.verdict() == "absent", "the canary's verdict", 120.0, every_s=2.0)


def _shop_enforced(walk: Walk) -> None:
    until(lambda: walk.modes() == dict.fromkeys(EVERY_HPA, "enforce") | {"office/web": "shadow"}, "shop is enforced")
    walk.settle(200, WEB, WIDGET)
    assert walk.site.replicas(*OFFICE_WEB) == 1


def _all_enforced(walk: Walk) -> None:
    until(lambda: set(walk.modes().values()) == {"enforce"}, "all are enforced")
    walk.settle(200, OFFICE_WEB)


def _back(walk: Walk) -> None:
    until(lambda: set(walk.modes().values()) == {"shadow"}, "none is enforced any more")
    walk.site.plane.set_native(True)
    # On in the direction of before: who undoes at once what another has just done looks like a fight.
    walk.settle(400, *ALL)


def _adopted(walk: Walk) -> None:
    assert "web" not in walk.site.hpas(SHOP)
    assert walk.modes()["shop/web"] == "enforce"
    walk.settle(0, *ALL)


def _native_again(walk: Walk) -> None:
    assert "web" in walk.site.hpas(SHOP)
    walk.settle(200, *ALL)


def _parts_ended(walk: Walk) -> None:
    for name in ("observer", "reconciler"):
        walk.end(name)


def _nothing_left(walk: Walk) -> None:
    plane = walk.site.plane
    assert plane.kubectl("auth", "can-i", "list", "pods", "--as", USER, check=False).strip() == "no"
    assert plane.kubectl("get", "namespace", HOME, "--ignore-not-found") == ""


BEFORE: Final[dict[tuple[str, str], Callable[[Walk], None]]] = {
    ("Shadow", "fleethpa get clusters"): _observed,
    ("Shadow", "fleethpa shadow-report"): _native_scaled,
    ("Switch the native controller off", "fleethpa run observer"): _native_off,
    ("Switch the native controller off", "fleethpa get clusters"): _proven,
    ("Adopt: where the native controller stays", "fleethpa release"): _adopted,
    ("Leave", "fleethpa admin clusters rbac"): _parts_ended,
}
"""What happens, or is waited for, before a command (named by its beginning) under a heading."""
AFTER: Final[dict[str, Callable[[Walk], None]]] = {
    "The first namespace": _shop_enforced,
    "The whole cluster": _all_enforced,
    "Back": _back,
    "Adopt: where the native controller stays": _native_again,
    "Leave": _nothing_left,
}
"""What must hold when all commands under a heading have run."""


@pytest.fixture(scope="module")
def walk(binaries: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Walk]:
    folder = tmp_path_factory.mktemp("walk")
    with ExitStack() as stack:
        site = stack.enter_context(Site(CLUSTER, folder / CLUSTER, binaries))
        hub = stack.enter_context(Hub(folder / "hub", site.plane.kubeconfig))
        home = folder / "home"
        home.mkdir()
        walk = Walk(site, hub, home, binaries)
        walk.demand(100)
        site.plane.apply([definition(WIDGETS, "Widget")])
        site.plane.kubectl("wait", "--for=condition=Established", f"crd/{WIDGETS}")
        site.plane.apply(manifests())
        hub.start("ingest")
        hub.run("admin", "topics", "engine", "1", "--reason", "first start", "--yes", "--wait", "30s")
        hub.start("decider", "--session-timeout", "10")
        yield walk


def manifests() -> list[Json]:
    """Namespaces, applications and HPAs of the page."""
    cpu = resource("cpu", averageUtilization=50)
    web = [deployment("web"), hpa("web", cpu, behavior=_AT_ONCE)]
    queue = external("queue", averageValue="100")
    sorter = [widget("sorter"), hpa("sorter", queue, target=("example.com/v1", "Widget"), behavior=_AT_ONCE)]
    placed = [(SHOP, each) for each in (*web, *sorter)] + [(OFFICE, each) for each in web]
    named = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in (SHOP, OFFICE)]
    return [*named, *(each | {"metadata": each["metadata"] | {"namespace": name}} for name, each in placed)]


@pytest.mark.parametrize("heading", COMMANDS)
def test_every_command_of_the_page_does_what_it_says(walk: Walk, heading: str) -> None:
    for command in COMMANDS[heading]:
        for (where, beginning), act in BEFORE.items():
            if where == heading and command.startswith(beginning):
                act(walk)
        walk.carry_out(command)
    if heading in AFTER:
        AFTER[heading](walk)


def test_every_event_that_is_waited_for_is_on_the_page() -> None:
    assert set(AFTER) <= set(COMMANDS)
    for heading, beginning in BEFORE:
        assert any(command.startswith(beginning) for command in COMMANDS[heading]), (heading, beginning)
