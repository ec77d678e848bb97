"""How long groups wait for their new coordinator: it loads 1,000,000 committed offsets first.

One partition of `__consumer_offsets` holds them all. It moves from broker to broker as in a rolling
restart: its leader is told to stop, and a broker that has run for long takes over; then that one is
back, and takes the partition again by a preferred-leader election. Polls tell from outside when
offsets are answered, and how long the loading broker let them wait.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from bench.members import NOT_YET, Channel, coordinators, each, frame_of
from bench.rig import MIB, cpu_seconds, pss_bytes, spread, table
from bench.systems import Running, System, started
from tidelog.client.upkeep import ElectionType
from tidelog.core.errors import ErrorCode
from tidelog.core.names import CONSUMER_OFFSETS
from tidelog.core.types import TopicPartition
from tidelog.runtime.blocking import BlockingClient
from tidelog.wire.codec import decode_response
from tidelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tidelog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic

TOPIC = "offsets"
GROUPS, PARTITIONS = 10_000, 100
_OFFSET_COMMIT, _OFFSET_FETCH = (8, 8), (9, 7)
_AT_ONCE = 20
_POLL_S = 0.005
_PATIENCE_S = 300.0
_PARTITION = TopicPartition(CONSUMER_OFFSETS, 0)


@dataclass
class Figures:
    """What the rounds measured of one system."""

    filled_s: float = 0.0
    fill_cpu_us: float = 0.0
    leader_bytes: int = 0
    handed_over_s: list[float] = field(default_factory=list)
    taken_back_s: list[float] = field(default_factory=list)
    longest_wait_ms: list[float] = field(default_factory=list)


class _Scene:
    """One running system."""

    def __init__(self, running: Running) -> None:
        self.running = running
        self.figures = Figures()

    async def set_up(self) -> None:
        """Commit all offsets, 100 a request."""
        running = self.running
        with BlockingClient(running.bootstrap) as client:
            client.create_topic(TOPIC, PARTITIONS, 3)
            client.await_topic(TOPIC, 3)
        groups = [f"group-{number}" for number in range(GROUPS)]
        [address] = set(await coordinators(running.bootstrap, groups))
        channel = await Channel.open(address)

        async def commit(group: str) -> None:
            while True:
                answer = await channel.ask(*_OFFSET_COMMIT, _commit(group))
                errors = {each.error_code for topic in answer.topics for each in topic.partitions}
                if errors == {ErrorCode.NONE}:
                    return
                if not errors <= set(NOT_YET):
                    raise SystemExit(f"bench: OffsetCommit of {group} answered {errors}")
                await asyncio.sleep(_POLL_S)

        begin, before = time.monotonic(), cpu_seconds(running.pids())
        await each(commit, groups, _AT_ONCE)
        self.figures.filled_s = time.monotonic() - begin
        cpu_s = cpu_seconds(running.pids()) - before
        self.figures.fill_cpu_us = cpu_s / (GROUPS * PARTITIONS) * 1e6
        channel.close()

    async def move(self, counted: bool) -> None:
        """The leader stops and comes back."""
        running = self.running
        with BlockingClient(running.bootstrap) as client:
            found = client.metadata([CONSUMER_OFFSETS]).topics[CONSUMER_OFFSETS].partitions[0]
        leader = found.leader
        assert leader == found.replicas[0], "the preferred replica leads before each round"
        others = [number for number in found.replicas if number != leader]
        begin = time.monotonic()
        running.stop(leader)
        waits = [self._served_by(number, begin) for number in others]
        done, rest = await asyncio.wait(
            map(asyncio.ensure_future, waits), return_when=asyncio.FIRST_COMPLETED
        )
        for task in rest:
            task.cancel()
        handed_over_s, wait_ms = await next(iter(done))
        running.start(leader)
        with BlockingClient(running.bootstrap) as client:
            client.await_topic(CONSUMER_OFFSETS, 3)
            begin = time.monotonic()
            served = asyncio.ensure_future(self._served_by(leader, begin))
            await asyncio.to_thread(client.elect_leaders, ElectionType.PREFERRED, [_PARTITION])
        taken_back_s, other_wait_ms = await served
        if counted:
            self.figures.handed_over_s.append(handed_over_s)
            self.figures.taken_back_s.append(taken_back_s)
            self.figures.longest_wait_ms.append(max(wait_ms, other_wait_ms))
            self.figures.leader_bytes = pss_bytes(running.pids())

    async def _served_by(self, broker_id: int, begin: float) -> tuple[float, float]:
        """Seconds until a broker answers the last offset; the longest wait for an answer, ms."""
        channel = await Channel.open(self.running.address(broker_id))
        request = OffsetFetchRequest(
            f"group-{GROUPS - 1}", [OffsetFetchRequestTopic(TOPIC, [PARTITIONS - 1])]
        )
        frame = frame_of(*_OFFSET_FETCH, request)
        longest_s = 0.0
        while time.monotonic() - begin < _PATIENCE_S:
            sent = time.monotonic()
            answer = decode_response(*_OFFSET_FETCH, memoryview(await channel.answer(frame)))[1]
            now = time.monotonic()
            longest_s = max(longest_s, now - sent)
            if answer.error_code == ErrorCode.NONE:
                committed = answer.topics[0].partitions[0].committed_offset
                if committed != _offset(PARTITIONS - 1):
                    raise SystemExit(f"bench: offset {committed} came back, another was committed")
                channel.close()
                return now - begin, longest_s * 1e3
            if answer.error_code not in NOT_YET:
                raise SystemExit(f"bench: OffsetFetch: {ErrorCode(answer.error_code).name}")
            await asyncio.sleep(_POLL_S)
        raise SystemExit(f"bench: broker {broker_id} serves no offsets after {_PATIENCE_S:.0f} s")


def _offset(partition: int) -> int:
    return 1_000_000 + partition


def _commit(group: str) -> OffsetCommitRequest:
    partitions = [
        OffsetCommitRequestPartition(number, _offset(number), -1, "")
        for number in range(PARTITIONS)
    ]
    return OffsetCommitRequest(group, topics=[OffsetCommitRequestTopic(TOPIC, partitions)])


async def _measure(running: Sequence[Running], rounds: int, warm_up_rounds: int) -> list[Figures]:
    scenes = [_Scene(one) for one in running]
    for scene in scenes:
        await scene.set_up()
    for number in range(rounds + warm_up_rounds):
        for scene in scenes:
            await scene.move(counted=number >= warm_up_rounds)
    return [scene.figures for scene in scenes]


def run(systems: Sequence[System], rounds: int) -> list[str]:
    """The table of loading: a column per system."""
    with started(systems, offsets_topic_num_partitions="1") as running:
        measured = asyncio.run(_measure(running, rounds, 1))
    count = GROUPS * PARTITIONS
    rows = [
        (
            f"{count:,} offsets committed, {PARTITIONS} a request, RF 3, once: per second",
            *(f"{count / one.filled_s:,.0f}" for one in measured),
        ),
        ("brokers' CPU µs per offset", *(f"{one.fill_cpu_us:.1f}" for one in measured)),
        (
            "SIGTERM to the leader, until a running broker serves them, s",
            *(spread(one.handed_over_s, 2) for one in measured),
        ),
        (
            "preferred-leader election, until the restarted broker serves them, s",
            *(spread(one.taken_back_s, 2) for one in measured),
        ),
        (
            "longest wait for an answer meanwhile, ms",
            *(spread(one.longest_wait_ms) for one in measured),
        ),
        (
            "sum of PSS of the three brokers afterwards, MiB",
            *(f"{one.leader_bytes / MIB:,.0f}" for one in measured),
        ),
    ]
    title = (
        f"A coordinator loads {count:,} offsets of {GROUPS:,} groups ({rounds} rounds after one)"
    )
    return [table(title, rows, ("", *(system.name for system in systems)))]
