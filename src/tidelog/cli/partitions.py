"""`tidelog leaders elect` and `tidelog records delete`: operations on single partitions.

`leaders elect` and `records delete` need named partitions or --all, because an unclean election may
lose acknowledged records, and deleted records do not come back.
"""

from __future__ import annotations

from typing import Annotated

import typer

from tidelog.cli.completion import TopicOption, topic_names
from tidelog.cli.documents import LeaderElected, RecordsDeleted, prints
from tidelog.cli.help import CommandGroup
from tidelog.cli.names import (
    NotFoundError,
    PartitionWord,
    partition_numbers,
    partition_word,
    partitions_named,
)
from tidelog.cli.output import or_none, print_rows, say
from tidelog.cli.target import ClusterOptions, DryRunOption
from tidelog.cli.waiting import WaitOption, wait_for
from tidelog.client.cluster import ClusterMetadata
from tidelog.client.fetching import EARLIEST, LATEST
from tidelog.client.upkeep import HIGH_WATERMARK, ElectionResult, ElectionType
from tidelog.core.errors import ErrorCode
from tidelog.core.types import NO_LEADER, TopicPartition
from tidelog.runtime.blocking import BlockingClient

leaders_app = CommandGroup("Elect leaders.")
records_app = CommandGroup("Delete records.")


@leaders_app.command(epilog="Example: tidelog leaders elect --topic flights --partition 0,2-4")
@prints(list[LeaderElected])
def elect(
    cluster: ClusterOptions,
    topic: TopicOption = None,
    partition: Annotated[
        str | None, typer.Option("--partition", help="Its partitions, as 0,2-4; default all.")
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Every partition that needs an election.")
    ] = False,
    unclean: Annotated[
        bool,
        typer.Option(
            "--unclean/--preferred",
            help="Any live replica where no in-sync replica is live, or the preferred replica.",
        ),
    ] = False,
    wait: WaitOption = True,
) -> None:
    """Elect leaders: the preferred replica, or with --unclean a replica that may lack records.

    The exit code is 1 if a partition did not get the requested leader.
    """
    if (topic is not None) == every or (partition is not None and topic is None):
        raise typer.BadParameter("give --topic NAME, perhaps with --partition, or --all")
    numbers = None if partition is None else partition_numbers(partition)
    election = ElectionType.UNCLEAN if unclean else ElectionType.PREFERRED
    with cluster.client() as client:
        wanted = None
        if topic is not None:
            wanted = partitions_named(client, [PartitionWord(topic, numbers)])
        before = client.metadata()
        results = client.elect_leaders(election, wanted)
        if wait:
            _await_leaders(
                client, [tp for tp in results if results[tp].holds], election, cluster.timeout
            )
        after = client.metadata()
    rows = [_elected(tp, results[tp], before, after) for tp in sorted(results)]
    reason = ("reason", "message", or_none)
    columns = ("topic", "partition", "result", "leader before", "leader", reason)
    print_rows(rows, columns, cluster.output, "no partition needs an election")
    failed = sum(not each.holds for each in results.values())
    if failed:
        say(f"tidelog: {failed} of {len(rows)} partitions do not have the requested leader")
        raise typer.Exit(1)


@records_app.command(epilog="Example: tidelog records delete flights:0 --before-offset 1000")
@prints(list[RecordsDeleted])
def delete(
    cluster: ClusterOptions,
    partitions: Annotated[
        list[str],
        typer.Argument(
            metavar="TOPIC[:PARTITIONS]",
            help="Partitions, as t or t:0,2-4.",
            show_default=False,
            autocompletion=topic_names,
        ),
    ],
    before_offset: Annotated[
        int | None, typer.Option("--before-offset", min=0, help="The first offset to keep.")
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Everything below the high watermark.")
    ] = False,
    dry_run: DryRunOption = False,
) -> None:
    """Delete the oldest records of partitions by raising their log start offsets.

    This is irreversible.
    """
    if (before_offset is not None) == every:
        raise typer.BadParameter("give --before-offset N or --all")
    words = [partition_word(each) for each in partitions]
    with cluster.client() as client:
        chosen = partitions_named(client, words)
        target = HIGH_WATERMARK if before_offset is None else before_offset
        starts = _new_starts(client, chosen, target)
        if not dry_run:
            starts = client.delete_records(dict.fromkeys(chosen, target))
    rows = [RecordsDeleted(*tp, starts[tp], not dry_run) for tp in chosen]
    heading = "first offset would be" if dry_run else "first offset"
    print_rows(rows, ("topic", "partition", (heading, "low_watermark")), cluster.output)


def _await_leaders(
    client: BlockingClient, chosen: list[TopicPartition], election: ElectionType, timeout_s: float
) -> None:
    """Wait until the broker that serves metadata knows the new leaders."""

    def settled() -> int:
        metadata = client.metadata(sorted({tp.topic for tp in chosen}))
        found = (metadata.partition(tp) for tp in chosen)
        return sum(
            each is not None
            and each.leader != NO_LEADER
            and (election is ElectionType.UNCLEAN or each.leader == each.replicas[0])
            for each in found
        )

    if chosen:
        wait_for("leaders", len(chosen), settled, timeout_s)


def _elected(
    tp: TopicPartition, result: ElectionResult, before: ClusterMetadata, after: ClusterMetadata
) -> LeaderElected:
    if result.error is ErrorCode.NONE:
        word = "elected"
    elif result.error is ErrorCode.ELECTION_NOT_NEEDED:
        word = "not_needed"
    else:
        word = result.error.name
    was, now = before.partition(tp), after.partition(tp)
    return LeaderElected(
        *tp,
        word,
        NO_LEADER if was is None else was.leader,
        NO_LEADER if now is None else now.leader,
        result.message,
    )


def _new_starts(
    client: BlockingClient, chosen: list[TopicPartition], target: int
) -> dict[TopicPartition, int]:
    """Return the new first offset of each partition; NotFoundError for an offset above the end."""
    ends = client.list_offsets(dict.fromkeys(chosen, LATEST))
    starts = client.list_offsets(dict.fromkeys(chosen, EARLIEST))
    found = {}
    for tp in chosen:
        end = ends[tp].offset
        if target > end:
            raise NotFoundError(f"{tp} ends at offset {end}: {target} is above its high watermark")
        found[tp] = end if target == HIGH_WATERMARK else max(target, starts[tp].offset)
    return found
