"""A member of a group whose application is busy, in virtual time: heartbeats beside its polls."""

from __future__ import annotations

from collections.abc import Coroutine, Iterator
from typing import Any

import pytest
from tests.support.sim import MS, S

from tidelog.client.admin import TopicAdmin
from tidelog.client.consuming import GroupConsumer, PartitionConsumer
from tidelog.client.coordinators import Coordinators
from tidelog.client.fetching import EARLIEST, LogReader
from tidelog.client.groups import EMPTY, GroupAdmin, GroupDescription
from tidelog.client.heartbeats import Heartbeats
from tidelog.client.membership import GroupMember, MemberOptions, Membership
from tidelog.core.types import READ_UNCOMMITTED
from tidelog.sim.broker_settings import BrokerSettings
from tidelog.sim.sim_cluster import SimCluster
from tidelog.sim.simulator import Simulator
from tidelog.sim.workload.client import ClientNode

SESSION_MS, MAX_POLL_MS, INTERVAL_MS = 1_000, 10_000, 300


class Application:
    """Polls where a test lets it; its heartbeats are a task beside."""

    def __init__(self, client: ClientNode) -> None:
        self.client = client
        coordinators = Coordinators(client.router)
        self.groups = GroupAdmin(client.router, coordinators)
        options = MemberOptions(
            "g",
            ("t",),
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=INTERVAL_MS,
            max_poll_interval_ms=MAX_POLL_MS,
        )
        reader = LogReader(client.router)
        self.member = GroupMember(client.router, coordinators, self.groups, options)
        now_ms = client.ports.clock.monotonic_ms
        self.heartbeats = Heartbeats(self.member, client.router, now_ms)
        self.consumer = GroupConsumer(
            self.member,
            self.groups,
            PartitionConsumer(reader),
            lambda wanted: reader.positions(dict.fromkeys(wanted, EARLIEST), READ_UNCOMMITTED),
            now_ms,
            self.heartbeats,
        )

    async def begin(self) -> None:
        await self.client.run(TopicAdmin(self.client.router).create("t", 2, 1, {}, None))
        while len(self.member.assignment) < 2:
            await self.poll()

    async def poll(self) -> None:
        await self.client.run(self.consumer.poll(100, 0))

    async def group(self) -> GroupDescription:
        return await self.client.run(self.groups.describe("g"))

    async def beat(self) -> None:
        while True:
            delay_ms = await self.client.run(self.heartbeats.beat())
            await self.client.tasks.sleep(delay_ms)


class Story:
    """A broker, an application, and their time."""

    def __init__(self) -> None:
        self.simulator = Simulator(11)
        properties = {
            "group.min.session.timeout.ms": "100",
            "group.initial.rebalance.delay.ms": "0",
            "offsets.topic.replication.factor": "1",
            "min.insync.replicas": "1",
        }
        self.cluster = SimCluster(self.simulator, 1, BrokerSettings(properties=properties))
        self.cluster.start()
        assert self.simulator.run_while(lambda: bool(self.cluster.health()), 60 * S)
        node = self.simulator.add_node(50, "client")
        client = ClientNode(node, self.cluster.history, self.cluster.bootstrap, 20_000)
        self.application = Application(client)
        self.do(self.application.begin())

    def begin_heartbeats(self) -> None:
        application = self.application
        application.client.tasks.spawn("heartbeats", application.beat())

    def do(self, coroutine: Coroutine[Any, Any, object]) -> None:
        """Let the application do something, and wait for its end."""
        task = self.application.client.tasks.spawn("application", coroutine)
        done = self.simulator.run_while(lambda: not task.done(), self.simulator.now_ns + 60 * S)
        assert done, (self.simulator.violations, self.application.client.failures)

    def busy(self, time_ms: int) -> None:
        """The application works, and does not poll."""
        self.simulator.run_until(self.simulator.now_ns + time_ms * MS)

    def group(self) -> GroupDescription:
        found: list[GroupDescription] = []

        async def look() -> None:
            found.append(await self.application.group())

        self.do(look())
        return found[0]

    @property
    def membership(self) -> Membership | None:
        return self.application.member.membership


@pytest.fixture
def story() -> Iterator[Story]:
    made = Story()
    yield made
    assert not made.simulator.violations
    made.simulator.close()


def test_stays_a_member_for_as_long_as_it_may_be_busy(story: Story) -> None:
    story.begin_heartbeats()
    first = story.membership
    for _ in range(3):
        story.busy(MAX_POLL_MS - SESSION_MS)
        assert [each.member_id for each in story.group().members] == [first and first.member_id]
        story.do(story.application.poll())
    assert story.membership == first


def test_leaves_when_it_is_busy_for_longer_and_comes_back_with_its_next_poll(
    story: Story,
) -> None:
    story.begin_heartbeats()
    first = story.membership
    story.busy(MAX_POLL_MS + INTERVAL_MS)
    assert story.group().state == EMPTY
    story.do(story.application.poll())
    assert story.membership is not None and story.membership != first
    assert len(story.application.member.assignment) == 2


def test_is_given_up_soon_without_heartbeats_beside_its_polls(story: Story) -> None:
    story.busy(2 * SESSION_MS)
    assert story.group().state == EMPTY
