"""Nodes of the cluster id, the controller and the registered brokers (V3, V4).

The nodes are `/cluster/id`, `/controller`, `/controller_epoch` and `/brokers/ids/N`, with Kafka's
keys and spellings (`ClusterIdZNode`, `ControllerZNode`, `BrokerIdZNode` of 3.9). Three keys of a
registration are tidelog's own. `previous_broker_epoch` and `earlier_broker_epochs` are the epochs
of the broker's earlier registrations since it last lost records (E3, E7). `reports_log_ends` means
that the broker serves GetReplicaLogInfo (E6). The nodes `/brokers/stamps/N` and
`/brokers/store_went_back` do not exist in Kafka (E8).
"""

from __future__ import annotations

import re

from tidelog.core.types import (
    LEAST_EPOCHS_SKIPPED,
    NO_BROKER_EPOCH,
    NO_STAMP,
    BrokerInfo,
    Endpoint,
    StoreWentBack,
)
from tidelog.metadata.json_fields import (
    INT64_MAX,
    Fields,
    LayoutError,
    encode_json,
    parse_decimal,
    parse_object,
)
from tidelog.metadata.store import Node

_ENDPOINT = re.compile(r"([A-Za-z0-9_\-]+)://\[?([^\[\]/]*?)\]?:(\d{1,5})")
SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MAX_PORT = 65535


def encode_stamp(imported: int = NO_STAMP) -> bytes:
    """Return the data of `/brokers/stamps/N`.

    If the metadata was imported from another store, `imported` is the transaction id of the
    broker's stamp in that store.
    """
    value: dict[str, object] = {"version": 1}
    if imported != NO_STAMP:
        value["imported"] = imported
    return encode_json(value)


def decode_stamp(path: str, node: Node | None) -> int:
    """Return a broker's stamp: the id of the transaction that wrote its stamp node (E8).

    For a node that was imported from another store, the stamp is the id of the transaction in that
    store. Returns `NO_STAMP` if the broker has no stamp node.

    Raises LayoutError if the data of the node is malformed.
    """
    if node is None:
        return NO_STAMP
    fields = parse_object(path, node.data)
    return fields.integer("imported", node.stat.mzxid, minimum=0, maximum=INT64_MAX)


def encode_store_went_back(found: StoreWentBack) -> bytes:
    """Return the data of `/brokers/store_went_back`, version 1."""
    return encode_json(
        {
            "version": 1,
            "broker": found.broker_id,
            "seen": found.seen,
            "found": found.found,
            "skipped": found.skipped,
            "timestamp": str(found.timestamp_ms),
        }
    )


def decode_store_went_back(path: str, node: Node) -> StoreWentBack:
    """Return the content of `/brokers/store_went_back`: a broker found that the store lost its
    latest writes. Raises LayoutError.
    """
    fields = parse_object(path, node.data)
    return StoreWentBack(
        broker_id=fields.integer("broker", minimum=0),
        seen=fields.integer("seen", minimum=0, maximum=INT64_MAX),
        found=fields.integer("found", NO_STAMP, minimum=NO_STAMP, maximum=INT64_MAX),
        timestamp_ms=fields.decimal_text("timestamp"),
        skipped=fields.integer(
            "skipped",
            LEAST_EPOCHS_SKIPPED,
            minimum=LEAST_EPOCHS_SKIPPED,
            maximum=2 * LEAST_EPOCHS_SKIPPED,
        ),
        zxid=node.stat.mzxid,
    )


def encode_cluster_id(cluster_id: str) -> bytes:
    """Return the data of `/cluster/id`; the field `version` is a string, as in Kafka."""
    return encode_json({"version": "1", "id": cluster_id})


def decode_cluster_id(path: str, data: bytes) -> str:
    """Return the cluster id. Raises LayoutError."""
    fields = parse_object(path, data)
    cluster_id = fields.text("id")
    if not cluster_id:
        raise fields.fault("id", "a cluster id")
    return cluster_id


def encode_controller(broker_id: int, timestamp_ms: int) -> bytes:
    """Return the data of `/controller`, version 2."""
    return encode_json(
        {
            "version": 2,
            "brokerid": broker_id,
            "timestamp": str(timestamp_ms),
            "kraftControllerEpoch": -1,
        }
    )


