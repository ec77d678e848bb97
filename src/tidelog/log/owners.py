"""The owner of each log directory: its cluster and broker, with the broker's last stamp.

As in Kafka, `meta.properties` names the cluster and the broker. A key in `meta.properties` that
only tidelog has holds the *stamp*: the transaction in which the broker last wrote its stamp node in
the metadata store. If the broker's stamp in a log directory is newer than its stamp in the metadata
store, the store was restored from an older copy. A broker reads the owners before it opens a
directory or creates a node in the store; `directory_stamps` writes the owners. This module does not
access the metadata store.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.core.errors import ConfigError, StorageError
from tidelog.core.ports import Files, Lane, Work
from tidelog.core.types import NO_STAMP
from tidelog.log.directory_files import (
    META_PROPERTIES,
    MetaProperties,
    parse_meta_properties,
)

#: The owner of a directory that has no `meta.properties` or whose disk fails.
NO_OWNER = MetaProperties(None, None)


async def read_owners(lanes: Mapping[str, Lane]) -> dict[str, MetaProperties]:
    """Return the owner of each directory, or NO_OWNER if the directory's disk fails.

    Raises ConfigError for an illegible `meta.properties`.
    """
    owners = {}
    for path, lane in lanes.items():
        try:
            owners[path] = await lane.submit(
                lambda files, path=path: _read(files, path),  # type: ignore[misc]
                Work.SLOW,
                "read owner",
            )
        except StorageError:
            # Ignore the disk error now: it will occur again when the broker opens the directory,
            # and the broker then handles it (D5).
            owners[path] = NO_OWNER
    return owners


def last_stamp(owners: Mapping[str, MetaProperties]) -> int:
    """Return the newest stamp (metadata-store transaction) that any of the directories has (E8)."""
    return max((owner.stamp for owner in owners.values()), default=NO_STAMP)


def known_marks(owners: Mapping[str, MetaProperties]) -> tuple[str, ...]:
    """Return the names of all marks in `owners`, the oldest first. A mark identifies a metadata
    store that was restored from an older copy (E8).
    """
    marks = dict.fromkeys(mark for owner in owners.values() for mark in owner.marks)
    return tuple(sorted(marks, key=lambda mark: [int(part) for part in mark.split("-")]))


def refuse_strangers(owners: Mapping[str, MetaProperties], cluster_id: str, store: str) -> None:
    """Raise ConfigError if a directory belongs to another cluster than the store.

    `cluster_id` is empty for a store without a cluster; `store` names the store in the error.
    """
    for path, owner in owners.items():
        if owner.cluster_id in (None, cluster_id):
            continue
        if not cluster_id:
            raise ConfigError(
                f"log directory {path} belongs to cluster {owner.cluster_id}, but there is no"
                f" cluster in {store}, and none is created: correct metadata.store, or bring the"
                f" metadata of cluster {owner.cluster_id} there with `tidelog store import`; a new"
                " cluster begins on empty log directories"
            )
        raise ConfigError(
            f"log directory {path} belongs to cluster {owner.cluster_id}, but {store} holds cluster"
            f" {cluster_id}: correct metadata.store, or name an empty log directory; where {store}"
            f" was to hold cluster {owner.cluster_id}, bring its metadata there with `tidelog store"
            " import`"
        )


def _read(files: Files, root: str) -> MetaProperties:
    path = f"{root}/{META_PROPERTIES}"
    if not files.exists(path):
        return NO_OWNER
    try:
        return parse_meta_properties(files.read_file(path))
    except ValueError as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
