"""`tidelog history check`: what it prints, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.cli import run

SENT = {"process": "p", "kind": "send", "begin": 10, "end": 20, "outcome": "ok"}
POLLED = {"process": "c", "kind": "poll", "begin": 30, "end": 40, "outcome": "ok"}


def history(directory: Path, *polled: list[Any], idempotent: bool = True) -> str:
    path = directory / "history.jsonl"
    sent = {**SENT, "idempotent": idempotent, "records": {"t-0": [[0, "a"], [1, "b"]]}}
    lines = [sent, {**POLLED, "records": {"t-0": list(polled)}}]
    path.write_text("\n".join(json.dumps(each) for each in lines))
    return str(path)


class Check:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch, self._capsys = monkeypatch, capsys

    def __call__(self, *words: str, code: int = 0) -> str:
        assert run(self._monkeypatch, "history", "check", *words) == code
        captured = self._capsys.readouterr()
        self.err = captured.err
        return captured.out


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Check:
    return Check(monkeypatch, capsys)


def test_a_sound_history(tmp_path: Path, check: Check) -> None:
    told = check(history(tmp_path, [0, "a"], [1, "b"]))
    assert told.startswith("2 operations: 2 records sent, 2 acknowledged, 2 polled")
    assert told.endswith("nothing is anomalous\n")


def test_an_anomaly_is_told_with_its_operations(tmp_path: Path, check: Check) -> None:
    told = check(history(tmp_path, [1, "b"]), code=1)
    assert "NOT ALLOWED  lost-write: t-0: 'a' was acknowledged at offset 0 and never" in told
    assert '    line 1: p send t-0[0="a" 1="b"]: ok, acks=-1, idempotent, 0.000000 s to' in told
    assert '    line 2: c poll t-0[1="b"]: ok' in told
    assert "1 anomalies that are not allowed" in told


def test_without_a_final_read_nothing_is_unseen(tmp_path: Path, check: Check) -> None:
    path = history(tmp_path, [0, "a"])
    assert "unseen" in check(path, code=1)
    assert "nothing is anomalous" in check(path, "--no-final-read")


def test_what_is_allowed_is_counted_and_told_on_demand(tmp_path: Path, check: Check) -> None:
    path = history(tmp_path, [0, "a"], [1, "b"], [2, "b"], idempotent=False)
    told = check(path)
    assert "duplicate" in told and "without idempotence" in told
    assert told.endswith("nothing that is not allowed\n")
    assert "line 2" not in told
    assert "allowed  duplicate: t-0: 'b' was polled at offset 1" in check(path, "--every")


def test_of_each_name_the_first_ones_are_told(tmp_path: Path, check: Check) -> None:
    path = history(tmp_path, *([number, f"value {number}"] for number in range(10, 20)))
    told = check(path, code=1)
    assert told.count("NOT ALLOWED  never-sent") == 3
    assert check(path, "--every", code=1).count("NOT ALLOWED  never-sent") == 10


def test_the_document_for_programs(tmp_path: Path, check: Check) -> None:
    path = history(tmp_path, [1, "b"])
    document = json.loads(check(path, "-o", "json", code=1))
    assert document["sound"] is False
    assert document["forbidden"] == {"lost-write": 1}
    assert (document["operations"], document["sent_records"]) == (2, 2)
    (anomaly,) = document["anomalies"]
    assert (anomaly["name"], anomaly["is_allowed"], anomaly["partition"]) == (
        "lost-write", False, "t-0",
    )  # fmt: skip
    assert [each["line"] for each in anomaly["operations"]] == [1, 2]
    assert anomaly["operations"][0]["records"] == {"t-0": [[0, "a"], [1, "b"]]}


def test_names_of_others_do_nothing_to_the_terminal(tmp_path: Path, check: Check) -> None:
    path = history(tmp_path, [0, "a"], [1, "b"], [2, "\x1b[2Jboo"])
    assert "\x1b" not in check(path, code=1)


def test_a_malformed_line_is_one_message(tmp_path: Path, check: Check) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text('{"process": "p", "kind": "send"}\n')
    check(str(path), code=1)
    assert check.err == (
        f"tidelog: {path}: line 1: a send needs the field begin and end and outcome and records\n"
    )


def test_a_file_that_is_not_there(tmp_path: Path, check: Check) -> None:
    check(str(tmp_path / "none"), code=1)
    assert "No such file" in check.err
