"""Rules of the controller: its election, its writes, and its commands to brokers.

V1 to V6 (coordination state), V15 to V17 (writes and commands), V35 (full commands), V40 and V41
(failover), V65 (zombies), V81 (channels), S2 and S3 (the store's failures).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from tests.support.controller.harness import (
    Candidate,
    ControllerHarness,
    controller_harness,
    no_topics,
    others,
)
from tests.support.controller.values import (
    TP,
    alter,
    brokers,
    isr_answer,
    loaded,
    state,
    state_writes,
    step,
    topic,
)
from tests.support.store.clusters import interrupt

from tidelog.broker.controller.runtime import ControllerRuntime
from tidelog.controller.registrations import BrokersRead
from tidelog.controller.state_writes import WritePartitionState
from tidelog.controller.topics.changes import TopicFound
from tidelog.controller.writes import Conflict
from tidelog.core.errors import ErrorCode
from tidelog.core.limits import MAX_TRANSACTION_OPS
from tidelog.core.types import TopicPartition, topic_id_from_text, topic_id_to_text
from tidelog.metadata import layout
from tidelog.metadata.store import ANY_VERSION, Check, Op, OutcomeUnknown, SetData, StoreUnavailable
from tidelog.wire.messages.alter_partition import (
    AlterPartitionRequest,
    BrokerState,
    RequestPartitionData,
    RequestTopicData,
)
from tidelog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tidelog.wire.messages.leader_and_isr import LeaderAndIsrRequest

FULL = 2


@pytest.fixture
def three() -> Iterator[ControllerHarness]:
    with controller_harness(3) as made:
        yield made


def json_at(around: ControllerHarness, path: str) -> dict[str, object]:
    node = around.read(path)
    assert node is not None
    value = json.loads(node.data)
    assert isinstance(value, dict)
    return value


def ask_for(
    around: ControllerHarness, sender: Candidate, *isr: Candidate, broker_epoch: int | None = None
) -> AlterPartitionRequest:
    """AlterPartition for t-0 as its leader would send it now."""
    published = around.state(TP)
    path = layout.topic_path("t")
    node = around.read(path)
    assert node is not None
    data = RequestPartitionData(
        partition_index=0,
        leader_epoch=published.leader_epoch,
        partition_epoch=published.partition_epoch,
        new_isr_with_epochs=[BrokerState(one.broker_id, one.broker_epoch) for one in isr],
    )
    return AlterPartitionRequest(
        broker_id=sender.broker_id,
        broker_epoch=sender.broker_epoch if broker_epoch is None else broker_epoch,
        topics=[RequestTopicData(layout.decode_topic(path, node.data).topic_id, partitions=[data])],
    )


# V1, V3, V40


@pytest.mark.rule("V1", "V40")
def test_there_is_one_controller_and_when_it_goes_one_of_the_others_wins(
    three: ControllerHarness,
) -> None:
    first = three.controller()
    three.pass_time(300)
    assert three.controllers == [first.broker_id]
    first.crash()
    three.until(lambda: three.controllers != [])
    second = three.controller()
    three.pass_time(300)
    assert three.controllers == [second.broker_id]
    assert second is not first


@pytest.mark.rule("V1", "V3")
def test_of_all_that_race_one_alone_takes_office(monkeypatch: pytest.MonkeyPatch) -> None:
    took_office: list[int] = []
    serve = ControllerRuntime._serve

    async def recorded(shell: ControllerRuntime, claim: Any) -> None:
        took_office.append(claim.controller_epoch)
        await serve(shell, claim)

    monkeypatch.setattr(ControllerRuntime, "_serve", recorded)
    with controller_harness(5) as five:
        five.controller().crash()
        five.pass_time(500)
        five.controller()
    assert took_office == [1, 2]


@pytest.mark.rule("V1")
def test_requests_to_another_broker_are_refused(three: ControllerHarness) -> None:
    controller = three.controller()
    [other, _] = others(three, controller)
    result = three.create(other, "t", (1, 2, 3))
    assert result.error_code == ErrorCode.NOT_CONTROLLER
    assert three.children(layout.TOPICS) == []


@pytest.mark.rule("V3")
def test_the_claim_is_ephemeral_and_has_kafkas_form(three: ControllerHarness) -> None:
    controller = three.controller()
    claim = json_at(three, layout.CONTROLLER)
    assert claim["version"] == 2
    assert claim["brokerid"] == controller.broker_id
    assert claim["kraftControllerEpoch"] == -1
    assert str(claim["timestamp"]).isdigit()
    node = three.read(layout.CONTROLLER)
    assert node is not None
    assert node.stat.ephemeral_owner == controller.store.session_id


@pytest.mark.rule("V3")
def test_every_election_raises_the_controller_epoch_in_the_same_transaction(
    three: ControllerHarness,
) -> None:
    seen: list[tuple[bool, bytes | None]] = []

    def watch(*_: object) -> None:
        node = three.server.tree.get(layout.CONTROLLER_EPOCH)
        seen.append(
            (
                three.server.tree.get(layout.CONTROLLER) is not None,
                None if node is None else node.data,
            )
        )

    three.server.on_commit(watch)
    three.controller().crash()
    three.until(lambda: three.controllers != [])
    three.controller()
    claims = [epoch_data or b"" for has_claim, epoch_data in seen if has_claim]
    assert claims[0] == b"1"
    assert claims[-1] == b"2"
    assert (True, None) not in seen
    assert sorted(claims) == claims


@pytest.mark.rule("V3")
def test_an_election_counts_on_the_epoch_that_it_has_read(three: ControllerHarness) -> None:
    first = three.controller()
    rivals = others(three, first)
    for rival in rivals:
        transact = rival.store.transact

        async def late(ops: Any, transact: Any = transact) -> Any:
            # Between the read and the election another controller was elected, and resigned.
            three.server.tree.transact([SetData(layout.CONTROLLER_EPOCH, b"50", ANY_VERSION)], 0)
            for one in rivals:
                del one.store.transact
            return await transact(ops)

        rival.store.transact = late  # type: ignore[method-assign]  # replaced by the test
    first.crash()
    three.until(lambda: len(three.controllers) == 1 and three.controllers != [first.broker_id])
    assert three.controller().controller.controller_epoch == 51


@pytest.mark.rule("V3")
def test_a_deposed_controller_writes_nothing_and_resigns(three: ControllerHarness) -> None:
    controller = three.controller()
    assert three.create(controller, "t", (1, 2, 3)).error_code == ErrorCode.NONE
    before = three.state(TP)
    leader = three.brokers[before.leader]
    request = ask_for(three, leader, leader)
    three.write(SetData(layout.CONTROLLER_EPOCH, b"50", ANY_VERSION))
    answers = three.alter(controller, request)
    three.until(lambda: bool(answers))
    assert answers[0].error_code == ErrorCode.NOT_CONTROLLER
    assert three.state(TP) == before
    three.until(
        lambda: (
            [one.controller.controller_epoch for one in three.brokers.values() if one.is_controller]
            == [51]
        )
    )


@pytest.mark.rule("V3")
def test_every_transaction_of_a_controller_checks_its_epoch(three: ControllerHarness) -> None:
    controller = three.controller()
    transactions: list[list[Op]] = []
    transact = controller.store.transact

    async def recorded(ops: Sequence[Op]) -> Any:
        transactions.append(list(ops))
        return await transact(ops)

    controller.store.transact = recorded  # type: ignore[method-assign]  # replaced by the test
    three.create(controller, "t", (1, 2, 3))
    others(three, controller)[0].crash()
    three.until(lambda: len(three.state(TP).isr) == 2)
    three.delete(controller, "t")
    three.pass_time(500)
    assert len(transactions) >= 3
    checks = [ops[0] for ops in transactions if isinstance(ops[0], Check)]
    assert len(checks) == len(transactions)
    assert all(check.path == layout.CONTROLLER_EPOCH for check in checks)
    assert all(check.version == 0 for check in checks)


@pytest.mark.rule("V40")
def test_the_controllers_own_expired_session_ends_its_term(three: ControllerHarness) -> None:
    controller = three.controller()
    session_id = controller.store.session_id
    assert session_id is not None
    three.server.expire(session_id)
    three.until(lambda: three.controllers != [controller.broker_id])
    three.until(lambda: len(three.controllers) == 1)
    three.until(lambda: controller.broker_epoch != -1)
    three.pass_time(300)
    assert len(three.controllers) == 1


@pytest.mark.rule("V40", "S3")
def test_a_store_that_cannot_be_reached_for_a_while_does_not_end_the_term(
    three: ControllerHarness,
) -> None:
    controller = three.controller()
    name = f"b{controller.broker_id}"
    three.cut_off.append(name)
    wanted = CreateTopicsRequest(topics=[CreatableTopic("t", 1, 3)])
    request = three.ask(controller, lambda shell: shell.create_topics(wanted, no_topics))
    three.pass_time(400)
    assert request == []
    assert three.controllers == [controller.broker_id]
    three.cut_off.clear()
    three.until(lambda: bool(request))
    assert request[0].topics[0].error_code == ErrorCode.NONE
    assert controller.controller.controller_epoch == 1


@pytest.mark.rule("S3")
def test_a_decision_that_cannot_reach_the_store_is_written_when_it_can(
    three: ControllerHarness,
) -> None:
    controller = three.controller()
    commits: list[object] = []
    three.server.on_commit(lambda *commit: commits.append(commit))
    left = interrupt(controller.store, "transact", *[StoreUnavailable("cut off")] * 3)
    result = three.create(controller, "t", (1, 2, 3))
    assert left == [] and result.error_code == ErrorCode.NONE
    assert three.state(TP).isr == (1, 2, 3)
    assert len(commits) == 1, "written once"
    assert three.controllers == [controller.broker_id]
    assert controller.controller.controller_epoch == 1, "in the same term"


@pytest.mark.rule("S2", "S3")
@pytest.mark.parametrize("error", [StoreUnavailable("cut off"), OutcomeUnknown("broke")])
def test_a_decision_of_unknown_outcome_is_read_back_when_the_store_can_be_read(
    three: ControllerHarness, error: Exception
) -> None:
    controller = three.controller()
    controller.store.lose_next_answer()
    left = interrupt(controller.store, "get_many", *[error] * 3)
    result = three.create(controller, "t", (1, 2, 3))
    assert left == [] and result.error_code == ErrorCode.NONE, "it was written, and is known to be"
    assert controller.controller.controller_epoch == 1


@pytest.mark.rule("S3", "V41")
@pytest.mark.parametrize("error", [StoreUnavailable("cut off"), OutcomeUnknown("broke")])
@pytest.mark.parametrize("method", ["get_many", "children"])
def test_a_controller_that_cannot_read_the_store_waits_and_keeps_its_term(
    three: ControllerHarness, method: str, error: Exception
) -> None:
    """What it reads on coming in, and what a watch has announced since."""
    first = three.controller()
    three.create(first, "t", (1, 2, 3))
    left = [interrupt(one.store, method, *[error] * 3) for one in others(three, first)]
    first.crash()
    three.until(lambda: first.broker_id not in three.state(TP).isr)
    [number] = three.controllers
    second = three.brokers[number]
    assert sum(map(len, left)) == 3, "one came in, and met three errors"
    assert second.controller.controller_epoch == 2, "in its first term"
    met = interrupt(second.store, method, *[error] * 3)
    first.start()
    three.until(lambda: "F" in first.script.kinds())
    assert met == []
    assert second.is_controller and second.controller.controller_epoch == 2


# V2


@pytest.mark.rule("V2", "A1")
def test_no_command_or_response_is_sent_before_its_write_is_durable(
    three: ControllerHarness,
) -> None:
    controller = three.controller()
    three.create(controller, "t", (1, 2, 3))
    leader = three.brokers[three.state(TP).leader]
    three.pass_time(100)
    request = ask_for(three, leader, leader)
    name = f"b{controller.broker_id}"
    received = {one.broker_id: len(one.script.received) for one in three.brokers.values()}
    three.cut_off.append(name)
    answers = three.alter(controller, request)
    three.pass_time(300)
    assert answers == []
    assert {one.broker_id: len(one.script.received) for one in three.brokers.values()} == received
    three.cut_off.clear()
    three.until(lambda: bool(answers))
    assert three.state(TP).isr == (leader.broker_id,)


# V4, V5, V6


@pytest.mark.rule("V4", "V10", "V30")
def test_the_broker_epoch_is_the_creation_id_of_the_registration(three: ControllerHarness) -> None:
    controller = three.controller()
    three.create(controller, "t", (1, 2, 3))
    three.pass_time(100)
    for one in three.brokers.values():
        node = three.read(layout.broker_path(one.broker_id))
        assert node is not None
        assert {message.broker_epoch for message in one.script.received} == {node.stat.czxid}
        assert node.stat.ephemeral_owner == one.store.session_id
    assert controller.is_controller


@pytest.mark.rule("V5", "V23")
def test_a_created_topic_has_kafkas_node_with_its_id(three: ControllerHarness) -> None:
    controller = three.controller()
    result = three.create(controller, "t", (2, 3, 1), (3, 1, 2))
    node = json_at(three, layout.topic_path("t"))
    assert node["version"] == 3
    assert node["partitions"] == {"0": [2, 3, 1], "1": [3, 1, 2]}
    assert node["adding_replicas"] == {}
    assert node["removing_replicas"] == {}
    assert topic_id_from_text(str(node["topic_id"])) == result.topic_id
    assert len(topic_id_to_text(result.topic_id)) == 22
    assert three.state(TP).leader == 2


@pytest.mark.rule("V6", "V10")
def test_a_state_node_has_kafkas_keys_and_the_members_broker_epochs(
    three: ControllerHarness,
) -> None:
    controller = three.controller()
    three.create(controller, "t", (2, 3, 1))
    node = json_at(three, layout.partition_state_path(TP))
    assert {key: node[key] for key in ("controller_epoch", "leader", "version")} == {
        "controller_epoch": 1,
        "leader": 2,
        "version": 1,
    }
    assert (node["leader_epoch"], node["isr"]) == (0, [2, 3, 1])
    assert node["isr_epochs"] == [three.brokers[one].broker_epoch for one in (2, 3, 1)]
    assert "leader_recovery_state" not in node


@pytest.mark.rule("V6", "V15")
def test_states_are_written_under_the_version_that_was_read(three: ControllerHarness) -> None:
    controller = three.controller()
    three.create(controller, "t", (1, 2, 3))
    path = layout.partition_state_path(TP)
    victim = others(three, controller)[0]
    before = three.state(TP)
    three.publish(TP, replace(before, leader_epoch=40))
    victim.crash()
    three.until(lambda: victim.broker_id not in three.state(TP).isr)
    node = three.read(path)
    assert node is not None
    assert node.stat.version == before.partition_epoch + 2
    assert three.state(TP).leader_epoch == 41, "what somebody else wrote was written over"


@pytest.mark.rule("V6")
@pytest.mark.parametrize("how", [{"partition_epoch": -1}, {"leader_epoch": -1}])
def test_a_negative_epoch_from_the_wire_never_reaches_the_store(how: dict[str, Any]) -> None:
    writes, effects = step(loaded(), alter(1, 2, **how))
    assert writes == []
    assert isr_answer(effects).error_code == ErrorCode.INVALID_REQUEST


# V15, V16


@pytest.mark.rule("V15", "V16")
def test_only_conflicting_partitions_are_read_and_decided_again() -> None:
    partitions = dict.fromkeys(range(4), (1, 2))
    found = TopicFound(topic("t", partitions), dict.fromkeys(partitions, state((1, 2))))
    controller = loaded(found)
    held = state((2, 1), 2, leader_epoch=8, partition_epoch=30)
    writes, _ = step(controller, BrokersRead(brokers(1)), outcomes={2: Conflict(state=held)})
    assert len(writes) == 4
    writes, _ = step(controller)
    assert list(state_writes(writes)) == [TopicPartition("t", 2)]
    assert isinstance(writes[0], WritePartitionState) and writes[0].expected_epoch == 30


@pytest.mark.rule("V15", "V16")
def test_a_conflict_in_the_store_holds_no_other_partition_back(three: ControllerHarness) -> None:
    controller = three.controller()
    three.create(controller, "t", (1, 2, 3), (1, 2, 3), (1, 2, 3))
    foreign = TopicPartition("t", 1)
    before = three.state(foreign)
    three.publish(foreign, replace(before, leader_epoch=40))
    victim = others(three, controller)[0]
    victim.crash()
    for partition in range(3):
        three.until(
            partial(
                lambda number: victim.broker_id not in three.state(TopicPartition("t", number)).isr,
                partition,
            )
        )
    assert three.state(foreign).partition_epoch == before.partition_epoch + 2
    assert three.state(foreign).leader_epoch == 41
    assert three.state(TP).partition_epoch == before.partition_epoch + 1


@pytest.mark.rule("V16")
def test_many_states_are_written_in_few_bounded_transactions_without_reading_them_again(
    three: ControllerHarness,
) -> None:
    controller = three.controller()
    count = MAX_TRANSACTION_OPS + 100
    three.create(controller, "t", *[(1, 2, 3)] * count)
    three.pass_time(300)
    transactions: list[Any] = []
    reads: list[str] = []
    transact, get_many = controller.store.transact, controller.store.get_many

    async def recorded(ops: Any) -> Any:
        transactions.append(list(ops))
        return await transact(ops)

    async def read(paths: Any) -> Any:
        reads.extend(paths)
        return await get_many(paths)

    controller.store.transact = recorded  # type: ignore[method-assign]  # replaced by the test
    controller.store.get_many = read  # type: ignore[method-assign]  # replaced by the test
    victim = others(three, controller)[0]
    victim.crash()
    three.until(lambda: victim.broker_id not in three.state(TopicPartition("t", count - 1)).isr)
    assert [len(ops) for ops in transactions] == [MAX_TRANSACTION_OPS, 102]
    assert all(isinstance(ops[0], Check) for ops in transactions)
    assert not [path for path in reads if path.startswith(layout.TOPICS)]


# V17, V81


@pytest.mark.rule("V17")
def test_one_request_carries_all_partitions_of_one_event(three: ControllerHarness) -> None:
    controller = three.controller()
    three.create(controller, "t", *[(1, 2, 3)] * 20)
    three.pass_time(200)
    victim, survivor = others(three, controller)
    before = len(survivor.script.of(LeaderAndIsrRequest))
    victim.crash()
    three.until(lambda: len(survivor.script.of(LeaderAndIsrRequest)) > before)
    three.pass_time(200)
    [request] = survivor.script.of(LeaderAndIsrRequest)[before:]
    assert sum(len(told.partition_states) for told in request.topic_states) == 20


@pytest.mark.rule("V17")
def test_live_brokers_are_sent_before_a_role_that_names_them(three: ControllerHarness) -> None:
    controller = three.controller()
    victim, survivor = others(three, controller)
    three.create(controller, "t", (1, 2, 3))
    victim.crash()
    three.until(lambda: victim.broker_id not in three.state(TP).isr)
    three.pass_time(200)
    before = len(survivor.script.received)
    victim.start()
    three.until(lambda: "F" in victim.script.kinds())
    three.pass_time(200)
    [first, *_] = survivor.script.received[before:]
    assert victim.broker_id in [one.id for one in first.live_brokers]
    assert victim.script.kinds()[:2] == ["U", "F"]
    assert len(victim.script.received[0].live_brokers) == 3


@pytest.mark.rule("V17")
def test_propagation_is_not_held_back_unless_it_is_asked_for(three: ControllerHarness) -> None:
    controller = three.controller()
    three.pass_time(300)
    three.begin_create(controller, "t", (1, 2, 3))
    path = layout.partition_state_path(TP)
    three.until(lambda: three.server.tree.get(path) is not None)
    three.until(
        lambda: all(TP in one.script.roles() for one in three.brokers.values()), limit_ms=10
    )


@pytest.mark.rule("V17")
def test_metadata_of_changed_partitions_goes_to_every_broker() -> None:
    controller = loaded(live=brokers(1, 2, 3, 4))
    _, effects = step(controller, alter(1, 2))
    assert list(effects.commands) == [1, 2, 3, 4]
    for commands in effects.commands.values():
        [shown] = commands.shown.values()
        assert (shown.isr, shown.zk_version) == ((1, 2), 11)


@pytest.mark.rule("V17", "V81")
def test_a_stuck_broker_holds_no_other_broker_back(three: ControllerHarness) -> None:
    controller = three.controller()
    stuck, free = others(three, controller)
    stuck.script.silent = True
    three.create(controller, "t", (1, 2, 3))
    three.until(lambda: TP in free.script.roles(), limit_ms=20)
    three.pass_time(1200)
    stuck.script.silent = False
    three.until(lambda: TP in stuck.script.roles())


@pytest.mark.rule("V81", "D3")
def test_commands_that_wait_are_merged_the_last_state_wins(three: ControllerHarness) -> None:
    controller = three.controller()
    stuck, victim = others(three, controller)
    three.pass_time(100)
    stuck.script.unreachable = True
    before = len(stuck.script.of(LeaderAndIsrRequest))
    three.create(controller, "t", (1, 2, 3))
    victim.crash()
    three.until(lambda: victim.broker_id not in three.state(TP).isr)
    stuck.script.unreachable = False
    three.until(lambda: TP in stuck.script.roles())
    three.pass_time(300)
    assert len(stuck.script.of(LeaderAndIsrRequest)) == before + 1
    role = stuck.script.roles()[TP]
    assert (role.is_new, role.isr) == (True, three.state(TP).isr)


@pytest.mark.rule("V81")
def test_a_command_that_was_not_answered_is_repeated_beside_what_came_meanwhile(
    three: ControllerHarness,
) -> None:
    controller = three.controller()
    stuck, _ = others(three, controller)
    three.pass_time(100)
    stuck.script.silent = True
    three.begin_create(controller, "sent", (1, 2, 3))
    three.pass_time(100)
    three.begin_create(controller, "waiting", (1, 2, 3))
    three.pass_time(100)
    stuck.script.silent = False
    three.until(lambda: TopicPartition("waiting", 0) in stuck.script.roles())
    assert TopicPartition("sent", 0) in stuck.script.roles()


# V65


@pytest.mark.rule("V65")
def test_a_leader_without_its_registration_changes_no_isr(three: ControllerHarness) -> None:
    controller = three.controller()
    zombie = others(three, controller)[0]
    rest = [one for one in three.brokers.values() if one is not zombie]
    three.create(controller, "t", (zombie.broker_id, *[one.broker_id for one in rest]))
    request = ask_for(three, zombie, zombie)
    old_epoch = zombie.broker_epoch
    session_id = zombie.store.session_id
    assert session_id is not None
    three.server.expire(session_id)
    three.until(lambda: three.state(TP).leader != zombie.broker_id)
    for answers in (three.alter(controller, request), three.alter(controller, request)):
        three.until(partial(bool, answers))
        assert answers[0].error_code == ErrorCode.STALE_BROKER_EPOCH
    three.until(lambda: zombie.broker_epoch not in (-1, old_epoch))
    three.pass_time(200)
    answers = three.alter(controller, request)
    three.until(lambda: bool(answers))
    assert answers[0].error_code == ErrorCode.STALE_BROKER_EPOCH
    assert zombie.broker_id not in three.state(TP).isr


@pytest.mark.rule("V65")
def test_a_deposed_leader_that_still_lives_is_fenced() -> None:
    controller = loaded(TopicFound(topic(), {0: state((2, 3), leader_epoch=6)}))
    writes, effects = step(controller, alter(1, sender=1, leader_epoch=5, partition_epoch=9))
    assert writes == []
    assert isr_answer(effects).error_code == ErrorCode.FENCED_LEADER_EPOCH


# S2


@pytest.mark.rule("S2")
@pytest.mark.parametrize("lose", ["lose_next_answer", "lose_next_request"])
def test_an_unknown_outcome_is_settled_before_any_command_is_sent(
    three: ControllerHarness, lose: str
) -> None:
    controller = three.controller()
    three.create(controller, "t", (1, 2, 3))
    leader = three.brokers[three.state(TP).leader]
    three.pass_time(100)
    request = ask_for(three, leader, leader)
    getattr(controller.store, lose)()
    answers = three.alter(controller, request)
    three.until(lambda: bool(answers))
    [data] = answers[0].topics[0].partitions
    published = three.state(TP)
    assert (data.error_code, data.partition_epoch) == (0, published.partition_epoch)
    assert (published.isr, published.partition_epoch) == ((leader.broker_id,), 1)


@pytest.mark.rule("S2")
@pytest.mark.parametrize("lose", ["lose_next_answer", "lose_next_request"])
def test_an_election_of_unknown_outcome_is_read_back(three: ControllerHarness, lose: str) -> None:
    first = three.controller()
    for one in others(three, first):
        getattr(one.store, lose)()
    first.crash()
    three.until(lambda: len(three.controllers) == 1 and three.controllers != [first.broker_id])
    three.controller()
    three.pass_time(500)
    assert len(three.controllers) == 1
    node = three.read(layout.CONTROLLER)
    [winner] = three.controllers
    assert node is not None
    assert node.stat.ephemeral_owner == three.brokers[winner].store.session_id
