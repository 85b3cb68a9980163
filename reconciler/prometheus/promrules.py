"""The rules of prometheus-adapter: parsed from its file unchanged, and from a rule and a question the PromQL text.

Source: prometheus-adapter v0.12.0, pkg/config/config.go, pkg/naming/{metric_namer,metrics_query,resource_converter}.go.
Regular expressions are Go's (`goregexp`), and so is what templates have of Go's text/template.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
from msgspec import Struct

from reconciler.prometheus.goregexp import GoRegexp
from schemas.kubernetes.fielderrors import go_quote
from schemas.kubernetes.gotimes import parse_duration_ms
from schemas.kubernetes.manifests import YamlTextError, parse_yaml
from schemas.kubernetes.selectors import DOES_NOT_EXIST, EXISTS, Requirement, Selector

T = TypeVar("T")


class RulesError(ValueError):
    """A file of rules, or a rule for a question, cannot be used. The text names the file or the rule, and why."""


class ObjectResource(NamedTuple):
    """The resource that a custom metric describes."""

    plural: str
    singular: str
    group: str = ""

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


PODS: Final = ObjectResource("pods", "pod")
NAMESPACES: Final = ObjectResource("namespaces", "namespace")
ANY: Final = ".+"
"""In place of names: every object that has a label of the resource."""


# --- the file ---------------------------------------------------------------------------------------------------------


class _Part(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """As prometheus-adapter, a field that is not known is an error."""


class _Filter(_Part, frozen=True):
    is_: str = msgspec.field(name="is", default="")
    is_not: str = ""


class _GroupResource(_Part, frozen=True):
    resource: str = ""
    group: str = ""


class _Resources(_Part, frozen=True):
    template: str = ""
    overrides: dict[str, _GroupResource] = {}
    namespaced: str = ""


class _Name(_Part, frozen=True):
    matches: str = ""
    as_: str = msgspec.field(name="as", default="")


class _DiscoveryRule(_Part, frozen=True):
    series_query: str = ""
    series_filters: list[_Filter] = []
    resources: _Resources = _Resources()
    name: _Name = _Name()
    metrics_query: str = ""


class _ResourceRule(_Part, frozen=True):
    container_query: str = ""
    node_query: str = ""
    resources: _Resources = _Resources()
    container_label: str = ""


class _ResourceRules(_Part, frozen=True):
    cpu: _ResourceRule = _ResourceRule()
    memory: _ResourceRule = _ResourceRule()
    window: str = "0s"


class _File(_Part, frozen=True):
    rules: list[_DiscoveryRule] = []
    external_rules: list[_DiscoveryRule] = []
    resource_rules: _ResourceRules | None = None


# --- templates --------------------------------------------------------------------------------------------------------

_ACTION: Final = re.compile(
    r'<<(?P<left>-(?=[ \t\r\n]))?(?P<action>(?:/\*.*?\*/|"(?:\\.|[^"\\])*"|`[^`]*`|[^"`>]|>(?!>))*?)'
    r"(?P<right>[ \t\r\n]-)?>>",
    re.DOTALL,
)
_FIELD: Final = re.compile(r"\$?\.(\w+)(?:\.(\w+))?")
_INDEX: Final = re.compile(r'index[ \t\r\n]+\$?\.(\w+)[ \t\r\n]+(?:"([^"\\]*)"|`([^`]*)`|(0|[1-9]\d*))')
_TEXT: Final = re.compile(r'"([^"\\]*)"|`([^`]*)`')
_SPACE: Final = " \t\r\n"
_MAPS: Final = ("LabelValuesByName",)
_LISTS: Final = ("GroupBySlice",)
_Values = Mapping[str, Any]


class Template:
    """A text with Go's template actions between `<<` and `>>`: fields, those of a map too, `index` of a map or a list,
    and texts.

    Raises RulesError: it has another action, or one of a field that is not there.
    """

    def __init__(self, text: str, fields: Sequence[str]) -> None:
        self._parts: list[str | Callable[[_Values], str]] = []
        at, trims = 0, False
        for match in _ACTION.finditer(text):
            self._text(text[at : match.start()], trims, bool(match["left"]))
            action = match["action"].lstrip(_SPACE) if match["left"] else match["action"]
            if not (action.startswith("/*") and action.endswith("*/")):
                self._parts.append(_action(action.strip(_SPACE), fields))
            at, trims = match.end(), bool(match["right"])
        self._text(text[at:], trims, False)

    def _text(self, text: str, trims_left: bool, trims_right: bool) -> None:
        if "<<" in text:
            raise RulesError("a template action is not closed by >>")
        text = text.lstrip(_SPACE) if trims_left else text
        self._parts.append(text.rstrip(_SPACE) if trims_right else text)

    def fill(self, values: _Values) -> str:
        """The text with its actions replaced by values, which are printed as Go prints them.

        Raises RulesError: a list is shorter than the index of an action.
        """
        return "".join(part if isinstance(part, str) else part(values) for part in self._parts)


def _action(action: str, fields: Sequence[str]) -> Callable[[_Values], str] | str:
    """An action as a text, or as a function from the values to one."""
    if match := _TEXT.fullmatch(action):
        return match[1] or match[2] or ""
    match = _FIELD.fullmatch(action) or _INDEX.fullmatch(action)
    if match is None:
        raise RulesError(f"template action <<{action}>> is not supported: use a field, or index of one")
    name = match[1]
    if name not in fields:
        raise RulesError(f"template field .{name} is not known: there are {', '.join(fields)}")
    return _field(action, name, match[2]) if match.re is _FIELD else _index(action, name, *match.group(2, 3, 4))


def _field(action: str, name: str, key: str | None) -> Callable[[_Values], str]:
    if key is None:
        return lambda values: _printed(values[name])
    if name not in _MAPS:
        raise RulesError(f"template action <<{action}>>: .{name} has no fields")
    return lambda values: str(values[name].get(key, "<no value>"))


def _index(action: str, name: str, quoted: str | None, raw: str | None, number: str | None) -> Callable[[_Values], str]:
    if name in _LISTS and number is not None:
        return lambda values: _item(values[name], int(number), name)
    if name in _MAPS and number is None:
        return lambda values: str(values[name].get(quoted or raw or "", ""))
    raise RulesError(f"template action <<{action}>> is not supported: index takes a label of a map, or a number")


def _item(items: Sequence[str], index: int, name: str) -> str:
    if index >= len(items):
        raise RulesError(f"index out of range: {index}, for .{name} has {len(items)}")
    return items[index]


def _printed(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"map[{' '.join(f'{name}:{value[name]}' for name in sorted(value))}]"
    return value if isinstance(value, str) else f"[{' '.join(value)}]"


QUERY_FIELDS: Final = ("Series", "LabelMatchers", "LabelValuesByName", "GroupBy", "GroupBySlice")
_NOT_IN_LABELS = re.compile("[.-]")


@dataclass(frozen=True)
class ResourceLabels:
    """Which label of a series names the object of a resource."""

    overrides: tuple[tuple[str, str, str], ...]
    """Label, resource and group: of several labels for one resource the first counts."""
    template: Template | None

    def of(self, resource: ObjectResource) -> str:
        """The label of a resource. Raises RulesError: the rule has none for it."""
        for label, name, group in self.overrides:
            if name in (resource.plural, resource.singular) and resource.group.startswith(group):
                return label
        if self.template is None:
            raise RulesError(f"its rule has no label for {resource}: add one under resources.overrides")
        group = _NOT_IN_LABELS.sub("_", resource.group)
        return self.template.fill({"Resource": resource.singular, "Group": group})


@dataclass(frozen=True)
class QueryRule:
    """How a question about objects, or an external metric, becomes PromQL. `matchers`: labels that all series have."""

    labels: ResourceLabels
    query: Template
    matchers: tuple[tuple[str, str], ...] = ()
    namespaced: bool = True

    def of_objects(
        self,
        series: str,
        resource: ObjectResource,
        namespace: str,
        selector: Selector,
        names: Sequence[str],
        group_by: Sequence[str] = (),
    ) -> str:
        """The query for objects by name. `namespace`: empty for what is in none; `names`: `(ANY,)` for all of them.

        Raises RulesError: the rule has no label for it, or PromQL no matcher for the selector.
        """
        matchers, values = _selected(selector)
        if namespace:
            self._match(self.labels.of(NAMESPACES), namespace, matchers, values)
        label, joined = self.labels.of(resource), "|".join(names)
        matchers.append(f"{label}{'=' if len(names) == 1 and joined != ANY else '=~'}{go_quote(joined)}")
        values[label] = joined
        return self._text(series, matchers, values, [label, *group_by])

    def of_external(self, series: str, namespace: str, selector: Selector) -> str:
        """The query for an external metric. Raises RulesError: as `of_objects`."""
        matchers, values = _selected(selector)
        if self.namespaced and namespace:
            self._match(self.labels.of(NAMESPACES), namespace, matchers, values)
        return self._text(series, matchers, values, [])

    @staticmethod
    def _match(label: str, value: str, matchers: list[str], values: dict[str, str]) -> None:
        matchers.append(f"{label}={go_quote(value)}")
        values[label] = value

    def _text(self, series: str, matchers: list[str], values: dict[str, str], group_by: list[str]) -> str:
        for label, value in self.matchers:
            self._match(label, value, matchers, values)
        text = self.query.fill(
            {
                "Series": series,
                "LabelMatchers": ",".join(matchers),
                "LabelValuesByName": values,
                "GroupBy": ",".join(group_by),
                "GroupBySlice": group_by,
            }
        )
        if not text:
            raise RulesError("its rule's query is empty")
        return text


_OPERATORS: Final = {"=": "=", "==": "=", "!=": "!=", "in": "=~", "notin": "!~", EXISTS: "!=", DOES_NOT_EXIST: "="}


def _selected(selector: Selector) -> tuple[list[str], dict[str, str]]:
    """Matchers of a metric's selector, and its values by label. Values are passed on as they are, as regular
    expressions too, which is the adapter's.
    """
    matchers, values = [], {}
    for each in selector.requirements or ():
        matchers.append(f"{each.key}{_operator(each)}{go_quote(joined := '|'.join(sorted(each.values)))}")
        values[each.key] = joined
    return matchers, values


def _operator(requirement: Requirement) -> str:
    if requirement.operator not in _OPERATORS:
        raise RulesError(f"operator not supported by prometheus: {requirement}")
    return _OPERATORS[requirement.operator]


# --- rules ------------------------------------------------------------------------------------------------------------


_COMMENT: Final = re.compile(r"""(?P<quoted>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|`[^`]*`)|#[^\n]*""", re.DOTALL)
"""A comment of PromQL, or a text in quotes, in which there is none."""


@dataclass(frozen=True, kw_only=True)
class SeriesRule(QueryRule):
    """A rule of `rules` or `externalRules`: which series it is about, and the metric that each of them is."""

    series_query: str = ""
    filters: tuple[tuple[GoRegexp, bool], ...] = ()
    """What a series name must match, or (False) must not."""
    matches: GoRegexp
    as_: str = "$0"

    def selector(self, resource: ObjectResource | None) -> str:
        """The series selector of what the rule is about; of a resource, only of series that have a label of it.

        Raises RulesError: the rule has no label for it.
        """
        wanted = [f"{label}={go_quote(value)}" for label, value in self.matchers]
        if resource is not None:
            wanted.append(f'{self.labels.of(resource)}!=""')
        text = _COMMENT.sub(lambda match: match["quoted"] or "", self.series_query).strip()
        head = text[:-1].rstrip() if text.endswith("}") else f"{text}{{"
        return f"{head}{'' if head.endswith(('{', ',')) else ','}{','.join(wanted)}}}" if wanted else text

    def metrics_of(self, names: Sequence[str]) -> dict[str, str]:
        """Metric → its series; of several series that are one metric, the last."""
        return {metric: name for name in names if (metric := self.metric_of(name)) is not None}

    def metric_of(self, series: str) -> str | None:
        """The metric that a series is; None: the rule is not about it."""
        if any(pattern.matches(series) != wanted for pattern, wanted in self.filters):
            return None
        return self.matches.expanded(self.as_, series)


@dataclass(frozen=True)
class ResourceRules:
    """The queries of `resourceRules` for containers; `window_ms`: what they are a rate over."""

    cpu: QueryRule
    memory: QueryRule
    cpu_container: str
    """The label that names the container."""
    memory_container: str
    window_ms: int


@dataclass(frozen=True)
class PromRules:
    """A file of rules."""

    custom: tuple[SeriesRule, ...] = ()
    external: tuple[SeriesRule, ...] = ()
    resource: ResourceRules | None = None


def parse_rules(text: str, origin: str, matchers: Mapping[str, str] | None = None) -> PromRules:
    """Read a file of rules.

    Args:
        origin: the file, as errors name it.
        matchers: labels and values that all queries ask for, beside what a rule asks.

    Raises:
        RulesError: it is not YAML, has a field that is not known, or a rule that cannot be used.
    """
    document = read_document(text, origin, texts=True)
    file = as_type(_without_nulls(_rules_alone(document, origin)), origin, _File)
    fixed = tuple((matchers or {}).items())
    return PromRules(
        tuple(_series_rule(each, f"{origin}: rules[{i}]", fixed) for i, each in enumerate(file.rules)),
        tuple(_series_rule(each, f"{origin}: externalRules[{i}]", fixed) for i, each in enumerate(file.external_rules)),
        None if file.resource_rules is None else _resource_rules(file.resource_rules, origin, fixed),
    )


def read_document(text: str, origin: str, *, texts: bool = False) -> Any:
    """Read a YAML document; `texts`: as `parse_yaml`. Raises RulesError: it is none."""
    try:
        return parse_yaml(text, texts=texts)
    except YamlTextError as error:
        raise RulesError(f"{origin}: not YAML: {error}") from error


def as_type(document: Any, origin: str, form: type[T]) -> T:
    """A document as a type. Raises RulesError: a field is missing, not known or wrong."""
    try:
        return msgspec.convert(document or {}, form)
    except msgspec.ValidationError as error:
        raise RulesError(f"{origin}: {error}") from error


def _rules_alone(document: Any, origin: str) -> Any:
    """A document that is a file of rules, as it is. Raises RulesError: it is one of those that such a file is in."""
    if not isinstance(document, dict):
        return document
    if document.get("kind") == "ConfigMap":
        what = 'a ConfigMap: give the text below data."config.yaml" as a file of its own'
        raise RulesError(f"{origin}: {what}")
    if "apiVersion" in document and "kind" in document:
        raise RulesError(
            f"{origin}: a {document['kind']}: give the config.yaml of prometheus-adapter, which is in its ConfigMap"
        )
    charted = document.get("prometheus-adapter", document)  # a chart's own values, or those of one that it is part of
    if isinstance(charted, dict) and isinstance(charted.get("rules"), dict):
        what = (
            "values of the prometheus-adapter chart. The rules that it makes of them are config.yaml in its ConfigMap"
        )
        command = "helm template prometheus-community/prometheus-adapter -f FILE -s templates/configmap.yaml"
        raise RulesError(f"{origin}: {what}: {command}")
    return document


def _without_nulls(value: Any) -> Any:
    """A document without the fields that it leaves empty, which Go takes for zero."""
    if isinstance(value, dict):
        return {key: _without_nulls(each) for key, each in value.items() if each is not None}
    return [_without_nulls(each) for each in value] if isinstance(value, list) else value


LabelPairs = tuple[tuple[str, str], ...]


def _series_rule(rule: _DiscoveryRule, where: str, matchers: LabelPairs) -> SeriesRule:
    if not rule.series_query.strip():
        raise RulesError(f"{where}.seriesQuery: Required value")
    filters = []
    for i, each in enumerate(rule.series_filters):
        if bool(each.is_) == bool(each.is_not):
            raise RulesError(f"{where}.seriesFilters[{i}]: needs either is or isNot")
        pattern = _pattern(each.is_ or each.is_not, f"{where}.seriesFilters[{i}]")
        filters.append((pattern, bool(each.is_)))
    matches = _pattern(rule.name.matches or ".*", f"{where}.name.matches")
    if not rule.name.as_ and matches.groups > 1:
        raise RulesError(f"{where}.name.as: Required value, as name.matches has several groups")
    return SeriesRule(
        labels=_labels(rule.resources, where),
        query=_template(rule.metrics_query, QUERY_FIELDS, f"{where}.metricsQuery"),
        matchers=matchers,
        namespaced=_is_namespaced(rule.resources.namespaced, where),
        series_query=rule.series_query,
        filters=tuple(filters),
        matches=matches,
        as_=rule.name.as_ or ("$1" if matches.groups else "$0"),
    )


def _is_namespaced(word: str, where: str) -> bool:
    if word.lower() not in ("", *_YES, *_NO):
        raise RulesError(f"{where}.resources.namespaced: expected true or false, got {word}")
    return word.lower() not in _NO


_YES: Final = ("true", "yes", "on", "y")
_NO: Final = ("false", "no", "off", "n")


def _resource_rules(rules: _ResourceRules, origin: str, matchers: LabelPairs) -> ResourceRules:
    read = []
    for name, rule in (("cpu", rules.cpu), ("memory", rules.memory)):
        where = f"{origin}: resourceRules.{name}"
        query = _template(rule.container_query, QUERY_FIELDS, f"{where}.containerQuery")
        if not rule.container_label:
            raise RulesError(f"{where}.containerLabel: Required value")
        read.append(QueryRule(_labels(rule.resources, where), query, matchers))
    try:
        window_ms = parse_duration_ms(rules.window)
    except ValueError as error:
        raise RulesError(f"{origin}: resourceRules.window: {error}") from error
    return ResourceRules(read[0], read[1], rules.cpu.container_label, rules.memory.container_label, window_ms)


def _labels(resources: _Resources, where: str) -> ResourceLabels:
    template = None
    if resources.template:
        template = _template(resources.template, ("Resource", "Group"), f"{where}.resources.template")
    overrides = tuple((label, each.resource.lower(), each.group) for label, each in resources.overrides.items())
    return ResourceLabels(overrides, template)


def _template(text: str, fields: Sequence[str], where: str) -> Template:
    if not text.strip():
        raise RulesError(f"{where}: Required value")
    try:
        return Template(text, fields)
    except RulesError as error:
        raise RulesError(f"{where}: {error}") from error


def _pattern(text: str, where: str) -> GoRegexp:
    try:
        return GoRegexp(text)
    except ValueError as error:
        raise RulesError(f"{where}: not a regular expression: {error}") from error
