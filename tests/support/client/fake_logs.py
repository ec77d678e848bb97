"""A fake cluster whose partitions hold batches: enough of a log to fetch from."""

from __future__ import annotations

from tests.support.client.fake_cluster import FakeCluster

from tidelog.core.types import TopicPartition
from tidelog.records.batch import BatchView
from tidelog.records.builder import NewRecord, Producer, build_batch
from tidelog.records.reader import iter_records
from tidelog.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from tidelog.wire.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from tidelog.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tidelog.wire.registry import DESCRIBE_CONFIGS, FETCH, LIST_OFFSETS

_LATEST = -1
_EARLIEST = -2
_OFFSET_OUT_OF_RANGE = 1
_UNKNOWN_TOPIC_ID = 100


def batch(base_offset: int, *values: bytes, producer: int = -1) -> bytes:
    """Return a batch with these values; a producer id makes it transactional."""
    records = [NewRecord(None, value, 1_000) for value in values]
    return bytes(
        build_batch(
            records,
            base_offset=base_offset,
            leader_epoch=0,
            producer=Producer(producer, 0, 0) if producer >= 0 else Producer(),
            transactional=producer >= 0,
        )
    )


class FakeLogs(FakeCluster):
    """One broker that leads everything. Offsets are as the batches have them."""

    def __init__(self) -> None:
        super().__init__(1)
        self.batches: dict[TopicPartition, list[bytes]] = {}
        self.log_starts: dict[TopicPartition, int] = {}
        #: Ends for read_committed, where a transaction is open; aborted ones as (producer, first).
        self.last_stable: dict[TopicPartition, int] = {}
        self.aborted: dict[TopicPartition, list[tuple[int, int]]] = {}
        #: Batches in one answer.
        self.batches_per_answer = 2
        #: Stored settings by (type, name) of the resource: key to (value, source).
        self.configs: dict[tuple[int, str], dict[str, tuple[str, int]]] = {}
        self[1].on(DESCRIBE_CONFIGS, self._describe_configs)
        self[1].on(FETCH, self._fetch)
        self[1].on(LIST_OFFSETS, self._list_offsets)

    def create(self, topic: str, partitions: int) -> None:
        self.topics[topic] = [1] * partitions
        for number in range(partitions):
            self.batches[TopicPartition(topic, number)] = []

    def append(self, tp: TopicPartition, *batches: bytes) -> None:
        self.batches[tp] += batches

    def end(self, tp: TopicPartition) -> int:
        held = self.batches[tp]
        return BatchView(held[-1]).next_offset if held else 0

    def _describe_configs(self, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
        results = []
        for each in request.resources:
            found = self.configs.get((each.resource_type, each.resource_name), {})
            configs = [
                DescribeConfigsResourceResult(
                    name=key,
                    value=value,
                    config_source=source,
                    synonyms=[DescribeConfigsSynonym(key, value, source)]
                    if request.include_synonyms
                    else [],
                )
                for key, (value, source) in found.items()
                if each.configuration_keys is None or key in each.configuration_keys
            ]
            results.append(
                DescribeConfigsResult(
                    resource_type=each.resource_type,
                    resource_name=each.resource_name,
                    configs=configs,
                )
            )
        return DescribeConfigsResponse(results=results)

    def _list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        topics = []
        for topic in request.topics:
            answers = []
            for each in topic.partitions:
                tp = TopicPartition(topic.name, each.partition_index)
                offset = self._offset(tp, each.timestamp, request.isolation_level)
                answers.append(
                    ListOffsetsPartitionResponse(
                        partition_index=tp.partition, error_code=0, offset=offset
                    )
                )
            topics.append(ListOffsetsTopicResponse(topic.name, answers))
        return ListOffsetsResponse(topics=topics)

    def _offset(self, tp: TopicPartition, timestamp: int, isolation_level: int) -> int:
        end = self.last_stable.get(tp, self.end(tp)) if isolation_level else self.end(tp)
        if timestamp == _EARLIEST:
            return self.log_starts.get(tp, 0)
        if timestamp == _LATEST:
            return end
        for held in self.batches[tp]:
            for record in iter_records(BatchView(held)):
                if record.timestamp_ms >= timestamp and record.offset < end:
                    return record.offset
        return -1

    def _fetch(self, request: FetchRequest) -> FetchResponse:
        responses = []
        names = {self.topic_id(name): name for name in self.topics}
        for topic in request.topics:
            answer = FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id)
            for each in topic.partitions:
                if topic.topic_id not in names:
                    unknown = PartitionData(each.partition, _UNKNOWN_TOPIC_ID, -1)
                    answer.partitions.append(unknown)
                    continue
                tp = TopicPartition(names[topic.topic_id], each.partition)
                found = self._records(tp, each.fetch_offset, request.isolation_level)
                answer.partitions.append(found)
            responses.append(answer)
        return FetchResponse(responses=responses)

    def _records(self, tp: TopicPartition, offset: int, isolation_level: int) -> PartitionData:
        start, end = self.log_starts.get(tp, 0), self.end(tp)
        data = PartitionData(
            partition_index=tp.partition,
            high_watermark=end,
            last_stable_offset=self.last_stable.get(tp, end),
            log_start_offset=start,
            aborted_transactions=[AbortedTransaction(*each) for each in self.aborted.get(tp, [])],
        )
        if not start <= offset <= end:
            data.error_code = _OFFSET_OUT_OF_RANGE
            return data
        limit = data.last_stable_offset if isolation_level else end
        found = [each for each in self.batches[tp] if offset <= BatchView(each).last_offset < limit]
        data.records = b"".join(found[: self.batches_per_answer])
        return data
