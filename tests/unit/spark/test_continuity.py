"""The proof: each offset has one row or a reason, and what has neither is counted."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from tests.support.client.fake_logs import FakeLogs
from tests.support.spark import CONTROL, Row, batch, rewritten

from tidelog.core.types import TopicPartition
from tidelog.runtime.blocking import BlockingClient
from tidelog.spark.pipelines.continuity import (
    ContinuityProof,
    Gap,
    GapContent,
    LogGaps,
    PartitionCount,
    prove_ranges,
)
from tidelog.spark.planning import OffsetRange

TP = TopicPartition("t", 0)
WANTED = OffsetRange(TP, 10, 20)


def counted(offsets: list[int]) -> PartitionCount:
    """What Spark would count of these offsets."""
    distinct = sorted(set(offsets))
    gaps = tuple(Gap(low + 1, high) for low, high in pairwise(distinct) if high - low > 1)
    return PartitionCount(len(offsets), len(distinct), distinct[0], distinct[-1], gaps)


def prove(
    found: PartitionCount, content: GapContent | None = None, compacted: bool = False
) -> tuple[ContinuityProof, list[Gap]]:
    looked: list[Gap] = []

    def look(tp: TopicPartition, gaps: Sequence[Gap]) -> GapContent:
        looked.extend(gaps)
        missing = sum(gap.end - gap.start for gap in gaps)
        return GapContent(records=missing) if content is None else content

    return prove_ranges({TP: found}, [WANTED], look, compacted=compacted), looked


def test_all_offsets_once_is_a_proof_without_a_look_into_the_log() -> None:
    proof, looked = prove(counted(list(range(10, 20))))
    assert proof.holds
    assert (proof.rows, proof.lost, proof.doubled, proof.stray) == (10, 0, 0, 0)
    assert looked == []


@pytest.mark.parametrize("missing", [10, 14, 19])
def test_a_record_without_a_row_is_lost(missing: int) -> None:
    proof, looked = prove(counted([n for n in range(10, 20) if n != missing]))
    assert not proof.holds
    assert proof.lost == 1
    assert looked == [Gap(missing, missing + 1)]


def test_a_row_twice_is_doubled() -> None:
    proof, _ = prove(counted([*range(10, 20), 12, 12]))
    assert not proof.holds
    assert proof.doubled == 2


def test_no_rows_at_all_is_one_gap() -> None:
    proof, looked = prove(PartitionCount(0, 0, 20, 9, ()))
    assert looked == [Gap(10, 20)]
    assert proof.lost == 10


def test_markers_are_no_loss() -> None:
    proof, _ = prove(counted([n for n in range(10, 20) if n != 14]), GapContent(control=1))
    assert proof.holds
    assert proof.partitions[0].control == 1


def test_absent_offsets_are_loss_unless_the_topic_is_compacted() -> None:
    found = counted([n for n in range(10, 20) if n != 14])
    proof, _ = prove(found, GapContent(absent=1))
    assert proof.lost == 1
    proof, _ = prove(found, GapContent(absent=1), compacted=True)
    assert proof.holds
    assert proof.partitions[0].compacted == 1


@pytest.mark.parametrize("stray", [9, 20])
def test_rows_outside_of_the_range_do_not_belong(stray: int) -> None:
    proof, looked = prove(counted([*range(10, 20), stray]))
    assert not proof.holds
    assert proof.stray > 0
    assert looked == []


def test_rows_of_another_partition_do_not_belong() -> None:
    other = TopicPartition("t", 1)
    counts = {TP: counted(list(range(10, 20))), other: counted([3])}
    proof = prove_ranges(counts, [WANTED], lambda tp, gaps: GapContent(), compacted=False)
    assert not proof.holds
    assert proof.stray == 1


class TestLookingIntoTheLog:
    def look(self, batches: list[bytes], *bounds: int) -> GapContent:
        gaps = [Gap(low, high) for low, high in zip(bounds[::2], bounds[1::2], strict=True)]
        logs = FakeLogs()
        try:
            logs.create("t", 1)
            logs.append(TP, *batches)
            with BlockingClient(logs.bootstrap, timeout_ms=2_000) as client:
                return LogGaps(client).look(TP, gaps)
        finally:
            logs.close()

    def test_markers_are_found(self) -> None:
        marker = rewritten(batch([Row()], 2), attributes=CONTROL)
        log = [batch([Row()] * 2, 0), marker, batch([Row()], 3)]
        assert self.look(log, 2, 3) == GapContent(control=1)

    def test_records_are_found(self) -> None:
        log = [batch([Row()] * 5, 0), batch([Row()] * 5, 5), batch([Row()] * 5, 10)]
        assert self.look(log, 3, 12) == GapContent(records=9)

    def test_what_compaction_removed_is_absent(self) -> None:
        compacted = rewritten(batch([Row()] * 3, 0), last_offset_delta=9)
        assert self.look([compacted, batch([Row()], 10)], 2, 11) == GapContent(0, 7, 2)

    def test_a_hole_between_batches_is_absent(self) -> None:
        assert self.look([batch([Row()], 0), batch([Row()], 5)], 1, 6) == GapContent(0, 4, 1)

    def test_a_hole_at_the_end_is_absent(self) -> None:
        assert self.look([batch([Row()], 0)], 1, 1) == GapContent()

    def test_many_gaps_are_read_together(self) -> None:
        marker = [rewritten(batch([Row()], n), attributes=CONTROL) for n in (2, 5)]
        log = [batch([Row()] * 2, 0), marker[0], batch([Row()] * 2, 3), marker[1]]
        log.append(batch([Row()] * 3, 6))
        assert self.look(log, 2, 3, 5, 6) == GapContent(control=2)
        assert self.look(log, 0, 1, 2, 4, 5, 7, 8, 9) == GapContent(control=2, records=4)

    def test_gaps_far_apart_and_past_the_end(self) -> None:
        log = [batch([Row()] * 10, base) for base in range(0, 100, 10)]
        assert self.look(log, 3, 4, 95, 97, 98, 104) == GapContent(0, 4, 5)

    def test_dead_letters_are_no_rows_and_no_loss(self) -> None:
        counts = {TP: counted(list(range(10, 20)))}
        proof = prove_ranges(
            counts, [WANTED], lambda tp, gaps: GapContent(), compacted=False, dead={TP: 3}
        )
        assert proof.holds
        assert (proof.rows, proof.dead) == (7, 3)
