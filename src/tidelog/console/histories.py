"""The last 24 hours: metrics of brokers, from their admin ports, and record counts of topics.

A broker keeps its main metrics of the last day in memory, and serves them at `/history` of its
admin port. Charts therefore also show the time before the console's start. Brokers keep no metrics
of single topics. The number of a topic's records by time comes from ListOffsets: the first offsets
at two times differ by the number of records between the times.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from tidelog.client.cluster import TopicMetadata
from tidelog.console.readings import BrokerHistory, ClusterReading
from tidelog.core.types import NO_LEADER, TopicPartition
from tidelog.local.admin_ports import (
    AdminPlaces,
    AdminPortError,
    ExpectedBroker,
    HistoryWindow,
    find_admin_ports,
    read_history,
)
from tidelog.runtime.blocking import BlockingClient

#: The series that pages show.
SERIES: Final = (
    "bytes_in_per_s",
    "bytes_out_per_s",
    "replication_bytes_in_per_s",
    "records_in_per_s",
    "under_replicated",
    "acknowledged_p99_ms",
    "loop_turn_p99_ms",
    "cpu_cores",
    "memory_bytes",
)
DAY_S: Final = 86_400
#: Length in s of the end of a chart, which shows the values at the shortest interval that brokers
#: keep.
RECENT_S: Final = 900
#: Time in s after which a broker's history of the whole day is read again; `_SEARCH_AGAIN_S` is the
#: time after which missing admin ports are looked for again.
_DAY_AGAIN_S: Final = 120.0
_SEARCH_AGAIN_S: Final = 30.0
_PORT_S: Final = 2.0
#: Time in ms for a broker to return the address of its admin port.
_SEARCH_MS: Final = 2_000
_THREADS: Final = 8
#: Interval in ms between the times for which the offsets of topics are looked up.
TOPIC_STEP_MS: Final = 1_800_000
_DAY_MS: Final = DAY_S * 1_000
#: Maximum number of offset lookups in one call of TopicDayReader; later calls make the remaining
#: lookups.
_LOOKUPS: Final = 12
#: A topic with more partitions has no chart of the day, because a lookup costs a search in each
#: partition's log.
_PARTITIONS: Final = 200
_TOPICS: Final = 20


class HistoryReader:
    """Reader of the histories of all brokers; it reads the whole day only every _DAY_AGAIN_S."""

    def __init__(self) -> None:
        self._places = AdminPlaces({}, {})
        self._days: dict[int, HistoryWindow] = {}
        self._read_s, self._searched_s = -_DAY_AGAIN_S, -_SEARCH_AGAIN_S
        self._threads = ThreadPoolExecutor(_THREADS, "history")

    def __call__(self, client: BlockingClient, known: ClusterReading, now_s: int) -> dict[str, Any]:
        """Return each broker's history, and for brokers that did not respond the reason.

        The history of a broker that does not respond stays as it was last read.
        """
        metadata = known.metadata
        if metadata is None:
            return {}
        self._search(client, known)
        silent = {
            key: text for key, text in self._places.missing.items() if key in metadata.brokers
        }
        asked = {
            broker: address
            for broker, address in self._places.addresses.items()
            if broker in metadata.brokers
        }
        is_due = time.monotonic() - self._read_s >= _DAY_AGAIN_S
        if is_due:
            self._read_s = time.monotonic()
        wanted = [
            (address, ExpectedBroker(metadata.cluster_id, broker), broker not in self._days)
            for broker, address in asked.items()
        ]
        found = self._threads.map(
            lambda each: _read(each[0], each[1], now_s, has_day=is_due or each[2]), wanted
        )
        histories = dict(known.histories)
        for broker, result in zip(asked, found, strict=True):
            if isinstance(result, AdminPortError):
                # Forget the address, so that a port that hangs does not cost every later call its
                # time limit. The broker may also have another address by now.
                silent[broker] = str(result)
                self._places = _without(self._places, broker, str(result))
                continue
            day, recent = result
            if day is not None:
                self._days[broker] = day
            histories[broker] = BrokerHistory(self._days[broker], recent)
        return {"histories": histories, "silent_histories": silent}

    def _search(self, client: BlockingClient, known: ClusterReading) -> None:
        """Look for unknown admin ports of brokers: at once for a new broker, else at intervals."""
        assert known.metadata is not None, "the caller looks for brokers first"
        unknown = set(known.metadata.brokers) - set(self._places.addresses)
        is_due = time.monotonic() - self._searched_s >= _SEARCH_AGAIN_S
        if not unknown or not (is_due or unknown - set(self._places.missing)):
            return
        self._searched_s = time.monotonic()
        timeout_ms = client.timeout_ms
        try:
            client.timeout_ms = min(timeout_ms, _SEARCH_MS)
            self._places = find_admin_ports(client, known.metadata, self._places.addresses)
        finally:
            client.timeout_ms = timeout_ms


def _read(
    address: str, expected: ExpectedBroker, now_s: int, *, has_day: bool
) -> tuple[HistoryWindow | None, HistoryWindow] | AdminPortError:
    """Return the metrics of the day (None without `has_day`) and of the last minutes.

    Returns the error if the admin port at `address` serves neither, or is another broker's.
    """

    def since(seconds: int) -> HistoryWindow:
        return read_history(address, SERIES, now_s - seconds, now_s + 1, _PORT_S, expected)

    try:
        return since(DAY_S) if has_day else None, since(RECENT_S)
    except AdminPortError as error:
        return error


def _without(places: AdminPlaces, broker: int, reason: str) -> AdminPlaces:
    """Return `places` without the address of a broker's admin port, but with a reason for this."""
    addresses = {key: address for key, address in places.addresses.items() if key != broker}
    return AdminPlaces(addresses, {**places.missing, broker: reason})


