"""Commands that plan moves, against fake brokers: what they print, ask for, refuse and await."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.cli import check
from tests.support.client.fake_placement import FakePlacement
from tests.unit.cli.test_commands import Shell

from tidelog.cli import documents
from tidelog.cli.reassignment_files import targets_of
from tidelog.core.errors import ErrorCode
from tidelog.core.types import TopicPartition
from tidelog.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from tidelog.wire.registry import ALTER_PARTITION_REASSIGNMENTS, DESCRIBE_LOG_DIRS

T0, T1 = TopicPartition("flights", 0), TopicPartition("flights", 1)

#: Every command that plans moves, with words for which there is something to move.
FORMS = {
    "factor": ("topics", "alter", "flights", "--replication-factor", "3"),
    "move": ("topics", "move", "flights", "--to-brokers", "2,3"),
    "decommission": ("brokers", "decommission", "1"),
    "drain": ("brokers", "drain", "1"),
    "rebalance": ("reassign", "rebalance"),
}


@pytest.fixture
def cluster() -> Iterator[FakePlacement]:
    made = FakePlacement(4)
    made.place("flights", (1, 2), (1, 2))
    made.configs["min.insync.replicas"] = "2"
    yield made
    made.close()


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, capfd: Any, cluster: FakePlacement) -> Shell:
    monkeypatch.setattr("tidelog.cli.move_execution._SETTLING_S", 0.2)
    return Shell(monkeypatch, capfd, cluster.bootstrap)


def asked(cluster: FakePlacement) -> list[Any]:
    return cluster[1].asked(ALTER_PARTITION_REASSIGNMENTS)


@pytest.mark.parametrize("form", FORMS)
class TestEveryForm:
    @pytest.mark.rule("R17")
    def test_a_dry_run_prints_the_document_and_moves_nothing(
        self, shell: Shell, cluster: FakePlacement, tmp_path: Path, form: str
    ) -> None:
        printed = shell(*FORMS[form], "--dry-run")
        document = json.loads(printed)
        check(document, documents.ReassignmentDocument)
        assert asked(cluster) == []
        assert "would" not in printed
        assert "bytes)" in shell.err
        assert all(f"{tp}: 1,2 becomes " in shell.err for tp in targets_of(document, "it"))
        # The document does by `reassign execute` what the command does by itself.
        path = tmp_path / "moves.json"
        path.write_text(printed)
        shell("reassign", "verify", str(path), code=1)
        shell("reassign", "execute", str(path))
        assert targets_of(document, "it").items() <= cluster.replicas.items()
        shell("reassign", "verify", str(path))

    @pytest.mark.rule("R17")
    def test_moves_are_made_with_a_way_back(
        self, shell: Shell, cluster: FakePlacement, tmp_path: Path, form: str
    ) -> None:
        before = dict(cluster.replicas)
        back = tmp_path / "back.json"
        words = (*FORMS[form], "--wait", "--save-rollback", str(back))
        rows = shell.json(list[documents.MovePlanned], *words)
        assert rows
        for row in rows:
            tp = TopicPartition(row["topic"], row["partition"])
            assert row["result"] == "accepted" and row["reason"]
            assert tuple(row["replicas_before"]) == before[tp]
            assert tuple(row["replicas"]) == cluster.replicas[tp]
            copies = len(set(row["replicas"]) - set(row["replicas_before"]))
            assert row["moved_bytes"] == 1_000 * copies
            assert cluster.leaders[tp] == cluster.replicas[tp][0]
        shell("reassign", "execute", str(back))
        assert cluster.replicas == before

    @pytest.mark.rule("R18")
    def test_the_replicas_of_the_plan_are_expected(
        self, shell: Shell, cluster: FakePlacement, form: str
    ) -> None:
        shell(*FORMS[form])
        (request,) = asked(cluster)
        for each in request.topics[0].partitions:
            assert tuple(each.expected_replicas) == (1, 2)

    def test_moves_are_queued_and_throttled(
        self, shell: Shell, cluster: FakePlacement, form: str
    ) -> None:
        shell(*FORMS[form], "--queue", "--throttle", "4096")
        assert cluster.throttles == [4096]
        assert cluster.queued and set(cluster.replicas.values()) == {(1, 2)}
        # The same wish again: a queued move counts, and is not asked for twice.
        shell(*FORMS[form])
        assert cluster.throttles == [4096]

    def test_a_refusal_is_printed_and_the_exit_code(
        self, shell: Shell, cluster: FakePlacement, form: str
    ) -> None:
        cluster.refusals = dict.fromkeys((T0, T1), ErrorCode.REASSIGNMENT_IN_PROGRESS)
        printed = shell(*FORMS[form], code=1)
        assert "REASSIGNMENT_IN_PROGRESS" in printed and "refused here" in printed
        assert "moves were refused" in shell.err

    def test_other_moves_under_way_need_additional(
        self, shell: Shell, cluster: FakePlacement, form: str
    ) -> None:
        cluster.place("trains", (3, 4))
        cluster.moves[TopicPartition("trains", 0)] = ((2,), (2, 4))
        shell(*FORMS[form], code=1)
        assert "partitions are on the move already (1, the first is trains-0)" in shell.err
        assert asked(cluster) == []
        shell(*FORMS[form], "--additional")
        assert len(asked(cluster)) == 1

    def test_nothing_moves_without_the_file_for_the_way_back(
        self, shell: Shell, cluster: FakePlacement, tmp_path: Path, form: str
    ) -> None:
        where = str(tmp_path / "missing" / "back.json")
        shell(*FORMS[form], "--save-rollback", where, code=1)
        assert "cannot be written, and nothing was moved" in shell.err
        assert asked(cluster) == []

    def test_a_move_that_was_cancelled_while_waited_for_is_no_success(
        self, shell: Shell, cluster: FakePlacement, form: str
    ) -> None:
        cluster.holds = True

        def cancel() -> None:
            if cluster.moves.pop(T0, None) is not None:
                cluster.finish()

        cluster.before_list = cancel
        printed = shell(*FORMS[form], "--wait", code=1)
        assert (
            "accepted, but it was cancelled or replaced meanwhile; the replicas are 1,2" in printed
        )
        assert "moves did not reach their targets" in shell.err
        assert "may be stopped" not in shell.err

    def test_an_earlier_way_back_is_not_replaced(
        self, shell: Shell, cluster: FakePlacement, tmp_path: Path, form: str
    ) -> None:
        path = tmp_path / "back.json"
        path.write_text("the way back of earlier moves")
        shell(*FORMS[form], "--save-rollback", str(path), code=1)
        assert path.read_text() == "the way back of earlier moves"
        assert asked(cluster) == []

    def test_a_dead_broker_gets_no_replica(
        self, shell: Shell, cluster: FakePlacement, form: str
    ) -> None:
        cluster.dead = {4}
        document = json.loads(shell(*FORMS[form], "--dry-run"))
        assert all(4 not in replicas for replicas in targets_of(document, "it").values())


class TestReplicationFactor:
    def test_fewer_replicas_copy_nothing(self, shell: Shell, cluster: FakePlacement) -> None:
        cluster.leaders[T1] = 2
        rows = shell.json(
            list[documents.MovePlanned], *FORMS["factor"][:-1], "1"
        )  # fmt: skip
        assert [row["replicas"] for row in rows] == [[1], [2]]
        assert [row["moved_bytes"] for row in rows] == [0, 0]
        assert "min.insync.replicas=2 is more than the 1 replica of a partition" in shell.err

    def test_nothing_to_do(self, shell: Shell) -> None:
        assert shell(*FORMS["factor"][:-1], "2") == ""
        assert "there is nothing to move" in shell.err

    def test_other_options_do_not_mix(self, shell: Shell) -> None:
        shell(*FORMS["factor"], "--config", "retention.ms=1", code=2)
        assert "give --replication-factor or configurations, not both" in shell.err
        shell("topics", "alter", "flights", "--config", "retention.ms=1", "--wait", code=2)
        assert "--wait need --replication-factor" in shell.err
        shell("topics", "alter", "flights", code=2)
        assert "nothing to change" in shell.err


class TestDecommission:
    @pytest.mark.rule("R17")
    def test_it_says_when_the_broker_may_be_stopped(
        self, shell: Shell, cluster: FakePlacement
    ) -> None:
        cluster.holds = True
        shell("brokers", "decommission", "1")
        assert "2 partitions are on the move: the same command says later" in shell.err
        assert "may be stopped" not in shell.err.replace("whether broker 1 may be stopped", "")
        cluster.finish()
        shell("brokers", "decommission", "1")
        assert "broker 1 holds no replica and may be stopped" in shell.err
        assert len(asked(cluster)) == 1

    def test_queued_moves_count_as_moves(self, shell: Shell, cluster: FakePlacement) -> None:
        shell("brokers", "decommission", "1", "--queue")
        assert "2 partitions are on the move: the same command says later" in shell.err

    def test_what_is_on_its_disk_counts_though_nothing_is_assigned(
        self, shell: Shell, cluster: FakePlacement
    ) -> None:
        full = cluster[1].handler(DESCRIBE_LOG_DIRS)(DescribeLogDirsRequest(None))
        cluster[1].on(DESCRIBE_LOG_DIRS, lambda _: full)
        words = ("brokers", "decommission", "1", "--wait", "--timeout", "0.5")
        shell(*words, code=1)
        assert "broker 1 still holds flights-0, flights-1: do not stop it" in shell.err

    def test_a_dead_broker_loses_its_replicas(self, shell: Shell, cluster: FakePlacement) -> None:
        cluster.dead = {4}
        cluster.place("trains", (4, 3))
        shell("brokers", "decommission", "4", "--wait")
        assert cluster.replicas[TopicPartition("trains", 0)][0] == 3
        assert "broker 4 holds no replica and may be stopped" in shell.err

    def test_a_dead_broker_whose_moves_are_under_way_is_known(
        self, shell: Shell, cluster: FakePlacement
    ) -> None:
        cluster.dead = {4}
        cluster.place("trains", (4, 3))
        cluster.holds = True
        shell("brokers", "decommission", "4")
        shell("brokers", "decommission", "4")
        assert "1 partition is on the move: the same command says later" in shell.err

    def test_a_move_that_waits_for_a_dead_broker_is_named(
        self, shell: Shell, cluster: FakePlacement, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        cluster.holds = True
        shell("brokers", "decommission", "1")
        receiver = max(cluster.moves[T0][0])
        cluster.dead = {receiver}
        said = f"for broker {receiver}, which is not alive: start it, or cancel the moves to it"
        shell("brokers", "decommission", "1")
        assert said in shell.err
        monkeypatch.setattr("tidelog.cli.move_execution._STALLED_S", 0.0)
        looks = list(range(5))

        def look() -> None:
            if looks.pop() == 0:
                cluster.before_list = lambda: None
                cluster.finish()

        cluster.before_list = look
        shell("brokers", "decommission", "1", "--wait")
        assert shell.err.count(said) == 1

    def test_too_few_brokers_move_nothing(self, shell: Shell, cluster: FakePlacement) -> None:
        shell("brokers", "decommission", "1", "3", "4", code=1)
        assert "only broker 2, too few for flights (2 replicas)" in shell.err
        assert asked(cluster) == []


class TestDrain:
    @pytest.mark.rule("R17")
    def test_replicas_without_place_stay_as_followers(
        self, shell: Shell, cluster: FakePlacement
    ) -> None:
        shell("brokers", "drain", "1", "3", "4", "--wait")
        assert cluster.replicas[T0] == (2, 1)
        assert cluster.leaders == {T0: 2, T1: 2}
        assert "flights-0, flights-1 stay, as followers" in shell.err
        assert "brokers 1, 3, 4 lead no partition that another broker can lead" in shell.err

    def test_leaders_only_copies_nothing(self, shell: Shell, cluster: FakePlacement) -> None:
        rows = shell.json(list[documents.MovePlanned], "brokers", "drain", "1", "--leaders-only")
        assert [row["replicas"] for row in rows] == [[2, 1], [2, 1]]
        assert cluster.leaders == {T0: 2, T1: 2}

    def test_a_leader_in_the_place_of_the_preferred_one_goes(
        self, shell: Shell, cluster: FakePlacement
    ) -> None:
        cluster.place("flights", (2, 1))
        cluster.leaders[T0] = 1
        shell("brokers", "drain", "1", "--leaders-only", "--wait")
        assert cluster.leaders[T0] == 2

    def test_partitions_with_a_dead_replica_are_named_and_others_go(
        self, shell: Shell, cluster: FakePlacement
    ) -> None:
        cluster.dead = {4}
        cluster.place("trains", (1, 4))
        shell("brokers", "drain", "1", "--wait", code=1)
        assert "tidelog: trains-0 cannot be moved, as a replica is on a dead broker" in shell.err
        assert "leads no partition" not in shell.err
        assert cluster.leaders[T0] == cluster.leaders[T1] == 2
        assert cluster.replicas[TopicPartition("trains", 0)] == (1, 4)

    def test_a_preferred_replica_that_is_not_elected_is_no_success(
        self, shell: Shell, cluster: FakePlacement
    ) -> None:
        cluster.place("flights", (2, 1))
        cluster.leaders[T0] = 1
        cluster.refused_elections = {T0: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
        shell("brokers", "drain", "1", "--leaders-only", code=1)
        assert "tidelog: flights-0 keeps its leader: because" in shell.err

    def test_a_refused_election_is_named(self, shell: Shell, cluster: FakePlacement) -> None:
        cluster.refused_elections = {T1: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
        shell("brokers", "drain", "1", "--leaders-only", code=1)
        assert "tidelog: flights-1 keeps its leader: because" in shell.err


class TestPlan:
    def test_a_replica_on_a_dead_broker(self, shell: Shell, cluster: FakePlacement) -> None:
        cluster.dead = {4}
        cluster.place("trains", (2, 4))
        shell("reassign", "plan", "--rebalance", code=1)
        assert "broker 4 is not alive and holds a replica of trains-0: start it" in shell.err

    @pytest.mark.rule("R17")
    def test_each_move_has_its_reason(self, shell: Shell, cluster: FakePlacement) -> None:
        printed = shell("reassign", "plan", "--rebalance")
        assert "broker 2 has 2 replicas, broker 3 0" in printed
        assert "planned" in printed and "2000 bytes" in shell.err
        document = shell.json(documents.ReassignmentDocument, "reassign", "plan", "--rebalance")
        assert all(entry["reason"] for entry in document["partitions"])
        assert asked(cluster) == []

    def test_a_file_of_an_old_plan_is_refused(self, shell: Shell, cluster: FakePlacement) -> None:
        text = shell("reassign", "plan", "--rebalance", "-o", "json")
        cluster.place("flights", (3, 4), (3, 4))
        shell("reassign", "execute", "--json", text, code=1)
        assert "was made for other replicas, and nothing was moved" in shell.err

    def test_a_balanced_cluster_has_no_moves(self, shell: Shell, cluster: FakePlacement) -> None:
        cluster.place("flights", (1, 2), (3, 4))
        assert shell("reassign", "plan", "--rebalance") == ""
        assert "the cluster is balanced" in shell.err
        shell("reassign", "rebalance")
        assert "the cluster is balanced" in shell.err
        assert asked(cluster) == []

    def test_a_balance_elects_preferred_replicas(
        self, shell: Shell, cluster: FakePlacement
    ) -> None:
        cluster.place("flights", (1, 2), (3, 4))
        cluster.leaders[T0] = 2
        shell("reassign", "rebalance", "--dry-run")
        assert cluster.leaders[T0] == 2
        shell("reassign", "rebalance")
        assert "1 partition has the preferred leader again" in shell.err
        assert cluster.leaders[T0] == 1
        cluster.leaders[T0] = 2
        cluster.refused_elections = {T0: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
        shell("reassign", "rebalance", code=1)
        assert "flights-0 keeps its leader: because" in shell.err

    def test_the_wish_is_needed(self, shell: Shell) -> None:
        shell("reassign", "plan", code=2)
        assert "give --rebalance" in shell.err

    def test_racks_of_some_brokers_only(self, shell: Shell, cluster: FakePlacement) -> None:
        cluster.racks = {1: "a"}
        shell("reassign", "plan", "--rebalance", code=1)
        assert "no rack is known of brokers 2, 3, 4" in shell.err
        shell("reassign", "plan", "--rebalance", "--no-racks")


@pytest.mark.parametrize(
    ("words", "code", "reason"),
    [
        ("topics alter flight --replication-factor 3", 1, "did you mean flights?"),
        ("topics alter flights --replication-factor 0", 2, "greater than or equal to 1"),
        ("topics alter flights --replication-factor 5", 1, "4 brokers are alive (1, 2, 3, 4)"),
        ("topics move flight --to-brokers 1,2", 1, "did you mean flights?"),
        ("topics move flights", 2, "--to-brokers"),
        ("topics move flights --to-brokers=", 2, "are no broker ids: 1,2,3 expected"),
        ("topics move flights --to-brokers 1,,2", 2, "are no broker ids: 1,2,3 expected"),
        ("topics move flights --to-brokers 1,2,1", 2, "broker 1 is named twice"),
        ("topics move flights --to-brokers 1,9", 1, "no live broker 9; live are 1, 2, 3, 4"),
        ("topics move flights --to-brokers 3", 1, "name at least 2"),
        ("brokers decommission", 2, "ID"),
        ("brokers decommission 9", 1, "there is no broker 9: it is not alive"),
        ("brokers decommission 1 1", 2, "broker 1 is named twice"),
        ("brokers decommission x", 2, "ID"),
        ("brokers decommission 1 2 3 4", 1, "no live broker would remain"),
        ("brokers drain 9", 1, "there is no live broker 9 to drain"),
        ("brokers drain 1 1", 2, "broker 1 is named twice"),
        ("brokers drain 1 2 3 4", 1, "no live broker would remain"),
        ("reassign rebalance --tolerance -1", 2, "tolerance"),
    ],
)
def test_bad_input_is_refused(
    shell: Shell, cluster: FakePlacement, words: str, code: int, reason: str
) -> None:
    shell(*words.split(), code=code)
    assert reason in " ".join(shell.err.replace("│", " ").split())
    assert asked(cluster) == []
