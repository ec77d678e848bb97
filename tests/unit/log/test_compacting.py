"""Compaction keeps the last record of each key, and offsets and sequences as they were."""

from __future__ import annotations

import asyncio
import errno
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.draws import FACTOR, examples
from tests.support.log import (
    NOW_MS,
    TOPIC_ID,
    TP,
    LogHarness,
    SimLogHarness,
    directory_of,
    drive,
)
from tests.unit.log.compacting import (
    Pair,
    Small,
    batches_of,
    clean,
    cleaner,
    pairs_of,
    put,
    rounds,
)

from tidelog.core.errors import StorageError
from tidelog.core.ports import Handle
from tidelog.core.types import TopicPartition
from tidelog.log.config import LogConfig
from tidelog.log.log_cleaner import Cleaner, CleanerSettings
from tidelog.log.partition_log import PartitionLog
from tidelog.records import compression
from tidelog.records.batch import iter_batches
from tidelog.records.builder import NewRecord, Producer, build_batch
from tidelog.records.control import COMMIT, build_end_marker
from tidelog.records.reader import iter_records


def test_the_last_record_of_each_key_stays_where_it_was(
    harness: LogHarness, compact: Small
) -> None:
    log = harness.log(compact())
    rounds(log, 10)
    active = log.active_segment.base_offset
    before = pairs_of(log)
    stats = clean(log, harness.clock)
    assert stats is not None and stats.end_offset == active and stats.keys == 4
    last = {key: offset for offset, key, _ in before if offset < active}
    kept = [row for row in before if row[0] >= active or last[row[1]] == row[0]]
    assert pairs_of(log) == kept
    assert log.size_bytes == sum(segment.size_bytes for segment in log.segments)
    assert log.log_end_offset == 40 and log.log_start_offset == 0


def test_a_second_run_has_nothing_to_do_until_there_is_more(
    harness: LogHarness, compact: Small
) -> None:
    log = harness.log(compact())
    rounds(log, 10)
    assert clean(log, harness.clock) is not None
    assert clean(log, harness.clock) is None
    rounds(log, 10)
    assert clean(log, harness.clock) is not None
    assert len({key for _, key, _ in pairs_of(log)}) == 4
    assert len(pairs_of(log)) == 4 + log.log_end_offset - log.active_segment.base_offset
    assert len(log.segments) < 10 + 9, "what had become small was merged"


def test_what_is_clean_is_written_down_and_known_again(harness: LogHarness, compact: Small) -> None:
    log = harness.log(compact())
    rounds(log, 10)
    stats = clean(log, harness.clock)
    assert stats is not None
    text = (harness.path / "cleaner-offset-checkpoint").read_text()
    assert text == f"0\n1\ntopic 0 {stats.end_offset}\n"
    left = pairs_of(log)
    again = harness.again()
    assert pairs_of(again) == left and again.log_end_offset == 40
    assert clean(again, harness.clock) is None


def test_nothing_at_or_above_the_high_watermark_goes(harness: LogHarness, compact: Small) -> None:
    log = harness.log(compact())
    rounds(log, 10)
    bound, untouched = log.base_offsets[3] + 1, log.base_offsets[3]
    before = pairs_of(log)
    assert drive(cleaner(harness.clock).clean_one([(log, bound)])) is not None
    assert directory_of(log).cleaner_offset(TP) == untouched
    # Four keys in each segment: below the bound those of the last one, above it all.
    assert pairs_of(log) == [row for row in before if row[0] >= log.base_offsets[2]]
    assert drive(cleaner(harness.clock).clean_one([(log, bound)])) is None


