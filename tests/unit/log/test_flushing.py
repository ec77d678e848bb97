"""What a flush that is done promises: all that was written when it was asked for is durable."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar, cast

import pytest
from tests.support.log import (
    NOW_MS,
    TOPIC_ID,
    TP,
    Life,
    LogHarness,
    StepLane,
    append,
    batch_of,
    open_directory,
)

from tidelog.core.completion import Completion
from tidelog.core.ports import Files, Work
from tidelog.log.config import LogConfig
from tidelog.log.partition_log import PartitionLog
from tidelog.sim.disk import SimDisk
from tidelog.sim.files import SimFiles

T = TypeVar("T")


@pytest.mark.rule("V39")
def test_a_flush_asked_for_during_another_covers_what_was_written_between(
    harness: LogHarness,
) -> None:
    log = harness.log()
    harness.lane.eager = False
    append(log, [b"a"])
    first = log.flush()
    append(log, [b"b"])
    second, third = log.flush(), log.flush()
    harness.lane.run(1)
    assert first.done and not second.done and log.recovery_point == 1
    append(log, [b"c"])
    assert log.log_end_offset == 3, "written while the second flush is under way: not its business"
    harness.lane.run()
    assert second.done and third.done and log.recovery_point == 2
    assert log.flush().done is False


def test_a_flush_that_waits_when_the_log_is_closed_does_not_look_for_its_files(
    harness: LogHarness,
) -> None:
    """The replica's directory is renamed by then: a missing file would be a failure of the disk."""
    log = harness.log()
    harness.lane.eager = False
    append(log, [b"a"])
    first = log.flush()
    append(log, [b"b"])
    second = log.flush()
    closed = log.close("deleted")
    harness.lane.run()
    assert first.done and first.error is None
    assert closed.done and second.done
    assert second.error is not None and "the log was closed meanwhile" in str(second.error)
    assert log.directory.failure is None
    assert log.recovery_point == 1


class TwoThreads(StepLane):
    """A lane whose fast and slow operations run, and are delivered, in an order that is drawn."""

    def __init__(self, directory: str, files: Files, draw: random.Random) -> None:
        super().__init__(directory, files)
        self._draw = draw
        self._queues: dict[Work, deque[tuple[Callable[[Files], Any], Completion[Any]]]] = {
            work: deque() for work in Work
        }
        self._results: deque[tuple[Work, Completion[Any], Completion[Any]]] = deque()
        self.is_opening = True

    @property
    def is_fast(self) -> bool:
        waits = self._queues[Work.FAST] or any(work is Work.FAST for work, _, _ in self._results)
        return not self.slow_disk and not waits

    def submit(self, operation: Callable[[Files], T], work: Work, name: str) -> Completion[T]:
        if self.is_opening or (work is Work.FAST and self.is_fast):
            return self._execute(operation)
        completion: Completion[T] = Completion()
        self._queues[work].append((operation, completion))
        return completion

    def step(self) -> bool:
        """Run the first operation of a thread, or deliver a result; False when nothing is left."""
        ready = [work for work in Work if self._queues[work]]
        if self._results and (not ready or self._draw.random() < 0.5):
            _, completion, result = self._results.popleft()
            if result.error is not None:
                completion.fail(result.error)
            else:
                completion.resolve(result.result())
            return True
        if not ready:
            return False
        work = self._draw.choice(ready)
        operation, completion = self._queues[work].popleft()
        self._results.append((work, completion, self._execute(operation)))
        return True


class _Promises:
    """Flushes under way: each must reach the log end of when it was asked for, or a cut since."""

    def __init__(self, log: PartitionLog, monkeypatch: pytest.MonkeyPatch) -> None:
        self._log = log
        self._asked: list[list[int]] = []
        self.kept = 0
        reset_ends = PartitionLog.reset_ends

        def cut(log: PartitionLog, end: int) -> None:
            for asked in self._asked:
                asked[0] = min(asked[0], end)
            reset_ends(log, end)

        monkeypatch.setattr(PartitionLog, "reset_ends", cut)

    def flush(self) -> None:
        asked = [self._log.log_end_offset]
        self._asked.append(asked)

        def done(flushed: Completion[None]) -> None:
            flushed.result()
            self._asked.remove(asked)
            pending = self._log.truncating_to
            wanted = asked[0] if pending is None else min(asked[0], pending)
            assert self._log.recovery_point >= wanted
            self.kept += 1

        self._log.flush().then(done)

    def all_kept(self) -> bool:
        return not self._asked


@pytest.mark.rule("V39")
@pytest.mark.parametrize("seed", range(60))
def test_no_flush_is_done_early_whatever_runs_beside_it(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(seed)
    files = SimFiles(cast(Any, Life()), SimDisk("/logs"), random.Random(seed))
    lane = TwoThreads("/logs", cast(Files, files), draw)
    config = LogConfig(
        segment_bytes=draw.choice([400, 1000, 5000]),
        index_interval_bytes=150,
        flush_messages=draw.choice([2, 5, 2**62]),
    )
    log = open_directory(lane, config).create(TP, TOPIC_ID, config).result()
    lane.is_opening = False
    promises = _Promises(log, monkeypatch)
    for _ in range(150):
        lane.slow_disk = draw.random() < 0.5
        action = draw.random()
        if action < 0.4 and not log.is_truncating:
            log.plan_leader_append(batch_of([b"v" * draw.randrange(1, 60)]), 0, NOW_MS)
            if draw.random() < 0.8:
                log.submit_planned()
        elif action < 0.55:
            promises.flush()
        elif action < 0.62:
            log.truncate_to(max(log.next_offset - draw.randrange(1, 6), 0))
        else:
            for _ in range(draw.randrange(1, 4)):
                lane.step()
    while lane.step():
        pass
    assert promises.all_kept() and promises.kept > 3
