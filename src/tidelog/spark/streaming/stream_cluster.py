"""The cluster as a running stream sees it: partitions, their leaders and ends, and topic ids.

The stream checks the logs with one ListOffsets request per leader. The stream reads metadata again
when a check shows a change, when a check fails, and otherwise once per METADATA_AGE_MS. The stream
detects new partitions and recreated topics even while it idles, because it checks metadata at
intervals. The stream believes that a topic is missing, or that a log ends too early, only after
LOSS_PATIENCE_MS, because brokers that have just started may lack metadata and records.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeVar

from tidelog.client.cluster import ClusterMetadata, TopicMetadata
from tidelog.client.fetching import EARLIEST, LATEST
from tidelog.client.retries import is_retriable
from tidelog.core.errors import ErrorCode, KafkaError, TidelogError
from tidelog.core.types import TopicId, TopicPartition, partitions_text
from tidelog.runtime.blocking import BlockingClient
from tidelog.spark.options import ReadOptions
from tidelog.spark.streaming.offset_json import Offsets
from tidelog.spark.streaming.starts import Starts, resolve_starts

T = TypeVar("T")

METADATA_AGE_MS: Final = 1_000
LOSS_PATIENCE_MS: Final = 3_000
#: Timeout in ms of one ListOffsets check of the log ends. With a longer timeout, the stream would
#: detect the deletion of a topic later.
LOOK_MS: Final = 2_000
_PAUSE_S: Final = 0.1


def monotonic_ms() -> int:
    """Return the time in ms of a clock that never goes back."""
    return time.monotonic_ns() // 1_000_000


class StreamCluster:
    """The partitions that the options select, with the starts and ends of their logs."""

    def __init__(self, options: ReadOptions, loss_patience_ms: int = LOSS_PATIENCE_MS) -> None:
        self._options = options
        self.loss_patience_ms = loss_patience_ms
        self._client = BlockingClient(options.bootstrap, options.client_id, LOOK_MS)
        self._read_at: int | None = None
        self._missing_since: dict[str, int] = {}
        self._topics: dict[str, TopicMetadata] = {}

    def connect(self) -> BlockingClient:
        """Return another client, for use in another thread."""
        return BlockingClient(self._options.bootstrap, self._options.client_id, LOOK_MS)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    # -- topics -----------------------------------------------------------------------------------

    def partitions(self) -> list[TopicPartition]:
        """Return the partitions as of the last read of metadata, in order."""
        assigned = self._options.partitions
        every = [
            TopicPartition(name, number)
            for name, topic in sorted(self._topics.items())
            for number in topic.partitions
        ]
        return every if assigned is None else [tp for tp in every if tp in assigned]

    def topic_ids(self) -> dict[str, TopicId]:
        """Return the ids of the topics that exist."""
        return {name: topic.topic_id for name, topic in self._topics.items()}

    def by_leader(self, offsets: Mapping[TopicPartition, int]) -> dict[int, Offsets]:
        """Return `offsets` grouped by their partitions' leaders, without leaderless partitions."""
        found: dict[int, Offsets] = {}
        for tp, offset in offsets.items():
            topic = self._topics.get(tp.topic)
            partition = None if topic is None else topic.partitions.get(tp.partition)
            if partition is not None and partition.leader >= 0:
                found.setdefault(partition.leader, {})[tp] = offset
        return found

    def starts(self) -> Starts:
        """Return where a new query starts.

        Raises KafkaError for a topic or partition that does not exist, OptionError, DataLossError.
        """
        begun = monotonic_ms()
        self._with_patience(self.read_topics)
        while absent := [name for name in self._expected() if name not in self._topics]:
            if monotonic_ms() - begun >= self.loss_patience_ms:
                raise KafkaError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    f"topic {absent[0]!r} at {self._options.bootstrap} cannot be read",
                )
            self._pause()
            self._with_patience(self.read_topics)
        partitions = self.partitions()
        for tp in self._options.partitions or ():
            if tp not in partitions:
                count = len(self._topics[tp.topic].partitions)
                raise KafkaError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    f"option assign names {tp}; topic {tp.topic!r} has {partitions_text(count)}",
                )
        options = self._options
        return self._with_patience(
            lambda: resolve_starts(
                self._client.list_offsets,
                partitions,
                options.starting,
                options.isolation_level,
                fail_on_data_loss=options.fail_on_data_loss,
            )
        )

    def read_topics(self) -> None:
        """Read metadata again; a missing topic is kept until LOSS_PATIENCE_MS is over."""
        pattern = self._options.pattern
        expected = self._expected()
        metadata = self._client.metadata(None if pattern is not None else expected)
        found = {name: topic for name, topic in metadata.topics.items() if _is_there(topic)}
        if pattern is not None:
            found = {
                name: topic
                for name, topic in found.items()
                if pattern.search(name) and not topic.is_internal
            }
            expected = sorted(self._topics)
        for name in {*expected, *self._topics}:
            if name in found and not self._lacks_partitions(found[name]):
                self._missing_since.pop(name, None)
            elif name in found or self._is_missing(metadata, name):
                since = self._missing_since.setdefault(name, monotonic_ms())
                if monotonic_ms() - since < self.loss_patience_ms:
                    self._keep(name, found)
                else:
                    del self._missing_since[name]
            else:
                self._keep(name, found)
        self._topics = found
        self._read_at = monotonic_ms()

    @property
    def is_outdated(self) -> bool:
        """Whether to read the topics again, because their metadata is old or a topic is missing."""
        read_at = self._read_at
        return (
            read_at is None
            or bool(self._missing_since)
            or monotonic_ms() - read_at >= METADATA_AGE_MS
        )

    def _expected(self) -> list[str]:
        if self._options.partitions is not None:
            return sorted({tp.topic for tp in self._options.partitions})
        return sorted(self._options.topics or ())

    def _keep(self, name: str, found: dict[str, TopicMetadata]) -> None:
        if name in self._topics:
            found[name] = self._topics[name]

    def _lacks_partitions(self, topic: TopicMetadata) -> bool:
        """Return whether new metadata of the same topic id has fewer partitions than before."""
        kept = self._topics.get(topic.name)
        return (
            kept is not None
            and kept.topic_id == topic.topic_id
            and not kept.partitions.keys() <= topic.partitions.keys()
        )

    def _is_missing(self, metadata: ClusterMetadata, name: str) -> bool:
        topic = metadata.topics.get(name)
        return topic is None or topic.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    # -- logs -------------------------------------------------------------------------------------

    def latest(self) -> Offsets:
        """Return the ends of all logs; after a failure, read the metadata again before a retry."""

        def look() -> Offsets:
            try:
                return self._listed(self.partitions(), LATEST)
            except TidelogError:
                self.read_topics()  # a retry needs the partitions' current leaders
                raise

        return self._with_patience(look)

    def earliest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """Return the log starts of the given partitions."""
        wanted = list(partitions)
        return self._with_patience(lambda: self._listed(wanted, EARLIEST))

    def _listed(self, partitions: list[TopicPartition], which: int) -> Offsets:
        if not partitions:
            return {}
        listed = self._client.list_offsets(
            dict.fromkeys(partitions, which), self._options.isolation_level
        )
        return {tp: each.offset for tp, each in listed.items()}

    def _with_patience(self, do: Callable[[], T]) -> T:
        """Return what `do` returns; retry transient errors until the time limit of the options."""
        give_up = monotonic_ms() + self._options.timeout_ms
        while True:
            try:
                return do()
            except TidelogError as error:
                if not is_retriable(error) or monotonic_ms() >= give_up:
                    raise
            self._pause()

    def _pause(self) -> None:
        time.sleep(_PAUSE_S)


def _is_there(topic: TopicMetadata) -> bool:
    return topic.error is ErrorCode.NONE and bool(topic.partitions)
