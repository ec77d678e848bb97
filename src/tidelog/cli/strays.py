"""`tidelog strays`: replicas that brokers have set aside because they are no longer assigned.

Brokers keep strays for `log.stray.delete.delay.ms`. Strays that were set aside together with many
others are held until an operator says `delete` or `restore` (rule V35). The broker restores a
replica to its partition if the restore can lose no record, and otherwise gives the reason.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from tidelog.cli.completion import BrokersOption
from tidelog.cli.documents import StrayChanged, StrayListed, document_of, prints
from tidelog.cli.help import CommandGroup
from tidelog.cli.names import NotFoundError, broker_named, nearest, partition_word
from tidelog.cli.output import OutputFormat, print_rows, printed, say, size_text, time_text
from tidelog.cli.target import ClusterOptions
from tidelog.client.cluster import ClusterMetadata
from tidelog.client.stray_requests import StrayAction, StrayAltered, StrayReplica
from tidelog.core.errors import ErrorCode
from tidelog.core.types import ZERO_TOPIC_ID, TopicId, topic_id_to_text
from tidelog.runtime.blocking import BlockingClient

app = CommandGroup("List, restore and delete set-aside replicas.")

_SUFFIX = "-stray"

NamesArgument = Annotated[
    list[str] | None,
    typer.Argument(
        help="Which: a topic, some of its partitions (t:0,2-4), or a directory's name.",
        show_default=False,
    ),
]


@app.command("list", epilog="Example: tidelog strays list --broker 1")
@prints(list[StrayListed])
def list_strays(cluster: ClusterOptions, broker: BrokersOption = None) -> None:
    """List the replicas that brokers have set aside, and when each will be deleted.

    `held` replicas were set aside together with many others, and stay until `delete` or `restore`.
    """
    with cluster.client() as client:
        found = _strays(client, broker)
    if cluster.printed([_listed(each) for each in found]):
        return
    print_rows(
        found,
        (
            ("broker", "broker_id"),
            ("partition", "tp"),
            ("topic id", "topic_id", _id_text),
            ("set aside", "since_ms", time_text),
            ("size", "size_bytes", size_text),
            ("deleted", lambda each: time_text(each.delete_at_ms) or "held"),
            ("directory", lambda each: f"{each.log_dir}/{each.name}"),
        ),
    )


@app.command("restore", epilog="Example: tidelog strays restore flights:0 --broker 1")
@prints(list[StrayChanged])
def restore(
    cluster: ClusterOptions, names: NamesArgument = None, broker: BrokersOption = None
) -> None:
    """Restore set-aside replicas as replicas of their partitions.

    The topic must exist with the same topic id, and the partition must be assigned to the broker:
    restore the topic's metadata first. One replica of each partition is restored, if possible the
    replica of a broker in the ISR; the other replicas copy the restored replica. The controller
    makes the restored replica a leader or a follower at once. A restore that could lose records is
    refused. Reasons are another topic id, a replica with records in its place, another broker that
    leads, or a partition whose leader epoch is below that of the set-aside replica's last record.
    """
    with cluster.client() as client:
        wanted = _named(_strays(client, broker), names)
        metadata = client.metadata()
        results = []
        for candidates in _by_partition(wanted, metadata):
            results += _restore_one(client, candidates)
    _print_results(results, cluster.output, "restored")
    restored = {result.stray.tp for result in results if result.error is ErrorCode.NONE}
    if any(result.stray.tp not in restored for result in results):
        raise typer.Exit(1)


@app.command("delete", epilog="Example: tidelog strays delete --all-held --broker 2 --yes")
@prints(list[StrayChanged])
def delete(
    cluster: ClusterOptions,
    names: NamesArgument = None,
    all_held: Annotated[bool, typer.Option("--all-held", help="All held strays.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    broker: BrokersOption = None,
) -> None:
    """Delete set-aside replicas now, for good."""
    if bool(names) == all_held:
        raise typer.BadParameter("name strays, or give --all-held")
    with cluster.client() as client:
        found = _strays(client, broker)
        if all_held:
            wanted = [each for each in found if each.delete_at_ms is None]
            if not wanted:
                raise NotFoundError("no stray is held")
        else:
            wanted = _named(found, names)
        _confirm(wanted, yes)
        results = []
        for broker_id in sorted({each.broker_id for each in wanted}):
            of_it = [each for each in wanted if each.broker_id == broker_id]
            results += client.alter_strays(StrayAction.DELETE, of_it)
    _print_results(results, cluster.output, "deleted")
    if any(result.error is not ErrorCode.NONE for result in results):
        raise typer.Exit(1)


def _strays(client: BlockingClient, brokers: list[int] | None) -> list[StrayReplica]:
    for each in brokers or []:
        broker_named(client, each)
    wanted = brokers or sorted(client.metadata([]).brokers)
    return [stray for broker_id in wanted for stray in client.list_strays(broker_id)]


def _named(found: Sequence[StrayReplica], names: list[str] | None) -> list[StrayReplica]:
    """Return the named strays without duplicates; raise NotFoundError for an unknown name."""
    if not names:
        raise typer.BadParameter("which? a topic, t:0,2-4 or the name of a directory expected")
    chosen: dict[StrayReplica, None] = {}
    for name in names:
        some = [each for each in found if _is_meant(each, name)]
        if not some:
            known = {each.tp.topic if each.tp else each.name for each in found}
            raise NotFoundError(f"there is no stray {name!r}{nearest(name, known)}")
        chosen.update(dict.fromkeys(some))
    return list(chosen)


def _is_meant(stray: StrayReplica, name: str) -> bool:
    if name.endswith(_SUFFIX):
        return stray.name == name.rpartition("/")[2] and (
            "/" not in name or f"{stray.log_dir}/{stray.name}" == name
        )
    word = partition_word(name)
    return (
        stray.tp is not None
        and stray.tp.topic == word.topic
        and (word.partitions is None or stray.tp.partition in word.partitions)
    )


def _by_partition(
    wanted: Sequence[StrayReplica], metadata: ClusterMetadata
) -> list[list[StrayReplica]]:
    """Return each partition's strays in the order to try restores, one stray for each broker.

    The leader's stray is first, and strays of brokers in the ISR follow.
    """
    groups: dict[object, dict[int, StrayReplica]] = {}
    for each in sorted(wanted, key=lambda stray: (stray.since_ms, stray.name)):
        groups.setdefault(each.tp or each.name, {})[each.broker_id] = each

    def rank(stray: StrayReplica) -> int:
        known = None if stray.tp is None else metadata.partition(stray.tp)
        if known is None or stray.broker_id not in known.isr:
            return 2
        return 0 if known.leader == stray.broker_id else 1

    return [sorted(group.values(), key=rank) for group in groups.values()]


def _restore_one(client: BlockingClient, candidates: list[StrayReplica]) -> list[StrayAltered]:
    """Restore the first acceptable stray; return the refusals only if no stray is acceptable."""
    refused: list[StrayAltered] = []
    for stray in candidates:
        (result,) = client.alter_strays(StrayAction.RESTORE, [stray])
        if result.error is ErrorCode.NONE:
            return [result]
        refused.append(result)
    return refused


def _confirm(wanted: Sequence[StrayReplica], yes: bool) -> None:
    if yes:
        return
    size = size_text(sum(each.size_bytes for each in wanted))
    brokers = ", ".join(str(broker) for broker in sorted({each.broker_id for each in wanted}))
    what = f"{len(wanted)} set-aside replicas ({size}) of brokers {brokers}"
    if not sys.stdin.isatty():
        raise typer.BadParameter(f"{what} would be deleted for good: give --yes")
    typer.confirm(f"Delete {what} for good?", abort=True, err=True)


def _print_results(results: Sequence[StrayAltered], output: OutputFormat, done: str) -> None:
    if printed([_changed(result, done) for result in results], output):
        return
    for result in results:
        where = f"{result.stray.tp or result.stray.name} on broker {result.stray.broker_id}"
        if result.error is not ErrorCode.NONE:
            say(f"{where}: {result.error.name}: {result.message}")
        elif result.log_end_offset >= 0:
            print_range = f"offsets {result.log_start_offset} to {result.log_end_offset}"
            say(f"{where}: {done}, {print_range}; the controller is asked for its role")
        else:
            say(f"{where}: {done}")


def _listed(stray: StrayReplica) -> StrayListed:
    topic, partition = stray.tp or (None, None)
    return document_of(
        StrayListed,
        stray,
        broker=stray.broker_id,
        topic=topic,
        partition=partition,
        topic_id=_id_text(stray.topic_id),
        set_aside_ms=stray.since_ms,
        held=stray.delete_at_ms is None,
        restorable=stray.is_restorable,
    )


def _changed(result: StrayAltered, done: str) -> StrayChanged:
    topic, partition = result.stray.tp or (None, None)
    return document_of(
        StrayChanged,
        result.stray,
        broker=result.stray.broker_id,
        topic=topic,
        partition=partition,
        result=done if result.error is ErrorCode.NONE else result.error.name,
        message=result.message,
        first_offset=result.log_start_offset if result.log_start_offset >= 0 else None,
        end_offset=result.log_end_offset if result.log_end_offset >= 0 else None,
    )


def _id_text(topic_id: TopicId) -> str | None:
    return None if topic_id == ZERO_TOPIC_ID else topic_id_to_text(topic_id)
