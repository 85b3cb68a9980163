"""JSON objects of Kubernetes, the groups of their API versions, and the minor version of a server."""

import re
from collections.abc import Mapping
from typing import Any


def parse_group_version(text: str) -> tuple[str, str]:
    """Return the group of an API version, and what is wrong with it. Empty and `/` have an empty group.

    Source: apimachinery `schema.ParseGroupVersion`.
    """
    if text.count("/") > 1:
        return "", f"unexpected GroupVersion string: {text}"
    return text.rpartition("/")[0], ""


def group_of(text: str) -> str:
    """Return the group of an API version, empty for the core group; one of more than two parts has none."""
    return parse_group_version(text)[0]


Json = dict[str, Any]
"""A JSON object that its holder may change."""
HPA_HEAD: Json = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler"}
"""How an HPA of the newest version begins; the items of a list do not repeat it."""
JsonView = Mapping[str, Any]
"""A JSON object that is only read."""


def minor_version(version: str) -> int | None:
    """Return 33 of `1.33`, `v1.33.4` or `v1.33.4-eks-1234`; None: it is no 1.x."""
    match = re.match(r"v?1\.(\d{1,4})(?!\d)", version)
    return None if match is None else int(match[1])
