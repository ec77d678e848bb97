"""Waiting for a state of the cluster, with a description of the last state seen.

A `Wait` blocks its thread, or is awaited in an event loop. The state comes from repeated requests
to brokers. A broker whose process does not run counts as out of sync, even while the metadata still
list it in ISRs. The module uses no internals of a broker.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from tidelog.local import ClusterStatus, PartitionStatus

T = TypeVar("T")

_POLL_S = 0.02
#: Maximum number of partitions, and of lines, in a description of a cluster.
_MOST_PARTITIONS = 12


class WaitTimeout(AssertionError):
    """The error for a state that was not reached in time; the message has the last state seen."""


class Wait(Generic[T]):
    """A wait for a state of a cluster, with a result; `block` or `reached` starts the wait."""

    def __init__(
        self,
        look: Callable[[], ClusterStatus],
        result: Callable[[ClusterStatus], T | None],
        what: str,
        timeout_s: float,
    ) -> None:
        """`result` returns None until the wanted state is reached; `what` names this state."""
        self._look = look
        self._result = result
        self._what = what
        self._timeout_s = timeout_s

    def block(self) -> T:
        """Return the result of the wanted state; raise WaitTimeout after `timeout_s`."""
        deadline = time.monotonic() + self._timeout_s
        while (found := self._found(self._look(), deadline)) is None:
            time.sleep(_POLL_S)
        return found

    async def reached(self) -> T:
        """Wait without blocking the event loop; a cancelled wait ends at once.

        The loop's own thread calls `result`, while another thread sends requests to brokers.
        """
        deadline = time.monotonic() + self._timeout_s
        while (found := self._found(await asyncio.to_thread(self._look), deadline)) is None:
            await asyncio.sleep(_POLL_S)
        return found

    def _found(self, seen: ClusterStatus, deadline: float) -> T | None:
        found = self._result(seen) if seen.reached else None
        if found is None and time.monotonic() > deadline:
            raise WaitTimeout(
                f"after {self._timeout_s:g} s not {self._what}; last seen:\n{describe(seen)}"
            )
        return found


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
