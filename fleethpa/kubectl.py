"""HorizontalPodAutoscalers as kubectl shows them: the table of `get` and the text of `describe`, to the byte.

Source: pkg/printers/internalversion/printers.go v1.37.1; k8s.io/kubectl/pkg/describe/describe.go,
k8s.io/cli-runtime/pkg/printers/tableprinter.go and k8s.io/apimachinery/pkg/util/duration v0.37.1.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from fleethpa.tabwriter import align
from schemas.fielderrors import go_quote

Json = Mapping[str, Any]

COLUMNS = ("Name", "Reference", "Targets", "MinPods", "MaxPods", "Replicas", "Age")
UNKNOWN = "<unknown>"
_SHOWN_TARGETS = 2
_MAX_ANNOTATION_BYTES = 140
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


# --- ages -------------------------------------------------------------------------------------------------------------


def human_duration(seconds: float) -> str:
    """Show a duration as kubectl shows ages; part seconds are cut off toward zero."""
    whole = int(seconds)  # not //: minus one and a half second still is "almost now"
    if whole < -1:
        return "<invalid>"
    if whole < 120:
        return f"{max(whole, 0)}s"
    minutes, hours, days = whole // 60, whole // 3600, whole // 86_400
    if minutes < 10:
        return _two_units(minutes, "m", whole % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return _two_units(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if hours < 192:
        return _two_units(days, "d", hours % 24, "h")
    if days < 730:
        return f"{days}d"
    return _two_units(days // 365, "y", days % 365 if days < 2920 else 0, "d")


def since(time: str | None, now_ms: int) -> str:
    """Show how long ago an RFC 3339 time was; `<unknown>` without one."""
    return human_duration((now_ms - parse_time_ms(time)) / 1000) if time else UNKNOWN


def _two_units(first: int, first_unit: str, second: int, second_unit: str) -> str:
    return f"{first}{first_unit}" + (f"{second}{second_unit}" if second else "")


def parse_time_ms(time: str) -> int:
    """Read an RFC 3339 time into milliseconds since the Unix epoch."""
    moment = datetime.fromisoformat(time)
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // _MILLISECOND


_MILLISECOND = timedelta(milliseconds=1)


# --- the table --------------------------------------------------------------------------------------------------------


def hpa_table_cells(hpa: Json, now_ms: int) -> list[str | int]:
    """Give the row that the API server gives for `kubectl get hpa`; `wide` shows no more."""
    spec, status, metadata = hpa["spec"], hpa.get("status") or {}, hpa["metadata"]
    return [
        metadata.get("name", ""),
        reference(hpa),
        targets(hpa),
        _min_replicas(spec),
        spec.get("maxReplicas", 0),
        status.get("currentReplicas", 0),
        since(metadata.get("creationTimestamp"), now_ms),
    ]


def reference(hpa: Json) -> str:
    """Give the REFERENCE cell: kind and name of the scale target."""
    target = hpa["spec"].get("scaleTargetRef") or {}
    return f"{target.get('kind', '')}/{target.get('name', '')}"


def targets(hpa: Json) -> str:
    """Give the TARGETS cell: current and target of the first two metrics, and how many more there are."""
    metrics = hpa["spec"].get("metrics") or ()
    if not metrics:
        return "<none>"
    shown = [_target_cell(metric, _current(hpa, index)) for index, metric in enumerate(metrics)]
    more = f" + {len(shown) - _SHOWN_TARGETS} more..." if len(shown) > _SHOWN_TARGETS else ""
    return ", ".join(shown[:_SHOWN_TARGETS]) + more


def hpa_table(
    hpas: Iterable[Json],
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
    return align("".join("\t".join(line) + "\n" for line in lines), min_width=6, padding=3)


def _widest(line: Sequence[str], given: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Pad the cells of the first line, but for the last, to the bytes of the longest whole cell of their columns."""
    bytes_of = [max(len(cell.encode()) for cell in column) for column in zip(*rows, strict=True)]
    padded = [text + " " * (size - len(own.encode())) for text, own, size in zip(line, given, bytes_of, strict=True)]
    return [*padded[:-1], line[-1]]


def _cell(cell: str | int) -> str:
    first, *rest = re.split("[\f\n\r]", str(cell), maxsplit=1)
    return _escape(first) + ("..." if rest else "")


def _all_labels(labels: Json) -> str:
    return ",".join(f"{key}={labels[key]}" for key in sorted(labels)) or "<none>"


