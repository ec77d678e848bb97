"""One cluster that the controller process of pytest-xdist owns, and lends to all workers.

The controller process starts the cluster when the first worker requests it over a Unix socket. The
controller process gives each worker the address and the key of this socket. A worker may read and
write, and inject faults on its own requests. A worker may not kill a broker, because the tests of
other workers use the broker, too.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
from collections.abc import Callable, Mapping
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener
from typing import Any, Final

from tidelog.broker.server.interception import KIT_CLIENT_ID, Rule
from tidelog.core.errors import TidelogError
from tidelog.local import LocalCluster, LocalClusterError
from tidelog.runtime.interception import InterceptionControl
from tidelog.testing.cluster import Cluster, interceptions_of
from tidelog.testing.faults import Fault
from tidelog.testing.spec import ClusterSpec

#: Distance between the first rule numbers of two workers. Brokers count matches by rule number, so
#: the workers must not use equal numbers.
_RULES_PER_WORKER: Final = 1_000_000
_HELP: Final = (
    "all workers share this cluster (tidelog_workers = shared): {} would strike the tests of other"
    " workers; {}"
)


class ClusterLender:
    """The lender in the controller process; it starts the cluster at a worker's first request."""

    def __init__(self, make: Callable[[str], Cluster]) -> None:
        """`make` starts the cluster in a directory."""
        self._make = make
        self._key = secrets.token_bytes(16)
        self._cluster: Cluster | None = None
        self._listener = Listener(family="AF_UNIX", authkey=self._key)
        self._thread = threading.Thread(target=self._lend, name="tidelog-lender", daemon=True)
        self._thread.start()

    @property
    def workerinput(self) -> dict[str, str]:
        """The address and the key that a worker needs, as texts."""
        return {"address": str(self._listener.address), "key": self._key.hex()}

    def close(self) -> None:
        """Close the cluster, and stop lending it."""
        with contextlib.suppress(OSError), Client(self._listener.address, authkey=self._key) as end:
            end.send(None)
        self._thread.join()
        self._listener.close()
        if self._cluster is not None:
            self._cluster.close()

    def _lend(self) -> None:
        while True:
            try:
                with self._listener.accept() as worker:
                    directory = worker.recv()
                    if directory is None:
                        return
                    self._answer(worker, directory)
            except (OSError, EOFError, AuthenticationError):  # a crashed worker, or another program
                continue

    def _answer(self, worker: Connection[Any, Any], directory: str) -> None:
        try:
            if self._cluster is None:
                self._cluster = self._make(directory)
        except Exception as error:
            # An unexpected error must not end the thread, or every other worker and `close` would
            # wait for ever.
            known = isinstance(error, TidelogError | ValueError | OSError)
            worker.send({"error": str(error) if known else repr(error)})
        else:
            worker.send({"directory": self._cluster.directory})


class LentCluster(Cluster):
    """The shared cluster of all workers, with the methods that one worker may call."""

    def __init__(self, directory: str, spec: ClusterSpec, worker: int) -> None:
        """Use the cluster in a directory; `worker` is this worker's number, from 0."""
        self._begin(spec, (worker + 1) * _RULES_PER_WORKER)
        self._directory = directory
        self._local = LocalCluster(directory, client_id=KIT_CLIENT_ID)
        self._control = InterceptionControl(interceptions_of(directory))

    def close(self) -> None:
        """Do nothing: the controller process of pytest-xdist closes the cluster."""

    def reset(self) -> None:
        """End the faults of this worker."""
        self._unfinished.clear()
        for fault in self._faults:
            fault.remove()
        self._faults.clear()

    def _before_fault(self, act: str) -> None:
        own = "take a cluster of the test's own: tidelog_cluster_factory or tidelog_cluster_module"
        raise LocalClusterError(_HELP.format(act, own))

    def _put(self, rule: Rule, words: str) -> Fault:
        if rule.topic is None and rule.client_id is None and rule.group_id is None:
            narrow = "where(topic=...), client_id or group_id must select this test's own"
            raise LocalClusterError(_HELP.format(words, narrow))
        return super()._put(rule, words)


def borrowed(lender: Mapping[str, str], directory: str, spec: ClusterSpec, worker: int) -> Cluster:
    """Return the cluster of all workers, which the first call starts in a directory.

    Raises LocalClusterError if the cluster cannot start, or if the controller process is on another
    machine.
    """
    try:
        key = bytes.fromhex(lender["key"])
        with Client(lender["address"], family="AF_UNIX", authkey=key) as connection:
            connection.send(directory)
            answer = connection.recv()
    except (OSError, EOFError) as error:
        raise LocalClusterError(
            f"the controller of pytest-xdist lends no cluster: {error}; workers on other machines"
            " need tidelog_workers = own"
        ) from error
    if "error" in answer:
        raise LocalClusterError(answer["error"])
    return LentCluster(answer["directory"], spec, worker)
