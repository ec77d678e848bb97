"""The status of a cluster: brokers, controller, partitions and their high watermarks.

The values of a status come from brokers' responses, and for a local cluster also from its
processes. The high watermark is the latest offset in the leader's ListOffsets response; None if the
leader does not respond.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import asdict

from tidelog.client.cluster import ClusterMetadata
from tidelog.client.fetching import LATEST
from tidelog.core.dataclass import dataclass
from tidelog.core.errors import ErrorCode, TidelogError
from tidelog.core.types import NO_LEADER, TopicPartition
from tidelog.runtime.blocking import BlockingClient

_POLL_S = 0.02
#: Minimum time in ms for one leader to list its offsets.
_LEAST_MS = 500


@dataclass(frozen=True, slots=True)
class BrokerStatus:
    """One broker of a cluster.

    `state` is running, paused or stopped for a process on this machine, else up. A broker is down
    if it should be registered but is not. `registered` is null if no broker responds. `leaders` and
    `replicas` count the partitions that the broker leads and holds.
    """

    id: int
    pid: int | None
    host: str | None
    port: int | None
    alive: bool
    state: str
    controller: bool
    registered: bool | None = None
    leaders: int = 0
    replicas: int = 0
    out_of_sync: int = 0


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """One partition; `leader` is -1 without a leader."""

    topic: str
    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]
    high_watermark: int | None


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """A cluster at one time; `reached` is whether a broker of the cluster responded."""

    bootstrap: str
    cluster_id: str | None
    controller: int
    reached: bool
    brokers: tuple[BrokerStatus, ...]
    partitions: tuple[PartitionStatus, ...]

    @property
    def under_replicated(self) -> int:
        """Partitions with replicas that are not in sync."""
        return sum(len(each.isr) < len(each.replicas) for each in self.partitions)

    @property
    def down(self) -> tuple[BrokerStatus, ...]:
        """Brokers of the cluster that are not registered."""
        return tuple(each for each in self.brokers if each.registered is False)

    @property
    def leaderless(self) -> int:
        """Partitions without a leader."""
        return sum(each.leader == NO_LEADER for each in self.partitions)


def remote_status(
    bootstrap: str, timeout_ms: int, *, high_watermarks: bool = True
) -> ClusterStatus:
    """Return the status of a cluster from its address alone."""
    with BlockingClient(bootstrap, timeout_ms=timeout_ms) as client:
        metadata = known_metadata(client, timeout_ms)
        partitions = describe_partitions(client, metadata, ask=lambda leader: high_watermarks)
    return ClusterStatus(
        bootstrap,
        metadata.cluster_id,
        metadata.controller_id,
        bool(metadata.brokers),
        brokers_of(metadata),
        partitions,
    )


@dataclass(slots=True)
class Holding:
    """Counts of the partitions that a broker leads and holds, from metadata."""

    leaders: int = 0
    replicas: int = 0
    out_of_sync: int = 0


def holdings_of(metadata: ClusterMetadata) -> dict[int, Holding]:
    """Return, for each broker with a replica, registered or not, its counts of partitions."""
    found: dict[int, Holding] = {}
    for _, partition in metadata.all_partitions():
        for broker_id in partition.replicas:
            holding = found.setdefault(broker_id, Holding())
            holding.replicas += 1
            holding.leaders += broker_id == partition.leader
            holding.out_of_sync += broker_id not in partition.isr
    return found


def brokers_of(metadata: ClusterMetadata) -> tuple[BrokerStatus, ...]:
    """Return the brokers that are registered or hold a replica, from metadata."""
    holdings = holdings_of(metadata)
    found = []
    for broker_id in sorted({*metadata.brokers, *holdings}):
        node = metadata.brokers.get(broker_id)
        status = BrokerStatus(
            id=broker_id,
            pid=None,
            host=None if node is None else node.host,
            port=None if node is None else node.port,
            alive=node is not None,
            state="down" if node is None else "up",
            controller=broker_id == metadata.controller_id,
            registered=node is not None,
            **asdict(holdings.get(broker_id, Holding())),
        )
        found.append(status)
    return tuple(found)


def known_metadata(client: BlockingClient, timeout_ms: int) -> ClusterMetadata:
    """Return the brokers' metadata; wait up to `timeout_ms` for a response that has brokers.

    A newly registered broker has no metadata until the controller sends it. An empty response must
    not be taken for a cluster without topics.
    """
    deadline = time.monotonic() + timeout_ms / 1000
    while True:
        metadata = client.metadata()
        if metadata.brokers or time.monotonic() > deadline:
            return metadata
        time.sleep(_POLL_S)


def describe_partitions(
    client: BlockingClient,
    metadata: ClusterMetadata,
    topics: Iterable[str] | None = None,
    *,
    ask: Callable[[int], bool] = lambda leader: True,
) -> tuple[PartitionStatus, ...]:
    """Return all partitions, or the partitions of some topics, with high watermarks.

    Only leaders that `ask` accepts get a request, because the client would wait for a leader that
    does not respond. Each leader gets a share of the client's time, so that several dead leaders
    cost no more than one. While the metadata store is down, dead brokers remain leaders in the
    metadata.
    """
    wanted = None if topics is None else list(topics)
    chosen = [
        (tp, partition)
        for tp, partition in metadata.all_partitions()
        if wanted is None or tp.topic in wanted
    ]
    led: dict[int, list[TopicPartition]] = {}
    for tp, partition in chosen:
        if metadata.leader_of(tp) is not None and ask(partition.leader):
            led.setdefault(partition.leader, []).append(tp)
    marks: dict[TopicPartition, int] = {}
    whole_ms = client.timeout_ms
    try:
        for partitions in led.values():
            client.timeout_ms = max(_LEAST_MS, whole_ms // len(led))
            marks.update(_high_watermarks(client, partitions))
    finally:
        client.timeout_ms = whole_ms
    return tuple(
        PartitionStatus(
            topic=tp.topic,
            partition=tp.partition,
            leader=partition.leader,
            leader_epoch=partition.leader_epoch,
            replicas=partition.replicas,
            isr=partition.isr,
            offline=partition.offline,
            high_watermark=marks.get(tp),
        )
        for tp, partition in chosen
    )


def _high_watermarks(
    client: BlockingClient, partitions: list[TopicPartition]
) -> dict[TopicPartition, int]:
    """Return the high watermarks that a leader lists; empty if the request fails.

    A new leader knows no high watermark until enough replicas are in sync. It answers for its other
    partitions all the same.
    """
    unknown = (ErrorCode.OFFSET_NOT_AVAILABLE,)
    try:
        listed = client.list_offsets(dict.fromkeys(partitions, LATEST), tolerated=unknown)
    except TidelogError:
        return {}
    return {tp: entry.offset for tp, entry in listed.items()}
