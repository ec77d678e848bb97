"""Other Pythons of this machine, and environments in which they run parts of the tests.

`others` looks in the directories of PATH, in the usual places of several versions, and at the paths
in TIDELOG_TEST_PYTHONS (separated as in PATH). An environment lies in `.venv-VERSION-few` of the
checkout and holds what brokers and the simulator's tests need, by the hashes of the lock file.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LOCK = ROOT / "requirements-test.lock"
VARIABLE = "TIDELOG_TEST_PYTHONS"
#: What `requires-python` of pyproject.toml says.
FIRST = (3, 11)
#: What brokers, the command line and tests import, and what builds the project.
NEEDED = ("crc32c", "cramjam", "rich", "typer", "pytest", "hypothesis", "hatchling", "editables")
#: Where several versions are installed side by side, below the home directory or the root.
_HOMES = (".pyenv/versions/*/bin", ".local/share/uv/python/*/bin")
_PLACES = ("opt/python*/bin", "usr/local/python*/bin", "usr/local/bin", "usr/bin")
_PROBE_S = 30
_INSTALL_S = 300
_PROBE = """
import ensurepip, json, sys, venv
print(json.dumps([sys.implementation.name, *sys.version_info[:4]]))
"""
_REQUIREMENT = re.compile(r"^([a-z0-9][a-z0-9.-]*)==", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Python:
    """An interpreter that can make environments."""

    path: str
    version: tuple[int, int, int]

    @property
    def minor(self) -> tuple[int, int]:
        return self.version[:2]

    def __str__(self) -> str:
        return ".".join(map(str, self.version))


def candidates(environment: Mapping[str, str], home: Path, root: Path) -> list[Path]:
    """Return files that may be interpreters, those that are named first."""
    named = [Path(each) for each in environment.get(VARIABLE, "").split(os.pathsep) if each]
    folders = [Path(each) for each in environment.get("PATH", "").split(os.pathsep) if each]
    folders += [each for place in _HOMES for each in sorted(home.glob(place))]
    folders += [each for place in _PLACES for each in sorted(root.glob(place))]
    found = [path for each in folders for path in sorted(each.glob("python3.*")) if _is_named(path)]
    return list(dict.fromkeys([*named, *found]))


def _is_named(path: Path) -> bool:
    match = re.fullmatch(r"python3\.(\d+)", path.name)
    return match is not None and (3, int(match[1])) >= FIRST


def probed(path: Path) -> Python | None:
    """Return the interpreter at a path; None if it is none that the project supports."""
    try:
        done = subprocess.run(
            [str(path), "-I", "-c", _PROBE],
            capture_output=True,
            text=True,
            timeout=_PROBE_S,
            check=False,
        )
        implementation, *version, level = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    if implementation != "cpython" or level != "final":
        return None
    return Python(str(path), tuple(version)) if tuple(version[:2]) >= FIRST else None


def choose(found: Iterable[Python], running: tuple[int, int]) -> dict[str, Python | str]:
    """Return the oldest and the newest besides the running one, or why there is none."""
    newest_of: dict[tuple[int, int], Python] = {}
    for python in found:
        known = newest_of.get(python.minor)
        if python.minor != running and (known is None or known.version < python.version):
            newest_of[python.minor] = python
    each = [newest_of[minor] for minor in sorted(newest_of)]
    here = ".".join(map(str, running))
    if not each:
        none = f"this machine has no Python from {FIRST[0]}.{FIRST[1]} on besides {here}"
        return {"oldest": none, "newest": none}
    if len(each) == 1:
        only = f"besides {here}, this machine has Python {each[0]} alone: it is the oldest"
        return {"oldest": each[0], "newest": only}
    return {"oldest": each[0], "newest": each[-1]}


@cache
def others() -> dict[str, Python | str]:
    """Return the oldest and the newest Python besides the running one, or why there is none."""
    paths = candidates(os.environ, Path.home(), Path("/"))
    found = [python for path in paths if (python := probed(path)) is not None]
    return choose(found, sys.version_info[:2])


def locked(lock: str, names: Iterable[str]) -> str:
    """Return the part of a lock file that holds these packages and all that they need."""
    pieces = {}
    starts = [*_REQUIREMENT.finditer(lock)]
    for match, end in zip(starts, [*(each.start() for each in starts[1:]), len(lock)], strict=True):
        pieces[match[1]] = lock[match.start() : end]
    needed_by = {
        name: re.findall(r"^ +#(?: via)? +([a-z0-9.-]+)$", piece, re.MULTILINE)
        for name, piece in pieces.items()
    }
    wanted = set(names)
    assert wanted <= pieces.keys(), f"not locked: {sorted(wanted - pieces.keys())}"
    while more := {name for name in pieces.keys() - wanted if wanted & set(needed_by[name])}:
        wanted |= more
    return "".join(piece for name, piece in pieces.items() if name in wanted)


def environment_of(python: Python) -> Path:
    """Return the interpreter of an environment with what is `NEEDED`, made if it is not there."""
    requirements = locked(LOCK.read_text(encoding="utf-8"), NEEDED)
    place = ROOT / f".venv-{python}-few"
    executable = place / "bin" / "python"
    ready = place / f".ready-{sha256(requirements.encode()).hexdigest()[:16]}"
    if not ready.exists():
        run([python.path, "-m", "venv", "--clear", str(place)], _INSTALL_S)
        file = place / "requirements.txt"
        file.write_text(requirements, encoding="utf-8")
        pip = [str(executable), "-m", "pip", "--disable-pip-version-check", "install", "-q"]
        options = ["--require-hashes", "--no-deps", "--only-binary", ":all:", "-r", str(file)]
        run([*pip, *options], _INSTALL_S)
        ready.touch()
    run([str(executable), "hatch_build.py"], _INSTALL_S)
    return executable


def run(words: list[str], limit_s: float, **variables: str) -> str:
    """Return what a command in the checkout prints; an error shows all of it."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", **variables}
    done = subprocess.run(
        words,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=limit_s,
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(words)}: exit code {done.returncode}\n{done.stdout}"
    return done.stdout
