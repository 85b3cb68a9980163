"""The fence of the stand-in: admission policies of the cluster's API server that compare our writes with the Lease.

A request that was sent in time and arrives late cannot be called back. The API server refuses it: `/scale` is ours to
write only while the hub is in charge (the stand-in's floor: while that is), native HPAs only while the stand-in is,
under the present generation. Where the Lease is gone, nothing is.

One more policy says which ConfigMaps of the own namespace are ours to write. Permissions cannot: they name whole names,
and the number of the ConfigMaps follows from what is kept.
"""

from typing import Final, get_args

from reconciler.core.objects import STAND_IN_LABEL
from schemas.entries import HUB_HOLDER
from schemas.kubernetes.shape import Json
from schemas.pauses import ScalingDirection

LEASE: Final = "fleethpa-hub"
GENERATION_LABEL: Final = "fleethpa.io/generation"
STORE_NAME: Final = "fleethpa-stand-in-"
"""What the names of the ConfigMaps begin with."""
STAND_IN: Final = "stand-in"
"""Who holds the Lease while the hub is away."""
SCALES: Final = "fleethpa-stand-in-scales"
HPAS: Final = "fleethpa-stand-in-hpas"
MAPS: Final = "fleethpa-stand-in-configmaps"
FLOOR_MANAGER: Final = "fleethpa-floor-"
"""Field manager of what the stand-in itself writes to `/scale`, followed by the generation."""
_GROUP: Final = "admissionregistration.k8s.io"
_HOLDER: Final = "params.spec.holderIdentity"
_GENERATION: Final = "string(params.spec.leaseTransitions)"


def fence_manifests(*, home: str, service_account: str) -> list[Json]:
    """The policies and their bindings. `service_account`: whose writes are fenced; `home`: its namespace, and the
    Lease's.
    """
    user = f"system:serviceaccount:{home}:{service_account}"
    scales = _policy(
        SCALES,
        user,
        {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["UPDATE"], "resources": ["*/scale"]},
        f"{_HOLDER}.startsWith('{HUB_HOLDER}') || ({_HOLDER} == '{STAND_IN}' && "
        f"request.options.?fieldManager.orValue('') == '{FLOOR_MANAGER}' + {_GENERATION})",
        f"'fleethpa writes scales only while the hub is in charge, and it is: ' + {_HOLDER}",
    )
    label = f"object.metadata.labels['{GENERATION_LABEL}']"
    disabled = " && ".join(
        f"object.spec.?behavior.?{direction}.?selectPolicy.orValue('') == 'Disabled'"
        for direction in get_args(ScalingDirection)
    )
    hpas = _policy(
        HPAS,
        user,
        {
            "apiGroups": ["autoscaling"],
            "apiVersions": ["v2"],
            "operations": ["CREATE", "UPDATE"],
            "resources": ["horizontalpodautoscalers"],
        },
        f"request.?dryRun.orValue(false) || !('{STAND_IN_LABEL}' in object.metadata.?labels.orValue({{}})) || "
        f"(request.operation == 'UPDATE' && {disabled}) || "
        f"({_HOLDER} == '{STAND_IN}' && '{GENERATION_LABEL}' in object.metadata.labels && {label} == {_GENERATION})",
        f"'fleethpa keeps native HPAs only while the stand-in is in charge, under its generation; it is: ' + {_HOLDER} "
        f"+ ', generation ' + {_GENERATION}",
    )
    maps = _policy(
        MAPS,
        user,
        {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]},
        f"request.name.startsWith('{STORE_NAME}')",
        f"'of ConfigMaps fleethpa writes those alone whose names begin with {STORE_NAME}, not ' + request.name",
    )
    del maps["spec"]["paramKind"]
    own = _binding(MAPS, home)
    del own["spec"]["paramRef"]
    return [scales, _binding(SCALES, home), hpas, _binding(HPAS, home), maps, own]


def _policy(name: str, user: str, rule: Json, expression: str, message: str) -> Json:
    return {
        "apiVersion": f"{_GROUP}/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name, "labels": {"app.kubernetes.io/name": "fleethpa"}},
        "spec": {
            "failurePolicy": "Fail",
            "paramKind": {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"},
            "matchConstraints": {"resourceRules": [rule]},
            "matchConditions": [{"name": "ours", "expression": f"request.userInfo.username == '{user}'"}],
            "validations": [{"expression": expression, "messageExpression": message, "reason": "Forbidden"}],
        },
    }


def _binding(name: str, home: str) -> Json:
    return {
        "apiVersion": f"{_GROUP}/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name, "labels": {"app.kubernetes.io/name": "fleethpa"}},
        "spec": {
            "policyName": name,
            "paramRef": {"name": LEASE, "namespace": home, "parameterNotFoundAction": "Deny"},
            "validationActions": ["Deny"],
        },
    }
