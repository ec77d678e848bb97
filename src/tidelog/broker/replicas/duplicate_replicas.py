"""Replicas that a starting broker finds in two log directories: one stays, the other goes (D6).

A directory that failed, or was dropped from `log.dirs`, may come back after its replicas were
created again elsewhere. The copy of the topic that exists stays; of two such copies the one with
the greater (latest leader epoch, log end offset). It has every record of the other that counts: a
log of an earlier epoch ends before any leader of a later one, or diverges from it. The other is
moved aside as stray, so nothing is lost.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from tidelog.core.errors import StorageError
from tidelog.core.types import TopicId, TopicPartition
from tidelog.metadata import layout
from tidelog.metadata.json_fields import LayoutError
from tidelog.metadata.store import OutcomeUnknown, SessionExpired, StoreUnavailable

if TYPE_CHECKING:
    from tidelog.broker.services import Services
    from tidelog.log.log_directory import LogDirectory
    from tidelog.log.partition_log import PartitionLog

_STORE_RETRY_MS = 50


async def set_aside(services: Services, directories: Sequence[LogDirectory]) -> None:
    """Leave each partition in one of the directories; move its other copies aside as strays."""
    holders: dict[TopicPartition, list[LogDirectory]] = {}
    for directory in directories:
        for topic_partition in directory.logs:
            holders.setdefault(topic_partition, []).append(directory)
    twice = {each: found for each, found in holders.items() if len(found) > 1}
    if not twice:
        return
    topic_ids = await _topic_ids(services, {topic: None for topic, _ in twice})
    for topic_partition, found in twice.items():
        topic_id = topic_ids.get(topic_partition.topic)
        kept = max(found, key=lambda each: _rank(each.logs[topic_partition], topic_id))
        for directory in found:
            if directory is not kept:
                await _move_aside(services, topic_partition, directory, kept)


def _rank(log: PartitionLog, topic_id: TopicId | None) -> tuple[bool, int, int]:
    return log.topic_id == topic_id, log.epochs.latest_epoch, log.log_end_offset


async def _move_aside(
    services: Services, topic_partition: TopicPartition, directory: LogDirectory, kept: LogDirectory
) -> None:
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
        # It is hosted no more in any case; the next start finds it again.
        services.tracer.log("server", logging.ERROR, f"cannot move it aside: {error}")


async def _topic_ids(services: Services, topics: Iterable[str]) -> Mapping[str, TopicId]:
    """Return the ids of those topics that exist; wait until the store can be read (S3)."""
    names = list(topics)
    paths = [layout.topic_path(name) for name in names]
    while True:
        try:
            nodes = await services.store.get_many(paths)
        except (StoreUnavailable, OutcomeUnknown, SessionExpired):
            await services.tasks.sleep(_STORE_RETRY_MS)
        else:
            break
    found: dict[str, TopicId] = {}
    for name, path, node in zip(names, paths, nodes, strict=True):
        try:
            if node is not None:
                found[name] = layout.decode_topic_id(path, node.data)
        except LayoutError as error:
            services.tracer.log("server", logging.ERROR, f"topic {name}: {error}")
    return found
