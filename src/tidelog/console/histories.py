"""The last 24 hours: of brokers from the rings of their admin ports, of topics from their logs.

A broker keeps its main metrics of a day (`/history`), so that charts do not begin with the console.
The rings have no series of single topics. A topic's records by time are in its log: ListOffsets
returns the first offset at a time, and the growth between two times is the number of records.
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
#: How far back charts have the fine grain of the rings.
RECENT_S: Final = 900
#: Time in s after which the day is read again, and after which missing admin ports are looked for.
_DAY_AGAIN_S: Final = 120.0
_SEARCH_AGAIN_S: Final = 30.0
_PORT_S: Final = 2.0
#: Time in ms for a broker to return the address of its admin port.
_SEARCH_MS: Final = 2_000
_THREADS: Final = 8
#: Distance of the times at which the offsets of topics are looked up.
TOPIC_STEP_MS: Final = 1_800_000
_DAY_MS: Final = DAY_S * 1_000
#: Most lookups of a topic's offsets in one round: further ones follow in the next rounds.
_LOOKUPS: Final = 12
#: A topic with more partitions has no day: each lookup costs each of its leaders a search.
_PARTITIONS: Final = 200
_TOPICS: Final = 20


class HistoryReader:
    """Reads of the histories of all brokers, of the whole day only from time to time."""

    def __init__(self) -> None:
        self._places = AdminPlaces({}, {})
        self._days: dict[int, HistoryWindow] = {}
        self._read_s, self._searched_s = -_DAY_AGAIN_S, -_SEARCH_AGAIN_S
        self._threads = ThreadPoolExecutor(_THREADS, "history")

    def __call__(self, client: BlockingClient, known: ClusterReading, now_s: int) -> dict[str, Any]:
        """Return the histories, and why brokers have none; a silent broker keeps its last one."""
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
            (address, is_due or broker not in self._days) for broker, address in asked.items()
        ]
        found = self._threads.map(lambda each: _read(each[0], now_s, has_day=each[1]), wanted)
        histories = dict(known.histories)
        for broker, result in zip(asked, found, strict=True):
            if isinstance(result, AdminPortError):
                # A port that hangs costs one round its time limit, and not each round. The broker
                # may also have another address by now.
                silent[broker] = str(result)
                self._places = _without(self._places, broker, str(result))
                continue
            day, recent = result
            if day is not None:
                self._days[broker] = day
            histories[broker] = BrokerHistory(self._days[broker], recent)
        return {"histories": histories, "silent_histories": silent}

    def _search(self, client: BlockingClient, known: ClusterReading) -> None:
        """Look for the admin ports of brokers that have none yet, or that are new."""
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
    address: str, now_s: int, *, has_day: bool
) -> tuple[HistoryWindow | None, HistoryWindow] | AdminPortError:
    """Return the day if it is wanted, and the last minutes; or why the port has neither."""
    try:
        day = read_history(address, SERIES, now_s - DAY_S, now_s + 1, _PORT_S) if has_day else None
        return day, read_history(address, SERIES, now_s - RECENT_S, now_s + 1, _PORT_S)
    except AdminPortError as error:
        return error


def _without(places: AdminPlaces, broker: int, reason: str) -> AdminPlaces:
    """Return places in which a broker's admin port is not known, for this reason."""
    addresses = {key: address for key, address in places.addresses.items() if key != broker}
    return AdminPlaces(addresses, {**places.missing, broker: reason})


class TopicDayReader:
    """Reads of how many records the logs of viewed topics had at each half hour of the last day."""

    def __init__(self) -> None:
        #: The sum of the partitions' offsets at each time, by topic.
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
    """Return whether offsets may be looked up: every partition of the topic has a leader."""
    partitions = topic.partitions.values()
    return len(partitions) <= _PARTITIONS and all(each.leader != NO_LEADER for each in partitions)


def _records_before(
    client: BlockingClient, known: ClusterReading, topic: TopicMetadata, at_ms: int
) -> int:
    """Return the sum of the first offsets at a time; the end of a log that has no later record."""
    wanted = {TopicPartition(topic.name, number): at_ms for number in topic.partitions}
    listed = client.list_offsets(wanted)
    return sum(
        each.offset if each.offset >= 0 else known.ends.get(tp, 0) for tp, each in listed.items()
    )
