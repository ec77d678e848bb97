"""The rules for a coordinator of groups, checked with its partition's log and its clients.

The reference knows the committed records (`group_log_values`), every request with its answer
(`group_asks`), and what a group is between two turns (`group_expectations.SeenGroup`). A record
that a coordinator appends needs a request or an expiry as its reason. A member may leave a group
only for a reason, and must leave it when its session has timed out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidelog.sim.small.coordinated_partition import ListedBatch, ListedRecord
from tidelog.sim.small.coordinator_world import RETENTION_MINUTES, CoordinatorBroker
from tidelog.sim.small.group_asks import SUBSCRIBED, CoordinatorTerm, GroupAsk
from tidelog.sim.small.group_expectations import (
    COMPLETING,
    EMPTY,
    PREPARING,
    STABLE,
    SeenGroup,
    SeenMember,
    seen_group,
)
from tidelog.sim.small.group_log_values import (
    LoggedGroup,
    LoggedOffset,
    LoggedState,
    OffsetName,
    group_of,
    name_of,
    offset_of,
)
from tidelog.wire.registry import (
    DELETE_GROUPS,
    JOIN_GROUP,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    SYNC_GROUP,
)

if TYPE_CHECKING:
    from tidelog.sim.small.coordinator_world import CoordinatorWorld

_RETENTION_MS: Final = RETENTION_MINUTES * 60_000
#: Timers of brokers fire late by up to two buckets of their timer wheel.
_LATE_MS: Final = 20
#: Time for which a new member may wait in its JoinGroup.
_NEW_MEMBER_MS: Final = 5 * 60_000


class JoinedGeneration(NamedTuple):
    """A generation, as the answers to its members' JoinGroup requests describe it."""

    began_ms: int
    leader: str
    #: By member id: instance id and metadata; None if the leader's answer has not come.
    members: dict[str, tuple[str | None, bytes]]


