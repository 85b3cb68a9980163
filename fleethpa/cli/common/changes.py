"""`--set` and `--metric`: a changed spec, or other metric values, as people say them on a command line."""

from __future__ import annotations

import copy
import re
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

from fleethpa.cli.common.failures import CommandError, usage
from fleethpa.cli.common.manifestfiles import FileManifest, check_hpa
from fleethpa.cli.output import words
from fleethpa.cli.output.amounts import alike
from schemas.kubernetes.hpa import metric_name, metric_source
from schemas.kubernetes.quantity import QuantityError, parse_quantity
from streams.analysis.varied import total_of, varied
from streams.hpa.observation import PodSamples

if TYPE_CHECKING:
    from streams.analysis.varied import Varied
    from streams.state.probe import EvaluationInputs

_COUNTS: Final = ("minReplicas", "maxReplicas")
_BEHAVIOR: Final = ("scaleUp", "scaleDown")
_RELATIVE: Final = re.compile(r"([+-])([0-9]+)(\.[0-9]{1,18})?%")
_PERCENT: Final = re.compile(r"([0-9]+)%")
_MOST_DIGITS: Final = 18
"""Of a whole percentage: as many as fit into 64 bits. Python reads none of more than 4,300."""
_INTEGER: Final = re.compile(r"-?[0-9]{1,18}", re.ASCII)
_MOST: Final = parse_quantity(f"{2**63 - 1}m")
_LEAST: Final = parse_quantity(f"-{2**63 - 1}m")
"""What the controller can calculate with: 64-bit integers of thousandths."""
_EXAMPLES: Final = (
    "--set maxReplicas=16, --set cpu=80%, --set queue_depth=500, --set scaleDown.stabilizationWindowSeconds=60"
)


def split(text: str, option: str) -> tuple[str, str]:
    """Read `NAME=VALUE`.

    Raises:
        CommandError: it is not that (exit 2).
    """
    name, sign, value = text.partition("=")
    if not (name and sign and value):
        examples = _EXAMPLES if option == "--set" else "--metric cpu=90%, --metric queue_depth=+30%, --metric rps=250"
        raise usage(f"{option} {text!r} is not NAME=VALUE", cause=f"For example {examples}.")
    return name, value


def changed_spec(spec: dict[str, Any], settings: tuple[str, ...]) -> dict[str, Any]:
    """Return a copy of a defaulted spec with `--set` applied, not yet checked.

    Raises:
        CommandError: there is no such field or metric, or the value is not of its kind (exit 2).
    """
    made = copy.deepcopy(spec)
    for text in settings:
        name, value = split(text, "--set")
        path = name.removeprefix("behavior.").split(".")
        if name in _COUNTS:
            made[name] = _whole(name, value)
        elif path[0] in _BEHAVIOR and len(path) == 2:
            made.setdefault("behavior", {}).setdefault(path[0], {})[path[1]] = _scalar(value)
        else:
            _set_target(made, name, value)
    return made


def checked(hpa: dict[str, Any], spec: dict[str, Any], source: str) -> dict[str, Any]:
    """Return a spec defaulted and checked as the API server would.

    Raises:
        CommandError: it is not valid; every error is named (exit 2).
    """
    body = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {name: hpa["metadata"][name] for name in ("name", "namespace") if name in hpa["metadata"]},
        "spec": spec,
    }
    whole, errors = check_hpa(FileManifest(source, body), "default")
    if errors:
        raise usage(f"{source}: the changed HPA is invalid", cause="\n".join(errors))
    found: dict[str, Any] = whole["spec"]
    return found


def _whole(name: str, value: str) -> int:
    if not _INTEGER.fullmatch(value):
        raise usage(f"--set {name}={value}: {name} takes a whole number", cause=f"For example {name}=16.")
    return int(value)


def _scalar(value: str) -> Any:
    return int(value) if _INTEGER.fullmatch(value) else value


def _set_target(spec: dict[str, Any], name: str, value: str) -> None:
    found = [target for known, target in _targets(spec) if known == name]
    if not found:
        names = ", ".join(dict.fromkeys(known for known, _ in _targets(spec)))
        cause = f"Fields are {', '.join(_COUNTS)}, scaleUp.*, scaleDown.*; metrics are {names or 'none'}."
        raise usage(f"--set {name}={value}: no such field or metric", cause=cause, next_step=_EXAMPLES)
    for target in found:
        if percent := _PERCENT.fullmatch(value):
            target.clear()
            target.update(
                {"type": "Utilization", "averageUtilization": _whole_percent(f"--set {name}={value}", percent[1])}
            )
            continue
        kind = "value" if target.get("type") == "Value" else "averageValue"
        _quantity(f"--set {name}", value)
        target.clear()
        target.update({"type": "Value" if kind == "value" else "AverageValue", kind: value})


