"""Without ZooKeeper's client, an extra, brokers and commands name what to install; others run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tidelog.core.errors import ConfigError
from tidelog.local import LocalCluster, LocalClusterError
from tidelog.runtime.extras import install_command
from tidelog.runtime.stores.zookeeper_servers import require_client

SOURCES = Path(__file__).resolve().parents[3] / "src"
STORE = "zookeeper://127.0.0.1:1/tidelog"
#: A process whose imports find no kazoo; its arguments are those of the program.
WITHOUT_CLIENT = """
import importlib.abc, sys

class Refusal(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("kazoo", "puresasl"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Refusal())
"""
BROKER = "from tidelog.runtime.main import main; sys.exit(main(sys.argv[1:]))"
COMMAND = "from tidelog.cli import main; main()"
MISSING = f"needs ZooKeeper's client, kazoo, which is not installed: {install_command('zookeeper')}"


def run_without_client(program: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WITHOUT_CLIENT + program, *words],
        env={**os.environ, "PYTHONPATH": str(SOURCES)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_broker_names_what_to_install(tmp_path: Path) -> None:
    config = tmp_path / "server.properties"
    config.write_text(f"broker.id=1\nmetadata.store={STORE}\nlog.dirs={tmp_path}/log\n")
    ended = run_without_client(BROKER, "--config", str(config))
    assert ended.returncode == 1
    # The log is written by a thread of its own: its lines may come behind.
    said = f"tidelog: broker 1 cannot run: metadata.store={STORE} {MISSING}"
    assert said in ended.stderr.splitlines()


@pytest.mark.parametrize(
    "words", [("store", "create", STORE), ("store", "export", STORE, "metadata.jsonl")]
)
def test_a_command_names_what_to_install(tmp_path: Path, words: tuple[str, ...]) -> None:
    ended = run_without_client(f"import os; os.chdir({str(tmp_path)!r}); {COMMAND}", *words)
    assert ended.returncode == 1
    assert f"metadata.store={STORE} {MISSING}" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_commands_on_an_embedded_store_need_no_client(tmp_path: Path) -> None:
    ended = run_without_client(COMMAND, "store", "export", f"embedded:{tmp_path}/none", "file")
    assert ended.returncode == 1
    assert "there is no embedded store in" in ended.stderr
    assert "kazoo" not in ended.stderr


@pytest.mark.parametrize("store", ["zookeeper", STORE])
def test_a_local_cluster_is_refused_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, store: str
) -> None:
    monkeypatch.setitem(sys.modules, "kazoo", None)
    with (
        pytest.raises(LocalClusterError) as raised,
        LocalCluster(str(tmp_path / "cluster"), store=store),
    ):
        pass
    assert str(raised.value) == f"store {store} {MISSING}"
    assert not (tmp_path / "cluster").exists()


def test_an_installed_client_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    require_client(f"metadata.store={STORE}")
    monkeypatch.setitem(sys.modules, "kazoo", None)
    with pytest.raises(ConfigError):
        require_client(f"metadata.store={STORE}")
