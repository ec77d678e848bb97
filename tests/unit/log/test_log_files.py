"""The small files of a log, byte by byte as Kafka has them, and what damage does to them."""

from __future__ import annotations

import struct

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from tidelog.core.types import CleanEpochs, TopicPartition
from tidelog.log import names
from tidelog.log.checkpoints import (
    DamagedCheckpoint,
    format_leader_epochs,
    format_offsets,
    parse_leader_epochs,
    parse_offsets,
)
from tidelog.log.directory_files import (
    format_clean_shutdown,
    format_meta_properties,
    format_partition_metadata,
    parse_clean_shutdown,
    parse_meta_properties,
    parse_partition_metadata,
)
from tidelog.log.index import DamagedIndex, OffsetIndex, TimeIndex

# indexes


def test_an_offset_index_is_kafkas_bytes() -> None:
    index = OffsetIndex(100)
    index.append(105, 4200)
    index.append(131, 9000)
    assert index.to_bytes() == struct.pack(">iiii", 5, 4200, 31, 9000)
    again = OffsetIndex.from_bytes(100, index.to_bytes(), 10_000)
    assert again.entries() == [(105, 4200), (131, 9000)]


def test_a_time_index_is_kafkas_bytes() -> None:
    index = TimeIndex(100)
    index.append(5000, 105)
    index.append(5000, 110)
    index.append(4000, 111)
    index.append(6000, 131)
    assert index.to_bytes() == struct.pack(">qiqi", 5000, 5, 6000, 31)
    assert TimeIndex.from_bytes(100, index.to_bytes()).entries() == [(5000, 105), (6000, 131)]


def test_zeros_at_the_end_of_an_index_are_no_entries() -> None:
    """Kafka makes the files of a segment that it writes full size."""
    offsets = OffsetIndex.from_bytes(0, struct.pack(">ii", 5, 42) + bytes(80), 100)
    assert offsets.entries() == [(5, 42)]
    times = TimeIndex.from_bytes(0, struct.pack(">qi", 5, 4) + bytes(120))
    assert times.entries() == [(5, 4)]


@given(steps=st.lists(st.tuples(st.integers(1, 5), st.integers(1, 500)), max_size=40))
def test_an_index_finds_the_last_batch_that_does_not_lie_behind(
    steps: list[tuple[int, int]],
) -> None:
    index = OffsetIndex(10)
    entries = []
    offset, position = 9, 0
    for more_offsets, more_bytes in steps:
        offset += more_offsets
        position += more_bytes
        index.append(offset, position)
        entries.append((offset, position))
    for wanted in range(5, offset + 3):
        expected = max([at for last, at in entries if last <= wanted], default=0)
        assert index.floor(wanted) == expected
    for limit in range(0, position + 10, 7):
        starts = [at for _, at in entries if at <= limit]
        assert index.batch_start_before(limit, 3) == max([3, *starts])
    assert index.last_position() == position
    assert len(OffsetIndex.from_bytes(10, index.to_bytes(), position + 1)) == len(entries)
    if entries:
        index.truncate_to(entries[-1][0])
        assert index.entries() == entries[:-1]
        assert index.last_offset() == (entries[-2][0] if len(entries) > 1 else 10)


def test_a_time_index_tells_where_to_start_looking() -> None:
    index = TimeIndex(0)
    for timestamp_ms, offset in [(100, 4), (200, 9), (300, 12)]:
        index.append(timestamp_ms, offset)
    assert [index.floor(t) for t in (50, 100, 101, 200, 250, 999)] == [0, 0, 4, 4, 9, 12]
    assert index.last() == (300, 12)
    index.truncate_to(12)
    assert index.last() == (200, 9)
    assert TimeIndex(7).last() == (-1, 7)


