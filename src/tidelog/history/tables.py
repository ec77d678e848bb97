"""Tables of a history's content: values, partitions, sends, skips, transactions.

Numbers are kept in arrays, about 300 bytes a record. Instead of operations, the tables keep their
line numbers, by which a reader finds the operations in the history. Each value has an index into
arrays with the places where it was sent and first polled. `HistoryChecker` fills the tables; after
the last operation, `Judge` and `find_cycles` read the tables.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from typing import Final

from tidelog.history.anomalies import Report
from tidelog.history.operations import FAIL

Value = int | str

NOWHERE: Final = -1

#: Bits of `Values.state`: the outcome of a value's send, and whether the send had idempotence and
#: acks=all.
SENT_OK: Final = 1
SENT_FAIL: Final = 2
SENT_INFO: Final = 4
IDEMPOTENT: Final = 8
ACKS_ALL: Final = 16


class Values:
    """All values (numbers that identify records) of a history, and what happened to each."""

    __slots__ = (
        "index", "keys", "node", "poll_line", "polled_offset", "polled_partition", "send_line",
        "sent_offset", "sent_partition", "state", "values",
    )  # fmt: skip

    def __init__(self) -> None:
        self.index: dict[Value, int] = {}
        self.values: list[Value] = []
        self.sent_partition = array("q")
        self.sent_offset = array("q")
        self.send_line = array("q")
        #: Where each value was polled first: partition, offset, and line of the history.
        self.polled_partition = array("q")
        self.polled_offset = array("q")
        self.poll_line = array("q")
        self.state = bytearray()
        #: (key, whether the record is a tombstone) of each value with a key.
        self.keys: dict[int, tuple[str, bool]] = {}
        #: The number of the transaction that sent a value, by the index of the value.
        self.node: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self.values)

    def add(self, value: Value) -> int:
        """Add a new value and return its index."""
        index = self.index[value] = len(self.values)
        self.values.append(value)
        self.sent_partition.append(NOWHERE)
        self.sent_offset.append(-1)
        self.send_line.append(0)
        self.polled_partition.append(NOWHERE)
        self.polled_offset.append(-1)
        self.poll_line.append(0)
        self.state.append(0)
        return index

    def lines(self, index: int) -> tuple[int, ...]:
        """Return the line numbers of a value's send and first poll; 0 for a missing operation."""
        return self.send_line[index], self.poll_line[index]


class PartitionTable:
    """What a history says about one partition: its records, and who sent and polled them."""

    __slots__ = (
        "claims",
        "log_start",
        "name",
        "newest",
        "number",
        "place",
        "required",
        "sends",
        "topic",
    )

    def __init__(self, number: int, name: str, topic: str) -> None:
        self.number = number
        self.name = name
        self.topic = topic
        #: Topic name without topic id, and partition number: the target of a producer without topic
        #: ids.
        self.place = (topic.partition("@")[0], name.rpartition("-")[2])
        #: Index of the first value that an acknowledgement or a poll reported for each offset.
        self.claims: dict[int, int] = {}
        #: The largest offset that was polled.
        self.newest = -1
        #: Offset below which retention may have removed records.
        self.log_start = 0
        #: Acknowledged sends to this partition, by process.
        self.sends: dict[str, Sends] = {}
        #: Offsets that no consumer may skip, in order; computed at the end.
        self.required = array("q")

    def first_required(self, begin: int, end: int) -> int:
        """Return the first offset in [begin, end) that no consumer may skip, or -1."""
        at = bisect_left(self.required, begin)
        found = self.required[at] if at < len(self.required) else end
        return found if found < end else -1


