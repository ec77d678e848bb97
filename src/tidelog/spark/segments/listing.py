"""The content of log directories at one moment: replicas, segments, checkpoints, other files.

High watermarks are read before any replica is listed. A replica in the ISR has every record below
the high watermark. A replica must reach the high watermark that was read before its listing, even
while brokers append. A file that vanishes between listing and reading is no error, because the
brokers delete and compact during the listing. The listing reads no record. Problems are collected,
not raised: the reader of a listing decides their meaning.
"""

from __future__ import annotations

import glob
import os
import stat
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from typing import TypeVar

from tidelog.core.dataclass import dataclass
from tidelog.core.errors import ConfigError
from tidelog.core.types import TopicPartition
from tidelog.spark.segments import directory_files as files
from tidelog.spark.segments.directory_files import DirectoryOwner, IllegibleFileError, StrayOffsets

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class ListedSegment:
    """A log file of a replica, as it was listed."""

    path: str
    base_offset: int
    size: int
    mtime_ns: int
    inode: int

    def companion(self, kind: str) -> str:
        """Return the path of another file of the segment, with the suffix `kind` (`index`, ...)."""
        return f"{self.path.removesuffix('.log')}.{kind}"


@dataclass(frozen=True, slots=True)
class Problem:
    """A file that could not be read, or whose content is wrong."""

    path: str
    sentence: str
    #: Whether the operating system refused the read; otherwise the content is wrong.
    is_refused: bool


@dataclass(frozen=True, slots=True)
class OtherFile:
    """A file or directory in a log directory that is not a segment's log file."""

    path: str
    size: int
    mtime_ns: int = 0


@dataclass(frozen=True, slots=True)
class Replica:
    """A replica, from its directory and from checkpoints; an offset without an entry is None."""

    tp: TopicPartition
    path: str
    #: The log directory; `broker` is its broker, and `is_clean` says whether this broker shut down
    #: cleanly.
    directory: str
    broker: int | None
    is_clean: bool
    segments: tuple[ListedSegment, ...]
    others: tuple[OtherFile, ...]
    topic_id: str | None
    epochs: tuple[tuple[int, int], ...] | None
    high_watermark: int | None
    recovery_point: int | None
    log_start: int | None
    #: The offset up to which the log cleaner has compacted the log, from the cleaner's checkpoint.
    cleaned_to: int | None
    #: Log directories that may still have an older copy of the replica.
    moved_from: tuple[str, ...]
    #: The topic id that the log directory's file of new replicas has for this replica.
    noted_topic_id: str | None
    problems: tuple[Problem, ...]

    @property
    def name(self) -> str:
        """The broker as text for messages, or the log directory if its broker is unknown."""
        return self.directory if self.broker is None else f"broker {self.broker}"

    @property
    def snapshots(self) -> list[int]:
        """The offsets of the producer snapshots, in rising order."""
        parsed = (files.segment_file_of(os.path.basename(each.path)) for each in self.others)
        return [each[0] for each in parsed if each is not None and each[1] == "snapshot"]

    @property
    def bytes(self) -> int:
        """Size of all log files in bytes."""
        return sum(segment.size for segment in self.segments)


@dataclass(frozen=True, slots=True)
class Aside:
    """A replica's directory under another name: to be deleted, a stray, or a future replica."""

    path: str
    replica: str
    #: The reason of the rename: `delete`, `stray` or `future`.
    reason: str
    size: int
    #: The files of a stray or future replica; None if its name or its files cannot be read.
    content: Replica | None = None


@dataclass(frozen=True, slots=True)
class ListedLogDir:
    """One log directory of one broker."""

    path: str
    cluster: str | None
    broker: int | None
    #: Id of the directory itself (`directory.id`), which brokers with ZooKeeper do not give; None
    #: without one.
    directory_id: str | None
    is_clean: bool
    replicas: tuple[Replica, ...]
    asides: tuple[Aside, ...]
    unknown: tuple[OtherFile, ...]
    #: Partitions that a checkpoint of the directory names, and that have no directory.
    lost: tuple[TopicPartition, ...]
    #: Whether the directory has the file that names its owner.
    has_owner: bool
    problems: tuple[Problem, ...]

    @property
    def name(self) -> str:
        """The broker as text for messages, or the path if the broker is unknown."""
        return self.path if self.broker is None else f"broker {self.broker}"


@dataclass(slots=True)
class _Head:
    """The files that lie directly in a log directory, outside the replicas' directories."""

    path: str
    names: list[str]
    owner: DirectoryOwner = field(default_factory=lambda: DirectoryOwner(None, None, None))
    is_clean: bool = False
    new_replicas: dict[str, str] = field(default_factory=dict)
    checkpoints: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


