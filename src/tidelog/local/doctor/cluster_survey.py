"""The survey of a running cluster: the doctor's facts, read by requests that change nothing.

The survey first asks each broker for its versions, within a short time. A broker that does not
respond gets no further request, so it delays the survey only once. If a responding broker does not
serve an API (Kafka's brokers lack the APIs that only tidelog has), the survey notes a sentence and
raises no error. If moves are under way, or groups have lag, the survey reads both a second time
after some seconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import ParamSpec, TypeVar

import tidelog
from tidelog.client.cluster import BrokerNode, ClusterMetadata
from tidelog.client.configs import BROKER, TOPIC, ConfigResource
from tidelog.client.groups import FetchedOffset, GroupListing
from tidelog.client.move_progress import MoveProgress, ProgressMeter
from tidelog.client.replica_requests import PartitionReplicas
from tidelog.client.routing import expect
from tidelog.client.steps import Call, Operation
from tidelog.client.versions import api_versions_request
from tidelog.core.dataclass import dataclass
from tidelog.core.errors import ErrorCode, KafkaError, TidelogError
from tidelog.core.types import TopicPartition
from tidelog.core.wording import brokers_text
from tidelog.local.doctor.cluster_facts import BrokerFacts, ClusterFacts, GroupFacts
from tidelog.local.status import describe_partitions
from tidelog.runtime.blocking import BlockingClient
from tidelog.wire.messages.api_versions import ApiVersionsResponse
from tidelog.wire.registry import API_VERSIONS, DESCRIBE_METRICS, DESCRIBE_REPLICAS

T = TypeVar("T")
P = ParamSpec("P")

#: Time in ms for a broker's first response, and then for each further response.
_ANSWER_MS = 3_000
#: Maximum number of topics in one request for configurations.
_TOPICS = 1_000
#: Maximum number of groups that the survey examines.
_GROUPS = 500
_OVERDUE = "tidelog_controller_commands_overdue"
_LEVEL = "inter.broker.protocol.version"
_MINIMUM = "min.insync.replicas"


def survey(bootstrap: str, timeout_s: float, watch_s: float) -> ClusterFacts:
    """Return the facts about the cluster at these addresses.

    If reassignments are under way, or groups have lag or rebalance, the survey reads them again
    after `watch_s`; with 0 there is no second reading. Raises ConnectionLost, RequestTimeout or
    ProtocolError if no broker responds within `timeout_s`.
    """
    timeout_ms = int(timeout_s * 1000)
    with BlockingClient(bootstrap, "tidelog-doctor", timeout_ms) as client:
        metadata = client.metadata()
        client.timeout_ms = min(timeout_ms, _ANSWER_MS)
        return _Survey(client, bootstrap, metadata).run(watch_s)


@dataclass(slots=True)
class _Survey:
    """The facts about a cluster that were read so far, and sentences about facts that could not be
    read.
    """

    client: BlockingClient
    bootstrap: str
    metadata: ClusterMetadata
    unexamined: list[str] = field(default_factory=list)
    brokers: dict[int, BrokerFacts] = field(default_factory=dict)

    def run(self, watch_s: float) -> ClusterFacts:
        for node in self.metadata.brokers.values():
            self.brokers[node.broker_id] = self._broker(node)
        self._add_levels()
        self._add_clocks()
        self._add_overdue()
        facts = ClusterFacts(
            self.bootstrap,
            self.metadata,
            minimums=self._minimums(),
            described=self._described(),
            moves=self._read("reassignments", self.client.reassignments),
        )
        facts = self._watched(facts, watch_s)
        return replace(facts, brokers=list(self.brokers.values()), unexamined=self.unexamined)

    @property
    def answering(self) -> list[int]:
        return [each.broker_id for each in self.brokers.values() if not each.silence]

    def serving(self, api_key: int, what: str) -> list[int]:
        """Return the responding brokers that serve an API.

        `unexamined` gets a sentence about the other brokers, in which `what` names the unread fact.
        """
        found = [each for each in self.answering if api_key in self.brokers[each].versions]
        others = [each for each in self.answering if each not in found]
        if others:
            self.unexamined.append(
                f"{what}: {brokers_text(others, 'does', 'do')} not serve tidelog's own APIs at this"
                " address (a broker of Apache Kafka, or not its inter-broker listener)"
            )
        return found

    def _read(
        self, what: str, ask: Callable[P, T], /, *args: P.args, **named: P.kwargs
    ) -> T | None:
        """Return the response to a request; None if it fails, with a sentence about the failure."""
        try:
            return ask(*args, **named)
        except TidelogError as error:
            self.unexamined.append(f"{what}: {error}")
            return None

    # brokers

    def _broker(self, node: BrokerNode) -> BrokerFacts:
        facts = BrokerFacts(node.broker_id, node.host, node.port)
        try:
            versions = self.client.run(_versions_at(node, self.client.timeout_ms))
        except TidelogError as error:
            return replace(facts, silence=str(error))
        return replace(facts, versions=versions)

    def _change(self, broker_id: int, **changed: object) -> None:
        self.brokers[broker_id] = replace(self.brokers[broker_id], **changed)  # type: ignore[arg-type]

    def _add_levels(self) -> None:
        for broker_id in self.answering:
            resource = ConfigResource(BROKER, str(broker_id))
            values = self._read(
                f"settings of broker {broker_id}",
                self.client.describe_configs,
                resource,
                [_LEVEL],
            )
            for each in values or ():
                if each.name == _LEVEL:
                    self._change(broker_id, protocol_level=each.value)

    def _add_clocks(self) -> None:
        """Read the clocks of leaders.

        In a DescribeReplicas response, the last caught-up time of the leader's own replica is the
        present time of the leader's clock.
        """
        led: dict[int, TopicPartition] = {}
        for tp, partition in self.metadata.all_partitions():
            led.setdefault(partition.leader, tp)
        for broker_id in self.serving(DESCRIBE_REPLICAS, "clocks and causes of lag"):
            if broker_id not in led:
                self.unexamined.append(f"the clock of broker {broker_id}: it leads no partition")
                continue
            before = time.time_ns() // 1_000_000
            found = self._read(
                f"the clock of broker {broker_id}",
                self.client.describe_replicas,
                broker_id,
                [led[broker_id]],
            )
            after = time.time_ns() // 1_000_000
            for described in (found or {}).values():
                for each in described.replicas:
                    if each.broker == broker_id and each.last_caught_up_ms is not None:
                        ahead = each.last_caught_up_ms - (before + after) // 2
                        doubt = (after - before + 1) // 2
                        self._change(broker_id, clock_ahead_ms=ahead, clock_doubt_ms=doubt)

    def _add_overdue(self) -> None:
        controller = self.metadata.controller_id
        if controller not in self.answering:
            return
        if DESCRIBE_METRICS not in self.brokers[controller].versions:
            return  # `_add_clocks` has already noted that this broker lacks tidelog's APIs
        found = self._read(
            "commands of the controller",
            self.client.broker_metrics,
            controller,
            [_OVERDUE],
        )
        for each in found or ():
            broker = each.labels.get("broker", "")
            if each.value and broker.isdecimal() and int(broker) in self.brokers:
                self._change(int(broker), is_overdue=True)

    # partitions

    def _minimums(self) -> dict[str, int]:
        names = list(self.metadata.topics)
        found: dict[str, int] = {}
        for first in range(0, len(names), _TOPICS):
            part = [ConfigResource(TOPIC, name) for name in names[first : first + _TOPICS]]
            values = self._read(
                "settings of topics",
                self.client.describe_all_configs,
                part,
                [_MINIMUM],
            )
            for resource, configs in (values or {}).items():
                for each in configs:
                    if each.name == _MINIMUM and each.value is not None:
                        found[resource.name] = int(each.value)
        return found

    def _described(self) -> dict[TopicPartition, PartitionReplicas]:
        """Return the partitions with replicas out of the ISR, as their leaders describe them."""
        wanted: dict[int, list[TopicPartition]] = {}
        answering = [
            each for each in self.answering if DESCRIBE_REPLICAS in self.brokers[each].versions
        ]
        for tp, partition in self.metadata.all_partitions():
            if len(partition.isr) < len(partition.replicas) and partition.leader in answering:
                wanted.setdefault(partition.leader, []).append(tp)
        found: dict[TopicPartition, PartitionReplicas] = {}
        for leader, partitions in wanted.items():
            found |= (
                self._read(
                    f"causes of lag behind broker {leader}",
                    self.client.describe_replicas,
                    leader,
                    partitions,
                )
                or {}
            )
        return found

    # moves and groups, which are read twice

    def _watched(self, facts: ClusterFacts, watch_s: float) -> ClusterFacts:
        """Return the facts, with the progress of moves and groups between two readings."""
        meter = ProgressMeter(window_ms=max(1, int(watch_s * 1000)))
        self._progress(facts, meter)
        groups = self._groups()
        first = self._look(groups)
        is_behind = any(any(each.lag.values()) for each in first.values())
        is_busy = facts.moves is not None and bool(facts.moves.under_way)
        if watch_s <= 0 or not (is_behind or is_busy or _rebalancing(first.values())):
            return replace(facts, groups=[each.compared(each) for each in first.values()])
        time.sleep(watch_s)
        last = self._look([each for each in groups if each.group in first])
        return replace(
            facts,
            progress=self._progress(facts, meter),
            groups=[first[name].compared(each) for name, each in last.items()],
            watched_s=watch_s,
        )

    def _progress(self, facts: ClusterFacts, meter: ProgressMeter) -> Sequence[MoveProgress]:
        if facts.moves is None or not facts.moves.under_way:
            return ()
        samples = self._read("progress of moves", self.client.sample_moves)
        if samples is None:
            return ()
        return meter.observe(time.monotonic_ns() // 1_000_000, samples.samples)

    def _groups(self) -> list[GroupListing]:
        groups: list[GroupListing] = []
        for broker_id in self.answering:
            groups += (
                self._read(
                    f"groups of broker {broker_id}",
                    self.client.list_groups,
                    [broker_id],
                )
                or ()
            )
        if len(groups) > _GROUPS:
            self.unexamined.append(f"{len(groups) - _GROUPS} of {len(groups)} groups")
        return groups[:_GROUPS]

    def _look(self, groups: Iterable[GroupListing]) -> dict[str, _GroupLook]:
        """Return the state, committed offsets and lag of each group.

        `unexamined` gets a sentence for each group that could not be read.
        """
        looks: dict[str, _GroupLook] = {}
        for each in groups:
            look = self._read(f"group {each.group}", self._group, each.group)
            if look is not None:
                looks[each.group] = look
        ends = self._ends({tp.topic for look in looks.values() for tp in look.committed})
        for look in looks.values():
            look.measure(ends)
        return looks

    def _group(self, name: str) -> _GroupLook:
        described = self.client.describe_group(name)
        return _GroupLook(
            name,
            described.coordinator.broker_id,
            described.state,
            len(described.members),
            self.client.committed(name),
        )

    def _ends(self, topics: Collection[str]) -> dict[TopicPartition, int]:
        """Return the high watermarks of the topics' partitions that responding brokers lead."""
        found = self._read(
            "high watermarks",
            describe_partitions,
            self.client,
            self.metadata,
            topics,
            ask=lambda leader: leader in self.answering,
        )
        return {
            TopicPartition(each.topic, each.partition): each.high_watermark
            for each in found or ()
            if each.high_watermark is not None
        }


