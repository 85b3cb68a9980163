"""Templates: Jinja2 with automatic escaping, so that a name or message of a hostile cluster is text, never markup."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined

from fleethpa.cli.output.times import rfc3339
from runtime.jsonlog import clean
from schemas.keys import HpaId

_HEADINGS: Final = {"HPAS": "HPAs", "MINPODS": "Min pods", "MAXPODS": "Max pods"}


def environment() -> Environment:
    """The templates of the page; a name that a template asks for and nobody gave is an error."""
    made = Environment(
        loader=PackageLoader("fleethpa.page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"plain": clean, "time": rfc3339, "clock": clock, "heading": heading}
    made.globals |= {"hpa_url": hpa_url, "decision_url": decision_url, "url": url}
    return made


def clock(time_ms: int, now_ms: int) -> str:
    """The time of day (UTC) to the second, for narrow columns; the whole time is in the element's title.

    Where it is of another day than `now_ms`, month and day come before it.
    """
    text = rfc3339(time_ms)
    return text[11:19] if text[:10] == rfc3339(now_ms)[:10] else f"{text[5:10]} {text[11:19]}"


def heading(header: str) -> str:
    """The header of a command's column as the page writes it."""
    return _HEADINGS.get(header, header.capitalize())


def hpa_url(hpa: HpaId, **query: Any) -> str:
    """The address of an HPA's view."""
    return url("/hpa/" + "/".join(quote(part, safe="") for part in (hpa.cluster, hpa.namespace, hpa.name)), **query)


def decision_url(id_: str, **query: Any) -> str:
    """The address of a decision's view."""
    return url(f"/decision/{quote(id_, safe='')}", **query)


def url(path: str, **query: Any) -> str:
    """A path with those parts of a query that say something."""
    said = {name: value for name, value in query.items() if value not in (None, "")}
    return f"{path}?{urlencode(said)}" if said else path
