"""Cut what comes from outside down to the limits: at the observer and in ingest. No I/O.

What can do its work in a smaller form is kept in that form, so that nothing is decided by an older state in silence: of
an HPA a stub that names the reason why it is ignored, of a pod all but its labels and containers, of a scale an error,
of an error text its beginning. Only answers and samples under an impossible name are left out.
"""

import itertools
import operator
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any, TypeVar

from msgspec import Struct, structs

from schemas import limits
from schemas.answers import AnswerIdentity, Answers, MetricAnswer
from schemas.codec import encode
from schemas.entries import Outcome
from schemas.kubernetes.shape import Json
from schemas.limits import OverLimitError, check, shortened
from schemas.observed import (
    IGNORED,
    AutoscalerList,
    AutoscalerSet,
    ClusterReport,
    Heartbeat,
    Pod,
    PodList,
    PodSet,
    Point,
    Samples,
    ScaleSet,
    Serving,
    WriteProblem,
)
from schemas.topics import MAX_LOG_RECORD_BYTES

NoteOverLimit = Callable[[OverLimitError], None]
"""Takes what exceeded a limit and was cut or left out."""
T = TypeVar("T")
S = TypeVar("S", bound=Struct)

CHUNK_BYTES = MAX_LOG_RECORD_BYTES * 3 // 4
"""Ingest adds a source and a key to every entry and writes it into a log record; a quarter is kept for that."""

_TEXTS = ("author", "reason", "manager", "stated_by")
_KEPT_METADATA = ("name", "namespace", "uid", "generation", "resourceVersion", "creationTimestamp")
_KEPT_STATUS = ("observedGeneration", "lastScaleTime", "currentReplicas", "desiredReplicas")
_NO_TARGET = {"apiVersion": "", "kind": "TooLong", "name": "too-long"}


def fitted(body: T, namespace: str, note: NoteOverLimit) -> T:
    """Return a body within the limits: itself, unless something exceeds them."""
    smaller: Any = body
    match body:
        case AutoscalerSet() | AutoscalerList():
            smaller = _fitted_autoscalers(body, namespace, note)
        case PodSet():
            smaller = _changed(body, pod=_fitted_pod(body.pod, note))
        case PodList():
            smaller = _changed(body, pods=[_fitted_pod(pod, note) for pod in body.pods])
        case Answers():
            smaller = _fitted_answers(body, note)
        case Samples():
            smaller = _changed(body, points=list(_good(body.points, check_point, note)))
        case ScaleSet():
            smaller = _fitted_scale(body, note)
        case Outcome():
            smaller = _fitted_outcome(body, note)
        case Heartbeat():
            problems = {name: shortened(text, limits.PROBLEM) for name, text in body.problems.items()}
            smaller = _changed(body, problems=problems)
        case Serving():
            smaller = _changed(body, problems={name: _fitted_problem(each) for name, each in body.problems.items()})
        case ClusterReport():
            smaller = _fitted_report(body, note)
    kind: type[Struct] = type(smaller)
    texts = {field: shortened(text, limits.TEXT) for field in _texts_of(kind) if (text := getattr(smaller, field))}
    fit: T = _changed(smaller, **texts) if texts else smaller
    return fit


@cache
def _texts_of(kind: type[Struct]) -> tuple[str, ...]:
    """The fields of a body that are bounded wherever they occur."""
    return tuple(field for field in _TEXTS if field in kind.__struct_fields__)


def _changed(body: S, **fields: Any) -> S:
    """Replace fields; the body itself where each is what it was."""
    same = all(_is_same(getattr(body, name), value) for name, value in fields.items())
    return body if same else structs.replace(body, **fields)


def _is_same(before: Any, after: Any) -> bool:
    if isinstance(before, list):
        return len(before) == len(after) and all(map(operator.is_, before, after))
    return before is after or bool(before == after)


def _good(items: Iterable[T], check_one: Callable[[T], None], note: NoteOverLimit) -> Iterator[T]:
    for item in items:
        try:
            check_one(item)
        except OverLimitError as error:
            note(error)
        else:
            yield item


def _fitted_problem(problem: WriteProblem) -> WriteProblem:
    return _changed(problem, error=shortened(problem.error, limits.PROBLEM))


# --- HPAs -------------------------------------------------------------------------------------------------------------


def _fitted_autoscalers(
    body: AutoscalerSet | AutoscalerList, namespace: str, note: NoteOverLimit
) -> AutoscalerSet | AutoscalerList:
    if isinstance(body, AutoscalerSet):
        return _changed(body, hpa=fitted_hpa(body.hpa, namespace, note))
    return _changed(body, hpas=[fitted_hpa(hpa, namespace, note) for hpa in body.hpas])


