"""`tidelog sim small`: seeds, violations with the command that repeats them, exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from tests.support.cli import run

from tidelog.sim.small import small_world
from tidelog.sim.small.small_world import PlayedSeed, SmallViolation


class MadeUpWorld:
    """Seed 3 shows a violation; every seed has ten histories."""

    name = "log"
    description = "made up"

    def __init__(self) -> None:
        self.played: list[tuple[int, str]] = []

    def play(
        self, seed: int, only: str = "", say: Callable[[str], None] | None = None
    ) -> PlayedSeed:
        self.played.append((seed, only))
        if only == "nowhere":
            raise ValueError("no such path")
        if say is not None:
            say("append 0..1")
        found = [SmallViolation("7:all", "V39: lost")] if seed == 3 else []
        return PlayedSeed(10, found)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> MadeUpWorld:
    made_up = MadeUpWorld()
    monkeypatch.setattr(small_world, "small_world", lambda name: made_up)
    return made_up


def test_quiet_seeds_are_summed_up(
    world: MadeUpWorld, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "sim", "small", "--seeds", "0..2") == 0
    assert world.played == [(0, ""), (1, ""), (2, "")]
    assert capsys.readouterr().out.startswith("world log: 3 seeds, 30 histories, ")


def test_a_violation_is_one_and_comes_with_its_command(
    world: MadeUpWorld, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "sim", "small", "--seeds", "2..9", "--first") == 1
    assert [seed for seed, _ in world.played] == [2, 3]
    shown = capsys.readouterr().err
    assert "VIOLATION seed 3, 7:all: V39: lost" in shown
    assert 'tidelog sim small --world log --seeds 3 --only "7:all"' in shown


def test_json_is_one_document(
    world: MadeUpWorld, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "sim", "small", "--seeds", "3..4", "-o", "json") == 1
    document = json.loads(capsys.readouterr().out)
    assert document.pop("cpu_s") >= 0
    violation = {"seed": 3, "path": "7:all", "what": "V39: lost"}
    assert document == {"seeds": 2, "histories": 20, "violations": [violation]}


def test_minutes_go_on_after_the_first_seed(
    world: MadeUpWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(monkeypatch, "sim", "small", "--seeds", "4", "--minutes", "0.0005") == 0
    assert [seed for seed, _ in world.played] == list(range(4, 4 + len(world.played)))
    assert len(world.played) > 1


def test_one_history_is_described(
    world: MadeUpWorld, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "sim", "small", "--seeds", "3", "--only", "7:all") == 1
    assert capsys.readouterr().out == "append 0..1\n"
    assert run(monkeypatch, "sim", "small", "--seeds", "4", "--only", "7:all") == 0
    assert capsys.readouterr().out == "append 0..1\nno violation\n"
    assert world.played == [(3, "7:all"), (4, "7:all")]


@pytest.mark.usefixtures("world")
def test_wrong_usage_is_two(monkeypatch: pytest.MonkeyPatch) -> None:
    for words in (
        ("--world", "none"),
        ("--seeds", "0..4", "--only", "7:all"),
        ("--seeds", "4", "--only", "7:all", "--minutes", "1"),
        ("--seeds", "4", "--only", "7:all", "-o", "json"),
        ("--seeds", "4", "--only", "nowhere"),
        ("--mutant", "none"),
    ):
        assert run(monkeypatch, "sim", "small", *words) == 2
