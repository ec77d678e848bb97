"""The loop of `tidelog consume`: poll, write, check whether to end, commit.

A position is committed only after the records below it were written and flushed. A first signal
never interrupts between write and commit: the loop checks for signals after the write.
"""

from __future__ import annotations

import select
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import field
from types import FrameType

from tidelog.cli.names import PartitionWord, partitions_named
from tidelog.cli.offsets import ReadSpan, Where, resolve
from tidelog.cli.output import say, say_in_handler
from tidelog.client.consuming import ConsumedRecord
from tidelog.client.fetching import EARLIEST
from tidelog.client.groups import FetchedOffset
from tidelog.client.membership import MemberOptions
from tidelog.core.dataclass import dataclass
from tidelog.core.types import TopicPartition
from tidelog.runtime.blocking import BlockingClient
from tidelog.runtime.blocking_consumer import BlockingConsumer

Write = Callable[[ConsumedRecord], bytes]

_POLL_MS = 250
#: Maximum records of one poll; the number limits the size of a write and the delay of Ctrl-C.
_POLL_RECORDS = 10_000
_COMMIT_INTERVAL_S = 5.0
#: Seconds between checks for new partitions of topics that are read with all their partitions.
_LOOK_INTERVAL_S = 5.0
_NEVER = 1 << 63


class Interrupts:
    """A context that notes the first SIGINT or SIGTERM; the next signal acts as usual.

    At the first signal, the context prints `answer`, if it is not empty.
    """

    def __init__(self, answer: str = "") -> None:
        self.signal: signal.Signals | None = None
        self._answer = answer
        self._before: dict[signal.Signals, object] = {}

    def __enter__(self) -> Interrupts:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self.__exit__()
        self.signal = signal.Signals(number)
        if self._answer:
            say_in_handler(self._answer)


@dataclass(slots=True)
class Ending:
    """The condition that ends `tidelog consume`."""

    count: int | None
    at_end: bool
    #: Offset at which reading a partition ends, by partition.
    stops: dict[TopicPartition, int] = field(default_factory=dict)
    written: int = 0
    asked: Interrupts = field(default_factory=Interrupts)

    @property
    def room(self) -> int:
        """Return how many more records may be written to the output, at most the maximum of one
        poll.
        """
        if self.count is None:
            return _POLL_RECORDS
        return min(_POLL_RECORDS, self.count - self.written)

    def takes(self, each: ConsumedRecord) -> bool:
        """Return whether a record lies below the offset at which reading its partition ends."""
        return each.record.offset < self.stops.get(each.tp, _NEVER)

    def has_come(self, consumer: BlockingConsumer) -> bool:
        """Return whether the command should end after this poll."""
        if self.asked.signal is not None:
            return True
        if self.count is not None and self.written >= self.count:
            return True
        if self.stops:
            places = consumer.positions
            return all(places[tp] >= stop for tp, stop in self.stops.items())
        return self.at_end and consumer.is_at_end


def read_as_member(
    client: BlockingClient,
    options: MemberOptions,
    start: Where,
    isolation_level: int,
    write: Write,
    ending: Ending,
) -> None:
    """Read the partitions that the group assigns, from the stored offset, else from `start`."""
    begin = EARLIEST if start.timestamp is None else start.timestamp
    with client.group_consumer(options, begin, isolation_level) as consumer:
        _read(consumer, write, ending, lambda: None)


def read_alone(
    client: BlockingClient,
    words: list[PartitionWord],
    span: ReadSpan,
    isolation_level: int,
    group: str | None,
    write: Write,
    ending: Ending,
) -> None:
    """Read partitions without membership.

    With `group`, the command commits the offsets of that group, which must have no members.
    """
    chosen = partitions_named(client, words)
    stored: dict[TopicPartition, FetchedOffset] = {}
    if group is not None:
        stored = client.committed(group, chosen)
    starts: dict[TopicPartition, int] = {}
    begin = span.start
    if begin.is_stored:
        starts = {tp: each.offset for tp, each in stored.items()}
        begin = Where(timestamp=EARLIEST)
    starts |= resolve(client, begin, [tp for tp in chosen if tp not in starts])
    if span.end_timestamp is not None:
        ending.stops = client.positions(dict.fromkeys(chosen, span.end_timestamp))
    consumer = client.consumer(isolation_level)
    for tp in chosen:
        consumer.seek(tp, starts[tp])
    if group is None:
        newcomers = _Newcomers(client, words, consumer)
        # With an end time, the partitions are fixed at the start: new partitions are not read.
        _read(consumer, write, ending, (lambda: None) if ending.stops else newcomers.in_time)
        return
    committer = _Committer(client, group, consumer, ending, stored)
    _read(consumer, write, ending, committer.in_time)
    committer.commit()


