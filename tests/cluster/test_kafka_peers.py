"""One of our brokers in a real Kafka 3.9 cluster (ZooKeeper mode), beside two of Kafka's.

Brokers 1 and 2 are Kafka's, broker 3 is ours. Who leads what is said by the order of replicas.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.clients.librdkafka import position_of
from tests.support.cluster.broker_processes import (
    BrokerProcess,
    KafkaBroker,
    OurBroker,
    require_kafka,
)
from tests.support.cluster.values import read_values
from tests.support.cluster.zookeepers import start_server

from tidelog.client.cluster import PartitionMetadata
from tidelog.client.configs import TOPIC, ConfigChange, ConfigResource
from tidelog.client.upkeep import ElectionType
from tidelog.core.dynamic_config import ConfigOperation
from tidelog.core.errors import ErrorCode
from tidelog.core.types import TopicPartition
from tidelog.local.ports import free_ports
from tidelog.local.zookeeper import LocalZookeeper
from tidelog.metadata import layout
from tidelog.metadata.store import ANY_VERSION, Delete
from tidelog.records.batch import iter_batches
from tidelog.runtime.blocking import BlockingClient
from tidelog.runtime.stores.zookeeper import ZookeeperStore
from tidelog.runtime.stores.zookeeper_chroot import create_chroot
from tidelog.runtime.stores.zookeeper_servers import parse_servers

OURS = 3
PATIENCE_S = 60.0
_POLL_S = 0.05
KAFKAS_ANSWER_MS = 10_000
CODECS = ("none", "gzip", "lz4", "snappy", "zstd")
#: Nobody who is paused loses its session; those of the killed are ended by hand.
SESSION_MS = "18000"
#: Of all three brokers.
KEYS = {
    "replica.lag.time.max.ms": "4000",
    "min.insync.replicas": "1",
    "auto.create.topics.enable": "false",
    "auto.leader.rebalance.enable": "false",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "controlled.shutdown.retry.backoff.ms": "500",
}


class Peers:
    """The cluster, and what is seen and done through Kafka's brokers."""

    def __init__(
        self,
        directory: Path,
        zookeeper: str,
        levels: Mapping[int, str] | None = None,
        kafkas: Sequence[int] = (1, 2),
        more: Mapping[str, str] | None = None,
    ) -> None:
        """`levels`: inter.broker.protocol.version of brokers; 3.9 for others.

        `kafkas` are those of Kafka. `more` are keys of all brokers, in which `{}` stands for the
        directory of each.
        """
        self.zookeeper = zookeeper
        self.kafkas = tuple(kafkas)
        ports = free_ports(len(kafkas) + 1)
        all_keys = {**KEYS, **(more or {})}
        of_kafkas = {**all_keys, "zookeeper.session.timeout.ms": SESSION_MS}
        of_ours = {**all_keys, "metadata.session.timeout.ms": SESSION_MS}

        def keys(number: int) -> dict[str, str]:
            found = of_ours if number == OURS else of_kafkas
            place = str(directory / str(number))
            return {
                **{key: value.replace("{}", place) for key, value in found.items()},
                "inter.broker.protocol.version": (levels or {}).get(number, "3.9"),
            }

        self.brokers: dict[int, BrokerProcess] = {
            number: KafkaBroker(directory / str(number), number, port, zookeeper, keys(number))
            for number, port in zip(kafkas, ports[:-1], strict=True)
        }
        self.brokers[OURS] = OurBroker(
            directory / str(OURS), OURS, ports[-1], zookeeper, keys(OURS)
        )

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.address for broker in self.brokers.values())

    @property
    def kafkas_addresses(self) -> str:
        """Of Kafka's brokers alone."""
        return ",".join(self.brokers[number].address for number in self.kafkas)

    def admin(self) -> AdminClient:
        """Through Kafka's brokers alone."""
        return AdminClient({"bootstrap.servers": self.kafkas_addresses})

    def make_topic(self, name: str, *replicas: Sequence[int]) -> None:
        """Partitions with these replicas, the first the one to lead."""
        assignment = [list(each) for each in replicas]
        topic = NewTopic(name, len(replicas), replica_assignment=assignment)
        admin = self.admin()
        admin.create_topics([topic])[name].result(PATIENCE_S)
        for number, each in enumerate(replicas):
            self.await_state(TopicPartition(name, number), each[0], each)

    def state(self, tp: TopicPartition, asked: int) -> PartitionMetadata | None:
        """A partition as one broker tells it to clients."""
        with BlockingClient(self.brokers[asked].address, timeout_ms=5_000) as client:
            topic = client.metadata([tp.topic]).topics.get(tp.topic)
            return None if topic is None else topic.partitions.get(tp.partition)

    def await_state(
        self, tp: TopicPartition, leader: int, isr: Sequence[int], asked: Sequence[int] = (1, 3)
    ) -> None:
        """Wait until brokers tell of this leader and this ISR, in whatever order."""
        for broker in asked:
            await_that(
                partial(self.state, tp, broker),
                lambda seen: (
                    seen is not None and seen.leader == leader and sorted(seen.isr) == sorted(isr)
                ),
                f"{tp} led by {leader} with ISR {sorted(isr)}, as broker {broker} tells",
            )

    def await_in_sync(self, tp: TopicPartition, replicas: Sequence[int]) -> None:
        """Wait until the ISR holds these and no others, whoever leads."""
        await_that(
            lambda: self.state(tp, 1),
            lambda seen: seen is not None and sorted(seen.isr) == sorted(replicas),
            f"{tp} with ISR {sorted(replicas)}",
        )

    def end_session(self, broker: int, *, is_controller: bool = False) -> None:
        """Take a killed broker's nodes away, as the end of its session would."""
        nodes = [layout.broker_path(broker)] + [layout.CONTROLLER] * is_controller

        async def take() -> None:
            servers = parse_servers(f"zookeeper://{self.zookeeper}")
            store = ZookeeperStore(servers, asyncio.get_running_loop(), 30_000)
            await store.open()
            try:
                await store.transact([Delete(node, ANY_VERSION) for node in nodes])
            finally:
                await store.close()

        asyncio.run(take())

    def batches(self, broker: int, tp: TopicPartition, end: int, start: int = 0) -> list[bytes]:
        """The batches with offsets from `start` to below `end` in a broker's files, as they are."""
        directory = self.brokers[broker].data / f"{tp.topic}-{tp.partition}"
        found = []
        for file in sorted(directory.glob("*.log")):
            data = file.read_bytes()
            position = 0
            for batch in iter_batches(data):
                whole = data[position : position + batch.size_bytes]
                position += batch.size_bytes
                if start <= batch.last_offset < end:
                    found.append(whole)
        return found

    def reassign(self, tp: TopicPartition, replicas: tuple[int, ...]) -> None:
        """Give a partition these replicas, the first of which is to lead."""
        with BlockingClient(self.brokers[1].address, timeout_ms=30_000) as client:
            client.reassign({tp: replicas})
            await_that(client.list_reassignments, lambda seen: not seen, f"{tp} moved")
        self.await_in_sync(tp, replicas)
        self.elect_preferred(tp)
        self.await_state(tp, replicas[0], replicas)

    def elect_preferred(self, *partitions: TopicPartition) -> None:
        """Ask Kafka's controller to let the first replicas lead.

        Kafka 3.9 may answer only when the time it was given is over, although the leader was
        elected at once: the handler of UpdateMetadata looks for waiting elections in the queue of
        timeouts, where they come last. So it is given little, and who leads is what metadata says.
        """
        with BlockingClient(self.kafkas_addresses, timeout_ms=KAFKAS_ANSWER_MS) as client:
            elections = client.elect_leaders(ElectionType.PREFERRED, partitions)
        for partition, election in elections.items():
            undecided = election.error is ErrorCode.REQUEST_TIMED_OUT
            assert election.holds or undecided, f"{partition}: {election}"

    def check_same_bytes(
        self, tp: TopicPartition, replicas: Sequence[int], start: int = 0
    ) -> list[bytes]:
        """All replicas, in sync again, hold the same batches below the high watermark; these."""
        self.await_in_sync(tp, replicas)
        with BlockingClient(self.bootstrap) as client:
            end = client.list_offsets({tp: -1})[tp].offset
        first, *others = [self.batches(broker, tp, end, start) for broker in replicas]
        assert first, f"{tp} is empty"
        for broker, other in zip(replicas[1:], others, strict=True):
            assert other == first, f"{tp}: broker {broker} differs from broker {replicas[0]}"
        return first


