"""Profiles without a bias towards one part: default faults, all faults, and all losses.

The module has also the profiles that change the work of clients: compaction, lookups of offsets,
compression.
"""

from __future__ import annotations

from typing import Final

from tidelog.sim.profiles.profile import Profile

GENERAL: Final = (
    Profile("default"),
    Profile(
        "everything",
        left_out=0.5,
        mean_interval_ms=(60, 1_100),
        restart_ms=((20, 400), (20, 6_000), (200, 2_500)),
        properties={
            "log.cleaner.backoff.ms": "40",
            "log.cleaner.io.buffer.size": "1024",
            "log.cleaner.dedupe.buffer.size": "2048",
        },
        recreates=0.3,
        churn_share=0.4,
        has_all_kinds=True,
        has_own_streams=True,
    ),
    # Losses beyond the fault budget: any broker may lose its unsynced data at any time. Records
    # may be lost, but all other invariants hold (see keeps_promises).
    Profile(
        "beyond",
        weights={
            "crash_leader": 4.0,
            "crash_any": 4.0,
            "strike": 4.0,
            "cut_two_ways": 2.0,
            "cut_store": 1.0,
            "expire_session": 1.0,
            "rolling_restart": 1.0,
            "slow_link": 1.0,
        },
        left_out=0.2,
        mean_interval_ms=(60, 600),
        restart_ms=((20, 400), (200, 1_500)),
        keeps_budget=False,
        keeps_promises=False,
        has_own_streams=True,
        churn_share=0.2,
    ),
    # Small segments with few keys, which the cleaner compacts all the time.
    Profile(
        "compaction",
        mean_interval_ms=(300, 1_100),
        properties={
            "log.segment.bytes": "1500",
            "offsets.topic.segment.bytes": "1500",
            "log.segment.delete.delay.ms": "300",
            "log.cleaner.backoff.ms": "40",
            "log.cleaner.io.buffer.size": "1024",
            "log.cleaner.dedupe.buffer.size": "2048",
            "log.cleaner.min.cleanable.ratio": "0.01",
            "log.cleaner.delete.retention.ms": "1000",
        },
        compacted=True,
    ),
    # Consumers look offsets up and retention removes old records, while leaders change and
    # followers are behind. Processes take each other's places in a group.
    Profile(
        "lookups",
        weights={
            "slow_link": 5.0,
            "elect_preferred": 3.0,
            "crash_leader": 3.0,
            "expire_session": 2.0,
            "cut_two_ways": 2.0,
            "pause": 1.0,
        },
        left_out=0.0,
        mean_interval_ms=(100, 400),
        restart_ms=((20, 400), (200, 2_500)),
        properties={"log.retention.check.interval.ms": "60"},
        recreates=0.0,
        churn=("offsets_looked_up", "records_expire", "instances_doubled"),
        has_own_streams=True,
    ),
    # Leaders compress the batches that they append.
    Profile("recompressed", properties={"compression.type": "gzip"}, has_own_streams=True),
)
