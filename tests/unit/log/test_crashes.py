"""A log on a disk that loses unsynced data, in a process that dies at any file call.

Whatever is left: the log holds a prefix of what it once held, all that was durable is in it, its
leader epochs and producers are those of its batches, and it goes on from there.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.draws import FACTOR, examples
from tests.support.log import (
    NOW_MS,
    TOPIC_ID,
    TP,
    SimLogHarness,
    batch_of,
    read_all,
)

from tidelog.core.completion import Completion
from tidelog.core.errors import NodeDead
from tidelog.core.types import CleanEpochs
from tidelog.log.config import LogConfig
from tidelog.log.log_directory import LogDirectory
from tidelog.log.partition_log import PartitionLog
from tidelog.log.producer_state import ProducerState
from tidelog.records.batch import BatchView, iter_batches
from tidelog.records.builder import Producer
from tidelog.sim.disk import Loss

CONFIG = LogConfig(
    segment_bytes=1200, index_interval_bytes=200, file_delete_delay_ms=0, retention_bytes=2500
)


@dataclass
class Version:
    """What the log held at some time: the value and epoch of each offset from `start` on."""

    start: int
    records: list[tuple[bytes, int]]

    @property
    def end(self) -> int:
        return self.start + len(self.records)


@dataclass
class History:
    """All versions since the last one that was durable, and what must not be lost."""

    versions: list[Version] = field(default_factory=lambda: [Version(0, [])])
    #: Nothing below it may be lost.
    durable_end: int = 0

    @property
    def now(self) -> Version:
        return self.versions[-1]

    def appended(self, values: list[bytes], epoch: int) -> None:
        records = self.now.records + [(value, epoch) for value in values]
        self.versions.append(Version(self.now.start, records))

    def will_cut(self, offset: int) -> None:
        """From now on nothing at or beyond `offset` is safe."""
        self.durable_end = min(self.durable_end, offset)

    def cut(self, end: int) -> None:
        start = self.now.start
        self.versions.append(Version(start, self.now.records[: end - start]))

    def restarted(self, offset: int) -> None:
        self.versions.append(Version(offset, []))

    def flushed(self, end: int) -> None:
        self.durable_end = max(self.durable_end, end)

    def allows(self, start: int, records: list[tuple[bytes, int]]) -> bool:
        """Whether a log that holds this can be what a crash left."""
        end = start + len(records)
        for version in self.versions:
            if not records:
                if version.start <= start <= version.end:
                    return True
            elif version.start <= start and end <= version.end:
                part = version.records[start - version.start : end - version.start]
                if part == records:
                    return True
        return False


class Run:
    """Random work on one log, with a model of it beside."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.harness = SimLogHarness(seed, CONFIG)
        self.history = History()
        self.epoch = 0
        self.sequences: dict[int, int] = {}
        self.number = 0
        self.log: PartitionLog | None = None
        self.directory: LogDirectory | None = None

    def live(self, strike_at: int, steps: int) -> None:
        """One process: open, work, die or stop."""
        self.directory = self.harness.open(strike_at)
        lane = self.harness.lane
        if TP in self.directory.logs and not any(self.directory.logs[TP].topic_id):
            # Lost with the rest of a replica that was never flushed: nobody can say whose it is.
            self.directory.set_aside(TP).result()
        if TP not in self.directory.logs:
            assert self.history.durable_end == 0
            self.history = History()
            self.directory.create(TP, TOPIC_ID, CONFIG).result()
        self.log = log = self.directory.logs[TP]
        self.check(log)
        self.history = History([Version(log.log_start_offset, self.held(log))], log.log_end_offset)
        self.sequences = {
            producer_id: entry.last_sequence + 1
            for producer_id, entry in log.producers.entries().items()
        }
        self.epoch = max(self.epoch, log.epochs.latest_epoch) + 1
        log.assign_epoch(self.epoch, log.log_end_offset)
        for _ in range(steps):
            lane.eager = self.draw.random() < 0.5
            lane.slow_disk = self.draw.random() < 0.2
            self.step(log)
            if self.draw.random() < 0.5:
                lane.run()
        self.settle()
        if self.draw.random() < 0.3:
            coroutine = self.directory.close(CleanEpochs(7))
            with pytest.raises(StopIteration):
                coroutine.send(None)
            self.history.flushed(log.log_end_offset)

    def step(self, log: PartitionLog) -> None:
        action = self.draw.choice(
            ["append"] * 10 + ["flush", "checkpoint", "cut", "lead", "retain", "restart", "marks"]
        )
        if action == "append":
            self.append(log)
        elif action == "flush":
            end = log.log_end_offset
            log.flush().then(lambda done: self.flush_done(end, done))
        elif action == "checkpoint":
            assert self.directory is not None
            self.directory.checkpoint()
        elif action == "marks":
            assert self.directory is not None
            self.directory.write_high_watermarks({TP: log.log_end_offset})
        elif action == "cut":
            end = log.log_end_offset
            self.cut(log, self.draw.randrange(max(log.log_start_offset, end - 12), end + 1))
        elif action == "lead":
            self.epoch += 1
            log.assign_epoch(self.epoch, log.next_offset)
        elif action == "restart" and self.draw.random() < 0.3:
            offset = log.log_end_offset + self.draw.randrange(-5, 20)
            self.restart(log, max(0, offset))
        elif action == "retain":
            # A crash may bring removed segments back: nothing changes for the history.
            log.enforce_retention(NOW_MS, log.log_end_offset)

    def settle(self) -> None:
        """Let everything that waits be done, and the disk be quick."""
        lane = self.harness.lane
        lane.run()
        lane.eager, lane.slow_disk = True, False

    def flush_done(self, end: int, done: Completion[None]) -> None:
        if done.error is None:
            self.history.flushed(min(end, self.history.now.end))

    def append(self, log: PartitionLog) -> None:
        if log.is_truncating:
            self.harness.lane.run()
        self.number += 1
        values = [
            f"{self.number}.{index}".encode() + bytes(self.draw.randrange(120))
            for index in range(self.draw.randrange(1, 4))
        ]
        producer = None
        if self.draw.random() < 0.6:
            producer_id = self.draw.randrange(3)
            sequence = self.sequences.get(producer_id, 0)
            producer = Producer(producer_id, 0, sequence)
            self.sequences[producer_id] = sequence + len(values)
        # What a crash interrupts may have reached the disk.
        self.history.appended(values, self.epoch)
        records = batch_of(values, producer=producer)
        completion = log.plan_leader_append(records, self.epoch, NOW_MS)
        log.submit_planned()
        if self.draw.random() < 0.5:
            self.harness.lane.run()
        if completion.done:
            completion.result()

    def cut(self, log: PartitionLog, offset: int) -> None:
        self.settle()
        self.history.will_cut(self.batch_start(log, offset))
        completion = log.truncate_to(offset)
        self.harness.lane.run()
        completion.result()
        assert log.log_end_offset <= offset or offset >= log.log_end_offset
        self.history.cut(log.log_end_offset)
        self.sequences = {
            producer_id: entry.last_sequence + 1
            for producer_id, entry in log.producers.entries().items()
        }
        self.check_state(log)
        self.epoch += 1
        log.assign_epoch(self.epoch, log.log_end_offset)

    @staticmethod
    def batch_start(log: PartitionLog, offset: int) -> int:
        if offset >= log.log_end_offset:
            return offset
        return max(b.base_offset for b in batches_of(log) if b.base_offset <= offset)

    def restart(self, log: PartitionLog, offset: int) -> None:
        self.settle()
        self.history.will_cut(0)
        # A crash between the old files and the new one leaves an empty directory.
        self.history.restarted(0)
        self.history.restarted(offset)
        completion = log.truncate_fully_and_start_at(offset)
        self.harness.lane.run()
        completion.result()
        self.history.restarted(offset)
        self.sequences = {}
        self.epoch += 1
        log.assign_epoch(self.epoch, offset)

    def held(self, log: PartitionLog) -> list[tuple[bytes, int]]:
        return [
            (record.value or b"", log.epochs.epoch_at(record.offset)) for record in read_all(log)
        ]

    def check(self, log: PartitionLog) -> None:
        """After an end of any kind."""
        self.settle()
        held = self.held(log)
        start, end = log.log_start_offset, log.log_end_offset
        assert end >= self.history.durable_end, "durable records are lost"
        assert self.history.allows(start, held), "the log never held this"
        self.check_state(log)

    def check_state(self, log: PartitionLog) -> None:
        """Leader epochs and producers are those of the batches."""
        expected = ProducerState()
        for batch in batches_of(log):
            assert log.epochs.epoch_at(batch.base_offset) == batch.partition_leader_epoch
            if batch.producer_id >= 0:
                expected.append(batch, 0)
        for producer_id, entry in expected.entries().items():
            found = log.producers.entry(producer_id)
            assert found is not None, f"producer {producer_id} is forgotten"
            assert found.last_sequence == entry.last_sequence
            # After a cut fewer may be remembered (those that its producer may still repeat),
            # after retention more than the log holds.
            both = min(len(found.batches), len(entry.batches))
            assert both and found.batches[-both:] == entry.batches[-both:]
        assert all(start < log.log_end_offset or start == log.log_end_offset
                   for _, start in log.epochs.entries())  # fmt: skip


