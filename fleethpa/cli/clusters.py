"""`fleethpa admin clusters`: what member clusters must allow, and agents; the proof that no native controller runs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from importlib.metadata import version as installed
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import yaml
from msgspec import structs

from fleethpa.changes.handover import prove_native_absent
from fleethpa.changes.records import PlannedRecord
from fleethpa.changes.writing import Concern, WriteOptions, change, check_writes, write_all, write_options
from fleethpa.fleet.doctor import access_check, finding_checks, lines, listing, report_sum
from fleethpa.fleet.members import are_found, fixed_options, found_options, look_up_members
from fleethpa.frame.errors import OK, CommandError, SuggestingGroup, not_found, usage
from fleethpa.frame.options import output_option
from fleethpa.frame.session import Session, command_options
from fleethpa.frame.sources import TOPICS_REFUSED, client_settings, connecting
from reconciler.clusters.manifests import (
    AGENT,
    SECRET,
    AgentPlace,
    agent_manifests,
    gates_manifests,
    inventory_manifests,
    manifests,
    review,
    wanted,
)
from reconciler.core.fence import fence_manifests
from runtime.topicneeds import acl_commands, agent_acls, agent_topics, wanted_beside
from schemas.agentregistry import AgentRegistry
from schemas.agents import MAX_TOPIC_NAME, AgentSet, AgentTopics, metric_name
from schemas.connection import KafkaSettings
from schemas.kubernetes.names import dns_label_errors, dns_subdomain_errors
from schemas.limits import CLUSTER_HPAS, CLUSTER_NAMESPACES, Refusal
from schemas.topics import LOG
from streams.ingest.checks import check_cluster

if TYPE_CHECKING:
    from runtime.topicadmin import TopicAdmin

QUOTAS = "producer_byte_rate=2097152,consumer_byte_rate=4194304,request_percentage=25"
"""The share of each broker that one agent may use: 2 MiB/s of reports, 4 MiB/s of commands, a quarter of a thread's
time. An agent of 1,000 HPAs reports some 100 KB/s.
"""


async def read_registry(settings: KafkaSettings) -> AgentRegistry:
    """Which clusters have an agent, by the topic of settings."""
    from runtime.records import read_in_force

    return (await read_in_force(settings)).agents


def new_agent(registry: AgentRegistry, cluster: str, max_namespaces: int, max_hpas: int) -> AgentSet:
    """The registration of a cluster's next agent.

    Its incarnation is higher than any before, and at least the time in seconds: also where the record of earlier ones
    is lost, no topic is used twice.

    Raises CommandError: the cluster has an agent, or its name cannot be used (exit 2).
    """
    try:
        check_cluster(cluster)
    except Refusal as refusal:
        raise usage(f"{cluster!r} cannot be a cluster's name", cause=refusal.text) from refusal
    if (present := registry.present(cluster)) is not None:
        raise usage(
            f"cluster {cluster} has an agent already",
            cause=f"It reports on {present.topics.reports}.",
            next_step=f"fleethpa admin clusters remove {cluster}, if it is to begin anew",
        )
    for other in registry.agents():
        if metric_name(other.cluster) == metric_name(cluster):
            raise usage(
                f"{cluster} cannot be distinguished from {other.cluster}",
                cause="Kafka's metrics write '.' as '_', so topics whose names differ only in these collide.",
                next_step="give the cluster another name",
            )
    before = registry.newest(cluster)
    incarnation = max(int(time.time()), before.incarnation + 1 if before is not None else 1)
    registration = AgentSet(cluster=cluster, incarnation=incarnation, max_namespaces=max_namespaces, max_hpas=max_hpas)
    if len(registration.topics.reports) > MAX_TOPIC_NAME:
        longest = MAX_TOPIC_NAME - (len(registration.topics.reports) - len(cluster))
        raise usage(
            f"the name of cluster {cluster[:40]}… is too long",
            cause=f"It is part of a topic's name, so that it may have {longest} characters.",
        )
    return registration


def agent_present(registry: AgentRegistry, cluster: str) -> AgentSet:
    """The agent of a cluster. Raises CommandError: it has none (exit 4)."""
    registration = registry.present(cluster)
    if registration is None:
        known = ", ".join(agent.cluster for agent in registry.agents()) or "none"
        raise not_found(f"cluster {cluster} has no agent", cause=f"Clusters with an agent: {known}.")
    return registration


@asynccontextmanager
async def administering(settings: KafkaSettings, topics: AgentTopics) -> AsyncIterator[TopicAdmin]:
    """The brokers' administration of an agent's topics.

    Raises CommandError: the brokers cannot be reached (exit 3), or refuse something.
    """
    from runtime.topicadmin import TopicAdmin, TopicError

    async with connecting(settings.bootstrap_servers), TopicAdmin(settings) as admin:
        try:
            yield admin
        except TopicError as error:
            names = f"{topics.reports} and {topics.commands}"
            step = f"run this as an administrator of Kafka, or create {names} by other means"
            raise CommandError(str(error), cause=TOPICS_REFUSED, next_step=step) from error


async def create_topics(admin: TopicAdmin, topics: AgentTopics, replication: int | None) -> list[str]:
    """Create an agent's topics; return the names of those created. Without a `replication` it is the log's."""
    shape = wanted_beside(await admin.existing([LOG]), replication=replication)
    return await admin.create(agent_topics(topics, shape[0].replication))


def permission_lines(topics: AgentTopics, principal: str) -> list[str]:
    """Permissions and quotas as arguments of Kafka's own tools."""
    user = principal.partition(":")[2]
    quota = f"kafka-configs.sh --alter --entity-type users --entity-name {user} --add-config '{QUOTAS}'"
    return [*(f"kafka-acls.sh {line}" for line in acl_commands(agent_acls(topics), principal)), quota]


