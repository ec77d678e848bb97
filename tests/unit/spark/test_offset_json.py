"""Offsets of a stream in the checkpoint."""

from __future__ import annotations

import json

import pytest

from tidelog.core.types import TopicPartition
from tidelog.spark.streaming.lag import lag_of
from tidelog.spark.streaming.offset_json import (
    CheckpointError,
    is_pinned,
    offsets_from_json,
    offsets_to_json,
)


def test_offsets_have_the_connectors_form_in_order() -> None:
    offsets = {
        TopicPartition("t", 10): 5,
        TopicPartition("t", 2): 0,
        TopicPartition("a.b-c_d", 0): 2**40,
    }
    text = json.dumps(offsets_to_json(offsets))
    assert text == '{"a.b-c_d": {"0": 1099511627776}, "t": {"2": 0, "10": 5}}'
    assert offsets_from_json(json.loads(text)) == offsets


def test_a_pinned_first_batch_is_marked_where_the_connector_reads_past_it() -> None:
    given = offsets_to_json({TopicPartition("t", 0): 7}, is_pinned=True)
    assert is_pinned(given)
    assert [entries for topic, entries in given.items() if topic != "t"] == [{}]
    assert offsets_from_json(given) == {TopicPartition("t", 0): 7}
    assert not is_pinned(offsets_to_json({TopicPartition("t", 0): 7}))


@pytest.mark.parametrize(
    "given",
    [3, [], {"t": 3}, {"t": {"x": 3}}, {"t": {"0": -1}}, {"t": {"0": "3"}}, {"t": {"0": True}}],
)
def test_other_offsets_are_an_error_that_shows_them(given: object) -> None:
    with pytest.raises(CheckpointError) as raised:
        offsets_from_json(given)
    assert repr(given) in str(raised.value)


def test_lag_is_what_the_batch_left_of_the_logs() -> None:
    lag = lag_of(
        {
            "sources": [
                {
                    "endOffset": {"t": {"0": 5, "1": 9}, "u": {"0": 3}},
                    "latestOffset": {"t": {"0": 8, "1": 9, "2": 4}, "u": {"0": 2}},
                },
                {"endOffset": '{"v": {"0": 1}}', "latestOffset": '{"v": {"0": 11}}'},
                {"endOffset": "0", "latestOffset": None},
                {"endOffset": {"logOffset": 4}, "latestOffset": {"logOffset": 4}},
            ]
        }
    )
    assert lag.by_partition == {
        TopicPartition("t", 0): 3,
        TopicPartition("t", 1): 0,
        TopicPartition("u", 0): 0,
        TopicPartition("v", 0): 10,
    }
    assert (lag.total, lag.largest) == (13, 10)
