"""Brokers with one rule broken are killed, each under a profile that makes its moment common.

The recorded seed must kill the mutant, and shows nothing without it until then. Where
`test_seeds.py` runs the same seed to its end, that is proven there. A cluster that does not recover
is given up after `RECOVERY_S`, with the mutant and without. Kills of more than `AFFORDABLE_EVENTS`
are replayed by `make soak`, unless a mutant is `REQUIRED`. What a seed does changes with every
change of the brokers: `python -m tests.support.mutants record NAME` records another one, and `make
soak` counts the seeds that kill each. What no seed shows must be found by a model
(`tests/model/test_variants.py`).
"""

from __future__ import annotations

import re
from functools import cache

import pytest
from tests.sim.test_seeds import OTHER_PROFILES, OTHER_SEEDS
from tests.support.mutants import MUTANTS, kills
from tests.support.mutants.kills import SOUND_SEED, Kill
from tests.support.mutants.lines import ROOT
from tests.support.mutants.page import variants
from tests.support.mutants.trials import not_running

PROOF = ROOT / "docs" / "internals" / "proof.md"
KILLS = kills.load()
BY_SEEDS = [name for name, mutant in MUTANTS.items() if not mutant.why_no_seed]
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
#: All of them: `make test` replays those whose kill it can afford and those required, `make soak`
#: the others.
REPLAYED = [
    pytest.param(
        name,
        marks=[]
        if name in REQUIRED.values() or kills.is_affordable(name, kill)
        else [pytest.mark.soak],
    )
    for name, kill in KILLS.items()
]


def test_every_mutant_has_a_recorded_seed_or_a_model_that_finds_it() -> None:
    assert list(KILLS) == BY_SEEDS
    assert [name for name in MUTANTS if name not in KILLS and not list(variants(name))] == []


def test_the_page_of_proofs_names_mutants_that_are_there() -> None:
    """In the second column of its table of clients and disks that misbehave."""
    table = PROOF.read_text(encoding="utf-8").partition("### Clients and disks that misbehave")[2]
    rows = [line.split("|") for line in table.partition("\n#")[0].splitlines() if "|" in line]
    named = re.findall(r"`(\w+)`", " ".join(cells[2] for cells in rows))
    assert len(named) > 20
    assert [name for name in named if name not in MUTANTS] == []


def test_the_required_mutants_are_there_and_others() -> None:
    assert [name for name in REQUIRED.values() if name not in MUTANTS] == []
    assert len(set(MUTANTS) - set(REQUIRED.values())) >= 10


def test_a_whole_run_of_the_sound_seed_is_made_under_each_profile() -> None:
    whole = [each.values for each in OTHER_SEEDS if not each.marks]
    assert [name for name in OTHER_PROFILES if (name, SOUND_SEED) not in whole] == []


@cache
def violation_without(profile: str, seed: int, only: str, events: int) -> str:
    """Return the violation of a seed without a mutant, up to an event."""
    return kills.run_without(profile, seed, only, events).violation


def shown_without(name: str, killed: Kill) -> str:
    """Return the violation of a kill's run without its mutant, up to the event of the kill."""
    if kills.is_sound_elsewhere(name, killed):
        return ""
    run = (MUTANTS[name].profile, killed.seed, killed.only)
    # Mutants that the same run kills share the run without them, unless it has to recover in time.
    others = [
        kill.events
        for other, kill in KILLS.items()
        if (MUTANTS[other].profile, kill.seed, kill.only) == run and not kill.is_late
    ]
    return violation_without(*run, max([killed.events, *([] if killed.is_late else others)]))


@pytest.mark.parametrize("name", REPLAYED)
def test_a_mutant_is_killed_and_only_the_mutant(name: str) -> None:
    recorded = KILLS[name]
    run = f"{recorded.seed} {recorded.only} of {MUTANTS[name].profile}"
    result = kills.run_with(name, recorded.seed, recorded.only)
    again = f"python -m tests.support.mutants record {name}"
    assert result.violation, f"{name} survived {run}: {again}"
    assert not not_running(result.violation), f"{name} does not run: {result.violation}"
    killed = recorded._replace(events=result.events, violation=result.violation)
    assert shown_without(name, killed) == ""
