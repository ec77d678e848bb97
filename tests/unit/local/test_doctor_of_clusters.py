"""Each finding of doctor about a cluster is planted in facts, and found with its remedy."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.cli import run

from tidelog.client.cluster import (
    BrokerNode,
    ClusterMetadata,
    PartitionMetadata,
    TopicMetadata,
)
from tidelog.client.move_progress import MoveProgress, MoveState
from tidelog.client.moving import MoveQueued, Moves, MoveUnderWay
from tidelog.client.replica_requests import PartitionReplicas, ReplicaProgress
from tidelog.core.shrink_causes import ShrinkCause
from tidelog.core.types import TopicPartition
from tidelog.local.doctor.broker_findings import is_loopback
from tidelog.local.doctor.cluster_facts import BrokerFacts, ClusterFacts, GroupFacts
from tidelog.local.doctor.cluster_findings import examine_cluster
from tidelog.local.doctor.diagnosis import Diagnosis
from tidelog.local.health import ClusterPlace, Finding, assess
from tidelog.local.status import ClusterStatus
from tidelog.wire.registry import DESCRIBE_REPLICAS, FETCH

LOCAL = ClusterPlace(" --dir c", "c")
REMOTE = ClusterPlace(" -b h:1", None)
TP = TopicPartition("t", 0)
OFFSETS = "__consumer_offsets"
VERSIONS = {FETCH: (4, 17), DESCRIBE_REPLICAS: (0, 0)}


def placed(*partitions: tuple[int, tuple[int, ...], tuple[int, ...]]) -> list[PartitionMetadata]:
    """Partitions in order, each by its leader, replicas and ISR."""
    return [
        PartitionMetadata(number, leader, 0, replicas, isr)
        for number, (leader, replicas, isr) in enumerate(partitions)
    ]


def metadata(
    topics: Mapping[str, Sequence[PartitionMetadata]], brokers: Sequence[int] = (1, 2, 3)
) -> ClusterMetadata:
    return ClusterMetadata(
        {each: BrokerNode(each, f"h{each}", 9092) for each in brokers},
        1,
        "c",
        {
            name: TopicMetadata(name, partitions={each.partition: each for each in partitions})
            for name, partitions in topics.items()
        },
    )


WHOLE = metadata({"t": placed((1, (1, 2, 3), (1, 2, 3)))})


def brokers(**changes: Any) -> list[BrokerFacts]:
    """Three brokers; `changes` are those of broker 3."""
    found = [BrokerFacts(each, f"h{each}", 9092, versions=VERSIONS) for each in (1, 2, 3)]
    return [*found[:2], replace(found[2], **changes)]


def facts(**given: Any) -> ClusterFacts:
    return ClusterFacts("h:1", **{"metadata": WHOLE, "minimums": {"t": 2}, **given})


def diagnose(place: ClusterPlace = LOCAL, **given: Any) -> Diagnosis:
    health = assess(ClusterStatus("h:1", "c", 1, True, (), ()), {}, place)
    return examine_cluster(health, facts(**given), place)


def only(place: ClusterPlace = LOCAL, **given: Any) -> Finding:
    """The only finding."""
    [finding] = diagnose(place, **given).findings
    return finding


def test_a_cluster_without_findings_is_healthy() -> None:
    found = diagnose(brokers=brokers(protocol_level="3.9", clock_ahead_ms=3))
    assert (found.subject, found.name, found.level) == ("cluster", "h:1", "healthy")
    assert (found.exit_code, found.findings, found.unexamined) == (0, [], [])


def test_what_was_not_read_is_said_once_and_leaves_the_exit_code() -> None:
    found = diagnose(unexamined=["clocks: no", "clocks: no", "groups: no"])
    assert (found.exit_code, found.unexamined) == (0, ["clocks: no", "groups: no"])


def test_the_worst_finding_comes_first_and_is_the_level() -> None:
    offsets = metadata(
        {"t": placed((2, (1, 2, 3), (1, 2, 3))), OFFSETS: placed((-1, (1, 2), (1,)))}
    )
    found = diagnose(metadata=offsets, brokers=brokers(silence="no answer"))
    assert [each.level for each in found.findings] == [
        "unavailable",
        "degraded",
        "notice",
        "notice",
    ]
    assert (found.level, found.exit_code) == ("unavailable", 2)


class TestBrokers:
    def test_a_registered_broker_that_does_not_answer(self) -> None:
        found = only(brokers=brokers(silence="cannot connect to h3:9092: refused", versions={}))
        assert (found.level, found.kind, found.brokers) == ("degraded", "broker_silent", [3])
        assert "advertised address h3:9092: cannot connect to h3:9092: refused" in found.message
        assert found.next.startswith("on this machine: nc -vz h3 9092; then correct")

    def test_one_loopback_address_among_others(self) -> None:
        found = only(brokers=brokers(host="127.0.0.1"))
        assert (found.kind, found.brokers) == ("loopback_advertised", [3])
        assert "broker 3 advertises a loopback address (127.0.0.1:9092)" in found.message
        assert "advertised.listeners=" in found.next

    def test_brokers_of_one_machine_may_have_loopback_addresses(self) -> None:
        alone = [replace(each, host="::1") for each in brokers()]
        assert diagnose(brokers=alone).findings == []

    @pytest.mark.parametrize("host", ["localhost", "127.0.0.9", "::1"])
    def test_hosts_that_are_loopback(self, host: str) -> None:
        assert is_loopback(host)
        assert not is_loopback("10.0.0.1") and not is_loopback("a.example")

    def test_a_broker_that_acknowledges_no_command(self) -> None:
        found = only(brokers=brokers(is_overdue=True))
        assert (found.kind, found.brokers) == ("commands_overdue", [1, 3])
        assert found.message.endswith("it answers on this machine")
        assert found.next.startswith("on the machine of broker 1: nc -vz")

    def test_a_clock_that_differs_by_more_than_the_measurement_may_be_wrong(self) -> None:
        near = brokers(clock_ahead_ms=900, clock_doubt_ms=500)
        assert diagnose(brokers=near).findings == []
        found = only(brokers=brokers(clock_ahead_ms=-2_000, clock_doubt_ms=4))
        assert (found.level, found.kind, found.brokers) == ("notice", "clock_differs", [3])
        assert "the clock of broker 3 is 2,000 ms behind this machine's" in found.message
        assert "measured to 4 ms" in found.message and "timedatectl" in found.next

    def test_a_clock_that_is_a_minute_off_degrades(self) -> None:
        found = only(brokers=brokers(clock_ahead_ms=90_000, clock_doubt_ms=4))
        assert (found.level, found.kind) == ("degraded", "clock_differs")

    def test_a_clock_that_differs_from_all_brokers_is_this_machines(self) -> None:
        ahead = [replace(each, clock_ahead_ms=5_000) for each in brokers()]
        found = only(brokers=ahead)
        assert found.kind == "clock_of_client"
        assert found.message.startswith("the clock of this machine is 5,000 ms behind those of all")

    def test_different_versions_of_an_api(self) -> None:
        older = {**VERSIONS, FETCH: (4, 16), 9_999: (0, 1)}
        found = only(brokers=brokers(versions=older))
        assert (found.kind, found.brokers) == ("versions_differ", [1, 2, 3])
        assert "different versions of 2 APIs: Fetch (brokers 1, 2: 4 to 17; broker 3: 4 to 16)" in (
            found.message
        )
        assert "API 9999 (brokers 1, 2: not served; broker 3: 0 to 1)" in found.message

    def test_an_old_level_of_the_protocol_between_brokers(self) -> None:
        mixed = [replace(each, protocol_level="3.9") for each in brokers()[:2]]
        found = only(brokers=[*mixed, *brokers(protocol_level="3.4")[2:]])
        assert (found.kind, found.brokers) == ("protocol_level_old", [3])
        assert "brokers 1, 2: 3.9-IV0; broker 3: 3.4-IV0" in found.message

    def test_the_level_of_apaches_brokers_is_theirs(self) -> None:
        apache = brokers(versions={FETCH: (4, 17)}, protocol_level="3.4")
        assert diagnose(brokers=apache).findings == []


def progress(broker: int, cause: ShrinkCause | None, lag: int | None = 0) -> ReplicaProgress:
    word = None if cause is None else cause.word
    return ReplicaProgress(
        broker, broker == 1, cause is None, True, 0, 5, lag, 0, 0, 0, None, word, None
    )


def described(cause: ShrinkCause, lag: int | None = 0) -> PartitionReplicas:
    """Partition 0 of t, which broker 1 leads, with replica 3 out of its ISR."""
    replicas = (progress(1, None), progress(2, None), progress(3, cause, lag))
    return PartitionReplicas(TP, 1, 0, 0, 5, 5, (), -1, None, replicas, 30_000)


class TestReplicasOutOfSync:
    LAGGING = metadata({"t": placed((1, (1, 2, 3), (1, 2)))})
    GONE = metadata({"t": placed((1, (1, 2, 3), (1, 2)))}, brokers=(1, 2))

    def of(self, cause: ShrinkCause, place: ClusterPlace = LOCAL, **given: Any) -> Finding:
        given = {"metadata": self.LAGGING, "described": {TP: described(cause, 7)}, **given}
        return only(place, **given)

    def test_partitions_of_one_broker_and_cause_are_one_finding(self) -> None:
        one = described(ShrinkCause.SLOW, 7)
        other = replace(one, tp=TopicPartition("t", 1))
        found = self.of(ShrinkCause.SLOW, described={TP: one, other.tp: other})
        assert (found.level, found.kind, found.brokers) == ("degraded", "out_of_sync", [1, 3])
        assert found.message == (
            "broker 3 is out of the ISR of 2 partitions (t-0, t-1): slow: it fetches, but does not"
            " catch up; 14 records to fetch"
        )
        assert found.partitions == ["t-0", "t-1"]

    @pytest.mark.parametrize(
        ("cause", "remedy"),
        [
            (ShrinkCause.SLOW, "tidelog reassign list --dir c"),
            (ShrinkCause.NO_FETCH, "nc -vz to the inter-broker listener of broker 1"),
            (ShrinkCause.LEADER_READ, "tidelog log-dirs describe --broker 1 --dir c"),
            (ShrinkCause.DISK, "tidelog log-dirs describe --broker 3 --dir c"),
            (ShrinkCause.OFFLINE, "tidelog log-dirs describe --broker 3 --dir c"),
            (ShrinkCause.SESSION, "wait until it has caught up: tidelog topics describe t"),
            (ShrinkCause.UNKNOWN, "tidelog topics describe t --replicas --dir c"),
        ],
    )
    def test_the_cause_decides_the_remedy(self, cause: ShrinkCause, remedy: str) -> None:
        assert remedy in self.of(cause).next

    def test_a_broker_that_is_gone_is_started(self) -> None:
        found = self.of(ShrinkCause.SESSION, metadata=self.GONE)
        assert found.next == "tidelog up --dir c"
        assert "records to fetch" not in found.message
        found = self.of(ShrinkCause.SESSION, REMOTE, metadata=self.GONE)
        assert found.next == "start broker 3; the end of its log says why it stopped"


class TestDurability:
    @pytest.mark.parametrize(
        ("replicas", "minimum", "kind", "remedy"),
        [
            ((1,), 1, "single_replica", "--replication-factor 3 --wait"),
            ((1, 2), 1, "min_isr_one", "--wait --dir c && tidelog topics alter t --config min"),
            ((1, 2, 3), 1, "min_isr_one", "tidelog topics alter t --config min.insync.replicas=2"),
            ((1, 2), 2, "min_isr_needs_all", "--replication-factor 3 --wait --dir c"),
            ((1, 2, 3), 3, "min_isr_needs_all", "--config min.insync.replicas=2 --dir c"),
            ((1, 2), 5, "min_isr_above_replicas", "--config min.insync.replicas=2 --dir c"),
        ],
    )
    def test_replicas_and_their_minimum(
        self,
        replicas: tuple[int, ...],
        minimum: int,
        kind: str,
        remedy: str,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        topics = metadata({"t": placed((1, replicas, replicas))})
        found = only(metadata=topics, minimums={"t": minimum})
        assert (found.level, found.kind, found.partitions) == ("notice", kind, ["t-0"])
        assert found.message.startswith("1 topic (t): ") and remedy in found.next
        monkeypatch.chdir(tmp_path)
        for command in found.next.split(" && "):
            program, *words = shlex.split(command)
            assert program == "tidelog"
            assert run(monkeypatch, *words) == 1, "valid options; there is no cluster in c"

    def test_a_minimum_above_the_isr_waits_for_the_replicas(self) -> None:
        behind = metadata({"t": placed((1, (1, 2, 3), (1,)))})
        found = only(metadata=behind, minimums={"t": 1})
        assert found.next.startswith("once its replicas are in sync: tidelog topics alter t --con")

    def test_brokers_that_are_missing_for_more_replicas(self) -> None:
        two = metadata({"t": placed((1, (1, 2), (1, 2)))}, brokers=(1, 2))
        assert only(metadata=two).next.startswith("add brokers until there are 3, then tidelog")

    def test_a_broker_alone_needs_no_second_replica(self) -> None:
        one = metadata({"t": placed((1, (1,), (1,)))}, brokers=(1,))
        assert diagnose(metadata=one).findings == []

    def test_a_partition_that_the_preferred_replica_could_lead(self) -> None:
        found = only(metadata=metadata({"t": placed((2, (1, 2, 3), (1, 2, 3)))}))
        assert (found.kind, found.partitions) == ("leader_not_preferred", ["t-0"])
        assert found.next == "tidelog leaders elect --all --dir c"
        away = metadata({"t": placed((2, (9, 2, 3), (9, 2, 3)))})
        assert diagnose(metadata=away).findings == []


class TestMoves:
    MOVE = MoveUnderWay((4, 1), (4,), (1,))

    def of(self, move: MoveUnderWay, place: ClusterPlace = LOCAL, **given: Any) -> Finding:
        return only(place, moves=Moves({TP: move}, {}, False, True), **given)

    def test_a_move_to_a_broker_that_is_not_registered(self) -> None:
        found = self.of(self.MOVE)
        assert (found.level, found.kind, found.brokers) == ("degraded", "move_stuck", [4])
        assert "the move of t-0 cannot end: broker 4 is to be added, and not reg" in found.message
        assert found.next == (
            "tidelog up --dir c; or give the move up: tidelog reassign cancel --topic t --dir c"
        )
        assert self.of(self.MOVE, REMOTE).next.startswith("start broker 4; or give the move up")

    def test_of_several_moves_of_a_topic_only_the_stuck_one_is_given_up(self) -> None:
        moves = Moves(
            {TP: self.MOVE}, {TopicPartition("t", 1): MoveQueued((3, 2), "")}, False, True
        )
        found = only(moves=moves)
        command = shlex.split(found.next.split("; or give the move up: ")[1])
        assert command[:4] == ["tidelog", "reassign", "cancel", "--json"]
        entry = {"topic": "t", "partition": 0, "replicas": [4]}
        assert json.loads(command[4]) == {"partitions": [entry]}

    def test_a_move_without_a_leader_to_copy_from(self) -> None:
        unled = metadata({"t": placed((-1, (1, 2, 3), (1, 2)))})
        found = self.of(MoveUnderWay((3, 1), (3,), (1,)), metadata=unled)
        assert (found.kind, found.next) == (
            "move_stuck",
            "tidelog topics describe t --replicas --dir c",
        )

    def test_a_move_that_copies_no_faster_than_producers_write(self) -> None:
        move = MoveUnderWay((3, 1), (3,), (1,), throttle=1_000)
        slow = MoveProgress(TP, MoveState.ADDING, move, 5, 90, 999.6, None, True)
        found = self.of(move, progress=[slow], watched_s=6.0)
        assert found.kind == "move_never"
        assert found.message.endswith("(1,000 bytes/s over 6 s)")
        assert "raise the throttle of 1,000 bytes/s" in found.next
        unlimited = replace(move, throttle=0)
        found = self.of(unlimited, progress=[replace(slow, move=unlimited)], watched_s=6.0)
        assert found.next.startswith("slow its producers down, or give it up: tidelog reassign")
        assert "--all" not in found.next

    def test_a_move_that_pauses_says_why(self) -> None:
        move = MoveUnderWay((3, 1), (3,), (1,), paused="too few replicas are in sync")
        found = self.of(move)
        assert (found.level, found.kind) == ("notice", "move_paused")
        assert found.message == "the move of t-0 pauses: too few replicas are in sync"

    def test_a_move_that_goes_on_is_no_finding(self) -> None:
        moves = Moves({TP: MoveUnderWay((3, 1), (3,), (1,))}, {}, False, True)
        assert diagnose(moves=moves).findings == []

    def test_a_queued_move_whose_target_is_away(self) -> None:
        queued = {TP: MoveQueued((4, 2), ""), TopicPartition("t", 1): MoveQueued((3, 2), "")}
        found = only(moves=Moves({}, queued, False, True))
        assert (found.kind, found.brokers, found.partitions) == ("move_stuck", [4], ["t-0"])
        assert found.message.startswith("the queued move of t-0 cannot begin: broker 4 is")


class TestGroups:
    BEHIND = GroupFacts("g", 2, ("Stable", "Stable"), 2, {TP: 8}, has_advanced=False)

    def test_a_group_that_commits_nothing_while_records_wait(self) -> None:
        found = only(groups=[self.BEHIND], watched_s=6.0)
        assert (found.level, found.kind, found.brokers) == ("notice", "group_without_progress", [2])
        assert found.message == (
            "group g with 2 members committed no offset in 6 s, and 8 records of t-0 wait for it"
        )
        assert found.next.startswith("tidelog groups describe g --dir c")

    def test_one_look_shows_no_lack_of_progress(self) -> None:
        assert diagnose(groups=[self.BEHIND]).findings == []

    @pytest.mark.parametrize("changes", [{"has_advanced": True}, {"lag": {TP: 0}}])
    def test_a_group_with_progress_or_without_lag(self, changes: dict[str, Any]) -> None:
        assert diagnose(groups=[replace(self.BEHIND, **changes)], watched_s=6.0).findings == []

    def test_records_wait_for_a_group_without_members(self) -> None:
        empty = replace(self.BEHIND, states=("Empty", "Empty"), members=0)
        found = only(groups=[empty])
        assert found.kind == "group_without_members"
        assert found.next.endswith("if it is retired: tidelog groups delete g --dir c")

    @pytest.mark.parametrize(
        ("name", "word", "text"),
        [
            ("a b; rm -rf ~", "'a b; rm -rf ~'", "a b; rm -rf ~"),
            ("it's", """'it'"'"'s'""", "it's"),
            ("a\nid\x1b[2J'\\", r"$'a\U0000000aid\U0000001b[2J\'\\'", r"a\nid\x1b[2J'\\"),
            ("größe", "'größe'", "größe"),
        ],
    )
    def test_a_clients_name_is_one_word_of_the_remedy(
        self, name: str, word: str, text: str
    ) -> None:
        empty = replace(self.BEHIND, group=name, states=("Empty", "Empty"), members=0)
        found = only(groups=[empty])
        assert found.next.endswith(f"tidelog groups delete {word} --dir c")
        assert found.message.startswith(f"group {text} has no members")

    def test_a_rebalance_that_does_not_end(self) -> None:
        states = ("PreparingRebalance", "CompletingRebalance")
        found = only(groups=[replace(self.BEHIND, states=states)], watched_s=6.0)
        assert found.kind == "group_rebalancing"
        joined = replace(self.BEHIND, states=("PreparingRebalance", "Stable"), has_advanced=True)
        assert diagnose(groups=[joined], watched_s=6.0).findings == []


class TestCoordinators:
    def of(self, *partitions: tuple[int, tuple[int, ...], tuple[int, ...]]) -> Finding:
        topics = {"t": WHOLE.topics["t"].partitions.values(), OFFSETS: placed(*partitions)}
        return only(metadata=metadata({name: list(each) for name, each in topics.items()}))

    def test_groups_without_a_coordinator(self) -> None:
        found = self.of((-1, (1, 2, 3), (1,)), (2, (2, 1, 3), (2, 1, 3)))
        assert (found.level, found.kind) == ("unavailable", "coordinator_missing")
        assert found.partitions == [f"{OFFSETS}-0"]

    def test_offsets_with_too_few_replicas(self) -> None:
        found = self.of((1, (1,), (1,)), (2, (2, 1, 3), (2, 1, 3)))
        assert (found.level, found.kind) == ("notice", "coordinator_replicas")
        assert found.next == (
            f"tidelog topics alter {OFFSETS} --replication-factor 3 --wait --dir c"
        )

    def test_one_broker_that_coordinates_all_groups(self) -> None:
        found = self.of((2, (2, 1, 3), (2, 1, 3)), (2, (2, 3, 1), (2, 3, 1)))
        assert (found.level, found.kind, found.brokers) == (
            "notice",
            "coordinators_on_one_broker",
            [2],
        )
        assert f"tidelog leaders elect --topic {OFFSETS} --dir c" in found.next
