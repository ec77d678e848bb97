"""Lines of a broker's log: Kafka's pattern and names, JSON, rotation by size and time."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tidelog.runtime.log_files import NEVER, LogFile, Rotation
from tidelog.runtime.log_formats import FORMATS

DAY_S = 86_400


def record(level: int, text: str, name: str = "kafka.server") -> logging.LogRecord:
    made = logging.LogRecord(name, level, __file__, 1, "%s%s", ("[broker 3] ", text), None)
    made.created, made.msecs = 1_700_000_000.25, 250.0
    return made


class TestForms:
    @pytest.mark.parametrize(
        ("level", "name"),
        [(50, "FATAL"), (40, "ERROR"), (30, "WARN"), (20, "INFO"), (10, "DEBUG"), (5, "TRACE")],
    )
    def test_levels_have_kafkas_names(self, level: int, name: str) -> None:
        text = FORMATS["text"]().format(record(level, "a line"))
        assert text.endswith(f",250] {name} [broker 3] a line (kafka.server)")
        assert json.loads(FORMATS["json"]().format(record(level, "a line")))["level"] == name

    def test_json_is_one_object_in_one_line(self) -> None:
        line = FORMATS["json"]().format(record(logging.INFO, 'two\nlines, "quoted", é'))
        assert "\n" not in line
        assert json.loads(line) == {
            "time": "2023-11-14T22:13:20.250Z",
            "level": "INFO",
            "logger": "kafka.server",
            "broker": 3,
            "message": 'two\nlines, "quoted", é',
        }

    @pytest.mark.parametrize("broker", [None, 8])
    def test_a_line_of_the_process_has_its_broker(self, broker: int | None) -> None:
        made = logging.LogRecord("kafka.server", 20, __file__, 1, "tidelog", None, None)
        assert json.loads(FORMATS["json"](broker).format(made))["broker"] == broker


class TestRotation:
    @pytest.mark.parametrize(
        ("rotation", "size", "last", "now", "due"),
        [
            (NEVER, 10**9, 0.0, 10.0 * DAY_S, False),
            (Rotation(max_bytes=100), 99, 0.0, 0.0, False),
            (Rotation(max_bytes=100), 100, 0.0, 0.0, True),
            (Rotation(max_hours=24), 1, 1.5 * DAY_S, 1.9 * DAY_S, False),
            (Rotation(max_hours=24), 1, 1.9 * DAY_S, 2.0 * DAY_S, True),
            (Rotation(max_hours=24), 0, 1.9 * DAY_S, 2.0 * DAY_S, False),
            (Rotation(max_hours=1), 1, 0.0, 3_599.0, False),
        ],
    )
    def test_size_and_time(
        self, rotation: Rotation, size: int, last: float, now: float, due: bool
    ) -> None:
        assert rotation.is_due(size, last, now) is due

    def test_files_shift_and_the_oldest_goes(self, tmp_path: Path) -> None:
        path = tmp_path / "broker.log"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            file = LogFile.of(descriptor)
            assert file is not None
            for number in range(4):
                os.write(descriptor, f"{number}".encode())
                assert file.state()[0] == 1
                file.rotate(files=2)
        finally:
            os.close(descriptor)
        found = {each.name: each.read_text() for each in tmp_path.iterdir()}
        assert found == {"broker.log": "", "broker.log.1": "3", "broker.log.2": "2"}


PROGRAM = """
import logging
from tidelog.runtime.log_files import Rotation
from tidelog.runtime.logging import LogLevels, LogTracer, start_logging

thread = start_logging("json", Rotation(max_bytes=200, files=3))
tracer, levels = LogTracer(7), LogLevels()
tracer.log("request_log", logging.DEBUG, "not wanted yet")
levels.set_level("kafka.request.logger", logging.DEBUG)
tracer.log("request_log", logging.DEBUG, "wanted")
tracer.event("isr", leader=1)
levels.set_level("state.change.logger", logging.DEBUG)
tracer.event("isr", leader=2)
levels.set_level("root", logging.ERROR)
tracer.log("server", logging.WARNING, "below root")
tracer.log("controller", logging.ERROR, "at root")
logging.getLogger("elsewhere").error("a library's line")
print(sorted(levels.levels()))
thread.stop()
"""


def test_a_process_logs_what_its_levels_say_into_files_that_rotate(tmp_path: Path) -> None:
    path = tmp_path / "broker.log"
    with path.open("ab") as log:
        ended = subprocess.run(
            [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, stderr=log, check=True
        )
    files = [path, *sorted(tmp_path.glob("broker.log.*"))]
    assert len(files) > 1, "the log was rotated"
    lines = [line for each in reversed(files) for line in each.read_text().splitlines()]
    assert lines.pop(next(i for i, it in enumerate(lines) if it == "a library's line"))
    found = [json.loads(line) for line in lines]
    assert [(it["logger"], it["level"], it["message"]) for it in found if it["broker"] == 7] == [
        ("kafka.request.logger", "DEBUG", "wanted"),
        ("state.change.logger", "DEBUG", "isr leader=2"),
        ("kafka.controller", "ERROR", "at root"),
    ]
    rotated = [it["message"] for it in found if it["broker"] is None]
    assert rotated and set(rotated) == {f"log rotated: earlier lines are in {path}.1"}
    for name in (b"kafka.log.LogCleaner", b"kafka.controller", b"state.change.logger", b"'root'"):
        assert name in ended.stdout
    assert b"elsewhere" not in ended.stdout