def await_that(look: Callable[[], object], holds: Callable[..., bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        seen = look()
        if holds(seen):
            return
        assert time.monotonic() < deadline, f"not {what}; seen last: {seen}"
        time.sleep(_POLL_S)


@contextmanager
def running_peers(
    path: Path, kafkas: Sequence[int] = (1, 2), more: Mapping[str, str] | None = None
) -> Iterator[Peers]:
    """The brokers below a directory, Kafka's first one as the controller; see `Peers`."""
    require_kafka()
    server: LocalZookeeper = start_server(path / "zookeeper")
    chroot = f"{server.address}/kafka"
    asyncio.run(create_chroot(parse_servers(f"zookeeper://{chroot}")))
    made = Peers(path, chroot, kafkas=kafkas, more=more)
    try:
        made.brokers[1].start()
        for number in (*kafkas[1:], OURS):
            made.brokers[number].spawn()
        for broker in made.brokers.values():
            broker.await_up()
        yield made
    finally:
        for broker in made.brokers.values():
            broker.kill()
        server.stop()


@pytest.fixture(scope="module")
def peers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peers]:
    with running_peers(tmp_path_factory.mktemp("peers")) as made:
        yield made


def produce(
    bootstrap: str,
    tp: TopicPartition,
    values: Sequence[bytes],
    codec: str = "none",
    acks: str = "all",
    flush_every: int = 1_000_000,
) -> None:
    """With librdkafka, idempotent where all must acknowledge, in some batches."""
    failures: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failures.append(error)

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": codec,
            "linger.ms": 1,
            # Any broker may be asked for a producer id, also one that is paused.
            "socket.timeout.ms": 5_000,
            "acks": acks,
            "enable.idempotence": acks == "all",
            "batch.num.messages": 50,
        }
    )
    for number, value in enumerate(values, 1):
        producer.produce(tp.topic, value=value, partition=tp.partition, on_delivery=delivered)
        if number % flush_every == 0:
            producer.flush(PATIENCE_S)
    assert producer.flush(PATIENCE_S) == 0
    assert not failures, failures


