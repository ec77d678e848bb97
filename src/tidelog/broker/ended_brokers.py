"""The brokers that have just ended, as far as this broker knows (V83).

A broker counts as ended if a connection to it was reset or refused, or if the controller removed it
from the live brokers. Both events begin a period of `max_ms`, in which this broker expects new
leaders for the partitions of the ended broker. Further lost connections to an ended broker do not
prolong that period. A response on a new connection shows that the broker runs, so new leaders are
no longer expected. The callers pass the time as an argument.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.core.types import BrokerInfo

#: Milliseconds for which the responses to requests for named topics still list an ended broker. If
#: a response names a leader but does not list its broker, librdkafka cannot use the partition and
#: asks again a second later. `KEPT_MS` is longer than all timers after which librdkafka refreshes
#: its metadata.
KEPT_MS = 10_000


class EndedBrokers:
    """The ended brokers, each with the time of the first sign of its end."""

    def __init__(self) -> None:
        #: By broker id: monotonic time of the first sign of the broker's end. A response which
        #: shows that the broker runs removes the entry.
        self._since_ms: dict[int, int] = {}
        #: By id: brokers that are no longer live, each with its last known addresses and the time
        #: at which it left the live brokers.
        self._gone: dict[int, tuple[BrokerInfo, int]] = {}

    def lost(self, broker_id: int, now_ms: int) -> bool:
        """Note a lost connection; return whether new leaders are expected from now on."""
        since_ms = self._since_ms.get(broker_id)
        if since_ms is not None and now_ms - since_ms < KEPT_MS:
            return False
        self._since_ms[broker_id] = now_ms
        return True

    def reached(self, broker_id: int) -> bool:
        """Note a response on a new connection; return whether the broker had counted as ended."""
        return self._since_ms.pop(broker_id, None) is not None

    def published(
        self, before: Mapping[int, BrokerInfo], after: Mapping[int, BrokerInfo], now_ms: int
    ) -> None:
        """Compare the live brokers before and after an UpdateMetadata request."""
        if before.keys() == after.keys():
            return
        for broker_id in after.keys() - before.keys():
            self._gone.pop(broker_id, None)
            self._since_ms.pop(broker_id, None)
        for broker_id in before.keys() - after.keys():
            self._gone[broker_id] = before[broker_id], now_ms
            self._since_ms[broker_id] = now_ms

    def expected(self, now_ms: int, max_ms: int) -> dict[int, int]:
        """Return, by id, the ended brokers whose partitions expect new leaders, and until when."""
        if not self._since_ms:
            return {}
        return {
            broker_id: since_ms + max_ms
            for broker_id, since_ms in self._since_ms.items()
            if now_ms < since_ms + max_ms
        }

    def kept(self, now_ms: int) -> Mapping[int, BrokerInfo]:
        """Return the brokers that left the live brokers within `KEPT_MS`; forget older entries."""
        for broker_id in [
            broker_id
            for broker_id, (_, since_ms) in self._gone.items()
            if now_ms - since_ms >= KEPT_MS
        ]:
            del self._gone[broker_id]
            self._since_ms.pop(broker_id, None)
        return {broker_id: info for broker_id, (info, _) in self._gone.items()}
