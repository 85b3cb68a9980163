"""Writes what in compose/ follows from the code: the chart's files, and plain manifests rendered from the chart.

`python -m tests.kubernetes.manifests` (`make manifests`) writes all; without helm and go only the chart's files.
"""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import yaml

from reconciler.clusters.manifests import (
    AGENT,
    enforcing_rules,
    gates_rules,
    home_rules,
    identity_rule,
    lease_rules,
    observing_rules,
    stand_in_rules,
)
from reconciler.core.fence import fence_manifests
from runtime.topicneeds import ACLS, STRIMZI_API, Acl, strimzi, wanted
from tests.kubernetes import binaries

Json = dict[str, Any]

COMPOSE: Final = Path(__file__).parents[2] / "compose"
CHART: Final = COMPOSE / "helm" / "fleethpa"
PLAIN: Final = COMPOSE / "kubernetes"
RELEASE: Final = "fleethpa"
NAMESPACE: Final = "fleethpa-system"
PLAIN_VALUES: Final[Mapping[str, Sequence[str]]] = {"hub.yaml": ("clusters.inCluster=home",)}
"""The plain manifests and the values that each is rendered with. Those of an agent: `fleethpa admin clusters add`."""
HOME_MARK: Final = "HOME-NAMESPACE"
ACCOUNT_MARK: Final = "SERVICE-ACCOUNT"
"""What the chart replaces in `fence.yaml`."""
_WRITTEN: Final = "# Written by `make manifests`.\n"
_HEAD: Final = """\
# Written by `make manifests` from compose/helm/fleethpa, with --set {values}.
# Before: a Namespace {namespace}, and the Secrets that the chart's values.yaml names. It may read, and write nothing.
"""


def chart_files() -> dict[str, str]:
    """The chart's files that repeat what the code says: permissions in clusters, topics, permissions on Kafka."""
    rights = {
        "observe": observing_rules(),
        "enforce": enforcing_rules(),
        "standIn": stand_in_rules(),
        "gates": gates_rules(),
        "identity": [identity_rule()],
        "home": lease_rules(AGENT) + home_rules(),
    }
    fence = fence_manifests(home=HOME_MARK, service_account=ACCOUNT_MARK)
    topics = [{"name": each["metadata"]["name"], "config": _config(each)} for each in strimzi(wanted(1, 1), "")]
    acls = {component: [_strimzi_acl(acl) for acl in found] for component, found in ACLS.items()}
    return {
        "fence.yaml": _WRITTEN + yaml.safe_dump_all(fence, sort_keys=False),
        # Through JSON: lists that rules share would become anchors and aliases.
        "rbac.yaml": _WRITTEN + yaml.safe_dump(json.loads(json.dumps(rights)), sort_keys=False),
        "kafka.yaml": _WRITTEN
        + yaml.safe_dump({"apiVersion": STRIMZI_API, "topics": topics, "acls": acls}, sort_keys=False),
    }


def chart_yaml() -> str:
    """The chart's description, with the version of pyproject.toml."""
    version = tomllib.loads((COMPOSE.parent / "pyproject.toml").read_text())["project"]["version"]
    text = re.sub(r"(?m)^version: .*$", f"version: {version}", (CHART / "Chart.yaml").read_text())
    return re.sub(r"(?m)^appVersion: .*$", f'appVersion: "{version}"', text)


def _config(topic: Json) -> Json:
    """A topic's settings, without the one that follows from the replication factor."""
    return {name: value for name, value in topic["spec"]["config"].items() if name != "min.insync.replicas"}


def _strimzi_acl(acl: Acl) -> Json:
    words = {"literal": "literal", "prefixed": "prefix"}
    found = asdict(acl)
    resource = {"type": found["resource"], "name": found["name"], "patternType": words[found["pattern"]]}
    return {"resource": resource, "operations": [_camel(each) for each in found["operations"]]}


def _camel(operation: str) -> str:
    """Kafka's DESCRIBE_CONFIGS as Strimzi writes it: DescribeConfigs."""
    return "".join(word.capitalize() for word in operation.split("_"))


def find_helm() -> str:
    """A helm: the one that is built from Go modules, else the one on the PATH; empty where there is none."""
    if binaries.is_built(binaries.HELM):
        return str(binaries.folder(binaries.HELM) / "helm")
    return shutil.which("helm") or ""


def render(
    helm: str, *values: str, namespace: str = NAMESPACE, release: str = RELEASE, chart: Path = CHART
) -> list[Json]:
    """The manifests of the chart, a folder or a package. The hub is named, which helm cannot ask the cluster for here.

    `values`: each as for `--set`, or the path of a file with values.

    Raises:
        AssertionError: helm refuses; has what it printed.
    """
    command = [helm, "template", release, str(chart), "--namespace", namespace, "--set", f"hub={namespace}/{release}"]
    done = subprocess.run([*command, *sets(values)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)} {values}:\n{done.stderr}"
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def sets(values: Sequence[str]) -> list[str]:
    """The options of helm for values: each as for `--set`, or the path of a file with values."""
    return [word for value in values for word in ("--set" if "=" in value else "--values", value)]


def plain(helm: str, name: str) -> str:
    """One of the plain manifests."""
    values = PLAIN_VALUES[name]
    documents = [_without_helm(document) for document in render(helm, *values)]
    head = _HEAD.format(values=",".join([*values, f"hub={NAMESPACE}/{RELEASE}"]), namespace=NAMESPACE)
    return head + yaml.safe_dump_all(documents, sort_keys=False, width=150)


def _without_helm(document: Json) -> Json:
    """Without the labels that say that helm manages an object."""
    labels = document["metadata"].get("labels", {})
    for label in ("app.kubernetes.io/managed-by", "helm.sh/chart"):
        labels.pop(label, None)
    return document


def main() -> None:
    """Write everything."""
    (CHART / "Chart.yaml").write_text(chart_yaml())
    for name, text in chart_files().items():
        (CHART / "files" / name).write_text(text)
    if not find_helm() and shutil.which("go"):
        binaries.built(binaries.HELM)
    if not (helm := find_helm()):
        sys.exit("neither helm nor go on this machine: compose/kubernetes is not rendered")
    for name in PLAIN_VALUES:
        (PLAIN / name).write_text(plain(helm, name))


if __name__ == "__main__":
    main()
