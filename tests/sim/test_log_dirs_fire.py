"""Faults of single log directories: a directory fails, stays so, and is repaired or replaced."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import suppress

import pytest
from tests.sim.fault_harness import TOPIC, FaultHarness, fault_harness

from tidelog.core.errors import KafkaError
from tidelog.core.types import TopicId, TopicPartition
from tidelog.sim.disk import Loss, SimDisk
from tidelog.sim.faults.log_dirs import OPERATIONS, errors_of, strike_operation
from tidelog.sim.files import SimFiles
from tidelog.sim.log_dir_failure import DEVICE_ERRNOS, LogDirFailure
from tidelog.sim.loop import NS_PER_S
from tidelog.sim.run import SeedRun
from tidelog.sim.sim_broker import SimBroker
from tidelog.sim.simulator import CollectorPaused

#: Operations that change nothing, or of which a read-only mount allows as much as it can.
READING = ("open", "read", "sync", "sync of a directory", "listdir", "stat", "statvfs")


@pytest.fixture
def at() -> Iterator[FaultHarness]:
    with fault_harness(log_dirs=2) as made:
        yield made


def holder(at: FaultHarness, broker_id: int) -> tuple[SimBroker, SimDisk]:
    """Return a broker and its disk with the replica of the topic."""
    broker = at.cluster.brokers[broker_id]
    disk = broker.logs.holder(f"{TOPIC}-0")
    assert disk is not None
    return broker, disk


def topic_id(at: FaultHarness) -> TopicId:
    return at.cluster.published.topics[TOPIC].topic_id


def test_fail_directory_lets_calls_fail_until_an_operator_repairs_the_disk(
    at: FaultHarness,
) -> None:
    """A broker restarts on it. The operator may come before the call at which it fails."""
    for seed in range(8):
        at.inject("fail_directory", seed)
        ((broker, disk),) = [
            (each, disk) for each in at.brokers for disk in each.logs.disks if disk.fault
        ]
        assert broker.crash(Loss.NONE, "restarts")
        at.until(lambda disk=disk: disk.fault is None)  # type: ignore[misc]  # bound now
        at.until(lambda: not at.cluster.health())
        assert not disk.is_failed
    began = at.noted(" fails with E")
    assert len([line for line in began if " disk /data" in line]) >= 3
    assert at.noted("replicas_offline") or at.noted("log_directory_unusable")
    assert at.noted("is repaired") and at.noted("is replaced by an empty disk")


@pytest.mark.parametrize("number", DEVICE_ERRNOS, ids=lambda number: errno.errorcode[number])
@pytest.mark.parametrize("is_emptied", [False, True], ids=["the same disk", "an empty disk"])
def test_a_directory_fails_with_each_errno_and_its_replica_returns_whole_or_empty(
    at: FaultHarness, number: int, is_emptied: bool
) -> None:
    broker, disk = holder(at, 2)
    failure = LogDirFailure(at.cluster, broker, disk, number, 1)
    assert not failure.has_begun
    broker.stop(Loss.NONE)
    at.until(lambda: failure.has_begun)
    assert at.noted(f"{disk.root} fails with {errno.errorcode[number]}")
    at.run(1_000)
    assert disk.is_failed
    assert disk.find(f"{disk.root}/{TOPIC}-0") is not None
    at.until(lambda: failure.repair(is_emptied=is_emptied))
    is_kept = disk.find(f"{disk.root}/{TOPIC}-0") is not None
    assert is_kept is not is_emptied
    at.cluster.start()
    at.until(lambda: not at.cluster.health())
    (log,) = [log for key, log in broker.logs.logs.items() if key.topic_id == topic_id(at)]
    assert log.disk is disk or is_emptied
    assert at.simulator.violations == []


def test_hang_directory_lets_no_operation_end_until_the_disk_answers_again(
    at: FaultHarness,
) -> None:
    """Some hangs are long enough for the broker to give the directory up, and some are not."""
    for seed in range(6):
        at.inject("hang_directory", seed)
        (disk,) = [disk for each in at.brokers for disk in each.logs.disks if disk.hangs]
        at.until(lambda disk=disk: not disk.hangs)  # type: ignore[misc]  # bound now
        for broker in at.brokers:
            directories = [] if broker.broker is None else broker.broker.replicas.directories
            if any(directory.failure for directory in directories):
                assert broker.crash(Loss.NONE, "restarts")
        at.until(lambda: not at.cluster.health())
    assert len(at.noted(" answers again")) == 6
    assert at.simulator.violations == []


def test_a_stop_loses_no_directory_that_the_broker_has_given_up_unsynced(at: FaultHarness) -> None:
    """The shutdown syncs the others alone, so a power loss behind it would be one more failure."""
    broker, disk = holder(at, 1)
    assert broker.broker is not None
    (directory,) = [each for each in broker.broker.replicas.directories if each.path == disk.root]
    directory.mark_bad()
    at.until(lambda: disk.root in broker.broker.replicas.failed)  # type: ignore[union-attr]  # it runs
    broker.stop(Loss.ALL_UNSYNCED)
    at.until(lambda: broker.life is None)
    assert broker.stopped_cleanly and not at.noted("lost data")
    at.until(lambda: not at.cluster.health())
    broker.stop(Loss.ALL_UNSYNCED)
    at.until(lambda: broker.life is None)
    assert [line for line in at.lines if " death ALL_UNSYNCED stopped as requested" in line]


def test_a_directory_of_the_last_good_member_does_not_fail(at: FaultHarness) -> None:
    """Two of three members may fail while the third is there: it then waits for one of them."""
    failures = []
    for broker_id in (1, 2, 3):
        broker, disk = holder(at, broker_id)
        failures.append(LogDirFailure(at.cluster, broker, disk, errno.EIO, 1))
        broker.stop(Loss.NONE)
        at.until(lambda broker=broker: broker.life is None)  # type: ignore[misc]  # bound now
        at.until(lambda broker=broker: broker.incarnation > 1)  # type: ignore[misc]  # bound now
        at.run(500)
    assert [failure.has_begun for failure in failures] == [True, True, False]


def test_a_failed_directory_counts_for_its_own_replicas_alone(at: FaultHarness) -> None:
    budget = at.cluster.budget
    (first, disk), (last, other) = holder(at, 1), holder(at, 3)
    (spare,) = [each for each in last.logs.disks if each is not other]
    (intact,) = [each for each in first.logs.disks if each is not disk]
    disk.is_failed = holder(at, 2)[1].is_failed = True
    assert not budget.may_fail(3, loses_data=True)
    assert not budget.may_fail(3, loses_data=True, disk=other)
    assert not budget.may_fail(3, loses_data=False, disk=spare), "the last steady member is spared"
    assert budget.may_fail(1, loses_data=True, disk=intact)
    disk.is_failed = False
    assert budget.may_fail(3, loses_data=True, disk=other)


def move(at: FaultHarness, broker: SimBroker) -> None:
    """Move a broker's replica of the topic to its other directory."""
    assert broker.broker is not None
    replicas = broker.broker.replicas
    partition = replicas.get(TopicPartition(TOPIC, 0))
    if partition is None:
        return  # it is in a directory that has failed
    other = next((each for each in replicas.directories if each is not partition.directory), None)
    if other is None:
        return
    path = other.path

    async def attempt() -> None:
        # A directory that fails, or an operation on it, refuses the move.
        with suppress(KafkaError):
            await replicas.moves.move(partition.topic_partition, path)

    broker.broker.services.tasks.spawn("a test moves a replica", attempt())


