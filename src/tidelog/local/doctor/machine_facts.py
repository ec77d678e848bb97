"""The facts about this machine that the doctor knows: limits of processes, and volumes of paths.

The facts come from Linux's /proc and /sys. An unknown fact is None or empty. A path that does not
exist yet has the volume of its nearest existing parent.
"""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterable, Sequence
from dataclasses import replace

from tidelog.core.dataclass import dataclass
from tidelog.core.errors import ConfigError
from tidelog.core.limits import MAX_CONNECTIONS
from tidelog.local.cluster import LocalCluster
from tidelog.log.open_files import DEFAULT_MAX_OPEN_FILES
from tidelog.runtime.config_files import load_config
from tidelog.runtime.stores.local_disk import mount_of

#: Open files of a broker in addition to logs and clients: other brokers, the store, libraries.
_OTHER_FILES = 256


@dataclass(frozen=True, slots=True)
class VolumeFacts:
    """The volume that holds a path."""

    path: str
    mount_point: str
    #: Type of the file system, such as ext4; empty if the type is unknown.
    kind: str
    options: tuple[str, ...]
    device: int
    usable_bytes: int
    total_bytes: int
    #: Whether the disk rotates; None if the volume does not have a single disk of its own.
    is_rotating: bool | None = None


@dataclass(frozen=True, slots=True)
class ProcessFacts:
    """A process's hard limit of open files, and its use of open files and memory maps.

    The soft limit does not matter, because a process can raise it to the hard limit.
    """

    name: str
    open_files_limit: int
    #: Number of open descriptors; None for a process that has not started yet.
    open_files: int | None = None
    #: Number of memory maps; None for a process that has not started yet.
    maps: int | None = None


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """The facts about this machine that matter to its brokers."""

    processes: Sequence[ProcessFacts] = ()
    volumes: Sequence[VolumeFacts] = ()
    #: vm.max_map_count of the kernel.
    max_map_count: int | None = None
    #: Number of open files that one broker may need.
    needed_open_files: int = 0


def needed_open_files(log_dirs: int = 1, max_connections: int = MAX_CONNECTIONS) -> int:
    """Return the number of open files that a broker may need."""
    return log_dirs * DEFAULT_MAX_OPEN_FILES + max_connections + _OTHER_FILES


def read_cluster_machine(cluster: LocalCluster) -> MachineFacts:
    """Return the facts about this machine for the brokers of a local cluster.

    If several log directories are on one volume, only the first of them is named.
    """
    processes: list[tuple[str, int]] = []
    paths: list[str] = []
    needed = 0
    for broker_id in cluster.broker_ids:
        process = cluster.process(broker_id)
        if process is not None:
            processes.append((f"broker {broker_id}", process.pid))
        try:
            config = load_config(cluster.place(broker_id).properties_path, [])
        except ConfigError:
            continue  # the start of the broker reports this error
        paths += config.log_dirs
        needed = max(needed, needed_open_files(len(config.log_dirs), config.max_connections))
    found = read_machine(paths, processes, needed)
    volumes: dict[int, VolumeFacts] = {}
    for each in found.volumes:
        volumes.setdefault(each.device, each)
    return replace(found, volumes=tuple(volumes.values()))


def read_machine(
    paths: Iterable[str], processes: Iterable[tuple[str, int]], needed_open_files: int
) -> MachineFacts:
    """Return the facts about the volumes of `paths`, and about processes, given by name and id.

    If none of the processes can be read, the result has the limit of open files that a broker would
    have if this program started the broker.
    """
    found = [facts for name, pid in processes if (facts := _process(name, pid)) is not None]
    if not found:
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        found = [ProcessFacts("a broker that is started from this shell", _number(hard))]
    mounts = _text("/proc/self/mountinfo")
    volumes = [_volume(path, mounts) for path in dict.fromkeys(paths)]
    maximum = _text("/proc/sys/vm/max_map_count").strip()
    return MachineFacts(
        found, volumes, int(maximum) if maximum.isdecimal() else None, needed_open_files
    )


def _number(limit: int) -> int:
    return 1 << 62 if limit == resource.RLIM_INFINITY else limit


def _process(name: str, pid: int) -> ProcessFacts | None:
    """Return the facts about a process; None after its end, or for another user's process."""
    limits = _text(f"/proc/{pid}/limits")
    for line in limits.splitlines():
        if line.startswith("Max open files"):
            hard = line.split()[4]
            limit = int(hard) if hard.isdecimal() else _number(resource.RLIM_INFINITY)
            maps = _text(f"/proc/{pid}/maps")
            return ProcessFacts(
                name, limit, _entries(f"/proc/{pid}/fd"), len(maps.splitlines()) or None
            )
    return None


def _entries(path: str) -> int | None:
    try:
        return len(os.listdir(path))
    except OSError:
        return None


def _volume(path: str, mounts: str) -> VolumeFacts:
    real = os.path.realpath(path)
    while not os.path.exists(real) and real != "/":
        real = os.path.dirname(real)
    mount = mount_of(real, mounts)
    usable_bytes = total_bytes = -1
    device = 0
    with contextlib.suppress(OSError):
        device = os.stat(real).st_dev
        size = os.statvfs(real)
        usable_bytes = size.f_bavail * size.f_frsize
        total_bytes = size.f_blocks * size.f_frsize
    return VolumeFacts(
        path,
        mount.point,
        mount.kind,
        mount.options,
        device,
        usable_bytes,
        total_bytes,
        _is_rotating(device),
    )


def _is_rotating(device: int) -> bool | None:
    """Return whether the kernel reports that a disk, or the disk of a partition, rotates."""
    place = os.path.realpath(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}")
    if "/virtual/" in place or "/virtio" in place:
        return None  # the disk of this volume is unknown
    for each in (place, os.path.dirname(place)):
        text = _text(f"{each}/queue/rotational").strip()
        if text:
            return text == "1"
    return None


def _text(path: str) -> str:
    """Return the text of a file of the kernel; empty if the file cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    except OSError:
        return ""
