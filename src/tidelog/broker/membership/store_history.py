"""The check whether the metadata store is older than this broker's logs (E8).

A broker stamps the store: with each registration, and before a clean stop, it writes a node of its
own. The broker's log directories store the transaction id of its last stamp. If the broker's stamp
in the store has a lower transaction id than the log directories, the store was restored from a
copy. Replicas that a restored store records as in sync may lack acknowledged records. After an
unclean stop, or without a stored transaction id, the broker also checks that no leader epoch in its
logs is above the leader epoch in the store.

A broker that finds an older store registers without proof of a clean shutdown. The same transaction
creates a node, the mark, which records that the store was restored. The transaction also fences a
controller that does not know of the mark. The broker refuses to start if another broker already
leads one of its partitions in the older store. To follow that leader, this broker would truncate
records that the leader lacks, although they may have been acknowledged.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from tidelog.core import eligible_replicas
from tidelog.core.errors import TidelogError
from tidelog.core.types import (
    LEAST_EPOCHS_SKIPPED,
    NO_BROKER_EPOCH,
    NO_STAMP,
    PartitionState,
    StoreWentBack,
    TopicId,
    TopicPartition,
)
from tidelog.metadata import layout
from tidelog.metadata.layout import LayoutError
from tidelog.metadata.store import ANY_VERSION, Create, Node, Op, SetData

if TYPE_CHECKING:
    from tidelog.broker.replicas.hosting.hosted_partitions import HostedLog
    from tidelog.broker.services import Services

#: Maximum number of marks whose names a broker keeps; each restored store gets one mark.
_MARKS_KEPT = 16
#: The advice at the end of every message about a restored store.
_GUIDE = "see docs/guide/older-store.md"


class OlderStoreError(TidelogError):
    """The store is older than this broker's logs, and other brokers already lead in that store."""