def encode_controller_epoch(epoch: int) -> bytes:
    """Return the data of `/controller_epoch`, a decimal number."""
    return str(epoch).encode("ascii")


def decode_controller_epoch(path: str, data: bytes) -> int:
    """Return the controller epoch. Raises LayoutError."""
    return parse_decimal(path, data)


def encode_broker(broker: BrokerInfo, timestamp_ms: int) -> bytes:
    """Return the data of `/brokers/ids/N`, version 5.

    The fields `host` and `port` have the first PLAINTEXT endpoint. The broker epoch is no part of
    the data, because it is the id of the transaction that creates the node.
    """
    plain = next((item for item in broker.endpoints if item.security_protocol == "PLAINTEXT"), None)
    value: dict[str, object] = {
        "version": 5,
        "host": plain.host if plain else None,
        "port": plain.port if plain else -1,
        "endpoints": [_endpoint_text(item) for item in broker.endpoints],
        "jmx_port": -1,
        "timestamp": str(timestamp_ms),
        "listener_security_protocol_map": {
            item.listener: item.security_protocol for item in broker.endpoints
        },
        "features": {},
    }
    if broker.rack is not None:
        value["rack"] = broker.rack
    if broker.previous_broker_epoch != NO_BROKER_EPOCH:
        value["previous_broker_epoch"] = broker.previous_broker_epoch
    if broker.earlier_broker_epochs:
        value["earlier_broker_epochs"] = list(broker.earlier_broker_epochs)
    if broker.reports_log_ends:
        value["reports_log_ends"] = True
    return encode_json(value)


def decode_broker(path: str, broker_id: int, node: Node) -> BrokerInfo:
    """Return a broker's registration; reads versions 1 to 5, as Kafka 3.9 does. Raises
    LayoutError.
    """
    fields = parse_object(path, node.data)
    version = fields.integer("version", minimum=1)
    if version == 1:
        endpoints: tuple[Endpoint, ...] = (
            Endpoint("PLAINTEXT", fields.text("host"), fields.integer("port", maximum=_MAX_PORT)),
        )
    else:
        endpoints = _decode_endpoints(fields)
    return BrokerInfo(
        broker_id=broker_id,
        broker_epoch=node.stat.czxid,
        endpoints=endpoints,
        rack=fields.text("rack") if fields.has("rack") else None,
        previous_broker_epoch=fields.integer(
            "previous_broker_epoch", NO_BROKER_EPOCH, maximum=INT64_MAX
        ),
        earlier_broker_epochs=(
            fields.integers("earlier_broker_epochs", maximum=INT64_MAX, distinct=False)
            if fields.has("earlier_broker_epochs")
            else ()
        ),
        reports_log_ends=fields.boolean("reports_log_ends", False),
    )


def _endpoint_text(endpoint: Endpoint) -> str:
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    return f"{endpoint.listener}://{host}:{endpoint.port}"


def _decode_endpoints(fields: Fields) -> tuple[Endpoint, ...]:
    protocols = fields.object("listener_security_protocol_map")
    mapped = fields.has("listener_security_protocol_map")
    endpoints: list[Endpoint] = []
    for text in fields.texts("endpoints"):
        match = _ENDPOINT.fullmatch(text)
        if match is None or int(match[3]) > _MAX_PORT:
            raise fields.fault("endpoints", "LISTENER://host:port each")
        listener = match[1].upper()
        # If the registration does not map listeners to protocols, a listener's name is its
        # protocol.
        protocol = protocols.text(match[1]) if mapped else listener
        if protocol not in SECURITY_PROTOCOLS:
            raise LayoutError(
                fields.path, f"listener {listener} has the unknown security protocol {protocol!r}"
            )
        endpoints.append(Endpoint(listener, match[2], int(match[3]), protocol))
    if not endpoints:
        raise fields.fault("endpoints", "at least one endpoint")
    if len(dict.fromkeys(item.listener for item in endpoints)) != len(endpoints):
        raise fields.fault("endpoints", "one endpoint per listener")
    return tuple(endpoints)
