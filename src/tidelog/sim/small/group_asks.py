"""Requests of scripted group members in the small world of a coordinator, and their answers.

A `GroupAsk` is one request with what is known when it is sent, and its answer when it comes. Each
request passes through the API handler of brokers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from tidelog.broker.apis import (
    delete_groups,
    heartbeat,
    join_group,
    leave_group,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
)
from tidelog.core.errors import ErrorCode
from tidelog.wire import registry
from tidelog.wire.data.consumer_protocol import SUBSCRIPTION, ConsumerProtocolSubscription
from tidelog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol

#: By API key: the module that handles a request.
HANDLERS: Final[dict[int, Any]] = {
    registry.JOIN_GROUP: join_group,
    registry.SYNC_GROUP: sync_group,
    registry.HEARTBEAT: heartbeat,
    registry.LEAVE_GROUP: leave_group,
    registry.OFFSET_COMMIT: offset_commit,
    registry.OFFSET_FETCH: offset_fetch,
    registry.OFFSET_DELETE: offset_delete,
    registry.DELETE_GROUPS: delete_groups,
}
#: The group that clients join. SIMPLE_GROUP only has offsets, which are committed without members.
GROUP: Final = "g"
SIMPLE_GROUP: Final = "s"

#: Errors after which a client joins once more; after the last two, without its member id.
_REJOIN: Final = (
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_INSTANCE_ID,
)
_FORGOTTEN: Final = _REJOIN[2:]

_TOPICS: Final = (("t",), ("t", "u"), ("u",))
_PROTOCOLS: Final = (("range",), ("range", "sticky"), ("sticky", "range"))
_SUBSCRIPTIONS: Final = tuple(
    SUBSCRIPTION.encode(ConsumerProtocolSubscription(topics), 0) for topics in _TOPICS
)
SUBSCRIBED: Final = dict(zip(_SUBSCRIPTIONS, _TOPICS, strict=True))


class CoordinatorTerm(NamedTuple):
    """One leadership of the partition by one process of a broker."""

    broker_id: int
    life: int
    leader_epoch: int
    #: Number of this leadership among the leaderships of the process.
    number: int


class GroupAsk:
    """A request about one group, from the time at which it is sent."""

    __slots__ = (
        "answers", "client", "during_replacement", "error", "expected", "group", "key",
        "message", "number", "pending", "sent_ms", "term", "troubles", "unwritten", "version",
        "wall_ms", "written",
    )  # fmt: skip

    def __init__(
        self,
        number: int,
        key: int,
        version: int,
        group: str,
        message: Any,
        client: ScriptedMember | None,
        term: CoordinatorTerm | None,
        troubles: int,
        sent_ms: int,
        wall_ms: int,
    ) -> None:
        self.number = number
        self.key = key
        self.version = version
        self.group = group
        self.message = message
        self.client = client
        #: The coordinator that got the request; None if the broker is not the coordinator.
        self.term = term
        self.troubles = troubles
        self.sent_ms = sent_ms
        self.wall_ms = wall_ms
        self.expected: ErrorCode | None = None
        #: Whether the record of a static member's new id was being written.
        self.during_replacement = False
        self.pending: Any = None
        self.answers = 0
        self.error: ErrorCode | None = None
        #: Offsets that the coordinator has not appended yet, by topic and partition. `written` has
        #: the log offsets of their records.
        self.unwritten: dict[tuple[str, int], Any] = {}
        self.written: list[int] = []

    @property
    def is_open(self) -> bool:
        """Whether the coordinator owes an answer."""
        return not self.answers and self.pending is not None

    def __str__(self) -> str:
        return f"request {self.number} ({type(self.message).__name__} of group {self.group})"


class ScriptedMember:
    """A consumer that remembers every member id and generation that it was ever given."""

    def __init__(self, settings: Sequence[str | int]) -> None:
        instance_id, version, session_ms, rebalance_ms, protocols, topics = settings
        self.instance_id = str(instance_id) or None
        self.version = int(version)
        self.session_timeout_ms = int(session_ms)
        self.rebalance_timeout_ms = int(rebalance_ms)
        self.protocols = int(protocols)
        self.topics = int(topics)
        self.member_ids: list[str] = []
        self.generation = -1
        #: The last answer to a JoinGroup, with which a leader assigns.
        self.joined: Any = None
        #: Whether the client has joined `generation`, and whether it has its assignment.
        self.has_joined = self.is_stable = False
        self.asks: list[GroupAsk] = []

    @property
    def member_id(self) -> str:
        """The newest member id, "" without one."""
        return self.member_ids[-1] if self.member_ids else ""

    def joining(self, member_id: str) -> JoinGroupRequest:
        """Return a JoinGroup with this member id."""
        metadata = _SUBSCRIPTIONS[self.topics]
        return JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=self.session_timeout_ms,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            member_id=member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocols=[
                JoinGroupRequestProtocol(name, metadata) for name in _PROTOCOLS[self.protocols]
            ],
        )

    @property
    def is_waiting(self) -> bool:
        """Whether the client waits for an answer."""
        return any(ask.is_open for ask in self.asks[-3:])

    def answered(self, ask: GroupAsk, answer: Any) -> None:
        """Take an answer as Kafka's clients do."""
        error = ask.error
        if ask.key == registry.JOIN_GROUP:
            is_named = error in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED)
            if is_named and answer.member_id != self.member_id:
                self.member_ids.append(answer.member_id)
            if error is ErrorCode.NONE:
                self.joined, self.generation = answer, answer.generation_id
                self.has_joined, self.is_stable = True, False
                return
        elif ask.key == registry.SYNC_GROUP and error is ErrorCode.NONE:
            self.is_stable = True
        if error in _REJOIN:
            self.has_joined = self.is_stable = False
        if error in _FORGOTTEN and self.member_id:
            self.member_ids.append("")
