"""Batches with fewer records: what is left reads as before, whatever the timestamps are."""

from __future__ import annotations

import struct

import pytest

from tidelog.records.batch import BatchView, check
from tidelog.records.builder import NewRecord, build_batch
from tidelog.records.reader import read_columns, read_keys
from tidelog.records.rewriting import rewritten

NOW_MS = 1_700_000_000_000
BASE_TIMESTAMP_POSITION = 27


def batch_with_base(base_timestamp_ms: int) -> BatchView:
    """Records 5 ms before and 5 ms after a base that a client chose."""
    keys = [NewRecord(b"a", b"1", 0), NewRecord(b"b", b"2", -5), NewRecord(b"c", b"3", 5)]
    batch = build_batch(keys)
    struct.pack_into(">q", batch, BASE_TIMESTAMP_POSITION, base_timestamp_ms)
    struct.pack_into(">I", batch, 17, BatchView(batch).computed_crc())
    return BatchView(batch)


@pytest.mark.parametrize("horizon_ms", [None, NOW_MS])
@pytest.mark.parametrize("base_ms", [0, NOW_MS, -(2**63), -(2**63) + NOW_MS, 2**63 - 1])
@pytest.mark.parametrize("kept", [slice(None), slice(1, 2), slice(2, 3)])
def test_timestamps_at_the_ends_of_64_bits_stay_what_they_were(
    base_ms: int, horizon_ms: int | None, kept: slice
) -> None:
    batch = batch_with_base(base_ms)
    payload, keys = read_keys(batch)
    before = read_columns(batch).timestamps_ms[kept]
    left = BatchView(rewritten(batch, payload, keys[kept], horizon_ms))
    check(left)
    assert read_columns(left).timestamps_ms == before
    assert left.max_timestamp == max(before)
    assert left.delete_horizon_ms == horizon_ms
