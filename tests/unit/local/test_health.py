"""What counts as healthy, degraded and unavailable, and what a person is told to do."""

from __future__ import annotations

from typing import Any

from tidelog.client.upkeep import LogDirectory
from tidelog.core.errors import ErrorCode
from tidelog.local import health
from tidelog.local.health import Health, Place, assess
from tidelog.local.status import BrokerStatus, ClusterStatus, PartitionStatus

LOCAL = Place(" --dir c", "c")
REMOTE = Place(" -b h:1", None)


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
    place: Place = LOCAL,
    controller: int = 1,
    trouble: str | None = None,
) -> Health:
    brokers = tuple(each for each in things if isinstance(each, BrokerStatus))
    partitions = tuple(each for each in things if isinstance(each, PartitionStatus))
    now = ClusterStatus("h:1", "c", controller, True, brokers, partitions)
    return assess(now, {"t": minimum}, place, trouble)


def test_a_full_log_directory_degrades_and_a_failed_one_too() -> None:
    good = LogDirectory(1, "/a", ErrorCode.NONE, (), 10, 20)
    full = LogDirectory(2, "/b", ErrorCode.NONE, (), 1_000, 20_000, is_read_only=True)
    failed = LogDirectory(3, "/c", ErrorCode.KAFKA_STORAGE_ERROR, (), -1, -1)
    now = ClusterStatus("h:1", "c", 1, True, (broker(1), broker(2), broker(3)), (partition(0),))
    found = assess(now, {"t": 1}, LOCAL, None, [good, full, failed])
    assert found.exit_code == 1
    assert [(each.kind, each.brokers) for each in found.findings] == [
        ("log_dir_full", [2]),
        ("log_dir_failed", [3]),
    ]
    assert found.findings[0].message == (
        "log directory /b of broker 2 is full and serves reads only: 1,000 usable bytes"
    )


def test_a_store_that_went_back_degrades_and_names_what_ends_it() -> None:
    now = ClusterStatus("h:1", "c", 1, True, (broker(1),), (partition(0),))
    why = "the metadata store went back"
    found = assess(now, {"t": 1}, LOCAL, None, [], why)
    assert found.exit_code == 1
    [finding] = found.findings
    assert (finding.kind, finding.message) == ("store_went_back", why)
    assert "tidelog store accept" in finding.next


def test_a_slow_log_directory_degrades_and_a_full_one_is_called_full() -> None:
    slow = LogDirectory(2, "/b", ErrorCode.NONE, (), 1_000, 20_000, is_slow=True)
    both = LogDirectory(3, "/c", ErrorCode.NONE, (), 0, 20_000, is_read_only=True, is_slow=True)
    now = ClusterStatus("h:1", "c", 1, True, (broker(2), broker(3)), (partition(0),))
    found = assess(now, {"t": 1}, LOCAL, None, [slow, both])
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