def test_a_segment_where_the_log_begins_is_not_compacted_beyond_the_high_watermark(
    harness: LogHarness, compact: Small
) -> None:
    log = harness.log(compact(delete_enabled=True, retention_ms=-1, min_cleanable_dirty_ratio=0.0))
    rounds(log, 10)
    base = log.base_offsets[3]
    log.advance_log_start(base + 1)
    before = pairs_of(log)
    # The records from the high watermark on may be cut off again: they displace none below it.
    assert drive(cleaner(harness.clock).clean_one([(log, base + 2)])) is None
    assert pairs_of(log) == before
    assert clean(log, harness.clock) is not None


def test_a_log_that_is_not_dirty_enough_waits(harness: LogHarness, compact: Small) -> None:
    log = harness.log(compact(min_cleanable_dirty_ratio=0.5))
    rounds(log, 10, keys=40)  # nothing superseded within one segment: it stays large
    assert clean(log, harness.clock) is not None
    size = log.size_bytes
    rounds(log, 1, keys=40)
    assert clean(log, harness.clock) is None or log.size_bytes <= size * 2
    log.config = compact(min_cleanable_dirty_ratio=0.0)
    rounds(log, 1, keys=40)
    assert clean(log, harness.clock) is not None


def test_young_records_wait_and_old_ones_are_overdue(harness: LogHarness, compact: Small) -> None:
    log = harness.log(compact(min_compaction_lag_ms=1000))
    rounds(log, 10)
    assert clean(log, harness.clock) is None
    harness.clock.advance(1001)
    assert clean(log, harness.clock) is not None
    log.config = compact(max_compaction_lag_ms=5000, min_cleanable_dirty_ratio=1.0)
    rounds(log, 10)
    assert clean(log, harness.clock) is None
    harness.clock.advance(5000)
    log = harness.again(log.config)  # whose ages are read from the disk
    assert clean(log, harness.clock) is not None


def test_a_segment_of_a_compacted_topic_is_rolled_before_its_records_are_overdue() -> None:
    assert LogConfig(compact_enabled=True, max_compaction_lag_ms=7).roll_ms == 7
    assert LogConfig(max_compaction_lag_ms=7).roll_ms == LogConfig().segment_ms


@pytest.mark.parametrize("codec", sorted(compression.NAMES))
def test_tombstones_stay_for_their_time_then_go(
    harness: LogHarness, compact: Small, codec: int
) -> None:
    log = harness.log(compact(delete_retention_ms=1000, min_cleanable_dirty_ratio=0.0))
    put(log, [(b"gone", b"1"), (b"kept", b"2")], codec=codec)
    put(log, [(b"gone", None), (b"kept", b"3"), (b"other", b"4")], codec=codec)
    rounds(log, 4)
    assert clean(log, harness.clock) is not None
    rows = pairs_of(log)
    assert (2, b"gone", None) in rows and (0, b"gone", b"1") not in rows
    batch = next(batch for batch in batches_of(log) if batch.base_offset == 2)
    assert batch.delete_horizon_ms == NOW_MS + 1000
    assert batch.compression == codec and batch.last_offset == 4
    assert [record.timestamp_ms for record in iter_records(batch)] == [
        NOW_MS,
        NOW_MS + 1,
        NOW_MS + 2,
    ]
    assert batch.max_timestamp == NOW_MS + 2
    harness.clock.advance(999)
    rounds(log, 4)
    assert clean(log, harness.clock) is not None
    assert (2, b"gone", None) in pairs_of(log)
    harness.clock.advance(1)
    rounds(log, 4)
    assert clean(log, harness.clock) is not None
    rows = pairs_of(log)
    assert not [row for row in rows if row[1] == b"gone"]
    assert (3, b"kept", b"3") in rows and (4, b"other", b"4") in rows
    batch = next(batch for batch in batches_of(log) if batch.base_offset == 2)
    assert batch.delete_horizon_ms == NOW_MS + 1000  # it stays what it was
    assert [record.timestamp_ms for record in iter_records(batch)] == [NOW_MS + 1, NOW_MS + 2]


