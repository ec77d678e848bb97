"""Options as other tools spell them mean what the table says, and those without an equal hint."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from tests.support.cli import run
from tests.support.client.fake_logs import FakeLogs, batch
from tests.unit.cli.test_commands import Shell

from tidelog.cli.app import command_tree
from tidelog.cli.spellings import SPELLINGS, DifferentOptionError, Spelling, translated
from tidelog.core.types import TopicPartition

ROOT: Any = typer.main.get_command(command_tree())
#: Texts for what a row has in upper case; any other gets `x`.
VALUES = {"N": "3", "OFFSET": "earliest", "ACKS": "1", "CODEC": "zstd", "CONTEXTS": "broker,msg"}
#: What a command needs besides.
NEEDED = {"groups reset": ["--to-earliest"]}
ROWS = [(words, row) for words, rows in SPELLINGS.items() for row in rows]
GROUPS = ("topics", "groups")
VERBS = [(words, row) for words, row in ROWS if words in GROUPS]
ACCEPTED = [(words, row) for words, row in ROWS if words not in GROUPS and not row.hint]
HINTED = [(words, row) for words, row in ROWS if row.hint]


def names(rows: list[tuple[str, Spelling]]) -> list[str]:
    return [f"{words}: {row.theirs}" for words, row in rows]


def typed(text: str) -> list[str]:
    """The words of one side of a row, with a value in place of what stands for any."""
    words = text.split(" ") if text else []
    return [
        re.sub(r"(?<![-A-Z])[A-Z]+$", lambda found: VALUES.get(found[0], "x"), word)
        for word in words
    ]


def understood(words: str, rest: list[str]) -> dict[str, Any]:
    """The values of a command's parameters."""
    command = ROOT
    context = command.make_context("tidelog", [], resilient_parsing=True)
    *groups, last = words.split()
    for name in groups:
        command = command.commands[name]
        context = command.make_context(name, [], parent=context, resilient_parsing=True)
    found: dict[str, Any] = command.commands[last].make_context(last, rest, parent=context).params
    return found


@pytest.mark.parametrize(("words", "row"), VERBS, ids=names(VERBS))
def test_an_option_that_is_a_command_here_calls_it(words: str, row: Spelling) -> None:
    assert row.ours in ROOT.commands[words].commands
    assert translated(["x", row.theirs], {}, SPELLINGS[words]) == [row.ours, "x"]


@pytest.mark.parametrize(("words", "row"), ACCEPTED, ids=names(ACCEPTED))
def test_an_accepted_option_is_what_it_is_here(words: str, row: Spelling) -> None:
    # A row for a topic or a group stands in the place of its argument.
    needed = [*([] if row.ours in ("TOPIC", "GROUP") else ["x"]), *NEEDED.get(words, [])]
    here = understood(words, [*needed, *typed(row.ours)])
    assert understood(words, [*typed(row.theirs), *needed]) == here


@pytest.mark.parametrize(("words", "row"), HINTED, ids=names(HINTED))
def test_an_option_without_an_equal_gets_a_hint(words: str, row: Spelling) -> None:
    with pytest.raises(DifferentOptionError, match=re.escape(row.hint)):
        translated(typed(row.theirs), {"-d": True, "-h": False}, SPELLINGS[words])


def test_no_option_of_a_command_is_hidden_by_that_of_another_tool() -> None:
    for words, rows in SPELLINGS.items():
        command = ROOT
        for word in words.split():
            command = command.commands[word]
        own = {name for each in command.params for name in each.opts}
        for row in rows:
            value = row.theirs.partition(" ")[2]
            only_some = value == "CONTEXTS" or not re.search(r"[A-Z]+$", value)
            assert row.name not in own or (value and only_some), f"{words}: {row.theirs}"


OWN = {"--format": True, "-f": True, "-J": False, "-e": False, "-c": True, "-o": True}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("flights -f --from-beginning", "flights -f --from-beginning"),
        ("flights -o -10 -e", "flights -o -10 -e"),
        ("flights -c1 --format=-t", "flights -c1 --format=-t"),
        ("flights -- -t --topic", "flights -- -t --topic"),
        ("-CJet flights", "flights -J -e"),
        ("-JuC flights", "-J flights"),
        ("--topic=flights --max-messages=2", "flights --count 2"),
        ("-e --topic flights", "flights -e"),
        ("--unknown -y flights", "--unknown -y flights"),
        (
            "--property key.separator=: --property print.key=true x",
            r"--key-delimiter \t --key-delimiter : x",
        ),
        ("x -X group.id=a --property key.separator==", "x --group a --key-delimiter ="),
    ],
)
def test_words_that_are_no_such_option_stay(words: str, expected: str) -> None:
    assert translated(words.split(), OWN, SPELLINGS["consume"]) == expected.split()


def test_an_option_without_its_value_is_wrong_usage() -> None:
    with pytest.raises(DifferentOptionError, match="needs a value, as in --max-messages N"):
        translated(["x", "--max-messages"], OWN, SPELLINGS["consume"])


@pytest.fixture
def logs() -> Iterator[FakeLogs]:
    made = FakeLogs()
    made.create("flights", 1)
    made.append(TopicPartition("flights", 0), batch(0, b"a", b"b"))
    yield made
    made.close()


class TestCommands:
    def test_read_as_the_console_consumer_does(
        self, monkeypatch: pytest.MonkeyPatch, capfd: Any, logs: FakeLogs
    ) -> None:
        shell = Shell(monkeypatch, capfd, logs.bootstrap)
        words = ("--topic", "flights", "--from-beginning", "--max-messages", "1")
        assert shell("consume", *words) == "a\n"
        assert shell("consume", "-Cet", "flights") == "a\nb\n"
        assert shell("topics", "--list") == "flights\n"

    def test_say_what_to_write(self, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
        assert run(monkeypatch, "consume", "flights", "--timeout-ms", "500") == 2
        assert "--timeout-ms N of kafka-console-consumer has no equal here; --exit" in (
            capfd.readouterr().err
        )
        assert run(monkeypatch, "-L", "-b", "127.0.0.1:9092") == 2
        assert "tidelog topics describe" in capfd.readouterr().err
