"""The tables of a frame, from readings of the cluster and of admin ports.

This module reads nothing itself. Each broker counts the bytes of its partitions, and the
coordinator of a group measures the group's lag in seconds, so that the numbers of all brokers are
merged here.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping
from typing import Final, Generic, TypeVar

from tidelog.cli.live.frame import (
    TopBroker,
    TopGroup,
    TopMove,
    TopOutReplica,
    TopPartition,
    TopUnderReplicated,
)
from tidelog.client.cluster import PartitionMetadata
from tidelog.console.readings import ClusterReading
from tidelog.console.views.groups import lag_by_group
from tidelog.console.views.topics import STATES, state_of
from tidelog.core.dataclass import dataclass
from tidelog.core.types import NO_LEADER, TopicPartition
from tidelog.local.admin_ports import INFO, AdminPlaces, HistoryWindow, MetricSamples
from tidelog.local.status import BrokerStatus, brokers_of

K = TypeVar("K", bound=Hashable)

_IN: Final = "tidelog_partition_bytes_in_total"
_OUT: Final = "tidelog_partition_bytes_out_total"
_CPU: Final = "process_cpu_seconds_total"
_IDLE: Final = "kafka_network_socketserver_networkprocessoravgidle_percent"
_CONNECTIONS: Final = "kafka_server_socket_server_metrics_connection_count"
_LOSSES: Final = "kafka_server_sessionexpirelistener_zookeeperexpires_total"
_MEMORY: Final = "process_resident_memory_bytes"
_LAG_S: Final = "tidelog_consumergroup_lag_seconds"
_LEFT_OUT: Final = "tidelog_metrics_partitions_left_out"
#: The metrics of an admin port that a frame needs.
METRICS: Final = (INFO, _IN, _OUT, _CPU, _IDLE, _CONNECTIONS, _LOSSES, _MEMORY, _LAG_S, _LEFT_OUT)

#: Key of a counter in a broker's metrics: name of the metric, topic and partition, as texts. Topic
#: and partition are empty for the CPU time.
Counter = tuple[str, str, str]
CPU_KEY: Final[Counter] = (_CPU, "", "")


@dataclass(frozen=True, slots=True)
class AdminReading:
    """The response of one admin port; `samples` is None, and `error` says why, if it failed."""

    address: str
    read_ms: int
    samples: MetricSamples | None
    history: HistoryWindow | None
    #: Why the broker is not ready; empty for a ready broker.
    reason: str
    error: str

    def counters(self) -> dict[Counter, float]:
        """Return the counters from which rates are computed: CPU time, and bytes by partition."""
        found: dict[Counter, float] = {}
        if self.samples is None:
            return found
        for name in (_IN, _OUT):
            for labels, value in self.samples.by_name.get(name, ()):
                found[name, labels.get("topic", ""), labels.get("partition", "")] = value
        cpu = self.samples.value(_CPU)
        if cpu is not None:
            found[CPU_KEY] = cpu
        return found

    def value(self, name: str) -> float | None:
        """Return the sum of a metric's samples; None if the port has none."""
        samples = () if self.samples is None else self.samples.by_name.get(name, ())
        return sum(value for _, value in samples) if samples else None

    def uncounted(self) -> str:
        """Return why the broker lacks counters of partitions; empty if it has all of them.

        A broker has no counters of a partition without traffic, so a missing counter means 0. For a
        broker that lacks counters for another reason, a missing counter means unknown traffic.
        """
        if self.samples is None:
            return ""
        has_any = any(self.samples.by_name.get(name) for name in (_IN, _OUT, INFO))
        if _IN in self.samples.unknown or not has_any:
            return "its version does not count the bytes of partitions"
        left_out = int(self.value(_LEFT_OUT) or 0)
        if left_out:
            return (
                f"its metrics leave out {left_out:,} replicas, which are beyond the limit of series"
            )
        return ""

    def latest(self, series: str) -> float | None:
        """Return the latest value of a series of the broker's history."""
        values = () if self.history is None else self.history.series.get(series, ())
        return next((each for each in reversed(values) if each is not None), None)


class RateMeter(Generic[K]):
    """The growth per second of counters and other numbers, between their two latest readings."""

    def __init__(self) -> None:
        self._read_ms = 0
        self._before: dict[K, float] | None = None
        self._rates: dict[K, float] = {}

    def rates(
        self, read_ms: int, values: Mapping[K, float], *, begins_at_0: bool = False
    ) -> Mapping[K, float]:
        """Return the rates between the previous reading and the reading `values` of `read_ms`.

        With `begins_at_0`, a number that the previous reading lacks was 0.
        A number that fell, as after a restart of a broker, has no rate. If `read_ms` is not later
        than the previous reading, the previous rates are returned.
        """
        if self._before is None or read_ms > self._read_ms:
            if self._before is not None:
                missing = 0.0 if begins_at_0 else None
                self._rates = self._grown(
                    read_ms - self._read_ms, self._before, values, missing=missing
                )
            self._read_ms, self._before = read_ms, dict(values)
        return {key: self._rates[key] for key in values if key in self._rates}

    def _grown(
        self,
        passed_ms: int,
        before: Mapping[K, float],
        values: Mapping[K, float],
        *,
        missing: float | None,
    ) -> dict[K, float]:
        found: dict[K, float] = {}
        for key, value in values.items():
            earlier = before.get(key, missing)
            if earlier is not None and value >= earlier:
                found[key] = (value - earlier) * 1000 / passed_ms
        return found


