"""What is measured: a cluster of three brokers that can be started, killed and asked for its cost.

`TIDELOG` is ours; `bench.kafka` offers Apache Kafka in the same shape, so that every figure comes
from the same driver on both sides. Where there are two, they run at the same time, and measurements
take turns.
"""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tidelog.local.cluster import LocalCluster
from tidelog.runtime.blocking import BlockingClient

BROKERS = 3
#: A broker that was killed many times checks logs of one segment from their beginning.
_START_LIMIT_S = 300.0


class Running(Protocol):
    """Three brokers."""

    def up(self) -> None:
        """Start them; returns when a record with RF 3 was acknowledged."""

    def down(self) -> None:
        """End them."""

    @property
    def name(self) -> str:
        """As it stands in tables."""

    @property
    def bootstrap(self) -> str:
        """Addresses for clients."""

    @property
    def tells_controller(self) -> bool:
        """Whether the controller that clients are told is the one (KRaft names any broker)."""

    def address(self, broker_id: int) -> str:
        """`host:port` of one broker."""

    def pids(self) -> list[int]:
        """The processes of the brokers that run."""

    def pid(self, broker_id: int) -> int:
        """The process of a broker that runs."""

    def controller(self) -> int:
        """The broker that is the controller now."""

    def kill(self, broker_id: int) -> None:
        """SIGKILL; returns when the process is gone."""

    def stop(self, broker_id: int) -> None:
        """SIGTERM; returns at once: the broker goes on until it has handed over."""

    def await_end(self, broker_id: int) -> None:
        """Wait until a broker that was stopped is gone."""

    def start(self, broker_id: int) -> None:
        """Start a broker that was killed or stopped; returns when it is gone and back."""


@dataclass(frozen=True)
class System:
    """A name, and how to lay out three brokers in a directory with some keys of configuration."""

    name: str
    lay_out: Callable[[Path, dict[str, str]], Running]
    #: Rounds that are not counted: the first ones of a JVM reach less than half of later speed.
    warm_up_rounds: int = 1


class _Tidelog:
    """Our brokers, as processes."""

    name = "tidelog"
    tells_controller = True

    def __init__(self, directory: Path, config: dict[str, str]) -> None:
        self._cluster = LocalCluster(str(directory / "cluster"), BROKERS, config=config)

    def up(self) -> None:
        self._cluster.up()

    def down(self) -> None:
        self._cluster.down()

    @property
    def bootstrap(self) -> str:
        return self._cluster.bootstrap

    def address(self, broker_id: int) -> str:
        return self._cluster.places()[broker_id].address

    def pids(self) -> list[int]:
        processes = [self._cluster.process(number) for number in self._cluster.broker_ids]
        return [process.pid for process in processes if process is not None]

    def pid(self, broker_id: int) -> int:
        process = self._cluster.process(broker_id)
        assert process is not None
        return process.pid

    def controller(self) -> int:
        with BlockingClient(self.bootstrap) as client:
            return client.metadata([]).controller_id

    def kill(self, broker_id: int) -> None:
        self._cluster.kill(broker_id)

    def stop(self, broker_id: int) -> None:
        process = self._cluster.process(broker_id)
        assert process is not None
        process.send(signal.SIGTERM)

    def await_end(self, broker_id: int) -> None:
        process = self._cluster.process(broker_id)
        if process is not None:
            process.await_end(60)

    def start(self, broker_id: int) -> None:
        self.await_end(broker_id)
        self._cluster.start(broker_id, _START_LIMIT_S)


TIDELOG = System("tidelog", _Tidelog)


@contextmanager
def started(systems: Iterable[System], **config: str) -> Iterator[list[Running]]:
    """All of these in fresh temporary directories; `offsets_topic_...` is `offsets.topic...`."""
    keys = {key.replace("_", "."): value for key, value in config.items()}
    with ExitStack() as stack:
        running = []
        for system in systems:
            directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="tidelog-bench-"))
            cluster = system.lay_out(Path(directory), keys)
            stack.callback(cluster.down)
            cluster.up()
            running.append(cluster)
        yield running
