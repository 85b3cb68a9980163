"""A single-node Apache Kafka (KRaft) from Maven Central's jars: on loopback, on free ports, in a temporary folder."""

import fcntl
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.kafka.clock import BrokerClock
from tests.patience import PATIENCE_S

KAFKA_VERSION = "4.3.1"
JARS = Path(__file__).parents[2] / "build" / f"kafka-{KAFKA_VERSION}"
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qk"
JAVA = (
    *("-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)

END_S = 120
"""How long a broker may take to end: the first one of a checkout also writes its class archive."""

POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>io.fleethpa.tests</groupId><artifactId>kafka</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{KAFKA_VERSION}</version>
    </dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
  </dependencies>
</project>
"""

PLAINTEXT = """
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
"""

# A broker looks for expired records at once and every five seconds, and not only after half a minute: what would expire
# in a test that takes longer expires in every run.
COMMON = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
controller.listener.names=CONTROLLER
log.dirs={data}
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
broker.session.timeout.ms=2000
broker.heartbeat.interval.ms=500
log.initial.task.delay.ms=500
log.retention.check.interval.ms=5000
"""


def missing_tools() -> str:
    """What this machine lacks for running Apache Kafka; empty when it has all."""
    lacking = [tool for tool in ("java", "mvn") if shutil.which(tool) is None]
    return f"{' and '.join(lacking)} not found" if lacking else ""


def fetch_jars() -> Path:
    """The folder with Kafka's jars, filled from Maven Central the first time.

    Raises:
        subprocess.CalledProcessError: Maven could not fetch them; its output is on the terminal.
    """
    return _fetched(JARS, POM)


def fetch_tools() -> Path:
    """The folder with the jars of Kafka's command-line tools, as `fetch_jars` gives that of the broker."""
    return _fetched(JARS.with_name(f"kafka-tools-{KAFKA_VERSION}"), POM.replace("kafka_2.13", "kafka-tools"))


def _fetched(folder: Path, pom: str) -> Path:
    """What this pom.xml names, in `libs` of the folder."""
    with _alone(folder):
        if not (folder / "complete").exists():
            (folder / "pom.xml").write_text(pom)
            plugin = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
            command = ["mvn", "-q", "-B", plugin, "-DincludeScope=runtime", f"-DoutputDirectory={folder / 'libs'}"]
            subprocess.run(command, cwd=folder, check=True, timeout=600)
            (folder / "complete").touch()
    return folder / "libs"


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Let a test that runs beside this one wait until the folder has what is put there now."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@cache
def _first() -> Path:
    """What a first broker has left behind, once for all: `classes.jsa`, the classes that it has loaded, as the virtual
    machine maps them, and `data`, its formatted folder. One that begins with both needs half the CPU time to be up.
    """
    first = JARS.with_name(f"kafka-first-{KAFKA_VERSION}")
    with _alone(first):
        if not (first / "complete").exists():
            with tempfile.TemporaryDirectory() as made:
                broker = KafkaBroker(Path(made), leaves=first / "classes.jsa")
                shutil.copytree(broker.data, first / "data", dirs_exist_ok=True)
                if _maps_classes():
                    with broker:
                        pass
            (first / "complete").touch()
    return first


def _maps_classes() -> bool:
    """Whether this Java has its own classes mapped, without which it writes down no others: some packages leave them
    out. A broker that is to begin with a file that is not there loads its classes one by one.
    """
    return subprocess.run(["java", *JAVA, "-Xshare:on", "-version"], capture_output=True, check=False).returncode == 0


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that nobody listens on."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class KafkaBroker:
    """One broker; its data survives `kill` and `stop`, so that `start` resumes it on the same ports.

    Args:
        folder: for configuration, data and the log file.
        listeners: text of the listener settings, with `{port}`, `{controller}` and the names of `extra_ports`.
        extra: more settings.
        scram: user → password, made when the data folder is formatted.
        java: options of the virtual machine; those of a small broker that starts fast, unless given.
        with_clock: whether `clock` can be set; needs `javac`. Its classes are loaded one by one.
        leaves: the file of its classes that a first broker leaves behind when it ends; it begins with nothing.
    """

    def __init__(
        self,
        folder: Path,
        *,
        listeners: str = PLAINTEXT,
        extra: str = "",
        extra_ports: tuple[str, ...] = (),
        scram: Mapping[str, str] | None = None,
        java: tuple[str, ...] = JAVA,
        with_clock: bool = False,
        leaves: Path | None = None,
    ) -> None:
        self._libs = fetch_jars()
        self._first = None if leaves or with_clock else _first()
        self._leaves = (f"-XX:ArchiveClassesAtExit={leaves}",) if leaves else ()
        self.folder, self.data, self._options = folder, folder / "data", java
        self.clock = BrokerClock(folder / "clock", self._libs) if with_clock else None
        names = ("port", "controller", *extra_ports)
        self.ports = dict(zip(names, free_ports(len(names)), strict=True))
        self._properties = folder / "server.properties"
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        text = (COMMON + listeners + extra).format(data=self.data, folder=folder, **self.ports)
        self._properties.write_text(text)
        # What formatting writes depends on the users and the number of the node.
        if self._first is None or scram or "node.id=" in extra:
            self._format(scram or {})
        elif not self.data.exists():
            shutil.copytree(self._first / "data", self.data)

    @property
    def bootstrap(self) -> str:
        """host:port of the first listener."""
        return f"127.0.0.1:{self.ports['port']}"

    def start(self) -> Self:
        """Start, and return once the broker serves requests."""
        with (self.folder / "broker.log").open("ab") as output:
            self._process = subprocess.Popen(
                self._java("kafka.Kafka", str(self._properties), options=self._leaves),
                stdout=output,
                stderr=output,
                cwd=self.folder,
            )
        self._wait_until_open()
        return self

    def stop(self) -> None:
        """End in order (SIGTERM)."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End at once (SIGKILL)."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """Stand still (SIGSTOP)."""
        self._running().send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Go on after `pause`."""
        self._running().send_signal(signal.SIGCONT)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self.stop()

    def _java(self, main: str, *arguments: str, options: tuple[str, ...] = ()) -> list[str]:
        path = f"{self._libs}/*"
        if self.clock is not None:
            options, path = (*options, *self.clock.arguments), f"{self.clock.classes}:{path}"
        if self._first is not None:
            options = (*options, f"-XX:SharedArchiveFile={self._first / 'classes.jsa'}")
        return ["java", *self._options, *options, "-cp", path, main, *arguments]

    def _format(self, scram: Mapping[str, str]) -> None:
        users = [f"SCRAM-SHA-512=[name={name},password={password}]" for name, password in scram.items()]
        options = [part for user in users for part in ("--add-scram", user)]
        command = ("format", "--ignore-formatted", "-t", CLUSTER_ID, "-c", str(self._properties), *options)
        subprocess.run(
            self._java("kafka.tools.StorageTool", *command), check=True, timeout=PATIENCE_S, stdout=subprocess.DEVNULL
        )

    def _running(self) -> "subprocess.Popen[bytes]":
        if self._process is None:
            raise RuntimeError("the broker is not running: call start() first")
        return self._process

    def _end(self, number: signal.Signals) -> None:
        process = self._running()
        process.send_signal(number)
        self._process = None
        try:
            process.wait(timeout=END_S)
        except subprocess.TimeoutExpired:
            process.kill()  # it would burden every test after this one
            process.wait(timeout=PATIENCE_S)
            raise

    def _wait_until_open(self, timeout_s: float = PATIENCE_S) -> None:
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if self._running().poll() is not None:
                break
            with socket.socket() as probe:
                probe.settimeout(1.0)
                if probe.connect_ex(("127.0.0.1", self.ports["port"])) == os.EX_OK:
                    return
            time.sleep(0.1)  # between two looks at a port; bounded by the deadline
        log = (self.folder / "broker.log").read_text(errors="replace")[-2000:]
        raise RuntimeError(f"Apache Kafka did not start:\n{log}")
