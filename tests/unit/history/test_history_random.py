"""Random histories of a log that is right are never blamed; one that was made wrong always is."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from tests.support.draws import for_draws

from tidelog.history import HistoryChecker, Operation, Report, encode, parse
from tidelog.history.operations import FAIL, INFO, OK

PARTITIONS = ("t-0", "t-1")
DRAWS = 40


class SoundHistory:
    """A log that is right, and clients who tell what they did with it."""

    def __init__(self, draw: Random, *, is_compacted: bool = False) -> None:
        self.draw = draw
        self.now = 0
        self.operations: list[Operation] = []
        #: Value and key of each offset; None for what is no record (a marker) or is gone.
        self.logs: dict[str, list[tuple[int, str] | None]] = {name: [] for name in PARTITIONS}
        self.values = 0
        #: What may still come, although its client gave it up.
        self.late: list[tuple[str, tuple[int, str]]] = []
        self.positions: dict[str, dict[str, int]] = {}
        self.is_compacted = is_compacted
        if is_compacted:
            self.tell("admin", "compact", topics=["t"])
        for number in range(draw.randrange(1, 4)):
            self.assign(f"c{number}")
        for _ in range(draw.randrange(5, 60)):
            self.step()
        self.finish()

    def tell(self, process: str, kind: str, outcome: str = OK, **fields: Any) -> None:
        begin = self.now
        self.now += self.draw.randrange(3)
        operation = Operation(process, kind, begin, self.now, outcome, **fields)
        self.operations.append(operation)
        self.now += 1

    def step(self) -> None:
        draw = self.draw
        what = draw.random()
        if what < 0.4:
            self.send(f"p{draw.randrange(3)}")
        elif what < 0.8:
            self.poll(draw.choice(list(self.positions)))
        elif what < 0.85:
            self.logs[draw.choice(PARTITIONS)].append(None)
        elif what < 0.9:
            self.assign(f"c{len(self.positions)}")
        elif what < 0.95 and self.late:
            name, record = self.late.pop()
            self.logs[name].append(record)
        elif self.is_compacted:
            self.compact(draw.choice(PARTITIONS))

    def send(self, process: str) -> None:
        draw = self.draw
        name = draw.choice(PARTITIONS)
        outcome = draw.choice((OK, OK, OK, FAIL, INFO))
        taken = outcome == OK or (outcome == INFO and draw.random() < 0.5)
        told = []
        for _ in range(draw.randrange(1, 4)):
            self.values += 1
            key = draw.choice("ab")
            if taken:
                self.logs[name].append((self.values, key))
            elif outcome == INFO and draw.random() < 0.5:
                self.late.append((name, (self.values, key)))
            offset = len(self.logs[name]) - 1 if outcome == OK and draw.random() < 0.9 else None
            told.append([offset, self.values, key] if self.is_compacted else [offset, self.values])
        self.tell(process, "send", outcome, records={name: told}, idempotent=True)

    def poll(self, process: str) -> None:
        records = {}
        for name in self.draw.sample(PARTITIONS, self.draw.randrange(1, 3)):
            position = self.positions[process][name]
            end = min(len(self.logs[name]), position + self.draw.randrange(6))
            records[name] = [
                [offset, record[0]]
                for offset in range(position, end)
                if (record := self.logs[name][offset]) is not None
            ]
            self.positions[process][name] = end
        self.tell(process, "poll", records=records)

    def assign(self, process: str) -> None:
        self.positions[process] = dict.fromkeys(PARTITIONS, 0)
        self.tell(process, "assign", partitions=dict.fromkeys(PARTITIONS, 0))

    def compact(self, name: str) -> None:
        last: dict[str, int] = {}
        for offset, record in enumerate(self.logs[name]):
            if record is not None:
                last[record[1]] = offset
        for offset, record in enumerate(self.logs[name]):
            if record is not None and last[record[1]] > offset:
                self.logs[name][offset] = None

    def finish(self) -> None:
        """Somebody reads everything."""
        for process in list(self.positions):
            for _ in range(200):
                if all(
                    len(self.logs[name]) == self.positions[process][name] for name in PARTITIONS
                ):
                    break
                self.poll(process)

    # Wrong ones

    def sends(self) -> list[Operation]:
        """Acknowledged ones."""
        return [each for each in self.operations if each.kind == "send" and each.outcome == OK]

    def polls(self, at_least: int = 1) -> list[tuple[Operation, str]]:
        return [
            (each, name)
            for each in self.operations
            if each.kind == "poll"
            for name, records in each.records.items()
            if len(records) >= at_least
        ]


def report(operations: list[Operation]) -> Report:
    """Through the text of every line."""
    checker = HistoryChecker()
    for line, operation in enumerate(operations, 1):
        checker.add(parse(encode(operation), line), line)
    return checker.finish()


@pytest.mark.parametrize("is_compacted", [False, True])
def test_a_log_that_is_right_is_never_blamed(is_compacted: bool) -> None:
    def check(draw: Random) -> None:
        sound = SoundHistory(draw, is_compacted=is_compacted)
        found = report(sound.operations)
        assert (found.forbidden, found.allowed) == ({}, {})

    for_draws(DRAWS, f"right {is_compacted}", check)


def test_the_order_of_lines_of_different_processes_does_not_matter() -> None:
    def check(draw: Random) -> None:
        sound = SoundHistory(draw)
        by_process: dict[str, list[Operation]] = {}
        for operation in sound.operations:
            by_process.setdefault(operation.process, []).append(operation)
        shuffled = []
        while waiting := [each for each in by_process.values() if each]:
            shuffled.append(draw.choice(waiting).pop(0))
        assert report(shuffled).forbidden == {}

    for_draws(DRAWS, "order", check)


def lose(sound: SoundHistory) -> str:
    """A record that was acknowledged is read by nobody."""
    sent = sound.draw.choice(sound.sends())
    ((name, told),) = sent.records.items()
    value = sound.draw.choice(told)[1]
    for operation, partition in sound.polls():
        kept = [each for each in operation.records[partition] if each[1] != value]
        operation.records = {**operation.records, partition: kept}
    polled = [each for op, on in sound.polls() if on == name for each in op.records[on]]
    offset = next(each[0] for each in told if each[1] == value)
    is_behind = offset is not None and any(each[0] > offset for each in polled)
    return "lost-write" if is_behind else "unseen"


def fail(sound: SoundHistory) -> str:
    """A send that took effect is told to have failed."""
    sent = sound.draw.choice(sound.sends())
    sent.outcome = FAIL
    return "G1a"


def double(sound: SoundHistory) -> str:
    """Records are there once more, at the end."""
    operation, name = sound.draw.choice(sound.polls())
    again = [[10_000 + at, each[1]] for at, each in enumerate(operation.records[name])]
    sound.tell("last", "poll", records={name: again})
    return "duplicate"


def exchange(sound: SoundHistory) -> str:
    """One reader sees other values at the offsets of some records."""
    sent = [each for each in sound.sends() if any(record[0] is not None for record in first(each))]
    told = sound.draw.choice(sent)
    (name,) = told.records
    offset = next(record[0] for record in first(told) if record[0] is not None)
    sound.tell("other", "send", INFO, records={name: [[None, "another"]]})
    sound.tell("last", "poll", records={name: [[offset, "another"]]})
    return "inconsistent-offsets"


def first(operation: Operation) -> list[Any]:
    return list(next(iter(operation.records.values())))


def invent(sound: SoundHistory) -> str:
    """A record that nobody sent."""
    sound.tell("last", "poll", records={"t-0": [[10_000, "never sent"]]})
    return "never-sent"


def turn_round(sound: SoundHistory) -> str:
    """A poll tells its records in the other order."""
    operation, name = sound.draw.choice(sound.polls(at_least=2))
    operation.records = {**operation.records, name: list(operation.records[name])[::-1]}
    return "int-nonmonotonic-poll"


def leave_out(sound: SoundHistory) -> str:
    """A poll leaves out one in the middle that another consumer has."""
    operation, name = sound.draw.choice(sound.polls(at_least=3))
    records = list(operation.records[name])
    sound.tell("last", "poll", records={name: records[:]})
    del records[1]
    operation.records = {**operation.records, name: records}
    return "int-poll-skip"


def go_back(sound: SoundHistory) -> str:
    """A consumer gets what it had in its operation before."""
    operation, name = sound.draw.choice(sound.polls())
    sound.tell(operation.process, "poll", records={name: operation.records[name]})
    return "nonmonotonic-poll"


def pass_over(sound: SoundHistory) -> str:
    """A consumer's second poll begins behind what its first one did not reach."""
    operation, name = sound.draw.choice(sound.polls(at_least=3))
    records = operation.records[name]
    sound.tell("last", "poll", records={name: records[:1]})
    sound.tell("last", "poll", records={name: records[2:]})
    return "poll-skip"


def overtake(sound: SoundHistory) -> str:
    """What was sent later stands before."""
    for name in PARTITIONS:
        sound.tell("fast", "send", records={name: [[20_000, f"1 {name}"]]}, idempotent=True)
        sound.tell("fast", "send", records={name: [[19_000, f"2 {name}"]]}, idempotent=True)
        again = [[19_000, f"2 {name}"], [20_000, f"1 {name}"]]
        sound.tell("last", "poll", records={name: again})
    return "nonmonotonic-send"


@pytest.mark.parametrize(
    "make_wrong",
    [
        lose, fail, double, exchange, invent, turn_round, leave_out, go_back, pass_over, overtake,
    ],
)  # fmt: skip
def test_what_was_made_wrong_is_always_found(make_wrong: Callable[[SoundHistory], str]) -> None:
    found_in = []

    def check(draw: Random) -> None:
        sound = SoundHistory(draw)
        if not sound.sends() or not sound.polls(at_least=3):
            return
        name = make_wrong(sound)
        assert name in report(sound.operations).forbidden
        found_in.append(name)

    for_draws(DRAWS, make_wrong.__name__, check)
    assert len(found_in) > DRAWS // 2, "too little was tried"
