"""`tidelog topics`: create, list, describe, alter, add-partitions and delete.

`remove-partitions` is in `cli/removing`, `move` in `cli/planned_moves`. All commands use the Kafka
client, so that they work against any reachable cluster. Error messages come from the brokers.
"""

from __future__ import annotations

from typing import Annotated

import typer

from tidelog.cli.completion import TopicArgument
from tidelog.cli.configs import (
    MIN_INSYNC_REPLICAS,
    ConfigOption,
    DeleteConfigOption,
    change_configs,
    changes_of,
    warn_of_minimum,
)
from tidelog.cli.describing import describe
from tidelog.cli.documents import (
    AddedPartitions,
    ConfigsChanged,
    CreatedTopic,
    TopicDeleted,
    prints,
)
from tidelog.cli.help import CommandGroup
from tidelog.cli.move_execution import Execution
from tidelog.cli.names import topics_named
from tidelog.cli.output import OutputFormat, print_json, print_line, say
from tidelog.cli.planned_moves import change_replication_factor, move
from tidelog.cli.removing import remove_partitions
from tidelog.cli.target import ClusterOptions, DryRunOption, key_values
from tidelog.cli.waiting import WaitOption, wait_for
from tidelog.client.configs import TOPIC, ConfigResource
from tidelog.core.config_keys import INT16_MAX, INT32_MAX
from tidelog.core.dataclass import dataclass
from tidelog.core.types import NO_LEADER, topic_id_to_text
from tidelog.core.wording import counted
from tidelog.runtime.blocking import BlockingClient

app = CommandGroup("Create, show, change and delete topics.")

_NewNameArgument = Annotated[str, typer.Argument(help="The topic.", show_default=False)]


@dataclass(frozen=True, slots=True)
class _AlterExecution(Execution):
    """The options of an alteration, which changes either configurations or replicas."""

    dry_run: DryRunOption = False


@app.command(
    epilog="Example: tidelog topics create flights --partitions 6 --replication-factor 3"
    " --config min.insync.replicas=2"
)
@prints(CreatedTopic)
def create(
    cluster: ClusterOptions,
    name: _NewNameArgument,
    partitions: Annotated[
        int | None, typer.Option(min=1, max=INT32_MAX, help="Partitions [the broker's default].")
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(
            min=1, max=INT16_MAX, help="Replicas of each partition [the broker's default]."
        ),
    ] = None,
    config: ConfigOption = None,
    wait: WaitOption = True,
) -> None:
    """Create a topic; return when every partition has a leader.

    A min.insync.replicas above the replication factor counts as the replication factor.
    """
    configs = key_values(config)
    with cluster.client() as client:
        topic_id = client.create_topic(name, partitions or -1, replication_factor or -1, configs)
        if wait:
            _await_leaders(client, name, partitions or 1, cluster.timeout)
        count = partitions or len(client.await_topic(name).partitions)
        if MIN_INSYNC_REPLICAS in configs:
            replicas = replication_factor or len(client.await_topic(name).partitions[0].replicas)
            warn_of_minimum(configs[MIN_INSYNC_REPLICAS], replicas)
    if not cluster.printed(CreatedTopic(name, topic_id_to_text(topic_id), count)):
        say(f"topic {name} created with {counted(count, 'partition')}")


@app.command("list", epilog="Example: tidelog topics list --bootstrap-server 127.0.0.1:9092")
@prints(list[str])
def list_topics(cluster: ClusterOptions) -> None:
    """List the topics."""
    with cluster.client() as client:
        metadata = client.metadata()
    if cluster.output is OutputFormat.JSON:
        print_json(list(metadata.topics))
        return
    for name in metadata.topics:
        print_line(name)


app.command(
    epilog="Example: tidelog topics describe flights -o json\n\n"
    "Example: tidelog topics describe flights --replicas"
)(describe)