def transact(bootstrap: str, tp: TopicPartition) -> None:
    """Four transactions of one batch each, two of them aborted."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "one"})
    producer.init_transactions(PATIENCE_S)
    for end in (producer.commit_transaction, producer.abort_transaction) * 2:
        producer.begin_transaction()
        producer.produce(tp.topic, value=b"in a transaction", partition=tp.partition)
        producer.flush(PATIENCE_S)
        end(PATIENCE_S)


def commit(bootstrap: str, group: str, tp: TopicPartition, offset: int) -> None:
    """Join the group, read up to an offset, and commit it."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([tp.topic])
    deadline = time.monotonic() + PATIENCE_S
    while (message := consumer.poll(0.1)) is None or position_of(message)[1] < offset - 1:
        assert message is None or message.error() is None, message.error()
        assert time.monotonic() < deadline, f"{group} read nothing"
    consumer.commit(message=message, asynchronous=False)
    consumer.close()


def committed(bootstrap: str, group: str, tp: TopicPartition) -> int:
    with BlockingClient(bootstrap, timeout_ms=30_000) as client:
        return client.committed(group)[tp].offset


def retention_of(broker: BrokerProcess, topic: str) -> str | None:
    with BlockingClient(broker.address, timeout_ms=5_000) as client:
        [value] = client.describe_configs(ConfigResource(TOPIC, topic), ["retention.ms"])
        return value.value


def controller_of(broker: BrokerProcess) -> int:
    with BlockingClient(broker.address, timeout_ms=5_000) as client:
        return client.metadata().controller_id


def values_of(word: str, count: int = 200) -> list[bytes]:
    return [f"{word} {number} ".encode() * 10 for number in range(count)]


def test_both_kinds_know_each_other(peers: Peers) -> None:
    for number in (1, 2, OURS):
        with BlockingClient(peers.brokers[number].address) as client:
            await_that(
                partial(lambda client: sorted(client.metadata().brokers), client),
                lambda seen: seen == [1, 2, 3],
                f"three brokers known to {number}",
            )
            assert client.metadata().controller_id == 1


