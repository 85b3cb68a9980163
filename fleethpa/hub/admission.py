"""Who wrote an object, as the API server of the hub proves it: two admission policies, and whether they are in force.

The chart has them (`hubApi.authors`). A MutatingAdmissionPolicy writes the authenticated user into an annotation when a
spec changes; a ValidatingAdmissionPolicy refuses anything else there. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from fleethpa.hub.kinds import AUTHOR_ANNOTATION, GROUP
from schemas.kubernetes.gotimes import parse_time_ms
from schemas.kubernetes.shape import Json

NAME: Final = "fleethpa-author"
_API: Final = "/apis/admissionregistration.k8s.io/v1"
PATHS: Final[Mapping[str, str]] = {
    "mutating": f"{_API}/mutatingadmissionpolicies/{NAME}",
    "mutatingBinding": f"{_API}/mutatingadmissionpolicybindings/{NAME}",
    "validating": f"{_API}/validatingadmissionpolicies/{NAME}",
    "validatingBinding": f"{_API}/validatingadmissionpolicybindings/{NAME}",
}
"""Where the four objects are."""
CHANGES_SPEC: Final = "oldObject == null || object.spec != oldObject.spec"
VALID: Final = (
    "(oldObject == null || object.spec != oldObject.spec) "
    f"? object.metadata.?annotations['{AUTHOR_ANNOTATION}'].orValue('') == request.userInfo.username "
    f": object.metadata.?annotations['{AUTHOR_ANNOTATION}'].orValue('') == "
    f"oldObject.metadata.?annotations['{AUTHOR_ANNOTATION}'].orValue('')"
)
STAMP: Final = (
    f"Object{{metadata: Object.metadata{{annotations: {{'{AUTHOR_ANNOTATION}': request.userInfo.username}}}}}}"
)


def stamped_since_ms(found: Mapping[str, Json | None]) -> int | None:
    """Since when authors are written and protected (Unix ms); None: they are not.

    `found`: the objects of `PATHS`; None: it is not there, or the API server does not know the kind.
    """
    objects = {name: found.get(name) for name in PATHS}
    if any(each is None for each in objects.values()):
        return None
    if not (_stamps(objects["mutating"] or {}) and _refuses(objects["validating"] or {})):
        return None
    bindings = [objects["mutatingBinding"] or {}, objects["validatingBinding"] or {}]
    if any((each.get("spec") or {}).get("policyName") != NAME for each in bindings):
        return None
    if any((each.get("spec") or {}).get(name) for each in bindings for name in ("matchResources", "paramRef")):
        return None  # it holds for a part of the objects only
    if "Deny" not in ((bindings[1].get("spec") or {}).get("validationActions") or ()):
        return None
    times = [parse_time_ms(str(each["metadata"]["creationTimestamp"])) for each in objects.values() if each]
    return max(times)


def _of_all(spec: Json) -> bool:
    """Whether a policy is about all kinds of the group, in all namespaces, and fails closed."""
    constraints = spec.get("matchConstraints") or {}
    rules = constraints.get("resourceRules") or ()
    is_whole = any(
        GROUP in (rule.get("apiGroups") or ())
        and "*" in (rule.get("resources") or ())
        and {"CREATE", "UPDATE"} <= set(rule.get("operations") or ())
        for rule in rules
    )
    narrowed = constraints.get("excludeResourceRules") or any(
        constraints.get(name) not in (None, {}) for name in ("namespaceSelector", "objectSelector")
    )
    return is_whole and not narrowed and spec.get("failurePolicy", "Fail") == "Fail"


def _stamps(policy: Json) -> bool:
    spec = policy.get("spec") or {}
    mutations = [(each.get("applyConfiguration") or {}).get("expression") for each in spec.get("mutations") or ()]
    conditions = [each.get("expression") for each in spec.get("matchConditions") or ()]
    return _of_all(spec) and mutations == [STAMP] and conditions in ([], [CHANGES_SPEC])


def _refuses(policy: Json) -> bool:
    spec = policy.get("spec") or {}
    expressions = [each.get("expression") for each in spec.get("validations") or ()]
    return _of_all(spec) and VALID in expressions and not spec.get("matchConditions")
