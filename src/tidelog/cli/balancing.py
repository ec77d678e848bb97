"""`tidelog log-dirs balance`: replicas move from full volumes of a broker to emptier volumes (D15).

The broker plans the moves, as it does for automatic balancing. The command requests each move and
shows its reason. No plan is stored: a repeated command makes a new plan for the remaining moves.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from tidelog.cli.completion import BrokerOption
from tidelog.cli.directory_moves import ReplicaPlace, carry_out, say_refused
from tidelog.cli.documents import DirectoryMovePlanned, prints
from tidelog.cli.drains import planned_document, print_planned
from tidelog.cli.names import broker_named
from tidelog.cli.target import ClusterOptions, DryRunOption
from tidelog.core.errors import ErrorCode


@prints(list[DirectoryMovePlanned])
def balance(
    cluster: ClusterOptions,
    broker: BrokerOption,
    threshold: Annotated[
        int | None,
        typer.Option(
            "--threshold",
            min=1,
            max=100,
            help="Percent by which the fills of two volumes may differ [that of the broker].",
        ),
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Wait until the replicas are there.")
    ] = False,
    dry_run: DryRunOption = False,
) -> None:
    """Move replicas from full volumes of a broker to emptier volumes, copying few bytes.

    Nothing moves while the fills of the volumes differ by no more than
    log.dir.balance.threshold.percent of the broker. The exit code is 1 if a move was refused; the
    other moves go on. Brokers serve this command's request only on the inter-broker listener.
    """
    with cluster.client() as client:
        broker_named(client, broker)
        planned = client.plan_balance(broker, threshold)
        wanted = {ReplicaPlace(broker, each.tp): each.target for each in planned if each.target}
        outcomes = carry_out(client, wanted, dry_run=dry_run, wait=wait)
    rows = []
    for each in planned:
        row = planned_document(broker, each, is_begun=not dry_run)
        error = outcomes[ReplicaPlace(broker, each.tp)]
        result = "done" if wait and not dry_run else row.result
        rows.append(replace(row, result=result if error is ErrorCode.NONE else error.name))
    empty = "nothing is to be moved: the volumes are balanced, or no move would help"
    print_planned(rows, cluster.output, empty)
    if say_refused(outcomes, may_be_missing=False):
        raise typer.Exit(1)
