"""The real lane: on the loop while the disk is quick, on threads otherwise; failures attributed."""

from __future__ import annotations

import asyncio
import errno
import itertools
import os
import threading
import time
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.support.ports import FakeTracer

from tidelog.core.completion import Completion
from tidelog.core.errors import ConfigError, StorageError
from tidelog.core.ports import Files, Work
from tidelog.core.types import TopicPartition
from tidelog.log.config import LogConfig
from tidelog.log.log_directory import LogDirectory
from tidelog.records.batch import iter_batches
from tidelog.records.builder import NewRecord, build_batch
from tidelog.runtime import lanes
from tidelog.runtime.clock import SystemClock
from tidelog.runtime.files import OsFiles, lock_directory
from tidelog.runtime.lanes import SYNC_THREADS, ThreadLane, open_lane


def run(test: Callable[[ThreadLane], Coroutine[Any, Any, None]], directory: Path) -> None:
    """Run a test on a loop with a lane of `directory`."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        lane = ThreadLane(str(directory), loop, SystemClock(loop))
        try:
            await test(lane)
        finally:
            await lane.close()

    asyncio.run(main())


def here(files: Files) -> int:
    """The thread that runs it."""
    return threading.get_ident()


def slow_down(lane: ThreadLane) -> None:
    """As if an operation had just taken too long."""
    lane._slow_until_ns = 1 << 62


def test_fast_operations_run_at_once_on_the_loop(tmp_path: Path) -> None:
    async def test(lane: ThreadLane) -> None:
        assert lane.is_fast
        completion = lane.submit(here, Work.FAST, "test")
        assert completion.done and completion.result() == threading.get_ident()

    run(test, tmp_path)


def test_slow_operations_run_on_a_thread_in_order(tmp_path: Path) -> None:
    async def test(lane: ThreadLane) -> None:
        order: list[int] = []

        def numbered(number: int, files: Files) -> int:
            order.append(number)
            return here(files)

        completions = [lane.submit(partial(numbered, n), Work.SLOW, "test") for n in range(50)]
        assert not completions[-1].done
        threads = [await completion for completion in completions]
        assert order == list(range(50))
        assert len(set(threads)) == 1 and threads[0] != threading.get_ident()

    run(test, tmp_path)


def test_results_are_delivered_on_the_loop(tmp_path: Path) -> None:
    async def test(lane: ThreadLane) -> None:
        told: list[int] = []
        completion = lane.submit(here, Work.SLOW, "test")
        completion.then(lambda _: told.append(threading.get_ident()))
        await completion
        assert told == [threading.get_ident()]

    run(test, tmp_path)


def test_after_a_slow_call_fast_operations_leave_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ns = [1_000_000_000]
    monkeypatch.setattr(time, "monotonic_ns", lambda: now_ns[0])
    # Every call gives the processor up, as one that waits for its disk does.
    monkeypatch.setattr(lanes, "voluntary_switches", itertools.count().__next__)

    async def test(lane: ThreadLane) -> None:
        def slow(_: Files) -> None:
            now_ns[0] += lanes.SLOW_CALL_NS

        def long_but_slow_anyway(_: Files) -> None:
            now_ns[0] += 10 * lanes.SLOW_CALL_NS

        await lane.submit(long_but_slow_anyway, Work.SLOW, "fsync")
        assert lane.is_fast, "an fsync may take its time"
        lane.submit(slow, Work.FAST, "write").result()
        assert not lane.is_fast
        completion = lane.submit(here, Work.FAST, "write")
        assert not completion.done
        assert await completion != threading.get_ident()
        now_ns[0] += lanes.CLEAN_NS - 1
        assert not lane.is_fast
        now_ns[0] += 1
        assert lane.is_fast
        assert lane.submit(here, Work.FAST, "write").done

    run(test, tmp_path)


def test_writes_and_reads_are_counted_by_their_time_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the loop and on threads; what takes long by its nature is not counted (D13)."""
    now_ns = [1_000_000_000]
    monkeypatch.setattr(time, "monotonic_ns", lambda: now_ns[0])
    monkeypatch.setattr(lanes, "voluntary_switches", itertools.count().__next__)

    async def test(lane: ThreadLane) -> None:
        def taking(time_ms: int) -> Callable[[Files], None]:
            def operation(_: Files) -> None:
                now_ns[0] += time_ms * 1_000_000

            return operation

        def fails(_: Files) -> None:
            now_ns[0] += 60_000_000
            raise OSError(errno.EIO, "bad sector")

        seen: list[tuple[int, ...]] = []
        times = lane.times
        times.limit_ns = 50_000_000
        times.on_slow = lambda: seen.append(tuple(times.counts[:4]))
        lane.submit(taking(10), Work.FAST, "write").result()
        assert seen == []
        lane.submit(taking(50), Work.FAST, "write").result()
        assert seen == [(2, 1, 0, 0)] and not lane.is_fast
        await lane.submit(taking(49), Work.FAST, "write on the thread")
        await lane.submit(taking(70), Work.READ, "read from disk")
        for work in (Work.SLOW, Work.SYNC, Work.COMPUTE, Work.NOWAIT):
            await lane.submit(taking(1_000), work, "long by its nature")
        assert seen == [(2, 1, 0, 0), (3, 1, 1, 1)]
        with pytest.raises(StorageError):
            await lane.submit(fails, Work.READ, "read from disk")
        assert times.counts[:4] == (3, 1, 2, 2) and times.longest_ns == 70_000_000

    run(test, tmp_path)


