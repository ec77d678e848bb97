"""Followers without a registration, and followers that send no broker epoch: V63, V10, E3, A12.

A session may expire while its process lives on. What such a process fetched must not count for the
broker's next incarnation, whose log may be shorter.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest
from tests.support.broker.fakes import (
    CONNECTION,
    TOPIC_ID,
    FakeBroker,
    a_cluster,
    replicate,
    settle,
)
from tests.support.broker.fakes import state as command_state
from tests.support.controller.values import broker, brokers, epoch, state
from tests.support.replication import LAG_MS, a_leader, accept, fetch, proposed, send

from tidelog.broker.apis import fetch as fetch_api
from tidelog.broker.server.requests import Request
from tidelog.controller import incarnations
from tidelog.controller.partitions import isr as judging
from tidelog.controller.partitions.isr import Proposal
from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.types import NO_BROKER_EPOCH, PartitionState
from tidelog.replication import direct_isr
from tidelog.replication.effects import Effects, SendAlterPartition
from tidelog.replication.isr import IsrChange
from tidelog.replication.leader import LeaderReplica
from tidelog.wire.codec import RequestHeader
from tidelog.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ReplicaState,
)
from tidelog.wire.registry import FETCH

REPLICAS = (1, 2, 3)


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(coroutine)


def asks_for_a_change(effects: Effects) -> bool:
    return any(isinstance(one, SendAlterPartition) for one in effects)


def only(*alive: int) -> Callable[[int], bool]:
    return lambda broker_id: broker_id in alive


def a_lonely_leader() -> LeaderReplica:
    """Broker 1 is alone in the ISR; its log ends at 100, and 2 has no registration."""
    return a_leader(
        isr=(1,), log_end_offset=100, high_watermark=60, min_insync_replicas=2, alive=only(3)
    )


def refusal(leader: LeaderReplica, offset: int, broker_epoch: int, now_ms: int) -> ErrorCode:
    with pytest.raises(KafkaError) as raised:
        fetch(leader, 2, offset, now_ms, broker_epoch)
    return raised.value.code


# The follower


@pytest.mark.rule("V63", "E3")
def test_a_follower_without_a_registration_fetches_under_its_last_epoch() -> None:
    async def story() -> None:
        cluster = a_cluster(2)
        await replicate(cluster, isr=(1, 2))
        follower = cluster[2]
        follower.services.identity.session_expired()
        assert follower.broker_epoch == NO_BROKER_EPOCH
        seen = len(follower.peers.requests(FETCH))
        cluster[1].produce()
        await settle()
        later = follower.peers.requests(FETCH)[seen:]
        assert later and {one.replica_state.replica_epoch for one in later} == {102}
        follower.services.identity.registered(202)
        cluster[1].produce()
        await settle()
        assert follower.peers.requests(FETCH)[-1].replica_state.replica_epoch == 202

    run(story())


# The leader


@pytest.mark.rule("V63", "V10")
def test_a_leader_that_knows_a_followers_epoch_counts_no_fetch_without_one() -> None:
    leader = a_lonely_leader()
    fetch(leader, 2, 70, now_ms=0)
    known = leader.key()
    assert refusal(leader, 100, NO_BROKER_EPOCH, LAG_MS) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert leader.key() == known


@pytest.mark.rule("V63")
def test_a_follower_that_restarted_at_a_level_without_epochs_counts_again_after_a_while() -> None:
    leader = a_leader(isr=(1,), log_end_offset=100, high_watermark=60)
    leader.change_refused(send(leader, fetch(leader, 2, 70)), ErrorCode.INELIGIBLE_REPLICA, 0)
    change = proposed(fetch(leader, 2, 100, LAG_MS + 1, NO_BROKER_EPOCH))
    assert change.isr_epochs == (101, NO_BROKER_EPOCH)


@pytest.mark.rule("V63", "V10", "E3")
def test_a_follower_without_an_epoch_joins_by_its_fetch_and_by_nothing_else() -> None:
    leader = a_lonely_leader()
    assert not asks_for_a_change(fetch(leader, 2, 100, 0, NO_BROKER_EPOCH))
    # Its process ends; the next one registers, and has less.
    assert not asks_for_a_change(leader.eligibility_changed(only(2, 3), 1))
    assert not asks_for_a_change(leader.examine(2))
    assert not asks_for_a_change(leader.commanded((1,), REPLICAS, 11, only(2, 3), 3))
    assert not asks_for_a_change(fetch(leader, 2, 40, 4, NO_BROKER_EPOCH))
    assert proposed(fetch(leader, 2, 60, 5, NO_BROKER_EPOCH)).isr == (1, 2)


@pytest.mark.rule("V63")
def test_a_follower_with_an_epoch_joins_when_it_is_registered_again_without_another_fetch() -> None:
    leader = a_lonely_leader()
    assert not asks_for_a_change(fetch(leader, 2, 100, 0, broker_epoch=102))
    assert proposed(leader.eligibility_changed(only(2, 3), 1)).isr_epochs == (101, 102)


@pytest.mark.rule("V63", "E3")
def test_an_epoch_counts_only_with_the_offset_at_which_the_follower_may_join() -> None:
    # A new leader's high watermark may lag behind what is committed.
    leader = a_leader(
        isr=(1, 3), log_end_offset=10, high_watermark=4, epoch_start_offset=10, alive=only(3)
    )
    fetch(leader, 2, 9, broker_epoch=102)
    assert leader.followers[2].counted_broker_epoch == NO_BROKER_EPOCH
    fetch(leader, 2, 10, broker_epoch=202)
    assert leader.followers[2].counted_broker_epoch == 202


def asks(
    leader: FakeBroker, session_id: int, session_epoch: int, *named: FetchPartition
) -> FetchResponse:
    """The response to broker 2, which sends no broker epoch."""
    message = FetchRequest(
        replica_state=ReplicaState(2, NO_BROKER_EPOCH),
        session_id=session_id,
        session_epoch=session_epoch,
        topics=[FetchTopic("", TOPIC_ID, list(named))] if named else [],
    )
    now_ms = leader.clock.monotonic_ms()
    request = Request(RequestHeader(FETCH, 17, 0, None), message, CONNECTION, now_ms)
    response = fetch_api.handle(leader, request)  # type: ignore[arg-type]  # a fake stands in
    assert isinstance(response, FetchResponse)
    return response


@pytest.mark.rule("V63")
def test_each_fetch_without_a_broker_epoch_is_about_every_partition_of_its_session() -> None:
    # Such a follower joins by its fetches alone, and no incremental fetch names an idle partition.
    async def story() -> None:
        leader = a_cluster()[1]
        await leader.command(command_state(isr=(1,), replicas=(1, 2), is_new=True))
        named = FetchPartition(0, -1, 0, -1, 0, 1_000)
        session = asks(leader, 0, 0, named).session_id
        role = leader.partition().leadership
        assert role is not None
        before_ms = role.followers[2].last_fetch_ms
        await leader.clock.advance(1_000)
        asks(leader, session, 1)
        assert role.followers[2].last_fetch_ms == before_ms + 1_000

    run(story())


# The two histories that lost acknowledged records


def outcome_in_direct_mode(change: IsrChange, node: PartitionState) -> direct_isr.Verdict:
    registered = {1: epoch(1), 2: epoch(2, life=2)}
    return direct_isr.judge(change, node, 1, REPLICAS, 2, registered)


@pytest.mark.rule("V10", "E3", "A12")
def test_in_direct_mode_a_follower_that_lost_its_log_unregistered_is_not_taken_back() -> None:
    leader = a_lonely_leader()
    node = state((1,), elr={2: epoch(2)}, mzxid=150)
    # Registered as 102 it caught up, lost its session, and went on until its power failed.
    fetch(leader, 2, 100, 0, broker_epoch=epoch(2))
    change = send(leader, leader.eligibility_changed(only(2, 3), 1))
    assert outcome_in_direct_mode(change, node).error == ErrorCode.OPERATION_NOT_ATTEMPTED
    returned = brokers(broker(2, life=2))
    assert incarnations.proven_members(node, returned) == {}


@pytest.mark.rule("V10", "E3", "V63")
def test_a_state_written_after_a_return_does_not_vouch_for_fetches_from_before() -> None:
    leader = a_leader(log_end_offset=100, min_insync_replicas=2, isr=(1, 3), alive=only(3))
    fetch(leader, 3, 90)
    assert not asks_for_a_change(fetch(leader, 2, 100, 0, NO_BROKER_EPOCH))
    # Broker 2 returns with less, and the leader has not heard of it when 3 leaves the ISR.
    shrink = send(leader, leader.examine(LAG_MS + 1))
    now = brokers(1, broker(2, life=2), 3)
    wanted = Proposal(1, 5, 10, shrink.isr, shrink.isr_epochs, 0)
    written = judging.judge(wanted, state((1, 3), mzxid=150), REPLICAS, now, 7, 3, 2).state
    assert written is not None and written.isr == (1,)
    written = replace(written, mzxid=now[2].broker_epoch + 1)
    assert not asks_for_a_change(accept(leader, shrink, LAG_MS + 2))
    assert not asks_for_a_change(leader.eligibility_changed(only(2, 3), LAG_MS + 3))
    # Nothing but a fetch after that state was known would pass the controller.
    wanted = Proposal(1, 5, 11, (1, 2), (epoch(1), NO_BROKER_EPOCH), 0)
    verdict = judging.judge(wanted, written, REPLICAS, now, 7, 3, 2)
    assert verdict.error == ErrorCode.NONE
