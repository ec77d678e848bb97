"""Churn in whole runs: every kind gets somewhere, and what is told wrongly is noticed."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Any

import pytest
from tests.support.mutants.kills import recovery_within

from tidelog.client.fetching import LogReader
from tidelog.client.groups import GroupAdmin
from tidelog.client.upkeep import ElectionResult, PartitionAdmin
from tidelog.controller.image import Image
from tidelog.controller.records import Topic
from tidelog.controller.topics import edits
from tidelog.controller.topics.changes import TopicFound
from tidelog.core.errors import ErrorCode
from tidelog.sim.profiles import PROFILES, SWARM, Pace, Profile
from tidelog.sim.profiles.profile import properties_of
from tidelog.sim.results import RunResult
from tidelog.sim.run import SeedRun, run_seed
from tidelog.sim.workload import churning
from tidelog.sim.workload.churn_kinds import CHURN, ChurnKind

#: Kinds that take from others what these need: their own profiles play them.
ALONE = ("crowds", "moves_redirected", "topics_mislaid")
#: One run with all kinds takes minutes: its topics grow, and checkers look at all of them.
PARTS = 4
#: Tried until every kind of a part got somewhere.
SEEDS = range(3, 9)
#: The seed that a part tries first, if others get less far.
FIRST = {3: 5}


def runs(
    monkeypatch: pytest.MonkeyPatch, seed: int, kinds: list[str], weights: dict[str, float]
) -> RunResult:
    """A run with these kinds of churn and no others."""
    profile = Profile(
        "churn",
        weights=weights,
        pace=Pace(left_out=0.0, interval_ms=(400, 500)),
        properties=properties_of(
            "log.cleaner.backoff.ms=40, log.cleaner.io.buffer.size=1024,"
            " log.cleaner.dedupe.buffer.size=2048"
        ),
        recreates=0.0,
        churn_share=1.0,
        churn=tuple(kinds),
    )
    monkeypatch.setitem(PROFILES, profile.name, profile)
    # A copy: kinds put back one by one would stand in another order, which later runs depend on.
    wanted = {name: kind for name, kind in CHURN.items() if name in kinds}
    monkeypatch.setattr(churning, "CHURN", wanted)
    return run_seed(seed, profile.name)


@pytest.mark.parametrize("part", range(PARTS))
def test_every_kind_gets_somewhere_and_breaks_nothing(
    monkeypatch: pytest.MonkeyPatch, part: int
) -> None:
    """Many kinds at once meet in the swarm; here each has clients to itself."""
    kinds = [name for name in CHURN if name not in ALONE][part::PARTS]
    missing = list(kinds)
    for seed in sorted(SEEDS, key=lambda each: each != FIRST.get(part)):
        with monkeypatch.context() as patch:
            result = runs(patch, seed, kinds, {"slow_link": 2.0, "crash_any": 1.0})
        assert not result.violation, f"seed {seed}: {result.violation}"
        missing = [name for name in missing if not result.churn[name]]
        if not missing:
            return
    pytest.fail(f"{missing} got nowhere")


def test_crowds_get_somewhere_and_break_nothing() -> None:
    result = run_seed(3, "crowded")
    assert not result.violation, result.violation
    assert result.churn["crowds"]


def test_topics_are_mislaid_and_nothing_breaks() -> None:
    result = run_seed(0, "mislaid_topics")
    assert not result.violation, result.violation
    assert result.churn["topics_mislaid"]


def test_moves_are_redirected_and_nothing_breaks() -> None:
    result = run_seed(2922, SWARM)
    assert not result.violation, result.violation
    assert result.churn["moves_redirected"]


def altered(operation: Any, change: Callable[[Any], Any]) -> Generator[Any, Any, Any]:
    """An operation of the client package whose result is told otherwise."""
    return change((yield from operation))


def test_an_offset_that_is_lost_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    committed = GroupAdmin.committed

    def forgetful(self: GroupAdmin, *arguments: Any) -> Any:
        return altered(committed(self, *arguments), lambda offsets: dict(list(offsets.items())[1:]))

    monkeypatch.setattr(GroupAdmin, "committed", forgetful)
    result = runs(monkeypatch, 1, ["offsets_deleted"], {"slow_link": 1.0})
    assert "group ledger got offset -1 for" in result.violation


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("records_deleted", "the log start of trimmed-0 is"),
        ("offsets_looked_up", "got a response: steady-"),
    ],
)
@pytest.mark.parametrize("by", [-1, 1_000_000])
def test_an_offset_that_is_too_small_or_too_large_is_noticed(
    monkeypatch: pytest.MonkeyPatch, by: int, kind: str, told: str
) -> None:
    list_offsets = LogReader.list_offsets

    def shifted(self: LogReader, *arguments: Any) -> Any:
        def shift(listed: Any) -> Any:
            return {tp: one._replace(offset=one.offset + by) for tp, one in listed.items()}

        return altered(list_offsets(self, *arguments), shift)

    monkeypatch.setattr(LogReader, "list_offsets", shifted)
    assert told in runs(monkeypatch, 1, [kind], {"slow_link": 1.0}).violation


def test_an_election_that_never_was_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    elect_leaders = PartitionAdmin.elect_leaders

    def boastful(self: PartitionAdmin, *arguments: Any) -> Any:
        def boast(results: Any) -> Any:
            return dict.fromkeys(results, ElectionResult(ErrorCode.NONE, ""))

        return altered(elect_leaders(self, *arguments), boast)

    monkeypatch.setattr(PartitionAdmin, "elect_leaders", boastful)
    weights = {"crash_leader": 3.0, "crash_any": 2.0}
    violations = (
        runs(monkeypatch, seed, ["leaders_elected"], weights).violation for seed in range(3)
    )
    assert any("was reported as elected" in violation for violation in violations)


@pytest.mark.rule("V25")
def test_edited_nodes_are_adopted_named_and_mended() -> None:
    """Of two seeds, that every sort of edit was made, and that what was wrong was named."""
    lines: list[str] = []
    for seed in (0, 5):
        run = SeedRun(seed, "edited_nodes", listener=lines.append)
        assert not run.run().violation
    for what in (
        "created by its node",
        "written into its node",
        "removed from its node",
        "deleted with",
    ):
        assert any("churn kind=nodes_edited" in line and what in line for line in lines), what
    edits = [line for line in lines if " event scribbled path=" in line]
    assert len(edits) >= 8
    assert any("/state " in line for line in edits) and any("edited " in line for line in edits)
    named = [line for line in lines if "store_edit_refused" in line or "unreadable_node" in line]
    assert len(named) >= 4


def test_an_edit_that_nobody_carries_out_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    adopt = edits.adopt

    def refuse(before: Topic, found: TopicFound, image: Image) -> edits.Adopted:
        adopted = adopt(before, found, image)
        kept = replace(adopted.found.topic, assignments=before.assignments)
        return edits.Adopted(TopicFound(kept, adopted.found.states))

    monkeypatch.setattr(edits, "adopt", refuse)
    with recovery_within(15):
        violation = run_seed(0, "edited_nodes").violation
    assert "not in time" in violation and "nodes_edited: is not done" in violation


def test_two_kinds_of_one_name_are_refused() -> None:
    from tidelog.sim.workload.churning import churn

    class ProducersComeAndGo(ChurnKind):
        async def act(self) -> None:
            self.stopping = True

    with pytest.raises(ValueError, match="there are two kinds of churn named 'producers_come_and"):
        churn(ProducersComeAndGo)
