"""Waiting for a state of the cluster, with a description of the last state seen.

The state comes from repeated requests to brokers. A broker whose process does not run counts as out
of sync before its cluster has noticed. The module uses no internals of a broker.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from tidelog.local import ClusterStatus, PartitionStatus

_POLL_S = 0.02
#: Maximum number of partitions, and of lines, in a description of a cluster.
_MOST_PARTITIONS = 12


class WaitTimeout(AssertionError):
    """The error of a state that was not reached in time; the message has the last state seen."""


def wait_until(
    look: Callable[[], ClusterStatus],
    holds: Callable[[ClusterStatus], bool],
    what: str,
    timeout_s: float,
) -> ClusterStatus:
    """Read the status until `holds(status)`; return the status, or raise WaitTimeout after
    `timeout_s`.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        seen = look()
        if seen.reached and holds(seen):
            return seen
        if time.monotonic() > deadline:
            raise WaitTimeout(f"after {timeout_s:g} s not {what}; last seen:\n{describe(seen)}")
        time.sleep(_POLL_S)


def lagging(status: ClusterStatus) -> Iterator[PartitionStatus]:
    """Yield partitions with a replica that is not in sync, or whose broker does not run."""
    running = [broker.id for broker in status.brokers if broker.alive]
    for each in status.partitions:
        if len(each.isr) < len(each.replicas) or not all(
            broker in running for broker in each.replicas
        ):
            yield each


def unled(status: ClusterStatus) -> Iterator[PartitionStatus]:
    """Yield partitions without a leader, or whose leader's process does not run."""
    running = [broker.id for broker in status.brokers if broker.alive]
    for each in status.partitions:
        if each.leader not in running:
            yield each


def describe(status: ClusterStatus) -> str:
    """Return a few lines about a cluster: brokers, controller, partitions (troubled first)."""
    lines = [
        "brokers: "
        + ", ".join(
            f"{broker.id} {broker.state}" + (" (controller)" if broker.controller else "")
            for broker in status.brokers
        )
    ]
    if not status.reached:
        return "\n".join([*lines, "no broker answers"])
    behind = list(lagging(status))
    rest = [each for each in status.partitions if each not in behind]
    lines.append(
        f"partitions: {len(status.partitions)}, {len(behind)} under-replicated,"
        f" {len(list(unled(status)))} without leader"
    )
    shown = [*behind, *rest][:_MOST_PARTITIONS]
    lines += [
        f"  {each.topic}-{each.partition}: leader {each.leader} epoch {each.leader_epoch},"
        f" in sync {list(each.isr)} of {list(each.replicas)}"
        + ("" if each.high_watermark is None else f", high watermark {each.high_watermark}")
        for each in shown
    ]
    left = len(status.partitions) - len(shown)
    return "\n".join([*lines, f"  and {left} more"] if left else lines)
