"""Requests for preferred leader elections (ElectLeaders) and for descriptions of replicas.

If a response says that a partition's preferred leader was elected, this broker must have led at
some time since the request. The leader at the end of the run is not checked, because automatic
leader balance may change it.

Operators ask why replicas are out of the ISR, and why partitions have no leader. Leader, ISR and
eligible replicas in a response must be those of the published state with the response's partition
epoch. A description must state a cause for every replica outside the ISR, and none for a member of
the ISR. If the partition has no leader, the description must list all members, otherwise none. A
response must not name a broker's death as the cause if the broker was registered all the time.
"""

from __future__ import annotations

import random

from tidelog.client.replica_requests import PartitionReplicas, ReplicaAdmin
from tidelog.client.upkeep import ElectionType, PartitionAdmin
from tidelog.core.errors import ErrorCode
from tidelog.core.shrink_causes import ShrinkCause
from tidelog.core.types import NO_LEADER, TopicPartition
from tidelog.sim.observed.published_state import PublishedPartition
from tidelog.sim.observed.replica_logs import LogKey
from tidelog.sim.workload.churning import ChurnKind, churn, churn_of_profiles
from tidelog.sim.workload.work import Workload

#: Causes of removals from the ISR that are true only if the broker's registration has ended.
_ENDED = (ShrinkCause.SESSION, ShrinkCause.BOUNCE)


@churn
class LeadersElected(ChurnKind):
    """Requests to elect preferred leaders; an election that a response reports must have
    happened.
    """

    pause_ms = 50, 1_200

    def __init__(self, work: Workload, draw: random.Random) -> None:
        super().__init__(work, draw)
        self._partitions = PartitionAdmin(self.client.router)
        #: By (partition, broker), the virtual time in ns at which published state last had the
        #: broker as leader.
        self._led_ns: dict[tuple[LogKey, int], int] = {}
        work.cluster.published.on_state.append(self._follow)

    def _follow(self, before: PublishedPartition | None, now: PublishedPartition) -> None:
        now_ns = self.work.cluster.simulator.now_ns
        self._led_ns[(now.key, now.leader)] = now_ns
        if before is not None:
            self._led_ns[(now.key, before.leader)] = now_ns

    async def act(self) -> None:
        asked = list(self.work.steady) if self.draw.random() < 0.5 else None
        begin_ns = self.client.now_ns
        with self.tried("election"):
            results = await self.client.run(
                self._partitions.elect_leaders(ElectionType.PREFERRED, asked)
            )
            self.succeeded(f"{len(results)} elections")
            for partition, result in results.items():
                if result.error is ErrorCode.NONE:
                    self._check(partition, begin_ns)

    def _check(self, partition: TopicPartition, begin_ns: int) -> None:
        """Check that the preferred replica led at some time since the request."""
        published = self.work.cluster.published
        topic = published.topics.get(partition.topic)
        if topic is None or topic.created_ns >= begin_ns:
            return  # the topic was recreated since: the response may be about either
        if topic.assigned_ns.get(partition.partition, -1) >= begin_ns:
            return  # a reassignment has changed the preferred replica since the request
        key = published.key(topic.topic_id, partition.partition)
        preferred = topic.assignment[partition.partition][0]
        state = published.partitions[key]
        if state.leader != preferred and self._led_ns.get((key, preferred), -1) < begin_ns:
            self.client.history.anomaly(
                f"the preferred leader {preferred} of {partition} was reported as elected;"
                f" {state.leader} leads, and the preferred one has not since the request"
            )


