"""The small world of a leader and its followers: it holds, repeats, and finds broken rules.

Each broken rule must be found within a bounded number of seeds, from nothing; the story that is
left after shrinking shows it again, and only with the broken rule.
"""

from __future__ import annotations

import pytest
from tests.support.mutants import LINES, LineMutant

from tidelog.sim.small import replica_set
from tidelog.sim.small.replica_set import ReplicaSetHistory
from tidelog.sim.small.replica_set_world import STEP_KINDS
from tidelog.sim.small.small_world import WORLDS, small_world

SEEDS = 60
#: Seeds within which each broken rule is found.
MOST_SEEDS = 400
ISR = "tidelog/replication/isr.py"
LEADER = "tidelog/replication/leader.py"

#: Rules broken in ways that whole runs did not find within minutes.
HIDDEN = [
    LineMutant(
        "counted_before_the_watermark",
        "V63",
        LEADER,
        "if isr_rules.reached(end, self.high_watermark, self.epoch_start_offset):",
        "if True:",
    ),
    LineMutant(
        "read_of_a_laggard_counts",
        "F5",
        "tidelog/replication/progress.py",
        "            and self.reached_previous_end\n",
        "            and True\n",
    ),
    LineMutant(
        "refusal_drops_every_change",
        "A8",
        ISR,
        "    left = tuple(other for other in state.in_flight if other != change)",
        "    left: tuple[IsrChange, ...] = ()",
    ),
    LineMutant(
        "answer_of_an_earlier_state",
        "A9",
        LEADER,
        "if leader_epoch != self.leader_epoch or partition_epoch < self.isr.partition_epoch:",
        "if leader_epoch != self.leader_epoch:",
    ),
    LineMutant(
        "superseded_change_forgotten",
        "A8",
        ISR,
        "    earlier = tuple(other for other in state.in_flight if other != change)",
        "    earlier: tuple[IsrChange, ...] = ()",
    ),
]
#: Rows of the table of mutants; one of each rule that the world knows.
TABLED = [
    "truncate_to_high_watermark",
    "expand_without_epoch_rule",
    "acknowledged_before_the_flush",
    "union_is_last_change",
    "withdrawal_drops_sent_change",
    "pending_moves_watermark",
]
#: What takes the search more than three CPU seconds.
LATE = ["answer_of_an_earlier_state"]
FOUND = [*HIDDEN, *(LINES[name] for name in TABLED)]


def first_violation(seeds: range) -> ReplicaSetHistory | None:
    for seed in seeds:
        history = replica_set.play(seed)
        if history.violation:
            return history
    return None


def test_every_history_holds_and_every_kind_of_steps_happens() -> None:
    done: set[str | int] = set()
    for seed in range(SEEDS):
        for history in replica_set.histories(seed):
            assert not history.violation, "\n".join(replica_set.shrunk(history).story())
            done |= {step[0] for step in history.steps}
    assert sorted(map(str, done)) == sorted(STEP_KINDS)


@pytest.mark.soak
def test_every_history_of_many_seeds_holds() -> None:
    broken = first_violation(range(SEEDS, 60 * SEEDS))
    assert broken is None, "\n".join(replica_set.shrunk(broken).story())


def test_a_seed_plays_the_same_histories_again() -> None:
    for seed in range(3):
        assert list(replica_set.histories(seed)) == list(replica_set.histories(seed))


def test_all_orders_of_two_steps_hold_after_the_beginnings_of_histories() -> None:
    for seed in range(4):
        explored = replica_set.explore(seed, length=10 * seed, depth=2)
        assert not explored.violation, "\n".join(explored.story())
        assert explored.orders > 50


@pytest.mark.soak
def test_all_orders_of_three_steps_hold_after_the_beginnings_of_histories() -> None:
    for seed in range(100, 112):
        explored = replica_set.explore(seed, length=seed - 100, depth=3)
        assert not explored.violation, "\n".join(explored.story())


@pytest.mark.parametrize(
    "mutant",
    [
        pytest.param(mutant, marks=[pytest.mark.soak] if mutant.name in LATE else [])
        for mutant in FOUND
    ],
    ids=lambda mutant: mutant.name,
)
def test_a_broken_rule_is_found_and_told(mutant: LineMutant) -> None:
    with mutant.in_force():
        broken = first_violation(range(MOST_SEEDS))
        assert broken is not None, f"{mutant} survived {MOST_SEEDS} seeds"
        short = replica_set.shrunk(broken)
        assert short.violation and len(short.steps) <= len(broken.steps)
        again = replica_set.replayed(short.seed, short.settings, short.steps)
        assert again.violation == short.violation
    sound = replica_set.replayed(short.seed, short.settings, short.steps)
    assert sound.violation == ""


def test_the_world_is_one_of_the_small_worlds_and_tells_a_history_by_its_path() -> None:
    world = small_world("replicas")
    assert world.name in WORLDS
    with HIDDEN[0].in_force():
        seed = next(seed for seed in range(MOST_SEEDS) if world.play(seed).violations)
        violation = world.play(seed).violations[0]
        lines: list[str] = []
        again = world.play(seed, violation.path, lines.append)
    assert again.violations == [violation]
    assert lines[-1].strip().startswith("->") and len(lines) > 2
    assert world.play(seed).violations == []
    lines.clear()
    sound = replica_set.play(seed)
    world.play(seed, f"step {len(sound.steps)}", lines.append)
    assert lines[-1].endswith("all holds")
    with pytest.raises(ValueError, match="has no history"):
        world.play(seed, "nowhere")
