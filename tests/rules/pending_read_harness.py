"""A leader whose disk answers when the test says so, over fake logs, with time moved by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any

from tests.support.broker.fakes import (
    CONNECTION,
    TOPIC,
    TOPIC_ID,
    FakeBroker,
    FakeClock,
    state,
)

from tidelog.broker.apis import fetch as fetch_api
from tidelog.broker.server.requests import Pending, Request
from tidelog.core.completion import Completion
from tidelog.core.shrink_causes import ShrinkCause
from tidelog.core.types import TopicPartition
from tidelog.replication.leader import LeaderReplica
from tidelog.replication.shrinks import shrink_of
from tidelog.wire.codec import RequestHeader
from tidelog.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ReplicaState,
)
from tidelog.wire.registry import FETCH

KEY = "follower.fetch.pending.reads.insync.enable"
LAG_MS = 10_000
SOCKET_TIMEOUT_MS = 30_000
LEADER, SLOW_SIDE, OTHER = 1001, 1002, 1003
BROKERS = (LEADER, SLOW_SIDE, OTHER)


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(story)


class Scene:
    """Broker 1001 leads; its fetches read from a disk that answers when the test says so."""

    def __init__(self, *, enabled: bool, partitions: int = 1) -> None:
        self.clock = FakeClock()
        self.broker = FakeBroker(
            LEADER,
            {},
            self.clock,
            replica_lag_time_max_ms=str(LAG_MS),
            replica_socket_timeout_ms=str(SOCKET_TIMEOUT_MS),
            follower_fetch_pending_reads_insync_enable=str(enabled).lower(),
        )
        self.partitions = partitions
        #: Reads from the disk that are under way, the oldest first.
        self.reads: list[Completion[Any]] = []
        self.session = (0, 0)

    async def begin(self, log_end_offset: int) -> None:
        """Lead with this log end; both followers have the whole log."""
        self.broker.see(*BROKERS)
        await self.broker.command(
            *(
                state(
                    LEADER, partition=number, isr=BROKERS, replicas=BROKERS, is_new=True,
                    leader_epoch=1,
                )
                for number in range(self.partitions)
            )
        )  # fmt: skip
        for number in range(self.partitions):
            self.append(log_end_offset, number)

    def leadership(self, partition: int = 0) -> LeaderReplica:
        found = self.broker.partition(TopicPartition(TOPIC, partition)).leadership
        assert found is not None
        return found

    def append(self, log_end_offset: int, partition: int = 0) -> None:
        """Append up to this offset."""
        replica = self.broker.partition(TopicPartition(TOPIC, partition))
        replica.role.append(b"r" * (log_end_offset - replica.log.log_end_offset), -1, 0)
        replica.flush_appends()

    def slow(self, partition: int = 0) -> None:
        """Let the disk take its time from now on."""

        def read(*_: Any, **__: Any) -> Completion[Any]:
            self.reads.append(Completion())
            return self.reads[-1]

        self.broker.log(TopicPartition(TOPIC, partition)).read = read  # type: ignore[method-assign]  # a slow disk

    def disk_answers(self) -> None:
        """The oldest read is done."""
        self.reads.pop(0).resolve(SimpleNamespace(data=memoryview(b"r")))

    def fetches(
        self,
        *offsets: int | tuple[int, int],
        replica: int = SLOW_SIDE,
        epoch: int = 102,
        session: tuple[int, int] | None = None,
        max_wait_ms: int = 0,
        leader_epoch: int = 1,
    ) -> Any:
        """A follower fetches partition 0, 1 ... at these offsets, in its session.

        A pair is a partition with its offset.
        """
        named = [
            each if isinstance(each, tuple) else (number, each)
            for number, each in enumerate(offsets)
        ]
        message = FetchRequest(
            replica_state=ReplicaState(replica, epoch),
            session_id=0 if session is None else session[0],
            session_epoch=0 if session is None else session[1],
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            topics=[
                FetchTopic(
                    TOPIC,
                    TOPIC_ID,
                    [
                        FetchPartition(
                            partition=number, fetch_offset=offset, partition_max_bytes=1 << 20,
                            current_leader_epoch=leader_epoch,
                        )
                        for number, offset in named
                    ],
                )
            ]
            if offsets
            else [],
        )  # fmt: skip
        return fetch_api.handle(
            self.broker,  # type: ignore[arg-type]  # a fake broker; its records are in one piece
            Request(
                RequestHeader(FETCH, 17, 0, "follower"),
                message,
                CONNECTION,
                self.clock.monotonic_ms(),
            ),
        )

    def keeps(self, replica: int = SLOW_SIDE, partition: int = 0) -> bool:
        """Whether the leader, when it looks now, keeps the follower in the ISR."""
        leadership = self.leadership(partition)
        self.broker.partition(TopicPartition(TOPIC, partition)).role.examine()
        queued = leadership.isr.queued
        return queued is None or replica in queued.isr

    async def golden(self) -> Any:
        """The fetches of F10, up to the one that waits for the disk; its time is ty."""
        await self.begin(950)
        self.fetches(950, replica=OTHER, epoch=103)
        self.append(1002)
        tx = self.clock.now_ms
        self.fetches(950)
        await self.clock.advance(5_000)
        self.append(1100)
        self.slow()
        self.fetches(1100, replica=OTHER, epoch=103)
        waiting = self.fetches(1002)
        assert isinstance(waiting, Pending)
        return tx, self.clock.now_ms, waiting

    def cause(self) -> ShrinkCause:
        """Why the slow follower is out of sync, by the leader."""
        leadership = self.leadership()
        progress = leadership.followers[SLOW_SIDE]
        now_ms = self.clock.now_ms
        return shrink_of(progress, leadership.log_end_offset, now_ms, LAG_MS).cause
