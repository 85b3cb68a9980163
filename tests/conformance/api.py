"""Check the Kubernetes API types against upstream's answers: quantities, defaults, validation, conversion, selectors,
and what kubectl prints.

Every check takes the cases of a file in order and gives one list of differences per case; they share a signature
because the cases of some files refer to lines before them.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

from fleethpa.show import kubectl
from fleethpa.show import text as ages
from schemas.kubernetes import versions
from schemas.kubernetes.apirules import CURRENT_API, ApiRules, api_rules
from schemas.kubernetes.fielderrors import FieldError
from schemas.kubernetes.gotimes import parse_time_ms
from schemas.kubernetes.hpa import decode_and_default, wire_form
from schemas.kubernetes.quantity import Quantity, QuantityError, format_milli, parse_quantity
from schemas.kubernetes.selectors import (
    SelectorError,
    label_selector,
    label_selector_text,
    parse_selector,
    print_label_selector,
)
from schemas.kubernetes.shape import Json
from schemas.kubernetes.validation import (
    api_error_message,
    handwritten_create,
    handwritten_update,
    validate_create,
    validate_update,
)
from tests.conformance import emptylists
from tests.conformance.compare import AnswerDifference, attempt, differences
from tests.conformance.kubectltable import COLUMNS, hpa_table
from tests.conformance.strategy import generation_after_update, stored, validate_status
from tests.conformance.v1 import v2_to_v1

CaseCheck = Callable[[Iterable[Json]], Iterator[list[AnswerDifference]]]


def _each(answer: Callable[[Json], Json]) -> CaseCheck:
    """Make the check of a file whose cases stand alone from the function that gives our answer to one."""

    def compare(case: Json) -> Iterator[AnswerDifference]:
        ours = answer(case)
        return differences({name: case.get(name) for name in ours} | _answers(case), ours)

    def check(cases: Iterable[Json]) -> Iterator[list[AnswerDifference]]:
        for case in cases:
            yield attempt(partial(compare, case))

    return check


_QUESTIONS = frozenset({"in", "old", "op", "from", "cmp", "fromMilli", "labelSelector", "version"})


def _rules(case: Json) -> ApiRules:
    """Give the rules of the version that answered a case; a case without one was answered by v1.37."""
    return api_rules(case["version"]) if "version" in case else CURRENT_API


def _answers(case: Json) -> Json:
    """Give all that upstream answered: what we leave out counts as a difference too."""
    return {name: value for name, value in case.items() if name not in _QUESTIONS}


# --- quantities -------------------------------------------------------------------------------------------------------


def _quantity_answer(case: Json) -> Json:
    parse = partial(parse_quantity, saturating=_rules(case).quantities_saturate)
    if "cmp" in case:
        first, second = map(parse, case["cmp"])
        return {"result": first.cmp(second)}
    if "fromMilli" in case:
        return _printed_milli(case["fromMilli"], parse)
    try:
        quantity = parse(case["in"])
    except QuantityError as error:
        return {"error": str(error)}
    again = parse(str(quantity))
    return {
        "string": str(quantity),
        "canonical": quantity.canonical(),
        "format": quantity.format,
        "milli": quantity.milli_value(),
        "value": quantity.value(),
        "sign": quantity.sign(),
        "float": _shown_float(quantity),
        "json": f'"{again}"',
        "jsonFloat": _shown_float(parse(str(again))),
    }


def _printed_milli(milli: int, parse: Callable[[str], Quantity]) -> Json:
    decimal, binary = format_milli(milli), format_milli(milli, "BinarySI")
    return {
        "DecimalSI": decimal,
        "BinarySI": binary,
        "DecimalSIAgain": str(parse(decimal)),
        "BinarySIAgain": str(parse(binary)),
    }


def _shown_float(quantity: Quantity) -> float | str:
    number = quantity.as_float()
    if math.isnan(number):
        return "NaN"
    return number if math.isfinite(number) else ("+Inf" if number > 0 else "-Inf")


def check_quantity(cases: Iterable[Json]) -> Iterator[list[AnswerDifference]]:
    """Check parsing, printing, rounding, comparing. A whole double stands in the file as an integer."""
    return _each(_quantity_answer)(_with_doubles(case) for case in cases)


def _with_doubles(case: Json) -> Json:
    return {
        name: float(value) if name in ("float", "jsonFloat") and isinstance(value, int) else value
        for name, value in case.items()
    }


# --- objects ----------------------------------------------------------------------------------------------------------


def _defaulting_answer(case: Json) -> Json:
    return {"out": wire_form(decode_and_default(case["in"], _rules(case)))}


def _conversion_answer(case: Json) -> Json:
    hpa = decode_and_default(case["in"])
    if case["from"] == "v2":
        old = wire_form(v2_to_v1(stored(case["in"])))
        return {"v1": old, "v2Again": wire_form(versions.v1_to_v2(decode_and_default(old)))}
    new = wire_form(versions.v1_to_v2(hpa))
    return {"v2": new, "v1Again": wire_form(v2_to_v1(stored(new)))}


def _validation_answer(case: Json) -> Json:
    """Answer from the input as the file shows it (see `emptylists` for what it may have lost)."""
    new, old, rules = case["in"], case.get("old"), _rules(case)
    name = (new.get("metadata") or {}).get("name", "")
    if case["op"] == "status":
        errors = validate_status(new, old or {}, rules)
        return {"errors": _shown_errors(errors), "message": api_error_message(name, errors)}
    if old is None:
        errors, generation = validate_create(new, rules), 1
        written = handwritten_create(stored(new, rules), rules)
    else:
        errors, generation = validate_update(new, old, rules), generation_after_update(new, old, rules)
        written = handwritten_update(stored(new, rules), stored(old, rules), rules)
    return {
        "errors": _shown_errors(errors),
        "message": api_error_message(name, errors),
        "handwritten": _shown_errors(written),
        "generation": generation,
    }


def _shown_errors(errors: Iterable[FieldError]) -> list[Json]:
    return [{"type": e.type, "field": e.field, "detail": e.detail, "string": e.string} for e in errors]


def check_validation(cases: Iterable[Json]) -> Iterator[list[AnswerDifference]]:
    """Check what is refused."""
    return _each(_validation_answer)(map(_with_lists, cases))


def _with_lists(case: Json) -> Json:
    """No errors may stand in the file as null."""
    return case | {name: case[name] or [] for name in ("errors", "handwritten") if name in case}


def explain_validation(case: Json) -> str | None:
    """Name the class of a difference in a validation case, None when nothing explains it."""
    return emptylists.explain(case, _answers(_with_lists(case)), _validation_answer)


# --- selectors --------------------------------------------------------------------------------------------------------


def check_selectors(cases: Iterable[Json]) -> Iterator[list[AnswerDifference]]:
    """Check selectors; the first line holds the label sets that they are matched against."""
    lines = iter(cases)
    label_sets = next(lines)["labelSets"]
    return _each(lambda case: _selector_answer(case, label_sets))(lines)


def _selector_answer(case: Json, label_sets: Iterable[Mapping[str, str]]) -> Json:
    answer: Json = {}
    if "labelSelector" in case:
        given = case["labelSelector"]
        answer = {"printed": print_label_selector(given), "formatted": _formatted(given)}
    try:
        selector = label_selector(case["labelSelector"]) if "labelSelector" in case else parse_selector(case["in"])
    except SelectorError as error:
        return answer | {"error": str(error)}
    matches = [index for index, labels in enumerate(label_sets) if selector.matches(labels)]
    return answer | {"string": str(selector), "empty": selector.empty, "matches": matches}


def _formatted(selector: Json | None) -> str:
    """Show a LabelSelector object as kubectl does."""
    try:
        return label_selector_text(selector) or "<none>"
    except SelectorError:
        return "<error>"


# --- kubectl ----------------------------------------------------------------------------------------------------------

_TABLES: dict[str, Json] = {
    "plain": {},
    "wide": {},
    "allNamespaces": {"all_namespaces": True},
    "showLabels": {"show_labels": True},
    "noHeaders": {"headers": False},
    "labelColumns": {"label_columns": ("team",)},
}


def check_kubectl(cases: Iterable[Json]) -> Iterator[list[AnswerDifference]]:
    """Check ages, `describe`, rows and tables; a table shows the five objects before it."""
    shown: deque[Json] = deque(maxlen=5)
    for case in cases:
        if case["kind"] == "describe":
            shown.append(case)
        yield attempt(partial(_compare_kubectl, case, list(shown)))


def _compare_kubectl(case: Json, shown: list[Json]) -> Iterator[AnswerDifference]:
    if case["kind"] == "age":
        return differences(case["text"], ages.human_duration(case["seconds"]), "text")
    return _described(case) if case["kind"] == "describe" else _tables(case, shown)


def _described(case: Json) -> Iterator[AnswerDifference]:
    now_ms = parse_time_ms(case["now"])
    # fleethpa shows decisions in place of the events that an API server has.
    text = case["describe"].partition("Events:")[0]
    yield from differences(text, kubectl.describe(case["hpa"]), "describe")
    yield from differences(case["cells"], kubectl.hpa_table_cells(case["hpa"], now_ms), "cells")


def _tables(case: Json, shown: list[Json]) -> Iterator[AnswerDifference]:
    hpas, now_ms = [each["hpa"] for each in shown], parse_time_ms(shown[-1]["now"])
    yield from differences(case["names"], [hpa["metadata"].get("name", "") for hpa in hpas], "names")
    yield from differences(case["columns"], list(COLUMNS), "columns")
    ours = {name: hpa_table(hpas, now_ms, **options) for name, options in _TABLES.items() if name in case["text"]}
    yield from differences(case["text"], ours, "text")


API_CHECKS: dict[str, CaseCheck] = {
    "quantity": check_quantity,
    "defaulting": _each(_defaulting_answer),
    "validation": check_validation,
    "conversion": _each(_conversion_answer),
    "selectors": check_selectors,
    "kubectl": check_kubectl,
}

EXPLANATIONS: dict[str, Callable[[Json], str | None]] = {"validation": explain_validation}
"""Kinds with differences that the files themselves cause: what names the class of a case that differs."""
