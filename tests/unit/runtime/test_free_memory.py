"""Free memory of the C heap goes back to the operating system, now and then."""

import platform

from runtime.process import GIVEN_BACK_EVERY_S, HEAP_TRIM, FreeMemory


def test_memory_is_given_back_at_once_and_then_every_15_s() -> None:
    given: list[float] = []
    now = [100.0]

    def trim(kept_bytes: int) -> int:
        given.append(now[0])
        return kept_bytes

    memory = FreeMemory(trim, lambda: now[0])
    for now[0] in (100.0, 100.0 + GIVEN_BACK_EVERY_S - 0.1, 100.0 + GIVEN_BACK_EVERY_S, 101.0 + GIVEN_BACK_EVERY_S):
        memory.give_back()
    assert given == [100.0, 100.0 + GIVEN_BACK_EVERY_S]


def test_nothing_is_given_back_where_the_c_library_cannot() -> None:
    FreeMemory(None).give_back()


def test_the_c_library_of_this_machine_is_asked() -> None:
    assert (HEAP_TRIM is not None) == (platform.libc_ver()[0] == "glibc")
    FreeMemory().give_back()
