"""Opens a log directory: whose it is, how it ended, and every partition in it.

A directory of another cluster or broker is refused. With the marker of a clean shutdown files are
believed; without, each partition is recovered (`recovery`). The marker is removed, durably, before
anything is written to a log: a crash from then on is an unclean end (E3). Checkpoints that cannot
be read count as empty: then everything is recovered from its start.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

from tidelog.core.errors import ConfigError
from tidelog.core.ports import Clock, Files, Lane, Work
from tidelog.core.types import TopicPartition
from tidelog.log import names
from tidelog.log.checkpoints import (
    CLEANER_OFFSETS,
    LOG_START_OFFSETS,
    OFFSET_CHECKPOINTS,
    RECOVERY_POINTS,
    DamagedCheckpoint,
    parse_offsets,
)
from tidelog.log.config import LogConfig
from tidelog.log.directory_files import (
    CLEAN_SHUTDOWN,
    META_PROPERTIES,
    format_meta_properties,
    parse_clean_shutdown,
    parse_meta_properties,
    put_in_place,
)
from tidelog.log.recovery import (
    DamagedLog,
    LoadedLog,
    LoadRequest,
    load,
)

#: Partitions loaded by one operation: few hand-overs, and still steps that can be told apart.
_PARTITIONS_PER_OPERATION = 32
_KNOWN_FILES = (
    *OFFSET_CHECKPOINTS,
    META_PROPERTIES,
    CLEAN_SHUTDOWN,
    names.HELD_STRAYS,
    ".lock",
    "lost+found",
)

Note = Callable[[int, str], None]
#: Have the configuration of these topics known.
LearnConfigs = Callable[[Iterable[str]], Awaitable[None]]


@dataclass(slots=True)
class LoadedPartition:
    """A partition's directory and what is in it."""

    topic_partition: TopicPartition
    loaded: LoadedLog


@dataclass(slots=True)
class Opened:
    """What a log directory holds."""

    #: Nobody has opened it before, and no partition is in it.
    is_new: bool = False
    was_clean: bool = False
    clean_shutdown_epoch: int | None = None
    checkpoints: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)
    partitions: list[LoadedPartition] = field(default_factory=list)
    #: Names of directories that were renamed: deletions, strays, moves.
    aside: list[str] = field(default_factory=list)
    #: Names of the strays among them that wait for an operator's word (V35).
    held: list[str] = field(default_factory=list)
    notes: list[tuple[int, str]] = field(default_factory=list)
    found: list[TopicPartition] = field(default_factory=list)


async def open_directory(
    lane: Lane,
    clock: Clock,
    cluster_id: str,
    broker_id: int,
    config_of: Callable[[str], LogConfig],
    learn_configs: LearnConfigs | None,
    note: Note,
) -> Opened:
    """See LogDirectory.open. Raises ConfigError, StorageError."""
    root = lane.directory
    opened = await lane.submit(
        lambda files: _look(files, root, cluster_id, broker_id), Work.SLOW, "open directory"
    )
    for level, text in opened.notes:
        note(level, text)
    started_ms = clock.monotonic_ms()
    if learn_configs is not None and opened.found:
        await learn_configs(dict.fromkeys(found.topic for found in opened.found))
    requests = [
        (topic_partition, _request(root, opened, topic_partition, config_of, clock))
        for topic_partition in opened.found
    ]
    for start in range(0, len(requests), _PARTITIONS_PER_OPERATION):
        part = requests[start : start + _PARTITIONS_PER_OPERATION]
        partitions = await _load(lane, root, part)
        for partition in partitions:
            for is_warning, text in partition.loaded.notes:
                note(logging.WARNING if is_warning else logging.INFO, text)
        opened.partitions += [p for p in partitions if not p.loaded.is_unfinished]
    if opened.partitions and not opened.was_clean:
        # What recovery decided must not be undone by the next crash: from now on it counts as
        # flushed. One wait for all of it: thousands of them would take minutes.
        await put_in_place(lane, [path for one in opened.partitions for path in one.loaded.beside])
    await lane.submit(lambda files: _begin(files, root), Work.SLOW, "begin")
    if opened.is_new:
        note(logging.INFO, f"{root}: a new log directory, with no partitions yet")
    else:
        note(
            logging.INFO,
            f"{root}: {len(opened.partitions)} partitions loaded in "
            f"{clock.monotonic_ms() - started_ms} ms after "
            f"{'a clean' if opened.was_clean else 'an unclean'} shutdown",
        )
    return opened


