"""Each kind of fault of disks really happens, and brokers meet it: an injector that does nothing
would pass every other test."""

from __future__ import annotations

import re
from typing import NamedTuple

import pytest

from tidelog.sim.faults import KINDS
from tidelog.sim.loop import NS_PER_S
from tidelog.sim.run import SeedRun
from tidelog.sim.simulator import CollectorPaused

FAULTS_NS = 4 * NS_PER_S
MEAN_INTERVAL_MS = 200


class Seen(NamedTuple):
    """What a run with one kind of fault alone showed."""

    violation: str
    played: int
    #: By what went wrong, how often: over all disks.
    effects: dict[str, int]
    told: str


def run_with(kind: str, seed: int) -> Seen:
    profile = "damaged_disks" if kind.startswith("damaged") else "failing_disks"
    profile = {"damaged_leaders": kind, "slow_directory": "slow_directories"}.get(kind, profile)
    told: list[str] = []

    def listen(line: str) -> None:
        if " frames " not in line:
            told.append(line)

    with CollectorPaused():
        run = SeedRun(seed, profile, listen)
        run.faults._weights = {kind: 1.0}
        run.faults._mean_interval_ms = MEAN_INTERVAL_MS
        run._fault_ns = FAULTS_NS
        result = run.run()
    effects: dict[str, int] = {}
    for disk in run.simulator.disks.values():
        for effect, count in disk.effects.items():
            effects[effect] = effects.get(effect, 0) + count
    return Seen(result.violation, result.faults.get(kind, 0), effects, "\n".join(told))


#: Kind -> (effects on the disk of which there must be some, what brokers must then have said).
EXPECTED: dict[str, tuple[tuple[str, ...], str]] = {
    "slow_disk": (("waited",), "slow disk"),
    "slow_reads": (("slow reads",), "reads of . take up to"),
    "hung_reads": (("slow reads",), "reads of . hang"),
    "lose_power": (("lost: prefix", "lost: torn", "lost: reordered"), "lost data"),
    "lose_power_at_sync": (("lost: .*",), r"power of . is lost at sync"),
    "read_errors": (("EIO (pread|pread_cached|read_file)",), r"log directory failed: .* EIO"),
    "write_errors": (("E(IO|ROFS) (pwritev|truncate|rename|unlink)",), "log directory failed: "),
    "sync_errors": (("pages dropped", "E(IO|NOSPC) fsync"), "log directory failed: fsync"),
    "full_disk": (("full",), "failed with ENOSPC"),
    "fill_directory": (("full",), r"log_directory_full directory=\S+"),
    "slow_directory": (("slow directory", "waited"), r"log_directory_slow directory=\S+"),
    "short_writes": (("short write",), ""),
    "replaced_disk": (
        ("replaced",),
        r"(?s)its disk is replaced.*log_directory_opened directory=\S+ partitions=0",
    ),
    "damaged_batches": (("bits flipped", "cut short"), r"is truncated at byte|damaged at byte"),
    "damaged_indexes": (("bits flipped|cut short",), r"index at \d+ is |index of \S+ was damaged"),
    "damaged_checkpoints": (
        ("bits flipped|cut short",),
        r"is not believed: |is rebuilt from the batches: |cannot be read: ",
    ),
    "damaged_leaders": (("bits flipped",), r"the log is damaged from offset \d+ on: asking"),
}
#: Seeds under which a kind is drawn often enough: where the search for one begins.
SEEDS = {"lose_power": 2, "damaged_indexes": 23, "slow_directory": 2}
#: Seeds tried before a kind counts as never seen: a change of brokers shifts every schedule.
TRIED = 6


def test_every_kind_of_fault_of_disks_is_looked_at() -> None:
    assert sorted(EXPECTED) == sorted(k for k, kind in KINDS.items() if kind.family == "disks")


@pytest.mark.parametrize("kind", EXPECTED)
def test_a_kind_of_fault_happens_and_nothing_is_violated(kind: str) -> None:
    first = SEEDS.get(kind, 1)
    missed = []
    for seed in range(first, first + TRIED):
        seen = run_with(kind, seed)
        assert seen.violation == "", f"seed {seed}"
        lack = lacking(kind, seen)
        if not lack:
            return
        missed.append(f"seed {seed}: {lack}")
    raise AssertionError("\n".join(missed))


def lacking(kind: str, seen: Seen) -> str:
    """Return what a run does not show of a kind; empty where it shows it whole."""
    if not seen.played:
        return "it was never played"
    effects, told = EXPECTED[kind]
    for effect in effects:
        if not any(re.fullmatch(effect, name) for name in seen.effects):
            return f"{effect} never happened: {seen.effects}"
    return "" if re.search(told, seen.told) else f"no broker said {told!r}"


def test_without_faults_nothing_goes_wrong_on_any_disk() -> None:
    with CollectorPaused():
        run = SeedRun(1, "failing_disks")
        run.faults.begin = lambda: None  # type: ignore[method-assign]  # replaced by the test
        run._fault_ns = FAULTS_NS
        assert run.run().violation == ""
    assert all(disk.effects == {} for disk in run.simulator.disks.values())
