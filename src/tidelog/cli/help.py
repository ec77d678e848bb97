"""Help pages as plain text: whole words and whole option names at any width.

typer's pages interpret square brackets as markup, shorten option names to fit a table, and end
summaries with dots. The help pages of tidelog show help texts exactly as the code has them. Lines
break only between words; an example that needs a second line ends its first line with a backslash,
as shells want it.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
import shutil
import textwrap
import typing
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.models import ArgumentInfo

from tidelog.cli.output import CompactOption, compact_json
from tidelog.cli.parameters import Parameter, default_of, kind_of, parameters_of
from tidelog.cli.spellings import SPELLINGS, DifferentOptionError, translated

#: Maximum width of a page: longer lines are hard to read on any terminal.
_MOST_COLUMNS = 100
_FEWEST_COLUMNS = 40
#: Width of the column of names; a longer name gets a line of its own.
_NAME_COLUMNS = 28
#: In a help text: a word as a shell reads it, or an option with its value; lines are not broken
#: inside.
_SHELL_WORD = re.compile(r"(?:--?[\w-]+ )?(?:'[^']*'|\"[^\"]*\"|\S)+")


class HelpCommand(TyperCommand):
    """A command with a plain help page, which also accepts the spellings of Kafka's tools."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words of the command line; translate the spellings of Kafka's tools first."""
        return super().parse_args(ctx, _in_own_spellings(self, ctx, args))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help page of the command: usage, arguments, options and examples."""
        declared = [] if self.callback is None else parameters_of(self.callback)
        arguments = [each for each in declared if isinstance(each.info, ArgumentInfo)]
        usage = " ".join(["[OPTIONS]", *(argument_word(each) for each in arguments)])
        lines = _opening(ctx.command_path, usage, self.help)
        rows = [(argument_word(each), _argument_text(each)) for each in arguments]
        lines += _section("Arguments", rows)
        lines += _section("Options", _options(self.get_params(ctx), declared))
        lines += _examples(self.epilog)
        formatter.write("\n".join(lines) + "\n")


class HelpGroup(TyperGroup):
    """A group of commands with a plain help page; `--list` stands for the command `list`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words of the command line up to the name of the command."""
        # Options may precede the command, also options of Kafka's tools, such as `--list`.
        if args and args[0].startswith("-"):
            args = _in_own_spellings(self, ctx, args)
        return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help page of the group: usage, options and commands."""
        declared = [] if self.callback is None else parameters_of(self.callback)
        lines = _opening(ctx.command_path, "[OPTIONS] COMMAND [ARGS]...", self.help)
        lines += _section("Options", _options(self.get_params(ctx), declared))
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [(name, _first_sentence(each.help)) for name, each in commands if each is not None]
        lines += _section("Commands", rows)
        formatter.write("\n".join(lines) + "\n")


class CommandGroup(typer.Typer):
    """A group of commands below one word; the word alone prints the help page."""

    def __init__(self, help_text: str, **settings: Any) -> None:
        super().__init__(
            help=help_text, cls=HelpGroup, no_args_is_help=True, rich_markup_mode=None, **settings
        )

    def command(self, name: str | None = None, **settings: Any) -> Callable[[Any], Any]:
        """Add a function as the command `name`, by default under the function's own name.

        A parameter whose class is a dataclass stands for the options that its fields declare.
        """
        add = super().command(name, cls=HelpCommand, **settings)

        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            add(_with_groups(function))
            return function

        return register


def _with_groups(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a command with an option for each field of its dataclass parameters.

    A parameter whose class is a dataclass stands for a group of options, which follow the command's
    own options. A command with --output also gets --compact.
    """
    hints = typing.get_type_hints(function, include_extras=True)
    groups: dict[str, Any] = {
        name: kind for name, kind in hints.items() if dataclasses.is_dataclass(kind)
    }
    declared = {
        name: each.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY)
        for name, each in inspect.signature(function).parameters.items()
        if name not in groups
    }
    for group in groups.values():
        annotations = typing.get_type_hints(group, include_extras=True)
        for field in dataclasses.fields(group):
            declared[field.name] = _option(field.name, field.default, annotations[field.name])
    if "output" in declared:
        declared["compact"] = _option("compact", False, CompactOption)

    @functools.wraps(function)
    def run(**named: Any) -> Any:
        compact_json(named.pop("compact", False))
        for name, group in groups.items():
            fields = dataclasses.fields(group)
            named[name] = group(**{field.name: named.pop(field.name) for field in fields})
        return function(**named)

    run.__annotations__ = {name: each.annotation for name, each in declared.items()}
    run.__signature__ = inspect.Signature(list(declared.values()))  # type: ignore[attr-defined]
    return run


