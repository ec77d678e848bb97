"""Rules of following, between brokers: V32, V36, V60 to V63, V66, V67, A2, A5, A9, A10.

Real fetchers, fetch sessions, leaders and ISR changes over logs of `tests.support.broker.fakes`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any

import pytest
from tests.support.broker.fakes import (
    CONNECTION,
    TOPIC_ID,
    FakeBroker,
    a_cluster,
    replicate,
    settle,
    state,
)

from tidelog.broker.apis import fetch, list_offsets
from tidelog.broker.server.requests import Pending, Request
from tidelog.core.completion import Completion
from tidelog.core.errors import ConnectionLost, ErrorCode, KafkaError
from tidelog.replication.leader import LeaderReplica
from tidelog.wire.codec import RequestHeader
from tidelog.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    ResponsePartitionData,
    ResponseTopicData,
)
from tidelog.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ReplicaState,
)
from tidelog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tidelog.wire.registry import ALTER_PARTITION, FETCH, LIST_OFFSETS


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(coroutine)


def role_of(broker: FakeBroker) -> LeaderReplica:
    role = broker.partition().leadership
    assert role is not None
    return role


# V32: truncation by leader epoch


@pytest.mark.rule("V32")
def test_a_follower_cuts_what_its_leader_does_not_have_and_no_more() -> None:
    async def story() -> None:
        cluster = a_cluster()
        await replicate(cluster)
        cluster[1].log().fill(0, 0, 0)
        cluster[2].log().fill(0, 0, 0, 0, 0)
        cluster[3].log().fill(0, 0)
        await replicate(cluster, leader_epoch=1, partition_epoch=1, is_new=False)
        assert cluster[2].log().calls == [("truncate_to", 3)]
        assert cluster[3].log().calls == []
        assert cluster[2].log().records == cluster[3].log().records == b"\0\0\0"

    run(story())


@pytest.mark.rule("V32")
def test_committed_records_above_the_followers_own_high_watermark_survive_its_restart() -> None:
    # The follower knows a high watermark of 0; the records are committed all the same. If it cut
    # them and then led, they would be lost.
    async def story() -> None:
        cluster = a_cluster()
        await replicate(cluster)
        cluster[1].log().fill(0, 0, 0)
        cluster[2].log().fill(0, 0, 0)
        await replicate(cluster, leader_epoch=1, partition_epoch=1, is_new=False)
        assert cluster[2].log().calls == []
        cluster[2].peers.cut = [1]
        await cluster[2].command(state(2, leader_epoch=2, partition_epoch=2, isr=(2, 3)))
        assert cluster[2].log().log_end_offset == 3

    run(story())


@pytest.mark.rule("V32")
def test_histories_are_compared_again_until_they_agree() -> None:
    # Kafka's KIP-279: a fast series of leaders leaves epochs that only one of the two has.
    async def story() -> None:
        cluster = a_cluster(2)
        await replicate(cluster, isr=(1, 2))
        cluster[1].log().fill(0, 0, 2, 2, 4)
        cluster[2].log().fill(0, 0, 1, 1, 3, 3)
        await replicate(cluster, leader_epoch=5, partition_epoch=1, isr=(1, 2), is_new=False)
        assert cluster[2].log().records == cluster[1].log().records
        cuts = [offset for name, offset in cluster[2].log().calls if name == "truncate_to"]
        assert cuts == [4, 2]

    run(story())


@pytest.mark.rule("V32")
def test_an_epoch_without_records_does_not_keep_a_follower_from_agreeing() -> None:
    async def story() -> None:
        cluster = a_cluster(2)
        await replicate(cluster, isr=(1, 2))
        cluster[1].log().fill(0, 0)
        cluster[2].log().fill(0, 0)
        cluster[2].log().assign_epoch(3, 2)
        await replicate(cluster, leader_epoch=4, partition_epoch=1, isr=(1, 2), is_new=False)
        cluster[1].produce(1)
        await settle()
        assert list(cluster[2].log().records) == [0, 0, 4]

    run(story())


# V36: a new leader's window


def ask(broker: FakeBroker, timestamp: int, version: int = 7, replica_id: int = -1) -> Any:
    message = ListOffsetsRequest(
        replica_id=replica_id,
        topics=[ListOffsetsTopic("t", [ListOffsetsPartition(0, -1, timestamp)])],
    )
    request = Request(RequestHeader(LIST_OFFSETS, version, 0, None), message, CONNECTION, 0)
    return list_offsets.handle(broker, request)  # type: ignore[arg-type]  # a fake stands in


async def outcome(answer: Any) -> Any:
    if isinstance(answer, Pending):
        got: list[Any] = []
        answer.deliver_to(got.append)
        await settle()
        (answer,) = got
    return answer.topics[0].partitions[0]


@pytest.mark.rule("V36")
def test_latest_has_no_answer_before_the_high_watermark_reaches_the_epoch() -> None:
    async def story() -> None:
        cluster = a_cluster()
        leader = cluster[1]
        await replicate({1: leader}, isr=(1, 2))
        leader.log().fill(0, 0, 0)
        await leader.command(state(leader_epoch=1, partition_epoch=1, isr=(1, 2)))
        assert (await outcome(ask(leader, -1))).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
        assert (await outcome(ask(leader, 1))).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
        assert (await outcome(ask(leader, -1, 5))).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
        assert (await outcome(ask(leader, -1, 4))).error_code == ErrorCode.LEADER_NOT_AVAILABLE
        assert (await outcome(ask(leader, -2))).offset == 0
        assert (await outcome(ask(leader, -1, 7, replica_id=2))).offset == 3
        await cluster[2].command(state(leader_epoch=1, partition_epoch=1, isr=(1, 2), is_new=True))
        await settle()
        assert (await outcome(ask(leader, -1))).offset == 3
        assert (await outcome(ask(leader, 1))).offset == 1

    run(story())


@pytest.mark.rule("V36")
def test_a_search_by_time_is_judged_by_the_high_watermark_up_to_which_it_looked() -> None:
    # A consumer goes on at the end if the response says that no record is as new.
    async def story() -> None:
        cluster = a_cluster()
        leader = cluster[1]
        await replicate({1: leader}, isr=(1, 2))
        leader.log().fill(0, 0, 0)
        await leader.command(state(leader_epoch=1, partition_epoch=1, isr=(1, 2)))
        search: Completion[Any] = Completion()
        leader.log().offset_for_timestamp = lambda *_: search  # type: ignore[method-assign]  # replaced by the test
        asked = ask(leader, 1)
        await settle()
        await cluster[2].command(state(leader_epoch=1, partition_epoch=1, isr=(1, 2), is_new=True))
        await settle()
        assert leader.partition().high_watermark == 3
        search.resolve(None)
        assert (await outcome(asked)).error_code == ErrorCode.OFFSET_NOT_AVAILABLE

    run(story())


def consume(broker: FakeBroker, offset: int) -> Any:
    message = FetchRequest(
        min_bytes=1,
        session_epoch=-1,
        topics=[FetchTopic("t", b"", [FetchPartition(0, -1, offset, -1, -1, 1_000)])],
    )
    request = Request(RequestHeader(FETCH, 12, 0, None), message, CONNECTION, 0)
    return fetch.handle(broker, request).responses[0].partitions[0]  # type: ignore[arg-type, union-attr]  # a fake stands in


@pytest.mark.rule("V36")
def test_a_consumer_between_high_watermark_and_end_gets_nothing_and_above_it_an_error() -> None:
    async def story() -> None:
        leader = a_cluster()[1]
        await replicate({1: leader}, isr=(1, 2))
        leader.log().fill(0, 0, 0)
        await leader.command(state(leader_epoch=1, partition_epoch=1, isr=(1, 2)))
        assert leader.partition().high_watermark == 0
        for offset in (0, 1, 3):
            answer = consume(leader, offset)
            assert (answer.error_code, bytes(answer.records or b"")) == (0, b"")
        assert consume(leader, 4).error_code == ErrorCode.OFFSET_OUT_OF_RANGE

    run(story())


@pytest.mark.rule("V23", "G4")
def test_a_session_that_names_the_topic_by_its_old_id_reads_nothing_of_the_new_one() -> None:
    async def story() -> None:
        leader = a_cluster()[1]
        await leader.command(state(isr=(1,), is_new=True))
        leader.produce(2)

        def fetched(session_id: int, session_epoch: int, *topics: FetchTopic) -> Any:
            message = FetchRequest(
                min_bytes=1,
                session_id=session_id,
                session_epoch=session_epoch,
                topics=list(topics),
            )
            request = Request(RequestHeader(FETCH, 17, 0, None), message, CONNECTION, 0)
            return fetch.handle(leader, request)  # type: ignore[arg-type]  # a fake stands in

        wanted = FetchTopic("", TOPIC_ID, [FetchPartition(0, -1, 0, -1, -1, 1_000)])
        first = fetched(0, 0, wanted)
        assert len(first.responses[0].partitions[0].records) == 2
        leader.replicas.forget(leader.partition())
        leader.directory.logs.clear()
        await leader.command(state(isr=(1,), is_new=True), topic_id=b"O" * 16)
        leader.produce(3)
        second = fetched(first.session_id, 1, wanted)
        [answer] = second.responses[0].partitions
        assert answer.error_code == ErrorCode.INCONSISTENT_TOPIC_ID
        assert not answer.records

    run(story())


@pytest.mark.rule("V36")
def test_meanings_of_timestamps_come_with_their_versions() -> None:
    async def story() -> None:
        cluster = a_cluster()
        await replicate(cluster)
        for timestamp, version in ((-3, 6), (-4, 7), (-5, 8), (-6, 9)):
            answer = await outcome(ask(cluster[1], timestamp, version))
            assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert (await outcome(ask(cluster[1], -4, 8))).offset == 0
        assert (await outcome(ask(cluster[1], -5, 9))).offset == -1

    run(story())


# V60, V61: offsets between brokers


@pytest.mark.rule("V60")
def test_a_followers_next_fetch_moves_the_leaders_high_watermark() -> None:
    async def story() -> None:
        cluster = a_cluster()
        await replicate(cluster)
        cluster[3].log().is_slow = True
        cluster[1].produce(4)
        await settle()
        assert cluster[1].partition().high_watermark == 0
        cluster[3].log().finish()
        await settle()
        assert cluster[1].partition().high_watermark == 4

    run(story())


@pytest.mark.rule("V61")
def test_a_moved_high_watermark_reaches_followers_with_the_next_answer() -> None:
    async def story() -> None:
        cluster = a_cluster()
        await replicate(cluster)
        cluster[1].produce(4)
        await settle()
        # Both have it; the mark moved after their last answer, and does not end a held fetch.
        assert cluster[1].partition().high_watermark == 4
        assert cluster[2].partition().high_watermark < 4
        await cluster[1].clock.advance(cluster[1].config.replica_fetch_wait_max_ms + 20)
        assert cluster[2].partition().high_watermark == 4
        assert cluster[3].partition().high_watermark == 4

    run(story())


@pytest.mark.rule("V61")
def test_a_fetch_that_another_one_ends_takes_no_news_with_it() -> None:
    async def story() -> None:
        cluster = a_cluster(2)
        await replicate(cluster, isr=(1, 2))
        cluster[1].produce(4)
        await settle()
        assert cluster[2].partition().high_watermark < 4
        # The mark is news for the held fetch; a new partition's fetch ends that one.
        late = state(partition=1, isr=(1, 2), replicas=(1, 2), is_new=True)
        for broker in cluster.values():
            await broker.command(late)
        await cluster[1].clock.advance(cluster[1].config.replica_fetch_wait_max_ms + 20)
        assert cluster[2].partition().high_watermark == 4

    run(story())


# V62, V63 with the controller's answers


def controller(
    broker: FakeBroker, error: int = 0, top_level: int = 0
) -> list[AlterPartitionRequest]:
    """Answer the broker's AlterPartition requests: made as asked, or refused."""
    requests: list[AlterPartitionRequest] = []

    def answer(message: AlterPartitionRequest, on_answer: Any) -> None:
        requests.append(message)
        on_answer(made(message, error, top_level), None)

    broker.peers.intercepted[ALTER_PARTITION] = answer
    broker.see(1, 2, 3, controller_id=9)
    return requests


