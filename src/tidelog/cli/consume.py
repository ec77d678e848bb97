"""`tidelog consume`: records to standard output, with kcat's options; alone or in a group.

With a group, the command commits the offsets of the written records every five seconds, at a
rebalance, and at the end. After Ctrl-C the command finishes its current write, commits, and exits
with 130 (143 after SIGTERM). A second Ctrl-C ends the command at once. When the reader of the
output goes away, the command exits without a commit, because the reader may have missed records.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import typer

from tidelog.cli.completion import group_names, topic_names
from tidelog.cli.documents import RecordDocument as ConsumedDocument
from tidelog.cli.documents import prints
from tidelog.cli.names import PartitionWord, partition_numbers, topics_named
from tidelog.cli.offsets import ReadSpan, Where, parse_span
from tidelog.cli.output import abandon_output
from tidelog.cli.reading import Ending, Interrupts, Write, read_alone, read_as_member
from tidelog.cli.record_output import formatter, json_line, plain_format
from tidelog.cli.target import ClusterAddress
from tidelog.client.assignors import ASSIGNORS
from tidelog.client.fetching import EARLIEST
from tidelog.client.membership import MemberOptions
from tidelog.core.types import READ_COMMITTED, READ_UNCOMMITTED

_LEVELS = {"read_committed": READ_COMMITTED, "read_uncommitted": READ_UNCOMMITTED}

_TopicsArgument = Annotated[
    list[str],
    typer.Argument(metavar="TOPIC", help="Topics.", show_default=False, autocompletion=topic_names),
]
_FormatOption = Annotated[
    str | None,
    typer.Option(
        "-f",
        "--format",
        help="%t topic, %p partition, %o offset, %T timestamp, %k key, %v value, %h headers, %K %S"
        " sizes, %R size in 4 bytes.",
    ),
]
_JsonOption = Annotated[
    bool, typer.Option("-J", "--json", help="One JSON document a record and line.")
]
_DelimiterOption = Annotated[
    str, typer.Option("-D", "--delimiter", help="Text after every record, without --format.")
]
_KeyDelimiterOption = Annotated[
    str | None,
    typer.Option("-K", "--key-delimiter", help="Write keys, each followed by this text."),
]
_NullOption = Annotated[
    bool, typer.Option("-Z", "--null", help="Write NULL where there is no key or value.")
]
_OffsetOption = Annotated[
    list[str] | None,
    typer.Option(
        "-o",
        "--offset",
        help="Where to begin: beginning, end, stored, 42, -10 (the last ones), s@TIME; e@TIME is"
        " where to end. With --group, where nothing is stored. Without: beginning.",
    ),
]
_CountOption = Annotated[
    int | None, typer.Option("-c", "--count", min=1, help="End after this number of records.")
]
_ExitOption = Annotated[
    bool, typer.Option("-e", "--exit", help="End when all present records are written.")
]
_PartitionOption = Annotated[
    str | None, typer.Option("-p", "--partition", help="These partitions only, as 0,2-4.")
]
_GroupOption = Annotated[
    str | None,
    typer.Option(
        "-g",
        "--group",
        help="Join a group and commit; with -p, commit without joining.",
        autocompletion=group_names,
    ),
]
_AssignorOption = Annotated[str, typer.Option(help=f"How a group shares: {', '.join(ASSIGNORS)}.")]
_LevelOption = Annotated[str, typer.Option(help="read_committed or read_uncommitted.")]


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command(
        epilog="Example: tidelog consume flights -o -10 -e -f '%t %p %o %T %k=%v\\n'\n\n"
        "Example: tidelog consume flights -g billing -J"
    )(consume)


@prints(ConsumedDocument)
def consume(
    cluster: ClusterAddress,
    topics: _TopicsArgument,
    format_text: _FormatOption = None,
    as_json: _JsonOption = False,
    delimiter: _DelimiterOption = "\\n",
    key_delimiter: _KeyDelimiterOption = None,
    null: _NullOption = False,
    offset: _OffsetOption = None,
    count: _CountOption = None,
    exit_at_end: _ExitOption = False,
    partition: _PartitionOption = None,
    group: _GroupOption = None,
    assignor: _AssignorOption = "range",
    isolation_level: _LevelOption = "read_committed",
) -> None:
    """Read records of topics to standard output, without end unless an option ends it."""
    _check_word("--isolation-level", isolation_level, _LEVELS)
    _check_word("--assignor", assignor, ASSIGNORS)
    if as_json and format_text is not None:
        raise typer.BadParameter("--json and --format do not go together")
    plain = plain_format(delimiter, key_delimiter)
    write: Write = json_line if as_json else formatter(format_text or plain, null)
    numbers = None if partition is None else partition_numbers(partition)
    words = [PartitionWord(topic, numbers) for topic in dict.fromkeys(topics)]
    default = Where(timestamp=EARLIEST) if group is None else Where(is_stored=True)
    span = parse_span(offset or [], default)
    _check_span(span, group, is_member=group is not None and numbers is None)
    ending = Ending(count, exit_at_end)
    level = _LEVELS[isolation_level]
    with cluster.client() as client, Interrupts() as ending.asked:
        try:
            if group is not None and numbers is None:
                topics_named(client, topics)
                names = tuple(word.topic for word in words)
                options = MemberOptions(group, names, ASSIGNORS[assignor])
                read_as_member(client, options, span.start, level, write, ending)
            else:
                read_alone(client, words, span, level, group, write, ending)
        except BrokenPipeError:
            abandon_output()
    if ending.asked.signal is not None:
        raise typer.Exit(128 + ending.asked.signal)


def _check_word(option: str, word: str, known: Iterable[str]) -> None:
    if word not in known:
        raise typer.BadParameter(f"{word!r}: {' or '.join(known)} expected", param_hint=option)


def _check_span(span: ReadSpan, group: str | None, *, is_member: bool) -> None:
    if span.start.is_stored and group is None:
        raise typer.BadParameter("stored offsets are those of a group: give --group")
    if is_member and span.start.timestamp is None and not span.start.is_stored:
        raise typer.BadParameter(
            "a member of a group goes on at what is stored, and where nothing is at beginning, end"
            " or s@TIME; with -p a group's partitions are read from anywhere"
        )
    if is_member and span.end_timestamp is not None:
        raise typer.BadParameter("e@TIME needs partitions of one's own: give -p, or no --group")