def test_a_fast_operation_never_overtakes_one_that_waits(tmp_path: Path) -> None:
    async def test(lane: ThreadLane) -> None:
        gate = threading.Event()
        order: list[str] = []
        slow_down(lane)

        def behind_the_gate(_: Files) -> None:
            if gate.wait(10):
                order.append("first")

        first = lane.submit(behind_the_gate, Work.FAST, "a")
        lane._slow_until_ns = 0
        second = lane.submit(lambda _: order.append("second"), Work.FAST, "b")
        assert lane.submit(here, Work.NOWAIT, "read").done, "it cannot wait for the disk"
        assert not second.done and not lane.is_fast
        gate.set()
        await first
        await second
        assert order == ["first", "second"] and lane.is_fast

    run(test, tmp_path)


def test_a_call_that_was_only_preempted_does_not_make_the_disk_slow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ns = [1_000_000_000]
    monkeypatch.setattr(time, "monotonic_ns", lambda: now_ns[0])
    monkeypatch.setattr(lanes, "voluntary_switches", lambda: 7)

    async def test(lane: ThreadLane) -> None:
        def preempted(_: Files) -> None:
            now_ns[0] += lanes.SLOW_CALL_NS

        lane.submit(preempted, Work.FAST, "write").result()
        assert lane.is_fast

    run(test, tmp_path)


def test_an_fsync_under_way_does_not_hold_up_appends_of_a_slow_disk(tmp_path: Path) -> None:
    async def test(lane: ThreadLane) -> None:
        gate = threading.Event()
        fsync = lane.submit(lambda _: gate.wait(10), Work.SLOW, "fsync")
        slow_down(lane)
        await lane.submit(here, Work.FAST, "append")
        assert not fsync.done
        gate.set()
        await fsync

    run(test, tmp_path)


@pytest.mark.rule("D1")
@pytest.mark.parametrize("work", list(Work))
def test_a_failure_names_directory_call_path_errno_and_time(tmp_path: Path, work: Work) -> None:
    async def test(lane: ThreadLane) -> None:
        before_ms = SystemClock(asyncio.get_running_loop()).wall_ms()
        path = str(tmp_path / "missing" / "file")
        completion: Completion[Any] = lane.submit(lambda files: files.open(path), work, "open")
        with pytest.raises(StorageError) as caught:
            await completion
        error = caught.value
        assert (error.directory, error.operation, error.path) == (str(tmp_path), "open", path)
        assert error.errno == errno.ENOENT and error.at_ms >= before_ms
        assert error.is_device_failure and not error.is_full

    run(test, tmp_path)


@pytest.mark.rule("D17")
def test_a_failed_sync_is_known_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(lane: ThreadLane) -> None:
        def refuse(descriptor: int) -> None:
            raise OSError(errno.ENOSPC, "no space")

        monkeypatch.setattr("os.fsync", refuse)
        for operation in (
            lambda files: files.fsync(files.open(str(tmp_path / "f"), write=True, create=True)),
            lambda files: files.fsync_directory(str(tmp_path)),
            lambda files: files.replace_file(str(tmp_path / "g"), b"x", sync=True),
        ):
            with pytest.raises(StorageError) as caught:
                await lane.submit(operation, Work.SLOW, "sync")
            assert caught.value.operation == "fsync"
            assert caught.value.is_device_failure, "whatever the errno"

    run(test, tmp_path)