class TopicDayReader:
    """Reader of the number of records in viewed topics at each half hour of the last day."""

    def __init__(self) -> None:
        #: By topic and time in ms: the number of records up to this time, which is the sum of the
        #: partitions' offsets.
        self._offsets: dict[str, dict[int, int]] = {}

    def __call__(
        self, client: BlockingClient, known: ClusterReading, topics: Iterable[str], now_ms: int
    ) -> dict[str, Any]:
        """Return (time in ms, records up to it) of each viewed topic, oldest first."""
        if known.metadata is None:
            return {}
        last_ms = now_ms // TOPIC_STEP_MS * TOPIC_STEP_MS
        times = range(last_ms - _DAY_MS, last_ms + 1, TOPIC_STEP_MS)
        lookups, kept = 0, {}
        for name in list(dict.fromkeys(topics))[:_TOPICS]:
            topic = known.metadata.topics.get(name)
            if topic is None or not _has_day(topic):
                continue
            found = kept[name] = {
                at_ms: records
                for at_ms, records in self._offsets.get(name, {}).items()
                if at_ms in times
            }
            for at_ms in times:
                if at_ms not in found and lookups < _LOOKUPS:
                    lookups += 1
                    found[at_ms] = _records_before(client, known, topic, at_ms)
        self._offsets = kept
        return {"topic_days": {name: tuple(sorted(found.items())) for name, found in kept.items()}}


def _has_day(topic: TopicMetadata) -> bool:
    """Return whether a topic has a chart of the day: few partitions, each of which has a leader."""
    partitions = topic.partitions.values()
    return len(partitions) <= _PARTITIONS and all(each.leader != NO_LEADER for each in partitions)


def _records_before(
    client: BlockingClient, known: ClusterReading, topic: TopicMetadata, at_ms: int
) -> int:
    """Return the sum, over the partitions, of the first offset whose record is not before `at_ms`.

    A partition without such a record counts with the end of its log.
    """
    wanted = {TopicPartition(topic.name, number): at_ms for number in topic.partitions}
    listed = client.list_offsets(wanted)
    return sum(
        each.offset if each.offset >= 0 else known.ends.get(tp, 0) for tp, each in listed.items()
    )
