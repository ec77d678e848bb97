"""Commands against fake logs and a fake coordinator: names, plans, what is told and what is not."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.cli import check, run
from tests.support.client.fake_coordinator import FakeCoordinator
from tests.support.client.fake_logs import FakeLogs, batch

from tidelog.cli import completion, documents, reading
from tidelog.cli.output import size_text
from tidelog.core.types import TopicPartition
from tidelog.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsResponse
from tidelog.wire.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
)
from tidelog.wire.messages.elect_leaders import (
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from tidelog.wire.messages.list_groups import ListedGroup, ListGroupsResponse
from tidelog.wire.registry import (
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    ELECT_LEADERS,
    FETCH,
    LIST_GROUPS,
    OFFSET_COMMIT,
)

T0, T1 = TopicPartition("flights", 0), TopicPartition("flights", 1)


class Shell:
    """Runs commands against one cluster."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capfd: Any, bootstrap: str) -> None:
        self._monkeypatch, self._capfd, self._bootstrap = monkeypatch, capfd, bootstrap
        self.out = self.err = ""

    def __call__(self, *words: str, code: int = 0) -> str:
        """What the command printed; fails where its exit code is another one."""
        # Real files: some commands write bytes, and look whether their reader is there.
        out = io.TextIOWrapper(os.fdopen(os.dup(1), "wb"), "utf-8")
        self._monkeypatch.setattr(sys, "stdout", out)
        timeout = () if "--timeout" in words else ("--timeout", "5")
        got = run(self._monkeypatch, *words, "-b", self._bootstrap, *timeout)
        self._monkeypatch.undo()
        out.close()
        self.out, self.err = self._capfd.readouterr()
        assert got == code, self.err
        return self.out

    def json(self, promised: Any, *words: str) -> Any:
        """The JSON document that a command printed, which must be as its reference has it."""
        document = json.loads(self(*words, "-o", "json"))
        check(document, promised)
        return document


@pytest.fixture
def logs() -> Iterator[FakeLogs]:
    made = FakeLogs()
    made.create("flights", 2)
    made.create("trains", 1)
    made.append(T0, batch(0, b"a", b"b", b"c", b"d"))
    made.append(T1, batch(0, b"e", b"f"))
    yield made
    made.close()


@pytest.fixture
def coordinator(logs: FakeLogs) -> FakeCoordinator:
    made = FakeCoordinator(logs, "billing")
    logs[1].on(LIST_GROUPS, lambda _: ListGroupsResponse(groups=[ListedGroup("billing", "", "")]))
    describe(logs, "Empty")
    return made


def describe(logs: FakeLogs, state: str, members: int = 0) -> None:
    told = [
        DescribedGroupMember(f"m{number}", None, "kcat", "/127.0.0.1", b"", b"")
        for number in range(members)
    ]
    group = DescribedGroup(0, "billing", state, "consumer", "range" if members else "", told)
    logs[1].on(DESCRIBE_GROUPS, lambda _: DescribeGroupsResponse(groups=[group]))


@pytest.fixture
def shell(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], logs: FakeLogs
) -> Shell:
    return Shell(monkeypatch, capfd, logs.bootstrap)


def test_partitions_that_are_added_meanwhile_are_read_from_their_beginning(
    shell: Shell, logs: FakeLogs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "_LOOK_INTERVAL_S", 0.0)
    asked: list[Any] = []

    def growing(request: Any) -> Any:
        asked.append(request)
        if len(asked) == 4:
            logs.create("trains", 2)
            logs.append(TopicPartition("trains", 1), batch(0, b"new", b"line"))
        return logs._fetch(request)

    logs[1].on(FETCH, growing)
    assert shell("consume", "trains", "-o", "end", "-c", "2").split() == ["new", "line"]
    assert shell.err == "tidelog: trains-1 is new; reading it from its beginning on\n"


