"""`fleethpa metrics`: what HPAs see of their metrics."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import click

from fleethpa.fleet.members import prometheus_connections, prometheus_option
from fleethpa.frame.errors import ANSWER_IS_NO, OK, SuggestingGroup, not_found, unreachable, usage
from fleethpa.frame.session import Session, command_options
from fleethpa.show.table import layout
from schemas.kubernetes.selectors import Selector, SelectorError, parse_selector

if TYPE_CHECKING:
    from fleethpa.questions.metricstrial import MetricTrial
    from reconciler.core.promsettings import PromConnection


@click.group(cls=SuggestingGroup)
def metrics() -> None:
    """Try a metric of a Prometheus: see what an HPA would see."""


@metrics.command("try")
@click.argument("what", metavar="METRIC|EXPRESSION")
@prometheus_option
@click.option("-C", "--cluster", default="*", metavar="NAME", help="Whose Prometheus.")
@click.option("-n", "--namespace", default="default", help="Namespace of the HPA.")
@click.option("--object", "described", metavar="KIND[.GROUP]/NAME", help="Try an Object metric of this object.")
@click.option("--selector", "selector_text", metavar="KEY=VALUE,…", help="The metric's own selector.")
@click.option("--expression", is_flag=True, help="Send the argument as it is, although it could be a metric's name.")
@command_options()
def try_(
    session: Session,
    /,
    what: str,
    prometheus: str | None,
    cluster: str,
    namespace: str,
    described: str | None,
    selector_text: str | None,
    expression: bool,
) -> int:
    """Ask a Prometheus for a metric as the observer would, and show what an HPA would see.

    METRIC is the name in an HPA: it is tried as an External metric and as a Pods metric of all pods of the namespace,
    or with --object as an Object metric. Anything else is an expression in PromQL, seen as an External metric. Exit 1
    if an HPA would get an error.
    """
    connection = prometheus_connections({"prometheus": prometheus}).of(cluster)
    if connection is None:
        raise usage(
            f"no Prometheus is known for cluster {cluster}",
            cause=f"--prometheus {prometheus or 'FILE'} names none." if prometheus else "--prometheus is not given.",
            next_step=f"fleethpa metrics try {shlex.quote(what)} --prometheus FILE -C NAME",
        )
    try:
        selector = parse_selector(selector_text or "")
    except SelectorError as error:
        raise usage(f"--selector {selector_text} cannot be used", cause=str(error)) from error
    if described and not all(described.partition("/")):
        raise usage(f"--object {described} cannot be used", cause="It must be KIND[.GROUP]/NAME, as Service/web.")
    trials = session.run(_tried(connection, what, namespace, described or "", selector, expression))
    if not trials:
        raise not_found(
            f"no metric {what}",
            cause=f"No rule of {connection.rules_file} makes it of a series that is there.",
            next_step=f"fleethpa metrics try {shlex.quote(what)} --prometheus {prometheus} -C {cluster} --expression",
        )
    for trial in trials:
        rows = [("Metric", trial.kind), ("Query", " ".join(trial.query.split())), ("HPA sees", trial.seen)]
        session.lines([*layout(rows), *(f"  {line}" for line in layout(trial.rows)), ""])
    return ANSWER_IS_NO if all(trial.failed for trial in trials) else OK


async def _tried(
    connection: PromConnection, what: str, namespace: str, described: str, selector: Selector, expression: bool
) -> list[MetricTrial]:
    from fleethpa.questions.metricstrial import Trials, is_metric
    from reconciler.clusters.answers import ClusterError
    from reconciler.core.promrules import RulesError

    trials = Trials(connection, namespace)
    try:
        if expression or not is_metric(what):
            return [await trials.expression(what)]
        if described:
            kind, _, name = described.partition("/")
            found = [await trials.object(what, selector, kind, name)]
        else:
            found = [await trials.external(what, selector), await trials.pods(what, selector)]
        return [each for each in found if each is not None]
    except RulesError as error:
        raise usage(f"{connection.rules_file} cannot be used for {what}", cause=str(error)) from error
    except (ClusterError, ValueError) as error:
        raise unreachable(f"{connection.url} cannot be asked", cause=str(error)) from error
    finally:
        await trials.close()
