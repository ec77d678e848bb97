"""Findings about the machine of brokers: process limits, disks, file systems, mount options.

The functions are pure. A broker raises its limit of open files to the hard limit at its start, so
only the hard limit counts. A broker keeps at most 1,024 files open in each log directory, in
addition to its connections.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tidelog.local.doctor.diagnosis import degraded, notice, some, unavailable
from tidelog.local.doctor.machine_facts import MachineFacts, VolumeFacts
from tidelog.local.health import Finding
from tidelog.runtime.stores.local_disk import NETWORK_FILE_SYSTEMS

#: A finding appears if a process uses more than this share of a limit.
_NEAR = 0.8
#: A finding appears if less than this share of a volume is free for brokers.
_USABLE = 0.05
#: Limit of open files that suffices for most brokers. A remedy suggests this limit, or a higher one
#: if the process needs it.
_OPEN_FILES = 100_000
#: Limit of memory maps (vm.max_map_count) that suffices for most brokers.
_MAPS = 262_144
_MEMORY = ("tmpfs", "ramfs")
_LAYERS = ("overlay", "aufs")
#: Mount options under which a sync does not reach the disk.
_WITHOUT_BARRIERS = ("nobarrier", "barrier=0")
_SLOW = ("sync", "dirsync", "strictatime")


def of_machine(facts: MachineFacts) -> Iterator[Finding]:
    """Yield the findings about a machine."""
    yield from _limits(facts)
    for each in facts.volumes:
        yield from _of_volume(each)
    yield from _shared(facts.volumes)


def _limits(facts: MachineFacts) -> Iterator[Finding]:
    for each in facts.processes:
        if each.open_files_limit < facts.needed_open_files:
            message = (
                f"{each.name} may open {each.open_files_limit:,} files, and may need"
                f" {facts.needed_open_files:,}: connections are then refused, and logs cannot be"
                " opened"
            )
            enough = max(_OPEN_FILES, facts.needed_open_files)
            remedy = (
                f"LimitNOFILE={enough} in its systemd unit, or `ulimit -Hn {enough}` in its shell;"
                " then restart it"
            )
            yield degraded("open_files_low", message, remedy)
        if each.open_files is not None and each.open_files > _NEAR * each.open_files_limit:
            message = (
                f"{each.name} has {each.open_files:,} of at most {each.open_files_limit:,} files"
                " open"
            )
            enough = max(_OPEN_FILES, 2 * each.open_files_limit)
            remedy = (
                f"LimitNOFILE={enough} in its systemd unit, then restart it; or fewer connections"
            )
            yield degraded("open_files_near_limit", message, remedy)
        maximum = facts.max_map_count
        if each.maps is not None and maximum is not None and each.maps > _NEAR * maximum:
            message = f"{each.name} has {each.maps:,} of at most {maximum:,} memory maps"
            remedy = f"sysctl -w vm.max_map_count={max(_MAPS, 2 * maximum)}"
            yield degraded("maps_near_limit", message, remedy)


def _of_volume(volume: VolumeFacts) -> Iterator[Finding]:
    where = f"{volume.path} is on {volume.mount_point} ({volume.kind})"
    move = "give the broker a directory on a local disk (log.dirs) with ext4 or xfs"
    if "ro" in volume.options:
        message = f"{where}, which is mounted read-only"
        remedy = (
            "dmesg shows the reason; after an error of the disk, let fsck check the volume while it"
            f" is not mounted; only then: mount -o remount,rw {volume.mount_point}"
        )
        yield unavailable("mounted_read_only", message, remedy)
    if volume.kind in NETWORK_FILE_SYSTEMS:
        message = f"{where}, a network file system: locks and syncs may not hold, and disks hang"
        yield degraded("network_file_system", message, move)
    elif volume.kind in _MEMORY:
        yield notice("memory_file_system", f"{where}: records are gone after a reboot", move)
    elif volume.kind in _LAYERS:
        message = f"{where}, the layer of a container: records are gone with the container"
        remedy = "mount a volume of the host there (docker run -v, or a persistent volume claim)"
        yield notice("container_layer", message, remedy)
    without = [each for each in _WITHOUT_BARRIERS if each in volume.options]
    if without:
        message = f"{where} with {without[0]}: a power failure may lose records that were synced"
        remedy = f"remove {without[0]} in /etc/fstab; mount -o remount,barrier {volume.mount_point}"
        yield degraded("barriers_off", message, remedy)
    slow = [each for each in _SLOW if each in volume.options]
    if slow:
        message = f"{where} with {slow[0]}: each write or read waits for the disk"
        remedy = (
            f"remove {slow[0]} in /etc/fstab; mount -o remount,async,noatime {volume.mount_point}"
        )
        yield notice("mount_option_slow", message, remedy)
    if volume.is_rotating:
        message = f"{where}, a rotating disk: followers and consumers that are far behind seek"
        yield notice("rotating_disk", message, "use a solid-state disk for topics that are re-read")
    if 0 <= volume.usable_bytes < _USABLE * volume.total_bytes:
        message = f"{where} with {volume.usable_bytes:,} of {volume.total_bytes:,} bytes usable"
        remedy = (
            "move replicas away (tidelog reassign rebalance), or let brokers delete old records"
            " sooner: shorten retention (tidelog topics alter)"
        )
        yield degraded("disk_nearly_full", message, remedy)


def _shared(volumes: Sequence[VolumeFacts]) -> Iterator[Finding]:
    """Yield findings about log directories that share a volume, and so would fail together."""
    by_device: dict[int, list[str]] = {}
    for each in volumes:
        by_device.setdefault(each.device, []).append(each.path)
    for paths in by_device.values():
        if len(paths) > 1:
            message = f"{len(paths)} log directories of one broker share a volume: {some(paths)}"
            remedy = "keep one log directory for each disk: tidelog log-dirs drain, then log.dirs"
            yield notice("volume_shared", message, remedy)
