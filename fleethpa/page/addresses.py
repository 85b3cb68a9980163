"""The addresses of the page: what each view's is, what a text or an error leads to, and the command beside it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from itertools import islice
from typing import Any, Final
from urllib.parse import quote, urlencode

from aiohttp import web
from jinja2 import Environment

from fleethpa.fleet.decisionfinding import asked_id
from fleethpa.fleet.views import FleetState
from fleethpa.frame.errors import NOT_FOUND, UNREACHABLE, CommandError
from fleethpa.show.html import templates
from fleethpa.show.text import dated, rfc3339, time_ago, time_of_day
from schemas.keys import HpaId

MOST_NAMES: Final = 30
"""Names that a browser is given to choose from."""
LARGEST_FORM: Final = 4 * 1024
"""Bytes of a form: it holds a token."""
VIEWS: Final = (
    "/",
    "/hpa/CLUSTER/NAMESPACE/NAME",
    "/capacity/NAME",
    "/decision/ID",
    "/changes",
    "/clusters",
    "/rollouts",
    "/try",
    "/audit",
)
SECTIONS: Final = {"hpa": "/", "capacity": "/", "decision": "/changes", "diff": "/changes", "rollout": "/rollouts"}
"""The view in the navigation to which the first word of an address belongs, where it is not one itself."""


_NAMES: Final = re.compile(r"[\w.-]+/[\w.-]+/[\w.-]*\w")
"""The names of HPAs in a text."""


def time_flag(name: str, at_ms: int | None) -> str:
    """A flag that takes a moment; empty without one."""
    return "" if at_ms is None else f" {name} {rfc3339(at_ms)}"


def command_line(words: str, filtered: tuple[list[str], list[str]], at: str) -> str:
    """A command with the flags of a filter, and in brackets the terms of the filter for which it has no flag."""
    flags, missing = filtered
    without = f" (without {' '.join(missing)})" if missing else ""
    return " ".join([words, *flags]) + at + without


def refusal_text(error: web.HTTPException, request: web.Request) -> tuple[str, str]:
    """Return what went wrong with a request that no view could answer, and what can be requested instead."""
    if error.status == HTTPStatus.NOT_FOUND and request.path == "/upgrade":
        return f"{request.path} is no longer there", "`fleethpa upgrade-preview -A --to VERSION` answers it."
    if error.status == HTTPStatus.NOT_FOUND:
        return f"there is no view {request.path}", f"The views are {', '.join(VIEWS)}."
    if error.status == HTTPStatus.METHOD_NOT_ALLOWED:
        return f"{request.path} answers to no {request.method}", "The page only reads: it is asked with GET."
    if error.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        return "what was sent is too large", f"A form holds {LARGEST_FORM // 1024} KiB at most."
    return error.reason, ""


_HEADINGS: Final = {"HPAS": "HPAs", "MINPODS": "Min pods", "MAXPODS": "Max pods"}


def environment() -> Environment:
    """The templates of the page, with what only they ask for."""
    page_templates = templates()
    page_templates.filters |= {
        "time": rfc3339,
        "clock": time_of_day,
        "ago": time_ago,
        "dated": dated,
        "heading": heading,
    }
    page_templates.globals |= {"hpa_url": hpa_url, "decision_url": decision_url, "group_url": group_url, "url": url}
    return page_templates


def heading(header: str) -> str:
    """The header of a command's column as the page writes it."""
    return _HEADINGS.get(header, header.capitalize())


def hpa_url(hpa: HpaId, **query: Any) -> str:
    """The address of an HPA's view."""
    return url("/hpa/" + "/".join(quote(part, safe="") for part in (hpa.cluster, hpa.namespace, hpa.name)), **query)


def decision_url(id_: str, **query: Any) -> str:
    """The address of a decision's view."""
    return url(f"/decision/{quote(id_, safe='')}", **query)


def group_url(name: str, **query: Any) -> str:
    """The address of a CapacityGroup's view."""
    return url(f"/capacity/{quote(name, safe='')}", **query)


def names_of(state: FleetState, text: str) -> list[HpaId]:
    """The HPAs whose name holds every word of a text, in order: the first MOST_NAMES of them."""
    words = text.lower().split()
    return list(islice((hpa for hpa in state.hpas if all(word in str(hpa).lower() for word in words)), MOST_NAMES))


def search_address(state: FleetState, text: str, at: str) -> str:
    """The address of what a text names; of the fleet, filtered by the text, where it names nothing or several."""
    if not text:
        return url("/", at=at)
    if asked_id(text) is not None:
        return decision_url(text)
    if text in state.clusters:
        return url("/", q=f"cluster:{text}", at=at)
    if text in state.capacity_groups:
        return group_url(text, at=at)
    likely = names_of(state, text)
    exact = next((hpa for hpa in likely if str(hpa) == text), None)
    if exact is not None or len(likely) == 1:
        return hpa_url(exact or likely[0], at=at)
    return url("/", q=text, at=at)


def url(path: str, **query: Any) -> str:
    """A path with those parts of a query that say something."""
    stated = {name: value for name, value in query.items() if value not in (None, "")}
    return f"{path}?{urlencode(stated)}" if stated else path


def hpa_of(request: web.Request) -> HpaId:
    """The HPA that an address names."""
    names = request.match_info
    return HpaId(names["cluster"], names["namespace"], names["name"])


def ways_on(request: web.Request, error: CommandError, known: Iterable[HpaId]) -> list[tuple[str, str]]:
    """Where to go on from an error, as text and address: to the HPAs that its cause names, to the same view as of now,
    or again.

    `known`: the HPAs that there are.
    """
    at = request.query.get("at", "").strip()
    named = set(_NAMES.findall(error.cause)) if error.code == NOT_FOUND else set()
    links = [(str(hpa), hpa_url(hpa, at=at)) for hpa in known if str(hpa) in named]
    if error.code == UNREACHABLE:
        links.append(("Try again", str(request.rel_url)))
    if at and error.code == NOT_FOUND:
        links.append(("The same as of now", str(request.rel_url.without_query_params("at"))))
    return links


def rendered(made: Environment, template: str, found: Mapping[str, Any], status: int = 200) -> web.Response:
    """A view, or a part of one, which a browser puts into it."""
    text = made.get_template(template).render(found)
    return web.Response(text=text, status=status, content_type="text/html", headers={"Cache-Control": "no-store"})
