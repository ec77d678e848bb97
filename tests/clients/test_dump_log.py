"""Files on disk: Kafka's kafka-dump-log reads ours, our dump-log reads those of a real Kafka."""

from __future__ import annotations

import json
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.clients import confluent, thorough
from tests.support.clients.absent import Absent
from tests.support.clients.jars import KAFKA
from tests.support.clients.kafka_tools import Tools, dumped
from tests.support.clients.samples import CODECS, Record

from tidelog.local import LocalCluster
from tidelog.local.ports import free_ports

PATIENCE_S = 60.0
TOPIC, GROUP, OFFSETS = "dumped", "readers", "__consumer_offsets"
#: Small segments, so that there are rolled ones, which have indexes.
SEGMENTS = {"segment.bytes": "25000", "index.interval.bytes": "1000", "retention.ms": "-1"}
HEADERS = (("a", b"1"), ("none", None), ("\N{SNOWMAN}", b"\xff\x00"))


def fill(bootstrap: str, replicas: int) -> list[Record]:
    """Records of every compression, an idempotent producer's among them, and a group's offset."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, 1, replicas, config=SEGMENTS)])[TOPIC].result(PATIENCE_S)
    sent: list[Record] = []
    draw = random.Random(1)
    for codec in CODECS:
        batch = [
            Record(b"%s %d" % (codec.encode(), n), draw.randbytes(60), HEADERS, 1_000_000 + n)
            for n in range(200)
        ]
        sent += confluent.write(bootstrap, TOPIC, 0, codec, batch)
    failures: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    producer.produce(
        TOPIC,
        b"value",
        b"once",
        partition=0,
        timestamp=1_000_200,
        on_delivery=lambda error, _: failures.append(error),
    )
    assert producer.flush(PATIENCE_S) == 0
    assert failures == [None]
    sent.append(Record(b"once", b"value", (), 1_000_200))
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})
    try:
        [done] = consumer.commit(offsets=[TopicPartition(TOPIC, 0, 42)], asynchronous=False)
        assert done.error is None
    finally:
        consumer.close()
    return sent


class Ours:
    """The directory of a tidelog broker that was stopped, and what was written to it."""

    def __init__(self, data: Path, sent: list[Record]) -> None:
        self.data = data
        self.sent = sent


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Ours:
    directory = tmp_path_factory.mktemp("dumped") / "cluster"
    config = {"offsets.topic.num.partitions": "1"}
    cluster = LocalCluster(str(directory), 1, config=config)
    cluster.up()
    try:
        sent = fill(cluster.bootstrap, 1)
    finally:
        cluster.down()
    [place] = cluster.places().values()
    return Ours(Path(place.directory) / "data", sent)


@pytest.fixture(scope="module", params=KAFKA if thorough.IS_WANTED else KAFKA[:1])
def tools(request: pytest.FixtureRequest) -> Tools:
    try:
        return Tools(request.param)
    except Absent as absent:
        pytest.skip(f"Kafka's tools {request.param}: {absent}")


def of_kind(directory: Path, suffix: str) -> list[Path]:
    found = sorted(directory.glob(f"*{suffix}"))
    assert found, f"no {suffix} in {directory}"
    return found


class TestKafkaReadsOurs:
    """kafka-dump-log of 3.9 and 4 on the files of a tidelog broker."""

    def test_segments(self, tools: Tools, ours: Ours) -> None:
        logs = of_kind(ours.data / f"{TOPIC}-0", ".log")
        assert len(logs) > 2
        files = ",".join(map(str, logs))
        told = tools.run("kafka-dump-log", "--deep-iteration", "--print-data-log", "--files", files)
        keys = re.findall(r"\| offset: (\d+) CreateTime: (\d+) .*? key: (.*?) payload: ", told)
        assert [(int(offset), int(time_ms), key) for offset, time_ms, key in keys] == [
            (offset, record.timestamp_ms, (record.key or b"").decode())
            for offset, record in enumerate(ours.sent)
        ]
        assert "isvalid: false" not in told
        assert {codec.upper() for codec in CODECS} == set(
            re.findall(
                r"compresscodec: (\w+)", told.upper().replace("COMPRESSCODEC", "compresscodec")
            )
        )

    def test_indexes_and_snapshots(self, tools: Tools, ours: Ours) -> None:
        directory = ours.data / f"{TOPIC}-0"
        kinds = (".index", ".timeindex", ".snapshot")
        files = ",".join(str(path) for kind in kinds for path in of_kind(directory, kind))
        told = tools.run("kafka-dump-log", "--files", files)
        # What an index says is compared with its segment: differences are listed at the end.
        assert "mismatches" not in told.lower()
        assert "Found timestamp" not in told
        assert re.search(r"offset: \d+ position: \d+", told)
        assert re.search(r"timestamp: \d+ offset: \d+", told)
        assert re.search(
            r"producerId: \d+ producerEpoch: 0 .*firstSequence: 0 lastSequence: 0", told
        )

    def test_offsets_of_groups(self, tools: Tools, ours: Ours) -> None:
        [log] = of_kind(ours.data / f"{OFFSETS}-0", ".log")
        told = dumped(tools, log, "--offsets-decoder")
        assert f'"group":"{GROUP}","topic":"{TOPIC}","partition":0' in told
        assert '"offset":42' in told


class RealKafka:
    """One Kafka broker in KRaft mode, from the jars; its data directory once it was stopped."""

    def __init__(self, tools: Tools, directory: Path) -> None:
        self._tools = tools
        self._log = directory / "kafka.log"
        self.data = directory / "data"
        broker, controller = free_ports(2)
        self.bootstrap = f"127.0.0.1:{broker}"
        self._properties = directory / "server.properties"
        keys = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self.data),
            "offsets.topic.num.partitions": "1",
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
        }
        self._properties.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))

    @contextmanager
    def running(self) -> Iterator[None]:
        """Started, awaited, used, and stopped as an operator would."""
        cluster = ("--cluster-id", "AAAAAAAAAAAAAAAAAAAAAA")
        self._tools.run("kafka-storage", "format", *cluster, "--config", str(self._properties))
        with self._log.open("wb") as log:
            process = subprocess.Popen(
                self._tools.words("kafka-server-start", str(self._properties)),
                cwd=self._properties.parent,
                stdout=log,
                stderr=log,
            )
        try:
            self._await_answer(process)
            yield
            process.send_signal(signal.SIGTERM)
            process.wait(PATIENCE_S)
        finally:
            process.kill()
            process.wait()

    def _await_answer(self, process: subprocess.Popen[bytes]) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        deadline = time.monotonic() + PATIENCE_S
        while True:
            told = self._log.read_text(errors="replace")[-3000:]
            assert process.poll() is None, told
            assert time.monotonic() < deadline, told
            with suppress(KafkaException):  # not there yet; the deadline ends this
                if admin.list_topics(timeout=1).brokers:
                    return
            time.sleep(0.1)


class Theirs(Ours):
    """The same of a Kafka broker; its log has a committed and an aborted transaction as well."""


def transactions(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "t"})
    producer.init_transactions(PATIENCE_S)
    for end in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        producer.produce(TOPIC, b"transactional", end.__name__.encode(), partition=0)
        assert producer.flush(PATIENCE_S) == 0
        end(PATIENCE_S)


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Theirs:
    try:
        tools = Tools("3.9.2")
    except Absent as absent:
        pytest.skip(f"a real Kafka 3.9.2: {absent}")
    kafka = RealKafka(tools, tmp_path_factory.mktemp("kafka"))
    with kafka.running():
        sent = fill(kafka.bootstrap, 1)
        transactions(kafka.bootstrap)
    return Theirs(kafka.data, sent)


def entries(path: Path, *words: str) -> list[dict[str, Any]]:
    """What `tidelog dump-log` says of a file; it must find no damage."""
    command = [sys.executable, "-m", "tidelog", "dump-log", str(path), *words, "-o", "json"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout)
    assert told["damage"] is None
    found: list[dict[str, Any]] = told["entries"]
    return found


class TestOursReadsKafkas:
    """`tidelog dump-log` on the files of a real Kafka 3.9."""

    def test_segments(self, theirs: Theirs) -> None:
        logs = of_kind(theirs.data / f"{TOPIC}-0", ".log")
        assert len(logs) > 2
        rows = [row for log in logs for row in entries(log, "--records")]
        keys = [row["key"] for row in rows if "key" in row]
        told = [(record.key or b"").decode() for record in theirs.sent]
        assert keys[: len(told)] == told
        assert keys[len(told)] == "commit_transaction"
        assert {row["compression"] for row in rows if "compression" in row} == set(CODECS)

    @pytest.mark.parametrize("suffix", [".index", ".timeindex", ".snapshot"])
    def test_indexes_and_snapshots(self, theirs: Theirs, suffix: str) -> None:
        files = of_kind(theirs.data / f"{TOPIC}-0", suffix)
        assert any(entries(path) for path in files)

    def test_offsets_of_groups_and_the_log_of_metadata(self, theirs: Theirs) -> None:
        assert entries(theirs.data / f"{OFFSETS}-0" / f"{0:020}.log", "--records")
        assert entries(theirs.data / "__cluster_metadata-0" / f"{0:020}.log")

    @pytest.mark.parametrize(
        "name",
        [
            "replication-offset-checkpoint",
            "recovery-point-offset-checkpoint",
            "log-start-offset-checkpoint",
            "meta.properties",
            f"{TOPIC}-0/leader-epoch-checkpoint",
            f"{TOPIC}-0/partition.metadata",
        ],
    )
    def test_checkpoints(self, theirs: Theirs, name: str) -> None:
        path = theirs.data / name
        assert len(entries(path)) == len(path.read_text().splitlines())
