"""Consumer groups in the small world of a coordinator: requests, answers, and checks of answers.

The coordinators under test are those of brokers (`GroupCoordinators`), reached through the API
handlers. Each answer is compared with the error that the request must get
(`group_expectations`) and with the committed records (`GroupReference`).
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from tidelog.broker.coordinators.group_coordinators import GroupCoordinators
from tidelog.broker.server.requests import Pending, Request
from tidelog.core.coordinator_shard import CoordinatorPhase
from tidelog.core.errors import ErrorCode
from tidelog.core.names import CONSUMER_OFFSETS
from tidelog.sim.small import group_expectations as expectations
from tidelog.sim.small import group_steps  # noqa: F401 - it registers the kinds of steps
from tidelog.sim.small.coordinated_partition import ListedBatch
from tidelog.sim.small.coordinator_process import CONNECTION
from tidelog.sim.small.coordinator_world import (
    APPEND_TIMEOUT_MS,
    CoordinatorBroker,
    CoordinatorWorld,
)
from tidelog.sim.small.group_asks import HANDLERS, CoordinatorTerm, GroupAsk, ScriptedMember
from tidelog.sim.small.group_expectations import SeenGroup, seen_group
from tidelog.sim.small.group_reference import GroupReference
from tidelog.wire.codec import RequestHeader
from tidelog.wire.registry import (
    DELETE_GROUPS,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    SYNC_GROUP,
)

if TYPE_CHECKING:
    from tidelog.broker.services import Services

_NONE: Final = ErrorCode.NONE
_LOADING: Final = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
#: Errors of an answer that comes because the records of the request are not in the log.
_OF_APPENDS: Final = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.REQUEST_TIMED_OUT,
)


class GroupTenant:
    """Groups, their clients and their reference in one history."""

    topic = CONSUMER_OFFSETS
    loaded_event = "groups_loaded"

    def __init__(self, world: CoordinatorWorld) -> None:
        self._world = world
        self.clients = [ScriptedMember(each) for each in world.settings.clients]
        self.reference = GroupReference(world)
        #: The last offset that a client committed; each commits another one.
        self.values = 0
        self._numbers = 0
        self._contexts: dict[int, Any] = {}

    # The tenant's part of `CoordinatorTenant`.

    def runtime(self, services: Services, broker: CoordinatorBroker) -> GroupCoordinators:
        """Return the coordinators of groups of a broker that starts."""
        groups = GroupCoordinators(services, lambda: None, self._request_failed)
        groups.start()
        self._contexts[broker.broker_id] = SimpleNamespace(groups=groups, services=services)
        return groups

    def _request_failed(self, request: Request[Any], error: Exception) -> Any:
        self._world.violate(f"{request.message}: {type(error).__name__}: {error}")
        return None

    def appended(self, broker: CoordinatorBroker, batch: ListedBatch) -> None:
        """Check that a request or an expiry is the reason of each record in a batch."""
        self.reference.appended(broker, batch)

    def committed(self, batch: ListedBatch) -> None:
        """Do nothing: the reference reads the committed batches when it needs them."""

    def loaded(self, broker: CoordinatorBroker) -> None:
        """Check a coordinator whose load has ended."""
        self.reference.loaded(broker)

    def ended(self, broker: CoordinatorBroker) -> None:
        """Check that a coordinator that ends answers all its requests; a dead one answers none."""
        for ask in self.reference.asks:
            if ask.term is None or ask.term[:2] != (broker.broker_id, broker.life):
                continue
            if not broker.is_up:
                ask.pending = None
            elif ask.is_open:
                self._world.violate(f"{ask} has no answer at the end of the leadership")

    def settled(self, broker: CoordinatorBroker) -> None:
        """Check a coordinator between two turns."""
        self.reference.settled(broker)

    def recovered(self) -> None:
        """Check the end: all requests are answered, members are gone, offsets have expired."""
        world = self._world
        leader = world.brokers[world.register.leader]
        for ask in self.reference.asks:
            if ask.is_open:
                world.violate(f"{ask} is never answered")
        if not leader.is_active:
            world.violate("the coordinator never ends its load")
            return
        state = self.reference.logged(leader)
        if state.offsets or state.groups:
            world.violate(f"{state.offsets} and {state.groups} never expire")
        if leader.shard.groups:
            seen = [seen_group(group) for group in leader.shard.groups.values()]
            world.violate(f"the groups {seen} never go")

    def status(self) -> dict[str, str]:
        """Return what each coordinator has, and the answers to requests, as text."""
        found = {}
        for broker in self._world.up():
            shard, replica = broker.shard, broker.replica
            text = f"log end {replica.log_end_offset}, high watermark {replica.high_watermark}"
            if shard is not None:
                text += f", {shard.phase.value} under epoch {shard.leader_epoch}"
                for name, group in shard.groups.items():
                    seen = seen_group(group)
                    text += f", {name}: {seen.state} {seen.generation} {list(seen.members)}"
            found[f"broker {broker.broker_id}"] = text
        for ask in self.reference.asks:
            error = "waits" if ask.error is None else f"gets {ask.error.name}"
            found[str(ask)] = error
        return found

    # Requests.

    def ask(
        self,
        client: ScriptedMember | None,
        broker_id: int,
        key: int,
        version: int,
        message: Any,
    ) -> None:
        """Send a request to a broker, and check its answer when it comes."""
        broker, clock = self._world.brokers[broker_id], self._world.clock
        group = message.groups_names[0] if key == DELETE_GROUPS else message.group_id
        self._numbers += 1
        term = self.reference.term_of(broker)
        ask = GroupAsk(
            self._numbers, key, version, group, message, client, term, broker.troubles,
            clock.now_ms, clock.wall_ms(),
        )  # fmt: skip
        seen = self._seen(broker, group)
        ask.during_replacement = seen is not None and seen.has_replacement
        if seen is None and term is not None:
            self.reference.absent(term, group)
        ask.expected = self._expected(broker, ask, seen)
        self._note(ask, seen)
        self.reference.asks.append(ask)
        if client is not None:
            client.asks.append(ask)
        header = RequestHeader(key, version, 0, "c")
        request = Request(header, message, CONNECTION, clock.now_ms)
        answer = HANDLERS[key].handle(self._contexts[broker_id], request)
        if isinstance(answer, Pending):
            ask.pending = answer
            answer.deliver_to(lambda late: self._answered(broker, ask, late))
        else:
            self._answered(broker, ask, answer)
        if ask.expected is not None and not ask.answers:
            self._world.violate(f"{ask} is not answered at once with {ask.expected.name}")

    def abandon(self, client: ScriptedMember) -> None:
        """Close a client's connection: its requests take effect, but get no answer."""
        for ask in client.asks:
            if ask.is_open:
                ask.pending.cancel()
                if ask.term is not None:
                    self.reference.unanswered.add(ask.term)
                ask.pending = None

    def _seen(self, broker: CoordinatorBroker, group: str) -> SeenGroup | None:
        shard = broker.shard
        held = None if shard is None else shard.groups.get(group)
        return None if held is None else seen_group(held)

    def _expected(
        self, broker: CoordinatorBroker, ask: GroupAsk, seen: SeenGroup | None
    ) -> ErrorCode | None:
        """Return the error that a request gets at once; None if its answer comes later."""
        key, message = ask.key, ask.message
        if not broker.coordinates:
            return ErrorCode.NOT_COORDINATOR
        if not broker.is_loaded or broker.shard.phase is CoordinatorPhase.LOADING:
            if key == HEARTBEAT:
                return _NONE
            return ErrorCode.REBALANCE_IN_PROGRESS if key == SYNC_GROUP else _LOADING
        if key == HEARTBEAT:
            return expectations.heartbeat_error(
                seen, message.member_id, message.group_instance_id, message.generation_id
            )
        if key == JOIN_GROUP:
            return expectations.join_refusal(seen, message, ask.version)
        if key == SYNC_GROUP:
            return expectations.sync_refusal(seen, message)
        if key == OFFSET_COMMIT:
            return expectations.commit_refusal(seen, message)
        if key == OFFSET_DELETE:
            (topic,) = message.topics
            partition = (topic.name, topic.partitions[0].partition_index)
            error, of_partition = expectations.offset_delete_error(seen, partition)
            return error or of_partition
        if key == DELETE_GROUPS:
            return expectations.delete_group_error(seen)
        dead = key == LEAVE_GROUP and seen is not None and seen.state == expectations.DEAD
        return ErrorCode.COORDINATOR_NOT_AVAILABLE if dead else _NONE

    def _note(self, ask: GroupAsk, seen: SeenGroup | None) -> None:
        """Note what a request that is accepted will change."""
        reference, message, term = self.reference, ask.message, ask.term
        if term is None or ask.expected in (_LOADING, ErrorCode.NOT_COORDINATOR):
            return
        if ask.key == OFFSET_COMMIT and ask.expected is None:
            ask.unwritten = {
                (topic.name, each.partition_index): each
                for topic in message.topics
                for each in topic.partitions
            }
            if seen is not None and message.member_id in seen.members:
                reference.beats(term, ask.group, message.member_id)
        elif ask.key == OFFSET_DELETE and ask.expected is None:
            (topic,) = message.topics
            ask.unwritten = {(topic.name, topic.partitions[0].partition_index): True}
        elif ask.key == HEARTBEAT and ask.expected in (_NONE, ErrorCode.REBALANCE_IN_PROGRESS):
            reference.beats(term, ask.group, message.member_id)
        elif ask.key == JOIN_GROUP and ask.expected is None:
            self._note_join(term, ask, seen)
        elif ask.key == LEAVE_GROUP and seen is not None:
            self._note_leave(term, ask, seen)

    def _note_join(self, term: CoordinatorTerm, ask: GroupAsk, seen: SeenGroup | None) -> None:
        member_id = ask.message.member_id
        if seen is None:
            return
        if member_id in seen.pending:
            self.reference.heard(term, ask.group, member_id)
        instance_id = ask.message.group_instance_id
        for each, member in seen.members.items():
            if instance_id is not None and not member_id and member.instance_id == instance_id:
                self.reference.left(term, each)

    def _note_leave(self, term: CoordinatorTerm, ask: GroupAsk, seen: SeenGroup) -> None:
        members = dict(seen.members)
        for identity in ask.message.members:
            for member_id, member in list(members.items()):
                is_named = member_id == identity.member_id or (
                    not identity.member_id and member.instance_id == identity.group_instance_id
                )
                if is_named and identity.group_instance_id in (None, member.instance_id):
                    self.reference.left(term, member_id)
                    del members[member_id]

    # Answers.

    def _answered(self, broker: CoordinatorBroker, ask: GroupAsk, answer: Any) -> None:
        ask.answers += 1
        if ask.answers > 1:
            self._world.violate(f"{ask} is answered twice")
        errors = _errors_of(ask.key, answer)
        ask.error = next((each for each in errors if each), _NONE)
        if ask.expected is not None:
            if ask.error is not ask.expected:
                self._world.violate(
                    f"{ask} gets {ask.error.name} instead of {ask.expected.name}: {ask.message}"
                )
        else:
            self._check_late(broker, ask)
            seen = self._seen(broker, ask.group)
            if ask.key == SYNC_GROUP and seen and ask.message.member_id in seen.members:
                self.reference.heard(ask.term, ask.group, ask.message.member_id)
        if ask.error is _NONE and ask.term is not None:
            self._check_content(broker, ask, answer)
        if ask.client is not None:
            ask.client.answered(ask, answer)

    def _check_late(self, broker: CoordinatorBroker, ask: GroupAsk) -> None:
        """Check the error of a request that was not refused at once."""
        error = ask.error
        assert error is not None, "an answer has an error code"
        if error is _NONE:
            return
        has_ended = self.reference.term_of(broker) != ask.term or not broker.is_active
        has_trouble = broker.troubles > ask.troubles
        is_late = self._world.clock.now_ms - ask.sent_ms >= APPEND_TIMEOUT_MS
        is_of_append = error in _OF_APPENDS and (has_trouble or has_ended or is_late)
        if error is ErrorCode.NOT_COORDINATOR:
            is_justified = has_ended or has_trouble
        elif error is ErrorCode.COORDINATOR_NOT_AVAILABLE and ask.during_replacement:
            is_justified = True
        elif ask.key in (JOIN_GROUP, SYNC_GROUP):
            is_justified = self._is_justified(ask, error) or is_of_append
        else:
            is_justified = is_of_append
        if not is_justified:
            self._world.violate(f"{ask} gets {error.name} without a reason: {ask.message}")

    def _is_justified(self, ask: GroupAsk, error: ErrorCode) -> bool:
        """Return whether a JoinGroup or SyncGroup that waited may get this error."""
        if error is ErrorCode.FENCED_INSTANCE_ID:
            return ask.message.group_instance_id is not None
        if ask.key == JOIN_GROUP and error is ErrorCode.REBALANCE_IN_PROGRESS:
            return any(
                other.number > ask.number and other.key == JOIN_GROUP
                for other in self.reference.asks
            ) or (self._world.clock.now_ms - ask.sent_ms >= APPEND_TIMEOUT_MS)
        return error in (
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.REBALANCE_IN_PROGRESS,
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        )

    def _check_content(self, broker: CoordinatorBroker, ask: GroupAsk, answer: Any) -> None:
        check = _CONTENTS.get(ask.key)
        if check is not None and (broker.is_loaded or ask.key != HEARTBEAT):
            check(self, broker, ask, answer)

    def check_join(self, broker: CoordinatorBroker, ask: GroupAsk, answer: Any) -> None:
        """Check the generation that a JoinGroup's answer names."""
        assert ask.term is not None, "a coordinator answers"
        self.reference.generation_began(ask.term, ask.group, answer, ask.message.group_instance_id)
        if ask.expected is None:
            self.reference.heard(ask.term, ask.group, answer.member_id)
        leads = answer.member_id == answer.leader
        if answer.members and not leads:
            self._world.violate(f"{ask} gets the members, but does not lead")

    def check_sync(self, broker: CoordinatorBroker, ask: GroupAsk, answer: Any) -> None:
        """Check that a member's assignment is the one in its generation's committed record."""
        message = ask.message
        self.reference.heard(ask.term, ask.group, message.member_id)
        logged = self.reference.logged(broker).groups.get(ask.group)
        members = {} if logged is None else {each.member_id: each for each in logged.members}
        mine = members.get(message.member_id)
        if logged is None or mine is None or logged.generation != message.generation_id:
            self._world.violate(f"{ask} gets an assignment that is not committed: {logged}")
        elif mine.assignment != answer.assignment:
            self._world.violate(
                f"{ask} gets assignment {answer.assignment!r}, committed is {mine.assignment!r}"
            )

    def check_commit(self, broker: CoordinatorBroker, ask: GroupAsk, answer: Any) -> None:
        """Check that all records of an acknowledged OffsetCommit are committed in the log."""
        committed = self._world.register.committed_end
        if ask.unwritten or any(offset >= committed for offset in ask.written):
            self._world.violate(f"G1: {ask} is acknowledged, but not committed")

    def check_fetch(self, broker: CoordinatorBroker, ask: GroupAsk, answer: Any) -> None:
        """Check that fetched offsets are the committed ones."""
        wanted = {
            key: (offset.offset, offset.metadata)
            for key, offset in self.reference.logged(broker).of_group(ask.group).items()
        }
        found = {
            (topic.name, each.partition_index): (each.committed_offset, each.metadata)
            for topic in answer.topics
            for each in topic.partitions
        }
        if ask.message.topics is not None:
            found = {key: value for key, value in found.items() if value[0] != -1}
        if found != wanted:
            self._world.violate(f"{ask} gets offsets {found}, committed are {wanted}")

    def check_leave(self, broker: CoordinatorBroker, ask: GroupAsk, answer: Any) -> None:
        """Check that the members named by a LeaveGroup are gone."""
        seen = self._seen(broker, ask.group)
        gone = {each.member_id for each in answer.members if not each.error_code}
        if seen is not None and gone & (seen.members.keys() | seen.pending):
            self._world.violate(f"{ask} leaves {gone} in the group")

    def check_deletion(self, broker: CoordinatorBroker, ask: GroupAsk, answer: Any) -> None:
        """Check that a deleted group has no committed records."""
        state = self.reference.logged(broker)
        if ask.group in state.groups:
            self._world.violate(f"{ask} is acknowledged, but the group is committed")


def _errors_of(key: int, answer: Any) -> list[ErrorCode]:
    """Return the error codes of an answer; the first that is not NONE counts."""
    if key == DELETE_GROUPS:
        return [ErrorCode(each.error_code) for each in answer.results]
    if key == OFFSET_COMMIT:
        return [ErrorCode(each.error_code) for topic in answer.topics for each in topic.partitions]
    if key == OFFSET_DELETE:
        parts = [each.error_code for topic in answer.topics for each in topic.partitions]
        return [ErrorCode(each) for each in (answer.error_code, *parts)]
    return [ErrorCode(answer.error_code)]


_Check = Callable[[GroupTenant, CoordinatorBroker, GroupAsk, Any], None]
_CONTENTS: Final[dict[int, _Check]] = {
    JOIN_GROUP: GroupTenant.check_join,
    SYNC_GROUP: GroupTenant.check_sync,
    OFFSET_COMMIT: GroupTenant.check_commit,
    OFFSET_FETCH: GroupTenant.check_fetch,
    LEAVE_GROUP: GroupTenant.check_leave,
    DELETE_GROUPS: GroupTenant.check_deletion,
}
