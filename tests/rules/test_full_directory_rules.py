"""Rule D14: a full disk makes its log directory read-only, and space heals it (also tests/sim)."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from tests.support.broker.directory import FakeDirectory
from tests.support.broker.fakes import (
    TOPIC_ID,
    FakeBroker,
    a_cluster,
    errors,
    settle,
)
from tests.support.broker.fakes import state as commanded
from tests.support.controller.values import (
    TP,
    answer_of,
    elect,
    epoch,
    loaded,
    one_partition,
    state,
    step,
    topic_id,
)
from tests.support.log import NOW_MS, LogHarness, append, batch_of, directory_of, values_of
from tests.support.log import TOPIC_ID as LOG_TOPIC_ID

from tidelog.broker.replicas.metrics import FULL_LOG_DIRECTORIES, USABLE_BYTES
from tidelog.controller.elections.preferred import PreferredElectionRead, RebalanceDue
from tidelog.controller.elections.relinquishing import RelinquishAsked
from tidelog.core.errors import ConnectionLost, ErrorCode, StorageError
from tidelog.core.ports import VolumeSize
from tidelog.log.config import LogConfig
from tidelog.log.directory_space import FIRST_PROBE_MS, PROBE_MS
from tidelog.log.free_space import LOOK_MS, PROBE_BYTES, FreeSpace
from tidelog.log.partition_log import PartitionLog
from tidelog.records.builder import Producer
from tidelog.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from tidelog.wire.messages.relinquish_leadership import (
    RelinquishedPartition,
    RelinquishedTopic,
    RelinquishLeadershipRequest,
    RelinquishLeadershipResponse,
)
from tidelog.wire.registry import FETCH, RELINQUISH_LEADERSHIP

MIB = 1 << 20
FULL_NUMBERS = (errno.ENOSPC, errno.EDQUOT)


# The decisions about space.


def volume(usable: int, total: int = 1_000 * MIB) -> VolumeSize:
    return VolumeSize(total, usable)


@pytest.mark.rule("D14")
def test_a_directory_turns_read_only_below_its_reserve_and_heals_at_twice_of_it() -> None:
    free = FreeSpace(10 * MIB)
    assert not free.looked(volume(10 * MIB), 0) and not free.is_full
    assert free.looked(volume(10 * MIB - 1), 5) and free.is_full
    assert not free.looked(volume(0), 6), "it was full before"
    assert not free.may_be_writable(volume(20 * MIB - 1))
    assert free.may_be_writable(volume(20 * MIB))
    assert free.healed(12) == 7 and not free.is_full


@pytest.mark.rule("D14")
def test_of_a_small_volume_only_a_twentieth_is_reserve() -> None:
    free = FreeSpace(64 * MIB)
    assert free.reserve_of(volume(0, 100 * MIB)) == 5 * MIB
    assert not free.looked(volume(5 * MIB, 100 * MIB), 0)
    assert free.looked(volume(5 * MIB - 1, 100 * MIB), 0)


@pytest.mark.rule("D14")
def test_without_a_reserve_only_a_refused_write_makes_it_read_only() -> None:
    free = FreeSpace(0)
    assert not free.is_look_due(1 << 40, 10 * LOOK_MS)
    assert not free.looked(volume(0), 0)
    assert free.refused(3) and not free.refused(4)
    assert free.full_since_ms == 3
    assert not free.may_be_writable(volume(PROBE_BYTES - 1))
    assert free.may_be_writable(volume(PROBE_BYTES))


@pytest.mark.rule("D14")
def test_looks_come_sooner_as_the_room_goes_and_with_time() -> None:
    free = FreeSpace(10 * MIB)
    free.looked(volume(110 * MIB), 0)
    assert not free.is_look_due(50 * MIB, 0)
    assert free.is_look_due(1, 0), "half of the room is written"
    free.looked(volume(20 * MIB), 0)
    assert not free.is_look_due(5 * MIB, LOOK_MS - 1)
    assert free.is_look_due(0, LOOK_MS), "others write there, too"
    free.refused(LOOK_MS)
    assert not free.is_look_due(MIB, 9 * LOOK_MS), "a full directory is probed instead"


# One directory on real files.


@pytest.fixture
def harness(tmp_path: Path) -> LogHarness:
    return LogHarness(tmp_path)


def refuse(harness: LogHarness, number: int, *calls: str) -> None:
    """Let these calls fail; no call named: those that need space."""
    names = calls or ("pwritev", "replace_file")
    harness.files.refuse = lambda call, path: number if call in names else 0


def refused(harness: LogHarness, log: PartitionLog, number: int = errno.ENOSPC) -> None:
    """A write finds no room."""
    refuse(harness, number)
    planned = log.plan_leader_append(batch_of([b"too much"]), 0, NOW_MS)
    log.submit_planned()
    assert isinstance(planned.error, StorageError) and planned.error.is_full


def events(harness: LogHarness) -> list[tuple[str, dict[str, Any]]]:
    return [each for each in harness.tracer.events if each[0].startswith("log_directory_")]


@pytest.mark.rule("D14")
@pytest.mark.parametrize("number", FULL_NUMBERS)
def test_a_full_directory_takes_no_records_and_serves_reads(
    harness: LogHarness, number: int
) -> None:
    log = harness.log()
    append(log, [b"a"])
    refused(harness, log, number)
    directory = directory_of(log)
    assert directory.space.is_full and directory.failure is None
    harness.files.refuse = lambda call, path: 0
    with pytest.raises(StorageError, match="read-only until space returns") as error:
        log.plan_leader_append(batch_of([b"b"]), 0, NOW_MS)
    assert error.value.is_full
    with pytest.raises(StorageError, match="read-only until space returns"):
        log.plan_follower_append(bytes(batch_of([b"b"])))
    assert values_of(log) == [b"a"]
    assert log.next_offset == log.log_end_offset == 1


@pytest.mark.rule("D14")
def test_a_full_directory_takes_no_new_replicas(harness: LogHarness) -> None:
    log = harness.log()
    refused(harness, log)
    harness.files.refuse = lambda call, path: 0
    other = TP._replace(partition=1)
    made = directory_of(log).create(other, LOG_TOPIC_ID, LogConfig())
    assert isinstance(made.error, StorageError) and made.error.is_full
    harness.space_returns()
    assert directory_of(log).create(other, LOG_TOPIC_ID, LogConfig()).error is None


@pytest.mark.rule("D14")
def test_probes_find_out_when_space_is_back_and_say_so(harness: LogHarness) -> None:
    log = harness.log()
    directory = directory_of(log)
    seen: list[str] = []
    directory.space.on_change = lambda: seen.append("changed")
    directory.space.on_still_full = lambda: seen.append("still full")
    refused(harness, log)
    harness.clock.advance(FIRST_PROBE_MS)
    assert seen == ["changed", "still full"], "the file system has room, a quota none"
    harness.clock.advance(10 * PROBE_MS)
    count = len(seen)
    harness.clock.advance(2 * PROBE_MS)
    assert len(seen) == count + 2 and set(seen[1:]) == {"still full"}
    assert not list(harness.path.glob("*probe*"))
    harness.files.refuse = lambda call, path: 0
    harness.clock.advance(PROBE_MS)
    assert seen[-1] == "changed" and not directory.space.is_full
    full, healed = events(harness)[-2:]
    assert full[0] == "log_directory_full" and full[1]["directory"] == directory.path
    assert healed[0] == "log_directory_writable" and healed[1]["full_ms"] > 12 * PROBE_MS
    assert healed[1]["usable_bytes"] > 0
    append(log, [b"b"])
    armed = len(harness.clock.armed)
    harness.clock.advance(10 * PROBE_MS)
    assert len(harness.clock.armed) <= armed, "no timer is left"


@pytest.mark.rule("D14")
def test_the_reserve_is_looked_at_when_records_are_written(harness: LogHarness) -> None:
    log = harness.log()
    directory = directory_of(log)
    harness.files.volume = volume(100 * MIB)
    directory.space.free.reserve_bytes = 10 * MIB
    append(log, [b"a"])
    assert not directory.space.is_full
    harness.files.volume = volume(9 * MIB)
    append(log, [b"b"])
    assert not directory.space.is_full, "there was room for more"
    harness.clock.advance(LOOK_MS)
    append(log, [b"c"])
    assert directory.space.is_full
    assert values_of(log) == [b"a", b"b", b"c"], "before any write was refused"
    harness.files.volume = volume(30 * MIB)
    harness.clock.advance(PROBE_MS)
    assert not directory.space.is_full


@pytest.mark.rule("D14", "D1")
def test_a_device_error_at_a_probe_fails_the_directory(harness: LogHarness) -> None:
    log = harness.log()
    refused(harness, log)
    refuse(harness, errno.EIO, "volume_size")
    harness.clock.advance(PROBE_MS)
    assert directory_of(log).failure is not None
    probes = harness.lane.names.count("probe space")
    harness.clock.advance(10 * PROBE_MS)
    assert harness.lane.names.count("probe space") == probes


@pytest.mark.rule("D14", "D17")
def test_a_failed_fsync_is_no_full_disk_even_with_its_errno(harness: LogHarness) -> None:
    log = harness.log()
    append(log, [b"a"])
    refuse(harness, errno.ENOSPC, "fsync")
    assert log.flush().error is not None
    assert directory_of(log).failure is not None and not directory_of(log).space.is_full


def filled(harness: LogHarness, *, producers: bool = False) -> PartitionLog:
    config = LogConfig(
        segment_bytes=1000, index_interval_bytes=150, file_delete_delay_ms=10, retention_ms=0
    )
    log = harness.log(config)
    for number in range(30):
        producer = Producer(5, 0, number) if producers else None
        append(log, [bytes([65 + number]) * 60], producer=producer)
    return log


@pytest.mark.rule("D14", "V64")
def test_retention_works_on_a_full_disk_and_its_space_heals_the_directory(
    harness: LogHarness,
) -> None:
    """Also the snapshot of the producers finds room: indexes of segments that go make it."""
    log = filled(harness, producers=True)
    log.flush().result()
    directory, first = directory_of(log), log.base_offsets[-1]
    for offset in log.snapshots:
        (harness.log_path / f"{offset:020d}.snapshot").unlink()
    log.snapshots.clear()
    refused(harness, log)
    is_dry = True

    def no_room(call: str, path: str) -> int:
        nonlocal is_dry
        if call == "unlink" and path.endswith("index"):
            is_dry = False
        return errno.ENOSPC if is_dry and call in ("pwritev", "replace_file") else 0

    harness.files.refuse = no_room
    removed = log.enforce_retention(NOW_MS * 2, first)
    assert removed.result() > 1 and log.base_offsets == [first]
    assert (harness.log_path / f"{first:020d}.snapshot").exists()
    assert directory.space.is_full
    harness.clock.advance(log.config.file_delete_delay_ms)
    assert not directory.space.is_full, "removed files make room, and are noticed at once"
    append(log, [b"x"], producer=Producer(5, 0, 30))


@pytest.mark.rule("D14")
def test_records_are_deleted_on_a_full_disk(harness: LogHarness) -> None:
    log = filled(harness)
    refused(harness, log)
    assert log.advance_log_start(log.base_offsets[1])
    assert log.enforce_retention(NOW_MS, 30).result() == 1


@pytest.mark.rule("D14")
def test_a_directory_opens_on_a_disk_without_any_room(harness: LogHarness) -> None:
    """After a crash: checkpoints, indexes and leader epochs wait for space."""
    log = filled(harness)
    end, values = log.log_end_offset, values_of(log)
    directory_of(log).write_high_watermarks({log.topic_partition: 30}).result()
    opened = harness.open(
        refuse=lambda call, path: errno.ENOSPC if call in ("pwritev", "replace_file") else 0
    )
    again = opened.logs[log.topic_partition]
    assert opened.space.is_full
    assert again.log_end_offset == end and values_of(again) == values
    assert again.recovery_point == 0, "nothing that a later start believes is on the disk"
    assert not list(harness.log_path.glob("*.tmp"))
    harness.space_returns()
    again.flush().result()
    assert again.recovery_point == end
    opened.checkpoint().result()
    third = harness.again()
    assert values_of(third) == values and third.epochs.entries() == again.epochs.entries()


@pytest.mark.rule("D14", "V38")
def test_a_high_watermark_that_cannot_be_lowered_at_a_start_is_removed(
    harness: LogHarness,
) -> None:
    """The checkpoint must not outlive the records that the crash took."""
    log = filled(harness)
    directory_of(log).write_high_watermarks({log.topic_partition: 30}).result()
    last = harness.log_path / f"{log.base_offsets[-1]:020d}.log"
    first_lost = log.base_offsets[-1]
    last.write_bytes(b"")
    opened = harness.open(
        refuse=lambda call, path: errno.ENOSPC if call in ("pwritev", "replace_file") else 0
    )
    assert opened.logs[log.topic_partition].log_end_offset == first_lost
    assert opened.high_watermarks == {log.topic_partition: first_lost}
    assert not (harness.path / "replication-offset-checkpoint").exists()


# The broker.


class Full:
    """Broker 1 of three, which leads a partition; the controller that it asks."""

    def __init__(self) -> None:
        self.broker: FakeBroker = a_cluster()[1]
        self.asked: list[tuple[RelinquishLeadershipRequest, Callable[[Any, Any], None]]] = []
        self.broker.peers.intercepted[RELINQUISH_LEADERSHIP] = lambda message, answer: (
            self.asked.append((message, answer))
        )
        self.space = self.broker.directory.space
        self.full = self.broker.replicas.upkeep.full

    async def begin(self, isr: tuple[int, ...] = (1, 2, 3), leader: int = 1) -> None:
        broker = self.broker
        broker.see(1, 2, 3, controller_id=3)
        await broker.command(commanded(leader, isr=isr, is_new=True, leader_epoch=4))
        self.full.watch(broker.directory)  # type: ignore[arg-type]  # a fake directory

    async def fill(self) -> None:
        self.space.is_full = True
        assert self.space.on_change is not None
        self.space.on_change()
        await settle()

    async def probe(self) -> None:
        assert self.space.on_still_full is not None
        self.space.on_still_full()
        await settle()


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(story)


def asks_for(leader_epoch: int) -> RelinquishLeadershipRequest:
    topic = RelinquishedTopic(TOPIC_ID, [RelinquishedPartition(0, leader_epoch, -1, True)])
    return RelinquishLeadershipRequest(1, 101, [topic])


@pytest.mark.rule("D14")
def test_a_leader_on_a_full_disk_asks_for_another_one_at_once() -> None:
    async def story() -> None:
        at = Full()
        at.broker.peers.served.append((RELINQUISH_LEADERSHIP, 0, 0))
        await at.begin()
        await at.fill()
        ((request, answer),) = at.asked
        assert request == asks_for(4)
        assert at.broker.metrics.value(FULL_LOG_DIRECTORIES, "/data") == 1
        answer(None, ConnectionLost("the controller is gone"))
        await settle()
        await at.probe()
        assert len(at.asked) == 1, "it asked a moment ago"
        await at.broker.clock.advance(5_000)
        at.space.free.volume = volume(17)
        await at.probe()
        assert len(at.asked) == 2
        assert at.broker.metrics.value(USABLE_BYTES, "/data") == 17
        at.asked[1][1](RelinquishLeadershipResponse(), None)
        await settle()
        await at.broker.command(commanded(isr=(1, 2, 3), leader_epoch=6, partition_epoch=6))
        await at.probe()
        assert [each.topics[0].partitions[0].leader_epoch for each, _ in at.asked] == [4, 4, 6]

    run(story())


@pytest.mark.rule("D14")
def test_a_leader_that_no_other_can_replace_stays_and_asks_nothing() -> None:
    async def story() -> None:
        at = Full()
        at.broker.peers.served.append((RELINQUISH_LEADERSHIP, 0, 0))
        await at.begin(isr=(1,))
        await at.fill()
        assert at.asked == [] and at.broker.partition().is_leader

    run(story())


@pytest.mark.rule("D14")
def test_a_follower_on_a_full_disk_is_reported_to_each_controller() -> None:
    async def story() -> None:
        at = Full()
        at.broker.peers.served.append((RELINQUISH_LEADERSHIP, 0, 0))
        await at.begin(leader=2)
        await at.fill()
        ((request, answer),) = at.asked
        assert request == asks_for(4)
        answer(RelinquishLeadershipResponse(), None)
        await settle()
        await at.probe()
        assert len(at.asked) == 1, "the controller knows it"
        at.broker.services.view.controller_epoch += 1
        await at.probe()
        assert [asked for asked, _ in at.asked] == [asks_for(4)] * 2

    run(story())


@pytest.mark.rule("D14")
def test_a_controller_that_does_not_know_the_request_is_not_asked() -> None:
    async def story() -> None:
        at = Full()
        await at.begin()
        await at.fill()
        assert at.asked == [] and at.broker.partition().is_leader

    run(story())


@pytest.mark.rule("D14")
def test_space_that_returned_is_reported_until_the_controller_responds() -> None:
    async def story() -> None:
        at = Full()
        at.broker.peers.served.append((RELINQUISH_LEADERSHIP, 0, 0))
        await at.begin(isr=(1,))
        await at.fill()
        at.space.is_full = False
        assert at.space.on_change is not None
        at.space.on_change()
        await settle()
        assert [request for request, _ in at.asked] == [RelinquishLeadershipRequest(1, 101)]
        refusal = RelinquishLeadershipResponse(error_code=ErrorCode.NOT_CONTROLLER)
        at.asked[0][1](refusal, None)
        await settle()
        await at.broker.clock.advance(1_000)
        at.asked[1][1](RelinquishLeadershipResponse(), None)
        await settle()
        await at.broker.clock.advance(10_000)
        assert len(at.asked) == 2
        assert not at.broker.metrics.samples(FULL_LOG_DIRECTORIES)

    run(story())


@pytest.mark.rule("D14")
def test_a_follower_on_a_full_disk_copies_nothing_and_takes_the_leaders_log_start() -> None:
    async def story() -> None:
        broker = a_cluster(2)[2]
        waiting: list[Any] = []
        broker.peers.intercepted[FETCH] = lambda message, answer: waiting.append((message, answer))
        await broker.command(commanded(1, isr=(1, 2), replicas=(1, 2), is_new=True))
        log = broker.log()
        log.fill(0, 0, 0)
        await broker.command(
            commanded(1, isr=(1, 2), replicas=(1, 2), leader_epoch=1, partition_epoch=1)
        )
        broker.directory.space.is_full = True

        def respond() -> None:
            data = PartitionData(
                partition_index=0, high_watermark=3, log_start_offset=2, records=memoryview(b"1")
            )
            topics = [FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[data])]
            waiting.pop()[1](FetchResponse(session_id=7, responses=topics), None)

        respond()  # to the first leader epoch: not looked at
        respond()
        assert log.log_end_offset == 3 and log.log_start_offset == 2
        before = len(waiting)
        await broker.clock.advance(1_900)
        assert len(waiting) == before, "each fetch brings records for which there is no room"
        broker.directory.space.is_full = False
        await broker.clock.advance(200)
        respond()
        assert log.log_end_offset == 4

    run(story())


@pytest.mark.rule("D14", "V38")
def test_a_produce_to_a_full_disk_gets_an_error_after_which_clients_look_for_a_leader() -> None:
    async def story() -> None:
        broker = a_cluster()[1]
        await broker.command(commanded(isr=(1, 2, 3), is_new=True))
        log = broker.log()

        def full(records: Any, leader_epoch: int, now_ms: int, checked: Any = None) -> Any:
            raise StorageError("/d", "write", "/d", errno.ENOSPC, 0)

        log.plan_leader_append = full  # type: ignore[method-assign]  # a full disk
        with pytest.raises(StorageError) as error:
            broker.partition().role.append(batch_of([b"a"], producer=Producer(5, 0, 0)), -1, 0)
        assert error.value.is_full
        assert len(log.producers.refused) == 1, "no batch behind it may come first"

    run(story())


@pytest.mark.rule("D14")
def test_new_replicas_go_to_the_directory_that_has_room() -> None:
    async def story() -> None:
        broker = a_cluster()[1]
        full, other = broker.directory, FakeDirectory()
        broker.replicas.log_dirs.good.append(other)  # type: ignore[arg-type]  # a fake directory
        full.space.is_full = True
        responses = [
            await broker.command(commanded(partition=number, is_new=True)) for number in range(2)
        ]
        assert [errors(response) for response in responses] == [[0], [0]]
        assert not full.logs and len(other.logs) == 2

    run(story())


# The controller.


def relinquishes(*partitions: int, broker_id: int = 1, leader_epoch: int = 5) -> RelinquishAsked:
    """Report that the disk of these partitions is full; none: there is space again."""
    topics = [
        RelinquishedTopic(topic_id("t"), [RelinquishedPartition(number, leader_epoch, -1, True)])
        for number in partitions
    ]
    return RelinquishAsked(1, RelinquishLeadershipRequest(broker_id, epoch(broker_id), topics))


@pytest.mark.rule("D14")
def test_another_member_leads_and_the_leader_on_the_full_disk_stays_in_the_isr() -> None:
    controller = loaded()
    step(controller, relinquishes(0))
    after = controller.image.states[TP]
    assert (after.leader, after.leader_epoch, after.isr) == (2, 6, (1, 2, 3))
    assert not controller.balance.is_slow(1, controller.image), "its other partitions are served"


@pytest.mark.rule("D14")
def test_leadership_does_not_move_between_full_disks_until_one_has_space() -> None:
    controller = loaded(one_partition(state((1, 2))))
    step(controller, relinquishes(0))
    step(controller, relinquishes(0, broker_id=2, leader_epoch=6))
    assert controller.image.states[TP].leader == 2
    step(controller, relinquishes())
    step(controller, relinquishes(0, broker_id=2, leader_epoch=6))
    assert controller.image.states[TP].leader == 1


@pytest.mark.rule("D14")
def test_a_full_disk_gets_no_leadership_back_automatically_before_the_second_look() -> None:
    controller = loaded()
    step(controller, relinquishes(0))
    assert controller.balance.counts_looks
    step(controller, RebalanceDue(0))
    assert controller.image.states[TP].leader == 2
    step(controller, RebalanceDue(0))
    assert controller.image.states[TP].leader == 1
    assert not controller.balance.counts_looks
    copied = controller.balance.copy()
    copied.note_unfit(1, TP, controller.image)
    assert not controller.balance.is_avoided(1, TP, controller.image)
    assert copied.is_avoided(1, TP, controller.image)


@pytest.mark.rule("D14")
def test_an_election_on_request_gives_no_leadership_to_a_full_disk() -> None:
    controller = loaded(one_partition(state(leader=2)))
    step(controller, relinquishes(0))
    assert controller.image.states[TP].leader == 2, "the broker only follows"
    _, effects = step(controller, elect(TP))
    (result,) = answer_of(effects).replica_election_results[0].partition_result
    assert result.error_code == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert "the disk of preferred replica 1 is full or slow" in result.error_message
    step(controller, PreferredElectionRead([TP]))
    assert controller.image.states[TP].leader == 2
    step(controller, relinquishes())
    step(controller, elect(TP))
    assert controller.image.states[TP].leader == 1


@pytest.mark.rule("D14")
def test_an_election_by_the_node_returns_a_leadership_once_there_is_space() -> None:
    controller = loaded(one_partition(state(leader=2)))
    step(controller, relinquishes(0))
    step(controller, relinquishes())
    step(controller, PreferredElectionRead([TP]))
    assert controller.image.states[TP].leader == 1


@pytest.mark.rule("D14")
@pytest.mark.parametrize("broker_id", [1, 9])
def test_a_report_of_an_unknown_broker_or_topic_changes_nothing(broker_id: int) -> None:
    controller = loaded()
    topics = [RelinquishedTopic(b"?" * 16, [RelinquishedPartition(0, 5, -1, True)])]
    number = epoch(broker_id)
    step(controller, RelinquishAsked(1, RelinquishLeadershipRequest(broker_id, number, topics)))
    assert controller.image.states[TP].leader == 1
    assert not controller.balance.counts_looks
