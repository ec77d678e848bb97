"""A disk that hangs takes no room from readers of the others, and holds nothing up (L2, F5, D4)."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from tests.rules.pending_read_harness import Scene
from tests.support.broker.directory import FakeDirectory
from tests.support.broker.fakes import (
    CONNECTION,
    TOPIC,
    TOPIC_ID,
    FakeBroker,
    a_cluster,
    errors,
    settle,
    state,
)

from tidelog.broker.apis import fetch
from tidelog.broker.replicas.directories.failed_directories import FailedDirectories
from tidelog.broker.server.requests import Pending, Request
from tidelog.core.completion import Completion
from tidelog.core.config import BrokerConfig
from tidelog.core.disk_reads import HUNG_MS
from tidelog.core.errors import ErrorCode, StorageError
from tidelog.core.limits import QUEUED_RESPONSE_BYTES
from tidelog.core.response_budget import LEAST_GRANT_BYTES
from tidelog.core.types import TopicPartition
from tidelog.log.segment_reads import LogSlice, NotCached
from tidelog.wire.codec import RequestHeader
from tidelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tidelog.wire.registry import FETCH

HUNG, GOOD = 0, 1
WAIT_MS = 500


class TwoDisks:
    """A leader with one partition on a disk that hangs, and one on a good one."""

    def __init__(self) -> None:
        self.broker: FakeBroker = a_cluster()[1]
        self.room = self.broker.services.responses.clients
        #: Reads of the disk that hangs.
        self.reads: list[Completion[Any]] = []

    async def begin(self) -> None:
        both = (HUNG, GOOD)
        await self.broker.command(
            *(
                state(isr=(1,), replicas=(1,), is_new=True, leader_epoch=1, partition=number)
                for number in both
            )
        )
        for number in both:
            partition = self.broker.partition(TopicPartition(TOPIC, number))
            partition.role.append(b"rr", -1, 0)
            partition.flush_appends()
        hung = self.broker.partition(TopicPartition(TOPIC, HUNG))
        hung.directory = SimpleNamespace(path="/hung")  # type: ignore[assignment]  # a fake
        log: Any = self.broker.log(TopicPartition(TOPIC, HUNG))
        log.read = self._read

    def _read(self, *_: Any, min_one_batch: bool, may_wait: bool = True) -> Completion[Any]:
        if not may_wait:
            return Completion.failed(NotCached())
        self.reads.append(Completion())
        return self.reads[-1]

    def fetch(
        self, *partitions: int, session: tuple[int, int] = (0, -1), max_bytes: int = 1 << 10
    ) -> Any:
        """A consumer's fetch of these partitions."""
        wanted = [FetchPartition(each, partition_max_bytes=max_bytes) for each in partitions]
        message = FetchRequest(
            session_id=session[0], session_epoch=session[1], max_wait_ms=WAIT_MS, min_bytes=1,
            max_bytes=2 * max_bytes, topics=[FetchTopic(TOPIC, TOPIC_ID, wanted)] if wanted else [],
        )  # fmt: skip
        header = RequestHeader(FETCH, 17, 0, "consumer")
        request = Request(header, message, CONNECTION, self.broker.clock.monotonic_ms())
        return fetch.handle(self.broker, request)  # type: ignore[arg-type]  # a fake broker


def records(answer: Any) -> dict[int, int]:
    """The bytes of each partition in a response."""
    return {
        part.partition_index: len(part.records or b"")
        for topic in answer.responses
        for part in topic.partitions
    }


def answers_of(pending: Any) -> list[Any]:
    if not isinstance(pending, Pending):
        return [pending]
    found: list[Any] = []
    pending.deliver_to(found.append)
    return found


@pytest.mark.rule("L2")
def test_a_reader_of_two_disks_gets_the_records_of_the_good_one() -> None:
    async def story() -> None:
        disks = TwoDisks()
        await disks.begin()
        first = answers_of(disks.fetch(HUNG, GOOD, session=(0, 0)))
        await disks.broker.clock.advance(HUNG_MS - 100)
        assert first == []
        await disks.broker.clock.advance(200)
        assert records(first[0]) == {HUNG: 0, GOOD: 2}
        second = answers_of(disks.fetch(session=(first[0].session_id, 1)))
        assert records(second[0]) == {GOOD: 2}, "it waits for nothing"
        assert len(disks.reads) == 1

    asyncio.run(story())


