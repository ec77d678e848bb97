"""The guide's example for logrotate, with its script run as logrotate runs it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tests.cluster.conftest import eventually, tidelog
from tests.cluster.test_signals import PATIENCE_S

from tidelog.local import LocalCluster

GUIDE = Path(__file__).resolve().parents[2] / "docs/guide/operating.md"


def is_reopened(path: Path) -> bool:
    return path.exists() and "log reopened" in path.read_text()


def test_the_script_after_rotation_makes_every_broker_write_to_its_new_file(
    tmp_path: Path,
) -> None:
    """logrotate passes the script to `sh -c`, whose command line so contains its pattern."""
    example = re.search(
        r"^```\n(/srv/\S+) \{.*postrotate\n(.*?)endscript", GUIDE.read_text(), re.S | re.M
    )
    assert example is not None
    pattern, script = (
        text.replace("/srv/tidelog/", f"{tmp_path}/cluster/") for text in example.groups()
    )
    with LocalCluster(str(tmp_path / "cluster"), 2, end_with_program=True) as cluster:
        paths = [Path(place.log_path) for place in cluster.places().values()]
        assert sorted(tmp_path.glob(pattern.removeprefix(f"{tmp_path}/"))) == sorted(paths)
        before = [path.stat().st_ino for path in paths]
        for path in paths:
            path.rename(f"{path}.1")
        ended = subprocess.run(
            ["sh", "-c", script, "logrotate_script", pattern], timeout=PATIENCE_S, check=False
        )
        assert ended.returncode == 0, "logrotate would report an error"
        eventually(lambda: all(map(is_reopened, paths)), f"new files {paths}")
        assert tidelog("topics", "create", "flights", "--dir", cluster.directory).returncode == 0
    for path, inode in zip(paths, before, strict=True):
        rotated = Path(f"{path}.1")
        assert rotated.stat().st_ino == inode
        assert "started on" in rotated.read_text() and "stopped" not in rotated.read_text()
        assert re.search(r"broker \d stopped", path.read_text())


def test_the_script_reports_no_error_where_no_broker_runs(tmp_path: Path) -> None:
    found = re.search(r"postrotate\n(.*?)endscript", GUIDE.read_text(), re.S)
    assert found is not None
    script = found[1].replace("/srv/tidelog/", f"{tmp_path}/")
    ended = subprocess.run(["sh", "-c", script], timeout=PATIENCE_S, check=False)
    assert ended.returncode == 0
