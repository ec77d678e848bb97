"""Rules V23, V34 and V35 on a full disk: what cannot leave its directory is not built upon."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from tests.support.log import TOPIC_ID, TP, LogHarness, append, directory_of, drive, values_of

from tidelog.core.errors import StorageError
from tidelog.core.types import CleanEpochs, TopicId
from tidelog.log.config import LogConfig
from tidelog.log.log_directory import LogDirectory
from tidelog.log.replica_departures import RETRY_MS

OLD = [b"a", b"b", b"c"]
NEXT_ID = TopicId(bytes([9] * 16))
CLEAN = ".kafka_cleanshutdown"


@pytest.fixture
def harness(tmp_path: Path) -> LogHarness:
    return LogHarness(tmp_path)


def fill_disk(harness: LogHarness) -> None:
    """No file grows, and no name is written."""
    harness.files.refuse = lambda call, path: (
        errno.ENOSPC if call in ("replace_file", "rename") and "topic-0" in path else 0
    )


def make_room(harness: LogHarness) -> None:
    harness.space_returns()


def refused(harness: LogHarness, *, is_stray: bool) -> LogDirectory:
    """A directory whose replica of the old topic had to leave while the disk was full."""
    log = harness.log()
    for value in OLD:
        append(log, [value])
    directory = directory_of(log)
    fill_disk(harness)
    leaving = directory.set_aside(TP, 2) if is_stray else directory.delete(TP)
    assert isinstance(leaving.error, StorageError) and leaving.error.is_full
    assert TP not in directory.logs and directory.failure is None
    return directory


def stray_values(directory: LogDirectory) -> list[bytes | None]:
    """Restore the one stray; return its records."""
    (found,) = drive(directory.stray_replicas.look())
    assert found.topic_id == TOPIC_ID
    recovered = drive(directory.stray_replicas.recover(found, LogConfig()))
    return values_of(drive(directory.stray_replicas.put_back(recovered, LogConfig())))


@pytest.mark.rule("V23", "V35")
@pytest.mark.parametrize("is_stray", [True, False])
def test_a_new_topics_replica_never_begins_with_records_of_the_old_one(
    harness: LogHarness, is_stray: bool
) -> None:
    directory = refused(harness, is_stray=is_stray)
    made = directory.create(TP, NEXT_ID, LogConfig())
    assert isinstance(made.error, StorageError) and made.error.is_full
    assert TP not in directory.logs and directory.failure is None
    make_room(harness)
    made = directory.create(TP, NEXT_ID, LogConfig())
    assert made.error is None
    log = made.result()
    assert log.log_end_offset == 0
    assert (harness.log_path / "00000000000000000000.log").stat().st_size == 0
    append(log, [b"new"])
    again = harness.again()
    assert again.topic_id == NEXT_ID and values_of(again) == [b"new"]
    assert len(directory.strays) == (1 if is_stray else 0)
    assert len(list(harness.path.glob("topic-0.*"))) == 1


@pytest.mark.rule("V35")
def test_a_stray_that_a_full_disk_held_is_set_aside_later_with_all_that_it_had(
    harness: LogHarness,
) -> None:
    directory = refused(harness, is_stray=True)
    harness.clock.advance(RETRY_MS)
    assert not directory.strays, "the disk is still full"
    make_room(harness)
    harness.clock.advance(RETRY_MS)
    (stray,) = directory.strays.values()
    assert stray.since_ms == harness.clock.wall_ms() - 2 * RETRY_MS, "its age counts from the start"
    assert stray_values(directory) == OLD


@pytest.mark.rule("V34")
def test_a_replica_whose_deletion_a_full_disk_refused_is_deleted_later(harness: LogHarness) -> None:
    directory = refused(harness, is_stray=False)
    make_room(harness)
    harness.clock.advance(RETRY_MS)
    assert not harness.log_path.exists()
    harness.clock.advance(LogConfig().file_delete_delay_ms)
    assert not list(harness.path.glob("topic-0*")) and not directory.strays


@pytest.mark.rule("V34", "E3")
def test_no_clean_end_is_claimed_over_a_replica_that_could_not_leave(harness: LogHarness) -> None:
    directory = refused(harness, is_stray=True)
    with pytest.raises(StorageError):
        drive(directory.close(CleanEpochs(4)))
    assert not (harness.path / CLEAN).exists()
    assert values_of(harness.again()) == OLD, "the next start finds it as it was"


@pytest.mark.rule("V34", "E3")
def test_a_clean_end_lets_it_leave_first(harness: LogHarness) -> None:
    directory = refused(harness, is_stray=True)
    make_room(harness)
    drive(directory.close(CleanEpochs(4)))
    assert (harness.path / CLEAN).exists()
    directory = harness.open()
    assert directory.logs == {} and stray_values(directory) == OLD


@pytest.mark.rule("V23")
def test_nothing_is_created_over_files_that_are_not_known(harness: LogHarness) -> None:
    directory = harness.open()
    harness.log_path.mkdir()
    (harness.log_path / "00000000000000000000.log").write_bytes(b"of another replica")
    for _ in range(2):
        made = directory.create(TP, NEXT_ID, LogConfig())
        assert isinstance(made.error, StorageError) and made.error.errno == errno.EEXIST
    assert directory.failure is None and TP not in directory.logs
    assert (harness.log_path / "00000000000000000000.log").read_bytes() == b"of another replica"


@pytest.mark.rule("V34")
@pytest.mark.parametrize("call", ["replace_file", "open"])
def test_a_creation_that_a_full_disk_interrupted_is_begun_again(
    harness: LogHarness, call: str
) -> None:
    directory = harness.open()
    harness.files.refuse = lambda name, path: (
        errno.ENOSPC if name == call and "topic-1" in path else 0
    )
    keys = [TP, TP._replace(partition=1)]
    wanted = [(key, TOPIC_ID, LogConfig()) for key in keys]
    assert isinstance(directory.create_many(wanted).error, StorageError)
    assert directory.logs == {}
    make_room(harness)
    logs = directory.create_many(wanted).result()
    assert [log.topic_partition for log in logs] == keys
    append(logs[0], [b"x"])
    assert values_of(harness.open().logs[TP]) == [b"x"]