def test_strike_directory_move_kills_a_broker_in_the_middle_of_a_move(at: FaultHarness) -> None:
    """It is whole in one directory when the broker is back, and in both on the way there."""
    before = {broker.node_id: broker.incarnation for broker in at.brokers}
    for seed in range(24):
        at.inject("strike_directory_move", seed)
        for broker in at.brokers:
            if broker.broker is not None and broker.life is not None:
                move(at, broker)
        at.run(200)
        at.until(lambda: not at.cluster.health())
        at.until(lambda: not at.cluster.directory_moves.left_over())
    assert sum(broker.incarnation - before[broker.node_id] for broker in at.brokers) >= 10
    assert at.cluster.directory_moves.checked >= 40
    marks = at.simulator.trace.marks
    assert marks["moved_replica_found_twice"] and marks["directory_move_resumed"]


def test_the_phase_of_an_offline_directory_is_played() -> None:
    """After the faults; a directory without a call in time is left alone."""
    begun = ended = 0
    for seed in (0, 1):
        lines: list[str] = []
        with CollectorPaused():
            run = SeedRun(seed, "jbod", lines.append)
            run.faults.begin = lambda: None  # type: ignore[method-assign]  # replaced by the test
            run._fault_ns = NS_PER_S
            assert run.run().violation == ""
        begun += sum(" fails with E" in line for line in lines)
        # The end of a broker that lived on is another line.
        repairs = [line for line in lines if " fault " in line]
        ended += sum("is repaired" in line or "by an empty disk" in line for line in repairs)
        assert run.cluster.log_dirs.found >= (1 if begun else 0)
    assert begun == ended == 2


