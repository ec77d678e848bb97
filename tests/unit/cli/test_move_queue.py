"""`tidelog reassign queue|freeze|unfreeze` against fake brokers, and what others say of a queue."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.client.fake_logs import FakeLogs
from tests.unit.cli.test_commands import Shell
from tests.unit.cli.test_reassigning import accept, moves_to

from tidelog.cli import documents
from tidelog.wire.messages.alter_partition_reassignments import (
    FREEZE,
    KEEP_THROTTLE,
    UNFREEZE,
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from tidelog.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
    QueuedReassignment,
)
from tidelog.wire.registry import ALTER_PARTITION_REASSIGNMENTS, LIST_PARTITION_REASSIGNMENTS


@pytest.fixture
def logs() -> Iterator[FakeLogs]:
    made = FakeLogs()
    made.create("flights", 2)
    accept(made, 0, 0)
    listed(made)
    yield made
    made.close()


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, capfd: Any, logs: FakeLogs) -> Shell:
    monkeypatch.setattr("tidelog.cli.move_execution._SETTLING_S", 0.2)
    return Shell(monkeypatch, capfd, logs.bootstrap)


def listed(
    logs: FakeLogs,
    *queued: QueuedReassignment,
    moving: tuple[OngoingPartitionReassignment, ...] = (),
    frozen: bool = False,
    knows_queue: bool = True,
) -> None:
    """The controller has this queue, and these moves under way."""
    answer = ListPartitionReassignmentsResponse(
        topics=[OngoingTopicReassignment("flights", list(moving))] if moving else [],
        queued=list(queued),
        frozen=frozen,
        knows_queue=knows_queue,
    )
    logs[1].on(LIST_PARTITION_REASSIGNMENTS, lambda _: answer)


WAITS = QueuedReassignment("flights", 1, [2, 1], "brokers [2] are not alive")


def ended(asked: AlterPartitionReassignmentsRequest) -> dict[int, list[list[int]]]:
    """The targets of the moves that a request ends, by partition."""
    return {
        each.partition_index: [list(target.replicas) for target in each.ended_targets]
        for each in asked.topics[0].partitions
    }


class TestQueue:
    def test_a_file_is_queued(self, shell: Shell, logs: FakeLogs) -> None:
        words = ("reassign", "queue", "--json", moves_to([1, 2], [2]), "--throttle", "5000000")
        rows = shell.json(list[documents.MoveBegun], *words)
        assert [each["result"] for each in rows] == ["queued", "queued"]
        (asked,) = logs[1].asked(ALTER_PARTITION_REASSIGNMENTS)
        assert (asked.queued, asked.throttle) == (True, 5_000_000)

    def test_a_refusal_has_its_reason_and_the_exit_code(self, shell: Shell, logs: FakeLogs) -> None:
        accept(logs, 0, 60)
        printed = shell("reassign", "queue", "--json", moves_to([2], [2]), code=1)
        assert "queued" in printed and "REASSIGNMENT_IN_PROGRESS" in printed
        assert "1 of 2 moves were refused" in shell.err

    def test_a_dry_run_queues_nothing(self, shell: Shell, logs: FakeLogs) -> None:
        words = ("reassign", "queue", "--json", moves_to([1], [1, 1]), "--dry-run")
        printed = shell(*words, code=1)
        assert "would_queue" in printed and "flights-1 names a broker twice: 1,1" in printed
        listed(logs, frozen=True)
        assert "would_queue" in shell("reassign", "queue", "--json", moves_to([1]), "--dry-run")
        listed(logs, WAITS)
        printed = shell("reassign", "queue", "--json", moves_to([1]), "--dry-run", code=1)
        assert "there is a queue of 1 moves already" in printed
        assert logs[1].asked(ALTER_PARTITION_REASSIGNMENTS) == []

    def test_a_controller_of_kafka_is_not_asked(self, shell: Shell, logs: FakeLogs) -> None:
        """It would begin all moves at once."""
        listed(logs, knows_queue=False)
        shell("reassign", "queue", "--json", moves_to([2]), code=1)
        assert "neither queues nor freezes" in shell.err
        assert logs[1].asked(ALTER_PARTITION_REASSIGNMENTS) == []

    def test_without_a_file_it_shows_why_each_move_waits(
        self, shell: Shell, logs: FakeLogs
    ) -> None:
        listed(logs, WAITS, frozen=True)
        (one,) = shell.json(list[documents.MoveInQueue], "reassign", "queue")
        assert one == {
            "topic": "flights",
            "partition": 1,
            "target": [2, 1],
            "reason": "brokers [2] are not alive",
        }
        assert "reassignments are frozen: none begins" in shell.err
        assert "brokers [2] are not alive" in shell("reassign", "queue")
        listed(logs)
        assert shell("reassign", "queue") == ""
        assert "no move is queued" in shell.err

    def test_it_waits_until_the_queued_moves_are_done(self, shell: Shell, logs: FakeLogs) -> None:
        moving = OngoingTopicReassignment(
            "flights", [OngoingPartitionReassignment(1, [2, 1], [2], [1])]
        )
        answers = [
            ListPartitionReassignmentsResponse(knows_queue=True),
            ListPartitionReassignmentsResponse(queued=[WAITS]),
            ListPartitionReassignmentsResponse(topics=[moving]),
            ListPartitionReassignmentsResponse(),
        ]
        logs[1].on(LIST_PARTITION_REASSIGNMENTS, lambda _: answers.pop(0))
        shell("reassign", "queue", "--json", moves_to([1], [1]), "--wait")
        assert answers == []

    def test_a_move_that_left_the_queue_without_being_made_is_named(
        self, shell: Shell, logs: FakeLogs
    ) -> None:
        printed = shell("reassign", "queue", "--json", moves_to([1], [2]), "--wait", code=1)
        assert "accepted, but it was cancelled or replaced meanwhile; the replicas are 1" in printed
        assert "1 of 2 moves did not reach their targets" in shell.err


class TestFreeze:
    def test_nothing_begins_until_it_is_ended(self, shell: Shell, logs: FakeLogs) -> None:
        logs[1].on(ALTER_PARTITION_REASSIGNMENTS, lambda _: AlterPartitionReassignmentsResponse())
        move = OngoingPartitionReassignment(0, [2, 1], [2], [1])
        listed(logs, WAITS, moving=(move,))
        shell("reassign", "freeze")
        assert "reassignments are frozen: none begins; 1 are under way and go on" in shell.err
        shell("reassign", "unfreeze")
        assert "reassignments are not frozen; 1 moves are queued" in shell.err
        asked = logs[1].asked(ALTER_PARTITION_REASSIGNMENTS)
        assert [(each.freeze, each.topics) for each in asked] == [(FREEZE, []), (UNFREEZE, [])]

    def test_a_controller_of_kafka_cannot(self, shell: Shell, logs: FakeLogs) -> None:
        listed(logs, knows_queue=False)
        shell("reassign", "freeze", code=1)
        assert "neither queues nor freezes" in shell.err


class TestOthers:
    def test_verify_knows_what_is_queued(self, shell: Shell, logs: FakeLogs) -> None:
        listed(logs, WAITS)
        words = ("reassign", "verify", "--json", moves_to([1], [2, 1]))
        printed = shell(*words, code=1)
        assert "done" in printed and "queued" in printed and "elsewhere" not in printed
        printed = shell("reassign", "verify", "--json", moves_to([1], [3]), code=1)
        assert "queued_elsewhere" in printed

    @pytest.mark.rule("R12")
    def test_verify_knows_whether_a_move_is_of_that_very_request(
        self, shell: Shell, logs: FakeLogs
    ) -> None:
        listed(logs, moving=(OngoingPartitionReassignment(0, [2, 1], [2], [1], [1], 77),))
        words = ("reassign", "verify", "--json", moves_to([2]), "--request-id")
        assert "moving" in shell(*words, "77", code=1)
        assert "changed" in shell(*words, "78", code=1)
        listed(logs)
        assert "changed" in shell(*words, "77", code=1), "it is over, and elsewhere"
        for number in ("77", "4711"):
            told = shell("reassign", "verify", "--json", moves_to([1]), "--request-id", number)
            assert "in_place" in told
            assert "done" not in told, "no request is recorded after its end"

    def test_a_cancel_takes_moves_out_of_the_queue(self, shell: Shell, logs: FakeLogs) -> None:
        listed(logs, WAITS)
        (one,) = shell.json(list[documents.MoveCancelled], "reassign", "cancel", "--all")
        assert (one["partition"], one["result"], one["target"]) == (1, "cancelled", [2, 1])
        (asked,) = logs[1].asked(ALTER_PARTITION_REASSIGNMENTS)
        assert [each.replicas for each in asked.topics[0].partitions] == [None]
        assert asked.throttle == KEEP_THROTTLE

    def test_a_cancel_ends_what_was_listed_and_nothing_newer(
        self, shell: Shell, logs: FakeLogs
    ) -> None:
        moving = OngoingPartitionReassignment(1, [3, 1], [3], [1])
        listed(logs, WAITS, moving=(moving,))
        shell("reassign", "cancel", "--all")
        (asked,) = logs[1].asked(ALTER_PARTITION_REASSIGNMENTS)
        assert ended(asked) == {1: [[3], [2, 1]]}

    @pytest.mark.parametrize(
        ("broker", "partitions"), [(2, {1: [[2, 1]]}), (3, {0: [[3]]}), (4, {0: [[3]]})]
    )
    def test_a_cancel_for_a_broker_sees_all_that_concerns_it(
        self, shell: Shell, logs: FakeLogs, broker: int, partitions: dict[int, list[list[int]]]
    ) -> None:
        """Partition 0 goes from broker 4 to 3; partition 1 is on broker 1, queued for 2 and 1."""
        listed(logs, WAITS, moving=(OngoingPartitionReassignment(0, [3, 4], [3], [4], [4]),))
        shell("reassign", "cancel", "--broker", str(broker))
        (asked,) = logs[1].asked(ALTER_PARTITION_REASSIGNMENTS)
        assert ended(asked) == partitions

    def test_a_cancel_for_a_broker_sees_what_is_to_leave_it(
        self, shell: Shell, logs: FakeLogs
    ) -> None:
        """Partition 1 is on broker 1, and queued for others."""
        listed(logs, QueuedReassignment("flights", 1, [2, 3]), QueuedReassignment("gone", 0, [2]))
        rows = shell.json(list[documents.MoveCancelled], "reassign", "cancel", "--broker", "1")
        assert [(each["topic"], each["partition"]) for each in rows] == [("flights", 1)]

    def test_the_list_says_how_many_wait(self, shell: Shell, logs: FakeLogs) -> None:
        listed(logs, WAITS, frozen=True)
        shell("reassign", "list")
        assert "1 moves are queued: tidelog reassign queue shows why each waits" in shell.err
        assert "reassignments are frozen" in shell.err
