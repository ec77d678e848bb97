"""A broker at rest gives back what load made it take."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Coroutine
from typing import Any
from weakref import ref

import pytest
from tests.support.broker.fakes import FakeClock

from tidelog.core.buffers import BufferPool
from tidelog.core.limits import MIB
from tidelog.core.ports import Work
from tidelog.runtime.clock import SystemClock
from tidelog.runtime.lanes import ThreadLane
from tidelog.runtime.memory import GROWTH_BYTES, LOOK_MS, MAX_ARENAS, MIN_PAUSE, MemoryAtRest
from tidelog.wire.frames import FIRST_BUFFER_BYTES, FrameReader

GLIBC = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="the allocator of glibc is asked"
)
#: Threads that allocate much at the same time, and keep some of it. Prints how many arenas threads
#: have beside the main one, what the process has then, what after all but 64 small pieces were
#: let go, and what after the heap was trimmed.
PROGRAM = """
import sys, threading
from tidelog.runtime.memory import limit_arenas, resident_bytes, trim_heap

if sys.argv[1] == "limited":
    assert limit_arenas()
kept = []
barrier = threading.Barrier(8)

def allocate():
    barrier.wait()
    for _ in range(8):
        kept.append([bytearray(100_000) for _ in range(8)])
    barrier.wait()

threads = [threading.Thread(target=allocate) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
arenas = 0
for line in open("/proc/self/maps"):
    begin, end = (int(one, 16) for one in line.split()[0].split("-"))
    arenas += begin % (64 << 20) == 0 and len(line.split()) == 5
full = resident_bytes()
kept = [each[:1] for each in kept]
freed = resident_bytes()
trim_heap()
print(arenas, full, freed, resident_bytes())
"""


class World:
    """A process whose memory and load are set by hand."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.bytes = 80 * MIB
        self.used_s = 0.0
        self.calls: list[str] = []
        self.lines: list[str] = []
        self.takes_ms = 0
        self.memory = MemoryAtRest(
            self.clock,
            self.lines.append,
            trim=self._trim,
            resident=lambda: self.bytes,
            processor_s=lambda: self.used_s,
        )
        self.memory.add(lambda: self.calls.append("release"))

    def _trim(self) -> None:
        self.calls.append("trim")
        self.clock.now_ms += self.takes_ms
        self.bytes = 50 * MIB

    async def look(self, load: float = 0.0) -> list[str]:
        """The next look, after so much work; returns what was done."""
        self.calls.clear()
        self.used_s += load * LOOK_MS / 1000
        await self.clock.advance(LOOK_MS)
        return list(self.calls)


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(coroutine)


def test_memory_is_given_back_at_rest_and_once_for_each_load() -> None:
    async def scenario() -> None:
        world = World()
        world.memory.start()
        assert await world.look(load=0.5) == []
        assert await world.look() == ["release", "trim"]
        assert "gave back 30 MiB" in world.lines[0]
        assert "50 MiB are resident" in world.lines[0]
        assert await world.look() == []
        world.bytes += GROWTH_BYTES - 1
        assert await world.look() == [], "a little is not worth it"
        world.bytes += 1
        assert await world.look(load=0.9) == []
        assert await world.look() == ["release", "trim"]

    run(scenario())


def test_growth_counts_from_the_least_that_was_held() -> None:
    async def scenario() -> None:
        world = World()
        world.memory.start()
        await world.look()
        world.bytes = 30 * MIB
        assert await world.look() == []
        world.bytes += GROWTH_BYTES
        assert await world.look() == ["release", "trim"]

    run(scenario())


def test_what_stops_the_loop_for_long_is_done_seldom() -> None:
    async def scenario() -> None:
        world = World()
        world.takes_ms = 100
        world.memory.start()
        assert await world.look() == ["release", "trim"]
        world.bytes += GROWTH_BYTES  # light traffic takes it again at once
        world.calls.clear()
        await world.clock.advance(world.takes_ms * MIN_PAUSE - LOOK_MS)
        assert world.calls == []
        await world.clock.advance(2 * LOOK_MS)
        assert world.calls == ["release", "trim"]

    run(scenario())


def test_a_pool_that_is_released_forgets_buffers_that_are_in_use_too() -> None:
    pool = BufferPool(16 * MIB)
    held = memoryview(pool.take(MIB))
    held[:4] = b"held"
    pool.release()
    assert pool.held_bytes == 0
    assert pool.take(MIB) is not held.obj
    assert bytes(held[:4]) == b"held"


def test_a_reader_shrinks_between_frames_and_keeps_the_beginning_of_one() -> None:
    reader = FrameReader(first_buffer_bytes=MIB)
    size = (10).to_bytes(4, "big")
    reader.get_buffer()[:7] = size + b"abc"
    assert reader.received(7) == []
    reader.shrink()
    assert reader.buffer_bytes == MIB
    reader.get_buffer()[:7] = b"defghij"
    (frame,) = reader.received(7)
    assert bytes(frame) == b"abcdefghij"
    reader.shrink()
    assert reader.buffer_bytes == FIRST_BUFFER_BYTES
    reader.get_buffer()[:14] = size + b"0123456789"
    assert [bytes(each) for each in reader.received(14)] == [b"0123456789"]
    assert bytes(frame) == b"abcdefghij"


def test_a_thread_of_a_directory_holds_nothing_of_its_last_job(tmp_path: Any) -> None:
    class Result:
        """What a job read."""

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        lane = ThreadLane(str(tmp_path), loop, SystemClock(loop))
        seen: list[ref[Result]] = []

        def work(_: Any) -> Result:
            made = Result()
            seen.append(ref(made))
            return made

        read, looked = loop.create_future(), loop.create_future()
        lane.submit(work, Work.SLOW, "read").then(lambda _: read.set_result(None))
        await read
        # The completion and what it was handed to are gone; the thread alone could hold the result.
        lane.submit(lambda _: seen[0]() is None, Work.SLOW, "look").then(
            lambda completion: looked.set_result(completion.result())
        )
        assert await looked
        await lane.close()

    run(scenario())


@GLIBC
def test_threads_share_arenas_and_a_trimmed_heap_is_given_back() -> None:
    def program(arenas: str) -> list[int]:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, arenas], check=True, capture_output=True, text=True
        )
        return [int(word) for word in done.stdout.split()]

    limited, full, freed, trimmed = program("limited")
    assert limited < MAX_ARENAS
    assert full - trimmed > 30 * MIB
    assert freed - trimmed > 10 * MIB, "pages between pieces in use stay without it"
    assert program("own")[0] > MAX_ARENAS
