"""A client that follows the list of brokers as librdkafka does.

The client knows only the brokers of the last Metadata response. It decommissions a broker that the
response does not list, and drops its bootstrap addresses once it knows a broker. After an empty
list the client has no broker left and hangs for ever. The steady topic exists all the time, so no
broker may respond that it is unknown.

Source: librdkafka, rd_kafka_parse_Metadata and rd_kafka_broker_decommission (since 2.10).
"""

from __future__ import annotations

import random

from tidelog.client.steps import Address
from tidelog.core.errors import ErrorCode
from tidelog.sim.workload.churning import ChurnKind, churn_of_profiles
from tidelog.sim.workload.work import Workload
from tidelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tidelog.wire.registry import METADATA

_VERSION = 12
_TIMEOUT_MS = 1_500


@churn_of_profiles
class BrokersFollowed(ChurnKind):
    """A client that knows only the brokers of the last Metadata response, which must list some."""

    pause_ms = 1, 30

    def __init__(self, work: Workload, draw: random.Random) -> None:
        super().__init__(work, draw)
        self._known = list(self.client.bootstrap)

    async def act(self) -> None:
        address = self.draw.choice(self._known)
        with self.tried("metadata"):
            answer = await self._ask(address)
            self._known = [Address(broker.host, broker.port) for broker in answer.brokers]
            self._check(address, answer)
            self.succeeded(f"{len(self._known)} brokers")

    async def _ask(self, address: Address) -> MetadataResponse:
        connection = await self.client.connection(address)
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=self.work.steady[0].topic)],
            allow_auto_topic_creation=False,
        )
        answer: MetadataResponse = await connection.call(
            METADATA, connection.version(METADATA, _VERSION), request, _TIMEOUT_MS
        )
        return answer

    def _check(self, address: Address, answer: MetadataResponse) -> None:
        violate = self.work.cluster.simulator.violate
        if not answer.brokers:
            violate(
                f"a client is hung for good: {address} answered Metadata without a broker, so the"
                " client has dropped all brokers that it knew"
            )
            self.stopping = True
        if any(topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for topic in answer.topics):
            violate(f"{address} answered that {self.work.steady[0].topic} is unknown")
