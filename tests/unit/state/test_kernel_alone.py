"""The kernel needs nothing of what is attached to it: alone, it decides an HPA of one cluster as it does with all."""

import pytest

from schemas.entries import KINDS
from streams.attachments import HANDLERS
from streams.partition import Partition
from streams.state import partition
from streams.state.attached import Attached
from streams.state.fold import handlers
from tests.kit.brakes import World, whole

_OWN = [each for each in KINDS if each.handler not in HANDLERS]


class Alone(partition.PartitionKernel):
    """The kernel with nothing attached: it folds its own entries, and knows no limit and no replacement."""

    @classmethod
    def attached(cls) -> Attached:
        return Attached(
            in_namespace=handlers(_OWN, {}, in_namespace=True), of_partition=handlers(_OWN, {}, in_namespace=False)
        )


def decided_alone(world: World) -> tuple[list[bytes], Alone]:
    """What the kernel alone decides by the same records, restored from its rows in the middle."""
    alone, made, rows = Alone.empty(0), list[bytes](), dict[bytes, bytes]()
    for at, record in enumerate(world.log.records):
        made += [each.value for each in alone.apply(*record)]
        if at == len(world.log.records) // 2:
            rows |= dict(alone.checkpoint())
            alone = Alone.restore(0, rows)
    return made, alone


def test_alone_it_decides_the_same_bytes_where_no_limit_is_set() -> None:
    world = World("web", "api")
    for milli in (50, 100, 180, 20, 20):
        world.period(milli)
    made, alone = decided_alone(world)
    assert made == [each.value for each in world.log.decisions]
    assert len(whole(world.log)) > 10
    assert alone.attached().limits == ()


def test_what_is_not_attached_does_not_limit() -> None:
    world = World("web", max_step=2)
    world.period(100)
    assert any("MaxStep" in each.constraints_applied for each in whole(world.log))
    assert not any(b"MaxStep" in each for each in decided_alone(world)[0])


def test_without_a_word_about_what_is_attached_there_is_no_partition() -> None:
    with pytest.raises(NotImplementedError, match=r"streams\.partition\.Partition has everything attached"):
        partition.PartitionKernel.empty(0)
    assert Partition.empty(0).attached().limits
