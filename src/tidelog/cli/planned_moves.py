"""Commands that plan and request moves: replication factor, placement of a topic, balance (R17).

`tidelog brokers decommission` and `drain` are in `cli/emptying`. `tidelog.client.planning` makes
the plans.
"""

from __future__ import annotations

from typing import Annotated

import typer

from tidelog.cli.completion import TopicArgument
from tidelog.cli.configs import MIN_INSYNC_REPLICAS, warn_of_minimum
from tidelog.cli.documents import MovePlanned, ReassignmentDocument, prints
from tidelog.cli.move_execution import (
    Execution,
    RacksOption,
    carry_out,
    elect_preferred,
    planned_rows,
    print_moves,
    say_total,
)
from tidelog.cli.names import broker_named, topics_named
from tidelog.cli.output import OutputFormat, print_json, say
from tidelog.cli.target import ClusterOptions
from tidelog.client.configs import TOPIC, ConfigResource
from tidelog.client.planning.moves import MovePlan
from tidelog.client.planning.rebalancing import TOLERANCE, rebalanced
from tidelog.client.planning.replication_factor import with_replication_factor
from tidelog.client.planning.topic_placement import on_brokers
from tidelog.core.wording import counted
from tidelog.local.cluster_reading import read_state
from tidelog.runtime.blocking import BlockingClient

_ToleranceOption = Annotated[
    float,
    typer.Option("--tolerance", min=0, help="Percent that a broker's bytes may be off the mean."),
]


def change_replication_factor(
    client: BlockingClient, name: str, factor: int, how: Execution, output: OutputFormat
) -> None:
    """Give every partition of a topic another number of replicas."""
    topics_named(client, [name])
    plan = with_replication_factor(read_state(client, how.racks), name, factor)
    values = client.describe_configs(ConfigResource(TOPIC, name), [MIN_INSYNC_REPLICAS])
    for value in values:
        if value.value is not None:
            warn_of_minimum(value.value, factor)
    carry_out(client, plan, how, output)


@prints(list[MovePlanned])
def move(
    how: Execution,
    cluster: ClusterOptions,
    name: TopicArgument,
    to_brokers: Annotated[
        str, typer.Option("--to-brokers", help="Broker ids, as 1,2,3.", show_default=False)
    ],
) -> None:
    """Move a topic's partitions to brokers; replicas that are on one of these brokers stay.

    Partitions keep their number of replicas. The exit code is 1 if a move was refused.
    """
    brokers = broker_list(to_brokers, "--to-brokers")
    with cluster.client() as client:
        topics_named(client, [name])
        for broker in brokers:
            broker_named(client, broker)
        plan = on_brokers(read_state(client, how.racks), name, brokers)
        carry_out(client, plan, how, cluster.output)


@prints(ReassignmentDocument)
def plan(
    cluster: ClusterOptions,
    rebalance: Annotated[
        bool, typer.Option("--rebalance", help="Balance racks, replicas, bytes and leaders.")
    ] = False,
    tolerance: _ToleranceOption = 100 * TOLERANCE,
    racks: RacksOption = True,
) -> None:
    """Plan the moves that balance the cluster, each with its reason; change nothing.

    A table shows the moves, and -o json prints the file for tidelog reassign execute, which refuses
    a partition whose replicas have changed. With --dry-run, these commands print the plans of their
    moves: topics alter --replication-factor, topics move, brokers decommission, brokers drain. For
    a balance of the load, see tidelog pipeline plan.
    """
    if not rebalance:
        raise typer.BadParameter("give --rebalance: it is the only plan that this command makes")
    with cluster.client() as client:
        found = rebalanced(read_state(client, racks), tolerance / 100)
    if cluster.output is OutputFormat.JSON:
        print_json(found.document())
    else:
        _print_balance(found)


def _print_balance(found: MovePlan) -> None:
    if not found.moves:
        say("the cluster is balanced")
        return
    print_moves(planned_rows(found), OutputFormat.TABLE)
    say_total(found)


@prints(list[MovePlanned])
def rebalance(
    how: Execution, cluster: ClusterOptions, tolerance: _ToleranceOption = 100 * TOLERANCE
) -> None:
    """Balance racks, replicas, bytes and leaders of the brokers by moves that copy little.

    After the moves, brokers differ by at most one in replicas, and by as little as the replicas
    allow in leaders. A broker's bytes differ from the mean by at most the tolerance, if exchanges
    of replicas can achieve that. The exit code is 1 if a move was refused.
    """
    with cluster.client() as client:
        found = rebalanced(read_state(client, how.racks), tolerance / 100)
        if not found.moves:
            say("the cluster is balanced")
        carry_out(client, found, how, cluster.output)
        if not how.dry_run and (how.wait or not found.moves):
            _lead_by_preferred(client)


def _lead_by_preferred(client: BlockingClient) -> None:
    """Elect preferred replicas that are in sync, because the plan assumes their leadership."""
    moving = client.list_reassignments()
    wanted = [
        tp
        for tp, each in client.metadata().all_partitions()
        if each.leader != each.replicas[0] and each.replicas[0] in each.isr and tp not in moving
    ]
    if elect_preferred(client, wanted):
        raise typer.Exit(1)
    if wanted:
        say(f"{counted(len(wanted), 'partition', 'has', 'have')} the preferred leader again")


def broker_list(text: str, option: str) -> tuple[int, ...]:
    """Parse `1,2,3`; raise a usage error for other text, and for an id named twice."""
    words = [word.strip() for word in text.split(",")]
    for word in words:
        if not word.isdecimal():
            raise typer.BadParameter(
                f"{text!r} are no broker ids: 1,2,3 expected", param_hint=option
            )
    brokers = tuple(map(int, words))
    check_named_once(brokers, option)
    return brokers


def check_named_once(brokers: tuple[int, ...], option: str) -> None:
    """Raise a usage error for a broker that is named twice."""
    for broker in brokers:
        if brokers.count(broker) > 1:
            raise typer.BadParameter(f"broker {broker} is named twice", param_hint=option)
