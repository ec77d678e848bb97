"""Replicas that move between the log directories of their broker: D11 (also tests/cluster)."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.broker.fakes import (
    CONNECTION,
    T0,
    TOPIC_ID,
    FakeBroker,
    FakeClock,
    errors,
    settle,
    state,
)
from tests.support.log import FaultyFiles, StepLane, UnsyncedFiles, batch_of, read_all

from tidelog.broker.apis import alter_replica_log_dirs, describe_log_dirs
from tidelog.broker.replicas.directories.failed_directories import FailedDirectories
from tidelog.broker.replicas.hosting.partition import Partition
from tidelog.broker.replicas.metrics import DIRECTORY_MOVE_BYTE_RATE, DIRECTORY_MOVE_MAX_LAG
from tidelog.broker.server.requests import Pending, Request
from tidelog.core.config import BrokerConfig
from tidelog.core.errors import ErrorCode, StorageError
from tidelog.core.types import TopicPartition
from tidelog.log.config import LogConfig
from tidelog.log.log_directory import LogDirectory
from tidelog.log.partition_log import PartitionLog
from tidelog.log.producer_state import ProducerState
from tidelog.replication.commands import OfflineReplica
from tidelog.wire.codec import RequestHeader
from tidelog.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from tidelog.wire.messages.describe_log_dirs import DescribeLogDirsPartition, DescribeLogDirsRequest

NONE, NOT_FOUND = ErrorCode.NONE, ErrorCode.LOG_DIR_NOT_FOUND
FAILED, MISSING = ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.REPLICA_NOT_AVAILABLE
RATE = "replica_alter_log_dirs_io_max_bytes_per_second"
NO_ROLE = -1


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(coroutine)


class TwoDisks:
    """A broker with two log directories on real files; its one replica is in the first."""

    def __init__(self, path: Path, names: str = "ab", **config: str) -> None:
        self.clock = FakeClock()
        self.broker = FakeBroker(1, {}, self.clock, **config)
        self.broker.see(1)
        self.paths = [str(path / name) for name in names]
        self.lanes: list[StepLane] = []

    async def start(self, **kept: Any) -> TwoDisks:
        """Open both directories."""
        self.lanes = [StepLane(each, FaultyFiles(UnsyncedFiles())) for each in self.paths]
        replicas = self.broker.replicas
        directories = [
            await LogDirectory.open(
                lane,
                cluster_id="cluster",
                broker_id=1,
                clock=self.clock,
                tracer=self.broker.tracer,
                default_config=replicas.default_log_config(),
                config_of=replicas.log_config,
            )
            for lane in self.lanes
        ]
        await replicas.open(directories)
        services, rest = self.broker.services, self.broker.commands.rest
        reports, no_events = SimpleNamespace(is_closed=True), SimpleNamespace()
        failed = FailedDirectories(
            services,
            replicas,
            replicas.moves,
            rest,
            reports,  # type: ignore[arg-type]  # closed
            no_events,  # type: ignore[arg-type]  # no event
        )
        self.broker.config = self.broker.config.with_dynamic({})
        for directory in directories:
            directory.on_failure = lambda error, each=directory: failed.failed(each.path, error)
        return self

    async def restart(self) -> None:
        """Another process, as after a crash of this one; no replica has a role."""
        await self.broker.replicas.moves.close()
        config = self.broker.config
        self.broker = FakeBroker(1, {}, self.clock)
        self.broker.config = config
        self.broker.see(1)
        await self.start()

    @property
    def a(self) -> LogDirectory:
        return self._at(0)

    @property
    def b(self) -> LogDirectory:
        return self._at(1)

    def _at(self, number: int) -> LogDirectory:
        [found] = [
            each for each in self.broker.replicas.directories if each.path == self.paths[number]
        ]
        return found

    def files(self, number: int) -> FaultyFiles:
        return self.lanes[number].files  # type: ignore[return-value]  # made so above

    async def lead(self, leader_epoch: int = 0, *, is_new: bool = False, full: bool = False) -> int:
        """The broker leads the partition; return the error."""
        command = state(
            1, leader_epoch=leader_epoch, isr=(1,), replicas=(1,), is_new=is_new,
            partition_epoch=leader_epoch,
        )  # fmt: skip
        [error] = errors(await self.broker.command(command, full=full))
        return error

    async def leading(self, records: int = 12) -> Partition:
        """A new replica, in the first directory, with so many batches."""
        self.broker.replicas.moves._preferred[T0] = self.paths[0]
        assert await self.lead(is_new=True) == 0
        partition = self.broker.partition()
        assert partition.directory is self.a
        for number in range(records):
            self.produce(b"v%d" % number)
        return partition

    def produce(self, value: bytes) -> Any:
        completion = self.broker.partition().role.append(batch_of([value]), -1, 0)
        self.broker.partition().flush_appends()
        return completion

    async def ask(self, path: str, tp: TopicPartition = T0) -> ErrorCode:
        """An AlterReplicaLogDirs for one replica; its outcome."""
        topic = AlterReplicaLogDirTopic(tp.topic, [tp.partition])
        message = AlterReplicaLogDirsRequest([AlterReplicaLogDir(path, [topic])])
        answer = await self._answered(alter_replica_log_dirs, 34, 2, message)
        [result] = answer.results
        [outcome] = result.partitions
        assert (result.topic_name, outcome.partition_index) == tp
        return ErrorCode(outcome.error_code)

    async def described(self) -> dict[str, list[DescribeLogDirsPartition]]:
        """What DescribeLogDirs has of the replica, by directory."""
        message = DescribeLogDirsRequest(None)
        answer = await self._answered(describe_log_dirs, 35, 4, message)
        return {
            Path(each.log_dir).name: [part for topic in each.topics for part in topic.partitions]
            for each in answer.results
        }

    async def _answered(self, api: Any, key: int, version: int, message: Any) -> Any:
        header = RequestHeader(key, version, 0, "test")
        pending = api.handle(self.broker, Request(header, message, CONNECTION, 0))
        assert isinstance(pending, Pending)
        got: list[Any] = []
        pending.deliver_to(got.append)
        await settle()
        assert got, "no answer yet"
        return got[0]

    def throttle(self, rate: int) -> None:
        """Set the rate of moves; 0 holds them."""
        key = RATE.replace("_", ".")
        self.broker.config = self.broker.config.with_dynamic({key: str(rate)})

    async def held(self) -> PartitionLog:
        """A move to the second directory that does not go on; its future log."""
        self.throttle(0)
        self.broker.replicas.moves.copied(1)
        assert await self.ask(self.paths[1]) is NONE
        return self.b.future_logs.found[T0]

    async def let_go(self) -> None:
        """The moves go on, and end."""
        self.throttle(2**63 - 1)
        await self.clock.advance(1_000)

    def values(self) -> list[bytes | None]:
        return [record.value for record in read_all(self.broker.partition().log)]

    def marks(self) -> list[str]:
        return [mark for mark in self.broker.tracer.marks if "directory_move" in mark]

    def names(self) -> list[str]:
        """The directories of replicas that are kept, without the ids in their names."""
        found = []
        for path in map(Path, self.paths):
            for each in path.iterdir():
                name, _, aside = each.name.partition(".")
                if each.is_dir() and not aside.endswith("-delete"):
                    found.append(f"{path.name}/{name}{aside[32:]}")
        return sorted(found)


def values(count: int) -> list[bytes]:
    return [b"v%d" % number for number in range(count)]


def story(path: Path, play: Callable[[TwoDisks], Coroutine[Any, Any, None]], **config: str) -> None:
    """Play a story with a broker and its two disks."""

    async def begin() -> None:
        two = await TwoDisks(path, **config).start()
        await play(two)
        assert two.broker.failures == []

    run(begin())


@pytest.mark.rule("D11")
@pytest.mark.parametrize("fetch_bytes", ["1", "1048576"])
def test_a_replica_moves_while_it_leads_and_goes_on(tmp_path: Path, fetch_bytes: str) -> None:
    async def play(two: TwoDisks) -> None:
        partition = await two.leading()
        role, epochs = partition.role, partition.log.epochs.entries()
        assert await two.ask(two.paths[1]) is NONE
        await two.clock.advance(1_000)
        assert partition.directory is two.b and partition.role is role
        assert two.values() == values(12) and partition.log.epochs.entries() == epochs
        assert partition.high_watermark == 12 and T0 not in two.a.logs
        assert two.produce(b"v12").result().base_offset == 12
        assert two.values() == values(13) and partition.high_watermark == 13
        assert two.marks() == ["directory_move_begun", "directory_move_swapped"]
        names = [name for name, _ in two.broker.tracer.events if "directory_move" in name]
        assert names == ["directory_move_begun", "directory_move_swapped"]
        assert two.names() == ["b/t-0"]
        # And back again.
        assert await two.ask(two.paths[0]) is NONE
        await two.clock.advance(1_000)
        assert partition.directory is two.a and two.values() == values(13)

    story(tmp_path, play, replica_fetch_max_bytes=fetch_bytes)


@pytest.mark.rule("D11")
def test_a_future_replica_is_shown_with_its_lag(tmp_path: Path) -> None:
    async def play(two: TwoDisks) -> None:
        await two.leading()
        await two.held()
        found = await two.described()
        [present], [future] = found["a"], found["b"]
        assert (present.is_future_key, present.offset_lag) == (False, 0)
        assert (future.is_future_key, future.offset_lag, future.partition_size) == (True, 12, 0)
        # A broker whose present replica is in a failed directory does not know the lag.
        two.broker.replicas.forget(two.broker.partition())
        found = await two.described()
        assert (found["a"], found["b"][0].offset_lag) == ([], -1)

    story(tmp_path, play)


@pytest.mark.rule("D11")
def test_moves_that_cannot_be_are_refused_with_the_reason(tmp_path: Path) -> None:
    async def play(two: TwoDisks) -> None:
        await two.leading()
        assert await two.ask("/nowhere") is NOT_FOUND
        two.files(1).__dict__["volume_size"] = lambda path: SimpleNamespace(usable_bytes=10)
        assert await two.ask(two.paths[1]) is FAILED
        assert "has 10 bytes left" in two.broker.tracer.lines[-1]
        del two.files(1).__dict__["volume_size"]
        two.b.space.free.full_since_ms = 0
        assert await two.ask(two.paths[1]) is FAILED and T0 not in two.b.future_logs.found
        assert "is full and read-only" in two.broker.tracer.lines[-1]
        two.b.space.free.full_since_ms = None
        two.files(1).refuse = lambda call, path: errno.ENOSPC if call == "mkdir" else 0
        assert await two.ask(two.paths[1]) is FAILED and T0 not in two.b.future_logs.found
        two.files(1).refuse = lambda call, path: 0
        error = StorageError("/failed", "read", "/failed", 5, 0)
        two.broker.replicas.log_dirs.failed["/failed"] = error
        assert await two.ask("/failed") is FAILED
        offline = OfflineReplica(bytes(16), 0)
        two.broker.replicas.log_dirs.offline[TopicPartition("gone", 0)] = offline
        assert await two.ask(two.paths[1], TopicPartition("gone", 0)) is FAILED
        assert two.names() == ["a/t-0"]

    story(tmp_path, play)


@pytest.mark.rule("D11")
@pytest.mark.parametrize("hindrance", ["room", "full", "cordon"])
def test_a_refused_move_leaves_the_present_one_as_it_is(hindrance: str, tmp_path: Path) -> None:
    async def play(two: TwoDisks) -> None:
        partition = await two.leading()
        future = await two.held()
        if hindrance == "room":
            two.files(2).__dict__["volume_size"] = lambda path: SimpleNamespace(usable_bytes=10)
        elif hindrance == "full":
            two._at(2).space.free.full_since_ms = 0
        else:
            two.broker.config = replace(two.broker.config, cordoned_log_dirs=(two.paths[2],))
        assert await two.ask(two.paths[2]) is not NONE
        assert two.b.future_logs.found == {T0: future}
        await two.let_go()
        assert partition.directory is two.b

    story(tmp_path, play, names="abc")


@pytest.mark.rule("D11")
def test_a_name_that_is_too_long_for_a_future_replica_is_refused(tmp_path: Path) -> None:
    async def play(two: TwoDisks) -> None:
        long = TopicPartition("t" * 240, 0)
        log = await two.a.create(long, TOPIC_ID, LogConfig())
        two.broker.replicas.add(two.a, log, 0)
        assert await two.ask(two.paths[1], long) is ErrorCode.INVALID_TOPIC_EXCEPTION

    story(tmp_path, play)


@pytest.mark.rule("D11")
def test_a_directory_asked_for_before_the_replica_is_here_gets_it(tmp_path: Path) -> None:
    async def play(two: TwoDisks) -> None:
        for path in reversed(two.paths):
            assert await two.ask(path) is MISSING
        assert await two.ask(two.paths[1]) is MISSING
        assert await two.lead(is_new=True) == 0
        assert two.broker.partition().directory is two.b
        # It counts once.
        assert await two.broker.stop() == 0
        assert await two.lead(1, is_new=True) == 0
        assert two.broker.partition().directory is two.a

    story(tmp_path, play)


@pytest.mark.rule("D11")
def test_the_present_directory_cancels_a_move_and_a_second_request_changes_nothing(
    tmp_path: Path,
) -> None:
    async def play(two: TwoDisks) -> None:
        partition = await two.leading()
        future = await two.held()
        assert await two.ask(two.paths[1]) is NONE
        assert two.b.future_logs.found[T0] is future
        assert await two.ask(two.paths[0]) is NONE
        assert not two.broker.replicas.moves.concerns(T0) and two.names() == ["a/t-0"]
        assert "directory_move_cancelled" in two.marks()
        await two.let_go()
        assert partition.directory is two.a and two.values() == values(12)

    story(tmp_path, play)


@pytest.mark.rule("D11")
def test_moves_wait_for_their_throttle_and_show_their_progress(tmp_path: Path) -> None:
    async def play(two: TwoDisks) -> None:
        partition = await two.leading()
        future = await two.held()
        await two.clock.advance(60_000)
        assert future.log_end_offset == 0 and "directory_move_throttled" in two.marks()
        two.throttle(200)
        await two.clock.advance(600)
        metrics = two.broker.metrics
        assert metrics.value(DIRECTORY_MOVE_MAX_LAG) >= 0
        await two.clock.advance(120_000)
        assert partition.directory is two.b and two.values() == values(12)
        assert not metrics.samples(DIRECTORY_MOVE_BYTE_RATE)
        assert not metrics.samples(DIRECTORY_MOVE_MAX_LAG)

    story(tmp_path, play)


@pytest.mark.rule("D11")
def test_one_replica_is_copied_at_a_time_where_there_is_one_thread(tmp_path: Path) -> None:
    async def play(two: TwoDisks) -> None:
        pace = two.broker.replicas.moves._pace
        await pace.turn()
        waiting = [asyncio.ensure_future(pace.turn()) for _ in range(2)]
        await settle()
        assert not any(each.done() for each in waiting)
        pace.turn_over()
        await settle()
        assert [each.done() for each in waiting] == [True, False]
        pace.turn_over()
        pace.turn_over()
        await settle()
        await pace.turn()

    story(tmp_path, play, num_replica_alter_log_dirs_threads="1")


@pytest.mark.rule("D11", "V32")
def test_a_future_replica_follows_what_the_present_one_truncates(tmp_path: Path) -> None:
    async def play(two: TwoDisks) -> None:
        partition = await two.leading()
        future = await two.held()
        two.throttle(2**63 - 1)
        log = partition.log
        part = log.read(0, 1 << 20, 12, min_one_batch=True).result()
        future.plan_follower_append(part.data)
        future.submit_planned()
        assert future.log_end_offset == 12
        await log.truncate_to(5)
        assert await two.lead(1) == 0
        for number in (5, 6):
            two.produce(b"v%d" % number)
        await two.let_go()
        assert partition.directory is two.b and two.values() == values(7)
        assert partition.log.epochs.entries() == [(0, 0), (1, 5)]
        assert "directory_move_truncated" in two.marks()

    story(tmp_path, play)


@pytest.mark.rule("D11", "V38")
def test_a_log_whose_producers_are_not_known_is_not_replaced(tmp_path: Path) -> None:
    async def play(two: TwoDisks) -> None:
        partition = await two.leading()
        await two.held()
        partition.log.break_off("its producer state could not be read")
        await two.let_go()
        assert partition.directory is two.a and partition.log.is_closed
        assert "until the broker restarts" in two.broker.tracer.lines[-1]

    story(tmp_path, play)


@pytest.mark.rule("D11", "V67")
def test_a_future_replica_begins_again_where_the_records_begin(tmp_path: Path) -> None:
    async def play(two: TwoDisks) -> None:
        partition = await two.leading()
        await two.held()
        assert partition.role.delete_records_before(8) == 8
        await two.let_go()
        assert partition.directory is two.b and two.values() == values(12)[8:]
        assert partition.log.log_start_offset == 8 and "directory_move_restarted" in two.marks()

    story(tmp_path, play)


@pytest.mark.rule("D11")
@pytest.mark.parametrize("is_deleted", [True, False])
def test_a_replica_that_goes_takes_its_future_one_along(tmp_path: Path, is_deleted: bool) -> None:
    async def play(two: TwoDisks) -> None:
        await two.leading()
        await two.held()
        if is_deleted:
            assert await two.broker.stop() == 0
        else:
            await two.broker.command(full=True)
        assert two.broker.replicas.get(T0) is None
        assert two.names() == ([] if is_deleted else ["a/t-0-stray"])
        await two.let_go()
        assert not two.broker.replicas.moves.concerns(T0)

    story(tmp_path, play)


@pytest.mark.rule("D11")
def test_a_stopped_replica_moves_on(tmp_path: Path) -> None:
    async def play(two: TwoDisks) -> None:
        partition = await two.leading()
        await two.held()
        assert await two.broker.stop(delete=False) == 0
        await two.let_go()
        assert partition.directory is two.b and not partition.has_role

    story(tmp_path, play)


@pytest.mark.rule("D11")
def test_a_failed_target_ends_the_move_and_the_replica_goes_on(tmp_path: Path) -> None:
    async def play(two: TwoDisks) -> None:
        partition = await two.leading()
        await two.held()
        two.files(1).refuse = lambda call, path: errno.EIO
        await two.let_go()
        await two.clock.advance(1)
        assert list(two.broker.replicas.failed) == [two.paths[1]]
        assert partition.directory is two.a and partition.is_leader
        assert two.produce(b"v12").result().base_offset == 12
        assert "directory_move_failed" in two.marks()
        assert await two.ask(two.paths[1]) is FAILED

    story(tmp_path, play, log_dirs=f"{tmp_path}/a,{tmp_path}/b")


@pytest.mark.rule("D11")
def test_a_failed_source_makes_the_replica_offline_and_keeps_the_future_one(tmp_path: Path) -> None:
    async def play(two: TwoDisks) -> None:
        await two.leading()
        await two.held()
        two.files(0).refuse = lambda call, path: errno.EIO
        two.produce(b"lost")
        await two.let_go()
        assert two.broker.replicas.get(T0) is None and T0 in two.broker.replicas.offline
        assert T0 in two.b.future_logs.found and T0 not in two.b.logs
        assert await two.lead(0, full=True) == FAILED
        assert T0 in two.b.future_logs.found, "its replica may come back"
        assert await two.broker.stop() == FAILED
        assert T0 in two.b.future_logs.found

    story(tmp_path, play, log_dirs=f"{tmp_path}/a,{tmp_path}/b")


@pytest.mark.rule("D11")
def test_a_source_that_fails_during_the_rename_leaves_a_future_replica(tmp_path: Path) -> None:
    """The replica is offline by then, and the controller knows it: it is not put in place."""

    async def play(two: TwoDisks) -> None:
        partition = await two.leading()
        await two.held()
        two.throttle(2**63 - 1)
        two.lanes[1].eager = False
        await two.clock.advance(1_000)
        while two.lanes[1].names[-1] != "put a future replica in place":
            two.lanes[1].run(1)
            await settle()
        two.files(0).refuse = lambda call, path: errno.EIO
        assert two.a.on_failure is not None
        two.a.on_failure(StorageError(two.a.path, "read", two.a.path, errno.EIO, 0))
        await two.clock.advance(1)
        assert two.broker.replicas.get(T0) is None
        while two.lanes[1].waiting:
            two.lanes[1].run(1)
            await settle()
        assert T0 in two.b.future_logs.found and T0 not in two.b.logs
        assert partition.directory.path == two.paths[0]
        assert two.names() == ["a/t-0", "b/t-0-future"]
        assert "directory_move_undone" in [name for name, _ in two.broker.tracer.events]

    story(tmp_path, play, log_dirs=f"{tmp_path}/a,{tmp_path}/b")


@pytest.mark.rule("D11")
def test_a_move_goes_on_after_a_restart_when_the_replica_has_a_role(tmp_path: Path) -> None:
    async def play(two: TwoDisks) -> None:
        await two.leading()
        await two.held()
        await two.restart()
        await two.let_go()
        assert two.broker.partition().directory is two.a and T0 in two.b.future_logs.found
        assert await two.lead(1) == 0
        await settle()
        assert two.broker.partition().directory is two.b and two.values() == values(12)
        assert two.marks() == ["directory_move_resumed", "directory_move_swapped"]

    story(tmp_path, play)


@pytest.mark.rule("D11", "V45")
@pytest.mark.parametrize("how", ["unlisted", "deleted", "other topic"])
def test_a_future_replica_of_no_replica_is_removed(tmp_path: Path, how: str) -> None:
    async def play(two: TwoDisks) -> None:
        topic_id = b"X" * 16 if how == "other topic" else TOPIC_ID
        await two.b.future_logs.create(T0, topic_id, LogConfig(), 0, _no_producers())
        if how == "unlisted":
            await two.broker.command(full=True)
        elif how == "deleted":
            assert await two.broker.stop() in (0, -1)
        else:
            await two.leading()
        assert two.b.future_logs.found == {}
        assert two.names() == (["a/t-0"] if how == "other topic" else [])

    story(tmp_path, play)


def _no_producers() -> Any:
    return ProducerState()


@pytest.mark.rule("D11", "V69")
def test_acknowledgements_that_wait_for_the_disk_survive_a_move(tmp_path: Path) -> None:
    async def play(two: TwoDisks) -> None:
        partition = await two.leading(0)
        config = two.broker.replicas.log_config(T0.topic)
        partition.configured(replace(config, flush_before_ack=True), 1)
        for number in range(12):
            two.produce(b"v%d" % number)
        assert await two.ask(two.paths[1]) is NONE
        await settle()
        assert partition.directory is two.b
        assert partition.log.recovery_point == partition.high_watermark == 12
        two.produce(b"v12")
        await settle()
        assert partition.log.recovery_point == partition.high_watermark == 13

    story(tmp_path, play)


@pytest.mark.rule("D11", "V69")
@pytest.mark.parametrize("is_synced", [True, False])
def test_what_is_produced_while_the_log_is_replaced_is_written_and_synced_there(
    tmp_path: Path, is_synced: bool
) -> None:
    async def play(two: TwoDisks) -> None:
        partition = await two.leading()
        config = two.broker.replicas.log_config(T0.topic)
        partition.configured(replace(config, flush_before_ack=is_synced), 1)
        two.throttle(0)
        two.broker.replicas.moves.copied(1)
        assert await two.ask(two.paths[1]) is NONE
        two.throttle(2**63 - 1)
        two.lanes[1].eager = False
        await two.clock.advance(1_000)
        while partition.log.held is None:
            two.lanes[1].run(1)
            await settle()
        flushes = two.lanes[0].names.count("flush")
        late = two.produce(b"v12")
        synced = partition.log.flush()
        assert not late.done and not synced.done
        while two.lanes[1].waiting:
            two.lanes[1].run(1)
            await settle()
        assert late.result().base_offset == 12
        synced.result()
        assert two.lanes[0].names.count("flush") == flushes
        assert partition.directory is two.b and two.values() == values(13)
        assert partition.high_watermark == 13

    story(tmp_path, play)


@pytest.mark.rule("D11")
def test_a_full_target_lets_the_move_wait(tmp_path: Path) -> None:
    async def play(two: TwoDisks) -> None:
        partition = await two.leading()
        await two.held()
        two.files(1).room_bytes = 0
        await two.let_go()
        assert partition.directory is two.a and two.b.failure is None
        assert any("waits" in line for line in two.broker.tracer.lines)
        two.files(1).room_bytes = None
        await two.clock.advance(10_000)
        assert partition.directory is two.b and two.values() == values(12)

    story(tmp_path, play)


@pytest.mark.rule("D11")
def test_a_replica_whose_topic_is_not_known_does_not_move(tmp_path: Path) -> None:
    async def play(two: TwoDisks) -> None:
        log = await two.a.create(T0, bytes(16), LogConfig())
        two.broker.replicas.add(two.a, log, 0)
        assert await two.ask(two.paths[1]) is MISSING

    story(tmp_path, play)


def test_the_configuration_of_moves_is_kafkas() -> None:
    config = BrokerConfig.from_properties({"broker.id": "1", "metadata.store": "embedded:/x"})
    assert getattr(config, RATE) == 2**63 - 1
    assert config.num_replica_alter_log_dirs_threads == -1
