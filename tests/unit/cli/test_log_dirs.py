"""`tidelog log-dirs move`, and reassignment files that name log directories (D11)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.client.fake_logs import FakeLogs
from tests.unit.cli.test_commands import Shell
from tests.unit.cli.test_reassigning import accept, under_way

from tidelog.cli import documents
from tidelog.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from tidelog.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from tidelog.wire.registry import (
    ALTER_PARTITION_REASSIGNMENTS,
    ALTER_REPLICA_LOG_DIRS,
    DESCRIBE_LOG_DIRS,
)

A, B, BROKEN = "/disks/a", "/disks/b", "/disks/broken"


class Directories:
    """The log directories of the fake broker: where its replicas are, and what it was asked."""

    def __init__(self, logs: FakeLogs) -> None:
        self.logs = logs
        #: By (topic, partition).
        self.places: dict[tuple[str, int], str] = {("flights", 0): A, ("flights", 1): A}
        #: Replicas on their way; they arrive when they were shown so often.
        self.coming: dict[tuple[str, int], tuple[str, int]] = {}
        self.errors: dict[tuple[str, int], int] = {}
        logs[1].on(DESCRIBE_LOG_DIRS, lambda _: self.described())
        logs[1].on(ALTER_REPLICA_LOG_DIRS, self.altered)

    @property
    def asked(self) -> list[dict[str, list[tuple[str, int]]]]:
        return [
            {
                directory.path: [
                    (topic.name, number)
                    for topic in directory.topics
                    for number in topic.partitions
                ]
                for directory in message.dirs
            }
            for message in self.logs[1].asked(ALTER_REPLICA_LOG_DIRS)
        ]

    def described(self) -> DescribeLogDirsResponse:
        for key, (path, left) in list(self.coming.items()):
            if left:
                self.coming[key] = path, left - 1
            else:
                self.places[key] = path
                del self.coming[key]
        results = [
            DescribeLogDirsResult(
                log_dir=path,
                topics=[
                    DescribeLogDirsTopic(name, [self._shown(number, bool(future))])
                    for future, places in enumerate(
                        (self.places, {key: to for key, (to, _) in self.coming.items()})
                    )
                    for (name, number), place in places.items()
                    if place == path
                ],
                total_bytes=1 << 40,
                usable_bytes=1 << 30,
            )
            for path in (A, B)
        ]
        return DescribeLogDirsResponse(
            results=[*results, DescribeLogDirsResult(error_code=56, log_dir=BROKEN)]
        )

    @staticmethod
    def _shown(number: int, is_future: bool) -> DescribeLogDirsPartition:
        return DescribeLogDirsPartition(number, 2048, 0, is_future)

    def altered(self, message: AlterReplicaLogDirsRequest) -> AlterReplicaLogDirsResponse:
        results = []
        for directory in message.dirs:
            for topic in directory.topics:
                outcomes = []
                for number in topic.partitions:
                    key = topic.name, number
                    error = self.errors.get(key, 0 if key in self.places else 9)
                    if not error and key not in self.coming:
                        self.coming[key] = directory.path, 2
                    outcomes.append(AlterReplicaLogDirPartitionResult(number, error))
                results.append(AlterReplicaLogDirTopicResult(topic.name, outcomes))
        return AlterReplicaLogDirsResponse(results=results)


@pytest.fixture
def logs() -> Iterator[FakeLogs]:
    made = FakeLogs()
    made.create("flights", 2)
    made.create("trains-7", 1)
    accept(made, 0, 0)
    under_way(made)
    yield made
    made.close()


@pytest.fixture
def directories(logs: FakeLogs) -> Directories:
    return Directories(logs)


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, capfd: Any, directories: Directories) -> Shell:
    monkeypatch.setattr("tidelog.cli.move_execution._SETTLING_S", 0.2)
    return Shell(monkeypatch, capfd, directories.logs.bootstrap)


def move(*words: str, to: str = B) -> tuple[str, ...]:
    named = [part for word in words for part in ("--topic-partition", word)]
    return ("log-dirs", "move", "--broker", "1", "--to", to, *named)


class TestMove:
    def test_replicas_are_asked_for_and_shown(self, shell: Shell, directories: Directories) -> None:
        first, second = shell.json(
            list[documents.DirectoryMoveEntry], *move("flights-0", "flights:1")
        )
        assert first == {
            "broker": 1, "topic": "flights", "partition": 0, "result": "accepted",
            "log_dir_before": A, "log_dir": B, "size_bytes": 2048,
        }  # fmt: skip
        assert second["partition"] == 1
        assert directories.asked == [{B: [("flights", 0), ("flights", 1)]}]

    def test_a_topic_names_the_replicas_that_the_broker_has(
        self, shell: Shell, directories: Directories
    ) -> None:
        del directories.places["flights", 1]
        assert "accepted" in shell(*move("flights"))
        assert directories.asked == [{B: [("flights", 0)]}]
        shell(*move("trains-7:0"), code=1)
        assert "trains-7-0 does not move within broker 1: REPLICA_NOT_AVAILABLE" in shell.err

    def test_it_waits_until_they_are_there(self, shell: Shell, directories: Directories) -> None:
        assert "done" in shell(*move("flights-0"), "--wait")
        assert directories.places["flights", 0] == B and directories.coming == {}

    def test_a_dry_run_asks_for_nothing(self, shell: Shell, directories: Directories) -> None:
        assert "would_move" in shell(*move("flights-0"), "--dry-run", "--wait")
        assert directories.asked == []

    def test_a_refusal_fails_the_command_and_the_others_go_on(
        self, shell: Shell, directories: Directories
    ) -> None:
        directories.errors["flights", 1] = 56
        told = shell(*move("flights-0", "flights-1"), "--wait", code=1)
        assert "KAFKA_STORAGE_ERROR" in told and directories.places["flights", 0] == B
        assert "flights-1 does not move within broker 1: KAFKA_STORAGE_ERROR" in shell.err

    def test_an_answer_that_lacks_a_replica_is_an_error(
        self, shell: Shell, directories: Directories
    ) -> None:
        directories.logs[1].on(ALTER_REPLICA_LOG_DIRS, lambda _: AlterReplicaLogDirsResponse())
        shell(*move("flights-0"), code=1)
        assert "does not mention flights-0" in shell.err

    @pytest.mark.parametrize(
        ("words", "reason"),
        [
            (move("flights-0", to="/disks/c"), "broker 1 has no log directory '/disks/c'"),
            (move("flights-0", to=BROKEN), "log directory /disks/broken of broker 1 has failed"),
            (move("flights-9"), "topic 'flights' has partitions 0 to 1, not 9"),
            (move("nothing"), "there is no topic 'nothing'"),
            (move("trains-7:"), "are no partitions"),
            (("log-dirs", "move", "--broker", "9", "--to", B, "--topic-partition", "flights-0"),
             "there is no live broker 9"),
        ],
    )  # fmt: skip
    def test_names_that_mean_nothing(
        self, shell: Shell, directories: Directories, words: tuple[str, ...], reason: str
    ) -> None:
        shell(*words, code=2 if "no partitions" in reason else 1)
        assert reason in " ".join(shell.err.split()) and directories.asked == []


def moves_to(*log_dirs: list[str] | None) -> str:
    entries: list[dict[str, Any]] = [
        {"topic": "flights", "partition": number, "replicas": [1]}
        for number in range(len(log_dirs))
    ]
    for entry, paths in zip(entries, log_dirs, strict=True):
        if paths is not None:
            entry["log_dirs"] = paths
    return json.dumps({"version": 1, "partitions": entries})


class TestReassign:
    def test_replicas_are_asked_into_their_directories_before_they_move(
        self, shell: Shell, directories: Directories
    ) -> None:
        shell("reassign", "execute", "--json", moves_to([B], ["any"]), "--wait")
        assert directories.asked[0] == {B: [("flights", 0)]}
        assert directories.places["flights", 0] == B and directories.places["flights", 1] == A
        assert directories.logs[1].asked(ALTER_PARTITION_REASSIGNMENTS)

    def test_a_replica_that_is_about_to_be_there_is_no_refusal(
        self, shell: Shell, directories: Directories
    ) -> None:
        directories.errors["flights", 0] = 9
        shell("reassign", "execute", "--json", moves_to([B]))
        directories.errors["flights", 0] = 56
        shell("reassign", "execute", "--json", moves_to([B]), code=1)
        assert "flights-0 does not move within broker 1: KAFKA_STORAGE_ERROR" in shell.err

    def test_a_dry_run_asks_for_nothing(self, shell: Shell, directories: Directories) -> None:
        shell("reassign", "execute", "--json", moves_to([B]), "--dry-run")
        assert directories.asked == []

    def test_a_file_with_an_unknown_directory_moves_nothing(
        self, shell: Shell, directories: Directories
    ) -> None:
        shell("reassign", "execute", "--json", moves_to(["/disks/c"]), code=1)
        assert "broker 1 has no log directory '/disks/c'" in shell.err
        assert not directories.logs[1].asked(ALTER_PARTITION_REASSIGNMENTS)

    @pytest.mark.parametrize("paths", [["b"], [], [B, A], [1], "any"])
    def test_directories_that_fit_no_replicas_are_refused(
        self, shell: Shell, directories: Directories, paths: Any
    ) -> None:
        shell("reassign", "execute", "--json", moves_to(paths), code=1)
        assert "log_dirs is" in shell.err and "for each replica an absolute path" in shell.err

    def test_queued_moves_take_no_directories(self, shell: Shell) -> None:
        shell("reassign", "queue", "--json", moves_to([B]), code=1)
        assert "names log directories, which queued moves cannot" in shell.err

    def test_verify_says_which_replicas_are_in_another_directory(
        self, shell: Shell, directories: Directories
    ) -> None:
        assert "moving_directory" in shell("reassign", "verify", "--json", moves_to([B]), code=1)
        assert "done" in shell("reassign", "verify", "--json", moves_to([A], ["any"]))
