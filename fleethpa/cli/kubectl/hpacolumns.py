"""The table of `kubectl get hpa`.

Source: pkg/printers/internalversion/printers.go v1.37.1; k8s.io/cli-runtime/pkg/printers/tableprinter.go v0.37.1.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from fleethpa.cli.kubectl.ages import since
from fleethpa.cli.kubectl.tabwriter import align
from fleethpa.cli.kubectl.values import (
    METRIC_TYPES,
    current_metric,
    current_of,
    escape,
    known,
    min_replicas,
    nil,
    percent,
    quantity,
    reference,
    source_of,
    target_percent,
)
from schemas.kubernetes.jsontypes import JsonView

COLUMNS = ("Name", "Reference", "Targets", "MinPods", "MaxPods", "Replicas", "Age")
_SHOWN_TARGETS = 2


def hpa_table_cells(hpa: JsonView, now_ms: int) -> list[str | int]:
    """Give the row that the API server gives for `kubectl get hpa`; `wide` shows no more."""
    spec, status, metadata = hpa["spec"], hpa.get("status") or {}, hpa["metadata"]
    return [
        metadata.get("name", ""),
        reference(hpa),
        targets(hpa),
        min_replicas(spec),
        spec.get("maxReplicas", 0),
        status.get("currentReplicas", 0),
        since(metadata.get("creationTimestamp"), now_ms),
    ]


def targets(hpa: JsonView) -> str:
    """Give the TARGETS cell: current and target of the first two metrics, and how many more there are."""
    metrics = hpa["spec"].get("metrics") or ()
    if not metrics:
        return "<none>"
    shown = [_target_cell(metric, current_metric(hpa, index)) for index, metric in enumerate(metrics)]
    more = f" + {len(shown) - _SHOWN_TARGETS} more..." if len(shown) > _SHOWN_TARGETS else ""
    return ", ".join(shown[:_SHOWN_TARGETS]) + more


def hpa_table(
    hpas: Iterable[JsonView],
    now_ms: int,
    *,
    all_namespaces: bool = False,
    show_labels: bool = False,
    label_columns: Sequence[str] = (),
    headers: bool = True,
) -> str:
    """Give what `kubectl get hpa` prints (`-A`, `--show-labels`, `-L`, `--no-headers`)."""
    columns = [*(["Namespace"] if all_namespaces else []), *COLUMNS]
    columns += [label.rpartition("/")[2] for label in label_columns] + (["Labels"] if show_labels else [])
    rows = []
    for hpa in hpas:
        labels = hpa["metadata"].get("labels") or {}
        row: list[str | int] = [hpa["metadata"].get("namespace", "")] if all_namespaces else []
        row += [*hpa_table_cells(hpa, now_ms), *(labels.get(label, "") for label in label_columns)]
        rows.append(row + ([_all_labels(labels)] if show_labels else []))
    return print_table(columns, rows, headers=headers)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str | int]], *, headers: bool = True) -> str:
    """Lay out a table as kubectl does: nothing without rows. A cell with line breaks shows its first line."""
    whole = [[str(cell) for cell in row] for row in rows]
    if not whole:
        return ""
    head = [column.upper() for column in columns]
    lines = [*([head] if headers else []), *([_cell(cell) for cell in row] for row in whole)]
    lines[0] = _widest(lines[0], head if headers else whole[0], whole)
    return align("".join("\t".join(line) + "\n" for line in lines), min_width=6, padding=3, remember_widths=True)


def _widest(line: Sequence[str], given: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Pad the cells of the first line, but for the last, to the bytes of the longest whole cell of their columns."""
    bytes_of = [max(len(cell.encode()) for cell in column) for column in zip(*rows, strict=True)]
    padded = [text + " " * (size - len(own.encode())) for text, own, size in zip(line, given, bytes_of, strict=True)]
    return [*padded[:-1], line[-1]]


def _cell(cell: str | int) -> str:
    first, *rest = re.split("[\f\n\r]", str(cell), maxsplit=1)
    return escape(first) + ("..." if rest else "")


def _all_labels(labels: JsonView) -> str:
    # By the whole text: "app-x=1" comes before "app=1".
    return ",".join(sorted(f"{key}={value}" for key, value in labels.items())) or "<none>"


def _target_cell(metric: JsonView, status: JsonView) -> str:
    kind = metric.get("type", "")
    source, name = source_of(metric, kind)
    if source is None or kind not in METRIC_TYPES:
        return "<unknown type>"
    target, current = source["target"], current_of(status, name)
    if kind in ("Resource", "ContainerResource"):
        if target.get("averageValue") is not None:
            return f"{source['name']}: {quantity(current, 'averageValue')}/{target['averageValue']}"
        return f"{source['name']}: {percent(current)}/{target_percent(target)}"
    if kind == "Pods":
        return f"{quantity(current, 'averageValue')}/{nil(target, 'averageValue')}"
    if target.get("averageValue") is not None:
        return f"{known(current, 'averageValue')}/{target['averageValue']} (avg)"
    return f"{quantity(current, 'value')}/{nil(target, 'value')}"
