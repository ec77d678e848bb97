"""The reference of the command line is what the commands say, and their examples can be typed."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from tests.tidy.sources import ROOT

from tidelog.cli.app import command_tree
from tidelog.cli.reference import commands_of, reference

REFERENCE = ROOT / "docs" / "reference" / "cli.md"
ROOT_COMMAND = typer.main.get_command(command_tree())


def commands(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command that does something, with the words that call it."""
    below = getattr(command, "commands", None)
    if below is None:
        yield words, command
        return
    for name, child in below.items():
        yield from commands(child, (*words, name))


COMMANDS = dict(commands(ROOT_COMMAND))
#: As they were written: typer wraps them.
FUNCTIONS = commands_of(command_tree())


def test_the_reference_is_up_to_date() -> None:
    assert len(COMMANDS) > 30
    assert reference(command_tree()) == REFERENCE.read_text(encoding="utf-8"), (
        "run: python -m tidelog.cli.reference docs/reference/cli.md"
    )


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
class TestEveryCommand:
    def test_shows_examples_that_can_be_typed(self, words: tuple[str, ...]) -> None:
        command = COMMANDS[words]
        examples = (command.epilog or "").split("\n\n")
        for example in examples:
            assert example.startswith("Example: tidelog ")
            typed = shlex.split(example.removeprefix("Example: tidelog "))
            assert tuple(typed[: len(words)]) == words
            with command.make_context(" ".join(words), typed[len(words) :]) as context:
                assert context.params or not any(each.expose_value for each in command.params)

    def test_explains_every_option(self, words: tuple[str, ...]) -> None:
        for parameter in COMMANDS[words].params:
            assert parameter.help, f"{parameter.name} has no help"

    def test_tells_what_its_json_holds(self, words: tuple[str, ...]) -> None:
        command = COMMANDS[words]
        prints_json = any(
            "--output" in each.opts or "--json" in each.opts for each in command.params
        )
        documented = f"## tidelog {' '.join(words)}\n"
        assert documented in REFERENCE.read_text(encoding="utf-8")
        assert hasattr(FUNCTIONS["tidelog " + " ".join(words)], "__prints__") is prints_json
