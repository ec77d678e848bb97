"""The command line against real brokers: data with kcat both ways, groups, upkeep, signals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.support.cli import check
from tests.support.clients import kcat
from tests.support.clients.kcat import needs_kcat

from tidelog.cli import documents
from tidelog.client.groups import FetchedOffset, GroupListing
from tidelog.core.types import TopicPartition
from tidelog.local import ClusterStatus, LocalCluster
from tidelog.local.health import Health
from tidelog.runtime.blocking import BlockingClient

PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three brokers that are up; a test that stops one starts it again."""
    directory = str(tmp_path_factory.mktemp("command-line") / "cluster")
    made = LocalCluster(directory, 3, config={"auto.leader.rebalance.enable": "false"})
    try:
        made.up()
        yield made
    finally:
        made.down(timeout_s=5.0)


class Shell:
    """Runs `tidelog` as a user does, against one cluster."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.bootstrap = cluster.bootstrap
        self.err = ""

    def words(self, words: Sequence[str]) -> list[str]:
        return [sys.executable, "-m", "tidelog", *words, "-b", self.bootstrap]

    def __call__(self, *words: str, sent: bytes = b"", code: int = 0) -> bytes:
        ended = subprocess.run(
            self.words(words), input=sent, capture_output=True, timeout=PATIENCE_S, check=False
        )
        self.err = ended.stderr.decode()
        assert ended.returncode == code, self.err
        assert "Traceback" not in self.err
        return ended.stdout

    def json(self, promised: Any, *words: str, code: int = 0) -> Any:
        document = json.loads(self(*words, "-o", "json", code=code))
        check(document, promised)
        return document

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self.words(words),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )


@pytest.fixture
def shell(cluster: LocalCluster) -> Shell:
    return Shell(cluster)


@pytest.fixture
def topic(shell: Shell, request: pytest.FixtureRequest) -> str:
    """A topic of three partitions on all brokers."""
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
    shell("topics", "create", name, "--partitions", "3", "--replication-factor", "3")
    return name


def eventually(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, f"{what} did not come"
        time.sleep(0.05)


def end(process: subprocess.Popen[bytes]) -> tuple[bytes, int]:
    """What a process has written, and its code."""
    out, err = process.communicate(timeout=PATIENCE_S)
    assert b"Traceback" not in err, err.decode()
    return out, process.returncode


def abandoned(process: subprocess.Popen[bytes]) -> tuple[bytes, int]:
    """What a process says, and its code, when nobody reads its output any more."""
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    with process.stdin, process.stderr:
        process.stdout.close()
        code = process.wait(PATIENCE_S)
        return process.stderr.read(), code


@needs_kcat
class TestWithKcat:
    @pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
    def test_kcat_reads_what_we_produce(self, shell: Shell, topic: str, codec: str) -> None:
        sent = b"".join(b"k%d:v%d\xff\x00\n" % (n, n) for n in range(500))
        words = ["-K", ":", "-H", "h=\u00e9", "-z", codec, "-p", "1"]
        shell("produce", topic, *words, sent=sent)
        records = kcat.read(shell.bootstrap, topic, 1)
        assert [(it.key, it.value) for it in records] == [
            (b"k%d" % n, b"v%d\xff\x00" % n) for n in range(500)
        ]
        assert {it.headers for it in records} == {(("h", "\u00e9".encode()),)}

    @pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
    def test_we_read_what_kcat_produces(self, shell: Shell, topic: str, codec: str) -> None:
        sent = b"".join(b"k%d:v%d\xff\n" % (n, n) for n in range(500))
        words = ["-P", "-b", shell.bootstrap, "-t", topic, "-K:", "-z", codec, "-H", "h=1"]
        kcat.run(*words, sent=sent)
        form = "%p %o %T %K %S %k=%s [%h]\\n"
        options = ["-o", "beginning", "-e", "-f", form]
        theirs = kcat.run("-C", "-b", shell.bootstrap, "-t", topic, "-q", *options)
        ours = shell("consume", topic, *options)
        assert sorted(ours.split(b"\n")) == sorted(theirs.split(b"\n"))
        assert len(ours.splitlines()) == 500

    @pytest.mark.parametrize("place", ["beginning", "end", "7", "-2"])
    def test_places_mean_what_they_mean_to_kcat(self, shell: Shell, topic: str, place: str) -> None:
        shell("produce", topic, "-p", "0", sent=b"".join(b"%d\n" % n for n in range(20)))
        options = ["-o", place, "-e", "-p", "0"]
        theirs = kcat.run("-C", "-b", shell.bootstrap, "-t", topic, "-q", *options)
        assert shell("consume", topic, *options) == theirs

    def test_kcat_and_we_share_a_group(self, shell: Shell, topic: str) -> None:
        assert kcat.KCAT is not None
        theirs = subprocess.Popen(
            [kcat.KCAT, "-b", shell.bootstrap, "-G", f"{topic}-g", "-q", topic],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        ours = shell.start("consume", topic, "-g", f"{topic}-g")

        def shares() -> list[int]:
            listed = shell.json(list[GroupListing], "groups", "list")
            if f"{topic}-g" not in {each["group"] for each in listed}:
                return []  # neither has joined yet
            group = shell.json(documents.GroupDescribed, "groups", "describe", f"{topic}-g")
            return sorted(len(it["partitions"] or []) for it in group["members"])

        try:
            eventually(lambda: shares() == [1, 2], "an assignment of both")
            theirs.send_signal(signal.SIGTERM)
            theirs.wait(PATIENCE_S)
            eventually(lambda: shares() == [3], "an assignment of ours alone")
        finally:
            theirs.kill()
            theirs.wait(PATIENCE_S)
            ours.send_signal(signal.SIGINT)
            _, code = end(ours)
        assert code == 130
        group = shell.json(documents.GroupDescribed, "groups", "describe", f"{topic}-g")
        assert (group["state"], group["members"]) == ("Empty", [])


class TestProduce:
    def test_a_record_of_any_size_arrives_or_is_refused_with_the_reason(
        self, shell: Shell, topic: str, tmp_path: Path
    ) -> None:
        file = tmp_path / "huge"
        file.write_bytes(b"small\n" + b"x" * 3_000_000 + b"\nbehind\n")
        shell("produce", topic, "-p", "0", "-l", str(file), code=1)
        assert "more than topic" in shell.err and "max.message.bytes" in shell.err
        shell("topics", "alter", topic, "--config", "max.message.bytes=4000000")
        told = shell.json(documents.Produced, "produce", topic, "-p", "0", "-l", str(file))
        assert told["records"] == 3
        printed = shell("consume", topic, "-p", "0", "-e", "-f", "%S ")
        assert printed.split()[-3:] == [b"5", b"3000000", b"6"]

    def test_nothing_is_nothing(self, shell: Shell, topic: str) -> None:
        shell("produce", topic)
        assert shell.err.startswith("0 records")
        assert shell("consume", topic, "-e") == b""

    def test_typed_lines_are_there_before_the_end_of_the_input(
        self, shell: Shell, topic: str
    ) -> None:
        writer = shell.start("produce", topic)
        reader = shell.start("consume", topic, "-c", "2")
        assert writer.stdin is not None and reader.stdout is not None
        for word in (b"one\n", b"two\n"):
            writer.stdin.write(word)
            writer.stdin.flush()
            assert reader.stdout.readline() == word
        assert end(reader)[1] == 0
        assert end(writer)[1] == 0

    def test_a_file_that_is_not_there_is_named(self, shell: Shell, topic: str) -> None:
        shell("produce", topic, "-l", "/nowhere/at/all", code=1)
        assert "/nowhere/at/all" in shell.err


class TestConsume:
    def test_the_reader_of_the_output_may_go_away(self, shell: Shell, topic: str) -> None:
        shell("produce", topic, sent=b"line\n" * 100_000)
        reader = shell.start("consume", topic)
        assert reader.stdout is not None
        assert reader.stdout.readline() == b"line\n"
        assert abandoned(reader) == (b"", 0)

    def test_an_idle_one_notices_as_well(self, shell: Shell, topic: str) -> None:
        shell("produce", topic, "only")
        reader = shell.start("consume", topic)
        assert reader.stdout is not None
        assert reader.stdout.readline() == b"only\n"
        assert abandoned(reader) == (b"", 0)

    @pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
    def test_a_signal_ends_a_member_well(
        self, shell: Shell, topic: str, number: signal.Signals, code: int
    ) -> None:
        shell("produce", topic, "a", "b", "c")
        reader = shell.start("consume", topic, "-g", f"{topic}-g")
        assert reader.stdout is not None
        assert sorted(reader.stdout.readline() for _ in range(3)) == [b"a\n", b"b\n", b"c\n"]
        reader.send_signal(number)
        assert end(reader) == (b"", code)
        group = shell.json(documents.GroupDescribed, "groups", "describe", f"{topic}-g")
        assert group["members"] == []
        assert sum(each["committed_offset"] for each in group["offsets"]) == 3
        assert shell("consume", topic, "-g", f"{topic}-g", "-e") == b""

    def test_json_lines(self, shell: Shell, topic: str) -> None:
        shell("produce", topic, "-k", "key", "-H", "h=v", sent=b"\xff\n")
        (line,) = shell("consume", topic, "-J", "-e").splitlines()
        document = json.loads(line)
        check(document, documents.RecordDocument)
        assert (document["key"], document["value"]) == ("key", {"base64": "/w=="})
        assert document["headers"] == [{"key": "h", "value": "v"}]

    def test_times_to_begin_and_end_at(self, shell: Shell, topic: str) -> None:
        for word in ("old", "new"):
            shell("produce", topic, "-p", "0", word)
        lines = shell("consume", topic, "-p", "0", "-e", "-f", "%T\\n").split()
        between = f"@{int(lines[1])}"
        options = ["consume", topic, "-p", "0", "-e"]
        assert shell(*options, "-o", f"s{between}") == b"new\n"
        assert shell(*options, "-o", f"e{between}") == b"old\n"

    def test_goes_on_when_a_leader_dies(
        self, shell: Shell, topic: str, cluster: LocalCluster
    ) -> None:
        reader = shell.start("consume", topic)
        assert reader.stdout is not None
        shell("produce", topic, "-p", "0", "before")
        assert reader.stdout.readline() == b"before\n"
        (told,) = shell.json(list[documents.TopicDescription], "topics", "describe", topic)
        leader = told["partitions"][0]["leader"]
        cluster.kill(leader)
        try:
            shell("produce", topic, "-p", "0", "after")
            assert reader.stdout.readline() == b"after\n"
        finally:
            cluster.restart(leader)
            reader.send_signal(signal.SIGINT)
            assert end(reader)[1] == 130


class TestGroups:
    def test_a_reset_makes_a_group_read_again(self, shell: Shell, topic: str) -> None:
        group = f"{topic}-g"
        shell("produce", topic, "-p", "0", sent=b"".join(b"%d\n" % n for n in range(10)))
        member = ("consume", topic, "-g", group, "-e")
        assert len(shell(*member).split()) == 10
        assert shell(*member) == b""
        words = ("groups", "reset", group, "--topic", f"{topic}:0", "--shift-by", "-3")
        told = shell.json(documents.GroupReset, *words)
        assert told["offsets"] == [{"topic": topic, "partition": 0, "before": 10, "after": 7}]
        assert shell(*member) == b""
        shell(*words, "--execute")
        assert shell(*member).split() == [b"7", b"8", b"9"]
        shell("groups", "reset", group, "--all-topics", "--to-earliest", "--execute")
        assert len(shell(*member, "--assignor", "cooperative-sticky").split()) == 10
        listed = shell.json(list[GroupListing], "groups", "list")
        assert group in [each["group"] for each in listed]
        assert shell.json(documents.GroupsDeleted, "groups", "delete", group) == {"groups": [group]}
        shell("groups", "describe", group, code=1)
        assert "there is no group" in shell.err

    def test_by_time(self, shell: Shell, topic: str) -> None:
        group = f"{topic}-g"
        shell("produce", topic, "-p", "0", "a", "b")
        words = ("groups", "reset", group, "--topic", f"{topic}:0", "--execute")
        for option, expected in (
            (["--to-datetime", "2001-01-01"], 0),
            (["--to-datetime", "2099-01-01T00:00Z"], 2),
            (["--by-duration", "PT1H"], 0),
        ):
            told = shell.json(documents.GroupReset, *words, *option)
            assert told["offsets"][0]["after"] == expected
        assert shell("consume", topic, "-g", group, "-e").split() == [b"a", b"b"]

    def test_a_group_with_a_member_is_not_changed(self, shell: Shell, topic: str) -> None:
        group = f"{topic}-g"
        shell("produce", topic, "a")
        reader = shell.start("consume", topic, "-g", group)
        assert reader.stdout is not None
        assert reader.stdout.readline() == b"a\n"
        reset = ("groups", "reset", group, "--topic", topic, "--to-earliest", "--execute")
        for words in (reset, ("groups", "delete", group)):
            shell(*words, code=1)
            assert "is Stable with 1 members (tidelog-cli at" in shell.err
        reader.send_signal(signal.SIGINT)
        assert end(reader)[1] == 130


class TestConfigs:
    def test_what_is_set_holds_and_says_where_it_comes_from(self, shell: Shell, topic: str) -> None:
        words = ("configs", "describe", "--topic", topic, "--key", "max.message.bytes")

        def told() -> tuple[str, str]:
            (entry,) = shell.json(documents.ConfigsDescription, *words)["configs"]
            return entry["value"], entry["source"]

        assert told()[1] == "DEFAULT_CONFIG"
        alter = ("topics", "alter", topic)
        changed = shell.json(
            documents.ConfigsChanged, *alter, "--config", "max.message.bytes=1000", "--dry-run"
        )
        assert (changed["executed"], told()[1]) == (False, "DEFAULT_CONFIG")
        shell(*alter, "--config", "max.message.bytes=1000", "--config", "retention.ms=777")
        assert told() == ("1000", "DYNAMIC_TOPIC_CONFIG")
        shell("produce", topic, "x" * 2_000, code=1)
        shell(*alter, "--delete-config", "max.message.bytes")
        assert told()[1] == "DEFAULT_CONFIG"
        table = shell("configs", "describe", "--topic", topic, "--changed").decode()
        assert "retention.ms" in table and "max.message.bytes" not in table

    def test_of_brokers_one_and_all(self, shell: Shell) -> None:
        shell("configs", "alter", "--brokers", "-c", "log.retention.ms=5000")
        shell("configs", "alter", "--broker", "2", "-c", "log.retention.ms=6000")
        found = {}
        for broker in ("1", "2"):
            words = ("configs", "describe", "--broker", broker, "--key", "log.retention.ms")
            (entry,) = shell.json(documents.ConfigsDescription, *words)["configs"]
            found[broker] = (entry["value"], entry["source"])
        assert found == {
            "1": ("5000", "DYNAMIC_DEFAULT_BROKER_CONFIG"),
            "2": ("6000", "DYNAMIC_BROKER_CONFIG"),
        }
        for owner in (["--brokers"], ["--broker", "2"]):
            shell("configs", "alter", *owner, "--delete-config", "log.retention.ms")

    def test_a_minimum_above_the_replicas_counts_as_their_number(self, shell: Shell) -> None:
        warning = (
            "tidelog: min.insync.replicas=4 is more than the 3 replicas of a partition: it counts"
            " as 3, and acks=all is no promise of more\n"
        )
        minimum = ("-c", "min.insync.replicas=4")
        for number, factor in enumerate(([], ["--replication-factor", "3"])):
            shell("topics", "create", f"minimum-{number}", *factor, *minimum)
            assert shell.err.startswith(warning)
            shell("produce", f"minimum-{number}", "acknowledged", "--acks", "all")
        shell("topics", "create", "minimum-2", "-c", "min.insync.replicas=3")
        assert "min.insync" not in shell.err
        shell("topics", "alter", "minimum-2", *minimum)
        assert shell.err.startswith(warning)
        shell("configs", "alter", "--topic", "minimum-2", *minimum, "--dry-run")
        assert shell.err.startswith(warning)
        shell("configs", "alter", "--topic", "minimum-2", "--delete-config", minimum[1][:-2])
        assert "more than" not in shell.err

    def test_a_wrong_value_says_what_is_right(self, shell: Shell, topic: str) -> None:
        shell("topics", "alter", topic, "-c", "retention.ms=soon", code=1)
        assert "an integer of at least -1 expected" in shell.err
        shell("topics", "alter", topic, "-c", "retention.mz=1", code=1)
        assert "did you mean retention.ms" in shell.err


class TestUpkeep:
    def test_a_topic_from_its_making_to_its_end(self, shell: Shell) -> None:
        words = ("--partitions", "2", "--replication-factor", "3")
        made = shell.json(documents.CreatedTopic, "topics", "create", "whole-life", *words)
        assert made["partitions"] == 2
        shell("topics", "create", "whole-life", code=1)
        assert "already exists" in shell.err
        more = ("topics", "add-partitions", "whole-life", "--to", "5")
        grown = shell.json(documents.AddedPartitions, *more)
        assert (grown["partitions_before"], grown["partitions"]) == (2, 5)
        (told,) = shell.json(list[documents.TopicDescription], "topics", "describe", "whole-life")
        assert all(each["leader"] > 0 for each in told["partitions"])
        shell("produce", "whole-life", "-p", "4", "there")
        shell.json(documents.TopicDeleted, "topics", "delete", "whole-life")
        assert "whole-life" not in json.loads(shell("topics", "list", "-o", "json"))
        shell("produce", "whole-life", "x", code=1)

    def test_partitions_are_removed_when_their_groups_have_read_them(
        self, shell: Shell, cluster: LocalCluster
    ) -> None:
        words = ("--partitions", "3", "--replication-factor", "3")
        shell("topics", "create", "drained", *words)
        for _ in range(5):
            shell("produce", "drained", "-p", "2", "there")
        last = TopicPartition("drained", 2)
        remove = ("topics", "remove-partitions", "drained", "--partitions", "1", "--drain")
        with BlockingClient(cluster.bootstrap) as client:
            client.commit("drainers", {last: FetchedOffset(2)})
            told = shell.json(documents.RemovedPartitions, *remove, "--dry-run")
            assert (told["partitions"], told["removed"]) == (2, False)
            [lost] = told["lost"]
            assert (lost["partition"], lost["first_offset"], lost["end_offset"]) == (2, 0, 5)
            assert lost["size_bytes"] > 0
            assert lost["groups"] == [{"group": "drainers", "committed": 2, "unread": 3}]
            assert set(client.partition_counts("drained").values()) == {3}
            shell(*remove, "--no-wait")
            assert "waits until drainers have read all of it" in shell.err
            assert "topic drained will have 2 partitions" in shell.err
            # It is read on, and takes no more.
            assert client.list_offsets({last: -1})[last].offset == 5
            shell("produce", "drained", "-p", "2", "late", "--timeout", "1", code=1)
            assert set(client.partition_counts("drained").values()) == {3}
            client.commit("drainers", {last: FetchedOffset(5)})
            eventually(
                lambda: set(client.partition_counts("drained").values()) == {2},
                "the end of the partition",
            )
            eventually(lambda: client.committed("drainers") == {}, "the end of its offsets")
        shell("topics", "remove-partitions", "drained", "--partitions", "2", code=1)
        assert "keeps at least one" in shell.err

    def test_leaders_go_back_and_brokers_tell_who_leads(
        self, shell: Shell, topic: str, cluster: LocalCluster
    ) -> None:
        cluster.kill(3)
        with BlockingClient(cluster.bootstrap) as client:
            client.await_topic(topic)
            eventually(
                lambda: 3 not in client.metadata([]).brokers, "the news that broker 3 is dead"
            )
            listed = shell.json(list[documents.BrokerListed], "brokers", "list")
            assert [(each["id"], each["state"]) for each in listed] == [
                (1, "up"),
                (2, "up"),
                (3, "down"),
            ]
            assert listed[2]["host"] is None and listed[2]["replicas"] >= 3
            assert listed[2]["leaders"] == 0
            assert "DOWN" in shell("brokers", "list").decode()
            # Topics of other tests may have their only replica on broker 3, or a minimum of 3.
            without = [
                state
                for view in client.metadata().topics.values()
                for state in view.partitions.values()
                if state.leader < 0
            ]
            words = shell.words(["health", "-o", "json"])
            ended = subprocess.run(words, capture_output=True, timeout=PATIENCE_S, check=False)
            before = json.loads(ended.stdout)
            check(before, Health)
            code = 2 if without or before["below_min_isr"] else 1
            assert (ended.returncode, before["exit_code"]) == (code, code)
            assert (before["leaderless"], before["brokers_down"]) == (len(without), 1)
            kinds = {each["kind"] for each in before["findings"]}
            assert kinds >= {"broker_down", "under_replicated"}
            assert b"broker 3 is not registered" in shell("health", code=code)
            shell("topics", "alter", topic, "--config", "min.insync.replicas=3")
            found = shell.json(Health, "health", code=2)
            assert found["below_min_isr"] == before["below_min_isr"] + 3
            shown = shell.json(ClusterStatus, "status")["brokers"][2]
            assert (shown["id"], shown["state"], shown["registered"]) == (3, "down", False)
            assert shown["replicas"] == listed[2]["replicas"] == shown["out_of_sync"]
            cluster.restart(3)
            client.await_topic(topic, min_isr=3)
        elected = shell.json(list[documents.LeaderElected], "leaders", "elect", "--topic", topic)
        by_result = {each["result"] for each in elected}
        assert by_result == {"elected", "not_needed"}
        moved = [each for each in elected if each["result"] == "elected"]
        assert [each["leader"] for each in moved] == [3] * len(moved)
        shell("leaders", "elect", "--all")
        brokers = shell.json(list[documents.BrokerListed], "brokers", "list")
        assert [each["id"] for each in brokers] == [1, 2, 3]
        assert brokers[2]["leaders"] > 0
        assert sum(each["controller"] for each in brokers) == 1

    def test_directories_hold_what_was_produced(self, shell: Shell, topic: str) -> None:
        shell("produce", topic, "-p", "0", "x" * 5_000)
        words = ("log-dirs", "describe", "--topic", topic)
        found = shell.json(list[documents.LogDirDescribed], *words)
        assert [each["broker"] for each in found] == [1, 2, 3]
        for each in found:
            assert each["error"] is None and each["usable_bytes"] > 0
            assert len(each["replicas"]) == 3
        assert max(each["size_bytes"] for each in found) > 5_000
        (one,) = shell.json(list[documents.LogDirDescribed], *words, "--broker", "2")
        assert one["broker"] == 2
        assert topic in shell(*words, "--replicas").decode()

    def test_deleted_records_are_gone(self, shell: Shell, topic: str) -> None:
        shell("produce", topic, "-p", "0", "a", "b", "c")
        words = ("records", "delete", f"{topic}:0", "--before-offset", "2")
        (tried,) = shell.json(list[documents.RecordsDeleted], *words, "--dry-run")
        assert (tried["low_watermark"], tried["executed"]) == (2, False)
        assert shell("consume", topic, "-e").split() == [b"a", b"b", b"c"]
        (done,) = shell.json(list[documents.RecordsDeleted], *words)
        assert (done["low_watermark"], done["executed"]) == (2, True)
        assert shell("consume", topic, "-e") == b"c\n"
        shell("records", "delete", topic, "--all")
        assert shell("consume", topic, "-e") == b""


def test_a_closed_pipe_is_met_without_a_word(shell: Shell) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    ended = subprocess.run(
        shell.words(["topics", "list"]),
        stdout=writer,
        stderr=subprocess.PIPE,
        timeout=PATIENCE_S,
        check=False,
    )
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (1, b"")


def test_tables_are_plain_text_without_a_terminal(shell: Shell, topic: str) -> None:
    printed = shell("topics", "describe", topic).decode()
    assert "\x1b" not in printed
    title, header, rule, *rows = printed.splitlines()
    assert title.startswith(topic) and set(rule) == {"─"}
    assert len({len(line) for line in (header, rule, *rows)}) == 1
    assert len(rows) == 3
