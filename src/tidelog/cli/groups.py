"""`tidelog groups`: list, describe, reset and delete groups.

A reset shows the new offsets and commits them only with --execute. The group must have no members:
a member's next commit would overwrite the new offsets.
"""

from __future__ import annotations

from typing import Annotated

import typer

from tidelog.cli.completion import group_names
from tidelog.cli.documents import (
    AssignedPartition,
    GroupDescribed,
    GroupOffset,
    GroupReset,
    GroupsDeleted,
    MemberDocument,
    OffsetReset,
    document_of,
    prints,
)
from tidelog.cli.help import CommandGroup
from tidelog.cli.names import NotFoundError, nearest, partition_word
from tidelog.cli.output import (
    OutputFormat,
    or_none,
    print_line,
    print_rows,
    printable,
    printed,
    say,
)
from tidelog.cli.resetting import plan_of, targets
from tidelog.cli.target import ClusterOptions
from tidelog.client.groups import DEAD, EMPTY, FetchedOffset, GroupListing, MemberDescription
from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.types import TopicPartition
from tidelog.core.wording import brokers_text
from tidelog.local.status import describe_partitions
from tidelog.runtime.blocking import BlockingClient

app = CommandGroup("Show, reset and delete consumer groups.")

_GroupArgument = Annotated[
    str, typer.Argument(help="The group.", show_default=False, autocompletion=group_names)
]
_ResetTopicOption = Annotated[
    list[str] | None, typer.Option("--topic", help="This topic, or partitions of it as t:0,2-4.")
]
_AllTopicsOption = Annotated[
    bool, typer.Option("--all-topics", help="All topics with committed offsets of the group.")
]
_EarliestOption = Annotated[bool, typer.Option("--to-earliest", help="To the first record.")]
_LatestOption = Annotated[bool, typer.Option("--to-latest", help="After the last record.")]
_CurrentOption = Annotated[
    bool, typer.Option("--to-current", help="To the committed offset, within the log.")
]
_ToOffsetOption = Annotated[int | None, typer.Option(min=0, help="To this offset.")]
_DatetimeOption = Annotated[
    str | None, typer.Option(help="To the first record since a time, as 2026-01-31T12:00 (UTC).")
]
_DurationOption = Annotated[
    str | None, typer.Option(help="To the first record no older than a duration, as PT1H30M.")
]
_ShiftOption = Annotated[
    int | None, typer.Option(help="Forward by this many records; back as in --shift-by -10.")
]


@app.command("list", epilog="Example: tidelog groups list -o json")
@prints(list[GroupListing])
def list_groups(cluster: ClusterOptions) -> None:
    """List the groups with their state and coordinator."""
    loading: set[int] = set()
    with cluster.client() as client:
        rows = client.list_groups(None, loading)
    if loading:
        brokers = brokers_text(sorted(loading), "still loads", "still load")
        say(f"tidelog: {brokers} groups: some may be missing from this list")
    columns = ("group", "state", ("protocol type", "protocol_type", or_none), "coordinator")
    print_rows(rows, columns, cluster.output, "there are no groups")


@app.command(epilog="Example: tidelog groups describe billing")
@prints(GroupDescribed)
def describe(cluster: ClusterOptions, name: _GroupArgument) -> None:
    """Show a group: its members, their partitions, and its lag."""
    with cluster.client() as client:
        found = _described(client, name)
    if cluster.printed(found):
        return
    print_line(
        printable(
            f"group {found.group}  {found.state}  assignor {found.assignor or '-'}"
            f"  coordinator {found.coordinator}"
        )
    )
    if found.members:
        print_line("")
        print_rows(found.members, _MEMBER_COLUMNS)
    if found.offsets:
        print_line("")
        committed = ("committed", "committed_offset")
        reader = ("member", lambda each: each.member_id or "-")
        columns = ("topic", "partition", committed, "high watermark", "lag", reader)
        print_rows(found.offsets, columns)
        lags = [each.lag for each in found.offsets if each.lag is not None]
        unknown = len(found.offsets) - len(lags)
        print_line(
            f"lag in all: {sum(lags) if lags else '-'}"
            + (f"; not known of {unknown} partitions" if unknown else "")
        )


@app.command(
    epilog="Example: tidelog groups reset billing --topic flights:0 --to-datetime"
    " 2026-01-31T12:00 --execute"
)
@prints(GroupReset)
def reset(
    cluster: ClusterOptions,
    name: _GroupArgument,
    topic: _ResetTopicOption = None,
    all_topics: _AllTopicsOption = False,
    to_earliest: _EarliestOption = False,
    to_latest: _LatestOption = False,
    to_current: _CurrentOption = False,
    to_offset: _ToOffsetOption = None,
    to_datetime: _DatetimeOption = None,
    by_duration: _DurationOption = None,
    shift_by: _ShiftOption = None,
    execute: Annotated[
        bool, typer.Option("--execute", help="Set the offsets instead of only showing them.")
    ] = False,
) -> None:
    """Set the committed offsets of a group. Shows the new offsets; --execute sets them.

    Offsets stay within the log. The group must have no members.
    """
    plan = plan_of(
        {
            "--to-earliest": to_earliest,
            "--to-latest": to_latest,
            "--to-current": to_current,
            "--to-offset": to_offset,
            "--to-datetime": to_datetime,
            "--by-duration": by_duration,
            "--shift-by": shift_by,
        }
    )
    if bool(topic) == all_topics:
        raise typer.BadParameter("give --topic NAME, once or more, or --all-topics")
    words = None if all_topics else [partition_word(each) for each in topic or []]
    with cluster.client() as client:
        is_known = _check_unused(client, name, execute) != DEAD
        before, after = targets(client, name, words, plan)
        if execute and after:
            client.commit(name, {tp: FetchedOffset(offset) for tp, offset in after.items()})
        if after and not is_known:
            _report_new_group(client, name, execute)
    _report_reset(name, before, after, execute, cluster.output)


