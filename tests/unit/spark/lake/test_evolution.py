"""Columns that runs add to a table: types, names, and runs that add columns at once."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from tidelog.spark.lake import evolution
from tidelog.spark.lake.delta import DeltaLake
from tidelog.spark.lake.evolution import add_columns, missing_columns
from tidelog.spark.lake.protocol import CommitAnswer
from tidelog.spark.lake.runs import commit_run, opened
from tidelog.spark.lake.state import (
    LakeState,
    Origin,
    PartitionRun,
    TableChange,
    TableError,
)

ORIGIN = Origin("flights", "flights-id", "cluster-id")
SCHEMA = pa.schema([("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64())])


@pytest.fixture
def lake(tmp_path: Path) -> DeltaLake:
    lake = DeltaLake(str(tmp_path / "table"))
    opened(lake, ORIGIN, lambda: SCHEMA)
    return lake


def columns(**types: pa.DataType) -> pa.Schema:
    return pa.schema([*SCHEMA, *types.items()])


def test_new_columns_are_one_commit_and_the_offsets_stay(lake: DeltaLake) -> None:
    change = TableChange("a", (PartitionRun(0, 0, 10, 10),))
    commit_run(lake, lake.read(), change)
    grown = columns(n=pa.int64(), s=pa.struct([("x", pa.string())]))
    assert missing_columns(lake, grown).names == ["n", "s"]
    assert add_columns(lake, grown) == ("n", "s")
    state = DeltaLake(lake.location).read()
    assert (state.version, state.following(), state.is_whole) == (2, {0: 10}, True)
    assert DeltaLake(lake.location).schema().names == grown.names
    assert all(field.nullable for field in lake.schema())
    assert add_columns(lake, grown) == ()
    assert add_columns(lake, SCHEMA) == (), "a run may lack columns of the table"
    assert lake.newest() == 2


def test_columns_that_do_not_fit_are_named_with_both_types(lake: DeltaLake) -> None:
    add_columns(lake, columns(s=pa.struct([("x", pa.string())])))
    deeper = columns(s=pa.struct([("x", pa.string()), ("y", pa.string())]))
    for schema, reason in (
        (SCHEMA.set(0, pa.field("topic", pa.binary())), "'topic' is string in the table and bina"),
        (SCHEMA.set(0, pa.field("Topic", pa.string())), "'Topic' of this run is 'topic' in the"),
        (deeper, "column 's' is .* in the table and .* in this run; cast it"),
    ):
        with pytest.raises(TableError, match=reason):
            add_columns(lake, schema)
    with pytest.raises(TableError, match=r"Delta has no such column: .*Duration\(s\)$"):
        add_columns(lake, columns(n=pa.duration("s")))


class Late(DeltaLake):
    """A table to which another run adds columns before this one's first commit."""

    def __init__(self, location: str, others: pa.Schema) -> None:
        super().__init__(location)
        self.others = others
        self.commits_sent = 0

    def add_columns(self, state: LakeState, columns: pa.Schema) -> CommitAnswer:
        """Let the other run be first."""
        self.commits_sent += 1
        if self.commits_sent == 1:
            add_columns(DeltaLake(self.location), self.others)
        return super().add_columns(state, columns)


def test_of_runs_that_add_columns_at_once_none_loses_its_own(lake: DeltaLake) -> None:
    late = Late(lake.location, columns(theirs=pa.int64(), both=pa.string()))
    assert add_columns(late, columns(both=pa.string(), ours=pa.date32()), sleep=lambda _: None)
    assert lake.schema().names == [*SCHEMA.names, "theirs", "both", "ours"]
    assert late.commits_sent == 2


def test_a_column_that_another_run_added_with_another_type_is_refused(lake: DeltaLake) -> None:
    late = Late(lake.location, columns(n=pa.int64()))
    with pytest.raises(TableError, match="'n' is long in the table and string in this run"):
        add_columns(late, columns(n=pa.string()), sleep=lambda _: None)


class Unanswered(DeltaLake):
    """A table whose answers to new columns are lost."""

    arrives = False

    def add_columns(self, state: LakeState, columns: pa.Schema) -> CommitAnswer:
        """Lose the answer."""
        if self.arrives:
            super().add_columns(state, columns)
        return CommitAnswer.LOST


def test_an_answer_that_is_lost_is_sought_in_the_table(
    lake: DeltaLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    deaf = Unanswered(lake.location)
    monkeypatch.setattr(evolution, "MOST_COMMITS", 3)
    with pytest.raises(TableError, match="refused 3 commits of new columns"):
        add_columns(deaf, columns(n=pa.int64()), sleep=lambda _: None)
    deaf.arrives = True
    assert add_columns(deaf, columns(n=pa.int64()), sleep=lambda _: None) == ("n",)
    assert lake.newest() == 1
