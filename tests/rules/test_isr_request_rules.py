"""Rules of AlterPartition and AllocateProducerIds on the controller.

A1 to A4, A9 (what a newer partition epoch means), A10 (one request, one batch), V63 (broker epochs
of all members), G3 (producer ids).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.controller.harness import ControllerHarness, controller_harness, not_controller
from tests.support.controller.values import (
    TP,
    alter,
    answer_of,
    broker,
    brokers,
    epoch,
    isr_answer,
    loaded,
    state,
    state_writes,
    step,
    topic,
    topic_id,
)

from tidelog.broker.apis import alter_partition
from tidelog.broker.membership.producer_ids import ProducerIds
from tidelog.controller.producer_ids import ProducerIdsAsked, ProducerIdsRead, TakeProducerIds
from tidelog.controller.records import LastProducerId
from tidelog.controller.registrations import BrokersChanged
from tidelog.controller.topics.changes import TopicFound
from tidelog.controller.writes import Conflict, Written
from tidelog.core.errors import ErrorCode
from tidelog.core.limits import PRODUCER_ID_BLOCK_SIZE
from tidelog.core.types import RECOVERED, RECOVERING, BrokerInfo, TopicPartition
from tidelog.metadata import layout
from tidelog.metadata.store import ANY_VERSION, SetData
from tidelog.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from tidelog.wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse


@pytest.fixture
def three() -> Iterator[ControllerHarness]:
    with controller_harness(3) as made:
        yield made


# A1


@pytest.mark.rule("A1")
def test_the_leader_learns_the_outcome_from_the_answer() -> None:
    writes, effects = step(loaded(), alter(1, 2))
    answer = isr_answer(effects)
    assert (answer.error_code, answer.leader_id, answer.leader_epoch) == (0, 1, 5)
    assert (answer.isr, answer.partition_epoch) == ((1, 2), 11)
    assert state_writes(writes)[TP].isr == (1, 2)


@pytest.mark.rule("A1")
def test_an_answer_is_not_given_before_its_write_is_done() -> None:
    controller = loaded()
    controller.offer(alter(1, 2))
    decision = controller.decide()
    assert decision.writes
    assert controller.image.states[TP] == state()
    effects = controller.applied(decision, [Conflict(state=state((1, 3), partition_epoch=12))])
    assert isr_answer(effects).error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert controller.image.states[TP].isr == (1, 3)


# A2


@pytest.mark.rule("A2")
@pytest.mark.parametrize("how", [{"sender": 9}, {"sender_epoch": epoch(1, life=2)}])
def test_an_unknown_sender_or_life_is_refused_at_the_top(how: dict[str, Any]) -> None:
    writes, effects = step(loaded(), alter(1, 2, **how))
    answer = answer_of(effects)
    assert (answer.error_code, answer.topics) == (ErrorCode.STALE_BROKER_EPOCH, [])
    assert writes == []


@pytest.mark.rule("A2")
def test_a_broker_that_is_not_the_controller_says_so_at_the_top(three: ControllerHarness) -> None:
    controller = three.controller()
    other = next(one for one in three.brokers.values() if one is not controller)
    [answer] = three.alter(other, AlterPartitionRequest())
    assert answer == not_controller()


@pytest.mark.rule("A2")
def test_whoever_waits_when_the_term_ends_hears_that_it_has(three: ControllerHarness) -> None:
    controller = three.controller()
    three.cut_off.append(f"b{controller.broker_id}")
    answers = three.alter(controller, AlterPartitionRequest(broker_id=controller.broker_id))
    three.pass_time(20)
    session_id = controller.store.session_id
    assert session_id is not None
    three.server.expire(session_id)
    three.cut_off.clear()
    three.until(lambda: bool(answers))
    assert answers[0].error_code in (ErrorCode.NOT_CONTROLLER, ErrorCode.STALE_BROKER_EPOCH)


@pytest.mark.rule("A2")
def test_a_broker_that_does_not_control_says_so() -> None:
    answers: list[AlterPartitionResponse] = []

    class Elsewhere:
        def alter_partition(self, message: object, version: int, refusal: Any) -> Any:
            return refusal()

    request = SimpleNamespace(message=None, header=SimpleNamespace(api_version=3))
    answers.append(alter_partition.handle(SimpleNamespace(controller=Elsewhere()), request))  # type: ignore[arg-type]  # a fake stands in
    assert answers[0].error_code == ErrorCode.NOT_CONTROLLER


# A3


@pytest.mark.rule("A3")
@pytest.mark.parametrize(
    ("members", "how", "code"),
    [
        ((1, 2), {"leader_epoch": 4}, ErrorCode.FENCED_LEADER_EPOCH),
        ((1, 4), {}, ErrorCode.INVALID_REQUEST),
        ((2, 3), {}, ErrorCode.INVALID_REQUEST),
        ((), {}, ErrorCode.INVALID_REQUEST),
        ((1, 2, 2), {}, ErrorCode.INVALID_REQUEST),
        ((1, 2), {"recovery": RECOVERING}, ErrorCode.INVALID_REQUEST),
        ((1,), {"recovery": RECOVERING}, ErrorCode.INVALID_REQUEST),
        ((1, 2), {"partition_epoch": 9}, ErrorCode.INVALID_UPDATE_VERSION),
        ((1, 2), {"partition": 5}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ((1, 2), {"of_topic": topic_id("t", 2)}, ErrorCode.UNKNOWN_TOPIC_ID),
        ((1, (2, epoch(2, life=2))), {}, ErrorCode.INELIGIBLE_REPLICA),
        ((1, 2), {"leader_epoch": 6}, ErrorCode.NOT_CONTROLLER),
        ((1, 2), {"partition_epoch": 11}, ErrorCode.NOT_CONTROLLER),
    ],
)
def test_each_refusal_has_its_own_error(
    members: tuple[int, ...], how: dict[str, Any], code: ErrorCode
) -> None:
    controller = loaded(live=brokers(1, 2, 3, 4))
    writes, effects = step(controller, alter(*members, **how))
    # What the leader takes for final is made so, all else changes nothing.
    assert bool(writes) == (code is ErrorCode.INELIGIBLE_REPLICA)
    assert isr_answer(effects).error_code == code


@pytest.mark.rule("A3")
def test_a_recovering_leader_stays_alone_until_it_has_recovered() -> None:
    recovering = state((1,), leader_recovery_state=RECOVERING)
    controller = loaded(TopicFound(topic(), {0: recovering}))
    writes, effects = step(controller, alter(1, 2, recovery=RECOVERING))
    assert writes == []
    assert isr_answer(effects).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.rule("A3")
@pytest.mark.parametrize("version", [0, 1])
def test_old_leaders_get_the_error_that_nothing_was_attempted(version: int) -> None:
    controller = loaded(TopicFound(topic(), {0: state((1, 2))}), live=brokers(1, 2))
    writes, effects = step(controller, alter(1, 2, 3, version=version))
    assert writes == []
    assert isr_answer(effects).error_code == ErrorCode.OPERATION_NOT_ATTEMPTED


@pytest.mark.rule("A3")
def test_only_the_leader_may_ask() -> None:
    writes, effects = step(loaded(), alter(1, 2, sender=2))
    assert writes == []
    assert isr_answer(effects).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.rule("A3")
def test_a_conflict_in_the_store_is_a_stale_partition_epoch() -> None:
    held = state((1, 2), leader_epoch=5, partition_epoch=30)
    _, effects = step(loaded(), alter(1, 2), outcomes={0: Conflict(state=held)})
    assert isr_answer(effects).error_code == ErrorCode.INVALID_UPDATE_VERSION


@pytest.mark.rule("A3")
def test_a_dead_member_is_ineligible() -> None:
    controller = loaded(TopicFound(topic(), {0: state((1, 2))}), live=brokers(1, 2))
    _, effects = step(controller, alter(1, 2, 3))
    assert isr_answer(effects).error_code == ErrorCode.INELIGIBLE_REPLICA


@pytest.mark.rule("A3")
def test_a_stale_partition_epoch_is_also_answered_by_the_role_that_holds() -> None:
    _, effects = step(loaded(), alter(1, 2, partition_epoch=9))
    role = effects.commands[1].roles[TP].state
    assert (role.leader_epoch, role.partition_epoch, role.isr) == (5, 10, (1, 2, 3))


@pytest.mark.rule("A3", "A4")
def test_a_recovering_leader_persists_that_it_has_recovered() -> None:
    recovering = state((1,), leader_recovery_state=RECOVERING)
    controller = loaded(TopicFound(topic(), {0: recovering}))
    writes, _ = step(controller, alter(1, recovery=RECOVERED))
    assert state_writes(writes)[TP].leader_recovery_state == RECOVERED


# A4


@pytest.mark.rule("A4")
@pytest.mark.parametrize("partition_epoch", [10, 9, 0])
def test_a_request_for_the_state_that_holds_succeeds_and_writes_nothing(
    partition_epoch: int,
) -> None:
    writes, effects = step(loaded(), alter(3, 1, 2, partition_epoch=partition_epoch))
    answer = isr_answer(effects)
    assert (answer.error_code, answer.partition_epoch) == (0, 10)
    assert answer.isr == (1, 2, 3)
    assert writes == []


@pytest.mark.rule("A4")
def test_a_repeated_request_whose_answer_was_lost_succeeds() -> None:
    controller = loaded()
    step(controller, alter(1, 2))
    writes, effects = step(controller, alter(1, 2))
    assert writes == []
    assert isr_answer(effects).partition_epoch == 11


# A9, A10


@pytest.mark.rule("A9")
def test_after_a_newer_partition_epoch_the_older_request_is_void() -> None:
    controller = loaded()
    step(controller, alter(1, 2))
    writes, effects = step(controller, alter(1, 3, partition_epoch=10))
    assert writes == []
    assert isr_answer(effects).error_code == ErrorCode.INVALID_UPDATE_VERSION


@pytest.mark.rule("A10")
def test_changes_of_one_request_are_one_decision_and_one_transaction(
    three: ControllerHarness,
) -> None:
    controller = three.controller()
    three.create(controller, "t", *[(1, 2, 3)] * 5)
    node = three.read(layout.topic_path("t"))
    assert node is not None
    asked = alter(
        *((one.broker_id, one.broker_epoch) for one in three.brokers.values() if one.broker_id < 3),
        sender_epoch=three.brokers[1].broker_epoch,
        leader_epoch=0,
        partition_epoch=0,
        of_topic=layout.decode_topic("", node.data).topic_id,
    )
    [data] = asked.request.topics[0].partitions
    asked.request.topics[0].partitions = [
        type(data)(
            partition_index=number,
            leader_epoch=data.leader_epoch,
            new_isr_with_epochs=data.new_isr_with_epochs,
            partition_epoch=data.partition_epoch,
        )
        for number in range(5)
    ]
    commits: list[int] = []
    three.server.on_commit(lambda *commit: commits.append(1))
    answers = three.alter(controller, asked.request)
    three.until(lambda: bool(answers))
    assert [one.error_code for one in answers[0].topics[0].partitions] == [0] * 5
    assert len(commits) == 1
    assert three.state(TopicPartition("t", 4)).isr == (1, 2)


# A8


@pytest.mark.rule("A8")
def test_no_other_copy_of_a_refused_change_is_accepted_later() -> None:
    # Replica 3 fetches in its second life; the controller has seen the end of its first.
    controller = loaded(TopicFound(topic(), {0: state((1, 2))}), live=brokers(1, 2))
    change = alter(1, 2, (3, epoch(3, life=2)))
    writes, effects = step(controller, change)
    assert isr_answer(effects).error_code == ErrorCode.INELIGIBLE_REPLICA
    held = state_writes(writes)[TP]
    assert (held.isr, held.isr_epochs) == ((1, 2), (epoch(1), epoch(2)))
    assert (held.leader_epoch, held.partition_epoch) == (5, 11)
    # The leader gets the partition epoch: its next request builds on it.
    assert effects.commands[1].roles[TP].state.partition_epoch == 11
    controller.image.apply(BrokersChanged(brokers(1, 2, broker(3, life=2))))
    writes, effects = step(controller, change)
    assert writes == []
    assert isr_answer(effects).error_code == ErrorCode.INVALID_UPDATE_VERSION


@pytest.mark.rule("A8")
def test_a_refusal_is_made_final_also_while_a_member_has_not_fetched_yet() -> None:
    controller = loaded(TopicFound(topic(), {0: state((1, 2))}), live=brokers(1, 2))
    writes, effects = step(controller, alter(1, (2, -1), (3, epoch(3, life=2))))
    assert state_writes(writes)[TP].partition_epoch == 11
    assert isr_answer(effects).error_code == ErrorCode.INELIGIBLE_REPLICA


@pytest.mark.rule("A8")
def test_no_leader_gets_a_refusal_that_could_not_be_made_final() -> None:
    controller = loaded(TopicFound(topic(), {0: state((1, 2))}), live=brokers(1, 2))
    held = state((1, 2, 3), leader_epoch=5, partition_epoch=11)
    _, effects = step(controller, alter(1, 2, 3), outcomes={0: Conflict(state=held)})
    assert isr_answer(effects).error_code == ErrorCode.INVALID_UPDATE_VERSION


@pytest.mark.rule("A8")
def test_where_no_lives_are_recorded_a_refusal_leaves_the_node_alone() -> None:
    # The node's last modification shows which members have bounced since (V10).
    found = TopicFound(topic(), {0: state((1, 2), isr_epochs=None)})
    writes, effects = step(loaded(found, live=brokers(1, 2)), alter(1, 2, 3))
    assert writes == []
    assert isr_answer(effects).error_code == ErrorCode.INELIGIBLE_REPLICA


# V63


@pytest.mark.rule("V63")
@pytest.mark.parametrize("member", [1, 2, 3])
def test_the_epochs_of_all_members_are_compared_not_only_the_newcomers(member: int) -> None:
    controller = loaded(TopicFound(topic(), {0: state((1, 2))}))
    members = [(one, epoch(one, life=2 if one == member else 1)) for one in (1, 2, 3)]
    writes, effects = step(controller, alter(*members))
    assert state_writes(writes)[TP].isr == (1, 2)
    assert isr_answer(effects).error_code == ErrorCode.INELIGIBLE_REPLICA


@pytest.mark.rule("V63")
def test_a_follower_that_bounced_after_it_caught_up_does_not_join() -> None:
    controller = loaded(TopicFound(topic(), {0: state((1, 2))}))
    controller.image.apply(BrokersChanged(brokers(1, 2, broker(3, life=2))))
    _, effects = step(controller, alter(1, 2, 3))
    assert isr_answer(effects).error_code == ErrorCode.INELIGIBLE_REPLICA
    _, effects = step(controller, alter(1, 2, (3, epoch(3, life=2)), partition_epoch=11))
    assert isr_answer(effects).error_code == ErrorCode.NONE


@pytest.mark.rule("V63")
def test_without_epochs_only_unchanged_members_pass() -> None:
    controller = loaded(TopicFound(topic(), {0: state((1, 2))}))
    writes, _ = step(controller, alter(1, 2, 3, version=2))
    assert state_writes(writes)[TP].isr_epochs == (epoch(1), epoch(2), epoch(3))
    controller = loaded(TopicFound(topic(), {0: state((1, 2))}))
    controller.image.apply(BrokersChanged(brokers(1, broker(2, life=2), 3)))
    _, effects = step(controller, alter(1, 2, 3, version=2))
    assert isr_answer(effects).error_code == ErrorCode.INELIGIBLE_REPLICA


@pytest.mark.rule("V63")
def test_without_epochs_a_newcomer_passes_only_if_it_was_there_when_the_state_was_written() -> None:
    controller = loaded(TopicFound(topic(), {0: state((1, 2), mzxid=1000)}))
    controller.image.apply(BrokersChanged(brokers(1, 2, broker(3, life=20))))
    writes, effects = step(controller, alter(1, 2, 3, version=2), outcomes={0: Written(mzxid=3000)})
    assert isr_answer(effects).error_code == ErrorCode.FENCED_LEADER_EPOCH
    # All replicas begin another leader epoch: what the leader counts under it is of this life.
    held = state_writes(writes)[TP]
    assert (held.leader, held.isr, held.leader_epoch, held.partition_epoch) == (1, (1, 2), 6, 11)
    roles = [effects.commands[one].roles[TP].state for one in (1, 2, 3)]
    assert [(one.leader_epoch, one.partition_epoch) for one in roles] == [(6, 11)] * 3
    change = alter(1, 2, 3, version=2, leader_epoch=6, partition_epoch=11)
    writes, effects = step(controller, change)
    assert isr_answer(effects).error_code == ErrorCode.NONE
    assert state_writes(writes)[TP].isr_epochs == (epoch(1), epoch(2), epoch(3, life=20))


@pytest.mark.rule("V63")
@pytest.mark.parametrize(
    "alive", [(1, 2), (1, broker(3, life=20))], ids=["no newcomer", "a member less"]
)
def test_no_leader_epoch_is_raised_for_members_that_are_dead(
    alive: tuple[int | BrokerInfo, ...],
) -> None:
    controller = loaded(TopicFound(topic(), {0: state((1, 2), mzxid=1000)}))
    controller.image.apply(BrokersChanged(brokers(*alive)))
    writes, effects = step(controller, alter((1, -1), (2, -1), (3, -1)))
    assert writes == []
    assert isr_answer(effects).error_code == ErrorCode.INELIGIBLE_REPLICA


# G3


def block_for(broker_id: int, ticket: int = 1) -> ProducerIdsAsked:
    return ProducerIdsAsked(ticket, AllocateProducerIdsRequest(broker_id, epoch(broker_id)))


@pytest.mark.rule("G3")
def test_blocks_never_overlap() -> None:
    controller = loaded()
    starts = []
    for _ in range(3):
        _, effects = step(controller, block_for(1, 1), block_for(2, 2))
        starts += [answer_of(effects, ticket).producer_id_start for ticket in (1, 2)]
    assert starts == [number * PRODUCER_ID_BLOCK_SIZE for number in range(6)]


@pytest.mark.rule("G3")
def test_a_block_begins_behind_the_last_one_on_record() -> None:
    controller = loaded()
    writes, _ = step(controller, ProducerIdsRead(LastProducerId(4999, 7)), block_for(1))
    assert writes == [TakeProducerIds(1, 5000, 5999, 7)]


@pytest.mark.rule("G3")
def test_a_block_that_another_controller_took_meanwhile_is_not_given() -> None:
    controller = loaded()
    taken = Conflict(producer_ids=LastProducerId(999, 1))
    _, effects = step(controller, block_for(1), outcomes={0: taken})
    assert effects.answers == []
    _, effects = step(controller)
    assert answer_of(effects).producer_id_start == 1000


@pytest.mark.rule("G3")
def test_ids_of_all_brokers_differ_over_failovers_and_lost_answers(
    three: ControllerHarness,
) -> None:
    given: list[int] = []
    for _ in range(3):
        controller = three.controller()
        controller.store.lose_next_answer()
        for one in three.brokers.values():
            one.view.controller_id = controller.broker_id
            for _ in range(PRODUCER_ID_BLOCK_SIZE // 2):
                taken = one.producer_ids.take()
                if taken is None:
                    waited: list[int | None] = []

                    async def wait(
                        ids: ProducerIds = one.producer_ids, to: list[int | None] = waited
                    ) -> None:
                        to.append(await ids.wait())

                    one.tasks.spawn("wait", wait())
                    three.until(partial(bool, waited))
                    taken = waited[0]
                assert taken is not None
                given.append(taken)
        controller.crash()
        three.until(
            partial(lambda gone: three.controllers not in ([], [gone]), controller.broker_id)
        )
        controller.start()
        three.until(partial(lambda back: "F" in back.script.kinds(), controller))
    assert len(given) == len(set(given)) == 9 * (PRODUCER_ID_BLOCK_SIZE // 2)


@pytest.mark.rule("G3")
def test_the_block_is_recorded_as_kafka_records_it(three: ControllerHarness) -> None:
    controller = three.controller()
    data = layout.encode_producer_id_block(9, 0, 999)
    three.write(SetData(layout.PRODUCER_ID_BLOCK, data, ANY_VERSION))
    request = AllocateProducerIdsRequest(controller.broker_id, controller.broker_epoch)
    answer = three.answer(
        controller,
        lambda shell: shell.ask(request, not_controller),
    )
    assert (answer.producer_id_start, answer.producer_id_len) == (1000, PRODUCER_ID_BLOCK_SIZE)
    node = three.read(layout.PRODUCER_ID_BLOCK)
    assert node is not None
    recorded = layout.decode_producer_id_block("", node.data)
    assert recorded == (controller.broker_id, 1000, 1999)