@pytest.mark.parametrize(
    "leader, replicas", [(1, (1, 2, 3)), (3, (3, 1, 2))], ids=["kafka-leads", "we-lead"]
)
def test_records_of_all_codecs_are_the_same_bytes_everywhere(
    peers: Peers, leader: int, replicas: Sequence[int]
) -> None:
    tp = TopicPartition(f"codecs-{leader}", 0)
    peers.make_topic(tp.topic, replicas)
    written = []
    for codec in CODECS:
        values = values_of(codec)
        produce(peers.bootstrap, tp, values, codec)
        written += values
    peers.await_state(tp, leader, replicas)
    assert read_values(peers.bootstrap, tp) == written
    assert len(peers.check_same_bytes(tp, (1, 2, OURS))) >= len(CODECS)


def test_a_partition_without_a_record_is_led_by_the_one_and_the_other(peers: Peers) -> None:
    """Kafka's broker keeps the epoch that it led, although there is no record of it."""
    tp = TopicPartition("empty", 0)
    peers.make_topic(tp.topic, (1, 3))
    for replicas in ((OURS, 1), (1, OURS), (OURS, 1)):
        peers.reassign(tp, replicas)
    produce(peers.bootstrap, tp, values_of("the first ones"))
    peers.check_same_bytes(tp, (1, OURS))
    assert f"for partition {tp.topic}-0 is out of range" not in peers.brokers[1].log.read_text()


def test_our_isr_changes_go_through_kafkas_controller(peers: Peers) -> None:
    tp = TopicPartition("shrinking", 0)
    peers.make_topic(tp.topic, (3, 2))
    before = peers.state(tp, 1)
    peers.brokers[2].pause()
    values = values_of("while one is away")
    produce(peers.bootstrap, tp, values)
    peers.await_state(tp, 3, [3])
    peers.brokers[2].resume()
    peers.await_state(tp, 3, [3, 2])
    after = peers.state(tp, 1)
    assert before is not None and after is not None
    assert after.leader_epoch == before.leader_epoch, "nobody was elected: the leader asked"
    assert read_values(peers.bootstrap, tp) == values
    peers.check_same_bytes(tp, (2, OURS))


def test_leaders_change_from_kafka_to_us_and_back_and_followers_cut_by_epoch(peers: Peers) -> None:
    tp = TopicPartition("turns", 0)
    peers.make_topic(tp.topic, (2, 3))
    safe: list[list[bytes]] = []
    for leader, follower in ((2, OURS), (OURS, 2)):
        safe.append(values_of(f"acknowledged by all under {leader}"))
        produce(peers.bootstrap, tp, safe[-1])
        peers.brokers[follower].pause()
        alone = values_of(f"under {leader} alone", 100)
        # Many batches: a fetch that waited when its follower was paused is answered with the first.
        produce(peers.brokers[leader].address, tp, alone, acks="1", flush_every=5)
        peers.brokers[leader].kill()
        had = peers.batches(leader, tp, 1 << 62)
        peers.end_session(leader)
        peers.brokers[follower].resume()
        peers.await_state(tp, follower, [follower], asked=[1])
        safe.append(values_of(f"instead, under {follower}"))
        produce(peers.brokers[follower].address, tp, safe[-1])
        peers.brokers[leader].start()
        peers.await_state(tp, follower, [2, OURS])
        kept = peers.check_same_bytes(tp, (2, OURS))
        assert len([batch for batch in had if batch not in kept]) >= 3, "nothing was cut"
    read = read_values(peers.bootstrap, tp)
    assert [value for value in read if b"alone" not in value] == [x for each in safe for x in each]


