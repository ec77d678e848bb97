"""Looks at a cluster: Kafka's protocol through the console's poller, and brokers' admin ports.

Both sources may fail at any time, because a live view is used while brokers die. A part that cannot
be read keeps its last value, and the frame has the reason as a sentence. All parts and ports are
read side by side until the deadline of the frame, so a broker that hangs delays a frame by at most
this time. Rates are computed from two looks.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from tidelog.cli.live.frame import TopFrame
from tidelog.cli.live.frame_parts import (
    METRICS,
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
from tidelog.client.cluster import ClusterMetadata
from tidelog.console.parallel_poller import ParallelPoller
from tidelog.console.readings import ClusterReading, ReadingPart
from tidelog.console.views.topics import replica_sizes
from tidelog.core.types import NO_LEADER, TopicPartition
from tidelog.local.admin_ports import (
    AdminPlaces,
    AdminPortError,
    ExpectedBroker,
    find_admin_ports,
    read_history,
    read_metrics,
    read_readiness,
)
from tidelog.runtime.blocking import BlockingClient
from tidelog.runtime.deadline_reads import DeadlineReads

#: The series of a broker's history that a frame needs.
SERIES: Final = ("cpu_cores", "loop_turn_p99_ms", "bytes_in_per_s", "bytes_out_per_s")
#: Age in s up to which the latest value of a broker's history counts as the present value.
_FRESH_S: Final = 60
#: Time in s after which missing admin ports are looked for again.
_SEARCH_S: Final = 30.0
#: Time limit in s of all reads of one admin port for one look.
_PORT_S: Final = 2.0
#: Time limit in ms for a broker to return the address of its admin port.
_SEARCH_MS: Final = 2_000
#: Time limit in ms of a request to a broker.
_CLIENT_MS: Final = 5_000
#: Time in s for which a frame of the screen waits for its parts.
FRAME_S: Final = 3.0
#: Maximum number of under-replicated partitions for which a look asks why replicas left the ISR.
_DESCRIBED: Final = 200
#: Readings of the past (events and charts), which are left out, because a frame has only present
#: values.
_PAST: Final = (ReadingPart.EVENTS, ReadingPart.HISTORY, ReadingPart.TOPIC_DAYS)
_PARTS: Final = tuple(each for each in ReadingPart if each not in _PAST)


class _PortLook(NamedTuple):
    """The result of one look at a broker's admin port."""

    #: The address of the broker's admin port, or the reason why it is not known.
    places: AdminPlaces
    #: The response of the admin port; None if its address is not known.
    reading: AdminReading | None


