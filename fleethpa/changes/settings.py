"""Settings of a cluster, as arguments (`sync-period=5s`) and as files (`NAME: VALUE`), and files of guardrails."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, get_args

import msgspec

from fleethpa.frame.errors import CommandError, usage
from fleethpa.frame.options import parse_duration_ms
from fleethpa.show.times import LATEST_MS, span
from schemas.guardrails import Guardrails, problems
from schemas.kubernetes.manifests import YamlTextError, parse_yaml
from schemas.observed import MetricType
from schemas.settings import SETTING_NAMES, ClusterSettings, parse_budget


def read_guardrails(file: Path) -> tuple[Guardrails | None, list[str]]:
    """Read a file of rules and say what is wrong with it; None: its form is wrong.

    Raises CommandError: there is no such file, or it is not YAML (exit 2).
    """
    try:
        document = parse_yaml(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise usage(f"{file} cannot be read", cause=str(error)) from error
    except YamlTextError as error:
        raise usage(f"{file} is not YAML", cause=str(error)) from error
    try:
        rules = msgspec.convert(document, Guardrails)
    except msgspec.ValidationError as error:
        return None, [str(error)]
    return rules, problems(rules)


def usable_guardrails(file: Path) -> Guardrails:
    """Read a file of rules. Raises CommandError: it cannot be used (exit 2)."""
    rules, found = read_guardrails(file)
    if rules is None or found:
        raise usage(f"{file} cannot be used", cause="; ".join(found), next_step=f"fleethpa guardrails lint {file}")
    return rules


def settings_in(file: Path) -> tuple[str, ...]:
    """Read a YAML file of settings as `NAME=VALUE` texts.

    Raises CommandError: it cannot be read, or is not a mapping of names to texts, numbers or booleans (exit 2).
    """
    try:
        document = parse_yaml(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, YamlTextError) as error:
        raise usage(f"{file} cannot be read", cause=str(error)) from error
    if not isinstance(document, dict):
        raise usage(f"{file} has no settings", cause="It must have a line NAME: VALUE for each setting.")
    for name, value in document.items():
        if not isinstance(value, str | int | float):
            raise usage(f"{file}: {name} has no value that is a text, a number, true or false")
    return tuple(
        f"{name}={str(value).lower() if isinstance(value, bool) else value}" for name, value in document.items()
    )


UNSET: Final = ("", "default")
"""Values that take a setting away."""
MOST_REPLICAS: Final = 2**31 - 1


def _flag(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError("expected true or false")
    return text == "true"


def _choice(*known: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in known:
            raise ValueError(f"expected one of {', '.join(known)}")
        return text

    return parse


def _quantity(text: str) -> str:
    if not re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,20})?", text):
        raise ValueError("expected a number such as 0.1")
    return text


def _count(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,10}", text) or not 1 <= int(text) <= MOST_REPLICAS:
        raise ValueError(f"expected a whole number from 1 to {MOST_REPLICAS}")
    return int(text)


def _span(shortest_ms: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        try:
            found = parse_duration_ms(text)
        except CommandError as error:
            raise ValueError(f"not a duration: {error.cause}") from error
        if found < shortest_ms:
            raise ValueError(f"expected at least {written_span(shortest_ms)}")
        if found > LATEST_MS:
            raise ValueError("too long")
        return found

    return parse


def _budget(whole_cluster: bool) -> Callable[[str], str]:
    def parse(text: str) -> str:
        parse_budget(text, whole_cluster=whole_cluster)
        return text

    return parse


_MODE: Final = _choice("off", "shadow", "enforce")
SETTINGS: Final[dict[str, tuple[str, Callable[[str], Any]]]] = {
    "sync-period": ("sync_period_ms", _span(100)),
    "tolerance": ("tolerance", _quantity),
    "downscale-stabilization": ("downscale_stabilization_ms", _span(0)),
    "cpu-initialization-period": ("cpu_initialization_period_ms", _span(0)),
    "initial-readiness-delay": ("initial_readiness_delay_ms", _span(0)),
    "sample-age-limit": ("sample_age_limit_ms", _span(1)),
    "default-mode": ("default_mode", _MODE),
    "frozen": ("frozen", _flag),
    "native-controller": ("native_controller", _choice("absent", "present", "unknown")),
    "max-step": ("max_step", _count),
    "hold-on-overflow": ("hold_on_overflow", _flag),
    "status-every": ("status_every_ms", _span(0)),
    "removal-budget": ("removal_budget", _budget(whole_cluster=True)),
    "addition-budget": ("addition_budget", _budget(whole_cluster=True)),
    "partial-view": ("partial_view", _flag),
    "evaluate-on": ("evaluate_on", _choice("period", "sample")),
    "evaluate-floor": ("evaluate_floor_ms", _span(100)),
}
"""Setting as written: its field and how its value is read. Beside these: `namespace.NAME=MODE`, `source.TYPE=…` and the
budgets of namespaces, `removal-budget.NAME=…`, where NAME may be `*`.
"""
BY_NAMESPACE: Final = {"removal-budget": "removal_budgets", "addition-budget": "addition_budgets"}
"""Settings that a namespace may have of its own, and their fields."""


@dataclass(frozen=True)
class Changes:
    """What a command line asks for. `values`: field of `ClusterSettings` and its value; `unset`: fields to take away.

    `members`: (field, member) and its value, None to take it away, of the settings that are maps.
    """

    values: dict[str, Any]
    unset: tuple[str, ...]
    members: dict[tuple[str, str], str | None]

    def settings(self, held: ClusterSettings) -> ClusterSettings:
        """What is to be set, beside what a cluster has: a map is written whole."""
        maps: dict[str, Any] = {}
        for (field, member), value in self.members.items():
            found = maps.setdefault(field, dict(getattr(held, field) or {}))
            found.pop(member, None)
            if value is not None:
                found[member] = value
        return ClusterSettings(**self.values, **{field: found for field, found in maps.items() if found})

    def unset_names(self, held: ClusterSettings) -> list[str]:
        """Settings to remove, as named in the record. Includes maps that become empty."""
        whole = self.settings(held)
        emptied = {field for field, _ in self.members if getattr(whole, field) is None}
        names = {field: name for name, field in SETTING_NAMES.items()}
        return [names[field] for field in (*self.unset, *sorted(emptied))]


def parse_changes(changes: tuple[str, ...]) -> Changes:
    """Read `NAME=VALUE` texts; `NAME=` and `NAME=default` take a setting away.

    Raises CommandError: an unknown name, one that is given twice, or a value that cannot be read (exit 2).
    """
    values: dict[str, Any] = {}
    unset: list[str] = []
    members: dict[tuple[str, str], str | None] = {}
    seen: set[str] = set()
    for text in changes:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise usage(f"{text!r} is not a setting", cause="Write NAME=VALUE, such as sync-period=5s.")
        if name in seen:
            raise usage(f"{name} is given twice")
        seen.add(name)
        parse, key = _setting(name)
        parsed = None if value in UNSET else _parsed(name, value, parse)
        if isinstance(key, tuple):
            members[key] = parsed
        elif parsed is None:
            unset.append(key)
        else:
            values[key] = parsed
    return Changes(values, tuple(unset), members)


def _setting(name: str) -> tuple[Callable[[str], Any], str | tuple[str, str]]:
    """How a setting's value is read, and its field (of a map: with the member)."""
    group, dot, member = name.partition(".")
    if dot and group == "namespace" and member:
        return _MODE, ("namespaces", member)
    if dot and group in BY_NAMESPACE and member:
        return _budget(whole_cluster=False), (BY_NAMESPACE[group], member)
    if dot and group == "source" and member in get_args(MetricType):
        return _choice("api", "samples"), ("sources", member)
    if name in SETTINGS:
        field, parse = SETTINGS[name]
        return parse, field
    if name in ("namespace", "source"):
        example = "namespace.shop=off" if name == "namespace" else "source.External=samples"
        raise usage(f"{name} is not a setting", cause=f"Name what it is of, such as {example}.")
    near = difflib.get_close_matches(name.lower().replace("_", "-"), SETTINGS, n=1)
    sources = ", ".join(f"source.{each}" for each in get_args(MetricType))
    known = f"Known are {', '.join(SETTINGS)}, namespace.NAME, {sources}."
    raise usage(f"{name} is not a setting", cause=f"Did you mean {near[0]}?" if near else known)


