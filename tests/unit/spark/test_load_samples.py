"""Samples of load: rates between them, and the files that keep them."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from tidelog.spark.pipelines.plan.cluster_model import GoalError
from tidelog.spark.pipelines.plan.load_samples import LoadSample, kept_samples, rates


def sample(time_s: float, size: int, start: int, end: int) -> LoadSample:
    return LoadSample(int(time_s * 1000), "t", 0, size, start, end)


def test_a_log_that_only_grew_has_an_exact_rate() -> None:
    found = rates([sample(10, 3_000, 0, 30), sample(0, 1_000, 0, 10), sample(20, 3_000, 0, 30)])
    assert found == [200.0, 0.0]


def test_what_retention_removed_is_estimated_from_records() -> None:
    # 30 new records; the log holds 40 records in 4,000 bytes.
    assert rates([sample(0, 5_000, 0, 50), sample(10, 4_000, 40, 80)]) == [300.0]


def test_a_recreated_partition_and_equal_times_have_no_rate() -> None:
    assert rates([sample(0, 5_000, 0, 50), sample(10, 100, 0, 1)]) == []
    assert rates([sample(5, 1, 0, 1), sample(5, 2, 0, 2)]) == []
    assert rates([sample(5, 1, 0, 1)]) == []


def test_an_emptied_log_has_the_rate_that_its_size_shows() -> None:
    assert rates([sample(0, 5_000, 0, 50), sample(10, 0, 60, 60)]) == [0.0]


def line(each: LoadSample) -> str:
    return json.dumps(asdict(each)) + "\n"


def test_samples_of_several_runs_are_read_back(tmp_path: Path) -> None:
    first, second = sample(1, 2, 0, 3), sample(4, 5, 0, 6)
    (tmp_path / "samples-1.jsonl").write_text(line(first) + line(second)[:20])  # was stopped
    (tmp_path / "samples-2.jsonl").write_text(line(second))
    (tmp_path / "notes.txt").write_text("no samples")
    assert list(kept_samples(str(tmp_path))) == [first, second]
    assert list(kept_samples(str(tmp_path / "nothing"))) == []


@pytest.mark.parametrize("bad", ["no json\n", "{}\n", '{"time_ms": "x"}\n', "[1]\n"])
def test_a_line_that_is_no_sample_is_named(tmp_path: Path, bad: str) -> None:
    (tmp_path / "s.jsonl").write_text(line(sample(1, 2, 0, 3)) + bad)
    with pytest.raises(GoalError, match=r"s\.jsonl, line 2 is no sample"):
        list(kept_samples(str(tmp_path)))
