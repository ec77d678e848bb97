"""Rules of commands, carried out on a broker's replicas.

V30 (fencing), V31 and V33 (roles), V34 (stop and delete), V35, V44 and V45 (full commands and
strays), V23 and G4 (topic ids), V36 to V38 (what a leader answers).
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.broker.directory import FakeLog
from tests.support.broker.fakes import (
    T0,
    TOPIC_ID,
    a_cluster,
    errors,
    replicate,
    settle,
    state,
)

from tidelog.broker.apis import update_metadata
from tidelog.core.completion import Completion
from tidelog.core.errors import ErrorCode, KafkaError, StorageError
from tidelog.core.types import ZERO_TOPIC_ID, TopicPartition
from tidelog.replication import commands
from tidelog.replication.isr import IsrChange
from tidelog.replication.leader import LeaderReplica
from tidelog.wire.messages.update_metadata import UpdateMetadataRequest

OTHER_ID = b"O" * 16


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(coroutine)


# V30


@pytest.mark.rule("V30")
def test_a_stale_controller_or_registration_is_refused_whole() -> None:
    async def story() -> None:
        broker = a_cluster()[1]
        await broker.command(state(is_new=True), controller_epoch=5)
        stale = await broker.command(state(leader=2, leader_epoch=9), controller_epoch=4)
        assert stale.error_code == ErrorCode.STALE_CONTROLLER_EPOCH
        assert stale.topics == []
        stale = await broker.command(
            state(leader=2, leader_epoch=9), controller_epoch=5, broker_epoch=100
        )
        assert stale.error_code == ErrorCode.STALE_BROKER_EPOCH
        assert broker.partition().is_leader
        assert await broker.stop(controller_epoch=4) == ErrorCode.STALE_CONTROLLER_EPOCH

    run(story())


@pytest.mark.rule("V30")
def test_metadata_of_a_stale_controller_is_refused_and_changes_nothing() -> None:
    async def story() -> None:
        broker = a_cluster()[1]
        await broker.command(state(is_new=True), controller_epoch=5)
        before = (broker.view.controller_id, sorted(broker.view.brokers))
        for stale in (
            UpdateMetadataRequest(2, controller_epoch=4, broker_epoch=broker.broker_epoch),
            UpdateMetadataRequest(2, controller_epoch=5, broker_epoch=broker.broker_epoch - 1),
        ):
            request: Any = SimpleNamespace(message=stale, header=SimpleNamespace(correlation_id=1))
            answer = update_metadata.handle(broker, request)  # type: ignore[arg-type]  # a fake stands in
            assert answer.error_code in (
                ErrorCode.STALE_CONTROLLER_EPOCH,
                ErrorCode.STALE_BROKER_EPOCH,
            )
            assert (broker.view.controller_id, sorted(broker.view.brokers)) == before

    run(story())


@pytest.mark.rule("V30")
def test_without_a_registration_no_command_of_the_last_one_is_obeyed() -> None:
    async def story() -> None:
        broker = a_cluster()[1]
        await broker.command(state(is_new=True))
        last_epoch = broker.broker_epoch
        broker.broker_epoch = -1
        broker.replicas.stop_leading("expired")
        refused = await broker.command(state(leader_epoch=1), broker_epoch=last_epoch)
        assert refused.error_code == ErrorCode.STALE_BROKER_EPOCH
        assert not broker.partition().is_leader
        obeyed = await broker.command(state(leader_epoch=1), broker_epoch=last_epoch + 1)
        assert errors(obeyed) == [0]

    run(story())


@pytest.mark.rule("V30")
@pytest.mark.parametrize(
    ("leader_epoch", "partition_epoch", "is_obeyed"),
    [(5, 8, True), (5, 9, True), (6, 0, True), (5, 7, False), (4, 20, False)],
)
def test_a_partition_obeys_what_is_not_older_leader_epoch_first(
    leader_epoch: int, partition_epoch: int, is_obeyed: bool
) -> None:
    async def story() -> None:
        broker = a_cluster()[1]
        await broker.command(state(leader_epoch=5, partition_epoch=8, is_new=True))
        response = await broker.command(
            state(leader_epoch=leader_epoch, partition_epoch=partition_epoch)
        )
        assert errors(response) == [0 if is_obeyed else ErrorCode.STALE_CONTROLLER_EPOCH]

    run(story())


@pytest.mark.rule("V30")
def test_an_older_command_does_not_bring_back_an_isr_that_the_controller_has_answered_since() -> (
    None
):
    async def story() -> None:
        broker = a_cluster()[1]
        await broker.command(state(partition_epoch=3, isr=(1, 2), is_new=True))
        partition = broker.partition()
        leadership = partition.leadership
        assert leadership is not None
        change = leadership.isr
        partition.role.change_accepted(
            commands_change(leadership), (1, 2, 3), leader_epoch=0, partition_epoch=5
        )
        assert change != leadership.isr
        response = await broker.command(state(partition_epoch=4, isr=(1,)))
        assert errors(response) == [ErrorCode.STALE_CONTROLLER_EPOCH]
        assert leadership.isr.committed == (1, 2, 3)
        assert partition.leadership is leadership

    run(story())


def commands_change(role: LeaderReplica) -> IsrChange:
    return IsrChange((1, 2, 3), (-1, -1, -1), role.leader_epoch, role.isr.partition_epoch)


@pytest.mark.rule("V30")
def test_a_replica_that_lost_its_role_still_knows_the_partition_epoch_that_it_was_answered() -> (
    None
):
    async def story() -> None:
        broker = a_cluster()[1]
        await broker.command(state(partition_epoch=3, isr=(1, 2), is_new=True))
        partition = broker.partition()
        assert partition.leadership is not None
        partition.role.change_accepted(
            commands_change(partition.leadership), (1, 2, 3), leader_epoch=0, partition_epoch=5
        )
        broker.replicas.stop_leading("expired")
        response = await broker.command(state(partition_epoch=4, isr=(1, 2)))
        assert errors(response) == [ErrorCode.STALE_CONTROLLER_EPOCH]
        assert not partition.has_role

    run(story())


@pytest.mark.rule("V30")
def test_a_stop_is_fenced_by_leader_epoch_unless_the_topic_goes() -> None:
    async def story() -> None:
        broker = a_cluster()[1]
        await broker.command(state(leader_epoch=5, is_new=True))
        assert await broker.stop(leader_epoch=4) == ErrorCode.FENCED_LEADER_EPOCH
        assert broker.partition().is_leader
        assert await broker.stop(leader_epoch=-2) == 0
        assert broker.directory.deleted == [T0]

    run(story())


@pytest.mark.rule("V30")
def test_commands_for_different_partitions_are_independent() -> None:
    async def story() -> None:
        broker = a_cluster()[1]
        await broker.command(state(leader_epoch=5, is_new=True))
        response = await broker.command(
            state(leader_epoch=4), state(partition=1, leader_epoch=0, is_new=True)
        )
        assert errors(response) == [ErrorCode.STALE_CONTROLLER_EPOCH, 0]
        assert broker.partition(TopicPartition("t", 1)).is_leader
        response = await broker.command(
            state(2, partition=1, leader_epoch=1), state(leader_epoch=4)
        )
        assert errors(response) == [0, ErrorCode.STALE_CONTROLLER_EPOCH]
        assert not broker.partition(TopicPartition("t", 1)).is_leader
        assert broker.partition().is_leader

    run(story())


# V31, V33


@pytest.mark.rule("V31")
def test_an_append_that_came_while_a_command_waited_stands_before_the_new_epoch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story() -> None:
        broker = a_cluster()[1]
        await broker.command(state(is_new=True))
        create, created = broker.directory.create_many, Completion[Any]()
        logs: list[Any] = []

        def create_slowly(replicas: Any) -> Completion[Any]:
            create(replicas).then(lambda made: logs.extend(made.result()))
            return created

        monkeypatch.setattr(broker.directory, "create_many", create_slowly)
        later = state(leader_epoch=1, partition_epoch=1)
        commanding = asyncio.ensure_future(broker.command(later, state(partition=1, is_new=True)))
        await settle()
        log = broker.log()
        log.is_slow = True
        broker.produce()
        created.resolve(logs)
        await settle()
        assert not commanding.done()
        log.finish()
        assert errors(await commanding) == [0, 0]
        assert bytes(log.records) == bytes([0])
        assert log.epochs.entries() == [(0, 0), (1, 1)]

    run(story())


@pytest.mark.rule("V31")
def test_a_new_leader_has_stopped_fetching_and_knows_where_its_epoch_starts() -> None:
    async def story() -> None:
        cluster = a_cluster()
        await replicate(cluster)
        cluster[1].produce(4)
        await settle()
        assert cluster[2].log().log_end_offset == 4
        await cluster[2].command(state(2, leader_epoch=1, partition_epoch=1))
        cluster[1].produce(3)
        await settle()
        assert cluster[2].log().log_end_offset == 4
        role = cluster[2].partition().leadership
        assert role is not None
        assert role.epoch_start_offset == 4
        assert cluster[2].log().epochs.entries() == [(0, 0), (1, 4)]

    run(story())


@pytest.mark.rule("V31")
def test_a_new_leader_takes_isr_and_partition_epoch_from_the_command() -> None:
    async def story() -> None:
        broker = a_cluster()[1]
        await broker.command(state(partition_epoch=7, isr=(1, 3), is_new=True))
        role = broker.partition().leadership
        assert role is not None
        assert role.isr.committed == (1, 3)
        assert role.isr.partition_epoch == broker.partition().partition_epoch == 7

    run(story())


@pytest.mark.rule("V31")
def test_a_new_leadership_forgets_followers_and_gives_isr_members_a_grace_period() -> None:
    async def story() -> None:
        cluster = a_cluster()
        await replicate(cluster)
        cluster[1].produce(4)
        await settle()
        await cluster[1].command(state(1, leader_epoch=1, partition_epoch=1, isr=(1, 2)))
        role = cluster[1].partition().leadership
        assert role is not None
        assert role.followers[2].log_end_offset == -1
        assert role.followers[2].last_caught_up_ms == cluster[1].clock.monotonic_ms()
        assert role.followers[3].last_caught_up_ms < 0

    run(story())


@pytest.mark.rule("V31")
def test_a_repeated_command_of_the_same_epochs_resets_nothing() -> None:
    async def story() -> None:
        cluster = a_cluster()
        await replicate(cluster)
        cluster[1].produce(4)
        await settle()
        role = cluster[1].partition().leadership
        assert role is not None
        before = role.key()
        followed = cluster[2].partition().role
        await replicate(cluster, is_new=False)
        assert cluster[1].partition().leadership is role
        assert role.key() == before
        assert cluster[2].partition().role is followed

    run(story())


@pytest.mark.rule("V33")
def test_a_follower_begins_to_fetch_again_on_every_leader_epoch_also_of_the_same_leader() -> None:
    async def story() -> None:
        cluster = a_cluster()
        await replicate(cluster)
        cluster[1].produce(4)
        await settle()
        await replicate(cluster, leader_epoch=1, partition_epoch=1, is_new=False)
        role = cluster[2].partition().followership
        assert role is not None
        assert role.position == (1, 4, 0)
        cluster[1].produce(2)
        await settle()
        assert list(cluster[2].log().records) == [0, 0, 0, 0, 1, 1]

    run(story())


@pytest.mark.rule("V33")
def test_a_role_is_taken_only_when_nothing_is_under_way_on_the_log() -> None:
    async def story() -> None:
        cluster = a_cluster()
        await replicate(cluster)
        log = cluster[2].log()
        log.is_slow = True
        cluster[1].produce(3)
        await settle()
        command = asyncio.ensure_future(
            cluster[2].command(state(2, leader_epoch=1, partition_epoch=1))
        )
        await settle()
        assert not cluster[2].partition().has_role
        log.is_slow = False
        log.finish()
        await command
        role = cluster[2].partition().leadership
        assert role is not None
        assert (role.log_end_offset, role.epoch_start_offset) == (3, 3)

    run(story())


# V34


@pytest.mark.rule("V34")
def test_stop_replica_stops_and_deletes_only_on_request() -> None:
    async def story() -> None:
        cluster = a_cluster()
        await replicate(cluster)
        assert await cluster[2].stop(leader_epoch=0, delete=False) == 0
        cluster[1].produce(3)
        await settle()
        assert cluster[2].log().log_end_offset == 0
        assert cluster[2].directory.deleted == []
        assert await cluster[2].stop(leader_epoch=0, delete=True) == 0
        assert cluster[2].directory.deleted == [T0]
        assert cluster[2].replicas.get(T0) is None

    run(story())


@pytest.mark.rule("V34")
def test_high_watermarks_are_written_down_every_interval_and_at_the_end() -> None:
    async def story() -> None:
        cluster = a_cluster()
        broker = cluster[1]
        await broker.open_replicas()
        await replicate(cluster)
        broker.produce(3)
        await settle()
        interval_ms = broker.config.replica_high_watermark_checkpoint_interval_ms
        await broker.clock.advance(interval_ms)
        assert broker.directory.high_watermarks == {T0: 3}
        broker.produce(2)
        await settle()
        await broker.tasks.close()
        await broker.replicas.close()
        assert broker.directory.high_watermarks == {T0: 5}

    run(story())


@pytest.mark.rule("V34", "V44")
def test_a_replica_found_at_start_begins_with_the_high_watermark_written_down() -> None:
    async def story() -> None:
        broker = a_cluster()[1]
        broker.directory.logs[T0] = found = FakeLog(T0, TOPIC_ID)
        found.fill(0, 0, 0)
        broker.directory.high_watermarks = {T0: 2}
        await broker.open_replicas()
        assert broker.partition().high_watermark == 2
        await broker.command(state(leader_epoch=1, isr=(1, 2)))
        assert broker.partition().high_watermark == 2
        await broker.tasks.close()

    run(story())


# V35, V44, V45


@pytest.mark.rule("V44", "V45")
def test_a_starting_broker_holds_what_it_finds_without_a_role_until_the_full_command() -> None:
    async def story() -> None:
        broker = a_cluster()[1]
        kept, gone = T0, TopicPartition("gone", 0)
        for found, topic_id in ((kept, TOPIC_ID), (gone, OTHER_ID)):
            broker.directory.logs[found] = FakeLog(found, topic_id)
        await broker.open_replicas()
        assert [partition.has_role for partition in broker.replicas.all()] == [False, False]
        with pytest.raises(KafkaError) as raised:
            broker.partition().role.append(b"r", 1, 0)
        assert raised.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        response = await broker.command(state(leader_epoch=3), full=True)
        assert errors(response) == [0]
        assert broker.partition().is_leader
        assert broker.directory.set_aside_logs == [gone]
        assert broker.replicas.get(gone) is None
        await broker.tasks.close()

    run(story())


@pytest.mark.rule("V45", "D4")
def test_a_directory_that_fails_with_the_first_of_its_strays_ends_nothing_else() -> None:
    async def story() -> None:
        broker = a_cluster()[1]
        for topic in "uv":
            await broker.command(state(is_new=True), topic=topic, topic_id=topic.encode() * 16)

        def fail(topic_partition: TopicPartition, high_watermark: int = 0) -> Completion[None]:
            for partition in broker.replicas.all():
                broker.replicas.forget(partition)
            return Completion.failed(StorageError("/data", "rename", "/data", 5, 0))

        broker.directory.set_aside = fail  # type: ignore[method-assign]  # fails with its replicas
        await broker.command(full=True)
        assert broker.replicas.all() == [] and broker.failures == []

    run(story())


@pytest.mark.rule("V35")
def test_only_a_full_command_makes_strays_and_topics_to_keep_are_none() -> None:
    async def story() -> None:
        broker = a_cluster()[1]
        await broker.command(state(is_new=True))
        await broker.command(state(is_new=True), topic="u", topic_id=OTHER_ID)
        await broker.command(state(is_new=True), topic="v", topic_id=b"V" * 16)
        await broker.command(state())
        assert broker.directory.set_aside_logs == []
        await broker.command(state(), full=True, keep=("u",))
        assert broker.directory.set_aside_logs == [TopicPartition("v", 0)]
        assert broker.partition(TopicPartition("u", 0)).is_leader

    run(story())


@pytest.mark.rule("V35")
@pytest.mark.parametrize(("hosted", "is_kept"), [(100, True), (99, False)])
def test_strays_go_after_their_time_and_many_at_once_only_on_a_word(
    hosted: int, is_kept: bool
) -> None:
    async def story() -> None:
        broker = a_cluster(log_stray_delete_delay_ms="3600000")[1]
        await broker.open_replicas()
        states = [state(partition=number, is_new=True) for number in range(hosted)]
        await broker.command(*states)
        await broker.command(full=True)
        assert len(broker.directory.strays) == hosted
        await broker.clock.advance(3_500_000)
        assert len(broker.directory.strays) == hosted
        await broker.clock.advance(200_000)
        assert len(broker.directory.strays) == (hosted if is_kept else 0)
        await broker.tasks.close()

    run(story())


@pytest.mark.rule("V35")
def test_a_tenth_of_the_replicas_may_go_stray_without_a_word() -> None:
    assert not commands.deletion_waits(100, 1_000)
    assert commands.deletion_waits(101, 1_000)


# V23, G4


@pytest.mark.rule("G4", "V23")
def test_a_command_for_another_topic_of_the_name_is_refused() -> None:
    async def story() -> None:
        broker = a_cluster()[1]
        await broker.command(state(is_new=True))
        response = await broker.command(state(2, leader_epoch=7), topic_id=OTHER_ID)
        assert errors(response) == [ErrorCode.INCONSISTENT_TOPIC_ID]
        assert broker.partition().is_leader
        assert broker.partition().leader_epoch == 0

    run(story())


@pytest.mark.rule("V23")
def test_a_full_command_sets_the_replica_of_the_old_topic_aside_and_the_new_one_starts_empty() -> (
    None
):
    async def story() -> None:
        broker = a_cluster()[2]
        broker.directory.logs[T0] = old = FakeLog(T0, OTHER_ID)
        old.fill(0, 0, 0)
        await broker.open_replicas()
        response = await broker.command(state(1, isr=(1, 3)), full=True)
        assert errors(response) == [0]
        assert broker.directory.set_aside_logs == [T0]
        assert broker.log() is not old
        assert broker.log().log_end_offset == 0
        await broker.tasks.close()

    run(story())


@pytest.mark.rule("V23")
def test_the_first_command_of_a_new_topic_sets_the_replica_of_the_old_one_aside() -> None:
    async def story() -> None:
        broker = a_cluster()[2]
        broker.directory.logs[T0] = old = FakeLog(T0, OTHER_ID)
        old.fill(0, 0, 0)
        await broker.open_replicas()
        response = await broker.command(state(1, isr=(1, 2, 3), is_new=True))
        assert errors(response) == [0]
        assert broker.directory.set_aside_logs == [T0]
        assert broker.log().log_end_offset == 0
        await broker.tasks.close()

    run(story())


@pytest.mark.rule("V23")
def test_a_stale_replica_neither_joins_nor_is_served_under_the_new_topics_id() -> None:
    async def story() -> None:
        cluster = a_cluster()
        await cluster[1].command(state(isr=(1,), is_new=True), topic_id=OTHER_ID)
        cluster[1].produce(5)
        await cluster[2].command(state(isr=(1,), is_new=True), topic_id=TOPIC_ID)
        await settle()
        assert cluster[2].log().log_end_offset == 0
        role = cluster[1].partition().leadership
        assert role is not None
        assert role.followers[2].log_end_offset == -1
        refusals = cluster[2].tracer.named("fetch_backoff")
        assert refusals[0]["error"] in (
            ErrorCode.UNKNOWN_TOPIC_ID,
            ErrorCode.INCONSISTENT_TOPIC_ID,
        )

    run(story())


@pytest.mark.rule("V30", "V35")
@pytest.mark.parametrize("own_id", [TOPIC_ID, ZERO_TOPIC_ID])
@pytest.mark.parametrize("is_named", [True, False])
def test_a_replica_whose_state_the_controller_could_not_read_is_kept_as_it_is(
    own_id: bytes, is_named: bool
) -> None:
    unread = state(-1, leader_epoch=-1, partition_epoch=-1, replicas=(2, 3), isr=(2, 3))

    async def story() -> None:
        broker = a_cluster()[1]
        broker.directory.logs[T0] = found = FakeLog(T0, own_id)
        found.fill(0, 0, 0)
        await broker.open_replicas()
        listed = [unread] if is_named else []
        await broker.command(*listed, state(partition=1, is_new=True), full=True)
        partition = broker.replicas.get(T0)
        assert (partition is not None) is is_named
        assert broker.directory.set_aside_logs == ([] if is_named else [T0])
        if partition is not None:
            assert not partition.has_role
        await broker.tasks.close()

    run(story())


@pytest.mark.rule("D3", "V35")
def test_a_replica_whose_state_the_controller_could_not_read_is_not_made() -> None:
    unread = state(-1, leader_epoch=-1, partition_epoch=-1)

    async def story() -> None:
        broker = a_cluster()[1]
        [error] = errors(await broker.command(unread, full=True))
        assert error == ErrorCode.INVALID_REQUEST
        assert broker.replicas.get(T0) is None
        await broker.tasks.close()

    run(story())


@pytest.mark.rule("V30", "V35")
def test_who_leads_or_follows_what_the_controller_could_not_read_goes_on() -> None:
    unread = state(-1, leader_epoch=-1, partition_epoch=-1)

    async def story() -> None:
        cluster = a_cluster()
        for broker_id in (1, 2):
            await cluster[broker_id].command(state(is_new=True))
        before = [cluster[one].replicas.get(T0) for one in (1, 2)]
        for broker_id in (1, 2):
            await cluster[broker_id].command(unread, full=True)
        assert [cluster[one].replicas.get(T0) for one in (1, 2)] == before
        cluster[1].produce(3)
        await settle()
        assert cluster[2].log().log_end_offset == 3
        for broker_id in (1, 2, 3):
            await cluster[broker_id].tasks.close()

    run(story())


@pytest.mark.rule("V23")
@pytest.mark.parametrize(
    ("isr", "is_new", "is_kept"),
    [((1, 2), False, True), ((1, 3), False, False), ((1, 2), True, False)],
)
def test_a_replica_that_lost_its_topic_id_is_taken_only_if_it_has_been_in_sync(
    isr: tuple[int, ...], is_new: bool, is_kept: bool
) -> None:
    async def story() -> None:
        cluster = a_cluster()
        await cluster[1].command(state(isr=(1, 2), is_new=True))
        cluster[1].produce(5)
        broker = cluster[2]
        broker.directory.logs[T0] = found = FakeLog(T0, ZERO_TOPIC_ID)
        found.fill(0, 0, 0)
        await broker.open_replicas()
        assert errors(await broker.command(state(1, isr=isr, is_new=is_new))) == [0]
        await settle()
        assert broker.directory.set_aside_logs == ([] if is_kept else [T0])
        assert (broker.log() is found) is is_kept
        assert broker.log().topic_id == TOPIC_ID
        assert found.calls.count(("flush", TOPIC_ID)) == is_kept, "it is written down at once"
        assert broker.replicas.topic_name(TOPIC_ID) == "t"
        assert broker.log().log_end_offset == 5
        await broker.tasks.close()

    run(story())
