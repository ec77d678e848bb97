"""The compiled scan over batch headers gives the rows of the Python one, for any bytes."""

from __future__ import annotations

import random

import numpy as np
import pytest
from tests.support.extensions import compiled_extension
from tests.support.log_files import batches

from tidelog.spark.segments.batch_scan import ScanEnd, empty_rows, scan_in_python

EXTENSION = compiled_extension("src/tidelog/spark/segments/_scan.c")
SCANS = [scan_in_python] if EXTENSION is None else [scan_in_python, EXTENSION.scan_rows]


@pytest.mark.skipif(EXTENSION is None, reason="there is no C compiler")
@pytest.mark.parametrize("check", [True, False])
def test_both_scans_agree_on_damaged_logs(check: bool) -> None:
    assert EXTENSION is not None
    draws = random.Random(16)
    whole = b"".join(batches(12, records=3))
    for _ in range(400):
        data = bytearray(whole)
        for _ in range(draws.randrange(4)):
            data[draws.randrange(len(data))] ^= 1 << draws.randrange(8)
        at = draws.choice([0, 0, draws.randrange(len(data))])
        end = draws.choice([len(data), draws.randrange(at, len(data))])
        room = draws.choice([1, 5, 50])
        ours, theirs = empty_rows(room), empty_rows(room)
        found = scan_in_python(data, at, end, 7000, ours, check)
        assert EXTENSION.scan_rows(data, at, end, 7000, theirs, check) == found
        assert np.array_equal(ours[: found[0]], theirs[: found[0]])


@pytest.mark.parametrize("scan", SCANS)
def test_rows_have_the_headers_fields_and_the_checksum_of_the_bytes(scan: object) -> None:
    assert callable(scan)
    data = b"".join(batches(3, first=40, epoch=5))
    rows = empty_rows(10)
    count, after, stop = scan(data, 0, len(data), 1000, rows, True)
    assert (count, after, stop) == (3, len(data), ScanEnd.SHORT)
    assert rows["base"][:3].tolist() == [40, 50, 60]
    assert rows["last"][:3].tolist() == [49, 59, 69]
    assert rows["epoch"][:3].tolist() == [5, 5, 5]
    assert rows["position"][0] == 1000
    assert np.array_equal(rows["crc"][:3], rows["computed_crc"][:3])


@pytest.mark.parametrize("scan", SCANS)
def test_headers_alone_may_reach_beyond_the_buffer(scan: object) -> None:
    assert callable(scan)
    first, second = batches(2)
    rows = empty_rows(10)
    count, after, stop = scan(first + second[:61], 0, len(first) + 61, 0, rows, False)
    assert (count, after, stop) == (2, len(first) + len(second), ScanEnd.SHORT)


@pytest.mark.parametrize("scan", SCANS)
def test_bytes_outside_the_buffer_are_an_error(scan: object) -> None:
    assert callable(scan)
    with pytest.raises(ValueError, match="are not in a buffer of 4"):
        scan(b"1234", 2, 9, 0, empty_rows(1), True)
