"""The topic ids of new replicas: whatever a power loss takes, records keep their topic (V23)."""

from __future__ import annotations

import base64
import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.draws import examples
from tests.support.log import (
    TOPIC_ID,
    TP,
    LogHarness,
    SimLogHarness,
    append,
    directory_of,
    drive,
)

from tidelog.core.types import ZERO_TOPIC_ID, CleanEpochs, TopicPartition
from tidelog.log import new_replicas
from tidelog.log.config import LogConfig
from tidelog.runtime.files import OsFiles
from tidelog.sim.file_content import Loss

OTHER_ID = bytes(range(21, 37))
#: All that a power loss may do.
LOSSES = [loss for loss in Loss if loss is not Loss.NONE]
OTHER = TopicPartition("a-topic.with-0", 12)


def noted(harness: LogHarness) -> Path:
    return harness.path / "new-replicas"


def torn(harness: LogHarness) -> None:
    """Leave the replica's own topic id as a power loss does: the name without the content."""
    (harness.log_path / "partition.metadata").write_bytes(b"")


@pytest.mark.rule("V23")
def test_records_whose_own_topic_id_is_torn_keep_their_topic(harness: LogHarness) -> None:
    append(harness.log(), [b"a"])
    torn(harness)
    log = harness.again()
    assert log.topic_id == TOPIC_ID and log.log_end_offset == 1
    assert any("new-replicas has the topic id" in line for line in harness.tracer.lines)
    # The replica has its id itself now, before the note is gone.
    assert not noted(harness).exists()
    assert harness.again().topic_id == TOPIC_ID


@pytest.mark.rule("V23")
def test_records_whose_own_topic_id_is_missing_keep_their_topic(harness: LogHarness) -> None:
    append(harness.log(), [b"a"])
    (harness.log_path / "partition.metadata").unlink()
    assert harness.again().topic_id == TOPIC_ID


@pytest.mark.rule("V23")
def test_no_power_loss_takes_the_topic_of_a_record() -> None:
    kept = 0
    for seed, loss in itertools.product(range(30), LOSSES):
        harness = SimLogHarness(seed)
        log = harness.open().create(TP, TOPIC_ID, LogConfig()).result()
        append(log, [b"a"])
        append(log, [b"b"])
        harness.disk.lose_power(harness.draw, loss)
        for log in harness.open().logs.values():
            assert log.topic_id == TOPIC_ID
            kept += log.log_end_offset
    assert kept


@pytest.mark.rule("V23")
def test_the_last_topic_of_a_name_counts(harness: LogHarness) -> None:
    directory = directory_of(harness.log())
    directory.delete(TP).result()
    append(directory.create(TP, OTHER_ID, LogConfig()).result(), [b"a"])
    torn(harness)
    assert harness.again().topic_id == OTHER_ID


@pytest.mark.rule("V23")
def test_a_name_without_an_earlier_note_is_not_taken_back(harness: LogHarness) -> None:
    directory = directory_of(harness.log())
    before = noted(harness).read_bytes()
    directory.create(OTHER, OTHER_ID, LogConfig()).result()
    assert len(noted(harness).read_bytes()[len(before) + 1 :].splitlines()) == 1


@pytest.mark.rule("V23", "V35")
def test_a_restored_stray_is_noted_again(harness: LogHarness) -> None:
    append(harness.log(), [b"a"])
    directory = directory_of(harness.again())
    directory.set_aside(TP, 1).result()
    other = directory.create(TP, OTHER_ID, LogConfig()).result()
    directory_of(other).delete(TP).result()
    (found,) = drive(directory.stray_replicas.look())
    recovered = drive(directory.stray_replicas.recover(found, LogConfig()))
    drive(directory.stray_replicas.put_back(recovered, LogConfig()))
    torn(harness)
    assert harness.again().topic_id == TOPIC_ID


def test_a_clean_end_leaves_every_replica_its_topic_id(harness: LogHarness) -> None:
    log = harness.log()
    append(log, [b"a"])
    drive(directory_of(log).close(CleanEpochs(1)))
    noted(harness).unlink()
    assert harness.again().topic_id == TOPIC_ID


def test_notes_stay_until_every_partition_is_loaded(harness: LogHarness) -> None:
    """A start that meets damage ends; the next one needs the notes as much."""
    log = harness.log()
    append(log, [b"a"])
    log.flush().result()
    directory_of(log).checkpoint().result()
    segment = Path(log.active_segment.file.path)
    segment.write_bytes(segment.read_bytes()[:-1] + b"\xff")
    with pytest.raises(Exception, match="damaged at byte"):
        harness.open()
    assert new_replicas.parse(noted(harness).read_bytes()) == {TP: TOPIC_ID}


def test_a_large_file_starts_over_when_all_replicas_are_durable(
    harness: LogHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(new_replicas, "MAX_BYTES", 30)
    directory = directory_of(harness.log())
    harness.files.calls.clear()
    directory.create(OTHER, OTHER_ID, LogConfig()).result()
    calls = [call for call, path in harness.files.calls]
    assert calls.index("sync_volume") < calls.index("truncate")
    assert new_replicas.parse(noted(harness).read_bytes()) == {OTHER: OTHER_ID}


def test_lines_that_were_cut_short_are_skipped(tmp_path: Path) -> None:
    files, path = OsFiles(), tmp_path / "new-replicas"
    new_replicas.append(files, str(tmp_path), [(TP, TOPIC_ID)])
    path.write_bytes(path.read_bytes()[:-3])
    assert new_replicas.parse(path.read_bytes()) == {}
    new_replicas.append(files, str(tmp_path), [(OTHER, OTHER_ID), (TP, ZERO_TOPIC_ID)])
    assert new_replicas.parse(path.read_bytes()) == {OTHER: OTHER_ID, TP: ZERO_TOPIC_ID}


@examples(200)
@given(st.binary(max_size=200))
def test_any_content_is_read(data: bytes) -> None:
    whole = b"\nt-1 " + base64.urlsafe_b64encode(TOPIC_ID).rstrip(b"=")
    assert new_replicas.parse(data + whole)[TopicPartition("t", 1)] == TOPIC_ID
