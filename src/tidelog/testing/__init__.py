"""Kafka for tests of programs that use Kafka: real clusters as pytest fixtures, faults on demand.

The pytest plugin (`plugin`) is found by its entry point and loads nothing of this package before a
test requests a cluster. The names in this module are imported at their first use.

`spec` is the cluster that a test requests, `cluster` the cluster that the test gets. `workers`
lends one cluster to all workers of pytest-xdist, and `environment` sets variables before programs
read them. `faults` acts on requests. `states` has the states that tests wait for, `waiting` waits
for a state, and `loops` keeps calls from blocking an event loop. `http_server` serves tests in
other languages, with the requests of `control` and the faults of `toxics`. `histories` records and
checks the operations of a test's clients. `pyspark` replaces PySpark's own helper, which starts
Kafka in a container.

`python -m tidelog.testing` runs a cluster with that HTTP server, for tests that are not in Python.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidelog.testing.cluster import AsyncCluster, Cluster
    from tidelog.testing.faults import Fault, Isolation, Requests
    from tidelog.testing.histories import HistoryRecorder
    from tidelog.testing.http_server import FaultServer
    from tidelog.testing.loops import BlockedLoopError, BlockedLoopWarning
    from tidelog.testing.spec import ClusterSpec
    from tidelog.testing.waiting import WaitTimeout

__all__ = [
    "AsyncCluster",
    "BlockedLoopError",
    "BlockedLoopWarning",
    "Cluster",
    "ClusterSpec",
    "Fault",
    "FaultServer",
    "HistoryRecorder",
    "Isolation",
    "Requests",
    "WaitTimeout",
]

_PLACES = {
    "AsyncCluster": "cluster",
    "BlockedLoopError": "loops",
    "BlockedLoopWarning": "loops",
    "Cluster": "cluster",
    "ClusterSpec": "spec",
    "Fault": "faults",
    "FaultServer": "http_server",
    "HistoryRecorder": "histories",
    "Isolation": "faults",
    "Requests": "faults",
    "WaitTimeout": "waiting",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_PLACES[name]}"), name)
