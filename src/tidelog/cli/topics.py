"""`tidelog topics`: create, list, describe, alter, add-partitions and delete.

`remove-partitions` is in `cli/removing`, `move` in `cli/planned_moves`. All commands use the Kafka
client, so that they work against any reachable cluster. Errors are the brokers' own, with their
reasons.
"""

from __future__ import annotations

from typing import Annotated

import typer

from tidelog.cli.completion import topic_names
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
    ConfigsChanged,
    PartitionsAdded,
    TopicCreated,
    TopicDeleted,
    prints,
)
from tidelog.cli.help import CommandGroup
from tidelog.cli.move_execution import (
    AdditionalOption,
    Execution,
    QueueOption,
    RacksOption,
    SaveRollbackOption,
    WaitForMovesOption,
)
from tidelog.cli.move_files import ThrottleOption
from tidelog.cli.names import topics_named
from tidelog.cli.output import (
    OutputFormat,
    OutputOption,
    print_document,
    print_json,
    print_line,
    say,
)
from tidelog.cli.planned_moves import change_replication_factor, move
from tidelog.cli.removing import remove_partitions
from tidelog.cli.target import (
    BootstrapOption,
    DryRunOption,
    OptionalDirectoryOption,
    TimeoutOption,
    choose_target,
    key_values,
)
from tidelog.cli.waiting import WaitOption, wait_for
from tidelog.client.configs import TOPIC, ConfigResource
from tidelog.core.config_keys import INT16_MAX, INT32_MAX
from tidelog.core.types import NO_LEADER, topic_id_to_text
from tidelog.runtime.blocking import BlockingClient

app = CommandGroup("Create, show, change and delete topics.")

_NewNameArgument = Annotated[str, typer.Argument(help="The topic.", show_default=False)]
_NameArgument = Annotated[
    str, typer.Argument(help="The topic.", show_default=False, autocompletion=topic_names)
]


@app.command(
    epilog="Example: tidelog topics create flights --partitions 6 --replication-factor 3"
    " --config min.insync.replicas=2"
)
@prints(TopicCreated)
def create(
    name: _NewNameArgument,
    partitions: Annotated[
        int | None,
        typer.Option(min=1, max=INT32_MAX, help="Partitions [the broker's default]."),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(
            min=1, max=INT16_MAX, help="Replicas of each partition [the broker's default]."
        ),
    ] = None,
    config: ConfigOption = None,
    wait: WaitOption = True,
    bootstrap: BootstrapOption = None,
    directory: OptionalDirectoryOption = None,
    output: OutputOption = OutputFormat.TABLE,
    timeout: TimeoutOption = 30.0,
) -> None:
    """Create a topic; return when every partition has a leader.

    A min.insync.replicas above the replication factor counts as the replication factor.
    """
    configs = key_values(config)
    with choose_target(bootstrap, directory).client(timeout) as client:
        topic_id = client.create_topic(name, partitions or -1, replication_factor or -1, configs)
        if wait:
            _await_leaders(client, name, partitions or 1, timeout)
        count = partitions or len(client.await_topic(name).partitions)
        if MIN_INSYNC_REPLICAS in configs:
            replicas = replication_factor or len(client.await_topic(name).partitions[0].replicas)
            warn_of_minimum(configs[MIN_INSYNC_REPLICAS], replicas)
    if output is OutputFormat.JSON:
        print_document(TopicCreated(name, topic_id_to_text(topic_id), count))
    else:
        say(f"topic {name} created with {_counted(count)}")


