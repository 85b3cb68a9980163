"""What one sync of a recording holds, in the engine's terms."""

import re
from typing import Any
from urllib.parse import urlsplit

from reconciler.core.metricanswers import failed, fill
from schemas.answers import API_OF, Query
from schemas.kubernetes.gotimes import parse_duration_ms
from schemas.kubernetes.shape import Json
from streams.hpa.autoscaler import ControllerSettings, MetricSpec
from streams.hpa.evaluation import ScaleApplied, ScaleFailed, ScaleOutcome
from streams.hpa.observation import MetricReading, Scale, ScaleFailure, compile_answer
from streams.hpa.rules import Rules

_FLAG_MS = re.compile(r"--horizontal-pod-autoscaler-([a-z-]+)=(\S+)")


def read_answer(spec: MetricSpec, body: Json, namespace: str, rules: Rules) -> MetricReading:
    """Read the body that a metrics API answered for this metric, as the observer and the evaluation do."""
    answer = fill(Query(api=API_OF[spec.type]), body)
    return compile_answer(answer, spec.resource, spec.container, namespace, rules)


def error_answer(spec: MetricSpec, message: str) -> MetricReading:
    """Give what an error of the metrics API of this metric becomes."""
    return compile_answer(failed(Query(api=API_OF[spec.type]), message))


def unavailable(uri: str) -> str:
    """Give the client's text for an API server that is not there: last element of the path, and the group."""
    parts = urlsplit(uri).path.strip("/").split("/")
    return f"the server is currently unable to handle the request (get {parts[-1]}.{parts[1]})"


def scale_of(sync: Json) -> Scale | ScaleFailure:
    """Give what the scale read of a sync was answered."""
    scale = sync["scale"]
    if scale.get("code", 200) != 200:
        return ScaleFailure(scale.get("message", ""))
    return Scale(scale.get("spec", 0), scale.get("status", 0), scale.get("selector", ""))


def asked_of(sync: Json) -> int | None:
    """Give the replicas that the controller wrote, None when it wrote none."""
    write = sync.get("write")
    return None if write is None else write["asked"]


def outcome_of(sync: Json) -> ScaleOutcome:
    """Give what became of the write of a sync."""
    write = sync.get("write") or {"code": 200}
    return ScaleApplied() if write["code"] == 200 else ScaleFailed(write.get("message", ""))


def settings_of(flags: Any, rules: Rules) -> ControllerSettings:
    """Read the controller's command line; flags that are not there have their defaults."""
    given = {found[1]: found[2] for flag in flags if (found := _FLAG_MS.match(flag))}
    defaults = ControllerSettings()
    return ControllerSettings(
        rules=rules,
        tolerance=float(given.get("tolerance", defaults.tolerance)),
        downscale_stabilization_ms=parse_duration_ms(given.get("downscale-stabilization", "5m")),
        cpu_initialization_period_ms=parse_duration_ms(given.get("cpu-initialization-period", "5m")),
        initial_readiness_delay_ms=parse_duration_ms(given.get("initial-readiness-delay", "30s")),
    )
