"""fleethpa beside real clusters: every part a process of its own, on the embedded broker, with the least access."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from fleethpa.lab.simulator.broker import EmbeddedBroker
from schemas.topicconfigs import TOPICS
from tests.kafka.fleet import ROOT, Part
from tests.kubernetes.controlplane import (
    CPU_INITIALIZATION_S,
    DOWNSCALE_STABILIZATION_S,
    READINESS_DELAY_S,
    SYNC_PERIOD_S,
    kubeconfig,
)
from tests.kubernetes.site import Site

Json = dict[str, Any]

HOME: Final = "fleethpa-system"
ACCOUNT: Final = "fleethpa"
USER: Final = f"system:serviceaccount:{HOME}:{ACCOUNT}"
SAME_SETTINGS: Final = (
    f"sync-period={SYNC_PERIOD_S}s",
    f"downscale-stabilization={DOWNSCALE_STABILIZATION_S}s",
    f"cpu-initialization-period={CPU_INITIALIZATION_S}s",
    f"initial-readiness-delay={READINESS_DELAY_S}s",
)
"""What the controller manager of the tests is started with, as fleethpa's settings."""


class Hub:
    """The parts of fleethpa and its command line. `environ`: what makes a command reach this hub."""

    def __init__(self, folder: Path, kubeconfig: Path, broker: EmbeddedBroker | None = None) -> None:
        """`broker`: one that is not in this process."""
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.kubeconfig = folder, kubeconfig
        self._broker = broker or EmbeddedBroker()
        self.environ: dict[str, str] = {}
        self.parts: dict[str, Part] = {}

    def __enter__(self) -> Self:
        brokers = self._broker.start()
        self._broker.ensure_topics(topic.name for topic in TOPICS)
        self.environ = {
            "FLEETHPA_BROKERS": brokers,
            "FLEETHPA_KUBECONFIG": str(self.kubeconfig),
            "FLEETHPA_RUNTIME_DIR": str(self.folder),
            "XDG_CONFIG_HOME": str(self.folder),
            "PYTHONUNBUFFERED": "1",
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        }
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for part in self.parts.values():
            part.kill()
        self._broker.stop()

    def ensure_topics(self, *names: str) -> None:
        """Create topics where they are missing."""
        self._broker.ensure_topics(names)

    def start(self, name: str, *options: str) -> Part:
        """Start a part, with these options. Its kind is the name's first word: `observer-of-east`."""
        self.parts[name] = Part(name, ["run", name.partition("-")[0], *options], self.folder, self.environ)
        self.parts[name].start()
        return self.parts[name]

    def run(self, *arguments: str, codes: Sequence[int] = (0,)) -> str:
        """A command of fleethpa; what it printed.

        Raises:
            AssertionError: it ended with another code than those; has all that it printed.
        """
        command = [sys.executable, "-m", "fleethpa", *arguments]
        environ = os.environ | self.environ
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environ, check=False)
        stated = f"fleethpa {' '.join(arguments)} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
        assert done.returncode in codes, stated
        return done.stdout

    def items(self, *arguments: str, codes: Sequence[int] = (0,)) -> list[Json]:
        """What a command lists."""
        listed: list[Json] = json.loads(self.run(*arguments, "-o", "json", codes=codes))["items"]
        return listed

    def tails(self) -> str:
        """The end of what each part printed."""
        return "\n".join(part.tail(1_500) for part in self.parts.values())


def admit(site: Site, rbac: str, token: Path) -> None:
    """Give fleethpa an account in a cluster, with what `admin clusters rbac` printed, and a token in a file."""
    plane = site.plane
    plane.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": HOME}}])
    plane.apply([{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT, "namespace": HOME}}])
    plane.kubectl("apply", "-f", "-", stdin=rbac)
    give_token(site, "first", token)


def give_token(site: Site, secret: str, file: Path, account: str = ACCOUNT) -> None:
    """A token for an account, which is worth nothing any more when the Secret of this name is deleted."""
    site.plane.apply([{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": secret, "namespace": HOME}}])
    bound = ("--bound-object-kind", "Secret", "--bound-object-name", secret)
    file.write_text(site.plane.kubectl("create", "token", account, "-n", HOME, *bound))


def write_kubeconfig(path: Path, tokens: Mapping[Path, Site]) -> Path:
    """A kubeconfig with a context for each cluster, whose token is read from a file."""
    members = {
        site.name: (
            {"server": site.plane.url, "certificate-authority": str(site.plane.cafile)},
            {"tokenFile": str(token)},
        )
        for token, site in tokens.items()
    }
    path.write_text(json.dumps(kubeconfig(members)))
    return path
