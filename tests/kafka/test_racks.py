"""`client.rack`: a reader fetches from the replica beside it, on two brokers in two racks."""

import asyncio
from dataclasses import replace
from pathlib import Path

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from runtime.kafkaclients import aiokafka_kwargs, reader, running_producer
from schemas.connection import KafkaSettings
from tests.kafka.broker import KafkaBroker
from tests.patience import PATIENCE_S

SELECTOR = "replica.selector.class=org.apache.kafka.common.replica.RackAwareReplicaSelector\n"
SECOND = """process.roles=broker
node.id=2
controller.quorum.voters=1@127.0.0.1:{first}
listeners=PLAINTEXT://127.0.0.1:{{port}}
"""
PARTITION = TopicPartition("racks", 0)


async def test_a_reader_fetches_from_the_replica_of_its_rack(tmp_path: Path) -> None:
    with KafkaBroker(tmp_path / "a", extra=f"{SELECTOR}broker.rack=a\n") as first:
        extra = f"{SELECTOR}broker.rack=b\n{SECOND.format(first=first.ports['controller'])}"
        with KafkaBroker(tmp_path / "b", extra=extra):
            settings = KafkaSettings(bootstrap_servers=first.bootstrap)
            await make_topic(settings)
            async with running_producer(settings) as producer:
                for number in range(5):
                    await producer.send_and_wait(PARTITION.topic, f"{number}".encode(), partition=0)
            assert await fetched_from(replace(settings, client_rack="b")) == 2
            assert await fetched_from(replace(settings, client_rack="a")) == 1
            assert await fetched_from(settings) == 1


async def make_topic(settings: KafkaSettings) -> None:
    """A partition led by the first broker, with a replica at the second, once that one has joined."""
    admin = AIOKafkaAdminClient(**aiokafka_kwargs(settings))
    await admin.start()
    try:
        async with asyncio.timeout(PATIENCE_S):
            while len((await admin.describe_cluster())["brokers"]) < 2:
                await asyncio.sleep(0.2)
            await admin.create_topics([NewTopic(PARTITION.topic, -1, -1, replica_assignments={0: [1, 2]})])
    finally:
        await admin.close()


async def fetched_from(settings: KafkaSettings) -> int:
    """Read all records, again until the leader has named a replica where the rack asks for another; that broker."""
    async with reader(settings, [PARTITION]) as consumer, asyncio.timeout(PATIENCE_S):
        while True:
            await consumer.seek_to_beginning(PARTITION)
            records: list[ConsumerRecord] = []
            while len(records) < 5:
                records += (await consumer.getmany(PARTITION, timeout_ms=500)).get(PARTITION, [])
            assert [record.value for record in records] == [b"0", b"1", b"2", b"3", b"4"]
            if (broker := preferred(consumer)) != 1 or settings.client_rack != "b":
                return broker


def preferred(consumer: AIOKafkaConsumer) -> int:
    """The broker that the next fetch goes to: the leader, unless it has named another."""
    named = consumer._fetcher._preferred_read_replica.get(PARTITION)
    return 1 if named is None else int(named[0])
