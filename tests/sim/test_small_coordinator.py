"""The small world of a coordinator: it holds, repeats, and finds broken rules within seconds."""

from __future__ import annotations

import pytest
from tests.support.mutants import LINES, MUTANTS, LineMutant, Mutant

from tidelog.sim.small import coordinator
from tidelog.sim.small.coordinator import CoordinatorHistory
from tidelog.sim.small.coordinator_rarities import RARE_STATES
from tidelog.sim.small.coordinator_world import COORDINATOR_STEPS
from tidelog.sim.small.small_world import WORLDS, small_world

SEEDS = 30
#: Seeds within which each broken rule is found.
MOST_SEEDS = 120
CLASSIC = "tidelog/group/classic"


def mutant(name: str, file: str, old: str, new: str) -> LineMutant:
    return LineMutant(name, "G1", file, old, new)


#: Rules of groups, broken in one line each.
BROKEN = [
    mutant(
        "any_generation_beats",
        f"{CLASSIC}/membership.py",
        "if error is ErrorCode.NONE and message.generation_id != group.generation_id:",
        "if error is ErrorCode.NONE and message.generation_id > group.generation_id:",
    ),
    mutant(
        "assignment_of_the_former_leader",
        f"{CLASSIC}/rebalancing.py",
        '        member.assignment = assignments.get(member.member_id, b"")',
        '        member.assignment = member.assignment or b""',
    ),
    mutant(
        "sessions_end_early",
        "tidelog/group/turn.py",
        "        session.deadline_ms = self.now.monotonic_ms + timeout_ms",
        "        session.deadline_ms = self.now.monotonic_ms + timeout_ms // 2",
    ),
    mutant(
        "old_id_of_a_static_member",
        f"{CLASSIC}/classic_group.py",
        "            if known is not None and known != member_id:",
        "            if known is not None and not known:",
    ),
    mutant(
        "waiting_join_forgotten",
        f"{CLASSIC}/membership.py",
        "        waits.end_join(turn, group, member, join_error(error))",
        "        pass",
    ),
    mutant(
        "expired_while_used",
        f"{CLASSIC}/classic_group.py",
        "        if self.protocol_type is None:\n            return offset.commit_timestamp_ms\n",
        "        if True:\n            return offset.commit_timestamp_ms\n",
    ),
    LINES["loaded_to_hw_only"],
    LINES["offsets_acked_before_replicated"],
    MUTANTS["coordinator_goes_on"],
    MUTANTS["generation_unchecked"],
    MUTANTS["fenced_instance_commits"],
]


def first_violation(seeds: range) -> CoordinatorHistory | None:
    for seed in seeds:
        history = coordinator.play(seed)
        if history.violation:
            return history
    return None


def test_every_history_holds_and_every_kind_of_steps_and_rare_states_happens() -> None:
    done: set[str | int] = set()
    rare: set[str] = set()
    for seed in range(SEEDS):
        for history in coordinator.histories(seed):
            assert not history.violation, "\n".join(coordinator.shrunk(history).story())
            done |= {step[0] for step in history.steps}
            rare.add(history.path.partition(" ")[0])
    assert sorted(map(str, done)) == sorted(COORDINATOR_STEPS)
    assert rare >= {"", "zombie", "loading", "storing", "stable", "two_members", "dead"}
    assert rare - {""} <= RARE_STATES.keys()


@pytest.mark.soak
def test_every_history_of_many_seeds_holds() -> None:
    broken = first_violation(range(SEEDS, 50 * SEEDS))
    assert broken is None, "\n".join(coordinator.shrunk(broken).story())


def test_a_seed_plays_the_same_histories_again() -> None:
    for seed in range(2):
        assert list(coordinator.histories(seed)) == list(coordinator.histories(seed))


@pytest.mark.parametrize("mutant", BROKEN, ids=lambda mutant: mutant.name)
def test_a_broken_rule_is_found_and_described(mutant: LineMutant | Mutant) -> None:
    with mutant.in_force():
        broken = first_violation(range(MOST_SEEDS))
        assert broken is not None, f"{mutant} survived {MOST_SEEDS} seeds"
        short = coordinator.shrunk(broken)
        assert short.violation and len(short.steps) <= len(broken.steps)
        again = coordinator.replayed(short.seed, short.settings, short.steps, short.recovers)
        assert again.violation == short.violation
    sound = coordinator.replayed(short.seed, short.settings, short.steps, short.recovers)
    assert sound.violation == ""


def test_the_world_is_one_of_the_small_worlds_and_describes_a_history_by_its_path() -> None:
    world = small_world("coordinator")
    assert world.name in WORLDS
    with LINES["offsets_acked_before_replicated"].in_force():
        seed = next(seed for seed in range(MOST_SEEDS) if world.play(seed).violations)
        violation = world.play(seed).violations[0]
        lines: list[str] = []
        again = world.play(seed, violation.path, lines.append)
    assert again.violations == [violation]
    assert lines[-1].strip().startswith("->") and len(lines) > 2
    lines.clear()
    sound = coordinator.play(seed)
    world.play(seed, f"step {len(sound.steps)}", lines.append)
    assert lines[-1].endswith("all holds")
    with pytest.raises(ValueError, match="has no history"):
        world.play(seed, "nowhere")
