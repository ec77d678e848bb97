"""Lake tables of thousands of versions, which would take an hour to commit one after the other.

The versions are copies of the newest commit, with the names, offsets and notes that an ingest's
commits would have. Delta's log gets the checkpoint that it would have, too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidelog.spark.lake.staging import new_run
from tidelog.spark.lake.state import MARK, CommitNote, PartitionRun, TableChange

if TYPE_CHECKING:
    from tidelog.spark.lake.table import Lake

_INTERVAL = "delta.checkpointInterval"
#: Of so many checkpoints one is written, and the newest.
_CHECKPOINTS_LEFT_OUT = 50


def _notes(lake: Lake, count: int) -> Iterator[CommitNote]:
    """Yield the notes of ingests of one record each, up to a version."""
    state = lake.read()
    while state.version < count:
        end = state.following()[0]
        change = TableChange(new_run(), (PartitionRun(0, end, end + 1, 1),))
        note = CommitNote.after(state, change)
        yield note
        partitions = {each.partition: each for each in note.partitions}
        state = replace(state, version=note.version, partitions=partitions)


def add_delta_versions(lake: Lake, count: int) -> None:
    """Write the log of a Delta table up to a version, each with a file more."""
    from deltalake import DeltaTable

    log = Path(lake.location, "_delta_log")
    lines = (log / f"{lake.newest():020}.json").read_text(encoding="utf-8").splitlines()
    actions: dict[str, Any] = {}
    for line in lines:
        actions |= json.loads(line)
    assert set(actions) == {"commitInfo", "add", "txn"}, actions
    interval = int(DeltaTable(lake.location).metadata().configuration[_INTERVAL])
    last = (count + 1) // interval * interval - 1
    for note in _notes(lake, count):
        offset = note.offsets[0].start
        stats = json.loads(actions["add"]["stats"])
        for bound in ("minValues", "maxValues"):
            stats[bound]["offset"] = offset
        path = f"run-{note.version - 1}-{note.run}/part-bench-0-{note.run[:12]}.parquet"
        changed = {
            "commitInfo": {MARK: note.to_json()},
            "add": {"path": path, "stats": json.dumps(stats, separators=(",", ":"))},
            "txn": {"version": offset + 1},
        }
        text = "".join(f"{json.dumps({name: actions[name] | changed[name]})}\n" for name in actions)
        (log / f"{note.version:020}.json").write_text(text, encoding="utf-8")
        if note.version == last or (note.version + 1) % (_CHECKPOINTS_LEFT_OUT * interval) == 0:
            DeltaTable(lake.location, version=note.version).create_checkpoint()


def add_iceberg_versions(lake: Lake, count: int) -> None:
    """Add snapshots to an Iceberg table up to a version; they have the files of the newest one."""
    from pyiceberg.table.refs import SnapshotRefType
    from pyiceberg.table.snapshots import Summary
    from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate

    from tidelog.spark.lake.iceberg import IcebergLake

    assert isinstance(lake, IcebergLake)
    table = lake._at_head()
    head = table.current_snapshot()
    assert head is not None
    updates: list[Any] = []
    note = None
    for note in _notes(lake, count):
        assert head.summary is not None
        noted = {**head.summary.additional_properties, MARK: note.to_json()}
        head = head.model_copy(
            update={
                "snapshot_id": table.metadata.new_snapshot_id(),
                "parent_snapshot_id": head.snapshot_id,
                "sequence_number": note.version,
                "timestamp_ms": head.timestamp_ms + 1,
                "summary": Summary(head.summary.operation, **noted),
            }
        )
        updates.append(AddSnapshotUpdate(snapshot=head))
    if note is not None:
        branch = {
            "ref-name": "main",
            "type": SnapshotRefType.BRANCH,
            "snapshot-id": head.snapshot_id,
        }
        updates.append(SetSnapshotRefUpdate.model_validate(branch))
        table.catalog.commit_table(table, (), tuple(updates))
