"""Which objects a command means: `[CLUSTER/][NAMESPACE/]NAME`, `-n`, `-A`, `-C` globs and `-l`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

import click

from fleethpa.fleet.state import hpa_names
from fleethpa.frame.errors import usage
from fleethpa.frame.options import Decorator, gathered
from schemas.keys import HpaId
from schemas.kubernetes.selectors import SelectorError, parse_selector

DEFAULT_NAMESPACE: Final = "default"
NAMES: Final = "[[CLUSTER/][NAMESPACE/]NAME]…"
TYPE_WORDS: Final = ("hpa", "hpas", "horizontalpodautoscaler", "horizontalpodautoscalers")


@dataclass(frozen=True)
class Ref:
    """An object as named on the command line; None where a part was left out."""

    name: str
    namespace: str | None = None
    cluster: str | None = None

    def __str__(self) -> str:
        return "/".join(part for part in (self.cluster, self.namespace, self.name) if part)


def parse_ref(text: str) -> Ref:
    """Read `[CLUSTER/][NAMESPACE/]NAME`, which may have its type before it: `hpa/NAME`.

    Raises CommandError: more than three parts, or an empty one (exit 2).
    """
    parts = text.split("/")
    if len(parts) > 1 and parts[0] in TYPE_WORDS:  # as kubectl writes it, and as `-o name` prints it
        parts = parts[1:]
    if len(parts) > 3 or not all(parts):
        raise usage(
            f"{text!r} is not the name of an HPA", cause="Write [CLUSTER/][NAMESPACE/]NAME, such as east/shop/checkout."
        )
    return Ref(*reversed(parts))


@dataclass(frozen=True)
class Selection:
    """What a command works on; every part that is set must match.

    `namespace` None: all namespaces. `clusters`: globs, empty: all. `labels`: an equality or set selector's test, and
    `selector` its text.
    """

    refs: tuple[Ref, ...] = ()
    namespace: str | None = None
    clusters: tuple[str, ...] = ()
    labels: Callable[[Mapping[str, str]], bool] | None = None
    selector: str = ""

    def matches(self, hpa: HpaId, labels: Mapping[str, str] | None = None) -> bool:
        """Whether an HPA (with its labels) is meant."""
        if self.labels is not None and not self.labels(labels or {}):
            return False
        if not self.cluster_matches(hpa.cluster):
            return False
        if self.refs:
            return any(self._named(ref, hpa) for ref in self.refs)
        return self.namespace is None or hpa.namespace == self.namespace

    def places(self) -> list[str] | None:
        """The `cluster/namespace` of every named object; None where one leaves them open, or none is named."""
        found = [(ref.cluster, ref.namespace or self.namespace) for ref in self.refs]
        whole = [f"{cluster}/{namespace}" for cluster, namespace in found if cluster and namespace]
        return whole if whole and len(whole) == len(found) else None

    def cluster_matches(self, cluster: str) -> bool:
        """Whether a cluster is meant by `-C`."""
        return not self.clusters or any(fnmatchcase(cluster, glob) for glob in self.clusters)

    def _named(self, ref: Ref, hpa: HpaId) -> bool:
        namespace = ref.namespace or self.namespace
        return (
            hpa.name == ref.name
            and (namespace is None or hpa.namespace == namespace)
            and (ref.cluster is None or hpa.cluster == ref.cluster)
        )

    def missing(self, found: Iterable[HpaId]) -> list[Ref]:
        """The named objects that are not among `found`."""
        listed = list(found)
        return [ref for ref in self.refs if not any(self._named(ref, hpa) for hpa in listed)]

    def __str__(self) -> str:
        if self.refs:
            return ", ".join(map(str, self.refs))
        labels = f" with -l {self.selector}" if self.selector else ""
        return (f"namespace {self.namespace}" if self.namespace else "any namespace") + labels


def select(
    names: Sequence[str] = (),
    *,
    namespace: str | None = None,
    all_namespaces: bool = False,
    clusters: str | None = None,
    labels: str | None = None,
) -> Selection:
    """Build a selection from the flags; without `-n` and `-A` the namespace is `default`, as kubectl's.

    Raises CommandError: flags that exclude each other, or a label selector that cannot be read (exit 2).
    """
    if named_namespace(namespace) and all_namespaces:
        raise usage("-n and -A exclude each other")
    refs = tuple(parse_ref(name) for name in without_type(names))
    if refs and labels:
        raise usage("names and -l exclude each other", cause="Select HPAs by label or by name.")
    scope = None if all_namespaces else namespace or DEFAULT_NAMESPACE
    test = label_test(labels) if labels else None
    return Selection(refs, scope, cluster_globs(clusters), test, labels or "")


def cluster_globs(text: str | None) -> tuple[str, ...]:
    """Split the value of `-C`; empty without it.

    Raises CommandError: an empty text, as a variable that is not set gives it: it must not mean every cluster (exit 2).
    """
    found = tuple(part.strip() for part in (text or "").split(",") if part.strip())
    if text is not None and not found:
        raise usage("-C is empty", cause="Name clusters, or '*' for all.")
    return found


def named_namespace(text: str | None) -> str | None:
    """The value of `-n`, or None.

    Raises CommandError: an empty text, as a variable that is not set gives it (exit 2).
    """
    if text is not None and not text.strip():
        raise usage("-n is empty", cause="Name a namespace; without -n it is `default`, -A is all of them.")
    return text


def without_type(names: Sequence[str]) -> Sequence[str]:
    """Leave out the type, which may come before the names as in kubectl: `describe hpa NAME`."""
    return names[1:] if names and names[0] in TYPE_WORDS else names


def label_test(text: str) -> Callable[[Mapping[str, str]], bool]:
    """Read a label selector as kubectl takes it and return its test.

    Raises CommandError: it cannot be read (exit 2).
    """
    try:
        selector = parse_selector(text)
    except SelectorError as error:
        raise usage(f"-l {text!r} is not a label selector", cause=str(error)) from error
    return lambda labels: bool(selector.matches(dict(labels)))


def names_argument(metavar: str = NAMES, *, required: bool = False) -> Decorator:
    """The names of HPAs, as the argument `names`."""
    return click.argument("names", nargs=-1, required=required, shell_complete=hpa_names, metavar=metavar)


def options(metavar: str = NAMES, *, required: bool = False, labels: bool = True) -> Decorator:
    """Names, `-n`, `-A`, `-C` and `-l`; the function gets one argument `selection`."""
    by_label = click.option("-l", "--selector", "labels", help="Label selector, as in kubectl.")
    return gathered(
        "selection",
        select,
        names_argument(metavar, required=required),
        click.option("-n", "--namespace", help="Namespace [default: default]."),
        click.option("-A", "--all-namespaces", is_flag=True, help="Every namespace."),
        click.option("-C", "--clusters", metavar="GLOB,…", help="Clusters, such as 'prod-*'."),
        *([by_label] if labels else []),
    )
