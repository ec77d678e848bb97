"""The durations of requests, by API and phase.

A connection reports each request once, when it has sent the response. The report calls almost no
Python function, because it is made for every request (`python -m bench metrics`). A request whose
connection is lost before its response is not counted.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Final

from tidelog.broker.server.metrics import PHASE_QUANTILES, REQUEST_MS, REQUESTS
from tidelog.core.clock import Clock
from tidelog.core.metrics import LATENCY_BOUNDS_US, MetricReading, Metrics, Sample
from tidelog.core.recent_buckets import RecentBuckets, quantiles
from tidelog.wire.registry import API, FETCH

_NS_PER_US: Final = 1_000
_SHARES: Final = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)
_PHASES: Final = ("queue", "local", "remote", "response", "send", "total")


class ApiMeter:
    """The durations of one API's requests; Fetch has a meter for brokers and one for clients."""

    __slots__ = ("name", "phases", "recent")

    def __init__(self, metrics: Metrics, name: str) -> None:
        self.name = name
        self.phases = tuple(metrics.sample(REQUEST_MS, name, phase) for phase in _PHASES)
        self.recent = tuple(RecentBuckets() for _ in _PHASES)


class RequestMeters:
    """The durations of all requests of one broker."""

    def __init__(self, metrics: Metrics, clock: Clock) -> None:
        self._metrics = metrics
        self._clock = clock
        self._meters: dict[str, ApiMeter] = {}
        #: Meter and number of requests, by API key, version and whether a broker sent the requests.
        self._found: dict[tuple[int, int, bool], tuple[ApiMeter, Sample]] = {}
        metrics.collect(self._quantiles)

    def sent(
        self,
        request: tuple[int, int, bool],
        arrived_ns: int,
        begun_ns: int,
        handled_ns: int,
        complete_ns: int,
        sending_ns: int,
        sent_ns: int,
    ) -> None:
        """Count a request; the times are monotonic.

        `request` is the API key, the version, and whether a broker sent the request.
        """
        found = self._found.get(request)
        if found is None:
            found = self._found[request] = self._find(*request)
        meter, count = found
        count.value += 1
        times_ns = (
            begun_ns - arrived_ns,
            handled_ns - begun_ns,
            complete_ns - handled_ns,
            sending_ns - complete_ns,
            sent_ns - sending_ns,
            sent_ns - arrived_ns,
        )
        for sample, time_ns in zip(meter.phases, times_ns, strict=True):
            time_us = time_ns // _NS_PER_US
            sample.value += time_us
            sample.buckets[bisect_left(LATENCY_BOUNDS_US, time_us)] += 1

    def _find(self, api_key: int, version: int, is_broker: bool) -> tuple[ApiMeter, Sample]:
        name = API[api_key].name
        count = self._metrics.sample(REQUESTS, name, version)
        if api_key == FETCH:
            # Kafka's names of the two meters. Fetches of followers have their own meter, because
            # they usually wait for new records.
            name = "FetchFollower" if is_broker else "FetchConsumer"
        meter = self._meters.get(name)
        if meter is None:
            meter = self._meters[name] = ApiMeter(self._metrics, name)
        return meter, count

    def _quantiles(self) -> Iterator[MetricReading]:
        now_ms = self._clock.monotonic_ms()
        for meter in list(self._meters.values()):
            by_phase = {"throttle": [0] * len(_SHARES)}
            for phase, sample, recent in zip(_PHASES, meter.phases, meter.recent, strict=True):
                counts = recent.of(sample.buckets, now_ms)
                by_phase[phase] = quantiles(LATENCY_BOUNDS_US, counts, _SHARES)
            metrics = tuple(PHASE_QUANTILES[phase] for phase in by_phase)
            for share, values in zip(_SHARES, zip(*by_phase.values(), strict=True), strict=True):
                yield MetricReading(metrics, values, (meter.name, str(share)))
