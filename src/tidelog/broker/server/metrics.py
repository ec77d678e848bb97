"""The metrics of requests and connections.

Kafka's metrics of request times have quantiles. The broker estimates these quantiles from the
buckets of its own histogram, for the requests of the last minutes.
"""

from __future__ import annotations

from typing import Final

from tidelog.core.metrics import LATENCY_BOUNDS_US, US_PER_MS, counter, gauge, histogram

REQUESTS: Final = counter(
    "kafka_network_requestmetrics_requests_total",
    "requests that were responded to, by API and version",
    "request",
    "version",
)
REQUEST_MS: Final = histogram(
    "tidelog_request_ms",
    "time of requests by phase: `queue` until earlier requests have begun, `local` until the"
    " handler ends, `remote` until the response is complete (the write of the log, and what it"
    " waits for), `response` until earlier responses are sent, `send` into the socket; `total` is"
    " all of them",
    "request",
    "phase",
    bounds=LATENCY_BOUNDS_US,
    scale=US_PER_MS,
)
#: For each phase of `REQUEST_MS`, the phase's name in Kafka's metric names.
_KAFKAS: Final = {
    "queue": ("requestqueuetimems", "time that requests wait for their handler"),
    "local": ("localtimems", "time of handlers"),
    "remote": ("remotetimems", "time until responses are complete, after the handler"),
    "throttle": ("throttletimems", "0: no request is delayed by a quota"),
    "response": ("responsequeuetimems", "time that responses wait for earlier responses"),
    "send": ("responsesendtimems", "time of sending responses into the socket"),
    "total": ("totaltimems", "time of requests from their arrival to their response"),
}
#: Kafka's metric of each phase's quantiles, in milliseconds.
PHASE_QUANTILES: Final = {
    phase: gauge(
        f"kafka_network_requestmetrics_{name}",
        f"{meaning}, in milliseconds: quantiles of the last minutes",
        "request",
        "quantile",
        scale=US_PER_MS,
    )
    for phase, (name, meaning) in _KAFKAS.items()
}
CONNECTIONS: Final = gauge(
    "kafka_server_socket_server_metrics_connection_count",
    "open connections of a listener",
    "listener",
)
CONNECTION_RATE: Final = gauge(
    "kafka_server_socket_server_metrics_connection_creation_rate",
    "connections a second that a listener accepted, since the last scrape but one",
    "listener",
    scale=1_000,
)
CONNECTIONS_ACCEPTED: Final = counter(
    "tidelog_connections_accepted_total", "connections that a listener accepted", "listener"
)