def expand(patterns: Sequence[str], option: str = "segments") -> list[str]:
    """Return the log directories that paths and globs name, in order and without repetition.

    Raises ConfigError for a pattern without a match, or for a match that is no log directory.
    """
    found: dict[str, None] = {}
    for pattern in patterns:
        matches = sorted(glob.glob(pattern)) if glob.has_magic(pattern) else [pattern]
        matches = [path for path in matches if os.path.isdir(path)]
        if not matches:
            raise ConfigError(f"{option}: {pattern!r} names no directory that this machine has")
        for path in matches:
            _check_log_directory(path, option)
            found[os.path.abspath(path)] = None
    if not found:
        raise ConfigError(f"{option}: no log directory is named; expected paths or globs")
    return list(found)


def _check_log_directory(path: str, option: str) -> None:
    try:
        names = os.listdir(path)
    except OSError as error:
        raise ConfigError(f"{option}: {path} cannot be listed: {error.strerror}") from error
    if any(name in files.OF_DIRECTORIES or files.replica_of(name) for name in names):
        return
    hint = ""
    if files.replica_of(os.path.basename(path)) and any(map(files.segment_file_of, names)):
        hint = f"; it is one partition, its log directory is {os.path.dirname(path)}"
    raise ConfigError(
        f"{option}: {path} is no log directory: it holds no {files.OWNER} and no partition{hint}"
    )


def list_directories(paths: Sequence[str]) -> tuple[ListedLogDir, ...]:
    """Return the content of log directories, with high watermarks read before all replicas."""
    heads = [_read_head(path) for path in paths]
    return tuple(_list_directory(head) for head in heads)


def list_again(replicas: Sequence[Replica]) -> tuple[Replica, ...]:
    """Return the present content of the given replicas, except replicas whose directory is gone."""
    heads = {path: _read_head(path) for path in dict.fromkeys(each.directory for each in replicas)}
    found = [_list_replica(heads[each.directory], each.tp, each.path) for each in replicas]
    return tuple(each for each in found if each is not None)


def _read_head(path: str) -> _Head:
    head = _Head(path, [])
    try:
        head.names = sorted(os.listdir(path))
    except OSError as error:
        head.problems.append(Problem(path, f"cannot be listed: {error.strerror}", True))
    for name in (files.HIGH_WATERMARKS, files.RECOVERY_POINTS, files.LOG_STARTS, files.CLEANED):
        offsets = _parsed(f"{path}/{name}", files.read_offsets, head.problems)
        head.checkpoints[name] = offsets or {}
    owner = _parsed(f"{path}/{files.OWNER}", files.read_owner, head.problems)
    head.owner = owner or head.owner
    head.new_replicas = _parsed(f"{path}/{files.NEW_REPLICAS}", files.read_new_replicas, []) or {}
    if files.CLEAN_MARKER in head.names:
        before = len(head.problems)
        _parsed(f"{path}/{files.CLEAN_MARKER}", files.read_clean_marker, head.problems)
        head.is_clean = len(head.problems) == before
    return head


def _list_directory(head: _Head) -> ListedLogDir:
    replicas: list[Replica] = []
    asides: list[Aside] = []
    unknown: list[OtherFile] = []
    for name in head.names:
        path = f"{head.path}/{name}"
        tp, aside = files.replica_of(name), files.aside_of(name)
        if aside is not None:
            asides.append(_list_aside(head, path, *aside))
        elif tp is not None and os.path.isdir(path):
            replica = _list_replica(head, tp, path)
            if replica is not None:
                replicas.append(replica)
        elif name not in files.OF_DIRECTORIES and not name.endswith(".tmp"):
            unknown.append(OtherFile(path, _size_of_tree(path)))
    return ListedLogDir(
        head.path,
        head.owner.cluster,
        head.owner.broker,
        head.owner.directory,
        head.is_clean,
        tuple(replicas),
        tuple(asides),
        tuple(unknown),
        _without_directory(head, asides),
        files.OWNER in head.names,
        tuple(head.problems),
    )


def _without_directory(head: _Head, asides: Sequence[Aside]) -> tuple[TopicPartition, ...]:
    """Return the partitions with a checkpointed offset that have no directory under any name."""
    named = dict.fromkeys(tp for offsets in head.checkpoints.values() for tp in offsets)
    renamed = {aside.replica for aside in asides}
    paths = {tp: f"{tp.topic}-{tp.partition}" for tp in named}
    return tuple(
        tp
        for tp, name in paths.items()
        # The replica may have been created after the names were listed.
        if name not in renamed and not os.path.isdir(f"{head.path}/{name}")
    )


