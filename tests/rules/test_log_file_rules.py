"""What a log's files say after a power loss or damage: V23 (whose records they are), V68."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.log import TOPIC_ID, LogHarness, append

from tidelog.core.errors import ErrorCode, KafkaError


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
