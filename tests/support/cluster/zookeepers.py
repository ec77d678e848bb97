"""ZooKeeper servers that tests start themselves; skips where there is no Java."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.local import LocalClusterError
from tidelog.local.java import find_java
from tidelog.local.ports import free_ports
from tidelog.local.zookeeper import EnsembleServer, LocalZookeeper, find_jars

#: Short sessions, so that tests see their ends; nothing is kept that a crash could take.
SETTINGS = {"tickTime": "100", "minSessionTimeout": "200"}
PROPERTIES = {"zookeeper.forceSync": "no", "zookeeper.preAllocSize": "1024"}


def require_zookeeper() -> None:
    """Skip the test, with the reason, where no server can be started."""
    try:
        find_java(11)
        find_jars()
    except LocalClusterError as error:
        pytest.skip(f"no ZooKeeper server: {error}")


def start_server(directory: Path, **settings: str) -> LocalZookeeper:
    """One server that ends with this program; skips where none can be started."""
    require_zookeeper()
    server = LocalZookeeper(
        str(directory),
        free_ports(1)[0],
        settings=SETTINGS | settings,
        properties=PROPERTIES,
        end_with_program=True,
    )
    server.start()
    return server


def ensemble(directory: Path, size: int = 3) -> list[LocalZookeeper]:
    """Servers of one ensemble, none started; skips where none can be."""
    require_zookeeper()
    ports = free_ports(3 * size)
    members = [
        EnsembleServer(number, ports[3 * number - 3], ports[3 * number - 2])
        for number in range(1, size + 1)
    ]
    return [
        LocalZookeeper(
            str(directory / f"server-{member.number}"),
            ports[3 * member.number - 1],
            settings=SETTINGS,
            properties=PROPERTIES,
            ensemble=members,
            number=member.number,
            end_with_program=True,
        )
        for member in members
    ]
