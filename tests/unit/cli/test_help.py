"""Help pages at 80 columns: every word and option name is there, whole."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import pytest
import typer
from tests.support.cli import run

from tidelog.cli.app import command_tree
from tidelog.cli.help import CommandGroup

COLUMNS = 80


def nodes(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command and every group of commands, with the words that call it."""
    yield words, command
    for name, child in getattr(command, "commands", {}).items():
        yield from nodes(child, (*words, name))


PAGES = dict(nodes(typer.main.get_command(command_tree())))


@pytest.fixture(params=PAGES, ids=lambda words: " ".join(("tidelog", *words)))
def words(request: pytest.FixtureRequest) -> tuple[str, ...]:
    chosen: tuple[str, ...] = request.param
    return chosen


@pytest.fixture
def page(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> str:
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    assert run(monkeypatch, *words, "--help") == 0
    return capsys.readouterr().out


def test_there_are_many_pages() -> None:
    assert len(PAGES) > 60


def test_every_option_name_is_whole(words: tuple[str, ...], page: str) -> None:
    shown = set(re.findall(r"(?<![\w-])--?[a-zA-Z][\w-]*", page))
    for each in PAGES[words].params:
        if each.param_type_name == "option":
            assert {*each.opts, *each.secondary_opts} <= shown


def test_every_word_of_the_texts_is_there(words: tuple[str, ...], page: str) -> None:
    flowing = " ".join(page.split())
    command = PAGES[words]
    texts = [(command.help or "").replace("\n\n", " "), *(each.help for each in command.params)]
    for text in texts:
        assert " ".join((text or "").split()) in flowing
    for example in (command.epilog or "").split("\n\n"):
        assert example.removeprefix("Example: ") in flowing.replace(" \\ ", " ")


def test_every_command_of_a_group_is_summarised_whole(words: tuple[str, ...], page: str) -> None:
    flowing = " ".join(page.split())
    for name, child in getattr(PAGES[words], "commands", {}).items():
        summary = " ".join((child.help or "").split("\n\n")[0].split()).removesuffix(".")
        assert summary and f"{name} {summary}" in flowing


def test_no_line_is_cut_or_too_long(words: tuple[str, ...], page: str) -> None:
    assert "…" not in page
    assert max(map(len, page.splitlines())) <= COLUMNS


def test_a_default_in_square_brackets_is_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "up", "--help") == 0
    assert "[free ports]" in capsys.readouterr().out


def test_a_long_example_can_be_copied(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    run(monkeypatch, "topics", "create", "--help")
    assert capsys.readouterr().out.endswith(
        "  tidelog topics create flights --partitions 6 --replication-factor 3 \\\n"
        "    --config min.insync.replicas=2\n"
    )


@dataclass(frozen=True)
class Pace:
    """A group of options."""

    fast: Annotated[bool, typer.Option("--fast", help="At once.")] = False
    times: Annotated[int, typer.Option(min=1, help="So often.")] = 3


def test_a_dataclass_stands_for_the_options_of_its_fields(
    capsys: pytest.CaptureFixture[str],
) -> None:
    app = CommandGroup("Paces.")

    @app.command("walk")
    def walk(pace: Pace, name: Annotated[str, typer.Argument(help="Who.")]) -> None:
        """Walk."""
        typer.echo(f"{name} {pace}")

    app.command("stand")(lambda: None)
    command = typer.main.get_command(app)
    command(["walk", "anna", "--times", "5"], standalone_mode=False)
    assert capsys.readouterr().out == f"anna {Pace(times=5)}\n"
    command(["walk", "--help"], standalone_mode=False)
    page = capsys.readouterr().out
    assert page.index("NAME") < page.index("--fast") < page.index("--times")
