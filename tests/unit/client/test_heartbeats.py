"""When heartbeats between polls are sent, what is heard of them, and when a member gives up."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.client.fake_coordinator import FakeCoordinator
from tests.support.client.fake_logs import FakeLogs

from tidelog.client.bootstrap import parse_bootstrap
from tidelog.client.coordinators import Coordinators
from tidelog.client.groups import GroupAdmin
from tidelog.client.heartbeats import Heartbeats
from tidelog.client.membership import GroupMember, MemberOptions, Membership
from tidelog.client.routing import ClusterRouter
from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.runtime.blocking import BlockingClient
from tidelog.wire.registry import FIND_COORDINATOR, HEARTBEAT, LEAVE_GROUP

INTERVAL_MS, MAX_POLL_MS = 3_000, 20_000
FIRST = Membership(1, "m")
REBALANCE, FENCED = ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.FENCED_INSTANCE_ID
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID


class Busy:
    """A member of generation 1 that has polled at time 0, and the coordinator of its group."""

    def __init__(self, logs: FakeLogs, client: BlockingClient, instance_id: str | None) -> None:
        self.now_ms = 0
        self.coordinator = FakeCoordinator(logs)
        self._client = client
        router = ClusterRouter(parse_bootstrap(logs.bootstrap), 5_000, lambda: self.now_ms)
        options = MemberOptions(
            "g",
            ("t",),
            instance_id=instance_id,
            heartbeat_interval_ms=INTERVAL_MS,
            max_poll_interval_ms=MAX_POLL_MS,
        )
        coordinators = Coordinators(router)
        self.member = GroupMember(router, coordinators, GroupAdmin(router, coordinators), options)
        self.member.membership, self.member.generation, self.member.member_id = FIRST, *FIRST
        self.member.must_join = False
        self.heartbeats = Heartbeats(self.member, router, lambda: self.now_ms)
        self.heartbeats.poll_begins()
        self.heartbeats.sent()
        self.heartbeats.poll_ended()

    def beat(self) -> int:
        return self._client.run(self.heartbeats.beat())

    def asked(self, api_key: int) -> int:
        return len(self.coordinator.asked(api_key))


@pytest.fixture
def logs() -> Iterator[FakeLogs]:
    made = FakeLogs()
    yield made
    made.close()


@pytest.fixture
def client(logs: FakeLogs) -> Iterator[BlockingClient]:
    with BlockingClient(logs.bootstrap) as blocking:
        yield blocking


@pytest.fixture
def busy(logs: FakeLogs, client: BlockingClient) -> Busy:
    return Busy(logs, client, None)


@pytest.fixture
def static(logs: FakeLogs, client: BlockingClient) -> Busy:
    return Busy(logs, client, "me")


def test_one_is_sent_when_it_is_due_and_the_next_an_interval_later(busy: Busy) -> None:
    assert (busy.beat(), busy.asked(HEARTBEAT)) == (INTERVAL_MS, 0)
    busy.now_ms = INTERVAL_MS
    assert (busy.beat(), busy.asked(HEARTBEAT)) == (INTERVAL_MS, 1)
    (sent,) = busy.coordinator.asked(HEARTBEAT)
    assert (sent.group_id, sent.generation_id, sent.member_id) == ("g", *FIRST)
    assert busy.heartbeats.poll_begins() is None


def test_one_that_a_poll_has_sent_counts(busy: Busy) -> None:
    busy.now_ms = INTERVAL_MS
    assert busy.heartbeats.is_due
    busy.heartbeats.sent()
    assert not busy.heartbeats.is_due
    assert (busy.beat(), busy.asked(HEARTBEAT)) == (INTERVAL_MS, 0)


def test_none_is_sent_while_the_member_joins_or_is_none(busy: Busy) -> None:
    busy.member.membership, busy.now_ms = None, 2 * MAX_POLL_MS
    assert busy.beat() == INTERVAL_MS
    assert busy.asked(HEARTBEAT) == busy.asked(LEAVE_GROUP) == busy.asked(FIND_COORDINATOR) == 0


def test_a_rebalance_waits_for_the_poll_and_heartbeats_go_on(busy: Busy) -> None:
    busy.coordinator.errors = {HEARTBEAT: [REBALANCE]}
    for busy.now_ms in (INTERVAL_MS, 2 * INTERVAL_MS):
        assert busy.beat() == INTERVAL_MS
    assert busy.asked(HEARTBEAT) == 2
    assert not busy.member.must_join
    heard = busy.heartbeats.poll_begins()
    assert heard == (FIRST, REBALANCE)
    busy.member.hear(*heard)
    assert busy.member.must_join and busy.member.membership == FIRST
    assert busy.heartbeats.poll_begins() is None, "it is told once"


@pytest.mark.parametrize("error", [UNKNOWN, ErrorCode.ILLEGAL_GENERATION, FENCED])
def test_a_membership_that_is_over_is_shown_no_more(busy: Busy, error: ErrorCode) -> None:
    busy.coordinator.errors = {HEARTBEAT: [error]}
    for busy.now_ms in (INTERVAL_MS, 2 * INTERVAL_MS, 2 * MAX_POLL_MS):
        busy.beat()
    assert (busy.asked(HEARTBEAT), busy.asked(LEAVE_GROUP)) == (1, 0)
    assert busy.heartbeats.poll_begins() == (FIRST, error)


def test_news_of_a_membership_are_no_news_of_the_next(busy: Busy) -> None:
    busy.member.membership = Membership(2, "m")
    busy.member.hear(FIRST, UNKNOWN)
    assert busy.member.membership == (2, "m")
    with pytest.raises(KafkaError, match="FENCED_INSTANCE_ID: group 'g'"):
        busy.member.hear(Membership(2, "m"), FENCED)


def test_whoever_does_not_poll_in_time_leaves(busy: Busy) -> None:
    busy.now_ms = MAX_POLL_MS - 1
    assert busy.beat() == 100, "it looks again soon"
    assert (busy.asked(HEARTBEAT), busy.asked(LEAVE_GROUP)) == (1, 0)
    busy.now_ms = MAX_POLL_MS
    busy.beat()
    (left,) = busy.coordinator.asked(LEAVE_GROUP)
    assert [it.member_id for it in left.members] == ["m"]
    assert busy.heartbeats.poll_begins() == (FIRST, UNKNOWN)
    busy.now_ms += INTERVAL_MS
    busy.beat()
    assert (busy.asked(HEARTBEAT), busy.asked(LEAVE_GROUP)) == (1, 1)


def test_a_poll_may_take_as_long_as_it_wants(busy: Busy) -> None:
    busy.heartbeats.poll_begins()
    busy.now_ms = 2 * MAX_POLL_MS
    busy.beat()
    assert (busy.asked(HEARTBEAT), busy.asked(LEAVE_GROUP)) == (1, 0)
    busy.heartbeats.poll_ended()
    busy.now_ms += MAX_POLL_MS - 1
    busy.beat()
    assert busy.asked(LEAVE_GROUP) == 0


def test_a_static_member_falls_silent_instead(static: Busy) -> None:
    static.now_ms = MAX_POLL_MS
    static.beat()
    static.beat()
    assert (static.asked(HEARTBEAT), static.asked(LEAVE_GROUP)) == (0, 0)
    assert static.heartbeats.poll_begins() == (FIRST, UNKNOWN)


def test_what_nobody_answers_is_tried_again(busy: Busy, logs: FakeLogs) -> None:
    refused = ErrorCode.GROUP_AUTHORIZATION_FAILED
    busy.coordinator.errors = {HEARTBEAT: [refused]}
    busy.now_ms = INTERVAL_MS
    assert busy.beat() == 100
    assert busy.beat() == INTERVAL_MS
    assert busy.asked(HEARTBEAT) == 2
    assert busy.heartbeats.poll_begins() is None
