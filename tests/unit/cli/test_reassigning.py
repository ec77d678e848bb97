"""`tidelog reassign` against fake brokers: what a file must be, what is asked, what is told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.client.fake_logs import FakeLogs
from tests.unit.cli.test_commands import Shell

from tidelog.cli import documents
from tidelog.cli.reassignment_files import ReassignmentFileError, targets_of
from tidelog.core.types import TopicPartition
from tidelog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from tidelog.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from tidelog.wire.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)
from tidelog.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from tidelog.wire.registry import (
    ALTER_PARTITION_REASSIGNMENTS,
    DESCRIBE_LOG_DIRS,
    INCREMENTAL_ALTER_CONFIGS,
    LIST_PARTITION_REASSIGNMENTS,
)


@pytest.fixture
def logs() -> Iterator[FakeLogs]:
    made = FakeLogs()
    made.create("flights", 2)
    accept(made, 0, 0)
    under_way(made)
    yield made
    made.close()


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, capfd: Any, logs: FakeLogs) -> Shell:
    monkeypatch.setattr("tidelog.cli.move_execution._SETTLING_S", 0.2)
    return Shell(monkeypatch, capfd, logs.bootstrap)


def accept(logs: FakeLogs, *codes: int) -> None:
    """The controller answers so for the partitions."""
    told = [
        ReassignablePartitionResponse(number, code, "broker 9 is dead" if code else None)
        for number, code in enumerate(codes)
    ]
    answer = AlterPartitionReassignmentsResponse(
        responses=[ReassignableTopicResponse("flights", told)]
    )
    logs[1].on(ALTER_PARTITION_REASSIGNMENTS, lambda _: answer)


def under_way(logs: FakeLogs, *moves: OngoingPartitionReassignment) -> None:
    """These moves are under way."""
    topics = [OngoingTopicReassignment("flights", list(moves))] if moves else []
    answer = ListPartitionReassignmentsResponse(topics=topics)
    logs[1].on(LIST_PARTITION_REASSIGNMENTS, lambda _: answer)


def moves_to(*targets: list[int]) -> str:
    """What a file holds."""
    entries = [
        {"topic": "flights", "partition": number, "replicas": target}
        for number, target in enumerate(targets)
    ]
    return json.dumps({"version": 1, "partitions": entries})


class TestExecute:
    def test_a_file_is_asked_for(self, shell: Shell, logs: FakeLogs, tmp_path: Path) -> None:
        path = tmp_path / "moves.json"
        path.write_text(moves_to([1, 2], [2]))
        first, second = shell.json(list[documents.MoveBegun], "reassign", "execute", str(path))
        assert (first["result"], first["replicas_before"], first["replicas"]) == (
            "accepted",
            [1],
            [1, 2],
        )
        assert second["replicas"] == [2]
        (asked,) = logs[1].asked(ALTER_PARTITION_REASSIGNMENTS)
        assert [tuple(one.replicas) for one in asked.topics[0].partitions] == [(1, 2), (2,)]

    def test_a_refused_move_is_told_with_the_reason(self, shell: Shell, logs: FakeLogs) -> None:
        accept(logs, 0, 39)
        told = shell("reassign", "execute", "--json", moves_to([2], [9]), code=1)
        assert "INVALID_REPLICA_ASSIGNMENT" in told and "broker 9 is dead" in told
        assert "1 of 2 moves were refused" in shell.err
        back = '"partitions": [{"topic": "flights", "partition": 0, "replicas": [1]}]'
        assert back in shell.err, "only what moves can be moved back"

    def test_there_is_no_way_back_where_nothing_moves(self, shell: Shell, logs: FakeLogs) -> None:
        accept(logs, 39, 39)
        shell("reassign", "execute", "--json", moves_to([9], [9]), code=1)
        assert "2 of 2 moves were refused" in shell.err
        assert "to move them back" not in shell.err

    def test_the_way_back_is_printed_or_saved(
        self, shell: Shell, logs: FakeLogs, tmp_path: Path
    ) -> None:
        shell("reassign", "execute", "--json", moves_to([2]))
        back = (
            '{"version": 1, "partitions": [{"topic": "flights", "partition": 0, "replicas": [1]}]}'
        )
        assert f"to move them back once they are moved, execute: {back}" in shell.err
        saved = tmp_path / "back.json"
        shell("reassign", "execute", "--json", moves_to([2]), "--save-rollback", str(saved))
        assert saved.read_text() == back + "\n"
        assert targets_of(json.loads(saved.read_text()), "it") == {
            TopicPartition("flights", 0): (1,)
        }

    def test_a_second_batch_is_refused_unless_it_is_additional(
        self, shell: Shell, logs: FakeLogs
    ) -> None:
        under_way(logs, OngoingPartitionReassignment(1, [2, 1], [2], [1]))
        shell("reassign", "execute", "--json", moves_to([2]), code=1)
        assert "partitions are on the move already (1, the first is flights-1)" in shell.err
        assert logs[1].asked(ALTER_PARTITION_REASSIGNMENTS) == []
        assert "accepted" in shell("reassign", "execute", "--json", moves_to([2]), "--additional")

    @pytest.mark.rule("R18")
    def test_a_file_made_for_other_replicas_moves_nothing(
        self, shell: Shell, logs: FakeLogs
    ) -> None:
        document = json.loads(moves_to([2], [3]))
        document["partitions"][0]["expected_replicas"] = [1]
        document["partitions"][1]["expected_replicas"] = [2, 1]
        shell("reassign", "execute", "--json", json.dumps(document), code=1)
        assert "nothing was moved: flights-1 has 1 and not 2,1." in shell.err
        assert logs[1].asked(ALTER_PARTITION_REASSIGNMENTS) == []
        document["partitions"][1]["expected_replicas"] = [1]
        shell("reassign", "execute", "--json", json.dumps(document))
        (asked,) = logs[1].asked(ALTER_PARTITION_REASSIGNMENTS)
        assert [list(one.expected_replicas) for one in asked.topics[0].partitions] == [[1], [1]]
        document["partitions"][1]["expected_replicas"] = "1"
        shell("reassign", "execute", "--json", json.dumps(document), code=1)
        assert "partitions[1]: expected_replicas is '1': broker ids expected" in shell.err

    def test_nothing_moves_without_the_file_for_the_way_back(
        self, shell: Shell, logs: FakeLogs, tmp_path: Path
    ) -> None:
        where = str(tmp_path / "missing" / "back.json")
        shell("reassign", "execute", "--json", moves_to([2]), "--save-rollback", where, code=1)
        assert "cannot be written, and nothing was moved" in shell.err
        assert logs[1].asked(ALTER_PARTITION_REASSIGNMENTS) == []

    def test_a_partition_on_the_move_goes_back_to_where_it_began(
        self, shell: Shell, logs: FakeLogs, tmp_path: Path
    ) -> None:
        under_way(logs, OngoingPartitionReassignment(0, [2, 3, 1], [2], [3, 1], [3, 1]))
        saved, more = tmp_path / "back.json", ("--additional", "--save-rollback")
        shell("reassign", "execute", "--json", moves_to([3], [2]), *more, str(saved))
        assert targets_of(json.loads(saved.read_text()), "it") == {
            TopicPartition("flights", 0): (3, 1),
            TopicPartition("flights", 1): (1,),
        }

    def test_a_move_that_began_elsewhere_has_no_way_back_in_the_file(
        self, shell: Shell, logs: FakeLogs, tmp_path: Path
    ) -> None:
        under_way(logs, OngoingPartitionReassignment(0, [2, 1], [2], [1]))
        saved, more = tmp_path / "back.json", ("--additional", "--save-rollback")
        shell("reassign", "execute", "--json", moves_to([3], [2]), *more, str(saved))
        assert list(targets_of(json.loads(saved.read_text()), "it")) == [
            TopicPartition("flights", 1)
        ]
        assert "the way back has no flights-0: on the move, from where is not recorded" in shell.err

    def test_a_dry_run_asks_for_nothing(self, shell: Shell, logs: FakeLogs, tmp_path: Path) -> None:
        saved = tmp_path / "back.json"
        words = ("reassign", "execute", "--dry-run", "--save-rollback", str(saved), "--json")
        assert "would_move" in shell(*words, moves_to([1]))
        assert logs[1].asked(ALTER_PARTITION_REASSIGNMENTS) == []
        assert not saved.exists()

    def test_a_dry_run_foresees_refusals(self, shell: Shell, logs: FakeLogs) -> None:
        words = ("reassign", "execute", "--dry-run", "--json")
        printed = shell(*words, moves_to([9, 1], [1, 1]), code=1)
        assert "flights-0 names brokers 9, live brokers are 1" in printed
        assert "flights-1 names a broker twice: 1,1" in printed
        assert "2 of 2 moves were refused" in shell.err
        answer = ListPartitionReassignmentsResponse(frozen=True)
        logs[1].on(LIST_PARTITION_REASSIGNMENTS, lambda _: answer)
        assert "POLICY_VIOLATION" in shell(*words, moves_to([1]), code=1)

    def test_an_earlier_way_back_is_not_replaced(
        self, shell: Shell, logs: FakeLogs, tmp_path: Path
    ) -> None:
        saved = tmp_path / "back.json"
        words = ("reassign", "execute", "--save-rollback", str(saved), "--json")
        saved.write_text("the way back of earlier moves")
        shell(*words, moves_to([2]), code=1)
        assert "exists, and nothing was moved: it may be the way back of earlier" in shell.err
        assert saved.read_text() == "the way back of earlier moves"
        assert logs[1].asked(ALTER_PARTITION_REASSIGNMENTS) == []
        saved.unlink()
        shell(*words, moves_to([2]))
        shell(*words, moves_to([2]))
        assert len(logs[1].asked(ALTER_PARTITION_REASSIGNMENTS)) == 2, "the same way back"

    def test_it_waits_until_nothing_is_being_moved(self, shell: Shell, logs: FakeLogs) -> None:
        answers = [
            ListPartitionReassignmentsResponse(),
            ListPartitionReassignmentsResponse(
                topics=[
                    OngoingTopicReassignment(
                        "flights", [OngoingPartitionReassignment(0, [2, 1], [2], [1])]
                    )
                ]
            ),
            ListPartitionReassignmentsResponse(),
        ]
        logs[1].on(LIST_PARTITION_REASSIGNMENTS, lambda _: answers.pop(0))
        shell("reassign", "execute", "--json", moves_to([1]), "--wait")
        assert answers == []

    def test_a_move_that_was_cancelled_while_waited_for_is_no_success(
        self, shell: Shell, logs: FakeLogs
    ) -> None:
        printed = shell("reassign", "execute", "--json", moves_to([1], [2]), "--wait", code=1)
        assert "accepted, but it was cancelled or replaced meanwhile; the replicas are 1" in printed
        assert "1 of 2 moves did not reach their targets" in shell.err

    def test_a_partition_that_was_deleted_while_waited_for_is_no_success(
        self, shell: Shell, logs: FakeLogs
    ) -> None:
        def delete(_: Any) -> Any:
            del logs.topics["flights"]
            return accepted

        accepted = logs[1].handler(ALTER_PARTITION_REASSIGNMENTS)(None)
        logs[1].on(ALTER_PARTITION_REASSIGNMENTS, delete)
        printed = shell("reassign", "execute", "--json", moves_to([2]), "--wait", code=1)
        assert "accepted, but the partition was deleted meanwhile" in printed

    def test_one_of_the_two_is_needed(self, shell: Shell) -> None:
        shell("reassign", "execute", code=2)
        assert "give FILE, or --json" in shell.err
        shell("reassign", "execute", "x.json", "--json", "{}", code=2)
        assert "give FILE, or --json" in shell.err

    def test_a_partition_that_is_not_there(self, shell: Shell) -> None:
        text = moves_to([1], [1], [1])
        shell("reassign", "execute", "--json", text, code=1)
        assert "there is no partition flights-2" in shell.err

    def test_a_file_that_is_not_there(self, shell: Shell, tmp_path: Path) -> None:
        shell("reassign", "execute", str(tmp_path / "none.json"), code=1)
        assert "No such file" in shell.err


class TestList:
    def test_what_is_under_way(self, shell: Shell, logs: FakeLogs) -> None:
        under_way(logs, OngoingPartitionReassignment(1, [3, 2, 1], [3], [1], [1, 2]))
        sizes = [DescribeLogDirsPartition(1, 700, 0, False)]
        directory = DescribeLogDirsResult(0, "/data", [DescribeLogDirsTopic("flights", sizes)])
        logs[1].on(DESCRIBE_LOG_DIRS, lambda _: DescribeLogDirsResponse(results=[directory]))
        (one,) = shell.json(list[documents.MoveListed], "reassign", "list")
        assert "broker 3 does not report its bytes" in shell.err
        assert one == {
            "topic": "flights",
            "partition": 1,
            "replicas": [3, 2, 1],
            "adding": [3],
            "removing": [1],
            "target": [3, 2],
            "original": [1, 2],
            "state": "adding",
            "done_bytes": None,
            "left_bytes": None,
            "bytes_per_s": None,
            "left_ms": None,
            "never": False,
            "throttle": None,
            "throttle_configured": None,
            "paused": "",
            "request_id": None,
        }
        assert "3,2,1" in shell("reassign", "list")

    def test_nothing(self, shell: Shell) -> None:
        assert shell("reassign", "list") == ""
        assert "no partition is being moved" in shell.err
        assert "throttle" not in shell.err


class TestConfiguredThrottles:
    """What kafka-reassign-partitions --execute --throttle leaves behind."""

    TOPIC_KEYS = (
        "leader.replication.throttled.replicas",
        "follower.replication.throttled.replicas",
    )

    @pytest.fixture(autouse=True)
    def throttled(self, logs: FakeLogs) -> None:
        logs.configs[2, "flights"] = dict.fromkeys(self.TOPIC_KEYS, ("1:1,1:3", 1))
        logs.configs[4, "1"] = {
            "leader.replication.throttled.rate": ("1048576", 2),
            "follower.replication.throttled.rate": (str(2**63 - 1), 5),
            "replica.alter.log.dirs.io.max.bytes.per.second": ("2048", 3),
        }

    def test_moves_show_the_rate_that_holds_them(self, shell: Shell, logs: FakeLogs) -> None:
        under_way(logs, OngoingPartitionReassignment(1, [3, 1], [3], [1], [1]))
        logs[1].on(DESCRIBE_LOG_DIRS, lambda _: DescribeLogDirsResponse())
        (one,) = shell.json(list[documents.MoveListed], "reassign", "list")
        assert one["throttle_configured"] == 1_048_576
        assert "1.0 MiB/s (configured)" in shell("reassign", "list")

    def test_those_that_stay_are_said_with_the_way_to_remove_them(self, shell: Shell) -> None:
        shell("reassign", "list")
        assert "configured throttle: leader.replication.throttled.rate=1.0 MiB/s of broker 1" in (
            shell.err
        )
        assert "follower.replication.throttled.replicas=1:1,1:3 of topic 'flights'" in shell.err
        assert "tidelog reassign cancel --throttles removes them" in shell.err
        assert "follower.replication.throttled.rate" not in shell.err, "that is the default"

    def test_they_are_removed_of_topics_of_brokers_and_of_all_brokers(
        self, shell: Shell, logs: FakeLogs
    ) -> None:
        logs[1].on(INCREMENTAL_ALTER_CONFIGS, _altered)
        rows = shell.json(list[documents.ThrottleRemoved], "reassign", "cancel", "--throttles")
        assert [(row["entity"], row["name"], row["key"]) for row in rows] == [
            ("topic", "flights", self.TOPIC_KEYS[1]),
            ("topic", "flights", self.TOPIC_KEYS[0]),
            ("brokers", None, "replica.alter.log.dirs.io.max.bytes.per.second"),
            ("broker", "1", "leader.replication.throttled.rate"),
        ]
        assert {row["result"] for row in rows} == {"removed"}
        changes = [
            (resource.resource_type, resource.resource_name, config.name, config.config_operation)
            for asked in logs[1].asked(INCREMENTAL_ALTER_CONFIGS)
            for resource in asked.resources
            for config in resource.configs
        ]
        assert sorted(changes) == [
            (2, "flights", self.TOPIC_KEYS[1], 1),
            (2, "flights", self.TOPIC_KEYS[0], 1),
            (4, "", "replica.alter.log.dirs.io.max.bytes.per.second", 1),
            (4, "1", "leader.replication.throttled.rate", 1),
        ]

    def test_a_topic_alone_and_a_dry_run(self, shell: Shell, logs: FakeLogs) -> None:
        logs[1].on(INCREMENTAL_ALTER_CONFIGS, _altered)
        told = shell("reassign", "cancel", "--throttles", "--topic", "flights", "--dry-run")
        assert "would_remove" in told and "brokers" not in told
        assert all(asked.validate_only for asked in logs[1].asked(INCREMENTAL_ALTER_CONFIGS))
        shell("reassign", "cancel", "--throttles", "--all", code=2)

    def test_there_is_none(self, shell: Shell, logs: FakeLogs) -> None:
        logs.configs.clear()
        assert shell("reassign", "cancel", "--throttles") == ""
        assert "no throttle is configured" in shell.err


def _altered(request: Any) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(0, None, each.resource_type, each.resource_name)
            for each in request.resources
        ]
    )


class TestCancel:
    MOVES = (
        OngoingPartitionReassignment(0, [2, 1], [2], [1]),
        OngoingPartitionReassignment(1, [3, 1], [3], [1]),
    )

    def test_all_moves_are_sent_back(self, shell: Shell, logs: FakeLogs) -> None:
        under_way(logs, *self.MOVES)
        first, second = shell.json(list[documents.MoveCancelled], "reassign", "cancel", "--all")
        assert (first["result"], first["replicas"], first["target"]) == ("cancelled", [2, 1], [2])
        assert second["target"] == [3]
        (asked,) = logs[1].asked(ALTER_PARTITION_REASSIGNMENTS)
        assert [one.replicas for one in asked.topics[0].partitions] == [None, None]

    @pytest.mark.parametrize(
        ("option", "numbers"),
        [(("--topic", "flights"), [0, 1]), (("--topic", "quiet"), []), (("--broker", "3"), [1])],
    )
    def test_the_moves_of_a_topic_or_a_broker(
        self, shell: Shell, logs: FakeLogs, option: tuple[str, str], numbers: list[int]
    ) -> None:
        logs.create("quiet", 1)
        under_way(logs, *self.MOVES)
        words = ("reassign", "cancel", *option, "--dry-run")
        told = shell.json(list[documents.MoveCancelled], *words)
        assert [(one["partition"], one["result"]) for one in told] == [
            (number, "would_cancel") for number in numbers
        ]
        assert logs[1].asked(ALTER_PARTITION_REASSIGNMENTS) == []

    def test_a_selection_without_a_move(self, shell: Shell, logs: FakeLogs) -> None:
        logs.create("quiet", 1)
        under_way(logs, *self.MOVES)
        shell("reassign", "cancel", "--topic", "quiet")
        assert "none of the 2 partitions on the move or queued is among those named" in shell.err
        shell("reassign", "cancel", "--topic", "flight", code=1)
        assert "there is no topic 'flight'; did you mean flights?" in shell.err
        assert logs[1].asked(ALTER_PARTITION_REASSIGNMENTS) == []

    def test_the_moves_of_a_file_and_a_refusal(self, shell: Shell, logs: FakeLogs) -> None:
        under_way(logs, self.MOVES[0])
        accept(logs, 0, 85)
        told = shell("reassign", "cancel", "--json", moves_to([2], [3]), code=1)
        assert "cancelled" in told and "NO_REASSIGNMENT_IN_PROGRESS" in told
        assert "1 of 2 cancels were refused" in shell.err

    def test_a_dry_run_names_what_is_not_on_the_move(self, shell: Shell, logs: FakeLogs) -> None:
        under_way(logs, self.MOVES[0])
        words = ("reassign", "cancel", "--json", moves_to([2], [3]), "--dry-run")
        told = shell(*words, code=1)
        assert "would_cancel" in told and "NO_REASSIGNMENT_IN_PROGRESS" in told
        assert logs[1].asked(ALTER_PARTITION_REASSIGNMENTS) == []

    def test_nothing_to_cancel(self, shell: Shell, logs: FakeLogs) -> None:
        shell("reassign", "cancel", "--all")
        assert "no partition is being moved" in shell.err
        assert logs[1].asked(ALTER_PARTITION_REASSIGNMENTS) == []

    @pytest.mark.parametrize("words", [(), ("--all", "--topic", "t"), ("--broker", "1", "x.json")])
    def test_one_selection_is_needed(self, shell: Shell, words: tuple[str, ...]) -> None:
        shell("reassign", "cancel", *words, code=2)
        assert "give one of FILE, --json, --all, --topic and --broker" in shell.err


class TestVerify:
    def test_every_state_has_its_word(self, shell: Shell, logs: FakeLogs) -> None:
        text = moves_to([1], [1])
        states = [
            one["state"]
            for one in shell.json(
                list[documents.MoveVerified], "reassign", "verify", "--json", text
            )
        ]
        assert states == ["done", "done"]
        under_way(logs, OngoingPartitionReassignment(0, [2, 1], [2], [1]))
        told = shell("reassign", "verify", "--json", moves_to([2], [2]), code=1)
        assert "moving" in told and "elsewhere" in told
        assert "2 of 2 partitions are not where they are wanted" in shell.err
        told = shell("reassign", "verify", "--json", moves_to([3]), code=1)
        assert "moving_elsewhere" in told


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ([], "f lists no partitions"),
        ({"partitions": []}, "f lists no partitions"),
        ({"version": 2, "partitions": [{}]}, "f is of version 2: 1 expected"),
        ({"partitions": [1]}, "f: partitions[0] is no object"),
        ({"partitions": [{"partition": 0}]}, "f: partitions[0] names no topic"),
        ({"partitions": [{"topic": "t", "partition": "0"}]}, "partition is '0': a number expected"),
        ({"partitions": [{"topic": "t", "partition": True}]}, "partition is True"),
        ({"partitions": [{"topic": "t", "partition": 0}]}, "replicas is None: broker ids expected"),
        (
            {"partitions": [{"topic": "t", "partition": 0, "replicas": []}]},
            "replicas is []: broker ids expected",
        ),
        (
            {"partitions": [{"topic": "t", "partition": 0, "replicas": [2**31]}]},
            "replicas is [2147483648]: broker ids expected",
        ),
        (
            {"partitions": [{"topic": "\ud800", "partition": 0, "replicas": [1]}]},
            "'\\ud800' is no topic name",
        ),
        (
            {"partitions": [{"topic": "t", "partition": 0, "replicas": [1], "throttle": 5}]},
            "throttle counts only in a node of the store: leave it out, and give --throttle",
        ),
        (
            {"partitions": [{"topic": "t", "partition": 0, "replicas": [1]}] * 2},
            "f names t-0 more than once",
        ),
    ],
)
def test_files_that_say_nothing_are_refused_with_the_reason(document: Any, reason: str) -> None:
    with pytest.raises(ReassignmentFileError) as raised:
        targets_of(document, "f")
    assert reason in str(raised.value)


def test_a_file_of_kafkas() -> None:
    entry = {"topic": "t", "partition": 3, "replicas": [2, 1], "log_dirs": ["any", "any"]}
    assert targets_of({"version": 1, "partitions": [entry]}, "f") == {
        TopicPartition("t", 3): (2, 1)
    }
