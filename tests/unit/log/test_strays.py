"""Replicas that were set aside: held back, removed, brought back, and crashes at any moment."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.support.log import (
    NOW_MS,
    TOPIC_ID,
    TP,
    LogHarness,
    SimLogHarness,
    append,
    directory_of,
    drive,
    values_of,
)

from tidelog.core.errors import ErrorCode, KafkaError, NodeDead, StorageError
from tidelog.core.types import TopicPartition
from tidelog.log.config import LogConfig
from tidelog.log.log_directory import LogDirectory
from tidelog.log.partition_log import PartitionLog
from tidelog.log.recovery_walk import DamagedLog
from tidelog.log.stray_replicas import STRAY_STATE, StrayState, format_state, parse_state
from tidelog.sim.file_content import Loss

VALUES = [b"a", b"b", b"c", b"d"]
STATE = StrayState(TopicPartition("t", 3), b"T" * 16, 7, 2, 5)


def restore(directory: LogDirectory, config: LogConfig | None = None) -> PartitionLog:
    """Bring the one stray back."""
    (found,) = drive(directory.stray_replicas.look())
    chosen = config or LogConfig()
    recovered = drive(directory.stray_replicas.recover(found, chosen))
    return drive(directory.stray_replicas.put_back(recovered, chosen))


def set_aside(harness: LogHarness) -> LogDirectory:
    log = harness.log()
    for value in VALUES:
        append(log, [value])
    directory_of(log).set_aside(TP, 3).result()
    return directory_of(log)


# the state


def test_a_state_is_read_as_it_was_written() -> None:
    assert parse_state(format_state(STATE)) == STATE


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ((b"{", b"["), "not JSON"),
        ((b'"version": 0', b'"version": 9'), "version 0"),
        ((b'"topic": "t"', b'"topic": "../t"'), "topic"),
        ((b'"partition": 3', b'"partition": -3'), "partition"),
        ((b'"recovery_point": 7', b'"recovery_point": "7"'), "recovery_point"),
        ((b'"high_watermark": 5', b'"high_watermark": 5.5'), "high_watermark"),
        ((b'"topic_id": "', b'"topic_id": 4, "x": "'), "topic_id"),
    ],
)
def test_a_damaged_state_says_what_is_wrong(change: tuple[bytes, bytes], what: str) -> None:
    data = format_state(STATE)
    assert change[0] in data
    with pytest.raises(ValueError, match=what):
        parse_state(data.replace(*change))


# the return


@pytest.mark.rule("V35")
def test_a_stray_comes_back_with_all_that_it_had(harness: LogHarness) -> None:
    log = harness.log()
    for value in VALUES:
        append(log, [value])
    log.advance_log_start(1)
    directory_of(log).set_aside(TP, 3).result()
    directory = harness.open()
    (found,) = drive(directory.stray_replicas.look())
    assert found.state is not None
    assert (found.topic_partition, found.topic_id) == (TP, TOPIC_ID)
    assert (found.state.high_watermark, found.state.log_start_offset) == (3, 1)
    assert found.size_bytes > 0
    back = restore(directory)
    assert values_of(back) == VALUES[1:]
    assert directory.logs[TP] is back and not directory.strays
    assert not (harness.log_path / STRAY_STATE).exists()
    assert append(back, [b"e"]) == 4
    assert values_of(harness.again()) == [*VALUES[1:], b"e"]


def test_one_that_does_not_say_how_far_it_was_flushed_stays(harness: LogHarness) -> None:
    directory = set_aside(harness)
    (stray,) = directory.strays.values()
    (harness.path / stray.name / STRAY_STATE).unlink()
    with pytest.raises(KafkaError, match="give the directory its name back") as raised:
        restore(directory)
    assert raised.value.code is ErrorCode.INVALID_REQUEST
    assert stray.name in directory.strays and (harness.path / stray.name).is_dir()


def test_one_that_contradicts_itself_stays(harness: LogHarness) -> None:
    directory = set_aside(harness)
    (stray,) = directory.strays.values()
    other = STATE._replace(topic_partition=TP, topic_id=b"O" * 16)
    (harness.path / stray.name / STRAY_STATE).write_bytes(format_state(other))
    with pytest.raises(KafkaError, match="contradicts itself"):
        restore(directory)
    assert directory.logs == {}


def test_one_that_is_damaged_where_it_was_flushed_stays_as_it_is(harness: LogHarness) -> None:
    log = harness.log()
    for value in VALUES:
        append(log, [value])
    log.flush().result()
    directory = directory_of(log)
    directory.set_aside(TP, 3).result()
    (stray,) = directory.strays.values()
    segment = harness.path / stray.name / f"{0:020d}.log"
    data = bytearray(segment.read_bytes())
    data[-1] ^= 1
    segment.write_bytes(data)
    with pytest.raises(DamagedLog):
        restore(directory)
    assert segment.read_bytes() == bytes(data)
    assert directory.failure is None and stray.name in directory.strays


@pytest.mark.parametrize("refused", ["pwritev", "rename", "unlink"])
def test_a_return_that_the_disk_refuses_leaves_the_stray_where_it_was(
    harness: LogHarness, refused: str
) -> None:
    directory = set_aside(harness)
    (stray,) = directory.strays.values()
    harness.files.refuse = lambda call, path: 28 if call == refused else 0
    with pytest.raises(StorageError):
        restore(directory)
    harness.files.refuse = lambda call, path: 0
    assert (harness.path / stray.name).is_dir() and not harness.log_path.exists()
    assert values_of(restore(directory)) == VALUES


def test_a_replica_that_is_there_is_never_replaced(harness: LogHarness) -> None:
    directory = set_aside(harness)
    directory.create(TP, TOPIC_ID, LogConfig()).result()
    with pytest.raises(ValueError, match="already"):
        restore(directory)


# crashes


def struck(strike_at: int, loss: Loss, seed: int) -> tuple[SimLogHarness, bool]:
    """A return that ends at a file call, after which the power may go, too; and whether it did."""
    harness = SimLogHarness(seed)
    log = harness.open().create(TP, TOPIC_ID, harness.config).result()
    for value in VALUES:
        append(log, [value])
    log.flush().result()
    directory_of(log).set_aside(TP, 3).result()
    harness.life.strike_at = harness.life.calls + strike_at
    died = False
    try:
        restore(directory_of(log))
    except NodeDead:
        died = True
    if loss is not Loss.NONE:
        harness.disk.lose_power(random.Random(seed), loss)
    return harness, died


@pytest.mark.rule("V35")
@pytest.mark.parametrize("loss", list(Loss))
def test_wherever_a_return_is_cut_off_the_records_are_there_once(loss: Loss) -> None:
    returned = []
    strike_at, died = 0, True
    while died:
        strike_at += 1
        harness, died = struck(strike_at, loss, seed=strike_at)
        directory = harness.open()
        returned.append(TP in directory.logs)
        assert len(directory.logs) + len(directory.strays) == 1, strike_at
        log = directory.logs.get(TP) or restore(directory)
        assert values_of(log) == VALUES, strike_at
    assert strike_at > 10
    assert not returned[0] and returned[-1]


# held strays, and the end


@pytest.mark.rule("V35")
def test_a_held_stray_outlives_its_time_and_a_restart(harness: LogHarness) -> None:
    directory = set_aside(harness)
    (name,) = directory.strays
    directory.hold_strays([name]).result()
    assert directory.purge_strays(NOW_MS + 10_000, 100).result() == 0
    directory = harness.open()
    assert directory.strays[name].is_held
    assert directory.purge_strays(NOW_MS + 10_000, 100).result() == 0
    assert directory.stray_replicas.remove([name]).result() == 1
    assert not list(harness.path.glob("topic-0*"))
    assert harness.open().strays == {}


def test_a_removal_that_is_cut_off_is_finished_at_the_next_start(harness: LogHarness) -> None:
    directory = set_aside(harness)

    def refuse(call: str, path: str) -> Any:
        return 5 if call == "remove_tree" else 0

    harness.files.refuse = refuse
    with pytest.raises(StorageError):
        directory.purge_strays(NOW_MS + 100, 100).result()
    assert harness.open().strays == {}
    harness.clock.advance(1)
    assert not list(harness.path.glob("topic-0*"))