def test_a_controlled_shutdown_hands_over_to_kafka_and_the_broker_comes_back(peers: Peers) -> None:
    led, followed, third, cut = (TopicPartition("leaving", number) for number in range(4))
    peers.make_topic("leaving", (3, 1, 2), (2, 1, 3), (1, 2, 3), (1, 2, 3))
    peers.make_topic("__transaction_state", (1, 2))
    written: dict[TopicPartition, list[bytes]] = {led: [], followed: []}

    def write(word: str) -> None:
        for tp, values in written.items():
            produce(peers.bootstrap, tp, values_of(word), "lz4")
            values += values_of(word)

    write("before")
    produce(peers.bootstrap, cut, values_of("deleted", 20))
    peers.brokers[OURS].stop()
    assert "leaderships transferred in" in peers.brokers[OURS].wrote()
    peers.await_state(led, 1, [1, 2], asked=(1, 2))
    peers.await_state(followed, 2, [1, 2], asked=(1, 2))
    write("meanwhile")
    # With us there it would be chance whether the client looks for its coordinator here.
    transact(peers.bootstrap, third)
    # What we have lies below all that the leader has when we are back.
    produce(peers.bootstrap, cut, values_of("deleted while we are away"))
    with BlockingClient(peers.brokers[1].address) as client:
        client.delete_records({cut: 150})
    peers.brokers[OURS].start()
    peers.await_state(led, 1, [1, 2, 3])
    peers.await_state(followed, 2, [1, 2, 3])
    peers.elect_preferred(led)
    peers.await_state(led, OURS, [1, 2, 3])
    write("afterwards")
    for tp, values in written.items():
        assert read_values(peers.bootstrap, tp) == values
        peers.check_same_bytes(tp, (1, 2, OURS))
    peers.await_state(third, 1, [1, 2, 3])
    assert len(peers.check_same_bytes(third, (1, 2, OURS))) == 8, "records and markers"
    peers.await_state(cut, 1, [1, 2, 3])
    assert peers.check_same_bytes(cut, (1, 2, OURS), start=150)
    assert len(peers.batches(OURS, cut, 220)) < len(peers.batches(1, cut, 220)), "begun anew"


def test_what_kafkas_controller_does_with_topics_reaches_us(peers: Peers) -> None:
    tp = TopicPartition("moving", 0)
    peers.make_topic(tp.topic, (1, 2))
    values = values_of("before the move")
    produce(peers.bootstrap, tp, values)
    with BlockingClient(peers.brokers[1].address, timeout_ms=30_000) as client:
        client.reassign({tp: (3, 1)})
        await_that(client.list_reassignments, lambda seen: not seen, "moved")
        peers.await_state(tp, 1, [1, 3])
        peers.elect_preferred(tp)
        peers.await_state(tp, 3, [1, 3])
        assert peers.check_same_bytes(tp, (1, OURS))
    for asked, hears, hours in ((1, OURS, 1), (OURS, 1, 2)):
        retention = str(hours * 3_600_000)
        change = ConfigChange(ConfigOperation.SET, "retention.ms", retention)
        with BlockingClient(peers.brokers[asked].address, timeout_ms=30_000) as client:
            client.alter_configs(ConfigResource(TOPIC, tp.topic), [change])
        await_that(
            partial(retention_of, peers.brokers[hears], tp.topic),
            lambda seen, wanted=retention: seen == wanted,
            f"broker {hears} configured anew",
        )
    with BlockingClient(peers.brokers[1].address, timeout_ms=30_000) as client:
        client.delete_topic(tp.topic)
    directory = peers.brokers[OURS].data / "moving-0"
    await_that(directory.exists, lambda seen: not seen, "deleted")


def test_offsets_of_groups_are_read_by_whoever_coordinates_next(peers: Peers) -> None:
    peers.make_topic("__consumer_offsets", (1, 3), (3, 1))
    tp = TopicPartition("read", 0)
    peers.make_topic(tp.topic, (1, 3))
    produce(peers.bootstrap, tp, values_of("to be read"))
    groups = {0: "b", 1: "a"}  # as String.hashCode has it: which partition holds a group
    for coordinator, group in ((1, groups[0]), (OURS, groups[1])):
        commit(peers.bootstrap, group, tp, 10)
        with BlockingClient(peers.bootstrap, timeout_ms=30_000) as client:
            assert client.describe_group(group).coordinator.broker_id == coordinator
    for number, leader in ((0, OURS), (1, 1)):
        peers.reassign(TopicPartition("__consumer_offsets", number), (leader, 4 - leader))
    for group in groups.values():
        assert committed(peers.bootstrap, group, tp) == 10
        commit(peers.bootstrap, group, tp, 20)
    for number, leader in ((0, 1), (1, OURS)):
        peers.reassign(TopicPartition("__consumer_offsets", number), (leader, 4 - leader))
    for number, group in groups.items():
        assert committed(peers.bootstrap, group, tp) == 20
        peers.check_same_bytes(TopicPartition("__consumer_offsets", number), (1, OURS))