class StoreHistory:
    """The history of the metadata store as this broker has seen it."""

    def __init__(
        self, services: Services, hosted: Callable[[], Mapping[TopicPartition, HostedLog]]
    ) -> None:
        self._services = services
        self._hosted = hosted
        #: The highest transaction id of this broker's stamps, as the log directories and this
        #: process know it.
        self.seen = NO_STAMP
        #: Names of the marks that this broker knows, the newest last. A mark is a node in the store
        #: which records that the store was restored from an older copy.
        self.marks: tuple[str, ...] = ()
        self._has_judged_logs = False

    async def registration_ops(self) -> list[Op]:
        """Return the writes that a registration makes besides its own node.

        Raises errors of the store, and OlderStoreError if this broker must not register now.
        """
        services = self._services
        path = layout.broker_stamp_path(services.broker_id)
        node = await services.store.get(path)
        stamp = layout.encode_stamp()
        ops: list[Op] = [Create(path, stamp) if node is None else SetData(path, stamp, ANY_VERSION)]
        found = layout.decode_stamp(path, node)
        reason = await self._why_older(found)
        if not reason:
            return ops
        if services.identity.store_is_older(found):
            services.tracer.mark("store_went_back")
            services.tracer.event("store_went_back", seen=self.seen, found=found)
            services.tracer.log("server", logging.ERROR, f"{reason}; {_GUIDE}")
        return [*ops, *await self._marking(found, reason)]

    def registered(self, broker_epoch: int) -> None:
        """Note a registration: its transaction id is the highest that this broker knows."""
        self.seen = broker_epoch
        self._has_judged_logs = True

    def heard_of(self, mark: str) -> bool:
        """Note a mark of a restored store; return whether this broker did not know the mark.

        A copy of a marked store has the same mark, so only a mark that is new to this broker shows
        that the store was restored again.
        """
        if not mark or mark in self.marks:
            return False
        self.marks = (*self.marks, mark)[-_MARKS_KEPT:]
        return True

    async def stamp(self) -> int:
        """Write the stamp node before a clean stop; return the transaction id of the write."""
        path = layout.broker_stamp_path(self._services.broker_id)
        [result] = await self._services.store.transact(
            [SetData(path, layout.encode_stamp(), ANY_VERSION)]
        )
        assert result.stat is not None
        self.seen = result.stat.mzxid
        return self.seen

    async def _why_older(self, found: int) -> str:
        """Return why the store must be older than this broker's logs; "" if nothing shows that.

        `found` is the transaction id of this broker's stamp in the store.
        """
        identity = self._services.identity
        if self.seen > found:
            there = f"of transaction {found}" if found != NO_STAMP else "missing"
            return (
                "the metadata store is older than this broker's log directories: the broker's last"
                f" stamp there is {there}, the directories have seen transaction {self.seen}. The"
                " store was restored from a copy: its in-sync sets prove nothing, and leaders are"
                " found by comparing the logs of all replicas"
            )
        is_proven = identity.clean_epochs.last != NO_BROKER_EPOCH and self.seen != NO_STAMP
        if self._has_judged_logs or is_proven:
            return ""
        hosted = self._hosted()
        for name, state in (await self._states(hosted)).items():
            latest = hosted[name].latest_epoch
            if latest > state.leader_epoch:
                return (
                    "the metadata store is older than this broker's logs: partition"
                    f" {name} has leader epoch {state.leader_epoch} there, and its log has records"
                    f" of epoch {latest}. The store was restored from a copy (or the disk changed"
                    " the epoch of the log's last batch, which no checksum covers): its in-sync"
                    " sets prove nothing, and leaders are found by comparing the logs of all"
                    " replicas"
                )
        return ""

    async def _marking(self, found: int, reason: str) -> list[Op]:
        """Return the writes that mark the store as restored; none if another broker marked it.

        If the store has a mark that is new to this broker, another broker wrote it after the
        restoration, so this broker writes no mark.
        """
        store, services = self._services.store, self._services
        path, epoch_path = layout.STORE_WENT_BACK, layout.CONTROLLER_EPOCH
        marker, epoch = await store.get_many([path, epoch_path])
        if marker is not None and found < marker.stat.mzxid:
            name = layout.decode_store_went_back(path, marker).name
            if name not in self.marks:
                return []
        led = await self._led_already()
        if led:
            raise OlderStoreError(
                f"{reason}. But {led}, so the records that only this broker has would be truncated."
                f" The broker does not start; {_GUIDE}"
            )
        drawn = services.ports.random.randrange(0, LEAST_EPOCHS_SKIPPED)
        data = layout.encode_store_went_back(
            StoreWentBack(
                services.broker_id,
                max(self.seen, 0),
                found,
                services.clock.wall_ms(),
                LEAST_EPOCHS_SKIPPED + drawn,
            )
        )
        ops: list[Op] = [
            Create(path, data) if marker is None else SetData(path, data, marker.stat.version)
        ]
        if epoch is not None:
            # Writing the controller epoch deposes a controller that does not know that the store
            # lost writes, so its next decision fails (V3).
            ops.append(SetData(epoch_path, epoch.data, epoch.stat.version))
        return ops

    async def _led_already(self) -> str:
        """Return a text that names a hosted partition which another broker leads in this store; ""
        if there is none.
        """
        states = await self._states(self._hosted())
        leaders = sorted({state.leader for state in states.values() if state.leader >= 0})
        nodes = await self._services.store.get_many([layout.broker_path(each) for each in leaders])
        live = {
            leader: node.stat.czxid
            for leader, node in zip(leaders, nodes, strict=True)
            if node is not None and leader != self._services.broker_id
        }
        for name, state in states.items():
            recorded = eligible_replicas.members(state).get(state.leader, NO_BROKER_EPOCH)
            if recorded != NO_BROKER_EPOCH and live.get(state.leader) == recorded:
                return f"broker {state.leader} leads partition {name} in this store already"
        return ""

    async def _states(
        self, hosted: Mapping[TopicPartition, HostedLog]
    ) -> dict[TopicPartition, PartitionState]:
        """Return the published states of the hosted partitions; skip recreated topics."""
        if not hosted:
            return {}
        store = self._services.store
        topics = list(dict.fromkeys(each.topic for each in hosted))
        nodes = await store.get_many([layout.topic_path(topic) for topic in topics])
        topic_ids = {
            topic: _topic_id(topic, node) for topic, node in zip(topics, nodes, strict=True)
        }
        names = [name for name, log in hosted.items() if topic_ids[name.topic] == log.topic_id]
        paths = [layout.partition_state_path(name) for name in names]
        found: dict[TopicPartition, PartitionState] = {}
        for name, path, node in zip(names, paths, await store.get_many(paths), strict=True):
            if node is None:
                continue
            try:
                found[name] = layout.decode_partition_state(path, node.data, node.stat)
            except LayoutError:
                continue  # the controller reports the unreadable node
        return found


def _topic_id(topic: str, node: Node | None) -> TopicId | None:
    if node is None:
        return None
    try:
        return layout.decode_topic_id(layout.topic_path(topic), node.data)
    except LayoutError:
        return None  # the controller reports the unreadable node
