"""Cases for the controller of an older version of Kubernetes."""

import orjson

from schemas.kubernetes.shape import Json
from streams.hpa.rules import minor_of
from tests.upstream.recordedcases import recorded


def recorded_of(version: str) -> dict[str, list[Json]]:
    """Return the recorded cases that this version answered, by the name of their file."""
    names = (f"versions/{version}-controller", f"versions/{version}-calculator", "versions/mini")
    return {name: [case for case in recorded([name]) if case["version"] == version] for name in names}


def as_of(version: str, case: Json) -> Json:
    """Return a case of the newest version as one of an older version.

    Before 1.33 there is one tolerance for both directions. What docs/known-differences.md says of older versions is
    left out: a blank selector, which the overlap check does not take for a new one, and before 1.29 a percent sign,
    which is read as a format verb in an error text (`%!D(MISSING)`).
    """
    minor = minor_of(version)
    text = orjson.dumps(case | {"version": version}).replace(b'"selector":" "', b'"selector":"app"')
    made: Json = orjson.loads(text.replace(b"%", b"") if minor < 29 else text)
    if minor < 33 and "toleranceUp" in made:
        made["toleranceDown"] = made["toleranceUp"]
    return made
