"""`fleethpa clusters`: what member clusters must allow."""

from __future__ import annotations

import click

from fleethpa.session import Session, command_options


@click.group()
def clusters() -> None:
    """Print the permissions that member clusters must give."""


@clusters.command("rbac")
@click.option("--enforce", is_flag=True, help="Also allow writing: /scale, HPA status and Events.")
@click.option("--namespace", "namespaces", multiple=True, help="A Role here, not a ClusterRole; repeatable.")
@click.option("--service-account", default="fleethpa", show_default=True, help="Who gets the role.")
@click.option("--service-account-namespace", "home", default="fleethpa-system", show_default=True)
@command_options()
def rbac(session: Session, enforce: bool, namespaces: tuple[str, ...], service_account: str, home: str) -> None:
    """Print the least ClusterRole (or Roles) and bindings, as YAML for `kubectl apply -f -`.

    Custom resources that are scaled need get, list and watch on the kind and get (with --enforce also update) on its
    scale
    subresource, added by hand.
    """
    import yaml

    from reconciler.rbac import manifests

    documents = manifests(enforce=enforce, namespaces=namespaces, service_account=service_account, home=home)
    session.out(yaml.safe_dump_all(documents, sort_keys=False).rstrip())
