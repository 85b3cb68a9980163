"""What `settings` remarks on rules and gates that are accepted, but do less than their words."""

import pytest

from fleethpa.changes.settings import parse_changes, remarks
from fleethpa.frame.errors import CommandError


@pytest.mark.parametrize(
    ("changes", "texts"),
    [
        pytest.param(("rules=1.33",), [], id="a known version"),
        pytest.param(("gates=HPAScaleToZero=true",), [], id="gates of whatever version the cluster has"),
        pytest.param(("rules=default",), [], id="the cluster's own version"),
        pytest.param(("rules=1.38",), ["Kubernetes 1.38 is not released"], id="not released"),
        pytest.param(
            ("rules=1.45",), ["it decides as 1.38, the newest known version"], id="newer than every known one"
        ),
        pytest.param(
            ("rules=1.37", "gates=HPAConfigurableTolerance=false"),
            ["gates=HPAConfigurableTolerance=false has no effect: "],
            id="a locked gate",
        ),
        pytest.param(
            ("rules=1.36", "gates=HPAGeneration=true,HPAScaleToZero=true"),
            ["gates=HPAGeneration=true has no effect: Kubernetes 1.36 has no feature gate"],
            id="a gate that comes later",
        ),
        pytest.param(
            ("rules=1.38", "tolerance=10"), ["is not released", "10% is 0.1"], id="beside another likely mistake"
        ),
    ],
)
def test_rules_that_do_less_than_their_words_are_remarked_on(changes: tuple[str, ...], texts: list[str]) -> None:
    found = remarks(parse_changes(changes))

    assert len(found) == len(texts)
    assert all(text in each for text, each in zip(texts, found, strict=True)), found


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        pytest.param("rules=1.26", "the oldest known version is 1.27", id="too old"),
        pytest.param("rules=latest", "is no version of Kubernetes; write it as 1.37", id="no version"),
        pytest.param("gates=Nope=true", "write NAME=true or NAME=false of", id="no gate"),
        pytest.param("gates=HPAScaleToZero", "write NAME=true or NAME=false of", id="no value"),
    ],
)
def test_rules_that_cannot_be_are_refused_with_the_reason(change: str, cause: str) -> None:
    with pytest.raises(CommandError) as refused:
        parse_changes((change,))

    assert cause in refused.value.cause
