"""Mutants of a broker's use of its disks.

Each trusts a disk wrongly, or forgets a refusal of the disk.
"""

from __future__ import annotations

import errno
from typing import Any

from tests.support.mutants.functions.logs import FULL_FOR_ONE_WRITE
from tests.support.mutants.mutant import mutant

from tidelog.controller.elections import election
from tidelog.core.completion import Completion
from tidelog.core.errors import DEVICE_ERRNOS, ErrorCode, StorageError


@mutant("D17", "tidelog.core.errors:StorageError.is_device_failure", profile="failing_disks")
def failed_sync_tried_again(_: Any) -> Any:
    """A failed fsync is retried later, and trusted when it succeeds."""
    return property(lambda error: error.errno in DEVICE_ERRNOS and error.operation != "fsync")


@mutant("D4", "tidelog.log.directory_disk:DirectoryDisk.failed", profile="jbod")
def failed_directory_served(original: Any) -> Any:
    """A broker goes on to lead and to follow with the replicas in a failed directory."""

    def failed(state: Any, error: BaseException) -> None:
        on_failure, state.on_failure = state.on_failure, None
        original(state, error)
        state.on_failure = on_failure

    return failed


@mutant(
    "D1",
    "tidelog.log.directory_disk:DirectoryDisk.failed",
    "tidelog.broker.replicas.directories.failed_directories:FailedDirectories._count",
    profile="jbod",
)
def failure_counted_twice(failed: Any, count: Any) -> Any:
    """The second error in a failed directory counts as the failure of another directory."""

    def again(state: Any, error: BaseException) -> None:
        is_known = state.failure is not None and state.on_failure is not None
        if is_known and isinstance(error, StorageError) and error.is_device_failure:
            state.on_failure(error)
        else:
            failed(state, error)

    def counted(directories: Any, path: str, error: StorageError) -> None:
        while path in directories._replicas.failed:
            path += " again"
        count(directories, path, error)

    return again, counted


@mutant("V39", "tidelog.log.flush:FlushOperation.__call__", profile="failing_disks")
def recovery_point_before_sync(_: Any) -> Any:
    """The recovery point rises before the records are synced."""

    def flush(operation: Any, files: Any) -> None:
        for path, data in operation.replacements:
            files.replace_file(path, data, sync=True)
        if operation.sync_directory:
            files.fsync_directory(operation.directory)

    return flush


@mutant("V39", "tidelog.log.scan:check", profile="failing_disks")
def recovery_without_checksums(_: Any) -> Any:
    """Recovery trusts batches whose headers look right."""
    return lambda batch: None


@mutant("V39", "tidelog.log.recovery:ends_at_entry", profile="damaged_disks")
def segment_ends_believed(_: Any) -> Any:
    """Recovery trusts the end of a segment that it does not read again."""
    return lambda files, segment, entry: (True, -1)


@mutant("V64", "tidelog.log.append_queue:_write_rest", profile="failing_disks")
def short_write_is_whole(_: Any) -> Any:
    """A partial write of an append counts as complete."""
    return lambda files, handle, buffer, written, position: None


@mutant(
    "V68",
    "tidelog.log.segment_reads:verify",
    profile="damaged_leaders",
)
def damage_is_served(_: Any) -> Any:
    """Clients and followers get batches from disk without a check."""
    return lambda data, position, offset, end_offset: False


@mutant(
    "V68",
    "tidelog.controller.elections.election:elect_without",
    "tidelog.replication.truncation:before_damage",
    profile="damaged_leaders",
)
def damaged_leader_stays_in_isr(*_: Any) -> Any:
    """A leader with a damaged log stays in the ISR, and truncates its log as a follower."""
    return (
        lambda state, around, damaged, slow: election.elect_instead(state, around, slow),
        lambda damaged_offset, broker_id, members: damaged_offset,
    )


@mutant(
    "V68",
    "tidelog.broker.replicas.hosting.role_changes:RoleChanges.become_follower",
    profile="damaged_leaders",
)
def damage_forgotten_with_the_role(original: Any) -> Any:
    """A leader that was replaced because of damage follows with the damaged log."""

    def become_follower(changes: Any, partition: Any, state: Any) -> None:
        partition.log.damage = None
        original(changes, partition, state)

    return become_follower


@mutant(
    "V68",
    "tidelog.replication.commands:can_be_replaced",
    profile="damaged_leaders_offline",
)
def damaged_replica_takes_its_role_again(_: Any) -> Any:
    """A damaged replica that is offered as offline obeys the next command that it leads."""
    return lambda broker_id, isr: False


@mutant(
    "V23",
    "tidelog.log.replica_departures:ReplicaDepartures.finished",
    "tidelog.log.replica_directories:make_directory",
    FULL_FOR_ONE_WRITE,
    profile="full_disks",
)
def created_over_a_former_replica(*_: Any) -> Any:
    """A replica is created in the directory of one that a full disk kept from leaving."""
    return (
        lambda departures, topic_partition: Completion.of(None),
        lambda files, path: files.mkdir(path),
        lambda space, error: None,
    )


@mutant("D14", "tidelog.broker.replicas.fetching.fetch_checks:_find", profile="full_directories")
def read_only_directory_refuses_reads(original: Any) -> Any:
    """Reads of a replica are refused while its disk is full, too."""

    def find(replicas: Any, item: Any) -> Any:
        found = original(replicas, item)
        if not isinstance(found, ErrorCode) and found.log.directory.space.is_full:
            return ErrorCode.KAFKA_STORAGE_ERROR
        return found

    return find


@mutant(
    "D14",
    "tidelog.broker.replicas.directories.unfit_directories:UnfitDirectories.due",
    profile="full_directories",
)
def full_leader_stays(_: Any) -> Any:
    """A leader on a full disk does not ask for another one."""
    return lambda unfit, partitions, others: []


@mutant(
    "D13",
    "tidelog.broker.replicas.directories.unfit_directories:UnfitDirectories._is_of_use",
    profile="slow_directories",
)
def slow_followers_lead_again(_: Any) -> Any:
    """The controller does not learn of followers on slow disks, and elects them."""

    def is_of_use(unfit: Any, partition: Any) -> bool:
        return partition.leadership is not None and partition.leadership.can_be_replaced

    return is_of_use


@mutant("V81", "tidelog.broker.controller.channels:Channel._keep_refused", profile="failing_disks")
def full_disk_refusal_is_final(_: Any) -> Any:
    """The controller does not send a role again after a full disk rejected it."""
    return lambda channel, commands, outcomes: None


@mutant(
    "D13",
    "tidelog.log.directory_disk:DirectoryDisk.give_up_hanging",
    profile="hanging_directories",
)
def hanging_directory_waited_for(_: Any) -> Any:
    """A broker waits for a log directory that hangs, and gives none up."""
    return lambda directory, why: None


@mutant(
    "D13",
    "tidelog.log.directory_disk:DirectoryDisk.give_up_hanging",
    profile="hanging_directories",
)
def hanging_directory_ends_the_broker(_: Any) -> Any:
    """A broker ends when one of its log directories hangs, although others are good."""

    def give_up_hanging(directory: Any, why: str) -> None:
        error = StorageError(directory.path, "use", directory.path, errno.EIO, 0, why)
        directory.failure = error
        directory.on_failure.func.__self__._services.ports.halt(f"log directory failed: {error}")

    return give_up_hanging
