"""Lanes on a simulated disk: when operations run, in which order, and how failures are told."""

from __future__ import annotations

import errno
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import pytest
from tests.support.sim import (
    MS,
    Running,
    S,
    in_node,
    run,
)

from tidelog.core.errors import NodeDead, StorageError
from tidelog.core.ports import Files, Lane, Work
from tidelog.sim.disk import File, Loss
from tidelog.sim.node import Strike
from tidelog.sim.simulator import Simulator


def opened(simulator: Simulator) -> tuple[Running, Lane]:
    node = Running(simulator.add_node(1, "node1"))
    return node, node.ports.open_lane("/data")


def append(path: str, content: bytes) -> Callable[[Files], int]:
    def operation(files: Files) -> int:
        handle = files.open(path, write=True, create=True)
        written = files.pwritev(handle, [content], files.size(handle))
        files.close(handle)
        return written

    return operation


def content(simulator: Simulator, path: str) -> bytes:
    found = simulator.disk(1, "/data").find(path)
    return bytes(found.data) if isinstance(found, File) else b""


def test_fast_operations_of_a_quick_disk_are_done_at_once(simulator: Simulator) -> None:
    _, lane = opened(simulator)
    assert lane.is_fast
    done = lane.submit(append("/data/a", b"hello"), Work.FAST, "append")
    assert done.done
    assert done.result() == 5
    assert content(simulator, "/data/a") == b"hello"


def test_writes_and_reads_are_counted_by_their_simulated_time(simulator: Simulator) -> None:
    _, lane = opened(simulator)
    disk, times = simulator.disk(1, "/data"), lane.times
    times.limit_ns = 4 * MS
    slow: list[int] = []
    times.on_slow = lambda: slow.append(times.counts.slow)
    lane.submit(append("/data/a", b"a"), Work.FAST, "append")
    lane.submit(append("/data/a", b"b"), Work.READ, "read")
    simulator.run_until(simulator.now_ns + S)
    assert times.counts[:4] == (1, 0, 1, 0) and slow == []
    disk.slow, disk.slow_ns = True, (5 * MS, 6 * MS)
    for work in (Work.FAST, Work.READ, Work.SLOW, Work.SYNC):
        lane.submit(append("/data/a", b"c"), work, work.value)
    simulator.run_until(simulator.now_ns + S)
    assert times.counts[:4] == (2, 1, 2, 1) and slow == [1, 2]
    assert 5 * MS <= times.longest_ns < 6 * MS


def test_slow_operations_take_virtual_time_and_keep_their_order(simulator: Simulator) -> None:
    node, lane = opened(simulator)
    order: list[str] = []
    for name in ("a", "b", "c"):
        lane.submit(append("/data/x", name.encode()), Work.SLOW, name).then(
            partial(lambda name, _: order.append(name), name)
        )
    assert order == []
    run(simulator, node, lane.close())
    assert order == ["a", "b", "c"]
    assert content(simulator, "/data/x") == b"abc"
    assert simulator.now_ns > 0
    with pytest.raises(RuntimeError, match="closed"):
        lane.submit(append("/data/x", b"late"), Work.FAST, "late")


@pytest.mark.parametrize("work", list(Work))
def test_closing_finishes_what_follows_from_what_was_submitted(
    simulator: Simulator, work: Work
) -> None:
    node, lane = opened(simulator)
    followed: list[int] = []

    def then_write(_: object) -> None:
        lane.submit(append("/data/x", b"b"), work, "2").then(
            lambda done: followed.append(done.result())
        )

    lane.submit(append("/data/x", b"a"), Work.SLOW, "1").then(then_write)
    run(simulator, node, lane.close())
    assert followed == [1]
    assert content(simulator, "/data/x") == b"ab"
    with pytest.raises(RuntimeError, match="closed"):
        lane.submit(append("/data/x", b"late"), work, "late")


def test_syncs_wait_for_no_other_operation(simulator: Simulator) -> None:
    node, lane = opened(simulator)
    order: list[str] = []
    for number in range(8):
        for work in (Work.SLOW, Work.SYNC):
            name = f"{work.value} {number}"
            lane.submit(lambda _: None, work, name).then(
                partial(lambda name, _: order.append(name), name)
            )
    run(simulator, node, lane.close())
    slow = [f"slow {number}" for number in range(8)]
    syncs = [f"sync {number}" for number in range(8)]
    assert sorted(order) == sorted([*slow, *syncs])
    assert [name for name in order if name in slow] == slow
    assert [name for name in order if name in syncs] != syncs, "they keep no order"
    assert order.index(syncs[-1]) < order.index(slow[-1])


def test_fast_operations_of_a_slow_disk_wait_in_order(simulator: Simulator) -> None:
    node, lane = opened(simulator)
    disk = simulator.disk(1, "/data")
    disk.slow = True
    assert not lane.is_fast
    order: list[str] = []

    def note(name: str) -> Callable[[Any], None]:
        return lambda _: order.append(name)

    lane.submit(append("/data/x", b"1"), Work.FAST, "1").then(note("1"))
    disk.slow = False
    assert not lane.is_fast, "an earlier FAST operation still waits for the worker"
    lane.submit(append("/data/x", b"2"), Work.FAST, "2").then(note("2"))
    assert lane.submit(lambda _: "at once", Work.NOWAIT, "read").result() == "at once"
    run(simulator, node, lane.close())
    assert order == ["1", "2"]
    assert content(simulator, "/data/x") == b"12"


