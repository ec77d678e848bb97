"""Consumer groups: 10,000 of one member, a rebalance of 100 members, commits per second with RF 3.

The load comes from `bench.members`, in this process; what a figure says of brokers is their CPU
time, which does not depend on how quick the driver is. Times and rates do: the driver's CPU is
told beside rates. Several systems take turns, round by round.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from bench.members import Channel, Member, Repeated, coordinators, each, frame_of, rebalance
from bench.rig import MIB, cpu_seconds, pss_bytes, spread, table
from bench.systems import Running, System, started
from tidelog.runtime.blocking import BlockingClient
from tidelog.wire.messages.heartbeat import HeartbeatResponse
from tidelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)

TOPIC = "groups"
CROWD = 10_000
#: Kafka's default of `heartbeat.interval.ms`.
_HEARTBEAT_INTERVAL_S = 3.0
_HEARTBEAT, _OFFSET_COMMIT = (12, 4), (8, 8)
_TICK_S = 0.01
_REST_S = 1.0
_REBALANCED, _REBALANCES = 100, 10
_COMMITTERS, _COMMIT_S, _ALONE_S = 100, 4.0, 2.0


@dataclass
class Figures:
    """What the rounds measured of one system."""

    crowd_bytes: int = 0
    joined_s: float = 0.0
    beat_cpu_us: list[float] = field(default_factory=list)
    rebalance_ms: list[float] = field(default_factory=list)
    rebalance_cpu_ms: list[float] = field(default_factory=list)
    commits_per_s: list[float] = field(default_factory=list)
    commit_cpu_us: list[float] = field(default_factory=list)
    driver_cpu_us: list[float] = field(default_factory=list)
    alone_ms: list[float] = field(default_factory=list)


class _Scene:
    """One running system with its groups."""

    def __init__(self, running: Running) -> None:
        self.running = running
        self.figures = Figures()
        self._crowd: list[Member] = []
        self._hundred: list[Member] = []
        self._committers: list[Repeated] = []

    def cpu_s(self) -> float:
        return cpu_seconds(self.running.pids())

    async def set_up(self) -> None:
        """Make all groups."""
        with BlockingClient(self.running.bootstrap) as client:
            client.create_topic(TOPIC, _REBALANCED, 1)
            client.await_topic(TOPIC)
        self._hundred = await self._members(["hundred"] * _REBALANCED)
        await each(Member.connect, self._hundred)
        is_full = asyncio.Event()
        settling = (member.settle(_REBALANCED, is_full) for member in self._hundred)
        await asyncio.gather(*settling)
        groups = [f"committer-{number}" for number in range(_COMMITTERS)]
        for group, address in zip(groups, await self._coordinators(groups), strict=True):
            channel = await Channel.open(address)
            committer = Repeated(channel, frame_of(*_OFFSET_COMMIT, _commit(group, 1)))
            await committer.check(*_OFFSET_COMMIT, _commit_error)
            self._committers.append(committer)
        before = pss_bytes(self.running.pids())
        self._crowd = await self._members([f"crowd-{number}" for number in range(CROWD)])
        begin = time.monotonic()
        await each(_settle_alone, self._crowd)
        self.figures.joined_s = time.monotonic() - begin
        self.figures.crowd_bytes = pss_bytes(self.running.pids()) - before
        await self._disconnect_crowd()

    async def _coordinators(self, groups: Sequence[str]) -> list[str]:
        return await coordinators(self.running.bootstrap, groups)

    async def _members(self, groups: Sequence[str]) -> list[Member]:
        addresses = await self._coordinators(groups)
        return [Member(*pair, TOPIC) for pair in zip(groups, addresses, strict=True)]

    async def beat(self, counted: bool) -> None:
        """All of the crowd is connected and sends heartbeats at their interval, twice."""
        await each(Member.connect, self._crowd)
        hearts = []
        for member in self._crowd:
            assert member.channel is not None
            hearts.append(Repeated(member.channel, member.beat))
        await each(_check_heart, hearts)
        before = self.cpu_s()
        begin = time.monotonic()
        due = 0
        while due < 2 * CROWD:
            elapsed_s = time.monotonic() - begin
            upto = min(2 * CROWD, int(elapsed_s / _HEARTBEAT_INTERVAL_S * CROWD))
            for number in range(due, upto):
                hearts[number % CROWD].send()
            due = upto
            await asyncio.sleep(_TICK_S)
        await each(Repeated.drain, hearts, CROWD)
        if counted:
            self.figures.beat_cpu_us.append((self.cpu_s() - before) / (2 * CROWD) * 1e6)
        await self._disconnect_crowd()

    async def _disconnect_crowd(self) -> None:
        """Close the connections, and let the brokers come to rest."""
        for member in self._crowd:
            member.disconnect()
        await asyncio.sleep(_REST_S)

    async def rebalance(self, counted: bool) -> None:
        """The hundred rebalance, several times in a row."""
        before = self.cpu_s()
        for _ in range(_REBALANCES):
            begin = time.monotonic()
            await rebalance(self._hundred)
            if counted:
                self.figures.rebalance_ms.append((time.monotonic() - begin) * 1e3)
        if counted:
            self.figures.rebalance_cpu_ms.append((self.cpu_s() - before) / _REBALANCES * 1e3)

    async def commit(self, counted: bool) -> None:
        """All committers, each with one commit under way; then one of them alone."""
        before, driver, begin = self.cpu_s(), time.process_time(), time.monotonic()
        for committer in self._committers:
            committer.goes_on = True
            committer.send()
        sent = sum(committer.answered for committer in self._committers)
        await asyncio.sleep(_COMMIT_S)
        await each(Repeated.drain, self._committers)
        taken_s = time.monotonic() - begin
        count = sum(committer.answered for committer in self._committers) - sent
        cpu, driver = self.cpu_s() - before, time.process_time() - driver
        alone = self._committers[0]
        already = alone.answered
        begin = time.monotonic()
        alone.goes_on = True
        alone.send()
        await asyncio.sleep(_ALONE_S)
        await alone.drain()
        alone_ms = (time.monotonic() - begin) / (alone.answered - already) * 1e3
        if counted:
            self.figures.commits_per_s.append(count / taken_s)
            self.figures.commit_cpu_us.append(cpu / count * 1e6)
            self.figures.driver_cpu_us.append(driver / count * 1e6)
            self.figures.alone_ms.append(alone_ms)


async def _settle_alone(member: Member) -> None:
    await member.connect()
    await member.settle(1, asyncio.Event())


async def _check_heart(heart: Repeated) -> None:
    await heart.check(*_HEARTBEAT, _heartbeat_error)


def _heartbeat_error(answer: HeartbeatResponse) -> int:
    return answer.error_code


def _commit(group: str, partitions: int) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group,
        topics=[
            OffsetCommitRequestTopic(
                TOPIC,
                [
                    OffsetCommitRequestPartition(number, 1000, -1, "")
                    for number in range(partitions)
                ],
            )
        ],
    )


def _commit_error(answer: OffsetCommitResponse) -> int:
    return max(each.error_code for topic in answer.topics for each in topic.partitions)


async def _measure(running: Sequence[Running], rounds: int, warm_up_rounds: int) -> list[Figures]:
    scenes = [_Scene(one) for one in running]
    for scene in scenes:
        await scene.set_up()
    for number in range(rounds + warm_up_rounds):
        counted = number >= warm_up_rounds
        for scene in scenes:
            await scene.beat(counted)
        for scene in scenes:
            await scene.rebalance(counted)
        for scene in scenes:
            await scene.commit(counted)
    return [scene.figures for scene in scenes]


def run(systems: Sequence[System], rounds: int) -> list[str]:
    """The table of groups: a column per system."""
    warm_up_rounds = max(system.warm_up_rounds for system in systems)
    # A rebalance begins at once, and waits for nobody who is not there.
    with started(systems, group_initial_rebalance_delay_ms="0") as running:
        measured = asyncio.run(_measure(running, rounds, warm_up_rounds))
    rows = [
        (
            f"{CROWD:,} groups of one member, each with its connection: memory, MiB",
            *(f"{one.crowd_bytes / MIB:.0f}" for one in measured),
        ),
        (
            f"the same joining, {CROWD:,} at once, once and not warm, s",
            *(f"{one.joined_s:.1f}" for one in measured),
        ),
        (
            f"{CROWD:,} heartbeats every {_HEARTBEAT_INTERVAL_S:.0f} s: brokers' CPU µs each",
            *(spread(one.beat_cpu_us) for one in measured),
        ),
        (
            f"rebalance of {_REBALANCED} members, ms",
            *(spread(one.rebalance_ms, 1) for one in measured),
        ),
        ("brokers' CPU ms of it", *(spread(one.rebalance_cpu_ms, 1) for one in measured)),
        (
            f"commits per second, RF 3, {_COMMITTERS} groups at once",
            *(spread(one.commits_per_s) for one in measured),
        ),
        ("brokers' CPU µs per commit", *(spread(one.commit_cpu_us) for one in measured)),
        ("driver's CPU µs per commit", *(spread(one.driver_cpu_us) for one in measured)),
        ("a commit alone, RF 3, ms", *(spread(one.alone_ms, 2) for one in measured)),
    ]
    title = f"Consumer groups, three brokers ({rounds} rounds, {warm_up_rounds} before to warm up)"
    return [table(title, rows, ("", *(system.name for system in systems)))]
