"""The words of `topics describe` for replicas that are out of sync."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidelog.cli.describing import _CAUSES, _why_out
from tidelog.cli.documents import ReplicaDescription
from tidelog.core.shrink_causes import ShrinkCause

OUT = ReplicaDescription(
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
    words = _CAUSES[cause]
    assert words
    assert (_why_out(replace(OUT, out_cause=cause.word)) or "").startswith(words)
