"""The brokers that have just ended, as far as this broker can know (V83).

A broker has ended where a connection of this broker to it was reset or refused, or where the
controller has taken it off the live brokers. Each of both opens one window of `max_ms` in which the
next leaders of its partitions are expected. Further lost connections of the same ending open no
other window. A response on a new connection closes it: that broker runs. This module knows no clock
and no connection; time is an argument.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.core.types import BrokerInfo

#: How long a broker that is not live any more stays in responses that name topics. librdkafka gives
#: the partitions of a broker that leaves its list to none, and asks again a second later. Within
#: this time it has asked again, whichever of its timers was the longest.
KEPT_MS = 10_000


class EndedBrokers:
    """The endings of brokers, each with the time of its first sign."""

    def __init__(self) -> None:
        #: When the first sign came, by broker; only while nothing has shown that it runs.
        self._since_ms: dict[int, int] = {}
        #: The brokers that are not live any more, as they were known, and since when.
        self._gone: dict[int, tuple[BrokerInfo, int]] = {}

    def lost(self, broker_id: int, now_ms: int) -> bool:
        """Note a connection that was reset or refused; return whether it opens a window."""
        since_ms = self._since_ms.get(broker_id)
        if since_ms is not None and now_ms - since_ms < KEPT_MS:
            return False
        self._since_ms[broker_id] = now_ms
        return True

    def reached(self, broker_id: int) -> bool:
        """Note a response on a new connection; return whether the broker was taken as ended."""
        return self._since_ms.pop(broker_id, None) is not None

    def published(
        self, before: Mapping[int, BrokerInfo], after: Mapping[int, BrokerInfo], now_ms: int
    ) -> None:
        """Compare the live brokers before and after an UpdateMetadata."""
        if before.keys() == after.keys():
            return
        for broker_id in after.keys() - before.keys():
            self._gone.pop(broker_id, None)
            self._since_ms.pop(broker_id, None)
        for broker_id in before.keys() - after.keys():
            self._gone[broker_id] = before[broker_id], now_ms
            self._since_ms[broker_id] = now_ms

    def expected(self, now_ms: int, max_ms: int) -> dict[int, int]:
        """Return the brokers whose successors are expected now, and until when each."""
        if not self._since_ms:
            return {}
        return {
            broker_id: since_ms + max_ms
            for broker_id, since_ms in self._since_ms.items()
            if now_ms < since_ms + max_ms
        }

    def kept(self, now_ms: int) -> Mapping[int, BrokerInfo]:
        """Return the brokers that are live no more since `KEPT_MS` at most; forget older ones."""
        for broker_id in [
            broker_id
            for broker_id, (_, since_ms) in self._gone.items()
            if now_ms - since_ms >= KEPT_MS
        ]:
            del self._gone[broker_id]
            self._since_ms.pop(broker_id, None)
        return {broker_id: info for broker_id, (info, _) in self._gone.items()}
