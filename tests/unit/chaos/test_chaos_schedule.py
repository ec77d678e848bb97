"""What the chaos draws from a seed, and that it notices clients that hang or end."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from tests.support.chaos import crew as crews
from tests.support.chaos.crew import Crew, Member
from tests.support.chaos.events import EventLog, EventReader
from tests.support.chaos.schedule import AWAY, FULL, draw
from tests.support.chaos.sessions import password_of

KINDS = (*AWAY, FULL)
SESSION_S = 3.0


def test_a_seed_draws_the_same_faults_each_time_and_another_one_others() -> None:
    assert draw(7, 600, SESSION_S, KINDS, 6) == draw(7, 600, SESSION_S, KINDS, 6)
    assert draw(7, 600, SESSION_S, KINDS, 6) != draw(8, 600, SESSION_S, KINDS, 6)


@pytest.mark.parametrize("seed", range(20))
def test_a_schedule_keeps_the_budget(seed: int) -> None:
    """One broker is away at a time, and one disk is full at a time."""
    faults = draw(seed, 600, SESSION_S, KINDS, 6)
    for kinds in (AWAY, (FULL,)):
        of_kinds = [fault for fault in faults if fault.kind in kinds]
        assert all(one.end_s < other.begin_s for one, other in pairwise(of_kinds))
    assert {fault.kind for fault in faults[: 2 * len(KINDS)]} == set(KINDS)
    meanwhile = [
        (full, other)
        for full, other in pairwise(faults)
        if full.kind == FULL and other.begin_s < full.end_s
    ]
    assert meanwhile
    assert all(other.target == "another leader" for _, other in meanwhile)


def test_a_session_password_is_what_a_server_derives_from_the_id() -> None:
    """Sixteen bytes of `new java.util.Random(id ^ 0xB3415C00L)`."""
    assert password_of(0x100001537A50003).hex() == JAVA_BYTES


#: Written by Java 17 for this id.
JAVA_BYTES = "9e6eb7ed4a1a95388229715a70d8da66"


@pytest.fixture
def crew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Crew]:
    """One without clients."""
    monkeypatch.setattr(crews, "PRODUCERS", ())
    monkeypatch.setattr(crews, "CONSUMERS", ())
    made = Crew(tmp_path / "clients", "127.0.0.1:1")
    yield made
    made.close()


def add_client(crew: Crew, directory: Path, code: str) -> Member:
    path = directory / "client.jsonl"
    EventLog(path).add("send", 0, 0)
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE)
    member = Member("p", "confluent-plain", "", child, EventReader(path), directory / "log")
    crew.members.append(member)
    return member


def test_a_client_that_makes_no_step_is_hung(crew: Crew, tmp_path: Path) -> None:
    member = add_client(crew, tmp_path, "import sys; sys.stdin.read()")
    stuck = crew.await_all([member], lambda each: each.acknowledged > 0, "step", 0.5)
    assert stuck == [member]
    assert "p is hung: for " in crew.troubles[0]
    assert "no step (sent 1, acknowledged 0" in crew.troubles[0]


def test_a_client_that_ended_early_is_told_with_its_code(crew: Crew, tmp_path: Path) -> None:
    member = add_client(crew, tmp_path, "raise SystemExit(4)")
    assert crew.finish([member], 30.0) == [member]
    assert crew.troubles[0].startswith("p ended with code 4: no end in order")
