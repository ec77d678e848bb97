"""The reference of the command line as Markdown, generated from the commands themselves.

`python -m tidelog.cli.reference docs/reference/cli.md` writes the page. Run this module after a
change of an option, an example or a JSON document; a test compares the page with the commands.
"""

from __future__ import annotations

import dataclasses
import sys
import types
import typing
from collections.abc import Callable, Iterator
from typing import Any

import typer
from typer.models import ArgumentInfo, OptionInfo

from tidelog.cli.help import argument_word
from tidelog.cli.parameters import (
    Parameter,
    default_of,
    kind_of,
    parameters_of,
    unwrapped,
    without_none,
)
from tidelog.cli.spellings import SPELLINGS
from tidelog.core.dataclass import dataclass

_INTRODUCTION = """\
# The command line

Made from the commands by `python -m tidelog.cli.reference docs/reference/cli.md`; do not edit.

`tidelog NOUN VERB`. Results go to standard output, messages to standard error. `-o json` prints one
JSON document for programs, with `--compact` on one line: its keys stay, new ones may come. Times
are milliseconds since 1970, sizes are bytes, `null` is what is not known or not there. Colours and
progress bars appear on terminals only.

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | failed: standard error says why |
| 2 | wrong usage |
| 3 | the cluster could not be reached |
| 130, 143 | ended by Ctrl-C, by SIGTERM |

Which cluster: `--bootstrap-server host:port,...`, or `--dir` of a local cluster. Without both it is
the address in the environment variable `TIDELOG_BOOTSTRAP`, or else the cluster in the directory
`tidelog-cluster`.

`tidelog --install-completion` makes the shell complete commands and options, and the names of
topics, groups and brokers: they are asked of the cluster that the line names so far.

These options of most commands are not repeated below:

"""
#: Options that the page describes once for all commands.
_SHARED = ("bootstrap", "directory", "output", "compact", "timeout")


@dataclass(frozen=True, slots=True)
class _DocumentedCommand:
    """A documented command: the words that call it, and its function."""

    words: str
    function: Callable[..., Any]
    epilog: str


def reference(app: typer.Typer) -> str:
    """Return the whole text of the page, with the commands in their order."""
    commands = list(_commands(app, "tidelog"))
    shared = {
        parameter.name: parameter
        for command in commands
        for parameter in parameters_of(command.function)
        if parameter.name in _SHARED
    }
    lines = [_INTRODUCTION, *_option_table([shared[name] for name in _SHARED], varying="timeout")]
    lines.append("\n")
    for command in commands:
        lines += _section(command)
    lines += _other_spellings()
    return "".join(lines).rstrip("\n") + "\n"


def commands_of(app: typer.Typer) -> dict[str, Callable[..., Any]]:
    """Return the function of each command by the words that call it."""
    return {each.words: each.function for each in _commands(app, "tidelog")}


def _commands(app: typer.Typer, words: str) -> Iterator[_DocumentedCommand]:
    for command in app.registered_commands:
        if command.callback is None:
            continue
        name = command.name or command.callback.__name__.replace("_", "-")
        yield _DocumentedCommand(f"{words} {name}", command.callback, command.epilog or "")
    for group in app.registered_groups:
        if group.typer_instance is not None:
            yield from _commands(group.typer_instance, f"{words} {group.name}")


def _section(command: _DocumentedCommand) -> Iterator[str]:
    yield f"## {command.words}\n\n{_paragraphs(command.function.__doc__)}\n\n"
    parameters = parameters_of(command.function)
    arguments = [each for each in parameters if isinstance(each.info, ArgumentInfo)]
    options = [each for each in parameters if isinstance(each.info, OptionInfo)]
    own = [each for each in options if each.name not in _SHARED]
    usage = "".join(f" {argument_word(each)}" for each in arguments)
    yield f"    {command.words}{' [OPTIONS]' if options else ''}{usage}\n\n"
    if arguments:
        yield "| argument | meaning |\n|---|---|\n"
        yield from (
            f"| `{argument_word(each)}` | {_cell(each.info.help)} |\n" for each in arguments
        )
        yield "\n"
    if own:
        yield from _option_table(own)
        yield "\n"
    repeated = ", ".join(
        f"`{each.long}`" + (f" (default {default_of(each)})" if each.name == "timeout" else "")
        for each in options
        if each not in own
    )
    if repeated:
        yield f"And {repeated}.\n\n"
    for example in command.epilog.split("\n\n"):
        yield f"    {example.removeprefix('Example: ')}\n"
    yield "\n"
    document = getattr(command.function, "__prints__", None)
    if document is not None:
        flag = "-o json" if any(each.name == "output" for each in options) else "--json"
        yield f"`{flag}`: {_document(document)}\n\n"