def _option(name: str, default: Any, annotation: Any) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )


def _in_own_spellings(command: Any, ctx: Any, words: list[str]) -> list[str]:
    """Return the words of a command, or of a group, in tidelog's spellings."""
    spellings = SPELLINGS.get(ctx.command_path.partition(" ")[2])
    if spellings is None or ctx.resilient_parsing:
        return words
    options = [each for each in command.get_params(ctx) if each.param_type_name == "option"]
    own = {
        name: not (each.is_flag or each.count)
        for each in options
        for name in (*each.opts, *each.secondary_opts)
    }
    try:
        return translated(words, own, spellings)
    except DifferentOptionError as error:
        fail: Callable[[str], typing.NoReturn] = ctx.fail
        fail(str(error))


def argument_word(argument: Parameter) -> str:
    """Return the name of an argument in usage lines."""
    word = argument.info.metavar or argument.name.upper()
    word += "..." if argument.is_list else ""
    return word if argument.is_required else f"[{word}]"


def _columns() -> int:
    return max(_FEWEST_COLUMNS, min(_MOST_COLUMNS, shutil.get_terminal_size().columns))


def _wrap(text: str, indent: str, rest: str | None = None) -> list[str]:
    """Return the lines of a paragraph; words are never broken, even at hyphens."""
    return textwrap.wrap(
        " ".join(text.split()),
        _columns(),
        initial_indent=indent,
        subsequent_indent=indent if rest is None else rest,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _opening(path: str, usage: str, text: str | None) -> list[str]:
    lines = _wrap(f"Usage: {path} {usage}", "", "  ")
    for paragraph in (text or "").split("\n\n"):
        lines += ["", *_wrap(paragraph, "  ")]
    return lines


def _section(title: str, rows: Sequence[tuple[str, str]]) -> list[str]:
    """Return the lines of a heading and of names with their meanings beside them."""
    if not rows:
        return []
    width = max(len(name) for name, _ in rows if len(name) <= _NAME_COLUMNS)
    rest = " " * (width + 4)
    lines = ["", f"{title}:"]
    for name, text in rows:
        if len(name) > width:
            lines += [f"  {name}", *_wrap(text, rest)]
        else:
            lines += _wrap(text, f"  {name:<{width}}  ", rest) or [f"  {name}"]
    return lines


def _options(parameters: Sequence[Any], declared: Sequence[Parameter]) -> list[tuple[str, str]]:
    """Return names and meanings of all options, including options that typer adds."""
    known = {each.name: each for each in declared}
    rows = []
    for each in parameters:
        if each.param_type_name != "option" or getattr(each, "hidden", False):
            continue
        names = ", ".join(sorted(each.opts, key=lambda word: word.startswith("--")))
        if each.secondary_opts:
            names += " / " + ", ".join(each.secondary_opts)
        option = known.get(each.name)
        if option is None:
            rows.append((names, each.help or ""))
            continue
        kind = "" if option.is_flag else f" {kind_of(option)}".replace("\\|", "|")
        rows.append((names + kind.removesuffix(" (repeatable)"), _option_text(option)))
    return rows


def _option_text(option: Parameter) -> str:
    notes = []
    if _range(option):
        notes.append(_range(option))
    if option.is_list:
        notes.append("repeatable")
    default = default_of(option).strip("`")
    if option.is_required:
        notes.append("required")
    elif default:
        notes.append(f"default: {default}")
    return _noted(option.info.help, notes)


def _range(option: Parameter) -> str:
    """Return the range of numbers that an option accepts; empty if it has no range."""
    least, most = option.info.min, option.info.max
    if least is None or most is None:
        return "" if least is None else f"at least {least:g}"
    return f"{least:.0f} to {most:.0f}"


def _argument_text(argument: Parameter) -> str:
    return _noted(argument.info.help, ["required"] if argument.is_required else [])


def _noted(text: str | None, notes: Sequence[str]) -> str:
    return (text or "") + (f" [{'; '.join(notes)}]" if notes else "")


def _first_sentence(text: str | None) -> str:
    """Return the first paragraph of a help text without its full stop, for a list."""
    return " ".join((text or "").split("\n\n")[0].split()).removesuffix(".")


def _examples(epilog: str | None) -> Iterator[str]:
    if epilog is None:
        return
    yield ""
    yield "Examples:"
    for example in epilog.split("\n\n"):
        yield from _shell_lines(example.removeprefix("Example: "))


def _shell_lines(example: str) -> Iterator[str]:
    """Yield the lines of one shell command; a long command takes several lines."""
    line = " "
    for word in _SHELL_WORD.findall(example):
        if len(line) + len(word) + 3 > _columns():
            yield f"{line} \\"
            line = "   "
        line += f" {word}"
    yield line
