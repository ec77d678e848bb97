"""Replicas that a starting broker finds in two log directories, and the choice of one copy (D6).

When a directory fails or is removed from `log.dirs`, its replicas are created in other directories;
if the directory then returns, it has second copies of them. The broker does not serve a copy of a
topic that no longer exists. If both copies belong to the existing topic, the broker keeps the copy
with the greater pair (latest leader epoch, log end offset). This copy has every committed record of
the other copy. The broker sets the other copy aside as a stray, so no record is lost.

An interrupted move between directories also leaves two copies. Two copies of a replica also remain
if the disk refuses to remove the former copy after a move (D11). A move marks the new copy. The
broker keeps the marked copy, even if the marked copy is shorter by now, and deletes the former
copy.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from tidelog.broker import store_access
from tidelog.core.errors import StorageError
from tidelog.core.types import TopicId, TopicPartition
from tidelog.metadata import layout
from tidelog.metadata.json_fields import LayoutError

if TYPE_CHECKING:
    from tidelog.broker.services import Services
    from tidelog.log.log_directory import LogDirectory


async def set_aside(services: Services, directories: Sequence[LogDirectory]) -> None:
    """Leave each partition in one of the directories; set its other copies aside as strays."""
    holders: dict[TopicPartition, list[LogDirectory]] = {}
    for directory in directories:
        for topic_partition in directory.logs:
            holders.setdefault(topic_partition, []).append(directory)
    twice = {each: found for each, found in holders.items() if len(found) > 1}
    topic_ids = await _topic_ids(services, {topic: None for topic, _ in twice}) if twice else {}
    #: Partitions whose former copy could not be removed; their marks stay, because the next start
    #: needs them.
    refused: dict[TopicPartition, None] = {}
    for topic_partition, found in twice.items():
        topic_id = topic_ids.get(topic_partition.topic)
        kept = max(found, key=partial(_rank, topic_partition, topic_id, found))
        for directory in found:
            if directory is not kept and not await _go(services, topic_partition, directory, kept):
                refused[topic_partition] = None
    _forget_former(directories, refused)


def _forget_former(directories: Sequence[LogDirectory], refused: Container[TopicPartition]) -> None:
    """Forget which replicas were moved, once their former copies are certainly gone."""
    good = {directory.path: directory for directory in directories}
    for directory in directories:
        for topic_partition, moved_from in list(directory.moved_from.items()):
            former = [good.get(path) for path in moved_from.paths]
            if topic_partition not in refused and all(
                each is not None and topic_partition not in each.logs for each in former
            ):
                directory.forget_moved_from(topic_partition)


def _is_newer(
    topic_partition: TopicPartition, directory: LogDirectory, other: LogDirectory
) -> bool:
    """Return whether a move replaced the copy in `other` by the copy in `directory`."""
    moved_from = directory.moved_from.get(topic_partition)
    ids = directory.logs[topic_partition].topic_id, other.logs[topic_partition].topic_id
    return (
        moved_from is not None
        and ids[0] == ids[1]
        and moved_from.is_newer_than(
            directory.path, other.path, other.moved_from.get(topic_partition)
        )
    )


def _rank(
    topic_partition: TopicPartition,
    topic_id: TopicId | None,
    found: Sequence[LogDirectory],
    directory: LogDirectory,
) -> tuple[bool, bool, int, int]:
    """Return a copy's rank; the copy with the highest rank stays.

    The rank is: whether the copy belongs to the existing topic, whether no move replaced it, its
    latest leader epoch, and its log end offset.
    """
    log = directory.logs[topic_partition]
    is_former = any(_is_newer(topic_partition, each, directory) for each in found)
    is_of_topic = log.topic_id == topic_id
    return is_of_topic, not is_former, log.epochs.latest_epoch, log.log_end_offset


async def _go(
    services: Services, topic_partition: TopicPartition, directory: LogDirectory, kept: LogDirectory
) -> bool:
    """Remove a copy, because the copy in `kept` stays; return whether the disk allowed that."""
    if _is_newer(topic_partition, kept, directory):
        return await _delete_former(services, topic_partition, directory, kept)
    return await _move_aside(services, topic_partition, directory, kept)


async def _delete_former(
    services: Services, topic_partition: TopicPartition, directory: LogDirectory, kept: LogDirectory
) -> bool:
    services.tracer.mark("moved_replica_found_twice")
    services.tracer.log(
        "server",
        logging.INFO,
        f"the move of {topic_partition} from {directory.path} to {kept.path} was cut short when all"
        " of it was there: the former replica is deleted",
    )
    try:
        await directory.delete(topic_partition)
    except StorageError as error:
        services.tracer.log("server", logging.ERROR, f"cannot delete it: {error}")
        return False
    return True


async def _move_aside(
    services: Services, topic_partition: TopicPartition, directory: LogDirectory, kept: LogDirectory
) -> bool:
    services.tracer.mark("duplicate_replica_set_aside")
    services.tracer.log(
        "server",
        logging.WARNING,
        f"partition {topic_partition} is in two log directories: the replica in {kept.path} stays,"
        f" the one in {directory.path} is moved aside (`tidelog strays list` shows it)",
    )
    try:
        await directory.set_aside(
            topic_partition, directory.high_watermarks.get(topic_partition, 0)
        )
    except StorageError as error:
        # The disk refused to remove the copy. This broker does not host the copy until the next
        # start, which finds both copies again.
        services.tracer.log("server", logging.ERROR, f"cannot move it aside: {error}")
        return False
    return True


async def _topic_ids(services: Services, topics: Iterable[str]) -> Mapping[str, TopicId]:
    """Return the ids of the topics that still exist; wait until the store is readable (S3)."""
    names = list(topics)
    paths = [layout.topic_path(name) for name in names]
    nodes = await store_access.read_all(services, paths)
    found: dict[str, TopicId] = {}
    for name, path, node in zip(names, paths, nodes, strict=True):
        try:
            if node is not None:
                found[name] = layout.decode_topic_id(path, node.data)
        except LayoutError as error:
            services.tracer.log("server", logging.ERROR, f"topic {name}: {error}")
    return found
