"""`fleethpa hub`: what the hub's cluster needs for the kinds of fleethpa, and giving back what a lost object stated."""

from __future__ import annotations

import difflib

import click
import yaml

from fleethpa.changes.foresight import read_present
from fleethpa.changes.writing import Concern, WriteOptions, change, write_options
from fleethpa.frame.errors import SuggestingGroup, not_found, usage
from fleethpa.frame.session import Session, command_options
from fleethpa.hub.definitions import all_manifests
from fleethpa.hub.kinds import BY_NAME, Author, HubKind
from fleethpa.hub.scene import Scene
from fleethpa.hub.stating import STATING, given_back
from fleethpa.show.words import listed


@click.group(cls=SuggestingGroup)
def hub() -> None:
    """Print what the hub's cluster needs for the kinds of its Kubernetes API; give back what a lost object stated.

    The kinds are CentralHPA, FleetHPA, CapacityGroup, Pause, Override, Schedule, ClusterPause, ClusterConfig and
    FleetAccess; `fleethpa run hub` puts what their objects state into the log.
    """


@hub.command("manifests")
@click.option(
    "--authors/--no-authors",
    default=True,
    help="With the admission policies that prove who wrote an object; they need Kubernetes 1.36.",
)
@command_options()
def manifests(session: Session, /, authors: bool) -> int:
    """Print what the hub's cluster needs: the kinds, the policies, and roles for people and for `run hub`.

    Apply it with: fleethpa hub manifests | kubectl apply --server-side -f -
    """
    session.out(yaml.safe_dump_all(all_manifests(authors=authors), sort_keys=False).rstrip())
    return 0


@hub.command("release")
@click.argument("key", metavar="OBJECT")
@write_options
@command_options()
async def release(session: Session, /, key: str, options: WriteOptions) -> int:
    """Give HPAs, pauses, groups and settings of an object back to the log, unchanged; commands may change them again.

    OBJECT is written as errors name it, such as CentralHPA/shop/web. If the object is there, it takes all of it again.
    """
    _check_key(key)
    async with session.past() as past:
        state, present = await read_present(past)
    scene = Scene(state, present, {}, session.now_ms(), lambda _: Author(""))
    if not (writes := given_back(scene, key)):
        known = scene.missing()
        cause = f"Objects that state something are {listed(known)}." if known else "No object states anything."
        raise not_found(f"nothing in the log is stated by {key}", cause=cause, next_step="fleethpa get hpa -A")
    text = f"if {key} is in the hub's API, it takes these again; see kubectl get fleethpa -A there"
    return await change(session, "hub release", writes, [Concern(text)], options)


def _check_key(key: str) -> None:
    """See that a name can be that of an object. Raises CommandError: it cannot (exit 2)."""
    word, *parts = key.split("/")
    kind = BY_NAME.get(word)
    if kind is None or kind.name not in STATING:
        near = [name for name in STATING if name.lower() == word.lower()]
        near = near or difflib.get_close_matches(word, STATING, n=1)
        meant = f"Did you mean {near[0]}? " if near else ""
        raise usage(
            f"{word!r} is not a kind of object that hub release can give back",
            cause=f"{meant}Kinds are {', '.join(STATING)}.",
            next_step=f"fleethpa hub release {_form(BY_NAME[near[0] if near else 'CentralHPA'])}",
        )
    if not all(parts) or len(parts) != 1 + kind.namespaced:
        cause = f"A {word} has {'a namespace' if kind.namespaced else 'no namespace'} in the hub."
        raise usage(
            f"{key!r} is not the name of an object", cause=cause, next_step=f"fleethpa hub release {_form(kind)}"
        )


def _form(kind: HubKind) -> str:
    return f"{kind.name}/NAMESPACE/NAME" if kind.namespaced else f"{kind.name}/NAME"
