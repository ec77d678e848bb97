"""The order of the controller's commands, whatever connections they come by (V30, V81).

A connection that the controller has given up may deliver after the one that took its place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.broker.fakes import (
    T0,
    TOPIC_ID,
    FakeBroker,
    a_cluster,
    settle,
    state,
)

from tidelog.broker.apis import leader_and_isr, stop_replica, update_metadata
from tidelog.broker.server.requests import Pending, Request
from tidelog.core.errors import ErrorCode
from tidelog.replication import commands
from tidelog.wire.codec import RequestHeader
from tidelog.wire.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrTopicState
from tidelog.wire.messages.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
)
from tidelog.wire.messages.update_metadata import (
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from tidelog.wire.registry import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(coroutine)


_HANDLERS: dict[type, tuple[int, int, Any]] = {
    LeaderAndIsrRequest: (LEADER_AND_ISR, 7, leader_and_isr.handle),
    StopReplicaRequest: (STOP_REPLICA, 4, stop_replica.handle),
    UpdateMetadataRequest: (UPDATE_METADATA, 8, update_metadata.handle),
}


async def arrives(broker: FakeBroker, command: Any, correlation_id: int) -> Any:
    """The answer to a command with this correlation id, on a connection of whatever age."""
    api_key, version, handle = _HANDLERS[type(command)]
    header = RequestHeader(api_key, version, correlation_id, None)
    connection: Any = SimpleNamespace(peer="controller")
    answer = handle(broker, Request(header, command, connection, 0))
    if isinstance(answer, Pending):
        answers: list[Any] = []
        answer.deliver_to(answers.append)
        await settle()
        (answer,) = answers
    return answer


def deletion(broker: FakeBroker, controller_epoch: int = 1) -> StopReplicaRequest:
    """The command that deletes the replica of the first partition with its topic."""
    gone = StopReplicaPartitionState(0, commands.EPOCH_DURING_DELETE, True)
    return StopReplicaRequest(
        controller_id=9,
        controller_epoch=controller_epoch,
        broker_epoch=broker.broker_epoch,
        topic_states=[StopReplicaTopicState(T0.topic, [gone])],
    )


def making(broker: FakeBroker) -> LeaderAndIsrRequest:
    """The command that makes that replica, as the leader."""
    return LeaderAndIsrRequest(
        controller_id=9,
        controller_epoch=1,
        broker_epoch=broker.broker_epoch,
        topic_states=[LeaderAndIsrTopicState(T0.topic, TOPIC_ID, [state(is_new=True)])],
    )


@pytest.mark.rule("V30")
def test_a_deletion_that_a_closed_connection_delivers_late_spares_the_recreated_topic() -> None:
    # Simulator seed 455: the topic had been deleted by the repeated command, and recreated.
    async def story() -> None:
        broker = a_cluster()[1]
        assert (await arrives(broker, making(broker), 6)).error_code == ErrorCode.NONE
        late = await arrives(broker, deletion(broker), 4)
        assert late.error_code == ErrorCode.OPERATION_NOT_ATTEMPTED
        assert broker.partition().is_leader
        (told,) = broker.tracer.named("command_overtaken")
        assert told["api"] == STOP_REPLICA
        assert (await arrives(broker, deletion(broker), 7)).error_code == ErrorCode.NONE
        assert broker.replicas.get(T0) is None

    run(story())


@pytest.mark.rule("V30")
def test_metadata_that_comes_behind_later_metadata_takes_no_topic_away() -> None:
    # Simulator seed 454: a broker that did not know the recreated topic, for good.
    async def story() -> None:
        broker = a_cluster()[1]

        def shown(topic: str) -> UpdateMetadataRequest:
            return UpdateMetadataRequest(
                controller_id=9,
                type=2,
                controller_epoch=1,
                broker_epoch=broker.broker_epoch,
                topic_states=[
                    UpdateMetadataTopicState(
                        topic, TOPIC_ID, [UpdateMetadataPartitionState(0, 1, 1, 0, [1], 0, [1])]
                    )
                ],
            )

        assert (await arrives(broker, shown("new"), 8)).error_code == ErrorCode.NONE
        late = await arrives(broker, shown("old"), 7)
        assert late.error_code == ErrorCode.OPERATION_NOT_ATTEMPTED
        assert list(broker.view.topics) == ["new"]

    run(story())


@pytest.mark.rule("V30")
def test_a_role_that_comes_behind_a_deletion_makes_no_replica() -> None:
    async def story() -> None:
        broker = a_cluster()[1]
        assert (await arrives(broker, deletion(broker), 3)).error_code == ErrorCode.NONE
        late = await arrives(broker, making(broker), 2)
        assert late.error_code == ErrorCode.OPERATION_NOT_ATTEMPTED
        assert broker.replicas.get(T0) is None

    run(story())


@pytest.mark.rule("V30")
def test_another_controller_and_another_registration_number_commands_from_the_start() -> None:
    async def story() -> None:
        broker = a_cluster()[1]
        assert (await arrives(broker, deletion(broker), 900)).error_code == ErrorCode.NONE
        later = deletion(broker, controller_epoch=2)
        assert (await arrives(broker, later, 0)).error_code == ErrorCode.NONE
        # One of the earlier controller does not make room for what was overtaken.
        stale = await arrives(broker, deletion(broker), 901)
        assert stale.error_code == ErrorCode.STALE_CONTROLLER_EPOCH
        assert (await arrives(broker, later, 5)).error_code == ErrorCode.NONE
        overtaken = await arrives(broker, later, 4)
        assert overtaken.error_code == ErrorCode.OPERATION_NOT_ATTEMPTED
        broker.broker_epoch += 10
        assert (await arrives(broker, deletion(broker, 2), 0)).error_code == ErrorCode.NONE

    run(story())
