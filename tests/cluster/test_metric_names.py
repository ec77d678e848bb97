"""Dashboards find their metrics: names and labels of Strimzi's, kafka_exporter's and kminion's.

The names are those that these dashboards and alert rules query. They are looked for in scrapes of
all brokers, after a day of a small cluster: records, a group, a dead broker, its return.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from functools import partial
from itertools import chain

import pytest
from tests.cluster.conftest import MakeCluster, eventually
from tests.cluster.test_admin_port import fetched, is_ready

from tidelog.client.groups import FetchedOffset
from tidelog.core.types import TopicPartition
from tidelog.local import LocalCluster
from tidelog.records.builder import NewRecord, build_batch
from tidelog.runtime.blocking import BlockingClient

TOPIC = "flights"
#: A topic whose partitions have one replica each, on one broker after the other.
ALONE = "alone"
GROUP = "lake"

BY_PARTITION = "topic,partition"
MINION_PARTITION = "topic_name,partition_id"


def family(prefix: str, names: str, labels: str = "") -> Iterable[tuple[str, str]]:
    return ((f"{prefix}_{name}", labels) for name in names.split())


#: (name, labels) of each metric that a query of a dashboard or an alert rule names.
QUERIED = dict(
    chain(
        family(
            "kafka_server_replicamanager",
            "leadercount partitioncount underreplicatedpartitions underminisrpartitioncount"
            " atminisrpartitioncount isrshrinks_total isrexpands_total failedisrupdates_total",
        ),
        family(
            "kafka_controller_kafkacontroller",
            "activecontrollercount offlinepartitionscount preferredreplicaimbalancecount"
            " globaltopiccount globalpartitioncount",
        ),
        family("kafka_controller_controllerstats", "uncleanleaderelections_total"),
        family(
            "kafka_cluster_partition",
            "atminisr underminisr replicascount insyncreplicascount",
            BY_PARTITION,
        ),
        family(
            "kafka_server_brokertopicmetrics",
            "bytesin_total bytesout_total messagesin_total totalproducerequests_total"
            " totalfetchrequests_total failedproducerequests_total failedfetchrequests_total"
            " replicationbytesin_total replicationbytesout_total invalidmessagecrcrecords_total",
            "topic",
        ),
        family("kafka_network_requestmetrics", "requests_total", "request,version"),
        family(
            "kafka_network_requestmetrics",
            "totaltimems requestqueuetimems localtimems remotetimems throttletimems"
            " responsequeuetimems responsesendtimems",
            "request,quantile",
        ),
        family("kafka_network_socketserver", "networkprocessoravgidle_percent"),
        family("kafka_server_kafkarequesthandlerpool", "requesthandleravgidle_percent"),
        family(
            "kafka_server_socket_server_metrics",
            "connection_count connection_creation_rate",
            "listener",
        ),
        family("kafka_server_kafkaserver", "linux_disk_read_bytes linux_disk_write_bytes"),
        family("process", "open_fds cpu_seconds_total resident_memory_bytes"),
        family("kafka_log_log", "size logstartoffset logendoffset numlogsegments", BY_PARTITION),
        family("kafka_server_delayedoperationpurgatory", "purgatorysize", "delayedoperation"),
        family("kafka_server_replicafetchermanager", "maxlag"),
        family("kafka_server_fetcherlagmetrics", "consumerlag", f"clientid,{BY_PARTITION}"),
        family("kafka_server_sessionexpirelistener", "zookeeperdisconnects_total"),
        family("kafka_server_zookeeperclientmetrics", "zookeeperrequestlatencyms", "quantile"),
        family("kafka", "brokers"),
        family("kafka", "broker_info", "id,address"),
        family("kafka", "topic_partitions", "topic"),
        family(
            "kafka_topic_partition",
            "current_offset oldest_offset in_sync_replica replicas leader leader_is_preferred"
            " under_replicated_partition",
            BY_PARTITION,
        ),
        family("kafka_consumergroup", "current_offset lag", f"consumergroup,{BY_PARTITION}"),
        family("kafka_consumergroup", "current_offset_sum lag_sum", "consumergroup,topic"),
        family("kafka_consumergroup", "members", "consumergroup"),
        family("kminion_kafka", "broker_info", "broker_id,address,port,rack_id,is_controller"),
        family(
            "kminion_kafka",
            "cluster_info",
            "cluster_version,broker_count,controller_id,cluster_id",
        ),
        family(
            "kminion_kafka", "broker_log_dir_size_total_bytes", "broker_id,address,port,rack_id"
        ),
        family("kminion_kafka", "topic_info", "topic_name,partition_count,replication_factor"),
        family(
            "kminion_kafka",
            "topic_partition_high_water_mark topic_partition_low_water_mark",
            MINION_PARTITION,
        ),
        family(
            "kminion_kafka",
            "consumer_group_info",
            "group_id,protocol,protocol_type,state,coordinator_id",
        ),
        family(
            "kminion_kafka",
            "consumer_group_topic_partition_lag",
            f"group_id,{MINION_PARTITION}",
        ),
        family("kminion_kafka", "consumer_group_topic_lag", "group_id,topic_name"),
    )
)

_LINE = re.compile(r"([a-z_0-9]+)(?:\{(.*)\})? (\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

#: A metric's samples: its labels in their order, and its value.
Samples = dict[str, list[tuple[dict[str, str], float]]]


def scraped(cluster: LocalCluster) -> Samples:
    """The samples of all brokers."""
    found: Samples = {}
    for place in cluster.places().values():
        status, text = fetched(place, "/metrics")
        assert status == 200
        seen: set[tuple[str, str | None]] = set()
        for line in text.splitlines():
            if line.startswith("#"):
                continue
            match = _LINE.fullmatch(line)
            assert match is not None, line
            labels = dict(_LABEL.findall(match[2] or ""))
            assert (match[1], match[2]) not in seen, f"Prometheus refuses a second {line}"
            seen.add((match[1], match[2]))
            found.setdefault(match[1], []).append((labels, float(match[3])))
    return found


def total(samples: Samples, name: str, **labels: str) -> float:
    """The sum of a metric over brokers and series with these labels."""
    return sum(value for found, value in samples.get(name, []) if labels.items() <= found.items())


@pytest.fixture
def cluster(make_cluster: MakeCluster) -> LocalCluster:
    return make_cluster(3)


def produce(client: BlockingClient, topic: str, partition: int, timestamp_ms: int) -> None:
    records = [NewRecord(None, b"x" * 100, timestamp_ms) for _ in range(10)]
    client.produce(TopicPartition(topic, partition), build_batch(records))


def test_every_queried_metric_has_data(cluster: LocalCluster) -> None:
    hour_ago_ms = time.time_ns() // 1_000_000 - 3_600_000
    with BlockingClient(cluster.bootstrap) as client:
        client.create_topic(TOPIC, 3, 3, {"min.insync.replicas": "2"})
        client.await_topic(TOPIC, 3)
        produce(client, TOPIC, 0, hour_ago_ms)
        produce(client, TOPIC, 1, hour_ago_ms)
        client.create_topic(ALONE, assignment={0: [1], 1: [2], 2: [3]})
        client.await_topic(ALONE, 1)
        for partition in range(3):
            produce(client, ALONE, partition, hour_ago_ms)
        client.commit(GROUP, {TopicPartition(ALONE, each): FetchedOffset(7) for each in range(3)})
        client.commit(
            GROUP,
            {
                TopicPartition(TOPIC, each): FetchedOffset(offset)
                for each, offset in ((0, 4), (1, 10))
            },
        )
        client.delete_records({TopicPartition(TOPIC, 0): 6})
    cluster.kill(3)
    with BlockingClient(cluster.bootstrap) as client:
        eventually(lambda: shrunk(client), "an ISR without the killed broker")
        cluster.start(3)
        cluster.await_full_isrs()
    for place in cluster.places().values():
        eventually(partial(is_ready, place), "ready")
    samples = scraped(cluster)
    assert {name: labels for name, labels in QUERIED.items() if name not in samples} == {}
    wrong = {
        name: ",".join(samples[name][0][0])
        for name, labels in QUERIED.items()
        if ",".join(samples[name][0][0]) != labels
    }
    assert wrong == {}
    _has_the_right_numbers(samples)
    eventually(
        lambda: knows_lags_elsewhere(cluster), "the lag where the coordinator has no replica"
    )


def knows_lags_elsewhere(cluster: LocalCluster) -> bool:
    lags = scraped(cluster)["kafka_consumergroup_lag"]
    return [value for labels, value in lags if labels["topic"] == ALONE] == [3, 3, 3]


def shrunk(client: BlockingClient) -> bool:
    return all(len(each.isr) == 2 for _, each in client.metadata([TOPIC]).all_partitions())


def _has_the_right_numbers(samples: Samples) -> None:
    manager = "kafka_server_replicamanager"
    assert total(samples, f"{manager}_partitioncount") >= 9
    assert total(samples, f"{manager}_isrshrinks_total") >= 1
    assert total(samples, f"{manager}_isrexpands_total") >= 1
    assert total(samples, f"{manager}_underreplicatedpartitions") == 0
    assert total(samples, "kafka_controller_kafkacontroller_activecontrollercount") == 1
    assert total(samples, "kafka_controller_kafkacontroller_offlinepartitionscount") == 0
    assert total(samples, "kafka_brokers") == 3
    assert total(samples, "kafka_topic_partitions", topic=TOPIC) == 3
    assert total(samples, "kafka_topic_partition_current_offset", topic=TOPIC) == 20
    assert total(samples, "kafka_topic_partition_oldest_offset", topic=TOPIC) == 6
    _knows_lags(samples)


def _knows_lags(samples: Samples) -> None:
    """The lag ends at the log start, and an idle partition that is read lags by nothing."""
    lags = {
        labels["partition"]: value
        for labels, value in samples["kafka_consumergroup_lag"]
        if labels["consumergroup"] == GROUP and labels["topic"] == TOPIC
    }
    assert lags == {"0": 4, "1": 0}, "partition 2 has no commit, and thus no lag"
    assert total(samples, "kafka_consumergroup_lag_sum", topic=TOPIC) == 4
    without = "tidelog_consumergroup_partitions_without_commit"
    assert total(samples, without, consumergroup=GROUP, topic=TOPIC) == 1
    ages = {
        labels["partition"]: value
        for labels, value in samples["tidelog_consumergroup_lag_seconds"]
        if labels["consumergroup"] == GROUP and labels["topic"] == TOPIC
    }
    assert ages["1"] == 0 and 3_600 <= ages["0"] < 4_200
