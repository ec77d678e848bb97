"""Compacted segments that a crash left under the suffix `.swap`, before they got their final names.

Compaction renames the new segment to `.swap`, then the segments that it replaces to `.deleted`,
then the new segment to its name. A crash in between leaves a log without a log file for some
offsets. The next start of the broker finishes the swap, so the audit reads the `.swap` file as the
segment. If a `.cleaned` file has the same or a lower base offset than a `.swap` file, the swap had
not begun, and the broker removes the `.swap` file. Source:
LogLoader.removeTempFilesAndCollectSwapFiles.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tidelog.spark.pipelines.audit.ranges import RangeResult
from tidelog.spark.segments import directory_files as files
from tidelog.spark.segments.listing import ListedSegment, OtherFile, Replica

_SWAP = ".swap"
_CLEANED = ".cleaned"


def with_swapped(replica: Replica) -> Replica:
    """Return the replica; a `.swap` file without a log file of its name counts as a segment."""
    present = {segment.base_offset for segment in replica.segments}
    cleaned = min((base for base, _ in _logs(replica, _CLEANED)), default=2**63)
    swapped = [
        ListedSegment(other.path, base, other.size, other.mtime_ns, 0)
        for base, other in _logs(replica, _SWAP)
        if base not in present and base < cleaned
    ]
    if not swapped:
        return replica
    segments = sorted((*replica.segments, *swapped), key=lambda each: each.base_offset)
    return replace(replica, segments=tuple(segments))


def without_replaced(
    segments: Sequence[ListedSegment], results: Mapping[str, Sequence[RangeResult]]
) -> list[ListedSegment]:
    """Return the segments without the segments whose offsets a `.swap` file covers."""
    kept: list[ListedSegment] = []
    end = -1
    for segment in segments:
        if segment.base_offset <= end:
            continue
        kept.append(segment)
        if segment.path.endswith(_SWAP):
            lasts = (each.last for each in results.get(segment.path, ()))
            end = max((last for last in lasts if last is not None), default=-1)
    return kept


def is_compacting(replica: Replica) -> bool:
    """Return whether files prove that compaction has begun to replace segments of the replica."""
    bases = [segment.base_offset for segment in replica.segments]
    if _logs(replica, _SWAP) or _logs(replica, _CLEANED):
        return True
    return any(bases and base >= bases[0] for base, _ in _logs(replica, ".deleted"))


def _logs(replica: Replica, suffix: str) -> list[tuple[int, OtherFile]]:
    """Return base offset and file of the replica's log files with a suffix."""
    found = []
    for other in replica.others:
        name = os.path.basename(other.path)
        parsed = files.segment_file_of(name.removesuffix(suffix))
        if name.endswith(suffix) and parsed is not None and parsed[1] == "log":
            found.append((parsed[0], other))
    return found
