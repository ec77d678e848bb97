"""Churn of producers and group members, which come and go while the run lasts.

Their batches, joins and commits are operations like those of the clients that stay: the same
checkers judge them.
"""

from __future__ import annotations

import random
from typing import ClassVar

from tidelog.sim.seeds import stream
from tidelog.sim.workload.churning import ChurnKind, churn, churn_of_profiles
from tidelog.sim.workload.group_clients import FAMILIES, GroupPlan, SimMember
from tidelog.sim.workload.work import Workload

_MOST_GUESTS = 4


@churn
class ProducersComeAndGo(ChurnKind):
    """Producers of every style, each of which writes for a moment; all promises must hold."""

    async def act(self) -> None:
        draw = self.draw
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


class _Visits(ChurnKind):
    """Members that join a group of their own, and leave it in the end."""

    group: ClassVar[str]

    def __init__(self, work: Workload, draw: random.Random) -> None:
        super().__init__(work, draw)
        self._plan = GroupPlan(self.group, work.steady[0].topic, len(work.steady))
        self._guests: list[SimMember] = []

    def _member(self, name: str, number: int, instance_id: str | None) -> SimMember:
        """Return a member on a client of its own, as each process has; its draws have a name."""
        is_static = instance_id is not None
        return SimMember(
            self.work.client(),
            self._plan,
            self.work.cluster.groups,
            stream(self.work.seed, name, number),
            FAMILIES[0] if is_static else self.draw.choice(FAMILIES),
            instance_id=instance_id,
        )

    async def finish(self) -> None:
        for guest in self._guests:
            guest.stopping = True
        while not all(guest.is_done for guest in self._guests):
            await self.pause(20, 60)


@churn_of_profiles
class InstancesDoubled(_Visits):
    """Two processes with one group instance id: each takes the other's place, again and again."""

    group: ClassVar[str] = "twins"
    pause_ms = 200, 1_000

    async def begin(self) -> None:
        self._plan.has_static_members = True
        self._guests = [self._member("twin", number, "twin") for number in range(2)]
        for twin in self._guests:
            self.work.visit(twin)
            await self.pause(50, 1_500)

    async def act(self) -> None:
        self.succeeded(f"{self._plan.next_offset} commits begun")


@churn
class MembersComeAndGo(_Visits):
    """Members, some of them static, that join a group with a steady member, and leave again."""

    group: ClassVar[str] = "guests"
    pause_ms = 200, 1_800

    async def begin(self) -> None:
        self._plan.has_static_members = self.draw.random() < 0.5
        self.work.join(self._member("guest", 1, None))

    async def act(self) -> None:
        here = [guest for guest in self._guests if not guest.stopping]
        if len(here) < _MOST_GUESTS and self.draw.random() < 0.6:
            is_static = self._plan.has_static_members and self.draw.random() < 0.6
            number = len(self._guests) + 2
            guest = self._member("guest", number, f"guest-{number}" if is_static else None)
            self.work.visit(guest)
            self._guests.append(guest)
        elif here:
            here[0].stopping = True
            self.succeeded("a guest leaves")
