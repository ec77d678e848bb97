"""No checksum covers base offset and leader epoch: at a recovery, the neighboring batches judge."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest
from tests.support.log import LogHarness, append, directory_of
from tests.unit.log.recovered_logs import damaged, expect, filled

from tidelog.log.config import LogConfig
from tidelog.records.builder import Producer

Small = Callable[..., LogConfig]


@pytest.mark.rule("V68")
@pytest.mark.parametrize(
    ("number", "epoch", "end"),
    [
        (10, 1, 10),
        (6, 0, 6),
        (11, 1, 11),
        # Later batches of the epoch say that the one which began it is right.
        (9, 1, 9),
        (5, 0, 5),
        # A wrong epoch before the last batch shows by the next one, wherever it is.
        *[(number, 1 << bit, number) for number in (0, 3, 4, 9, 10) for bit in (4, 11, 30)],
    ],
)
def test_leader_epochs_never_go_back(
    harness: LogHarness, number: int, epoch: int, end: int
) -> None:
    """No checksum covers an epoch: the neighboring batches tell which one is wrong."""
    filled(harness)
    damaged(harness, number, 12, struct.pack(">i", epoch))
    expect(harness.again(), end)


@pytest.mark.rule("V68")
def test_of_the_first_batch_of_an_epoch_and_a_last_batch_either_may_be_wrong(
    harness: LogHarness,
) -> None:
    filled(harness, count=10)
    damaged(harness, 9, 12, struct.pack(">i", 1))
    expect(harness.again(), 8)


def test_a_flushed_batch_is_not_doubted_for_what_follows(harness: LogHarness) -> None:
    log = filled(harness, count=9)
    log.flush().result()
    directory_of(log).checkpoint().result()
    append(log, [b"x"], epoch=2, producer=Producer(7, 0, 9))
    damaged(harness, 9, 12, struct.pack(">i", 1))
    expect(harness.again(), 9)


@pytest.mark.rule("V68")
@pytest.mark.parametrize("gap", [2, 3, 100])
def test_a_base_offset_that_the_next_batch_contradicts_ends_a_compacted_log(
    harness: LogHarness, small: Small, gap: int
) -> None:
    """A gap there is compaction's, unless the next batch lies within it."""
    filled(harness, small(segment_bytes=1 << 20, compact_enabled=True))
    damaged(harness, 5, 0, struct.pack(">q", 5 + gap))
    expect(harness.again(), 5)
