"""What a leader does when its topic's configuration changes while it leads: V60, V64.

Real leaders and fetchers over fake logs (`tests.support.broker.fakes`); the store holds
configurations.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from tests.support.broker.fakes import (
    TOPIC,
    FakeBroker,
    a_cluster,
    errors,
    settle,
    state,
)

from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.metadata import layout


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(coroutine)


async def configure(broker: FakeBroker, **keys: str) -> None:
    """The topic is configured so; the broker hears of it and takes it over."""
    settings = {key.replace("_", "."): value for key, value in keys.items()}
    broker.store.nodes[layout.config_path("topics", TOPIC)] = layout.encode_config(settings)
    await broker.replicas.load_configs([TOPIC])
    broker.replicas.configs_changed([TOPIC])


class Waiting:
    """A produce that waits for the in-sync replicas."""

    def __init__(self) -> None:
        self.errors: list[ErrorCode] = []
        self.done = False

    def acknowledged(self) -> None:
        self.done = True

    def refused(self, error: ErrorCode, message: str) -> None:
        self.errors.append(error)


async def lone_leader() -> FakeBroker:
    """Broker 1 leads, alone in sync; brokers 2 and 3 are replicas too, and dead."""
    broker = a_cluster(1)[1]
    assert errors(await broker.command(state(isr=(1,), is_new=True))) == [0]
    return broker


@pytest.mark.rule("V64")
def test_the_minimum_counts_at_once_for_what_is_produced() -> None:
    async def story() -> None:
        broker = await lone_leader()
        partition = broker.partition()
        await configure(broker, min_insync_replicas="2")
        with pytest.raises(KafkaError, match=r"min\.insync\.replicas=2") as caught:
            partition.role.append(b"r", -1, 0)
        assert caught.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
        partition.role.append(b"r", 1, 0)
        await configure(broker)
        assert partition.role.append(b"r", -1, 0) is not None

    run(story())


@pytest.mark.rule("V64", "V60")
def test_a_raised_minimum_answers_what_waits() -> None:
    async def story() -> None:
        broker = await lone_leader()
        partition = broker.partition()
        waiting = Waiting()
        partition.watchers.wait_for_acks(partition.log.log_end_offset + 1, waiting)
        await configure(broker, min_insync_replicas="2")
        assert waiting.errors == [ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND]

    run(story())


@pytest.mark.rule("V60")
def test_the_watermark_stands_below_the_minimum_and_moves_when_it_is_lowered() -> None:
    async def story() -> None:
        broker = await lone_leader()
        await configure(broker, min_insync_replicas="2")
        partition = broker.partition()
        partition.role.append(b"rrr", 1, 0)
        partition.flush_appends()
        await settle()
        assert partition.high_watermark == 0
        waiting = Waiting()
        partition.watchers.wait_for_acks(3, waiting)
        await configure(broker, min_insync_replicas="1")
        assert partition.high_watermark == 3
        assert waiting.done

    run(story())


@pytest.mark.rule("V60")
def test_a_default_of_the_brokers_counts_for_topics_that_say_nothing() -> None:
    async def story() -> None:
        broker = await lone_leader()
        broker.config = broker.config.with_dynamic({"min.insync.replicas": "2"})
        broker.replicas.defaults_changed()
        partition = broker.partition()
        partition.role.append(b"r", 1, 0)
        partition.flush_appends()
        await settle()
        assert partition.high_watermark == 0
        await configure(broker, min_insync_replicas="1")
        assert partition.high_watermark == 1

    run(story())
