"""`tidelog log-dirs drain` and `balance`: what the broker is asked for, and what is shown."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.cli import run
from tests.support.client.fake_logs import FakeLogs
from tests.unit.cli.test_log_dirs import A, B, Directories

from tidelog.cli import documents
from tidelog.core.errors import ErrorCode
from tidelog.wire.messages.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from tidelog.wire.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)
from tidelog.wire.messages.plan_log_dir_moves import (
    PlanLogDirMovesRequest,
    PlanLogDirMovesResponse,
    PlannedLogDirMove,
)
from tidelog.wire.registry import (
    ALTER_REPLICA_LOG_DIRS,
    DESCRIBE_CONFIGS,
    DESCRIBE_LOG_DIRS,
    INCREMENTAL_ALTER_CONFIGS,
    PLAN_LOG_DIR_MOVES,
)

KEYS = ("cordoned.log.dirs", "draining.log.dirs")
DRAIN = ("log-dirs", "drain", "--broker", "1", A)
BALANCE = ("log-dirs", "balance", "--broker", "1")


class Draining(Directories):
    """A broker that drains: its replicas leave when they were shown so often."""

    def __init__(self, logs: FakeLogs) -> None:
        super().__init__(logs)
        self.settings = dict.fromkeys(KEYS, "")
        #: Partitions of flights that fit nowhere.
        self.unfit: list[int] = []
        self.error: tuple[int, str] = (0, "")
        self.planned: list[PlanLogDirMovesRequest] = []
        broker = logs[1]
        broker.on(DESCRIBE_LOG_DIRS, lambda _: self.shown())
        broker.on(DESCRIBE_CONFIGS, lambda _: self.configs())
        broker.on(INCREMENTAL_ALTER_CONFIGS, self.configured)
        broker.on(PLAN_LOG_DIR_MOVES, self.plan)

    def shown(self) -> Any:
        response = self.described()
        for each in response.results:
            each.is_draining = each.log_dir in self.settings[KEYS[1]].split(",")
        return response

    def configs(self) -> DescribeConfigsResponse:
        values = [
            DescribeConfigsResourceResult(name, value, config_source=2)
            for name, value in self.settings.items()
        ]
        found = DescribeConfigsResult(resource_type=4, resource_name="1", configs=values)
        return DescribeConfigsResponse(results=[found])

    def configured(self, message: Any) -> IncrementalAlterConfigsResponse:
        for resource in message.resources:
            self.settings |= {each.name: each.value or "" for each in resource.configs}
        if self.settings[KEYS[1]]:
            for key in self.places:
                if key[1] not in self.unfit:
                    self.coming[key] = B, 3
        done = AlterConfigsResourceResponse(resource_type=4, resource_name="1")
        return IncrementalAlterConfigsResponse(responses=[done])

    def plan(self, message: PlanLogDirMovesRequest) -> PlanLogDirMovesResponse:
        self.planned.append(message)
        if self.error[0]:
            return PlanLogDirMovesResponse(0, *self.error)
        moves = []
        for (topic, number), place in self.places.items():
            if place == A:
                target, why = (None, "/b is too small") if number in self.unfit else (B, "room")
                moves.append(PlannedLogDirMove(topic, number, A, target, 2048, why))
        return PlanLogDirMovesResponse(moves=moves)


@pytest.fixture
def logs() -> Iterator[FakeLogs]:
    made = FakeLogs()
    made.create("flights", 2)
    yield made
    made.close()


@pytest.fixture
def broker(logs: FakeLogs) -> Draining:
    return Draining(logs)


class Shell:
    """Types commands; each returns its exit code, its output, and what it said beside that."""

    def __init__(
        self,
        bootstrap: str,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        self._bootstrap = bootstrap
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def run(self, *words: str) -> tuple[int, str, str]:
        code = run(self._monkeypatch, *words, "-b", self._bootstrap)
        captured = self._capsys.readouterr()
        return code, captured.out, captured.err


@pytest.fixture
def shell(
    logs: FakeLogs, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Shell:
    return Shell(logs.bootstrap, monkeypatch, capsys)


def test_a_drain_sets_both_keys_and_shows_the_plan(broker: Draining, shell: Shell) -> None:
    code, out, err = shell.run(*DRAIN)
    assert (code, broker.settings) == (0, {KEYS[0]: A, KEYS[1]: A})
    assert out.count("accepted") == 2 and "room" in out
    assert "draining.log.dirs set to /disks/a" in err


def test_a_drain_that_is_waited_for_says_how_to_take_the_directory_out(
    broker: Draining, shell: Shell
) -> None:
    code, _, err = shell.run(*DRAIN, "--wait")
    assert code == 0 and set(broker.places.values()) == {B}
    assert f"{A} of broker 1 has no replica any more" in err
    assert f"take {A} out of log.dirs" in err and "log-dirs uncordon --broker 1" in err


def test_nothing_begins_where_a_replica_fits_nowhere_unless_forced(
    broker: Draining, shell: Shell
) -> None:
    broker.unfit = [1]
    code, out, err = shell.run(*DRAIN)
    assert (code, broker.settings) == (1, dict.fromkeys(KEYS, ""))
    assert f"flights-1 of 2.0 KiB cannot leave {A}: /b is too small" in err
    assert "nothing was begun" in err and out.count("would_move") == 1
    code, _, err = shell.run(*DRAIN, "--force")
    assert (code, broker.settings[KEYS[1]]) == (0, A)
    code, _, err = shell.run(*DRAIN)
    assert code == 0 and "nothing was begun" not in err, "it is under way"


def test_a_dry_run_changes_nothing(broker: Draining, shell: Shell) -> None:
    code, out, _ = shell.run(*DRAIN, "--dry-run", "-o", "json")
    ((document,), *_) = [json.loads(out)]
    assert code == 0 and broker.settings == dict.fromkeys(KEYS, "")
    assert (document["executed"], document["replicas"]) == (False, 2)
    assert [each["result"] for each in document["moves"]] == ["would_move"] * 2
    documents.LogDirDrained(**document)


def test_a_drain_keeps_other_drains_and_cordons(broker: Draining, shell: Shell) -> None:
    broker.settings = {KEYS[0]: B, KEYS[1]: B}
    assert shell.run(*DRAIN)[0] == 0
    assert broker.settings == dict.fromkeys(KEYS, f"{A},{B}")


def test_an_uncordon_ends_a_drain_also_of_a_directory_that_is_gone(
    broker: Draining, shell: Shell
) -> None:
    broker.settings = {KEYS[0]: f"{A},/gone", KEYS[1]: f"{A},/gone"}
    assert shell.run("log-dirs", "uncordon", "--broker", "1", "/gone/")[0] == 0
    assert broker.settings == dict.fromkeys(KEYS, A)
    assert shell.run("log-dirs", "uncordon", "--broker", "1", "*")[0] == 0
    assert broker.settings == dict.fromkeys(KEYS, "")


@pytest.mark.parametrize("name", ["LOG_DIR_NOT_FOUND", "INVALID_REQUEST"])
def test_the_reason_of_a_broker_is_shown(broker: Draining, shell: Shell, name: str) -> None:
    broker.error = ErrorCode[name], "because"
    for words in (DRAIN, BALANCE):
        code, _, err = shell.run(*words)
        assert code != 0 and f"{name}: because" in err
    assert broker.settings == dict.fromkeys(KEYS, "")


def test_unknown_brokers_are_refused(broker: Draining, shell: Shell) -> None:
    code, _, err = shell.run("log-dirs", "drain", "--broker", "9", A)
    assert code != 0 and "no live broker 9" in err


def test_balancing_shows_its_plan_and_asks_for_the_moves(
    broker: Draining, shell: Shell, logs: FakeLogs
) -> None:
    code, out, _ = shell.run(*BALANCE, "--dry-run", "--threshold", "7", "-o", "json")
    assert code == 0 and logs[1].asked(ALTER_REPLICA_LOG_DIRS) == []
    assert (broker.planned[0].log_dirs, broker.planned[0].threshold_percent) == ([], 7)
    rows = [documents.DirectoryMovePlanned(**each) for each in json.loads(out)]
    assert [(each.result, each.reason) for each in rows] == [("would_move", "room")] * 2
    code, out, _ = shell.run(*BALANCE, "--wait")
    assert code == 0 and out.count("done") == 2 and set(broker.places.values()) == {B}
    assert broker.planned[-1].threshold_percent == -1
    code, _, err = shell.run(*BALANCE)
    assert code == 0 and "nothing is to be moved" in err


def test_a_refused_move_of_balancing_is_named(broker: Draining, shell: Shell) -> None:
    broker.errors = {("flights", 0): ErrorCode.KAFKA_STORAGE_ERROR}
    code, out, err = shell.run(*BALANCE)
    assert code == 1 and "KAFKA_STORAGE_ERROR" in out and "accepted" in out
    assert "flights-0 does not move within broker 1" in err
