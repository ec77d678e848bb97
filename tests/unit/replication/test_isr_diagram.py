"""docs/internals/isr.md shows the states and transitions that the leader's functions have."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.replication import a_leader

from tidelog.core.errors import ErrorCode
from tidelog.replication.effects import SendAlterPartition, WithdrawAlterPartition
from tidelog.replication.isr import Awaits, IsrState
from tidelog.replication.leader import LeaderReplica

PAGE = Path(__file__).parents[3] / "docs" / "internals" / "isr.md"
REPLICAS = (1, 2, 3)
TARGETS = ((1,), (1, 2), (1, 3), (1, 2, 3))
#: So many changes in flight show everything: two and more are one state of the page.
MOST_IN_FLIGHT = 3

Transition = tuple[str, str, str]


def name_of(state: IsrState) -> str:
    """The name that the page gives to a state."""
    if state.awaits is Awaits.NOTHING:
        return "steady" if state.queued is None else "queued"
    if state.awaits is Awaits.COMMAND:
        return "left_to_command"
    if state.queued is not None:
        return "superseding"
    several = len(state.in_flight) > 1
    if state.awaits is Awaits.RESPONSE:
        return "both_requested" if several else "requested"
    return "both_open" if several else "open"


def successors(leader: LeaderReplica) -> list[tuple[str, LeaderReplica]]:
    """What becomes of a leader by each event, through its own functions."""
    found: list[tuple[str, LeaderReplica]] = []
    for target in TARGETS:
        after = leader.copy()
        effects = after._propose(target, 0)
        if any(isinstance(each, SendAlterPartition) for each in effects):
            found.append(("wanted", after))
        if any(isinstance(each, WithdrawAlterPartition) for each in effects):
            found.append(("withdrawn", after))
    state = leader.isr
    for change in dict.fromkeys((*state.in_flight, *((state.queued,) if state.queued else ()))):
        if leader.is_to_be_sent(change) and len(state.in_flight) < MOST_IN_FLIGHT:
            after = leader.copy()
            after.change_sent(change)
            found.append(("sent", after))
    if state.awaits is Awaits.RESPONSE:
        newest = state.in_flight[-1]
        unanswered, erred = leader.copy(), leader.copy()
        unanswered.change_unanswered(newest, 0)
        found.append(("no_response", unanswered))
        erred.change_refused(newest, ErrorCode.INVALID_UPDATE_VERSION, 0)
        found.append(("error", erred))
        refused = leader.copy()
        refused.change_refused(newest, ErrorCode.INELIGIBLE_REPLICA, 0)
        found.append(("refused", refused))
        accepted = leader.copy()
        accepted.change_accepted(newest, newest.isr, 5, state.partition_epoch + 1, 0)
        found.append(("newer_epoch", accepted))
    if state != IsrState(state.committed, state.partition_epoch):
        commanded = leader.copy()
        epoch = state.partition_epoch + 1
        commanded.commanded(state.committed, REPLICAS, epoch, lambda broker_id: True, 0)
        found.append(("newer_epoch", commanded))
    if state.awaits is Awaits.COMMAND:
        again = leader.copy()
        again.commanded(state.committed, REPLICAS, state.partition_epoch, lambda broker_id: True, 0)
        found.append(("same_epoch", again))
    return found


def transitions() -> set[Transition]:
    """All that the functions do, from a leader that has just begun."""
    found: set[Transition] = set()
    first = a_leader(isr=(1, 2), replicas=REPLICAS)
    seen = {_shape(first.isr)}
    level = [first]
    while level:
        leader = level.pop()
        for event, after in successors(leader):
            before_name, after_name = name_of(leader.isr), name_of(after.isr)
            found.add((before_name, after_name, event))
            if _shape(after.isr) not in seen:
                seen.add(_shape(after.isr))
                level.append(after)
    return found


def _shape(state: IsrState) -> tuple[object, ...]:
    """What a state is, whatever its partition epoch: each newer one begins the same again."""
    return (
        state.committed,
        tuple(change.isr for change in state.in_flight),
        None if state.queued is None else state.queued.isr,
        state.awaits,
    )


def drawn() -> list[Transition]:
    """The arrows of the page's diagram."""
    diagram = PAGE.read_text(encoding="utf-8").partition("```mermaid")[2].partition("```")[0]
    return re.findall(r"^ *(\w+) --> (\w+): (\w+)$", diagram, re.MULTILINE)


def test_the_diagram_shows_every_transition_of_the_functions_and_no_other() -> None:
    arrows = drawn()
    assert len(arrows) == len(set(arrows))
    assert sorted(arrows) == sorted(transitions())


def test_every_state_and_event_of_the_diagram_is_explained() -> None:
    page = PAGE.read_text(encoding="utf-8")
    told = re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
    names = {name for before, after, _ in drawn() for name in (before, after)}
    assert sorted(told) == sorted({*names, *(event for *_, event in drawn())})


def test_each_state_of_the_page_has_the_value_that_it_says() -> None:
    page = PAGE.read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| (no|yes|-) \| (\d\+?|1 or more) \|", page, re.M)
    assert {name: awaits for name, awaits, *_ in rows} == {
        "steady": "NOTHING",
        "queued": "NOTHING",
        "requested": "RESPONSE",
        "open": "REPETITION",
        "superseding": "REPETITION",
        "both_requested": "RESPONSE",
        "both_open": "REPETITION",
        "left_to_command": "COMMAND",
    }
    assert {awaits for _, awaits, *_ in rows} == {each.name for each in Awaits}
