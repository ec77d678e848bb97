"""A program: one ingest on executors of its own, which a test kills.

    killed_ingest.py BOOTSTRAP TOPIC TABLE

Small files, so that many tasks read the topic.
"""

from __future__ import annotations

import sys

from tests.spark.killing import LOCAL_CLUSTER

from tidelog.spark.pipelines.ingest import ingest
from tidelog.spark.session import start_session, stop_session

ROWS_PER_FILE = 300


def main(bootstrap: str, topic: str, table: str) -> None:
    spark = start_session("killed-ingest", quick=True, log_path=f"{table}.log", conf=LOCAL_CLUSTER)
    try:
        ingest(spark, bootstrap, topic, table, rows_per_file=ROWS_PER_FILE)
    finally:
        stop_session(spark)


if __name__ == "__main__":
    main(*sys.argv[1:])
