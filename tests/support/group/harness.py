"""A group coordinator with everything around it: clock, log, timers, answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.support.group.asking import (
    Committed,
    G,
    committing,
    deleting,
    deleting_offsets,
    describing,
    errors_of,
    fetched,
    fetching,
    heartbeating,
    joining,
    leaving,
    syncing,
    under,
)

from tidelog.broker.coordinators.shards import CoordinatorShards
from tidelog.core.coordinator_shard import (
    CancelTimer,
    CoordinatorAppend,
    Effects,
    Now,
    Reply,
    SetTimer,
)
from tidelog.core.errors import ErrorCode
from tidelog.core.types import TopicPartition
from tidelog.group.partition import GroupPartition
from tidelog.group.records import Record
from tidelog.group.settings import GroupSettings
from tidelog.group.timers import TimerName
from tidelog.wire.messages.leave_group import MemberIdentity

EPOCH = 7
#: Wall clock minus monotonic clock.
WALL_MS = 1_000_000
DELAY_MS = 3_000


def topics(metadata: bytes) -> Sequence[str] | None:
    """Subscriptions as tests write them: names with commas between."""
    return None if metadata == b"?" else metadata.decode().split(",")


SETTINGS = GroupSettings(subscription_topics=topics)


def shards(partition_count: int = 0) -> CoordinatorShards[GroupPartition]:
    """The partitions that a broker coordinates; none is loaded."""
    return CoordinatorShards(
        lambda partition, epoch: GroupPartition(partition, epoch, SETTINGS), partition_count
    )


class GroupHarness:
    """Drives a coordinator as its docstring says; appends are committed at once unless held."""

    def __init__(
        self, settings: GroupSettings = SETTINGS, log: Sequence[Record] = (), epoch: int = EPOCH
    ) -> None:
        self.settings = settings
        self.now_ms = 0
        self.holds = False
        self.log: list[Record] = list(log)
        self.held: dict[int, CoordinatorAppend] = {}
        self.timers: dict[TimerName, int] = {}
        self.answers: dict[int, Any] = {}
        self.tickets = 0
        self.core = GroupPartition(0, epoch, settings)
        for record in log:
            self.core.replay(record)
        self.run(self.core.loaded(self.now))

    @property
    def now(self) -> Now:
        return Now(self.now_ms, self.now_ms + WALL_MS)

    def group(self, group_id: str = G) -> Any:
        return self.core.groups[group_id]

    def state(self, group_id: str = G) -> str:
        return str(self.group(group_id).state.value)

    # What the broker does.

    def run(self, effects: Effects) -> None:
        for effect in effects:
            match effect:
                case Reply(ticket, answer):
                    assert ticket not in self.answers, "answered twice"
                    self.answers[ticket] = answer
                case SetTimer(name, deadline_ms):
                    self.timers[name] = deadline_ms
                case CancelTimer(name):
                    del self.timers[name]
                case CoordinatorAppend():
                    assert effect.leader_epoch == self.core.leader_epoch
                    self.held[effect.number] = effect
        while self.held and not self.holds:
            self.commit()

    def commit(self) -> None:
        """The oldest append is replicated."""
        number = next(iter(self.held))
        append = self.held.pop(number)
        self.log.extend(append.records)
        self.run(self.core.committed(number, self.now))

    def fail(self, error: ErrorCode = ErrorCode.NOT_ENOUGH_REPLICAS) -> None:
        """The newest append is refused."""
        number = list(self.held)[-1]
        del self.held[number]
        self.run(self.core.failed(number, error, self.now))

    def overdue(self, error: ErrorCode = ErrorCode.REQUEST_TIMED_OUT) -> None:
        """The oldest append takes too long."""
        self.run(self.core.timed_out(next(iter(self.held)), error, self.now))

    def release(self) -> None:
        self.holds = False
        self.run(())

    def sleep(self, duration_ms: int) -> None:
        """Let time go on; timers fire in their order."""
        end_ms = self.now_ms + duration_ms
        while self.timers:
            name = min(self.timers, key=lambda each: (self.timers[each], str(each)))
            if self.timers[name] > end_ms:
                break
            deadline_ms = self.timers.pop(name)
            self.now_ms = max(self.now_ms, deadline_ms)
            self.run(self.core.timer_fired(name, deadline_ms, self.now))
        self.now_ms = end_ms

    # What clients do.

    def ask(self, asked: Any) -> int:
        self.tickets += 1
        self.run(self.core.ask(under(self.tickets, asked), self.now))
        return self.tickets

    def answer(self, asked: Any) -> Any:
        """Ask; the answer must come at once."""
        return self.answers[self.ask(asked)]

    def join(self, member_id: str = "", **changes: Any) -> int:
        return self.ask(joining(member_id, uuid=f"u{self.tickets + 1}", **changes))

    def member(self, **changes: Any) -> str:
        """A new dynamic member that waits in a join."""
        ticket = self.join(**changes)
        member_id: str = self.answers[ticket].member_id
        self.last_join = self.join(member_id, **changes)
        return member_id

    def sync(self, member_id: str, generation_id: int, **changes: Any) -> int:
        return self.ask(syncing(member_id, generation_id, **changes))

    def stable(self, *instances: str | None, **changes: Any) -> list[str]:
        """A stable group with these members; the first one leads."""
        joins: dict[str, int] = {}
        for instance_id in instances:
            if instance_id is None:
                member_id = self.member(**changes)
                joins[member_id] = self.last_join
            else:
                joins[instance_id] = self.join(instance_id=instance_id, **changes)
        self.sleep(DELAY_MS * 2)
        answers = [self.answers[ticket] for ticket in joins.values()]
        ids = [answer.member_id for answer in answers]
        given = tuple((member_id, b"of " + member_id.encode()) for member_id in ids)
        generation = answers[0].generation_id
        for member_id, instance_id in zip(ids, instances, strict=True):
            ticket = self.sync(
                member_id,
                generation,
                instance_id=instance_id,
                assignments=given if member_id == answers[0].leader else (),
            )
        assert self.answers[ticket].error_code == ErrorCode.NONE
        assert self.state() == "Stable"
        return ids

    def heartbeat(
        self, member_id: str, generation_id: int, instance_id: str | None = None, group_id: str = G
    ) -> ErrorCode:
        asked = heartbeating(member_id, generation_id, instance_id, group_id)
        return ErrorCode(self.answer(asked).error_code)

    def leave(self, *members: MemberIdentity | str, group_id: str = G) -> list[ErrorCode]:
        identities = [MemberIdentity(each) if isinstance(each, str) else each for each in members]
        answer = self.answer(leaving(*identities, group_id=group_id))
        errors = [answer.error_code, *(member.error_code for member in answer.members)]
        return [ErrorCode(error) for error in errors]

    def commit_offset(
        self, offset: int, partition: int = 0, topic: str = "t", **changes: Any
    ) -> int:
        committed = Committed(TopicPartition(topic, partition), offset)
        return self.ask(committing(committed, **changes))

    def committed_error(self, ticket: int) -> ErrorCode:
        (error,) = errors_of(self.answers[ticket])
        return error

    def offset(self, partition: int = 0, topic: str = "t", group_id: str = G) -> int:
        key = TopicPartition(topic, partition)
        return fetched(self.answer(fetching(group_id, (key,))))[key]

    def delete_offsets(self, *topics: str, group_id: str = G) -> int:
        keys = [TopicPartition(topic, 0) for topic in topics]
        return self.ask(deleting_offsets(*keys, group_id=group_id))

    def describe(self, group_id: str = G, version: int = 5) -> Any:
        return self.answer(describing(group_id, version))

    def delete(self, group_id: str = G) -> int:
        return self.ask(deleting(group_id))

    def reload(self, epoch: int = EPOCH + 1, settings: GroupSettings | None = None) -> GroupHarness:
        """Another broker takes over with what is in the log."""
        other = GroupHarness(settings or self.settings, self.log, epoch)
        other.tickets = self.tickets
        return other
