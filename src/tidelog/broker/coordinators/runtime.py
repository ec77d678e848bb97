"""The part with I/O, timers and loads that all kinds of coordinators of internal topics share.

This broker coordinates each partition of the topic that it leads, under the partition's current
leader epoch only (G1). This module loads a partition when the leadership begins, and unloads it the
moment the leadership ends. Shards decide and respond (`core.coordinator_shard`). This module
carries out the effects of shards one after the other, so records reach the log in the order of the
decisions. If a client's connection is lost, the client gets no response, but its request takes
effect.

Each kind of coordinator is a subclass of `CoordinatorRuntime`. The subclass defines its topic, its
shards, the encoding of its records and its settings. The broker registers each subclass under its
topic (`coordinators` of `replicas.hosting.context.PartitionContext`). `GroupCoordinators` is the
only kind of coordinator so far.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from tidelog.broker.coordinators.led_partition import LedPartition, TopicSettings, time_of
from tidelog.broker.coordinators.loading import load
from tidelog.broker.coordinators.shards import CoordinatorShards
from tidelog.broker.server.requests import Pending, Request
from tidelog.core.coordinator_shard import (
    CancelTimer,
    CoordinatorAppend,
    CoordinatorPhase,
    CoordinatorShard,
    Effect,
    Effects,
    Now,
    Reply,
    SetTimer,
)
from tidelog.core.errors import ErrorCode

if TYPE_CHECKING:
    from tidelog.broker.replicas.hosting.partition import Partition
    from tidelog.broker.services import Services
    from tidelog.records.builder import NewRecord

S = TypeVar("S", bound=CoordinatorShard)

#: Number of groups of one request that are handled in one turn of the event loop, so that a turn
#: takes a few milliseconds.
_ASKED_PER_TURN = 500


def _same(answer: Any) -> Any:
    return answer


class CoordinatorRuntime(ABC, Generic[S]):
    """The coordinators of one internal topic on one broker."""

    #: Name of the internal topic.
    topic: ClassVar[str]
    #: Plural noun for what the coordinators coordinate, for example "groups"; used in logs and
    #: traces.
    noun: ClassVar[str]

    def __init__(
        self,
        services: Services,
        submit_appends: Callable[[], object],
        request_failed: Callable[[Request[Any], Exception], Any],
    ) -> None:
        """`submit_appends` starts the writing of planned appends.

        `request_failed` returns the response to a request whose handling raised an error.
        """
        self.services = services
        self._submit_appends = submit_appends
        self._request_failed = request_failed
        self.shards = CoordinatorShards(self.new_shard)
        self._led: dict[int, LedPartition[S]] = {}
        #: The function that takes the coordinator's answer to a request, by the request's number
        #: (ticket).
        self._waiting: dict[int, Callable[[Any], None]] = {}
        self._next_ticket = 0
        self._effects: deque[tuple[LedPartition[S], Effect]] = deque()
        self._is_carrying_out = False
        #: Partitions with gathered appends that have not been written yet.
        self._unflushed: dict[LedPartition[S], None] = {}

    def now(self) -> Now:
        """Return the monotonic and the wall-clock time; coordinators need both to decide."""
        return time_of(self.services.clock)

    # Methods that each kind of coordinator defines.

    @abstractmethod
    def new_shard(self, partition: int, leader_epoch: int) -> S:
        """Return a new shard (coordinator of one partition) for a leadership that begins."""

    @abstractmethod
    def encode(self, record: Any, now_ms: int) -> NewRecord:
        """Encode a record; raise SchemaError if a string in the record is too long."""

    @abstractmethod
    def decode(
        self, key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes | None]]
    ) -> Any:
        """Decode a record, None for an unknown kind; raises ProtocolError."""

    @abstractmethod
    def settings(self) -> TopicSettings:
        """Return the settings of the topic, as currently in force."""

    @abstractmethod
    def key_of(self, asked: Any) -> str:
        """Return the key of a request, whose hash selects the partition of its coordinator (G2)."""

    @abstractmethod
    def refuse(self, asked: Any, error: ErrorCode) -> Any:
        """Return the response that carries `error` for the whole request."""

    def check(self, asked: Any) -> ErrorCode:
        """Return the error of a request that every coordinator would refuse; else NONE."""
        return ErrorCode.NONE

    async def complete_load(self, led: LedPartition[S]) -> bool:
        """Finish a load after the replay; return False if the leadership ended during this call."""
        return True

    def leadership_ends(self, shard: S) -> None:
        """Note that a shard is about to be unloaded."""

    # Partitions.

    def partition_of(self, key: str) -> int:
        """Return the partition that owns a key (G2); the topic's partition count must be known."""
        self._look_at_topic()
        return self.shards.partition_of(key)

    def _look_at_topic(self) -> None:
        """Read the topic's partition count from the controller's published state.

        The controller refuses to add partitions to an internal topic (V70), so the partition count
        does not change while the topic exists.
        """
        topic = self.services.view.topics.get(self.topic)
        if topic is not None:
            self.shards.partition_count = len(topic.partitions)

    def role_taken(self, partition: Partition, leader_epoch: int) -> None:
        """Coordinate a partition of the topic, because this broker begins to lead the partition."""
        number = partition.topic_partition.partition
        shard, last = self.shards.load(number, leader_epoch)
        if shard is None:
            return
        self._end(number, last)
        led = self._led[number] = LedPartition(
            self.services, shard, partition, self.encode, self.settings, self.carry_out
        )
        self.services.tasks.spawn(f"load {led.name}", self._load(led))

    def role_ended(self, partition: Partition) -> None:
        """Stop coordinating a partition whose leadership ends."""
        number = partition.topic_partition.partition
        led = self._led.get(number)
        if led is not None:
            if led.shard.phase is CoordinatorPhase.LOADING:
                self.services.tracer.mark("coordinator_moved_while_loading")
            self.leadership_ends(led.shard)
        last = self.shards.unload(number, partition.leader_epoch)
        if last is not None:
            self._end(number, last)

    def replica_gone(self, partition: Partition) -> None:
        """Forget a replica that was removed, perhaps because its topic was deleted."""
        self.role_ended(partition)
        self.shards.forget(partition.topic_partition.partition)

    def _end(self, number: int, last: Effects) -> None:
        """Unload the shard of a partition whose leadership ended; carry out the effects `last`."""
        led = self._led.pop(number, None)
        if led is None:
            return
        self._unflushed.pop(led, None)
        self.services.tracer.event(
            f"{self.noun}_unloaded", partition=number, leader_epoch=led.shard.leader_epoch
        )
        self.carry_out(led, last)
        led.end()

    async def _load(self, led: LedPartition[S]) -> None:
        services, shard = self.services, led.shard
        began_ms = services.clock.monotonic_ms()
        buffer_bytes = self.settings().load_buffer_bytes
        if not await load(services, led.partition, shard, self.decode, buffer_bytes):
            return
        if not await self.complete_load(led):
            return
        services.tracer.event(
            f"{self.noun}_loaded",
            partition=shard.partition,
            leader_epoch=shard.leader_epoch,
            **{self.noun: shard.size},
        )
        services.tracer.log(
            "server",
            logging.INFO,
            f"{led.name} is loaded for leader epoch {shard.leader_epoch}: "
            f"{shard.size} {self.noun} in {services.clock.monotonic_ms() - began_ms} ms",
        )
        self.carry_out(led, shard.loaded(self.now()))

    def led(self) -> list[LedPartition[S]]:
        """Return the partitions that this broker currently coordinates."""
        return list(self._led.values())

    # Requests.

    def ticket(self) -> int:
        """Return a new ticket, the number of a request."""
        self._next_ticket += 1
        return self._next_ticket

    def answer(
        self, request: Request[Any], asked: Any, respond: Callable[[Any], Any] = _same
    ) -> Any:
        """Return the response to a request about one key, or a Pending for a later response.

        `respond` makes the response from the coordinator's answer.
        """
        led, effects = self._ask(asked)
        if len(effects) == 1:
            effect = effects[0]
            if type(effect) is Reply and effect.ticket == asked.ticket:
                return respond(effect.answer)
        assert led is not None
        pending = Pending()
        self._wait(request, pending, asked, lambda answer: pending.complete(respond(answer)))
        self.carry_out(led, effects)
        return pending

    def answer_all(
        self, request: Request[Any], asked: Sequence[Any], respond: Callable[[Sequence[Any]], Any]
    ) -> Any:
        """Return the response to a request about several keys, or a Pending for a later one."""
        answers: list[Any] = [None] * len(asked)
        left = dict.fromkeys(range(len(asked)))
        pending = Pending()

        def take(index: int, answer: Any) -> None:
            answers[index] = answer
            del left[index]
            if not left:
                pending.complete(respond(answers))

        def ask(index: int) -> None:
            led, effects = self._ask(asked[index])
            if led is None:
                assert isinstance(effects[0], Reply)
                take(index, effects[0].answer)
            else:
                self._wait(request, pending, asked[index], partial(take, index))
                self.carry_out(led, effects)

        if not asked:
            pending.complete(respond(answers))
        elif len(asked) <= _ASKED_PER_TURN:
            for index in range(len(asked)):
                ask(index)
        else:
            work = self._ask_in_turns(len(asked), ask, pending)
            self.services.tasks.spawn(f"ask of {self.noun}", work)
        return pending

    async def _ask_in_turns(self, count: int, ask: Callable[[int], None], pending: Pending) -> None:
        """Ask the coordinators about many keys, and yield to the event loop in between."""
        for start in range(0, count, _ASKED_PER_TURN):
            for index in range(start, min(start + _ASKED_PER_TURN, count)):
                ask(index)
            await self.services.tasks.sleep(0)
            if pending.done:
                return

    def _ask(self, asked: Any) -> tuple[LedPartition[S] | None, Effects]:
        error = self.check(asked)
        if not error:
            self._look_at_topic()
            shard = self.shards.coordinator_of(self.key_of(asked))
            if shard is not None:
                return self._led[shard.partition], shard.ask(asked, self.now())
            error = ErrorCode.NOT_COORDINATOR
        return None, (Reply(asked.ticket, self.refuse(asked, error)),)

    def _wait(
        self, request: Request[Any], pending: Pending, asked: Any, take: Callable[[Any], None]
    ) -> None:
        ticket = asked.ticket

        def taken(answer: Any) -> None:
            try:
                take(answer)
            except AssertionError:
                raise
            # a defect of the broker fails this request only, not the shard
            except Exception as error:
                pending.complete(self._request_failed(request, error))

        self._waiting[ticket] = taken
        pending.on_cancel(lambda: self._forget(ticket))

    def _forget(self, ticket: int) -> None:
        self._waiting.pop(ticket, None)

    # Effects.

    def carry_out(self, led: LedPartition[S], effects: Effects) -> None:
        """Carry out a shard's effects, after all earlier effects."""
        queue = self._effects
        for effect in effects:
            queue.append((led, effect))
        if self._is_carrying_out:
            return
        self._is_carrying_out = True
        try:
            while queue:
                self._carry_out_one(*queue.popleft())
        finally:
            self._is_carrying_out = False

    def _carry_out_one(self, led: LedPartition[S], effect: Effect) -> None:
        if isinstance(effect, Reply):
            take = self._waiting.pop(effect.ticket, None)
            if take is not None:
                take(effect.answer)
        elif led.is_over:
            return
        elif isinstance(effect, CoordinatorAppend):
            led.gather(effect)
            self._flush_later(led)
        elif isinstance(effect, SetTimer):
            led.set_timer(effect.name, effect.deadline_ms)
        else:
            assert isinstance(effect, CancelTimer)
            led.cancel_timer(effect.name)

    def _flush_later(self, led: LedPartition[S]) -> None:
        """Write the gathered appends in the event loop's next turn.

        All appends of one turn of the event loop share batches, whichever connections they came
        from.
        """
        if not self._unflushed:
            self.services.ports.loop.call_soon(self.flush)
        self._unflushed[led] = None

    def flush(self) -> None:
        """Write the gathered appends."""
        unflushed, self._unflushed = self._unflushed, {}
        for led in unflushed:
            led.flush()
        self._submit_appends()
