"""What became of the partitions of a stream."""

from __future__ import annotations

from tidelog.core.types import TopicPartition
from tidelog.spark.streaming.log_changes import LogView, next_step, recreated_topics

A, B, NEW = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("t", 2)
OLD_ID, NEW_ID = bytes(15) + b"1", bytes(15) + b"2"
IDS = {"t": OLD_ID}


def test_a_stream_goes_to_the_ends_of_its_logs() -> None:
    step = next_step({A: 3, B: 5}, LogView({A: 10, B: 5}, IDS), set())
    assert (step.starts, step.ends, step.losses) == ({A: 3, B: 5}, {A: 10, B: 5}, [])


def test_a_new_partition_is_read_from_its_beginning() -> None:
    step = next_step({A: 3}, LogView({A: 3, NEW: 4}, IDS, {NEW: 0}), set())
    assert (step.starts, step.ends, step.losses) == ({A: 3, NEW: 0}, {A: 3, NEW: 4}, [])


def test_a_new_partition_that_has_lost_its_beginning_is_a_loss() -> None:
    step = next_step({A: 3}, LogView({A: 3, NEW: 9}, IDS, {NEW: 4}), set())
    assert step.starts[NEW] == 4
    assert step.losses == [
        "t-2 is new to the stream, and its log begins at 4, not at 0: records were deleted before"
        " they were read"
    ]


def test_a_deleted_topic_and_a_removed_partition_leave_the_stream() -> None:
    step = next_step({A: 3, B: 5}, LogView({A: 3}, IDS), set())
    assert step.ends == {A: 3}
    assert step.losses == ["t-1 is gone: it was removed after the stream had read up to 5"]
    step = next_step({A: 3}, LogView({}, {}), set())
    assert step.ends == {}
    assert step.losses == ["t-0 is gone: the topic was deleted after the stream had read up to 3"]


def test_a_recreated_topic_is_read_from_its_beginning_in_the_next_batch() -> None:
    recreated = recreated_topics(IDS, {"t": NEW_ID, "u": OLD_ID})
    assert recreated == {"t"}
    view = LogView({A: 150, NEW: 2}, {"t": NEW_ID}, {A: 0, NEW: 0})
    step = next_step({A: 100}, view, recreated)
    assert step.ends == {A: 0, NEW: 2}
    assert step.losses == [
        "topic 't' was deleted and recreated while the stream ran, which had read t-0 up to 100;"
        " the new log holds 0 to 150"
    ]
    assert next_step(step.ends, view, set()).ends == {A: 150, NEW: 2}


def test_ids_not_known_before_recreate_nothing() -> None:
    assert recreated_topics({}, {"t": NEW_ID}) == set()
    assert recreated_topics(IDS, {}) == set()


def test_a_log_that_ends_too_early_is_a_loss_and_the_stream_goes_on_at_its_end() -> None:
    step = next_step({A: 100}, LogView({A: 80}, IDS, {A: 0}), set())
    assert step.ends == {A: 80}
    assert step.losses == [
        "the stream has read t-0 up to 100, but its log ends at 80: the topic was recreated, or its"
        " log was truncated"
    ]


def test_deleted_records_are_a_loss() -> None:
    step = next_step({A: 10}, LogView({A: 80}, IDS, {A: 20}), set())
    assert step.ends == {A: 80}
    assert step.losses == [
        "the stream has read t-0 up to 10, but its log begins at 20: records were deleted before"
        " they were read"
    ]
