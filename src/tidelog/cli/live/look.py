"""Looks at a cluster: Kafka's protocol through the console's poller, and brokers' admin ports.

Both sources may fail at any time, because a live view is used while brokers die. A part that cannot
be read keeps its last value, and the frame has the reason as a sentence. Rates are computed from
two looks.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from tidelog.cli.live.frame import TopFrame
from tidelog.cli.live.frame_parts import (
    AdminReading,
    Counter,
    RateMeter,
    Rates,
    brokers_in,
    groups_in,
    moves_in,
    partitions_in,
    total,
    under_replicated_in,
)
from tidelog.client.bootstrap import parse_bootstrap
from tidelog.console.poller import Poller
from tidelog.console.readings import ClusterReading, ReadingPart
from tidelog.console.views.topics import replica_sizes
from tidelog.core.types import NO_LEADER, TopicPartition
from tidelog.local.admin_ports import (
    AdminPlaces,
    AdminPortError,
    find_admin_ports,
    read_history,
    read_metrics,
    read_readiness,
)
from tidelog.runtime.blocking import BlockingClient

#: The metrics of an admin port that a frame needs.
METRICS: Final = (
    "kafka_network_socketserver_networkprocessoravgidle_percent",
    "kafka_server_sessionexpirelistener_zookeeperexpires_total",
    "kafka_server_socket_server_metrics_connection_count",
    "process_cpu_seconds_total",
    "process_resident_memory_bytes",
    "tidelog_consumergroup_lag_seconds",
    "tidelog_partition_bytes_in_total",
    "tidelog_partition_bytes_out_total",
)
#: The series of a broker's history that a frame needs.
SERIES: Final = ("cpu_cores", "loop_turn_p99_ms", "bytes_in_per_s", "bytes_out_per_s")
#: Age in s up to which the latest value of a broker's history counts as the present value.
_FRESH_S: Final = 60
#: Time in s after which missing admin ports are looked for again.
_SEARCH_S: Final = 30.0
_PORT_S: Final = 2.0
#: Time limit in ms of a request to a broker; a broker that hangs delays a look by this time.
_CLIENT_MS: Final = 5_000
_THREADS: Final = 16
#: Maximum number of under-replicated partitions for which a look asks why replicas left the ISR.
_DESCRIBED: Final = 200
#: Readings of the past (events and charts), which are left out, because a frame has only present
#: values.
_PAST: Final = (ReadingPart.EVENTS, ReadingPart.HISTORY, ReadingPart.TOPIC_DAYS)
_PARTS: Final = tuple(each for each in ReadingPart if each not in _PAST)


class ClusterLook:
    """Repeated looks at one cluster from one thread."""

    def __init__(self, bootstrap: str, given: Mapping[int, str], rows: int) -> None:
        """Prepare looks with at most `rows` rows a table; `given` are addresses of admin ports."""
        parse_bootstrap(bootstrap)
        self._client = BlockingClient(bootstrap, "tidelog-top", _CLIENT_MS)
        self._reading = ClusterReading()
        self._poller = Poller(self._client, self._take, _PARTS)
        self._poller.add_viewer(())
        self._given = dict(given)
        self._rows = rows
        self._viewed: list[TopicPartition] = []
        self._places = AdminPlaces(self._given, {})
        #: The brokers whose ports failed at the last look.
        self._failed: set[int] = set()
        self._searched_s = -_SEARCH_S
        self._threads = ThreadPoolExecutor(_THREADS)
        self._records: RateMeter[TopicPartition] = RateMeter()
        self._sizes: RateMeter[TopicPartition] = RateMeter()
        self._traffic: dict[int, RateMeter[Counter]] = {}

    def close(self) -> None:
        """Close all connections."""
        self._threads.shutdown(cancel_futures=True)
        self._client.close()

    def _take(self, reading: ClusterReading) -> None:
        self._reading = reading

    def frame(self) -> TopFrame:
        """Read the parts of the cluster that are due again, and return a frame of all parts."""
        self._poller.run_due()
        self._describe_under_replicated()
        reading, ports = self._reading, self._read_ports()
        rates = self._rates(reading, ports)
        metadata = reading.metadata
        placed = {} if metadata is None else dict(metadata.all_partitions())
        brokers = brokers_in(reading, ports, self._places, rates)
        moves = reading.moves
        return TopFrame(
            time_ms=time.time_ns() // 1_000_000,
            cluster_id=None if metadata is None else metadata.cluster_id,
            controller=None
            if metadata is None or metadata.controller_id < 0
            else metadata.controller_id,
            partitions_total=len(placed),
            under_replicated_total=sum(len(p.isr) < len(p.replicas) for p in placed.values()),
            leaderless_total=sum(p.leader == NO_LEADER for p in placed.values()),
            groups_total=len(reading.groups),
            moves_total=0 if moves is None else len(moves.under_way),
            queued_total=0 if moves is None else len(moves.queued),
            bytes_in_per_s=total(each.bytes_in_per_s for each in brokers),
            bytes_out_per_s=total(each.bytes_out_per_s for each in brokers),
            notes=list(dict.fromkeys(self._notes(reading, ports))),
            brokers=brokers,
            partitions=partitions_in(reading, rates)[: self._rows],
            groups=groups_in(reading, ports)[: self._rows],
            moves=moves_in(reading)[: self._rows],
            under_replicated=under_replicated_in(reading)[: self._rows],
        )

    def _describe_under_replicated(self) -> None:
        """Let the poller read, with every reading, the replicas of under-replicated partitions.

        If the set of these partitions has changed since the last look, the poller reads at once.
        """
        metadata = self._reading.metadata
        if metadata is None:
            return
        wanted = [
            tp for tp, each in metadata.all_partitions() if len(each.isr) < len(each.replicas)
        ][:_DESCRIBED]
        if wanted != self._viewed:
            self._poller.add_viewer(wanted)
            self._poller.remove_viewer(self._viewed)
            self._viewed = wanted
            self._poller.run_due()

    def _read_ports(self) -> dict[int, AdminReading]:
        """Request metrics from the admin ports of all brokers at once; return the responses."""
        metadata = self._reading.metadata
        if metadata is None:
            return {}
        # Entries of brokers that are down are dropped, so that the admin port of such a broker is
        # searched as soon as the broker is registered again.
        missing = {key: why for key, why in self._places.missing.items() if key in metadata.brokers}
        self._places = AdminPlaces(self._places.addresses, missing)
        # Leave out addresses that failed at the last look, because the broker may have restarted
        # with another address.
        known = {
            broker: address
            for broker, address in self._places.addresses.items()
            if broker not in self._failed
        }
        unknown = set(metadata.brokers) - set(known) - set(self._given)
        is_due = time.monotonic() - self._searched_s >= _SEARCH_S
        if unknown and (is_due or unknown - self._failed - set(self._places.missing)):
            self._searched_s = time.monotonic()
            self._places = find_admin_ports(self._client, metadata, {**known, **self._given})
        asked = {
            broker: address
            for broker, address in self._places.addresses.items()
            if broker in metadata.brokers
        }
        found = dict(zip(asked, self._threads.map(_read_port, asked.values()), strict=True))
        self._failed = {broker for broker, reading in found.items() if reading.error}
        return found

    def _rates(self, reading: ClusterReading, ports: Mapping[int, AdminReading]) -> Rates:
        sizes = {
            tp: max(by_broker.values()) for tp, by_broker in replica_sizes(reading.log_dirs).items()
        }
        traffic = {}
        for broker, port in ports.items():
            if port.samples is not None:
                growth = self._traffic.setdefault(broker, RateMeter(begins_at_0=True))
                traffic[broker] = growth.rates(port.read_ms, port.counters())
        return Rates(
            traffic,
            self._records.rates(reading.read_ms.get(ReadingPart.OFFSETS, 0), reading.ends),
            self._sizes.rates(reading.read_ms.get(ReadingPart.DISKS, 0), sizes),
        )

    def _notes(self, reading: ClusterReading, ports: Mapping[int, AdminReading]) -> Iterator[str]:
        yield from reading.problems.values()
        live = set() if reading.metadata is None else set(reading.metadata.brokers)
        missing = {key: text for key, text in self._places.missing.items() if key in live}
        if missing and not ports:
            yield (
                f"No admin port is known ({next(iter(missing.values()))}): CPU, loops,"
                " bytes out and lags in seconds are missing. `--admin BROKER=HOST:PORT` names one."
            )
        else:
            yield from missing.values()
        yield from (each.error for each in ports.values() if each.error)


def _read_port(address: str) -> AdminReading:
    """Request metrics, readiness and history from an admin port. An error is part of the result."""
    now_s = time.time_ns() // 1_000_000_000
    reason, history = "", None
    try:
        samples = read_metrics(address, METRICS, _PORT_S)
        read_ms = time.monotonic_ns() // 1_000_000
        reason = read_readiness(address, _PORT_S)
        with contextlib.suppress(AdminPortError):  # brokers of older versions have no history
            history = read_history(address, SERIES, now_s - _FRESH_S, now_s + 1, _PORT_S)
    except AdminPortError as error:
        return AdminReading(address, 0, None, None, "", str(error))
    return AdminReading(address, read_ms, samples, history, reason, "")