def _request(
    root: str,
    opened: Opened,
    topic_partition: TopicPartition,
    config_of: Callable[[str], LogConfig],
    clock: Clock,
) -> LoadRequest:
    config = config_of(topic_partition.topic)
    return LoadRequest(
        path=f"{root}/{names.directory_name(topic_partition)}",
        clean=opened.was_clean,
        # What was compacted was flushed before.
        recovery_point=max(
            opened.checkpoints[name].get(topic_partition, 0)
            for name in (RECOVERY_POINTS, CLEANER_OFFSETS)
        ),
        log_start_offset=opened.checkpoints[LOG_START_OFFSETS].get(topic_partition, 0),
        index_interval_bytes=config.index_interval_bytes,
        compacted=config.compact_enabled,
        now_ms=clock.wall_ms(),
        monotonic_ms=clock.monotonic_ms(),
    )


async def _load(
    lane: Lane, root: str, requests: list[tuple[TopicPartition, LoadRequest]]
) -> list[LoadedPartition]:
    def operation(files: Files) -> list[LoadedPartition]:
        partitions: list[LoadedPartition] = []
        for topic_partition, request in requests:
            try:
                loaded = load(files, request)
            except DamagedLog:
                # No clean shutdown left this: what is found here next, perhaps without the
                # partition, must not be believed for the marker's sake (E3, V10).
                _begin(files, root)
                raise
            if loaded.is_unfinished:
                # The crash came before the replica was made: it never held anything.
                loaded.notes.append((False, f"{request.path}: its creation was cut short"))
                files.remove_tree(request.path)
            partitions.append(LoadedPartition(topic_partition, loaded))
        return partitions

    return await lane.submit(operation, Work.SLOW, "load partitions")


def _look(files: Files, root: str, cluster_id: str, broker_id: int) -> Opened:
    """Read everything but the partitions. Raises ConfigError, OSError."""
    files.mkdir(root)
    for name in files.listdir(root):
        if name.endswith(names.TEMPORARY):
            files.unlink(f"{root}/{name}")
    opened = Opened(is_new=not files.exists(f"{root}/{META_PROPERTIES}"))
    _check_owner(files, root, cluster_id, broker_id)
    present = files.listdir(root)
    if CLEAN_SHUTDOWN in present:
        try:
            epoch = parse_clean_shutdown(files.read_file(f"{root}/{CLEAN_SHUTDOWN}"))
            opened.was_clean, opened.clean_shutdown_epoch = True, epoch
        except ValueError as error:
            text = f"{root}/{CLEAN_SHUTDOWN} proves no clean shutdown: {error}"
            opened.notes.append((logging.WARNING, text))
    for name in OFFSET_CHECKPOINTS:
        opened.checkpoints[name] = {}
        if name in present:
            try:
                opened.checkpoints[name] = parse_offsets(files.read_file(f"{root}/{name}"))
            except DamagedCheckpoint as error:
                text = f"{root}/{name} is not believed: {error}"
                opened.notes.append((logging.WARNING, text))
    if names.HELD_STRAYS in present:
        held = files.read_file(f"{root}/{names.HELD_STRAYS}").decode("utf-8", "replace")
        opened.held = held.splitlines()
    for name in present:
        topic_partition = names.parse_directory_name(name)
        if topic_partition is not None:
            opened.found.append(topic_partition)
        elif names.parse_aside_name(name) is not None:
            opened.aside.append(name)
        elif name not in _KNOWN_FILES:
            opened.notes.append((logging.WARNING, f"{root}/{name} is not ours and left alone"))
    opened.is_new = opened.is_new and not opened.found and not opened.aside
    return opened


def _check_owner(files: Files, root: str, cluster_id: str, broker_id: int) -> None:
    path = f"{root}/{META_PROPERTIES}"
    if not files.exists(path):
        files.replace_file(path, format_meta_properties(cluster_id, broker_id), sync=True)
        return
    try:
        owner = parse_meta_properties(files.read_file(path))
    except ValueError as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
    if owner.cluster_id is not None and owner.cluster_id != cluster_id:
        raise ConfigError(
            f"log directory {root} belongs to cluster {owner.cluster_id}, "
            f"this broker to cluster {cluster_id}; give it a directory of its own"
        )
    if owner.broker_id is not None and owner.broker_id != broker_id:
        raise ConfigError(
            f"log directory {root} belongs to broker {owner.broker_id}, "
            f"this is broker {broker_id}; give it a directory of its own"
        )


def _begin(files: Files, root: str) -> None:
    """From here on an end without the marker is an unclean one."""
    if files.exists(f"{root}/{CLEAN_SHUTDOWN}"):
        files.unlink(f"{root}/{CLEAN_SHUTDOWN}")
    files.fsync_directory(root)
