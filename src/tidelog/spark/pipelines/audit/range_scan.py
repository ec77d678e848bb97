"""The scan of a byte range by one task: checksum and header of every batch are checked.

The scan reads 4 MiB at a time into one buffer. The scan does not map the file into memory, because
a broker's truncation would then kill the worker. numpy checks all batches of a step together
(`batch_checks`), so small batches cost little. After bytes that are not a batch, the scan continues
at the next batch with a right checksum. Errors of the operating system are findings; for a vanished
file the driver lists the partition again.
"""

from __future__ import annotations

import os
from typing import Final

from tidelog.core.limits import MAX_DECOMPRESSED_BYTES, MIB
from tidelog.records import compression
from tidelog.records.batch import COMPRESSION_MASK
from tidelog.spark.pipelines.audit.batch_checks import BatchChecks
from tidelog.spark.pipelines.audit.findings import Collector, FindingKind, Severity
from tidelog.spark.pipelines.audit.index_checks import IndexChecks
from tidelog.spark.pipelines.audit.producer_checks import ProducerChecks
from tidelog.spark.pipelines.audit.ranges import RangeJob, RangeResult
from tidelog.spark.segments.batch_scan import (
    HEADER_BYTES,
    OVERHEAD_BYTES,
    Rows,
    ScanEnd,
    empty_rows,
    header_at,
    scan_rows,
)
from tidelog.spark.segments.resync import are_zeros, first_with_wrong_length, next_batch

_STEP_BYTES: Final = 4 * MIB
_STEP_ROWS: Final = 1 << 16
#: Magic bytes of Kafka's message sets before 0.11, which begin with the same fields as batches.
_OLD_MAGICS: Final = (0, 1)


def scan_range(job: RangeJob) -> RangeResult:
    """Scan a range; the result has the findings of its log file and its indexes."""
    result = RangeResult(job.start, job.end, job.high, job.start)
    findings = Collector(job.path)
    try:
        descriptor = os.open(job.path, os.O_RDONLY)
    except FileNotFoundError:
        result.is_gone = True
        return result
    except OSError as error:
        findings.add(
            FindingKind.UNREADABLE, f"the file cannot be opened: {error.strerror}", job.start
        )
        result.findings = findings.all()
        result.stopped_at = job.end
        return result
    try:
        if os.fstat(descriptor).st_size < job.size:
            result.is_gone = True
            return result
        _RangeScan(job, descriptor, result, findings).run()
    except OSError as error:
        # The checks of the bytes read so far stand; the following bytes cannot be read.
        findings.add(
            FindingKind.UNREADABLE,
            f"the file cannot be read at or behind this byte: {error.strerror}",
            result.stopped_at,
            result.last,
        )
        result.stopped_at = job.end
    finally:
        os.close(descriptor)
    result.findings = findings.all() + result.findings
    return result


