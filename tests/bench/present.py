"""What it costs to read the present: `fleethpa get hpa -A` as a process, on the embedded broker.

The topics hold state rows, log and decisions of a while: the embedded broker keeps some 5 MB of each partition, which
is a past of an hour for 100 HPAs. The log continues for half a checkpoint's time after the newest one, as it does on
average. CPU time of the whole process counts, its start included.
"""

import os
import resource
import subprocess
import sys
from collections.abc import Iterator

from fleethpa.lab.simulator.broker import EmbeddedBroker
from schemas import topics
from schemas.connection import KafkaSettings
from schemas.topics import EMBEDDED_PARTITIONS as PARTITIONS
from streams.partition import Partition
from tests.kit.archive import ENFORCING, as_record
from tests.kit.generated_log import Fleet, generate
from tests.kit.questions import TopicRecord, produce

Line = tuple[str, float, str]
RUNS = 5
NOTHING = Fleet(hpas=100, namespaces=10, minutes=0.625, partitions=PARTITIONS, settings=ENFORCING)
HOUR = Fleet(hpas=100, namespaces=10, minutes=60.125, partitions=PARTITIONS, settings=ENFORCING)
LARGE = Fleet(hpas=5_000, namespaces=250, minutes=1.125, partitions=PARTITIONS, settings=ENFORCING)


def present() -> Iterator[Line]:
    """Print the start-up, and the reading of a young fleet, of one with a past, and of a large one."""
    yield "fleethpa version, CPU", _cpu_ms("version"), "ms"
    for what, fleet in (("100 HPAs, begun", NOTHING), ("100 HPAs, an hour old", HOUR), ("5,000 HPAs", LARGE)):
        with EmbeddedBroker() as broker:
            broker.ensure_topics([topics.LOG, topics.DECISIONS, topics.CHANGELOG])
            produce(KafkaSettings(bootstrap_servers=broker.bootstrap), list(_records(fleet)))
            for verb in (("get", "hpa", "-A"), ("get", "hpa", "-A", "-o", "wide"), ("history", "c0/ns0/nosuch")):
                cost = _cpu_ms(*verb, "--brokers", broker.bootstrap)
                yield f"fleethpa {' '.join(verb)}, {what}, CPU", cost, "ms"


def _records(fleet: Fleet) -> Iterator[TopicRecord]:
    folds = {number: Partition.empty(number) for number in range(fleet.partitions)}
    decided = dict.fromkeys(folds, 0)
    for number, offset, time_ms, value in generate(fleet):
        yield TopicRecord(topics.LOG, number, time_ms, None, value)
        for decision in folds[number].apply(offset, time_ms, value):
            made = as_record(decided[number], time_ms, decision)
            yield TopicRecord(topics.DECISIONS, number, time_ms, made.key, made.value, made.headers)
            decided[number] += 1
        if folds[number].due_checkpoint:
            yield from (TopicRecord(topics.CHANGELOG, number, time_ms, *row) for row in folds[number].checkpoint())


def _cpu_ms(*arguments: str) -> float:
    """The least CPU time of some runs."""
    environment = os.environ | {"FLEETHPA_RUNTIME_DIR": os.devnull, "FLEETHPA_CONFIG": ""}
    found = []
    for _ in range(RUNS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, "-m", "fleethpa", *arguments], env=environment, capture_output=True, check=False
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        found.append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
    return 1_000 * min(found)
