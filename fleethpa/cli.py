"""The `fleethpa` command: parse, build, call, print."""

import click


@click.group()
def main() -> None:
    """A central, event-sourced Horizontal Pod Autoscaler for fleets of Kubernetes clusters."""
