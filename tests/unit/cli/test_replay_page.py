"""The page of a simulated run: what is recorded, bounds of its size, scripts, the command."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.support.cli import run

from tidelog.cli.replay_page import joined
from tidelog.sim.job import Job
from tidelog.sim.results import RunResult
from tidelog.sim.story import timeline
from tidelog.sim.story.timeline import MESSAGE, OPERATION, TimelineRecorder

SEED = 17


def recorded(job: Job) -> tuple[TimelineRecorder, RunResult]:
    recorders: list[TimelineRecorder] = []
    result = job.run(lambda made: recorders.append(TimelineRecorder(made)))
    return recorders[0], result


def last_state(document: dict[str, Any]) -> dict[str, Any]:
    """The state after the last step, by the JSON of its key."""
    state: dict[str, Any] = {}
    for step in document["steps"]:
        changes = step[5]
        for key, value in zip(changes[::2], changes[1::2], strict=True):
            name = json.dumps(document["keys"][key])
            if value is None:
                state.pop(name)
            else:
                state[name] = value
    return state


def test_a_recorded_run_is_the_run_itself_and_has_its_messages_and_operations() -> None:
    recorder, result = recorded(Job(SEED))
    assert result.trace_hash == Job(SEED).run().trace_hash
    found = recorder.document(result, "the command")
    times = [step[0] for step in found["steps"]]
    assert times == sorted(times) and found["left_out"] == 0
    kinds = {found["kinds"][step[1]] for step in found["steps"]}
    assert {MESSAGE, OPERATION, "process", "fault", "state", "role", "committed"} <= kinds
    texts = [step[4] for step in found["steps"]]
    assert any(re.fullmatch(r"client\d+ -> broker\d: Produce, \d+ bytes", each) for each in texts)
    assert any(re.match(r"broker\d -> client\d+: response to Fetch", each) for each in texts)
    state = last_state(found)
    brokers = [state[json.dumps(["broker", "", each])] for each in found["brokers"]]
    assert brokers == ["up"] * 3
    replicas = [value for key, value in state.items() if '"replica"' in key]
    assert replicas and all(end >= mark for end, mark in replicas)


def test_a_long_run_loses_its_earliest_messages_first_and_keeps_its_state(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recorder, result = recorded(Job(SEED))
    whole = recorder.document(result, "")
    size_bytes = len(json.dumps(whole, separators=(",", ":")))
    monkeypatch.setattr(timeline, "MAX_DOCUMENT_BYTES", size_bytes * 2 // 3)
    less = recorder.document(result, "")
    assert len(json.dumps(less["steps"], separators=(",", ":"))) <= size_bytes * 2 // 3
    assert less["left_out"] == len(whole["steps"]) - len(less["steps"]) > 0
    assert last_state(less) == last_state(whole)

    def counts(document: dict[str, Any], kind: str) -> int:
        return sum(document["kinds"][step[1]] == kind for step in document["steps"])

    assert counts(less, MESSAGE) < counts(whole, MESSAGE)
    for kind in set(whole["kinds"]) - {MESSAGE}:
        assert counts(less, kind) == counts(whole, kind), kind
    monkeypatch.setattr(timeline, "MAX_DOCUMENT_BYTES", 1)
    least = recorder.document(result, "")
    kept = sum(counts(least, each) for each in (MESSAGE, OPERATION, "copied", "appended"))
    assert kept <= 1, "the last step stays whatever it is"
    assert counts(least, "fault") == counts(whole, "fault") > 0
    assert last_state(least) == last_state(whole)


def test_scripts_are_joined_without_imports_and_in_one_scope() -> None:
    text = joined(['import { a } from "./b.js";\nexport const one = a;\n', "function two() {}\n"])
    assert "import" not in text and "export" not in text
    assert text.index("const one") < text.index("function two")
    with pytest.raises(ValueError, match="define one"):
        joined(["const one = 1;\n", "export function one() {}\n"])
    for bad in ("export { one };\n", 'import "./x.js"\n', "// </script>\n"):
        with pytest.raises(ValueError, match="cannot stand in it"):
            joined([bad])


def test_the_command_writes_two_runs_into_one_file_without_outside_addresses(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.html"
    words = ("sim", "replay", str(SEED), "--html", str(path), "--beside")
    assert run(monkeypatch, *words, "18") == 0
    assert capsys.readouterr().out == f"page: {path}\n"
    text = path.read_text(encoding="utf-8")
    assert path.stat().st_size < 5_000_000 and list(tmp_path.iterdir()) == [path]
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert data is not None
    assert [each["seed"] for each in json.loads(data[1])] == [SEED, 18]
    assert "default-src 'none'; script-src 'sha256-" in text
    assert run(monkeypatch, *words, "within 5 s") == 2, "neither a seed nor a reduction"


@pytest.mark.parametrize(
    "words",
    [
        ("--beside", "18"),
        ("--html", "run.html", "--story"),
        ("--html", "run.html", "--history", "h.jsonl"),
        ("--html", "run.html", "--beside", "some seed"),
    ],
)
def test_options_that_do_not_fit_are_refused_before_the_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(monkeypatch, "sim", "replay", str(SEED), *words) == 2
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_is_not_there_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "absent" / "run.html"
    assert run(monkeypatch, "sim", "replay", str(SEED), "--html", str(path)) == 2
    assert "no file can be written in" in capsys.readouterr().err
