"""The states of a cluster that tests wait for: leaders, a controller, numbers, any condition.

Each function returns a `Wait`. `Cluster` has each function as a blocking method, and `AsyncCluster`
as a coroutine.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from tidelog.core.types import NO_LEADER
from tidelog.local import ClusterStatus, LocalCluster
from tidelog.testing.loops import refuse_in_loop
from tidelog.testing.spec import did_you_mean
from tidelog.testing.waiting import Wait, lagging, unled

P = ParamSpec("P")
T = TypeVar("T")

#: The numbers that `wait_for` compares, each with the function that takes it from a status.
_NUMBERS: Mapping[str, Callable[[ClusterStatus], int]] = {
    "under_replicated": lambda now: len(list(lagging(now))),
    "leaderless": lambda now: len(list(unled(now))),
    "running": lambda now: sum(broker.state == "running" for broker in now.brokers),
    "controller": lambda now: now.controller,
}
#: Names of the arguments of `wait_for` that state a condition or describe it.
_CONDITIONS = ("condition", *_NUMBERS, "what")


class HasLocal(Protocol):
    """A `Cluster` or an `AsyncCluster`."""

    @property
    def local(self) -> LocalCluster:
        """The LocalCluster of the cluster's brokers."""


def leader(
    local: LocalCluster, /, topic: str, partition: int = 0, timeout: float = 30.0
) -> Wait[int]:
    """Return the running leader of a partition; wait until there is one."""
    what = f"a running leader of {topic}-{partition}"
    return Wait(lambda: _look(local), lambda now: _leader(now, topic, partition), what, timeout)


def controller(local: LocalCluster, /, timeout: float = 30.0) -> Wait[int]:
    """Return the running broker that is the controller; wait until there is one."""

    def running_controller(now: ClusterStatus) -> int | None:
        return now.controller if _is_running(now, now.controller) else None

    return Wait(lambda: _look(local), running_controller, "a running controller", timeout)


def unregistered(local: LocalCluster, /, broker: int, timeout: float = 30.0) -> Wait[bool]:
    """Wait until the cluster has removed a broker whose session ended."""

    def is_gone(now: ClusterStatus) -> bool | None:
        return any(each.id == broker and each.registered is False for each in now.brokers) or None

    return Wait(lambda: _look(local), is_gone, f"without broker {broker}", timeout)


def wait_for(
    local: LocalCluster,
    /,
    condition: Callable[[ClusterStatus], bool] | None = None,
    *,
    under_replicated: int | None = None,
    leaderless: int | None = None,
    running: int | None = None,
    controller: int | None = None,
    what: str | None = None,
    timeout: float = 30.0,
    **unknown: object,
) -> Wait[ClusterStatus]:
    """Wait until all given conditions hold, and return the status.

    The conditions are: the number of under-replicated partitions, of partitions without leader or
    of running brokers; the id of the controller; any function of the status, which `what`
    describes. A partition counts as under-replicated if the process of one of its brokers does not
    run, and as leaderless if the process of its leader does not run. Raises WaitTimeout if the
    conditions do not hold in time; TypeError and ValueError for a condition that can never hold.
    """
    for name in unknown:
        raise TypeError(
            f"wait_for: there is no condition {name!r}: {', '.join(_CONDITIONS)} expected"
            + did_you_mean(name, _CONDITIONS)
        )
    numbers = (under_replicated, leaderless, running, controller)
    given = zip(_NUMBERS, numbers, strict=True)
    wanted = {name: number for name, number in given if number is not None}
    _check_possible(local, wanted)
    words = [f"{name}={number}" for name, number in wanted.items()]
    if condition is not None:
        words.append(what or str(getattr(condition, "__name__", "the condition")))
    if not words:
        raise ValueError("wait_for: say what for, as in wait_for(under_replicated=0)")

    def counts(now: ClusterStatus) -> bool:
        return all(_NUMBERS[name](now) == number for name, number in wanted.items())

    def look() -> ClusterStatus:
        # High watermarks cost a request to each leader, so they are read last, when the other
        # conditions hold.
        now = _look(local)
        return local.status() if counts(now) else now

    def result(now: ClusterStatus) -> ClusterStatus | None:
        return now if counts(now) and (condition is None or condition(now)) else None

    return Wait(look, result, " and ".join(words), timeout)


def blocking(
    state: Callable[Concatenate[LocalCluster, P], Wait[T]],
) -> Callable[Concatenate[HasLocal, P], T]:
    """Return a Cluster method that waits for a state; it fails in a running event loop."""
    name = state.__name__

    @functools.wraps(state)
    def wait(cluster: HasLocal, /, *args: P.args, **named: P.kwargs) -> T:
        refuse_in_loop(f"cluster.{name}", f"`await cluster.aio.{name}(...)`")
        return state(cluster.local, *args, **named).block()

    return wait


def awaitable(
    state: Callable[Concatenate[LocalCluster, P], Wait[T]],
) -> Callable[Concatenate[HasLocal, P], Coroutine[Any, Any, T]]:
    """Return a coroutine method that waits for a state."""

    @functools.wraps(state)
    async def wait(cluster: HasLocal, /, *args: P.args, **named: P.kwargs) -> T:
        return await state(cluster.local, *args, **named).reached()

    return wait


def _look(local: LocalCluster) -> ClusterStatus:
    return local.status(high_watermarks=False)


def _check_possible(local: LocalCluster, wanted: Mapping[str, int]) -> None:
    """Raise an error if a condition names a number that this cluster can never reach."""
    for name in ("under_replicated", "leaderless"):
        if wanted.get(name, 0) < 0:
            raise ValueError(f"wait_for({name}={wanted[name]}) can never hold: 0 or more expected")
    running, most = wanted.get("running", 0), len(local.broker_ids)
    if not 0 <= running <= most:
        raise ValueError(
            f"wait_for(running={running}) can never hold: this cluster has {most} brokers"
        )
    controller = wanted.get("controller", NO_LEADER)
    if controller != NO_LEADER:
        local.place(controller)


def _is_running(status: ClusterStatus, broker_id: int) -> bool:
    return any(each.id == broker_id and each.state == "running" for each in status.brokers)


def _leader(status: ClusterStatus, topic: str, partition: int) -> int | None:
    """Return the running leader of a partition; None if there is none."""
    for each in status.partitions:
        if (each.topic, each.partition) == (topic, partition) and _is_running(status, each.leader):
            return each.leader
    return None
