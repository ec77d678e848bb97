"""`tidelog brokers`: the brokers of a cluster, and what each leads and holds.

The commands here only read; `cli/emptying` has those that take partitions off brokers. The metadata
of one broker shows how many partitions each broker leads and holds.
"""

from __future__ import annotations

from tidelog.cli.documents import BrokerListed, prints
from tidelog.cli.emptying import decommission, drain
from tidelog.cli.help import CommandGroup
from tidelog.cli.output import DOUBTFUL, WRONG, Marked, print_table
from tidelog.cli.target import ClusterOptions
from tidelog.client.cluster import ClusterMetadata
from tidelog.local.status import Holding, holdings_of

app = CommandGroup("Show brokers, and take partitions off them.")

#: The state of a broker that is not registered.
_DOWN = "down"


@app.command("list", epilog="Example: tidelog brokers list -o json")
@prints(list[BrokerListed])
def list_brokers(cluster: ClusterOptions) -> None:
    """List the brokers, and how many partitions each leads and holds.

    A broker that holds replicas and is not registered is down; its address is not known.
    """
    with cluster.client() as client:
        rows = _brokers(client.metadata())
    if cluster.printed(rows):
        return
    print_table(
        ("broker", "address", "state", "rack", "controller", "leads", "replicas", "out of sync"),
        (
            (
                each.id,
                None if each.host is None else f"{each.host}:{each.port}",
                Marked("DOWN", WRONG) if each.state == _DOWN else each.state,
                each.rack,
                each.controller,
                each.leaders,
                each.replicas,
                Marked.where(each.out_of_sync > 0, each.out_of_sync, DOUBTFUL),
            )
            for each in rows
        ),
    )


app.command(epilog="Example: tidelog brokers decommission 3 --wait")(decommission)
app.command(epilog="Example: tidelog brokers drain 3 --wait --save-rollback back.json")(drain)


def _brokers(metadata: ClusterMetadata) -> list[BrokerListed]:
    holdings = holdings_of(metadata)
    rows = []
    for broker_id in sorted({*metadata.brokers, *holdings}):
        node = metadata.brokers.get(broker_id)
        holding = holdings.get(broker_id, Holding())
        rows.append(
            BrokerListed(
                id=broker_id,
                host=None if node is None else node.host,
                port=None if node is None else node.port,
                rack=None if node is None else node.rack,
                controller=broker_id == metadata.controller_id,
                leaders=holding.leaders,
                replicas=holding.replicas,
                out_of_sync=holding.out_of_sync,
                state=_DOWN if node is None else "up",
            )
        )
    return rows