@pytest.mark.parametrize("codec", sorted(compression.NAMES))
def test_a_batch_that_loses_records_keeps_its_offsets(
    harness: LogHarness, compact: Small, codec: int
) -> None:
    log = harness.log(compact())
    put(log, [(b"a", b"1"), (b"b", b"x" * 50), (b"c", b"2")], codec=codec, epoch=3)
    put(log, [(b"a", b"3"), (b"c", b"4")], codec=codec, epoch=3)
    rounds(log, 6, epoch=3)
    assert clean(log, harness.clock) is not None
    batch = batches_of(log)[0]
    assert (batch.base_offset, batch.last_offset, batch.record_count) == (0, 2, 1)
    assert batch.crc == batch.computed_crc() and batch.partition_leader_epoch == 3
    (record,) = iter_records(batch)
    assert (record.offset, record.key, record.value) == (1, b"b", b"x" * 50)
    assert record.timestamp_ms == NOW_MS + 1 == batch.max_timestamp
    assert batch.compression == codec


def test_a_producers_last_batch_stays_without_records(harness: LogHarness, compact: Small) -> None:
    log = harness.log(compact())
    put(log, [(b"k0", b"1")], producer=Producer(7, 2, 0))
    put(log, [(b"k0", b"2"), (b"k1", b"2")], producer=Producer(7, 2, 1))
    rounds(log, 10)
    assert clean(log, harness.clock) is not None
    first = batches_of(log)[0]
    assert (first.base_offset, first.last_offset, first.record_count) == (1, 2, 0)
    assert (first.producer_id, first.producer_epoch, first.base_sequence) == (7, 2, 1)
    assert first.last_sequence == 2
    for path in harness.log_path.glob("*.snapshot"):
        path.unlink()
    log = harness.again()
    put(log, [(b"k0", b"3")], producer=Producer(7, 2, 3))
    duplicate = put(log, [(b"k0", b"2"), (b"k1", b"2")], producer=Producer(7, 2, 1))
    assert duplicate == 1
    rounds(log, 10)
    assert clean(log, harness.clock) is not None
    assert [b.base_offset for b in batches_of(log) if b.producer_id == 7] == [43]


def test_the_end_of_the_range_stays_without_records(harness: LogHarness, compact: Small) -> None:
    log = harness.log(compact(segment_bytes=10_000))
    put(log, [(b"a", b"1")])
    put(log, [(b"b", b"2")])
    put(log, [(b"a", None), (b"b", None)])
    log.config = compact(delete_retention_ms=0, segment_ms=1, min_cleanable_dirty_ratio=0.0)
    put(log, [(b"c", b"9" * 300)], now_ms=NOW_MS + 10_000)
    assert clean(log, harness.clock) is not None
    assert clean(log, harness.clock) is None
    directory_of(log).compacted(TP, 0).result()
    assert clean(log, harness.clock) is not None
    assert [(b.base_offset, b.last_offset, b.record_count) for b in batches_of(log)] == [
        (2, 3, 0),
        (4, 4, 1),
    ]


def test_markers_stay_and_records_of_transactions_displace_none(
    harness: LogHarness, compact: Small
) -> None:
    log = harness.log(compact())
    put(log, [(b"a", b"1")])
    transaction = build_transactional([(b"a", b"perhaps aborted")], 9)
    marker = build_end_marker(COMMIT, 9, 0, 0, NOW_MS)
    for batch in (transaction, marker):
        struct.pack_into(">qii", batch, 0, log.next_offset, len(batch) - 12, 0)
        log.plan_follower_append(bytes(batch))
        log.submit_planned()
    rounds(log, 6)
    assert clean(log, harness.clock) is not None
    first = batches_of(log)[:3]
    assert [batch.base_offset for batch in first] == [0, 1, 2]
    assert [batch.is_control for batch in first] == [False, False, True]


def build_transactional(pairs: list[Pair], producer_id: int) -> bytearray:
    return build_batch(
        [NewRecord(key, value, NOW_MS) for key, value in pairs],
        producer=Producer(producer_id, 0, 0),
        transactional=True,
    )


