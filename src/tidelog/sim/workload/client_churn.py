"""Churn of producers and group members, which come and go while the run lasts.

Their batches, joins and commits are operations like those of the clients that stay: the same
checkers judge them.
"""

from __future__ import annotations

import random
from typing import ClassVar

from tidelog.sim.seeds import stream
from tidelog.sim.workload.churning import ChurnKind, Work, churn
from tidelog.sim.workload.group_clients import FAMILIES, GroupMember, GroupPlan

_MOST_GUESTS = 4


@churn
class ProducersComeAndGo(ChurnKind):
    """Producers of every style, each of which writes for a moment; all promises must hold."""

    name: ClassVar[str] = "producers_come_and_go"

    async def run(self) -> None:
        draw = self.draw
        while not self.stopping:
            acks, idempotent = draw.choice(((-1, True), (-1, True), (-1, False), (1, False)))
            producer = self.work.produce(
                self.client, draw.choice(self.work.steady), acks=acks, idempotent=idempotent
            )
            await self.pause(50, 1_500)
            producer.stopping = True
            while not producer.is_done:
                await self.pause(20, 60)
            self.succeeded(f"acks {acks} idempotent {idempotent}")
            await self.pause(0, 300)
        self.is_done = True


@churn
class InstancesDoubled(ChurnKind):
    """Two processes with one group instance id: each takes the other's place, again and again."""

    name: ClassVar[str] = "instances_doubled"
    is_drawn: ClassVar[bool] = False

    async def run(self) -> None:
        work = self.work
        plan = GroupPlan("twins", work.steady[0].topic, len(work.steady))
        plan.has_static_members = True
        twins = [
            GroupMember(
                work.client(),
                plan,
                work.cluster.groups,
                stream(work.seed, "twin", number),
                FAMILIES[0],
                instance_id="twin",
            )
            for number in range(2)
        ]
        for twin in twins:
            work.join(twin, stays=False)
            await self.pause(50, 1_500)
        while not self.stopping:
            await self.pause(200, 1_000)
            self.succeeded(f"{plan.next_offset} commits begun")
        for twin in twins:
            twin.stopping = True
        while not all(twin.is_done for twin in twins):
            await self.pause(20, 60)
        self.is_done = True


@churn
class MembersComeAndGo(ChurnKind):
    """Members, some of them static, that join a group with a steady member, and leave again."""

    name: ClassVar[str] = "members_come_and_go"

    def __init__(self, work: Work, draw: random.Random) -> None:
        super().__init__(work, draw)
        self._joined = 0

    def _join(self, plan: GroupPlan, *, is_static: bool, stays: bool) -> GroupMember:
        """Add a member, on a client of its own as each process has."""
        self._joined += 1
        member = GroupMember(
            self.work.client(),
            plan,
            self.work.cluster.groups,
            stream(self.work.seed, "guest", self._joined),
            FAMILIES[0] if is_static else self.draw.choice(FAMILIES),
            instance_id=f"guest-{self._joined}" if is_static else None,
        )
        self.work.join(member, stays=stays)
        return member

    async def run(self) -> None:
        draw, steady = self.draw, self.work.steady
        plan = GroupPlan("guests", steady[0].topic, len(steady))
        plan.has_static_members = draw.random() < 0.5
        self._join(plan, is_static=False, stays=True)
        guests: list[GroupMember] = []
        while not self.stopping:
            await self.pause(200, 1_800)
            here = [guest for guest in guests if not guest.stopping]
            if len(here) < _MOST_GUESTS and draw.random() < 0.6:
                is_static = plan.has_static_members and draw.random() < 0.6
                guests.append(self._join(plan, is_static=is_static, stays=False))
            elif here:
                here[0].stopping = True
                self.succeeded("a guest leaves")
        for guest in guests:
            guest.stopping = True
        while not all(guest.is_done for guest in guests):
            await self.pause(20, 60)
        self.is_done = True
