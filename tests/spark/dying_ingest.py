"""An ingest that kills itself: `dying_ingest.py BOOTSTRAP TOPIC TABLE STEP`.

STEP counts what changes files of the table, from 0. SIGKILL comes before that step.
"""

from __future__ import annotations

import os
import signal
import sys

from pyspark.sql import SparkSession
from tests.support.table_files import StoppingFiles

from tidelog.spark.pipelines import ingest as ingest_module
from tidelog.spark.pipelines import table_access
from tidelog.spark.pipelines.table_files import TableFiles
from tidelog.spark.session import start_session


class KillingFiles(StoppingFiles):
    """Files whose step `crash_at` is never taken: the process is gone."""

    def _step(self, name: str) -> None:
        if len(self.taken) == self.crash_at:
            os.kill(os.getpid(), signal.SIGKILL)
        self.taken.append(name)


def main(bootstrap: str, topic: str, table: str, step: str) -> None:
    def files_at(spark: SparkSession, directory: str) -> TableFiles:
        return KillingFiles(table_access.files_at(spark, directory), int(step))

    vars(ingest_module)["files_at"] = files_at
    spark = start_session("dying ingest", quick=True, log_path=f"{table}.log")
    ingest_module.ingest(spark, bootstrap, topic, table)


if __name__ == "__main__":
    main(*sys.argv[1:])