def made(
    message: AlterPartitionRequest, error: int = 0, top_level: int = 0
) -> AlterPartitionResponse:
    return AlterPartitionResponse(
        error_code=top_level,
        topics=[
            ResponseTopicData(
                topic.topic_id,
                partitions=[
                    ResponsePartitionData(
                        partition_index=asked.partition_index,
                        error_code=error,
                        leader_id=message.broker_id,
                        leader_epoch=asked.leader_epoch,
                        isr=[member.broker_id for member in asked.new_isr_with_epochs],
                        partition_epoch=asked.partition_epoch + 1,
                    )
                    for asked in topic.partitions
                ],
            )
            for topic in message.topics
        ],
    )


def fetched(
    broker: FakeBroker,
    offset: int,
    last_fetched_epoch: int,
    *,
    session: tuple[int, int] = (0, -1),
    log_start_offset: int = 0,
    replica_id: int = 2,
) -> Any:
    """What broker 2, or another, is answered as a follower."""
    asked = FetchPartition(0, -1, offset, last_fetched_epoch, log_start_offset, 1_000)
    message = FetchRequest(
        replica_state=ReplicaState(replica_id, replica_id),
        session_id=session[0],
        session_epoch=session[1],
        topics=[FetchTopic("", TOPIC_ID, [asked])] if session[1] <= 0 else [],
    )
    request = Request(RequestHeader(FETCH, 17, 0, None), message, CONNECTION, 0)
    return fetch.handle(broker, request)  # type: ignore[arg-type]  # a fake stands in


