"""What a log's files say after a power loss or damage: V23 (whose records they are), V68."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.log import TOPIC_ID, TP, LogHarness, append, directory_of

from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.types import ZERO_TOPIC_ID, topic_id_to_text
from tidelog.log.config import LogConfig


@pytest.mark.rule("V23")
def test_records_keep_their_topic_when_a_power_loss_takes_its_id(tmp_path: Path) -> None:
    """Else they would pass for records of the next topic of that name."""
    harness = LogHarness(tmp_path)
    append(harness.log(), [b"a"])
    (harness.log_path / "partition.metadata").write_bytes(b"")
    log = harness.again()
    assert log.topic_id == TOPIC_ID and log.log_end_offset == 1
    (harness.path / "new-replicas").unlink(missing_ok=True)
    assert harness.again().topic_id == TOPIC_ID


@pytest.mark.rule("V23")
def test_a_creation_cut_short_takes_no_earlier_topic(tmp_path: Path) -> None:
    """Its own note comes after its directory; before that it takes back the earlier note."""
    harness = LogHarness(tmp_path)
    directory = directory_of(harness.log())
    directory.delete(TP).result()
    other_id = bytes(range(21, 37))
    append(directory.create(TP, other_id, LogConfig()).result(), [b"a"])
    notes = harness.path / "new-replicas"
    lines = [line for line in notes.read_text().splitlines() if topic_id_to_text(other_id) in line]
    notes.write_text(notes.read_text().replace(lines[0], ""))
    (harness.log_path / "partition.metadata").write_bytes(b"")
    assert harness.open().logs[TP].topic_id == ZERO_TOPIC_ID


@pytest.mark.rule("V23", "D3")
@pytest.mark.parametrize("has_files", [True, False])
def test_a_replica_without_records_keeps_its_topic(tmp_path: Path, has_files: bool) -> None:
    """The only member of an ISR would be lost, and no replica could lead."""
    harness = LogHarness(tmp_path)
    harness.log()
    (harness.log_path / "partition.metadata").write_bytes(b"")
    if not has_files:
        for path in harness.log_path.iterdir():
            path.unlink()
    log = harness.open().logs[TP]
    assert (log.topic_id, log.log_end_offset) == (TOPIC_ID, 0)


@pytest.mark.rule("V68")
def test_a_base_offset_beyond_its_segment_is_damage(tmp_path: Path) -> None:
    """No checksum covers it: a reader would be answered with nothing, again and again."""
    harness = LogHarness(tmp_path)
    log = harness.log()
    append(log, [b"a" * 100])
    append(log, [b"b" * 100])
    path = Path(log.active_segment.file.path)
    content = path.read_bytes()
    path.write_bytes(content[:6] + b"\x10" + content[7:])
    with pytest.raises(KafkaError) as caught:
        log.read(0, 1, log.log_end_offset, min_one_batch=True).result()
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE
    assert log.damage is not None and log.damage.offset == 0


@pytest.mark.rule("V68")
def test_a_leader_epoch_that_the_next_batch_contradicts_ends_a_log(tmp_path: Path) -> None:
    """No checksum covers it: after a crash, the broker would take its store for an older one."""
    harness = LogHarness(tmp_path)
    log = harness.log()
    for _ in range(4):
        append(log, [b"a"], epoch=3)
    path = Path(log.active_segment.file.path)
    data = bytearray(path.read_bytes())
    size = len(data) // 4
    data[size + 12 : size + 16] = (3 + 2048).to_bytes(4, "big")
    path.write_bytes(data)
    log = harness.again()
    assert (log.log_end_offset, log.epochs.latest_epoch) == (1, 3)
