"""The lines of a client's process: a partition, and the wall clock in microseconds."""

from __future__ import annotations

import os
import time

#: A client writes one record to each partition this often.
PACE_S = int(os.environ["TIDELOG_BENCH_PACE_MS"]) / 1000


def say(partition: int) -> None:
    """Report a record of a partition that was acknowledged, or read, now."""
    os.write(1, b"%d %d\n" % (partition, time.time_ns() // 1000))
