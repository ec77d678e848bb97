"""Bad input to the coordinator of groups: a documented error, a bounded cost, nobody disturbed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.cluster.raw_connections import (
    RawConnection,
    ask,
    await_true,
    begin_peak,
    peak_bytes,
    request,
    sized,
)
from tests.support.requests.of_groups import GROUP, join_group, offset_commit

from tidelog.core.errors import ErrorCode
from tidelog.core.limits import MIB
from tidelog.core.types import TopicPartition
from tidelog.local import LocalCluster
from tidelog.runtime.blocking import BlockingClient
from tidelog.wire.codec import decode_response
from tidelog.wire.messages.describe_groups import DescribeGroupsRequest
from tidelog.wire.messages.find_coordinator import FindCoordinatorRequest
from tidelog.wire.messages.heartbeat import HeartbeatRequest
from tidelog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from tidelog.wire.messages.list_groups import ListGroupsRequest
from tidelog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tidelog.wire.primitives import encode_uvarint
from tidelog.wire.registry import (
    DESCRIBE_GROUPS,
    FIND_COORDINATOR,
    HEARTBEAT,
    JOIN_GROUP,
    LIST_GROUPS,
    OFFSET_COMMIT,
    SYNC_GROUP,
)

TP = TopicPartition("read", 0)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """One broker, which coordinates every group."""
    config = {"group.min.session.timeout.ms": "500", "offsets.topic.num.partitions": "3"}
    made = LocalCluster(str(tmp_path_factory.mktemp("groups") / "c"), 1, config=config)
    try:
        made.up()
        with BlockingClient(made.bootstrap) as client:
            client.create_topic(TP.topic, 1, 1)
            client.await_topic(TP.topic, min_isr=1)
        await_true(lambda: coordinates(made), "the coordinator is there")
        yield made
    finally:
        made.down(timeout_s=5.0)


def coordinates(cluster: LocalCluster) -> bool:
    found = ask(cluster, FIND_COORDINATOR, 3, FindCoordinatorRequest(GROUP))
    ready = ask(cluster, HEARTBEAT, 4, HeartbeatRequest(GROUP, 1, "m"))
    is_loaded: bool = ask(cluster, LIST_GROUPS, 4, ListGroupsRequest()).error_code == ErrorCode.NONE
    return (
        found.error_code == ErrorCode.NONE
        and ready.error_code == ErrorCode.UNKNOWN_MEMBER_ID
        and is_loaded
    )


def assert_works(cluster: LocalCluster) -> None:
    """Somebody else commits."""
    answer = ask(cluster, OFFSET_COMMIT, 8, offset_commit(8, TP.topic))
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE


@pytest.mark.parametrize("name", ["", "\0", "\n\t\x7f", "a/b", "../..", "\U0001f600" * 10])
def test_odd_names_of_groups_are_names_or_refused(cluster: LocalCluster, name: str) -> None:
    wanted = JoinGroupRequest(
        name, 6_000, 6_000, protocol_type="t", protocols=[JoinGroupRequestProtocol("p", b"")]
    )
    answer = ask(cluster, JOIN_GROUP, 7, wanted)
    expected = ErrorCode.MEMBER_ID_REQUIRED if name else ErrorCode.INVALID_GROUP_ID
    assert answer.error_code == expected
    assert_works(cluster)


def test_ten_megabytes_behind_a_request_are_passed_over_as_kafka_does(
    cluster: LocalCluster,
) -> None:
    with RawConnection(cluster) as connection:
        body = request(HEARTBEAT, 4, HeartbeatRequest("", 1, "m"))[4:]
        connection.send(sized(body + b"\0" * (10 * MIB)))
        answer = decode_response(HEARTBEAT, 4, connection.answer())[1]
        assert answer.error_code == ErrorCode.INVALID_GROUP_ID
    assert_works(cluster)


def test_a_name_of_ten_megabytes_closes_its_connection(cluster: LocalCluster) -> None:
    with RawConnection(cluster) as connection:
        head, tail = request(HEARTBEAT, 4, HeartbeatRequest("@", 1, "m"))[4:].split(b"\x02@")
        name = encode_uvarint(10 * MIB + 1) + b"g" * (10 * MIB)
        connection.send(sized(head + name + tail))
        assert connection.until_closed() == b""
    assert_works(cluster)


def test_a_name_that_is_too_long_is_told(cluster: LocalCluster) -> None:
    long = HeartbeatRequest("g" * 30_000, 1, "m")
    assert ask(cluster, HEARTBEAT, 4, long).error_code == ErrorCode.INVALID_GROUP_ID


def test_ten_thousand_groups_cost_what_they_hold(cluster: LocalCluster) -> None:
    begin_peak(cluster)
    before = peak_bytes(cluster)
    count = 10_000
    with RawConnection(cluster) as connection:
        for start in range(0, count, 100):
            for number in range(start, start + 100):
                wanted = join_group(7, TP.topic)
                wanted.group_id = f"many-{number}"
                connection.send(request(JOIN_GROUP, 7, wanted, number))
            for _ in range(100):
                connection.answer()
    assert peak_bytes(cluster) - before < 200 * MIB
    listed = ask(cluster, LIST_GROUPS, 4, ListGroupsRequest()).groups
    assert sum(group.group_id.startswith("many-") for group in listed) == count
    assert_works(cluster)


def test_a_heartbeat_storm_is_answered(cluster: LocalCluster) -> None:
    beat = request(HEARTBEAT, 4, HeartbeatRequest(GROUP, 1, "m"))
    with RawConnection(cluster) as connection:
        for _ in range(20):
            connection.send(beat * 500)
            for _ in range(500):
                connection.answer()
    assert_works(cluster)


def test_a_member_that_never_syncs_and_assignments_for_strangers(cluster: LocalCluster) -> None:
    wanted = join_group(3, TP.topic)
    wanted.group_id = "never-syncs"
    wanted.session_timeout_ms = wanted.rebalance_timeout_ms = 500
    joined = ask(cluster, JOIN_GROUP, 3, wanted)
    assert joined.error_code == ErrorCode.NONE
    strangers = [SyncGroupRequestAssignment(f"stranger-{number}", b"x") for number in range(100)]
    synced = ask(
        cluster,
        SYNC_GROUP,
        3,
        SyncGroupRequest(
            "never-syncs", joined.generation_id, joined.member_id, None, None, None, strangers
        ),
    )
    assert (synced.error_code, synced.assignment) == (ErrorCode.NONE, b"")

    again = ask(cluster, JOIN_GROUP, 3, wanted)
    assert again.error_code == ErrorCode.NONE

    def is_empty() -> bool:
        (group,) = ask(cluster, DESCRIBE_GROUPS, 4, DescribeGroupsRequest(["never-syncs"])).groups
        return group.group_state == "Empty" and not group.members

    await_true(is_empty, "who does not sync is dropped")
    assert_works(cluster)
