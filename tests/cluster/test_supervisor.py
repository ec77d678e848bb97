"""A broker under systemd reports when it serves requests and when it stops."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tidelog.local.ports import LOOPBACK, free_ports
from tidelog.runtime.blocking import BlockingClient

PATIENCE_S = 60.0


@pytest.mark.parametrize("is_abstract", [False, True])
def test_systemd_hears_of_the_start_and_of_the_stop(tmp_path: Path, is_abstract: bool) -> None:
    name = f"tidelog-test-{os.getpid()}" if is_abstract else str(tmp_path / "notify")
    address = f"{LOOPBACK}:{free_ports(1)[0]}"
    properties = tmp_path / "server.properties"
    properties.write_text(
        f"broker.id=1\nlisteners=PLAINTEXT://{address}\nlog.dirs={tmp_path}/data\n"
        f"metadata.store=embedded:{tmp_path}/metadata\ncluster.events.enable=false\n"
    )
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(f"\0{name}" if is_abstract else name)
        manager.settimeout(PATIENCE_S)
        broker = subprocess.Popen(
            [sys.executable, "-m", "tidelog", "broker", "--config", str(properties)],
            env={**os.environ, "NOTIFY_SOCKET": f"@{name}" if is_abstract else name},
            stderr=subprocess.DEVNULL,
        )
        try:
            assert manager.recv(4096).decode().splitlines() == [
                "READY=1",
                f"STATUS=broker 1 on {address}",
            ]
            with BlockingClient(address) as client:
                client.create_topic("flights", 1, 1)
            broker.send_signal(signal.SIGTERM)
            assert manager.recv(4096).decode().startswith("STOPPING=1\nSTATUS=broker 1 ")
            assert broker.wait(PATIENCE_S) == 0
        finally:
            broker.kill()
            broker.wait()


def test_a_manager_that_is_gone_stops_no_broker(tmp_path: Path) -> None:
    address = f"{LOOPBACK}:{free_ports(1)[0]}"
    properties = tmp_path / "server.properties"
    properties.write_text(
        f"broker.id=1\nlisteners=PLAINTEXT://{address}\nlog.dirs={tmp_path}/data\n"
        f"metadata.store=embedded:{tmp_path}/metadata\ncluster.events.enable=false\n"
    )
    with open(tmp_path / "log", "wb") as log:
        broker = subprocess.Popen(
            [sys.executable, "-m", "tidelog", "broker", "--config", str(properties)],
            env={**os.environ, "NOTIFY_SOCKET": str(tmp_path / "nowhere")},
            stderr=log,
        )
    try:
        with BlockingClient(address, timeout_ms=60_000) as client:
            client.create_topic("flights", 1, 1)
        broker.send_signal(signal.SIGTERM)
        assert broker.wait(PATIENCE_S) == 0
    finally:
        broker.kill()
        broker.wait()
    assert b"nowhere takes no report: " in (tmp_path / "log").read_bytes()
