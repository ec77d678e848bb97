"""A decision under construction: its writes, and the published state with these writes.

Later events of the same decision are handled as if the earlier writes were already done. A decision
writes a partition's state at most once, and a topic's node at most once. A result in an answer
names the write on which it depends. A draft reads the image and does not change it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from tidelog.controller.answers import Answer
from tidelog.controller.decision import Decision
from tidelog.controller.image import Image
from tidelog.controller.notices import UnmetRequest
from tidelog.controller.orders import Order, SendEverything, SendMetadata
from tidelog.controller.settings import ControllerSettings
from tidelog.controller.state_writes import WritePartitionState
from tidelog.controller.writes import Write
from tidelog.core.types import PartitionState, TopicPartition


class Draft:
    """The decision under construction, to which the controller's modules add writes, commands and
    answers.
    """

    def __init__(self, image: Image, settings: ControllerSettings) -> None:
        self.decision = Decision()
        self.image = image
        self.settings = settings
        #: By partition, the index of the write that publishes its state.
        self._written: dict[TopicPartition, int] = {}
        #: Topics of which this decision changes the number of partitions, or the stored requests
        #: for such a change.
        self.resized: dict[str, None] = {}
        #: Topics whose nodes this decision writes because of reassignments.
        self.reassigned: dict[str, None] = {}
        #: Topics that this decision queues for deletion.
        self.queued: dict[str, None] = {}
        #: Partitions whose metadata changed without a write, because replicas went offline or came
        #: online.
        self._shown: dict[TopicPartition, None] = {}
        #: Brokers that get a full command: new registrations, and all brokers for a new controller.
        self._full: dict[int, None] = {}

    # writes

    def add(self, write: Write) -> int:
        """Add a write; return its index."""
        self.decision.writes.append(write)
        return len(self.decision.writes) - 1

    def write_state(self, write: WritePartitionState) -> int:
        """Publish a partition's state; return the index of the write."""
        topic_partition, state = write.topic_partition, write.state
        before = self.image.states.get(topic_partition)
        assert before is None or before.leader_epoch <= state.leader_epoch, "a leader epoch falls"
        if state.reassigned_to and self.image.move(topic_partition) is None:
            write = replace(write, state=replace(state, reassigned_to=()))
        index = self._written[topic_partition] = self.add(write)
        return index

    def replace_state(self, index: int, state: PartitionState, is_new: bool) -> None:
        """Replace the state in write `index`; no AlterPartition request may wait for that write."""
        write = self.decision.writes[index]
        assert isinstance(write, WritePartitionState) and not write.asked_by_leader
        self.decision.writes[index] = replace(write, state=state, is_new=write.is_new or is_new)

    def written(self, topic_partition: TopicPartition) -> int | None:
        """Return the index of the write of a partition's state, None without such a write."""
        return self._written.get(topic_partition)

    def state(self, topic_partition: TopicPartition) -> PartitionState | None:
        """Return the state of a partition after the writes of this decision so far."""
        index = self._written.get(topic_partition)
        if index is None:
            return self.image.states.get(topic_partition)
        write = self.decision.writes[index]
        assert isinstance(write, WritePartitionState)
        return write.state

    def minimum(self, topic_partition: TopicPartition) -> int:
        """Return the effective minimum: min(min.insync.replicas, number of replicas) (V60)."""
        return self.minimum_of(topic_partition.topic, self.image.replicas(topic_partition))

    def minimum_of(self, topic: str, replicas: Sequence[int]) -> int:
        """Return the effective minimum of a topic's partition that has these replicas."""
        own = self.image.topics[topic].min_insync_replicas
        wanted = self.settings.min_insync_replicas if own is None else own
        return min(wanted, len(replicas))

    def has_changed(self, names: Iterable[str]) -> bool:
        """Return whether this decision already changes a node of one of the topics."""
        return any(name in self.resized or name in self.reassigned for name in names)

    # answers, orders, notices

    def answer(self, answer: Answer[Any]) -> None:
        """Answer a request once the writes are done."""
        self.decision.answers.append(answer)

    def order(self, order: Order) -> None:
        """Send commands to brokers once the writes are done."""
        self.decision.orders.append(order)

    def show(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Send every broker the metadata of the given partitions."""
        self._shown.update(dict.fromkeys(topic_partitions))

    def send_everything(self, brokers: Iterable[int]) -> None:
        """Send these brokers full commands: all their roles and all metadata."""
        self._full.update(dict.fromkeys(brokers))

    @property
    def full(self) -> Sequence[int]:
        """The brokers that get a full command."""
        return tuple(self._full)

    def notice(self, notice: object) -> None:
        """Report an effect of the decision once it is durable."""
        self.decision.notices.add(notice)

    def report(self, text: str) -> None:
        """Report that the controller cannot carry out a request which a node of the store holds."""
        self.notice(UnmetRequest(text))

    def close(self) -> Decision:
        """Return the complete decision; the draft gets no further additions."""
        twice = self.resized.keys() & self.reassigned.keys()
        assert not twice, f"nodes of topics are written twice: {sorted(twice)}"
        if self._shown:
            self.order(SendMetadata(tuple(self._shown)))
        for broker_id in self._full:
            self.order(SendEverything(broker_id))
        return self.decision