class Sends:
    """Acknowledged sends of one process to one partition, in order of the lines."""

    __slots__ = ("begins", "ends", "firsts", "lasts", "lines")

    def __init__(self) -> None:
        self.begins = array("q")
        #: For each send, the time after which a new send must get a greater offset. The time is the
        #: end of the send, or its begin if the producer keeps the order of batches in flight.
        self.ends = array("q")
        self.firsts = array("q")
        self.lasts = array("q")
        self.lines = array("q")

    def add(self, begin: int, end: int, first: int, last: int, line: int) -> None:
        """Add an operation, with the first and the last offset of its records."""
        self.begins.append(begin)
        self.ends.append(end)
        self.firsts.append(first)
        self.lasts.append(last)
        self.lines.append(line)

    def inversions(self) -> list[tuple[int, int]]:
        """Return pairs (earlier, later) of operations whose offsets contradict their order in time.

        Each operation is `later` in at most one pair. Its `earlier` is the operation with the
        highest offset among those that had ended when `later` began.
        """
        begins, ends, lasts = self.begins, self.ends, self.lasts
        by_begin = sorted(range(len(begins)), key=begins.__getitem__)
        by_end = sorted(range(len(ends)), key=ends.__getitem__)
        found = []
        over = highest = 0
        # Among the operations that had ended when `later` began: the index of the one with the
        # highest offset; -1 if none had ended.
        before = -1
        for later in by_begin:
            while over < len(by_end) and ends[by_end[over]] < begins[later]:
                earlier = by_end[over]
                if before < 0 or lasts[earlier] > highest:
                    before, highest = earlier, lasts[earlier]
                over += 1
            if before >= 0 and self.firsts[later] <= highest:
                found.append((before, later))
        return found


#: Kinds of skipped offsets: between two polls, within one poll, within one send, and between two
#: polls of a consumer that subscribes. `SKIPS` has, at the number of each kind, the name of the
#: anomaly, and whether the anomaly is allowed.
BETWEEN: Final = 0
WITHIN: Final = 1
OF_SENDS: Final = 2
SUBSCRIBED: Final = 3
SKIPS: Final = (
    ("poll-skip", False), ("int-poll-skip", False), ("int-send-skip", True), ("poll-skip", True),
)  # fmt: skip


class Skips:
    """Gaps between consecutive polls or sends, judged when all values are known."""

    __slots__ = ("begins", "ends", "kinds", "lines", "partitions")

    def __init__(self) -> None:
        self.kinds = bytearray()
        self.partitions = array("q")
        self.begins = array("q")
        self.ends = array("q")
        self.lines = array("q")

    def __len__(self) -> int:
        return len(self.kinds)

    def add(self, kind: int, partition: int, begin: int, end: int, line: int, before: int) -> None:
        """Add a gap between two polls or sends: the skipped offsets [begin, end).

        `before` is the line number of the operation whose records end at offset `begin`.
        """
        assert begin < end, "a gap has an offset"
        self.kinds.append(kind)
        self.partitions.append(partition)
        self.begins.append(begin)
        self.ends.append(end)
        self.lines.extend((line, before))


class Transactions:
    """The transactions of a history by number, and the values that they polled."""

    def __init__(self) -> None:
        self.lines: list[int] = []
        self._outcomes: list[str] = []
        #: (transaction, value) of each record that a transaction polled.
        self.polls: list[tuple[int, int]] = []

    def begin(self, line: int, outcome: str) -> int:
        """Add a transaction and return its number."""
        self.lines.append(line)
        self._outcomes.append(outcome)
        return len(self.lines) - 1

    def polled(self, node: int, value: int) -> None:
        """Add a value that a transaction polled."""
        self.polls.append((node, value))

    def counts(self, node: int) -> bool:
        """Return whether a transaction may have been committed."""
        return self._outcomes[node] != FAIL


class Tables:
    """All tables of one history, and its report."""

    __slots__ = (
        "again", "compacted", "deleted", "partitions", "report", "skips", "transactions", "values",
    )  # fmt: skip

    def __init__(self) -> None:
        self.report = Report()
        self.values = Values()
        self.partitions: list[PartitionTable] = []
        self.skips = Skips()
        self.transactions = Transactions()
        #: Deleted topics, for which no promise of Kafka holds any more; `compacted` has the
        #: compacted topics.
        self.deleted: dict[str, None] = {}
        self.compacted: dict[str, None] = {}
        #: (value, partition, offset, line) of each poll of a value already polled at another place.
        self.again: list[tuple[int, int, int, int]] = []

    def is_deleted(self, partition: PartitionTable) -> bool:
        """Return whether a partition's topic was deleted, so that its records may be lost."""
        return partition.topic in self.deleted

    def is_compacted(self, partition: PartitionTable) -> bool:
        """Return whether any incarnation of a partition's topic is compacted."""
        return partition.topic in self.compacted or partition.place[0] in self.compacted