class TestNames:
    @pytest.mark.parametrize(
        "words",
        [
            ["topics", "describe", "fligths"],
            ["topics", "delete", "fligths"],
            ["topics", "alter", "fligths", "-c", "a=1"],
            ["topics", "add-partitions", "fligths", "--to", "9"],
            ["configs", "describe", "--topic", "fligths"],
            ["produce", "fligths", "v"],
            ["consume", "fligths"],
            ["consume", "fligths", "-g", "billing"],
            ["records", "delete", "fligths", "--all"],
            ["leaders", "elect", "--topic", "fligths"],
            ["log-dirs", "describe", "--topic", "fligths"],
        ],
    )
    def test_an_unknown_topic_names_what_is_near(self, shell: Shell, words: list[str]) -> None:
        assert shell(*words, code=1) == ""
        assert shell.err == "tidelog: there is no topic 'fligths'; did you mean flights?\n"

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            (["produce", "flights", "v", "-p", "2"], "partitions 0 to 1, not 2"),
            (["consume", "trains", "-p", "0-3"], "partition 0 only, not 1"),
            (["records", "delete", "flights:5", "--all"], "partitions 0 to 1, not 5"),
            (["configs", "describe", "--broker", "9"], "there is no live broker 9; live are 1"),
            (["log-dirs", "describe", "--broker", "9"], "there is no live broker 9; live are 1"),
            (["topics", "describe", "a b"], "there is no topic 'a b'"),
            (["records", "delete", "trains", "--before-offset", "3"], "trains-0 ends at offset 0"),
        ],
    )
    def test_what_is_not_there_is_told_with_what_is(
        self, shell: Shell, words: list[str], message: str
    ) -> None:
        shell(*words, code=1)
        assert message in shell.err

    def test_no_more_partitions_than_there_are_is_wrong_usage(self, shell: Shell) -> None:
        shell("topics", "add-partitions", "flights", "--to", "2", code=2)
        assert "topic 'flights' has 2 partitions" in shell.err

    def test_an_unknown_group_names_what_is_near(
        self, shell: Shell, logs: FakeLogs, coordinator: FakeCoordinator
    ) -> None:
        describe(logs, "Dead")
        logs[1].on(
            DELETE_GROUPS,
            lambda _: DeleteGroupsResponse(results=[DeletableGroupResult("biling", 69)]),
        )
        coordinator.group = "biling"
        for verb in ("describe", "delete"):
            shell("groups", verb, "biling", code=1)
            assert shell.err == "tidelog: there is no group 'biling'; did you mean billing?\n"


class TestConsume:
    @pytest.mark.parametrize(
        ("words", "expected"),
        [
            ([], "a b c d e f"),
            (["-o", "-1"], "d f"),
            (["-o", "1", "-p", "0"], "b c d"),
            (["-o", "9"], ""),
            (["-o", "end"], ""),
            (["-c", "5"], "a b c d e"),
            (["-c", "9"], "a b c d e f"),
        ],
    )
    def test_ends_when_it_is_told(self, shell: Shell, words: list[str], expected: str) -> None:
        printed = shell("consume", "flights", "-e", "-f", "%v\\n", *words)
        assert printed.split() == expected.split()

    def test_a_group_without_members_keeps_offsets(
        self, shell: Shell, coordinator: FakeCoordinator
    ) -> None:
        coordinator.committed = {T0: 3}
        words = ("consume", "flights", "-p", "0,1", "-g", "billing", "-e")
        assert shell(*words, "-c", "2").split() == ["d", "e"]
        assert coordinator.committed == {T0: 4, T1: 1}
        assert shell(*words).split() == ["f"]
        assert shell(*words, "-o", "beginning", "-c", "1").split() == ["a"]
        assert coordinator.committed == {T0: 1, T1: 0}

    def test_a_member_commits_and_leaves(self, shell: Shell, coordinator: FakeCoordinator) -> None:
        assert shell("consume", "flights", "-g", "billing", "-c", "5").split() == list("abcde")
        assert coordinator.committed == {T0: 4, T1: 1}

    def test_what_is_gone_is_told_beside_the_records(self, shell: Shell, logs: FakeLogs) -> None:
        logs.append(T1, batch(2, b"g"))
        logs.log_starts[T1] = 2
        assert shell("consume", "flights", "-o", "0", "-e", "-p", "1").split() == ["g"]
        describe(logs, "Empty")
        FakeCoordinator(logs, "billing").committed = {T1: 0}
        words = ("consume", "flights", "-p", "1", "-g", "billing", "-e")
        assert shell(*words).split() == ["g"]
        assert "offsets 0 to 1 of flights-1 are gone; going on at 2" in shell.err