class GroupReference:
    """The checks of one history."""

    def __init__(self, world: CoordinatorWorld) -> None:
        self._world = world
        self._states: dict[int, LoggedState] = {}
        self.asks: list[GroupAsk] = []
        self.seen: dict[str, SeenGroup] = {}
        self._seen_term: CoordinatorTerm | None = None
        #: By coordinator and group: the newest generation. `_heard` has the time of each member's
        #: last sign of life.
        self.generations: dict[tuple[CoordinatorTerm, str], int] = {}
        self.joined: dict[tuple[CoordinatorTerm, str, int], JoinedGeneration] = {}
        self._heard: dict[tuple[CoordinatorTerm, str], dict[str, int]] = {}
        self._preparing: dict[tuple[CoordinatorTerm, str], int] = {}
        #: Coordinators that have lost the connection of a member while its JoinGroup waited.
        self.unanswered: set[CoordinatorTerm] = set()
        self._beating: set[tuple[CoordinatorTerm, str]] = set()
        self._left: set[tuple[CoordinatorTerm, str]] = set()
        self._views: dict[CoordinatorTerm, dict[str, SeenGroup]] = {}
        self._loaded: dict[CoordinatorTerm, int] = {}

    def violate(self, what: str) -> None:
        """Note a broken rule."""
        self._world.violate(what)

    # The log.

    def logged(self, broker: CoordinatorBroker) -> LoggedState:
        """Return the state that the committed records below a broker's high watermark form."""
        end = broker.replica.high_watermark
        state = self._states.get(broker.broker_id)
        if state is None or state.end > end:
            state = self._states[broker.broker_id] = LoggedState()
        state.add(self._world.register.committed, end)
        return state

    def term_of(self, broker: CoordinatorBroker) -> CoordinatorTerm | None:
        """Return the leadership under which a broker coordinates; None if it does not."""
        if not broker.coordinates:
            return None
        return CoordinatorTerm(
            broker.broker_id, broker.life, broker.replica.leader_epoch, broker.terms
        )

    def loaded(self, broker: CoordinatorBroker) -> None:
        """Begin a leadership: check that the coordinator has the state of the committed records."""
        term = self.term_of(broker)
        assert term is not None, "only a coordinator loads"
        if broker.replica.high_watermark < broker.replica.log_end_offset:
            self.violate("G1: a load ends above the high watermark")
        now_ms = self._world.clock.now_ms
        state = self.logged(broker)
        for group, logged in state.groups.items():
            self.generations[term, group] = logged.generation
            heard = {member.member_id: now_ms for member in logged.members}
            self._heard[term, group] = heard
        self._loaded[term] = now_ms
        self._compare(broker, state)
        for group, logged in state.groups.items():
            held = broker.shard.groups.get(group)
            if held is not None:
                self._compare_loaded(group, logged, seen_group(held))

    def _compare_loaded(self, group: str, logged: LoggedGroup, seen: SeenGroup) -> None:
        members = {
            each.member_id: (
                each.instance_id,
                each.session_timeout_ms,
                each.rebalance_timeout_ms,
                ((logged.protocol or "", each.subscription),),
                each.assignment,
            )
            for each in logged.members
        }
        found = {
            member_id: (
                each.instance_id,
                each.session_timeout_ms,
                each.rebalance_timeout_ms,
                each.protocols,
                each.assignment,
            )
            for member_id, each in seen.members.items()
        }
        wanted = (STABLE if members else EMPTY, logged.generation, logged.leader, members)
        if wanted != (seen.state, seen.generation, seen.leader, found):
            self.violate(f"G1: group {group} is loaded as {seen}, the log has {logged}")

    def _compare(self, broker: CoordinatorBroker, state: LoggedState) -> None:
        """Check that a coordinator has the offsets and groups of the committed records."""
        held: dict[str, Any] = broker.shard.groups
        offsets = {
            OffsetName(group_id, *key): (each.offset, each.metadata, each.commit_timestamp_ms)
            for group_id, group in held.items()
            for key, each in group.offsets.items()
        }
        wanted = {
            name: (each.offset, each.metadata, each.commit_ms)
            for name, each in state.offsets.items()
        }
        if offsets != wanted:
            self.violate(f"G1: a coordinator has offsets {offsets}, committed are {wanted}")
        for group in state.groups:
            if group not in held:
                self.violate(f"G1: a coordinator does not know the committed group {group}")

    # Appends.

    def appended(self, broker: CoordinatorBroker, batch: ListedBatch) -> None:
        """Check that each record of a batch has a reason."""
        term = self.term_of(broker)
        if term is None or broker.shard is None:
            self.violate("G1: a broker appends that is not the coordinator")
            return
        if broker.shard.leader_epoch != broker.replica.leader_epoch:
            self.violate("G1: a coordinator appends under another leader epoch")
        for record in batch.records:
            name = name_of(record)
            if isinstance(name, str):
                self._group_appended(broker, term, name, group_of(record))
            else:
                self._offset_appended(broker, term, name, record)

    def _of_term(self, term: CoordinatorTerm, group: str, key: int) -> list[GroupAsk]:
        return [
            ask for ask in self.asks if ask.key == key and ask.term == term and ask.group == group
        ]

    def _offset_appended(
        self,
        broker: CoordinatorBroker,
        term: CoordinatorTerm,
        name: OffsetName,
        record: ListedRecord,
    ) -> None:
        value, key = offset_of(record), (name.topic, name.partition)
        if value is None:
            if not self._may_forget(broker, term, name):
                self.violate(f"KIP-211: the tombstone of {name} has no reason")
            return
        for ask in self._of_term(term, name.group, OFFSET_COMMIT):
            wanted = ask.unwritten.get(key)
            if wanted is None or wanted.committed_offset != value.offset:
                continue
            del ask.unwritten[key]
            ask.written.append(record.offset)
            retention_ms = ask.message.retention_time_ms
            expire_ms = -1 if retention_ms < 0 else ask.wall_ms + retention_ms
            metadata = wanted.committed_metadata or ""
            if value[:4] != (wanted.committed_offset, metadata, ask.wall_ms, expire_ms):
                self.violate(f"G6: {ask} is written as {value}")
            return
        self.violate(f"the record of {name} at {value.offset} has no commit as its reason")

    def _may_forget(
        self, broker: CoordinatorBroker, term: CoordinatorTerm, name: OffsetName
    ) -> bool:
        key = (name.topic, name.partition)
        for ask in self._of_term(term, name.group, OFFSET_DELETE):
            if ask.unwritten.pop(key, None) is not None:
                return True
        if any(ask.expected is None for ask in self._of_term(term, name.group, DELETE_GROUPS)):
            return True
        state = self.logged(broker)
        offset = state.offsets.get(name)
        return offset is not None and self._is_expired(broker, name, offset, state)

    def _is_expired(
        self,
        broker: CoordinatorBroker,
        name: OffsetName,
        offset: LoggedOffset,
        state: LoggedState,
    ) -> bool:
        """Return whether the retention of an offset is over (KIP-211)."""
        held = broker.shard.groups.get(name.group)
        if held is None:
            return False
        seen, logged = seen_group(held), state.groups.get(name.group)
        since_ms = offset.commit_ms
        if seen.members:
            if seen.state != STABLE or name.topic in self._topics_of(seen):
                return False
        elif logged is not None and logged.generation == seen.generation:
            since_ms = logged.state_ms
        elif seen.generation:
            # The log lacks the record of the empty group: it was refused, or is being written.
            since_ms = held.state_timestamp_ms
        now_ms = self._world.clock.wall_ms()
        if offset.expire_ms != -1:
            return now_ms >= offset.expire_ms
        return now_ms - since_ms >= _RETENTION_MS

    @staticmethod
    def _topics_of(seen: SeenGroup) -> set[str]:
        return {
            topic
            for member in seen.members.values()
            for name, metadata in member.protocols
            if name == seen.protocol
            for topic in SUBSCRIBED.get(metadata, ())
        }

    def _group_appended(
        self,
        broker: CoordinatorBroker,
        term: CoordinatorTerm,
        group: str,
        value: LoggedGroup | None,
    ) -> None:
        former = self.logged(broker).groups.get(group)
        if value is None:
            is_asked = any(
                ask.expected is None for ask in self._of_term(term, group, DELETE_GROUPS)
            )
            held = broker.shard.groups.get(group)
            if held is not None and held.members:
                self.violate(f"group {group} is deleted with members {list(held.members)}")
            has_offsets = any(
                not self._is_expired(broker, name, offset, self.logged(broker))
                for name, offset in self.logged(broker).offsets.items()
                if name.group == group
            )
            if not is_asked and has_offsets:
                self.violate(f"KIP-211: the tombstone of group {group} has no reason")
        elif not value.members:
            newest = self.generations.get((term, group), 0)
            if not newest < value.generation <= newest + 2 or value.leader or value.protocol:
                self.violate(f"the empty group {group} after generation {newest} is {value}")
            self.generations[term, group] = max(newest, value.generation)
        elif not self._is_assigned(term, group, value) and not self._is_replaced(
            term, group, value, former
        ):
            self.violate(f"no SyncGroup and no static member is the reason for {value}")

    def _is_assigned(self, term: CoordinatorTerm, group: str, value: LoggedGroup) -> bool:
        joined = self.joined.get((term, group, value.generation))
        if joined is None or joined.leader != value.leader:
            return False
        members = {each.member_id: (each.instance_id, each.subscription) for each in value.members}
        if joined.members and members != joined.members:
            return False
        for ask in self._of_term(term, group, SYNC_GROUP):
            message = ask.message
            if (message.generation_id, message.member_id) != (value.generation, value.leader):
                continue
            given = {each.member_id: each.assignment for each in message.assignments}
            if all(each.assignment == given.get(each.member_id, b"") for each in value.members):
                return True
        return False

    def _is_replaced(
        self, term: CoordinatorTerm, group: str, value: LoggedGroup, former: LoggedGroup | None
    ) -> bool:
        if former is None or former.generation != value.generation:
            return False
        old = {each.member_id: each for each in former.members}
        new = {each.member_id: each for each in value.members}
        gone, come = old.keys() - new.keys(), new.keys() - old.keys()
        if len(gone) != 1 or len(come) != 1:
            return False
        before, after = old[gone.pop()], new[come.pop()]
        is_asked = any(
            ask.message.group_instance_id == after.instance_id and not ask.message.member_id
            for ask in self._of_term(term, group, JOIN_GROUP)
        )
        leads = before.member_id == former.leader
        leader = after.member_id if leads else former.leader
        is_same = all(old[each] == new[each] for each in old.keys() & new.keys())
        return (
            is_asked
            and is_same
            and leader == value.leader
            and before.instance_id == after.instance_id is not None
            and before.assignment == after.assignment
        )

    # Members.

    def heard(self, term: CoordinatorTerm | None, group: str, member_id: str) -> None:
        """Note that the session of a member begins again now."""
        if term is not None:
            self._heard.setdefault((term, group), {})[member_id] = self._world.clock.now_ms

    def beats(self, term: CoordinatorTerm, group: str, member_id: str) -> None:
        """Note a member's heartbeat or commit; a new member then has its session timeout, too."""
        self.heard(term, group, member_id)
        self._beating.add((term, member_id))

    def absent(self, term: CoordinatorTerm, group: str) -> None:
        """Note that a coordinator does not have a group now."""
        if self._views.get(term, {}).pop(group, None) is not None:
            self._dropped(term, group)

    def _limit_ms(self, term: CoordinatorTerm, member_id: str, member: SeenMember) -> int:
        """Return for how long a member may be silent."""
        is_waiting = member.is_new and (term, member_id) not in self._beating
        return _NEW_MEMBER_MS if is_waiting else member.session_timeout_ms

    def left(self, term: CoordinatorTerm, member_id: str) -> None:
        """Note that a request removes a member."""
        self._left.add((term, member_id))

    def generation_began(
        self, term: CoordinatorTerm, group: str, answer: Any, instance_id: str | None
    ) -> None:
        """Check the answer to a JoinGroup that gives a member a generation."""
        generation, newest = answer.generation_id, self.generations.get((term, group), 0)
        if generation < newest:
            self.violate(f"a join of group {group} gets generation {generation} after {newest}")
        key = (term, group, generation)
        joined = self.joined.get(key)
        if joined is None and (generation > newest or term in self.unanswered):
            joined = JoinedGeneration(self._world.clock.now_ms, answer.leader, {})
            self.joined[key] = joined
        self.generations[term, group] = max(generation, newest)
        if joined is None:
            return  # a static member that returns to the generation of an earlier coordinator
        if answer.members and answer.member_id == answer.leader and not joined.members:
            joined.members.update(
                (each.member_id, (each.group_instance_id, each.metadata)) for each in answer.members
            )
        if joined.members and answer.leader == joined.leader:
            mine = joined.members.get(answer.member_id)
            if mine is not None and mine[0] != instance_id:
                self.violate(f"member {answer.member_id} has instance {mine[0]}, not {instance_id}")
        instances = [each for each, _ in joined.members.values() if each is not None]
        if len(instances) != len(set(instances)):
            self.violate(f"KIP-345: generation {generation} has an instance twice: {instances}")

    def settled(self, broker: CoordinatorBroker) -> None:
        """Check a coordinator between two turns."""
        term = self.term_of(broker)
        if term is None or not broker.is_active:
            return
        now = {name: seen_group(group) for name, group in broker.shard.groups.items()}
        before = self._views.get(term, {})
        self._views[term] = now
        for name in before.keys() - now.keys():
            self._dropped(term, name)
        for name, seen in now.items():
            former = before.get(name)
            is_unknown = broker.troubles > 0 or term in self.unanswered
            self._follow(term, name, former, seen, is_unknown)
            if former is not None:
                for member_id, member in former.members.items():
                    left = seen.members.get(member_id)
                    if left is not None and (member.joins, member.syncs) > (left.joins, left.syncs):
                        self.heard(term, name, member_id)
                for member_id in former.members.keys() - seen.members.keys():
                    self._gone(term, name, member_id, former, seen)
            for member_id, member in seen.members.items():
                self._stays(term, name, member_id, member)
        self._compare(broker, self.logged(broker))

    def _dropped(self, term: CoordinatorTerm, name: str) -> None:
        """Forget a group that is deleted; another group of its name begins at generation 0."""
        self._heard.pop((term, name), None)
        self._preparing.pop((term, name), None)
        newest = self.generations.pop((term, name), 0)
        for generation in range(newest + 1):
            self.joined.pop((term, name, generation), None)

    def _follow(
        self,
        term: CoordinatorTerm,
        name: str,
        former: SeenGroup | None,
        seen: SeenGroup,
        is_unknown: bool,
    ) -> None:
        now_ms = self._world.clock.now_ms
        newest = self.generations.get((term, name), 0)
        if seen.generation == newest + 1 and is_unknown:
            # No answer has shown this generation: the group became empty and the log refused its
            # record, or no member got an answer.
            newest = self.generations[term, name] = seen.generation
            for member_id in seen.members:
                self.heard(term, name, member_id)
        if seen.generation != newest:
            self.violate(f"group {name} has generation {seen.generation}, its members {newest}")
        if seen.state == PREPARING:
            self._preparing.setdefault((term, name), now_ms)
        instances = [each.instance_id for each in seen.members.values() if each.instance_id]
        if len(instances) != len(set(instances)):
            self.violate(f"KIP-345: group {name} has an instance twice: {instances}")
        if former is None or seen.generation > former.generation:
            joined = self.joined.get((term, name, seen.generation))
            heard = self._heard.setdefault((term, name), {})
            if joined is not None:
                for member_id in seen.members:
                    heard[member_id] = max(joined.began_ms, heard.get(member_id, 0))
        self._forget_preparing(term, name, seen)

    def _forget_preparing(self, term: CoordinatorTerm, name: str, seen: SeenGroup) -> None:
        if seen.state not in (PREPARING, COMPLETING):
            self._preparing.pop((term, name), None)

    def _gone(
        self,
        term: CoordinatorTerm,
        name: str,
        member_id: str,
        former: SeenGroup,
        seen: SeenGroup,
    ) -> None:
        """Check that a member that is no longer in its group has left it for a reason."""
        if (term, member_id) in self._left:
            return
        member, now_ms = former.members[member_id], self._world.clock.now_ms
        holders = [each.instance_id for each in seen.members.values()]
        if member.instance_id is not None and member.instance_id in holders:
            return
        heard = self._heard.get((term, name), {}).get(member_id, 0)
        limit_ms = self._limit_ms(term, member_id, member)
        if now_ms - heard >= limit_ms:
            return
        least_ms = min(each.rebalance_timeout_ms for each in former.members.values())
        since_ms = self._preparing.get((term, name), now_ms)
        joined = self.joined.get((term, name, former.generation))
        began_ms = now_ms if joined is None else joined.began_ms
        is_over = max(now_ms - since_ms, now_ms - began_ms) >= least_ms
        if not is_over:
            self.violate(
                f"member {member_id} is removed from group {name} without a reason: it was heard"
                f" {now_ms - heard} ms ago"
            )

    def _stays(self, term: CoordinatorTerm, name: str, member_id: str, member: SeenMember) -> None:
        """Check that the session of a member has not timed out."""
        if (member.joins or member.syncs) and not member.is_new:
            return
        now_ms = self._world.clock.now_ms
        heard = self._heard.setdefault((term, name), {}).get(member_id)
        if heard is None:
            if not member.is_new and member.instance_id is None:
                self.violate(f"member {member_id} of group {name} has not joined")
            self.heard(term, name, member_id)
            return
        limit_ms = self._limit_ms(term, member_id, member)
        if now_ms - heard > limit_ms + _LATE_MS:
            self.violate(
                f"member {member_id} stays in group {name}, though it was heard {now_ms - heard}"
                f" ms ago"
            )
