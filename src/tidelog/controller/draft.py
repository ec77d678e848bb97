"""A decision under construction: published state overlaid with what is about to be written.

Later events of the same decision are judged against what earlier ones lead to, so that a partition
is written at most once. Everything that is answered names the write it waits for. Reads the image,
changes nothing in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tidelog.controller import elections, growth, isr, moves, reassignment, removals, topics
from tidelog.controller.decision import (
    AddPartitions,
    AlterPartitionAnswer,
    CreatePartitionsAnswer,
    CreateTopic,
    CreateTopicsAnswer,
    CreationResult,
    Decision,
    DeleteTopicsAnswer,
    DeletionResult,
    ElectionResult,
    ElectLeadersAnswer,
    ForgetRequest,
    GrowthResult,
    IsrResult,
    ProducerIdsAnswer,
    QueueDeletion,
    QueueRemovals,
    RemovalResult,
    RemovePartitionsAnswer,
    Retell,
    TakeProducerIds,
    Write,
    WritePartitionState,
)
from tidelog.controller.elections import Election
from tidelog.controller.events import (
    AlterPartitionAsked,
    CreatePartitionsAsked,
    CreateTopicsAsked,
    DeleteTopicsAsked,
    ElectLeadersAsked,
    ProducerIdsAsked,
    RemovePartitionsAsked,
)
from tidelog.controller.image import Image
from tidelog.controller.topics import TakenNames, TopicDefaults
from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.limits import MAX_PARTITIONS_PER_REQUEST, PRODUCER_ID_BLOCK_SIZE
from tidelog.core.types import PartitionState, TopicId, TopicPartition
from tidelog.wire.messages.alter_partition import RequestPartitionData
from tidelog.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsTopic,
)
from tidelog.wire.messages.delete_topics import DeleteTopicState

_MAX_PRODUCER_ID = 2**63 - 1
#: ElectLeaders' election types (KIP-460).
_PREFERRED, _UNCLEAN = 0, 1
#: Partitions that a report names at most.
_NAMED = 10


@dataclass(frozen=True, slots=True)
class Settings:
    """What the controller is told when it takes office."""

    controller_id: int
    controller_epoch: int
    topic_defaults: TopicDefaults
    #: unclean.leader.election.enable of the cluster; a topic may have its own.
    unclean: bool = False


class Draft:
    """Collects one decision."""

    def __init__(self, image: Image, settings: Settings) -> None:
        self.decision = Decision()
        self.image = image
        self.settings = settings
        #: Index of the write that changes a partition.
        self._written: dict[TopicPartition, int] = {}
        self._names: TakenNames | None = None
        self._queued: dict[str, None] = {}
        #: Topics of which the number of partitions, or the requests to change it, are written; and
        #: those whose node is written for reassignments.
        self.resized: dict[str, None] = {}
        #: Topics whose requests to add partitions leave out lower numbers, with what to report.
        self.waiting: dict[str, str] = {}
        self.reassigned: dict[str, None] = {}

    # elections

    def elect(self, topic_partition: TopicPartition) -> None:
        """Look at a partition whose circumstances changed (V11)."""
        image = self.image
        topic = image.topics.get(topic_partition.topic)
        if (
            topic is None
            or image.is_deleting(topic.name)
            or topic_partition in self._written
            or topic_partition in image.unreadable_states
        ):
            return
        replicas = image.replicas(topic_partition)
        state = image.states.get(topic_partition)
        controller_epoch = self.settings.controller_epoch
        if state is None or elections.is_tombstone(state):
            self._begin(topic_partition, replicas, state)
            return
        absent = image.absent(topic_partition)
        if (
            absent
            and elections.cut_short(state, replicas, image.brokers)
            and self._ask_for_replicas(topic_partition, replicas)
        ):
            return
        election = elections.elect(
            state,
            replicas,
            image.brokers,
            absent,
            self.settings.unclean if topic.unclean is None else topic.unclean,
            controller_epoch,
        )
        if election is not None:
            self.write_state(
                WritePartitionState(
                    topic_partition,
                    election.state,
                    state.partition_epoch,
                    is_new=election.creates_leader,
                )
            )
            return
        move = image.move(topic_partition)
        if move is not None and state.mzxid < move.since_zxid:
            # The replicas may not have been told that they are others now.
            told = moves.told_anew(state, controller_epoch)
            if image.is_completing(topic_partition):
                told = replace(told, reassigned_to=state.reassigned_to)
            self.write_state(WritePartitionState(topic_partition, told, state.partition_epoch))

    def _begin(
        self,
        topic_partition: TopicPartition,
        replicas: tuple[int, ...],
        tombstone: PartitionState | None,
    ) -> None:
        """A partition that has no state, or that of a former life, gets its first (V20, V71)."""
        image = self.image
        removal = image.removals.get(topic_partition.topic)
        if removal is not None and topic_partition.partition in removal.requested:
            return
        former = image.former.get(topic_partition) if tombstone is None else tombstone
        controller_epoch = self.settings.controller_epoch
        first = elections.first_state(replicas, image.brokers, controller_epoch, former)
        if first is not None:
            expected = first.partition_epoch - 1
            self.write_state(WritePartitionState(topic_partition, first, expected, is_new=True))

    def elect_preferred(self, topic_partition: TopicPartition) -> None:
        """Give leadership back to the preferred replica where it can have it (V46)."""
        image = self.image
        state = image.states.get(topic_partition)
        if (
            state is None
            or topic_partition in self._written
            or image.is_deleting(topic_partition.topic)
            or not elections.prefers_another(state, image.replicas(topic_partition))
        ):
            return
        election = self._preferred(topic_partition, state)
        if election is not None:
            self.write_state(
                WritePartitionState(topic_partition, election.state, state.partition_epoch)
            )

    def _preferred(self, topic_partition: TopicPartition, state: PartitionState) -> Election | None:
        return elections.elect_preferred(
            state,
            self.image.replicas(topic_partition),
            self.image.brokers,
            self.image.absent(topic_partition),
            self.settings.controller_epoch,
        )

    def elect_leaders(self, asked: ElectLeadersAsked) -> None:
        """Elect preferred or unclean leaders on request (V8, V13, V46)."""
        request = asked.request
        answer = ElectLeadersAnswer(asked.ticket)
        self.decision.election_answers.append(answer)
        named = request.topic_partitions
        if named is None:
            wanted = list(self.image.partitions())
        else:
            wanted = [TopicPartition(one.topic, n) for one in named for n in one.partitions]
        for topic_partition in dict.fromkeys(wanted):
            result = ElectionResult(topic_partition)
            try:
                self._elect_leader(request.election_type, result)
            except KafkaError as error:
                result.error, result.message = error.code, error.message
            if named is not None or result.error is not ErrorCode.ELECTION_NOT_NEEDED:
                answer.results.append(result)

    def _elect_leader(self, election_type: int, result: ElectionResult) -> None:
        topic_partition = result.topic_partition
        image = self.image
        if election_type not in (_PREFERRED, _UNCLEAN):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"election type {election_type} is not known: 0 (preferred) or 1 (unclean)",
            )
        if image.is_deleting(topic_partition.topic):
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "the topic is being deleted")
        reassignment.check_readable(topic_partition, image)
        state = self._state(topic_partition)
        if state is None or elections.is_tombstone(state):
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {topic_partition}"
            )
        replicas = image.replicas(topic_partition)
        election: Election | None
        if election_type == _PREFERRED:
            if not elections.prefers_another(state, replicas):
                raise KafkaError(
                    ErrorCode.ELECTION_NOT_NEEDED, f"preferred replica {replicas[0]} leads"
                )
            election = self._preferred(topic_partition, state)
            if election is None:
                raise KafkaError(
                    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
                    f"preferred replica {replicas[0]} is not alive and in the ISR"
                    f" {list(state.isr)}",
                )
        else:
            if state.leader in image.brokers:
                raise KafkaError(ErrorCode.ELECTION_NOT_NEEDED, f"broker {state.leader} leads")
            election = elections.elect(
                state,
                replicas,
                image.brokers,
                image.absent(topic_partition),
                True,
                self.settings.controller_epoch,
            )
            if election is None or election.state.leader not in image.brokers:
                raise KafkaError(
                    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
                    f"no replica is alive: {list(replicas)}, live brokers are"
                    f" {sorted(image.brokers)}",
                )
        result.write = self._elected(topic_partition, state, election)

    def _elected(
        self, topic_partition: TopicPartition, state: PartitionState, election: Election
    ) -> int:
        """Write an election over published state, or into what this decision writes already."""
        index = self._written.get(topic_partition)
        if index is None:
            self.write_state(
                WritePartitionState(
                    topic_partition,
                    election.state,
                    state.partition_epoch,
                    is_new=election.creates_leader,
                )
            )
            return self._written[topic_partition]
        write = self.decision.writes[index]
        assert isinstance(write, WritePartitionState) and not write.asked_by_leader
        # One change of leadership, and one write of the node: epochs rise once.
        merged = replace(
            election.state, leader_epoch=state.leader_epoch, partition_epoch=state.partition_epoch
        )
        self.decision.writes[index] = replace(
            write, state=merged, is_new=write.is_new or election.creates_leader
        )
        return index

    def _ask_for_replicas(self, topic_partition: TopicPartition, replicas: Iterable[int]) -> bool:
        """Find out whether a fresh partition exists anywhere (D3); False when it does somewhere,
        so that those that lack it can leave the ISR."""
        presence = self.image.presence(topic_partition)
        if any(presence.values()):
            return False
        silent = [replica for replica in replicas if replica not in presence]
        if silent:
            self.decision.retold.extend(Retell(replica, topic_partition) for replica in silent)
        else:
            self.decision.remade.append(topic_partition)
        return True

    # AlterPartition

    def alter_partitions(self, asked: AlterPartitionAsked) -> None:
        """Judge a leader's request (A1-A4)."""
        request = asked.request
        answer = AlterPartitionAnswer(asked.ticket)
        self.decision.isr_answers.append(answer)
        sender = self.image.brokers.get(request.broker_id)
        if sender is None or sender.broker_epoch != request.broker_epoch:
            answer.error = ErrorCode.STALE_BROKER_EPOCH
            return
        for topic in request.topics:
            for data in topic.partitions:
                answer.results.append(self._alter(asked, topic.topic_id, data))

    def _alter(
        self, asked: AlterPartitionAsked, topic_id: TopicId, data: RequestPartitionData
    ) -> IsrResult:
        image = self.image
        partition = data.partition_index
        name = image.topic_name(topic_id)
        if name is None or image.is_deleting(name):
            return IsrResult(topic_id, partition, ErrorCode.UNKNOWN_TOPIC_ID, None, None)
        topic_partition = TopicPartition(name, partition)
        state = self._state(topic_partition)
        if state is None:
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return IsrResult(topic_id, partition, error, None, None)
        sender = asked.request.broker_id
        verdict = isr.judge(
            isr.proposal(sender, data, asked.version),
            state,
            image.replicas(topic_partition),
            image.brokers,
            self.settings.controller_epoch,
            asked.version,
        )
        is_refused = verdict.error is not ErrorCode.NONE
        # Under another leader epoch every replica is told.
        to_all = verdict.state is not None and verdict.state.leader_epoch != state.leader_epoch
        if verdict.error is ErrorCode.INVALID_UPDATE_VERSION or (
            is_refused and verdict.is_new and not to_all
        ):
            # A lost answer must not leave the leader waiting (A3), nor a partition epoch that has
            # passed without it.
            self.decision.retold.append(Retell(sender, topic_partition))
        if verdict.is_new and verdict.state is not None:
            self.write_state(
                WritePartitionState(
                    topic_partition,
                    verdict.state,
                    state.partition_epoch,
                    asked_by_leader=not to_all,
                )
            )
        write = self._written.get(topic_partition)
        state = None if is_refused else verdict.state
        return IsrResult(topic_id, partition, verdict.error, state, write)

    def _state(self, topic_partition: TopicPartition) -> PartitionState | None:
        index = self._written.get(topic_partition)
        if index is None:
            return self.image.states.get(topic_partition)
        write = self.decision.writes[index]
        assert isinstance(write, WritePartitionState)
        return write.state

    def write_state(self, write: WritePartitionState) -> None:
        """Publish a state; the partition is not written yet."""
        if write.state.reassigned_to and self.image.move(write.topic_partition) is None:
            write = replace(write, state=replace(write.state, reassigned_to=()))
        self._written[write.topic_partition] = self.add(write)

    def is_written(self, topic_partition: TopicPartition) -> bool:
        """Whether this decision publishes a state of the partition."""
        return topic_partition in self._written

    def add(self, write: Write) -> int:
        """The index of a write."""
        self.decision.writes.append(write)
        return len(self.decision.writes) - 1

    # topics

    def create_topics(self, asked: CreateTopicsAsked) -> None:
        """Plan every topic asked for; each is made or refused by itself."""
        request = asked.request
        answer = CreateTopicsAnswer(asked.ticket)
        self.decision.creation_answers.append(answer)
        counts = Counter(wanted.name for wanted in request.topics)
        if self._names is None:
            self._names = TakenNames(self.image)
        room = MAX_PARTITIONS_PER_REQUEST
        for index, wanted in enumerate(request.topics):
            result = CreationResult(wanted.name)
            answer.results.append(result)
            try:
                if counts[wanted.name] > 1:
                    raise KafkaError(
                        ErrorCode.INVALID_REQUEST,
                        f"topic {wanted.name!r} is named {counts[wanted.name]} times",
                    )
                made = topics.plan(
                    wanted,
                    self.image.brokers,
                    self._names,
                    self.settings.topic_defaults,
                    asked.topic_ids[index],
                    asked.seed + index,
                    self.settings.controller_epoch,
                    room,
                )
            except KafkaError as error:
                result.error, result.message = error.code, error.message
                continue
            result.made = made
            room -= len(made.topic.assignments)
            if not request.validate_only:
                self._names.add(wanted.name)
                result.write = self.add(CreateTopic(made))

    def create_partitions(self, asked: CreatePartitionsAsked) -> bool:
        """Plan more partitions for each topic asked for (V70). False where another request of this
        decision changes their number for one of them: decide later."""
        request = asked.request
        counts = Counter(wanted.name for wanted in request.topics)
        if any(name in self.resized or name in self.reassigned for name in counts):
            return False
        answer = CreatePartitionsAnswer(asked.ticket)
        self.decision.growth_answers.append(answer)
        room = MAX_PARTITIONS_PER_REQUEST
        for index, wanted in enumerate(request.topics):
            result = GrowthResult(wanted.name)
            answer.results.append(result)
            try:
                self._check_resizable(wanted.name, counts[wanted.name])
                planned = growth.plan(
                    wanted,
                    self.image,
                    asked.seed + index,
                    self.settings.controller_epoch,
                    room,
                )
            except KafkaError as error:
                result.error, result.message = error.code, error.message
                continue
            room -= len(planned.states)
            if not request.validate_only:
                self.resized[wanted.name] = None
                result.write = self.add(AddPartitions(planned))
        return True

    def _check_resizable(self, name: str, times: int) -> None:
        if times > 1:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"topic {name!r} is named {times} times")
        if name in self._queued:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic {name!r} is being deleted")

    def add_requested(self, name: str, wanted: Mapping[int, Sequence[int]], seed: int) -> None:
        """Carry out requests to add partitions that were left in the store for one topic (V7): one
        waits until all lower numbers are there or requested too."""
        topic = self.image.topics.get(name)
        if name in self.resized or name in self.reassigned:
            return
        if name in self.image.unreadable or self.image.closing(name):
            return
        count = 0 if topic is None else len(topic.assignments)
        for partition in wanted:
            if partition < count:
                self.add(ForgetRequest(TopicPartition(name, partition), is_removal=False))
        run: list[tuple[int, ...]] = []
        while count + len(run) in wanted and len(run) < MAX_PARTITIONS_PER_REQUEST:
            chosen = tuple(wanted[count + len(run)])
            if run and bool(chosen) != bool(run[0]):
                break
            run.append(chosen)
        if topic is not None and not run:
            self._name_gap(name, count, wanted)
            return
        request = CreatePartitionsTopic(name=name, count=count + len(run))
        if run and run[0]:
            request.assignments = [CreatePartitionsAssignment(chosen) for chosen in run]
        epoch = self.settings.controller_epoch
        try:
            self._check_resizable(name, 1)
            planned = growth.plan(request, self.image, seed, epoch, MAX_PARTITIONS_PER_REQUEST)
        except KafkaError as error:
            refused = range(count, count + len(run)) if topic is not None else wanted
            for partition in refused:
                one = TopicPartition(name, partition)
                self.refuse_request(one, error.message, is_removal=False)
            return
        self.resized[name] = None
        self.add(AddPartitions(planned))

    def _name_gap(self, name: str, count: int, wanted: Mapping[int, Sequence[int]]) -> None:
        """Note which requests wait for a lower number, and what would be right."""
        above = sorted(number for number in wanted if number > count)
        if above:
            waiting = ", ".join(map(str, above[:_NAMED]))
            missing = str(count) if above[0] == count + 1 else f"{count} to {above[0] - 1}"
            self.waiting[name] = (
                f"topic {name!r} has {count} partitions: requests to add partition {waiting} wait"
                f" for requests to add partition {missing}"
                f" (nodes /admin/partitions_add/{name}/{count} and on)"
            )

    def refuse_request(
        self, topic_partition: TopicPartition, reason: str, *, is_removal: bool
    ) -> None:
        """A request that was left in the store and cannot be done: say so, take it away."""
        what = "remove" if is_removal else "add"
        self.decision.reports.append(
            f"the request to {what} partition {topic_partition} is dropped: {reason}"
        )
        self.add(ForgetRequest(topic_partition, is_removal))

    # removing partitions

    def bury(self, topic_partition: TopicPartition) -> None:
        """Publish that a partition is no more; its node stays, for its epochs (V71)."""
        state = self.image.states[topic_partition]
        tombstone = elections.tombstone(state, self.settings.controller_epoch)
        self.write_state(WritePartitionState(topic_partition, tombstone, state.partition_epoch))

    def finish_removal(self, name: str) -> None:
        """Take partitions from the topic's node of which no replica is left."""
        write = removals.last_write(name, self.image)
        if write is not None and name not in self.resized and name not in self.reassigned:
            self.resized[name] = None
            self.add(write)

    def remove_partitions(self, asked: RemovePartitionsAsked) -> bool:
        """Request that the highest partitions of each topic asked for be removed. False where
        another request of this decision changes the number of its partitions: decide later."""
        request = asked.request
        counts = Counter(wanted.name for wanted in request.topics)
        if any(name in self.resized or name in self.reassigned for name in counts):
            return False
        answer = RemovePartitionsAnswer(asked.ticket)
        self.decision.removal_answers.append(answer)
        for wanted in request.topics:
            result = RemovalResult(wanted.name)
            answer.results.append(result)
            try:
                self._check_resizable(wanted.name, counts[wanted.name])
                planned = removals.plan(wanted, self.image)
            except KafkaError as error:
                result.error, result.message = error.code, error.message
                continue
            if not request.validate_only:
                self.resized[wanted.name] = None
                result.write = self.add(QueueRemovals(wanted.name, planned))
        return True

    def delete_topics(self, asked: DeleteTopicsAsked) -> None:
        """Queue topics for deletion (V22); their answer comes when they are gone."""
        request = asked.request
        answer = DeleteTopicsAnswer(asked.ticket)
        self.decision.deletion_answers.append(answer)
        wanted = request.topics or [DeleteTopicState(name) for name in request.topic_names]
        for one in wanted:
            try:
                name, topic_id = topics.deletion_target(
                    one, self.image, self.settings.topic_defaults
                )
            except KafkaError as error:
                answer.results.append(
                    DeletionResult(one.name, one.topic_id, error.code, error.message)
                )
                continue
            answer.results.append(DeletionResult(name, topic_id))
            answer.waiting[name] = None
            if name not in self._queued and not self.image.is_deleting(name):
                self._queued[name] = None
                self.add(QueueDeletion(name))

    # producer ids

    def give_producer_ids(self, asked: list[ProducerIdsAsked]) -> None:
        """A block for each; one write covers them all (G3)."""
        found = self.image.producer_ids
        last = None if found is None else found.last_id
        taken: TakeProducerIds | None = None
        for one in asked:
            answer = ProducerIdsAnswer(one.ticket, one)
            self.decision.producer_id_answers.append(answer)
            sender = self.image.brokers.get(one.request.broker_id)
            if sender is None:
                answer.error = ErrorCode.BROKER_ID_NOT_REGISTERED
            elif sender.broker_epoch != one.request.broker_epoch:
                answer.error = ErrorCode.STALE_BROKER_EPOCH
            elif last is None or found is None or last > _MAX_PRODUCER_ID - PRODUCER_ID_BLOCK_SIZE:
                answer.error = ErrorCode.UNKNOWN_SERVER_ERROR
            else:
                answer.first, answer.count = last + 1, PRODUCER_ID_BLOCK_SIZE
                last += PRODUCER_ID_BLOCK_SIZE
                taken = TakeProducerIds(sender.broker_id, answer.first, last, found.version)
        if taken is not None:
            self.decision.producer_id_write = self.add(taken)
