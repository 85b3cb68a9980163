"""kubectl's own texts: the cells of `kubectl get hpa`, the text of `kubectl describe hpa`, and Go's text/tabwriter.

Source: pkg/printers/internalversion/printers.go v1.37.1; k8s.io/cli-runtime/pkg/printers/tableprinter.go and
k8s.io/kubectl/pkg/describe/describe.go v0.37.1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime

from fleethpa.show.text import UNKNOWN, since
from schemas.kubernetes.fielderrors import go_quote
from schemas.kubernetes.gotimes import parse_moment
from schemas.kubernetes.shape import JsonView

Width = Callable[[int, int], int]
"""Gives the width of a block of a column from the column's number and the length of the block's longest cell."""


def align(text: str, width: Width = lambda _, longest: longest + 2) -> str:
    """Align the columns of a text: lines of tab-terminated cells."""
    # A form feed ends a line, and all columns with it.
    return "\n".join(_aligned(page, width) for page in text.split("\f"))


def _aligned(page: str, width: Width) -> str:
    # A vertical tab ends a cell too.
    lines = [line.split("\t") for line in page.replace("\v", "\t").split("\n")]
    widths: list[list[int]] = [[0] * (len(line) - 1) for line in lines]
    _measure(lines, widths, range(len(lines)), 0, width)
    return "\n".join(map(_pad, lines, widths))


def _measure(lines: Sequence[Sequence[str]], widths: list[list[int]], block: range, column: int, width: Width) -> None:
    """Set the widths of one column and all to its right, within a block of lines that share the columns before."""
    start = block.start
    while start < block.stop:
        end = start
        while end < block.stop and column < len(widths[end]):
            end += 1
        if end > start:
            column_width = width(column, max(len(lines[index][column]) for index in range(start, end)))
            for index in range(start, end):
                widths[index][column] = column_width
            _measure(lines, widths, range(start, end), column + 1, width)
        start = end + 1


def _pad(line: Sequence[str], widths: Sequence[int]) -> str:
    return "".join(cell.ljust(width) for cell, width in zip(line, widths, strict=False)) + line[-1]


METRIC_TYPES = ("Resource", "ContainerResource", "Pods", "Object", "External")


def reference(hpa: JsonView) -> str:
    """Return the REFERENCE cell: kind and name of the scale target."""
    target = hpa["spec"].get("scaleTargetRef") or {}
    return f"{target.get('kind', '')}/{target.get('name', '')}"


def min_replicas(spec: JsonView) -> str:
    """Return minReplicas, `<unset>` without one."""
    replicas = spec.get("minReplicas")
    return "<unset>" if replicas is None else str(replicas)


def current_metric(hpa: JsonView, index: int) -> JsonView:
    """Return the current metric in a metric's place; upstream pairs them by place alone."""
    metrics = (hpa.get("status") or {}).get("currentMetrics") or ()
    return metrics[index] if index < len(metrics) else {}


def source_of(metric: JsonView, kind: str) -> tuple[JsonView | None, str]:
    """Return the part of a metric (or of its status) that its type names, and the name of that part."""
    name = kind[:1].lower() + kind[1:]
    return metric.get(name), name


def current_of(status: JsonView, name: str) -> JsonView | None:
    """Return the current values of a metric; None: its status is not known."""
    source = status.get(name)
    return None if source is None else source.get("current") or {}


def quantity(current: JsonView | None, name: str) -> str:
    """Show a quantity of a current metric, `<nil>` where the metric is there without it, as upstream prints."""
    return UNKNOWN if current is None else nil(current, name)


def known(current: JsonView | None, name: str) -> str:
    """Show a quantity of a current metric, `<unknown>` where it is not there."""
    value = None if current is None else current.get(name)
    return UNKNOWN if value is None else str(value)


def nil(values: JsonView, name: str) -> str:
    """Show a value, `<nil>` where it is not there."""
    value = values.get(name)
    return "<nil>" if value is None else str(value)


def percent(current: JsonView | None) -> str:
    """Show the current utilization."""
    utilization = None if current is None else current.get("averageUtilization")
    return UNKNOWN if utilization is None else f"{utilization}%"


def target_percent(target: JsonView) -> str:
    """Show the target utilization."""
    utilization = target.get("averageUtilization")
    return "<auto>" if utilization is None else f"{utilization}%"


def escape(text: str) -> str:
    """Make control sequences visible, as kubectl does, so that nothing moves the cursor."""
    return text.replace("\x1b", "^[").replace("\r", "\\r")


_SHOWN_TARGETS = 2


def hpa_table_cells(hpa: JsonView, now_ms: int) -> list[str | int]:
    """Return the row that the API server gives for `kubectl get hpa`; `wide` shows no more."""
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
    """Return the TARGETS cell: current and target of the first two metrics, and how many more there are."""
    metrics = hpa["spec"].get("metrics") or ()
    if not metrics:
        return "<none>"
    shown = [_target_cell(metric, current_metric(hpa, index)) for index, metric in enumerate(metrics)]
    more = f" + {len(shown) - _SHOWN_TARGETS} more..." if len(shown) > _SHOWN_TARGETS else ""
    return ", ".join(shown[:_SHOWN_TARGETS]) + more


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


_MAX_ANNOTATION_BYTES = 140
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def describe(hpa: JsonView) -> str:
    """Return what `kubectl describe hpa --show-events=false` prints of a defaulted autoscaling/v2 object."""
    return align("".join(escape(part) for part in _page(hpa)))