@dataclass(frozen=True, slots=True)
class Rates:
    """Growth per second of each broker's counters, of high watermarks, and of the sizes of logs."""

    counters: Mapping[int, Mapping[Counter, float]]
    records: Mapping[TopicPartition, float]
    sizes: Mapping[TopicPartition, float]
    #: Brokers whose counters of partitions are missing. For any other broker, a missing
    #: counter means that the partition had no traffic there.
    uncounted: Collection[int] = ()

    def bytes_of(self, name: str, tp: TopicPartition) -> float | None:
        """Return a partition's bytes a second, summed over brokers; None if no broker counts it."""
        key = (name, tp.topic, str(tp.partition))
        return total(counted.get(key) for counted in self.counters.values())


def total(values: Iterable[float | None]) -> float | None:
    """Return the sum of the known values; None if none is known."""
    known = [each for each in values if each is not None]
    return sum(known) if known else None


def brokers_in(
    reading: ClusterReading,
    ports: Mapping[int, AdminReading],
    places: AdminPlaces,
    rates: Rates,
) -> list[TopBroker]:
    """Return all brokers by id."""
    if reading.metadata is None:
        return []
    return [
        _broker(each, ports.get(each.id), places, rates) for each in brokers_of(reading.metadata)
    ]


def _broker(
    broker: BrokerStatus,
    port: AdminReading | None,
    places: AdminPlaces,
    rates: Rates,
) -> TopBroker:
    counted = rates.counters.get(broker.id, {})
    summed = {} if broker.id in rates.uncounted else counted
    state, reason = "up", ""
    if not broker.registered:
        state, reason = "down", "the broker is not registered"
    elif port is None:
        reason = places.missing.get(broker.id, "")
    elif port.error:
        reason = port.error
    else:
        state, reason = ("not_ready", port.reason) if port.reason else ("ready", "")
    idle = None if port is None else port.value(_IDLE)
    return TopBroker(
        broker=broker.id,
        state=state,
        reason=reason,
        controller=broker.controller,
        address=f"{broker.host}:{broker.port}" if broker.host else None,
        admin=places.addresses.get(broker.id),
        cpu_cores=counted.get(CPU_KEY, _latest(port, "cpu_cores")),
        loop_turn_p99_ms=_latest(port, "loop_turn_p99_ms"),
        loop_busy=None if idle is None else max(0.0, 1.0 - idle),
        connections=_whole(port, _CONNECTIONS),
        session_losses=_whole(port, _LOSSES),
        memory_bytes=_whole(port, _MEMORY),
        bytes_in_per_s=_bytes(port, summed, _IN, "bytes_in_per_s"),
        bytes_out_per_s=_bytes(port, summed, _OUT, "bytes_out_per_s"),
        leaders=broker.leaders,
        replicas=broker.replicas,
        out_of_sync=broker.out_of_sync,
    )


def _latest(port: AdminReading | None, series: str) -> float | None:
    return None if port is None else port.latest(series)


def _whole(port: AdminReading | None, name: str) -> int | None:
    value = None if port is None else port.value(name)
    return None if value is None else int(value)


def _bytes(
    port: AdminReading | None, rates: Mapping[Counter, float], name: str, series: str
) -> float | None:
    """Return the bytes a second between the two latest looks at a broker's counters.

    Before the second look, and without counters of all partitions, returns the latest value of
    `series` in the broker's own history.
    """
    if CPU_KEY not in rates:
        return _latest(port, series)
    return sum(rate for key, rate in rates.items() if key[0] == name)


def partitions_in(reading: ClusterReading, rates: Rates) -> list[TopPartition]:
    """Return all partitions, those with the most bytes in and out first."""
    if reading.metadata is None:
        return []
    found = [_partition(tp, each, reading, rates) for tp, each in reading.metadata.all_partitions()]
    internal = {each.name for each in reading.metadata.topics.values() if each.is_internal}
    found.sort(
        key=lambda each: (
            -_heat(each),
            -(each.records_in_per_s or 0.0),
            each.topic in internal,
        )
    )
    return found


