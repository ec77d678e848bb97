"""Reads of the parts of a cluster, each with the requests that it needs.

Each function takes a client and the last reading, and returns the new values of some of a reading's
fields. The functions raise the client's errors, which the poller converts to sentences for the
page. A broker that does not respond delays only the requests to this broker.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from tidelog.client.configs import BROKER, TOPIC, ConfigResource
from tidelog.client.event_sentences import read_event
from tidelog.client.fetching import EARLIEST, LATEST
from tidelog.client.groups import GroupListing
from tidelog.client.move_progress import ProgressMeter
from tidelog.client.replica_requests import PartitionReplicas
from tidelog.client.throttles import LISTS, RATES, of_configs
from tidelog.console.readings import ClusterReading, Event, GroupReading
from tidelog.core.errors import ErrorCode, KafkaError, TidelogError
from tidelog.core.names import CLUSTER_EVENTS
from tidelog.core.types import NO_LEADER, READ_COMMITTED, TopicPartition
from tidelog.local.status import describe_partitions
from tidelog.runtime.blocking import BlockingClient
from tidelog.runtime.blocking_consumer import BlockingConsumer

#: Maximum number of events in memory; the timeline and the chains of causes show no older events.
EVENTS_KEPT: Final = 20_000
#: Maximum number of groups that are described in one round of reads; further groups are only
#: listed.
_GROUPS: Final = 500
#: Maximum number of topics whose settings are read in one round.
_TOPICS: Final = 500
_MINIMUM: Final = "min.insync.replicas"
_DISKS_MS: Final = 2_000
_POLLS: Final = 20
_EVENTS_PARTITION: Final = TopicPartition(CLUSTER_EVENTS, 0)

Fields = dict[str, Any]


class PartNotServed(TidelogError):
    """The error for a part whose requests the brokers do not serve; a page shows the message."""


def read_cluster(client: BlockingClient) -> Fields:
    """Return brokers, topics and partitions."""
    return {"metadata": client.metadata()}


def read_offsets(client: BlockingClient, known: ClusterReading) -> Fields:
    """Return the high watermarks that leaders report, else the last known high watermark."""
    if known.metadata is None:
        return {}
    found = describe_partitions(client, known.metadata)
    ends = {
        TopicPartition(each.topic, each.partition): each.high_watermark
        if each.high_watermark is not None
        else known.ends.get(TopicPartition(each.topic, each.partition))
        for each in found
    }
    return {"ends": {tp: end for tp, end in ends.items() if end is not None}}


def read_replicas(
    client: BlockingClient, known: ClusterReading, wanted: Sequence[TopicPartition]
) -> Fields:
    """Return the replicas of viewed partitions, as the leader or another broker reports them."""
    metadata = known.metadata
    if metadata is None or not metadata.brokers:
        return {}
    by_broker: dict[int, list[TopicPartition]] = {}
    for tp in wanted:
        partition = metadata.partition(tp)
        if partition is not None:
            has_leader = partition.leader in metadata.brokers
            asked = partition.leader if has_leader else min(metadata.brokers)
            by_broker.setdefault(asked, []).append(tp)
    found: dict[TopicPartition, PartitionReplicas] = {}
    for broker, partitions in by_broker.items():
        try:
            found |= client.describe_replicas(broker, partitions)
        except KafkaError as error:
            if error.code is ErrorCode.UNSUPPORTED_VERSION:
                raise PartNotServed(
                    "These brokers do not serve DescribeReplicas, an API of tidelog's own, to this"
                    " listener: log ends of followers, and why a replica is out of the ISR, are not"
                    " known."
                ) from None
            raise
    return {"described": found}


def read_settings(client: BlockingClient, known: ClusterReading, viewed: Iterable[str]) -> Fields:
    """Return min.insync.replicas and throttles of topics that are viewed or under-replicated."""
    if known.metadata is None:
        return {}
    out_of_sync = (
        tp.topic
        for tp, partition in known.metadata.all_partitions()
        if len(partition.isr) < len(partition.replicas)
    )
    names = [
        name for name in dict.fromkeys((*viewed, *out_of_sync)) if name in known.metadata.topics
    ][:_TOPICS]
    resources = [ConfigResource(TOPIC, name) for name in names]
    found = client.describe_all_configs(resources, [_MINIMUM, *LISTS])
    minimums = {
        resource.name: int(value.value)
        for resource, values in found.items()
        for value in values
        if value.name == _MINIMUM and value.value
    }
    throttles = of_configs(found)
    if throttles:
        for broker in known.metadata.brokers:
            resource = ConfigResource(BROKER, str(broker))
            found |= client.describe_all_configs([resource], RATES, with_synonyms=True)
        throttles = of_configs(found)
    return {"minimums": minimums, "throttles": throttles}


def read_groups(client: BlockingClient, known: ClusterReading) -> Fields:
    """Return groups with members and committed offsets.

    Also return the log start offsets of all partitions that have a committed offset.
    """
    if known.metadata is None:
        return {}
    groups: dict[str, GroupReading] = {}
    listings, silent = _listed_groups(client, known)
    for listing in listings:
        if len(groups) >= _GROUPS:
            groups[listing.group] = GroupReading(listing, None, {})
            continue
        try:
            description = client.describe_group(listing.group)
            committed = client.committed(listing.group)
        except KafkaError:  # the group was just deleted, or its coordinator is loading
            groups[listing.group] = GroupReading(listing, None, {})
        else:
            groups[listing.group] = GroupReading(listing, description, committed)
    wanted = dict.fromkeys(
        tp for group in groups.values() for tp in group.committed if tp in known.ends
    )
    starts: Mapping[TopicPartition, int] = known.starts
    if wanted:
        try:
            starts = client.positions(dict.fromkeys(wanted, EARLIEST))
        except TidelogError:  # a leader did not respond: keep the last known starts
            starts = known.starts
    return {"groups": groups, "starts": starts, "silent_coordinators": silent}


def _listed_groups(
    client: BlockingClient, known: ClusterReading
) -> tuple[list[GroupListing], dict[int, str]]:
    """Return the groups of all brokers, and the reasons for which groups may be missing.

    A reason is listed under the id of the broker that coordinates the missing groups.

    A broker that does not respond keeps the groups that it had in the last reading.
    """
    assert known.metadata is not None, "the caller looks for brokers first"
    found: list[GroupListing] = []
    silent: dict[int, str] = {}
    for broker in known.metadata.brokers:
        loading: set[int] = set()
        try:
            found += client.list_groups([broker], loading)
        except TidelogError as error:
            before = (each.listing for each in known.groups.values())
            found += (each for each in before if each.coordinator == broker)
            silent[broker] = str(error)
        if loading:
            silent[broker] = (
                "it still loads groups, as long as a partition of __consumer_offsets that it leads"
                " has too few replicas in sync"
            )
    # A group whose coordinator has just changed may be listed by both.
    return list({each.group: each for each in sorted(found, key=_name)}.values()), silent


def _name(listing: GroupListing) -> str:
    return listing.group


def read_disks(client: BlockingClient, known: ClusterReading) -> Fields:
    """Return the log directories of all brokers, and an error text for each silent broker."""
    if known.metadata is None:
        return {}
    found, silent = [], {}
    for broker in known.metadata.brokers:
        try:
            found += client.describe_log_dirs(broker, None, _DISKS_MS)
        except TidelogError as error:
            silent[broker] = str(error)
    return {"log_dirs": tuple(found), "silent_disks": silent}


class MoveReader:
    """A reader of reassignments, which computes rates and remaining times from its samples."""

    def __init__(self) -> None:
        self._meter = ProgressMeter()

    def __call__(self, client: BlockingClient, now_ms: int) -> Fields:
        """Return the moves under way and queued, and the progress of the moves under way."""
        moves = client.reassignments()
        samples = client.sample_moves().samples if moves.under_way else {}
        return {"moves": moves, "progress": tuple(self._meter.observe(now_ms, samples))}


class EventReader:
    """A reader of the topic of cluster events, which begins with the last EVENTS_KEPT events."""

    def __init__(self) -> None:
        self._events: deque[Event] = deque(maxlen=EVENTS_KEPT)
        self._consumer: BlockingConsumer | None = None

    def __call__(self, client: BlockingClient, known: ClusterReading) -> Fields:
        """Return the events in memory, including all events written since the last call."""
        metadata = known.metadata
        if metadata is None:
            return {}
        partition = metadata.partition(_EVENTS_PARTITION)
        if partition is None:
            raise PartNotServed(
                f"This cluster has no topic {CLUSTER_EVENTS}, so that causes, failovers and the"
                " timeline are not known. tidelog's brokers write the topic after"
                " `tidelog configs alter --brokers -c cluster.events.enable=true`; Apache Kafka's"
                " brokers write none."
            )
        if partition.leader == NO_LEADER:
            raise PartNotServed(f"The topic {CLUSTER_EVENTS} has no leader now.")
        if self._consumer is None:
            self._consumer = _at_last_events(client)
        grown = False
        for _ in range(_POLLS):
            records = self._consumer.poll(max_wait_ms=0)
            if not records:
                break
            grown = True
            self._events.extend(read_event(each.record.value) for each in records)
        return {"events": tuple(self._events)} if grown else {}


def _at_last_events(client: BlockingClient) -> BlockingConsumer:
    start = client.positions({_EVENTS_PARTITION: EARLIEST})[_EVENTS_PARTITION]
    # Without enough replicas in sync, a new leader does not know its high watermark. It serves the
    # records below the high watermark of the leader before it.
    unknown = (ErrorCode.OFFSET_NOT_AVAILABLE,)
    ends = client.list_offsets({_EVENTS_PARTITION: LATEST}, tolerated=unknown)
    end = ends[_EVENTS_PARTITION].offset if ends else start
    consumer = client.consumer(READ_COMMITTED)
    consumer.seek(_EVENTS_PARTITION, max(start, end - EVENTS_KEPT))
    return consumer
