"""Stray replicas in a log directory: their inspection, removal and restore.

A file in a stray's directory keeps the replica's last checkpointed offsets (`StrayState`). With
these offsets, a restore recovers the stray's log as a start after a crash does, and truncates no
flushed records. The restore then writes the recovery point to disk and renames the stray's
directory (V35). The removal of a stray first renames the directory again, so that a partly removed
replica never counts as a stray. A file of the log directory names the strays that wait for an
operator's decision.

`broker/replicas/stray_recovery` decides whether a stray may be restored, by topic, epochs and
leader.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from tidelog.core.completion import Completion
from tidelog.core.errors import ErrorCode, KafkaError, StorageError
from tidelog.core.ports import Files, Work
from tidelog.core.types import (
    ZERO_TOPIC_ID,
    TopicId,
    TopicPartition,
    topic_id_from_text,
    topic_id_to_text,
)
from tidelog.log import names, new_replicas
from tidelog.log.config import LogConfig
from tidelog.log.directory_files import PARTITION_METADATA, parse_partition_metadata, put_in_place
from tidelog.log.directory_state import DirectoryState
from tidelog.log.partition_log import PartitionLog
from tidelog.log.recovery import LoadedLog, LoadRequest, load
from tidelog.log.recovery_walk import DamagedLog

#: The file in a stray's directory with its `StrayState`.
STRAY_STATE = "stray.state"
#: The file in a log directory with the names of strays that wait for an operator's decision, one
#: per line.
HELD_STRAYS = names.HELD_STRAYS
_VERSION = 0
_Operation = Callable[[Files], None]
#: Number of strays that one operation inspects.
_STRAYS_PER_OPERATION = 32


class Stray(NamedTuple):
    """A stray replica: the name of its directory, and when it was set aside (wall clock, ms)."""

    name: str
    partition_name: str
    since_ms: int
    #: Whether the stray is kept until an operator decides (V35).
    is_held: bool = False


class StrayState(NamedTuple):
    """The checkpointed state of a replica when it became a stray."""

    topic_partition: TopicPartition
    topic_id: TopicId
    recovery_point: int
    log_start_offset: int
    high_watermark: int


class StrayFound(NamedTuple):
    """A stray on the disk; `state` is None if its directory has no readable state."""

    stray: Stray
    state: StrayState | None
    topic_id: TopicId
    size_bytes: int
    #: Whether the stray's segments have any bytes.
    has_records: bool = True

    @property
    def topic_partition(self) -> TopicPartition | None:
        """The partition of the stray, or None if unknown."""
        if self.state is not None:
            return self.state.topic_partition
        return names.parse_directory_name(self.stray.partition_name)


class Recovered(NamedTuple):
    """A stray whose log was recovered, so that the stray can become a replica again."""

    stray: Stray
    state: StrayState
    loaded: LoadedLog


def format_state(state: StrayState) -> bytes:
    """Return the content of STRAY_STATE."""
    return json.dumps(
        {
            "version": _VERSION,
            "topic": state.topic_partition.topic,
            "partition": state.topic_partition.partition,
            "topic_id": topic_id_to_text(state.topic_id),
            "recovery_point": state.recovery_point,
            "log_start_offset": state.log_start_offset,
            "high_watermark": state.high_watermark,
        }
    ).encode()


def parse_state(data: bytes) -> StrayState:
    """Parse STRAY_STATE. Raises ValueError with the reason if the content is invalid."""
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        raise ValueError("it is not JSON") from None
    if not isinstance(content, dict) or content.get("version") != _VERSION:
        raise ValueError(f"it is not a JSON object of version {_VERSION}")
    topic, topic_id = content.get("topic"), content.get("topic_id")
    if not isinstance(topic, str) or not names.is_topic_name(topic):
        raise ValueError("its topic is no topic's name")
    if not isinstance(topic_id, str):
        raise ValueError("its topic_id is no text")
    numbers = []
    for key in ("partition", "recovery_point", "log_start_offset", "high_watermark"):
        number = content.get(key)
        if type(number) is not int or not 0 <= number < 2**63:
            raise ValueError(f"its {key} is no number from 0 on")
        numbers.append(number)
    partition, recovery_point, log_start_offset, high_watermark = numbers
    return StrayState(
        TopicPartition(topic, partition),
        topic_id_from_text(topic_id),
        recovery_point,
        log_start_offset,
        high_watermark,
    )


class StrayReplicas:
    """The strays of one log directory; all calls are on the event loop."""

    __slots__ = ("_add_loaded", "_directory", "_held", "_logs", "found")

    def __init__(
        self,
        directory: DirectoryState,
        logs: Mapping[TopicPartition, PartitionLog],
        add_loaded: Callable[[TopicPartition, LoadedLog, LogConfig], PartitionLog],
    ) -> None:
        """`add_loaded` adds the log of a restored stray to `logs`, the logs of the directory."""
        self._directory = directory
        self._logs = logs
        self._add_loaded = add_loaded
        #: The strays by directory name.
        self.found: dict[str, Stray] = {}
        #: The names in the file HELD_STRAYS.
        self._held: dict[str, None] = {}

    def opened(self, held: Iterable[str]) -> None:
        """Note the strays that wait for an operator, as the file HELD_STRAYS listed them."""
        self._held = dict.fromkeys(held)

    def add(self, name: str, partition_name: str, since_ms: int) -> None:
        """Add a stray to the list."""
        self.found[name] = Stray(name, partition_name, since_ms, name in self._held)

    # held strays

    def hold(self, held: Iterable[str]) -> Completion[None]:
        """Keep the strays with the names `held`, even after restarts, until an operator removes or
        restores them.
        """
        new = [name for name in held if not self.found[name].is_held]
        if not new:
            return Completion.of(None)
        for name in new:
            self.found[name] = self.found[name]._replace(is_held=True)
        self._held = {stray.name: None for stray in self.found.values() if stray.is_held}
        data = "".join(f"{name}\n" for name in self._held).encode()
        path = f"{self._directory.path}/{HELD_STRAYS}"
        return self._submit(lambda files: files.replace_file(path, data, sync=True), "hold strays")

    # removal

    def purge(self, now_ms: int, delay_ms: int) -> Completion[int]:
        """Remove old strays; see LogDirectory.purge_strays."""
        return self.remove(
            stray.name
            for stray in self.found.values()
            if not stray.is_held and now_ms - stray.since_ms >= delay_ms
        )

    def remove(self, wanted: Iterable[str]) -> Completion[int]:
        """Remove strays for good; return their number. Raises KeyError for an unknown stray."""
        gone = [self.found.pop(name).name for name in list(wanted)]
        completion: Completion[int] = Completion()
        root = self._directory.path
        if not gone or self._directory.failure is not None:
            completion.resolve(0)
            return completion

        def remove(files: Files) -> None:
            leaving = []
            for name in gone:
                leaving.append(name.removesuffix(names.STRAY_SUFFIX) + names.DELETE_SUFFIX)
                files.rename(f"{root}/{name}", f"{root}/{leaving[-1]}")
            files.fsync_directory(root)
            for name in leaving:
                files.remove_tree(f"{root}/{name}")

        def removed(done: Completion[None]) -> None:
            if done.error is not None:
                completion.fail(done.error)
            else:
                completion.resolve(len(gone))

        self._submit(remove, "purge strays").then(removed)
        return completion

    def _submit(self, operation: _Operation, what: str) -> Completion[None]:
        """Run an operation; a device error fails the directory."""
        directory = self._directory
        completion: Completion[None] = Completion()

        def done(finished: Completion[None]) -> None:
            if finished.error is not None:
                directory.failed(finished.error)
                completion.fail(finished.error)
            else:
                completion.resolve(None)

        directory.lane.submit(operation, Work.SLOW, what).then(done)
        return completion

    # inspection

    async def look(self) -> list[StrayFound]:
        """Inspect all strays on the disk. Raises StorageError."""
        wanted = list(self.found.values())
        found: list[StrayFound] = []
        root = self._directory.path
        for start in range(0, len(wanted), _STRAYS_PER_OPERATION):
            some = wanted[start : start + _STRAYS_PER_OPERATION]

            def look(files: Files, some: Sequence[Stray] = some) -> list[StrayFound]:
                return [_look(files, root, stray) for stray in some]

            found += await self._directory.lane.submit(look, Work.SLOW, "look at strays")
        return [each for each in found if each.stray.name in self.found]

    # restore

    async def recover(self, found: StrayFound, config: LogConfig) -> Recovered:
        """Recover the log of a stray, as a start after a crash does; the stray keeps its directory
        and name.

        Raises KafkaError if the recovery point is unknown, and StorageError if the disk fails.
        Raises DamagedLog if flushed records are damaged, without changing the stray.
        """
        directory, state = self._directory, found.state
        path = f"{directory.path}/{found.stray.name}"
        if state is None:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"{path} has no {STRAY_STATE} that can be read, so it is not known how much of it"
                " was flushed: stop the broker, give the directory its name back"
                f" ({found.stray.partition_name}) and start the broker",
            )
        if found.topic_id != state.topic_id:
            raise KafkaError(
                ErrorCode.INCONSISTENT_TOPIC_ID,
                f"{path} contradicts itself: {PARTITION_METADATA} says topic id"
                f" {topic_id_to_text(found.topic_id)}, {STRAY_STATE}"
                f" {topic_id_to_text(state.topic_id)}",
            )
        request = self._request(path, state, config, clean=False)
        try:
            loaded = await directory.lane.submit(
                lambda files: load(files, request), Work.SLOW, "recover stray"
            )
            await put_in_place(directory.lane, loaded.beside)
        except DamagedLog:
            raise
        except StorageError as error:
            directory.failed(error)
            raise
        return Recovered(found.stray, state, loaded)

    def _request(
        self, path: str, state: StrayState, config: LogConfig, *, clean: bool
    ) -> LoadRequest:
        clock = self._directory.clock
        return LoadRequest(
            path=path,
            clean=clean,
            recovery_point=state.recovery_point,
            log_start_offset=state.log_start_offset,
            index_interval_bytes=config.index_interval_bytes,
            compacted=config.compact_enabled,
            now_ms=clock.wall_ms(),
            monotonic_ms=clock.monotonic_ms(),
        )

    async def put_back(self, recovered: Recovered, config: LogConfig) -> PartitionLog:
        """Make a stray the replica of its partition, which must have no replica here.

        If the method raises StorageError, the stray is not restored, and stays listed as a stray.
        """
        directory, stray = self._directory, recovered.stray
        state = recovered.state._replace(
            recovery_point=recovered.loaded.log_end_offset,
            log_start_offset=recovered.loaded.log_start_offset,
        )
        key = state.topic_partition
        if key in self._logs:
            raise ValueError(f"{key} is in {directory.path} already")
        root = directory.path
        old, new = f"{root}/{stray.name}", f"{root}/{names.directory_name(key)}"
        request = self._request(new, state, config, clean=True)

        def rename(files: Files) -> LoadedLog:
            # The file of new replicas may still name an earlier topic id for this directory name:
            # append the right topic id.
            new_replicas.append(files, root, [(key, state.topic_id)])
            files.rename(old, new)
            files.fsync_directory(root)
            try:
                loaded = load(files, request)
                files.unlink(f"{new}/{STRAY_STATE}")
            except (OSError, StorageError):
                # This rename restores the stray. After a crash, the directory has its old or its
                # new name.
                files.rename(new, old)
                raise
            return loaded

        directory.returning[key] = (state.recovery_point, state.log_start_offset)
        try:
            # No checkpoint on disk may keep an entry of an earlier replica of the same name.
            await directory.lower(key, -1)
            # Write the recovery point of the restored log, at which recovery after a crash begins.
            # If the recovery point on disk were below a gap left by compaction, recovery would
            # mistake the gap for lost records.
            await directory.checkpoint()
            loaded = await directory.lane.submit(rename, Work.SLOW, "restore stray")
            del self.found[stray.name]
            return self._add_loaded(key, loaded, config)
        except StorageError as error:
            if not isinstance(error, DamagedLog):
                directory.failed(error)
            raise
        finally:
            del directory.returning[key]


def _look(files: Files, root: str, stray: Stray) -> StrayFound:
    path = f"{root}/{stray.name}"
    size_bytes = 0
    has_records = False
    state: StrayState | None = None
    topic_id = ZERO_TOPIC_ID
    for name in files.listdir(path) if files.exists(path) else ():
        handle = files.open(f"{path}/{name}")
        try:
            size = files.size(handle)
        finally:
            files.close(handle)
        size_bytes += size
        has_records = has_records or (size > 0 and name.endswith(names.LOG))
        try:
            if name == STRAY_STATE:
                state = parse_state(files.read_file(f"{path}/{name}"))
            elif name == PARTITION_METADATA:
                topic_id = parse_partition_metadata(files.read_file(f"{path}/{name}"))
        except ValueError:
            # Ignore an illegible file: the list of strays then shows the values of this stray as
            # unknown, and a restore reports the error.
            continue
    return StrayFound(stray, state, topic_id, size_bytes, has_records)
