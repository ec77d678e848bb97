"""The power of all brokers fails at once: what `flush.before.ack` promises, on real files (V69).

The syncs of each broker are recorded (`tests/support/cluster/power.py`). A power loss kills all
brokers and cuts off every byte of their logs that no sync covers.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tests.cluster.conftest import MakeCluster, eventually
from tests.support.cluster.power import Power, compiled
from tests.support.cluster.values import read_values, write_values

from tidelog.client.configs import TOPIC, ConfigChange, ConfigResource
from tidelog.core.dynamic_config import ConfigOperation
from tidelog.core.errors import TidelogError
from tidelog.core.types import TopicPartition
from tidelog.local import LocalCluster
from tidelog.records.builder import NewRecord, build_batch
from tidelog.runtime.blocking import BlockingClient

SYNCED, WRITTEN = TopicPartition("synced", 0), TopicPartition("written", 0)
WRITERS = 4
ACKNOWLEDGED = 150
POWER_FAILURES = 2

SYNCER = """
import os, sys
descriptor = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
os.write(descriptor, b"12345")
os.fsync(descriptor)
os.write(descriptor, b"678")
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = compiled(tmp_path_factory.mktemp("shim"))
    if found is None:
        pytest.skip("needs a C compiler (cc) to record the syncs of brokers")
    return found


@pytest.fixture
def cluster(make_cluster: MakeCluster) -> LocalCluster:
    return make_cluster(3, metadata_session_timeout_ms="2000")


@pytest.fixture
def power(cluster: LocalCluster, library: Path) -> Power:
    """The power supply of a cluster with two topics: one syncs before it acknowledges."""
    power = Power(cluster, library)
    for broker_id in cluster.broker_ids:
        cluster.stop(broker_id)
    power.start()
    with BlockingClient(cluster.bootstrap, timeout_ms=60_000) as client:
        for topic, value in ((SYNCED.topic, "true"), (WRITTEN.topic, "false")):
            configs = {"min.insync.replicas": "2", "flush.before.ack": value}
            client.create_topic(topic, configs=configs, assignment={0: [1, 2, 3]})
            client.await_topic(topic, min_isr=3)
    return power


def test_the_shim_records_what_is_synced_and_no_more(library: Path, tmp_path: Path) -> None:
    path, log = tmp_path / "file", tmp_path / "syncs"
    environment = {"LD_PRELOAD": str(library), "TIDELOG_SYNC_LOG": str(log)}
    subprocess.run(
        [sys.executable, "-c", SYNCER, str(path)], env={**os.environ, **environment}, check=True
    )
    assert path.read_bytes() == b"12345678"
    assert log.read_text() == f"5 {path}\n"


class Writers:
    """Threads that write until their brokers are gone; they keep what was acknowledged."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self.acknowledged: list[bytes] = []
        self._bootstrap = bootstrap
        self._threads = [
            threading.Thread(target=self._write, args=(f"{name}-{number}",))
            for number in range(WRITERS)
        ]
        for thread in self._threads:
            thread.start()

    def _write(self, name: str) -> None:
        number = 0
        with BlockingClient(self._bootstrap, timeout_ms=3_000) as client:
            while True:
                value = f"{name}-{number}".encode()
                try:
                    client.produce(SYNCED, build_batch([NewRecord(None, value)]))
                except TidelogError:
                    return  # whether this one is there remains open
                self.acknowledged.append(value)
                number += 1

    def await_acknowledged(self, count: int) -> None:
        eventually(lambda: len(self.acknowledged) >= count, f"{count} acknowledged records")

    def join(self) -> list[bytes]:
        for thread in self._threads:
            thread.join()
        return self.acknowledged


@pytest.mark.rule("V69")
def test_no_acknowledged_record_is_lost_when_the_power_of_all_brokers_fails(
    cluster: LocalCluster, power: Power
) -> None:
    acknowledged: list[bytes] = []
    for failure in range(POWER_FAILURES):
        write_values(cluster.bootstrap, WRITTEN, [f"{failure}".encode()])
        writers = Writers(cluster.bootstrap, f"failure-{failure}")
        writers.await_acknowledged(ACKNOWLEDGED)
        lost_bytes = power.lose(cluster.broker_ids)
        acknowledged += writers.join()
        assert lost_bytes, "there is no record of the topic that does not sync"
        power.start()
        found = read_values(cluster.bootstrap, SYNCED)
        missing = [value for value in acknowledged if value not in frozenset(found)]
        assert not missing
        assert len(found) == len(frozenset(found))
        # The same power loss takes acknowledged records where acknowledgements wait for no sync.
        assert read_values(cluster.bootstrap, WRITTEN) == []


@pytest.mark.rule("V69")
def test_the_setting_takes_effect_while_the_cluster_runs(
    cluster: LocalCluster, power: Power
) -> None:
    write_values(cluster.bootstrap, WRITTEN, [b"before"])
    assert not any(power.has_synced(broker_id, WRITTEN) for broker_id in cluster.broker_ids)
    with BlockingClient(cluster.bootstrap, timeout_ms=60_000) as client:
        change = ConfigChange(ConfigOperation.SET, "flush.before.ack", "true")
        client.alter_configs(ConfigResource(TOPIC, WRITTEN.topic), [change])
    # A broker that learns of it syncs what is there; nothing else syncs so short a log.
    eventually(
        lambda: all(power.has_synced(broker_id, WRITTEN) for broker_id in cluster.broker_ids),
        "flush.before.ack on all brokers",
    )
    write_values(cluster.bootstrap, WRITTEN, [b"after"])
    power.lose(cluster.broker_ids)
    power.start()
    assert read_values(cluster.bootstrap, WRITTEN) == [b"before", b"after"]
