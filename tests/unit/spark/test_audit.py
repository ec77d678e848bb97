"""An audit finds each kind of damage, names it to the byte, and finds nothing in a clean log."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.support.audits import OwnProcess, audited, damage, history, notices, three_brokers
from tests.support.clients.codec_cases import frame
from tests.support.log_files import START_MS, TP, Disk, batches, flip, write_segment
from tests.support.records import framed, record_bytes

from tidelog.core.errors import ConfigError
from tidelog.core.types import TopicPartition
from tidelog.log.producer_state import ProducerState
from tidelog.records.batch import BatchView
from tidelog.records.builder import NewRecord, build_batch
from tidelog.records.compression import LZ4
from tidelog.records.reader import read_keys
from tidelog.records.rewriting import rewritten
from tidelog.spark.pipelines.audit.auditing import audit_directories
from tidelog.spark.pipelines.audit.findings import AuditFinding, FindingKind, Severity
from tidelog.spark.pipelines.audit.kept_results import KeptResults
from tidelog.spark.pipelines.audit.ranges import RangeJob, RangeResult
from tidelog.spark.pipelines.audit.reporting import report_of
from tidelog.spark.pipelines.audit.start_checks import Retention, TopicStarts, check_starts

MIDDLE = "00000000000000000200.log"
LAST = "00000000000000000400.log"
#: Where the fourth batch of the middle segment begins, with offset 230.
FOURTH = sum(map(len, history()[20:23]))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def disks(root: Path) -> list[Disk]:
    return three_brokers(root)


def replica(root: Path, broker: int = 2) -> Path:
    return root / f"broker-{broker}" / "flights-0"


def only(found: list[AuditFinding]) -> AuditFinding:
    assert len(found) == 1, found
    return found[0]


def shorten(path: Path, by: int) -> None:
    path.write_bytes(path.read_bytes()[:-by])


@pytest.mark.parametrize("range_bytes", [1 << 28, 5_000])
def test_a_clean_log_has_no_findings(root: Path, disks: list[Disk], range_bytes: int) -> None:
    tasks = OwnProcess()
    audit = audited(root, tasks, range_bytes=range_bytes)
    assert audit.holds and audit.all_findings() == []
    assert len(tasks.scanned) == (9 if range_bytes > 10_000 else 36)
    assert sum(each.records for each in audit.partitions[0].audits) == 3 * 600
    assert "every checksum is right" in report_of(audit).verdict


def test_a_clean_log_after_a_clean_shutdown_has_no_findings(root: Path, disks: list[Disk]) -> None:
    for disk in disks:
        disk.checkpoint("recovery-point-offset-checkpoint", TP, 600)
        disk.shut_down_cleanly()
    assert audited(root).all_findings() == []


@pytest.mark.parametrize(
    ("at", "bit", "kind", "sentence"),
    [
        (5, 1, FindingKind.OFFSET_ORDER, "its neighbours fit 230"),
        (8, 6, FindingKind.NO_BATCH, "it claims"),
        (8, 7, FindingKind.NO_BATCH, "its length field is -"),
        (11, 3, FindingKind.NO_BATCH, "its checksum and its length are wrong"),
        (15, 0, FindingKind.EPOCH_ORDER, "has leader epoch 1"),
        (16, 0, FindingKind.NO_BATCH, "its magic is 3"),
        (17, 2, FindingKind.CHECKSUM, "its bytes give"),
        (22, 0, FindingKind.CHECKSUM, "its bytes give"),
        (26, 4, FindingKind.CHECKSUM, "its bytes give"),
        (60, 1, FindingKind.CHECKSUM, "its bytes give"),
        (700, 5, FindingKind.CHECKSUM, "its bytes give"),
    ],
)
@pytest.mark.parametrize("range_bytes", [1 << 28, 5_000])
def test_a_flipped_bit_is_one_finding_at_its_batch(
    root: Path,
    disks: list[Disk],
    at: int,
    bit: int,
    kind: FindingKind,
    sentence: str,
    range_bytes: int,
) -> None:
    flip(replica(root) / MIDDLE, FOURTH + at, bit)
    found = only(damage(audited(root, range_bytes=range_bytes)))
    assert found.kind is kind and sentence in found.sentence
    assert found.path == str(replica(root) / MIDDLE)
    assert (found.position, found.offset) == (FOURTH, 230)
    assert (found.broker, found.partition) == ("broker 2", "flights-0")


def test_frames_that_kafkas_clients_cannot_read_are_found(root: Path) -> None:
    payload = b"".join(record_bytes(number) for number in range(9_000))
    held = batches(20)
    for compressed in (frame(payload), frame(payload, block_linked=True)):
        batch = framed(payload, 9_000, LZ4, compressed)
        batch[:8] = struct.pack(">q", BatchView(held[-1]).last_offset + 1)
        held.append(bytes(batch))
    three_brokers(root, held)
    found = [each for each in damage(audited(root)) if each.kind is FindingKind.FRAMES]
    assert len(found) == 3, "one of each replica"
    assert {each.offset for each in found} == {BatchView(held[-1]).base_offset}
    assert "the blocks of its LZ4 frame are linked" in found[0].sentence


def test_a_cut_tail_below_the_high_watermark_is_damage(root: Path, disks: list[Disk]) -> None:
    shorten(replica(root) / LAST, 100)
    audit = audited(root)
    found = only(damage(audit))
    assert (found.kind, found.offset) == (FindingKind.SHORT, 590)
    assert only(notices(audit)).kind is FindingKind.CUT_TAIL


def test_a_cut_tail_beyond_the_high_watermark_is_what_a_crash_leaves(root: Path) -> None:
    for number in (1, 2, 3):
        Disk.made(root / f"broker-{number}", number).replica(history(), high=590)
    shorten(replica(root) / LAST, 100)
    audit = audited(root)
    assert audit.holds
    found = only(notices(audit))
    assert found.kind is FindingKind.CUT_TAIL and "the next start truncates it" in found.sentence
    assert found.position == (replica(root) / LAST).stat().st_size - 1031


def test_a_cut_tail_below_the_recovery_point_is_damage(root: Path) -> None:
    for number in (1, 2, 3):
        Disk.made(root / f"broker-{number}", number).replica(history(), high=590, flushed=600)
    shorten(replica(root) / LAST, 100)
    found = only(damage(audited(root)))
    assert found.kind is FindingKind.CUT_TAIL and "had been flushed" in found.sentence


def test_a_segment_cut_in_the_middle_is_damage(root: Path, disks: list[Disk]) -> None:
    shorten(replica(root) / MIDDLE, 100)
    found = only(damage(audited(root)))
    assert (
        found.kind is FindingKind.CUT_TAIL and "next segment begins at offset 400" in found.sentence
    )


def test_a_segment_cut_at_a_batch_leaves_a_gap(root: Path, disks: list[Disk]) -> None:
    shorten(replica(root) / MIDDLE, len(history()[39]))
    found = only(damage(audited(root)))
    assert (found.kind, found.offset) == (FindingKind.GAP, 390)
    assert "offsets 390 to 399 are missing" in found.sentence


def test_swapped_segments_are_named_with_their_places(root: Path, disks: list[Disk]) -> None:
    first, middle = replica(root) / "00000000000000000000.log", replica(root) / MIDDLE
    contents = first.read_bytes(), middle.read_bytes()
    first.write_bytes(contents[1])
    middle.write_bytes(contents[0])
    found = damage(audited(root))
    assert [(each.kind, each.path) for each in found] == [
        (FindingKind.SWAPPED, str(first)),
        (FindingKind.SWAPPED, str(middle)),
    ]
    assert f"they belong into {MIDDLE}" in found[0].sentence


def test_other_records_below_the_high_watermark_are_a_divergence(
    root: Path, disks: list[Disk]
) -> None:
    shutil.rmtree(replica(root, 3))
    disks[2].replica(history()[:45] + batches(15, first=450, epoch=3, value=b"w" * 90))
    audit = audited(root)
    found = only(damage(audit))
    assert (found.kind, found.offset, found.broker) == (FindingKind.DIVERGED, 450, "broker 3")
    assert found.position == sum(map(len, history()[40:45]))
    (divergence,) = audit.partitions[0].divergences
    assert divergence.history == "0@0 2@300 3@450"
    assert divergence.other_history == "0@0 2@300"


def test_records_beyond_the_high_watermark_may_differ(root: Path) -> None:
    for number, value in ((1, b"v"), (2, b"v"), (3, b"w")):
        held = history()[:45] + batches(15, first=450, epoch=2, value=value * 90)
        Disk.made(root / f"broker-{number}", number).replica(held, high=450)
    assert audited(root).all_findings() == []


def test_another_epoch_of_the_same_records_is_a_divergence(root: Path, disks: list[Disk]) -> None:
    shutil.rmtree(replica(root, 1))
    disks[0].replica(history()[:59] + batches(1, first=590, epoch=3))
    found = only(damage(audited(root)))
    assert (found.kind, found.offset, found.broker) == (FindingKind.DIVERGED, 590, "broker 1")
    assert "leader epoch 3" in found.sentence and "leader epoch 2" in found.sentence


@pytest.mark.parametrize("field", ["producer_id", "base_sequence", "is_transactional"])
def test_another_producer_of_the_same_records_is_a_divergence(
    root: Path, disks: list[Disk], field: str
) -> None:
    changed = bytearray(history()[59])
    if field == "is_transactional":
        changed[22] ^= 0x10
    else:
        at, size = (43, 8) if field == "producer_id" else (53, 4)
        changed[at : at + size] = (77).to_bytes(size, "big")
    changed[17:21] = BatchView(changed).computed_crc().to_bytes(4, "big")
    shutil.rmtree(replica(root, 1))
    disks[0].replica([*history()[:59], bytes(changed)])
    found = only(damage(audited(root)))
    assert (found.kind, found.offset, found.broker) == (FindingKind.DIVERGED, 590, "broker 1")


def without_first_segment(path: Path) -> None:
    """Remove the first segment of a replica, as retention and as a lost file leave it."""
    for name in ("log", "index", "timeindex"):
        (path / f"{0:020d}.{name}").unlink()
    (path / "leader-epoch-checkpoint").write_text("0\n2\n0 200\n2 300\n")


def test_a_lost_first_segment_is_damage(root: Path, disks: list[Disk]) -> None:
    without_first_segment(replica(root))
    found = only(damage(audited(root)))
    assert (found.kind, found.broker) == (FindingKind.LOG_START, "broker 2")
    assert "begins at offset 200, and broker 1 has the records from offset 0 on" in found.sentence


def test_the_begins_of_a_topic_with_retention_may_differ(root: Path, disks: list[Disk]) -> None:
    other = disks[0].replica(history(), tp=TopicPartition("flights", 1))
    without_first_segment(other)
    without_first_segment(replica(root))
    audit = audited(root)
    assert audit.holds
    found = only(notices(audit))
    assert found.kind is FindingKind.LOG_START and "either retention has run" in found.sentence


def test_a_begin_behind_the_own_log_start_is_damage(root: Path, disks: list[Disk]) -> None:
    for number in (1, 3):
        without_first_segment(replica(root, number))
    for number, disk in enumerate(disks, 1):
        if number != 2:
            disk.checkpoint("log-start-offset-checkpoint", TP, 250)
    disks[1].checkpoint("log-start-offset-checkpoint", TP, 250)
    for name in (f"{base:020d}.{kind}" for base in (0, 200) for kind in ("log", "index")):
        (replica(root) / name).unlink()
    found = [each for each in damage(audited(root)) if each.kind is FindingKind.LOG_START]
    assert "own log start is 250" in only(found).sentence


def test_retention_settings_decide_whether_a_late_begin_is_damage(root: Path) -> None:
    made = three_brokers(root)
    without_first_segment(replica(root))
    audits = audited(root).partitions[0].audits
    late = TopicStarts([each.replica for each in audits])
    assert len(made) == 3

    def found(limits: Retention, log_start: int = 0) -> list[AuditFinding]:
        return check_starts(audits, late, {"flights": limits}, {TP: log_start})

    assert only(found(Retention(True, -1, -1))).severity is Severity.DAMAGE
    assert only(found(Retention(False, 1, 1))).severity is Severity.DAMAGE
    assert "explains that" in only(found(Retention(True, 10**15, -1))).sentence
    assert found(Retention(True, -1, -1), 200) == []
    assert found(Retention(True, 3_600_000, -1)) == []
    assert found(Retention(True, -1, 10_000)) == []
    assert found(Retention(True, -1, 1_000_000)) != []


def compacted(whole: bytes, *lost: int) -> bytes:
    """Return a batch without the records at some offsets, as compaction writes it."""
    view = BatchView(whole)
    payload, records = read_keys(view)
    kept = [each for each in records if view.base_offset + each.offset_delta not in lost]
    return bytes(rewritten(view, payload, kept))


def compacted_brokers(root: Path, *, cleaned_to: int | None) -> None:
    """Write three brokers: the first has compacted offsets 10 to 29 away, and 35."""
    whole = history()
    mine = [whole[0], compacted(whole[3], 35), *whole[4:]]
    for number, held in ((1, mine), (2, whole), (3, whole)):
        disk = Disk.made(root / f"broker-{number}", number)
        directory = disk.replica(held[:0], high=600, flushed=400, epochs=[(0, 0), (2, 300)])
        for low, high in ((0, 200), (200, 400), (400, 600)):
            write_segment(directory, [b for b in held if low <= BatchView(b).base_offset < high])
    if cleaned_to is not None:
        path = root / "broker-1" / "cleaner-offset-checkpoint"
        path.write_text(f"0\n1\nflights 0 {cleaned_to}\n")


def test_replicas_may_be_compacted_at_different_times(root: Path) -> None:
    compacted_brokers(root, cleaned_to=400)
    audit = audited(root)
    assert audit.holds
    found = only(notices(audit))
    assert found.kind is FindingKind.COMPACTED and found.broker == "broker 1"
    assert "21 records are in one replica only" in found.sentence


def test_gaps_of_a_topic_that_is_not_compacted_are_damage(root: Path) -> None:
    compacted_brokers(root, cleaned_to=None)
    found = damage(audited(root))
    assert sorted({(each.kind.value, each.offset) for each in found if each.offset}) == [
        ("diverged", 35),
        ("gap", 10),
    ]
    assert audited(root, compacted=["flights"]).holds


def test_an_index_that_names_no_batch_is_damage(root: Path, disks: list[Disk]) -> None:
    index = replica(root) / f"{200:020d}.index"
    flip(index, 8 + 7, 1)
    found = only(damage(audited(root)))
    assert found.kind is FindingKind.INDEX and "no batch begins there" in found.sentence
    assert (found.path, found.position) == (str(index), 8)


def test_an_index_with_another_offset_is_damage(root: Path, disks: list[Disk]) -> None:
    index = replica(root) / f"{200:020d}.index"
    flip(index, 3, 5)
    found = only(damage(audited(root)))
    assert found.kind is FindingKind.INDEX and "the batch there has offsets" in found.sentence


def test_a_time_index_that_contradicts_the_log_is_damage(root: Path, disks: list[Disk]) -> None:
    times = replica(root) / f"{200:020d}.timeindex"
    flip(times, 12 + 7, 0)
    found = only(damage(audited(root)))
    assert (found.kind, found.path, found.position) == (FindingKind.TIME_INDEX, str(times), 12)


def test_an_index_beyond_the_recovery_point_is_a_notice(root: Path, disks: list[Disk]) -> None:
    flip(replica(root) / f"{400:020d}.index", 8 + 7, 1)
    audit = audited(root)
    assert audit.holds and only(notices(audit)).kind is FindingKind.INDEX


def test_ranges_that_begin_inside_a_batch_are_scanned_again_whole(
    root: Path, disks: list[Disk]
) -> None:
    """An index entry that points into a value that looks like a batch header."""
    whole = history()
    inner = whole[5]
    made = build_batch(
        [NewRecord(b"k", b"x" * 3000 + inner + b"y" * 3000, START_MS)], base_offset=600,
        leader_epoch=2,
    )  # fmt: skip
    for disk in disks:
        shutil.rmtree(replica(root, disk.broker))
        disk.replica([*whole, bytes(made), *batches(20, first=601, epoch=2)], per_segment=100)
    index = replica(root) / f"{0:020d}.index"
    start = sum(map(len, whole))
    inside = start + bytes(made).index(inner)
    entries = list(struct.iter_unpack(">ii", index.read_bytes()))
    place = next(n for n, (_, position) in enumerate(entries) if position > start)
    entries.insert(place, (600, inside))
    index.write_bytes(b"".join(struct.pack(">ii", *each) for each in entries))
    tasks = OwnProcess()
    audit = audited(root, tasks, range_bytes=inside - 200)
    found = notices(audit)
    assert audit.holds and {(each.kind, each.path) for each in found} == {
        (FindingKind.INDEX, str(index))
    }
    path = str(replica(root) / f"{0:020d}.log")
    assert [each.start for each in tasks.scanned if each.path == path][-1] == 0
    assert audit.partitions[0].audits[1].records == 801


def test_epoch_disorder_between_segments_is_damage(root: Path) -> None:
    held = batches(20, epoch=3) + batches(20, first=200, epoch=1)
    Disk.made(root / "broker-1", 1).replica(held, epochs=[(3, 0)])
    found = only(damage(audited(root)))
    assert (found.kind, found.offset, found.position) == (FindingKind.EPOCH_ORDER, 200, 0)


def test_an_epoch_checkpoint_that_contradicts_the_log_is_damage(
    root: Path, disks: list[Disk]
) -> None:
    (replica(root) / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n2 250\n")
    found = only(damage(audited(root)))
    assert found.kind is FindingKind.EPOCH_CHECKPOINT and found.offset == 250


def test_a_replica_with_lost_records_is_short(root: Path, disks: list[Disk]) -> None:
    shorten(replica(root) / LAST, 2 * len(history()[59]))
    found = only(damage(audited(root)))
    assert (found.kind, found.offset, found.broker) == (FindingKind.SHORT, 580, "broker 2")


def test_files_without_a_log_and_unknown_files_are_orphans(root: Path, disks: list[Disk]) -> None:
    (replica(root) / f"{999:020d}.index").write_bytes(b"12345678")
    (replica(root) / "notes.txt").write_text("mine")
    (root / "broker-2" / "backup").mkdir()
    (root / "broker-2" / "lost+found").mkdir()
    (root / "broker-2" / "known-log-dirs").write_text("{}")
    (root / "broker-2" / f"gone-0.{'a' * 32}-stray").mkdir()
    (root / "broker-2" / f"gone-1.{'b' * 32}-delete").mkdir()
    audit = audited(root)
    assert audit.holds
    assert sorted(each.kind.value for each in notices(audit)) == ["orphan"] * 3 + ["stray"]


def test_files_on_their_way_out_are_no_findings(root: Path, disks: list[Disk]) -> None:
    (replica(root) / f"{0:020d}.log.deleted").write_bytes(b"old")
    (replica(root) / f"{200:020d}.log.cleaned").write_bytes(b"new")
    (replica(root) / f"{600:020d}.snapshot").write_bytes(ProducerState().to_snapshot())
    (replica(root) / f"{600:020d}-{2:010d}.checkpoint").write_bytes(b"KRaft")
    assert audited(root).all_findings() == []


def test_a_replica_of_another_topic_of_the_name_is_damage(root: Path, disks: list[Disk]) -> None:
    (replica(root) / "partition.metadata").write_text(
        "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n"
    )
    assert only(damage(audited(root))).kind is FindingKind.OTHER_TOPIC


def test_an_illegible_checkpoint_is_damage(root: Path, disks: list[Disk]) -> None:
    (replica(root) / "leader-epoch-checkpoint").write_text("0\n7\n0 0\n")
    found = only(damage(audited(root)))
    assert (
        found.kind is FindingKind.CHECKPOINT
        and "line 2 counts 7, but 1 lines follow" in found.sentence
    )


def test_a_file_that_vanishes_before_it_is_read_is_no_damage(root: Path, disks: list[Disk]) -> None:
    class Retention(OwnProcess):
        """Deletes the first segment of each replica between listing and reading."""

        def scan(self, jobs: Sequence[RangeJob], kept: KeptResults | None) -> list[RangeResult]:
            if not self.scanned:
                for number in (1, 2, 3):
                    for path in replica(root, number).glob(f"{0:020d}.*"):
                        path.unlink()
            return super().scan(jobs, kept)

    tasks = Retention()
    audit = audited(root, tasks)
    assert audit.holds and audit.all_findings() == []
    assert audit.listed_again == 1
    assert audit.partitions[0].audits[0].start == 200
    # Files that are as they were keep their results.
    assert sum(job.base_offset == 400 for job in tasks.scanned) == 3


def test_a_stopped_audit_goes_on_and_sees_changed_files(root: Path, disks: list[Disk]) -> None:
    keep = str(root / "kept")
    first, second, third = OwnProcess(), OwnProcess(), OwnProcess()
    assert audited(root, first, keep=keep).holds
    again = audited(root, second, keep=keep)
    assert again.holds and len(first.scanned) == 9 and second.scanned == []
    assert (again.bytes_read, again.bytes_kept) == (0, sum(j.end for j in first.scanned))
    flip(replica(root) / MIDDLE, FOURTH + 700)
    os.utime(replica(root) / MIDDLE, ns=(1, 1))
    assert only(damage(audited(root, third, keep=keep))).kind is FindingKind.CHECKSUM
    assert [job.base_offset for job in third.scanned] == [200]


def test_a_torn_kept_result_is_scanned_again(root: Path, disks: list[Disk]) -> None:
    keep = root / "kept"
    audited(root, keep=str(keep))
    for path in keep.iterdir():
        path.write_text(path.read_text()[:40])
    tasks = OwnProcess()
    assert audited(root, tasks, keep=str(keep)).holds and len(tasks.scanned) == 9


def test_a_file_that_cannot_be_read_is_damage(root: Path, disks: list[Disk]) -> None:
    path = replica(root) / MIDDLE
    path.unlink()
    path.symlink_to(path.name)  # a loop: opening it fails
    kinds = {each.kind for each in damage(audited(root))}
    assert FindingKind.UNREADABLE in kinds


def test_directories_that_are_none_are_named(root: Path, disks: list[Disk]) -> None:
    with pytest.raises(ConfigError, match="no-such.* names no directory"):
        audit_directories(OwnProcess(), [str(root / "no-such-*")])
    with pytest.raises(ConfigError, match="its log directory is .*broker-1"):
        audit_directories(OwnProcess(), [str(replica(root, 1))])


def test_two_replicas_of_one_broker_are_damage(root: Path, disks: list[Disk]) -> None:
    Disk.made(root / "broker-2-second", 2).replica(history())
    assert only(damage(audited(root))).kind is FindingKind.DUPLICATE


def test_other_partitions_of_other_topics_are_not_compared(root: Path, disks: list[Disk]) -> None:
    disks[0].replica(batches(3), tp=TopicPartition("other-1", 7), topic_id="A" * 21 + "Q")
    audit = audited(root)
    assert audit.holds and [each.tp.topic for each in audit.partitions] == ["flights", "other-1"]
