"""The settings of a cluster as they are written on the command line: `sync-period=5s`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, get_args

from fleethpa.cli.common.failures import usage
from fleethpa.cli.output.times import parse_duration_ms, span
from schemas.samples import MetricType
from schemas.settings import ClusterSettings


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
    if not re.fullmatch(r"\d{1,6}(\.\d+)?", text):
        raise ValueError("expected a number such as 0.1")
    return text


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ValueError("expected a whole number of at least 1")
    return int(text)


_MODE: Final = _choice("off", "shadow", "enforce")
SETTINGS: Final[dict[str, tuple[str, Callable[[str], Any]]]] = {
    "sync-period": ("sync_period_ms", lambda text: parse_duration_ms(text, "sync-period")),
    "tolerance": ("tolerance", _quantity),
    "downscale-stabilization": ("downscale_stabilization_ms", lambda text: parse_duration_ms(text)),
    "cpu-initialization-period": ("cpu_initialization_period_ms", lambda text: parse_duration_ms(text)),
    "initial-readiness-delay": ("initial_readiness_delay_ms", lambda text: parse_duration_ms(text)),
    "sample-age-limit": ("sample_age_limit_ms", lambda text: parse_duration_ms(text)),
    "default-mode": ("default_mode", _MODE),
    "frozen": ("frozen", _flag),
    "native-controller": ("native_controller", _choice("absent", "present", "unknown")),
    "max-step": ("max_step", _count),
    "hold-on-overflow": ("hold_on_overflow", _flag),
}
"""Setting as written: its field and how its value is read. Beside these: `namespace.NAME=MODE`, `source.TYPE=…`."""


def parse_settings(changes: tuple[str, ...]) -> ClusterSettings:
    """Read `NAME=VALUE` texts into `ClusterSettings`.

    Raises:
        CommandError: an unknown name or a value that cannot be read (exit 2).
    """
    values: dict[str, Any] = {}
    for text in changes:
        name, equals, value = text.partition("=")
        if not equals:
            raise usage(f"{text!r} is no setting", cause="Write NAME=VALUE, such as sync-period=5s.")
        group, dot, member = name.partition(".")
        try:
            if dot and group == "namespace" and member:
                values.setdefault("namespaces", {})[member] = _MODE(value)
            elif dot and group == "source":
                metric_type = _choice(*get_args(MetricType))(member)
                values.setdefault("sources", {})[metric_type] = _choice("api", "samples")(value)
            elif name in SETTINGS:
                field, parse = SETTINGS[name]
                values[field] = parse(value)
            else:
                raise usage(
                    f"{name} is no setting", cause=f"Known are {', '.join(SETTINGS)}, namespace.NAME, source.TYPE."
                )
        except ValueError as error:
            raise usage(f"{name}={value} cannot be used", cause=str(error)) from error
    return ClusterSettings(**values)


def written_settings(settings: ClusterSettings) -> list[tuple[str, str]]:
    """Settings as they are written on the command line: name and value."""
    rows = []
    for name, (field, _) in SETTINGS.items():
        value = getattr(settings, field)
        if value is not None:
            text = str(value).lower() if isinstance(value, bool) else str(value)
            rows.append((name, _span(value) if field.endswith("_ms") else text))
    rows += [(f"namespace.{name}", mode) for name, mode in (settings.namespaces or {}).items()]
    return rows + [(f"source.{name}", source) for name, source in (settings.sources or {}).items()]


def _span(ms: int) -> str:
    return f"{ms / 1000:g}s" if ms % 1000 or ms < 1000 else span(ms)
