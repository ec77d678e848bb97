"""The end of a story: the violated rule, and a table of each replica's records around the offset.

The text of the violation determines the rule. The table shows records around the violation's
offset, or around the first offset at which a log differs from the committed records. The table
shows the logs as their files were at the end of the run.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from tidelog.sim.batches import GONE
from tidelog.sim.observed.replica_logs import LogKey, ReplicaLog

if TYPE_CHECKING:
    from tidelog.sim.story.watching import Watcher

#: Number of offsets shown before and after the violation's offset.
_AROUND: Final = 3
#: Patterns that find the offset in the text of a violation, the most reliable first.
_OFFSETS: Final = (
    re.compile(r"\boffset (\d+)"),
    re.compile(r"log ends at (\d+)"),
    re.compile(r"no leader ever had more than (\d+)"),
)
#: (pattern, rule): the first pattern that matches the text of a violation determines the rule.
_RULES: Final = (
    (r"lacks committed records \(cut its log\)",
     "V32: a follower truncates only records that its leader lacks, never committed ones"),
    (r"lacks committed records",
     "V60, A7: every member of the maximal ISR has all committed records"),
    (r"leads in epoch \d+ without", "V12: a leader has all committed records"),
    (r"below the high watermark of node", "V60: records below a high watermark never change"),
    (r"which only .* ever had", "V60, V64: a committed record is on min.insync.replicas replicas"),
    (r"no leader ever had more", "V60: no follower's high watermark is above its leaders'"),
    (r"its log ends at \d+$", "V60: no high watermark is above the end of its log"),
    (r"the high watermark of leader", "V60: a leader's high watermark never goes back"),
    (r"acknowledged and not committed",
     "V64: the response to acks=all follows the commit of the batch"),
    (r"^client \d+ (read|got no record)", "V60: consumers get only committed records"),
    (r"both lead in epoch", "V14: a leader epoch has one leader"),
    (r"which was gone before it registered", "V23: a replica never serves a recreated topic"),
    (r"\(V(\d+)\)", "the rule that it names"),
    (r"is of session \d+, which is over", "S1: a session that is over writes nothing"),
    (r"not in time",
     "liveness: a minute after the faults everything is in sync, acknowledged and read"),
    (r"refused the sequence", "V64: a leader has the acknowledged batches of idempotent producers"),
    (r"went back", "V14: epochs never go back"),
    (r"generation", "G1: one generation of a group at a time, handed out once"),
    (r"\bgroup\b", "G1: committed offsets of a group are never lost or invented"),
)  # fmt: skip


def rule_of(violation: str) -> str:
    """Return the id and the text of the violated rule; empty if no pattern matches."""
    text = re.sub(r"^[\d.]+ s: ", "", violation.partition("\n")[0])
    return next((rule for pattern, rule in _RULES if re.search(pattern, text)), "")


def ending(watcher: Watcher, violation: str, subjects: Sequence[str]) -> list[str]:
    """Return the violation, the rule, and the logs of the partitions that the violation names."""
    lines = [f"VIOLATION {violation.partition(chr(10))[0]}"]
    rule = rule_of(violation)
    if rule:
        lines.append(f"The rule: {rule}.")
    for key in watcher.run.cluster.published.partitions:
        if watcher.name(key) in subjects:
            lines += _logs(watcher, key, violation)
    return lines


def _logs(watcher: Watcher, key: LogKey, violation: str) -> list[str]:
    """Return a table with a row for each replica and a column for each offset."""
    cluster = watcher.run.cluster
    state = cluster.published.partitions[key]
    committed = cluster.replication.truth(key).committed
    logs = {node_id: broker.logs.logs.get(key) for node_id, broker in cluster.brokers.items()}
    offset = _offset(violation, list(logs.values()), committed)
    offsets = range(max(0, offset - _AROUND), offset + _AROUND + 1)
    rows = [["", *map(str, offsets), "log end", "high watermark"]]
    for node_id, log in logs.items():
        cells = [_cell(log, each) for each in offsets]
        mark = cluster.replication.high_watermark(node_id, key)
        who = f"broker {node_id}{' (down)' if node_id in watcher.down else ''}"
        end = "no log" if log is None else str(log.end)
        rows.append([who, *cells, end, "-" if mark < 0 else str(mark)])
    known = [_record(committed[each]) if each < len(committed) else "-" for each in offsets]
    rows.append(["committed", *known, str(len(committed)), ""])
    return [
        f"What the logs of {watcher.name(key)} hold around offset {offset} (leader epoch:record);"
        f" published: leader {state.leader}, leader epoch {state.leader_epoch}, ISR {state.isr},"
        f" partition epoch {state.partition_epoch}",
        *_aligned(rows),
    ]


def _offset(violation: str, logs: Sequence[ReplicaLog | None], committed: Sequence[int]) -> int:
    """Return the offset that a violation names.

    If the violation names no offset, return the first committed offset at which a log has another
    record or has already ended.
    """
    for pattern in _OFFSETS:
        found = pattern.search(violation)
        if found is not None:
            return int(found[1])
    differing = [
        offset
        for log in logs
        if log is not None
        for offset in range(log.start, len(committed))
        if offset >= log.end or log.numbers[offset - log.start] not in (GONE, committed[offset])
    ]
    return min(differing, default=max(len(committed) - 1, 0))


def _cell(log: ReplicaLog | None, offset: int) -> str:
    if log is None or not log.start <= offset < log.end:
        return "-"
    number = log.numbers[offset - log.start]
    return "gone" if number == GONE else f"{log.epochs[offset - log.start]}:{_record(number)}"


def _record(number: int) -> str:
    """Return a record number as text; a long number is shortened to its last digits.

    Long record numbers are checksums of coordinators' records, which their last digits distinguish
    well enough.
    """
    text = str(number)
    return text if len(text) <= 8 else f"..{text[-5:]}"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  " + "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    ]
