"""Any part of the bench in turns with another checkout: its figures by row and column."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench import against

HERE = """2 cores

### Start (1 runs)

| of | tidelog | aim |
|---|---|---|
| last command, s | 6.10 (6.10-6.10) | <= 4 |
| speed, MiB/s | 1,057 | |
| only here | 3 | |
| none | - | |
"""
THERE = HERE.replace("6.10", "4.88").replace("1,057", "811").replace("only here", "only there")


def test_figures_are_found_by_row_and_column_and_aims_are_none() -> None:
    assert against.figures(HERE) == {
        ("last command, s", "tidelog"): 6.1,
        ("speed, MiB/s", "tidelog"): 1057.0,
        ("only here", "tidelog"): 3.0,
    }
    assert against.figures(
        "| a | b |\n|---|---|\n| x | 2.5 s |\n\n| a | c |\n|---|---|\n| x | 7 |\n"
    ) == {
        ("x", "b"): 2.5,
        ("x", "c"): 7.0,
    }


def test_rows_of_one_first_cell_are_named_by_their_second_cell_too() -> None:
    head = "| | when | PSS, MiB |\n|---|---|---|\n"
    assert against.figures(f"{head}| ours | started | 102 |\n| ours | 10 s later | 97 |\n") == {
        ("ours, started", "PSS, MiB"): 102.0,
        ("ours, 10 s later", "PSS, MiB"): 97.0,
    }
    assert against.figures(f"{head}| ours | 10 s later | 97 |\n") == {
        ("ours", "when"): 10.0,
        ("ours", "PSS, MiB"): 97.0,
    }


def test_both_sides_run_in_turns_and_rows_of_one_side_are_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    turns: list[str] = []

    def turn(checkout: str, part: str, options: list[str]) -> str:
        assert part == "controller" and options == ["--store", "embedded"]
        turns.append(checkout)
        return THERE if checkout == str(tmp_path) else HERE

    (tmp_path / "bench").mkdir()
    (tmp_path / "bench" / "__main__.py").touch()
    monkeypatch.setattr(against, "_turn", turn)
    monkeypatch.setattr(against, "check_walks", lambda checkout: (None, None))
    text, unpaired = against.run("controller", 4, ["--store", "embedded"], str(tmp_path))
    assert "| last command, s | 6.10 (6.10-6.10) | 4.88 (4.88-4.88) | +25.0 % |" in text
    assert "| speed, MiB/s | 1,057 (1,057-1,057) | 811 (811-811) | +30.3 % |" in text
    assert "only here (tidelog); only there (tidelog)" in unpaired
    assert len(turns) == 8 and turns.count(str(tmp_path)) == 4
    assert turns[0] == turns[3] and turns[1] == turns[2], "no side always comes first"


def test_a_turn_runs_the_bench_of_its_checkout_and_a_failed_one_says_why(tmp_path: Path) -> None:
    (tmp_path / "bench").mkdir()
    (tmp_path / "src").mkdir()
    (tmp_path / "bench" / "__main__.py").write_text(
        "import os, sys\n"
        "assert os.environ['PYTHONPATH'] == 'src' or os.environ['PYTHONPATH'].endswith('/src')\n"
        "print(sys.argv[1:]) if 'memory' in sys.argv else sys.exit('no such part')\n"
    )
    text = against._turn(str(tmp_path), "memory", ["--mib", "8"])
    assert text.strip() == "['memory', '--rounds', '1', '--mib', '8']"
    with pytest.raises(SystemExit, match="failed in .*no such part"):
        against._turn(str(tmp_path), "walk", [])


def test_a_directory_without_a_bench_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="no checkout of tidelog"):
        against.run("memory", 1, [], str(tmp_path))
