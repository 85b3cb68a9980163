"""Kubeconfig files for simulated clusters."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from pathlib import Path

import yaml

from fleethpa.simulator.simulatedcluster import SimulatedCluster
from schemas.kubernetes.jsontypes import Json


def kubeconfig(clusters: Iterable[SimulatedCluster]) -> Json:
    """Return a kubeconfig with one context per started cluster, named as the cluster; the first is the current one."""
    known = list(clusters)
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": known[0].name if known else "",
        "clusters": [{"name": c.name, "cluster": _server(c)} for c in known],
        "users": [{"name": c.name, "user": {"token": c.token}} for c in known],
        "contexts": [{"name": c.name, "context": {"cluster": c.name, "user": c.name}} for c in known],
    }


def _server(cluster: SimulatedCluster) -> Json:
    authority = base64.b64encode(cluster.certificate_pem).decode()
    return {"server": cluster.url, "certificate-authority-data": authority}


def write_kubeconfig(path: Path, clusters: Iterable[SimulatedCluster]) -> Path:
    """Write the kubeconfig of started clusters, readable by this user only, and return its path."""
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(kubeconfig(clusters), sort_keys=False))
    return path
