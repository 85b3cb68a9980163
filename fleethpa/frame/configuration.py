"""Where settings of the command line come from, and how a development stack is found.

Flag > environment (`FLEETHPA_*`) > `--config` or `$FLEETHPA_CONFIG` > `$XDG_CONFIG_HOME/fleethpa/config.yaml` >
`/etc/fleethpa/config.yaml` > a small file of a development stack that runs on this machine.
"""

from __future__ import annotations

import os
import pwd
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Final

import orjson

from fleethpa.frame.errors import OPTIONS, CommandError, read_text, unreadable_text, usage
from schemas.connection import (
    ENVIRONMENT_PREFIX,
    PROPERTIES_ENCODING,
    KafkaSettings,
    SettingsError,
    environment_given,
    gather,
    properties_given,
)

FILE: Final = "dev.json"


@dataclass(frozen=True)
class DevStack:
    """A running stack: its process, brokers, kubeconfig and contexts, and the processes that belong to it."""

    pid: int
    brokers: str
    kubeconfig: str
    contexts: tuple[str, ...] = ()
    processes: dict[str, int] = field(default_factory=dict)


def folders(environ: Mapping[str, str]) -> list[Path]:
    """Where the file may be: `$FLEETHPA_RUNTIME_DIR` alone if set, else `./build/dev` and the user's runtime folder."""
    if named := environ.get("FLEETHPA_RUNTIME_DIR"):
        return [Path(named)]
    runtime = environ.get("XDG_RUNTIME_DIR")
    user = Path(runtime) / "fleethpa" if runtime else Path(tempfile.gettempdir()) / f"fleethpa-{os.getuid()}"
    return [Path("build/dev"), user]


def publish(stack: DevStack, environ: Mapping[str, str]) -> list[Path]:
    """Write the file where other terminals look, unless another stack runs; return what was written.

    Raises OSError: none of the folders can be written.
    """
    written, refused = list[Path](), list[OSError]()
    for folder in folders(environ):
        other = _read(folder / FILE)
        if other is not None and other.pid != stack.pid and _alive(other.pid):
            continue
        try:
            written.append(_write(stack, folder))
        except OSError as error:  # a folder that only the owner of the checkout may write, for one
            refused.append(error)
    if refused and not written:
        raise refused[0]
    return written


