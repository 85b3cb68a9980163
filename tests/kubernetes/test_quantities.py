"""Quantities beside upstream's own code, on texts that nobody chose: the package is compiled from its Go module.

`SEED=n COUNT=n` in the environment try others. A new version of Kubernetes is one more line of `VERSIONS`.
"""

import json
import math
import os
import random
import re
import shutil
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest

from schemas.kubernetes.quantity import Quantity, QuantityError, parse_quantity

VERSIONS = {"v0.37.1": False, "v0.38.0-beta.0": True}
"""k8s.io/apimachinery → whether its quantities saturate."""
PACKAGE = "pkg/api/resource"
FILES = ("amount.go", "math.go", "quantity.go", "scale_int.go", "suffix.go")
DRIVER = Path(__file__).parent / "quantities"
SUFFIXES = (
    *("", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "q", "K", "e", "Ki3"),
    *("e3", "E5", "e-3", "e-9", "e-12", "e18", "e20", "e25", "e40", "e100", "e-40", "e0", "E+2", "e310", "e-330"),
)
EDGES = (2**63, 2**62, 2**31, 2**63 // 1000, 10**18, 10**19, 10**29, 10**30, 10**18 - 1, 1024**5, 1024**6)


def compiled(version: str, folder: Path) -> Path:
    """Return the driver, built with upstream's package of this version, without what encodes it for the wire."""
    asked = ["go", "mod", "download", "-json", f"k8s.io/apimachinery@{version}"]
    environ = os.environ | {"GOTOOLCHAIN": "local"}  # the package needs no newer Go than is here, its module may
    found = json.loads(subprocess.run(asked, cwd=folder, env=environ, stdout=subprocess.PIPE, check=False).stdout)
    target = shutil.copytree(DRIVER, folder / "driver")
    (target / "resource").mkdir()
    with zipfile.ZipFile(found["Zip"]) as module:
        for name in FILES:
            source = module.read(f"k8s.io/apimachinery@{version}/{PACKAGE}/{name}").decode()
            source = re.sub(r'\n\s*\w*\s*"k8s\.io/[^"]+"', "", source)
            source = re.sub(r"func \([^)]*\) (Unm|M)arshalCBOR\(.*?\n}\n", "", source, flags=re.DOTALL)
            (target / "resource" / name).write_text(source)
    subprocess.run(["go", "build", "-o", "driver", "."], cwd=target, env=environ, check=True)
    return target / "driver"


def number(chance: random.Random) -> str:
    """Return a text that is a quantity, mostly: long and short, with a fraction, at the edges of 64 bits."""

    def digits(count: int) -> str:
        return "".join(chance.choices("0123456789", k=count))

    count, places = chance.choice((0, 1, 2, 5, 9, 15, 17, 18, 19, 20, 28, 29, 30, 40, 69, 70, 71)), 0
    whole = chance.choice(
        (digits(count), digits(1) + "0" * count, "9" * count, "00" + digits(count), str(chance.choice(EDGES) - 1))
    )
    if chance.random() < 0.6:
        places = chance.choice((1, 3, 6, 9, 10, 12, 18, 19, 29, 60))
    fraction = chance.choice((digits(places), "0" * places, "9" * places, "1".rjust(places, "0"))) if places else ""
    return chance.choice(("", "", "-", "+")) + whole + ("." if fraction else "") + fraction + chance.choice(SUFFIXES)


def shown(quantity: Quantity) -> dict[str, Any]:
    return {
        "string": str(quantity),
        "canonical": quantity.canonical(),
        "format": quantity.format,
        "milli": str(quantity.milli_value()),
        "value": str(quantity.value()),
        "sign": quantity.sign(),
        "float": quantity.as_float(),
    }


def ours(first: str, second: str, saturating: bool) -> dict[str, Any]:
    try:
        parsed = parse_quantity(first, saturating=saturating)
    except QuantityError as error:
        return {"error": str(error)}
    answer: dict[str, Any] = {"first": shown(parsed)}
    try:
        other = parse_quantity(second, saturating=saturating)
    except QuantityError:
        return answer
    return answer | {"cmp": parsed.cmp(other), "sum": shown(parsed.add(other))}


def with_doubles(answer: dict[str, Any]) -> dict[str, Any]:
    """Return upstream's answer with its texts of doubles as doubles; NaN, which equals nothing, as None."""
    for part in answer.values():
        if isinstance(part, dict):
            double = float(part["float"])
            part["float"] = None if math.isnan(double) else double
    return answer


@pytest.mark.skipif(shutil.which("go") is None, reason="no `go` on this machine, which compiles upstream's package")
@pytest.mark.parametrize("version", VERSIONS)
def test_quantities_are_those_of_the_compiled_package(version: str, tmp_path: Path) -> None:
    chance = random.Random(int(os.environ.get("SEED", "1")))
    pairs = [(number(chance), number(chance)) for _ in range(int(os.environ.get("COUNT", "20000")))]
    done = subprocess.run(
        [compiled(version, tmp_path)],
        input="\n".join(map(json.dumps, pairs)),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )

    differ = []
    for pair, line in zip(pairs, done.stdout.splitlines(), strict=True):
        upstream = with_doubles(json.loads(line))
        answer = ours(*pair, VERSIONS[version])
        for part in answer.values():
            if isinstance(part, dict) and math.isnan(part["float"]):
                part["float"] = None
        if answer != upstream:
            differ.append((pair, upstream, answer))
    assert differ[:3] == []