@app.command(
    epilog="Example: tidelog topics alter flights --config retention.ms=3600000"
    " --delete-config segment.bytes\n\n"
    "Example: tidelog topics alter flights --replication-factor 3 --wait"
)
@prints(ConfigsChanged)
def alter(
    how: _AlterExecution,
    cluster: ClusterOptions,
    name: TopicArgument,
    config: ConfigOption = None,
    delete_config: DeleteConfigOption = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(min=1, max=INT16_MAX, help="Replicas of each partition.", show_default=False),
    ] = None,
) -> None:
    """Set and unset configurations of a topic, or change how many replicas its partitions have.

    Configurations that are not named stay unchanged. A min.insync.replicas above the replication
    factor counts as the replication factor. With --replication-factor the command moves partitions,
    and prints what `tidelog topics move` prints. The options from --save-rollback to --wait apply
    only with --replication-factor.
    """
    if replication_factor is not None:
        if config or delete_config:
            raise typer.BadParameter("give --replication-factor or configurations, not both")
        with cluster.client() as client:
            change_replication_factor(client, name, replication_factor, how, cluster.output)
        return
    if how.is_of_moves:
        raise typer.BadParameter(
            "--save-rollback, --additional, --throttle, --queue and --wait need"
            " --replication-factor"
        )
    changes = changes_of(config, delete_config)
    with cluster.client() as client:
        topics_named(client, [name])
        change_configs(client, ConfigResource(TOPIC, name), changes, how.dry_run, cluster.output)


app.command(epilog="Example: tidelog topics move flights --to-brokers 1,2,3 --wait")(move)


@app.command("add-partitions", epilog="Example: tidelog topics add-partitions flights --to 12")
@prints(AddedPartitions)
def add_partitions(
    cluster: ClusterOptions,
    name: TopicArgument,
    to: Annotated[
        int, typer.Option(min=1, help="Total number of partitions afterwards.", show_default=False)
    ],
    wait: WaitOption = True,
) -> None:
    """Add partitions to a topic; `remove-partitions` removes the highest partitions.

    Existing records stay where they are: a key may go to another partition than before.
    """
    with cluster.client() as client:
        before = len(topics_named(client, [name])[name].partitions)
        if to <= before:
            raise typer.BadParameter(
                f"topic {name!r} has {counted(before, 'partition')}: more than that are needed,"
                f" not {to}",
                param_hint="--to",
            )
        client.add_partitions(name, to)
        if wait:
            _await_leaders(client, name, to, cluster.timeout)
    if not cluster.printed(AddedPartitions(name, before, to)):
        say(f"topic {name} has {counted(to, 'partition')} now, {to - before} of them new")


app.command(
    "remove-partitions",
    epilog="Example: tidelog topics remove-partitions flights --partitions 2 --drain",
)(remove_partitions)


@app.command(epilog="Example: tidelog topics delete flights")
@prints(TopicDeleted)
def delete(cluster: ClusterOptions, name: TopicArgument, wait: WaitOption = True) -> None:
    """Delete a topic and its records; return when no broker has it any more."""
    with cluster.client() as client:
        topics_named(client, [name])
        client.delete_topic(name)
        if wait:
            brokers = len(client.metadata([]).brokers)
            wait_for(
                f"brokers without {name}",
                brokers,
                lambda: brokers - len(client.brokers_knowing(name)),
                cluster.timeout,
            )
    if not cluster.printed(TopicDeleted(name)):
        say(f"topic {name} deleted")


def _await_leaders(client: BlockingClient, name: str, partitions: int, timeout_s: float) -> None:
    """Wait until the expected number of partitions exists and every partition has a leader."""

    def led() -> int:
        topic = client.metadata([name]).topics[name]
        leaders = sum(each.leader != NO_LEADER for each in topic.partitions.values())
        return min(leaders, partitions) if leaders == len(topic.partitions) else leaders - 1

    wait_for(f"leaders of {name}", partitions, led, timeout_s)
