"""How soon a follower that has caught up is a member of the ISR (A4, A12).

A follower is paused until it has left the ISR of a partition, and runs again. Both times are the
leader's, as DescribeReplicas tells them: when the replica had caught up, and when it was a member
by a confirmed change. The leader is asked all the time, so the figure includes up to one poll.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence

from bench.returning import MODES, controller_of
from bench.rig import spread, table
from tidelog.client.replica_requests import PartitionReplicas
from tidelog.core.types import TopicPartition
from tidelog.local.cluster import LocalCluster
from tidelog.runtime.blocking import BlockingClient

_BROKERS = 3
_LAG_MS = 1_000
_LIMIT_S = 60.0
_TP = TopicPartition("joined", 0)


def run(rounds: int, stores: Sequence[str]) -> list[str]:
    """Return the table, with a column for each store and mode."""
    found: dict[str, list[float]] = {}
    polls: dict[str, list[float]] = {}
    for store in stores:
        for mode, properties in MODES.items():
            column = f"{store}, {mode}"
            found[column], polls[column] = _joins(store, properties, rounds)
    rows = [
        ("caught up to confirmed member, ms", *(spread(each, 1) for each in found.values())),
        ("of this at most one poll, ms", *(spread(each, 1) for each in polls.values())),
    ]
    title = "A follower that has caught up joins the ISR"
    return [table(title, rows, ("of", *found))]


def _joins(store: str, mode: Mapping[str, str], rounds: int) -> tuple[list[float], list[float]]:
    """Return the times and the mean polls of all rounds, in ms."""
    config = {"replica.lag.time.max.ms": str(_LAG_MS), "replica.fetch.wait.max.ms": "100", **mode}
    with tempfile.TemporaryDirectory(prefix="tidelog-bench-") as directory:
        cluster = LocalCluster(f"{directory}/cluster", _BROKERS, config=config, store=store)
        cluster.up()
        try:
            controller = controller_of(cluster)
            leader, follower = (each for each in cluster.broker_ids if each != controller)
            with BlockingClient(cluster.places()[leader].address, timeout_ms=60_000) as client:
                client.create_topic(_TP.topic, assignment={0: (leader, follower, controller)})
                client.await_topic(_TP.topic, _BROKERS)
                times = [_join(cluster, client, leader, follower) for _ in range(rounds)]
            return [took for took, _ in times], [poll for _, poll in times]
        finally:
            cluster.down()


def _join(
    cluster: LocalCluster, client: BlockingClient, leader: int, follower: int
) -> tuple[float, float]:
    cluster.pause(follower)
    try:
        _await_member(client, leader, follower, is_member=False)
    finally:
        paused_ms = time.time() * 1e3
        cluster.resume(follower)
    return _await_member(client, leader, follower, is_member=True, after_ms=paused_ms)


def _await_member(
    client: BlockingClient, leader: int, follower: int, *, is_member: bool, after_ms: float = 0
) -> tuple[float, float]:
    """Poll until the follower is a member, or is none; return ms since it caught up, ms a poll."""
    begin, polls, caught_up_ms = time.monotonic(), 0, 0.0
    while True:
        described = client.describe_replicas(leader, [_TP])[_TP]
        polls += 1
        now_ms = time.time() * 1e3
        last_ms = _last_caught_up_ms(described, follower)
        if not caught_up_ms and last_ms >= after_ms:
            # A later fetch moves it on: the first one seen counts.
            caught_up_ms = last_ms
        if _is_member(described, follower) is is_member:
            return now_ms - caught_up_ms, (time.monotonic() - begin) * 1e3 / polls
        assert time.monotonic() - begin < _LIMIT_S, f"follower: member is not {is_member}"


def _last_caught_up_ms(described: PartitionReplicas, follower: int) -> float:
    found = next(each for each in described.replicas if each.broker == follower)
    return found.last_caught_up_ms or 0


def _is_member(described: PartitionReplicas, follower: int) -> bool:
    return next(each for each in described.replicas if each.broker == follower).in_isr
