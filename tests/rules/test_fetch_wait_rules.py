"""When a waiting fetch responds: V61. It waits for `min_bytes` only while its response can grow.

Real fetches, sessions and leaders over fake logs (`tests.support.broker.fakes`): a record is one
byte, and `roll` begins a segment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from errno import EIO
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.broker.directory import FakeLog
from tests.support.broker.fakes import (
    CONNECTION,
    T0,
    TOPIC,
    TOPIC_ID,
    FakeBroker,
    a_cluster,
    state,
)

from tidelog.broker.apis import fetch
from tidelog.broker.replicas.directories.failed_directories import FailedDirectories
from tidelog.broker.replicas.fetching.throttled_reads import ThrottledReads
from tidelog.broker.server.requests import Pending, Request
from tidelog.core.completion import Completion
from tidelog.core.errors import ErrorCode, StorageError
from tidelog.core.types import TopicPartition
from tidelog.log.segment_reads import LogSlice
from tidelog.wire.codec import RequestHeader
from tidelog.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    PartitionData,
    ReplicaState,
)
from tidelog.wire.registry import FETCH

WAIT_MS = 60_000
PLENTY = 1_000
T1 = TopicPartition(TOPIC, 1)


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(story)


async def leading(
    *segments: int, partitions: int = 1, isr: tuple[int, ...] = (1,), **config: str
) -> FakeBroker:
    """Broker 1 leads; partition 0 has segments of these sizes, the others are empty."""
    broker = a_cluster(3, **config)[1]
    await broker.command(
        *(
            state(isr=isr, replicas=(1, 2), is_new=True, leader_epoch=1, partition=number)
            for number in range(partitions)
        )
    )
    for number, size in enumerate(segments):
        if number:
            broker.log().roll()
        append(broker, size)
    return broker


def append(broker: FakeBroker, count: int, topic_partition: TopicPartition = T0) -> None:
    partition = broker.partition(topic_partition)
    partition.role.append(b"r" * count, 1, 0)
    partition.flush_appends()


class Asked:
    """A fetch and its response, if it has come."""

    def __init__(
        self,
        broker: FakeBroker,
        *offsets: int,
        follower: int = -1,
        session: tuple[int, int] = (0, -1),
        min_bytes: int = PLENTY,
        max_bytes: int = 1 << 20,
        partition_max_bytes: int = 1 << 20,
        epoch: int = 1,
    ) -> None:
        wanted = [
            FetchPartition(number, epoch, offset, -1, -1, partition_max_bytes)
            for number, offset in enumerate(offsets)
        ]
        message = FetchRequest(
            replica_state=ReplicaState(follower, 100 + follower if follower >= 0 else -1),
            session_id=session[0],
            session_epoch=session[1],
            max_wait_ms=WAIT_MS,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            topics=[FetchTopic(TOPIC, TOPIC_ID, wanted)] if wanted else [],
        )
        answer = fetch.handle(
            broker,  # type: ignore[arg-type]  # a fake broker; its records are in one piece
            Request(
                RequestHeader(FETCH, 17, 0, None), message, CONNECTION, broker.clock.monotonic_ms()
            ),
        )
        self.answers: list[Any] = []
        if isinstance(answer, Pending):
            answer.deliver_to(self.answers.append)
        else:
            self.answers.append(answer)

    @property
    def waits(self) -> bool:
        return not self.answers

    @property
    def session(self) -> int:
        number: int = self.answers[0].session_id
        return number

    @property
    def parts(self) -> list[PartitionData]:
        return [part for topic in self.answers[0].responses for part in topic.partitions]

    @property
    def sizes(self) -> list[int]:
        """Bytes of each partition in the response."""
        return [len(part.records or b"") for part in self.parts]

    @property
    def errors(self) -> list[int]:
        return [part.error_code for part in self.parts]


# the offset on an older segment


@pytest.mark.rule("V61")
@pytest.mark.parametrize("follower", [-1, 2])
def test_records_of_an_older_segment_are_sent_at_once(follower: int) -> None:
    async def story() -> None:
        broker = await leading(5, 3)
        assert Asked(broker, 0, follower=follower).sizes == [5]
        assert Asked(broker, 4, follower=follower).sizes == [1]
        assert Asked(broker, 5, follower=follower).waits, "the active segment still grows"

    run(story())


@pytest.mark.rule("V61")
@pytest.mark.parametrize("follower", [-1, 2])
def test_the_other_partitions_of_a_session_do_not_hold_an_older_segment_back(follower: int) -> None:
    async def story() -> None:
        broker = await leading(5, 3, partitions=3)
        first = Asked(broker, 8, 0, 0, follower=follower, session=(0, 0), min_bytes=0)
        waiting = Asked(broker, session=(first.session, 1), follower=follower)
        assert waiting.waits
        asked = Asked(broker, 2, session=(first.session, 2), follower=follower)
        assert asked.sizes == [3]

    run(story())


@pytest.mark.rule("V61")
@pytest.mark.parametrize("follower", [-1, 2])
def test_a_roll_ends_the_wait_for_more_of_the_segment_before(follower: int) -> None:
    async def story() -> None:
        broker = await leading(5)
        waiting, at_the_end = (Asked(broker, offset, follower=follower) for offset in (0, 5))
        append(broker, 1)
        assert waiting.waits
        broker.log().roll()
        append(broker, 1)
        assert waiting.sizes == [6]
        assert at_the_end.sizes == [1]

    run(story())


@pytest.mark.rule("V61")
def test_a_reader_at_the_end_waits_on_when_the_log_rolls_there() -> None:
    async def story() -> None:
        broker = await leading(5)
        waiting = Asked(broker, 5)
        broker.log().roll()
        append(broker, 3)
        assert waiting.waits, "its records are of the active segment"
        append(broker, PLENTY)
        assert waiting.sizes == [PLENTY + 3]

    run(story())


@pytest.mark.rule("V61")
def test_a_roll_before_the_records_behind_it_are_committed_ends_a_consumers_wait() -> None:
    async def story() -> None:
        broker = await leading(5, isr=(1, 2))
        session = Asked(broker, 5, follower=2, session=(0, 0), min_bytes=0).session
        assert broker.partition().high_watermark == 5
        waiting = Asked(broker, 0)
        broker.log().roll()
        append(broker, 1)
        assert broker.partition().high_watermark == 5
        assert waiting.sizes == [5], "the high watermark is where the older segment ends"
        assert session

    run(story())


@pytest.mark.rule("V61")
def test_committed_records_of_an_older_segment_are_waited_for() -> None:
    """The response of a consumer grows until the high watermark reaches the end of the segment."""

    async def story() -> None:
        broker = await leading(100, 50, isr=(1, 2))
        consumer = Asked(broker, 0, min_bytes=80)
        small = Asked(broker, 0, min_bytes=30)
        assert broker.partition().high_watermark == 0
        session = Asked(broker, 20, follower=2, session=(0, 0), min_bytes=0).session
        assert consumer.waits and small.waits
        Asked(broker, 40, follower=2, session=(session, 1), min_bytes=0)
        assert consumer.waits and small.sizes == [40]
        Asked(broker, 100, follower=2, session=(session, 2), min_bytes=0)
        assert consumer.sizes == [100]
        late = Asked(broker, 60, min_bytes=80)
        assert late.sizes == [40]

    run(story())


@pytest.mark.rule("V61")
def test_a_roll_without_an_append_ends_the_wait() -> None:
    """Retention rolls an active segment that is too old; its removal may fail or take long."""

    async def story() -> None:
        broker = await leading(5)
        consumer, follower = Asked(broker, 0), Asked(broker, 0, follower=2)
        broker.log().roll()
        await broker.replicas.upkeep._enforce_retention()
        assert consumer.sizes == follower.sizes == [5]

    run(story())


@pytest.mark.rule("V61")
def test_a_throttled_follower_waits_at_an_older_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in Kafka: `min_bytes` do not let it pass its throttle (R15)."""

    def is_follower(throttled: Any, item: Any, partition: Any) -> bool:
        return bool(item.session.replica_id >= 0)

    async def story() -> None:
        broker = await leading(5, 3)
        monkeypatch.setattr(ThrottledReads, "leaves_out", is_follower)
        waiting = Asked(broker, 0, follower=2)
        broker.log().roll()
        append(broker, 1)
        assert waiting.waits
        assert Asked(broker, 0).sizes == [5], "a consumer is never throttled"

    run(story())


