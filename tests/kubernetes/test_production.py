"""docs/production.md, carried out: Apache Kafka with signing in, the chart on a real API server, and pods that run.

Every command of the numbered headings is typed word for word; `kafka.example.com:9093` is replaced by the broker of the
test, which is one instead of three.
"""

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.kafka import broker
from tests.kafka.broker import KafkaBroker
from tests.kafka.certificates import Authority
from tests.kafka.secured import SCRAM_MODULE, broker_with
from tests.kit.documented import ROOT, blocks
from tests.kubernetes import containers
from tests.kubernetes.access import granted, refused, used
from tests.kubernetes.hub import HOME, SAME_SETTINGS, USER
from tests.kubernetes.site import Site, until
from tests.kubernetes.workloads import BROKEN, NAMESPACE, demand, wanted
from tests.kubernetes.world import NAMES, furnish, is_at

Json = dict[str, Any]

PAGE: Final = "docs/production.md"
CLUSTER: Final = "home"
SERVERS: Final = "kafka.example.com:9093"
WORKING: Final = set(NAMES) - set(BROKEN)
COUNTING_UP: Final = {("", "events", "get"), ("", "events", "patch")}
"""What an Event that is there already needs; `test_troubles` has such ones."""
PATIENT: Final = "broker.session.timeout.ms=9000\n"
"""A machine that runs a whole installation is busy: its broker may be late."""
_HEADING: Final = re.compile(r"## (?:\d+\. )?(.*)")
_NUMBERED: Final = re.compile(r"^## \d+\. (.*)$", re.MULTILINE)
_VALUES: Final = re.compile(r"```yaml\n(.*?)```", re.DOTALL)
_EXEC: Final = re.compile(r"kubectl -n fleethpa-system exec deploy/(\S+) -- (.*)")

ELSEWHERE: Final = {"Brakes"}
"""No part of an installation: tests/unit/cli/test_cli_write.py runs its commands."""

if missing := broker.missing_tools() or containers.missing_tools():
    pytestmark = pytest.mark.skip(reason=f"PRODUCTION NOT TESTED: {missing}")


def sections() -> dict[str, list[str]]:
    """The commands below each heading, but for those that are run elsewhere."""
    lines = (ROOT / PAGE).read_text(encoding="utf-8").splitlines()
    headings = {number: found[1] for number, line in enumerate(lines, 1) if (found := _HEADING.match(line))}
    commands: dict[str, list[str]] = {}
    for each in blocks(PAGE):
        if each.text.strip():
            heading = headings[max(number for number in headings if number < each.line)]
            if heading not in ELSEWHERE:
                commands.setdefault(heading, []).append(each.text)
    return commands


COMMANDS: Final = sections()


