"""Whole brokers close connections that nobody uses; whoever needs one again makes one."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.sim import Recorder, Running, S

from tidelog.broker.server.connections import Connection
from tidelog.core import limits
from tidelog.core.ports import Transport
from tidelog.sim import run
from tidelog.sim.broker_settings import PORT, BrokerSettings, host_of
from tidelog.sim.run import run_seed
from tidelog.sim.sim_cluster import SimCluster
from tidelog.sim.simulator import Simulator


def test_a_whole_broker_closes_idle_connections_in_its_own_time() -> None:
    simulator = Simulator(7)
    cluster = SimCluster(
        simulator, 1, BrokerSettings(properties={"connections.max.idle.ms": "600000"})
    )
    cluster.start()
    assert simulator.run_while(lambda: bool(cluster.health()), 60 * S)
    client = Running(simulator.add_node(50, "client"))
    recorders: list[Recorder] = []

    def record(transport: Transport) -> Recorder:
        recorders.append(Recorder(transport))
        return recorders[-1]

    async def connect() -> None:
        await client.ports.network.connect(
            host_of(1), PORT, record, 1_000, limits.MAX_RESPONSE_BYTES
        )

    client.spawn(connect())
    simulator.run_until(simulator.now_ns + 599 * S)
    assert recorders[0].lost == []
    simulator.run_until(simulator.now_ns + 60 * S)
    assert len(recorders[0].lost) == 1
    assert not simulator.violations and not client.failures
    simulator.close()


@pytest.mark.parametrize("seed", [1000, 1001, 1002])
def test_brokers_and_clients_whose_connections_are_closed_all_the_time_make_new_ones(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A whole run under faults, with connections that are idle after a moment."""
    settings_of = run._settings
    closed: list[str] = []
    close = Connection.close

    def impatient(*arguments: Any) -> BrokerSettings:
        settings = settings_of(*arguments)
        settings.properties["connections.max.idle.ms"] = "160"
        return settings

    def counted(connection: Connection, reason: str) -> None:
        closed.append(reason)
        close(connection, reason)

    monkeypatch.setattr(run, "_settings", impatient)
    monkeypatch.setattr(Connection, "close", counted)
    result = run_seed(seed)
    assert not result.violation, result.recent[-40:]
    assert sum(reason.startswith("idle") for reason in closed) > 20
