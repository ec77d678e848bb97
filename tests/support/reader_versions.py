"""The reference's table of readers, with the versions that tests tried.

`python -m tests.support.reader_versions` writes it into the page.
"""

from __future__ import annotations

import re
from importlib.metadata import version
from pathlib import Path
from typing import Final

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "reference" / "lake.md"
#: Delta's jar, and the version of Spark that it fits.
DELTA_JAR, SPARK_OF_DELTA_JAR = "4.4.0", "4.2.0"
_HEADER: Final = "| reader | versions tried | Delta | Iceberg |"
#: Reader, its packages, and how it opens a table of each format.
_READERS: Final = (
    (
        "Spark without a jar",
        ("pyspark",),
        "`read_landed(spark, place)`",
        "`read_landed(spark, place)`",
    ),
    ("deltalake", ("deltalake",), "`DeltaTable(path)`", ""),
    ("PyIceberg", ("pyiceberg",), "", "`catalog.load_table(name)`"),
    ("pandas", ("pandas",), "`DeltaTable(path).to_pandas()`", "`table.scan().to_pandas()`"),
    ("Polars", ("polars",), "`scan_delta(path)`", "`scan_iceberg(table)`"),
    ("DuckDB", ("duckdb",), "`delta_scan(path)`", "`iceberg_scan(metadata)`"),
)


def table() -> str:
    """Return the table."""
    lines = [_HEADER, "|---|---|---|---|"]
    for name, packages, delta, iceberg in _READERS:
        tried = ", ".join(version(package) for package in packages)
        lines.append(f"| {name} | {tried} | {delta} | {iceberg} |".replace("|  |", "| |"))
    jar = f"{SPARK_OF_DELTA_JAR} with `delta-spark_2.13:{DELTA_JAR}`"
    lines.append(f'| Spark with Delta\'s jar | {jar} | `spark.read.format("delta")` | |')
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the table into the page."""
    text = PAGE.read_text(encoding="utf-8")
    found = re.compile(re.escape(_HEADER) + r"\n(?:\|[^\n]*\n)+")
    PAGE.write_text(found.sub(lambda _: table(), text), encoding="utf-8")


if __name__ == "__main__":
    main()
