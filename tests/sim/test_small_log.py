"""The small world of one log: it holds, repeats, and finds broken rules of the log within seconds.

Each broken rule must be found within a bounded number of seeds, from nothing, and the seed and the
path alone must show it again.
"""

from __future__ import annotations

from itertools import pairwise

import pytest
from tests.support.mutants import LineMutant

from tidelog.sim.disk import SimDisk
from tidelog.sim.small.crash_losses import loss_names, suffer
from tidelog.sim.small.small_world import small_world

LOG = small_world("log")
SEEDS = range(3, 11)
SOAKED_SEEDS = range(100, 300)
#: Seeds within which each broken rule is found.
MOST_SEEDS = 40


def mutant(rule: str, file: str, old: str, new: str) -> LineMutant:
    name = f"{rule}: {old.strip()[:40]}"
    return LineMutant(name, rule, f"tidelog/log/{file}.py", old, new)


def test_seeds_show_no_violation() -> None:
    played = [LOG.play(seed) for seed in SEEDS]
    assert [each.violations for each in played] == [[]] * len(SEEDS)
    assert sum(each.histories for each in played) > 1_000 * len(SEEDS)


@pytest.mark.soak
def test_many_seeds_show_no_violation() -> None:
    assert {seed: found for seed in SOAKED_SEEDS if (found := LOG.play(seed).violations)} == {}


def test_a_seed_plays_the_same_histories_again() -> None:
    lines: list[list[str]] = [[], []]
    played = [LOG.play(5, say=each.append) for each in lines]
    assert played[0] == played[1] and lines[0] == lines[1]


#: Broken rules, each with a seed that finds it. If the world draws other histories, look for
#: another seed: `test_broken_rules_are_found_from_nothing` plays many.
FOUND = {
    0: mutant(
        "V39",
        "recovery",
        "            self.loaded.epochs.truncate_from_end(scan_from)",
        "            pass",
    ),
    1: mutant(
        "V39",
        "recovery",
        "if self.request.clean or segment_file.base_offset <= self.request.recovery_point:",
        "if True:",
    ),
    4: mutant(
        "V39",
        "append_queue",
        "sync_names = len(steps) > 1 or log.names_unsynced",
        "sync_names = len(steps) > 1",
    ),
    5: mutant(
        "V38",
        "truncation",
        "log.directory.lower(log.topic_partition, end).then(",
        "Completion.of(None).then(",
    ),
    6: mutant("V39", "flush", "        if log.epochs.changed:", "        if False:"),
    9: mutant("V38", "truncation", "            files.fsync(handle)", "            pass"),
    135: mutant(
        "V34", "log_state", "return self.is_removing or self.names_unsynced", "return False"
    ),
    # Two compactions of a segment, and a loss of power in the second: rarer than the others.
    229: mutant("V38", "segment_files", "files.fsync_directory(self.directory)", "pass"),
}
AT_START = mutant(
    "E3",
    "log_directory",
    "gone = (CLEAN_SHUTDOWN, names.NEW_REPLICAS) if loaded else (CLEAN_SHUTDOWN,)",
    "gone = (names.NEW_REPLICAS,)",
)


@pytest.mark.parametrize(("seed", "broken"), [*FOUND.items(), (9, AT_START)], ids=str)
def test_a_broken_rule_is_found_and_its_path_shows_it_again(seed: int, broken: LineMutant) -> None:
    with broken.in_force():
        violation = LOG.play(seed).violations[0]
        lines: list[str] = []
        assert violation in LOG.play(seed, violation.path, lines.append).violations
        assert lines
    assert LOG.play(seed, violation.path).violations == []


@pytest.mark.soak
@pytest.mark.parametrize(
    "broken",
    [*(broken for seed, broken in FOUND.items() if seed < MOST_SEEDS), AT_START],
    ids=str,
)
def test_broken_rules_are_found_from_nothing(broken: LineMutant) -> None:
    with broken.in_force():
        seeds = [seed for seed in range(MOST_SEEDS) if LOG.play(seed).violations]
    assert seeds, f"none of {MOST_SEEDS} seeds finds it"


def test_a_path_that_a_seed_does_not_have_is_refused() -> None:
    for path in ("all", "1:", "9999:all", "1:all/2:all/3:all"):
        with pytest.raises(ValueError, match="path|crash at"):
            LOG.play(3, path)


# the losses


def written_disk() -> SimDisk:
    """A disk with a synced file, an unsynced rename, and two files with unsynced content."""
    disk = SimDisk("/a")
    old = disk.create("/a/old")
    disk.write(old, "/a/old", [b"synced"], 0)
    disk.sync_everything()
    disk.write(old, "/a/old", [b", and more"], 6)
    new = disk.create("/a/new")
    disk.write(new, "/a/new", [b"new"], 0)
    disk.rename("/a/old", "/a/older")
    return disk


def after(name: str) -> dict[str, bytes]:
    disk = written_disk().copied()
    suffer(name, [disk], None, 1, "7")
    return {path: stored.data for path, stored in disk.contents().items()}


def test_each_loss_keeps_the_changes_that_its_name_says() -> None:
    disk = written_disk()
    names = loss_names([disk], None, 1)
    assert names[:2] == ["process", "all"] and len(names) == len(set(names))
    whole = {"/a/new": b"new", "/a/older": b"synced, and more"}
    assert after("process") == whole
    assert after("all") == {"/a/old": b"synced"}
    assert after("names 0:1") == {"/a/new": b"new", "/a/old": b"synced, and more"}
    assert after("data 0:2") == {"/a/new": b"", "/a/older": b"synced"}
    one_lost = [after(name) for name in names if name.startswith("lost")]
    assert len(one_lost) == 2 and one_lost[0] != one_lost[1]
    one_kept = [after(name) for name in names if name.startswith("kept")]
    assert one_kept == one_lost[::-1]
    drawn = ("unsynced", "prefix", "torn", "reordered")
    assert [name for name in names if name.split()[0] in drawn] == [f"{each} 0" for each in drawn]


def test_a_copy_of_a_disk_loses_what_the_disk_would_lose() -> None:
    for name in loss_names([written_disk()], None, 3):
        disk, again = written_disk(), written_disk().copied().copied()
        for each in (disk, again):
            suffer(name, [each], None, 1, "7")
        assert disk.contents() == again.contents()


def test_what_happens_to_a_copy_leaves_the_disk_as_it_was() -> None:
    disk = written_disk()
    before = disk.contents()
    copy = disk.copied()
    suffer("all", [copy], None, 1, "7")
    copy.unlink("/a/old")
    assert disk.contents() == before and disk.unsynced_changes == 2
    assert all(a != b for a, b in pairwise([copy.contents(), before]))


def test_an_unknown_loss_is_refused() -> None:
    for name in ("none", "names 1", "all 0", "write 3"):
        with pytest.raises(ValueError, match="no loss"):
            suffer(name, [written_disk()], None, 1, "7")