def _parsed(name: str, value: str, parse: Callable[[str], Any]) -> Any:
    try:
        return parse(value)
    except ValueError as error:
        raise usage(f"{name}={value} cannot be used", cause=str(error)) from error


def remarks(changes: Changes) -> list[str]:
    """What is likely not meant."""
    tolerance = changes.values.get("tolerance")
    if tolerance is not None and float(tolerance) >= 1:
        share = float(tolerance)
        return [
            f"tolerance {tolerance} is {share:.0%}: nothing is scaled down, and up only above {1 + share:g} times the "
            f"target; {tolerance} % is {share / 100:g}"
        ]
    return []


def written_settings(settings: ClusterSettings) -> list[tuple[str, str]]:
    """Settings as they are written on the command line: name and value."""
    rows = []
    for name, (field, _) in SETTINGS.items():
        value = getattr(settings, field)
        if value is not None:
            text = str(value).lower() if isinstance(value, bool) else str(value)
            rows.append((name, written_span(value) if field.endswith("_ms") else text))
    rows += [(f"namespace.{name}", mode) for name, mode in (settings.namespaces or {}).items()]
    for name, field in BY_NAMESPACE.items():
        rows += [(f"{name}.{namespace}", text) for namespace, text in (getattr(settings, field) or {}).items()]
    return rows + [(f"source.{name}", source) for name, source in (settings.sources or {}).items()]


def written_span(ms: int) -> str:
    """A span as a setting writes it."""
    return f"{ms / 1000:g}s" if ms % 1000 or ms < 1000 else span(ms)
