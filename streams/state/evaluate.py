"""Evaluate one HPA at one log record: observe → decide → replace → limit → record → remember.

Each step gives a value that has all that later steps need. State changes in few places only: accounts
(`Attached.accounts`), `finish` and `remember` change the HPA's row, and `register` the overlap check.
"""

from functools import partial

from schemas.limits import OverLimitError
from streams.hpa import reconcile
from streams.hpa.evaluation import ScaleApplied
from streams.hpa.metrics import tolerance_band
from streams.hpa.reconcile import complete
from streams.state import records
from streams.state.clustersettings import Effective
from streams.state.guards import nothing_decided, with_refusal
from streams.state.hpastate import Hpa
from streams.state.ledger import Draft, StateError
from streams.state.limits.limit import limited
from streams.state.namespace import Namespace
from streams.state.needs import blocked
from streams.state.overlap import register
from streams.state.partitionstate import State
from streams.state.replacements.replacement import replaced
from streams.state.replacements.writes import without_write
from streams.state.steps import decision_id, inputs_of, observe, record, remember, subject_of
from streams.state.subject import Decided, Limited, Observed, Subject, accounts_of


def evaluate(state: State, namespace: Namespace, hpa: Hpa, settings: Effective) -> Draft:
    """Evaluate an HPA at the present record of the log, remember what later evaluations need, and give the record."""
    name, accounts = decision_id(state, hpa), accounts_of(state)
    subject = subject_of(state, namespace, hpa, settings)
    observed = observe(subject)
    for account in accounts:
        account.before(subject, observed)
    if state.probe is not None and not subject.ignores:
        state.probe(inputs_of(subject, observed))
    decided = decide(subject, observed)
    register(subject, observed, decided.evaluation)
    left = limit(subject, observed, decided)
    decided, left = subject.kind.finish(subject, observed, decided, left)
    try:
        draft = record(subject, observed, decided, left, name)
    except OverLimitError as error:
        subject = subject.too_large(f"fleethpa ignores this HPA: {error}")
        history = decided.evaluation.history
        decided = Decided(nothing_decided(observed.status, observed.replicas, history, hpa.row.generation))
        left = limit(subject, observed, decided)
        draft = record(subject, observed, decided, left, name)
    for account in accounts:
        account.after(subject, observed, decided, left)
    subject.kind.tell(subject, name)
    remember(subject, observed, decided, left, name)
    return draft


def decide(subject: Subject, observed: Observed) -> Decided:
    """Decide as upstream does, and let what replaces the metrics take their place."""
    status, history, controller = observed.status, observed.history, subject.settings.controller
    if subject.ignores:
        return Decided(nothing_decided(status, observed.replicas, history, subject.hpa.row.generation))
    autoscaler = subject.kind.decided_by(subject, observed)
    evaluation = reconcile.decide(autoscaler, status, observed.observation, history, controller, subject.evaluated_ms)
    replacements = subject.state.attached.replacements
    taken = replaced(replacements, lambda each: each.inputs(subject), evaluation, subject.autoscaler, status)
    blocking: tuple[int, ...] = ()
    if observed.replicas is not None:
        band = partial(tolerance_band, subject.autoscaler, controller)
        blocking = blocked(evaluation.metrics, observed.replicas, band)
    return Decided(taken.evaluation, taken.name, taken.step, blocking, evaluation.proposal)


def limit(subject: Subject, observed: Observed, decided: Decided) -> Limited:
    """Return what the mode and fleethpa's own limits leave of what was decided."""
    evaluation, mode, before, now_ms = decided.evaluation, subject.effective_mode, observed.status, subject.state.now_ms
    history, rules, pending = evaluation.history, subject.settings.controller.rules, evaluation.pending
    constraints = records.constraints(evaluation)
    if decided.replaced_by:
        constraints.append(decided.replaced_by)
    refused = partial(with_refusal, mode=mode, before=before, now_ms=now_ms, is_ignored=subject.ignores)
    if pending is None:
        if evaluation.result is None:
            raise StateError(f"HPA {subject.hpa.id}: an evaluation gave neither a result nor a write")
        return Limited(None, refused(evaluation.result), constraints)
    if mode.shown:
        return Limited(None, refused(without_write(pending, before, history)), constraints)
    # The status of a write that succeeds. In shadow mode nothing is written, and the record shows what upstream would
    # have made of its own write. In enforce mode `end_write` decides what the write ends as, and the record of a wanted
    # write holds no status; this one says whether the record of its end will be small enough.
    if mode.mode != "enforce":
        return Limited(None, complete(pending, before, history, ScaleApplied(), now_ms, rules=rules), constraints)
    limits, by = subject.state.attached.limits, decided.replaced_by
    left = limited(limits, lambda each: each.inputs(subject, observed), evaluation, pending, by)
    constraints += left.constraints
    if left.held:
        return Limited(None, without_write(pending, before, history), constraints, left.held, left.step)
    result = complete(left.pending, before, history, ScaleApplied(), now_ms, rules=rules)
    return Limited(left.pending, result, constraints, "", left.step)
