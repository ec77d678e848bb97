"""`tidelog topics remove-partitions`: removal of the highest partitions with all their records.

The command prints the losses before the removal: records, bytes, and the offsets of groups. Nothing
restores removed records, whether consumers have read them or not. `--dry-run` only prints the
losses. The cluster decides whether the removal is allowed.
"""

from __future__ import annotations

from typing import Annotated

import typer

from tidelog.cli.completion import TopicArgument
from tidelog.cli.documents import GroupLoss, PartitionLoss, RemovedPartitions, prints
from tidelog.cli.names import topics_named
from tidelog.cli.output import OutputFormat, print_table, say
from tidelog.cli.target import ClusterOptions, DryRunOption
from tidelog.cli.waiting import WaitOption, wait_for
from tidelog.client.cluster import TopicMetadata
from tidelog.client.fetching import EARLIEST, LATEST
from tidelog.client.upkeep import sizes_of
from tidelog.core.types import NO_LEADER, TopicPartition
from tidelog.core.wording import counted
from tidelog.runtime.blocking import BlockingClient


@prints(RemovedPartitions)
def remove_partitions(
    cluster: ClusterOptions,
    name: TopicArgument,
    partitions: Annotated[
        int,
        typer.Option(min=1, help="How many to remove, from the highest down.", show_default=False),
    ],
    drain: Annotated[
        bool,
        typer.Option("--drain", help="Remove each when every consumer group has read all of it."),
    ] = False,
    dry_run: DryRunOption = False,
    wait: WaitOption = True,
) -> None:
    """Remove the highest partitions of a topic, with their records and the groups' offsets.

    The removed partitions take no more records as soon as the request is accepted. Producers write
    to the remaining partitions, and a key may go to another partition than before. Partitions that
    are added later begin empty. Internal topics keep their partitions, and every topic keeps at
    least one.
    """
    with cluster.client() as client:
        topic = topics_named(client, [name])[name]
        before = len(topic.partitions)
        left = before - partitions
        client.remove_partitions(name, left, drain=drain, validate_only=True)
        going = [TopicPartition(name, number) for number in range(left, before)]
        lost = _losses(client, topic, going)
        if cluster.output is not OutputFormat.JSON:
            _report_losses(name, before, left, lost, drain=drain)
        if not dry_run:
            client.remove_partitions(name, left, drain=drain)
            if wait:
                _await_removal(client, name, left, cluster.timeout)
    if cluster.printed(RemovedPartitions(name, before, left, drain, not dry_run, lost)):
        return
    if dry_run:
        say("nothing was removed: --dry-run")
    elif wait:
        say(f"topic {name} has {counted(left, 'partition')} now")
    else:
        say(f"accepted: topic {name} will have {counted(left, 'partition')}")


def _losses(
    client: BlockingClient, topic: TopicMetadata, going: list[TopicPartition]
) -> list[PartitionLoss]:
    """Return the data lost with each partition; only the groups' offsets if it has no leader."""
    led = [tp for tp in going if topic.partitions[tp.partition].leader != NO_LEADER]
    starts = client.list_offsets(dict.fromkeys(led, EARLIEST)) if led else {}
    ends = client.list_offsets(dict.fromkeys(led, LATEST)) if led else {}
    sizes: dict[TopicPartition, int] = {}
    for leader in sorted({topic.partitions[tp.partition].leader for tp in led}):
        sizes |= sizes_of(client.describe_log_dirs(leader, led))
    groups: dict[TopicPartition, list[GroupLoss]] = {tp: [] for tp in going}
    for listed in client.list_groups():
        for tp, committed in client.committed(listed.group, going).items():
            end = ends[tp].offset if tp in ends else committed.offset
            groups[tp].append(
                GroupLoss(listed.group, committed.offset, max(0, end - committed.offset))
            )
    return [
        PartitionLoss(
            tp.partition,
            starts[tp].offset if tp in starts else -1,
            ends[tp].offset if tp in ends else -1,
            sizes.get(tp, -1),
            groups[tp],
        )
        for tp in going
    ]


def _report_losses(
    name: str, before: int, left: int, lost: list[PartitionLoss], *, drain: bool
) -> None:
    print_table(
        ("partition", "records", "bytes", "groups with offsets", "not read by them"),
        (
            (
                loss.partition,
                loss.end_offset - loss.first_offset if loss.end_offset >= 0 else "?",
                loss.size_bytes if loss.size_bytes >= 0 else "?",
                ", ".join(each.group for each in loss.groups) or None,
                sum(each.unread for each in loss.groups) if loss.groups else None,
            )
            for loss in lost
        ),
        title=f"{name}: {_numbers(left, before)} of {before} will be removed with their records",
    )
    unread = {each.group for loss in lost for each in loss.groups if each.unread}
    if unread and drain:
        say(f"waits until {', '.join(sorted(unread))} have read all of it")
    elif unread:
        say(f"{', '.join(sorted(unread))} lose their unread records: see --drain")


def _await_removal(client: BlockingClient, name: str, left: int, timeout_s: float) -> None:
    brokers = len(client.metadata([]).brokers)

    def heard() -> int:
        return sum(count <= left for count in client.partition_counts(name).values())

    wait_for(f"brokers with {counted(left, 'partition')} of {name}", brokers, heard, timeout_s)


def _numbers(first: int, end: int) -> str:
    return f"partition {first}" if end - first == 1 else f"partitions {first} to {end - 1}"