def test_records_without_a_key_from_before_the_policy_go(
    harness: LogHarness, compact: Small
) -> None:
    log = harness.log(compact(compact_enabled=False))
    log.plan_leader_append(build_batch([NewRecord(None, b"x", NOW_MS)]), 0, NOW_MS)
    log.submit_planned()
    log.config = compact()
    rounds(log, 6)
    assert clean(log, harness.clock) is not None
    assert all(key is not None for _, key, _ in pairs_of(log))


def test_a_map_that_is_full_is_gone_on_with_in_the_next_run(
    harness: LogHarness, compact: Small
) -> None:
    log = harness.log(compact(min_cleanable_dirty_ratio=0.0))
    rounds(log, 4, keys=10)
    ends = []
    while stats := clean(log, harness.clock, dedupe_buffer_bytes=176 * 4, load_factor=1.0):
        ends.append(stats.end_offset)
        assert stats.keys <= 4
    assert len(ends) > 5 and ends == sorted(set(ends))
    assert ends[-1] == log.active_segment.base_offset
    active = log.active_segment.base_offset
    kept = [key for offset, key, _ in pairs_of(log) if offset < active]
    # A run that saw some keys only has left older records of others: never too few.
    assert len(set(kept)) == 10


def test_slices_are_small_and_others_get_their_turn(harness: LogHarness, compact: Small) -> None:
    log = harness.log(compact(segment_bytes=4000))
    rounds(log, 40)
    harness.lane.eager = False
    run = cleaner(harness.clock, slice_bytes=300).clean_one([(log, log.log_end_offset)])
    sizes: list[int] = []
    waiting: list[int] = []
    pread = harness.files._files.pread

    def counted(handle: Handle, size_bytes: int, position: int) -> bytes:
        sizes.append(size_bytes)
        return pread(handle, size_bytes, position)

    harness.files._files.pread = counted  # type: ignore[method-assign]  # counted

    async def both() -> None:
        task = asyncio.ensure_future(run)
        while not task.done():
            await asyncio.sleep(0)
            waiting.append(len(harness.lane.waiting))
            harness.lane.run(1)
        await task

    asyncio.run(both())
    assert max(sizes) <= 300 and len(sizes) > 40
    assert max(waiting) == 1, "one slice waits at a time"


def test_a_rate_is_kept(harness: LogHarness, compact: Small) -> None:
    log = harness.log(compact(segment_bytes=4000))
    rounds(log, 40)
    slept: list[float] = []

    async def sleep(delay_ms: float) -> None:
        slept.append(delay_ms)
        harness.clock.advance(int(delay_ms) + 1)

    slow = Cleaner(
        CleanerSettings(slice_bytes=500, max_bytes_per_second=1000.0), harness.clock, sleep
    )
    begin_ms = harness.clock.now_ms
    stats = drive(slow.clean_one([(log, log.log_end_offset)]))
    assert stats is not None
    taken_ms = harness.clock.now_ms - begin_ms
    assert taken_ms >= (stats.bytes_read + stats.bytes_written) * 0.9
    assert max(slept) <= 1100


def test_the_dirtiest_log_comes_first(harness: LogHarness, compact: Small) -> None:
    directory = harness.open(compact(min_cleanable_dirty_ratio=0.0))
    logs = [
        directory.create(TopicPartition("topic", n), TOPIC_ID, harness.config).result()
        for n in range(2)
    ]
    for log in logs:
        rounds(log, 20)
    one = cleaner(harness.clock)
    marks = [(log, log.log_end_offset) for log in logs]
    assert drive(one.clean_one(marks[1:])) is not None
    rounds(logs[1], 3)
    drive(one.clean_one([(log, log.log_end_offset) for log in logs]))
    assert directory.cleaner_offset(logs[0].topic_partition) is not None
    assert harness.tracer.named("log_cleaned")[-1]["partition"] == "topic-0"


