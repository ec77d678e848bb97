"""Which Pythons are found, which two are chosen, and what of the lock file they get."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest
from tests.pythons.other_pythons import LOCK, NEEDED, Python, candidates, choose, locked, probed


def pythons(*versions: tuple[int, int, int]) -> list[Python]:
    return [Python(f"/python{'.'.join(map(str, version))}", version) for version in versions]


def test_the_oldest_and_the_newest_besides_the_running_one_are_chosen() -> None:
    found = pythons((3, 13, 0), (3, 12, 1), (3, 11, 7), (3, 14, 2), (3, 12, 9))
    chosen = choose(found, (3, 11))
    assert [str(chosen[which]) for which in ("oldest", "newest")] == ["3.12.9", "3.14.2"]
    assert str(choose(found, (3, 14))["oldest"]) == "3.11.7"


def test_a_missing_one_has_its_reason() -> None:
    none = "this machine has no Python from 3.11 on besides 3.11"
    assert choose(pythons((3, 11, 2)), (3, 11)) == {"oldest": none, "newest": none}
    [only] = pythons((3, 13, 0))
    assert choose([only], (3, 11)) == {
        "oldest": only,
        "newest": "besides 3.11, this machine has Python 3.13.0 alone: it is the oldest",
    }


def test_pythons_are_looked_for_in_path_at_named_paths_and_where_several_are(
    tmp_path: Path,
) -> None:
    places = ("bin", ".pyenv/versions/3.13.0/bin", "opt/python3.14/bin")
    for place in places:
        (tmp_path / place).mkdir(parents=True)
        for name in ("python3.10", "python3.13", "python3.13-config", "python3"):
            (tmp_path / place / name).touch()
    variables = {"PATH": f"{tmp_path}/bin{os.pathsep}", "TIDELOG_TEST_PYTHONS": "/own/python"}
    found = candidates(variables, tmp_path, tmp_path)
    assert found == [Path("/own/python"), *(tmp_path / each / "python3.13" for each in places)]


def test_a_probe_tells_a_python_from_what_only_has_its_name(tmp_path: Path) -> None:
    here = probed(Path(sys.executable))
    assert here is not None and here.version == sys.version_info[:3]
    for number, text in enumerate(("#!/bin/sh\nexit 127\n", "#!/bin/sh\necho '[]'\n", "")):
        path = tmp_path / str(number)
        path.write_text(text)
        path.chmod(0o755)
        assert probed(path) is None, text
    assert probed(tmp_path / "none") is None


def test_of_the_lock_file_come_what_is_needed_and_what_that_needs() -> None:
    lock = LOCK.read_text(encoding="utf-8")
    part = locked(lock, ["hatchling"])
    assert re.findall(r"^([a-z-]+)==", part, re.MULTILINE) == [
        "hatchling",
        "packaging",
        "pathspec",
        "pluggy",
        "tomlkit",
        "trove-classifiers",
    ]
    assert part.count("--hash=sha256:") >= 12
    few = locked(lock, NEEDED)
    assert "\npyspark==" not in few and len(few) < len(lock) / 4
    with pytest.raises(AssertionError, match="not locked"):
        locked(lock, ["no-such-package"])
