"""The proof that no native HPA controller runs in a cluster, made by an operator instead of an observer.

An agent cannot record it, as it may write no settings; nor does it see the hub's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from fleethpa.cli.common.durations import parse_duration_ms
from fleethpa.cli.common.failures import ANSWER_IS_NO, OK, CommandError, unreachable
from fleethpa.cli.common.finding import no_such_cluster
from fleethpa.cli.common.fleetstate import read_state
from fleethpa.cli.common.foresight import Present, concerns
from fleethpa.cli.common.handover import open_client
from fleethpa.cli.common.writing import PlannedRecord, confirm, show, write_all
from reconciler.clusters.clustererrors import ApiError, ClusterError
from schemas.settings import ClusterSettings, SettingsSet

if TYPE_CHECKING:
    from fleethpa.cli.common.session import Session
    from reconciler.observer.nativecanary import Verdict

WITNESSED: Final = "it wrote the status of the canary HPA"


async def prove_native_absent(
    session: Session, cluster: str, namespace: str, lasting: str, written: dict[str, Any]
) -> int:
    """Create a canary HPA, look whether anybody writes its status, and record the verdict; returns the exit code.

    Args:
        namespace: where the canary is created.
        lasting: how long its status must stay empty, as `45s`.
        written: the options of a command that writes.

    Raises:
        CommandError: the cluster is not known (exit 4) or has no context (2), refuses (1) or does not answer (3).
    """
    lasts_s = parse_duration_ms(lasting, "--canary-wait") / 1000
    client = open_client(session, cluster)
    try:
        async with session.past() as past:
            state, present = await read_state(past), await Present.read(past)
        if cluster not in state.clusters:
            raise no_such_cluster(cluster, state)
        what = f"canary HPA in {namespace} for {lasting}"
        if written["dry_run"]:
            session.out(f"{cluster}: {what} (dry run)")
            return OK
        session.note(f"{cluster}: {what}, whose target does not exist …")
        verdict = await _verdict(client, cluster, namespace, lasts_s)
    finally:
        await client.close()
    settings = ClusterSettings(native_controller=verdict, native_evidence=WITNESSED if verdict == "present" else None)
    body = SettingsSet(
        cluster=cluster, settings=settings, author=session.config.author, reason=written["reason"] or what
    )
    writes = [PlannedRecord(f"settings of {cluster} changed: native-controller={verdict}", body, cluster)]
    foresight = present.foresee(writes)
    found = concerns("clusters prove-native-absent", foresight, writes)
    if foresight.changed_modes() or any(concern.harmful for concern in found):
        confirm(session, found, written["yes"], "clusters prove-native-absent")
    else:
        show(session, found)
    async with session.writer() as writer:
        code = await write_all(session, writer, writes, written["wait"])
    if verdict == "absent":
        return code
    session.tell(
        CommandError(
            f"a native HPA controller runs in {cluster}",
            cause=f"{WITNESSED[0].upper()}{WITNESSED[1:]}.",
            next_step=f"fleethpa adopt {cluster} --dry-run, or switch it off",
        )
    )
    return max(code, ANSWER_IS_NO)


async def _verdict(client: Any, cluster: str, namespace: str, lasts_s: float) -> Verdict:
    from reconciler.observer.nativecanary import Canary

    try:
        return await Canary(client, namespace, lasts_s, lambda _: None).prove()
    except ApiError as error:
        raise CommandError(
            f"the canary HPA in {cluster} proved nothing: {error}",
            next_step=f"fleethpa clusters check {cluster} --enforce",
        ) from error
    except ClusterError as error:
        raise unreachable(f"cluster {cluster} does not answer: {error}", next_step="check --kubeconfig") from error
