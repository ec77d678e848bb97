"""Rule D13: operations that do not end count as slow, and a directory that hangs is given up."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest
from tests.support.log import FakeClock, LogHarness, batch_of, directory_of

from tidelog.core.errors import StorageError
from tidelog.core.operation_times import OpenAges, OperationCounts
from tidelog.core.ports import Files, Work
from tidelog.log.slow_directories import (
    FAST_WINDOWS,
    LEAST_OPERATIONS,
    SLOW_WINDOWS,
    SlowDirectory,
    SlowVerdict,
)
from tidelog.runtime.lanes import ThreadLane

THRESHOLD_MS = 50
WINDOW_MS = 1_000
HANG_MS = 6_000


@pytest.mark.rule("D13")
@pytest.mark.parametrize("kind", ["write", "read"])
def test_the_slower_a_disk_is_the_sooner_it_is_found(kind: str) -> None:
    """Ten operations of 10 s would take 100 s to end, and three windows have 30."""
    window_ns = WINDOW_MS * 1_000_000

    def windows(took_ns: int, ended: int) -> int:
        decision, count = SlowDirectory(), 0
        while not decision.is_slow and count < 50:
            count += 1
            decision.ended(
                OperationCounts(ended, ended, slow_write_ns=took_ns)
                if kind == "write"
                else OperationCounts(0, 0, ended, ended, slow_read_ns=took_ns),
                window_ns,
            )
        return count

    assert windows(window_ns, 0) == windows(window_ns // 2, 1) == SLOW_WINDOWS
    assert windows(window_ns // 2 - 1, 1) == SLOW_WINDOWS * LEAST_OPERATIONS
    assert SlowDirectory().ended(OperationCounts(1_000, 1, slow_write_ns=60), window_ns) is (
        SlowVerdict.REST
    )


class Hanging:
    """A directory whose lane has operations under way."""

    def __init__(self, path: Path, threshold_ms: int = THRESHOLD_MS) -> None:
        self.harness = LogHarness(path)
        self.log = self.harness.log()
        self.clock = self.harness.clock
        self.times = self.harness.lane.times
        self.speed = directory_of(self.log).speed
        self.seen: list[str] = []
        self.speed.on_change = lambda: self.seen.append("slow" if self.speed.is_slow else "fast")
        #: When the write, the read and the other operation under way began; -1 without one.
        self.write_ms = self.read_ms = self.other_ms = -1
        self.times.open_ages = self._ages
        self.speed.configure(threshold_ms, WINDOW_MS, HANG_MS)

    def _ages(self) -> OpenAges:
        now_ms = self.clock.monotonic_ms()
        return OpenAges(
            *(
                0 if each < 0 else (now_ms - each) * 1_000_000 + 1
                for each in (self.write_ms, self.read_ms, self.other_ms)
            )
        )

    def begin(self, kind: str = "write") -> None:
        setattr(self, f"{kind}_ms", self.clock.monotonic_ms())
        assert self.times.on_open is not None
        self.times.on_open()

    @property
    def failure(self) -> str:
        return str(directory_of(self.log).failure or "")


@pytest.mark.rule("D13")
@pytest.mark.parametrize("kind", ["write", "read"])
def test_a_directory_with_one_operation_that_does_not_end_is_found_slow(
    tmp_path: Path, kind: str
) -> None:
    hanging = Hanging(tmp_path)
    hanging.begin(kind)
    hanging.clock.advance(SLOW_WINDOWS * WINDOW_MS)
    assert hanging.seen == []
    hanging.clock.advance(WINDOW_MS // 2)
    assert hanging.seen == ["slow"] and hanging.speed.is_stuck
    hanging.write_ms = hanging.read_ms = -1
    assert not hanging.speed.is_stuck
    for _ in range(FAST_WINDOWS + 1):
        for _ in range(LEAST_OPERATIONS):
            hanging.times.wrote(1_000_000)
        hanging.clock.advance(WINDOW_MS)
    assert hanging.seen[-1] == "fast"
    assert hanging.failure == ""


@pytest.mark.rule("D13")
def test_a_read_that_does_not_end_gives_no_directory_up(tmp_path: Path) -> None:
    hanging = Hanging(tmp_path)
    hanging.begin("read")
    hanging.clock.advance(10 * HANG_MS)
    assert hanging.failure == "" and hanging.speed.is_stuck


@pytest.mark.rule("D13")
@pytest.mark.parametrize("threshold_ms", [0, THRESHOLD_MS])
def test_a_directory_that_hangs_is_given_up_with_all_that_waits(
    tmp_path: Path, threshold_ms: int
) -> None:
    hanging = Hanging(tmp_path, threshold_ms)
    lane, log = hanging.harness.lane, hanging.log
    lane.slow_disk = True
    waiting = log.plan_leader_append(batch_of([b"a"]), 0, hanging.clock.wall_ms())
    log.submit_planned()
    hanging.begin("write")
    hanging.clock.advance(HANG_MS - 1)
    assert hanging.failure == "" and not waiting.done
    hanging.clock.advance(HANG_MS // 10 + 1)
    assert f"a write in {log.directory.path} has not answered for" in hanging.failure
    assert isinstance(waiting.error, StorageError)
    late = lane.submit(lambda files: files.exists("/"), Work.SLOW, "late")
    assert late.error is lane.abandoned
    armed = len(hanging.clock.armed)
    hanging.clock.advance(10 * HANG_MS)
    assert len(hanging.clock.armed) <= armed, "nobody looks any more"


@pytest.mark.rule("D13")
def test_time_in_which_the_process_was_stopped_is_no_hang(tmp_path: Path) -> None:
    hanging = Hanging(tmp_path, 0)
    hanging.begin()
    hanging.clock.advance(HANG_MS // 2)
    # SIGSTOP: no timer fires meanwhile.
    hanging.clock.now_ms += 10 * HANG_MS
    hanging.clock.advance(HANG_MS // 2)
    assert hanging.failure == ""
    hanging.clock.advance(HANG_MS)
    assert "has not answered" in hanging.failure


@pytest.mark.rule("D13")
def test_short_operations_one_after_the_other_are_no_hang(tmp_path: Path) -> None:
    hanging = Hanging(tmp_path, 0)
    for _ in range(40):
        hanging.begin()
        hanging.clock.advance(HANG_MS // 4)
    assert hanging.failure == ""
    hanging.write_ms = -1
    hanging.clock.advance(HANG_MS)
    assert not hanging.clock.armed, "no timer without an open operation"


@pytest.mark.rule("D13")
def test_a_directory_without_appends_is_written_to_while_another_operation_takes_long(
    tmp_path: Path,
) -> None:
    """A deletion may take any time, and a device that hangs is found by the write beside it."""
    hanging = Hanging(tmp_path, 0)
    lane = hanging.harness.lane
    hanging.begin("other")
    hanging.clock.advance(HANG_MS - 1)
    assert lane.names.count("look for a hang") == 0
    hanging.clock.advance(4 * HANG_MS)
    assert lane.names.count("look for a hang") == 4 and hanging.failure == ""
    lane.slow_disk = True
    hanging.clock.advance(3 * HANG_MS)
    assert lane.names.count("look for a hang") == 5, "the next one waits for the one under way"
    hanging.begin("write")
    hanging.clock.advance(HANG_MS + HANG_MS // 10)
    assert "a write in" in hanging.failure and "has not answered for" in hanging.failure
    assert not list(tmp_path.rglob("hang-probe*"))


@pytest.mark.rule("D13")
@pytest.mark.parametrize("work", [Work.SLOW, Work.SYNC])
def test_the_operations_of_a_lane_without_a_limit_have_an_age(tmp_path: Path, work: Work) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def hangs(_: Files) -> None:
        begun.set()
        go_on.wait()

    async def story() -> None:
        lane = ThreadLane(str(tmp_path), asyncio.get_running_loop(), FakeClock())
        opened: list[None] = []
        lane.times.on_open = lambda: opened.append(None)
        lane.times.limit_ns = 2
        operation = lane.submit(hangs, work, "hangs")
        await asyncio.to_thread(begun.wait)
        ages = lane.times.open_ages()
        assert ages.other_ns > 1 and len(opened) == 1
        assert not lane.times.is_stuck, "it is no slow write"
        go_on.set()
        await operation
        assert lane.times.open_ages() == (0, 0, 0)
        await lane.close()

    asyncio.run(story())
