"""Healthy log directories are no damage to the audit: of brokers that run, were killed, or moved
replicas, and of compactions that a crash stopped at any file call.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.audits import OwnProcess, damage
from tests.support.log import NOW_MS, TOPIC_ID, TP, SimLogHarness, drive
from tests.unit.spark.simulated_directories import Moment, moments, written

from tidelog.core.errors import NodeDead
from tidelog.log.config import LogConfig
from tidelog.log.log_cleaner import Cleaner, CleanerSettings
from tidelog.log.log_directory import LogDirectory
from tidelog.log.partition_log import PartitionLog
from tidelog.records.builder import NewRecord, Producer, build_batch
from tidelog.sim.disk import SimDisk
from tidelog.sim.profiles import PROFILES, Pace, Profile
from tidelog.spark.pipelines.audit.auditing import audit_directories

#: Profiles of the simulator without power losses in most runs, and their seeds.
MANY = {
    "default": (4,), "compaction": (4,), "topic_churn": (2,), "directory_moves": (1, 3),
    "thinned_logs": (1,), "jbod": (1, 2), "redirected_moves": (1, 2), "unclean_elections": (1,),
    "unheard_of_return": (1,), "swarm": (284,),
}  # fmt: skip
#: Replicas move, and brokers are seldom killed.
MOVES = Profile(
    "redirected_moves",
    faults="slow_link 3, slow_disk 2, crash_any 0.5, expire_controller 0.3",
    pace=Pace(left_out=0.3, interval_ms=(400, 1_500)),
    recreates=0.0,
    brokers=5,
    churn=("moves_redirected",),
)
COMPACT = LogConfig(
    segment_bytes=500,
    index_interval_bytes=200,
    compact_enabled=True,
    delete_enabled=False,
    min_cleanable_dirty_ratio=0.0,
    file_delete_delay_ms=60_000,
)


@pytest.fixture(autouse=True)
def moves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PROFILES, MOVES.name, MOVES)


def damage_at(moment: Moment, root: Path) -> tuple[int, list[str]]:
    """Return the number of audited log directories, and the damage that the audit reports."""
    paths = list(written(moment, root))
    found = damage(audit_directories(OwnProcess(), paths)) if paths else []
    return len(paths), [f"{each.kind} {each.path}: {each.sentence}" for each in found]


def alarms(profile: str, seed: int, every_ms: int, root: Path) -> tuple[int, list[str]]:
    """Audit the directories of a run at several moments; return their number and the damage."""
    count, found = 0, []
    for moment in moments(seed, profile, every_ms):
        directories, some = damage_at(moment, root / f"{profile}-{seed}-{moment.at_ms}")
        count += directories
        found += some
    return count, found


@pytest.mark.parametrize(("profile", "seed"), [("compaction", 4), ("redirected_moves", 1)])
def test_directories_of_running_and_killed_brokers_have_no_damage(
    tmp_path: Path, profile: str, seed: int
) -> None:
    count, found = alarms(profile, seed, 4_000, tmp_path)
    assert found == []
    assert count >= 6, "this test looks at nothing"


@pytest.mark.soak
def test_hundreds_of_healthy_directories_have_no_damage(tmp_path: Path) -> None:
    total = 0
    for profile, seeds in MANY.items():
        for seed in seeds:
            count, found = alarms(profile, seed, 1_500, tmp_path)
            assert found == [], f"{profile} {seed}"
            total += count
    assert total >= 200, f"this test looks at {total} directories"


def filled(directory: LogDirectory) -> PartitionLog:
    """Write a compacted log of several segments, with an idempotent producer."""
    log = directory.create(TP, TOPIC_ID, COMPACT).result()
    for number in range(16):
        rows = [NewRecord(b"k%d" % n, b"%d" % number * 8, NOW_MS) for n in range(4)]
        producer = Producer(7, 0, number // 2 * 4) if number % 2 else Producer()
        log.plan_leader_append(build_batch(rows, producer=producer), number // 6, NOW_MS)
        log.submit_planned()
    log.flush().result()
    directory.write_high_watermarks({TP: log.log_end_offset}).result()
    directory.checkpoint().result()
    return log


def compacted_until(call: int) -> tuple[SimDisk, bool]:
    """Compact a log and kill the process at a file call; return the disk, and whether it died."""
    harness = SimLogHarness(config=COMPACT)
    log = filled(harness.open())
    harness.life.strike_at = harness.life.calls + call
    cleaner = Cleaner(CleanerSettings(), harness.clock, _no_sleep)
    try:
        drive(cleaner.clean_one([(log, log.log_end_offset)]))
    except NodeDead:
        return harness.disk, True
    return harness.disk, not harness.life.alive


async def _no_sleep(_: float) -> None:
    """Return at once, because a test's clock does not wait."""


def test_a_compaction_killed_at_any_file_call_leaves_no_damage(tmp_path: Path) -> None:
    call, died = 0, True
    suffixes: set[str] = set()
    seen: set[tuple[tuple[str, int], ...]] = set()
    while died:
        call += 1
        disk, died = compacted_until(call)
        content = disk.contents()
        suffixes.update(path.rpartition(".")[2] for path in content)
        state = tuple((path, len(each.data)) for path, each in content.items())
        if state not in seen:
            seen.add(state)
            moment = Moment(call, {(1, "/logs"): content})
            assert damage_at(moment, tmp_path / str(call))[1] == []
    assert {"cleaned", "swap", "deleted"} <= suffixes and len(seen) > 20