class Operator:
    """Who installs fleethpa: a folder with what the page takes for granted, and a terminal in it."""

    def __init__(self, site: Site, kafka: KafkaBroker, folder: Path, helm: str, binaries: Path) -> None:
        self.site, self.kafka, self.folder = site, kafka, folder
        self.minutes: dict[str, float] = {}
        self._environ = {
            "HOME": str(folder),
            "KUBECONFIG": str(site.plane.kubeconfig),
            "PATH": os.pathsep.join([str(folder / "bin"), str(Path(helm).parent), str(binaries), os.environ["PATH"]]),
        }

    def type(self, command: str) -> str:
        """Carry out a command; what it printed.

        Raises:
            AssertionError: it failed; has what it and the pods printed.
        """
        typed = command.replace(SERVERS, self.kafka.bootstrap)
        words: list[str] = []
        if (inside := _EXEC.match(typed)) is not None:
            assert self.site.containers is not None
            words, typed = self._entering(inside[1]), inside[2]
            # The image's entrypoint is on the PATH of its shell, too.
            assert typed.startswith("fleethpa "), command
        done = subprocess.run(
            [*words, "bash", "-euo", "pipefail", "-c", typed],
            capture_output=True,
            text=True,
            cwd=self.folder,
            env=os.environ | self._environ,
            timeout=420,
            check=False,
        )
        stated = f"{command}\nended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
        assert done.returncode == 0, f"{stated}\n{self.logs()}"
        return done.stdout

    def _entering(self, pod: str) -> list[str]:
        """A pod whose process has just ended is started again, on a busy machine a while later."""
        assert self.site.containers is not None
        entering = self.site.containers.entering
        try:
            return until(lambda: entering(pod), f"a process of the pod {pod}", every_s=0.5)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.logs()}") from error

    def inside(self, command: str) -> str:
        """A command of fleethpa in the page's pod."""
        return self.type(f"kubectl -n {HOME} exec deploy/fleethpa-page -- fleethpa {command}")

    def logs(self) -> str:
        """What fleethpa's pods printed last."""
        assert self.site.containers is not None
        return self.site.containers.log_of("fleethpa")

    def modes(self) -> dict[str, str]:
        """HPA → mode."""
        found: list[Json] = yaml.safe_load(self.inside("get hpa -A -o yaml"))["items"]
        return {each["metadata"]["name"]: each["mode"] for each in found}


def _in_shadow(operator: Operator) -> None:
    assert operator.modes() == dict.fromkeys(WORKING, "shadow")
    # Nothing but what the page says is written, and the pods may do what they do.
    assert refused(operator.site.plane.audit(USER)) == []


def _proven(operator: Operator) -> None:
    def verdict() -> str:
        [found] = yaml.safe_load(operator.inside("get clusters -o yaml"))["items"]
        return str(found["settings"].get("nativeController"))

    until(lambda: verdict() == "absent", "the canary's verdict", every_s=3.0)
    operator.inside(f"settings '*' {' '.join(SAME_SETTINGS)} --yes --wait 30s")
    uid = operator.site.plane.kubectl("get", "namespace", "kube-system", "-o", "jsonpath={.metadata.uid}")
    operator.inside(f"settings {CLUSTER} cluster-uid={uid} --yes --wait 30s")


def _enforced(operator: Operator) -> None:
    until(lambda: operator.modes() == dict.fromkeys(WORKING, "enforce"), "all are enforced", every_s=2.0)
    for percent in (200, 0):
        demand(operator.site.backend, percent)
        until(partial(is_at, operator.site, percent), f"replicas at {percent} %: {wanted(percent)}", every_s=2.0)
    _has_least_access(operator)
    _look_at_page(operator)


def _has_least_access(operator: Operator) -> None:
    """Nothing was refused, and all that the chart grants was used; only no Event has come twice here."""
    plane = operator.site.plane
    events = list(plane.audit(USER))
    assert refused(events) == []
    found = plane.kubectl("get", "clusterroles,roles", "-A", "-l", "app.kubernetes.io/instance=fleethpa", "-o", "yaml")
    assert granted(yaml.safe_load(found)["items"]) - used(events) <= COUNTING_UP


def _look_at_page(operator: Operator) -> None:
    assert operator.site.containers is not None
    address = operator.site.containers.address_of("fleethpa-page")
    shown = operator.type(f"curl -sS -H 'Host: localhost' http://{address}:8080/healthz")
    assert shown.strip() == "ok"


def _gone(operator: Operator) -> None:
    plane = operator.site.plane
    kinds = "all,clusterroles,clusterrolebindings,networkpolicies,poddisruptionbudgets"
    label = "app.kubernetes.io/instance=fleethpa"
    assert plane.kubectl("get", kinds, "-A", "-l", label, "-o", "name") == ""
    assert plane.kubectl("get", "namespace", HOME, "--ignore-not-found") == ""
    assert operator.logs() == ""


