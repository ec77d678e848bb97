"""The interface of lake tables: a port, as each table format is reached through its own library.

An implementation reads states and commits changes. It retries nothing: `runs` looks at the table
after any answer but a success.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tidelog.spark.lake.protocol import CommitAnswer
from tidelog.spark.lake.state import LakeFile, LakeState, Origin, TableChange

if TYPE_CHECKING:
    import pyarrow as pa


class Lake(Protocol):
    """A table of one topic."""

    #: The path, URI or identifier, for messages.
    location: str

    def read(self) -> LakeState:
        """Look at the newest version; without a table the state has no version."""
        ...

    def create(self, origin: Origin, schema: pa.Schema) -> CommitAnswer:
        """Create an empty table of these columns."""
        ...

    def commit(self, state: LakeState, change: TableChange) -> CommitAnswer:
        """Commit a change on top of a state, once."""
        ...

    def landed(self, after: int) -> list[str]:
        """Return the runs of the commits after a version."""
        ...

    def first_known(self) -> int:
        """Return the oldest version whose commit the table's log still has."""
        ...

    def files(self, version: int | None = None) -> list[LakeFile]:
        """Return the data files of a version, of the newest by default."""
        ...

    def schema(self, version: int | None = None) -> pa.Schema:
        """Return the columns of a version, of the newest by default."""
        ...

    def check_columns(self, schema: pa.Schema) -> None:
        """Raise TableError if rows of these columns do not fit the table's."""
        ...

    def vacuum(self, keep_hours: int) -> int:
        """Delete data files that commits removed over `keep_hours` ago; return their number."""
        ...
