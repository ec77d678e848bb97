"""An ingest whose executors, and a leader, die while it reads: the table has every record once."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.spark import killed_ingest
from tests.spark.killing import await_strike, kill_executors, kill_program
from tests.spark.test_with_brokers import make_topic, produce

from tidelog.runtime.blocking import BlockingClient
from tidelog.spark.lake.delta import DeltaLake
from tidelog.spark.pipelines.ingest import prove_table, read_landed
from tidelog.testing import Cluster, Fault

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ROOT = Path(__file__).resolve().parents[2]
_RECORDS = 6_000


def held(cluster: Cluster, nth: int) -> Fault:
    """Hold the ingest's nth fetch from now on at some broker, and all behind it."""
    return cluster.on_request("Fetch").where(client_id="tidelog-ingest").nth(nth).drop()


def ingest_through_kills(
    spark: SparkSession, cluster: Cluster, topic: str, table: Path, draws: random.Random
) -> None:
    """Kill the executors in one fetch, and a leader in a later one; then look at the table."""
    with BlockingClient(cluster.bootstrap) as client:
        make_topic(client, topic, 3)
    produce(cluster, topic, 0, _RECORDS, "lz4")
    with held(cluster, draws.randrange(1, 6)) as first:
        words = [sys.executable, "-m", killed_ingest.__name__, cluster.bootstrap, topic, str(table)]
        running = subprocess.Popen(words, cwd=_ROOT, start_new_session=True)
        try:
            log = table.with_suffix(".log")
            await_strike(first, running, log)
            with held(cluster, draws.randrange(1, 4)) as second:
                assert kill_executors(running) > 0
                await_strike(second, running, log)
                leader = cluster.leader(topic, draws.randrange(3))
                cluster.kill(leader)
            assert running.wait() == 0, log.read_text()[-4000:]
        finally:
            kill_program(running)
    cluster.start(leader)
    proof = prove_table(spark, str(table))
    assert (proof.holds, proof.offsets.rows) == (True, _RECORDS)
    values = {bytes(row.value) for row in read_landed(spark, str(table)).select("value").collect()}
    assert values == {b"v%d" % number for number in range(_RECORDS)}
    named = {table / file.path for file in DeltaLake(str(table)).files()}
    assert {*table.rglob("*.parquet")} == named, "files of dead attempts are deleted"


def test_the_table_has_every_record_once(
    spark: SparkSession, tidelog_cluster_module: Cluster, tmp_path: Path
) -> None:
    ingest_through_kills(
        spark, tidelog_cluster_module, "taken", tmp_path / "table", random.Random(0)
    )


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1, 21))
def test_the_table_has_every_record_once_twenty_times(
    spark: SparkSession, tidelog_cluster_module: Cluster, tmp_path: Path, seed: int
) -> None:
    topic = f"taken-{seed}"
    ingest_through_kills(
        spark, tidelog_cluster_module, topic, tmp_path / "table", random.Random(seed)
    )