def test_a_log_that_cannot_be_read_is_left_alone(harness: LogHarness, compact: Small) -> None:
    log = harness.log(compact())
    rounds(log, 10)
    path = harness.log_path / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    one = cleaner(harness.clock)
    marks = [(log, log.log_end_offset)]
    told: list[TopicPartition] = []
    directory_of(log).on_damage = told.append
    assert drive(one.clean_one(marks)) is None
    assert any("is not compacted before it is truncated" in line for line in harness.tracer.lines)
    assert told == [log.topic_partition] and log.damage is not None and log.damage.offset <= 1
    count = len(harness.tracer.lines)
    assert drive(one.clean_one(marks)) is None and len(harness.tracer.lines) == count
    assert not list(harness.log_path.glob("*.cleaned"))
    assert path.read_bytes() == data
    log.truncate_to(log.damage.offset).result()
    rounds(log, 10)
    assert drive(one.clean_one([(log, log.log_end_offset)])) is not None


def test_old_files_go_later_and_index_files_are_those_of_the_new_segment(
    harness: LogHarness, compact: Small
) -> None:
    log = harness.log(compact(index_interval_bytes=50))
    rounds(log, 10, keys=8)
    assert clean(log, harness.clock) is not None
    left = sorted(path.name for path in harness.log_path.iterdir())
    assert f"{0:020d}.log.deleted" in left and f"{0:020d}.index.deleted" in left
    harness.clock.advance(1000)
    left = sorted(path.name for path in harness.log_path.iterdir())
    assert not [name for name in left if name.endswith((".deleted", ".cleaned", ".swap"))]
    bases = [f"{base:020d}" for base in log.base_offsets]
    assert sorted({name[:20] for name in left if name[0] == "0"}) == bases
    rows = pairs_of(log)
    again = harness.again()
    for offset, _, _ in rows:  # through the index files
        slice_ = again.read(offset, 10, again.log_end_offset, min_one_batch=True).result()
        batch = next(iter(iter_batches(slice_.data)))
        assert batch.base_offset <= offset <= batch.last_offset
    first = again.offset_for_timestamp(NOW_MS, again.log_end_offset).result()
    assert first is not None and first[1] == rows[0][0]


@pytest.mark.rule("V38")
def test_truncation_below_what_is_clean_lowers_the_checkpoint(
    harness: LogHarness, compact: Small
) -> None:
    log = harness.log(compact())
    rounds(log, 10)
    stats = clean(log, harness.clock)
    assert stats is not None
    log.truncate_to(stats.end_offset - 2).result()
    assert directory_of(log).cleaner_offset(TP) == log.log_end_offset <= stats.end_offset - 2
    assert log.log_end_offset == stats.end_offset - 2
    rounds(log, 10)
    assert clean(log, harness.clock) is not None
    keys = {key for _, key, _ in pairs_of(log)}
    assert keys == {b"k0", b"k1", b"k2", b"k3"}


def test_a_full_disk_ends_a_run_and_is_given_its_space_back(
    harness: LogHarness, compact: Small
) -> None:
    log = harness.log(compact())
    rounds(log, 10)
    before = pairs_of(log)
    harness.files.room_bytes = 150
    with pytest.raises(StorageError, match="ENOSPC"):
        clean(log, harness.clock)
    assert set(before[-4:]) < set(pairs_of(log)) < set(before) and not list(
        harness.log_path.glob("*.cleaned")
    )
    harness.files.room_bytes = None
    assert clean(log, harness.clock) is not None


