"""Brokers with one rule broken are caught, each under a profile that makes its moment common.

The recorded seed must catch it, and shows nothing without the mutant until then. A cluster that
does not recover is given up sooner than in the record, with the mutant and without. What a seed
does changes with every change of the brokers: `python -m tests.sim.mutant_table --search NAME`
records another seed, and `make soak` counts the seeds that catch each
(`python -m tests.support.mutants`).
What no seed shows must be found by a model (`tests/model/test_variants.py`).
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
from tests.sim.mutant_table import load
from tests.sim.runs import recovery_within
from tests.support.models.variants import finding
from tests.support.mutants import MUTANTS, importable
from tests.support.mutants.failures import not_running

from tidelog.sim.run import run_seed

PROOF = Path(__file__).resolve().parents[2] / "docs" / "internals" / "proof.md"
KILLS = load()
#: Virtual seconds; what recovers in a minute and not in these is found by `make soak`.
RECOVERY_S = 15
CAUGHT = [name for name, mutant in MUTANTS.items() if not mutant.uncaught]

#: The rules that must not be broken unnoticed, whatever others are thought of.
REQUIRED = {
    "truncate to the high watermark": "truncate_to_high_watermark",
    "KIP-101 only": "kip101_only",
    "KIP-279 only": "kip279_only",
    "fetches are not fenced by leader epoch": "fetch_epoch_unfenced",
    "truncation is not fenced": "truncation_unfenced",
    "high watermark of the confirmed ISR, not the maximal": "watermark_of_confirmed_isr",
    "joining without the start of the leader epoch": "expand_without_epoch_rule",
    "a shrink counts at once": "optimistic_shrink",
    "a pending expansion does not count": "pending_expand_ignored",
    "partition epoch not checked": "partition_epoch_unchecked",
    "older command of the same leader epoch": "older_command_of_epoch_obeyed",
    "stale broker epoch": "stale_broker_epoch_obeyed",
    "bounce unnoticed": "bounce_unnoticed",
    "acknowledged before replicas have it": "ack_before_replication",
    "state of followers kept across leaderships": "follower_state_kept",
    "an empty replica leads": "empty_replica_leads",
    "stale answer to a fetch": "stale_fetch_answer_applied",
    "sequence window off by one": "sequence_window_off_by_one",
    "controller writes without its epoch": "controller_epoch_unchecked",
    "writes of an expired session": "expired_session_writes",
    "strays of a topic that could not be read": "unreadable_topic_is_stray",
    "offsets acknowledged before they are replicated": "offsets_acked_before_replicated",
}


def test_every_mutant_has_a_recorded_seed_or_a_model_that_finds_it() -> None:
    assert list(KILLS) == CAUGHT
    assert [name for name in MUTANTS if name not in KILLS and not finding(name)] == []


def test_the_page_of_proofs_names_each_mutant_with_its_profile() -> None:
    """Rows of its tables: a defect, its mutants, and the profile whose seeds catch them."""
    named = {
        mutant: cells[3]
        for line in PROOF.read_text(encoding="utf-8").splitlines()
        if len(cells := line.split("|")) > 4 and "simulator, " in cells[3]
        for mutant in re.findall(r"`(\w+)`", cells[2])
    }
    assert len(named) > 20
    wrong = {name: told for name, told in named.items() if f"`{MUTANTS[name].profile}`" not in told}
    assert wrong == {}


def test_the_required_mutants_are_there_and_others() -> None:
    assert [name for name in REQUIRED.values() if name not in MUTANTS] == []
    assert len(set(MUTANTS) - set(REQUIRED.values())) >= 10


@cache
def _shows_without(seed: int, profile: str, events: int) -> str:
    with recovery_within(RECOVERY_S):
        return run_seed(seed, profile, limit_events=events).violation


@pytest.mark.parametrize("name", CAUGHT)
def test_a_mutant_is_caught_and_only_the_mutant(name: str) -> None:
    profile, recorded = MUTANTS[name].profile, KILLS[name].seed
    with recovery_within(RECOVERY_S):
        killed = run_seed(recorded, profile, importable(name))
    again = f"python -m tests.sim.mutant_table --search {name}"
    assert killed.violation, f"{name} survived seed {recorded} of {profile}: {again}"
    assert not not_running(killed.violation), f"{name} does not run: {killed.violation}"
    assert _shows_without(recorded, profile, killed.events) == ""
