"""Appends that cannot be planned at once, because a batch must first be checked on a thread.

A compressed batch may have so much inside that its check would hold the loop for a quarter of a
second. It is checked on its directory's thread, and whatever is appended to the same partition
behind it waits: appends of a partition are planned in the order in which they came, or a producer's
sequence numbers would be out of order. Where the leadership ends first, all are refused (V38).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from tidelog.core.completion import Completion
from tidelog.core.errors import ErrorCode, KafkaError, TidelogError
from tidelog.core.ports import Buffer
from tidelog.log.append_validation import Checked, CostlyBatch

if TYPE_CHECKING:
    from tidelog.log.partition_log import AppendInfo, PartitionLog


class Late(NamedTuple):
    """An append that waits."""

    records: Buffer
    acks: int
    now_ms: int
    completion: Completion[AppendInfo]


#: Plans an append, `checked` or not; raises KafkaError, StorageError, CostlyBatch.
Planner = Callable[[Buffer, int, int, Checked | None], "Completion[AppendInfo]"]


class LateAppends:
    """Those of one partition; the first one is being checked."""

    __slots__ = ("_flush", "_log", "_plan", "_waiting")

    def __init__(self, log: PartitionLog, plan: Planner, flush: Callable[[], object]) -> None:
        self._log = log
        self._plan = plan
        self._flush = flush
        self._waiting: list[Late] = []

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, records: Buffer, acks: int, now_ms: int) -> Completion[AppendInfo]:
        """Append when all before it are planned, and it is checked."""
        late = Late(records, acks, now_ms, Completion())
        self._waiting.append(late)
        if len(self._waiting) == 1:
            self._check(late)
        return late.completion

    def refuse(self, note: Callable[[Buffer, KafkaError], None]) -> None:
        """Refuse all that waits, as the leadership is over; `note` is called for each."""
        waiting, self._waiting = self._waiting, []
        for late in waiting:
            error = KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"the leadership of {self._log.topic_partition} ended before this was appended",
            )
            note(late.records, error)
            late.completion.fail(error)

    def _check(self, late: Late) -> None:
        self._log.check_on_thread(late.records).then(lambda done: self._checked(late, done))

    def _checked(self, late: Late, done: Completion[Checked]) -> None:
        waiting = self._waiting
        if not waiting or waiting[0] is not late:
            return  # refused meanwhile
        if done.error is not None:
            waiting.pop(0)
            late.completion.fail(done.error)
        else:
            self._begin(waiting.pop(0), done.result())
        while waiting:
            try:
                self._begin(waiting[0], None)
            except CostlyBatch:
                self._check(waiting[0])
                break
            waiting.pop(0)
        self._flush()

    def _begin(self, late: Late, checked: Checked | None) -> None:
        """Plan it; raises CostlyBatch where it is to be checked first."""
        try:
            planned = self._plan(late.records, late.acks, late.now_ms, checked)
        except CostlyBatch:
            raise
        except TidelogError as error:
            late.completion.fail(error)
            return
        planned.then(lambda done: _pass_on(done, late.completion))


def _pass_on(done: Completion[AppendInfo], to: Completion[AppendInfo]) -> None:
    if done.error is not None:
        to.fail(done.error)
    else:
        to.resolve(done.result())
