"""Reads a Delta table in Spark with Delta's jar: `delta_jar_program.py JARS TABLE`, prints JSON."""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession


def main(jars: str, table: str) -> None:
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.jars", jars)
        .config("spark.ui.enabled", "false")
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config(
            "spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog"
        )
        .getOrCreate()
    )
    rows = spark.read.format("delta").load(table)
    earlier = spark.read.format("delta").option("versionAsOf", 2).load(table)
    merged = spark.sql(f"describe history delta.`{table}`")
    found = {
        "numbers": sorted(row.n for row in rows.collect()),
        "skipped": rows.where("offset >= 45").count(),
        "earlier": earlier.count(),
        "versions": merged.count(),
    }
    sys.stdout.write(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