def _min_replicas(spec: Json) -> str:
    replicas = spec.get("minReplicas")
    return "<unset>" if replicas is None else str(replicas)


def _current(hpa: Json, index: int) -> Json:
    """Give the current metric in a metric's place; upstream pairs them by place alone."""
    metrics = (hpa.get("status") or {}).get("currentMetrics") or ()
    return metrics[index] if index < len(metrics) else {}


def _source(metric: Json, kind: str) -> tuple[Json | None, str]:
    name = kind[:1].lower() + kind[1:]
    return metric.get(name), name


def _target_cell(metric: Json, status: Json) -> str:
    kind = metric.get("type", "")
    source, name = _source(metric, kind)
    if source is None or kind not in ("Resource", "ContainerResource", "Pods", "Object", "External"):
        return "<unknown type>"
    target, current = source["target"], _current_of(status, name)
    if kind in ("Resource", "ContainerResource"):
        if target.get("averageValue") is not None:
            return f"{source['name']}: {_quantity(current, 'averageValue')}/{target['averageValue']}"
        return f"{source['name']}: {_percent(current)}/{_target_percent(target)}"
    if kind == "Pods":
        return f"{_quantity(current, 'averageValue')}/{_nil(target, 'averageValue')}"
    if target.get("averageValue") is not None:
        return f"{_known(current, 'averageValue')}/{target['averageValue']} (avg)"
    return f"{_quantity(current, 'value')}/{_nil(target, 'value')}"


def _current_of(status: Json, name: str) -> Json | None:
    source = status.get(name)
    return None if source is None else source.get("current") or {}


def _quantity(current: Json | None, name: str) -> str:
    """Show a quantity of a current metric, `<nil>` where the metric is there without it, as upstream prints."""
    return UNKNOWN if current is None else _nil(current, name)


def _known(current: Json | None, name: str) -> str:
    value = None if current is None else current.get(name)
    return UNKNOWN if value is None else str(value)


def _nil(values: Json, name: str) -> str:
    value = values.get(name)
    return "<nil>" if value is None else str(value)


def _percent(current: Json | None) -> str:
    utilization = None if current is None else current.get("averageUtilization")
    return UNKNOWN if utilization is None else f"{utilization}%"


def _target_percent(target: Json) -> str:
    utilization = target.get("averageUtilization")
    return "<auto>" if utilization is None else f"{utilization}%"


# --- describe ---------------------------------------------------------------------------------------------------------


def describe(hpa: Json, events: Sequence[Json] | None = None, now_ms: int = 0) -> str:
    """Give what `kubectl describe hpa` prints.

    Args:
        hpa: defaulted autoscaling/v2 object.
        events: its events (core/v1); None is `--show-events=false`.
        now_ms: the time that the events' ages refer to.
    """
    text = "".join(_escape(part) for part in _page(hpa))
    if not events:
        return align(text + ("" if events is None else "Events:\t<none>\n"))
    return align(text) + align("".join(_escape(line) for line in _events(events, now_ms)))


def _page(hpa: Json) -> Iterator[str]:
    spec, status, metadata = hpa["spec"], hpa.get("status") or {}, hpa["metadata"]
    yield f"Name:\t{metadata.get('name', '')}\nNamespace:\t{metadata.get('namespace', '')}\n"
    labels = metadata.get("labels") or {}
    yield "Labels:\t" + ("\t".join(f"{key}={labels[key]}\n" for key in sorted(labels)) or "<none>\n")
    yield "Annotations:\t" + ("\t".join(_annotations(metadata.get("annotations") or {})) or "<none>\n")
    yield f"CreationTimestamp:\t{_rfc1123(metadata.get('creationTimestamp'))}\n"
    yield f"Reference:\t{reference(hpa)}\nMetrics:\t( current / target )\n"
    for index, metric in enumerate(spec.get("metrics") or ()):
        yield f"  {_metric(metric, _current(hpa, index))}\n"
    yield f"Min replicas:\t{_min_replicas(spec)}\nMax replicas:\t{spec.get('maxReplicas', 0)}\n"
    if spec.get("behavior") is not None:
        yield "Behavior:\n"
        yield from _direction("Scale Up", spec["behavior"].get("scaleUp"))
        yield from _direction("Scale Down", spec["behavior"].get("scaleDown"))
    kind = (spec.get("scaleTargetRef") or {}).get("kind", "")
    yield f"{kind} pods:\t{status.get('currentReplicas', 0)} current / {status.get('desiredReplicas', 0)} desired\n"
    yield from _conditions(status.get("conditions") or ())


