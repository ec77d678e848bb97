"""Exit codes, messages and forms of output of the command line, without a cluster."""

from __future__ import annotations

import dataclasses
import json
import socket
from pathlib import Path
from typing import Any

import pytest
from tests.support.cli import run

from tidelog.cli import clusters, target
from tidelog.cli.output import print_table
from tidelog.local import BrokerStatus, ClusterStatus, PartitionStatus, layout

#: A port on which nobody listens: bound by no program, below those the kernel hands out.
NOBODY = "127.0.0.1:1"


def test_a_store_that_is_not_reached_in_time_names_the_option(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("store", "export", f"zookeeper://{NOBODY}", "-", "--timeout", "0.2")
    assert run(monkeypatch, *words) != 0
    said = capsys.readouterr().err
    assert "within 200 ms (--timeout)" in " ".join(said.split())
    assert "zookeeper.connection.timeout.ms" not in said


class TestExitCodes:
    def test_done_is_zero(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run(monkeypatch, "--version") == 0
        assert capsys.readouterr().out.startswith("tidelog 0.")

    @pytest.mark.parametrize(
        "words",
        [
            ["no-such-command"],
            ["topics", "create"],
            ["topics", "create", "t", "--partitions", "few", "-b", NOBODY],
            ["topics", "create", "t", "--config", "retention", "-b", NOBODY],
            ["status", "--bootstrap-server", NOBODY, "--dir", "d"],
            ["status", "-o", "xml"],
            ["break", "kill", "first", "--dir", "d"],
            ["up", "-n", "0"],
            ["topics", "create", "t", "--partitions", "-1"],
            ["topics", "create", "t", "--partitions", "0"],
            ["topics", "create", "t", "--partitions", "2147483648"],
            ["topics", "create", "t", "--replication-factor", "-1"],
            ["topics", "create", "t", "--replication-factor", "32768"],
            ["broker"],
            *(["top", "--interval", each, "-b", NOBODY] for each in ("nan", "inf", "0", "-1")),
            *(["groups", "list", "--timeout", each, "-b", NOBODY] for each in ("nan", "inf")),
            ["topics", "alter", "t"],
            ["topics", "alter", "t", "--config", "a=1", "--delete-config", "a"],
            ["topics", "alter", "t", "--delete-config", "a=1"],
            ["topics", "add-partitions", "t"],
            ["topics", "add-partitions", "t", "--to", "0"],
            ["configs", "describe"],
            ["configs", "describe", "--topic", "t", "--brokers"],
            ["configs", "alter", "--brokers"],
            ["leaders", "elect"],
            ["leaders", "elect", "--all", "--topic", "t"],
            ["leaders", "elect", "--partition", "0"],
            ["leaders", "elect", "--topic", "t", "--partition", "x"],
            ["records", "delete", "t"],
            ["records", "delete", "t", "--all", "--before-offset", "5"],
            ["records", "delete", "t", "--before-offset", "-5"],
            ["records", "delete", ":0", "--all"],
            ["produce"],
            ["produce", "t", "v", "-z", "lzo"],
            ["produce", "t", "v", "--acks", "2"],
            ["produce", "t", "v", "--acks", "1", "--idempotent"],
            ["produce", "t", "v", "-H", "=v"],
            ["produce", "t", "v", "-K", ""],
            ["produce", "t", "v", "-p", "-2"],
            ["consume"],
            ["consume", "t", "-f", "%q"],
            ["consume", "t", "-f", "%s%"],
            ["consume", "t", "-f", "%s", "-J"],
            ["consume", "t", "-o", "nowhere"],
            ["consume", "t", "-o", "1", "-o", "2"],
            ["consume", "t", "-o", "s@yesterday"],
            ["consume", "t", "-o", "stored"],
            ["consume", "t", "-g", "g", "-o", "42"],
            ["consume", "t", "-g", "g", "-o", "e@5"],
            ["consume", "t", "-c", "0"],
            ["consume", "t", "-p", "a"],
            ["consume", "t", "--isolation-level", "serializable"],
            ["consume", "t", "-g", "g", "--assignor", "mine"],
            ["groups", "describe"],
            ["groups", "delete"],
            ["groups", "reset", "g", "--topic", "t"],
            ["groups", "reset", "g", "--to-latest"],
            ["groups", "reset", "g", "--topic", "t", "--all-topics", "--to-latest"],
            ["groups", "reset", "g", "--topic", "t", "--to-latest", "--to-earliest"],
            ["groups", "reset", "g", "--topic", "t", "--to-datetime", "noon"],
            ["groups", "reset", "g", "--topic", "t", "--by-duration", "long"],
            ["log-dirs", "describe", "--broker", "one"],
        ],
    )
    def test_wrong_usage_is_two(
        self,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        words: list[str],
    ) -> None:
        assert run(monkeypatch, *words) == 2
        output = capsys.readouterr()
        assert output.out == ""
        assert "Usage" in output.err

    @pytest.mark.parametrize(
        "words",
        [
            ["status"],
            ["topics", "list"],
            ["topics", "describe"],
            ["topics", "create", "t"],
            ["topics", "delete", "t"],
            ["topics", "alter", "t", "-c", "a=1"],
            ["topics", "add-partitions", "t", "--to", "3"],
            ["configs", "describe", "--broker", "1"],
            ["configs", "alter", "--brokers", "-c", "a=1"],
            ["brokers", "list"],
            ["log-dirs", "describe"],
            ["leaders", "elect", "--all"],
            ["records", "delete", "t", "--all"],
            ["produce", "t", "v"],
            ["consume", "t"],
            ["consume", "t", "-g", "g"],
            ["groups", "list"],
            ["groups", "describe", "g"],
            ["groups", "delete", "g"],
            ["groups", "reset", "g", "--topic", "t", "--to-latest"],
        ],
    )
    def test_a_cluster_that_cannot_be_reached_is_three(
        self,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        words: list[str],
    ) -> None:
        assert run(monkeypatch, *words, "-b", NOBODY, "--timeout", "0.1") == 3
        output = capsys.readouterr()
        assert output.out == ""
        assert "could not be reached" in output.err
        assert NOBODY in output.err

    @pytest.mark.parametrize("words", [["down"], ["status"], ["break", "kill", "1"]])
    def test_a_directory_without_a_cluster_is_one(
        self,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        tmp_path: Path,
        words: list[str],
    ) -> None:
        assert run(monkeypatch, *words, "--dir", str(tmp_path)) == 1
        assert f"{tmp_path} holds no cluster" in capsys.readouterr().err

    def test_who_names_no_cluster_where_there_is_none_is_told_how_to(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        monkeypatch.chdir(tmp_path)
        assert run(monkeypatch, "topics", "list") == 1
        told = capsys.readouterr().err
        assert "tidelog-cluster holds no cluster" in told
        assert told.endswith("; --dir or --bootstrap-server name another\n")

    def test_a_foreign_directory_is_one(
        self,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        tmp_path: Path,
    ) -> None:
        (tmp_path / "something").write_text("else")
        assert run(monkeypatch, "up", "--dir", str(tmp_path)) == 1
        assert "is not empty" in capsys.readouterr().err

    @pytest.mark.parametrize("place", ["/proc/cluster", "/proc/version/cluster", "/proc/version"])
    def test_a_directory_that_cannot_be_made_is_one(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], place: str
    ) -> None:
        assert run(monkeypatch, "up", "--dir", place) == 1
        told = capsys.readouterr().err
        assert told.startswith(f"tidelog: {place} cannot hold a cluster: ")
        assert "Errno" not in told and "give a directory that can be made" in told

    def test_more_brokers_than_a_machine_can_take_are_one(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        assert run(monkeypatch, "up", "--dir", str(tmp_path / "new"), "-n", "101") == 1
        assert "101 brokers are too many for one machine: at most 100" in capsys.readouterr().err
        assert not (tmp_path / "new").exists()

    def test_who_waits_for_an_answer_is_told_what_is_tried(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(target, "NOTICE_S", 0.0)
        with socket.create_server(("127.0.0.1", 0)) as silent:
            address = f"127.0.0.1:{silent.getsockname()[1]}"
            assert run(monkeypatch, "topics", "list", "-b", address, "--timeout", "0.5") == 3
        first, last = capsys.readouterr().err.splitlines()
        assert first == (f"tidelog: no broker answers yet at {address}; trying for 0.5 s in all")
        assert "could not be reached" in last and address in last

    def test_a_cluster_that_is_down_is_shown_and_three(
        self,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        tmp_path: Path,
    ) -> None:
        layout.create(str(tmp_path), 2, {}, 1)
        assert run(monkeypatch, "status", "--dir", str(tmp_path), "-o", "json") == 3
        output = capsys.readouterr()
        shown = json.loads(output.out)
        assert shown["reached"] is False
        assert shown["partitions"] == []
        assert [(each["id"], each["alive"], each["pid"]) for each in shown["brokers"]] == [
            (1, False, None),
            (2, False, None),
        ]
        assert "no broker answers" in output.err


class TestStatus:
    """What a person sees of a cluster with a group."""

    @staticmethod
    def partition(topic: str, number: int, **changed: Any) -> PartitionStatus:
        made = PartitionStatus(topic, number, 1 + number % 3, 7, (1, 2, 3), (3, 1, 2), (), 40)
        return dataclasses.replace(made, **changed)

    def lines(
        self, capsys: pytest.CaptureFixture[str], *partitions: PartitionStatus, internal: bool
    ) -> list[str]:
        brokers = (BrokerStatus(1, 99, "h", 9, True, "running", True),)
        clusters._print_status(ClusterStatus("h:9", "c", 1, True, brokers, partitions), internal)
        return capsys.readouterr().out.splitlines()

    def test_a_healthy_internal_topic_is_one_line(self, capsys: pytest.CaptureFixture[str]) -> None:
        offsets = [self.partition("__consumer_offsets", number) for number in range(50)]
        orders = self.partition("orders", 0, isr=(1,))
        told = self.lines(capsys, *offsets, orders, internal=False)
        assert [line.split()[:2] for line in told if line.startswith("orders")] == [["orders", "0"]]
        assert [line for line in told if line.startswith("__consumer")] == [
            "__consumer_offsets: 50 partitions, all in sync, led by 1, 2, 3; --internal shows each"
        ]
        assert told[-1] == "51 partitions, 1 under-replicated, 0 without leader"
        told = self.lines(capsys, *offsets, orders, internal=True)
        assert sum(line.startswith("__consumer_offsets ") for line in told) == 50

    @pytest.mark.parametrize(
        "trouble", [{"leader": -1}, {"isr": (1, 2)}, {"high_watermark": None}], ids=str
    )
    def test_one_in_trouble_is_shown_whole(
        self, capsys: pytest.CaptureFixture[str], trouble: dict[str, Any]
    ) -> None:
        offsets = [self.partition("__consumer_offsets", number) for number in range(4)]
        sick = dataclasses.replace(offsets[2], **trouble)
        told = self.lines(capsys, *offsets[:2], sick, offsets[3], internal=False)
        assert sum(line.startswith("__consumer_offsets ") for line in told) == 4
        assert not any("--internal" in line for line in told)


class TestColours:
    """What is wrong stands out on a terminal, and only there."""

    def status(self) -> ClusterStatus:
        brokers = (
            BrokerStatus(1, 99, "h", 9, True, "running", True, True, 1, 2, 0),
            BrokerStatus(2, None, "h", 8, False, "stopped", False, False, 0, 2, 2),
        )
        partitions = (
            PartitionStatus("t", 0, 1, 7, (1, 2), (1,), (2,), 40),
            PartitionStatus("t", 1, -1, 7, (2, 1), (2,), (2,), None),
        )
        return ClusterStatus("h:9", "c", 1, True, brokers, partitions)

    def test_red_and_yellow_on_a_terminal(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TTY_COMPATIBLE", "1")
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.delenv("NO_COLOR", raising=False)
        clusters._print_status(self.status(), internal=False)
        shown = capsys.readouterr().out
        assert "\x1b[31mDOWN" in shown
        assert "\x1b[31m2 partitions, 2 under-replicated, 1 without leader" in shown
        assert "\x1b[33m" in shown and "\x1b[31m    -1" in shown

    def test_a_row_fits_on_80_columns(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        now = self.status()
        wide = [
            dataclasses.replace(each, pid=4_194_304, host="127.0.0.1", port=29_555, replicas=9_999)
            for each in now.brokers
        ]
        states: list[dict[str, Any]] = [
            {"state": "running", "registered": False},
            {"state": "stopped"},
        ]
        for changed in states:
            brokers = tuple(dataclasses.replace(each, **changed) for each in wide)
            shown = dataclasses.replace(now, brokers=brokers, partitions=())
            clusters._print_status(shown, internal=False)
        assert max(map(len, capsys.readouterr().out.splitlines())) <= 80

    @pytest.mark.parametrize("variables", [{"NO_COLOR": "1", "TTY_COMPATIBLE": "1"}, {}], ids=str)
    def test_none_elsewhere(
        self,
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
        variables: dict[str, str],
    ) -> None:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        clusters._print_status(self.status(), internal=False)
        shown = capsys.readouterr().out
        assert "DOWN" in shown
        assert "\x1b[3" not in shown


def test_without_a_terminal_a_table_is_never_folded(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("name", "none", "yes", "list"), [("x" * 300, None, True, (1, 2))])
    lines = capsys.readouterr().out.splitlines()
    assert any(line.split() == ["x" * 300, "-", "yes", "1,2"] for line in lines)


def test_names_of_others_do_nothing_to_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """A client may call a group what it likes."""
    print_table(("name", "size"), [("\x1b]0;title\x07\x1b[31mred\r\nsecond\u202eline é 名", 1)])
    lines = capsys.readouterr().out.splitlines()
    told = "\\x1b]0;title\\x07\\x1b[31mred\\r\\nsecond\\u202eline é 名"
    assert [line.split("  ")[0] for line in lines[2:]] == [told]
