"""Which compiled modules an installation lacks, and what it says of them."""

from __future__ import annotations

from pathlib import Path

import hatch_build
import pytest
from tests.support.cli import run

from tidelog.runtime import extensions


def test_the_table_has_what_the_build_compiles() -> None:
    built = [each.relative_to("src/tidelog").with_suffix("") for each in hatch_build.WITHOUT]
    assert [each.as_posix() for each in built] == list(extensions.SLOWER_WITHOUT)


def test_modules_without_a_file_are_missing(tmp_path: Path) -> None:
    assert extensions.missing(str(tmp_path)) == list(extensions.SLOWER_WITHOUT)
    (tmp_path / "records").mkdir()
    (tmp_path / "records" / f"_walk{hatch_build.SUFFIX}").touch()
    (tmp_path / "records" / "_rows.c").touch()
    assert extensions.missing(str(tmp_path)) == ["spark/_rows", "spark/segments/_scan"]


def test_the_sentence_says_what_is_slower_and_what_helps() -> None:
    assert extensions.missing_text([]) == ""
    said = extensions.missing_text([extensions.WALK])
    assert said == (
        "no compiled records/_walk: producing costs a broker about 2 us more for each record;"
        " `pip install` from tidelog's source compiles them where a C compiler is installed"
    )


@pytest.mark.parametrize(("absent", "words"), [([], 0), (["spark/_rows"], 1)])
def test_the_version_is_one_line_of_output_and_missing_modules_one_of_errors(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    absent: list[str],
    words: int,
) -> None:
    monkeypatch.setattr(extensions, "missing", lambda: absent)
    assert run(monkeypatch, "--version") == 0
    output, errors = capsys.readouterr()
    assert output.startswith("tidelog ") and output.count("\n") == 1
    assert errors.count("third of the speed") == errors.count("\n") == words
