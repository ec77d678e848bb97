"""The walk over every record of a batch by itself: `python -m bench walk`.

What it costs a broker at most: it overlaps with nothing here, and the batch is in the cache, as it
is after its checksum was computed.
"""

from __future__ import annotations

import time

from bench.rig import MIB, spread, table
from tidelog.records.batch import HEADER_BYTES
from tidelog.records.builder import NewRecord, build_batch
from tidelog.records.walk import MAX_INT64, MIN_INT64, is_compiled, walk

#: (bytes of a value, records of a batch): batches of 16 KiB and of a megabyte.
_BATCHES = ((100, 150), (100, 9_500), (1024, 16), (1024, 950))
_MAX_BAD = 10_000


def run(rounds: int) -> list[str]:
    """Return the table of both walks, as far as the compiled one is there."""
    rows = []
    for value_bytes, count in _BATCHES:
        records = [NewRecord(key=None, value=b"v" * value_bytes) for _ in range(count)]
        data = memoryview(bytes(build_batch(records)))
        took_ns = [_walk_ns(data, count) for _ in range(max(rounds, 5))]
        rows.append(
            (
                f"{count:,} records of {value_bytes} B",
                spread([ns / count for ns in took_ns], 1),
                spread([ns / 1_000 * MIB / len(data) for ns in took_ns], 1),
            )
        )
    kind = "compiled" if is_compiled() else "in Python: the compiled one is missing"
    return [
        table(f"The walk over every record ({kind})", rows, ("batch", "ns a record", "µs a MiB"))
    ]


def _walk_ns(data: memoryview, count: int) -> float:
    """The time of one walk, of as many as walk some megabytes."""
    times = max(1, 8 * MIB // len(data))
    began_ns = time.perf_counter_ns()
    for _ in range(times):
        walk(data, HEADER_BYTES, len(data), count, 0, MIN_INT64, MAX_INT64, False, _MAX_BAD)
    return (time.perf_counter_ns() - began_ns) / times
