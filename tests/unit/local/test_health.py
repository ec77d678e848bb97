"""What counts as healthy, degraded and unavailable, and what a person is told to do."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from tidelog.client.configs import BROKER, TOPIC, ConfigResource
from tidelog.client.moving import MoveQueued, Moves
from tidelog.client.stray_requests import StrayReplica
from tidelog.client.throttles import Throttle, outliving
from tidelog.client.upkeep import LogDirDescription, ReplicaSize
from tidelog.core.errors import ErrorCode
from tidelog.core.types import TopicPartition
from tidelog.local import health
from tidelog.local.health import ClusterPlace, Health, Surroundings, assess
from tidelog.local.lost_replicas import last_known
from tidelog.local.status import BrokerStatus, ClusterStatus, PartitionStatus

LOCAL = ClusterPlace(" --dir c", "c")
LOST = {(3, "/c"): [TopicPartition("t", number) for number in range(4)]}
REMOTE = ClusterPlace(" -b h:1", None)


def broker(number: int, state: str = "running", registered: bool = True) -> BrokerStatus:
    return BrokerStatus(
        id=number,
        pid=None,
        host="h",
        port=number,
        alive=registered,
        state=state,
        controller=number == 1,
        registered=registered,
        replicas=4,
    )


def partition(number: int, leader: int = 1, isr: tuple[int, ...] = (1, 2, 3)) -> PartitionStatus:
    return PartitionStatus("t", number, leader, 0, (1, 2, 3), isr, (), None)


def judge(
    *things: Any,
    minimum: int = 2,
    place: ClusterPlace = LOCAL,
    controller: int = 1,
    trouble: str | None = None,
) -> Health:
    brokers = tuple(each for each in things if isinstance(each, BrokerStatus))
    partitions = tuple(each for each in things if isinstance(each, PartitionStatus))
    now = ClusterStatus("h:1", "c", controller, True, brokers, partitions)
    return assess(now, {"t": minimum}, place, trouble)


def test_a_full_log_directory_degrades_and_a_failed_one_too() -> None:
    good = LogDirDescription(1, "/a", ErrorCode.NONE, (), 10, 20)
    full = LogDirDescription(2, "/b", ErrorCode.NONE, (), 1_000, 20_000, is_read_only=True)
    failed = LogDirDescription(3, "/c", ErrorCode.KAFKA_STORAGE_ERROR, (), -1, -1)
    now = ClusterStatus("h:1", "c", 1, True, (broker(1), broker(2), broker(3)), (partition(0),))
    found = assess(now, {"t": 1}, LOCAL, None, Surroundings([good, full, failed], LOST))
    assert found.exit_code == 1
    assert [(each.kind, each.brokers) for each in found.findings] == [
        ("log_dir_full", [2]),
        ("log_dir_failed", [3]),
    ]
    assert found.findings[0].message == (
        "log directory /b of broker 2 is full and serves reads only: 1,000 usable bytes"
    )
    assert found.findings[1].message == (
        "log directory /c of broker 3 cannot be used: KAFKA_STORAGE_ERROR; its replicas are offline"
        " (4: t-0, t-1, t-2 and 1 more)"
    )
    assert found.findings[1].partitions == ["t-0", "t-1", "t-2", "t-3"]


TP = TopicPartition("t", 0)


def noticed(**things: Any) -> Health:
    now = ClusterStatus("h:1", "c", 1, True, (broker(1),), (partition(0),))
    return assess(now, {"t": 1}, LOCAL, None, Surroundings(**things))


def test_a_freeze_and_a_queue_are_noticed_and_leave_the_cluster_healthy() -> None:
    waiting = {TP: MoveQueued((2, 3), "reassignments are frozen")}
    found = noticed(moves=Moves({}, waiting, is_frozen=True, knows_queue=True))
    assert (found.level, found.exit_code) == ("healthy", 0)
    frozen, queued = found.findings
    assert (frozen.level, frozen.kind) == ("notice", "frozen")
    assert frozen.next == "tidelog reassign unfreeze --dir c"
    assert (queued.kind, queued.message) == ("queued_moves", "1 move is queued: t-0")
    assert queued.partitions == ["t-0"]
    nothing = noticed(moves=Moves({}, {}, is_frozen=False, knows_queue=True))
    assert nothing.findings == []


def test_strays_are_noticed_with_their_bytes() -> None:
    strays = [
        StrayReplica(2, "/a", "t-0.x-stray", TP, b"", 0, 5_000, 99, True),
        StrayReplica(3, "/a", "t-1.x-stray", TP, b"", 0, 7_000, None, True),
    ]
    [found] = noticed(strays=strays).findings
    assert (found.level, found.brokers) == ("notice", [2, 3])
    assert found.message == (
        "2 replicas with 12,000 bytes set aside on brokers 2, 3; 1 of them stay until an operator"
        " decides"
    )


def test_throttles_that_outlive_their_moves_are_noticed_with_their_removal() -> None:
    rate = Throttle(ConfigResource(BROKER, "2"), "leader.replication.throttled.rate", "1000")
    [found] = noticed(throttles=[rate]).findings
    assert (found.level, found.kind) == ("notice", "throttles_left")
    assert found.message == (
        "throttles of replication outlive their moves: leader.replication.throttled.rate=1000 of"
        " broker 2"
    )
    assert found.next == "tidelog reassign cancel --throttles --dir c"


class TestOutliving:
    RATE = Throttle(ConfigResource(BROKER, "2"), "leader.replication.throttled.rate", "1000")
    MOVED = Throttle(ConfigResource(TOPIC, "t"), "leader.replication.throttled.replicas", "0:1")
    OTHER = Throttle(ConfigResource(TOPIC, "u"), "leader.replication.throttled.replicas", "*")

    def test_settings_are_needed_while_a_partition_of_the_topic_moves(self) -> None:
        everything = [self.MOVED, self.OTHER, self.RATE]
        assert outliving(everything, [TP]) == [self.OTHER]
        assert outliving(everything, []) == everything


class TestLostReplicas:
    DIRECTORY = LogDirDescription(3, "/c", ErrorCode.KAFKA_STORAGE_ERROR, (), -1, -1)

    def metadata(self, offline: tuple[int, ...]) -> Any:
        part = SimpleNamespace(offline=offline)
        return SimpleNamespace(all_partitions=lambda: [(TP, part)])

    def test_the_broker_names_what_a_directory_held(self) -> None:
        known = replace(self.DIRECTORY, last_known=(ReplicaSize(*TP, 70, -1, False),))
        assert last_known(known, [known], self.metadata(())) == {TP: 70}

    def test_of_a_directory_that_failed_before_the_start_the_controller_knows(self) -> None:
        one = self.DIRECTORY
        assert last_known(one, [one], self.metadata((3,))) == {TP: None}
        assert last_known(one, [one], self.metadata((2,))) == {}

    def test_nothing_is_guessed_of_two(self) -> None:
        one, other = self.DIRECTORY, replace(self.DIRECTORY, path="/d")
        assert last_known(one, [one, other], self.metadata((3,))) == {}

    def test_a_good_directory_lost_nothing(self) -> None:
        good = replace(self.DIRECTORY, error=ErrorCode.NONE)
        assert last_known(good, [good], self.metadata((3,))) == {}


def test_a_store_that_went_back_degrades_and_names_what_ends_it() -> None:
    now = ClusterStatus("h:1", "c", 1, True, (broker(1),), (partition(0),))
    why = "the metadata store went back"
    found = assess(now, {"t": 1}, LOCAL, None, Surroundings(moves=Moves({}, {}, False, True, why)))
    assert found.exit_code == 1
    [finding] = found.findings
    assert (finding.kind, finding.message) == ("store_went_back", why)
    assert f"`tidelog store accept {LOCAL.directory}`" in finding.next


def test_a_slow_log_directory_degrades_and_a_full_one_is_called_full() -> None:
    slow = LogDirDescription(2, "/b", ErrorCode.NONE, (), 1_000, 20_000, is_slow=True)
    both = LogDirDescription(
        3, "/c", ErrorCode.NONE, (), 0, 20_000, is_read_only=True, is_slow=True
    )
    now = ClusterStatus("h:1", "c", 1, True, (broker(2), broker(3)), (partition(0),))
    found = assess(now, {"t": 1}, LOCAL, None, Surroundings([slow, both]))
    assert [each.kind for each in found.findings] == ["log_dir_slow", "log_dir_full"]
    assert found.findings[0].message == (
        "log directory /b of broker 2 is slow: too many of its operations take"
        " log.dir.slow.threshold.ms"
    )
    assert "tidelog log-dirs mark-bad --broker 2 /b" in found.findings[0].next


def test_a_whole_cluster_is_healthy() -> None:
    found = judge(broker(1), broker(2), broker(3), partition(0))
    assert (found.level, found.exit_code, found.findings) == ("healthy", 0, [])


def test_a_broker_that_is_down_degrades() -> None:
    lagging = [partition(number, isr=(1, 2)) for number in range(5)]
    found = judge(broker(1), broker(2), broker(3, "stopped", registered=False), *lagging)
    assert (found.exit_code, found.brokers_down, found.under_replicated) == (1, 1, 5)
    replicas, down = found.findings
    assert replicas.message == (
        "5 partitions under-replicated: t-0, t-1, t-2 and 2 more; out of the ISR: broker 3"
    )
    assert replicas.partitions == ["t-0", "t-1", "t-2", "t-3", "t-4"]
    assert down.message == (
        "broker 3 is not registered (its process: stopped); it holds 4 replicas"
    )
    assert replicas.next == down.next == "tidelog up --dir c"


def test_a_partition_whose_brokers_are_up_has_a_step_of_its_own_beside_a_stopped_broker() -> None:
    behind = [partition(0, isr=(1, 2)), partition(1, isr=(1, 3)), partition(2, isr=(1, 3))]
    found = judge(broker(1), broker(2), broker(3, "stopped", registered=False), *behind)
    assert found.findings[0].next == (
        "tidelog up --dir c; for t-1 and 1 more, whose brokers are up:"
        " tidelog topics describe t --dir c"
    )


def test_a_paused_broker_degrades_before_anything_else_shows_it() -> None:
    found = judge(broker(1), broker(2, "paused"), broker(3), partition(0))
    [finding] = found.findings
    assert (finding.level, finding.kind) == ("degraded", "broker_paused")
    assert finding.next == "tidelog break resume 2 --dir c"


def test_a_partition_below_its_minimum_is_unavailable() -> None:
    found = judge(broker(1), broker(2), broker(3), partition(0, isr=(1,)))
    assert (found.level, found.exit_code, found.below_min_isr) == ("unavailable", 2, 1)
    [finding] = found.findings
    assert finding.message == (
        "1 partition with an ISR below min.insync.replicas: acks=all is refused: t-0; out of the"
        " ISR: brokers 2, 3"
    )
    assert finding.next == "tidelog topics describe t --dir c"


def test_a_minimum_above_the_number_of_replicas_counts_as_that_number() -> None:
    assert judge(broker(1), partition(0), minimum=9).exit_code == 0


def test_a_partition_without_a_leader_is_unavailable() -> None:
    down = broker(2, "down", registered=False)
    found = judge(broker(1), down, partition(0, leader=-1, isr=(2,)), place=REMOTE)
    assert (found.exit_code, found.leaderless) == (2, 1)
    assert found.findings[0].kind == "no_leader"
    assert found.findings[0].next == "start broker 2; its log says why it ended"


def test_a_process_that_runs_and_is_not_registered_has_a_log() -> None:
    found = judge(broker(1), broker(2, "running", registered=False))
    assert found.findings[0].next == "read the end of c/broker-2/log/broker.log"


def test_a_cluster_without_a_controller_is_degraded() -> None:
    found = judge(broker(1), partition(0), controller=-1)
    assert [each.kind for each in found.findings] == ["no_controller"]
    assert found.exit_code == 1


def test_a_controller_that_cannot_decide_degrades() -> None:
    found = judge(broker(1), partition(0), trouble="the metadata store is away")
    [finding] = found.findings
    assert (found.exit_code, finding.kind) == (1, "controller_blocked")
    assert finding.message == (
        "the controller, broker 1, cannot decide: the metadata store is away"
    )
    assert "metadata store" in finding.next


def test_a_cluster_that_does_not_answer_is_unreachable() -> None:
    found = health.unreachable("h:1", "no broker answers", LOCAL)
    assert (found.level, found.exit_code) == ("unreachable", 3)
    assert found.findings[0].next == "tidelog up --dir c"


def test_findings_about_partitions_and_brokers() -> None:
    whole = (broker(1), broker(2), broker(3))
    assert kinds(*whole, partition(0, isr=(1, 2))) == ["under_replicated"]
    assert kinds(*whole, partition(0, isr=(1,))) == ["below_min_isr"]
    assert kinds(*whole, partition(0, leader=-1, isr=())) == ["no_leader"]
    gone = broker(3, "down", registered=False)
    assert kinds(broker(1), broker(2), gone, partition(0)) == ["broker_down"]
    assert kinds(broker(1), broker(2), broker(3, "stopped"), partition(0)) == ["broker_stopped"]
    assert [each.kind for each in health.unreachable("h:1", "none", LOCAL).findings] == [
        "not_reached"
    ]


def kinds(*things: Any) -> list[str]:
    return [each.kind for each in judge(*things).findings]