def _write(stack: DevStack, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = folder / FILE
    part = path.with_suffix(f".{stack.pid}")
    part.write_bytes(orjson.dumps(asdict(stack), option=orjson.OPT_INDENT_2))
    part.replace(path)
    return path


def withdraw(stack: DevStack, environ: Mapping[str, str]) -> None:
    """Remove the files of this stack; those of another stack stay."""
    for folder in folders(environ):
        other = _read(folder / FILE)
        if other is not None and other.pid == stack.pid:
            (folder / FILE).unlink(missing_ok=True)


def find(environ: Mapping[str, str]) -> DevStack | None:
    """Return the running stack of this user, if there is one."""
    for folder in folders(environ):
        stack = _read(folder / FILE)
        if stack is not None and _alive(stack.pid):
            return stack
    return None


def _read(path: Path) -> DevStack | None:
    try:
        # Another user could have made the folder under /tmp first: what is not ours is not believed.
        if path.stat().st_uid != os.getuid():
            return None
        values = orjson.loads(path.read_bytes())
        return DevStack(**{**values, "contexts": tuple(values.get("contexts", ()))})
    except (OSError, ValueError, TypeError):
        return None


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


KEYS: Final = {
    "brokers": ("brokers", "FLEETHPA_BROKERS"),
    "kafkaConfig": ("kafka_config", "FLEETHPA_KAFKA_CONFIG"),
    "kubeconfig": ("kubeconfig", "FLEETHPA_KUBECONFIG"),
    "contexts": ("", "FLEETHPA_CONTEXTS"),
    "author": ("author", "FLEETHPA_AUTHOR"),
    "hub": ("hub_context", "FLEETHPA_HUB"),
    "hubNamespace": ("hub_namespace", "FLEETHPA_HUB_NAMESPACE"),
}
"""A key of the configuration file: the parameter of its option (empty: it has none) and its variable."""
KAFKA: Final = "kafka"
"""In place of a context of the hub: records are written, also where a place further down names one."""
ORIGINS: Final = {"flag": "--brokers", "environment": "FLEETHPA_BROKERS or FLEETHPA_KAFKA_BOOTSTRAP_SERVERS"}
CI_AUTHORS: Final = (
    "GITHUB_ACTOR",  # GitHub Actions
    "GITLAB_USER_LOGIN",  # GitLab CI
    "BUILD_REQUESTEDFOR",  # Azure Pipelines
    "BUILD_USER_ID",  # Jenkins with the build-user-vars plugin
    "CHANGE_AUTHOR",  # Jenkins, of a change request
    "BUILDKITE_BUILD_AUTHOR",
    "CIRCLE_USERNAME",
    "DRONE_COMMIT_AUTHOR",
    "CI_COMMIT_AUTHOR",  # Woodpecker, and GitLab where nobody started the job
    "BITBUCKET_STEP_TRIGGERER_UUID",
)
"""Variables in which CI systems name who started a job."""
_NO_BROKERS: Final = (
    "Neither --brokers, --kafka-config, FLEETHPA_BROKERS nor a configuration file names one, and no `fleethpa dev` "
    "runs here."
)
_NO_BROKERS_NEXT: Final = "fleethpa dev   (a stack on this machine), or add --brokers HOST:PORT"


@dataclass(frozen=True)
class Config:
    """Settings and where each came from.

    `brokers`: bootstrap servers. `kafka_config`: a Java-style `client.properties`. `kubeconfig`: file with the
    contexts of the member clusters. `contexts`: which of them (empty: all). `author`: who is named in audit records.
    `hub`: context of the hub's cluster, where write verbs state objects in place of records (empty: they write
    records), and in which namespace of it (`hub_namespace`; empty: in the one of the HPA).
    `properties_first`: `kafka_config` was named in a place above that of `brokers`, so servers named in it win.
    """

    brokers: str = ""
    kafka_config: str = ""
    kubeconfig: str = ""
    contexts: tuple[str, ...] = ()
    author: str = ""
    hub: str = ""
    hub_namespace: str = ""
    origins: Mapping[str, str] = field(default_factory=dict)
    properties_first: bool = False

    def kafka(self) -> KafkaSettings:
        """Return the connection settings.

        Raises CommandError: no broker is known, or the settings cannot be used (exit 2).
        """
        if not (self.brokers or self.kafka_config):
            raise usage("no Kafka brokers are known", cause=_NO_BROKERS, next_step=_NO_BROKERS_NEXT)
        settings, origins = self._gathered()
        if origins["bootstrap_servers"] == "default":
            cause = f"{self.kafka_config} has no bootstrap.servers, and nothing else names a broker."
            raise usage("no Kafka brokers are known", cause=cause, next_step="add --brokers HOST:PORT")
        return settings

    @property
    def servers(self) -> str:
        """The brokers that are asked, for messages (`no brokers`: none is known); never fails."""
        if not (self.brokers or self.kafka_config):
            return "no brokers"
        try:
            return self._gathered()[0].bootstrap_servers
        except CommandError:
            # Connecting reports the error; a message can only name what was given.
            return self.brokers or self.kafka_config

    def kafka_origins(self) -> dict[str, str]:
        """Where each field of the connection settings came from."""
        return self._gathered()[1]

    def _gathered(self) -> tuple[KafkaSettings, dict[str, str]]:
        properties = ""
        if path := self.kafka_config:
            properties = read_text(path, f"--kafka-config {path}", encoding=PROPERTIES_ENCODING)
        try:
            by_properties, by_environment = properties_given(properties), environment_given(os.environ)
            brokers = "" if self.properties_first and "bootstrap_servers" in by_properties else self.brokers
            self._check(brokers)
            settings = gather(os.environ, properties=properties, brokers=brokers)
        except SettingsError as error:
            source = self.kafka_config or "the environment"
            raise usage(f"Kafka settings from {source} cannot be used", cause=str(error)) from error
        origins = dict.fromkeys((each.name for each in fields(KafkaSettings)), "default")
        origins |= dict.fromkeys(by_properties, self.kafka_config) | dict.fromkeys(by_environment, "environment")
        return settings, origins | (
            {"bootstrap_servers": self.origins.get("brokers", "the program")} if brokers else {}
        )

    def _check(self, brokers: str) -> None:
        """See that the brokers are addresses. Raises CommandError: one is not; names where it came from (exit 2)."""
        if not brokers:
            return
        try:
            KafkaSettings(bootstrap_servers=brokers)
        except SettingsError as error:
            origin = self.origins.get("brokers", "the program")
            raise usage(
                f"brokers {brokers!r} cannot be used", cause=f"{error} (from {ORIGINS.get(origin, origin)})."
            ) from error


def load(flags: Mapping[str, str | None], environ: Mapping[str, str] | None = None) -> Config:
    """Merge all sources; `flags` are the options given on the command line (None: not given), with `config`.

    Raises CommandError: a configuration file cannot be read or has an unknown key (exit 2).
    """
    environ = os.environ if environ is None else environ
    layers = [
        ("flag", _from_flags(flags)),
        ("environment", _from_environment(environ)),
        *_files(flags.get("config") or environ.get("FLEETHPA_CONFIG"), environ),
    ]
    if not any("brokers" in values or "kafkaConfig" in values for _, values in layers):
        layers.append(_dev_layer(environ))
    layers.append(("environment KUBECONFIG", _given({"kubeconfig": environ.get("KUBECONFIG")})))
    layers.extend(_who(environ))
    merged, origins = _merged(layers)
    order = [origin for origin, _ in layers]

    def above(one: str, other: str) -> bool:
        return merged.keys() >= {one, other} and order.index(origins[one]) < order.index(origins[other])

    if above("kubeconfig", "contexts"):
        # They are contexts of the kubeconfig that their own place had in mind.
        del merged["contexts"], origins["contexts"]
    return Config(
        brokers=merged.get("brokers", ""),
        kafka_config=merged.get("kafkaConfig", ""),
        kubeconfig=merged.get("kubeconfig", ""),
        contexts=tuple(merged.get("contexts", ())),
        author=merged["author"],
        hub="" if merged.get("hub") == KAFKA else merged.get("hub", ""),
        hub_namespace=merged.get("hubNamespace", ""),
        origins=origins,
        properties_first=above("kafkaConfig", "brokers"),
    )


def _merged(layers: list[tuple[str, dict[str, Any]]]) -> tuple[dict[str, Any], dict[str, str]]:
    """Each setting from the first layer that has it, and that layer's name."""
    merged: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for origin, values in layers:
        for key in values.keys() - merged.keys():
            merged[key], origins[key] = values[key], origin
    return merged, origins


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    """Those that have a value."""
    return {key: value for key, value in values.items() if value}


def _who(environ: Mapping[str, str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Who gives the command, from the surest source on: the starter of the CI job, else the user of this process."""
    for name in CI_AUTHORS if environ.get("CI") or environ.get("TF_BUILD") or environ.get("JENKINS_URL") else ():
        yield f"environment {name}", _given({"author": environ.get(name)})
    yield "environment USER", _given({"author": environ.get("USER") or environ.get("LOGNAME")})
    try:
        yield "passwd", {"author": pwd.getpwuid(os.getuid()).pw_name}
    except KeyError:  # a container may run under a number that has no name
        yield "user id", {"author": f"uid {os.getuid()}"}


def _from_flags(flags: Mapping[str, str | None]) -> dict[str, Any]:
    given = {key: flags.get(name) for key, (name, _) in KEYS.items()}
    for key, value in given.items():
        if value is not None and not value.strip():
            name = KEYS[key][0]
            flag = OPTIONS.get(name) or f"--{name.replace('_', '-')}"
            raise usage(f"{flag} is empty", cause="Leave it out, or give it a value.")
    return _given(given)


def _from_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    given: dict[str, Any] = {key: environ.get(variable) for key, (_, variable) in KEYS.items()}
    given["brokers"] = given["brokers"] or environ.get(f"{ENVIRONMENT_PREFIX}BOOTSTRAP_SERVERS")
    given["contexts"] = [part for part in (given["contexts"] or "").split(",") if part]
    return _given(given)


def _files(named: str | None, environ: Mapping[str, str]) -> list[tuple[str, dict[str, Any]]]:
    if named:
        return [(named, _read_config(Path(named)))]
    home = environ.get("XDG_CONFIG_HOME") or str(Path(environ.get("HOME", "/")) / ".config")
    candidates = [Path(home) / "fleethpa" / "config.yaml", Path("/etc/fleethpa/config.yaml")]
    return [(str(path), _read_config(path)) for path in candidates if _is_there(path)]


def _is_there(path: Path) -> bool:
    """Whether a configuration file is there; one that nobody may look for is not taken for missing."""
    try:
        return path.is_file()
    except PermissionError as error:
        step = "ask for access to its folder, or name another file with --config FILE"
        raise usage(f"{path} cannot be read", cause=unreadable_text(error), next_step=step) from error


def _read_config(path: Path) -> dict[str, Any]:
    from schemas.kubernetes.manifests import YamlTextError, parse_yaml

    text = read_text(path, f"--config {path}")
    try:
        document = parse_yaml(text) or {}
    except YamlTextError as error:
        raise usage(f"{path} is not YAML", cause=str(error)) from error
    if not isinstance(document, dict):
        raise usage(f"{path} must be a mapping of settings", cause=f"Known settings: {', '.join(KEYS)}.")
    if unknown := sorted(map(str, document.keys() - KEYS.keys())):
        raise usage(f"{path}: {unknown[0]} is not a setting", cause=f"Known settings: {', '.join(KEYS)}.")
    for key, value in document.items():
        wanted = list if key == "contexts" else str
        if not isinstance(value, wanted):
            raise usage(f"{path}: {key} must be a {'list of names' if wanted is list else 'text'}")
    return document


def _dev_layer(environ: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
    stack = find(environ)
    if stack is None:
        return "default", {}
    values: dict[str, Any] = {"brokers": stack.brokers, "kubeconfig": stack.kubeconfig}
    if stack.contexts:
        values["contexts"] = list(stack.contexts)
    return f"fleethpa dev (pid {stack.pid})", values
