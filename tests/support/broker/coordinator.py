"""A broker that coordinates groups: real shell and decisions over a fake log of real batches."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

from tests.support.broker.directory import FakeLog
from tests.support.broker.fakes import (
    CONNECTION,
    FakeBroker,
    FakeClock,
    errors,
    settle,
    state,
)
from tests.support.requests.of_groups import GROUP, join_group

from tidelog.broker.apis import modules
from tidelog.broker.cluster_view import PartitionView, TopicView
from tidelog.broker.coordinators import offset_records
from tidelog.broker.membership.auto_creation import AutoCreation
from tidelog.broker.server.requests import Pending, Request
from tidelog.core.completion import Completion
from tidelog.core.errors import ErrorCode
from tidelog.core.names import CONSUMER_OFFSETS
from tidelog.core.types import TopicPartition
from tidelog.group.records import CommittedOffset, OffsetKey, OffsetRecord, PartitionIncarnation
from tidelog.records.batch import BatchView, assign, iter_batches
from tidelog.records.builder import NewRecord, build_batch
from tidelog.records.reader import Record, iter_records
from tidelog.wire.codec import RequestHeader
from tidelog.wire.data import consumer_offsets
from tidelog.wire.data.consumer_offsets import OffsetCommitKey, OffsetCommitValue
from tidelog.wire.messages.describe_groups import DescribeGroupsRequest
from tidelog.wire.messages.join_group import JoinGroupResponse
from tidelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tidelog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from tidelog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tidelog.wire.registry import (
    DESCRIBE_GROUPS,
    JOIN_GROUP,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    SYNC_GROUP,
)

OFFSETS_ID = b"O" * 16
#: The one partition of `__consumer_offsets`.
P0 = TopicPartition(CONSUMER_OFFSETS, 0)
#: The topic that groups read: three partitions.
READ = "read"
READ_ID = b"R" * 16


def told(story: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Makes a test of a coroutine: a loop of its own runs it."""

    @functools.wraps(story)
    def test(*arguments: Any, **named: Any) -> None:
        asyncio.run(story(*arguments, **named))

    return test


class BatchLog(FakeLog):
    """Keeps whole batches, as they come."""

    def __init__(self, topic_partition: TopicPartition, topic_id: bytes) -> None:
        super().__init__(topic_partition, topic_id)
        self.batches: list[bytes] = []
        self.read_errors: list[BaseException] = []
        self.reads: list[tuple[int, int]] = []
        #: Reads wait until it is resolved, if there is one.
        self.gate: Completion[None] | None = None

    def put(self, *records: NewRecord, leader_epoch: int = 0, control: bool = False) -> None:
        """A batch that is there already."""
        self._store(build_batch(records, control=control), leader_epoch)

    def _store(self, data: bytearray, leader_epoch: int) -> BatchView:
        batch = BatchView(data)
        assign(batch, self.log_end_offset, leader_epoch)
        self.fill(*[leader_epoch] * (batch.last_offset - batch.base_offset + 1))
        self.batches.append(bytes(data))
        return batch

    def plan_leader_append(
        self, records: Any, leader_epoch: int, now_ms: int, checked: Any = None
    ) -> Completion[Any]:
        completion: Completion[Any] = Completion()
        data, error = bytearray(records), self.append_error

        def write() -> None:
            if error is not None:
                completion.fail(error)
                return
            batch = self._store(data, leader_epoch)
            info = SimpleNamespace(base_offset=batch.base_offset, last_offset=batch.last_offset)
            completion.resolve(info)

        self._planned.append(write)
        return completion

    def read(self, offset: int, max_bytes: int, end_offset: int, *, min_one_batch: bool) -> Any:
        self.reads.append((offset, max_bytes))
        if self.read_errors:
            return Completion.failed(self.read_errors.pop(0))
        data = b""
        next_offset = -1
        for batch in iter_batches(b"".join(self.batches)):
            if offset <= batch.last_offset < end_offset and (
                not data or len(data) + batch.size_bytes <= max_bytes
            ):
                data += bytes(batch.buffer[batch.position : batch.end_position])
                next_offset = batch.next_offset
        part = SimpleNamespace(data=data, next_offset=next_offset)
        if self.gate is None:
            return Completion.of(part)
        waiting: Completion[Any] = Completion()
        self.gate.then(lambda _: waiting.resolve(part))
        return waiting

    @property
    def stored(self) -> list[Record]:
        """All records."""
        return [
            record for data in self.batches for record in iter_records(BatchView(bytearray(data)))
        ]


