"""The state of a lake table: the topic, the landed offsets, the data files, the commits.

A commit carries its offsets in JSON, which Delta stores in the commit's metadata. The module uses
neither files nor Spark.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, field
from typing import Any, Final

from tidelog.core.dataclass import dataclass
from tidelog.core.errors import TidelogError
from tidelog.spark.lake.protocol import NO_VERSION

#: Version of the format of the JSON that a commit stores.
FORMAT: Final = 1
#: The key under which a commit stores this JSON in its metadata.
MARK: Final = "tidelog"
#: The columns of a record's partition and offset in the table of an ingest.
OFFSET_COLUMNS: Final = ("partition", "offset")


class TableError(TidelogError):
    """The error for an unusable table; the message has the reason and the right form."""


class HiddenRowsError(TableError):
    """The error for a table whose files contain rows that are not rows of the table any more.

    Only the readers of the table's format can read such a table.
    """


@dataclass(frozen=True, slots=True)
class Origin:
    """The topic from which a table is filled, and the table's key columns.

    A recreated topic has another id.
    """

    topic: str
    topic_id: str
    cluster_id: str
    #: Key columns, joined by commas, of a table with the latest row of each key; empty for a table
    #: with a row for each record.
    upsert_key: str = ""

    @property
    def keys(self) -> tuple[str, ...]:
        """Key columns of a table with the latest row of each key."""
        return tuple(self.upsert_key.split(",")) if self.upsert_key else ()


@dataclass(frozen=True, slots=True)
class PartitionRun:
    """A run's offsets `[start, end)` of a partition, which hold `rows` records.

    `dead` is the number of records in the dead-letter path. Offsets in
    `[start, end)` that have no record are transaction markers or aborted (`control`), or compaction
    removed their records.
    """

    partition: int
    start: int
    end: int
    rows: int
    control: int = 0
    compacted: int = 0
    dead: int = 0

    def followed_by(self, later: PartitionRun) -> PartitionRun:
        """Return this run, joined with the run `later`, which starts at the end of this run."""
        return PartitionRun(
            self.partition,
            self.start,
            later.end,
            self.rows + later.rows,
            self.control + later.control,
            self.compacted + later.compacted,
            self.dead + later.dead,
        )


@dataclass(frozen=True, slots=True)
class LakeFile:
    """One Parquet file of one partition, with offsets from `start` to `end` - 1.

    `path` is relative to the table's location. `stats` has Delta's JSON of column statistics.
    """

    path: str
    partition: int
    start: int
    end: int
    rows: int
    size_bytes: int
    stats: str = "{}"
    #: Values of the table's partition columns, as text.
    values: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TableChange:
    """The change that one commit makes to a table: added and removed files, and offsets."""

    run: str
    #: By partition: the offset ranges that an ingest commits; empty for other commits.
    offsets: tuple[PartitionRun, ...] = ()
    added: tuple[LakeFile, ...] = ()
    removed: tuple[LakeFile, ...] = ()
    #: After this commit, runs that began when the table had a lower version than this cannot
    #: commit; 0 leaves the table's fence as it is.
    fence: int = 0
    #: Paths of dead-letter files, in the form in which Spark opens them.
    dead_letters: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LakeState:
    """What tidelog knows of a table at one version: offsets, fence, and columns."""

    version: int = NO_VERSION
    origin: Origin | None = None
    #: By partition, the offsets and the row counts that all runs together have committed.
    partitions: Mapping[int, PartitionRun] = field(default_factory=dict)
    fence: int = 0
    #: Whether `partitions` have all runs; False if the table's log lost commits of earlier runs,
    #: whose offsets and rows are then not counted.
    is_whole: bool = True
    #: The table's id in the metadata of its format.
    table_id: str = field(default="", compare=False)
    #: A sentence that says why the offsets no longer match the table's rows; empty if they match.
    #: While it is set, no run may commit.
    rollback: str = ""
    #: Names of the table's partition columns.
    partition_by: tuple[str, ...] = ()
    #: The id of the newest commit, in a format that can roll a table back to an earlier commit.
    head: str = field(default="", compare=False)

    def following(self) -> dict[int, int]:
        """Return the next offset of each partition."""
        return {number: run.end for number, run in self.partitions.items()}

    def after(self, offsets: Sequence[PartitionRun]) -> dict[int, PartitionRun]:
        """Return `partitions` as they are after the commit of a run with `offsets`."""
        joined = dict(self.partitions)
        for run in offsets:
            before = joined.get(run.partition)
            joined[run.partition] = run if before is None else before.followed_by(run)
        return joined


@dataclass(frozen=True, slots=True)
class CommitNote:
    """The JSON of a commit: its run, its offsets, and the state of all partitions after it."""

    run: str
    origin: Origin
    offsets: tuple[PartitionRun, ...]
    partitions: tuple[PartitionRun, ...]
    fence: int = 0
    dead_letters: tuple[str, ...] = ()
    is_whole: bool = True
    #: The table version that the commit made; 0 in commits of earlier releases of tidelog.
    version: int = 0

    @classmethod
    def after(cls, state: LakeState, change: TableChange) -> CommitNote:
        """Return the JSON for a change that is committed on top of a state."""
        assert state.origin is not None
        joined = state.after(change.offsets)
        return cls(
            run=change.run,
            origin=state.origin,
            offsets=change.offsets,
            partitions=tuple(joined[number] for number in sorted(joined)),
            fence=max(state.fence, change.fence),
            dead_letters=change.dead_letters,
            is_whole=state.is_whole,
            version=state.version + 1,
        )

    def to_json(self) -> str:
        """Return the text that a commit stores."""
        document = {"format": FORMAT, **asdict(self)}
        for name in ("offsets", "partitions"):
            document[name] = [list(asdict(run).values()) for run in getattr(self, name)]
        return json.dumps(document, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str, where: str) -> CommitNote:
        """Parse the text of `to_json`. Raises TableError naming the table."""
        try:
            fields: dict[str, Any] = json.loads(text)
            if fields.pop("format") != FORMAT:
                raise TableError(f"{where} was filled by a later version of tidelog")
            fields["origin"] = Origin(**fields["origin"])
            for name in ("offsets", "partitions"):
                fields[name] = tuple(PartitionRun(*values) for values in fields[name])
            fields["dead_letters"] = tuple(fields["dead_letters"])
            return cls(**fields)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise TableError(f"{where} has a commit that is no ingest's: {error!r}") from error


@dataclass(frozen=True, slots=True)
class LakeCommit:
    """A commit of a table's log; `note` is None if another tool made the commit."""

    version: int
    time_ms: int
    note: CommitNote | None
    #: The version that the commit restored, below 0 if unknown; None for other commits.
    restored: int | None = None

    @property
    def is_misplaced(self) -> bool:
        """Whether the commit file belongs to another version, and was put back from a backup."""
        return self.note is not None and self.note.version not in (0, self.version)


def check_origin(before: Origin, now: Origin, where: str) -> None:
    """Raise TableError if the table `where` was filled from another topic."""
    if before.topic != now.topic:
        raise TableError(
            f"{where} holds topic {before.topic!r}, not {now.topic!r}; ingest to another table"
        )
    if before.upsert_key != now.upsert_key:
        raise TableError(
            f"{where} has {_mode_of(before)}, and this run would add {_mode_of(now)}; ingest as"
            " before, or to another table"
        )
    if before != now:
        raise TableError(
            f"{where} was filled from a topic {now.topic!r} with id {before.topic_id} in cluster"
            f" {before.cluster_id}; this one has id {now.topic_id} in cluster {now.cluster_id}: it"
            " was recreated, or it is another cluster. Ingest to another table"
        )


def _mode_of(origin: Origin) -> str:
    key = origin.upsert_key
    return f"the latest row of each key ({key})" if key else "a row for each record"