def test_other_errors_come_as_they_are(tmp_path: Path) -> None:
    async def test(lane: ThreadLane) -> None:
        def defect(_: Files) -> None:
            raise ValueError("a defect")

        for work in Work:
            with pytest.raises(ValueError, match="a defect"):
                await lane.submit(defect, work, "test")

    run(test, tmp_path)


def test_a_callback_that_raises_is_loud_and_holds_up_nobody(tmp_path: Path) -> None:
    async def test(lane: ThreadLane) -> None:
        loud: list[object] = []
        asyncio.get_running_loop().set_exception_handler(
            lambda loop, context: loud.append(context.get("exception"))
        )
        gate = threading.Event()
        lane.submit(lambda _: gate.wait(10), Work.SLOW, "hold")

        def defect(_: object) -> None:
            raise ValueError("a defect")

        lane.submit(here, Work.SLOW, "test").then(defect)
        others = [lane.submit(here, Work.SLOW, "test") for _ in range(5)]
        gate.set()
        for other in others:
            await other
        assert [str(error) for error in loud] == ["a defect"]

    run(test, tmp_path)


def test_closing_finishes_what_was_submitted(tmp_path: Path) -> None:
    async def test(lane: ThreadLane) -> None:
        completions = [lane.submit(here, Work.SLOW, "test") for _ in range(20)]
        await lane.close()
        assert all(completion.done for completion in completions)
        await lane.close()
        with pytest.raises(RuntimeError, match="closed"):
            lane.submit(here, Work.FAST, "late")

    run(test, tmp_path)


def test_what_follows_from_what_was_submitted_is_finished_too(tmp_path: Path) -> None:
    """Such as the closing of a file that was read when the lane was closed."""

    async def test(lane: ThreadLane) -> None:
        followed: list[int] = []
        for work in (Work.SLOW, Work.FAST):
            reading = lane.submit(here, Work.SLOW, "read")
            reading.then(
                partial(
                    lambda work, _: lane.submit(here, work, "close").then(
                        lambda done: followed.append(done.result())
                    ),
                    work,
                )
            )
        await lane.close()
        assert len(followed) == 2
        with pytest.raises(RuntimeError, match="closed"):
            lane.submit(here, Work.FAST, "late")

    run(test, tmp_path)


def test_a_log_on_a_lane_that_turns_slow_and_quick_keeps_every_append_in_order(
    tmp_path: Path,
) -> None:
    """Loop, fast thread and slow thread at once: appends, reads, flushes, rolls, truncations."""

    async def test(lane: ThreadLane) -> None:
        clock = SystemClock(asyncio.get_running_loop())
        config = LogConfig(segment_bytes=20_000, index_interval_bytes=500)
        directory = await LogDirectory.open(
            lane,
            cluster_id="c",
            broker_id=1,
            clock=clock,
            tracer=FakeTracer(),
            default_config=config,
            config_of=lambda _: config,
            max_open_files=2,
        )
        log = await directory.create(TopicPartition("t", 0), bytes([1] * 16), config)
        expected: list[bytes] = []
        for step in range(600):
            lane._slow_until_ns = (1 << 62) if step // 20 % 2 else 0
            value = f"{step}".encode() * (step % 40 + 1)
            completion = log.plan_leader_append(
                build_batch([NewRecord(None, value, step)]), 0, clock.wall_ms()
            )
            log.submit_planned()
            expected.append(value)
            if step % 7 == 0:
                assert (await completion).last_offset == len(expected) - 1
            if step % 31 == 0:
                log.flush()
            if step % 53 == 0 and log.log_end_offset:
                offset = step * 7 % log.log_end_offset
                slice_ = await log.read(offset, 5000, log.log_end_offset, min_one_batch=True)
                (first, *_) = iter_batches(slice_.data)
                assert first.base_offset == offset
            if step % 149 == 148:
                await log.truncate_to(len(expected) - 5)
                del expected[-5:]
        await completion
        await log.flush()
        assert log.recovery_point == log.log_end_offset == len(expected)
        offset = 0
        found: list[bytes] = []
        while offset < log.log_end_offset:
            slice_ = await log.read(offset, 1 << 20, log.log_end_offset, min_one_batch=True)
            found += [bytes(batch.records) for batch in iter_batches(slice_.data)]
            offset = slice_.next_offset
        assert len(found) == len(expected)
        assert all(value in record for value, record in zip(expected, found, strict=True))

    run(test, tmp_path)


