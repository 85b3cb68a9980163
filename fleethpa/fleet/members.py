"""The clusters that a command means: contexts, the own cluster, and where others are found."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import click

from fleethpa.frame.configuration import Config
from fleethpa.frame.errors import CommandError, usage
from fleethpa.frame.options import together
from reconciler.clusters.answers import ConfigError, NoContextError

if TYPE_CHECKING:
    from fleethpa.frame.session import Session
    from reconciler.clusters.client import ClusterConfig
    from reconciler.clusters.clusterfinder import ClusterSources


def member_clusters(config: Config, in_cluster_name: str = "") -> tuple[ClusterConfig, ...]:
    """The clusters to watch and write: contexts of the kubeconfig, or the cluster that this process runs in.

    Raises CommandError: the kubeconfig cannot be used, or none is known (exit 2).
    """
    from reconciler.clusters.client import ClusterConfig, clusters_of

    if in_cluster_name:
        return (ClusterConfig(in_cluster_name),)
    if not config.kubeconfig:
        raise usage(
            "no member clusters are known",
            cause="Neither --kubeconfig nor a configuration file names a kubeconfig.",
            next_step="add --kubeconfig FILE, or --in-cluster NAME inside a cluster",
        )
    try:
        return tuple(clusters_of(config.kubeconfig, config.contexts))
    except ConfigError as error:
        raise _unusable(config, error) from error


def _unusable(config: Config, error: ConfigError) -> CommandError:
    is_context = isinstance(error, NoContextError)
    step = "name another context, or another file" if is_context else "name a readable kubeconfig"
    return usage(
        f"kubeconfig {config.kubeconfig} cannot be used", cause=str(error), next_step=f"{step} with --kubeconfig FILE"
    )


def hub_cluster(config: Config, context: str | None) -> ClusterConfig:
    """The hub's own cluster: a context of the kubeconfig, or (None) the cluster that this process runs in.

    Raises CommandError: the kubeconfig cannot be used, or has no such context (exit 2).
    """
    from reconciler.clusters.client import ClusterConfig
    from reconciler.clusters.clusterfinder import OWN_CLUSTER
    from reconciler.clusters.credentials import contexts_of

    if not context:
        return OWN_CLUSTER
    if not config.kubeconfig:
        raise usage(
            f"no kubeconfig is named, which has the context {context}",
            cause="Neither --kubeconfig nor a configuration file names one.",
            next_step="add --kubeconfig FILE",
        )
    try:
        contexts_of(config.kubeconfig, (context,))
    except ConfigError as error:
        raise _unusable(config, error) from error
    return ClusterConfig(context, config.kubeconfig, context)


_FOUND_BY = ("kubeconfig_dir", "kubeconfig_secrets", "argocd_clusters", "clusterprofiles")


fixed_options = together(
    click.option("--contexts", metavar="NAME,…", help="Contexts of the kubeconfig [default: all]."),
    click.option("--in-cluster", metavar="NAME", help="Use the cluster in which this process runs, under this name."),
)
"""Options that name clusters which are always there."""
_FINDING: Final = {
    "--kubeconfig-dir": (
        "DIR",
        "Use the clusters of the kubeconfigs in this folder. With this option and the next ones, clusters may be "
        "added and removed while running.",
    ),
    "--kubeconfig-secrets": (
        "NAMESPACE",
        "Use the clusters of Secrets with kubeconfigs, labelled fleethpa.io/cluster=NAME or by Cluster API.",
    ),
    "--argocd-clusters": ("NAMESPACE", "Use the clusters of Argo CD's cluster Secrets."),
    "--clusterprofiles": ("NAMESPACE", "Use the clusters of these ClusterProfiles."),
    "--clusterprofile-provider-file": ("FILE", "The exec plugins for ClusterProfiles (JSON)."),
    "--inventory-context": (
        "NAME",
        "Kubeconfig context of the cluster that holds these objects [default: the cluster of this process].",
    ),
    "--found-exec-plugins": (
        "COMMAND,…",
        "Exec plugins that found kubeconfigs may run, with any arguments [default: none].",
    ),
    "--found-exec-env": ("NAME,…", "Variables that found kubeconfigs may set for exec plugins [default: none]."),
}
"""Options that name where clusters are found: what they take, and their help."""


found_options = together(
    *(click.option(name, metavar=metavar, help=text) for name, (metavar, text) in _FINDING.items()),
    click.option("--found-insecure-tls", is_flag=True, help="Let found kubeconfigs leave the API server unverified."),
)
"""Options that name where clusters are found while the process runs, and what their kubeconfigs may do."""


def fixed_members(session: Session, options: Mapping[str, Any]) -> tuple[ClusterConfig, ...]:
    """The clusters that the options name themselves, without those that are found.

    Raises CommandError: the kubeconfig cannot be used, or no cluster is known (exit 2).
    """
    config = session.config
    if options.get("contexts"):
        config = replace(config, contexts=tuple(part for part in options["contexts"].split(",") if part))
    in_cluster = options.get("in_cluster") or ""
    if not are_found(options):
        return member_clusters(config, in_cluster)
    # What is found is the fleet; a kubeconfig's contexts belong to it only where they are named.
    named = member_clusters(config) if options.get("contexts") else ()
    return (*named, *(member_clusters(config, in_cluster) if in_cluster else ()))


def are_found(options: Mapping[str, Any]) -> bool:
    """Whether clusters are found, and may come and go."""
    return any(options.get(name) for name in _FOUND_BY)


def cluster_sources(session: Session, options: Mapping[str, Any]) -> ClusterSources:
    """Where clusters are found; without those that are fixed.

    Raises CommandError: an option without the one that belongs to it, an unknown context, or none outside of a
    cluster (exit 2).
    """
    from reconciler.clusters.clusterfinder import OWN_CLUSTER, ClusterSources
    from reconciler.core.foundclusters import Allowed

    profiles, provider_file = options.get("clusterprofiles") or "", options.get("clusterprofile_provider_file") or ""
    if bool(profiles) != bool(provider_file):
        raise usage("--clusterprofiles and --clusterprofile-provider-file belong together")
    context = options.get("inventory_context")
    asked = [name for name in ("kubeconfig_secrets", "argocd_clusters", "clusterprofiles") if options.get(name)]
    if asked and not context and "KUBERNETES_SERVICE_HOST" not in os.environ:
        raise usage(
            f"--{asked[0].replace('_', '-')} {options[asked[0]]} is looked for in the cluster of this process",
            cause="This process runs in none: Kubernetes sets KUBERNETES_SERVICE_HOST in its pods.",
            next_step="add --inventory-context NAME and --kubeconfig FILE",
        )
    inventory = member_clusters(replace(session.config, contexts=(context,))) if context else ()
    plugins, variables = (
        frozenset(filter(None, (options.get(name) or "").split(",")))
        for name in ("found_exec_plugins", "found_exec_env")
    )
    return ClusterSources(
        folder=options.get("kubeconfig_dir") or "",
        secrets=options.get("kubeconfig_secrets") or "",
        argocd=options.get("argocd_clusters") or "",
        profiles=profiles,
        provider_file=provider_file,
        inventory=inventory[0] if inventory else OWN_CLUSTER,
        allowed=Allowed(plugins, variables, bool(options.get("found_insecure_tls"))),
    )


@dataclass(frozen=True)
class KnownMembers:
    """The clusters that there are at this moment, and what of their sources cannot be read: source → why.

    `folder`: the one whose files name clusters; empty: none.
    """

    clusters: tuple[ClusterConfig, ...]
    unreadable: Mapping[str, str]
    folder: str = ""


async def look_up_members(session: Session, options: Mapping[str, Any]) -> KnownMembers:
    """Find the clusters where the options say, once.

    Raises CommandError: as `fixed_members` and `cluster_sources`; or the provider file cannot be used (exit 2).
    """
    fixed = fixed_members(session, options)
    if not are_found(options):
        return KnownMembers(fixed, {})
    from reconciler.clusters.clusterfinder import find_once
    from reconciler.core.foundclusters import FindingError

    try:
        sources = replace(cluster_sources(session, options), fixed=fixed)
        members, unreadable = await find_once(sources)
    except FindingError as error:
        raise usage(str(error)) from error
    return KnownMembers(tuple(member.config for member in members.values()), unreadable, sources.folder)
