"""The end-to-end proof that a table has a whole sequence 0, 1, 2 ..., from the table alone.

The producer numbers its records and reports the number of acknowledged records; Spark counts the
rows of the table. The check does not use the log, its offsets or the table's commits, so it
reveals errors in each of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.core.dataclass import dataclass
from tidelog.spark.option_values import OptionError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class SequenceProof:
    """Counts of a table's rows, which should have each number from 0 to `produced` - 1 once."""

    produced: int
    count: int
    distinct: int
    total: int
    smallest: int | None
    largest: int | None
    #: Count of the sequence's numbers that have a row. `foreign` counts rows without a number, or
    #: with a number outside the sequence.
    expected_present: int
    foreign: int

    @property
    def lost(self) -> int:
        """Count of sequence numbers without a row."""
        return self.produced - self.expected_present

    @property
    def doubled(self) -> int:
        """Number of surplus rows: each sequence number should have only one row."""
        return self.count - self.foreign - self.expected_present

    @property
    def holds(self) -> bool:
        """Whether the rows' counts and sum show one row for each sequence number, and no others."""
        return (
            self.lost == 0
            and self.doubled == 0
            and self.foreign == 0
            and self.total == self.produced * (self.produced - 1) // 2
        )

    def verdict(self) -> str:
        """Return the verdict as a line."""
        line = (
            f"{self.produced} produced, {self.count} in the table,"
            f" {self.lost} lost, {self.doubled} doubled"
        )
        return line if self.foreign == 0 else f"{line}, {self.foreign} foreign"


def prove_sequence(frame: DataFrame, column: str, produced: int) -> SequenceProof:
    """Compare the numbers in `column` with the sequence 0 to `produced` - 1.

    Raises OptionError if the table has no column `column` of whole numbers.
    """
    from pyspark.sql import functions as F  # noqa: N812 - how all of Spark names it
    from pyspark.sql.types import IntegralType

    types = {each.name: each.dataType for each in frame.schema}
    if not isinstance(types.get(column), IntegralType):
        numbers = [name for name, kind in types.items() if isinstance(kind, IntegralType)]
        raise OptionError(
            f"sequence is {column!r}; expected a column of whole numbers of the table, which has"
            f" {', '.join(numbers) or 'none'}"
        )
    number = F.col(column)
    belongs = number.between(0, produced - 1)
    row = frame.agg(
        F.count("*").alias("count"),
        F.countDistinct(number).alias("distinct"),
        F.sum(number.cast("decimal(38,0)")).alias("total"),
        F.min(number).alias("smallest"),
        F.max(number).alias("largest"),
        F.countDistinct(F.when(belongs, number)).alias("expected_present"),
        F.count(F.when(~F.coalesce(belongs, F.lit(False)), 1)).alias("foreign"),
    ).collect()[0]
    return SequenceProof(
        produced=produced,
        count=row["count"],
        distinct=row["distinct"],
        total=int(row["total"] or 0),
        smallest=row["smallest"],
        largest=row["largest"],
        expected_present=row["expected_present"],
        foreign=row["foreign"],
    )
