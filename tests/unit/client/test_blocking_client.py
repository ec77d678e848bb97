"""The blocking client against scripted brokers: routing, retries, versions, what is repeated."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest
from tests.support.client.fake_cluster import CLOSE, FakeCluster

from tidelog.client.producing import OutcomeUnknownError
from tidelog.client.steps import NotSent
from tidelog.core.errors import ErrorCode, KafkaError, ProtocolError, RequestTimeout
from tidelog.core.types import TopicPartition
from tidelog.runtime.blocking import BlockingClient
from tidelog.wire.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from tidelog.wire.messages.delete_topics import DeletableTopicResult, DeleteTopicsResponse
from tidelog.wire.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from tidelog.wire.messages.init_producer_id import InitProducerIdResponse
from tidelog.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tidelog.wire.messages.metadata import MetadataRequest
from tidelog.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from tidelog.wire.registry import (
    API_VERSIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    FETCH,
    INIT_PRODUCER_ID,
    LIST_OFFSETS,
    METADATA,
    PRODUCE,
)

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)
#: A batch header's worth of bytes, without and with a producer id.
PLAIN_BATCH = bytes(43) + b"\xff" * 8 + bytes(20)
IDEMPOTENT_BATCH = bytes(43) + (7).to_bytes(8, "big") + bytes(20)


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    fakes = FakeCluster(2)
    fakes.topics["t"] = [1, 2]
    yield fakes
    fakes.close()


@pytest.fixture
def client(cluster: FakeCluster) -> Iterator[BlockingClient]:
    with BlockingClient(cluster.bootstrap, timeout_ms=5_000) as blocking:
        yield blocking


def offsets_answer(topic: str, partition: int, offset: int, error: int = 0) -> ListOffsetsResponse:
    each = ListOffsetsPartitionResponse(
        partition_index=partition, error_code=error, offset=offset, leader_epoch=3
    )
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(topic, [each])])


def fetch_answer(
    cluster: FakeCluster, partition: int, error: int = 0, records: bytes = b""
) -> FetchResponse:
    data = PartitionData(
        partition_index=partition,
        error_code=error,
        high_watermark=9,
        last_stable_offset=8,
        log_start_offset=2,
        aborted_transactions=[AbortedTransaction(5, 3)],
        records=records,
    )
    topic = FetchableTopicResponse(topic="t", topic_id=cluster.topic_id("t"), partitions=[data])
    return FetchResponse(responses=[topic])


def produce_answer(
    error: int = 0, base_offset: int = 40, message: str | None = None
) -> ProduceResponse:
    each = PartitionProduceResponse(
        index=0, error_code=error, base_offset=base_offset, error_message=message
    )
    return ProduceResponse(responses=[TopicProduceResponse("t", [each])])


class TestMetadata:
    def test_tells_brokers_controller_topics_and_errors(
        self, cluster: FakeCluster, client: BlockingClient
    ) -> None:
        metadata = client.metadata(["t", "missing"])
        assert list(metadata.brokers) == [1, 2]
        assert metadata.brokers[2].port == cluster[2].port
        assert (metadata.controller_id, metadata.cluster_id) == (1, "fake")
        partition = metadata.topics["t"].partitions[1]
        assert (partition.leader, partition.replicas, partition.isr) == (2, (1, 2), (1, 2))
        assert metadata.topics["missing"].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert [tp for tp, _ in metadata.all_partitions()] == [T0, T1]

    def test_never_creates_a_topic_by_looking(
        self, cluster: FakeCluster, client: BlockingClient
    ) -> None:
        client.metadata()
        client.metadata(["missing"])
        asked = cluster[1].asked(METADATA)
        assert asked[0].topics is None
        assert [each.allow_auto_topic_creation for each in asked] == [False, False]

    def test_asks_the_next_broker_when_one_is_gone(self, cluster: FakeCluster) -> None:
        cluster.brokers[0].close()
        with BlockingClient(cluster.bootstrap, timeout_ms=2_000) as client:
            assert list(client.metadata().brokers) == [1, 2]
        assert len(cluster[2].asked(METADATA)) == 1

    def test_asks_a_broker_learnt_of_when_the_bootstrap_one_is_gone(
        self, cluster: FakeCluster
    ) -> None:
        with BlockingClient(cluster[1].bootstrap, timeout_ms=2_000) as client:
            client.metadata()
            cluster[1].close()
            client.metadata()
        assert len(cluster[2].asked(METADATA)) == 1

    def test_names_every_address_when_nobody_answers(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
        with (
            BlockingClient(f"127.0.0.1:{port}", timeout_ms=100) as client,
            pytest.raises(NotSent, match=f"no broker answers.*127.0.0.1:{port}.*refused"),
        ):
            client.metadata()

    def test_a_host_name_that_cannot_be_one_is_an_error_and_no_crash(self) -> None:
        with BlockingClient("a..b:1", timeout_ms=50) as client, pytest.raises(NotSent):
            client.metadata()

    def test_a_server_that_is_no_broker_is_named(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:

            def answer() -> None:
                connection, _ = server.accept()
                with connection:
                    connection.recv(1024)
                    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

            thread = threading.Thread(target=answer)
            thread.start()
            bootstrap = f"127.0.0.1:{server.getsockname()[1]}"
            with (
                BlockingClient(bootstrap, timeout_ms=30_000) as client,
                pytest.raises(ProtocolError, match="is it a Kafka broker"),
            ):
                client.metadata()
            thread.join()


class TestVersions:
    def test_speaks_the_highest_version_that_both_know(
        self, cluster: FakeCluster, client: BlockingClient
    ) -> None:
        cluster[1].served[METADATA] = (0, 7)
        client.metadata()
        assert cluster[1].versions_asked(METADATA) == [7]

    def test_reads_the_ranges_of_a_broker_older_than_our_api_versions(
        self, cluster: FakeCluster, client: BlockingClient
    ) -> None:
        cluster[1].served[API_VERSIONS] = (0, 2)
        cluster[1].served[METADATA] = (0, 8)
        client.metadata()
        assert cluster[1].versions_asked(METADATA) == [8]

    def test_no_version_in_common_names_both_ranges(
        self, cluster: FakeCluster, client: BlockingClient
    ) -> None:
        cluster[1].served[LIST_OFFSETS] = (10, 11)
        with pytest.raises(KafkaError, match=r"serves ListOffsets 10 to 11.*needs 0 to 9") as info:
            client.list_offsets({T0: -1})
        assert info.value.code is ErrorCode.UNSUPPORTED_VERSION

    def test_an_api_that_is_not_served_is_named(
        self, cluster: FakeCluster, client: BlockingClient
    ) -> None:
        del cluster[1].served[INIT_PRODUCER_ID]
        with pytest.raises(KafkaError, match="does not serve InitProducerId"):
            client.init_producer_id()


class TestTopics:
    def test_creation_goes_to_the_controller(
        self, cluster: FakeCluster, client: BlockingClient
    ) -> None:
        cluster.controller_id = 2
        result = CreatableTopicResult(name="n", topic_id=b"i" * 16, error_message=None, configs=[])
        cluster[2].script(CREATE_TOPICS, CreateTopicsResponse(topics=[result]))
        topic_id = client.create_topic("n", 3, 2, {"min.insync.replicas": "2"})
        assert topic_id == b"i" * 16
        (request,) = cluster[2].asked(CREATE_TOPICS)
        (topic,) = request.topics
        assert (topic.name, topic.num_partitions, topic.replication_factor) == ("n", 3, 2)
        assert [(c.name, c.value) for c in topic.configs] == [("min.insync.replicas", "2")]

    def test_an_assignment_replaces_the_counts(
        self, cluster: FakeCluster, client: BlockingClient
    ) -> None:
        result = CreatableTopicResult(name="n", error_message=None, configs=[])
        cluster[1].script(CREATE_TOPICS, CreateTopicsResponse(topics=[result]))
        client.create_topic("n", assignment={1: [2], 0: [1, 2]})
        (topic,) = cluster[1].asked(CREATE_TOPICS)[0].topics
        assert (topic.num_partitions, topic.replication_factor) == (-1, -1)
        assert [(a.partition_index, list(a.broker_ids)) for a in topic.assignments] == [
            (0, [1, 2]),
            (1, [2]),
        ]

    def test_a_moved_controller_is_looked_up_again(
        self, cluster: FakeCluster, client: BlockingClient
    ) -> None:
        def not_controller(_: object) -> CreateTopicsResponse:
            cluster.controller_id = 2
            result = CreatableTopicResult(name="n", error_code=41, error_message=None, configs=[])
            return CreateTopicsResponse(topics=[result])

        done = CreatableTopicResult(name="n", error_message=None, configs=[])
        cluster[1].on(CREATE_TOPICS, not_controller)
        cluster[2].script(CREATE_TOPICS, CreateTopicsResponse(topics=[done]))
        client.create_topic("n", 1, 1)
        assert len(cluster[2].asked(CREATE_TOPICS)) == 1

    def test_a_refusal_carries_the_brokers_reason(
        self, cluster: FakeCluster, client: BlockingClient
    ) -> None:
        reason = "replication factor 3 is larger than the 2 live brokers"
        result = CreatableTopicResult(name="n", error_code=38, error_message=reason, configs=[])
        cluster[1].script(CREATE_TOPICS, CreateTopicsResponse(topics=[result]))
        with pytest.raises(KafkaError, match=reason) as info:
            client.create_topic("n", 1, 3)
        assert info.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
        assert len(cluster[1].asked(CREATE_TOPICS)) == 1

    def test_exists_already_is_success_after_a_try_of_unknown_outcome(
        self, cluster: FakeCluster, client: BlockingClient
    ) -> None:
        exists = CreatableTopicResult(name="t", error_code=36, error_message=None, configs=[])
        cluster[1].script(CREATE_TOPICS, CLOSE, CreateTopicsResponse(topics=[exists]))
        assert client.create_topic("t", 2, 2) == cluster.topic_id("t")

    @pytest.mark.parametrize(("first", "partitions"), [(CLOSE, 5), (None, 2)])
    def test_exists_already_is_an_error_for_another_topic_or_a_first_try(
        self, cluster: FakeCluster, client: BlockingClient, first: object, partitions: int
    ) -> None:
        exists = CreatableTopicResult(name="t", error_code=36, error_message=None, configs=[])
        answers = [CreateTopicsResponse(topics=[exists])]
        cluster[1].script(CREATE_TOPICS, *([first] if first else []), *answers)
        with pytest.raises(KafkaError) as info:
            client.create_topic("t", partitions, 2)
        assert info.value.code is ErrorCode.TOPIC_ALREADY_EXISTS

    def test_deletion_goes_to_the_controller_at_either_form_of_the_request(
        self, cluster: FakeCluster, client: BlockingClient
    ) -> None:
        deleted = DeletableTopicResult(name="t")
        cluster[1].script(DELETE_TOPICS, DeleteTopicsResponse(responses=[deleted]))
        client.delete_topic("t")
        assert cluster[1].asked(DELETE_TOPICS)[0].topics[0].name == "t"
        cluster[1].served[DELETE_TOPICS] = (1, 5)
        client.close()
        client.delete_topic("t")
        assert list(cluster[1].asked(DELETE_TOPICS)[1].topic_names) == ["t"]

    def test_deleting_what_is_not_there_fails_at_once_unless_a_try_may_have_done_it(
        self, cluster: FakeCluster, client: BlockingClient
    ) -> None:
        unknown = DeleteTopicsResponse(responses=[DeletableTopicResult(name="t", error_code=3)])
        cluster[1].script(DELETE_TOPICS, unknown)
        with pytest.raises(KafkaError, match="there is no topic 't'"):
            client.delete_topic("t")
        assert len(cluster[1].asked(DELETE_TOPICS)) == 1
        cluster[1].script(DELETE_TOPICS, CLOSE, unknown)
        client.delete_topic("t")

    def test_waits_until_partitions_have_leaders(
        self, cluster: FakeCluster, client: BlockingClient
    ) -> None:
        cluster.topics["t"] = [1, -1]
        seen = len(cluster[1].asked(METADATA))

        def elect_later(request: MetadataRequest) -> object:
            if len(cluster[1].asked(METADATA)) > seen + 2:
                cluster.topics["t"] = [1, 1]
            return cluster._metadata(request)

        cluster[1].on(METADATA, elect_later)
        assert client.await_topic("t", min_isr=2).partitions[1].leader == 1


class TestReading:
    def test_offsets_are_asked_from_each_leader(
        self, cluster: FakeCluster, client: BlockingClient
    ) -> None:
        cluster[1].script(LIST_OFFSETS, offsets_answer("t", 0, 10))
        cluster[2].script(LIST_OFFSETS, offsets_answer("t", 1, 20))
        listed = client.list_offsets({T1: -1, T0: -2})
        assert list(listed) == [T1, T0]
        assert [each.offset for each in listed.values()] == [20, 10]
        asked = cluster[1].asked(LIST_OFFSETS)[0].topics[0].partitions[0]
        assert (asked.timestamp, asked.current_leader_epoch) == (-2, 0)

    def test_a_partition_with_a_tolerated_error_hides_no_other(
        self, cluster: FakeCluster, client: BlockingClient
    ) -> None:
        """A new leader without enough replicas in sync does not know its high watermark (V36)."""
        unknown = ErrorCode.OFFSET_NOT_AVAILABLE
        cluster[1].script(LIST_OFFSETS, offsets_answer("t", 0, -1, unknown))
        cluster[2].script(LIST_OFFSETS, offsets_answer("t", 1, 20))
        listed = client.list_offsets({T0: -1, T1: -1}, tolerated=(unknown,))
        assert {tp: each.offset for tp, each in listed.items()} == {T1: 20}
        assert len(cluster[1].asked(LIST_OFFSETS)) == 1

    def test_a_leader_that_moved_is_followed(
        self, cluster: FakeCluster, client: BlockingClient
    ) -> None:
        def moved(_: object) -> ListOffsetsResponse:
            cluster.topics["t"] = [2, 2]
            return offsets_answer("t", 0, -1, ErrorCode.NOT_LEADER_OR_FOLLOWER)

        cluster[1].on(LIST_OFFSETS, moved)
        cluster[2].script(LIST_OFFSETS, offsets_answer("t", 0, 11))
        assert client.list_offsets({T0: -1})[T0].offset == 11

    def test_a_broken_connection_is_asked_again(
        self, cluster: FakeCluster, client: BlockingClient
    ) -> None:
        cluster[1].script(LIST_OFFSETS, CLOSE, CLOSE, offsets_answer("t", 0, 12))
        assert client.list_offsets({T0: -1})[T0].offset == 12

    def test_a_connection_closed_while_idle_costs_no_retry(
        self, cluster: FakeCluster, client: BlockingClient
    ) -> None:
        cluster[1].script(LIST_OFFSETS, offsets_answer("t", 0, 12))
        client.list_offsets({T0: -1})
        metadata_asked = len(cluster[1].asked(METADATA))
        cluster[1].drop_connections()
        client.list_offsets({T0: -1})
        assert len(cluster[1].asked(LIST_OFFSETS)) == 2
        assert len(cluster[1].asked(METADATA)) == metadata_asked

    def test_gives_up_after_the_timeout_with_the_last_reason(self, cluster: FakeCluster) -> None:
        cluster.topics["t"] = [-1, -1]
        with (
            BlockingClient(cluster.bootstrap, timeout_ms=1000) as client,
            pytest.raises(KafkaError, match="listing offsets failed.*t-0 has no live leader"),
        ):
            client.list_offsets({T0: -1})

    def test_an_unknown_partition_tells_which_there_are(self, cluster: FakeCluster) -> None:
        with (
            BlockingClient(cluster.bootstrap, timeout_ms=100) as client,
            pytest.raises(KafkaError, match="no partition 9; it has 2: 0 to 1"),
        ):
            client.list_offsets({TopicPartition("t", 9): -1})

    def test_a_fetch_returns_records_as_they_are_stored(
        self, cluster: FakeCluster, client: BlockingClient
    ) -> None:
        cluster[1].script(FETCH, fetch_answer(cluster, 0, records=b"batches"))
        fetched = client.fetch(T0, 3, max_bytes=1000, max_wait_ms=7)
        assert bytes(fetched.records) == b"batches"
        assert (fetched.high_watermark, fetched.last_stable_offset) == (9, 8)
        assert fetched.log_start_offset == 2
        assert fetched.aborted == ((5, 3),)
        (request,) = cluster[1].asked(FETCH)
        assert request.topics[0].topic_id == cluster.topic_id("t")
        assert (request.max_wait_ms, request.session_epoch) == (7, -1)
        assert request.topics[0].partitions[0].fetch_offset == 3

    def test_a_fetch_names_topics_where_the_broker_has_no_ids(
        self, cluster: FakeCluster, client: BlockingClient
    ) -> None:
        cluster[1].served[FETCH] = (4, 11)
        cluster[1].script(FETCH, fetch_answer(cluster, 0, records=b"old"))
        assert bytes(client.fetch(T0, 0).records) == b"old"
        assert cluster[1].versions_asked(FETCH) == [11]
        assert cluster[1].asked(FETCH)[0].topics[0].topic == "t"

    def test_an_offset_out_of_range_is_raised_at_once_by_fetch(
        self, cluster: FakeCluster, client: BlockingClient
    ) -> None:
        cluster[1].script(FETCH, fetch_answer(cluster, 0, error=1))
        with pytest.raises(KafkaError, match="t-0 from offset 77") as info:
            client.fetch(T0, 77)
        assert info.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
        assert len(cluster[1].asked(FETCH)) == 1

    def test_many_partitions_keep_what_succeeded_while_the_rest_is_tried_again(
        self, cluster: FakeCluster, client: BlockingClient
    ) -> None:
        cluster[1].script(FETCH, fetch_answer(cluster, 0, error=1))
        fenced = fetch_answer(cluster, 1, error=ErrorCode.FENCED_LEADER_EPOCH)
        cluster[2].script(FETCH, fenced, fetch_answer(cluster, 1, records=b"r"))
        fetched = client.fetch_many({T0: 5, T1: 6})
        assert fetched[T0].error is ErrorCode.OFFSET_OUT_OF_RANGE
        assert bytes(fetched[T1].records) == b"r"
        assert len(cluster[1].asked(FETCH)) == 1
        assert len(cluster[2].asked(FETCH)) == 2

    def test_an_answer_to_another_request_is_refused(
        self, cluster: FakeCluster, client: BlockingClient
    ) -> None:
        client.metadata()
        cluster[1].correlation_skew = 1
        cluster[1].script(LIST_OFFSETS, offsets_answer("t", 0, 12))
        with pytest.raises(ProtocolError, match="correlation id 3 where 2 is due"):
            client.list_offsets({T0: -1})


class TestWriting:
    def test_produce_goes_to_the_leader_and_returns_the_base_offset(
        self, cluster: FakeCluster, client: BlockingClient
    ) -> None:
        cluster[1].script(PRODUCE, produce_answer(base_offset=41))
        assert client.produce(T0, PLAIN_BATCH, acks=-1, timeout_ms=500) == 41
        (request,) = cluster[1].asked(PRODUCE)
        assert (request.acks, request.timeout_ms) == (-1, 500)
        assert bytes(request.topic_data[0].partition_data[0].records) == PLAIN_BATCH

    def test_acks_0_returns_without_an_answer(
        self, cluster: FakeCluster, client: BlockingClient
    ) -> None:
        received = threading.Event()
        cluster[1].on(PRODUCE, lambda _: received.set())
        assert client.produce(T0, PLAIN_BATCH, acks=0) == -1
        assert received.wait(5)

    def test_a_refused_batch_is_tried_again_where_the_error_passes(
        self, cluster: FakeCluster, client: BlockingClient
    ) -> None:
        refused = produce_answer(ErrorCode.NOT_ENOUGH_REPLICAS)
        cluster[1].script(PRODUCE, refused, refused, produce_answer(base_offset=42))
        assert client.produce(T0, PLAIN_BATCH) == 42

    def test_an_invalid_batch_is_refused_with_the_brokers_reasons(
        self, cluster: FakeCluster, client: BlockingClient
    ) -> None:
        answer = produce_answer(ErrorCode.INVALID_RECORD, -1, "bad record")
        answer.responses[0].partition_responses[0].record_errors = [
            BatchIndexAndErrorMessage(4, "null key")
        ]
        cluster[1].script(PRODUCE, answer)
        with pytest.raises(KafkaError, match="t-0: bad record; record 4: null key") as info:
            client.produce(T0, PLAIN_BATCH)
        assert info.value.code is ErrorCode.INVALID_RECORD

    def test_a_reason_that_is_told_twice_is_given_once(
        self, cluster: FakeCluster, client: BlockingClient
    ) -> None:
        answer = produce_answer(ErrorCode.INVALID_RECORD, -1, "null key")
        answer.responses[0].partition_responses[0].record_errors = [
            BatchIndexAndErrorMessage(0, "null key")
        ]
        cluster[1].script(PRODUCE, answer)
        with pytest.raises(KafkaError, match="^INVALID_RECORD: t-0: null key$"):
            client.produce(T0, PLAIN_BATCH)

    @pytest.mark.parametrize(
        "failure",
        [
            CLOSE,
            produce_answer(ErrorCode.REQUEST_TIMED_OUT),
            produce_answer(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND),
        ],
    )
    def test_an_unknown_outcome_is_repeated_only_with_a_producer_id(
        self, cluster: FakeCluster, client: BlockingClient, failure: object
    ) -> None:
        cluster[1].script(PRODUCE, failure, produce_answer(base_offset=43))
        with pytest.raises(OutcomeUnknownError, match="t-0"):
            client.produce(T0, PLAIN_BATCH)
        assert len(cluster[1].asked(PRODUCE)) == 1
        cluster[1].script(PRODUCE, failure, produce_answer(base_offset=43))
        assert client.produce(T0, IDEMPOTENT_BATCH) == 43

    def test_a_repetition_that_the_broker_recognises_is_a_success(
        self, cluster: FakeCluster, client: BlockingClient
    ) -> None:
        duplicate = produce_answer(ErrorCode.DUPLICATE_SEQUENCE_NUMBER, base_offset=-1)
        cluster[1].script(PRODUCE, CLOSE, duplicate)
        assert client.produce(T0, IDEMPOTENT_BATCH) == -1

    def test_a_broker_that_never_answers_times_out(self, cluster: FakeCluster) -> None:
        cluster[1].on(INIT_PRODUCER_ID, lambda _: None)
        with (
            BlockingClient(cluster.bootstrap, timeout_ms=150) as client,
            pytest.raises(RequestTimeout, match="getting a producer id"),
        ):
            client.init_producer_id()

    def test_a_producer_id_is_asked_for(self, cluster: FakeCluster, client: BlockingClient) -> None:
        cluster[1].script(INIT_PRODUCER_ID, InitProducerIdResponse(producer_id=9, producer_epoch=0))
        assert client.init_producer_id() == (9, 0)
