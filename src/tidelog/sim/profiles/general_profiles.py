"""Profiles that do not concentrate on one part: default faults, all faults, and losses beyond the
budget.

The module also has the profiles that change what clients do: compaction, lookups of offsets,
compression, crowds. One profile splits the bytes of connections.
"""

from __future__ import annotations

from typing import Final

from tidelog.sim.profiles.profile import Pace, Profile

GENERAL: Final = (
    Profile("default", shares_stream=True),
    Profile(
        "everything",
        pace=Pace(
            left_out=0.5, interval_ms=(60, 1_100), down_ms=((20, 400), (20, 6_000), (200, 2_500))
        ),
        config="log.cleaner.backoff.ms=40, log.cleaner.io.buffer.size=1024,"
        " log.cleaner.dedupe.buffer.size=2048",
        recreates=0.3,
        churn_share=0.4,
        has_all_kinds=True,
    ),
    # Losses beyond the fault budget: any broker may lose its unsynced data at any time. Records may
    # be lost, but all other invariants hold (`keeps_promises`).
    Profile(
        "beyond",
        faults="crash_leader 4, crash_any 4, strike 4, cut_two_ways 2, cut_store 1,"
        " expire_session 1, rolling_restart 1, slow_link 1",
        pace=Pace(left_out=0.2, interval_ms=(60, 600), down_ms=((20, 400), (200, 1_500))),
        keeps_budget=False,
        keeps_promises=False,
        churn_share=0.2,
    ),
    # Small segments with few keys, which the cleaner compacts all the time.
    Profile(
        "compaction",
        pace=Pace(interval_ms=(300, 1_100)),
        config="log.segment.bytes=1500, offsets.topic.segment.bytes=1500,"
        " log.segment.delete.delay.ms=300, log.cleaner.backoff.ms=40,"
        " log.cleaner.io.buffer.size=1024, log.cleaner.dedupe.buffer.size=2048,"
        " log.cleaner.min.cleanable.ratio=0.01, log.cleaner.delete.retention.ms=1000",
        compacted=True,
        shares_stream=True,
    ),
    # Consumers look up offsets and retention removes old records, while leaders change and
    # followers lag. Group members in two processes take over each other's `group.instance.id`.
    Profile(
        "lookups",
        faults="slow_link 5, elect_preferred 3, crash_leader 3, expire_session 2, cut_two_ways 2,"
        " pause 1",
        pace=Pace(left_out=0.0, interval_ms=(100, 400), down_ms=((20, 400), (200, 2_500))),
        config="log.retention.check.interval.ms=60",
        recreates=0.0,
        churn=("offsets_looked_up", "records_expire", "instances_doubled"),
    ),
    # Leaders compress the batches that they append.
    Profile("recompressed", config="compression.type=gzip"),
    # Crowds of clients take all connections of a broker, or do not read their responses.
    # Connections between brokers break at the same time, so that brokers must reconnect despite the
    # crowd (L1). Because only connections fail, and brokers restore them at once, no follower may
    # leave an ISR.
    Profile(
        "crowded",
        faults="reset_connections 1",
        pace=Pace(left_out=0.0, interval_ms=(300, 1_500)),
        recreates=0.0,
        config="max.connections=60, connections.max.idle.ms=16000,"
        " queued.max.response.bytes=65536, replica.lag.time.max.ms=600",
        churn=("crowds",),
        isr_stands=True,
        session_timeout_ms=4_000,
    ),
    # Connections break, sends and reads may end within a frame, and a read may contain parts of
    # several frames.
    Profile(
        "split_frames",
        faults="split_reads 12, reset_connections 3, crash_leader 2, crash_any 1, clog 2,"
        " slow_link 2, half_open 1, pause 1, cut_one_way 1",
        pace=Pace(left_out=0.0, interval_ms=(60, 500)),
    ),
)
