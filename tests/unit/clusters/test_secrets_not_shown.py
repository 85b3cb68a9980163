"""No error about a kubeconfig, an Argo CD Secret or a ClusterProfile has the value of a field that may be secret."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from reconciler.clusters.answers import ClusterError
from reconciler.clusters.client import ClusterClient, ClusterConfig, clusters_of
from reconciler.core import clusterkeys
from reconciler.core.foundclusters import (
    NOTHING_ALLOWED,
    Allowed,
    FindingError,
    from_argocd_secret,
    from_kubeconfig_file,
    vetted,
)

MARKER = "Zq7marker"
SHAPES: list[Any] = [
    MARKER,
    f"{MARKER}\n{MARKER}",
    f"ü{MARKER}",
    base64.b64encode(MARKER.encode()).decode(),
    [MARKER],
    [{"name": MARKER, "value": MARKER}],
    {"key": MARKER},
    {"a": [MARKER]},
    {"config": {"id-token": MARKER, "refresh-token": MARKER}, "name": "oidc"},
    {"command": "false", "env": [{"name": "TOKEN", "value": MARKER}]},
    {"command": "true", "args": [MARKER], "apiVersion": "client.authentication.k8s.io/v1"},
]
SECRET = sorted(set(clusterkeys.USER) - {"tokenFile", "client-certificate", "client-key"})
"""All fields of a user but the names of files."""


def _document(field: str, value: Any) -> dict[str, Any]:
    user = {"token": "t"} if field not in ("token", "auth-provider", "exec") else {}
    return {
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:9"}}],
        "users": [{"name": "u", "user": user | {field: value}}],
        "contexts": [{"name": "prod", "context": {"cluster": "c", "user": "u"}}],
    }


def _shown(text: str) -> bool:
    return MARKER in text or base64.b64encode(MARKER.encode()).decode()[:8] in text


@pytest.mark.parametrize("shape", range(len(SHAPES)))
@pytest.mark.parametrize("field", [*SECRET, "unknown"])
async def test_a_field_of_a_user_is_in_no_error(tmp_path: Path, field: str, shape: int) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(_document(field, SHAPES[shape]), allow_unicode=True))
    client = ClusterClient(ClusterConfig("prod", str(path), "prod"))
    try:
        with pytest.raises(ClusterError) as refused:
            await client.get("/api", timeout_s=30)
    finally:
        await client.close()
    assert not _shown(str(refused.value)), refused.value
    for allowed in (NOTHING_ALLOWED, Allowed(frozenset({"true", "false"}))):
        try:
            found = vetted(from_kubeconfig_file(path.read_text(), "prod")[0], allowed).config.refused
        except (FindingError, TypeError, AttributeError, LookupError) as error:
            found = str(error)
        assert not _shown(found), found


@pytest.mark.parametrize(
    "text",
    [
        f'users: [{{user: {{token: "{MARKER}}}}}]',
        f"a: b\ntoken: {MARKER}: {MARKER}\n\t- x",
        f"- {MARKER}\nb: c",
        f"&{MARKER} [*x]",
    ],
)
def test_a_line_that_is_no_yaml_is_not_shown(tmp_path: Path, text: str) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(text)
    with pytest.raises(ClusterError) as refused:
        clusters_of(str(path))
    assert not _shown(str(refused.value)), refused.value
    with pytest.raises(FindingError) as found:
        from_kubeconfig_file(text, "prod")
    assert not _shown(str(found.value)), found.value


@pytest.mark.parametrize("shape", range(len(SHAPES)))
@pytest.mark.parametrize("field", [*clusterkeys.ARGOCD_CONFIG, "unknown", "not JSON"])
def test_a_field_of_argo_cds_configuration_is_in_no_error(field: str, shape: int) -> None:
    config = json.dumps({field: SHAPES[shape]}) if field != "not JSON" else f'{{"bearerToken": "{MARKER}}}'
    data = {"server": "https://a", "name": "east", "config": config}
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
    try:
        [found] = from_argocd_secret({"metadata": {"namespace": "argocd", "name": "east"}, "data": encoded})
        text = vetted(found, NOTHING_ALLOWED).config.refused
    except (FindingError, TypeError, AttributeError, LookupError) as error:
        text = str(error)
    assert not _shown(text), text
