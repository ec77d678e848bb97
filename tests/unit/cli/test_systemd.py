"""The unit that `tidelog broker --print-systemd` prints, as systemd reads it."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tidelog.cli.systemd import unit
from tidelog.core.config import BrokerConfig


def config(**keys: str) -> BrokerConfig:
    given = {
        "broker.id": "7",
        "log.dirs": "/srv/one,/srv/two",
        "metadata.store": "zookeeper://zk1:2181/tidelog",
    }
    return BrokerConfig.from_properties(given | {k.replace("_", "."): v for k, v in keys.items()})


def assignments(text: str) -> dict[str, str]:
    """The keys of a unit, none of which it has twice."""
    lines = [line for line in text.splitlines() if line and line[0] not in "#["]
    found = dict(line.split("=", 1) for line in lines)
    assert len(found) == len(lines)
    return found


def test_the_broker_may_write_to_its_directories_only() -> None:
    store = config(metadata_store="embedded:/srv/store")
    found = assignments(unit(store, Path("/etc/t.properties"), (), "kafka"))
    assert found["ReadWritePaths"] == "-/srv/one -/srv/two -/srv/store"
    assert (found["User"], found["ProtectSystem"]) == ("kafka", "strict")
    found = assignments(unit(config(), Path("/etc/t.properties"), (), "kafka"))
    assert found["ReadWritePaths"] == "-/srv/one -/srv/two"


def test_a_broker_in_a_home_may_read_homes() -> None:
    hidden = "ProtectHome" in unit(config(), Path("/etc/t.properties"), (), "kafka")
    assert hidden is not sys.executable.startswith((("/home" + "/"), "/root/"))
    assert "ProtectHome" not in unit(config(), Path("/root/t.properties"), (), "kafka")
    at_home = config(log_dirs="/root/data")
    assert "ProtectHome" not in unit(at_home, Path("/etc/t.properties"), (), "kafka")


def test_a_path_is_absolute_and_no_character_of_it_is_systemds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name = 'one "50 %" $HOME.properties'
    found = assignments(unit(config(), Path(name), ["client.id=$a"], "kafka"))
    words = shlex.split(found["ExecStart"])
    assert words[0] == sys.executable and words[1:4] == ["-m", "tidelog", "broker"]
    seen = [word.replace("%%", "%").replace("$$", "$") for word in words[4:]]
    assert seen == ["--config", str(tmp_path / name), "--override", "client.id=$a"]
    assert "50 %%" in found["ExecStart"] and "$$HOME" in found["ExecStart"]


def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    path = tmp_path / "tidelog-7.service"
    path.write_text(unit(config(), tmp_path / "a b.properties", ["num.partitions=3"], "root"))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--recursive-errors=no", str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
