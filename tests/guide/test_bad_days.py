"""The guide to bad days, typed on a local cluster: nothing is lost but what the page says."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pytest
from tests.guide.documents import PATIENCE_S, ROOT, Terminal, end, sections

GUIDE = sections(ROOT / "docs" / "guide" / "operate" / "bad-days.md")
TYPED = {word: text for each in GUIDE.values() for word, text in each.named.items()}


def fails(terminal: Terminal, word: str) -> str:
    """Type a block that must fail; return all that it printed."""
    running = terminal.start(TYPED[word])
    try:
        output, errors = running.communicate(timeout=PATIENCE_S)
    finally:
        end(running)
    assert running.returncode != 0, f"{TYPED[word]}{output}{errors}"
    return output + errors


def until_it_shows(terminal: Terminal, command: str, expected: str) -> None:
    """Type a command until the cluster has noticed what happened to it."""
    deadline = time.monotonic() + PATIENCE_S
    while expected not in (printed := terminal.run(f"{command} || true\n")):
        assert time.monotonic() < deadline, f"$ {command}\n{printed}\nmissing: {expected}"


def read(terminal: Terminal, topic: str = "flights") -> Counter[int]:
    return Counter(map(int, terminal.run(f"tidelog consume {topic} -o beginning -e\n").split()))


def up_to(last: int) -> Counter[int]:
    return Counter(range(1, last + 1))


@pytest.mark.soak
def test_brokers_that_die_hang_and_restart_lose_nothing(terminal: Terminal) -> None:
    terminal.run(TYPED["begin"])
    assert "healthy: 3 of 3 brokers" in terminal.run(TYPED["look"])

    terminal.run(TYPED["gone"])
    until_it_shows(terminal, "tidelog health", "out of the ISR: broker 3")
    until_it_shows(
        terminal, "tidelog topics describe flights --replicas", "its broker's session ended"
    )
    terminal.run(TYPED["back"])

    terminal.run(TYPED["few"])
    until_it_shows(terminal, "tidelog health", "acks=all is refused")
    assert "NOT_ENOUGH_REPLICAS" in fails(terminal, "refused")
    assert Counter(map(int, terminal.run(TYPED["read"]).split())) == up_to(2000)
    terminal.run(TYPED["enough"])

    terminal.run(TYPED["hangs"])
    until_it_shows(terminal, "tidelog health", "broker 2 is not registered")
    terminal.run(TYPED["resumes"])
    assert read(terminal) == up_to(4000)

    terminal.run(TYPED["restart"])
    assert "3.3" in terminal.run(TYPED["lower"])
    terminal.run(TYPED["raise"])
    assert read(terminal) == up_to(4000)
    terminal.run(TYPED["end"])


@pytest.mark.soak
def test_an_unclean_election_loses_what_only_the_last_leader_had(terminal: Terminal) -> None:
    terminal.run(TYPED["begin"])
    terminal.run(TYPED["single"])
    until_it_shows(terminal, TYPED["waits"].strip(), "awaiting broker 1")
    printed = terminal.run(TYPED["unclean"])
    assert "elected" in printed
    assert read(terminal, "notes") == up_to(100)
    terminal.run(TYPED["returns"])
    assert read(terminal, "notes") == up_to(100), "the last leader truncates to match"
    assert read(terminal) == up_to(1000)


@pytest.mark.soak
def test_the_last_leader_that_returns_brings_its_records(terminal: Terminal) -> None:
    terminal.run(TYPED["begin"])
    terminal.run(TYPED["single"])
    until_it_shows(terminal, TYPED["waits"].strip(), "awaiting broker 1")
    terminal.run(TYPED["returns"])
    assert read(terminal, "notes") == up_to(200)


def test_every_block_of_the_guide_is_typed() -> None:
    text = Path(__file__).read_text(encoding="utf-8")
    assert [word for word in TYPED if f'"{word}"' not in text] == []