# files


def test_a_short_read_means_the_end_of_the_file(tmp_path: Path) -> None:
    files = OsFiles()
    handle = files.open(str(tmp_path / "f"), write=True, create=True)
    assert files.pwritev(handle, [b"abc", memoryview(b"def")], 0) == 6
    assert files.pread(handle, 100, 2) == b"cdef"
    assert bytes(files.pread_cached(handle, 100, 2) or b"") == b"cdef"
    assert bytes(files.pread_cached(handle, 3, 1) or b"") == b"bcd"
    assert files.pread(handle, 5, 6) == b"" and files.size(handle) == 6
    files.truncate(handle, 2)
    assert files.size(handle) == 2
    files.close(handle)


def test_where_the_page_cache_cannot_be_asked_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = OsFiles()
    handle = files.open(str(tmp_path / "f"), write=True, create=True)
    files.pwritev(handle, [b"abcdef"], 0)

    def unknown_flag(*_: object) -> int:
        raise OSError(errno.EOPNOTSUPP, "no such flag")

    monkeypatch.setattr("os.preadv", unknown_flag)
    assert files.pread_cached(handle, 3, 0) == b"abc"

    def would_block(*_: object) -> int:
        raise BlockingIOError(errno.EAGAIN, "would block")

    files = OsFiles()
    monkeypatch.setattr("os.preadv", would_block)
    assert files.pread_cached(handle, 3, 0) is None
    files.close(handle)


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    files = OsFiles()
    path = str(tmp_path / "f")
    for sync in (False, True):
        files.replace_file(path, b"x" * 10, sync=sync)
        files.replace_file(path, b"new", sync=sync)
        assert files.read_file(path) == b"new"
        assert files.listdir(str(tmp_path)) == ["f"]


def test_directories_come_and_go(tmp_path: Path) -> None:
    files = OsFiles()
    root = str(tmp_path / "a" / "b")
    files.mkdir(root)
    files.mkdir(root)
    files.replace_file(f"{root}/f", b"x", sync=False)
    assert files.exists(f"{root}/f") and not files.exists(f"{root}/g")
    files.rename(f"{root}/f", f"{root}/g")
    assert files.listdir(root) == ["g"]
    files.remove_tree(root)
    files.remove_tree(root)
    assert not files.exists(root)
    files.rmdir(str(tmp_path / "a"))
    total_bytes, usable_bytes = files.volume_size(str(tmp_path))
    assert 0 < usable_bytes <= total_bytes
    with pytest.raises(OSError, match="No such file"):
        files.volume_size(root)


def test_a_second_broker_is_kept_out_and_told_who_has_the_directory(tmp_path: Path) -> None:
    first = lock_directory(str(tmp_path / "logs"))
    with pytest.raises(ConfigError, match="another of this broker's directories, mounted twice"):
        lock_directory(str(tmp_path / "logs"))
    os.ftruncate(first, 0)
    os.pwrite(first, b"4711\n", 0)
    with pytest.raises(ConfigError, match="in use by the process 4711"):
        lock_directory(str(tmp_path / "logs"))
    os.close(first)
    os.close(lock_directory(str(tmp_path / "logs")))
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="a directory that this broker may write") as refused:
        lock_directory(str(tmp_path / "file"))
    assert refused.value.is_device_failure


def test_an_opened_lane_holds_the_lock_until_it_is_closed(tmp_path: Path) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        lane = open_lane(str(tmp_path), loop, SystemClock(loop))
        with pytest.raises(ConfigError):
            open_lane(str(tmp_path), loop, SystemClock(loop))
        await lane.close()
        await open_lane(str(tmp_path), loop, SystemClock(loop)).close()

    asyncio.run(main())


def test_a_long_computation_holds_up_neither_the_disk_nor_the_loop(tmp_path: Path) -> None:
    async def test(lane: ThreadLane) -> None:
        may_end = threading.Event()
        order: list[str] = []
        long = lane.submit(lambda _: may_end.wait(60), Work.COMPUTE, "check of a batch")
        behind = lane.submit(here, Work.COMPUTE, "check of a batch")
        long.then(lambda _: order.append("long"))
        behind.then(lambda _: order.append("behind"))
        assert await lane.submit(here, Work.SLOW, "flush") != threading.get_ident()
        assert lane.submit(here, Work.FAST, "append").done
        assert not long.done and not behind.done
        may_end.set()
        assert await long and await behind != threading.get_ident()
        assert order == ["long", "behind"], "one at a time, in order"

    run(test, tmp_path)