_READ_GATES: Final = "Also allow reading the API server's metrics, for its feature gates."


@click.group(cls=SuggestingGroup)
def clusters() -> None:
    """Add or remove clusters with an agent; print or check the permissions that fleethpa needs in member clusters."""


@clusters.command("check")
@click.argument("names", nargs=-1, metavar="[CLUSTER]…")
@click.option("--enforce", is_flag=True, help="Also check the permissions for writing.")
@click.option("--namespace", default="", show_default=False, help="Check this namespace only, for a Role.")
@found_options
@fixed_options
@output_option(formats=("table", "json", "yaml", "jsonl"))
@command_options()
async def check(
    session: Session, /, names: tuple[str, ...], enforce: bool, namespace: str, output: str, **options: Any
) -> int:
    """Ask member clusters whether this user has the permissions; exit 1 if a required one is missing.

    With discovery options (those of `run observer`), the clusters found at this moment are checked.
    """
    permissions = wanted(enforce=enforce)
    members = await look_up_members(session, options)
    known = {each.name: each for each in members.clusters}
    if missing := [name for name in names if name not in known]:
        what = "cluster" if are_found(options) else "context for cluster"
        raise not_found(f"no {what} {missing[0]}", cause=f"There are {', '.join(known) or 'none'}.")
    checks = finding_checks(members)
    if not known and not checks:
        cause = "Neither a context of the kubeconfig nor an option names one."
        raise not_found("no cluster to check", cause=cause, next_step="name a kubeconfig with --kubeconfig FILE")
    reviews = (review(known[name], permissions, namespace, enforce=enforce) for name in names or known)
    answers = await asyncio.gather(*reviews)
    checks += [access_check(each, enforce=enforce, namespace=namespace) for each in answers]
    if output == "table":
        session.lines(line for each in checks for line in lines(session, each))
        for each in answers:
            if each.denied:
                session.out("\n".join([f"rules that {each.cluster} lacks:", *each.missing_rules]))
    else:
        session.listing(listing(checks), output)
    return report_sum(session, checks)


@clusters.command("prove-native-absent")
@click.argument("name", metavar="CLUSTER")
@click.option("--canary-namespace", default="default", metavar="NAMESPACE")
@click.option(
    "--canary-wait",
    default="45s",
    metavar="DURATION",
    help="How long its status must stay empty: three sync periods of the native controller.",
)
@write_options
@command_options()
async def prove(session: Session, /, name: str, canary_namespace: str, canary_wait: str, options: WriteOptions) -> int:
    """Find out with a canary HPA whether a native HPA controller runs in CLUSTER, and record it; exit 1 if one does.

    With your own credentials (--kubeconfig): for a cluster with an agent, which may not record this. In other clusters
    `fleethpa run observer --prove-native-absent` does the same.
    """
    return await prove_native_absent(session, name, canary_namespace, canary_wait, options)


