"""Committed offsets of groups without members: commits, resets and deletions, and deletions of
groups.

One client sends all requests about a group, one after the other, so the last acknowledged request
determines the group's offsets. If a request was retried or got no response, the group may also have
the offsets of this request, because each attempt may take effect at any later time.

Some groups have offsets of a topic that is deleted and created again (G6). Once every broker knows
the new topic, an offset of the former topic must not be returned for it. A commit that was
acknowledged after every broker knew the new topic must be kept.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from tidelog.client.coordinators import Coordinators
from tidelog.client.groups import FetchedOffset, GroupAdmin
from tidelog.client.steps import Call, Operation
from tidelog.core.errors import ErrorCode, KafkaError, TidelogError
from tidelog.core.types import TopicPartition
from tidelog.sim.workload.churning import ChurnKind, OfTopics, churn, churn_of_profiles
from tidelog.sim.workload.work import Workload
from tidelog.wire.registry import DELETE_GROUPS, OFFSET_COMMIT, OFFSET_DELETE

T = TypeVar("T")

_GROUP: Final = "ledger"
_PARTITIONS: Final = 3
#: Stands for the offset of a partition without a committed offset.
_NO_OFFSET: Final = -1
_WRITES: Final = (OFFSET_COMMIT, OFFSET_DELETE, DELETE_GROUPS)
_READERS: Final = ("rereaders", "returners", "repeaters", "recaller")
_REREAD: Final = TopicPartition("reread", 0)


class Attempts:
    """Counts the attempts of an operation that changes offsets."""

    def __init__(self) -> None:
        self.count = 0

    def of(self, operation: Operation[T]) -> Operation[T]:
        """Wrap an operation of the client, so that its attempts are counted."""
        advance: Callable[[], Any] = partial(next, operation)
        while True:
            try:
                step = advance()
            except StopIteration as end:
                result: T = end.value
                return result
            if isinstance(step, Call) and step.api_key in _WRITES:
                self.count += 1
            try:
                advance = partial(operation.send, (yield step))
            except TidelogError as raised:
                advance = partial(operation.throw, raised)


class OffsetLedger:
    """The expected offsets of a group without members, whose requests all come from one client."""

    def __init__(
        self,
        kind: ChurnKind,
        group: str,
        partitions: Sequence[TopicPartition],
        since: str = "",
        rule: str = "",
    ) -> None:
        """Begin without committed offsets; `since` and `rule` are added to the messages of
        violations.
        """
        router = kind.client.router
        self.admin = GroupAdmin(router, Coordinators(router))
        self.group = group
        self.partitions = partitions
        #: The acknowledged offset of each partition; `_possible` has offsets of requests whose
        #: outcome is unknown.
        self.certain = dict.fromkeys(partitions, _NO_OFFSET)
        self._possible: dict[TopicPartition, dict[int, None]] = {each: {} for each in partitions}
        self._kind = kind
        self._since, self._rule = since, rule

    async def commit(self, wanted: dict[TopicPartition, int]) -> None:
        """Commit new offsets; a reset of a group's offsets uses the same request."""
        offsets = {each: FetchedOffset(offset) for each, offset in wanted.items()}
        await self.change(wanted, self.admin.commit(self.group, offsets), "committed")

    async def change(
        self, wanted: dict[TopicPartition, int], operation: Operation[None], what: str
    ) -> None:
        """Run an operation that sets the `wanted` offsets, and note its outcome."""
        attempts = Attempts()
        try:
            await self._kind.client.run(attempts.of(operation))
        except TidelogError as error:
            self._kind.failed(what, error)
            gone = isinstance(error, KafkaError) and error.code is ErrorCode.GROUP_ID_NOT_FOUND
            if gone and attempts.count == 1:
                self._check_gone()
                return
        else:
            self._kind.succeeded(what)
            self.certain.update(wanted)
            if attempts.count == 1:
                return
        for partition, offset in wanted.items():
            self._possible[partition][offset] = None

    def _check_gone(self) -> None:
        """Check that the group has no acknowledged offsets, because a response says that it does
        not exist.
        """
        for partition, certain in self.certain.items():
            if certain != _NO_OFFSET and _NO_OFFSET not in self._possible[partition]:
                self._kind.client.history.broken_promise(
                    f"group {self.group} was reported as missing; offset {certain} of {partition}"
                    f" was acknowledged{self._since} and not deleted{self._rule}"
                )

    async def look(self) -> bool:
        """Read the group's offsets and check them; return whether the read succeeded."""
        with self._kind.tried("read"):
            wanted = self.admin.committed(self.group, self.partitions)
            found = await self._kind.client.run(wanted)
            for partition, certain in self.certain.items():
                offset = found[partition].offset if partition in found else _NO_OFFSET
                if offset != certain and offset not in self._possible[partition]:
                    self._kind.client.history.broken_promise(
                        f"group {self.group} got offset {offset} for {partition}; {certain} was"
                        f" acknowledged last{self._since}, and"
                        f" {list(self._possible[partition])} may hold besides{self._rule}"
                    )
            return True
        return False

    async def look_at_last(self) -> None:
        """Read the offsets once more, unless only an operator can make the coordinator's partition
        available.
        """
        waits_for_operator = self._kind.work.cluster.group_waits_for_operator
        while not waits_for_operator(self.group) and not await self.look():
            await self._kind.pause(50, 300)


