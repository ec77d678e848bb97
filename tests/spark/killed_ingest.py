"""A program: one ingest on executors of its own, which a test kills.

    killed_ingest.py BOOTSTRAP TOPIC TABLE

Small tasks, so that many of them read the topic.
"""

from __future__ import annotations

import sys

from tests.spark.killing import LOCAL_CLUSTER

from tidelog.spark.pipelines.ingest import topic_ingest
from tidelog.spark.pipelines.landing import LandingOptions
from tidelog.spark.session import start_session, stop_session

OFFSETS_PER_TASK = 300


def main(bootstrap: str, topic: str, table: str) -> None:
    spark = start_session("killed-ingest", quick=True, log_path=f"{table}.log", conf=LOCAL_CLUSTER)
    try:
        options = LandingOptions(offsets_per_task=OFFSETS_PER_TASK)
        with topic_ingest(spark, bootstrap, topic, table, options) as runs:
            runs.run()
    finally:
        stop_session(spark)


if __name__ == "__main__":
    main(*sys.argv[1:])
