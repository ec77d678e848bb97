"""The writer of a controller's decisions: conditional transactions, and an outcome per write.

Every transaction begins with a check of `/controller_epoch`, so a deposed controller changes
nothing (V3). Writes are packed into transactions up to the store's limits. When a transaction
conflicts, the writer reads back the nodes that the transaction would have written. The writer
reports a conflict for each node that is not as expected, and writes the other nodes (V15, V16).
After an unknown outcome the writer reads back the nodes before it does anything else (S2). The
writer waits while the store is unreachable (S3). `store_ops` maps each write to its nodes.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

from tidelog.broker.controller import store_ops
from tidelog.broker.controller.store_ops import PendingVerdict, Unit
from tidelog.broker.store_access import UNANSWERED, patiently
from tidelog.controller.topics.deletion import RemoveTopic
from tidelog.controller.writes import Conflict, Outcome, Write, Written
from tidelog.core.errors import TidelogError
from tidelog.core.ports import Tracer
from tidelog.core.tasks import Tasks
from tidelog.metadata import layout
from tidelog.metadata.store import (
    ANY_VERSION,
    Check,
    Delete,
    MetadataStore,
    Node,
    NotEmpty,
    Op,
    OpResult,
    OutcomeUnknown,
    StoreError,
    StoreUnavailable,
    TransactionFailed,
)

T = TypeVar("T")


class DeposedError(TidelogError):
    """Another controller was elected, so the store rejects the writes of this controller."""


class StoreWriter:
    """The writer of one controller term's decisions to the metadata store."""

    def __init__(
        self, store: MetadataStore, tasks: Tasks, tracer: Tracer, epoch_version: int
    ) -> None:
        self._store = store
        self._tasks = tasks
        self._tracer = tracer
        self._epoch_check = Check(layout.CONTROLLER_EPOCH, epoch_version)

    async def write(self, writes: Sequence[Write]) -> list[Outcome]:
        """Return the outcome of each write, in order.

        Raises DeposedError or SessionExpired, which end the term.

        The writes of one call must be independent of each other, because they may become durable in
        several transactions.
        """
        outcomes: dict[int, Outcome] = {}
        units: list[Unit] = []
        for index, write in enumerate(writes):
            if isinstance(write, RemoveTopic):
                await self._remove_topic(write)
                outcomes[index] = Written()
            else:
                units.extend(store_ops.units_of(index, write))
        await self._add_missing_parents(units)
        for batch in store_ops.batches(units):
            wanted = [unit for unit in batch if not isinstance(outcomes.get(unit.write), Conflict)]
            await self._commit(wanted, outcomes)
        return [outcomes[index] for index in range(len(writes))]

    async def _commit(self, units: list[Unit], outcomes: dict[int, Outcome]) -> None:
        """Write one batch of units (groups of operations); if a unit conflicts, report it and write
        the other units.
        """
        while units:
            try:
                results = await self._transact([op for unit in units for op in unit.ops])
            except OutcomeUnknown as error:
                self._tracer.event("store_outcome_unknown", reason=str(error))
                units = await self._settle(units, outcomes, None)
            except TransactionFailed as failure:
                units = await self._settle(units, outcomes, failure)
            else:
                _all_written(units, results, outcomes)
                return

    async def _transact(self, ops: Sequence[Op]) -> list[OpResult]:
        """Run a transaction; return the results of `ops`, or raise the failure of one of `ops`."""
        write = partial(self._store.transact, [self._epoch_check, *ops])
        try:
            return (await self._patiently(write, (StoreUnavailable,)))[1:]
        except TransactionFailed as failure:
            if failure.index == 0:
                self._tracer.mark("deposed_while_writing")
                raise DeposedError("another controller has been elected") from failure
            raise TransactionFailed(failure.index - 1, failure.error) from failure

    async def _settle(
        self,
        units: Sequence[Unit],
        outcomes: dict[int, Outcome],
        failure: TransactionFailed | None,
    ) -> list[Unit]:
        """Read back the outcome of each `Unit`; return the units that must still be written."""
        nodes = await self._read([layout.CONTROLLER_EPOCH, *(unit.witness for unit in units)])
        epoch = nodes[0]
        if epoch is None or epoch.stat.version != self._epoch_check.version:
            raise DeposedError("another controller has been elected")
        left: list[Unit] = []
        first_op = 0
        for unit, node in zip(units, nodes[1:], strict=True):
            verdict = unit.judge(node)
            failed = failure is not None and 0 <= failure.index - first_op < len(unit.ops)
            first_op += len(unit.ops)
            if failure is None:
                self._mark_unknown(verdict)
            if isinstance(verdict, PendingVerdict):
                if failure is None or not failed or await self._adapt(unit, failure):
                    left.append(unit)
                    continue
                verdict = Conflict(reason=str(failure))
            _note(unit, verdict, outcomes)
            if isinstance(verdict, Conflict):
                self._tracer.event("store_conflict", path=unit.witness, reason=verdict.reason)
        return left

    async def _adapt(self, unit: Unit, failure: TransactionFailed) -> bool:
        """Adapt a failed `Unit`, or remove nodes that block it; return whether to try again."""
        if isinstance(failure.error, NotEmpty) and failure.error.path == unit.witness:
            await self._empty(unit.witness)
            return True
        return unit.adapt(failure)

    async def _empty(self, path: str) -> None:
        """Remove the nodes that another client left below a node that must be deleted.

        The store deletes no node that has children, so without this step the controller would
        repeat the deletion forever.
        """
        below = await self._tree(path)
        self._tracer.log(
            "controller",
            logging.WARNING,
            f"removing {len(below)} nodes below {path}, which goes:"
            f" {', '.join(below[:20])}{' ...' if len(below) > 20 else ''}",
        )
        try:
            for first in range(0, len(below), store_ops.MAX_OPS):
                await self._delete(below[first : first + store_ops.MAX_OPS])
        except (OutcomeUnknown, TransactionFailed) as error:
            # The node still has children; the next attempt reads the children again.
            self._tracer.event("removal_repeated", count=len(below), reason=str(error))

    def _mark_unknown(self, verdict: PendingVerdict | Outcome) -> None:
        if isinstance(verdict, Written):
            self._tracer.mark("store_answer_lost_but_applied")
        elif isinstance(verdict, PendingVerdict):
            self._tracer.mark("store_request_lost")

    async def _read(self, paths: Sequence[str]) -> list[Node | None]:
        return await self._patiently(partial(self._store.get_many, paths))

    async def _patiently(
        self,
        ask: Callable[[], Awaitable[T]],
        errors: tuple[type[StoreError], ...] = UNANSWERED,
    ) -> T:
        def log(error: StoreError) -> None:
            self._tracer.log("controller", logging.WARNING, f"waiting for the store: {error}")

        return await patiently(self._tasks, ask, errors=errors, on_error=log)

    async def _add_missing_parents(self, units: Sequence[Unit]) -> None:
        """Create the missing parent nodes of partitions that are added to an existing topic."""
        parents = list(dict.fromkeys(path for unit in units for path in unit.parents))
        if not parents:
            return
        nodes = await self._read(parents)
        missing = {path: None for path, node in zip(parents, nodes, strict=True) if node is None}
        for unit in units:
            unit.make_parents([path for path in unit.parents if path in missing])
            for path in unit.parents:
                missing.pop(path, None)

    # deletion

    async def remove(self, paths: Sequence[str]) -> None:
        """Remove these nodes; skip nodes that are already gone. Raises DeposedError."""
        for first in range(0, len(paths), store_ops.MAX_OPS):
            batch = paths[first : first + store_ops.MAX_OPS]
            while True:
                try:
                    await self._delete(batch)
                except (OutcomeUnknown, TransactionFailed) as error:
                    # The next attempt skips the nodes that are already gone.
                    self._tracer.event("removal_repeated", count=len(batch), reason=str(error))
                else:
                    break

    async def _remove_topic(self, write: RemoveTopic) -> None:
        """Remove all nodes of a topic, its deletion request last (V22); repeat on failure."""
        below = _known_below(write)
        last = [
            layout.topic_path(write.name),
            layout.config_path("topics", write.name),
            layout.delete_topic_path(write.name),
        ]
        while True:
            try:
                for first in range(0, len(below), store_ops.MAX_OPS):
                    await self._delete(below[first : first + store_ops.MAX_OPS])
                await self._delete(last)
            except (OutcomeUnknown, TransactionFailed) as error:
                self._tracer.event("topic_removal_repeated", topic=write.name, reason=str(error))
                if isinstance(error, TransactionFailed) and isinstance(error.error, NotEmpty):
                    below = await self._tree(layout.topic_path(write.name))
            else:
                return

    async def _delete(self, paths: Sequence[str]) -> None:
        nodes = await self._read(paths)
        present = [path for path, node in zip(paths, nodes, strict=True) if node is not None]
        if present:
            await self._transact([Delete(path, ANY_VERSION) for path in present])

    async def _tree(self, path: str) -> list[str]:
        """Return the paths of all nodes below `path`, children before parents."""
        found: list[str] = []
        for name in await self._children(path):
            child = f"{path}/{name}"
            found.extend(await self._tree(child))
            found.append(child)
        return found

    async def _children(self, path: str) -> list[str]:
        return await self._patiently(partial(self._store.children, path)) or []


def _known_below(write: RemoveTopic) -> list[str]:
    """Return the nodes below a topic's node that the controller knows, children before parents."""
    if write.topic is None:
        return []
    paths: list[str] = []
    for topic_partition in write.topic.partitions:
        paths.append(layout.partition_state_path(topic_partition))
        paths.append(layout.partition_path(topic_partition))
    paths.append(layout.topic_partitions_path(write.name))
    return paths


def _all_written(
    units: Sequence[Unit], results: Sequence[OpResult], outcomes: dict[int, Outcome]
) -> None:
    position = 0
    for unit in units:
        mzxid = 0
        for result in results[position : position + len(unit.ops)]:
            if result.stat is not None:
                mzxid = result.stat.mzxid
        position += len(unit.ops)
        _note(unit, Written(mzxid), outcomes)


def _note(unit: Unit, outcome: Outcome, outcomes: dict[int, Outcome]) -> None:
    """Note a unit's outcome as its write's outcome; a conflict replaces an earlier outcome."""
    if isinstance(outcome, Conflict) or unit.write not in outcomes:
        outcomes[unit.write] = outcome
