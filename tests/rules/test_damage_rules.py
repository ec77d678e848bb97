"""Rule V68: damaged batches are never served; a leader with others in sync leaves and refetches."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.support.broker.fakes import CONNECTION, a_cluster, settle
from tests.support.broker.fakes import state as commanded
from tests.support.log import (
    TOPIC_ID,
    TP,
    FakeClock,
    StepLane,
    append,
    directory_of,
    drive,
    open_directory,
)
from tests.support.ports import FakeTracer

from tidelog.broker.apis import fetch
from tidelog.broker.server.requests import Pending, Request
from tidelog.core.completion import Completion
from tidelog.core.errors import ErrorCode, KafkaError, StorageError
from tidelog.core.types import CleanEpochs
from tidelog.log.config import LogConfig
from tidelog.log.partition_log import PartitionLog
from tidelog.log.recovery_walk import DamagedLog
from tidelog.records.builder import Producer
from tidelog.runtime.files import OsFiles
from tidelog.sim.disk import Loss
from tidelog.sim.loop import NS_PER_S
from tidelog.sim.observed.replica_logs import LogKey
from tidelog.sim.run import SeedRun
from tidelog.sim.simulator import CollectorPaused
from tidelog.wire.codec import RequestHeader
from tidelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from tidelog.wire.registry import FETCH

SMALL = LogConfig(segment_bytes=1000, index_interval_bytes=150)


@pytest.mark.rule("V68")
@pytest.mark.parametrize("at", [6, 7, 10, 16, 18, 25, 45, 61, 90])
def test_a_batch_with_a_flipped_bit_is_not_served(tmp_path: Path, at: int) -> None:
    """Whichever bit it is, also of the base offset, which no checksum covers."""
    lane = StepLane(str(tmp_path), OsFiles())
    log = (
        open_directory(lane, SMALL, FakeClock(), FakeTracer()).create(TP, TOPIC_ID, SMALL).result()
    )
    for number in range(40):
        append(log, [bytes([40 + number]) * 40])
    directory_of(log).flush_due(1 << 60).result()
    drive(directory_of(log).close(CleanEpochs(1)))
    second, third = log.segments[1:3]
    path = Path(second.file.path)
    data = bytearray(path.read_bytes())
    data[at + len(data) // (third.base_offset - second.base_offset)] ^= 4
    path.write_bytes(data)
    events = FakeTracer()
    lane = StepLane(str(tmp_path), OsFiles())
    log = open_directory(lane, SMALL, FakeClock(), events).logs[TP]
    for offset in range(second.base_offset + 1, second.base_offset - 1, -1):
        done = log.read(offset, 1 << 20, 40, min_one_batch=True)
        lane.run()
        with pytest.raises(KafkaError) as caught:
            done.result()
        assert caught.value.code == ErrorCode.CORRUPT_MESSAGE
    assert events.named("log_corrupt")
    assert log.read(third.base_offset, 200, 40, min_one_batch=True).result().data


@pytest.mark.rule("V68")
def test_the_sequences_of_producers_are_not_taken_from_damaged_batches(tmp_path: Path) -> None:
    """A start after a crash reads them from the log, which no reader would notice later."""

    def opened() -> PartitionLog:
        lane = StepLane(str(tmp_path), OsFiles())
        directory = open_directory(lane, LogConfig(), FakeClock(), FakeTracer())
        found = directory.logs.get(TP)
        return found or directory.create(TP, TOPIC_ID, LogConfig()).result()

    log = opened()
    for number in range(3):
        append(log, [b"x"], producer=Producer(5, 0, number))
    log.flush().result()
    directory_of(log).checkpoint().result()
    path = Path(log.segments[0].file.path)
    whole = path.read_bytes()
    producer_id_at = whole.rindex((5).to_bytes(8, "big") + bytes(2)) + 7
    path.write_bytes(whole[:producer_id_at] + b"\x04" + whole[producer_id_at + 1 :])
    with pytest.raises(DamagedLog):
        opened()
    path.write_bytes(whole)
    assert list(opened().producers.entries()) == [5]


@pytest.mark.rule("V68")
def test_a_broker_that_must_end_truncates_before_the_damage_at_its_next_start(
    tmp_path: Path,
) -> None:
    """Where the controller cannot replace it: no checkpoint says then that this was flushed."""
    lane = StepLane(str(tmp_path), OsFiles())
    directory = open_directory(lane, SMALL, FakeClock(), FakeTracer())
    log = directory.create(TP, TOPIC_ID, SMALL).result()
    for number in range(40):
        append(log, [bytes([40 + number]) * 40])
    log.flush().result()
    directory_of(log).checkpoint().result()
    segment = log.segments[2]
    path = Path(segment.file.path)
    data = bytearray(path.read_bytes())
    data[-5] ^= 4
    path.write_bytes(data)
    ended: list[StorageError] = []
    directory_of(log).on_failure = ended.append
    damaged = log.segments[3].base_offset - 1
    directory_of(log).begin_again_at(TP, damaged, "the CRC is wrong")
    assert f"at the next start the log is truncated at offset {damaged}" in str(ended[0])
    lane = StepLane(str(tmp_path), OsFiles())
    assert open_directory(lane, SMALL, FakeClock(), FakeTracer()).logs[TP].log_end_offset == damaged


# Readers


def corrupt_read(*_: Any, **__: Any) -> Completion[Any]:
    """A read that finds damage."""
    return Completion.failed(KafkaError(ErrorCode.CORRUPT_MESSAGE, "the CRC is not 0x1"))


@pytest.mark.rule("V68")
@pytest.mark.parametrize("replica_id", [-1, 2], ids=["a consumer", "a follower"])
def test_a_reader_of_a_damaged_batch_gets_an_error_and_no_bytes(replica_id: int) -> None:
    async def story() -> None:
        broker = a_cluster()[1]
        broker.see(1, 2, 3)
        await broker.command(commanded(isr=(1, 2, 3), is_new=True, leader_epoch=4))
        broker.produce(2)
        core = broker.partition().leadership
        assert core is not None
        core.high_watermark = 2
        broker.log().read = corrupt_read  # type: ignore[method-assign]  # a damaged file
        request = FetchRequest(
            replica_id=replica_id, session_epoch=-1, max_wait_ms=0, min_bytes=1, max_bytes=100,
            topics=[FetchTopic("t", b"T" * 16, [FetchPartition(partition_max_bytes=100)])],
        )  # fmt: skip
        answers: list[FetchResponse] = []
        answer = fetch.handle(
            broker,  # type: ignore[arg-type]  # a fake broker
            Request(RequestHeader(FETCH, 13, 0, "c"), request, CONNECTION, broker.clock.now_ms),
        )
        if isinstance(answer, Pending):
            answer.deliver_to(answers.append)
            await settle()
        else:
            answers.append(answer)
        (data,) = answers[0].responses[0].partitions
        assert data.error_code == ErrorCode.CORRUPT_MESSAGE and not data.records

    asyncio.run(story())


# In the simulator: the whole of it


@pytest.mark.rule("V68")
def test_a_leader_that_reads_damage_leaves_the_isr_and_refetches_while_it_runs() -> None:
    """A bit flips under a leader; a follower with a new disk asks for that batch. Another member
    leads, the former leader truncates and refetches, and everybody has everything in the end."""
    with CollectorPaused():
        run = SeedRun(0, "damaged_disks")
        cluster, world = run.cluster, run.simulator
        told: list[str] = []
        world.trace.listener = told.append
        flipped: list[int] = []

        def damage() -> None:
            steady = next(t for t in cluster.published.topics.values() if t.name == "steady")
            state = cluster.published.partitions[LogKey(steady.topic_id, 0)]
            leader, follower = cluster.brokers[state.leader], cluster.brokers[state.isr[-1]]
            assert leader is not follower and len(state.isr) == 3
            leader.logs.disks[0].flip(f"/data/steady-0/{0:020d}.log", 80, 8)
            flipped.append(leader.node_id)
            assert follower.crash(Loss.ALL_UNSYNCED, "its disk is replaced")
            follower.logs.disks[0].replace()

        def begin() -> None:
            world.scheduler.after(4 * NS_PER_S, None, damage)

        run.faults.begin = begin  # type: ignore[method-assign]  # replaced by the test
        cluster.budget.is_kept = False
        result = run.run()
    assert result.violation == ""
    (leader_id,) = flipped
    assert not [line for line in told if " halt " in line], "no broker ends"
    assert result.marks["damage_read"] >= 1
    assert result.marks["damage_reported"] >= 1
    assert result.marks["damage_truncated"] >= 1
    truncated = [line for line in told if "truncating steady-0" in line and "to refetch" in line]
    assert truncated and all(line.split()[1] == str(leader_id) for line in truncated)
    (found,) = [line for line in told if " log_corrupt " in line]
    times_ns = [int(line.split()[0]) for line in (found, truncated[0])]
    assert times_ns[1] - times_ns[0] < NS_PER_S // 10, "at once, not at the next look"
    assert not world.is_damaged(leader_id)
    assert cluster.damage.found_count >= 1 and cluster.damage.unrepaired() == ""
