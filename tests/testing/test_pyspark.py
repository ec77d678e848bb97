"""The stand-in for PySpark's KafkaUtils, used as a test of PySpark uses that."""

from __future__ import annotations

import subprocess
import sys
import unittest
from collections.abc import Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from kafka import TopicPartition
from tests.support.cluster.values import read_values

from tidelog.core.types import TopicPartition as Partition
from tidelog.spark.session import start_session
from tidelog.testing.pyspark import KafkaUtils

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def utils() -> Iterator[KafkaUtils]:
    made = KafkaUtils()
    made.setup()
    yield made
    made.teardown()


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    session = start_session("tidelog-testing", quick=True)
    yield session
    session.stop()


def test_a_unittest_as_pyspark_has_them(spark: SparkSession) -> None:
    class StreamingTest(unittest.TestCase):
        utils: KafkaUtils

        @classmethod
        def setUpClass(cls) -> None:
            cls.utils = KafkaUtils(kafka_version="7.4.0")
            cls.utils.setup()

        @classmethod
        def tearDownClass(cls) -> None:
            cls.utils.teardown()

        def test_read_write(self) -> None:
            self.utils.create_topics(["a", "b"], num_partitions=3)
            self.utils.send_messages("a", [("k1", "v1"), ("k2", b"v2"), (b"k3", 3), (None, None)])
            self.utils.assert_eventually(
                lambda: self.utils.get_all_records(spark, "a"),
                {"k1": "v1", "k2": "v2", "k3": "3", None: None},
                timeout=30,
                interval=0.1,
            )
            assert self.utils.get_all_records(spark, "b") == {}

    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(StreamingTest).run(result)
    assert (result.testsRun, result.errors, result.failures) == (1, [], [])


def test_kafka_pythons_clients_are_at_hand(utils: KafkaUtils) -> None:
    utils.create_topics(["texts"])
    sent = utils.producer.send("texts", key="k", value="v").get(30)
    assert (sent.offset, sent.topic_partition) == (0, TopicPartition("texts", 0))
    assert "texts" in utils.admin_client.list_topics()
    assert read_values(utils.broker, Partition("texts", 0)) == [b"v"]


def test_topics_come_and_go(utils: KafkaUtils) -> None:
    utils.create_topics(["gone"], replication_factor=1)
    utils.delete_topics(["gone"])
    utils.cluster.wait_for(
        lambda now: "gone" not in [each.topic for each in now.partitions], what="no topic"
    )
    assert "gone" not in utils.admin_client.list_topics()


def test_what_never_comes_about_is_told(utils: KafkaUtils) -> None:
    with pytest.raises(AssertionError, match="after 0 s 1, not 2"):
        utils.assert_eventually(lambda: 1, 2, timeout=0, interval=0)


class Query:
    """A streaming query in one of its states."""

    def __init__(self, active: bool, working: bool, error: Exception | None = None) -> None:
        self.isActive = active
        self.status = {"isTriggerActive": working, "message": "its own words"}
        self.lastProgress = None
        self.exception = lambda: error


@pytest.mark.parametrize(
    ("query", "told"),
    [
        (Query(False, False), "the query has ended: .*its own words"),
        (Query(True, True, ValueError("broken")), "the query has ended: broken"),
        (Query(True, False), "after 0 s no progress: .*its own words"),
    ],
)
def test_a_query_that_does_not_live_is_told(utils: KafkaUtils, query: Any, told: str) -> None:
    with pytest.raises(AssertionError, match=told):
        utils.wait_for_query_alive(query, timeout=0, interval=0)


def test_a_query_that_works_is_alive(utils: KafkaUtils) -> None:
    query: Any = SimpleNamespace(**vars(Query(True, True)))
    alive = utils.wait_for_query_alive(query, timeout=0)  # type: ignore[func-returns-value]  # or raises
    assert alive is None


def test_without_setup_there_is_no_cluster_and_teardown_may_be_repeated() -> None:
    unused = KafkaUtils()
    with pytest.raises(RuntimeError, match="call setup"):
        _ = unused.broker
    unused.teardown()
    unused.teardown()


def test_pyspark_is_not_loaded_by_it() -> None:
    listing = "import sys, tidelog.testing.pyspark; print('pyspark' in sys.modules)"
    ran = subprocess.run(
        [sys.executable, "-c", listing], capture_output=True, text=True, check=True
    )
    assert ran.stdout == "False\n"
