"""Rules that a log keeps with its files: the lazy epoch checkpoint (V39), failed fsyncs (D17)."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from tests.unit.log.conftest import Rig
from tests.unit.log.log_rig import append, drive, values_of

from tidelog.core.errors import StorageError

CHECKPOINT = "leader-epoch-checkpoint"


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def entries(rig: Rig) -> list[str]:
    """The entries of the checkpoint on the disk."""
    lines = (rig.log_path / CHECKPOINT).read_text().splitlines()
    assert int(lines[1]) == len(lines) - 2
    return lines[2:]


@pytest.mark.rule("V39")
def test_becoming_leader_touches_no_file(rig: Rig) -> None:
    log = rig.log()
    append(log, [b"a"], epoch=3)
    log.flush().result()
    rig.files.calls.clear()
    log.assign_epoch(4, log.log_end_offset)
    assert rig.files.calls == []
    assert log.epochs.latest_epoch == 4
    assert entries(rig) == ["3 0"]


@pytest.mark.rule("V39")
def test_the_recovery_point_moves_only_after_the_epochs_below_it_are_on_disk(rig: Rig) -> None:
    log = rig.log()
    append(log, [b"a"], epoch=3)
    append(log, [b"b"], epoch=5)
    rig.files.refuse = lambda call, path: (
        errno.ENOSPC if call == "replace_file" and path.endswith(CHECKPOINT) else 0
    )
    assert isinstance(log.flush().error, StorageError)
    assert log.recovery_point == 0
    rig.files.refuse = lambda call, path: 0
    rig.files.calls.clear()
    log.flush().result()
    assert log.recovery_point == 2
    assert entries(rig) == ["3 0", "5 1"]


@pytest.mark.rule("V39")
def test_epochs_that_no_checkpoint_holds_come_back_from_the_batches(rig: Rig) -> None:
    log = rig.log()
    append(log, [b"a"], epoch=3)
    append(log, [b"b", b"c"], epoch=5)
    assert not (rig.log_path / CHECKPOINT).exists() or entries(rig) == []
    again = rig.again()
    assert again.epochs.entries() == [(3, 0), (5, 1)]


@pytest.mark.rule("V39")
@pytest.mark.parametrize("start", [2, 3, 99])
def test_entries_at_or_beyond_the_end_of_the_log_are_dropped_on_load(rig: Rig, start: int) -> None:
    log = rig.log()
    append(log, [b"a", b"b"], epoch=3)
    drive(log.directory.close(broker_epoch=1))
    (rig.log_path / CHECKPOINT).write_text(f"0\n2\n3 0\n7 {start}\n")
    again = rig.again()
    assert again.epochs.latest_epoch == 3
    assert values_of(again) == [b"a", b"b"]


@pytest.mark.rule("D17")
def test_a_failed_fsync_is_never_repeated_as_if_it_had_worked(rig: Rig) -> None:
    log = rig.log()
    append(log, [b"a"])
    rig.files.refuse = lambda call, path: errno.EIO if call == "fsync" else 0
    error = log.flush().error
    assert isinstance(error, StorageError)
    assert error.is_device_failure
    assert log.directory.failure is error
    assert log.recovery_point == 0

    rig.files.refuse = lambda call, path: 0
    rig.files.calls.clear()
    assert log.flush().error is error
    assert rig.files.calls == []
    with pytest.raises(StorageError):
        drive(log.directory.close(broker_epoch=1))
    assert not (rig.path / ".kafka_cleanshutdown").exists()
