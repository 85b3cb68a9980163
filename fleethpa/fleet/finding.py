"""Which HPAs and clusters a command means (names, `-n`, `-A`, `-C` globs and `-l`), finding them, and names for
completion.
"""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

import click

from fleethpa.fleet.state import read_state
from fleethpa.fleet.views import FleetState, HpaView
from fleethpa.frame.errors import PARTIAL, CommandError, not_found, usage
from fleethpa.frame.options import Decorator, gathered
from fleethpa.frame.session import SHARED, Session
from fleethpa.show.words import counted
from schemas.keys import FLEET, HpaId
from schemas.kubernetes.selectors import SelectorError, parse_selector
from schemas.partitioning import partition_for
from streams.state.rowcodec import decode_row, row_kind
from streams.state.rows import HpaRow

if TYPE_CHECKING:
    from streams.history.past import Past

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
        pairs = [(ref.cluster, ref.namespace or self.namespace) for ref in self.refs]
        whole = [f"{cluster}/{namespace}" for cluster, namespace in pairs if cluster and namespace]
        return whole if whole and len(whole) == len(pairs) else None

    def cluster_matches(self, cluster: str) -> bool:
        """Whether a cluster is meant by `-C`."""
        return not self.clusters or any(fnmatchcase(cluster, glob) for glob in self.clusters)

    @property
    def names_fleet_hpas(self) -> bool:
        """Whether a FleetHPA is named."""
        return any(ref.cluster == FLEET for ref in self.refs)

    def _named(self, ref: Ref, hpa: HpaId) -> bool:
        namespace = ref.namespace or self.namespace
        return (
            hpa.name == ref.name
            and (namespace is None or hpa.namespace == namespace)
            and (ref.cluster is None or hpa.cluster == ref.cluster)
        )

    def missing(self, hpas: Iterable[HpaId]) -> list[Ref]:
        """The named objects that are not among `hpas`."""
        listed = list(hpas)
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
    globs = tuple(part.strip() for part in (text or "").split(",") if part.strip())
    if text is not None and not globs:
        raise usage("-C is empty", cause="Name clusters, or '*' for all.")
    return globs


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


_COMPLETION_S: Final = 2.0


