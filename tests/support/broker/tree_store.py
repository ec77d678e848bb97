"""A store of one fake broker: a real tree of nodes, and transactions that meet trouble on demand.

What happens between a reading and the next transaction, and what becomes of the transaction, is
said beforehand; without a word it is applied.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from tidelog.core.types import PartitionState, TopicPartition
from tidelog.metadata import layout
from tidelog.metadata.layout import TopicAssignment
from tidelog.metadata.store import (
    ANY_VERSION,
    Create,
    Node,
    Op,
    OpResult,
    OutcomeUnknown,
    SetData,
    StoreUnavailable,
)
from tidelog.metadata.tree import Tree

SESSION = 77


class TreeStore:
    """Nodes, and the fate of the transactions to come."""

    def __init__(self) -> None:
        self.tree = Tree()
        self.is_available = True
        #: Called before the next transactions, one each: what other writers do meanwhile.
        self.meanwhile: list[Callable[[], None]] = []
        #: Of the next transactions: whether they are applied although their answer is lost.
        self.lost_answers: list[bool] = []
        #: Transactions that were tried.
        self.tried: list[list[Op]] = []
        for path in ("/brokers", layout.BROKER_IDS, layout.TOPICS, layout.ISR_CHANGES):
            self.write(Create(path, b""))

    def write(self, *ops: Op) -> list[OpResult]:
        """Write as another client does."""
        return self.tree.transact(ops, SESSION)[0]

    def place_topic(
        self,
        name: str,
        topic_id: bytes,
        states: dict[int, PartitionState],
        replicas: Sequence[int],
        **extra: Any,
    ) -> None:
        """Make a topic with these states of its partitions, each with these keys besides."""
        assignment = TopicAssignment(topic_id, dict.fromkeys(states, tuple(replicas)))
        self.write(
            Create(layout.topic_path(name), layout.encode_topic(assignment)),
            Create(layout.topic_partitions_path(name), b""),
        )
        for number, state in states.items():
            partition = TopicPartition(name, number)
            path = layout.partition_state_path(partition)
            value = json.loads(layout.encode_partition_state(state))
            data = json.dumps({**value, **extra}).encode()
            self.write(Create(layout.partition_path(partition), b""), Create(path, data))
            for _ in range(state.partition_epoch):
                self.write(SetData(path, data, ANY_VERSION))

    def register(self, *broker_ids: int) -> dict[int, int]:
        """Register brokers; returns their broker epochs."""
        return {
            number: self.epoch_of(self.write(Create(layout.broker_path(number), b"{}")))
            for number in broker_ids
        }

    @staticmethod
    def epoch_of(results: Sequence[OpResult]) -> int:
        """The transaction that made the first node."""
        stat = results[0].stat
        assert stat is not None
        return stat.czxid

    def state(self, partition: TopicPartition) -> PartitionState:
        """A partition's state."""
        path = layout.partition_state_path(partition)
        node = self.tree.get(path)
        assert node is not None
        return layout.decode_partition_state(path, node.data, node.stat)

    def notified(self) -> list[list[TopicPartition]]:
        """The partitions of each notification that leaders left, in order."""
        found = []
        for name in self.tree.children(layout.ISR_CHANGES) or ():
            path = f"{layout.ISR_CHANGES}/{name}"
            node = self.tree.get(path)
            assert node is not None
            found.append(layout.decode_isr_change(path, node.data))
        return found

    # the store as a broker has it

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        if not self.is_available:
            raise StoreUnavailable("away")
        return [self.tree.get(path) for path in paths]

    async def transact(self, ops: Sequence[Op]) -> list[OpResult]:
        if not self.is_available:
            raise StoreUnavailable("away")
        self.tried.append(list(ops))
        if self.meanwhile:
            self.meanwhile.pop(0)()
        if self.lost_answers:
            if self.lost_answers.pop(0):
                self.tree.transact(ops, SESSION)
            raise OutcomeUnknown("the answer was lost")
        return self.tree.transact(ops, SESSION)[0]
