"""Appends that cannot be planned at once, because a thread must first check the batch.

The check of a compressed batch with large content may take a quarter of a second, in which the
event loop would do nothing else. Therefore a thread of the log directory checks such a batch, and
later appends to the partition wait behind it. All appends of a partition are planned in the order
of their arrival. Planning appends in another order would break the producers' sequence numbers. If
the leadership ends before the check, the waiting appends are refused (V38).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.broker.replicas.hosting.role import note_refusal
from tidelog.core.completion import Completion
from tidelog.core.errors import ErrorCode, KafkaError, TidelogError
from tidelog.core.ports import Buffer
from tidelog.log.append_validation import Checked, CostlyBatch

if TYPE_CHECKING:
    from tidelog.broker.replicas.hosting.partition import Partition
    from tidelog.broker.services import Services
    from tidelog.log.partition_log import AppendInfo


class Late(NamedTuple):
    """An append that waits until a thread has checked its batch."""

    records: Buffer
    acks: int
    now_ms: int
    completion: Completion[AppendInfo]


class LateAppends:
    """The waiting appends of one leader; the batch of the first append is being checked.

    A leader that stays leader under a new leader epoch passes its late appends to its next role.
    """

    __slots__ = ("_partition", "_services", "waiting")

    def __init__(self, services: Services, partition: Partition) -> None:
        self._services = services
        self._partition = partition
        #: Waiting appends in the order of their arrival. The list object never changes, because the
        #: leader's role refers to it.
        self.waiting: list[Late] = []

    def add(self, records: Buffer, acks: int, now_ms: int) -> Completion[AppendInfo]:
        """Append a batch after a thread has checked it and all earlier appends are planned."""
        late = Late(records, acks, now_ms, Completion())
        self.waiting.append(late)
        if len(self.waiting) == 1:
            self._check(late)
        return late.completion

    def refuse(self) -> None:
        """Refuse all waiting appends, as the leadership is over."""
        waiting = self.waiting.copy()
        self.waiting.clear()
        for late in waiting:
            error = KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"the leadership of {self._partition.topic_partition} ended before the"
                " records were appended",
            )
            note_refusal(self._services, self._partition.log, late.records, error)
            late.completion.fail(error)

    def _check(self, late: Late) -> None:
        check = self._partition.log.check_on_thread(late.records)
        check.then(lambda done: self._checked(late, done))

    def _checked(self, late: Late, done: Completion[Checked]) -> None:
        waiting = self.waiting
        if not waiting or waiting[0] is not late:
            return  # the append was refused during its check
        if done.error is not None:
            waiting.pop(0)
            late.completion.fail(done.error)
        else:
            self._begin(waiting.pop(0), done.result())
        while waiting:
            late = waiting[0]
            try:
                self._begin(late, None)
            except CostlyBatch:
                self._check(late)
                break
            if waiting and waiting[0] is late:
                waiting.pop(0)
        self._partition.flush_appends()

    def _begin(self, late: Late, checked: Checked | None) -> None:
        """Assign offsets to an append; raise CostlyBatch if its batch must be checked first."""
        try:
            planned = self._partition.role.plan(late.records, late.acks, late.now_ms, checked)
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
