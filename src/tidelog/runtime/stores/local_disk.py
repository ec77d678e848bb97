"""The refusal of network file systems, where SQLite's shared memory and flock do not work.

Brokers on several machines need ZooKeeper as the store (DESIGN.md, Metadata store).
"""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from tidelog.core.errors import ConfigError

#: Types of file systems that several machines may mount at once.
NETWORK_FILE_SYSTEMS = frozenset(
    {
        "9p",
        "acfs",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "coda",
        "davfs",
        "gfs2",
        "glusterfs",
        "gpfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs3",
        "nfs4",
        "ocfs2",
        "orangefs",
        "panfs",
        "pvfs2",
        "smb2",
        "smb3",
        "smbfs",
        "fuse.blobfuse",
        "fuse.blobfuse2",
        "fuse.ceph",
        "fuse.ceph-fuse",
        "fuse.curlftpfs",
        "fuse.davfs2",
        "fuse.gcsfuse",
        "fuse.glusterfs",
        "fuse.goofys",
        "fuse.juicefs",
        "fuse.mfs",
        "fuse.moosefs",
        "fuse.rclone",
        "fuse.s3fs",
        "fuse.seaweedfs",
        "fuse.smbnetfs",
        "fuse.sshfs",
        "fuse.vmhgfs-fuse",
    }
)

_ESCAPE = re.compile(r"\\([0-7]{3})")


def refuse_network_file_system(directory: str) -> None:
    """Raise ConfigError if `directory` is on a network file system."""
    real = os.path.realpath(directory)
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            mounts = file.read()
    except FileNotFoundError:  # the system is not Linux, so the file system type is unknown
        return
    kind = file_system_of(real, mounts)
    if kind in NETWORK_FILE_SYSTEMS:
        raise ConfigError(
            f"metadata store directory {directory}: {kind} is a network file system; the embedded"
            " store works on a local disk only, brokers of several machines need ZooKeeper"
        )


class Mount(NamedTuple):
    """A mounted file system; `kind` is empty if the kind is unknown."""

    kind: str = ""
    point: str = ""
    #: Options of the mount and of the file system.
    options: tuple[str, ...] = ()
    source: str = ""


def file_system_of(real_path: str, mountinfo: str) -> str:
    """Return the file system type of an absolute path without symbolic links; "" if unknown."""
    return mount_of(real_path, mountinfo).kind


def mount_of(real_path: str, mountinfo: str) -> Mount:
    """Return the mount that holds an absolute path without symbolic links."""
    found = Mount()
    best = -1
    for line in mountinfo.splitlines():
        mount, separator, source = line.partition(" - ")
        fields = mount.split(" ")
        if not separator or len(fields) < 6:
            continue
        point = _ESCAPE.sub(lambda match: chr(int(match[1], 8)), fields[4])
        inside = real_path == point or real_path.startswith(point.rstrip("/") + "/")
        # If several file systems are mounted on one point, the last file system is visible.
        if inside and len(point) >= best:
            best = len(point)
            kind, device, own = (*source.split(" "), "", "", "")[:3]
            found = Mount(kind, point, (*fields[5].split(","), *own.split(",")), device)
    return found
