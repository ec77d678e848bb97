"""A local ZooKeeper server whose nodes do not fit into its heap: it ends, and its log says why."""

from __future__ import annotations

from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from tests.support.cluster.zookeepers import PROPERTIES, SETTINGS, require_zookeeper

from tidelog.local import LocalClusterError
from tidelog.local.ports import free_ports
from tidelog.local.zookeeper import LocalZookeeper

HEAP_MIB = 24
NODE_BYTES = 1_000_000


def test_a_server_out_of_memory_ends_and_its_log_says_so(tmp_path: Path) -> None:
    require_zookeeper()
    server = LocalZookeeper(
        str(tmp_path / "server"),
        free_ports(1)[0],
        settings=SETTINGS,
        properties=PROPERTIES,
        heap_mib=HEAP_MIB,
        end_with_program=True,
    )
    server.start()
    client = KazooClient(server.address, connection_retry={"max_tries": 0})
    try:
        client.start()
        with pytest.raises(KazooException):
            for number in range(HEAP_MIB * 2):
                client.create(f"/node-{number}", bytes(NODE_BYTES))
        with pytest.raises(LocalClusterError, match="OutOfMemoryError"):
            server.await_serving()
    finally:
        client.stop()
        client.close()
        server.stop()
