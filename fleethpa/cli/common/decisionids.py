"""IDs of decisions and their short forms, which every verb takes as git takes those of commits.

An ID is `PARTITION-OFFSET-UID` and, for the end of a write, `-c` behind it. A short form leaves out the end of the UID.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from fleethpa.cli.common.failures import CommandError, usage

_ID: Final = re.compile(r"([0-9]{1,18})-([0-9]{1,18})-([0-9a-zA-Z.:_-]+)")
_KIND: Final = "decision/"
_ENDING: Final = "-c"
_SHOWN: Final = 8
"""Characters of a UID that a short form has at least: the first group of a UUID."""


class AskedId(NamedTuple):
    """A decision as named on the command line. `uid`: the beginning of its UID. `ending`: whether it ends a write."""

    text: str
    partition: int
    offset: int
    uid: str
    ending: bool

    def fits(self, id_: str) -> bool:
        """Whether an ID is, or may be, the one that is named."""
        prefix = f"{self.partition}-{self.offset}-{self.uid}"
        return id_ == self.text or (id_.startswith(prefix) and self.ending == id_.endswith(_ENDING))


def asked_id(text: str) -> AskedId | None:
    """Read an ID or a short form; None: it is neither, but may name an HPA."""
    bare = text.removeprefix(_KIND)
    match = _ID.fullmatch(bare)
    if match is None:
        return None
    partition, offset, uid = match.groups()
    return AskedId(bare, int(partition), int(offset), uid.removesuffix(_ENDING), uid.endswith(_ENDING))


def only(asked: AskedId, ids: Iterable[str]) -> str | None:
    """Return the ID that is named; None if no decision has it.

    Raises:
        CommandError: it may be several (exit 2); the error lists them.
    """
    known = sorted(set(ids))
    if asked.text in known:
        return asked.text
    # Without `-c` the end of a write is meant only where its UID names nothing else at this offset.
    found = [id_ for id_ in known if asked.fits(id_)] or [id_ for id_ in known if asked._replace(ending=True).fits(id_)]
    if len(found) > 1:
        raise ambiguous(asked.text, found)
    return found[0] if found else None


def ambiguous(text: str, candidates: Iterable[str]) -> CommandError:
    """The error for a short form that several decisions have."""
    listed = list(candidates)
    shown = "\n".join(short_ids(listed)[id_] for id_ in listed[:20])
    return usage(
        f"{text} is ambiguous: {len(listed)} decisions begin with it", cause=shown, next_step="use one of these"
    )


def short_ids(ids: Iterable[str]) -> dict[str, str]:
    """The short form of each ID: no other among them begins so."""
    known = sorted(set(ids))
    beginnings: dict[str, set[str]] = {}
    for id_ in known:
        bare = id_.removesuffix(_ENDING)
        beginnings.setdefault(_place(bare), set()).add(bare)
    return {id_: _short(id_, beginnings[_place(id_)]) for id_ in known}


def short_id(id_: str) -> str:
    """The short form of one ID."""
    return short_ids([id_])[id_]


def _place(id_: str) -> str:
    return "-".join(id_.split("-", 2)[:2])


def _short(id_: str, others: set[str]) -> str:
    bare = id_.removesuffix(_ENDING)
    least = len(_place(id_)) + 1 + _SHOWN
    length = next(
        (n for n in range(least, len(bare)) if sum(each.startswith(bare[:n]) for each in others) == 1), len(bare)
    )
    return bare[:length] + id_[len(bare) :]