@pytest.mark.rule("L2")
def test_a_disk_that_comes_back_is_read_for_the_fetches_that_wait() -> None:
    async def story() -> None:
        disks = TwoDisks()
        await disks.begin()
        disks.fetch(HUNG)
        await disks.broker.clock.advance(HUNG_MS + 100)
        waiting = answers_of(disks.fetch(HUNG))
        assert (waiting, len(disks.reads)) == ([], 1)
        disks.reads[0].resolve(LogSlice(b"rr"))
        assert len(disks.reads) == 2
        disks.reads[1].resolve(LogSlice(b"rr"))
        assert records(waiting[0]) == {HUNG: 2}
        assert disks.room.used_bytes == 0

    asyncio.run(story())


@pytest.mark.rule("L2")
def test_reads_of_a_disk_that_hangs_leave_room_for_the_others() -> None:
    async def story() -> None:
        disks = TwoDisks()
        await disks.begin()
        waiting = [disks.fetch(HUNG, max_bytes=1 << 30) for _ in range(3_000)]
        assert disks.room.used_bytes <= QUEUED_RESPONSE_BYTES // 2 + LEAST_GRANT_BYTES * 16
        await disks.broker.clock.advance(0)
        assert disks.room.grant_bytes >= LEAST_GRANT_BYTES
        assert records(disks.fetch(GOOD)) == {GOOD: 2}
        for pending in waiting:
            pending.cancel()
        assert disks.room.used_bytes == 0, "no client waits for what the disk may bring"
        under_way = len(disks.reads)
        for _ in range(3_000):
            disks.fetch(HUNG).cancel()
        assert len(disks.reads) == under_way, "clients that come again get no read before one ends"
        for read in disks.reads:
            read.fail(StorageError("/hung", "read", "/hung", 5, 0))
        assert disks.room.used_bytes == 0

    asyncio.run(story())


@pytest.mark.rule("L2")
def test_a_directory_that_fails_answers_the_fetches_that_wait_for_it() -> None:
    async def story() -> None:
        disks = TwoDisks()
        await disks.begin()
        waiting = answers_of(disks.fetch(HUNG, GOOD))
        disks.reads[0].fail(StorageError("/hung", "use", "/hung", 5, 0))
        (topic,) = waiting[0].responses
        assert [part.error_code for part in topic.partitions] == [
            ErrorCode.KAFKA_STORAGE_ERROR, 0,
        ]  # fmt: skip
        assert disks.room.used_bytes == 0

    asyncio.run(story())


@pytest.mark.rule("F5")
@pytest.mark.parametrize("enabled", [True, False])
def test_a_follower_waits_for_the_slow_disk_where_its_pending_reads_count(enabled: bool) -> None:
    async def story() -> None:
        scene = Scene(enabled=enabled)
        await scene.begin(10)
        scene.fetches(10)
        scene.append(20)
        scene.slow()
        answers = answers_of(scene.fetches(10, max_wait_ms=500))
        await scene.clock.advance(2 * HUNG_MS)
        assert (answers == []) is enabled

    asyncio.run(story())


@pytest.mark.rule("D4", "D18")
def test_what_hangs_in_a_directory_that_failed_holds_no_command_up() -> None:
    async def story() -> None:
        broker: FakeBroker = a_cluster()[1]
        services, replicas = broker.services, broker.replicas
        config = {"broker.id": "1", "metadata.store": "embedded:/nowhere", "log.dirs": "/a,/b"}
        services.settings.in_force = BrokerConfig.from_properties(config)
        first, second = FakeDirectory(), FakeDirectory()
        first.path, second.path = "/a", "/b"
        fakes: Any = [first, second]
        replicas.log_dirs.good = fakes
        nothing: Any = SimpleNamespace(is_closed=True)
        rest = broker.commands.rest
        failed = FailedDirectories(services, replicas, replicas.moves, rest, nothing, nothing)
        await broker.command(state(1, is_new=True), state(1, partition=1, is_new=True))
        hanging: Completion[None] = Completion()
        first.lane.hanging.append(hanging)
        broker.partition(TopicPartition(TOPIC, 0)).track(hanging)
        both = (state(2, leader_epoch=1), state(2, partition=1, leader_epoch=1))
        command = asyncio.ensure_future(broker.command(*both))
        await settle()
        assert not command.done(), "the log is not quiet"
        failed.failed("/a", StorageError("/a", "pwritev", "/a/t-0", 5, 0))
        await broker.clock.advance(1)
        await settle()
        assert command.done()
        assert errors(command.result()) == [ErrorCode.KAFKA_STORAGE_ERROR, 0]
        assert second.lane.error is None

    asyncio.run(story())
