"""What a limit is: it reads a few values, and blocks a wanted write, cuts it, or leaves it as it is."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

from msgspec import structs

from schemas.decisions import Step
from schemas.kubernetes.shape import JsonView
from streams.hpa.evaluation import Evaluation, Pending
from streams.state.inputs import NamedInputs
from streams.state.subject import Observed, Subject


class LimitedWrite(NamedTuple):
    """What the limits asked so far leave of a wanted write.

    `evaluation`: the one that wants it. `constraints`: the limits that blocked or cut it. `held`: why nothing is
    written, by the first that blocked it; empty: something is. `step`: the step of the decision that explains it.
    `replaced_by`: what has taken the place of the metrics; empty: nothing has.
    """

    pending: Pending
    evaluation: Evaluation
    constraints: tuple[str, ...] = ()
    held: str = ""
    step: Step | None = None
    replaced_by: str = ""

    @property
    def change(self) -> int:
        """Replicas that it adds; below 0: that it removes."""
        return self.pending.desired_replicas - self.pending.current_replicas

    @property
    def is_up(self) -> bool:
        return self.change > 0

    def blocked(self, name: str, why: str, step: Step | None = None) -> "LimitedWrite":
        """Return it with one more limit that blocks it; the reason of the first stays.

        `why`: the decision's `paused`, a sentence without its end that names the setting, annotation or state that
        blocks it: `cluster east is frozen`, `no scale-down while queue_depth is above 0: it is 5`. Until when belongs
        into the step (`until`); what happens then, into the `Constraint`.
        """
        return self._replace(constraints=(*self.constraints, name), held=self.held or why, step=step or self.step)

    def cut_to(self, most: int) -> Pending:
        """Return the write that changes no more than `most` replicas."""
        pending = self.pending
        desired = pending.current_replicas + (most if self.is_up else -most)
        return structs.replace(pending, desired_replicas=desired, to_zero=pending.to_zero and desired == 0)

    def cut(self, name: str, most: int, why: str, step: Step | None = None) -> "LimitedWrite":
        """Return it cut to `most` replicas; where none is left it is blocked, for the reason `why`. Of one that is
        blocked already there is nothing to cut.
        """
        if self.held:
            return self
        cut = self._replace(pending=self.cut_to(most), constraints=(*self.constraints, name), step=step or self.step)
        return cut if most else cut._replace(held=why)


class WriteLimit(ABC):
    """One of fleethpa's own limits on a write of `/scale`.

    It is a pure function of what `inputs` gives, which replays keep, and it has no state beside the rows that it is
    given.
    """

    name: ClassVar[str] = ""
    """As in `schemas.constraints`."""
    settings: ClassVar[tuple[str, ...]] = ()
    """The fields of `ClusterSettings` that set it; empty: no setting of a cluster does."""
    reads_others: ClassVar[bool] = False
    """What it leaves depends on other HPAs, too."""

    @abstractmethod
    def inputs(self, subject: Subject, observed: Observed) -> Any:
        """Return what it reads of an HPA at this record, as a value that can be hashed (a backtest keeps equal ones
        once); None: it does not bound the HPA now.

        The HPA's row is still as the evaluation before left it: a change of the scale that this one is the first to see
        is in `observed.moves` alone. What depends on the metrics is read in `apply`, of the evaluation: counterfactuals
        and backtests change that, and use the recorded inputs again.
        """

    @abstractmethod
    def apply(self, inputs: Any, write: LimitedWrite) -> LimitedWrite:
        """Return what it leaves of a wanted write."""

    def stops(self, inputs: Any) -> str:
        """Return what is not written as long as this lasts, whatever the metrics ask for, as a sentence; empty: that
        depends on what they ask for.
        """
        return ""


class AnnotatedLimit(WriteLimit):
    """A limit that an annotation of the HPA sets. By `annotation` all else follows: rows keep it, the hub's API takes
    it, a hand-over copies it, `lint` and `apply` refuse what `refuses` names, and `limits test` tries it.
    """

    annotation: ClassVar[str] = ""

    @abstractmethod
    def refuses(self, text: str, spec: JsonView | None) -> str:
        """Return what is wrong with the annotation's text beside this spec (None: with its form alone), and what to
        write instead; empty: nothing is.
        """

    @abstractmethod
    def stated(self, text: str) -> Any:
        """Return what it reads of an HPA with this text, whether that can be read or not."""

    def inputs(self, subject: Subject, observed: Observed) -> Any:
        text = subject.hpa.row.annotations.get(self.annotation)
        return None if text is None else self.stated(text)


def limited(
    limits: Sequence[WriteLimit],
    given: Callable[[WriteLimit], Any],
    evaluation: Evaluation,
    pending: Pending,
    replaced_by: str,
) -> LimitedWrite:
    """Ask the limits about a wanted write, each about what the one before has left.

    `given`: what a limit reads; None: it does not bound the write. `replaced_by`: what has taken the place of the
    metrics; empty: nothing has.
    """
    write = LimitedWrite(pending, evaluation, replaced_by=replaced_by)
    for limit in limits:
        if (inputs := given(limit)) is not None:
            write = limit.apply(inputs, write)
    return write


def limits_now(subject: Subject, observed: Observed) -> NamedInputs:
    """Return what all limits read of an HPA at this record."""
    limits: tuple[WriteLimit, ...] = subject.state.attached.limits
    given = [(limit.name, limit.inputs(subject, observed)) for limit in limits]
    return NamedInputs(tuple([each for each in given if each[1] is not None]))


def stopped(limits: Sequence[WriteLimit], inputs: NamedInputs) -> list[tuple[str, str]]:
    """Name the limits because of which something is not written now, whatever the metrics ask for, and what."""
    said = [(limit.name, limit.stops(known)) for limit in limits if (known := inputs.of(limit.name)) is not None]
    return [each for each in said if each[1]]


def depends_on_others(limits: Sequence[WriteLimit], inputs: NamedInputs) -> bool:
    """Return whether what the limits leave depends on other HPAs, too."""
    return any(limit.reads_others and inputs.of(limit.name) is not None for limit in limits)