def batches_of(log: PartitionLog) -> list[BatchView]:
    found: list[BatchView] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        slice_ = log.read(offset, 1 << 20, log.log_end_offset, min_one_batch=True).result()
        found += iter_batches(slice_.data)
        offset = slice_.next_offset
    return found


def crash(run: Run, loss: Loss) -> None:
    """The process is dead; what was not synced may be lost."""
    run.harness.life.alive = False
    if loss is not Loss.NONE:
        run.harness.disk.lose_power(run.draw, loss)


#: Each was once the first to find a defect, or finds one that is put in on purpose: nothing lowered
#: before a cut, names or records or epochs not synced, no CRC, a hole between segments.
KNOWN_SEEDS = (0, 1, 2, 3, 6, 7, 10, 15, 61, 75, 106, 134, 193, 222, 246, 482, 516, 665, 945, 1987)


@pytest.mark.parametrize("seed", KNOWN_SEEDS)
def test_a_crash_that_once_found_a_defect(seed: int) -> None:
    live_and_die(seed)


@examples(100 if FACTOR == 1 else 200)
@given(seed=st.integers(0, 2**32))
def test_a_crash_leaves_a_prefix_with_all_that_was_durable(seed: int) -> None:
    live_and_die(seed)


def live_and_die(seed: int) -> None:
    """Several lives of one log directory, each ending somehow."""
    run = Run(seed)
    for _ in range(4):
        strike_at = run.draw.choice([-1, run.draw.randrange(1, 40), run.draw.randrange(1, 400)])
        try:
            run.live(strike_at, steps=run.draw.randrange(1, 60))
        except NodeDead:
            assert not run.harness.life.alive
        crash(run, run.draw.choice(list(Loss)))
    run.live(-1, steps=5)