def _annotations(annotations: Json) -> Iterator[str]:
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
    moment = datetime.fromisoformat(time).astimezone(UTC) if time else datetime(1, 1, 1, tzinfo=UTC)
    # Not strftime: its names follow the locale, and it does not pad years.
    day = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")[moment.weekday()]
    month = "JanFebMarAprMayJunJulAugSepOctNovDec"[moment.month * 3 - 3 : moment.month * 3]
    return f"{day}, {moment.day:02} {month} {moment.year:04} {moment:%H:%M:%S} +0000"


def _metric(metric: Json, status: Json) -> str:
    kind = metric.get("type", "")
    source, name = _source(metric, kind)
    if source is None or kind not in ("Resource", "ContainerResource", "Pods", "Object", "External"):
        return f"<unknown metric type {go_quote(kind)}>"
    target, current = source["target"], _current_of(status, name)
    if kind in ("Resource", "ContainerResource"):
        container = f' of container "{source["container"]}"' if kind == "ContainerResource" else ""
        return f"resource {source['name']}{container} on pods{_resource_values(target, current)}"
    if kind == "Pods":
        values = f"{_quantity(current, 'averageValue')} / {_nil(target, 'averageValue')}"
        return f"{go_quote(source['metric']['name'])} on pods:\t{values}"
    if kind == "External":
        label, average = go_quote(source["metric"]["name"]), target.get("averageValue") is not None
        shown = _known(current, "averageValue") if average else _quantity(current, "value")
    else:
        described = source["describedObject"]
        label = f'"{source["metric"]["name"]}" on {described.get("kind", "")}/{described.get("name", "")}'
        average = target.get("type") == "AverageValue"
        shown = _quantity(current, "averageValue" if average else "value")
    if average:
        return f"{label} (target average value):\t{shown} / {_nil(target, 'averageValue')}"
    return f"{label} (target value):\t{shown} / {_nil(target, 'value')}"


def _resource_values(target: Json, current: Json | None) -> str:
    if target.get("averageValue") is not None:
        return f":\t{_quantity(current, 'averageValue')} / {target['averageValue']}"
    shown = _percent(current)
    if current is not None and shown != UNKNOWN:
        shown += f" ({_nil(current, 'averageValue')})"
    return f"  (as a percentage of request):\t{shown} / {_target_percent(target)}"


def _direction(title: str, rules: Json | None) -> Iterator[str]:
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


def _conditions(conditions: Sequence[Json]) -> Iterator[str]:
    if conditions:
        yield "Conditions:\n  Type\tStatus\tReason\tMessage\n  ----\t------\t------\t-------\n"
    for each in conditions:
        cells = (each.get(name, "") for name in ("type", "status", "reason", "message"))
        yield "  " + "\t".join(cells) + "\n"


def _events(events: Sequence[Json], now_ms: int) -> Iterator[str]:
    yield "Events:\n  Type\tReason\tAge\tFrom\tMessage\n  ----\t------\t----\t----\t-------\n"
    for event in sorted(events, key=_last_seen):
        source = (event.get("source") or {}).get("component") or event.get("reportingComponent", "")
        cells = (event.get("type", ""), event.get("reason", ""), _interval(event, now_ms), source, _message(event))
        yield "  " + "\t".join(cells) + "\n"


def _message(event: Json) -> str:
    part, message = (event.get("involvedObject") or {}).get("fieldPath", ""), event.get("message", "").strip()
    return f"{part}: {message}" if part else message


def _last_seen(event: Json) -> int:
    # The zero time comes first.
    return parse_time_ms(event["lastTimestamp"]) if event.get("lastTimestamp") else -(2**62)


def _interval(event: Json, now_ms: int) -> str:
    first = since(event.get("eventTime") or event.get("firstTimestamp"), now_ms)
    series = event.get("series")
    if series is not None:
        return f"{since(series.get('lastObservedTime'), now_ms)} (x{series.get('count', 0)} over {first})"
    if event.get("count", 0) > 1:
        return f"{since(event.get('lastTimestamp'), now_ms)} (x{event['count']} over {first})"
    return first


def _escape(text: str) -> str:
    """Make control sequences visible, as kubectl does, so that nothing moves the cursor."""
    return text.replace("\x1b", "^[").replace("\r", "\\r")
