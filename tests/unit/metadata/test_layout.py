"""Paths and JSON of nodes: Kafka's shapes, total decoding with errors that name the fault."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.core.types import (
    ZERO_TOPIC_ID,
    BrokerInfo,
    Endpoint,
    PartitionState,
    ReassignmentEntry,
    TopicPartition,
)
from tidelog.metadata import layout
from tidelog.metadata.layout import LayoutError, TopicAssignment
from tidelog.metadata.paths import parent_of, validate_path
from tidelog.metadata.store import Node, Stat

PATH = "/some/node"
STAT = Stat(3, 40, 50, 0)


def test_paths_are_kafkas() -> None:
    partition = TopicPartition("t", 12)
    assert layout.broker_path(3) == "/brokers/ids/3"
    assert layout.topic_path("t") == "/brokers/topics/t"
    assert layout.topic_partitions_path("t") == "/brokers/topics/t/partitions"
    assert layout.partition_path(partition) == "/brokers/topics/t/partitions/12"
    assert layout.partition_state_path(partition) == "/brokers/topics/t/partitions/12/state"
    assert layout.config_path("topics", "t") == "/config/topics/t"
    assert layout.delete_topic_path("t") == "/admin/delete_topics/t"
    assert layout.CONFIG_CHANGE_PREFIX == "/config/changes/config_change_"


def test_persistent_roots_are_paths_with_parents_first() -> None:
    made = {"/"}
    for path in layout.PERSISTENT_ROOTS:
        validate_path(path)
        assert parent_of(path) in made, path
        assert path not in made
        made.add(path)
    for path in (
        "/consumers",
        "/brokers/ids",
        "/brokers/topics",
        "/brokers/seqid",
        "/config/changes",
        "/config/topics",
        "/config/clients",
        "/config/users",
        "/config/brokers",
        "/config/ips",
        "/admin/delete_topics",
        "/isr_change_notification",
        "/log_dir_event_notification",
        "/latest_producer_id_block",
    ):
        assert path in made, "Kafka makes it at start"


@pytest.mark.parametrize(("path", "number"), [("/brokers/ids/0", 0), ("/x/120", 120)])
def test_nodes_named_by_numbers(path: str, number: int) -> None:
    assert layout.parse_decimal_name(path) == number


@pytest.mark.parametrize("path", ["/brokers/ids/x", "/x/01", "/x/-1", "/x/٣", "/x/1e3", "/"])
def test_nodes_that_are_not_named_by_numbers(path: str) -> None:
    with pytest.raises(LayoutError, match="is not a number"):
        layout.parse_decimal_name(path)


def test_cluster_id_and_controller() -> None:
    assert json.loads(layout.encode_cluster_id("abc")) == {"version": "1", "id": "abc"}
    assert layout.decode_cluster_id(PATH, layout.encode_cluster_id("abc")) == "abc"
    data = layout.encode_controller(4, 1700000000000)
    assert json.loads(data) == {
        "version": 2,
        "brokerid": 4,
        "timestamp": "1700000000000",
        "kraftControllerEpoch": -1,
    }
    assert layout.encode_controller_epoch(12) == b"12"
    assert layout.decode_controller_epoch(PATH, b"12") == 12


def test_a_broker_without_a_plaintext_listener_has_no_host_for_old_clients() -> None:
    broker = BrokerInfo(1, -1, (Endpoint("TLS", "h", 9093, "SSL"),))
    value = json.loads(layout.encode_broker(broker, 5))
    assert (value["host"], value["port"]) == (None, -1)
    assert "rack" not in value
    assert "previous_broker_epoch" not in value
    assert layout.decode_broker(PATH, 1, Node(layout.encode_broker(broker, 5), STAT)) == BrokerInfo(
        1, 40, broker.endpoints
    )


def decode_broker(data: bytes) -> BrokerInfo:
    return layout.decode_broker(PATH, 9, Node(data, STAT))


def test_registrations_of_older_versions() -> None:
    first = decode_broker(b'{"version":1,"host":"h","port":9092,"jmx_port":9999,"timestamp":"1"}')
    assert first == BrokerInfo(9, 40, (Endpoint("PLAINTEXT", "h", 9092, "PLAINTEXT"),))
    third = decode_broker(
        b'{"version":3,"host":"h","port":1,"jmx_port":1,"timestamp":"1","rack":"dc",'
        b'"endpoints":["PLAINTEXT://h:9092","SSL://h:9093"]}'
    )
    assert third.endpoints == (
        Endpoint("PLAINTEXT", "h", 9092, "PLAINTEXT"),
        Endpoint("SSL", "h", 9093, "SSL"),
    )
    assert third.rack == "dc"


def test_a_topic_without_an_id_or_moves() -> None:
    assignment = layout.decode_topic(PATH, b'{"version":1,"partitions":{"1":[4,5],"0":[5]}}')
    assert assignment == TopicAssignment(ZERO_TOPIC_ID, {0: (5,), 1: (4, 5)})
    assert list(assignment.partitions) == [0, 1]
    assert "topic_id" not in json.loads(layout.encode_topic(assignment))


def test_configuration() -> None:
    config = {"retention.ms": "5", "cleanup.policy": "delete"}
    data = layout.encode_config(config)
    assert data == b'{"version":1,"config":{"cleanup.policy":"delete","retention.ms":"5"}}'
    assert layout.decode_config(PATH, data) == config
    assert layout.decode_config(PATH, b"") == {}
    assert layout.decode_config(PATH, b'{"version":1}') == {}
    change = layout.encode_config_change("topics", "t")
    assert json.loads(change) == {"version": 2, "entity_path": "topics/t"}
    assert layout.decode_config_change(PATH, change) == ("topics", "t")
    users = b'{"version":2,"entity_path":"users/u/clients/c"}'
    assert layout.decode_config_change(PATH, users) == ("users", "u/clients/c")
    old = b'{"version":1,"entity_type":"topics","entity_name":"t"}'
    assert layout.decode_config_change(PATH, old) == ("topics", "t")


def test_requests_and_notifications() -> None:
    partitions = [TopicPartition("t", 1), TopicPartition("u", 0)]
    listed = {"version": 1, "partitions": [{"topic": "t", "partition": 1},
                                           {"topic": "u", "partition": 0}]}  # fmt: skip
    for encode, decode in (
        (layout.encode_partition_list, layout.decode_partition_list),
        (layout.encode_isr_change, layout.decode_isr_change),
    ):
        assert json.loads(encode(partitions)) == listed
        assert decode(PATH, encode(partitions)) == partitions
        assert decode(PATH, encode([*partitions, *partitions])) == partitions
    event = layout.encode_log_dir_event(3)
    assert json.loads(event) == {"version": 1, "broker": 3, "event": 1}
    assert layout.decode_log_dir_event(PATH, event) == 3


def test_producer_id_blocks_are_written_as_strings() -> None:
    data = layout.encode_producer_id_block(2, 1000, 1999)
    assert json.loads(data) == {
        "version": 1,
        "broker": 2,
        "block_start": "1000",
        "block_end": "1999",
    }
    assert layout.decode_producer_id_block(PATH, data) == (2, 1000, 1999)


DECODERS: dict[str, Callable[[bytes], Any]] = {
    "cluster_id": lambda data: layout.decode_cluster_id(PATH, data),
    "controller_epoch": lambda data: layout.decode_controller_epoch(PATH, data),
    "broker": decode_broker,
    "topic": lambda data: layout.decode_topic(PATH, data),
    "state": lambda data: layout.decode_partition_state(PATH, data, STAT),
    "config": lambda data: layout.decode_config(PATH, data),
    "config_change": lambda data: layout.decode_config_change(PATH, data),
    "partitions": lambda data: layout.decode_partition_list(PATH, data),
    "reassignments": lambda data: layout.decode_reassignments(PATH, data),
    "log_dir_event": lambda data: layout.decode_log_dir_event(PATH, data),
    "producer_ids": lambda data: layout.decode_producer_id_block(PATH, data),
}

STATE = '{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":[1]'
BROKER = '{"version":5,"jmx_port":-1,"timestamp":"1","features":{},'

FAULTS = [
    ("cluster_id", '{"version":"1"}', "id is missing (a string expected)"),
    ("cluster_id", '{"id":""}', 'id is "" (a cluster id expected)'),
    ("cluster_id", "[]", "the node is not a JSON object"),
    ("cluster_id", "{", "not JSON: "),
    ("controller_epoch", "", "not a decimal number up to 2147483647: b''"),
    ("controller_epoch", "-1", "not a decimal number"),
    ("controller_epoch", "2147483648", "not a decimal number"),
    ("broker", '{"version":0}', "version is 0 (an integer from 1"),
    ("broker", BROKER + '"endpoints":[]}', "endpoints is [] (at least one endpoint expected)"),
    ("broker", BROKER + '"endpoints":["h:1"]}', "LISTENER://host:port each expected"),
    ("broker", BROKER + '"endpoints":["A://h:70000"]}', "LISTENER://host:port each expected"),
    ("broker", BROKER + '"endpoints":"A://h:7"}', "a list of strings expected"),
    ("broker", BROKER + '"endpoints":["A://h:7"]}', "the unknown security protocol 'A'"),
    (
        "broker",
        BROKER + '"endpoints":["A://h:7"],"listener_security_protocol_map":{}}',
        "listener_security_protocol_map.A is missing",
    ),
    (
        "broker",
        BROKER + '"endpoints":["SSL://h:7","SSL://h:8"]}',
        "one endpoint per listener expected",
    ),
    ("topic", '{"partitions":{"x":[1]}}', "partition numbers as keys expected"),
    ("topic", '{"partitions":{"01":[1]}}', "partition numbers as keys expected"),
    ("topic", '{"partitions":{"0":[]}}', "partitions.0 is [] (at least one replica expected)"),
    ("topic", '{"partitions":{"0":[-1]}}', "partitions.0 is [-1] (a list of integers from 0"),
    ("topic", '{"partitions":[1]}', "partitions is not a JSON object"),
    ("topic", '{"topic_id":"short","partitions":{}}', "22 characters of URL-safe base64"),
    (
        "topic",
        '{"partitions":{"0":[1]},"adding_replicas":{"0":[2]}}',
        "adding_replicas.0 is [2] (replicas that the partition's assignment names expected)",
    ),
    (
        "topic",
        '{"partitions":{"0":[1,2]},"removing_replicas":{"0":[2,1]}}',
        "removing_replicas.0 is [2, 1] (fewer replicas than the partition's assignment names"
        " expected)",
    ),
    (
        "reassignments",
        '{"partitions":[{"topic":"t","partition":0,"replicas":[1]},'
        '{"topic":"t","partition":0,"replicas":[2]}]}',
        "partitions[1].partition is 0 (a partition that is not named before expected)",
    ),
    (
        "reassignments",
        '{"partitions":[{"topic":"t","partition":0}]}',
        "partitions[0].replicas is missing (a list of integers expected)",
    ),
    ("state", "{}", "isr is missing"),
    ("state", STATE + ',"leader_epoch":-1}', "leader_epoch is -1"),
    ("state", STATE + ',"isr_epochs":[1,2]}', "isr_epochs is [1, 2] (1 broker epochs, one for"),
    ("state", STATE + ',"isr":[1,1]}', "a list without repetition expected"),
    ("state", STATE + ',"leader_recovery_state":2}', "leader_recovery_state is 2"),
    ("state", STATE + ',"removed":1}', "removed is 1 (true or false expected)"),
    ("config", '{"config":{"a":1}}', "config.a is 1 (a string expected)"),
    ("config_change", '{"version":2,"entity_path":"topics"}', "type/entity expected"),
    ("config_change", '{"version":3}', "version is 3"),
    ("partitions", '{"partitions":[{"topic":"t"}]}', "partitions[0].partition is missing"),
    ("partitions", '{"partitions":[1]}', "partitions[0] is not a JSON object"),
    ("partitions", "{}", "partitions is missing (a list of objects expected)"),
    ("log_dir_event", "{}", "broker is missing"),
    (
        "producer_ids",
        '{"broker":1,"block_start":"5","block_end":"4"}',
        'block_end is "4" (at least block_start, 5 expected)',
    ),
    (
        "producer_ids",
        '{"broker":1,"block_start":"9223372036854775808","block_end":"4"}',
        "block_start is ",
    ),
    ("producer_ids", '{"broker":1,"block_start":5,"block_end":"9"}', "block_start is 5 ("),
]


@pytest.mark.parametrize(("decoder", "text", "reason"), FAULTS)
def test_bad_nodes_are_refused_with_path_key_and_fault(
    decoder: str, text: str, reason: str
) -> None:
    with pytest.raises(LayoutError) as raised:
        DECODERS[decoder](text.encode())
    assert raised.value.path == PATH
    assert reason in raised.value.reason
    assert str(raised.value) == f"{PATH}: {raised.value.reason}"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "version",
                    "id",
                    "brokerid",
                    "timestamp",
                    "endpoints",
                    "listener_security_protocol_map",
                    "partitions",
                    "topic_id",
                    "0",
                    "isr",
                    "isr_epochs",
                    "original_replicas",
                    "reassigned_to",
                    "removing_replicas",
                    "replicas",
                    "leader",
                    "leader_epoch",
                    "controller_epoch",
                    "config",
                    "entity_path",
                    "topic",
                    "partition",
                    "broker",
                    "block_start",
                    "block_end",
                    "features",
                    "status",
                ]
            ),
            inner,
            max_size=6,
        )
    ),
    max_leaves=20,
)
DEEP = b"[" * 100_000


@pytest.mark.parametrize("decoder", DECODERS)
@given(st.one_of(st.binary(max_size=40), JSON.map(lambda value: json.dumps(value).encode())))
def test_decoding_is_total(decoder: str, data: bytes) -> None:
    try:
        DECODERS[decoder](data)
    except LayoutError as error:
        assert error.path == PATH


@pytest.mark.parametrize("decoder", DECODERS)
def test_deep_and_long_nodes_are_refused_too(decoder: str) -> None:
    for data in (DEEP, b'{"id":' * 100_000, b"9" * 10_000, b'{"version":' + b"9" * 10_000 + b"}"):
        with pytest.raises(LayoutError):
            DECODERS[decoder](data)


EPOCHS = st.integers(0, 2**31 - 1)
REPLICAS = st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=4, unique=True).map(tuple)


@given(
    st.builds(
        PartitionState,
        leader=st.integers(-1, 1000),
        leader_epoch=EPOCHS,
        isr=REPLICAS,
        controller_epoch=EPOCHS,
        partition_epoch=st.just(STAT.version),
        leader_recovery_state=st.sampled_from([0, 1]),
        elr=st.one_of(st.just(()), REPLICAS),
        last_leader=st.integers(-1, 1000),
        removed=st.booleans(),
        reassigned_to=st.one_of(st.just(()), REPLICAS),
    ),
    st.booleans(),
)
def test_states_survive_the_round_trip(state: PartitionState, with_epochs: bool) -> None:
    if with_epochs:
        state = dataclasses.replace(state, isr_epochs=tuple(2**40 + one for one in state.isr))
    state = dataclasses.replace(
        state, elr_epochs=tuple(2**41 + one if with_epochs else -1 for one in state.elr)
    )
    read = layout.decode_partition_state(PATH, layout.encode_partition_state(state), STAT)
    assert read == state
    assert read.mzxid == STAT.mzxid


@given(st.lists(st.tuples(REPLICAS, st.one_of(st.just(()), REPLICAS)), max_size=5))
def test_reassignments_survive_the_round_trip(
    wanted: list[tuple[tuple[int, ...], tuple[int, ...]]],
) -> None:
    entries = [
        ReassignmentEntry(TopicPartition("t", number), replicas, original)
        for number, (replicas, original) in enumerate(wanted)
    ]
    assert layout.decode_reassignments(PATH, layout.encode_reassignments(entries)) == entries


@given(
    st.dictionaries(st.integers(0, 300), REPLICAS, max_size=20), st.binary(min_size=16, max_size=16)
)
def test_assignments_survive_the_round_trip(
    partitions: dict[int, tuple[int, ...]], topic_id: bytes
) -> None:
    adding = {partition: replicas[:1] for partition, replicas in partitions.items()}
    removing = {
        partition: replicas[1:] for partition, replicas in partitions.items() if len(replicas) > 1
    }
    original = {partition: replicas[::-1] for partition, replicas in partitions.items()}
    assignment = TopicAssignment(topic_id, partitions, adding, removing, original)
    assert layout.decode_topic(PATH, layout.encode_topic(assignment)) == assignment
