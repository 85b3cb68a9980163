"""The manifests of the hub's API say what the program reads, and the policies what it checks."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fleethpa.hub.admission import PATHS, stamped_since_ms
from fleethpa.hub.definitions import all_manifests, definition, policies, process_role, roles
from fleethpa.hub.kinds import KINDS, HubKind, ManifestSpec, author_of, hub_object
from schemas.kubernetes.shape import Json
from tests.kit.hubapi import template

SINCE = "2026-01-01T00:00:00Z"
SINCE_MS = 1_767_225_600_000


def schema(kind: HubKind) -> Json:
    found: Json = definition(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return found


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.spec is not ManifestSpec], ids=lambda kind: kind.name)
def test_a_definition_has_the_fields_that_are_read_and_asks_for_those_that_are_needed(kind: HubKind) -> None:
    fields = msgspec.structs.fields(kind.spec)
    assert schema(kind)["properties"].keys() == {each.encode_name for each in fields}
    assert {*schema(kind).get("required", ())} == {each.encode_name for each in fields if each.required}


def in_force() -> dict[str, Json | None]:
    mutating, mutating_binding, validating, validating_binding = policies()
    found = dict(zip(PATHS, (mutating, mutating_binding, validating, validating_binding), strict=True))
    stamped = {"creationTimestamp": SINCE}
    return {name: each | {"metadata": each["metadata"] | stamped} for name, each in found.items()}


def test_authors_are_proven_since_all_policies_are_there() -> None:
    assert stamped_since_ms(in_force()) == SINCE_MS


@pytest.mark.parametrize("missing", PATHS)
def test_without_one_of_the_objects_no_author_is_proven(missing: str) -> None:
    assert stamped_since_ms(in_force() | {missing: None}) is None


def _changed(found: dict[str, Json | None], name: str, **spec: Any) -> dict[str, Json | None]:
    each = found[name] or {}
    return found | {name: each | {"spec": each["spec"] | spec}}


@pytest.mark.parametrize(
    ("name", "spec"),
    [
        ("validating", {"validations": [{"expression": "true"}]}),
        ("validating", {"failurePolicy": "Ignore"}),
        ("validating", {"matchConditions": [{"name": "never", "expression": "false"}]}),
        ("validating", {"matchConstraints": {"resourceRules": []}}),
        ("validatingBinding", {"validationActions": ["Audit"]}),
        ("validatingBinding", {"matchResources": {"namespaceSelector": {"matchLabels": {"a": "b"}}}}),
        ("validatingBinding", {"policyName": "another"}),
        ("mutating", {"mutations": []}),
        ("mutatingBinding", {"paramRef": {"name": "x"}}),
    ],
)
def test_a_policy_that_was_weakened_proves_nothing(name: str, spec: Json) -> None:
    assert stamped_since_ms(_changed(in_force(), name, **spec)) is None


def _written(at: str, annotation: str = "anna", **manager: Any) -> Any:
    fields: Json = {"manager": "kubectl-edit", "time": at, "fieldsV1": {"f:spec": {}}} | manager
    older: Json = {"manager": "helm", "time": "2025-01-01T00:00:00Z", "fieldsV1": {"f:spec": {}}}
    status: Json = {
        "manager": "x",
        "time": "2027-01-01T00:00:00Z",
        "fieldsV1": {"f:status": {}},
        "subresource": "status",
    }
    metadata: Json = {"name": "web", "managedFields": [older, fields, status]}
    metadata |= {"annotations": {"fleethpa.io/author": annotation}} if annotation else {}
    return hub_object(KINDS[3], {"metadata": metadata, "spec": {"clusters": ["east"], "template": template()}})


def test_an_author_is_proven_only_for_what_was_written_while_the_policies_were_in_force() -> None:
    assert author_of(_written("2026-01-01T00:00:01Z"), SINCE_MS) == ("anna", True)
    assert author_of(_written(SINCE), SINCE_MS) == ("kubectl-edit", False)
    assert author_of(_written("2026-01-01T00:00:01Z"), None) == ("kubectl-edit", False)
    assert author_of(_written("2026-01-01T00:00:01Z", annotation=""), SINCE_MS) == ("kubectl-edit", False)


def test_roles_aggregate_and_nobody_gets_the_kinds_of_the_cluster_by_them() -> None:
    whole = {kind.plural for kind in KINDS if not kind.namespaced}
    for role in roles():
        aggregated = [name for name in role["metadata"]["labels"] if "aggregate-to" in name]
        plurals = {plural for rule in role["rules"] for plural in rule["resources"]}
        assert not (aggregated and plurals & whole), role["metadata"]["name"]


def test_the_process_may_write_statuses_and_metadata_and_read_nothing_but_its_kinds() -> None:
    rights = {(rule["apiGroups"][0], verb) for rule in process_role()["rules"] for verb in rule["verbs"]}
    assert ("fleethpa.io", "create") not in rights
    assert ("fleethpa.io", "delete") not in rights
    assert ("", "get") not in rights


def test_policies_can_be_left_out() -> None:
    kinds = {each["kind"] for each in all_manifests(authors=False)}
    assert kinds == {"CustomResourceDefinition", "ClusterRole"}
