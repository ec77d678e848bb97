"""The recorder: what it writes can be read and judged, whatever became of the operations."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tidelog.history import read_history
from tidelog.testing import HistoryRecorder


@pytest.fixture
def recorder(tmp_path: Path) -> HistoryRecorder:
    return HistoryRecorder(str(tmp_path / "history.jsonl"))


def test_what_was_recorded_is_judged(recorder: HistoryRecorder) -> None:
    recorder.assigned("c", "t", {0: 0})
    recorder.sent(recorder.send("p", "t", 0, "a", idempotent=True), 0)
    recorder.send("p", "t", 0, "b", idempotent=True).fail("refused")
    with recorder.poll("c", "t") as told:
        told.setdefault(0, []).append((0, "a"))
    report = recorder.assert_sound()
    assert (report.operations, report.sent_records, report.polled_records) == (4, 2, 1)


def test_an_anomaly_is_an_error_with_the_lines(recorder: HistoryRecorder) -> None:
    recorder.sent(recorder.send("p", "t", 0, "a", idempotent=True), 0)
    with pytest.raises(AssertionError, match=r"unseen: t-0: 'a' was .* \(lines 1\)"):
        recorder.assert_sound()
    assert recorder.check(has_final_read=False).is_sound


def test_what_has_not_ended_is_not_known(recorder: HistoryRecorder) -> None:
    recorder.send("p", "t", 0, "a", idempotent=True)
    recorder.close()
    recorder.close()
    with open(recorder.path, "rb") as lines:
        ((_, operation),) = read_history(lines)
    assert (operation.outcome, operation.end) == ("info", None)


def test_a_poll_that_raises_keeps_what_it_had(recorder: HistoryRecorder) -> None:
    recorder.send("p", "t", 0, "a", idempotent=True).info("timed out")
    with pytest.raises(RuntimeError), recorder.poll("c", "t") as told:
        told[0] = [(0, "a")]
        raise RuntimeError("the client broke")
    report = recorder.assert_sound()
    assert report.polled_records == 1
    with open(recorder.path, "rb") as lines:
        assert [each.note for _, each in read_history(lines)] == [
            "timed out", "RuntimeError('the client broke')",
        ]  # fmt: skip


def test_an_operation_ends_once(recorder: HistoryRecorder) -> None:
    begun = recorder.send("p", "t", 0, "a", idempotent=True)
    begun.fail("refused")
    with pytest.raises(ValueError, match="has ended before"):
        begun.info("late")


def test_an_operation_ends_after_it_begins(recorder: HistoryRecorder) -> None:
    begun = recorder.send("p", "t", 0, "a", idempotent=True)
    recorder.sent(begun, None)
    assert begun.operation.end is not None
    assert begun.operation.end >= begun.operation.begin > 0


def test_threads_record_side_by_side(recorder: HistoryRecorder) -> None:
    def act(process: str, partition: int) -> None:
        for number in range(200):
            begun = recorder.send(process, "t", partition, f"{process} {number}", idempotent=True)
            recorder.sent(begun, number)
            with recorder.poll(f"reader of {process}", "t") as told:
                told[partition] = [(number, f"{process} {number}")]

    threads = [threading.Thread(target=act, args=(f"p{n}", n)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    report = recorder.assert_sound()
    assert (report.operations, report.acknowledged_records) == (1600, 800)