class _Newcomers:
    """A search for new partitions of the read topics; new partitions are read from their start.

    A topic whose partitions were named on the command line gets no new partitions.
    """

    def __init__(
        self, client: BlockingClient, words: list[PartitionWord], consumer: BlockingConsumer
    ) -> None:
        self._client, self._consumer = client, consumer
        self._topics = [word.topic for word in words if word.partitions is None]
        self._due_s = time.monotonic() + _LOOK_INTERVAL_S

    def in_time(self) -> None:
        """Search for new partitions if the interval since the last search has passed."""
        if not self._topics or time.monotonic() < self._due_s:
            return
        topics = self._client.metadata(self._topics).topics.values()
        known = self._consumer.positions
        for topic in topics:
            for number in topic.partitions:
                tp = TopicPartition(topic.name, number)
                if tp not in known:
                    say(f"tidelog: {tp} is new; reading it from its beginning on")
                    (start,) = self._client.positions({tp: EARLIEST}).values()
                    self._consumer.seek(tp, start)
        self._due_s = time.monotonic() + _LOOK_INTERVAL_S


class _Committer:
    """Commits how far `consume` has written records to its output, as offsets of a group.

    The command reads its partitions without joining the group, so the group has no members.
    """

    def __init__(
        self,
        client: BlockingClient,
        group: str,
        consumer: BlockingConsumer,
        ending: Ending,
        stored: dict[TopicPartition, FetchedOffset],
    ) -> None:
        self._client, self._group, self._consumer = client, group, consumer
        self._ending = ending
        self._committed = dict(stored)
        self._due_s = time.monotonic() + _COMMIT_INTERVAL_S

    def in_time(self) -> None:
        """Commit if the interval since the last commit has passed."""
        if time.monotonic() >= self._due_s:
            self.commit()
            self._due_s = time.monotonic() + _COMMIT_INTERVAL_S

    def commit(self) -> None:
        """Commit the records written since the last commit."""
        places = {
            tp: FetchedOffset(min(at, self._ending.stops.get(tp, _NEVER)))
            for tp, at in self._consumer.positions.items()
        }
        moved = {tp: at for tp, at in places.items() if self._at(tp) != at.offset}
        if moved:
            self._client.commit(self._group, moved)
            self._committed |= moved

    def _at(self, tp: TopicPartition) -> int | None:
        committed = self._committed.get(tp)
        return None if committed is None else committed.offset


def _read(
    consumer: BlockingConsumer, write: Write, ending: Ending, in_time: Callable[[], None]
) -> None:
    """Poll for records and write them until `ending` holds; raise BrokenPipeError if the output has
    no reader.
    """
    out = sys.stdout.buffer
    reader = select.poll()
    reader.register(sys.stdout.fileno(), 0)
    while True:
        records = [each for each in consumer.poll(ending.room, _POLL_MS) if ending.takes(each)]
        if records:
            out.write(b"".join(map(write, records)))
            out.flush()
            ending.written += len(records)
        _report_skips(consumer)
        if ending.has_come(consumer):
            return
        if any(events & (select.POLLERR | select.POLLHUP) for _, events in reader.poll(0)):
            raise BrokenPipeError
        in_time()


def _report_skips(consumer: BlockingConsumer) -> None:
    for skip in consumer.take_skips():
        if skip.end > skip.start:
            gone = f"offsets {skip.start} to {skip.end - 1} of {skip.tp} are gone"
            say(f"tidelog: {gone}; going on at {skip.end}")
        else:
            say(f"tidelog: {skip.tp} ends at {skip.end}, before {skip.start}; going on there")