@pytest.mark.rule("V60", "V32")
def test_an_offset_of_another_history_proves_nothing() -> None:
    async def story() -> None:
        leader = a_cluster()[1]
        await replicate({1: leader}, isr=(1, 2))
        leader.log().fill(0, 0, 0)
        await leader.command(state(leader_epoch=1, partition_epoch=1, isr=(1, 2)))
        leader.produce(2)
        [answer] = fetched(leader, 5, 0).responses[0].partitions
        assert (answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset) == (0, 3)
        assert role_of(leader).followers[2].log_end_offset == -1
        assert leader.partition().high_watermark == 0
        fetched(leader, 5, 1)
        assert leader.partition().high_watermark == 5

    run(story())


@pytest.mark.rule("V61")
def test_a_moved_log_start_is_part_of_the_next_incremental_answer() -> None:
    async def story() -> None:
        leader = a_cluster()[1]
        await replicate({1: leader}, isr=(1, 2))
        leader.produce(4)
        session_id = fetched(leader, 4, 0, session=(0, 0)).session_id
        # The response to the fetch that moved the high watermark had the new one already.
        assert fetched(leader, 4, 0, session=(session_id, 1)).responses == []
        leader.log().advance_log_start(3)
        leader.partition().log_start_moved()
        [topic] = fetched(leader, 4, 0, session=(session_id, 2)).responses
        assert [one.log_start_offset for one in topic.partitions] == [3]
        assert fetched(leader, 4, 0, session=(session_id, 3)).responses == []

    run(story())


