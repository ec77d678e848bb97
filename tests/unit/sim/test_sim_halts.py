"""A broker that halts itself is a violation, unless a fault explains it."""

from __future__ import annotations

from tidelog.sim.run import SeedRun


def test_a_broker_that_gives_its_disk_up_is_told_unless_a_fault_made_a_call_fail() -> None:
    cluster = SeedRun(0).cluster
    cluster.start()
    broker = cluster.brokers[1]
    assert broker.life is not None
    reason = "log directory failed: no such file"
    broker.logs.disks[0].failed_calls += 1
    cluster.simulator.node_halted(broker.life, reason)
    assert cluster.simulator.violations == []
    broker.start()
    assert broker.life is not None
    cluster.simulator.node_halted(broker.life, reason)
    assert "node 1 halted: log directory failed: no such file" in cluster.simulator.violations[0]