@clusters.command("rbac")
@click.option("--enforce", is_flag=True, help="Also allow writing: /scale, HPA status and Events.")
@click.option(
    "--stand-in",
    is_flag=True,
    help="With --enforce: also allow an agent to stand in for the hub, and print the policies that fence it.",
)
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
@click.option(
    "--secrets-in",
    multiple=True,
    metavar="NAMESPACE",
    help="Print Roles for finding clusters by Secrets of this namespace instead; repeatable.",
)
@click.option(
    "--clusterprofiles-in",
    multiple=True,
    metavar="NAMESPACE",
    help="Print Roles for finding clusters by ClusterProfiles of this namespace instead; repeatable.",
)
@click.option("--read-gates", is_flag=True, help=_READ_GATES)
@click.option("--service-account", default="fleethpa", help="Who gets the role.")
@click.option("--service-account-namespace", "home", default="fleethpa-system")
@command_options()
def rbac(
    session: Session,
    enforce: bool,
    stand_in: bool,
    namespaces: tuple[str, ...],
    custom: tuple[str, ...],
    secrets_in: tuple[str, ...],
    clusterprofiles_in: tuple[str, ...],
    read_gates: bool,
    service_account: str,
    home: str,
) -> None:
    """Print the smallest ClusterRole (or Roles) and bindings, as YAML for `kubectl apply -f -`.

    A custom resource that is scaled needs rights of its own: name it with --for, such as widgets.example.com.
    """
    names = [("--namespace", each) for each in namespaces]
    names += [("--secrets-in", each) for each in secrets_in]
    names += [("--clusterprofiles-in", each) for each in clusterprofiles_in]
    names += [("--service-account", service_account), ("--service-account-namespace", home)]
    _check_names(names, custom)
    if stand_in and not enforce:
        raise usage(
            "--stand-in needs --enforce",
            cause="An agent that stands in for the hub also needs the permissions to write.",
        )
    if secrets_in or clusterprofiles_in:
        documents = inventory_manifests(
            secrets=secrets_in, profiles=clusterprofiles_in, service_account=service_account, home=home
        )
    else:
        documents = manifests(
            enforce=enforce,
            stand_in=stand_in,
            namespaces=namespaces,
            service_account=service_account,
            home=home,
            custom=custom,
        )
        documents += gates_manifests(service_account=service_account, home=home) if read_gates else []
        documents += fence_manifests(home=home, service_account=service_account) if stand_in else []
    session.out(yaml.safe_dump_all(documents, sort_keys=False).rstrip())


def _check_names(names: Iterable[tuple[str, str]], custom: tuple[str, ...]) -> None:
    """`names`: each with its option. `custom`: resources of `--for`."""
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