def _page(hpa: JsonView) -> Iterator[str]:
    spec, status, metadata = hpa["spec"], hpa.get("status") or {}, hpa["metadata"]
    yield f"Name:\t{metadata.get('name', '')}\nNamespace:\t{metadata.get('namespace', '')}\n"
    labels = metadata.get("labels") or {}
    yield "Labels:\t" + ("\t".join(f"{key}={labels[key]}\n" for key in sorted(labels)) or "<none>\n")
    yield "Annotations:\t" + ("\t".join(_annotations(metadata.get("annotations") or {})) or "<none>\n")
    yield f"CreationTimestamp:\t{_rfc1123(metadata.get('creationTimestamp'))}\n"
    yield f"Reference:\t{reference(hpa)}\nMetrics:\t( current / target )\n"
    for index, metric in enumerate(spec.get("metrics") or ()):
        yield f"  {_metric(metric, current_metric(hpa, index))}\n"
    yield f"Min replicas:\t{min_replicas(spec)}\nMax replicas:\t{spec.get('maxReplicas', 0)}\n"
    if spec.get("behavior") is not None:
        yield "Behavior:\n"
        yield from _direction("Scale Up", spec["behavior"].get("scaleUp"))
        yield from _direction("Scale Down", spec["behavior"].get("scaleDown"))
    kind = (spec.get("scaleTargetRef") or {}).get("kind", "")
    yield f"{kind} pods:\t{status.get('currentReplicas', 0)} current / {status.get('desiredReplicas', 0)} desired\n"
    yield from _conditions(status.get("conditions") or ())


def _annotations(annotations: JsonView) -> Iterator[str]:
    for key in sorted(annotations.keys() - {_LAST_APPLIED}):
        value = annotations[key].removesuffix("\n")
        if "\n" not in value and len(f"{key}: {value}".encode()) <= _MAX_ANNOTATION_BYTES:
            yield f"{key}: {value}\n"
        else:
            yield f"{key}:\n" + "".join(f"\t  {_shorten(line)}\n" for line in value.split("\n"))


def _shorten(line: str) -> str:
    """Cut a line after a count of bytes; a character cut in half shows as the terminal's replacement."""
    data, limit = line.encode(), _MAX_ANNOTATION_BYTES - 2
    return line if len(data) <= limit else data[:limit].decode(errors="replace") + "..."


def _rfc1123(time: str | None) -> str:
    moment = parse_moment(time) if time else datetime(1, 1, 1, tzinfo=UTC)
    # Not strftime: its names follow the locale, and it does not pad years.
    day = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")[moment.weekday()]
    month = "JanFebMarAprMayJunJulAugSepOctNovDec"[moment.month * 3 - 3 : moment.month * 3]
    return f"{day}, {moment.day:02} {month} {moment.year:04} {moment:%H:%M:%S} +0000"


def _metric(metric: JsonView, status: JsonView) -> str:
    kind = metric.get("type", "")
    source, name = source_of(metric, kind)
    if source is None or kind not in METRIC_TYPES:
        return f"<unknown metric type {go_quote(kind)}>"
    target, current = source["target"], current_of(status, name)
    if kind in ("Resource", "ContainerResource"):
        container = f' of container "{source["container"]}"' if kind == "ContainerResource" else ""
        return f"resource {source['name']}{container} on pods{_resource_values(target, current)}"
    if kind == "Pods":
        values = f"{quantity(current, 'averageValue')} / {nil(target, 'averageValue')}"
        return f"{go_quote(source['metric']['name'])} on pods:\t{values}"
    if kind == "External":
        label, average = go_quote(source["metric"]["name"]), target.get("averageValue") is not None
        shown = known(current, "averageValue") if average else quantity(current, "value")
    else:
        described = source["describedObject"]
        label = f'"{source["metric"]["name"]}" on {described.get("kind", "")}/{described.get("name", "")}'
        average = target.get("type") == "AverageValue"
        shown = quantity(current, "averageValue" if average else "value")
    if average:
        return f"{label} (target average value):\t{shown} / {nil(target, 'averageValue')}"
    return f"{label} (target value):\t{shown} / {nil(target, 'value')}"


def _resource_values(target: JsonView, current: JsonView | None) -> str:
    if target.get("averageValue") is not None:
        return f":\t{quantity(current, 'averageValue')} / {target['averageValue']}"
    shown = percent(current)
    if current is not None and shown != UNKNOWN:
        shown += f" ({nil(current, 'averageValue')})"
    return f"  (as a percentage of request):\t{shown} / {target_percent(target)}"


def _direction(title: str, rules: JsonView | None) -> Iterator[str]:
    if rules is None:
        return
    yield f"  {title}:\n"
    if rules.get("stabilizationWindowSeconds") is not None:
        yield f"    Stabilization Window: {rules['stabilizationWindowSeconds']} seconds\n"
    policies = rules.get("policies") or ()
    if policies:
        select = rules.get("selectPolicy")
        yield f"    Select Policy: {'Max' if select is None else select}\n    Policies:\n"
    for policy in policies:
        period = f"Period: {policy['periodSeconds']} seconds"
        yield f"      - Type: {policy['type']}\tValue: {policy['value']}\t{period}\n"


def _conditions(conditions: Sequence[JsonView]) -> Iterator[str]:
    if conditions:
        yield "Conditions:\n  Type\tStatus\tReason\tMessage\n  ----\t------\t------\t-------\n"
    for each in conditions:
        cells = (each.get(name, "") for name in ("type", "status", "reason", "message"))
        yield "  " + "\t".join(cells) + "\n"
