"""`format("tidelog")` over log directories, through Spark, without a broker."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.audits import three_brokers
from tests.support.log_files import flip

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def load(spark: SparkSession, root: Path, **options: str) -> DataFrame:
    reader = spark.read.format("tidelog").option("segments", str(root / "broker-*"))
    return reader.options(**options).load()


def test_log_directories_are_read_without_brokers(spark: SparkSession, tmp_path: Path) -> None:
    three_brokers(tmp_path)
    frame = load(spark, tmp_path, minPartitions="3")
    row = frame.selectExpr(
        "count(*) as n", "count(distinct offset) as o", "min(topic) as t", "max(offset) as m",
        "count_if(split(cast(value as string), ' ')[0] = cast(offset as string)) as right",
    ).first()  # fmt: skip
    assert row is not None and row.asDict() == {
        "n": 600, "o": 600, "t": "flights", "m": 599, "right": 600,
    }  # fmt: skip


def test_damage_and_wrong_options_are_one_sentence_on_the_driver(
    spark: SparkSession, tmp_path: Path
) -> None:
    three_brokers(tmp_path)
    for number in (1, 2, 3):
        flip(tmp_path / f"broker-{number}" / "flights-0" / f"{200:020d}.log", 3000)
    with pytest.raises(Exception, match=r"0200\.log: the batch at byte 2262") as damaged:
        load(spark, tmp_path).count()
    assert "Traceback" not in str(damaged.value)
    with pytest.raises(Exception, match="'nowhere' names no directory"):
        spark.read.format("tidelog").option("segments", "nowhere").load().count()
    assert load(spark, tmp_path, failOnDataLoss="false").count() == 590