@app.command("list", epilog="Example: tidelog topics list --bootstrap-server 127.0.0.1:9092")
@prints(list[str])
def list_topics(
    bootstrap: BootstrapOption = None,
    directory: OptionalDirectoryOption = None,
    output: OutputOption = OutputFormat.TABLE,
    timeout: TimeoutOption = 30.0,
) -> None:
    """List the topics."""
    with choose_target(bootstrap, directory).client(timeout) as client:
        metadata = client.metadata()
    if output is OutputFormat.JSON:
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
    name: _NameArgument,
    config: ConfigOption = None,
    delete_config: DeleteConfigOption = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(min=1, max=INT16_MAX, help="Replicas of each partition.", show_default=False),
    ] = None,
    save_rollback: SaveRollbackOption = None,
    additional: AdditionalOption = False,
    throttle: ThrottleOption = None,
    queue: QueueOption = False,
    racks: RacksOption = True,
    dry_run: DryRunOption = False,
    wait: WaitForMovesOption = False,
    bootstrap: BootstrapOption = None,
    directory: OptionalDirectoryOption = None,
    output: OutputOption = OutputFormat.TABLE,
    timeout: TimeoutOption = 30.0,
) -> None:
    """Set and unset configurations of a topic, or change how many replicas its partitions have.

    Configurations that are not named stay. A min.insync.replicas above the replication factor
    counts as the replication factor. With --replication-factor the command moves partitions: its
    output is that of topics move, and the options --save-rollback to --wait apply to it only.
    """
    how = Execution(dry_run, wait, queue, throttle, save_rollback, additional, output)
    if replication_factor is not None:
        if config or delete_config:
            raise typer.BadParameter("give --replication-factor or configurations, not both")
        with choose_target(bootstrap, directory).client(timeout) as client:
            change_replication_factor(client, name, replication_factor, racks, how)
        return
    if save_rollback is not None or additional or queue or throttle is not None or wait:
        raise typer.BadParameter(
            "--save-rollback, --additional, --throttle, --queue and --wait need"
            " --replication-factor"
        )
    changes = changes_of(config, delete_config)
    with choose_target(bootstrap, directory).client(timeout) as client:
        topics_named(client, [name])
        change_configs(client, ConfigResource(TOPIC, name), changes, dry_run, output)


app.command(epilog="Example: tidelog topics move flights --to-brokers 1,2,3 --wait")(move)


@app.command("add-partitions", epilog="Example: tidelog topics add-partitions flights --to 12")
@prints(PartitionsAdded)
def add_partitions(
    name: _NameArgument,
    to: Annotated[
        int, typer.Option(min=1, help="Total number of partitions afterwards.", show_default=False)
    ],
    wait: WaitOption = True,
    bootstrap: BootstrapOption = None,
    directory: OptionalDirectoryOption = None,
    output: OutputOption = OutputFormat.TABLE,
    timeout: TimeoutOption = 30.0,
) -> None:
    """Add partitions to a topic; `remove-partitions` removes the highest ones.

    Existing records stay where they are: a key may go to another partition than before.
    """
    with choose_target(bootstrap, directory).client(timeout) as client:
        before = len(topics_named(client, [name])[name].partitions)
        if to <= before:
            raise typer.BadParameter(
                f"topic {name!r} has {_counted(before)}: more than that are needed, not {to}",
                param_hint="--to",
            )
        client.add_partitions(name, to)
        if wait:
            _await_leaders(client, name, to, timeout)
    if output is OutputFormat.JSON:
        print_document(PartitionsAdded(name, before, to))
    else:
        say(f"topic {name} has {_counted(to)} now, {to - before} of them new")


app.command(
    "remove-partitions",
    epilog="Example: tidelog topics remove-partitions flights --partitions 2 --drain",
)(remove_partitions)


@app.command(epilog="Example: tidelog topics delete flights")
@prints(TopicDeleted)
def delete(
    name: _NameArgument,
    wait: WaitOption = True,
    bootstrap: BootstrapOption = None,
    directory: OptionalDirectoryOption = None,
    output: OutputOption = OutputFormat.TABLE,
    timeout: TimeoutOption = 30.0,
) -> None:
    """Delete a topic and its records; return when no broker has it any more."""
    with choose_target(bootstrap, directory).client(timeout) as client:
        topics_named(client, [name])
        client.delete_topic(name)
        if wait:
            brokers = len(client.metadata([]).brokers)
            wait_for(
                f"brokers without {name}",
                brokers,
                lambda: brokers - len(client.brokers_knowing(name)),
                timeout,
            )
    if output is OutputFormat.JSON:
        print_document(TopicDeleted(name))
    else:
        say(f"topic {name} deleted")


def _await_leaders(client: BlockingClient, name: str, partitions: int, timeout_s: float) -> None:
    """Wait until the expected number of partitions exists and every partition has a leader."""

    def led() -> int:
        topic = client.metadata([name]).topics[name]
        leaders = sum(each.leader != NO_LEADER for each in topic.partitions.values())
        return min(leaders, partitions) if leaders == len(topic.partitions) else leaders - 1

    wait_for(f"leaders of {name}", partitions, led, timeout_s)


def _counted(partitions: int) -> str:
    return "1 partition" if partitions == 1 else f"{partitions} partitions"
