"""Central HPAs made of a few options, as `kubectl autoscale` makes them in a cluster. Pure, but for reading manifests.

Source: kubectl v0.37.1 `pkg/cmd/autoscale/autoscale.go`. Without a target of cpu or memory an HPA has no metrics, so
that it gets the default, 80% of the cpu requests; `--cpu-percent` is the older word for `--cpu N%`.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

import click

from fleethpa.changes.manifests import HPA_KIND, FileManifest, read_input
from fleethpa.changes.targetrules import SCALABLE
from fleethpa.frame.errors import CommandError, usage
from fleethpa.frame.options import gathered

_SHORT: Final = {"deploy": "Deployment", "sts": "StatefulSet", "rs": "ReplicaSet", "rc": "ReplicationController"}
_KINDS: Final = _SHORT | {name: kind for kind in SCALABLE for name in (kind.lower(), f"{kind.lower()}s")}
_UNITS: Final = {"cpu": "m", "memory": "Mi"}
"""Of a bare number, as `--cpu 500` and `--memory 200`."""


class AskedAutoscaler(NamedTuple):
    """The options of `autoscale` that say which HPAs are made."""

    workloads: tuple[str, ...]
    filenames: tuple[str, ...]
    least: int | None
    most: int
    cpu: str | None
    memory: str | None
    cpu_percent: int | None
    name: str | None


autoscale_options: Final = gathered(
    "asked",
    AskedAutoscaler,
    click.argument("workloads", nargs=-1, metavar="TYPE/NAME… | TYPE NAME…"),
    click.option(
        *("-f", "--filename", "filenames"), multiple=True, metavar="FILE|DIR|-", help="Manifests of the workloads."
    ),
    click.option("--min", "least", type=int, help="Fewest replicas [default: 1]."),
    click.option("--max", "most", type=int, required=True, help="Most replicas."),
    click.option("--cpu", metavar="N%|QUANTITY", help="Target of cpu: percent of the requests, or an average per pod."),
    click.option("--memory", metavar="N%|QUANTITY", help="Target of memory, likewise."),
    click.option("--cpu-percent", type=int, help="The same as --cpu N%."),
    click.option("--name", help="Name of the HPA [default: that of the workload]."),
)
"""The function gets one argument `asked`."""


class Workload(NamedTuple):
    """The workload that an HPA is made for, by its kind and name. `namespace`: empty: that of the command."""

    kind: str
    name: str
    namespace: str = ""


def autoscaled(asked: AskedAutoscaler) -> list[FileManifest]:
    """Return the HPAs that the options of `autoscale` mean.

    Raises CommandError: no workload is named, or an option cannot be used (exit 2).
    """
    workloads, filenames, least, most, cpu, memory, cpu_percent, name = asked
    if cpu is not None and (cpu_percent or 0) > 0:
        raise usage("--cpu and --cpu-percent are the same", cause="Give one of them.")
    if (cpu_percent or 0) > 0:
        cpu = f"{cpu_percent}%"
    wanted = [("cpu", cpu), ("memory", memory)]
    spec: dict[str, Any] = {"maxReplicas": most}
    if (least or 0) > 0:
        spec["minReplicas"] = least
    if metrics := [_metric(resource, text) for resource, text in wanted if text is not None]:
        spec["metrics"] = metrics
    meant = _read(filenames) if filenames and not workloads else _named(workloads)
    if name and len(meant) > 1:
        raise usage("--name names one HPA", cause=f"There are {len(meant)} workloads.")
    return [FileManifest("autoscale", _manifest(each, name or each.name, spec)) for each in meant]


def _manifest(workload: Workload, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    version = f"{SCALABLE[workload.kind]}/v1".removeprefix("/")
    reference = {"apiVersion": version, "kind": workload.kind, "name": workload.name}
    metadata = {"name": name} | ({"namespace": workload.namespace} if workload.namespace else {})
    whole = {"scaleTargetRef": reference} | spec
    return {"apiVersion": "autoscaling/v2", "kind": HPA_KIND, "metadata": metadata, "spec": whole}


def _read(filenames: tuple[str, ...]) -> list[Workload]:
    """Return the workloads in some manifests. Raises CommandError: the manifests have no workload (exit 2)."""
    others = [each for each in read_input(filenames).others if each.body["kind"] in SCALABLE]
    if not others:
        raise usage("no workload in the input", cause=f"Its objects are none of {', '.join(SCALABLE)}.")
    return [Workload(str(each.body["kind"]), each.name, each.namespace) for each in others]


def _named(words: tuple[str, ...]) -> list[Workload]:
    """The workloads of `TYPE/NAME…` or `TYPE NAME…`; types in any of kubectl's spellings.

    Raises CommandError: they are neither, or of a type that this verb does not know (exit 2).
    """
    if len(words) > 1 and all("/" not in word for word in words):
        return [Workload(_kind(words[0]), name) for name in words[1:]]
    if not words or any(not all(word.partition("/")) for word in words):
        next_step = "fleethpa autoscale deployment/web --max 10"
        raise usage("autoscale what?", cause="Name workloads as TYPE/NAME or TYPE NAME.", next_step=next_step)
    return [Workload(_kind(kind), name) for kind, _, name in (word.partition("/") for word in words)]


def _kind(text: str) -> str:
    name, _, group = text.partition(".")
    kind = _KINDS.get(name.lower(), "")
    if not kind or group not in ("", SCALABLE[kind]):
        raise usage(
            f"autoscale does not know the type {text}",
            cause=f"There are {', '.join(sorted(SCALABLE))}.",
            next_step="for a custom resource with a scale subresource write a manifest, and fleethpa apply -f FILE",
        )
    return kind


def _metric(resource: str, text: str) -> dict[str, Any]:
    """The metric of a target such as `70%`, `500m` or `500`; a wrong quantity is refused with the whole object."""
    text = text.strip()
    if text.endswith("%"):
        if not re.fullmatch(r"\d{1,9}", text[:-1]):
            raise _no_target(resource, text)
        target: dict[str, Any] = {"type": "Utilization", "averageUtilization": int(text[:-1])}
    elif not text:
        raise _no_target(resource, text)
    else:
        unit = _UNITS[resource] if re.fullmatch(r"\d+(\.\d+)?", text) else ""
        target = {"type": "AverageValue", "averageValue": f"{text}{unit}"}
    return {"type": "Resource", "resource": {"name": resource, "target": target}}


def _no_target(resource: str, text: str) -> CommandError:
    return usage(
        f"--{resource} {text!r} cannot be a target", cause="Write a percentage such as 70%, or a quantity as 500m."
    )
