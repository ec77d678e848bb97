"""`tidelog brokers`: the brokers of a cluster, with the number of partitions on each.

The commands of this module only read; `cli/emptying` has the commands that move partitions off
brokers. The metadata of one broker shows how many partitions each broker leads and holds.
"""

from __future__ import annotations

from tidelog.cli.documents import BrokerListed, document_of, prints
from tidelog.cli.emptying import decommission, drain
from tidelog.cli.help import CommandGroup
from tidelog.cli.output import WRONG, Marked, address_text, marked_out_of_sync, print_rows
from tidelog.cli.target import ClusterOptions
from tidelog.client.cluster import ClusterMetadata
from tidelog.local.status import brokers_of

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
        metadata = client.metadata()
    rows = [
        document_of(BrokerListed, each, rack=_rack(metadata, each.id))
        for each in brokers_of(metadata)
    ]
    print_rows(
        rows,
        (
            ("broker", "id"),
            ("address", address_text),
            ("state", lambda it: Marked("DOWN", WRONG) if it.state == _DOWN else it.state),
            "rack",
            "controller",
            ("leads", "leaders"),
            "replicas",
            ("out of sync", marked_out_of_sync),
        ),
        cluster.output,
    )


app.command(epilog="Example: tidelog brokers decommission 3 --wait")(decommission)
app.command(epilog="Example: tidelog brokers drain 3 --wait --save-rollback back.json")(drain)


def _rack(metadata: ClusterMetadata, broker_id: int) -> str | None:
    node = metadata.brokers.get(broker_id)
    return None if node is None else node.rack