BEFORE: Final[dict[tuple[str, str], Callable[[Operator], None]]] = {("From shadow to enforce", "mode enforce"): _proven}
"""What is waited for before a command that has these words, under a heading."""
AFTER: Final[dict[str, Callable[[Operator], None]]] = {
    "The hub": _in_shadow,
    "From shadow to enforce": _enforced,
    "Uninstall": _gone,
}
"""What must hold when all commands under a heading have run."""


@pytest.fixture(scope="module")
def operator(binaries: Path, helm: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    folder = tmp_path_factory.mktemp("production")
    home = folder / "home"
    (home / "bin").mkdir(parents=True)
    scram = {"admin": "admin-secret"}
    with ExitStack() as stack:
        kafka, authority = stack.enter_context(broker_with(folder / "kafka", extra=PATIENT, scram=scram))
        site = stack.enter_context(Site(CLUSTER, folder / CLUSTER, binaries, native=False, runs_fleethpa=True))
        furnish(site)
        # What never works has no place in an installation, whose commands wait until all is well.
        site.plane.kubectl("delete", "hpa", "-n", NAMESPACE, *BROKEN)
        made = Operator(site, kafka, home, helm, binaries)
        _prepare(made, authority)
        yield made
        for heading, minutes in made.minutes.items():
            print(f"{heading}: {minutes:.1f} min", file=sys.stderr)


def _prepare(operator: Operator, authority: Authority) -> None:
    """The folder that the page begins in: a checkout, Kafka's tools with the administrator's login, its CA."""
    folder = operator.folder
    (folder / "compose").symlink_to(ROOT / "compose")
    (folder / "kafka-ca.crt").write_bytes(authority.cafile.read_bytes())
    login = f'sasl.jaas.config={SCRAM_MODULE} required username="admin" password="admin-secret";'
    lines = ["security.protocol=SASL_SSL", "sasl.mechanism=SCRAM-SHA-512", login, "ssl.truststore.type=PEM"]
    (folder / "admin.properties").write_text("\n".join([*lines, f"ssl.truststore.location={authority.cafile}", ""]))
    tools = {"kafka-configs.sh": "kafka.admin.ConfigCommand", "kafka-acls.sh": "org.apache.kafka.tools.AclCommand"}
    libraries = f"{broker.fetch_jars()}/*:{broker.fetch_tools()}/*"
    for name, main in tools.items():
        script = folder / "bin" / name
        script.write_text(f'#!/bin/sh\nexec java -Xmx128m -cp "{libraries}" {main} "$@"\n')
        script.chmod(0o755)
    (folder / "values.yaml").write_text(yaml.safe_dump(_values(operator)))


def _values(operator: Operator) -> Json:
    """The page's values, for a broker that is one."""
    found = _VALUES.search((ROOT / PAGE).read_text(encoding="utf-8"))
    assert found is not None
    values: Json = yaml.safe_load(found[1].replace(SERVERS, operator.kafka.bootstrap))
    values["topics"] |= {"replicationFactor": 1, "partitions": 4}
    values["image"]["repository"] = "fleethpa"
    return values


@pytest.mark.timeout(2_400)
def test_every_command_of_the_page_does_what_it_says(operator: Operator) -> None:
    """One test, since what is typed under a heading needs what was typed before: it is run again as a whole, or not."""
    for heading, commands in COMMANDS.items():
        begun = time.monotonic()
        for command in commands:
            for (where, words), act in BEFORE.items():
                if where == heading and words in command:
                    act(operator)
            operator.type(command)
        operator.minutes[heading] = (time.monotonic() - begun) / 60
        if heading in AFTER:
            AFTER[heading](operator)


def test_every_command_is_under_a_numbered_heading() -> None:
    numbered = set(_NUMBERED.findall((ROOT / PAGE).read_text(encoding="utf-8")))
    assert set(COMMANDS) <= numbered
    assert set(AFTER) <= set(COMMANDS)
    for heading, words in BEFORE:
        assert any(words in command for command in COMMANDS[heading]), (heading, words)
