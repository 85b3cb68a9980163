"""The table that kubectl lays out of the cells that an API server gives for `kubectl get hpa`.

Source: k8s.io/cli-runtime/pkg/printers/tableprinter.go v0.37.1.
"""

import re
from collections.abc import Iterable, Sequence

from fleethpa.show.kubectl import align, escape, hpa_table_cells
from schemas.kubernetes.shape import JsonView

COLUMNS = ("Name", "Reference", "Targets", "MinPods", "MaxPods", "Replicas", "Age")


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
    widest: dict[int, int] = {}

    def width(column: int, longest: int) -> int:
        # A column is never narrower than it was before its block ended.
        widest[column] = max(6, longest + 3, widest.get(column, 0))
        return widest[column]

    return align("".join("\t".join(line) + "\n" for line in lines), width)


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
