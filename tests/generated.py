"""Every page and schema that is made from the code, in one go: `make generated`."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from tests import clireference, limitsreference, lintreference, metricsreference, publishedschemas
from tests.conformance import test_rules_reached as rulesreached

ROOT: Final = Path(__file__).parents[1]
DOCS: Final = ROOT / "docs"
MADE: Final[Mapping[Path, Callable[[], str | bytes]]] = {
    DOCS / "limits.md": limitsreference.page,
    DOCS / "reference" / "cli.md": clireference.reference,
    DOCS / "reference" / "lint.md": lintreference.page,
    DOCS / "reference" / "metrics.md": metricsreference.page,
    rulesreached.PAGE: rulesreached.page,
    publishedschemas.REFERENCE: publishedschemas.reference,
    **{
        publishedschemas.FOLDER / f"{name}.json": partial(publishedschemas.schema, name)
        for name in publishedschemas.PUBLISHED
    },
}
"""File → what makes its text. All of them are made before one is written, so that a fault leaves them as they are."""


def write(making: Mapping[Path, Callable[[], str | bytes]] = MADE) -> list[Path]:
    """Write the files that do not hold what they should, and return them."""
    made = {path: _encoded(make()) for path, make in making.items()}
    stale = [path for path, content in made.items() if not path.exists() or path.read_bytes() != content]
    for path in stale:
        path.write_bytes(made[path])
    return stale


def _encoded(made: str | bytes) -> bytes:
    return made if isinstance(made, bytes) else made.encode()


if __name__ == "__main__":
    for written in write():
        print(written.relative_to(ROOT))