@pytest.mark.rule("V67")
def test_log_starts_travel_both_ways() -> None:
    async def story() -> None:
        cluster = a_cluster(2)
        await replicate(cluster, isr=(1, 2))
        cluster[1].produce(4)
        await settle()
        await cluster[1].clock.advance(cluster[1].config.replica_fetch_wait_max_ms + 20)
        assert cluster[2].partition().high_watermark == 4
        cluster[1].log().advance_log_start(2)
        cluster[1].partition().log_start_moved()
        await cluster[1].clock.advance(cluster[1].config.replica_fetch_wait_max_ms + 20)
        assert cluster[2].log().log_start_offset == 2
        cluster[1].produce(1)
        await settle()
        assert role_of(cluster[1]).followers[2].log_start_offset == 2

    run(story())


@pytest.mark.rule("V62")
def test_silent_followers_leave_within_one_and_a_half_lag_times() -> None:
    async def story() -> None:
        cluster = a_cluster()
        leader = cluster[1]
        await leader.open_replicas()
        await replicate(cluster)
        controller(leader)
        for follower in (cluster[2], cluster[3]):
            await follower.stop(leader_epoch=0, delete=False)
        leader.produce(1)
        await settle()
        lag_ms = leader.config.replica_lag_time_max_ms
        await leader.clock.advance(lag_ms - 1)
        assert role_of(leader).isr.committed == (1, 2, 3)
        await leader.clock.advance(lag_ms // 2 + 2)
        assert role_of(leader).isr.committed == (1,)
        assert leader.partition().high_watermark == 1
        await leader.tasks.close()

    run(story())


@pytest.mark.rule("V63")
def test_a_follower_that_re_registers_is_known_by_its_new_epoch_without_new_records() -> None:
    # Its session with the leader goes on, and no partition in it has news: were its new broker
    # epoch not taken for all of them, its joining would be refused until records come.
    async def story() -> None:
        cluster = a_cluster()
        clock = cluster[1].clock
        await replicate(cluster)
        await clock.advance(1_000)
        assert role_of(cluster[1]).followers[2].broker_epoch == 102
        sessions = len(cluster[1].fetch_sessions)
        cluster[2].broker_epoch = 202
        await clock.advance(1_000)
        assert role_of(cluster[1]).followers[2].broker_epoch == 202
        assert role_of(cluster[1]).followers[3].broker_epoch == 103
        assert len(cluster[1].fetch_sessions) == sessions

    run(story())


@pytest.mark.rule("V63")
def test_the_request_names_the_broker_epochs_of_the_fetches() -> None:
    async def story() -> None:
        cluster = a_cluster()
        requests = controller(cluster[1])
        await replicate(cluster, isr=(1, 2))
        members = requests[-1].topics[0].partitions[0].new_isr_with_epochs
        assert {one.broker_id: one.broker_epoch for one in members} == {1: 101, 2: 102, 3: 103}
        assert role_of(cluster[1]).isr.committed == (1, 2, 3)

    run(story())


# A2, A5, A9, A10: ISR changes on their way


@pytest.mark.rule("A2")
@pytest.mark.parametrize(
    "top_level",
    [ErrorCode.NOT_CONTROLLER, ErrorCode.STALE_BROKER_EPOCH, ErrorCode.UNKNOWN_SERVER_ERROR],
)
def test_a_request_that_was_not_considered_is_repeated_with_pauses(top_level: int) -> None:
    async def story() -> None:
        cluster = a_cluster()
        leader = cluster[1]
        requests = controller(leader, top_level=top_level)
        await replicate(cluster, isr=(1, 2))
        assert len(requests) == 1
        await leader.clock.advance(49)
        assert len(requests) == 1
        await leader.clock.advance(21)
        assert len(requests) == 2
        await leader.clock.advance(80)
        assert len(requests) == 2
        controller(leader)
        await leader.clock.advance(60)
        assert role_of(leader).isr.committed == (1, 2, 3)

    run(story())


@pytest.mark.rule("A2")
def test_a_lost_answer_is_asked_for_again_and_the_change_counts_meanwhile() -> None:
    async def story() -> None:
        cluster = a_cluster()
        leader = cluster[1]
        lost: list[Any] = []
        leader.peers.intercepted[ALTER_PARTITION] = lambda message, on_answer: lost.append(
            (message, on_answer)
        )
        leader.see(1, 2, 3, controller_id=9)
        await replicate(cluster, isr=(1, 2))
        lost[0][1](None, ConnectionLost("cut"))
        assert role_of(leader).followers[3].in_maximal_isr
        await leader.clock.advance(70)
        assert lost[1][0].topics == lost[0][0].topics
        lost[1][1](made(lost[1][0]), None)
        assert role_of(leader).isr.committed == (1, 2, 3)

    run(story())


@pytest.mark.rule("A2")
def test_a_new_controller_is_asked_without_waiting_for_the_old_one() -> None:
    async def story() -> None:
        cluster = a_cluster()
        leader = cluster[1]
        asked: list[Any] = []
        leader.peers.intercepted[ALTER_PARTITION] = lambda message, on_answer: asked.append(
            (message, on_answer)
        )
        leader.see(1, 2, 3, controller_id=9)
        await replicate(cluster, isr=(1, 2))
        leader.view.controller_epoch = 2
        leader.see(1, 2, 3, controller_id=8)
        await leader.clock.advance(70)
        assert len(asked) == 2
        asked[0][1](made(asked[0][0], ErrorCode.INELIGIBLE_REPLICA), None)
        assert role_of(leader).followers[3].in_maximal_isr
        asked[1][1](made(asked[1][0]), None)
        assert role_of(leader).isr.committed == (1, 2, 3)

    run(story())


@pytest.mark.rule("A5")
def test_produces_are_acknowledged_while_a_change_is_in_flight() -> None:
    async def story() -> None:
        cluster = a_cluster()
        leader = cluster[1]
        leader.peers.intercepted[ALTER_PARTITION] = lambda message, on_answer: None
        leader.see(1, 2, 3, controller_id=9)
        await replicate(cluster, isr=(1, 2))
        assert role_of(leader).isr.in_flight
        with contextlib.suppress(KafkaError):  # what is refused is missing below
            leader.produce(3)
        await settle()
        assert leader.partition().high_watermark == 3

    run(story())


@pytest.mark.rule("A10")
def test_changes_queued_while_a_request_is_in_flight_go_as_one() -> None:
    async def story() -> None:
        cluster = a_cluster()
        leader = cluster[1]
        asked: list[Any] = []
        leader.peers.intercepted[ALTER_PARTITION] = lambda message, on_answer: asked.append(
            (message, on_answer)
        )
        leader.see(1, 2, 3, controller_id=9)
        states = [state(partition=number, isr=(1, 2), is_new=True) for number in range(4)]
        for broker in (leader, cluster[3]):
            await broker.command(states[0])
        await settle()
        for broker in (leader, cluster[3]):
            await broker.command(*states[1:])
        await settle()
        assert len(asked) == 1
        asked[0][1](made(asked[0][0]), None)
        await settle()
        assert [len(message.topics[0].partitions) for message, _ in asked] == [1, 3]

    run(story())


@pytest.mark.rule("A9")
def test_a_command_voids_a_queued_change_which_is_proposed_again_on_the_new_epoch() -> None:
    async def story() -> None:
        cluster = a_cluster()
        leader = cluster[1]
        asked: list[Any] = []
        leader.peers.intercepted[ALTER_PARTITION] = lambda message, on_answer: asked.append(
            (message, on_answer)
        )
        leader.see(1, 2, 3, controller_id=9)
        await replicate(cluster, isr=(1, 2))
        await leader.command(state(partition_epoch=7, isr=(1, 2)))
        asked[0][1](made(asked[0][0], ErrorCode.INVALID_UPDATE_VERSION), None)
        await settle()
        assert [one.topics[0].partitions[0].partition_epoch for one, _ in asked] == [0, 7]

    run(story())


# V67


@pytest.mark.rule("V67")
def test_a_follower_below_the_leaders_log_drops_everything_and_starts_there() -> None:
    async def story() -> None:
        cluster = a_cluster(2)
        await replicate(cluster, isr=(1, 2))
        cluster[1].log().fill(*[0] * 9)
        cluster[1].log().advance_log_start(6)
        cluster[2].log().fill(0, 0)
        await replicate(cluster, leader_epoch=1, partition_epoch=1, isr=(1, 2), is_new=False)
        assert ("truncate_fully_and_start_at", 6) in cluster[2].log().calls
        assert cluster[2].log().log_start_offset == 6
        assert cluster[2].log().log_end_offset == 9

    run(story())


@pytest.mark.rule("V67", "V32")
@pytest.mark.parametrize("records", [0, 2])
def test_a_follower_that_holds_nothing_begins_whatever_epoch_it_led(records: int) -> None:
    """A Kafka broker that led without a record keeps the epoch, and would ask with it for ever."""

    async def story() -> None:
        leader = a_cluster()[1]
        await replicate({1: leader}, isr=(1, 2))
        await leader.command(state(leader_epoch=3, partition_epoch=1, isr=(1, 2)))
        if records:
            leader.produce(records)
        [answer] = fetched(leader, 0, 2).responses[0].partitions
        assert (answer.error_code, answer.diverging_epoch.epoch) == (0, -1)
        assert role_of(leader).followers[2].log_end_offset == 0
        [answer] = fetched(leader, 1, 2).responses[0].partitions
        assert (answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset) == (2, 0)

    run(story())


@pytest.mark.rule("V67", "V32")
def test_a_follower_that_holds_records_below_the_leaders_log_start_is_compared() -> None:
    async def story() -> None:
        leader = a_cluster()[1]
        await replicate({1: leader}, isr=(1, 2))
        await leader.command(state(leader_epoch=3, partition_epoch=1, isr=(1, 2)))
        leader.produce(4)
        leader.log().advance_log_start(4)
        [answer] = fetched(leader, 4, 2).responses[0].partitions
        assert answer.error_code == 0
        assert (answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset) == (2, 0)
        [answer] = fetched(leader, 4, 2, log_start_offset=4).responses[0].partitions
        assert (answer.error_code, answer.diverging_epoch.epoch) == (0, -1)

    run(story())


@pytest.mark.rule("V67")
def test_the_followers_log_start_follows_the_leaders() -> None:
    async def story() -> None:
        cluster = a_cluster(2)
        await replicate(cluster, isr=(1, 2))
        cluster[1].produce(6)
        await settle()
        cluster[1].log().advance_log_start(4)
        cluster[1].partition().watchers.isr_or_log_start_changed()
        await cluster[1].clock.advance(1_200)
        assert cluster[2].log().log_start_offset == 4
        role = cluster[2].partition().followership
        assert role is not None
        assert role.log_start_offset == 4

    run(story())
