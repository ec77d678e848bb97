"""The official connector with Delta's jar, for `bench.lake`: a program under a Spark that both fit.

`lake_peer.py JARS BOOTSTRAP`: for each line `TOPIC DIRECTORY` of stdin, it appends the topic to a
Delta table and prints the seconds.
"""

from __future__ import annotations

import sys
import time

from pyspark.sql import SparkSession


def main(jars: str, bootstrap: str) -> None:
    """Serve the lines of stdin."""
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.memory", "2g")
        .config("spark.jars", jars)
        .config("spark.ui.enabled", "false")
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config(
            "spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog"
        )
        .config("spark.sql.parquet.compression.codec", "zstd")
        .getOrCreate()
    )
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for line in sys.stdin:
        topic, directory = line.split()
        begin = time.perf_counter()
        rows = spark.read.format("kafka").options(
            **{
                "kafka.bootstrap.servers": bootstrap,
                "subscribe": topic,
                "kafka.max.poll.records": "5000",
                "kafka.max.partition.fetch.bytes": str(8 << 20),
            }
        )
        rows.load().write.format("delta").mode("append").save(directory)
        sys.stdout.write(f"{time.perf_counter() - begin}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
