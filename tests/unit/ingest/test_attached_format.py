"""A format of pushed samples is attached by one file and its line in a table: here from outside of the package."""

from collections.abc import Iterator

import pytest

from fleethpa.cli.ingest import FORMATS
from schemas import topics
from schemas.entries import WHOLE_PARTITION_KEY
from schemas.limits import Refusal
from schemas.observed import AutoscalerList
from schemas.settings import ClusterSettings, SettingsSet
from schemas.topics import Headers
from streams.ingest import convert
from streams.ingest.convert import RECORD, SAMPLE, SAMPLE_FORMATS, SampleFormat
from streams.ingest.mapping import Mapping, Resolver, Rule
from streams.ingest.otlp import SourceSeries
from streams.ingest.pieces import Conversion, RawRecord, header
from streams.ingest.preflight import check_record, example
from tests.kit.cli import SETTINGS, Cli, Fleet, hpa

TARGET = {"type": "AverageValue", "averageValue": "100"}
METRIC = {"name": "queue_depth", "selector": {}}
OF_QUEUE = {"type": "External", "external": {"metric": METRIC, "target": TARGET}}
MAPPING = Mapping(rules=[Rule(match="queue_depth", type="External")])


def is_toy(value: bytes, headers: Headers) -> bool:
    return header(headers, "content-type") == "text/x-toy" or value.startswith(b"#toy\n")


def series(value: bytes) -> Iterator[SourceSeries | Refusal]:
    """One value in each line: `cluster namespace metric time value`."""
    for line in value.decode().splitlines():
        if line == "#toy":
            continue
        cells = line.split()
        if len(cells) != 5:
            yield Refusal("malformed", f"{line!r} is not five words")
            continue
        cluster, namespace, name, time_ms, text = cells
        whose = {"k8s.cluster.name": cluster, "k8s.namespace.name": namespace}
        yield SourceSeries(name=name, attributes={}, value=text, time_ms=int(time_ms), resource=whose)


def message(now_ms: int, depth: int = 610) -> bytes:
    return f"#toy\neast shop queue_depth {now_ms} {depth}\n".encode()


def read(value: bytes, headers: Headers = ()) -> Conversion:
    return convert.convert(RawRecord(topics.SAMPLES, 0, 7, 1_000, value, headers), Resolver(MAPPING))


TOY_TEXT = SampleFormat(name="toy", words="lines of the toy", series=series, example=message, matches=is_toy)
TOY_JSON = SampleFormat(
    name="toy_json",
    words="JSON of the toy",
    series=lambda document: series("\n".join(document["lines"]).encode()),
    example=lambda now_ms: b'{"lines":["east shop queue_depth %d 610"]}' % now_ms,
    key="lines",
)


@pytest.fixture
def attached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convert, "SAMPLE_FORMATS", (*SAMPLE_FORMATS, TOY_TEXT, TOY_JSON))


@pytest.mark.usefixtures("attached")
@pytest.mark.parametrize("format_", [pytest.param("toy", id="of bytes"), pytest.param("toy_json", id="of JSON by key")])
def test_an_hpa_is_decided_by_samples_of_a_format_that_is_attached(
    monkeypatch: pytest.MonkeyPatch, format_: str
) -> None:
    fleet = Fleet()
    by_samples = SettingsSet(cluster="east", settings=ClusterSettings(sources={"External": "samples"}))
    fleet.append(SettingsSet(cluster="*", settings=SETTINGS), by_samples, key=WHOLE_PARTITION_KEY)
    fleet.append(AutoscalerList(list_id="a", hpas=[hpa(metrics=[OF_QUEUE])], session="s"))
    fleet.observe(3, 300)
    converted = read(example(format_, fleet.now_ms))
    assert (converted.format, converted.result, converted.points) == (format_, "ok", 1)
    fleet.append(*[piece.body for piece in converted.pieces])
    for _ in range(2):
        fleet.now_ms += 15_000
        fleet.observe(3, 300)
    explained = Cli(monkeypatch, fleet)("explain", "east/shop/checkout").stdout
    metric = next(line for line in explained.splitlines() if line.startswith("queue_depth"))
    assert metric.split()[1] == "7"
    assert metric.endswith("◀ winner")
    assert fleet.decisions()[-1].decision.final_desired_replicas == 6


@pytest.mark.usefixtures("attached")
def test_what_it_cannot_read_of_a_message_is_rejected_with_the_reason_and_the_rest_is_read() -> None:
    read_in_part = read(b"east shop queue_depth 1000 5\neast shop\n", [("content-type", b"text/x-toy")])
    assert (read_in_part.format, read_in_part.result, read_in_part.points) == ("toy", "partial", 1)
    assert read_in_part.reason() == "'east shop' is not five words"
    checked = check_record(message(1_000), mapping=MAPPING)
    assert (checked.format, checked.metrics) == ("toy", {"External queue_depth": 1})


@pytest.mark.usefixtures("attached")
def test_an_error_about_an_unknown_format_names_it() -> None:
    assert "or lines of the toy or JSON of the toy or fleethpa JSON" in read(b"?").reason()


def test_without_its_line_a_message_of_it_is_of_no_known_format() -> None:
    found = read(message(1_000))
    assert (found.code, found.pieces) == ("unknownFormat", [])
    assert "toy" not in found.reason().partition("expected")[2]


def test_the_command_line_names_every_format() -> None:
    assert set(FORMATS) == {SAMPLE, RECORD, *(each.name for each in SAMPLE_FORMATS)}