def fitted_hpa(hpa: Json, namespace: str, note: NoteOverLimit) -> Json:
    """Return an HPA, or a stub of it that says under `ignored` why it is ignored.

    A stub has the identity, target, bounds and counts of the HPA, and no metrics. It is of any version that the object
    is of; what is wrong with its fields stays wrong.
    """
    try:
        _check_hpa(hpa, namespace)
    except OverLimitError as error:
        note(error)
        return _stub(hpa, f"fleethpa ignores this HPA: {error}")
    return hpa


def over_limits(hpa: Json, namespace: str) -> list[OverLimitError]:
    """Return why an HPA would be ignored; empty: it would not."""
    noted: list[OverLimitError] = []
    fitted_hpa(hpa, namespace, noted.append)
    return noted


def _check_hpa(hpa: Json, namespace: str) -> None:
    metadata, spec = hpa.get("metadata"), hpa.get("spec")
    if not isinstance(metadata, dict) or not isinstance(spec, dict):
        return
    of = f"HPA {namespace}/{str(metadata.get('name'))[:253]}"
    try:
        encoded = encode(spec)
        check(limits.HPA_SPEC, len(encoded), of)
        if "managedFields" in metadata:
            hpa = {**hpa, "metadata": {name: value for name, value in metadata.items() if name != "managedFields"}}
        check(limits.HPA_OBJECT, len(encode(hpa)), of)
    except RecursionError:
        return  # ingest refuses what is nested so deeply
    metrics = spec.get("metrics")
    check(limits.HPA_METRICS, len(metrics) if isinstance(metrics, list) else 0, of)
    check(limits.UID, len(str(metadata.get("uid") or "")), of)
    for path, value in _walk(spec, "spec") if _may_be_long(encoded) else ():
        if isinstance(value, str):
            check(limits.HPA_TEXT, len(value), f"{of}, {path},")
        elif path.endswith(".selector"):
            check(limits.HPA_SELECTOR, len(encode(value)), f"{of}, {path},")


def _may_be_long(spec: bytes) -> bool:
    """Whether a JSON object may have too long a text or selector: to walk all of it takes much longer."""
    most, quote = limits.HPA_TEXT.most, -1
    while len(spec) - quote - 1 > most:
        begin = quote + 1
        quote = spec.rfind(b'"', begin, begin + most + 1)
        if quote < 0:
            return True
    return len(spec) > most and (b"\\" in spec or b'selector":' in spec)


