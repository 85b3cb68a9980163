"""Another spec on the recorded past: the manifest that a browser gives, checked, as a `fleethpa backtest`."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, Final

from fleethpa.cli.common.durations import parse_duration_ms
from fleethpa.cli.common.failures import CommandError, usage
from fleethpa.cli.common.manifestfiles import check_hpa, read_input
from fleethpa.cli.common.revisionlog import manifest_of
from fleethpa.cli.output.formats import to_yaml
from schemas.keys import HpaId

MODELS: Final = ("closed", "open")
QUESTIONS: Final = ("backtest", "tune", "regret")
"""The commands that a browser can start about an HPA's past, the first one the usual."""


def candidate_text(hpa: HpaId, spec: dict[str, Any]) -> str:
    """The recorded spec as a manifest to edit."""
    return to_yaml(manifest_of(hpa, spec))


def trial(hpa: HpaId, text: str, since: str, model: str, question: str = QUESTIONS[0]) -> list[str]:
    """The words of the command that answers a question: the backtest that tries a manifest, in them `hpa.yaml` for the
    manifest; the search for a better spec; what the decisions cost.

    Raises:
        CommandError: the manifest is not one valid HPA of this name, or the window, model or question is not valid.
    """
    if question not in QUESTIONS:
        raise usage(f"there is no question {question!r}", cause=f"The questions are {', '.join(QUESTIONS)}.")
    if question != QUESTIONS[0]:
        parse_duration_ms(since, "since")
        return [question, str(hpa), f"--since={since}"]
    if model not in MODELS:
        raise usage(f"there is no model {model!r}", cause=f"The models are {', '.join(MODELS)}.")
    parse_duration_ms(since, "since")
    _check(hpa, text)
    return ["backtest", "-f", "hpa.yaml", "-C", hpa.cluster, f"--since={since}", f"--model={model}"]


def _check(hpa: HpaId, text: str) -> None:
    with tempfile.TemporaryDirectory(prefix="fleethpa-page-") as folder:
        path = Path(folder) / "hpa.yaml"
        path.write_text(text, encoding="utf-8")
        try:
            read = read_input((str(path),), "strict")
        except CommandError as error:
            raise usage(error.what.replace(str(path), "the manifest"), cause=error.cause) from error
    found = [check_hpa(manifest, hpa.namespace) for manifest in read.hpas]
    if len(found) != 1:
        raise usage(f"the manifest holds {len(found)} HPAs", cause="One is tried at a time.")
    body, errors = found[0]
    if errors:
        raise usage("the HPA is invalid", cause="\n".join(errors))
    named = (body["metadata"].get("namespace"), body["metadata"].get("name"))
    if named != (hpa.namespace, hpa.name):
        raise usage(f"the manifest is of {'/'.join(map(str, named))}", cause=f"It is tried on the past of {hpa}.")
