"""The checker of a history, which takes operations one by one and reports anomalies at the end.

An offset with two values, or a poll below the consumer's position, is recorded immediately. A
missing record shows only when all polls are known. Sends may come in any order, and before or after
the polls of their records. The operations of one consumer (poll, assign, seek, subscribe,
transaction) must be added in the order in which they happened. Apart from sorting, the time is
linear in the number of records. The module does no I/O.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from tidelog.history.anomalies import Report
from tidelog.history.judging import Judge
from tidelog.history.operations import (
    FAIL,
    INFO,
    OK,
    MalformedHistory,
    Operation,
    Records,
    split_partition,
)
from tidelog.history.tables import (
    ACKS_ALL,
    BETWEEN,
    IDEMPOTENT,
    NOWHERE,
    OF_SENDS,
    SENT_FAIL,
    SENT_INFO,
    SENT_OK,
    SUBSCRIBED,
    WITHIN,
    PartitionTable,
    Sends,
    Tables,
)

_STATES: Final = {OK: SENT_OK, FAIL: SENT_FAIL, INFO: SENT_INFO}
_OF_CONSUMERS: Final = frozenset(("poll", "assign", "seek", "subscribe", "txn"))


class _Consumer:
    """The positions of one consumer."""

    __slots__ = ("busy_until", "is_subscribed", "line", "positions")

    def __init__(self) -> None:
        self.is_subscribed = False
        #: (next offset, line of the operation that set this offset), by partition number.
        self.positions: dict[int, tuple[int, int]] = {}
        self.busy_until = -1
        self.line = 0


class HistoryChecker:
    """Checker of one history."""

    def __init__(self, *, has_final_read: bool = True) -> None:
        """Begin an empty history.

        With `has_final_read`, consumers read every partition to its end at the end of the history,
        so each record that was not polled is missing.
        """
        self._has_final_read = has_final_read
        self._tables = tables = Tables()
        self.report: Report = tables.report
        self._values = tables.values
        self._transactions = tables.transactions
        self._by_name: dict[str, PartitionTable] = {}
        self._consumers: dict[str, _Consumer] = {}
        self._conflicts: dict[tuple[int, int, int], None] = {}

    def add(self, operation: Operation, line: int) -> None:
        """Add the next operation; line numbers begin at 1.

        Raises MalformedHistory for a value that is sent a second time, and for overlapping
        operations of a consumer.
        """
        report = self.report
        report.operations += 1
        if report.operations == 1 or operation.begin < report.begin:
            report.begin = operation.begin
        kind = operation.kind
        if kind in _OF_CONSUMERS:
            self._consumer_does(operation, line)
        elif kind == "send":
            self._send(operation, operation.records, line, {}, NOWHERE)
        elif kind == "delete" and operation.outcome != FAIL:
            self._tables.deleted.update(dict.fromkeys(operation.topics))
        elif kind == "compact":
            self._tables.compacted.update(dict.fromkeys(operation.topics))
        elif kind == "log_start" and operation.outcome != FAIL:
            for name, offset in operation.partitions.items():
                partition = self._partition(name)
                partition.log_start = max(partition.log_start, offset or 0)

    def finish(self) -> Report:
        """Judge the whole history and return the report; no operation may be added afterwards."""
        Judge(self._tables).judge(has_final_read=self._has_final_read)
        return self.report

    # Operations

    def _consumer_does(self, operation: Operation, line: int) -> None:
        consumer = self._consumers.get(operation.process)
        if consumer is None:
            consumer = self._consumers[operation.process] = _Consumer()
        if operation.begin < consumer.busy_until:
            raise MalformedHistory(
                f"line {line}: {operation.process} begins this {operation.kind} at"
                f" {operation.begin}, but its operation of line {consumer.line} ended at"
                f" {consumer.busy_until}: a consumer does one thing after the other, and its lines"
                " stand in that order; name each consumer as a process of its own"
            )
        consumer.busy_until = operation.begin if operation.end is None else operation.end
        consumer.line = line
        kind = operation.kind
        if kind == "poll":
            self._poll(consumer, operation.records, line, {})
            if operation.outcome == INFO:
                # The consumer may have got records that the history does not contain, so its
                # positions are unknown.
                consumer.positions.clear()
        elif kind == "txn":
            self._transaction(consumer, operation, line)
        elif kind == "subscribe":
            consumer.is_subscribed = True
        elif operation.outcome == OK:
            self._positioned(consumer, operation, line)
        elif operation.outcome == INFO:
            consumer.positions.clear()

    def _positioned(self, consumer: _Consumer, operation: Operation, line: int) -> None:
        """Set a consumer's positions after its assign or seek.

        A partition that stays assigned keeps its position if the operation names no offset for it.
        """
        offsets = {
            self._partition(name).number: offset for name, offset in operation.partitions.items()
        }
        if operation.kind == "assign":
            consumer.is_subscribed = False
            consumer.positions = {
                number: place for number, place in consumer.positions.items() if number in offsets
            }
        for number, offset in offsets.items():
            if offset is not None:
                consumer.positions[number] = (offset, line)
            elif operation.kind == "seek":
                consumer.positions.pop(number, None)

    def _transaction(self, consumer: _Consumer, operation: Operation, line: int) -> None:
        node = self._transactions.begin(line, operation.outcome)
        polled: dict[int, int] = {}
        sent: dict[int, int] = {}
        own: dict[Any, None] = {}
        for kind, records in operation.steps:
            if kind == "send":
                self._send(operation, records, line, sent, node)
                own.update((record[1], None) for each in records.values() for record in each)
                continue
            self._poll(consumer, records, line, polled)
            for name, listed in records.items():
                for offset, value, *_ in listed:
                    self._transactions.polled(node, self._values.index[value])
                    if value in own:
                        self.report.add(
                            "precommitted-read",
                            False,
                            name,
                            f"{operation.process} sent {value!r} in a transaction and polled it at"
                            f" offset {offset} before the transaction ended",
                            [line],
                        )
        if operation.outcome != OK:
            # The client may have reset the consumer to its positions before the transaction, so the
            # positions in the polled partitions are unknown.
            for number in polled:
                consumer.positions.pop(number, None)

    def _partition(self, name: str) -> PartitionTable:
        partition = self._by_name.get(name)
        if partition is None:
            number = len(self._tables.partitions)
            partition = PartitionTable(number, name, split_partition(name)[0])
            self._by_name[name] = partition
            self._tables.partitions.append(partition)
        return partition

    # Sends

    def _send(
        self, operation: Operation, records: Records, line: int, reached: dict[int, int], node: int
    ) -> None:
        """Add the records of a send.

        `reached` has the last offset of each partition in earlier steps of the transaction. `node`
        is the number of the transaction, NOWHERE without one.
        """
        state = _STATES[operation.outcome]
        if operation.idempotent or node != NOWHERE:
            state |= IDEMPOTENT
        if operation.acks == -1:
            state |= ACKS_ALL
        values = self._values
        for name, listed in records.items():
            partition = self._partition(name)
            self.report.sent_records += len(listed)
            if operation.outcome == OK:
                self.report.acknowledged_records += len(listed)
            for record in listed:
                value = record[1]
                index = values.index.get(value)
                if index is None:
                    index = values.add(value)
                elif values.state[index]:
                    raise MalformedHistory(
                        f"line {line}: the value {value!r} was sent by line"
                        f" {values.send_line[index]} already: every value is sent once, a client's"
                        " own repetitions being one send"
                    )
                values.sent_partition[index] = partition.number
                values.send_line[index] = line
                values.state[index] = state
                if record[0] is not None and operation.outcome == OK:
                    values.sent_offset[index] = record[0]
                if len(record) > 2:
                    values.keys[index] = (record[2], len(record) > 3 and record[3])
                if node != NOWHERE:
                    values.node[index] = node
            # Only acks=all proves the offset of a record: a record with acks=1 may be lost with its
            # leader, and another record then gets its offset.
            if operation.outcome == OK and operation.acks == -1:
                self._acknowledged(operation, partition, listed, line, reached)

    def _acknowledged(
        self,
        operation: Operation,
        partition: PartitionTable,
        listed: Sequence[Sequence[Any]],
        line: int,
        reached: dict[int, int],
    ) -> None:
        first = -1
        last = reached.get(partition.number, -1)
        is_next = True
        keeps_order = operation.idempotent or operation.kind == "txn"
        for record in listed:
            offset = record[0]
            if offset is None:
                is_next = False  # the offset is unknown: it may be the offset after `last`
                continue
            if first < 0:
                first = offset
            if 0 <= last != offset - 1:
                if offset <= last:
                    self.report.add(
                        "int-nonmonotonic-send",
                        not keeps_order,
                        partition.name,
                        f"{operation.process} sent {record[1]!r}, which stands at offset {offset},"
                        f" behind one that stands at offset {last}",
                        [line],
                    )
                elif is_next:
                    self._tables.skips.add(OF_SENDS, partition.number, last + 1, offset, line, line)
            last = offset
            is_next = True
            index = self._values.index[record[1]]
            claim = partition.claims.setdefault(offset, index)
            if claim != index:
                self._conflict(partition, offset, claim, index, line)
        if first < 0:
            return
        reached[partition.number] = last
        sends = partition.sends.get(operation.process)
        if sends is None:
            sends = partition.sends[operation.process] = Sends()
        end = operation.begin if operation.end is None or keeps_order else operation.end
        sends.add(operation.begin, end, first, last, line)

    # Polls

    def _poll(
        self, consumer: _Consumer, records: Records, line: int, reached: dict[int, int]
    ) -> None:
        """Add the records of a poll.

        `reached` has the next offset of each partition after earlier steps of the operation.
        """
        for name, listed in records.items():
            if not listed:
                continue
            partition = self._partition(name)
            number = partition.number
            expected = reached.get(number, -1)
            if expected < 0:
                self._goes_on(consumer, partition, listed[0][0], line)
                expected = listed[0][0]
            self._take(partition, listed, expected, line)
            following = listed[-1][0] + 1
            reached[number] = following
            consumer.positions[number] = (following, line)

    def _goes_on(
        self, consumer: _Consumer, partition: PartitionTable, first: int, line: int
    ) -> None:
        """Check that a new operation begins right after the consumer's last offset."""
        position, before = consumer.positions.get(partition.number, (first, line))
        if first > position:
            kind = SUBSCRIBED if consumer.is_subscribed else BETWEEN
            self._tables.skips.add(kind, partition.number, position, first, line, before)
        elif first < position:
            self.report.add(
                "nonmonotonic-poll",
                consumer.is_subscribed,
                partition.name,
                f"a consumer that had come to offset {position} got offset {first}",
                [before, line],
            )

    def _take(
        self, partition: PartitionTable, listed: Sequence[Sequence[Any]], expected: int, line: int
    ) -> None:
        """Add polled records of one partition; `expected` is the consumer's position."""
        values, number, claims = self._values, partition.number, partition.claims
        index_of = values.index
        for record in listed:
            offset = record[0]
            value = record[1]
            if offset != expected:
                self._breaks_off(partition, expected, offset, line)
            expected = offset + 1
            index = index_of.get(value)
            if index is None:
                index = values.add(value)
            if values.polled_partition[index] == NOWHERE:
                values.polled_partition[index] = number
                values.polled_offset[index] = offset
                values.poll_line[index] = line
                self.report.polled_records += 1
                if len(record) > 2:
                    values.keys[index] = (record[2], len(record) > 3 and record[3])
            elif values.polled_offset[index] == offset and values.polled_partition[index] == number:
                if claims[offset] == index:
                    continue
            elif offset not in claims or claims[offset] != index:
                self._tables.again.append((index, number, offset, line))
            claim = claims.setdefault(offset, index)
            if claim != index:
                self._conflict(partition, offset, claim, index, line)
            if offset > partition.newest:
                partition.newest = offset

    def _breaks_off(self, partition: PartitionTable, expected: int, offset: int, line: int) -> None:
        if offset > expected:
            self._tables.skips.add(WITHIN, partition.number, expected, offset, line, line)
            return
        self.report.add(
            "int-nonmonotonic-poll",
            False,
            partition.name,
            f"one poll got offset {offset} behind offset {expected - 1}",
            [line],
        )

    def _conflict(
        self, partition: PartitionTable, offset: int, claim: int, index: int, line: int
    ) -> None:
        """Report an offset with two different values, once for each further value.

        `claim` is the index of the value that was reported first at this offset, and `index` is the
        index of the further value.
        """
        key = (partition.number, offset, index)
        if key in self._conflicts:
            return
        self._conflicts[key] = None
        values = self._values
        self.report.add(
            "inconsistent-offsets",
            False,
            partition.name,
            f"offset {offset} held {values.values[claim]!r} and {values.values[index]!r}",
            [*values.lines(claim), line],
        )
