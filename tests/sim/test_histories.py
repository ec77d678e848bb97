"""Runs seen from outside: what clients were told shows broken brokers, and blames no sound ones.

The checkers that look into brokers end a run before its clients notice anything, so they are told
to be silent here.
"""

from __future__ import annotations

import pytest
from tests.support.mutants import MUTANTS, applied
from tests.support.mutants.kills import recovery_within

from tidelog.history import HistoryChecker, Operation, Report
from tidelog.sim.run import SeedRun, run_seed
from tidelog.sim.simulator import CollectorPaused, Simulator

#: Seeds of the mutant's profile in which clients noticed it, and others.
NOTICED = {
    "ack_before_replication": (9, *range(16)),
    "bounce_unnoticed": (5, 12, *range(16)),
}
#: After the faults: a broken cluster need not recover, and its clients have seen enough.
REST_S = 5


def judged(operations: list[Operation], *, has_final_read: bool) -> Report:
    checker = HistoryChecker(has_final_read=has_final_read)
    for line, operation in enumerate(operations, 1):
        checker.add(operation, line)
    return checker.finish()


@pytest.mark.parametrize("name", NOTICED)
def test_clients_alone_notice_a_broken_broker(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Simulator, "violate", lambda simulator, what: None)
    for seed in NOTICED[name]:
        with CollectorPaused(), applied(name), recovery_within(REST_S):
            run = SeedRun(seed, MUTANTS[name].profile)
            run.run()
            report = judged(run.operations(), has_final_read=False)
        if report.forbidden:
            assert "inconsistent-offsets" in report.forbidden or "lost-write" in report.forbidden
            return
    pytest.fail(f"clients noticed nothing of {name} in the seeds {NOTICED[name]}")


def test_a_run_records_what_all_its_clients_did() -> None:
    recorded: list[Operation] = []
    result = run_seed(3, on_history=recorded.extend)
    assert not result.violation
    report = judged(recorded, has_final_read=True)
    assert report.is_sound
    assert report.sent_records >= result.counters["acknowledged records"] > 0
    assert report.polled_records > 0
    kinds = dict.fromkeys(each.kind for each in recorded)
    assert kinds.keys() >= {"send", "poll", "assign", "subscribe", "commit"}
    begins = [each.begin for each in recorded]
    assert begins == sorted(begins)