@dataclass(slots=True)
class _GroupLook:
    """What one reading shows of a consumer group."""

    group: str
    coordinator: int
    state: str
    members: int
    committed: Mapping[TopicPartition, FetchedOffset]
    lag: dict[TopicPartition, int] = field(default_factory=dict)

    def measure(self, ends: Mapping[TopicPartition, int]) -> None:
        """Add the lag of each partition whose high watermark is known."""
        self.lag = {
            tp: max(0, ends[tp] - each.offset) for tp, each in self.committed.items() if tp in ends
        }

    def compared(self, last: _GroupLook) -> GroupFacts:
        """Return the facts about the group from this reading and the second reading `last`.

        If there was only one reading, the caller passes this reading as `last`.
        """
        return GroupFacts(
            self.group,
            last.coordinator,
            (self.state, last.state),
            last.members,
            last.lag,
            any(last.committed.get(tp) != each for tp, each in self.committed.items()),
        )


def _rebalancing(looks: Iterable[_GroupLook]) -> bool:
    return any("Rebalance" in each.state for each in looks)


def _versions_at(node: BrokerNode, timeout_ms: int) -> Operation[dict[int, tuple[int, int]]]:
    """Return the range of versions of each API that a broker serves."""
    answer = yield Call(
        node.address,
        API_VERSIONS,
        lambda version: api_versions_request(version, tidelog.__version__),
        timeout_ms,
    )
    response = expect(answer, ApiVersionsResponse)
    if response.error_code:
        raise KafkaError(ErrorCode(response.error_code), f"ApiVersions at {node.address}")
    return {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}