@clusters.command("add")
@click.argument("name")
@click.option("--principal", default="User:fleethpa-agent-{name}", help="Kafka principal of the agent.")
@click.option(
    "--max-namespaces",
    type=click.IntRange(1),
    default=CLUSTER_NAMESPACES.most,
    help="Maximum number of namespaces it may report, in each log partition.",
)
@click.option(
    "--max-hpas",
    type=click.IntRange(1),
    default=CLUSTER_HPAS.most,
    help="Maximum number of HPAs it may report, in each log partition. Each takes some 10 kB of a decider's memory.",
)
@click.option(
    "--replication-factor", type=click.IntRange(1), help="Replication factor of its topics. [default: that of the log]"
)
@click.option("--no-acls", is_flag=True, help="Give no permissions on Kafka; only print them.")
@click.option("--namespace", "namespaces", multiple=True, help="It watches only this namespace; repeatable.")
@click.option("--for", "custom", multiple=True, metavar="PLURAL.GROUP", help="A custom resource that is scaled.")
@click.option("--read-gates", is_flag=True, help=_READ_GATES)
@click.option("--home", default="fleethpa-system", help="The namespace it runs in.")
@click.option("--image", default=f"fleethpa:{installed('fleet-hpa')}")
@click.option("-o", "--output", "path", type=click.Path(dir_okay=False), help="Write the manifests to this file.")
@write_options
@command_options()
async def add(session: Session, /, name: str, path: str | None, options: WriteOptions, **agent: Any) -> int:
    """Register cluster NAME with an agent, create its topics and permissions, and print the agent's manifests.

    From then on only reports on the agent's own topic count for the cluster. Apply the manifests in the cluster,
    after a Secret fleethpa-kafka with the agent's client.properties.
    """
    _check_names([*(("--namespace", each) for each in agent["namespaces"]), ("--home", agent["home"])], agent["custom"])
    principal = agent["principal"].format(name=name)
    settings = client_settings(session.config)
    code = OK
    async with connecting(settings.bootstrap_servers):
        registry = await read_registry(settings)
    registration = new_agent(registry, name, agent["max_namespaces"], agent["max_hpas"])
    registration = structs.replace(registration, author=session.config.author, reason=options.reason)
    writes = [
        PlannedRecord(f"cluster {name} added with an agent, incarnation {registration.incarnation}", registration, name)
    ]
    if options.dry_run:
        for topic in (registration.topics.reports, registration.topics.commands):
            session.note(f"topic/{topic} would be created")
        check_writes(writes)
        session.note(f"{writes[0].subject} (dry run)")
    else:
        async with administering(settings, registration.topics) as admin:
            for topic in await create_topics(admin, registration.topics, agent["replication_factor"]):
                session.note(f"topic/{topic} created")
            if not agent["no_acls"] and not await admin.allow(agent_acls(registration.topics), principal):
                session.warn("these brokers enforce no permissions: anyone may write the agent's topic")
        async with session.writer() as writer:
            code = await write_all(session, writer, writes, options.wait, silent=True)
        if code == OK:
            session.note(writes[0].subject)
    for each in ("Permissions and quotas:", *permission_lines(registration.topics, principal)):
        session.note(each)
    place = AgentPlace(
        topics=registration.topics,
        image=agent["image"],
        home=agent["home"],
        namespaces=agent["namespaces"],
        custom=agent["custom"],
        read_gates=agent["read_gates"],
    )
    text = yaml.safe_dump_all(agent_manifests(place), sort_keys=False).rstrip()
    if path is None or options.dry_run:
        session.out(text)
    else:
        _write(path, text)
        session.note(f"manifests written to {path}")
    secret = f"kubectl -n {agent['home']} create secret generic {SECRET} --from-file=client.properties"
    session.note(f"Next, in the cluster: kubectl apply -f {path or 'FILE'}, which makes the namespace; then {secret}")
    return code


@clusters.command("remove")
@click.argument("name")
@click.option("--principal", default="User:fleethpa-agent-{name}", help="Kafka principal that loses the permissions.")
@click.option("--delete-topics", is_flag=True, help="Also delete the agent's topics.")
@write_options
@command_options()
async def remove(session: Session, /, name: str, principal: str, delete_topics: bool, options: WriteOptions) -> int:
    """End the registration of the agent of cluster NAME: its reports are refused, and its HPAs keep their replicas."""
    principal = principal.format(name=name)
    settings = client_settings(session.config)
    async with connecting(settings.bootstrap_servers):
        agent = agent_present(await read_registry(settings), name)
    left = structs.replace(agent, left=True, author=session.config.author, reason=options.reason)
    writes = [PlannedRecord(f"cluster {name} has no agent any more", left, name)]
    held = f"the HPAs of cluster {name} keep their replicas until an agent or an observer reports on it again"
    code = await change(session, "clusters remove", writes, [Concern(held, harmful=True)], options)
    if options.dry_run:
        return code
    async with administering(settings, agent.topics) as admin:
        await admin.disallow(agent_acls(agent.topics), principal)
        if delete_topics:
            await admin.delete([agent.topics.reports, agent.topics.commands])
    session.note(f"Next, in the cluster: kubectl -n fleethpa-system delete deployment {AGENT}")
    return code


def _write(path: str, text: str) -> None:
    try:
        Path(path).write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise usage(f"{path} cannot be written", cause=str(error)) from error
