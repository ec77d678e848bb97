"""The examination of a cluster: the findings of `local.health`, then the doctor's own findings.

The function is pure, so that the command line and other programs judge equal facts alike.
"""

from __future__ import annotations

from tidelog.local.doctor.broker_findings import of_brokers
from tidelog.local.doctor.cluster_facts import ClusterFacts
from tidelog.local.doctor.diagnosis import Diagnosis, diagnosis
from tidelog.local.doctor.group_findings import of_groups
from tidelog.local.doctor.machine_facts import MachineFacts
from tidelog.local.doctor.machine_findings import of_machine
from tidelog.local.doctor.move_findings import of_moves
from tidelog.local.doctor.partition_findings import of_partitions
from tidelog.local.health import ClusterPlace, Health


def examine_cluster(
    health: Health,
    facts: ClusterFacts | None,
    place: ClusterPlace,
    machine: MachineFacts | None = None,
) -> Diagnosis:
    """Return the diagnosis of a cluster; `facts` is None if no broker responds.

    The findings of `health` are part of the diagnosis. `machine` has the facts about the machine of
    a local cluster.
    """
    here = [] if machine is None else list(of_machine(machine))
    if facts is None:
        return diagnosis("cluster", health.bootstrap, [*health.findings, *here])
    findings = [
        *health.findings,
        *here,
        *of_brokers(facts, place),
        *of_partitions(facts, place),
        *of_moves(facts, place),
        *of_groups(facts, place),
    ]
    return diagnosis("cluster", health.bootstrap, findings, facts.unexamined)
