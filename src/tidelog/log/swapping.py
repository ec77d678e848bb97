"""Puts a compacted segment in the place of those it was made from, and finishes that after a crash.

The new segment's files end in `.cleaned` while they are written and synced. All are renamed to
`.swap` and the directory is synced: from then on the new segment counts, before nothing does. Then
the old files are renamed to `.deleted`, and with another sync between, for names may reach the disk
in any order, the suffix `.swap` goes.

A start removes what is `.cleaned`, and with it any `.swap` at or behind it: not all of them had
been renamed. What is left of `.swap` takes the place of the segments that begin within its offsets.
Old segments behind them, of which nothing was kept, may come back; they hold nothing that later
records have not replaced, as before the run. Sources: LocalLog.replaceSegments, LogLoader.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tidelog.core.ports import Files
from tidelog.log import names
from tidelog.log.scan import Scan

#: The files of a segment, the log first.
SEGMENT_SUFFIXES = (names.LOG, names.INDEX, names.TIME_INDEX, names.TRANSACTION_INDEX)


@dataclass(slots=True)
class SwapOperation:
    """Replace the segments `old` (base offsets, rising) by the cleaned one at the first of them."""

    directory: str
    old: list[int]
    #: Producer snapshots that lie within the new segment.
    snapshots: list[int]

    #: The old segments are not part of the log any more, whatever else fails.
    committed: bool = False
    #: Paths of files that may be removed.
    deleted: list[str] = field(default_factory=list)

    def __call__(self, files: Files) -> None:
        """Do it. Raises OSError."""
        directory = self.directory
        new = [f"{directory}/{names.offset_name(self.old[0], s)}" for s in SEGMENT_SUFFIXES]
        new = [path for path in new if files.exists(path + names.CLEANED)]
        for path in new:
            files.rename(path + names.CLEANED, path + names.SWAP)
        files.fsync_directory(directory)
        self.committed = True
        gone = [
            f"{directory}/{names.offset_name(offset, suffix)}"
            for offset in self.old
            for suffix in SEGMENT_SUFFIXES
        ]
        gone += [f"{directory}/{names.offset_name(s, names.SNAPSHOT)}" for s in self.snapshots]
        for path in gone:
            if files.exists(path):
                files.rename(path, path + names.DELETED)
                self.deleted.append(path + names.DELETED)
        files.fsync_directory(directory)
        for path in new:
            files.rename(path + names.SWAP, path)


def remove_cleaned(files: Files, directory: str, base_offset: int) -> None:
    """Remove what a run over the same segment left that did not come to its swap.

    Raises OSError.
    """
    for suffix in SEGMENT_SUFFIXES:
        path = f"{directory}/{names.offset_name(base_offset, suffix)}"
        # The last file is never `.swap` here: as long as it is there, no other one counts.
        for name in (path + names.SWAP, path + names.CLEANED):
            if files.exists(name):
                files.unlink(name)


def finish_swaps(files: Files, directory: str) -> list[str]:
    """Bring a partition's directory from whatever a crash left to the old or the new segments.

    Returns what was done, for people. Raises OSError.
    """
    present = files.listdir(directory)
    cleaned = _with_suffix(present, names.CLEANED)
    swaps = _with_suffix(present, names.SWAP)
    notes: list[str] = []
    first_cleaned = min(cleaned.values(), default=2**63)
    for name, offset in list(swaps.items()):
        if offset >= first_cleaned:
            files.unlink(f"{directory}/{name}")
            del swaps[name]
    if swaps:
        notes.append(_take_place(files, directory, present, swaps))
    if cleaned:
        notes.append("a compaction that was not finished is undone")
        # The swaps that it makes void must not come back without it.
        files.fsync_directory(directory)
        for name in cleaned:
            files.unlink(f"{directory}/{name}")
    return notes


def _take_place(files: Files, directory: str, present: list[str], swaps: dict[str, int]) -> str:
    """Remove the segments that the swapped ones replace, then take off their suffix."""
    logs = {name: at for name, at in swaps.items() if name.endswith(names.LOG + names.SWAP)}
    if logs:
        first = min(logs.values())
        end = max(_next_offset(files, directory, name, at) for name, at in logs.items())
        for name in present:
            parsed = names.parse_offset_name(name)
            if parsed is None or not first <= parsed[0] < end:
                continue
            if parsed[1] in SEGMENT_SUFFIXES or (parsed[1] == names.SNAPSHOT and parsed[0] > first):
                files.unlink(f"{directory}/{name}")
        files.fsync_directory(directory)
    for name in swaps:
        files.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix(names.SWAP)}")
    files.fsync_directory(directory)
    return f"a compaction is finished: {', '.join(swaps)}"


def _next_offset(files: Files, directory: str, name: str, base_offset: int) -> int:
    """The offset after a log file's last batch."""
    end = base_offset
    handle = files.open(f"{directory}/{name}")
    try:
        size = files.size(handle)
        scan = Scan(lambda count, at: files.pread(handle, count, at), base_offset, 0, size)
        for _, batch in scan:
            end = batch.next_offset
    finally:
        files.close(handle)
    return end


def _with_suffix(present: list[str], suffix: str) -> dict[str, int]:
    """Names of segment files that carry `suffix`, with their offsets."""
    found: dict[str, int] = {}
    for name in present:
        parsed = names.parse_offset_name(name.removesuffix(suffix))
        if name.endswith(suffix) and parsed is not None:
            found[name] = parsed[0]
    return found
