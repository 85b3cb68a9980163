"""`--hub CONTEXT`: write verbs state objects of the hub's API, with the person's own kubeconfig, in place of records.

Nothing is read from Kafka, so that nobody needs a credential for it. Whether an object counts is said by its
conditions. A verb of which no kind says what it does is refused.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from fleethpa.changes.writing import confirm, rest
from fleethpa.frame.errors import OK, PARTIAL, CommandError, unreachable, usage
from fleethpa.frame.options import parse_duration_ms
from fleethpa.frame.remote import kubeconfig_path
from fleethpa.frame.session import Session
from fleethpa.hub.hubsession import FIELD_MANAGER, HubChange, HubSession, kubectl
from fleethpa.hub.kinds import HubObject, hub_object
from fleethpa.hub.verbs import VERBS
from reconciler.clusters.answers import ApiError, ClusterError, ConfigError
from reconciler.clusters.client import ClusterClient, ClusterConfig
from reconciler.clusters.credentials import APPLY_PATCH, contexts_of
from schemas.kubernetes.shape import Json

MOST_TRIES: Final = 5
"""How often a change is tried whose object got another status meanwhile."""
_FIELD_CONFLICT: Final = "Apply failed with"
"""How the API server begins to say that other managers have set fields. Source: apimachinery v0.37.1
`pkg/util/managedfields/internal/conflict.go` `NewConflictError`.
"""
_NO_KIND: Final = "could not find the requested resource"
LOOK_S: Final = 0.5
"""How long until an object is looked at again, while it waits for its verdict."""


async def written(session: Session, words: Sequence[str], arguments: Mapping[str, Any]) -> int:
    """Carry out a write verb in the hub's API; return the exit code.

    Args:
        words: of the verb, such as `schedule create`.
        arguments: what its function would get beside the session.

    Raises CommandError: no kind says what the verb does, or its arguments cannot be used (exit 2); the hub's API server
    refuses it (1 or 2), or does not answer (3).
    """
    verb = VERBS.get(tuple(words))
    if verb is None:
        raise _without_kind(words)
    if session.options.get("author"):
        cause = "The API server of the hub writes down who has signed in."
        raise usage("--author has no meaning with --hub", cause=cause, next_step="leave --author out")
    left = {name: value for name, value in arguments.items() if name != "options"}
    context, path = session.config.hub, kubeconfig_path(session.config)
    client = ClusterClient(ClusterConfig(context, path, context))
    hub = HubSession(session, client, arguments["options"])
    try:
        contexts_of(path, (context,))
        changes = await verb(hub, **left)
        return await _carried_out(hub, " ".join(words), changes)
    except ClusterError as error:
        raise _refusal("", error, session) from error
    finally:
        await client.close()


def _without_kind(words: Sequence[str]) -> CommandError:
    verb = " ".join(words)
    cause = "It writes what no kind of the hub's API states."
    step = INSTEAD.get(verb, f"fleethpa {verb} … --hub kafka, by somebody with a credential for Kafka")
    return usage(f"{verb} does not take --hub", cause=cause, next_step=step)


INSTEAD: Final = {
    "rollout undo": "fleethpa history NAME --revision N -o yaml --from https://HUB | fleethpa apply -f - --hub CONTEXT"
}
"""Verbs of which something else does the same in the hub's API, or nearly."""


async def _carried_out(hub: HubSession, verb: str, changes: Sequence[HubChange]) -> int:
    """Write objects, and report what became of each; return the exit code."""
    session, options = hub.session, hub.options
    code = session.report(*hub.problems)
    changes = list({each.key: each for each in changes}.values())
    if not changes:
        return code
    confirm(session, hub.concerns, options, verb)
    for each in changes:
        try:
            code = max(code, await _one(hub, each))
        except ClusterError as error:
            code = max(code, session.report(_refusal(each.key, error, session)))
        except CommandError as error:
            code = max(code, session.report(error))
    return code


