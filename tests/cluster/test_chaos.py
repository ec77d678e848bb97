"""Seconds of chaos on each store; `make soak` goes on for ten minutes (tests/support/chaos)."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from kazoo.client import KazooClient, KazooState
from tests.cluster.conftest import eventually
from tests.support.chaos import schedule
from tests.support.chaos.__main__ import STORES, kinds_of
from tests.support.chaos.disks import can_mount
from tests.support.chaos.sessions import close_session_of
from tests.support.cluster.zookeepers import require_zookeeper, start_server

ROOT = Path(__file__).resolve().parents[2]
#: Every kind of fault strikes within this time.
SEED, MINUTES = 1, 0.25
#: Several times what a run takes on a busy machine; it has bounds of its own.
LIMIT_S = 900.0
#: Kinds of clients that misbehave beside the faults.
ACTS = 6


@pytest.mark.parametrize(
    "store",
    [pytest.param(name, marks=pytest.mark.soak if name == "zookeeper" else []) for name in STORES],
)
def test_clients_of_three_libraries_outlive_chaos(store: str) -> None:
    if store == "zookeeper":
        require_zookeeper()
    words = ["--minutes", str(MINUTES), "--store", store, "--seed", str(SEED)]
    ended = subprocess.run(
        [sys.executable, "-m", "tests.support.chaos", *words],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert f"faults on {store}, seed {SEED}" in ended.stdout
    for kind in kinds_of(store, small_disks=can_mount()):
        assert f"  {kind}: broker " in ended.stdout
    done = dict(re.findall(r"beside: ([\w -]+): done (\d+) times", ended.stdout))
    assert len(done) == ACTS and all(int(times) >= 1 for times in done.values()), done
    assert ("older store: every broker is back" in ended.stdout) is (store == "embedded")
    if shutil.which("cc") is not None:
        assert "hanging directory: its broker is back" in ended.stdout


def test_full_disks_are_part_of_the_chaos() -> None:
    if not can_mount():
        pytest.skip("full disks are left out of the chaos: small ones need root and unshare")
    assert schedule.FULL in kinds_of("embedded", small_disks=can_mount())


def test_a_session_that_is_closed_from_outside_is_lost_to_its_owner(tmp_path: Path) -> None:
    """What the chaos does to a broker that runs: the fault is what it says."""
    server = start_server(tmp_path / "zookeeper")
    owner = KazooClient(hosts=server.address, timeout=10.0)
    states: list[str] = []
    owner.add_listener(states.append)
    owner.start()
    try:
        owner.create("/registered", b"", ephemeral=True)
        assert close_session_of(server.address, "/registered") != ""
        eventually(lambda: KazooState.LOST in states, "the loss of the session")
        eventually(lambda: owner.connected, "a new session")
        assert owner.exists("/registered") is None
    finally:
        owner.stop()
        owner.close()
        server.kill()