def hpa_names(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the whole names that begin as typed; nothing where the fleet does not answer in time."""
    try:
        return [name for name in _known(context) if name.startswith(incomplete)]
    except Exception:  # a TAB must never print an error into the line that is being typed
        return []


def _known(context: click.Context) -> list[str]:
    options = {name: value for name, value in context.params.items() if name in SHARED and value is not None}
    session = Session((context.find_root().obj or {}) | options)

    async def read() -> list[str]:
        async with asyncio.timeout(_COMPLETION_S), session.past(watching=True, remarks=False) as past:
            return [str(hpa) for hpa in (await read_state(past)).hpas]

    return asyncio.run(read())


def names_argument(metavar: str = NAMES, *, required: bool = False) -> Decorator:
    """The names of HPAs, as the argument `names`."""
    return click.argument("names", nargs=-1, required=required, shell_complete=hpa_names, metavar=metavar)


def selection_options(metavar: str = NAMES, *, required: bool = False, labels: bool = True) -> Decorator:
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


# --- finding them -----------------------------------------------------------------------------------------------------

_MOST_LABELS: Final = 10
_MOST_NEAR: Final = 3


def chosen(state: FleetState, selection: Selection) -> list[HpaView]:
    """Return the HPAs that a selection means, in order, of the state of the whole fleet.

    Raises CommandError: a named HPA does not exist (exit 4; 5 where only the last is known), or -C names no cluster
    that is known (exit 4).
    """
    check_clusters(state, selection)
    views = [view for hpa, view in state.hpas.items() if selection.matches(hpa, view.labels)]
    if missing := selection.missing(view.id for view in views):
        error = no_such_hpa(missing[0], state.hpas, selection.namespace)
        if state.is_last_known:
            error.what, error.code = f"{error.what} when it was last known", PARTIAL
        raise error
    return views


def chosen_some(state: FleetState, selection: Selection) -> list[HpaView]:
    """As `chosen`. Raises CommandError: also where there is none (exit 4)."""
    if views := chosen(state, selection):
        return views
    raise not_found(f"no HPA matches {selection}", next_step="fleethpa get hpa -A")


def alone(views: Sequence[HpaView], verb: str, note: Callable[[str], None]) -> list[HpaView]:
    """The HPAs that decide by themselves; `note` is called with how many others were left out.

    Raises CommandError: there are only others, whose decisions `verb` cannot judge (exit 2).
    """
    kept = [view for view in views if not view.is_of_fleet]
    left = [view for view in views if view.is_of_fleet]
    if not left:
        return kept
    whole = left[0].fleet_hpa or left[0].id
    step = f"fleethpa backtest {whole} --set cpu=50%"
    if kept:
        note(f"note: left out of {verb}: {counted(len(left), 'HPA')} of FleetHPAs. Next: {step}")
        return kept
    what = "is a FleetHPA" if left[0].fleet is not None else f"has the share that FleetHPA {whole} allots"
    raise usage(
        f"{verb} is for HPAs that decide by themselves, and {left[0].id} {what}",
        cause="A FleetHPA decides over the pods of all its clusters, and the HPA in a cluster wants its share, "
        "without regard to its own metrics.",
        next_step=f"{step}, which tries other settings",
    )


def not_evaluated(what: str, name: object = "-A") -> CommandError:
    """The error for a window without evaluations. `name`: the HPA; `-A`: all."""
    return not_found(what, next_step=f"fleethpa decisions {name} --since 30d, to see when there are some")


def nothing_found(selection: Selection, state: FleetState, verb: str) -> str:
    """Return what to say where a selection means no HPA, with the next step."""
    where = f"in namespace {selection.namespace}" if selection.namespace else "in any namespace"
    unlabelled = replace(selection, labels=None, selector="")
    there = [view for hpa, view in state.hpas.items() if unlabelled.matches(hpa, view.labels)]
    if selection.selector and there:
        keys = sorted({key for view in there for key in view.labels})
        known_labels = f"have the labels {', '.join(keys[:_MOST_LABELS])}" if keys else "have no labels"
        step = "Next: fleethpa get hpa -A"
        return f"No HPAs found {where} with -l {selection.selector}; {len(there)} there {known_labels}. {step}"
    if selection.namespace and state.hpas:
        return f"No HPAs found {where}; there are {len(state.hpas)} elsewhere. Next: fleethpa {verb} -A"
    if state.hpas:
        return f"No HPAs found {where} that match. Next: fleethpa get hpa -A"
    return f"No HPAs found {where}. Next: fleethpa apply -f hpa.yaml, or fleethpa get clusters"


def matching_clusters(state: FleetState, globs: tuple[str, ...], contexts: tuple[str, ...] = ()) -> list[str]:
    """Return the known clusters that match; without globs all. Raises CommandError: a glob matches none (exit 4)."""
    known = sorted(set(state.clusters) | set(contexts))
    _check_globs(globs, known, known)
    return [name for name in known if not globs or any(fnmatchcase(name, glob) for glob in globs)]


def check_clusters(state: FleetState, selection: Selection) -> None:
    """Check that each part of `-C` means a cluster, or one in which there was an HPA. `state`: of the whole fleet.

    Raises CommandError: one means none, while clusters are known (exit 4).
    """
    named = {hpa.cluster for hpa in (*state.hpas, *state.forgotten)}
    if known := sorted(state.clusters):
        _check_globs(selection.clusters, {*known, *named}, known)


def _check_globs(globs: Iterable[str], names: Collection[str], listed: Collection[str]) -> None:
    for glob in _unmatched(globs, names):
        cause = nearest_cluster(glob, listed)
        raise not_found(f"no cluster matches {glob!r}", cause=cause, next_step="fleethpa get clusters")


def _unmatched(globs: Iterable[str], names: Collection[str]) -> list[str]:
    return [glob for glob in globs if not any(fnmatchcase(name, glob) for name in names)]


def no_such_cluster(name: str, state: FleetState) -> CommandError:
    """The error for a name that no cluster bears."""
    cause = nearest_cluster(name, state.clusters)
    return not_found(f"no cluster {name}", cause=cause, next_step="fleethpa get clusters")


def unknown_cluster(
    what: str, names: Iterable[str], known: Collection[str], *, later: str, kept: Collection[str] = ()
) -> CommandError | None:
    """The error for an object that names a cluster that nobody has reported; None: it names none.

    Args:
        later: what to type for a cluster that is added later; has `{name}` in it.
        kept: clusters that the object had before, which it may go on naming.
    """
    for name in names:
        if name not in known and name not in kept:
            next_step = f"correct the name, or for a cluster that is added later {later.format(name=name)}"
            cause = nearest_cluster(name, sorted(known))
            return not_found(f"{what} names the cluster {name}, which is not known", cause=cause, next_step=next_step)
    return None


def nearest_cluster(name: str, known: Iterable[str]) -> str:
    """Which clusters there are, for the cause of an error; the one that was probably meant comes first, or all that are
    as near: `esat` is as near to `west` as to `east`.
    """
    names = list(known)
    near = difflib.get_close_matches(name, names, n=_MOST_NEAR)
    ratios = [difflib.SequenceMatcher(None, each, name).ratio() for each in near]
    likely = sorted(each for each, ratio in zip(near, ratios, strict=True) if ratio == ratios[0])
    meant = f"Did you mean {' or '.join(likely)}? " if likely else ""
    return f"{meant}Known are {', '.join(names) or 'none'}."


def sole_id(hpas: Iterable[HpaId], what: str) -> HpaId:
    """Return the only one of some names, of which there is at least one.

    Raises CommandError: there are several (exit 2).
    """
    names = list(hpas)
    if len(names) > 1:
        listed = ", ".join(map(str, names[:5]))
        raise usage(
            f"{what} matches {len(names)} HPAs", cause=f"They are {listed}.", next_step=f"name one, such as {names[0]}"
        )
    return names[0]


async def places_read(past: Past, selection: Selection) -> list[int] | None:
    """The partitions of what is named; None: the names leave them open, so that it may be in any."""
    places = selection.places()
    if places is None:
        return None
    count = await past.partitions()
    return sorted({partition_for(place, count) for place in places})


async def names_known(past: Past) -> list[HpaId]:
    """The HPAs of the newest stored rows, for suggestions: reading names costs far less than folding the log.

    One that was created since they were stored is not among them. Where no rows are stored, the log is folded.
    """
    ids: list[HpaId] = []
    unstored: list[int] = []
    numbers = range(await past.partitions())
    for number, stored in enumerate(await asyncio.gather(*map(past.newest_rows, numbers))):
        if not stored:
            unstored.append(number)
        for key, value in stored.items():
            row = decode_row(key, value) if row_kind(key)[0] == "h" else None
            if isinstance(row, HpaRow) and row.is_live:
                ids.append(row.id)
    return sorted([*ids, *((await read_state(past, unstored)).hpas if unstored else ())])


async def check_known(past: Past, selection: Selection, seen: Iterable[HpaId] = ()) -> None:
    """Check that every named HPA and cluster exists now, or is among those `seen` in decisions: it may have been
    deleted.

    Raises CommandError: one does not (exit 4).
    """
    seen = set(seen)
    if not selection.missing(seen) and not _unmatched(selection.clusters, {hpa.cluster for hpa in seen}):
        return
    state = await read_state(past)
    check_clusters(state, selection)
    known = seen | set(state.hpas) | state.forgotten
    if missing := selection.missing(known):
        raise no_such_hpa(missing[0], known, selection.namespace)


_NEAR: Final = 0.8
"""How alike two names of clusters are before one counts as a slip of the other: `east` and `west` do not."""
_MOST_NAMED: Final = 5
"""HPAs of one name that an error lists."""


_OTHER_TYPES: Final = {"cluster": "fleethpa get clusters", "capacitygroup": "fleethpa capacity --help"}
"""What shows the types that verbs of HPAs do not take before a name, as in `describe cluster east`."""


def no_such_hpa(ref: Ref, known: Iterable[HpaId], namespace: str | None) -> CommandError:
    """The error for a name that no HPA bears, with the nearest that exist."""
    where = "" if ref.namespace else f" in namespace {namespace}" if namespace else ""
    if "@" in ref.name:
        cause = "NAME@TIME is read by explain and what-if; get and describe have --at TIME."
        name, _, time = str(ref).partition("@")
        step = f"fleethpa describe {name} --at {time or 'TIME'}"
        return not_found(f"no HPA {ref}{where}", cause=cause, next_step=step)
    listed = sorted(known)
    same = [hpa for hpa in listed if hpa.name == ref.name]
    if same:
        near = difflib.get_close_matches(ref.cluster or "", {hpa.cluster for hpa in same}, n=1, cutoff=_NEAR)
        # A name in another cluster is never suggested alone: what is typed next may write there.
        meant = [hpa for hpa in same if hpa.cluster in near] or same
        if len(meant) == 1 and (near or not ref.cluster):
            return not_found(f"no HPA {ref}{where}", cause=f"Did you mean {meant[0]}?", next_step=f"name it {meant[0]}")
        cause = f"HPAs of this name are {', '.join(map(str, meant[:_MOST_NAMED]))}."
        return not_found(f"no HPA {ref}{where}", cause=cause, next_step="fleethpa get hpa -A")
    clusters = sorted({hpa.cluster for hpa in listed})
    if ref.cluster == FLEET and FLEET not in clusters:
        return not_found(f"no HPA {ref}{where}", cause="No FleetHPA is known.", next_step="fleethpa get hpa -A")
    if ref.cluster and ref.cluster not in clusters:
        cause = f"No cluster {ref.cluster} is known. {nearest_cluster(ref.cluster, clusters)}"
        return not_found(f"no HPA {ref}", cause=cause, next_step="fleethpa get clusters")
    if ref.namespace is None and ref.name in clusters:
        step = f"fleethpa get hpa -A -C {ref}"
        return not_found(f"no HPA {ref}{where}", cause=f"{ref} is a cluster; -C names it.", next_step=step)
    cause = _alike(ref.name, [hpa for hpa in listed if ref.cluster in (None, hpa.cluster)])
    step = _OTHER_TYPES.get(ref.name.lower().removesuffix("s"), "fleethpa get hpa -A")
    return not_found(f"no HPA {ref}{where}", cause=cause, next_step=step)


def _alike(text: str, listed: Sequence[HpaId]) -> str:
    """The HPAs with the nearest name, those of a namespace of that name, or those that have it in their names; empty:
    there are none.
    """
    names = difflib.get_close_matches(text, [hpa.name for hpa in listed], n=1)
    likely = [hpa for hpa in listed if hpa.name in names]
    if len(likely) == 1:
        return f"Did you mean {likely[0]}?"
    if likely:
        return f"HPAs of the name {names[0]} are {', '.join(map(str, likely[:_MOST_NAMED]))}."
    if inside := [hpa for hpa in listed if hpa.namespace == text]:
        return f"{text} is a namespace; its HPAs are {', '.join(map(str, inside[:_MOST_NAMED]))}."
    alike = [hpa for hpa in listed if text in hpa.name]
    return f"HPAs with {text} in their names are {', '.join(map(str, alike[:_MOST_NAMED]))}." if alike else ""