@pytest.mark.rule("V61")
def test_a_read_that_goes_on_in_the_active_segment_is_waited_with() -> None:
    """Compaction can leave an older segment without records behind the reader's offset."""

    async def story() -> None:
        broker = await leading(5, 3)
        log = broker.log()
        log.read = lambda *_, **__: log_slice(b"rr", base_offset=5)  # type: ignore[method-assign]  # replaced by the test
        assert Asked(broker, 4).waits
        log.read = lambda *_, **__: log_slice(b"")  # type: ignore[method-assign]  # replaced by the test
        assert Asked(broker, 4).waits, "no records are left: the next ones are all there will be"

    run(story())


def log_slice(data: bytes, **fields: Any) -> Any:
    return Completion.of(LogSlice(data, **fields))


@pytest.mark.rule("V61")
def test_a_log_that_became_smaller_hides_no_growth() -> None:
    """Compaction and retention remove bytes of older segments while a fetch waits."""

    async def story() -> None:
        broker = await leading(500, 3)
        waiting = Asked(broker, 503, min_bytes=10)
        log: FakeLog = broker.log()
        log.advance_log_start(500)
        append(broker, 9)
        assert waiting.waits
        append(broker, 1)
        assert waiting.sizes == [10]

    run(story())


# no room


@pytest.mark.rule("V61")
def test_records_without_room_count_as_if_they_were_read() -> None:
    async def story() -> None:
        broker = await leading(50, partitions=2)
        whole_batches(broker.log(), 20)
        asked = Asked(broker, 0, 0, min_bytes=30, max_bytes=30)
        assert asked.sizes == [20, 0], "no batch has room in the other 10 bytes"

    run(story())