def _other_spellings() -> Iterator[str]:
    yield (
        "## Options of other tools\n\nCommands take options as Kafka's tools and kcat spell them,"
        " where they have an equal here. An option that has none ends with a usage error, which"
        " says what to write. Help pages list neither.\n"
    )
    for words, spellings in SPELLINGS.items():
        title = f"tidelog {words}".rstrip()
        yield f"\n| `{title}`, as in | option | here |\n|---|---|---|\n"
        for each in spellings:
            here = f"`{each.ours}`" if each.ours else each.hint or "no effect"
            yield f"| {each.tool} | `{each.theirs}` | {_cell(here)} |\n"


def _option_table(options: list[Parameter], varying: str = "") -> Iterator[str]:
    """Yield the table of options; the default of the option `varying` differs between commands."""
    yield "| option | meaning | default |\n|---|---|---|\n"
    for option in options:
        names = ", ".join(f"`{word}`" for word in option.declared)
        kind = "" if option.is_flag else f" {kind_of(option)}"
        default = "named with each command" if option.name == varying else default_of(option)
        yield f"| {names}{kind} | {_cell(option.info.help)} | {default} |\n"


def _cell(text: str | None) -> str:
    return " ".join((text or "").split()).replace("|", "\\|")


def _paragraphs(text: str | None) -> str:
    return "\n\n".join(" ".join(part.split()) for part in (text or "").split("\n\n"))


# -- JSON documents -----------------------------------------------------------------------------


def _document(document: Any) -> str:
    if isinstance(document, str):
        return document
    element, is_list = unwrapped(document)
    if not dataclasses.is_dataclass(element):
        return f"a list of {_type_word(element)}s."
    heading = f"a list of {_title(element)}" if is_list else _title(element)
    return f"{heading}\n\n" + "".join(_fields(element, "")).rstrip("\n")


def _title(element: Any) -> str:
    text = " ".join((element.__doc__ or "").split())
    return text[:1].lower() + text[1:]


def _fields(element: Any, indent: str) -> Iterator[str]:
    hints = typing.get_type_hints(element)
    for each in dataclasses.fields(element):
        inner, is_list = unwrapped(without_none(hints[each.name]))
        nested = dataclasses.is_dataclass(inner)
        word = "object" if nested else _words(hints[each.name], inner)
        kind = f"list of {word}s" if is_list else word
        nullable = " or null" if type(None) in typing.get_args(hints[each.name]) else ""
        title = f": {_title(inner)}" if nested else ""
        yield f"{indent}- `{each.name}`: {kind}{nullable}{title}\n"
        if nested:
            yield from _fields(inner, indent + "  ")


def _words(hint: Any, inner: Any) -> str:
    """Return the name of a type in JSON; a union has several names."""
    members = [each for each in typing.get_args(hint) if each is not type(None)]
    if isinstance(hint, types.UnionType) and len(members) > 1:
        return " or ".join(_type_word(each) for each in members)
    return _type_word(inner)


def _type_word(hint: Any) -> str:
    words = {str: "string", int: "number", bool: "boolean", float: "number"}
    return words.get(hint, "object")


def main() -> None:
    """Write the reference to the file that the first argument names."""
    from tidelog.cli.app import command_tree

    with open(sys.argv[1], "w", encoding="utf-8") as file:
        file.write(reference(command_tree()))


if __name__ == "__main__":
    main()