def list_aside_again(aside: Aside) -> Aside:
    """Return the present content of a renamed replica."""
    head = _read_head(os.path.dirname(aside.path))
    return _list_aside(head, aside.path, aside.replica, aside.reason)


def _list_aside(head: _Head, path: str, replica: str, reason: str) -> Aside:
    """Return a renamed replica; the content of a replica to be deleted is left out."""
    tp = files.replica_of(replica)
    content = None
    if tp is not None and reason != "delete" and os.path.isdir(path):
        content = _list_replica(head, tp, path)
    if content is not None and reason == "stray":
        problems = list(content.problems)
        state = _parsed(f"{path}/{files.STRAY_STATE}", files.read_stray_state, problems)
        kept = state or StrayOffsets(0, 0)
        content = replace(
            content,
            is_clean=False,
            high_watermark=None,
            recovery_point=kept.recovery_point,
            log_start=kept.log_start or None,
            problems=tuple(problems),
        )
    return Aside(path, replica, reason, _size_of_tree(path), content)


def _list_replica(head: _Head, tp: TopicPartition, path: str) -> Replica | None:
    """Return the content of a replica's directory; None if the directory is gone."""
    problems: list[Problem] = []
    try:
        segments, others = _list_files(path, problems)
    except FileNotFoundError:
        return None
    return Replica(
        tp,
        path,
        head.path,
        head.owner.broker,
        head.is_clean,
        tuple(segments),
        tuple(others),
        _parsed(f"{path}/{files.TOPIC_ID}", files.read_topic_id, problems),
        _parsed(f"{path}/{files.LEADER_EPOCHS}", files.read_epochs, problems),
        head.checkpoints[files.HIGH_WATERMARKS].get(tp),
        head.checkpoints[files.RECOVERY_POINTS].get(tp),
        head.checkpoints[files.LOG_STARTS].get(tp),
        head.checkpoints[files.CLEANED].get(tp),
        _parsed(f"{path}/{files.MOVED_FROM}", files.read_moved_from, problems) or (),
        head.new_replicas.get(os.path.basename(path)),
        tuple(problems),
    )


def list_segments(path: str) -> tuple[ListedSegment, ...]:
    """Return the present log files of a replica's directory.

    Raises FileNotFoundError if the directory is gone; unreadable files are left out.
    """
    return tuple(_list_files(path, [])[0])


def _list_files(path: str, problems: list[Problem]) -> tuple[list[ListedSegment], list[OtherFile]]:
    """Return a replica's log files in order, and the other files of its directory."""
    segments: list[ListedSegment] = []
    others: list[OtherFile] = []
    names: list[str] = []
    try:
        names = sorted(os.listdir(path))
    except FileNotFoundError:
        raise
    except OSError as error:
        problems.append(Problem(path, f"cannot be listed: {error.strerror}", True))
    for name in names:
        try:
            status = os.stat(f"{path}/{name}")
        except FileNotFoundError:
            continue  # the file was deleted since the directory was listed
        except OSError as error:
            problems.append(Problem(f"{path}/{name}", f"no status: {error.strerror}", True))
            continue
        parsed = files.segment_file_of(name)
        if parsed is not None and parsed[1] == "log" and stat.S_ISREG(status.st_mode):
            segments.append(
                ListedSegment(
                    f"{path}/{name}", parsed[0], status.st_size, status.st_mtime_ns, status.st_ino
                )
            )
        else:
            others.append(OtherFile(f"{path}/{name}", status.st_size, status.st_mtime_ns))
    return segments, others


def _parsed(path: str, read: Callable[[bytes], _T], problems: list[Problem]) -> _T | None:
    data = _content(path, problems)
    if data is None:
        return None
    try:
        return read(data)
    except IllegibleFileError as error:
        problems.append(Problem(path, str(error), False))
        return None


def _content(path: str, problems: list[Problem]) -> bytes | None:
    """Return a small file's content; None if the file is missing or cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        problems.append(Problem(path, f"cannot be read: {error.strerror}", True))
        return None


def _size_of_tree(path: str) -> int:
    try:
        if not os.path.isdir(path):
            return os.stat(path).st_size
        with os.scandir(path) as entries:
            return sum(entry.stat().st_size for entry in entries if entry.is_file())
    except OSError:
        return 0  # the file vanished and has no bytes to count
