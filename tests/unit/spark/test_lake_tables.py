"""What a transaction of Delta or Iceberg records about an ingest."""

from __future__ import annotations

import json

import pytest

from tidelog.spark.pipelines.lake_tables import LakeCommit, LakeError
from tidelog.spark.pipelines.manifests import Origin, PartitionRun

ORIGIN = Origin("t", "id", "c")


def test_runs_are_joined_and_read_back() -> None:
    first = LakeCommit(0, "", ORIGIN).after(1, "a", (PartitionRun(0, 5, 10, 4, control=1),))
    runs = (PartitionRun(0, 10, 12, 1, dead=1), PartitionRun(1, 0, 3, 3))
    second = first.after(2, "b", runs)
    assert second.partitions == (PartitionRun(0, 5, 12, 5, control=1, dead=1), runs[1])
    assert LakeCommit.from_json(second.to_json(), "table") == second
    assert second.to_json().startswith('{"tidelog"'), "the history is searched for this"
    assert '"run": "b"' in second.to_json(), "the snapshots are searched for this"


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"tidelog": 1}', '{"tidelog": 2}'])
def test_another_text_is_refused(text: str) -> None:
    with pytest.raises(LakeError, match="table (carries no offsets|was ingested by a later)"):
        LakeCommit.from_json(text, "table")


def test_a_later_form_is_named() -> None:
    text = json.dumps({**json.loads(LakeCommit(1, "a", ORIGIN).to_json()), "tidelog": 2})
    with pytest.raises(LakeError, match="later version"):
        LakeCommit.from_json(text, "table")
