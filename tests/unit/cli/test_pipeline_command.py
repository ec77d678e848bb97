"""`tidelog pipeline`: usage, and what is said before Spark would start."""

from __future__ import annotations

import sys

import pytest
from typer.testing import CliRunner

from tidelog.cli.app import command_tree
from tidelog.core.errors import ConfigError, TidelogError
from tidelog.runtime.extras import install_command

runner = CliRunner()


@pytest.mark.parametrize(
    "words",
    [
        ["ingest", "--to", "x"],
        ["ingest", "--topic", "t"],
        ["ingest", "--topic", "t", "--to", "x", "--keep-hours", "3"],
        ["ingest", "--topic", "t", "--to", "x", "--compact-after", "3"],
        ["ingest", "--topic", "t", "--to", "x", "--target-file-bytes", "0"],
        ["compact", "x", "--target-file-bytes", "0"],
        ["ingest", "--topic", "t", "--to", "x", "--bootstrap-server", "h:1", "--dir", "d"],
        ["prove"],
        ["prove", "x", "--sequence", "seq"],
        ["prove", "x", "--produced", "3"],
        ["prove", "x", "--sequence", "seq", "--produced", "-1"],
        ["audit", "/x", "--html", "/nothing/here/a.html"],
        ["audit", "/x", "--html", "/"],
        ["nonsense"],
    ],
)
def test_wrong_usage_is_exit_code_2(words: list[str]) -> None:
    assert runner.invoke(command_tree(), ["pipeline", *words]).exit_code == 2


def test_without_spark_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    monkeypatch.setitem(sys.modules, "pyspark.errors", None)
    result = runner.invoke(command_tree(), ["pipeline", "prove", "x"])
    assert isinstance(result.exception, ConfigError)
    assert str(result.exception).endswith(install_command("spark"))


def test_without_a_cluster_nothing_is_started(tmp_path: object) -> None:
    result = runner.invoke(
        command_tree(),
        ["pipeline", "ingest", "--topic", "t", "--to", "x", "--dir", f"{tmp_path}/none"],
    )
    assert isinstance(result.exception, TidelogError)
    assert "holds no cluster" in str(result.exception)
