"""A log directory: whose it is, its replicas, deletions, strays, checkpoints."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.log import (
    NOW_MS,
    TOPIC_ID,
    TP,
    LogHarness,
    StepLane,
    append,
    batch_of,
    directory_of,
    drive,
    open_directory,
    values_of,
)

from tidelog.core.errors import ConfigError, ErrorCode, KafkaError, StorageError
from tidelog.core.types import CleanEpochs, TopicPartition
from tidelog.log.config import LogConfig
from tidelog.runtime.files import OsFiles

Small = Callable[..., LogConfig]
OTHER = TopicPartition("other", 3)


def test_a_new_directory_says_whose_it_is(harness: LogHarness) -> None:
    harness.open()
    text = (harness.path / "meta.properties").read_text()
    assert "broker.id=1" in text and "cluster.id=cluster" in text
    harness.open()


def test_a_directory_of_another_cluster_or_broker_is_refused(harness: LogHarness) -> None:
    harness.open()
    lane = StepLane(str(harness.path), OsFiles())
    with pytest.raises(ConfigError, match="cluster cluster, this broker to cluster another"):
        open_directory(lane, cluster_id="another")
    with pytest.raises(ConfigError, match="belongs to broker 1, this is broker 2"):
        open_directory(lane, broker_id=2)
    (harness.path / "meta.properties").write_text("version=9\n")
    with pytest.raises(ConfigError, match="version is '9'"):
        harness.open()


def test_strangers_are_left_alone_and_named(harness: LogHarness) -> None:
    harness.open()
    (harness.path / "notes").mkdir()
    (harness.path / "x.tmp").write_text("left by a crash")
    harness.open()
    assert (harness.path / "notes").is_dir() and not (harness.path / "x.tmp").exists()
    assert any("notes is no partition directory" in line for line in harness.tracer.lines)


# replicas


def test_replicas_are_made_together_with_one_sync_of_their_names(harness: LogHarness) -> None:
    directory = harness.open()
    harness.files.calls.clear()
    keys = [TopicPartition("t", number) for number in range(5)]
    logs = directory.create_many([(key, TOPIC_ID, LogConfig()) for key in keys]).result()
    assert [log.topic_partition for log in logs] == keys == list(directory.logs)
    syncs = [call for call in harness.files.calls if "sync" in call[0]]
    assert syncs == [
        ("fsync", str(harness.path / "new-replicas")),
        ("fsync_directory", str(harness.path)),
    ]
    assert sorted(harness.open().logs) == keys
    assert harness.open().logs[keys[2]].topic_id == TOPIC_ID


def test_a_replica_is_made_once_and_by_a_good_name(harness: LogHarness) -> None:
    directory = harness.open()
    directory.create(TP, TOPIC_ID, LogConfig()).result()
    with pytest.raises(ValueError, match="already"):
        directory.create(TP, TOPIC_ID, LogConfig())
    with pytest.raises(KafkaError) as caught:
        directory.create(TopicPartition("../etc", 0), TOPIC_ID, LogConfig())
    assert caught.value.code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_the_topic_id_is_durable_before_any_record_counts_as_such(harness: LogHarness) -> None:
    log = harness.log()
    append(log, [b"a"])
    harness.files.calls.clear()
    log.flush().result()
    replaced = [path for call, path in harness.files.calls if call == "replace_file"]
    assert str(harness.log_path / "partition.metadata") in replaced


@pytest.mark.rule("V34")
def test_a_deleted_replica_is_renamed_now_and_removed_later(harness: LogHarness) -> None:
    log = harness.log(LogConfig(file_delete_delay_ms=5000))
    append(log, [b"a"])
    directory = directory_of(log)
    directory.delete(TP).result()
    assert TP not in directory.logs and not harness.log_path.exists()
    (renamed,) = harness.path.glob("*-delete")
    assert renamed.name.startswith("topic-0.")
    harness.clock.advance(4999)
    assert renamed.exists()
    harness.clock.advance(1)
    assert not renamed.exists()
    for refused in (
        lambda: log.plan_leader_append(batch_of([b"b"]), 0, NOW_MS),
        lambda: log.truncate_to(0),
    ):
        with pytest.raises(KafkaError) as caught:
            refused()
        assert caught.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_deletion_that_was_interrupted_is_finished(harness: LogHarness) -> None:
    log = harness.log()
    append(log, [b"a"])
    directory_of(log).delete(TP).result()
    directory = harness.open()
    assert directory.logs == {} and list(harness.path.glob("*-delete"))
    harness.clock.advance(0)
    assert not list(harness.path.glob("*-delete"))


def test_a_replica_is_made_anew_after_its_deletion(harness: LogHarness) -> None:
    log = harness.log()
    append(log, [b"a"])
    directory = directory_of(log)
    harness.lane.eager = False
    log.flush()
    gone = directory.delete(TP)
    made = directory.create(TP, bytes([9] * 16), LogConfig())
    assert not made.done
    harness.lane.run()
    gone.result()
    new = made.result()
    assert new.log_end_offset == 0 and directory.logs[TP] is new
    assert harness.open().logs[TP].topic_id == bytes([9] * 16)


def test_what_was_planned_for_a_deleted_replica_fails(harness: LogHarness) -> None:
    log = harness.log()
    completion = log.plan_leader_append(batch_of([b"a"]), 0, NOW_MS)
    directory_of(log).delete(TP).result()
    assert isinstance(completion.error, KafkaError)
    assert completion.error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_an_append_under_way_ends_before_its_replica_goes(harness: LogHarness) -> None:
    log = harness.log()
    harness.lane.slow_disk = True
    written = log.plan_leader_append(batch_of([b"a"]), 0, NOW_MS)
    log.submit_planned()
    gone = directory_of(log).delete(TP)
    harness.lane.run()
    assert written.result().base_offset == 0
    gone.result()
    assert directory_of(log).failure is None


@pytest.mark.rule("V38")
def test_an_old_replica_of_that_name_leaves_nothing_in_the_checkpoints(harness: LogHarness) -> None:
    log = harness.log()
    for _ in range(3):
        append(log, [b"a"])
    directory = directory_of(log)
    log.flush().result()
    directory.checkpoint().result()
    directory.write_high_watermarks({TP: 3}).result()
    directory.delete(TP).result()
    directory.create(TP, TOPIC_ID, LogConfig()).result()
    for name in ("recovery-point", "replication"):
        assert "topic 0" not in (harness.path / f"{name}-offset-checkpoint").read_text()


# strays


@pytest.mark.rule("V35")
@pytest.mark.rule("V45")
def test_a_stray_is_kept_listed_and_restorable(harness: LogHarness) -> None:
    log = harness.log()
    append(log, [b"a"])
    directory = directory_of(log)
    directory.set_aside(TP).result()
    (stray,) = directory.strays.values()
    assert (stray.partition_name, stray.since_ms) == ("topic-0", NOW_MS)
    harness.clock.advance(5000)
    directory = harness.open()
    assert directory.logs == {}
    (again,) = directory.strays.values()
    assert again == stray, "its age survives a restart"
    assert directory.purge_strays(NOW_MS + 5000, 5001).result() == 0
    (harness.path / stray.name).rename(harness.log_path)
    assert values_of(harness.again()) == [b"a"]


@pytest.mark.rule("V35")
def test_an_old_stray_is_purged(harness: LogHarness) -> None:
    log = harness.log()
    directory = directory_of(log)
    directory.set_aside(TP).result()
    assert directory.purge_strays(NOW_MS + 99, 100).result() == 0
    assert directory.purge_strays(NOW_MS + 100, 100).result() == 1
    assert directory.strays == {} and not list(harness.path.glob("*-stray"))


def test_the_age_of_somebody_elses_stray_counts_from_now(harness: LogHarness) -> None:
    harness.open()
    name = "topic-1." + "f" * 32 + "-stray"
    (harness.path / name).mkdir()
    (harness.path / ("topic-2." + "0" * 32 + "-future")).mkdir()
    directory = harness.open()
    assert directory.strays[name].since_ms == NOW_MS and len(directory.strays) == 1


# checkpoints


@pytest.mark.rule("V34")
def test_high_watermarks_come_back_but_never_beyond_the_log(harness: LogHarness) -> None:
    log = harness.log()
    for _ in range(5):
        append(log, [b"a"])
    other = directory_of(log).create(OTHER, TOPIC_ID, LogConfig()).result()
    append(other, [b"b"])
    directory_of(log).write_high_watermarks(
        {TP: 4, OTHER: 99, TopicPartition("gone", 0): 7}
    ).result()
    text = (harness.path / "replication-offset-checkpoint").read_text()
    assert text == "0\n2\ntopic 0 4\nother 3 1\n"
    path = harness.path / "replication-offset-checkpoint"
    path.write_text("0\n2\ntopic 0 88\nother 3 1\n")
    directory = harness.open()
    assert directory.high_watermarks == {TP: 5, OTHER: 1}
    assert "topic 0 5" in path.read_text(), "what was lost is not claimed again"


@pytest.mark.rule("V34")
def test_a_replica_that_is_not_named_keeps_its_high_watermark(harness: LogHarness) -> None:
    log = harness.log()
    append(log, [b"a"])
    directory = directory_of(log)
    directory.create(OTHER, TOPIC_ID, LogConfig()).result()
    directory.write_high_watermarks({TP: 1, OTHER: 0}).result()
    directory.write_high_watermarks({OTHER: 0}).result()
    assert "topic 0 1" in (harness.path / "replication-offset-checkpoint").read_text()


@pytest.mark.rule("D1")
def test_an_idle_disk_is_written_to_from_time_to_time(harness: LogHarness) -> None:
    """Its failure would be noticed by nothing else."""
    log = harness.log()
    append(log, [b"a"])
    directory = directory_of(log)
    directory.write_high_watermarks({TP: 1}, 5_000).result()
    harness.files.calls.clear()
    harness.clock.advance(4_999)
    directory.write_high_watermarks({TP: 1}, 5_000).result()
    assert harness.files.calls == []
    harness.clock.advance(1)
    directory.write_high_watermarks({TP: 1}, 0).result()
    assert harness.files.calls == [], "the only directory of a broker"
    directory.write_high_watermarks({TP: 1}, 5_000).result()
    assert harness.files.calls
    harness.files.calls.clear()
    directory.write_high_watermarks({TP: 1}, 5_000).result()
    assert harness.files.calls == []


def test_an_unchanged_checkpoint_is_not_written_again(harness: LogHarness) -> None:
    log = harness.log()
    directory_of(log).checkpoint().result()
    harness.files.calls.clear()
    directory_of(log).checkpoint().result()
    assert harness.files.calls == []


def test_many_lowered_at_once_share_few_writes(harness: LogHarness) -> None:
    directory = harness.open()
    keys = [TopicPartition("t", number) for number in range(40)]
    directory.create_many([(key, TOPIC_ID, LogConfig()) for key in keys]).result()
    for log in directory.logs.values():
        for _ in range(4):
            append(log, [b"a"])
        log.flush().result()
    directory.checkpoint().result()
    harness.lane.eager = False
    done = [log.truncate_to(2) for log in directory.logs.values()]
    harness.files.calls.clear()
    harness.lane.run()
    for completion in done:
        completion.result()
    writes = [path for call, path in harness.files.calls if call == "replace_file"]
    assert 1 <= len(writes) <= 3
    text = (harness.path / "recovery-point-offset-checkpoint").read_text()
    assert all(f"t {number} 2\n" in text for number in range(40))


def test_a_checkpoint_written_while_lowering_does_not_undo_it(harness: LogHarness) -> None:
    log = harness.log()
    for _ in range(4):
        append(log, [b"a"])
    directory = directory_of(log)
    log.flush().result()
    directory.checkpoint().result()
    directory.write_high_watermarks({TP: 4}).result()
    harness.lane.eager = False
    cut = log.truncate_to(2)
    directory.write_high_watermarks({TP: 4})
    directory.checkpoint()
    harness.lane.run()
    cut.result()
    for name in ("recovery-point", "replication"):
        assert "topic 0 2" in (harness.path / f"{name}-offset-checkpoint").read_text()


def test_flushes_are_due_by_age(harness: LogHarness) -> None:
    log = harness.log(LogConfig(flush_ms=1000))
    append(log, [b"a"])
    directory_of(log).flush_due(NOW_MS + 999).result()
    assert log.recovery_point == 0
    directory_of(log).flush_due(NOW_MS + 1000).result()
    assert log.recovery_point == 1


def test_flushes_asked_for_together_share_one(harness: LogHarness) -> None:
    log = harness.log()
    append(log, [b"a"])
    harness.lane.eager = False
    first = log.flush()
    append(log, [b"b"])
    second, third = log.flush(), log.flush()
    assert second is third and second is not first
    harness.lane.run()
    first.result()
    second.result()
    assert log.recovery_point == 2
    assert harness.lane.names.count("flush") == 2
    harness.lane.eager = True
    log.flush().result()
    assert harness.lane.names.count("flush") == 2, "nothing to flush"


@pytest.mark.rule("E3")
def test_a_close_leaves_everything_for_a_clean_start(harness: LogHarness, small: Small) -> None:
    log = harness.log(small())
    for number in range(20):
        append(log, [bytes([65 + number]) * 60], epoch=number // 7)
    log.truncate_to(17).result()
    drive(directory_of(log).close(CleanEpochs(77)))
    names = {path.name for path in harness.log_path.iterdir()}
    for segment in log.segments:
        for suffix in ("log", "index", "timeindex"):
            assert f"{segment.base_offset:020d}.{suffix}" in names
    assert f"{17:020d}.snapshot" in names
    assert (harness.path / ".kafka_cleanshutdown").read_bytes() == (
        b'{"version":0,"brokerEpoch":77,"earlierEpochs":[]}'
    )
    assert "topic 0 17" in (harness.path / "recovery-point-offset-checkpoint").read_text()
    assert len(values_of(harness.again())) == 17


def test_a_replica_that_is_being_made_is_not_made_again(harness: LogHarness) -> None:
    directory = harness.open()
    harness.lane.eager = False
    first = directory.create(TP, TOPIC_ID, LogConfig())
    with pytest.raises(ValueError, match="already"):
        directory.create(TP, TOPIC_ID, LogConfig())
    harness.lane.run()
    assert directory.logs[TP] is first.result()


def test_the_log_says_how_the_directory_was_left(harness: LogHarness) -> None:
    def said() -> str:
        harness.open()
        return harness.tracer.lines[-1]

    assert said() == f"{harness.path}: a new log directory, with no partitions yet"
    assert said() == f"{harness.path}: 0 partitions loaded in 0 ms after an unclean shutdown"
    harness.open().create(TP, TOPIC_ID, LogConfig()).result()
    assert said() == f"{harness.path}: 1 partitions loaded in 0 ms after an unclean shutdown"
    drive(harness.open().close(CleanEpochs(1)))
    assert said() == f"{harness.path}: 1 partitions loaded in 0 ms after a clean shutdown"
    (harness.path / "meta.properties").unlink()
    assert "an unclean shutdown" in said(), "partitions without an owner are not new"
    assert set(harness.tracer.loggers) == {"log"}, "the tracer gives it Kafka's name"


def test_a_close_waits_for_the_disk_once_and_then_tells_of_it(
    harness: LogHarness, small: Small
) -> None:
    """A wait for each file would take minutes where there are thousands of logs."""
    directory = harness.open(small())
    logs = [
        directory.create(TP._replace(partition=number), TOPIC_ID, small()).result()
        for number in range(5)
    ]
    for log in logs:
        append(log, [b"x"] * 3)
    harness.files.calls.clear()
    drive(directory.close(CleanEpochs(77)))
    calls = harness.files.calls
    waits = [call for call, _ in calls if call in ("fsync", "sync_volume")]
    assert waits == ["sync_volume", "sync_volume"]
    synced = calls.index(("sync_volume", str(harness.path)))
    told = {"replication-offset-checkpoint", "recovery-point-offset-checkpoint"}
    told |= {"log-start-offset-checkpoint", "cleaner-offset-checkpoint", ".kafka_cleanshutdown"}
    before = {Path(path).name for _, path in calls[:synced]}
    assert "00000000000000000003.snapshot.tmp" in before and not before & told
    last = len(calls) - calls[::-1].index(("sync_volume", str(harness.path)))
    renamed = {Path(path).name for call, path in calls[synced:last] if call == "rename"}
    assert "00000000000000000003.snapshot.tmp" in renamed
    assert ("replace_file", str(harness.path / ".kafka_cleanshutdown")) in calls[last:]


def test_a_close_whose_files_do_not_reach_the_disk_leaves_no_marker(
    harness: LogHarness, small: Small
) -> None:
    directory = harness.open(small())
    append(directory.create(TP, TOPIC_ID, small()).result(), [b"x"])
    harness.files.refuse = lambda call, path: errno.EIO if call == "sync_volume" else 0
    with pytest.raises(StorageError, match="EIO"):
        drive(directory.close(CleanEpochs(77)))
    assert directory.failure is not None
    assert not (harness.path / ".kafka_cleanshutdown").exists()
    recovery_points = harness.path / "recovery-point-offset-checkpoint"
    assert not recovery_points.exists() or "topic 0 1" not in recovery_points.read_text()
