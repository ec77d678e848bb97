"""Copies between clusters: every record once and as it was, every offset in the table."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.support.client.memory_cluster import MemoryCluster

from tidelog.client.fetching import AbortedRange
from tidelog.client.groups import FetchedOffset
from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.types import TopicPartition
from tidelog.records.batch import BatchView, iter_batches
from tidelog.records.builder import NewRecord, Producer, build_batch
from tidelog.records.control import ABORT, COMMIT, build_end_marker
from tidelog.records.reader import Record, iter_records, read_keys
from tidelog.records.rewriting import rewritten
from tidelog.spark.pipelines.copy import transfer, verification
from tidelog.spark.pipelines.copy.group_offsets import (
    AHEAD,
    COMMITTED,
    FURTHER,
    translate_groups,
    translated,
)
from tidelog.spark.pipelines.copy.ledger import About, CopiedTopic, CopyLedger, LedgerError
from tidelog.spark.pipelines.copy.offset_map import (
    ABORTED,
    ABSENT,
    DELETED,
    MARKERS,
    OffsetMapError,
    OffsetTable,
    Piece,
)
from tidelog.spark.pipelines.copy.outcome import CopyOutcome, report_of
from tidelog.spark.pipelines.copy.run import split
from tidelog.spark.pipelines.copy.tail import ForeignRecordsError
from tidelog.spark.pipelines.copy.targets import check_names, target_configs
from tidelog.spark.pipelines.copy.transfer import CopyError, Range, copy_range
from tidelog.spark.pipelines.copy.verification import RangeCheck, canonical, check_range

S, T = TopicPartition("s", 0), TopicPartition("t", 0)
ZSTD = 4


def new(number: int) -> NewRecord:
    return NewRecord(
        b"k%d" % number, None if number % 7 == 3 else b"v%d" % number, 1_000 + number, [("h", b"x")]
    )


def data(base: int, count: int, producer: int = -1, **options: Any) -> bytes:
    """Return a batch with records numbered as their offsets."""
    records = [new(number) for number in range(base, base + count)]
    owner = Producer(producer, 0, 0) if producer >= 0 else Producer()
    return bytes(
        build_batch(
            records,
            base_offset=base,
            leader_epoch=3,
            producer=owner,
            transactional=producer >= 0,
            **options,
        )
    )


def marker(base: int, kind: int, producer: int) -> bytes:
    made = build_end_marker(kind, producer, 0, 0, 5)
    made[0:8] = base.to_bytes(8, "big")
    return bytes(made)


def thinned(batch: bytes, keep: Callable[[int], bool], horizon: int | None = None) -> bytes:
    """Return a batch as compaction leaves it."""
    view = BatchView(batch)
    payload, records = read_keys(view)
    kept = [each for each in records if keep(each.offset_delta)]
    return bytes(rewritten(view, payload, kept, horizon))


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> MemoryCluster:
    return MemoryCluster()


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch, source: MemoryCluster) -> MemoryCluster:
    other = MemoryCluster()

    def connect(bootstrap: str, *_: object) -> MemoryCluster:
        return source if bootstrap == "source" else other

    monkeypatch.setattr(transfer, "BlockingClient", connect)
    monkeypatch.setattr(verification, "BlockingClient", connect)
    return other


def wanted(source: MemoryCluster, known: OffsetTable | None = None, **changes: Any) -> Range:
    known = known or OffsetTable()
    whole = Range(
        "source",
        "target",
        S,
        T,
        source.log_starts.get(S, 0) if known.end is None else known.end,
        source.end(S),
        known.target_end or 0,
        9,
        0,
        known.records,
        1 << 30,
        1_000,
    )
    return replace(whole, **changes)


def copied(asked: Range, known: OffsetTable | None = None) -> OffsetTable:
    """Run one task; return the table with its pieces."""
    (row,) = copy_range(asked)
    row = json.loads(json.dumps(row))
    table = OffsetTable(known.pieces if known else ())
    for each in row["pieces"]:
        table.add(Piece(*each))
    return table


def contents(records: Sequence[Record]) -> list[tuple[object, ...]]:
    return [(r.timestamp_ms, r.key, r.value, r.headers) for r in records]


def check(table: OffsetTable) -> dict[str, Any]:
    (row,) = check_range(RangeCheck("source", "target", S, T, tuple(table.pieces), 1_000))
    return row


class TestTask:
    def test_batches_are_copied_as_they_are(
        self, source: MemoryCluster, target: MemoryCluster
    ) -> None:
        source.append(S, [data(0, 5), data(5, 3, codec=ZSTD), data(8, 100)])
        table = copied(wanted(source))
        assert table.pieces == [Piece(0, 108, 0)]
        assert target.records(T) == source.records(S)
        for ours, theirs in zip(source.batches[S], target.batches[T], strict=True):
            assert ours[61:] == theirs[61:]
        stored = [BatchView(each) for each in target.batches[T]]
        assert [(each.producer_id, each.base_sequence) for each in stored] == [
            (9, 0),
            (9, 5),
            (9, 8),
        ]
        row = check(table)
        assert row["source_digest"] == row["target_digest"]
        assert row["source_records"] == row["target_records"] == 108

    def test_transactions_and_holes_shift_offsets(
        self, source: MemoryCluster, target: MemoryCluster
    ) -> None:
        source.append(
            S,
            [
                data(0, 4, producer=1),
                data(4, 2, producer=2),
                marker(6, COMMIT, 1),
                marker(7, ABORT, 2),
                data(8, 2, producer=2),
                marker(10, COMMIT, 2),
                thinned(data(11, 9), lambda delta: delta in (2, 3, 7)),
                thinned(data(20, 5, codec=ZSTD), lambda delta: delta < 4, 77_000),
                data(30, 2),
            ],
        )
        source.aborted[S] = [(AbortedRange(2, 4), 7)]
        table = copied(wanted(source))
        assert [(p.start, p.end, p.target, p.kind) for p in table.pieces if p.records] == [
            (0, 4, 0, "records"),
            (8, 10, 4, "records"),
            (13, 15, 6, "records"),
            (18, 19, 8, "records"),
            (20, 24, 9, "records"),
            (30, 32, 13, "records"),
        ]
        counts = {kind: table.count(kind) for kind in (MARKERS, ABORTED, ABSENT)}
        assert counts == {MARKERS: 3, ABORTED: 2, ABSENT: 12}
        assert table.end == 32
        expected = [new(n) for n in (*range(4), 8, 9, 13, 14, 18, *range(20, 24), 30, 31)]
        assert contents(target.records(T)) == [
            (r.timestamp_ms, r.key, r.value, list(r.headers)) for r in expected
        ]
        assert not any(BatchView(each).is_transactional for each in target.batches[T])
        row = check(table)
        assert (row["source_records"], row["missing"], row["first"]) == (15, 0, None)
        assert row["source_digest"] == row["target_digest"]

    def test_times_of_log_append_become_times_of_creation(
        self, source: MemoryCluster, target: MemoryCluster
    ) -> None:
        source.append(S, [data(0, 3, log_append_time_ms=99_000)])
        table = copied(wanted(source))
        assert [each.timestamp_ms for each in target.records(T)] == [99_000] * 3
        assert check(table)["target_records"] == 3

    def test_a_log_that_begins_inside_a_batch(
        self, source: MemoryCluster, target: MemoryCluster
    ) -> None:
        source.append(S, [data(0, 10), data(10, 5)])
        source.log_starts[S] = 7
        assert copied(wanted(source)).pieces == [Piece(7, 15, 0)]
        assert [each.key for each in target.records(T)] == [b"k%d" % n for n in range(7, 15)]

    def test_a_task_ends_behind_its_bytes_and_another_goes_on(
        self, source: MemoryCluster, target: MemoryCluster
    ) -> None:
        source.append(S, [data(at, 10) for at in range(0, 100, 10)])
        table = copied(wanted(source, max_bytes=1))
        assert table.pieces == [Piece(0, 10, 0)]
        table = copied(wanted(source, table), table)
        assert table.pieces == [Piece(0, 100, 0)]
        assert target.records(T) == source.records(S)

    def test_a_range_whose_last_records_were_compacted_away_ends(
        self, source: MemoryCluster, target: MemoryCluster
    ) -> None:
        source.append(S, [data(0, 10)])
        source.ends[S] = 14
        table = copied(wanted(source))
        assert [each[:2] for each in table.pieces] == [(0, 10), (10, 14)]
        assert table.count(ABSENT) == 4

    def test_a_source_that_lost_its_end_is_named(
        self, source: MemoryCluster, target: MemoryCluster
    ) -> None:
        source.append(S, [data(0, 10)])
        with pytest.raises(CopyError, match="up to offset 14, but its leader shows nothing above"):
            copied(wanted(source, end=14, timeout_ms=1))

    def test_deleted_records_are_an_error_unless_they_may_be_skipped(
        self, source: MemoryCluster, target: MemoryCluster
    ) -> None:
        source.append(S, [data(0, 10), data(10, 10)])
        source.log_starts[S] = 10
        with pytest.raises(CopyError, match="s-0 of the source has no offset 4 any more; its log"):
            copied(wanted(source, start=4))
        table = copied(wanted(source, start=4, skip_deleted=True))
        assert table.pieces == [Piece(4, 10, 0, DELETED), Piece(10, 20, 0)]


class CrashError(Exception):
    """The end of a task at an instant of the test."""


class TestCrashes:
    def test_what_a_dead_task_stored_is_found_and_not_sent_again(
        self, source: MemoryCluster, target: MemoryCluster
    ) -> None:
        source.append(S, [data(at, 10) for at in range(0, 100, 10)])
        copied(wanted(source, max_bytes=1_500))
        held = target.end(T)
        assert 0 < held < 100
        (row,) = copy_range(wanted(source))
        assert row["found"] == held
        assert target.records(T) == source.records(S)

    @pytest.mark.parametrize(("zombie_bytes", "is_recognised"), [(600, True), (1_200, False)])
    def test_two_tasks_at_once_store_every_record_once(
        self,
        source: MemoryCluster,
        target: MemoryCluster,
        zombie_bytes: int,
        is_recognised: bool,
    ) -> None:
        """A task that should be dead sends each batch too, just before the new task does."""
        source.append(S, [data(at, 10) for at in range(0, 60, 10)])
        zombie: list[Any] = []

        def race() -> None:
            if not zombie:
                zombie.append(None)
                target.before_append = lambda: None
                copied(wanted(source, max_bytes=zombie_bytes))

        target.before_append = race
        if not is_recognised:  # more than five batches ahead
            with pytest.raises(CopyError, match="still writing: run the copy again"):
                copied(wanted(source))
        table = copied(wanted(source))
        assert table.pieces == [Piece(0, 60, 0)]
        assert target.records(T) == source.records(S)

    def test_records_of_other_programs_end_the_copy(
        self, source: MemoryCluster, target: MemoryCluster
    ) -> None:
        source.append(S, [data(0, 10)])
        target.append(T, [data(0, 4), data(90, 1)])
        target.batches[T][1] = b"\0" * 7 + b"\4" + target.batches[T][1][8:]
        with pytest.raises(ForeignRecordsError, match="t-0 offset 4 .* source offset 4"):
            copied(wanted(source))

    def test_more_records_than_the_source_has_end_the_copy(
        self, source: MemoryCluster, target: MemoryCluster
    ) -> None:
        source.append(S, [data(0, 4)])
        target.append(T, [data(0, 6)])
        with pytest.raises(ForeignRecordsError, match="from offset 4 on that the source does not"):
            copied(wanted(source))

    def test_a_foreign_record_between_two_batches_ends_the_copy(
        self, source: MemoryCluster, target: MemoryCluster
    ) -> None:
        source.append(S, [data(0, 5), data(5, 5)])

        def intrude() -> None:
            target.after_append = lambda: None
            target.append(T, [data(5, 1)])

        target.after_append = intrude
        with pytest.raises(ForeignRecordsError, match="at offset 6, where 5 was next"):
            copied(wanted(source))

    def test_a_target_that_lost_records_ends_the_copy(
        self, source: MemoryCluster, target: MemoryCluster
    ) -> None:
        source.append(S, [data(0, 10)])
        with pytest.raises(CopyError, match="ends at offset 0, but 5 was copied"):
            copied(wanted(source, start=5, target_start=5))

    @pytest.mark.parametrize("seed", range(30))
    def test_any_source_and_any_crashes_give_each_record_once(
        self, source: MemoryCluster, target: MemoryCluster, seed: int
    ) -> None:
        draw = random.Random(seed)
        expected = fill(source, draw)
        crash = {"left": 0}

        def maybe() -> None:
            crash["left"] -= 1
            if not crash["left"]:
                raise CrashError

        target.before_append = target.after_append = maybe
        table = OffsetTable()
        for _ in range(200):
            crash["left"] = draw.randrange(1, 8)
            try:
                table = copied(
                    wanted(source, table, max_bytes=draw.choice((1, 500, 1 << 30))), table
                )
            except CrashError:
                continue
            if table.end == source.end(S):
                break
        assert table.end == source.end(S)
        assert [each.key for each in target.records(T)] == [b"k%d" % n for n in expected]
        for place, offset in enumerate(expected):
            assert table.translate(offset) == place
        row = check(table)
        assert row["source_digest"] == row["target_digest"]
        assert row["source_records"] == len(expected)


def fill(source: MemoryCluster, draw: random.Random) -> list[int]:
    """Fill a source with all that shifts offsets; return the offsets of copied records."""
    expected: list[int] = []
    batches: list[bytes] = []
    at = 0
    for _ in range(draw.randrange(5, 25)):
        count = draw.randrange(1, 9)
        kind = draw.choice(("plain", "holes", "committed", "aborted", "gap", "append_time"))
        if kind == "gap":
            at += count
            continue
        offsets = range(at, at + count)
        if kind == "holes":
            kept = [n for n in range(count) if draw.random() < 0.5] or [0]
            batches.append(thinned(data(at, count), kept.__contains__))
            expected += [at + n for n in kept]
        elif kind in ("committed", "aborted"):
            producer = 100 + len(batches)
            batches.append(data(at, count, producer=producer))
            ends = COMMIT if kind == "committed" else ABORT
            batches.append(marker(at + count, ends, producer))
            if kind == "committed":
                expected += offsets
            else:
                source.aborted.setdefault(S, []).append((AbortedRange(producer, at), at + count))
            at += 1
        else:
            options = {"log_append_time_ms": 5_000} if kind == "append_time" else {}
            batches.append(data(at, count, codec=draw.choice((0, ZSTD)), **options))
            expected += offsets
        at += count
    source.append(S, batches)
    source.batches_per_answer = draw.randrange(1, 5)
    return expected


class TestVerification:
    @pytest.mark.parametrize(
        ("change", "found"),
        [
            ("drop", {"missing": 1, "surplus": 0, "changed": 0, "first": 7}),
            ("alter", {"missing": 0, "surplus": 0, "changed": 1, "first": 7}),
        ],
    )
    def test_a_record_that_differs_is_named(
        self, source: MemoryCluster, target: MemoryCluster, change: str, found: dict[str, Any]
    ) -> None:
        source.append(S, [data(0, 5), data(5, 5)])
        table = copied(wanted(source))
        second = target.batches[T][1]
        if change == "drop":
            target.batches[T][1] = thinned(second, lambda delta: delta != 2)
        else:
            records = list(iter_records(BatchView(second)))
            records[2] = records[2]._replace(value=b"other")
            made = [NewRecord(r.key, r.value, r.timestamp_ms, r.headers) for r in records]
            target.batches[T][1] = bytes(build_batch(made, base_offset=5))
        row = check(table)
        assert {name: row[name] for name in found} == found
        report = report_of(CopyOutcome({"s": "t"}, {S: table}, checks=[row], records=10))
        assert not report.holds
        assert "s-0 first at target offset 7" in report.verdict

    def test_a_wrong_table_is_noticed(self, source: MemoryCluster, target: MemoryCluster) -> None:
        source.append(S, [data(0, 4), data(6, 4)])
        copied(wanted(source))
        wrong = OffsetTable([Piece(0, 4, 0), Piece(4, 7, 4, ABSENT), Piece(7, 10, 4)])
        row = check(wrong)
        assert row["source_digest"] != row["target_digest"]

    def test_records_with_other_parts_have_other_bytes(self) -> None:
        variants = [
            Record(0, 0, None, b"", []),
            Record(0, 0, b"", None, []),
            Record(0, 0, b"a", b"b", []),
            Record(0, 0, b"ab", b"", []),
            Record(0, 0, b"", b"ab", []),
            Record(1, 0, b"", b"ab", []),
            Record(0, 1, b"", b"ab", []),
            Record(0, 0, b"", b"", [("a", b"b")]),
            Record(0, 0, b"", b"", [("ab", None)]),
            Record(0, 0, b"", b"", [("ab", b"")]),
        ]
        assert len({canonical(each) for each in variants}) == len(variants)

    def test_checks_have_a_bounded_size(self) -> None:
        pieces = [Piece(0, 10, 0), Piece(10, 12, 10, ABSENT), Piece(12, 20, 10)]
        parts = split(pieces, 6)
        assert [sum(each.records for each in part) for part in parts] == [6, 6, 6]
        assert OffsetTable(each for part in parts for each in part).pieces == pieces
        assert split([], 6) == []


class TestTable:
    def table(self) -> OffsetTable:
        return OffsetTable(
            [Piece(5, 10, 0), Piece(10, 13, 5, MARKERS), Piece(13, 20, 5), Piece(20, 25, 12)]
        )

    def test_alike_pieces_are_one(self) -> None:
        assert self.table().pieces[-1] == Piece(13, 25, 5)

    def test_a_piece_that_does_not_follow_is_an_error(self) -> None:
        for wrong in (Piece(26, 30, 17), Piece(25, 30, 18), Piece(24, 30, 16)):
            with pytest.raises(OffsetMapError, match="does not follow source offset 25"):
                self.table().add(wrong)

    @pytest.mark.parametrize(
        ("offset", "target"),
        [(0, 0), (5, 0), (9, 4), (10, 5), (12, 5), (13, 5), (24, 16), (25, 17), (26, None)],
    )
    def test_an_offset_is_that_of_the_next_copied_record(
        self, offset: int, target: int | None
    ) -> None:
        assert self.table().translate(offset) == target

    def test_groups_never_skip_records_and_never_go_back(self) -> None:
        committed = {
            S: FetchedOffset(13, metadata="m"),
            TopicPartition("s", 1): FetchedOffset(26),
            TopicPartition("other", 0): FetchedOffset(3),
        }
        maps = {S: self.table(), TopicPartition("s", 1): self.table()}
        rows, wanted_offsets = translated("g", committed, {}, maps, {"s": "t"})
        assert [(row.target, row.outcome) for row in rows] == [(5, COMMITTED), (None, AHEAD)]
        assert wanted_offsets == {T: FetchedOffset(5, metadata="m")}
        rows, wanted_offsets = translated("g", committed, {T: FetchedOffset(6)}, maps, {"s": "t"})
        assert rows[0].outcome == FURTHER
        assert wanted_offsets == {}

    def test_a_coordinator_that_fails_is_in_the_report(self) -> None:
        class Absent:
            def committed(self, group: str, _: object) -> dict[TopicPartition, FetchedOffset]:
                raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"group {group}")

        absent: Any = Absent()
        (row,) = translate_groups(absent, absent, ["g"], {S: self.table()}, {"s": "t"})
        assert row.is_failed
        report = report_of(CopyOutcome({"s": "t"}, {S: self.table()}, groups=[row], checks=[]))
        assert not report.holds
        assert "group 'g' was not translated: COORDINATOR_NOT_AVAILABLE" in report.verdict


class TestLedger:
    ABOUT = About("a", "b", 9, 0, {"s": CopiedTopic("s", "01", "t", "02")})

    def test_rounds_come_back(self, tmp_path: Path) -> None:
        ledger = CopyLedger(tmp_path / "copy")
        with ledger.locked():
            assert ledger.about() is None
            ledger.describe(self.ABOUT)
            for at in range(0, 600, 10):
                ledger.add({S: [Piece(at, at + 9, at // 10 * 9)]}, self.ABOUT)
                ledger.add({S: [Piece(at + 9, at + 10, at // 10 * 9 + 9, MARKERS)]}, self.ABOUT)
        other = CopyLedger(tmp_path / "copy")
        other.load()
        assert other.about() == self.ABOUT
        assert other.maps[S].pieces == ledger.maps[S].pieces
        assert other.maps[S].records == 540
        assert len(list((tmp_path / "copy" / "offsets").iterdir())) <= 51
        table = pq.read_table(tmp_path / "copy" / "offsets")
        assert sum(table.column("records").to_pylist()) == 540

    def test_unusable_directories_are_named(self, tmp_path: Path) -> None:
        ledger = CopyLedger(tmp_path / "copy")
        with (
            ledger.locked(),
            pytest.raises(LedgerError, match="another copy writes there"),
            CopyLedger(tmp_path / "copy").locked(),
        ):
            pass
        (tmp_path / "copy" / "copy.json").write_text("{}")
        with pytest.raises(LedgerError, match="copy.json is no description of a copy"):
            ledger.about()
        (tmp_path / "copy" / "offsets" / "000001.parquet").write_text("x")
        with pytest.raises(LedgerError, match="000001.parquet is no part of an offset table"):
            ledger.load()
        (tmp_path / "file").touch()
        with (
            pytest.raises(LedgerError, match="cannot be kept there"),
            CopyLedger(tmp_path / "file").locked(),
        ):
            pass


class TestTopics:
    def test_topics_are_never_mixed(self) -> None:
        check_names({"a": "a"}, is_same_cluster=False)
        check_names({"a": "b"}, is_same_cluster=True)
        with pytest.raises(CopyError, match="'a' and 'b' would both be copied into 'c'"):
            check_names({"a": "c", "b": "c"}, is_same_cluster=False)
        with pytest.raises(CopyError, match="'a' would be copied into itself"):
            check_names({"a": "a"}, is_same_cluster=True)
        with pytest.raises(CopyError, match="'b' would be copied into itself or be a target"):
            check_names({"a": "b", "b": "c"}, is_same_cluster=True)
        with pytest.raises(CopyError, match="no topic is named"):
            check_names({}, is_same_cluster=False)

    def test_configs_that_mean_nothing_in_the_target_stay(self) -> None:
        configs = {
            "retention.ms": "5",
            "leader.replication.throttled.replicas": "0:1",
            "message.timestamp.type": "LogAppendTime",
            "flush.before.ack": "true",
        }
        assert target_configs(configs, ["flush.before.ack"]) == {
            "retention.ms": "5",
            "message.timestamp.type": "CreateTime",
        }


def test_the_memory_cluster_refuses_what_leaders_refuse(target: MemoryCluster) -> None:
    from tidelog.spark.pipelines.copy.transcribing import signed

    first = signed(bytearray(data(0, 3)), Producer(9, 0, 0))
    assert target.produce(T, first) == target.produce(T, first) == 0
    with pytest.raises(KafkaError):
        target.produce(T, signed(bytearray(data(0, 3)), Producer(9, 0, 4)))
    assert len(list(iter_batches(b"".join(target.batches[T])))) == 1
