"""Texts around the views of the page: the command at the foot, and what is said where there is no view."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from aiohttp import web

from fleethpa.cli.output.times import rfc3339

LARGEST_FORM: Final = 256 * 1024
"""Bytes of a form, in which a manifest may be."""
VIEWS: Final = (
    "/",
    "/hpa/CLUSTER/NAMESPACE/NAME",
    "/decision/ID",
    "/changes",
    "/clusters",
    "/rollouts",
    "/try",
    "/audit",
)


def time_flag(name: str, at_ms: int | None) -> str:
    """A flag that takes a moment; empty without one."""
    return "" if at_ms is None else f" {name} {rfc3339(at_ms)}"


def command_line(words: str, filtered: tuple[list[str], list[str]], at: str) -> str:
    """A command with the flags of a filter, and in brackets the terms of the filter for which it has no flag."""
    flags, lacking = filtered
    without = f" (without {' '.join(lacking)})" if lacking else ""
    return " ".join([words, *flags]) + at + without


def refusal_text(error: web.HTTPException, request: web.Request) -> tuple[str, str]:
    """What went wrong with a request that no view could answer, and what can be requested instead."""
    if error.status == HTTPStatus.NOT_FOUND:
        return f"there is no view {request.path}", f"The views are {', '.join(VIEWS)}."
    if error.status == HTTPStatus.METHOD_NOT_ALLOWED:
        return f"{request.path} answers to no {request.method}", "The page only reads: it is asked with GET."
    if error.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        return "what was sent is too large", f"A form holds {LARGEST_FORM // 1024} KiB at most."
    return error.reason, ""