@pytest.mark.parametrize("operation", OPERATIONS)
def test_each_operation_fails_with_device_errors_space_or_what_a_process_lacks(
    operation: str,
) -> None:
    errors = {errno.errorcode[number] for number in errors_of(operation)}
    assert {"EIO", "EACCES", "ENOENT", "ENXIO", "ESTALE", "ENOMEM", "EINTR"} <= errors
    assert ("EROFS" in errors) is (operation not in READING)
    assert ({"ENOSPC", "EDQUOT"} <= errors) is (
        operation in ("write", "sync", "sync of a directory", "truncate", "rename", "mkdir")
    )
    assert ({"EMFILE", "ENFILE"} <= errors) is (
        operation in ("open", "listdir", "sync of a directory")
    )


def test_the_operations_are_all_calls_of_files_but_close() -> None:
    calls = [call for each in OPERATIONS.values() for call in each]
    # `status` begins as `size` does, and a time is set together with the next call.
    others = ("close", "replace_file", "status", "set_modified")
    port = [name for name in vars(SimFiles) if not name.startswith("_")]
    assert sorted(calls) == sorted(name for name in port if name not in others)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_each_operation_meets_each_errno_and_the_cluster_is_healthy_again(
    at: FaultHarness, operation: str
) -> None:
    """While replicas move, and brokers start: some operations happen there alone."""
    seed = 0
    for number in errors_of(operation):
        error = errno.errorcode[number]
        met = [f"{error} {call}" for call in OPERATIONS[operation]]
        for _ in range(20):
            seed += 1
            at.until(lambda: not at.cluster.health())
            broker = at.brokers[seed % len(at.brokers)]
            disk = broker.logs.disks[seed // 2 % 2]
            if disk.fault is None:
                strike_operation(at.context(seed), broker, disk, operation, number, 1)
            move(at, broker)
            at.run(300)
            if broker.life is not None and seed % 3 == 0:
                broker.stop(Loss.NONE)
                at.run(700)
            if any(name in each.call_errors for name in met for each in broker.logs.disks):
                break
        else:
            pytest.fail(f"{operation} never failed with {error}")
        at.until(lambda: not any(each.fault for one in at.brokers for each in one.logs.disks))
    at.until(lambda: not at.cluster.health())
    assert at.simulator.violations == []


def test_fail_operation_fails_one_call_or_the_directory_at_once_or_in_a_move(
    at: FaultHarness,
) -> None:
    """Errors that are not the device's leave the directory good, except those of a sync."""
    for seed in range(40):
        at.inject("fail_operation", seed)
        for broker in at.brokers:
            if broker.broker is not None and broker.life is not None:
                move(at, broker)
        at.run(400)
        at.until(lambda: not at.cluster.health())
    met = {
        error for broker in at.brokers for disk in broker.logs.disks for error in disk.call_errors
    }
    names = {each.split(" ")[0] for each in met}
    assert len(met) >= 12 and names & {"ENOMEM", "EINTR", "EMFILE", "ENFILE"}
    assert names & {errno.errorcode[number] for number in DEVICE_ERRNOS}
    assert at.noted(", after directory_move_begun") and at.noted("dies while")
    marks = at.simulator.trace.marks
    assert marks["files_failed_beside_the_disk"] and marks["directory_given_up"]
    assert at.simulator.violations == []
