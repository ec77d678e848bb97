"""`/healthz` and `/readyz`: whether a broker runs, and whether clients may rely on the broker.

A broker is healthy if its event loop turns, which the response itself proves. A broker is ready if
it has recovered its logs, is registered, is not leaving, and has been in the ISR of all partitions
that it follows at least once since its start. A later shrink of an ISR does not end the readiness,
because the broker still serves clients, and a restart would put more replicas out of sync.
Readiness depends neither on partitions without a leader nor on replicas in failed log directories,
because such replicas may stay out of the ISR for a long time.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from tidelog.broker.broker import Broker
from tidelog.core.types import NO_LEADER
from tidelog.runtime.admin.http_messages import HttpRequest, HttpResponse

#: Maximum number of partitions that a response names.
_MAX_NAMED: Final = 5


async def healthz(_: HttpRequest) -> HttpResponse:
    """Respond OK, which proves that the event loop turns."""
    return HttpResponse.of_text("ok\n")


class Readiness:
    """The readiness of one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        #: Whether the broker has recovered its logs and accepts connections.
        self.has_started = False
        self._was_in_sync = False

    async def readyz(self, _: HttpRequest) -> HttpResponse:
        """Respond 200 if the broker is ready, else 503 with the reason."""
        reason = self.missing()
        if reason is None:
            return HttpResponse.of_text("ready\n")
        return HttpResponse.of_text(f"not ready: {reason}\n", HTTPStatus.SERVICE_UNAVAILABLE)

    def missing(self) -> str | None:
        """Return why the broker is not ready; None if the broker is ready."""
        identity = self._broker.services.identity
        if not self.has_started:
            return "the broker recovers its logs, or registers for the first time"
        if identity.is_leaving:
            return "the broker is stopping"
        if not identity.is_registered:
            return "the broker is not registered: its session with the metadata store is over"
        if not self._broker.view.is_known:
            return "the controller has not sent the cluster's metadata yet"
        behind = [] if self._was_in_sync else self._out_of_sync()
        self._was_in_sync = not behind
        if not behind:
            return None
        more = f" and {len(behind) - _MAX_NAMED} more" if len(behind) > _MAX_NAMED else ""
        named = ", ".join(behind[:_MAX_NAMED])
        return f"{len(behind)} replicas are not in sync yet: {named}{more}"

    def _out_of_sync(self) -> list[str]:
        """Return the partitions that this broker follows without being in their ISR."""
        broker_id = self._broker.broker_id
        return [
            f"{topic.name}-{number}"
            for topic in self._broker.view.topics.values()
            for number, partition in topic.partitions.items()
            if broker_id in partition.replicas
            and broker_id not in partition.isr
            and broker_id not in partition.offline_replicas
            and partition.leader > NO_LEADER
        ]
