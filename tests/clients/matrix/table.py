"""The compatibility matrix: which feature is checked with which client, and what stands in the way.

A cell is a check, run by test_matrix.py, unless EXCEPTIONS says that the client has no such call.
docs/compatibility.md is made from a run of this table.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tests.clients.matrix import checks_admin, checks_groups, checks_records
from tests.clients.matrix.driver import Driver
from tests.clients.matrix.harness import ClientHarness

Check = Callable[[ClientHarness], None]


@dataclass(frozen=True, slots=True)
class Lacking:
    """The client has no such thing; in which words of its own."""

    reason: str


@dataclass(frozen=True, slots=True)
class Feature:
    """A row."""

    name: str
    title: str
    check: Check


@dataclass(frozen=True, slots=True)
class Client:
    """A column: its driver is `module.make(bootstrap)`, imported when it is needed."""

    name: str
    module: str
    cls: str
    exceptions: Mapping[str, Lacking | Check]
    #: Left to thorough runs (tests/clients/thorough.py).
    thorough: bool = False

    def make(self, bootstrap: str) -> Driver:
        module = importlib.import_module(f"tests.clients.matrix.{self.module}")
        driver: Driver = getattr(module, self.cls)(bootstrap)
        return driver


FEATURES = (
    Feature("none", "produce and read, uncompressed", checks_records.none),
    Feature("gzip", "… gzip", checks_records.gzip),
    Feature("snappy", "… snappy", checks_records.snappy),
    Feature("lz4", "… lz4", checks_records.lz4),
    Feature("zstd", "… zstd", checks_records.zstd),
    Feature("headers", "keys, values and headers of any bytes", checks_records.keys_and_headers),
    Feature("timestamps", "timestamps", checks_records.timestamps),
    Feature(
        "idempotence",
        "idempotent producer, leader killed",
        checks_records.idempotence,
    ),
    Feature(
        "transactions",
        "transactions: not served, and refused by name",
        checks_records.transactions_are_refused,
    ),
    Feature("seek", "read by assignment, seek to an offset", checks_records.assignment_and_seek),
    Feature("seek-by-time", "seek by time", checks_records.seek_by_time),
    Feature("list-offsets", "list offsets: first, last, by time", checks_records.list_offsets),
    Feature("eager", "group, eager rebalance, coordinator killed", checks_groups.eager),
    Feature(
        "cooperative", "group, cooperative rebalance, coordinator killed", checks_groups.cooperative
    ),
    Feature("static", "group, static members", checks_groups.static_members),
    Feature("commit", "commit and resume", checks_groups.commit_and_resume),
    Feature("topics", "create and delete topics", checks_admin.create_and_delete_topics),
    Feature("describe-topics", "describe topics", checks_admin.describe_topics),
    Feature("partitions", "add partitions", checks_admin.create_partitions),
    Feature("configs", "describe and alter configurations", checks_admin.configs),
    Feature("delete-records", "delete records", checks_admin.delete_records),
    Feature("cluster", "describe the cluster", checks_admin.describe_cluster),
    Feature("elect", "elect preferred leaders", checks_admin.elect_leaders),
    Feature("log-dirs", "sizes of log directories", checks_admin.log_dirs),
    Feature("groups", "list and describe groups", checks_admin.list_and_describe_groups),
    Feature("group-offsets", "offsets of groups", checks_admin.offsets_of_groups),
    Feature("set-offsets", "set offsets of groups", checks_admin.set_offsets_of_groups),
    Feature("delete-groups", "delete groups", checks_admin.delete_groups),
)

_KCAT_ADMIN = Lacking("kcat has no admin calls")

CLIENTS = (
    Client(
        "kcat",
        "on_kcat",
        "Kcat",
        {
            "headers": checks_records.keys_and_headers_of_a_command,
            "timestamps": checks_records.timestamps_of_its_own,
            "transactions": Lacking("kcat sends in transactions only with a build option"),
            "commit": checks_groups.automatic_commit_and_resume,
            "eager": checks_groups.eager_that_commits_by_itself,
            "topics": _KCAT_ADMIN,
            "partitions": _KCAT_ADMIN,
            "configs": _KCAT_ADMIN,
            "delete-records": _KCAT_ADMIN,
            "elect": _KCAT_ADMIN,
            "log-dirs": _KCAT_ADMIN,
            "groups": _KCAT_ADMIN,
            "group-offsets": _KCAT_ADMIN,
            "set-offsets": _KCAT_ADMIN,
            "delete-groups": _KCAT_ADMIN,
        },
    ),
    Client(
        "confluent-kafka",
        "on_librdkafka",
        "Librdkafka",
        {"log-dirs": Lacking("no such admin call in confluent-kafka")},
    ),
    Client("kafka-python", "on_kafka_python", "KafkaPython", {}),
    Client(
        "aiokafka",
        "on_aiokafka",
        "Aiokafka",
        {
            "cooperative": Lacking("aiokafka has eager assignors only"),
            "elect": Lacking("no such admin call in aiokafka"),
            "log-dirs": Lacking("no such admin call in aiokafka"),
            "delete-groups": Lacking("no such admin call in aiokafka"),
        },
    ),
    Client("java-3.9", "on_java", "java_3", {}, thorough=True),
    Client("java-4", "on_java", "java_4", {}),
    Client("franz-go", "on_franz", "make", {"list-offsets": checks_records.latest_offset_by_time}),
    Client(
        "kafkajs",
        "on_kafkajs",
        "make",
        {
            "transactions": checks_records.transactions_find_no_coordinator,
            "list-offsets": checks_records.latest_offset_by_time,
            "cooperative": Lacking("kafkajs has eager assigners only"),
            "static": Lacking("kafkajs has no static members"),
            "elect": Lacking("no such admin call in kafkajs"),
            "log-dirs": Lacking("no such admin call in kafkajs"),
        },
    ),
)


def cell(client: Client, feature: Feature) -> Check | Lacking:
    """What stands where a row and a column meet."""
    return client.exceptions.get(feature.name, feature.check)