def whole_batches(log: FakeLog, size: int) -> None:
    """Let reads end between batches of this size."""
    read = log.read

    def cut(offset: int, max_bytes: int, end_offset: int, *, min_one_batch: bool) -> Any:
        fits = max(max_bytes // size * size, size if min_one_batch else 0)
        return read(offset, fits, end_offset, min_one_batch=False)

    log.read = cut  # type: ignore[method-assign]  # replaced by the test


@pytest.mark.rule("V61")
def test_nothing_more_comes_where_every_partition_is_cut_off() -> None:
    async def story() -> None:
        broker = await leading(50, partitions=2)
        assert Asked(broker, 0, partition_max_bytes=20).sizes == [20]
        two = Asked(broker, 0, 0, partition_max_bytes=20)
        assert two.waits, "the other partition can still bring some"
        append(broker, 10, T1)
        assert two.waits
        append(broker, 990, T1)
        assert two.sizes == [20, 20]

    run(story())


# the log begins behind the reader


@pytest.mark.rule("V61")
@pytest.mark.parametrize("follower", [-1, 2])
def test_a_fetch_whose_records_are_removed_is_refused_at_once(follower: int) -> None:
    async def story() -> None:
        broker = await leading(5)
        waiting, at_the_end = (Asked(broker, offset, follower=follower) for offset in (2, 5))
        broker.partition().role.delete_records_before(2)
        assert waiting.waits, "its first record is still there"
        broker.partition().role.delete_records_before(4)
        assert waiting.errors == [ErrorCode.OFFSET_OUT_OF_RANGE]
        assert at_the_end.waits

    run(story())


# the replica


@pytest.mark.rule("V61")
@pytest.mark.parametrize("follower", [-1, 2])
def test_another_leader_epoch_ends_the_wait_of_every_fetch(follower: int) -> None:
    """Also where this broker leads on: the reader has to compare histories first (V33)."""

    async def story() -> None:
        broker = await leading(5)
        waiting = [Asked(broker, offset, follower=follower) for offset in (0, 5)]
        names_no_epoch = Asked(broker, 5, epoch=-1)
        await broker.command(state(isr=(1,), replicas=(1, 2), leader_epoch=2, partition_epoch=1))
        assert [asked.errors for asked in waiting] == [[ErrorCode.FENCED_LEADER_EPOCH]] * 2
        assert names_no_epoch.waits

    run(story())


@pytest.mark.rule("V61")
@pytest.mark.parametrize("follower", [-1, 2])
def test_a_replica_that_follows_or_goes_ends_the_wait(follower: int) -> None:
    async def story() -> None:
        for ending in ("follows", "stops", "is deleted"):
            broker = await leading(5, partitions=2)
            waiting = Asked(broker, 5, 0, follower=follower)
            if ending == "follows":
                await broker.command(state(2, isr=(1, 2), replicas=(1, 2), leader_epoch=2))
            else:
                await broker.stop(leader_epoch=2, delete=ending == "is deleted")
            errors = {part.partition_index: part.error_code for part in waiting.parts}
            assert errors[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER, ending

    run(story())


@pytest.mark.rule("V61")
@pytest.mark.rule("D4")
@pytest.mark.parametrize("follower", [-1, 2])
def test_a_failed_directory_ends_the_wait_with_its_error(follower: int) -> None:
    async def story() -> None:
        broker = await leading(5, log_dirs="/data,/other")
        waiting = Asked(broker, 5, follower=follower)
        failed = FailedDirectories(
            broker.services,
            broker.replicas,
            broker.replicas.moves,
            lambda partition: partition.rest(),
            SimpleNamespace(is_closed=True),  # type: ignore[arg-type]  # no controller here
            SimpleNamespace(),  # type: ignore[arg-type]  # no event
        )
        failed.failed("/data", StorageError("/data", "pwrite", "/data/t-0", EIO, 0))
        await broker.clock.advance(1)
        assert waiting.errors == [ErrorCode.KAFKA_STORAGE_ERROR]

    run(story())


@pytest.mark.rule("V61")
def test_a_log_that_moves_to_another_directory_is_looked_at_again() -> None:
    """The copy may have other segments: there the records read may be of an older one."""

    async def story() -> None:
        broker = await leading(5)
        waiting = Asked(broker, 0)
        copy = FakeLog(T0, TOPIC_ID)
        copy.fill(*[1] * 5)
        copy.roll()
        broker.partition().relocated(broker.partition().directory, copy)  # type: ignore[arg-type]  # a fake
        assert waiting.sizes == [5]

    run(story())


@pytest.mark.rule("V61")
@pytest.mark.rule("V63")
def test_a_follower_that_is_not_assigned_any_more_waits_no_longer() -> None:
    async def story() -> None:
        broker = await leading(5)
        waiting = Asked(broker, 5, follower=2)
        await broker.command(state(isr=(1,), replicas=(1,), leader_epoch=1, partition_epoch=1))
        assert waiting.errors == [ErrorCode.UNKNOWN_LEADER_EPOCH]

    run(story())


@pytest.mark.rule("V61")
def test_an_offset_above_the_high_watermark_is_waited_with() -> None:
    """Kafka responds at once with nothing; its clients then ask again and again (V36)."""

    async def story() -> None:
        broker = await leading(5, isr=(1, 2))
        waiting = Asked(broker, 3, min_bytes=1)
        assert waiting.waits
        Asked(broker, 5, follower=2, min_bytes=0)
        assert waiting.sizes == [2]

    run(story())
