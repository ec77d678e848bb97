"""Vacuum of Iceberg tables: expire old snapshots, then delete files that no snapshot refers to.

Data files, manifests and lists of manifests are deleted after the commit that expires their last
snapshot. A process that died during a commit leaves manifests to which no snapshot refers. The
vacuum deletes such manifests once they are older than any commit can take.
"""

from __future__ import annotations

import time
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from tidelog.spark.lake.iceberg_manifests import ancestors, reachable

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from tidelog.spark.lake.stores import LakeStore

#: Age in ms from which a manifest without a snapshot counts as left by a process that died.
_DEAD_AFTER_MS: Final = 72 * 3_600_000
#: The folder that holds manifests and manifest lists, and the suffix of the names of both.
_FOLDER, _SUFFIX = "metadata", ".avro"


def vacuum(table: Table, store: LakeStore, keep_hours: int) -> int:
    """Expire snapshots that were replaced over `keep_hours` ago; count the deleted data files.

    Raises the errors of the catalog and of the store.
    """
    from pyiceberg.exceptions import CommitFailedException

    from tidelog.spark.lake.iceberg_commits import expire

    _delete_dead_manifests(table, store)
    oldest_ms = time.time_ns() // 1_000_000 - keep_hours * 3_600_000
    refs = table.metadata.refs
    kept = {ref.snapshot_id for ref in refs.values()}
    doomed = [
        before
        for later, before in pairwise(ancestors(table))
        if later.timestamp_ms <= oldest_ms and before.snapshot_id not in kept
    ]
    if not doomed:
        return 0
    old = reachable(table, doomed)
    table.refresh()
    known = {snapshot.snapshot_id for snapshot in table.snapshots()}
    ids = {snapshot.snapshot_id for snapshot in doomed}
    if table.metadata.refs != refs or not ids <= known:
        # Another commit, tag or vacuum came first: the next vacuum expires the snapshots.
        return 0
    try:
        expire(table, ids)
    except CommitFailedException:
        return 0
    table.refresh()
    gone = old.keys() - reachable(table, table.snapshots()).keys()
    for path in sorted(gone):
        with suppress(FileNotFoundError):
            table.io.delete(path)
    return sum(old[path] for path in gone)


def _delete_dead_manifests(table: Table, store: LakeStore) -> None:
    """Delete old manifests and manifest lists to which no snapshot refers.

    Files are compared by their names, which are unique. Whole paths may differ for one file,
    because other tools may write `s3a:` for `s3:`.
    """
    # List the files before the snapshots: a commit in between has files too young to delete.
    listed = [file for file in store.listed(_FOLDER) if file.path.endswith(_SUFFIX)]
    if not listed:
        return
    oldest_ms = store.now_ms() - _DEAD_AFTER_MS
    old = {_name(file.path): file.path for file in listed if 0 < file.modified_ms < oldest_ms}
    table.refresh()
    for snapshot in table.snapshots():
        old.pop(_name(snapshot.manifest_list), None)
    if old:
        for path in reachable(table, table.snapshots()):
            old.pop(_name(path), None)
        store.delete(sorted(old.values()))


def _name(path: str) -> str:
    return path.rpartition("/")[2]