@pytest.mark.parametrize("work", list(Work))
def test_an_os_error_names_directory_call_path_and_errno(simulator: Simulator, work: Work) -> None:
    node, lane = opened(simulator)
    simulator.disk(1, "/data").fault = lambda call, path: errno.EIO if call == "pwritev" else 0
    done = lane.submit(append("/data/a", b"x"), work, "append")
    run(simulator, node, lane.close())
    error = done.error
    assert isinstance(error, StorageError)
    assert (error.directory, error.operation, error.path, error.errno) == (
        "/data", "pwritev", "/data/a", errno.EIO,
    )  # fmt: skip
    assert error.is_device_failure


def test_a_failed_sync_of_a_directory_counts_as_a_failed_fsync(simulator: Simulator) -> None:
    _, lane = opened(simulator)
    simulator.disk(1, "/data").fault = lambda call, path: errno.ENOMEM if "fsync" in call else 0
    done = lane.submit(lambda files: files.fsync_directory("/data"), Work.FAST, "sync")
    assert isinstance(done.error, StorageError)
    assert done.error.is_device_failure


def test_other_errors_of_an_operation_are_delivered_as_they_are(simulator: Simulator) -> None:
    _, lane = opened(simulator)

    def fails(files: Files) -> None:
        raise ValueError("corrupt")

    done = lane.submit(fails, Work.FAST, "read")
    assert isinstance(done.error, ValueError)


def test_a_node_that_dies_with_an_operation_under_way_never_hears_of_it(
    simulator: Simulator,
) -> None:
    applied = set()
    for node_id in range(2, 30):
        node = Running(simulator.add_node(node_id, f"node{node_id}"))
        lane = node.ports.open_lane("/data")
        heard: list[object] = []
        lane.submit(append("/data/a", b"x"), Work.SLOW, "append").then(heard.append)
        simulator.run_until(simulator.now_ns + MS // 4)
        before = len(heard)
        node.incarnation.die(Loss.NONE, "test")
        simulator.run_until(simulator.now_ns + S)
        assert len(heard) == before
        if not heard:
            applied.add(simulator.disk(node_id, "/data").find("/data/a") is not None)
    assert applied == {True, False}


def test_a_write_struck_by_a_kill_may_be_in_the_page_cache_in_part(simulator: Simulator) -> None:
    lengths = set()
    for node_id in range(2, 40):
        node = Running(simulator.add_node(node_id, f"node{node_id}"))
        lane = node.ports.open_lane("/data")
        node.incarnation.plan_strike(Strike(1, Loss.NONE, "files.pwritev"))

        def strike(lane: Lane = lane) -> None:
            lane.submit(append("/data/a", b"0123456789"), Work.FAST, "append")

        in_node(simulator, node, strike)
        assert not node.node.is_up
        lengths.add(len(simulator.disk(node_id, "/data").file("/data/a").data))
    assert len(lengths) > 3
    assert simulator.violations == []


def test_replace_file_shows_old_or_new_and_is_durable_when_synced(simulator: Simulator) -> None:
    _, lane = opened(simulator)
    disk = simulator.disk(1, "/data")
    disk.make_directories("/data")
    for text in (b"first", b"2nd"):
        lane.submit(
            partial(lambda text, files: files.replace_file("/data/meta", text, sync=True), text),
            Work.FAST,
            "write",
        ).result()
    assert content(simulator, "/data/meta") == b"2nd"
    assert disk.lose_power(Random(1), Loss.ALL_UNSYNCED) == []
    listed = lane.submit(lambda files: files.listdir("/data"), Work.FAST, "list").result()
    assert listed == ["meta"]


def test_handles_are_checked(simulator: Simulator) -> None:
    _, lane = opened(simulator)

    def closed_twice(files: Files) -> None:
        handle = files.open("/data/a", write=True, create=True)
        files.close(handle)
        files.pread(handle, 1, 0)

    done = lane.submit(closed_twice, Work.FAST, "read")
    assert isinstance(done.error, StorageError)
    assert done.error.errno == errno.EBADF

    def outside(files: Files) -> None:
        files.open("/etc/passwd")

    assert isinstance(lane.submit(outside, Work.FAST, "open").error, ValueError)


def test_data_on_disk_outlives_a_kill_and_restarts(simulator: Simulator) -> None:
    node, lane = opened(simulator)
    lane.submit(append("/data/a", b"hello"), Work.FAST, "append").result()
    node.incarnation.die(Loss.NONE, "test")
    with pytest.raises(NodeDead):
        lane.submit(append("/data/a", b"!"), Work.FAST, "append")
    again = Running(node.node)
    read = again.ports.open_lane("/data").submit(
        lambda files: files.read_file("/data/a"), Work.FAST, "read"
    )
    assert read.result() == b"hello"
