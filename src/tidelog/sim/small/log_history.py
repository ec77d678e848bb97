"""The drawn history of the world `one_log`: operations on one log, noted in a reference.

Each operation notes in the reference what may be on disk before its first file operation, and what
must be there when it is complete. A history draws its own mixture: some operations often, some
never. Operations overlap, because the lanes finish their file operations one by one, at random
times. Some operations need all earlier ones to be complete.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from tidelog.broker.replicas.placement.directory_move import future_config
from tidelog.core.completion import Completion
from tidelog.core.types import CleanEpochs
from tidelog.log.append_plan import AppendInfo
from tidelog.log.config import NEVER, LogConfig
from tidelog.log.log_cleaner import Cleaner, CleanerSettings
from tidelog.log.log_directory import LogDirectory
from tidelog.log.partition_log import PartitionLog
from tidelog.log.replacement import Replacement
from tidelog.records.builder import NO_PRODUCER, NewRecord, Producer, build_batch
from tidelog.replication.directory_move import LogExtent, StepKind, next_step
from tidelog.sim.small.log_reading import TOPIC_ID, TP, OpenDirectories, read_log
from tidelog.sim.small.log_reference import LogReference
from tidelog.sim.small.small_process import completed

#: Weight of each operation: how often it is drawn. Each history draws a factor for each weight.
WEIGHTS: Final = {
    "append": 10,
    "replicate": 5,
    "flush": 3,
    "checkpoint": 2,
    "write_mark": 2,
    "lead": 2,
    "truncate": 3,
    "restart": 1,
    "delete_records": 2,
    "retain": 3,
    "compact": 3,
    "move": 2,
    "resend": 1,
    "wait": 2,
    "shut_down": 1,
    "crash": 2,
}
_KEYS = 4
_PRODUCERS = 3


class PromiseBroken(Exception):
    """The error of an operation whose result differs from the reference."""


def drawn_config(draw: random.Random) -> LogConfig:
    """Draw the settings of a log with small segments."""
    compacts = draw.random() < 0.35
    return LogConfig(
        segment_bytes=draw.choice([400, 400, 700]),
        index_interval_bytes=draw.choice([1, 100, 200, 4096]),
        segment_ms=draw.choice([NEVER, NEVER, 5_000]),
        retention_bytes=-1 if compacts else draw.choice([-1, 300, 800]),
        retention_ms=-1 if compacts else draw.choice([-1, -1, 8_000]),
        flush_messages=draw.choice([NEVER, NEVER, 1, 4]),
        file_delete_delay_ms=draw.choice([0, 2_000, 60_000]),
        delete_enabled=not compacts,
        compact_enabled=compacts,
        flush_before_ack=draw.random() < 0.2,
        delete_retention_ms=draw.choice([0, 3_600_000]),
        min_cleanable_dirty_ratio=0.0,
        producer_id_expiration_ms=NEVER,
    )


class LogHistory:
    """One history: the operations of processes on a log, and a reference of what must be left."""

    def __init__(self, draw: random.Random, config: LogConfig, say: Callable[[str], None]) -> None:
        self._draw = draw
        self.config = config
        self._say = say
        factors = {name: draw.choice([0, 1, 1, 3]) for name in WEIGHTS}
        #: The names from which the next operation is drawn, each as often as its weight says.
        self._names = [
            name
            for name, weight in WEIGHTS.items()
            for _ in range(weight * factors[name] if name != "append" else weight)
        ]
        #: Mean number of waiting file operations that end after each operation of the history.
        self._haste = draw.choice([0.2, 1.0, 3.0, 99.0])
        self._is_slow = draw.random() < 0.2
        self.reference = LogReference(
            is_compacted=config.compact_enabled,
            loses_tombstones=config.delete_retention_ms == 0,
        )
        self._opened: OpenDirectories | None = None
        self._epoch = 0
        self._number = 0
        self._mark = 0

    # a process

    def begin(self, opened: OpenDirectories) -> None:
        """Go on in a process that has opened its directories."""
        self._opened = opened
        home = opened.home()
        reading = None if home is None else read_log(opened.log(), opened.high_watermark())
        self.reference.started(reading)
        if home is None:
            opened.directories[0].create(TP, TOPIC_ID, self.config).then(self._created)
            self.settle()
        log = opened.log()
        self._mark = max(opened.high_watermark(), log.log_start_offset)
        self._lead(log)
        for lane in opened.lanes:
            lane.is_eager, lane.is_slow = self._haste > 50, self._is_slow

    def _created(self, done: Completion[PartitionLog]) -> None:
        done.result()
        self.reference.must_exist = True

    @property
    def opened(self) -> OpenDirectories:
        """The directories of the process."""
        assert self._opened is not None, "no process has begun"
        return self._opened

    def settle(self) -> None:
        """Let all waiting file operations end."""
        lanes = self.opened.lanes
        while any(lane.waiting for lane in lanes):
            for lane in lanes:
                lane.finish()

    def act(self) -> str:
        """Carry out one drawn operation; return its name. Raises PromiseBroken, NodeDead."""
        name = self._draw.choice(self._names)
        if name == "crash":
            process = self.opened.process
            calls = self._draw.choice([1, 3, 10, 30])
            process.dies_at = process.calls + calls
            self._say(f"the process dies {calls} calls later")
        elif name == "shut_down":
            self.shut_down()
        else:
            getattr(self, f"_{name}")(self.opened.log())
        if self._haste < 50:
            while self._draw.random() < self._haste / (1 + self._haste):
                self._draw.choice(self.opened.lanes).step(self._draw)
        return name

    def check(self) -> str:
        """Return how the log differs from the reference now; empty while operations are under way.

        In some cases, the method first lets all waiting file operations end.
        """
        if self._draw.random() < 0.3:
            self.settle()
        log = self.opened.log()
        if log.planned or log.is_truncating or any(lane.waiting for lane in self.opened.lanes):
            return ""
        back = self._eagerly()
        wrong = self.reference.wrong_log(read_log(log, -1), is_live=True)
        back()
        return wrong

    # appends

    def _batch(self, log: PartitionLog, producer: Producer, offset: int, epoch: int) -> bytearray:
        draw = self._draw
        records = []
        for _ in range(draw.choice([1, 1, 2, 4])):
            self._number += 1
            key = b"k%d" % draw.randrange(_KEYS)
            value = (
                None
                if draw.random() < 0.15
                else b"%d:" % self._number + bytes(draw.choice([0, 10, 60]))
            )
            records.append(NewRecord(key, value, log.directory.clock.wall_ms()))
        return build_batch(records, producer=producer, base_offset=offset, leader_epoch=epoch)

    def _producer(self) -> Producer:
        """Draw a producer, with its next sequence number."""
        if self._draw.random() < 0.4:
            return NO_PRODUCER
        producer_id = self._draw.randrange(_PRODUCERS)
        line = self.reference.line
        known = line.producers(line.end).get(producer_id)
        if known is None:
            return Producer(producer_id, 0, 0)
        if self._draw.random() < 0.1:
            return Producer(producer_id, known[0] + 1, 0)
        return Producer(producer_id, known[0], known[1][-1][0] + 1)

    def _append(self, log: PartitionLog) -> None:
        if log.is_truncating:
            return
        batch = self._batch(log, self._producer(), 0, -1)
        completion = log.plan_leader_append(batch, self._epoch, log.directory.clock.wall_ms())
        planned = self.reference.appended(bytes(batch))
        self._say(f"append {planned.base_offset}..{planned.next_offset - 1}, epoch {planned.epoch}")
        completion.then(self._acknowledged(planned.base_offset))
        if self._draw.random() < 0.8:
            log.submit_planned()

    def _acknowledged(
        self, offset: int, *, is_repeated: bool = False
    ) -> Callable[[Completion[AppendInfo]], None]:
        flush = None
        if self.config.flush_messages == 1 and not is_repeated:
            flush = self.reference.flush_begins(self.reference.line.end)

        def acknowledged(done: Completion[AppendInfo]) -> None:
            info = done.result()
            if (info.base_offset, info.duplicate) != (offset, is_repeated):
                raise PromiseBroken(
                    f"V38: the append at {offset} was acknowledged as {info.base_offset},"
                    f" duplicate: {info.duplicate}"
                )
            if flush is not None:
                self.reference.flush_ended(flush)

        return acknowledged

    def _replicate(self, log: PartitionLog) -> None:
        if log.is_truncating:
            return
        data = b""
        first = offset = log.next_offset
        for _ in range(self._draw.choice([1, 2, 5, 10])):
            self._epoch += self._draw.random() < 0.2
            batch = bytes(self._batch(log, self._producer(), offset, self._epoch))
            offset = self.reference.appended(batch).next_offset
            data += batch
        self._say(f"replicate {first}..{offset - 1}, epoch {self._epoch}")
        log.plan_follower_append(data).then(self._acknowledged(first))
        log.submit_planned()

    def _resend(self, log: PartitionLog) -> None:
        line = self.reference.line
        sent = [batch for batch in line.batches if batch.producer_id >= 0]
        last = {batch.producer_id: batch for batch in sent}
        if not last or log.is_truncating:
            return
        again = last[self._draw.choice(sorted(last))]
        self._say(f"resend {again.base_offset}..{again.next_offset - 1}")
        now_ms = log.directory.clock.wall_ms()
        batch = bytearray(again.data)
        batch[:8] = bytes(8)
        completion = log.plan_leader_append(batch, self._epoch, now_ms)
        completion.then(self._acknowledged(again.base_offset, is_repeated=True))

    # leadership, offsets

    def _lead(self, log: PartitionLog) -> None:
        if log.is_truncating:
            return
        self._epoch = max(self._epoch, log.epochs.latest_epoch) + 1
        self._say(f"lead epoch {self._epoch} from {log.next_offset}")
        log.assign_epoch(self._epoch, log.next_offset)
        self.reference.line.lead(self._epoch, log.next_offset)

    def _flush(self, log: PartitionLog) -> None:
        if log.is_truncating:
            return
        self._say(f"flush {log.log_end_offset}")
        flush = self.reference.flush_begins(log.log_end_offset)

        def flushed(done: Completion[None]) -> None:
            done.result()
            self.reference.flush_ended(flush)

        log.flush().then(flushed)

    def _checkpoint(self, log: PartitionLog) -> None:
        reference, start = self.reference, self.reference.line.log_start
        if start == log.base_offsets[0]:
            start = 0  # only the first segment's name shows the start; it may not be synced
        self._say(f"checkpoint, log start {start}")

        def written(done: Completion[None]) -> None:
            done.result()
            start_now = min(start, reference.line.log_start)
            reference.durable_start = max(reference.durable_start, start_now)

        if not log.is_truncating:
            home = self.opened.home()
            assert home is not None
            home.checkpoint().then(written)

    def _mark_now(self, log: PartitionLog) -> int:
        """Return a high watermark between the last one and the log end."""
        end = log.log_end_offset
        least = end if self._draw.random() < 0.5 else min(self._mark, end)
        self._mark = self._draw.randrange(least, end + 1)
        return max(self._mark, log.log_start_offset)

    def _write_mark(self, log: PartitionLog) -> None:
        home = self.opened.home()
        mark = self._mark_now(log)
        self._say(f"high watermark {mark}")
        self.reference.marks_begin(mark)

        def written(done: Completion[None]) -> None:
            done.result()
            self.reference.marks_ended()

        assert home is not None
        home.write_high_watermarks({TP: mark}).then(written)

    def _wait(self, log: PartitionLog) -> None:
        self.opened.process.clock.advance(self._draw.choice([1, 1_000, 6_000, 61_000]))

    # truncations

    def _truncate(self, log: PartitionLog) -> None:
        end = self.reference.line.end
        least = max(log.log_start_offset, self.reference.compacted_end)
        offset = self._draw.randrange(max(least, end - self._draw.choice([3, 10, 30])), end + 1)
        if self._draw.random() < 0.3:
            offset = max(least, self._draw.choice(log.base_offsets))
        if log.is_truncating or offset > end:
            return
        self._say(f"truncate to {offset}")
        self.reference.truncation_begins(offset)

        def truncated(done: Completion[None]) -> None:
            done.result()
            after = log.log_end_offset
            kept = [b for b in self.reference.line.batches if b.next_offset <= offset]
            if not (kept[-1].next_offset if kept else 0) <= after <= offset:
                raise PromiseBroken(f"V38: the log ends at {after} after truncation to {offset}")
            self.reference.truncated(after)
            self._mark = min(self._mark, after)

        log.truncate_to(offset).then(truncated)

    def _restart(self, log: PartitionLog) -> None:
        if log.is_truncating or self._draw.random() < 0.5:
            return
        offset = max(0, self.reference.line.end + self._draw.randrange(-5, 20))
        self._say(f"truncate fully, start at {offset}")
        self.reference.restart_begins(offset)

        def restarted(done: Completion[None]) -> None:
            done.result()
            self.reference.restarted(offset)
            self._mark = offset

        log.truncate_fully_and_start_at(offset).then(restarted)

    def _delete_records(self, log: PartitionLog) -> None:
        if log.is_truncating:
            return
        offset = self._mark_now(log)
        self._say(f"delete records below {offset}")
        self.reference.start_rises(offset)
        log.advance_log_start(offset)

    def _retain(self, log: PartitionLog) -> None:
        if log.is_truncating:
            return
        mark = self._mark_now(log)
        self._say(f"retention, high watermark {mark}")
        self.reference.start_rises(mark)
        now_ms = log.directory.clock.wall_ms()
        self.settle()
        log.enforce_retention(now_ms, mark).then(lambda done: self._retained(log, done))
        self.settle()

    def _retained(self, log: PartitionLog, done: Completion[int]) -> None:
        done.result()
        self.reference.line.log_start = log.log_start_offset

    # operations for which all file operations must end at once

    def _eagerly(self) -> Callable[[], None]:
        """Let all file operations end at once; return a function that ends this mode of lanes."""
        self.settle()
        lanes = self.opened.lanes
        before = [(lane.is_eager, lane.is_slow) for lane in lanes]
        for lane in lanes:
            lane.is_eager, lane.is_slow = True, False

        def back() -> None:
            for lane, (is_eager, is_slow) in zip(lanes, before, strict=True):
                lane.is_eager, lane.is_slow = is_eager, is_slow

        return back

    def _compact(self, log: PartitionLog) -> None:
        if not self.config.compact_enabled:
            return
        back = self._eagerly()
        mark = self._mark_now(log)
        self._say(f"compact, high watermark {mark}")
        self.reference.compacted_end = max(self.reference.compacted_end, mark)
        settings = CleanerSettings(dedupe_buffer_bytes=1 << 16, slice_bytes=200)
        cleaner = Cleaner(settings, log.directory.clock, _no_sleep)
        completed(cleaner.clean_one([(log, mark)]))
        back()

    def _move(self, log: PartitionLog) -> None:
        directories = self.opened.directories
        if len(directories) < 2 or log.is_truncating:
            return
        back = self._eagerly()
        log.submit_planned()
        source = next(each for each in directories if TP in each.logs)
        target = next(each for each in directories if each is not source)
        future = target.future_logs.found.get(TP)
        if future is None:
            start = log.log_start_offset
            config = future_config(self.config)
            producers = log.producers.before(start)
            future = target.future_logs.create(TP, TOPIC_ID, config, start, producers).result()
        self._say(f"copy {future.log_end_offset}..{log.log_end_offset - 1} to {target.path}")
        if _copied(log, future, 3 if self._draw.random() < 0.3 else 1_000):
            self._say(f"move to {target.path}")
            mark = min(self._mark, log.log_end_offset)
            self.reference.marks_begin(mark)
            flush = self.reference.flush_begins(log.log_end_offset)
            completed(_replaced(source, target, log, future, mark))
            self.reference.flush_ended(flush)
            self.reference.marks_ended()
        back()

    def shut_down(self) -> None:
        """Close all directories; each has the marker of a clean shutdown then."""
        self._eagerly()
        log = self.opened.log()
        log.submit_planned()
        self._say("shut down")
        self.reference.may_be_clean = True
        for directory in self.opened.directories:
            completed(directory.close(CleanEpochs(7)))
        self.reference.closed()


async def _no_sleep(_: float) -> None:
    """Return at once, in place of a pause of the cleaner."""


def _copied(log: PartitionLog, future: PartitionLog, steps: int) -> bool:
    """Copy records to a future log, in at most `steps` steps; return whether it has all records."""
    for _ in range(steps):
        step = next_step(
            LogExtent(log.log_start_offset, log.log_end_offset, log.epochs),
            LogExtent(future.log_start_offset, future.log_end_offset, future.epochs),
        )
        if step.kind is StepKind.CAUGHT_UP:
            return True
        if step.kind is StepKind.TRUNCATE:
            future.truncate_to(step.offset).result()
        elif step.kind is StepKind.RESTART:
            future.truncate_fully_and_start_at(step.offset).result()
            producers = log.producers.before(step.offset)
            future.producers = producers
            if len(producers):
                future.new_snapshots[step.offset] = producers.to_snapshot()
        else:
            part = log.read(step.offset, 200, log.log_end_offset, min_one_batch=True).result()
            future.plan_follower_append(part.data)
            future.submit_planned()
    return False


async def _replaced(
    source: LogDirectory, target: LogDirectory, log: PartitionLog, future: PartitionLog, mark: int
) -> None:
    """Put a future log in the place of the log, as a broker does at the end of a move."""
    replacement = Replacement(source, target, log, future)
    await replacement.prepare(mark)
    await replacement.begin()
    await replacement.write_down()
    await replacement.rename()
    replacement.switch().configured(log.config)
    replacement.go_on()
