"""Faults of log directories: what fails, what goes on, and when they hold."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from tidelog.runtime.disk_faults import (
    DEVICE_ERRORS,
    FAIL,
    FILL,
    SLOW,
    DiskFault,
    DiskFaultControl,
    DiskFaults,
    FaultyFiles,
)
from tidelog.runtime.files import CallError

Act = Callable[[FaultyFiles, str], object]


def opened(files: FaultyFiles, root: str) -> object:
    return files.open(f"{root}/new", write=True, create=True)


def written(files: FaultyFiles, root: str) -> object:
    return files.pwritev(files.open(f"{root}/log", write=True, create=True), [b"x"], 0)


def read(files: FaultyFiles, root: str) -> object:
    return files.pread(files.open(f"{root}/old"), 3, 0)


def read_cached(files: FaultyFiles, root: str) -> object:
    return files.pread_cached(files.open(f"{root}/old"), 3, 0)


def truncated(files: FaultyFiles, root: str) -> None:
    files.truncate(files.open(f"{root}/old", write=True), 1)


def synced(files: FaultyFiles, root: str) -> None:
    files.fsync(files.open(f"{root}/old"))


ACTS: list[Act] = [
    opened,
    written,
    read,
    read_cached,
    truncated,
    synced,
    lambda files, root: files.fsync_directory(root),
    lambda files, root: files.sync_volume(root),
    lambda files, root: files.rename(f"{root}/old", f"{root}/renamed"),
    lambda files, root: files.unlink(f"{root}/old"),
    lambda files, root: files.mkdir(f"{root}/made"),
    lambda files, root: files.remove_tree(f"{root}/none"),
    lambda files, root: files.listdir(root),
    lambda files, root: files.exists(f"{root}/old"),
    lambda files, root: files.read_file(f"{root}/old"),
    lambda files, root: files.replace_file(f"{root}/old", b"y", sync=True),
    lambda files, root: files.volume_size(root),
]


class Broken:
    """A log directory with one file, and the side that breaks it."""

    def __init__(self, place: Path) -> None:
        self.root = str(place / "data")
        (place / "data").mkdir()
        (place / "data" / "old").write_bytes(b"abc")
        self.path = str(place / "faults")
        self.control = DiskFaultControl(self.path)
        self.files = FaultyFiles(self.root, DiskFaults(self.path))

    def put(self, fault: DiskFault | None) -> None:
        self.control.put(self.root, fault)


@pytest.fixture
def broken(tmp_path: Path) -> Broken:
    return Broken(tmp_path)


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("error", DEVICE_ERRORS)
def test_every_operation_of_a_failed_directory_fails(broken: Broken, act: Act, error: str) -> None:
    broken.put(DiskFault(FAIL, error))
    with pytest.raises(CallError) as raised:
        act(broken.files, broken.root)
    assert raised.value.errno == getattr(errno, error)
    assert str(raised.value.filename).startswith(broken.root)


@pytest.mark.parametrize("act", ACTS)
def test_without_a_fault_and_after_it_everything_works(broken: Broken, act: Act) -> None:
    broken.put(DiskFault(FAIL))
    broken.put(None)
    act(broken.files, broken.root)
    assert broken.control.faults() == {}


def test_a_full_directory_takes_nothing_more_and_gives_back_what_it_has(broken: Broken) -> None:
    broken.put(DiskFault(FILL))
    for act in (written, *ACTS[10:11], ACTS[15]):
        with pytest.raises(CallError) as raised:
            act(broken.files, broken.root)
        assert raised.value.errno == errno.ENOSPC
    assert broken.files.volume_size(broken.root).usable_bytes == 0
    assert read(broken.files, broken.root) == b"abc"
    truncated(broken.files, broken.root)
    broken.files.unlink(f"{broken.root}/old")


def test_a_slow_directory_reads_beside_the_cache_and_does_what_it_is_asked(broken: Broken) -> None:
    broken.put(DiskFault(SLOW, delay_ms=1))
    assert read_cached(broken.files, broken.root) is None
    assert read(broken.files, broken.root) == b"abc"
    assert written(broken.files, broken.root) == 1


def test_a_fault_is_that_of_one_directory_and_outlives_the_broker(
    broken: Broken, tmp_path: Path
) -> None:
    broken.control.put("/elsewhere", DiskFault(FAIL))
    read(broken.files, broken.root)
    broken.put(DiskFault(FAIL, "EROFS"))
    again = FaultyFiles(broken.root, DiskFaults(broken.path))
    with pytest.raises(CallError):
        read(again, broken.root)
    assert broken.control.faults() == {
        "/elsewhere": DiskFault(FAIL),
        broken.root: DiskFault(FAIL, "EROFS"),
    }


def test_a_fault_holds_after_however_many_changes(broken: Broken) -> None:
    """The counter of changes is one byte."""
    for _ in range(600):
        broken.put(DiskFault(FAIL))
        broken.put(None)
    read(broken.files, broken.root)
    broken.put(DiskFault(FAIL))
    with pytest.raises(CallError):
        read(broken.files, broken.root)
