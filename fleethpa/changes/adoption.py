"""The steps by which a cluster's own HPAs become central ones, for `fleethpa adopt`.

Up to 20 HPAs at a time take these steps. In brackets: who scales if the run is killed after the step.

1. *Save* the native HPA to a file. (The native controller.)
2. *Start* the central HPA and wait for it in the log. It is refused while the native one exists. (The native one.)
3. *Delete* that very native object. (The central HPA, as soon as an observer has seen the deletion.)
4. *Report* the deletion to the log. (The central HPA.)

Two controllers never scale the same target; between steps 3 and 4 neither does. The next run continues where one ended,
and reports native HPAs that are gone from the cluster but not from the log. No step changes the replicas: the central
HPA continues with the recommendations that fleethpa recorded in shadow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from fleethpa.changes.foresight import Foresight, Present, concerns, refusal_errors
from fleethpa.changes.handover import HandOver, Plan, about
from fleethpa.changes.records import PlannedRecord
from fleethpa.changes.writing import Concern
from fleethpa.fleet.troubles import run_reconciler
from fleethpa.fleet.views import FleetState
from fleethpa.frame.errors import OK, usage
from fleethpa.show.formats import to_yaml
from schemas.keys import HpaId
from schemas.kubernetes.hpa import semantically_equal_spec
from schemas.kubernetes.shape import Json
from schemas.observed import ABSENT, AutoscalerSet, Mode
from streams.analysis.revisions import differences

DROPPED = ("uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink", "ownerReferences")
"""Metadata of the native object that the central one does not take over."""
SERIES_GO_SILENT: Final = (
    "the series kube_horizontalpodautoscaler_* of kube-state-metrics go silent with that: dashboards and alerts that "
    "ask for them need fleethpa_hpa_* of the hub, or the rules of compose/prometheus-kube-state-metrics.yaml, which "
    "record these under the old names"
)


# --- planning ---------------------------------------------------------------------------------------------------------


def look_ahead(adoption: AdoptionSteps, plan: Plan[Json], present: Present) -> None:
    """Leave out what would be refused, and note what the user must agree to."""

    def foresee() -> tuple[Foresight, list[PlannedRecord]]:
        started = [adoption.start(hpa, native) for hpa, native in plan.moved.items()]
        deleted = [adoption.deletion(hpa, uid_of(native)) for hpa, native in plan.moved.items()]
        return present.foresee([*started, *deleted]), started

    foresight, started = foresee()
    refused = foresight.refusals(foresight.touched(started))
    plan.problems += refusal_errors(refused, "cannot be adopted to enforce")
    for hpa in refused:
        del plan.moved[hpa]
    if refused:
        foresight, started = foresee()
    if plan.moved:
        plan.concerns.append(Concern(f"adopt deletes {_named(plan.moved)} in {adoption.place.cluster}"))
        plan.concerns.append(Concern(SERIES_GO_SILENT))
        plan.concerns += adoption.unserved()
    plan.concerns += [Concern(text) for text in _replaced(adoption.state, plan.moved)]
    plan.concerns += concerns("adopt", foresight, started)


def _named(adopted: Iterable[HpaId]) -> str:
    names = [f"{hpa.namespace}/{hpa.name}" for hpa in adopted]
    return f"the native HPA {names[0]}" if len(names) == 1 else f"{len(names)} native HPAs"


def _replaced(state: FleetState, adopted: Mapping[HpaId, Json]) -> list[str]:
    """Return which central HPAs have a spec of their own that the native one's replaces."""
    texts = []
    for hpa, native in adopted.items():
        view = state.hpas.get(hpa)
        if view is not None and view.origin == "central" and not semantically_equal_spec(view.spec, native["spec"]):
            texts.append(
                f"the central HPA {hpa} gets the native spec: {'; '.join(differences(view.spec, native['spec']))}"
            )
    return texts


# --- doing ------------------------------------------------------------------------------------------------------------


class AdoptionSteps(HandOver[Json]):
    """The steps of the module's docstring. What moves are native objects."""

    verb, because = "adopt", "adopted from the cluster"

    def __init__(
        self, *common: Any, folder: Path, mode: Mode, starts: Mapping[HpaId, PlannedRecord] | None = None
    ) -> None:
        """`starts`: the records that begin the central HPAs, if they are not made of the native ones alone."""
        super().__init__(*common)
        self._folder, self._mode, self._starts = folder, mode, starts

    def described(self, plan: Plan[Json]) -> Iterator[str]:
        for hpa in plan.gone:
            yield f"record that the native HPA {hpa} is gone"
        for hpa in plan.moved:
            yield f"save the native HPA to {_file(self._folder, hpa)}"
            yield f"start the central HPA {hpa} in mode {self._mode}"
            yield f"delete the native HPA {hpa.namespace}/{hpa.name} in cluster {hpa.cluster}"

    async def move(self, group: Mapping[HpaId, Json]) -> int:
        for hpa, native in group.items():
            _save(_file(self._folder, hpa), native)
            self.session.out(f"native HPA saved to {_file(self._folder, hpa)}")
        if (code := await self.record([self.start(hpa, native) for hpa, native in group.items()])) != OK:
            what = f"the native HPA {next(iter(group))} was" if len(group) == 1 else "the native HPAs were"
            self.session.warn(f"{what} not deleted; run adopt again")
            return code
        deleted: dict[HpaId, str] = {}
        try:
            for hpa, native in group.items():
                await self.delete(hpa, uid_of(native))
                deleted[hpa] = uid_of(native)
        finally:
            code = await self.report_gone(deleted)
        return code

    def unserved(self) -> Iterator[Concern]:
        """That no reconciler would write what is decided for what is adopted."""
        name = self.place.cluster
        cluster = self.state.clusters.get(name)
        if self._mode == "enforce" and (cluster is None or cluster.served is None):
            what = f"no reconciler has ever served cluster {name}: nothing scales there until one does"
            yield Concern(f"{what}. Next: {run_reconciler(name)}", harmful=True)

    def start(self, hpa: HpaId, native: Json) -> PlannedRecord:
        """The record that begins the central HPA."""
        if self._starts is not None:
            return self._starts[hpa]
        body = AutoscalerSet(
            hpa=exported(native),
            origin="central",
            mode=self._mode,
            author=self.author,
            reason=self.reason,
            changes=ABSENT,
        )
        return about(hpa, f"hpa {hpa} adopted", body)

    def afterwards(self) -> Iterator[str]:
        if self._starts is not None:
            return
        yield f"Next: fleethpa status {self.place.arguments} --watch --timeout 2m"
        yield f"Back: fleethpa release {self.place.arguments}"


def uid_of(native: Json) -> str:
    return str(native["metadata"]["uid"])


def _file(folder: Path, hpa: HpaId) -> Path:
    return folder / f"{hpa.cluster}.{hpa.namespace}.{hpa.name}.yaml"


def _save(file: Path, native: Json) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(to_yaml(exported(native)) + "\n")
    except OSError as error:
        raise usage(f"{file} cannot be written", cause=str(error), next_step="add --export DIR") from error


def exported(native: Json) -> Json:
    """The object without what only the API server gives it."""
    metadata = {name: value for name, value in (native.get("metadata") or {}).items() if name not in DROPPED}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": metadata,
        "spec": native["spec"],
    }
