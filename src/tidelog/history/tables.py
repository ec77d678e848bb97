"""Tables of what a history states: values, partitions, sends, skips, transactions.

Numbers lie in arrays, some 300 bytes a record. Operations are not kept: their line numbers are, by
which a reader finds them in the history again. A value has an index, by which arrays hold where it
was sent and where it was polled first. `HistoryChecker` fills the tables; `Judge` and `find_cycles`
read them at the end.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from typing import Final

from tidelog.history.anomalies import Report
from tidelog.history.operations import FAIL

Value = int | str

NOBODY: Final = -1

#: Bits of `Values.state`: how the send of a value ended, and what it was promised.
SENT_OK: Final = 1
SENT_FAIL: Final = 2
SENT_INFO: Final = 4
IDEMPOTENT: Final = 8
ACKS_ALL: Final = 16


class Values:
    """Every value of a history."""

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
        #: Where it was polled first.
        self.polled_partition = array("q")
        self.polled_offset = array("q")
        self.poll_line = array("q")
        self.state = bytearray()
        #: (key, whether it deletes the key) of those that have a key.
        self.keys: dict[int, tuple[str, bool]] = {}
        #: The transaction that sent it, of those that were sent by one.
        self.node: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self.values)

    def add(self, value: Value) -> int:
        """The index of a value that has none."""
        index = self.index[value] = len(self.values)
        self.values.append(value)
        self.sent_partition.append(NOBODY)
        self.sent_offset.append(-1)
        self.send_line.append(0)
        self.polled_partition.append(NOBODY)
        self.polled_offset.append(-1)
        self.poll_line.append(0)
        self.state.append(0)
        return index

    def lines(self, index: int) -> tuple[int, ...]:
        """Where a value was sent and polled first; 0 for neither."""
        return self.send_line[index], self.poll_line[index]


class Partition:
    """What is known of one partition, by its name in the history."""

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
        #: Topic without its id, and number: what a producer that knows no ids sends to.
        self.place = (topic.partition("@")[0], name.rpartition("-")[2])
        #: The value (its index) at each offset that an acknowledgement or a poll told, first told.
        self.claims: dict[int, int] = {}
        #: The largest offset that was polled.
        self.newest = -1
        #: Retention may have removed what is below.
        self.log_start = 0
        #: Acknowledged sends of each process.
        self.sends: dict[str, Sends] = {}
        #: Offsets over which no consumer may pass, in order; made at the end.
        self.required = array("q")

    def first_required(self, begin: int, end: int) -> int:
        """The first such offset from `begin` on and before `end`; -1 where there is none."""
        at = bisect_left(self.required, begin)
        found = self.required[at] if at < len(self.required) else end
        return found if found < end else -1


class Sends:
    """Acknowledged sends of one process to one partition, in the order of the lines."""

    __slots__ = ("begins", "ends", "firsts", "lasts", "lines")

    def __init__(self) -> None:
        self.begins = array("q")
        #: From when on a later begin means a later place: the end of the operation, or, where the
        #: producer keeps the order of what it has in flight, the begin.
        self.ends = array("q")
        self.firsts = array("q")
        self.lasts = array("q")
        self.lines = array("q")

    def add(self, begin: int, end: int, first: int, last: int, line: int) -> None:
        """One operation, with the first and the last offset of its records."""
        self.begins.append(begin)
        self.ends.append(end)
        self.firsts.append(first)
        self.lasts.append(last)
        self.lines.append(line)

    def inversions(self) -> list[tuple[int, int]]:
        """(earlier, later): operations whose later one stands before the earlier one; one such
        earlier one for each later one."""
        begins, ends, lasts = self.begins, self.ends, self.lasts
        by_begin = sorted(range(len(begins)), key=begins.__getitem__)
        by_end = sorted(range(len(ends)), key=ends.__getitem__)
        found = []
        over = highest = 0
        # Before the first operation is over there is nothing to compare with.
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


#: Kinds of skips: names of anomalies, and whether each is allowed.
BETWEEN: Final = 0
WITHIN: Final = 1
OF_SENDS: Final = 2
SUBSCRIBED: Final = 3
SKIPS: Final = (
    ("poll-skip", False), ("int-poll-skip", False), ("int-send-skip", True), ("poll-skip", True),
)  # fmt: skip


class Skips:
    """Where polls or sends went on behind their last offset + 1; judged when all is known."""

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
        """Offsets from `begin` on and before `end` were passed over; `before` is the line of the
        operation that had come to `begin`."""
        self.kinds.append(kind)
        self.partitions.append(partition)
        self.begins.append(begin)
        self.ends.append(end)
        self.lines.extend((line, before))


class Transactions:
    """The transactions of a history by number, and what they polled."""

    def __init__(self) -> None:
        self.lines: list[int] = []
        self._outcomes: list[str] = []
        #: (transaction, value) of each record polled by one.
        self.polls: list[tuple[int, int]] = []

    def begin(self, line: int, outcome: str) -> int:
        """The number of a transaction."""
        self.lines.append(line)
        self._outcomes.append(outcome)
        return len(self.lines) - 1

    def polled(self, node: int, value: int) -> None:
        """A transaction polled a value."""
        self.polls.append((node, value))

    def counts(self, node: int) -> bool:
        """Whether it may have been committed."""
        return self._outcomes[node] != FAIL


class Tables:
    """All that is known of one history, and the report that grows from it."""

    __slots__ = (
        "again", "compacted", "deleted", "partitions", "report", "skips", "transactions", "values",
    )  # fmt: skip

    def __init__(self) -> None:
        self.report = Report()
        self.values = Values()
        self.partitions: list[Partition] = []
        self.skips = Skips()
        self.transactions = Transactions()
        #: Topics of which nothing is promised any more, and those that are compacted.
        self.deleted: dict[str, None] = {}
        self.compacted: dict[str, None] = {}
        #: (value, partition, offset, line) of values that were polled at another place before.
        self.again: list[tuple[int, int, int, int]] = []

    def is_deleted(self, partition: Partition) -> bool:
        """Whether nothing is promised of its topic any more."""
        return partition.topic in self.deleted

    def is_compacted(self, partition: Partition) -> bool:
        """Whether its topic, in whatever incarnation, was said to be compacted."""
        return partition.topic in self.compacted or partition.place[0] in self.compacted
