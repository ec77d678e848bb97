"""All replicas of a broker: what is here, how it is configured, what is done from time to time."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Coroutine
from typing import Any

import pytest
from tests.support.broker.directory import FakeLog
from tests.support.broker.fakes import (
    T0,
    TOPIC_ID,
    FakeBroker,
    a_cluster,
    errors,
    replicate,
    settle,
    state,
)

from tidelog.broker.replicas import metrics as declared
from tidelog.core.errors import ErrorCode, StorageError
from tidelog.core.types import TopicPartition
from tidelog.log.log_cleaner import CleanerSettings
from tidelog.metadata import layout
from tidelog.metadata.store import SessionExpired, StoreUnavailable
from tidelog.replication.leader import LeaderReplica

FULL_DISK = StorageError("/d", "pwrite", "/d/f", errno.ENOSPC, 0)


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(coroutine)


def test_replicas_are_found_by_name_and_by_topic_id() -> None:
    async def story() -> None:
        broker = a_cluster()[1]
        replicas = broker.replicas
        await broker.command(state(is_new=True), state(partition=1, is_new=True))
        assert len(replicas) == 2
        assert replicas.topic_name(TOPIC_ID) == "t"
        assert replicas.by_topic_id(TOPIC_ID, 1) is replicas.get(TopicPartition("t", 1))
        assert replicas.by_topic_id(TOPIC_ID, 2) is None
        assert replicas.by_topic_id(b"O" * 16, 1) is None
        first = broker.partition()
        await broker.stop(T0)
        replicas.forget(first)
        assert replicas.topic_name(TOPIC_ID) == "t"
        await broker.stop(TopicPartition("t", 1))
        assert replicas.topic_name(TOPIC_ID) is None

    run(story())


def test_the_end_of_an_older_topics_replica_keeps_what_the_recreated_topic_has() -> None:
    async def story() -> None:
        broker = a_cluster()[1]
        replicas = broker.replicas
        await broker.command(state(is_new=True))
        recreated = b"N" * 16
        await broker.command(state(partition=1, is_new=True), topic_id=recreated)
        replicas.topic_meters.produced("t", 100, 1)
        first = broker.partition()
        await broker.stop(T0)
        replicas.forget(first)
        assert replicas.topic_name(TOPIC_ID) is None
        assert replicas.topic_name(recreated) == "t"
        assert broker.services.metrics.value(declared.BYTES_IN, "t") == 100
        await broker.stop(TopicPartition("t", 1))
        assert broker.services.metrics.value(declared.BYTES_IN, "t") == 0

    run(story())


# configuration


def role_of(broker: FakeBroker) -> LeaderReplica:
    role = broker.partition().leadership
    assert role is not None
    return role


def test_a_topics_own_configuration_holds_for_its_replicas() -> None:
    async def story() -> None:
        broker = a_cluster()[1]
        path = layout.config_path("topics", "t")
        broker.store.nodes[path] = layout.encode_config(
            {"min.insync.replicas": "2", "segment.bytes": "5000"}
        )
        await broker.command(state(is_new=True))
        assert role_of(broker).min_insync_replicas == 2
        assert broker.log().config.segment_bytes == 5_000
        assert broker.replicas.default_log_config().segment_bytes == 1 << 30

    run(story())


def test_replicas_found_at_start_get_their_configuration_too() -> None:
    async def story() -> None:
        broker = a_cluster()[1]
        broker.directory.logs[T0] = FakeLog(T0, TOPIC_ID)
        path = layout.config_path("topics", "t")
        broker.store.nodes[path] = layout.encode_config({"segment.bytes": "5000"})
        await broker.open_replicas()
        assert broker.log().config.segment_bytes == 5_000
        await broker.tasks.close()

    run(story())


def test_what_cannot_be_used_of_a_stored_configuration_leaves_the_defaults() -> None:
    async def story() -> None:
        broker = a_cluster()[1]
        path = layout.config_path("topics", "t")
        broker.store.nodes[path] = b"no json"
        await broker.replicas.load_configs(["t"])
        assert broker.replicas.topic_config("t").min_insync_replicas == 1
        broker.store.nodes[path] = layout.encode_config(
            {"min.insync.replicas": "2", "segment.bytes": "many"}
        )
        await broker.replicas.load_configs(["t"])
        assert broker.replicas.topic_config("t").min_insync_replicas == 2
        assert broker.replicas.topic_config("t").segment_bytes == 1 << 30

    run(story())


@pytest.mark.rule("S3")
def test_a_store_that_cannot_be_reached_is_waited_for() -> None:
    async def story() -> None:
        broker = a_cluster()[1]
        broker.store.errors = [StoreUnavailable("away"), SessionExpired()]
        command = asyncio.ensure_future(broker.command(state(is_new=True)))
        await settle()
        assert not command.done()
        await broker.clock.advance(120)
        assert errors(await command) == [0]

    run(story())


# commands whose disk or registration fails


def test_a_replica_that_cannot_be_made_is_a_storage_error_of_its_own() -> None:
    async def story() -> None:
        broker = a_cluster()[1]
        await broker.command(state(is_new=True))
        broker.directory.error = FULL_DISK
        response = await broker.command(state(leader_epoch=1), state(partition=1, is_new=True))
        assert errors(response) == [0, ErrorCode.KAFKA_STORAGE_ERROR]
        assert role_of(broker).leader_epoch == 1
        assert await broker.stop() == ErrorCode.KAFKA_STORAGE_ERROR

    run(story())


def test_a_replica_leads_no_isr_that_it_is_not_a_member_of() -> None:
    async def story() -> None:
        broker = a_cluster()[1]
        answer = await broker.command(state(isr=(2, 3), is_new=True))
        assert errors(answer) == [ErrorCode.INVALID_REQUEST]
        await broker.command(state(isr=(1, 2), is_new=True))
        answer = await broker.command(state(isr=(2, 3), partition_epoch=1))
        assert errors(answer) == [ErrorCode.INVALID_REQUEST]
        assert role_of(broker).isr.committed == (1, 2)

    run(story())


def test_a_leader_epoch_has_one_leader() -> None:
    async def story() -> None:
        broker = a_cluster()[1]
        await broker.command(state(isr=(1, 2), is_new=True))
        answer = await broker.command(state(leader=2, isr=(2, 3), partition_epoch=1))
        assert errors(answer) == [ErrorCode.INVALID_REQUEST]
        assert role_of(broker).isr.committed == (1, 2)
        answer = await broker.command(state(leader=2, isr=(2, 3), leader_epoch=1))
        assert errors(answer) == [ErrorCode.NONE]
        assert not broker.partition().is_leader

    run(story())


def test_no_role_is_taken_when_the_registration_ends_meanwhile() -> None:
    async def story() -> None:
        broker = a_cluster()[1]
        broker.store.errors = [StoreUnavailable("away")]
        command = asyncio.ensure_future(broker.command(state(is_new=True)))
        await settle()
        broker.replicas.stop_leading("expired")
        await broker.clock.advance(60)
        assert (await command).error_code == ErrorCode.STALE_BROKER_EPOCH
        assert not broker.partition().has_role

    run(story())


@pytest.mark.rule("V6", "V24")
def test_names_and_numbers_that_are_none_are_refused() -> None:
    async def story() -> None:
        broker = a_cluster()[1]
        answer = await broker.command(state(is_new=True), topic="../up")
        assert errors(answer) == [ErrorCode.INVALID_TOPIC_EXCEPTION]
        answer = await broker.command(
            state(partition=-1, is_new=True),
            state(partition=1, leader_epoch=-1, is_new=True),
            state(partition=2, partition_epoch=-1, is_new=True),
            state(partition=3, replicas=(2, 3), is_new=True),
        )
        assert errors(answer) == [ErrorCode.INVALID_REQUEST] * 3 + [
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        ]
        assert broker.directory.logs == {}

    run(story())


def test_replicas_of_one_command_are_made_together() -> None:
    async def story() -> None:
        broker = a_cluster()[1]
        await broker.command(*(state(partition=one, is_new=True) for one in range(5)))
        assert broker.directory.calls == [("create_many", 5)]

    run(story())


# upkeep


async def an_open_cluster(**config: str) -> dict[int, FakeBroker]:
    cluster = a_cluster(2, **config)
    for broker in cluster.values():
        await broker.open_replicas()
    await replicate(cluster, isr=(1, 2))
    return cluster


async def close(cluster: dict[int, FakeBroker]) -> None:
    for broker in cluster.values():
        await broker.tasks.close()


def test_retention_is_enforced_with_the_high_watermark_and_told() -> None:
    async def story() -> None:
        cluster = await an_open_cluster(log_retention_check_interval_ms="1000")
        cluster[1].produce(5)
        await settle()
        for broker in cluster.values():
            broker.log().removable = 3
        await cluster[1].clock.advance(1_600)
        assert cluster[1].log().log_start_offset == 3
        assert cluster[2].log().log_start_offset == 3
        role = role_of(cluster[1])
        await cluster[1].clock.advance(600)
        assert role.followers[2].log_end_offset == 5
        await close(cluster)

    run(story())


def test_recovery_points_are_written_down() -> None:
    async def story() -> None:
        cluster = await an_open_cluster(log_flush_offset_checkpoint_interval_ms="500")
        await cluster[1].clock.advance(1_100)
        assert cluster[1].directory.calls.count(("checkpoint", None)) == 2
        await close(cluster)

    run(story())


def test_flushes_by_age_are_looked_for_only_where_a_topic_asks_for_them() -> None:
    async def story() -> None:
        cluster = await an_open_cluster()
        await cluster[1].clock.advance(3_000)
        assert [name for name, _ in cluster[1].directory.calls].count("flush_due") == 0
        path = layout.config_path("topics", "t")
        cluster[1].store.nodes[path] = layout.encode_config({"flush.ms": "1000"})
        await cluster[1].replicas.load_configs(["t"])
        await cluster[1].clock.advance(2_000)
        assert [name for name, _ in cluster[1].directory.calls].count("flush_due") == 2
        await close(cluster)

    run(story())


class RecordingCleaner:
    """Has nothing to compact."""

    def __init__(self) -> None:
        self.settings: Any = None
        self.looks = 0

    async def clean_one(self, logs: Any) -> None:
        self.looks += 1


def test_the_cleaner_takes_its_settings_while_the_broker_runs() -> None:
    async def story() -> None:
        cluster = await an_open_cluster(log_cleaner_backoff_ms="1000")
        broker, cleaner = cluster[1], RecordingCleaner()
        broker.replicas.upkeep._cleaner = cleaner  # type: ignore[assignment]  # a fake stands in
        await broker.clock.advance(2_100)
        assert cleaner.looks == 2
        changed = {
            "log.cleaner.backoff.ms": "100",
            "log.cleaner.dedupe.buffer.size": "2048",
            "log.cleaner.io.buffer.load.factor": "0.5",
            "log.cleaner.io.buffer.size": "4096",
            "log.cleaner.io.max.bytes.per.second": "1000",
        }
        broker.config = broker.config.with_dynamic(changed)
        broker.replicas.defaults_changed()
        assert cleaner.settings == CleanerSettings(2048, 0.5, 2048, 1000.0)
        await broker.clock.advance(1_900)
        assert cleaner.looks >= 10
        await close(cluster)

    run(story())


def test_a_disk_that_refuses_ends_no_loop() -> None:
    async def story() -> None:
        cluster = await an_open_cluster()
        broker = cluster[1]
        broker.produce(3)
        await settle()
        broker.directory.error = FULL_DISK
        await broker.clock.advance(5_100)
        assert broker.directory.high_watermarks == {}
        assert broker.failures == []
        broker.directory.error = None
        await broker.clock.advance(5_100)
        assert broker.directory.high_watermarks == {T0: 3}
        await close(cluster)

    run(story())


def test_the_end_of_replicas_outlives_a_full_disk() -> None:
    async def story() -> None:
        cluster = await an_open_cluster()
        cluster[1].directory.error = FULL_DISK
        await close(cluster)
        await cluster[1].replicas.close()
        assert not cluster[1].partition().has_role

    run(story())