def _heat(partition: TopPartition) -> float:
    return (partition.bytes_in_per_s or 0.0) + (partition.bytes_out_per_s or 0.0)


def _partition(
    tp: TopicPartition, partition: PartitionMetadata, reading: ClusterReading, rates: Rates
) -> TopPartition:
    has_counters = (
        CPU_KEY in rates.counters.get(partition.leader, {})
        and partition.leader not in rates.uncounted
    )
    bytes_in, bytes_out = rates.bytes_of(_IN, tp), rates.bytes_of(_OUT, tp)
    if has_counters:  # a partition without traffic has no counters
        bytes_in, bytes_out = bytes_in or 0.0, bytes_out or 0.0
    elif bytes_in is None:
        bytes_in = rates.sizes.get(tp)
    return TopPartition(
        topic=tp.topic,
        partition=tp.partition,
        leader=None if partition.leader == NO_LEADER else partition.leader,
        bytes_in_per_s=bytes_in,
        bytes_out_per_s=bytes_out,
        records_in_per_s=rates.records.get(tp),
        high_watermark=reading.ends.get(tp),
    )


def groups_in(reading: ClusterReading, ports: Mapping[int, AdminReading]) -> list[TopGroup]:
    """Return all groups, those with the largest lag first."""
    records, seconds = lag_by_group(reading), _lag_seconds(ports)
    found = [
        TopGroup(
            group=name,
            state=group.listing.state if group.description is None else group.description.state,
            members=None if group.description is None else len(group.description.members),
            coordinator=group.listing.coordinator,
            lag_records=records.get(name),
            lag_s=seconds.get(name),
        )
        for name, group in reading.groups.items()
    ]
    found.sort(key=lambda each: (-(each.lag_records or 0), -(each.lag_s or 0.0), each.group))
    return found


def _lag_seconds(ports: Mapping[int, AdminReading]) -> dict[str, float]:
    """Return the largest lag in seconds of each group's partitions."""
    found: dict[str, float] = {}
    for port in ports.values():
        samples = () if port.samples is None else port.samples.by_name.get(_LAG_S, ())
        for labels, value in samples:
            group = labels.get("consumergroup", "")
            found[group] = max(found.get(group, 0.0), value)
    return found


def moves_in(reading: ClusterReading) -> list[TopMove]:
    """Return the moves under way, then the queue in its order."""
    if reading.moves is None:
        return []
    progress = {each.tp: each for each in reading.progress}
    found = []
    for tp, move in reading.moves.under_way.items():
        now = progress.get(tp)
        found.append(
            TopMove(
                topic=tp.topic,
                partition=tp.partition,
                state="under way" if now is None else str(now.state),
                target=move.target,
                adding=move.adding,
                removing=move.removing,
                done_bytes=None if now is None else now.done_bytes,
                left_bytes=None if now is None else now.left_bytes,
                bytes_per_s=None if now is None else now.rate,
                left_ms=None if now is None else now.left_ms,
                never=now is not None and now.is_never,
                throttle=move.throttle or None,
                reason=move.paused,
            )
        )
    for tp, queued in reading.moves.queued.items():
        found.append(
            TopMove(
                tp.topic, tp.partition, "queued", queued.target, (), (), None, None, None, None,
                False, None, queued.reason,
            )
        )  # fmt: skip
    return found


def under_replicated_in(reading: ClusterReading) -> list[TopUnderReplicated]:
    """Return the partitions with replicas out of the ISR, the worst states first."""
    if reading.metadata is None:
        return []
    found = [
        TopUnderReplicated(
            topic=tp.topic,
            partition=tp.partition,
            state=state_of(each, reading.minimums.get(tp.topic)),
            leader=None if each.leader == NO_LEADER else each.leader,
            replicas=each.replicas,
            isr=each.isr,
            out=[
                _out(broker, tp, each, reading)
                for broker in each.replicas
                if broker not in each.isr
            ],
        )
        for tp, each in reading.metadata.all_partitions()
        if len(each.isr) < len(each.replicas)
    ]
    found.sort(key=lambda each: STATES.index(each.state))
    return found


def _out(
    broker: int, tp: TopicPartition, partition: PartitionMetadata, reading: ClusterReading
) -> TopOutReplica:
    described = reading.described.get(tp)
    replicas = () if described is None else described.replicas
    replica = next((each for each in replicas if each.broker == broker), None)
    if replica is not None and replica.cause is not None:
        return TopOutReplica(
            broker, replica.out_cause, replica.cause.sentence, replica.lag_records,
            replica.out_since_ms,
        )  # fmt: skip
    is_live = reading.metadata is not None and broker in reading.metadata.brokers
    sentence = "cause not known"
    if not is_live:
        sentence = "its broker is not registered"
    elif broker in partition.offline:
        sentence = "its replica is offline"
    return TopOutReplica(broker, None, sentence, None, None)
