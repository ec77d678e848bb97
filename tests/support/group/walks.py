"""A group with its clients, a log that may lose its end, and coordinators that come and go.

The real coordinator over a list as its log. Clients do what Kafka's do, at random moments: join,
assign, sync, send heartbeats, commit, leave, change their subscription, fall silent, return, ask
again before they are answered. Appends are refused, late, or cut from the log's uncommitted end by
a failover. After each step: one leader and one assignment for each generation; nobody is given an
assignment of another generation; offsets are exactly those of the committed log; what is stable is
what a reload would find; and whoever waits has a timer that will end it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.support.group.asking import (
    Committed,
    committing,
    deleting,
    errors_of,
    fetched,
    fetching,
    heartbeating,
    joining,
    leaving,
    protocols,
    syncing,
    under,
)
from tests.support.group.harness import SETTINGS, WALL_MS

from tidelog.core.coordinator_shard import (
    CancelTimer,
    CoordinatorAppend,
    CoordinatorPhase,
    Effects,
    Now,
    Reply,
    SetTimer,
)
from tidelog.core.errors import ErrorCode
from tidelog.core.types import TopicPartition
from tidelog.group import offsets
from tidelog.group.asked import Asked
from tidelog.group.classic.classic_group import ClassicGroup, GroupState, classic
from tidelog.group.partition import GroupPartition
from tidelog.group.records import GroupRecord, GroupSnapshot, OffsetRecord, Record
from tidelog.group.timers import TimerKind, TimerName
from tidelog.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from tidelog.wire.messages.leave_group import MemberIdentity
from tidelog.wire.messages.offset_commit import OffsetCommitRequest
from tidelog.wire.messages.offset_fetch import OffsetFetchRequestGroup
from tidelog.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

G, SIMPLE = "g", "simple"
SESSION_MS, REBALANCE_MS = 6_000, 20_000
REFUSALS = (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.KAFKA_STORAGE_ERROR)
LATE = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
#: The client's id is of no use any longer: it joins without one.
FORGOTTEN = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID)


def identity(member_id: str) -> str:
    """Who is behind an id: a static member has several, one after the other."""
    return member_id.partition("-")[0] if member_id.startswith("s") else member_id


def groups_of(core: GroupPartition) -> list[ClassicGroup]:
    """The groups of a coordinator."""
    groups = [group for group in core.groups.values() if isinstance(group, ClassicGroup)]
    assert len(groups) == len(core.groups)
    return groups


def check_shape(
    group: ClassicGroup,
    timers: Collection[TimerName],
    protocol_names: Collection[str] | None = None,
) -> None:
    """What holds of any group at any time; with names of protocols: all its members speak them."""
    members = group.members.values()
    assert group.awaiting_join == sum(each.join_ticket is not None for each in members)
    if protocol_names is not None:
        spoken = dict.fromkeys(protocol_names, len(members)) if members else {}
        assert group.speakers == spoken
    assert group.static_ids == {
        each.instance_id: each.member_id for each in members if each.instance_id is not None
    }
    assert group.leader_id is None if not members else group.leader_id in group.members
    has_join_timer = TimerName(TimerKind.JOIN, group.group_id) in timers
    is_preparing = group.state is GroupState.PREPARING_REBALANCE
    assert is_preparing == has_join_timer, "joins that nothing ends"
    if group.state is GroupState.COMPLETING_REBALANCE:
        is_stored = group.storing_generation == group.generation_id
        assert is_stored or group.sync_deadline_ms is not None, "syncs that nothing ends"


@dataclass(slots=True)
class Client:
    """One consumer."""

    instance_id: str | None
    version: int
    metadata: bytes = b"t"
    member_id: str = ""
    generation_id: int = -1
    #: joined: knows its generation; stable: has its assignment.
    stage: str = "out"
    #: Its last JoinGroup's answer, with which a leader assigns.
    joined: Any = None
    asked: Asked[Any] | None = None


@dataclass(slots=True)
class GroupWalk:
    """Everything around the coordinator; `random` decides what happens next."""

    random: Random
    clients: list[Client] = field(default_factory=list)
    core: GroupPartition = field(init=False)
    epoch: int = 0
    now_ms: int = 0
    #: The log: (leader epoch, number of the append, records), and how much of it is committed.
    entries: list[tuple[int, int, tuple[Record, ...]]] = field(default_factory=list)
    committed: int = 0
    late: list[int] = field(default_factory=list)
    timers: dict[TimerName, int] = field(default_factory=dict)
    #: Requests without an answer, by ticket: the client and what it asked.
    owed: dict[int, tuple[Client | None, Asked[Any]]] = field(default_factory=dict)
    tickets: int = 0
    leaders: dict[tuple[int, int], str] = field(default_factory=dict)
    assignments: dict[int, bytes] = field(default_factory=dict)
    #: What happened how often, so that the walks are known to walk.
    seen: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for number in range(self.random.randint(1, 4)):
            is_static = self.random.random() < 0.7
            instance_id = f"s{number}" if is_static else None
            self.clients.append(Client(instance_id, self.random.choice((3, 8, 9))))
        self.lead()

    @property
    def now(self) -> Now:
        return Now(self.now_ms, self.now_ms + WALL_MS)

    def note(self, what: str) -> None:
        self.seen[what] = self.seen.get(what, 0) + 1

    # The broker.

    def lead(self) -> None:
        """Another leader of the partition: it has what is committed, and some of the rest."""
        del self.entries[self.random.randint(self.committed, len(self.entries)) :]
        self.epoch += 1
        self.late.clear()
        self.core = GroupPartition(0, self.epoch, SETTINGS)
        for _, _, records in self.entries:
            for record in records:
                self.core.replay(record)
        self.loaded_if_committed()

    def loaded_if_committed(self) -> None:
        if self.core.phase is CoordinatorPhase.LOADING and all(
            epoch == self.epoch for epoch, _, _ in self.entries[self.committed :]
        ):
            self.run(self.core.loaded(self.now))

    def fail_over(self) -> None:
        if self.random.random() < 0.5:
            self.run(self.core.unload())
            assert self.owed == {}, "an answer is owed after the coordinator ended"
            assert self.timers == {}, "a timer outlives the coordinator"
        self.timers.clear()
        for client, _ in self.owed.values():
            if client is not None:
                client.asked = None
        self.owed.clear()
        self.note("failover")
        self.lead()

    def run(self, effects: Effects) -> None:
        refused = []
        for effect in effects:
            match effect:
                case Reply(ticket, answer):
                    client, asked = self.owed.pop(ticket)
                    self.answered(client, asked, answer)
                case SetTimer(name, deadline_ms):
                    self.timers[name] = deadline_ms
                case CancelTimer(name):
                    del self.timers[name]
                case CoordinatorAppend(number, epoch, records):
                    assert epoch == self.epoch
                    if self.random.random() < 0.1:
                        refused.append(number)
                    else:
                        self.entries.append((epoch, number, records))
        for number in refused:
            self.note("refused")
            self.run(self.core.failed(number, self.random.choice(REFUSALS), self.now))

    def replicate(self) -> None:
        """One more append is committed."""
        if self.committed == len(self.entries):
            return
        epoch, number, _ = self.entries[self.committed]
        self.committed += 1
        if epoch == self.epoch:
            self.run(self.core.committed(number, self.now))
        self.loaded_if_committed()

    def be_late(self) -> None:
        """The oldest append that was not late yet is."""
        for epoch, number, _ in self.entries[self.committed :]:
            if epoch == self.epoch and number not in self.late:
                self.late.append(number)
                self.note("late")
                self.run(self.core.timed_out(number, self.random.choice(LATE), self.now))
                return

    def sleep(self, duration_ms: int) -> None:
        end_ms = self.now_ms + duration_ms
        while self.timers:
            name = min(self.timers, key=lambda each: (self.timers[each], str(each)))
            if self.timers[name] > end_ms:
                break
            deadline_ms = self.timers.pop(name)
            self.now_ms = deadline_ms
            self.run(self.core.timer_fired(name, deadline_ms, self.now))
            self.check()
        self.now_ms = end_ms

    # Clients.

    def ask(self, client: Client | None, asked: Asked[Any]) -> None:
        self.tickets += 1
        asked = under(self.tickets, asked)
        if client is not None:
            client.asked = asked
        self.owed[self.tickets] = (client, asked)
        self.run(self.core.ask(asked, self.now))

    def act(self, client: Client) -> None:
        """One client does what is next, or something else."""
        chance = self.random.random()
        if client.asked is not None and chance < 0.8:
            return  # waits; otherwise the connection broke and it asks again
        if chance > 0.95:
            client.member_id, client.stage = "", "out"  # a new process
        if client.stage == "out":
            self.join(client)
        elif client.stage == "joined":
            self.sync(client)
        elif chance < 0.3:
            self.commit(client)
        elif chance < 0.31:
            client.metadata = self.random.choice((b"t", b"u", b"t,u"))
            self.join(client)
        elif chance < 0.32:
            gone = MemberIdentity(client.member_id, client.instance_id)
            client.member_id, client.stage = "", "out"
            self.ask(None, leaving(gone))
        else:
            self.ask(
                client, heartbeating(client.member_id, client.generation_id, client.instance_id)
            )

    def join(self, client: Client) -> None:
        asked = joining(
            client.member_id,
            group_id=G,
            version=client.version,
            instance_id=client.instance_id,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            protocols=protocols("range", metadata=client.metadata),
            uuid=str(self.tickets),
        )
        self.ask(client, asked)

    def sync(self, client: Client) -> None:
        answer = client.joined
        given: tuple[tuple[str, bytes], ...] = ()
        if answer.leader == answer.member_id and not answer.skip_assignment:
            given = tuple(
                (each.member_id, f"{answer.generation_id} {each.member_id} {self.tickets}".encode())
                for each in answer.members
            )
        asked = syncing(
            client.member_id,
            client.generation_id,
            instance_id=client.instance_id,
            assignments=given,
        )
        self.ask(client, asked)

    def commit(self, client: Client) -> None:
        asked = committing(
            Committed(TopicPartition("t", self.random.randint(0, 1)), self.tickets),
            generation_id=client.generation_id,
            member_id=client.member_id,
            instance_id=client.instance_id,
        )
        self.ask(client, asked)

    def others(self) -> None:
        """Commits without membership, deletions, fetches."""
        chance = self.random.random()
        if chance < 0.4:
            offset = Committed(TopicPartition("t", 0), self.tickets)
            self.ask(None, committing(offset, group_id=SIMPLE))
        elif chance < 0.5:
            self.ask(None, deleting(SIMPLE))
        elif chance < 0.6:
            self.run(self.core.topics_deleted({"t": (b"I" * 16,)}, self.now))
        else:
            self.ask(None, fetching(self.random.choice((G, SIMPLE))))

    def answered(self, client: Client | None, asked: Asked[Any], answer: Any) -> None:
        error = errors_of(answer)[0] if not hasattr(answer, "group_id") else ErrorCode.NONE
        message = asked.message
        if isinstance(message, OffsetFetchRequestGroup) and not answer.error_code:
            assert fetched(answer) == self.committed_offsets(asked.group_id)
        elif isinstance(message, OffsetCommitRequest):
            if error is ErrorCode.NONE:
                self.note("commit")
                (topic,) = message.topics
                (each,) = topic.partitions
                key = TopicPartition(topic.name, each.partition_index)
                assert self.is_committed(asked.group_id, key, each.committed_offset)
        elif isinstance(answer, JoinGroupResponse) and error is ErrorCode.NONE:
            assert isinstance(message, JoinGroupRequest)
            is_static = message.group_instance_id is not None and message.member_id == ""
            group = classic(self.core.groups[G])
            assert group is not None
            if is_static and group.state is GroupState.STABLE:
                self.note("returned")
            self.check_join(answer)
        elif isinstance(answer, SyncGroupResponse) and error is ErrorCode.NONE:
            assert isinstance(message, SyncGroupRequest)
            self.check_sync(message, answer)
        if client is None or client.asked is not asked:
            return
        client.asked = None
        if isinstance(answer, JoinGroupResponse):
            if error in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
                client.member_id = answer.member_id
            if error is ErrorCode.NONE:
                client.joined, client.generation_id = answer, answer.generation_id
                client.stage = "joined"
        elif isinstance(message, SyncGroupRequest):
            client.stage = "stable" if error is ErrorCode.NONE else "out"
        elif error is not ErrorCode.NONE:
            client.stage = "out"
        if error in FORGOTTEN:
            client.member_id, client.stage = "", "out"

    # What must hold.

    def check_join(self, answer: JoinGroupResponse) -> None:
        self.note("join")
        leader = identity(answer.leader)
        key = (self.epoch, answer.generation_id)
        assert self.leaders.setdefault(key, leader) == leader, "two leaders of one generation"
        if answer.members:
            assert answer.leader == answer.member_id, "a follower is told of the members"

    def check_sync(self, asked: SyncGroupRequest, answer: SyncGroupResponse) -> None:
        self.note("sync")
        if answer.assignment:
            generation, member_id, number = answer.assignment.split()
            assert int(generation) == asked.generation_id, "an assignment of another generation"
            assert identity(member_id.decode()) == identity(asked.member_id), "someone else's part"
            known = self.assignments.setdefault(asked.generation_id, number)
            assert known == number, "two assignments of one generation"

    def committed_records(self) -> list[Record]:
        return [each for _, _, records in self.entries[: self.committed] for each in records]

    def committed_offsets(self, group_id: str) -> dict[TopicPartition, int]:
        group = ClassicGroup(group_id)
        for record in self.committed_records():
            if isinstance(record, OffsetRecord) and record.key.group_id == group_id:
                offsets.apply(group, record)
        return {key: each.offset for key, each in group.offsets.items()}

    def is_committed(self, group_id: str, key: TopicPartition, offset: int) -> bool:
        return any(
            isinstance(record, OffsetRecord)
            and record.key == (group_id, key)
            and record.value is not None
            and record.value.offset == offset
            for record in self.committed_records()
        )

    def check(self) -> None:
        if self.core.phase is CoordinatorPhase.LOADING:
            return
        if self.tickets % 20 == 0:
            copy = self.core.copy()
            assert (hash(copy.key()), copy.key()) == (hash(self.core.key()), self.core.key())
        armed: dict[str, int | None] = {}
        size = 0
        for group in groups_of(self.core):
            for member in group.members.values():
                armed[member.member_id] = member.session.armed_ms
                waits = member.join_ticket is not None or member.sync_ticket is not None
                assert waits or member.session.armed_ms is not None, "a member nobody watches"
            armed.update({each: s.armed_ms for each, s in group.pending_members.items()})
            size += len(group.members) + len(group.pending_members)
            self.check_group(group)
        timed = {name.member_id: at for name, at in self.timers.items() if name.member_id}
        assert timed == {each: at for each, at in armed.items() if at is not None}
        assert self.core._member_count == size

    def check_group(self, group: ClassicGroup) -> None:
        check_shape(group, self.timers.keys(), {"range"})
        deadline_ms = self.timers.get(TimerName(TimerKind.JOIN, group.group_id))
        assert group.join_deadline_ms == deadline_ms
        if group.state is GroupState.STABLE:
            self.check_stored(group)

    def check_stored(self, group: ClassicGroup) -> None:
        """A reload would find the same."""
        stored = [
            each.value
            for each in self.committed_records()
            if isinstance(each, GroupRecord) and each.key.group_id == group.group_id
        ]
        assert stored, "a stable group without a record"
        last = stored[-1]
        assert isinstance(last, GroupSnapshot)
        assert (last.generation_id, last.leader_id) == (group.generation_id, group.leader_id)
        assert {each.member_id: each.assignment for each in last.members} == {
            each.member_id: each.assignment for each in group.members.values()
        }

    # The walk.

    def step(self) -> None:
        chance = self.random.random()
        if chance < 0.55:
            self.act(self.random.choice(self.clients))
        elif chance < 0.6:
            self.others()
        elif chance < 0.8:
            self.replicate()
        elif chance < 0.81:
            self.be_late()
        elif chance < 0.82:
            self.fail_over()
        elif chance < 0.998:
            self.sleep(self.random.choice((10, 100, 600)))
        else:
            self.sleep(self.random.choice((SESSION_MS, REBALANCE_MS)))
        self.check()

    def walk(self, steps: int) -> None:
        """Walk a number of steps; then no client acts, and in the end nothing is owed or left."""
        for _ in range(steps):
            self.step()
        while self.committed < len(self.entries):
            self.replicate()
        for _ in range(20):
            self.sleep(SETTINGS.new_member_join_timeout_ms // 4)
            while self.committed < len(self.entries):
                self.replicate()
        assert self.owed == {}, "answers that never come"
        assert self.timers == {}, "timers of nobody"
        for group in groups_of(self.core):
            assert group.state is GroupState.EMPTY
        assert self.committed_offsets(G) == {
            key: each.offset
            for key, each in (self.core.groups[G].offsets if G in self.core.groups else {}).items()
        }
