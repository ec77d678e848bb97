"""The report of a pipeline on standard output, and as an HTML file.

A report of a failed check gives exit code 1, like any failure.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from tidelog.cli.output import (
    WRONG,
    OutputFormat,
    OutputOption,
    print_json,
    print_line,
    print_table,
    print_text,
    say,
)
from tidelog.cli.pipelines.running import CoresOption, HtmlOption, MemoryOption, session
from tidelog.core.dataclass import dataclass
from tidelog.core.errors import ConfigError
from tidelog.spark.pipelines import html as pages
from tidelog.spark.pipelines.report import PipelineReport

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Description of the JSON document that every verb with a report prints.
REPORT_DOCUMENT = (
    "an object with `title`, `verdict`, `holds` (false: exit code 1), `facts` by name, `tables`"
    " (each with `title`, `columns`, `rows` as objects by column, `note`) and `figures` with the"
    " numbers that their plots show."
)


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """The options of a verb that makes a report with Spark."""

    html: HtmlOption = None
    cores: CoresOption = 2
    memory: MemoryOption = "1g"
    output: OutputOption = OutputFormat.TABLE

    def session(self, name: str) -> AbstractContextManager[SparkSession]:
        """Start a Spark session for a `with` block."""
        return session(name, self.cores, self.memory)

    def show(self, report: PipelineReport) -> None:
        """Print a report and write its HTML page; exit with 1 if the report's check failed."""
        show(report, self.output, self.html)


def show(report: PipelineReport, output: OutputFormat, html: Path | None) -> None:
    """Print a report and write its HTML page; raise typer.Exit(1) if the report's check failed.

    The HTML page is written last, so that the report is printed even if the page cannot be written.
    """
    if output is OutputFormat.JSON:
        print_json(report.to_json())
    else:
        _print(report)
    if html is not None:
        write_page(report, html)
    if not report.holds:
        raise typer.Exit(1)


def write_page(report: PipelineReport, path: Path) -> None:
    """Write the HTML file atomically; raise a ConfigError with the path if the write fails."""
    text = pages.page(report)
    half = path.with_name(f".{path.name}.half")
    try:
        half.write_text(text, encoding="utf-8")
        half.replace(path)
    except OSError as error:
        raise ConfigError(f"--html {path}: the report cannot be written there: {error}") from error
    say(f"report: {path}")


def _print(report: PipelineReport) -> None:
    if report.facts:
        print_table(
            (report.title, ""), [(name, pages.shown(value)) for name, value in report.facts]
        )
    for table in report.tables:
        if table.rows:
            print_table(table.columns, table.rows, table.title)
        else:
            print_line(f"{table.title}: none")
        if table.note:
            print_text(table.note)
    print_text(report.verdict, "" if report.holds else WRONG)
