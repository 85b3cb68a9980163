"""`fleethpa clusters`: what member clusters must allow."""

from __future__ import annotations

import asyncio

import click
import yaml

from fleethpa.cli.common.access import Access, review, wanted
from fleethpa.cli.common.doctoring import access_check
from fleethpa.cli.common.failures import not_found, usage
from fleethpa.cli.common.findings import line, listing, tell_sum
from fleethpa.cli.common.parts import member_clusters
from fleethpa.cli.common.session import Session, command_options, output_option
from fleethpa.cli.common.suggesting import SuggestingGroup
from fleethpa.cli.output.formats import render
from reconciler.clusters.rbac import manifests
from schemas.kubernetes.objectnames import dns_label_errors, dns_subdomain_errors


@click.group(cls=SuggestingGroup)
def clusters() -> None:
    """Print or check the permissions that fleethpa needs in member clusters."""


@clusters.command("check")
@click.argument("names", nargs=-1, metavar="[CLUSTER]…")
@click.option("--enforce", is_flag=True, help="Also check the permissions for writing.")
@click.option("--namespace", default="", help="Check this namespace only, for a Role.")
@output_option(formats=("table", "json", "yaml", "jsonl"))
@command_options()
def check(session: Session, names: tuple[str, ...], enforce: bool, namespace: str, output: str) -> int:
    """Ask member clusters whether this user has the permissions; exit 1 if a required one is missing."""

    known = {each.name: each for each in member_clusters(session.config)}
    if missing := [name for name in names if name not in known]:
        raise not_found(f"no context for cluster {missing[0]}", cause=f"There are {', '.join(known) or 'none'}.")
    permissions = wanted(enforce=enforce)

    async def work() -> list[Access]:
        asked = (review(known[name], permissions, namespace, enforce=enforce) for name in names or known)
        return list(await asyncio.gather(*asked))

    answers = session.run(work())
    found = [access_check(each, enforce=enforce, namespace=namespace) for each in answers]
    if output == "table":
        session.out("\n".join(line(session, each) for each in found))
        for each in answers:
            if each.denied:
                session.out("\n".join([f"rules that {each.cluster} lacks:", *each.missing_rules]))
    else:
        session.out(render(listing(found), output))
    return tell_sum(session, found)


@clusters.command("rbac")
@click.option("--enforce", is_flag=True, help="Also allow writing: /scale, HPA status and Events.")
@click.option(
    "--namespace",
    "namespaces",
    multiple=True,
    help="Print a Role for this namespace instead of a ClusterRole; repeatable.",
)
@click.option(
    "--for",
    "--resource",
    "custom",
    multiple=True,
    metavar="PLURAL.GROUP",
    help="A custom resource that is scaled; repeatable.",
)
@click.option("--service-account", default="fleethpa", show_default=True, help="Who gets the role.")
@click.option("--service-account-namespace", "home", default="fleethpa-system", show_default=True)
@command_options()
def rbac(
    session: Session,
    enforce: bool,
    namespaces: tuple[str, ...],
    custom: tuple[str, ...],
    service_account: str,
    home: str,
) -> None:
    """Print the smallest ClusterRole (or Roles) and bindings, as YAML for `kubectl apply -f -`.

    A custom resource that is scaled needs rights of its own: name it with --for, such as widgets.example.com.
    """

    names = [("--namespace", each) for each in namespaces]
    names += [("--service-account", service_account), ("--service-account-namespace", home)]
    for option, name in names:
        for error in dns_label_errors(name):
            raise usage(f"{option} {name!r} is not a name", cause=error)
    for each in custom:
        plural, _, group = each.partition(".")
        if errors := dns_label_errors(plural) or dns_subdomain_errors(group):
            raise usage(
                f"--for {each!r} is not PLURAL.GROUP, such as widgets.example.com",
                cause=errors[0],
                next_step="kubectl api-resources -o name",
            )
    documents = manifests(
        enforce=enforce, namespaces=namespaces, service_account=service_account, home=home, custom=custom
    )
    session.out(yaml.safe_dump_all(documents, sort_keys=False).rstrip())
