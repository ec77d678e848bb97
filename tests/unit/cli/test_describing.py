"""The words of `topics describe` for replicas that are out of sync."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidelog.cli.describing import _why_frozen, _why_out
from tidelog.cli.documents import PartitionDescription
from tidelog.client.replica_requests import ReplicaProgress
from tidelog.core.shrink_causes import ShrinkCause

OUT = ReplicaProgress(
    broker=3,
    leader=False,
    in_isr=False,
    registered=True,
    log_start_offset=0,
    log_end_offset=10,
    lag_records=1_234,
    lag_ms=40_000,
    last_caught_up_ms=0,
    last_fetch_ms=0,
    pending_reads=0,
    out_cause="slow",
    out_since_ms=1_700_000_000_000,
)
LEADER = replace(OUT, broker=1, leader=True, in_isr=True, out_cause=None, out_since_ms=None)
PARTITION = PartitionDescription(
    topic="t",
    partition=0,
    leader=1,
    leader_epoch=5,
    replicas=(1, 2, 3),
    isr=(1, 2),
    offline=(),
    high_watermark=7,
    elr=(3,),
    last_known_elr=(),
    no_leader=None,
    quorum=None,
    members=None,
    max_lag_ms=30_000,
    replica_progress=[LEADER, OUT],
)


def test_it_says_for_which_eligible_replicas_a_leader_waits() -> None:
    line = _why_frozen(PARTITION)
    assert line is not None
    assert line.startswith("no record is committed before eligible replicas 3 are back in the ISR")


@pytest.mark.parametrize(
    "other",
    [
        replace(PARTITION, elr=()),
        replace(PARTITION, elr=None),
        replace(PARTITION, replica_progress=None),
        replace(PARTITION, replica_progress=[OUT]),
    ],
    ids=["none eligible", "not known", "no answer of the leader", "no leader"],
)
def test_it_says_nothing_where_no_leader_of_tidelog_waits(other: PartitionDescription) -> None:
    assert _why_frozen(other) is None


def test_it_says_why_since_when_and_how_much_is_left() -> None:
    assert _why_out(OUT) == (
        "slow: it fetches, but does not catch up, since 2023-11-14T22:13:20Z; 1,234 records to go"
    )


def test_a_replica_that_is_not_registered_has_nothing_to_go() -> None:
    gone = replace(OUT, registered=False, out_cause="session", out_since_ms=None)
    assert _why_out(gone) == "its broker's session ended"


def test_a_member_of_the_isr_has_no_reason() -> None:
    assert _why_out(replace(OUT, in_isr=True, out_cause=None)) is None


@pytest.mark.parametrize("cause", list(ShrinkCause))
def test_every_cause_has_words(cause: ShrinkCause) -> None:
    words = cause.sentence
    assert words
    assert (_why_out(replace(OUT, out_cause=cause.word)) or "").startswith(words)
