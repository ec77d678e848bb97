"""Churn of committed offsets: an administrator commits, resets and deletes them, and the group.

The group has no members, and the administrator sends one request after the other. So the group's
offsets are known: they are those of the last acknowledged request. A request that was retried, or
got no response, may also hold, because any of its attempts may take effect at any later time.
"""

from __future__ import annotations

import random
from typing import Any, ClassVar, Final, TypeVar

from tidelog.client.coordinators import Coordinators
from tidelog.client.groups import CommittedOffset, GroupAdmin
from tidelog.client.steps import Call, Operation
from tidelog.core.errors import ErrorCode, KafkaError, TidelogError
from tidelog.core.names import CONSUMER_OFFSETS
from tidelog.core.types import TopicPartition
from tidelog.sim.checkers.replica_logs import LogKey
from tidelog.sim.workload.churning import ChurnKind, Work, churn
from tidelog.wire.registry import DELETE_GROUPS, OFFSET_COMMIT, OFFSET_DELETE

T = TypeVar("T")

_GROUP: Final = "ledger"
_PARTITIONS: Final = 3
#: No offset.
_NONE: Final = -1
_WRITES: Final = (OFFSET_COMMIT, OFFSET_DELETE, DELETE_GROUPS)


class Attempts:
    """The number of attempts of an operation that changes offsets."""

    def __init__(self) -> None:
        self.count = 0

    def of(self, operation: Operation[T]) -> Operation[T]:
        """Return the same operation, with its attempts counted."""
        step: Any = next(operation)
        while True:
            if isinstance(step, Call) and step.api_key in _WRITES:
                self.count += 1
            answer: Any = None
            error: TidelogError | None = None
            try:
                answer = yield step
            except TidelogError as raised:
                error = raised
            try:
                step = operation.send(answer) if error is None else operation.throw(error)
            except StopIteration as end:
                result: T = end.value
                return result


@churn
class OffsetsDeleted(ChurnKind):
    """Commits, resets and deletions of a group's offsets, and deletions of the group."""

    name: ClassVar[str] = "offsets_deleted"

    def __init__(self, work: Work, draw: random.Random) -> None:
        super().__init__(work, draw)
        router = self.client.router
        self._admin = GroupAdmin(router, Coordinators(router))
        self._partitions = [TopicPartition(work.steady[0].topic, n) for n in range(_PARTITIONS)]
        self._next_offset = 0
        #: The acknowledged offset of each partition, and other offsets that it may have.
        self._certain = dict.fromkeys(self._partitions, _NONE)
        self._possible: dict[TopicPartition, dict[int, None]] = {
            each: {} for each in self._partitions
        }

    async def run(self) -> None:
        while not self.stopping:
            await self.pause(30, 500)
            what = self.draw.random()
            some = self.draw.sample(self._partitions, self.draw.randrange(1, _PARTITIONS + 1))
            if what < 0.45:
                await self._commit(some)
            elif what < 0.6:
                await self._change(
                    dict.fromkeys(some, _NONE), self._admin.delete_offsets(_GROUP, some), "deleted"
                )
            elif what < 0.7:
                await self._change(
                    dict.fromkeys(self._partitions, _NONE),
                    self._admin.delete(_GROUP),
                    "group deleted",
                )
            else:
                await self._look()
        while not self._waits_for_operator() and not await self._look():
            await self.pause(50, 300)
        self.is_done = True

    def _waits_for_operator(self) -> bool:
        """Return whether the partition of the group's coordinator waits for an operator."""
        cluster = self.work.cluster
        topic = cluster.published.topics.get(CONSUMER_OFFSETS)
        partition = cluster.groups.partition_of(_GROUP)
        return topic is not None and cluster.waits_for_operator(LogKey(topic.topic_id, partition))

    async def _commit(self, partitions: list[TopicPartition]) -> None:
        """Commit new offsets; to the group this is also a reset."""
        wanted = {}
        for partition in partitions:
            self._next_offset += 1
            wanted[partition] = self._next_offset
        offsets = {each: CommittedOffset(offset) for each, offset in wanted.items()}
        await self._change(wanted, self._admin.commit(_GROUP, offsets), "committed")

    async def _change(
        self, wanted: dict[TopicPartition, int], operation: Operation[None], what: str
    ) -> None:
        attempts = Attempts()
        try:
            await self.client.run(attempts.of(operation))
        except TidelogError as error:
            self.failed(what, error)
            gone = isinstance(error, KafkaError) and error.code is ErrorCode.GROUP_ID_NOT_FOUND
            if gone and attempts.count == 1:
                self._check_gone()
                return
        else:
            self.succeeded(what)
            self._certain.update(wanted)
            if attempts.count == 1:
                return
        for partition, offset in wanted.items():
            self._possible[partition][offset] = None

    def _check_gone(self) -> None:
        """Check a response that the group does not exist: no offset may be required then."""
        for partition, certain in self._certain.items():
            if certain != _NONE and _NONE not in self._possible[partition]:
                self.client.history.broken_promise(
                    f"group {_GROUP} was reported as missing; offset {certain} of {partition} was"
                    " acknowledged and not deleted"
                )

    async def _look(self) -> bool:
        """Read the group's offsets and check them; return whether the read succeeded."""
        try:
            found = await self.client.run(self._admin.committed(_GROUP, self._partitions))
        except TidelogError as error:
            self.failed("read", error)
            return False
        for partition, certain in self._certain.items():
            offset = found[partition].offset if partition in found else _NONE
            if offset != certain and offset not in self._possible[partition]:
                self.client.history.broken_promise(
                    f"group {_GROUP} got offset {offset} for {partition}; {certain} was"
                    f" acknowledged last, and {list(self._possible[partition])} may hold besides"
                )
        return True
