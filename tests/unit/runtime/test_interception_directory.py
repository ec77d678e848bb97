"""Rules written by a test are read by brokers at their next request, whatever happened to them."""

from __future__ import annotations

import os
from pathlib import Path

from tidelog.broker.server.interception import Action, Rule
from tidelog.runtime.interception import InterceptionControl, InterceptionDirectory


def rule(number: int) -> Rule:
    return Rule(number=number, api_keys=(0,), action=Action.DROP, topic="t")


def test_a_rule_is_in_force_when_it_was_added_and_not_when_it_ended(tmp_path: Path) -> None:
    control = InterceptionControl(str(tmp_path))
    broker = InterceptionDirectory(str(tmp_path))
    assert broker.rules() == ()
    control.add(rule(1))
    control.add(rule(2))
    assert broker.rules() == (rule(1), rule(2))
    control.end(1)
    assert broker.rules() == (rule(2),)


def test_a_broker_that_starts_later_reads_what_is_in_force(tmp_path: Path) -> None:
    control = InterceptionControl(str(tmp_path))
    control.add(rule(1))
    control.add(rule(2))
    control.end(2)
    assert InterceptionDirectory(str(tmp_path)).rules() == (rule(1),)


def test_half_a_line_waits_for_its_other_half(tmp_path: Path) -> None:
    control = InterceptionControl(str(tmp_path))
    control.add(rule(1))
    line = (tmp_path / "rules.jsonl").read_bytes()
    (tmp_path / "rules.jsonl").write_bytes(line[:20])
    broker = InterceptionDirectory(str(tmp_path))
    assert broker.rules() == ()
    with (tmp_path / "rules.jsonl").open("ab") as file:
        file.write(line[20:])
    assert broker.rules() == (rule(1),)


def test_requests_are_numbered_over_all_brokers(tmp_path: Path) -> None:
    control = InterceptionControl(str(tmp_path))
    brokers = [InterceptionDirectory(str(tmp_path)) for _ in range(3)]
    numbers = [broker.matched(rule(1)) for _ in range(2) for broker in brokers]
    assert numbers == [1, 2, 3, 4, 5, 6]
    assert (control.matched(1), control.matched(2)) == (6, 0)


def test_what_was_struck_is_told_to_the_test(tmp_path: Path) -> None:
    control = InterceptionControl(str(tmp_path))
    assert control.struck(1) == []
    InterceptionDirectory(str(tmp_path)).struck(rule(1), "broker 1: Produce")
    assert control.struck(1) == ["broker 1: Produce"]


def test_nobody_else_may_write_rules(tmp_path: Path) -> None:
    directory = tmp_path / "rules"
    InterceptionControl(str(directory)).add(rule(1))
    assert os.stat(directory).st_mode & 0o077 == 0
    assert os.stat(directory / "rules.jsonl").st_mode & 0o077 == 0