@churn
class OffsetsDeleted(ChurnKind):
    """Commits, resets and deletions of a group's offsets, and deletions of the group."""

    pause_ms = 30, 500

    def __init__(self, work: Workload, draw: random.Random) -> None:
        super().__init__(work, draw)
        partitions = [TopicPartition(work.steady[0].topic, n) for n in range(_PARTITIONS)]
        self._ledger = OffsetLedger(self, _GROUP, partitions)
        self._next_offset = 0

    async def act(self) -> None:
        ledger, admin = self._ledger, self._ledger.admin
        what = self.draw.random()
        some = self.draw.sample(ledger.partitions, self.draw.randrange(1, _PARTITIONS + 1))
        if what < 0.45:
            first, self._next_offset = self._next_offset + 1, self._next_offset + len(some)
            await ledger.commit(dict(zip(some, range(first, first + len(some)), strict=True)))
        elif what < 0.6:
            wanted = dict.fromkeys(some, _NO_OFFSET)
            await ledger.change(wanted, admin.delete_offsets(_GROUP, some), "deleted")
        elif what < 0.7:
            wanted = dict.fromkeys(ledger.partitions, _NO_OFFSET)
            await ledger.change(wanted, admin.delete(_GROUP), "group deleted")
        else:
            await ledger.look()

    async def finish(self) -> None:
        await self._ledger.look_at_last()


@churn_of_profiles
class OffsetsOfRecreatedTopics(OfTopics):
    """Commits of groups for a topic that is deleted and created again under its name."""

    def __init__(self, work: Workload, draw: random.Random) -> None:
        super().__init__(work, draw)
        since = " since the topic was created"
        self._ledgers = {
            group: OffsetLedger(self, group, [_REREAD], since, " (G6)") for group in _READERS
        }
        self._next_offset = 0

    async def begin(self) -> None:
        await self.create(_REREAD.topic)

    async def act(self) -> None:
        for _ in range(self.draw.randrange(1, 4)):
            for group in self.draw.sample(_READERS, 2):
                self._next_offset += 1
                await self._ledgers[group].commit({_REREAD: self._next_offset})
            await self.pause(5, 150)
            await self._ledgers[self.draw.choice(_READERS)].look()
        former = self.topic_id(_REREAD.topic)
        await self.admin.delete(_REREAD.topic)
        await self.client.tasks.sleep(self.draw.choice((0, 0, 5, 200, 1_500)))
        await self.create(_REREAD.topic)
        self.succeeded("recreated")
        while former in self._shown():
            await self.pause(5, 100)
        for ledger in self._ledgers.values():
            ledger.certain[_REREAD] = _NO_OFFSET
        for ledger in self._ledgers.values():
            await ledger.look()

    async def finish(self) -> None:
        for ledger in self._ledgers.values():
            await ledger.look_at_last()

    def _shown(self) -> list[bytes]:
        """Return the id of the topic that each broker returns in its metadata."""
        views = [
            node.broker.services.view
            for node in self.work.cluster.brokers.values()
            if node.broker is not None
        ]
        return [
            view.topics[_REREAD.topic].topic_id for view in views if _REREAD.topic in view.topics
        ]
