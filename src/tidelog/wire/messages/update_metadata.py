"""UpdateMetadata (key 6), versions 6 to 8: the controller sends a broker the cluster's state.

Kafka 3.9 sends version 8 without negotiation. Version 7 brings topic ids, version 8 the flag of
KRaft controllers and the request type as a tagged field (KIP-866). All three versions are flexible.
Only tidelog has the fields with tags from 20,000 on (V71, E1, E4, E8); Kafka's brokers skip these
fields.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.core.dataclass import dataclass
from tidelog.wire.messages.leader_and_isr import ELIGIBLE_TAG, FIRST_LEADER_EPOCH_TAG
from tidelog.wire.schema import Api, array, boolean, int8, int16, int32, int64, string, uuid

#: A tag of the fields that only tidelog has, far from the tags that Kafka assigns.
LAST_LEADER_TAG = 20_003
AWAITED_TAG = 20_004
QUORUM_TAG = 20_005
IS_WAITING_TAG = 20_006
SHRUNK_TAG = 20_007
STATUSES_TAG = 20_008
CAUSES_TAG = 20_009
STORE_MARK_TAG = 20_010


@dataclass(slots=True)
class UpdateMetadataPartitionState:
    """The state of a partition; leader -2 means that the topic or partition is being deleted."""

    partition_index: int = int32("0+")
    controller_epoch: int = int32("0+")
    leader: int = int32("0+")
    leader_epoch: int = int32("0+")
    isr: Sequence[int] = array("int32", "0+")
    zk_version: int = int32("0+")
    replicas: Sequence[int] = array("int32", "0+")
    offline_replicas: Sequence[int] = array("int32", "4+", ignorable=True, rare=True)
    #: First leader epoch of the partition since its last creation, as in LeaderAndIsr (V71).
    first_leader_epoch: int = int32("6+", ignorable=True, tag=FIRST_LEADER_EPOCH_TAG)
    #: Eligible leader replicas (E1).
    eligible: Sequence[int] = array("int32", "6+", ignorable=True, tag=ELIGIBLE_TAG, rare=True)
    #: The last leader of a partition without a leader (E4).
    last_leader: int = int32("6+", -1, ignorable=True, tag=LAST_LEADER_TAG)
    #: Replicas that may lead a partition without a leader (E6).
    awaited: Sequence[int] = array("int32", "6+", ignorable=True, tag=AWAITED_TAG)
    #: A MemberStatus for each replica in `awaited`, in the same order (`core.leader_wait`).
    statuses: Sequence[int] = array("int8", "6+", ignorable=True, tag=STATUSES_TAG)
    #: Number of replicas in `awaited` whose brokers must be registered before a replica that may
    #: lack committed records may lead (E6).
    quorum: int = int32("6+", ignorable=True, tag=QUORUM_TAG)
    #: Whether the election of a leader still waits for brokers (`leader.recovery.wait.ms`).
    is_waiting: bool = boolean("6+", ignorable=True, tag=IS_WAITING_TAG)
    #: Replicas that left the ISR for a known cause.
    shrunk: Sequence[int] = array("int32", "6+", ignorable=True, tag=SHRUNK_TAG)
    #: A ShrinkCause for each replica in `shrunk`, in the same order (`core.shrink_causes`).
    causes: Sequence[int] = array("int8", "6+", ignorable=True, tag=CAUSES_TAG)


@dataclass(slots=True)
class UpdateMetadataTopicState:
    """The partition states of one topic."""

    topic_name: str = string("5+")
    topic_id: bytes = uuid("7+", ignorable=True)
    partition_states: list[UpdateMetadataPartitionState] = array(UpdateMetadataPartitionState, "5+")


@dataclass(slots=True)
class UpdateMetadataEndpoint:
    """One listener; `security_protocol` is 0 for PLAINTEXT, 1 for SSL, 2 and 3 for SASL."""

    port: int = int32("1+")
    host: str = string("1+")
    listener: str = string("3+", ignorable=True)
    security_protocol: int = int16("1+")


@dataclass(slots=True)
class UpdateMetadataBroker:
    """A live broker with its listeners."""

    id: int = int32("0+")
    endpoints: list[UpdateMetadataEndpoint] = array(UpdateMetadataEndpoint, "1+", ignorable=True)
    rack: str | None = string("2+", nullable="0+", ignorable=True)


@dataclass(slots=True)
class UpdateMetadataRequest:
    """The controller's metadata for a broker, with all live brokers.

    `controller_epoch` and `broker_epoch` fence the request.
    """

    controller_id: int = int32("0+")
    is_kraft_controller: bool = boolean("8+")
    type: int = int8("8+", tag=0)
    controller_epoch: int = int32("0+")
    broker_epoch: int = int64("5+", -1, ignorable=True)
    topic_states: list[UpdateMetadataTopicState] = array(
        UpdateMetadataTopicState, "5+", shared=True
    )
    live_brokers: list[UpdateMetadataBroker] = array(UpdateMetadataBroker, "0+")
    #: Identifier of the node `/brokers/store_went_back`, which a broker creates if the metadata
    #: store was restored from an older copy (E8); empty if there is no such node.
    store_mark: str = string("6+", "", ignorable=True, tag=STORE_MARK_TAG)


@dataclass(slots=True)
class UpdateMetadataResponse:
    """The single error code of an UpdateMetadata request."""

    error_code: int = int16("0+")


API = Api(
    key=6,
    name="UpdateMetadata",
    request=UpdateMetadataRequest,
    response=UpdateMetadataResponse,
    min_version=6,
    max_version=8,
    first_flexible_version=6,
    inter_broker=True,
)