class CoordinatorHarness:
    """Broker 1; leads the partition alone, or with broker 2 in its ISR."""

    def __init__(self, **config: str) -> None:
        self.clock = FakeClock()
        config = {"group_initial_rebalance_delay_ms": "0", **config}
        self.broker = FakeBroker(1, {}, self.clock, **config)
        self.broker.directory.log_type = BatchLog
        self.broker.see(1, 2)
        self.broker.view.topics = {
            CONSUMER_OFFSETS: TopicView(CONSUMER_OFFSETS, OFFSETS_ID, {0: _view(1)}),
            READ: TopicView(READ, READ_ID, {number: _view(2) for number in range(3)}),
        }
        broker: Any = self.broker
        broker.auto_creation = AutoCreation(broker.services)
        self._modules = modules()

    @property
    def log(self) -> BatchLog:
        log = self.broker.directory.logs[P0]
        assert isinstance(log, BatchLog)
        return log

    async def lead(
        self,
        leader_epoch: int = 0,
        *,
        isr: tuple[int, ...] = (1,),
        replicas: tuple[int, ...] | None = None,
    ) -> None:
        """The controller makes it the leader; the load ends unless it is kept from that."""
        await self.command(1, leader_epoch, isr=isr, replicas=replicas)

    async def follow(self, leader_epoch: int) -> None:
        """Broker 2 leads."""
        await self.command(2, leader_epoch, isr=(1, 2))

    async def command(
        self,
        leader: int,
        leader_epoch: int,
        *,
        isr: tuple[int, ...],
        replicas: tuple[int, ...] | None = None,
    ) -> None:
        """A LeaderAndIsr for the partition."""
        wanted = state(
            leader,
            leader_epoch=leader_epoch,
            partition_epoch=leader_epoch,
            isr=isr,
            replicas=replicas or isr,
            is_new=P0 not in self.broker.directory.logs,
        )
        response = await self.broker.command(wanted, topic=CONSUMER_OFFSETS, topic_id=OFFSETS_ID)
        assert errors(response) == [0]
        await self.clock.advance(0)

    def replicate(self) -> None:
        """Broker 2 has everything that is written."""
        end = self.log.log_end_offset
        self.broker.partition(P0).role.follower_fetched(2, 102, end, 0, self.clock.now_ms)

    def send(self, api_key: int, version: int, message: Any) -> Any:
        """Hand in a request: its answer, or the Pending that waits for it. The turn of the
        loop goes on: nothing is written yet."""
        header = RequestHeader(api_key, version, 0, "a-client")
        request = Request(header, message, CONNECTION, self.clock.now_ms)
        broker: Any = self.broker
        return self._modules[api_key].handle(broker, request)

    def ask(self, api_key: int, version: int, message: Any) -> Any:
        """Hand in a request in a turn of its own; what it is answered at once, else the
        Pending."""
        answer = self.send(api_key, version, message)
        self.broker.groups.flush()
        return answered(answer) if isinstance(answer, Pending) and answer.done else answer

    async def settle(self) -> None:
        """Let everything that can happen now happen."""
        await settle()


def answered(pending: Pending) -> Any:
    """What a Pending was completed with."""
    assert pending.done, "nobody has answered"
    found: list[Any] = []
    pending.deliver_to(found.append)
    return found[0]


def _view(leader: int) -> PartitionView:
    return PartitionView(leader, 0, (1, 2), (1, 2), (), 0)


def committing(offset: int, *, group: str = GROUP, metadata: str = "") -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(0, offset, committed_metadata=metadata)
    return OffsetCommitRequest(group, topics=[OffsetCommitRequestTopic(READ, [partition])])


def commit(harness: CoordinatorHarness, offset: int, **more: Any) -> Any:
    return harness.ask(OFFSET_COMMIT, 8, committing(offset, **more))


def commit_error(answer: Any) -> ErrorCode:
    return ErrorCode(answer.topics[0].partitions[0].error_code)


def fetch(harness: CoordinatorHarness, group: str = GROUP) -> tuple[ErrorCode, int]:
    answer = harness.ask(
        OFFSET_FETCH, 7, OffsetFetchRequest(group, [OffsetFetchRequestTopic(READ, [0])])
    )
    offset = answer.topics[0].partitions[0].committed_offset if answer.topics else -1
    return ErrorCode(answer.error_code), offset


def stored_offset(
    offset: int, group: str = GROUP, incarnation: PartitionIncarnation | None = None
) -> NewRecord:
    """The record of a committed offset; without an incarnation, as Kafka writes it."""
    if incarnation is not None:
        committed = CommittedOffset(offset, incarnation=incarnation)
        record = OffsetRecord(OffsetKey(group, TopicPartition(READ, 0)), committed)
        return offset_records.encode(record, 1)
    key = consumer_offsets.encode_key(OffsetCommitKey(group, READ, 0))
    value = consumer_offsets.encode_offset_commit_value(
        OffsetCommitValue(offset, -1, "", 1_000_000, -1)
    )
    return NewRecord(key, value, 1)


async def stable_member(harness: CoordinatorHarness) -> JoinGroupResponse:
    pending = harness.ask(JOIN_GROUP, 3, join_group(3, READ))
    await harness.clock.advance(20)
    joined: JoinGroupResponse = answered(pending)
    assert joined.error_code == ErrorCode.NONE
    assignment = SyncGroupRequestAssignment(joined.member_id, b"mine")
    synced = harness.ask(
        SYNC_GROUP,
        3,
        SyncGroupRequest(GROUP, joined.generation_id, joined.member_id, assignments=[assignment]),
    )
    assert synced.assignment == b"mine"
    return joined


def group_state(harness: CoordinatorHarness) -> tuple[str, int]:
    (group,) = harness.ask(DESCRIBE_GROUPS, 5, DescribeGroupsRequest([GROUP])).groups
    return group.group_state, len(group.members)