class TestReset:
    def reset(self, shell: Shell, *words: str) -> list[tuple[int, int | None, int]]:
        told = shell.json(documents.GroupReset, "groups", "reset", "billing", *words)
        return [(it["partition"], it["before"], it["after"]) for it in told["offsets"]]

    @pytest.mark.parametrize(
        ("words", "expected"),
        [
            (["--to-earliest"], [(0, 2, 0), (1, None, 0)]),
            (["--to-latest"], [(0, 2, 4), (1, None, 2)]),
            (["--to-offset", "3"], [(0, 2, 3), (1, None, 2)]),
            (["--shift-by", "-1"], [(0, 2, 1)]),
            (["--shift-by", "-5"], [(0, 2, 0)]),
            (["--to-current"], [(0, 2, 2)]),
        ],
    )
    def test_shows_and_changes_nothing(
        self,
        shell: Shell,
        coordinator: FakeCoordinator,
        words: list[str],
        expected: list[tuple[int, int | None, int]],
    ) -> None:
        coordinator.committed = {T0: 2}
        assert self.reset(shell, "--topic", "flights", *words) == expected
        assert coordinator.asked(OFFSET_COMMIT) == []

    def test_is_done_on_demand(self, shell: Shell, coordinator: FakeCoordinator) -> None:
        coordinator.committed = {T0: 2}
        self.reset(shell, "--topic", "flights:1", "--to-offset", "1", "--execute")
        assert coordinator.committed == {T0: 2, T1: 1}
        shell("groups", "reset", "billing", "--all-topics", "--to-latest", "--execute")
        assert coordinator.committed == {T0: 4, T1: 2}

    def test_offsets_stay_within_the_log_and_it_says_so(
        self, shell: Shell, coordinator: FakeCoordinator
    ) -> None:
        self.reset(shell, "--topic", "flights:0", "--to-offset", "77")
        assert "flights-0 holds offsets 0 to 4: 4, not 77" in shell.err
        self.reset(shell, "--topic", "flights:0", "--shift-by", "1")
        assert "flights-0 is left out: nothing is committed" in shell.err

    def test_a_group_with_members_is_left_alone(
        self, shell: Shell, logs: FakeLogs, coordinator: FakeCoordinator
    ) -> None:
        describe(logs, "Stable", 2)
        words = ("groups", "reset", "billing", "--topic", "flights", "--to-latest")
        shell(*words)
        assert "stop them before you change it" in shell.err
        shell(*words, "--execute", code=1)
        assert "is Stable with 2 members (kcat at /127.0.0.1); stop them first" in shell.err
        assert coordinator.committed == {}

    @pytest.mark.parametrize(
        ("words", "made"),
        [([], "would be new"), (["--execute"], "is new: it had no committed offsets")],
    )
    def test_a_group_that_was_not_there_is_told(
        self,
        shell: Shell,
        logs: FakeLogs,
        coordinator: FakeCoordinator,
        words: list[str],
        made: str,
    ) -> None:
        describe(logs, "Dead")
        logs[1].on(
            LIST_GROUPS,
            lambda _: ListGroupsResponse(
                groups=[ListedGroup(name, "", "") for name in ("billing", "bilings")]
            ),
        )
        shell("groups", "reset", "billing", "--topic", "flights", "--to-latest", *words)
        assert f"tidelog: group 'billing' {made}; did you mean bilings?\n" in shell.err
        describe(logs, "Empty")
        shell("groups", "reset", "billing", "--topic", "flights", "--to-latest", *words)
        assert "new" not in shell.err

    def test_nothing_committed_has_nothing_to_reset(
        self, shell: Shell, coordinator: FakeCoordinator
    ) -> None:
        shell("groups", "reset", "billing", "--all-topics", "--to-latest", code=1)
        assert "has committed nothing: name topics with --topic" in shell.err


class TestDescriptions:
    def test_lag_is_what_is_between_the_commit_and_the_high_watermark(
        self, shell: Shell, coordinator: FakeCoordinator
    ) -> None:
        coordinator.committed = {T0: 1, T1: 2}
        told = shell.json(documents.GroupDescribed, "groups", "describe", "billing")
        assert [(it["committed_offset"], it["lag"]) for it in told["offsets"]] == [(1, 3), (2, 0)]
        assert "lag in all: 3" in shell("groups", "describe", "billing")

    def test_brokers_with_what_they_lead(self, shell: Shell) -> None:
        (broker,) = shell.json(list[documents.BrokerListed], "brokers", "list")
        assert (broker["id"], broker["controller"], broker["leaders"]) == (1, True, 3)

    def test_a_failed_election_is_one_and_told(self, shell: Shell, logs: FakeLogs) -> None:
        results = [PartitionResult(0, 84, "broker 1 leads"), PartitionResult(1, 80, "it is dead")]
        logs[1].on(
            ELECT_LEADERS,
            lambda _: ElectLeadersResponse(0, 0, [ReplicaElectionResult("flights", results)]),
        )
        printed = shell("leaders", "elect", "--topic", "flights", code=1)
        assert "PREFERRED_LEADER_NOT_AVAILABLE" in printed and "it is dead" in printed
        assert "1 of 2 partitions do not have the requested leader" in shell.err

    @pytest.mark.parametrize(
        ("size", "text"),
        [
            (None, "-"),
            (0, "0 B"),
            (1023, "1023 B"),
            (1536, "1.5 KiB"),
            (200 << 20, "200 MiB"),
            (5 << 50, "5120 TiB"),
        ],
    )
    def test_sizes_for_people(self, size: int | None, text: str) -> None:
        assert size_text(size) == text


class TestCompletion:
    class Context:
        def __init__(self, **params: str | None) -> None:
            self.params = params

    def test_asks_the_cluster_that_the_line_names(
        self, logs: FakeLogs, coordinator: FakeCoordinator
    ) -> None:
        logs.create("__consumer_offsets", 1)
        context: Any = self.Context(bootstrap=logs.bootstrap, directory=None)
        assert completion.topic_names(context, "") == ["flights", "trains"]
        assert completion.topic_names(context, "fl") == ["flights"]
        assert completion.topic_names(context, "__") == ["__consumer_offsets"]
        assert completion.group_names(context, "b") == ["billing"]
        assert completion.broker_ids(context, "") == ["1"]

    def test_completes_nothing_without_a_cluster(
        self, tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any
    ) -> None:
        monkeypatch.chdir(tmp_path)
        for params in ({"bootstrap": "127.0.0.1:1"}, {"directory": str(tmp_path)}, {}):
            context: Any = self.Context(**params)
            assert completion.topic_names(context, "") == []
        assert capsys.readouterr() == ("", "")
