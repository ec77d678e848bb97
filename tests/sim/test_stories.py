"""Stories of real kills: the decisive steps are in them, in their order, and what is left in logs.

The recorded kill of each mutant is told; which steps are decisive follows from what the mutant does
not do. A told run is the run that it is untold.
"""

from __future__ import annotations

import re

import pytest
from tests.support.mutants import MUTANTS, importable
from tests.support.mutants.kills import load

from tidelog.sim.disk import Loss
from tidelog.sim.faults import KINDS
from tidelog.sim.job import Job
from tidelog.sim.reductions import parse
from tidelog.sim.run import reduced_run, whole_run
from tidelog.sim.story.watching import LOSSES

#: What must be told of a kill, in this order.
DECISIVE = {
    "truncate_to_high_watermark": (
        r"leader \d appends offset",
        r"leader \d of epoch \d+ commits offset",
        r"client \d+ gets the acknowledgement of records? .* at offset",
        r"the controller \(broker \d, epoch \d+\) (elects|lets) broker \d",
        r"broker \d follows broker \d in leader epoch \d+; its log ends at \d+, high watermark",
        r"broker \d truncates its log from \d+ to \d+",
        r"^VIOLATION .* lacks committed records \(cut its log\)",
        r"^The rule: V32: ",
    ),
    "unclean_election": (
        r"loses? (power|records)|the power fails|its process ends",
        r"the controller \(broker \d, epoch \d+\) elects broker \d, as .* (is gone|has \d+)",
        r"broker \d leads in leader epoch \d+",
        r"^VIOLATION .* lacks committed records",
        r"^The rule: V60, A7: ",
    ),
    "optimistic_shrink": (
        r"fault \d+ is drawn: ",
        r"leader \d of epoch \d+ commits offset",
        r"leader \d proposes the ISR \(\d, \d\)",
        r"^VIOLATION .* (lacks committed records \(high watermark \d+\)|does not wait for \[\d\])",
    ),
    "ack_before_replication": (
        r"leader \d appends offset",
        r"^VIOLATION .* acknowledged and not committed",
        r"^The rule: V64: ",
    ),
}
KILLS = load()


@pytest.mark.parametrize("name", DECISIVE)
def test_a_kill_is_told_with_its_decisive_steps(name: str) -> None:
    job = Job(KILLS[name].seed, MUTANTS[name].profile, importable(name))
    result, story = job.story()
    assert result.violation
    position = 0
    for step in DECISIVE[name]:
        found = [n for n, line in enumerate(story[position:]) if re.search(step, line)]
        assert found, f"{step!r} is not told after line {position} of\n" + "\n".join(story)
        position += found[0]
    assert "What the logs of" in "\n".join(story)
    about = re.search(r"s: ([\w]+-\d+|.* for ([\w]+-\d+))", result.violation)
    assert about is not None
    subject = about[2] or about[1]
    others = [line for line in story if re.search(r"\b(steady|volatile)-\d:", line)]
    assert [line for line in others if f"{subject}:" not in line] == []
    assert job.run().trace_hash == result.trace_hash


def test_the_logs_are_shown_around_the_offset_in_question() -> None:
    name = "truncate_to_high_watermark"
    job = Job(KILLS[name].seed, mutant=importable(name))
    result, story = job.story()
    told = re.search(r"its log ends at (\d+), (\d+) records are committed", result.violation)
    assert told is not None
    rows = [line.split() for line in story[-5:]]
    offset = int(told[1])
    assert rows[0][:7] == [str(each) for each in range(offset - 3, offset + 4)]
    assert [row[:2] for row in rows[1:4]] == [["broker", "1"], ["broker", "2"], ["broker", "3"]]
    assert rows[4][0] == "committed" and rows[4][-1] == told[2]
    short = [row for row in rows[1:4] if row[-2] == told[1]]
    assert short and all(row[-3] == "-" for row in short)


def test_without_a_violation_all_is_told_in_short() -> None:
    _, story = Job(3).story()
    assert story[-1] == "nothing was violated"
    text = "\n".join(story)
    for told in ("becomes controller", "creates it: leader is", "is drawn:", "faults end", "ISR"):
        assert told in text
    assert " appends " not in text and len(story) < 1_000


def test_a_story_goes_on_when_an_administrator_edits_a_partition_away() -> None:
    _, story = Job(490000024, "edited_nodes").story()
    assert [line for line in story if "edited-2: the controller" in line]
    assert story[-1] == "nothing was violated"


def test_a_kill_is_shrunk_to_half_and_less_and_its_command_makes_the_same_run() -> None:
    name = "clean_stop_unflushed"
    job = Job(KILLS[name].seed, MUTANTS[name].profile, importable(name))
    found = job.shrink(lambda: False)
    whole, left = found.whole, found.result
    assert sum(left.faults.values()) * 2 <= sum(whole.faults.values())
    assert left.partitions <= whole.partitions and left.events * 2 <= whole.events
    assert left.violation.endswith("records are committed")
    assert "lacks committed records" in whole.violation and left.trace_hash != whole.trace_hash
    again = job.reduced(found.only).run()
    assert (again.trace_hash, again.violation) == (left.trace_hash, left.violation)
    assert f'--only "{found.only}"' in job.reduced(found.only).command()


@pytest.mark.parametrize("profile", [pytest.param("default", marks=pytest.mark.soak), "pauses"])
def test_a_reduction_that_leaves_everything_is_the_whole_run(profile: str) -> None:
    whole, played = whole_run(5, profile, "", ())
    assert sum(whole.faults.values()) > 3
    everything, first = (
        reduced_run(whole, played, parse(only, KINDS)) for only in ("limit=1000", "limit=1")
    )
    assert everything.trace_hash == whole.trace_hash
    assert first.trace_hash != whole.trace_hash


def test_every_kind_of_loss_is_told() -> None:
    assert sorted(LOSSES) == sorted(loss.name for loss in Loss)
