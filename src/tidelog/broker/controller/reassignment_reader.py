"""The reader of the nodes that request or forbid reassignments (R1, R2, R8, R11, R12, R20).

Each watch is set before its node is read, so no change is missed. The log names unreadable nodes.
The controller removes an unreadable request like a completed request, because it cannot carry the
request out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidelog.controller.reassignments.cancelling import CancelRead
from tidelog.controller.reassignments.stored_nodes import ReassignmentsRead, RoutesRead
from tidelog.controller.records import AcceptedRequest, RequestedReassignments, RequestNode
from tidelog.core.tasks import Tasks
from tidelog.core.types import TopicPartition
from tidelog.metadata import layout
from tidelog.metadata.layout import LayoutError
from tidelog.metadata.store import MetadataStore, Node, WatchCallback

#: Called to log an unreadable node, the error, and what the controller does with the node.
Report = Callable[[str, str], None]


class ReassignmentReader:
    """The reads of reassignments for one controller term. The methods raise the store's errors."""

    def __init__(self, store: MetadataStore, tasks: Tasks, report: Report) -> None:
        self._store = store
        self._tasks = tasks
        self._report = report

    async def cancel(self, on_change: WatchCallback) -> CancelRead:
        """Read whether an administrator requests the cancellation of all reassignments (R2)."""
        return CancelRead(await self._store.get(layout.CANCEL_REASSIGNMENTS, on_change) is not None)

    async def reassignments(self, on_change: WatchCallback) -> ReassignmentsRead:
        """Read the reassignments that an administrator requests (R1)."""
        path = layout.REASSIGN_PARTITIONS
        return ReassignmentsRead(self._entries(path, await self._store.get(path, on_change)))

    async def routes(self, on_change: WatchCallback) -> RoutesRead:
        """Read whether reassignments are frozen, their queue, and new and accepted requests."""
        freeze, queue = await self._tasks.gather_ordered(
            self._store.get(layout.FREEZE_REASSIGNMENTS, on_change),
            self._store.get(layout.REASSIGNMENT_QUEUE, on_change),
        )
        requests, singles, accepted = await self._tasks.gather_ordered(
            self._store.children(layout.REASSIGNMENT_REQUESTS, on_change),
            self._store.children(layout.PARTITIONS_REASSIGNED, on_change),
            self._store.children(layout.REASSIGNMENTS, on_change),
        )
        return RoutesRead(
            freeze is not None,
            self._entries(layout.REASSIGNMENT_QUEUE, queue),
            (
                *await self._requests(sorted(requests or ())),
                *await self._singles(sorted(singles or ()), on_change),
            ),
            await self._accepted(sorted(accepted or ()), on_change),
        )

    def _entries(self, path: str, node: Node | None) -> RequestedReassignments | None:
        if node is None:
            return None
        try:
            entries = layout.decode_reassignments(path, node.data)
        except LayoutError as error:
            # An unreadable request cannot be carried out, so the controller removes it like a
            # completed request.
            self._report(str(error), "removed")
            entries = []
        return RequestedReassignments(
            node.stat.version, {entry.topic_partition: entry for entry in entries}
        )

    async def _requests(self, names: Sequence[str]) -> list[RequestNode]:
        paths = [f"{layout.REASSIGNMENT_REQUESTS}/{name}" for name in names]
        found = []
        for path, node in await self._nodes(paths):
            try:
                assignments = layout.decode_reassignment_request(path, node.data)
            except LayoutError as error:
                self._report(str(error), "removed")
                assignments = {}
            found.append(RequestNode(path, assignments))
        return found

    async def _singles(self, topics: Sequence[str], on_change: WatchCallback) -> list[RequestNode]:
        found = []
        paths = await self._partitions(layout.PARTITIONS_REASSIGNED, topics, on_change)
        for path, node in await self._nodes(paths):
            assignments = {}
            try:
                partition = _partition_of(path)
                assignments = {partition: layout.decode_partition_reassigned(path, node.data)}
            except LayoutError as error:
                self._report(str(error), "removed")
            found.append(RequestNode(path, assignments))
        return found

    async def _accepted(
        self, topics: Sequence[str], on_change: WatchCallback
    ) -> dict[TopicPartition, AcceptedRequest]:
        found = {}
        paths = await self._partitions(layout.REASSIGNMENTS, topics, on_change)
        for path, node in await self._nodes(paths):
            try:
                replicas = layout.decode_accepted_reassignment(path, node.data)
                found[_partition_of(path)] = AcceptedRequest(replicas, node.stat.czxid)
            except LayoutError as error:
                self._report(str(error), "left alone")
        return found

    async def _partitions(
        self, root: str, topics: Sequence[str], on_change: WatchCallback
    ) -> list[str]:
        """Return the paths of the partitions' nodes below a root, and watch the lists of nodes."""
        if not topics:
            return []
        numbers = await self._tasks.gather_ordered(
            *(self._store.children(f"{root}/{topic}", on_change) for topic in topics)
        )
        return [
            f"{root}/{topic}/{number}"
            for topic, found in zip(topics, numbers, strict=True)
            for number in sorted(found or ())
        ]

    async def _nodes(self, paths: Sequence[str]) -> list[tuple[str, Node]]:
        """Return the existing nodes with their paths."""
        nodes = await self._store.get_many(paths) if paths else []
        return [(path, node) for path, node in zip(paths, nodes, strict=True) if node is not None]


def _partition_of(path: str) -> TopicPartition:
    """Return the partition that the last two names of a path give; raises LayoutError."""
    return TopicPartition(path.split("/")[-2], layout.parse_decimal_name(path))
