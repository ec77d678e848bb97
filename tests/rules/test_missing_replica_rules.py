"""Rule D3: replicas that are missing where a command expects them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from errno import ENOSPC
from typing import Any

import pytest
from tests.support.broker.fakes import (
    T0,
    a_cluster,
    errors,
    settle,
    state,
)
from tests.support.controller.values import TP, loaded, one_partition, roles_answered, step
from tests.support.controller.values import state as published

from tidelog.core.errors import ErrorCode, StorageError


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(coroutine)


@pytest.mark.rule("D3")
@pytest.mark.parametrize(
    ("leader", "isr", "is_new", "error"),
    [
        (1, (1, 2), True, 0),
        (1, (1, 2), False, ErrorCode.REPLICA_NOT_AVAILABLE),
        (2, (1, 2), False, ErrorCode.REPLICA_NOT_AVAILABLE),
        (1, (2,), False, ErrorCode.REPLICA_NOT_AVAILABLE),
        (2, (2, 3), False, 0),
    ],
)
def test_a_missing_replica_is_made_only_when_new_or_out_of_sync(
    leader: int, isr: tuple[int, ...], is_new: bool, error: int
) -> None:
    async def story() -> None:
        broker = a_cluster()[1]
        response = await broker.command(state(leader, isr=isr, is_new=is_new))
        assert errors(response) == [error]
        assert (T0 in broker.directory.logs) is (error == 0)

    run(story())


@pytest.mark.rule("D3")
@pytest.mark.parametrize("made_since", [False, True])
def test_a_new_replica_that_a_full_disk_refused_is_made_when_it_is_commanded_again(
    made_since: bool,
) -> None:
    """It never held a record; only one that was made since, and is gone, is lost."""

    async def story() -> None:
        broker = a_cluster()[1]
        broker.directory.error = StorageError("/data", "open", "/data/t-0", ENOSPC, 0)
        response = await broker.command(state(1, isr=(1,), is_new=True))
        assert errors(response) == [ErrorCode.KAFKA_STORAGE_ERROR]
        broker.directory.error = None
        if made_since:
            await broker.command(state(1, isr=(1,), is_new=True))
            assert not await broker.stop(T0, leader_epoch=0, delete=True)
        response = await broker.command(state(1, isr=(1,), is_new=False))
        assert errors(response) == [ErrorCode.REPLICA_NOT_AVAILABLE if made_since else 0]

    run(story())


@pytest.mark.rule("D3")
def test_kafkas_own_controller_gets_a_lost_replica_as_a_failed_directory() -> None:
    async def story() -> None:
        broker = a_cluster()[1]
        response = await broker.command(state(1, isr=(1, 2), is_new=False), full=None)
        assert errors(response) == [ErrorCode.KAFKA_STORAGE_ERROR]
        assert T0 not in broker.directory.logs

    run(story())


@pytest.mark.rule("D3")
def test_a_replica_that_was_made_out_of_sync_catches_up_as_follower() -> None:
    async def story() -> None:
        cluster = a_cluster()
        await cluster[1].command(state(isr=(1,), is_new=True))
        cluster[1].produce(5)
        await cluster[2].command(state(isr=(1,)))
        await settle()
        assert cluster[2].log().records == cluster[1].log().records

    run(story())


# V37, V38


# V64


# V13


@pytest.mark.rule("D3")
def test_a_replica_refused_under_an_older_state_is_commanded_again_under_the_present_one() -> None:
    """The command that broker 3 refused named it as an eligible replica; it is none any more."""
    controller = loaded(one_partition(published((1, 2))))
    _, effects = step(controller, roles_answered(3))
    role = effects.commands[3].roles[TP].state
    assert (tuple(role.isr), role.is_new) == ((1, 2), False)
    _, effects = step(controller, roles_answered(9))
    assert not effects.commands
