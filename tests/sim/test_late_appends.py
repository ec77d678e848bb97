"""Appends that are checked on a thread first, in whole runs under faults."""

from __future__ import annotations

import pytest

from tidelog.broker.replicas.hosting.late_appends import LateAppends
from tidelog.core.ports import Buffer
from tidelog.log import partition_log
from tidelog.log.append_validation import Checked, CostlyBatch, check_on_loop
from tidelog.log.partition_log import PartitionLog
from tidelog.sim.run import run_seed


@pytest.mark.parametrize("seed", [1000, 1001, 1002])
def test_nothing_is_lost_or_out_of_order_where_every_second_batch_is_checked_late(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused, asked = LateAppends.refuse, 0
    ended: list[int] = []

    def costly(log: PartitionLog, records: Buffer) -> Checked:
        nonlocal asked
        asked += 1
        if asked % 2:
            raise CostlyBatch("so it is said")
        return check_on_loop(log, records)

    def counted(late: LateAppends) -> None:
        ended.append(len(late.waiting))
        refused(late)

    monkeypatch.setattr(partition_log, "check_on_loop", costly)
    monkeypatch.setattr(LateAppends, "refuse", counted)
    result = run_seed(seed)
    assert not result.violation, result.recent[-40:]
    assert asked > 30 and ended, "appends and leaderships came and went"
