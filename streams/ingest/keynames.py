"""Names that keys, rows and Kubernetes objects can bear."""

import re
from functools import lru_cache

from schemas.limits import NAME
from streams.ingest.pieces import Refusal

MAX_TEXT = NAME.most

_LABEL = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)
_SUBDOMAIN = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*", re.ASCII)
_CLUSTER = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,251}[A-Za-z0-9])?", re.ASCII)


_MAX_NAME = 253
"""Of any name. Longer texts never get into a cache: whoever may write a topic could fill the memory with them."""


def is_cluster(name: str) -> bool:
    """Whether a cluster can be called so: letters, digits, `-`, `_`, `.`; at most 253; no `/`, which parts keys."""
    return len(name) <= _MAX_NAME and _matches_cluster(name)


def is_namespace(name: str) -> bool:
    """Whether it is a DNS label (RFC 1123), as namespaces and containers are called."""
    return len(name) <= _MAX_NAME and _matches_label(name)


def is_object(name: str) -> bool:
    """Whether it is a DNS subdomain (RFC 1123), as pods and workloads are called."""
    return len(name) <= _MAX_NAME and _matches_subdomain(name)


@lru_cache(maxsize=16_384)
def _matches_cluster(name: str) -> bool:
    return _CLUSTER.fullmatch(name) is not None


@lru_cache(maxsize=16_384)
def _matches_label(name: str) -> bool:
    return _LABEL.fullmatch(name) is not None


@lru_cache(maxsize=65_536)
def _matches_subdomain(name: str) -> bool:
    return _SUBDOMAIN.fullmatch(name) is not None


def check_cluster(name: str) -> str:
    """Give the name back. Raises Refusal: `badName`."""
    if not is_cluster(name):
        raise Refusal(
            "badName", f"cluster {_shown(name)} must be 1-253 of letters, digits, '-', '_' and '.', no '/' or blank"
        )
    return name


def check_namespace(name: str) -> str:
    """Give the name back, or raise `badName`."""
    if not is_namespace(name):
        raise Refusal("badName", f"namespace {_shown(name)} must be a DNS label: a-z, 0-9 and '-', at most 63")
    return name


def check_object(name: str, field: str) -> str:
    """Give the name back, or raise `badName`."""
    if not is_object(name):
        raise Refusal("badName", f"{field} {_shown(name)} must be a DNS subdomain: a-z, 0-9, '-' and '.', at most 253")
    return name


def check_text(text: str, field: str, limit: int = MAX_TEXT) -> str:
    """Give a free text back that is not empty, not too long and printable, or raise `badName`."""
    if not text or len(text) > limit or not text.isprintable():
        raise Refusal("badName", f"{field} {_shown(text)} must be 1-{limit} printable characters")
    return text


def _shown(name: str) -> str:
    return repr(name if len(name) <= 80 else name[:80] + "…")
