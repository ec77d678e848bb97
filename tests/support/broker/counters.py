"""A coordinator of counters: a kind of its own in the shell of all coordinators.

A request adds one to a counter, and a counter that rests for a minute is removed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.support.broker.coordinator import BatchLog, answered
from tests.support.broker.fakes import CONNECTION, FakeBroker, FakeClock, errors, state

from tidelog.broker.cluster_view import PartitionView, TopicView
from tidelog.broker.coordinators.led_partition import TopicSettings
from tidelog.broker.coordinators.runtime import CoordinatorRuntime
from tidelog.broker.server.requests import Pending, Request
from tidelog.core.coordinator_shard import (
    CancelTimer,
    CoordinatorAppend,
    CoordinatorPhase,
    Effect,
    Effects,
    Now,
    Reply,
    SetTimer,
)
from tidelog.core.errors import ErrorCode
from tidelog.core.string_hash import coordinating_partition
from tidelog.core.types import TopicPartition
from tidelog.records.builder import NewRecord
from tidelog.wire.codec import RequestHeader

COUNTERS = "__counters"
COUNTERS_ID = b"C" * 16
PARTITIONS = 3
REST_MS = 60_000
LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
NOT_HERE = ErrorCode.NOT_COORDINATOR

#: A counter and its value; None where it is removed.
Count = tuple[str, int | None]
#: An error and the value.
Answer = tuple[ErrorCode, int]


@dataclass(frozen=True, slots=True)
class Bump:
    """Add one to a counter."""

    ticket: int
    name: str


class CounterShard:
    """The counters of one partition; they change when their records are committed."""

    def __init__(self, partition: int, leader_epoch: int) -> None:
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.phase = CoordinatorPhase.LOADING
        self.counters: dict[str, int] = {}
        #: Tickets of the appends under way, None for a removal, and their records.
        self.under_way: dict[int, tuple[int | None, Count]] = {}
        self.next_number = 0

    @property
    def size(self) -> int:
        return len(self.counters)

    def replay(self, record: Count) -> None:
        assert self.phase is CoordinatorPhase.LOADING
        name, value = record
        self.counters.pop(name, None)
        if value is not None:
            self.counters[name] = value

    def loaded(self, now: Now) -> Effects:
        self.phase = CoordinatorPhase.ACTIVE
        return tuple(SetTimer(name, now.monotonic_ms + REST_MS) for name in self.counters)

    def unload(self) -> Effects:
        self.phase = CoordinatorPhase.UNLOADED
        owed = [ticket for ticket, _ in self.under_way.values() if ticket is not None]
        self.under_way.clear()
        return (
            *(Reply(ticket, (NOT_HERE, 0)) for ticket in owed),
            *(CancelTimer(name) for name in self.counters),
        )

    def ask(self, asked: Bump, now: Now) -> Effects:
        if self.phase is not CoordinatorPhase.ACTIVE:
            return (Reply(asked.ticket, (LOADING, 0)),)
        last = self.counters.get(asked.name, 0)
        for _, (name, value) in self.under_way.values():
            last = (value or 0) if name == asked.name else last
        set_timer = SetTimer(asked.name, now.monotonic_ms + REST_MS)
        return (self._append(asked.ticket, (asked.name, last + 1)), set_timer)

    def _append(self, ticket: int | None, record: Count) -> Effect:
        number, self.next_number = self.next_number, self.next_number + 1
        self.under_way[number] = (ticket, record)
        return CoordinatorAppend(number, self.leader_epoch, (record,))

    def timer_fired(self, name: str, deadline_ms: int, now: Now) -> Effects:
        return (self._append(None, (name, None)),)

    def committed(self, number: int, now: Now) -> Effects:
        found = self.under_way.pop(number, None)
        if found is None:
            return ()
        ticket, (name, value) = found
        self.counters.pop(name, None)
        if value is None:
            return ()
        self.counters[name] = value
        return () if ticket is None else (Reply(ticket, (ErrorCode.NONE, value)),)

    def failed(self, number: int, error: ErrorCode, now: Now) -> Effects:
        ticket, _ = self.under_way.pop(number)
        return () if ticket is None else (Reply(ticket, (error, 0)),)

    def timed_out(self, number: int, error: ErrorCode, now: Now) -> Effects:
        ticket, record = self.under_way[number]
        self.under_way[number] = (None, record)
        return () if ticket is None else (Reply(ticket, (error, 0)),)


class CounterCoordinators(CoordinatorRuntime[CounterShard]):
    """The coordinators of counters on one broker."""

    topic = COUNTERS
    noun = "counters"

    def new_shard(self, partition: int, leader_epoch: int) -> CounterShard:
        return CounterShard(partition, leader_epoch)

    def encode(self, record: Count, now_ms: int) -> NewRecord:
        name, value = record
        return NewRecord(name.encode(), None if value is None else b"%d" % value, now_ms)

    def decode(
        self, key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes | None]]
    ) -> Count:
        assert key is not None
        return key.decode(), None if value is None else int(value)

    def settings(self) -> TopicSettings:
        return TopicSettings(codec=0, append_timeout_ms=700, load_buffer_bytes=1_000)

    def key_of(self, asked: Bump) -> str:
        return asked.name

    def refuse(self, asked: Bump, error: ErrorCode) -> Answer:
        return error, 0


class CounterBroker(FakeBroker):
    """Broker 1, which coordinates counters beside groups."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(1, {}, clock)
        self.directory.log_type = BatchLog
        self.see(1, 2)
        view = PartitionView(1, 0, (1, 2), (1, 2), (), 0)
        self.view.topics = {
            COUNTERS: TopicView(COUNTERS, COUNTERS_ID, dict.fromkeys(range(PARTITIONS), view))
        }

    def other_coordinators(self) -> list[CoordinatorRuntime[Any]]:
        self.counters = CounterCoordinators(self.services, self.appends.submit, self.request_failed)
        return [self.counters]

    async def lead(self, leader: int, leader_epoch: int, isr: tuple[int, ...] = (1,)) -> None:
        """Broker `leader` leads the partition of counter "a" from now on."""
        wanted = state(
            leader,
            leader_epoch=leader_epoch,
            partition_epoch=leader_epoch,
            isr=isr,
            replicas=(1, 2),
            is_new=P_OF_A not in self.directory.logs,
            partition=P_OF_A.partition,
        )
        response = await self.command(wanted, topic=COUNTERS, topic_id=COUNTERS_ID)
        assert errors(response) == [0]
        await self.clock.advance(0)

    def send(self, name: str = "a") -> Any:
        """Hand in a request: its answer, or the Pending that waits for it; nothing is written."""
        request: Request[Any] = Request(
            RequestHeader(0, 0, 0, None), name, CONNECTION, self.clock.now_ms
        )
        asked = Bump(self.counters.ticket(), name)
        return self.counters.answer(request, asked, lambda answer: answer)

    def bump(self, name: str = "a") -> Any:
        """Hand in a request in a turn of its own; its answer if it came, else the Pending."""
        answer = self.send(name)
        self.counters.flush()
        return answered(answer) if isinstance(answer, Pending) and answer.done else answer

    @property
    def counter_log(self) -> BatchLog:
        log = self.directory.logs[P_OF_A]
        assert isinstance(log, BatchLog)
        return log

    @property
    def values(self) -> dict[str, int]:
        (led,) = self.counters.led()
        return led.shard.counters


P_OF_A = TopicPartition(COUNTERS, coordinating_partition("a", PARTITIONS))