async def _one(hub: HubSession, change: HubChange) -> int:
    """Write one object and wait for its verdict, for as long as --wait says. Raises ClusterError: it is refused."""
    session, options = hub.session, hub.options
    path = change.kind.path_of(change.namespace, change.name)
    rehearsal = "&dryRun=All" if options.dry_run else ""
    limit_s = parse_duration_ms(options.wait, "--wait") / 1000
    if change.body is None:
        precondition = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": change.uid}}
        await hub.client.request("DELETE", f"{path}?propagationPolicy=Background{rehearsal}", body=precondition)
        done, item = "deleted", None
    else:
        done, item = "applied", await _applied(hub, change, change.body, rehearsal)
    if options.dry_run or not limit_s:
        session.out(f"{change.key} {done}{' (dry run)' if options.dry_run else ''}")
        return OK
    ends_s = time.monotonic() + limit_s
    while (verdict := await _verdict(hub, change, item)) is None:
        if time.monotonic() >= ends_s:
            session.out(f"{change.key} {done} (not recorded yet)")
            session.warn(
                f"{change.key}: nothing says within {options.wait} that the log has it, so that it may not be "
                "in force: is the process of the hub running? Next: fleethpa run hub"
            )
            return PARTIAL
        await rest(LOOK_S)
    if verdict.problem is not None:
        return session.report(verdict.problem)
    session.out(f"{change.key} {done}")
    return OK


async def _applied(hub: HubSession, change: HubChange, body: Json, rehearsal: str) -> HubObject:
    """Apply an object, and return it as it is now. A change of what was read is refused where that is another one by
    now, but for its status, which the process of the hub writes at any time.
    """
    path = change.kind.path_of(change.namespace, change.name)
    applied = f"{path}?fieldManager={quote(FIELD_MANAGER)}&force=false{rehearsal}"
    for _ in range(MOST_TRIES):
        try:
            answer = await hub.client.request("PATCH", applied, body=body, content_type=APPLY_PATCH)
            return hub_object(change.kind, answer)
        except ClusterError as error:
            if not error.is_conflict or _FIELD_CONFLICT in str(error) or not change.generation:
                raise
        now = hub_object(change.kind, await hub.client.get(path))
        if (now.uid, now.generation) != (change.uid, change.generation):
            break
        body = body | {"metadata": body["metadata"] | {"resourceVersion": now.metadata["resourceVersion"]}}
    raise CommandError(f"{change.key} was changed by somebody else meanwhile", next_step="run the command again")


class HubVerdict(NamedTuple):
    """The answer of `fleethpa run hub` about an object. `problem`: why the log does not have it; None: it has."""

    problem: CommandError | None = None


async def _verdict(hub: HubSession, change: HubChange, item: HubObject | None) -> HubVerdict | None:
    """Return what `fleethpa run hub` says of an object as it was written; None: nothing yet."""
    taken = HubVerdict()
    try:
        now = hub_object(change.kind, await hub.client.get(change.kind.path_of(change.namespace, change.name)))
    except ClusterError as error:
        if error.is_missing and item is None:
            return taken
        raise
    if item is None:
        return taken if now.uid != change.uid else None
    known = {each.get("type"): each for each in (now.body.get("status") or {}).get("conditions") or ()}
    accepted, ready = known.get("Accepted") or {}, known.get("Ready") or {}
    if accepted.get("observedGeneration", 0) < item.generation:
        return None
    if accepted.get("status") != "True":
        why = str(accepted.get("message") or "")
        return HubVerdict(
            CommandError(
                f"{change.key} is not accepted: {accepted.get('reason')}",
                cause="\n".join(filter(None, (why, "The object is there, and counts as soon as that is mended."))),
                next_step=kubectl(hub, "describe", change.key),
            )
        )
    return None if ready.get("reason") == "Recording" else taken


def _refusal(key: str, error: ClusterError, session: Session) -> CommandError:
    """The error for what the hub's API server refuses, in its words, or for no answer of it."""
    context = session.config.hub
    what = f"{key}: " if key else ""
    if isinstance(error, ConfigError):
        step = f"kubectl config get-contexts; --hub names one of {kubeconfig_path(session.config)}"
        return usage(f"{what}context {context} of the hub cannot be used", cause=str(error), next_step=step)
    if not isinstance(error, ApiError) or error.status >= 500 or error.status == 429:
        return unreachable(f"{what}the hub's API server does not answer", cause=str(error))
    refused = _answer(f"{what}the hub's API server refuses it", error)
    if error.is_conflict:
        refused.next_step = "change it where its manifest is kept; who set a field: kubectl get … --show-managed-fields"
    elif error.status == 403:
        refused.next_step = f"kubectl --context {context} auth can-i --list"
    elif error.is_missing and _NO_KIND in str(error):
        refused.next_step = "fleethpa hub manifests | kubectl apply --server-side -f -, by an administrator of the hub"
    elif error.status == 401:
        refused.next_step = f"kubectl --context {context} auth whoami"
    return refused


def _answer(what: str, error: ApiError) -> CommandError:
    """An answer of the API server as an error: 1 where it says no, 2 where what was asked is wrong."""
    make = usage if error.status in (400, 401, 413, 422) else CommandError
    return make(what, cause=str(error))
