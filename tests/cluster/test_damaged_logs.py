"""Rule V68 on real processes: a bit flips in a file of a running leader, and no broker ends."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cluster.conftest import MakeCluster, eventually
from tests.support.cluster.values import read_values, write_values

from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.types import TopicPartition
from tidelog.local import LocalCluster
from tidelog.runtime.blocking import BlockingClient

TP = TopicPartition("t", 0)
VALUES = [[b"record %d of batch %d" % (n, batch) for n in range(5)] for batch in range(20)]


def segment(cluster: LocalCluster, broker_id: int) -> Path:
    """The only segment of the replica."""
    (found,) = Path(cluster.places()[broker_id].directory).rglob(f"{TP.topic}-0/*.log")
    return found


@pytest.mark.rule("V68")
def test_a_leader_whose_file_changes_is_replaced_and_fetches_its_records_again(
    make_cluster: MakeCluster,
) -> None:
    cluster = make_cluster(3, metadata_session_timeout_ms="30000")
    with BlockingClient(cluster.bootstrap) as client:
        client.create_topic(TP.topic, 1, 3, {"min.insync.replicas": "2"})
        client.await_topic(TP.topic, min_isr=3)
        for values in VALUES:
            write_values(cluster.bootstrap, TP, values)
        leader = client.metadata([TP.topic]).topics[TP.topic].partitions[0].leader
    processes = {broker_id: cluster.process(broker_id) for broker_id in cluster.broker_ids}
    path = segment(cluster, leader)
    whole = path.read_bytes()
    with path.open("r+b") as file:
        file.seek(len(whole) // 2)
        file.write(bytes([whole[len(whole) // 2] ^ 4]))
    wanted = [value for values in VALUES for value in values]
    with pytest.raises(KafkaError) as caught:
        read_values(cluster.bootstrap, TP)
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE
    with BlockingClient(cluster.bootstrap) as client:

        def is_whole_again() -> bool:
            now = client.metadata([TP.topic]).topics[TP.topic].partitions[0]
            return now.leader != leader and sorted(now.isr) == [1, 2, 3]

        eventually(is_whole_again, "another leader with all replicas in sync")
    assert segment(cluster, leader).read_bytes() == whole
    assert read_values(cluster.bootstrap, TP) == wanted
    assert processes == {broker_id: cluster.process(broker_id) for broker_id in cluster.broker_ids}
    write_values(cluster.bootstrap, TP, [b"afterwards"])
    assert read_values(cluster.bootstrap, TP) == [*wanted, b"afterwards"]