@pytest.mark.parametrize(
    ("data", "log_bytes"),
    [
        (b"1234567", 100),
        (struct.pack(">iiii", 5, 42, 5, 50), 100),
        (struct.pack(">iiii", 5, 42, 6, 42), 100),
        (struct.pack(">iiii", 0, 0, 6, 42) + struct.pack(">ii", 3, 50), 100),
        (struct.pack(">ii", 5, 100), 100),
        (struct.pack(">ii", -5, 10), 100),
    ],
)
def test_a_damaged_offset_index_is_found(data: bytes, log_bytes: int) -> None:
    with pytest.raises(DamagedIndex):
        OffsetIndex.from_bytes(0, data, log_bytes)


@pytest.mark.parametrize(
    "data", [b"12345", struct.pack(">qiqi", 5, 4, 5, 6), struct.pack(">qiqi", 5, 4, 6, 3)]
)
def test_a_damaged_time_index_is_found(data: bytes) -> None:
    with pytest.raises(DamagedIndex):
        TimeIndex.from_bytes(0, data)


@given(st.binary(max_size=100))
def test_any_bytes_give_an_index_or_damaged_index(data: bytes) -> None:
    for read in (
        lambda: OffsetIndex.from_bytes(3, data, 50),
        lambda: TimeIndex.from_bytes(3, data),
    ):
        try:
            read()
        except DamagedIndex:
            continue


# checkpoints


def test_checkpoints_are_kafkas_text() -> None:
    assert format_leader_epochs([(0, 0), (3, 17)]) == b"0\n2\n0 0\n3 17\n"
    offsets = {TopicPartition("a-b", 0): 5, TopicPartition("c", 12): 0}
    assert format_offsets(offsets) == b"0\n2\na-b 0 5\nc 12 0\n"
    assert parse_leader_epochs(b"0\n2\n0 0\n3 17\n") == [(0, 0), (3, 17)]
    assert parse_offsets(format_offsets(offsets)) == offsets
    assert parse_offsets(b"") == {} and parse_leader_epochs(b"0\n0\n") == []


@pytest.mark.parametrize(
    "data",
    [
        b"\n",
        b"1\n0\n",
        b"0\n",
        b"0\nx\n",
        b"0\n2\na 0 5\n",
        b"0\n1\na 0 5\nb 0 6\n",
        b"0\n1\na 0\n",
        b"0\n1\na 0 -5\n",
        b"0\n1\na 0 99999999999999999999\n",
        b"0\n1\na 9999999999 1\n",
        "0\n1\na 0 \u0663\n".encode(),
        b"0\n1\na 0 \xff\n",
    ],
)
def test_a_damaged_offset_checkpoint_is_found(data: bytes) -> None:
    with pytest.raises(DamagedCheckpoint):
        parse_offsets(data)


@pytest.mark.parametrize(
    "data", [b"0\n1\n5\n", b"0\n2\n1 0\n1 5\n", b"0\n2\n1 5\n2 5\n", b"0\n1\n-1 0\n"]
)
def test_a_damaged_epoch_checkpoint_is_found(data: bytes) -> None:
    with pytest.raises(DamagedCheckpoint):
        parse_leader_epochs(data)


@given(st.binary(max_size=60))
def test_any_bytes_give_entries_or_damaged_checkpoint(data: bytes) -> None:
    for parse in (parse_offsets, parse_leader_epochs):
        try:
            entries = parse(data)
        except DamagedCheckpoint:
            continue
        assert len(entries) <= data.count(b"\n") + 1


# whose it is


def test_metadata_files_are_kafkas_text() -> None:
    topic_id = bytes(range(1, 17))
    text = format_partition_metadata(topic_id)
    assert text == b"version: 0\ntopic_id: AQIDBAUGBwgJCgsMDQ4PEA\n"
    assert parse_partition_metadata(text) == topic_id
    epochs = CleanEpochs(42, (17, 30))
    marker = format_clean_shutdown(epochs)
    assert marker == b'{"version":0,"brokerEpoch":42,"earlierEpochs":[17,30]}'
    assert parse_clean_shutdown(marker) == epochs
    kafkas = b'{"brokerEpoch":42,"version":0,"more":1}'
    assert parse_clean_shutdown(kafkas) == CleanEpochs(42)
    owner = parse_meta_properties(format_meta_properties("c1", 3))
    assert (owner.cluster_id, owner.broker_id) == ("c1", 3)
    owner = parse_meta_properties(b"#x\n#date\nnode.id=4\nversion=1\ncluster.id=c\n")
    assert (owner.cluster_id, owner.broker_id) == ("c", 4)
    assert parse_meta_properties(b"version=0\n") == (None, None, -1, ())