def test_syncs_of_several_files_run_at_the_same_time(tmp_path: Path) -> None:
    async def test(lane: ThreadLane) -> None:
        together = threading.Barrier(SYNC_THREADS)
        syncs = [
            lane.submit(lambda _: together.wait(60), Work.SYNC, "flush")
            for _ in range(SYNC_THREADS)
        ]
        for sync in syncs:
            await sync
        gate = threading.Event()
        held = [
            lane.submit(lambda _: gate.wait(60), Work.SYNC, "flush") for _ in range(SYNC_THREADS)
        ]
        beyond = lane.submit(here, Work.SYNC, "flush")
        assert await lane.submit(here, Work.SLOW, "read") != threading.get_ident()
        assert not beyond.done, "no more threads than that"
        gate.set()
        for waiting in held:
            await waiting
        await beyond

    run(test, tmp_path)


def test_a_lane_that_is_given_up_fails_what_waits_and_runs_no_more(tmp_path: Path) -> None:
    begun, go_on = threading.Event(), threading.Event()
    ran: list[str] = []

    def hangs(_: Files) -> str:
        begun.set()
        go_on.wait()
        return "late"

    async def test(lane: ThreadLane) -> None:
        slow_down(lane)
        opened: list[None] = []
        lane.times.on_open = lambda: opened.append(None)
        lane.times.limit_ns = 1
        hanging = lane.submit(hangs, Work.FAST, "append")
        behind = lane.submit(lambda _: ran.append("behind"), Work.FAST, "append")
        await asyncio.to_thread(begun.wait)
        assert len(opened) == 2 and not hanging.done
        ages = lane.times.open_ages()
        assert ages.write_ns > 1 and ages.read_ns == 0 and lane.times.is_stuck
        assert lane.times.counts.slow_write_ns >= ages.write_ns, "it counts before it has ended"
        error = StorageError(str(tmp_path), "use", str(tmp_path), errno.EIO, 0, "it hangs")
        lane.abandon(error)
        assert hanging.error is error and behind.error is error
        for work in (Work.FAST, Work.NOWAIT, Work.SLOW, Work.SYNC, Work.READ, Work.COMPUTE):
            assert lane.submit(lambda _: ran.append("after"), work, "late").error is error
        # The end of the lane does not wait for the thread, and its result finds nothing.
        await lane.close()
        go_on.set()
        for worker in (lane._fast, lane._slow):
            await asyncio.to_thread(worker._thread.join)
        await asyncio.sleep(0)
        assert hanging.error is error and ran == []

    run(test, tmp_path)


@pytest.mark.parametrize("work", [Work.SYNC, Work.SLOW, Work.READ])
def test_the_loop_runs_no_operation_while_another_one_stalls(
    tmp_path: Path, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "STALL_NS", 0)
    begun, go_on = threading.Event(), threading.Event()

    def hangs(_: Files) -> None:
        begun.set()
        go_on.wait()

    async def test(lane: ThreadLane) -> None:
        stalled = lane.submit(hangs, work, "fsync")
        await asyncio.to_thread(begun.wait)
        assert not lane.is_fast
        elsewhere = lane.submit(here, Work.FAST, "append")
        assert await elsewhere != threading.get_ident()
        go_on.set()
        await stalled
        assert lane.is_fast

    run(test, tmp_path)


def test_a_directory_that_is_given_up_stays_locked(tmp_path: Path) -> None:
    async def test() -> None:
        loop = asyncio.get_running_loop()
        lane = open_lane(str(tmp_path), loop, SystemClock(loop))
        descriptor = lane._lock_descriptor
        assert descriptor is not None
        lane.abandon(StorageError(str(tmp_path), "use", str(tmp_path), errno.EIO, 0))
        await lane.close()
        with pytest.raises(ConfigError, match="mounted twice|in use"):
            lock_directory(str(tmp_path))
        os.close(descriptor)
        os.close(lock_directory(str(tmp_path)))

    asyncio.run(test())