@app.command(epilog="Example: tidelog groups delete billing")
@prints(GroupsDeleted)
def delete(
    cluster: ClusterOptions,
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME", help="Groups.", show_default=False, autocompletion=group_names
        ),
    ],
) -> None:
    """Delete groups that have no members, with the offsets that they committed."""
    with cluster.client() as client:
        for name in names:
            _delete(client, name)
            if cluster.output is not OutputFormat.JSON:
                say(f"group {name} deleted")
    cluster.printed(GroupsDeleted(names))


def _delete(client: BlockingClient, name: str) -> None:
    try:
        client.delete_group(name)
    except KafkaError as error:
        if error.code is ErrorCode.GROUP_ID_NOT_FOUND:
            raise _unknown(client, name) from None
        if error.code is ErrorCode.NON_EMPTY_GROUP:
            _check_unused(client, name, execute=True)
        raise


def _unknown(client: BlockingClient, name: str) -> NotFoundError:
    # A group of this name may exist by now, but the error must not suggest the typed name itself.
    known = [each.group for each in client.list_groups() if each.group != name]
    return NotFoundError(f"there is no group {name!r}{nearest(name, known)}")


def _check_unused(client: BlockingClient, name: str, execute: bool) -> str:
    """Return the group's state.

    If the group has members, raise NotFoundError with `execute`, and only warn without `execute`.
    """
    found = client.describe_group(name)
    if found.state in (EMPTY, DEAD):
        return found.state
    names = {printable(f"{it.client_id} at {it.host}") for it in found.members}
    clients = ", ".join(sorted(names))
    text = f"group {name!r} is {found.state} with {len(found.members)} members ({clients})"
    if execute:
        raise NotFoundError(f"{text}; stop them first")
    say(f"tidelog: {text}: stop them before you change it")
    return found.state


def _report_new_group(client: BlockingClient, name: str, execute: bool) -> None:
    """Report that a group is new, because a mistyped name would create a group."""
    known = [each.group for each in client.list_groups() if each.group != name]
    made = "is new: it had no committed offsets" if execute else "would be new"
    say(f"tidelog: group {name!r} {made}{nearest(name, known) if known else ''}")


def _described(client: BlockingClient, name: str) -> GroupDescribed:
    group = client.describe_group(name)
    committed = client.committed(name)
    if group.state == DEAD and not committed:
        raise _unknown(client, name)
    readers = {tp: member.member_id for member in group.members for tp in member.assignment or ()}
    wanted = sorted({*committed, *readers})
    topics = sorted({tp.topic for tp in wanted})
    marks = {}
    if topics:
        for each in describe_partitions(client, client.metadata(topics)):
            marks[TopicPartition(each.topic, each.partition)] = each.high_watermark
    return document_of(
        GroupDescribed,
        group,
        group=group.name,
        coordinator=group.coordinator.broker_id,
        members=[_member(each) for each in group.members],
        offsets=[_offset(tp, committed.get(tp), marks.get(tp), readers.get(tp)) for tp in wanted],
    )


def _member(member: MemberDescription) -> MemberDocument:
    assigned = member.assignment
    partitions = None if assigned is None else [AssignedPartition(*tp) for tp in assigned]
    return document_of(MemberDocument, member, partitions=partitions)


def _offset(
    tp: TopicPartition, committed: FetchedOffset | None, mark: int | None, reader: str | None
) -> GroupOffset:
    offset = None if committed is None else committed.offset
    lag = None if offset is None or mark is None else max(0, mark - offset)
    return GroupOffset(*tp, offset, mark, lag, reader)


def _short(partitions: list[AssignedPartition] | None) -> str:
    """Return partitions in the form `flights:0,1 trains:4`."""
    if partitions is None:
        return "(not a consumer's)"
    numbers: dict[str, list[str]] = {}
    for each in partitions:
        numbers.setdefault(each.topic, []).append(str(each.partition))
    return " ".join(f"{topic}:{','.join(each)}" for topic, each in numbers.items()) or "-"


_MEMBER_COLUMNS = (
    ("member", "member_id"),
    ("instance", "instance_id"),
    ("client", "client_id"),
    "host",
    ("partitions", "partitions", _short),
)


def _report_reset(
    name: str,
    before: dict[TopicPartition, int],
    after: dict[TopicPartition, int],
    execute: bool,
    output: OutputFormat,
) -> None:
    resets = [OffsetReset(*tp, before.get(tp), offset) for tp, offset in after.items()]
    if printed(GroupReset(name, execute, resets), output):
        return
    if resets:
        print_rows(resets, ("topic", "partition", "before", "after"))
    if not execute:
        say("nothing was changed: --execute does it")