def test_kafkas_brokers_obey_us_as_their_controller(peers: Peers) -> None:
    old = TopicPartition("old", 0)
    peers.make_topic(old.topic, (1, 2, 3))
    values = values_of("before")
    produce(peers.bootstrap, old, values)
    peers.brokers[2].pause()
    peers.brokers[1].kill()
    peers.end_session(1, is_controller=True)
    await_that(lambda: controller_of(peers.brokers[OURS]), lambda seen: seen == OURS, "controller")
    peers.brokers[2].resume()
    await_that(lambda: controller_of(peers.brokers[2]), lambda seen: seen == OURS, "followed")
    peers.await_state(old, 2, [2, 3], asked=(2, 3))
    values += values_of("without the first")
    produce(peers.bootstrap, old, values[-200:], "gzip")
    peers.brokers[1].start()
    peers.await_state(old, 2, [1, 2, 3])
    peers.elect_preferred(old)
    peers.await_state(old, 1, [1, 2, 3])
    new, other = TopicPartition("new", 0), TopicPartition("new", 1)
    peers.make_topic("new", (2, 1, 3), (3, 2, 1))
    for tp in (old, new, other):
        produce(peers.bootstrap, tp, values_of("under our word"), "lz4")
    values += values_of("under our word")
    # Kafka's leader changes its ISR through us.
    peers.brokers[1].pause()
    produce(peers.bootstrap, new, values_of("while one is away"))
    peers.await_state(new, 2, [2, 3], asked=(2, 3))
    peers.brokers[1].resume()
    peers.await_state(new, 2, [1, 2, 3])
    assert read_values(peers.bootstrap, old) == values
    for tp in (old, new, other):
        peers.check_same_bytes(tp, (1, 2, OURS))
    # Kafka's replicas are made and removed by a reassignment that we carry out.
    moved = TopicPartition("moved", 0)
    peers.make_topic(moved.topic, (2, 3))
    produce(peers.bootstrap, moved, values_of("before the move"))
    peers.reassign(moved, (1, 2))
    peers.check_same_bytes(moved, (1, 2))
    peers.reassign(moved, (3, 1))
    peers.check_same_bytes(moved, (1, OURS))
    await_that((peers.brokers[2].data / "moved-0").exists, lambda seen: not seen, "removed")
    # Kafka's controlled shutdown asks us.
    peers.brokers[2].stop()
    assert "Controlled shutdown request returned successfully" in peers.brokers[2].wrote()
    peers.await_state(new, 1, [1, 3])
    # And back: what we wrote into the nodes is what Kafka's next controller goes on with.
    peers.brokers[OURS].stop()
    await_that(lambda: controller_of(peers.brokers[1]), lambda seen: seen == 1, "Kafka's again")
    peers.await_state(other, 1, [1], asked=[1])
    produce(peers.brokers[1].address, other, values_of("under the next one"))
    peers.brokers[OURS].start()
    peers.await_state(other, 1, [1, 3])
    peers.elect_preferred(other)
    peers.await_state(other, OURS, [1, 3])
    peers.check_same_bytes(other, (1, OURS))
    with BlockingClient(peers.brokers[1].address, timeout_ms=30_000) as client:
        client.delete_topic("new")
    for broker in (peers.brokers[1], peers.brokers[OURS]):
        await_that((broker.data / "new-0").exists, lambda seen: not seen, "deleted")


def test_no_message_of_either_kind_was_misread(peers: Peers) -> None:
    assert not [line for line in peers.brokers[OURS].wrote().splitlines() if " ERROR " in line]
    for number in (1, 2):
        wrote = peers.brokers[number].wrote()
        for word in ("SchemaException", "BufferUnderflow", "InvalidRequest", "UnsupportedVersion"):
            assert word not in wrote, peers.brokers[number].last_lines()