@pytest.mark.parametrize("refused", [".cleaned", ".log", ".swap"])
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_a_swap_that_the_disk_refuses_is_finished_or_undone_at_the_next_start(
    harness: LogHarness, compact: Small, refused: str, number: int
) -> None:
    log = harness.log(compact())
    rounds(log, 10)
    last = {key: (offset, value) for offset, key, value in pairs_of(log)}
    harness.files.refuse = lambda call, path: (
        number if call == "rename" and path.endswith(refused) else 0
    )
    if refused == ".cleaned":
        with pytest.raises(StorageError):
            clean(log, harness.clock)
    else:
        assert clean(log, harness.clock) is None, "the log takes nothing more"
    assert (directory_of(log).failure is not None) == (number == errno.EIO)
    assert log.is_closed == (refused != ".cleaned")
    again = harness.again()
    assert {key: (offset, value) for offset, key, value in pairs_of(again)} == last
    assert clean(again, harness.clock) is not None


def test_a_follower_takes_a_compacted_log_and_may_lead_it(
    harness: LogHarness, compact: Small
) -> None:
    log = harness.log(compact())
    log.assign_epoch(0, 0)
    rounds(log, 5)
    log.assign_epoch(1, log.log_end_offset)
    for _ in range(5):
        put(log, [(b"k%d" % n, b"2nd") for n in range(4)], epoch=1)
    assert clean(log, harness.clock) is not None
    follower = (
        directory_of(log).create(TopicPartition("copy", 0), TOPIC_ID, harness.config).result()
    )
    while follower.log_end_offset < log.log_end_offset:
        slice_ = log.read(follower.log_end_offset, 1, 1 << 30, min_one_batch=True).result()
        assert slice_.data, follower.log_end_offset
        follower.plan_follower_append(bytes(slice_.data))
        follower.submit_planned()
    assert pairs_of(follower) == pairs_of(log)
    bases = follower.base_offsets
    ends = [
        max(b.next_offset for b in batches_of(follower) if b.base_offset < base)
        for base in bases[1:]
    ]
    assert ends == bases[1:], "segments that follow each other leave no gap between them"
    # Its own epoch history never claims more for an old epoch than the leader's does.
    assert (
        follower.epochs.end_offset_for(0, 0).end_offset
        <= log.epochs.end_offset_for(0, 0).end_offset
    )
    follower.flush().result()
    left = pairs_of(follower)
    again = harness.open().logs[TopicPartition("copy", 0)]
    assert pairs_of(again) == left and again.log_end_offset == log.log_end_offset


@pytest.mark.parametrize(("then", "now"), [(True, True), (True, False), (False, False)])
def test_a_gap_that_came_from_the_leader_outlives_a_crash(
    harness: LogHarness, compact: Small, then: bool, now: bool
) -> None:
    """Whether the topic is compacted when the gap comes and when the broker is killed."""
    log = harness.log(compact())
    rounds(log, 10)
    assert clean(log, harness.clock) is not None
    config = compact(compact_enabled=then, segment_bytes=1 << 20)
    follower = directory_of(log).create(TopicPartition("copy", 0), TOPIC_ID, config).result()
    slice_ = log.read(0, 1 << 20, 1 << 30, min_one_batch=True).result()
    while slice_.data:
        follower.plan_follower_append(bytes(slice_.data))
        follower.submit_planned()
        slice_ = log.read(follower.log_end_offset, 1, 1 << 30, min_one_batch=True).result()
    harness.config = compact(compact_enabled=now, segment_bytes=1 << 20)
    follower.configured(harness.config)
    left = pairs_of(follower)
    assert len(follower.segments) == 1 and len(left) < follower.log_end_offset
    again = harness.open().logs[TopicPartition("copy", 0)]
    assert pairs_of(again) == left
    assert again.log_end_offset == log.log_end_offset


def test_a_gap_where_nothing_is_compacted_now_is_taken_with_a_warning(
    harness: LogHarness, compact: Small
) -> None:
    log = harness.log(compact())
    put(log, [(b"a", b"1")])
    put(log, [(b"b", b"1")])
    second = bytes(log.read(1, 1, 2, min_one_batch=True).result().data)
    for is_compacted in (True, False):
        log.truncate_to(0).result()
        log.config = compact(compact_enabled=is_compacted)
        log.plan_follower_append(second)
        log.submit_planned()
        assert log.log_end_offset == 2 and log.base_offsets == [0]
        warned = [
            line for line in harness.tracer.lines if "its leader has no offsets 0 to 0" in line
        ]
        assert bool(warned) != is_compacted


