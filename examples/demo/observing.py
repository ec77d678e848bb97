"""Observation of the cluster from outside while the demo runs: leaders, ISR sizes, the controller.

A thread requests metadata ten times a second, as any client could. Moments without a response are
gaps in the samples. Changes are counted between known values: a partition without leader, or a
cluster without controller, is an intermediate state and not a change of its own.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from tidelog.client.cluster import ClusterMetadata
from tidelog.core.errors import ErrorCode, TidelogError
from tidelog.runtime.blocking import BlockingClient

_INTERVAL_S: Final = 0.1
_TIMEOUT_MS: Final = 1_000


@dataclass(frozen=True, slots=True)
class Sample:
    """The cluster at one moment, as one broker's metadata shows it.

    Leaders and ISR sizes are by partition.
    """

    at: float
    controller: int
    leaders: tuple[int, ...]
    isr_sizes: tuple[int, ...]


class Observer:
    """Samples of one topic and of the controller."""

    def __init__(self, bootstrap: str, topic: str, replicas: int) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._replicas = replicas
        self.samples: list[Sample] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="demo-observer", daemon=True)

    def start(self) -> None:
        """Begin to request metadata."""
        self._thread.start()

    def stop(self) -> None:
        """Stop; return when the thread has ended."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def latest(self) -> Sample | None:
        """Return the latest sample."""
        return self.samples[-1] if self.samples else None

    def all_in_sync_since(self, moment: float) -> bool:
        """Return whether a sample since `moment` shows leaders and full ISRs everywhere."""
        seen = self.latest()
        return (
            seen is not None
            and seen.at > moment
            and seen.controller >= 0
            and min(seen.leaders) >= 0
            and min(seen.isr_sizes) == self._replicas
        )

    def leader_changes(self) -> int:
        """Return how often a partition got another leader."""
        columns = zip(*(sample.leaders for sample in self.samples), strict=True)
        return sum(_changes(list(column)) for column in columns)

    def controller_changes(self) -> int:
        """Return how often the cluster got another controller."""
        return _changes([sample.controller for sample in self.samples])

    def _run(self) -> None:
        with BlockingClient(self._bootstrap, "tidelog-demo-watch", _TIMEOUT_MS) as client:
            while not self._stopping.wait(_INTERVAL_S):
                try:
                    metadata = client.metadata([self._topic])
                except TidelogError:
                    continue  # no response: a gap
                sample = self._sample(metadata)
                if sample is not None:
                    self.samples.append(sample)

    def _sample(self, metadata: ClusterMetadata) -> Sample | None:
        topic = metadata.topics.get(self._topic)
        if topic is None or topic.error is not ErrorCode.NONE or not topic.partitions:
            return None
        partitions = topic.partitions.values()
        return Sample(
            at=time.monotonic(),
            controller=metadata.controller_id,
            leaders=tuple(each.leader for each in partitions),
            isr_sizes=tuple(len(each.isr) for each in partitions),
        )


def _changes(seen: list[int]) -> int:
    known = [each for each in seen if each >= 0]
    return sum(before != after for before, after in pairwise(known))