def _walk(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield each part of a JSON value with its path; keys are bounded with the whole."""
    yield path, value
    if isinstance(value, dict):
        for name, each in value.items():
            yield from _walk(each, f"{path}.{name}"[-limits.HPA_TEXT.most :])
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from _walk(each, f"{path}[{index}]")


def _stub(hpa: Json, why: str) -> Json:
    metadata, spec, status = hpa["metadata"], hpa["spec"], hpa.get("status")
    kept = {name: _short(metadata[name]) for name in _KEPT_METADATA if name in metadata}
    target = spec.get("scaleTargetRef")
    bounds = {name: _short(spec[name]) for name in ("minReplicas", "maxReplicas") if name in spec}
    is_small = len(encode(target)) <= limits.HPA_TEXT.most
    stub = {
        "apiVersion": hpa.get("apiVersion"),
        "kind": hpa.get("kind"),
        "metadata": kept,
        "spec": {"scaleTargetRef": target if is_small else _NO_TARGET, **bounds},
        IGNORED: why,
    }
    if isinstance(status, dict):
        stub["status"] = _short_status(status)
    return stub


def _short_status(status: Json) -> Json:
    return {name: _short(status[name]) for name in _KEPT_STATUS if name in status}


def _short(value: Any) -> Any:
    """Numbers as they are, of a text no more than a name may have; what is neither is left for ingest to refuse."""
    if isinstance(value, str):
        return value[: limits.SCALE_NAME.most]
    return value if isinstance(value, int) and abs(value) < 2**63 else None


# --- pods, scales, metrics --------------------------------------------------------------------------------------------


def _fitted_pod(pod: Pod, note: NoteOverLimit) -> Pod:
    try:
        check(limits.POD, len(encode(pod)), f"pod {pod.name[:253]}")
    except OverLimitError as error:
        note(error)
        return Pod(name=pod.name, uid=pod.uid[: limits.UID.most], phase=pod.phase[:32], start=pod.start)
    return pod


def check_question(asked: AnswerIdentity) -> None:
    """Check the texts that say what an answer of a metrics API answers. Raises OverLimitError: naming the field."""
    if _is_short(asked):
        return
    selectors, texts = (asked.selector, asked.metric_selector), (asked.metric, asked.group_kind, asked.object)
    of = f"an answer to {asked.metric[:80] or asked.api}"
    for selector in selectors:
        check(limits.QUESTION, len(selector), of)
    for text in texts:
        check(limits.QUESTION_TEXT, len(text), of)


def _is_short(asked: AnswerIdentity) -> bool:
    """Whether all texts of a question together are no longer than one of them may be, as nearly always."""
    length = len(asked.selector) + len(asked.metric_selector)
    return length + len(asked.metric) + len(asked.group_kind) + len(asked.object) <= limits.QUESTION_TEXT.most


def check_point(point: Point) -> None:
    """Check the texts of a pushed sample. Raises OverLimitError: naming the field."""
    texts = (point.metric, point.pod, point.container, point.object_kind, point.object)
    labels = (
        sum([len(name) + len(value) + 2 for name, value in point.labels.items()]) if point.type == "External" else 0
    )
    if sum(map(len, texts)) <= limits.QUESTION_TEXT.most and labels <= limits.LABELS.most:
        return
    of = f"a sample of {point.metric[:80]}"
    for text in texts:
        check(limits.QUESTION_TEXT, len(text), of)
    check(limits.LABELS, labels, of)


def _fitted_answers(body: Answers, note: NoteOverLimit) -> Answers:
    if all([_is_short(each) and each.error is None and not each.asked for each in body.items]):
        return body
    return _changed(body, items=[_fitted_answer(item) for item in _good(body.items, check_question, note)])


def _fitted_answer(answer: MetricAnswer) -> MetricAnswer:
    """Return an answer whose texts are within their limits."""
    if answer.asked:
        answer = _changed(answer, asked=shortened(answer.asked, limits.ASKED))
    return answer if answer.error is None else _changed(answer, error=shortened(answer.error, limits.ERROR))


def _fitted_scale(body: ScaleSet, note: NoteOverLimit) -> ScaleSet:
    target = body.target
    of = f"the scale of {target.kind[:80]}/{target.name[:253]}"
    try:
        check(limits.SELECTOR, len(body.selector), of)
        for text in (body.resource_version, body.uid):
            check(limits.SCALE_NAME, len(text), of)
    except OverLimitError as error:
        note(error)
        return ScaleSet(target=target, error=str(error), session=body.session)
    return body if body.error is None else _changed(body, error=shortened(body.error, limits.ERROR))


def _fitted_outcome(body: Outcome, note: NoteOverLimit) -> Outcome:
    """An outcome always counts: what is too long of what it shows of the scale is left out."""
    smaller, of = _changed(body, error=shortened(body.error, limits.ERROR)), f"the outcome of {body.decision[:253]}"
    for limit, field, without in ((limits.SELECTOR, "selector", None), (limits.SCALE_NAME, "resource_version", "")):
        try:
            check(limit, len(getattr(body, field) or ""), of)
        except OverLimitError as error:
            note(error)
            smaller = structs.replace(smaller, **{field: without})
    return smaller


def _fitted_report(body: ClusterReport, note: NoteOverLimit) -> ClusterReport:
    """A report always counts; of more troubles than fit, the first ones are kept."""
    smaller = _changed(
        body, troubles=[_changed(each, error=shortened(each.error, limits.PROBLEM)) for each in body.troubles]
    )
    try:
        check(limits.REPORT, len(encode(smaller)), f"cluster {body.cluster[:253]}")
    except OverLimitError as error:
        note(error)
        room = limits.REPORT.most - len(encode(structs.replace(smaller, troubles=[]))) - len(',"troubles":[]')
        sizes = itertools.accumulate(len(encode(each)) + (index > 0) for index, each in enumerate(smaller.troubles))
        return structs.replace(
            smaller, troubles=[each for each, size in zip(smaller.troubles, sizes, strict=True) if size <= room]
        )
    return smaller


def split(items: Iterable[T], limit: int = CHUNK_BYTES) -> Iterator[list[T]]:
    """Split so that the encoded items of a part stay within `limit` bytes; an item above it is a part of its own."""
    items = list(items)
    if len(items) == 1:
        yield items
        return
    part: list[T] = []
    size = 0
    for item in items:
        length = len(encode(item)) + 1
        if part and size + length > limit:
            yield part
            part, size = [], 0
        part.append(item)
        size += length
    if part:
        yield part
