"""Documents as their readers use them: files to save, commands to type into a terminal."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 180.0
_BLOCK = re.compile(r"^```(\w+)(?: (\w+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"(?:#|//) (\w+\.\w+)\n")


@dataclass(frozen=True, slots=True)
class Section:
    """A heading, its files by name, its commands block by block; those with a word by that."""

    title: str
    files: dict[str, str]
    commands: list[str]
    named: dict[str, str]


def sections(document: Path) -> dict[str, Section]:
    """What a document has under each heading of the second level."""
    found = {}
    for part in document.read_text(encoding="utf-8").split("\n## ")[1:]:
        title, _, text = part.partition("\n")
        section = found[title] = Section(title, {}, [], {})
        for language, word, body in _BLOCK.findall(text):
            name = _FILE.match(body)
            if language == "sh" and word:
                section.named[word] = body
            elif language == "sh":
                section.commands.append(body)
            elif name is not None:
                section.files[name[1]] = body[name.end() :]
    return found


class Terminal:
    """A shell in a directory, with this environment's programs before all others."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self.environment = {**os.environ, "PATH": path}

    def save(self, files: Mapping[str, str]) -> None:
        """What a reader copies out of the document."""
        for name, text in files.items():
            (self.directory / name).write_text(text, encoding="utf-8")

    def start(self, commands: str) -> subprocess.Popen[str]:
        """Begin a block of commands; any that fails ends it."""
        return subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", commands],
            cwd=self.directory,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, commands: str) -> str:
        """What a block of commands wrote to standard output; it must succeed."""
        running = self.start(commands)
        try:
            output, errors = running.communicate(timeout=PATIENCE_S)
        finally:
            end(running)
        assert running.returncode == 0, f"{commands}{output}{errors}"
        return output

    def run_exporting(self, commands: str, variable: str) -> None:
        """Run commands, and keep a variable that they set for those that come."""
        output = self.run(f'{commands}printf "\\n%s" "${variable}"\n')
        value = output.rpartition("\n")[2]
        assert value, f"{variable} is empty after:\n{commands}{output}"
        self.environment[variable] = value


def kill_all_of(running: subprocess.Popen[str]) -> None:
    """SIGKILL to a block of commands and all that it started in the foreground."""
    os.killpg(running.pid, signal.SIGKILL)


def end(running: subprocess.Popen[str]) -> None:
    """A block of commands that did not end goes with all that it started in the foreground."""
    if running.poll() is None:
        kill_all_of(running)
        running.wait()
    for stream in (running.stdout, running.stderr):
        if stream is not None:
            stream.close()
