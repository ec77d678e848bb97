"""A future log takes the place of the present one, in a process that dies at any file call (D11).

Whatever a crash leaves, the next start finds every record that was synced, in one copy: the present
replica, the new one, or both, of which one goes. Moves go on where they were.
"""

from __future__ import annotations

import errno
import os
import random
from bisect import bisect_left
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.support.draws import FACTOR
from tests.support.log import (
    NOW_MS,
    TOPIC_ID,
    TP,
    FakeClock,
    Life,
    StepLane,
    append,
    batch_of,
    drive,
    open_directory,
    values_of,
)
from tests.support.ports import FakeTracer

from tidelog.broker.replicas.directories import duplicate_replicas
from tidelog.core.errors import KafkaError, NodeDead
from tidelog.core.ports import Files
from tidelog.core.types import CleanEpochs
from tidelog.log import names
from tidelog.log.config import LogConfig
from tidelog.log.log_directory import LogDirectory
from tidelog.log.partition_log import PartitionLog
from tidelog.log.replacement import Replacement
from tidelog.records.builder import Producer
from tidelog.sim.disk import Directory, Loss, SimDisk
from tidelog.sim.files import SimFiles

CONFIG = LogConfig(segment_bytes=400, index_interval_bytes=100, file_delete_delay_ms=0)
VALUES = [b"v%d" % number for number in range(12)]
A, B, C = "/a", "/b", "/c"
#: What a disk says that does not rename.
REFUSALS = (errno.ENOSPC, errno.EROFS, errno.EPERM, errno.EIO)


class TwoDirectories:
    """The log directories of one broker, each on a simulated disk; one process has them open."""

    def __init__(self, *paths: str) -> None:
        self.draw = random.Random(0)
        self.disks = {path: SimDisk(path) for path in paths or (A, B)}
        self.clock = FakeClock()
        self.tracer = FakeTracer()
        self.life = Life()
        self.lanes: dict[str, StepLane] = {}
        self.directories: dict[str, LogDirectory] = {}
        #: The error with which a disk refuses to rename.
        self.refused: dict[str, int] = {}

    def start(self, strike_at: int = -1) -> None:
        """A new process opens both and lets one copy of a replica go."""
        now_ms = self.clock.wall_ms()
        self.clock = FakeClock()
        self.clock.advance(now_ms - NOW_MS)
        self.life = Life(self.clock)
        self.life.strike_at = strike_at
        self.directories = {}
        for path, disk in self.disks.items():
            files = SimFiles(cast(Any, self.life), disk, self.draw)
            if path in self.refused:
                files = cast(SimFiles, _Refusing(cast(Files, files), self.refused[path]))
            self.lanes[path] = StepLane(path, cast(Files, files))
            self.directories[path] = open_directory(
                self.lanes[path], CONFIG, self.clock, self.tracer
            )
        store = SimpleNamespace(get_many=_no_nodes)
        services = SimpleNamespace(tracer=self.tracer, store=store, tasks=None)
        found = list(self.directories.values())
        drive(duplicate_replicas.set_aside(cast(Any, services), found))
        self.clock.advance(1)

    def crash(self, loss: Loss) -> None:
        self.life.alive = False
        for disk in self.disks.values():
            if loss is not Loss.NONE:
                disk.lose_power(self.draw, loss)

    def log(self) -> PartitionLog:
        """The replica, of which there is exactly one."""
        [log] = [each.logs[TP] for each in self.directories.values() if TP in each.logs]
        return log

    def names(self) -> list[str]:
        """Every directory of a replica on the disks."""
        found = []
        for path, disk in self.disks.items():
            root = disk.directory(path)
            found += [
                f"{path}/{name}"
                for name, entry in root.entries.items()
                if isinstance(entry, Directory)
            ]
        return found


async def _no_nodes(paths: list[str]) -> list[None]:
    return [None] * len(paths)