@pytest.mark.parametrize(
    "data",
    [b"", b"version: 1\ntopic_id: x\n", b"version: 0\ntopic_id: short\n", b"version: 0\nid: x",
     b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA\n", b"\xff\xff"],
)  # fmt: skip
def test_damaged_partition_metadata_is_found(data: bytes) -> None:
    with pytest.raises(ValueError):
        parse_partition_metadata(data)


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"{}", b'{"brokerEpoch":"1"}', b'{"brokerEpoch":-2}', b"[" * 5000,
             b'{"brokerEpoch":4,"earlierEpochs":[null]}', b'{"brokerEpoch":4,"earlierEpochs":null}',
             b'{"brokerEpoch":true}', b'{"brokerEpoch":1.5}', b"\xff"]
)  # fmt: skip
def test_a_damaged_clean_marker_proves_nothing(data: bytes) -> None:
    with pytest.raises(ValueError):
        parse_clean_shutdown(data)


@pytest.mark.parametrize("data", [b"version=2\n", b"broker.id=x\nversion=0", b"\xff\xfe"])
def test_damaged_meta_properties_are_found(data: bytes) -> None:
    with pytest.raises(ValueError):
        parse_meta_properties(data)


# names


def test_directories_are_named_as_kafka_names_them() -> None:
    assert names.directory_name(TopicPartition("a.b-c_d", 12)) == "a.b-c_d-12"
    assert names.parse_directory_name("a.b-c_d-12") == TopicPartition("a.b-c_d", 12)
    assert names.offset_name(42, ".log") == "00000000000000000042.log"
    assert names.parse_offset_name("00000000000000000042.log") == (42, ".log")


@pytest.mark.parametrize(
    "name", ["", "a", "-1", "a-", "a-x", "a-01", "a-99999999999", "a/b-1", "..-1", "a b-1",
             "a-\u0661", "recovery-point-offset-checkpoint", "a-0.0123-delete"]
)  # fmt: skip
def test_other_names_are_no_partitions(name: str) -> None:
    assert names.parse_directory_name(name) is None


@pytest.mark.parametrize("topic", ["", ".", "..", "a/b", "a\0b", "ä", "x" * 250, "a b"])
def test_no_forbidden_topic_reaches_a_path(topic: str) -> None:
    with pytest.raises(ValueError):
        names.directory_name(TopicPartition(topic, 0))


def test_names_of_what_is_set_aside_tell_what_and_when() -> None:
    name = names.aside_name(TopicPartition("t" * 249, 3), 1_700_000_000_000, 5, "-delete")
    assert len(name) == 255
    parsed = names.parse_aside_name(name)
    assert parsed is not None
    assert (parsed.since_ms, parsed.suffix) == (1_700_000_000_000, "-delete")
    short = names.aside_name(TopicPartition("t", 3), 1, 5, "-stray")
    assert names.parse_aside_name(short) == ("t-3", 1, "-stray")
    assert names.parse_aside_name("t-3") is None


# snapshots are tested with the producers; their header here


def test_a_snapshot_is_kafkas_bytes() -> None:
    from tidelog.log.producer_state import BatchMetadata, ProducerEntry, ProducerState

    state = ProducerState()
    state._entries[7] = ProducerEntry(2, (BatchMetadata(9, 109, 4, 5000),), 5000, 3, 105)
    entry = struct.pack(">qhiqiqiq", 7, 2, 9, 109, 4, 5000, 3, 105)
    body = struct.pack(">i", 1) + entry
    assert state.to_snapshot() == struct.pack(">hI", 1, crc32c(body)) + body
