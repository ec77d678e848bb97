"""Causes of shrinks: the leader's, or those that the controller finds itself."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.controller.values import (
    TP,
    alter,
    broker,
    brokers,
    epoch,
    loaded,
    one_partition,
    settings,
    state,
    step,
)

from tidelog.controller.cluster_events import StateChange, of_state
from tidelog.controller.controller import Controller
from tidelog.controller.elections.leaders import MinimumRead
from tidelog.controller.isr_shrinks import shrinks
from tidelog.controller.partitions.isr_changes import IsrChangesRead
from tidelog.controller.registrations import BrokersRead
from tidelog.controller.replica_answers import LeaderAndIsrAnswered
from tidelog.controller.shutdowns import ControlledShutdownAsked
from tidelog.core.errors import ErrorCode
from tidelog.core.shrink_causes import ShrinkCause, cause_of
from tidelog.wire.messages.controlled_shutdown import ControlledShutdownRequest

TWO = replace(settings(), min_insync_replicas=2)


def controller() -> Controller:
    return loaded(one_partition(state()), of=TWO)


def known(of: Controller) -> dict[int, ShrinkCause]:
    return of.image.shrinks.get(TP, {})


def test_a_session_that_ends_is_the_cause_of_its_brokers_shrink() -> None:
    made = controller()
    step(made, BrokersRead(brokers(1, 2)))
    assert known(made) == {3: ShrinkCause.SESSION}


def test_a_broker_that_asked_for_its_shutdown_has_shut_down() -> None:
    made = controller()
    request = ControlledShutdownRequest(3, epoch(3))
    step(made, ControlledShutdownAsked(1, request))
    step(made, BrokersRead(brokers(1, 2)))
    assert known(made) == {3: ShrinkCause.SHUTDOWN}
    assert made.image.ended == {3: True}
    step(made, BrokersRead(brokers(1, 2, broker(3, life=2))))
    assert made.image.ended == {}
    assert known(made) == {3: ShrinkCause.SHUTDOWN}, "until it is back in the ISR"


def test_a_broker_that_registers_again_without_proof_has_bounced() -> None:
    made = controller()
    step(made, BrokersRead(brokers(1, 2, broker(3, life=2))))
    assert known(made) == {3: ShrinkCause.BOUNCE}


def test_a_shrink_that_a_leader_wrote_itself_has_the_cause_that_the_controller_sees() -> None:
    made = controller()
    step(made, IsrChangesRead({TP: state((1, 2), partition_epoch=11)}))
    assert known(made) == {3: ShrinkCause.UNKNOWN}, "the node has no causes"
    step(made, IsrChangesRead({TP: state((1, 2, 3), partition_epoch=12)}))
    assert known(made) == {}


def test_a_missing_replica_is_a_matter_of_the_disk() -> None:
    made = controller()
    lost = LeaderAndIsrAnswered(3, epoch(3), [(TP, ErrorCode.REPLICA_NOT_AVAILABLE)])
    step(made, lost)
    assert known(made) == {3: ShrinkCause.DISK}


def test_a_replica_in_a_failed_log_directory_is_offline() -> None:
    made = controller()
    step(made, LeaderAndIsrAnswered(3, epoch(3), [(TP, ErrorCode.KAFKA_STORAGE_ERROR)]))
    assert known(made) == {3: ShrinkCause.OFFLINE}


@pytest.mark.parametrize("alive", [(1, 2, 3), (1, 2)])
def test_a_replica_that_a_move_takes_away_has_moved_dead_or_alive(alive: tuple[int, ...]) -> None:
    before = state((1, 2, 3))
    after = replace(state((1, 2), partition_epoch=11), reassigned_to=(1, 2))
    left = shrinks(before, after, (1, 2, 3), brokers(*alive), ended={3: False})
    assert left == ((3, ShrinkCause.MOVED),)


def test_the_leaders_cause_counts_and_goes_when_the_replica_is_back() -> None:
    made = controller()
    asked = alter(1, 2)
    data = asked.request.topics[0].partitions[0]
    data.shrunk, data.causes = [3], [ShrinkCause.NO_FETCH]
    _, effects = step(made, asked)
    [change] = effects.notices.of(StateChange)
    assert change.shrinks == ((3, ShrinkCause.NO_FETCH),)
    event = of_state(change, made.image.brokers, 1, 7)
    assert event is not None
    assert event.fields["left"] == [{"broker": 3, "cause": "no_fetch"}]
    [shown] = [sent.shown for sent in effects.commands.values()][:1]
    [partition] = shown.values()
    assert (partition.shrunk, partition.causes) == ([3], [ShrinkCause.NO_FETCH])
    step(made, alter(1, 2, 3, partition_epoch=11))
    assert known(made) == {}


def test_a_leader_that_gives_no_cause_leaves_it_unknown() -> None:
    """A broker of Kafka's."""
    made = controller()
    step(made, alter(1, 2))
    assert known(made) == {3: ShrinkCause.UNKNOWN}


def test_a_replica_that_is_not_assigned_any_more_is_not_out() -> None:
    before, after = state((1, 2, 3)), state((1, 2), partition_epoch=11)
    assert shrinks(before, after, (1, 2), brokers(1, 2, 3), ended={}) == ()
    assert shrinks(None, after, (1, 2, 3), brokers(1, 2, 3), ended={}) == ()


def test_causes_go_with_the_partition_and_are_not_shared_by_copies() -> None:
    made = controller()
    step(made, BrokersRead(brokers(1, 2)))
    other = made.copy()
    step(made, BrokersRead(brokers(1)))
    assert known(other) == {3: ShrinkCause.SESSION}
    assert known(made) == {3: ShrinkCause.SESSION, 2: ShrinkCause.SESSION}
    made.image.remove_topic("t")
    assert known(made) == {}


@pytest.mark.parametrize("cause", list(ShrinkCause))
def test_numbers_travel(cause: ShrinkCause) -> None:
    assert cause_of(int(cause)) is cause
    assert cause_of(99) is ShrinkCause.UNKNOWN


def test_the_eligible_replicas_and_the_wait_go_to_every_broker() -> None:
    made = controller()
    _, effects = step(made, BrokersRead(brokers(1)))
    [partition] = effects.commands[1].shown.values()
    assert tuple(partition.eligible) == tuple(made.image.states[TP].elr) != ()
    assert (list(partition.awaited), partition.quorum, partition.last_leader) == ([], 0, -1)
    _, effects = step(made, MinimumRead({"t": 1}))
    [partition] = effects.commands[1].shown.values()
    assert tuple(partition.eligible) == ()
