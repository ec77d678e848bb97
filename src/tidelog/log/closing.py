"""The end of a log directory's life in this process: what a clean start later relies on.

Each log is brought to rest, what a failed write left is cut off, and where anything changed, the
indexes of the last segment and a snapshot of the producers are written; then the volume is synced,
once: a wait for each file would take minutes where there are thousands of logs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tidelog.core.completion import Completion
from tidelog.core.errors import StorageError
from tidelog.core.ports import Work
from tidelog.log import names
from tidelog.log.directory_files import Replacement, replace_all
from tidelog.log.segment_files import index_files
from tidelog.log.writing import cut

if TYPE_CHECKING:
    from tidelog.log.partition_log import PartitionLog


async def close_logs(logs: Sequence[PartitionLog]) -> None:
    """Bring all logs of a directory to rest and down to the disk. Raises StorageError."""
    for resting in [log.close("closed") for log in logs]:
        await resting
    for cutting in [_cut_off(log) for log in logs]:
        await cutting
    for idle in [log.flushes.idle() for log in logs]:
        await idle
    if not logs:
        return
    directory = logs[0].directory
    try:
        await replace_all(directory.lane, (one for log in logs for one in _last_words(log)))
    except StorageError as error:
        directory.failed(error)
        raise


def _cut_off(log: PartitionLog) -> Completion[None]:
    segment = log.active_segment
    file, size = segment.file, segment.size_bytes
    if not file.write_failed:
        return Completion.of(None)
    log.cut_unsynced = True
    return log.directory.lane.submit(lambda files: cut(file, size, files), Work.SLOW, "cut back")


def _last_words(log: PartitionLog) -> list[Replacement]:
    replacements = log.flushes.at_close()
    end = log.log_end_offset
    if log.closed_state != (log.truncations, end):
        log.closed_state = (log.truncations, end)
        replacements += index_files(log.active_segment)
        snapshot = f"{log.path}/{names.offset_name(end, names.SNAPSHOT)}"
        replacements.append((snapshot, log.producers.to_snapshot()))
    return replacements