def _targets(spec: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    found = []
    for metric in spec.get("metrics") or []:
        found.append((metric_name(metric), metric_source(metric)["target"]))
    return found


def setting_of(spec: dict[str, Any], name: str, option: str) -> str:
    """The setting, as `--set` takes it, that gives a field the value which it has: `minReplicas=2`, `cpu=50%`.

    Raises:
        CommandError: there is no such count or metric, or several metrics of the name differ (exit 2).
    """
    if name in _COUNTS:
        return f"{name}={spec.get(name, 1)}"
    found = {_target_text(target) for known, target in _targets(spec) if known == name}
    if len(found) != 1:
        names = ", ".join(dict.fromkeys([*_COUNTS, *(known for known, _ in _targets(spec))]))
        raise usage(f"{option} {name}: no such field or metric", cause=f"A schedule sets {names}.")
    return f"{name}={found.pop()}"


def _target_text(target: dict[str, Any]) -> str:
    if target.get("averageUtilization") is not None:
        return f"{target['averageUtilization']}%"
    return str(target.get("value") if target.get("type") == "Value" else target.get("averageValue"))


def _quantity(option: str, value: str) -> int:
    try:
        found = parse_quantity(value)
    except QuantityError as error:
        cause = "A quantity is a number with an optional suffix, such as 250m, 1.5, 3k or 2Gi."
        raise usage(f"{option}={value}: {value!r} is not a quantity", cause=cause) from error
    if found.cmp(_MOST) > 0 or found.cmp(_LEAST) < 0:
        raise _out_of_range(f"{option}={value}")
    return found.milli_value()


def _whole_percent(what: str, digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise _out_of_range(what)
    return int(digits)


def _out_of_range(what: str) -> CommandError:
    return usage(
        f"{what}: out of range",
        cause=f"The controller calculates with at most {_MOST} (for all pods together), and at least {_LEAST}.",
    )


# --- other metric values ----------------------------------------------------------------------------------------------


def with_metrics(inputs: EvaluationInputs, settings: tuple[str, ...]) -> tuple[EvaluationInputs, list[str]]:
    """Return the inputs with `--metric NAME=VALUE` applied, and what that did in words.

    Raises:
        CommandError: no such metric, or the metric has no value in this evaluation (exit 2).
    """
    said = []
    for text in settings:
        name, value = split(text, "--metric")
        known = [words.short(metric.name) for metric in inputs.autoscaler.metrics]
        if name not in known:
            raise usage(f"--metric {name}: the HPA has no such metric", cause=f"It has {', '.join(known)}.")
        # Several may bear one name (of other containers, with other selectors): each is varied.
        numbers = [number for at, each in enumerate(known) if each == name and (number := varied(inputs, at))]
        if not numbers:
            raise usage(
                f"--metric {name}: the metric has no value in this evaluation",
                cause="A metric that failed cannot be changed.",
            )
        for number in numbers:
            wanted = _number(inputs, number, name, value)
            if not -(2**63) < wanted < 2**63:
                raise _out_of_range(f"--metric {text}")
            inputs = number.at(inputs, wanted)
            before, after = alike((number.now, wanted), name)
            said.append(f"{name}: {number.what} {before} → {after}")
    return inputs, said


def _number(inputs: EvaluationInputs, number: Varied, name: str, value: str) -> int:
    """The varied number for `+30%` (of what it was), `90%` (utilization), or a quantity as the status shows it."""
    if relative := _RELATIVE.fullmatch(value):
        percentage = _whole_percent(f"--metric {name}={value}", relative[2]) + Fraction(f"0{relative[3] or ''}")
        share = percentage / 100 * (1 if relative[1] == "+" else -1)
        return max(0, round(number.now * (1 + share)))

    if percent := _PERCENT.fullmatch(value):
        if number.spec.calculation != "utilization":
            raise usage(f"--metric {name}={value}: the target is not a utilization", cause="Write +30%, or a quantity.")
        return total_of(inputs, number.index, percent=_whole_percent(f"--metric {name}={value}", percent[1]))
    milli = _quantity(f"--metric {name}", value)
    of_pods = isinstance(inputs.observation.answers[number.index], PodSamples)
    return total_of(inputs, number.index, milli=milli) if of_pods else milli
