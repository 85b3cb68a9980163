"""What the state of a namespace is found by: the keys of scales and answers, the parts in which it is stored, and small
sets of names.

There is nearly always one name, for which a `set` takes 216 bytes, a tuple 48; a partition has several of these for
each HPA. Many names are the keys of a dictionary, in the order in which they were added.
"""

from typing import Final, TypeVar
from zlib import crc32

from schemas import limits
from schemas.answers import AnswerIdentity, is_root_scoped
from schemas.observed import Target
from streams.state.membership import canonical_selector
from streams.state.rows import PARTS, SPLIT_PARTS, MetricKey, QueryKey, TargetName, is_series

Name = TypeVar("Name")
Names = tuple[Name, ...] | dict[Name, None]

MANY: Final = 16
"""More names than this are kept in a dictionary, until there are no more than half as many."""


def with_name(names: Names[Name], name: Name) -> Names[Name]:
    """Add a name, unless it is there; the names that were given are not to be used any more."""
    if isinstance(names, dict):
        names[name] = None
        return names
    if name in names:
        return names
    added = (*names, name)
    return added if len(added) <= MANY else dict.fromkeys(added)


def without_name(names: Names[Name], name: Name) -> Names[Name]:
    """Remove a name, if it is there; the names that were given are not to be used any more."""
    if isinstance(names, dict):
        names.pop(name, None)
        return names if len(names) > MANY // 2 else tuple(names)
    return tuple([each for each in names if each != name])


FIRST_ROW = 0
"""Row of a namespace of many with what is not spread over the others: its HPAs, rivals and commands."""


VIEW_ROW = 1
"""Row of a namespace of two or of many with what is seen of it."""
SPREAD_FROM = 2
"""The first of the rows of many over which pods, answers, samples and scales are spread."""


def stored_part(part: int, parts: int) -> int:
    """Give the number by which a part is stored.

    While a namespace is split into many parts, a crash may leave some of these beside part 0 of the few that were
    before, which then still counts. So no part of the few but the first shares its row with one of the many.
    """
    return PARTS if part and parts == SPLIT_PARTS else part


def spread_over(entity: str) -> int:
    """Give the part of a namespace of many parts in which something with this name lives."""
    return SPREAD_FROM + crc32(entity.encode()) % (PARTS - SPREAD_FROM)


def row_of_question(question: tuple[str, ...]) -> int:
    """Row of a namespace of many in which something with a name of several texts is kept."""
    return spread_over("|".join(question))


def row_of_answer(query: QueryKey, part: int) -> int:
    """Row of a namespace of many in which a part of an answer is kept: parts of one answer are in rows of their own."""
    return SPREAD_FROM + (row_of_question(query) - SPREAD_FROM + part) % (PARTS - SPREAD_FROM)


def limit_of_arrival(key: MetricKey) -> limits.Limit:
    """The limit that concerns when answers or samples came."""
    return limits.ROW_SERIES_ARRIVALS if is_series(key) else limits.ROW_ARRIVALS


def target_key(target: Target) -> TargetName:
    """Identity of a scale within its namespace."""
    return target.group, target.kind, target.name


def query_key(query: AnswerIdentity) -> QueryKey:
    """Identity of a question to a metrics API and of its answers: selectors in canonical form.

    A Namespace is always the HPA's own; its name is not read.
    """
    return (
        query.api,
        _canonical(query.selector),
        query.metric,
        _canonical(query.metric_selector),
        query.group_kind,
        "" if is_root_scoped(query) else query.object,
    )


def _canonical(selector: str) -> str:
    if not selector:
        return ""
    canonical = canonical_selector(selector)
    return selector if canonical is None else canonical