@churn_of_profiles
class ReplicasDescribed(ChurnKind):
    """Descriptions of replicas by any broker (DescribeReplicas, DescribeTopicPartitions)."""

    pause_ms = 5, 120

    def __init__(self, work: Workload, draw: random.Random) -> None:
        super().__init__(work, draw)
        self._replicas = ReplicaAdmin(self.client.router)
        #: Published states by partition and partition epoch.
        self._states: dict[tuple[LogKey, int], PublishedPartition] = {}
        #: Number of registrations of each broker.
        self._registrations: dict[int, int] = {}
        published = work.cluster.published
        for state in published.partitions.values():
            self._published(None, state)
        self._registrations = dict.fromkeys(published.brokers, 1)
        published.on_state.append(self._published)
        published.on_broker.append(self._registered)

    def _published(self, before: PublishedPartition | None, state: PublishedPartition) -> None:
        self._states[state.key, state.partition_epoch] = state

    def _registered(self, broker_id: int, broker_epoch: int) -> None:
        self._registrations[broker_id] = self._registrations.get(broker_id, 0) + 1

    async def act(self) -> None:
        partition = self.draw.choice(self.work.steady)
        registered = sorted(self.work.cluster.published.brokers)
        if not registered:
            return
        broker_id = self.draw.choice(registered)
        with self.tried(f"describing {partition} by {broker_id}"):
            described = await self.client.run(self._replicas.describe(broker_id, [partition]))
            eligible = await self.client.run(self._replicas.eligibility([partition.topic]))
            for found in described.values():
                self._check(found)
            for tp, one in eligible.items():
                if one.wait is not None and not one.wait.members:
                    self._violate(f"{tp} waits without members")
            found_out = [
                f"epoch {found.partition_epoch}, out {_out(found)}" for found in described.values()
            ]
            self.succeeded(f"{partition} by {broker_id}: {'; '.join(found_out)}")

    def _violate(self, text: str) -> None:
        self.work.cluster.simulator.violate(text)

    def _check(self, found: PartitionReplicas) -> None:
        key = self.key(found.tp)
        state = self._states.get((key, found.partition_epoch))
        name = f"{found.tp} in partition epoch {found.partition_epoch}"
        if state is None:
            self._violate(f"{name} is described, and was never published")
            return
        isr = tuple(replica.broker for replica in found.replicas if replica.in_isr)
        said = (found.leader, found.leader_epoch, sorted(isr), sorted(found.eligible))
        was = (state.leader, state.leader_epoch, sorted(state.isr), sorted(state.elr))
        if said != was:
            self._violate(f"{name} is described as {said}, published was {was}")
        if (found.wait is None) != (found.leader != NO_LEADER):
            self._violate(f"{name} has leader {found.leader} and waits for {found.wait}")
        if found.wait is not None:
            members = sorted(member for member, _ in found.wait.members)
            if members != sorted(state.members):
                self._violate(f"{name} waits for {members}, members are {state.members}")
        for replica in found.replicas:
            if (replica.cause is None) != replica.in_isr:
                self._violate(f"{name}: replica {replica.broker} has cause {replica.cause}")
            if replica.cause in _ENDED and self._never_ended(replica.broker):
                self._violate(
                    f"{name}: broker {replica.broker} was registered all the time, and its"
                    f" cause is {replica.cause}"
                )
            if replica.lag_records is not None and found.log_end_offset is not None:
                assert replica.log_end_offset is not None
                if replica.log_end_offset + replica.lag_records != found.log_end_offset:
                    self._violate(f"{name}: the lag of replica {replica.broker} is wrong")
        committed = len(self.work.cluster.replication.truth(key).committed)
        if found.high_watermark is not None and found.high_watermark > committed:
            self._violate(f"{name}: high watermark {found.high_watermark} above {committed}")

    def _never_ended(self, broker_id: int) -> bool:
        is_registered = broker_id in self.work.cluster.published.brokers
        return is_registered and self._registrations.get(broker_id, 0) < 2


def _out(found: PartitionReplicas) -> dict[int, str]:
    """Return, by replica outside the ISR, the cause in the response."""
    causes = ((replica.broker, replica.cause) for replica in found.replicas)
    return {broker_id: cause.word for broker_id, cause in causes if cause is not None}
