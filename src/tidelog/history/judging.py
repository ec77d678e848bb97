"""Anomalies that show only in the whole history: missing, duplicate and skipped records.

A record may be missing after the deletion of its topic, below a log start that retention moved, or
after a possible removal by compaction. Compaction may remove a tombstone, and any record that has a
later record with the same key, even if the later record's offset is unknown. A consumer may skip a
record that is allowed to be missing. A consumer may also skip an offset without a known record,
such as an offset of a failed send or of a transaction marker.
"""

from __future__ import annotations

from array import array
from typing import Final

from tidelog.history.cycles import find_cycles
from tidelog.history.tables import (
    ACKS_ALL,
    IDEMPOTENT,
    NOWHERE,
    SENT_FAIL,
    SENT_OK,
    SKIPS,
    PartitionTable,
    Tables,
)

#: Substitute for the unknown offset of a sent record, above all real offsets.
_ANYWHERE: Final = 1 << 63


class Judge:
    """The judgement of one history; `judge` is called once."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._values = tables.values
        self._report = tables.report
        #: Largest known or possible offset of a record, by partition and key. If a topic was
        #: deleted and created again, all topics of the name are judged together, because a send to
        #: the name may reach any of them.
        self._last_of_key: dict[tuple[tuple[str, str], str], int] = {}

    def judge(self, *, has_final_read: bool) -> None:
        """Find the anomalies of the whole history, and add them to the report."""
        if self._tables.compacted:
            self._find_last_of_keys()
        self._judge_values(has_final_read=has_final_read)
        self._judge_again()
        self._judge_skips()
        self._judge_order_of_sends()
        find_cycles(self._tables)

    # Missing records

    def _find_last_of_keys(self) -> None:
        values = self._values
        for index, (key, _) in values.keys.items():
            number = values.sent_partition[index]
            offset = max(values.sent_offset[index], values.polled_offset[index])
            if number == NOWHERE:
                number = values.polled_partition[index]
            if offset < 0 and values.state[index] & SENT_FAIL:
                continue
            place = (self._tables.partitions[number].place, key)
            found = _ANYWHERE if offset < 0 else offset
            self._last_of_key[place] = max(self._last_of_key.get(place, -1), found)

    def _may_be_gone(self, partition: PartitionTable, offset: int, index: int) -> bool:
        """Return whether a record may be missing.

        `offset` is -1 if the record's offset is not known; `index` is the index of its value.
        """
        if 0 <= offset < partition.log_start or self._tables.is_deleted(partition):
            return True
        if index not in self._values.keys or not self._tables.is_compacted(partition):
            return False
        key, is_tombstone = self._values.keys[index]
        return is_tombstone or offset < 0 or self._last_of_key[(partition.place, key)] > offset

    # Values

    def _judge_values(self, *, has_final_read: bool) -> None:
        values, report = self._values, self._report
        partitions = self._tables.partitions
        for index, state in enumerate(values.state):
            polled = values.polled_partition[index]
            if polled == NOWHERE:
                # A value that was acknowledged and never polled is rare, so the check may be
                # costly.
                if state & SENT_OK:
                    self._missing(index, has_final_read=has_final_read)
                continue
            sent = values.sent_partition[index]
            if sent != polled and self._is_elsewhere(index):
                where = "never sent"
                if sent != NOWHERE:
                    where = f"sent to {partitions[sent].name}"
                report.add(
                    "never-sent",
                    False,
                    partitions[polled].name,
                    f"{values.values[index]!r} was polled at offset {values.polled_offset[index]}"
                    f" and {where}",
                    values.lines(index),
                )
            elif state & SENT_FAIL:
                report.add(
                    "G1a",
                    False,
                    partitions[polled].name,
                    f"{values.values[index]!r} was polled at offset {values.polled_offset[index]}"
                    " although its send failed",
                    values.lines(index),
                )
            elif state & ACKS_ALL and 0 <= values.sent_offset[index] != values.polled_offset[index]:
                self._acknowledged_elsewhere(index)

    def _is_elsewhere(self, index: int) -> bool:
        """Return whether a value was polled from a partition to which it was not sent."""
        values, partitions = self._values, self._tables.partitions
        if values.sent_partition[index] == NOWHERE:
            return True
        sent = partitions[values.sent_partition[index]]
        polled = partitions[values.polled_partition[index]]
        if sent.place != polled.place:
            return True
        # Several incarnations had this topic name; only an acknowledgement with acks=all determines
        # the record's incarnation.
        is_sure = values.state[index] & (SENT_OK | ACKS_ALL) == SENT_OK | ACKS_ALL
        return is_sure and "@" in sent.topic and "@" in polled.topic

    def _missing(self, index: int, *, has_final_read: bool) -> None:
        values = self._values
        partition = self._tables.partitions[values.sent_partition[index]]
        offset = values.sent_offset[index]
        if self._may_be_gone(partition, offset, index):
            return
        state = values.state[index]
        where = f"at offset {offset}" if offset >= 0 else "at an unknown offset"
        what = f"{values.values[index]!r} was acknowledged {where} and never polled"
        if 0 <= offset < partition.newest:
            newest = partition.claims[partition.newest]
            self._report.add(
                "lost-write",
                not state & ACKS_ALL,
                partition.name,
                f"{what}; {values.values[newest]!r} was, at offset {partition.newest}",
                [values.send_line[index], values.poll_line[newest]],
            )
        elif has_final_read:
            self._report.add(
                "unseen",
                not state & ACKS_ALL,
                partition.name,
                f"{what}, nor was anything behind it",
                [values.send_line[index]],
            )

    def _acknowledged_elsewhere(self, index: int) -> None:
        values = self._values
        partition = self._tables.partitions[values.polled_partition[index]]
        self._report.add(
            "duplicate",
            not values.state[index] & IDEMPOTENT
            or _first_is_gone(partition, values.sent_offset[index], values.polled_offset[index]),
            partition.name,
            f"{values.values[index]!r} was acknowledged at offset {values.sent_offset[index]} and"
            f" polled at offset {values.polled_offset[index]}",
            values.lines(index),
        )

    def _judge_again(self) -> None:
        values = self._values
        partitions = self._tables.partitions
        #: Offsets at which a value was polled again, by value and partition.
        offsets: dict[tuple[int, int], dict[int, None]] = {}
        for index, number, offset, line in self._tables.again:
            others = offsets.setdefault((index, number), {})
            if offset in others:
                continue
            first = partitions[values.polled_partition[index]]
            where = "" if first.number == number else f"{first.name} "
            self._report.add(
                "duplicate",
                not values.state[index] & IDEMPOTENT
                or (not others and self._met_both(index, first, partitions[number]))
                or (
                    first.number == number
                    and _first_is_gone(first, offset, values.polled_offset[index])
                ),
                partitions[number].name,
                f"{values.values[index]!r} was polled at {where}offset"
                f" {values.polled_offset[index]} and at offset {offset}",
                [*values.lines(index), line],
            )
            others[offset] = None

    def _met_both(self, index: int, first: PartitionTable, second: PartitionTable) -> bool:
        """Return whether two incarnations of a topic may both contain a value.

        A value that was sent to a topic name, without a topic id, may be in two incarnations of the
        topic. Brokers check a producer's sequences only within one incarnation of a topic, so a
        retry may reach the next incarnation.
        """
        sent = self._values.sent_partition[index]
        if sent == NOWHERE or "@" in self._tables.partitions[sent].topic:
            return False
        return first.place == second.place and first.topic != second.topic

    # Orders

    def _judge_skips(self) -> None:
        skips, tables = self._tables.skips, self._tables
        if not len(skips):
            return
        for partition in tables.partitions:
            partition.required = array(
                "q",
                sorted(
                    offset
                    for offset, index in partition.claims.items()
                    if not self._may_be_gone(partition, offset, index)
                ),
            )
        for at, kind in enumerate(skips.kinds):
            partition = tables.partitions[skips.partitions[at]]
            begin, end = skips.begins[at], skips.ends[at]
            offset = partition.first_required(begin, end)
            if offset < 0:
                continue
            name, is_allowed = SKIPS[kind]
            claim = partition.claims[offset]
            line, before = skips.lines[2 * at], skips.lines[2 * at + 1]
            self._report.add(
                name,
                is_allowed,
                partition.name,
                f"went from offset {begin} on to {end} and passed over"
                f" {self._values.values[claim]!r} at offset {offset}",
                [before, line, *self._values.lines(claim)],
            )

    def _judge_order_of_sends(self) -> None:
        for partition in self._tables.partitions:
            for process, sends in partition.sends.items():
                for earlier, later in sends.inversions():
                    self._report.add(
                        "nonmonotonic-send",
                        False,
                        partition.name,
                        f"{process} sent what stands at offset {sends.firsts[later]} after what"
                        f" stands at offset {sends.lasts[earlier]}",
                        [sends.lines[earlier], sends.lines[later]],
                    )


def _first_is_gone(partition: PartitionTable, *offsets: int) -> bool:
    """Return whether retention may have removed the record at the lowest of the given offsets.

    Brokers recognize a producer only by the records in their logs. After retention removed the
    records of a producer, brokers accept a retry as a new record (V38).
    """
    return 0 <= min(offsets) < partition.log_start
