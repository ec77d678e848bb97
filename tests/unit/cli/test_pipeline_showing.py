"""Reports of pipelines on the command line: tables, JSON, the page, the exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer

from tidelog.cli.output import OutputFormat
from tidelog.cli.pipelines.showing import show
from tidelog.core.errors import ConfigError
from tidelog.spark.pipelines.report import PipelineReport, Table

TABLE = Table("Damage", ("file", "position"), (("00.log", 12),), "Positions are bytes.")
GOOD = PipelineReport(
    "audit", "all is well", True, (("files", 3),), (TABLE, Table("None", ("a",), ()))
)
BAD = PipelineReport("audit", "1 finding", False)


def test_tables_notes_and_verdict_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    show(GOOD, OutputFormat.TABLE, None)
    printed = capsys.readouterr().out
    for expected in ("files", "Damage", "00.log", "Positions are bytes.", "None: none"):
        assert expected in printed
    assert printed.endswith("all is well\n")


def test_json_is_the_whole_of_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    show(GOOD, OutputFormat.JSON, None)
    assert json.loads(capsys.readouterr().out) == GOOD.to_json()


def test_a_report_that_does_not_hold_is_exit_code_1(tmp_path: Path) -> None:
    with pytest.raises(typer.Exit) as ended:
        show(BAD, OutputFormat.JSON, tmp_path / "r.html")
    assert ended.value.exit_code == 1
    assert "1 finding" in (tmp_path / "r.html").read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["r.html"]


def test_a_page_that_cannot_be_written_is_named_behind_the_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "none" / "r.html"
    with pytest.raises(ConfigError, match=f"--html {target}: the report cannot be written"):
        show(GOOD, OutputFormat.TABLE, target)
    assert capsys.readouterr().out.endswith("all is well\n")
