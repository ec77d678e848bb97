"""Controllers in the midst of reassignments, for tests: t-0 on brokers 1 to 3 of five."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.support.controller.values import (
    TP,
    alter,
    answer_of,
    brokers,
    isr_answer,
    loaded,
    reassign,
    step,
)

from tidelog.controller.commands import Commands
from tidelog.controller.controller import Controller
from tidelog.controller.decision import Effects
from tidelog.controller.topics.changes import TopicFound
from tidelog.controller.writes import Write
from tidelog.core.errors import ErrorCode
from tidelog.core.types import BrokerInfo, TopicPartition

FOUR = brokers(1, 2, 3, 4, 5)
OTHER = TopicPartition("t", 1)


def cluster(*found: TopicFound, live: dict[int, BrokerInfo] | None = None) -> Controller:
    """Five brokers; t-0 on 1, 2, 3 in full health unless told otherwise."""
    return loaded(*found, live=live or FOUR)


def outcome(effects: Effects, ticket: int = 1) -> Any:
    """The outcome for the only partition that was asked for."""
    [one] = answer_of(effects, ticket).responses
    [partition] = one.partitions
    return partition


def kinds(writes: Sequence[Write]) -> list[type]:
    return [type(write) for write in writes]


def begin(controller: Controller, *target: int) -> Effects:
    """Ask for t-0 to be moved; it is accepted."""
    effects = step(controller, reassign(TP, target))[1]
    assert outcome(effects).error_code == ErrorCode.NONE, outcome(effects).error_message
    return effects


def caught_up(controller: Controller, *isr: int | tuple[int, int]) -> Effects:
    """The leader reports this ISR, which is accepted."""
    now = controller.image.states[TP]
    asked = alter(
        *isr,
        sender=now.leader,
        leader_epoch=now.leader_epoch,
        partition_epoch=now.partition_epoch,
    )
    effects = step(controller, asked)[1]
    assert isr_answer(effects).error_code == ErrorCode.NONE
    return effects


def completing(*target: int) -> tuple[Controller, Effects]:
    """A controller that has just published that t-0, on 1 to 3 before, is on the target alone."""
    controller = cluster()
    begin(controller, *target)
    caught_up(controller, 1, 2, 3, *(one for one in target if one > 3))
    return controller, step(controller)[1]


def stops(commands: dict[int, Commands]) -> dict[int, bool]:
    """Who is told to stop t-0, and whether to delete it."""
    return {
        broker_id: one.stops[TP].delete for broker_id, one in commands.items() if TP in one.stops
    }


def run_writes(controller: Controller, *events: Any) -> list[Write]:
    """Everything that is written until nothing is left to do."""
    for event in events:
        controller.offer(event)
    writes: list[Write] = []
    while controller.has_work:
        writes.extend(step(controller)[0])
    return writes