class _RangeScan:
    def __init__(
        self, job: RangeJob, descriptor: int, result: RangeResult, findings: Collector
    ) -> None:
        self._job = job
        self._descriptor = descriptor
        self._result = result
        self._findings = findings
        self._checks = BatchChecks(job, result, findings)
        self._indexes = IndexChecks(job, result)
        self._producers = ProducerChecks(job, result)
        size = job.end - job.start
        self._buffer = bytearray(min(_STEP_BYTES, max(size, HEADER_BYTES)))
        self._rows = empty_rows(min(_STEP_ROWS, size // HEADER_BYTES + 1))
        self._old_entries = 0

    def run(self) -> None:
        """Scan to the end of the range."""
        job, result = self._job, self._result
        wanted = _STEP_BYTES
        while result.stopped_at < job.end:
            position = result.stopped_at
            have = self._read(position, min(wanted, max(job.end - position, 0)), wanted)
            count, after, stop = scan_rows(self._buffer, 0, have, position, self._rows, True)
            result.stopped_at = position + after
            rows = self._rows[:count]
            if count and rows["position"][-1] >= job.end:
                # After a large batch, the buffer also has batches of the next range.
                rows = rows[rows["position"] < job.end]
                result.stopped_at = int(rows["position"][-1] + rows["size"][-1])
            suspect = first_with_wrong_length(self._descriptor, rows, job.size)
            if suspect is not None:
                self._fold(rows[:suspect], position)
                self._skip(int(rows["position"][suspect]), "its checksum and its length are wrong")
                continue
            self._fold(rows, position)
            if stop is ScanEnd.FULL or count:
                wanted = _STEP_BYTES
                continue
            if stop is ScanEnd.SHORT:
                wanted = self._size_wanted(have)
                if not wanted:
                    wanted = _STEP_BYTES
                continue
            self._bad_header(stop)
        self._indexes.finish()
        self._producers.finish()
        if self._old_entries:
            self._findings.add(
                FindingKind.OLD_FORMAT,
                f"{self._old_entries} message sets of a format before Kafka 0.11 are not checked",
                job.start,
                severity=Severity.NOTICE,
            )

    def _read(self, position: int, size: int, wanted: int) -> int:
        """Read bytes of the file into the buffer; return their count.

        The bytes may go beyond the range, because its last batch may end there.
        """
        if wanted > _STEP_BYTES:
            size = wanted
        size = min(size, self._job.size - position)
        if size > len(self._buffer):
            self._buffer = bytearray(size)
        read = 0
        with memoryview(self._buffer) as view:
            while read < size:
                count = os.preadv(self._descriptor, [view[read:size]], position + read)
                if count == 0:
                    break
                read += count
        return read

    def _size_wanted(self, have: int) -> int:
        """Return the bytes to read for the next batch; 0 if the file ends inside the batch."""
        position, size = self._result.stopped_at, self._job.size
        left = size - position
        if have < HEADER_BYTES <= left:
            return max(_STEP_BYTES + 1, HEADER_BYTES)
        if left < HEADER_BYTES:
            self._skip(position, f"{left} bytes are left, a header has {HEADER_BYTES}")
            return 0
        _, claimed, _ = header_at(self._buffer, 0)
        if claimed > left:
            self._skip(position, f"it claims {claimed:,} bytes, and {left:,} are left")
            return 0
        return max(claimed, _STEP_BYTES + 1)

    def _bad_header(self, stop: ScanEnd) -> None:
        position = self._result.stopped_at
        have = self._read(position, HEADER_BYTES, HEADER_BYTES)
        _, claimed, magic = header_at(self._buffer, 0)
        is_old = stop is ScanEnd.BAD_MAGIC and magic in _OLD_MAGICS and have == HEADER_BYTES
        if is_old and position + claimed <= self._job.size:
            self._old_entries += 1
            self._result.stopped_at = position + claimed
            self._checks.forget_order()
            return
        if stop is ScanEnd.BAD_LENGTH:
            reason = f"its length field is {claimed - OVERHEAD_BYTES}, the least is 49"
        else:
            reason = f"its magic is {magic}, 2 is expected"
        self._skip(position, reason)

    def _skip(self, position: int, reason: str) -> None:
        """Continue at the next batch after bytes that are not a batch, or at the range's end."""
        job, result = self._job, self._result
        low = job.base_offset if result.last is None else result.last + 1
        is_last = job.end == job.size
        found = next_batch(self._descriptor, position + 1, job.end, job.size, low)
        if found is None and is_last:
            # The driver decides whether a crash explains a file's last bytes that are no batch.
            zeros = are_zeros(self._descriptor, position, job.size)
            result.tail = (position, reason, zeros)
            result.stopped_at = job.end
            return
        end = job.end if found is None else found.position
        behind = "" if found is None else f", offset {found.base}"
        self._findings.add(
            FindingKind.NO_BATCH,
            f"no batch begins here: {reason}; the next one is at byte {end}{behind}",
            position,
            low,
        )
        if found is not None and found.base > low:
            result.damaged.append((low, found.base - 1))
        elif found is None:
            result.damaged.append((low, low))
        result.stopped_at = end
        self._checks.forget_order()
        self._indexes.skip(position, end)

    def _check_frames(self, rows: Rows, origin: int) -> None:
        """Report whole batches that tidelog can decompress, but Kafka's clients cannot."""
        is_lz4 = (rows["attributes"] & COMPRESSION_MASK) == compression.LZ4
        is_whole = rows["crc"] == rows["computed_crc"]
        view = memoryview(self._buffer)
        for row in rows[is_lz4 & is_whole]:
            start, size = int(row["position"]) - origin, int(row["size"])
            records = view[start + HEADER_BYTES : start + size]
            try:
                reason = compression.foreign_frames(
                    compression.LZ4, records, MAX_DECOMPRESSED_BYTES
                )
            except compression.CompressionError as error:
                reason = str(error)
            if reason:
                self._findings.add(
                    FindingKind.FRAMES,
                    f"Kafka's clients cannot read the batch of {size} bytes: {reason}",
                    int(row["position"]),
                    int(row["base"]),
                )

    def _fold(self, rows: Rows, origin: int) -> None:
        """Check the batches `rows`; the buffer has the bytes of the file from `origin` on."""
        if len(rows):
            self._check_frames(rows, origin)
            columns = self._checks.fold(rows)
            self._indexes.fold(columns)
            self._producers.fold(rows)