@examples(50 if FACTOR == 1 else 100)
@given(
    data=st.data(),
    segment_bytes=st.integers(500, 1500),
    slice_bytes=st.sampled_from([61, 200, 100_000]),
    map_entries=st.integers(1, 12),
)
def test_a_log_is_what_its_records_make_of_a_dictionary(
    data: st.DataObject, segment_bytes: int, slice_bytes: int, map_entries: int
) -> None:
    config = LogConfig(
        segment_bytes=segment_bytes,
        index_interval_bytes=100,
        compact_enabled=True,
        delete_enabled=False,
        delete_retention_ms=data.draw(st.integers(0, 5)),
        min_cleanable_dirty_ratio=0.0,
    )
    harness = SimLogHarness(0, config)
    log = harness.open().create(TP, TOPIC_ID, config).result()
    written: list[tuple[int, bytes, bytes | None, int]] = []
    sequences = {1: 0, 2: 0}
    batch = st.lists(
        st.tuples(
            st.sampled_from([b"a", b"b", b"c", b"d" * 20, b""]), st.none() | st.binary(max_size=60)
        ),
        min_size=1,
        max_size=5,
    )
    for _ in range(data.draw(st.integers(1, 6))):
        for pairs in data.draw(st.lists(batch, min_size=1, max_size=12)):
            who = data.draw(st.sampled_from([0, 1, 2]))
            producer = Producer(who, 0, sequences[who]) if who else None
            codec = data.draw(st.sampled_from(sorted(compression.NAMES)))
            base = put(log, pairs, producer=producer, codec=codec, now_ms=harness.clock.now_ms)
            if who:
                sequences[who] = (sequences[who] + len(pairs)) % 2**31
            written += [
                (base + n, key, value, harness.clock.now_ms + n)
                for n, (key, value) in enumerate(pairs)
            ]
        clean(
            log,
            harness.clock,
            slice_bytes=slice_bytes,
            dedupe_buffer_bytes=176 * map_entries,
            load_factor=1.0,
        )
        harness.clock.advance(data.draw(st.integers(0, 4)))
        if data.draw(st.booleans()):
            log.flush().result()
            log = harness.open().logs[TP]
        check(log, written, sequences, directory_of(log).cleaner_offset(TP) or 0)


def check(
    log: PartitionLog,
    written: list[tuple[int, bytes, bytes | None, int]],
    sequences: dict[int, int],
    clean_end: int,
) -> None:
    """What is there was written; the last of each key is there, tombstones apart; the clean part
    holds no more than that and what its last run found dirty."""
    batches = batches_of(log, 300)
    ends = [batch.base_offset for batch in batches[1:]]
    assert all(b.last_offset < end for b, end in zip(batches, ends, strict=False))
    assert all(b.crc == b.computed_crc() for b in batches)
    found = [
        (record.offset, record.key, record.value, record.timestamp_ms)
        for batch in batches
        for record in iter_records(batch)
    ]
    assert set(found) <= set(written)
    last = {row[1]: row for row in written}
    for key, row in last.items():
        assert row in found or row[2] is None, (key, row)
    # Whatever a reader of the whole log makes of it is right at the end.
    older = {name: offset for offset, name, _, _ in found}
    for key, row in last.items():
        assert key not in older or older[key] == row[0]
    assert log.log_end_offset == written[-1][0] + 1
    if batches and clean_end < log.log_end_offset:
        assert batches[-1].next_offset == log.log_end_offset
    for who, expected in sequences.items():
        entry = log.producers.entry(who)
        assert (entry is None) == (expected == 0)
        assert entry is None or entry.last_sequence + 1 == expected