def begun(*paths: str) -> TwoDirectories:
    """A replica in A with some records, all of them synced."""
    two = TwoDirectories(*paths)
    two.start()
    log = two.directories[A].create(TP, TOPIC_ID, CONFIG).result()
    for number, value in enumerate(VALUES):
        append(log, [value], epoch=number // 5)
    log.flush().result()
    drive(_checkpointed(two.directories[A]))
    return two


async def _checkpointed(directory: LogDirectory) -> None:
    await directory.checkpoint()


def future_of(two: TwoDirectories, target: str = B) -> PartitionLog:
    current = two.log()
    start = current.log_start_offset
    return (
        two.directories[target]
        .future_logs.create(TP, TOPIC_ID, CONFIG, start, current.producers.before(start))
        .result()
    )


def copy(current: PartitionLog, future: PartitionLog, max_bytes: int = 200) -> None:
    while future.log_end_offset < current.log_end_offset:
        part = current.read(
            future.log_end_offset, max_bytes, current.log_end_offset, min_one_batch=True
        ).result()
        future.plan_follower_append(part.data)
        future.submit_planned()


def replacement(two: TwoDirectories, source: str = A, target: str = B) -> Replacement:
    future = two.directories[target].future_logs.found[TP]
    return Replacement(two.directories[source], two.directories[target], two.log(), future)


async def replaced(two: TwoDirectories, source: str = A, target: str = B) -> PartitionLog:
    attempt = replacement(two, source, target)
    await attempt.prepare(7)
    await attempt.begin()
    await attempt.write_down()
    await attempt.rename()
    log = attempt.switch()
    attempt.go_on()
    return log


def moved(two: TwoDirectories, source: str = A, target: str = B) -> PartitionLog:
    future = two.directories[target].future_logs.found.get(TP)
    copy(two.log(), future if future is not None else future_of(two, target))
    return drive(replaced(two, source, target))


@pytest.mark.rule("D11")
def test_a_future_log_takes_the_place_of_the_present_one() -> None:
    two = begun()
    before = two.log()
    epochs = before.epochs.entries()
    log = moved(two)
    assert two.log() is log and log.directory is two.directories[B]
    assert log.path == "/b/topic-0" and before.is_closed
    assert values_of(log) == VALUES and log.epochs.entries() == epochs
    assert log.recovery_point == log.log_end_offset
    two.clock.advance(1)
    assert two.names() == ["/b/topic-0"]
    assert append(log, [b"more"], epoch=3) == len(VALUES)
    two.crash(Loss.NONE)
    two.start()
    assert values_of(two.log()) == [*VALUES, b"more"]


@pytest.mark.rule("D11")
def test_errors_after_a_move_name_the_files_as_they_are_called_now() -> None:
    two = begun()
    log = moved(two)
    file = log.active_segment.file
    assert file.is_open, "the copy was written through it"
    assert file.opened_path == file.path == f"/b/topic-0/{log.active_segment.base_offset:020d}.log"


@pytest.mark.rule("D11", "D21")
@pytest.mark.parametrize("restarts", [False, True])
def test_records_without_timestamps_are_as_old_in_the_other_directory(restarts: bool) -> None:
    two = TwoDirectories()
    two.start()
    log = two.directories[A].create(TP, TOPIC_ID, CONFIG).result()
    for number in range(9):
        append(log, [bytes(60)], timestamp_ms=-1)
        two.clock.advance(100 + number)
    log.flush().result()
    two.clock.advance(5000)
    written = [segment.last_modified_ms for segment in log.segments]
    bases = log.base_offsets
    assert len(bases) > 2 and written[-1] < two.clock.wall_ms() - 5000
    moved(two)
    if restarts:
        two.crash(Loss.NONE)
        two.start()
    log = two.log()
    assert log.directory is two.directories[B]
    ends = [*log.base_offsets[1:], log.log_end_offset]
    sources = [bisect_left(bases, end) - 1 for end in ends]
    assert [s.last_modified_ms for s in log.segments] == [written[source] for source in sources]
    assert all(s.created_ms <= s.last_modified_ms for s in log.segments)


@pytest.mark.rule("D11", "V69")
@pytest.mark.parametrize("loss", list(Loss))
def test_no_crash_at_any_step_loses_a_synced_record_or_leaves_two_copies(loss: Loss) -> None:
    calls = _calls_of_a_move()
    homes = set()
    # Each loss strikes every other call; `make fuzz` strikes each call with each loss.
    step = max(1, 2 // FACTOR)
    for strike_at in range(1 + list(Loss).index(loss) % step, calls + 1, step):
        two = begun()
        two.life.strike_at = two.life.calls + strike_at
        with pytest.raises(NodeDead):
            moved(two)
            raise NodeDead("the process ends behind the move")
        two.crash(loss)
        two.start()
        log = two.log()
        assert values_of(log) == VALUES, strike_at
        homes.add(log.directory.path)
        stays = {name for name in two.names() if not name.endswith(names.FUTURE_SUFFIX)}
        assert stays == {log.path}, strike_at
        # The replica moves on from there, and back again.
        source = log.directory.path
        target = B if source == A else A
        assert values_of(moved(two, source, target)) == VALUES
        assert values_of(moved(two, target, source)) == VALUES
        two.clock.advance(1)
        assert two.names() == [f"{source}/topic-0"]
    assert homes == {A, B}


def _calls_of_a_move() -> int:
    two = begun()
    before = two.life.calls
    moved(two)
    return two.life.calls - before


@pytest.mark.rule("D11")
@pytest.mark.parametrize("loss", [Loss.NONE, Loss.ALL_UNSYNCED])
def test_the_copy_in_the_others_place_stays_where_a_crash_left_both(loss: Loss) -> None:
    two = begun()
    two.lanes[A].files = cast(Files, _Refusing(two.lanes[A].files))
    log = moved(two)
    append(log, [b"more"], epoch=3)
    log.flush().result()
    assert sorted(two.names()) == ["/a/topic-0", "/b/topic-0"]
    two.crash(loss)
    two.start()
    assert values_of(two.log()) == [*VALUES, b"more"]
    assert "moved_replica_found_twice" in two.tracer.marks
    assert two.names() == ["/b/topic-0"] and not any(
        each.strays for each in two.directories.values()
    )
    two.crash(loss)
    two.start()
    assert two.directories[B].moved_from == {}


class _Refusing:
    """Files of a disk that refuses to rename, as a full one does."""

    def __init__(self, files: Files, error: int = errno.ENOSPC) -> None:
        self._files = files
        self._error = error
        self.last_call = "rename"

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)

    def rename(self, old: str, new: str) -> None:
        raise OSError(self._error, os.strerror(self._error), old)


def refuse(two: TwoDirectories, path: str, error: int) -> None:
    """Let a disk refuse to rename from now on, through all starts."""
    two.refused[path] = error
    two.lanes[path].files = cast(Files, _Refusing(two.lanes[path].files, error))


def _moved_and_written(two: TwoDirectories) -> None:
    """A move, and records that only the new log has; some of the old ones are truncated."""
    log = moved(two)
    append(log, [b"more"], epoch=3)
    log.flush().result()
    log.truncate_to(8).result()
    log.flush().result()
    append(log, [b"again"], epoch=3)
    log.flush().result()


@pytest.mark.rule("D11", "V69")
@pytest.mark.parametrize("loss", list(Loss))
@pytest.mark.parametrize("error", REFUSALS)
def test_no_crash_loses_a_synced_record_where_the_old_copy_cannot_be_removed(
    error: int, loss: Loss
) -> None:
    whole = begun()
    before = whole.life.calls
    refuse(whole, A, error)
    _moved_and_written(whole)
    calls = whole.life.calls - before + 1
    # Every call is struck under every loss, with one of the errors; in `make fuzz` with each.
    first, step = (REFUSALS.index(error), len(REFUSALS)) if FACTOR == 1 else (0, 1)
    assert calls > 20 * step
    for strike_at in range(1 + first, calls + 1, step):
        two = begun()
        refuse(two, A, error)
        two.life.strike_at = two.life.calls + strike_at
        with pytest.raises(NodeDead):
            _moved_and_written(two)
            raise NodeDead("the process ends behind it")
        two.crash(loss)
        two.start()
        found = values_of(two.log())
        path = two.log().path
        assert found[:8] == VALUES[:8], strike_at
        assert found[8:] in ([b"again"], [*VALUES[8:], b"more"][: len(found) - 8]), strike_at
        for _ in range(2):  # the removal is refused again
            two.crash(loss)
            two.start()
            assert (values_of(two.log()), two.log().path) == (found, path), strike_at
        two.refused.clear()
        two.crash(loss)
        two.start()
        assert (values_of(two.log()), two.log().path) == (found, path), strike_at
        two.clock.advance(1)
        assert [name for name in two.names() if "-future" not in name] == [path], strike_at


@pytest.mark.rule("D11")
@pytest.mark.parametrize("order", [(A, B), (B, A)])
def test_of_two_copies_that_name_each_other_the_one_of_the_later_move_stays(
    order: tuple[str, str],
) -> None:
    two = begun()
    two.disks = {path: two.disks[path] for path in order}
    refuse(two, A, errno.EPERM)
    moved(two)
    two.refused.clear()
    two.lanes[A].files = two.lanes[A].files._files  # type: ignore[attr-defined]  # it heals
    refuse(two, B, errno.EPERM)
    log = moved(two, B, A)
    log.truncate_to(8).result()
    log.flush().result()
    two.crash(Loss.NONE)
    two.start()
    assert (two.log().path, values_of(two.log())) == ("/a/topic-0", VALUES[:8])
    assert not any(each.strays for each in two.directories.values())


@pytest.mark.rule("D11")
def test_a_copy_that_stays_behind_two_moves_is_still_known_as_an_older_one() -> None:
    two = begun(A, B, C)
    refuse(two, A, errno.ENOSPC)
    moved(two)
    log = moved(two, B, C)
    log.truncate_to(8).result()
    log.flush().result()
    for _ in range(2):
        two.crash(Loss.NONE)
        two.start()
        assert (two.log().path, values_of(two.log())) == ("/c/topic-0", VALUES[:8])
    assert sorted(two.names()) == ["/a/topic-0", "/c/topic-0"]
    two.refused.clear()
    two.crash(Loss.NONE)
    two.start()
    two.clock.advance(1)
    assert two.names() == ["/c/topic-0"]
    assert two.directories[C].moved_from == {}


@pytest.mark.rule("D11")
def test_appends_that_are_planned_meanwhile_are_written_to_the_new_log() -> None:
    two = begun()
    current = two.log()
    copy(current, future_of(two))
    attempt = replacement(two)
    drive(attempt.begin())
    batch = batch_of([b"late"], producer=Producer(7, 0, 0))
    late = current.plan_leader_append(batch, 9, NOW_MS)
    current.submit_planned()
    drive(attempt.write_down())
    drive(attempt.rename())
    assert not late.done
    log = attempt.switch()
    attempt.go_on()
    assert late.result().base_offset == len(VALUES)
    assert values_of(log) == [*VALUES, b"late"]
    again = log.plan_leader_append(batch_of([b"late"], producer=Producer(7, 0, 0)), 9, NOW_MS)
    assert again.result().duplicate


@pytest.mark.rule("D11", "V69")
@pytest.mark.parametrize("is_given_up", [False, True])
def test_flushes_and_truncations_wait_and_are_made_on_the_log_that_goes_on(
    is_given_up: bool,
) -> None:
    two = begun()
    current = two.log()
    copy(current, future_of(two))
    attempt = replacement(two)
    drive(attempt.begin())
    flushed, cut = current.flush(), current.truncate_to(5)
    drive(attempt.write_down())
    assert not flushed.done and not cut.done
    if is_given_up:
        attempt.give_up()
        attempt.give_up()
        log = two.log()
        assert log is current
    else:
        drive(attempt.rename())
        log = attempt.switch()
        attempt.go_on()
        attempt.give_up()
        # Whoever still has the old log reaches the new one.
        current.flush().result()
        assert log is not current
    flushed.result()
    cut.result()
    assert values_of(log) == VALUES[:5]
    assert append(log, [b"next"], epoch=9) == 5


@pytest.mark.rule("D11")
def test_a_truncation_that_fails_says_so() -> None:
    two = begun()
    current = two.log()
    copy(current, future_of(two))
    attempt = replacement(two)
    drive(attempt.begin())
    cut = current.truncate_fully_and_start_at(50)
    current.break_off("as a test wants it")
    attempt.give_up()
    assert isinstance(cut.error, KafkaError)


@pytest.mark.rule("D11")
def test_a_future_log_that_took_the_name_gives_it_back() -> None:
    two = begun()
    copy(two.log(), future_of(two))
    attempt = replacement(two)
    drive(attempt.begin())
    drive(attempt.write_down())
    drive(attempt.rename())
    attempt.undo().result()
    attempt.give_up()
    assert sorted(two.names()) == ["/a/topic-0", two.directories[B].future_logs.found[TP].path]
    assert values_of(moved(two)) == VALUES


@pytest.mark.rule("D11", "E7")
@pytest.mark.parametrize("is_clean", [False, True])
def test_a_start_finds_a_future_log_and_the_move_goes_on(is_clean: bool) -> None:
    two = begun()
    future = future_of(two)
    copy(two.log(), future)
    path, end = future.path, future.log_end_offset
    if is_clean:
        for directory in two.directories.values():
            drive(directory.close(CleanEpochs(3)))
    two.crash(Loss.ALL_UNSYNCED if is_clean else Loss.NONE)
    two.start()
    found = two.directories[B].future_logs.found[TP]
    assert (found.path, found.log_end_offset) == (path, end) and TP not in two.directories[B].logs
    assert values_of(moved(two)) == VALUES


@pytest.mark.rule("D11")
def test_useless_future_logs_are_removed_at_the_start() -> None:
    two = begun()
    short = future_of(two)
    short.plan_follower_append(two.log().read(0, 100, 1, min_one_batch=True).result().data)
    short.submit_planned()
    short.flush().result()
    two.directories[B].future_logs.taken(TP)
    longer = future_of(two)
    copy(two.log(), longer)
    longer.flush().result()
    two.directories[B].future_logs.taken(TP)
    future_of(two)  # an empty one, as after a crash just behind its creation
    beside = longer.path.replace("/b/", "/a/")
    two.disks[A].make_directories(beside)
    two.crash(Loss.NONE)
    two.start()
    two.clock.advance(1)
    assert sorted(two.names()) == ["/a/topic-0", longer.path]


@pytest.mark.rule("D11")
def test_a_damaged_future_log_is_removed_and_the_replica_stays() -> None:
    two = begun()
    future = future_of(two)
    copy(two.log(), future)
    future.flush().result()
    drive(_checkpointed(two.directories[B]))
    last = names.offset_name(future.base_offsets[-1], names.LOG)
    two.disks[B].cut_short(f"{future.path}/{last}", 10)
    two.crash(Loss.NONE)
    two.start()
    two.clock.advance(1)
    assert two.directories[B].future_logs.found == {} and values_of(two.log()) == VALUES
    assert two.names() == ["/a/topic-0"]


@pytest.mark.rule("D11")
def test_a_future_log_is_made_where_the_partition_is_in_no_other_form() -> None:
    two = begun()
    future = future_of(two)
    with pytest.raises(ValueError, match="already"):
        future_of(two)
    with pytest.raises(ValueError, match="already"):
        future_of(two, A)
    two.directories[B].future_logs.remove(TP).result()
    assert future.is_closed
    two.directories[B].future_logs.remove(TP).result()
    again = future_of(two)
    assert again.path != future.path
    # A replica that is created there takes its place.
    log = two.directories[B].create(TP, TOPIC_ID, CONFIG).result()
    two.clock.advance(1)
    assert sorted(two.names()) == ["/a/topic-0", "/b/topic-0"] and log.log_end_offset == 0
