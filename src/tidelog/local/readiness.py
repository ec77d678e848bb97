"""A proof of a cluster's readiness: one record is written to all replicas of a topic.

The probe is a temporary topic with `min.insync.replicas` equal to its replication factor, so that
the acknowledgement comes from every replica. The probe topic is deleted afterwards, even after a
failure.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Callable

from tidelog.core.errors import ErrorCode, KafkaError, TidelogError
from tidelog.core.types import TopicPartition
from tidelog.local.errors import LocalClusterError
from tidelog.records.builder import NewRecord, build_batch
from tidelog.runtime.blocking import BlockingClient

PROBE_PREFIX = "__tidelog-probe-"
#: Timeout in ms of one try, short enough to notice the end of a broker.
_TRY_MS = 2_000
_PAUSE_S = 0.02


def await_writable(
    bootstrap: str, replicas: int, timeout_s: float, check: Callable[[], None], *, client_id: str
) -> None:
    """Wait until a record is on all replicas of a probe topic of replication factor `replicas`.

    `check` runs before each try, and raises an error if further tries are useless. Raises
    LocalClusterError with the reason of the last failure after `timeout_s`.
    """
    deadline = time.monotonic() + timeout_s
    topic = PROBE_PREFIX + secrets.token_hex(4)
    with BlockingClient(bootstrap, client_id, _TRY_MS) as client:
        try:
            while True:
                check()
                try:
                    _write(client, topic, replicas)
                    return
                except TidelogError as error:
                    reason = str(error)
                if time.monotonic() > deadline:
                    raise LocalClusterError(
                        f"the cluster cannot be written to after {timeout_s:.0f} s: {reason}"
                    )
                time.sleep(_PAUSE_S)
        finally:
            with contextlib.suppress(TidelogError):
                client.delete_topic(topic)


def _write(client: BlockingClient, topic: str, replicas: int) -> None:
    try:
        client.create_topic(topic, 1, replicas, {"min.insync.replicas": str(replicas)})
    except KafkaError as error:
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise
    batch = build_batch([NewRecord(None, b"ready", time.time_ns() // 1_000_000)])
    client.produce(TopicPartition(topic, 0), batch, timeout_ms=_TRY_MS)