class ClusterLook:
    """Repeated looks at one cluster from one thread."""

    def __init__(
        self, bootstrap: str, given: Mapping[int, str], rows: int, frame_s: float = FRAME_S
    ) -> None:
        """Prepare looks with at most `rows` rows a table; `given` are addresses of admin ports.

        A look at brokers that hang takes about `frame_s`.
        """
        parse_bootstrap(bootstrap)
        self._bootstrap = bootstrap
        self._frame_s = frame_s
        self._reading = ClusterReading()
        self._poller = ParallelPoller(
            lambda: BlockingClient(bootstrap, "tidelog-top", _CLIENT_MS), self._take, _PARTS
        )
        self._poller.add_viewer(())
        self._given = dict(given)
        self._rows = rows
        self._viewed: list[TopicPartition] = []
        self._places = AdminPlaces(self._given, {})
        #: The brokers whose admin ports failed at the last look.
        self._failed: set[int] = set()
        #: When each broker's port was last looked for.
        self._searched_s: dict[int, float] = {}
        self._ports: DeadlineReads[int, _PortLook] = DeadlineReads()
        self._records: RateMeter[TopicPartition] = RateMeter()
        self._sizes: RateMeter[TopicPartition] = RateMeter()
        self._traffic: dict[int, RateMeter[Counter]] = {}

    def close(self) -> None:
        """Close the connections of all reads that have ended."""
        self._poller.close()

    def _take(self, reading: ClusterReading) -> None:
        self._reading = reading

    def frame(self) -> TopFrame:
        """Read the parts of the cluster that are due again, and return a frame of all parts."""
        deadline_s = time.monotonic() + self._frame_s
        self._poller.begin_due(deadline_s)
        begun = self._begin_ports()
        self._poller.finish(deadline_s)
        self._describe_under_replicated(deadline_s)
        reading, ports = self._reading, self._read_ports(begun, deadline_s)
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

    def _describe_under_replicated(self, deadline_s: float) -> None:
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
            self._poller.begin_due(deadline_s)
            self._poller.finish(deadline_s)

    def _begin_ports(self) -> list[int]:
        """Begin to look at the admin ports of all live brokers; return those that have begun."""
        metadata = self._reading.metadata
        if metadata is None:
            return []
        # What is known of brokers that are down is dropped: a broker may return with another
        # address.
        live = metadata.brokers
        self._places = AdminPlaces(
            {each: address for each, address in self._places.addresses.items() if each in live}
            | self._given,
            {each: why for each, why in self._places.missing.items() if each in live},
        )
        return [each for each in live if self._ports.begin(each, self._port_look(each, metadata))]

    def _port_look(self, broker: int, metadata: ClusterMetadata) -> Callable[[], _PortLook]:
        """Return a function that reads a broker's admin port, after a search for it if needed."""
        expected = ExpectedBroker(metadata.cluster_id, broker)
        address = self._places.addresses.get(broker)
        reason = self._places.missing.get(broker)
        now_s = time.monotonic()
        is_due = now_s - self._searched_s.get(broker, -_SEARCH_S) >= _SEARCH_S
        # A broker whose port failed may have restarted with another address.
        has_failed = broker in self._failed and broker not in self._given
        if address is None or (has_failed and is_due):
            if reason is not None and not is_due:
                return lambda: _PortLook(AdminPlaces({}, {broker: reason}), None)
            self._searched_s[broker] = now_s
            alone = replace(metadata, brokers={broker: metadata.brokers[broker]})
            return lambda: _found_port(self._bootstrap, alone, expected)
        known = AdminPlaces({broker: address}, {})
        return lambda: _PortLook(known, _read_port(address, expected))

    def _read_ports(self, begun: Sequence[int], deadline_s: float) -> dict[int, AdminReading]:
        """Return what the admin ports of all brokers returned until the deadline."""
        self._ports.wait(begun, deadline_s)
        running = self._ports.running
        addresses, missing = dict(self._places.addresses), dict(self._places.missing)
        found: dict[int, AdminReading] = {}
        for broker, look in self._ports.results().items():
            for known in (addresses, missing):
                known.pop(broker, None)
            addresses |= look.places.addresses
            missing |= look.places.missing
            if look.reading is not None:
                found[broker] = look.reading
                (self._failed.add if look.reading.error else self._failed.discard)(broker)
        self._places = AdminPlaces(addresses, missing)
        for broker in running:
            late = f"broker {broker} has not reported its metrics yet: it responds late, or never"
            found[broker] = AdminReading(addresses.get(broker, ""), 0, None, None, "", late)
        return found

    def _rates(self, reading: ClusterReading, ports: Mapping[int, AdminReading]) -> Rates:
        sizes = {
            tp: max(by_broker.values()) for tp, by_broker in replica_sizes(reading.log_dirs).items()
        }
        traffic = {}
        uncounted = {broker for broker, port in ports.items() if port.uncounted()}
        for broker, port in ports.items():
            if port.samples is not None:
                growth = self._traffic.setdefault(broker, RateMeter())
                traffic[broker] = growth.rates(
                    port.read_ms, port.counters(), begins_at_0=broker not in uncounted
                )
        return Rates(
            traffic,
            self._records.rates(reading.read_ms.get(ReadingPart.OFFSETS, 0), reading.ends),
            self._sizes.rates(reading.read_ms.get(ReadingPart.DISKS, 0), sizes),
            uncounted,
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
        for broker, port in ports.items():
            reason = port.uncounted()
            if reason:
                yield f"Bytes in and out of partitions of broker {broker} are unknown: {reason}."


def _found_port(bootstrap: str, alone: ClusterMetadata, expected: ExpectedBroker) -> _PortLook:
    """Look for the admin port of the only broker in `alone`, and read it."""
    with BlockingClient(bootstrap, "tidelog-top", _SEARCH_MS) as client:
        places = find_admin_ports(client, alone)
    address = places.addresses.get(expected.broker)
    return _PortLook(places, None if address is None else _read_port(address, expected))


def _read_port(address: str, expected: ExpectedBroker) -> AdminReading:
    """Return what one admin port returns within _PORT_S; an error stands in the reading."""
    now_s, deadline_s = time.time_ns() // 1_000_000_000, time.monotonic() + _PORT_S

    def left_s() -> float:
        return max(0.001, deadline_s - time.monotonic())

    reason, history = "", None
    try:
        samples = read_metrics(address, METRICS, left_s(), expected)
        read_ms = time.monotonic_ns() // 1_000_000
        reason = read_readiness(address, left_s())
        with contextlib.suppress(AdminPortError):  # an older broker has no history
            history = read_history(address, SERIES, now_s - _FRESH_S, now_s + 1, left_s(), expected)
    except AdminPortError as error:
        return AdminReading(address, 0, None, None, "", str(error))
    return AdminReading(address, read_ms, samples, history, reason, "")
