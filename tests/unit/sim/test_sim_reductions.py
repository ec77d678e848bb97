"""Names of reductions: what they mean, how they are printed, what is refused; how they shrink."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tidelog.sim.reductions import Only, Played, ReductionError, parse
from tidelog.sim.results import RunResult
from tidelog.sim.shrink import MOST_RUNS, kind_of, shrink

KINDS = ("crash_leader", "slow_link", "pause")
PLAYED = [Played(n * 1_000_000, KINDS[n % 3], n, None) for n in range(20)]


class TestNames:
    @pytest.mark.parametrize(
        ("text", "meant"),
        [
            ("", Only()),
            ("faults=crash_leader,slow_link", Only(faults=("crash_leader", "slow_link"))),
            ("limit=12;partitions=1;groups=no", Only(limit=12, partitions=1, groups=False)),
            ("play=1-3,7", Only(play=(1, 2, 3, 7))),
            ("play=none;until=2500;links=3", Only(play=(), until_ms=2_500, links=3)),
            ("topics=no;clients=no", Only(topics=False, clients=False)),
        ],
    )
    def test_a_reduction_is_read_as_it_is_printed(self, text: str, meant: Only) -> None:
        assert parse(text, KINDS) == meant
        assert str(meant) == text
        assert (meant == Only()) == (text == "")
        assert meant.needs_whole == (text != "")

    def test_an_earlier_end_alone_needs_no_whole_run(self) -> None:
        assert not parse("until=2500", KINDS).needs_whole

    @pytest.mark.parametrize(
        ("text", "told"),
        [
            ("partition=1", "'partition=1' is no reduction; there are partitions"),
            ("groups", "'groups' is no reduction"),
            ("groups=maybe", "groups=maybe: yes or no is expected"),
            ("faults=crash_leeder", "no fault 'crash_leeder'; there are crash_leader"),
            ("limit=x", "limit: 'x' is not a whole number from 0"),
            ("partitions=0", "partitions: '0' is not a whole number from 1"),
            ("play=3-1", "play: '1' is not a whole number from 3"),
            ("play=1-9999999999", "play: '9999999999' is not a whole number"),
            ("play=", "play: '' is not a whole number"),
            ("limit=1;limit=2", "limit is given twice"),
            ("limit=1;", "'' is no reduction"),
        ],
    )
    def test_another_text_is_refused_with_what_would_be_right(self, text: str, told: str) -> None:
        with pytest.raises(ReductionError) as refused:
            parse(text, KINDS)
        assert told in str(refused.value)

    def test_faults_are_left_by_kind_by_number_and_by_order_together(self) -> None:
        assert Only(faults=("pause",)).numbers(PLAYED) == [3, 6, 9, 12, 15, 18]
        assert Only(faults=("pause",), limit=10, play=(3, 4, 9, 12)).numbers(PLAYED) == [3, 9]
        assert Only(play=(2,)).of(PLAYED) == [PLAYED[1]]
        assert Only(play=()).of(PLAYED) == []


def made_up(only: Only, violation: str = "", partitions: int = 3) -> RunResult:
    return RunResult(
        seed=7,
        profile="default",
        trace_hash="",
        events=len(only.of(PLAYED)),
        simulated_ns=9_000_000_000,
        counters={},
        partitions=only.partitions or partitions,
        violation=violation,
    )


LOST = "3.1 s: steady-1: member 3 of the maximal ISR ((1, 3), partition epoch 1) lacks committed"


class TestShrinking:
    def shrunk(self, needed: Sequence[int], *, groups: bool) -> tuple[Only, int]:
        """What is left where a violation takes these faults, and groups or not."""
        asked: list[str] = []

        def run(_: RunResult, __: Sequence[Played], only: Only) -> RunResult:
            asked.append(str(only))
            shows = set(needed) <= set(only.numbers(PLAYED)) and (only.groups or not groups)
            other = "3.1 s: not in time: everything committed is read"
            return made_up(only, LOST.replace("steady-1", "steady-0") if shows else other)

        found = shrink(made_up(Only(), LOST), PLAYED, run)
        assert len(dict.fromkeys(asked)) == len(asked) == found.runs <= MOST_RUNS
        assert [fault.drawn_before + 1 for fault in found.faults] == found.only.numbers(PLAYED)
        return found.only, found.runs

    def test_what_is_left_is_what_it_takes(self) -> None:
        for needed in ((3,), (2, 17), (5, 6, 20), ()):
            only, _ = self.shrunk(needed, groups=False)
            assert only.numbers(PLAYED) == list(needed)
            assert (only.groups, only.topics, only.clients) == (False, False, False)
            assert only.partitions == 1

    def test_what_it_needs_of_the_workload_stays(self) -> None:
        only, _ = self.shrunk((4,), groups=True)
        assert only.groups and not only.topics

    def test_nothing_is_left_out_of_a_run_that_shows_nothing(self) -> None:
        def never(_: RunResult, __: Sequence[Played], only: Only) -> RunResult:
            raise AssertionError(f"{only} was run")

        found = shrink(made_up(Only()), PLAYED, never)
        assert found.only == Only() and found.runs == 0

    def test_when_there_were_enough_runs_the_best_so_far_is_left(self) -> None:
        runs: list[Only] = []

        def run(_: RunResult, __: Sequence[Played], only: Only) -> RunResult:
            runs.append(only)
            return made_up(only, LOST)

        found = shrink(made_up(Only(), LOST), PLAYED, run, lambda: len(runs) >= 2)
        assert found.runs == 2 and found.only == runs[1]

    def test_violations_are_of_a_kind_whatever_the_names_and_numbers(self) -> None:
        other = (
            "9.25 s: __consumer_offsets-2: member 1 of the maximal ISR ((2,), partition epoch 9)"
        )
        assert kind_of(LOST) == kind_of(other + " lacks committed records (cut its log): x")
        kinds = {
            kind_of(text)
            for text in (
                LOST,
                "1.0 s: not in time: in sync again (broker 1 is down )",
                "1.0 s: not in time: everything committed is read (healthy; open: [])",
                "1.0 s: acknowledged and not committed: batch [9] for steady-1 (acks -1)",
                "1.0 s: steady-0: node 1 has the high watermark 35 and its log ends at 15",
                "1.0 s: client 104 read steady-1 offset 0, of which only 0 records are committed",
            )
        }
        assert len(kinds) == 6 and "" not in kinds


def test_a_reduction_of_a_reduction_keeps_what_was_left_out() -> None:
    only = replace(parse("play=2-4;groups=no", KINDS), partitions=1)
    assert str(only) == "play=2-4;partitions=1;groups=no"
