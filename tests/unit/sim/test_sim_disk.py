"""Page cache and durable content of a simulated disk, and what a power loss may leave."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.draws import examples

from tidelog.core.ports import VolumeSize
from tidelog.sim.disk import File, Loss, SimDisk
from tidelog.sim.files import SimFiles


def write(disk: SimDisk, path: str, content: bytes, position: int | None = None) -> None:
    file = disk.find(path) or disk.create(path)
    assert isinstance(file, File)
    disk.write(file, path, [content], len(file.data) if position is None else position)


def sync(disk: SimDisk, path: str) -> None:
    disk.file(path).pending.clear()
    disk.sync_directory(path.rpartition("/")[0])


def outcomes(prepare: SimDisk, loss: Loss = Loss.UNSYNCED) -> dict[str, bytes]:
    prepare.lose_power(random.Random(1), loss)
    return {path: bytes(file.data) for path, file in prepare.files()}


def test_synced_content_and_names_survive_every_power_loss() -> None:
    for seed in range(50):
        disk = SimDisk("/data")
        write(disk, "/data/a", b"kept")
        sync(disk, "/data/a")
        write(disk, "/data/a", b" maybe")
        disk.lose_power(random.Random(seed), Loss.UNSYNCED)
        content = bytes(disk.file("/data/a").data)
        assert content[:4] == b"kept"


def test_losing_all_unsynced_data_leaves_exactly_what_was_synced() -> None:
    disk = SimDisk("/data")
    write(disk, "/data/a", b"kept")
    sync(disk, "/data/a")
    write(disk, "/data/a", b"XX", 1)
    write(disk, "/data/a", b" more")
    disk.truncate(disk.file("/data/a"), 2)
    write(disk, "/data/new", b"unnamed")
    disk.rename("/data/a", "/data/b")
    assert bytes(disk.file("/data/b").data) == b"kX"
    assert outcomes(disk, Loss.ALL_UNSYNCED) == {"/data/a": b"kept"}


def test_unsynced_appends_survive_as_all_none_prefix_or_torn() -> None:
    seen: set[bytes] = set()
    for seed in range(300):
        disk = SimDisk("/data")
        write(disk, "/data/a", b"0" * 500)
        sync(disk, "/data/a")
        write(disk, "/data/a", b"1" * 600)
        write(disk, "/data/a", b"2" * 600)
        disk.lose_power(random.Random(seed), Loss.UNSYNCED)
        seen.add(bytes(disk.file("/data/a").data))
    zero, one, two = b"0" * 500, b"1" * 600, b"2" * 600
    assert {zero, zero + one, zero + one + two} <= seen
    torn = seen - {zero, zero + one, zero + one + two}
    assert torn
    for content in torn:
        body = content.rstrip(b"\0")
        assert (zero + one + two).startswith(body), "a torn write keeps its first sectors"
        assert len(body) % 512 == 0 or len(body) in (500, 1100)
        assert len(content) in (len(body), 1100, 1700)


def test_a_rename_without_sync_of_the_directory_may_be_seen_or_not() -> None:
    seen = set()
    for seed in range(60):
        disk = SimDisk("/data")
        write(disk, "/data/old", b"x")
        sync(disk, "/data/old")
        disk.rename("/data/old", "/data/new")
        disk.lose_power(random.Random(seed), Loss.UNSYNCED)
        seen.add(tuple(path for path, _ in disk.files()))
    assert seen == {("/data/old",), ("/data/new",)}


def test_a_file_renamed_over_another_without_fsync_may_turn_out_empty() -> None:
    seen = set()
    for seed in range(200):
        disk = SimDisk("/data")
        write(disk, "/data/a", b"old")
        sync(disk, "/data/a")
        write(disk, "/data/a.tmp", b"new")
        disk.rename("/data/a.tmp", "/data/a")
        disk.lose_power(random.Random(seed), Loss.UNSYNCED)
        seen.add(bytes(disk.file("/data/a").data))
    assert seen == {b"old", b"", b"new"} or seen == {b"old", b"", b"new", b"\0\0\0"}


def test_syncing_a_directory_keeps_its_names_but_not_those_of_others() -> None:
    disk = SimDisk("/data")
    disk.make_directories("/data/t-0")
    disk.sync_directory("/data")
    write(disk, "/data/t-0/log", b"x")
    write(disk, "/data/checkpoint", b"y")
    disk.sync_directory("/data")
    assert outcomes(disk, Loss.ALL_UNSYNCED) == {"/data/checkpoint": b""}


def test_errors_are_those_of_posix() -> None:
    disk = SimDisk("/data")
    write(disk, "/data/file", b"x")
    disk.make_directories("/data/dir/sub")
    cases: list[tuple[int, Callable[[], object]]] = [
        (errno.ENOENT, lambda: disk.file("/data/none")),
        (errno.EISDIR, lambda: disk.file("/data/dir")),
        (errno.ENOTDIR, lambda: disk.directory("/data/file")),
        (errno.ENOENT, lambda: disk.create("/data/none/x")),
        (errno.ENOTEMPTY, lambda: disk.remove_directory("/data/dir")),
        (errno.ENOENT, lambda: disk.rename("/data/none", "/data/x")),
        (errno.EISDIR, lambda: disk.rename("/data/file", "/data/dir")),
        (errno.ENOTDIR, lambda: disk.rename("/data/dir", "/data/file")),
        (errno.ENOTDIR, lambda: disk.make_directories("/data/file/x")),
        (errno.ENOENT, lambda: disk.unlink("/data/none")),
    ]
    for number, call in cases:
        with pytest.raises(OSError) as caught:
            call()
        assert caught.value.errno == number


def test_a_full_disk_takes_a_short_write_and_then_none() -> None:
    disk = SimDisk("/data", capacity_bytes=10)
    file = disk.create("/data/a")
    assert disk.write(file, "/data/a", [b"12345678"], 0) == 8
    assert disk.write(file, "/data/a", [b"abcd"], 8) == 2
    with pytest.raises(OSError) as caught:
        disk.write(file, "/data/a", [b"e"], 10)
    assert caught.value.errno == errno.ENOSPC
    disk.unlink("/data/a")
    assert disk.used_bytes == 0


def test_a_volume_tells_its_size_and_what_is_free() -> None:
    disk = SimDisk("/data", capacity_bytes=10)
    incarnation: Any = SimpleNamespace(port_call=lambda name: None)
    files = SimFiles(incarnation, disk, random.Random(1))
    write(disk, "/data/a", b"1234567")
    assert files.volume_size("/data") == VolumeSize(total_bytes=10, usable_bytes=3)


def test_removing_a_tree_removes_all_of_it() -> None:
    disk = SimDisk("/data")
    disk.make_directories("/data/t-0/sub")
    write(disk, "/data/t-0/log", b"x")
    disk.remove_tree("/data/t-0")
    disk.remove_tree("/data/t-0")
    assert disk.find("/data/t-0") is None
    assert disk.used_bytes == 0


changes = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 40), st.binary(min_size=1, max_size=20)),
        st.tuples(st.just("truncate"), st.integers(0, 40), st.just(b"")),
        st.tuples(st.just("sync"), st.just(0), st.just(b"")),
    ),
    max_size=20,
)


@examples(200)
@given(changes, st.integers(0, 1000))
def test_a_power_loss_leaves_the_file_as_after_some_prefix_of_its_changes(
    steps: list[tuple[str, int, bytes]], seed: int
) -> None:
    """Against a naive file that remembers every state (torn writes apart)."""
    disk = SimDisk("/data")
    file = disk.create("/data/a")
    disk.sync_directory("/data")
    model = bytearray()
    states = [b""]
    for kind, position, content in steps:
        if kind == "write":
            disk.write(file, "/data/a", [content], position)
            model.extend(bytes(max(0, position - len(model))))
            model[position : position + len(content)] = content
        elif kind == "truncate":
            disk.truncate(file, position)
            model = model[:position] + bytearray(max(0, position - len(model)))
        else:
            file.pending.clear()
            states.clear()
        assert file.data == model
        states.append(bytes(model))
    report = disk.lose_power(random.Random(seed), Loss.UNSYNCED)
    after = bytes(disk.file("/data/a").data)
    if not any("torn" in line for line in report):
        assert after in states
    assert disk.used_bytes == len(after)
